"""The expected accuracy of a test as a curve over its number of topics.

References
----------
Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
statistical assumptions. *Information Retrieval Journal*, 19(3), 313-350. Section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import PlanError, check_alpha, did_you_mean
from vcomp.ir.measures import sizes

if TYPE_CHECKING:
    import pandas as pd

Model = Literal["exp1", "exp2", "logit"]
Scale = Literal["correlation", "share", "error"]

MODELS: tuple[Model, ...] = get_args(Model)
"""The published models, in the order of equations 23 to 25."""

SCALES: tuple[Scale, ...] = get_args(Scale)

COLUMNS = ("estimate", "low", "high", "obs_low", "obs_high")
"""What is predicted of a test."""

NO_ERROR = 1e-12
"""An error below this is none but for rounding; its logarithm would outweigh all others."""


@dataclass(frozen=True, slots=True, eq=False)
class AccuracyCurve:
    """The expected error of a test as a curve over its number of topics.

    With e the error (see `scale`), g its link and x what stands for n topics, g(e) = a + b x:

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
        and then taken back. Of a + b x the variance is x'Cx, C = `cov_params`; the prediction
        interval adds the variance of one observation there: the dispersion φ for ``"exp1"`` and
        ``"exp2"``, and for ``"logit"`` φ/(e(1 - e)), the delta method from the quasi-binomial
        variance φ e(1 - e).

        **They say how well the curve fits, and no more.** Halves of one collection share topics
        from split to split, so that observations are not independent; the model may not hold
        beyond the sizes that were observed; and the truth that a half is compared with is another
        half, itself uncertain. Urbano (2016, sec. 8) finds the extrapolations biased for these
        reasons. In 200 collections of 50 topics and 30 systems, with normal effects, τ of a new
        test with the true ranking was 0.75 on average; the curves said 0.61 (exp1), 0.78 (exp2)
        and 0.61 (logit), and their 95 % prediction intervals held τ of a new test in 14 %, 79 %
        and 36 % of cases.

        As published, an expected accuracy of ``"exp1"`` or ``"exp2"`` is taken back from the mean
        logarithm, without a correction for that, and errors are cut at 1.

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

        n = sizes(n_topics)
        check_alpha(alpha)
        return pd.DataFrame({"n": whole(n)} | self.limits(n, alpha))

    def limits(self, n: FloatArray, alpha: float) -> dict[str, FloatArray]:
        """Return the columns of :meth:`predict` but ``n``; unchecked.

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
        if self.scale != "error":  # accuracy falls along the line
            lines = lines[[0, 2, 1, 4, 3]]
        return dict(zip(COLUMNS, _accuracy(_error(self.model, lines), self.scale), strict=True))

    def needed(self, accuracy: float) -> float:
        """Return the number of topics of the smallest test that is expected to be so accurate.

        Parameters
        ----------
        accuracy : τ = 0.9, say; for an ``"error"`` the largest that will do

        Returns
        -------
        float
            A whole number; infinite where errors of the curve do not fall with more topics.

        Raises
        ------
        PlanError
            If the accuracy is not inside of its scale, where some test may have it.

        Examples
        --------
        >>> from vcomp.ir import fit_curve
        >>> fit_curve([5, 10, 20, 40], [0.5, 0.64, 0.76, 0.83], "logit").needed(0.9)
        97.0
        """
        is_number = isinstance(accuracy, Real) and not isinstance(accuracy, bool)
        e = float(to_error(np.array(float(accuracy)), self.scale)) if is_number else np.nan
        if not 0.0 < e < 1.0:
            low = "-1" if self.scale == "correlation" else "0"
            raise PlanError(f"accuracy lies between {low} and 1, not at {accuracy!r}")
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
    """Return what a model is linear in."""
    return n if model == "exp2" else np.log(n)


def to_error(accuracy: FloatArray, scale: Scale) -> FloatArray:
    """Return errors, from 0 for the truth to 1, of accuracies on a scale.

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

        share: FloatArray = expit(line)
        return share
    return np.exp(np.minimum(line, 0.0))


def _accuracy(e: FloatArray, scale: Scale) -> FloatArray:
    if scale == "error":
        return e
    return 1.0 - 2.0 * e if scale == "correlation" else 1.0 - e


def whole(n: FloatArray) -> FloatArray | LongArray:
    """Return numbers of topics as integers, where all of them are whole.

    Examples
    --------
    >>> whole(np.array([50.0, 100.0]))
    array([ 50, 100])
    """
    return n.astype(np.int64) if (n == np.floor(n)).all() else n


def choice(what: str, given: object, known: Iterable[str]) -> None:
    """Refuse a word that is not one of the known ones.

    Raises
    ------
    PlanError
        Saying what is allowed.
    """
    known = tuple(known)
    if given not in known:
        raise PlanError(
            f"{what} is {', '.join(map(repr, known))}, not {given!r}{did_you_mean(given, known)}"
        )
