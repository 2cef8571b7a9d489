"""The cost of starting: first calls in a fresh process, with nothing compiled and after that.

Every time is a ratio to importing numpy, pandas, numba and patsy in the same run. The aim is 4 of
them with nothing compiled, and twice the import after ``vcomp warm-up``. Modules are compiled to
byte code before, as pip does it.
"""

from __future__ import annotations

import compileall
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import vcomp
from benchmarks.common import Report, Settings

_PEER = "import numpy, pandas, numba, patsy"
_COMMAND = "import sys; from vcomp.cli import main; sys.argv[0] = 'vcomp'; main()"
_FIT = 'import vcomp; res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))'
_README = (
    *("fit", "score ~ (1|sys*topic)", "--dataset", "docsearch"),
    *("--dstudy", "topic=50,100,150", "--tau"),
)
_CALLS = {
    "fit and print": f"{_FIT}; str(res.summary())",
    "200 bootstrap replicates": f"{_FIT}; res.bootstrap(200, rng=1, progress=False)",
    "optimize": """
import vcomp
study = vcomp.from_components({"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002,
                               "ia": .00143, "pia": .00176}).dstudy(i=50, a=1)
study.optimize("5*i + i:a", budget=1000, designs=["p x i x a", "p x (a:i)"])
""",
    "ir.accuracy with halves": """
import vcomp
rows = vcomp.datasets.load("docsearch")
table = rows.groupby(["topic", "sys"], observed=True).score.mean().unstack("sys")
vcomp.ir.accuracy(table, ["tau", "tau_ap", "Erho2", "rmse", "sens_abs"], [75, 150], rng=1)
""",
}


@dataclass(frozen=True, slots=True)
class _Took:
    """Seconds by the clock, and of the processors, which other programs disturb less."""

    clock: float
    processors: float


def run(report: Report, settings: Settings) -> None:
    report.section("start-up, each in a fresh process; times of the processors")
    repeat = 1 if settings.quick else 3
    compileall.compile_dir(Path(vcomp.__file__).parent, quiet=2)
    with tempfile.TemporaryDirectory() as folder:
        ratings = Path(folder) / "ratings.csv"
        _ratings().to_csv(ratings, index=False)
        work = {
            "vcomp --version": (_COMMAND, "--version"),
            "vcomp --help": (_COMMAND, "--help"),
            "README's first command": (_COMMAND, *_README),
            "73,421 ratings, command line": (
                *(_COMMAND, "fit", "y ~ (1|s) + (1|d) + (1|dept)", str(ratings)),
            ),
            **{name: (code,) for name, code in _CALLS.items()},
        }
        if settings.quick:
            # Those that compile next to nothing.
            work = dict(list(work.items())[:3])
        peer = min(_took(folder, _PEER).processors for _ in range(repeat))
        warm = Path(folder) / "warm"
        if not settings.quick:
            seconds = _took(warm, _COMMAND, "warm-up").processors
            report("vcomp warm-up, nothing compiled", seconds, _PEER, peer)
        for name, arguments in work.items():
            colds = [Path(folder) / f"{name} {number}" for number in range(repeat)]
            kinds = {"nothing compiled": colds, "after warm-up": [warm] * repeat}
            for kind, caches in kinds.items():
                seconds = min(_took(cache, *arguments).processors for cache in caches)
                report(f"{name}, {kind}", seconds, _PEER, peer)


def _took(cache: str | Path, code: str, *arguments: str) -> _Took:
    """Run a program with its compiled code in a folder."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "OPENBLAS_NUM_THREADS": "1"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, env=environment
    )
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return _Took(clock, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def _ratings() -> pd.DataFrame:
    """Return ratings of lecturers by students, as many and as sparse as lme4's InstEval."""
    rng, n = np.random.default_rng(1), 73_421
    s, d = rng.integers(0, 2_972, n), np.minimum(rng.exponential(250.0, n), 1_127).astype(int)
    effects = [rng.normal(scale=scale, size=3_000) for scale in (0.3, 0.5, 0.1)]
    y = 3.2 + effects[0][s] + effects[1][d] + effects[2][d % 14] + rng.normal(scale=1.2, size=n)
    return pd.DataFrame(
        {"y": np.clip(np.round(y), 1, 5).astype(int), "s": s, "d": d, "dept": d % 14}
    )
