"""All pairs of measures: how their coefficients and required sizes differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.dstudy import DStudy
from vcomp.dstudy.project import quantities, weights
from vcomp.dstudy.requirement import SYMBOLS, requirement_ratio
from vcomp.dstudy.two_way import two_way_plans, two_way_table
from vcomp.exceptions import EstimationError, PlanError, did_you_mean
from vcomp.resampling.levels import check_facets
from vcomp.results.refitting import fitted_again
from vcomp.studies.differences import Known, MeasureDifferences, pairs_table
from vcomp.studies.joint import LeftOut, correlations, influences, left_out
from vcomp.studies.plans import required_facet
from vcomp.uncertainty import Quantities
from vcomp.uncertainty.taken import take_components
from vcomp.uncertainty.two_way import arteaga_interval, feldt_interval

if TYPE_CHECKING:
    from vcomp.studies.comparison import MeasureComparison

__all__ = ["differences", "required_ratios"]

_MOVER = "MOVER (Zou 2007) from those of the measures"

_NOT_ALIKE = (
    "The measures are planned with different sizes, each those of its own data; give sizes, such "
    "as topic=50, to compare like with like."
)


def differences(
    compared: MeasureComparison,
    coefficient: str,
    method: str,
    shared: str | Sequence[str],
    n: int,
    rng: int | np.random.Generator | None,
    workers: int,
    progress: bool | None,
) -> MeasureDifferences:
    """Return the differences of a coefficient; see :meth:`MeasureComparison.differences`."""
    _check_coefficient(coefficient)
    if method not in ("mover", "bootstrap"):
        raise PlanError(f"method is 'mover' or 'bootstrap', not {method!r}")
    sizes, notes = _same_plans(compared)
    studies = compared.studies
    what = f"Differences of {SYMBOLS[coefficient]}"
    made = {name: _coefficients(study, coefficient) for name, study in studies.items()}
    if method == "bootstrap":
        from vcomp.studies.joint_bootstrap import bootstrap_differences

        return bootstrap_differences(
            compared, made, what, sizes, notes, shared, n, rng, workers, progress
        )
    columns = {name: study.columns for name, study in studies.items()}
    known = {
        name: Known(c[coefficient], c[f"{coefficient}_low"], c[f"{coefficient}_high"])
        for name, c in columns.items()
    }
    r, how, doubts = _correlations(compared, made, shared, workers, progress)
    table = pairs_table(list(studies), known, r, sizes, ratio=False)
    return MeasureDifferences(table, what, compared.alpha, f"{_MOVER}, {how}", (*notes, *doubts))


def required_ratios(
    compared: MeasureComparison,
    coefficient: str,
    shared: str | Sequence[str],
    workers: int,
    progress: bool | None,
) -> MeasureDifferences:
    """Return ratios of required sizes; see :meth:`MeasureComparison.required_ratios`."""
    _check_coefficient(coefficient)
    studies, target = compared.studies, compared.target
    facets = {
        name: required_facet(study, target, compared.facet) for name, study in studies.items()
    }
    unknown = [name for name, facet in facets.items() if facet is None]
    if unknown:
        raise PlanError(
            f"which facet's size is required of measure {unknown[0]!r}? pass facet= to "
            "compare_measures"
        )
    made = {
        name: requirement_ratio(study.components, study.plan, target, coefficient, str(facet))
        for (name, study), facet in zip(studies.items(), facets.values(), strict=True)
    }
    known = {
        name: _logarithms(study, made[name], target, coefficient, str(facets[name]))
        for name, study in studies.items()
    }
    r, how, doubts = _correlations(compared, made, shared, workers, progress)
    table = pairs_table(list(studies), known, r, {}, ratio=True)
    which = ", ".join(dict.fromkeys(map(str, facets.values())))
    what = f"Ratios of {which} needed for {SYMBOLS[coefficient]} = {display.number(target)}"
    words = f"{_MOVER} on the logarithmic scale, {how}"
    endless = [name for name, of in known.items() if np.isposinf(of.estimate).any()]
    doubts += tuple(
        f"No size is enough for {name!r}: ratios with it are 0 or ∞, or not there (–)."
        for name in endless
    )
    return MeasureDifferences(table, what, compared.alpha, words, doubts)


# What is compared -------------------------------------------------------------------------------


def _check_coefficient(coefficient: str) -> None:
    if coefficient not in SYMBOLS:
        raise PlanError(
            f"coefficient is 'Erho2' or 'Phi', not {coefficient!r}"
            f"{did_you_mean(coefficient, SYMBOLS)}"
        )


def _coefficients(study: DStudy, coefficient: str) -> Quantities:
    return quantities(weights(study.components, study.plan))[coefficient]


def _same_plans(compared: MeasureComparison) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Return the sizes that all measures are planned with, and a note where they differ."""
    plans = {name: study.plan for name, study in compared.studies.items()}
    (first, plan), *others = plans.items()
    for name, other in others:
        if len(other) != len(plan):
            raise PlanError(
                f"measure {first!r} has {len(plan)} plans and {name!r} {len(other)}; plan the "
                "same sizes for all of them"
            )
    same = all(o.facets == plan.facets and np.array_equal(o.sizes, plan.sizes) for _, o in others)
    if not same:
        return {}, (_NOT_ALIKE,)
    numbers = plan.sizes
    whole = numbers.astype(np.int64) if (numbers == np.floor(numbers)).all() else numbers
    return dict(zip(plan.facets, whole.T, strict=True)), ()


def _logarithms(
    study: DStudy, ratio: Quantities, target: float, coefficient: str, facet: str
) -> Known:
    """Return the logarithm of the size that is required, not rounded up, with its interval."""
    values = ratio.values(take_components(study.components, study.negative).values)
    # No room for error variance: no size is enough.
    n = np.where(np.isnan(values), np.inf, values)
    table = two_way_table(study.components, study.plan)
    if study.source.method not in ("auto", "f") or not two_way_plans(table, study.plan)[0]:
        table = None
    if table is not None and table.columns == facet:
        low, high = _f_ends(table, target, coefficient, study.alpha)
    else:
        found = study.source.limits(ratio, study.alpha)
        low, high = found.low, found.high
    with np.errstate(divide="ignore"):
        return Known(np.log(n), np.log(low), np.log(high))


def _f_ends(
    table: Any, target: float, coefficient: str, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of a required size from F quantiles (Urbano et al. 2013, eq. 12, 13)."""
    if coefficient == "Erho2":
        against = [1.0 / z if z > 0.0 else np.inf for z in feldt_interval(table, alpha)]
    else:
        against = [(1.0 - v) / v if v > 0.0 else np.inf for v in arteaga_interval(table, alpha)]
    high, low = (np.array([a * target / (1.0 - target)]) for a in against)
    return low, high


# How estimates vary together --------------------------------------------------------------------


def shared_facets(compared: MeasureComparison, shared: str | Sequence[str]) -> list[str] | None:
    """Return the facets whose names of levels mean the same in all measures, None for all.

    Raises
    ------
    EstimationError
        If one is no facet of a measure.
    """
    if shared == "auto":
        return None
    names = [shared] if isinstance(shared, str) else list(shared)
    for res in compared.results.values():
        if names:
            check_facets(fitted_again(res)[1], names)
    return names


def _correlations(
    compared: MeasureComparison,
    made: dict[str, Quantities],
    shared: str | Sequence[str],
    workers: int,
    progress: bool | None,
) -> tuple[dict[tuple[str, str], FloatArray], str, tuple[str, ...]]:
    """Return the correlations of all pairs, where they come from, and what is doubtful in them."""
    given = shared_facets(compared, shared)
    pairs = list(combinations(compared.results, 2))
    sizes = {name: len(q) for name, q in made.items()}
    nothing = {(a, b): np.zeros(sizes[a]) for a, b in pairs}
    common = {(a, b): _common(compared, a, b, given) for a, b in pairs}
    if not any(common.values()):
        return nothing, "as independent measures, which have no level in common", ()
    parts: dict[str, dict[str, LeftOut]] = {}
    doubts: list[str] = []
    for name, res in compared.results.items():
        study = compared.studies[name]
        parts[name], said = left_out(res, study, workers=workers, progress=progress)
        doubts += [f"Measure {name!r}: {note}." for note in said]
    found = {}
    by_name = {
        name: influences(
            parts[name], study.components.values, made[name], zero=study.negative == "zero"
        )
        for name, study in compared.studies.items()
    }
    for (a, b), facets in common.items():
        usable = [f for f in facets if f in parts[a] and f in parts[b]]
        r = correlations(by_name[a], by_name[b], usable) if usable else np.full(sizes[a], np.nan)
        found[a, b] = r if facets else nothing[a, b]
        if np.isnan(found[a, b]).any():
            doubts.append(
                f"The correlation of {a} and {b} is not known and taken as 0: their interval is "
                "too wide if they are alike."
            )
    every = dict.fromkeys(f for facets in common.values() for f in facets)
    how = f"with correlations by a jackknife over {' and '.join(every)}"
    return found, how, tuple(doubts)


def _common(compared: MeasureComparison, a: str, b: str, given: list[str] | None) -> list[str]:
    """Return the facets of which two measures share levels."""
    designs = [fitted_again(compared.results[name])[1] for name in (a, b)]
    levels = [{f.name: set(f.levels.astype(str)) for f in d.facets} for d in designs]
    nested = [d.structure.nested_in for d in designs]
    fixed = [compared.studies[name].plan.universe.fixed for name in (a, b)]
    return [
        f
        for f, names in levels[0].items()
        if f in levels[1]
        and names & levels[1][f]
        and (given is None or f in given)
        and not any(n[f] for n in nested)
        and not any(f in x for x in fixed)
    ]


def check_same_levels(compared: MeasureComparison, facets: Sequence[str]) -> None:
    """Refuse measures whose facets do not have the same levels.

    Raises
    ------
    EstimationError
        Naming the first facet and the two measures.
    """
    (first, res), *others = compared.results.items()
    reference = {f.name: f.levels.astype(str) for f in fitted_again(res)[1].facets}
    for name, other in others:
        levels = {f.name: f.levels.astype(str) for f in fitted_again(other)[1].facets}
        for facet in facets:
            if not reference[facet].equals(levels[facet]):
                raise EstimationError(
                    f"measures {first!r} and {name!r} do not have the same levels of {facet!r}, "
                    "which a joint bootstrap draws; method='mover' does without, and shared= says "
                    "which facets are the same"
                )
