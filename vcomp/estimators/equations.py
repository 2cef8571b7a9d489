"""Henderson's mixed-model equations for the terms that have a positive component.

C = [Z'Z + Λ⁻¹, Z'X; X'Z, X'X] with λ_t = σ²_t/σ²_e: assembled once for each set of positive terms,
then factored and solved at each value of the components.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.linalg.arrowhead import Arrowhead, ArrowheadFactor, factorise
from vcomp.linalg.threads import limited_blas
from vcomp.statistics import CrossProducts

__all__ = ["Equations", "Point", "build_equations", "cross_columns", "solve_equations"]

_COLUMNS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Equations:
    """The parts of the equations that do not depend on the components."""

    active: tuple[int, ...]  # largest first; the first is eliminated
    slices: tuple[slice, ...]  # places of the others in the tail
    matrix: Arrowhead
    lead_y: FloatArray
    tail_y: FloatArray


@dataclass(frozen=True, slots=True)
class Point:
    """The equations factored and solved at one value of the components."""

    v: FloatArray
    equations: Equations
    factor: ArrowheadFactor
    effects: FloatArray  # (q,) û of the eliminated term
    tail: FloatArray  # (m + p,) û of the other terms, then β̂
    rss: float  # σ²_e y'P y

    @property
    def residual(self) -> float:
        """The residual component σ²_e."""
        return float(self.v[-1])

    def solution_of(self, term: int) -> FloatArray:
        """Return û of a term that is in the equations."""
        place = self.equations.active.index(term)
        return self.effects if place == 0 else self.tail[self.equations.slices[place - 1]]

    @property
    def beta(self) -> FloatArray:
        """The generalised least squares estimate."""
        return self.tail[self.factor.n_sparse :]


def build_equations(stats: CrossProducts, active: tuple[int, ...]) -> Equations:
    """Assemble the parts of Henderson's equations for the terms in `active`."""
    from scipy.sparse import block_array, csr_array

    p, tail_terms = stats.n_fixed, active[1:]
    ends = np.cumsum([0, *(stats.sizes[t] for t in tail_terms)])
    slices = tuple(slice(int(a), int(b)) for a, b in pairwise(ends))
    m = int(ends[-1])
    tail = np.empty((m + p, m + p))
    for t, rows in zip(tail_terms, slices, strict=True):
        for u, cols in zip(tail_terms, slices, strict=True):
            tail[rows, cols] = stats.gram(t, u).toarray()
        tail[rows, m:] = stats.ZX[t]
        tail[m:, rows] = stats.ZX[t].T
    tail[m:, m:] = stats.XX
    lead = active[0] if active else None
    if lead is None:
        coupling: Any = csr_array((0, 0))
    elif tail_terms:
        coupling = block_array([[stats.gram(lead, t) for t in tail_terms]]).tocsr()
    else:
        coupling = csr_array((stats.sizes[lead], 0))
    coupling.sort_indices()
    matrix = Arrowhead(
        lead=stats.group_n[lead] if lead is not None else np.zeros(0),
        indptr=coupling.indptr.astype(np.int64),
        indices=coupling.indices.astype(np.int32),
        data=coupling.data.astype(float),
        dense=np.ascontiguousarray(stats.ZX[lead]) if lead is not None else np.zeros((0, p)),
        tail=tail,
        n_sparse=m,
    )
    lead_y = stats.Zy[lead] if lead is not None else np.zeros(0)
    tail_y = np.concatenate([*(stats.Zy[t] for t in tail_terms), stats.Xy])
    return Equations(active, slices, matrix, lead_y, tail_y)


def cross_columns(
    stats: CrossProducts, equations: Equations, term: int
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield [Z X]'Z_t in dense slabs of columns, split into eliminated block and tail."""
    blocks = [stats.gram(u, term).tocsc() for u in equations.active]
    X = stats.ZX[term].T
    for start in range(0, stats.sizes[term], _COLUMNS_AT_ONCE):
        slab = slice(start, start + _COLUMNS_AT_ONCE)
        parts = [block[:, slab].toarray() for block in blocks]
        width = X[:, slab].shape[1]
        lead = parts[0] if parts else np.zeros((0, width))
        yield lead, np.concatenate([*parts[1:], X[:, slab]])


def solve_equations(equations: Equations, yy: float, v: FloatArray) -> Point:
    """Factor and solve at components `v`, the residual last; `yy` is y'y.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the equations are not positive definite to rounding.
    """
    ridges = [v[-1] / v[t] for t in equations.active]
    tail_ridge = np.zeros(equations.matrix.tail.shape[0])
    for ridge, place in zip(ridges[1:], equations.slices, strict=True):
        tail_ridge[place] = ridge
    with limited_blas(tail_ridge.size):
        factor = factorise(equations.matrix, ridges[0] if ridges else 0.0, tail_ridge)
        lead, tail = factor.solve(equations.lead_y[:, None], equations.tail_y[:, None])
    effects, rest = lead[:, 0], tail[:, 0]
    rss = yy - equations.lead_y @ effects - equations.tail_y @ rest
    return Point(v, equations, factor, effects, rest, float(rss))
