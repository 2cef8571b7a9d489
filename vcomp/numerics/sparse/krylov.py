"""Conjugate gradients, Lanczos quadrature and random probes, for matrices that are not formed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vcomp._typing import FloatArray


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
