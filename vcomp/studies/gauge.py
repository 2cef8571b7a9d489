"""Gauge repeatability and reproducibility: variance of the gauge against variance of parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.exceptions import PlanError, VcompError, check_alpha
from vcomp.formula import closure, in_formula
from vcomp.gtheory import PublishedComponents
from vcomp.inference import Projected, Quantities, VarianceComponents, check_policy
from vcomp.model import IntervalMethod, VarianceComponentsResults
from vcomp.studies.component_sums import (
    SummedComponents,
    check_facet,
    components_of,
    held_in_residual,
    known_of,
    positive_number,
    term_mask,
)

if TYPE_CHECKING:
    import pandas as pd

TOTAL_GAUGE, REPEATABILITY = "total gauge R&R", "repeatability"
REPRODUCIBILITY, PART_TO_PART = "reproducibility", "part-to-part"
TOTAL = "total variation"


_POOLED_FROM = 0.25
"""The p-value above which AIAG pools an interaction with repeatability."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GaugeStudy(display.Printed):
    """The variation of measurements by source: parts, operators, repetition.

    Made by :func:`vcomp.presets.gauge_rr`; ``print`` it.

    Attributes
    ----------
    table : a row for each source of variation, with the columns

        ``variance``, ``se``, ``low``, ``high``
            sum of its components, with standard error and interval
        ``percent_contribution``
            its share of the total variance, in per cent
        ``sd``, ``study_variation``
            standard deviation, and ``multiplier`` times the standard deviation
        ``percent_study_variation``, ``percent_study_low``, ``percent_study_high``
            its standard deviation in per cent of the total one, with an interval
        ``percent_tolerance``, ``percent_tolerance_low``, ``percent_tolerance_high``
            ``multiplier`` standard deviations in per cent of the tolerance, if that is given
        ``percent_process``, ``percent_process_low``, ``percent_process_high``
            its standard deviation in per cent of that of the process, if that is given
    part, operator : facets
    sources : for each source of variation the components of its sum
    categories, categories_low, categories_high : number of distinct categories, 1.41 times the
        ratio of the standard deviations of parts and gauge, rounded down but at least 1, and its
        interval; inf if the gauge has no variance
    multiplier : width of a distribution in standard deviations
    tolerance, process_sd : as given, or None
    alpha : intervals have confidence 1 − alpha
    interval_method : how intervals were made, in words
    notes : sentences on these numbers
    """

    table: pd.DataFrame
    part: str
    operator: str
    sources: dict[str, tuple[str, ...]]
    categories: float
    categories_low: float
    categories_high: float
    multiplier: float
    tolerance: float | None
    process_sd: float | None
    alpha: float
    interval_method: str
    notes: tuple[str, ...]

    @property
    def precision_to_tolerance(self) -> float | None:
        """P/T, the width of the gauge's distribution over the tolerance; None without one."""
        if self.tolerance is None:
            return None
        return float(self.table["study_variation"].loc[TOTAL_GAUGE]) / self.tolerance

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        table, stubs = self.table, _stubs(self)
        confidence = display.level(self.alpha)
        variances = {
            "variance": display.fixed(table["variance"]),
            "std. err.": display.fixed(table["se"], significant=3),
            f"{confidence} interval": display.short_intervals(table["low"], table["high"]),
            "contribution": [display.percent(p / 100.0) for p in table["percent_contribution"]],
            "": [display.bar(p / 100.0) for p in table["percent_contribution"]],
        }
        spread = {
            "std. dev.": display.fixed(table["sd"]),
            f"{display.number(self.multiplier)} × s.d.": display.fixed(table["study_variation"]),
            "% study variation": display.fixed(table["percent_study_variation"], decimals=1),
            f"{confidence} interval": display.short_intervals(
                table["percent_study_low"], table["percent_study_high"]
            ),
        }
        # The total is always 100 % and has no interval.
        spread[f"{confidence} interval"][-1] = ""
        for name in ("tolerance", "process"):
            if f"percent_{name}" in table:
                spread[f"% {name}"] = display.fixed(table[f"percent_{name}"], decimals=1)
        title = f"Gauge R&R: {self.part} measured by {self.operator}"
        tables = [
            display.column_table(variances, title=title, stubs=stubs, align="rrrrl"),
            display.column_table(spread, stubs=stubs),
        ]
        return display.summary(tables, [*_verdict(self), *self.notes])

    def plot(self, ax: Any | None = None) -> Any:
        """Draw the variances of the sources with their intervals and shares.

        Parameters
        ----------
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        VcompError
            If matplotlib is not installed.
        """
        from vcomp import plots

        names = {"variance": "estimate", "percent_contribution": "percent"}
        table = self.table.rename(columns=names)
        table = table.set_axis(_stubs(self))
        ax = plots.components(table, alpha=self.alpha, scale="linear", ax=ax)
        ax.set_xlabel(ax.get_xlabel().replace("variance component σ²", "variance σ²"))
        return ax

    def __repr__(self) -> str:
        share = float(self.table["percent_study_variation"].loc[TOTAL_GAUGE])
        return f"<GaugeStudy: total gauge R&R {display.number(share, 3)} % of study variation>"


def gauge_rr(
    res: VarianceComponentsResults | PublishedComponents,
    part: str,
    operator: str,
    *,
    tolerance: float | None = None,
    process_sd: float | None = None,
    multiplier: float = 6.0,
    alpha: float = 0.05,
    negative: Projected = "zero",
    interval: IntervalMethod = "auto",
) -> GaugeStudy:
    """Return a gauge R&R study: the share of the measurement system in the variation.

    Repeatability is the residual. Reproducibility is the sum of all components besides those of
    parts: operators, their interaction with parts, days, laboratories. Parts may be crossed with
    operators, or nested in them (destructive measurement); other facets that parts are nested in,
    such as batches, count as part-to-part variation.

    Parameters
    ----------
    res : the fit, or published components with the sizes of their study
        (:func:`vcomp.from_components`, :func:`vcomp.from_mean_squares`)
    part, operator : facets of the random part
    tolerance : width of the specification, its upper minus its lower limit, in units of the
        scores
    process_sd : historical standard deviation of the process
    multiplier : width of a distribution in standard deviations: 6, or 5.15 (99 %)
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` sets negative components to zero, ``"keep"`` uses them as estimated
    interval : how intervals are made, as in
        :meth:`vcomp.VarianceComponentsResults.conf_int`

    Returns
    -------
    GaugeStudy
        with ``table``, ``categories``, ``precision_to_tolerance``, ``summary()``, ``plot()``

    Raises
    ------
    PlanError
        If part or operator is not a facet or has no component, or a number is not above 0.
    EstimationError
        If the interval is not known, or not available for shares.

    References
    ----------
    AIAG (2010), Measurement Systems Analysis, 4th ed., chapter III, section B (analysis of
    variance); Burdick, Borror and Montgomery (2003), A review of methods for measurement
    systems capability analysis, Journal of Quality Technology 35, 342-354.

    Examples
    --------
    >>> import vcomp
    >>> data = {
    ...     "part": [p for p in range(4) for _ in range(6)],
    ...     "operator": ["A", "A", "B", "B", "C", "C"] * 4,
    ...     "mm": [
    ...         20.1, 20.3, 20.6, 20.7, 20.0, 20.2, 24.2, 24.0, 24.9, 24.6, 23.8, 24.1,
    ...         19.4, 19.6, 19.9, 20.3, 19.5, 19.3, 22.0, 22.3, 22.9, 22.6, 22.1, 21.8,
    ...     ],
    ... }
    >>> res = vcomp.fit("mm ~ (1|part) + (1|operator) + (1|part:operator)", data)
    >>> study = vcomp.presets.gauge_rr(res, "part", "operator", tolerance=10)
    >>> study.table["percent_study_variation"].round(1).head(3)
    source
    total gauge R&R    19.2
    repeatability       7.5
    reproducibility    17.7
    Name: percent_study_variation, dtype: float64
    >>> study.categories, round(study.precision_to_tolerance, 3)
    (7.0, 0.244)

    From published mean squares of 10 parts, 3 operators and 3 trials:

    >>> published = vcomp.from_mean_squares(
    ...     {"part": 9.8182, "operator": 1.5836, "part:operator": 0.0199, "Residual": 0.0460},
    ...     sizes={"part": 10, "operator": 3, "replicate": 3})
    >>> vcomp.presets.gauge_rr(published, "part", "operator").categories
    4.0
    """
    components = components_of(res, "gauge_rr")
    source = res.interval_source(interval, negative)
    check_alpha(alpha)
    check_policy(negative)
    multiplier = positive_number(
        "multiplier", multiplier, "the width of a distribution in standard deviations, 6 or 5.15"
    )
    if tolerance is not None:
        tolerance = positive_number("tolerance", tolerance, "the upper minus the lower limit")
    if process_sd is not None:
        process_sd = positive_number("process_sd", process_sd, "a standard deviation")
    sources = _sources(components, part, operator)
    a = np.array([term_mask(components, names) for names in sources.values()])
    total = np.broadcast_to(a[list(sources).index(TOTAL)], a.shape)
    variances = known_of(components, Quantities("linear", a), source, negative, alpha)
    shares = known_of(components, Quantities("share", a, total - a), source, negative, alpha)
    part_row, gauge_row = (list(sources).index(name) for name in (PART_TO_PART, TOTAL_GAUGE))
    ratio = Quantities("ratio", a[[part_row]], a[[gauge_row]])
    known = known_of(components, ratio, source, negative, alpha)
    categories = _categories(known, variances.values[part_row])
    notes = [*variances.notes, *_notes(res, part, operator)]
    if np.isnan(variances.se).any():
        notes.append("A source at 0 has no standard error.")
    if np.isnan(shares.low).any() and not components.held:
        notes.append("A source whose components have no standard error has no interval.")
    table = _table(sources, variances, shares, multiplier, tolerance, process_sd)
    return GaugeStudy(
        table, part, operator, sources, *categories, multiplier, tolerance, process_sd, alpha,
        variances.interval_method, tuple(notes),
    )  # fmt: skip


def _sources(
    components: VarianceComponents, part: str, operator: str
) -> dict[str, tuple[str, ...]]:
    """Return the components of each source of variation.

    Facets that parts are nested in, such as batches, belong to the parts, except the operator
    (destructive measurement). All other components except the residual are reproducibility.
    """
    part = check_facet("part", part, components)
    operator = check_facet("operator", operator, components)
    if part == operator:
        raise PlanError(f"part and operator are both {part!r}; they must be different facets")
    nested = {f: frozenset(above) for f, above in components.nested_in.items()}
    product = closure(frozenset({part}), nested) - closure(frozenset({operator}), nested) | {part}
    of_parts: list[str] = []
    others: list[str] = []
    for name, facets in zip(components.names[:-1], components.facets[:-1], strict=True):
        above = frozenset[str]().union(*(nested.get(f, frozenset()) for f in facets))
        (of_parts if facets - above <= product else others).append(name)
    if not of_parts:
        raise PlanError(
            f"there is no component of {part!r}, so that parts do not differ; add "
            f"(1|{in_formula(part)}) to the formula, which has {', '.join(components.names)}",
            term=part,
        )
    sources = {
        TOTAL_GAUGE: (*others, components.names[-1]),
        REPEATABILITY: (components.names[-1],),
        REPRODUCIBILITY: tuple(others),
        **{name: (name,) for name in others},
        PART_TO_PART: tuple(of_parts),
        **({name: (name,) for name in of_parts} if len(of_parts) > 1 else {}),
        TOTAL: tuple(components.names),
    }
    if not others:
        raise PlanError(
            f"there is no component of {operator!r}, so that reproducibility is not known; add "
            f"(1|{in_formula(operator)}) to the formula, which has {', '.join(components.names)}",
            term=operator,
        )
    return sources


def _table(
    sources: dict[str, tuple[str, ...]],
    variances: SummedComponents,
    shares: SummedComponents,
    multiplier: float,
    tolerance: float | None,
    process_sd: float | None,
) -> pd.DataFrame:
    import pandas as pd

    with np.errstate(invalid="ignore"):
        sd, sd_low, sd_high = (
            np.sqrt(x) for x in (variances.values, variances.low, variances.high)
        )
        study, study_low, study_high = (
            np.sqrt(x) for x in (shares.values, shares.low, shares.high)
        )
    columns = {
        "variance": variances.values, "se": variances.se, "low": variances.low,
        "high": variances.high, "percent_contribution": 100.0 * shares.values, "sd": sd,
        "study_variation": multiplier * sd, "percent_study_variation": 100.0 * study,
        "percent_study_low": 100.0 * study_low, "percent_study_high": 100.0 * study_high,
    }  # fmt: skip
    for name, width in (
        ("tolerance", None if tolerance is None else tolerance / multiplier),
        ("process", process_sd),
    ):
        if width is not None:
            columns |= {
                f"percent_{name}": 100.0 * sd / width,
                f"percent_{name}_low": 100.0 * sd_low / width,
                f"percent_{name}_high": 100.0 * sd_high / width,
            }
    return pd.DataFrame(columns, index=pd.Index(list(sources), name="source"))


def _categories(ratio: SummedComponents, of_parts: float) -> tuple[float, float, float]:
    """Return the number of distinct categories and its interval from the ratio of variances."""

    def cut(x: float) -> float:
        if np.isnan(x) or np.isinf(x):
            return x
        # √2 as AIAG prints it: distinct categories are so many standard deviations of the gauge
        number = 1.41 * max(x, 0.0) ** 0.5
        return max(1.0, float(np.floor(display.snapped(number, float(np.round(number))))))

    value = float(ratio.values[0])
    if np.isnan(value) and of_parts > 0.0:
        value = np.inf  # the gauge has no variance
    return cut(max(value, 0.0)), cut(float(ratio.low[0])), cut(float(ratio.high[0]))


def _notes(
    res: VarianceComponentsResults | PublishedComponents, part: str, operator: str
) -> list[str]:
    notes = []
    held = held_in_residual(res)
    if held is not None:
        notes.append(held)
    interaction = _interaction(components_of(res, "gauge_rr"), part, operator)
    if interaction is not None:
        notes += _pooling(res, interaction)
    values = res.vcomp.to_numpy()
    if not (values > 0.0).any():
        notes.append("All components are estimated at zero, so that there are no shares.")
    return notes


def _interaction(components: VarianceComponents, part: str, operator: str) -> str | None:
    """Return the component of part and operator together, if they are crossed."""
    wanted = frozenset({part, operator})
    above = {f: frozenset(x) for f, x in components.nested_in.items()}
    if part in above.get(operator, ()) or operator in above.get(part, ()):
        return None
    whole = closure(wanted, above)
    by_facets = dict(zip(components.facets[:-1], components.names[:-1], strict=True))
    return by_facets.get(whole)


def _pooling(
    res: VarianceComponentsResults | PublishedComponents, interaction: str
) -> Sequence[str]:
    """Return a note that AIAG would pool the interaction, if its F-test has a large p-value."""
    f_test = _published_f(res, interaction) if isinstance(res, PublishedComponents) else None
    if isinstance(res, VarianceComponentsResults):
        try:
            test = res.test(interaction, "f")
        except VcompError:
            return []  # no F-test for these data, or the result was loaded without its rows
        f_test = test.statistic, test.p_value
    if f_test is None or not display.snapped(f_test[1], _POOLED_FROM) > _POOLED_FROM:
        return []
    outcome = f"F = {display.number(f_test[0], 3)}, {display.p_value(f_test[1])}"
    advice = (
        f"{interaction}: {outcome}. AIAG pools an interaction with p > {_POOLED_FROM} into "
        f"repeatability: to do so, fit without (1|{in_formula(interaction)})."
    )
    return [advice]


def _published_f(res: PublishedComponents, term: str) -> tuple[float, float] | None:
    """Return F and its p-value from published mean squares, None if there is no exact test."""
    from scipy.special import fdtrc

    table = res.anova
    if table is None:
        return None
    k = res.components.names.index(term)
    without = table.expected[k].copy()
    without[k] = 0.0
    same = np.flatnonzero((table.expected == without).all(axis=1))
    if not same.size or not table.mean_squares[same[0]] > 0.0:
        return None
    F = float(table.mean_squares[k] / table.mean_squares[same[0]])
    return F, float(fdtrc(table.df[k], table.df[same[0]], F))


_ACCEPTABLE, _MARGINAL = 10.0, 30.0
"""Per cent of study variation (AIAG, Measurement Systems Analysis, 4th ed., chap. II, sec. D)."""

_GRADES = (
    f"acceptable (below {_ACCEPTABLE:g} %)",
    f"may be acceptable ({_ACCEPTABLE:g}–{_MARGINAL:g} %)",
    f"not acceptable (above {_MARGINAL:g} %)",
)


def _stubs(study: GaugeStudy) -> list[str]:
    level = dict.fromkeys(study.sources, 2)
    level |= {TOTAL_GAUGE: 0, REPEATABILITY: 1, REPRODUCIBILITY: 1, PART_TO_PART: 0, TOTAL: 0}
    level |= dict.fromkeys(study.sources[PART_TO_PART], 1)  # alone it has no row of its own
    return ["  " * level[name] + name for name in study.sources]


def _verdict(study: GaugeStudy) -> list[str]:
    """Return notes on AIAG's criteria for the estimate and for the ends of its interval."""
    confidence = display.level(study.alpha)
    gauge = {str(name): float(column[TOTAL_GAUGE]) for name, column in study.table.items()}
    notes = []
    for name, words in (("study", "study variation"), ("tolerance", "the tolerance")):
        column = "percent_study_variation" if name == "study" else f"percent_{name}"
        if column not in gauge or np.isnan(gauge[column]):
            continue
        low, high = gauge[f"percent_{name}_low"], gauge[f"percent_{name}_high"]
        note = f"Total gauge R&R is {display.number(gauge[column], 3)} % of {words}"
        grade = _grade(gauge[column])
        others: list[int] = []
        if not np.isnan(low):
            note += f" ({confidence} interval {display.short_interval(low, high)})"
            others = [g for g in range(_grade(low), _grade(high) + 1) if g != grade]
        note += f": {_GRADES[grade]}"
        if others:
            note += f"; the interval also allows: {' or '.join(_GRADES[g] for g in others)}"
        notes.append(f"{note}.")
    notes.append(
        f"AIAG: below {_ACCEPTABLE:g} % acceptable, up to {_MARGINAL:g} % depending on the use, "
        f"above not acceptable; and at least 5 distinct categories."
    )
    ends = ""
    if not np.isnan(study.categories_low):
        ends = (
            f" ({confidence} interval {display.count(study.categories_low)} to "
            f"{display.count(study.categories_high)})"
        )
    notes.append(f"Distinct categories of {study.part}: {display.count(study.categories)}{ends}.")
    how = study.interval_method or "none can be given"
    notes.append(f"{confidence} intervals: {how}.")
    return notes


def _grade(percent: float) -> int:
    """Return the index of the grade."""
    if display.snapped(percent, _ACCEPTABLE) < _ACCEPTABLE:
        return 0
    return 1 if display.snapped(percent, _MARGINAL) <= _MARGINAL else 2
