"""Henderson's equations factored at one value of the components: likelihood and informations.

``equations`` has the notation. The matrix C is linear in the natural parameters φ: the 1/σ²_r and
the elements of the Λ_t⁻¹. Likelihood, score and informations follow from derivatives of log|C| and
of the least sum of squares by φ, and the chain rule (docs/decisions/0020-one-elimination.md). What
is factored is σ²C with the variance σ² of the first residual group, so that with one of them only
the diagonal depends on the components.

Forms of solutions are computed from products with the sums of rows in extended precision after a
step of refinement, not as what other components leave of a total.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.equations import Equations, PriorPart
from vcomp.numerics import Positive
from vcomp.numerics.sparse import Factor

_CANCELLED = 1e-3
"""Share of y'y below which what effects leave of it is computed in extended precision."""


def _inverted(matrix: FloatArray) -> tuple[float, FloatArray]:
    """Return the log-determinant and the inverse of a Λ."""
    if matrix.shape == (1, 1) and matrix[0, 0] > 0.0:
        return float(np.log(matrix[0, 0])), 1.0 / matrix
    factor = Positive(matrix)
    return factor.log_determinant(), factor.inverse()


class Point:
    """The equations factored at one value of the components.

    Components are the residual variances of the groups of rows, then of each term the elements
    (a, b), a ≤ b, of Λ_t, row by row. Forms are those of P, or of V⁻¹ if not `with_fixed`.

    Parameters
    ----------
    equations : for all terms
    residuals : σ²_r of the residual groups, positive
    matrices : Λ_t of each term, positive definite
    refined : whether all solutions are refined, not only that for y where digits cancel
    like : the point of another response of the same rows, whose factor is shared

    Raises
    ------
    numpy.linalg.LinAlgError
        If a Λ_t or the equations are not positive definite up to rounding error.
    """

    factor: Factor
    fixed: Positive
    border: FloatArray
    _ZX: FloatArray

    def __init__(
        self,
        equations: Equations,
        residuals: FloatArray,
        matrices: Sequence[FloatArray],
        *,
        refined: bool = True,
        like: Point | None = None,
    ) -> None:
        self.equations, self.refined = equations, refined
        self.residuals = np.asarray(residuals, dtype=float)
        self.residual = float(self.residuals[0])
        priors = [_inverted(matrix) for matrix in matrices]
        self._log_prior, self._precisions = [log for log, _ in priors], [Q for _, Q in priors]
        elements = [
            Q[tuple(np.array(pairs).T)]
            for Q, pairs in zip(self._precisions, equations.pairs, strict=True)
        ]
        self._phi = np.concatenate([1.0 / self.residuals, *elements])
        self._scaled = self.residual * self._phi
        self._scaled[0] = 1.0
        self._part_traces: dict[bool, FloatArray] = {}
        self._part_squares: dict[bool, FloatArray] = {}
        n, r = equations.n_effects, self.residuals.size
        rows = list(zip(self._scaled[:r], equations.rows, strict=True))
        right = self._right[:n, None].astype(float)
        if like is not None:
            self.factor, self.fixed, self.border = like.factor, like.fixed, like.border
            self._ZX, self._part_traces = like._ZX, like._part_traces
            self._part_squares = like._part_squares
            self._from_y = self.factor.solve(right)[:, 0]
            return
        self.factor = equations.factored(self._scaled)
        # X is eliminated last.
        self._ZX = np.asarray(sum(x * part.border for x, part in rows))
        solved = self.factor.solve(np.concatenate([self._ZX, right], axis=1))
        self.border, self._from_y = solved[:, :-1], solved[:, -1]
        if refined:
            self.fixed = Positive(np.tensordot(self._scaled, self._fixed_parts, 1))
        else:
            XX = np.asarray(sum(x * part.XX for x, part in rows))
            self.fixed = Positive(XX - self._ZX.T @ self.border)

    # Solutions ----------------------------------------------------------------------------------

    def solve(
        self, Zb: FloatArray, Xb: FloatArray | None = None, *, overwrite: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Return û and β̂ of columns b from Z'b and X'b, both times σ² R⁻¹.

        If X'b is None, the equations are those without fixed effects, and β̂ is zero. Z'b may be
        overwritten if nobody needs it.
        """
        effects = self.factor.solve(Zb, overwrite=overwrite)
        if Xb is None:
            return effects, np.zeros((self._ZX.shape[1], Zb.shape[1]))
        beta = self.fixed.solve(Xb - self._ZX.T @ effects)
        effects -= self.border @ beta
        return effects, beta

    def _whole(self, right: Any) -> FloatArray:
        """Return the solutions, effects then columns of X, for columns of all equations."""
        n, columns = self.equations.n_effects, right.astype(float)
        return np.concatenate(self.solve(columns[:n], columns[n:]))

    def applied(self, x: Any) -> Any:
        """Return σ²Cx of columns x, in extended precision."""
        r, equations = self.residuals.size, self.equations
        scaled = self._scaled.astype(np.longdouble)
        total = sum(
            phi * part.times(x) for phi, part in zip(scaled[:r], equations.rows, strict=True)
        )
        for phi, prior in zip(scaled[r:], equations.priors, strict=True):
            prior.add_times(total, phi, x)
        return total

    @cached_property
    def _right(self) -> Any:
        """The right-hand side for y less the offset, in extended precision."""
        equations, r = self.equations, self.residuals.size
        scaled = self._scaled.astype(np.longdouble)
        right: Any = sum(
            phi * part.right for phi, part in zip(scaled[:r], equations.rows, strict=True)
        )
        if equations.offset.any():
            for phi, prior in zip(scaled[r:], equations.priors, strict=True):
                prior.add_times(right, -phi, equations.offset)
        return right

    @cached_property
    def _first(self) -> FloatArray:
        """The solution for y less the offset, not refined."""
        n = self.equations.n_effects
        beta = self.fixed.solve(self._right[n:].astype(float) - self._ZX.T @ self._from_y)
        return np.concatenate([self._from_y - self.border @ beta, beta])

    @cached_property
    def _solved(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The solution, w of it beyond the offset, refined once, and of each part the squares."""
        equations = self.equations
        w = self._first.astype(np.longdouble)
        w += self._whole((self._right - self.applied(w))[:, None])[:, 0]
        squares = [part.yy - (2.0 * part.right - part.times(w)) @ w for part in equations.rows]
        whole = w + equations.offset
        squares += [prior.form(whole) for prior in equations.priors]
        return whole.astype(float), w.astype(float), np.array(squares, dtype=float)

    @cached_property
    def solution(self) -> tuple[FloatArray, FloatArray, float]:
        """û, β̂ and σ²y'Py, eq. (7.2).

        If the effects explain nearly all of y, the difference y'y − û'Z'y − β̂'X'y cancels. One
        step of iterative refinement in extended precision then makes it as exact as the
        statistics.
        """
        n, whole = self.equations.n_effects, self._first
        rows = zip(self._scaled, self.equations.rows, strict=False)
        yy = float(sum(x * part.yy for x, part in rows))
        rss = float(yy - self._right.astype(float) @ whole)
        if self.refined or rss < _CANCELLED * yy:
            whole, rss = self._solved[0], float(self._scaled @ self._solved[2])
        return whole[:n], whole[n:], rss

    @property
    def yPy(self) -> float:
        """The quadratic form y'P y."""
        return self.solution[2] / self.residual

    @cached_property
    def _cov_beta(self) -> FloatArray:
        """The covariance matrix of β̂ divided by σ²."""
        return self.fixed.inverse()

    # Forms of X ---------------------------------------------------------------------------------

    @cached_property
    def _M(self) -> Any:
        """[−C_zz⁻¹Z'X; I], in extended precision if it is refined."""
        n, M = self.equations.n_effects, np.concatenate([-self.border, np.eye(self._ZX.shape[1])])
        if not self.refined:
            return M
        M = M.astype(np.longdouble)
        M[:n] -= self.factor.solve(self.applied(M)[:n].astype(float))
        return M

    @cached_property
    def _prior_forms(self) -> FloatArray:
        """M'DM of the parts of the Λ⁻¹."""
        return self._forms_of_X(self.equations.priors)

    @cached_property
    def _fixed_parts(self) -> FloatArray:
        """M'DM of each part."""
        return np.concatenate([self._forms_of_X(self.equations.rows), self._prior_forms])

    def _forms_of_X(self, parts: Sequence[Any]) -> FloatArray:
        p = self._ZX.shape[1]
        forms = np.array([np.zeros((p, p)), *(part.form(self._M) for part in parts)])[1:]
        forms = forms.astype(float)
        return 0.5 * (forms + forms.swapaxes(1, 2))

    @cached_property
    def _moved(self) -> FloatArray:
        """Dx of each part for the columns M."""
        M, equations = self._M.astype(float), self.equations
        of_rows = [part.times(self._M).astype(float) for part in equations.rows]
        return np.array([*of_rows, *(prior.times(M) for prior in equations.priors)])

    @cached_property
    def white_border(self) -> FloatArray:
        """W L⁻ᵀ with W = (C_zz)⁻¹Z'X and S_X = L L', so that its products are W (S_X)⁻¹ W'."""
        return self.fixed.whitened(self.border)

    # Value, score, informations -----------------------------------------------------------------

    def log_determinants(self) -> tuple[float, float]:
        """Return log|V| and log|X'V⁻¹X|, eq. (7.1); with fixed terms only their sum is right."""
        sums, log_s2 = self.equations.sums, float(np.log(self.residual))
        stats = sums.groups[0]
        log_v = self.factor.log_determinant() - sums.log_weights
        log_v += sum(
            g.n * float(np.log(s2)) for g, s2 in zip(sums.groups, self.residuals, strict=True)
        )
        for term, log_prior in zip(sums.terms, self._log_prior, strict=True):
            log_v += stats.sizes[term[0]] * (log_prior - len(term) * log_s2)
        return log_v, self.fixed.log_determinant() - self._n_fixed * log_s2

    def loglike(self, *, with_fixed: bool) -> float:
        """Return the log-likelihood, eq. (5.1), or (5.2) if not `with_fixed`."""
        log_v, log_fixed = self.of_likelihood(with_fixed=with_fixed).log_determinants()
        deviance = log_v + self.yPy + self.degrees(with_fixed=with_fixed) * np.log(2.0 * np.pi)
        return float(-0.5 * (deviance + log_fixed if with_fixed else deviance))

    def of_likelihood(self, *, with_fixed: bool) -> Point:
        """Return the point with the determinants and traces of the likelihood: this one."""
        return self

    def degrees(self, *, with_fixed: bool) -> int:
        """Return the number of rows, less that of the fixed effects if `with_fixed`."""
        n = sum(group.n for group in self.equations.sums.groups)
        return n - self._n_fixed if with_fixed else n

    @property
    def _n_fixed(self) -> int:
        sums = self.equations.sums
        stats = sums.groups[0]
        return stats.n_fixed + sum(stats.sizes[c] for c in sums.fixed)

    def traces_of_parts(self, *, with_fixed: bool) -> FloatArray:
        """Return tr(C⁻¹D) of each part; of the effects alone if not `with_fixed`."""
        if with_fixed not in self._part_traces:
            self._part_traces[with_fixed] = self._traces_of_parts(with_fixed)
        return self._part_traces[with_fixed]

    def _traces_of_parts(self, with_fixed: bool) -> FloatArray:
        equations, alone = self.equations, self.residuals.size == 1
        parts = equations.priors if alone else equations.parts
        traces = self.factor.inverse.traces([part.direction for part in parts])
        if with_fixed and traces.size:
            forms = self._prior_forms if alone else self._fixed_parts
            traces += np.tensordot(forms, self._cov_beta, 2)
        if alone:  # Σφ_iD_i = C
            total = equations.n_effects + (self._ZX.shape[1] if with_fixed else 0)
            traces = np.append(total - self._scaled[1:] @ traces, traces)
        return self.residual * traces

    def squares_of_parts(self, *, with_fixed: bool) -> FloatArray:
        """Return tr(C⁻¹D_iC⁻¹D_j) of all pairs of parts; of the effects if not `with_fixed`."""
        if with_fixed not in self._part_squares:
            self._part_squares[with_fixed] = self._squares_of_parts(with_fixed)
        return self._part_squares[with_fixed]

    def _squares_of_parts(self, with_fixed: bool) -> FloatArray:
        # Of one residual group the squares follow from those of the others.
        equations, alone, s2 = self.equations, self.residuals.size == 1, self.residual
        parts = equations.parts[int(alone) :]
        inner = self.factor.inverse.squares([part.direction for part in parts])
        if with_fixed and self._ZX.shape[1] and len(inner):
            inner += self._squares_with_fixed(parts)
        inner *= s2**2
        if not alone:
            return inner
        # Σφ_iD_i = C. Where effects are nearly confounded, C⁻¹D of the rows is small next to
        # C⁻¹, and that of Λ⁻¹ is not.
        traces, phi = self.traces_of_parts(with_fixed=with_fixed), self._phi
        squares = np.empty((len(phi),) * 2)
        squares[1:, 1:] = inner
        squares[0, 1:] = squares[1:, 0] = (traces[1:] - inner @ phi[1:]) / phi[0]
        squares[0, 0] = (traces[0] - phi[1:] @ squares[1:, 0]) / phi[0]
        return squares

    def _squares_with_fixed(self, parts: Sequence[Any]) -> FloatArray:
        """Return what X adds to the squares of some parts: C⁻¹ = (C_zz)⁻¹ + W (S_X)⁻¹ W' there."""
        n, J, p = self.equations.n_effects, len(parts), self._ZX.shape[1]
        # D_jM L⁻ᵀ side by side
        moved, W = np.zeros((n, J * p)), -self.white_border
        spans = [slice(p * j, p * (j + 1)) for j in range(J)]
        for part, span in zip(parts, spans, strict=True):
            if isinstance(part, PriorPart):
                part.add_times(moved[:, span], 1.0, W)
            else:
                moved[:, span] = self.fixed.whitened(part.times(self._M)[:n].astype(float))
        kept = moved if len(self._phi) == J else moved[:, :0]
        solved, added = self.factor.solve(moved, overwrite=not kept.size), np.empty((J, J))
        for (i, part), (j, span) in product(enumerate(parts), enumerate(spans)):
            if isinstance(part, PriorPart):
                added[i, j] = 2.0 * part.inner(W, solved[:, span])
            else:
                added[i, j] = 2.0 * np.vdot(kept[:, spans[i]], solved[:, span])
        forms = self._fixed_parts if len(self._phi) == J else self._prior_forms
        both = forms @ self._cov_beta
        return added + np.tensordot(both, both.swapaxes(1, 2), ((1, 2), (1, 2)))

    @cached_property
    def _crossed(self) -> FloatArray:
        """h_i'C⁻¹h_j with h = A'Dy − Dw of each part."""
        (whole, w, _), equations = self._solved, self.equations
        of_rows = [part.right - part.times(w) for part in equations.rows]
        of_priors = [-prior.times(whole) for prior in equations.priors]
        rests = np.array([*of_rows, *of_priors], dtype=float)
        forms: FloatArray = self.residual * (rests @ self._whole(np.ascontiguousarray(rests.T)))
        return 0.5 * (forms + forms.T)

    @cached_property
    def _slopes(self) -> FloatArray:
        """∂φ_i/∂θ_j, θ the components."""
        slopes, r = np.zeros((self._phi.size, self._phi.size)), self.residuals.size
        slopes[:r, :r] = np.diag(-1.0 / self.residuals**2)
        for at, Q, E, (a, b) in self._terms():
            slopes[at, at] = -(Q @ E @ Q)[:, a, b].T
        return slopes

    def _terms(self) -> Any:
        """Yield of each term its place among the components, Λ⁻¹, unit matrices and pairs."""
        begin = self.residuals.size
        for Q, pairs in zip(self._precisions, self.equations.pairs, strict=True):
            a, b = np.array(pairs).T
            E = np.zeros((len(pairs), *Q.shape))
            E[np.arange(len(pairs)), a, b] = E[np.arange(len(pairs)), b, a] = 1.0
            yield slice(begin, begin + len(pairs)), Q, E, (a, b)
            begin += len(pairs)

    def _bent(self, weights: FloatArray) -> FloatArray:
        """Return Σ_i weights_i ∂²φ_i/∂θ_j∂θ_k."""
        bent, r = np.zeros((weights.size, weights.size)), self.residuals.size
        bent[:r, :r] = np.diag(2.0 * weights[:r] / self.residuals**3)
        for at, Q, E, (a, b) in self._terms():
            G = np.zeros_like(Q)
            G[a, b] = 0.5 * weights[at]
            G = G + G.T
            QE = Q @ E
            bent[at, at] = 2.0 * np.tensordot(G @ QE, (QE @ Q).swapaxes(1, 2), ((1, 2), (1, 2)))
        return bent

    @cached_property
    def quadratics(self) -> FloatArray:
        """The forms y'PV_jPy of the components."""
        return -self._slopes.T @ self._solved[2]

    def traces_of_components(self, *, with_fixed: bool) -> FloatArray:
        """Return tr(QV_j) of the components: derivatives of the log-determinants."""
        traces = self.traces_of_parts(with_fixed=with_fixed)
        sums, found = self.equations.sums, self._slopes.T @ traces
        found[: self.residuals.size] += [group.n for group in sums.groups] / self.residuals
        for (at, Q, E, _), term in zip(self._terms(), sums.terms, strict=True):
            found[at] += sums.groups[0].sizes[term[0]] * np.trace(Q @ E, axis1=1, axis2=2)
        return found

    def squares_of_components(self, *, with_fixed: bool) -> FloatArray:
        """Return tr(QV_jQV_k), of second derivatives of the log-determinants."""
        sums, slopes, r = self.equations.sums, self._slopes, self.residuals.size
        squares = self.squares_of_parts(with_fixed=with_fixed)
        found = slopes.T @ squares @ slopes
        found -= self._bent(self.traces_of_parts(with_fixed=with_fixed))
        n = np.array([group.n for group in sums.groups])
        found[np.diag_indices(r)] += n / self.residuals**2
        for (at, Q, E, _), term in zip(self._terms(), sums.terms, strict=True):
            q, QE = sums.groups[0].sizes[term[0]], Q @ E
            found[at, at] += q * np.tensordot(QE, QE.swapaxes(1, 2), ((1, 2), (1, 2)))
        return found

    @cached_property
    def products(self) -> FloatArray:
        """The forms y'PV_jPV_kPy of the components, half the second derivatives of y'Py."""
        bent = self._bent(self._solved[2])
        return 0.5 * bent - self._slopes.T @ self._crossed @ self._slopes

    def score(self, *, with_fixed: bool) -> FloatArray:
        """Return the derivatives of the log-likelihood by the components, eq. (5.3)."""
        return 0.5 * (self.quadratics - self.traces_of_components(with_fixed=with_fixed))

    def expected(self, *, with_fixed: bool) -> FloatArray:
        """Return ½ tr(QV_jQV_k), eq. (5.4)."""
        return 0.5 * self.squares_of_components(with_fixed=with_fixed)

    def average(self) -> FloatArray:
        """Return ½ y'PV_jPV_kPy, eq. (5.5)."""
        return 0.5 * self.products

    # Fixed and predicted effects ----------------------------------------------------------------

    def fixed_effects(self) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix."""
        return self.solution[1].copy(), self.residual * self._cov_beta

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
        of_phi = -self.residual * np.einsum("anp,nbq->abpq", moved, solved)
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
        return np.column_stack([self.solution[0][at] for at in self.equations.positions(term)])

    def predicted_columns(self, term: int) -> FloatArray:
        """Return C_t of V⁻¹X = R⁻¹(X − Σ Z_tC_t), (levels, q, p)."""
        return np.stack([self.border[at] for at in self.equations.positions(term)], axis=1)

    def precision(self, term: int) -> FloatArray:
        """Return Λ⁻¹ of a term."""
        return self._precisions[term]

    def prediction_variances(self, rows: Any, X: FloatArray) -> FloatArray:
        """Return the prediction error variances of combinations of effects, eq. (9.1), (m,).

        Parameters
        ----------
        rows : (m, effects) their weights, sparse, in the order of the equations
        X : (m, p) columns of X, centred
        """
        white = self.fixed.whitened(X - rows @ self.border)
        variances = self.factor.quadratics(rows) + np.square(white).sum(axis=1)
        return self.residual * variances

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
        if not beta_known:
            W = np.array([self.white_border[rows] for rows in at])
            found += np.einsum("aip,bip->iab", W, W)
        return self.residual * found
