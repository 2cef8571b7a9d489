"""Comparisons of the levels of a factor of the fixed part, or of a random term, in pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.data import plain_label
from vcomp.exceptions import (
    DataError,
    EstimationError,
    PlanError,
    check_alpha,
    check_one_of,
    did_you_mean,
)
from vcomp.formula import LevelRows, WideFactor, average_rows, in_formula, level_rows, refuse
from vcomp.gtheory import omitted_interaction
from vcomp.inference.hypotheses import (
    ContrastTest,
    CovarianceOfFixed,
    DegreesOfFreedom,
    t_interval,
    t_tests,
)
from vcomp.inference.pairwise import (
    CORRECTIONS,
    CorrectionName,
    Pairs,
    PairwiseComparisons,
    largest_difference,
    pairs_table,
    pairs_with_baseline,
    range_of_normals,
    simultaneous,
)
from vcomp.model.estimates import fixed_fit
from vcomp.model.levels_of_rows import (
    TermLevels,
    column_means,
    factors_of,
    omitted_term,
    term_levels,
)
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess
from vcomp.numerics import available_bytes, check_memory

LevelTest: TypeAlias = Literal["t", "tukey", "max-t", "dunnett"]
_TESTS: tuple[LevelTest, ...] = ("t", "tukey", "max-t", "dunnett")

_ALIKE = 1e-8
"""Largest relative difference of equal standard errors: the rounding of covariances."""

_NO_DIFFERENCE = 1e-12
"""Share of the largest standard error up to which a difference is rounding: p is 1 in any case."""

_LEAST_SHARE = 0.005
"""Smallest share of the error variance that is printed."""

_DEGREES = {
    "satterthwaite": "Satterthwaite's degrees of freedom",
    "unbounded": "Satterthwaite's degrees of freedom, at upper limits",
    "kenward-roger": "Kenward and Roger's degrees of freedom",
    "normal": "components as if known",
}
_ROBUST = "variances from the rows"
_SHRUNKEN = "shrunken, of predicted effects"

_BYTES = 400.0
"""Peak memory of a pair in bytes, in the table and while it is computed."""

Differences: TypeAlias = tuple[ContrastTest, Callable[[], FloatArray]]
"""Tests of differences, and the function that returns their covariance matrix."""


@dataclass(frozen=True, slots=True)
class ComparedLevels:
    """The levels of a factor or term, with the function that tests their differences.

    Attributes
    ----------
    names : of the levels
    means : (k,) of each level, on the scale of the data
    tested : returns the tests of pairs, and their covariance matrix
    words : description of the errors
    symbol : of its statistic
    notes : sentences on the means and the errors
    slopes : returns the derivatives of the error variances of pairs by the components, or None
    not_estimable : levels whose means are not estimable from the rows
    """

    names: tuple[Any, ...]
    means: FloatArray
    tested: Callable[[Pairs], Differences]
    words: str
    symbol: str
    notes: tuple[str, ...]
    slopes: Callable[[Pairs], FloatArray | None] = lambda _: None
    not_estimable: tuple[Any, ...] = ()


def compare_levels(
    record: FitRecord,
    access: RowAccess | None,
    facet: str,
    test: LevelTest,
    levels: Iterable[object] | None,
    baseline: object | None,
    correction: CorrectionName | None,
    alpha: float,
    ddf: DegreesOfFreedom | None,
    cov_type: CovarianceOfFixed | None,
) -> PairwiseComparisons:
    """Return the differences between levels with their tests.

    Parameters
    ----------
    record, access : of the fit; None without rows
    facet, test, levels, baseline, correction, alpha, ddf, cov_type : as of
        ``VarianceComponentsResults.compare_levels``
    """
    check_options(test, baseline, correction)
    check_alpha(alpha)
    if not isinstance(facet, str):
        raise PlanError(
            f"levels of one factor or term are compared at a time, named as text, not a "
            f"{type(facet).__name__}; for combinations of levels, fit their term and compare "
            f"{_joined(facet)}"
        )
    compared = _levels_of(record, access, facet, test, ddf, cov_type)
    return of_compared(record, facet, compared, test, levels, baseline, correction, alpha)


def of_compared(
    record: FitRecord,
    facet: str,
    compared: ComparedLevels,
    test: LevelTest,
    levels: Iterable[object] | None,
    baseline: object | None,
    correction: CorrectionName | None,
    alpha: float,
) -> PairwiseComparisons:
    """Return the differences between levels that are known with their means.

    Parameters
    ----------
    record : of the fit
    facet : name of the levels
    compared : the levels
    test, levels, baseline, correction, alpha : as of :func:`compare_levels`
    """
    import pandas as pd

    kept = _chosen(facet, compared, levels)
    names = [label_of(compared.names[place]) for place in kept]
    if baseline is not None:
        _check_estimable(facet, compared, [baseline], "name another baseline=")
    pairs = _pairs(facet, names, baseline)
    places = kept[pairs[0]], kept[pairs[1]]
    tests, covariance = compared.tested(places)
    family = (correction or "holm") if test == "t" else None
    if test == "max-t":
        first = kept[np.zeros(len(names) - 1, dtype=np.int64)]
        covariance = compared.tested((kept[1:], first))[1]
    values, notes = _values(test, tests, covariance, pairs, alpha)
    index = pd.Index(pd.Series(names, dtype=object), name=facet)
    return PairwiseComparisons(
        table=pairs_table(names, pairs, {}, values, family, alpha),
        means=pd.Series(compared.means[kept] + record.mean_offset, index=index, name="mean"),
        facet=facet,
        test=_words(test, compared, tests),
        symbol=compared.symbol if test != "tukey" else "q",
        correction=family,
        alpha=alpha,
        notes=(
            *compared.notes,
            *record.on_offset,
            *_left_out(facet, compared, levels),
            *_on_error(record, compared, places),
            *notes,
            *record.caveats,
        ),
        plural=display.levels_of(facet),
    )


def _joined(facets: object) -> str:
    """Return the name of the term of several facets, quoted."""
    names = [f for f in facets if isinstance(f, str)] if isinstance(facets, list | tuple) else []
    return repr(":".join(names)) if names else "such as 'a:b'"


def check_options(test: object, baseline: object, correction: object) -> None:
    """Refuse options that are unknown, or that the test does not use."""
    if isinstance(test, str) and test in CORRECTIONS:
        raise PlanError(f"{test!r} is a correction of t-tests: correction={test!r}")
    check_one_of("test", test, _TESTS)
    if correction is not None:
        check_one_of("correction", correction, CORRECTIONS)
        if test != "t":
            raise PlanError(
                f"test={test!r} is of all differences at once: its p-values need no correction="
            )
    if test in ("tukey", "max-t") and baseline is not None:
        raise PlanError(f"test={test!r} is of all pairs; with a baseline use 'dunnett' or 't'")
    if test == "dunnett" and baseline is None:
        raise PlanError("test='dunnett' compares levels with one of them; name it by baseline=")


def _chosen(facet: str, compared: ComparedLevels, levels: Iterable[object] | None) -> LongArray:
    """Return the positions of the compared levels, in the order given."""
    names = compared.names
    if isinstance(levels, str):
        raise PlanError(
            f"levels must be a list of {display.levels_of(facet)}, not the text {levels!r}",
            column=facet,
        )
    if levels is None:
        kept = list(range(len(names)))
    else:
        levels = list(levels)
        _check_estimable(facet, compared, levels)
        kept = [place_of(facet, names, level) for level in levels]
    if len(set(kept)) < len(kept):
        twice = next(place for place in kept if kept.count(place) > 1)
        raise PlanError(
            f"level {label_of(names[twice])!r} of {facet} is given twice",
            level=names[twice],
        )
    if len(kept) < 2:
        _check_estimable(facet, compared, compared.not_estimable)
        raise PlanError(
            f"a comparison needs at least two {display.levels_of(facet)}, not {len(kept)}",
            column=facet,
        )
    return np.array(kept, dtype=np.int64)


def _check_estimable(
    facet: str,
    compared: ComparedLevels,
    wanted: Sequence[object],
    instead: str = "leave it out of levels=",
) -> None:
    """Refuse levels whose means are not estimable from the rows."""
    labels = {str(label_of(level)) for level in compared.not_estimable}
    others = f"{instead}, or " if len(compared.names) > 1 else ""
    for level in wanted:
        if str(label_of(level)) in labels:
            raise EstimationError(
                f"the mean of {facet} {label_of(level)!r} over the levels of the other factors is "
                f"not estimable, as some combinations have no rows; {others}fit {facet} without "
                "its interactions",
                column=facet,
                level=level,
            )


def _left_out(facet: str, compared: ComparedLevels, levels: object | None) -> list[str]:
    """Return a note on levels that are missing, unless the levels were named."""
    if levels is not None or not compared.not_estimable:
        return []
    absent = ", ".join(str(label_of(level)) for level in compared.not_estimable)
    why = "Left out, as some combinations with levels of other factors have no rows"
    return [f"{why}: {facet} {absent}."]


def place_of(facet: str, names: Sequence[Any], level: object) -> int:
    """Return the position of a level, given as it is or as text."""
    plain, wanted = [label_of(name) for name in names], str(label_of(level))
    for place, name in enumerate(plain):
        if type(name) is type(level) and name == level:
            return place
    labels = list(map(str, plain))
    if wanted not in labels:
        raise DataError(
            f"{facet} has no level {wanted!r}{did_you_mean(wanted, labels)}",
            column=facet,
            level=wanted,
        )
    return labels.index(wanted)


def label_of(level: Any) -> Any:
    """Return a level as Python's text, truth value or number; combinations of levels as text."""
    if isinstance(level, tuple):
        return ":".join(str(label_of(part)) for part in level)
    plain = plain_label(level)
    # patsy makes floats of whole numbers.
    return int(plain) if isinstance(plain, float) and plain.is_integer() else plain


def _pairs(
    facet: str,
    names: Sequence[Any],
    baseline: object | None,
    free_bytes: Callable[[], float] = available_bytes,
) -> Pairs:
    """Return the compared pairs.

    Raises
    ------
    EstimationError
        If they do not fit into memory.
    """
    k = len(names)
    if baseline is not None:
        return pairs_with_baseline(k, place_of(facet, names, baseline))
    check_memory(
        0.5 * _BYTES * k * (k - 1.0),
        f"the pairs of {display.counted(k, facet)} need",
        "name some of them by levels=[…], or one by baseline=",
        free_bytes=free_bytes,
    )
    i, j = np.triu_indices(k, 1)
    return i, j


# The levels ------------------------------------------------------------------------------------


def _levels_of(
    record: FitRecord,
    access: RowAccess | None,
    facet: str,
    test: LevelTest,
    ddf: DegreesOfFreedom | None,
    cov_type: CovarianceOfFixed | None,
) -> ComparedLevels:
    """Return the levels of a factor of the fixed part, else those of a random term.

    Raises
    ------
    PlanError
        If there is neither, or options of fixed effects are given for a random term.
    """
    how = ddf or "satterthwaite", cov_type or "model"
    if access is None:
        kept = record.stored_levels()
        rows, factors = kept.factor(facet), [rows.names[0] for rows in kept.factors]
    else:
        fixed = access.data.design.fixed
        if fixed.factor is not None and facet in (fixed.factor.column, fixed.factor.code):
            return _of_wide_factor(record, access, fixed.factor, *how)
        rows, factors = level_rows(fixed, facet, column_means(access)), factors_of(access)
    if rows is not None:
        return _of_factor(record, access, facet, rows, *how)
    refuse(
        "a comparison of the levels of a random term",
        record.traits,
        slopes="compare predictions at values of the covariate, res.get_prediction(rows)",
        residuals="see res.random_effects for its effects",
    )
    terms = list(record.estimate.names[:-1])
    if facet not in terms:
        if access is None:
            kept.check_factor(facet)
        known = [*terms, *factors]
        raise PlanError(
            f"{facet!r} is neither a factor of the fixed part nor a random term"
            f"{did_you_mean(facet, known)}; there are {', '.join(map(repr, known))}",
            column=facet,
        )
    if ddf is not None or cov_type is not None:
        raise PlanError(
            f"{facet} is random: errors of its predicted effects are normal, with the components "
            "as if known; ddf= and cov_type= are for factors of the fixed part",
            column=facet,
        )
    if test != "t":
        name = in_formula(facet)
        raise PlanError(
            f"test={test!r} is for levels that are fixed, and {facet} is random: its predicted "
            f"effects are shrunken. Use test='t', or fit C({name}) in place of (1|{name})",
            column=facet,
        )
    if access is None:
        differences, index = kept.differences(facet)
        levels = TermLevels(index, differences.effects, differences.centre, differences.of_pairs)
    else:
        levels = term_levels(access, terms.index(facet), access.effects)
    return _of_term(facet, levels)


def _of_factor(
    record: FitRecord,
    access: RowAccess | None,
    facet: str,
    rows: LevelRows,
    ddf: DegreesOfFreedom,
    cov_type: CovarianceOfFixed,
) -> ComparedLevels:
    """Return the levels of a factor of the fixed part, with their least-squares means."""
    fit = fixed_fit(record, access)

    def tested(pairs: Pairs) -> Differences:
        return fit.differences(rows.X, pairs, ddf, cov_type)

    notes = _averages(rows.X.shape[1], len(rows.levels))
    if rows.interacting:
        others = display.listed(rows.interacting)
        notes.append(
            f"{facet} interacts with {others}: differences depend on {others}, and these are "
            "averages."
        )

    omitted = rows.omitted if access is None else omitted_term(access, rows.names[-1])
    if omitted:
        notes.append(omitted_interaction(omitted, "their number"))

    def slopes(pairs: Pairs) -> FloatArray | None:
        return None if cov_type == "robust" else fit.error_slopes(rows.X, pairs)

    means = rows.X @ record.estimate.beta
    how = errors_in_words(ddf, cov_type)
    return ComparedLevels(
        rows.levels, means, tested, *how, tuple(notes), slopes, rows.not_estimable
    )


def _averages(n_columns: int, n_levels: int) -> list[str]:
    """Return a note on other columns of X in the means; no note without such columns."""
    if n_columns > n_levels:
        return ["Means: other factors have equal weights, covariates their means over the rows."]
    return []


def errors_in_words(ddf: DegreesOfFreedom, cov_type: CovarianceOfFixed) -> tuple[str, str]:
    """Return the description of the errors, and the symbol of the statistic."""
    words = _DEGREES.get(ddf, "")
    return words if cov_type == "model" else f"{words}, {_ROBUST}", "z" if ddf == "normal" else "t"


def _of_wide_factor(
    record: FitRecord,
    access: RowAccess,
    factor: WideFactor,
    ddf: DegreesOfFreedom,
    cov_type: CovarianceOfFixed,
) -> ComparedLevels:
    """Return the levels of a factor of very many levels; X has rows for the compared ones only."""
    fit, beta = fixed_fit(record, access), record.estimate.beta
    design = access.data.design
    row = average_rows(design.fixed, column_means(access))
    row[:, -factor.n_columns :] = 0.0
    of_levels = np.concatenate([[0.0], beta[-factor.n_columns :]])

    def tested(pairs: Pairs) -> Differences:
        used, places = np.unique(np.concatenate(pairs), return_inverse=True)
        check_memory(
            24.0 * used.size * beta.size,
            f"the comparison of {used.size:,} levels of {factor.code} needs",
            "name some of them by levels=[…]",
        )
        X = np.repeat(row, used.size, axis=0)
        coded = np.flatnonzero(used > 0)
        X[coded, beta.size - factor.n_columns + used[coded] - 1] = 1.0
        first, second = np.split(places, 2)
        return fit.differences(X, (first, second), ddf, cov_type)

    means, notes = float(row[0] @ beta) + of_levels, _averages(beta.size, len(factor.levels))
    return ComparedLevels(
        tuple(factor.levels), means, tested, *errors_in_words(ddf, cov_type), tuple(notes)
    )


def _of_term(name: str, term: TermLevels) -> ComparedLevels:
    """Return the levels of a random term, with their predicted effects added to the mean."""
    effects = term.effects

    def tested(pairs: Pairs) -> Differences:
        se = np.sqrt(term.variances(pairs))
        tests = t_tests(effects[pairs[0]] - effects[pairs[1]], se, np.full(se.size, np.inf))
        return tests, lambda: np.diag(np.square(se))

    notes = (
        f"{name} is random: differences are those of predicted effects, shrunken towards zero.",
        "Errors are of prediction, with the components as if known.",
        "p is twice the probability, given the scores, that a true difference has the other sign.",
    )
    return ComparedLevels(tuple(term.index), term.centre + effects, tested, _SHRUNKEN, "z", notes)


# The tests -------------------------------------------------------------------------------------


def _values(
    test: LevelTest,
    tests: ContrastTest,
    covariance: Callable[[], FloatArray],
    pairs: Pairs,
    alpha: float,
) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Return the columns of the table, and notes on intervals and p-values."""
    d, se = tests.estimate, tests.std_error
    d = np.where(np.abs(d) <= _NO_DIFFERENCE * se.max(initial=0.0), 0.0, d)
    limit = np.where(d == 0.0, 0.0, np.copysign(np.inf, d))
    ratio = np.divide(d, se, out=limit, where=se > 0.0)
    values = {"difference": d, "std_error": se, "df": tests.df, "statistic": ratio}
    if test == "t":
        low, high = t_interval(d, se, tests.df, alpha)
        values["p_value"] = np.where(d == 0.0, 1.0, np.where(se > 0.0, tests.p_value, 0.0))
        notes = ["Intervals: each pair separately."] if d.size > 1 else []
    else:
        how = ""
        is_of_range = test == "tukey" or (test == "max-t" and _are_alike(se))
        if is_of_range:
            k = 1 + int(max(pairs[0].max(), pairs[1].max()))
            statistic, tail, scale = np.sqrt(2.0) * np.abs(ratio), range_of_normals(k), 0.5**0.5
        else:
            if not (se > 0.0).all():
                raise EstimationError(
                    f"test={test!r} needs differences with standard errors above zero; use "
                    "test='t'"
                )
            tail, how = largest_difference(covariance(), se, pairs if test == "max-t" else None)
            statistic, scale = np.abs(ratio), 1.0
        if test == "tukey":
            values["statistic"] = statistic
        values["p_value"], critical = simultaneous(statistic, tests.df, tail, alpha)
        low, high = d - scale * critical * se, d + scale * critical * se
        notes = [*_on_approximation(test, tests), *([how] if how else [])]
    return values | {"low": low, "high": high}, (*_on_degrees(tests), *notes)


def _on_error(record: FitRecord, compared: ComparedLevels, pairs: Pairs) -> Iterator[str]:
    """Yield notes on the components in the error variance of a difference."""
    slopes = compared.slopes(pairs)
    if slopes is None or not (slopes > 0.0).any():
        return
    names, values = record.estimate.names, record.estimate.values
    errors = record.estimate.fixed_errors
    keeps = errors is not None and errors.keeps_negative
    parts = (values if keeps else np.maximum(values, 0.0)) * slopes
    shares = parts / parts.sum() if parts.sum() > 0.0 else parts
    order = [t for t in np.argsort(-shares, kind="stable") if abs(shares[t]) >= _LEAST_SHARE]
    if order:
        named = [f"{names[t]} {display.percent(float(shares[t]), 0)}" for t in order]
        yield f"Error variance of a difference: {display.listed(named)}."
    of_error = slopes > _ALIKE * slopes.max()
    none = values == 0.0 if keeps else ~(values > 0.0)
    zero = [name for name, no in zip(names, of_error & none, strict=True) if no]
    if zero:
        verbs = ("is", "adds") if len(zero) == 1 else ("are", "add")
        yield f"{display.listed(zero)} {verbs[0]} estimated at zero and {verbs[1]} nothing to it."


def _are_alike(values: FloatArray) -> bool:
    """Whether numbers differ by rounding only; unknown ones are ignored."""
    known = values[np.isfinite(values)]
    return bool((known >= (1.0 - _ALIKE) * known.max(initial=0.0)).all())


def _on_degrees(tests: ContrastTest) -> Iterator[str]:
    known = tests.df[np.isfinite(tests.df)]
    if np.isnan(tests.df).any():
        yield (
            "The components have no covariance matrix, so that errors have no degrees of freedom: "
            "p is that of the normal distribution."
        )
    elif known.size and _are_alike(tests.df):
        yield f"Degrees of freedom: {display.number(known[0])}."
    elif known.size:
        low, high = display.number(known.min()), display.number(known.max())
        yield f"Degrees of freedom: {low} to {high}, different for each pair."


def _on_approximation(test: LevelTest, tests: ContrastTest) -> Iterator[str]:
    """Yield notes on simultaneous intervals and on the approximation of Tukey's test."""
    yield "Intervals: of all pairs at once."
    if test == "tukey" and not _are_alike(tests.std_error):
        yield "Standard errors differ between pairs: Kramer's approximation."


def _words(test: LevelTest, compared: ComparedLevels, tests: ContrastTest) -> str:
    if compared.words == _SHRUNKEN:
        return compared.words
    tukey = "Tukey's HSD" if _are_alike(tests.std_error) else "Tukey-Kramer test"
    kinds = {
        "t": f"{compared.symbol}-test",
        "tukey": tukey,
        "max-t": "max-T test",
        "dunnett": "Dunnett's test",
    }
    return f"{kinds[test]}, {compared.words}"
