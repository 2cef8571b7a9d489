"""Sphericity: whether all differences of two columns, such as systems, have one variance."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.numerics import f_quantile

_ROUNDING = 1e-24
"""Share of the largest squared score below which variances are the rounding of scores."""


def sphericity(residual: FloatArray, df: float) -> float:
    """Return ε, 1 where all differences of two columns have one variance.

    The two traces are estimated without bias for normal residuals, also with fewer rows than
    columns (Lecoutre's correction of Huynh and Feldt's estimator is their ratio).

    Parameters
    ----------
    residual : (k, k) covariances of the residuals of columns, from which rows are removed too
    df : rows less one

    References
    ----------
    Huynh, H. and Feldt, L. S. (1976). *Journal of Educational Statistics*, 1, 69-82.
    """
    trace, squares = float(np.trace(residual)), float((residual * residual).sum())
    of_squares = (squares - trace**2 / df) / ((df - 1.0) * (df + 2.0)) * df**2
    squared = (trace**2 - 2.0 * squares / (df + 1.0)) / ((df - 1.0) * (df + 2.0))
    squared *= df * (df + 1.0)
    if of_squares <= 0.0:
        return 1.0
    # tr(S²) ≤ (tr S)² makes the ratio 1/(k − 1) at least.
    return float(min(1.0, squared / ((len(residual) - 1.0) * of_squares)))


def f_level(k: int, df: float, epsilon: float) -> float:
    """Return the probability with which the F test of columns at .05 rejects a true null.

    Parameters
    ----------
    k : number of columns
    df : rows less one
    epsilon : of their sphericity (Box 1954: degrees of freedom times ε)
    """
    from scipy.special import fdtrc  # scipy.stats takes a second to import

    of_test = (k - 1.0, df * (k - 1.0))
    critical = f_quantile(0.95, *of_test)
    return float(fdtrc(epsilon * of_test[0], epsilon * of_test[1], critical))


def unequal_differences(values: FloatArray) -> float:
    """Return the p-value of John's test that all differences of columns have one variance.

    The test has its level with fewer rows than columns too. Where cells are missing, covariances
    of the residuals of rows and columns are compared with those that the filled cells leave.

    Parameters
    ----------
    values : (n, k) with n > 2; nan where a cell is missing. Rows with one value are not used

    Returns
    -------
    p-value, 1 if rows show one difference of columns or none

    References
    ----------
    John, S. (1972). The distribution of a statistic used for testing sphericity of normal
    distributions. *Biometrika*, 59, 169-173.

    Ledoit, O. and Wolf, M. (2002). Some hypothesis tests for the covariance matrix when the
    dimension is large compared to the sample size. *Annals of Statistics*, 30, 1081-1102.
    """
    from scipy.special import chdtrc

    filled = ~np.isnan(values)
    kept = filled.sum(axis=1) > 1
    M = filled[kept].astype(float)
    share = M / M.sum(axis=1, keepdims=True)
    expected = np.diag(M.sum(axis=0)) - M.T @ share
    y = np.where(filled[kept], values[kept], 0.0)
    y -= M * (share * y).sum(axis=1, keepdims=True)
    means = np.linalg.lstsq(expected, y.sum(axis=0), rcond=None)[0]
    y -= M * (means - (share @ means)[:, None])
    d, P = np.linalg.eigh(expected)
    # Means of rows have no variance, and columns that share no rows, if indirectly, no difference.
    shown = d > 1e-9 * d[-1]
    root, p = P[:, shown] / np.sqrt(d[shown]), int(shown.sum())
    own = root.T @ (y.T @ y) @ root
    mean = np.trace(own) / max(p, 1)
    if p < 2 or not mean > _ROUNDING * np.square(np.nan_to_num(values)).max():
        return 1.0
    departure = float(np.square(own / mean - np.eye(p)).sum())
    df = np.trace(expected) / p - 1.0
    return float(chdtrc(p * (p + 1) / 2.0 - 1.0, 0.5 * df * departure))
