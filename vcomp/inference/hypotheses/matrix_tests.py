"""The outcome of a test, and likelihood-ratio tests of models of covariance matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp import display
from vcomp.estimators import Estimate, get_estimator
from vcomp.exceptions import EstimationError
from vcomp.formula import RESIDUAL
from vcomp.inference.hypotheses.model_comparison import likelihood_ratio, mixture_tail
from vcomp.statistics import Statistics


@dataclass(frozen=True, slots=True)
class HypothesisTest(display.PrintsAsSentence):
    """The outcome of one test; it prints as a sentence.

    Attributes
    ----------
    term : the tested component, or contrasts of fixed effects
    test : name of the test in words
    symbol : of the statistic, such as ``"F"``
    statistic : its value
    distribution : null distribution in words: ``"F(5, 24)"``, ``"½χ²₀ + ½χ²₁"``
    df : degrees of freedom: two for F, one for χ², those of the parts of a mixture
    p_value : probability of a statistic as large or larger under the hypothesis
    estimate : of the component, nan for contrasts of several rows
    p_error : Monte Carlo standard error of the p-value, 0 without simulation
    exact : whether the distribution is exact under normality, for any sample size
    notes : sentences on the choice of the test and its assumptions
    """

    term: str
    test: str
    symbol: str
    statistic: float
    distribution: str
    df: tuple[float, ...]
    p_value: float
    estimate: float
    p_error: float = 0.0
    exact: bool = False
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        p = display.p_value(self.p_value)
        if self.p_error > 0.0:
            p += f" ± {display.number(self.p_error, 2)} (Monte Carlo)"
        first = (
            f"{self.term}: {self.symbol} = {display.number(self.statistic)}, {p}; {self.test}, "
            f"{self.distribution}."
        )
        return "\n".join([first, *self.notes])


def effect_test(stats: Statistics, estimate: Estimate, term: str, test: str) -> HypothesisTest:
    """Return the likelihood-ratio test of a variance of a model of covariance matrices.

    Without the effect its covariances are zero as well (Stram & Lee 1994, Biometrics 50,
    1171-1177).

    Parameters
    ----------
    stats, estimate : of the model
    term : name of the variance
    test : ``"auto"`` or ``"lrt"``

    Raises
    ------
    EstimationError
        If it is another test, or `term` is a covariance or the variance of an intercept next to
        slopes.
    """
    assert stats.blocks is not None
    _check_ratio(test, term, slopes=stats.blocks.has_slopes)
    at = estimate.names.index(term)
    own = next(m for m in stats.blocks.matrices for row in m.places if at in row)
    variances = [row[i] for i, row in enumerate(own.places)]
    if at not in variances:
        if any("[" in effect for effect in own.effects):  # || keeps those of a factor correlated
            advice = f"res.profile({term!r}) has its interval"
        else:
            advice = "fit the model with || in place of | as well, and compare() the two"
        raise EstimationError(f"{term!r} is a covariance: {advice}", term=term)
    if own.effects[variances.index(at)] == "(Intercept)" and len(variances) > 1:
        raise EstimationError(
            f"σ²({term}) is the variance where the slopes' columns are 0, and has no test next to "
            f"slopes: test {', '.join(estimate.names[v] for v in variances if v != at)}",
            term=term,
        )
    c = len(variances) - 1
    smaller, left = stats.cells.without_effect(at)
    residuals = estimate.names[-stats.blocks.n_residuals :]
    names = (*(estimate.names[i] for i in left), *residuals)
    statistic = _ratio_without(Statistics.from_rows(smaller, None), estimate, names, term)
    notes = ["Without a slope its covariances are zero as well."] if c else []
    return HypothesisTest(
        term=term,
        test=f"{restricted(estimate)}likelihood ratio test",
        symbol="LR",
        statistic=statistic,
        distribution=f"½χ²{_below(c)} + ½χ²{_below(c + 1)} in large samples",
        df=(float(c), float(c + 1)),
        p_value=mixture_tail(np.array([0.5, 0.5]), np.array([c, c + 1.0]), statistic),
        estimate=float(estimate.values[at]),
        notes=tuple(notes),
    )


def residuals_test(stats: Statistics, estimate: Estimate, test: str) -> HypothesisTest:
    """Return the likelihood-ratio test of equal residual variances.

    Parameters
    ----------
    stats, estimate : of the model
    test : ``"auto"`` or ``"lrt"``

    Raises
    ------
    EstimationError
        If it is another test.
    """
    assert stats.blocks is not None
    _check_ratio(test, RESIDUAL, slopes=False)
    r = stats.blocks.n_residuals
    equal = Statistics.from_rows(stats.cells.with_one_residual(), None)
    statistic = _ratio_without(equal, estimate, (*estimate.names[:-r], RESIDUAL), RESIDUAL)
    return HypothesisTest(
        term=RESIDUAL,
        test=f"{restricted(estimate)}likelihood ratio test of equal residual variances",
        symbol="LR",
        statistic=statistic,
        distribution=f"χ²{_below(r - 1)} in large samples",
        df=(float(r - 1),),
        p_value=mixture_tail(np.ones(1), np.array([r - 1.0]), statistic),
        estimate=float(np.mean(estimate.values[-r:])),
    )


def _check_ratio(test: str, term: str, *, slopes: bool) -> None:
    if test not in ("auto", "lrt"):
        what = "without random slopes" if slopes else "with one residual variance"
        raise EstimationError(f"test={test!r} is for models {what}; use test='lrt'", term=term)


def _ratio_without(
    smaller: Statistics, estimate: Estimate, names: tuple[str, ...], term: str
) -> float:
    """Return the likelihood ratio to the model of the statistics `smaller`."""
    if estimate.held:
        raise EstimationError(
            f"a test of {term!r} fits the model without it, and this fit holds "
            f"{', '.join(estimate.held)}; fit without hold=, or compare() two fits with it",
            term=term,
        )
    null = get_estimator(estimate.method).estimate(smaller, names)
    if not (null.converged and estimate.converged):
        raise EstimationError(
            f"a likelihood ratio compares maxima: with {term!r} {estimate.status} Without it "
            f"{null.status}",
            term=term,
        )
    return max(0.0, likelihood_ratio(estimate, null, smaller.n))


def _below(n: int) -> str:
    """Return a number as a subscript."""
    return str(n).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def restricted(estimate: Estimate) -> str:
    """Return the word for the likelihood of REML before its name."""
    return "restricted " if estimate.method == "reml" else ""
