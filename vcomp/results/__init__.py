"""What a fit gives back: a façade over small values, tables, printing and storage."""

from vcomp.results.results import VarianceComponentsResults

__all__ = ["VarianceComponentsResults"]
