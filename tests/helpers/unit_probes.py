"""All unit vectors as probes, with which the traces of the iterative engine are exact."""

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray


@dataclass(frozen=True, slots=True)
class AllUnits:
    """The columns √m e_j for every j, which give exact traces; for small sizes."""

    def __str__(self) -> str:
        return "all unit vectors"

    def count(self, sizes: tuple[int, ...]) -> int:
        """Return m, the sum of the sizes."""
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
