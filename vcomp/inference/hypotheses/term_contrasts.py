"""Contrasts of a whole term of the fixed part: hypotheses of types I, II and III.

They are those of SAS (1978) and of lmerTest (Kuznetsova et al. 2017), and do not depend on the
coding of factors: docs/explanation/mathematics.md, eqs. (11.14) and (11.15).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Design
from vcomp.formula import FixedTerm
from vcomp.statistics import Statistics

TypeOfTest: TypeAlias = Literal[1, 2, 3]
TYPES: tuple[TypeOfTest, ...] = get_args(TypeOfTest)

INTERCEPT = "Intercept"
"""The name of the term that is no hypothesis."""

_ROUNDING = 1e-8
"""Largest rest of a column or row of length 1 that depends on others."""


def rows_of_columns(design: Design, stats: Statistics, terms: Sequence[FixedTerm]) -> FloatArray:
    """Return F of X = QF with orthonormal columns Q, (p, p); centred if there is an intercept.

    Parameters
    ----------
    design, stats : of the rows; the columns of X are linearly independent
    terms : of the fixed part
    """
    XX = stats.XX if stats.wide is None else stats.wide.XX
    units = np.sqrt(np.diagonal(XX))
    half = np.linalg.cholesky(XX / np.outer(units, units)).T * units
    if any(term.name == INTERCEPT for term in terms):
        return np.asarray(half, dtype=float)
    return np.asarray(half + np.outer(half @ design.constant, design.x_origin), dtype=float)


def adjusted_for_others(
    terms: Sequence[FixedTerm], tested: FixedTerm, kind: Literal[1, 2], F: FloatArray
) -> FloatArray:
    """Return the contrasts of a term adjusted for some others, of type 1 or 2, eq. (11.14).

    Parameters
    ----------
    terms : of the fixed part
    tested : one of them
    kind : 1 to adjust for the terms before it, 2 for all but those that it is part of
    F : of :func:`rows_of_columns`

    Returns
    -------
    (m, p) with a row for each degree of freedom
    """
    before = terms[: terms.index(tested)]
    containing = [term for term in terms if tested.is_in(term)]
    others = before if kind == 1 else [t for t in terms if t is not tested and t not in containing]
    fixed = _basis(F, _cells(others, len(F)))[0]
    order = _order(tested)
    basis, kept, sizes = _basis(F, tested.cells[:, order], fixed)
    L = basis.T @ F
    if kind == 1 or containing:
        return L / sizes[:, None]
    return _as_treatments(L, tested.cells[:, order[kept]])


def of_equal_weights(terms: Sequence[FixedTerm], tested: FixedTerm, se: FloatArray) -> FloatArray:
    """Return the contrasts of a term with equal weights of the levels of others, eq. (11.15).

    Parameters
    ----------
    terms, tested : as of :func:`adjusted_for_others`
    se : (p,) standard errors of the fixed effects, as their units

    Returns
    -------
    (m, p) with a row for each degree of freedom
    """
    units = 1.0 / np.where(se > 0.0, se, 1.0)
    containing = [term for term in terms if tested.is_in(term)]
    others = [t for t in terms if t is not tested and t not in containing]
    free = _null(units[:, None] * _cells(others, se.size)) * units[:, None]
    own, beyond = tested.cells.T @ free, _cells(containing, se.size).T @ free
    _, s, V = np.linalg.svd(own, full_matrices=True)
    size = np.linalg.norm(units[:, None] * tested.cells, axis=0).max()
    rank = int((s > _ROUNDING * size).sum())
    L, absent = V[:rank], V[rank:]
    if len(absent):
        L = L - np.linalg.lstsq(beyond @ absent.T, beyond @ L.T, rcond=None)[0].T @ absent
    L = L @ free.T
    order = _order(tested)
    kept = _basis(L, tested.cells[:, order])[1]
    return _as_treatments(L, tested.cells[:, order[kept]])


def _as_treatments(L: FloatArray, cells: FloatArray) -> FloatArray:
    """Return contrasts of the same hypothesis, each with weight 1 in one of m cells."""
    return np.linalg.solve(L @ cells, L).astype(float)


def _order(term: FixedTerm) -> LongArray:
    """Return the cells of a term, those without a first level first."""
    return np.argsort(term.is_first, kind="stable")


def _cells(terms: Sequence[FixedTerm], p: int) -> FloatArray:
    return np.concatenate([np.zeros((p, 0)), *(term.cells for term in terms)], axis=1)


def _basis(
    left: FloatArray, right: FloatArray, fixed: FloatArray | None = None
) -> tuple[FloatArray, LongArray, FloatArray]:
    """Return an orthonormal basis of the columns of a product, in their order.

    Parameters
    ----------
    left, right : (n, p) and (p, m), the product is theirs
    fixed : (n, q) orthonormal columns before all others

    Returns
    -------
    basis : (n, r)
    kept : (r,) columns that do not depend on those before them
    sizes : (r,) what these have of their own
    """
    columns, sizes_before = left @ right, np.linalg.norm(np.abs(left) @ np.abs(right), axis=0)
    n, m = columns.shape
    start = 0 if fixed is None else fixed.shape[1]
    basis = np.empty((n, start + min(n - start, m)))
    if fixed is not None:
        basis[:, :start] = fixed
    kept, sizes, r = [], [], start
    for place, column in enumerate(columns.T):
        rest = column
        for _ in range(2):  # the second time removes rounding
            rest = rest - basis[:, :r] @ (basis[:, :r].T @ rest)
        own = float(np.linalg.norm(rest))
        if r == basis.shape[1] or own <= _ROUNDING * sizes_before[place]:
            continue
        basis[:, r] = rest / own
        r += 1
        kept.append(place)
        sizes.append(own)
    return basis[:, start:r], np.array(kept, dtype=np.int64), np.array(sizes)


def _null(columns: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the vectors that are orthogonal to all columns."""
    sizes = np.linalg.norm(columns, axis=0)
    used = columns[:, sizes > 0.0] / sizes[sizes > 0.0]
    if used.shape[1] > len(used):
        used = np.asarray(np.linalg.qr(used.T, mode="r")).T
    U, s, _ = np.linalg.svd(used, full_matrices=True)
    rank = int((s > _ROUNDING * s.max(initial=0.0)).sum())
    return np.asarray(U[:, rank:], dtype=float)
