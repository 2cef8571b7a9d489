"""MINQUE: minimum norm quadratic unbiased estimation at prior components (Rao 1971, 1972).

The estimates solve docs/explanation/mathematics.md, eq. (2.12). They are unbiased for any prior,
and have the least variance if the true components are proportional to the prior. With prior
components of zero for all terms the method is MIVQUE(0), with equal ones MINQUE(1). Iterated to a
fixed point, with estimates as the next prior, MINQUE solves the REML equations without a bound at
zero (I-MINQUE; Searle, Casella & McCulloch 1992, chapter 11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, cast

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.estimate import Certificate, Estimate, PointEstimate, Points
from vcomp.estimators.likelihood import EngineLimits, choose_engine, least_squares
from vcomp.estimators.options import check_ratios
from vcomp.estimators.quadratic.anova import without_rounding
from vcomp.estimators.quadratic.closed_form import (
    DIFFERENCES,
    fixed_effects,
    negative_components,
    no_variance,
    points_of,
)
from vcomp.estimators.quadratic.probed_priors import ProbedPriors
from vcomp.estimators.quadratic.spaces import (
    EngineForms,
    ExpectingEngine,
    PriorForms,
    Priors,
    SpaceContrasts,
)
from vcomp.exceptions import EstimationError
from vcomp.numerics import covariance_of_solution, is_positive, solve
from vcomp.statistics import Statistics

_DENSE_BELOW = 1500
"""Number of groups up to which the forms are computed with dense matrices."""

_TOLERANCE = 1e-10
"""Length of a step, in standard errors, at which the iteration ends."""

_NEWTON_BELOW = 0.05
"""Length of a step, in standard errors, below which Newton's steps are used."""

_POSITIVE = 1e-6
"""Eigenvalue of the information on a unit diagonal up to which Newton's steps are not used."""

_SAME = 1e-3
"""Length of a step, in standard errors, up to which prior and estimates count as equal."""

_STEPS = 200
_HALVINGS = 30


@dataclass(frozen=True, slots=True)
class MINQUE:
    """MINQUE at prior components; estimates may be negative.

    Attributes
    ----------
    prior : prior components, of which only the ratios matter: one number for all terms, with 1 for
        the residual (0 is MIVQUE(0), 1 is MINQUE(1)); a mapping from the names of all components;
        or a sequence in the order of the components, the residual last
    iterated : whether estimates become the next prior until convergence; a number ends the
        iteration after that many rounds (1 is MINQUE without iteration)

    Raises
    ------
    EstimationError
        If an option is invalid.
    """

    prior: Any = 1.0
    iterated: bool | int = False
    name: ClassVar[str] = "minque"

    def __post_init__(self) -> None:
        if not isinstance(self.iterated, bool | np.bool_) and not (
            isinstance(self.iterated, Integral) and self.iterated >= 1
        ):
            raise EstimationError(
                "iterated must be True, False or a number of rounds (at least 1), not "
                f"{self.iterated!r}"
            )
        if not isinstance(self.prior, Real | Mapping | Sequence | np.ndarray) and not hasattr(
            self.prior, "keys"
        ):
            raise EstimationError(_prior_is(self.prior))

    def estimate(
        self, stats: Statistics, names: tuple[str, ...], *, dense_below: int = _DENSE_BELOW
    ) -> Estimate:
        """Return the estimate from the statistics alone.

        Parameters
        ----------
        stats : sums of the data
        names : components, the residual last
        dense_below : number of groups up to which the forms are computed with dense matrices

        Raises
        ------
        EstimationError
            If the prior does not match the components, or an iteration reaches negative components
            and there are too many groups for these.
        """
        w = prior_components(self.prior, names)
        nothing = no_variance("minque", stats, names)
        if nothing is not None:
            return nothing
        priors = _priors(stats, dense_below)
        solved = self._solution(stats, priors, w)
        covariance = _covariance(priors, solved)
        return _labelled(stats, names, solved, covariance, given=not self._until_convergence)

    def prepared(self, stats: Statistics, names: tuple[str, ...]) -> Points:
        """Return the point estimates of responses of these rows, as a function of them.

        What does not depend on the response is computed once.

        Raises
        ------
        EstimationError
            As :meth:`estimate`.
        """
        w = prior_components(self.prior, names)
        once = not self._until_convergence and int(self.iterated) <= 1
        # Orthogonal strata give the equations at a prior that is not zero in less time.
        few = 0 if stats.strata is not None and w[:-1].any() else _DENSE_BELOW
        priors = _priors(stats, few) if once else None
        if priors is None or not (isinstance(priors, SpaceContrasts) or w[:-1].any()):
            return lambda responses: [self._point(s, names, w) for s in responses]
        # The equations do not depend on the response, nor the estimates on the unit of w.
        forms = _forms(priors, w / w.sum())

        def of(responses: Sequence[Statistics]) -> list[PointEstimate]:
            rights = priors.rights(forms.w, responses)
            solved = [_solution(replace(forms, right=q)) for q in rights]
            return points_of(responses, [without_rounding(v, DIFFERENCES) for v in solved])

        return of

    def _point(self, stats: Statistics, names: tuple[str, ...], w: FloatArray) -> PointEstimate:
        if no_variance("minque", stats, names) is not None:
            return points_of([stats], [np.zeros_like(w)])[0]
        solved = self._solution(stats, _priors(stats), w)
        is_end = solved.is_end(given=not self._until_convergence)
        values = without_rounding(solved.values, DIFFERENCES)
        return replace(points_of([stats], [values])[0], converged=is_end)

    @property
    def _until_convergence(self) -> bool:
        return isinstance(self.iterated, bool | np.bool_) and bool(self.iterated)

    def _solution(self, stats: Statistics, priors: Priors, w: FloatArray) -> _Solved:
        w = w * (least_squares(stats)[1] / (stats.n - stats.Xy.size) / w.sum())
        return _solved(priors, w, None if self._until_convergence else int(self.iterated) or 1)


def prior_components(prior: Any, names: tuple[str, ...]) -> FloatArray:
    """Return the prior components in order, the residual last.

    Raises
    ------
    EstimationError
        If a component is missing or not in the model, or a value is negative or not finite, or
        that of the residual is zero.
    """
    if hasattr(prior, "keys"):
        _check_names([str(key) for key in prior.keys()], names)  # noqa: SIM118 - a Series too
        prior = [prior[name] for name in names]
    try:
        w = np.array(prior, dtype=np.float64)
    except (TypeError, ValueError):
        raise EstimationError(_prior_is(prior)) from None
    if w.ndim == 0:
        w = np.append(np.full(len(names) - 1, float(w)), 1.0)
    if w.shape != (len(names),):
        raise EstimationError(
            f"prior has shape {w.shape}, but there are {len(names)} components, in the order "
            f"{', '.join(names)}"
        )
    for name, value in zip(names, w, strict=True):
        if not np.isfinite(value) or value < 0.0:
            raise EstimationError(
                f"the prior component of {name} is {value}: it must be finite and not negative",
                term=name,
            )
    if w[-1] == 0.0:
        raise EstimationError(
            f"the prior component of {names[-1]} is 0: without it the prior covariance matrix is "
            "singular; give it a positive value",
            term=name,
        )
    check_ratios(w, names, "prior")
    return w


def _check_names(given: list[str], names: tuple[str, ...]) -> None:
    for name in given:
        if name not in names:
            raise EstimationError(
                f"prior names component {name!r}, which is not in the model; components are "
                f"{', '.join(names)}",
                term=name,
            )
    for name in names:
        if name not in given:
            raise EstimationError(
                f"prior has no component {name!r}; give one for each of {', '.join(names)}",
                term=name,
            )


def _prior_is(prior: Any) -> str:
    return (
        "prior must be a number, a mapping from component names, or a sequence in their order, "
        f"the residual last, not {prior!r}"
    )


@dataclass(frozen=True, slots=True)
class _Solved:
    """The result of the rounds: estimates, the equations that they solve, and the last step."""

    values: FloatArray
    forms: PriorForms | None  # None if an engine computed MIVQUE(0), without these forms
    rounds: int
    step: float  # length in standard errors
    trapped: bool  # no further step keeps the covariance matrix positive definite

    def is_end(self, *, given: bool) -> bool:
        """Whether this is the requested estimate; `given` if a number of rounds was requested."""
        return not self.trapped and (given or self.step <= _TOLERANCE)

    def status(self, *, given: bool) -> str:
        """Return a sentence without its full stop; `given` as in :meth:`is_end`."""
        if self.trapped:
            return (
                "Not converged: no further step keeps the covariance matrix positive definite "
                f"(last step {self.step:.1e} standard errors)"
            )
        if given:
            return "Closed form" if self.rounds == 1 else f"{self.rounds} rounds, as requested"
        if self.step <= _TOLERANCE:
            return "Converged"
        return (
            f"Not converged: the limit of {_STEPS} rounds was reached (last step {self.step:.1e} "
            "standard errors)"
        )


_NO_ERRORS = (
    " No standard errors: with so many groups they are not computed for estimates at a given "
    "prior; res.bootstrap() gives them by simulation, iterated=True and method='reml' directly."
)


_PROBED = (
    " With so many groups the expectations of the quadratic forms are Monte Carlo estimates; "
    "their errors are next to the components."
)

_LIMITS = EngineLimits()


def _priors(
    stats: Statistics,
    dense_below: int = _DENSE_BELOW,
    limits: EngineLimits = _LIMITS,
) -> Priors:
    if sum(stats.sizes) <= dense_below:
        return SpaceContrasts(stats.cross_products)
    engine = choose_engine(stats, reml=True, limits=limits)
    if "expected" in engine.kinds:
        expecting = cast(ExpectingEngine, engine)
        return EngineForms(expecting, lambda s: cast(ExpectingEngine, engine.with_response(s)))
    return ProbedPriors(stats.cross_products, free_bytes=limits.free_bytes)


def _solved(priors: Priors, w: FloatArray, rounds: int | None) -> _Solved:
    """Solve the equations `rounds` times from prior `w`; until convergence if None."""
    if isinstance(priors, EngineForms | ProbedPriors) and not w[:-1].any():
        # Engines compute the MIVQUE(0) estimates, but not the information at that prior.
        first = priors.mivque0()
        if rounds == 1:
            return _Solved(first, None, 1, np.inf, trapped=False)
        if rounds is None:
            return _iterated(priors, np.maximum(first, 0.01 * w[-1] / w.size))
        _refuse_negative(first)
        later = _rounds(priors, first, rounds - 1)
        return replace(later, rounds=later.rounds + 1)
    return _iterated(priors, w) if rounds is None else _rounds(priors, w, rounds)


def _rounds(priors: Priors, w: FloatArray, limit: int) -> _Solved:
    """Solve the equations `limit` times: at `w`, then each time at the last solution."""
    forms = _forms(priors, w)
    for done in range(1, limit + 1):
        values = _solution(forms)
        step = _length(forms, values - forms.w)
        following = _next(priors, forms.w, values) if done < limit else None
        if following is None:
            break
        forms = following
    return _Solved(values, forms, done, step, done < limit)


def _iterated(priors: Priors, w: FloatArray) -> _Solved:
    """Solve until convergence, near the end by Newton's steps, which have the same fixed point."""
    forms, previous = _forms(priors, w), np.inf
    for done in range(1, _STEPS + 1):
        values = _solution(forms)
        step = _length(forms, values - forms.w)
        if step < _NEWTON_BELOW and is_positive(forms.information, _POSITIVE):
            score = 0.5 * (forms.right - forms.matrix @ forms.w)
            values = forms.w + solve(forms.information, score)
            step = _length(forms, values - forms.w)
            # A small Newton step that no longer shrinks is rounding error.
            if step < 1e-6 and step > 0.2 * previous:
                step = min(step, _TOLERANCE)
            previous = step
        if step <= _TOLERANCE or done == _STEPS:
            break
        following = _next(priors, forms.w, values)
        if following is None:
            break
        forms = following
    trapped = step > _TOLERANCE and done < _STEPS
    return _Solved(values, forms, done, step, trapped)


def _certificate(names: tuple[str, ...], found: _Solved) -> Certificate:
    """Return the certificate that the REML equations without bounds are solved."""
    forms = found.forms
    assert forms is not None
    score = 0.5 * (forms.right - forms.matrix @ forms.w)
    scale = np.sqrt(np.abs(np.diagonal(forms.information)))
    eigenvalues = np.linalg.eigvalsh(forms.information / np.outer(scale, scale))
    return Certificate(
        free=names,
        bounded=(),
        bound_scores={},
        kkt_residual=float(np.abs(forms.w * score).max()),
        newton_decrement=found.step,
        information_eigenvalues=tuple(float(e) for e in eigenvalues),
        iterations=found.rounds,
        evaluations=found.rounds,
        at_maximum=found.step <= _TOLERANCE and bool(eigenvalues[0] > 0.0),
        tolerance=_TOLERANCE,
        engine="minque",
        reason="quadratic forms at the last estimates, without bounds",
    )


def _forms(priors: Priors, w: FloatArray) -> PriorForms:
    try:
        return priors.at(w)
    except np.linalg.LinAlgError:
        raise EstimationError(
            "the covariance matrix at this prior is singular up to rounding error: give the "
            "residual a larger prior component"
        ) from None


def _solution(forms: PriorForms) -> FloatArray:
    try:
        return forms.solution
    except np.linalg.LinAlgError:
        raise EstimationError(
            "MINQUE cannot distinguish these components at this prior: its equations are "
            "linearly dependent; use method='reml'"
        ) from None


def _length(forms: PriorForms, step: FloatArray) -> float:
    """Return the length of a step in standard errors; the information is half the matrix."""
    return float(np.sqrt(max(float(0.5 * step @ forms.matrix @ step), 0.0)))


def _next(priors: Priors, w: FloatArray, values: FloatArray) -> PriorForms | None:
    """Return the forms at the next prior, the step halved until V is positive definite there.

    None if no fraction of the step leads to a positive definite V.
    """
    if not isinstance(priors, SpaceContrasts):
        _refuse_negative(values)
    fraction = 1.0
    for _ in range(_HALVINGS):
        trial = w + fraction * (values - w)
        try:
            return priors.at(trial)
        except np.linalg.LinAlgError:
            fraction *= 0.5
    return None


def _refuse_negative(values: FloatArray) -> None:
    if (values < 0.0).any():
        raise EstimationError(
            "iterated MINQUE reaches negative components, but with so many groups it is computed "
            "for non-negative ones only; use method='reml', which bounds them at zero"
        )


def _covariance(priors: Priors, found: _Solved) -> FloatArray | None:
    """Return the covariance matrix of the estimates, eq. (2.13); None if it is not computed."""
    forms = found.forms
    if forms is None:
        return None
    covariance = priors.covariance(forms, found.values)
    if covariance is None:
        if found.step > _SAME:
            return None
        covariance = 2.0 * forms.matrix
    return covariance_of_solution(forms.matrix, covariance)


def _labelled(
    stats: Statistics,
    names: tuple[str, ...],
    found: _Solved,
    covariance: FloatArray | None,
    *,
    given: bool,
) -> Estimate:
    values = without_rounding(found.values, DIFFERENCES)
    fixed = fixed_effects(stats, values)
    doubt = f"{_NO_ERRORS if covariance is None else ''}{fixed.doubt}"
    nothing = np.full((found.values.size, found.values.size), np.nan)
    errors = None if found.forms is None else found.forms.monte_carlo
    probed = "" if errors is None else _PROBED
    negative = negative_components(names, values)
    return Estimate(
        method="minque",
        names=names,
        values=values,
        covariances={"sampling": nothing if covariance is None else covariance},
        beta=fixed.beta,
        cov_beta=fixed.cov_beta,
        llf=np.nan,
        converged=found.is_end(given=given),
        status=f"{found.status(given=given)}{negative}.{probed}{doubt}",
        engine="closed form: quadratic forms and their expectations",
        monte_carlo={} if errors is None else dict(zip(names, errors.tolist(), strict=True)),
        certificate=None if given else _certificate(names, found),
        fixed_errors=fixed.errors,
    )
