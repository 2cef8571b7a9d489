"""Reliability of information retrieval experiments, from a topic × system matrix of scores."""

from __future__ import annotations

from vcomp.ir.curve import AccuracyCurve
from vcomp.ir.extrapolate import fit_curve
from vcomp.ir.scores import ScoreMatrix, as_score_matrix
from vcomp.ir.split_half import split_half
from vcomp.ir.split_half_result import SplitHalfStudy
from vcomp.ir.tau import expected_tau, expected_tau_ap

__all__ = [
    "AccuracyCurve",
    "ScoreMatrix",
    "SplitHalfStudy",
    "as_score_matrix",
    "expected_tau",
    "expected_tau_ap",
    "fit_curve",
    "split_half",
]
