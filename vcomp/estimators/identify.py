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
from vcomp.exceptions import DataError, DesignError
from vcomp.formula import RESIDUAL
from vcomp.numerics import limited_blas, solve_positive
from vcomp.statistics import Statistics, WideProducts

_DEPENDENT = 1e-11
"""A squared residual norm below this fraction of a column's squared norm is rounding error, as
columns are centred, and float64 keeps about 1e-16 of a square."""

_LEFT = 1e-5
"""The share of a square that has to vary for nine digits of the result: sums and solutions of them
lose one or two of the sixteen of float64, and this share five."""

_LEFT_OF_SLOPES = 1e-6
"""The same of slopes by level. Their columns are centred, so that sums lose less: components of
40 rows differ by 1e-10 at this share, by 1e-8 at a hundredth of it."""

_CONSTANT = 1e-26
"""A centred column whose squared norm is below this fraction of its mean's square is constant."""

_USED = 1e-6
"""Share of a dependent column's size from which on a column that it is made of is named."""


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
    DataError
        If slopes by level are of a covariate so far from zero that fewer than nine digits are
        left.
    """
    with limited_blas(0):
        _check_slopes(stats, fixed, x_origin)
        _check_fixed(stats, fixed, x_origin)
        _check_terms(stats, terms)


def check_digits(
    stats: Statistics,
    fixed: Sequence[str],
    response: str,
    response_sums: tuple[float, float],
) -> None:
    """Refuse a model without a constant whose scores or covariates are far from zero.

    Nothing can be subtracted from them, as no column takes it up, so that their squares keep too
    few digits of their variation.

    Parameters
    ----------
    stats : sums of the data
    fixed : names of the columns of X
    response : its name
    response_sums : mean of the response, and sum of squares about it

    Raises
    ------
    DataError
        If fewer than nine digits are left.
    """
    mean, squares = response_sums
    remedy = "add an intercept (leave 0 out of the formula), or subtract a number near the mean"
    if stats.n * mean**2 > squares / _LEFT > 0.0:
        sd = (squares / stats.n) ** 0.5
        raise DataError(
            f"the response {response!r} varies by {sd:.2g} about {mean:.6g}, and the model has no "
            "intercept: squares of such scores keep too few digits of their variation; "
            f"{remedy} from the scores"
        )
    XX = stats.sums.XX
    size = np.sqrt(np.diagonal(XX))
    if not size.size or not (size > 0.0).all():
        return
    values, vectors = np.linalg.eigh(XX / np.outer(size, size))
    if _DEPENDENT < values[0] < _LEFT:
        involved = [n for n, c in zip(fixed, vectors[:, 0], strict=True) if abs(c) > 1e-3]
        raise DataError(
            f"columns {', '.join(map(repr, involved))} of the fixed part differ by less than "
            f"{_LEFT**0.5:.0e} of their size from a linear combination of each other, and the "
            "model has no intercept: their squares keep too few digits of the difference; "
            f"{remedy} from each column"
        )


def _dense_columns(
    stats: Statistics, names: Sequence[str], x_origin: FloatArray
) -> tuple[Sequence[str], FloatArray, FloatArray]:
    """Return names, origins and products of the columns but for those of a wide factor."""
    if stats.wide is None:
        return names, x_origin, stats.sums.XX
    at = stats.wide.dense_at
    return [names[j] for j in at], x_origin[at], stats.wide.products.XX


def _check_slopes(stats: Statistics, names: Sequence[str], x_origin: FloatArray) -> None:
    """Refuse slopes by level whose columns differ too little from a combination of the others.

    A column g[u]:x is x at one level and zero elsewhere. If x is far from zero, it varies most
    between the levels, as the indicator of u does, and what x adds to that is lost in the squares:
    g[u]:x + g[v]:x = x varies little beside its summands. If x is centred, nothing is lost.
    """
    names, x_origin, XX = _dense_columns(stats, names, x_origin)
    slopes = {j: x for j, name in enumerate(names) if x_origin[j] and (x := _covariate(name))}
    if not slopes:
        return
    size = np.sqrt(np.diagonal(XX))
    if not (size > 0.0).all():
        return
    values, vectors = np.linalg.eigh(XX / np.outer(size, size))
    if not _DEPENDENT < values[0] < _LEFT_OF_SLOPES:
        return
    involved = [j for j in range(len(names)) if abs(vectors[j, 0]) > 1e-3]
    far = list(dict.fromkeys(slopes[j] for j in involved if j in slopes))
    if far:
        raise DataError(
            f"columns {', '.join(repr(names[j]) for j in involved)} of the fixed part differ by "
            f"less than {_LEFT_OF_SLOPES**0.5:.0e} of their size from a combination of each "
            f"other, as {far[0]!r} is far from zero: their squares keep too few digits of the "
            f"difference; subtract a number near the mean from {far[0]!r}"
        )


def _covariate(name: str) -> str:
    """Return the covariate of a column of slopes by level, as x of ``g[u]:x``; else nothing."""
    parts = name.split(":")
    covariates = [part for part in parts if not part.endswith("]")]
    return ":".join(covariates) if len(covariates) < len(parts) else ""


def _check_fixed(stats: Statistics, names: Sequence[str], x_origin: FloatArray) -> None:
    if stats.wide is not None:
        _check_beside_factor(stats.wide, names, x_origin)
        return
    XX = stats.sums.XX
    origin = stats.sums.n * x_origin**2
    if _all_independent(XX, origin):
        return
    found = _first_dependent(XX, XX, origin)
    if found is None:
        return
    j, used = found[0], [names[i] for i in found[1]]
    if x_origin[j] != 0.0 and "Intercept" in names and "Intercept" not in used:
        used.insert(0, "Intercept")
    reason = f"a linear combination of {', '.join(used)}" if used else "zero in every row"
    raise DesignError(
        f"the fixed part is rank-deficient: column {names[j]!r} is {reason}; leave it out"
    )


def _check_beside_factor(wide: WideProducts, names: Sequence[str], x_origin: FloatArray) -> None:
    """Refuse columns that are linear combinations of the wide factor's and of those before them.

    The columns of the factor are independent; of the others their parts within its levels are.
    """
    from vcomp.estimators.likelihood import WideProjector  # deferred as other engines

    origin = wide.n * x_origin[wide.dense_at] ** 2
    found = _first_dependent(WideProjector(wide).rest, wide.products.XX, origin)
    if found is not None:
        j, *used = (names[wide.dense_at[i]] for i in (found[0], *found[1]))
        first, last = (names[wide.sparse_at[i]] for i in (0, -1))
        raise DesignError(
            f"the fixed part is rank-deficient: column {j!r} is a linear combination "
            f"of {', '.join([*used, f'{first} to {last}'])}; leave it out"
        )


def _first_dependent(
    rest: FloatArray, XX: FloatArray, origin: FloatArray
) -> tuple[int, list[int]] | None:
    """Return the first column that is a linear combination of earlier ones, and of which.

    Parameters
    ----------
    rest : (p, p) products of what is left of the columns beside a factor
    XX : (p, p) products of the columns, less their origins
    origin : (p,) sums of squares of the origins
    """
    scale, kept = np.sqrt(np.diagonal(XX) + origin), list[int]()
    for j in range(len(XX)):
        coefficients = solve_positive(rest[np.ix_(kept, kept)], rest[kept, j])
        left = rest[j, j] - coefficients @ rest[kept, j]
        if XX[j, j] > _CONSTANT * origin[j] and left > _DEPENDENT * XX[j, j]:
            kept.append(j)
            continue
        sizes = np.abs(coefficients) * scale[kept]
        return j, [i for i, size in zip(kept, sizes, strict=True) if size > _USED * scale[j]]
    return None


def _all_independent(XX: FloatArray, origin: FloatArray) -> bool:
    """Whether every column of X has a part of its own beside those before it.

    One factorisation in the order of the columns decides for all of them.
    """
    diagonal = np.diagonal(XX)
    if not (diagonal > _CONSTANT * origin).all():  # origin is not negative
        return False
    scale = np.sqrt(diagonal)
    try:
        factor = np.linalg.cholesky(XX / np.outer(scale, scale))
    except np.linalg.LinAlgError:
        return False
    return bool((np.square(np.diagonal(factor)) > _DEPENDENT).all())


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
