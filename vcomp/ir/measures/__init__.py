"""Measures of the accuracy of a test collection, one a file.

Each has two verbs: ``actual(scores, truth)`` compares a collection with the truth, and
``estimate(scores, n_topics)`` says what to expect of collections of n topics: by a formula where
there is one, and from halves of the topics where there is none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vcomp.ir.measures.base import MeanMeasure, Measure, TopicMeasure

if TYPE_CHECKING:
    from vcomp.ir.measures.conflicts import MajorConflicts, MinorConflicts
    from vcomp.ir.measures.d_rank import RankDistance
    from vcomp.ir.measures.erho2 import GeneralizabilityCoefficient
    from vcomp.ir.measures.extrapolated import Extrapolated
    from vcomp.ir.measures.f_test import FTest
    from vcomp.ir.measures.p_value import AveragePValue
    from vcomp.ir.measures.phi import DependabilityIndex
    from vcomp.ir.measures.power_ratio import PowerRatio
    from vcomp.ir.measures.registry import available, get
    from vcomp.ir.measures.rmse import RMSE
    from vcomp.ir.measures.sensitivity import AbsoluteSensitivity, RelativeSensitivity
    from vcomp.ir.measures.swap_rate import SwapRate
    from vcomp.ir.measures.tau import Tau
    from vcomp.ir.measures.tau_ap import TauAP

# Names are imported when they are first used: halves of a collection are measured by what all
# measures have in common, and some measures are estimated from halves.
_HOME = {
    "RMSE": "rmse",
    "AbsoluteSensitivity": "sensitivity",
    "AveragePValue": "p_value",
    "DependabilityIndex": "phi",
    "Extrapolated": "extrapolated",
    "FTest": "f_test",
    "GeneralizabilityCoefficient": "erho2",
    "MajorConflicts": "conflicts",
    "MinorConflicts": "conflicts",
    "PowerRatio": "power_ratio",
    "RankDistance": "d_rank",
    "RelativeSensitivity": "sensitivity",
    "SwapRate": "swap_rate",
    "Tau": "tau",
    "TauAP": "tau_ap",
    "available": "registry",
    "get": "registry",
}

__all__ = [
    "RMSE",
    "AbsoluteSensitivity",
    "AveragePValue",
    "DependabilityIndex",
    "Extrapolated",
    "FTest",
    "GeneralizabilityCoefficient",
    "MajorConflicts",
    "MeanMeasure",
    "Measure",
    "MinorConflicts",
    "PowerRatio",
    "RankDistance",
    "RelativeSensitivity",
    "SwapRate",
    "Tau",
    "TauAP",
    "TopicMeasure",
    "available",
    "get",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vcomp.ir.measures' has no attribute {name!r}")
    value = getattr(import_module(f"vcomp.ir.measures.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
