"""Errors and warnings of vcomp.

User errors are :class:`VcompError`, a ``ValueError``; doubts about a result that is returned are
:class:`VcompWarning`.
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
    """A user error; the message says how to correct it."""


class FormulaError(VcompError):
    """The formula cannot be read, or contains something that is not supported."""


class DataError(VcompError):
    """The data do not contain what the formula needs."""


class DesignError(VcompError):
    """The data cannot distinguish the terms of the formula."""


class EstimationError(VcompError):
    """The components cannot be estimated by this method on this machine."""


class PlanError(VcompError):
    """A D-study that the G-study does not support."""


class VcompWarning(UserWarning):
    """A doubt about a result that is returned."""


def check_alpha(alpha: float) -> None:
    """Check that alpha is between 0 and 1: intervals have confidence 1 − alpha."""
    if not isinstance(alpha, Real) or isinstance(alpha, bool) or not 0.0 < alpha < 1.0:
        raise PlanError(
            f"alpha must be between 0 and 1, not {alpha!r}; alpha=0.05 gives 95 % intervals"
        )


def check_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse a value of an option that is not one of those allowed.

    Raises
    ------
    PlanError
        Naming the option and its allowed values.
    """
    if not isinstance(value, str) or value not in known:
        listed = ", ".join(map(repr, known[:-1])) + f" or {known[-1]!r}"
        raise PlanError(f"{name} must be {listed}, not {value!r}{did_you_mean(value, known)}")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the closest known name as a question, empty if none is close.

    Examples
    --------
    >>> did_you_mean("topc", ["sys", "topic"])
    " (did you mean 'topic'?)"
    """
    by_folded = {k.casefold(): k for k in known}
    close = get_close_matches(str(name).casefold(), by_folded, n=1)
    return f" (did you mean {by_folded[close[0]]!r}?)" if close else ""


def warn(message: str) -> None:
    """Issue a warning with the line of the code that called vcomp."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, VcompWarning, stacklevel=level)
