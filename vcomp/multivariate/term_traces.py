"""Traces of the projection P over the groups of terms, by an elimination in three stages."""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.multivariate.error_sums import ErrorSums
from vcomp.multivariate.stage_equations import Equations, EquationsPoint
from vcomp.numerics import slices


def term_traces(eq: Equations, point: EquationsPoint) -> FloatArray:
    """Return the sums of the blocks of Z_t'PZ_t over groups, or of V⁻¹ for ML, (k + 1, v, v).

    With C the covariances of the errors of all effects, the blocks of P of the units are
    R⁻¹ − R⁻¹ (the sum of C over pairs of effects in the unit) R⁻¹.
    """
    plan, v = eq.plan, eq.v
    psi = point.psi if eq.reml else point.psi_v
    errors = None if _is_known_sum(eq) else ErrorSums(eq.counts, plan, v)
    found = np.zeros((eq.k + 1, v, v))
    _traces_of_outer(eq, found, point, psi)
    if errors is not None:
        errors.add_columns(psi)
    C, across = _traces_of_inner(eq, found, point, psi, errors)
    for place in range(len(plan.classes)):
        _traces_of_class(eq, found, point, (psi, C, across), place, errors)
    found[-1] = _trace_of_units(eq, point, found, errors)
    return found


def _traces_of_outer(
    eq: Equations, found: FloatArray, point: EquationsPoint, psi: FloatArray
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
    eq: Equations, point: EquationsPoint, psi: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return NΩ, N and Ω half' of the effects of the third stage."""
    omega = point.omega
    stop = omega.shape[0] - eq.v
    N = np.eye(stop, omega.shape[0]) - omega[:stop] @ psi
    return N @ omega, N, omega[:stop] @ point.half.T


def expected_of_outer(
    eq: Equations, point: EquationsPoint, t: LongArray, a: LongArray, b: LongArray
) -> FloatArray:
    """Return ½ tr(P V_i P V_j), V⁻¹ for P for ML, of elements of terms of the third stage."""
    v, psi = eq.v, point.psi if eq.reml else point.psi_v
    products, N, halves = _left_of_outer(eq, point, psi)
    Q = (products @ N.T + halves @ halves.T).reshape(-1, v, N.shape[0])
    half, made = np.where(a == b, 0.5, 1.0), np.empty((t.size, t.size))
    for u, rows in eq.groups_of_outer():
        for w, columns in eq.groups_of_outer():
            blocks = Q[rows, :, columns.start * v : columns.stop * v]
            blocks = blocks.reshape(rows.stop - rows.start, v, -1, v)
            # Σ Q[x, z] Q[y, w] over pairs of groups
            M = np.tensordot(blocks, blocks, ((0, 2), (0, 2)))
            x, y = np.flatnonzero(t == u)[:, None], np.flatnonzero(t == w)
            traces = M[b[x], b[y], a[x], a[y]] + M[a[x], b[y], b[x], a[y]]
            made[x, y] = half[x] * half[y] * traces
    return made


def _traces_of_inner(
    eq: Equations,
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
    eq: Equations,
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


def _is_known_sum(eq: Equations) -> bool:
    """Whether the traces of the terms determine that of the units."""
    off_diagonal = eq.layout.linked[-1] & ~np.eye(eq.v, dtype=bool)
    return eq.layout.same_rows or not off_diagonal.any()


def _trace_of_units(
    eq: Equations, point: EquationsPoint, traces: FloatArray, errors: ErrorSums | None
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
