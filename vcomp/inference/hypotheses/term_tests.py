"""Tests of whole terms of the fixed part, and the table of them.

The hypotheses of types I, II and III are those of SAS (1978) and of lmerTest (Kuznetsova et al.
2017), and do not depend on the coding of factors: docs/explanation/mathematics.md, eqs. (11.14)
and (11.15).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.design import Design
from vcomp.exceptions import DataError, EstimationError, PlanError, did_you_mean
from vcomp.formula import WIDE, FixedTerm, fixed_terms, in_python
from vcomp.inference.hypotheses.contrasts import FixedFit, columns_of_term
from vcomp.statistics import Statistics

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.inference.hypotheses.matrix_tests import HypothesisTest


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


_OPERATORS = re.compile(r"[=,+\-*/\[<>]|^[\d.]+$")


def anova_of_terms(fit: FixedFit, kind: TypeOfTest, ddf: str, cov_type: str) -> pd.DataFrame:
    """Return a test of each term of the fixed part, the intercept excepted.

    Parameters
    ----------
    fit : of the fixed effects
    kind : type of the hypotheses
    ddf, cov_type : as for :meth:`FixedFit.table`, with the same errors

    Raises
    ------
    PlanError
        If the type is not known.
    DataError
        If the result was loaded without its rows.
    EstimationError
        If there is no term, or there are very many columns.
    """
    import pandas as pd

    if kind not in TYPES or isinstance(kind, bool):
        raise PlanError(f"type must be 1, 2 or 3, not {kind!r}")
    terms = _terms(fit, "anova()")
    tested = [term for term in terms if term.name != INTERCEPT]
    if not tested:
        raise EstimationError(
            "the fixed part has no terms to test; a factor is written before the random terms, as "
            "f in 'y ~ f + (1|g)'. anova_table() is the analysis of variance of random terms"
        )
    contrasts = _contrasts(fit, terms, tested, kind)
    rows = [_row(fit, L, ddf, cov_type) for L in contrasts]
    index = pd.Index([term.name for term in tested], name="term", dtype=object)
    return pd.DataFrame(rows, index=index).astype({"df_num": int})


def f_test_of(fit: FixedFit, hypothesis: Any, ddf: str, cov_type: str) -> HypothesisTest:
    """Return the test of several contrasts at once, or of a term by its name.

    Parameters
    ----------
    fit : of the fixed effects
    hypothesis : as for :func:`contrasts_of`; or the name of a term
    ddf, cov_type : as for :meth:`FixedFit.table`, with the same errors

    Raises
    ------
    EstimationError
        If a name is not known, or all columns of the term depend on others.
    DataError
        If a term is named, and the result was loaded without its rows.
    """
    if not isinstance(hypothesis, str) or hypothesis.strip() in fit.names:
        return fit.f_test(hypothesis, ddf, cov_type)
    name = in_python(hypothesis.strip())
    column = next((n for n in fit.names if n.replace(" ", "") == name.replace(" ", "")), None)
    if column is not None:
        return fit.f_test(column, ddf, cov_type)
    if fit.design is None and columns_of_term(name, fit.names):
        columns = ", ".join(f"{column} = 0" for column in columns_of_term(name, fit.names))
        raise DataError(
            f"this result was loaded without the coding of {name!r}, which a test of the term "
            f"needs; fit the model again, or test its columns: {columns!r}",
            term=name,
        )
    terms = () if fit.design is None else fixed_terms(fit.design.fixed, fit.design.formula)
    tested = [term for term in terms if term.name != INTERCEPT and term.is_called(name)]
    if not tested:
        _check_name(fit, name, terms)
        return fit.f_test(hypothesis, ddf, cov_type)
    (L,) = _contrasts(fit, terms, tested[:1], 3)
    if not len(L):
        raise EstimationError(
            f"all columns of {name!r} are linear combinations of those of other terms, so that "
            "it has no test; leave other terms out of the formula",
            term=name,
        )
    found = fit.joint(L, ddf, cov_type)
    others = dict.fromkeys(
        factor
        for term in terms
        if tested[0].is_in(term)
        for factor in term.factors
        if factor not in tested[0].factors
    )
    notes = (
        [f"Averaged with equal weights over {display.listed(tuple(others))}."] if others else []
    )
    return fit.as_result(found, tested[0].name, ddf, cov_type, notes)


def _check_name(fit: FixedFit, name: str, terms: tuple[FixedTerm, ...]) -> None:
    """Refuse a single name that is not known."""
    known = [term.name for term in terms if term.name != INTERCEPT]
    others = {*fit.left_out, *fit.estimate.names}
    if not known or name in others or _OPERATORS.search(name) or not name:
        return
    raise EstimationError(
        f"{name!r} is neither a term nor a column of the fixed part{did_you_mean(name, known)}; "
        f"terms are {', '.join(map(repr, known))}, and columns are {', '.join(fit.names)}",
        term=name,
    )


def _terms(fit: FixedFit, call: str) -> tuple[FixedTerm, ...]:
    if fit.design is None or fit.stats is None:
        raise DataError(
            f"this result was loaded without its rows, which {call} needs; fit the model again"
        )
    if len(fit.names) > WIDE.formed:
        raise _too_many(fit)
    return fixed_terms(fit.design.fixed, fit.design.formula)


def _too_many(fit: FixedFit) -> EstimationError:
    return EstimationError(
        f"tests of terms need matrices of the {len(fit.names):,} columns of the fixed part, which "
        f"are formed for up to {WIDE.formed:,}; fit the factor of most levels as a random term"
    )


def _contrasts(
    fit: FixedFit, terms: tuple[FixedTerm, ...], tested: list[FixedTerm], kind: TypeOfTest
) -> list[FloatArray]:
    """Return the contrasts of each tested term."""
    assert fit.design is not None
    assert fit.stats is not None
    # Of a single term the hypotheses are the same; as lmerTest, the rows are those of type 1.
    is_single = sum(term.name != INTERCEPT for term in terms) == 1
    if kind == 3 and not is_single:
        se = np.sqrt(np.maximum(fit.estimate.cov_beta.diagonal(), 0.0))
        return [of_equal_weights(terms, term, se) for term in tested]
    F = rows_of_columns(fit.design, fit.stats, terms)
    other: Literal[1, 2] = 1 if is_single or kind == 1 else 2
    return [adjusted_for_others(terms, term, other, F) for term in tested]


def _row(fit: FixedFit, L: FloatArray, ddf: str, cov_type: str) -> dict[str, float]:
    """Return the columns of the table for a term with some contrasts."""
    residual = float(fit.estimate.values[-1])
    found = fit.joint(L, ddf, cov_type)
    mean_sq = found.statistic / found.scale * residual
    return {
        "sum_sq": mean_sq * found.df[0],
        "mean_sq": mean_sq,
        "df_num": found.df[0],
        "df_denom": found.df[1],
        "F": found.statistic,
        "p_value": found.p_value,
    }
