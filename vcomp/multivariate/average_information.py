"""Products of one stage of an elimination with the vectors V_i P y of all elements.

V_i P y is Z_t (I ⊗ E_ab) Z_t'Py, so that sums of Z_t'Py by effects and patterns are enough: with
s = (Z_t'Py) of the k + 1 terms, U'R⁻¹V_iPy of an effect is a sum over its patterns of
R⁻¹[:, a] s_tb + R⁻¹[:, b] s_ta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.multivariate.unit_sums import CHUNK, StageSums
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

    def squares(self, R: FloatArray, M: FloatArray) -> FloatArray:
        """Return the sum over patterns of R ⊗ M folded on both sides, (m, m).

        Parameters
        ----------
        R : (p, v, v)
        M : (p, k v, k v) sums of products of s
        """
        v, width = self.v, self.k * self.v
        G = R.reshape(-1, v * v).T @ M.reshape(-1, width * width)
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
        self._stage, self._inverses, self._places = stage, inverses, places
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
        R = self._inverses[self._stage.patterns[entries]].reshape(*entries.shape, v * v)
        R *= there[:, :, None]
        K = (R.transpose(0, 2, 1) @ self._sums[entries]).reshape(q, v, v * width)
        return self._places.folded(K if left is None else left.transpose(0, 2, 1) @ K)

    def all(self) -> FloatArray:
        """Return the products of all effects, (effects, v, elements)."""
        q, v = self._stage.starts.size - 1, self._places.v
        made = np.empty((q, v, self._places.size))
        # Effects of the later stages have up to all patterns.
        for part in slices(q, max(1, CHUNK // (v * v * max(v * self._places.k, len(self._inverses))))):
            made[part] = self(part)
        return made
