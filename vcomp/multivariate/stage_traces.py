"""Traces and average information of an elimination in three stages.

The traces of P over the groups of terms are from sums of the covariances of errors of effects. The
average information is from the vectors V_i P y of all elements: V_i P y is Z_t (I ⊗ E_ab) Z_t'Py,
so that sums of Z_t'Py by effects and patterns are enough. With s = (Z_t'Py) of the k + 1 terms,
U'R⁻¹V_iPy of an effect is a sum over its patterns of R⁻¹[:, a] s_tb + R⁻¹[:, b] s_ta.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood import elements
from vcomp.multivariate.stage_equations import (
    Elimination,
    EquationsPoint,
    PairCounts,
    StageEquations,
    StageSums,
)
from vcomp.numerics import slices

_FEW_GROUPS = 4
"""Groups per level below which products by group cost less than by level."""


def subtract_by_level(
    totals: FloatArray, levels: LongArray, left: FloatArray, right: FloatArray
) -> None:
    """Subtract the sums of left'right over the groups of each level from its total.

    Parameters
    ----------
    totals : (levels, x, y), or of that size
    levels : (q,) level of each group, ascending
    left, right : (q, r, x) and (q, r, y) of the groups
    """
    from scipy.sparse import csr_array

    starts = np.flatnonzero(np.diff(levels, prepend=-1))
    shape = totals.shape[1:]
    if levels.size < _FEW_GROUPS * starts.size:
        products = (left.transpose(0, 2, 1) @ right).reshape(levels.size, -1)
        sums = csr_array((np.ones(levels.size), np.arange(levels.size), [*starts, levels.size]))
        totals[levels[starts]] -= (sums @ products).reshape(-1, *shape)
        return
    rows = left.shape[1]
    left, right = left.reshape(-1, left.shape[2]), right.reshape(-1, right.shape[2])
    for start, stop in pairwise([*starts.tolist(), levels.size]):
        part = slice(start * rows, stop * rows)
        totals[levels[start]] -= (left[part].T @ right[part]).reshape(shape)


class ErrorSums:
    """Sums of the covariances of errors over the pairs of effects in the units of each pattern.

    Parameters
    ----------
    counts : of the pairs of effects of each stage, by pattern
    plan : of the elimination
    v : number of variables
    """

    def __init__(self, counts: PairCounts, plan: Elimination, v: int) -> None:
        self._counts, self._plan, self._v = counts, plan, v
        self._starts = np.cumsum([0, *plan.pairs_per_class])
        self._total = np.zeros((counts.columns.shape[1], v, v))

    def total(self) -> FloatArray:
        """Return the sums, (patterns, v, v)."""
        return self._total

    def _add(self, counts: Any, blocks: FloatArray, *, mixed: bool) -> None:
        """Add blocks (rows, v, columns, v), once or with their transposes."""
        v = self._v
        flat = np.ascontiguousarray(blocks.transpose(0, 2, 1, 3)).reshape(-1, v * v)
        sums = (counts.T @ flat).reshape(-1, v, v)
        self._total += sums + sums.transpose(0, 2, 1) if mixed else sums

    def add_columns(self, psi: FloatArray) -> None:
        """Add the errors of the third stage."""
        q = self._plan.n_columns
        self._add(self._counts.columns, psi.reshape(q, self._v, q, self._v), mixed=False)

    def add_levels(self, part: slice, C: FloatArray, mixed: FloatArray) -> None:
        """Add the errors of the second stage, and its covariances with the third."""
        v, e, q = self._v, self._plan.n_slots, self._plan.n_columns
        rows = slice(part.start * e * e, part.stop * e * e)
        self._add(self._counts.slots[rows], C.reshape(-1, v, e, v), mixed=False)
        rows = slice(part.start * e * q, part.stop * e * q)
        self._add(self._counts.mixed[rows], mixed.reshape(-1, v, q, v), mixed=True)

    def add_groups(self, groups: slice, C: FloatArray, inner: FloatArray) -> None:
        """Add the errors of groups of the first stage, and their covariances with the second."""
        v, e = self._v, self._plan.n_slots
        self._add(self._counts.own[groups], C[:, :, None, :], mixed=False)
        if e:
            rows = slice(groups.start * e, groups.stop * e)
            self._add(self._counts.inner[rows], inner.reshape(-1, v, e, v), mixed=True)

    def add_outer(self, place: int, part: slice, outer: FloatArray) -> None:
        """Add the covariances of the errors of groups of a class with its columns."""
        c = self._plan.classes[place].columns.size
        first = int(self._starts[place])
        rows = slice(first + part.start * c, first + part.stop * c)
        self._add(self._counts.outer[rows], outer.reshape(-1, self._v, c, self._v), mixed=True)


def term_traces(eq: StageEquations, point: EquationsPoint) -> FloatArray:
    """Return the sums of the blocks of Z_t'PZ_t over groups, or of V⁻¹ for ML, (k + 1, v, v).

    With C the covariances of the errors of all effects, the blocks of P of the units are
    R⁻¹ − R⁻¹ (the sum of C over pairs of effects in the unit) R⁻¹.
    """
    plan, v = eq.plan, eq.v
    psi = point.psi if eq.reml else point.psi_v
    errors = None if _is_known_sum(eq) else ErrorSums(eq.counts, plan, v)
    traces = np.zeros((eq.k + 1, v, v))
    _traces_of_outer(eq, traces, point, psi)
    if errors is not None:
        errors.add_columns(psi)
    C, across = _traces_of_inner(eq, traces, point, psi, errors)
    for place in range(len(plan.classes)):
        _traces_of_class(eq, traces, point, (psi, C, across), place, errors)
    traces[-1] = _trace_of_units(eq, point, traces, errors)
    return traces


def _traces_of_outer(
    eq: StageEquations, found: FloatArray, point: EquationsPoint, psi: FloatArray
) -> None:
    """Add the traces of the third stage, the blocks of Ω − ΩΨΩ.

    With Ψ = L·half and N = I − ΩΨ this is NΩN' + (Ω half')(Ω half')', which loses no digits
    where groups are large and Ω − ΩΨΩ is small.
    """
    v = eq.v
    if not eq.plan.outer:
        return
    products, N, halves = (x.reshape(-1, v, x.shape[1]) for x in _left_of_outer(eq, point, psi))
    for t, part in eq.groups_of_outer():
        found[t] = np.tensordot(products[part], N[part], ((0, 2), (0, 2)))
        found[t] += np.tensordot(halves[part], halves[part], ((0, 2), (0, 2)))


def _left_of_outer(
    eq: StageEquations, point: EquationsPoint, psi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return NΩ, N and Ω half' of the effects of the third stage."""
    omega = point.omega
    stop = omega.shape[0] - eq.v
    N = np.eye(stop, omega.shape[0]) - omega[:stop] @ psi
    return N @ omega, N, omega[:stop] @ point.half.T


def expected_of_outer(
    eq: StageEquations, point: EquationsPoint, t: LongArray, a: LongArray, b: LongArray
) -> FloatArray:
    """Return ½ tr(P V_i P V_j), V⁻¹ for P for ML, of elements of terms of the third stage."""
    v, psi = eq.v, point.psi if eq.reml else point.psi_v
    products, N, halves = _left_of_outer(eq, point, psi)
    Q = (products @ N.T + halves @ halves.T).reshape(-1, v, N.shape[0])
    half, information = np.where(a == b, 0.5, 1.0), np.empty((t.size, t.size))
    for u, rows in eq.groups_of_outer():
        for w, columns in eq.groups_of_outer():
            blocks = Q[rows, :, columns.start * v : columns.stop * v]
            blocks = blocks.reshape(rows.stop - rows.start, v, -1, v)
            # Σ Q[x, z] Q[y, w] over pairs of groups
            M = np.tensordot(blocks, blocks, ((0, 2), (0, 2)))
            x, y = np.flatnonzero(t == u)[:, None], np.flatnonzero(t == w)
            traces = M[b[x], b[y], a[x], a[y]] + M[a[x], b[y], b[x], a[y]]
            information[x, y] = half[x] * half[y] * traces
    return information


def _traces_of_inner(
    eq: StageEquations,
    found: FloatArray,
    point: EquationsPoint,
    psi: FloatArray,
    errors: ErrorSums | None,
) -> tuple[FloatArray, FloatArray]:
    """Add the traces of the second stage, and return its errors and those with the third.

    They are E + E B Ψ B' E, and E B Ψ for the negative covariances with the third stage.
    """
    plan, v, e = eq.plan, eq.v, eq.plan.n_slots
    C, across = np.empty_like(point.A), np.empty_like(point.mixed)
    for part in slices(plan.n_levels if e else 0, eq.at_once(e * plan.n_columns)):
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
    eq: StageEquations,
    found: FloatArray,
    point: EquationsPoint,
    later: tuple[FloatArray, FloatArray, FloatArray],
    place: int,
    errors: ErrorSums | None,
) -> None:
    """Add the traces of a class of groups, given Ψ and the results of the second stage."""
    plan, (psi, C, across) = eq.plan, later
    group_class, blocks = plan.classes[place], point.outer[place]
    columns = group_class.rows(eq.v)
    inside = np.ascontiguousarray(psi[np.ix_(columns, columns)])
    for part, groups in eq.parts(group_class):
        B, D, E = blocks[part], point.D[groups], point.E1[groups]
        by_columns = (B.reshape(-1, columns.size) @ inside).reshape(B.shape)
        by_slots = np.zeros((len(B), eq.v, 0))
        if plan.n_slots:
            to_slots, levels = point.inner[groups], group_class.levels[part]
            mixed = across[levels][:, :, columns]
            by_slots = to_slots @ C[levels] - B @ mixed.transpose(0, 2, 1)
            by_columns -= to_slots @ mixed
        X = by_columns @ B.transpose(0, 2, 1)
        if plan.n_slots:
            X += by_slots @ point.inner[groups].transpose(0, 2, 1)
        G = np.eye(eq.v) - D @ E
        found[plan.first] += (G @ D - G @ X @ G.transpose(0, 2, 1)).sum(axis=0)
        if errors is not None:
            errors.add_groups(groups, E + E @ X @ E, -E @ by_slots)
            errors.add_outer(place, part, -E @ by_columns)


def _is_known_sum(eq: StageEquations) -> bool:
    """Whether the traces of the terms determine that of the units."""
    off_diagonal = eq.layout.linked[-1] & ~np.eye(eq.v, dtype=bool)
    return eq.layout.same_rows or not off_diagonal.any()


def _trace_of_units(
    eq: StageEquations, point: EquationsPoint, traces: FloatArray, errors: ErrorSums | None
) -> FloatArray:
    """Return the sum over the units of the blocks of P, (v, v).

    The blocks of PV = I − V⁻¹X(X'V⁻¹X)⁻¹X' add up to the numbers of scores minus one. With
    the traces of the terms this determines the sum if all units have the same variables, or
    residuals are not linked.
    """
    if errors is not None:
        R = point.inverses
        n = eq.units.sizes
        return np.asarray((n[:, None, None] * R - R @ errors.total() @ R).sum(axis=0))
    S = point.S
    counts = np.bincount(eq.layout.scores.variable, minlength=eq.v) - float(eq.reml)
    known = np.diag(counts) - np.einsum("tab,tbc->ac", traces[:-1], S[:-1])
    if eq.layout.same_rows:
        return np.asarray(np.linalg.solve(S[-1], known.T).T)
    return np.asarray(np.diag(np.diagonal(known) / np.diagonal(S[-1])))


@dataclass(frozen=True)
class ElementPlaces:
    """Term, row and column of the elements of all matrices.

    Attributes
    ----------
    t, a, b : (m,) each
    k : number of terms, the residual included
    v : number of variables
    """

    t: LongArray
    a: LongArray
    b: LongArray
    k: int
    v: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.t.size)

    def folded(self, K: FloatArray) -> FloatArray:
        """Return K[a, tb] + K[b, ta], once where a = b, (…, m), from K of (…, v (k v))."""
        k, v, axis = self.k, self.v, K.ndim - 1
        folded = K.take((self.a * k + self.t) * v + self.b, axis=axis)
        other = K.take((self.b * k + self.t) * v + self.a, axis=axis)
        other *= self.a != self.b
        folded += other
        return np.asarray(folded)

    def folded_twice(self, G: FloatArray) -> FloatArray:
        """Return sums of R ⊗ M folded on both sides, (m, m).

        Parameters
        ----------
        G : (v v, (k v)²) R of (v, v), and M of (k v, k v)
        """
        v, width = self.v, self.k * self.v
        G = G.reshape(v, v, width, width)
        sums = np.zeros((self.size, self.size))
        for a, b, once in self._both:
            for c, d, also in self._both:
                rows, columns = self.t * v + b, self.t * v + d
                terms = G[a[:, None], c, rows[:, None], columns]
                sums += once[:, None] * also * terms
        return sums

    @property
    def _both(self) -> tuple[tuple[LongArray, LongArray, FloatArray], ...]:
        """Both orders of row and column, the second without the diagonal."""
        apart = (self.a != self.b).astype(float)
        return (self.a, self.b, np.ones(self.size)), (self.b, self.a, apart)


class StageProducts:
    """U'R⁻¹V_iPy of one stage, for all elements.

    Parameters
    ----------
    stage : sums over its units
    Z : (units, k, v) Z_t'Py of every unit
    inverses : (p, v, v) R⁻¹ of the patterns
    places : of the elements
    """

    def __init__(
        self, stage: StageSums, Z: FloatArray, inverses: FloatArray, places: ElementPlaces
    ) -> None:
        self._stage, self._places = stage, places
        # The last one is zero, for entries beyond the patterns of an effect.
        self._inverses = np.concatenate([inverses, np.zeros((1, *inverses.shape[1:]))])
        self._sums = stage.by_pattern @ Z.reshape(len(Z), -1)

    def __call__(self, effects: slice, left: FloatArray | None = None) -> FloatArray:
        """Return the products of some effects, times L' if there is one, (effects, v, elements).

        Parameters
        ----------
        effects : which
        left : (effects, v, v) L
        """
        starts = self._stage.starts[effects.start : effects.stop + 1]
        q, v, width = starts.size - 1, self._places.v, self._places.k * self._places.v
        entries = starts[:-1, None] + np.arange(np.diff(starts).max(initial=0))
        exists = entries < starts[1:, None]
        entries[~exists] = 0
        patterns = np.where(exists, self._stage.patterns[entries], len(self._inverses) - 1)
        R = self._inverses[patterns].reshape(*entries.shape, v * v)
        K = (R.transpose(0, 2, 1) @ self._sums[entries]).reshape(q, v, v * width)
        return self._places.folded(K if left is None else left.transpose(0, 2, 1) @ K)

    def all(self, eq: StageEquations) -> FloatArray:
        """Return the products of all effects, (effects, v, elements)."""
        starts = self._stage.starts
        products = np.empty((starts.size - 1, self._places.v, self._places.size))
        # A mean has all patterns.
        columns = max(int(np.diff(starts).max(initial=0)), self._places.k * self._places.v)
        for part in slices(len(products), eq.at_once(columns)):
            products[part] = self(part)
        return products


def average_information(eq: StageEquations, point: EquationsPoint) -> FloatArray:
    """Return ½ y'P V_i P V_j P y.

    V_i P y is Z_t (I ⊗ E_ab) Z_t'Py, so that sums by effects and patterns are enough.
    """
    plan, v = eq.plan, eq.v
    Z = _of_units(eq, point)
    t, a, b = np.array(elements(eq.layout.linked)).T
    places = ElementPlaces(t, a, b, eq.k + 1, v)
    moments = eq.units.products(Z.reshape(len(Z), -1)).reshape(len(point.inverses), -1)
    gram = places.folded_twice(point.inverses.reshape(-1, v * v).T @ moments)
    H1, H2, H3 = (StageProducts(stage, Z, point.inverses, places) for stage in eq.stages)
    h2 = H2.all(eq).reshape(plan.n_levels, -1, places.size)
    h3 = H3.all(eq).reshape(-1, places.size)
    gram -= _eliminate(eq, point, H1, places, h2, h3)
    # Arrays of a level have places.size columns.
    for part in slices(plan.n_levels if plan.n_slots else 0, eq.at_once(2 * places.k * v)):
        h = h2[part].reshape(-1, places.size)
        Eh = (point.E2[part] @ h2[part]).reshape(h.shape)
        gram -= h.T @ Eh
        h3 -= point.mixed[part].reshape(len(h), -1).T @ Eh
    gram -= h3.T @ (point.psi @ h3)
    return 0.25 * (gram + gram.T)


def _eliminate(
    eq: StageEquations,
    point: EquationsPoint,
    H: StageProducts,
    places: ElementPlaces,
    h2: FloatArray,
    h3: FloatArray,
) -> FloatArray:
    """Return the part of the first stage in all squares, and subtract it from h2 and h3."""
    plan, v = eq.plan, eq.v
    gram = np.zeros((places.size, places.size))
    for group_class, B in zip(plan.classes, point.outer, strict=True):
        columns = group_class.rows(v)
        total = np.zeros((columns.size, places.size))
        for part, groups in eq.parts(group_class, places.k * v):
            Ft = point.F1[groups].transpose(0, 2, 1)
            own = H(groups, point.F1[groups])
            flat = own.reshape(-1, places.size)
            gram += flat.T @ flat
            total += (Ft @ B[part]).reshape(-1, columns.size).T @ flat
            if plan.n_slots:
                FU = Ft @ point.inner[groups]
                subtract_by_level(h2, group_class.levels[part], FU, own)
        h3[columns] -= total
    return gram


def _of_units(eq: StageEquations, point: EquationsPoint) -> FloatArray:
    """Return Z_t'Py of the groups of every unit, and Py, (units, k + 1, v)."""
    plan, v = eq.plan, eq.v
    Z = np.empty((len(point.Py), eq.k + 1, v))
    z1, z2, z3 = (stage.places @ point.Py for stage in eq.stages)
    Z[:, plan.first] = z1[plan.group]
    for t, slots in zip(plan.inner, plan.slots, strict=True):
        Z[:, t] = z2[slots]
    for t, columns in zip(plan.outer, plan.columns[:-1], strict=True):
        Z[:, t] = z3[columns]
    Z[:, -1] = point.Py
    return Z
