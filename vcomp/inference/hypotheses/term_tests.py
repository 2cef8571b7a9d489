"""Tests of whole terms of the fixed part, and the table of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, EstimationError, PlanError, did_you_mean
from vcomp.formula import WIDE, FixedTerm, fixed_terms
from vcomp.inference.hypotheses.contrasts import FixedFit, columns_of_term
from vcomp.inference.hypotheses.term_contrasts import (
    INTERCEPT,
    TYPES,
    TypeOfTest,
    adjusted_for_others,
    of_equal_weights,
    rows_of_columns,
)

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.inference.hypotheses.component import HypothesisTest

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
    name = hypothesis.strip()
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
