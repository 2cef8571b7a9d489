"""The effect of the published rule for tied differences on the errors of the sensitivities.

``python -m benchmarks.bias_study.ties --out DIR`` (5 minutes), after a whole run with
``--sensitivities --out DIR``. In the library, pairs with equal differences are one threshold,
which is rejected if more than the allowed share of them is swapped. The code of the paper goes
through the pairs one by one, ties in the order in which systems are listed, and stops after any of
them. It distinguishes relative differences above 100 %, gives them the sign of the larger mean,
and limits them to 100 % at the end. If its halves have a sensitivity at one size only, its curve
is constant.

Everything else is as in the study, with the first few trials of each cell. The published rule is
used only for sensitivities that are undefined in the library. Others hardly differ: there a
threshold may lie within ties, and scores are rounded to four decimals.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numba import njit

from benchmarks.bias_study.cells import SIZES, Cell, parts_of, simulator
from benchmarks.bias_study.evaluate import MEASURES, Evaluation, estimators, halves_of
from benchmarks.bias_study.published import TABLES
from benchmarks.bias_study.store import Settings, load, stacked
from benchmarks.bias_study.variance import components_of
from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError
from vcomp.ir.agreement import MeanRows
from vcomp.ir.curve import MODELS, Model, fit_curve
from vcomp.ir.kernels.topic_sets import means_of_sets
from vcomp.ir.measures import MeanMeasure, get
from vcomp.ir.splits import draw_halves
from vcomp.numerics.memory import limited_blas
from vcomp.numerics.parallel import stream

_NAMES = ("sens_abs", "sens_rel")
_TRIALS = (40, 12, 5, 4, 4, 3, 2, 2, 2, 2, 2, 2, 2)
"""Of each size: errors vary most where topics are few, and these are soon done."""

_DECIMALS = 4
"""Of simulated scores, which were written to text files."""

_RATE = 0.05


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def listed(means: FloatArray, truth: FloatArray, relative: bool) -> FloatArray:
    """Return the sensitivity of each row as the code of the paper has it, (m,).

    Parameters
    ----------
    means, truth : (m, k) two scores of each system
    relative : whether differences are divided by the larger mean
    """
    m, k = means.shape
    size, agrees = np.empty(k * (k - 1) // 2), np.empty(k * (k - 1) // 2)
    delta = np.full(m, np.nan)
    for row in range(m):
        x, y, p = means[row], truth[row], 0
        for i in range(k - 1):
            for j in range(i + 1, k):
                d = x[i] - x[j]
                larger = max(x[i], x[j])
                if relative:
                    d = d / larger if larger != 0.0 else (np.inf * d if d != 0.0 else np.nan)
                size[p], agrees[p] = abs(d), np.sign(d) * np.sign(y[i] - y[j])
                p += 1
        right = wrong = 0
        for p in np.argsort(-size, kind="mergesort"):
            if np.isnan(size[p]):
                break
            right += int(agrees[p] > 0.0)
            wrong += int(agrees[p] < 0.0)
            if right + wrong > 0 and wrong / (right + wrong) <= _RATE:
                delta[row] = min(1.0, size[p])
    return delta


def curve_as_published(n: FloatArray, values: FloatArray, model: Model) -> FloatArray:
    """Return what a curve says of tests of all sizes, as R has it where there is no slope, (13,).

    Parameters
    ----------
    n : (m,) topics of halves
    values : (m,) their sensitivities, up to 1; nan is missing
    """
    targets = np.array(SIZES, dtype=float)
    there = np.isfinite(values) & ((values > 0.0) | (model == "logit"))
    n, values = n[there], values[there]
    sizes = np.unique(n)
    if sizes.size == 0:
        return np.full(targets.size, np.nan)
    if sizes.size == 1:
        level = values.mean() if model == "logit" else np.exp(np.log(values).mean())
        return np.full(targets.size, level)
    try:
        return fit_curve(n, values, model, scale="error").at(targets)
    except EstimationError:
        return _step(sizes, np.array([values[n == size].mean() for size in sizes]), targets)


def _step(sizes: FloatArray, means: FloatArray, targets: FloatArray) -> FloatArray:
    """Return what a logit curve tends to that is 1 or 0 but at one size, as R leaves it."""
    if (means == means[0]).all():
        return np.full(targets.size, means[0])
    at = int(np.argmax((means > 0.0) & (means < 1.0)))
    falls = means[0] > means[-1]
    beyond = np.where(targets > sizes[at], not falls, falls).astype(float)
    return np.where(targets == sizes[at], means[at], beyond)


def totals(values: Evaluation, settings: Settings) -> Iterator[tuple[int, str, float, float]]:
    """Yield table, estimator and totals of some collections: by the library, and as published."""
    some = [np.arange(settings.trials) % trials for trials in _TRIALS]
    actual = values.actual[..., 0, [MEASURES.index(name) for name in _NAMES]]
    rules = (actual, _actual_as_published(actual, settings))
    names = [one.name for one in estimators(True)]
    own = values.estimates[..., [names.index(f"{s}.{m}") for s in _NAMES for m in MODELS], :]
    estimates = (own, _estimates_as_published(own, settings))
    for table in TABLES:
        if table.number not in (4, 7):
            continue
        for e, name in enumerate(table.columns):
            found = []
            for true, guesses in zip(rules, estimates, strict=True):
                here, right = guesses[..., e, :], true[..., e // len(MODELS)]
                if table.number == 4:
                    off = np.moveaxis(np.diagonal(here, axis1=5, axis2=7), -1, 5) - right
                else:
                    off = here - np.nanmean(right, axis=6)[:, :, :, :, :, None, None, :]
                taken = [off[:, :, :, :, :, k, trials] for k, trials in enumerate(some)]
                found.append(float(components_of(np.stack(taken, axis=5), table.factors)[-1]))
            yield table.number, name, found[0], found[1]


def _drawn(cell: Cell, trial: int, seed: int) -> tuple[FloatArray, int]:
    """Return a collection of the study, and the seed of its halves."""
    rng = stream(seed, cell.number(trial))
    return simulator(cell.part).draw(cell.n_topics, rng), int(rng.integers(2**62))


def _actual_as_published(actual: FloatArray, settings: Settings) -> FloatArray:
    """Return actual sensitivities by the published rule, where the library's have none."""
    found, parts = actual.copy(), parts_of(settings.collections)
    for place in np.argwhere(np.isnan(actual)):
        part = parts[np.ravel_multi_index(tuple(place[:5]), actual.shape[:5])]
        Y, _ = _drawn(Cell(part, int(place[5])), int(place[6]), settings.seed)
        truth = simulator(part).scores.mean(axis=0)
        means = Y.round(_DECIMALS).mean(axis=0)
        found[tuple(place)] = listed(means[None], truth[None], bool(place[7]))[0]
    return found


def _estimates_as_published(own: FloatArray, settings: Settings) -> FloatArray:
    """Return estimates by the published rule, of the first trials of each cell; others are nan."""
    found = np.full(own.shape, np.nan)
    for place, part in zip(np.ndindex(own.shape[:5]), parts_of(settings.collections), strict=True):
        for size, trials in enumerate(_TRIALS):
            for trial in range(trials):
                Y, seed = _drawn(Cell(part, size), trial, settings.seed)
                found[(*place, size, trial)] = _of_halves(Y, seed)
    return found


def _of_halves(Y: FloatArray, seed: int) -> FloatArray:
    """Return estimates of tests of all sizes, (6, 13)."""
    sizes, trials = halves_of(len(Y))
    halves = [draw_halves(len(Y), size, trials, seed) for size in sizes]

    def means(X: FloatArray) -> tuple[FloatArray, FloatArray]:
        sets = ([one.collection for one in halves], [one.truth for one in halves])
        made = [
            np.concatenate([means_of_sets(X, np.ascontiguousarray(s)) for s in of]) for of in sets
        ]
        return made[0], made[1]

    n, estimates = np.repeat(np.array(sizes, dtype=float), trials), []
    rows, rounded = MeanRows(*means(Y)), means(Y.round(_DECIMALS))
    for name in _NAMES:
        measure = get(name)
        assert isinstance(measure, MeanMeasure)
        seen = measure.actual_of_rows(rows)
        none = np.isnan(seen)
        seen[none] = listed(rounded[0][none], rounded[1][none], name == "sens_rel")
        estimates += [curve_as_published(n, np.minimum(seen, 1.0), model) for model in MODELS]
    return np.stack(estimates)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bias_study.ties")
    parser.add_argument("--out", type=Path, required=True, help="folder of the parts of a run")
    parser.add_argument("--seed", type=int, default=20_160_601, help="of that run")
    arguments = parser.parse_args()
    settings = Settings(arguments.seed, 100, sensitivities=True)
    parts = [load(arguments.out, part, settings) for part in parts_of()]
    there = [one for one in parts if one is not None]
    if len(there) < len(parts):
        sys.exit(f"{arguments.out} has {len(there)} of {len(parts)} parts: finish that run first")
    values = stacked(there, len(settings.collections))
    with limited_blas(0):
        for table, name, here, published in totals(values, settings):
            print(f"table {table}  {name:14}  {here:.6f}  {published:.6f}  {published / here:.3f}")


if __name__ == "__main__":
    main()
