"""Draws of effects from any distribution, correlated or not; bounded and graded scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from vcomp._typing import FloatArray, IntArray
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.ir.simulate.copula import correlation_factor
from vcomp.ir.simulate.margin import GRID, Margin
from vcomp.ir.simulate.margin_families import kernel_margin
from vcomp.numerics import stream

_FEWEST = 5
"""Smallest number of observed effects for a kernel estimate."""

_SYMMETRIC = 1e-8
_UNIVERSE = 200_000
"""Number of simulated sums of effects that determine the cuts of grades."""


@dataclass(frozen=True, slots=True, eq=False)
class EffectMargin:
    """Quantiles of a distribution with mean 0 and variance 1, at Φ of :data:`GRID`.

    Attributes
    ----------
    quantiles : (1025,), or None of the normal distribution
    """

    quantiles: FloatArray | None

    def at(self, z: FloatArray) -> FloatArray:
        """Return the effects at normal quantiles `z`."""
        return z if self.quantiles is None else np.asarray(np.interp(z, GRID, self.quantiles))


NORMAL = EffectMargin(None)


def effect_margins(
    margins: Mapping[str, Margin | ArrayLike] | None, names: tuple[str, ...]
) -> dict[str, EffectMargin]:
    """Return the distribution of the effects of every component.

    Parameters
    ----------
    margins : component → a margin, or observed effects, of which a kernel estimate is made
    names : of all components

    Raises
    ------
    PlanError
        If a component is unknown, or its margin is not a distribution with a variance.
    """
    distributions = dict.fromkeys(names, NORMAL)
    for name, given in (margins or {}).items():
        if name not in distributions:
            raise PlanError(
                f"margins= names no component {name!r}{did_you_mean(name, names)}; there are "
                f"{', '.join(names)}",
                term=name,
            )
        distributions[name] = _standardised(name, given)
    return distributions


def _standardised(name: str, given: Margin | ArrayLike) -> EffectMargin:
    if isinstance(given, Margin):
        margin = given
    else:
        try:
            effects = np.asarray(given, dtype=float)
        except (TypeError, ValueError):
            effects = np.zeros(0)
        enough = effects.ndim == 1 and effects.size >= _FEWEST and np.isfinite(effects).all()
        if not enough or np.ptp(effects) == 0.0:
            raise PlanError(
                f"the margin of {name!r} is a vcomp.simulate.Margin or {_FEWEST} or more observed "
                "effects that differ"
            )
        # Effects are clipped to the observed range, as they may be bounded.
        margin = kernel_margin(effects, float(effects.min()), float(effects.max()))
    sd = float(np.sqrt(margin.variance))
    if sd <= 0.0:
        raise PlanError(f"the margin of {name!r} has no variance")
    values = margin.quantile(_PHI) if margin.is_discrete else margin.quantiles
    return EffectMargin((values - margin.mean) / sd)


_PHI: FloatArray = ndtr(GRID)


def level_factors(
    correlations: Mapping[str, ArrayLike] | None, sizes: Mapping[str, int]
) -> dict[str, FloatArray]:
    """Return the Cholesky factor of the correlations of each facet's levels.

    Parameters
    ----------
    correlations : facet → (k, k) matrix, or one number for all pairs
    sizes : number of levels of each facet that is not nested

    Raises
    ------
    PlanError
        If a facet is unknown or nested, or its matrix is not a correlation matrix of its levels.
    """
    factors = {}
    for facet, given in (correlations or {}).items():
        if facet not in sizes:
            raise PlanError(
                f"correlations= names {facet!r}{did_you_mean(facet, sizes)}; the facets whose "
                f"levels may be correlated are {', '.join(sizes)}"
            )
        k = sizes[facet]
        R = np.asarray(given, dtype=float)
        if R.ndim == 0:
            R = np.full((k, k), float(R)) + (1.0 - float(R)) * np.eye(k)
        valid = R.shape == (k, k) and bool(np.isfinite(R).all())
        valid = valid and bool(np.abs(R - R.T).max() <= _SYMMETRIC)
        valid = valid and bool(np.abs(np.diag(R) - 1.0).max() <= _SYMMETRIC)
        if not valid or float(np.linalg.eigvalsh(R)[0]) < -_SYMMETRIC:
            raise PlanError(
                f"correlations of {facet!r} are one number, or a positive semidefinite {k} × {k} "
                "matrix with ones in its diagonal"
            )
        factors[facet] = correlation_factor(R)
    return factors


def correlated(
    groups: IntArray,
    count: int,
    levels: IntArray,
    rest: IntArray,
    factor: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """Return a normal for each group, correlated between the levels of a facet.

    Parameters
    ----------
    groups : (n,) group of each row
    count : number of groups
    levels : (n,) level of the facet in each row
    rest : (n,) combination of the levels of the other facets of the component, from 0
    factor : of the correlations of the levels
    rng : random numbers
    """
    z = rng.standard_normal((int(rest.max()) + 1, len(factor))) @ factor.T
    effects = np.empty(count)
    effects[groups] = z[rest, levels]
    return effects


def bounded(latent: FloatArray, mean: float, bounds: tuple[float, float]) -> FloatArray:
    """Return scores between bounds: a logistic function of the sum of effects.

    Its slope at the mean is 1, so that small effects keep their size.

    Parameters
    ----------
    latent : (n,) sums of effects
    mean : score at a sum of 0, between the bounds
    bounds : lowest and highest score
    """
    from scipy.special import expit, logit

    low, high = bounds
    share = (mean - low) / (high - low)
    slope = 1.0 / ((high - low) * share * (1.0 - share))
    share_of_range = slope * latent
    share_of_range += logit(share)
    expit(share_of_range, out=share_of_range)
    share_of_range *= high - low
    share_of_range += low
    return np.asarray(share_of_range)


def graded(
    latent: FloatArray,
    grades: FloatArray,
    margins: Mapping[str, EffectMargin],
    sds: Mapping[str, float],
    seed: int,
) -> FloatArray:
    """Return grades 0, 1, …: the number of cuts below the sum of effects.

    The cuts are quantiles of the sum over the whole universe, so that the shares of a data set
    vary as its effects do.

    Parameters
    ----------
    latent : (n,) sums of effects
    grades : (m,) shares of the grades 0, 1, … in the universe
    margins, sds : distribution and standard deviation of every component
    seed : of the sums from which cuts are found
    """
    rng = stream(seed, 10_000)
    total = np.zeros(_UNIVERSE)
    for name, margin in margins.items():
        total += sds[name] * margin.at(rng.standard_normal(_UNIVERSE))
    cuts = np.quantile(total, np.cumsum(grades)[:-1])
    return np.searchsorted(cuts, latent, side="left").astype(float)


def check_scale(mean: float, bounds: Any, grades: Any) -> tuple[Any, Any]:
    """Check bounds and shares of grades; return each, or None if not given.

    Raises
    ------
    PlanError
        If both are given, or they are not allowed.
    """
    if bounds is not None and grades is not None:
        raise PlanError("bounds= and grades= are two scales of scores; give one of them")
    if grades is not None:
        shares = np.asarray(grades, dtype=float)
        ok = shares.ndim == 1 and shares.size >= 2 and bool((shares > 0.0).all())
        if not ok or abs(float(shares.sum()) - 1.0) > _SYMMETRIC:
            raise PlanError(
                f"grades= are the shares of the grades 0, 1, …: two or more positive numbers "
                f"that add up to 1, not {grades!r}"
            )
        return None, shares
    if bounds is not None:
        pair = np.asarray(bounds, dtype=float)
        if pair.shape != (2,) or not np.isfinite(pair).all() or not pair[0] < mean < pair[1]:
            raise PlanError(
                f"bounds= are the lowest and the highest score, with the mean {mean!r} between "
                f"them, not {bounds!r}"
            )
        return (float(pair[0]), float(pair[1])), None
    return None, None
