"""The likelihood of several variables for any data, by elimination of the largest term.

With R the covariance matrix of the residual, which has a small block for each unit, and
V = R + Σ_t Z_t (I ⊗ Σ_t) Z_t', the term with the most groups is eliminated first, group by group:

    V₁⁻¹ = R⁻¹ − R⁻¹ Z₁ E Z₁' R⁻¹,   E_g = L (I + L'D_g L)⁻¹ L',   D = Z₁'R⁻¹Z₁,

so that Ω = Z̃'V₁⁻¹Z̃ for Z̃ = [Z₂ X y] (all other terms, means and scores) is a small dense
matrix, from which the likelihood and its derivatives follow. The Σ_t = LL' may be singular.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.display import gib
from vcomp.estimators.likelihood import Derivatives, InformationKind, LastPoint
from vcomp.exceptions import EstimationError
from vcomp.multivariate.covariance_components import elements
from vcomp.multivariate.variable_layout import Layout
from vcomp.numerics import Positive, available_bytes, slices


@dataclass(frozen=True, slots=True)
class Pattern:
    """Units in which the same variables were observed.

    Attributes
    ----------
    variables : (s,) the observed variables
    rows : (units, s) positions of their scores
    """

    variables: LongArray
    rows: LongArray


def patterns_of(layout: Layout) -> list[Pattern]:
    """Return the units of a layout by the variables that were observed in them."""
    unit, variable = layout.scores.unit, layout.scores.variable.astype(np.int64)
    order = np.lexsort((variable, unit))
    sizes = np.bincount(unit)
    starts = np.cumsum(sizes) - sizes
    names = np.add.reduceat(np.left_shift(1, variable[order]), starts)
    found = []
    for name in np.unique(names):
        units = np.flatnonzero(names == name)
        rows = order[starts[units][:, None] + np.arange(sizes[units[0]])]
        found.append(Pattern(variable[rows[0]], rows))
    return found


class ResidualBlocks:
    """Sparse matrices with one block for every unit.

    Parameters
    ----------
    patterns : of the units
    n : number of scores
    """

    def __init__(self, patterns: Sequence[Pattern], n: int) -> None:
        sides = [
            np.broadcast_to(p.rows[:, :, None], (*p.rows.shape, p.rows.shape[1])) for p in patterns
        ]
        rows = np.concatenate([side.ravel() for side in sides])
        columns = np.concatenate([side.transpose(0, 2, 1).ravel() for side in sides])
        self._units = [len(p.rows) for p in patterns]
        self._order = np.lexsort((columns, rows))
        self._columns = columns[self._order]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
        self._n = n

    def matrix(self, blocks: Sequence[FloatArray]) -> Any:
        """Return the (n, n) matrix with the same block in all units of a pattern."""
        from scipy.sparse import csr_array

        tiled = [np.tile(b.ravel(), u) for b, u in zip(blocks, self._units, strict=True)]
        data = np.concatenate(tiled)[self._order]
        return csr_array((data, self._columns, self._starts), shape=(self._n, self._n))


def root(S: FloatArray) -> FloatArray:
    """Return L with LL' = S for a positive semidefinite S.

    Examples
    --------
    >>> L = root(np.array([[4.0, 4.0], [4.0, 4.0]]))
    >>> (L @ L.T).round(12)
    array([[4., 4.],
           [4., 4.]])
    """
    values, vectors = np.linalg.eigh(S)
    factor: FloatArray = vectors * np.sqrt(np.maximum(values, 0.0))
    return factor


def diagonal_blocks(M: Any, q: int, v: int) -> FloatArray:
    """Return the (q, v, v) blocks of a sparse block diagonal matrix."""
    M = M.tocoo()
    rows, columns = M.coords
    blocks = np.zeros((q, v, v))
    blocks[rows // v, rows % v, columns % v] = M.data
    return blocks


def block_diagonal(blocks: FloatArray) -> Any:
    """Return the sparse matrix of (q, v, v) blocks."""
    from scipy.sparse import bsr_array

    q, v, _ = blocks.shape
    return bsr_array((blocks, np.arange(q), np.arange(q + 1)), shape=(q * v, q * v)).tocsr()


def block_quadratic(A: Any, psi: FloatArray, v: int) -> FloatArray:
    """Return Σ_g A_g Ψ A_g', (v, v), for a sparse matrix with v rows for each group."""
    found = np.zeros((v, v))
    groups = A.shape[0] // v
    for part in slices(groups, max(1, _CHUNK // max(1, v * psi.shape[0]))):
        rows = A[part.start * v : part.stop * v]
        made = rows @ psi
        for x in range(v):
            for z in range(v):
                found[x, z] += rows[z::v].multiply(made[x::v]).sum()
    return found


def by_block(blocks: FloatArray, x: FloatArray) -> FloatArray:
    """Return the product of a block diagonal matrix and a vector or columns.

    Parameters
    ----------
    blocks : (q, v, v)
    x : (q v,) or (q v, m)
    """
    q, v, _ = blocks.shape
    made = blocks @ x.reshape(q, v, -1)
    return np.asarray(made.reshape(x.shape))


_DENSE_ROWS = 1000
"""Largest number of scores for the expected information, which needs dense (n, n) matrices."""

_MOST_EFFECTS = 5000
"""Largest number of effects of all terms except the one that is eliminated."""

_MOST_VARIABLES = 60
"""Largest number of variables: those observed in a unit are the bits of one integer."""

_CHUNK = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """The factored equations at given covariance components."""

    loglike: float
    S: FloatArray
    R_inverse: Any
    RZ1: Any  # R⁻¹Z₁ and R⁻¹[Z₂ X], sparse
    RZ2: Any
    D: FloatArray  # (q, v, v) blocks of Z₁'R⁻¹Z₁, and of E
    E: FloatArray
    B: Any  # Z₁'R⁻¹[Z₂ X] and EB, sparse
    EB: Any
    omega: FloatArray
    psi: FloatArray  # of P: V₁⁻¹ − V₁⁻¹[Z₂ X] Ψ [Z₂ X]'V₁⁻¹
    psi_v: FloatArray  # the same of V⁻¹
    Py: FloatArray


class EquationsLikelihood(LastPoint[_Point]):
    """Restricted or full likelihood of scores in units of their standard deviations.

    Parameters
    ----------
    layout : of the scores
    reml : restricted likelihood, or the full one
    y : (n,) the scores on another scale; None for that of the standard deviations

    Raises
    ------
    EstimationError
        If the terms have too many effects, or there are too many variables.
    """

    def __init__(self, layout: Layout, *, reml: bool, y: FloatArray | None = None) -> None:
        from scipy.sparse import csr_array, hstack

        self.layout, self.reml = layout, reml
        self.linked: BoolArray = layout.linked
        self.n, v = layout.scores.n, layout.n_variables
        self._k = len(layout.names) - 1
        order = sorted(range(self._k), key=lambda t: layout.sizes[t])
        self._first, self._others = order[-1], sorted(order[:-1])
        self._check_size()
        w = layout.scores.variable
        self._Z = [layout.incidence(t) for t in range(self._k)]
        ones = np.ones(self.n)
        self._X = csr_array((ones, w, np.arange(self.n + 1)), shape=(self.n, v))
        self._y = layout.y / layout.scale[w] if y is None else y
        parts = [self._Z[t] for t in self._others]
        self._Z2 = hstack([*parts, self._X], format="csr")
        self._Z1T, self._Z2T = self._Z[self._first].T.tocsr(), self._Z2.T.tocsr()
        self._patterns = patterns_of(layout)
        self._blocks = ResidualBlocks(self._patterns, self.n)

    @property
    def reason(self) -> str:
        """Which algorithm computes it, and why."""
        return (
            f"elimination of {self.layout.names[self._first]}, as the data are not balanced or "
            "not all variables were observed together"
        )

    @property
    def kinds(self) -> tuple[InformationKind, ...]:
        """The available kinds of information, the best first."""
        return ("observed", "expected", "average") if self.n <= _DENSE_ROWS else ("average",)

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ if the residual matrix is not positive definite."""
        try:
            return self._at(S).loglike
        except np.linalg.LinAlgError:
            return -np.inf

    def derivatives(self, S: FloatArray) -> Derivatives:
        """Return the log-likelihood with gradient and average information."""
        point = self._at(S)
        psi = point.psi if self.reml else point.psi_v
        v = self.layout.n_variables
        gradient = np.zeros(self.linked.shape)
        traces = np.array([self._trace_of_term(point, psi, t) for t in range(self._k)])
        for t in range(self._k):
            z = (self._Z[t].T @ point.Py).reshape(-1, v)
            gradient[t] = 0.5 * (z.T @ z - traces[t])
        rows = self._trace_of_rows(point, psi, traces)
        gradient[-1] = 0.5 * (self._squares_of_residual(point) - rows)
        gradient[~self.linked] = 0.0
        return Derivatives(point.loglike, gradient, self._average(point))

    def information(self, S: FloatArray, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the elements.

        Raises
        ------
        EstimationError
            If it is not the average information and there are too many scores.
        """
        point = self._at(S)
        average = self._average(point)
        if kind == "average":
            return average
        if kind not in self.kinds:
            raise EstimationError(
                f"the {kind} information is not computed for {self.n:,} scores: the limit is "
                f"{_DENSE_ROWS:,}"
            )
        expected = self._expected(point)
        return expected if kind == "expected" else 2.0 * average - expected

    # One point ------------------------------------------------------------------------------

    def _evaluated(self, S: FloatArray) -> _Point:
        layout, v = self.layout, self.layout.n_variables
        R_inverse, log_r = self._residual(S[-1])
        Z1 = self._Z[self._first]
        q = layout.sizes[self._first]
        RZ1, RZ2, Ry = R_inverse @ Z1, R_inverse @ self._Z2, R_inverse @ self._y
        D = diagonal_blocks(self._Z1T @ RZ1, q, v)
        L = root(S[self._first])
        A = np.eye(v) + L.T @ D @ L
        C = np.linalg.cholesky(A)
        log_a = 2.0 * float(np.log(np.diagonal(C, axis1=1, axis2=2)).sum())
        E = L @ np.linalg.solve(A, np.broadcast_to(L.T, A.shape))
        B = (self._Z1T @ RZ2).tocsr()
        EB = (block_diagonal(E) @ B).tocsr()
        Vy = Ry - RZ1 @ by_block(E, self._Z1T @ Ry)
        omega = (self._Z2T @ RZ2 - B.T.tocsr() @ EB).toarray()
        omega = 0.5 * (omega + omega.T)
        x, e = slice(omega.shape[0] - v, None), slice(0, omega.shape[0] - v)
        H = self._scaled(omega[:, e], S)  # Ω L of the other terms
        inner = Positive(np.eye(H.shape[1]) + self._scaled(H[e].T, S).T)
        LS = self._scaled(np.eye(H.shape[1]), S)
        psi_v = np.zeros_like(omega)
        psi_v[e, e] = LS @ inner.solve(LS.T)
        XVX = Positive((omega - H @ inner.solve(H.T))[x, x])
        # The means adjusted for the other terms, for P.
        F = np.vstack([-psi_v[e, e] @ omega[e, x], np.eye(v)])
        psi = psi_v + F @ XVX.solve(F.T)
        along = psi @ (self._Z2T @ Vy)
        Py = Vy - (RZ2 @ along - RZ1 @ (EB @ along))
        deviance = log_r + log_a + inner.log_determinant() + float(self._y @ Py)
        free = self.n
        if self.reml:
            deviance += XVX.log_determinant()
            free -= v
        loglike = -0.5 * (deviance + free * float(np.log(2.0 * np.pi)))
        return _Point(loglike, S.copy(), R_inverse, RZ1, RZ2, D, E, B, EB, omega, psi, psi_v, Py)

    def _scaled(self, M: FloatArray, S: FloatArray) -> FloatArray:
        """Return M (I ⊗ L) for the columns of the effects of all other terms."""
        v = self.layout.n_variables
        made, first = np.empty_like(M), 0
        for t in self._others:
            part = slice(first, first + self.layout.sizes[t] * v)
            blocks = np.ascontiguousarray(M[:, part]).reshape(M.shape[0], -1, v) @ root(S[t])
            made[:, part] = blocks.reshape(M.shape[0], -1)
            first = part.stop
        return made

    def _residual(self, S: FloatArray) -> tuple[Any, float]:
        """Return R⁻¹, sparse, and log|R|."""
        total = 0.0
        inverses: list[FloatArray] = []
        for pattern in self._patterns:
            inside = S[np.ix_(pattern.variables, pattern.variables)]
            C = np.linalg.cholesky(inside)
            total += len(pattern.rows) * 2.0 * float(np.log(np.diagonal(C)).sum())
            inverses.append(np.asarray(np.linalg.inv(inside), dtype=float))
        return self._blocks.matrix(inverses), total

    # Traces ---------------------------------------------------------------------------------

    def _trace_of_term(self, point: _Point, psi: FloatArray, t: int) -> FloatArray:
        """Return the sum over groups of Z_g'PZ_g, (v, v), with Ψ of P or of V⁻¹."""
        v = self.layout.n_variables
        if t == self._first:
            D = point.D
            own = (D - D @ point.E @ D).sum(axis=0)
            left = (point.B - block_diagonal(D) @ point.EB).tocsr()
            return np.asarray(own - block_quadratic(left, psi, v))
        first = v * sum(self.layout.sizes[u] for u in self._others if u < t)
        part = slice(first, first + v * self.layout.sizes[t])
        rows = point.omega[part]
        inside = rows[:, part] - (rows @ psi) @ rows.T
        q = self.layout.sizes[t]
        return np.asarray(np.einsum("gagb->ab", inside.reshape(q, v, q, v)))

    def _trace_of_rows(self, point: _Point, psi: FloatArray, of_terms: FloatArray) -> FloatArray:
        """Return the sum over the units of the blocks of P, (v, v).

        The blocks of PV = I − V⁻¹X(X'V⁻¹X)⁻¹X' add up to the numbers of scores minus one. With
        the traces of the terms this determines the sum if all units have the same variables, or
        each unit has one.
        """
        S, v = point.S, self.layout.n_variables
        counts = np.bincount(self.layout.scores.variable, minlength=v) - float(self.reml)
        known = np.diag(counts) - np.einsum("tab,tbc->ac", of_terms, S[:-1])
        if len(self._patterns) == 1 and self.layout.same_rows:
            return np.asarray(np.linalg.solve(S[-1], known.T).T)
        if not (self.linked[-1] & ~np.eye(v, dtype=bool)).any():
            return np.asarray(np.diag(np.diagonal(known) / np.diagonal(S[-1])))
        return self._trace_by_units(point, psi)

    def _trace_by_units(self, point: _Point, psi: FloatArray) -> FloatArray:
        """Return the same for units with different variables.

        The block of P of a unit is R_u⁻¹ − R_u⁻¹ C_u R_u⁻¹, where C_u is the sum of the blocks of
        the inverse equations for the unit's groups.
        """
        v = self.layout.n_variables
        C = self._covariances_of_units(point, psi)
        found = np.zeros((v, v))
        for pattern in self._patterns:
            i = pattern.variables
            inverse = np.linalg.inv(point.S[-1][np.ix_(i, i)])
            units = self.layout.scores.unit[pattern.rows[:, 0]]
            total = C[units].sum(axis=0)[np.ix_(i, i)]
            found[np.ix_(i, i)] += len(units) * inverse - inverse @ total @ inverse
        return found

    def _covariances_of_units(self, point: _Point, psi: FloatArray) -> FloatArray:
        """Return C_u, the covariance of errors in a unit's effects plus means, (units, v, v)."""
        v = self.layout.n_variables
        width = psi.shape[0] // v
        blocks = psi.reshape(width, v, width, v)
        places = self._places_of_units
        C = np.zeros((self.layout.scores.n_units, v, v))
        for x in places:
            for z in places:
                C += blocks[x, :, z, :]
        own = self._first_of_units
        q = self.layout.sizes[self._first]
        for part in slices(q, max(1, _CHUNK // (v * psi.shape[0]))):
            EB = point.EB[part.start * v : part.stop * v].toarray()
            W = (EB @ psi).reshape(-1, v, psi.shape[0])
            K = point.E[part] + W @ EB.reshape(W.shape).transpose(0, 2, 1)
            units = np.flatnonzero((own >= part.start) & (own < part.stop))
            here = own[units] - part.start
            C[units] += K[here]
            by_block = W.reshape(-1, v, width, v)
            for x in places:
                mixed = by_block[here, :, x[units], :]
                C[units] -= mixed + mixed.transpose(0, 2, 1)
        return C

    @cached_property
    def _first_of_units(self) -> LongArray:
        """The group of each unit in the term that is eliminated."""
        return self._of_units(self._first)

    @cached_property
    def _places_of_units(self) -> list[LongArray]:
        """Positions in Ω of the groups of each unit in the other terms, and of the means."""
        starts = np.cumsum([0, *(self.layout.sizes[t] for t in self._others)])
        places = [
            start + self._of_units(t) for start, t in zip(starts[:-1], self._others, strict=True)
        ]
        return [*places, np.full(self.layout.scores.n_units, starts[-1])]

    def _of_units(self, t: int) -> LongArray:
        groups = np.zeros(self.layout.scores.n_units, dtype=np.int64)
        groups[self.layout.scores.unit] = self.layout.groups[t]
        return groups

    def _squares_of_residual(self, point: _Point) -> FloatArray:
        v = self.layout.n_variables
        found = np.zeros((v, v))
        for pattern in self._patterns:
            e = point.Py[pattern.rows]
            found[np.ix_(pattern.variables, pattern.variables)] += e.T @ e
        return found

    # Informations -----------------------------------------------------------------------------

    def _average(self, point: _Point) -> FloatArray:
        """Return ½ y'P V_i P V_j P y."""
        F = np.stack([self._applied(e, point.Py) for e in elements(self.linked)], axis=1)
        RF = point.R_inverse @ F
        Z1RF = self._Z1T @ RF
        UF = self._Z2T @ RF - point.EB.T @ Z1RF
        between = Z1RF.T @ by_block(point.E, Z1RF)
        found: FloatArray = F.T @ RF - between - UF.T @ (point.psi @ UF)
        return 0.25 * (found + found.T)

    def _applied(self, element: tuple[int, int, int], x: FloatArray) -> FloatArray:
        """Return V_i x for the derivative V_i of V by an element."""
        t, a, b = element
        layout = self.layout
        w, groups = layout.scores.variable, layout.groups[t]
        of_a, of_b = w == a, w == b
        made = np.zeros(self.n)
        sums = np.bincount(groups[of_b], x[of_b], layout.sizes[t])
        made[of_a] = sums[groups[of_a]]
        if a != b:
            sums = np.bincount(groups[of_a], x[of_a], layout.sizes[t])
            made[of_b] += sums[groups[of_b]]
        return made

    def _expected(self, point: _Point) -> FloatArray:
        """Return ½ tr(P V_i P V_j), for few scores."""
        RZ1 = point.RZ1.toarray()
        U = point.RZ2.toarray() - RZ1 @ point.EB.toarray()
        psi = point.psi if self.reml else point.psi_v
        P = point.R_inverse.toarray() - RZ1 @ by_block(point.E, RZ1.T) - U @ psi @ U.T
        w, layout = self.layout.scores.variable, self.layout
        products = []
        for t, a, b in elements(self.linked):
            same = layout.groups[t][:, None] == layout.groups[t][None, :]
            pair = (w == a)[:, None] & (w == b)[None, :]
            products.append(P @ (same & (pair | pair.T)).astype(float))
        m = len(products)
        found = np.empty((m, m))
        for i in range(m):
            for j in range(i + 1):
                found[i, j] = found[j, i] = 0.5 * float((products[i] * products[j].T).sum())
        return found

    # Sizes --------------------------------------------------------------------------------------

    def _check_size(self) -> None:
        layout, v = self.layout, self.layout.n_variables
        if v > _MOST_VARIABLES:
            raise EstimationError(
                f"there are {v} variables, and REML and ML are for up to {_MOST_VARIABLES}; use "
                "method='anova'"
            )
        effects = sum(layout.sizes[t] for t in self._others) * v
        needed = 6.0 * 8.0 * float(effects) ** 2
        if effects > _MOST_EFFECTS or needed > 0.8 * available_bytes():
            raise EstimationError(
                f"the terms except {layout.names[self._first]} have {effects:,} effects in {v} "
                f"variables, whose equations need {gib(needed)}; the limit is {_MOST_EFFECTS:,} "
                "effects. Use method='anova', which has no limit"
            )
