"""Plain tables of scores: CSV, a JSON object a line, a JSON list of objects, Parquet."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.evals.growing_rows import GrowingRows
from vcomp.evals.json_records import UnreadableError, parsed
from vcomp.evals.log_files import Damage, LogFile
from vcomp.evals.run_rows import NOT_SCORED, Run, Wanted, numbers_or_problems
from vcomp.exceptions import DataError
from vcomp.numerics import ahead

if TYPE_CHECKING:
    import pandas as pd

NAME = "table"

_NAMES = {
    "score": ("score", "value", "correct", "is_correct", "acc", "accuracy"),
    "model": ("model", "model_id", "model_name", "system", "sys", "name"),
    "task": ("task", "dataset", "benchmark"),
    "item": ("item", "sample_id", "item_id", "doc_id", "question_id", "qid", "topic", "id"),
    "epoch": ("epoch", "repetition", "repeat"),
    "prompt": ("prompt", "prompt_id", "template"),
    "judge": ("judge", "grader", "rater", "assessor"),
    "metric": ("metric", "measure", "scorer"),
}
"""Names of columns that are understood, the best first."""

_ROWS = 1 << 16
"""Rows that are read at a time as Python objects."""

_STORED_ROWS = 1 << 20
"""Rows of a Parquet file that are read at a time."""


def recognises(file: LogFile, wanted: Wanted) -> bool:
    """Return whether this is a table with a column of scores."""
    names = _header(file)
    return "score" in wanted.columns or "score" in _ours(names, {}).values()


def _header(file: LogFile) -> list[str]:
    """Return the names of the columns; none if it is not a table."""
    if file.is_parquet:
        return file.columns
    if file.is_json:
        return list(file.first_record or file.first)
    if file.is_zip:
        return []
    line = _first_line(file)
    return [name.strip().strip('"') for name in line.split(_separator(line))]


def _first_line(file: LogFile) -> str:
    with file.opened() as stream:
        line = stream.readline(1 << 20)
    return line.decode("utf-8-sig", "replace").rstrip("\r\n")


def _separator(line: str) -> str:
    return max(",\t;|", key=line.count)


def _ours(names: list[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return our name of each column that has one."""
    folded = {name.strip().lower(): name for name in reversed(names)}
    found = {theirs: ours for ours, theirs in columns.items()}
    for ours, usual in _NAMES.items():
        if ours not in columns:
            theirs = next((folded[name] for name in usual if name in folded), None)
            if theirs is not None:
                found.setdefault(theirs, ours)
    return found


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the rows of a table.

    Raises
    ------
    DataError
        If there is no column of scores, or one that is named.
    """
    names = _header(file)
    for ours, theirs in wanted.columns.items():
        if theirs not in names:
            raise DataError(
                f"no column {theirs!r} in {file.name!r}, given as {ours!r}; its columns are "
                f"{', '.join(map(repr, names[:20]))}",
                column=theirs,
            )
    renamed = _ours(names, wanted.columns)
    if "score" not in renamed.values():
        raise DataError(
            f"{file.name!r} has no column of scores; name it with columns={{'score': 'acc'}}; its "
            f"columns are {', '.join(map(repr, names[:20]))}"
        )
    source = _parquet if file.is_parquet else _json if file.is_json else _csv
    growing = GrowingRows(file.n_rows)
    for frame in source(file, damage):
        growing.add(len(frame), _converted(_renamed(frame, renamed, file.name)))
    rows = growing.frame()
    yield Run(file.name, NAME, rows, samples=len(rows), unreadable=damage.named, names=renamed)


def _renamed(frame: pd.DataFrame, names: Mapping[str, str], file: str) -> pd.DataFrame:
    """Return columns by our names, without those whose name another one is given."""
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"{file!r} has two columns {twice[0]!r}; rename one", column=str(twice[0]))
    replaced = [name for name in frame if name in names.values() and name not in names]
    return frame.drop(columns=replaced).rename(columns=dict(names))


def _converted(frame: pd.DataFrame) -> dict[str, Any]:
    """Return scores and epochs as numbers, levels as they are, and reasons for missing scores."""
    import pandas as pd

    scores, problems = _scores(frame["score"] if "score" in frame else [None] * len(frame))
    columns: dict[str, Any] = {"score": scores}
    for name in frame:
        values = frame[name]
        if name == "epoch":
            numbers = _whole_numbers(values)
            if numbers is not None:
                columns[name] = numbers
                continue
            name = "repetition"
        if name != "score" and not _is_nested(values):
            columns[str(name)] = values
    if problems is not None:
        columns["problem"] = pd.Series(problems, dtype=object)
    return columns


def _whole_numbers(values: pd.Series) -> Any:
    """Return numbers of epochs in two bytes, or more if one is large; None of others."""
    import pandas as pd

    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    numbers = pd.to_numeric(values, errors="coerce")
    if numbers.dtype.kind not in "iu":
        if not (numbers.notna().all() and (numbers % 1 == 0).all()):
            return None
        numbers = numbers.astype(np.int64)
    low, high = (0, 0) if numbers.empty else (numbers.min(), numbers.max())
    for kind in (np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return numbers.to_numpy(kind)
    return numbers.to_numpy(np.int64)


def _scores(values: Any) -> tuple[Any, list[str | None] | None]:
    """Return scores, and the reason of each missing one; None instead if none is missing."""
    kind = getattr(values, "dtype", np.dtype(object))
    if isinstance(kind, np.dtype) and kind.kind in "biuf":
        if kind.kind != "f":
            return values.to_numpy(), None
        scores = values.to_numpy(float)
        if np.isfinite(scores).all():
            return scores, None
        problems: list[str | None] = [None] * len(scores)
        for k in np.flatnonzero(~np.isfinite(scores)):
            problems[k] = NOT_SCORED if np.isnan(scores[k]) else f"not finite: {scores[k]}"
        return np.where(np.isfinite(scores), scores, np.nan), problems
    return numbers_or_problems(_with_none(values))


def _with_none(values: Any) -> list[Any]:
    """Return values with None for missing ones."""
    return [
        None if v is None or (isinstance(v, float) and v != v) or v == "" else v
        for v in (values.tolist() if hasattr(values, "tolist") else values)
    ]


def _is_nested(values: pd.Series) -> bool:
    return any(isinstance(v, dict | list | tuple | np.ndarray) for v in values.head(100))


# Sources ---------------------------------------------------------------------------------------


def _csv(file: LogFile, damage: Damage) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    from pyarrow import csv

    line = _first_line(file)
    names = _header(file)

    def wrong(row: Any) -> str:
        if damage.skip:
            place = f"line {row.number}" if row.number else f"after {len(damage.named)} others"
            damage.add(place, f"{row.actual_columns} fields instead of {row.expected_columns}")
            return "skip"
        return "error"

    try:
        with pa.input_stream(str(file.path), compression=file.packed) as stream:
            reader = csv.open_csv(
                stream,
                read_options=csv.ReadOptions(use_threads=False, block_size=1 << 22),
                parse_options=csv.ParseOptions(
                    delimiter=_separator(line), newlines_in_values=True, invalid_row_handler=wrong
                ),
                convert_options=csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True
                ),
            )
            for batch in reader:
                yield batch.to_pandas()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        damage.add("the table", str(error).removeprefix("CSV parse error: ").splitlines()[0])


def _json(file: LogFile, damage: Damage) -> Iterator[pd.DataFrame]:
    import pandas as pd

    def objects() -> Iterator[dict[str, Any]]:
        if file.first_record:
            with damage.at("the list"):
                for k, row in enumerate(file.records(), 1):
                    with damage.at(f"row {k}"):
                        if not isinstance(row, dict):
                            raise UnreadableError("it is not an object")
                        yield row
            return
        for number, line in file.lines(damage):
            with damage.at(f"line {number}"):
                yield parsed(line)

    rows = objects()
    while some := list(itertools.islice(rows, _ROWS)):
        yield pd.DataFrame(some, dtype=object)


def _parquet(file: LogFile, damage: Damage) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Text comes as numbers of a dictionary, which is that of the file.
        kinds = pq.read_schema(file.path)
        text = [f.name for f in kinds if pa.types.is_string(f.type)]
        with pq.ParquetFile(file.path, read_dictionary=text) as stored:
            some = _of_many_rows(stored.iter_batches(batch_size=_STORED_ROWS))
            yield from ahead(table.to_pandas(split_blocks=True) for table in some)
    except (pa.ArrowException, OSError) as error:
        damage.add("the table", str(error).splitlines()[0])


def _of_many_rows(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield tables of several batches each: those of small row groups are small."""
    import pyarrow as pa

    some: list[Any] = []
    for batch in batches:
        some.append(batch)
        if sum(map(len, some)) >= _STORED_ROWS:
            yield pa.Table.from_batches(some)
            some = []
    if some:
        yield pa.Table.from_batches(some)
