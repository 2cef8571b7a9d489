"""Reliability of information retrieval experiments, from a topic × system matrix of scores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vcomp.ir.scores import ScoreMatrix, as_score_matrix

if TYPE_CHECKING:
    from vcomp.ir import measures
    from vcomp.ir.accuracies import accuracy
    from vcomp.ir.accuracy_result import Accuracy
    from vcomp.ir.assessors import AssessorLayout, AssessorLayouts
    from vcomp.ir.assessors_layouts import assessor_layouts
    from vcomp.ir.curve import AccuracyCurve
    from vcomp.ir.diagnosis import Diagnosis, diagnose
    from vcomp.ir.documents import DocumentUniverse
    from vcomp.ir.documents_read import document_universe
    from vcomp.ir.extrapolate import fit_curve
    from vcomp.ir.mapping import ReliabilityMap, map_dstudy, map_reliability
    from vcomp.ir.mapping_fit import fit_mapping
    from vcomp.ir.mapping_study import MappingStudy
    from vcomp.ir.perdoc import score_table, write_per_document
    from vcomp.ir.perdoc_sets import set_measures
    from vcomp.ir.perdoc_track import Track, novelty_like_track
    from vcomp.ir.read import read_trec_eval, score_runs
    from vcomp.ir.simulation import fit_collection
    from vcomp.ir.split_half_result import SplitHalfStudy
    from vcomp.ir.splitting import split_half
    from vcomp.ir.swaps import swap_rates
    from vcomp.ir.tau import expected_tau, expected_tau_ap

# Names are imported when they are first used: reading and coding of columns need kernels.
_HOME = {
    "Accuracy": "accuracy_result",
    "AccuracyCurve": "curve",
    "AssessorLayout": "assessors",
    "AssessorLayouts": "assessors",
    "Diagnosis": "diagnosis",
    "DocumentUniverse": "documents",
    "MappingStudy": "mapping_study",
    "ReliabilityMap": "mapping",
    "SplitHalfStudy": "split_half_result",
    "Track": "perdoc_track",
    "accuracy": "accuracies",
    "assessor_layouts": "assessors_layouts",
    "diagnose": "diagnosis",
    "document_universe": "documents_read",
    "expected_tau": "tau",
    "expected_tau_ap": "tau",
    "fit_collection": "simulation",
    "fit_curve": "extrapolate",
    "fit_mapping": "mapping_fit",
    "map_dstudy": "mapping",
    "map_reliability": "mapping",
    "novelty_like_track": "perdoc_track",
    "read_trec_eval": "read",
    "score_runs": "read",
    "score_table": "perdoc",
    "set_measures": "perdoc_sets",
    "split_half": "splitting",
    "swap_rates": "swaps",
    "write_per_document": "perdoc",
}

__all__ = [
    "Accuracy",
    "AccuracyCurve",
    "AssessorLayout",
    "AssessorLayouts",
    "Diagnosis",
    "DocumentUniverse",
    "MappingStudy",
    "ReliabilityMap",
    "ScoreMatrix",
    "SplitHalfStudy",
    "Track",
    "accuracy",
    "as_score_matrix",
    "assessor_layouts",
    "diagnose",
    "document_universe",
    "expected_tau",
    "expected_tau_ap",
    "fit_collection",
    "fit_curve",
    "fit_mapping",
    "map_dstudy",
    "map_reliability",
    "measures",
    "novelty_like_track",
    "read_trec_eval",
    "score_runs",
    "score_table",
    "set_measures",
    "split_half",
    "swap_rates",
    "write_per_document",
]


def __getattr__(name: str) -> Any:
    if name == "measures":
        return import_module("vcomp.ir.measures")
    if name not in _HOME:
        raise AttributeError(f"module 'vcomp.ir' has no attribute {name!r}")
    value = getattr(import_module(f"vcomp.ir.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
