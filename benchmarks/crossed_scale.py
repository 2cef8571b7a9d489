"""Processor seconds and memory of a fit of two large facets that meet at random, from a file.

``python -m benchmarks.crossed_scale ROWS [--levels N] [--only PART,…]`` writes scores of two
facets with N levels each (500,000) to a Parquet file, in row groups of a million. Each part fits
them in a process of its own: ``fit`` in batches, and ``dask`` on two workers of a thread each;
``sums`` and ``dask sums`` end before the likelihood. Seconds are of all threads and workers, whose
timers are off, and a run of numba's cache is warm. ``--keep`` stores them in
``crossed_scale.csv``, whose table is in ``benchmarks/README.md``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import vcomp
from benchmarks.measure import Measured, Timing, in_fresh_process, keep, measured, on_dask

_FORMULA = "y ~ (1|a) + (1|b)"

_ROW_GROUP = 1_000_000

_ROW_GROUPS = 1
"""Row groups in a partition of Dask: they are as large as batches."""

STORED = Path(__file__).with_name("crossed_scale.csv")

KEY = ["part", "rows", "levels"]

_PARTS = {
    "fit": "fit in batches", "dask": "fit on Dask",
    "sums": "sums in batches", "dask sums": "sums on Dask",
}  # fmt: skip


def write(path: Path, rows: int, levels: int) -> None:
    """Write simulated scores, whose components are 0.49, 0.25 and 1."""
    rng = np.random.default_rng(levels)
    effects = {name: sd * rng.normal(size=levels) for name, sd in (("a", 0.7), ("b", 0.5))}
    schema = pa.schema([("a", pa.int32()), ("b", pa.int32()), ("y", pa.float64())])
    with pq.ParquetWriter(path, schema) as sink:
        for start in range(0, rows, _ROW_GROUP):
            n = min(_ROW_GROUP, rows - start)
            codes = {name: rng.integers(0, levels, n, dtype=np.int32) for name in effects}
            y = rng.normal(size=n) + sum(effects[name][code] for name, code in codes.items())
            sink.write_table(pa.table({**codes, "y": y}, schema=schema))


def _fitted(data: Any, **options: Any) -> str:
    fit = vcomp.fit(_FORMULA, data, **options)
    each = zip(fit.vcomp.items(), fit.bse_vcomp, strict=True)
    return " ".join(f"{name} {value:.5f} ± {error:.5f}" for (name, value), error in each)


def _summed(data: Any, **options: Any) -> str:
    return f"{vcomp.VarianceComponentsModel(_FORMULA, data, **options).nobs:,} scores"


@contextmanager
def _in_batches(work: Callable[..., str], path: Path) -> Iterator[Timing]:
    yield Timing(lambda: work(path, stream=True))


def _on_dask(work: Callable[..., str], path: Path) -> AbstractContextManager[Timing]:
    return on_dask(path, _ROW_GROUPS, work)


_WORK: dict[str, Callable[[Path], AbstractContextManager[Timing]]] = {
    "fit": partial(_in_batches, _fitted), "dask": partial(_on_dask, _fitted),
    "sums": partial(_in_batches, _summed), "dask sums": partial(_on_dask, _summed),
}  # fmt: skip


def timed(part: str, path: Path) -> Measured:
    """Return what a part takes; sums are made twice."""
    return measured(partial(_WORK[part], path), 2 if "sums" in part else 1)


def table() -> str:
    """Return the stored lines as a table of the page."""
    lines = ["| | scores | levels of a facet | s | peak GiB |", "|---|---:|---:|---:|---:|"]
    for x in pd.read_csv(STORED).to_dict("records"):
        sizes = f"{x['rows']:,} | {x['levels']:,}"
        lines.append(f"| {_PARTS[x['part']]} | {sizes} | {x['seconds']:.0f} | {x['gib']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the seconds and the peak memory of each part."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.crossed_scale", description=__doc__
    )
    parser.add_argument("rows", type=lambda text: round(float(text)), help="number of scores")
    parser.add_argument("--levels", type=int, default=500_000, help="of each facet")
    parser.add_argument("--only", default="fit", help=", ".join(_WORK))
    parser.add_argument("--folder", metavar="DIR", help="for the file, 15 bytes a score")
    parser.add_argument("--keep", action="store_true", help=f"store the lines in {STORED.name}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder, "scores.parquet")
        write(path, given.rows, given.levels)
        for part in given.only.split(","):
            found = in_fresh_process(timed, part, path, limit=14_400.0)
            print(f"{part}: {given.rows:,} scores, {found}", flush=True)
            if given.keep and not isinstance(found, str):
                line = dict(zip(KEY, (part, given.rows, given.levels), strict=True))
                keep(line | {"seconds": found.seconds[-1], "gib": found.gib}, STORED, KEY)


if __name__ == "__main__":
    main()
