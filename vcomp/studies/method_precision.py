"""Precision of a measurement method, from repeatability to reproducibility."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.exceptions import PlanError, check_alpha, check_known, did_you_mean
from vcomp.formula import REPLICATE, closure, parse
from vcomp.gtheory import PublishedComponents, all_sizes
from vcomp.inference import Projected, Quantities, VarianceComponents, check_policy
from vcomp.model import IntervalMethod, VarianceComponentsResults, kept_response, record_of
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

REPEATABILITY, WITHIN_LABORATORY = "repeatability", "within-laboratory"
REPRODUCIBILITY = "reproducibility"

_LABORATORIES = ("site", "lab", "laboratory")

_GAP, _CENTRE, _FEWEST_VALUES = 3.0, (0.1, 0.9), 30
"""Width of a gap between results that shows groups, in median distances of neighbours in a cell;
central quantiles that are searched; smallest number of results. Half of the cells must have
results on both sides: those of one sample differ by days and runs."""

_LIMIT = 2.8
"""1.96 √2, as ISO 5725-6 rounds it: two results differ by more in 1 of 20 cases."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Precision(display.Printed):
    """Agreement of measurements of one sample, under conditions from narrow to wide.

    Made by :func:`vcomp.presets.precision`; ``print`` it.

    Attributes
    ----------
    table : a row for each condition, with the columns

        ``variance``, ``se``, ``df``
            sum of the components that vary under it, its standard error, and Satterthwaite's
            degrees of freedom 2 (variance/se)²; where these are too few for an interval, it is
            that of modified large samples, as the notes say
        ``sd``, ``sd_low``, ``sd_high``
            standard deviation with its interval
        ``cv``, ``cv_low``, ``cv_high``
            the same in per cent of the mean; missing if the mean is not positive or not constant
        ``limit``
            2.8 standard deviations; two results differ by more in 1 of 20 cases (ISO 5725: r of
            repeatability, R of reproducibility)
    sources : the same for each source, ``"between day"``, without ``limit``
    conditions : for each condition the components that vary under it
    mean : of the scores; nan if it is not positive or not constant
    laboratory : the facet of laboratories, or None
    alpha : intervals have confidence 1 − alpha
    interval_method : how intervals were made, in words
    notes : sentences on these numbers
    sizes : facet → its number of levels in one result, where results are means; else empty
    """

    table: pd.DataFrame
    sources: pd.DataFrame
    conditions: dict[str, tuple[str, ...]]
    mean: float
    laboratory: str | None
    alpha: float
    interval_method: str
    notes: tuple[str, ...]
    sizes: Mapping[str, float] = field(default_factory=dict)

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        confidence = display.level(self.alpha)
        title = f"Precision of a mean over {_product(self.sizes)}" if self.sizes else "Precision"
        if not np.isnan(self.mean):
            title += f" at mean {display.number(self.mean)}"
        tables = []
        for frame, heading in ((self.table, title), (self.sources, None)):
            cells = {
                "std. dev.": display.fixed(frame["sd"]),
                f"{confidence} interval": display.short_intervals(
                    frame["sd_low"], frame["sd_high"]
                ),
            }
            if "cv" in frame:
                cells["CV %"] = display.fixed(frame["cv"], decimals=2)
                cells[f"{confidence} interval "] = display.short_intervals(
                    frame["cv_low"], frame["cv_high"]
                )
            cells["df"] = display.fixed(frame["df"], decimals=1)
            if "limit" in frame:
                cells[f"{_LIMIT} s.d."] = display.fixed(frame["limit"])
            tables.append(display.column_table(cells, title=heading, stubs=list(frame.index)))
        notes = [f"{name}: {' + '.join(terms)}." for name, terms in self.conditions.items()]
        notes.append(f"{_LIMIT} s.d.: two results differ by more in 1 of 20 cases (ISO 5725).")
        how = self.interval_method or "none can be given"
        known = ", the mean treated as known" if "cv" in self.table else ""
        notes.append(f"{confidence} intervals: {how}{known}. df: Satterthwaite.")
        return display.summary(tables, [*notes, *self.notes])

    def __repr__(self) -> str:
        sds = ", ".join(f"{name} {display.number(sd)}" for name, sd in self.table["sd"].items())
        return f"<Precision: standard deviations {sds}>"


def precision(
    res: VarianceComponentsResults | PublishedComponents,
    *,
    laboratory: str | None = None,
    labels: Mapping[str, str] | None = None,
    alpha: float = 0.05,
    negative: Projected = "zero",
    interval: IntervalMethod | None = None,
    sizes: Mapping[str, float] | None = None,
    **n: float,
) -> Precision:
    """Return the precision of a measurement method in the terms of CLSI EP05 and ISO 5725.

    From replicate measurements of one sample on several days, in several runs, at several sites
    follow the standard deviations of results under the same conditions (repeatability), within a
    run, a day, a laboratory, and between laboratories (reproducibility). Each variance is a sum of
    components: under a condition all effects vary except those of the facets held constant.

    Parameters
    ----------
    res : the fit, or published components with the sizes of their study
        (:func:`vcomp.from_components`, :func:`vcomp.from_mean_squares`); with their ``mean`` there
        are coefficients of variation, without sizes there are no intervals
    laboratory : the facet of laboratories. If None, the facet named ``site``, ``lab`` or
        ``laboratory``; if there is none, all data are from one laboratory
    labels : other names for the conditions, ``{"within-day": "intermediate precision"}``
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` sets negative components to zero, ``"keep"`` uses them as estimated
    interval : how the intervals of standard deviations are made, as in
        :meth:`vcomp.VarianceComponentsResults.conf_int`; None is Satterthwaite's, that of CLSI
        EP05 and of R's VCA, or no interval for published components without a covariance matrix.
        Where Satterthwaite's has no degrees of freedom, that of modified large samples replaces
        it, with a note. ``"robust"`` is for effects that are not normal; ``"auto"`` has the
        intervals of ``res.summary()``
    sizes, **n : for results that are means: the number of levels of each facet in one result,
        ``day=2, run=1, replicate=2``, of a nested facet in each level of the outer one. A facet
        without a number has one level. Each component is divided by the number of its groups.
        ``sizes`` is for facets whose names are those of other parameters

    Returns
    -------
    Precision
        with ``table`` (conditions), ``sources`` (between days, …), ``summary()``

    Raises
    ------
    PlanError
        If the laboratory or a name in `sizes` is not a facet, a size is not a number above 0, a
        label is not a condition of the design, or alpha is not between 0 and 1.
    EstimationError
        If the interval is not known, or not available for this fit.

    References
    ----------
    CLSI (2014), Evaluation of Precision of Quantitative Measurement Procedures, EP05-A3; ISO
    5725-2 and 5725-3 (1994), ISO 5725-6 (1994), 4.1, for the factor 2.8; Schuetzenmeister and
    Dufey (2022), VCA: Variance Component Analysis, R package.

    Examples
    --------
    >>> import vcomp
    >>> data = {
    ...     "day": [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4],
    ...     "run": [1, 1, 2, 2] * 4,
    ...     "mmol": [
    ...         5.1, 5.2, 4.9, 5.0, 5.4, 5.5, 5.3, 5.1, 4.8, 4.9, 5.0, 4.8, 5.2, 5.3, 5.2, 5.0,
    ...     ],
    ... }
    >>> res = vcomp.fit("mmol ~ (1|day/run)", data)
    >>> vcomp.presets.precision(res).table[["sd", "cv", "df", "limit"]].round(3)
                          sd     cv     df  limit
    condition
    repeatability      0.103  2.019  8.000  0.289
    within-day         0.146  2.855  6.737  0.408
    within-laboratory  0.223  4.365  5.353  0.624

    The mean of two runs on each of two days has

    >>> mean = vcomp.presets.precision(res, day=2, run=2)
    >>> mean.table[["sd", "cv", "df", "limit"]].round(3).tail(1)
                         sd     cv     df  limit
    condition
    within-laboratory  0.14  2.737  3.447  0.391
    """
    components = components_of(res, "precision")
    is_default = interval is None
    if interval is None:
        unknown = isinstance(res, PublishedComponents) and components.cov is None
        interval = "auto" if unknown else "satterthwaite"
    source = res.interval_source(interval, negative)
    check_alpha(alpha)
    check_policy(negative)
    laboratory = _laboratory(components, laboratory)
    conditions = _renamed(_conditions(components, laboratory), labels)
    mean, why = _mean(res)
    wanted = _sizes(components, all_sizes(sizes, n, components.facet_names, alpha=alpha))
    divisors = np.array([math.prod(wanted.get(f, 1) for f in t) for t in components.facets])
    between = {f"between {name}": (name,) for name in components.names[:-1]}
    frames, notes, interval_method = [], [], ""
    for rows, limit in ((conditions, True), (between, False)):
        weights = np.array([term_mask(components, terms) for terms in rows.values()]) / divisors
        known = known_of(components, Quantities("linear", weights), source, negative, alpha)
        frames.append(_table(list(rows), known, mean, limit=limit))
        notes += [note for note in known.notes if note not in notes]
        notes += _replaced(list(rows), known)
        interval_method = interval_method or known.interval_method
    notes += _notes(res, frames[1], why)
    if wanted:
        notes.insert(0, _MEANS)
    if is_default and isinstance(res, VarianceComponentsResults):
        notes.append(_OTHER_INTERVALS)
    return Precision(
        frames[0], frames[1], conditions, mean, laboratory, alpha, interval_method, tuple(notes),
        wanted,
    )  # fmt: skip


_MEANS = (
    "Each component is divided by the number of its groups in one result; conditions are those of "
    "two such results."
)

_OTHER_INTERVALS = (
    "The intervals of summary() and conf_int() are made otherwise: precision(res, "
    "interval='auto') has them."
)


def _sizes(components: VarianceComponents, given: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of levels in one result, outer facets first, 1 if not given."""
    facets = components.facet_names
    for name in given:
        if name not in facets:
            single = (
                "; every cell has a single score"
                if name == REPLICATE
                else did_you_mean(name, facets)
            )
            raise PlanError(
                f"{name!r} is not a facet of the random part{single}; facets are "
                f"{', '.join(facets)}",
                column=name,
            )
    above = {f: len(components.nested_in.get(f, ())) for f in facets}
    order = sorted(facets, key=lambda f: (f == REPLICATE, above[f]))
    sizes = {f: positive_number(f, given.get(f, 1), "the levels in one result") for f in order}
    return sizes if given else {}


def _product(sizes: Mapping[str, float]) -> str:
    """Return sizes in words."""
    return " × ".join(display.counted(n, facet) for facet, n in sizes.items())


def _laboratory(components: VarianceComponents, given: str | None) -> str | None:
    """Return the facet of laboratories: as given, or by its name."""
    if given is not None:
        return check_facet("laboratory", given, components)
    candidates = [f for f in components.facet_names if f.casefold() in _LABORATORIES]
    return candidates[0] if len(candidates) == 1 else None


def _conditions(
    components: VarianceComponents, laboratory: str | None
) -> dict[str, tuple[str, ...]]:
    """Return which components vary under each condition, from repeatability to all.

    Within a level of a facet all effects vary except those of this facet and of the facets that it
    is nested in.
    """
    nested = {f: frozenset(above) for f, above in components.nested_in.items()}
    everything = tuple(components.names)
    conditions: dict[str, tuple[str, ...]] = {REPEATABILITY: everything[-1:]}
    for facet in components.facet_names:
        if facet == REPLICATE:
            continue
        fixed = closure(frozenset({facet}), nested)
        terms = zip(components.names, components.facets, strict=True)
        varying = tuple(
            name for name, facets in terms if name == everything[-1] or not facets <= fixed
        )
        # CLSI's within-run precision is repeatability; here other crossed facets vary.
        words = "one" if facet.casefold() == "run" and len(varying) > 1 else "within"
        name = WITHIN_LABORATORY if facet == laboratory else f"{words}-{facet}"
        if varying != everything and (facet == laboratory or varying not in conditions.values()):
            conditions[name] = varying
    if laboratory is not None and conditions.get(WITHIN_LABORATORY) == everything[-1:]:
        del conditions[WITHIN_LABORATORY]
    last = WITHIN_LABORATORY if laboratory is None else REPRODUCIBILITY
    conditions[last] = everything
    return dict(sorted(conditions.items(), key=lambda item: len(item[1])))


def _renamed(
    conditions: dict[str, tuple[str, ...]], labels: Mapping[str, str] | None
) -> dict[str, tuple[str, ...]]:
    labels = {} if labels is None else labels
    if not isinstance(labels, Mapping):
        raise PlanError(f"labels must be a mapping of conditions to other names, not {labels!r}")
    for name in labels:
        said = "labels has {}, which is not a condition of this design; conditions are"
        check_known(name, conditions, said)
    renamed = {str(labels.get(name, name)): terms for name, terms in conditions.items()}
    if len(renamed) < len(conditions):
        raise PlanError("labels gives two conditions the same name")
    return renamed


def _mean(
    res: VarianceComponentsResults | PublishedComponents,
) -> tuple[float, str | None]:
    """Return the denominator of coefficients of variation, or why it is undefined."""
    if isinstance(res, PublishedComponents):
        if not res.mean.is_mean:
            return np.nan, "the mean is not known; give mean= with the published values"
        return _positive(float(res.mean.beta[0]))
    if record_of(res).exog_names != ("Intercept",):
        return np.nan, "the mean depends on the fixed part; they need a constant mean"
    sums = record_of(res).response_sums  # None of results stored by earlier versions
    return _positive(float(res.fe_params.iloc[0]) if sums is None else sums[0])


def _positive(mean: float) -> tuple[float, str | None]:
    if not mean > 0.0:
        return np.nan, f"the mean, {display.number(mean)}, is not above zero"
    return mean, None


def _replaced(rows: list[str], known: SummedComponents) -> list[str]:
    names = [name for name, other in zip(rows, known.replaced, strict=True) if other]
    if not names:
        return []
    why = "as Satterthwaite's has too few degrees of freedom"
    return [f"{', '.join(names)}: interval by modified large sample, {why}."]


def _table(rows: list[str], known: SummedComponents, mean: float, *, limit: bool) -> pd.DataFrame:
    import pandas as pd

    with np.errstate(invalid="ignore", divide="ignore"):
        df = 2.0 * np.square(known.values / known.se)
        sd, low, high = (np.sqrt(x) for x in (known.values, known.low, known.high))
    columns = {
        "variance": known.values, "se": known.se, "df": df, "sd": sd, "sd_low": low,
        "sd_high": high,
    }  # fmt: skip
    if not np.isnan(mean):
        columns |= {
            "cv": 100.0 * sd / mean,
            "cv_low": 100.0 * low / mean,
            "cv_high": 100.0 * high / mean,
        }
    if limit:
        columns["limit"] = _LIMIT * sd
    return pd.DataFrame(columns, index=pd.Index(rows, name="condition" if limit else "source"))


def _notes(
    res: VarianceComponentsResults | PublishedComponents, sources: pd.DataFrame, why: str | None
) -> list[str]:
    notes = []
    held = held_in_residual(res)
    if held is not None:
        notes.append(held)
    notes += _pooled(res)
    notes += _at_zero(res)
    if why is not None:
        notes.append(f"No coefficients of variation: {why}.")
    silent = [str(name) for name, low in sources["sd_low"].items() if np.isnan(low)]
    if isinstance(res, PublishedComponents) and res.components.cov is None:
        reason = res.reason or "give sizes= of all facets, replicate included"
        notes.append(f"No standard errors and intervals: {reason}.")
    elif silent:
        notes.append(
            f"{', '.join(silent)}: no interval, as the component is held or has no standard error."
        )
    return notes


def _at_zero(res: VarianceComponentsResults | PublishedComponents) -> list[str]:
    """Return a sentence on components at zero, whose degrees of freedom likelihoods pool."""
    if isinstance(res, PublishedComponents) or res.method not in ("reml", "ml"):
        return []
    components = components_of(res, "precision")
    values = zip(components.names[:-1], components.values, strict=False)
    zero = [f"σ²({n})" for n, value in values if value == 0.0 and n not in components.held]
    if not zero:
        return []
    are, their = ("is", "its") if len(zero) == 1 else ("are", "their")
    note = (
        f"{display.listed(zero)} {are} estimated at 0 by {res.method.upper()}, which pools "
        f"{their} degrees of freedom with those of finer sources, repeatability the finest; EP05 "
        "does not pool: vcomp.fit(…, method='anova') gives its estimates and degrees of freedom."
    )
    return [note]


def _pooled(res: VarianceComponentsResults | PublishedComponents) -> list[str]:
    """Return sentences on samples whose results are pooled, by the formula or by the results."""
    if isinstance(res, PublishedComponents):
        return []
    fixed = [name for name in parse(res.formula).fixed if name != "Intercept"]
    if fixed:
        of = display.listed(fixed)
        text = f"Standard deviations are means over all values of {of}. The precision of most "
        return [f"{text}methods depends on the concentration: fit each value of {of} by itself."]
    kept = kept_response(res)
    if kept is None or kept[0].size < _FEWEST_VALUES:
        return []
    y, cells = kept
    low, high = (int(share * (y.size - 1)) for share in _CENTRE)
    ordered = np.sort(y)
    centre = ordered[low : high + 1]
    gaps = np.diff(centre)
    k = int(gaps.argmax())
    n_above = np.bincount(cells, weights=y > centre[k])
    divided = (n_above > 0) & (n_above < np.bincount(cells))
    n_values = 1 + np.count_nonzero(np.diff(ordered))
    if n_values < _FEWEST_VALUES // 3 or not divided.any() or 2 * divided.sum() < divided.size:
        return []
    order = np.lexsort((y, cells))
    in_cell = np.diff(y[order])[np.diff(cells[order]) == 0]
    if not gaps[k] > _GAP * np.median(in_cell):
        return []
    below, above = (display.number(centre[k + step]) for step in (0, 1))
    text = f"Results fall into groups: none is between {below} and {above}. "
    return [f"{text}Precision is of one sample: if the groups are samples, fit each by itself."]
