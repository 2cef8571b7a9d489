"""Residuals of least squares on the groups of several terms, for many responses at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray

_MOST_COLUMNS = 1500
"""Columns, without the largest term's, above which residuals are found by sweeps."""

_SINGULAR = 1e-10
"""Eigenvalues below this share of the largest are zero."""

_SWEEPS, _CLOSE = 500, 1e-9

_BEYOND = 1e-6
"""Share of a column of X below which the terms have all of it, up to the error of sweeps."""


@dataclass(frozen=True, eq=False)
class Projection:
    """Projection of a response on the complement of all terms, taken as fixed.

    The largest term is eliminated by its group means. The equations of the others are solved
    through the eigenvalues of their matrix, or by alternating projections if there are very many.

    Attributes
    ----------
    groups : for each term the group of every row, from 0; no term is nested in another
    X : (n, p) columns of the fixed part, or None

    Examples
    --------
    >>> rows, columns = np.divmod(np.arange(6), 3)
    >>> Projection.of([rows, columns]).residuals(np.array([1.0, 2, 3, 2, 3, 7])).round(3)
    array([ 0.5,  0.5, -1. , -0.5, -0.5,  1. ])
    """

    groups: tuple[LongArray, ...]
    X: FloatArray | None

    @classmethod
    def of(cls, groups: Sequence[LongArray], X: FloatArray | None = None) -> Projection:
        """Return the projection of some terms; those that others are nested in are left out.

        Parameters
        ----------
        groups : for each term the group of every row, from 0
        X : columns of the fixed part
        """
        kept: list[LongArray] = []
        for codes in sorted(groups, key=lambda g: -int(g.max())):
            if not any(_determines(finer, codes) for finer in kept):
                kept.append(codes)
        columns = None if X is None or X.shape[1] == 0 else X
        return cls(tuple(kept), columns)

    def residuals(self, y: FloatArray) -> FloatArray:
        """Return the residuals of one response, (n,), or of several, (n, m)."""
        if self._inverse is None:
            return self._by_sweeps(y)
        rest = y - self._means(0, y)
        columns = self._columns
        if columns is None:
            return rest
        part = columns @ (self._inverse @ (columns.T @ rest))
        return np.asarray(rest - (part - self._means(0, part)))

    @cached_property
    def df(self) -> float:
        """Degrees of freedom of the residuals (n less the rank of the columns)."""
        n = float(self.groups[0].size)
        largest = float(self._matrices[0].shape[1])
        if self._inverse is None:
            return float(n - largest - sum(m.shape[1] - 1 for m in self._matrices[1:]) - self._own)
        return float(n - largest - self._rank)

    # The largest term is absorbed; S = Z'MZ of the other columns Z ---------------------------

    @cached_property
    def _matrices(self) -> tuple[Any, ...]:
        from scipy.sparse import csr_array

        n = self.groups[0].size
        ones, rows = np.ones(n), np.arange(n)
        return tuple(csr_array((ones, (rows, codes))) for codes in self.groups)

    @cached_property
    def _columns(self) -> Any:
        from scipy.sparse import csr_array, hstack

        others = list(self._matrices[1:])
        if self.X is not None:
            # Deviations from the means of the largest term, which S has in any case: products of
            # columns far from zero, or in other units, lose no digits.
            within = self.X - self._means(0, self.X)
            sizes = np.sqrt(np.square(within).sum(axis=0))
            rounded = sizes <= _BEYOND * np.sqrt(np.square(self.X).sum(axis=0))
            others.append(csr_array(within / np.where(rounded, np.inf, sizes)))
        return hstack(others, format="csr") if others else None

    @cached_property
    def _solved(self) -> tuple[FloatArray | None, float]:
        columns = self._columns
        if columns is None:
            return np.zeros((0, 0)), 0.0
        if columns.shape[1] > _MOST_COLUMNS:
            return None, float("nan")
        first = self._matrices[0]
        between = (first.T @ columns).toarray()
        counts = np.bincount(self.groups[0])[:, None]
        S = (columns.T @ columns).toarray() - between.T @ (between / counts)
        values, vectors = np.linalg.eigh(S)
        known = values > _SINGULAR * values[-1]
        inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
        return inverse, float(known.sum())

    @property
    def _inverse(self) -> FloatArray | None:
        return self._solved[0]

    @property
    def _rank(self) -> float:
        return self._solved[1]

    @cached_property
    def _own(self) -> float:
        """The rank of what the columns of X have beyond the terms, if these are swept out."""
        if self.X is None:
            return 0.0
        rest = Projection(self.groups, None)._by_sweeps(self.X / np.linalg.norm(self.X, axis=0))
        return float(np.linalg.matrix_rank(rest, tol=_BEYOND))

    def _means(self, term: int, y: FloatArray) -> FloatArray:
        """Return the mean of its group for every row."""
        matrix, codes = self._matrices[term], self.groups[term]
        counts = np.bincount(codes)
        sums = matrix.T @ y
        return np.asarray((sums / counts.reshape(-1, *(1,) * (y.ndim - 1)))[codes])

    def _by_sweeps(self, y: FloatArray) -> FloatArray:
        rest = np.array(y)
        q = None if self.X is None else np.linalg.qr(self.X)[0]
        scale = float(np.abs(rest).max())
        for _ in range(_SWEEPS):
            before = rest
            for term in range(len(self.groups)):
                rest = rest - self._means(term, rest)
            if q is not None:
                rest = rest - q @ (q.T @ rest)
            if float(np.abs(rest - before).max()) <= _CLOSE * scale:
                break
        return rest


def _determines(finer: LongArray, coarser: LongArray) -> bool:
    """Whether every group of the first lies in one group of the second."""
    of_group = np.zeros(int(finer.max()) + 1, dtype=coarser.dtype)
    of_group[finer] = coarser
    return bool((of_group[finer] == coarser).all())
