"""Tests of one component: F, robust, likelihood ratio, simulated and score tests; their choice.

See docs/explanation/mathematics.md, sections 11.1 to 11.3; the score test is eq. (11.4).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp.estimators import Estimate, get_estimator
from vcomp.estimators.likelihood import LikelihoodEngine, choose_engine
from vcomp.estimators.quadratic import AnovaTable, orthogonal_table
from vcomp.exceptions import DataError, EstimationError, did_you_mean
from vcomp.formula import RESIDUAL
from vcomp.inference.hypotheses.component_tests import (
    NullFit,
    Ratio,
    exact_ratio,
    mixture_p,
    null_fit,
    ratio_of_table,
    robust_ratio,
    simulated_p,
    synthesised_ratio,
)
from vcomp.inference.hypotheses.matrix_tests import (
    HypothesisTest,
    effect_test,
    residuals_test,
    restricted,
)
from vcomp.inference.quantities import VarianceComponents
from vcomp.numerics import check_count, solve_positive
from vcomp.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Score:
    """The score test at the fit without a component, eq. (11.4).

    Attributes
    ----------
    statistic : Q/κ
    df : ν of the χ²
    z : U divided by its standard deviation
    p_value : upper tail
    """

    statistic: float
    df: float
    z: float
    p_value: float


def score_test(
    stats: Statistics, null: Estimate, term: str, engine: LikelihoodEngine | None = None
) -> Score:
    """Return the score test of a component at the fit by REML that holds it at 0.

    Parameters
    ----------
    stats : sums of the rows
    null : fit by REML without the component
    term : name of the component
    engine : of the data; the best one if None

    Raises
    ------
    EstimationError
        If the engine of these data has no expected information.
    """
    from scipy.special import chdtrc

    engine = engine or choose_engine(stats, names=null.names[:-1])
    if "expected" not in engine.kinds:
        raise EstimationError(
            f"the score test needs the expected information, and the {engine.name} engine of "
            "these data has the average one only; use test='lrt'"
        )
    t = null.names.index(term)
    information = engine.information(null.values, "expected")
    free = np.array([name not in null.held for name in null.names]) & (null.values > 0.0)
    across = information[t, free]
    variance = float(
        information[t, t] - across @ solve_positive(information[np.ix_(free, free)], across)
    )
    # Σ_u σ²_u V_u = V and P V P = P: the row of the information gives ½ tr(P V_t).
    expectation = float(information[t] @ null.values)
    score = float(engine.derivatives(null.values).score[t])
    if not variance > 1e-12 * information[t, t]:
        raise EstimationError(
            f"at the fit without {term!r} its score is determined by those of the other "
            "components: it has no variance of its own",
            term=term,
        )
    df = 2.0 * expectation**2 / variance
    statistic = (expectation + score) * 2.0 * expectation / variance
    return Score(statistic, df, score / np.sqrt(variance), float(chdtrc(df, max(statistic, 0.0))))


TestName: TypeAlias = Literal["auto", "f", "robust", "lrt", "simulated", "score"]
TESTS: tuple[TestName, ...] = get_args(TestName)

_IN_BRACKETS = re.compile(r"\[[^]]*\]|[():]")
"""What stands between the columns of the data in the name of a fixed effect."""

_NORMAL = "The distribution is that for normal effects; test='robust' does not assume it."


@dataclass(frozen=True, slots=True)
class AutoLimits:
    """Sizes of data up to which ``test="auto"`` tries a test.

    Attributes
    ----------
    few_effects : largest number of effects outside the largest term for which terms are adjusted
        for each other
    cheap_effects, cheap_rows : largest numbers of effects and rows for which a thousand fits take
        seconds
    """

    few_effects: int = 2000
    cheap_effects: int = 500
    cheap_rows: int = 20_000


_LIMITS = AutoLimits()


@dataclass(frozen=True, slots=True)
class Simulation:
    """Number of data sets, seed and number of threads of a simulated test.

    Raises
    ------
    EstimationError
        If a number is not a whole number of at least 1.
    """

    n: int = 1000
    rng: int | np.random.Generator | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        check_count(self.n, "n")
        check_count(self.workers, "workers")


@dataclass(frozen=True, slots=True)
class ComponentFit:
    """The parts of a fit that a test needs.

    Attributes
    ----------
    estimate : its components
    table : its analysis of variance, None if it has none
    classical : whether that is the classical one of balanced data, with independent mean squares
    stats : sums of the rows, None after loading
    robust : computes the components with the influences of their rows
    n_residuals : number of residual variances
    has_matrices : whether the model has random slopes or several residual variances
    fixed : names of the fixed effects
    """

    estimate: Estimate
    table: AnovaTable | None
    classical: bool
    stats: Statistics | None
    robust: Callable[[], VarianceComponents]
    n_residuals: int = 1
    has_matrices: bool = False
    fixed: tuple[str, ...] = ()


def component_test(
    fit: ComponentFit,
    term: Any,
    test: TestName,
    simulation: Simulation,
    limits: AutoLimits = _LIMITS,
) -> HypothesisTest:
    """Return a test of σ²(term) = 0.

    Parameters
    ----------
    fit : with the component
    term : its name
    test : ``"f"``, ``"robust"``, ``"lrt"``, ``"simulated"``, ``"score"``, or ``"auto"``, which
        chooses one for normal effects
    simulation : for ``"simulated"``
    limits : sizes up to which ``"auto"`` tries a test

    Raises
    ------
    EstimationError
        If the component or test is not known, or the test is not possible for the design or fit.
    DataError
        If the rows are needed and the result was loaded without them.
    """
    _check_term(fit, term)
    if test not in TESTS:
        listed = ", ".join(map(repr, TESTS))
        raise EstimationError(f"test={test!r} is not known; tests of a component are {listed}")
    if fit.has_matrices and fit.stats is None:
        raise DataError(
            f"this result was loaded without its rows, and the test of {term!r} fits the model "
            "without it; fit the model again",
            term=term,
        )
    if fit.stats is not None and fit.stats.blocks is not None:
        if term == RESIDUAL:
            return residuals_test(fit.stats, fit.estimate, test)
        return effect_test(fit.stats, fit.estimate, term, test)
    if test == "auto":
        return _auto(fit, term, simulation, limits)
    if test == "f":
        return _f(fit, term)
    if test == "robust":
        return _robust(fit, term)
    return _by_likelihood(fit, term, test, simulation)


def _auto(
    fit: ComponentFit, term: str, simulation: Simulation, limits: AutoLimits
) -> HypothesisTest:
    """Return the exact F-test if there is one, else a simulated or an asymptotic test."""
    ratio, obstacle = None, "the design gives no exact F-test"
    if fit.stats is None or _adjusting_is_cheap(fit.stats, fit.estimate.names, limits):
        ratio = _exact(fit, term)
    else:
        obstacle = "an exact F-test would have to adjust too many effects for each other"
    if ratio is not None:
        return _noted(_f_outcome(fit, term, ratio), "Chosen because it is exact.")
    if fit.estimate.method not in ("reml", "ml") or fit.stats is None:
        return _f(fit, term)
    if _simulation_is_cheap(fit, limits):
        found = _by_likelihood(fit, term, "simulated", simulation)
        return _noted(found, f"Chosen because {obstacle}, and simulation is cheap here.")
    found = _by_likelihood(fit, term, "lrt", simulation)
    return _noted(
        found,
        f"Chosen because {obstacle}, and simulation would take long here (test='simulated').",
    )


def _adjusting_is_cheap(stats: Statistics, names: tuple[str, ...], limits: AutoLimits) -> bool:
    if orthogonal_table(stats, names) is not None:
        return True
    return sum(stats.sizes) - max(stats.sizes) + stats.Xy.size <= limits.few_effects


def _simulation_is_cheap(fit: ComponentFit, limits: AutoLimits) -> bool:
    stats = fit.stats
    assert stats is not None
    if stats.strata is not None:
        return True
    return sum(stats.sizes) <= limits.cheap_effects and stats.n <= limits.cheap_rows


# F -----------------------------------------------------------------------------------------------


def _exact(fit: ComponentFit, term: str) -> Ratio | None:
    t = fit.estimate.names.index(term)
    if fit.stats is not None:
        return exact_ratio(fit.stats, fit.estimate.names, t)
    return ratio_of_table(fit.table, t) if fit.classical and fit.table is not None else None


def _f(fit: ComponentFit, term: str) -> HypothesisTest:
    """Return the exact F-test, in balanced data at least an approximate one."""
    ratio = _exact(fit, term)
    if ratio is None and fit.classical and fit.table is not None:
        ratio = synthesised_ratio(fit.table, fit.estimate.names.index(term))
    if ratio is None:
        _refuse_f(fit, term)
    assert ratio is not None
    return _f_outcome(fit, term, ratio)


def _refuse_f(fit: ComponentFit, term: str) -> None:
    if fit.stats is None:
        raise DataError(
            f"this result was loaded without its rows, and for unbalanced data an F-test of "
            f"{term!r} needs them; fit the model again",
            term=term,
        )
    likelihood = fit.estimate.method in ("reml", "ml")
    advice = "use test='simulated' or 'lrt'" if likelihood else (
        "fit by method='reml' and test by likelihood (res.test then chooses a test)"
    )  # fmt: skip
    raise EstimationError(
        f"there is no F-test of {term!r}: it has no degrees of freedom after the other terms, or "
        f"no mean square has the same expectation if σ²({term}) is 0; {advice}",
        term=term,
    )


def _f_outcome(fit: ComponentFit, term: str, ratio: Ratio) -> HypothesisTest:
    from scipy.special import fdtrc

    df = ratio.df
    shown = display.degrees_of_freedom(df)
    note = f"F is {ratio.numerator} / {ratio.denominator}" + (
        ", whose expectations are equal if the component is 0."
        if ratio.exact
        else ": no single mean square has the expectation; degrees of freedom by Satterthwaite."
    )
    return HypothesisTest(
        term=term,
        test="exact F-test" if ratio.exact else "F-test with synthesised mean squares",
        symbol="F",
        statistic=ratio.statistic,
        distribution=f"F({shown})" if ratio.exact else f"F({shown}), approximate",
        df=df,
        p_value=float(fdtrc(*df, ratio.statistic)),
        estimate=_value(fit.estimate, term),
        exact=ratio.exact,
        notes=(note, _NORMAL),
    )


def _robust(fit: ComponentFit, term: str) -> HypothesisTest:
    """Return the F-test with degrees of freedom from the data, eq. (11.9)."""
    from scipy.special import fdtrc

    components = fit.robust()
    ratio = robust_ratio(components, fit.estimate.names.index(term))
    if ratio is None:
        raise EstimationError(
            f"there is no robust F-test of {term!r}: its component has no variance, or its mean "
            "square no positive expectation without it; use test='f' or 'simulated'",
            term=term,
        )
    levels = components.levels
    few = {} if levels is None else levels.few
    words = (
        f"F is {ratio.numerator} / {ratio.denominator}; its degrees of freedom are estimated from "
        "the rows, whatever the distribution of the effects."
    )
    notes = [words]
    if few:
        listed = ", ".join(f"{facet} ({n})" for facet, n in sorted(few.items()))
        notes.append(f"Facets with few levels, whose effects are treated as normal: {listed}.")
    return HypothesisTest(
        term=term,
        test="robust F-test",
        symbol="F",
        statistic=ratio.statistic,
        distribution=f"F({display.degrees_of_freedom(ratio.df)}), approximate",
        df=ratio.df,
        p_value=float(fdtrc(*ratio.df, ratio.statistic)),
        estimate=_value(fit.estimate, term),
        notes=tuple(notes),
    )


# Likelihood --------------------------------------------------------------------------------------


def _by_likelihood(
    fit: ComponentFit, term: str, test: str, simulation: Simulation
) -> HypothesisTest:
    estimate = fit.estimate
    if estimate.method not in ("reml", "ml"):
        raise EstimationError(
            f"test={test!r} compares likelihoods, and {estimate.method!r} has none; fit by "
            "method='reml' or 'ml', or use test='f'"
        )
    if fit.stats is None:
        raise DataError(
            f"this result was loaded without its rows, and test={test!r} fits the model "
            f"without {term!r}; fit the model again",
            term=term,
        )
    if test == "score":
        return _score(fit.stats, estimate, term)
    null = null_fit(fit.stats, estimate, term)
    if test == "lrt":
        return _limiting(estimate, term, null)
    return _simulated(fit.stats, estimate, term, null, simulation)


def _limiting(estimate: Estimate, term: str, null: NullFit) -> HypothesisTest:
    notes = []
    if null.at_bound:
        verb = "is at its bound" if len(null.at_bound) == 1 else "are at their bounds"
        listed = ", ".join(f"σ²({name})" for name in null.at_bound)
        notes.append(
            f"{listed} {verb} 0 as well: the mixture is not the limiting distribution then, "
            "mostly conservative; test='simulated' does not need it."
        )
    if null.error > 0.0:
        notes.append(
            f"The statistic has a Monte Carlo error of {display.number(null.error, 2)} or less "
            "from the engine's random probes."
        )
    return HypothesisTest(
        term=term,
        test=f"{restricted(estimate)}likelihood ratio test",
        symbol="LR",
        statistic=null.statistic,
        distribution="½χ²₀ + ½χ²₁ in large samples",
        df=(0.0, 1.0),
        p_value=mixture_p(null.statistic),
        estimate=_value(estimate, term),
        notes=tuple(notes),
    )


def _simulated(
    stats: Statistics, estimate: Estimate, term: str, null: NullFit, simulation: Simulation
) -> HypothesisTest:
    found = simulated_p(
        stats, null, term, int(simulation.n), rng=simulation.rng, workers=int(simulation.workers)
    )
    notes = [f"{display.percent(found.share_zero)} of the drawn ratios are 0."]
    if found.n < simulation.n:
        notes.append(f"{simulation.n - found.n} of the drawn data sets could not be fitted.")
    return HypothesisTest(
        term=term,
        test=f"simulated {restricted(estimate)}likelihood ratio test",
        symbol="LR",
        statistic=null.statistic,
        distribution=f"{found.n:,} data sets drawn at the fit without it",
        df=(),
        p_value=found.p_value,
        estimate=_value(estimate, term),
        p_error=found.p_error,
        notes=tuple(notes),
    )


def _score(stats: Statistics, estimate: Estimate, term: str) -> HypothesisTest:
    values = dict(zip(estimate.names, estimate.values, strict=True))
    hold = {name: float(values[name]) for name in estimate.held} | {term: 0.0}
    null = get_estimator("reml", hold=hold).estimate(stats, estimate.names)
    if not null.converged:
        raise EstimationError(
            f"the fit without {term!r} did not converge: {null.status}", term=term
        )
    found = score_test(stats, null, term)
    notes = [f"The efficient score is {display.number(found.z, 3)} standard deviations from 0."]
    if estimate.method == "ml":
        notes.append("It is the score of the restricted likelihood, at a fit by REML.")
    return HypothesisTest(
        term=term,
        test="restricted score test",
        symbol="Q",
        statistic=found.statistic,
        distribution=f"χ² with {display.number(found.df, 4)} df, matched to its mean and variance",
        df=(found.df,),
        p_value=found.p_value,
        estimate=_value(estimate, term),
        notes=tuple(notes),
    )


# Words -------------------------------------------------------------------------------------------


def _check_term(fit: ComponentFit, term: Any) -> None:
    estimate, n_residuals = fit.estimate, fit.n_residuals
    terms = estimate.names[:-n_residuals]
    if n_residuals > 1 and term in estimate.names[-n_residuals:]:
        raise EstimationError(
            f"{term!r} cannot be tested alone; test({RESIDUAL!r}) tests that all residual "
            "variances are equal",
            term=term,
        )
    if term == RESIDUAL and n_residuals > 1:
        return
    if term == RESIDUAL:
        raise EstimationError(
            "the residual cannot be tested: without it the model has no likelihood, and the "
            "expectation of every mean square contains it; components that can be tested are "
            f"{', '.join(terms) or 'none'}"
        )
    if term not in terms:
        if any(term in (name, *_IN_BRACKETS.split(name)) for name in fit.fixed):
            raise EstimationError(
                f"{term!r} is a fixed effect, not a component; res.f_test({term!r}) tests it",
                term=term,
            )
        raise EstimationError(
            f"there is no component {term!r} to test{did_you_mean(term, terms)}; components are "
            f"{', '.join(terms) or 'none'}",
            term=term,
        )
    if term in estimate.held:
        raise EstimationError(
            f"σ²({term}) is held at {display.number(_value(estimate, term))}, not estimated; fit "
            "without hold= to test it",
            term=term,
        )


def _value(estimate: Estimate, term: str) -> float:
    return float(estimate.values[estimate.names.index(term)])


def _noted(outcome: HypothesisTest, note: str) -> HypothesisTest:
    return replace(outcome, notes=(*outcome.notes, note))
