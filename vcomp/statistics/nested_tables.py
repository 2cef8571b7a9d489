"""Tables of the cells of two nested terms by the levels of a facet, on which alone X depends.

Scores of models on items, ``score ~ C(model) + (1|item) + (1|model:item)``, are such cells: the
inner term crosses the groups of the outer one with the models, and X is the same in all scores of
a model. A table of means and numbers of scores replaces the columns of X and all pair tables. The
models may be a third random term.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Chunk
from vcomp.numerics import MixedColumns, slices
from vcomp.numerics.kernels import group_sums
from vcomp.statistics.groupings import GroupSums
from vcomp.statistics.two_term_tables import LEAST_FILLED

LEAST_GROUPS = 30_000
"""Number of random effects from which a table is preferred: below, elimination is as fast."""


MOST_COLUMNS = 1_024
"""Largest number of levels of the facet of the fixed part: matrices of this order are formed."""


_ROWS = 2**18
"""Rows that are compared at once."""


@dataclass(frozen=True)
class NestedTable:
    """Means and numbers of scores of the groups of an outer term by the levels of a facet.

    Attributes
    ----------
    n : number of scores
    outer : position of the outer term, 0 or 1; the inner term is the other one
    counts, means : (q, m) number of scores of each cell, 0 if it is empty, and their mean
    within : sum of squares of y within cells
    levels : (m, p) row of X of each level
    cells : for each group of the inner term its cell
    """

    n: int
    outer: int
    counts: FloatArray
    means: FloatArray
    within: float
    levels: FloatArray
    cells: LongArray

    def with_response(self, chunk: Chunk) -> NestedTable:
        """Return the same cells with another response of the same rows."""
        means, within = _moments(chunk, chunk.codes[1 - self.outer], self.cells, self.counts)
        return replace(self, means=means, within=within)

    def recombined(self, columns: FloatArray) -> NestedTable:
        """Return the table of other columns in place of y and X.

        Parameters
        ----------
        columns : (1 + p, 1 + q) matrix that maps [y X] to them; y is in the first of them alone
        """
        assert not columns[0, 1:].any()
        scale = float(columns[0, 0])
        means = np.where(self.counts > 0.0, scale * self.means + self.levels @ columns[1:, 0], 0.0)
        return replace(
            self, means=means, within=scale**2 * self.within, levels=self.levels @ columns[1:, 1:]
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of groups of the terms."""
        sizes = (len(self.counts), self.cells.size)
        return sizes if self.outer == 0 else sizes[::-1]

    @property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return 2

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return int(self.levels.shape[1])

    @cached_property
    def XX(self) -> FloatArray:
        """Cross-products of the columns of X."""
        products: FloatArray = (self.levels.T * self.counts.sum(axis=0)) @ self.levels
        return products

    @cached_property
    def Xy(self) -> FloatArray:
        """Cross-products of the columns of X with y."""
        sums = np.einsum("qm,qm->m", self.counts, self.means)
        return np.asarray(self.levels.T @ sums)

    @cached_property
    def yy(self) -> float:
        """Sum of squares of y."""
        return self.within + float(np.einsum("qm,qm,qm->", self.counts, self.means, self.means))

    def group_sums(self) -> GroupSums:
        """Return the sums over groups and pairs of groups, for analysis of variance."""
        a, b, n = self.outer, 1 - self.outer, self.counts
        of_outer, sums = n.sum(axis=1), np.einsum("qm,qm->q", n, self.means)
        shared = np.einsum("qm,qm->q", n, n)
        coefficients, inverse = np.full((2, 2), float(self.n)), np.ones((2, 3))
        coefficients[a, b], inverse[a, b] = (
            (shared / of_outer).sum(),
            np.mean(shared / of_outer**2),
        )
        inverse[a, 2], inverse[b, 2] = np.mean(1.0 / of_outer), np.mean(1.0 / n[n > 0.0])
        parts, total = np.empty(4), float(sums.sum())
        parts[a], parts[b] = (sums * sums / of_outer).sum(), self.yy - self.within
        parts[2:] = self.yy, total**2 / self.n
        return GroupSums(
            n=self.n,
            total=total,
            yy=self.yy,
            sizes=self.sizes,
            parts=parts,
            holds=np.eye(4),
            coefficients=coefficients,
            squares=np.array([self.group_squares(t) for t in range(2)]),
            inverse_n=inverse,
            finer=np.array([[self.is_finer(t, u) for u in range(2)] for t in range(2)]),
        )

    def group_squares(self, term: int) -> float:
        """Return Σ_g n_g² over the groups of a term."""
        n = self.counts.sum(axis=1) if term == self.outer else self.counts
        return float(np.vdot(n, n))

    def is_finer(self, t: int, u: int) -> bool:
        """Whether every group of term t lies within one group of term u."""
        return t == u or t != self.outer or bool(((self.counts > 0.0).sum(axis=1) <= 1).all())


@dataclass(frozen=True)
class ColumnTable:
    """The table of two nested terms, with a third term whose groups are its columns.

    Attributes
    ----------
    table : of the two terms
    column : position of the third term among the three
    """

    table: NestedTable
    column: int

    @property
    def n(self) -> int:
        """Number of scores."""
        return self.table.n

    @property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return 3

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return self.table.n_fixed

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of groups of the terms."""
        of_table, at = self.table.sizes, self.column
        return (*of_table[:at], len(self.table.levels), *of_table[at:])

    @property
    def XX(self) -> FloatArray:
        """Cross-products of the columns of X."""
        return self.table.XX

    @property
    def Xy(self) -> FloatArray:
        """Cross-products of the columns of X with y."""
        return self.table.Xy

    @property
    def yy(self) -> float:
        """Sum of squares of y."""
        return self.table.yy

    @property
    def _others(self) -> list[int]:
        """Positions of the two terms of the table among the three."""
        return [t for t in range(3) if t != self.column]

    def group_sums(self) -> GroupSums:
        """Return the sums over groups and pairs of groups, for analysis of variance."""
        known, c, outer = self.table.group_sums(), self.column, self.table.outer
        n, others = self.table.counts, self._others
        a, b = others[outer], others[1 - outer]
        of_columns, sums = n.sum(axis=0), np.einsum("qm,qm->m", n, self.table.means)
        shared = np.einsum("qm,qm->m", n, n)
        coefficients, inverse = np.full((3, 3), float(self.n)), np.ones((3, 4))
        coefficients[np.ix_(others, others)] = known.coefficients
        inverse[np.ix_(others, [*others, 3])] = known.inverse_n
        coefficients[a, c], inverse[a, c] = coefficients[a, b], inverse[a, b]
        coefficients[c, [a, b]] = (shared / of_columns).sum()
        inverse[c, [a, b]] = np.mean(shared / of_columns**2)
        inverse[c, 3] = np.mean(1.0 / of_columns)
        return GroupSums(
            n=self.n,
            total=known.total,
            yy=self.yy,
            sizes=self.sizes,
            parts=np.insert(known.parts, c, (sums * sums / of_columns).sum()),
            holds=np.eye(5),
            coefficients=coefficients,
            squares=np.array([self.group_squares(t) for t in range(3)]),
            inverse_n=inverse,
            finer=np.array([[self.is_finer(t, u) for u in range(3)] for t in range(3)]),
        )

    def group_squares(self, term: int) -> float:
        """Return Σ_g n_g² over the groups of a term."""
        if term != self.column:
            return self.table.group_squares(self._others.index(term))
        n = self.table.counts.sum(axis=0)
        return float(n @ n)

    def is_finer(self, t: int, u: int) -> bool:
        """Whether every group of term t lies within one group of term u."""
        filled, others = self.table.counts > 0.0, self._others
        if self.column not in (t, u):
            return self.table.is_finer(others.index(t), others.index(u))
        if t == u or t == others[1 - self.table.outer]:
            return True
        return bool((filled.sum(axis=0 if t == self.column else 1) <= 1).all())

    @property
    def with_indicators(self) -> NestedTable:
        """The table with an indicator of each of its columns in X too."""
        levels = self.table.levels
        return replace(self.table, levels=np.hstack([levels, np.eye(len(levels))]))

    def with_response(self, chunk: Chunk) -> ColumnTable:
        """Return the same cells with another response of the same rows."""
        return replace(self, table=self.table.with_response(_without_term(chunk, self.column)))

    def recombined(self, columns: FloatArray) -> ColumnTable:
        """Return the table of other columns in place of y and X, as of :class:`NestedTable`."""
        return replace(self, table=self.table.recombined(columns))


def _without_term(chunk: Chunk, at: int) -> Chunk:
    return replace(chunk, terms=(*chunk.terms[:at], *chunk.terms[at + 1 :]))


def find_column_table(chunk: Chunk) -> ColumnTable | None:
    """Return the table of two nested terms and one of its columns; None for other designs.

    Parameters
    ----------
    chunk : the rows, or cells that hold several of them
    """
    if len(chunk.terms) != 3:
        return None
    facets = [frozenset(term.facets) for term in chunk.terms]
    inner = max(range(3), key=lambda t: len(facets[t]))
    for at in (t for t in range(3) if t != inner and len(facets[t]) == 1):
        (outer,) = (t for t in range(3) if t not in (at, inner))
        (facet,) = facets[at]
        if facets[inner] - facets[outer] != {facet}:
            continue
        if chunk.sizes[at] != chunk.facet_sizes[facet]:
            continue
        table = find_nested_table(_without_term(chunk, at))
        if table is not None:
            return ColumnTable(table, at)
    return None


def find_nested_table(chunk: Chunk) -> NestedTable | None:
    """Return the table of two nested terms; None for other designs.

    Parameters
    ----------
    chunk : the rows, or cells that hold several of them
    """
    if len(chunk.terms) != 2 or chunk.weights is not None:
        return None
    if chunk.blocks is not None or chunk.residual_codes is not None or not chunk.n_fixed:
        return None
    facets = [frozenset(term.facets) for term in chunk.terms]
    outer = 0 if facets[0] < facets[1] else 1
    own = facets[1 - outer] - facets[outer]
    if not facets[outer] < facets[1 - outer] or len(own) != 1:
        return None
    (facet,) = own
    q, m, groups = chunk.sizes[outer], chunk.facet_sizes[facet], chunk.sizes[1 - outer]
    if m > min(MOST_COLUMNS, q) or groups < LEAST_FILLED * q * m:
        return None
    level = chunk.level_codes(facet)
    levels = _rows_of_levels(chunk, level, m)
    if levels is None or (chunk.within is not None and chunk.within[1:].any()):
        return None
    inner, of_outer = chunk.codes[1 - outer], chunk.codes[outer]
    cells = np.zeros(groups, dtype=np.int64)
    cells[inner] = of_outer.astype(np.int64) * m + level
    flat = np.zeros(q * m)
    flat[cells] = np.bincount(inner, weights=chunk.counts, minlength=groups)
    counts = flat.reshape(q, m)
    means, within = _moments(chunk, inner, cells, counts)
    return NestedTable(chunk.n, outer, counts, means, within, levels, cells)


def _rows_of_levels(chunk: Chunk, level: IntArray, size: int) -> FloatArray | None:
    """Return the row of X of each level, (m, p); None if it varies within a level."""
    first = np.zeros(size, dtype=np.int64)
    first[level[::-1]] = np.arange(level.size - 1, -1, -1)
    columns = chunk.columns
    rows = columns[first]
    if isinstance(columns, MixedColumns):
        place = columns.sparse_levels()
        if place is None or (place != place[first][level]).any():
            return None
        dense, of_levels = columns.dense, columns.dense[first]
    else:
        dense, of_levels = columns, columns[first]
    for part in slices(level.size, _ROWS):
        if (dense[part] != of_levels[level[part]]).any():
            return None
    return rows.toarray() if isinstance(rows, MixedColumns) else np.array(rows)


def _moments(
    chunk: Chunk, inner: IntArray, cells: LongArray, counts: FloatArray
) -> tuple[FloatArray, float]:
    """Return the means of y in the cells, (q, m), and its sum of squares within them."""
    y, times = chunk.y, chunk.counts
    within = 0.0 if chunk.within is None else float(chunk.within[0, 0])
    means = np.zeros(counts.size)
    sums = group_sums(inner, (y if times is None else y * times)[:, None], cells.size)[:, 0]
    means[cells] = of_group = sums / counts.ravel()[cells]
    if inner.size > cells.size:
        y -= of_group[inner]
        within += float(y @ y if times is None else (y * times) @ y)
    return means.reshape(counts.shape), within
