"""What cannot be read in a log: named with its place, and refused or collected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vcomp.exceptions import DataError, VcompError

LARGEST = 1 << 30
"""Bytes of the longest line, and of the largest member of an archive once it is decompressed."""


@dataclass(frozen=True, slots=True)
class Damage:
    """UnreadableError samples of a file.

    Attributes
    ----------
    file : its name
    skip : whether they are collected; else the first one is an error
    named : where and why, sentences without a full stop
    """

    file: str
    skip: bool
    named: list[str] = field(default_factory=list)

    def add(self, place: str, why: str) -> None:
        """Add one, or refuse it.

        Raises
        ------
        DataError
            Naming the file and the place.
        """
        if not self.skip:
            raise DataError(
                f"{self.file!r}, {place}: {why}; repair the log, or read the rest "
                "with unreadable='skip' (of vcomp.evals.read), which counts and names such samples"
            )
        self.named.append(f"{place}: {why}")

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Add what cannot be read in the block."""
        try:
            yield
        except VcompError:
            raise
        except UNREADABLE as error:
            self.add(place, why_unreadable(error))


class UnreadableError(Exception):
    """A line, member or sample that is not as its format has it; the message says why."""


UNREADABLE = (
    UnreadableError,
    OSError,
    RecursionError,
    AttributeError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
)
"""Errors of readers at values that their format does not have at this place."""


def why_unreadable(error: BaseException) -> str:
    """Return the reason of such an error, a clause."""
    if isinstance(error, UnreadableError):
        return str(error)
    if isinstance(error, OSError | RecursionError):
        return f"it cannot be read ({error})"
    if isinstance(error, KeyError):
        return f"there is no {error.args[0]}"
    return f"it has a value that the format does not have there ({error})"


def parsed(text: bytes | str, *, is_object: bool = True) -> Any:
    """Return JSON, also with NaN and Infinity as some frameworks write them.

    Raises
    ------
    UnreadableError
        If it is not JSON, or not an object.
    """
    try:
        value = json.loads(text if isinstance(text, str) else str(text, "utf-8"))
    except json.JSONDecodeError as error:
        is_end = error.pos >= len(error.doc.rstrip()) or "Unterminated" in error.msg
        raise UnreadableError(
            "it ends within an object: the log is half-written or cut short"
            if is_end
            else f"it is not JSON ({error.msg}, character {error.pos + 1})"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"it is not JSON ({error})") from None
    if is_object and not isinstance(value, dict):
        raise UnreadableError(f"it is not an object but {_shown(value)}")
    return value


def place_in_json(text: bytes) -> str:
    """Return where a text stops being JSON, a clause."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return "it is JSON of no known format"


def mapping(value: Any, what: str) -> dict[str, Any]:
    """Return an object of a log.

    Raises
    ------
    UnreadableError
        If it is something else.
    """
    if not isinstance(value, dict):
        raise UnreadableError(f"{what} is not an object but {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
