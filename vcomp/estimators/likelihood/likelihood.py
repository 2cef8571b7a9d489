"""REML and ML: from sufficient statistics to an estimate.

An engine is chosen, its likelihood is maximised, and the maximum is certified
(docs/explanation/mathematics.md, sections 5 and 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from time import perf_counter
from typing import ClassVar

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.estimate import Certificate, Estimate, Maximum, OtherMaximum, StepKind
from vcomp.estimators.likelihood.choose import choose_engine, engine_without_cancellation
from vcomp.estimators.likelihood.engine import InformationKind, LikelihoodEngine, errors_of_fixed
from vcomp.estimators.likelihood.maximisation import (
    VANISHED,
    check_weights,
    maximise,
    no_variance,
    residual_share,
)
from vcomp.estimators.options import (
    Hold,
    Known,
    Start,
    check_options,
    check_probes,
    check_ratios,
    known_components,
    start_of,
)
from vcomp.exceptions import EstimationError
from vcomp.numerics import is_positive, limited_blas, seed_from
from vcomp.statistics import Statistics

_FLAT = 1e-8
"""Eigenvalue of the information on a unit diagonal below which its direction is flat: the standard
error along it is over 10,000 times those of the single components."""

_CLOSE = 2.0
"""Largest difference of log-likelihoods at which another maximum is reported: a likelihood ratio
of 7, about that at the ends of a 95 % interval."""

_NOTHING = 1e-4
"""Share of the other components at which a residual may be going to zero."""

_SINGULAR_INFORMATION = 1e-13
"""Eigenvalue on a unit diagonal below which a matrix is singular up to rounding error."""


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate with the covariance matrices at the same components.

    Attributes
    ----------
    certificate : evidence of the maximum
    covariances : (k + 1, k + 1) by kind of information, nan where a component is not free
    rises : a linear combination of components along which the likelihood rises, in words; empty
        at a maximum
    without_bounds : if components are at zero, the estimates without bounds, eq. (6.3), and their
        covariance matrix; else None
    """

    certificate: Certificate
    covariances: dict[str, FloatArray]
    rises: str
    without_bounds: tuple[FloatArray, FloatArray] | None


def certify(
    likelihood: LikelihoodEngine, found: Maximum, names: tuple[str, ...], tol: float
) -> Certified:
    """Return the certificate of the end of an iteration, with covariance matrices.

    Parameters
    ----------
    likelihood : the engine
    found : the end of the iteration
    names : the components, the residual last
    tol : the requested Newton decrement
    """
    informations = _informations(likelihood, found.v)
    kind = next(iter(informations))
    free = (found.v > 0.0) & ~found.held
    bounded = (found.v == 0.0) & ~found.held
    free_names, at_bound = tuple(compress(names, free)), tuple(compress(names, bounded))
    values, vectors = _eigen(informations[kind][np.ix_(free, free)])
    rises = _directions(free_names, vectors[:, values < -_FLAT])
    flat = _directions(free_names, vectors[:, np.abs(values) <= _FLAT])
    certificate = Certificate(
        free=free_names,
        bounded=at_bound,
        bound_scores=dict(zip(at_bound, found.score[bounded].tolist(), strict=True)),
        kkt_residual=found.kkt_residual,
        newton_decrement=found.newton_decrement,
        information_eigenvalues=tuple(float(e) for e in values),
        iterations=found.iterations,
        evaluations=found.evaluations,
        at_maximum=found.converged and not rises and not flat and not found.saturated,
        held=tuple(compress(names, found.held)),
        information=kind,
        flat=flat,
        tolerance=float(tol),
        engine=likelihood.name,
        reason=likelihood.reason,
        others=tuple(
            OtherMaximum(found.loglike - loglike, dict(zip(names, v.tolist(), strict=True)))
            for loglike, v in found.others
            if loglike >= found.loglike - _CLOSE
        ),
        saturated=found.saturated,
    )
    covariances = {kind: _covariance(matrix, free) for kind, matrix in informations.items()}
    unbounded = _without_bounds(likelihood, found) if bounded.any() else None
    return Certified(certificate, covariances, rises[0] if rises else "", unbounded)


def _without_bounds(
    likelihood: LikelihoodEngine, found: Maximum
) -> tuple[FloatArray, FloatArray] | None:
    """Return estimates without bounds: one step of Fisher's scoring from the maximum, eq. (6.3).

    For balanced data the step leads to the ANOVA estimates from any point. Where a component at
    zero has very many groups, the step is by the average information. None if the information is
    singular or does not fit into memory.
    """
    expects = "expected" in likelihood.kinds and likelihood.expects_cheaply(found.v)
    kind: InformationKind = "expected" if expects else "average"
    estimated = ~found.held
    try:
        information = likelihood.information(found.v, kind)
    except EstimationError:
        return None
    cov = _covariance(information, estimated)
    if np.isnan(cov[np.ix_(estimated, estimated)]).any():
        return None
    values = found.v.copy()
    values[estimated] += cov[np.ix_(estimated, estimated)] @ found.score[estimated]
    return values, cov


def _informations(likelihood: LikelihoodEngine, v: FloatArray) -> dict[str, FloatArray]:
    """Return the information matrices of the engine, that for the standard errors first."""
    average = likelihood.information(v, "average")
    if "observed" not in likelihood.kinds:
        return {"average": average}
    observed = likelihood.information(v, "observed", positive_only=True)
    return {"observed": observed, "expected": 2.0 * average - observed, "average": average}


def _eigen(information: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues on a unit diagonal, and eigenvectors on the scale of the components."""
    scale = np.sqrt(np.abs(np.diagonal(information)))
    scale = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    return values, vectors / scale[:, None]


def _directions(names: tuple[str, ...], vectors: FloatArray) -> tuple[str, ...]:
    """Return combinations of components as text, such as σ²(a) − 0.5 σ²(b)."""
    texts = []
    for vector in vectors.T:
        parts = vector / vector[np.argmax(np.abs(vector))]
        text = ""
        for name, part in zip(names, parts, strict=True):
            if abs(part) < 1e-3:
                continue
            sign = "−" if part < 0.0 else "+"
            size = display.number(abs(float(part)), 2)
            term = f"σ²({name})" if size == "1" else f"{size} σ²({name})"
            text += f" {sign} {term}" if text else (f"−{term}" if part < 0.0 else term)
        texts.append(text)
    return tuple(texts)


def _covariance(information: FloatArray, free: BoolArray) -> FloatArray:
    """Return the inverse for the free components; nan for others, or if not positive definite."""
    covariance = np.full_like(information, np.nan)
    block = information[np.ix_(free, free)]
    if is_positive(block, _SINGULAR_INFORMATION):
        unit = np.sqrt(np.diagonal(block))
        units = np.outer(unit, unit)
        covariance[np.ix_(free, free)] = np.linalg.inv(block / units) / units
    return covariance


_EXACT_FIT = 1e-13
"""A residual sum of squares below this fraction of y'y is rounding error: X reproduces y."""

_TOLERANCE = 1e-10
_TOLERANCE_OF_PROBES = 1e-3
"""Newton decrements at which iterations end, for exact engines and those with random probes."""

_NEAR = 2.0
"""Newton decrement up to which steps are rough: the next one leaves a hundredth of it."""

_ROUNDED_RESIDUAL = 1e-12
"""A residual below this fraction of the total variance is zero if no maximum is found."""

_SATURATED_RESIDUAL = 1e-8
"""The same if the likelihood rises as the residual goes to zero."""


@dataclass(frozen=True, slots=True)
class LikelihoodMethod:
    """The options and the estimation that REML and ML share.

    Attributes
    ----------
    max_iter : largest number of steps
    tol : Newton decrement, in standard errors, at which the iteration ends; by default 1e-10, or
        1e-3 for an engine with random probes, whose Monte Carlo error is larger. If rounding
        error prevents so small a decrement, the iteration ends at the smallest one below 1e-4; if
        that is above 1e-6, the status says so
    hold : known components by name: they keep these values (the residual a positive one), are not
        estimated, and have no standard error. Of correlated effects of a bar all elements of the
        covariance matrix are held
    start : starting values by name, the others from MIVQUE(0); or all in the order of the
        components, the residual last
    engine : ``"auto"``, ``"strata"``, ``"levels"``, ``"blocked"`` or ``"iterative"``
    n_probes : number of random probes of the iterative engine, by default 8, and more where the
        Monte Carlo error would be above a hundredth of a standard error; four times as many halve
        it. Other engines use none
    rng : seed or ``numpy.random.Generator`` of the probes; seed 0 if None

    Raises
    ------
    EstimationError
        If an option is invalid.
    """

    max_iter: int = 200
    tol: float | None = None
    hold: Hold | None = None
    start: Start | None = None
    engine: str = "auto"
    n_probes: int | None = None
    rng: int | np.random.Generator | None = None
    name: ClassVar[str]
    is_restricted: ClassVar[bool]

    def __post_init__(self) -> None:
        check_options(self.max_iter, self.tol, self.engine)
        check_probes(self.n_probes, self.rng, self.engine)

    def known(self, names: tuple[str, ...]) -> Known:
        """Return which components are held, with their values.

        Raises
        ------
        EstimationError
            If a component is not in the model, or its value is invalid.
        """
        return known_components(self.hold, names)

    def estimate(self, stats: Statistics, names: tuple[str, ...]) -> Estimate:
        """Return the estimate from the statistics alone.

        Raises
        ------
        EstimationError
            If the options do not fit the components, the likelihood has no maximum, or one at a
            residual of zero, or no engine fits into memory.
        """
        try:
            if stats.blocks is None:
                # Options are checked before anything is computed.
                known = known_components(self.hold, names)
                start_of(self.start, names, known, np.ones(len(names)))
                likelihood = choose_engine(
                    stats,
                    self.engine,
                    reml=self.is_restricted,
                    names=names[:-1],
                    n_probes=self.n_probes,
                    seed=0 if self.rng is None else seed_from(self.rng),
                )
                with limited_blas(0):
                    found = _estimate_or_change_engine(stats, likelihood, names, self)
            else:
                from vcomp.estimators.likelihood.matrices_estimate import estimate_matrices

                with limited_blas(0):
                    found = estimate_matrices(stats, names, self)
        except EstimationError:
            check_weights(stats, names, -np.inf, self._of_less)
            raise
        if not found.converged or found.values[-1] < _NOTHING * found.values[:-1].sum():
            check_weights(stats, names, found.llf, self._of_less)
        return found

    def _of_less(self, stats: Statistics, names: tuple[str, ...]) -> Estimate | None:
        """Return the estimate of a smaller model; None with components held."""
        return None if self.hold else replace(self, start=None).estimate(stats, names)


class REML(LikelihoodMethod):
    """Restricted maximum likelihood (Patterson & Thompson 1971)."""

    name: ClassVar[str] = "reml"
    is_restricted: ClassVar[bool] = True


class ML(LikelihoodMethod):
    """Maximum likelihood; components are biased down by the estimation of the fixed effects."""

    name: ClassVar[str] = "ml"
    is_restricted: ClassVar[bool] = False


class _NoResidualError(EstimationError):
    """The residual variance is zero up to rounding error."""


def _no_other(stats: Statistics, tried: LikelihoodEngine) -> None:
    """Return no engine: the user has chosen one."""


def _estimate_or_change_engine(
    stats: Statistics,
    likelihood: LikelihoodEngine,
    names: tuple[str, ...],
    options: LikelihoodMethod,
) -> Estimate:
    """Return the estimate, by another engine if the one chosen automatically lost digits."""
    find_other = engine_without_cancellation if options.engine == "auto" else _no_other
    try:
        estimate = estimate_by_likelihood(likelihood, names, options)
        certificate = estimate.certificate  # a constant response needs none
        decrement = 0.0 if certificate is None else certificate.newton_decrement
        lost = decrement > likelihood.rounding_decrement
        reached = (estimate.converged and not lost) or len(estimate.log) > options.max_iter
    except _NoResidualError as error:
        other = find_other(stats, likelihood)
        if other is None:
            # Users see the public class.
            raise EstimationError(str(error), term=names[-1]) from None
        return estimate_by_likelihood(other, names, options)
    other = None if reached else find_other(stats, likelihood)
    return estimate if other is None else estimate_by_likelihood(other, names, options)


def estimate_by_likelihood(
    likelihood: LikelihoodEngine, names: tuple[str, ...], options: LikelihoodMethod
) -> Estimate:
    """Return the estimate that maximises the likelihood of an engine.

    Parameters
    ----------
    likelihood : engine of the restricted or full likelihood
    names : the components, the residual last
    options : stopping rule, held components and starting values

    Raises
    ------
    EstimationError
        If the options do not fit the components, or the likelihood has no maximum.
    """
    known = known_components(options.hold, names)
    if known.held.any():
        check_ratios(known.values, names, "hold", likelihood.rss / likelihood.n)
    tol = options.tol or (_TOLERANCE if likelihood.exact_value else _TOLERANCE_OF_PROBES)
    if likelihood.rss <= _EXACT_FIT * likelihood.yy and not known.held[-1]:
        return no_variance(likelihood, names, known)
    begun = perf_counter()
    start = start_of(options.start, names, known, _default_start(likelihood))
    started = perf_counter()
    maximum = _maximise(likelihood, start, known, options, float(tol), names)
    likelihood = maximum.engine
    maximised = perf_counter()
    certified = certify(likelihood, maximum, names, float(tol))
    beta, cov_beta = likelihood.fixed_effects(maximum.v)
    noise, llf_error, llf = None, 0.0, maximum.loglike
    if not likelihood.exact_value:
        noise, llf_error = likelihood.monte_carlo(maximum.v), likelihood.loglike_error(maximum.v)
        llf = likelihood.loglike(maximum.v)
    seconds = {
        "start": started - begun,
        "maximise": maximised - started,
        "information": perf_counter() - maximised,
    }
    certificate = certified.certificate
    monte_carlo = {} if noise is None else _monte_carlo(noise, certified, names, known)
    estimate = Estimate(
        method="reml" if likelihood.reml else "ml",
        names=names,
        values=maximum.v,
        covariances=certified.covariances,
        beta=beta,
        cov_beta=cov_beta,
        llf=llf,
        converged=certificate.at_maximum,
        status=_status(maximum, names, certified, options, monte_carlo),
        engine=f"{likelihood.name}: {likelihood.reason}",
        certificate=certificate,
        held=certificate.held,
        log=maximum.log,
        monte_carlo=monte_carlo,
        llf_error=llf_error,
        # A covariance matrix that is not formed computes its own derivatives.
        fixed_errors=(
            errors_of_fixed(likelihood, maximum.v) if isinstance(cov_beta, np.ndarray) else None
        ),
        without_bounds=certified.without_bounds,
    )
    return estimate.with_seconds(seconds)


def _after(near: Maximum, found: Maximum, step: StepKind | None = "probes") -> Maximum:
    """Return a maximum whose log begins with the climb to its start, by a step if that is new."""
    first, *others = found.log
    known = near.log if step else near.log[:-1]
    first = replace(first, step=step or near.log[-1].step)
    return replace(
        found,
        log=(*known, first, *others),
        iterations=near.iterations + found.iterations + (step == "AI"),
        evaluations=near.evaluations + found.evaluations,
    )


def _maximise(
    likelihood: LikelihoodEngine,
    start: FloatArray,
    known: Known,
    options: LikelihoodMethod,
    tol: float,
    names: tuple[str, ...],
) -> Maximum:
    sizes = np.array([*likelihood.sizes, likelihood.n], dtype=float)
    max_iter, climbed = int(options.max_iter), partial(maximise, held=known.held)
    try:
        if not likelihood.exact_value and (rough := likelihood.rough()):
            near = climbed(rough, start, sizes, max_iter=max_iter - 1, tol=_NEAR, unseen=_NEAR)
            fine, left = likelihood.after(near.engine), max_iter - near.iterations - near.converged
            maximum = climbed(fine, near.v, sizes, max_iter=left, tol=tol)
            maximum = _after(near, maximum, "AI" if near.converged else None)
        else:
            maximum = climbed(likelihood, start, sizes, max_iter=max_iter, tol=tol)
        while maximum.converged and (more := maximum.engine.with_more_probes(maximum.v)):
            left = max_iter - maximum.iterations
            maximum = _after(maximum, climbed(more, maximum.v, sizes, max_iter=left, tol=tol))
    except np.linalg.LinAlgError:
        is_own = options.start is None and not known.held.any()
        raise _NoResidualError(_singular(start, names) if is_own else _BAD_START) from None
    share = residual_share(maximum.v, likelihood.mean_weight)
    rounding = VANISHED if maximum.converged else _ROUNDED_RESIDUAL
    if maximum.saturated:
        rounding = _SATURATED_RESIDUAL
    if share <= rounding and not maximum.at_limit and not known.held[-1]:
        is_own = options.start is None
        raise _NoResidualError(_singular(maximum.v, names) if is_own else _BAD_START)
    return maximum


def _singular(v: FloatArray, names: tuple[str, ...]) -> str:
    """Return why a likelihood has no maximum at components v."""
    as_fixed = _as_fixed(v, names)
    return (
        "the random and fixed effects reproduce the response exactly, or up to rounding error: "
        "the residual variance is zero, and the likelihood has no maximum; leave out a term, or "
        f"use method='minque'{as_fixed and f'. If one component dwarfs all others, {as_fixed}'}"
    )


def _as_fixed(v: FloatArray, names: tuple[str, ...]) -> str:
    """Return the advice to make the facet of the largest component fixed.

    As a component rises without limit, the estimates of the others tend to those with its effects
    fixed. Empty where the term has several facets, or is the only one.
    """
    name = names[int(np.argmax(v[:-1]))]
    if ":" in name or len(names) < 3:
        return ""
    return f"fit C({name}) in place of (1|{name}): the others keep their digits then"


_BAD_START = (
    "the likelihood cannot be computed at these components: they differ by too many orders of "
    "magnitude; give other values in start= or hold=, or leave start= out"
)


def _default_start(likelihood: LikelihoodEngine) -> FloatArray:
    """Return the MIVQUE(0) estimates; those that are not clearly above zero are raised."""
    start = likelihood.mivque0()
    total = np.full(start.size, likelihood.rss / max(likelihood.n - likelihood.n_fixed, 1))
    total[:-1] /= likelihood.mean_weight
    return np.where(start > 1e-10 * total, start, 0.01 * total / start.size)


def _monte_carlo(
    noise: FloatArray, certified: Certified, names: tuple[str, ...], known: Known
) -> dict[str, float]:
    """Return the Monte Carlo errors of the estimates, including the remaining decrement."""
    variances = np.nan_to_num(np.diagonal(next(iter(certified.covariances.values()))))
    left = certified.certificate.newton_decrement**2 * variances
    errors = np.sqrt(np.maximum(np.diagonal(noise), 0.0) + left)
    return {
        name: 0.0 if held else float(error)
        for name, error, held in zip(names, errors, known.held, strict=True)
    }


_LARGE_ERROR = 0.05
"""Monte Carlo error of a component, in its standard errors, above which the status names it."""


def _large_error(monte_carlo: Mapping[str, float], certified: Certified) -> str:
    """Return a clause on the component with the largest Monte Carlo error, if that is large."""
    variances = np.diagonal(next(iter(certified.covariances.values())))
    shares = np.nan_to_num(np.array([*monte_carlo.values()]) / np.sqrt(variances))
    worst = int(np.argmax(shares))
    if shares[worst] <= _LARGE_ERROR:
        return ""
    return (
        f"the random probes leave σ²({[*monte_carlo][worst]}) a Monte Carlo error of "
        f"{display.number(float(shares[worst]), 2)} standard errors: four times as many "
        "(n_probes=) halve it, and engine='blocked' has none"
    )


def _status(
    found: Maximum,
    names: tuple[str, ...],
    certified: Certified,
    options: LikelihoodMethod,
    monte_carlo: Mapping[str, float],
) -> str:
    certificate = certified.certificate
    if not certificate.at_maximum:
        return f"Not converged: {_why_not(found, names, certified, options)}."
    clauses = [
        f"σ²({name}) is estimated at its bound 0 (derivative of the log-likelihood "
        f"{display.number(score, 3)})"
        for name, score in certificate.bound_scores.items()
    ]
    clauses += [
        f"σ²({name}) is held at {display.number(float(value), 6)}"
        for name, value, held in zip(names, found.v, found.held, strict=True)
        if held
    ]
    if found.newton_decrement > max(certificate.tolerance, 1e-6):
        clauses.append(
            f"rounding error ended the iteration {display.number(found.newton_decrement, 2)} "
            "standard errors from the maximum"
        )
    if monte_carlo and (of_probes := _large_error(monte_carlo, certified)):
        clauses.append(of_probes)
    clauses += [
        f"another maximum of the log-likelihood is only {other}: the data hardly decide between "
        "the two"
        for other in certificate.others
    ]
    return f"Converged; {'; '.join(clauses)}." if clauses else "Converged."


_DWARFING = 1e8
"""Ratio of a component to the residual above which differences lose half of their digits."""


def _why_not(
    found: Maximum, names: tuple[str, ...], certified: Certified, options: LikelihoodMethod
) -> str:
    if found.saturated:
        return (
            "the likelihood has no maximum, as the model is saturated: the random and fixed "
            "effects can reproduce the response exactly, and the likelihood rises above that of "
            "these components as the residual goes to zero; leave out a term, hold= the residual "
            "at a known value, or use method='minque'"
        )
    decrement = f"Newton decrement {display.number(found.newton_decrement, 2)}"
    if found.at_limit:
        advice = (
            "raise max_iter" if options.start is None else "raise max_iter, or leave out start"
        )
        limit = "1 step" if options.max_iter == 1 else f"{options.max_iter} steps"
        return f"the limit of {limit} was reached; {advice} ({decrement})"
    if found.converged and not certified.rises:
        return (
            "the scores are zero, but the likelihood is flat along "
            f"{' and '.join(certified.certificate.flat)}: other values are as likely, and these "
            f"data do not distinguish them; leave out a term, or hold= one ({decrement})"
        )
    if found.converged:
        return (
            f"the scores are zero, but along {certified.rises} the likelihood rises: a saddle "
            f"point; try another start= ({decrement})"
        )
    if found.newton_decrement < 0.05:
        away = display.number(found.newton_decrement, 2)
        clause = f"rounding error prevents the last steps, {away} standard errors from the maximum"
        largest = float(found.v[:-1].max(initial=0.0))
        as_fixed = _as_fixed(found.v, names) if largest > _DWARFING * found.v[-1] else ""
        return f"{clause}; {as_fixed}" if as_fixed else clause
    return (
        "no further step raises the likelihood; try another start=, or leave out a term with "
        f"almost no variance ({decrement})"
    )
