"""Products of one stage of an elimination with the vectors V_i P y of all elements.

V_i P y is Z_t (I ⊗ E_ab) Z_t'Py, so that sums of Z_t'Py by effects and patterns are enough: with
s = (Z_t'Py) of the k + 1 terms, U'R⁻¹V_iPy of an effect is a sum over its patterns of
R⁻¹[:, a] s_tb + R⁻¹[:, b] s_ta.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.multivariate.unit_sums import StageSums


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

    def squares(self, W: FloatArray, s: FloatArray) -> FloatArray:
        """Return the sum over effects of W ⊗ ss' folded on both sides, (m, m).

        Parameters
        ----------
        W : (q, v, v) symmetric
        s : (q, k v)
        """
        first, second = np.triu_indices(self.v), np.triu_indices(s.shape[1])
        left = W.reshape(len(W), -1).take(first[0] * self.v + first[1], axis=1)
        right = s.take(second[0], axis=1)
        right *= s.take(second[1], axis=1)
        G = left.T @ right
        found = np.zeros((self.size, self.size))
        of_v, of_kv = _positions(self.v, first), _positions(s.shape[1], second)
        for a, b, once in self._both:
            for c, d, also in self._both:
                rows, columns = self.t * self.v + b, self.t * self.v + d
                made = G[of_v[a[:, None], c], of_kv[rows[:, None], columns]]
                found += once[:, None] * also * made
        return found

    @cached_property
    def _both(self) -> tuple[tuple[LongArray, LongArray, FloatArray], ...]:
        """Both orders of row and column, the second without the diagonal."""
        apart = (self.a != self.b).astype(float)
        return (self.a, self.b, np.ones(self.size)), (self.b, self.a, apart)


def _positions(n: int, pairs: tuple[LongArray, LongArray]) -> LongArray:
    """Return the position of each pair, in either order, among those of a triangle, (n, n)."""
    found = np.empty((n, n), dtype=np.int64)
    found[pairs] = np.arange(pairs[0].size)
    found[pairs[::-1]] = found[pairs]
    return found


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
        self._sums = stage.by_pattern @ Z.reshape(len(Z), -1)
        self._patterns, self._places = stage.patterns, places
        self._inverses = np.concatenate([inverses, np.zeros((1, *inverses.shape[1:]))])

    @property
    def is_single(self) -> bool:
        """Whether the units of each effect have one pattern."""
        return bool(self._patterns.shape[1] == 1)

    def factors(self, effects: slice) -> tuple[FloatArray, FloatArray]:
        """Return R⁻¹ (q, w, v, v) and s (q, w, k v) of some effects, by their patterns."""
        patterns = self._patterns[effects]
        q, width = patterns.shape
        first = effects.start or 0
        sums = self._sums[first * width : (first + q) * width]
        shape = q, width, self._places.k * self._places.v
        return self._inverses[patterns], sums.reshape(shape)

    def __call__(self, effects: slice) -> FloatArray:
        """Return the products of some effects, (effects, v, elements)."""
        R, s = self.factors(effects)
        q, width, v, _ = R.shape
        K = R.reshape(q, width, v * v).transpose(0, 2, 1) @ s
        return self._places.folded(K.reshape(q, v, v * s.shape[2]))
