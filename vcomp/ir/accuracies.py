"""Accuracy of tests of any size, each measure by its best estimator.

:func:`accuracy` starts from scores, :func:`accuracy_of` from scores and D-studies that a fit has
already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, PlanError, check_alpha, check_one_of, guarded
from vcomp.gtheory import DStudy, dstudy
from vcomp.inference.intervals import (
    FromComponents,
    IntervalName,
    IntervalSource,
    note_on_scores,
    with_influences,
)
from vcomp.ir.accuracy_estimators import (
    PLANNED,
    ByDStudy,
    ByHalves,
    ByItself,
    ByPairs,
    ByPower,
    BySubsets,
    MeasureEstimator,
)
from vcomp.ir.accuracy_result import Accuracy
from vcomp.ir.agreement import Measure, check_sizes, named
from vcomp.ir.curve import MODELS, Model
from vcomp.ir.measures import FromSubsets, FTest, Tau, TauAP, several
from vcomp.ir.rank import AccuracyEstimator, TauEstimator
from vcomp.ir.scores import ScoreMatrix, ScoresLike, as_score_matrix, complete
from vcomp.ir.significance import two_way_components
from vcomp.ir.splitting import split_half
from vcomp.numerics import seed_from

Measures: TypeAlias = str | Measure | Iterable[str | Measure]

DEFAULT = ("tau", "tau_ap", "Erho2", "Phi", "rmse")
"""Default measures: those with a fast estimator; F is left out, as it needs a difference."""


@dataclass(frozen=True, slots=True)
class _Splits:
    """Options of :func:`vcomp.ir.split_half`, under their names there; `rng` is a seed."""

    model: Model | None
    trials: int | None
    rng: int
    workers: int
    progress: bool | None


@guarded
def accuracy(
    scores: ScoresLike,
    measures: Measures | None = None,
    n_topics: float | Iterable[float] | None = None,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    estimator: AccuracyEstimator = "shrunken",
    drop_worst: float = 0.0,
    alpha: float = 0.05,
    negative: Literal["zero", "keep"] = "zero",
    interval: IntervalName | IntervalSource = "auto",
    model: Model | None = None,
    trials: int | None = None,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> Accuracy:
    """Return the accuracy of tests of any size, by any measures, each by its best estimator.

    A bare matrix has **one row per topic and one column per system**.

    Parameters
    ----------
    scores : long table with its columns named, :class:`ScoreMatrix`, or topic × system matrix, in
        which nan is a missing cell
    measures : names of :func:`vcomp.ir.measures.available`, or measures with options such as
        ``vcomp.ir.measures.get("F", delta=0.1)``; τ, τ_AP, Eρ², Φ and ε if None
    n_topics : sizes of new tests; the collection itself if None
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
    estimator : of τ and τ_AP, ``"shrunken"`` or ``"urbano"`` (as published), with the best
        estimators of all other measures, see Notes; or ``"split_half"`` for all measures. A
        measure's own comes first: ``vcomp.ir.measures.get("tau", estimator="urbano")``
    drop_worst : share of the systems to leave out, the worst by mean score; see
        :meth:`ScoreMatrix.drop_worst`
    alpha : intervals have confidence 1 − alpha
    negative : how D-studies treat negative components: ``"zero"`` replaces them by zero,
        ``"keep"`` uses them as estimated
    interval : how the intervals of D-studies are made, see :func:`vcomp.gtheory.dstudy`
    model, trials : of :func:`vcomp.ir.split_half`: the curve, ``"logit"`` if None, and the pairs
        of halves of each size, as published if None; `trials` also of subsets of the topics
    rng : seed of the halves and of what intervals of τ and τ_AP are drawn from, or a generator
        that one is drawn from once; 0 if not given
    workers : threads for halves; the numbers are the same for any number of them
    progress : whether to show a bar for halves; None for one where stderr is a terminal

    Returns
    -------
    Accuracy
        with ``table``, ``predict()`` for further sizes, ``summary()`` and ``plot()``

    Raises
    ------
    DataError
        If the scores cannot be read, or do not suffice: a score is missing and a measure has to be
        extrapolated from halves, two systems have fewer than two topics in common, components
        cannot be distinguished.
    PlanError
        If a measure, model or estimator is unknown, a number is out of range, a measure has an
        estimator and ``estimator="split_half"`` is given, or an option is given that applies to
        none of the measures: `model` where nothing is extrapolated, `trials` where nothing is
        measured on parts of the topics either, `negative` or `interval` without a measure from a
        D-study,
        ``estimator="urbano"`` without τ and τ_AP.

    Warns
    -----
    VcompWarning
        If a measure cannot be extrapolated; its estimates are nan.

    Notes
    -----
    The best estimators are those of Urbano (2016):

    * τ and τ_AP by :func:`vcomp.ir.expected_tau`, with
      their defaults but for `estimator`; intervals are of the correlation of one such test;
    * Eρ², Φ and ε = √σ²(Δ) by a D-study, with confidence intervals;
    * F by the power of the test, whose interval comes from that of its error variance;
    * power ratio, average p-value, conflict ratios and swap rate on random subsets of the topics,
      and beyond by the noncentral t with the components: see
      :class:`vcomp.ir.measures.FromSubsets`. The power ratio and the average p-value of as many
      topics as there are are the observed ones. Intervals are of the expected value for these
      systems on other topics, by a jackknife that leaves out ten groups of topics in turn; there
      is none where the measure is the same without each group, or undefined without one;
    * all else by split halves, with the model that Urbano (2016, sec. 7) found to predict larger
      collections best, ``"logit"``; intervals are where single splits lie. They are compared with
      another half, not with the truth: see :func:`vcomp.ir.split_half` for what that means.

    Indicators estimated from Eρ² and Φ by the curves of 43 TREC collections are not in the table:
    ``vcomp.ir.map_dstudy(accuracy.dstudy)`` has them.

    References
    ----------
    Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
    statistical assumptions. *Information Retrieval Journal*, 19(3), 313-350. Section 4.

    Examples
    --------
    >>> import vcomp
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
    >>> columns = ["measure", "n", "estimate", "estimator"]
    >>> vcomp.ir.accuracy(scores, ["Erho2", "Phi"], [4, 40]).table[columns].round(3)
      measure   n  estimate estimator
    0   Erho2   4     0.848   D-study
    1   Erho2  40     0.982   D-study
    2     Phi   4     0.768   D-study
    3     Phi  40     0.971   D-study
    """
    matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
    matrix = matrix.drop_worst(drop_worst)
    counts = dict(zip(matrix.facets, (matrix.n_systems, matrix.n_topics), strict=True))
    ranked, sampled = matrix.facets

    def study(n: float | list[float]) -> DStudy:
        components, influences = two_way_components(matrix)
        source = interval
        if interval == "robust":
            components = replace(components, levels=influences())
        elif interval == "auto":
            components, reason = with_influences(components, counts, influences)
            source = FromComponents(components, interval, negative, reason=reason)
        return dstudy(
            components,
            object=ranked,
            sizes={sampled: n},
            alpha=alpha,
            negative=negative,
            interval=source,
        )

    return accuracy_of(
        matrix,
        study,
        measures,
        n_topics,
        counts,
        estimator=estimator,
        alpha=alpha,
        negative=negative,
        interval=interval,
        model=model,
        trials=trials,
        rng=rng,
        workers=workers,
        progress=progress,
    )


@guarded
def accuracy_of(
    scores: ScoreMatrix | None,
    study: Callable[[Any], DStudy],
    measures: Measures | None,
    n_topics: float | Iterable[float] | None,
    sizes: Mapping[str, int],
    *,
    estimator: AccuracyEstimator,
    alpha: float,
    negative: Literal["zero", "keep"],
    interval: object,
    model: Model | None,
    trials: int | None,
    rng: int | np.random.Generator | None,
    workers: int,
    progress: bool | None,
) -> Accuracy:
    """Return the accuracy of tests of any size, from scores and from D-studies of a fit.

    The second half of :func:`accuracy`, for callers that have estimated components already.

    Parameters
    ----------
    scores : matrix of scores; None if there is none, and measures that need it are refused
    study : makes the D-study of a size, or of several, of the facet that is sampled; called only
        if a measure needs it
    measures, n_topics : as in :func:`accuracy`; without scores, the default of `measures` is those
        of a D-study
    sizes : number of levels of the facet that is ranked and of the facet that is sampled, by name
    estimator, alpha, negative, interval, model, trials, rng, workers, progress : as in
        :func:`accuracy`

    Raises
    ------
    DataError, PlanError
        As :func:`accuracy`.

    Examples
    --------
    >>> import vcomp
    >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    >>> found = vcomp.ir.accuracy_of(
    ...     None, lambda n: res.dstudy(topic=n), "Erho2", [3, 50], {"sys": 5, "topic": 3},
    ...     estimator="shrunken", alpha=0.05, negative="zero", interval="auto", model=None,
    ...     trials=None, rng=None, workers=1, progress=False)
    >>> found.table[["n", "estimate"]].round(3)
        n  estimate
    0   3     0.809
    1  50     0.986
    """
    if measures is None and scores is None:
        measures = tuple(kind.name for kind in PLANNED)
    chosen = several(DEFAULT if measures is None else measures)
    n = None if n_topics is None else check_sizes(n_topics)
    (ranked, n_ranked), (sampled, n_sampled) = sizes.items()
    planned = None
    if _needs_dstudy(chosen, estimator, negative, interval):
        planned = study(n_sampled if n is None else n.tolist())
    check_alpha(alpha)
    by_name, seed = named(chosen), seed_from(rng)
    splits = _Splits(model, trials, seed, workers, progress)
    by_measure: dict[str, MeasureEstimator | None] = dict.fromkeys(by_name)
    if estimator != "split_half":
        by_measure = {
            name: _estimator_of(measure, scores, planned, sampled, estimator, splits)
            for name, measure in by_name.items()
        }
    rest = {name: by_name[name] for name, found in by_measure.items() if found is None}
    at = np.array([float(n_sampled)]) if n is None else n
    sampled_too = any(isinstance(found, BySubsets) for found in by_measure.values())
    halves = _halves(scores, rest, at, alpha, splits, estimator, sampled_too)
    estimators = {name: found or halves[name] for name, found in by_measure.items()}
    values = {
        name: found.at_hand(alpha)
        if n is None and isinstance(found, ByPairs)
        else found.at(at, alpha)
        for name, found in estimators.items()
    }
    notes = () if planned is None else (*planned.notes, *_on_intervals(planned))
    counts = (n_ranked, n_sampled)
    return Accuracy(by_name, estimators, at, values, alpha, (ranked, sampled), counts, notes)


def _on_intervals(study: DStudy) -> tuple[str, ...]:
    """Return notes on the interval methods of a D-study."""
    methods = tuple(dict.fromkeys(study.interval_methods.values()))
    said = (f"Intervals from the D-study: {'; '.join(methods)}.",) if methods else ()
    return (*said, *note_on_scores(study.components.response_values, methods))


def _estimator_of(
    measure: Measure,
    matrix: ScoreMatrix | None,
    study: DStudy | None,
    sampled: str,
    estimator: TauEstimator,
    splits: _Splits,
) -> MeasureEstimator | None:
    """Return the estimator of a measure; None if it must be extrapolated from halves.

    Parameters
    ----------
    measure : to estimate
    matrix : scores; None where no requested measure needs them
    study : a D-study; None where no requested measure needs one
    sampled : the facet of the topics
    estimator : of τ and τ_AP
    splits : seed of random numbers, and the number of subsets
    """
    quantity = PLANNED.get(type(measure))
    if quantity is not None and study is not None:
        return ByDStudy(study, sampled, quantity)
    if matrix is None:
        return None
    if isinstance(measure, FTest) and study is not None:
        return ByPower(study, sampled, measure, matrix.n_systems)
    if isinstance(measure, Tau | TauAP):
        return ByPairs(measure, matrix, measure.estimator or estimator, splits.rng)
    if isinstance(measure, FromSubsets):
        _need_all_scores(matrix, f"{measure.symbol} is measured on subsets of the topics")
        return BySubsets(measure, matrix, splits.trials, splits.rng)
    return ByItself(measure, matrix) if measure.has_estimator else None


def _needs_dstudy(
    measures: Sequence[Measure], estimator: AccuracyEstimator, negative: str, interval: object
) -> bool:
    """Return whether a measure comes from a D-study.

    Raises
    ------
    PlanError
        If the estimator is unknown or applies to none of the measures, or `negative` or
        `interval`, which are options of D-studies, is given and no measure comes from one.
    """
    check_one_of("estimator", estimator, get_args(AccuracyEstimator))
    if estimator == "urbano" and not any(isinstance(m, Tau | TauAP) for m in measures):
        raise PlanError(
            "estimator='urbano' applies to τ and τ_AP, and neither is among these measures"
        )
    own = [m for m in measures if isinstance(m, Tau | TauAP) and m.estimator is not None]
    if estimator == "split_half" and own:
        raise PlanError(
            f"estimator='split_half' is of all measures, and {own[0]!r} has another; leave out one"
        )
    needed = estimator != "split_half" and any(
        type(m) in PLANNED or isinstance(m, FTest) for m in measures
    )
    is_auto = isinstance(interval, str) and interval == "auto"
    given = {"negative": negative != "zero", "interval": not is_auto}
    if not needed and any(given.values()):
        option = next(name for name, is_given in given.items() if is_given)
        raise PlanError(
            f"{option}= applies to measures from a D-study (Eρ², Φ, ε and F), and none of these "
            "measures is one"
        )
    return needed


def _halves(
    matrix: ScoreMatrix | None,
    measures: Mapping[str, Measure],
    n_topics: FloatArray,
    alpha: float,
    splits: _Splits,
    estimator: AccuracyEstimator,
    subsets: bool,
) -> dict[str, MeasureEstimator]:
    """Return the estimators that extrapolate the measures from halves."""
    model = MODELS[-1] if splits.model is None else splits.model
    check_one_of("model", model, MODELS)
    if not measures:
        for option in ("model", "trials"):
            if getattr(splits, option) is not None and not (option == "trials" and subsets):
                raise PlanError(
                    f"{option}= applies to measures that are extrapolated from halves, and none "
                    "of these is; estimator='split_half' extrapolates all"
                )
        return {}
    if matrix is None:
        raise _no_scores(measures)
    first = next(iter(measures.values()))
    own = "" if estimator == "split_half" else " has no estimator of its own, and"
    _need_all_scores(matrix, f"{first.symbol}{own} is extrapolated from halves of the topics")
    study = split_half(
        matrix,
        measures.values(),
        n_topics,
        trials=splits.trials,
        models=model,
        alpha=alpha,
        rng=splits.rng,
        workers=splits.workers,
        progress=splits.progress,
    )
    keys = {measure: key for key, measure in study.measures.items()}
    return {name: ByHalves(study, keys[m], model) for name, m in measures.items()}


def _need_all_scores(matrix: ScoreMatrix, what: str) -> None:
    try:
        complete(matrix)
    except DataError as error:
        raise DataError(f"{what}, which need all scores; {error}") from error


def _no_scores(measures: Mapping[str, Measure]) -> PlanError:
    planned = ", ".join(repr(kind.name) for kind in PLANNED)
    return PlanError(
        f"{next(iter(measures))!r} is estimated from the cell means of two crossed facets "
        f"(systems and topics), which this result does not have; it has {planned}. For "
        "others call vcomp.ir.accuracy(matrix) with a topic × system matrix; if it has means over "
        "other facets, the accuracy is that for their present levels only"
    )
