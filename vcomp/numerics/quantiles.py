"""Quantiles of F for degrees of freedom that are whole but for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

_WHOLE = 1e-9
"""Relative difference from a whole number below which degrees of freedom are that number."""


def f_quantile(p: Any, df_1: Any, df_2: Any) -> Any:
    """Return the value that F stays below with probability `p`; arrays are broadcast.

    Parameters
    ----------
    p : probability
    df_1, df_2 : degrees of freedom

    Examples
    --------
    >>> round(float(f_quantile(0.975, 2 + 7e-14, 2 + 1e-15)), 6)
    39.0
    """
    # scipy.stats gives the same numbers and takes a second to import.
    from scipy.special import fdtri

    return fdtri(*np.broadcast_arrays(_snapped(df_1), _snapped(df_2)), p)


def _snapped(df: Any) -> Any:
    """Return degrees of freedom, whole ones without their rounding error.

    At 2 + 7e-14 and 2 + 1e-15 degrees of freedom scipy's quantile of F is wrong by a quarter.
    """
    whole = np.round(df)
    with np.errstate(invalid="ignore"):  # infinite ones
        return np.where(np.abs(df - whole) <= _WHOLE * np.asarray(df), whole, df)
