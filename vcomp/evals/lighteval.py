"""Logs of lighteval: details_*.parquet, a row for each document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from vcomp.evals.json_records import UnreadableError
from vcomp.evals.log_files import Damage, LogFile
from vcomp.evals.run_rows import Run, SampleRows, Wanted, content_hash, within

NAME = "lighteval"

_PATH = re.compile(
    r".*/details/(?P<model>.+)/(?P<date>[^/]+)/details_(?P<task>.+)_(?P=date)\.parquet"
)


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether the columns are the documents and metrics of lighteval."""
    return {"doc", "metric"} <= set(file.columns)


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the run of a task; the path names the model."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    named = _PATH.fullmatch(file.path.absolute().as_posix())
    constant = {
        "model": named["model"] if named else None,
        "task": named["task"] if named else file.path.stem,
        "run": named["date"] if named else file.name,
    }
    rows = SampleRows(("item", "content", *wanted.metadata), ("metric",), constant)
    n, repeated = 0, 0
    try:
        with pq.ParquetFile(file.path) as stored:
            for batch in stored.iter_batches(batch_size=1 << 12, columns=["doc", "metric"]):
                for row in batch.to_pylist():
                    with damage.at(f"row {n + 1}"):
                        _add(rows, row, wanted)
                    n += 1
                    repeated = max(repeated, within(row, "doc", "num_samples") or 1)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(str(error).splitlines()[0]) from None
    notes = [] if named else ["The path does not name the model: details/MODEL/DATE/…"]
    if repeated > 1:
        notes.append(
            f"Each document has {repeated} answers, which lighteval reduced to one score: there "
            "are no epochs."
        )
    run = f"{constant['model']} {constant['task']} {constant['run']}"
    yield Run(
        file.name,
        NAME,
        rows.frame(),
        identity=run if named else file.name,
        order=str(constant["run"]),
        samples=n,
        unreadable=damage.named,
        notes=notes,
    )


def _add(rows: SampleRows, row: dict[str, Any], wanted: Wanted) -> None:
    doc, metrics = row.get("doc"), row.get("metric")
    if not isinstance(doc, dict) or not isinstance(metrics, dict):
        raise UnreadableError("doc or metric is missing")
    more = [within(doc, name) for name in wanted.metadata]
    content = content_hash(doc.get("query"), doc.get("choices"))
    if metrics:
        labels = tuple((metric,) for metric in metrics)
        rows.add((doc.get("id"), content, *more), [*metrics.values()], labels)
