from .allocate import optimize as optimize
from .cost import Cost as Cost
from .result import Allocation as Allocation
