"""How well a test of n topics would rank the systems: Eτ and Eτ_AP (Urbano, 2016).

References
----------
Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
statistical assumptions. *Information Retrieval Journal*, 19(3), 313-350. Section 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.dstudy.paired import PairedDifferences
from vcomp.exceptions import PlanError, check_alpha
from vcomp.uncertainty.delta import wald_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["expected_tau", "expected_tau_ap"]


def expected_tau(
    pairs: PairedDifferences, n_topics: float | Iterable[float], *, alpha: float = 0.05
) -> pd.DataFrame:
    """Estimate Kendall's τ between the ranking by a test of `n_topics` and the true ranking.

    The probability that a new test of n' topics swaps systems i and j is estimated as

        w_ij = Φ(-√n' D̄_ij / s_ij)

    with systems sorted by mean, D̄ and s the mean and standard deviation of their differences over
    topics (Urbano, 2016, eq. 35). Then (eqs. 38 and 39)

        Eτ = 4 Σ_{i<j} (1 - w_ij) / (k(k-1)) - 1,    Var = 16 Σ_{i<j} w_ij (1 - w_ij) / (k(k-1))².

    Parameters
    ----------
    pairs : the differences between systems
    n_topics : one or more numbers of topics n'
    alpha : one less the coverage of the interval

    Returns
    -------
    pandas.DataFrame
        A row for each n' with columns ``n``, ``estimate``, ``variance``, ``low`` and ``high``.

    Raises
    ------
    PlanError
        If `n_topics` is not positive, or `alpha` not between 0 and 1.

    Notes
    -----
    **The interval is approximate, and too short.** The paper's variance treats the swaps of
    different pairs as independent. They are not: a system that is lucky with the topics of a test
    passes several others at once. Nor does the variance cover the uncertainty of the w_ij
    themselves. The interval is the normal one with that variance, cut at -1 and 1.

    Where the difference is the same on every topic, w_ij is its limit: 0 (1 if, with missing
    cells, j is ahead of i on their common topics), and ½ for identical systems.

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 4.3.1.

    Examples
    --------
    >>> pairs = PairedDifferences.from_scores(
    ...     [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]], ["a", "b", "c"]
    ... )
    >>> expected_tau(pairs, [3, 30])[["n", "estimate", "variance"]].round(3)
        n  estimate  variance
    0   3     0.762     0.103
    1  30     0.923     0.046
    """
    weights = np.full(pairs.variances.size, 1.0 / pairs.variances.size)
    return _expected(pairs, weights, n_topics, alpha)


def expected_tau_ap(
    pairs: PairedDifferences, n_topics: float | Iterable[float], *, alpha: float = 0.05
) -> pd.DataFrame:
    """Estimate τ_AP between the ranking by a test of `n_topics` and the true ranking.

    τ_AP (Yilmaz, Aslam and Robertson, 2008) compares each system with those ranked above it, so
    that swaps among the best count more. With w_ij as for :func:`expected_tau` (Urbano, 2016,
    eqs. 41 and 42)

        Eτ_AP = 2/(k-1) Σ_{i≥2} Σ_{j<i} (1 - w_ij) / (i-1) - 1,
        Var = 4/(k-1)² Σ_{i≥2} Σ_{j<i} w_ij (1 - w_ij) / (i-1)².

    Parameters
    ----------
    pairs : the differences between systems
    n_topics : one or more numbers of topics n'
    alpha : one less the coverage of the interval

    Returns
    -------
    pandas.DataFrame
        A row for each n' with columns ``n``, ``estimate``, ``variance``, ``low`` and ``high``.

    Raises
    ------
    PlanError
        If `n_topics` is not positive, or `alpha` not between 0 and 1.

    Notes
    -----
    **The interval is approximate, and too short**, since the variance treats the swaps of
    different pairs as independent, which they are not: see :func:`expected_tau`. It is cut at -1
    and 1.

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 4.3.2.

    Examples
    --------
    >>> pairs = PairedDifferences.from_scores(
    ...     [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]], ["a", "b", "c"]
    ... )
    >>> expected_tau_ap(pairs, [3, 30])[["n", "estimate", "variance"]].round(3)
        n  estimate  variance
    0   3     0.821     0.058
    1  30     0.942     0.026
    """
    k = pairs.n_systems
    n_above = np.triu_indices(k, 1)[1].astype(np.float64)
    weights: FloatArray = 1.0 / ((k - 1.0) * n_above)
    return _expected(pairs, weights, n_topics, alpha)


def _expected(
    pairs: PairedDifferences,
    weights: FloatArray,
    n_topics: float | Iterable[float],
    alpha: float,
) -> pd.DataFrame:
    """Return the table of 1 - 2 Σ a w over pairs, with weights a that add up to one."""
    import pandas as pd
    from scipy.special import ndtr

    n = _positive(n_topics)
    check_alpha(alpha)
    delta = pairs.standardized
    estimate, variance = np.empty(n.size), np.empty(n.size)
    for row, root_n in enumerate(np.sqrt(n)):
        w = ndtr(-root_n * delta)
        estimate[row] = 1.0 - 2.0 * (weights @ w)
        variance[row] = 4.0 * (weights**2 @ (w * (1.0 - w)))
    low, high = wald_interval(estimate, np.sqrt(variance), alpha)
    return pd.DataFrame(
        {
            "n": n,
            "estimate": estimate,
            "variance": variance,
            "low": np.maximum(low, -1.0),
            "high": np.minimum(high, 1.0),
        }
    )


def _positive(n_topics: float | Iterable[float]) -> FloatArray | LongArray:
    n = list(n_topics) if isinstance(n_topics, Iterable) else [n_topics]
    if not n:
        raise PlanError("no number of topics is given")
    for x in n:
        is_number = isinstance(x, int | float | np.integer | np.floating)
        if not is_number or isinstance(x, bool) or not 0 < x < np.inf:
            raise PlanError(f"the number of topics must be positive, not {x!r}")
    return np.array(n)
