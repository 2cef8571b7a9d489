"""Curves of accuracy over the number of topics, fitted to halves and drawn out to larger tests.

References
----------
Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
statistical assumptions. *Information Retrieval Journal*, 19(3), 313-350. Section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import DataError, EstimationError
from vcomp.ir.curve import (
    MODELS,
    NO_ERROR,
    SCALES,
    AccuracyCurve,
    Model,
    Scale,
    axis,
    choice,
    to_error,
)
from vcomp.ir.kernels import fit_binomial_line


def fit_curve(
    n_topics: ArrayLike,
    accuracy: ArrayLike,
    model: Model = "logit",
    *,
    scale: Scale = "correlation",
) -> AccuracyCurve:
    """Fit a curve of accuracy over the number of topics to observations of smaller tests.

    Parameters
    ----------
    n_topics : (m,) topics of each observation
    accuracy : (m,) its accuracy; nan is missing
    model : ``"exp1"`` and ``"exp2"`` by least squares on the logarithms of errors, those without
        error left out; ``"logit"`` by a generalised linear model with binomial errors. See
        :class:`AccuracyCurve`
    scale : ``"correlation"`` for τ and τ_AP, from -1 to 1; ``"share"`` for what lies between 0 and
        1 and grows with accuracy; ``"error"`` for what lies there and falls, as sensitivities do.
        Of these Urbano (2016) has the first and the last

    Returns
    -------
    AccuracyCurve

    Raises
    ------
    DataError
        If the two are not of one length, sizes are not positive, or an accuracy is outside of its
        scale.
    EstimationError
        If observations are of fewer than two sizes or fewer than three in all, those without error
        aside; for ``"logit"`` if none has an error, or all are wholly wrong; for the others if
        some have none and the rest are wholly wrong, as successes and failures.
    PlanError
        If `model` or `scale` is unknown.

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Eqs. 23 to 25.

    Examples
    --------
    >>> curve = fit_curve([5, 10, 20, 40], [0.5, 0.64, 0.76, 0.83])
    >>> curve.at(80.0).round(4)
    np.float64(0.8883)
    """
    choice("model", model, MODELS)
    choice("scale", scale, SCALES)
    n, y = _columns(n_topics, accuracy)
    sizes, place = np.unique(n, return_inverse=True)
    return _Errors.of(sizes, place, y, scale).curve(model)


def fit_curves(
    sizes: ArrayLike,
    accuracies: ArrayLike,
    models: Sequence[Model] = MODELS,
    *,
    scale: Scale = "correlation",
) -> tuple[dict[Model, AccuracyCurve], dict[Model, EstimationError]]:
    """Fit curves of several models to as many observations of each size.

    The curves of :func:`fit_curve`. What all need of the observations is found once.

    Parameters
    ----------
    sizes : (g,) numbers of topics, rising
    accuracies : (g, t) accuracies of t tests of each size; nan is missing
    models, scale : as there

    Returns
    -------
    curves, problems : by model; the curves, and why there is none

    Raises
    ------
    DataError
        If there is not a row for each size, sizes are not positive or do not rise, or an accuracy
        is outside of its scale.
    PlanError
        If a model or `scale` is unknown.

    Examples
    --------
    >>> accuracies = [[0.5, 0.48], [0.64, 0.66], [0.76, 0.75], [0.83, 0.85]]
    >>> curves, problems = fit_curves([5, 10, 20, 40], accuracies)
    >>> curves["logit"].at(80.0).round(4), problems
    (np.float64(0.8949), {})
    """
    for model in models:
        choice("a model", model, MODELS)
    choice("scale", scale, SCALES)
    rows = np.asarray(accuracies, dtype=float)
    n = np.asarray(sizes, dtype=float)
    if rows.ndim != 2 or n.shape != rows.shape[:1]:
        raise DataError(
            f"accuracies have a row for each size; they have the shapes {rows.shape} and {n.shape}"
        )
    if not (np.diff(n) > 0).all():
        raise DataError("sizes must rise from each row of accuracies to the next")
    _columns(n, n)
    errors = _Errors.of(n, np.repeat(np.arange(n.size), rows.shape[1]), rows.ravel(), scale)
    curves: dict[Model, AccuracyCurve] = {}
    problems: dict[Model, EstimationError] = {}
    for model in models:
        try:
            curves[model] = errors.curve(model)
        except EstimationError as error:
            problems[model] = error
    return curves, problems


def _columns(n_topics: ArrayLike, accuracy: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return sizes and accuracies as numbers, the sizes positive."""
    try:
        n, y = np.asarray(n_topics, dtype=float), np.asarray(accuracy, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(f"numbers of topics and accuracies must be numbers: {error}") from error
    if n.ndim != 1 or n.shape != y.shape:
        raise DataError(
            "n_topics and accuracy are two columns of one length; they have the shapes "
            f"{n.shape} and {y.shape}"
        )
    if not ((n > 0) & (n < np.inf)).all():
        wrong = n[~((n > 0) & (n < np.inf))][0]
        raise DataError(f"the number of topics of an observation must be positive, not {wrong}")
    return n, y


@dataclass(frozen=True, slots=True, eq=False)
class _Errors:
    """Observed errors and what fits need of them.

    Attributes
    ----------
    shares, logs : errors by size, and logarithms of those that are not zero
    n_missing, n_zero : how many observations are nan, and without error
    """

    scale: Scale
    shares: _BySize
    logs: _BySize
    n_missing: int
    n_zero: int

    @classmethod
    def of(cls, sizes: FloatArray, place: LongArray, y: FloatArray, scale: Scale) -> _Errors:
        """Return errors of accuracies, each of the size at its place among those that rise."""
        missing = np.isnan(y)
        n_missing = int(missing.sum())
        if n_missing:
            place, y = place[~missing], y[~missing]
        low = -1.0 if scale == "correlation" else 0.0
        outside = (y < low - NO_ERROR) | (y > 1.0 + NO_ERROR)
        if outside.any():
            raise DataError(
                f"an accuracy is {display.number(y[outside][0])}, outside of "
                f"[{display.number(low)}, 1], where those of scale {scale!r} lie"
            )
        e = to_error(y, scale)
        e = np.where(e < NO_ERROR, 0.0, np.minimum(e, 1.0))
        shares = _BySize.of(sizes, place, e)
        kept = e > 0.0
        n_zero = int(e.size - kept.sum())
        if n_zero:
            place, e = place[kept], e[kept]
        return cls(scale, shares, _BySize.of(sizes, place, np.log(e)), n_missing, n_zero)

    def curve(self, model: Model) -> AccuracyCurve:
        """Return the curve of a model.

        Raises
        ------
        EstimationError
            If there is none.
        """
        if model == "logit":
            self.shares.check()
            fit = _binomial(self.shares)
            return AccuracyCurve(model, self.scale, *fit, self.shares.n, self.n_missing)
        self.logs.check(self.n_zero)
        if self.n_zero and (self.logs.means == 0.0).all():
            raise EstimationError(
                f"{model} fits logarithms of errors: of {self.shares.n} observations "
                f"{self.n_zero} have none and are left out, and the others are wholly wrong; "
                "'logit' fits both"
            )
        fit = _least_squares(axis(model, self.logs.sizes), self.logs)
        return AccuracyCurve(model, self.scale, *fit, self.logs.n, self.n_missing, self.n_zero)


@dataclass(frozen=True, slots=True, eq=False)
class _BySize:
    """Numbers observed at several sizes, those without any left out.

    Attributes
    ----------
    sizes : (g,) rising
    counts, means : (g,) how many were observed of each, and their means
    squares : (g,) their sums of squares about the means
    """

    sizes: FloatArray
    counts: FloatArray
    means: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, sizes: FloatArray, place: LongArray, values: FloatArray) -> _BySize:
        """Return values, each of the size at its place."""
        counts = np.bincount(place, minlength=sizes.size).astype(float)
        means = np.bincount(place, values, sizes.size) / np.maximum(counts, 1.0)
        off = np.square(values - means[place])
        squares = np.bincount(place, off, sizes.size).astype(float)
        there = counts > 0.0
        return cls(sizes[there], counts[there], means[there], squares[there])

    @property
    def n(self) -> int:
        """Number of observations."""
        return int(self.counts.sum())

    def check(self, n_zero: int = 0) -> None:
        """Refuse what no line can be drawn through."""
        if self.sizes.size >= 2 and self.n >= 3:
            return
        left_out = f" ({n_zero} without any error left out)" if n_zero else ""
        raise EstimationError(
            "a curve needs three observations or more, at two numbers of topics or more; there "
            f"are {self.n} at {self.sizes.size}{left_out}"
        )


def _least_squares(x: FloatArray, z: _BySize) -> tuple[FloatArray, FloatArray, float]:
    """Return a and b of z = a + b x, their covariance matrix and the residual variance."""
    centre, level = float(z.counts @ x) / z.n, float(z.counts @ z.means) / z.n
    deviation = x - centre
    spread = float(z.counts @ np.square(deviation))
    slope = float((z.counts * deviation) @ (z.means - level)) / spread
    off = z.means - level - slope * deviation
    dispersion = float(z.squares.sum() + z.counts @ np.square(off)) / (z.n - 2)
    cov = dispersion * _uncentred(1.0 / z.n, 1.0 / spread, centre)
    return np.array([level - slope * centre, slope]), cov, dispersion


def _uncentred(level: float, slope: float, centre: float) -> FloatArray:
    """Return the covariance matrix of a and b from the variances about the centre of x."""
    away = -centre * slope
    return np.array([[level - centre * away, away], [away, slope]])


def _binomial(e: _BySize) -> tuple[FloatArray, FloatArray, float]:
    """Return a and b of logit e = a + b log n by maximum likelihood, covariance and dispersion.

    The likelihood depends on the observations of one size through their mean alone.
    """
    for wrong, which in ((0.0, "none has any error"), (1.0, "all are wholly wrong")):
        if (e.means == wrong).all():
            raise EstimationError(f"logit has no finite fit: of {e.n} observations {which}")
    if _is_step(e.means) or _is_step(e.means[::-1]):
        raise EstimationError(
            "logit has no finite fit: observations lie between no error and wholly wrong at one "
            "number of topics at most"
        )
    x = np.log(e.sizes)
    middle = float(e.counts @ x) / e.n
    level, slope, found = fit_binomial_line(x - middle, e.means, e.counts)
    if not found:
        raise EstimationError("logit was not fitted: Newton's method did not settle")
    line = level + slope * (x - middle)
    variance = 1.0 / (2.0 + 2.0 * np.cosh(line))  # μ (1 - μ)
    residual = e.means - 1.0 / (1.0 + np.exp(-line))
    weights = e.counts * variance
    centre = float(weights @ x) / float(weights.sum())
    spread = float(weights @ np.square(x - centre))
    chi2 = np.sum((e.squares + e.counts * np.square(residual)) / variance)
    dispersion = float(chi2) / (e.n - 2)
    cov = dispersion * _uncentred(1.0 / float(weights.sum()), 1.0 / spread, centre)
    return np.array([level - slope * middle, slope]), cov, dispersion


def _is_step(means: FloatArray) -> bool:
    """Whether means go from 0 to 1 with one of them between at most: then b has no estimate."""
    first = int(np.argmax(np.append(means > 0.0, True)))
    return bool((means[first + 1 :] == 1.0).all())
