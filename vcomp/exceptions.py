"""What vcomp raises and warns.

Every mistake that a user can make is a :class:`VcompError`, which is a ``ValueError``; what may be
wrong with an answer that is given all the same is a :class:`VcompWarning`.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

__all__ = [
    "DataError",
    "DesignError",
    "EstimationError",
    "FormulaError",
    "PlanError",
    "VcompError",
    "VcompWarning",
    "warn",
]

_PACKAGE = str(Path(__file__).parent)


class VcompError(ValueError):
    """A mistake that the caller can mend; the message says how."""


class FormulaError(VcompError):
    """The formula cannot be read, or asks for what is not supported."""


class DataError(VcompError):
    """The data do not hold what the formula needs."""


class DesignError(VcompError):
    """The terms of the formula cannot be told apart with these data."""


class EstimationError(VcompError):
    """The components cannot be estimated by this method on this machine."""


class PlanError(VcompError):
    """A D-study asks for what the G-study cannot support."""


class VcompWarning(UserWarning):
    """An answer was given, and the reader should know something about it."""


def warn(message: str) -> None:
    """Warn with the line of the caller's code, however deep in the package the reason lies."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, VcompWarning, stacklevel=level)
