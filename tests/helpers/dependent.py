"""Matrices of variables that are nearly dependent."""

import numpy as np


def nearly_dependent(least, third):
    """Return a matrix with an eigenvalue of (c, −c, third), of unit length, on a unit diagonal."""
    d = third * np.sqrt(2.0 / (1.0 - third**2))
    r = 1.0 - least - 0.5 * d**2 * (1.0 - least)
    a = 0.5 * d * (1.0 - least)
    return np.array([[1.0, r, -a], [r, 1.0, a], [-a, a, 1.0]])
