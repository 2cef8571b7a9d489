"""Draws of the errors of system means, and of how large errors are (eqs. 15.9a and 15.9b)."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray

_TINY = 1e-280
"""Smallest relative length of an error."""


def corrected_lengths(errors: FloatArray, mean: float, sample_df: float, df: float) -> FloatArray:
    """Return errors whose lengths vary as those of the true covariances do (eq. 15.9a).

    The sample covariances of few topics have fewer effective degrees of freedom than the true
    ones. So the lengths of errors that are drawn with them vary too much: their squares are raised
    to a power that leaves the mean and makes their relative variance 2/ν.

    Parameters
    ----------
    errors : (draws, k) drawn with the sample covariances
    mean : expectation of their squared lengths
    sample_df, df : effective degrees of freedom of the sample covariances and of the true ones
    """
    from scipy.special import gammaln

    power = np.sqrt(sample_df / df)
    if power >= 1.0 or mean == 0.0:
        return errors
    squares = np.einsum("ij,ij->i", errors, errors) / mean
    half = sample_df / 2.0
    raised = power * np.log(half) + gammaln(half) - gammaln(half + power)
    factors = np.exp((raised + (power - 1.0) * np.log(np.maximum(squares, _TINY))) / 2.0)
    return np.asarray(errors * factors[:, np.newaxis])


def mean_error_ratio(df: float) -> float:
    """Return the mean absolute value of Student's t of `df`, at least 2, over that of a normal.

    So errors of a single pair, whose variance has these degrees of freedom, are on average as
    large as Student's distribution says.

    Parameters
    ----------
    df : degrees of freedom of the variance of a pair

    Examples
    --------
    >>> round(mean_error_ratio(19), 3)
    1.042
    """
    from scipy.special import gammaln

    half = max(df, 2.0) / 2.0
    return float(np.sqrt(half) * np.exp(gammaln(half - 0.5) - gammaln(half)))
