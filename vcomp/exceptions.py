"""Errors and warnings of vcomp.

User errors are :class:`VcompError`, a ``ValueError``; doubts about a result that is returned are
:class:`VcompWarning`.
"""

from __future__ import annotations

import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

_PACKAGE = str(Path(__file__).parent) + os.sep


_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that move the cursor, change a terminal, or reverse the text that follows."""


def visible(text: str) -> str:
    r"""Return text with control characters as escapes, as names in data may have them.

    Examples
    --------
    >>> print(visible("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


class VcompError(ValueError):
    """A user error; the message says how to correct it.

    Parameters
    ----------
    message : what is wrong, and what to do instead
    column : the column of the data at fault; None if there is none
    term : the term of the formula, or the component, at fault
    level : the level of a facet at fault

    Examples
    --------
    >>> import vcomp
    >>> try:
    ...     vcomp.fit("score ~ (1|topc)", {"topic": ["a", "b"], "score": [1, 2]})
    ... except vcomp.VcompError as error:
    ...     error.column, error.term, error.level
    ('topc', None, None)
    """

    def __init__(
        self, message: object = "", *, column: Any = None, term: Any = None, level: Any = None
    ) -> None:
        super().__init__(visible(str(message)))
        self.column = None if column is None else str(column)
        self.term = None if term is None else str(term)
        self.level = level


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


_Function = TypeVar("_Function", bound=Callable[..., Any])


def guarded(function: _Function) -> _Function:
    """Return a function that raises EstimationError where memory or Python's stack is exhausted.

    It decorates the public functions in which large data or a deep expression arrives.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except MemoryError as error:
            raise EstimationError(_out_of_memory(function.__name__, error)) from error
        except RecursionError as error:
            raise EstimationError(
                f"{function.__name__} needs more nested calls than Python allows: a formula, an "
                "expression or a stored value is too deeply nested; write it in smaller parts"
            ) from error

    return call  # type: ignore[return-value]


GUARDS = guarded(len).__code__
"""Code of the frames that :func:`guarded` puts between a caller and a public function."""


def is_address_space_limited() -> bool:
    """Return whether the process has a limit of address space (``ulimit -v``)."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _out_of_memory(name: str, error: MemoryError) -> str:
    """Return the message for a MemoryError, with the size that was requested."""
    size = f" ({error})" if str(error) else ""
    return (
        f"not enough memory for {name}{size}; read the rows in batches "
        "(stream=True), use fewer levels, terms or replicates, or give the process more memory "
        "(ulimit -v, or the limit of its container)"
    )


def is_real(value: object) -> TypeGuard[float]:
    """Return whether a value is a number, and not True or False.

    Examples
    --------
    >>> is_real(0.5), is_real(2), is_real(True), is_real("2")
    (True, True, False, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number by its type, and not True or False.

    Examples
    --------
    >>> is_whole(2), is_whole(2.0), is_whole(True)
    (True, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_alpha(alpha: float) -> None:
    """Check that alpha is between 0 and 1: intervals have confidence 1 − alpha."""
    if not is_real(alpha) or not 0.0 < alpha < 1.0:
        raise PlanError(
            f"alpha must be between 0 and 1, not {alpha!r}; alpha=0.05 gives 95 % intervals"
        )


def check_margin(margin: object) -> None:
    """Check that a margin is a difference above 0."""
    if not is_real(margin) or not 0.0 < margin < math.inf:
        raise PlanError(f"margin must be a difference above 0, not {margin!r}")


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


def check_known(
    name: object,
    known: Iterable[str],
    said: str,
    error: type[VcompError] = PlanError,
    *,
    quoted: bool = False,
    **where: Any,
) -> None:
    """Refuse a name that is not one of those known, with the closest one and a list of all.

    Parameters
    ----------
    name : that was given
    known : all names
    said : the message, with ``{}`` for the name; the closest name is put before its semicolon, and
        all names follow it
    error : class of the error
    quoted : whether all names are in quotes, as the given one is
    **where : column or term at fault

    Examples
    --------
    >>> check_known("tua", ["tau", "rmse"], "{} was not estimated; there are")
    Traceback (most recent call last):
        ...
    vcomp.exceptions.PlanError: 'tua' was not estimated (did you mean 'tau'?); there are tau, rmse
    """
    names = list(known)
    if not isinstance(name, str) or name not in names:
        what, _, these = said.partition("; ")
        listed = ", ".join(map(repr if quoted else str, names)) or "none"
        what = what.replace("{}", repr(name))
        raise error(f"{what}{did_you_mean(name, names)}; {these} {listed}", **where)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the closest known name as a question, empty if none is close.

    Examples
    --------
    >>> did_you_mean("topc", ["sys", "topic"])
    " (did you mean 'topic'?)"
    """
    from difflib import get_close_matches

    by_folded = {k.casefold(): k for k in known}
    close = get_close_matches(str(name).casefold(), by_folded, n=1)
    return f" (did you mean {by_folded[close[0]]!r}?)" if close else ""


def warn(message: str) -> None:
    """Issue a warning with the line of the code that called vcomp."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(visible(message), VcompWarning, stacklevel=level)
