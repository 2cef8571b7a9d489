"""What must be agreed on before rows are summed: levels, origin, coding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design.structure import Structure
from vcomp.formula import FixedPart, Formula

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Chunk", "Design", "Facet", "TermDesign"]


@dataclass(frozen=True, slots=True)
class Facet:
    """A grouping column and its levels, sorted."""

    name: str
    levels: pd.Index

    @property
    def size(self) -> int:
        """Number of levels."""
        return len(self.levels)


@dataclass(frozen=True, slots=True)
class TermDesign:
    """A random term: how combinations of facet levels become its groups.

    Facets are joined one by one: after each join the combinations that occur are numbered again,
    so that no key exceeds (groups so far) × (levels of the next facet).
    """

    name: str
    facets: tuple[int, ...]
    """Positions of its facets in ``Design.facets``."""
    keys: tuple[LongArray, ...]
    """For each join the sorted keys ``group * n_levels + level`` that occur."""
    size: int
    """Number of groups."""

    def level_codes(self, n_levels: tuple[int, ...]) -> tuple[LongArray, ...]:
        """Return for each facet of the term the level in each of its groups."""
        codes: list[LongArray] = []
        groups = np.arange(self.size, dtype=np.int64)
        for facet, keys in zip(reversed(self.facets[1:]), reversed(self.keys), strict=True):
            joined = keys[groups]
            codes.append(joined % n_levels[facet])
            groups = joined // n_levels[facet]
        return (groups, *reversed(codes))


@dataclass(frozen=True, slots=True)
class Design:
    """The design of the data, learned once; printing it describes it in words.

    Attributes
    ----------
    formula : the formula that was read
    facets : the grouping columns with their levels
    terms : the random terms
    fixed : how the fixed part is coded
    origin : what is subtracted from y before any product
    x_origin : (p,) what is subtracted from the columns of X
    constant : (p,) the combination of the columns of X that is the constant, zero if none is
    structure : crossed, nested, balanced, connected, replicated, confounded
    """

    formula: Formula
    facets: tuple[Facet, ...]
    terms: tuple[TermDesign, ...]
    fixed: FixedPart
    origin: float
    x_origin: FloatArray
    constant: FloatArray
    structure: Structure

    @property
    def n_levels(self) -> tuple[int, ...]:
        """Numbers of levels of the facets."""
        return tuple(facet.size for facet in self.facets)

    def group_index(self, term: int) -> pd.Index:
        """Return the groups of a term as an index: its level, or a tuple of levels."""
        import pandas as pd

        design = self.terms[term]
        codes = design.level_codes(self.n_levels)
        facets = [self.facets[f] for f in design.facets]
        if len(facets) == 1:
            return facets[0].levels.rename(facets[0].name)
        levels: list[Any] = [f.levels for f in facets]
        level_codes: list[Any] = list(codes)
        return pd.MultiIndex(levels=levels, codes=level_codes, names=[f.name for f in facets])

    def uncentre(self, beta: FloatArray, cov_beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return coefficients of X and their covariance from those of the centred X and y.

        With X_c = X − 1 x₀' = X T and 1 = X a:  y = X_c b + c 1 = X (T b + c a).
        """
        T = np.eye(beta.size) - np.outer(self.constant, self.x_origin)
        return T @ beta + self.origin * self.constant, T @ cov_beta @ T.T

    def __str__(self) -> str:
        return self.structure.report()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of the data, coded: one partition of a stream, or all of it."""

    y: FloatArray  # (n,), centred at Design.origin
    X: FloatArray  # (n, p) fixed-effects matrix, centred at Design.x_origin
    codes: tuple[IntArray, ...]  # k arrays of shape (n,): group in each random term
    sizes: tuple[int, ...]  # number of groups of each random term
    facet_codes: tuple[IntArray, ...]  # level in each facet
    facet_sizes: tuple[int, ...]  # number of levels of each facet
