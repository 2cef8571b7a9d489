"""Measures of the accuracy of a test collection, one a file.

Each has two verbs: ``actual(scores, truth)`` compares a collection with the truth, and
``estimate(scores, n_topics)`` says what to expect of collections of n topics.
"""

from __future__ import annotations

from vcomp.ir.measures.base import MeanMeasure, Measure, TopicMeasure
from vcomp.ir.measures.registry import available, get
from vcomp.ir.measures.tau import Tau
from vcomp.ir.measures.tau_ap import TauAP

__all__ = ["MeanMeasure", "Measure", "Tau", "TauAP", "TopicMeasure", "available", "get"]
