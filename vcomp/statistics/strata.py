"""Orthogonal strata: the sufficient statistics of designs with fully crossed facets.

Every axis of the grid splits the space into its mean and its contrasts. With k axes there are 2^k
strata; in each of them the rows are independent vectors on the cells of the remaining facets, all
with the same covariance matrix (MATHS 3a):

    V_s = Σ_t σ²_t Π_f m_f(t, s) K_t + σ²_e I,   m_f = 1 if f ∈ t, else n_f in f's mean, 0 in its
                                                      contrasts

A stratum keeps sums over groups of cells, never the cells themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.statistics.cross_products import CrossProducts

__all__ = ["GroupedColumns", "Remainder", "Stratum", "StratumStatistics"]


@dataclass(frozen=True, slots=True)
class Remainder:
    """How the cells of the facets that are no axes are grouped, in the same way in every stratum.

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
        """Number of groupings; the position after the last stands for single observations."""
        return self.tables.n_terms


@dataclass(frozen=True, slots=True)
class GroupedColumns:
    """Columns B of a stratum, b of them with r replicates, by groups of cells.

    Where the groupings are nested the means of the innermost say all; otherwise those of each are
    needed.

    Attributes
    ----------
    means : for each grouping, or for the innermost only, (q, b, r) means of the columns in groups
    within : (b, b) sums over replicates of squares and products within the innermost groups, or
        within all observations together
    """

    means: tuple[FloatArray, ...]
    within: FloatArray


@dataclass(frozen=True, slots=True)
class Stratum:
    """One stratum of the design.

    Attributes
    ----------
    contrasts : positions of the axes whose contrasts it holds; those of the others' means
    multiplicity : Π (n_f − 1) over them, its number of independent vectors
    coefficients : (L + 1, k + 1) components of its covariance matrix (rows: groupings, then single
        observations) in terms of those of the model (columns, the residual last)
    fixed : the columns of X that live in it
    columns : y and these columns
    """

    contrasts: tuple[int, ...]
    multiplicity: int
    coefficients: FloatArray
    fixed: tuple[int, ...]
    columns: GroupedColumns


@dataclass(frozen=True, slots=True)
class StratumStatistics:
    """All strata of a design, with what they have in common.

    Attributes
    ----------
    n : number of rows
    sizes : numbers of groups of the terms
    shape : numbers of levels of the axes
    term_axes : for each term the positions of the axes in it
    term_groupings : for each term its grouping of the cells, ``n_groupings`` where single
        observations are told apart
    remainder : the groupings
    strata : the strata, by their contrasts
    XX, Xy, yy : cross-products over all rows
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

    @property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return len(self.sizes)

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return int(self.XX.shape[0])

    def is_finer(self, t: int, u: int) -> bool:
        """Whether every group of term t lies within one group of term u."""
        a, b = self.term_groupings[t], self.term_groupings[u]
        return self.term_axes[u] <= self.term_axes[t] and self._is_finer_grouping(a, b)

    def _is_finer_grouping(self, a: int, b: int) -> bool:
        single = self.remainder.n_groupings
        return a == single or (b != single and self.remainder.tables.is_finer(a, b))


def coefficients(
    shape: Sequence[int],
    term_axes: Sequence[frozenset[int]],
    term_groupings: Sequence[int],
    n_groupings: int,
    contrasts: frozenset[int],
) -> FloatArray:
    """Return what each component of the model adds to those of a stratum."""
    matrix = np.zeros((n_groupings + 1, len(term_axes) + 1))
    for t, (axes, grouping) in enumerate(zip(term_axes, term_groupings, strict=True)):
        if contrasts <= axes:
            others = [n for f, n in enumerate(shape) if f not in axes]
            matrix[grouping, t] = float(np.prod(others, dtype=np.float64))
    matrix[n_groupings, -1] = 1.0
    return matrix
