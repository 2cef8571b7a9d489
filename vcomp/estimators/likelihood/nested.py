"""Covariance matrices of nested groups of any depth and size, by recursion over the groups.

V = Σ_l c_l Z_l Z_l' + c_e I, where the groups of level l lie within those of level l − 1 and level
0 is one group of everything. With V_g what the levels from l on make of V within group g of level
l, a_g = 1'V_g⁻¹1 and A_g = Σ a_h over its children h, eliminating the innermost level first gives

    a_g = A_g / (1 + c_l A_g),   log|V| = n log c_e + Σ_g log(1 + c_l A_g)
    y'V⁻¹y = Σ_h a_h (m_h − m_g)² + a_0 m_0²,   m_g = Σ a_h m_h / A_g

and going back inwards, with δ the deviation of a group from its prediction by the other groups,
and κ the fraction of its information that is left (1_g'V⁻¹1_g = a_g κ_g),

    δ_h = (m_h − m_g) + δ_g / (1 + c_l A_g),   κ_h = 1 − (a_h / A_g)(1 − κ_g / (1 + c_l A_g))

(docs/explanation/mathematics.md, eqs. (3.5) to (3.9)). Means are compared with means, so that
nothing cancels. An evaluation costs O(groups), whatever the depth.

The groups of all data sets follow each other along the last axis of all arrays, so that their
trees may differ. Sums over the groups of a data set, and products of matrices, are made for each
alone: no digit depends on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.totals import Forms
from vcomp.statistics import GroupedColumns, Remainder

_FEW_PRODUCTS = 16
"""Pairs of columns, times vectors, up to which products are summed without matrices."""

# Vectors are summed in batches of this many values, whose temporary arrays fit into the cache.
_BATCH_VALUES = 32_768

_TIMES_AS_MANY = 4
"""Vectors per column and group above which fewer with the same products replace them."""

_NOTHING = np.zeros(1)


@dataclass(frozen=True, eq=False)
class NestedGroups:
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
    def of(cls, remainders: Sequence[Remainder]) -> NestedGroups:
        """Return the groups of data sets with the same number of levels."""
        parents = [one.parents or () for one in remainders]
        sizes = np.array([[1, *(p.size for p in above)] for above in parents])
        return cls(
            np.concatenate([one.tables.group_n[-1] for one in remainders]),
            tuple(sizes.T),
            tuple(np.concatenate(level).astype(np.int64) for level in zip(*parents, strict=True)),
        )

    def take(self, chosen: LongArray) -> NestedGroups:
        """Return the groups of some data sets."""
        return NestedGroups(
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
        if self.sizes[0].size == 1:
            return list(self.above)
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
        if values.shape[-1] == 1:
            return values
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
            sums = pairs[:, :, :, 0]
            for k in range(1, r):  # one after the other: sum() has an order of its own
                sums += pairs[:, :, :, k]
            return self.totals(sums, depth).transpose(3, 0, 1, 2)

        # The order of sums in a product depends on strides, and on whether both are one array.
        if left is right:
            right = left.copy()

        def matrices(values: FloatArray, n: int) -> FloatArray:
            by_data = values.reshape(S, b, r, n, -1).transpose(3, 0, 1, 2, 4)
            return np.ascontiguousarray(by_data.reshape(n, S, b, -1))

        if self.are_equal[depth]:
            n = self.sizes[depth].size
            return matrices(left, n) @ matrices(right, n).swapaxes(2, 3)
        cuts = self.begins[depth][1:]
        parts = zip(np.split(left, cuts, axis=-1), np.split(right, cuts, axis=-1), strict=True)
        return np.concatenate([matrices(x, 1) @ matrices(y, 1).swapaxes(2, 3) for x, y in parts])


@dataclass(frozen=True, slots=True, eq=False)
class EliminatedLevel:
    """The groups of one level: information A before it is absorbed, a after, and 1 + cA.

    Their axes are (S, 1, 1, N), as those of columns and vectors are between strata and groups.
    """

    A: FloatArray
    a: FloatArray
    shrink: FloatArray


class EliminatedGroups:
    """Nested groups at given components, eliminated from the innermost outwards.

    Parameters
    ----------
    groups : of B data sets
    c : (L + 1, S, B) components of S covariance matrices, the residual last; (L + 1,) of one
    """

    def __init__(self, groups: NestedGroups, c: FloatArray) -> None:
        self.groups, self.last = groups, len(groups.above)
        self.c = c.reshape(self.last + 2, -1, 1, 1, groups.sizes[0].size)
        A = groups.n / groups.spread(self.c[-1], self.last)
        levels, log_det = [], groups.totals(groups.n, self.last) * np.log(self.c[-1])
        for depth in range(self.last, -1, -1):
            inside = groups.spread(self.c[depth], depth) * A
            log_det = log_det + groups.totals(np.log1p(inside), depth)
            levels.append(EliminatedLevel(A, A / (1.0 + inside), 1.0 + inside))
            if depth:
                A = groups.upward(levels[-1].a, depth)
        self.levels = levels[::-1]
        self.log_det: FloatArray = log_det[:, 0, 0].T  # (B, S)

    def of_strata(self, strata: LongArray) -> EliminatedGroups:
        """Return the covariance matrices of some strata."""
        some = object.__new__(EliminatedGroups)
        some.groups, some.c, some.last = self.groups, self.c[:, strata], self.last
        some.levels = [
            EliminatedLevel(*(x[strata] for x in (level.A, level.a, level.shrink)))
            for level in self.levels
        ]
        return some

    # Traces -------------------------------------------------------------------------------------

    def traces_and_squares(self, used: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Return tr(V⁻¹K_l), eq. (3.8), and tr(V⁻¹K_l V⁻¹K_m), eq. (3.9).

        Derivatives at a level are those by its component and the inner ones.

        Parameters
        ----------
        used : ascending positions of the m components that have forms, the residual last

        Returns
        -------
        (B, S, m) and (B, S, m, m)
        """
        groups, tree, s2 = self.groups, self.levels, self.c[-1]
        size, kappa = len(used), np.ones(s2.shape)
        dA, da = self._information_slopes(used)
        traces, squares = np.zeros((size, *s2.shape)), np.zeros((size, size, *s2.shape))
        slope, left = np.zeros((size, *s2.shape)), kappa  # slope of κ
        for depth, level in enumerate(tree):
            if depth:
                # Those of κ/(1 + cA), which is left
                moved = left * groups.spread(self.c[depth - 1], depth - 1) * dA[depth - 1]
                left_slope = (slope[-len(moved) :] - moved) / tree[depth - 1].shrink
                A = groups.downward(tree[depth - 1].A, depth)
                y = groups.downward(left, depth)
                x = level.a / A
                kappa = ((A - level.a) + level.a * y) / A
                slope = x * groups.downward(left_slope, depth)
                dx = da[depth] - x * groups.downward(dA[depth - 1], depth)
                dx *= (1.0 - y) / A
                slope -= dx
            if depth in used:
                own = used.index(depth)
                traces[own] = groups.totals(level.a * kappa, depth)
                both = kappa * da[depth]
                both += level.a * slope
                squares[own, own:] = squares[own:, own] = -groups.totals(both, depth)
            left = kappa / level.shrink
        singles = groups.n - 1.0
        traces[-1] = groups.totals(singles + left, self.last) / s2
        # For groups of one observation the general formula would cancel.
        scale = groups.spread(s2, self.last) * tree[-1].shrink
        squares[-1, -1] = groups.totals(kappa / scale**2 - slope[-1] / scale, self.last)
        squares[-1, -1] += groups.totals(singles, self.last) / s2**2
        return traces[:, :, 0, 0].transpose(2, 1, 0), squares[:, :, :, 0, 0].transpose(3, 2, 0, 1)

    def _information_slopes(
        self, used: Sequence[int]
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the derivatives of A by the inner components, and of a also by its own one."""
        groups, tree = self.groups, self.levels
        found_A, found_a = [], []
        dA = (-tree[-1].A / groups.spread(self.c[-1], self.last))[None]
        for depth in range(self.last, -1, -1):
            level = tree[depth]
            own = int(depth in used)
            da = np.empty((own + len(dA), *level.a.shape))
            da[:own] = -np.square(level.a)
            np.divide(dA, np.square(level.shrink), out=da[own:])
            found_A.append(dA)
            found_a.append(da)
            if depth:
                dA = groups.upward(da, depth)
        return found_A[::-1], found_a[::-1]

    # Quadratic forms ----------------------------------------------------------------------------

    def gram(self, away: list[FloatArray], within: FloatArray) -> FloatArray:
        """Return B'V⁻¹B, (B, S, b, b), from differences of means and products within groups."""
        total = within / self.c[-1].transpose(3, 0, 1, 2)
        for depth, (level, d) in enumerate(zip(self.levels, away, strict=True)):
            total = total + self.groups.products(level.a * d, d, depth)
        return total

    def quadratics(
        self, away: list[FloatArray], within: FloatArray, used: Sequence[int]
    ) -> tuple[FloatArray, FloatArray]:
        """Return B'V⁻¹K_l V⁻¹B and B'V⁻¹K_l V⁻¹K_m V⁻¹B.

        Parameters
        ----------
        away : differences of the means of all levels
        within : (B, S, b, b) products within the innermost groups
        used : ascending positions of the m components that have forms, the residual last

        Returns
        -------
        (B, S, m, b, b) and (B, S, m, m, b, b)
        """
        groups, tree, last = self.groups, self.levels, self.last
        s2, of_data = groups.spread(self.c[-1], last), self.c[-1].transpose(3, 0, 1, 2)
        (B, S, b, _), size = within.shape, len(used)
        first, second = np.zeros((B, S, size, b, b)), np.zeros((B, S, size, size, b, b))
        delta = self.deviations(away)
        sums = [level.a * d for level, d in zip(tree, delta, strict=True)]
        # Deviations of the innermost means from their predictions
        rest = delta[-1] / tree[-1].shrink
        weighted = groups.n / s2**2 * rest
        first[:, :, -1] = within / of_data**2 + groups.products(weighted, rest, last)
        for place, component in enumerate(used):
            # K V⁻¹B is constant in the groups of its level: columns of known means.
            depth = min(component, last)
            values = sums[depth]
            if component > last:
                values = rest / s2
            else:
                first[:, :, place] = groups.products(values, values, depth)
            again = self.deviations(self.differences(values, depth))
            for row, above in enumerate(used[: place + (component <= last)]):
                product = groups.products(sums[above], tree[above].a * again[above], above)
                second[:, :, row, place] = product
                second[:, :, place, row] = product.swapaxes(2, 3)
        own = groups.products(weighted, again[-1] / tree[-1].shrink, last)
        second[:, :, -1, -1] = within / of_data**3 + own
        return first, second

    def differences(self, means: FloatArray, depth: int) -> list[FloatArray]:
        """Return m_h − m_g, means less the weighted ones above, of the levels up to `depth`."""
        found = []
        for below in range(depth, 0, -1):
            sums = self.groups.upward(self.levels[below].a * means, below)
            above = sums / self.levels[below - 1].A
            found.append(means - self.groups.downward(above, below))
            means = above
        return [means, *found[::-1]]

    def deviations(self, away: list[FloatArray]) -> list[FloatArray]:
        """Return δ of all levels that have differences of means, eq. (3.7)."""
        found = away[:1]
        for depth in range(1, len(away)):
            carried = found[-1] / self.levels[depth - 1].shrink
            found.append(away[depth] + self.groups.downward(carried, depth))
        return found


class NestedCovariance:
    """Forms of V⁻¹ of nested groups; implements ``totals.Covariance``.

    Parameters
    ----------
    remainder : the groupings, nested in each other
    columns : means of the columns in the innermost groups, and their squares within them
    """

    def __init__(self, remainder: Remainder, columns: GroupedColumns) -> None:
        self._groups = NestedGroups.of([remainder])
        (self._means,) = columns.means
        fewer = fewer_vectors(columns)
        groups, b, vectors = fewer.shape
        step = max(1, _BATCH_VALUES // max(1, groups * b))
        # Groups are the last axis of all tables: sums over them are fast.
        self._batches = [
            np.ascontiguousarray(fewer[:, :, i : i + step].transpose(1, 2, 0))[None]
            for i in range(0, vectors, step)
        ]
        self._within = columns.within

    def log_det_and_gram(self, c: FloatArray) -> tuple[float, FloatArray]:
        """Return log|V| and B'V⁻¹B."""
        point = EliminatedGroups(self._groups, c)
        within, gram = self._within[None, None], _NOTHING
        for batch in self._batches:
            gram = gram + point.gram(point.differences(batch, point.last), within)
            within = np.zeros_like(within)
        return float(point.log_det[0, 0]), gram[0, 0]

    def forms(self, c: FloatArray) -> Forms:
        """Return all forms at components `c`."""
        point, used = EliminatedGroups(self._groups, c), range(c.size)
        traces, squares = point.traces_and_squares(used)
        within = self._within[None, None]
        gram = first = second = _NOTHING
        for batch in self._batches:
            away = point.differences(batch, point.last)
            gram = gram + point.gram(away, within)
            own_first, own_second = point.quadratics(away, within, used)
            first, second = first + own_first, second + own_second
            within = np.zeros_like(within)
        found = point.log_det, traces, squares, gram, first, second
        return Forms(*(x[0, 0] for x in found))

    def _solved(
        self, point: EliminatedGroups, means: FloatArray
    ) -> tuple[list[FloatArray], FloatArray]:
        """Return Z_l'V⁻¹x of each grouping (q_l, b, r), and means less their predictions.

        Parameters
        ----------
        point : the groups at some components
        means : (1, b, r, q) means of columns x in the innermost groups
        """
        delta = point.deviations(point.differences(means, point.last))
        sums = [level.a * d for level, d in zip(point.levels, delta, strict=True)]
        rest = delta[-1] / point.levels[-1].shrink
        return [x[0].transpose(2, 0, 1) for x in sums], rest[0].transpose(2, 0, 1)

    def squares_of(self, c: FloatArray, weights: FloatArray) -> FloatArray:
        """Return r'V⁻¹K_l V⁻¹r of the column r = B `weights`, (L + 1,)."""
        point, squares = EliminatedGroups(self._groups, c), np.zeros(c.size)
        squares[-1] = weights @ self._within @ weights
        for batch in self._batches:
            sums, rest = self._solved(point, np.tensordot(weights, batch, (0, 1))[:, None])
            squares[:-1] += [np.vdot(x, x) for x in sums]
            squares[-1] += np.vdot(self._groups.n[:, None, None] * rest, rest)
        squares[-1] /= c[-1] ** 2
        return squares

    def projections(self, c: FloatArray) -> tuple[FloatArray, ...]:
        """Return Z_l'V⁻¹B of every grouping, (q_l, b, r)."""
        point = EliminatedGroups(self._groups, c)
        return tuple(self._solved(point, self._means.transpose(1, 2, 0)[None])[0])

    def project(self, c: FloatArray, means: FloatArray) -> tuple[list[FloatArray], FloatArray]:
        """Return Z_l'V⁻¹x of each grouping, and the predictions μ of the innermost groups.

        With them V⁻¹x = (x − μ)/c_e.

        Parameters
        ----------
        c : components
        means : (q, b, r) means of columns x in the innermost groups
        """
        point = EliminatedGroups(self._groups, c)
        sums, rest = self._solved(point, means.transpose(1, 2, 0)[None])
        return sums, means - rest

    def spread(self, grouping: int, values: FloatArray) -> FloatArray:
        """Return values of the groups of a grouping, repeated for the innermost groups."""
        for parent in self._groups.parents[grouping:]:
            values = values[parent]
        return values

    def unexplained(self, c: FloatArray, grouping: int, own: float, others: float) -> FloatArray:
        """Return 1 − own · diag(Z_l'V⁻¹Z_l) of one grouping, (q_l,), without a subtraction.

        The grouping after the innermost is that of single observations, which are equal within an
        innermost group: the result is then (q_L,).
        """
        levels = EliminatedGroups(self._groups, c).levels
        used = np.zeros_like(levels[0].A)  # 1 − κ, eq. (3.7)
        for depth in range(1, min(grouping + 1, len(levels))):
            above = levels[depth - 1]
            share = (c[depth - 1] * above.A + used) / (above.shrink * above.A)
            used = levels[depth].a * self._groups.downward(share, depth)
        if grouping == len(levels):
            n, innermost = self._groups.n, levels[-1]
            left_of_group = (c[-2] * innermost.A + used) / innermost.shrink
            return ((n * others + own * left_of_group) / (n * c[-1])).ravel()
        level = levels[grouping]
        return ((1.0 + others * level.A + own * level.A * used) / level.shrink).ravel()

    def between(self, c: FloatArray, groupings: Sequence[int]) -> FloatArray:
        """Return Z'V⁻¹Z of the groups of some groupings, (q, q)."""
        point, blocks = EliminatedGroups(self._groups, c), {}
        for inner in groupings:
            indicators = np.eye(point.levels[inner].a.size)[None, None]
            away = point.deviations(point.differences(indicators, inner))
            for outer in groupings:
                if outer <= inner:
                    block = (point.levels[outer].a * away[outer])[0, 0].T
                    blocks[outer, inner], blocks[inner, outer] = block, block.T
        return np.block([[blocks[row, column] for column in groupings] for row in groupings])

    def path_forms(self, c: FloatArray, groups: LongArray, weights: FloatArray) -> FloatArray:
        """Return r'V⁻¹r of columns r = Σ_l w_l 1_g(l), their groups within one another, (m,).

        With L = 1'V_g⁻¹r of the part of r within a group, and R the part of r'V_g⁻¹r that is not
        due to the means, R grows by L² (1/a − 1/A) at each level outwards: nothing cancels.

        Parameters
        ----------
        c : components
        groups : (levels, m) the group at each level, outermost first; arbitrary if all weights
            from that level inwards are zero
        weights : (levels + 1, m) w, the last that of one observation of the innermost group
        """
        rest = np.zeros(weights.shape[1])
        inside, information = weights[-1] / c[-1], np.full(weights.shape[1], 1.0 / c[-1])
        levels = EliminatedGroups(self._groups, c).levels
        inwards = list(zip(levels, groups, weights[:-1], strict=True))
        for level, group, weight in reversed(inwards):
            A, a, shrink = (x.ravel()[group] for x in (level.A, level.a, level.shrink))
            # If A equals the inner information, rounding may make the difference negative.
            outside = np.maximum(A - information, 0.0) / (information * A)
            rest += inside**2 * outside
            inside = (inside + weight * A) / shrink
            information = a
        return rest + inside**2 / information


def fewer_vectors(columns: GroupedColumns) -> FloatArray:
    """Return means (q, b, s) of fewer vectors with the same forms, if they are many.

    Forms are sums over vectors of products of two means of one vector, so that any means with the
    same products serve: those of a Cholesky factor.
    """
    (means,) = columns.means
    q, b, vectors = means.shape
    if vectors <= _TIMES_AS_MANY * q * b:
        return means
    try:
        factor = np.linalg.cholesky(columns.products_of_means)
    except np.linalg.LinAlgError:  # columns that depend on each other up to rounding
        return means
    return np.asarray(factor.reshape(q, b, q * b), dtype=np.float64)
