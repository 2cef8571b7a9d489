"""The same models fitted by other programs."""

from benchmarks.compare.fit import PeerFit, agree_fits
from benchmarks.compare.fit_generalizit import fit_generalizit
from benchmarks.compare.lme4 import fit_lme4
from benchmarks.compare.mixedlm import fit_mixedlm_crossed, fit_mixedlm_one_way
from benchmarks.compare.vca import fit_vca

__all__ = [
    "PeerFit",
    "agree_fits",
    "fit_generalizit",
    "fit_lme4",
    "fit_mixedlm_crossed",
    "fit_mixedlm_one_way",
    "fit_vca",
]
