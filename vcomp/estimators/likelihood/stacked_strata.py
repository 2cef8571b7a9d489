"""The likelihoods of many data sets with the same nested strata at once.

The recursion of ``nested`` and the sums of ``totals``, with an axis of data sets in front: all of
them have the groups of the first, and their own columns (docs/explanation/mathematics.md, eqs.
(3.3) to (3.9), (5.7) and (5.8)). Matrices are multiplied one data set at a time, so that no digit
depends on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.estimators.likelihood.stacked import each, inverses_or_nan
from vcomp.estimators.likelihood.stacked_climb import StackedDerivatives
from vcomp.statistics import StratumStatistics


@dataclass(frozen=True, slots=True, eq=False)
class _StackedStratum:
    """One stratum of B data sets.

    Attributes
    ----------
    M, multiplicity : coefficients (size, k + 1), eq. (3.2), and number of independent vectors
    places : (b,) positions of its columns in [y X]
    means, within : (B, q, b, r) means of the columns in innermost groups, and (B, b, b) their
        squares and products within them
    """

    M: FloatArray
    multiplicity: float
    places: LongArray
    means: FloatArray
    within: FloatArray

    def take(self, chosen: LongArray) -> _StackedStratum:
        """Return the stratum of some data sets."""
        return replace(self, means=self.means[chosen], within=self.within[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class _Eliminated:
    """The groups of one level: (B, q) information A before it is absorbed, a after, 1 + cA."""

    A: FloatArray
    a: FloatArray
    shrink: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _StackedForms:
    """The forms of one stratum, as ``engine.Forms``, of B data sets."""

    log_det: FloatArray
    traces: FloatArray
    squares: FloatArray
    gram: FloatArray
    first: FloatArray
    second: FloatArray


class StackedStrata:
    """Restricted or full log-likelihoods of data sets with the same nested strata.

    Parameters
    ----------
    stats : of the data sets; the groups of all are those of the first, which are nested
    reml : whether the likelihoods are the restricted ones
    """

    def __init__(self, stats: Sequence[StratumStatistics], *, reml: bool) -> None:
        whole, self.reml = stats[0], reml
        parents = whole.remainder.parents
        assert parents is not None
        self._parents: tuple[IntArray, ...] = parents
        self._starts = [np.flatnonzero(np.diff(p, prepend=-1)) for p in parents]
        self._n = whole.remainder.tables.group_n[-1]
        self.n_fixed = whole.n_fixed
        self.n = np.full(len(stats), float(whole.n))
        self.sizes = np.tile(np.array(whole.sizes, dtype=float), (len(stats), 1))
        self.XX = np.array([one.XX for one in stats])
        self._strata = [
            _StackedStratum(
                stratum.coefficients,
                float(stratum.multiplicity),
                np.array([0, *(1 + j for j in stratum.fixed)]),
                np.array([one.strata[s].columns.means[0] for one in stats]),
                np.array([one.strata[s].columns.within for one in stats]),
            )
            for s, stratum in enumerate(whole.strata)
        ]

    def __len__(self) -> int:
        return self.n.size

    def take(self, chosen: LongArray) -> StackedStrata:
        """Return the likelihoods of some data sets, also repeatedly."""
        made = object.__new__(StackedStrata)
        vars(made).update(vars(self))
        made.n, made.sizes, made.XX = self.n[chosen], self.sizes[chosen], self.XX[chosen]
        made._strata = [stratum.take(chosen) for stratum in self._strata]
        return made

    def derivatives(self, v: FloatArray) -> StackedDerivatives:
        """Return value, score and informations at (B, k + 1) components, the residual positive."""
        B, k1, b = len(v), v.shape[1], 1 + self.n_fixed
        log_det, traces, squares = np.zeros(B), np.zeros((B, k1)), np.zeros((B, k1, k1))
        gram, first = np.zeros((B, b, b)), np.zeros((B, k1, b, b))
        second = np.zeros((B, k1, k1, b, b))
        for stratum in self._strata:
            M, mult = stratum.M, stratum.multiplicity
            forms = self._forms(stratum, each(v, M.T))
            at, t = stratum.places, np.arange(k1)
            log_det += mult * forms.log_det
            traces += mult * each(forms.traces, M)
            squares += mult * (M.T @ forms.squares @ M)
            gram[:, at[:, None], at] += forms.gram
            n_at = at.size
            of_terms = (M.T @ forms.first.reshape(B, len(M), -1)).reshape(B, k1, n_at, n_at)
            first[:, t[:, None, None], at[:, None], at] += of_terms
            half = (M.T @ forms.second.reshape(B, len(M), -1)).reshape(B, k1, len(M), -1)
            of_pairs = (M.T @ half).reshape(B, k1, k1, n_at, n_at)
            second[:, t[:, None, None, None], t[:, None, None], at[:, None], at] += of_pairs
        return self._combined(log_det, traces, squares, gram, first, second)

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

    # One stratum --------------------------------------------------------------------------------

    def _forms(self, stratum: _StackedStratum, c: FloatArray) -> _StackedForms:
        """Return the forms at (B, size) components of the stratum."""
        tree, log_det = self._eliminate(c)
        traces, squares = self._traces_and_squares(tree, c)
        return _StackedForms(log_det, traces, squares, *self._quadratics(stratum, tree, c))

    def _eliminate(self, c: FloatArray) -> tuple[list[_Eliminated], FloatArray]:
        """Return all levels, outermost first, and log|V|."""
        A, levels = self._n / c[:, -1:], []
        log_det: FloatArray = self._n.sum() * np.log(c[:, -1])
        for depth in range(len(self._parents), -1, -1):
            inside = c[:, depth, None] * A
            log_det += np.log1p(inside).sum(axis=1)
            levels.append(_Eliminated(A, A / (1.0 + inside), 1.0 + inside))
            if depth:
                A = np.add.reduceat(levels[-1].a, self._starts[depth - 1], axis=1)
        return levels[::-1], log_det

    def _traces_and_squares(
        self, tree: list[_Eliminated], c: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return tr(V⁻¹K_l), eq. (3.8), and tr(V⁻¹K_l V⁻¹K_m), eq. (3.9)."""
        B, size = c.shape
        dA, da = self._information_slopes(tree, c)
        traces, squares = np.empty((B, size)), np.empty((B, size, size))
        kappa = left = np.ones((B, 1))
        slope = left_slope = np.zeros((B, 1, size))  # of κ, and of κ/(1 + cA), which is left
        for depth, level in enumerate(tree):
            if depth:
                parent, above = self._parents[depth - 1], tree[depth - 1]
                A = above.A[:, parent]
                x, y = level.a / A, left[:, parent]
                dx = (da[depth] - x[:, :, None] * dA[depth - 1][:, parent]) / A[:, :, None]
                kappa = ((A - level.a) + level.a * y) / A
                slope = x[:, :, None] * left_slope[:, parent] - dx * (1.0 - y)[:, :, None]
            traces[:, depth] = (level.a * kappa).sum(axis=1)
            squares[:, depth] = -_rows(kappa, da[depth]) - _rows(level.a, slope)
            left = kappa / level.shrink
            moved = c[:, depth, None, None] * dA[depth]
            moved[:, :, depth] += level.A
            left_slope = (slope - left[:, :, None] * moved) / level.shrink[:, :, None]
        s2, singles = c[:, -1], self._n - 1.0
        traces[:, -1] = (singles + left).sum(axis=1) / s2
        squares[:, -1] = -left_slope.sum(axis=1) / s2[:, None]
        # For groups of one observation the general formula would cancel.
        scale = s2[:, None] * tree[-1].shrink
        squares[:, -1, -1] = (kappa / scale**2 - slope[:, :, -1] / scale).sum(axis=1)
        squares[:, -1, -1] += singles.sum() / s2**2
        return traces, 0.5 * (squares + squares.swapaxes(1, 2))

    def _information_slopes(
        self, tree: list[_Eliminated], c: FloatArray
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the derivatives of A and a of all levels by the components, (B, q, size)."""
        dA = np.zeros((len(c), self._n.size, c.shape[1]))
        dA[:, :, -1] = -self._n / np.square(c[:, -1:])
        found_A, found_a = [], []
        for depth in range(len(tree) - 1, -1, -1):
            level = tree[depth]
            da = dA / np.square(level.shrink)[:, :, None]
            da[:, :, depth] -= np.square(level.a)
            found_A.append(dA)
            found_a.append(da)
            if depth:
                dA = np.add.reduceat(da, self._starts[depth - 1], axis=1)
        return found_A[::-1], found_a[::-1]

    def _quadratics(
        self, stratum: _StackedStratum, tree: list[_Eliminated], c: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return B'V⁻¹B, B'V⁻¹K_l V⁻¹B and B'V⁻¹K_l V⁻¹K_m V⁻¹B."""
        (B, size), b, depths = c.shape, stratum.within.shape[1], len(tree)
        s2 = c[:, -1, None, None]
        first, second = np.zeros((B, size, b, b)), np.zeros((B, size, size, b, b))
        gram = stratum.within / s2
        first[:, -1], second[:, -1, -1] = gram / s2, gram / s2**2
        means = self._means_above(tree, depths - 1, stratum.means)
        delta = self._deviations(tree, means)
        sums = [_times(level.a, d) for level, d in zip(tree, delta, strict=True)]
        for depth, level in enumerate(tree):
            away = means[depth]
            if depth:
                away = away - means[depth - 1][:, self._parents[depth - 1]]
            gram = gram + _products(_times(level.a, away), away)
        # Deviations of the innermost means from their predictions
        rest = _times(1.0 / tree[-1].shrink, delta[-1])
        weighted = rest * self._n[:, None, None]
        first[:, -1] += _products(weighted, rest) / s2**2
        columns = [*enumerate(sums), (depths - 1, rest / s2[..., None])]
        for place, (depth, values) in enumerate(columns):
            # K V⁻¹B is constant in the groups of its level: columns of known means.
            again = self._deviations(tree, self._means_above(tree, depth, values))
            for above in range(depth + 1):
                product = _products(sums[above], _times(tree[above].a, again[above]))
                second[:, above, place] = product
                second[:, place, above] = product.swapaxes(1, 2)
            if place < depths:
                first[:, place] = _products(values, values)
        twice = _times(1.0 / tree[-1].shrink, again[-1])
        second[:, -1, -1] += _products(weighted, twice) / s2**2
        return gram, first, second

    def _means_above(
        self, tree: list[_Eliminated], depth: int, means: FloatArray
    ) -> list[FloatArray]:
        """Return the weighted means of all levels, from the given means at level `depth`."""
        found = [means]
        for below in range(depth, 0, -1):
            weighted = _times(tree[below].a, found[-1])
            sums = np.add.reduceat(weighted, self._starts[below - 1], axis=1)
            found.append(_times(1.0 / tree[below - 1].A, sums))
        return found[::-1]

    def _deviations(self, tree: list[_Eliminated], means: list[FloatArray]) -> list[FloatArray]:
        """Return δ of all levels that have means, eq. (3.7)."""
        found = [means[0]]
        for depth in range(1, len(means)):
            parent = self._parents[depth - 1]
            carried = _times(1.0 / tree[depth - 1].shrink, found[-1]) - means[depth - 1]
            found.append(means[depth] + carried[:, parent])
        return found


def _rows(weights: FloatArray, values: FloatArray) -> FloatArray:
    """Return Σ_g w_g x_g of each data set, from (B, q) and (B, q, size)."""
    return (weights[:, None] @ values)[:, 0]


def _times(weights: FloatArray, values: FloatArray) -> FloatArray:
    return weights[:, :, None, None] * values


def _products(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the products of all pairs of columns, summed over groups and vectors, (B, b, b)."""
    B, b = left.shape[0], left.shape[2]
    one, other = (x.swapaxes(1, 2).reshape(B, b, -1) for x in (left, right))
    return one @ other.swapaxes(1, 2)
