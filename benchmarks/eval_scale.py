"""Processor seconds of studies of large evaluations, and their memory.

``python -m benchmarks.eval_scale MODELS ITEMS RUNS [--missing SHARE] [--only PART,…]`` writes 0/1
scores to a Parquet file, and reports each part in a process of its own: ``study`` (twice, as the
first one compiles), ``robust`` intervals after a study, ``fit`` in batches, and ``dask`` on two
workers of a thread each. Seconds are of all threads, and a run of numba's cache is warm.
``--keep`` stores them in ``eval_scale.csv``, whose table is in ``benchmarks/README.md``.
"""

from __future__ import annotations

import argparse
import gc
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import vcomp
from benchmarks.measure import in_fresh_process

_FORMULA = "score ~ C(model) + (1|item) + (1|model:item)"

_ROW_GROUPS = 10
"""Row groups, of a model each, in a partition of Dask."""

STORED = Path(__file__).with_name("eval_scale.csv")

_KEY = ["part", "models", "items", "runs", "missing"]

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


def timed(part: str, path: Path) -> tuple[list[float], float, float, str]:
    """Return processor seconds of several runs, elapsed ones of the last, GiB, and the result."""
    work, seconds = _WORK[part](path), []
    for _ in range(2 if part == "study" else 1):
        start, begun = _seconds(), time.perf_counter()
        shown = work()
        seconds.append(_seconds() - start)
        elapsed = time.perf_counter() - begun
        gc.collect()
    own, others = (
        resource.getrusage(who).ru_maxrss / 2**20
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return seconds, elapsed, max(own, others), shown


def _seconds() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _study(path: Path) -> Callable[[], str]:
    def work() -> str:
        found = vcomp.evals.study(path)
        assert found.comparisons is not None
        significant = int(found.comparisons.table["significant"].sum())
        return f"{found.ahead[0]} first, {significant:,} pairs"

    return work


def _robust(path: Path) -> Callable[[], str]:
    fit = vcomp.evals.study(path).fit
    return lambda: f"{len(fit.conf_int(interval='robust'))} intervals"


def _fit(path: Path) -> Callable[[], str]:
    return lambda: _components(vcomp.fit(_FORMULA, path, stream=True))


def _dask(path: Path) -> Callable[[], str]:
    def work() -> str:
        import dask.dataframe as dd
        import distributed

        cluster = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        with distributed.LocalCluster(**cluster) as of, distributed.Client(of):
            data = dd.read_parquet(path, split_row_groups=_ROW_GROUPS)
            return _components(vcomp.fit(_FORMULA, data))

    return work


def _components(fit: Any) -> str:
    return " ".join(f"{name} {value:.6f}" for name, value in fit.vcomp.items())


_WORK: dict[str, Callable[[Path], Callable[[], str]]] = {
    "study": _study, "robust": _robust, "fit": _fit, "dask": _dask
}  # fmt: skip
"""What is done before the clock runs, and returns what is timed."""


def keep(line: dict[str, Any], path: Path = STORED) -> None:
    """Store a line, in place of that of the same part and data."""
    stored = pd.concat([pd.read_csv(path), pd.DataFrame([line])])
    stored.drop_duplicates(_KEY, keep="last").to_csv(path, index=False, float_format="%.3g")


def table() -> str:
    """Return the stored lines as a table of the page."""
    lines = ["| | scores | s | peak GiB |", "|---|---:|---:|---:|"]
    for x in pd.read_csv(STORED).itertuples():
        missing = f", {x.missing:.0%} of the scores missing".replace("%", " %") * (x.missing > 0)
        name = f"{_PARTS[x.part]} {x.models:,} × {x.items:,} × {x.runs:,}{missing}"
        lines.append(f"| {name} | {x.scores:,} | {x.seconds:.1f} | {x.gib:.1f} |")
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
            if isinstance(found, str):
                print(f"{part}: {found}", flush=True)
                continue
            seconds, elapsed, memory, shown = found
            each = ", then ".join(f"{s:.1f}" for s in seconds)
            print(f"{part}: {n:,} scores, {each} s of processor time, {elapsed:.1f} s elapsed, "
                  f"{memory:.2f} GiB; {shown}", flush=True)  # fmt: skip
            if given.keep:
                data = (part, given.models, given.items, given.runs, given.missing)
                keep(dict(zip(_KEY, data, strict=True), scores=n, seconds=seconds[-1], gib=memory))


if __name__ == "__main__":
    main()
