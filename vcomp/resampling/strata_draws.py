"""Sufficient statistics of nested strata, drawn from their distribution without any row.

In a stratum m = Π (n_f − 1) independent vectors have covariance V = Σ c_l Z_l Z_l' + c_e I. All
that its likelihood needs of y are means of the innermost groups and squares within them:

    ȳ = Σ_l √c_l Z_l u_l + √(c_e/n) e,   W ~ c_e χ²(m (n − q))

With y alone only the products of the means count, Σ ȳ ȳ' = T U U' T' with U U' a Wishart matrix:
where the groups are fewer than the vectors U is Bartlett's triangle, and the draws are as many as
there are groups, squared, however many vectors. With columns X the means of y are drawn in the
same orthonormal contrasts as theirs, and W jointly with the products within groups,

    X'e = √c_e F z,  F F' = X'X,   e'e = c_e (z'z + χ²(m (n − q) − rank X))

References
----------
Bartlett (1933), On the theory of statistical regression, Proc. R. Soc. Edinburgh 53; Anderson
(2003), An Introduction to Multivariate Statistical Analysis, sec. 7.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.statistics.strata import GroupedColumns, Stratum, StratumStatistics

__all__ = ["StrataDraws", "factor_of"]

_DEPENDENT = 1e-12
"""Eigenvalue of products, on a unit diagonal, below which a combination of columns is none."""


class StrataDraws:
    """Draws the statistics of a design whose strata are all nested; the fixed part is zero.

    Parameters
    ----------
    stats : the strata; their response is not looked at

    Raises
    ------
    ValueError
        If what remains beside the fully crossed facets is crossed: means of groups are not enough.
    """

    def __init__(self, stats: StratumStatistics) -> None:
        if stats.remainder.parents is None:
            raise ValueError("the remainder is crossed; its statistics come from rows")
        self.stats = stats
        self._plans = [_Plan.of(stats, s) for s in stats.strata]

    def columns(self, v: FloatArray, rng: np.random.Generator) -> list[GroupedColumns]:
        """Return y and X of every stratum, y drawn at the components `v`, the residual last."""
        return [plan.draw(plan.coefficients @ v, rng) for plan in self._plans]

    def draw(self, v: FloatArray, rng: np.random.Generator) -> StratumStatistics:
        """Return strata with a response drawn at the components `v`, (k + 1,), and no mean."""
        return self.stats.with_columns(self.columns(v, rng))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is drawn for one stratum.

    Attributes
    ----------
    coefficients : of its components
    vectors : independent vectors
    parents, n : the groups, as in the remainder, and observations of the innermost
    df_within : degrees of freedom within innermost groups
    means, within : of the columns of X, (q, p, vectors) and (p, p)
    factor : (p, rank) F with FF' their products within groups
    """

    coefficients: FloatArray
    vectors: int
    parents: tuple[IntArray, ...]
    n: FloatArray
    df_within: float
    means: FloatArray
    within: FloatArray
    factor: FloatArray

    @classmethod
    def of(cls, stats: StratumStatistics, stratum: Stratum) -> _Plan:
        n, parents = stats.remainder.tables.group_n[-1], stats.remainder.parents
        assert parents is not None
        df = stratum.multiplicity * float((n - 1.0).sum())
        within = stratum.columns.within[1:, 1:]
        shape = tuple(stats.shape[f] for f in stratum.contrasts)
        return cls(
            coefficients=stratum.coefficients,
            vectors=stratum.multiplicity,
            parents=parents,
            n=n,
            df_within=df,
            means=_in_contrasts(stratum.columns.means[0][:, 1:], shape),
            within=within,
            factor=factor_of(within)[:, -int(df) :] if df else np.zeros((within.shape[0], 0)),
        )

    def draw(self, c: FloatArray, rng: np.random.Generator) -> GroupedColumns:
        """Return the columns with a new y."""
        p = self.within.shape[0]
        y = self._means(c, self._independent(rng, triangle=p == 0))
        within = np.empty((1 + p, 1 + p))
        within[1:, 1:] = self.within
        z: FloatArray = rng.standard_normal((self.factor.shape[1],))
        within[0, 1:] = within[1:, 0] = np.sqrt(c[-1]) * (self.factor @ z)
        left = self.df_within - z.size
        within[0, 0] = c[-1] * (z @ z + (rng.chisquare(left) if left > 0.0 else 0.0))
        means = y[:, None] if p == 0 else np.concatenate([y[:, None], self.means], axis=1)
        return GroupedColumns((means,), within)

    def _independent(self, rng: np.random.Generator, *, triangle: bool) -> FloatArray:
        """Return columns of independent unit effects of all groups of all levels, or a triangle.

        Their products with each other have the same distribution.
        """
        size = 1 + sum(parent.size for parent in self.parents)
        if not triangle or size >= self.vectors:
            return rng.standard_normal((size, self.vectors))
        lower = np.zeros((size, size))
        below = np.tri(size, k=-1, dtype=bool)
        lower[below] = rng.standard_normal(size * (size - 1) // 2)
        lower[np.diag_indices(size)] = np.sqrt(rng.chisquare(self.vectors - np.arange(size)))
        return lower

    def _means(self, c: FloatArray, unit: FloatArray) -> FloatArray:
        """Return the means of the innermost groups, (q, columns), from unit effects of all."""
        depth, first = len(self.parents), 0
        value = np.zeros((1, unit.shape[1]))
        for level in range(depth + 1):
            size = 1 if level == 0 else self.parents[level - 1].size
            part = unit[first : first + size]
            first += size
            if level:
                value = value[self.parents[level - 1]]
            if level == depth:
                break
            value = value + np.sqrt(c[level]) * part
        means: FloatArray = value + np.sqrt(c[depth] + c[-1] / self.n)[:, None] * part
        return means


def _in_contrasts(columns: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return columns (q, p, Π n) that add up to zero along their axes in n − 1 contrasts each."""
    q, p = columns.shape[:2]
    if p == 0:
        return np.zeros((q, 0, int(np.prod([n - 1 for n in shape], dtype=int))))
    table = columns.reshape((q, p, *shape))
    for axis, n in enumerate(shape):
        table = np.moveaxis(np.tensordot(_helmert(n), table, (1, 2 + axis)), 0, 2 + axis)
    return np.ascontiguousarray(table).reshape((q, p, -1))


def _helmert(n: int) -> FloatArray:
    """Return n − 1 orthonormal contrasts of n levels, the rows."""
    i = np.arange(1, n, dtype=float)[:, None]
    j = np.arange(n)[None, :]
    rows: FloatArray = np.where(j < i, 1.0, np.where(j == i, -i, 0.0)) / np.sqrt(i * (i + 1.0))
    return rows


def factor_of(products: FloatArray) -> FloatArray:
    """Return F with FF' = products, its columns by ascending size, those of rounding left out."""
    scale = np.sqrt(np.diagonal(products))
    there = scale > 0.0
    factor = np.zeros((scale.size, 0))
    if there.any():
        s = scale[there]
        values, vectors = np.linalg.eigh(products[np.ix_(there, there)] / np.outer(s, s))
        kept = values > _DEPENDENT
        factor = np.zeros((scale.size, int(kept.sum())))
        factor[there] = s[:, None] * vectors[:, kept] * np.sqrt(values[kept])
    return factor
