"""Result of a subsampling study: spreads, coverage of intervals, summary and plots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from vcomp import display, plots
from vcomp._typing import FloatArray, LongArray
from vcomp.display import SYMBOLS
from vcomp.exceptions import PlanError, check_known, check_one_of, did_you_mean
from vcomp.formula import REPLICATE, parameter_names
from vcomp.gtheory import DStudy, first_two_way, requirement_ratio
from vcomp.inference import TwoWayMeanSquares
from vcomp.inference.intervals import F_INTERVALS
from vcomp.inference.resampling import Replicates
from vcomp.model import VarianceComponentsResults
from vcomp.plots import Kind
from vcomp.studies.planned import COEFFICIENTS, planned, required_facet

if TYPE_CHECKING:
    import pandas as pd


def _horizontal(study: SubsampleStudy, x: str | None) -> str:
    if x is None:
        several = [len(np.unique(column)) for column in study.cells.T]
        return study.facets[int(np.argmax(several))]
    if x not in study.facets:
        raise PlanError(
            f"levels of {x!r} were not drawn{did_you_mean(x, study.facets)}; x= must be one of "
            f"{list(study.facets)}",
            column=x,
        )
    return x


def _symbol(study: SubsampleStudy, quantity: str) -> str:
    if quantity in SYMBOLS:
        return SYMBOLS[quantity]
    if quantity in study.replicates.names:
        return f"σ²({quantity})"
    symbol = SYMBOLS[quantity.removeprefix("n_")]
    return f"{study.required_facet} needed for {symbol} = {display.number(study.goal)}"


@dataclass(frozen=True, slots=True)
class Span:
    """Mean, standard deviation and quantiles of values; nan if empty.

    Attributes
    ----------
    mean, sd : infinite and nan if a value is infinite
    low, median, high : quantiles
    endless : share of infinite values
    """

    mean: float
    sd: float
    low: float
    median: float
    high: float
    endless: float

    @property
    def length(self) -> float:
        """Length of the span, high − low; 0 if both are infinite."""
        return 0.0 if self.low == self.high else self.high - self.low

    def columns(self) -> dict[str, float]:
        """Return the span as columns of a table."""
        columns = asdict(self) | {"span": self.length}
        del columns["endless"]
        return columns


def span_of(values: FloatArray, alpha: float) -> Span:
    """Return mean, standard deviation and quantiles of the values that are not nan.

    Parameters
    ----------
    values : (n,)
    alpha : a share of 1 − alpha lies between the outer quantiles

    Examples
    --------
    >>> span = span_of(np.array([1.0, 2.0, 3.0, np.inf]), 0.5)
    >>> span.mean, span.median, span.endless
    (inf, 2.5, 0.25)
    """
    known = np.sort(values[~np.isnan(values)])
    if not known.size:
        return Span(*[math.nan] * 6)
    endless = float(np.mean(np.isinf(known)))
    mean = math.inf if endless else float(known.mean())
    sd = float(known.std(ddof=1)) if known.size > 1 and not endless else math.nan
    low, median, high = (quantile(known, q) for q in (alpha / 2.0, 0.5, 1.0 - alpha / 2.0))
    return Span(mean, sd, low, median, high, endless)


def quantile(ordered: FloatArray, q: float) -> float:
    """Return the quantile of sorted values, by linear interpolation.

    It is that of R's type 7 and of numpy, except that numpy returns nan between infinite values.

    Examples
    --------
    >>> quantile(np.array([1.0, 2.0, np.inf, np.inf]), 0.9)
    inf
    """
    place = q * (ordered.size - 1)
    below = math.floor(place)
    a, b = float(ordered[below]), float(ordered[min(below + 1, ordered.size - 1)])
    return a if a == b or place == below else a + (place - below) * (b - a)


_NEAR = 0.05
"""Coefficients within this distance of the full-data coefficient span at most 0.1."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SubsampleStudy(display.Printed):
    """Estimates from random parts of the data, of several sizes.

    Attributes
    ----------
    facets : whose levels were drawn
    cells : (c, F) numbers of levels of each size of subsets
    trials : subsets of each size
    replicates : components of the subsets, in the order of the sizes; a subset that could not be
        fitted has nan and ``converged=False``
    results : the fit of all the data
    dstudy : of all the data, with the plan of all coefficients
    goal : of the coefficients in required sizes
    facet : whose size is required, as given
    by_group : the facet whose levels were drawn by group, and how many groups there are; else None

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    >>> study = vcomp.subsample_study(
    ...     "score ~ (1|sys) + (1|topic)", data, sizes={"sys": [10, 20], "topic": 30}, trials=50
    ... )
    >>> study
    <SubsampleStudy: 50 subsets of each of 2 sizes of sys, topic>
    """

    facets: tuple[str, ...]
    cells: LongArray
    trials: int
    replicates: Replicates
    results: VarianceComponentsResults
    dstudy: DStudy
    goal: float = 0.95
    facet: str | None = None
    by_group: tuple[str, int] | None = None

    @property
    def quantities(self) -> tuple[str, ...]:
        """The estimated quantities: components, ``Erho2`` and ``Phi``, and required sizes.

        ``n_Erho2`` and ``n_Phi`` are included if :attr:`required_facet` is known.
        """
        n = () if self.required_facet is None else tuple(f"n_{c}" for c in COEFFICIENTS)
        return (*self.replicates.names, *COEFFICIENTS, *n)

    @property
    def required_facet(self) -> str | None:
        """The facet whose size is required; None if several have sizes and none is given."""
        return required_facet(self.dstudy, self.goal, self.facet)

    def full(self, what: str) -> float:
        """Return a quantity as estimated from all data, negative components set to zero.

        Parameters
        ----------
        what : one of :attr:`quantities`
        """
        return float(self._of(what, self.results.components.values[None, :])[0])

    def values(self, what: str) -> FloatArray:
        """Return the values of the subsets, (c, trials); nan if a subset has none.

        Parameters
        ----------
        what : one of :attr:`quantities`

        Raises
        ------
        PlanError
            If it is not one of these.
        """
        found = np.full(len(self.cells) * self.trials, np.nan)
        made = self.replicates
        usable = made.converged
        found[made.numbers[usable]] = self._of(what, made.values[usable])
        return found.reshape(len(self.cells), self.trials)

    def with_plan(
        self,
        dstudy: Mapping[str, Any] | None = None,
        *,
        goal: float | None = None,
        facet: str | None = None,
        alpha: float | None = None,
    ) -> SubsampleStudy:
        """Return the same subsets with coefficients of another plan, without new fits.

        Parameters
        ----------
        dstudy : arguments of :meth:`VarianceComponentsResults.dstudy`, for one plan
        goal : of the coefficients in required sizes; unchanged if None
        facet : whose size is required
        alpha : spans contain a share of 1 − alpha of the subsets; unchanged if None

        Raises
        ------
        PlanError
            If the D-study is invalid, or has several plans.
        """
        made = planned(self.results, dstudy, self.dstudy.alpha if alpha is None else alpha)
        goal = self.goal if goal is None else goal
        required_facet(made, goal, facet)
        return replace(self, dstudy=made, goal=goal, facet=facet)

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each subset: its sizes, its number ``trial``, and its estimates.

        Columns of components are ``var(…)``; values that could not be estimated are nan.
        """
        import pandas as pd

        sizes = np.repeat(self.cells, self.trials, axis=0)
        columns: dict[str, Any] = dict(zip(self.facets, sizes.T, strict=True))
        columns["trial"] = np.tile(np.arange(self.trials), len(self.cells))
        names = self.replicates.names
        components = dict(zip(names, parameter_names(names), strict=True))
        columns |= {components.get(q, q): self.values(q).ravel() for q in self.quantities}
        return pd.DataFrame(columns)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each size and quantity: the distribution of the estimates of the subsets.

        The sizes under the names of the facets; ``quantity``; ``full``, its value from all the
        data; ``mean``, ``sd``, ``low``, ``median`` and ``high`` (quantiles alpha/2, ½ and
        1 − alpha/2) of the subsets and ``span``, high − low; ``within``, the share of subsets
        whose coefficient is within 0.05 of the full one; ``covers``, the share of subsets whose
        interval, from F quantiles, contains the full one; ``n``, the number of subsets with a
        value; ``unreachable``, the share of these for which no size is enough. Columns that do not
        apply are nan.

        As subsets are parts of the same data, ``covers`` is above the confidence of the
        intervals for large subsets. It is computed if the components are from the analysis of
        variance of a complete two-way table.
        """
        import pandas as pd

        rows = []
        coverage = {c: _covered(self, c) for c in COEFFICIENTS}
        for quantity in self.quantities:
            values, full = self.values(quantity), self.full(quantity)
            for place, cell in enumerate(self.cells.tolist()):
                span = self.span(quantity, place, values)
                row = dict(zip(self.facets, cell, strict=True))
                row |= {"quantity": quantity, "full": full, **span.columns()}
                known = values[place][~np.isnan(values[place])]
                is_share = quantity in COEFFICIENTS and known.size > 0
                row["within"] = (
                    np.mean(display.snapped(np.abs(known - full), _NEAR) <= _NEAR)
                    if is_share
                    else np.nan
                )
                row["covers"] = coverage[quantity][place] if quantity in coverage else np.nan
                row |= {"n": known.size, "unreachable": span.endless}
                rows.append(row)
        return pd.DataFrame(rows)

    def span(self, what: str, place: int, values: FloatArray | None = None) -> Span:
        """Return mean, spread and quantiles of the estimates from subsets of one size.

        Parameters
        ----------
        what : one of :attr:`quantities`
        place : of the size in :attr:`cells`
        values : the result of :meth:`values`, if it is known already
        """
        found = self.values(what) if values is None else values
        return span_of(found[place], self.dstudy.alpha)

    def summary(self) -> Any:
        """Return a printable summary: Eρ², Φ and required sizes of the subsets.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        alpha, facet = self.dstudy.alpha, self.required_facet
        cells: dict[str, list[str]] = {}
        for name, sizes in zip(self.facets, self.cells.T, strict=True):
            cells[name] = [display.count(n) for n in sizes]
        for blanks, (name, symbol) in enumerate(SYMBOLS.items()):
            spans = _spans(self, name)
            cells[symbol] = [display.coefficient(s.median) for s in spans]
            # Headers are dictionary keys: an extra space keeps those of Eρ² and Φ distinct.
            header = f"{display.level(alpha)} of subsets" + " " * blanks
            cells[header] = [display.coefficient_interval(s.low, s.high) for s in spans]
            if facet is not None:
                cells[f"n for {symbol}"] = [_sizes(s) for s in _spans(self, f"n_{name}")]
        table = display.column_table(
            cells,
            title=f"G-studies of {self.trials:,} random subsets of each size",
        )
        return display.summary([table], _notes(self))

    def plot(
        self,
        what: str = "Erho2",
        *,
        x: str | None = None,
        kind: Kind = "span",
        ax: Any | None = None,
    ) -> Any:
        """Draw the spread of the estimates of subsets over their number of levels.

        Parameters
        ----------
        what : one of :attr:`quantities`
        x : the facet on the horizontal axis; that with most sizes if None. Every size of the
            others has a line
        kind : ``"span"``, the length of the span that contains a share of 1 − alpha of the
            subsets, as in Figure 1 of Urbano et al. (2013); or ``"values"``, the median with that
            span
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            If the quantity, facet or kind is invalid, or there are more lines than can be
            distinguished.
        VcompError
            If matplotlib is not installed.

        Examples
        --------
        >>> import vcomp
        >>> from matplotlib.figure import Figure
        >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
        >>> study = vcomp.subsample_study(
        ...     "score ~ (1|sys) + (1|topic)", data, sizes={"topic": [10, 50]}, trials=50
        ... )
        >>> print(study.plot(ax=Figure().subplots()).get_ylabel())
        Eρ²
        length of the 95 % span
        """
        check_one_of("kind", kind, get_args(Kind))
        full, facet, table = self.full(what), _horizontal(self, x), self.table
        return plots.subsets(
            table[table["quantity"] == what],
            facet,
            [f for f in self.facets if f != facet],
            full=full,
            kind=kind,
            label=_symbol(self, what),
            alpha=self.dstudy.alpha,
            ax=ax,
        )

    def __repr__(self) -> str:
        sizes = f"each of {len(self.cells)} sizes" if len(self.cells) > 1 else "one size"
        return f"<SubsampleStudy: {self.trials:,} subsets of {sizes} of {', '.join(self.facets)}>"

    def _of(self, quantity: str, v: FloatArray) -> FloatArray:
        """Return a quantity of B sets of components, (B,)."""
        names, study = self.replicates.names, self.dstudy
        if quantity in names:
            return v[:, names.index(quantity)]
        check_known(quantity, self.quantities, "{} was not estimated; quantities are", quoted=True)
        used = np.maximum(v, 0.0) if study.negative == "zero" else v
        if quantity in COEFFICIENTS:
            return study.projected(quantity).values(used)[:, 0]
        facet = self.required_facet
        assert facet is not None
        return required_sizes(study, used, self.goal, quantity.removeprefix("n_"), facet)


def required_sizes(
    study: DStudy, v: FloatArray, goal: float, coefficient: str, facet: str
) -> FloatArray:
    """Return the required size of a facet for each set of components, (B,).

    Parameters
    ----------
    study : with the plan of the other facets
    v : (B, k + 1) components under the policy of the D-study for negative ones
    goal, coefficient, facet : as for :meth:`DStudy.required`
    """
    ratio = requirement_ratio(study.components, study.plan, goal, coefficient, facet)
    b, room = v @ ratio.a[0], v @ ratio.denominator[0]
    # A difference within rounding error is zero, as in the scalar function.
    held = v @ np.maximum(-ratio.denominator[0], 0.0)
    n, reached = np.full(len(v), np.inf), room > 1e-12 * held
    # 69 from exact arithmetic may come out as 69.0000000001 and must not become 70.
    n[reached] = np.maximum(1.0, np.ceil(b[reached] / room[reached] * (1.0 - 1e-9)))
    return n


_OF_ANOVA = ("anova", "type1", "henderson3")


def _covered(study: SubsampleStudy, coefficient: str) -> FloatArray:
    """Return the coverage of the full-data coefficient by subset intervals, for each size.

    The intervals are from F quantiles of the mean squares, which follow from the components of a
    complete two-way table; nan if the data are not such a table.

    Parameters
    ----------
    study : of the subsets
    coefficient : ``"Erho2"`` or ``"Phi"``
    """
    nothing = np.full(len(study.cells), np.nan)
    plan = study.dstudy.plan
    table = first_two_way(study.dstudy.components, plan)
    if table is None or study.results.method not in _OF_ANOVA:
        return nothing
    if plan.objects != {table.rows}:
        return nothing
    n = plan.sizes[:, plan.facets.index(table.columns)]
    full = study.full(coefficient)
    interval = F_INTERVALS[coefficient]
    held: dict[int, list[bool]] = {place: [] for place in range(len(study.cells))}
    made = study.replicates
    for number, values in zip(made.numbers[made.converged], made.values[made.converged],
                              strict=True):  # fmt: skip
        place = int(number) // study.trials
        part = _part(table, study, place, values)
        if part.ms_residual > 0.0 and part.ms_columns > 0.0:
            low, high = (
                interval.of(end, n)[0] for end in interval.limits(part, study.dstudy.alpha)
            )
            held[place].append(bool(low <= full <= high))
    return np.array([np.mean(h) if h else np.nan for h in held.values()])


def _part(
    table: TwoWayMeanSquares, study: SubsampleStudy, place: int, values: FloatArray
) -> TwoWayMeanSquares:
    """Return the mean squares of a subset, recomputed from its components."""
    drawn = dict(zip(study.facets, study.cells[place].tolist(), strict=True))
    n_rows = drawn.get(table.rows, table.n_rows)
    n_columns = drawn.get(table.columns, table.n_columns)
    both, by_facets = 0.0, {}
    for facets, value in zip(study.dstudy.components.facets, values.tolist(), strict=True):
        if facets >= {table.rows, table.columns}:
            both += value / (table.n_replicates if REPLICATE in facets else 1)
        else:
            by_facets[facets] = value
    return replace(
        table,
        n_rows=n_rows,
        n_columns=n_columns,
        ms_rows=both + n_columns * by_facets[frozenset({table.rows})],
        ms_columns=both + n_rows * by_facets[frozenset({table.columns})],
        ms_residual=both,
    )


_ENOUGH = 0.1
"""Largest sufficient span of coefficients (Urbano et al., 2013, sec. 3)."""


def _spans(study: SubsampleStudy, quantity: str) -> list[Span]:
    values = study.values(quantity)
    return [study.span(quantity, place, values) for place in range(len(study.cells))]


def _sizes(span: Span) -> str:
    if np.isnan(span.median):
        return display.MISSING
    return f"{display.count(np.floor(span.low))} to {display.count(np.ceil(span.high))}"


def _notes(study: SubsampleStudy) -> list[str]:
    plan, facet = study.dstudy.plan, study.required_facet
    sizes = ", ".join(
        f"{f} = {display.count(n)}" for f, n in zip(plan.facets, plan.sizes[0], strict=True)
    )
    full = [f"{s} = {display.coefficient(study.full(c))}" for c, s in SYMBOLS.items()]
    test = f"of a test with {sizes}" if sizes else "of one score"
    notes = [f"Eρ² and Φ: medians, {test}; from all the data {' and '.join(full)}."]
    if facet is not None:
        needs = [f"{display.count(study.full(f'n_{c}'))} for {s}" for c, s in SYMBOLS.items()]
        notes.append(
            f"n: {display.levels_of(facet)} needed for {display.number(study.goal)} in "
            f"{display.level(study.dstudy.alpha)} of subsets; from all the data "
            f"{' and '.join(needs)}."
        )
    notes += [_enough(study, name) for name in SYMBOLS]
    if study.by_group is not None:
        name, n_groups = study.by_group
        notes.append(
            f"{name}: drawn by group, at most as many of each; {display.counted(n_groups, name)} "
            "are one of each."
        )
    missing = study.cells.shape[0] * study.trials - int(study.replicates.converged.sum())
    if missing:
        notes.append(f"{display.counted(missing, 'subset')} gave no estimates: left out.")
    return notes


def _enough(study: SubsampleStudy, name: str) -> str:
    """Return a note on the smallest sizes whose coefficients span at most 0.1."""
    symbol, inside = SYMBOLS[name], display.level(study.dstudy.alpha)
    lengths = np.array([s.length for s in _spans(study, name)])
    enough = np.flatnonzero(lengths <= _ENOUGH)
    if not enough.size:
        return f"At none of these sizes is {symbol} of {inside} of subsets within 0.1."
    # Keep only sizes without a smaller sufficient size.
    smallest = [
        p for p in enough
        if not any(
            (study.cells[q] <= study.cells[p]).all() and (study.cells[q] != study.cells[p]).any()
            for q in enough
        )
    ]  # fmt: skip
    words = [
        " × ".join(f"{display.count(n)} {f}" for f, n in zip(study.facets, row, strict=True))
        for row in study.cells[smallest]
    ]
    return f"{symbol} of {inside} of subsets is within 0.1 from {' or '.join(words)} on."
