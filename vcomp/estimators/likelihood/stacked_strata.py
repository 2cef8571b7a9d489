"""The likelihoods of many data sets with nested strata at once.

The recursion of ``nested`` and the sums of ``totals`` (docs/explanation/mathematics.md, eqs. (3.3)
to (3.9), (5.7) and (5.8)). The groups of all data sets follow each other along the last axis of
all arrays, so that their trees may differ. Sums over the groups of a data set, and products of
matrices, are made for each alone: no digit depends on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.stacked import StackedDerivatives, each, inverses_or_nan
from vcomp.statistics import StratumStatistics

_FEW_PRODUCTS = 16
"""Pairs of columns, times vectors, up to which products are summed without matrices."""


@dataclass(frozen=True, eq=False)
class _Trees:
    """The nested groups of B data sets, one data set after the other at each level.

    Attributes
    ----------
    n : (N,) observations of the innermost groups
    sizes : for each level, the outermost first, the (B,) numbers of groups
    above : for each level but the first, the position of the group above in its data set
    """

    n: FloatArray
    sizes: tuple[LongArray, ...]
    above: tuple[LongArray, ...]

    @classmethod
    def of(cls, stats: Sequence[StratumStatistics]) -> _Trees:
        """Return the groups of data sets with the same number of levels."""
        parents = [one.remainder.parents or () for one in stats]
        sizes = np.array([[1, *(p.size for p in above)] for above in parents])
        return cls(
            np.concatenate([one.remainder.tables.group_n[-1] for one in stats]),
            tuple(sizes.T),
            tuple(np.concatenate(level).astype(np.int64) for level in zip(*parents, strict=True)),
        )

    def take(self, chosen: LongArray) -> _Trees:
        """Return the groups of some data sets."""
        return _Trees(
            self.n[self.places(-1, chosen)],
            tuple(size[chosen] for size in self.sizes),
            tuple(above[self.places(d, chosen)] for d, above in enumerate(self.above, start=1)),
        )

    def places(self, depth: int, chosen: LongArray) -> LongArray:
        """Return the positions of the groups of some data sets at a level."""
        n = self.sizes[depth][chosen]
        first = self.begins[depth][chosen] - (np.cumsum(n) - n)
        return np.arange(n.sum()) + np.repeat(first, n)

    @cached_property
    def begins(self) -> list[LongArray]:
        """For each level the first group of each data set."""
        return [np.cumsum(size) - size for size in self.sizes]

    @cached_property
    def parents(self) -> list[LongArray]:
        """For each level but the first the position of the group above among all."""
        levels = zip(self.above, self.begins, self.sizes[1:], strict=False)
        return [above + np.repeat(begin, size) for above, begin, size in levels]

    @cached_property
    def starts(self) -> list[LongArray]:
        """For each level but the first where the groups within another one begin."""
        return [np.flatnonzero(np.diff(parent, prepend=-1)) for parent in self.parents]

    @cached_property
    def are_equal(self) -> list[bool]:
        """For each level whether all data sets have as many groups."""
        return [bool((size == size[0]).all()) for size in self.sizes]

    def spread(self, values: FloatArray, depth: int) -> FloatArray:
        """Return (..., B) values of data sets for each of their groups at a level."""
        return np.repeat(values, self.sizes[depth], axis=-1)

    def totals(self, values: FloatArray, depth: int) -> FloatArray:
        """Return the sums over all groups of a level, (..., B)."""
        sums: FloatArray = np.add.reduceat(values, self.begins[depth], axis=-1)
        return sums

    def upward(self, values: FloatArray, depth: int) -> FloatArray:
        """Return the sums over the groups of level `depth` within each of those above."""
        sums: FloatArray = np.add.reduceat(values, self.starts[depth - 1], axis=-1)
        return sums

    def downward(self, values: FloatArray, depth: int) -> FloatArray:
        """Return for the groups of level `depth` the values of those above."""
        return np.take(values, self.parents[depth - 1], axis=-1)

    def products(self, left: FloatArray, right: FloatArray, depth: int) -> FloatArray:
        """Return the products of columns, summed over groups and vectors, (B, S, b, b).

        Parameters
        ----------
        left, right : (S, b, r, N) values of the groups of level `depth`
        """
        S, b, r = left.shape[:3]
        if b * b * r <= _FEW_PRODUCTS:
            pairs = left[:, :, None] * right[:, None]
            # One after the other: the order of sum() depends on the number of groups.
            pairs = np.add.accumulate(pairs, axis=3)[:, :, :, -1]
            return np.moveaxis(self.totals(pairs, depth), -1, 0)

        # The order of sums in a product depends on strides, and on whether both are one array.
        if left is right:
            right = left.copy()

        def matrices(values: FloatArray, n: int) -> FloatArray:
            by_data = np.moveaxis(values.reshape(S, b, r, n, -1), 3, 0)
            return np.ascontiguousarray(by_data.reshape(n, S, b, -1))

        if self.are_equal[depth]:
            n = self.sizes[depth].size
            return matrices(left, n) @ matrices(right, n).swapaxes(2, 3)
        cuts = self.begins[depth][1:]
        parts = zip(np.split(left, cuts, axis=-1), np.split(right, cuts, axis=-1), strict=True)
        return np.concatenate([matrices(x, 1) @ matrices(y, 1).swapaxes(2, 3) for x, y in parts])


@dataclass(frozen=True, slots=True, eq=False)
class _StrataColumns:
    """The columns y and X of the strata that have the same ones.

    Attributes
    ----------
    strata : (S,) positions of these strata
    places : (b,) positions of the columns in [y X]
    means, within : (S, b, r, N) means in innermost groups, and (B, S, b, b) squares and products
        within them
    """

    strata: LongArray
    places: LongArray
    means: FloatArray
    within: FloatArray

    @classmethod
    def all_of(cls, stats: Sequence[StratumStatistics]) -> list[_StrataColumns]:
        """Return the columns of all strata."""
        fixed = [stratum.fixed for stratum in stats[0].strata]
        return [
            cls(
                np.array(strata),
                np.array([0, *(1 + j for j in columns)]),
                _joined([[_few_vectors(one.strata[s].columns.means[0]) for one in stats]
                         for s in strata]),
                np.array([[one.strata[s].columns.within for s in strata] for one in stats]),
            )
            for columns in dict.fromkeys(fixed)
            for strata in [[s for s, own in enumerate(fixed) if own == columns]]
        ]  # fmt: skip


def _few_vectors(means: FloatArray) -> FloatArray:
    """Return (q, b, r) means with fewer vectors of the same squares and products, if r > 2 q b."""
    q, b, r = means.shape
    if r <= 2 * q * b:
        return means
    factor: FloatArray = np.linalg.qr(means.reshape(q * b, r).T).R
    return factor.T.reshape(q, b, -1)


def _joined(tables: Sequence[Sequence[FloatArray]]) -> FloatArray:
    """Return the (q, b, r) tables of S strata and B data sets as one of (S, b, r, N)."""
    most = max(table.shape[2] for row in tables for table in row)
    sizes = np.array([len(table) for table in tables[0]])
    joined = np.zeros((len(tables), tables[0][0].shape[1], most, sizes.sum()))
    ends = np.cumsum(sizes)
    for into, row in zip(joined, tables, strict=True):
        for end, table in zip(ends, row, strict=True):
            into[:, : table.shape[2], end - len(table) : end] = table.transpose(1, 2, 0)
    return joined


@dataclass(frozen=True, slots=True, eq=False)
class _Eliminated:
    """The groups of one level: (S, N) information A before it is absorbed, a after, 1 + cA."""

    A: FloatArray
    a: FloatArray
    shrink: FloatArray

    def of_strata(self, strata: LongArray) -> _Eliminated:
        """Return those of some strata, with axes for columns and vectors."""
        return _Eliminated(*(x[strata, None, None] for x in (self.A, self.a, self.shrink)))


class StackedStrata:
    """Restricted or full log-likelihoods of data sets with nested strata.

    Parameters
    ----------
    stats : of the data sets, which have the same strata and levels; their groups may differ
    reml : whether the likelihoods are the restricted ones
    """

    def __init__(self, stats: Sequence[StratumStatistics], *, reml: bool) -> None:
        whole, self.reml = stats[0], reml
        self.n_fixed = whole.n_fixed
        self.n = np.array([float(one.n) for one in stats])
        self.sizes = np.array([one.sizes for one in stats], dtype=float)
        self.XX = np.array([one.XX for one in stats])
        self._trees, self._columns = _Trees.of(stats), _StrataColumns.all_of(stats)
        M = np.array([stratum.coefficients for stratum in whole.strata])
        # Levels that no term has are not components of any stratum.
        self._levels = np.flatnonzero(M.any(axis=(0, 2)))
        self._all_M, self._M = M, M[:, self._levels]
        self._pairs = self._M[:, :, None, :, None] * self._M[:, None, :, None, :]
        self._multiplicity = np.array([float(s.multiplicity) for s in whole.strata])

    def __len__(self) -> int:
        return self.n.size

    def take(self, chosen: LongArray) -> StackedStrata:
        """Return the likelihoods of some data sets, also repeatedly."""
        made = object.__new__(StackedStrata)
        vars(made).update(vars(self))
        made.n, made.sizes, made.XX = self.n[chosen], self.sizes[chosen], self.XX[chosen]
        places = self._trees.places(-1, chosen)
        made._trees = self._trees.take(chosen)
        made._columns = [
            replace(c, means=np.take(c.means, places, axis=-1), within=c.within[chosen])
            for c in self._columns
        ]
        return made

    def derivatives(self, v: FloatArray) -> StackedDerivatives:
        """Return value, score and informations at (B, k + 1) components, the residual positive."""
        (B, k1), b = v.shape, 1 + self.n_fixed
        of_strata = (self._all_M @ v[:, None, :, None])[..., 0]  # (B, S, size)
        c = np.ascontiguousarray(np.moveaxis(of_strata, (2, 1), (0, 1)))
        tree, log_det = self._eliminate(c)
        traces, squares = self._traces_and_squares(tree, c)
        mult = np.repeat(self._multiplicity, self._levels.size)
        total_traces = each(traces.reshape(B, -1) * mult, self._M.reshape(-1, k1))
        mult = np.repeat(mult, self._levels.size)
        pairs = self._pairs.reshape(mult.size, -1)
        total_squares = each(squares.reshape(B, -1) * mult, pairs).reshape(B, k1, k1)
        gram, first = np.zeros((B, b, b)), np.zeros((B, k1, b, b))
        second = np.zeros((B, k1, k1, b, b))
        for columns in self._columns:
            own_gram, own_first, own_second = self._quadratics(columns, tree, c[-1])
            at, some = columns.places, columns.strata
            rows, of_pairs = self._M[some].reshape(-1, k1), self._pairs[some].reshape(-1, k1 * k1)
            there = (..., at[:, None], at)
            gram[there] += np.ascontiguousarray(own_gram).sum(axis=1)
            of_terms = rows.T @ own_first.reshape(B, len(rows), -1)
            first[there] += of_terms.reshape(B, k1, at.size, at.size)
            of_both = of_pairs.T @ own_second.reshape(B, len(of_pairs), -1)
            second[there] += of_both.reshape(B, k1, k1, at.size, at.size)
        log_det = (log_det * self._multiplicity).sum(axis=1)
        return self._combined(log_det, total_traces, total_squares, gram, first, second)

    def _combined(
        self,
        log_det: FloatArray,
        traces: FloatArray,
        squares: FloatArray,
        gram: FloatArray,
        first: FloatArray,
        second: FloatArray,
    ) -> StackedDerivatives:
        """Return value, score and informations from the forms, as ``totals.Totals``."""
        inverse, log_fixed = inverses_or_nan(gram[:, 1:, 1:])
        beta = (inverse @ gram[:, 1:, :1])[:, :, 0]
        e = np.concatenate([np.ones((len(beta), 1)), -beta], axis=1)
        along = (first @ e[:, None, :, None])[..., 0]  # (B, k + 1, b)
        rss = ((gram @ e[:, :, None])[:, :, 0] * e).sum(axis=1)
        quadratics = (along * e[:, None]).sum(axis=2)
        mixed = along[:, :, 1:]
        moved = mixed @ inverse
        twice = ((second @ e[:, None, None, :, None])[..., 0] * e[:, None, None]).sum(axis=3)
        twice = twice - moved @ mixed.swapaxes(1, 2)
        degrees = self.n - self.n_fixed if self.reml else self.n
        deviance = log_det + rss + degrees * np.log(2.0 * np.pi)
        if self.reml:
            relative = inverse[:, None] @ first[:, :, 1:, 1:]
            traces = traces - np.trace(relative, axis1=2, axis2=3)
            weighted = second[..., 1:, 1:] * inverse[:, None, None]
            flat = relative.reshape(*traces.shape, -1)
            turned = relative.swapaxes(2, 3).reshape(*traces.shape, -1)
            squares = squares - 2.0 * weighted.reshape(*squares.shape, -1).sum(axis=3)
            squares = squares + flat @ turned.swapaxes(1, 2)
            deviance = deviance + log_fixed
        average = 0.25 * (twice + twice.swapaxes(1, 2))
        return StackedDerivatives(
            loglike=-0.5 * deviance,
            score=0.5 * (quadratics - traces),
            average=average,
            observed=2.0 * average - 0.5 * squares,
            beta=beta,
            slopes=-moved,
            scale_factor=rss / degrees,
        )

    # The forms of the strata ------------------------------------------------------------------

    def _eliminate(self, c: FloatArray) -> tuple[list[_Eliminated], FloatArray]:
        """Return all levels, outermost first, and (B, S) log|V|, at (size, S, B) components."""
        trees, levels = self._trees, []
        depths = len(trees.above)
        A = trees.n / trees.spread(c[-1], depths)
        log_det = trees.totals(trees.n, depths) * np.log(c[-1])
        for depth in range(depths, -1, -1):
            inside = trees.spread(c[depth], depth) * A
            log_det = log_det + trees.totals(np.log1p(inside), depth)
            levels.append(_Eliminated(A, A / (1.0 + inside), 1.0 + inside))
            if depth:
                A = trees.upward(levels[-1].a, depth)
        return levels[::-1], np.ascontiguousarray(log_det.T)

    def _traces_and_squares(
        self, tree: list[_Eliminated], c: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return tr(V⁻¹K_l), eq. (3.8), and tr(V⁻¹K_l V⁻¹K_m), eq. (3.9).

        Derivatives at a level are those by its component and the inner ones.
        """
        trees, last, s2 = self._trees, len(tree) - 1, c[-1]
        size, (_, S, B) = self._levels.size, c.shape
        dA, da = self._information_slopes(tree, c)
        traces, squares = np.zeros((size, S, B)), np.zeros((size, size, S, B))
        kappa = left = np.ones((S, B))
        slope = np.zeros((size, S, B))  # of κ
        for depth, level in enumerate(tree):
            own, inner = np.searchsorted(self._levels, [depth, depth + 1])
            if depth:
                # Those of κ/(1 + cA), which is left
                moved = left * trees.spread(c[depth - 1], depth - 1) * dA[depth - 1]
                left_slope = (slope[-len(moved) :] - moved) / tree[depth - 1].shrink
                A = trees.downward(tree[depth - 1].A, depth)
                y = trees.downward(left, depth)
                x = level.a / A
                kappa = ((A - level.a) + level.a * y) / A
                slope = x * trees.downward(left_slope, depth)
                dx = da[depth] - x * trees.downward(dA[depth - 1], depth)
                dx *= (1.0 - y) / A
                slope -= dx
            if own < inner:
                traces[own] = trees.totals(level.a * kappa, depth)
                both = kappa * da[depth]
                both += level.a * slope
                squares[own, own:] = squares[own:, own] = -trees.totals(both, depth)
            left = kappa / level.shrink
        singles = trees.n - 1.0
        traces[-1] = trees.totals(singles + left, last) / s2
        # For groups of one observation the general formula would cancel.
        scale = trees.spread(s2, last) * tree[-1].shrink
        squares[-1, -1] = trees.totals(kappa / scale**2 - slope[-1] / scale, last)
        squares[-1, -1] += trees.totals(singles, last) / s2**2
        return np.moveaxis(traces, (2, 1), (0, 1)), np.moveaxis(squares, (3, 2), (0, 1))

    def _information_slopes(
        self, tree: list[_Eliminated], c: FloatArray
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the derivatives of A by the inner components, and of a also by its own one."""
        trees, found_A, found_a = self._trees, [], []
        dA = (-tree[-1].A / trees.spread(c[-1], len(tree) - 1))[None]
        for depth in range(len(tree) - 1, -1, -1):
            level = tree[depth]
            own = int(depth in self._levels)
            da = np.empty((own + len(dA), *level.a.shape))
            da[:own] = -np.square(level.a)
            np.divide(dA, np.square(level.shrink), out=da[own:])
            found_A.append(dA)
            found_a.append(da)
            if depth:
                dA = trees.upward(da, depth)
        return found_A[::-1], found_a[::-1]

    def _quadratics(
        self, columns: _StrataColumns, tree: list[_Eliminated], s2: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return B'V⁻¹B, B'V⁻¹K_l V⁻¹B and B'V⁻¹K_l V⁻¹K_m V⁻¹B of strata, each for (B, S, …)."""
        trees, last = self._trees, len(tree) - 1
        tree, s2 = [level.of_strata(columns.strata) for level in tree], s2[columns.strata]
        n_s2 = trees.n / trees.spread(s2, last)[:, None, None] ** 2
        of_data = s2.T[:, :, None, None]
        gram = columns.within / of_data
        size, (B, S, b, _) = self._levels.size, gram.shape
        first, second = np.zeros((B, S, size, b, b)), np.zeros((B, S, size, size, b, b))
        first[:, :, -1], second[:, :, -1, -1] = gram / of_data, gram / of_data**2
        means = self._means_above(tree, last, columns.means)
        delta = self._deviations(tree, means)
        sums = [level.a * d for level, d in zip(tree, delta, strict=True)]
        for depth, level in enumerate(tree):
            away = means[depth]
            if depth:
                away = away - trees.downward(means[depth - 1], depth)
            gram = gram + trees.products(level.a * away, away, depth)
        # Deviations of the innermost means from their predictions
        rest = delta[-1] / tree[-1].shrink
        weighted = n_s2 * rest
        first[:, :, -1] += trees.products(weighted, rest, last)
        for place, component in enumerate(self._levels.tolist()):
            # K V⁻¹B is constant in the groups of its level: columns of known means.
            depth = min(component, last)
            values = sums[depth]
            if component > last:
                values = rest / trees.spread(s2, last)[:, None, None]
            else:
                first[:, :, place] = trees.products(values, values, depth)
            again = self._deviations(tree, self._means_above(tree, depth, values))
            for row, above in enumerate(self._levels[: place + (component <= last)]):
                product = trees.products(sums[above], tree[above].a * again[above], above)
                second[:, :, row, place] = product
                second[:, :, place, row] = product.swapaxes(2, 3)
        second[:, :, -1, -1] += trees.products(weighted, again[-1] / tree[-1].shrink, last)
        return gram, first, second

    def _means_above(
        self, tree: list[_Eliminated], depth: int, means: FloatArray
    ) -> list[FloatArray]:
        """Return the weighted means of all levels, from the given means at level `depth`."""
        found = [means]
        for below in range(depth, 0, -1):
            sums = self._trees.upward(tree[below].a * found[-1], below)
            found.append(sums / tree[below - 1].A)
        return found[::-1]

    def _deviations(self, tree: list[_Eliminated], means: list[FloatArray]) -> list[FloatArray]:
        """Return δ of all levels that have means, eq. (3.7)."""
        found = [means[0]]
        for depth in range(1, len(means)):
            carried = found[-1] / tree[depth - 1].shrink - means[depth - 1]
            deviation = self._trees.downward(carried, depth)
            deviation += means[depth]
            found.append(deviation)
        return found
