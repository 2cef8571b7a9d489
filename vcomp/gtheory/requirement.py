"""Required sizes, with intervals, and Φ(λ), how dependable decisions by a cut score are.

The D-study (:mod:`~vcomp.gtheory.study`) and the quantity ``n`` are made from the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.codec import stored
from vcomp.display import SYMBOLS
from vcomp.exceptions import PlanError, is_real
from vcomp.formula import REPLICATE, BrennanDesign
from vcomp.gtheory.plan import DStudyPlan
from vcomp.gtheory.projection import (
    composition,
    constant_effects,
    first_two_way,
    sampling_fractions,
    weights,
)
from vcomp.inference import (
    Projected,
    Quantities,
    Smooth,
    TwoWayMeanSquares,
    VarianceComponents,
    used_components,
)
from vcomp.inference.intervals import F_INTERVALS, Combined, FromComponents, IntervalSource, Limits
from vcomp.markup import encodable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Requirement(display.PrintsAsSentence):
    """The size of a facet at which a coefficient reaches a goal.

    Attributes
    ----------
    coefficient : ``"Erho2"``, ``"Phi"``, or the symbol of a measure of accuracy
    goal : what it is to reach
    facet : whose size is required
    n : the smallest size that reaches it; infinite where none does
    low, high : interval of n; nan where it is not known
    alpha : the interval has confidence 1 − alpha
    held : the sizes at which the other facets are held
    interval_method : how the interval was made
    why : a sentence where n is infinite
    words : the goal, where it is not a value of a coefficient
    within : the facets in each level of which n levels are needed, where the facet is nested
    further : the same of the other plans of the D-study, where other facets have other sizes

    Examples
    --------
    >>> print(Requirement("Phi", 0.95, "topic", 259, 130, 487, alpha=0.05))
    For Φ = 0.95, 259 topics are needed (95 %: 130 to 487).
    """

    coefficient: str
    goal: float
    facet: str
    n: float
    low: float
    high: float
    alpha: float
    held: Mapping[str, float] = field(default_factory=dict)
    interval_method: str = ""
    why: str = ""
    within: str = ""
    words: str = ""
    further: tuple[Requirement, ...] = field(default=(), compare=False, repr=False)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each plan: sizes of the other facets, n, its interval, why it is infinite."""
        import pandas as pd

        return pd.DataFrame(
            [
                {**one.held, "n": one.n, "low": one.low, "high": one.high, "why": one.why}
                for one in (self, *self.further)
            ]
        )

    def __str__(self) -> str:
        return encodable("\n".join(one._sentence() for one in (self, *self.further)))

    def _sentence(self) -> str:
        symbol = SYMBOLS.get(self.coefficient, self.coefficient)
        goal = self.words or f"{symbol} = {display.number(self.goal)}"
        if self.why:
            at = ", ".join(f"{f} = {display.count(n)}" for f, n in self.held.items())
            of_plan = f" with {at}" if at else ""
            start = goal if not self.words else f"{goal[0].upper()}{goal[1:]}"
            return f"{start} is out of reach{of_plan}: {self.why}"
        levels = display.counted(self.n, self.facet)
        if self.within:
            levels += f" in each {self.within}"
        text = f"For {goal}, {levels} {'is' if self.n == 1 else 'are'} needed"
        if not (math.isnan(self.low) or math.isnan(self.high)):
            ends = f"{display.count(self.low)} to {display.count(self.high)}"
            text += f" ({display.level(self.alpha)}: {ends})"
        if self.held:
            others = ", ".join(f"{f} = {display.count(n)}" for f, n in self.held.items())
            text += f", with {others}"
        return f"{text}."


def required_size(
    components: VarianceComponents,
    source: IntervalSource,
    plan: DStudyPlan,
    *,
    negative: Projected,
    goal: float,
    coefficient: str,
    facet: str | None,
    alpha: float,
) -> Requirement:
    """Return the size of `facet` at which `coefficient` reaches `goal`.

    The error variance is A + B/n in the size n of the facet (of a finite universe A is negative
    where all levels leave no error), all others held at the sizes of the
    first plan (of the G-study's own plan at the G-study's sizes, not at the effective ones), so
    n = B/(τ(1 − π)/π − A) with universe-score variance τ and goal π; no size reaches the goal
    when A alone is too much. The interval is that of the F quantiles in a two-way design;
    elsewhere that of n as a ratio of two variances, by the method of the D-study.

    Parameters
    ----------
    components : of the G-study
    source : of the interval
    plan : of the D-study
    negative : how negative components are used, ``"zero"`` or ``"keep"``
    goal : between 0 and 1
    coefficient : ``"Erho2"`` or ``"Phi"``
    facet : may be None where only one has a size
    alpha : the interval has confidence 1 − alpha

    Raises
    ------
    PlanError
        The goal, coefficient or facet is not a possible one.

    References
    ----------
    Urbano, Marrero and Martín (2013), SIGIR, eq. (6), (7), (12) and (13).

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> study = from_components({"p": 1.0, "i": 2.0, "Residual": 8.0}).dstudy(i=10)
    >>> study.required(goal=0.8, coefficient="Phi").n
    40
    """
    facet = check_requirement(plan, goal, coefficient, facet)
    held = _held(components, plan, facet)
    universe, a, b, room = _forms(components, plan, goal, coefficient, facet)
    values = used_components(components, negative).values
    tau, A, B, D = (float(form @ values) for form in (universe, a, b, room))
    # a difference within rounding error of zero
    if D <= 1e-12 * A:
        D = 0.0
    n = _ceil(B / D) if D > 0 else math.inf
    why = "" if D > 0 else _why(tau, A, facet, plan.object)
    ends, interval_method = (math.nan, math.nan), ""
    two_way = _two_way_ends(components, plan, facet, coefficient, source.interval)
    if two_way is not None:
        table, interval_method = two_way
        interval = _feldt_ends if coefficient == "Erho2" else _arteaga_ends
        ends = interval(table, goal, alpha)
    elif b.any():
        limits = source.limits(Quantities("ratio", b[None, :], room[None, :]), alpha)
        ends, interval_method = (
            (_ceil(float(limits.low[0])), _ceil(float(limits.high[0]))),
            limits.interval_method,
        )
    largest = plan.universe.sizes.get(facet, math.inf)
    levels = f"all {display.counted(largest, facet)}"
    if n > largest and not why:
        why = f"not even {levels} are enough."
    elif n == largest < math.inf and plan.universe.holds_all(plan.facets, facet):
        n = math.inf
        why = f"{levels} are needed, and with them nothing is left to generalize over."
    # Sizes beyond a finite universe are impossible.
    n, low, high = (math.inf if size > largest else size for size in (n, *ends))
    within = outer_facets(facet, plan.design)
    return Requirement(
        coefficient, goal, facet, n, low, high, alpha, held, interval_method, why, within
    )


def outer_facets(facet: str, design: BrennanDesign) -> str:
    """Return the facets in which a facet is nested, in words; empty if it is not nested.

    Parameters
    ----------
    facet : of the design
    design : of the D-study

    Examples
    --------
    >>> from vcomp.formula import parse_design
    >>> outer_facets("judge", parse_design("run x (judge:(topic:genre))"))
    'topic'
    """
    if facet == REPLICATE:
        return ""
    above = design.innermost(design.nested_in[facet])
    return " and ".join(f for f in design.outer_first if f in above)


def check_requirement(plan: DStudyPlan, goal: float, coefficient: str, facet: str | None) -> str:
    """Return the facet whose size is required.

    Raises
    ------
    PlanError
        The goal, coefficient or facet is not a possible one.
    """
    _check(goal, coefficient)
    return free_facet(facet, plan)


def requirement_ratio(
    components: VarianceComponents, plan: DStudyPlan, goal: float, coefficient: str, facet: str
) -> Quantities:
    """Return the size n = B/(τ(1 − π)/π − A) that a coefficient needs as a ratio of components.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study, the first of which holds the other facets
    goal : π
    coefficient : ``"Erho2"`` or ``"Phi"``
    facet : whose size is required
    """
    _, _, b, room = _forms(components, plan, goal, coefficient, facet)
    return Quantities("ratio", b[None, :], room[None, :])


def _forms(
    components: VarianceComponents, plan: DStudyPlan, goal: float, coefficient: str, facet: str
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the weights of τ, A, B and of the margin τ(1 − π)/π − A for B/n."""
    held = _held(components, plan, facet)
    universe, a, b = _split(components, plan, coefficient, facet, held)
    return universe, a, b, universe * (1 - goal) / goal - a


def _held(components: VarianceComponents, plan: DStudyPlan, facet: str) -> dict[str, float]:
    # The G-study's own plan has effective sizes, which belong together: 33.7 documents per topic
    # with 1.4 topics. With another number of topics the G-study's actual sizes apply.
    sizes = components.sizes if plan.is_own and plan.inverse_n is not None else {}
    first = zip(plan.facets, plan.sizes[0].tolist(), strict=True)
    return {f: sizes.get(f, n) for f, n in first if f != facet}


def _two_way_ends(
    components: VarianceComponents, plan: DStudyPlan, facet: str, coefficient: str, interval: str
) -> tuple[TwoWayMeanSquares, str] | None:
    """Return the mean squares that give the interval from F quantiles, or None."""
    table = first_two_way(components, plan) if interval in ("auto", "f") else None
    if table is None or facet != table.columns:
        return None
    return table, F_INTERVALS[coefficient].words


def _split(
    components: VarianceComponents,
    plan: DStudyPlan,
    coefficient: str,
    facet: str,
    held: Mapping[str, float],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the weights of τ, A and B."""
    sizes = np.array([[held.get(f, 1.0) for f in plan.facets]])
    one = replace(plan, sizes=sizes, inverse_n=None, labels=None)
    roles, w = composition(components, one), weights(components, one)
    counts = roles.has_object if coefficient == "Erho2" else np.ones_like(roles.has_object)
    falls = roles.divides[:, plan.facets.index(facet)] & counts
    error = (w.relative if coefficient == "Erho2" else w.absolute)[0]
    # With one level the error is B - B/N'; the second part stays whatever the size.
    fraction = np.array(sampling_fractions(one)[0])
    inverse = np.array([1.0 / sizes[0, d].prod() for d in roles.divides])
    all_levels = np.array([fraction[d].prod() for d in roles.divides]) * inverse
    return w.universe[0], np.where(falls, -all_levels, error), np.where(falls, inverse, 0.0)


def _feldt_ends(table: TwoWayMeanSquares, goal: float, alpha: float) -> tuple[float, float]:
    # a coefficient's lower limit needs the most levels
    zetas = reversed(F_INTERVALS["Erho2"].limits(table, alpha))
    low, high = (_ceil(goal / (z * (1 - goal))) if z > 0 else math.inf for z in zetas)
    return low, high


def _arteaga_ends(table: TwoWayMeanSquares, goal: float, alpha: float) -> tuple[float, float]:
    lambdas = reversed(F_INTERVALS["Phi"].limits(table, alpha))
    low, high = (_ceil(goal * (1 - v) / (v * (1 - goal))) if v > 0 else math.inf for v in lambdas)
    return low, high


def _ceil(n: float) -> float:
    """Return the next whole number, at least 1; nan and infinity are unchanged."""
    if not math.isfinite(n):
        return math.nan if math.isnan(n) else n
    # 69 from exact arithmetic may come out as 69.0000000001 and must not become 70
    return max(1, math.ceil(n - 1e-9 * abs(n)))


def _why(universe: float, held_error: float, facet: str, object_: str) -> str:
    if universe <= 0:
        return f"the variance of {object_} is not estimated above zero."
    return (
        f"error variance {display.number(held_error)} does not fall with more "
        f"{display.levels_of(facet)}; plan more of the other facets."
    )


def _check(goal: float, coefficient: str) -> None:
    if coefficient not in list(SYMBOLS):
        raise PlanError(
            f"coefficient is 'Erho2' or 'Phi', not {coefficient!r}; sizes that an error needs are "
            "those of res.dstudy(…).required(goal, 'rel_err_var'), and for the accuracy of "
            "rankings write res.accuracy('tau').required('tau', 0.9)"
        )
    if not is_real(goal) or not 0 < goal < 1:
        raise PlanError(f"the goal of a coefficient must be between 0 and 1, not {goal!r}")


def free_facet(facet: str | None, plan: DStudyPlan) -> str:
    """Return the facet whose size is required, which may be left out if only one has a size.

    Parameters
    ----------
    facet : that was named, or None
    plan : of the D-study

    Raises
    ------
    PlanError
        If it is not known, fixed, or not the only one.
    """
    free = [f for f in plan.facets if f not in plan.universe.fixed]
    named = [f for f in free if f != REPLICATE] or free
    if facet is None and len(named) == 1:
        return named[0]
    if facet is None:
        raise PlanError(f"which facet's size is required? pass facet=, one of {named}")
    if facet not in plan.facets:
        raise PlanError(
            f"{facet!r} has no size in this D-study; facet= is one of {named}", column=facet
        )
    if facet in plan.universe.fixed:
        raise PlanError(
            f"{facet!r} is fixed: its planned levels are the whole universe, so no size is "
            "required",
            column=facet,
        )
    return facet


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
                "levels. Use res.bootstrap(), or replicates of another facet",
                column=name,
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
