"""Errors and warnings of vcomp.

Every error that a user can cause is a :class:`VcompError`, which is a ``ValueError``. A doubt
about a result that is returned is a :class:`VcompWarning`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Real
from pathlib import Path

__all__ = [
    "DataError",
    "DesignError",
    "EstimationError",
    "FormulaError",
    "PlanError",
    "VcompError",
    "VcompWarning",
    "check_alpha",
    "did_you_mean",
    "warn",
]


_PACKAGE = str(Path(__file__).parent) + os.sep


class VcompError(ValueError):
    """An error that the caller can correct; the message says how."""


class FormulaError(VcompError):
    """The formula has a syntax error, or a term that is not supported."""


class DataError(VcompError):
    """The data lack what the formula needs, or cannot be read."""


class DesignError(VcompError):
    """The components of the model are not estimable from these data."""


class EstimationError(VcompError):
    """The method cannot estimate these components, or not within the available memory."""


class PlanError(VcompError):
    """A plan or an option of a D-study that the G-study or the function does not allow."""


class VcompWarning(UserWarning):
    """A result was returned, with a doubt or a limitation that the message states."""


def check_alpha(alpha: float) -> None:
    """Refuse an alpha that is not between 0 and 1: intervals have confidence 1 − alpha."""
    if not isinstance(alpha, Real) or isinstance(alpha, bool) or not 0.0 < alpha < 1.0:
        raise PlanError(
            f"alpha lies between 0 and 1, not at {alpha!r}; alpha=0.05 gives 95 % intervals"
        )


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the most similar known name as a question, or an empty text if none is similar.

    Examples
    --------
    >>> did_you_mean("topc", ["sys", "topic"])
    " (did you mean 'topic'?)"
    """
    by_folded = {k.casefold(): k for k in known}
    close = get_close_matches(str(name).casefold(), by_folded, n=1)
    return f" (did you mean {by_folded[close[0]]!r}?)" if close else ""


def warn(message: str) -> None:
    """Warn with the line of the caller's code, from any depth within the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, VcompWarning, stacklevel=level)
