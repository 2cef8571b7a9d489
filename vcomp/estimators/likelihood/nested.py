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
nothing cancels. An evaluation costs O(groups), whatever the depth. ``stacked_strata`` is
the same recursion for many data sets at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.estimators.likelihood.totals import Forms
from vcomp.statistics import GroupedColumns, Remainder

# Vectors are summed in batches of this many values, whose temporary arrays fit into the cache.
_BATCH_VALUES = 32_768

_MANY_COLUMNS = 8
"""Smallest number of columns at which a matrix product is faster, although it copies them."""

_TIMES_AS_MANY = 4
"""Vectors per column and group above which fewer with the same products replace them."""


@dataclass(frozen=True, slots=True)
class _Level:
    """The groups of one level at given components."""

    A: FloatArray
    a: FloatArray
    shrink: FloatArray  # 1 + c A


class NestedCovariance:
    """Forms of V⁻¹ of nested groups; implements ``engine.Covariance``.

    Parameters
    ----------
    remainder : the groupings, nested in each other
    columns : means of the columns in the innermost groups, and their squares within them
    """

    def __init__(self, remainder: Remainder, columns: GroupedColumns) -> None:
        assert remainder.parents is not None
        self._parents: tuple[IntArray, ...] = remainder.parents
        self._starts = [np.flatnonzero(np.diff(p, prepend=-1)) for p in self._parents]
        self._n = remainder.tables.group_n[-1]
        (self._means,) = columns.means
        fewer = _fewer_vectors(columns)
        groups, b, vectors = fewer.shape
        step = max(1, _BATCH_VALUES // max(1, groups * b))
        self._batches = [fewer[:, :, i : i + step] for i in range(0, vectors, step)]
        self._within = columns.within
        self._depth = len(self._parents)

    def log_det_and_gram(self, c: FloatArray) -> tuple[float, FloatArray]:
        """Return log|V| and B'V⁻¹B."""
        tree = self._eliminate(c)
        gram = self._within / c[-1]
        for batch in self._batches:
            gram = gram + self._gram(tree, self._means_above(tree, self._depth, batch))
        return self._log_det(tree, c), gram

    def forms(self, c: FloatArray) -> Forms:
        """Return all forms at components `c`."""
        tree = self._eliminate(c)
        traces, squares = self._traces_and_squares(tree, c)
        size, b, s2 = self._depth + 2, self._within.shape[0], c[-1]
        gram = self._within / s2
        first, second = np.zeros((size, b, b)), np.zeros((size, size, b, b))
        first[-1], second[-1, -1] = gram / s2, gram / s2 / s2
        for batch in self._batches:
            means = self._means_above(tree, self._depth, batch)
            gram = gram + self._gram(tree, means)
            self._add_quadratics(first, second, tree, means, c)
        return Forms(self._log_det(tree, c), traces, squares, gram, first, second)

    def squares_of(self, c: FloatArray, weights: FloatArray) -> FloatArray:
        """Return r'V⁻¹K_l V⁻¹r of the column r = B `weights`, (L + 1,)."""
        tree, squares = self._eliminate(c), np.zeros(self._depth + 2)
        squares[-1] = weights @ self._within @ weights
        for batch in self._batches:
            means = np.tensordot(batch, weights, (1, 0))[:, None]
            delta = self._deviations(tree, self._means_above(tree, self._depth, means))
            for depth, (level, away) in enumerate(zip(tree, delta, strict=True)):
                sums = _times(level.a, away)
                squares[depth] += np.vdot(sums, sums)
            rest = _times(1.0 / tree[-1].shrink, delta[-1])
            squares[-1] += np.vdot(_times(self._n, rest), rest)
        squares[-1] /= c[-1] ** 2
        return squares

    def projections(self, c: FloatArray) -> tuple[FloatArray, ...]:
        """Return Z_l'V⁻¹B of every grouping, (q_l, b, r)."""
        tree = self._eliminate(c)
        means = self._means_above(tree, self._depth, self._means)
        return tuple(
            _times(s.a, d) for s, d in zip(tree, self._deviations(tree, means), strict=True)
        )

    def project(self, c: FloatArray, means: FloatArray) -> tuple[list[FloatArray], FloatArray]:
        """Return Z_l'V⁻¹x of each grouping, and the predictions μ of the innermost groups.

        With them V⁻¹x = (x − μ)/c_e.

        Parameters
        ----------
        c : components
        means : (q, b, r) means of columns x in the innermost groups
        """
        tree = self._eliminate(c)
        deviations = self._deviations(tree, self._means_above(tree, self._depth, means))
        sums = [_times(level.a, d) for level, d in zip(tree, deviations, strict=True)]
        return sums, means - _times(1.0 / tree[-1].shrink, deviations[-1])

    def spread(self, grouping: int, values: FloatArray) -> FloatArray:
        """Return values of the groups of a grouping, repeated for the innermost groups."""
        for parent in self._parents[grouping:]:
            values = values[parent]
        return values

    def unexplained(self, c: FloatArray, grouping: int, own: float, others: float) -> FloatArray:
        """Return 1 − own · diag(Z_l'V⁻¹Z_l) of one grouping, (q_l,), without a subtraction.

        The grouping after the innermost is that of single observations, which are equal within an
        innermost group: the result is then (q_L,).
        """
        tree = self._eliminate(c)
        used = self._used(tree, c)
        if grouping > self._depth:
            left_of_group = (c[-2] * tree[-1].A + used[-1]) / tree[-1].shrink
            return (self._n * others + own * left_of_group) / (self._n * c[-1])
        level = tree[grouping]
        return (1.0 + others * level.A + own * level.A * used[grouping]) / level.shrink

    def between(self, c: FloatArray, groupings: Sequence[int]) -> FloatArray:
        """Return Z'V⁻¹Z of the groups of some groupings, (q, q)."""
        tree, blocks = self._eliminate(c), {}
        for inner in groupings:
            away = self._again(tree, inner, np.eye(tree[inner].a.size)[:, :, None])
            for outer in groupings:
                if outer <= inner:
                    block = tree[outer].a[:, None] * away[outer][:, :, 0]
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
        levels = list(zip(self._eliminate(c), groups, weights[:-1], strict=True))
        for level, group, weight in reversed(levels):
            A = level.A[group]
            # If A equals the inner information, rounding may make the difference negative.
            outside = np.maximum(A - information, 0.0) / (information * A)
            rest += inside**2 * outside
            inside = (inside + weight * A) / level.shrink[group]
            information = level.a[group]
        return rest + inside**2 / information

    # The recursion ------------------------------------------------------------------------------

    def _eliminate(self, c: FloatArray) -> list[_Level]:
        """Return all levels, outermost first."""
        A = self._n / c[-1]
        levels = []
        for depth in range(self._depth, -1, -1):
            shrink = 1.0 + c[depth] * A
            levels.append(_Level(A, A / shrink, shrink))
            if depth:
                A = np.add.reduceat(levels[-1].a, self._starts[depth - 1])
        return levels[::-1]

    def _log_det(self, tree: list[_Level], c: FloatArray) -> float:
        total = self._n.sum() * np.log(c[-1])
        for depth, level in enumerate(tree):
            total += np.log1p(c[depth] * level.A).sum()
        return float(total)

    def _means_above(self, tree: list[_Level], depth: int, means: FloatArray) -> list[FloatArray]:
        """Return the weighted means of all levels, from the given means at level `depth`."""
        all_means = [means]
        for below in range(depth, 0, -1):
            weighted = _times(tree[below].a, all_means[-1])
            sums = np.add.reduceat(weighted, self._starts[below - 1], axis=0)
            all_means.append(_times(1.0 / tree[below - 1].A, sums))
        return all_means[::-1]

    def _deviations(self, tree: list[_Level], means: list[FloatArray]) -> list[FloatArray]:
        """Return δ of all levels that have means, eq. (3.7)."""
        deviations = [means[0]]
        for depth in range(1, len(means)):
            parent = self._parents[depth - 1]
            carried = _times(1.0 / tree[depth - 1].shrink, deviations[-1])
            deviations.append((means[depth] - means[depth - 1][parent]) + carried[parent])
        return deviations

    def _gram(self, tree: list[_Level], means: list[FloatArray]) -> FloatArray:
        """Return the part of the means in B'V⁻¹B."""
        total = _inner(_times(tree[0].a, means[0]), means[0])
        for depth in range(self._depth, 0, -1):
            away = means[depth] - means[depth - 1][self._parents[depth - 1]]
            total = total + _inner(_times(tree[depth].a, away), away)
        return total

    def _used(self, tree: list[_Level], c: FloatArray) -> list[FloatArray]:
        """Return 1 − κ of all levels, eq. (3.7)."""
        used = [np.zeros(1)]
        for depth in range(1, self._depth + 1):
            parent, above = self._parents[depth - 1], tree[depth - 1]
            share = (c[depth - 1] * above.A + used[-1]) / (above.shrink * above.A)
            used.append(tree[depth].a * share[parent])
        return used

    # Traces -------------------------------------------------------------------------------------

    def _traces_and_squares(
        self, tree: list[_Level], c: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return tr(V⁻¹K_l), eq. (3.8), and tr(V⁻¹K_l V⁻¹K_m), eq. (3.9)."""
        kappa = [np.ones(1)]
        dA, da = self._information_slopes(tree, c)
        size = self._depth + 2
        traces, squares = np.empty(size), np.empty((size, size))
        slope = np.zeros((1, size))  # of κ
        for depth, level in enumerate(tree):
            if depth:
                parent, above = self._parents[depth - 1], tree[depth - 1]
                A, a = above.A[parent], level.a
                x = a / A
                dx = (da[depth] - x[:, None] * dA[depth - 1][parent]) / A[:, None]
                y = (kappa[depth - 1] / above.shrink)[parent]
                kappa.append(((A - a) + a * y) / A)
                dy = self._left_slope(tree, kappa, dA, slope, depth - 1, c)[parent]
                slope = x[:, None] * dy - dx * (1.0 - y)[:, None]
            traces[depth] = level.a @ kappa[depth]
            squares[depth] = -(kappa[depth] @ da[depth] + level.a @ slope)
        singles = (self._n - 1.0) + kappa[-1] / tree[-1].shrink
        traces[-1] = singles.sum() / c[-1]
        squares[-1] = -self._left_slope(tree, kappa, dA, slope, self._depth, c).sum(axis=0) / c[-1]
        # For groups of one observation the general formula would cancel.
        scale = c[-1] * tree[-1].shrink
        squares[-1, -1] = (kappa[-1] / scale**2 - slope[:, -1] / scale).sum()
        squares[-1, -1] += (self._n - 1.0).sum() / c[-1] / c[-1]
        return traces, 0.5 * (squares + squares.T)

    def _information_slopes(
        self, tree: list[_Level], c: FloatArray
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the derivatives of A and a of all levels by the components."""
        dA = np.zeros((self._n.size, self._depth + 2))
        dA[:, -1] = -self._n / c[-1] / c[-1]
        found_A, found_a = [], []
        for depth in range(self._depth, -1, -1):
            level = tree[depth]
            da = dA / level.shrink[:, None] ** 2
            da[:, depth] -= level.a**2
            found_A.append(dA)
            found_a.append(da)
            if depth:
                dA = np.add.reduceat(da, self._starts[depth - 1], axis=0)
        return found_A[::-1], found_a[::-1]

    def _left_slope(
        self,
        tree: list[_Level],
        kappa: list[FloatArray],
        dA: list[FloatArray],
        slope: FloatArray,
        depth: int,
        c: FloatArray,
    ) -> FloatArray:
        """Return the derivatives of κ/(1 + cA) of one level, from those of its κ."""
        level = tree[depth]
        d_shrink = c[depth] * dA[depth]
        d_shrink[:, depth] += level.A
        left = kappa[depth] / level.shrink
        return (slope - left[:, None] * d_shrink) / level.shrink[:, None]

    # Quadratic forms ----------------------------------------------------------------------------

    def _add_quadratics(
        self,
        first: FloatArray,
        second: FloatArray,
        tree: list[_Level],
        means: list[FloatArray],
        c: FloatArray,
    ) -> None:
        """Add the part of the means in B'V⁻¹K_l V⁻¹B and B'V⁻¹K_l V⁻¹K_m V⁻¹B.

        K_m V⁻¹B is constant in the groups of level m: it is a column of its own with known means.
        """
        s2 = c[-1]
        delta = self._deviations(tree, means)
        sums = [_times(level.a, d) for level, d in zip(tree, delta, strict=True)]
        shrink = 1.0 / tree[-1].shrink
        # Deviations of the innermost means from their predictions.
        rest = _times(shrink, delta[-1])
        for depth, r in enumerate(sums):
            first[depth] += _inner(r, r)
            again = self._again(tree, depth, r)
            for above in range(depth + 1):
                product = _inner(sums[above], _times(tree[above].a, again[above]))
                second[above, depth] += product
                if above != depth:
                    second[depth, above] += product.T
        weighted = _times(self._n, rest)
        first[-1] += _inner(weighted, rest) / s2 / s2
        again = self._again(tree, self._depth, rest / s2)
        for depth, r in enumerate(sums):
            product = _inner(r, _times(tree[depth].a, again[depth]))
            second[depth, -1] += product
            second[-1, depth] += product.T
        twice = _times(shrink, again[-1])
        second[-1, -1] += _inner(weighted, twice) / s2 / s2

    def _again(self, tree: list[_Level], depth: int, values: FloatArray) -> list[FloatArray]:
        """Return δ of a column that is constant in the groups of one level."""
        return self._deviations(tree, self._means_above(tree, depth, values))


def _fewer_vectors(columns: GroupedColumns) -> FloatArray:
    """Return means (q, b, s) of fewer vectors with the same forms, if they are many.

    Forms are sums over vectors of products of two means of one vector, so that any means with the
    same products serve: those of a Cholesky factor.
    """
    (means,) = columns.means
    q, b, vectors = means.shape
    if means.size <= _BATCH_VALUES or vectors <= _TIMES_AS_MANY * q * b:
        return means
    try:
        factor = np.linalg.cholesky(columns.products_of_means)
    except np.linalg.LinAlgError:  # columns that depend on each other up to rounding
        return means
    return np.asarray(factor.reshape(q, b, q * b), dtype=np.float64)


def _times(weights: FloatArray, values: FloatArray) -> FloatArray:
    return weights[:, None, None] * values


def _inner(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the products of all pairs of columns, summed over groups and vectors."""
    if left.shape[1] == 1:
        return np.array([[np.vdot(left, right)]])
    b = left.shape[1]
    if b < _MANY_COLUMNS:  # tables are not copied
        return np.einsum("qbr,qdr->bd", left, right)
    flat = right.transpose(1, 0, 2).reshape(b, -1)
    return left.transpose(1, 0, 2).reshape(b, -1) @ flat.T
