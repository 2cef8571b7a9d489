"""Identifiability: dependent columns of X, and components that the data cannot distinguish.

Both are checked from the sums of the rows before components are estimated, and so is whether the
fixed part dwarfs the rest. With Q = I − X(X'X)⁻¹X', the matrix of tr(Q V_t Q V_u) is singular if
and only if the data cannot distinguish the components; its null vector names them
(docs/explanation/mathematics.md, eq. (2.12) at P = Q).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NoReturn

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.design import Centre
from vcomp.estimators.likelihood import least_squares, residual_forms
from vcomp.estimators.options import on_constant_slopes
from vcomp.exceptions import DataError, DesignError
from vcomp.formula import RESIDUAL, OmittedColumns, in_formula
from vcomp.numerics import limited_blas, solve_positive
from vcomp.statistics import Statistics

_DEPENDENT = 1e-11
"""Share of a column's squared norm below which its squared residual norm is rounding error:
columns are centred, and float64 keeps about 1e-16 of a square."""

_LEFT = 1e-5
"""Smallest varying share of a square that leaves nine digits in the result. Of the sixteen digits
of float64, sums and solutions lose one or two, and this share five."""

_LEFT_OF_SLOPES = 1e-6
"""The same for slopes by level. Their columns are centred, so that sums lose less: components of
40 rows differ by 1e-10 at this share, by 1e-8 at a hundredth of it."""

_CONSTANT = 1e-26
"""A centred column whose squared norm is below this fraction of its mean's square is constant."""

_USED = 1e-6
"""Share of the largest part of a dependent column below which a part is rounding error."""

_LEFT_OF_SUMS = 1e-7
"""Share of y'y that a fixed part leaves, below which sums that cannot be made anew are refused:
nine digits are left."""

_EXACT = 16.0 * float(np.finfo(float).eps)
"""Root mean square of what the fixed part leaves, as a share of that of the scores, up to which it
is rounding of the scores."""

_STEPS = 3
"""Least-squares steps: each leaves an error of the rounding and condition of X, which the next
removes."""

_SAME, _ROUNDING = 1e-9, 1e-14
"""Largest difference of a column from a combination of others, as shares of the column and of the
origins."""


def check_identified(
    stats: Statistics,
    terms: Sequence[str],
    fixed: Sequence[str],
    x_origin: FloatArray,
    *,
    knows_residual: bool = False,
) -> None:
    """Refuse a model whose components the data cannot distinguish.

    Parameters
    ----------
    stats : sums of the data, without columns of X that are linear combinations of others
    terms, fixed : names of the random terms and of the columns of X
    x_origin : (p,) origins that were subtracted from the columns of X
    knows_residual : whether the residual variance is known

    Raises
    ------
    DesignError
        If terms are confounded, or components cannot be distinguished; the message names them.
    DataError
        If slopes by level are of a covariate so far from zero that fewer than nine digits are
        left.
    """
    with limited_blas(0):
        if x_origin.any():
            _check_slopes(stats, fixed, x_origin)
        _check_terms(stats, terms, knows_residual=knows_residual)


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
            f"{remedy} from the scores",
            column=response,
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
            f"{remedy} from each column",
            column=involved[0],
        )


def dominant_fixed_part(
    stats: Statistics,
    response: str,
    response_sums: tuple[float, float],
    known: FloatArray | float = 0.0,
) -> FloatArray | None:
    """Return coefficients of a fixed part to subtract from y, as it dwarfs the rest; else None.

    Squares of the scores then keep too few digits of the rest, and squares of what least squares
    leave keep all: no estimate of a component depends on what is subtracted, and fixed effects
    change by it. Where the rest is rounding error of the scores, nothing is subtracted.

    Parameters
    ----------
    stats : sums of the data, without columns of X that are linear combinations of others
    response : its name
    response_sums : its mean, and the sum of squares about it
    known : coefficients of the fixed part that was subtracted when the rows were read

    Raises
    ------
    DataError
        If fewer than nine digits are left in sums, and nothing can be subtracted any more.
    """
    mean, squares = response_sums
    unit = stats.mean_weight if stats.blocks is None else 1.0
    exact = _EXACT**2 * (mean**2 + squares / stats.n) * stats.n * unit
    total, now = np.zeros(stats.Xy.size), stats
    for _ in range(_STEPS):
        beta, rss = least_squares(now)
        if not rss < Centre.DOMINATED * now.yy or not now.yy > exact:
            break
        total = total + beta
        try:
            now = stats.without_fixed(total)
        except DataError:  # neither rows nor cells are kept
            if rss < _LEFT_OF_SUMS * now.yy:
                _refuse_sums(response)
            return None
        # Within cells of several scores it is too late to subtract before squares are taken.
        if now.cells.squares_within < _LEFT_OF_SUMS * stats.cells.squares_within:
            _refuse_sums(response)
    if not now.yy > exact:
        return -known if isinstance(known, np.ndarray) else None
    return None if now is stats else total


def _refuse_sums(response: str) -> NoReturn:
    raise DataError(
        f"the fixed part explains all but a ten-millionth of the squares of {response!r}: sums "
        "that were accumulated in parts keep too few digits of the rest; fit the data themselves, "
        "with stream=True if they are large",
        column=response,
    )


def _dense_columns(
    stats: Statistics, names: Sequence[str], x_origin: FloatArray
) -> tuple[Sequence[str], FloatArray, FloatArray]:
    """Return names, origins and products of the columns, without those of a wide factor."""
    wide = stats.needed_wide
    if wide is None:
        return names, x_origin, stats.sums.XX
    at = wide.dense_at
    return [names[j] for j in at], x_origin[at], wide.products.XX


def _check_slopes(stats: Statistics, names: Sequence[str], x_origin: FloatArray) -> None:
    """Refuse slopes by level whose columns differ too little from a combination of the others.

    A column g[u]:x is x at one level and zero elsewhere. If x is far from zero, it varies most
    between the levels, as the indicator of u does, and what x adds to that is lost in the squares:
    g[u]:x + g[v]:x = x varies little against its summands. If x is centred, nothing is lost.
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
            f"difference; subtract a number near the mean from {far[0]!r}",
            column=far[0],
        )


def _covariate(name: str) -> str:
    """Return the covariate of a column of slopes by level, as x of ``g[u]:x``; else nothing."""
    parts = name.split(":")
    covariates = [part for part in parts if not part.endswith("]")]
    return ":".join(covariates) if len(covariates) < len(parts) else ""


def find_left_out(
    stats: Statistics, names: Sequence[str], x_origin: FloatArray, constant: FloatArray
) -> tuple[OmittedColumns, FloatArray] | None:
    """Return the columns of X that are linear combinations of others; None without any.

    Columns that make up the constant and those of a factor of very many levels are kept first,
    then columns in their order.

    Parameters
    ----------
    stats : sums of the data
    names : (p,) of the columns of X
    x_origin : (p,) origins that were subtracted from the columns
    constant : (p,) combination of the columns that is the constant; zeros without one

    Returns
    -------
    left_out : the columns
    constant : combination of those kept that is the constant

    Raises
    ------
    DesignError
        If sums of squares do not distinguish a column from a combination that it differs from.
    """
    with limited_blas(0):
        wide = stats.needed_wide
        if wide is None:
            at, XX, rest = np.arange(len(names)), stats.sums.XX, stats.sums.XX
        else:
            at, XX, rest = wide.dense_at, wide.products.XX, wide.rest
        origin = stats.n * stats.mean_weight * x_origin[at] ** 2
        if wide is None and _all_independent(XX, origin):
            return None
        kept = _independent(XX, rest, origin, constant[at] != 0.0)
        if len(kept) == len(at):
            return None
        others = np.setdiff1d(np.arange(len(at)), kept)
        coefficients = np.zeros((len(names), others.size))
        coefficients[at[kept]] = _solved(rest[np.ix_(kept, kept)], rest[np.ix_(kept, others)])
        if wide is not None:
            B, counts = wide.products.ZX[-1], wide.products.group_n[-1]
            coefficients[wide.sparse_at] = (B[:, others] - B @ coefficients[at]) / counts[:, None]
    dependent = at[others]
    _check_exact(stats, names, dependent, coefficients, x_origin)
    is_kept = np.ones(len(names), dtype=bool)
    is_kept[dependent] = False
    # Columns that make up the constant have no origin.
    constant = constant[is_kept] + coefficients[is_kept] @ constant[dependent]
    weights, x0 = coefficients[is_kept], x_origin[is_kept]
    moved = x_origin[dependent] - x0 @ weights
    size = np.abs(x_origin[dependent]) + np.abs(x0) @ np.abs(weights)
    weights = weights + np.outer(constant, np.where(np.abs(moved) > _SAME * size, moved, 0.0))
    return OmittedColumns(tuple(names), np.flatnonzero(is_kept), weights), constant


def _independent(
    XX: FloatArray, rest: FloatArray, origin: FloatArray, first: BoolArray
) -> LongArray:
    """Return the columns that are no linear combinations of those before them, ascending.

    Parameters
    ----------
    XX : (p, p) products of the columns, less their origins
    rest : (p, p) products of what a factor of very many levels leaves of them
    origin : (p,) sums of squares of the origins
    first : (p,) whether a column comes before the others
    """
    from scipy.linalg import solve_triangular

    size = np.diagonal(XX)
    is_constant = size <= _CONSTANT * origin
    scale = np.where(is_constant, 1.0, np.sqrt(size))
    scaled = rest / np.outer(scale, scale)
    factor, kept = np.zeros_like(scaled), list[int]()
    for j in np.argsort(~first, kind="stable"):
        m = len(kept)
        row = solve_triangular(factor[:m, :m], scaled[kept, j], lower=True)
        left = scaled[j, j] - row @ row
        if not is_constant[j] and left > _DEPENDENT:
            factor[m, :m], factor[m, m] = row, np.sqrt(left)
            kept.append(j)
    return np.sort(np.array(kept, dtype=np.int64))


def _solved(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the coefficients of dependent columns, with rounding errors set to zero."""
    weights: FloatArray = solve_positive(A, B) if len(A) else np.zeros(B.shape)
    scale = np.sqrt(np.diagonal(A))
    sizes = np.abs(weights) * scale[:, None]
    return np.where(sizes > _USED * sizes.max(axis=0, initial=0.0), weights, 0.0)


def _check_exact(
    stats: Statistics,
    names: Sequence[str],
    dependent: LongArray,
    coefficients: FloatArray,
    x_origin: FloatArray,
) -> None:
    """Refuse columns whose difference from a combination is too small for sums of squares.

    Raises
    ------
    DesignError
    """
    try:
        columns = stats.cells.columns
    except DataError:  # no cells are kept
        return
    for j, c in zip(dependent.tolist(), coefficients.T, strict=True):
        unit = np.zeros(len(names))
        unit[j] = 1.0
        values = columns @ unit
        away = float(np.abs(values - columns @ c).max())
        size = float(np.abs(values).max())
        if away > _SAME * size + _ROUNDING * float(np.abs(x_origin) @ (np.abs(c) + unit)):
            used = ", ".join(repr(names[i]) for i in np.flatnonzero(c).tolist()) or "zero"
            raise DesignError(
                f"column {names[j]!r} of the fixed part differs by {away / size:.0e} of its size "
                f"from a linear combination of {used}: squares keep too few digits of the "
                f"difference; leave {names[j]!r} out, or write the difference as a column of its "
                "own",
                column=names[j],
            )


def _all_independent(XX: FloatArray, origin: FloatArray) -> bool:
    """Whether no column of X is a linear combination of those before it.

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


def _check_terms(stats: Statistics, names: Sequence[str], *, knows_residual: bool) -> None:
    sums, sizes = stats.sums, stats.sums.sizes
    for t, u in combinations(range(len(sizes)), 2):
        alike = stats.blocks is None and sizes[t] == sizes[u]
        if alike and sums.is_finer(t, u) and sums.is_finer(u, t):
            raise DesignError(
                f"terms {names[t]!r} and {names[u]!r} are confounded: they group the rows in the "
                "same way, so that the data contain only the sum of their variances; keep one of "
                "them",
                term=names[t],
            )
    forms = residual_forms(stats)
    for t, name in enumerate(names):
        if forms[t, t] <= _DEPENDENT * sums.group_squares(t):
            explained = (
                f"term {name!r} is confounded with the fixed part, which explains all differences "
                "between its groups"
            )
            if stats.blocks is None:
                raise DesignError(
                    f"{explained}; leave out (1|{in_formula(name)}) or the fixed factor", term=name
                )
            raise DesignError(f"{explained}; leave it out, or the fixed factor", term=name)
    if knows_residual:
        forms = forms[:-1, :-1]
    scaled = forms / np.sqrt(np.outer(np.diagonal(forms), np.diagonal(forms)))
    values, vectors = np.linalg.eigh(scaled)
    if values[0] < _DEPENDENT:
        all_names = [*names, RESIDUAL][: len(forms)]
        involved = [n for n, c in zip(all_names, vectors[:, 0], strict=True) if abs(c) > 1e-4]
        raise DesignError(
            f"these data cannot distinguish the variances of {', '.join(involved)}: their "
            "covariance matrices are linearly dependent; leave one of them out"
            f"{on_constant_slopes(involved)}",
            term=involved[0],
        )
