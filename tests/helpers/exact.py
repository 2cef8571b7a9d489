"""Matrices of fractions, or of decimals in the context that holds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def exact(values, number=Fraction):
    """Return the numbers as they are stored, each as a fraction or a decimal."""
    return np.vectorize(number, otypes=[object])(np.asarray(values, dtype=float))


def exact_inverse(V):
    """Return the inverse by Gauss–Jordan elimination; V is positive definite: no pivoting."""
    n = V.shape[0]
    work = np.concatenate([V, exact(np.eye(n), type(V[0, 0]))], axis=1)
    for k in range(n):
        work[k] = work[k] / work[k, k]
        for i in range(n):
            if i != k:
                work[i] = work[i] - work[i, k] * work[k]
    return work[:, n:]
