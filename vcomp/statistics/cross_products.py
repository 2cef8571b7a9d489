"""Cross-products of [Z₁ … Z_k X y]: the sufficient statistics of the general engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray

__all__ = ["CrossProducts", "PairTable"]


@dataclass(frozen=True, slots=True)
class PairTable:
    """``Z_a'Z_b`` in compressed sparse rows: how often two levels occur together."""

    indptr: LongArray
    indices: IntArray
    counts: FloatArray
    n_cols: int

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of levels of the two terms."""
        return self.indptr.size - 1, self.n_cols

    @property
    def matrix(self) -> Any:
        """The same as a ``scipy.sparse.csr_array``, without a copy."""
        from scipy.sparse import csr_array

        return csr_array((self.counts, self.indices, self.indptr), shape=self.shape)

    @classmethod
    def from_matrix(cls, matrix: Any) -> PairTable:
        """Return the table of a sparse matrix."""
        csr = matrix.tocsr()
        csr.sum_duplicates()
        return cls(
            csr.indptr.astype(np.int64),
            csr.indices.astype(np.int32),
            csr.data.astype(float),
            csr.shape[1],
        )

    def __add__(self, other: PairTable) -> PairTable:
        return PairTable.from_matrix(self.matrix + other.matrix)


@dataclass(frozen=True, slots=True)
class CrossProducts:
    """Sums over rows of everything that the likelihood and Henderson's Method I need.

    y and the columns of X are centred at ``Design.origin``; raw cross-products would lose digits.

    Attributes
    ----------
    n : number of rows
    group_n : for each term t the (q_t,) numbers of rows of its levels, the diagonal of Z_t'Z_t
    pairs : for each pair t < u the sparse (q_t, q_u) table Z_t'Z_u
    Zy : for each term the (q_t,) sums of y within levels
    ZX : for each term the (q_t, p) sums of the columns of X within levels
    XX, Xy, yy : (p, p), (p,) and a number
    """

    n: int
    group_n: tuple[FloatArray, ...]
    pairs: Mapping[tuple[int, int], PairTable]
    Zy: tuple[FloatArray, ...]
    ZX: tuple[FloatArray, ...]
    XX: FloatArray
    Xy: FloatArray
    yy: float

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of levels of the terms."""
        return tuple(n.size for n in self.group_n)

    @property
    def n_terms(self) -> int:
        """Number of random terms, the residual not counted."""
        return len(self.group_n)

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return int(self.XX.shape[0])

    def of_terms(self, terms: Sequence[int]) -> CrossProducts:
        """Return the sums of some of the terms, given by ascending positions."""
        of = {t: place for place, t in enumerate(terms)}
        return replace(
            self,
            group_n=tuple(self.group_n[t] for t in terms),
            pairs={(of[t], of[u]): p for (t, u), p in self.pairs.items() if t in of and u in of},
            Zy=tuple(self.Zy[t] for t in terms),
            ZX=tuple(self.ZX[t] for t in terms),
        )

    def gram(self, t: int, u: int) -> Any:
        """Return Z_t'Z_u as a sparse matrix, in either order and on the diagonal."""
        from scipy.sparse import diags_array

        if t == u:
            return diags_array(self.group_n[t]).tocsr()
        if t < u:
            return self.pairs[t, u].matrix
        return self.pairs[u, t].matrix.T.tocsr()

    def is_finer(self, t: int, u: int) -> bool:
        """Whether every group of term t lies within one group of term u."""
        if t == u:
            return True
        pair = (t, u) if t < u else (u, t)
        return self.pairs[pair].counts.size == self.sizes[t]

    def __add__(self, other: CrossProducts) -> CrossProducts:
        return CrossProducts(
            n=self.n + other.n,
            group_n=_added(self.group_n, other.group_n),
            pairs={key: table + other.pairs[key] for key, table in self.pairs.items()},
            Zy=_added(self.Zy, other.Zy),
            ZX=_added(self.ZX, other.ZX),
            XX=self.XX + other.XX,
            Xy=self.Xy + other.Xy,
            yy=self.yy + other.yy,
        )


def _added(a: tuple[FloatArray, ...], b: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))
