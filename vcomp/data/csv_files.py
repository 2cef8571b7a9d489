"""CSV files as parts: separator and header found out, types the same however they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vcomp.data.parts import Part, arrow_part, guarded, reason
from vcomp.exceptions import DataError

__all__ = [
    "csv_file",
]


_EXACT = 2.0**53
"""Whole numbers from here on are not all floats."""

_PACKED = 5.0
"""How many times larger a packed file is when it is not."""

_FIELD = 4.0
"""Bytes of a short field with its separator: files have no more rows than this says, nearly."""

_BLOCK_BYTES = 1 << 21
"""What is parsed at a time; Arrow reads some forty blocks ahead."""


def csv_file(path: Path, name: str) -> Part:
    """Return a CSV file as a part, by Arrow's reader, which takes no row of another length.

    Raises
    ------
    DataError
        If it is no text, or has no header.
    """
    is_tabbed = any(suffix.lower() in (".tsv", ".tab") for suffix in path.suffixes)
    file = _CSV(path, name, _separator(path, name, "\t" if is_tabbed else ","))
    if _is_packed(path):
        file.check_whole()
    columns = file.columns()

    def read(names: list[str]) -> Any:
        table = file.read(names)
        rounded = [n for n in names if _are_rounded([table.column(n)])]
        if rounded:
            table = file.read(names, dict.fromkeys(rounded, "string"))
        file.check_text(table.schema)
        return table.select(names)

    types: dict[str, Any] = {}

    def batches(names: list[str], rows: int) -> Iterator[Any]:
        new = [n for n in names if n not in types]
        if new:
            types.update(_scanned_types(file, columns, new))
        wanted = {n: types[n] for n in names}
        yield from (batch.select(names) for batch in file.blocks(wanted))

    def estimate() -> float:
        size = path.stat().st_size
        return size * (_PACKED if _is_packed(path) else 1.0) / (_FIELD * len(columns))

    return arrow_part(name, columns, read, batches, rows_to_come=estimate, files=(path,))


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() in (".gz", ".bz2", ".zst")


class _CSV:
    """A file, and how its fields are separated."""

    def __init__(self, path: Path, name: str, separator: str) -> None:
        self._path, self._name, self._separator = path, name, separator

    def check_whole(self) -> None:
        """Unpack a packed file once: Arrow, reading ahead, may wait for ever for a lost end."""
        import pyarrow as pa

        try:
            with pa.input_stream(str(self._path)) as stream:
                while stream.read(_BLOCK_BYTES):
                    pass
        except (pa.ArrowException, OSError) as error:
            raise self.refused(error) from None

    def columns(self) -> tuple[str, ...]:
        """Return the names of the header; nothing below the first block is read."""
        try:
            with self._open() as reader:
                return tuple(reader.schema.names)
        except UnicodeDecodeError:
            raise _not_text(self._name) from None
        except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
            raise self.refused(error) from None

    def read(self, names: Sequence[str], types: Mapping[str, Any] | None = None) -> Any:
        """Read all rows."""
        from pyarrow.csv import read_csv

        options = {"convert_options": _convert(names, types), "parse_options": self._parse()}
        try:
            return read_csv(self._path, **options)
        except (ValueError, OSError) as error:
            raise self.refused(error) from None

    def blocks(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """Read a block of rows at a time."""
        yield from guarded(self.raw_blocks(types), self.refused)

    def first_types(self, names: Sequence[str], types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the types that the first block has, unless they are given."""
        with self._open(_convert(names, types)) as reader:
            return {field.name: field.type for field in reader.schema}

    def raw_blocks(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """Read a block of rows at a time; errors are Arrow's."""
        with self._open(_convert(list(types), types)) as reader:
            yield from reader

    def check_text(self, schema: Any) -> None:
        """Refuse bytes that are no text in UTF-8."""
        if any(str(field.type) == "binary" for field in schema):
            raise _not_text(self._name)

    def refused(self, error: BaseException) -> DataError:
        """Return an error of Arrow's in our words."""
        said = reason(error).removeprefix("CSV parse error: ")
        if "Empty CSV" in said:
            return DataError(
                f"{self._name!r} is empty: it has no header, or a header and nothing else"
            )
        if "\ufffd" in str(error) or not "".join(str(error).split()).isprintable():
            return _not_text(self._name)
        if "invalid UTF8" in said:
            return _not_text(self._name)
        if "Truncated compressed" in said or "end-of-stream" in said:
            return DataError(
                f"{self._name!r} is cut short: its end cannot be read; copy or write it again"
            )
        return DataError(f"{self._name!r} cannot be read as CSV: {said}")

    def _parse(self) -> Any:
        from pyarrow.csv import ParseOptions

        return ParseOptions(delimiter=self._separator, newlines_in_values=True)

    def _open(self, convert: Any = None) -> Any:
        from pyarrow.csv import ReadOptions, open_csv

        return open_csv(
            self._path,
            read_options=ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=self._parse(),
            convert_options=convert,
        )


def _convert(names: Sequence[str], types: Mapping[str, Any] | None) -> Any:
    from pyarrow.csv import ConvertOptions

    return ConvertOptions(
        include_columns=list(names), strings_can_be_null=True, column_types=types
    )


# Types -----------------------------------------------------------------------------------------


def _scanned_types(file: _CSV, columns: Sequence[str], names: list[str]) -> dict[str, Any]:
    """Find the types that hold of all rows: those that reading the whole file would find.

    Arrow takes the types of the first block for those of all. Here a column that a later block
    does not fit gets the next type that Arrow would try, and the file is read from the start.
    """
    import pyarrow as pa

    given: dict[str, Any] = {}
    types: dict[str, Any] = {}
    while True:
        try:
            types = file.first_types(names, given)
            rounded = _rounded_columns(file, types)
            break
        except (ValueError, OSError) as error:
            found = re.search(r"In CSV column #(\d+):.*conversion error", str(error))
            name = columns[int(found[1])] if found else ""
            following = _next_type((types | given).get(name))
            if following is None:
                raise file.refused(error) from None
            given[name] = following
    types |= dict.fromkeys(rounded, pa.string())
    file.check_text(pa.schema(list(types.items())))
    return types


def _next_type(kind: Any) -> Any:
    """Return what Arrow tries when a value is not of this type; None after text or nothing."""
    import pyarrow as pa

    order = [
        pa.null(),
        pa.int64(),
        pa.bool_(),
        pa.date32(),
        pa.time32("s"),
        pa.timestamp("s"),
        pa.timestamp("ns"),
        pa.float64(),
        pa.string(),
    ]
    if kind is None or kind == pa.string():
        return None
    return order[order.index(kind) + 1] if kind in order else pa.string()


def _rounded_columns(file: _CSV, types: Mapping[str, Any]) -> list[str]:
    """Read the whole file, and return the columns of whole numbers too long for 64 bits."""
    floats = [name for name, kind in types.items() if str(kind) == "double"]
    whole = dict.fromkeys(floats, True)
    largest = dict.fromkeys(floats, 0.0)
    for block in file.raw_blocks(types):
        for name in floats:
            if whole[name]:
                whole[name], size = _whole_and_largest(block.column(name))
                largest[name] = max(largest[name], size)
    return [name for name in floats if whole[name] and _EXACT <= largest[name] < np.inf]


def _are_rounded(chunks: Sequence[Any]) -> bool:
    """Return whether a column is of whole numbers that as floats would merge as levels."""
    if str(chunks[0].type) != "double":
        return False
    pairs = [_whole_and_largest(chunk) for chunk in chunks]
    return all(whole for whole, _ in pairs) and _EXACT <= max(s for _, s in pairs) < np.inf


def _whole_and_largest(column: Any) -> tuple[bool, float]:
    """Return whether all numbers are whole, and the largest size; 0 where there are none."""
    import pyarrow.compute as pc

    size = pc.max(pc.abs(column)).as_py()
    if size is None:
        return True, 0.0
    return bool(pc.all(pc.equal(column, pc.floor(column))).as_py()), float(size)


# What the file is --------------------------------------------------------------------------------


def _separator(path: Path, name: str, usual: str) -> str:
    """Return what separates the names in the first line, whatever the file is called."""
    import pyarrow as pa

    try:
        with pa.input_stream(str(path)) as stream:
            start = stream.read(1 << 16)
    except (ValueError, OSError) as error:
        raise _CSV(path, name, usual).refused(error) from None
    if b"\x00" in start:
        raise _not_text(name)
    unquoted = re.sub(rb'"[^"]*"', b"", start.lstrip().split(b"\n", 1)[0])
    return next(
        (mark for mark in (usual, ",", ";", "\t", "|") if mark.encode() in unquoted), usual
    )


def _not_text(name: str) -> DataError:
    return DataError(
        f"{name!r} is not text in UTF-8; if it is a table in another encoding, read it with "
        "pandas.read_csv(path, encoding='latin-1') and give the frame"
    )
