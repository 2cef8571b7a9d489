"""The cost of a fresh process: importing vcomp, and a small fit on the command line."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import vcomp
from benchmarks.common import Report, Settings, agree, best_of, crossed

_PEER = "import numpy, pandas"
_FORMULA = "y ~ (1|a) + (1|b)"


def run(report: Report, settings: Settings) -> None:
    report.section("import, each in a fresh process")
    repeat = 1 if settings.quick else 10
    peer_seconds = best_of(partial(_python, "-c", _PEER), repeat)
    for code in ("import vcomp", "import vcomp; vcomp.fit"):
        seconds = best_of(partial(_python, "-c", code), repeat)
        report(code, seconds, _PEER, peer_seconds)
    with tempfile.TemporaryDirectory() as folder:
        path, stored = Path(folder) / "scores.csv", Path(folder) / "fit.json"
        data = crossed(1_500, 30, 50)
        data.to_csv(path, index=False)
        seconds = best_of(
            lambda: _vcomp("fit", _FORMULA, str(path), "--json", str(stored)), repeat
        )
        theirs = vcomp.VarianceComponentsResults.from_json(stored)
        agree(vcomp.fit(_FORMULA, data).vcomp, theirs.vcomp)
        report("vcomp fit, 1,500 rows of CSV, warm cache", seconds, _PEER, peer_seconds)
        code = f"{_PEER}; import statsmodels.api; pandas.read_csv({str(path)!r})"
        report(
            "vcomp fit, 1,500 rows of CSV, warm cache",
            seconds,
            "import statsmodels.api, read_csv",
            best_of(partial(_python, "-c", code), repeat),
        )


def _vcomp(*arguments: str) -> None:
    _python("-c", "from vcomp.cli import main; main()", *arguments)


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
