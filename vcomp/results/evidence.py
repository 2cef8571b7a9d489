"""What tests need of a result."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from vcomp.significance.comparable import ComparedFit
from vcomp.significance.component_test import ComponentFit

if TYPE_CHECKING:
    from vcomp.results.fitted import FittedComponents
    from vcomp.results.record import FitRecord

__all__ = ["compared_fit", "component_fit"]


def component_fit(res: FittedComponents) -> ComponentFit:
    """Return what tests of a component need of a result."""
    record, model = res._record, res.model
    return ComponentFit(
        estimate=record.estimate,
        table=record.table,
        classical=record.structure.balanced and _is_closed(record),
        stats=None if model is None else model.statistics,
    )


def compared_fit(res: FittedComponents) -> ComparedFit:
    """Return what a comparison with other models needs of a result."""
    record, model = res._record, res.model
    return ComparedFit(
        formula=record.formula,
        response=record.response,
        estimate=record.estimate,
        exog_names=record.exog_names,
        nobs=record.structure.n_rows,
        response_sums=record.response_sums,
        stats=None if model is None else model.statistics,
    )


def _is_closed(record: FitRecord) -> bool:
    """Whether with two terms what both are finer than is a term too: their spaces are orthogonal.

    Balanced data whose terms are not have mean squares that depend on each other.
    """
    facets = record.components.facets[:-1]
    return all(not a & b or a & b in facets for a, b in combinations(facets, 2))
