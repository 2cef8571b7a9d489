"""Container or file → Rows, against the library that reads the container."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from patsy import EvalEnvironment

from benchmarks.common import Report, Settings, agree, best_of, crossed
from vcomp.data.reading import Reading
from vcomp.data.rows import Rows
from vcomp.formula import parse

_FORMULA = parse("y ~ (1|a) + (1|b)")
_COLUMNS = ["a", "b", "y"]


def run(report: Report, settings: Settings) -> None:
    n = settings.rows(1_000_000)
    report.section(f"read, {n:,} rows")
    for kind in ("integer", "text", "category"):
        data = crossed(n, 1_000, 20_000, kind=kind).assign(other=0.0)
        data.loc[::1000, "y"] = np.nan
        peer = partial(_complete, data)
        _compare(report, settings, f"pandas, {kind} levels", data, "pandas dropna", peer)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.parquet"
        data.to_parquet(path)
        peer = partial(_complete_parquet, path)
        _compare(report, settings, "Parquet", path, "pyarrow, to pandas, dropna", peer)
        path = path.with_suffix(".csv")
        data.to_csv(path, index=False)
        peer = partial(_complete_csv, path)
        _compare(report, settings, "CSV", path, "pandas read_csv, dropna", peer)


def _compare(
    report: Report,
    settings: Settings,
    name: str,
    data: Any,
    peer_name: str,
    peer: Callable[[], pd.DataFrame],
) -> None:
    theirs, ours = peer(), _read(data)
    agree(ours.y, theirs["y"], rtol=0.0)
    assert (np.asarray(ours.facets["b"]) == np.asarray(theirs["b"])).all()
    seconds = best_of(lambda: _read(data), settings.repeat)
    report(name, seconds, peer_name, best_of(peer, settings.repeat))


def _complete(data: pd.DataFrame) -> pd.DataFrame:
    return data[_COLUMNS].dropna()


def _complete_parquet(path: Path) -> pd.DataFrame:
    return _complete(pq.read_table(path, columns=_COLUMNS).to_pandas())


def _complete_csv(path: Path) -> pd.DataFrame:
    return _complete(pd.read_csv(path, usecols=_COLUMNS))


def _read(data: Any) -> Rows:
    return Rows.select(_FORMULA, data, Reading(EvalEnvironment.capture(0)))
