"""Result of a comparison of measures: tables, differences, summary and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display, plots
from vcomp.display import SYMBOLS
from vcomp.exceptions import PlanError, check_known, check_one_of, did_you_mean, is_whole
from vcomp.formula import REPLICATE
from vcomp.gtheory import CoefficientName, DStudy, ObjectiveName
from vcomp.inference import used_components
from vcomp.plots import escaped
from vcomp.studies.differences import differences, required_ratios
from vcomp.studies.planned import (
    ComparisonRecord,
    DifferenceInterval,
    MeasureDifferences,
    components_table,
    side_by_side,
)

if TYPE_CHECKING:
    import pandas as pd

_MORE_IS_WORSE = ("n_", "rel_", "abs_")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MeasureComparison(display.Printed, ComparisonRecord):
    """The same G-study and D-study of several measures.

    Attributes
    ----------
    results : the fit of each measure, by name
    studies : its D-study
    labels : the columns that identify it, empty if it has a name only
    failures : measures that could not be fitted, with the reason
    goal : of the coefficients in required sizes
    facet : whose size is required, as given
    alpha : intervals have confidence 1 − alpha

    Examples
    --------
    >>> import vcomp
    >>> compared = vcomp.compare_measures(
    ...     "score ~ (1|sys) + (1|topic)", vcomp.datasets.load("docsearch"), by="query", topic=50
    ... )
    >>> compared
    <MeasureComparison: keywords, sentence>
    >>> compared.table[["query", "topic", "Phi", "Phi_low", "Phi_high"]].round(3)
          query  topic    Phi  Phi_low  Phi_high
    0  keywords     50  0.613    0.495     0.768
    1  sentence     50  0.752    0.577     0.913
    """

    @property
    def table(self) -> pd.DataFrame:
        """A row for each measure and plan.

        ``measure`` and the columns that identify it; ``nobs``; the sizes of the plan; the shares
        of the components, ``share(sys)``, negative ones as zero; all columns of
        :attr:`DStudy.table`; and, if one facet is planned or `facet` is given, its required size
        as ``n_Erho2`` and ``n_Phi``, each with the ends ``_low`` and ``_high`` of its interval.
        """
        return side_by_side(self)

    @property
    def components(self) -> pd.DataFrame:
        """A row for each measure and component: estimate, se, low, high and percent."""
        return components_table(self)

    def ranking(self, column: str = "Erho2") -> pd.DataFrame:
        """Return the rows of :attr:`table`, the best measure first.

        Parameters
        ----------
        column : of :attr:`table`: coefficients are sorted in descending order, required sizes and
            error variances in ascending order

        Raises
        ------
        PlanError
            If there is no such column of numbers.
        """
        table = self.table
        known = [c for c in table.columns if table[c].dtype.kind in "fi"]
        check_known(column, known, "{} is not a column of numbers; these are", quoted=True)
        up = column.startswith(_MORE_IS_WORSE)
        return table.sort_values(column, ascending=up, kind="stable", ignore_index=True)

    def differences(
        self,
        coefficient: CoefficientName = "Erho2",
        *,
        interval: DifferenceInterval = "mover",
        shared: str | Sequence[str] = "auto",
        n: int = 1000,
        rng: int | np.random.Generator | None = None,
        workers: int = 1,
        progress: bool | None = None,
    ) -> MeasureDifferences:
        """Return the differences of a coefficient between all pairs of measures.

        Estimates for the same systems and topics are correlated, so that their difference is more
        precise than two separate intervals suggest. In 420 simulated data sets of 20 systems and
        30 topics, with effects of two measures correlated by .8, 95 % intervals of the difference
        had a coverage of 93 % (Eρ²) and 95 % (Φ); those for independent measures, of 99 %.

        Parameters
        ----------
        coefficient : ``"Erho2"`` or ``"Phi"``
        interval : how intervals are made: ``"mover"`` combines the intervals that both measures
            have, robust ones by default, and the correlation of their estimates, from a jackknife
            that leaves out each level of all measures at once. ``"robust"``: the same with robust
            intervals of both measures, whatever theirs are. ``"bootstrap"``: percentiles of
            differences, with the levels of all facets drawn jointly; the measures must then have
            the same levels
        shared : facets whose levels of the same name are the same in all measures; ``"auto"`` for
            all with common names. With an empty list all measures are independent
        n, rng : number and seed of bootstrap replicates
        workers : number of threads
        progress : whether to show bars; None shows them if stderr is a terminal

        Returns
        -------
        MeasureDifferences

        Raises
        ------
        PlanError
            If the coefficient or interval is not known, or measures do not have the same plans.
        EstimationError
            If there is no such facet, or the measures do not have the same levels, as the
            bootstrap needs.
        DataError
            If a result was loaded without its rows.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> data["square"] = data["score"] ** 2
        >>> compared = vcomp.compare_measures(
        ...     "~ (1|sys) + (1|topic)", data, responses=["score", "square"], method="anova"
        ... )
        >>> found = compared.differences("Phi").table
        >>> found[["first", "second", "topic", "difference", "correlation"]].round(3)
           first  second  topic  difference  correlation
        0  score  square      3       -0.04        0.996
        """
        return differences(self, coefficient, interval, shared, n, rng, workers, progress)

    def required_ratios(
        self,
        coefficient: CoefficientName = "Erho2",
        *,
        shared: str | Sequence[str] = "auto",
        workers: int = 1,
        progress: bool | None = None,
    ) -> MeasureDifferences:
        """Return the ratios of the sizes that two measures need for the goal.

        Intervals are made as by ``differences(interval="mover")``, on the logarithms of the sizes.

        Parameters
        ----------
        coefficient : ``"Erho2"`` or ``"Phi"``
        shared, workers, progress : as for :meth:`differences`

        Raises
        ------
        PlanError
            If the coefficient is not known, or several facets have sizes and none was given.
        """
        return required_ratios(self, coefficient, shared, workers, progress)

    def best(
        self,
        cost: Any,
        *,
        budget: float | None = None,
        goal: float | None = None,
        coefficient: ObjectiveName = "Erho2",
        **options: Any,
    ) -> pd.DataFrame:
        """Return the best design of every measure for a budget, or the cheapest for a goal.

        Measures are compared at the same cost or the same goal, the best first; each has its own
        sizes.

        Parameters
        ----------
        cost : as for :meth:`DStudy.optimize`; or a mapping of the names of the measures to their
            costs, if judgements for one cost more than those for another
        budget, goal, coefficient, **options : as for :meth:`DStudy.optimize`; for details of one
            measure use ``compared.studies["AP"].optimize(...)``

        Returns
        -------
        pandas.DataFrame
            with the columns ``measure``, ``design``, the sizes, ``cost``, ``universe_var``,
            ``rel_err_var``, ``abs_err_var``, ``Erho2``, ``Phi`` and the interval of the
            coefficient; and ``reason`` for measures without such a design

        Raises
        ------
        PlanError
            If there is no such design for any measure, or an argument is invalid.

        References
        ----------
        Bodoff and Li (2007), SIGIR, section 4: "compares the reliability that can be achieved with
        each, for a fixed budget".

        Examples
        --------
        >>> import vcomp
        >>> compared = vcomp.compare_measures(
        ...     "score ~ (1|sys) + (1|topic)", vcomp.datasets.load("docsearch"), by="query"
        ... )
        >>> price = {"keywords": "2*topic", "sentence": "5*topic"}
        >>> compared.best(price, budget=600)[["measure", "topic", "cost", "Erho2"]].round(3)
            measure  topic   cost  Erho2
        0  keywords    300  600.0  0.966
        1  sentence    120  600.0  0.950
        """
        import pandas as pd

        costs = _costs(self, cost)
        rows, reasons = [], {}
        for name, study in self.studies.items():
            try:
                found = study.optimize(
                    costs[name], budget=budget, goal=goal, coefficient=coefficient, **options
                )
            except PlanError as error:
                reasons[name] = str(error)
                continue
            first = found.table.head(1).copy()
            first.insert(0, "measure", name)
            rows.append(first)
        if not rows:
            name, reason = next(iter(reasons.items()))
            raise PlanError(f"measure {name!r}: {reason}")
        table = pd.concat(rows)
        by_cost = goal is not None
        column = "cost" if by_cost else coefficient
        up = by_cost or coefficient.endswith("_var")
        table = table.sort_values(column, ascending=up, kind="stable")
        if reasons:
            none = pd.DataFrame({"measure": list(reasons), "reason": list(reasons.values())})
            table = pd.concat([table, none])
        return table.reset_index(drop=True)

    def summary(self) -> Any:
        """Return a printable summary: the measures side by side, with intervals.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        table = self.table
        tables = [_components(self, table), _coefficients(self, table)]
        if "n_Erho2" in table:
            tables.append(_required(self, table))
        return display.summary(tables, _notes(self, table))

    def plot(
        self,
        kind: PictureName = "dots",
        *,
        coefficient: CoefficientName | Sequence[CoefficientName] = ("Erho2", "Phi"),
        x: str | None = None,
        plan: int = 0,
        ax: Any | None = None,
    ) -> Any:
        """Draw the measures side by side.

        Parameters
        ----------
        kind : ``"dots"``: coefficients of one plan with their intervals; ``"curves"``: one
            coefficient over the size of a facet, a line for each measure, with intervals at
            planned sizes
        coefficient : ``"Erho2"``, ``"Phi"`` or both; curves use the first
        x : the facet of curves; may be None if only one has a size
        plan : row of the plans for the dots
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            If the kind, coefficient, facet or plan is invalid, or there are more lines than can be
            distinguished.
        VcompError
            If matplotlib is not installed.
        """
        chosen = (coefficient,) if isinstance(coefficient, str) else tuple(coefficient)
        unknown = [c for c in chosen if c not in SYMBOLS]
        if unknown or not chosen:
            given = repr(unknown[0]) if unknown else "none"
            raise PlanError(f"coefficient is 'Erho2', 'Phi' or both, not {given}")
        check_one_of("kind", kind, KINDS)
        if kind == "dots":
            return _dots(self, chosen, plan, ax)
        return _curves(self, chosen[0], x, ax)

    def __repr__(self) -> str:
        return f"<MeasureComparison: {', '.join(self.results)}>"


_MOST_ACROSS = 9
"""Largest number of columns; with more, the table is transposed."""


def _components(compared: MeasureComparison, table: pd.DataFrame) -> Any:
    once = table.drop_duplicates("measure")
    cells = {"scores": [display.count(n) for n in once["nobs"]]}
    columns = sorted(
        (c for c in table.columns if c.startswith("share(")), key="share(Residual)".__eq__
    )
    for column in columns:
        name = column.removeprefix("share(").removesuffix(")")
        cells[name] = [display.percent(share) for share in once[column]]
    by = ", ".join(dict.fromkeys(r.method.upper() for r in compared.results.values()))
    number = "1 measure" if len(once) == 1 else f"{len(once)} measures"
    title = f"{number} by {by}: shares of variance"
    if len(cells) > _MOST_ACROSS:
        down = list(cells.values())
        return display.simple_table(down, list(once["measure"]), title=title, stubs=list(cells))
    return display.column_table(cells, title=title, stubs=list(once["measure"]))


def _coefficients(compared: MeasureComparison, table: pd.DataFrame) -> Any:
    confidence = display.level(compared.alpha)
    cells: dict[str, list[str]] = {}
    for facet in _facets(compared):
        cells[facet] = [display.count(n) for n in table[facet]]
    for blanks, (name, symbol) in enumerate(SYMBOLS.items()):
        cells[symbol] = [display.coefficient(c) for c in table[name]]
        # Headers are dictionary keys: an extra space keeps those of Eρ² and Φ distinct.
        ends = zip(table[f"{name}_low"], table[f"{name}_high"], strict=True)
        cells[f"{confidence} interval" + " " * blanks] = [
            display.coefficient_interval(low, high) for low, high in ends
        ]
    return display.column_table(
        cells,
        title="What a test would be worth",
        stubs=list(table["measure"]),
    )


def _required(compared: MeasureComparison, table: pd.DataFrame) -> Any:
    confidence, goal = display.level(compared.alpha), display.number(compared.goal)
    held = _held(compared, table)
    once = table.drop_duplicates(["measure", *held])
    cells = {facet: [display.count(n) for n in once[facet]] for facet in held}
    needed = " or ".join(map(display.levels_of, table["facet"].dropna().unique()))
    for blanks, (name, symbol) in enumerate(SYMBOLS.items()):
        cells[f"{symbol} = {goal}"] = [display.count(n) for n in once[f"n_{name}"]]
        ends = zip(once[f"n_{name}_low"], once[f"n_{name}_high"], strict=True)
        cells[f"{confidence} interval" + " " * blanks] = [_range(*pair) for pair in ends]
    return display.column_table(
        cells,
        title=f"{needed[:1].upper()}{needed[1:]} needed",
        stubs=list(once["measure"]),
    )


def _held(compared: MeasureComparison, table: pd.DataFrame) -> list[str]:
    """Return the facets with planned sizes, other than those whose required size is computed."""
    return [c for c in _facets(compared) if c not in set(table["facet"])]


def _range(low: float, high: float) -> str:
    unknown = low != low or high != high
    return display.MISSING if unknown else f"{display.count(low)} to {display.count(high)}"


def _facets(compared: MeasureComparison) -> list[str]:
    return list(dict.fromkeys(f for s in compared.studies.values() for f in s.plan.facets))


def _notes(compared: MeasureComparison, table: pd.DataFrame) -> list[str]:
    objects = dict.fromkeys(s.plan.object for s in compared.studies.values())
    what = ", ".join(map(display.plural, objects))
    notes = [f"Eρ²: how reliable differences between {what} are; Φ: absolute scores of {what}."]
    if "n_Erho2" in table:
        held = _held(compared, table)
        notes += [_fewest(table, name, symbol, held) for name, symbol in SYMBOLS.items()]
    methods = dict.fromkeys(
        f"{symbol} {study.interval_methods[name]}"
        for study in compared.studies.values()
        for name, symbol in SYMBOLS.items()
        if name in study.interval_methods
    )
    if methods:
        notes.append(f"Intervals: {'; '.join(methods)}.")
    notes.append(
        "Compare measures that share levels by .differences() and .required_ratios(), not by the "
        "overlap of their intervals."
    )
    for name, study in compared.studies.items():
        notes += [f"{name}: {note}" for note in study.notes]
    notes += [f"{name} could not be fitted: {why}" for name, why in compared.failures.items()]
    unsure = [name for name, res in compared.results.items() if not res.converged]
    notes += [f"{name} did not converge: {compared.results[name].status}" for name in unsure]
    return notes


def _fewest(table: pd.DataFrame, name: str, symbol: str, held: Sequence[str] = ()) -> str:
    """Return a note that ranks measures by required size, each at its smallest over plans."""
    column = f"n_{name}"
    reached = table[table[column] < float("inf")]
    if reached.empty:
        return f"Fewest for {symbol}: no measure reaches it with any number."
    ordered = reached.sort_values(column, kind="stable").drop_duplicates("measure")
    varying = [facet for facet in held if len(set(table[facet])) > 1]
    words = []
    for row in ordered.head(5).to_dict("records"):
        sizes = [f"{f} {display.count(row[f])}" for f in varying if row[f] == row[f]]
        with_sizes = f" with {' and '.join(sizes)}" if sizes else ""
        words.append(f"{row['measure']} ({display.count(row[column])}{with_sizes})")
    shown = ", ".join(words) + (", …" if len(ordered) > 5 else "")
    return f"Fewest for {symbol}: {shown}."


PictureName: TypeAlias = Literal["dots", "curves"]
KINDS: tuple[PictureName, ...] = get_args(PictureName)
_POINTS = 100
"""Points of a plotted curve."""


def _dots(compared: MeasureComparison, chosen: Sequence[str], plan: int, ax: Any | None) -> Any:
    fewest = min(len(study.plan) for study in compared.studies.values())
    if not is_whole(plan) or not 0 <= plan < fewest:
        raise PlanError(f"plan= is the number of a row, from 0 to {fewest - 1}, not {plan!r}")
    rows: Any = compared.table.groupby("measure").nth(plan)
    sizes = [
        tuple(zip(s.plan.facets, s.plan.sizes[plan].tolist(), strict=True))
        for s in compared.studies.values()
    ]
    same = ", ".join(f"{escaped(f)} = {display.count(n)}" for f, n in sizes[0])
    where = f"coefficient with {same}" if same and len(set(sizes)) == 1 else "coefficient"
    return plots.measures(
        rows, chosen, goal=compared.goal, alpha=compared.alpha, xlabel=where, ax=ax
    )


def _curves(compared: MeasureComparison, coefficient: str, x: str | None, ax: Any | None) -> Any:
    import pandas as pd

    studies = compared.studies
    facet = _horizontal(list(studies.values()), x)
    table = compared.table
    low, high = table[facet].min(), table[facet].max()
    if low == high:
        low, high = max(1.0, low / 4.0), 2.0 * high
    fine = np.geomspace(low, high, _POINTS)
    lines = [
        pd.DataFrame({"measure": name, facet: fine, coefficient: _line(study, facet, fine,
                                                                       coefficient)})
        for name, study in studies.items()
    ]  # fmt: skip
    plan = next(iter(studies.values())).plan
    others = {f: n for f, n in zip(plan.facets, plan.sizes[0].tolist(), strict=True) if f != facet}
    held = ", ".join(f"{escaped(f)} = {display.count(n)}" for f, n in others.items())
    return plots.measure_curves(
        _with_first(table, others),
        facet,
        coefficient,
        curves=pd.concat(lines),
        goal=compared.goal,
        alpha=compared.alpha,
        xlabel=escaped(display.levels_of(facet)) + (f"  (with {held})" if held else ""),
        ax=ax,
    )


def _line(study: DStudy, facet: str, fine: Any, coefficient: str) -> Any:
    """Return the coefficient over sizes of one facet, the others as in the first plan."""
    plan = study.plan
    sizes = np.repeat(plan.sizes[[0]], fine.size, axis=0)
    sizes[:, plan.facets.index(facet)] = fine
    dense = replace(plan, sizes=sizes, inverse_n=None, labels=None)
    made = study.projected(coefficient, dense)
    return made.values(used_components(study.components, study.negative).values)


def _with_first(table: pd.DataFrame, others: dict[str, float]) -> pd.DataFrame:
    """Return the rows whose other sizes are those of the first plan."""
    chosen = table
    for facet, n in others.items():
        chosen = chosen[chosen[facet] == n]
    return chosen


def _horizontal(studies: list[DStudy], x: str | None) -> str:
    common = [f for f in studies[0].plan.facets if all(f in s.plan.facets for s in studies)]
    named = [f for f in common if f != REPLICATE] or common
    if x is None and len(named) == 1:
        return named[0]
    if x is None:
        raise PlanError(f"the facet of the horizontal axis is not known: pass x=, one of {named}")
    if x not in common:
        raise PlanError(
            f"{x!r} does not have a size in all measures{did_you_mean(x, common)}; x= must be one "
            f"of {common}"
        )
    return x


def _costs(compared: MeasureComparison, cost: Any) -> dict[str, Any]:
    """Return the cost of every measure: a common one, or its own."""
    names = list(compared.studies)
    if not isinstance(cost, Mapping) or not any(name in cost for name in names):
        return dict.fromkeys(names, cost)
    missing = [name for name in names if name not in cost]
    if missing:
        raise PlanError(
            f"cost has no entry for measure {missing[0]!r}{did_you_mean(missing[0], cost)}; with "
            "costs by measure each needs one",
            level=missing[0],
        )
    return {name: cost[name] for name in names}
