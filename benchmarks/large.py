"""Rows in Parquet files: how fast they are summed in batches and on Dask, and in how much memory.

``python -m benchmarks.large [--rows 5.9e6,1e8] [--dask] [--moved] [--quick]`` writes per-document
scores p × a × (d:i) of 50 topics to 20 Parquet files, in a temporary folder that is removed again.
It fits the model with 11 components by REML: from rows in memory, in batches, and in batches with
documents collapsed into their topics once they are complete. Each runs in its own process and is
compared with the time that pyarrow needs to read the same columns in the same process. ``--dask``
also fits 5.9 million rows on two worker processes; ``--moved`` counts the bytes that partial
statistics take with several partitionings.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import vcomp
from benchmarks.common import FULL_MODEL
from benchmarks.measure import in_fresh_process
from benchmarks.perdoc import COMPONENTS

_ASSESSORS, _TOPICS, _FILES = 2, 50, 20
_MANY_SYSTEMS = 600
"""Of data with more than 20 million rows; others have 60."""

_DASK_ROWS = 5_879_040

_REPEATS = 9
"""Of what takes a fraction of a second, and twice as long while memory is first used."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What reading and fitting took.

    Attributes
    ----------
    rows : of the data
    reading : seconds in which pyarrow reads the columns of all files, one after another
    seconds : of the fit
    peak : bytes of the process at its highest point
    components : that were found
    """

    rows: int
    reading: float
    seconds: float
    peak: int
    components: dict[str, float]


def write(folder: str, n_rows: int) -> int:
    """Write scores to Parquet files, each with whole topics, and return the number of rows.

    Rows are by topic, system, assessor and document.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    sd = {name: float(np.sqrt(v)) for name, v in COMPONENTS.items()}
    P, A = _MANY_SYSTEMS if n_rows > 2e7 else 60, _ASSESSORS
    D = max(1, round(n_rows / (P * A * _TOPICS)))
    system, assessor = rng.normal(0.5, sd["p"], (P, 1, 1)), rng.normal(0, sd["a"], (1, A, 1))
    both = system + assessor + rng.normal(0, sd["p:a"], (P, A, 1))
    per_file = np.array_split(np.arange(_TOPICS), _FILES)
    for k, topics in enumerate(per_file):
        writer = None
        for i in topics:
            y = both + rng.normal(0, sd["i"]) + rng.normal(0, sd["p:i"], (P, 1, 1))
            y = y + rng.normal(0, sd["a:i"], (1, A, 1)) + rng.normal(0, sd["p:a:i"], (P, A, 1))
            y = y + rng.normal(0, sd["d"], D) + rng.normal(0, sd["p:d"], (P, 1, D))
            y = y + rng.normal(0, sd["a:d"], (1, A, D)) + rng.normal(0, sd["Residual"], (P, A, D))
            columns = {
                "p": np.repeat(np.arange(P, dtype=np.int16), A * D),
                "a": np.tile(np.repeat(np.arange(A, dtype=np.int8), D), P),
                "i": np.full(P * A * D, i, np.int16),
                "d": np.tile(np.arange(i * D, (i + 1) * D, dtype=np.int32), P * A),
                "score": y.ravel(),
            }
            table = pa.table(columns)
            writer = writer or pq.ParquetWriter(f"{folder}/part{k:02d}.parquet", table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
    return P * A * D * _TOPICS


def timed_fit(folder: str, repeat: int, *, stream: bool, collapse: bool = False) -> Timed:
    """Read the files with pyarrow, then fit them; the best of `repeat` times."""
    files = sorted(Path(folder).glob("*.parquet"))
    # What is summed in batches is put away only where the table of all cells would be large.
    collapsed = (
        mock.patch("vcomp.statistics.batches.passes._LARGE", 0.0) if collapse else nullcontext()
    )
    with collapsed:
        _warm_up(stream=stream)
        reading = _best(lambda: _read(files), repeat)
        kept: dict[str, Any] = {}  # the last fit alone

        def fit() -> None:
            kept.clear()
            kept["res"] = vcomp.fit(FULL_MODEL, folder, stream=stream)

        seconds = _best(fit, repeat)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Timed(kept["res"].nobs, reading, seconds, peak, _components(kept["res"]))


def timed_dask(folder: str, repeat: int) -> Timed:
    """Fit the files on two worker processes with a thread each."""
    import dask.dataframe as dd
    import distributed

    files = sorted(Path(folder).glob("*.parquet"))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        data = dd.read_parquet([str(file) for file in files])
        vcomp.fit(FULL_MODEL, data)
        reading = _best(lambda: _read(files), repeat)
        seconds = _best(lambda: vcomp.fit(FULL_MODEL, data), repeat)
        res = vcomp.fit(FULL_MODEL, data)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return Timed(res.nobs, reading, seconds, peak, _components(res))


def _components(res: Any) -> dict[str, float]:
    return {str(name): float(value) for name, value in res.vcomp.items()}


def moved(folder: str) -> dict[str, tuple[int, int, int]]:
    """Return for several partitionings their number, and bytes that the two passes move.

    What each partition, and each sum of several, comes to is pickled, as it is on its way from
    one worker to another.
    """
    import dask
    import dask.dataframe as dd
    import pandas as pd

    files = sorted(Path(folder).glob("*.parquet"))
    whole = pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)
    by_system = whole.sort_values("p", kind="stable", ignore_index=True)
    order = np.random.default_rng(1).permutation(len(whole))
    partitionings = {
        "by topic": dd.read_parquet([str(file) for file in files]),
        "by row number": dd.from_pandas(whole, npartitions=_FILES, sort=False),
        "by system": dd.from_pandas(by_system, npartitions=_FILES, sort=False),
        "in random order": dd.from_pandas(
            whole.iloc[order].reset_index(drop=True), npartitions=_FILES, sort=False
        ),
    }
    found = {}
    for name, data in partitionings.items():
        sizes: dict[str, int] = {"_Found": 0, "other": 0}

        def count(key: Any, value: Any, *_: Any, sizes: dict[str, int] = sizes) -> None:
            if any(task in str(key) for task in ("_found", "_of_partition", "_added")):
                kind = type(value).__name__
                sizes[kind if kind in sizes else "other"] += len(pickle.dumps(value, 5))

        with dask.config.set(scheduler="synchronous"), dask.callbacks.Callback(posttask=count):
            vcomp.VarianceComponentsModel(FULL_MODEL, data)
        found[name] = data.npartitions, sizes["_Found"], sizes["other"]
    return found


def _read(files: Sequence[Path]) -> None:
    """Read the columns of all files, one after another."""
    import pyarrow.parquet as pq

    for file in files:
        pq.read_table(file)


def _best(work: Callable[[], Any], repeat: int) -> float:
    best = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def _warm_up(*, stream: bool) -> None:
    """Fit few rows, so that nothing is compiled while the clock runs."""
    with tempfile.TemporaryDirectory() as folder:
        write(folder, 24_000)
        vcomp.fit(FULL_MODEL, folder, stream=stream)


def _print_fit(name: str, found: Timed | str) -> None:
    if isinstance(found, str):
        print(f"{name:<28} {found}", flush=True)
        return
    print(
        f"{name:<28} {found.rows:>12,} {found.reading:>9.3f} {found.seconds:>9.3f} "
        f"{found.seconds / found.reading:>7.1f} {found.rows / found.seconds / 1e6:>8.2f} "
        f"{found.peak / 2**20:>9,.0f}",
        flush=True,
    )


def _compare(n_rows: int, folder: str) -> None:
    in_fresh_process(write, folder, n_rows)
    repeat = _REPEATS if n_rows <= 2e7 else 1
    ways: dict[str, dict[str, bool]] = {
        "in memory": {"stream": False},
        "in batches": {"stream": True},
        "in batches, put away": {"stream": True, "collapse": True},
    }
    found = {}
    for name, options in ways.items():
        if n_rows > 2e7 and not options["stream"]:
            continue
        found[name] = in_fresh_process(_Fit(options), folder, repeat)
        _print_fit(name, found[name])
    _check_same([one.components for one in found.values() if not isinstance(one, str)])


def _check_same(found: Sequence[dict[str, float]]) -> None:
    """Refuse ways that do not come to the same components."""
    for one in found[1:]:
        largest = max(found[0].values())
        for name, value in found[0].items():
            if abs(one[name] - value) > 1e-9 * largest:
                raise AssertionError(f"{name} is {value!r} in one way, {one[name]!r} in another")


@dataclass(frozen=True, slots=True)
class _Fit:
    options: dict[str, bool]

    def __call__(self, folder: str, repeat: int) -> Timed:
        return timed_fit(folder, repeat, **self.options)


def main() -> None:
    arguments = _arguments()
    print(
        f"{'':<28} {'rows':>12} {'pyarrow s':>9} {'fit s':>9} {'ratio':>7} {'Mrows/s':>8} "
        f"{'peak MiB':>9}"
    )
    for n_rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            _compare(n_rows, folder)
    if not (arguments.dask or arguments.moved):
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        n_rows = arguments.rows[0] if arguments.quick else _DASK_ROWS
        in_fresh_process(write, folder, n_rows)
        if arguments.dask:
            _print_fit("Dask, two processes", in_fresh_process(timed_dask, folder, _REPEATS))
        if arguments.moved:
            answer = in_fresh_process(moved, folder)
            for name, sizes in ({} if isinstance(answer, str) else answer).items():
                first, last = sizes[1] / 2**20, sizes[2] / 2**20
                print(f"{name:<28} {sizes[0]:>4} partitions: {first:8.2f} MiB, {last:8.2f} MiB")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("--rows", metavar="N,…", help="numbers of rows (default 5.9e6,1e8)")
    parser.add_argument("--dask", action="store_true", help="also on two processes of Dask")
    parser.add_argument("--moved", action="store_true", help="bytes of partial statistics")
    parser.add_argument("--quick", action="store_true", help="240,000 rows, seconds")
    parser.add_argument("--folder", metavar="DIR", help="for the files, 9 bytes a row")
    arguments = parser.parse_args()
    rows = arguments.rows or ("2.4e5" if arguments.quick else f"{_DASK_ROWS},1e8")
    arguments.rows = [round(float(size)) for size in rows.split(",")]
    return arguments


if __name__ == "__main__":
    main()
