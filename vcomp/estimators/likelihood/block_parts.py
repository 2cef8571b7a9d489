"""The sums of Henderson's equations with q × q blocks, and the derivatives of their matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.sparse import Direction
from vcomp.statistics import CrossProducts


@dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """Sums over rows for terms with several effects of each level.

    Attributes
    ----------
    groups : weighted cross-products of the rows of each residual group; their terms are columns of
        effects (intercepts, slopes)
    terms : for each term the positions of its columns, which have the same levels
    log_weights : sum of the logarithms of the weights of all rows
    """

    groups: tuple[CrossProducts, ...]
    terms: tuple[tuple[int, ...], ...]
    log_weights: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RowsPart:
    """The derivative D of C by the 1/σ²_r of a residual group, and the sums that belong to it.

    Attributes
    ----------
    matrix : (m, m) D for effects and columns of X, sparse, in extended precision
    direction : D for the effects
    border : (n, p) D between effects and columns of X
    right, yy : (m,) and number: A_r'D_ry, of turned effects in extended precision, and y'D_ry
    """

    matrix: Any
    direction: Direction
    border: FloatArray
    right: FloatArray
    yy: float

    def times(self, x: Any) -> Any:
        """Return Dx of columns x, in extended precision."""
        return self.matrix @ x

    def form(self, x: Any) -> Any:
        """Return x'Dx of columns x."""
        return x.T @ self.times(x)


@dataclass(frozen=True, slots=True, eq=False)
class PriorPart:
    """The derivative D of C by an element of a Λ_t⁻¹: ones between two columns of effects.

    Attributes
    ----------
    places : positions of the two columns of effects among the unknowns
    direction : D for the effects
    entries : off the diagonal, their places in the pattern's triangle
    """

    places: tuple[slice, slice]
    direction: Direction
    entries: LongArray

    def times(self, x: Any) -> Any:
        """Return Dx of columns x."""
        product, (a, b) = np.zeros_like(x), self.places
        product[a] = x[b]
        product[b] = x[a]
        return product

    def add_times(self, total: Any, factor: Any, x: Any) -> None:
        """Add a multiple of Dx to a total, in place."""
        a, b = self.places
        total[a] += factor * x[b]
        if a != b:
            total[b] += factor * x[a]

    def form(self, x: Any) -> Any:
        """Return x'Dx of columns x."""
        a, b = self.places
        half = x[a].T @ x[b]
        return half if a == b else half + half.T
