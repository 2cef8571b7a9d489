"""Processor seconds of studies of large evaluations, and their memory.

``python -m benchmarks.eval_scale MODELS ITEMS RUNS [--missing SHARE] [--only PART,…]`` writes 0/1
scores to a Parquet file, and reports each part in a process of its own: ``study`` (twice, as the
first one compiles), ``robust`` intervals after a study, ``fit`` in batches, and ``dask`` on two
workers of a thread each. Seconds are of all threads, and a run of numba's cache is warm.
``--keep`` stores them in ``eval_scale.csv``, whose table is in ``benchmarks/README.md``.
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

_FORMULA = "score ~ C(model) + (1|item) + (1|model:item)"

_ROW_GROUPS = 10
"""Row groups, of a model each, in a partition of Dask."""

STORED = Path(__file__).with_name("eval_scale.csv")

KEY = ["part", "models", "items", "runs", "missing"]

_PARTS = {
    "study": "study of",
    "fit": "fit in batches of",
    "robust": "robust intervals of components after a study of",
    "dask": "fit on Dask of",
}


def write(path: Path, models: int, items: int, runs: int, missing: float) -> int:
    """Write simulated scores, a row group for each model, and return how many."""
    rng, n = np.random.default_rng(0), 0
    easy = 1.2 * rng.normal(size=items)
    names = ("model", "item", "epoch", "score")
    schema = pa.schema(list(zip(names, (pa.string(), *[pa.int32()] * 3), strict=True)))
    with pq.ParquetWriter(path, schema) as sink:
        for m in range(models):
            logit = 0.01 * m + easy + 0.7 * rng.normal(size=items)
            i, epoch = np.repeat(np.arange(items), runs), np.tile(np.arange(runs), items)
            score = rng.random(i.size) < 1.0 / (1.0 + np.exp(-logit[i]))
            kept = rng.random(i.size) >= missing
            columns = [np.full(i.size, f"m{m:04d}"), i, epoch, score]
            arrays = [
                pa.array(column[kept]).cast(kind)
                for column, kind in zip(columns, schema.types, strict=True)
            ]
            sink.write_table(pa.table(arrays, schema=schema))
            n += int(kept.sum())
    return n


def timed(part: str, path: Path) -> Measured:
    """Return what a part takes; a study is made twice."""
    return measured(partial(_WORK[part], path), 2 if part == "study" else 1)


@contextmanager
def _study(path: Path) -> Iterator[Timing]:
    def work() -> str:
        found = vcomp.evals.study(path)
        assert found.comparisons is not None
        significant = int(found.comparisons.table["significant"].sum())
        return f"{found.ahead[0]} first, {significant:,} pairs"

    yield Timing(work)


@contextmanager
def _robust(path: Path) -> Iterator[Timing]:
    fit = vcomp.evals.study(path).fit
    yield Timing(lambda: f"{len(fit.conf_int(interval='robust'))} intervals")


@contextmanager
def _fit(path: Path) -> Iterator[Timing]:
    yield Timing(lambda: _components(vcomp.fit(_FORMULA, path, stream=True)))


@contextmanager
def _dask(path: Path) -> Iterator[Timing]:
    with on_dask(path, _ROW_GROUPS, lambda data: _components(vcomp.fit(_FORMULA, data))) as work:
        yield work


def _components(fit: Any) -> str:
    return " ".join(f"{name} {value:.6f}" for name, value in fit.vcomp.items())


_WORK: dict[str, Callable[[Path], AbstractContextManager[Timing]]] = {
    "study": _study, "robust": _robust, "fit": _fit, "dask": _dask
}  # fmt: skip
"""What is done before the clock runs, and yields what is timed."""


def table() -> str:
    """Return the stored lines as a table of the page."""
    lines = ["| | scores | s | peak GiB |", "|---|---:|---:|---:|"]
    for x in pd.read_csv(STORED).to_dict("records"):
        share = f", {x['missing']:.0%} of the scores missing".replace("%", " %")
        name = f"{_PARTS[x['part']]} {x['models']:,} × {x['items']:,} × {x['runs']:,}"
        name += share * (x["missing"] > 0)
        lines.append(f"| {name} | {x['scores']:,} | {x['seconds']:.1f} | {x['gib']:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the seconds and the peak memory of each part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eval_scale", description=__doc__)
    for name in ("models", "items", "runs"):
        parser.add_argument(name, type=int)
    parser.add_argument("--missing", type=float, default=0.0, help="share of the scores")
    parser.add_argument("--only", default="study", help=", ".join(_WORK))
    parser.add_argument("--folder", metavar="DIR", help="for the file, 3 bytes a score")
    parser.add_argument("--keep", action="store_true", help=f"store the lines in {STORED.name}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder, "scores.parquet")
        n = write(path, given.models, given.items, given.runs, given.missing)
        for part in given.only.split(","):
            found = in_fresh_process(timed, part, path)
            shown = found if isinstance(found, str) else f"{n:,} scores, {found}"
            print(f"{part}: {shown}", flush=True)
            if given.keep and not isinstance(found, str):
                data = (part, given.models, given.items, given.runs, given.missing)
                line = dict(zip(KEY, data, strict=True)) | {"scores": n}
                keep(line | {"seconds": found.seconds[-1], "gib": found.gib}, STORED, KEY)


if __name__ == "__main__":
    main()
