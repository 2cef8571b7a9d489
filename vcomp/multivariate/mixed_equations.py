"""The likelihood of several variables for any data, by elimination in three stages.

With R the covariance matrix of the residual, which has a small block for each unit, and
V = R + Σ_t Z_t (I ⊗ Σ_t) Z_t', effects U of one stage after the other are eliminated. With
A = U'V⁻¹U, which is block diagonal, and Σ = LL' for the stage,

    (V + UΣU')⁻¹ = V⁻¹ − V⁻¹U E U'V⁻¹,   E = L (I + L'AL)⁻¹ L',

so that what is left, Ω = W'V⁻¹W for the columns W of the last stage, is a dense matrix, from which
the likelihood and its derivatives follow. The Σ_t may be singular. Groups of the first stage have
(v, v) blocks; those of one class are products of dense matrices (:mod:`.elimination`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.display import memory
from vcomp.estimators.likelihood import InformationKind, LastPoint
from vcomp.exceptions import EstimationError
from vcomp.multivariate.average_information import ElementPlaces, StageProducts
from vcomp.multivariate.covariance_components import elements
from vcomp.multivariate.elimination_plan import Elimination, GroupClass, plan_elimination
from vcomp.multivariate.error_sums import ErrorSums
from vcomp.multivariate.unit_sums import (
    CHUNK,
    Counts,
    StageSums,
    Units,
    add_by_level,
    count_units,
    of_units,
    stage_sums,
    units_of,
)
from vcomp.multivariate.variable_layout import Layout
from vcomp.numerics import Positive, available_bytes, slices


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


_DENSE_ROWS = 1000
"""Largest number of scores for the expected information, which needs dense (n, n) matrices."""

_MOST_EFFECTS = 5000
"""Largest number of effects of the last stage."""

_MOST_VARIABLES = 60
"""Largest number of variables: those observed in a unit are the bits of one integer."""

@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """The factored equations at given covariance components.

    Attributes
    ----------
    inverses : (p, v, v) residual matrices of the patterns inverted, 0 where a variable is missing
    D, E1, F1 : (groups, v, v) U'R⁻¹U, E of the first stage, and F with FF' = E
    inner : (groups, v, w) U'R⁻¹ times the second stage, w positions times variables of a level
    outer : for each class (m, v, c v) U'R⁻¹ times its columns of the third stage
    A, E2 : (levels, w, w) U'V⁻¹U and E of the second stage, V with the first one
    mixed : (levels, w, columns v) U'V⁻¹ of the second stage times the third
    omega : Ω of the third stage
    psi, psi_v : P = V⁻¹ − V⁻¹W Ψ W'V⁻¹ and the same of the V with all terms
    half : the rows of that Ψ which the criterion needs are L times these
    Py : (units, v)
    """

    loglike: float
    S: FloatArray
    inverses: FloatArray
    D: FloatArray
    E1: FloatArray
    F1: FloatArray
    inner: FloatArray
    outer: list[FloatArray]
    A: FloatArray
    E2: FloatArray
    mixed: FloatArray
    omega: FloatArray
    psi: FloatArray
    psi_v: FloatArray
    half: FloatArray
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
        self.layout, self.reml = layout, reml
        self.linked: BoolArray = layout.linked
        self.n, self._v, self._k = layout.scores.n, layout.n_variables, len(layout.names) - 1
        _check_variables(self._v)
        scaled = layout.y / layout.scale[layout.scores.variable] if y is None else y
        self._units: Units = units_of(layout, scaled)
        self._plan = self._planned()
        _check_size(layout, self._plan)
        pattern, n = self._units.pattern, len(self._units.parts)
        plan = self._plan
        self._counts: Counts = count_units(plan, pattern, n)
        e = plan.n_levels * plan.n_slots
        self._stages: tuple[StageSums, StageSums, StageSums] = (
            stage_sums([plan.group], plan.n_groups, pattern, n),
            stage_sums(plan.slots, e, pattern, n),
            stage_sums(plan.columns, plan.n_columns, pattern, n),
        )

    def _planned(self) -> Elimination:
        layout, order = self.layout, self._units.order
        scores = layout.scores
        return plan_elimination(
            [of_units(layout, g, order) for g in layout.groups[:-1]],
            layout.sizes[:-1],
            [
                (of_units(layout, codes, order), len(levels))
                for codes, levels in zip(scores.codes, scores.levels, strict=True)
            ],
            self._v,
        )

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
        return ("observed", "expected", "average") if self.n <= _DENSE_ROWS else ("average",)

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ if the residual matrix is not positive definite."""
        try:
            return self._at(S).loglike
        except np.linalg.LinAlgError:
            return -np.inf

    def gradient(self, S: FloatArray) -> FloatArray:
        """Return the gradient of the log-likelihood, (k + 1, v, v)."""
        point = self._at(S)
        sums = self._sums_of_terms(point)
        squares = np.array([z.T @ z for z in sums] + [point.Py.T @ point.Py])
        gradient = 0.5 * (squares - self._traces(point))
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
                f"{_DENSE_ROWS:,}"
            )
        if kind == "expected":
            return self._expected(S)
        average = self._average(point, self._sums_of_terms(point))
        return average if kind == "average" else 2.0 * average - self._expected(S)

    def curvature(self, S: FloatArray) -> FloatArray:
        """Return the observed information, of many scores for terms of the last stage alone.

        They have few groups, so that the average information is far from the observed one.
        """
        if "observed" in self.kinds:
            return self.information(S, "observed")
        average = self.information(S, "average")
        if not self._plan.outer:
            return average
        t, a, b = np.array(elements(self.linked)).T
        last = np.flatnonzero(np.isin(t, self._plan.outer))
        chosen, observed = np.ix_(last, last), average.copy()
        expected = self._expected_of_outer(self._at(S), t[last], a[last], b[last])
        observed[chosen] = 2.0 * average[chosen] - expected
        return observed

    # One point ------------------------------------------------------------------------------

    def _evaluated(self, S: FloatArray) -> _Point:
        plan, units, v = self._plan, self._units, self._v
        inverses, deviance = self._residual(S[-1])
        flat = inverses.reshape(len(inverses), v * v)
        Ry = units.times(units.Y, inverses)
        y1, y2, y3 = (stage.places @ Ry for stage in self._stages)
        # First stage
        D = (self._counts.own @ flat).reshape(-1, v, v)
        L = root(S[plan.first])
        F1, W1, log_1 = _factor(D, L)
        E1 = F1 @ F1.transpose(0, 2, 1)
        inner = self._inner(flat)
        outer = self._outer(flat)
        A, mixed = self._second(flat)
        omega = self._third(flat)
        b1 = _times(E1, y1)
        y2, y3 = y2.reshape(plan.n_levels, -1), y3.ravel()
        for group_class, B in zip(plan.classes, outer, strict=True):
            groups, columns = group_class.groups, self._flat(group_class)
            y3[columns] -= np.tensordot(b1[groups], B, ((0, 1), (0, 1)))
            own = _times(inner[groups].transpose(0, 2, 1), b1[groups])
            add_by_level(y2, group_class.levels, -own)
            self._eliminate_groups(group_class, (F1[groups], B, inner[groups]), (A, mixed, omega))
        # Second stage
        L2 = self._root_of_level(S)
        F2, W2, log_2 = _factor(A, L2)
        E2 = F2 @ F2.transpose(0, 2, 1)
        b2 = _times(E2, y2)
        if plan.n_slots:
            y3 -= np.tensordot(b2, mixed, ((0, 1), (0, 1)))
            for part in slices(plan.n_levels, self._chunk(plan.n_slots * plan.n_columns)):
                T = (F2[part].transpose(0, 2, 1) @ mixed[part]).reshape(-1, y3.size)
                omega -= T.T @ T
        # Third stage
        omega = 0.5 * (omega + omega.T)
        psi, psi_v, half, log_3, (a3, u3) = self._solved(omega, S, y3)
        # Effects are La. At its minimum y'Py hardly changes with errors of a and of the means.
        a2 = _times(W2, _times(F2.transpose(0, 2, 1), y2 - mixed @ u3))
        u2 = a2 @ L2.T
        a1 = _times(W1, _times(F1.transpose(0, 2, 1), y1 - self._along(inner, outer, u2, u3)))
        fitted = sum(
            stage.places.T @ u.reshape(-1, v)
            for stage, u in zip(self._stages, (a1 @ L.T, u2, u3), strict=True)
        )
        Py = units.times(units.Y - fitted, inverses)
        deviance += log_1 + log_2 + log_3 + float(((units.Y - fitted) * Py).sum())
        deviance += float(np.square(a1).sum() + np.square(a2).sum() + np.square(a3).sum())
        free = self.n - (v if self.reml else 0)
        loglike = -0.5 * (deviance + free * float(np.log(2.0 * np.pi)))
        return _Point(
            loglike,
            S.copy(),
            inverses,
            D,
            E1,
            F1,
            inner,
            outer,
            A,
            E2,
            mixed,
            omega,
            psi,
            psi_v,
            half,
            Py,
        )

    def _residual(self, S: FloatArray) -> tuple[FloatArray, float]:
        """Return the inverse residual matrix of every pattern, and log|R|."""
        there = self._units.observed
        both = there[:, :, None] & there[:, None, :]
        # A missing variable has the residual 1, and is left out of the inverse.
        R = np.where(both, S, np.eye(self._v) * ~there[:, None, :])
        logs = np.log(np.diagonal(np.linalg.cholesky(R), axis1=1, axis2=2)).sum(axis=1)
        inverses = np.where(both, np.linalg.inv(R), 0.0)
        total = 2.0 * float(logs @ self._units.sizes)
        return 0.5 * (inverses + inverses.transpose(0, 2, 1)), total

    def _inner(self, flat: FloatArray) -> FloatArray:
        """Return U'R⁻¹ of the first stage times the second, (groups, v, w)."""
        plan, v = self._plan, self._v
        made = (self._counts.inner @ flat).reshape(plan.n_groups, plan.n_slots, v, v)
        return np.asarray(made.transpose(0, 2, 1, 3).reshape(plan.n_groups, v, plan.n_slots * v))

    def _outer(self, flat: FloatArray) -> list[FloatArray]:
        """Return for each class U'R⁻¹ of the first stage times its columns, (m, v, c v)."""
        v, found, first = self._v, [], 0
        for group_class in self._plan.classes:
            m, c = group_class.levels.size, group_class.columns.size
            made = np.empty((m, v, c, v))
            for part, _ in self._parts(group_class):
                pairs = slice(first + part.start * c, first + part.stop * c)
                blocks = (self._counts.outer[pairs] @ flat).reshape(-1, c, v, v)
                made[part] = blocks.transpose(0, 2, 1, 3)
            found.append(made.reshape(m, v, c * v))
            first += m * c
        return found

    def _second(self, flat: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return U'R⁻¹U of the second stage, (levels, w, w), and U'R⁻¹ times the third."""
        plan, v = self._plan, self._v
        n, e, q = plan.n_levels, plan.n_slots, plan.n_columns
        own = (self._counts.slots @ flat).reshape(n, e, e, v, v).transpose(0, 1, 3, 2, 4)
        mixed = (self._counts.mixed @ flat).reshape(n, e, q, v, v).transpose(0, 1, 3, 2, 4)
        return (
            np.ascontiguousarray(own).reshape(n, e * v, e * v),
            np.ascontiguousarray(mixed).reshape(n, e * v, q * v),
        )

    def _third(self, flat: FloatArray) -> FloatArray:
        """Return W'R⁻¹W of the third stage."""
        q, v = self._plan.n_columns, self._v
        made = (self._counts.columns @ flat).reshape(q, q, v, v).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(made).reshape(q * v, q * v)

    def _eliminate_groups(
        self,
        group_class: GroupClass,
        own: tuple[FloatArray, FloatArray, FloatArray],
        rest: tuple[FloatArray, FloatArray, FloatArray],
    ) -> None:
        """Subtract what the groups of a class explain, in place.

        Parameters
        ----------
        group_class : the class
        own : F, and U'R⁻¹ times the third and the second stage, of its groups
        rest : A, `mixed` and Ω, which are changed
        """
        (F, B, inner), (A, mixed, omega) = own, rest
        columns = self._flat(group_class)
        total = np.zeros((columns.size, columns.size))
        mine = np.zeros((*mixed.shape[:2], columns.size)) if self._plan.n_slots else mixed
        for part, _ in self._parts(group_class):
            Ft = F[part].transpose(0, 2, 1)
            T = Ft @ B[part]
            flat = T.reshape(-1, columns.size)
            total += flat.T @ flat
            if self._plan.n_slots:
                T2 = (Ft @ inner[part]).transpose(0, 2, 1)
                levels = group_class.levels[part]
                add_by_level(A, levels, -T2 @ T2.transpose(0, 2, 1))
                add_by_level(mine, levels, -T2 @ T)
        omega[np.ix_(columns, columns)] -= total
        if self._plan.n_slots:
            mixed[:, :, columns] += mine

    def _solved(
        self, omega: FloatArray, S: FloatArray, y: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, float, tuple[FloatArray, FloatArray]]:
        """Return both Ψ, `half`, the logarithms of determinants, and a and the effects La."""
        v = self._v
        x, e = slice(omega.shape[0] - v, None), slice(0, omega.shape[0] - v)
        roots = [root(S[t]) for t in self._plan.outer]
        across = [L.T for L in roots]
        H = self._scaled(omega[:, e], roots)  # Ω L of the other terms
        inner = Positive(np.eye(H.shape[1]) + self._scaled(H[e].T, roots).T)
        psi_v = np.zeros_like(omega)
        half = np.zeros((H.shape[1], omega.shape[0]))
        half[:, e] = self._scaled(inner.inverse(), across)
        psi_v[e, e] = self._scaled(half[:, e].T, across)
        XVX = Positive(omega[x, x] - H[x] @ inner.solve(H[x].T))
        # The means adjusted for the other terms, for P.
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
        made, first = np.empty_like(M), 0
        for t, block in zip(self._plan.outer, blocks, strict=True):
            part = slice(first, first + self.layout.sizes[t] * v)
            columns = np.ascontiguousarray(M[:, part]).reshape(-1, v)
            made[:, part] = (columns @ block).reshape(M.shape[0], -1)
            first = part.stop
        return made

    def _root_of_level(self, S: FloatArray) -> FloatArray:
        """Return L of the positions of a level in the second stage, block diagonal."""
        v, plan = self._v, self._plan
        L = np.zeros((plan.n_slots, v, plan.n_slots, v))
        for slot, t in enumerate(plan.term_of_slot):
            L[slot, :, slot] = root(S[t])
        return L.reshape(plan.n_slots * v, plan.n_slots * v)

    def _along(
        self, inner: FloatArray, outer: list[FloatArray], u2: FloatArray, u3: FloatArray
    ) -> FloatArray:
        """Return U'R⁻¹ of the first stage times effects of the other two, (groups, v)."""
        found = np.empty(inner.shape[:2])
        for c, B in zip(self._plan.classes, outer, strict=True):
            found[c.groups] = B @ u3[self._flat(c)]
            if self._plan.n_slots:
                found[c.groups] += _times(inner[c.groups], u2[c.levels])
        return found

    def _flat(self, group_class: GroupClass) -> LongArray:
        """Return the rows of Ω that a class touches."""
        columns = group_class.columns[:, None] * self._v + np.arange(self._v)
        return np.asarray(columns.ravel())

    def _chunk(self, columns: int) -> int:
        """Return for how many groups or levels arrays with so many columns are made at once."""
        return max(1, int(CHUNK // max(1, columns * self._v**2)))

    def _parts(self, group_class: GroupClass, columns: int = 0) -> Iterator[tuple[slice, slice]]:
        """Yield parts of a class, and the positions of their groups.

        Parameters
        ----------
        group_class : of the first stage
        columns : number of blocks (v, v) that arrays have for each group, if more than its own
        """
        own, first = group_class.columns.size + self._plan.n_slots, group_class.groups.start
        for part in slices(group_class.levels.size, self._chunk(max(own, columns))):
            yield part, slice(first + part.start, first + part.stop)

    # Traces ---------------------------------------------------------------------------------

    def _sums_of_terms(self, point: _Point) -> list[FloatArray]:
        """Return Z_t'Py of every random term, (effects, v)."""
        plan = self._plan
        z1, z2, z3 = (stage.places @ point.Py for stage in self._stages)
        by_slot = z2.reshape(plan.n_levels, plan.n_slots, self._v)
        found = {plan.first: z1}
        for t in plan.inner:
            found[t] = by_slot[:, plan.term_of_slot == t].reshape(-1, self._v)
        first = 0
        for t in plan.outer:
            found[t] = z3[first : first + self.layout.sizes[t]]
            first += self.layout.sizes[t]
        return [found[t] for t in range(self._k)]

    def _traces(self, point: _Point) -> FloatArray:
        """Return the sums of the blocks of Z_t'PZ_t over groups, or of V⁻¹ for ML, (k + 1, v, v).

        With C the covariances of the errors of all effects, the blocks of P of the units are
        R⁻¹ − R⁻¹ (the sum of C over pairs of effects in the unit) R⁻¹.
        """
        plan, v = self._plan, self._v
        psi = point.psi if self.reml else point.psi_v
        errors = None if self._is_known_sum else ErrorSums(self._counts, plan, v)
        found = np.zeros((self._k + 1, v, v))
        self._traces_of_outer(found, point, psi)
        if errors is not None:
            errors.add_columns(psi)
        C, across = self._traces_of_inner(found, point, psi, errors)
        for place in range(len(plan.classes)):
            self._traces_of_class(found, point, (psi, C, across), place, errors)
        found[-1] = self._trace_of_units(point, found, errors)
        return found

    def _traces_of_outer(self, found: FloatArray, point: _Point, psi: FloatArray) -> None:
        """Add the traces of the third stage, the blocks of Ω − ΩΨΩ.

        With Ψ = L·half and N = I − ΩΨ this is NΩN' + (Ω half')(Ω half')', which loses no digits
        where groups are large and Ω − ΩΨΩ is small.
        """
        v = self._v
        if not self._plan.outer:
            return
        products, N, halves = (x.reshape(-1, v, x.shape[1]) for x in self._left_of_outer(point, psi))
        for t, part in self._groups_of_outer():
            found[t] = np.tensordot(products[part], N[part], ((0, 2), (0, 2)))
            found[t] += np.tensordot(halves[part], halves[part], ((0, 2), (0, 2)))

    def _left_of_outer(
        self, point: _Point, psi: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return NΩ, N and Ω half' of the effects of the third stage."""
        omega = point.omega
        stop = omega.shape[0] - self._v
        N = np.eye(stop, omega.shape[0]) - omega[:stop] @ psi
        return N @ omega, N, omega[:stop] @ point.half.T

    def _groups_of_outer(self) -> Iterator[tuple[int, slice]]:
        """Yield each term of the third stage with the positions of its groups."""
        first = 0
        for t in self._plan.outer:
            yield t, slice(first, first + self.layout.sizes[t])
            first += self.layout.sizes[t]

    def _expected_of_outer(
        self, point: _Point, t: LongArray, a: LongArray, b: LongArray
    ) -> FloatArray:
        """Return ½ tr(P V_i P V_j), V⁻¹ for P for ML, of elements of terms of the third stage."""
        v, psi = self._v, point.psi if self.reml else point.psi_v
        products, N, halves = self._left_of_outer(point, psi)
        Q = (products @ N.T + halves @ halves.T).reshape(-1, v, N.shape[0])
        half, made = np.where(a == b, 0.5, 1.0), np.empty((t.size, t.size))
        for u, rows in self._groups_of_outer():
            for w, columns in self._groups_of_outer():
                blocks = Q[rows, :, columns.start * v : columns.stop * v]
                blocks = blocks.reshape(rows.stop - rows.start, v, -1, v)
                # Σ Q[x, z] Q[y, w] over pairs of groups
                M = np.tensordot(blocks, blocks, ((0, 2), (0, 2)))
                x, y = np.flatnonzero(t == u)[:, None], np.flatnonzero(t == w)
                traces = M[b[x], b[y], a[x], a[y]] + M[a[x], b[y], b[x], a[y]]
                made[x, y] = half[x] * half[y] * traces
        return made

    def _traces_of_inner(
        self, found: FloatArray, point: _Point, psi: FloatArray, errors: ErrorSums | None
    ) -> tuple[FloatArray, FloatArray]:
        """Add the traces of the second stage, and return its errors and those with the third.

        They are E + E B Ψ B' E, and E B Ψ for the negative covariances with the third stage.
        """
        plan, v, e = self._plan, self._v, self._plan.n_slots
        C, across = np.empty_like(point.A), np.empty_like(point.mixed)
        for part in slices(plan.n_levels if e else 0, self._chunk(e * plan.n_columns)):
            A, E, B = point.A[part], point.E2[part], point.mixed[part]
            by_psi = (B.reshape(-1, B.shape[2]) @ psi).reshape(B.shape)
            X = by_psi @ B.transpose(0, 2, 1)
            G = np.eye(e * v) - A @ E
            own = (G @ A - G @ X @ G.transpose(0, 2, 1)).sum(axis=0).reshape(e, v, e, v)
            for slot, t in enumerate(plan.term_of_slot):
                found[t] += own[slot, :, slot]
            C[part], across[part] = E + E @ X @ E, E @ by_psi
            if errors is not None:
                errors.add_levels(part, C[part], -across[part])
        return C, across

    def _traces_of_class(
        self,
        found: FloatArray,
        point: _Point,
        later: tuple[FloatArray, FloatArray, FloatArray],
        place: int,
        errors: ErrorSums | None,
    ) -> None:
        """Add the traces of a class of groups, given Ψ and the results of the second stage."""
        plan, (psi, C, across) = self._plan, later
        group_class, blocks = plan.classes[place], point.outer[place]
        columns = self._flat(group_class)
        inside = np.ascontiguousarray(psi[np.ix_(columns, columns)])
        for part, groups in self._parts(group_class):
            B, D, E = blocks[part], point.D[groups], point.E1[groups]
            by_columns = (B.reshape(-1, columns.size) @ inside).reshape(B.shape)
            by_slots = np.zeros((len(B), self._v, 0))
            if plan.n_slots:
                to_slots, levels = point.inner[groups], group_class.levels[part]
                mixed = across[levels][:, :, columns]
                by_slots = to_slots @ C[levels] - B @ mixed.transpose(0, 2, 1)
                by_columns -= to_slots @ mixed
            X = by_columns @ B.transpose(0, 2, 1)
            if plan.n_slots:
                X += by_slots @ point.inner[groups].transpose(0, 2, 1)
            G = np.eye(self._v) - D @ E
            found[plan.first] += (G @ D - G @ X @ G.transpose(0, 2, 1)).sum(axis=0)
            if errors is not None:
                errors.add_groups(groups, E + E @ X @ E, -E @ by_slots)
                errors.add_outer(place, part, -E @ by_columns)

    @property
    def _is_known_sum(self) -> bool:
        """Whether the traces of the terms determine that of the units."""
        off_diagonal = self.linked[-1] & ~np.eye(self._v, dtype=bool)
        return self.layout.same_rows or not off_diagonal.any()

    def _trace_of_units(
        self, point: _Point, traces: FloatArray, errors: ErrorSums | None
    ) -> FloatArray:
        """Return the sum over the units of the blocks of P, (v, v).

        The blocks of PV = I − V⁻¹X(X'V⁻¹X)⁻¹X' add up to the numbers of scores minus one. With
        the traces of the terms this determines the sum if all units have the same variables, or
        residuals are not linked.
        """
        if errors is not None:
            R = point.inverses
            counts = self._units.sizes
            return np.asarray((counts[:, None, None] * R - R @ errors.total() @ R).sum(axis=0))
        S = point.S
        counts = np.bincount(self.layout.scores.variable, minlength=self._v) - float(self.reml)
        known = np.diag(counts) - np.einsum("tab,tbc->ac", traces[:-1], S[:-1])
        if self.layout.same_rows:
            return np.asarray(np.linalg.solve(S[-1], known.T).T)
        return np.asarray(np.diag(np.diagonal(known) / np.diagonal(S[-1])))

    # Informations -----------------------------------------------------------------------------

    def _average(self, point: _Point, sums: list[FloatArray]) -> FloatArray:
        """Return ½ y'P V_i P V_j P y.

        V_i P y is Z_t (I ⊗ E_ab) Z_t'Py, so that sums by effects and patterns are enough.
        """
        plan, v = self._plan, self._v
        Z = self._of_units(point, sums)
        t, a, b = np.array(elements(self.linked)).T
        places = ElementPlaces(t, a, b, self._k + 1, v)
        moments = self._units.products(Z.reshape(len(Z), -1))
        gram = places.squares(point.inverses, moments)
        H1, H2, H3 = (StageProducts(stage, Z, point.inverses, places) for stage in self._stages)
        h2 = H2.all().reshape(plan.n_levels, -1, places.size)
        h3 = H3.all().reshape(-1, places.size)
        for group_class, B in zip(plan.classes, point.outer, strict=True):
            columns = self._flat(group_class)
            total = np.zeros((columns.size, places.size))
            for part, groups in self._parts(group_class, (self._k + 1) * v):
                Ft = point.F1[groups].transpose(0, 2, 1)
                own = H1(groups, point.F1[groups])
                flat = own.reshape(-1, places.size)
                gram -= flat.T @ flat
                total += (Ft @ B[part]).reshape(-1, columns.size).T @ flat
                if plan.n_slots:
                    left = (Ft @ point.inner[groups]).transpose(0, 2, 1) @ own
                    add_by_level(h2, group_class.levels[part], -left)
            h3[columns] -= total
        if plan.n_slots:
            Eh = point.E2 @ h2
            gram -= np.tensordot(h2, Eh, ((0, 1), (0, 1)))
            h3 -= np.tensordot(point.mixed, Eh, ((0, 1), (0, 1)))
        gram -= h3.T @ (point.psi @ h3)
        return 0.25 * (gram + gram.T)

    def _of_units(self, point: _Point, sums: list[FloatArray]) -> FloatArray:
        """Return Z_t'Py of the groups of every unit, and Py, (units, k + 1, v)."""
        plan, v = self._plan, self._v
        Z = np.empty((len(point.Py), self._k + 1, v))
        z2, z3 = (stage.places @ point.Py for stage in self._stages[1:])
        Z[:, plan.first] = sums[plan.first][plan.group]
        for t, slots in zip(plan.inner, plan.slots, strict=True):
            Z[:, t] = z2[slots]
        for t, columns in zip(plan.outer, plan.columns[:-1], strict=True):
            Z[:, t] = z3[columns]
        Z[:, -1] = point.Py
        return Z

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
        found = np.empty((m, m))
        for i in range(m):
            for j in range(i + 1):
                found[i, j] = found[j, i] = 0.5 * float((products[i] * products[j].T).sum())
        return found


def _factor(A: FloatArray, L: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return F = LW and W with WW' = (I + L'AL)⁻¹ for every A, and the sum of log|I + L'AL|."""
    C = np.linalg.cholesky(np.eye(A.shape[1]) + L.T @ A @ L)
    logs = 2.0 * float(np.log(np.diagonal(C, axis1=1, axis2=2)).sum())
    W = np.linalg.inv(C).transpose(0, 2, 1)
    return L @ W, W, logs


def _times(blocks: FloatArray, x: FloatArray) -> FloatArray:
    """Return the products of matrices and vectors, one for each row."""
    return np.asarray((blocks @ x[:, :, None])[:, :, 0])


def _check_variables(v: int) -> None:
    if v > _MOST_VARIABLES:
        raise EstimationError(
            f"there are {v} variables, and REML and ML are for up to {_MOST_VARIABLES}; use "
            "method='anova'"
        )


def _check_size(layout: Layout, plan: Elimination) -> None:
    v = layout.n_variables
    effects = (plan.n_columns - 1) * v
    needed = 8.0 * (plan.numbers(v) + 4.0 * layout.scores.n * len(layout.names))
    if effects > _MOST_EFFECTS or needed > 0.8 * available_bytes():
        names = ", ".join(layout.names[t] for t in plan.terms)
        raise EstimationError(
            f"the terms except {names} have {effects:,} effects in {v} variables, and the "
            f"equations need {memory(needed)}; the limit is {_MOST_EFFECTS:,} effects, and 80 % "
            "of the free memory. Use method='anova', which has no limit, or fewer variables at "
            "once"
        )
