"""Data drawn again: replicates of a fit from its own components, and new responses."""

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
    "Recipe",
    "Replicates",
    "likelihoods_under",
    "parametric_bootstrap",
    "positive_part",
    "simulate_responses",
]
