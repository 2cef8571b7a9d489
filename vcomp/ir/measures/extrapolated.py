"""Base class of measures without an estimator of their own: extrapolation from split halves."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, EstimationError, VcompError, check_one_of, warn
from vcomp.ir.agreement import Measure, complete, sizes
from vcomp.ir.curve import MODELS, Model, fit_curves
from vcomp.ir.scores import ScoresLike, as_score_matrix
from vcomp.ir.splits import (
    FEWEST,
    draw_halves,
    evaluate_halves,
    fewest,
    published_sizes,
    published_trials,
    scale_of,
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
        n = sizes(n_topics)
        check_one_of("model", model, MODELS)
        X = complete(as_score_matrix(scores, system=system, topic=topic, score=score), "scores")
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
