"""Random signs for traces: E z'Mz = tr M, exact for the diagonal of M.

See docs/explanation/mathematics.md, eq. (2.8). Probes are drawn once for each term, so that the
likelihood equations are a smooth function of the components and do not depend on which terms are
at zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vcomp._typing import FloatArray

__all__ = [
    "AllUnits",
    "Probes",
    "Rademacher",
]


class Probes(Protocol):
    """Columns z with mean(z z') near I, exactly one on the diagonal."""

    def count(self, sizes: tuple[int, ...]) -> int:
        """Return the number of columns for terms of these sizes."""

    def columns(
        self, terms: tuple[int, ...], sizes: tuple[int, ...], first: int, last: int
    ) -> FloatArray:
        """Return columns ``first .. last - 1`` for some terms, one above the other."""


@dataclass(frozen=True, slots=True)
class Rademacher:
    """Independent signs (Hutchinson 1990).

    Parameters
    ----------
    n : number of columns
    seed : of the generator
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


@dataclass(frozen=True, slots=True)
class AllUnits:
    """√m e_j for every j: exact traces, for small sizes."""

    def __str__(self) -> str:
        return "all unit vectors"

    def count(self, sizes: tuple[int, ...]) -> int:
        """Return m, all sizes added up."""
        return sum(sizes)

    def columns(
        self, terms: tuple[int, ...], sizes: tuple[int, ...], first: int, last: int
    ) -> FloatArray:
        """Return columns of √m I."""
        m = sum(sizes)
        units = np.zeros((m, last - first))
        places = np.arange(first, last)
        units[places, places - first] = np.sqrt(m)
        return units
