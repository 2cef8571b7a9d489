"""Likelihood ratio tests of whole models against each other.

Components that the smaller model lacks are at their bound in it. With r further parameters, such
as fixed effects, and b components at their bound, the limiting distribution is Σ_j w_j χ²_{r+j},
j = 0 … b (Self & Liang 1987). The weights are ½ and ½ for b = 1, and docs/explanation/
mathematics.md, eq. (11.3), for b = 2, with ρ the correlation of the efficient estimates (Self &
Liang, case 7). Weights of even and of odd j add up to ½ each, so that ½χ²_{r+b−1} + ½χ²_{r+b} is
never too small (Perlman 1969): this bound is used if the weights are not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.data import OffsetOfRows, WeightsOfRows
from vcomp.estimators import Estimate
from vcomp.estimators.likelihood import choose_engine, loglike_margin
from vcomp.exceptions import DataError, EstimationError
from vcomp.formula import RESIDUAL, ResidualGroups
from vcomp.numerics import solve_positive
from vcomp.statistics import Statistics

if TYPE_CHECKING:
    import pandas as pd

_SAME = 1e-9
"""Relative differences of sums that a different order of rows may cause."""

_ROUNDING = 1e-13
"""Relative differences of a mean far from zero that a different order of rows may cause."""


@dataclass(frozen=True, slots=True)
class ComparedFit:
    """The parts of a fit that a comparison needs.

    Attributes
    ----------
    formula, response : text of the formula, and its left side
    estimate : by REML or ML
    exog_names : columns of the fixed part
    nobs : number of rows
    response_sums : mean of the response and sum of squares about it; None if not known
    stats : sums of the rows, None after loading
    covariances : names of the components that are covariances of random slopes
    groups : of rows that have a residual variance each; None with one
    weights : of the rows; None where all count alike
    offset : of the rows; None without
    """

    formula: str
    response: str
    estimate: Estimate
    exog_names: tuple[str, ...]
    nobs: int
    response_sums: tuple[float, float] | None
    stats: Statistics | None
    covariances: tuple[str, ...] = ()
    groups: ResidualGroups | None = None
    weights: WeightsOfRows | None = None
    offset: OffsetOfRows | None = None

    @property
    def n_parameters(self) -> int:
        """Number of fixed effects and estimated components."""
        return len(self.exog_names) + len(self.estimate.names) - len(self.estimate.held)

    @property
    def known(self) -> dict[frozenset[str], float]:
        """The held components, by the facets of their terms."""
        values = dict(zip(self.estimate.names, self.estimate.values, strict=True))
        return {facets_of(name): float(values[name]) for name in self.estimate.held}

    @property
    def free(self) -> dict[frozenset[str], str]:
        """Names of the estimated components, by the facets of their terms.

        Several residual variances are the component that equal ones would be.
        """
        held, groups = self.estimate.held, self.groups
        of_rows = () if groups is None else groups.names
        return {
            facets_of(RESIDUAL if name in of_rows else name): name
            for name in self.estimate.names
            if name not in held
        }


def check_likelihood(fit: ComparedFit) -> None:
    """Refuse a fit without a maximised likelihood."""
    estimate = fit.estimate
    if estimate.method not in ("reml", "ml"):
        raise EstimationError(
            f"{fit.formula!r} was fitted by {estimate.method!r}, which has no likelihood to "
            "compare; fit by method='reml' or 'ml'"
        )
    if not estimate.converged or not np.isfinite(estimate.llf):
        raise EstimationError(
            f"the likelihood of {fit.formula!r} is not at its maximum, and a comparison needs "
            f"maxima: {estimate.status}"
        )


def check_rows(one: ComparedFit, other: ComparedFit) -> None:
    """Refuse fits of different scores."""
    pair = f"{one.formula!r} and {other.formula!r}"
    if one.response != other.response:
        raise DataError(
            f"{pair} have the responses {one.response!r} and {other.response!r}: likelihoods of "
            "different responses cannot be compared",
            column=one.response,
        )
    given = one.weights, other.weights
    options = " and ".join("none" if w is None else w.option for w in given)
    if one.nobs != other.nobs and not _same_weights(*given):
        raise DataError(
            f"{pair} were fitted to {one.nobs:,} and {other.nobs:,} rows with different weights "
            f"({options}): means have another likelihood than their scores; fit both to the "
            "scores, or both to the means"
        )
    if one.nobs != other.nobs:
        raise DataError(
            f"{pair} were fitted to {one.nobs:,} and {other.nobs:,} rows: drop the rows with a "
            "missing value in any column of either, and fit both to the remaining rows"
        )
    if not _same_weights(*given):
        raise DataError(
            f"{pair} have different weights of rows ({options}): fit both with the same"
        )
    if not _same_offsets(one.offset, other.offset):
        raise DataError(
            f"{pair} have different offsets, and likelihoods are those of the scores less their "
            "offset: fit both with the same; f_test() of a covariate in place of the offset tests "
            "whether its coefficient is 1"
        )
    if one.response_sums is None or other.response_sums is None:
        raise DataError(
            f"it is not known whether {pair} were fitted to the same rows: one was stored by an "
            "older version; fit it again"
        )
    (mean, squares), (mean_2, squares_2) = one.response_sums, other.response_sums
    spread = np.sqrt(squares / one.nobs)
    same = abs(squares - squares_2) <= _SAME * squares
    if not same or abs(mean - mean_2) > _SAME * spread + _ROUNDING * abs(mean):
        raise DataError(
            f"{pair} were fitted to different values of {one.response!r} (their means are "
            f"{display.number(mean, 8)} and {display.number(mean_2, 8)})",
            column=one.response,
        )


def _same_weights(one: WeightsOfRows | None, other: WeightsOfRows | None) -> bool:
    """Return whether two fits have the same weights of rows, as far as their means show it."""
    if one is None or other is None:
        return one is other
    close = np.allclose([one.mean, one.mean_log], [other.mean, other.mean_log], _SAME, _SAME)
    return bool(close) and one.of_known_variances == other.of_known_variances


def _same_offsets(one: OffsetOfRows | None, other: OffsetOfRows | None) -> bool:
    """Return whether two fits have the same offsets, as far as their means show it."""
    if one is None or other is None:
        return one is other
    if one.mean is None or other.mean is None:
        return True
    return bool(np.isclose(one.mean, other.mean, _SAME, _SAME))


def check_comparable(one: ComparedFit, other: ComparedFit) -> None:
    """Refuse likelihoods that are not comparable."""
    methods = one.estimate.method, other.estimate.method
    if methods[0] != methods[1]:
        raise EstimationError(
            f"{one.formula!r} was fitted by {methods[0].upper()} and {other.formula!r} by "
            f"{methods[1].upper()}: fit both by the same method"
        )
    if methods[0] != "reml":
        return
    if set(one.exog_names) != set(other.exog_names) or _columns_differ(one, other):
        raise EstimationError(
            f"the fixed parts of {one.formula!r} and {other.formula!r} differ "
            f"({' + '.join(one.exog_names) or '0'}; {' + '.join(other.exog_names) or '0'}): "
            "restricted likelihoods depend on the fixed part, and cannot be compared; "
            "fit both by method='ml'"
        )


def _columns_differ(one: ComparedFit, other: ComparedFit) -> bool:
    """Whether columns with the same names have different values, as far as that is known."""
    if one.stats is None or other.stats is None or not one.exog_names:
        return False
    place = {name: j for j, name in enumerate(other.exog_names)}
    order = [place[name] for name in one.exog_names]
    if one.stats.wide is not None and other.stats.wide is not None:
        a = np.random.default_rng(0).normal(size=len(order))
        b = np.empty(a.size)
        b[order] = a
        ours = one.stats.wide.products_with(a)
        theirs = other.stats.wide.products_with(b)[order]
        return bool(np.abs(ours - theirs).max() > 1e-8 * np.abs(ours).max())
    ours, theirs = one.stats.XX, other.stats.XX[np.ix_(order, order)]
    scale = np.sqrt(np.outer(np.diagonal(ours), np.diagonal(ours)))
    return bool((np.abs(ours - theirs) > 1e-8 * scale).any())


def facets_of(name: str) -> frozenset[str]:
    """Return the facets of a term, independent of their order in its name."""
    groups, bracket, slope = name.partition("[")
    return frozenset([*groups.split(":"), *([bracket + slope] if bracket else [])])


_ROUNDED = 1e-6
"""A larger model whose log-likelihood is this much below the smaller one's was not maximised."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A likelihood ratio of two fits, the second the larger one.

    Attributes
    ----------
    statistic : 2(ℓ₁ − ℓ₀); nan where the models are not nested
    df : difference of the numbers of parameters
    weights : (b + 1,) weights of χ² with ``df − b`` … ``df`` degrees of freedom
    p_value : upper tail of that mixture
    distribution : the mixture in words
    notes : sentences on the comparison
    """

    statistic: float
    df: int
    weights: tuple[float, ...]
    p_value: float
    distribution: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelComparison(display.Printed):
    """Likelihood ratio tests of fits, each against the next smaller one; ``print`` shows a table.

    Attributes
    ----------
    fits : the fits, by number of parameters
    comparisons : the tests, one fewer than fits
    """

    fits: tuple[ComparedFit, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def table(self) -> pd.DataFrame:
        """A table with a row for each model: npar, llf, aic, bic, statistic, df and p_value.

        The last three test the model against that of the row before. The column
        ``distribution`` has the null distribution in words.
        """
        import pandas as pd

        blank = Comparison(np.nan, 0, (), np.nan, "")
        tests = (blank, *self.comparisons)
        llf = np.array([fit.estimate.llf for fit in self.fits])
        npar = np.array([fit.n_parameters for fit in self.fits])
        n = np.array([fit.nobs for fit in self.fits])
        columns = {
            "npar": npar,
            "llf": llf,
            "aic": -2.0 * llf + 2.0 * npar,
            "bic": -2.0 * llf + np.log(n) * npar,
            "statistic": [test.statistic for test in tests],
            "df": [np.nan if np.isnan(test.statistic) else test.df for test in tests],
            "p_value": [test.p_value for test in tests],
            "distribution": [test.distribution for test in tests],
        }
        index = pd.Index([fit.formula for fit in self.fits], name="formula")
        return pd.DataFrame(columns, index=index)

    def summary(self) -> Any:
        """Return the printed table, an object of statsmodels' table classes."""
        frame = self.table
        df = ["" if np.isnan(d) else display.count(d) for d in frame["df"]]
        cells = {
            "npar": [str(n) for n in frame["npar"]],
            "llf": display.fixed(frame["llf"], decimals=3),
            "AIC": display.fixed(frame["aic"], decimals=2),
            "BIC": display.fixed(frame["bic"], decimals=2),
            "LR": display.fixed(frame["statistic"], decimals=3, missing=""),
            "df": df,
            "p": display.p_values(frame["p_value"], missing=""),
        }
        stubs = [f"{number}" for number in range(1, len(self.fits) + 1)]
        table = display.column_table(cells, stubs=stubs)
        method = "restricted likelihood (REML)"
        if self.fits[0].estimate.method == "ml":
            method = "likelihood (ML)"
        notes = [f"{k}: {formula}" for k, formula in enumerate(frame.index, start=1)]
        notes.append(f"Compared by their {method}; {display.count(self.fits[0].nobs)} scores.")
        for number, test in enumerate(self.comparisons, start=2):
            if test.distribution:
                notes.append(f"{number} against {number - 1}: {test.distribution}.")
            notes += test.notes
        return display.summary([table], notes)


def compare_fits(fits: tuple[ComparedFit, ...]) -> ModelComparison:
    """Return the comparison of several fits, each with the next smaller one.

    Raises
    ------
    DataError
        If they are not of the same rows.
    EstimationError
        If their likelihoods cannot be compared.
    """
    if len(fits) < 2:
        raise EstimationError(f"a comparison needs at least two results, not {len(fits)}")
    for fit in fits:
        check_likelihood(fit)
    for fit in fits[1:]:
        check_rows(fits[0], fit)
        check_comparable(fits[0], fit)
    ordered = tuple(sorted(fits, key=lambda fit: fit.n_parameters))
    return ModelComparison(ordered, tuple(_compared(a, b) for a, b in pairwise(ordered)))


def mixture_tail(weights: FloatArray, degrees: FloatArray, statistic: float) -> float:
    """Return the probability that a mixture of χ² is `statistic` or more.

    Examples
    --------
    >>> round(mixture_tail(np.array([0.5, 0.5]), np.array([0.0, 1.0]), 2.705543), 6)
    0.05
    """
    from scipy.special import chdtrc

    tails = [chdtrc(d, max(statistic, 0.0)) if d > 0 else float(statistic <= 0.0) for d in degrees]
    return float(np.asarray(weights) @ np.array(tails))


def likelihood_ratio(larger: Estimate, smaller: Estimate, n: int) -> float:
    """Return 2(ℓ₁ − ℓ₀) of two maxima for `n` rows; 0 if the difference may be rounding error.

    A component that is estimated at zero, or next to it, then adds nothing, on any processor.
    """
    margin = 0.0
    for fit in (larger, smaller):
        left = 0.0 if fit.certificate is None else fit.certificate.newton_decrement
        # A maximum is higher than the end of its climb by half the squared decrement.
        margin += loglike_margin(fit.llf, n) + 0.5 * left**2
    ratio = 2.0 * (larger.llf - smaller.llf)
    return 0.0 if abs(ratio) <= 2.0 * margin else ratio


def _compared(small: ComparedFit, big: ComparedFit) -> Comparison:
    why_not = _not_nested(small, big)
    if why_not:
        note = (
            f"{small.formula!r} is not nested in {big.formula!r} ({why_not}): compare them by AIC "
            "and BIC only."
        )
        return Comparison(np.nan, 0, (), np.nan, "", (note,))
    statistic = likelihood_ratio(big.estimate, small.estimate, big.nobs)
    allowed = _ROUNDED + 4.0 * float(np.hypot(big.estimate.llf_error, small.estimate.llf_error))
    if statistic < -allowed:
        raise EstimationError(
            f"the log-likelihood of {big.formula!r} is below that of {small.formula!r}, which is "
            "nested in it: it is at another maximum; fit it again with another start="
        )
    added = [key for key in big.free if key not in small.free]
    # The variance of an intercept becomes those of all levels: one of them is not at its bound.
    beyond = {variances[0] for variances in _contained(small, big).values()}
    beyond |= {facets_of(name) for name in big.covariances}
    bound = [key for key in added if small.known.get(key, 0.0) == 0.0 and key not in beyond]
    df = big.n_parameters - small.n_parameters
    if df == 0:
        note = f"{small.formula!r} and {big.formula!r} have the same parameters."
        return Comparison(np.nan, 0, (), np.nan, "", (note,))
    weights, notes = _weights(small, big, bound)
    degrees = df - len(bound) + np.arange(len(bound) + 1.0)
    statistic = max(statistic, 0.0)
    return Comparison(
        statistic=statistic,
        df=df,
        weights=tuple(float(w) for w in weights),
        p_value=mixture_tail(weights, degrees, statistic),
        distribution=_mixture_in_words(weights, degrees),
        notes=notes,
    )


def _not_nested(small: ComparedFit, big: ComparedFit) -> str:
    """Return why the smaller model is not nested in the larger one, empty if it is."""
    names = [name for name in small.exog_names if name not in big.exog_names]
    if names:
        return f"only the first has the fixed effect {names[0]!r}"
    contained = _contained(small, big)
    for key, name in small.free.items():
        if key not in big.free and key not in contained:
            where = "is held" if key in big.known else "is missing"
            return f"σ²({name}) {where} in the second"
    if small.groups is not None:
        theirs = () if big.groups is None else big.groups.facets
        absent = [facet for facet in small.groups.facets if facet not in theirs]
        if absent:
            return f"only the first has residual variances by {absent[0]}"
    for key in big.known.keys() | (small.known.keys() - big.free.keys()):
        if big.known.get(key, 0.0) != small.known.get(key, 0.0):
            return f"σ²({':'.join(sorted(key))}) is held at different values"
    return ""


_OF_LEVELS = re.compile(r"([^\[\]]+)\[(?![TSDH]\.)[^\[\]]+\]")
"""Column of one level of a factor, in a coding of all its levels."""


def _contained(small: ComparedFit, big: ComparedFit) -> dict[frozenset[str], list[frozenset[str]]]:
    """Return the intercepts of the smaller model that correlated effects of a factor contain.

    σ²11' is a covariance matrix of the effects of a factor at each of its levels, of ``(0 + c|g)``
    and ``(c||g)``.

    Returns
    -------
    for the facets of each intercept those of the variances of the levels
    """
    contained = {}
    for key in small.free.keys() - big.free.keys():
        of_factors: dict[tuple[str, ...], list[frozenset[str]]] = {}
        for other, name in big.free.items():
            levels = [_OF_LEVELS.fullmatch(part) for part in _effect_of(name).split(":")]
            if facets_of(name.partition("[")[0]) == key and all(levels):
                factors = tuple(level[1] for level in levels if level is not None)
                of_factors.setdefault(factors, []).append(other)
        for variances in of_factors.values():
            names = [big.free[other] for other in variances]
            pair = f"{names[0].removesuffix(']')},{_effect_of(names[-1])}]"
            if pair in big.covariances:
                contained[key] = variances
    return contained


def _effect_of(name: str) -> str:
    """Return the effect of a slope, ``"c[p]"`` of ``"g[c[p]]"``; "" of an intercept."""
    return name.partition("[")[2].removesuffix("]")


def _weights(
    small: ComparedFit, big: ComparedFit, bound: list[frozenset[str]]
) -> tuple[FloatArray, tuple[str, ...]]:
    """Return the weights of the mixture, with notes on them."""
    notes = []
    at_zero = [n for n in small.free.values() if _value(small.estimate, n) == 0.0]
    if at_zero and bound:
        listed = ", ".join(f"σ²({name})" for name in at_zero)
        notes.append(f"{listed} of the smaller model at 0: the mixture is mostly conservative.")
    if len(bound) < 2:
        return np.array([1.0] if not bound else [0.5, 0.5]), tuple(notes)
    if len(bound) == 2 and not big.covariances:
        correlation = _efficient_correlation(small, big, bound)
        if correlation is not None:
            outer = float(np.arccos(np.clip(correlation, -1.0, 1.0))) / (2.0 * np.pi)
            return np.array([outer, 0.5, 0.5 - outer]), tuple(notes)
    listed = ", ".join(f"σ²({big.free[key]})" for key in bound)
    notes.append(
        f"The weights for {listed} at their bounds together are not known: the p-value is an "
        "upper limit (Perlman 1969)."
    )
    weights = np.zeros(len(bound) + 1)
    weights[-2:] = 0.5
    return weights, tuple(notes)


def _efficient_correlation(
    small: ComparedFit, big: ComparedFit, bound: list[frozenset[str]]
) -> float | None:
    """Return the correlation ρ of the efficient estimates of two components, without bounds.

    It follows from the inverse of the expected information at the smaller model, with all
    components unknown that are free in the larger one and not at 0.
    """
    if big.stats is None or big.stats.blocks is not None:
        return None
    null = {facets_of(n): _value(small.estimate, n) for n in small.estimate.names}
    names = big.estimate.names
    v = np.array([null.get(facets_of(name), 0.0) for name in names])
    engine = choose_engine(big.stats, reml=big.estimate.method == "reml", names=names[:-1])
    if "expected" not in engine.kinds or not v[-1] > 0.0:
        return None
    information = engine.information(v, "expected")
    tested = np.array([facets_of(name) in bound for name in names])
    free = np.array([facets_of(name) in big.free for name in names]) & ~tested & (v > 0.0)
    across = information[np.ix_(free, tested)]
    efficient = information[np.ix_(tested, tested)] - across.T @ solve_positive(
        information[np.ix_(free, free)], across
    )
    d = np.sqrt(np.diagonal(efficient))
    if not (np.square(d) > 1e-10 * np.diagonal(information)[tested]).all():
        return None
    # The inverse of a matrix of order two has the correlation with the opposite sign.
    return float(-efficient[0, 1] / (d[0] * d[1]))


def _mixture_in_words(weights: FloatArray, degrees: FloatArray) -> str:
    parts = []
    for weight, d in zip(weights, degrees, strict=True):
        if weight:
            share = "½" if weight == 0.5 else display.number(weight)
            parts.append(f"χ²({int(d)})" if weight == 1.0 else f"{share} χ²({int(d)})")
    return " + ".join(parts)


def _value(estimate: Estimate, name: str) -> float:
    values = dict(zip(estimate.names, estimate.values, strict=True))
    return float(values[name])
