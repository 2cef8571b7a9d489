"""Designs in Brennan's notation: facets, and which of them are nested in which."""

from vcomp.notation.brennan import Design, parse_design

__all__ = ["Design", "parse_design"]
