"""Base classes of measures of larger tests: extrapolated from halves, or forecast from subsets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, EstimationError, PlanError, VcompError, check_one_of, warn
from vcomp.ir.agreement import Measure, TopicMeasure, check_sizes
from vcomp.ir.curve import MODELS, Model, fit_curves
from vcomp.ir.pair_forecast import PairForecast
from vcomp.ir.scores import ScoreMatrix, ScoresLike, as_score_matrix, complete
from vcomp.ir.splits import (
    FEWEST,
    draw_halves,
    draw_subsets,
    evaluate_halves,
    fewest,
    published_sizes,
    published_trials,
    scale_of,
    usual_subsets,
)
from vcomp.numerics import check_count, seed_from


class Extrapolated(Measure):
    """A measure that is estimated from halves of the topics, by the curve of one model."""

    __slots__ = ()

    def estimate(
        self,
        scores: ScoresLike,
        n_topics: float | Iterable[float],
        *,
        system: str | None = None,
        topic: str | None = None,
        score: str | None = None,
        model: Model = "logit",
        trials: int | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> FloatArray:
        """Return the accuracy of collections of `n_topics` topics, extrapolated from halves.

        The estimates of :func:`vcomp.ir.split_half`, which has the other models too, intervals,
        and the halves themselves. What a test is compared with is another test of its size, not
        the true means, and **extrapolations are biased**: see the notes there.

        Parameters
        ----------
        scores : long table, :class:`vcomp.ir.ScoreMatrix`, or topic × system matrix, **one row
            per topic and one column per system**
        n_topics : one or more numbers of topics
        system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
        model : ``"exp1"``, ``"exp2"`` or ``"logit"``; see :class:`vcomp.ir.AccuracyCurve`
        trials : pairs of halves of each size. If None as published: at most 100, and 1000 in all
        rng : seed, or a generator that one is drawn from once; 0 if not given

        Returns
        -------
        (len(n_topics),) array

        Raises
        ------
        PlanError
            If a number of topics is not positive, or `model` is unknown.
        DataError
            If the scores cannot be read, one is missing, or there are fewer than four topics.
        EstimationError
            If no curve can be fitted, as where all halves agree, the measure is undefined for all
            of them or values lie beyond 1, or if `trials` or `rng` cannot be.

        Warns
        -----
        VcompWarning
            If the measure is undefined for some halves, which are left out.

        Examples
        --------
        >>> from vcomp.ir.measures import get
        >>> scores = np.random.default_rng(1).normal(size=(30, 8)) / 40 + np.arange(8) / 80
        >>> get("sens_abs", rate=0.2).estimate(scores, [30, 60]).round(4)
        array([0.002 , 0.0016])
        """
        n = check_sizes(n_topics)
        check_one_of("model", model, MODELS)
        X = complete(as_score_matrix(scores, system=system, topic=topic, score=score))
        if len(X) < 2 * FEWEST:
            raise DataError(
                f"{self.name!r} is extrapolated from halves of at least {FEWEST} topics each; "
                f"there are {len(X)} topics in all"
            )
        of_halves = published_sizes(len(X), fewest([self]))
        wanted = published_trials(len(of_halves)) if trials is None else trials
        each, seed = check_count(wanted, "trials"), seed_from(rng)
        halves = [draw_halves(len(X), size, each, seed) for size in of_halves]
        values = evaluate_halves(X, [self], halves)[0]
        missing = int(np.isnan(values).sum())
        if missing == values.size:
            raise EstimationError(
                f"{self.symbol} has no value in any of {missing:,} splits: {self.undefined}"
            )
        if missing:
            warn(
                f"{self.symbol} has no value in {missing:,} of {values.size:,} splits, which are "
                f"left out: {self.undefined}"
            )
        try:
            curves, problems = fit_curves(of_halves, values, (model,), scale=scale_of(self))
            if problems:
                raise problems[model]
        except VcompError as error:
            raise EstimationError(
                f"{self.symbol} is not extrapolated by {model}: {error}"
            ) from error
        return curves[model].at(n)


_GROUPS = 10
"""Number of groups of topics in the delete-a-group jackknife."""


class FromSubsets(TopicMeasure):
    """A measure of tests between systems, measured directly on random subsets of the topics.

    Up to the size that the collection allows, the estimate is the mean over random subsets.
    Beyond, it is what the noncentral t expects with the components of the collection: see
    :class:`PowerRatio` for how.

    Attributes
    ----------
    n_sets : disjoint subsets that a value needs: 1, or 2 for conflicts and swaps. The largest
        subsets have all topics or half of them
    """

    __slots__ = ()

    n_sets: ClassVar[int] = 1
    has_estimator: ClassVar[bool] = True

    def estimate(
        self,
        scores: ScoresLike,
        n_topics: float | Iterable[float],
        *,
        system: str | None = None,
        topic: str | None = None,
        score: str | None = None,
        trials: int | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> FloatArray:
        """Return the measure for collections of `n_topics` topics, measured or forecast.

        Parameters
        ----------
        scores : long table, :class:`vcomp.ir.ScoreMatrix`, or topic × system matrix, **one row
            per topic and one column per system**
        n_topics : one or more numbers of topics. Up to those of the collection (half of them for
            conflicts and swaps) the measure is the mean over random subsets of the nearest whole
            number of topics; all topics are one subset, and the estimate is the observed value.
            Beyond, it is a forecast
        system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
        trials : subsets of each size. If None 100, or fewer if there are many systems
        rng : seed, or a generator that one is drawn from once; 0 if not given

        Returns
        -------
        (len(n_topics),) array
            nan where the measure is undefined for all subsets.

        Raises
        ------
        PlanError
            If a number of topics is less than 2.
        DataError
            If the scores cannot be read, one is missing, or there are too few topics.
        EstimationError
            If `trials` or `rng` cannot be.

        Warns
        -----
        VcompWarning
            If the measure is undefined for some subsets, which are left out.

        Examples
        --------
        >>> from vcomp.ir.measures import get
        >>> scores = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4
        >>> get("power_ratio").estimate(scores, [15, 30, 60]).round(2)
        array([0.52, 0.71, 0.8 ])
        """
        n = check_sizes(n_topics)
        matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
        return self.estimate_of_matrix(matrix, n, trials=trials, seed=seed_from(rng))

    def estimate_of_matrix(
        self, matrix: ScoreMatrix, n: FloatArray, *, trials: int | None = None, seed: int = 0
    ) -> FloatArray:
        """Return :meth:`estimate` for a matrix, checked numbers of topics and a seed."""
        X, each = self._checked(matrix, n, trials)
        found, values = self._estimated(X, n, each, seed)
        self._say_missing(values)
        return found

    def interval_of_matrix(
        self,
        matrix: ScoreMatrix,
        n: FloatArray,
        alpha: float,
        *,
        trials: int | None = None,
        seed: int = 0,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the ends of intervals of the expected measure, by a jackknife over topics.

        Ten random groups of topics are left out in turn, and the measure is estimated from the
        rest for the same numbers of topics. Intervals are Student's, with nine degrees of freedom,
        on the scale of arcsin √x, and are for these systems on other topics.

        Parameters
        ----------
        matrix : scores, none of them missing
        n : (m,) numbers of topics, 2 or more
        alpha : intervals have confidence 1 − alpha
        trials : subsets of each size; None for the default
        seed : of the subsets and groups

        Returns
        -------
        low, high : (m,)
            nan where the measure is undefined without some group, the same without each, or a
            group leaves fewer topics than the measure needs.

        References
        ----------
        Shao, J. and Wu, C. F. J. (1989). A general theory for jackknife variance estimation.
        *Annals of Statistics*, 17(3), 1176-1197: leaving out groups serves estimators that are
        not smooth, as shares of significant pairs are.

        Examples
        --------
        >>> from vcomp.ir import as_score_matrix
        >>> from vcomp.ir.measures import get
        >>> scores = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4
        >>> n = np.array([30.0, 60.0])
        >>> low, high = get("power_ratio").interval_of_matrix(as_score_matrix(scores), n, 0.05)
        >>> low.round(2), high.round(2)
        (array([0.55, 0.66]), array([0.85, 0.91]))
        """
        from scipy.special import stdtrit

        X, each = self._checked(matrix, n, trials)
        k = min(_GROUPS, len(X))
        groups = np.array_split(np.random.default_rng([seed, k]).permutation(len(X)), k)
        unknown = np.full(n.size, np.nan)
        if len(X) - max(map(len, groups)) < 2 * self.n_sets:
            return unknown, unknown
        left = [np.delete(X, group, axis=0) for group in groups]
        values = np.array([_angle(self._estimated(Y, n, each, seed)[0]) for Y in left])
        centre = _angle(self._estimated(X, n, each, seed)[0])
        spread = values - values.mean(axis=0)
        se = np.sqrt((k - 1) / k * np.square(spread).sum(axis=0))
        se[se < _NOTHING] = np.nan
        reach = -stdtrit(k - 1, alpha / 2.0) * se
        ends = np.clip([centre - reach, centre + reach], 0.0, np.pi / 2.0)
        low, high = np.square(np.sin(ends))
        return low, high

    def _checked(
        self, matrix: ScoreMatrix, n: FloatArray, trials: int | None
    ) -> tuple[FloatArray, int]:
        """Check the options; return the scores and the number of subsets of each size."""
        X = complete(matrix)
        if len(X) // self.n_sets < 2:
            raise DataError(
                f"{self.name!r} needs {2 * self.n_sets} topics at least; there are {len(X)}"
            )
        few = n[n < 2]
        if few.size:
            raise PlanError(f"tests need two topics or more, not {float(few[0])!r}")
        each = usual_subsets(X.shape[1]) if trials is None else check_count(trials, "trials")
        return X, each

    def _estimated(
        self, X: FloatArray, n: FloatArray, trials: int, seed: int
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the estimates, and the values on subsets for each size within the collection."""
        most = len(X) // self.n_sets
        within = np.rint(n) <= most
        estimates = np.empty(n.size)
        values = [self._on_subsets(X, int(m), trials, seed) for m in np.rint(n[within])]
        estimates[within] = [_mean(v) for v in values]
        if not within.all():
            forecast = self.forecast(X)
            at_hand = _mean(self._on_subsets(X, most, trials, seed))
            now = self.expected(forecast, float(most))
            then = [self.expected(forecast, float(m)) for m in n[~within]]
            estimates[~within] = [self.carried(at_hand, now, value) for value in then]
        return estimates, values

    def forecast(self, X: FloatArray) -> PairForecast:
        """Return the pair forecast of a collection."""
        return PairForecast.from_scores(X)

    @abstractmethod
    def expected(self, pairs: PairForecast, n_topics: float) -> float:
        """Return the expected measure on n' topics, given the components of a collection.

        Parameters
        ----------
        pairs : differences of the collection
        n_topics : n', two or more
        """

    def carried(self, at_hand: float, now: float, then: float) -> float:
        """Extrapolate the measured value to more topics by the ratio of expected values.

        Ratios are of errors: of the measure if less is better, else of its difference from 1.

        Parameters
        ----------
        at_hand : measured on the largest subsets
        now, then : expected of as many topics, and of more
        """
        if self.larger_is_better:
            return 1.0 - _carried(1.0 - at_hand, 1.0 - now, 1.0 - then)
        return _carried(at_hand, now, then)

    def _on_subsets(self, X: FloatArray, n: int, trials: int, seed: int) -> FloatArray:
        """Return the measure on random subsets of n topics, (trials,)."""
        if self.n_sets == 1:
            if n == len(X):
                return np.array([self.actual_of_scores(X, X)])
            subsets = draw_subsets(len(X), n, trials, seed)
            return np.array([self.actual_of_scores(X[one], X[one]) for one in subsets])
        halves = draw_halves(len(X), n, trials, seed)
        both = zip(halves.collection, halves.truth, strict=True)
        return np.array([self.actual_of_scores(X[one], X[other]) for one, other in both])

    def _say_missing(self, values: list[FloatArray]) -> None:
        missing = sum(int(np.isnan(v).sum()) for v in values)
        if missing:
            warn(
                f"{self.symbol} has no value in {missing:,} of {sum(map(len, values)):,} subsets, "
                f"which are left out: {self.undefined}"
            )


def _carried(at_hand: float, now: float, then: float) -> float:
    """Return `at_hand` times then/now, with fallbacks for errors that are nan or zero."""
    if np.isnan(at_hand):
        return then
    if not now > 0.0:
        return min(at_hand, then)
    return then if at_hand == 0.0 else at_hand * then / now


def _mean(values: FloatArray) -> float:
    known = ~np.isnan(values)
    return float(values[known].mean()) if known.any() else np.nan


_NOTHING = 1e-9
"""Standard errors below this are rounding: no group changes the measure."""


def _angle(shares: FloatArray) -> FloatArray:
    """Return arcsin √x, the variance-stabilising transformation of a share."""
    return np.asarray(np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0))))
