"""The measures by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from vcomp._plugins import plugin, plugin_names, refused
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.ir.agreement import MeanMeasure, Measure, TopicMeasure
from vcomp.ir.measures.anova_f import FTest
from vcomp.ir.measures.conflicts import MajorConflicts, MinorConflicts
from vcomp.ir.measures.d_rank import RankDistance
from vcomp.ir.measures.erho2 import GeneralizabilityCoefficient
from vcomp.ir.measures.p_value import AveragePValue
from vcomp.ir.measures.phi import DependabilityIndex
from vcomp.ir.measures.power_ratio import PowerRatio
from vcomp.ir.measures.rmse import RMSE
from vcomp.ir.measures.sensitivity import AbsoluteSensitivity, RelativeSensitivity
from vcomp.ir.measures.swap_rate import SwapRate
from vcomp.ir.measures.tau import Tau
from vcomp.ir.measures.tau_ap import TauAP

__all__ = [
    "MEASURES",
    "MeanMeasure",
    "Measure",
    "TopicMeasure",
    "available",
    "get",
    "several",
]


MEASURES: dict[str, type[Measure]] = {
    kind.name: kind
    for kind in (
        Tau,
        TauAP,
        AbsoluteSensitivity,
        RelativeSensitivity,
        PowerRatio,
        MinorConflicts,
        MajorConflicts,
        RMSE,
        SwapRate,
        AveragePValue,
        GeneralizabilityCoefficient,
        DependabilityIndex,
        FTest,
        RankDistance,
    )
}


def available() -> list[str]:
    """Return the names of all measures, built-in ones first.

    Examples
    --------
    >>> available()[:2]
    ['tau', 'tau_ap']
    """
    return list(dict.fromkeys([*MEASURES, *plugin_names("measures")]))


def get(name: str | Measure, **options: Any) -> Measure:
    """Return the measure of this name.

    Parameters
    ----------
    name : one of :func:`available`; or a measure, returned as it is
    options : its fields

    Returns
    -------
    Measure

    Raises
    ------
    PlanError
        If there is no measure of this name, or it has no such option.

    Examples
    --------
    >>> get("tau", variant="a")
    Tau(variant='a')
    >>> get("kendall")
    Traceback (most recent call last):
    ...
    vcomp.exceptions.PlanError: no measure 'kendall'; there are tau, tau_ap...
    """
    if isinstance(name, Measure):
        if options:
            raise PlanError(f"{name!r} has its options already: leave out {', '.join(options)}")
        return name
    kind = MEASURES.get(str(name)) or plugin("measures", str(name))
    if kind is None:
        known = available()
        raise PlanError(
            f"no measure {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}"
        )
    if not (isinstance(kind, type) and issubclass(kind, Measure)):
        raise refused("measures", str(name), "a class derived from Measure")
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            has = f"; it has {', '.join(known)}" if known else "; it has none"
            raise PlanError(
                f"{kind.name!r} has no option {option!r}{did_you_mean(option, known)}{has}"
            )
    return kind(**options)


def several(given: str | Measure | Iterable[str | Measure]) -> tuple[Measure, ...]:
    """Return the distinct measures in the requested order.

    Raises
    ------
    PlanError
        If there is none, or one is unknown.

    Examples
    --------
    >>> several(["tau", "rmse", "tau"])
    (Tau(variant='b'), RMSE())
    """
    names: list[Any] = [given]
    if isinstance(given, Iterable) and not isinstance(given, str):
        names = list(given)
    if not names:
        raise PlanError("no measure is given")
    return tuple(dict.fromkeys(get(name) for name in names))
