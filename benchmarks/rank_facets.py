"""Bias and coverage of Eτ and Eτ_AP where scores have several random facets.

``python -m benchmarks.rank_facets [--trials 200] [--draws 500] [--seed 1] [--only TEXT]`` draws
normal data sets of new systems in several designs, fits them by REML, and compares Eτ and Eτ_AP
with the rank correlations of the test at hand, of one new test and with their exact expectation
over new tests. New tests have half and twice the topics of the data, and as many levels of all
other facets. The tables are those of docs/decisions/0013-rank-accuracy.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
from scipy.special import erf

import vcomp
from vcomp._typing import FloatArray
from vcomp.ir.measures import Tau, TauAP
from vcomp.ir.rank import TauTarget
from vcomp.numerics.parallel import limited_blas

_MEASURES = (Tau(variant="a"), TauAP())


@dataclass(frozen=True, slots=True)
class Situation:
    """A design with its components.

    Attributes
    ----------
    formula : of the fit; terms with ``s`` distinguish systems
    sizes : levels of each facet, of a nested one within each level of the others
    variances : of the effects, by their facets; the last is the residual
    nested : the facets that a facet is nested in
    missing : share of the scores that are left out
    loading : of the errors of systems on two factors that they share
    """

    formula: str
    sizes: Mapping[str, int]
    variances: Mapping[str, float]
    nested: Mapping[str, str] = field(default_factory=dict)
    missing: float = 0.0
    loading: float = 0.0


_TERMS = "score ~ (1|s) + (1|t) + (1|a) + (1|s:t) + (1|s:a) + (1|t:a)"
_CROSSED = {"s": 0.1, "t": 0.5, "a": 0.05, "st": 0.6, "sa": 0.03, "ta": 0.1, "sta": 0.6}
SITUATIONS: Mapping[str, Situation] = {
    "topics × 3 assessors": Situation(_TERMS, {"s": 30, "t": 50, "a": 3}, _CROSSED),
    "topics × 8 assessors": Situation(_TERMS, {"s": 30, "t": 50, "a": 8}, _CROSSED),
    "topics × 5 assessors, 20 % missing": Situation(
        _TERMS, {"s": 30, "t": 50, "a": 5}, _CROSSED, missing=0.2
    ),
    "topics × 5 assessors, errors correlated": Situation(
        _TERMS, {"s": 30, "t": 50, "a": 5}, _CROSSED, loading=0.6
    ),
    "2 assessors in each topic": Situation(
        "score ~ (1|s) + (1|t/a) + (1|s:t)",
        {"s": 30, "t": 50, "a": 2},
        {"s": 0.1, "t": 0.5, "ta": 0.15, "st": 0.6, "sta": 0.6},
        {"a": "t"},
    ),
    "20 documents in each topic": Situation(
        "score ~ (1|s) + (1|t/d) + (1|s:t)",
        {"s": 20, "t": 50, "d": 20},
        {"s": 0.05, "t": 0.5, "td": 0.3, "st": 0.6, "std": 1.5},
        {"d": "t"},
    ),
    "10 prompts × 5 seeds": Situation(
        _TERMS, {"s": 20, "t": 10, "a": 5}, _CROSSED | {"st": 0.3, "sta": 0.4}
    ),
    "50 prompts, 3 seeds of each system": Situation(
        "score ~ (1|s) + (1|t) + (1|s:t)",
        {"s": 20, "t": 50, "r": 3},
        {"s": 0.1, "t": 0.5, "st": 0.6, "str": 0.8},
        {"r": "st"},
    ),
}
"""Designs: letters are systems, topics or prompts, assessors or seeds, documents, replicates."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rank_facets")
    parser.add_argument("--trials", type=int, default=200, help="data sets of each design")
    parser.add_argument("--draws", type=int, default=500, help="behind each interval")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="designs whose name contains this")
    arguments = parser.parse_args()
    rows = []
    with limited_blas(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # components at their bounds
        for name, situation in SITUATIONS.items():
            if arguments.only in name:
                of_design = []
                for trial in range(arguments.trials):
                    rng = np.random.default_rng([arguments.seed, trial])
                    of_design += _trial(name, situation, rng, arguments.draws)
                show(pd.DataFrame(of_design), ["design", "measure", "what"])
                rows += of_design
    show(pd.DataFrame(rows), ["measure", "what"])


def show(found: pd.DataFrame, keys: list[str]) -> None:
    """Print the bias, error and coverage of groups of rows."""
    grouped = found.groupby(keys, sort=False)
    table = pd.DataFrame(
        {
            "true": grouped["true"].mean(),
            "bias": grouped["error"].mean(),
            "s.e.": grouped["error"].sem(),
            "published bias": grouped["published"].mean(),
            "RMSE": grouped["error"].apply(lambda x: np.sqrt((x**2).mean())),
            "cover": 100.0 * grouped["covered"].mean(),
            "width": grouped["width"].mean(),
        }
    )
    rounded = table.round({c: 1 if c == "cover" else 4 for c in table})
    print(rounded.to_string(), "\n", flush=True)


def _trial(
    name: str, situation: Situation, rng: np.random.Generator, draws: int
) -> list[dict[str, object]]:
    k = situation.sizes["s"]
    L = situation.loading * rng.normal(size=(2, k))
    covariance = np.eye(k) + L.T @ L
    covariance *= k / np.trace(covariance)
    root: FloatArray = np.asarray(np.linalg.cholesky(covariance), dtype=float)
    truth = np.sqrt(situation.variances["s"]) * rng.normal(size=k)
    frame = _scores(situation, truth, root, rng)
    res = vcomp.fit(situation.formula, frame)
    topics = situation.sizes["t"]
    observed = frame.groupby("s")["score"].mean().to_numpy()
    rows = []
    for ap, measure in enumerate(_MEASURES):
        expected = partial(res.expected_tau, variant="ap" if ap else "a")
        own = expected(draws=draws, rng=1, estimator="shrunken").iloc[0]
        plain = expected(estimator="urbano").iloc[0]
        actual = float(measure.actual_of_means(observed[None], truth)[0])
        rows.append(_row(name, measure.symbol, "the test at hand", actual, own, plain))
        for n in (topics // 2, 2 * topics):
            error = error_variance(situation, n)
            new = truth + np.sqrt(error) * (root @ rng.normal(size=k))
            real = float(measure.actual_of_means(new[None], truth)[0])
            mean = expectation(truth, error * covariance, ap=bool(ap))
            plain = expected(t=n, estimator="urbano").iloc[0]
            both: tuple[tuple[TauTarget, float], ...] = (("test", real), ("expectation", mean))
            for target, value in both:
                made = expected(t=n, draws=draws, rng=1, target=target).iloc[0]
                what = f"{target}, {n / topics:g} n"
                rows.append(_row(name, measure.symbol, what, value, made, plain))
    return rows


def _row(
    name: str, measure: str, what: str, true: float, made: pd.Series, plain: pd.Series
) -> dict[str, object]:
    return {
        "design": name,
        "measure": measure,
        "what": what,
        "true": true,
        "error": made["estimate"] - true,
        "published": plain["estimate"] - true,
        "covered": made["low"] <= true <= made["high"],
        "width": made["high"] - made["low"],
    }


def _scores(
    situation: Situation, truth: FloatArray, root: FloatArray, rng: np.random.Generator
) -> pd.DataFrame:
    """Return scores in a long table; errors of systems have the covariance root rootᵀ."""
    facets = list(situation.sizes)
    codes = np.indices(tuple(situation.sizes.values())).reshape(len(facets), -1)
    level = dict(zip(facets, codes, strict=True))
    y = truth[level["s"]].copy()
    for effect, variance in situation.variances.items():
        others = [f for f in effect if f != "s"]
        if not others:
            continue
        shape = [situation.sizes[f] for f in others]
        group = np.ravel_multi_index([level[f] for f in others], shape)
        drawn = rng.normal(size=(int(np.prod(shape)), situation.sizes["s"]))
        drawn = drawn @ root.T if "s" in effect else np.repeat(drawn[:, :1], len(root), axis=1)
        y += np.sqrt(variance) * drawn[group, level["s"]]
    frame = pd.DataFrame(level).assign(score=y)
    kept = rng.random(len(frame)) >= situation.missing
    return frame[kept].reset_index(drop=True)


def error_variance(situation: Situation, n: int) -> float:
    """Return σ²(δ) of a test of n topics, with the other facets as in the data."""
    sizes = {**situation.sizes, "t": n}
    return sum(
        variance / float(np.prod([sizes[f] for f in effect if f != "s"]))
        for effect, variance in situation.variances.items()
        if "s" in effect and effect != "s"
    )


def expectation(truth: FloatArray, covariance: FloatArray, *, ap: bool) -> float:
    """Return the expectation of τ or τ_AP over tests with normal errors of this covariance."""
    order = np.argsort(-truth)
    truth, covariance = truth[order], covariance[np.ix_(order, order)]
    i, j = np.triu_indices(truth.size, 1)
    deviation = np.sqrt(covariance[i, i] + covariance[j, j] - 2.0 * covariance[i, j])
    agreement = erf((truth[i] - truth[j]) / (deviation * np.sqrt(2.0)))
    if not ap:
        return float(agreement.mean())
    return float((agreement / j).sum() / (truth.size - 1.0))


if __name__ == "__main__":
    main()
