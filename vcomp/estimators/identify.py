"""Which terms and columns the data can tell apart, and a start for iterations.

With Q = I − X(X'X)⁻¹X' the forms tr(Q V_t Q V_u) and y'Q V_t Q y need only cross-products. Their
matrix is singular exactly when the components cannot be told apart; where it is not, the linear
equations that they make give MIVQUE(0), which is the ANOVA estimator of balanced data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import quadratic_forms_of
from vcomp.exceptions import DesignError
from vcomp.formula import RESIDUAL
from vcomp.numerics import solve, solve_positive
from vcomp.statistics import CrossProducts, Statistics

__all__ = [
    "check_fixed_rank",
    "check_terms",
    "mivque0",
    "residual_sum_of_squares",
]


_DEPENDENT = 1e-11
"""A squared residual norm below this share of a column's own is rounding: columns are centred and
float64 leaves about 1e-16 of a square."""

_CONSTANT = 1e-26
"""A centred column whose square is below this share of its mean's is constant but for rounding."""


def check_fixed_rank(stats: Statistics, names: Sequence[str], x_origin: FloatArray) -> None:
    """Refuse a fixed part whose columns are linearly dependent.

    Raises
    ------
    DesignError
        Naming the first dependent column and those that it is a combination of.
    """
    XX = stats.sums.XX
    origin = stats.sums.n * x_origin**2
    scale = np.diagonal(XX) + origin
    kept: list[int] = []
    for j, name in enumerate(names):
        coefficients = solve_positive(XX[np.ix_(kept, kept)], XX[kept, j])
        rest = XX[j, j] - coefficients @ XX[kept, j]
        if XX[j, j] > _CONSTANT * origin[j] and rest > _DEPENDENT * XX[j, j]:
            kept.append(j)
            continue
        used = [
            names[i]
            for i, c in zip(kept, coefficients, strict=True)
            if abs(c) * np.sqrt(scale[i]) > 1e-6 * np.sqrt(scale[j])
        ]
        if x_origin[j] != 0.0 and "Intercept" in names and "Intercept" not in used:
            used.insert(0, "Intercept")
        reason = f"a combination of {', '.join(used)}" if used else "zero in every row"
        raise DesignError(
            f"the fixed part is rank-deficient: column {name!r} is {reason}; leave it out"
        )


def check_terms(stats: Statistics, names: Sequence[str]) -> None:
    """Refuse random terms that group the rows alike, or whose components cannot be told apart.

    Raises
    ------
    DesignError
        Naming the terms at fault.
    """
    for t, u in _alike(stats):
        raise DesignError(
            f"terms {names[t]!r} and {names[u]!r} are confounded: they group the rows in the "
            "same way, so their variances cannot be told apart; keep one of them"
        )
    if stats.strata is not None:
        forms = quadratic_forms_of(stats.strata)
    else:
        forms = _quadratic_forms(stats.cross_products)
    for t, name in enumerate(names):
        most = _DEPENDENT * float(stats.sums.n) ** 2  # Σ n_g² is n² at most
        if forms[t, t] <= most and forms[t, t] <= _DEPENDENT * _squares(stats, t):
            raise DesignError(
                f"nothing is left of term {name!r} after the fixed part, which tells all its "
                f"groups apart; leave out (1|{name}) or the fixed factor"
            )
    scaled = forms / np.sqrt(np.outer(np.diagonal(forms), np.diagonal(forms)))
    values, vectors = np.linalg.eigh(scaled)
    if values[0] < _DEPENDENT:
        all_names = [*names, RESIDUAL]
        involved = [n for n, c in zip(all_names, vectors[:, 0], strict=True) if abs(c) > 1e-4]
        raise DesignError(
            f"the variances of {', '.join(involved)} cannot be told apart with these data: "
            "a combination of them gives the same covariances; leave one of them out"
        )


def _alike(stats: Statistics) -> Iterator[tuple[int, int]]:
    """Yield pairs of terms that group the rows alike."""
    sums, sizes = stats.sums, stats.sums.sizes
    for t, u in combinations(range(len(sizes)), 2):
        if sizes[t] == sizes[u] and sums.is_finer(t, u) and sums.is_finer(u, t):
            yield t, u


def _squares(stats: Statistics, term: int) -> float:
    """Return Σ_g n_g² of a term."""
    if stats.strata is not None:
        return stats.strata.group_squares(term)
    return float(np.square(stats.cross_products.group_n[term]).sum())


def residual_sum_of_squares(stats: CrossProducts) -> float:
    """Return y'Qy, what is left of y after ordinary least squares on X."""
    return float(stats.yy - solve_positive(stats.XX, stats.Xy) @ stats.Xy)


def mivque0(stats: CrossProducts) -> FloatArray:
    """Return the MIVQUE(0) estimates, which may be negative; the residual is the last.

    They solve Σ_u tr(Q V_t Q V_u) σ²_u = y'Q V_t Q y (Rao 1972, with weight on the residual only).
    """
    forms = _quadratic_forms(stats)
    beta = solve_positive(stats.XX, stats.Xy)
    sums = [Zy - ZX @ beta for Zy, ZX in zip(stats.Zy, stats.ZX, strict=True)]
    right = np.array([*(s @ s for s in sums), residual_sum_of_squares(stats)])
    return solve(forms, right)


def _quadratic_forms(stats: CrossProducts) -> FloatArray:
    """Return tr(Q V_t Q V_u), (k + 1, k + 1), the residual last."""
    k = stats.n_terms
    # X'X = R'R: with X R⁻¹ the projector is a plain product, no inverse is formed.
    R = np.linalg.cholesky(stats.XX).T if stats.n_fixed else np.zeros((0, 0))
    H = [np.linalg.solve(R.T, ZX.T).T if stats.n_fixed else ZX for ZX in stats.ZX]
    forms = np.empty((k + 1, k + 1))
    for t in range(k):
        for u in range(t + 1):
            table = stats.gram(u, t)  # as it stands: it may be large
            plain = float(table.data @ table.data)
            mixed = float(np.vdot(H[u], table @ H[t]))
            both = float(np.vdot(H[t].T @ H[t], H[u].T @ H[u]))
            forms[t, u] = forms[u, t] = plain - 2.0 * mixed + both
        forms[t, k] = forms[k, t] = stats.group_n[t].sum() - np.square(H[t]).sum()
    forms[k, k] = stats.n - stats.n_fixed
    return forms
