"""Likelihood, score and informations of Henderson's equations at one value of the components.

``block_equations`` has the notation. The matrix C of the equations is linear in the natural
parameters φ: the 1/σ²_r and the elements of the Λ_t⁻¹. Likelihood, score
and informations follow from derivatives of log|C| and of the least sum of squares by φ, and the
chain rule (docs/decisions/0020-one-elimination.md). Forms of solutions are computed from products
with the sums of rows in extended precision after a step of refinement, not as what other
components leave of a total.

So far the blocked engine takes its forms of X from here where the residual is small.

:class:`LeadBlocks` has squares of a bordered block-diagonal matrix C = [[A, B], [B', K]] with
q × q blocks A_l of the levels of one term. With Y = A⁻¹B and the dense corner Z of C⁻¹,

    C⁻¹ = [[A⁻¹ + YZY', −YZ], [−ZY', Z]].

For D = E ⊗ I of the term, E of size q × q, the squares tr(C⁻¹DC⁻¹D') need the m × m products Y'DY
and the diagonal blocks of C⁻¹.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.block_equations import BlockEquations, BlockSums, PriorPart
from vcomp.estimators.likelihood.engine import FixedForms
from vcomp.numerics import Positive, limited_blas
from vcomp.numerics.sparse import Factor, span_of
from vcomp.statistics import CrossProducts

_DENSE = 0.1
"""Share of entries of Y from which dense products are faster."""

_FEW_ENTRIES, _FEW_LEVELS = 0.03, 2.0
"""Entries and levels of sparse Y, as a share of those of the corner, up to which products with Y
are faster than with Y'Y."""


@dataclass(frozen=True, slots=True, eq=False)
class LeadBlocks:
    """The blocks of one term, and what they share with the dense corner.

    Attributes
    ----------
    gram : (levels, q, q) A_l
    of_inverse : (levels, q, q) the same blocks of C⁻¹
    border : for each of the q effects the sparse rows of B, (levels, m)
    corner : (m, m) Z
    """

    gram: FloatArray
    of_inverse: FloatArray
    border: Sequence[Any]
    corner: FloatArray

    def squares(
        self, units: FloatArray, others: Sequence[tuple[LongArray, LongArray]]
    ) -> FloatArray:
        """Return tr(C⁻¹D_iC⁻¹D_j) of directions of the term, then of others.

        Parameters
        ----------
        units : (J, q, q) symmetric E of the directions of the term
        others : of directions of the corner the rows and columns of their ones
        """
        inverse: FloatArray = np.asarray(np.linalg.inv(self.gram), dtype=float)
        products, Z = self._of_term(units, inverse), self.corner
        J, n = len(units), len(units) + len(others)
        spans = [_ones(*places) for places in others]
        found = np.zeros((n, n))
        for i, W in enumerate(products):
            for j, X in enumerate(products[: i + 1]):
                found[i, j] = found[j, i] = np.einsum("ij,ji->", W, X)
            for j, ones in enumerate(spans, start=J):
                (a, b), times = ones[0], len(ones)
                found[i, j] = found[j, i] = times * np.einsum("ij,ji->", Z[a], W[:, b])
        for i, ones in enumerate(spans, start=J):
            for j, twos in enumerate(spans[: i - J + 1], start=J):
                pairs = [(Z[a][:, d], Z[b][:, c]) for (a, b), (c, d) in product(ones, twos)]
                found[i, j] = found[j, i] = sum(np.einsum("ij,ij->", *pair) for pair in pairs)
        rest = self.of_inverse - inverse
        for p, q in ((inverse, inverse), (inverse, rest), (rest, inverse)):
            M = np.tensordot(p, q, (0, 0))
            found[:J, :J] += np.einsum("iab,kcd,bcda->ik", units, units, M)
        return 0.5 * (found + found.T)

    def _of_term(self, units: FloatArray, inverse: FloatArray) -> list[FloatArray]:
        """Return Y'(E ⊗ I)Y Z of each E."""
        from scipy.sparse import diags_array

        (m, _), q = self.corner.shape, len(self.border)
        if not m:
            return [self.corner for _ in units]
        Y: list[Any] = [
            sum(diags_array(inverse[:, a, b]) @ self.border[b] for b in range(q)).tocsr()
            for a in range(q)
        ]
        if sum(y.nnz for y in Y) > _DENSE * q * np.prod(Y[0].shape):
            Y = [y.toarray() for y in Y]
        elif max(y.nnz for y in Y) < _FEW_ENTRIES * m**2 and Y[0].shape[0] < _FEW_LEVELS * m:
            P = [y @ self.corner for y in Y]
            return [sum(E[a, b] * (Y[a].T @ P[b]) for a, b in np.argwhere(E)) for E in units]
        found = []
        with limited_blas(m):
            grams = {(a, b): Y[a].T @ Y[b] for a, b in product(range(q), repeat=2) if a <= b}
            for E in units:
                H = sum(E[at] * gram for at, gram in grams.items() if E[at])
                H = H if isinstance(H, np.ndarray) else H.toarray()
                if np.count_nonzero(E) > np.count_nonzero(np.diagonal(E)):
                    H = H + H.T
                found.append(H @ self.corner)
        return found


def _ones(rows: LongArray, columns: LongArray) -> list[tuple[Any, Any]]:
    """Return the places of the ones of a symmetric direction, on both sides of its diagonal."""
    a, b = span_of(rows), span_of(columns)
    return [(a, b)] if np.array_equal(rows, columns) else [(a, b), (b, a)]


class BlockPoint:
    """The equations factored at one value of the components.

    Components are the residual variances of the groups of rows, then of each term the elements
    (a, b), a ≤ b, of Λ_t, row by row.

    Parameters
    ----------
    equations : for all terms
    residuals : σ²_r of the residual groups, positive
    matrices : Λ_t of each term, positive definite
    reml : whether the likelihood is the restricted one

    Raises
    ------
    numpy.linalg.LinAlgError
        If a Λ_t or the equations are not positive definite up to rounding error.
    """

    def __init__(
        self,
        equations: BlockEquations,
        residuals: FloatArray,
        matrices: Sequence[FloatArray],
        *,
        reml: bool,
    ) -> None:
        self.equations, self.reml = equations, reml
        self._residuals = np.asarray(residuals, dtype=float)
        factored = [Positive(np.array(matrix, dtype=float)) for matrix in matrices]
        self._log_prior = [float(f.log_determinant()) for f in factored]
        self._precisions = [f.inverse() for f in factored]
        self._phi = np.concatenate(
            [
                1.0 / self._residuals,
                *(
                    Q[tuple(np.array(pairs).T)]
                    for Q, pairs in zip(self._precisions, equations.pairs, strict=True)
                ),
            ]
        )
        weighted = list(zip(self._phi, equations.parts, strict=True))
        n, r = equations.n_effects, self._residuals.size
        data = sum(x * part.direction.data for x, part in weighted)
        diagonal = sum(x * part.direction.diagonal for x, part in weighted)
        self.factor = Factor(
            equations.pattern.with_entries(np.asarray(data)), np.asarray(diagonal)
        )
        of_rows = list(zip(self._phi[:r], equations.rows, strict=True))
        self._ZX = np.asarray(sum(x * part.border for x, part in of_rows))
        self._border = self.factor.solve(self._ZX)
        M = np.concatenate([-self._border, np.eye(self._ZX.shape[1])]).astype(np.longdouble)
        M[:n] -= self.factor.solve(self._applied(M)[:n].astype(float))
        forms = np.array([part.form(M) for part in equations.parts], dtype=float)
        self._M, self._fixed_parts = M, 0.5 * (forms + forms.swapaxes(1, 2))
        self.fixed = Positive(np.tensordot(self._phi, self._fixed_parts, 1))

    def solve(self, right: FloatArray) -> FloatArray:
        """Return C⁻¹b of columns b, (m, c), of effects and columns of X."""
        n = self.equations.n_effects
        effects = self.factor.solve(right[:n])
        beta = self.fixed.solve(right[n:] - self._ZX.T @ effects)
        return np.concatenate([effects - self._border @ beta, beta])

    def _applied(self, x: Any) -> Any:
        """Return Cx of columns x, in extended precision."""
        r, equations = self._residuals.size, self.equations
        total = sum(
            phi * part.times(x) for phi, part in zip(self._phi[:r], equations.rows, strict=True)
        )
        for phi, prior in zip(self._phi[r:], equations.priors, strict=True):
            prior.add_times(total, phi, x)
        return total

    @cached_property
    def _moved(self) -> FloatArray:
        """Dx of each part for the columns [−C_zz⁻¹Z'X; I]."""
        M, equations = self._M.astype(float), self.equations
        of_rows = [part.times(self._M).astype(float) for part in equations.rows]
        return np.array([*of_rows, *(prior.times(M) for prior in equations.priors)])

    @cached_property
    def _solved(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The solution, w of it beyond the offset, refined once, and of each part the squares."""
        equations, phi, r = self.equations, self._phi.astype(np.longdouble), self._residuals.size
        right = phi[:r] @ np.array([part.right for part in equations.rows])
        for x, prior in zip(phi[r:], equations.priors, strict=True):
            prior.add_times(right, -x, equations.offset)
        w = self.solve(np.asarray(right, dtype=float)[:, None])[:, 0].astype(np.longdouble)
        rest = right - self._applied(w)
        w = w + self.solve(np.asarray(rest, dtype=float)[:, None])[:, 0]
        squares = [part.yy - (2.0 * part.right - part.times(w)) @ w for part in equations.rows]
        whole = w + equations.offset
        squares += [prior.form(whole) for prior in equations.priors]
        return whole.astype(float), w.astype(float), np.array(squares, dtype=float)

    # Value, score, informations -----------------------------------------------------------------

    def loglike(self) -> float:
        """Return the log-likelihood, eqs. (5.1) and (5.2)."""
        sums, n = self.equations.sums, sum(group.n for group in self.equations.sums.groups)
        deviance = self.factor.log_determinant() - sums.log_weights + self._phi @ self._solved[2]
        deviance += sum(
            g.n * np.log(s2) for g, s2 in zip(sums.groups, self._residuals, strict=True)
        )
        for term, log_prior in zip(sums.terms, self._log_prior, strict=True):
            deviance += sums.groups[0].sizes[term[0]] * log_prior
        if self.reml:
            deviance += self.fixed.log_determinant()
            n -= sums.groups[0].n_fixed
        return float(-0.5 * (deviance + n * np.log(2.0 * np.pi)))

    @cached_property
    def _traces(self) -> FloatArray:
        """tr(C⁻¹D) of each part; for the full likelihood of the effects alone."""
        parts, phi = self.equations.parts, self._phi
        if self._residuals.size == 1:  # Σφ_iD_i = C
            traces = np.array([0.0, *map(self._trace, self.equations.priors)])
            traces[0] = (self.equations.n_effects - phi[1:] @ traces[1:]) / phi[0]
        else:
            traces = self.factor.inverse.traces([part.direction for part in parts])
        if self.reml:
            traces += np.tensordot(self._fixed_parts, self.fixed.inverse(), 2)
        return traces

    def _trace(self, prior: PriorPart) -> float:
        if prior.places[0] == prior.places[1]:
            return float(self.factor.inverse.diagonal[prior.places[0]].sum())
        return 2.0 * float(self._between(prior).sum())

    def _between(self, prior: PriorPart) -> FloatArray:
        """Return the entries of C⁻¹ in the places of a prior off the diagonal."""
        inverse, pattern = self.factor.inverse, self.equations.pattern
        rows, columns = (pattern.place()[at] - pattern.cut for at in prior.places)
        if min(rows.min(), columns.min()) >= 0:
            return inverse.corner[rows, columns]
        return inverse.below(inverse.entries, inverse.corner)[prior.entries]

    @cached_property
    def _squares(self) -> FloatArray:
        """tr(C⁻¹D_iC⁻¹D_j) of all pairs of parts."""
        # Of one residual group the squares follow from those of the others.
        parts, alone = self.equations.parts, self._residuals.size == 1
        first = int(alone)
        if alone and self.equations.lead is not None:
            inner = self._squares_by_lead(self.equations.lead)
        else:
            inner = self.factor.inverse.squares([part.direction for part in parts[first:]])
        if self.reml and self._border.shape[1] and len(inner):
            J, n = len(inner), self.equations.n_effects
            moved = np.ascontiguousarray(self._moved[first:, :n])
            p = self._border.shape[1]
            solved = self.factor.solve(np.concatenate([*moved], axis=1)).reshape(n, J, p)
            weighted = (moved @ self.fixed.inverse()).reshape(J, n * p)
            inner += 2.0 * weighted @ solved.swapaxes(0, 1).reshape(J, n * p).T
            both = self._fixed_parts[first:] @ self.fixed.inverse()
            inner += np.tensordot(both, both.swapaxes(1, 2), ((1, 2), (1, 2)))
        if not alone:
            return inner
        # Σφ_iD_i = C. Where effects are nearly confounded, C⁻¹D of the rows is small next to
        # C⁻¹, and that of Λ⁻¹ is not.
        squares, phi = np.zeros((len(parts),) * 2), self._phi
        squares[1:, 1:] = inner
        squares[0, 1:] = squares[1:, 0] = (self._traces[1:] - inner @ phi[1:]) / phi[0]
        squares[0, 0] = (self._traces[0] - phi[1:] @ squares[1:, 0]) / phi[0]
        return squares

    def _squares_by_lead(self, lead: int) -> FloatArray:
        """Return those of all priors from the blocks of the term that has the sparse part."""
        equations, inverse = self.equations, self.factor.inverse
        term, pairs = equations.sums.terms[lead], equations.pairs[lead]
        places, cut = equations.pattern.place(), equations.pattern.cut
        gram = self._phi[0] * equations.level_grams(lead, equations.rows[0])
        gram += self._precisions[lead]
        of_inverse, matrix = np.empty(gram.shape), equations.rows[0].matrix
        own: list[int] = []
        others: dict[int, tuple[LongArray, LongArray]] = {}
        for i, prior in enumerate(equations.priors):
            at, other = prior.places
            if at.start >= cut:
                others[i] = places[at] - cut, places[other] - cut
                continue
            a, b = pairs[len(own)]
            own.append(i)
            found = inverse.diagonal[at] if a == b else self._between(prior)
            of_inverse[:, a, b] = of_inverse[:, b, a] = found
        columns = equations.pattern.permuted(np.arange(equations.n_effects))[cut:]
        border = [
            self._phi[0] * matrix[equations.places[c]][:, columns].astype(float)
            for c in term
            if columns.size
        ]
        units = [E for _, _, E, _ in self._terms()][lead]
        blocks = LeadBlocks(gram, of_inverse, border, inverse.corner)
        order = np.array([*own, *others])
        squares = np.empty((order.size, order.size))
        squares[np.ix_(order, order)] = blocks.squares(units, list(others.values()))
        return squares

    @cached_property
    def _crossed(self) -> FloatArray:
        """h_i'C⁻¹h_j with h = A'Dy − Dw of each part."""
        (whole, w, _), equations = self._solved, self.equations
        of_rows = [part.right - part.times(w) for part in equations.rows]
        of_priors = [-prior.times(whole) for prior in equations.priors]
        rests = np.array([*of_rows, *of_priors], dtype=float)
        forms: FloatArray = rests @ self.solve(np.ascontiguousarray(rests.T))
        return 0.5 * (forms + forms.T)

    @cached_property
    def _slopes(self) -> FloatArray:
        """∂φ_i/∂θ_j, θ the components."""
        slopes, r = np.zeros((self._phi.size, self._phi.size)), self._residuals.size
        slopes[:r, :r] = np.diag(-1.0 / self._residuals**2)
        for at, Q, E, (a, b) in self._terms():
            slopes[at, at] = -(Q @ E @ Q)[:, a, b].T
        return slopes

    def _terms(self) -> Any:
        """Yield of each term its place among the components, Λ⁻¹, unit matrices and pairs."""
        begin = self._residuals.size
        for Q, pairs in zip(self._precisions, self.equations.pairs, strict=True):
            a, b = np.array(pairs).T
            E = np.zeros((len(pairs), *Q.shape))
            E[np.arange(len(pairs)), a, b] = E[np.arange(len(pairs)), b, a] = 1.0
            yield slice(begin, begin + len(pairs)), Q, E, (a, b)
            begin += len(pairs)

    def _bent(self, weights: FloatArray) -> FloatArray:
        """Return Σ_i weights_i ∂²φ_i/∂θ_j∂θ_k."""
        bent, r = np.zeros((weights.size, weights.size)), self._residuals.size
        bent[:r, :r] = np.diag(2.0 * weights[:r] / self._residuals**3)
        for at, Q, E, (a, b) in self._terms():
            G = np.zeros_like(Q)
            G[a, b] = 0.5 * weights[at]
            G = G + G.T
            QE = Q @ E
            bent[at, at] = 2.0 * np.tensordot(G @ QE, (QE @ Q).swapaxes(1, 2), ((1, 2), (1, 2)))
        return bent

    def _log_slopes(self) -> FloatArray:
        """First derivatives of the log-determinants by θ: tr(QV_j)."""
        sums, first = self.equations.sums, self._slopes.T @ self._traces
        first[: self._residuals.size] += [group.n for group in sums.groups] / self._residuals
        for (at, Q, E, _), term in zip(self._terms(), sums.terms, strict=True):
            first[at] += sums.groups[0].sizes[term[0]] * np.trace(Q @ E, axis1=1, axis2=2)
        return first

    def score(self) -> FloatArray:
        """Return the derivatives of the log-likelihood by the components, eq. (5.3)."""
        return -0.5 * (self._log_slopes() + self._slopes.T @ self._solved[2])

    def expected(self) -> FloatArray:
        """Return ½ tr(QV_jQV_k), eq. (5.4): of the second derivatives of the log-determinants."""
        sums, slopes, r = self.equations.sums, self._slopes, self._residuals.size
        found = 0.5 * (slopes.T @ self._squares @ slopes - self._bent(self._traces))
        n = np.array([group.n for group in sums.groups])
        found[np.diag_indices(r)] += 0.5 * n / self._residuals**2
        for (at, Q, E, _), term in zip(self._terms(), sums.terms, strict=True):
            q, QE = sums.groups[0].sizes[term[0]], Q @ E
            found[at, at] += 0.5 * q * np.tensordot(QE, QE.swapaxes(1, 2), ((1, 2), (1, 2)))
        return found

    def average(self) -> FloatArray:
        """Return ½ y'PV_jPV_kPy, eq. (5.5), a quarter of the second derivatives of y'Py."""
        bent = self._bent(self._solved[2])
        return 0.25 * (bent - 2.0 * self._slopes.T @ self._crossed @ self._slopes)

    # Fixed and predicted effects ----------------------------------------------------------------

    def fixed_effects(self) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix."""
        return self._solved[0][self.equations.n_effects :], self.fixed.inverse()

    def fixed_forms(self) -> FloatArray:
        """Return X'V⁻¹V_jV⁻¹X of each component, (components, p, p)."""
        return -np.tensordot(self._slopes, self._fixed_parts, (0, 0))

    def second_fixed_forms(self) -> FloatArray:
        """Return the symmetric parts of X'V⁻¹V_iV⁻¹V_jV⁻¹X, (components, components, p, p).

        They are half the second derivatives of X'V⁻¹X.
        """
        J, n, p = len(self._phi), self.equations.n_effects, self._ZX.shape[1]
        moved = self._moved[:, :n]
        solved = self.factor.solve(np.concatenate([*moved], axis=1)).reshape(n, J, p)
        of_phi = -np.einsum("anp,nbq->abpq", moved, solved)
        of_phi = of_phi + of_phi.transpose(0, 1, 3, 2)
        found = np.einsum("ai,abpq,bj->ijpq", self._slopes, of_phi, self._slopes)
        for a, b in combinations_with_replacement(range(p), 2):
            bent = self._bent(self._fixed_parts[:, a, b])
            found[:, :, a, b] += bent
            if a != b:
                found[:, :, b, a] += bent
        return 0.5 * found

    def effects(self, term: int) -> FloatArray:
        """Return the predicted effects of a term, (levels, q)."""
        return np.column_stack([self._solved[0][at] for at in self.equations.positions(term)])

    def predicted_columns(self, term: int) -> FloatArray:
        """Return C_t of V⁻¹X = R⁻¹(X − Σ Z_tC_t), (levels, q, p)."""
        return np.stack([self._border[at] for at in self.equations.positions(term)], axis=1)

    def precision(self, term: int) -> FloatArray:
        """Return Λ⁻¹ of a term."""
        return self._precisions[term]

    def combined_variances(self, rows: Any, X: FloatArray) -> FloatArray:
        """Return the prediction error variances of combinations of effects, (m,).

        Parameters
        ----------
        rows : (m, effects) their weights, sparse, in the order of the equations
        X : (m, p) columns of X, centred
        """
        white = self.fixed.whitened(X - rows @ self._border)
        return self.factor.quadratics(rows) + np.square(white).sum(axis=1)

    def prediction_covariances(
        self, at: Sequence[LongArray], *, beta_known: bool = False
    ) -> FloatArray:
        """Return the covariance matrices of û − u of effects of each level, (levels, q, q).

        Parameters
        ----------
        at : for each of the q effects its positions among the unknowns, by level
        beta_known : whether the fixed effects are known, not estimated
        """
        from scipy.sparse import csr_array

        levels, shape = np.arange(at[0].size), (at[0].size, self.equations.n_effects)
        units = [csr_array((np.ones(levels.size), (levels, a)), shape=shape) for a in at]
        found = np.empty((levels.size, len(at), len(at)))
        # 4x'C⁻¹y = (x + y)'C⁻¹(x + y) − (x − y)'C⁻¹(x − y)
        for a, b in combinations_with_replacement(range(len(at)), 2):
            both = [self.factor.quadratics(units[a] + s * units[b]) for s in (1.0, -1.0)]
            found[:, a, b] = found[:, b, a] = 0.25 * (both[0] - both[1])
        if beta_known:
            return found
        white = self.fixed.whitened(self._border)
        W = np.array([white[rows] for rows in at])
        return found + np.einsum("aip,bip->iab", W, W)


def refined_forms(stats: CrossProducts, v: FloatArray) -> FixedForms:
    """Return X'V⁻¹V_tV⁻¹X of a model of intercepts, next to a small residual too.

    Parameters
    ----------
    stats : cross-products
    v : (k + 1,) components, all positive, the residual last
    """
    sums = BlockSums((stats,), tuple((t,) for t in range(stats.n_terms)))
    matrices = [np.array([[x]]) for x in v[:-1]]
    point = BlockPoint(BlockEquations(sums), v[-1:], matrices, reml=True)
    return FixedForms(point.fixed.inverse(), np.roll(point.fixed_forms(), -1, axis=0))
