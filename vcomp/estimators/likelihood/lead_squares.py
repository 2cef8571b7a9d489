"""Squares of a bordered block-diagonal matrix: products of traces without derivatives of a factor.

C = [[A, B], [B', K]] with q × q blocks A_l of the levels of one term. With Y = A⁻¹B and the dense
corner Z of C⁻¹,

    C⁻¹ = [[A⁻¹ + YZY', −YZ], [−ZY', Z]].

For D = E ⊗ I of the term, E of size q × q, the squares tr(C⁻¹DC⁻¹D') need the m × m products Y'DY
and the diagonal blocks of C⁻¹.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics import limited_blas
from vcomp.numerics.sparse import span_of

_DENSE = 0.1
"""Share of entries of Y from which dense products are faster."""

_FEW_ENTRIES, _FEW_LEVELS = 0.03, 2.0
"""Entries and levels of sparse Y, as a share of those of the corner, up to which products with Y
are faster than with Y'Y."""


@dataclass(frozen=True, slots=True, eq=False)
class LeadBlocks:
    """The blocks of one term, and what they share with the dense corner.

    Attributes
    ----------
    gram : (levels, q, q) A_l
    of_inverse : (levels, q, q) the same blocks of C⁻¹
    border : for each of the q effects the sparse rows of B, (levels, m)
    corner : (m, m) Z
    """

    gram: FloatArray
    of_inverse: FloatArray
    border: Sequence[Any]
    corner: FloatArray

    def squares(
        self, units: FloatArray, others: Sequence[tuple[LongArray, LongArray]]
    ) -> FloatArray:
        """Return tr(C⁻¹D_iC⁻¹D_j) of directions of the term, then of others.

        Parameters
        ----------
        units : (J, q, q) symmetric E of the directions of the term
        others : of directions of the corner the rows and columns of their ones
        """
        inverse: FloatArray = np.asarray(np.linalg.inv(self.gram), dtype=float)
        products, Z = self._of_term(units, inverse), self.corner
        J, n = len(units), len(units) + len(others)
        spans = [_ones(*places) for places in others]
        found = np.zeros((n, n))
        for i, W in enumerate(products):
            for j, X in enumerate(products[: i + 1]):
                found[i, j] = found[j, i] = np.einsum("ij,ji->", W, X)
            for j, ones in enumerate(spans, start=J):
                (a, b), times = ones[0], len(ones)
                found[i, j] = found[j, i] = times * np.einsum("ij,ji->", Z[a], W[:, b])
        for i, ones in enumerate(spans, start=J):
            for j, twos in enumerate(spans[: i - J + 1], start=J):
                pairs = [(Z[a][:, d], Z[b][:, c]) for (a, b), (c, d) in product(ones, twos)]
                found[i, j] = found[j, i] = sum(np.einsum("ij,ij->", *pair) for pair in pairs)
        rest = self.of_inverse - inverse
        for p, q in ((inverse, inverse), (inverse, rest), (rest, inverse)):
            M = np.tensordot(p, q, (0, 0))
            found[:J, :J] += np.einsum("iab,kcd,bcda->ik", units, units, M)
        return 0.5 * (found + found.T)

    def _of_term(self, units: FloatArray, inverse: FloatArray) -> list[FloatArray]:
        """Return Y'(E ⊗ I)Y Z of each E."""
        from scipy.sparse import diags_array

        (m, _), q = self.corner.shape, len(self.border)
        if not m:
            return [self.corner for _ in units]
        Y: list[Any] = [
            sum(diags_array(inverse[:, a, b]) @ self.border[b] for b in range(q)).tocsr()
            for a in range(q)
        ]
        if sum(y.nnz for y in Y) > _DENSE * q * np.prod(Y[0].shape):
            Y = [y.toarray() for y in Y]
        elif max(y.nnz for y in Y) < _FEW_ENTRIES * m**2 and Y[0].shape[0] < _FEW_LEVELS * m:
            P = [y @ self.corner for y in Y]
            return [sum(E[a, b] * (Y[a].T @ P[b]) for a, b in np.argwhere(E)) for E in units]
        found = []
        with limited_blas(m):
            grams = {(a, b): Y[a].T @ Y[b] for a, b in product(range(q), repeat=2) if a <= b}
            for E in units:
                H = sum(E[at] * gram for at, gram in grams.items() if E[at])
                H = H if isinstance(H, np.ndarray) else H.toarray()
                if np.count_nonzero(E) > np.count_nonzero(np.diagonal(E)):
                    H = H + H.T
                found.append(H @ self.corner)
        return found


def _ones(rows: LongArray, columns: LongArray) -> list[tuple[Any, Any]]:
    """Return the places of the ones of a symmetric direction, on both sides of its diagonal."""
    a, b = span_of(rows), span_of(columns)
    return [(a, b)] if np.array_equal(rows, columns) else [(a, b), (b, a)]
