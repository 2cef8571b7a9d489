"""Classical test theory: how reliable a test is, and what its items contribute.

Everywhere **objects of measurement are rows and items are columns**, which is the transpose of the
topic × system matrices of :mod:`vcomp.ir`; long data have the names of their columns. The code is
in :mod:`vcomp.studies`.
"""

from vcomp.studies import (
    IntraclassCorrelations,
    ItemAnalysis,
    Reliability,
    SplitHalf,
    cronbach_alpha,
    icc,
    item_analysis,
    reliability,
    spearman_brown,
    spearman_brown_factor,
    split_half_reliability,
)

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
    "split_half_reliability",
]
