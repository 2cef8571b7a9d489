"""Time and memory of work on large data, each in a fresh process with empty caches.

The work is a function of a module, so that the process can import it.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

import vcomp
from benchmarks.common import FULL_MODEL, answer_of, memory_pass
from benchmarks.perdoc import perdoc
from vcomp.estimators import MethodName

Answer = TypeVar("Answer")

_SPAWN = multiprocessing.get_context("spawn")
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_TIMERS = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.scheduler.work-stealing-interval": "1s",
}
"""Settings of Dask whose defaults take a tenth of a processor by the clock, however idle."""

_ALLOCATION = {
    f"distributed.nanny.pre-spawn-environ.MALLOC_{name}_THRESHOLD_": 2**27
    for name in ("TRIM", "MMAP")
}
"""By default workers return freed memory at once, and fill every array with new pages."""

_LONG = 20.0
"""A call that takes longer is not repeated."""


@dataclass(frozen=True, slots=True)
class Used:
    """What calls of one function took.

    Attributes
    ----------
    first, seconds : of the first call, and of the fastest
    cpu : seconds of all threads in the call that took least of them: another program on the same
        processor disturbs this less
    peak : bytes at the highest point of the first call, above those before it
    """

    first: float
    seconds: float
    cpu: float
    peak: int


@dataclass(frozen=True, slots=True)
class FitUsed:
    """What fits of one frame took, and what was found.

    Attributes
    ----------
    n_rows, frame_bytes : of the data
    pass_seconds : of adding up the columns of the frame once
    engine_seconds : of the stages of the fit itself, without reading rows
    """

    n_rows: int
    frame_bytes: int
    pass_seconds: float
    used: Used
    engine: str
    engine_seconds: dict[str, float]
    components: dict[str, float]
    standard_errors: dict[str, float]
    monte_carlo: dict[str, float]
    llf: float


def in_fresh_process(
    work: Callable[..., Answer], *arguments: Any, limit: float = 3600.0
) -> Answer | str:
    """Do `work` in a process of its own, which is ended after `limit` seconds.

    Returns
    -------
    its answer, or why there is none, in a few words
    """
    answer: Answer | str = answer_of(_SPAWN, _send, (work, arguments), limit)
    return answer


def used_by(work: Callable[[], Any], repeat: int) -> Used:
    """Call `work` `repeat` times, once if it takes long."""
    before = _forget_peak()
    first, cpu = _call(work)
    peak = _kibibytes("VmHWM") - before
    seconds = first
    for _ in range(repeat - 1 if first < _LONG else 0):
        again, cpu_again = _call(work)
        seconds, cpu = min(seconds, again), min(cpu, cpu_again)
    return Used(first, seconds, cpu, peak * 1024)


def _here(function: Callable[[], float]) -> list[float]:
    return [function()]


@dataclass(frozen=True, slots=True)
class Timing:
    """Work to be timed.

    Attributes
    ----------
    work : returns what is printed of its result
    each : calls a function in every process that takes part, and returns the results
    """

    work: Callable[[], str]
    each: Callable[[Callable[[], float]], list[float]] = _here


@dataclass(frozen=True, slots=True)
class Measured:
    """What work took.

    Attributes
    ----------
    seconds : processor seconds of all threads and processes, of every call
    elapsed : by the clock, of the last call
    gib : largest memory of a process
    shown : of the last result
    """

    seconds: list[float]
    elapsed: float
    gib: float
    shown: str

    def __str__(self) -> str:
        each = ", then ".join(f"{s:.1f}" for s in self.seconds)
        return (
            f"{each} s of processor time, {self.elapsed:.1f} s elapsed, {self.gib:.2f} GiB; "
            f"{self.shown}"
        )


def measured(prepared: Callable[[], AbstractContextManager[Timing]], repeat: int) -> Measured:
    """Return what work takes in this process, and in those that it uses."""
    with prepared() as timing:
        seconds, elapsed, shown = [], 0.0, ""
        for _ in range(repeat):
            begun, start = sum(timing.each(time.process_time)), time.perf_counter()
            shown = timing.work()
            elapsed = time.perf_counter() - start
            seconds.append(sum(timing.each(time.process_time)) - begun)
            gc.collect()
        return Measured(seconds, elapsed, max(timing.each(_peak_gib)), shown)


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@contextmanager
def on_dask(path: Path, row_groups: int, work: Callable[[Any], str]) -> Iterator[Timing]:
    """Yield work on a Parquet file that two workers of a thread each read, to be timed.

    Parameters
    ----------
    path : of the file
    row_groups : in a partition
    work : function of the data
    """
    import dask
    import dask.dataframe as dd
    import distributed

    cluster = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        dask.config.set(_TIMERS | _ALLOCATION),
        distributed.LocalCluster(**cluster) as of,
        distributed.Client(of, direct_to_workers=True) as client,
    ):
        data = dd.read_parquet(path, split_row_groups=row_groups)

        def each(function: Callable[[], float]) -> list[float]:
            return [function(), *client.run(function).values()]

        yield Timing(lambda: work(data), each)


def keep(line: dict[str, Any], path: Path, key: list[str]) -> None:
    """Store a line in a file, in place of the one with the same key."""
    stored = pd.DataFrame([line])
    if path.exists():
        stored = pd.concat([pd.read_csv(path), stored])
    stored.drop_duplicates(key, keep="last").to_csv(path, index=False, float_format="%.3g")


def compile_kernels(method: MethodName = "reml", **options: Any) -> None:
    """Fit per-document data of no size, so that nothing is compiled while the clock runs."""
    vcomp.fit(FULL_MODEL, perdoc(6_000, n_topics=6), method=method)
    if options.get("missing"):
        data = perdoc(6_000, n_topics=6, missing=options["missing"])
        vcomp.fit(FULL_MODEL, data, method=method, engine="iterative")


def fit_perdoc(n_rows: int, method: MethodName, repeat: int = 5, **options: Any) -> FitUsed:
    """Simulate per-document data and fit them.

    Parameters
    ----------
    **options : of :func:`~benchmarks.perdoc.perdoc`; ``engine`` of the fit
    """
    engine = {"engine": options.pop("engine")} if "engine" in options else {}
    compile_kernels(method, **options)
    data = perdoc(n_rows, **options)
    return fit_frame(FULL_MODEL, data, method, repeat, **engine)


def scores_perdoc(n_rows: int, missing: float) -> tuple[int, Used, Used]:
    """Fit simulated per-document data, and find the universe scores of the systems.

    Returns
    -------
    n_rows : of the data
    fit, scores : what each took; the peak of the scores counts what the fit keeps
    """
    compile_kernels(missing=missing)
    data, found = perdoc(n_rows, missing=missing), dict[str, Any]()
    before = _forget_peak()
    fit = used_by(lambda: found.update(res=vcomp.fit(FULL_MODEL, data)), 1)
    kept = (_forget_peak() - before) * 1024
    scores = used_by(lambda: found["res"].universe_scores("p"), 1)
    return len(data), fit, replace(scores, peak=scores.peak + kept)


def fit_frame(
    formula: str, data: pd.DataFrame, method: MethodName, repeat: int, **options: Any
) -> FitUsed:
    """Fit a frame, after one pass over its columns."""
    columns = [data[name].to_numpy() for name in data]
    pass_seconds = memory_pass(columns, 3)
    used = used_by(lambda: vcomp.fit(formula, data, method=method, **options), repeat)
    res = vcomp.fit(formula, data, method=method, **options)
    return FitUsed(
        n_rows=len(data),
        frame_bytes=sum(column.nbytes for column in columns),
        pass_seconds=pass_seconds,
        used=used,
        engine=res.engine,
        engine_seconds=res.seconds,
        components=_by_name(res.vcomp),
        standard_errors=_by_name(res.bse_vcomp),
        monte_carlo=_by_name(res.mc_error),
        llf=res.llf,
    )


def _by_name(values: pd.Series) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items()}


def _call(work: Callable[[], Any]) -> tuple[float, float]:
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu


def _forget_peak() -> int:
    """Give free memory back, set the peak to what is in use, and return that, in KiB."""
    ctypes.CDLL(None).malloc_trim(0)
    _CLEAR.write_text("5")
    return _kibibytes("VmRSS")


def _kibibytes(name: str) -> int:
    lines = _STATUS.read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _send(send: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        send.send(work(*arguments))
    except (MemoryError, ValueError) as error:
        send.send(f"{type(error).__name__}: {error}"[:110])
