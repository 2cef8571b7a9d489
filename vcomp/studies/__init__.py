"""Studies that fit many times: measures beside each other, and random parts of the data."""

from vcomp.studies.compare import compare_measures
from vcomp.studies.comparison import MeasureComparison
from vcomp.studies.differences import MeasureDifferences
from vcomp.studies.per_document import per_document_study
from vcomp.studies.subsample import subsample_study
from vcomp.studies.subsample_result import SubsampleStudy

__all__ = [
    "MeasureComparison",
    "MeasureDifferences",
    "SubsampleStudy",
    "compare_measures",
    "per_document_study",
    "subsample_study",
]
