"""Any quantity that is made of components: estimate, standard error, interval, by one mechanism.

A quantity is a component, a sum or ratio of components, what a D-study projects, or a function
that the user writes; :mod:`vcomp.inference` has the intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError, PlanError, check_alpha
from vcomp.gtheory.exact_limits import planned_limits
from vcomp.gtheory.plan import DStudyPlan, make_plans
from vcomp.gtheory.projection import PLANNED, planned_quantity, weights
from vcomp.gtheory.requirement import check_requirement, required_size, requirement_ratio
from vcomp.inference import (
    EstimatedQuantity,
    Quantities,
    Smooth,
    VarianceComponents,
    read_quantity,
    smooth_of,
)
from vcomp.inference.intervals import FromComponents, IntervalSource, Limits

__all__ = [
    "DSTUDY_QUANTITIES",
    "NO_MEAN",
    "Asked",
    "MeanOfScores",
    "check_mean",
    "estimate_quantity",
    "phi_lambda",
    "read_cuts",
]


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
    cov_beta: FloatArray
    is_mean: bool


NO_MEAN = MeanOfScores(np.zeros(0), np.zeros((0, 0)), is_mean=False)
"""Of what has no known mean."""


def phi_lambda(
    universe: FloatArray, absolute: FloatArray, mean: MeanOfScores, cut: float
) -> Smooth:
    """Return Φ(λ) = (σ²(τ) + (μ − λ)²)/(σ²(τ) + (μ − λ)² + σ²(Δ)) as a function of estimates.

    (μ − λ)² is estimated by (X̄ − λ)² less the variance of X̄, or 0 where that is more.

    Parameters
    ----------
    universe, absolute : (k,) weights of the components in σ²(τ) and σ²(Δ)
    mean : of the scores
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
            "part is one constant, or published components with mean= and sizes="
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
        if not isinstance(one, Real) or isinstance(one, bool) or not np.isfinite(float(one)):
            raise PlanError(f"Φ(λ) needs the cut score λ as a finite number, cut=…; not {one!r}")
    if not cuts:
        raise PlanError("there is no cut score λ: cut= is empty")
    return [float(one) for one in cuts]


DSTUDY_QUANTITIES = (*PLANNED, "Phi_lambda", "n")
"""Names of quantities that need a plan."""

_OPTIONS = {"n": ("target", "coefficient", "facet"), "Phi_lambda": ("cut",)}


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a quantity beside its name; see :func:`estimate_quantity`."""

    design: str | None = None
    object: str | Sequence[str] | None = None
    sizes: Mapping[str, Any] | None = None
    negative: str | None = None
    target: float | None = None
    coefficient: str | None = None
    facet: str | None = None
    cut: float | None = None
    fixed: str | Sequence[str] = ()
    universe: Mapping[str, float] | None = None
    within: str | Sequence[str] = ()

    @property
    def has_plan(self) -> bool:
        """Whether anything of a plan is given."""
        named = self.design is not None or self.object is not None
        return named or bool(self.sizes or self.fixed or self.universe or self.within)


def estimate_quantity(
    components: VarianceComponents,
    what: str | Callable[..., Any],
    source_of: Callable[[str], IntervalSource],
    mean: MeanOfScores,
    asked: Asked,
    alpha: float,
) -> EstimatedQuantity:
    """Return estimate, standard error and interval of a quantity.

    Parameters
    ----------
    components : of the G-study
    what : a component; a sum of components, a ratio of such sums, or a root, see
        :func:`~vcomp.inference.expression.read_quantity`; one of :data:`DSTUDY_QUANTITIES`; or
        a function of a Series of the components
    source_of : makes what gives the intervals from a policy for negative estimates
    mean : of the scores
    asked : plan and options
    alpha : the interval has confidence 1 − alpha

    Raises
    ------
    EstimationError
        If the quantity is not known, or the method has no interval of it.
    PlanError
        If the plan cannot be, is more than one, or an option is not one of the quantity.
    """
    check_alpha(alpha)
    given = {k: getattr(asked, k) for k in ("target", "coefficient", "facet", "cut")}
    allowed = _OPTIONS.get(what, ()) if isinstance(what, str) else ()
    strange = [k for k, value in given.items() if value is not None and k not in allowed]
    if strange:
        homes = {k: name for name, options in _OPTIONS.items() for k in options}
        home = homes[strange[0]]
        taken = f"; {home!r} is a component here" if home in components.names else ""
        raise PlanError(f"{strange[0]}= is an option of {home!r}, not of {what!r}{taken}")
    if isinstance(what, str) and what in DSTUDY_QUANTITIES and what not in components.names:
        return _of_plan(components, what, source_of(asked.negative or "zero"), mean, asked, alpha)
    if asked.has_plan:
        names = [name for name in DSTUDY_QUANTITIES if name not in components.names]
        raise PlanError(
            f"{what!r} needs no plan: design=, object=, fixed=, universe=, within= and sizes are "
            f"for {', '.join(names)}"
        )
    if isinstance(what, str):
        quantity = read_quantity(what, components.names, DSTUDY_QUANTITIES)
        # Shares lie between 0 and 1, as those of the tables do.
        policy = asked.negative or ("zero" if quantity.form == "share" else "keep")
        local = _local(components, mean, asked, policy)
        return _estimated(what, quantity, source_of(policy), local, alpha)
    source, local = source_of(asked.negative or "keep"), _local(components, mean, asked, "keep")
    if not callable(what):
        raise EstimationError(
            f"a quantity is a text such as 'sys / total', or a function of the components; not "
            f"{what!r}"
        )
    name = getattr(what, "__name__", "function").replace("<lambda>", "function")
    return _estimated(name, smooth_of(what, components.names), source, local, alpha)


def _local(
    components: VarianceComponents, mean: MeanOfScores, asked: Asked, default: str
) -> FromComponents:
    negative = asked.negative or default
    return FromComponents(components, "auto", negative, mean.beta, mean.cov_beta)


def _estimated(
    name: str, q: Quantities | Smooth, source: IntervalSource, local: FromComponents, alpha: float
) -> EstimatedQuantity:
    """Return a quantity with its interval."""
    value, se = float(local.values(q)[0]), float(local.standard_errors(q)[0])
    if np.isnan(value):
        raise EstimationError(
            f"{name} is not defined at these estimates: a denominator is zero or negative, or "
            "there is a root of a negative number"
        )
    if isinstance(q, Quantities) and _is_held(q, local.components):
        held = ("no error: it is held, not estimated",)
        return EstimatedQuantity(name, value, np.nan, np.nan, np.nan, alpha, "", held)
    found = source.limits(q, alpha)
    low, high = float(found.low[0]), float(found.high[0])
    notes = [*found.notes, *_taken_as_zero(q, local)]
    if np.isnan(low):
        notes.append(
            "no interval: what it depends on has no standard error, or the covariance matrix of "
            "the components is not known"
        )
    elif np.isnan(se):
        notes.append(
            "no standard error: a component that it rests on is at its bound, or taken so"
        )
    return EstimatedQuantity(name, value, se, low, high, alpha, found.method, tuple(notes))


def _is_held(q: Quantities, components: VarianceComponents) -> bool:
    used = q.used[0]
    held = np.isin(np.array(components.names, dtype=object), list(components.held))
    return bool(used.any() and held[used].all())


def _taken_as_zero(q: Quantities | Smooth, local: FromComponents) -> list[str]:
    """Say which negative estimates a quantity takes as zero."""
    names = local.components.names
    used = q.used[0] if isinstance(q, Quantities) else np.ones(len(names), dtype=bool)
    zeroed = [
        f"σ²({n})" for n, u in zip(names, used, strict=True) if u and n in local.used.zeroed
    ]
    return [f"{', '.join(zeroed)} below zero taken as 0"] if zeroed else []


def _of_plan(
    components: VarianceComponents,
    what: str,
    source: IntervalSource,
    mean: MeanOfScores,
    asked: Asked,
    alpha: float,
) -> EstimatedQuantity:
    plan = make_plans(
        components,
        asked.design,
        asked.object,
        asked.sizes,
        fixed=asked.fixed,
        universe=asked.universe,
        within=asked.within,
    )
    if len(plan) > 1:
        raise PlanError(
            f"{what!r} is estimated for one plan, and these sizes make {len(plan)}; use "
            "dstudy(…).table for several"
        )
    local = _local(components, mean, asked, "zero")
    if what == "n":
        return _required(components, plan, source, local, asked, alpha)
    if what == "Phi_lambda":
        w, cuts = weights(components, plan), read_cuts(asked.cut)
        if len(cuts) > 1:
            raise PlanError(
                f"{what!r} is estimated for one cut score, and cut= has {len(cuts)}; use "
                "dstudy(…).phi_lambda(cut) for several"
            )
        made = phi_lambda(w.universe[0], w.absolute[0], mean, cuts[0])
        return _estimated(what, made, source, local, alpha)
    q = planned_quantity(weights(components, plan), what)
    found = planned_limits(what, q, components, plan, source, alpha)
    return _estimated(what, q, _Fixed(found), local, alpha)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """An interval that is there already."""

    found: Limits
    method: str = "f"

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        return self.found


def _required(
    components: VarianceComponents,
    plan: DStudyPlan,
    source: IntervalSource,
    local: FromComponents,
    asked: Asked,
    alpha: float,
) -> EstimatedQuantity:
    """Return the size of a facet that a coefficient needs, not rounded up."""
    target = 0.95 if asked.target is None else asked.target
    coefficient = asked.coefficient or "Erho2"
    facet = check_requirement(plan, target, coefficient, asked.facet)
    ratio = requirement_ratio(components, plan, target, coefficient, facet)
    found = required_size(
        components,
        source,
        plan,
        negative=local.negative,
        target=target,
        coefficient=coefficient,
        facet=facet,
        alpha=alpha,
    )
    if found.why:
        notes = (f"out of reach: {found.why}",)
        return EstimatedQuantity(
            "n", found.n, np.nan, found.low, found.high, alpha, found.method, notes
        )
    value, se = float(local.values(ratio)[0]), float(local.standard_errors(ratio)[0])
    notes = (f"levels of {facet} for {coefficient} = {target}: {display.count(found.n)}",)
    return EstimatedQuantity("n", value, se, found.low, found.high, alpha, found.method, notes)
