"""Processor seconds of studies of large evaluations, as multiples of a pass over their scores.

``python -m benchmarks.eval_scale MODELS ITEMS RUNS [MISSING]``: 0/1 scores in a Parquet file.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import vcomp


def write(path: Path, models: int, items: int, runs: int, missing: float) -> int:
    """Write simulated scores, and return how many."""
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


def main(arguments: list[str]) -> None:
    """Print the seconds, what they are of a pass, and the peak memory."""
    models, items, runs = map(int, arguments[:3])
    missing = float(arguments[3]) if len(arguments) > 3 else 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scores.parquet")
        n = write(path, models, items, runs, missing)
        scores = np.ones(n)
        start = time.process_time()
        scores.sum()
        passed = time.process_time() - start
        for name in ("study", "again, compiled"):
            start = time.process_time()
            vcomp.evals.study(path)
            seconds = time.process_time() - start
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"{name}: {n:,} scores, {seconds:.1f} s, {seconds / passed:,.0f} passes, "
                  f"{peak:.2f} GiB")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
