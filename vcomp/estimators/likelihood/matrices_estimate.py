"""The REML or ML estimate of covariance matrices and residual groups, with its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.estimate import Certificate, Estimate, FixedErrors
from vcomp.estimators.likelihood.cone import ConeMaximum, covariance_in_cone, elements
from vcomp.estimators.likelihood.matrices_likelihood import (
    MatricesLikelihood,
    VanishedResidualError,
)
from vcomp.estimators.options import Known, known_components, on_constant_slopes, start_of
from vcomp.exceptions import DesignError, EstimationError
from vcomp.formula import EffectMatrix
from vcomp.statistics import Statistics


class ClimbOptions(Protocol):
    """The options of a likelihood method that models of matrices have, or refuse."""

    @property
    def max_iter(self) -> int:
        """Largest number of steps."""

    @property
    def tol(self) -> float | None:
        """Newton decrement at which they end."""

    @property
    def hold(self) -> Any:
        """Known components."""

    @property
    def start(self) -> Any:
        """Starting values."""

    @property
    def engine(self) -> str:
        """Name of the engine."""

    @property
    def is_restricted(self) -> bool:
        """Whether the likelihood is the restricted one."""


_EXACT_FIT = 1e-13
"""Residual sum of squares, as a fraction of y'y, that is rounding error."""

_CONSTANT = 1e-8
"""Share of the squares of a column within levels, below which it is constant there. Columns may be
a thousand standard deviations from zero, which leaves ten digits of the squares."""

_NO_RESIDUAL, _ROUNDED_RESIDUAL = 1e-20, 1e-12
"""Shares of the total variance below which a residual is zero, or rounding error of the sums if no
maximum is found."""

_DWARFED = 1e-8
"""Share of the total variance below which a small residual takes the digits that a climb lacks."""


def estimate_matrices(
    stats: Statistics, names: tuple[str, ...], options: ClimbOptions
) -> Estimate:
    """Return the estimate that maximises the likelihood of covariance matrices and residuals.

    Parameters
    ----------
    stats : sums of the data, with covariance matrices
    names : variances of the terms, covariances, the residuals last
    options : of the method

    Raises
    ------
    EstimationError
        If an option does not apply, or the likelihood has no maximum.
    DesignError
        If the data cannot distinguish the components.
    """
    _check_options(stats, options)
    likelihood = MatricesLikelihood(stats, reml=options.is_restricted)
    if likelihood.rss <= _EXACT_FIT * likelihood.products.yy:
        raise EstimationError(
            "the fixed part reproduces the response: there is no variance to estimate"
        )
    tol = 1e-9 if options.tol is None else float(options.tol)
    known = _known(likelihood, names, options)
    start, held = _start(likelihood, names, known, options.start)
    _check_distinct(likelihood, start, held, names)
    likelihood, end = _maximum(likelihood, start, held, names, int(options.max_iter), tol)
    values = np.where(known.held, known.values, likelihood.components(end.S))
    covariances: dict[str, FloatArray] = {
        kind: covariance_in_cone(likelihood, end, kind, likelihood.back)
        for kind in likelihood.kinds
    }
    beta, cov_beta = likelihood.fixed_effects(end.S)
    certificate = _certificate(likelihood, end, names, covariances["observed"], tol)
    errors = None
    if beta.size:  # covariances may be negative
        slopes = likelihood.fixed_forms(end.S).slopes
        errors = FixedErrors(slopes, np.zeros(0), keeps_negative=True)
    return Estimate(
        method="reml" if options.is_restricted else "ml",
        names=names,
        values=values,
        covariances=covariances,
        beta=beta,
        cov_beta=cov_beta,
        llf=end.loglike,
        converged=certificate.at_maximum,
        status=_status(likelihood, end, names),
        engine=f"{likelihood.name}: {likelihood.reason}",
        certificate=certificate,
        fixed_errors=errors,
        held=tuple(name for name, is_held in zip(names, known.held, strict=True) if is_held),
    )


def _check_options(stats: Statistics, options: ClimbOptions) -> None:
    assert stats.blocks is not None
    slopes = stats.blocks.has_slopes
    if options.engine not in ("auto", "blocked"):
        what = "random slopes" if slopes else "several residual variances"
        raise EstimationError(
            f"engine={options.engine!r} has no {what}; use engine='auto', which solves "
            "them by sparse elimination"
        )


def _maximum(
    likelihood: MatricesLikelihood,
    start: FloatArray,
    held: BoolArray,
    names: tuple[str, ...],
    max_iter: int,
    tol: float,
) -> tuple[MatricesLikelihood, ConeMaximum]:
    """Return the maximum, at which all residual variances are above zero, with its likelihood."""
    try:
        likelihood, end = likelihood.maximum(start, max_iter, tol, held)
    except VanishedResidualError as error:
        if error.largest <= _ROUNDED_RESIDUAL:
            raise _no_residual() from None
        name = names[error.group - likelihood.n_residuals]
        n = likelihood.equations.sums.groups[error.group].n
        raise EstimationError(
            f"{name} goes to zero: the random and fixed effects reproduce the {n} scores of that "
            "level, and the likelihood rises until no residual variance is left; join the level "
            "with another one, leave out a term, or leave residual= out",
            term=name,
        ) from None
    alone = likelihood.n_residuals == 1 and not held[-1].any()
    least = _NO_RESIDUAL if end.converged else _ROUNDED_RESIDUAL
    if alone and end.S[-1, 0, 0] <= least * np.trace(end.S, axis1=1, axis2=2).sum():
        raise _no_residual()
    return likelihood, end


def _no_residual() -> EstimationError:
    return EstimationError(
        "the random and fixed effects reproduce the response exactly, or up to rounding error: "
        "the residual variance is zero, and the likelihood has no maximum; leave out a slope or a "
        "term, or make the intercepts of a facet that dwarf all else fixed, C(g)"
    )


def _covariances(likelihood: MatricesLikelihood, names: tuple[str, ...]) -> frozenset[str]:
    """Return the names of the components that may be negative."""
    places = (np.array(matrix.places) for matrix in likelihood.blocks.matrices)
    return frozenset(names[i] for own in places for i in own[np.triu_indices(len(own), 1)])


def _known(likelihood: MatricesLikelihood, names: tuple[str, ...], options: ClimbOptions) -> Known:
    """Return the held components: whole matrices, and residual variances.

    Raises
    ------
    EstimationError
        If a part of a matrix is held, or the held values are no covariance matrix.
    """
    known = known_components(options.hold, names, _covariances(likelihood, names))
    for matrix in likelihood.blocks.matrices:
        places = sorted({place for row in matrix.places for place in row})
        missing = [names[i] for i in places if not known.held[i]]
        if missing and len(missing) < len(places):
            every = ", ".join(f"{names[i]!r}: …" for i in places)
            without = ", or write || in place of | for effects that are not correlated"
            without = "" if _is_of_factor(matrix) else without
            raise EstimationError(
                f"hold= has a part of the covariance matrix of {matrix.groups}, and not "
                f"{', '.join(missing)}; hold the whole matrix, {{{every}}}{without}",
                term=missing[0],
            )
    r = likelihood.n_residuals
    for i in range(len(names) - r, len(names)):
        if known.held[i] and known.values[i] <= 0.0:
            raise EstimationError(
                f"hold={{{names[i]!r}: 0}} makes the covariance matrix singular: hold the "
                "residual at a positive value, or estimate it",
                term=names[i],
            )
    likelihood.blocks.check_matrices(known.values)
    return known


def _start(
    likelihood: MatricesLikelihood, names: tuple[str, ...], known: Known, given: Any
) -> tuple[FloatArray, BoolArray]:
    """Return matrices to start from, and which elements are held."""
    S = likelihood.first_matrices()
    default = likelihood.components(S)
    covariances = _covariances(likelihood, names)
    if given is not None and hasattr(given, "keys"):
        # Covariances that are not given are zero where a variance of their matrix is.
        for matrix in likelihood.blocks.matrices:
            places = {place for row in matrix.places for place in row}
            if any(names[i] in given for i in places):
                default[[i for i in places if names[i] in covariances]] = 0.0
    v = start_of(given, names, known, default, covariances)
    likelihood.blocks.check_matrices(v)
    if given is not None or known.held.any():
        S = likelihood.matrices_of(v)
    held = np.zeros(likelihood.linked.shape, dtype=bool)
    for t, matrix in enumerate(likelihood.blocks.matrices):
        q = len(matrix.places)
        held[t, :q, :q] = known.held[matrix.places[0][0]]
    r = likelihood.n_residuals
    held[-1, range(r), range(r)] = known.held[-r:]
    return S, held


_DEPENDENT = 1e-10
"""Smallest eigenvalue of an information matrix of unit diagonal that is more than rounding."""


def _check_distinct(
    likelihood: MatricesLikelihood, start: FloatArray, held: BoolArray, names: tuple[str, ...]
) -> None:
    """Refuse components that the data cannot distinguish: their information is singular."""
    t, a, b = np.array(elements(likelihood.linked)).T
    free = np.flatnonzero(~held[t, a, b])
    if not free.size:
        return
    # The average information is known at the start, the expected one decides.
    for kind in ("average", "expected"):
        information = likelihood.information(start, kind)[np.ix_(free, free)]
        size = np.sqrt(np.abs(np.diagonal(information)))
        size[size == 0.0] = 1.0
        values, vectors = np.linalg.eigh(information / np.outer(size, size))
        if values[0] > _DEPENDENT:
            return
    change = likelihood.back[:, free] @ (vectors[:, 0] / size)
    unit = np.abs(likelihood.back[:, free]) @ (1.0 / size)
    unit[unit == 0.0] = 1.0
    involved = [n for n, c in zip(names, change / unit, strict=True) if abs(c) > 1e-4]
    others = ", or residual=" if likelihood.n_residuals > 1 else ""
    general = f"leave out a slope or a term{others}{on_constant_slopes(involved)}"
    advice = _contained(involved) or general
    raise DesignError(
        f"these data cannot distinguish the components {', '.join(involved)}: another choice of "
        f"them gives the scores the same covariance matrix; {advice}",
        term=involved[0],
    )


def _contained(involved: Sequence[str]) -> str:
    """Return what to write for slopes of x that those of c:x contain; "" without them."""
    for name in involved:
        group, _, effect = name.partition("[")
        parts = effect.removesuffix("]").split(":")
        if "," in effect or not any("[" in part for part in parts):
            continue
        factors = ":".join(part.partition("[")[0] for part in parts)
        within = ":".join(part for part in parts if "[" not in part)
        if within and f"{group}[{within}]" in involved:
            return (
                f"the slopes of {factors} contain that of {within}: leave (0 + {within}|{group}) "
                "out"
            )
    return ""


def _group(name: str) -> str:
    """Return the groups of a component, as g of ``g[x]``."""
    return name.partition("[")[0]


def _certificate(
    likelihood: MatricesLikelihood,
    end: ConeMaximum,
    names: tuple[str, ...],
    covariance: FloatArray,
    tol: float,
) -> Certificate:
    fixed = np.isnan(np.diagonal(covariance))
    score = likelihood.score_at(end.S)
    J = end.tangent
    U, s, _ = np.linalg.svd(J, full_matrices=False)
    U = U[:, s > 1e-9 * s[0]] if s.size else U
    inside = U.T @ likelihood.information(end.S, "observed") @ U
    unit = np.sqrt(np.abs(np.diagonal(inside)))
    eigenvalues = np.linalg.eigvalsh(inside / np.outer(unit, unit)) if inside.size else np.zeros(0)
    return Certificate(
        free=tuple(n for n, f in zip(names, fixed, strict=True) if not f),
        bounded=tuple(n for n, f in zip(names, fixed, strict=True) if f),
        bound_scores={n: float(score[i]) for i, n in enumerate(names) if fixed[i]},
        kkt_residual=end.kkt_residual,
        newton_decrement=end.decrement,
        information_eigenvalues=tuple(map(float, eigenvalues)),
        iterations=end.iterations,
        evaluations=end.evaluations,
        at_maximum=end.converged,
        tolerance=tol,
        engine=likelihood.name,
        reason=likelihood.reason,
    )


_CLOSE = 2.0
"""Largest difference of log-likelihoods to another maximum that is reported."""


def _of_two(likelihood: MatricesLikelihood, names: tuple[str, ...], term: Sequence[int]) -> str:
    """Return a clause on the correlation of two effects, which is 1 or −1; empty for more."""
    matrix = next(m for m in likelihood.blocks.matrices if m.places[0][0] == term[0])
    if len(term) != 2:
        without = ", or write || in place of | for effects without correlations"
        return f"; leave out a slope{'' if _is_of_factor(matrix) else without}"
    without = "; || in place of | is the model without one"
    return (
        f". res.profile('corr({names[matrix.places[0][1]]})') shows which correlations the data "
        f"allow{'' if _is_of_factor(matrix) else without}"
    )


def _is_of_factor(matrix: EffectMatrix) -> bool:
    """Whether a bar has effects of a factor's levels, which || keeps correlated, as in lme4."""
    return any("[" in effect for effect in matrix.effects)


def _status(likelihood: MatricesLikelihood, end: ConeMaximum, names: tuple[str, ...]) -> str:
    if not end.converged:
        advice = _on_dwarfed(likelihood, end) or "raise max_iter, or leave out a slope"
        return (
            f"Not converged after {display.counted(end.iterations, 'step')} (Newton decrement "
            f"{display.number(end.decrement, 2)}): {advice}."
        )
    clauses = []
    for term, rank in zip(likelihood.terms, end.ranks[:-1], strict=True):
        if rank == 0:
            zero = ", ".join(f"σ²({names[c]})" for c in term)
            clauses.append(f"{zero} at the bound 0")
        elif rank < len(term):
            clauses.append(
                f"the covariance matrix of {_group(names[term[0]])} is singular (rank {rank} of "
                f"{len(term)}): a combination of its effects has no variance, and standard errors "
                f"treat the rank as known{_of_two(likelihood, names, term)}"
            )
    if end.drops and end.drops[0] <= _CLOSE:
        clauses.append(
            f"another maximum of the log-likelihood is only {display.number(end.drops[0], 2)} "
            "lower: the data hardly decide between the two"
        )
    clauses += [*likelihood.blocks.contained, *slopes_of_levels(likelihood, names)]
    return f"Converged; {'; '.join(clauses)}." if clauses else "Converged."


def _on_dwarfed(likelihood: MatricesLikelihood, end: ConeMaximum) -> str:
    """Return what to do about effects that dwarf the residual; "" if none do."""
    residual = likelihood.residuals_of(end.S).min() * likelihood.unit
    matrices = likelihood.blocks.centred_matrices(likelihood.components(end.S))
    variance, groups, effect = max(
        (float(variance), matrix.groups, effect)
        for matrix, own in zip(likelihood.blocks.matrices, matrices, strict=True)
        for variance, effect in zip(np.diagonal(own), matrix.effects, strict=True)
    )
    if residual > _DWARFED * variance:
        return ""
    fixed = ":".join(f"C({facet})" for facet in groups.split(":"))
    what, column = "intercepts", ""
    if effect != "(Intercept)":
        what, column = f"slopes of {effect}", f":{effect}"
    return (
        f"the variance of the {what} of {groups} is {display.number(variance / residual, 2)} "
        f"times the residual variance, which leaves this few digits; make them fixed, "
        f"{fixed}{column}"
    )


def slopes_of_levels(likelihood: MatricesLikelihood, names: tuple[str, ...]) -> list[str]:
    """Return a clause on each slope whose column is constant within the levels of its groups.

    Parameters
    ----------
    likelihood : of the model
    names : of the components
    """
    products, matrices = likelihood.products, likelihood.blocks.matrices
    effects = [
        (matrix.groups, effect, t)
        for matrix, term in zip(matrices, likelihood.terms, strict=True)
        for effect, t in zip(matrix.effects, term, strict=True)
    ]
    intercepts = {group: t for group, effect, t in effects if effect == "(Intercept)"}
    clauses = []
    for group, effect, t in effects:
        u = intercepts.get(group, t)
        if u == t:
            continue
        n, squares = products.group_n[u], products.group_n[t]
        sums = products.pairs[min(t, u), max(t, u)].matrix.diagonal()
        within = float(np.sum(squares - sums**2 / n))
        if within <= _CONSTANT * float(np.sum(squares) - np.sum(sums) ** 2 / np.sum(n)):
            clauses.append(
                f"{effect} is constant within each level of {group}, so that no level shows a "
                f"slope: {names[t]} is how the variance between levels depends on {effect}"
            )
    return clauses
