"""Classical test theory: how reliable a test is, and what its items contribute.

Everywhere **objects of measurement are rows and items are columns**, which is the transpose of the
topic × system matrices of :mod:`vcomp.ir`; long data have the names of their columns.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcomp.ctt.alpha import cronbach_alpha
    from vcomp.ctt.halves import SplitHalf, split_half
    from vcomp.ctt.icc_result import IntraclassCorrelations
    from vcomp.ctt.internal_consistency import reliability
    from vcomp.ctt.intraclass import icc
    from vcomp.ctt.item_result import ItemAnalysis
    from vcomp.ctt.items import item_analysis
    from vcomp.ctt.lengthen import spearman_brown, spearman_brown_factor
    from vcomp.ctt.reliability_result import Reliability

# Names are imported when they are first used, as in vcomp itself: missing cells need estimators.
_HOME = {
    "IntraclassCorrelations": "icc_result",
    "ItemAnalysis": "item_result",
    "Reliability": "reliability_result",
    "SplitHalf": "halves",
    "cronbach_alpha": "alpha",
    "icc": "intraclass",
    "item_analysis": "items",
    "reliability": "internal_consistency",
    "spearman_brown": "lengthen",
    "spearman_brown_factor": "lengthen",
    "split_half": "halves",
}

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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vcomp.ctt' has no attribute {name!r}")
    value = getattr(import_module(f"vcomp.ctt.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
