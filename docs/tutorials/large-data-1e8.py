"""Fit 10⁸ rows in files: seconds, peak memory, and the time of reading alone.

Writes 50 Parquet files of two million rows each into a temporary folder (about 0.9 GB), which is
removed at the end. Each step runs in a process of its own, so that its peak memory is its own.

    python large-data-1e8.py
"""

import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MODELS, TASKS, ITEMS, SAMPLES, FILES = 40, 1_000, 250, 10, 50
SD = {
    "model": 0.05, "task": 0.10, "task:item": 0.15, "model:task": 0.04, "model:task:item": 0.10,
    "Residual": 0.10,
}  # fmt: skip
FORMULA = "score ~ (1|model*(task/item))"


def write(folder):
    """Write the files: each has all models, and tasks of its own."""
    rng = np.random.default_rng(1)
    model = 0.6 + rng.normal(0, SD["model"], (MODELS, 1, 1, 1))
    tasks = TASKS // FILES
    shape = (MODELS, tasks, ITEMS, SAMPLES)
    for k in range(FILES):
        score = model + rng.normal(0, SD["task"], (1, tasks, 1, 1))
        score = score + rng.normal(0, SD["model:task"], (MODELS, tasks, 1, 1))
        score = score + rng.normal(0, SD["task:item"], (1, tasks, ITEMS, 1))
        score = score + rng.normal(0, SD["model:task:item"], (MODELS, tasks, ITEMS, 1))
        score = score + rng.normal(0, SD["Residual"], shape)
        levels = np.indices(shape[:3], dtype=np.int32).reshape(3, -1).repeat(SAMPLES, axis=1)
        columns = dict(zip(["model", "task", "item"], levels, strict=True), score=score.ravel())
        columns["task"] = columns["task"] + k * tasks
        pq.write_table(pa.table(columns), f"{folder}/part{k:02d}.parquet")


def read(folder):
    """Read all columns of all files with pyarrow."""
    for path in sorted(Path(folder).glob("*.parquet")):
        pq.read_table(path)


def fit(folder):
    """Fit all files in batches; intervals from the sums, for normal effects."""
    import vcomp

    res = vcomp.fit(FORMULA, folder, stream=True)
    print(res.gstudy(interval="mls").round(6).to_string())


def fit_robustly(folder):
    """Fit all files with robust intervals, the default, which need one more pass over the rows."""
    import vcomp

    res = vcomp.fit(FORMULA, folder, stream=True)
    print(res.gstudy().round(6).to_string())


def added(paths):
    """Return the sum of statistics, halves first, so that large sums are seldom copied."""
    import vcomp

    if len(paths) == 1:
        return vcomp.AccumulatedStatistics.load(paths[0])
    half = len(paths) // 2
    return added(paths[:half]) + added(paths[half:])


def add(folder):
    """Store the statistics of each file, then add and fit them."""
    import vcomp

    paths = []
    for path in sorted(Path(folder).glob("*.parquet")):
        paths.append(path.with_suffix(".vcomp"))
        vcomp.accumulate(FORMULA, path).save(paths[-1])
    print(added(paths).fit().gstudy(interval="mls").round(6).to_string())


def timed(step, folder):
    """Return seconds and processor seconds of a step, and the peak memory of its process."""
    if step not in (write, read):  # load compiled code first, with a part of the data
        import vcomp

        vcomp.fit(FORMULA, f"{folder}/part00.parquet", stream=True).gstudy()
    start, cpu_start = time.perf_counter(), time.process_time()
    step(folder)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    return seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    """Run all steps."""
    reading = float("nan")
    with tempfile.TemporaryDirectory() as folder:
        for step in (write, read, fit, add, fit_robustly):
            print(step.__doc__, flush=True)
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                seconds, cpu, peak = pool.submit(timed, step, folder).result()
            line = f"{seconds:.1f} s ({cpu:.1f} s of processors), peak memory {peak:,.0f} MiB"
            if step is write:
                size = sum(path.stat().st_size for path in Path(folder).iterdir())
                rows = MODELS * TASKS * ITEMS * SAMPLES
                line += f"\n{MODELS} models × {TASKS:,} tasks × {ITEMS} items × {SAMPLES} samples"
                line += f" = {rows:,} rows in {FILES} files, {size / 1e9:.2f} GB"
            elif step is read:
                reading = cpu
            else:
                line += f"\n{cpu / reading:.1f} times the processor time of reading"
            print(f"{line}\n", flush=True)


if __name__ == "__main__":
    main()
