"""Likelihood ratio tests of one component: by the limiting mixture, and simulated.

Under σ²_t = 0 the parameter is at its bound, and in large samples the statistic 2(ℓ₁ − ℓ₀) is a
½ : ½ mixture of 0 and χ²₁ (docs/explanation/mathematics.md, eq. (11.2); Self & Liang 1987; Stram &
Lee 1994). With few levels, or further components at their bound, this can be far off; the
finite-sample distribution is simulated at the fit without the component (Crainiceanu & Ruppert
2004; Scheipl, Greven & Küchenhoff 2008). Restricted likelihoods can be used, as both models have
the same X.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators import Estimate, get_estimator
from vcomp.estimators.likelihood import loglike_margin
from vcomp.exceptions import EstimationError
from vcomp.inference.hypotheses.model_comparison import likelihood_ratio
from vcomp.inference.resampling import Recipe, drawn_refits
from vcomp.numerics import check_count
from vcomp.statistics import Statistics

_TIE = 1e-8
"""Difference below which drawn likelihood ratios are equal: their climbs end a little earlier."""


@dataclass(frozen=True, slots=True)
class NullFit:
    """A fit without one component, compared with the fit that estimates it.

    Attributes
    ----------
    statistic : 2(ℓ₁ − ℓ₀), not below 0
    estimate : without the component, which is held at 0
    at_bound : other components at their bound in either fit
    error : Monte Carlo standard error of the statistic, if engines have random probes
    """

    statistic: float
    estimate: Estimate
    at_bound: tuple[str, ...]
    error: float


@dataclass(frozen=True, slots=True)
class Simulated:
    """A p-value by simulation.

    Attributes
    ----------
    p_value : (1 + number of ratios as large or larger)/(n + 1)
    p_error : its Monte Carlo standard error
    share_zero : fraction of the ratios that are 0
    n : number of data sets whose fits converged
    """

    p_value: float
    p_error: float
    share_zero: float
    n: int


def null_fit(stats: Statistics, whole: Estimate, term: str) -> NullFit:
    """Return the fit with a component held at 0, and other held components at their values.

    Parameters
    ----------
    stats : sums of the rows
    whole : fit by REML or ML
    term : name of a component that is not held

    Raises
    ------
    EstimationError
        If either fit did not converge.
    """
    places = {name: float(v) for name, v in zip(whole.names, whole.values, strict=True)}
    hold = {name: places[name] for name in whole.held} | {term: 0.0}
    null = get_estimator(whole.method, hold=hold).estimate(stats, whole.names)
    for fitted, what in ((whole, "with"), (null, "without")):
        if not fitted.converged:
            raise EstimationError(
                f"the fit {what} {term!r} did not converge, and a likelihood ratio compares "
                f"maxima: {fitted.status}"
            )
    zero = {
        name
        for fitted in (whole, null)
        for name, value in zip(fitted.names, fitted.values, strict=True)
        if value == 0.0 and name not in hold
    }
    return NullFit(
        statistic=(
            max(0.0, likelihood_ratio(whole, null, stats.n)) if places[term] > 0.0 else 0.0
        ),
        estimate=null,
        at_bound=tuple(name for name in whole.names if name in zero),
        error=2.0 * float(np.hypot(whole.llf_error, null.llf_error)),
    )


def mixture_p(statistic: float) -> float:
    """Return the upper tail of ½χ²₀ + ½χ²₁, eq. (11.2); 1 at 0."""
    from scipy.special import chdtrc

    return 1.0 if statistic <= 0.0 else float(0.5 * chdtrc(1.0, statistic))


def simulated_p(
    stats: Statistics,
    null: NullFit,
    term: str,
    n: int,
    *,
    rng: int | np.random.Generator | None,
    workers: int,
) -> Simulated:
    """Return the p-value among `n` data sets drawn at the null fit.

    Parameters
    ----------
    stats : sums of the rows
    null : the fit without the component
    term : its name
    n : number of data sets
    rng, workers : as for the parametric bootstrap

    Raises
    ------
    EstimationError
        If fewer than half of the drawn data sets could be fitted.
    """
    fitted = null.estimate
    values = dict(zip(fitted.names, fitted.values, strict=True))
    held = {name: float(values[name]) for name in fitted.held if name != term}
    drawn = likelihoods_under(
        stats,
        fitted.names,
        fitted.values,
        [held, held | {term: 0.0}],
        n,
        rng=rng,
        reml=fitted.method == "reml",
        workers=workers,
    )
    tie = max(_TIE, 4.0 * loglike_margin(fitted.llf, stats.n))
    return simulated_tail(null.statistic, 2.0 * (drawn[:, 0] - drawn[:, 1]), tie)


def likelihoods_under(
    stats: Statistics,
    names: tuple[str, ...],
    v0: FloatArray,
    holds: Sequence[Mapping[str, float]],
    n: int,
    *,
    rng: int | np.random.Generator | None = None,
    reml: bool = True,
    workers: int = 1,
) -> FloatArray:
    """Return maximised log-likelihoods of drawn data under several sets of held components.

    Fixed effects are profiled out and need not be given. Each maximum is that of one climb from
    `v0`: in a null distribution a lower one now and then counts for little.

    Parameters
    ----------
    stats : of the data
    names : of the components, the residual last
    v0 : (k + 1,) components at which data are drawn, not negative, the residual positive;
        iterations start there
    holds : for each model its held components: ``{}`` for none, ``{"topic": 0.0}``
    n : number of data sets
    rng : as for the parametric bootstrap; the numbers are those of its replicates
    reml : restricted likelihoods, or full ones
    workers : number of threads, which changes the numbers by rounding at most: many
        small data sets, or alike ones, are fitted together

    Returns
    -------
    (n, number of sets); nan if an iteration did not converge

    Raises
    ------
    EstimationError
        If a component is not known, or a number is invalid.
    """
    n, workers = check_count(n, "n"), check_count(workers, "workers")
    v0 = np.asarray(v0, dtype=float)
    if v0.shape != (len(names),) or not (v0 >= 0.0).all() or not v0[-1] > 0.0:
        raise EstimationError(
            f"v0 must have {len(names)} non-negative components, the residual positive; it is "
            f"{v0!r}"
        )
    method = "reml" if reml else "ml"
    recipes = [Recipe(get_estimator(method, hold=dict(hold)), names, once=True) for hold in holds]
    if not recipes:
        return np.zeros((n, 0))
    drawn = drawn_refits(stats, recipes, v0, n, rng=rng, workers=workers, progress=False)
    return np.array([[f.llf if f.converged else np.nan for f in fits] for fits in drawn])


def simulated_tail(statistic: float, drawn: FloatArray, tie: float = _TIE) -> Simulated:
    """Return the p-value of a statistic among drawn ones; failed ones (nan) are left out.

    Ratios are equal up to a difference of `tie`.

    Raises
    ------
    EstimationError
        If fewer than half of them are numbers.
    """
    ratios = np.maximum(drawn[np.isfinite(drawn)], 0.0)
    if 2 * ratios.size < max(drawn.size, 1):
        raise EstimationError(
            f"only {ratios.size} of {drawn.size} drawn data sets could be fitted; use "
            "test='lrt', or leave out a term with almost no variance"
        )
    larger = int(np.sum(ratios >= statistic - tie))
    p = (1.0 + larger) / (ratios.size + 1.0)
    return Simulated(
        p_value=p,
        p_error=float(np.sqrt(p * (1.0 - p) / ratios.size)),
        share_zero=float(np.mean(ratios <= tie)),
        n=int(ratios.size),
    )
