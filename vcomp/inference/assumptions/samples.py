"""Samples of effects and residuals: shape, outliers, and tests against draws of the null."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import PlanError

Assumption: TypeAlias = Literal[
    "normality",
    "outliers",
    "equal variances",
    "uncorrelated",
    "uncorrelated effects",
    "additivity",
    "equal slopes",
    "nonnegative variance",
]

_DRAWN = 20_000_000
"""Numbers that are drawn for the null distribution of a test, unless `n` is given."""

_MOST, _LEAST = 999, 99
_EVERY = 20
"""With n + 1 a multiple of this, a Monte Carlo test at .05 has exactly this level."""

_BLOCK = 2**21
"""Numbers in a block of draws."""


@dataclass(frozen=True, slots=True)
class AssumptionTest:
    """A test of one assumption.

    Attributes
    ----------
    assumption : which one
    of : the effects, residuals or levels that it is about
    statistic : its value
    p_value : of the test
    effect : how large the deviation is; 0 if the assumption holds
    effect_name : what the effect is
    test : how the p-value is found
    """

    assumption: Assumption
    of: str
    statistic: float
    p_value: float
    effect: float
    effect_name: str
    test: str


def n_draws(size: int, n: int | None = None) -> int:
    """Return how many draws of the null a test has.

    Parameters
    ----------
    size : numbers in one draw
    n : the requested number, or None for 99 to 999 by size

    Raises
    ------
    PlanError
        If `n` is not a whole number from 19 on.

    Examples
    --------
    >>> n_draws(2_000), n_draws(100_000), n_draws(10**7)
    (999, 199, 99)
    """
    if n is not None:
        if not isinstance(n, int | np.integer) or n < _EVERY - 1:
            raise PlanError(f"n is a whole number from {_EVERY - 1} on, not {n!r}")
        return int(n)
    affordable = min(_MOST, max(_LEAST, _DRAWN // max(size, 1)))
    return int((affordable + 1) // _EVERY * _EVERY - 1)


def blocks(size: int, n: int) -> list[int]:
    """Return the sizes of blocks of draws that fit into little memory.

    Parameters
    ----------
    size : numbers in one draw
    n : number of draws
    """
    at_once = max(1, _BLOCK // max(size, 1))
    return [min(at_once, n - first) for first in range(0, n, at_once)]


def p_of(observed: float, drawn: FloatArray) -> float:
    """Return the share of draws, and the observed one, that are at least as large.

    If no draw is, the tail is that of a normal distribution of the logarithms of the draws, so
    that p-values can still be adjusted for many tests.

    Parameters
    ----------
    observed : statistic, positive
    drawn : (n,) statistics under the null
    """
    from scipy.special import ndtr

    as_large = np.count_nonzero(drawn >= observed)
    share = (1.0 + as_large) / (drawn.size + 1.0)
    if as_large or not (drawn > 0.0).all():
        return float(share)
    logs = np.log(drawn)
    z = (np.log(observed) - logs.mean()) / max(float(logs.std(ddof=1)), 1e-300)
    return float(min(share, ndtr(-z)))


def skewness(x: FloatArray) -> float:
    """Return the skewness of a sample, mean of cubes over the cube of the standard deviation.

    Parameters
    ----------
    x : (n,) sample

    Examples
    --------
    >>> skewness(np.array([0.0, 0.0, 0.0, 1.0])).__round__(4)
    1.1547
    """
    d = x - x.mean()
    scale = float(np.sqrt(np.mean(d * d)))
    return float(np.mean((d / scale) ** 3)) if scale > 0.0 else float("nan")


def excess_kurtosis(x: FloatArray) -> float:
    """Return the excess kurtosis of a sample; 0 of a normal distribution.

    Parameters
    ----------
    x : (n,) sample

    Examples
    --------
    >>> excess_kurtosis(np.array([-1.0, 1.0, -1.0, 1.0]))
    -2.0
    """
    d = x - x.mean()
    scale = float(np.sqrt(np.mean(d * d)))
    return float(np.mean((d / scale) ** 4)) - 3.0 if scale > 0.0 else float("nan")


def normal_quantiles(n: int) -> FloatArray:
    """Return Blom's approximation of the expected order statistics of n normals."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(1.0, n + 1.0) - 0.375) / (n + 0.25)))


def sorted_columns(samples: FloatArray) -> FloatArray:
    """Return each column in ascending order: faster if the values of one are adjacent.

    Parameters
    ----------
    samples : (n, m)
    """
    return np.asarray(np.sort(np.ascontiguousarray(samples.T), axis=1).T)


def straightness(ordered: FloatArray) -> FloatArray:
    """Return 1 - r² of the normal probability plot (Shapiro and Francia) of each column.

    Parameters
    ----------
    ordered : (n, m) samples, each sorted
    """
    m = normal_quantiles(len(ordered))
    d = ordered - ordered.mean(axis=0)
    r = (m @ d) ** 2 / ((m @ m) * np.maximum((d * d).sum(axis=0), 1e-300))
    return np.asarray(1.0 - r)


def deviates(samples: FloatArray) -> FloatArray:
    """Return the largest absolute deviation from the mean, in standard deviations, by column.

    Parameters
    ----------
    samples : (n, m)
    """
    d = samples - samples.mean(axis=0)
    sd = np.sqrt((d * d).sum(axis=0) / (len(d) - 1))
    return np.asarray(np.abs(d).max(axis=0) / np.maximum(sd, 1e-300))


_ENVELOPE = (0.025, 0.975)
"""Quantiles of the draws at each place of a probability plot, the ends of its envelope."""

_MOST_PLACES = 2_000
"""Largest number of places of an envelope."""


def spaced_places(size: int) -> LongArray:
    """Return places among ordered values: all, or those of the ends and some in the middle.

    Parameters
    ----------
    size : number of values

    Examples
    --------
    >>> spaced_places(4).tolist(), spaced_places(10**6).size
    ([0, 1, 2, 3], 2000)
    """
    if size <= _MOST_PLACES:
        return np.arange(size)
    end = _MOST_PLACES // 4
    middle = np.linspace(end, size - end - 1, _MOST_PLACES // 2).astype(np.int64)
    return np.concatenate([np.arange(end), middle, np.arange(size - end, size)])


@dataclass(frozen=True, slots=True, eq=False)
class EffectSample:
    """Effects of a term or residuals, in units of their standard deviation under the model.

    Attributes
    ----------
    name : of the term, or "residuals"
    values : (n,)
    known : share of the variance of the effects that their predictions have, σ² less the
        variance of the prediction error, over σ²; 1 of residuals
    outliers : what is outlying, with its deviation from the mean in standard deviations, the
        largest first
    places : of the outliers among the values
    envelope : (3, k) normal quantiles, and the ends of 95 % of the draws there; None without draws
    """

    name: str
    values: FloatArray
    known: float = 1.0
    outliers: tuple[tuple[str, float], ...] = ()
    places: tuple[int, ...] = ()
    envelope: FloatArray | None = None

    @property
    def deviates(self) -> FloatArray:
        """(n,) deviations from the mean in standard deviations."""
        d = self.values - self.values.mean()
        return np.asarray(d / d.std(ddof=1))

    @property
    def inflation(self) -> float:
        """How many times as large the variance is with the outliers."""
        n, m = self.values.size - 1, len(self.outliers)
        rest = n - sum(z * z for _, z in self.outliers)
        return max((n - m) / rest, 1.0) if rest > 0.0 and n > m else np.inf

    def with_outliers(self, critical: float, label: Callable[[int], str]) -> EffectSample:
        """Return the sample with its outliers.

        Parameters
        ----------
        critical : a larger absolute deviate is an outlier
        label : returns the name of a value by its number
        """
        z = self.deviates
        beyond = np.flatnonzero(np.abs(z) > critical)
        order = beyond[np.argsort(-np.abs(z[beyond]), kind="stable")].tolist()
        outliers = tuple((label(k), float(z[k])) for k in order)
        return replace(self, outliers=outliers, places=tuple(order))


@dataclass(frozen=True, slots=True, eq=False)
class ShapeNull:
    """Statistics of shape in draws of normal effects.

    Attributes
    ----------
    straightness, deviates : (n,) statistics of the draws
    envelope : of the ordered draws, as of :class:`EffectSample`
    """

    straightness: FloatArray
    deviates: FloatArray
    envelope: FloatArray | None = None

    @classmethod
    def of(cls, draw: Callable[[int], FloatArray], size: int, cost: int, n: int) -> ShapeNull:
        """Return the statistics of drawn samples.

        Parameters
        ----------
        draw : returns some samples, one in each column
        size : of a sample
        cost : numbers in memory for a sample
        n : number of samples
        """
        places, parts = spaced_places(size), []
        for m in blocks(cost, n):
            ordered = sorted_columns(draw(m))
            z = ordered[places] - ordered.mean(axis=0)
            z /= np.maximum(ordered.std(axis=0, ddof=1), 1e-300)
            parts.append((straightness(ordered), deviates(ordered), z.T))
        straight, farthest, z = (np.concatenate(column) for column in zip(*parts, strict=True))
        ends = np.quantile(z, _ENVELOPE, axis=0)
        return cls(straight, farthest, np.vstack([normal_quantiles(size)[places], ends]))

    def tests(self, sample: EffectSample, how: str) -> list[AssumptionTest]:
        """Return the tests of normality and of outliers.

        Parameters
        ----------
        sample : the observed effects
        how : how the null was drawn, in words
        """
        x = sample.values
        observed = float(straightness(np.sort(x)[:, None])[0])
        farthest = float(deviates(x[:, None])[0])
        return [
            AssumptionTest(
                "normality", sample.name, observed, p_of(observed, self.straightness),
                excess_kurtosis(x), "excess kurtosis", f"probability plot, {how}",
            ),
            AssumptionTest(
                "outliers", sample.name, farthest, p_of(farthest, self.deviates),
                float(len(sample.outliers)), "number of outliers", f"largest deviate, {how}",
            ),
        ]  # fmt: skip

    def critical(self, alpha: float) -> float:
        """Return the deviate that a share alpha of the draws exceeds."""
        return float(np.quantile(self.deviates, 1.0 - alpha))


def independent_null(size: int, n: int, rng: np.random.Generator) -> ShapeNull:
    """Return the statistics of independent normals.

    Predicted effects in units of their own standard deviation are normal and correlated. A
    correlation ρ changes the variance of skewness and kurtosis by ρ³ and ρ⁴, so that the
    correlations of predictions do not matter.

    Parameters
    ----------
    size : of a sample
    n : number of samples
    rng : random numbers
    """
    return ShapeNull.of(lambda m: rng.standard_normal((m, size)).T, size, size, n)
