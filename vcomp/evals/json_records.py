"""JSON of logs: values, and documents whose records are decoded one after the other."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar


class UnreadableError(Exception):
    """A line, member or sample that is not as its format has it; the message says why."""


UNREADABLE = (
    UnreadableError,
    OSError,
    RecursionError,
    AttributeError,
    KeyError,
    NotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
)
"""Errors of readers at values that their format does not have at this place."""


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
        why = f"it is not JSON ({error.msg}, character {error.pos + 1})"
        raise UnreadableError(_ENDS_WITHIN if is_end else why) from None
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"it is not JSON ({error})") from None
    if is_object and not isinstance(value, dict):
        raise UnreadableError(f"it is not an object but {_shown(value)}")
    return value


Shortened: TypeAlias = "Callable[[str, int], tuple[list[tuple[str, str]], int]]"

Part = TypeVar("Part")
Value = TypeVar("Value")
Whole = TypeVar("Whole")

_FEW = 8
"""Items that are not worth to be read together."""


def attempted(together: Callable[[Value], Whole | None], items: Value) -> Whole | None:
    """Return what a function returns, or None if one of the items is unreadable."""
    with suppress(*UNREADABLE):
        return together(items)
    return None


def in_parts(
    items: list[Part], together: Callable[[list[Part]], Whole | None]
) -> Iterator[Whole | list[Part]]:
    """Yield what a function returns of all items; if it is None, of parts of them, or few items.

    Examples
    --------
    >>> list(in_parts([1] * 20 + ["x"] * 5, lambda some: None if "x" in some else sum(some)))
    [12, [1, 1, 1, 1, 1, 1], [1, 1, 'x', 'x', 'x', 'x', 'x']]
    """
    found = attempted(together, items) if len(items) >= _FEW else None
    if found is not None:
        yield found
    elif len(items) < _FEW:
        yield items
    else:
        half = len(items) // 2
        yield from in_parts(items[:half], together)
        yield from in_parts(items[half:], together)


def kind_of(value: Any) -> Any:
    """Return Arrow's type of values such as one of JSON, without the keys of an object."""
    import pyarrow as pa

    if isinstance(value, list):
        return pa.list_(kind_of(value[0] if value else None))
    return pa.struct([]) if isinstance(value, dict) else pa.scalar(value).type


def columns_of_lines(
    text: bytes, kinds: Mapping[str, Any], *, others: bool = False
) -> dict[str, Any] | None:
    """Return keys of objects as arrays; null where an object has no such key.

    Parameters
    ----------
    text : lines of an object each
    kinds : key → Arrow's type of its values
    others : whether the other keys are returned as well; each has values of one type

    Returns
    -------
    dict of pyarrow.Array or None
        None if a line is no object, or a value has another type
    """
    import pyarrow as pa
    from pyarrow import json as of_arrow

    n, longest = _objects(text)
    try:
        table = of_arrow.read_json(
            pa.BufferReader(text),
            of_arrow.ReadOptions(block_size=max(_BLOCK, 2 * longest)),
            of_arrow.ParseOptions(
                explicit_schema=pa.schema(list(kinds.items())),
                unexpected_field_behavior="infer" if others else "ignore",
            ),
        )
    except (pa.ArrowException, ValueError):
        return None
    if len(table) != n:
        return None
    return {name: table[name].combine_chunks() for name in table.column_names}


def _objects(text: bytes) -> tuple[int, int]:
    """Return how many lines there are if each begins and ends as an object, and the longest.

    An object cannot go on in such a line: between its objects there are commas. 0 lines if one
    is different.
    """
    n, longest, start, size = 0, 0, 0, len(text)
    while start < size:
        end = text.find(b"\n", start)
        end = size if end < 0 else end
        if text[start] != _OPENS or text[end - 1] != _CLOSES:
            return 0, size
        longest, n, start = max(longest, end - start), n + 1, end + 1
    return n, longest


_OPENS, _CLOSES = b"{}"

_BLOCK = 1 << 20
"""Bytes that a thread of Arrow parses."""

LONG_ARRAYS = (("samples",), ("results", "results"), ())
"""Keys under which documents of Inspect, promptfoo and HELM have their records."""


def records(
    pieces: Iterator[bytes], paths: Iterable[tuple[str, ...]], shortened: Shortened | None = None
) -> Generator[Any, None, Any]:
    """Yield the elements of long arrays of a document, and return the rest with empty ones.

    Only one element is in memory at a time.

    Parameters
    ----------
    pieces : of the text
    paths : keys under which there are arrays; () is a document that is an array
    shortened : returns elements from a place on, each without keys that are not read and whole,
        and the place of the first that has to be read. The texts are yielded for such elements

    Raises
    ------
    UnreadableError
        If it is not JSON, or if something follows the document.
    """
    text = _JsonText(pieces)
    rest = yield from _without_elements(text, list(paths), shortened)
    if text.next():
        raise UnreadableError("something follows the document")
    return rest


def first_value(pieces: Iterator[bytes], paths: Iterable[tuple[str, ...]]) -> Any:
    """Return the first value of a text with empty arrays at some keys; None without one."""
    values = _without_elements(_JsonText(pieces), list(paths))
    try:
        while True:
            next(values)
    except StopIteration as end:
        return end.value
    except (UnreadableError, ValueError):
        return None


def _without_elements(
    text: _JsonText, paths: list[tuple[str, ...]], shortened: Shortened | None = None
) -> Generator[Any, None, Any]:
    start = text.next()
    if start == "[" and () in paths:
        yield from text.elements(shortened)
        return []
    if start != "{" or not any(paths):
        return text.value()
    rest: dict[str, Any] = {}
    for _ in text.places("}"):
        key = text.value()
        if not isinstance(key, str) or text.next() != ":":
            raise UnreadableError("it is not JSON (a key is missing)")
        text.skip()
        inner = [path[1:] for path in paths if path and path[0] == key]
        rest[key] = (
            (yield from _without_elements(text, inner, shortened)) if inner else text.value()
        )
    return rest


class _JsonText:
    """JSON that is decoded one value after the other, also with NaN and Infinity."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._utf_8 = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at = "", 0
        self._decode = json.JSONDecoder().raw_decode

    def _longer(self) -> bool:
        """Add as much text as is left; return whether there was any."""
        parts = [self._text[self._at :]]
        size = least = len(parts[0])
        while size < 2 * least + 1 and (piece := next(self._pieces, b"")):
            parts.append(self._utf_8.decode(piece))
            size += len(piece)
        if len(parts) > 1:
            self._text, self._at = "".join(parts), 0
        return len(parts) > 1

    def next(self) -> str:
        """Return the next character that is not blank, without going on; "" at the end."""
        if self._at < len(self._text) and self._text[self._at] > " ":
            return self._text[self._at]
        while True:
            self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._longer():
                return ""

    def skip(self) -> None:
        """Go on by a character."""
        self._at += 1

    def value(self) -> Any:
        """Return the next value.

        Raises
        ------
        UnreadableError
            If it is not JSON.
        """
        if self._text[self._at : self._at + 1] <= " ":
            self.next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = error.pos + _LITERAL > len(self._text) or "Unterminated" in error.msg
                if not (is_cut and self._longer()):
                    why = _ENDS_WITHIN if is_cut else f"it is not JSON ({error.msg})"
                    raise UnreadableError(why) from None
                continue
            except (ValueError, RecursionError) as error:
                raise UnreadableError(f"it is not JSON ({error})") from None
            if end + 2 >= len(self._text) and self._longer():
                continue  # a number may go on, as by e-5
            self._at = end
            return value

    def elements(self, shortened: Shortened | None) -> Iterator[Any]:
        """Yield the elements of an array, and go over its end."""
        for _ in self.places("]"):
            if shortened is not None:
                yield from self._shortened(shortened)
            yield self.value()
            while shortened is None and self._text.startswith(",{", self._at):
                self._at += 1  # most often so, and quicker
                yield self.value()

    def _shortened(self, shortened: Shortened) -> Iterator[tuple[str, str]]:
        """Yield the texts of elements, up to one that has to be read whole."""
        while True:
            found, self._at = shortened(self._text, self._at)
            yield from found
            if len(self._text) - self._at > _SHORT or not self._longer():
                return

    def places(self, end: str) -> Iterator[None]:
        """Yield before each element of an array, or key of an object, and go over its end."""
        self.skip()
        mark = self.next()
        while mark != end:
            yield
            mark = self.next()
            if mark not in (",", end) or not mark:
                raise UnreadableError(
                    "it is not JSON (a comma is missing)" if mark else _ENDS_WITHIN
                )
            if mark == ",":
                self.skip()
        self.skip()


_BLANKS = re.compile(r"[ \t\n\r]*")

_LITERAL = 16
"""Characters of the longest name, such as -Infinity, or escape."""

_SHORT = 1 << 16
"""Characters of a text that may end before the end of the next element can be seen."""

_ENDS_WITHIN = "it ends within an object: the log is half-written or cut short"


def document_or_none(text: bytes | str) -> Any:
    """Return JSON of any length; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def place_in_json(text: bytes) -> str | None:
    """Return where a text stops being JSON, a clause; None if it is JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return None


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
