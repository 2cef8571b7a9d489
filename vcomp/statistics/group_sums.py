"""What analysis of variance needs of the groups, whichever way the rows were summed.

With S_g and n_g the sum and the number of rows of group g of term t, and n_gh the rows that it
shares with group h of term u:

    T_t = Σ_g S_g²/n_g,   k_tu = Σ_g (1/n_g) Σ_h n_gh²,   1/n_tu = mean over g of Σ_h n_gh²/n_g²
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.kernels.pairs import squared_counts
from vcomp.statistics.cross_products import CrossProducts
from vcomp.statistics.strata import Stratum, StratumStatistics

__all__ = ["GroupSums", "group_sums", "resum_strata", "stratum_group_sums"]


@dataclass(frozen=True, slots=True)
class GroupSums:
    """Sums over the groups of the terms and over pairs of groups.

    Attributes
    ----------
    n : number of rows
    total, yy : sum and sum of squares of the centred response
    sizes : numbers of groups
    parts : (m,) sums of squares that T terms are made of; from strata those of disjoint spaces,
        so that a small difference of large T terms need not be one
    holds : (k + 2, m) which parts the T terms hold, then the total, then the mean
    coefficients : (k, k) k_tu, the expectation of T_t for a unit component of term u
    squares : (k,) Σ_g n_g²
    inverse_n : (k, k + 1) 1/n_tu: the share of component u in the variance of the mean of one
        group of t, averaged over groups (Brennan 2001, eq. 7.28); the residual is the last
    finer : (k, k) whether every group of term t lies within one group of term u
    """

    n: int
    total: float
    yy: float
    sizes: tuple[int, ...]
    parts: FloatArray
    holds: FloatArray
    coefficients: FloatArray
    squares: FloatArray
    inverse_n: FloatArray
    finer: BoolArray

    @property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return len(self.sizes)

    @property
    def T(self) -> FloatArray:
        """Uncorrected sums of squares of the group means, (k,)."""
        return self.holds[: self.n_terms] @ self.parts


def group_sums(stats: CrossProducts) -> GroupSums:
    """Return the sums of general cross-products."""
    k = stats.n_terms
    coefficients, inverse = np.empty((k, k)), np.empty((k, k + 1))
    for t, n in enumerate(stats.group_n):
        _note(coefficients, inverse, (t, t), np.square(n), n)
        inverse[t, k] = np.mean(1.0 / n)
    for (t, u), table in stats.pairs.items():
        by_row, by_col = squared_counts(table.indptr, table.indices, table.counts, table.n_cols)
        _note(coefficients, inverse, (t, u), by_row, stats.group_n[t])
        _note(coefficients, inverse, (u, t), by_col, stats.group_n[u])
    T = [(y * y / n).sum() for y, n in zip(stats.Zy, stats.group_n, strict=True)]
    total = float(stats.Zy[0].sum())
    return GroupSums(
        n=stats.n,
        total=total,
        yy=stats.yy,
        sizes=stats.sizes,
        parts=np.array([*T, stats.yy, total**2 / stats.n]),
        holds=np.eye(k + 2),
        coefficients=coefficients,
        squares=np.array([n @ n for n in stats.group_n]),
        inverse_n=inverse,
        finer=np.array([[stats.is_finer(t, u) for u in range(k)] for t in range(k)]),
    )


def _note(
    coefficients: FloatArray,
    inverse: FloatArray,
    place: tuple[int, int],
    shared: FloatArray,
    n: FloatArray,
) -> None:
    """Write down what Σ_h n_gh² of the groups of one term says, in their sizes n."""
    coefficients[place] = (shared / n).sum()
    inverse[place] = np.mean(shared / n**2)


def stratum_group_sums(stats: StratumStatistics) -> GroupSums:
    """Return the sums of a design with axes: products of the axes' sizes and few cells' sums."""
    k, shape = stats.n_terms, stats.shape
    coefficients, inverse = np.empty((k, k)), np.empty((k, k + 1))
    squares = np.empty(k)
    pairs = {(a, b) for a in stats.term_groupings for b in stats.term_groupings}
    meetings = {(a, b): _shared(stats, a, b) for a, b in pairs}
    for t, axes in enumerate(stats.term_axes):
        inside = prod(shape[f] for f in axes)
        outside = prod(n for f, n in enumerate(shape) if f not in axes)
        n = outside * _grouping_n(stats, stats.term_groupings[t])
        # Groups of single observations are all alike, and stand for as many as they are.
        times = inside * (stats.remainder.n if _is_single(stats, t) else 1)
        for u, others in enumerate(stats.term_axes):
            factor = prod(n_f for f, n_f in enumerate(shape) if f in others - axes)
            factor *= prod(n_f for f, n_f in enumerate(shape) if f not in axes | others) ** 2
            shared = factor * meetings[stats.term_groupings[t], stats.term_groupings[u]]
            coefficients[t, u] = times * (shared / n).sum()
            inverse[t, u] = np.mean(shared / n**2)
        inverse[t, k] = np.mean(1.0 / n)
        squares[t] = times * (n @ n)
    parts, holds = _parts(stats)
    return GroupSums(
        n=stats.n,
        total=_total(stats),
        yy=stats.yy,
        sizes=stats.sizes,
        parts=parts,
        holds=holds,
        coefficients=coefficients,
        squares=squares,
        inverse_n=inverse,
        finer=np.array([[stats.is_finer(t, u) for u in range(k)] for t in range(k)]),
    )


def resum_strata(known: GroupSums, stats: StratumStatistics) -> GroupSums:
    """Return the sums of strata with another response; what counts groups is as it was.

    Parameters
    ----------
    known : sums of the same strata with another response
    stats : the strata
    """
    return replace(known, total=_total(stats), yy=stats.yy, parts=_parts(stats)[0])


def _is_single(stats: StratumStatistics, term: int) -> bool:
    return stats.term_groupings[term] == stats.remainder.n_groupings


def _grouping_n(stats: StratumStatistics, grouping: int) -> FloatArray:
    """Return the observations in each group; of single observations one stands for all."""
    if grouping == stats.remainder.n_groupings:
        return np.ones(1)
    return stats.remainder.tables.group_n[grouping]


def _shared(stats: StratumStatistics, a: int, b: int) -> FloatArray:
    """Return Σ_h n_gh² for the groups g of one grouping and h of another."""
    single = stats.remainder.n_groupings
    if a == single:
        return np.ones(1)
    if b == single:
        return stats.remainder.tables.group_n[a]
    table = stats.remainder.tables.gram(a, b)
    shared: FloatArray = np.asarray(table.multiply(table).sum(axis=1)).ravel()
    return shared


def _parts(stats: StratumStatistics) -> tuple[FloatArray, FloatArray]:
    """Return sums of squares of disjoint spaces, and which the T terms, total and mean hold."""
    k, single = stats.n_terms, stats.remainder.n_groupings
    every = frozenset(range(len(stats.shape)))
    axes = [*stats.term_axes, every, frozenset()]
    groupings = [*stats.term_groupings, single, 0]
    nested = stats.remainder.parents is not None
    # Where groupings are nested, one holds the spaces of all that are coarser.
    of_grouping = np.tri(single + 1) if nested else np.eye(single + 1)
    parts, holds = [], []
    for stratum in stats.strata:
        parts.append(_nested_squares(stats, stratum) if nested else _squares(stats, stratum))
        rows = np.zeros((k + 2, single + 1))
        for row, (inside, grouping) in enumerate(zip(axes, groupings, strict=True)):
            if inside.issuperset(stratum.contrasts):
                rows[row] = of_grouping[grouping]
        holds.append(rows)
    return np.concatenate(parts), np.concatenate(holds, axis=1)


def _squares(stats: StratumStatistics, stratum: Stratum) -> FloatArray:
    """Return Σ n m² of the means of y in the groups of every grouping, and Σ y² as the last."""
    tables, columns = stats.remainder.tables, stratum.columns
    squares = [
        n @ np.square(means[:, 0]).sum(axis=1)
        for n, means in zip(tables.group_n, columns.means, strict=True)
    ]
    return np.array([*squares, columns.within[0, 0]])


def _nested_squares(stats: StratumStatistics, stratum: Stratum) -> FloatArray:
    """Return Σ n (m − M)² of the means of y about those of the next coarser groups.

    The first is of the means themselves, the last within the innermost groups.
    """
    group_n, parents = stats.remainder.tables.group_n, stats.remainder.parents or ()
    squares = np.empty(len(group_n) + 1)
    squares[-1] = stratum.columns.within[0, 0]
    means = stratum.columns.means[0][:, 0]
    for grouping in range(len(group_n) - 1, 0, -1):
        n, parent = group_n[grouping], parents[grouping - 1]
        starts = np.flatnonzero(np.diff(parent, prepend=-1))
        sums = np.add.reduceat(n[:, None] * means, starts, axis=0)
        coarser = sums / group_n[grouping - 1][:, None]
        squares[grouping] = n @ np.square(means - coarser[parent]).sum(axis=1)
        means = coarser
    squares[0] = group_n[0] @ np.square(means).sum(axis=1)
    return squares


def _total(stats: StratumStatistics) -> float:
    """Return the sum of the response, from the stratum of all means."""
    (means,) = [s.columns.means for s in stats.strata if not s.contrasts]
    finest = means[-1][:, 0, 0]
    n = stats.remainder.tables.group_n[len(stats.remainder.tables.group_n) - 1]
    return float(np.sqrt(prod(stats.shape)) * (n @ finest))
