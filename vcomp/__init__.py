"""Variance components, and what they mean for the test.

>>> import vcomp
>>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
>>> res.dstudy(topic=50).table["Erho2"].round(2).item()
0.99
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcomp import ctt, datasets, io, ir, presets, simulate
    from vcomp.accumulated import AccumulatedStatistics, accumulate
    from vcomp.api import compare, fit, gstudy
    from vcomp.components import VarianceComponents
    from vcomp.ctt import (
        cronbach_alpha,
        icc,
        item_analysis,
        reliability,
        spearman_brown,
        spearman_brown_factor,
        split_half_reliability,
    )
    from vcomp.dstudy import Cost, Counts, DStudy, from_components
    from vcomp.exceptions import (
        DataError,
        DesignError,
        EstimationError,
        FormulaError,
        PlanError,
        VcompError,
        VcompWarning,
    )
    from vcomp.model import VarianceComponentsModel
    from vcomp.multivariate import MultivariateResults, fit_multivariate
    from vcomp.results import VarianceComponentsResults
    from vcomp.studies import compare_measures, per_document_study, subsample_study

__version__ = "0.1.0"

# Names are imported when they are first used: `import vcomp` costs little more than Python itself.
_HOME = {
    "AccumulatedStatistics": "vcomp.model.accumulated",
    "Cost": "vcomp.gtheory",
    "Counts": "vcomp.gtheory",
    "DStudy": "vcomp.gtheory",
    "DataError": "vcomp.exceptions",
    "DesignError": "vcomp.exceptions",
    "EstimationError": "vcomp.exceptions",
    "FormulaError": "vcomp.exceptions",
    "MultivariateResults": "vcomp.multivariate",
    "PlanError": "vcomp.exceptions",
    "VarianceComponents": "vcomp.inference.components",
    "VarianceComponentsModel": "vcomp.model.model",
    "VarianceComponentsResults": "vcomp.model",
    "VcompError": "vcomp.exceptions",
    "VcompWarning": "vcomp.exceptions",
    "accumulate": "vcomp.model.accumulated",
    "compare": "vcomp.api",
    "compare_measures": "vcomp.studies",
    "cronbach_alpha": "vcomp.ctt",
    "fit": "vcomp.api",
    "fit_multivariate": "vcomp.multivariate",
    "from_components": "vcomp.gtheory",
    "gstudy": "vcomp.api",
    "icc": "vcomp.ctt",
    "item_analysis": "vcomp.ctt",
    "per_document_study": "vcomp.studies",
    "reliability": "vcomp.ctt",
    "spearman_brown": "vcomp.ctt",
    "spearman_brown_factor": "vcomp.ctt",
    "split_half_reliability": "vcomp.ctt",
    "subsample_study": "vcomp.studies",
}
_SUBMODULES = ("ctt", "datasets", "io", "ir", "presets", "simulate")

__all__ = [
    "AccumulatedStatistics",
    "Cost",
    "Counts",
    "DStudy",
    "DataError",
    "DesignError",
    "EstimationError",
    "FormulaError",
    "MultivariateResults",
    "PlanError",
    "VarianceComponents",
    "VarianceComponentsModel",
    "VarianceComponentsResults",
    "VcompError",
    "VcompWarning",
    "accumulate",
    "compare",
    "compare_measures",
    "cronbach_alpha",
    "ctt",
    "datasets",
    "fit",
    "fit_multivariate",
    "from_components",
    "gstudy",
    "icc",
    "io",
    "ir",
    "item_analysis",
    "per_document_study",
    "presets",
    "reliability",
    "simulate",
    "spearman_brown",
    "spearman_brown_factor",
    "split_half_reliability",
    "subsample_study",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _SUBMODULES:
        value = import_module(f"vcomp.{name}")
    else:
        raise AttributeError(f"module 'vcomp' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
