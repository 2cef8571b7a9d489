"""Symmetric matrices as vectors of their elements, and what likelihoods make of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray

__all__ = ["Derivatives", "Kind", "MatrixLikelihood", "pair_traces", "positive_part"]

Kind = Literal["observed", "expected", "average"]


@dataclass(frozen=True, slots=True)
class Derivatives:
    """Log-likelihood of matrices Σ_t with its derivatives.

    Attributes
    ----------
    loglike : its value
    gradient : (k + 1, v, v) G with dℓ = Σ_t tr(G_t dΣ_t); 0 where variables are not linked
    average : (m, m) average information of the elements
    """

    loglike: float
    gradient: FloatArray
    average: FloatArray


class MatrixLikelihood(Protocol):
    """A restricted or full likelihood of one positive semidefinite matrix a term."""

    linked: BoolArray  # (k + 1, v, v)
    n: int

    @property
    def reason(self) -> str:
        """What computes it, and why."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The informations that there are, the best first."""

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ where there is none."""

    def derivatives(self, S: FloatArray) -> Derivatives:
        """Return it with gradient and average information."""

    def information(self, S: FloatArray, kind: Kind) -> FloatArray:
        """Return an information matrix of the elements."""


def pair_traces(A: FloatArray, B: FloatArray, a: LongArray, b: LongArray) -> FloatArray:
    """Return tr(E_p A E_q B) for the symmetric unit matrices of elements p and q.

    Parameters
    ----------
    A, B : (…, v, v)
    a, b : (m,) row and column of each element; E has ones there and across the diagonal

    Examples
    --------
    >>> pair_traces(np.eye(2), np.eye(2), np.array([0, 0]), np.array([0, 1]))
    array([[1., 0.],
           [0., 2.]])
    """
    half = np.where(a == b, 0.5, 1.0)
    p, q = a[:, None], b[:, None]
    c, d = a[None, :], b[None, :]
    found = A[..., q, c] * B[..., d, p] + A[..., p, c] * B[..., d, q]
    found = found + A[..., q, d] * B[..., c, p] + A[..., p, d] * B[..., c, q]
    traces: FloatArray = half[:, None] * half[None, :] * found
    return traces


def positive_part(matrix: FloatArray, least: float = 0.0) -> FloatArray:
    """Return the nearest symmetric matrix whose eigenvalues are not below `least`.

    Examples
    --------
    >>> positive_part(np.array([[1.0, 2.0], [2.0, 1.0]])).round(12)
    array([[1.5, 1.5],
           [1.5, 1.5]])
    """
    values, vectors = np.linalg.eigh(matrix)
    positive: FloatArray = (vectors * np.maximum(values, least)) @ vectors.T
    return 0.5 * (positive + positive.T)
