"""What to add to an evaluation: what makes it surer, what shows the unknown, and its cost."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vcomp import display
from vcomp.evals.roles import FIXED, JUDGE, NUMBERED, Roles
from vcomp.exceptions import PlanError, check_margin, did_you_mean, is_real
from vcomp.formula import REPLICATE, RESIDUAL
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

_LEVEL = 0.05

_MOST_LISTED = 6
"""Tasks whose new items are listed."""

CELLS = ("call", "score", "judgement")
"""Names of prices of an answer of a model, and of one of its scores."""

_MOST_LEVELS = 30
"""New levels of a facet that are tried."""

_FEW = 0.25
"""Standard error of a variance, as a share of it, with which it is known well enough."""


_PLANNED = 0.8
"""Confidence of the limits with which components that are estimated at zero are planned."""

_SAME = 1.05
"""Levels that are needed with one run of each, as a share, for the runs not to matter."""

_STEPS, _CLOSE = 20, 1e-3
"""Designs that are tried until one finds a difference, and by how much less it may find."""


# Prices ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prices:
    """What data of an evaluation cost.

    Attributes
    ----------
    roles : of the columns
    terms : columns over whose combinations of levels each price is paid
    """

    roles: Roles
    terms: Mapping[frozenset[str], float]

    def of(self, table: pd.DataFrame) -> float:
        """Return what a table of scores cost, by the combinations of levels that it has."""
        total = 0.0
        for columns, price in self.terms.items():
            # A price of repetitions alone is of each answer.
            answer = [c for c in self.roles.cell if c != JUDGE]
            over = answer if columns == {self.roles.repeated} else columns
            numbering = NUMBERED if self.roles.repeated in columns else ()
            known = [c for c in dict.fromkeys((*over, *numbering)) if c in table]
            total += price * (len(table[known].drop_duplicates()) if known else 1)
        return total

    def of_new(self, facet: str, sizes: Mapping[str, Any]) -> Any:
        """Return what new levels of a facet cost.

        Parameters
        ----------
        facet : column; answers that are judged again are not paid for again
        sizes : levels of all columns in the new data, 1 where none is given; or arrays of them
        """
        terms = [(c, price) for c, price in self.terms.items() if facet in c]
        return sum(p * math.prod(sizes.get(f, 1.0) for f in c) for c, p in terms)

    def of_plan(self, plan: DStudy) -> Cost:
        """Return the cost of a planned measurement.

        Parameters
        ----------
        plan : of the data
        """
        facets, setup = plan.plan.design.facets, 0.0
        sizes = dict(zip(plan.plan.facets, plan.plan.sizes[0].tolist(), strict=True))
        fixed = set(self.roles.fixed) & set(sizes)
        made: dict[frozenset[str], float] = {}
        for columns, price in self.terms.items():
            alone = self.roles.repeated, replicated(self.roles, facets)
            named = (REPLICATE if c in alone and c not in facets else c for c in columns)
            kept = frozenset(f for f in named if f in facets)
            # Sizes of weighted tasks are effective ones; all tasks are paid for.
            all_there_is = math.prod(self.roles.levels[f] / sizes[f] for f in kept & fixed)
            made[kept] = made.get(kept, 0.0) + price * all_there_is
        setup = made.pop(frozenset(), 0.0)
        return Cost({tuple(sorted(of)): price for of, price in made.items()}, setup=setup)


def replicated(roles: Roles, facets: Collection[str]) -> str:
    """Return what the replicates of a design are: repetitions, or items if each has one score.

    Parameters
    ----------
    roles : of the columns
    facets : of the design
    """
    return next((f for f in roles.sampled if f not in facets), roles.repeated)


def read_prices(given: Any, roles: Roles) -> Prices | None:
    """Return prices by the columns over whose levels each is paid, or None.

    Parameters
    ----------
    given : column, or several joined by colons, or one of :data:`CELLS` → price
    roles : of the columns

    Raises
    ------
    PlanError
        If they are not prices of columns that have a role.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given:
        raise PlanError(
            f"prices are a mapping such as {{'item': 0.05, 'call': 0.01}}, not {given!r}"
        )
    facets = [roles.model, *roles.sampled, *roles.fixed, *roles.single, roles.repeated]
    terms: dict[frozenset[str], float] = {}
    for key, price in given.items():
        if not is_real(price) or not 0.0 <= price < math.inf:
            raise PlanError(
                f"the price per {key} must be a number from 0, not {price!r}", column=key
            )
        names = [key] if key in facets else str(key).split(":")
        if key in CELLS and key not in facets:
            names = [f for f in facets if key != "call" or f != JUDGE]
        for name in names:
            if name not in facets:
                known = [*facets[: None if roles.repetition else -1], *CELLS]
                raise PlanError(
                    f"there is a price per {name!r}, which is no column with a role"
                    f"{did_you_mean(name, known)}; there are {', '.join(map(repr, known))}",
                    column=name,
                )
        columns = frozenset(names)
        terms[columns] = terms.get(columns, 0.0) + float(price)
    return Prices(roles, terms)


def read_model_prices(given: Any, margin: Any, models: Sequence[Any]) -> dict[str, float] | None:
    """Return the price of each model by its name as text, or None.

    Parameters
    ----------
    given : model → price
    margin : by which a model may be worse than the best; None without
    models : all that have scores

    Raises
    ------
    PlanError
        If the margin is not above 0, one model has no others, or not each model has a price.
    """
    if margin is not None:
        check_margin(margin)
        if len(models) == 1:
            raise PlanError(f"a margin is of differences, and {str(models[0])!r} is alone")
    if given is None:
        return None
    if margin is None:
        raise PlanError(
            "prices of models need a margin by which a model may be worse than the best, such as "
            "margin=0.02"
        )
    if not isinstance(given, Mapping):
        raise PlanError(
            f"model_prices are a mapping such as {{'small': 0.1, 'large': 2.0}}, not {given!r}"
        )
    names, found = list(map(str, models)), {}
    for model, price in given.items():
        if str(model) not in names:
            raise PlanError(
                f"there is a price of {model!r}, which has no scores"
                f"{did_you_mean(model, names)}; there are {', '.join(map(repr, names))}",
                level=model,
            )
        if not is_real(price) or not 0.0 <= price < math.inf:
            raise PlanError(
                f"the price of {model!r} must be a number from 0, not {price!r}", level=model
            )
        found[str(model)] = float(price)
    lacking = [name for name in names if name not in found]
    if lacking:
        raise PlanError(
            f"prices of models lack {', '.join(map(repr, lacking))}; give the price of each model",
            level=lacking[0],
        )
    return found


def read_budget(given: Any, prices: Any) -> float | None:
    """Return a budget, a number above 0, or None.

    Parameters
    ----------
    given : the budget
    prices : without which there is none

    Raises
    ------
    PlanError
        If it is not a number above 0, or there are no prices.
    """
    if given is None:
        return None
    if not is_real(given) or not 0.0 < given < math.inf:
        raise PlanError(f"the budget is a number above 0, not {given!r}")
    if prices is None:
        raise PlanError("a budget needs prices, such as prices={'item': 0.05, 'call': 0.01}")
    return float(given)


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
        return plan.optimize(cost, difference=gap, power=POWER, bounds=bounds, **test_of(study))
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


def test_of(study: EvalStudy) -> dict[str, Any]:
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
    pairs = study.comparisons.table
    return len(set(pairs["first"]) | set(pairs["second"])), len(pairs)


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
    return float(plan.detectable(POWER, **test_of(study))["difference"].iloc[0])


def found_in_data(study: EvalStudy) -> float:
    """Return the difference that the test of a pair finds in the data as they are.

    It has the standard error of the comparisons, of several the median one.

    Parameters
    ----------
    study : of several models
    """
    pairs = study.comparisons.table.sort_values("std_error", kind="stable")
    se, df = pairs[["std_error", "df"]].to_numpy()[len(pairs) // 2]
    return DifferenceTest(**test_of(study)).detectable(POWER, float(se), float(df))


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
    is_share = study.data[study.roles.score].isin((0.0, 1.0)).all()
    said = [
        f"With data like these no difference of 0/1 scores is found {power}."
        if found > 1.0 and is_share
        else f"With data like these {named_test(study)} finds a difference of "
        f"{display.number(found)} {power}."
    ]
    said += _of_zeros(study)
    if study.prices is not None:
        cost = display.number(study.prices.of(study.data), 6)
        said.append(f"At these prices the data cost {cost}.")
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
            said.append(f"For this pair no other {study.roles.model} needs more.")
    if gap == 0.0:
        said.append(f"{pair} have the same score. {_of_twice(study)}")
    return said


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
    return (
        f"With {_size(study, plan.plan.design, facet, 2.0 * n)} instead of {display.count(n)}, "
        f"{named_test(study)} finds a difference of {display.number(found)}."
    )


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
            less = float(cautious.power(study.gap, **test_of(study))["power"].iloc[0])
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
    goal = {"difference": gap, "power": POWER, "facet": facet, **test_of(study)}
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


# What cannot be known ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that the data cannot show, and the cheapest data that would.

    Attributes
    ----------
    facet : column with one level; ``"repetition"`` if each sample was scored once
    levels : new levels of it; of repetitions 1
    of : column of the levels at which they are observed
    size : how many of these; of repetitions the scores
    scores : new scores
    cost : of them; nan without prices
    why : sentence on what cannot be known
    how : sentence on what would show it; empty if nothing was planned
    """

    facet: str
    levels: int
    of: str
    size: int
    scores: int
    cost: float
    why: str
    how: str

    def __str__(self) -> str:
        return f"{self.why} {self.how}".strip()


def unknown(study: EvalStudy) -> list[Unknown]:
    """Return what the data of an evaluation cannot show.

    Parameters
    ----------
    study : of the evaluation
    """
    roles = study.roles
    found = [_of_single(study, facet) for facet in roles.single]
    if roles.residual and not (roles.repetition or roles.identical):
        found.append(_of_repetitions(study))
    return found


def _of_single(study: EvalStudy, facet: str) -> Unknown:
    """Return the cheapest new levels of a facet that show whether they matter.

    They matter if models × levels of the facet add as much error variance as there is. The F-test
    of that interaction has mean squares of expectation σ² + q v over σ², on q items; of σ² the
    components of models × items are an upper bound.
    """
    roles = study.roles
    items = max(roles.sampled, key=lambda f: roles.levels[f])
    many = roles.levels[items]
    start = f"There is one {facet}" if facet in study.data else f"The logs name no {facet}"
    why = f"{start}: how much scores change with another {facet} cannot be known."
    same = f"a second {facet} for the same {display.levels_of(items)}"
    how = f"The cheapest data that show it are {same}."
    plain = Unknown(facet, 1, items, many, many * roles.levels[roles.model], math.nan, why, how)
    if study.comparisons is None:
        return replace(plain, cost=_cost(study, facet, {items: many}))
    values = study.sources["variance"].to_numpy()
    parts = [items in facets for facets in study.facets_of_sources]
    noise = float(np.maximum(values, 0.0)[np.array(parts) & _of_models(study)].sum())
    error = float(study.plan.columns["rel_err_var"][0])
    n_models = roles.levels[roles.model]
    new, q = (a.ravel() for a in np.indices((_MOST_LEVELS, many + 1))[:, 1:, 2:])
    if not (noise > 0.0 and error > 0.0 and q.size):
        return replace(plain, cost=_cost(study, facet, {items: many, roles.model: n_models}))
    power = _f_power((n_models - 1) * new, q - 1, q * error / noise)
    enough = power >= POWER
    if not enough.any():
        return replace(plain, cost=_cost(study, facet, {items: many, roles.model: n_models}))
    new, q = new[enough], q[enough]
    sizes = {facet: new, items: q, roles.model: n_models}
    costs = np.broadcast_to(_cost(study, facet, sizes), new.shape)
    by = new * q if np.isnan(costs).all() or not costs.any() else costs
    best = int(np.lexsort([new * q, by])[0])
    scores, cost = int(n_models * new[best] * q[best]), float(costs[best])
    levels = (
        f"{display.count(new[best])} more {facet if new[best] == 1 else display.levels_of(facet)}"
    )
    how = (
        f"The cheapest data that show, with power {POWER}, whether it adds as much error as there "
        f"is: {levels} for {display.counted(q[best], items)}, {_paid(scores, cost)}."
    )
    return Unknown(facet, int(new[best]), items, int(q[best]), scores, cost, why, how)


def _f_power(df: Any, df_of_each: Any, ratio: Any) -> Any:
    """Return the power of the F-test of a random interaction.

    Parameters
    ----------
    df : degrees of freedom of the interaction
    df_of_each : of the error for each of them
    ratio : q v/σ²
    """
    from scipy.special import fdtrc, fdtri

    rest = df * df_of_each
    return fdtrc(df, rest, fdtri(df, rest, 1.0 - _LEVEL) / (1.0 + ratio))


def _of_repetitions(study: EvalStudy) -> Unknown:
    """Return how many scores are to be repeated so that the variance of runs is known."""
    roles = study.roles
    why = (
        "Each combination was scored once: the variation of repeated runs cannot be separated "
        f"from {roles.residual}."
    )
    # A variance from r pairs of normal scores has a standard error of √(2/r) of it.
    r, given = math.ceil(2.0 / _FEW**2), ""
    scores = study.data[roles.score]
    if scores.isin([0.0, 1.0]).all():
        # Half of the share of pairs that differ is the variance: a count.
        differ = 0.5 * float(study.components.vcomp.get(RESIDUAL, 0.25))
        r = math.ceil((1.0 - differ) / (differ * _FEW**2)) if differ > 0.0 else len(scores)
        given = f", if it is a quarter of that of {roles.residual}"
    r = min(r, len(scores))
    cost = _cost(study, roles.repeated, {roles.repeated: r})
    how = (
        f"If runs can differ, repeat {_paid(r, cost)}: the standard error of the variance of runs "
        f"is then a quarter of it{given}."
    )
    return Unknown("repetition", 1, roles.model, r, r, cost, why, how)


def _of_models(study: EvalStudy) -> Any:
    """Return which sources make noise of differences."""
    return (study.sources["share"] > 0.0).to_numpy()


def _cost(study: EvalStudy, facet: str, sizes: Mapping[str, Any]) -> Any:
    return math.nan if study.prices is None else study.prices.of_new(facet, sizes)


def _paid(scores: int, cost: float) -> str:
    words = display.counted(scores, "score")
    return words if math.isnan(cost) else f"{words} for {display.number(cost, 6)}"
