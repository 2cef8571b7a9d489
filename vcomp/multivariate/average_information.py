"""Products of one stage of an elimination with the vectors V_i P y of all elements.

V_i P y is Z_t (I ⊗ E_ab) Z_t'Py, so that sums of Z_t'Py by effects and patterns are enough: with
s = (Z_t'Py) of the k + 1 terms, U'R⁻¹V_iPy of an effect is a sum over its patterns of
R⁻¹[:, a] s_tb + R⁻¹[:, b] s_ta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.multivariate.covariance_components import elements
from vcomp.multivariate.stage_equations import Equations, EquationsPoint
from vcomp.multivariate.unit_sums import StageSums, subtract_by_level
from vcomp.numerics import slices


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
        made = K.take((self.a * k + self.t) * v + self.b, axis=axis)
        other = K.take((self.b * k + self.t) * v + self.a, axis=axis)
        other *= self.a != self.b
        made += other
        return np.asarray(made)

    def folded_twice(self, G: FloatArray) -> FloatArray:
        """Return sums of R ⊗ M folded on both sides, (m, m).

        Parameters
        ----------
        G : (v v, (k v)²) R of (v, v), and M of (k v, k v)
        """
        v, width = self.v, self.k * self.v
        G = G.reshape(v, v, width, width)
        found = np.zeros((self.size, self.size))
        for a, b, once in self._both:
            for c, d, also in self._both:
                rows, columns = self.t * v + b, self.t * v + d
                made = G[a[:, None], c, rows[:, None], columns]
                found += once[:, None] * also * made
        return found

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
        # The last one is for no pattern.
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
        there = entries < starts[1:, None]
        entries[~there] = 0
        patterns = np.where(there, self._stage.patterns[entries], len(self._inverses) - 1)
        R = self._inverses[patterns].reshape(*entries.shape, v * v)
        K = (R.transpose(0, 2, 1) @ self._sums[entries]).reshape(q, v, v * width)
        return self._places.folded(K if left is None else left.transpose(0, 2, 1) @ K)

    def all(self, eq: Equations) -> FloatArray:
        """Return the products of all effects, (effects, v, elements)."""
        starts = self._stage.starts
        made = np.empty((starts.size - 1, self._places.v, self._places.size))
        # A mean has all patterns.
        columns = max(int(np.diff(starts).max(initial=0)), self._places.k * self._places.v)
        for part in slices(len(made), eq.at_once(columns)):
            made[part] = self(part)
        return made


def average_information(eq: Equations, point: EquationsPoint) -> FloatArray:
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
    eq: Equations,
    point: EquationsPoint,
    H: StageProducts,
    places: ElementPlaces,
    h2: FloatArray,
    h3: FloatArray,
) -> FloatArray:
    """Return what the first stage explains of all squares, and subtract it from h2 and h3."""
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


def _of_units(eq: Equations, point: EquationsPoint) -> FloatArray:
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
