"""Margins: distributions of a system's scores, of its residuals, or of topic effects."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError

LOW = -6.0
"""Margins are tabulated at Φ(z) for z from LOW to -LOW; the normal tails hold 2e-9."""

_POINTS = 1025

GRID: FloatArray = np.linspace(LOW, -LOW, _POINTS)
"""Normal quantiles z of the table of a margin."""

PER_UNIT = (_POINTS - 1) / (-2.0 * LOW)
"""Steps of the table in one standard deviation."""

_NO_VALUES: FloatArray = np.zeros(0)
_MOST_LOG_SHAPE = 7.0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Margin:
    """A distribution that simulated values follow.

    Attributes
    ----------
    name : of the family, such as ``"beta"``
    quantiles : (1025,) of a continuous distribution, at Φ of normals from -6 to 6; linear
        between them. Empty if the distribution is discrete
    support : (m,) possible values of a discrete distribution, in ascending order; else empty
    cumulative : (m,) probability of at most each of these
    parameters : by name, for display
    log_likelihood : of the sample that it was fitted to; nan if it was not computed
    df : number of parameters; of a kernel estimate the effective one

    Examples
    --------
    >>> continuous("standard normal", GRID)
    Margin('standard normal', mean=0, sd=1)
    """

    name: str
    quantiles: FloatArray
    support: FloatArray
    cumulative: FloatArray
    parameters: dict[str, float]
    log_likelihood: float = float("nan")
    df: float = float("nan")

    def __repr__(self) -> str:
        from vcomp import display

        mean, sd = display.number(round(self.mean, 12) + 0.0), display.number(self.variance**0.5)
        return f"Margin({self.name!r}, mean={mean}, sd={sd})"

    @property
    def is_discrete(self) -> bool:
        """Whether the distribution is discrete."""
        return self.support.size > 0

    @property
    def mean(self) -> float:
        """Expected value."""
        values, weights = self._weighted()
        return float(weights @ values)

    @property
    def variance(self) -> float:
        """Variance."""
        values, weights = self._weighted()
        return float(weights @ (values - weights @ values) ** 2)

    @property
    def aic(self) -> float:
        """Akaike's information criterion; smaller is better."""
        return 2.0 * self.df - 2.0 * self.log_likelihood

    @property
    def limits(self) -> FloatArray:
        """(m - 1,) normal quantiles of the cumulative probabilities, without the last."""
        from scipy.special import ndtri

        return np.asarray(ndtri(np.minimum(self.cumulative[:-1], 1.0)))

    def quantile(self, p: FloatArray | float) -> FloatArray:
        """Return the quantiles at probabilities between 0 and 1.

        Parameters
        ----------
        p : probabilities, one or several

        Examples
        --------
        >>> continuous("uniform", np.linspace(0.0, 1.0, GRID.size)).quantile([0.0, 0.5, 1.0])
        array([0. , 0.5, 1. ])
        """
        from scipy.special import ndtri

        z = ndtri(np.asarray(p, dtype=float))
        if self.is_discrete:
            return np.asarray(self.support[np.searchsorted(self.limits, z)])
        return np.asarray(np.interp(z, GRID, self.quantiles))

    def with_mean(self, mean: float) -> Margin:
        """Return the margin transformed to another expected value, as simIReff does.

        A distribution function F becomes I(F; a, b), that of a Beta distribution with one of a and
        b equal to 1 and the other at least 1 (section 16.2 of the mathematics).

        Parameters
        ----------
        mean : the expected value

        Raises
        ------
        EstimationError
            If no distribution on these values has that mean.
        """
        from scipy.optimize import brentq

        values = self.support if self.is_discrete else self.quantiles
        now = self.mean
        if abs(mean - now) <= 1e-12 * float(np.abs(values).max()):
            return self
        upward = mean > now

        def short(log_shape: float) -> float:
            found = _transformed(self, float(np.exp(log_shape)), upward).mean
            return mean - found if upward else found - mean

        if not short(_MOST_LOG_SHAPE) < 0.0:
            raise EstimationError(
                f"a margin {self.name!r} from {values[0]:g} to {values[-1]:g} cannot have the "
                f"mean {mean:g}"
            )
        found = float(brentq(short, 0.0, _MOST_LOG_SHAPE, xtol=1e-15, rtol=1e-15))
        return _transformed(self, float(np.exp(found)), upward)

    def _weighted(self) -> tuple[FloatArray, FloatArray]:
        if self.is_discrete:
            return self.support, np.diff(self.cumulative, prepend=0.0)
        return self.quantiles, normal_weights(GRID)


def normal_weights(z: FloatArray) -> FloatArray:
    """Return quadrature weights over equally spaced z for normal expectations."""
    weights = np.exp(-0.5 * z * z)
    return np.asarray(weights / weights.sum())


def continuous(
    name: str,
    quantiles: FloatArray,
    parameters: dict[str, float] | None = None,
    log_likelihood: float = float("nan"),
    df: float = float("nan"),
) -> Margin:
    """Return a margin tabulated at Φ of :data:`GRID`."""
    return Margin(name, quantiles, _NO_VALUES, _NO_VALUES, parameters or {}, log_likelihood, df)


def discrete(
    name: str,
    support: FloatArray,
    probabilities: FloatArray,
    parameters: dict[str, float],
    log_likelihood: float,
    df: float,
) -> Margin:
    """Return a margin on the values of `support`; probabilities are scaled to add up to one."""
    cumulative = np.cumsum(probabilities)
    cumulative /= cumulative[-1]
    return Margin(name, _NO_VALUES, support, cumulative, parameters, log_likelihood, df)


def with_nonnormality(margin: Margin, times: float) -> Margin:
    """Return a continuous margin whose deviation from a normal one is scaled.

    The quantiles are those of the normal distribution with the same mean and variance, plus
    `times` the difference of the margin's from them, shifted and scaled to this mean and variance
    again. Beyond 1 such a sum may fall where quantiles rise: then the values are sorted, which
    leaves their distribution as it is.

    Parameters
    ----------
    margin : continuous
    times : 0 for a normal margin, 1 for `margin`

    Examples
    --------
    >>> skewed = continuous("exponential", np.exp(GRID))
    >>> with_nonnormality(skewed, 0.0)
    Margin('exponential', mean=1.649, sd=2.161)
    """
    if times == 1.0:
        return margin
    mean, sd = margin.mean, margin.variance**0.5
    normal = mean + sd * GRID
    values, weights = normal + times * (margin.quantiles - normal), normal_weights(GRID)
    if (np.diff(values) < 0.0).any():
        from scipy.special import ndtri

        order = np.argsort(values, kind="stable")
        below = np.cumsum(weights[order]) - 0.5 * weights[order]
        values = np.interp(GRID, ndtri(below), values[order])
    centre = weights @ values
    values = mean + (values - centre) * (sd / np.sqrt(weights @ (values - centre) ** 2))
    return replace(margin, quantiles=values)


def _transformed(margin: Margin, shape: float, upward: bool) -> Margin:
    """Return the margin with distribution F^a, or 1 - (1 - F)^b."""
    from scipy.special import log_ndtr, ndtri_exp

    if margin.is_discrete:
        F = margin.cumulative
        cumulative = F**shape if upward else 1.0 - (1.0 - F) ** shape
        return replace(margin, cumulative=cumulative)
    z = ndtri_exp(log_ndtr(GRID) / shape) if upward else -ndtri_exp(log_ndtr(-GRID) / shape)
    return replace(margin, quantiles=np.interp(z, GRID, margin.quantiles))
