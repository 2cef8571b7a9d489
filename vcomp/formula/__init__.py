"""Text → :class:`Formula`: patsy's own parser with `|` added, and patsy's design matrices."""

from vcomp.formula.fixed import FixedPart, build_fixed, caller_environment, evaluate, names_in
from vcomp.formula.parse import Formula, RandomTerm, parse

__all__ = [
    "FixedPart",
    "Formula",
    "RandomTerm",
    "build_fixed",
    "caller_environment",
    "evaluate",
    "names_in",
    "parse",
]
