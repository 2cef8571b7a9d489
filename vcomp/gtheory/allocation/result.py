"""The result of an allocation: the recommended design, others near it, and the summary.

The record is :class:`~vcomp.gtheory.allocation.alternative.AllocationRecord`. The frontier has the
designs than which no other is both cheaper and better; the effect of sampling error is in
:mod:`~vcomp.gtheory.allocation.stability`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from vcomp import display, plots
from vcomp._typing import FloatArray
from vcomp.exceptions import check_one_of
from vcomp.gtheory.allocation.alternative import (
    SYMBOLS,
    Aim,
    AllocationRecord,
    Alternative,
    design_words,
    limit_of,
    shown,
)
from vcomp.gtheory.allocation.cost import CostFunction, money
from vcomp.gtheory.allocation.solve import continuous_sizes
from vcomp.gtheory.allocation.stability import Stability, find_stability
from vcomp.gtheory.projection import quantities, weights
from vcomp.gtheory.requirement import Requirement
from vcomp.gtheory.study_record import S, of_other_plan, requirement_of, study_table
from vcomp.inference import EstimatedQuantity, Quantities
from vcomp.inference.intervals import FromComponents
from vcomp.markup import encodable

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.gtheory.projection import CoefficientName
    from vcomp.inference.resampling import Replicates


_MOST_POINTS, _FEW_POINTS = 300, 120
"""Largest number of designs on a frontier, and number of budgets of a thinned one."""

_FUNCTION_POINTS = 60
"""Both numbers for a cost that is a function, whose search is slower."""

_CHEAPER = 1.0 - 1e-9
"""Costs closer than this ratio are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Frontiers:
    """The frontier of each design, and that of all together.

    Attributes
    ----------
    tables : design → its own frontier, the cheapest first
    aim : coefficient, and budget or goal
    is_whole : whether every design that is best for some budget is included
    """

    tables: dict[str, pd.DataFrame]
    aim: Aim
    is_whole: bool

    def whole(self) -> pd.DataFrame:
        """Return the efficient designs of all frontiers: no other is both cheaper and better."""
        import pandas as pd

        table = pd.concat(list(self.tables.values()))
        worth = table[self.aim.coefficient].to_numpy() * (1.0 if self.aim.is_coefficient else -1.0)
        order = np.lexsort((-worth, table["cost"].to_numpy()))
        before = np.append(-np.inf, np.fmax.accumulate(worth[order])[:-1])
        return table.iloc[order[worth[order] > before]].reset_index(drop=True)


@dataclass(frozen=True, eq=False, repr=False)
class Allocation(display.Printed, AllocationRecord[S]):
    """The best design for a budget, or the cheapest one that reaches a goal.

    Attributes
    ----------
    study : that it was made from
    aim : the coefficient, and the budget or goal
    cost : of a measurement
    components : (k,) with negative ones as the study uses them
    alternatives : the designs that were compared with their best sizes, the best design first
    top : how many designs :attr:`table` has beside the best of every alternative
    notes : what a reader should know
    left_out : designs that the budget does not pay for, or that miss the goal by the estimates

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> trec = from_components({"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002,
    ...                         "ia": .00143, "pia": .00176})
    >>> study = trec.dstudy("p x i x a", i=50, a=1)
    >>> found = study.optimize("10*i + i*a", budget=1100, designs=["p x i x a", "p x (a:i)"])
    >>> print(found.best)
    p × (a:i): 100 i, 1 a in each i; costs 1,100; Eρ² = 0.981
    """

    @cached_property
    def table(self) -> pd.DataFrame:
        """The best sizes of every alternative, the best first; then other designs near the best.

        One row per design: ``design``, the sizes of the facets, ``cost``, ``universe_var``,
        ``rel_err_var``, ``abs_err_var``, ``Erho2``, ``Phi`` and the interval ``_low``, ``_high``
        of the coefficient that was aimed at. Designs in which one facet alone could be larger
        within the budget (smaller at the goal) are left out.
        """
        import pandas as pd

        frames = []
        for alternative in self.alternatives:
            rows = alternative.solution.sizes
            source = self.study.source if self.study.source.interval != "profile" else None
            plan = replace(alternative.problem.plan, sizes=alternative.problem.sizes(rows))
            projected = of_other_plan(self.study, plan, source)
            if source is None:
                # A profile needs many maximisations, so only the best design has one.
                projected = _without_intervals(projected)
            wanted = ["universe_var", "rel_err_var", "abs_err_var", "Erho2", "Phi"]
            wanted += [f"{self.aim.coefficient}_{end}" for end in ("low", "high")]
            frame = study_table(projected)
            facets = [f for f in self.study.plan.facets if f in frame.columns]
            frame = frame[[*facets, *wanted]]
            frame.insert(len(facets), "cost", alternative.solution.cost)
            frame.insert(0, "design", str(plan.design))
            frames.append(frame.assign(_first=np.arange(len(rows)) > 0))
        column, rising = self.aim.coefficient, not self.aim.is_coefficient
        keys = [column, "cost"] if self.aim.budget is not None else ["cost", column]
        ascending = [rising if key == column else True for key in keys]
        # By several columns pandas sorts stably: of equal rows the better alternative comes first.
        ordered = pd.concat(frames).sort_values(["_first", *keys], ascending=[True, *ascending])
        shown = len(self.alternatives) + self.top - 1
        return ordered.drop(columns="_first").head(shown).reset_index(drop=True)

    @property
    def continuous(self) -> pd.DataFrame:
        """The best sizes if they need not be whole: one row per design, in the order of the table.

        nan where the cost is a function that may be anything.
        """
        import pandas as pd

        rows = {}
        for alternative in self.alternatives:
            problem = alternative.problem
            best_sizes = np.full(problem.lo.size, np.nan)
            if not isinstance(problem.cost, CostFunction):
                error = np.maximum(problem.error @ self.components, 0.0)
                limit = limit_of(problem, self.components, self.aim)
                best_sizes = continuous_sizes(error, problem.cost, problem.lo, problem.hi, limit)
            sizes = problem.sizes(best_sizes[None, :])[0]
            rows[str(problem.plan.design)] = dict(zip(problem.plan.facets, sizes, strict=True))
        frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("design")
        return frame[list(self.study.plan.facets)]

    @cached_property
    def ratio(self) -> EstimatedQuantity | None:
        """The optimal ratio of two sizes, n_i/n_a, where it does not depend on the budget.

        If the cost of two crossed facets is the product of their sizes, the error
        A/n_i + B/n_a + C/(n_i n_a) is least at n_i/n_a = A/B for any budget. None for other
        costs. Bounds are not considered, nor that each facet needs at least one level.

        References
        ----------
        Bodoff and Li (2007), SIGIR, section 3.2.3, p. 373.
        """
        for alternative in self.alternatives:
            problem = alternative.problem
            if len(problem.facets) != 2 or isinstance(problem.cost, CostFunction):
                continue
            _, second, first, both = range(4)
            a, b = problem.error[first], problem.error[second]
            above = problem.plan.design.nested_in
            if any(f in above[other] for f in problem.facets for other in problem.facets):
                continue
            if problem.cost[both] <= 0.0 or problem.cost[[first, second]].any() or not b.any():
                continue
            numerator, denominator = problem.facets
            return self._ratio(f"n({numerator})/n({denominator})", a, b)
        return None

    def _ratio(self, name: str, a: FloatArray, b: FloatArray) -> EstimatedQuantity:
        q = Quantities("ratio", a[None, :], b[None, :])
        alpha = self.study.alpha
        study = self.study
        local = FromComponents.beside(study.source, study.components, study.negative)
        value = float(local.values(q)[0])
        if math.isnan(value):
            why = "the second facet does not add to the error: one level of it is enough"
            return EstimatedQuantity(
                name, math.inf, math.nan, math.nan, math.nan, alpha, "", (why,)
            )
        limits = self.study.source.limits(q, alpha)
        se = float(local.standard_errors(q)[0])
        low, high = float(limits.low[0]), float(limits.high[0])
        return EstimatedQuantity(
            name, value, se, low, high, alpha, limits.interval_method, limits.notes
        )

    @property
    def required(self) -> Requirement | None:
        """Required size with interval, given a goal of a coefficient and one free facet."""
        aim, facets = self.aim, self.alternatives[0].problem.facets
        if aim.goal is None or not aim.is_coefficient or len(facets) != 1:
            return None
        plan, coefficient = self.best.study.plan, cast("CoefficientName", aim.coefficient)
        return requirement_of(self.study, aim.goal, coefficient, facets[0], plan)

    @cached_property
    def frontier(self) -> pd.DataFrame:
        """The efficient designs: no other is both cheaper and better.

        From the cheapest design to the budget, with a goal to twice the cost of the best design.
        One row per design, the cheapest first: ``cost``, ``design``, the sizes of the facets,
        ``rel_err_var``, ``abs_err_var``, ``Erho2`` and ``Phi``. Where there are more than some
        hundreds of such designs, those are shown that are best for budgets in equal ratios; see
        :attr:`frontier_is_whole`.
        """
        return self.frontiers.whole()

    @property
    def frontier_is_whole(self) -> bool:
        """Whether :attr:`frontier` has all designs that are best for some budget."""
        return self.frontiers.is_whole

    @cached_property
    def frontiers(self) -> Frontiers:
        """The frontier of every design by itself.

        The best design for a budget is on the frontier, and so is the best one for a budget just
        below its cost. See :class:`~vcomp.gtheory.allocation.result.Frontiers`.
        """
        aim = self.aim
        # With a goal the frontier extends to this many times the cost of the best design
        most = aim.budget if aim.budget is not None else 2.0 * self.best.cost
        tables, is_whole = {}, True
        for alternative in self.alternatives:
            rows, has_all = _best_for_budgets(alternative, self.components, aim.coefficient, most)
            is_whole &= has_all
            design = str(alternative.problem.plan.design)
            tables[design] = _frontier_table(self, alternative, rows)
        return Frontiers(tables, aim, is_whole)

    def stability(
        self, draws: int | Replicates = 1000, *, rng: int | np.random.Generator | None = None
    ) -> Stability:
        """Return how the recommendation varies with the sampling error of the components.

        The components are drawn again, the best design is found for every draw, and the
        recommended design is compared with it.

        Parameters
        ----------
        draws : replicates of a bootstrap of the fit; or how many draws to make from the
            approximate distribution of the estimates: independent mean squares, each a multiple
            of χ², that have their covariance matrix. A D-study with bootstrap intervals uses
            its own replicates
        rng : seed or generator of the draws

        Raises
        ------
        PlanError
            If the covariance matrix of the components is not known and there are no replicates,
            or replicates are of other components.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> found = res.dstudy().optimize("5*topic", goal=0.9).stability(200, rng=1)
        >>> found.sizes.columns.tolist()
        ['low', 'median', 'high']
        """
        return find_stability(self, draws, rng)

    def summary(self, stability: Stability | None = None) -> Any:
        """Return a printable summary: the recommended design, and others near it.

        Parameters
        ----------
        stability : of the recommendation, if it was found, to be printed too

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        aim, best = self.aim, self.best
        if aim.budget is not None:
            most = "highest" if aim.is_coefficient else "lowest"
            title = f"The best design for a budget of {money(aim.budget)}: {most} {aim.symbol}"
        else:
            sign = "≥" if aim.is_coefficient else "≤"
            title = f"The cheapest design with {aim.goal_words(sign)}"
        lines = [
            f"Recommended is {design_words(best)}.",
            f"Cost: {self.cost}.",
            *_more(self),
            *(stability.sentences() if stability is not None else []),
            *self.notes,
        ]
        lines += [note for note in best.study.notes if any(words in note for words in _REPEATED)]
        return display.summary([_table(self, title)], lines)

    def plot(self, coefficient: str | None = None, ax: Any | None = None) -> Any:
        """Draw the coefficient over the cost: the frontier of each design.

        Parameters
        ----------
        coefficient : ``"Erho2"``, ``"Phi"``, ``"rel_err_var"`` or ``"abs_err_var"``; that of the
            aim if None
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            The coefficient is not one of these.
        VcompError
            matplotlib is not installed.
        """
        aim, best = self.aim, self.best
        name = aim.coefficient if coefficient is None else coefficient
        check_one_of("coefficient", name, tuple(SYMBOLS))
        value, low, high = (
            float(best.study.columns[f"{name}{end}"][0]) for end in ("", "_low", "_high")
        )
        return plots.frontier(
            {shown(d): t for d, t in self.frontiers.tables.items()},
            name,
            is_whole=self.frontiers.is_whole,
            best=(shown(best.design), best.cost, value),
            best_label=", ".join(f"{f} = {display.count(n)}" for f, n in best.sizes.items()),
            best_interval=(low, high),
            budget=aim.budget,
            goal=aim.goal if name == aim.coefficient else None,
            alpha=self.study.alpha,
            ax=ax,
        )

    def __repr__(self) -> str:
        return encodable(f"Allocation({self.best})")


def _without_intervals(study: S) -> S:
    ends = {
        c: np.full_like(x, np.nan) for c, x in study.columns.items() if c[-4:] in ("_low", "high")
    }
    return replace(study, columns={**study.columns, **ends})


_ROWS = 6
"""Rows of the table that the summary shows in addition to the best of every design."""

_REPEATED = ("replaced by 0", "used as estimated", "counts as error")
"""Notes of the D-study that the summary repeats contain these words."""


def _table(allocation: Allocation[Any], title: str) -> Any:
    shown_rows = max(_ROWS, len(allocation.alternatives))
    frame, name = allocation.table.head(shown_rows), allocation.aim.coefficient
    cells: dict[str, list[str]] = {}
    designs = [shown(d) for d in frame["design"]]
    if len(set(designs)) > 1:
        cells["design"] = designs
    for facet in allocation.best.sizes:
        cells[facet] = [display.count(n) for n in frame[facet]]
    cells["cost"] = [money(c) for c in frame["cost"]]
    coefficients = ("Erho2", "Phi") if allocation.aim.is_coefficient else (name, "Erho2", "Phi")
    for column in coefficients:
        coefficient = column in ("Erho2", "Phi")
        values = frame[column]
        cells[SYMBOLS[column]] = (
            [display.coefficient(v) for v in values]
            if coefficient
            else display.fixed(values, significant=4)
        )
        if column == name:
            _add_interval(cells, frame, allocation)
    return display.column_table(cells, title=title)


def _add_interval(
    cells: dict[str, list[str]], frame: pd.DataFrame, allocation: Allocation[Any]
) -> None:
    name = allocation.aim.coefficient
    if frame[f"{name}_low"].isna().all():
        return
    interval = (
        display.coefficient_interval if allocation.aim.is_coefficient else display.short_interval
    )
    cells[f"{display.level(allocation.study.alpha)} interval"] = [
        interval(low, high)
        for low, high in zip(frame[f"{name}_low"], frame[f"{name}_high"], strict=True)
    ]


def _more(allocation: Allocation[Any]) -> list[str]:
    """Return sentences on the next best, the ratio of sizes, and a required size."""
    lines = []
    frame, name = allocation.table, allocation.aim.coefficient
    if allocation.aim.budget is not None and len(frame) > 1:
        first, second = frame.iloc[0], frame.iloc[1]
        gap = abs(float(first[name]) - float(second[name]))
        sizes = ", ".join(f"{f} = {display.count(second[f])}" for f in allocation.best.sizes)
        where = "" if second["design"] == first["design"] else f"{shown(second['design'])}, "
        lines.append(
            f"{'Next best' if where == '' else 'Best of the other designs'}: {where}{sizes}; "
            f"{allocation.aim.symbol} is {'lower' if allocation.aim.is_coefficient else 'higher'} "
            f"by {display.number(gap, 2)}."
        )
    ratio = allocation.ratio
    if ratio is not None:
        lines.append(f"The best ratio of sizes without bounds: {ratio}.")
    required = allocation.required
    if required is not None:
        lines.append(str(required))
    return [*lines, *_of_zeros(allocation)]


def _of_zeros(allocation: Allocation[Any]) -> list[str]:
    """Return the sentence on error components that are estimated at their bound 0."""
    study = allocation.best.study
    components = study.components
    if components.without_bounds is None:
        return []
    error = "rel_err_var" if allocation.aim.is_relative else "abs_err_var"
    at_zero = (components.values == 0.0) & (study.projected(error).a[0] > 0.0)
    named = [f"σ²({name})" for name in np.array(components.names, dtype=object)[at_zero]]
    named = [name for name in named if name[3:-1] not in components.held]
    if not named:
        return []
    word = "it is" if len(named) == 1 else "they are"
    listed = display.listed(named)
    poor = f"Sizes that are best for 0 may be poor ones if {word} not 0."
    return [f"Planned as 0, as estimated: {listed}. {poor}"]


# The frontier ------------------------------------------------------------------------------------


def _best_for_budgets(
    alternative: Alternative, components: FloatArray, coefficient: str, most: float
) -> tuple[FloatArray, bool]:
    """Return the best sizes for budgets up to `most`, cheapest first, and whether all are there.

    A design that is best for a budget is so for all smaller budgets down to its cost. Just below
    that the next one is sought, until all budgets are covered or there are too many designs.
    """
    problem = alternative.problem
    slow = isinstance(problem.cost, CostFunction)
    points, few = (_FUNCTION_POINTS,) * 2 if slow else (_MOST_POINTS, _FEW_POINTS)
    least = float(problem.costs(problem.lo[None, :])[0])
    budgets = np.geomspace(max(least, most * 1e-9), most, few)
    known: dict[tuple[float, ...], tuple[float, float]] = {}
    thinned = None
    while True:
        aims = [Aim(coefficient, budget=float(b)) for b in budgets]
        values = np.repeat(components[None, :], len(aims), axis=0)
        for one, budget in zip(Alternative.of_each(problem, values, aims), budgets, strict=True):
            if one.solution.found:
                sizes, cost = tuple(one.solution.sizes[0].tolist()), float(one.solution.cost[0])
                known[sizes] = (cost, max(budget, known.get(sizes, (cost, 0.0))[1]))
        order = sorted(known, key=lambda sizes: known[sizes])
        rows = np.array(order).reshape(len(order), len(problem.facets))
        thinned = rows if thinned is None else thinned
        covered = np.array([known[sizes] for sizes in order]).reshape(-1, 2)
        below = covered[:, 0] * _CHEAPER
        budgets = below[(below > np.append(0.0, covered[:-1, 1])) & (below >= least)]
        if len(order) > points:
            return thinned, False
        if not budgets.size:
            return rows, True


def _frontier_table(
    allocation: AllocationRecord[Any], alternative: Alternative, rows: FloatArray
) -> pd.DataFrame:
    """Return the designs, the cheapest first, with error variances and coefficients."""
    import pandas as pd

    problem = alternative.problem
    # The universe itself has no error, and nothing is generalized from it.
    rows = rows[[not problem.is_universe(row) for row in rows]]
    sizes = problem.sizes(rows)
    plan = replace(problem.plan, sizes=sizes)
    projected = quantities(weights(allocation.study.components, plan))
    columns: dict[str, Any] = {"cost": problem.costs(rows), "design": str(plan.design)}
    by_facet = dict(zip(plan.facets, sizes.T, strict=True))
    for facet in allocation.study.plan.facets:
        n = by_facet[facet]
        columns[facet] = n.astype(np.int64) if (n == np.floor(n)).all() else n
    for name in ("rel_err_var", "abs_err_var", "Erho2", "Phi"):
        columns[name] = projected[name].values(allocation.components)
    return pd.DataFrame(columns)
