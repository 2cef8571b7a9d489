"""What the rows of a fit show of the levels of its factors and terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import difference_variances
from vcomp.exceptions import EstimationError
from vcomp.formula import REPLICATE, LevelRows, average_rows, level_rows
from vcomp.inference.pairwise import Pairs
from vcomp.model.row_access import PredictedEffects, RowAccess

if TYPE_CHECKING:
    import pandas as pd


def factors_of(access: RowAccess) -> list[str]:
    """Return the factors of the fixed part, as they are written."""
    fixed = access.model.design.fixed
    info = fixed.design_info
    if info is None:
        return []
    apart = [] if fixed.factor is None else [fixed.factor.code]
    return apart + [f.factor.code for f in info.factor_infos.values() if f.type == "categorical"]


def column_means(access: RowAccess) -> FloatArray | None:
    """Return the means of the columns of X over the rows; None if they do not add up to 1."""
    design, stats = access.model.design, access.model.statistics
    if not design.constant.any():
        return None
    wide, a = stats.wide, design.constant
    sums = stats.XX @ a if wide is None else wide.products_with(a)
    means: FloatArray = design.x_origin + sums / stats.n
    return means


def factor_rows(access: RowAccess, code: str, most: int) -> LevelRows:
    """Return rows of X for the levels of a factor, to be stored.

    Parameters
    ----------
    access : of the fit
    code : of the factor, as it is written
    most : number of elements

    Raises
    ------
    EstimationError
        If there are more.
    FormulaError, DataError
        If the levels cannot be compared.
    """
    fixed = access.model.design.fixed
    factor, p = fixed.factor, len(fixed.names)
    if factor is None or code != factor.code:
        rows = level_rows(fixed, code, column_means(access))
        assert rows is not None
        return replace(rows, omitted=omitted_term(access, rows.names[-1]))
    if len(factor.levels) * p > most:
        raise EstimationError(
            f"comparisons of {code} were not stored: {len(factor.levels):,} levels with {p:,} "
            "columns of the fixed part are too many; fit the model again"
        )
    X = np.repeat(average_rows(fixed, column_means(access)), len(factor.levels), axis=0)
    X[:, -factor.n_columns :] = np.eye(len(factor.levels))[:, 1:]
    return LevelRows(tuple(factor.levels), X, (), names=(factor.code, factor.column))


@dataclass(frozen=True, slots=True)
class TermLevels:
    """The predicted effects of a term.

    Attributes
    ----------
    index : names of the levels
    effects : (q,)
    centre : the mean of the data, to which they are added
    variances : returns the variances of the differences of pairs
    """

    index: pd.Index
    effects: FloatArray
    centre: float
    variances: Callable[[Pairs], FloatArray]


def term_levels(access: RowAccess, term: int, predicted: PredictedEffects) -> TermLevels:
    """Return the predicted effects of a term.

    Raises
    ------
    EstimationError
        If its component is not estimated above zero.
    """
    design, stats, v = access.model.design, access.model.statistics, access.components
    name = design.terms[term].name
    if not v[term] > 0.0:
        raise EstimationError(
            f"the component of {name} is estimated at zero, so that all of its predicted effects "
            f"are zero; to compare the levels as fixed, fit C({name}) in place of (1|{name})"
        )
    row = average_rows(design.fixed, column_means(access)) - design.x_origin
    return TermLevels(
        index=design.group_index(term),
        effects=predicted.of_terms[term],
        centre=design.origin + float((row @ predicted.beta).sum()),
        variances=lambda pairs: difference_variances(stats, v, term, pairs),
    )


def omitted_term(access: RowAccess, facet: str) -> str:
    """Return the term that is lacking for cells of several scores of a factor; "" if none is."""
    structure = access.model.design.structure
    facets = [name for name in structure.facets if name != REPLICATE]
    if not access.model.keeps_rows or structure.cell_max < 2 or not facets:
        return ""
    rows, kept = access.model.chunk, access.model.fixed_columns
    cells = np.unique(np.column_stack(rows.compact_codes), axis=0, return_inverse=True)[1]
    factors = [kept[name] for name in kept if name == facet or kept[name].dtype.kind != "f"]
    columns = [np.unique(np.asarray(c).astype(str), return_inverse=True)[1] for c in factors]
    whole = np.unique(np.column_stack([cells.reshape(-1), *columns]), axis=0)
    if len(whole) == cells.size:
        return ""
    # A factor in which the cells are nested needs no term of its own.
    nested = len(whole) == int(cells.max()) + 1
    named = facets if nested or facet in facets or facet not in kept else [facet, *facets]
    terms = [frozenset(name.split(":")) for name in access.estimate.names[:-1]]
    return "" if frozenset(named) in terms else ":".join(named)
