"""What to add to an evaluation: what makes it surer, what shows the unknown, and its cost."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vcomp import display
from vcomp.evals.prices import Prices, replicated
from vcomp.evals.roles import FIXED, Roles
from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE
from vcomp.gtheory import DifferenceTest, dstudy
from vcomp.gtheory.allocation import Allocation, Cost

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.formula import BrennanDesign
    from vcomp.gtheory import DStudy
    from vcomp.model import VarianceComponentsResults

EvalStudy: TypeAlias = Any
"""The study of an evaluation, whose module imports this one."""

POWER = 0.8
"""Power of the tests that are planned."""

_MOST_LISTED = 6
"""Tasks whose new items are listed."""


_PLANNED = 0.8
"""Confidence of the limits with which components that are estimated at zero are planned."""

_SAME = 1.05
"""Levels that are needed with one run of each, as a share, for the runs not to matter."""

_STEPS, _CLOSE = 20, 1e-3
"""Designs that are tried until one finds a difference, and by how much less it may find."""


def allocation(study: EvalStudy, gap: float) -> Allocation[DStudy] | None:
    """Return the best data for a budget, else the cheapest that show which of two is better.

    Parameters
    ----------
    study : with prices
    gap : true difference of the models
    """
    if study.prices is None or not (study.budget is not None or gap > 0.0):
        return None
    if study.budget is not None and study.budget <= study.prices.of(study.data):
        return None
    return _best(study, study.prices, study.budget, gap)


def _best(
    study: EvalStudy, prices: Prices, budget: float | None, gap: float
) -> Allocation[DStudy]:
    """Return the best data for a budget, else the cheapest that show which of two is better.

    Of a budget, data that exist are paid for, and are kept. It is spent with components at zero
    at their limits, since the best design for zero is poor for other values.
    """
    plan = whole_plan(study) if budget is None else _cautious_plan(study)
    cost = prices.of_plan(plan)
    priced = {f for _, over in cost.terms(plan.plan.design) for f in over}
    plan_sizes = dict(zip(plan.plan.facets, plan.plan.sizes[0].tolist(), strict=True))
    fixed = plan.plan.universe.fixed
    held = {
        f: max(1, round(n)) for f, n in plan_sizes.items() if f not in priced and f not in fixed
    }
    # One level of a sampled facet would leave its noise unknown.
    sampled = {f if f in plan.plan.facets else REPLICATE for f in study.roles.sampled}
    several = dict.fromkeys(sorted(sampled), (2, None))
    if budget is not None:
        several |= {f: (max(2, *n.values()), None) for f, n in _existing(study, plan).items()}
    bounds = several | held
    if len(held) + len(fixed) == len(plan.plan.facets):
        listed = display.listed([f for f in plan.plan.facets if f not in fixed])
        raise PlanError(f"no price is of anything that can be added, such as {listed}")
    if budget is not None:
        return plan.optimize(cost, budget=budget, coefficient="rel_err_var", bounds=bounds)
    try:
        return plan.optimize(cost, difference=gap, power=POWER, bounds=bounds, **page_test(study))
    except PlanError:
        return _of_many(study, plan, cost, gap, bounds)


def _limits_of_zeros(study: EvalStudy) -> dict[str, float]:
    """Return the upper limits of error components that are estimated at zero.

    References
    ----------
    Browne, R. H. (1995). On the use of a pilot sample for sample size determination. *Statistics
    in Medicine*, 14, 1933-1940: plans with the upper limit of a variance.
    """
    plan = study.plan
    is_noise = plan.projected("rel_err_var").a[0] > 0.0
    at_zero = is_noise & (plan.components.values <= 0.0)
    if not at_zero.any():
        return {}
    high = study.components.conf_int(alpha=2.0 * (1.0 - _PLANNED))[1]
    names = np.array(plan.components.names, dtype=object)[at_zero]
    found = {name: float(high[f"var({name})"]) for name in names}
    return {name: limit for name, limit in found.items() if 0.0 < limit < math.inf}


def _cautious_plan(study: EvalStudy, other: Mapping[str, int] | None = None) -> DStudy:
    """Return the D-study of data like these with components at zero at their limits."""
    plan, limits = whole_plan(study, other), _limits_of_zeros(study)
    if not limits:
        return plan
    named = zip(plan.components.names, plan.components.values.tolist(), strict=True)
    values = np.array([limits.get(name, value) for name, value in named])
    sizes = dict(zip(plan.plan.facets, plan.plan.sizes[0].tolist(), strict=True))
    return dstudy(
        replace(plan.components, values=values, without_bounds=None),
        object=study.roles.model,
        fixed=study.roles.fixed,
        sizes=sizes,
    )


def _at_limits(study: EvalStudy) -> str:
    """Return the limits of components at zero, which are not known to be zero; or nothing."""
    limits = _limits_of_zeros(study)
    named = [f"σ²({name}) = {display.number(limit, 2)}" for name, limit in limits.items()]
    if not named:
        return ""
    what = "its upper limit" if len(named) == 1 else "their upper limits"
    level = display.percent(_PLANNED, 0)
    return f"{display.listed(named)}, {what} ({level}) in place of the estimate 0"


def as_estimated(study: EvalStudy, best: Any) -> DStudy:
    """Return the plan of a recommended design with the components as they are estimated.

    Parameters
    ----------
    study : of several models
    best : of its allocation
    """
    return whole_plan(study, _chosen(study, best))


def _chosen(study: EvalStudy, best: Any) -> dict[str, int]:
    return {f: n for f, n in best.sizes.items() if f not in study.roles.fixed}


def _of_many(
    study: EvalStudy, plan: DStudy, cost: Cost, gap: float, bounds: Mapping[str, Any]
) -> Allocation[DStudy]:
    """Return data that show which of two models is better, of nearly the least cost.

    Designs of many levels are too many to compare their powers, and their degrees of freedom
    hardly matter: the least cost is that of an error variance.
    """
    error, ratio = float(plan.columns["rel_err_var"][0]), gap / found_difference(study, plan)
    for _ in range(_STEPS):
        # Detected differences are as errors; a little less than the difference ends the search.
        error *= ratio**2 * (1.0 - _CLOSE)
        found = plan.optimize(cost, goal=error, coefficient="rel_err_var", bounds=bounds)
        ratio = gap / found_difference(study, found.best.study)
        if 1.0 <= ratio <= 1.0 + _CLOSE:
            break
    return found


# The test that is planned ------------------------------------------------------------------------


def page_test(study: EvalStudy) -> dict[str, Any]:
    """Return the test of a pair that the page makes, as options of a plan.

    Holm's method has the level of its first step.

    Parameters
    ----------
    study : of several models
    """
    n_models, n_pairs = _compared(study)
    is_holm = study.comparisons.correction is not None
    alpha = study.alpha / n_pairs if is_holm else study.alpha
    return {"n_objects": n_models, "alpha": alpha, "test": "t" if is_holm else "tukey"}


def _compared(study: EvalStudy) -> tuple[int, int]:
    """Return the numbers of models that are compared, and of their pairs."""
    n_pairs = len(study.comparisons.table)
    return (1 + math.isqrt(1 + 8 * n_pairs)) // 2, n_pairs


def named_test(study: EvalStudy) -> str:
    """Return the test of a pair that the page makes, in words.

    Parameters
    ----------
    study : of several models
    """
    n_pairs = _compared(study)[1]
    if n_pairs == 1:
        return "the t-test"
    if study.comparisons.correction is not None:
        return f"the t-test of {display.count(n_pairs)} pairs, with Holm's correction,"
    name = study.comparisons.test
    name = "Tukey's test" if "Tukey" in name else "the max-t test"
    return f"{name} of all {display.count(n_pairs)} pairs"


def found_difference(study: EvalStudy, plan: DStudy) -> float:
    """Return the difference that the test of a pair finds in planned data.

    Parameters
    ----------
    study : of several models
    plan : of data
    """
    return float(plan.detectable(POWER, **page_test(study))["difference"].iloc[0])


def found_in_data(study: EvalStudy) -> float:
    """Return the difference that the test of a pair finds in the data as they are.

    It has the standard error of the comparisons, of several the median one.

    Parameters
    ----------
    study : of several models
    """
    pairs = study.comparisons.table.sort_values("std_error", kind="stable")
    se, df = pairs[["std_error", "df"]].to_numpy()[len(pairs) // 2]
    return DifferenceTest(**page_test(study)).detectable(POWER, float(se), float(df))


# What makes it surer -----------------------------------------------------------------------------


def plan_of(
    fit: VarianceComponentsResults, roles: Roles, table: pd.DataFrame, shares: Mapping[Any, float]
) -> DStudy:
    """Return the D-study of data like these, in which fixed facets have the weights of the scores.

    A score is Σ w m of the means m of tasks; of n items each its error variance is Σ w²/n times
    that of an item. So there are 1/Σ w² tasks, with as many items each as have this error.

    Parameters
    ----------
    fit : in which models are sampled
    roles : of the columns
    table : of the scores
    shares : weights of tasks; empty if they are equal
    """
    own = fit.dstudy(object=roles.model, fixed=roles.fixed)
    plan, levels = own.plan, roles.levels
    above = {f: plan.design.nested_in[f] - {roles.model} for f in plan.facets}
    fixed = [f for f in roles.fixed if not above.get(f, True)]
    if not fixed:
        return own
    weights = {f: (shares if f == FIXED[0] else {}) for f in fixed}
    sizes = dict(zip(plan.facets, plan.sizes[0].tolist(), strict=True))
    for f in fixed:
        sizes[f] = 1.0 / sum(w**2 for w in weights[f].values()) if weights[f] else levels[f]
    for facet in (f for f in roles.sampled if above.get(f) and above[f] <= set(fixed)):
        over = sorted(above[facet])
        n = levels_within(table, roles, over, facet)
        squares = math.prod(1.0 / levels[f] ** 2 for f in over if not weights[f]) / n
        for f in (f for f in over if weights[f]):
            squares *= n.index.get_level_values(f).map(weights[f]).to_numpy(dtype=float) ** 2
        of_models = squares.groupby(level=0, observed=True).agg(["sum", "size"])
        # A model that lacks a task has no score.
        error = of_models["sum"][of_models["size"] == of_models["size"].max()].mean()
        sizes[facet] = 1.0 / (error * math.prod(sizes[f] for f in over))
    return fit.dstudy(object=roles.model, fixed=roles.fixed, sizes=sizes)


def whole_plan(study: EvalStudy, other: Mapping[str, int] | None = None) -> DStudy:
    """Return the D-study of data like these, with whole sizes of what can be added.

    Parameters
    ----------
    study : of the evaluation
    other : sizes of some facets
    """
    plan = study.plan.plan
    own = zip(plan.facets, plan.sizes[0].tolist(), strict=True)
    fixed = study.roles.fixed
    sizes = {f: n if f in fixed else max(1, round(n)) for f, n in own} | dict(other or {})
    return study.components.dstudy(object=study.roles.model, fixed=study.roles.fixed, sizes=sizes)


def sentences(study: EvalStudy) -> list[str]:
    """Return what would make an evaluation surer.

    Parameters
    ----------
    study : of several models
    """
    found, power = found_in_data(study), f"with power {display.number(POWER)}"
    said = [
        f"With data like these no difference of 0/1 scores is found {power}."
        if _is_out_of_reach(study, found)
        else f"With data like these {named_test(study)} finds a difference of "
        f"{display.number(found)} {power}."
    ]
    said += _of_zeros(study) + _cost_of_data(study)
    gap, pair = study.gap, " and ".join(map(str, study.open_pair))
    apart = f"{pair} differ by {display.number(gap)}."
    if study.budget is not None:
        said.append(_bought(study))
    elif study.prices is not None and gap > 0.0:
        said.append(f"{apart} {_bought(study)}")
    elif gap > 0.0:
        said.append(f"{apart} {needed(study, gap)}")
    if gap > 0.0 and study.budget is None:
        said.append("If the true difference is smaller than the observed one, more are needed.")
        if len(study.table) > 2:
            said.append(f"Only these two {display.levels_of(study.roles.model)} need more scores.")
    if gap == 0.0:
        said.append(f"{pair} have the same score. {_of_twice(study)}")
    return said


def on_score(study: EvalStudy, noise: pd.DataFrame) -> list[str]:
    """Return the cost of the data of one model, and its standard error in twice the data.

    Parameters
    ----------
    study : of one model
    noise : the ``share`` and ``facets`` of each component
    """
    roles, parts = study.roles, []
    error = float(study.table["std_error"].iloc[0])
    for facet in (*roles.sampled, *([roles.repetition] if roles.repetition else [])):
        halved = np.array([facet in facets for facets in noise["facets"]])
        left = float(noise["share"].to_numpy() @ np.where(halved, 0.5, 1.0))
        n = 2 * roles.levels[facet]
        of = display.counted(n, facet) if facet in roles.sampled else f"{n} runs of each"
        parts.append(f"{display.number(error * math.sqrt(left), 3)} with {of}")
    now, would = display.number(error, 3), display.listed(parts)
    return [*_cost_of_data(study), f"The standard error of the score, {now}, would be {would}."]


def _cost_of_data(study: EvalStudy) -> list[str]:
    if study.prices is None:
        return []
    cost = display.number(study.prices.of(study.data), 6)
    return [f"At these prices the data cost {cost}."]


def _of_zeros(study: EvalStudy) -> list[str]:
    """Return a sentence on interactions of models that are estimated at zero."""
    roles, parts = study.roles, []
    for facet in roles.sampled:
        name = f"{roles.model}:{facet}"
        if name in study.sources.index and not study.sources["variance"][name] > 0.0:
            high = study.components.quantity(name, alpha=study.alpha).high
            parts.append(f"{name} (upper limit {display.number(high)})")
    if not parts:
        return []
    what = "a variance" if len(parts) == 1 else "variances"
    return [f"Estimated at 0, and {what} in the tests and plans: {display.listed(parts)}."]


def _of_twice(study: EvalStudy) -> str:
    """Return what twice the levels of the noisiest facet find."""
    plan, facet = whole_plan(study), noisiest(study)
    n = float(plan.plan.sizes[0][plan.plan.facets.index(facet)])
    found = found_difference(study, whole_plan(study, {facet: round(2.0 * n)}))
    data = f"With {_size(study, plan.plan.design, facet, 2.0 * n)} instead of {display.count(n)}, "
    if _is_out_of_reach(study, found):
        return f"{data}no difference of 0/1 scores is found either."
    return f"{data}{named_test(study)} finds a difference of {display.number(found)}."


def _is_out_of_reach(study: EvalStudy, found: float) -> bool:
    """Return whether a difference that is found is larger than any of 0/1 scores."""
    return found > 1.0 and bool(study.data[study.roles.score].isin((0.0, 1.0)).all())


def _bought(study: EvalStudy) -> str:
    """Return what a budget buys, or what the cheapest design costs that finds the difference."""
    try:
        found = study.allocation
    except PlanError as error:
        return display.sentence(str(error))
    spent = display.number(study.prices.of(study.data), 6)
    budget = "" if study.budget is None else display.number(study.budget, 6)
    if found is None:
        return f"The budget of {budget} is for the whole: it adds nothing."
    best = found.best
    words = f"{_sizes(study, best)}, for {display.number(best.cost, 6)}"
    if study.budget is None:
        power, limits, of_limits = display.number(POWER), _at_limits(study), ""
        if limits:
            cautious = _cautious_plan(study, _chosen(study, best))
            less = float(cautious.power(study.gap, **page_test(study))["power"].iloc[0])
            of_limits = f" With {limits}, power is {display.number(less, 2)}."
        return f"The cheapest data that find it with power {power} are {words}.{of_limits}"
    of_limits = f" The sizes are chosen with {_at_limits(study)}." if _at_limits(study) else ""
    return (
        f"A budget of {budget} for the whole, of which {spent} are spent, is best spent on "
        f"{words}{_added(study, best)}. Then {named_test(study)} finds a "
        f"difference of {display.number(found_difference(study, as_estimated(study, best)))}."
        f"{of_limits}"
    )


def _added(study: EvalStudy, best: Any) -> str:
    """Return the additions to the data for a design, in words."""
    plan, parts = best.study, []
    for facet, n in _existing(study, plan).items():
        more = {level: int(best.sizes[facet]) - k for level, k in n.items()}
        name = replicated(study.roles, plan.plan.facets) if facet == REPLICATE else facet
        if name == study.roles.repeated:
            parts += [f"{display.counted(k, 'run')} of each" for k in more.values() if k]
        elif len(more) == 1 or len(more) > _MOST_LISTED:
            total = sum(more.values())
            each = f" in each {study.roles.model}" if facet == REPLICATE else ""
            parts += [f"{display.counted(total, name)}{each}"] if total else []
        else:
            parts += [f"{display.counted(k, facet)} to {t}" for t, k in more.items() if k]
    return f": add {display.listed(parts)}" if parts else ""


def _existing(study: EvalStudy, plan: DStudy) -> dict[str, dict[str, int]]:
    """Return the levels of sampled facets that data have, in each level of those they are in.

    Parameters
    ----------
    study : of the evaluation
    plan : of its data
    """
    roles, found = study.roles, dict[str, dict[str, int]]()
    design, fixed = plan.plan.design, set(roles.fixed)
    for facet in plan.plan.facets:
        above = design.nested_in[facet] - {roles.model}
        name = replicated(roles, plan.plan.facets) if facet == REPLICATE else facet
        if facet in fixed:
            continue
        if name == roles.repeated:
            runs = study.data.groupby(roles.cell, observed=True).size()
            found[facet] = {"": int(runs.max())}
        elif name in roles.sampled and above and above <= fixed | set(roles.sampled):
            over = sorted(design.innermost(above))
            most = levels_within(study.data, roles, over, name).groupby(level=over, observed=True)
            found[facet] = {
                " and ".join(map(str, level if isinstance(level, tuple) else (level,))): int(n)
                for level, n in most.max().items()
            }
        elif roles.model in plan.plan.design.nested_in[facet]:
            found[facet] = {"": int(levels_within(study.data, roles, (), name).max())}
        else:
            found[facet] = {"": roles.levels[name]}
    return found


def levels_within(table: pd.DataFrame, roles: Roles, over: Sequence[str], facet: str) -> pd.Series:
    """Return the number of levels of a facet that each model has in each level of others.

    Parameters
    ----------
    table : of the scores
    roles : of its columns
    over : columns
    facet : column
    """
    rows = table[[roles.model, *over, facet]].drop_duplicates()
    return rows.groupby([roles.model, *over], observed=True).size()


def _sizes(study: EvalStudy, best: Any) -> str:
    """Return the sizes of a design in words."""
    design = best.study.plan.design
    sizes = dict(best.sizes) | {f: study.roles.levels[f] for f in study.roles.fixed}
    return display.listed([_size(study, design, f, sizes[f]) for f in best.sizes])


def _size(study: EvalStudy, design: BrennanDesign, facet: str, n: float) -> str:
    """Return the size of a facet of a design in words."""
    name = replicated(study.roles, design.facets) if facet == REPLICATE else facet
    if name == study.roles.repeated:
        return f"{display.counted(n, 'run')} of each"
    within = design.innermost(design.nested_in[facet])
    each = f" in each {' and '.join(sorted(within))}" if within else ""
    return display.counted(n, name) + each


def needed(study: EvalStudy, gap: float) -> str:
    """Return how much of the noisiest facet, or of all, finds a difference, in a sentence.

    Parameters
    ----------
    study : without prices
    gap : the difference
    """
    plan, roles, facet = whole_plan(study), study.roles, noisiest(study)
    goal = {"difference": gap, "power": POWER, "facet": facet, **page_test(study)}
    wanted = plan.required(**goal)
    runs = next((f for f in _of_runs(roles, plan.plan.facets) if f != facet), "")
    if runs and math.isfinite(wanted.n):
        of_one = whole_plan(study, {runs: 1}).required(**goal)
        wanted = of_one if of_one.n <= _SAME * wanted.n else wanted
    if math.isfinite(wanted.n):
        name = replicated(roles, plan.plan.facets) if facet == REPLICATE else facet
        # The name of a column of seeds would be that of a seed.
        sizes = wanted.held.items()
        held = {"repetitions" if f == runs else f: n for f, n in sizes if f not in roles.fixed}
        within = wanted.within
        if name not in (facet, roles.repeated):
            design = plan.plan.design
            within = " and ".join(sorted(design.innermost(design.nested_in[facet])))
        return str(replace(wanted, facet=name, held=held, within=within))
    power = display.number(POWER)
    try:
        best = _best(study, Prices(roles, {frozenset(roles.cell): 1.0}), None, gap).best
    except PlanError:
        return f"No size of data like these finds it with power {power}."
    return f"Power {power} needs more of all; the fewest scores are of {_sizes(study, best)}."


def _of_runs(roles: Roles, facets: Collection[str]) -> list[str]:
    """Return the facet of repeated runs, if a design has one."""
    is_run = replicated(roles, facets) == roles.repeated
    return [f for f in facets if f == roles.repetition or (f == REPLICATE and is_run)]


def noisiest(study: EvalStudy) -> str:
    """Return the sampled facet that makes most of the noise, of those that plans have.

    Parameters
    ----------
    study : of several models
    """
    parts = dict.fromkeys(study.roles.sampled, 0.0)
    for facets, share in zip(study.facets_of_sources, study.sources["share"], strict=True):
        for f in parts:
            parts[f] += share if f in facets else 0.0
    most, facets = max(parts, key=lambda f: parts[f]), study.plan.plan.facets
    return most if most in facets else facets[-1]
