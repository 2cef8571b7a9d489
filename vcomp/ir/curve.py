"""The expected accuracy of a test as a curve over its number of topics, fitted to smaller tests.

References
----------
Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
statistical assumptions. *Information Retrieval Journal*, 19(3), 313-350. Section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import (
    DataError,
    EstimationError,
    PlanError,
    check_alpha,
    check_one_of,
    is_real,
)
from vcomp.ir.agreement import check_sizes, whole
from vcomp.ir.binomial_line import fit_binomial_line

if TYPE_CHECKING:
    import pandas as pd

Model = Literal["exp1", "exp2", "logit"]
Scale = Literal["correlation", "share", "error"]

MODELS: tuple[Model, ...] = get_args(Model)
"""The published models, in the order of equations 23 to 25."""

SCALES: tuple[Scale, ...] = get_args(Scale)

COLUMNS = ("estimate", "low", "high", "obs_low", "obs_high")
"""Columns of predictions for a test."""

NO_ERROR = 1e-12
"""Errors below this are rounded zeros; their logarithms would dominate a fit."""


@dataclass(frozen=True, slots=True, eq=False)
class AccuracyCurve:
    """The expected error of a test as a curve over its number of topics.

    With e the error (see `scale`), g its link and x a function of n topics, g(e) = a + b x
    (eq. 15.11 of the mathematics):

    ``"exp1"``
        log e = a + b log n, so that e = exp(a) n^b (Urbano, 2016, eq. 23)
    ``"exp2"``
        log e = a + b n, so that e = exp(a) exp(b n) (eq. 24)
    ``"logit"``
        logit e = a + b log n (eq. 25)

    Attributes
    ----------
    model : one of these
    scale : how an accuracy A becomes an error e: (1 - A)/2 for a ``"correlation"``, 1 - A for a
        ``"share"``, A itself where it is an ``"error"``
    params : (2,) a and b
    cov_params : (2, 2) their covariance matrix
    dispersion : variance of the residuals of log e; for ``"logit"`` Pearson's χ² over its degrees
        of freedom
    nobs : observations that the curve was fitted to
    n_missing : observations that were nan
    n_zero : observations without any error, which have no logarithm and are left out of
        ``"exp1"`` and ``"exp2"``

    Examples
    --------
    >>> from vcomp.ir import fit_curve
    >>> curve = fit_curve([5, 10, 20, 40], [0.5, 0.64, 0.76, 0.83], "exp1")
    >>> curve.params.round(3)
    array([-0.53 , -0.525])
    """

    model: Model
    scale: Scale
    params: FloatArray
    cov_params: FloatArray
    dispersion: float
    nobs: int
    n_missing: int = 0
    n_zero: int = 0

    @property
    def df_resid(self) -> int:
        """Residual degrees of freedom."""
        return self.nobs - 2

    def at(self, n_topics: FloatArray) -> FloatArray:
        """Return the expected accuracy of tests of n topics, in an array of the same shape.

        Parameters
        ----------
        n_topics : numbers of topics, one or several
        """
        n = np.asarray(n_topics, dtype=float)
        a, b = self.params
        return _accuracy(_error(self.model, a + b * axis(self.model, n)), self.scale)

    def predict(self, n_topics: float | Iterable[float], *, alpha: float = 0.05) -> pd.DataFrame:
        """Return the expected accuracy of tests of other sizes, with intervals.

        Parameters
        ----------
        n_topics : one or more numbers of topics n
        alpha : intervals have confidence 1 − alpha

        Returns
        -------
        pandas.DataFrame
            A row for each n with the columns ``n``; ``estimate``; ``low`` and ``high``, the
            confidence interval of the curve, that is of the expected accuracy; ``obs_low`` and
            ``obs_high``, the prediction interval of one more observation.

        Raises
        ------
        PlanError
            If `n_topics` is not positive, or `alpha` not between 0 and 1.

        Notes
        -----
        Both intervals are those of the fitted regression, symmetric on its scale with Student's t,
        and transformed back. Of a + b x the variance is x'Cx, C = `cov_params`; the prediction
        interval adds the variance of one observation there: the dispersion φ for ``"exp1"`` and
        ``"exp2"``, and for ``"logit"`` φ/(e(1 - e)), the delta method from the quasi-binomial
        variance φ e(1 - e).

        **They reflect how well the curve fits, and no more.** Halves of one collection share
        topics from split to split, so that observations are not independent; the model may not
        hold beyond the sizes that were observed; and the truth that a half is compared with is
        another half, itself uncertain. Urbano (2016, sec. 8) finds the extrapolations biased for
        these reasons. In 200 collections of 50 topics and 30 systems, with normal effects, τ of a
        new test with the true ranking was 0.75 on average; the curves gave 0.61 (exp1), 0.78
        (exp2) and 0.61 (logit), and their 95 % prediction intervals covered τ of a new test in 14
        %, 79 % and 36 % of cases.

        As published, an expected accuracy of ``"exp1"`` or ``"exp2"`` is transformed back from the
        mean logarithm, without a correction for that, and errors are cut at 1.

        Examples
        --------
        >>> from vcomp.ir import fit_curve
        >>> curve = fit_curve([5, 10, 20, 40], [0.5, 0.64, 0.76, 0.83], "logit")
        >>> curve.predict([40, 80]).round(3)
            n  estimate    low   high  obs_low  obs_high
        0  40     0.833  0.816  0.848    0.805     0.857
        1  80     0.888  0.872  0.903    0.863     0.909
        """
        import pandas as pd

        n = check_sizes(n_topics)
        check_alpha(alpha)
        return pd.DataFrame({"n": whole(n)} | self.limits(n, alpha))

    def limits(self, n: FloatArray, alpha: float) -> dict[str, FloatArray]:
        """Return the columns of :meth:`predict` except ``n``; unchecked.

        Parameters
        ----------
        n : (m,) numbers of topics
        alpha : intervals have confidence 1 − alpha
        """
        from scipy.special import stdtrit

        x = axis(self.model, n)
        line = self.params[0] + self.params[1] * x
        (level, both), (_, slope) = self.cov_params
        variance = level + x * (2.0 * both + x * slope)
        one: float | FloatArray = self.dispersion
        if self.model == "logit":
            e = _error("logit", line)
            with np.errstate(divide="ignore"):
                one = self.dispersion / (e * (1.0 - e))
        t = float(stdtrit(self.df_resid, 1.0 - alpha / 2.0))
        half, obs_half = (t * np.sqrt(np.maximum(v, 0.0)) for v in (variance, variance + one))
        lines = np.stack([line, line - half, line + half, line - obs_half, line + obs_half])
        if self.scale != "error":  # accuracy decreases in the linear predictor
            lines = lines[[0, 2, 1, 4, 3]]
        return dict(zip(COLUMNS, _accuracy(_error(self.model, lines), self.scale), strict=True))

    def required(self, goal: float) -> float:
        """Return the smallest number of topics at which the expected accuracy reaches a goal.

        Parameters
        ----------
        goal : such as τ = 0.9; for an ``"error"`` the largest that is acceptable

        Returns
        -------
        float
            A whole number; infinite where errors of the curve do not fall with more topics.

        Raises
        ------
        PlanError
            If the goal is not within the limits of its scale.

        Examples
        --------
        >>> from vcomp.ir import fit_curve
        >>> fit_curve([5, 10, 20, 40], [0.5, 0.64, 0.76, 0.83], "logit").required(0.9)
        97.0
        """
        is_number = is_real(goal)
        e = float(to_error(np.array(float(goal)), self.scale)) if is_number else np.nan
        if not 0.0 < e < 1.0:
            low = "-1" if self.scale == "correlation" else "0"
            raise PlanError(f"goal must be between {low} and 1, not {goal!r}")
        a, b = self.params
        if b >= 0.0:
            return np.inf
        line = np.log(e / (1.0 - e)) if self.model == "logit" else np.log(e)
        x = (line - a) / b
        with np.errstate(over="ignore"):
            n = x if self.model == "exp2" else np.exp(x)
        # 69 from exact arithmetic may come out as 69.0000000001 and must not become 70.
        return float(max(1.0, np.ceil(n * (1.0 - 1e-9))))


def axis(model: Model, n: FloatArray) -> FloatArray:
    """Return the regressor of a model: n, or log n."""
    return n if model == "exp2" else np.log(n)


def to_error(accuracy: FloatArray, scale: Scale) -> FloatArray:
    """Convert accuracies on a scale to errors between 0 (the truth) and 1.

    Parameters
    ----------
    accuracy : of any shape
    scale : as in :class:`AccuracyCurve`

    Examples
    --------
    >>> to_error(np.array([1.0, 0.0, -1.0]), "correlation")
    array([0. , 0.5, 1. ])
    """
    if scale == "error":
        return accuracy
    return (1.0 - accuracy) / 2.0 if scale == "correlation" else 1.0 - accuracy


def _error(model: Model, line: FloatArray) -> FloatArray:
    """Return errors from linear predictors, cut at 1."""
    if model == "logit":
        from scipy.special import expit

        return expit(line)
    return np.exp(np.minimum(line, 0.0))


def _accuracy(e: FloatArray, scale: Scale) -> FloatArray:
    if scale == "error":
        return e
    return 1.0 - 2.0 * e if scale == "correlation" else 1.0 - e


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
        aside; or for ``"logit"`` if all errors are zero, all are one, or they are separated like
        successes and failures.
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
    check_one_of("model", model, MODELS)
    check_one_of("scale", scale, SCALES)
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

    The curves of :func:`fit_curve`, from one grouping of the observations.

    Parameters
    ----------
    sizes : (g,) numbers of topics, rising
    accuracies : (g, t) accuracies of t tests of each size; nan is missing
    models, scale : as there

    Returns
    -------
    curves, problems : by model; the curves, and why one could not be fitted

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
        check_one_of("model", model, MODELS)
    check_one_of("scale", scale, SCALES)
    rows = np.asarray(accuracies, dtype=float)
    n = np.asarray(sizes, dtype=float)
    if rows.ndim != 2 or n.shape != rows.shape[:1]:
        raise DataError(
            f"accuracies have a row for each size; they have the shapes {rows.shape} and {n.shape}"
        )
    if not (np.diff(n) > 0).all():
        raise DataError("sizes must increase from each row of accuracies to the next")
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
    wrong = n[~((n > 0) & (n < np.inf))]
    if wrong.size:
        raise DataError(f"the number of topics of an observation must be positive, not {wrong[0]}")
    return n, y


@dataclass(frozen=True, slots=True, eq=False)
class _Errors:
    """Observed errors, grouped by size for the fits.

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
        """Return the errors of accuracies `y` with sizes ``sizes[place]``; `sizes` ascend."""
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
                f"{self.n_zero} have error zero and are left out, and the others have error one; "
                "'logit' fits both"
            )
        fit = _least_squares(axis(model, self.logs.sizes), self.logs)
        return AccuracyCurve(model, self.scale, *fit, self.logs.n, self.n_missing, self.n_zero)


@dataclass(frozen=True, slots=True, eq=False)
class _BySize:
    """Moments of observations by size; sizes without observations are left out.

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
        """Return the moments of `values` with sizes ``sizes[place]``."""
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
        """Refuse observations that do not determine a line."""
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
    """Return the covariance matrix of a and b from the variances for centred x."""
    away = -centre * slope
    return np.array([[level - centre * away, away], [away, slope]])


def _binomial(e: _BySize) -> tuple[FloatArray, FloatArray, float]:
    """Return a and b of logit e = a + b log n by maximum likelihood, covariance and dispersion.

    The observations of one size enter the likelihood only by their mean.
    """
    for wrong, which in ((0.0, "all have error zero"), (1.0, "all have error one")):
        if (e.means == wrong).all():
            raise EstimationError(f"logit has no finite fit: of {e.n} observations {which}")
    if _is_step(e.means) or _is_step(e.means[::-1]):
        raise EstimationError(
            "logit has no finite fit: observations have errors between zero and one at one "
            "number of topics at most"
        )
    x = np.log(e.sizes)
    middle = float(e.counts @ x) / e.n
    level, slope, found = fit_binomial_line(x - middle, e.means, e.counts)
    if not found:
        raise EstimationError("logit was not fitted: Newton's method did not converge")
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
    """Whether means are zeros, at most one between 0 and 1, then ones; not all are 0."""
    first = int(np.argmax(means > 0.0))
    return bool((means[first + 1 :] == 1.0).all())
