"""Differences between every two columns, from their means and covariances."""

from __future__ import annotations

import numpy as np
from numba import njit

from vcomp._typing import BoolArray, FloatArray


@njit(cache=True, nogil=True)
def all_pairs(
    S: FloatArray, means: FloatArray, cancelled: float
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return means and variances of the differences between every two columns.

    Pairs are in the order of the rows of an upper triangle.

    Parameters
    ----------
    S : (k, k) covariance matrix of the columns
    means : (k,) their means
    cancelled : share of S_ii + S_jj below which their variance has lost too many digits

    Returns
    -------
    differences, variances, doubtful : (k(k-1)/2,) each; which variances lie below that share
    """
    k = means.size
    n_pairs = k * (k - 1) // 2
    differences, variances = np.empty(n_pairs), np.empty(n_pairs)
    doubtful = np.empty(n_pairs, np.bool_)
    start = 0
    for i in range(k - 1):
        mean, own = means[i], S[i, i]
        for j in range(i + 1, k):
            pair = start + j - i - 1
            total = own + S[j, j]
            variance = total - 2.0 * S[i, j]
            differences[pair] = mean - means[j]
            variances[pair] = variance
            doubtful[pair] = variance <= cancelled * total
        start += k - 1 - i
    return differences, variances, doubtful
