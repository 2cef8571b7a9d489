"""Classical test theory: how reliable a test is, and what its items contribute.

Everywhere **objects of measurement are rows and items are columns**, which is the transpose of the
topic × system matrices of :mod:`vcomp.ir`; long data have the names of their columns.
"""

from __future__ import annotations

from vcomp.ctt.alpha import cronbach_alpha
from vcomp.ctt.halves import SplitHalf, split_half
from vcomp.ctt.icc import icc
from vcomp.ctt.icc_result import IntraclassCorrelations
from vcomp.ctt.item_result import ItemAnalysis
from vcomp.ctt.items import item_analysis
from vcomp.ctt.lengthen import spearman_brown, spearman_brown_factor
from vcomp.ctt.reliability import reliability
from vcomp.ctt.reliability_result import Reliability

__all__ = [
    "IntraclassCorrelations",
    "ItemAnalysis",
    "Reliability",
    "SplitHalf",
    "cronbach_alpha",
    "icc",
    "item_analysis",
    "reliability",
    "spearman_brown",
    "spearman_brown_factor",
    "split_half",
]
