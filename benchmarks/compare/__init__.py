"""The same models fitted by other programs."""

from benchmarks.compare.fit import PeerFit
from benchmarks.compare.lme4 import fit_lme4
from benchmarks.compare.mixedlm import fit_mixedlm_crossed, fit_mixedlm_one_way

__all__ = ["PeerFit", "fit_lme4", "fit_mixedlm_crossed", "fit_mixedlm_one_way"]
