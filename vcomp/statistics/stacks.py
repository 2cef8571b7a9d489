"""Sums of many small data sets of one model, with the largest term absorbed.

A likelihood needs, for W = [Z of the other terms, X] and y, the products of their columns, and the
sums of W and y in each group of the largest term. Groups with the same number n of rows enter by
the sum of their products only, so that a data set is a few matrices of the order of W, one for
each n (docs/explanation/mathematics.md, section 7.3). Groups without rows add nothing, so that
data sets without some levels keep the shape of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray


@dataclass(frozen=True, slots=True)
class StackLayout:
    """The columns of W: the terms but the absorbed one, then X.

    Attributes
    ----------
    sizes : numbers of groups of the terms
    lead : position of the absorbed term, the largest
    places : for each other term its columns
    n_fixed : number of columns of X
    """

    sizes: tuple[int, ...]
    lead: int
    places: dict[int, slice]
    n_fixed: int

    @classmethod
    def of(cls, sizes: Sequence[int], n_fixed: int) -> StackLayout:
        """Return the layout of terms with these numbers of groups."""
        return cls._of(max(range(len(sizes)), key=lambda t: sizes[t]), sizes, n_fixed)

    @classmethod
    def _of(cls, lead: int, sizes: Sequence[int], n_fixed: int) -> StackLayout:
        places, begin = {}, 0
        for t, size in enumerate(sizes):
            if t != lead:
                places[t] = slice(begin, begin + size)
                begin += size
        return cls(tuple(sizes), lead, places, n_fixed)

    def resized(self, sizes: Sequence[int]) -> StackLayout:
        """Return the layout of the same terms with other numbers of groups."""
        return StackLayout._of(self.lead, sizes, self.n_fixed)

    @property
    def width(self) -> int:
        """Number of columns of W."""
        return self.n_fixed + sum(self.sizes) - self.sizes[self.lead]


_FEW_CHANGED = 0.1
"""Share of the groups of the absorbed term whose sums are changed one by one."""


@dataclass(frozen=True, eq=False)
class StackTables:
    """Products of [W y] over some rows, and their sums in the groups of the absorbed term.

    Attributes
    ----------
    layout : of the columns
    n : number of rows
    products : (R + 1, R + 1) of W and y
    lead_n, lead : (q,) rows of each group of the absorbed term, or their weight, and (q, R + 1)
        sums in it
    whole : tables of all rows, if these rows are most of them
    """

    layout: StackLayout
    n: int
    products: FloatArray
    lead_n: FloatArray
    lead: FloatArray
    whole: StackTables | None = None

    @classmethod
    def of(
        cls,
        layout: StackLayout,
        codes: Sequence[IntArray],
        columns: FloatArray,
        weights: FloatArray | None = None,
    ) -> StackTables:
        """Return the sums over rows.

        Parameters
        ----------
        layout : of the columns
        codes : for each term the (n,) group of each row
        columns : (p + 1, n) X and y
        weights : (n,) of the rows; None if they count alike
        """
        q, last = layout.sizes[layout.lead], layout.width + 1
        groups = codes[layout.lead].astype(np.int64)
        begin = last - len(columns)
        lead, products = np.zeros((q, last)), np.zeros((last, last))
        weighted = columns if weights is None else columns * weights
        products[begin:, begin:] = weighted @ columns.T
        for c, column in enumerate(weighted):
            lead[:, begin + c] = np.bincount(groups, column, minlength=q)
        for t, at in layout.places.items():
            size = layout.sizes[t]
            joined = groups * size + codes[t]
            lead[:, at] = np.bincount(joined, weights, q * size).reshape(q, size)
            for c, column in enumerate(weighted):
                products[at, begin + c] = np.bincount(codes[t], column, minlength=size)
            products[begin:, at] = products[at, begin:].T
            for u, other_at in layout.places.items():
                if u <= t:
                    other = layout.sizes[u]
                    joined = codes[t].astype(np.int64) * other + codes[u]
                    pairs = np.bincount(joined, weights, size * other).reshape(size, other)
                    products[at, other_at], products[other_at, at] = pairs, pairs.T
        lead_n = np.bincount(groups, weights, q).astype(float)
        return cls(layout, columns.shape[1], products, lead_n, lead)

    def without(self, rows: StackTables) -> StackTables:
        """Return the sums without those of some of the rows."""
        return StackTables(
            self.layout,
            self.n - rows.n,
            self.products - rows.products,
            self.lead_n - rows.lead_n,
            self.lead - rows.lead,
            self,
        )

    @property
    def n_groups(self) -> tuple[int, ...]:
        """Numbers of groups of the terms that have rows."""
        has_rows = np.diagonal(self.products) > 0.0
        by_term = {t: has_rows[at] for t, at in self.layout.places.items()}
        by_term[self.layout.lead] = self.lead_n > 0.0
        return tuple(int(by_term[t].sum()) for t in range(len(by_term)))

    @cached_property
    def by_count(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Numbers of rows that groups have, how many have them, and Σ of their products."""
        if self.whole is not None:
            changed = np.flatnonzero(self.lead_n != self.whole.lead_n)
            if changed.size <= _FEW_CHANGED * self.lead_n.size:
                sums = self._changed(self.whole, changed)
                if sums is not None:
                    return sums
        order = np.argsort(self.lead_n, kind="stable")
        counts, starts = np.unique(self.lead_n[order], return_index=True)
        ends = [*starts[1:], order.size]
        lead = self.lead[order]
        parts = [lead[a:b] for a, b in zip(starts, ends, strict=True)]
        filled = counts > 0.0
        grams = np.array([x.T @ x for x, t in zip(parts, filled, strict=True) if t])
        numbers = np.array([len(x) for x, t in zip(parts, filled, strict=True) if t], dtype=float)
        return counts[filled], numbers, grams

    def _changed(
        self, whole: StackTables, changed: LongArray
    ) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Return `by_count` from that of all rows; None if there are new numbers of rows."""
        counts, numbers, grams = (part.copy() for part in whole.by_count)
        for tables, sign in ((whole, -1.0), (self, 1.0)):
            for group in changed:
                if tables.lead_n[group] > 0.0:
                    place = int(np.searchsorted(counts, tables.lead_n[group]))
                    if place == counts.size or counts[place] != tables.lead_n[group]:
                        return None
                    grams[place] += sign * np.outer(tables.lead[group], tables.lead[group])
                    numbers[place] += sign
        return counts, numbers, grams


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Sums of B data sets; arrays that all of them share have a first axis of length 1.

    Attributes
    ----------
    lead : position of the absorbed term
    blocks : (k, R) one for columns of W that belong to a term, else zero
    scale : (R,) numbers by which columns of W were divided: 1 for those of terms
    n : (B,) rows
    sizes : (B, k) groups of the terms that have rows
    whole, whole_y, yy : (B or 1, R, R) W'W, (B, R) W'y and (B,) y'y
    group_n, n_groups : (B or 1, d) numbers of rows that groups of the absorbed term have, and how
        many have them
    grams, grams_y, grams_yy : (B or 1, d, R, R), (B, d, R) and (B, d) products of the sums of W
        and y in groups, summed over the groups with that many rows
    """

    lead: int
    blocks: FloatArray
    scale: FloatArray
    n: FloatArray
    sizes: FloatArray
    whole: FloatArray
    whole_y: FloatArray
    yy: FloatArray
    group_n: FloatArray
    n_groups: FloatArray
    grams: FloatArray
    grams_y: FloatArray
    grams_yy: FloatArray

    def __len__(self) -> int:
        return int(self.yy.size)

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return int((self.blocks.sum(axis=0) == 0.0).sum())

    def take(self, chosen: LongArray) -> Stack:
        """Return some of the data sets, also repeatedly."""
        of_one = {"whole", "group_n", "n_groups", "grams"} if self.is_shared else set()
        names = {"n", "sizes", "whole", "whole_y", "yy", "group_n", "n_groups", "grams",
                 "grams_y", "grams_yy"}  # fmt: skip
        return replace(self, **{name: getattr(self, name)[chosen] for name in names - of_one})

    @property
    def is_shared(self) -> bool:
        """Whether the data sets differ in their response only."""
        return len(self.whole) == 1

    @classmethod
    def of(cls, tables: Sequence[StackTables], scale: FloatArray) -> Stack:
        """Return the data sets of several tables with the same layout.

        Parameters
        ----------
        tables : at least one
        scale : (p,) numbers by which the columns of X are divided
        """
        layout = tables[0].layout
        kept, blocks = _kept_columns(tables)
        R, B = blocks.shape[1], len(tables)
        factor = np.ones(R + 1)
        factor[R - layout.n_fixed : R] = 1.0 / scale
        outer = np.outer(factor, factor)
        parts = [table.by_count for table in tables]
        d = max(counts.size for counts, _, _ in parts)
        group_n, n_groups = np.zeros((2, B, d))
        grams, grams_y, grams_yy = np.zeros((B, d, R, R)), np.zeros((B, d, R)), np.zeros((B, d))
        whole, whole_y, yy = np.empty((B, R, R)), np.empty((B, R)), np.empty(B)
        for b, (table, (counts, numbers, gram)) in enumerate(zip(tables, parts, strict=True)):
            of_groups, of_rows = gram, table.products
            if layout.width > R or (kept[b] < 0).any():
                # A missing column is zero, as if its group had no rows.
                there = np.outer(kept[b] >= 0, kept[b] >= 0)
                of_groups = np.where(there, gram[:, kept[b][:, None], kept[b]], 0.0)
                of_rows = np.where(there, of_rows[np.ix_(kept[b], kept[b])], 0.0)
            some = slice(0, counts.size)
            group_n[b, some], n_groups[b, some] = counts, numbers
            np.multiply(of_groups[:, :-1, :-1], outer[:-1, :-1], out=grams[b, some])
            grams_y[b, some] = of_groups[:, :-1, -1] * factor[:-1]
            grams_yy[b, some] = of_groups[:, -1, -1]
            whole[b], yy[b] = of_rows[:-1, :-1] * outer[:-1, :-1], of_rows[-1, -1]
            whole_y[b] = of_rows[:-1, -1] * factor[:-1]
        return cls(
            lead=layout.lead,
            blocks=blocks,
            scale=1.0 / factor[:-1],
            n=np.array([table.n for table in tables], dtype=float),
            sizes=np.array([table.n_groups for table in tables], dtype=float),
            whole=whole,
            whole_y=whole_y,
            yy=yy,
            group_n=group_n,
            n_groups=n_groups,
            grams=grams,
            grams_y=grams_y,
            grams_yy=grams_yy,
        )

    def with_responses(
        self, tables: StackTables, products: FloatArray, lead: FloatArray, yy: FloatArray
    ) -> Stack:
        """Return data sets of the same rows with other responses; this stack has one.

        Parameters
        ----------
        tables : from which this stack was made, all of its columns
        products : (B, R) W'y
        lead : (B, q) sums of y in the groups of the absorbed term
        yy : (B,) y'y
        """
        B, d = len(yy), self.group_n.shape[1]
        grams_y, grams_yy = np.empty((B, d, self.scale.size)), np.empty((B, d))
        for c, count in enumerate(self.group_n[0]):
            own = tables.lead_n == count
            # One by one, so that the digits of a data set do not depend on the others.
            sums = (lead[:, None, own] @ tables.lead[own, :-1])[:, 0]
            grams_y[:, c] = sums / self.scale
            grams_yy[:, c] = np.square(lead[:, own]).sum(axis=1)
        return replace(
            self,
            n=np.repeat(self.n, B),
            sizes=np.repeat(self.sizes, B, axis=0),
            whole_y=products / self.scale,
            yy=yy,
            grams_y=grams_y,
            grams_yy=grams_yy,
        )


def _kept_columns(tables: Sequence[StackTables]) -> tuple[LongArray, FloatArray]:
    """Return for each table the columns of [W y] with rows, and the terms that they belong to.

    All tables have as many columns of a term as the one with most groups; missing ones are -1.
    """
    layout = tables[0].layout
    filled = np.array([np.diagonal(table.products) > 0.0 for table in tables])
    kept, blocks = [], []
    for t, at in layout.places.items():
        width = int(filled[:, at].sum(axis=1).max())
        part = np.full((len(tables), width), -1)
        for row, own in zip(part, filled[:, at], strict=True):
            columns = np.flatnonzero(own)
            row[: columns.size] = at.start + columns
        kept.append(part)
        block = np.zeros((len(layout.sizes), width))
        block[t] = 1.0
        blocks.append(block)
    rest = np.arange(layout.width - layout.n_fixed, layout.width + 1)
    kept.append(np.broadcast_to(rest, (len(tables), rest.size)))
    blocks.append(np.zeros((len(layout.sizes), layout.n_fixed)))
    return np.concatenate(kept, axis=1), np.concatenate(blocks, axis=1)
