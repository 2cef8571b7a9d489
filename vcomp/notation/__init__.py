"""Designs in Brennan's notation: facets, which of them are nested in which, and the effects."""

from vcomp.notation.brennan import Design, parse_design
from vcomp.notation.effects import Effect, design_effects, expected_mean_squares
from vcomp.notation.formula import design_formula

__all__ = [
    "Design",
    "Effect",
    "design_effects",
    "design_formula",
    "expected_mean_squares",
    "parse_design",
]
