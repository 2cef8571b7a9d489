"""Tests of one component: F-tests, and likelihood ratios.

If σ²_t = 0, two mean squares may have the same expectation. Their ratio has an F distribution if
both are multiples of independent χ², which the covariance matrix of the sums of squares decides
for any design (docs/explanation/mathematics.md, eq. (11.1)). For balanced data these are the
classical tests. For unbalanced data the sum of squares of a term without a finer one in the
model, adjusted for all others, depends on this term and the residual only: Wald's (1947) test;
see Seely & El-Bassiouni (1983).

If no single mean square has the expectation, sums of several do (Cochran 1951), with
Satterthwaite's degrees of freedom: approximate, and for balanced data only.

All of these assume normal effects. The robust ratio, eq. (11.9), does not: its degrees of freedom
are estimated from the data.

Under σ²_t = 0 the parameter is at its bound, and in large samples 2(ℓ₁ − ℓ₀) is a ½ : ½ mixture of
0 and χ²₁ (eq. (11.2); Self & Liang 1987; Stram & Lee 1994). With few levels, or further components
at their bound, this can be far off; the finite-sample distribution is simulated at the fit without
the component (Crainiceanu & Ruppert 2004; Scheipl, Greven & Küchenhoff 2008). Restricted
likelihoods can be used, as both models have the same X.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.estimators import Estimate, get_estimator
from vcomp.estimators.likelihood import loglike_margin
from vcomp.estimators.quadratic import AnovaTable, TooLargeError, adjusted_analysis
from vcomp.exceptions import EstimationError
from vcomp.inference.hypotheses.model_comparison import likelihood_ratio
from vcomp.inference.intervals import robust_mean_squares
from vcomp.inference.quantities import VarianceComponents
from vcomp.inference.resampling import Recipe, drawn_refits, with_number
from vcomp.numerics import check_count
from vcomp.statistics import Statistics

_SAME = 1e-9
"""Relative difference below which expectations, or variances, are equal."""

_CORRELATED = 0.1
"""Smallest factor by which correlation reduces the variance of a ratio of mean squares."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of mean squares, or of sums of them, with equal expectations if σ²_t = 0.

    Attributes
    ----------
    statistic : F
    df : of numerator and denominator
    numerator, denominator : the mean squares in words
    exact : whether it has the F distribution under normality
    """

    statistic: float
    df: tuple[float, float]
    numerator: str
    denominator: str
    exact: bool


def exact_ratio(stats: Statistics, names: tuple[str, ...], term: int) -> Ratio | None:
    """Return the exact F-ratio of a term, None if the design has none.

    Parameters
    ----------
    stats : sums of the rows
    names : components, the residual last
    term : position of the term

    Raises
    ------
    EstimationError
        If the analysis of variance would not fit into memory.
    """
    table, covariance = adjusted_analysis(stats, names)
    if not _usable(table, term):
        return None
    for other in _same_expectation(table, term):
        if _is_exact(table, covariance, term, other):
            return _ratio(table, term, other)
    return None


def ratio_of_table(table: AnovaTable, term: int) -> Ratio | None:
    """Return the exact F-ratio of a term in an analysis of variance of balanced data."""
    if not _usable(table, term):
        return None
    return next((_ratio(table, term, u) for u in _same_expectation(table, term)), None)


def synthesised_ratio(table: AnovaTable, term: int) -> Ratio | None:
    """Return an approximate F-ratio of sums of mean squares of balanced data (Cochran 1951).

    The combination of the other mean squares that has the expectation is unique; those with
    negative coefficients are added to the numerator, so that neither side can be negative.
    None if there is no such combination.
    """
    if not _usable(table, term) or (table.df <= 0).any():
        return None
    rest = np.delete(np.arange(table.df.size), term)
    try:
        weights = np.linalg.solve(table.expected[np.ix_(rest, rest)].T, table.expected[term, rest])
    except np.linalg.LinAlgError:
        return None
    weights[np.abs(weights) < _SAME * np.abs(weights).max()] = 0.0
    mean_squares = table.sum_sq / table.df
    above = np.zeros(table.df.size)
    below = np.zeros(table.df.size)
    above[term] = 1.0
    above[rest[weights < 0.0]] = -weights[weights < 0.0]
    below[rest[weights > 0.0]] = weights[weights > 0.0]
    numerator, denominator = float(above @ mean_squares), float(below @ mean_squares)
    if not denominator > 0.0:
        return None
    df = tuple(
        float((w @ mean_squares) ** 2 / np.sum((w * mean_squares) ** 2 / table.df))
        for w in (above, below)
    )
    return Ratio(
        statistic=numerator / denominator,
        df=(df[0], df[1]),
        numerator=_sum_in_words(above, table.names),
        denominator=_sum_in_words(below, table.names),
        exact=False,
    )


def robust_ratio(components: VarianceComponents, term: int) -> Ratio | None:
    """Return the ratio of a mean square to its expectation without the component, eq. (11.9).

    Degrees of freedom are estimated from the rows, so that effects need not be normal.

    Parameters
    ----------
    components : with the influences of their rows
    term : position of the component

    Returns
    -------
    None if the component has no mean square, or the expectation is not estimated above zero
    """
    squares = robust_mean_squares(components)
    if squares is None or term not in squares.places:
        return None
    own = int(np.flatnonzero(squares.places == term)[0])
    others = np.zeros(len(components.values))
    others[squares.places] = squares.basis[own]
    others[term] = 0.0
    parts = squares.coefficients(others[None, :])[0] * squares.values
    expectation = float(parts.sum())
    if not expectation > _SAME * squares.values[own]:
        return None
    # Large ratios come from a large numerator and a small denominator.
    below = squares.df if squares.df_upper is None else squares.df_upper
    spread = parts / expectation * np.sqrt(2.0 / below)
    of_above, of_below = 2.0 / squares.df[own], float(spread @ squares.correlation @ spread)
    joint = np.sqrt(of_above) * float(squares.correlation[own] @ spread)
    factor = max(1.0 - 2.0 * joint / (of_above + of_below), _CORRELATED)
    return Ratio(
        statistic=float(squares.values[own]) / expectation,
        df=(2.0 / (factor * of_above), 2.0 / (factor * of_below)),
        numerator=f"MS({components.names[term]})",
        denominator="its expectation without the component",
        exact=False,
    )


def _usable(table: AnovaTable, term: int) -> bool:
    """Whether the term has degrees of freedom and finite expectations."""
    return bool(table.df[term] > 0 and np.isfinite(table.expected[term]).all())


def _same_expectation(table: AnovaTable, term: int) -> list[int]:
    """Return the mean squares with the same expectation if σ²_t = 0, the residual first."""
    wanted = np.delete(table.expected[term], term)
    scale = np.abs(wanted).max()
    found = []
    for u in reversed(range(table.df.size)):
        if u == term or table.df[u] <= 0 or not table.sum_sq[u] > 0.0:
            continue
        # A denominator whose expectation contains σ²_t would have no power.
        here = table.expected[u]
        close = np.abs(np.delete(here, term) - wanted).max() <= _SAME * scale
        if close and abs(here[term]) <= _SAME * table.expected[term, term]:
            found.append(u)
    return found


def _is_exact(
    table: AnovaTable, covariance: Callable[[FloatArray], FloatArray], term: int, other: int
) -> bool:
    """Whether both are multiples of independent χ² if σ²_t = 0, whatever the others are."""
    residual = table.df.size - 1
    involved = np.delete(table.expected[term], [term, residual])
    if other == residual and not involved.any():
        # Sums of squares whose expectation does not contain a term do not depend on it: Wald's
        # test.
        return True
    v = _generic(table, term)
    try:
        C = covariance(v)
    except TooLargeError:
        return False
    for u in (term, other):
        least = 2.0 * table.df[u] * float(table.expected[u] @ v) ** 2
        if abs(C[u, u] - least) > _SAME * least:
            return False
    return bool(abs(C[term, other]) <= _SAME * np.sqrt(C[term, term] * C[other, other]))


def _generic(table: AnovaTable, term: int) -> FloatArray:
    """Return components with σ²_t = 0 at which no difference vanishes by coincidence."""
    v: FloatArray = np.sqrt(2.0 + np.arange(table.df.size)) / np.maximum(
        table.expected.max(axis=0), 1.0
    )
    v[term] = 0.0
    return v


def _ratio(table: AnovaTable, term: int, other: int) -> Ratio:
    mean_squares = table.sum_sq[[term, other]] / table.df[[term, other]]
    return Ratio(
        statistic=float(mean_squares[0] / mean_squares[1]),
        df=(float(table.df[term]), float(table.df[other])),
        numerator=f"MS({table.names[term]})",
        denominator=f"MS({table.names[other]})",
        exact=True,
    )


def _sum_in_words(weights: FloatArray, names: tuple[str, ...]) -> str:
    parts = []
    for weight, name in zip(weights, names, strict=True):
        if weight:
            size = "" if abs(weight - 1.0) < _SAME else f"{display.number(weight)} "
            parts.append(f"{size}MS({name})")
    return parts[0] if len(parts) == 1 else f"({' + '.join(parts)})"


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
                f"maxima: {fitted.status}",
                term=term,
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
    drawn = drawn_refits(
        stats, recipes, v0, n, rng=rng, workers=workers, progress=False, advice=with_number
    )
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
