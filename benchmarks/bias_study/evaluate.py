"""Diagnoses, actual accuracy and estimates of one simulated collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.bias_study.cells import REALISTIC, SIZES, Cell, Part, simulator
from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError
from vcomp.ir.curve import MODELS, Scale, fit_curve
from vcomp.ir.measures import MeanMeasure, get
from vcomp.ir.rank.paired import PairedDifferences
from vcomp.ir.significance import mean_squares
from vcomp.ir.simulate.source_comparison import INDICATORS, OriginalCollection
from vcomp.ir.splits import draw_halves, observed, published_sizes, published_trials
from vcomp.numerics.parallel import stream
from vcomp.simulate import CollectionSimulator

MEASURES = ("tau", "tau_ap", "sens_abs", "sens_rel", "Erho2", "Phi", "F")
"""Whose actual values are taken."""

TRUTHS = ("original", "expected")
"""What the means of a simulated collection are compared with.

``original`` are the means of the collection that was simulated from, as in the code of the paper;
``expected`` those that simulated scores have in expectation. Effects are kept on the logit scale,
so that the two differ a little unless residuals are forced to be normal."""

DIAGNOSED_FROM = 15
"""Smaller collections are not diagnosed (Urbano, 2016, sec. 5.4)."""

_DELTA, _ALPHA = 0.05, 0.05
_TARGETS: FloatArray = np.array(SIZES, dtype=float)


@dataclass(frozen=True, slots=True)
class Estimator:
    """An estimator of one measure.

    Attributes
    ----------
    name : as in the tables
    measure : that it estimates, one of :data:`MEASURES`
    """

    name: str
    measure: str

    @property
    def model(self) -> str:
        """The curve through halves, or nothing."""
        return self.name.partition(".")[2]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Numbers of some collections, or of one.

    Attributes
    ----------
    diagnosis : (..., 9) indicators; nan for small collections
    actual : (..., 2, 7) accuracy by :data:`TRUTHS` and :data:`MEASURES`
    estimates : (..., estimators, 13) accuracy of tests of :data:`SIZES`
    """

    diagnosis: FloatArray
    actual: FloatArray
    estimates: FloatArray


@cache
def estimators(sensitivities: bool = False) -> tuple[Estimator, ...]:
    """Return the estimators, in the order of the tables of the paper."""
    found = []
    for measure in ("tau", "tau_ap"):
        found += [Estimator(f"{measure}.{model}", measure) for model in MODELS]
        found.append(Estimator(f"E{measure}", measure))
    if sensitivities:
        for measure in ("sens_abs", "sens_rel"):
            found += [Estimator(f"{measure}.{model}", measure) for model in MODELS]
    return (*found, *(Estimator(name, name) for name in ("Erho2", "Phi", "F")))


def evaluate(cell: Cell, trials: int, seed: int, sensitivities: bool) -> Evaluation:
    """Simulate and evaluate the trials of a cell; each has random numbers to itself."""
    made = [_one(cell, trial, seed, sensitivities) for trial in range(trials)]
    return Evaluation(
        np.stack([one.diagnosis for one in made]),
        np.stack([one.actual for one in made]),
        np.stack([one.estimates for one in made]),
    )


@cache
def halves_of(n_topics: int) -> tuple[tuple[int, ...], int]:
    """Return the sizes of halves and the number of splits of each, as the paper's code has them.

    Where there would be but one size, of two topics, halves of one topic are taken as well.

    Examples
    --------
    >>> halves_of(5)
    ((1, 2), 100)
    """
    sizes = tuple(published_sizes(n_topics, 1))
    return sizes, published_trials(len(sizes))


def _one(cell: Cell, trial: int, seed: int, sensitivities: bool) -> Evaluation:
    source, original, truths = _prepared(cell.part)
    rng = stream(seed, cell.number(trial))
    Y = source.draw(cell.n_topics, rng)
    halves_seed = int(rng.integers(2**62))
    wanted = estimators(sensitivities)
    estimates = np.empty((len(wanted), len(SIZES)))
    by_name = dict(zip((e.name for e in wanted), estimates, strict=True))
    by_name["Etau"][:], by_name["Etau_ap"][:] = expected_ranks(Y, source.systems)
    by_name["Erho2"][:], by_name["Phi"][:], by_name["F"][:] = _of_components(Y)
    split = [e for e in wanted if e.model]
    for estimator, values in zip(split, _extrapolated(Y, split, halves_seed), strict=True):
        by_name[estimator.name][:] = values
    diagnosis = np.full(len(INDICATORS), np.nan)
    if cell.n_topics >= DIAGNOSED_FROM:
        diagnosis = original.indicators(Y[None])[0]
    return Evaluation(diagnosis, _actual(Y, truths), estimates)


@cache
def _prepared(part: Part) -> tuple[CollectionSimulator, OriginalCollection, FloatArray]:
    source = simulator(part)
    truths = np.stack([source.scores.mean(axis=0), source.means])
    return source, _original(part.collection), truths


@cache
def _original(collection: int) -> OriginalCollection:
    """Return what indicators need of an original, which is the same under all assumptions."""
    return OriginalCollection(simulator(Part(collection, REALISTIC)).scores)


@cache
def _measure(name: str) -> MeanMeasure:
    # Ties stay in the order in which systems came, as in the code of the paper.
    found = get("tau_ap", ties="first") if name == "tau_ap" else get(name)
    assert isinstance(found, MeanMeasure)
    return found


def actual_ranks(Y: FloatArray, truths: FloatArray) -> FloatArray:
    """Return τ and τ_AP of a collection, (truths, 2)."""
    return _of_means(Y.mean(axis=0), truths, MEASURES[:2])


def _of_means(means: FloatArray, truths: FloatArray, names: Sequence[str]) -> FloatArray:
    return np.column_stack([_measure(name).actual_of_means(means, truths) for name in names])


def _actual(Y: FloatArray, truths: FloatArray) -> FloatArray:
    """Return the accuracy of a collection, (truths, measures)."""
    means = Y.mean(axis=0)
    # The test does not look at the truth; delta is that of the paper, .05.
    significant = get("F", delta=_DELTA, alpha=_ALPHA).actual_of_scores(Y, means)
    return np.column_stack(
        [_of_means(means, truths, MEASURES[:-1]), np.full(len(truths), significant)]
    )


def _extrapolated(Y: FloatArray, split: Sequence[Estimator], seed: int) -> FloatArray:
    """Return what curves through halves say of tests of all sizes, (estimators, 13)."""
    names = tuple(dict.fromkeys(e.measure for e in split))
    sizes, trials = halves_of(len(Y))
    halves = [draw_halves(len(Y), n, trials, seed) for n in sizes]
    seen = observed(Y, [_measure(name) for name in names], halves)
    n = np.repeat(np.array(sizes, dtype=float), trials)
    found = np.full((len(split), len(SIZES)), np.nan)
    for row, estimator in zip(found, split, strict=True):
        scale: Scale = "correlation" if estimator.measure.startswith("tau") else "error"
        # Scores of normal residuals may lie beyond 1, and so may differences between them.
        values = np.minimum(seen[names.index(estimator.measure)], 1.0)
        try:
            curve = fit_curve(n, values, estimator.model, scale=scale)  # type: ignore[arg-type]
        except EstimationError:
            continue  # halves without an error, say: there is no curve, and nan says so
        row[:] = curve.at(_TARGETS)
    return found


def expected_ranks(Y: FloatArray, systems: Sequence[str]) -> FloatArray:
    """Return Eτ and Eτ_AP of tests of all sizes, (2, 13), from one table of swap probabilities."""
    from scipy.special import ndtr

    pairs = PairedDifferences.from_scores(Y, systems)
    swapped = ndtr(np.outer(-np.sqrt(_TARGETS), pairs.standardized))
    return np.asarray(1.0 - 2.0 * (swapped @ _pair_weights(pairs.n_systems)).T)


@cache
def _pair_weights(k: int) -> FloatArray:
    """Return what a swap of each pair costs τ and τ_AP, (pairs, 2)."""
    n_above = np.triu_indices(k, 1)[1].astype(float)
    return np.column_stack([np.full(n_above.size, 1.0 / n_above.size), 1.0 / ((k - 1) * n_above)])


def _of_components(Y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Eρ², Φ and the power of the F test (F₁) of tests of all sizes."""
    from scipy.special import ncfdtr

    n, k = Y.shape
    ms_s, ms_t, ms_e = mean_squares(Y)
    system, topic = max(0.0, (ms_s - ms_e) / n), max(0.0, (ms_t - ms_e) / k)
    total = system + ms_e / _TARGETS
    df_error, critical = _critical(k)
    noncentrality = _TARGETS * _DELTA**2 / (2.0 * ms_e)
    power = 1.0 - ncfdtr(k - 1.0, df_error, noncentrality, critical)
    return system / total, system / (total + topic / _TARGETS), np.asarray(power)


@cache
def _critical(k: int) -> tuple[FloatArray, FloatArray]:
    """Return degrees of freedom of the error and the critical value of F for all sizes."""
    from scipy.special import fdtri

    df_error = k * (_TARGETS - 1.0)
    return df_error, np.asarray(fdtri(k - 1.0, df_error, 1.0 - _ALPHA))
