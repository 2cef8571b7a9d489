"""The result of an estimation: components, fixed effects, their covariances, the certificate.

Every estimator returns an :class:`Estimate`; inference and results work on it alone. Those of
closed forms report negative components in their status, and with ``negative="refit"`` terms are
dropped: ``model`` and ``inference`` call the refits (mathematics, section 2.3).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, Json
from vcomp.codec import from_plain, stored
from vcomp.exceptions import EstimationError
from vcomp.formula import RESIDUAL, WIDE
from vcomp.numerics import solve_positive
from vcomp.statistics import Statistics

_STORED = 20_000
"""Largest number of elements of the slopes that a file stores."""


def _few_slopes(slopes: FloatArray) -> FloatArray | None:
    """Return the slopes that a file stores: None if they are unknown or too large."""
    return None if slopes.size > _STORED or not np.isfinite(slopes).all() else slopes


def _formed(cov_beta: Any) -> FloatArray:
    """Return the covariance matrix that a file stores."""
    if isinstance(cov_beta, np.ndarray):
        return cov_beta
    if len(cov_beta) > WIDE.formed:
        raise EstimationError(
            f"the covariance matrix of {len(cov_beta):,} fixed effects is not formed, and results "
            "are not stored without it; store tables, such as res.tidy(), or fit the factor as a "
            "random term"
        )
    return cov_beta.toarray()


@dataclass(frozen=True, slots=True)
class FixedErrors:
    """Degrees of freedom of the fixed effects, and the derivatives of their covariance matrix.

    Attributes
    ----------
    slopes : (k + 1, p, p) ∂Cov(β̂)/∂σ²_t, on the scale of ``cov_beta``; None in a stored result
        if they are too large
    df : (p,) Satterthwaite's degrees of freedom (docs/explanation/mathematics.md, eq. (11.5)): ∞
        if all components are known, nan if the covariance of the components is unknown, empty
        until the fixed effects have been transformed to the scale of the data
    keeps_negative : whether the covariance matrix is that of negative components as estimated,
        not of zero in their place
    """

    slopes: FloatArray | None = field(metadata=stored(write=_few_slopes))
    df: FloatArray
    keeps_negative: bool = False


StepKind: TypeAlias = Literal["start", "scale", "AI", "Newton", "Fisher", "EM", "probes"]


@dataclass(frozen=True, slots=True)
class Iteration:
    """One point of an iteration.

    Attributes
    ----------
    step : the kind of step that led here: ``"start"``, ``"scale"`` (all components by one
        factor), ``"AI"``, ``"Newton"``, ``"Fisher"``, ``"EM"``, or ``"probes"`` (the same
        components with all random probes, after a climb with few of them)
    fraction : the part of the full step that was used; nan at the start
    loglike : log-likelihood; nan if the engine does not compute it during the iteration
    newton_decrement : estimated distance to the maximum in standard errors
    kkt_residual : see :class:`~vcomp.estimators.Certificate`
    n_bound : components at zero
    components : (k + 1,) their values
    """

    step: StepKind
    fraction: float
    loglike: float
    newton_decrement: float
    kkt_residual: float
    n_bound: int
    components: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Maximum:
    """The result of a maximisation.

    Attributes
    ----------
    v : (k + 1,) components
    loglike, score : log-likelihood and its gradient at `v`
    held : (k + 1,) held components
    newton_decrement, kkt_residual : violations of the conditions of a maximum, section 6.2
    converged : the decrement fell below the tolerance, or to its rounding error (at most 1e-4)
    at_limit : the limit of steps was reached
    evaluations : number of evaluations of the likelihood
    log : the points of the iteration, the start first
    others : log-likelihood and components of the other known maxima, the highest first
    iterations : number of steps
    saturated : whether the likelihood rises above this maximum, or to it, as the residual goes to
        zero
    engine : of the last evaluation, from which its solves start
    """

    v: FloatArray
    loglike: float
    score: FloatArray
    held: BoolArray
    newton_decrement: float
    kkt_residual: float
    converged: bool
    at_limit: bool
    evaluations: int
    log: tuple[Iteration, ...]
    others: tuple[tuple[float, FloatArray], ...]
    iterations: int
    saturated: bool
    engine: Any = field(default=None, repr=False)


_LINE = 92


@dataclass(frozen=True, slots=True)
class OtherMaximum:
    """A maximum of the likelihood that is lower than the reported one.

    Attributes
    ----------
    drop : by how much its log-likelihood is lower
    components : the components there
    """

    drop: float
    components: Mapping[str, float]

    def __str__(self) -> str:
        values = ", ".join(f"σ²({n}) = {display.number(v, 3)}" for n, v in self.components.items())
        return f"{display.number(self.drop, 2)} lower, at {values}"


@dataclass(frozen=True, slots=True, repr=False)
class Certificate:
    """The numbers that show that an iteration ended at a maximum; they print as sentences.

    The conditions are those of docs/explanation/mathematics.md, section 6.2.

    Attributes
    ----------
    free : components estimated above zero
    bounded : components estimated at their bound, zero
    bound_scores : the likelihood score of each bounded component; negative means that the
        likelihood decreases as the component increases from zero
    kkt_residual : the largest violation of the first-order conditions, eq. (6.2). Scores are
        multiplied by their component (by the total variance at a bound), so that it has no unit
    newton_decrement : √(s' I⁻¹ s) on the free components: the distance to the maximum in
        standard errors
    information_eigenvalues : eigenvalues of the information of the free components, scaled to a
        unit diagonal; all positive at a strict maximum
    iterations, evaluations : number of steps, and of evaluations of the likelihood
    at_maximum : whether these numbers show a maximum
    held : components that were given and not estimated
    information : the information that gives the eigenvalues and standard errors, ``"observed"`` or
        ``"average"``
    flat : combinations of components along which the likelihood is flat, in words
    tolerance : the requested Newton decrement; at a maximum, a larger decrement means that
        rounding error ended the iteration
    engine, reason : the engine that computed the likelihood, and why it was chosen
    seconds : time of each stage
    others : other maxima of the likelihood whose logarithm is at most 2 lower, the highest first:
        the data do not exclude them
    saturated : whether the likelihood rises as the residual goes to zero, so that it has no
        maximum
    """

    free: tuple[str, ...]
    bounded: tuple[str, ...]
    bound_scores: Mapping[str, float]
    kkt_residual: float
    newton_decrement: float
    information_eigenvalues: tuple[float, ...]
    iterations: int
    evaluations: int
    at_maximum: bool = True
    held: tuple[str, ...] = ()
    information: str = "observed"
    flat: tuple[str, ...] = ()
    tolerance: float = 1e-10
    engine: str = ""
    reason: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    others: tuple[OtherMaximum, ...] = ()
    saturated: bool = False

    def __repr__(self) -> str:
        lines = [self._ending(), self._components(), self._information()]
        lines += [*(f"Another maximum is {other}." for other in self.others), self._effort()]
        if self.engine:
            lines.append(f"Engine: {self.engine} ({self.reason}).")
        return "\n".join(textwrap.fill(x, _LINE, subsequent_indent="  ") for x in lines if x)

    def _ending(self) -> str:
        what = "At a maximum" if self.at_maximum else "NOT shown to be a maximum"
        tolerance = f"tolerance {display.number(self.tolerance, 2)}"
        if self.at_maximum and self.newton_decrement > self.tolerance:
            tolerance += ", ended by rounding error"
        return (
            f"{what}: Newton decrement {display.number(self.newton_decrement, 2)} standard errors "
            f"({tolerance}), first-order residual {display.number(self.kkt_residual, 2)}."
        )

    def _components(self) -> str:
        parts = [f"free: {', '.join(self.free)}" if self.free else "none is free"]
        if self.bounded:
            scores = ", ".join(
                f"{name} (derivative {display.number(score, 3)})"
                for name, score in self.bound_scores.items()
            )
            parts.append(f"at the bound 0: {scores}")
        if self.held:
            parts.append(f"held: {', '.join(self.held)}")
        return f"Components: {'; '.join(parts)}."

    def _information(self) -> str:
        if not self.information_eigenvalues:
            return ""
        least, most = min(self.information_eigenvalues), max(self.information_eigenvalues)
        verdict = "positive definite" if least > 0.0 else "NOT positive definite"
        text = (
            f"{self.information.capitalize()} information of the free components: {verdict} "
            f"(eigenvalues {display.number(least, 3)} to {display.number(most, 3)} on a unit "
            "diagonal)."
        )
        return f"{text} Flat along {'; '.join(self.flat)}." if self.flat else text

    def _effort(self) -> str:
        text = f"{_counted(self.iterations, 'step')}, {_counted(self.evaluations, 'evaluation')}"
        if not self.seconds:
            return f"{text}."
        stages = ", ".join(
            f"{stage} {display.number(seconds, 2)}" for stage, seconds in self.seconds.items()
        )
        return f"{text}, {display.number(sum(self.seconds.values()), 2)} s ({stages})."


def _counted(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class PointEstimate:
    """Point estimates without standard errors, for refits to resamples.

    Attributes
    ----------
    values : (k + 1,) components, the residual last
    beta : (p,) fixed effects of the columns of X as they are in the statistics
    converged : False if an iteration ended before it reached the estimate that the method defines
    """

    values: FloatArray
    beta: FloatArray
    converged: bool = True


Points: TypeAlias = Callable[[Sequence[Statistics]], list[PointEstimate]]
"""Returns the point estimates of responses of the same rows."""


def _certificate(plain: Json, estimate: Json) -> Certificate:
    """Return a stored certificate; format 1 has ``at_maximum`` only as ``converged``."""
    return from_plain(Certificate, {"at_maximum": estimate["converged"], **plain})


@dataclass(frozen=True, slots=True)
class Estimate:
    """Variance components and fixed effects of one method.

    Attributes
    ----------
    method : name of the method, such as ``"reml"``
    names : the components, the residual last
    values : (k + 1,) their estimates
    covariances : covariance matrices of the estimates by kind: ``"observed"``, ``"expected"`` and
        ``"average"`` for likelihood methods, ``"sampling"`` for closed forms; nan for components
        that are at their bound or held. The first one gives the standard errors
    beta, cov_beta : fixed effects (of X as in the data, not centred) and their covariance matrix
    llf : log-likelihood; nan for closed forms
    converged : False if an iteration ended before it reached the estimate that the method defines
    status : a sentence on convergence
    engine : the engine that computed it, and why it was chosen
    certificate : evidence of a maximum for likelihood methods and iterated MINQUE, else None
    held : components that were given, not estimated
    log : the points of the iteration, from the start on; empty for closed forms
    seconds : time of each stage
    monte_carlo : Monte Carlo standard error of each component, eq. (8.6); empty if the engine has
        no random probes
    llf_error : Monte Carlo standard error of the log-likelihood
    covariance_error : relative Monte Carlo error of each component's standard error, if the
        covariance matrix is estimated by probes; empty if it is exact
    fixed_errors : degrees of freedom of the fixed effects; None if there are none
    without_bounds : if components are at their bound, the estimates without bounds, eq. (6.3), and
        their covariance matrix; else None
    """

    method: str
    names: tuple[str, ...]
    values: FloatArray
    covariances: dict[str, FloatArray] = field(metadata=stored(shape=("names", "names")))
    beta: FloatArray
    cov_beta: FloatArray = field(metadata=stored(shape=("beta", "beta"), write=_formed))
    llf: float
    converged: bool
    status: str
    engine: str
    certificate: Certificate | None = field(default=None, metadata=stored(read=_certificate))
    held: tuple[str, ...] = ()
    log: tuple[Iteration, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    monte_carlo: Mapping[str, float] = field(default_factory=dict)
    llf_error: float = 0.0
    covariance_error: Mapping[str, float] = field(default_factory=dict)
    without_bounds: tuple[FloatArray, FloatArray] | None = field(
        default=None, metadata=stored(keys=("values", "cov"))
    )
    fixed_errors: FixedErrors | None = None

    def with_seconds(self, stages: Mapping[str, float]) -> Estimate:
        """Return the same estimate with the times of earlier stages added."""
        seconds, certificate = {**stages, **self.seconds}, self.certificate
        if certificate is not None:
            certificate = replace(certificate, seconds=seconds)
        return replace(self, seconds=seconds, certificate=certificate)


# Negative estimates ------------------------------------------------------------------------------

Negative: TypeAlias = Literal["keep", "refit"]


_Found = TypeVar("_Found", bound=Estimate | PointEstimate)


def below_zero(names: Sequence[str], values: FloatArray) -> str:
    """Return a clause that names the components estimated below zero, empty without any.

    Examples
    --------
    >>> below_zero(["a", "b"], np.array([-0.1, 2.0]))
    'σ²(a) is estimated below zero'
    """
    negative = [f"σ²({name})" for name, value in zip(names, values, strict=True) if value < 0.0]
    verb = "is" if len(negative) == 1 else "are"
    return f"{', '.join(negative)} {verb} estimated below zero" if negative else ""


def refit_without_negative(
    first: Estimate, stats: Statistics, estimate: Callable[[tuple[int, ...]], Estimate]
) -> Estimate:
    """Return the estimate after dropping terms, the most negative first, until none is negative.

    Parameters
    ----------
    first : estimate of all terms
    stats : sums of the data
    estimate : returns the estimate of a model with the terms at the given positions, at least one

    Returns
    -------
    Estimate of all components: those of dropped terms are 0, without a standard error, and the
    status names them with their negative estimates. A negative residual is kept, as the residual
    cannot be dropped.

    References
    ----------
    Brennan (2001), Generalizability Theory, sec. 3.4 on negative estimates; Searle, Casella and
    McCulloch (1992), Variance Components, sec. 4.4e.
    """

    def of_terms(terms: tuple[int, ...]) -> Estimate:
        return estimate(terms) if terms else _residual_alone(first.method, stats)

    last, kept, dropped = _drop_negative(first, of_terms)
    if not dropped:
        return first
    listed = (f"σ²({first.names[t]}) (was {display.number(was)})" for t, was in dropped.items())
    places = np.array([*kept, first.values.size - 1])
    values = np.zeros_like(first.values)
    values[places] = last.values
    return replace(
        last,
        names=first.names,
        values=values,
        # The derivatives are known for the components of the kept terms only.
        fixed_errors=None,
        covariances={
            kind: _spread(covariance, places, values.size)
            for kind, covariance in last.covariances.items()
        },
        status=f"{last.status} Terms with negative estimates were dropped, and the others "
        f"estimated again: {', '.join(listed)}.",
    )


def point_without_negative(
    prepared: Callable[[Statistics, tuple[str, ...]], Points],
    stats: Statistics,
    names: tuple[str, ...],
) -> PointEstimate:
    """Return point estimates after dropping terms as :func:`refit_without_negative` does.

    Parameters
    ----------
    prepared : of the method, see ``ClosedForm``
    stats : sums of the data
    names : components, the residual last
    """

    def of(these: Statistics, labels: tuple[str, ...]) -> PointEstimate:
        return prepared(these, labels)([these])[0]

    def of_terms(terms: tuple[int, ...]) -> PointEstimate:
        if not terms:
            alone = _residual_alone("", stats)
            return PointEstimate(alone.values, alone.beta)
        return of(stats.of_terms(terms), (*(names[t] for t in terms), names[-1]))

    fitted, kept, _ = _drop_negative(of(stats, names), of_terms)
    values = np.zeros(len(names))
    values[[*kept, -1]] = fitted.values
    return replace(fitted, values=values)


def _drop_negative(
    first: _Found, estimate: Callable[[tuple[int, ...]], _Found]
) -> tuple[_Found, tuple[int, ...], dict[int, float]]:
    """Return the last estimate, the positions of its terms, and the dropped terms in order.

    The dropped terms are given by position, each with its negative estimate.

    Parameters
    ----------
    first : estimate of all terms and the residual
    estimate : returns the estimate of a model with the terms at the given positions
    """
    kept, fitted = tuple(range(first.values.size - 1)), first
    dropped: dict[int, float] = {}
    while kept and fitted.values[:-1].min() < 0.0:
        worst = int(np.argmin(fitted.values[:-1]))
        dropped[kept[worst]] = float(fitted.values[worst])
        kept = (*kept[:worst], *kept[worst + 1 :])
        fitted = estimate(kept)
    return fitted, kept, dropped


def _residual_alone(method: str, stats: Statistics) -> Estimate:
    """Return the estimate of a model without random terms: ordinary least squares."""
    XX, Xy = stats.XX, stats.Xy
    beta = solve_positive(XX, Xy)
    df = stats.n - Xy.size
    variance = float(stats.yy - Xy @ beta) / df
    return Estimate(
        method=method,
        names=(RESIDUAL,),
        values=np.array([variance]),
        covariances={"sampling": np.array([[2.0 * variance**2 / df]])},
        beta=beta,
        cov_beta=variance * solve_positive(XX, np.eye(Xy.size)),
        llf=np.nan,
        converged=True,
        status="Closed form.",
        engine="closed form: ordinary least squares",
    )


def _spread(covariance: FloatArray, places: np.ndarray, size: int) -> FloatArray:
    """Return the covariance matrix of all components, nan for those of dropped terms."""
    whole = np.full((size, size), np.nan)
    whole[np.ix_(places, places)] = covariance
    return whole
