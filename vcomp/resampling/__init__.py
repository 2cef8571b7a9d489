"""Data drawn again: replicates of a fit from its own components, and new responses."""

from vcomp.resampling.facet import facet_bootstrap
from vcomp.resampling.jackknife import Jackknife, Jackknifed
from vcomp.resampling.parametric import (
    Generating,
    likelihoods_under,
    parametric_bootstrap,
    positive_part,
)
from vcomp.resampling.refitted import Recipe
from vcomp.resampling.replicates import Replicates
from vcomp.resampling.responses import simulate_responses

__all__ = [
    "Generating",
    "Jackknife",
    "Jackknifed",
    "Recipe",
    "Replicates",
    "facet_bootstrap",
    "likelihoods_under",
    "parametric_bootstrap",
    "positive_part",
    "simulate_responses",
]
