"""How well quantities are known that are made of variance components."""

from vcomp.uncertainty.limits import FromComponents, IntervalSource, Limits
from vcomp.uncertainty.quantity import Quantities, Smooth

__all__ = ["FromComponents", "IntervalSource", "Limits", "Quantities", "Smooth"]
