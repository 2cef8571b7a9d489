"""What the first pass over rows in batches tells: levels, places of the cells, origins."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.design.covariates import ColumnKinds
from vcomp.design.design import Facet
from vcomp.design.learn import Centre
from vcomp.design.places import CellPlaces
from vcomp.design.survey import Survey
from vcomp.formula import FixedPart, Formula

__all__ = ["Learned"]


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What has to be agreed on before rows are summed in cells.

    Attributes
    ----------
    formula : that was read
    survey : of all rows, with the levels that occur
    centre : what is subtracted
    fixed : how the fixed part is coded
    kinds : what its columns hold
    varying : (p,) which columns of X are not the same in all rows
    constants : (p,) what the others are there, centred
    """

    formula: Formula
    survey: Survey
    centre: Centre
    fixed: FixedPart
    kinds: ColumnKinds
    varying: BoolArray
    constants: FloatArray

    def with_fixed(self, fixed: FixedPart) -> Learned:
        """Return the same with the coding of the fixed part."""
        return replace(self, fixed=fixed)

    def with_columns(self, centre: Centre, varying: BoolArray, constants: FloatArray) -> Learned:
        """Return the same with origins, and with which columns of X vary."""
        return replace(self, centre=centre, varying=varying, constants=constants)

    @property
    def facets(self) -> tuple[Facet, ...]:
        """The grouping columns with their levels."""
        found = zip(self.formula.facets, self.survey.facets, strict=True)
        return tuple(Facet(name, facet.levels) for name, facet in found)

    @property
    def places(self) -> CellPlaces:
        """Places of the cells."""
        return CellPlaces.of(self.survey, self.formula.facets)

    @property
    def columns(self) -> tuple[float | None, ...]:
        """What y and each column of X are in all rows, None where they vary."""
        of_x = zip(self.varying, self.constants, strict=True)
        return (None, *(None if varies else float(value) for varies, value in of_x))

    @property
    def n_columns(self) -> int:
        """Number of columns of which the means are needed: y, and those of X that vary."""
        return 1 + int(self.varying.sum())

    def products(self, within: FloatArray) -> FloatArray:
        """Return squares and products of y and all columns of X from those that vary."""
        rows = [0, *(1 + np.flatnonzero(self.varying))]
        every = np.zeros((1 + self.varying.size,) * 2)
        every[np.ix_(rows, rows)] = within
        return every
