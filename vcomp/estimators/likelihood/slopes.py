"""REML and ML of models with random slopes: one covariance matrix for each bar of the formula.

The elimination of ``block_equations`` gives likelihood, score and informations, and ``cone``
maximises over positive semidefinite matrices. Both work on centred and scaled columns of the
slopes and on scores of standard deviation 1; results are on the scale of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.estimate import Certificate, Estimate, FixedErrors
from vcomp.estimators.likelihood.block_equations import BlockEquations, BlockPoint, BlockSums
from vcomp.estimators.likelihood.cone import (
    ConeMaximum,
    covariance_in_cone,
    elements,
    maximise_in_cone,
    positive_part,
)
from vcomp.estimators.likelihood.engine import FixedForms, InformationKind, LastPoint, Solution
from vcomp.exceptions import DesignError, EstimationError
from vcomp.numerics import solve_positive
from vcomp.statistics import Statistics


class ClimbOptions(Protocol):
    """The options of a likelihood method that models with random slopes have, or refuse."""

    @property
    def max_iter(self) -> int:
        """Largest number of steps."""

    @property
    def tol(self) -> float | None:
        """Newton decrement at which they end."""

    @property
    def hold(self) -> Any:
        """Known components: refused."""

    @property
    def start(self) -> Any:
        """Starting values: refused."""

    @property
    def engine(self) -> str:
        """Name of the engine."""

    @property
    def is_restricted(self) -> bool:
        """Whether the likelihood is the restricted one."""


_FLOOR = 1e-9
"""Smallest eigenvalue of a matrix, in units of the error variance of a level's effect, at which
the likelihood is computed; its derivative corrects the value for the rest."""

_ROTATED = 1e6
"""Ratio of eigenvalues above which equations are solved for principal effects: 1e-16 of the larger
inverse is then lost from neither."""

_EXACT_FIT = 1e-13
"""Residual sum of squares, as a fraction of y'y, that is rounding error."""

_NO_RESIDUAL = 1e-8
"""Share of the total variance below which a residual has gone to zero."""


class _MatricesPoint:
    """The likelihood at one value of the matrices, on the scale of the data.

    Parameters
    ----------
    equations : of the effects
    matrices : positive semidefinite Λ_t of each bar
    residual : σ²
    reml : whether the likelihood is the restricted one
    """

    def __init__(
        self,
        equations: BlockEquations,
        matrices: Sequence[FloatArray],
        residual: float,
        *,
        reml: bool,
    ) -> None:
        sums, self.equations = equations.sums, equations
        group_n = sums.groups[0].group_n
        eigen = [np.linalg.eigh(matrix) for matrix in matrices]
        floored = [
            np.maximum(d, _FLOOR * residual / np.mean([group_n[c].mean() for c in term]))
            for term, (d, _) in zip(sums.terms, eigen, strict=True)
        ]
        if any(d.max() > _ROTATED * d.min() for d in floored):
            self._bases = [U for _, U in eigen]
            used = [np.diag(d) for d in floored]
            exact = [np.diag(d) for d, _ in eigen]
            equations = equations.rotated(self._bases)
        else:
            self._bases = [np.eye(d.size) for d in floored]
            used = [(U * d) @ U.T for d, (_, U) in zip(floored, eigen, strict=True)]
            exact = list(matrices)
        self._added = [
            np.where(np.any(d != e), A - B, 0.0)
            for A, B, d, (e, _) in zip(used, exact, floored, eigen, strict=True)
        ]
        self._kept = [e / d for d, (e, _) in zip(floored, eigen, strict=True)]
        self._principal = [U for _, U in eigen]
        self.point = BlockPoint(equations, np.array([residual]), used, reml=reml)

    def loglike(self) -> float:
        """Return the log-likelihood."""
        value = self.point.loglike()
        if any(added.any() for added in self._added):
            pairs = zip(self._gradients, self._added, strict=True)
            value -= sum(float((G * added).sum()) for G, added in pairs)
        return value

    @cached_property
    def _gradients(self) -> list[FloatArray]:
        """G of dℓ = tr(G dΛ) of each bar, in the basis of the equations."""
        score, first, found = self.point.score(), 1, []
        for pairs in self.equations.pairs:
            a, b = np.array(pairs).T
            G = np.zeros((a.max() + 1,) * 2)
            G[a, b] = 0.5 * score[first : first + a.size]
            found.append(G + G.T)
            first += a.size
        return found

    def gradients(self) -> list[FloatArray]:
        """Return G of dℓ = tr(G dΛ) of each bar."""
        pairs = zip(self._bases, self._gradients, strict=True)
        return [U @ G @ U.T for U, G in pairs]

    def residual_slope(self) -> float:
        """Return the derivative by the residual variance."""
        return float(self.point.score()[0])

    @cached_property
    def _turn(self) -> FloatArray:
        """Derivatives of the elements in the basis of the equations by those of the Λ_t."""
        m = 1 + sum(len(pairs) for pairs in self.equations.pairs)
        K, first = np.eye(m), 1
        for U, pairs in zip(self._bases, self.equations.pairs, strict=True):
            own = slice(first, first + len(pairs))
            K[own, own] = congruence(U.T, pairs)
            first += len(pairs)
        return K

    def information(self, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the elements, the residual first."""
        if kind == "average":
            found = self.point.average()
        elif kind == "expected":
            found = self.point.expected()
        else:
            found = 2.0 * self.point.average() - self.point.expected()
        return self._turn.T @ found @ self._turn

    def fixed_forms(self) -> FloatArray:
        """Return X'V⁻¹V_jV⁻¹X of each element, the residual first."""
        return np.tensordot(self._turn.T, self.point.fixed_forms(), 1)

    def second_fixed_forms(self) -> FloatArray:
        """Return the symmetric parts of X'V⁻¹V_iV⁻¹V_jV⁻¹X of all elements."""
        turned = np.tensordot(self._turn.T, self.point.second_fixed_forms(), 1)
        return np.tensordot(self._turn.T, turned.swapaxes(0, 1), 1)

    def effects(self, term: int) -> FloatArray:
        """Return the predicted effects of a bar, (levels, q)."""
        K = self._from_floored(term, 1.0)
        found: FloatArray = self.point.effects(term) @ self._bases[term].T @ K.T
        return found

    def combined_variances(self, weights: Sequence[Any], X: FloatArray) -> FloatArray:
        """Return the prediction error variances of combinations of effects, (m,).

        Parameters
        ----------
        weights : for each bar the group of each combination, (m,), −1 without one, and the (m, q)
            weights of its effects
        X : (m, p) columns of X, centred
        """
        from scipy.sparse import csr_array

        equations, rows, columns, values = self.point.equations, [], [], []
        effects = np.arange(equations.n_effects)
        for term, U, (groups, own) in zip(equations.sums.terms, self._bases, weights, strict=True):
            known = np.flatnonzero(groups >= 0)
            for c, value in zip(term, (own @ U).T, strict=True):
                rows.append(known)
                columns.append(effects[equations.places[c]][groups[known]])
                values.append(value[known])
        places = np.concatenate(rows), np.concatenate(columns)
        shape = len(X), equations.n_effects
        combined = csr_array((np.concatenate(values), places), shape=shape)
        return self.point.combined_variances(combined, X)

    def prediction_covariances(self, term: int, *, beta_known: bool) -> FloatArray:
        """Return the covariance matrices of û − u of a bar, (levels, q, q)."""
        U = self._from_floored(term, 0.5) @ self._bases[term]
        return U @ self.point.prediction_covariances(term, beta_known=beta_known) @ U.T

    def _from_floored(self, term: int, power: float) -> FloatArray:
        """Return what effects of principal directions without variance are multiplied by."""
        U, kept = self._principal[term], np.maximum(self._kept[term], 0.0)
        return (U * kept**power) @ U.T


def congruence(A: FloatArray, pairs: Sequence[tuple[int, int]]) -> FloatArray:
    """Return the matrix that maps the elements of Λ to those of AΛA'.

    Parameters
    ----------
    A : (q, q)
    pairs : row and column of each element

    Examples
    --------
    >>> congruence(np.array([[1.0, 1.0], [0.0, 1.0]]), [(0, 0), (0, 1), (1, 1)])
    array([[1., 2., 1.],
           [0., 1., 1.],
           [0., 0., 1.]])
    """
    a, b = np.array(pairs).T
    columns = []
    for c, d in pairs:
        E = np.zeros(A.shape)
        E[c, d] = E[d, c] = 1.0
        columns.append((A @ E @ A.T)[a, b])
    return np.column_stack(columns)


class SlopesLikelihood(LastPoint[_MatricesPoint]):
    """The likelihood of the matrices of all bars, a :class:`~vcomp.estimators.cone` objective.

    Parameters
    ----------
    stats : sums of the data, with slopes
    reml : whether the likelihood is the restricted one

    Raises
    ------
    EstimationError
        If the factor does not fit into memory.
    """

    name = "blocked"
    reason = "a model with random slopes is fitted by sparse elimination"
    kinds: tuple[InformationKind, ...] = ("observed", "expected", "average")

    def __init__(self, stats: Statistics, *, reml: bool) -> None:
        assert stats.slopes is not None
        self.products, self.reml = stats.cross_products, reml
        self.slopes, self.terms = stats.slopes, stats.slopes.blocks
        self.bases = stats.slopes.bases
        self.n, p = self.products.n, self.products.n_fixed
        beta = solve_positive(self.products.XX, self.products.Xy) if p else np.zeros(0)
        self.rss = self.products.yy - float(beta @ self.products.Xy)
        self.unit = self.rss / (self.n - p)
        try:
            self.equations = BlockEquations(BlockSums((self.products,), self.terms))
        except np.linalg.LinAlgError:
            raise EstimationError(
                "the effects of the random slopes are so connected that their factor does not "
                "fit into memory; leave out a term, or fit intercepts alone"
            ) from None

    @cached_property
    def linked(self) -> BoolArray:
        """(k + 1, q, q) which elements there are, the residual last."""
        widest = max(len(term) for term in self.terms)
        linked = np.zeros((len(self.terms) + 1, widest, widest), dtype=bool)
        for t, term in enumerate(self.terms):
            linked[t, : len(term), : len(term)] = True
        linked[-1, 0, 0] = True
        return linked

    @cached_property
    def back(self) -> FloatArray:
        """Derivatives of the components, in their order, by the elements of the climb, (m, m)."""
        first, m = 0, len(elements(self.linked))
        found = np.zeros((m, m))
        for matrix, A, pairs in zip(
            self.slopes.matrices, self.bases, self.equations.pairs, strict=True
        ):
            own = slice(first, first + len(pairs))
            found[[matrix.places[a][b] for a, b in pairs], own] = self.unit * congruence(A, pairs)
            first += len(pairs)
        found[m - 1, m - 1] = self.unit
        return found

    def matrices_of(self, v: FloatArray) -> FloatArray:
        """Return the matrices of the climb, (k + 1, q, q), of components in their order."""
        S = np.zeros(self.linked.shape)
        for t, matrix in enumerate(self.slopes.centred_matrices(v)):
            S[t, : len(matrix), : len(matrix)] = matrix / self.unit
        S[-1, 0, 0] = v[-1] / self.unit
        return S

    def components(self, S: FloatArray) -> FloatArray:
        """Return the components, in their order, of matrices of the climb."""
        t, a, b = np.array(elements(self.linked)).T
        return self.back @ S[t, a, b]

    def maximum(self, start: FloatArray, max_iter: int, tol: float) -> ConeMaximum:
        """Return the maximum, climbed from matrices that may have lower ranks.

        Parameters
        ----------
        start : (k + 1, q, q)
        max_iter : largest number of steps
        tol : Newton decrement at which they end
        """
        raised = [
            np.where(links, positive_part(S, 0.01), 0.0)
            for S, links in zip(start, self.linked, strict=True)
        ]
        return maximise_in_cone(self, np.array(raised), max_iter=max_iter, tol=tol)

    def with_response(self, stats: Statistics) -> SlopesLikelihood:
        """Return the likelihood of the same rows with another response."""
        other = copy(self)
        other.products, other._last = stats.cross_products, None
        other.equations = self.equations.with_response(other.products)
        return other

    def _evaluated(self, v: FloatArray) -> _MatricesPoint:
        S = self.unit * v.reshape(self.linked.shape)
        matrices = [S[t, : len(term), : len(term)] for t, term in enumerate(self.terms)]
        return _MatricesPoint(self.equations, matrices, float(S[-1, 0, 0]), reml=self.reml)

    def at(self, S: FloatArray) -> _MatricesPoint:
        """Return the likelihood at matrices of the climb."""
        return self._at(S.ravel())

    # The objective of the climb ------------------------------------------------------------------

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ if it cannot be computed."""
        if not S[-1, 0, 0] > 0.0:
            return -np.inf
        try:
            return self.at(S).loglike()
        except np.linalg.LinAlgError:
            return -np.inf

    def gradient(self, S: FloatArray) -> FloatArray:
        """Return G of dℓ = Σ tr(G_t dS_t), (k + 1, q, q)."""
        point, found = self.at(S), np.zeros(self.linked.shape)
        for t, G in enumerate(point.gradients()):
            found[t, : len(G), : len(G)] = G
        found[-1, 0, 0] = point.residual_slope()
        return self.unit * found

    def information(self, S: FloatArray, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the elements."""
        found = np.roll(self.at(S).information(kind), -1, axis=(0, 1))
        return self.unit**2 * found

    def curvature(self, S: FloatArray) -> FloatArray:
        """Return the observed information."""
        return self.information(S, "observed")

    # By components in their order ---------------------------------------------------------------

    def loglike_of(self, v: FloatArray) -> float:
        """Return the log-likelihood at components."""
        return self.loglike(self.matrices_of(v))

    def score_of(self, v: FloatArray) -> FloatArray:
        """Return the gradient by the components."""
        t, a, b = np.array(elements(self.linked)).T
        gradient = self.gradient(self.matrices_of(v))[t, a, b]
        by_element = np.where(a == b, 1.0, 2.0) * gradient
        return np.asarray(np.linalg.solve(self.back.T, by_element), dtype=float)

    def information_of(self, v: FloatArray, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the components."""
        half = np.linalg.solve(self.back.T, self.information(self.matrices_of(v), kind))
        return np.asarray(np.linalg.solve(self.back.T, half.T), dtype=float)

    # Effects -------------------------------------------------------------------------------------

    def fixed_effects(self, S: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix, on the centred scale."""
        return self.at(S).point.fixed_effects()

    def fixed_forms(self, S: FloatArray, *, second: bool = False) -> FixedForms:
        """Return the forms of X in V⁻¹ by the components, on the centred scale.

        Those of second order are included if `second`.
        """
        # ∂ by components = ∂ by elements · ∂ elements by components
        by_elements = self.unit * np.roll(self.at(S).fixed_forms(), -1, axis=0)
        inverse = np.linalg.inv(self.back)  # of the order of the components
        first = np.tensordot(inverse.T, by_elements, 1)
        if not second:
            return FixedForms(self.fixed_effects(S)[1], first)
        both = self.unit**2 * np.roll(self.at(S).second_fixed_forms(), -1, axis=(0, 1))
        both = np.tensordot(inverse.T, both, 1).swapaxes(0, 1)
        return FixedForms(self.fixed_effects(S)[1], first, np.tensordot(inverse.T, both, 1))

    def prediction_variances(
        self, v: FloatArray, weights: Sequence[tuple[Any, FloatArray]], X: FloatArray
    ) -> FloatArray:
        """Return the prediction error variances of combinations of effects, (m,).

        A group that did not occur adds the variance of its combination.

        Parameters
        ----------
        v : components in their order
        weights : for each bar the group of each combination, (m,), −1 for one that did not occur,
            and the (m, q) weights of its effects on the scale of the data
        X : (m, p) columns of X, centred
        """
        centred = [(groups, own @ A) for (groups, own), A in zip(weights, self.bases, strict=True)]
        found = self.at(self.matrices_of(v)).combined_variances(centred, X)
        matrices = self.slopes.centred_matrices(v)
        for (groups, own), matrix in zip(centred, matrices, strict=True):
            found += np.where(groups < 0, ((own @ matrix) * own).sum(axis=1), 0.0)
        return found

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at components in their order."""
        point = self.at(self.matrices_of(v))
        beta, cov_beta = point.point.fixed_effects()
        effects: dict[int, FloatArray] = {}
        for t, (term, A) in enumerate(zip(self.terms, self.bases, strict=True)):
            effects.update(
                zip(term, np.ascontiguousarray((point.effects(t) @ A.T).T), strict=True)
            )

        def variances() -> Any:
            return tuple(self._variances(point, known) for known in (False, True))

        return Solution(beta, cov_beta, tuple(effects[c] for c in range(len(effects))), variances)

    def _variances(self, point: _MatricesPoint, beta_known: bool) -> tuple[FloatArray, ...]:
        found: dict[int, FloatArray] = {}
        for t, (term, A) in enumerate(zip(self.terms, self.bases, strict=True)):
            C = A @ point.prediction_covariances(t, beta_known=beta_known) @ A.T
            variances = np.diagonal(C, axis1=1, axis2=2)
            found.update(zip(term, np.ascontiguousarray(variances.T), strict=True))
        return tuple(found[c] for c in range(len(found)))


def estimate_with_slopes(
    stats: Statistics, names: tuple[str, ...], options: ClimbOptions
) -> Estimate:
    """Return the estimate that maximises the likelihood of a model with random slopes.

    Parameters
    ----------
    stats : sums of the data, with slopes
    names : variances of the terms, covariances, the residual last
    options : of the method

    Raises
    ------
    EstimationError
        If an option does not apply, or the likelihood has no maximum.
    DesignError
        If the data cannot distinguish the components.
    """
    _check_options(options)
    likelihood = SlopesLikelihood(stats, reml=options.is_restricted)
    if likelihood.rss <= _EXACT_FIT * likelihood.products.yy:
        raise EstimationError(
            "the fixed part reproduces the response: there is no variance to estimate"
        )
    tol = 1e-9 if options.tol is None else float(options.tol)
    start = _start(likelihood)
    _check_distinct(likelihood, start, names)
    end = likelihood.maximum(start, int(options.max_iter), tol)
    if end.S[-1, 0, 0] <= _NO_RESIDUAL * float(np.trace(end.S, axis1=1, axis2=2).sum()):
        raise EstimationError(
            "the random and fixed effects reproduce the response exactly: the residual variance "
            "is zero, and the likelihood has no maximum; leave out a slope or a term"
        )
    values = likelihood.components(end.S)
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
    )


def _check_options(options: ClimbOptions) -> None:
    for option in ("hold", "start"):
        if getattr(options, option) is not None:
            raise EstimationError(
                f"{option}= is for models without random slopes; leave it out, or write (1|g) in "
                "place of (x|g)"
            )
    if options.engine not in ("auto", "blocked"):
        raise EstimationError(
            f"engine={options.engine!r} has no random slopes; use engine='auto', which solves "
            "them by sparse elimination"
        )


def _start(likelihood: SlopesLikelihood) -> FloatArray:
    """Return matrices to start from: half of the variance is residual, the rest is shared."""
    k = sum(len(term) for term in likelihood.terms)
    start = np.where(likelihood.linked, 0.5 / k * np.eye(likelihood.linked.shape[1]), 0.0)
    start[-1, 0, 0] = 0.5
    return start


_DEPENDENT = 1e-10
"""Smallest eigenvalue of an information matrix of unit diagonal that is more than rounding."""


def _check_distinct(
    likelihood: SlopesLikelihood, start: FloatArray, names: tuple[str, ...]
) -> None:
    """Refuse components that the data cannot distinguish: their information is singular."""
    # The average information is known at the start, the expected one decides.
    for kind in ("average", "expected"):
        information = likelihood.information(start, kind)
        size = np.sqrt(np.abs(np.diagonal(information)))
        size[size == 0.0] = 1.0
        values, vectors = np.linalg.eigh(information / np.outer(size, size))
        if values[0] > _DEPENDENT:
            return
    change = likelihood.back @ (vectors[:, 0] / size)
    unit = np.abs(likelihood.back) @ (1.0 / size)
    involved = [n for n, c in zip(names, change / unit, strict=True) if abs(c) > 1e-4]
    raise DesignError(
        f"these data cannot distinguish the components {', '.join(involved)}: another choice of "
        "them gives the scores the same covariance matrix; leave out a slope or a term"
    )


def _group(name: str) -> str:
    """Return the groups of a component, as g of ``g[x]``."""
    return name.partition("[")[0]


def _certificate(
    likelihood: SlopesLikelihood,
    end: ConeMaximum,
    names: tuple[str, ...],
    covariance: FloatArray,
    tol: float,
) -> Certificate:
    fixed = np.isnan(np.diagonal(covariance))
    score = likelihood.score_of(likelihood.components(end.S))
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


def _status(likelihood: SlopesLikelihood, end: ConeMaximum, names: tuple[str, ...]) -> str:
    if not end.converged:
        return (
            f"Not converged after {end.iterations} steps (Newton decrement "
            f"{display.number(end.decrement, 2)}): raise max_iter, or leave out a slope."
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
                "treat the rank as known"
            )
    if end.drops and end.drops[0] <= _CLOSE:
        clauses.append(
            f"another maximum of the log-likelihood is only {display.number(end.drops[0], 2)} "
            "lower: the data hardly decide between the two"
        )
    return f"Converged; {'; '.join(clauses)}." if clauses else "Converged."
