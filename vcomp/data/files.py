"""Paths, patterns and folders of CSV and Parquet files, as parts that can be read."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.data.column_values import EXACT
from vcomp.data.parts import Part, arrow_part, reason, refusing
from vcomp.data.paths import DataFile, data_files
from vcomp.display import memory
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd
    from pyarrow.parquet import ParquetFile

_PACKED = 5.0
"""Typical ratio of the sizes of a file before and after compression."""

_FIELD = 4.0
"""Bytes of a short field with its separator, for an upper estimate of the number of rows."""

_FEW_ZEROS = 0.1
"""Largest share of zero bytes in the half of UTF-16 that holds letters."""

_BLOCK_BYTES = 1 << 21
"""Bytes that are parsed at a time; Arrow reads some forty blocks ahead."""


def csv_file(path: Path, name: str, *, block_bytes: int = _BLOCK_BYTES) -> Part:
    """Return a CSV file as a part, by Arrow's reader, which refuses rows of other lengths.

    Parameters
    ----------
    path : of the file
    name : of the part, in messages
    block_bytes : bytes that are parsed at a time

    Raises
    ------
    DataError
        If it is not text, or has no header.
    """
    is_tabbed = any(suffix.lower() in (".tsv", ".tab") for suffix in path.suffixes)
    file = _CSV(path, name, _separator(path, name, "\t" if is_tabbed else ","), block_bytes)
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

    def __init__(
        self, path: Path, name: str, separator: str, block_bytes: int = _BLOCK_BYTES
    ) -> None:
        self._path, self._name, self._separator = path, name, separator
        self._block_bytes = block_bytes

    def check_whole(self) -> None:
        """Decompress the file once: of a truncated one Arrow, reading ahead, may wait for ever."""
        import pyarrow as pa

        with refusing(self.refused), pa.input_stream(str(self._path)) as stream:
            while stream.read(self._block_bytes):
                pass

    def columns(self) -> tuple[str, ...]:
        """Return the names of the header; nothing below the first block is read."""
        try:
            with self._open() as reader:
                names = tuple(reader.schema.names)
        except UnicodeDecodeError:
            raise _not_text(self._name) from None
        except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
            raise self.refused(error) from None
        self._refuse_json()
        return names

    def read(self, names: Sequence[str], types: Mapping[str, Any] | None = None) -> Any:
        """Read all rows."""
        from pyarrow.csv import read_csv

        options = {"convert_options": _convert(names, types), "parse_options": self._parse()}
        with refusing(self.refused):
            return read_csv(self._path, **options)

    def blocks(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """Read a block of rows at a time."""
        with refusing(self.refused):
            yield from self.raw_blocks(types)

    def first_types(self, names: Sequence[str], types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the types that the first block has, unless they are given."""
        with self._open(_convert(names, types)) as reader:
            return {field.name: field.type for field in reader.schema}

    def raw_blocks(self, types: Mapping[str, Any]) -> Iterator[Any]:
        """Read a block of rows at a time; errors are Arrow's."""
        with self._open(_convert(list(types), types)) as reader:
            yield from reader

    def check_text(self, schema: Any) -> None:
        """Refuse bytes that are not UTF-8 text."""
        if any(str(field.type) == "binary" for field in schema):
            raise _not_text(self._name)

    def refused(self, error: BaseException) -> DataError:
        """Return the DataError for an error of Arrow."""
        message = reason(error).removeprefix("CSV parse error: ")
        if "Empty CSV" in message:
            self._refuse_json()
            if self._path.stat().st_size > self._block_bytes:
                return DataError(
                    f"the first line of {self._name!r}, which names the columns, is longer than "
                    f"{memory(self._block_bytes)}; write one row a line"
                )
            return DataError(
                f"{self._name!r} is empty: it has no header, or a header and nothing else"
            )
        if not self._is_text():
            return _not_text(self._name)
        if "Truncated compressed" in message or "end-of-stream" in message:
            return DataError(
                f"{self._name!r} is cut short: its end cannot be read; copy or write it again"
            )
        return DataError(f"{self._name!r} cannot be read as CSV: {message}")

    def _refuse_json(self) -> None:
        """Refuse JSON, an object a line or a list of objects."""
        import pyarrow as pa

        with pa.input_stream(str(self._path)) as stream:
            start = b"".join(stream.read(100).split())
        if start.startswith((b'{"', b"[{")):
            lines = ", lines=True" * start.startswith(b"{")
            raise DataError(
                f"{self._name!r} is JSON, not CSV: read it with pandas.read_json(path{lines}), "
                "and give the frame"
            )

    def _is_text(self) -> bool:
        """Return whether the file is in UTF-8, as far as it can be read."""
        import pyarrow as pa

        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            with pa.input_stream(str(self._path)) as stream:
                while piece := stream.read(self._block_bytes):
                    decoder.decode(piece)
        except UnicodeDecodeError:
            return False
        except (pa.ArrowException, OSError):
            return True
        return True

    def _parse(self) -> Any:
        from pyarrow.csv import ParseOptions

        return ParseOptions(delimiter=self._separator, newlines_in_values=True)

    def _open(self, convert: Any = None) -> Any:
        from pyarrow.csv import ReadOptions, open_csv

        return open_csv(
            self._path,
            read_options=ReadOptions(block_size=self._block_bytes),
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
    """Return the types that fit all rows, as reading the whole file finds them.

    Arrow infers the types from the first block. Here a column with other values in a later block
    gets the next type that Arrow would try, and the file is read from the start.
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
            match = re.search(r"In CSV column #(\d+):.*conversion error", str(error))
            name = columns[int(match[1])] if match else ""
            following = _next_type((types | given).get(name))
            if following is None:
                raise file.refused(error) from None
            given[name] = following
    types |= dict.fromkeys(rounded, pa.string())
    file.check_text(pa.schema(list(types.items())))
    return types


def _next_type(kind: Any) -> Any:
    """Return the type that Arrow tries after this one; None after text or no type."""
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
    return [name for name in floats if whole[name] and EXACT <= largest[name] < np.inf]


def _are_rounded(chunks: Sequence[Any]) -> bool:
    """Return whether a float column holds whole numbers so large that levels may have merged."""
    if str(chunks[0].type) != "double":
        return False
    pairs = [_whole_and_largest(chunk) for chunk in chunks]
    return all(whole for whole, _ in pairs) and EXACT <= max(s for _, s in pairs) < np.inf


def _whole_and_largest(column: Any) -> tuple[bool, float]:
    """Return whether all numbers are whole, and the largest magnitude; 0 without numbers."""
    import pyarrow.compute as pc

    size = pc.max(pc.abs(column)).as_py()
    if size is None:
        return True, 0.0
    return bool(pc.all(pc.equal(column, pc.floor(column))).as_py()), float(size)


# Separators and encodings ---------------------------------------------------------------------


def _separator(path: Path, name: str, usual: str) -> str:
    """Return the separator of the first line, whatever the ending of the file."""
    import pyarrow as pa

    refused = _CSV(path, name, usual).refused
    with refusing(refused), pa.input_stream(str(path)) as stream:
        start = stream.read(1 << 16)
    packed = next((end for mark, end in _PACKERS.items() if start.startswith(mark)), None)
    if packed is not None:
        raise DataError(f"{name!r} is not text but a packed file; {packed}")
    if b"\x00" in start:
        raise _not_text(name, _utf_16(start))
    unquoted = re.sub(rb'"[^"]*"', b"", start.lstrip().split(b"\n", 1)[0])
    return next(
        (mark for mark in (usual, ",", ";", "\t", "|") if mark.encode() in unquoted), usual
    )


_PACKERS = {
    b"\x1f\x8b": "give its name the ending .gz",
    b"BZh": "give its name the ending .bz2",
    b"\x28\xb5\x2f\xfd": "give its name the ending .zst",
    b"PK\x03\x04": "unpack it; a workbook (.xlsx) is read by pandas.read_excel",
}
"""Advice on packed files by their first bytes."""


def _utf_16(start: bytes) -> str | None:
    """Return the name of the UTF-16 encoding of a file with zero bytes, None if it has another."""
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    # Of Latin letters and digits every second byte is zero.
    shares = [start[k::2].count(0) / len(start[k::2]) if start[k:] else 0.0 for k in (0, 1)]
    if min(shares) > _FEW_ZEROS or max(shares) < 1.0 - _FEW_ZEROS:
        return None
    return "utf-16-be" if shares[0] > shares[1] else "utf-16-le"


def _not_text(name: str, encoding: str | None = "latin-1") -> DataError:
    if encoding is None:
        return DataError(f"{name!r} is not text in UTF-8, nor a table: it has zero bytes")
    what = "a table in another encoding" if encoding == "latin-1" else f"a table in {encoding}"
    return DataError(
        f"{name!r} is not text in UTF-8; if it is {what}, read it with "
        f"pandas.read_csv(path, sep=None, engine='python', encoding={encoding!r}) and give the "
        "frame"
    )


_MAGIC = b"PAR1"


def parquet_file(path: Path, name: str) -> Part:
    """Return a Parquet file as a part; only its footer is read now.

    Raises
    ------
    DataError
        If it is not a Parquet file, or is truncated.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _not_parquet(path, name, error) from None

    def refuse(error: BaseException) -> DataError:
        return DataError(f"{name!r} cannot be read: {reason(error)}; it may be damaged")

    def read(names: list[str]) -> Any:
        # A file by itself: a folder called day=3 above it adds no column.
        with refusing(refuse), _opened(path, schema, metadata, names) as file:
            return file.read(columns=names).select(names)

    def batches(names: list[str], rows: int) -> Iterator[Any]:
        with refusing(refuse), _opened(path, schema, metadata, names, ahead=False) as file:
            yield from file.iter_batches(batch_size=rows, columns=names)

    return arrow_part(
        name,
        schema.names,
        read,
        batches,
        n_rows=metadata.num_rows,
        schema=schema,
        rows_to_come=lambda: float(metadata.num_rows),
        files=(path,),
    )


def _opened(
    path: Path, schema: Any, metadata: Any, names: list[str], *, ahead: bool = True
) -> ParquetFile:
    """Open the file, whose footer was read; text is read as the dictionaries that it is stored in.

    Without reading ahead a pass needs the memory of the batch, not that of the row group.
    """
    import pyarrow.parquet as pq
    from pyarrow import types

    text = [n for n in names if types.is_string(t := schema.field(n).type) or _is_large(t)]
    # Checksums of pages, where the writer made some, are all that distinguishes changed numbers.
    options: dict[str, Any] = {
        "metadata": metadata,
        "read_dictionary": text,
        "page_checksum_verification": True,
    }
    if not ahead:
        options |= {"pre_buffer": False, "buffer_size": 1 << 20}
    return pq.ParquetFile(path, **options)


def _is_large(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_large_string(kind))


def _not_parquet(path: Path, name: str, error: BaseException) -> DataError:
    if isinstance(error, OSError) and error.errno:  # the file is gone, or not to be read
        return DataError(f"{name!r} cannot be read: {os.strerror(error.errno)}")
    try:
        with path.open("rb") as file:
            begun = file.read(4) == _MAGIC
    except OSError:
        begun = False
    if begun:
        return DataError(
            f"{name!r} is cut short or damaged: it begins as a Parquet file, and its footer "
            "cannot be read; copy or write it again"
        )
    return DataError(f"{name!r} is not a Parquet file: {reason(error)}")


CONTAINERS = (
    "a pandas or polars DataFrame, a polars LazyFrame, a pyarrow Table, Dataset or "
    "RecordBatchReader, a DuckDB relation, a dict of arrays, a list or iterator of frames, or the "
    "path of a CSV or Parquet file, of a folder of them, or a pattern such as 'runs/*.parquet'"
)


def open_paths(paths: Iterable[object]) -> tuple[Part, ...]:
    """Return the files as parts with their columns; rows are read later.

    Raises
    ------
    DataError
        If there is no such file, or one has another format than its ending says.
    """
    parts = []
    for file in data_files(paths):
        before = _stamp(file)
        open_file = parquet_file if file.kind == "parquet" else csv_file
        part = _as_it_was(open_file(file.path, file.name), file, before)
        parts.append(_in_folders(part, file.folders))
    return tuple(parts)


def _stamp(file: DataFile) -> tuple[int, int]:
    """Return size and time of a file, which change when it does."""
    try:
        status = file.path.stat()
    except OSError as error:
        raise DataError(f"{file.name!r} cannot be read: {error.strerror}") from None
    return status.st_size, status.st_mtime_ns


def _as_it_was(part: Part, file: DataFile, before: tuple[int, int]) -> Part:
    """Return the part with a check, before each reading, that the file has not changed."""

    def check() -> None:
        if _stamp(file) != before:
            raise DataError(
                f"{file.name!r} has changed since it was opened; files are read more "
                "than once, and they have to stay as they were"
            )

    def read(names: list[str]) -> pd.DataFrame:
        check()
        return part.read(names)

    def slices(names: list[str], rows: int) -> Iterator[tuple[pd.DataFrame, str | None]]:
        check()
        yield from part.slices(names, rows)

    return replace(part, read=read, slices=slices)


def _in_folders(part: Part, folders: Mapping[str, int | str | None]) -> Part:
    """Return the part with the columns in the names of its folders; its own come first."""
    added = {name: value for name, value in folders.items() if name not in part.columns}
    if not added:
        return part

    def complete(frame: pd.DataFrame, names: list[str], n_rows: int) -> pd.DataFrame:
        import pandas as pd

        columns = {
            name: _repeated(added[name], n_rows) if name in added else frame[name]
            for name in names
        }
        return pd.DataFrame(columns, copy=False)

    def inside(names: list[str]) -> list[str]:
        # Some column of the file is needed for the number of rows.
        return [name for name in names if name not in added] or [part.columns[0]]

    def read(names: list[str]) -> pd.DataFrame:
        frame = part.read(inside(names))
        return complete(frame, names, len(frame))

    def slices(names: list[str], rows: int) -> Iterator[tuple[pd.DataFrame, str | None]]:
        for frame, file in part.slices(inside(names), rows):
            yield complete(frame, names, len(frame)), file

    kinds = {
        n: "text" if isinstance(v, str) else "numbers" for n, v in added.items() if v is not None
    }
    return replace(
        part,
        columns=(*part.columns, *added),
        read=read,
        slices=slices,
        kinds={**part.kinds, **kinds},
    )


def _repeated(value: int | str | None, n_rows: int) -> object:
    import pandas as pd

    if isinstance(value, int):
        return np.full(n_rows, value)
    codes = np.full(n_rows, -1 if value is None else 0, dtype=np.int8)
    categories: pd.Index = pd.Index([] if value is None else [value])
    return pd.Categorical.from_codes(codes, categories=categories)
