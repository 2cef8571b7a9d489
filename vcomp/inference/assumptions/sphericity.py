"""Sphericity: whether all differences of two columns, such as systems, have one variance.

All of it follows from the covariance matrix of the columns, (k, k), over n rows.
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.numerics import f_quantile


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


def mauchly(covariance: FloatArray, df: float) -> float:
    """Return the p-value of Mauchly's test that all differences of columns have one variance.

    Parameters
    ----------
    covariance : (k, k) of the columns
    df : rows less one, at least k

    References
    ----------
    Mauchly, J. W. (1940). Significance test for sphericity of a normal n-variate distribution.
    *Annals of Mathematical Statistics*, 11, 204-209; with Box's approximation.
    """
    from scipy.special import chdtrc

    p = len(covariance) - 1
    of_rows = covariance - covariance.mean(axis=0)
    # Of the residuals of rows, one eigenvalue is zero: that of the mean of the columns.
    values = np.linalg.eigvalsh(of_rows - of_rows.mean(axis=1, keepdims=True))[1:]
    mean = float(values.mean())
    if not mean > 0.0:
        return 1.0
    if values[0] <= 0.0:
        return 0.0
    log_det = float(np.log(values / mean).sum())
    factor = df - (2.0 * p**2 + p + 2.0) / (6.0 * p)
    return float(chdtrc(p * (p + 1) / 2.0 - 1.0, max(-factor * log_det, 0.0)))
