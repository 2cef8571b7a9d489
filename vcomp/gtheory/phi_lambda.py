"""Φ(λ): how dependable decisions by a cut score are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.codec import stored
from vcomp.exceptions import PlanError, is_real
from vcomp.gtheory.plan import DStudyPlan
from vcomp.gtheory.projection import constant_effects
from vcomp.inference import Quantities, Smooth, VarianceComponents
from vcomp.inference.intervals import Combined, FromComponents, IntervalSource, Limits


@dataclass(frozen=True, slots=True, eq=False)
class MeanOfScores:
    """Fixed effects with their covariance, and whether they are one mean of all scores.

    Attributes
    ----------
    beta : (p,) fixed effects
    cov_beta : (p, p) their covariance
    is_mean : whether they are the mean of the scores and nothing else
    """

    beta: FloatArray
    cov_beta: FloatArray = field(metadata=stored(shape=("beta", "beta")))
    is_mean: bool


NO_MEAN = MeanOfScores(np.zeros(0), np.zeros((0, 0)), is_mean=False)
"""Placeholder for an unknown mean."""


def phi_lambda(
    universe: FloatArray, absolute: FloatArray, mean: MeanOfScores, cut: float
) -> Smooth:
    """Return Φ(λ) = (σ²(τ) + (μ − λ)²)/(σ²(τ) + (μ − λ)² + σ²(Δ)) as a function of estimates.

    (μ − λ)² is estimated by (X̄ − λ)² less the variance of X̄, at least 0.

    Parameters
    ----------
    universe, absolute : (k,) weights of the components in σ²(τ) and σ²(Δ)
    mean : of the scores, in the universe of generalization (:func:`mean_in_universe`)
    cut : the cut score λ, on the scale of the scores

    Raises
    ------
    PlanError
        If the model has other fixed effects than a mean, or the mean is not known.

    References
    ----------
    Brennan and Kane (1977), An index of dependability for mastery tests, Journal of Educational
    Measurement 14, 277-289; Brennan (2001), Generalizability Theory, eq. 2.54.
    """
    check_mean(mean)
    u, e, variance = universe, absolute, float(mean.cov_beta[0, 0])

    def parts(v: FloatArray, beta: FloatArray) -> tuple[float, float]:
        away = max((float(beta[0]) - cut) ** 2 - variance, 0.0)
        return float(u @ v) + away, float(e @ v)

    def value(v: FloatArray, beta: FloatArray) -> float:
        signal, error = parts(v, beta)
        return signal / (signal + error) if signal + error > 0.0 else np.nan

    def slopes(v: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        signal, error = parts(v, beta)
        total = (signal + error) ** 2
        away = float(beta[0]) - cut
        moves = 2.0 * away if away**2 > variance else 0.0
        return (error * u - signal * e) / total, np.array([error * moves / total])

    return Smooth(value, slopes, "share", uses_fixed=True)


def mean_in_universe(
    mean: MeanOfScores, components: VarianceComponents, plan: DStudyPlan, row: int = 0
) -> MeanOfScores:
    """Return the mean with its error variance about the mean of the universe.

    Effects of fixed and finite facets only are constant in the universe: its mean has that of all
    N' levels, so that the mean of n levels is in error by 1/n − 1/N' of such a component.

    Parameters
    ----------
    mean : of the scores
    components : of the G-study, which the error variance of `mean` is made of
    plan : of the D-study
    row : number of the plan

    Raises
    ------
    PlanError
        If the model has other fixed effects than a mean, or the mean is not known.

    References
    ----------
    Cornfield and Tukey (1956), Average values of mean squares in factorials, Annals of
    Mathematical Statistics 27, 907-949, for the error of a mean over a finite universe.
    """
    check_mean(mean)
    constant = constant_effects(components, plan)[row]
    sizes = components.sizes
    of_sample = [math.prod(sizes.get(f, 1.0) for f in facets) for facets in components.facets]
    # With fewer levels in the universe than in the G-study, they add no error.
    constant = np.minimum(constant, 1.0 / np.array(of_sample))
    if not constant.any():
        return mean
    error = max(float(mean.cov_beta[0, 0]) - float(constant @ components.values), 0.0)
    return replace(mean, cov_beta=np.array([[error]]))


def source_in_universe(
    source: IntervalSource,
    mean: MeanOfScores,
    components: VarianceComponents,
    plan: DStudyPlan,
    row: int = 0,
) -> IntervalSource:
    """Return the source of intervals in which the mean varies about that of the universe.

    Replicates of a parametric bootstrap draw the effects of all facets anew. In balanced normal
    data their means are normal and independent of the components, so that deviations multiplied by
    the ratio of standard errors have the distribution without effects that are constant.

    Parameters
    ----------
    source : of the intervals
    mean, components, plan, row : as in :func:`mean_in_universe`

    Raises
    ------
    PlanError
        If the mean is not known, or replicates are made of other levels of a facet whose effects
        are constant in the universe.
    """
    inside = mean_in_universe(mean, components, plan, row)
    if isinstance(source, FromComponents):
        return replace(source, beta=inside.beta, cov_beta=inside.cov_beta)
    if isinstance(source, Combined):
        own = source_in_universe(source.source, mean, components, plan, row)
        return replace(source, source=own)
    constant = constant_effects(components, plan)[row] > 0.0
    from vcomp.inference.resampling import FromReplicates, Replicates  # deferred for start-up time

    replicates = source.replicates if isinstance(source, FromReplicates) else source
    if not constant.any() or not isinstance(replicates, Replicates):
        return source
    varied = frozenset(replicates.drawn_facets)
    for facets, is_constant in zip(components.facets, constant, strict=True):
        if is_constant and facets & varied:
            name = min(facets & varied)
            raise PlanError(
                f"the {replicates.kind} replicates are of other levels of {name!r}, which the "
                "plan fixes or takes from a finite universe: Φ(λ) depends on the mean over its "
                "levels. Use res.bootstrap(), or replicates of another facet"
            )
    if varied or not isinstance(source, FromReplicates):
        return source
    ratio = math.sqrt(float(inside.cov_beta[0, 0]) / float(mean.cov_beta[0, 0]))
    beta = mean.beta + ratio * (replicates.beta - mean.beta)
    return replace(source, replicates=replace(replicates, beta=beta))


def not_below_phi(
    found: Limits, made: Smooth, phi: Quantities, of_phi: Limits, local: FromComponents
) -> Limits:
    """Return the interval of Φ(λ): that of Φ where Φ(λ) equals Φ, and never below it.

    Φ(λ) is Φ if λ is within a standard error of the mean. Intervals of Φ are of mean squares,
    those of other Φ(λ) by the delta method, which may be narrower.

    Parameters
    ----------
    found, made : interval of Φ(λ) by the delta method, and Φ(λ) itself
    of_phi, phi : interval of Φ of the same plan, and Φ itself
    local : of the estimates
    """
    value, least = local.values(made)[0], local.values(phi)[0]
    if display.snapped(float(value), float(least)) == least:
        return of_phi
    low, high = np.fmax(found.low, of_phi.low), np.fmax(found.high, of_phi.high)
    return replace(found, low=low, high=high)


def check_mean(mean: MeanOfScores | None) -> MeanOfScores:
    """Return the mean of the scores.

    Raises
    ------
    PlanError
        If the model has other fixed effects than a mean, or the mean is not known.
    """
    if mean is None or not mean.is_mean:
        raise PlanError(
            "Φ(λ) compares the mean of all scores with the cut score: it needs a fit whose fixed "
            "part is one constant and no offset, or published components with mean= and sizes="
        )
    return mean


def read_cuts(cut: Any) -> list[float]:
    """Return one or several cut scores.

    Parameters
    ----------
    cut : a number or several

    Raises
    ------
    PlanError
        If there is none, or one is not a finite number.

    Examples
    --------
    >>> read_cuts([0.2, 0.3])
    [0.2, 0.3]
    """
    several = isinstance(cut, Iterable) and not isinstance(cut, str) and np.ndim(cut) > 0  # type: ignore[arg-type]
    cuts = list(cut) if several else [cut]
    for one in cuts:
        if not is_real(one) or not np.isfinite(float(one)):
            raise PlanError(f"Φ(λ) needs the cut score λ as a finite number, cut=…; not {one!r}")
    if not cuts:
        raise PlanError("there is no cut score λ: cut= is empty")
    return [float(one) for one in cuts]
