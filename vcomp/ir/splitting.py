"""The accuracy of larger tests, extrapolated from halves of a collection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, EstimationError, PlanError, check_alpha
from vcomp.ir.curve import MODELS, Model, choice
from vcomp.ir.measures import MeanMeasure, Measure, complete, several
from vcomp.ir.measures import sizes as check_sizes
from vcomp.ir.scores import ScoresLike, as_score_matrix
from vcomp.ir.split_half_result import SplitHalfStudy, fitted
from vcomp.ir.splits import (
    FEWEST,
    TOGETHER,
    Halves,
    draw_halves,
    observed,
    published_sizes,
    published_trials,
)
from vcomp.numerics import check_count, run, seed_from

_BLOCK = 50
"""Splits of one size that are looked at together, alone or beside those of other sizes."""


def split_half(
    scores: ScoresLike,
    measures: str | Measure | Iterable[str | Measure] = ("tau", "tau_ap"),
    n_topics: float | Iterable[float] | None = None,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    sizes: int | Iterable[int] | None = None,
    trials: int | None = None,
    models: str | Iterable[str] = MODELS,
    drop_worst: float = 0.0,
    alpha: float = 0.05,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> SplitHalfStudy:
    """Return the accuracy of tests of any size, extrapolated from halves of the topics.

    Two disjoint sets of n topics are drawn at random. One is a test of n topics, and the
    mean scores over the other serve as the truth. Their agreement, over many draws of several
    sizes, is extrapolated to larger tests by curves: the generic estimator of Urbano (2016, sec.
    4.1), which serves any measure of accuracy.

    Parameters
    ----------
    scores : long table with its columns named, :class:`ScoreMatrix`, or topic × system matrix,
        **a row a topic and a column a system**; no score may be missing
    measures : names of :func:`vcomp.ir.measures.available`, or measures with options of their own
        such as ``vcomp.ir.measures.get("tau", variant="a")``
    n_topics : sizes of the tests whose accuracy is wanted; that of the collection if None
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
    sizes : topics of the halves, from 2 to half of those there are. If None as published: at most
        20 equidistant ones
    trials : pairs of halves of each size. If None as published: at most 100, and 1000 in all
    models : curves to fit, of ``"exp1"``, ``"exp2"`` and ``"logit"``; see
        :class:`vcomp.ir.AccuracyCurve`
    drop_worst : share of the systems to leave out, the worst by mean score; see
        :meth:`ScoreMatrix.drop_worst`
    alpha : intervals have confidence 1 − alpha
    rng : seed, or a generator that one is drawn from once; 0 if not given
    workers : threads; the numbers are the same for any number of them
    progress : whether to show a bar; None for one where stderr is a terminal

    Returns
    -------
    SplitHalfStudy
        with ``table``, the expected accuracies; ``fits``, the curves; ``frame``, the observations;
        ``predict()`` for further sizes, ``summary()`` and ``plot()``

    Raises
    ------
    DataError
        If the scores cannot be read, one of them is missing, or there are fewer than four topics.
    EstimationError
        If a size of halves, `trials` or `workers` is not a whole number that can be.
    PlanError
        If a measure or model is unknown, or `n_topics` or `alpha` is out of range.

    Warns
    -----
    VcompWarning
        If some curve cannot be fitted, as to halves of one size; its predictions are nan.

    Notes
    -----
    **Extrapolations are biased**, and the three models disagree (Urbano, 2016, sec. 6 to 8):
    halves are compared with halves, whose means are not the true ones. Nor do the intervals hold
    that: see :meth:`vcomp.ir.AccuracyCurve.predict` for what they hold in a simulation. For τ and
    τ_AP the estimators :func:`vcomp.ir.expected_tau` and :func:`vcomp.ir.expected_tau_ap` are
    better.

    References
    ----------
    Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
    statistical assumptions. *Information Retrieval Journal*, 19(3), 313-350. Section 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from vcomp.ir import split_half
    >>> rng = np.random.default_rng(1)
    >>> scores = rng.normal(size=(30, 8)) + np.arange(8) / 4
    >>> study = split_half(scores, "tau", [30, 60], rng=1)
    >>> study
    <SplitHalfStudy: tau of 71 splits of each of 14 sizes, from 2 to 15 topics>
    >>> study.table.query("model == 'logit'")[["n", "estimate"]].round(2)
        n  estimate
    4  30      0.83
    5  60      0.88
    """
    matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
    matrix = matrix.drop_worst(drop_worst)
    X = complete(matrix, "scores")
    taken = several(measures)
    curves = _models(models)
    asked = check_sizes(len(X) if n_topics is None else n_topics)
    check_alpha(alpha)
    halves_of = _sizes(sizes, len(X))
    trials = published_trials(len(halves_of)) if trials is None else check_count(trials, "trials")
    seed, workers = seed_from(rng), check_count(workers, "workers")
    halves = tuple(draw_halves(len(X), n, trials, seed) for n in halves_of)
    values = _accuracies(X, taken, halves, workers, progress)
    return fitted(matrix, taken, halves, values, curves, asked, alpha)


def _accuracies(
    X: FloatArray,
    measures: Sequence[Measure],
    halves: Sequence[Halves],
    workers: int,
    progress: bool | None,
) -> FloatArray:
    """Return the accuracies of all halves, (measures, sizes, trials)."""
    jobs = _jobs(halves, all(isinstance(measure, MeanMeasure) for measure in measures))
    X = np.ascontiguousarray(X)

    def work(number: int) -> FloatArray:
        return observed(X, measures, jobs[number])

    done = run(lambda: work, range(len(jobs)), workers=workers, progress=progress, label="halves")
    values = np.concatenate([done[number] for number in range(len(jobs))], axis=1)
    return values.reshape(len(measures), len(halves), len(halves[0]))


def _jobs(halves: Sequence[Halves], at_once: bool) -> list[list[Halves]]:
    """Return blocks of halves, in order; `at_once` if looking at several takes less time."""
    blocks = [
        Halves(one.collection[start : start + _BLOCK], one.truth[start : start + _BLOCK])
        for one in halves
        for start in range(0, len(one), _BLOCK)
    ]
    step = TOGETHER // _BLOCK if at_once else 1
    return [blocks[at : at + step] for at in range(0, len(blocks), step)]


def _models(given: str | Iterable[str]) -> tuple[Model, ...]:
    names: list[object] = [given]
    if isinstance(given, Iterable) and not isinstance(given, str):
        names = list(given)
    if not names:
        raise PlanError(f"no model is given; there are {', '.join(map(repr, MODELS))}")
    for name in names:
        choice("a model", name, MODELS)
    return tuple(model for model in MODELS if model in names)


def _sizes(given: int | Iterable[int] | None, n_topics: int) -> list[int]:
    """Return the sizes of halves, in order."""
    most = n_topics // 2
    if most < FEWEST:
        raise DataError(
            f"two halves of at least {FEWEST} topics each need {2 * FEWEST} topics; there are "
            f"{n_topics}"
        )
    if given is None:
        return published_sizes(n_topics)
    numbers = list(given) if isinstance(given, Iterable) else [given]
    if not numbers:
        raise EstimationError("no size of halves is given: sizes is empty")
    for n in numbers:
        if not isinstance(n, Integral) or isinstance(n, bool) or not FEWEST <= n <= most:
            raise EstimationError(
                f"halves of {n_topics} topics have a whole number of topics from {FEWEST} to "
                f"{most}, not {n!r}"
            )
    return sorted({int(n) for n in numbers})
