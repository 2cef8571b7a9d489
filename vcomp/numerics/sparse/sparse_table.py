"""Products of sparse matrices with columns, conjugate gradients, and random probes.

Products run in threads; results do not depend on their number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.kernels import sparse_products as kernels

_BLOCKS = 4
"""Largest number of blocks of rows. Their sums are added in order, whatever the threads."""

_ENTRIES_A_COLUMN = 8
"""Smallest number of entries of a block, per column; with fewer its sums take too much memory."""

_ENTRIES_A_BLOCK = 20_000
"""Smallest number of entries of a block; fewer take less time than starting a thread."""


@dataclass(frozen=True)
class SparseTable:
    """A matrix B in compressed sparse rows.

    Attributes
    ----------
    indptr, indices : (q + 1,) starts of rows, and (nnz,) columns of entries
    weights : (nnz,) the entries; empty if all are one
    n_cols : number of columns
    fewest : fewest entries of a block of rows
    threads : number of threads; None for that of the cores
    """

    indptr: LongArray
    indices: IntArray
    weights: FloatArray
    n_cols: int
    fewest: int = _ENTRIES_A_BLOCK
    threads: int | None = None

    @cached_property
    def _bounds(self) -> tuple[tuple[int, int], ...]:
        """First and last rows of the blocks for threads, with about equal numbers of entries."""
        nnz = self.indices.size
        fewest = max(_ENTRIES_A_COLUMN * self.n_cols, self.fewest)
        n = int(np.clip(nnz // fewest, 1, _BLOCKS))
        cuts = np.searchsorted(self.indptr, np.linspace(0, nnz, n + 1)[1:-1])
        ends = [0, *(int(c) for c in cuts), self.indptr.size - 1]
        return tuple(pairwise(ends))

    @classmethod
    def of(
        cls, indptr: LongArray, indices: IntArray, counts: FloatArray, n_cols: int
    ) -> SparseTable:
        """Return the matrix with these entries, without weights if all are one."""
        ones = bool(counts.size) and counts.min() == 1.0 and counts.max() == 1.0
        return cls(indptr, indices, counts[:0] if ones else counts, n_cols)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.indptr.size - 1, self.n_cols

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return int(self.indices.size)

    def transposed(self) -> SparseTable:
        """Return the transposed matrix, a copy."""
        from scipy.sparse import csr_array

        entries = self.weights if self.weights.size else np.ones(self.nnz, np.int8)
        turned = csr_array((entries, self.indices, self.indptr), shape=self.shape).tocsc()
        return replace(
            self,
            indptr=turned.indptr.astype(np.int64),
            indices=turned.indices.astype(np.int32),
            weights=turned.data if self.weights.size else self.weights,
            n_cols=self.shape[0],
        )

    def times(self, x: FloatArray) -> FloatArray:
        """Return B x for the (n_cols, c) columns of `x`."""
        out = np.empty((self.shape[0], x.shape[1]))
        over_threads(
            lambda _, a, b: self.rows_times(a, b, x, out[a:b]), self._bounds, self.threads
        )
        return out

    def rows_times(self, first: int, last: int, x: FloatArray, out: FloatArray) -> None:
        """Write the rows ``first .. last - 1`` of B x into `out`."""
        kernels.gather(*self._parts, x, out, first, last)

    def transposed_times(self, x: FloatArray) -> FloatArray:
        """Return B'x for the (q, c) columns of `x`."""
        return self._summed(
            self.n_cols, x.shape[1], lambda out, a, b: kernels.scatter(*self._parts, x, out, a, b)
        )

    def eliminated(self, inverse: FloatArray, x: FloatArray) -> FloatArray:
        """Return B'diag(inverse)B x without an array of q rows."""
        return self._summed(
            self.n_cols,
            x.shape[1],
            lambda out, a, b: kernels.add_eliminated(*self._parts, inverse, x, out, a, b),
        )

    def forms(self, scale: FloatArray, x: FloatArray, z: FloatArray) -> FloatArray:
        """Return z'B'diag(scale)B x of each column."""
        sums = self._summed(
            1,
            x.shape[1],
            lambda out, a, b: kernels.row_forms(*self._parts, scale, x, z, out, a, b),
        )
        return sums[0]

    def squares(self, scales: FloatArray) -> FloatArray:
        """Return the diagonal of B'diag(scale)B for each column of `scales`, (n_cols, c)."""
        return self._summed(
            self.n_cols,
            scales.shape[1],
            lambda out, a, b: kernels.add_squares(*self._parts, scales, out, a, b),
        )

    def symmetric_times(self, x: FloatArray) -> FloatArray:
        """Return (B + B')x of a square matrix."""
        return self._summed(
            self.n_cols,
            x.shape[1],
            lambda out, a, b: kernels.symmetric_product(*self._parts, x, out, a, b),
        )

    @property
    def _parts(self) -> tuple[LongArray, IntArray, FloatArray]:
        return self.indptr, self.indices, self.weights

    def _summed(
        self, n_rows: int, width: int, add: Callable[[FloatArray, int, int], Any]
    ) -> FloatArray:
        """Return the sum of the contributions of all blocks of rows."""
        sums = [np.zeros((n_rows, width)) for _ in self._bounds]
        over_threads(lambda k, a, b: add(sums[k], a, b), self._bounds, self.threads)
        for other in sums[1:]:
            sums[0] += other
        return sums[0]


def over_threads(
    work: Callable[[int, int, int], Any],
    bounds: Sequence[tuple[int, int]],
    threads: int | None = None,
) -> None:
    """Call `work` with the number and the bounds of each block, in as many threads as cores.

    Parameters
    ----------
    work : function of three numbers
    bounds : of the blocks
    threads : number of threads; None for that of the cores
    """
    if len(bounds) == 1:
        work(0, *bounds[0])
        return
    with ThreadPoolExecutor(min(len(bounds), threads or os.cpu_count() or 1)) as pool:
        list(pool.map(lambda k: work(k, *bounds[k]), range(len(bounds))))


def side_by_side(tables: Sequence[SparseTable], n_rows: int) -> SparseTable:
    """Return [B₁ B₂ …]; if there is one matrix, itself."""
    if len(tables) == 1:
        return tables[0]
    if not tables:
        empty = np.zeros(0)
        return SparseTable(np.zeros(n_rows + 1, np.int64), np.zeros(0, np.int32), empty, 0)
    indptr = np.sum([t.indptr for t in tables], axis=0)
    indices = np.empty(indptr[-1], np.int32)
    weighted = any(t.weights.size for t in tables)
    weights = np.empty(indices.size if weighted else 0)
    begin, shift = indptr[:-1].copy(), 0
    for table in tables:
        lengths = np.diff(table.indptr)
        places = np.arange(table.indices.size) + np.repeat(begin - table.indptr[:-1], lengths)
        indices[places] = table.indices + np.int32(shift)
        if weighted:
            weights[places] = table.weights if table.weights.size else 1.0
        begin += lengths
        shift += table.n_cols
    first = tables[0]
    return SparseTable(indptr, indices, weights, shift, first.fewest, first.threads)


Fill = Callable[[int, int, FloatArray], None]
"""A function ``(first, last, out)`` that writes rows ``first .. last - 1`` of columns to `out`."""

_BLOCK = 1024
"""Rows that are processed at once, so that they stay in a core's cache."""

_PARTS = 4
_ROWS_A_PART = 20_000
"""Smallest number of rows of a thread; fewer take less time than starting it."""


def row_products(
    fills: Sequence[Fill],
    n_rows: int,
    width: int,
    *,
    rows_a_part: int = _ROWS_A_PART,
    threads: int | None = None,
) -> FloatArray:
    """Return the inner products of every two of m sets of c columns, column by column.

    They do not depend on the number of threads.

    Parameters
    ----------
    fills : for each set the function that writes its rows
    n_rows, width : number of rows and c
    rows_a_part : fewest rows of a part of the sums
    threads : number of threads; None for that of the cores

    Returns
    -------
    (m, m, c) array, symmetric

    Examples
    --------
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> row_products([lambda a, b, out: np.copyto(out, x[a:b])], 2, 2)
    array([[[10., 20.]]])
    """
    m = len(fills)
    n_parts = int(np.clip(n_rows // rows_a_part, 1, _PARTS))
    ends = [n_rows * k // n_parts for k in range(n_parts + 1)]
    sums = np.zeros((n_parts, m, m, width))

    def work(part: int, first: int, last: int) -> None:
        columns = np.empty((m, min(_BLOCK, last - first), width))
        for begin in range(first, last, _BLOCK):
            end = min(begin + _BLOCK, last)
            for fill, rows in zip(fills, columns, strict=True):
                fill(begin, end, rows[: end - begin])
            kernels.add_products(columns, end - begin, sums[part])

    over_threads(work, list(pairwise(ends)), threads)
    total = sums.sum(axis=0)
    lower = np.tril_indices(m, -1)
    total[lower[1], lower[0]] = total[lower]
    return np.asarray(total)


@dataclass(frozen=True, slots=True)
class Solved:
    """Solutions of S x = b.

    Attributes
    ----------
    x : (m, c)
    residual : (m, c) b − S x, by recurrence
    iterations : number of iterations
    converged : whether all columns met the tolerance
    alphas, betas : (iterations, c) coefficients of the iteration, nan after convergence
    """

    x: FloatArray
    residual: FloatArray
    iterations: int
    converged: bool
    alphas: FloatArray
    betas: FloatArray


def conjugate_gradients(
    product: Callable[[FloatArray], FloatArray],
    diagonal: FloatArray,
    b: FloatArray,
    start: FloatArray | None = None,
    *,
    tol: float = 1e-8,
    max_iter: int = 1000,
) -> Solved:
    """Solve S x = b with the diagonal of S as preconditioner.

    Parameters
    ----------
    product : returns S x for (m, c) columns; S is positive definite
    diagonal : (m,) D, the diagonal of S; (m, c) if S has another diagonal for each column
    b : (m, c) right-hand sides
    start : (m, c) first x; zero if None
    tol : largest √(r'D⁻¹r)/√(b'D⁻¹b) of each column
    max_iter : largest number of iterations

    Raises
    ------
    numpy.linalg.LinAlgError
        If S is not positive definite.
    """
    inverse = 1.0 / (diagonal if diagonal.ndim == 2 else diagonal[:, None])
    goal = tol**2 * _dots(b, inverse * b)
    x = np.zeros_like(b) if start is None else start.copy()
    r = b.copy() if start is None else b - product(x)
    z = inverse * r
    rz = _dots(r, z)
    p = z.copy()
    alphas: list[FloatArray] = []
    betas: list[FloatArray] = []
    while (rz > goal).any() and len(alphas) < max_iter:
        going = rz > goal
        Sp = product(p)
        curvature = _dots(p, Sp)
        if not (curvature[going] > 0.0).all():
            raise np.linalg.LinAlgError("the matrix is not positive definite")
        alpha = np.divide(rz, curvature, out=np.zeros_like(rz), where=going)
        x += alpha * p
        r -= alpha * Sp
        np.multiply(inverse, r, out=z)
        after = np.where(going, _dots(r, z), rz)
        beta = np.divide(after, rz, out=np.zeros_like(rz), where=going)
        p *= beta
        p += z
        alphas.append(np.where(going, alpha, np.nan))
        betas.append(np.where(going, beta, np.nan))
        rz = after
    shape = len(alphas), b.shape[1]
    return Solved(
        x,
        r,
        len(alphas),
        bool((rz <= goal).all()),
        np.reshape(alphas, shape),
        np.reshape(betas, shape),
    )


def log_quadrature(solved: Solved) -> tuple[FloatArray, FloatArray]:
    """Return e₁'log(T)e₁ and e₁'T e₁ of each column's Lanczos matrix T.

    For Ŝ = D^-½ S D^-½ and the unit vector w along D^-½ b, the first is the Gauss quadrature of
    w'log(Ŝ)w, the second equals w'Ŝw. The iteration must have started at zero.
    """
    width = solved.alphas.shape[1]
    logs, firsts = np.zeros(width), np.ones(width)
    for c in range(width):
        alpha = solved.alphas[:, c]
        alpha = alpha[~np.isnan(alpha)]
        if not alpha.size:
            continue
        beta = solved.betas[: alpha.size, c]
        main = 1.0 / alpha
        main[1:] += beta[:-1] / alpha[:-1]
        values, vectors = _tridiagonal(main, np.sqrt(beta[:-1]) / alpha[:-1])
        logs[c] = np.square(vectors[0]) @ np.log(np.maximum(values, np.finfo(float).tiny))
        firsts[c] = main[0]
    return logs, firsts


def _tridiagonal(main: FloatArray, off_diagonal: FloatArray) -> tuple[FloatArray, FloatArray]:
    from scipy.linalg import eigh_tridiagonal

    values, vectors = eigh_tridiagonal(main, off_diagonal)
    return np.asarray(values, dtype=np.float64), np.asarray(vectors, dtype=np.float64)


def _dots(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.einsum("ij,ij->j", a, b)


class Probes(Protocol):
    """Columns z for traces: the mean of z z' is near I, with ones on the diagonal."""

    def count(self, sizes: tuple[int, ...]) -> int:
        """Return the number of columns for terms of these sizes."""

    def columns(
        self, terms: tuple[int, ...], sizes: tuple[int, ...], first: int, last: int
    ) -> FloatArray:
        """Return columns ``first .. last - 1`` for some terms, stacked."""


@dataclass(frozen=True, slots=True)
class Rademacher:
    """Independent random signs (Hutchinson 1990).

    Parameters
    ----------
    n : number of columns
    seed : seed of the generators
    """

    n: int
    seed: int

    def __str__(self) -> str:
        return f"{self.n} random probes, seed {self.seed}"

    def count(self, sizes: tuple[int, ...]) -> int:
        """Return the number of columns."""
        return self.n

    def columns(
        self, terms: tuple[int, ...], sizes: tuple[int, ...], first: int, last: int
    ) -> FloatArray:
        """Return columns of ±1; each depends on its term and number only."""
        signs = np.empty((sum(sizes), last - first))
        begin = 0
        for term, size in zip(terms, sizes, strict=True):
            for column in range(first, last):
                rng = np.random.default_rng([self.seed, term, column])
                bits = rng.integers(0, 2, size=size, dtype=np.int8)
                signs[begin : begin + size, column - first] = 2.0 * bits - 1.0
            begin += size
        return signs
