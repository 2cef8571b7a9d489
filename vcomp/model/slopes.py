"""Random slopes: components at one value of the covariates, and slopes that a model leaves out.

The effect of a level at a row z of the columns of its bar is z'u, with the variance z'Λz, so that
each term has one variance there, a linear combination of the components of the fit.

Whether the effect of a covariate differs between levels is tested by the likelihood ratio of the
model with the slope.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, IntArray
from vcomp.design import bars_of_rows, learn_blocks
from vcomp.estimators import get_estimator
from vcomp.estimators.likelihood import MatricesLikelihood, slopes_of_levels
from vcomp.exceptions import DataError, EstimationError, VcompError, did_you_mean
from vcomp.formula import INTERCEPT, Formula, RandomTerm
from vcomp.gtheory import HasDStudies, MeanOfScores
from vcomp.inference import Projected, VarianceComponents, hypotheses
from vcomp.inference.assumptions import MissingSlope
from vcomp.inference.intervals import IntervalSource
from vcomp.model.interval_sources import IntervalMethod, pooled_source
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess
from vcomp.statistics import Statistics

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS, _MOST_EFFECTS, _MOST_CROSSED, _MOST_FITS = 50_000, 2_000, 300, 8
"""Rows, effects of all random terms, those outside the largest term, and fits, up to which slopes
are tested: each fit then takes a second or two."""

_CONSTANT = 1e-10
"""Share of the squares of a covariate below which it does not vary within groups."""


def missing_slopes(access: RowAccess) -> tuple[list[MissingSlope], list[str]]:
    """Return the tests of slopes that a fit has not, and sentences on those that are not tested.

    Slopes of covariates that are constant within the levels have a sentence too: none is seen.

    Parameters
    ----------
    access : model and estimate
    """
    candidates = list(_candidates(access))
    stats = access.data.statistics
    effects, largest = sum(stats.sizes), max(stats.sizes, default=0)
    too_many = stats.n > _MOST_ROWS or effects > _MOST_EFFECTS or effects - largest > _MOST_CROSSED
    found, left = [], [f"{clause}." for clause in _of_levels(access)]
    for k, (bar, covariate) in enumerate(candidates):
        groups = ":".join(bar.facets)
        what = (
            f"Whether the effect of {covariate} differs between levels of {groups} is not tested"
        )
        if too_many or k >= _MOST_FITS or access.estimate.held:
            why = "components are held" if access.estimate.held else "the fit would take long"
            left.append(f"{what}: {why}.")
            continue
        try:
            found.append(_tested(access, bar, covariate))
        except (VcompError, np.linalg.LinAlgError) as error:
            left.append(f"{what}: {error}.")
    return found, left


def _of_levels(access: RowAccess) -> list[str]:
    """Return clauses on slopes of the model that no level shows."""
    stats = access.data.statistics
    if stats.blocks is None or not stats.blocks.has_slopes:
        return []
    return slopes_of_levels(MatricesLikelihood(stats, reml=True), access.estimate.names)


def is_numerical(column: Any) -> bool:
    """Whether a column of the fixed part has numbers.

    Parameters
    ----------
    column : of the data
    """
    return np.asarray(column).dtype.kind in "iuf"


def _candidates(access: RowAccess) -> Iterator[tuple[RandomTerm, str]]:
    """Yield each bar with an intercept, and each covariate that varies within its groups."""
    design, rows = access.data.design, access.data.kept_rows
    bars, chunk = _bars(design.formula), access.data.statistics.single_rows
    covariates = {
        name: np.asarray(rows.fixed[name], dtype=float)
        for name in design.fixed.names
        if name in rows.fixed and is_numerical(rows.fixed[name])
    }
    for block, bar in zip(design.formula.blocks, bars, strict=True):
        if INTERCEPT not in bar.effects:
            continue
        used = {e for other in bars if set(other.facets) == set(bar.facets) for e in other.effects}
        codes = chunk.codes[block[0]]
        for name, x in covariates.items():
            if name not in used and name not in bar.facets and _varies(x, codes):
                yield bar, name


def _bars(formula: Formula) -> list[RandomTerm]:
    """Return the bars of the formula of a design, whose terms are one effect each."""
    bars = []
    for number, block in enumerate(formula.blocks):
        terms = [formula.random[t] for t in block]
        effects = tuple(effect for term in terms for effect in term.effects)
        name = ":".join(terms[0].facets)
        bars.append(replace(terms[0], name=name, effects=effects, block=number))
    return bars


def _varies(x: FloatArray, codes: IntArray) -> bool:
    centred = x - x.mean()
    within = centred - (np.bincount(codes, centred) / np.bincount(codes))[codes]
    return float(within @ within) > _CONSTANT * float(centred @ centred)


def _tested(access: RowAccess, bar: RandomTerm, covariate: str) -> MissingSlope:
    """Return the test of a slope from the fit of the model with it."""
    design, estimate = access.data.design, access.estimate
    wider = replace(
        bar, effects=(*bar.effects, covariate), covariates=(*bar.covariates, covariate)
    )
    formula, larger = _with_slope(access, bar, wider)
    method = estimate.method if estimate.method in ("reml", "ml") else "reml"
    names = (*formula.component_names, *formula.residual_names)
    fit = get_estimator(method).estimate(larger, names)
    name = wider.of_column(covariate).name
    ratio = hypotheses.component_test(
        hypotheses.ComponentFit(fit, None, False, larger, _no_components, has_matrices=True),
        name, "lrt", hypotheses.Simulation(),
    )  # fmt: skip
    at = design.fixed.names.index(covariate)
    beta = design.uncentred(fit.beta)
    return MissingSlope(
        covariate=covariate,
        groups=":".join(bar.facets),
        written=f"({' + '.join(wider.effects[1:])}|{':'.join(bar.facets)})",
        in_place_of=bar.written,
        statistic=ratio.statistic,
        p_value=ratio.p_value,
        mean=float(beta[at]),
        sd=float(np.sqrt(max(fit.values[names.index(name)], 0.0))),
        residual=float(estimate.values[-len(formula.residual_names) :].mean()),
        with_slopes=float(fit.values[-len(formula.residual_names) :].mean()),
    )


def _with_slope(
    access: RowAccess, bar: RandomTerm, wider: RandomTerm
) -> tuple[Formula, Statistics]:
    """Return the formula of a model in which a bar has one more slope, and its statistics."""
    data, design = access.data, access.data.design
    bars = _bars(design.formula)
    whole = replace(
        design.formula, random=tuple(wider if own.block == bar.block else own for own in bars)
    )
    rows = data.statistics.single_rows
    columns, n = data.kept_rows.fixed, rows.response.size
    coded = bars_of_rows(whole, columns, data.reading.environment, n)
    formula, blocks = learn_blocks(whole, coded)
    first = [design.terms[block[0]] for block in design.formula.blocks]
    of_bar = {own.block: term for own, term in zip(bars, first, strict=True)}
    chunk = replace(
        rows,
        terms=tuple(of_bar[term.block] for term in formula.random),
        blocks=blocks,
        effects=blocks.values(columns, n),
    )
    return formula, Statistics.from_rows(chunk, None)


def _no_components() -> Any:
    raise AssertionError("a likelihood ratio needs no robust components")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ComponentsAt(HasDStudies):
    """Components at one value of the covariates of random slopes, with the D-studies there.

    Attributes
    ----------
    at : the values of the covariates
    components : with one variance a term, and one residual variance: the mean of several
    record, rows : of the fit; rows are None after loading
    weights : for each bar of the fit the (q,) weights z of its effects
    mean : of the scores of the fit
    notes : sentences on the residual variance of a score
    """

    at: Mapping[str, Any]
    components: VarianceComponents
    record: FitRecord
    rows: RowAccess | None
    weights: tuple[FloatArray, ...]
    mean: MeanOfScores
    notes: tuple[str, ...] = ()

    @property
    def vcomp(self) -> pd.Series:
        """The components; the residual is the last."""
        import pandas as pd

        names = pd.Index(self.components.names, name="component")
        return pd.Series(np.array(self.components.values), names, name="variance")

    def __repr__(self) -> str:
        where = ", ".join(f"{name} = {value}" for name, value in self.at.items())
        pairs = zip(self.components.names, self.components.values, strict=True)
        values = ", ".join(f"{name} {display.number(value)}" for name, value in pairs)
        return f"<components at {where}: {values}>"

    def _components(self) -> VarianceComponents:
        return self.components

    def _mean_of_scores(self) -> MeanOfScores:
        return self.mean

    def _planned_notes(self) -> tuple[str, ...]:
        where = ", ".join(f"{name} = {value}" for name, value in self.at.items())
        return (f"All scores of a measurement are at {where}.", *self.notes)

    def _source(self, interval: IntervalMethod, negative: Projected) -> IntervalSource:
        return pooled_source(
            self.record,
            self.rows,
            interval,
            negative,
            lambda components: components.at_columns(self.weights),
        )


def components_at(
    record: FitRecord,
    access: RowAccess,
    mean: MeanOfScores,
    at: Mapping[str, Any],
    notes: tuple[str, ...] = (),
) -> ComponentsAt:
    """Return the components at one value of each covariate of the slopes.

    Parameters
    ----------
    record, access : of the fit
    mean : of its scores
    at : a value of each covariate, a level of each factor
    notes : sentences on the residual variance of a score

    Raises
    ------
    EstimationError
        If the model has no slopes.
    DataError
        If a covariate has no value, or a name or value is none of the slopes.
    """
    blocks, data = access.data.design.blocks, access.data
    if blocks is None or not blocks.has_slopes:
        raise EstimationError("the model has no random slopes: its components are res.vcomp")
    columns = _columns(data.design.formula, data.fixed_columns, at)
    weights = tuple(
        np.ones(1)
        if own is None
        else np.array([1.0 if z is None else z[0] for z in own.values(columns, 1, centred=False)])
        for own in blocks.columns
    )
    components = record.tables.components.at_columns(weights)[0]
    return ComponentsAt(dict(at), components, record, access, weights, mean, notes)


def slope_names(formula: Formula) -> tuple[str, ...]:
    """Return the columns that slopes use.

    Parameters
    ----------
    formula : of the model
    """
    return tuple(dict.fromkeys(name for term in formula.random for name in term.covariates))


def _columns(formula: Formula, fitted: Mapping[str, Any], at: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of one row with the values, factors with the categories of the fit."""
    names = slope_names(formula)
    written = ", ".join(f"{name!r}: …" for name in names)
    if not isinstance(at, Mapping):
        raise DataError(f"at is a mapping {{{written}}}, not {at!r}")
    for name in at:
        if name not in names:
            raise DataError(
                f"at names {name!r}, which no slope uses{did_you_mean(str(name), names)}; it is "
                f"{{{written}}}",
                column=str(name),
            )
    for name in names:
        if name not in at:
            raise DataError(f"at has no value of {name!r}; it is {{{written}}}", column=name)
    return {name: _column(name, at[name], fitted.get(name)) for name in names}


def _column(name: str, value: Any, fitted: Any) -> Any:
    import pandas as pd

    if isinstance(fitted, pd.Categorical):
        levels: Sequence[Any] = fitted.categories.tolist()
        if value not in levels:
            known = ", ".join(map(repr, levels[:10]))
            raise DataError(
                f"at[{name!r}] is a level of {name}, such as {known}, not {value!r}", column=name
            )
        return pd.Categorical([value], categories=fitted.categories)
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not np.isfinite(value):
        raise DataError(
            f"at[{name!r}] is one finite number, as {name} is a covariate, not {value!r}",
            column=name,
        )
    return np.array([float(value)])
