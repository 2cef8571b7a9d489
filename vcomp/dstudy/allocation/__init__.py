"""Allocation: the best design for a budget, the cheapest for a target."""

from vcomp.dstudy.allocation.allocate import optimize
from vcomp.dstudy.allocation.cost import Cost
from vcomp.dstudy.allocation.result import AllocatedDesign, Allocation
from vcomp.dstudy.allocation.stability import Stability

__all__ = ["AllocatedDesign", "Allocation", "Cost", "Stability", "optimize"]
