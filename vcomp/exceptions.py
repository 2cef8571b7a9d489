"""What vcomp raises and warns.

Every mistake that a user can make is a :class:`VcompError`, which is a ``ValueError``; what may be
wrong with an answer that is given all the same is a :class:`VcompWarning`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Real
from pathlib import Path

_PACKAGE = str(Path(__file__).parent) + os.sep


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


def check_alpha(alpha: float) -> None:
    """Refuse an alpha that is not between 0 and 1: intervals have confidence 1 − alpha."""
    if not isinstance(alpha, Real) or isinstance(alpha, bool) or not 0.0 < alpha < 1.0:
        raise PlanError(
            f"alpha lies between 0 and 1, not at {alpha!r}; alpha=0.05 makes 95 % intervals"
        )


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the name that may have been meant, as a question, or nothing when none is near.

    Examples
    --------
    >>> did_you_mean("topc", ["sys", "topic"])
    " (did you mean 'topic'?)"
    """
    by_folded = {k.casefold(): k for k in known}
    close = get_close_matches(str(name).casefold(), by_folded, n=1)
    return f" (did you mean {by_folded[close[0]]!r}?)" if close else ""


def warn(message: str) -> None:
    """Warn with the line of the caller's code, however deep in the package the reason lies."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, VcompWarning, stacklevel=level)
