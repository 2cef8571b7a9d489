"""REML and ML of models with random slopes, or with several residual variances.

There is one covariance matrix for each bar of the formula, and a residual variance for each group
of rows. The elimination of ``equations`` gives likelihood, score and informations, and
``cone`` maximises over positive semidefinite matrices. Both work on centred and scaled columns of
the slopes and on scores of standard deviation 1; results are on the scale of the data.

The climb starts from MIVQUE(0) of the elements. With M = I − X(X'X)⁻¹X', the forms y'MV_jMy have
the expectations Σ_k tr(V_jMV_kM) θ_k in the elements θ. The traces are sums over entries of
N_ab = Z_a'MZ_b = Z_a'Z_b − U_aU_b', where U = Z'X(X'X)^{-½}.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.estimators.likelihood.cone import ConeMaximum, ConeSearch, elements, positive_part
from vcomp.estimators.likelihood.engine import FixedForms, InformationKind, LastPoint, Solution
from vcomp.estimators.likelihood.equations import BlockSums, Equations
from vcomp.estimators.likelihood.matrices_point import MatricesPoint, congruence
from vcomp.estimators.likelihood.point import Point
from vcomp.exceptions import EstimationError
from vcomp.numerics import solve_positive
from vcomp.statistics import Statistics

_MOST = 15
"""Largest number of elements for which it is computed: traces are as many as their squares."""


def mivque_elements(equations: Equations) -> FloatArray | None:
    """Return MIVQUE(0) of the elements of all matrices, row by row, and of the residual.

    None with several residual variances, for many elements, or if the forms do not distinguish
    them.

    Parameters
    ----------
    equations : of the effects
    """
    keys = [
        (term[a], term[b])
        for term, pairs in zip(equations.sums.terms, equations.pairs, strict=True)
        for a, b in pairs
    ]
    if len(equations.rows) > 1 or not 0 < len(keys) <= _MOST:
        return None
    try:
        return solve_positive(*_forms(equations, keys))
    except np.linalg.LinAlgError:
        return None


def _forms(equations: Equations, keys: Sequence[tuple[int, int]]) -> tuple[FloatArray, FloatArray]:
    """Return the traces tr(V_jMV_kM) and the forms y'MV_jMy, of the residual last."""
    part, sums, places = equations.rows[0], equations.sums.groups[0], equations.places
    n, J = equations.n_effects, len(keys)
    root = np.linalg.cholesky(sums.XX)
    scaled = np.linalg.solve(root, part.border.T).T
    beta = np.linalg.solve(root, sums.Xy)
    rest = part.right[:n] - scaled @ beta
    matrix = part.gram.astype(float)
    Z = {(a, b): matrix[places[a]][:, places[b]] for a, b in product(places, places)}
    U = {c: scaled[at] for c, at in places.items()}
    u = {c: rest[at] for c, at in places.items()}

    def squares(a: int, b: int, c: int, d: int) -> float:
        """Return Σ N_bc N_ad over their entries."""
        of_rows = Z[b, c].multiply(Z[a, d]).sum()
        mixed = (U[a] * (Z[b, c] @ U[d])).sum() + (U[b] * (Z[a, d] @ U[c])).sum()
        of_fixed = ((U[b].T @ U[a]) * (U[c].T @ U[d])).sum()
        return float(of_rows - mixed + of_fixed)

    traces, q = np.empty((J + 1, J + 1)), np.empty(J + 1)
    for j, (a, b) in enumerate(keys):
        twice = 1.0 + (a != b)
        q[j] = twice * float(u[a] @ u[b])
        traces[j, J] = traces[J, j] = twice * (Z[a, b].diagonal().sum() - (U[a] * U[b]).sum())
        for k, (c, d) in enumerate(keys[: j + 1]):
            orders = sorted({(a, b, c, d), (b, a, c, d), (a, b, d, c), (b, a, d, c)})
            traces[j, k] = traces[k, j] = sum(squares(*order) for order in orders)
    q[J], traces[J, J] = sums.yy - float(beta @ beta), float(sums.n - sums.n_fixed)
    return traces, q


_RAISED = 0.01
"""Smallest eigenvalue of a matrix at the start, for scores of standard deviation 1."""

_UNLIKE = 1e4
"""Ratio of the variances of principal effects, those below their error variance counted as that,
from which the likelihood is maximised for these effects."""

_MIXED, _TURNS = 1e-3, 6
"""Share of another effect up to which an effect is principal, and largest number of climbs towards
such effects."""

_DOMINATED, _TIMES = 1e-6, 2
"""Residual variance, for scores of standard deviation 1, below which effects are subtracted from
the scores before squares are taken, and how often: a larger one costs six of sixteen digits."""

_LEAST_RESIDUAL = 1e-8
"""Smallest of several residual variances at which the likelihood is computed, as a share of the
largest. Below it rounding errors of the forms, divided by the variance, are digits of the
likelihood that count."""

_VANISHED, _ALL_VANISHED = 1e-6, 1e-20
"""One of several residual variances that is a smaller share of the largest, and where the
likelihood rises as it falls, has gone to zero; or all of them, for scores of standard deviation
1."""


class VanishedResidualError(np.linalg.LinAlgError):
    """One of several residual variances went to zero.

    Attributes
    ----------
    group : its number
    largest : of the residual variances, for scores of standard deviation 1
    """

    def __init__(self, group: int, largest: float) -> None:
        super().__init__("a residual variance went to zero")
        self.group, self.largest = group, largest


class MatricesLikelihood(LastPoint[MatricesPoint]):
    """The likelihood of the matrices of all bars, a :class:`~vcomp.estimators.cone` objective.

    The last matrix of the climb has the residual variances on its diagonal.

    Parameters
    ----------
    stats : sums of the data, with covariance matrices
    reml : whether the likelihood is the restricted one

    Raises
    ------
    EstimationError
        If the factor does not fit into memory.
    """

    name = "blocked"
    reason = "covariance matrices and groups of residuals are fitted by sparse elimination"
    kinds: tuple[InformationKind, ...] = ("observed", "expected", "average")

    def __init__(self, stats: Statistics, *, reml: bool) -> None:
        assert stats.blocks is not None
        self.stats, self.products, self.reml = stats, stats.cross_products, reml
        self.blocks, self.terms = stats.blocks, stats.blocks.terms
        self.weight, self.n_residuals = stats.mean_weight, stats.blocks.n_residuals
        # The sums have effects of rows of weight 1.
        self.bases = tuple(A / np.sqrt(self.weight) for A in stats.blocks.bases)
        self._axes: Sequence[FloatArray] = ()
        self._unturned: MatricesLikelihood | None = None
        self.n, p = self.products.n, self.products.n_fixed
        beta = solve_positive(self.products.XX, self.products.Xy) if p else np.zeros(0)
        self.rss = self.products.yy - float(beta @ self.products.Xy)
        self.unit = self.rss / (self.n - p)
        try:
            sums = BlockSums(stats.by_residual, self.terms, self.products.log_weights)
            self.equations = Equations(sums)
        except np.linalg.LinAlgError:
            raise EstimationError(
                "the random effects are so connected that their factor does not fit into memory; "
                "leave out a term, or fit intercepts alone with one residual variance"
            ) from None

    @cached_property
    def linked(self) -> BoolArray:
        """(k + 1, q, q) which elements there are, the residuals last."""
        widest = max([self.n_residuals, *(len(term) for term in self.terms)])
        linked = np.zeros((len(self.terms) + 1, widest, widest), dtype=bool)
        for t, term in enumerate(self.terms):
            linked[t, : len(term), : len(term)] = True
        np.fill_diagonal(linked[-1, : self.n_residuals, : self.n_residuals], val=True)
        return linked

    @cached_property
    def back(self) -> FloatArray:
        """Derivatives of the components, in their order, by the elements of the climb, (m, m)."""
        first, m = 0, len(elements(self.linked))
        found = np.zeros((m, m))
        for matrix, A, pairs in zip(
            self.blocks.matrices, self.bases, self.equations.pairs, strict=True
        ):
            own = slice(first, first + len(pairs))
            found[[matrix.places[a][b] for a, b in pairs], own] = self.unit * congruence(A, pairs)
            first += len(pairs)
        found[first:, first:] = self.unit * np.eye(m - first)
        return found

    def matrices_of(self, v: FloatArray) -> FloatArray:
        """Return the matrices of the climb, (k + 1, q, q), of components in their order."""
        S = np.zeros(self.linked.shape)
        for t, matrix in enumerate(self._centred_matrices(v)):
            S[t, : len(matrix), : len(matrix)] = matrix / self.unit
        r = self.n_residuals
        np.fill_diagonal(S[-1, :r, :r], v[-r:] / self.unit)
        return S

    def _centred_matrices(self, v: FloatArray) -> list[FloatArray]:
        """Return for each bar the covariance matrix of the effects that the sums have."""
        matrices = [self.weight * matrix for matrix in self.blocks.centred_matrices(v)]
        for t, B in enumerate(self._axes):
            half = np.linalg.solve(B, matrices[t])
            matrices[t] = np.linalg.solve(B, half.T)
        return matrices

    def residuals_of(self, S: FloatArray) -> FloatArray:
        """Return the residual variances of matrices of the climb."""
        return np.diagonal(S[-1])[: self.n_residuals]

    def components(self, S: FloatArray) -> FloatArray:
        """Return the components, in their order, of matrices of the climb."""
        t, a, b = np.array(elements(self.linked)).T
        return self.back @ S[t, a, b]

    def maximum(
        self, start: FloatArray, max_iter: int, tol: float, held: BoolArray | None = None
    ) -> tuple[MatricesLikelihood, ConeMaximum]:
        """Return the maximum, climbed from matrices that may have lower ranks.

        It is that of this likelihood, or of the same one of principal effects.

        Parameters
        ----------
        start : (k + 1, q, q)
        held : (k + 1, q, q) which elements keep the values of `start`: all of a bar's matrix, or
            none; None if all are free
        max_iter : largest number of steps
        tol : Newton decrement at which they end
        """
        if held is not None and held.any():
            rest = _WithHeld(self, start, held)
            if not rest.linked.any():
                nothing, ranks = np.zeros((0, 0)), (0,) * len(start)
                value = self.loglike(start)
                at = ConeMaximum(0.0 * start, value, nothing, ranks, 0.0, 0.0, True, 0, 1)
                return self, rest.whole(at)
            search = ConeSearch(rest)
            path = search.approach(self._raised(start, rest.linked), max_iter)
            return self, rest.whole(search.maximum(path, max_iter=max_iter, tol=tol))
        of, search, left = self, ConeSearch(self), max_iter
        path = search.approach(self._raised(start, self.linked), left)
        for _ in range(_TURNS):
            principal = of._of_principal_effects(path[-1].S)
            if principal is None:
                break
            of, S = principal
            left -= len(path) - 1
            search = ConeSearch(of, search.evaluations)
            path = search.approach(of._raised(S, of.linked), left)
        end = search.maximum(path, max_iter=left, tol=tol)
        return of, replace(end, iterations=max_iter - left + end.iterations)

    def first_matrices(self) -> FloatArray:
        """Return positive definite matrices to start from, (k + 1, q, q).

        They are MIVQUE(0). Where that is not computed, half of the variance is residual, and the
        rest is shared.
        """
        found = mivque_elements(self.equations)
        S = np.zeros(self.linked.shape)
        if found is None:
            k = sum(len(term) for term in self.terms)
            S += 0.5 / max(k, 1) * np.eye(self.linked.shape[1])
            S[-1] = 0.5 * np.eye(self.linked.shape[1])
        else:
            t, a, b = np.array(elements(self.linked)).T
            S[t, a, b] = S[t, b, a] = found / self.unit
        return self._raised(S, self.linked)

    @staticmethod
    def _raised(S: FloatArray, linked: BoolArray) -> FloatArray:
        """Return positive definite matrices near others, the same if they are."""
        raised = S.copy()
        for matrix, links in zip(raised, linked, strict=True):
            own = np.ix_(*[np.flatnonzero(np.diagonal(links))] * 2)
            if np.linalg.eigvalsh(matrix[own]).min(initial=np.inf) < 0.99 * _RAISED:
                matrix[own] = positive_part(matrix[own], _RAISED)
        return np.where(linked, raised, 0.0)

    def _of_principal_effects(self, S: FloatArray) -> tuple[MatricesLikelihood, FloatArray] | None:
        """Return the likelihood of the effects in principal directions, and their matrices.

        With K the precision of a level's effects and K⁻¹ = BB', Λ = BDB', an effect has the
        variance D for an error variance of 1; its unit is √max(D, 1). None if all variances
        are alike, or the effects are nearly these.
        """
        bases, turned, mixed = [], np.zeros(S.shape), 0.0
        low, high = np.inf, 0.0
        precisions = self.equations.level_precisions(self.residuals_of(S))
        for t, K in enumerate(precisions):
            F, q = np.linalg.cholesky(K), len(K)
            values, W = np.linalg.eigh(F.T @ S[t, :q, :q] @ F)
            units = np.maximum(values, 1.0)
            low, high = min(low, units[0]), max(high, units[-1])
            B = np.linalg.solve(F.T, W) * np.sqrt(units)
            mixed = max(mixed, float(np.abs(B - np.diag(np.diagonal(B))).max()))
            bases.append(B)
            turned[t, range(q), range(q)] = values / units
        if high < _UNLIKE * low or (self._axes and mixed < _MIXED):
            return None
        turned[-1] = S[-1]
        other = copy(self)
        vars(other).pop("back", None)
        vars(other).pop("_precise", None)
        other._last, other._axes, other._unturned = None, bases, self._unturned or self
        if self._axes:
            other._axes = [A @ B for A, B in zip(self._axes, bases, strict=True)]
        other.bases = tuple(A @ B for A, B in zip(self.bases, bases, strict=True))
        other.equations = self.equations.rotated(bases)
        return other, turned

    def with_response(self, stats: Statistics) -> MatricesLikelihood:
        """Return the likelihood of the same rows with another response."""
        other = copy(self)
        other.stats, other.products, other._last = stats, stats.cross_products, None
        vars(other).pop("_precise", None)
        if self._unturned is not None:
            other._unturned = self._unturned.with_response(stats)
        other.equations = self.equations.with_response(stats.by_residual)
        return other

    def _evaluated(self, v: FloatArray) -> MatricesPoint:
        S = self.unit * v.reshape(self.linked.shape)
        matrices = [S[t, : len(term), : len(term)] for t, term in enumerate(self.terms)]
        is_small = self.residuals_of(v.reshape(self.linked.shape)).min() < _DOMINATED
        equations = self._precise if is_small else self.equations
        return MatricesPoint(equations, matrices, self.residuals_of(S), reml=self.reml)

    @cached_property
    def _precise(self) -> Equations:
        """The equations of scores less effects that dwarf their residuals.

        The effects are those that a small residual variance predicts.
        """
        if self._unturned is not None:
            return self._unturned._precise.rotated(self._axes)
        equations, n = self.equations, self.equations.n_effects
        residuals = np.full(self.n_residuals, _DOMINATED * self.unit)
        matrices = [self.unit * np.eye(len(term)) for term in self.terms]
        for _ in range(_TIMES):
            point = Point(equations, residuals, matrices)
            effects = [np.zeros(0)] * len(equations.places)
            for t, term in enumerate(self.terms):
                for c, own in zip(term, point.effects(t).T, strict=True):
                    effects[c] = own / np.sqrt(self.weight)
            beta = point.fixed_effects()[0]
            less = self.stats.without_effects(effects, beta)
            offset = np.concatenate([*(effects[c] for c in equations.places), beta])
            offset[:n] *= np.sqrt(self.weight)
            equations = equations.with_response(less.by_residual, offset)
        return equations

    def at(self, S: FloatArray) -> MatricesPoint:
        """Return the likelihood at matrices of the climb."""
        return self._at(S.ravel())

    # The objective of the climb ------------------------------------------------------------------

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ if it cannot be computed."""
        residuals = self.residuals_of(S)
        least = _LEAST_RESIDUAL * residuals.max() if self.n_residuals > 1 else 0.0
        if not (residuals > least).all():
            return -np.inf
        try:
            return self.at(S).loglike()
        except np.linalg.LinAlgError:
            return -np.inf

    def gradient(self, S: FloatArray) -> FloatArray:
        """Return G of dℓ = Σ tr(G_t dS_t), (k + 1, q, q).

        Raises
        ------
        VanishedResidualError
            If one of several residual variances goes to zero.
        """
        point, found = self.at(S), np.zeros(self.linked.shape)
        for t, G in enumerate(point.gradients()):
            found[t, : len(G), : len(G)] = G
        r = self.n_residuals
        slopes, residuals = point.residual_slopes(), self.residuals_of(S)
        least = max(_VANISHED * residuals.max(), _ALL_VANISHED)
        # Where the likelihood is not computed, the slope has no digit.
        gone = (residuals < least) & (slopes < 0.0)
        gone |= residuals <= _LEAST_RESIDUAL * residuals.max()
        if r > 1 and gone.any():
            raise VanishedResidualError(int(np.argmax(gone)), float(residuals.max()))
        np.fill_diagonal(found[-1, :r, :r], slopes)
        return self.unit * found

    def information(self, S: FloatArray, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the elements."""
        found = np.roll(self.at(S).information(kind), -self.n_residuals, axis=(0, 1))
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
        return self.score_at(self.matrices_of(v))

    def score_at(self, S: FloatArray) -> FloatArray:
        """Return the gradient by the components at matrices of the climb."""
        t, a, b = np.array(elements(self.linked)).T
        gradient = self.gradient(S)[t, a, b]
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
        by_elements = self.unit * np.roll(self.at(S).fixed_forms(), -self.n_residuals, axis=0)
        inverse = np.linalg.inv(self.back)  # of the order of the components
        first = np.tensordot(inverse.T, by_elements, 1)
        if not second:
            return FixedForms(self.fixed_effects(S)[1], first)
        both = np.roll(self.at(S).second_fixed_forms(), -self.n_residuals, axis=(0, 1))
        both = self.unit**2 * both
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
        matrices = self._centred_matrices(v)
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

    def predicted_columns(self, v: FloatArray) -> tuple[FloatArray, ...]:
        """Return C_t of V⁻¹X = R⁻¹(X − Σ Z_tC_t) for each term, (q_t, p), of centred columns."""
        point, found = self.at(self.matrices_of(v)), dict[int, FloatArray]()
        for t, term in enumerate(self.terms):
            columns = point.predicted_columns(t) / np.sqrt(self.weight)
            found.update(zip(term, np.ascontiguousarray(columns.swapaxes(0, 1)), strict=True))
        return tuple(found[c] for c in range(len(found)))

    def effect_covariances(
        self,
        v: FloatArray,
        bars: Sequence[int],
        levels: Sequence[LongArray],
        *,
        beta_known: bool,
    ) -> FloatArray:
        """Return the covariance matrices of û − u of all effects of a level, (m, q, q).

        Parameters
        ----------
        v : components in their order
        bars : with the same levels
        levels : for each bar its number of each of the m levels
        beta_known : whether the fixed effects are known, not estimated
        """
        from scipy.linalg import block_diag

        A, point = block_diag(*(self.bases[t] for t in bars)), self.at(self.matrices_of(v))
        found: FloatArray = (
            A @ point.prediction_covariances(bars, levels, beta_known=beta_known) @ A.T
        )
        return found

    def _variances(self, point: MatricesPoint, beta_known: bool) -> tuple[FloatArray, ...]:
        found: dict[int, FloatArray] = {}
        for t, (term, A) in enumerate(zip(self.terms, self.bases, strict=True)):
            C = A @ point.prediction_covariances([t], beta_known=beta_known) @ A.T
            variances = np.diagonal(C, axis1=1, axis2=2)
            found.update(zip(term, np.ascontiguousarray(variances.T), strict=True))
        return tuple(found[c] for c in range(len(found)))


class _WithHeld:
    """The likelihood of the other matrices if some are held, an objective of the climb.

    Parameters
    ----------
    likelihood : of all matrices
    start : (k + 1, q, q) with the values of the held ones
    held : (k + 1, q, q) which elements are held
    """

    def __init__(self, likelihood: MatricesLikelihood, start: FloatArray, held: BoolArray) -> None:
        self.likelihood, self.fixed = likelihood, np.where(held, start, 0.0)
        self.n, self.reason, self.kinds = likelihood.n, likelihood.reason, likelihood.kinds
        self.linked = likelihood.linked & ~held
        t, a, b = np.array(elements(likelihood.linked)).T
        self.free = np.flatnonzero(self.linked[t, a, b])

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood."""
        return self.likelihood.loglike(S + self.fixed)

    def gradient(self, S: FloatArray) -> FloatArray:
        """Return the gradient by the free matrices, zero elsewhere."""
        return np.where(self.linked, self.likelihood.gradient(S + self.fixed), 0.0)

    def information(self, S: FloatArray, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the free elements."""
        whole = self.likelihood.information(S + self.fixed, kind)
        return whole[np.ix_(self.free, self.free)]

    def curvature(self, S: FloatArray) -> FloatArray:
        """Return the observed information of the free elements."""
        return self.information(S, "observed")

    def whole(self, end: ConeMaximum) -> ConeMaximum:
        """Return a maximum with the held matrices, whose ranks count as full."""
        tangent = np.zeros((len(elements(self.likelihood.linked)), end.tangent.shape[1]))
        tangent[self.free] = end.tangent
        full = (np.diagonal(links).sum() for links in self.likelihood.linked & ~self.linked)
        ranks = tuple(int(r + f) for r, f in zip(end.ranks, full, strict=True))
        return replace(end, S=end.S + self.fixed, tangent=tangent, ranks=ranks)
