"""The intervals of one data set by every method of the library."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.coverage.cells import Plan
from benchmarks.coverage.prepared import Prepared
from vcomp._typing import FloatArray
from vcomp.estimators.estimate import Estimate
from vcomp.estimators.likelihood.choose import choose_engine
from vcomp.exceptions import EstimationError, VcompWarning
from vcomp.gtheory.study import DStudy
from vcomp.gtheory.study_record import project
from vcomp.inference.intervals import level_variances
from vcomp.inference.intervals.limits import FromComponents, IntervalName, IntervalSource
from vcomp.inference.quantities import VarianceComponents
from vcomp.inference.resampling.collection import GeneratingFit
from vcomp.inference.resampling.delete_one import jackknife
from vcomp.inference.resampling.facet import facet_bootstrap
from vcomp.inference.resampling.parametric import parametric_bootstrap
from vcomp.inference.resampling.replicates import FromReplicates
from vcomp.model.profiling import FromProfile, MaximisedLikelihood
from vcomp.statistics.statistics import Statistics

ALPHA = 0.05
NORMAL_THEORY = "normal theory"
NORMAL: IntervalName = "mls"
OF_POPULATIONS: tuple[IntervalName, ...] = (NORMAL, "robust", "log", "wald")
"""Intervals that are compared in all populations; widths are relative to the first's."""

Found = dict[tuple[str, str], FloatArray]
"""(2, m) ends of the intervals of m quantities by estimator and method."""

Group = Callable[[Prepared, int, Plan], Found]
"""Methods that are tried on the same data set, which has a number."""


def limits_of(
    prepared: Prepared, source: IntervalSource, *, shares: bool = True, ratios: bool = False
) -> FloatArray:
    """Return the ends of the intervals of all quantities, (2, m); nan where there is none."""
    linear = source.limits(prepared.linear, ALPHA)
    ends = np.full((2, len(prepared.names)), np.nan)
    ends[:, : len(prepared.linear)] = linear.low, linear.high
    at = len(prepared.linear)
    if shares:
        found = source.limits(prepared.shares, ALPHA)
        ends[:, at : at + len(prepared.shares)] = found.low, found.high
    if ratios:
        found = source.limits(prepared.ratios, ALPHA)
        ends[:, at + len(prepared.shares) :] = found.low, found.high
    return ends


def with_exact_f(
    prepared: Prepared, components: VarianceComponents, ends: FloatArray
) -> FloatArray:
    """Return the intervals of components that are known without their rows.

    Those of method ``"auto"``: modified large sample, but for Eρ² and Φ of a complete two-way
    table.

    Parameters
    ----------
    prepared : the design
    components : of a data set
    ends : (2, m) by ``"mls"``
    """
    if components.mean_squares is None:
        return ends
    taken = ends.copy()
    source = FromComponents(components, "auto", "zero")
    study = project(DStudy, components, prepared.plan, alpha=ALPHA, source=source)
    for name in ("Erho2", "Phi"):
        column = prepared.names.index(name)
        taken[:, column] = study.columns[f"{name}_low"][0], study.columns[f"{name}_high"][0]
    return taken


# Groups of methods: each makes its data set, and returns what was found ------------------------


def local(prepared: Prepared, number: int, plan: Plan) -> Found:
    """Return intervals from components and their covariance."""
    stats = prepared.draw(number)
    found: Found = {}
    for method in ("reml", *prepared.cell.estimators):
        fit = prepared.estimate(stats, method)
        if not fit.converged:
            continue
        components = prepared.components(fit, stats)
        ends = limits_of(prepared, FromComponents(components, "mls"))
        found[method, NORMAL_THEORY] = with_exact_f(prepared, components, ends)
        found[method, "mls"] = ends
        if method == "reml":
            found |= _others(prepared, components, fit, stats)
    return found


def _others(
    prepared: Prepared, components: VarianceComponents, fit: Estimate, stats: Statistics
) -> Found:
    found: Found = {}
    for name in ("satterthwaite", "log", "wald"):
        source = FromComponents(components, name)
        found["reml", name] = limits_of(prepared, source, shares=name != "satterthwaite")
    if not prepared.model.design.structure.balanced:
        source = FromComponents(prepared.components(fit, stats, "expected"), "mls")
        found["reml", "mls, expected information"] = limits_of(prepared, source)
    return found


def robust(prepared: Prepared, number: int, plan: Plan) -> Found:
    """Return robust intervals, and those that assume normal effects, of the same rows."""
    components = with_levels(prepared, number)
    return {} if components is None else of_components(prepared, components)


def with_levels(prepared: Prepared, number: int) -> VarianceComponents | None:
    """Return the components of a data set with influences by level; None without a fit."""
    stats = prepared.draw(number, rows=True)
    try:
        fit = prepared.estimate(stats, "reml")
    except EstimationError:
        return None
    if not fit.converged or fit.values[-1] <= 0.0:
        return None
    at = np.maximum(fit.values, 0.0)

    def total(of: Callable[..., Any], *known: Any) -> Any:
        return of(*known, stats.cells)

    levels = level_variances(prepared.model.design, stats, total, at)
    return replace(prepared.components(fit, stats), levels=levels)


def of_components(prepared: Prepared, components: VarianceComponents) -> Found:
    """Return the intervals that are compared in all populations."""
    return {
        ("reml", name): limits_of(prepared, FromComponents(components, name), ratios=True)
        for name in OF_POPULATIONS
    }


def profile(prepared: Prepared, number: int, plan: Plan) -> Found:
    """Return intervals from the profile likelihood."""
    stats = prepared.draw(number)
    fit = prepared.estimate(stats, "reml")
    names = prepared.model.component_names
    engine = choose_engine(stats, reml=True, names=names[:-1])
    likelihood = MaximisedLikelihood(engine, fit, np.zeros(len(names), dtype=bool))
    try:
        return {("reml", "profile"): limits_of(prepared, FromProfile(likelihood))}
    except EstimationError:
        return {}


def bootstrap(prepared: Prepared, number: int, plan: Plan) -> Found:
    """Return intervals from the parametric bootstrap."""
    stats = prepared.draw(number)
    fit = prepared.estimate(stats, "reml")
    replicates = parametric_bootstrap(
        _generating(prepared, stats, fit), plan.inner, rng=number, progress=False
    )
    return {
        ("reml", f"bootstrap, {kind}"): limits_of(
            prepared, FromReplicates(replicates, fit.values, fit.beta, kind)
        )
        for kind in ("percentile", "basic", "bias-corrected")
    }


def left_out(prepared: Prepared, number: int, plan: Plan) -> Found:
    """Return intervals from leaving out the levels of either facet."""
    stats = prepared.draw(number, rows=True)
    fit = prepared.estimate(stats, "anova")
    generating, design = _generating(prepared, stats, fit), prepared.model.design
    return {
        ("anova", f"jackknife over {facet}"): limits_of(
            prepared, jackknife(generating, design, facet, progress=False)
        )
        for facet in design.structure.facets
    }


def levels(prepared: Prepared, number: int, plan: Plan) -> Found:
    """Return intervals from drawing the levels of either facet again."""
    stats = prepared.draw(number, rows=True)
    fit = prepared.estimate(stats, "anova")
    components = prepared.components(fit, stats)
    generating, design = _generating(prepared, stats, fit), prepared.model.design
    found: Found = {}
    for facet in design.structure.facets:
        replicates = facet_bootstrap(
            generating, design, components, facet, plan.resamples, rng=number, progress=False
        )
        source = FromReplicates(replicates, fit.values, fit.beta)
        found["anova", f"bootstrap over {facet}"] = limits_of(prepared, source)
    return found


def _generating(prepared: Prepared, stats: Statistics, fit: Estimate) -> GeneratingFit:
    return GeneratingFit(
        stats=stats,
        recipe=prepared.recipe(fit.method),
        values=fit.values,
        beta=fit.beta,
        fixed_names=prepared.model.design.fixed.names,
        uncentre=lambda beta: beta,
        formula=prepared.cell.formula,
    )


def quietly(group: Group) -> Group:
    """Return a group of methods that gives no warnings of the library."""

    def quiet(prepared: Prepared, number: int, plan: Plan) -> Found:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VcompWarning)
            return group(prepared, number, plan)

    return quiet


GROUPS: dict[str, Group] = {
    "local": quietly(local),
    "robust": quietly(robust),
    "profile": quietly(profile),
    "bootstrap": quietly(bootstrap),
    "jackknife": quietly(left_out),
    "levels": quietly(levels),
}
"""By the name of their number of data sets in a :class:`~benchmarks.coverage.cells.Plan`."""
