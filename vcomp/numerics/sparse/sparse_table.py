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
from typing import Any, ClassVar, Protocol

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.kernels import sparse_products as kernels
from vcomp.numerics.parallel import slices

_BLOCKS = 4
"""Largest number of blocks of rows."""

_ENTRIES_A_BLOCK = 100_000
"""Smallest number of entries of a block; fewer take less time than starting a thread."""

_REPEATED = 1.25
"""Mean of entries up to which they are repeated ones: a weight takes three times their memory."""

_PASSES = 5
"""Passes over the entries in which a solve takes as long as a block of a product, at least."""


@dataclass(frozen=True)
class SparseTable:
    """A matrix B in compressed sparse rows.

    Attributes
    ----------
    indptr, indices : (q + 1,) starts of rows, and (nnz,) columns of entries
    weights : (nnz,) the entries, bytes or in double precision; empty if all are one. An entry of n
        may be n ones
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

    width: ClassVar[int] = kernels.WIDTH
    """Number of columns of a product that are computed together."""

    @cached_property
    def _bounds(self) -> tuple[tuple[int, int], ...]:
        """First and last rows of the blocks for threads, with about equal numbers of entries."""
        nnz = self.indices.size
        n = int(np.clip(nnz // self.fewest, 1, _BLOCKS))
        cuts = np.searchsorted(self.indptr, np.linspace(0, nnz, n + 1)[1:-1])
        ends = [0, *(int(c) for c in cuts), self.indptr.size - 1]
        return tuple(pairwise(ends))

    @classmethod
    def of(
        cls, indptr: LongArray, indices: IntArray, counts: FloatArray, n_cols: int
    ) -> SparseTable:
        """Return the matrix with these entries; whole numbers near one are repeated ones."""
        total = float(counts.sum(dtype=float))
        if counts.size and counts.min() >= 1.0 and total <= _REPEATED * counts.size:
            at = np.flatnonzero(counts > 1.0)
            more = counts[at].astype(np.int64) - 1
            if (more + 1.0 == counts[at]).all():
                if at.size:  # few: nothing as large as the entries is made but the indices
                    twice = np.repeat(at, more)
                    indices = np.insert(indices, twice, indices[twice])
                    before = np.concatenate([[0], np.cumsum(more)])
                    indptr = indptr + before[np.searchsorted(at, indptr)]
                counts = counts[:0]
        # Kernels are compiled for none, bytes and double precision.
        if counts.dtype != np.uint8:
            counts = counts.astype(float, copy=False)
        return cls(indptr, indices, counts, n_cols)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.indptr.size - 1, self.n_cols

    @classmethod
    def empty(cls, n_rows: int, n_cols: int) -> SparseTable:
        """Return a matrix of zeros."""
        return cls(np.zeros(n_rows + 1, np.int64), np.zeros(0, np.int32), np.zeros(0), n_cols)

    @property
    def matrix(self) -> Any:
        """The same as a ``scipy.sparse.csr_array``, in which an entry of n may be n ones."""
        from scipy.sparse import csr_array

        entries = self.weights if self.weights.size else np.ones(self.indices.size, np.uint8)
        # With starts of eight bytes the indices would be copied to eight bytes.
        starts = self.indptr.astype(np.int32) if self.indices.size < 2**31 else self.indptr
        return csr_array((entries, self.indices, starts), shape=self.shape)

    def like(self, matrix: Any, *, weighted: bool) -> SparseTable:
        """Return a ``csr_array`` as a matrix for products, of ones unless it is weighted."""
        return replace(
            self,
            indptr=matrix.indptr.astype(np.int64),
            indices=matrix.indices.astype(np.int32, copy=False),
            weights=matrix.data if weighted else np.zeros(0),
            n_cols=matrix.shape[1],
        )

    def transposed(self) -> SparseTable:
        """Return the transposed matrix, a copy."""
        return self.like(self.matrix.tocsc().T, weighted=self.weights.size > 0)

    def times(self, x: FloatArray) -> FloatArray:
        """Return B x for the (n_cols, c) columns of `x`; rows that it lacks are zero."""
        q, width, columns = self.shape[0], x.shape[1], np.zeros((self.n_cols, kernels.WIDTH))
        out = np.zeros((q, -(-width // kernels.WIDTH) * kernels.WIDTH))
        for part in slices(width, kernels.WIDTH):
            columns[: len(x), : part.stop - part.start] = x[:, part]

            def work(_: int, a: int, b: int, first: int = part.start) -> None:
                rows = self.indptr[a : b + 1]
                kernels.add_rows(rows, *self.parts[1:], columns, out[a:b], first)

            over_threads(work, self._bounds, self.threads)
        return np.ascontiguousarray(out[:, :width])

    def squared_times(self, x: FloatArray) -> FloatArray:
        """Return B∘B x, with the entries squared."""
        out = np.empty((self.shape[0], x.shape[1]))
        over_threads(
            lambda _, a, b: kernels.gather_squares(
                self.indptr[a : b + 1], *self.parts[1:], x, out[a:b]
            ),
            self._bounds,
            self.threads,
        )
        return out

    @property
    def parts(self) -> tuple[LongArray, IntArray, FloatArray]:
        """Starts of rows, columns and weights of the entries."""
        return self.indptr, self.indices, self.weights


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
    n = min(len(bounds), threads or os.cpu_count() or 1)
    if n <= 1:
        for k, (first, last) in enumerate(bounds):
            work(k, first, last)
        return
    waiting = iter(range(len(bounds)))  # next() of it is atomic

    def some() -> None:
        for k in waiting:
            work(k, *bounds[k])

    with ThreadPoolExecutor(n - 1) as pool:
        others = [pool.submit(some) for _ in range(n - 1)]
        some()
    for other in others:
        other.result()


def stacked(blocks: Sequence[Sequence[SparseTable]]) -> SparseTable:
    """Return the matrix of rows of blocks; if there is one block, itself."""
    from scipy.sparse import hstack, vstack

    tables = [table for row in blocks for table in row]
    if len(tables) == 1:
        return tables[0]
    rows = [hstack([table.matrix for table in row], format="csr") for row in blocks]
    whole = vstack(rows, format="csr")
    return tables[0].like(whole, weighted=any(table.weights.size for table in tables))


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


def solve_reduced(
    coupling: SparseTable,
    rest: SparseTable,
    inverse_lead: FloatArray,
    tail: FloatArray,
    diagonal: FloatArray,
    b: FloatArray,
    start: FloatArray | None = None,
    *,
    tol: float | FloatArray = 1e-8,
    max_iter: int = 1000,
    threads: int | None = None,
) -> Solved:
    """Solve S x = b with S = diag(tail) + K − B'A⁻¹B, which is not formed.

    Solution and residual take the place of `start` and `b`. Blocks of columns run in threads.
    Results do not depend on the number of these.

    Parameters
    ----------
    coupling : (q, m) B
    rest : (m, q + m) [B' K], without the diagonal of K
    inverse_lead : (q,) the diagonal of A⁻¹
    tail : (m,)
    diagonal : (m,) of S, or another preconditioner
    b, start, tol, max_iter : as of :func:`conjugate_gradients`; a tolerance may be one for each
        column
    threads : number of threads; None for that of the cores

    Raises
    ------
    numpy.linalg.LinAlgError
        If S is not positive definite.
    """
    (m, width), q, inverse = b.shape, inverse_lead.size, 1.0 / diagonal
    x = np.zeros((m, width), order="F") if start is None else start
    goal = np.square(tol) * (inverse @ np.square(b))
    bounds = [(part.start, part.stop) for part in slices(width if m else 0, kernels.WIDTH)]
    counts, coefficients = [0] * len(bounds), [np.zeros((2, 0, 0))] * len(bounds)

    def work(k: int, first: int, last: int) -> None:
        part, n = slice(first, last), last - first
        goals, steps = np.zeros(kernels.WIDTH), np.full((2, max_iter, kernels.WIDTH), np.nan)
        goals[:n] = goal[part]
        of_x, of_r = x[:, part], b[:, part]
        if n < kernels.WIDTH or not of_r.flags.f_contiguous:
            of_x, of_r = (np.zeros((m, kernels.WIDTH), order="F") for _ in range(2))
            of_x[:, :n], of_r[:, :n] = x[:, part], b[:, part]
        columns, product = np.empty((q + m, kernels.WIDTH)), np.empty((m, kernels.WIDTH))
        counts[k] = kernels.conjugate_gradients(
            coupling.parts,
            rest.parts,
            inverse_lead,
            tail,
            inverse,
            goals,
            start is not None,
            of_x,
            of_r,
            (columns, product),
            *steps,
        )
        if of_x.base is not x:
            x[:, part], b[:, part] = of_x[:, :n], of_r[:, :n]
        coefficients[k] = steps[:, : counts[k] if counts[k] >= 0 else max_iter, :n].copy()

    few = _PASSES * coupling.indices.size < coupling.fewest
    over_threads(work, bounds, 1 if few else threads)
    if _INDEFINITE in counts:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    steps = np.full((2, max([0, *(each.shape[1] for each in coefficients)]), width), np.nan)
    for (first, last), each in zip(bounds, coefficients, strict=True):
        steps[:, : each.shape[1], first:last] = each
    return Solved(x, b, steps.shape[1], min(counts, default=0) >= 0, *steps)


_INDEFINITE = -1


def log_quadrature(solved: Solved) -> tuple[FloatArray, FloatArray]:
    """Return e₁'log(T)e₁ and e₁'T e₁ of each column's Lanczos matrix T.

    For Ŝ = D^-½ S D^-½ and the unit vector w along D^-½ b, the first is the Gauss quadrature of
    w'log(Ŝ)w, the second equals w'Ŝw. The iteration must have started at zero.
    """
    from scipy.linalg import eigh_tridiagonal

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
        values, vectors = eigh_tridiagonal(main, np.sqrt(beta[:-1]) / alpha[:-1])
        logs[c] = np.square(vectors[0]) @ np.log(np.maximum(values, np.finfo(float).tiny))
        firsts[c] = main[0]
    return logs, firsts


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
        signs = np.empty((sum(sizes), last - first), order="F")
        begin = 0
        for term, size in zip(terms, sizes, strict=True):
            for column in range(first, last):
                rng = np.random.default_rng([self.seed, term, column])
                bits = rng.integers(0, 2, size=size, dtype=np.int8)
                signs[begin : begin + size, column - first] = 2.0 * bits - 1.0
            begin += size
        return signs
