"""Measures of the accuracy of a test collection, one a file.

Each has two verbs: ``actual(scores, truth)`` compares a collection with the truth, and
``estimate(scores, n_topics)`` says what to expect of collections of n topics.
"""

from __future__ import annotations

from vcomp.ir.measures.base import MeanMeasure, Measure, TopicMeasure
from vcomp.ir.measures.conflicts import MajorConflicts, MinorConflicts
from vcomp.ir.measures.d_rank import RankDistance
from vcomp.ir.measures.erho2 import GeneralizabilityCoefficient
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

__all__ = [
    "RMSE",
    "AbsoluteSensitivity",
    "AveragePValue",
    "DependabilityIndex",
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
