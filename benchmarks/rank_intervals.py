"""Bias of estimators of Eτ and Eτ_AP, and coverage of their intervals.

``python -m benchmarks.rank_intervals [--trials 200] [--draws 500] [--seed 1] [--collection NAME]``
simulates collections of 5 to 100 topics with known true means from four TREC collections, and
compares estimates with the actual accuracy: τ of the collection itself (n' = n), and the mean τ
of new ones of n' topics. The numbers are those of docs/decisions/0013-rank-accuracy.md; 200
trials take about three minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import get_args

import numpy as np
import pandas as pd
from scipy.special import gammaln, ndtr, owens_t

from benchmarks.bias_study.cells import COLLECTIONS, collection_path
from vcomp import ir
from vcomp._typing import FloatArray
from vcomp.ir.kernels.rank_agreement import student_cdf
from vcomp.ir.measures import Tau, TauAP
from vcomp.ir.rank.correlation import ErrorShare, TauEstimator, error_share
from vcomp.ir.rank.correlation_tables import estimated_tau, expected_correlation
from vcomp.ir.rank.paired import PairedDifferences
from vcomp.numerics.parallel import limited_blas
from vcomp.simulate import CollectionSimulator

_SIZES = (5, 10, 15, 20, 35, 50, 100)
_NEW = (20, 50, 100, 250)
_TRUTH_TRIALS = 2_000
_JACKKNIFED = 0.2
"""Share of the trials in which the jackknife is tried, which takes n times as long."""

_COVERED = (5, 10, 20, 50, 100)
_INTERVALS_OF = (20, 50, 250)
_BOOTSTRAPPED = 0.1
"""Share of the trials in which topics are resampled."""

_RESAMPLES = 100
_TAU, _TAU_AP = Tau(variant="a"), TauAP()

Estimator = Callable[[PairedDifferences, FloatArray], FloatArray]
"""Probabilities of swaps, (sizes, pairs), for numbers of topics."""


def main() -> None:
    arguments = _arguments()
    names = [arguments.collection] if arguments.collection else list(COLLECTIONS)
    points, intervals = [], []
    with limited_blas(0):
        for name in names:
            scores = pd.read_csv(collection_path(name))
            simulator = ir.fit_collection(scores, drop_worst=0.25, means="fitted")
            truth = _truth(simulator, arguments.seed)
            points += list(_points(name, simulator, truth, arguments))
            intervals += list(_intervals(name, simulator, truth, arguments))
            print(f"{name}: done", flush=True)
    _print_points(pd.DataFrame(points))
    _print_coverage(pd.DataFrame(intervals))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rank_intervals")
    parser.add_argument("--trials", type=int, default=200, help="collections of each size")
    parser.add_argument("--draws", type=int, default=500, help="behind each interval")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--collection", choices=COLLECTIONS, help="one of them alone")
    return parser.parse_args()


def _truth(simulator: CollectionSimulator, seed: int) -> dict[int, FloatArray]:
    """Return the mean accuracy (τ, τ_AP) of collections of each size."""
    rng = np.random.default_rng([seed, 99])
    found = {}
    for n in sorted({*_SIZES, *_NEW}):
        means = np.array([simulator.draw(n, rng).mean(axis=0) for _ in range(_TRUTH_TRIALS)])
        found[n] = _actual(means, simulator.means).mean(axis=1)
    return found


def _actual(means: FloatArray, truth: FloatArray) -> FloatArray:
    return np.array([m.actual_of_means(means, truth) for m in (_TAU, _TAU_AP)])


# Estimators of the probability of a swap


def _urbano(pairs: PairedDifferences, n: FloatArray) -> FloatArray:
    return np.asarray(ndtr(-np.sqrt(n) * pairs.standardized))


def _student(pairs: PairedDifferences, n: FloatArray) -> FloatArray:
    return _student_of(pairs, n, 1.0)


def _student_of(pairs: PairedDifferences, n: FloatArray, reliability: float) -> FloatArray:
    z = -np.sqrt(n * reliability) * pairs.standardized
    return np.asarray(student_cdf(z.ravel(), pairs.n_topics - 1)).reshape(z.shape)


def _hedges(pairs: PairedDifferences, n: FloatArray) -> FloatArray:
    """Standardised differences without bias (Hedges, 1981)."""
    df = pairs.n_topics - 1
    factor = np.exp(gammaln(df / 2) - gammaln((df - 1) / 2)) / np.sqrt(df / 2)
    return np.asarray(ndtr(-np.sqrt(n) * factor * pairs.standardized))


def _predictive(pairs: PairedDifferences, n: FloatArray) -> FloatArray:
    """Allow for the errors of D̄, of which true differences have a flat prior."""
    return _orthant(pairs, n, 1.0)


def _orthant(pairs: PairedDifferences, n: FloatArray, reliability: float) -> FloatArray:
    """P(D D̄' < 0), D normal with mean ρ²D̄ and variance ρ²s²/n, and D̄' about it with s²/n'."""
    share = reliability / pairs.n_topics
    h = reliability * pairs.standardized / np.sqrt(share + 1.0 / n)
    return np.asarray(2.0 * owens_t(h, np.sqrt(1.0 / (n * max(share, 1e-12)))))


def _james_stein(pairs: PairedDifferences, n: FloatArray) -> FloatArray:
    """Shrunken by Stein's estimate with k - 1 degrees of freedom, which may be zero."""
    k = pairs.n_systems
    reliability = max(0.0, 1.0 - (k - 3) / (k - 1) / error_share(pairs).F)
    return np.asarray(ndtr(-np.sqrt(n * reliability) * pairs.standardized))


def _all_df(pairs: PairedDifferences, n: FloatArray) -> FloatArray:
    """Shrunken as if errors of systems were independent: k - 1 degrees of freedom."""
    df = pairs.n_systems - 1.0
    share = ErrorShare(error_share(pairs).F, df, df * (pairs.n_topics - 1.0))
    return _student_of(pairs, n, 1.0 - share.mean)


def _shrunken_normal(pairs: PairedDifferences, n: FloatArray) -> FloatArray:
    return np.asarray(ndtr(-np.sqrt(n * (1.0 - error_share(pairs).mean)) * pairs.standardized))


def _shrunken_orthant(pairs: PairedDifferences, n: FloatArray) -> FloatArray:
    return _orthant(pairs, n, 1.0 - error_share(pairs).mean)


def _shrunken(pairs: PairedDifferences, n: FloatArray) -> FloatArray:
    return _student_of(pairs, n, 1.0 - error_share(pairs).mean)


_ESTIMATORS: dict[str, Estimator] = {
    "published, Φ(-√n' D̄/s)": _urbano,
    "Student's T for Φ": _student,
    "Hedges's J D̄/s": _hedges,
    "predictive, flat prior": _predictive,
    "ρ² by Stein, k - 1 df": _james_stein,
    "ρ² posterior mean, k - 1 df": _all_df,
    "ρ² posterior mean, orthants": _shrunken_orthant,
    "ρ² posterior mean, Φ": _shrunken_normal,
    "ρ² posterior mean, T": _shrunken,
}


def _correlations(swapped: FloatArray, k: int) -> FloatArray:
    """Return Eτ and Eτ_AP, (2, sizes)."""
    n_above = np.triu_indices(k, 1)[1]
    weights = np.array([np.full(n_above.size, 1.0 / n_above.size), 1.0 / ((k - 1) * n_above)])
    return np.asarray(1.0 - 2.0 * (weights @ swapped.T))


def _jackknife(X: FloatArray, n: FloatArray) -> FloatArray:
    """Return the jackknifed published estimates."""
    names, size = [str(s) for s in range(X.shape[1])], len(X)

    def published(Y: FloatArray) -> FloatArray:
        return _correlations(_urbano(PairedDifferences.from_scores(Y, names), n), len(names))

    without = [published(np.delete(X, t, axis=0)) for t in range(size)]
    return np.asarray(size * published(X) - (size - 1) * np.mean(without, axis=0))


def _points(
    name: str,
    simulator: CollectionSimulator,
    truth: dict[int, FloatArray],
    arguments: argparse.Namespace,
) -> Iterator[dict[str, object]]:
    """Yield the error of each estimate."""
    rng = np.random.default_rng([arguments.seed, 0])
    for size in _SIZES:
        n = np.array([size, *_NEW], dtype=float)[:, np.newaxis]
        for trial in range(arguments.trials):
            X = simulator.draw(size, rng)
            pairs = PairedDifferences.from_scores(X, simulator.systems)
            own = _actual(X.mean(axis=0), simulator.means)
            found = {
                label: _correlations(of(pairs, n), pairs.n_systems)
                for label, of in _ESTIMATORS.items()
            }
            if trial < _JACKKNIFED * arguments.trials:
                found["published, jackknifed"] = _jackknife(X, n)
            np.testing.assert_allclose(
                found["ρ² posterior mean, T"][0], estimated_tau(pairs, n.ravel()), atol=1e-12
            )
            for label, values in found.items():
                for m, measure in enumerate(("τ", "τ_AP")):
                    row = {"collection": name, "n": size, "measure": measure, "of": label}
                    yield row | {"new": "n' = n", "error": values[m, 0] - own[m]}
                    for at, new in enumerate(_NEW, 1):
                        yield row | {"new": f"{new}", "error": values[m, at] - truth[new][m]}


def _print_points(found: pd.DataFrame) -> None:
    """Print biases and root mean square errors, means over collections and n'."""
    keys = ["measure", "kind", "of", "n", "collection", "new"]
    kind = np.where(found["new"] == "n' = n", "the collection itself", "new collections")
    cells = found.assign(kind=kind).groupby(keys, sort=False)["error"]
    table = pd.DataFrame({"bias": cells.mean().abs(), "rmse": cells.apply(_root_mean_square)})
    for (measure, about), part in table.groupby(level=["measure", "kind"], sort=False):
        for column in ("bias", "rmse"):
            print(f"\n{measure}, {about}: mean {column} over collections, by topics n\n")
            means = part[column].groupby(level=["of", "n"], sort=False).mean().unstack("n")
            print(means.to_string(float_format="{:.3f}".format))
    fifty = found[(found["n"] == 50) & (found["new"] == "50")]
    fifty = fifty.groupby(["measure", "of", "collection"], sort=False)["error"].agg(
        ["mean", "sem"]
    )
    print("\nBias of estimates for 50 topics from 50, and its Monte Carlo error\n")
    print(fifty.unstack("collection").to_string(float_format="{:.4f}".format))


def _root_mean_square(error: pd.Series) -> float:
    return float(np.sqrt((error**2).mean()))


def _intervals(
    name: str,
    simulator: CollectionSimulator,
    truth: dict[int, FloatArray],
    arguments: argparse.Namespace,
) -> Iterator[dict[str, object]]:
    """Yield whether each interval covers what it is for, and how wide it is."""
    rng = np.random.default_rng([arguments.seed, 1])
    trials = max(1, arguments.trials // 2)
    for size in _COVERED:
        for trial in range(trials):
            X = simulator.draw(size, rng)
            pairs = PairedDifferences.from_scores(X, simulator.systems)
            own = _actual(X.mean(axis=0), simulator.means)
            tests = np.array(
                [
                    _actual(simulator.draw(n, rng).mean(axis=0), simulator.means)
                    for n in _INTERVALS_OF
                ]
            )
            expected = np.array([truth[n] for n in _INTERVALS_OF])
            for m in (0, 1):
                ask = partial(
                    expected_correlation,
                    pairs,
                    variant="ap" if m == 1 else "a",
                    draws=arguments.draws,
                    rng=arguments.seed,
                )
                tables = {
                    ("τ of the collection itself", "published"): (
                        ask(estimator="urbano"),
                        own[m:][:1],
                    ),
                    ("τ of the collection itself", "prediction"): (ask(), own[m:][:1]),
                    ("τ of a new one", "published"): (
                        ask(_INTERVALS_OF, estimator="urbano"),
                        tests[:, m],
                    ),
                    ("τ of a new one", "prediction"): (ask(_INTERVALS_OF), tests[:, m]),
                    ("Eτ of new ones", "published"): (
                        ask(_INTERVALS_OF, estimator="urbano"),
                        expected[:, m],
                    ),
                    ("Eτ of new ones", "confidence"): (
                        ask(_INTERVALS_OF, target="expectation"),
                        expected[:, m],
                    ),
                }
                if trial < _BOOTSTRAPPED * trials:
                    for estimator in get_args(TauEstimator):
                        tables["Eτ of new ones", f"bootstrap, {estimator}"] = (
                            _bootstrap(X, m == 1, estimator, rng),
                            expected[:, m],
                        )
                for (what, interval), (table, values) in tables.items():
                    row = {"measure": ("τ", "τ_AP")[m], "collection": name, "n": size}
                    yield from _covered(row | {"what": what, "interval": interval}, table, values)


def _covered(
    row: Mapping[str, object], table: pd.DataFrame, values: FloatArray
) -> Iterator[dict[str, object]]:
    for value, low, high in zip(values, table["low"], table["high"], strict=True):
        below = value < low
        yield {**row, "covered": low <= value <= high, "below": below, "width": high - low}


def _bootstrap(
    X: FloatArray, ap: bool, estimator: TauEstimator, rng: np.random.Generator
) -> pd.DataFrame:
    """Return percentile intervals of estimates from resampled topics."""
    names = [str(s) for s in range(X.shape[1])]
    estimates = []
    for _ in range(_RESAMPLES):
        chosen = rng.integers(len(X), size=len(X))
        if np.unique(chosen).size < 2:
            continue
        pairs = PairedDifferences.from_scores(X[chosen], names)
        estimates.append(
            estimated_tau(pairs, _INTERVALS_OF, variant="ap" if ap else "a", estimator=estimator)
        )
    low, high = np.quantile(estimates, [0.025, 0.975], axis=0)
    return pd.DataFrame({"low": low, "high": high})


def _print_coverage(found: pd.DataFrame) -> None:
    """Print the coverage of nominal 95 % intervals, the share of values below, and the width."""
    for column in ("covered", "below", "width"):
        print(f"\n95 % intervals: {column}, by topics n\n")
        keys = ["measure", "what", "interval", "n"]
        means = found.groupby(keys, sort=False)[column].mean().unstack("n")
        print(means.to_string(float_format="{:.3f}".format))
    print("\n95 % intervals: covered at 50 topics, by collection\n")
    fifty = found[found["n"] == 50].groupby(
        ["measure", "what", "interval", "collection"], sort=False
    )
    print(fifty["covered"].mean().unstack("collection").to_string(float_format="{:.3f}".format))


if __name__ == "__main__":
    main()
