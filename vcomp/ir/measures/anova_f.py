"""Power of the F test for differences between systems."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Literal

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_alpha, check_one_of, is_real
from vcomp.ir.agreement import TopicMeasure, rounding
from vcomp.ir.scores import ScoreMatrix
from vcomp.ir.significance import TwoWay, mean_squares

_CERTAIN = 1e10
"""Noncentrality above which the power is one; scipy returns nan there."""


@dataclass(frozen=True, slots=True)
class FTest(TopicMeasure):
    """Whether the F test finds that systems differ, and how likely it is to (Urbano, 2016, 4.2).

    The actual value is 1 if F = MS(s)/MS(st) is significant, with k - 1 and (k - 1)(n - 1) degrees
    of freedom, and the best and the worst system are at least `delta` apart; else it is 0. The
    truth is not used. The estimate is the power of the test at n' topics if they are `delta`
    apart.

    Parameters
    ----------
    delta : smallest difference between the best and the worst system worth detecting, Sakai's
        δ_min, in the units of the scores
    alpha : level of the test
    dispersion : how the other systems lie between these two (Cohen, 1988, sec. 8.2.1)

        * ``"minimum"``: all in the middle, the worst case, as in Sakai (2014): f₁;
        * ``"intermediate"``: at equal distances: f₂;
        * ``"maximum"``: half of them beside the best, half beside the worst: f₃.
    df : degrees of freedom of the error in the power: ``"one-way"``, k(n' - 1), as in the paper
        and its code, though its error variance is that of the two-way analysis; or ``"two-way"``,
        (k - 1)(n' - 1), those of the test itself, which gives a little less power

    Raises
    ------
    PlanError
        If an option is out of range.

    Notes
    -----
    The power is that of the noncentral F distribution with noncentrality k n' f², where for a
    standardized range d = delta/σ(st)

        f₁ = d √(1/2k),    f₂ = d/2 √((k+1)/(3(k-1))),    f₃ = d/2 or, k odd, d √(k²-1)/(2k).

    References
    ----------
    Cohen, J. (1988). *Statistical Power Analysis for the Behavioral Sciences*, 2nd ed. Erlbaum.

    Sakai, T. (2014). Designing test collections for comparing many systems. *Proc. ACM CIKM*,
    61-70.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> FTest().actual(scores, [0.3, 0.4, 0.2])
    0.0
    >>> FTest(delta=0.1).estimate(scores, [10, 50]).round(3)
    array([0.481, 0.997])
    """

    delta: float = 0.05
    alpha: float = 0.05
    dispersion: Literal["minimum", "intermediate", "maximum"] = "minimum"
    df: Literal["one-way", "two-way"] = "one-way"

    name: ClassVar[str] = "F"
    symbol: ClassVar[str] = "F"
    has_estimator: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if not is_real(self.delta) or not 0 < self.delta < np.inf:
            raise PlanError(f"delta must be a positive difference of scores, not {self.delta!r}")
        check_one_of("dispersion", self.dispersion, tuple(_EFFECT_SIZES))
        check_one_of("df", self.df, ("one-way", "two-way"))

    def actual_of_scores(self, X: FloatArray, Y: FloatArray) -> float:
        """Return 1 if the test finds a difference in `X`, else 0; unchecked. `Y` is not needed."""
        from scipy.special import fdtrc

        n, k = X.shape
        ms_s, _, ms_e = mean_squares(X)
        F = ms_s / ms_e if ms_e > 0 else np.inf  # without differences the span is 0
        significant = fdtrc(k - 1, (k - 1) * (n - 1), F) < self.alpha
        means = X.mean(axis=0)
        span = means.max() - means.min() + rounding(means)  # 0.35 - 0.3 is 0.05
        return float(significant and span >= self.delta)

    def estimate_of_matrix(self, matrix: ScoreMatrix, n: FloatArray) -> FloatArray:
        """Return the power of the test with n' topics."""
        self.check_topics(n)
        return self.power(TwoWay.from_scores(matrix).residual, matrix.n_systems, n)

    @staticmethod
    def check_topics(n_topics: FloatArray) -> None:
        """Refuse numbers of topics without degrees of freedom for error.

        Parameters
        ----------
        n_topics : numbers of topics

        Raises
        ------
        PlanError
            If one is not more than one.
        """
        few = n_topics[n_topics <= 1]
        if few.size:
            raise PlanError(f"the F test needs more than one topic, not {few[0]:g}")

    def power(self, residual: float, n_systems: int, n_topics: FloatArray) -> FloatArray:
        """Return the power of the test, unchecked.

        Parameters
        ----------
        residual : variance σ²(st) of the scores of a system about its own and the topics' means
        n_systems : number of systems
        n_topics : (m,) numbers of topics, each of them more than one
        """
        if residual == 0:
            return np.ones(n_topics.size)
        f = _EFFECT_SIZES[self.dispersion](self.delta / sqrt(residual), n_systems)
        return _power(f, n_topics, n_systems, self.alpha, one_way=self.df == "one-way")


def _minimum(d: float, k: int) -> float:
    return d * sqrt(1 / (2 * k))


def _intermediate(d: float, k: int) -> float:
    return d / 2 * sqrt((k + 1) / (3 * (k - 1)))


def _maximum(d: float, k: int) -> float:
    return d / 2 if k % 2 == 0 else d * sqrt(k**2 - 1) / (2 * k)


_EFFECT_SIZES = {"minimum": _minimum, "intermediate": _intermediate, "maximum": _maximum}


def _power(f: float, n: FloatArray, k: int, alpha: float, *, one_way: bool) -> FloatArray:
    from scipy.stats import f as central
    from scipy.stats import ncf

    u, v = k - 1, (k if one_way else k - 1) * (n - 1)
    noncentrality = np.minimum(k * n * f**2, _CERTAIN)
    return ncf.sf(central.isf(alpha, u, v), u, v, noncentrality)
