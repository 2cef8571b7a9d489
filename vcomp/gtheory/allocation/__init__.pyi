from .allocate import optimize as optimize
from .result import Allocation as Allocation
