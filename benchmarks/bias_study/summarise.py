"""Summaries of a run for figures and findings: biases, and quantiles of indicators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.bias_study.cells import ASSUMPTIONS, COLLECTIONS, REALISTIC, SIZES
from benchmarks.bias_study.evaluate import (
    DIAGNOSED_FROM,
    MEASURES,
    TRUTHS,
    Evaluation,
    estimators,
)
from benchmarks.bias_study.store import Settings
from vcomp._typing import FloatArray
from vcomp.ir.simulate.source_comparison import INDICATORS


@dataclass(frozen=True, slots=True)
class Bias:
    """How far estimates of the accuracy of collections themselves are off on average.

    Attributes
    ----------
    truth, collection, estimator, n : what of, under the realistic assumptions
    bias : mean of estimate less actual accuracy
    error : Monte Carlo standard error
    actual : mean actual accuracy
    """

    truth: str
    collection: str
    estimator: str
    n: int
    bias: float
    error: float
    actual: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far estimates for tests of another size are off, on average over collections.

    Attributes
    ----------
    truth, estimator, n : what of, under the realistic assumptions
    target : topics of the test that accuracy is estimated for
    bias, error : as of :class:`Bias`
    """

    truth: str
    estimator: str
    n: int
    target: int
    bias: float
    error: float


@dataclass(frozen=True, slots=True)
class Panel:
    """What a panel of figures 4 and 5 shows.

    Attributes
    ----------
    figure : its number
    indicator : that is drawn
    by : ``"collection"`` or ``"n"``
    split : the assumption that halves the collections
    """

    figure: int
    indicator: str
    by: str
    split: str


PANELS = (
    Panel(4, "mu_s", "collection", "random"),
    Panel(4, "w2_t", "collection", "random"),
    Panel(4, "mu_s", "n", "random"),
    Panel(4, "w2_t", "n", "random"),
    Panel(4, "tau_ap", "n", "random"),
    Panel(4, "w2_E", "n", "random"),
    Panel(5, "var_s", "collection", "random"),
    Panel(5, "sd_var", "collection", "homoscedastic"),
    Panel(5, "var_t", "collection", "random"),
    Panel(5, "sd_var", "n", "homoscedastic"),
    Panel(5, "var_st", "collection", "random"),
    Panel(5, "cor", "collection", "uncorrelated"),
)


@dataclass(frozen=True, slots=True)
class Box:
    """Where an indicator lies in some collections.

    Attributes
    ----------
    figure, indicator, by, split : the panel
    group : collection or number of topics
    held : whether the assumption of the split held
    mean : of the indicator
    p5, p25, p50, p75, p95 : quantiles
    """

    figure: int
    indicator: str
    by: str
    split: str
    group: str
    held: bool
    mean: float
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float


def biases(values: Evaluation, settings: Settings) -> list[Bias]:
    """Return the bias of every estimator for every collection and size."""
    rows = []
    for t, truth in enumerate(TRUTHS):
        for e, estimator in enumerate(estimators(settings.sensitivities)):
            measure = MEASURES.index(estimator.measure)
            for c, collection in enumerate(settings.collections):
                estimates = _realistic(values.estimates)[c][..., e, :]
                actual = _realistic(values.actual)[c][..., t, measure]
                for k, size in enumerate(settings.sizes):
                    off = estimates[k, :, size] - actual[k]
                    mean, error = _mean_and_error(off)
                    rows.append(
                        Bias(
                            truth,
                            COLLECTIONS[collection],
                            estimator.name,
                            SIZES[size],
                            mean,
                            error,
                            _mean_and_error(actual[k])[0],
                        )
                    )
    return rows


def reliabilities(values: Evaluation, settings: Settings) -> list[Reliability]:
    """Return the bias of every estimator from every size to every other, over collections."""
    sizes = list(settings.sizes)
    rows = []
    for t, truth in enumerate(TRUTHS):
        for e, estimator in enumerate(estimators(settings.sensitivities)):
            measure = MEASURES.index(estimator.measure)
            estimates = _realistic(values.estimates)[..., e, :][..., sizes]
            actual = _realistic(values.actual)[..., t, measure]
            for k, size in enumerate(sizes):
                for j, target in enumerate(sizes):
                    off, error = [], []
                    for own, true in zip(estimates[:, k, :, j], actual[:, j], strict=True):
                        (a, da), (b, db) = _mean_and_error(own), _mean_and_error(true)
                        off.append(a - b)
                        # Of one size, estimates and accuracy are of the same collections.
                        both = _mean_and_error(own - true)[1] if k == j else np.hypot(da, db)
                        error.append(both)
                    total = float(np.sqrt(np.sum(np.square(error))) / len(error))
                    mean = float(np.mean(off))
                    rows.append(
                        Reliability(truth, estimator.name, SIZES[size], SIZES[target], mean, total)
                    )
    return rows


def boxes(values: Evaluation, settings: Settings) -> list[Box]:
    """Return what the panels of figures 4 and 5 show."""
    rows = []
    for panel in PANELS:
        place = list(INDICATORS).index(panel.indicator)
        split = 1 + ASSUMPTIONS.index(panel.split)
        for held in (False, True):
            half = np.take(values.diagnosis[..., place], int(held), axis=split)
            for group, some in _groups(half, panel.by, settings):
                known = some[np.isfinite(some)]
                if known.size:
                    ends = np.quantile(known, [0.05, 0.25, 0.5, 0.75, 0.95])
                    rows.append(
                        Box(
                            panel.figure,
                            panel.indicator,
                            panel.by,
                            panel.split,
                            group,
                            held,
                            float(known.mean()),
                            *(float(end) for end in ends),
                        )
                    )
    return rows


def _groups(half: FloatArray, by: str, settings: Settings) -> list[tuple[str, FloatArray]]:
    """Return indicators by collection or size; the axes are collection, three, size, trial."""
    if by == "collection":
        return [
            (COLLECTIONS[collection], half[c]) for c, collection in enumerate(settings.collections)
        ]
    return [
        (str(SIZES[size]), half[:, :, :, :, k])
        for k, size in enumerate(settings.sizes)
        if SIZES[size] >= DIAGNOSED_FROM
    ]


def _realistic(values: FloatArray) -> FloatArray:
    """Return the collections of the realistic assumptions, the axis of collections first."""
    normal, homoscedastic, uncorrelated, random = (int(held) for held in REALISTIC)
    return np.asarray(values[:, normal, homoscedastic, uncorrelated, random])


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    """Return the mean of what is there and its standard error; nan where there is too little."""
    known = values[np.isfinite(values)]
    mean = float(known.mean()) if known.size else float("nan")
    if known.size < 2:
        return mean, float("nan")
    return mean, float(known.std(ddof=1) / np.sqrt(known.size))
