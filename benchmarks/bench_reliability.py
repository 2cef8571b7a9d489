"""Scores → Eτ, split halves and simulated collections, beside the same algorithms in plain R.

Both sides are measured in processor time: R's calls are long, and other programs would disturb
them more than those of vcomp.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import Report, Settings, agree, score_matrix
from benchmarks.compare import reliability as plain_r
from vcomp import ir
from vcomp.ir.kernels.quantile_tables import effects_at, scores_from_effects
from vcomp.ir.simulate.margin import LOW, PER_UNIT
from vcomp.ir.splits import draw_halves, published_sizes, published_trials

_SIZES = (5, 10, 15, 20, 25, 35, 50, 100, 150, 200, 250, 350, 500)
"""Of the tests in Urbano (2016)."""

_MEASURES = ("tau", "tau_ap", "sens_abs", "sens_rel")

_SEED = 1
_OFTEN = 10
"""How much more often our calls are timed; R repeats short ones too."""

_TAIL = 2.0
"""Standard deviations from where on margins are not compared."""


def run(report: Report, settings: Settings) -> None:
    n_topics, n_systems = 50, settings.rows(100)
    X = score_matrix(n_topics, n_systems)
    report.section(f"reliability, {n_systems} systems × {n_topics} topics")
    _compare_tau(report, settings, X, (n_topics,))
    _compare_tau(report, settings, X, _SIZES)
    for measure in _MEASURES:
        _compare_halves(report, settings, X, (measure,))
    _compare_halves(report, settings, X, _MEASURES)
    _compare_halves(report, settings, X, _MEASURES, anew=True)
    _compare_simulation(report, settings, X)


def _best_of(work: Callable[[], Any], repeat: int) -> float:
    """Return the least processor time of a call, after one to warm up."""
    work()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def _compare_tau(report: Report, settings: Settings, X: Any, sizes: tuple[int, ...]) -> None:
    name = f"Eτ, {len(sizes)} {'size' if len(sizes) == 1 else 'sizes'}"
    peer = plain_r.expect_tau(X, sizes, repeats=settings.repeat_of_r, limit=settings.limit)
    if isinstance(peer, str):
        report.omit(name, peer)
        return
    work = partial(ir.expected_tau, X, sizes, estimator="urbano")
    ours = work()
    agree(ours["estimate"], peer.estimate, rtol=0.0, atol=1e-8)
    agree(ours["variance"], peer.variance, rtol=1e-8)
    seconds = _best_of(work, _OFTEN * settings.repeat)
    report(name, seconds, "R, a loop over pairs", peer.seconds)


def _compare_halves(
    report: Report, settings: Settings, X: Any, measures: tuple[str, ...], *, anew: bool = False
) -> None:
    """Compare all of a study: ours draws the halves in its time, and R is given the same ones.

    Both predict numbers; a table of them with intervals, which R does not make, is timed besides.
    """
    sizes = published_sizes(len(X))
    trials = published_trials(len(sizes))
    what = "all measures" if len(measures) > 1 else measures[0]
    name = f"{what} of {trials * len(sizes):,} halves, 3 curves"
    halves = [draw_halves(len(X), n, trials, _SEED) for n in sizes]
    peer = plain_r.split_half(
        X, halves, measures, _SIZES, anew=anew, repeats=settings.repeat_of_r, limit=settings.limit
    )
    if isinstance(peer, str):
        report.omit(name, peer)
        return
    asked = np.array(_SIZES, dtype=float)

    def study() -> ir.SplitHalfStudy:
        return ir.split_half(X, measures, _SIZES, rng=_SEED, progress=False)

    def predictions() -> list[Any]:
        return [curve.at(asked) for curve in study().curves.values()]

    _agree_halves(study(), peer)
    repeat = _OFTEN * settings.repeat
    seconds = _best_of(predictions, repeat)
    if anew:
        report(name, seconds, "R, halves anew for each curve", peer.seconds)
        return
    report(name, seconds, "R, a function for each pair", peer.seconds)
    if len(measures) > 1:
        seconds = _best_of(lambda: study().table, repeat)
        report("… and a table with intervals", seconds, "without one", peer.seconds)


def _agree_halves(study: ir.SplitHalfStudy, peer: plain_r.PeerHalves) -> None:
    frame, table = study.frame, study.table
    for measure, values in peer.accuracies.items():
        agree(frame[measure], values, rtol=0.0, atol=1e-10)
        for model, predicted in peer.predicted[measure].items():
            rows = table[(table["measure"] == measure) & (table["model"] == model)]
            # glm() stops when the deviance changes by less than 1e-8 of itself.
            agree(rows["estimate"], predicted, rtol=0.0, atol=1e-5 if model == "logit" else 1e-8)


def _compare_simulation(report: Report, settings: Settings, X: Any) -> None:
    name = f"one collection of {len(X)} topics"
    peer = plain_r.simulate(X, len(X), repeats=settings.repeat_of_r, limit=settings.limit)
    if isinstance(peer, str):
        report.omit(name, peer)
        return
    simulator = ir.fit_collection(X, means="fitted")  # as published
    _agree_simulation(simulator, peer)
    seconds = _best_of(partial(simulator.simulate, len(X), rng=_SEED), _OFTEN * settings.repeat)
    report(name, seconds, "R, a root for each score", peer.seconds)
    seconds = _best_of(partial(ir.fit_collection, X, means="fitted"), settings.repeat)
    report("what comes before it, once", seconds, "R, ks::kcde, nearPD", peer.configure_seconds)


def _agree_simulation(simulator: Any, peer: plain_r.PeerSimulation) -> None:
    """Compare correlations, and scores that both make of the same normals."""
    topics_last = np.roll(np.arange(len(simulator.factor)), -1)
    ours = (simulator.factor @ simulator.factor.T)[np.ix_(topics_last, topics_last)]
    agree(ours, peer.correlations, rtol=0.0, atol=1e-10)
    residuals, topics = np.ascontiguousarray(peer.normals[:, :-1]), peer.normals[:, -1].copy()
    scores = np.empty_like(peer.scores)
    scores_from_effects(
        residuals,
        effects_at(simulator.topic_margin.quantiles, topics, LOW, PER_UNIT),
        simulator.offsets,
        simulator.tables,
        LOW,
        PER_UNIT,
        simulator.scale.smoothing,
        scores,
    )
    # kcde() adds up a density on 401 points, each with the whole of its step: its quantiles are
    # half a step too low, and a score has two of them. Its density is binned, which leaves errors
    # of 1e-4 in probabilities: the tails, where these are far apart, are left out, as are scores
    # that are cut off.
    step = 2.0 * simulator.scale.reach / 400
    inside = (np.abs(residuals) < _TAIL) & (np.abs(topics) < _TAIL)[:, None]
    inside &= (np.minimum(scores, peer.scores) > 0.0) & (np.maximum(scores, peer.scores) < 1.0)
    forward = simulator.scale.forward
    above = forward(scores[inside]) - forward(peer.scores[inside])
    agree(above.mean(), step, rtol=0.01)
    agree(above, step, rtol=0.2)
