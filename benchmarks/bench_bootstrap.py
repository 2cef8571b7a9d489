"""Parametric bootstrap: refits of drawn statistics, against the ordinary engine and whole fits."""

from __future__ import annotations

from typing import Any

import numpy as np

import vcomp
from benchmarks.common import FULL_MODEL, Report, Settings, agree, best_of, crossed
from benchmarks.perdoc import LARGE, MIDDLE, SMALL, perdoc
from vcomp.inference.resampling.draws import draws_of
from vcomp.inference.resampling.refits import ByLikelihood
from vcomp.inference.resampling.replicates import Replicates
from vcomp.numerics.parallel import stream

_BY_ROWS = 20


def run(report: Report, settings: Settings) -> None:
    report.section(f"bootstrap, {_refits(settings):,} refits by REML")
    sizes = [SMALL] if settings.quick else [SMALL, MIDDLE, LARGE]
    for n_rows in sizes:
        _strata(report, settings, n_rows)
    _rows(report, settings.rows(100_000))


def _refits(settings: Settings) -> int:
    return 100 if settings.quick else 1_000


def _strata(report: Report, settings: Settings, n_rows: int) -> None:
    """Compare refits of p × a × (d:i) with the ordinary engine's, and with one fit a replicate."""
    model = vcomp.VarianceComponentsModel(
        FULL_MODEL, perdoc(n_rows, n_topics=10 if n_rows == SMALL else 50)
    )
    res = model.fit()
    res.bootstrap(2)
    made: dict[int, Replicates] = {}
    refits = _refits(settings)

    def bootstrap(workers: int) -> None:
        made[workers] = res.bootstrap(refits, rng=1, workers=workers)

    one = best_of(lambda: model.fit(), settings.repeat) * refits
    few = 5 if settings.quick else 25
    ordinary = best_of(lambda: _ordinary(res, few), settings.repeat)
    for workers in (1, 2):
        seconds = best_of(lambda workers=workers: bootstrap(workers), settings.repeat)  # type: ignore[misc]
        words = f"{n_rows:,} rows, {workers} worker{'s' if workers > 1 else ''}"
        report(words, seconds, f"as many whole fits of sums ({refits:,} × one)", one)
        report(
            words, seconds, f"ordinary engine ({refits // few} × {few})", ordinary * refits / few
        )
    np.testing.assert_array_equal(made[1].values, made[2].values)
    found, wanted = made[1].values[:few], _ordinary(res, few)
    agree(found, wanted, rtol=1e-6, atol=1e-6 * float(res.vcomp.max()))


def _ordinary(res: Any, n: int) -> Any:
    """Return refits of the same draws by the ordinary engine and maximisation."""
    fit = res._row_access.generating()
    draws = draws_of(fit.stats, fit.recipe)
    refit = ByLikelihood(fit.stats, fit.recipe.estimator, fit.recipe.names, fit.values)
    return np.array([refit(draws.draw(fit.values, stream(1, b))).values for b in range(n)])


def _rows(report: Report, n_rows: int) -> None:
    """Compare refits of simulated rows of two crossed facets with fits from formula and data."""
    data = crossed(n_rows, 1_000, 300)
    res = vcomp.fit("y ~ (1|a) + (1|b)", data)
    responses = res.simulate(_BY_ROWS, rng=1)

    def whole() -> None:
        for b in range(_BY_ROWS):
            vcomp.fit("y ~ (1|a) + (1|b)", data.assign(y=responses[b]))

    seconds = best_of(lambda: res.bootstrap(_BY_ROWS, rng=1), 1)
    report(
        f"{n_rows:,} rows drawn, {_BY_ROWS} refits",
        seconds,
        "vcomp.fit of each",
        best_of(whole, 1),
    )
