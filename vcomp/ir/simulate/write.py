"""Write simulated collections to a file in batches, without holding all of them in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vcomp.data import path_of, replacing, target_of
from vcomp.exceptions import DataError, guarded
from vcomp.ir.simulate.simulator import CollectionSimulator, SimulatedCollections, whole

_ROWS_AT_ONCE = 1 << 20
"""Rows per batch."""

_ENDINGS = (".parquet", ".pq", ".csv")


@guarded
def write_collections(
    simulator: CollectionSimulator,
    path: str | os.PathLike[str],
    n_topics: int,
    n: int = 1,
    *,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
    each: Callable[[SimulatedCollections], None] | None = None,
) -> int:
    """Write simulated collections to a Parquet or CSV file, one row per score.

    The columns are those of :meth:`SimulatedCollections.to_long`: ``collection`` from 0 on,
    ``topic`` from 1 on, ``system`` and ``score``. The file gets its name once it is
    complete.

    Parameters
    ----------
    simulator : of :func:`fit_collection`
    path : of the file, ending in .parquet or .csv; an existing one is replaced
    n_topics : topics of each collection
    n : number of collections
    rng : seed, or a generator that one is drawn from once; 0 if not given. The collections are
        those of :meth:`CollectionSimulator.simulate`
    workers : threads; the numbers are the same for any number of them
    progress : whether to show a bar; None for one where stderr is a terminal
    each : called with the collections of each batch after they were written

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    DataError
        If the file has another ending, its folder does not exist, or it cannot be written.
    PlanError
        If a number is not whole or not positive, or one collection does not fit into memory.
    EstimationError
        If `rng` is neither a seed nor a generator.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from vcomp.simulate import fit_collection, write_collections
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
    >>> simulator = fit_collection(scores, ["a", "b", "c"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     n_rows = write_collections(simulator, folder + "/new.csv", 5, n=2, rng=1)
    ...     written = pd.read_csv(folder + "/new.csv")
    >>> n_rows, list(written.columns)
    (30, ['collection', 'topic', 'system', 'score'])
    """
    return write_batches(
        simulator, path, n_topics, n, rng=rng, workers=workers, progress=progress, each=each
    )


def write_batches(
    simulator: CollectionSimulator,
    path: str | os.PathLike[str],
    n_topics: int,
    n: int = 1,
    *,
    rows_at_once: int = _ROWS_AT_ONCE,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
    each: Callable[[SimulatedCollections], None] | None = None,
) -> int:
    """Write simulated collections as :func:`write_collections` does.

    Parameters
    ----------
    simulator, path, n_topics, n, rng, workers, progress, each : as for that function
    rows_at_once : rows of a batch; a collection is not divided between batches
    """
    from vcomp.numerics import run, seed_from

    target = check_path(path)
    n_topics, n = whole(n_topics, "n_topics"), whole(n, "n")
    workers, seed = whole(workers, "workers"), seed_from(rng)
    at_once = max(1, rows_at_once // (n_topics * simulator.n_systems))
    starts = range(0, n, at_once)
    with _writer(target) as write:

        def part(number: int) -> int:
            first = starts[number]
            some = simulator.simulate(
                n_topics,
                min(at_once, n - first),
                rng=seed,
                first=first,
                workers=workers,
                progress=False,
            )
            write(some)
            if each is not None:
                each(some)
            return some.scores.size

        # Parts are written in sequence; threads work within a part.
        done = run(lambda: part, range(len(starts)), progress=progress, label="parts")
    return sum(done.values())


def check_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to write.

    Parameters
    ----------
    path : of the file

    Raises
    ------
    DataError
        If it has no ending that is known, or cannot be a file.
    """
    target = path_of(path)
    if target.suffix.lower() not in _ENDINGS:
        raise DataError(f"{target.name!r} does not end in .parquet or .csv")
    target_of(target)
    return target


@contextmanager
def _writer(target: Path) -> Iterator[Callable[[SimulatedCollections], None]]:
    """Yield a writer of collections; the file is renamed to its target when complete."""
    import pyarrow as pa

    text = target.suffix.lower() == ".csv"
    system = pa.string() if text else pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [("collection", pa.int64()), ("topic", pa.int64()), ("system", system),
         ("score", pa.float64())]
    )  # fmt: skip
    with replacing(target) as unfinished, _open(unfinished, schema, text=text) as file:

        def write(some: SimulatedCollections) -> None:
            file.write_table(pa.Table.from_pandas(some.to_long(), schema))

        yield write


def _open(path: Path, schema: Any, *, text: bool) -> Any:
    if text:
        from pyarrow.csv import CSVWriter

        return CSVWriter(str(path), schema)
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(path, schema)
