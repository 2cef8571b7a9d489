"""Differences between measures, with correlations from a jackknife or by a joint bootstrap.

Intervals of pairs are computed by :mod:`~vcomp.studies.planned`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, get_args

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.display import SYMBOLS
from vcomp.exceptions import EstimationError, PlanError, VcompWarning, check_one_of, warn
from vcomp.gtheory import DStudy, first_two_way, requirement_ratio
from vcomp.inference import Quantities, used_components
from vcomp.inference.intervals import F_INTERVALS
from vcomp.inference.resampling import check_facets
from vcomp.model import VarianceComponentsResults, fitted_again
from vcomp.numerics import check_count, seed_from
from vcomp.studies.planned import (
    ComparisonRecord,
    DifferenceInterval,
    EstimateEnds,
    MeasureDifferences,
    pairs_table,
    required_facet,
)
from vcomp.studies.subsample import Subsets

_FEWEST = 3
"""Smallest number of levels for a jackknife: leaving out one must leave two."""


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """Components of one measure with each level of a facet left out.

    Attributes
    ----------
    levels : (J,) names of the levels that were left out
    groups : (J,) combinations of levels of the facets that the facet is nested in
    values : (J, k + 1) components with each level left out
    """

    levels: tuple[str, ...]
    groups: LongArray
    values: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Influences:
    """Influences of the levels of facets on m estimates of one measure.

    Attributes
    ----------
    of : (m,) influences by facet and level
    """

    of: Mapping[tuple[str, str], FloatArray]


def left_out(
    res: VarianceComponentsResults,
    study: DStudy,
    *,
    workers: int = 1,
    progress: bool | None = None,
) -> tuple[dict[str, LeftOut], list[str]]:
    """Return the components with each level of every sampled facet left out.

    The levels of fixed facets are not a sample. Levels of a nested facet are left out together
    with those that they are nested in.

    Parameters
    ----------
    res : the fit of one measure
    study : its D-study, with the fixed facets
    workers : number of threads
    progress : whether to show a bar

    Returns
    -------
    By facet the components, and half sentences on facets whose levels cannot be left out.
    """
    found: dict[str, LeftOut] = {}
    notes = []
    design = res.design
    for facet in design.facets:
        if facet in study.plan.universe.fixed or design.nested_in[facet]:
            continue
        fast = _in_closed_form(res, facet)
        if fast is not None:
            found[facet] = fast
            continue
        try:
            with warnings.catch_warnings():
                # Failures of single refits are reported once, in the note below.
                warnings.simplefilter("ignore", VcompWarning)
                made = res.jackknife(facet, workers=workers, progress=progress)
        except EstimationError as error:
            notes.append(f"{display.levels_of(facet)} cannot be left out in turn ({error})")
            continue
        usable = made.converged
        if not usable.all():
            notes.append(
                f"without some {display.levels_of(facet)} ({int((~usable).sum())}) "
                "there is no estimate"
            )
            continue
        found[facet] = LeftOut(made.levels, made.groups, made.values)
    return found, notes


def _in_closed_form(res: VarianceComponentsResults, facet: str) -> LeftOut | None:
    """Return :func:`left_out` in closed form; None if unbalanced or an estimate fails."""
    fit, design = fitted_again(res)
    subsets = Subsets.of(fit, design, res.components, (facet,))
    n = subsets.most(facet)
    if subsets.table is None or n < _FEWEST:
        return None
    made = [subsets.without(facet, level) for level in range(n)]
    if not all(found.converged for found in made):
        return None
    levels = design.facets[design.structure.facets.index(facet)].levels.astype(str)
    values = np.array([found.values for found in made])
    return LeftOut(tuple(levels), np.zeros(n, dtype=np.int64), values)


def influences(parts: Mapping[str, LeftOut], quantities: Quantities, *, zero: bool) -> Influences:
    """Return the jackknife influences of levels on the quantities of one measure.

    Parameters
    ----------
    parts : by facet
    quantities : m of them
    zero : whether negative components are replaced by zero
    """
    of: dict[tuple[str, str], FloatArray] = {}
    for facet, part in parts.items():
        values = quantities.values(_used(part.values, zero))
        for group in np.unique(part.groups):
            own = np.flatnonzero(part.groups == group)
            n = own.size
            scaled = (values[own] - values[own].mean(axis=0)) * np.sqrt((n - 1.0) / n)
            of |= {(facet, part.levels[j]): scaled[i] for i, j in enumerate(own)}
    return Influences(of)


def correlations(first: Influences, second: Influences, shared: Sequence[str]) -> FloatArray:
    """Return the correlations of m estimates of two measures, (m,).

    They are nan if an estimate does not vary, or is not defined without some level.

    Parameters
    ----------
    first, second : of the two measures
    shared : facets whose levels are the same in both if they have the same name
    """
    variances = [np.sum([np.square(i) for i in x.of.values()], axis=0) for x in (first, second)]
    both = [key for key in first.of if key in second.of and key[0] in shared]
    covariance = np.sum([first.of[key] * second.of[key] for key in both], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        r: FloatArray = covariance / np.sqrt(variances[0] * variances[1])
    return np.clip(r, -1.0, 1.0)


def _used(values: FloatArray, zero: bool) -> FloatArray:
    return np.maximum(values, 0.0) if zero else values


_MOVER = "MOVER (Zou 2007) from those of the measures"

_ROBUST = "MOVER (Zou 2007) from robust ones of the measures"

_NOT_ALIKE = (
    "The measures are planned with different sizes, those of their own data; give sizes, such as "
    "topic=50, to compare them at the same sizes."
)


def differences(
    compared: ComparisonRecord,
    coefficient: str,
    interval: DifferenceInterval,
    shared: str | Sequence[str],
    n: int,
    rng: int | np.random.Generator | None,
    workers: int,
    progress: bool | None,
) -> MeasureDifferences:
    """Return the differences of a coefficient; see :meth:`MeasureComparison.differences`."""
    check_one_of("coefficient", coefficient, tuple(SYMBOLS))
    check_one_of("interval", interval, get_args(DifferenceInterval))
    sizes, notes = _same_plans(compared)
    studies = compared.studies
    what = f"Differences of {SYMBOLS[coefficient]}"
    made = {name: study.projected(coefficient) for name, study in studies.items()}
    if interval == "bootstrap":
        return bootstrap_differences(
            compared, made, what, sizes, notes, shared, n, rng, workers, progress
        )
    known, said = _known(compared, coefficient, made, robust=interval == "robust")
    r, how, doubts = _correlations(compared, made, shared, workers, progress)
    table = pairs_table(list(studies), known, r, sizes, ratio=False)
    words = f"{_ROBUST if interval == 'robust' else _MOVER}, {how}"
    return MeasureDifferences(table, what, compared.alpha, words, (*notes, *said, *doubts))


def _known(
    compared: ComparisonRecord, coefficient: str, made: dict[str, Quantities], *, robust: bool
) -> tuple[dict[str, EstimateEnds], tuple[str, ...]]:
    """Return the coefficients of the measures with their intervals, and notes."""
    columns = {name: study.columns for name, study in compared.studies.items()}
    if not robust:
        ends = f"{coefficient}_low", f"{coefficient}_high"
        return {
            name: EstimateEnds(c[coefficient], *(c[end] for end in ends))
            for name, c in columns.items()
        }, ()
    known: dict[str, EstimateEnds] = {}
    notes: list[str] = []
    for name, study in compared.studies.items():
        source = compared.results[name].interval_source("robust", study.negative)
        found = source.limits(made[name], compared.alpha)
        known[name] = EstimateEnds(columns[name][coefficient], found.low, found.high)
        notes += [f"{name}: {note}." for note in found.notes]
    return known, tuple(notes)


def required_ratios(
    compared: ComparisonRecord,
    coefficient: str,
    shared: str | Sequence[str],
    workers: int,
    progress: bool | None,
) -> MeasureDifferences:
    """Return ratios of required sizes; see :meth:`MeasureComparison.required_ratios`."""
    check_one_of("coefficient", coefficient, tuple(SYMBOLS))
    studies, goal = compared.studies, compared.goal
    facets = {name: required_facet(study, goal, compared.facet) for name, study in studies.items()}
    unknown = [name for name, facet in facets.items() if facet is None]
    if unknown:
        raise PlanError(
            f"several facets of measure {unknown[0]!r} have sizes: pass facet= to "
            "compare_measures for the one whose size is required",
            level=unknown[0],
        )
    made = {
        name: requirement_ratio(study.components, study.plan, goal, coefficient, str(facet))
        for (name, study), facet in zip(studies.items(), facets.values(), strict=True)
    }
    known = {
        name: _logarithms(study, made[name], goal, coefficient, str(facets[name]))
        for name, study in studies.items()
    }
    r, how, doubts = _correlations(compared, made, shared, workers, progress)
    table = pairs_table(list(studies), known, r, {}, ratio=True)
    which = ", ".join(dict.fromkeys(map(str, facets.values())))
    what = f"Ratios of {which} needed for {SYMBOLS[coefficient]} = {display.number(goal)}"
    words = f"{_MOVER} on the logarithmic scale, {how}"
    endless = [name for name, of in known.items() if np.isposinf(of.estimate).any()]
    doubts += tuple(
        f"No size is enough for {name!r}: ratios with it are 0, ∞ or not defined (–)."
        for name in endless
    )
    return MeasureDifferences(table, what, compared.alpha, words, doubts)


# Compared quantities ----------------------------------------------------------------------------


def _same_plans(compared: ComparisonRecord) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Return the common planned sizes of all measures, or none and a note if they differ."""
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
    study: DStudy, ratio: Quantities, goal: float, coefficient: str, facet: str
) -> EstimateEnds:
    """Return the logarithm of the required size, not rounded up, with its interval."""
    values = ratio.values(used_components(study.components, study.negative).values)
    # No room for error variance: no size is enough.
    n = np.where(np.isnan(values), np.inf, values)
    by_f = study.source.interval in ("auto", "f")
    table = first_two_way(study.components, study.plan) if by_f else None
    if table is not None and table.columns == facet:
        low, high = _f_ends(table, goal, coefficient, study.alpha)
    else:
        found = study.source.limits(ratio, study.alpha)
        low, high = found.low, found.high
    with np.errstate(divide="ignore"):
        return EstimateEnds(np.log(n), np.log(low), np.log(high))


def _f_ends(
    table: Any, goal: float, coefficient: str, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of a required size from F quantiles (Urbano et al. 2013, eq. 12, 13)."""
    ends = F_INTERVALS[coefficient].limits(table, alpha)
    if coefficient == "Erho2":
        against = [1.0 / z if z > 0.0 else np.inf for z in ends]
    else:
        against = [(1.0 - v) / v if v > 0.0 else np.inf for v in ends]
    high, low = (np.array([a * goal / (1.0 - goal)]) for a in against)
    return low, high


# Correlations of estimates ----------------------------------------------------------------------


def shared_facets(compared: ComparisonRecord, shared: str | Sequence[str]) -> list[str] | None:
    """Return the facets that measures are declared to share; None if undeclared.

    Raises
    ------
    EstimationError
        If one is not a facet of a measure.
    """
    if shared == "auto":
        return None
    names = [shared] if isinstance(shared, str) else list(shared)
    for res in compared.results.values():
        if names:
            check_facets(fitted_again(res)[1], names)
    return names


def _correlations(
    compared: ComparisonRecord,
    made: dict[str, Quantities],
    shared: str | Sequence[str],
    workers: int,
    progress: bool | None,
) -> tuple[dict[tuple[str, str], FloatArray], str, tuple[str, ...]]:
    """Return the correlations of all pairs, their method in words, and notes on unknown ones."""
    given = shared_facets(compared, shared)
    pairs = list(combinations(compared.results, 2))
    sizes = {name: len(q) for name, q in made.items()}
    nothing = {(a, b): np.zeros(sizes[a]) for a, b in pairs}
    common = {(a, b): _common(compared, a, b, given) for a, b in pairs}
    if given is None:
        _warn_of_local_labels(compared, common)
    if not any(common.values()):
        return nothing, "for independent measures, as they have no level in common", ()
    parts: dict[str, dict[str, LeftOut]] = {}
    doubts: list[str] = []
    for name, res in compared.results.items():
        study = compared.studies[name]
        parts[name], said = left_out(res, study, workers=workers, progress=progress)
        doubts += [f"Measure {name!r}: {note}." for note in said]
    found = {}
    by_name = {
        name: influences(parts[name], made[name], zero=study.negative == "zero")
        for name, study in compared.studies.items()
    }
    for (a, b), facets in common.items():
        usable = [f for f in facets if f in parts[a] and f in parts[b]]
        r = correlations(by_name[a], by_name[b], usable) if usable else np.full(sizes[a], np.nan)
        found[a, b] = r if facets else nothing[a, b]
        if np.isnan(found[a, b]).any():
            doubts.append(
                f"The correlation of {a} and {b} is not known, and 0 is used: their interval is "
                "too wide if they are positively correlated."
            )
    every = dict.fromkeys(f for facets in common.values() for f in facets)
    how = f"with correlations by a jackknife over {' and '.join(every)}"
    return found, how, tuple(doubts)


def _common(compared: ComparisonRecord, a: str, b: str, given: list[str] | None) -> list[str]:
    """Return the facets with levels in common between two measures."""
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


def _warn_of_local_labels(
    compared: ComparisonRecord, common: Mapping[tuple[str, str], Sequence[str]]
) -> None:
    """Warn of different levels whose only common labels are running numbers, such as 1 to n."""
    for pair, facets in common.items():
        designs = [fitted_again(compared.results[name])[1] for name in pair]
        levels = [{f.name: set(f.levels.astype(str)) for f in d.facets} for d in designs]
        names = [f for f in facets if all(_are_running_numbers(of[f]) for of in levels)]
        if not names or len(names) < len(facets):
            continue
        if all(levels[0][f] == levels[1][f] for f in facets):
            continue
        warn(
            f"measures {pair[0]!r} and {pair[1]!r} share levels of {' and '.join(names)} that are "
            f"running numbers only, and have different numbers of them ({_sizes(levels, names)}): "
            "if these are other levels in each, pass shared=[]; if they are the same, "
            f"shared={names!r}"
        )
        return


def _sizes(levels: Sequence[Mapping[str, set[str]]], names: Sequence[str]) -> str:
    return "; ".join(
        f"{len(levels[0][f]):,} and {display.counted(len(levels[1][f]), f)}" for f in names
    )


def _are_running_numbers(labels: set[str]) -> bool:
    """Whether labels are 0, 1, … or 1, 2, …, with or without a common prefix."""
    found = [re.fullmatch(r"(\D*)0*(\d+)", label) for label in labels]
    if not all(found) or len({match.group(1) for match in found if match}) > 1:
        return False
    numbers = sorted(int(match.group(2)) for match in found if match)
    return numbers in (list(range(len(numbers))), list(range(1, len(numbers) + 1)))


def check_same_levels(compared: ComparisonRecord, facets: Sequence[str]) -> None:
    """Refuse measures whose facets do not have the same levels.

    Raises
    ------
    EstimationError
        If there are two; the message names the facet and the measures.
    """
    (first, res), *others = compared.results.items()
    reference = {f.name: f.levels.astype(str) for f in fitted_again(res)[1].facets}
    for name, other in others:
        levels = {f.name: f.levels.astype(str) for f in fitted_again(other)[1].facets}
        for facet in facets:
            if not reference[facet].equals(levels[facet]):
                raise EstimationError(
                    f"measures {first!r} and {name!r} do not have the same levels of {facet!r}, "
                    "which a joint bootstrap draws; use interval='mover', or name the facets that "
                    "are the same in shared=",
                    column=facet,
                )


def bootstrap_differences(
    compared: ComparisonRecord,
    made: dict[str, Quantities],
    what: str,
    sizes: dict[str, FloatArray],
    notes: tuple[str, ...],
    shared: str | Sequence[str],
    n: int,
    rng: int | np.random.Generator | None,
    workers: int,
    progress: bool | None,
) -> MeasureDifferences:
    """Return differences with percentile intervals from a joint bootstrap of levels.

    Replicates with the same number draw the same levels of the facets in all measures, as their
    random numbers are the same.

    Raises
    ------
    EstimationError
        If the measures do not have the same levels, in all combinations if several facets are
        drawn.
    """
    n, seed = check_count(n, "n"), seed_from(rng)
    facets = _drawn(compared, shared)
    check_same_levels(compared, facets)
    values: dict[str, FloatArray] = {}
    usable: BoolArray = np.ones(n, dtype=bool)
    for name, res in compared.results.items():
        found = res.resample(facets, n, rng=seed, workers=workers, progress=progress)
        assert found.adjusted is not None
        zero = compared.studies[name].negative == "zero"
        values[name] = made[name].values(_used(found.adjusted, zero))
        usable &= found.converged
    estimates = {name: s.columns for name, s in compared.studies.items()}
    coefficient = "Erho2" if what.endswith("Eρ²") else "Phi"
    table = _table(
        list(values), {k: e[coefficient] for k, e in estimates.items()}, values, usable, sizes,
        compared.alpha,
    )  # fmt: skip
    drawn = " and ".join(facets)
    words = f"percentiles of {int(usable.sum()):,} joint bootstrap replicates over {drawn}"
    return MeasureDifferences(table, what, compared.alpha, words, notes)


def _drawn(compared: ComparisonRecord, shared: str | Sequence[str]) -> list[str]:
    """Return the resampled facets: those that are neither fixed nor nested."""
    given = shared_facets(compared, shared)
    name, res = next(iter(compared.results.items()))
    nested = fitted_again(res)[1].structure.nested_in
    fixed = compared.studies[name].plan.universe.fixed
    facets = [f for f, above in nested.items() if not above and f not in fixed]
    facets = [f for f in facets if given is None or f in given]
    if not facets:
        raise EstimationError("the measures share no facet whose levels can be drawn jointly")
    for other, res in compared.results.items():
        missing = [f for f in facets if f not in res.design.facets]
        if missing:
            raise EstimationError(
                f"measure {other!r} has no facet {missing[0]!r}, which a joint bootstrap draws; "
                "name the facets that are the same in shared=",
                column=missing[0],
            )
        partly = [pair for pair in res.design.partly_crossed if set(pair) & set(facets)]
        if partly and len(facets) > 1:
            raise EstimationError(
                f"in measure {other!r} {' and '.join(partly[0])} are not fully crossed, so that "
                "levels of several facets cannot be drawn jointly in all measures; use "
                "interval='mover'",
                level=other,
            )
    return facets


def _table(
    names: list[str],
    estimates: dict[str, FloatArray],
    values: dict[str, FloatArray],
    usable: BoolArray,
    sizes: dict[str, FloatArray],
    alpha: float,
) -> Any:
    import pandas as pd

    rows = []
    for a, b in combinations(names, 2):
        left, right = values[a][usable], values[b][usable]
        known = ~(np.isnan(left) | np.isnan(right)).any(axis=1)
        left, right = left[known], right[known]
        low, high = np.quantile(left - right, [alpha / 2.0, 1.0 - alpha / 2.0], axis=0)
        r = [np.corrcoef(x, y)[0, 1] for x, y in zip(left.T, right.T, strict=True)]
        columns = {"difference": estimates[a] - estimates[b], "low": low, "high": high}
        pair = {"first": a, "second": b, **sizes, **columns, "correlation": r}
        rows.append(pd.DataFrame(pair, index=range(len(r))))
    return pd.concat(rows, ignore_index=True)
