"""Orthogonal strata: the sufficient statistics of designs with fully crossed facets.

Every axis of the grid splits the space into its mean and its contrasts. With k axes there are 2^k
strata; in each of them the rows are independent vectors on the cells of the remaining facets, all
with the same covariance matrix:

    V_s = Σ_t σ²_t Π_f m_f(t, s) K_t + σ²_e I,   m_f = 1 if f ∈ t, else n_f in f's mean, 0 in its
                                                      contrasts

A stratum keeps sums over groups of cells, never the cells themselves. Sparse columns of X that one
factor has may follow an axis of the grid (:class:`AxisColumns`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import Chunk, Grid, TermDesign, find_combinations, number_combinations
from vcomp.formula import WIDE
from vcomp.numerics import MixedColumns, slices
from vcomp.statistics.cross_products import CrossProducts, joined_gram

_BLOCK = 2**20
"""Rows that are compared at once."""


def has_wide_factor(chunk: Chunk, least: int = WIDE.factor) -> bool:
    """Return whether the sparse columns of X are those of one factor with many levels."""
    columns = chunk.columns
    return (
        isinstance(columns, MixedColumns)
        and columns.sparse_at.size >= least
        and columns.sparse_levels() is not None
    )


@dataclass(frozen=True, slots=True)
class AxisColumns:
    """Sparse columns of X whose values depend on the level of one axis alone.

    They are zero in all strata but those of the mean and of the axis' contrasts, in which they are
    known without a table of their values in cells.

    Attributes
    ----------
    axis : position of the axis in the grid
    columns : the matrix that has them
    values : (n, s) their values at the levels of the axis
    """

    axis: int
    columns: MixedColumns
    values: FloatArray

    def without(self, chunk: Chunk) -> Chunk:
        """Return the rows with the dense columns alone, and the same response."""
        within = chunk.within
        if within is not None:
            kept = np.append(0, 1 + self.columns.dense_at)
            within = within[np.ix_(kept, kept)]
        plain = chunk if not isinstance(chunk.beta_origin, np.ndarray) else chunk.with_response(
            chunk.y
        )  # fmt: skip
        return replace(plain, columns=self.columns.dense, within=within)

    def added(
        self,
        split: Mapping[tuple[int, ...], GroupedColumns],
        present: Mapping[tuple[int, ...], Sequence[int]],
        shape: tuple[int, ...],
    ) -> tuple[dict[tuple[int, ...], GroupedColumns], dict[tuple[int, ...], list[int]]]:
        """Return the columns of every stratum with these, and which of [y X] each has.

        Parameters
        ----------
        split, present : the same of y and the dense columns, where all facets are axes
        shape : numbers of levels of the axes
        """
        place = np.append(0, 1 + self.columns.dense_at)
        mean = self.values.mean(axis=0)
        here = {
            (): np.sqrt(prod(shape)) * mean[:, None],
            (self.axis,): np.sqrt(prod(shape) / shape[self.axis]) * (self.values - mean).T,
        }
        every, of_strata = {}, {}
        for contrasts, grouped in split.items():
            at = place[present[contrasts]]
            if contrasts in here:
                grouped, at = _joined(grouped, at, here[contrasts], 1 + self.columns.sparse_at)
            every[contrasts], of_strata[contrasts] = grouped, at.tolist()
        return every, of_strata


def _joined(
    grouped: GroupedColumns, at: LongArray, values: FloatArray, sparse_at: LongArray
) -> tuple[GroupedColumns, LongArray]:
    """Return the columns with others that do not vary within cells, by positions in [y X]."""
    (means,) = grouped.means
    both = np.append(at, sparse_at)
    order = np.argsort(both)
    joined = np.concatenate([means, values[None]], axis=1)
    old = np.argsort(order)[: at.size]
    within = np.zeros((both.size, both.size))
    within[np.ix_(old, old)] = grouped.within
    return GroupedColumns((np.ascontiguousarray(joined[:, order]),), within), both[order]


def find_axis_columns(chunk: Chunk, grid: Grid) -> AxisColumns | None:
    """Return the sparse columns of X if they depend on one axis alone; None otherwise.

    Parameters
    ----------
    chunk : all rows, coded
    grid : the complete grid that they fill, all facets of it axes
    """
    columns = chunk.columns
    if not isinstance(columns, MixedColumns) or columns.sparse_at.size > WIDE.formed:
        return None
    levels = columns.sparse_levels()
    if levels is None or grid.n_cells > 1:
        return None
    for position, axis in enumerate(grid.axes):
        codes, size = chunk.level_codes(axis), grid.shape[position]
        row = np.empty(size, np.int64)
        for rows in slices(codes.size, _BLOCK):
            row[codes[rows]] = np.arange(rows.start, rows.stop)
        known, blocks = levels[row], slices(codes.size, _BLOCK)
        if all(np.array_equal(known[codes[rows]], levels[rows]) for rows in blocks):
            return AxisColumns(position, columns, columns.sparse[row].toarray())
    return None


@dataclass(frozen=True, slots=True)
class Remainder:
    """Groupings of the cells of the facets that are not axes, the same in every stratum.

    Attributes
    ----------
    tables : the groupings as terms of their own, coarsest first; the first has one group
    parents : for each grouping after the first the (q,) group of the one before that each of its
        groups lies in; None if the groupings are not nested in each other
    """

    tables: CrossProducts
    parents: tuple[IntArray, ...] | None

    @property
    def n(self) -> int:
        """Number of observations that one combination of axis levels has."""
        return self.tables.n

    @property
    def n_groupings(self) -> int:
        """Number of groupings; the position after the last is that of single observations."""
        return len(self.tables.group_n)


@dataclass(frozen=True)
class GroupedColumns:
    """Columns B of a stratum, b of them with r replicates, by groups of cells.

    If the groupings are nested, the means of the innermost suffice; otherwise those of each are
    needed.

    Attributes
    ----------
    means : for each grouping, or for the innermost only, (q, b, r) means of the columns in groups
    within : (b, b) sums over replicates of squares and products within the innermost groups, or
        within all observations together
    """

    means: tuple[FloatArray, ...]
    within: FloatArray

    def of_columns(self, kept: Sequence[int]) -> GroupedColumns:
        """Return some of the columns, given by ascending positions."""
        if len(kept) == len(self.within):
            return self  # with their known products
        means = tuple(np.ascontiguousarray(table[:, kept]) for table in self.means)
        return GroupedColumns(means, self.within[np.ix_(kept, kept)])

    @cached_property
    def products_of_means(self) -> FloatArray:
        """Products (q b, q b) of the means in the innermost groups, summed over replicates.

        They are computed once for all engines, since replicates may be millions.
        """
        means = self.means[-1]
        flat = means.reshape(means.shape[0] * means.shape[1], means.shape[2])
        return flat @ flat.T


@dataclass(frozen=True, slots=True)
class Stratum:
    """One stratum of the design.

    Attributes
    ----------
    contrasts : positions of the axes whose contrasts it contains; of the others it has the means
    multiplicity : Π (n_f − 1) over them, its number of independent vectors
    coefficients : (L + 1, k + 1) components of its covariance matrix (rows: groupings, then single
        observations) in terms of those of the model (columns, the residual last)
    fixed : the columns of X that are not zero in it
    columns : y and these columns
    """

    contrasts: tuple[int, ...]
    multiplicity: int
    coefficients: FloatArray
    fixed: tuple[int, ...]
    columns: GroupedColumns

    def recombined(self, columns: FloatArray) -> Stratum:
        """Return the stratum of other columns, without those that are zero in it.

        Parameters
        ----------
        columns : (1 + p, 1 + q) matrix that maps [y X] to them
        """
        here = columns[[0, *(1 + j for j in self.fixed)]]
        fixed = tuple(int(j) for j in np.flatnonzero(here[:, 1:].any(axis=0)))
        used = here[:, [0, *(1 + j for j in fixed)]]
        means = tuple(
            np.ascontiguousarray(np.einsum("qbr,bc->qcr", table, used))
            for table in self.columns.means
        )
        within = used.T @ self.columns.within @ used
        return replace(self, fixed=fixed, columns=GroupedColumns(means, within))


@dataclass(frozen=True, slots=True)
class Cells:
    """The columns y and X in the cells of the grid.

    Attributes
    ----------
    shape : numbers of levels of the axes
    n : (M,) rows of a cell for each combination of axis levels
    tables : for each column the (R, M) means of the cells, a (R, 1) table where it is constant
    within : (b, b) squares and products within cells
    """

    shape: tuple[int, ...]
    n: FloatArray
    tables: tuple[FloatArray, ...]
    within: FloatArray

    def of_columns(self, both: Sequence[int]) -> Cells:
        """Return some of the columns y and X, given by ascending positions."""
        tables = tuple(self.tables[j] for j in both)
        return replace(self, tables=tables, within=self.within[np.ix_(both, both)])

    @property
    def are_single(self) -> bool:
        """Whether every cell has one row."""
        return bool((self.n == 1.0).all())


@dataclass(frozen=True, slots=True)
class GroupPlaces:
    """The positions of the terms' groups in tables of axis levels by groups of cells.

    Attributes
    ----------
    terms, n_levels : the terms and the numbers of levels of the facets
    grid : axes and cells
    rank : (M,) place of each cell of the grid in the tables
    codes : for each grouping the (M,) group of the cells, in the tables' order
    of_term : for each term its grouping, or their number where its groups are single cells
    """

    terms: tuple[TermDesign, ...]
    n_levels: tuple[int, ...]
    grid: Grid
    rank: IntArray
    codes: tuple[IntArray, ...]
    of_term: tuple[int, ...]

    def places(self, term: int) -> LongArray:
        """Return for each group of a term its place: combinations of its axes, then groups."""
        sizes, combination, group, n = self._digits(term)
        return np.broadcast_to(combination * n + group, sizes).ravel()

    def at_places(self, term: int, parts: Sequence[FloatArray]) -> list[FloatArray]:
        """Return arrays by place in the order of a term's groups; no copies if they are in it.

        Parameters
        ----------
        term : its number
        parts : arrays of any shape with an element for each place, in order
        """
        facets = self.terms[term].facets
        axes = [axis for axis in self.grid.axes if axis in facets]
        if len(axes) == len(facets) and not self._group_of_cell(term).any():
            # Levels of the axes need no places, which are as many as the groups.
            shape, order = [self.n_levels[axis] for axis in axes], list(map(axes.index, facets))
            return [part.reshape(shape).transpose(order).ravel() for part in parts]
        _, combination, group, n = self._digits(term)
        ends = [i for i, size in enumerate(combination.shape) if size > 1]
        starts = [i for i, size in enumerate(group.shape) if size > 1]
        if (
            max(ends, default=-1) < min(starts, default=group.ndim)
            and parts[0].size == combination.size * n
            and all(
                np.array_equal(digit.ravel(), np.arange(size))
                for digit, size in ((combination, combination.size), (group, n))
            )
        ):
            return [part.ravel() for part in parts]
        places = self.places(term)
        return [part.ravel()[places] for part in parts]

    def _digits(self, term: int) -> tuple[list[int], LongArray, LongArray, int]:
        """Return the digits of the places of a term's groups.

        They are the shape of its groups, the combination of the axes' levels and the group of the
        cells (which broadcast to that shape), and the number of groups of cells.
        """
        design = self.terms[term]
        sizes = [self.n_levels[f] for f in design.facets]
        if any(keys is not None for keys in design.keys):
            sizes, codes = [design.size], list(design.level_codes(self.n_levels))
        else:  # all combinations occur: levels broadcast to them
            codes = list(np.ogrid[tuple(map(slice, sizes))])
        levels = dict(zip(design.facets, codes, strict=True))
        combination = np.zeros((1,) * len(sizes), dtype=np.int64)
        for axis, size in zip(self.grid.axes, self.grid.shape, strict=True):
            if axis in levels:
                combination = combination * size + levels[axis]
        group = self._group_of_cell(term)
        return sizes, combination, group[self._cell_of_group(levels)], int(group.max()) + 1

    def _group_of_cell(self, term: int) -> LongArray:
        """Return the group of each cell of the grid in a term's grouping."""
        if self.of_term[term] == len(self.codes):
            return self.rank.astype(np.int64)
        return self.codes[self.of_term[term]][self.rank].astype(np.int64)

    def _cell_of_group(self, levels: dict[int, LongArray]) -> LongArray:
        """Return for each group of a term a cell of the grid that holds its levels."""
        size, cells, groups = 1, np.zeros(self.grid.n_cells, np.int32), None
        for facet, codes in zip(self.grid.rest, self.grid.levels, strict=True):
            if facet not in levels:
                continue
            n = self.n_levels[facet]
            keys, cells = number_combinations(cells, size, codes, n)
            wanted = levels[facet] if groups is None else groups * n + levels[facet]
            groups = find_combinations(keys, wanted).astype(np.int64)
            size = keys.size
        if groups is None:
            return np.zeros(1, dtype=np.int64)
        first = np.zeros(size, dtype=np.int64)
        first[cells] = np.arange(cells.size)
        return first[groups]


@dataclass(frozen=True, slots=True)
class StratumStatistics:
    """All strata of a design, and their common structure.

    Attributes
    ----------
    n : number of rows
    sizes : numbers of groups of the terms
    shape : numbers of levels of the axes
    term_axes : for each term the positions of the axes in it
    term_groupings : for each term its grouping of the cells, ``n_groupings`` where its
        groups are single observations
    remainder : the groupings
    strata : the strata, by their contrasts
    XX, Xy, yy : cross-products over all rows
    layout : positions of the terms' groups
    cells : makes y and X in the cells anew; None if no term has single cells as groups
    by_level : whether the replicates of a stratum are the levels of its axes, as of data; drawn
        columns have another basis, in which effects have no levels
    """

    n: int
    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    term_axes: tuple[frozenset[int], ...]
    term_groupings: tuple[int, ...]
    remainder: Remainder
    strata: tuple[Stratum, ...]
    XX: FloatArray
    Xy: FloatArray
    yy: float
    layout: GroupPlaces
    cells: Callable[[], Cells] | None
    by_level: bool = True

    @property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return len(self.sizes)

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return int(self.XX.shape[0])

    def recombined(self, columns: FloatArray) -> StratumStatistics:
        """Return the statistics of other columns in place of y and X.

        Parameters
        ----------
        columns : (1 + p, 1 + q) matrix that maps [y X] to them
        """
        gram = columns.T @ joined_gram(self.XX, self.Xy, self.yy) @ columns
        return replace(
            self,
            strata=tuple(s.recombined(columns) for s in self.strata),
            XX=gram[1:, 1:],
            Xy=gram[1:, 0],
            yy=float(gram[0, 0]),
            # Predicted effects are made from the cells of these columns.
            cells=None,
        )

    def of_columns(self, kept: LongArray) -> StratumStatistics:
        """Return the statistics with some of the columns of X, given by ascending positions."""
        both, cells = [0, *(1 + kept)], self.cells
        restricted = self.recombined(np.eye(1 + self.n_fixed)[:, both])
        return replace(
            restricted, cells=None if cells is None else lambda: cells().of_columns(both)
        )

    def response_sums(self) -> tuple[float, float] | None:
        """Return the mean of y, and the sum of squares about it; None if digits would cancel."""
        group_n = self.remainder.tables.group_n
        of_means = next(s for s in self.strata if not s.contrasts)
        is_nested = self.remainder.parents is not None
        weights = group_n[-1 if is_nested else 0]
        means = of_means.columns.means[0][:, 0, 0]  # times √R, for R combinations of axis levels
        mean = float(weights @ means) / float(weights.sum())
        scaled = mean / np.sqrt(prod(self.shape))
        if not is_nested:
            away = self.n * scaled**2
            return (scaled, self.yy - away) if away <= 1e-3 * self.yy else None
        squares = float(weights @ np.square(means - mean))
        for stratum in self.strata:
            squares += float(stratum.columns.within[0, 0])
            if stratum is not of_means:
                y = stratum.columns.means[0][:, 0]
                squares += float(np.einsum("q,qr,qr->", weights, y, y))
        return scaled, squares

    def with_columns(self, columns: Sequence[GroupedColumns]) -> StratumStatistics:
        """Return the same strata with other columns in them: another y, and X in the same basis.

        The replicates of a stratum may be written in any orthonormal basis of its contrasts, and
        where y is its only column be as few as have the same squares and products.

        Parameters
        ----------
        columns : for each stratum; its remainder has to be nested
        """
        n = self.remainder.tables.group_n[-1]
        Xy, yy = np.zeros(self.n_fixed), 0.0
        for stratum, new in zip(self.strata, columns, strict=True):
            y = n[:, None] * new.means[0][:, 0]
            products = new.within[0] + np.einsum("qr,qbr->b", y, new.means[0])
            yy += float(products[0])
            Xy[list(stratum.fixed)] += products[1:]
        strata = tuple(
            replace(stratum, columns=new)
            for stratum, new in zip(self.strata, columns, strict=True)
        )
        return replace(self, strata=strata, Xy=Xy, yy=yy, cells=None, by_level=False)

    def of_terms(self, terms: Sequence[int]) -> StratumStatistics:
        """Return the strata of a model with some of the terms, given by ascending positions."""
        kept = [*terms, self.n_terms]
        return replace(
            self,
            sizes=tuple(self.sizes[t] for t in terms),
            term_axes=tuple(self.term_axes[t] for t in terms),
            term_groupings=tuple(self.term_groupings[t] for t in terms),
            strata=tuple(
                replace(s, coefficients=np.ascontiguousarray(s.coefficients[:, kept]))
                for s in self.strata
            ),
            layout=replace(
                self.layout,
                terms=tuple(self.layout.terms[t] for t in terms),
                of_term=tuple(self.layout.of_term[t] for t in terms),
            ),
        )

    def group_n(self, term: int) -> FloatArray:
        """Return the rows in the groups of a term for one combination of its axes' levels.

        Groups of single observations have equal sizes, and one element represents all.
        """
        outside = prod(n for f, n in enumerate(self.shape) if f not in self.term_axes[term])
        grouping = self.term_groupings[term]
        if grouping == self.remainder.n_groupings:
            return outside * np.ones(1)
        return outside * self.remainder.tables.group_n[grouping]

    def times(self, term: int) -> int:
        """Return how many groups of a term each element of :meth:`group_n` represents."""
        inside = prod(self.shape[f] for f in self.term_axes[term])
        is_single = self.term_groupings[term] == self.remainder.n_groupings
        return inside * (self.remainder.n if is_single else 1)

    def group_squares(self, term: int) -> float:
        """Return Σ_g n_g² over the groups of a term."""
        n = self.group_n(term)
        return float(self.times(term) * (n @ n))

    def is_finer(self, t: int, u: int) -> bool:
        """Whether every group of term t lies within one group of term u."""
        if not self.term_axes[u] <= self.term_axes[t]:
            return False
        a, b = self.term_groupings[t], self.term_groupings[u]
        single = self.remainder.n_groupings
        return a == single or (b != single and self.remainder.tables.is_finer(a, b))


def coefficients(
    shape: Sequence[int],
    term_axes: Sequence[frozenset[int]],
    term_groupings: Sequence[int],
    n_groupings: int,
    contrasts: frozenset[int],
) -> FloatArray:
    """Return the (L + 1, k + 1) coefficients of the model's components in those of a stratum."""
    matrix = np.zeros((n_groupings + 1, len(term_axes) + 1))
    for t, (axes, grouping) in enumerate(zip(term_axes, term_groupings, strict=True)):
        if contrasts <= axes:
            others = [n for f, n in enumerate(shape) if f not in axes]
            matrix[grouping, t] = float(np.prod(others, dtype=np.float64))
    matrix[n_groupings, -1] = 1.0
    return matrix
