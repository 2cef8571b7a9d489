"""Shared parts of studies: record of a comparison, plans, options of fits, and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError, PlanError
from vcomp.formula import REPLICATE
from vcomp.gtheory import CoefficientName, DStudy, Requirement, check_requirement
from vcomp.inference.intervals import FromComponents
from vcomp.model import VarianceComponentsResults

if TYPE_CHECKING:
    import pandas as pd

COEFFICIENTS: tuple[CoefficientName, ...] = ("Erho2", "Phi")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ComparisonRecord:
    """Fits and D-studies of several measures, the source of tables and differences.

    Attributes
    ----------
    results : the fit of each measure, by name
    studies : its D-study
    labels : the columns that distinguish it from others, empty where it has its name only
    failures : measures that could not be fitted, with the reason
    goal : of the coefficients in required sizes
    facet : whose size is required, as given
    alpha : intervals have confidence 1 − alpha
    """

    results: Mapping[str, VarianceComponentsResults]
    studies: Mapping[str, DStudy]
    labels: Mapping[str, Mapping[str, Any]]
    failures: Mapping[str, str]
    goal: float
    facet: str | None
    alpha: float


def required_facet(study: DStudy, goal: float, facet: str | None) -> str | None:
    """Return the facet of the required size; None if several have sizes and none is given.

    Parameters
    ----------
    study : whose plan has the facets
    goal : of the coefficients
    facet : as given

    Raises
    ------
    PlanError
        If the goal or the facet is invalid.

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
    >>> required_facet(study, 0.95, None)
    'i'
    """
    plan = study.plan
    free = [f for f in plan.facets if f not in plan.universe.fixed]
    named = [f for f in free if f != REPLICATE] or free
    if facet is None and not named:
        return None
    found = check_requirement(plan, goal, COEFFICIENTS[0], facet or named[0])
    return found if facet is not None or len(named) == 1 else None


def options_of_fit(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the additional arguments of the fits.

    Parameters
    ----------
    given : by name, or None

    Raises
    ------
    EstimationError
        If it is not a mapping.

    Examples
    --------
    >>> options_of_fit({"max_iter": 50})
    {'max_iter': 50}
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise EstimationError(
            "options must be a mapping of arguments of fit(), such as {'max_iter': 50}, not "
            f"{given!r}"
        )
    return dict(given)


def planned(
    res: VarianceComponentsResults, dstudy: Mapping[str, Any] | None, alpha: float
) -> DStudy:
    """Return the D-study of one plan.

    Raises
    ------
    PlanError
        If the plan is invalid, there are several, or the arguments are not a mapping.
    """
    if dstudy is not None and not isinstance(dstudy, Mapping):
        raise PlanError(
            f"dstudy must be a mapping of arguments of res.dstudy(), such as {{'topic': 50}}, not "
            f"{dstudy!r}"
        )
    study = res.dstudy(**{"alpha": alpha, **(dstudy or {})})
    if len(study.plan) != 1:
        raise PlanError(
            f"the coefficients of subsets are for one plan, and dstudy= has {len(study.plan)}; "
            "with_plan() gives those of other plans without new fits"
        )
    return study


DifferenceInterval: TypeAlias = Literal["mover", "robust", "bootstrap"]


@dataclass(frozen=True, slots=True, eq=False)
class EstimateEnds:
    """Estimates of one measure with interval ends, (m,) each."""

    estimate: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MeasureDifferences(display.Printed):
    """Differences or ratios of pairs of measures; ``print`` shows a table.

    Attributes
    ----------
    table : a row for each pair and plan: ``first``, ``second``, the sizes, ``difference`` (or
        ``ratio``), ``low`` and ``high``, ``correlation`` of the two estimates (0 for measures that
        share no level; nan if it is not known, in which case 0 is used)
    what : the compared quantity, in words
    alpha : each interval separately has confidence 1 − alpha
    interval_method : how the intervals were made
    notes : remarks on the intervals
    """

    table: pd.DataFrame
    what: str
    alpha: float
    interval_method: str
    notes: tuple[str, ...] = ()

    def summary(self) -> Any:
        """Return a printable summary.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        table = self.table
        value = "ratio" if "ratio" in table else "difference"
        sizes = table.columns[2 : table.columns.get_loc(value)]
        sign = " / " if value == "ratio" else " − "
        pairs = zip(table["first"], table["second"], strict=True)
        ends = zip(table["low"], table["high"], strict=True)
        cells = {
            "": [sign.join(pair) for pair in pairs],
            **{size: [display.count(n) for n in table[size]] for size in sizes},
            value: display.fixed(table[value], decimals=3),
            f"{display.level(self.alpha)} interval": [_interval(*pair) for pair in ends],
            "correlation": display.fixed(table["correlation"], decimals=2),
        }
        page = display.column_table(cells, title=self.what, align="lr")
        return display.summary([page], [f"Intervals: {self.interval_method}.", *self.notes])

    def __repr__(self) -> str:
        return f"<MeasureDifferences: {self.what}, {len(self.table)} rows>"


def _interval(low: float, high: float) -> str:
    unknown = np.isnan(low) or np.isnan(high)
    return display.MISSING if unknown else f"[{', '.join(display.fixed([low, high], decimals=3))}]"


def mover(
    first: EstimateEnds, second: EstimateEnds, r: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return confidence limits of differences between estimates by MOVER.

    Parameters
    ----------
    first, second : the estimates
    r : (m,) their correlations

    Returns
    -------
    low, high : (m,) nan where an interval is not known

    Examples
    --------
    >>> a = EstimateEnds(np.array([0.9]), np.array([0.8]), np.array([0.95]))
    >>> b = EstimateEnds(np.array([0.7]), np.array([0.6]), np.array([0.8]))
    >>> low, high = mover(a, b, np.array([0.0]))
    >>> low.round(4), high.round(4)
    (array([0.0586]), array([0.3118]))
    """
    with np.errstate(invalid="ignore"):
        difference = first.estimate - second.estimate
        below = _length(first.estimate - first.low, second.high - second.estimate, r)
        above = _length(first.high - first.estimate, second.estimate - second.low, r)
        return difference - below, difference + above


def _length(a: FloatArray, b: FloatArray, r: FloatArray) -> FloatArray:
    """Return √(a² + b² − 2rab), infinite where a or b is."""
    with np.errstate(invalid="ignore"):  # of ∞ − ∞
        square = np.maximum(np.square(a) + np.square(b) - 2.0 * r * a * b, 0.0)
    return np.where(np.isinf(a) | np.isinf(b), np.inf, np.sqrt(square))


def pairs_table(
    names: list[str],
    known: dict[str, EstimateEnds],
    correlation: dict[tuple[str, str], FloatArray],
    sizes: dict[str, FloatArray],
    *,
    ratio: bool,
) -> pd.DataFrame:
    """Return a row for each pair and plan.

    Parameters
    ----------
    names : of the measures
    known : by name; logarithms if ratios are compared
    correlation : by pair of names, (m,)
    sizes : of the m plans, by facet
    ratio : whether ratios are compared
    """
    import pandas as pd

    rows = []
    for a, b in combinations(names, 2):
        r = correlation[a, b]
        low, high = mover(known[a], known[b], np.where(np.isnan(r), 0.0, r))
        with np.errstate(invalid="ignore"):  # no size is enough for either
            difference = known[a].estimate - known[b].estimate
        if ratio:
            difference, low, high = np.exp(difference), np.exp(low), np.exp(high)
        columns = {"ratio" if ratio else "difference": difference, "low": low, "high": high}
        pair: dict[str, Any] = {"first": a, "second": b, **sizes, **columns, "correlation": r}
        rows.append(pd.DataFrame(pair, index=range(r.size)))
    return pd.concat(rows, ignore_index=True)


def side_by_side(compared: ComparisonRecord) -> pd.DataFrame:
    """Return a row for each measure and plan.

    Parameters
    ----------
    compared : the measures
    """
    import pandas as pd

    frames = []
    for name, res in compared.results.items():
        study = compared.studies[name]
        table = study.table
        sizes = list(study.plan.facets)
        shares = res.gstudy(compared.alpha)["percent"] / 100.0
        facet = required_facet(study, compared.goal, compared.facet)
        first = {"measure": name, **compared.labels[name], "nobs": res.nobs}
        parts = [
            pd.DataFrame(first, index=table.index),
            table[sizes],
            pd.DataFrame({f"share({c})": x for c, x in shares.items()}, index=table.index),
            table.drop(columns=sizes),
        ]
        if facet is not None:
            parts.append(_required(study, compared.goal, facet))
        frames.append(pd.concat(parts, axis=1))
    return pd.concat(frames, ignore_index=True)


def components_table(compared: ComparisonRecord) -> pd.DataFrame:
    """Return a row for each measure and component.

    Parameters
    ----------
    compared : the measures
    """
    import pandas as pd

    frames = []
    for name, res in compared.results.items():
        source = compared.studies[name].source
        # By name: a D-study replaces negative components by zero.
        how = source.interval if isinstance(source, FromComponents) else source
        table = res.gstudy(compared.alpha, how)
        first = {"measure": name, **compared.labels[name], "component": table.index}
        frames.append(pd.concat([pd.DataFrame(first), table.reset_index(drop=True)], axis=1))
    return pd.concat(frames, ignore_index=True)


def requirements(
    study: DStudy, goal: float, facet: str, coefficient: CoefficientName
) -> list[Requirement]:
    """Return the required size of a facet for each plan of the other sizes.

    Parameters
    ----------
    study : of the plans
    goal : of the coefficient
    facet : whose size is required
    coefficient : ``"Erho2"`` or ``"Phi"``
    """
    plan = study.plan
    others = [k for k, f in enumerate(plan.facets) if f != facet]
    known: dict[tuple[float, ...], Requirement] = {}
    found = []
    for row in range(len(plan)):
        held = tuple(plan.sizes[row, others].tolist())
        if held not in known:
            known[held] = replace(study, plan=plan.alone(row)).required(goal, coefficient, facet)
        found.append(known[held])
    return found


def _required(study: DStudy, goal: float, facet: str) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {"facet": facet}
    for coefficient in COEFFICIENTS:
        found = requirements(study, goal, facet, coefficient)
        for ending, attribute in (("", "n"), ("_low", "low"), ("_high", "high")):
            numbers = [float(getattr(r, attribute)) for r in found]
            columns[f"n_{coefficient}{ending}"] = _whole(numbers)
    return pd.DataFrame(columns, index=range(len(study.plan)))


def _whole(numbers: list[float]) -> Any:
    """Return numbers as integers if all are finite."""
    values = np.array(numbers)
    return values.astype(np.int64) if all(map(math.isfinite, numbers)) else values
