"""Identifiability: refuse models whose fixed effects or components the data cannot distinguish.

It is checked after rows have been summed and before components are estimated. With
Q = I − X(X'X)⁻¹X', the matrix of tr(Q V_t Q V_u) is singular if and only if the data cannot
distinguish the components; its null vector names them (docs/explanation/mathematics.md, eq. (2.12)
at P = Q).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import residual_forms
from vcomp.exceptions import DesignError
from vcomp.formula import RESIDUAL
from vcomp.numerics import solve_positive
from vcomp.statistics import Statistics

_DEPENDENT = 1e-11
"""A squared residual norm below this fraction of a column's squared norm is rounding error, as
columns are centred, and float64 keeps about 1e-16 of a square."""

_CONSTANT = 1e-26
"""A centred column whose squared norm is below this fraction of its mean's square is constant."""


def check_identified(
    stats: Statistics, terms: Sequence[str], fixed: Sequence[str], x_origin: FloatArray
) -> None:
    """Refuse a model whose fixed effects or components the data cannot distinguish.

    Parameters
    ----------
    stats : sums of the data
    terms, fixed : names of the random terms and of the columns of X
    x_origin : (p,) origins that were subtracted from the columns of X

    Raises
    ------
    DesignError
        If a column of X is a linear combination of others, terms are confounded, or components
        cannot be distinguished; the message names them.
    """
    _check_fixed(stats, fixed, x_origin)
    _check_terms(stats, terms)


def _check_fixed(stats: Statistics, names: Sequence[str], x_origin: FloatArray) -> None:
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
        reason = f"a linear combination of {', '.join(used)}" if used else "zero in every row"
        raise DesignError(
            f"the fixed part is rank-deficient: column {name!r} is {reason}; leave it out"
        )


def _check_terms(stats: Statistics, names: Sequence[str]) -> None:
    sums, sizes = stats.sums, stats.sums.sizes
    for t, u in combinations(range(len(sizes)), 2):
        if sizes[t] == sizes[u] and sums.is_finer(t, u) and sums.is_finer(u, t):
            raise DesignError(
                f"terms {names[t]!r} and {names[u]!r} are confounded: they group the rows in the "
                "same way, so that the data contain only the sum of their variances; keep one of "
                "them"
            )
    forms = residual_forms(stats)
    for t, name in enumerate(names):
        most = _DEPENDENT * float(sums.n) ** 2  # Σ n_g² is n² at most
        if forms[t, t] <= most and forms[t, t] <= _DEPENDENT * sums.group_squares(t):
            raise DesignError(
                f"term {name!r} is confounded with the fixed part, which explains all differences "
                f"between its groups; leave out (1|{name}) or the fixed factor"
            )
    scaled = forms / np.sqrt(np.outer(np.diagonal(forms), np.diagonal(forms)))
    values, vectors = np.linalg.eigh(scaled)
    if values[0] < _DEPENDENT:
        all_names = [*names, RESIDUAL]
        involved = [n for n, c in zip(all_names, vectors[:, 0], strict=True) if abs(c) > 1e-4]
        raise DesignError(
            f"these data cannot distinguish the variances of {', '.join(involved)}: their "
            "covariance matrices are linearly dependent; leave one of them out"
        )
