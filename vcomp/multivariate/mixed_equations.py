"""The likelihood of several variables for any data, by elimination in three stages.

With R the covariance matrix of the residual, which has a small block for each unit, and
V = R + Σ_t Z_t (I ⊗ Σ_t) Z_t', the effects U are eliminated stage by stage. With
A = U'V⁻¹U, which is block diagonal, and Σ = LL' for the stage,

    (V + UΣU')⁻¹ = V⁻¹ − V⁻¹U E U'V⁻¹,   E = L (I + L'AL)⁻¹ L',

so that a dense matrix remains, Ω = W'V⁻¹W for the columns W of the last stage. The likelihood and
its derivatives follow from it. The Σ_t may be singular. Groups of the first stage have
(v, v) blocks; those of one class are products of dense matrices (:mod:`.elimination_plan`).
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.likelihood import InformationKind, LastPoint, elements, factor_of
from vcomp.exceptions import EstimationError
from vcomp.multivariate.stage_equations import CHUNK, EquationsPoint, GroupClass, equations_of
from vcomp.multivariate.stage_traces import (
    average_information,
    expected_of_outer,
    subtract_by_level,
    term_traces,
)
from vcomp.multivariate.variables import VariableLayout
from vcomp.numerics import Positive, slices

_DENSE_ROWS = 1000
"""Largest number of scores for the expected information."""


class EquationsLikelihood(LastPoint[EquationsPoint]):
    """Restricted or full likelihood of scores in units of their standard deviations.

    Parameters
    ----------
    layout : of the scores
    reml : restricted likelihood, or the full one
    y : (n,) the scores on another scale; None for that of the standard deviations
    dense_below : largest number of scores for the expected information, by (n, n) matrices
    chunk : approximate number of elements of temporary arrays

    Raises
    ------
    EstimationError
        If the terms have too many effects, or there are too many variables.
    """

    def __init__(
        self,
        layout: VariableLayout,
        *,
        reml: bool,
        y: FloatArray | None = None,
        dense_below: int = _DENSE_ROWS,
        chunk: int = CHUNK,
    ) -> None:
        self.layout, self.reml = layout, reml
        self._dense_below = dense_below
        self.linked: BoolArray = layout.linked
        self.n = layout.scores.n
        scaled = layout.y / layout.scale[layout.scores.variable] if y is None else y
        self._equations = equations_of(layout, scaled, reml=reml, chunk=chunk)
        self._plan, self._v = self._equations.plan, self._equations.v

    @property
    def reason(self) -> str:
        """Which algorithm computes it, and why."""
        names = ", ".join(self.layout.names[t] for t in self._plan.terms)
        return (
            f"elimination of {names}, as the data are not balanced or "
            "not all variables were observed together"
        )

    @property
    def kinds(self) -> tuple[InformationKind, ...]:
        """The available kinds of information, the best first."""
        return ("observed", "expected", "average") if self._is_small else ("average",)

    @property
    def _is_small(self) -> bool:
        return self.n <= self._dense_below

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ if the residual matrix is not positive definite."""
        try:
            return self._at(S).loglike
        except np.linalg.LinAlgError:
            return -np.inf

    def gradient(self, S: FloatArray) -> FloatArray:
        """Return the gradient of the log-likelihood, (k + 1, v, v)."""
        point = self._at(S)
        squares = np.array([z.T @ z for z in self._sums_of_terms(point)])
        gradient = 0.5 * (squares - term_traces(self._equations, point))
        gradient[~self.linked] = 0.0
        return np.asarray(gradient)

    def information(self, S: FloatArray, kind: InformationKind) -> FloatArray:
        """Return an information matrix of the elements.

        Raises
        ------
        EstimationError
            If it is not the average information and there are too many scores.
        """
        point = self._at(S)
        if kind != "average" and kind not in self.kinds:
            raise EstimationError(
                f"the {kind} information is not computed for {self.n:,} scores: the limit is "
                f"{self._dense_below:,}"
            )
        if kind == "expected":
            return self._expected(S)
        average = average_information(self._equations, point)
        return average if kind == "average" else 2.0 * average - self._expected(S)

    def curvature(self, S: FloatArray) -> FloatArray | None:
        """Return the observed information, of many scores for terms of the last stage alone.

        They have few groups, so that the average information is far from the observed one. None
        if there are no such terms.
        """
        if self._is_small:
            return self.information(S, "observed")
        if not self._plan.outer:
            return None
        average = self.information(S, "average")
        t, a, b = np.array(elements(self.linked)).T
        last = np.flatnonzero(np.isin(t, self._plan.outer))
        chosen, observed = np.ix_(last, last), average.copy()
        expected = expected_of_outer(self._equations, self._at(S), t[last], a[last], b[last])
        observed[chosen] = 2.0 * average[chosen] - expected
        return observed

    # One point ------------------------------------------------------------------------------

    def _evaluated(self, S: FloatArray) -> EquationsPoint:
        eq, plan, units, v = self._equations, self._plan, self._equations.units, self._v
        inverses, deviance = self._residual(S[-1])
        flat = inverses.reshape(len(inverses), v * v)
        Ry = units.times(units.Y, inverses)
        y1, y2, y3 = (stage.places @ Ry for stage in eq.stages)
        # First stage
        D = (eq.counts.own @ flat).reshape(-1, v, v)
        L = factor_of(S[plan.first])
        F1, W1, log_1 = _factor(D, L)
        E1 = F1 @ F1.transpose(0, 2, 1)
        inner = self._inner(flat)
        outer = self._outer(flat)
        A, mixed = self._second(flat)
        omega = self._third(flat)
        b1 = _times(E1, y1)
        y2, y3 = y2.reshape(plan.n_levels, -1), y3.ravel()
        for group_class, B in zip(plan.classes, outer, strict=True):
            groups, columns = group_class.groups, group_class.rows(v)
            y3[columns] -= np.tensordot(b1[groups], B, ((0, 1), (0, 1)))
            if plan.n_slots:
                subtract_by_level(y2, group_class.levels, inner[groups], b1[groups][:, :, None])
            self._eliminate_groups(group_class, (F1[groups], B, inner[groups]), (A, mixed, omega))
        # Second stage
        L2 = self._root_of_level(S)
        F2, W2, log_2 = _factor(A, L2)
        E2 = F2 @ F2.transpose(0, 2, 1)
        b2 = _times(E2, y2)
        if plan.n_slots:
            y3 -= np.tensordot(b2, mixed, ((0, 1), (0, 1)))
            for part in slices(plan.n_levels, eq.at_once(plan.n_slots * plan.n_columns)):
                T = (F2[part].transpose(0, 2, 1) @ mixed[part]).reshape(-1, y3.size)
                omega -= T.T @ T
        # Third stage
        omega = 0.5 * (omega + omega.T)
        psi, psi_v, half, log_3, (a3, u3) = self._solved(omega, S, y3)
        # Effects are La. y'Py is at its minimum, insensitive to errors of a and of the means.
        a2 = _times(W2, _times(F2.transpose(0, 2, 1), y2 - mixed @ u3))
        u2 = a2 @ L2.T
        a1 = _times(W1, _times(F1.transpose(0, 2, 1), y1 - self._along(inner, outer, u2, u3)))
        fitted = sum(
            stage.places.T @ u.reshape(-1, v)
            for stage, u in zip(eq.stages, (a1 @ L.T, u2, u3), strict=True)
        )
        Py = units.times(units.Y - fitted, inverses)
        deviance += log_1 + log_2 + log_3 + float(((units.Y - fitted) * Py).sum())
        deviance += float(np.square(a1).sum() + np.square(a2).sum() + np.square(a3).sum())
        free = self.n - (v if self.reml else 0)
        loglike = -0.5 * (deviance + free * float(np.log(2.0 * np.pi)))
        second = A, E2, mixed
        third = omega, psi, psi_v, half
        first = D, E1, F1, inner, outer
        return EquationsPoint(loglike, S.copy(), inverses, *first, *second, *third, Py)

    def _residual(self, S: FloatArray) -> tuple[FloatArray, float]:
        """Return the inverse residual matrix of every pattern, and log|R|."""
        observed = self._equations.units.observed
        both = observed[:, :, None] & observed[:, None, :]
        # A missing variable gets the residual variance 1, and 0 in the inverse.
        R = np.where(both, S, np.eye(self._v) * ~observed[:, None, :])
        logs = np.log(np.diagonal(np.linalg.cholesky(R), axis1=1, axis2=2)).sum(axis=1)
        inverses = np.where(both, np.linalg.inv(R), 0.0)
        total = 2.0 * float(logs @ self._equations.units.sizes)
        return 0.5 * (inverses + inverses.transpose(0, 2, 1)), total

    def _inner(self, flat: FloatArray) -> FloatArray:
        """Return U'R⁻¹ of the first stage times the second, (groups, v, w)."""
        plan, v = self._plan, self._v
        blocks = (self._equations.counts.inner @ flat).reshape(plan.n_groups, plan.n_slots, v, v)
        return np.asarray(blocks.transpose(0, 2, 1, 3).reshape(plan.n_groups, v, plan.n_slots * v))

    def _outer(self, flat: FloatArray) -> list[FloatArray]:
        """Return for each class U'R⁻¹ of the first stage times its columns, (m, v, c v)."""
        v, found, first = self._v, [], 0
        for group_class in self._plan.classes:
            m, c = group_class.levels.size, group_class.columns.size
            block = np.empty((m, v, c, v))
            for part, _ in self._equations.parts(group_class):
                pairs = slice(first + part.start * c, first + part.stop * c)
                blocks = (self._equations.counts.outer[pairs] @ flat).reshape(-1, c, v, v)
                block[part] = blocks.transpose(0, 2, 1, 3)
            found.append(block.reshape(m, v, c * v))
            first += m * c
        return found

    def _second(self, flat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return U'R⁻¹U of the second stage, (levels, w, w), and U'R⁻¹ times the third."""
        plan, v = self._plan, self._v
        n, e, q = plan.n_levels, plan.n_slots, plan.n_columns
        blocks = (
            (self._equations.counts.slots @ flat).reshape(n, e, e, v, v).transpose(0, 1, 3, 2, 4)
        )
        mixed = (
            (self._equations.counts.mixed @ flat).reshape(n, e, q, v, v).transpose(0, 1, 3, 2, 4)
        )
        return (
            np.ascontiguousarray(blocks).reshape(n, e * v, e * v),
            np.ascontiguousarray(mixed).reshape(n, e * v, q * v),
        )

    def _third(self, flat: FloatArray) -> FloatArray:
        """Return W'R⁻¹W of the third stage."""
        q, v = self._plan.n_columns, self._v
        blocks = (self._equations.counts.columns @ flat).reshape(q, q, v, v).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(blocks).reshape(q * v, q * v)

    def _eliminate_groups(
        self,
        group_class: GroupClass,
        own: tuple[FloatArray, FloatArray, FloatArray],
        rest: tuple[FloatArray, FloatArray, FloatArray],
    ) -> None:
        """Subtract the part of the groups of a class, in place.

        Parameters
        ----------
        group_class : the class
        own : F, and U'R⁻¹ times the third and the second stage, of its groups
        rest : A, `mixed` and Ω, which are changed
        """
        (F, B, inner), (A, mixed, omega) = own, rest
        columns = group_class.rows(self._v)
        total = np.zeros((columns.size, columns.size))
        mine = np.zeros((*mixed.shape[:2], columns.size)) if self._plan.n_slots else mixed
        for part, _ in self._equations.parts(group_class):
            Ft = F[part].transpose(0, 2, 1)
            T = Ft @ B[part]
            flat = T.reshape(-1, columns.size)
            total += flat.T @ flat
            if self._plan.n_slots:
                T2, levels = Ft @ inner[part], group_class.levels[part]
                subtract_by_level(A, levels, T2, T2)
                subtract_by_level(mine, levels, T2, T)
        omega[np.ix_(columns, columns)] -= total
        if self._plan.n_slots:
            mixed[:, :, columns] += mine

    def _solved(
        self, omega: FloatArray, S: FloatArray, y: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, float, tuple[FloatArray, FloatArray]]:
        """Return both Ψ, `half`, the sum of log determinants, and a with the effects La."""
        v = self._v
        x, e = slice(omega.shape[0] - v, None), slice(0, omega.shape[0] - v)
        roots = [factor_of(S[t]) for t in self._plan.outer]
        across = [L.T for L in roots]
        H = self._scaled(omega[:, e], roots)  # Ω L of the other terms
        inner = Positive(np.eye(H.shape[1]) + self._scaled(H[e].T, roots).T)
        psi_v = np.zeros_like(omega)
        half = np.zeros((H.shape[1], omega.shape[0]))
        half[:, e] = self._scaled(inner.inverse(), across)
        psi_v[e, e] = self._scaled(half[:, e].T, across)
        XVX = Positive(omega[x, x] - H[x] @ inner.solve(H[x].T))
        # Means adjusted for the other terms, for P.
        F = np.vstack([-psi_v[e, e] @ omega[e, x], np.eye(v)])
        psi = psi_v + F @ XVX.solve(F.T)
        logs = inner.log_determinant() + (XVX.log_determinant() if self.reml else 0.0)
        beta = XVX.solve(F.T @ y)
        a = inner.solve(self._scaled((y[e] - omega[e, x] @ beta)[None], roots)[0])
        u = np.append(self._scaled(a[None], across)[0], beta)
        if self.reml:
            half -= (half[:, e] @ omega[e, x]) @ XVX.solve(F.T)
        return 0.5 * (psi + psi.T), 0.5 * (psi_v + psi_v.T), half, logs, (a, u)

    def _scaled(self, M: FloatArray, blocks: list[FloatArray]) -> FloatArray:
        """Return M times the matrix with a block for every effect of each outer term."""
        v = self._v
        product = np.empty_like(M)
        for (_, groups), block in zip(self._equations.groups_of_outer(), blocks, strict=True):
            part = slice(groups.start * v, groups.stop * v)
            columns = np.ascontiguousarray(M[:, part]).reshape(-1, v)
            product[:, part] = (columns @ block).reshape(M.shape[0], -1)
        return product

    def _root_of_level(self, S: FloatArray) -> FloatArray:
        """Return L of the positions of a level in the second stage, block diagonal."""
        v, plan = self._v, self._plan
        L = np.zeros((plan.n_slots, v, plan.n_slots, v))
        for slot, t in enumerate(plan.term_of_slot):
            L[slot, :, slot] = factor_of(S[t])
        return L.reshape(plan.n_slots * v, plan.n_slots * v)

    def _along(
        self, inner: FloatArray, outer: list[FloatArray], u2: FloatArray, u3: FloatArray
    ) -> FloatArray:
        """Return U'R⁻¹ of the first stage times effects of the other two, (groups, v)."""
        sums = np.empty(inner.shape[:2])
        for c, B in zip(self._plan.classes, outer, strict=True):
            sums[c.groups] = B @ u3[c.rows(self._v)]
            if self._plan.n_slots:
                sums[c.groups] += _times(inner[c.groups], u2[c.levels])
        return sums

    def _sums_of_terms(self, point: EquationsPoint) -> list[FloatArray]:
        """Return Z_t'Py of every term, Py for the residual, (effects, v)."""
        plan = self._plan
        z1, z2, z3 = (stage.places @ point.Py for stage in self._equations.stages)
        by_slot = z2.reshape(plan.n_levels, plan.n_slots, self._v)
        sums = {plan.first: z1}
        for t in plan.inner:
            sums[t] = by_slot[:, plan.term_of_slot == t].reshape(-1, self._v)
        sums |= {t: z3[part] for t, part in self._equations.groups_of_outer()}
        return [*(sums[t] for t in range(self._equations.k)), point.Py]

    def _expected(self, S: FloatArray) -> FloatArray:
        """Return ½ tr(P V_i P V_j), for few scores."""
        layout, w = self.layout, self.layout.scores.variable
        same = [groups[:, None] == groups[None, :] for groups in layout.groups]
        V = Positive(sum(z * S_t[w[:, None], w[None, :]] for z, S_t in zip(same, S, strict=True)))
        P = V.inverse()
        if self.reml:
            VX = P @ np.eye(self._v)[w]
            P = P - VX @ np.linalg.solve(np.eye(self._v)[:, w] @ VX, VX.T)
        products = []
        for t, a, b in elements(self.linked):
            pair = (w == a)[:, None] & (w == b)[None, :]
            products.append(P @ (same[t] & (pair | pair.T)).astype(float))
        m = len(products)
        information = np.empty((m, m))
        for i in range(m):
            for j in range(i + 1):
                information[i, j] = information[j, i] = 0.5 * float(
                    (products[i] * products[j].T).sum()
                )
        return information


def _factor(A: FloatArray, L: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return F = LW and W with WW' = (I + L'AL)⁻¹ for every A, and the sum of log|I + L'AL|."""
    C = np.linalg.cholesky(np.eye(A.shape[1]) + L.T @ A @ L)
    logs = 2.0 * float(np.log(np.diagonal(C, axis1=1, axis2=2)).sum())
    W = np.linalg.inv(C).transpose(0, 2, 1)
    return L @ W, W, logs


def _times(blocks: FloatArray, x: FloatArray) -> FloatArray:
    """Return the products of matrices and vectors, one for each row."""
    return np.asarray((blocks @ x[:, :, None])[:, :, 0])
