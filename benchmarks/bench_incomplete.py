"""Fits of tables with missing cells and of sparse data, in processor time, with lme4 beside them.

The peer of a large table is the complete table in the same run; a size that lme4 can do has both.
Where R is not installed, the peer of sparse data is the time of lme4 that was measured before.
A fit runs in a child process that is stopped after ``--limit`` seconds of processor time.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import vcomp
from benchmarks.bench_engines import warm_up
from benchmarks.common import FULL_MODEL, Report, Settings, attempt
from benchmarks.compare import agree_fits, fit_lme4
from benchmarks.perdoc import N_ASSESSORS, perdoc

PAIRS = "y ~ (1|m) + (1|i) + (1|p) + (1|m:i) + (1|m:p) + (1|i:p)"
_RATINGS = "y ~ (1|s) + (1|d) + (1|dept)"
_LONG = 2.0
_REFITS, _REPEAT = 10, 3
_SHARES = (0.02, 0.2, 0.5)
_BEFORE = {"persons": 18.7, "pupils": 19.5, "InstEval": 13.0}
"""Seconds of a fit by lme4 1.1-31, of the full sizes; another run on a machine of two cores."""


def run(report: Report, settings: Settings) -> None:
    warm_up()
    _models(report, settings, 150, with_lme4=True)
    _models(report, settings, 50 if settings.quick else 500)
    _models(report, settings, 500 if settings.quick else 14_000)
    _documents(report, settings)
    _several_variables(report, settings)
    report.section("sparse data")
    n = settings.rows(100_000)
    _beside_lme4(
        report,
        settings,
        f"persons × items × raters, {n:,} rows",
        "y ~ (1|p) + (1|i) + (1|r) + (1|p:i)",
        persons(n),
        before=None if settings.quick else _BEFORE["persons"],
    )
    n = settings.rows(1_200_000)
    _beside_lme4(
        report,
        settings,
        f"x + (1|school/class), {n:,} rows",
        "y ~ x + (1|school) + (1|school:room)",
        pupils(n),
        before=None if settings.quick else _BEFORE["pupils"],
    )
    _ratings(report, settings)


def models(n_items: int, share: float) -> pd.DataFrame:
    """Return scores of 30 models for items with 3 prompts, a share of them missing at random."""
    rng = np.random.default_rng(1)
    m, i, p = (axis.ravel() for axis in np.indices((30, n_items, 3)))
    y = rng.normal(size=30)[m] + 1.5 * rng.normal(size=n_items)[i] + 0.2 * rng.normal(size=3)[p]
    y += 0.7 * rng.normal(size=(30, n_items))[m, i] + 0.3 * rng.normal(size=(30, 3))[m, p]
    y += 0.4 * rng.normal(size=(n_items, 3))[i, p] + rng.normal(size=m.size)
    kept = rng.random(m.size) >= share
    frame: pd.DataFrame = pd.DataFrame({"m": m, "i": i, "p": p, "y": y})[kept]
    return frame.reset_index(drop=True)


def documents(n_rows: int) -> pd.DataFrame:
    """Return per-document scores in which each assessor left out 6.5 % of the documents."""
    data = perdoc(n_rows)
    n_documents = int(data["d"].max()) + 1
    left_out = np.random.default_rng(3).random((N_ASSESSORS, n_documents)) < 0.065
    kept: pd.DataFrame = data[~left_out[data["a"].to_numpy(), data["d"].to_numpy()]]
    return kept.reset_index(drop=True)


def persons(n: int) -> pd.DataFrame:
    """Return scores of 5,000 persons, 200 items and 50 raters that meet at random."""
    rng = np.random.default_rng(1)
    p, i, r = (rng.integers(levels, size=n) for levels in (5_000, 200, 50))
    y = rng.normal(size=5_000)[p] + 0.7 * rng.normal(size=200)[i] + 0.4 * rng.normal(size=50)[r]
    y += 0.5 * rng.normal(size=(5_000, 200))[p, i] + rng.normal(size=n)
    return pd.DataFrame({"p": p, "i": i, "r": r, "y": y})


def pupils(n: int) -> pd.DataFrame:
    """Return scores of pupils in rooms of schools, with a covariate; sizes of rooms differ."""
    rng = np.random.default_rng(1)
    n_rooms = n // 20
    room = np.sort(rng.integers(n_rooms, size=n))
    school, x = room // 20, rng.normal(size=n)
    y = 0.5 * x + rng.normal(size=n_rooms // 20 + 1)[school]
    y += 0.7 * rng.normal(size=n_rooms)[room] + rng.normal(size=n)
    return pd.DataFrame({"school": school, "room": room, "x": x, "y": y})


VARIABLES = [f"y{v}" for v in range(8)]


def variables(
    n_rows: int, effects: str, *, rows: float = 0.0, values: float = 0.0
) -> pd.DataFrame:
    """Return 8 correlated variables, with a share of the rows and of the single values missing.

    Parameters
    ----------
    n_rows : about as many, before any are missing
    effects : ``"a/b"``, of 8 groups b in each a with 10 rows, or ``"a + b"``, of 20 levels b
    rows, values : shares
    """
    rng = np.random.default_rng(1)
    if effects == "a/b":
        b = np.repeat(np.arange(n_rows // 10), 10)
        frame = pd.DataFrame({"a": b // 8, "b": b})
    else:
        a, b = np.divmod(np.arange(n_rows), 20)
        frame = pd.DataFrame({"a": a, "b": b})
    v = len(VARIABLES)
    y = rng.normal(size=(n_rows, v))
    for name, scale in (("a", 1.0), ("b", 0.7)):
        codes = frame[name].to_numpy()
        loadings = np.eye(v) + 0.5 * rng.normal(size=(v, v)) / np.sqrt(v)
        y += scale * (rng.normal(size=(codes.max() + 1, v)) @ loadings)[codes]
    y[rng.random(y.shape) < values] = np.nan
    kept = rng.random(n_rows) >= rows
    made: pd.DataFrame = frame.assign(**dict(zip(VARIABLES, y.T, strict=True)))[kept]
    return made.reset_index(drop=True)


def processor_seconds(work: Callable[[], Any], repeat: int = _REPEAT) -> float:
    """Return the least processor time of some calls after a first one; one if it takes long."""
    first = _seconds(work)
    return first if first > _LONG else min(_seconds(work) for _ in range(repeat))


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _models(report: Report, settings: Settings, n_items: int, *, with_lme4: bool = False) -> None:
    report.section(f"30 models × {n_items:,} items × 3 prompts, 7 components")
    complete = _fitted(settings, PAIRS, models(n_items, 0.0))
    for share in _SHARES:
        frame, name = models(n_items, share), f"{share:.0%} missing"
        if with_lme4:
            _beside_lme4(report, settings, f"{name}, {len(frame):,} rows", PAIRS, frame)
        _beside(report, f"{name}, {len(frame):,} rows", _fitted(settings, PAIRS, frame), complete)


def _documents(report: Report, settings: Settings) -> None:
    n = settings.rows(5_880_000)
    report.section("p × a × (d:i), other documents for each assessor")
    complete = _fitted(settings, FULL_MODEL, perdoc(n))
    frame = documents(n)
    _beside(report, f"{len(frame):,} rows", _fitted(settings, FULL_MODEL, frame), complete)


def _several_variables(report: Report, settings: Settings) -> None:
    n = settings.rows(100_000)
    report.section("8 variables by REML")
    for effects, terms in (("a/b", "(1|a/b)"), ("a + b", "(1|a) + (1|b)")):

        def seconds(frame: pd.DataFrame, terms: str = terms) -> float | str:
            work = partial(_seconds_of_several, settings, frame, terms)
            return attempt(work, settings.limit)

        complete = seconds(variables(n, effects))
        for name, shares in (
            ("10 % of the rows missing", {"rows": 0.1}),
            ("5 % of the values missing", {"values": 0.05}),
            ("20 % of the values missing", {"values": 0.2}),
        ):
            frame = variables(n, effects, **shares)
            _beside(report, f"{effects}, {name}, {len(frame):,} rows", seconds(frame), complete)


def _seconds_of_several(settings: Settings, frame: pd.DataFrame, terms: str) -> float:
    fit = partial(vcomp.fit_multivariate, terms, responses=VARIABLES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)  # scores are missing
        fit(frame[:1000])
        return processor_seconds(partial(fit, frame), min(_REPEAT, settings.repeat))


def _fitted(settings: Settings, formula: str, frame: pd.DataFrame) -> float | str:
    repeat = min(_REPEAT, settings.repeat)
    return attempt(
        partial(processor_seconds, partial(vcomp.fit, formula, frame), repeat),
        2.0 * settings.limit,
    )


def _beside(report: Report, name: str, found: float | str, peer: float | str) -> None:
    if isinstance(found, str) or isinstance(peer, str):
        report.omit(name, found if isinstance(found, str) else peer)  # type: ignore[arg-type]
    else:
        report(name, found, "the complete table", peer)


def _beside_lme4(
    report: Report,
    settings: Settings,
    name: str,
    formula: str,
    frame: pd.DataFrame,
    *,
    before: float | None = None,
) -> None:
    """Compare components and log-likelihood with those of lme4, then the times.

    Parameters
    ----------
    before : the time of lme4 in an earlier run, which serves where it cannot be run
    """
    found = _fitted(settings, formula, frame)
    peer = fit_lme4(formula, frame, reml=True, limit=settings.limit)
    if isinstance(found, str):
        report.omit(name, found)
    elif isinstance(peer, str):
        if before is None:
            report.omit(f"{name}: {found:.3g} s", peer)
        else:
            report(name, found, "lme4::lmer, measured before", before)
    else:
        res = vcomp.fit(formula, frame)
        agree_fits(res.vcomp.to_dict(), res.llf, peer)
        report(name, found, "lme4::lmer", peer.cpu)


def _ratings(report: Report, settings: Settings) -> None:
    """Compare refits of InstEval with one fit by lme4."""
    folder = os.environ.get("VCOMP_REFERENCE", "")
    path = Path(folder) / "data" / "InstEval.csv"
    name = "InstEval, 73,421 rows"
    if settings.quick or not folder or not path.exists():
        report.omit(name, "not in a quick run, and VCOMP_REFERENCE names the folder of its data")
        return
    frame = pd.read_csv(path)
    _beside_lme4(report, settings, name, _RATINGS, frame, before=_BEFORE["InstEval"])
    res = vcomp.fit(_RATINGS, frame)
    one = processor_seconds(lambda: vcomp.fit(_RATINGS, frame))
    boot = processor_seconds(lambda: res.bootstrap(_REFITS, rng=1, progress=False), 1) / _REFITS
    report(f"{name}, bootstrap, a refit", boot, "vcomp.fit", one)
    start = time.process_time()
    curves = res.profile().curves.values()
    profile = (time.process_time() - start) / sum(curve.theta.size for curve in curves)
    report(f"{name}, profile, a point", profile, "vcomp.fit", one)
