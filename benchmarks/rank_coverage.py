"""Coverage of the intervals of τ and τ_AP, by scores of several kinds.

``python -m benchmarks.rank_coverage [--trials 200] [--draws 500] [--seed 1] [--sizes 20 50 100]``
draws data sets whose true ranking is known, and counts the 95 % intervals that contain τ and τ_AP
of the test at hand, of a new test, and their expectation. The data sets are

- collections simulated from four TREC collections, as in :mod:`benchmarks.rank_intervals`;
- topics drawn with replacement from the same collections, whose own means are the truth;
- normal scores of new systems in each data set, whose errors are independent or share two factors;
- scores of 0 or 1 of new systems, with probit effects of systems and topics.

The tables are those of docs/decisions/0013-rank-accuracy.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import erf, ndtr

from benchmarks.bias_study.cells import COLLECTIONS, collection_path
from vcomp import ir
from vcomp._typing import FloatArray
from vcomp.ir.measures import Tau, TauAP
from vcomp.ir.rank.correlation_tables import expected_correlation
from vcomp.ir.rank.paired import PairedDifferences
from vcomp.numerics.parallel import limited_blas

_NEW = (20, 100)
"""Topics of new tests."""

_TRUTH_TRIALS = 1_500
_MEASURES = (Tau(variant="a"), TauAP())
_NAMES = ("τ", "τ_AP")


@dataclass(frozen=True, slots=True)
class Population:
    """Systems with known true means.

    Attributes
    ----------
    means : (k,) true means
    draw : the scores on a number of topics, from a generator
    expected : (len(_NEW), 2) mean τ and τ_AP of new tests
    """

    means: FloatArray
    draw: Callable[[int, np.random.Generator], FloatArray]
    expected: FloatArray


Renew = Callable[[np.random.Generator], Population]
"""Makes the population of one data set."""


def main() -> None:
    arguments = _arguments()
    with limited_blas(0):
        found = pd.concat(
            pd.DataFrame(_rows(kind, name, renew, arguments)) for kind, name, renew in _sources()
        )
    _print(found, ["what"])
    _print(found, ["what", "kind"])
    _print(found, ["what", "of"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rank_coverage")
    parser.add_argument("--trials", type=int, default=200, help="data sets of each kind and size")
    parser.add_argument("--draws", type=int, default=500, help="behind each interval")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 50, 100], help="topics")
    return parser.parse_args()


def _sources() -> Iterator[tuple[str, str, Renew]]:
    for name in COLLECTIONS:
        yield "simulated collections", name, _always(_simulated(name))
    for name in COLLECTIONS:
        yield "topics resampled", f"{name}, topics", _always(_resampled(name))
    for k, spread, loading, aligned in (
        (30, 0.1, 0.0, False),
        (20, 0.3, 0.5, False),
        (60, 0.05, 0.7, False),
        (60, 0.05, 0.7, True),
        (20, 0.3, 0.5, True),
    ):
        errors = f"loadings {loading}" + (", means too" if aligned else "")
        yield "normal", f"normal, {k}, {errors}", _normal(k, spread, loading, aligned)
    for k, spread, middle in ((30, 0.1, 0.5), (20, 0.5, 1.2), (60, 0.3, 0.2)):
        yield "0/1", f"0/1, {k}, mean {ndtr(middle):.2f}", _binary(k, spread, middle)


def _always(population: Population) -> Renew:
    return lambda _: population


def _actual(means: FloatArray, truth: FloatArray) -> FloatArray:
    return np.array([measure.actual_of_means(means, truth) for measure in _MEASURES])


def _simulated(name: str) -> Population:
    scores = pd.read_csv(collection_path(name))
    simulator = ir.fit_collection(scores, drop_worst=0.25, means="fitted")
    return _known(simulator.means, simulator.draw)


def _resampled(name: str) -> Population:
    X = np.asarray(ir.as_score_matrix(pd.read_csv(collection_path(name))).drop_worst(0.25).scores)
    return _known(X.mean(axis=0), lambda n, rng: X[rng.integers(len(X), size=n)])


def _known(
    means: FloatArray, draw: Callable[[int, np.random.Generator], FloatArray]
) -> Population:
    """Return a population whose expectations are means over simulated tests."""
    rng = np.random.default_rng(99)
    expected = [
        _actual(np.array([draw(n, rng).mean(axis=0) for _ in range(_TRUTH_TRIALS)]), means).mean(1)
        for n in _NEW
    ]
    return Population(means, draw, np.array(expected))


def _normal(k: int, spread: float, loading: float, aligned: bool) -> Renew:
    """Return normal systems, topics and errors; if `aligned`, systems covary as errors do."""

    def renew(rng: np.random.Generator) -> Population:
        L = loading * rng.normal(size=(2, k))
        means = rng.normal(size=k) + (rng.normal(size=2) @ L if aligned else 0.0)
        means *= np.sqrt(spread)

        def draw(n: int, rng: np.random.Generator) -> FloatArray:
            errors = rng.normal(size=(n, k)) + rng.normal(size=(n, 2)) @ L
            return np.asarray(means + rng.normal(size=(n, 1)) + errors)

        return Population(means, draw, _of_normal_errors(means, np.eye(k) + L.T @ L))

    return renew


def _binary(k: int, spread: float, middle: float) -> Renew:
    """Scores are 1 if a normal sum of a system's, a topic's and an error's effect is positive."""
    some_topics = np.random.default_rng(5).normal(size=(400, 1))

    def renew(rng: np.random.Generator) -> Population:
        effects = middle * np.sqrt(2.0) + np.sqrt(spread) * rng.normal(size=k)
        means = ndtr(effects / np.sqrt(2.0))

        def draw(n: int, rng: np.random.Generator) -> FloatArray:
            latent = effects + rng.normal(size=(n, 1)) + rng.normal(size=(n, k))
            return np.where(latent > 0.0, 1.0, 0.0)

        S = np.cov(ndtr(effects + some_topics), rowvar=False)
        np.fill_diagonal(S, means * (1.0 - means))
        return Population(means, draw, _of_normal_errors(means, S))

    return renew


def _of_normal_errors(means: FloatArray, S: FloatArray) -> FloatArray:
    """Return mean τ and τ_AP of new tests whose means have the covariance S/n'."""
    order = np.argsort(-means)
    mu, S = means[order], S[np.ix_(order, order)]
    j, i = np.triu_indices(len(mu), 1)  # j is ahead of i
    z = (mu[j] - mu[i]) / np.sqrt(2.0 * (S[i, i] + S[j, j] - 2.0 * S[i, j]))
    agreement = erf(z * np.sqrt(np.array(_NEW))[:, np.newaxis])
    tau_ap = (agreement / i).sum(axis=1) / (len(mu) - 1)
    return np.column_stack([agreement.mean(axis=1), tau_ap])


def _rows(
    kind: str, name: str, renew: Renew, arguments: argparse.Namespace
) -> Iterator[dict[str, object]]:
    """Yield whether each interval covers what it is for, and how wide it is."""
    for size in arguments.sizes:
        rng = np.random.default_rng([arguments.seed, size])
        for trial in range(arguments.trials):
            population = renew(rng)
            X = population.draw(size, rng)
            own = _actual(X.mean(axis=0), population.means)
            new = [_actual(population.draw(n, rng).mean(axis=0), population.means) for n in _NEW]
            pairs = PairedDifferences.from_scores(X, [str(s) for s in range(X.shape[1])])
            for ap in (0, 1):
                options = {"ap": bool(ap), "draws": arguments.draws, "rng": trial}
                tables = {
                    "the test at hand": (expected_correlation(pairs, **options), own[ap : ap + 1]),
                    "a new test": (
                        expected_correlation(pairs, _NEW, **options),
                        np.array(new)[:, ap],
                    ),
                    "its expectation": (
                        expected_correlation(pairs, _NEW, target="expectation", **options),
                        population.expected[:, ap],
                    ),
                }
                for what, (table, values) in tables.items():
                    low, high = table["low"].to_numpy(), table["high"].to_numpy()
                    yield {
                        "kind": kind,
                        "of": name,
                        "what": f"{_NAMES[ap]}, {what}",
                        "n": size,
                        "data set": trial,
                        "covered": 100.0 * ((low <= values) & (values <= high)).mean(),
                        "below": 100.0 * (values < low).mean(),
                        "width": (high - low).mean(),
                    }


def _print(found: pd.DataFrame, keys: list[str]) -> None:
    """Print the coverage of 95 % intervals, its Monte Carlo error, and the width."""
    cells = found.groupby([*keys, "n"], sort=False)
    columns = {
        "covered": cells["covered"].mean().round(1),
        "error": cells["covered"].sem().round(1),
        "below": cells["below"].mean().round(1),
        "width": cells["width"].mean().round(3),
    }
    table = pd.concat({name: column.unstack("n") for name, column in columns.items()}, axis=1)
    print(f"\n95 % intervals, by {' and '.join(keys)}\n\n{table.to_string()}", flush=True)


if __name__ == "__main__":
    main()
