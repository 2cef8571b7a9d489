"""The simulated collections, assumptions and sizes, with fixed numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from vcomp.ir.simulate.collection_fit import fit_collection
from vcomp.simulate import CollectionSimulator

COLLECTIONS = ("enterprise2006", "genomics2004", "robust2003", "web2004")
ASSUMPTIONS = ("normal", "homoscedastic", "uncorrelated", "random")
"""What may be forced; topics are a random sample or not."""

SIZES = (5, 10, 15, 20, 25, 35, 50, 100, 150, 200, 250, 350, 500)
"""Topics of simulated collections, and of those that their accuracy is estimated for."""

REALISTIC = (False, False, False, True)
"""The assumptions of most figures: none but random sampling holds."""

_DROPPED = 0.25
_VARIABLE = "VCOMP_REFERENCE"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Part:
    """The collections simulated from one original under one set of assumptions.

    Attributes
    ----------
    collection : place in :data:`COLLECTIONS`
    assumptions : which of :data:`ASSUMPTIONS` hold
    """

    collection: int
    assumptions: tuple[bool, bool, bool, bool]

    @property
    def number(self) -> int:
        """Place among all parts, from 0 to 63."""
        code = sum(held << k for k, held in enumerate(reversed(self.assumptions)))
        return 16 * self.collection + code

    @property
    def name(self) -> str:
        """Name of the file that holds the part."""
        letters = "".join("FT"[held] for held in self.assumptions)
        return f"{COLLECTIONS[self.collection]}-{letters}"


@dataclass(frozen=True, slots=True)
class Cell:
    """The trials of one size of a part.

    Attributes
    ----------
    part : of the study
    size : place in :data:`SIZES`
    """

    part: Part
    size: int

    @property
    def n_topics(self) -> int:
        """Topics of the collections."""
        return SIZES[self.size]

    def number(self, trial: int) -> int:
        """Return the number of a collection, the same for any number of trials and sizes.

        Examples
        --------
        >>> Cell(Part(0, (False, False, False, False)), 1).number(3)
        2497
        """
        return trial * 4 * 16 * len(SIZES) + self.part.number * len(SIZES) + self.size


def parts_of(collections: Sequence[int] = range(len(COLLECTIONS))) -> tuple[Part, ...]:
    """Return the parts of these collections: 16 each."""
    return tuple(
        Part(c, (bool(held[0]), bool(held[1]), bool(held[2]), bool(held[3])))
        for c in collections
        for held in np.ndindex(2, 2, 2, 2)
    )


def collection_path(name: str) -> Path:
    """Return where the scores of a collection are kept: ``$VCOMP_REFERENCE/data``.

    Without the variable they are looked for in the folder ``shared`` beside the project.
    """
    root = Path(os.environ.get(_VARIABLE, _ROOT.parent / "shared"))
    if root.name == "reference" and not (root / "reference").is_dir():
        root = root.parent
    return root / "data" / f"{name}.csv"


def missing_collections() -> list[Path]:
    """Return the files of scores that are not there."""
    paths = [collection_path(name) for name in COLLECTIONS]
    return [path for path in paths if not path.is_file()]


def simulator(part: Part, means: str = "fitted") -> CollectionSimulator:
    """Return Algorithm 1 of Urbano (2016) for a part, without the worst quarter of the systems.

    With ``means="fitted"`` it is the algorithm to the letter. Whether topics are a random sample
    changes nothing of what is fitted.
    """
    *fitted, random = part.assumptions
    return replace(_fitted(part.collection, tuple(fitted), means), random_sampling=random)


@cache
def _fitted(collection: int, assumptions: tuple[bool, ...], means: str) -> CollectionSimulator:
    import pandas as pd

    normal, homoscedastic, uncorrelated = assumptions
    return fit_collection(
        pd.read_csv(collection_path(COLLECTIONS[collection])),
        drop_worst=_DROPPED,
        margins="normal" if normal else "kernel",
        heteroscedasticity=float(not homoscedastic),
        correlation=float(not uncorrelated),
        means=means,
    )
