"""Products of a matrix B in compressed sparse rows with many columns, and solves by them.

Empty `weights` mean ones: a matrix of ones is read twice as fast, and needs a third of the memory.
All products gather: a row of the result is written by one thread, so that results do not depend on
the number of threads.
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.numerics.kernels.compilation import njit

WIDTH = 4
"""Columns of a solve: their sums stay in registers, and few columns are several blocks."""


@njit(cache=True, nogil=True)
def gather_squares(
    indptr: LongArray,
    indices: IntArray,
    weights: FloatArray,
    x: FloatArray,
    out: FloatArray,
) -> None:
    """Write ``B∘B x`` into `out`: entries of one place, next to each other, are summed first.

    Parameters
    ----------
    indptr, indices, weights : B, (q, m)
    x, out : (m, c) and (q, c)
    """
    out[:] = 0.0
    for i in range(out.shape[0]):
        entry = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            entry += weights[e] if weights.size > 0 else 1.0
            if e + 1 == indptr[i + 1] or indices[e + 1] != j:
                for c in range(x.shape[1]):
                    out[i, c] += entry * entry * x[j, c]
                entry = 0.0


@njit(cache=True, nogil=True)
def add_rows(
    indptr: LongArray,
    indices: IntArray,
    weights: FloatArray,
    x: FloatArray,
    out: FloatArray,
    first: int = 0,
) -> None:
    """Add ``B x`` to WIDTH columns of `out`.

    Parameters
    ----------
    indptr, indices, weights : B, (q, m)
    x, out : (m, WIDTH), and (q, WIDTH) or more columns
    first : the first of the columns
    """
    weighted, a, b, c, d = weights.size > 0, first, first + 1, first + 2, first + 3
    for i in range(out.shape[0]):
        s0, s1, s2, s3 = out[i, a], out[i, b], out[i, c], out[i, d]
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            w = weights[e] if weighted else 1.0
            s0 += w * x[j, 0]
            s1 += w * x[j, 1]
            s2 += w * x[j, 2]
            s3 += w * x[j, 3]
        out[i, a], out[i, b], out[i, c], out[i, d] = s0, s1, s2, s3


@njit(cache=True, nogil=True)
def _product(
    coupling: tuple[LongArray, IntArray, FloatArray],
    rest: tuple[LongArray, IntArray, FloatArray],
    inverse_lead: FloatArray,
    tail: FloatArray,
    columns: FloatArray,
    out: FloatArray,
) -> None:
    """Write S p to `out`, with p the last rows of `columns`, and −A⁻¹B p to the first rows."""
    q, m = inverse_lead.size, tail.size
    u, p = columns[:q], columns[q:]
    u[:] = 0.0
    add_rows(coupling[0], coupling[1], coupling[2], p, u)
    for i in range(q):
        for c in range(WIDTH):
            u[i, c] *= -inverse_lead[i]
    for i in range(m):
        for c in range(WIDTH):
            out[i, c] = tail[i] * p[i, c]
    add_rows(rest[0], rest[1], rest[2], columns, out)


@njit(cache=True, nogil=True)
def conjugate_gradients(
    coupling: tuple[LongArray, IntArray, FloatArray],
    rest: tuple[LongArray, IntArray, FloatArray],
    inverse_lead: FloatArray,
    tail: FloatArray,
    preconditioner: FloatArray,
    goal: FloatArray,
    has_start: bool,
    x: FloatArray,
    r: FloatArray,
    space: tuple[FloatArray, FloatArray],
    alphas: FloatArray,
    betas: FloatArray,
) -> int:
    """Solve S x = b of WIDTH columns by conjugate gradients with a diagonal preconditioner.

    S = diag(tail) + K − B'A⁻¹B is given by B, and by the rows of [B' K].

    Parameters
    ----------
    coupling : B, (q, m)
    rest : [B' K], (m, q + m) or (m, q); K has no diagonal
    inverse_lead : (q,) the diagonal of A⁻¹
    tail : (m,)
    preconditioner : (m,) reciprocals of the diagonal D of S
    goal : (WIDTH,) largest r'D⁻¹r of each column
    has_start : whether `x` is not zero
    x : (m, WIDTH) the start, and then the solution
    r : (m, WIDTH) b, and then b − S x
    space : arrays of (q + m, WIDTH) and (m, WIDTH) numbers
    alphas, betas : (at most, WIDTH) coefficients of the iteration, left as they are after a
        column has converged

    Returns
    -------
    number of iterations; −1 if S is not positive definite, −2 if they do not suffice
    """
    columns, Sp = space
    q, m = inverse_lead.size, tail.size
    p = columns[q:]
    rz, after = np.zeros(WIDTH), np.zeros(WIDTH)
    alpha, beta = np.zeros(WIDTH), np.zeros(WIDTH)
    if has_start:
        p[:] = x
        _product(coupling, rest, inverse_lead, tail, columns, Sp)
        r -= Sp
    for i in range(m):
        for c in range(WIDTH):
            p[i, c] = preconditioner[i] * r[i, c]
            rz[c] += p[i, c] * r[i, c]
    n = 0
    while (rz > goal).any():
        if n == alphas.shape[0]:
            return -2
        _product(coupling, rest, inverse_lead, tail, columns, Sp)
        after[:] = 0.0
        for i in range(m):
            for c in range(WIDTH):
                after[c] += p[i, c] * Sp[i, c]
        for c in range(WIDTH):
            alpha[c] = 0.0
            if rz[c] > goal[c]:
                if not after[c] > 0.0:
                    return -1
                alpha[c] = rz[c] / after[c]
                alphas[n, c] = alpha[c]
        after[:] = 0.0
        for i in range(m):
            for c in range(WIDTH):
                x[i, c] += alpha[c] * p[i, c]
                r[i, c] -= alpha[c] * Sp[i, c]
                after[c] += preconditioner[i] * r[i, c] * r[i, c]
        for c in range(WIDTH):
            beta[c] = 0.0
            if rz[c] > goal[c]:
                beta[c] = after[c] / rz[c]
                betas[n, c] = beta[c]
                rz[c] = after[c]
        for i in range(m):
            for c in range(WIDTH):
                p[i, c] = preconditioner[i] * r[i, c] + beta[c] * p[i, c]
        n += 1
    return n
