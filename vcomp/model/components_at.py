"""Components of a model with random slopes at one value of the covariates.

The effect of a level at a row z of the columns of its bar is z'u, with the variance z'Λz, so that
each term has one variance there, a linear combination of the components of the fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, EstimationError, did_you_mean
from vcomp.formula import Formula
from vcomp.gtheory import HasDStudies, MeanOfScores
from vcomp.inference import Projected, VarianceComponents
from vcomp.inference.intervals import IntervalSource
from vcomp.model.interval_sources import IntervalMethod, pooled_source
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ComponentsAt(HasDStudies):
    """Components at one value of the covariates of random slopes, with the D-studies there.

    Attributes
    ----------
    at : the values of the covariates
    components : with one variance a term, and one residual variance: the mean of several
    record, rows : of the fit; rows are None after loading
    weights : for each bar of the fit the (q,) weights z of its effects
    mean : of the scores of the fit
    notes : sentences on the residual variance of a score
    """

    at: Mapping[str, Any]
    components: VarianceComponents
    record: FitRecord
    rows: RowAccess | None
    weights: tuple[FloatArray, ...]
    mean: MeanOfScores
    notes: tuple[str, ...] = ()

    @property
    def vcomp(self) -> pd.Series:
        """The components; the residual is the last."""
        import pandas as pd

        names = pd.Index(self.components.names, name="component")
        return pd.Series(np.array(self.components.values), names, name="variance")

    def __repr__(self) -> str:
        where = ", ".join(f"{name} = {value}" for name, value in self.at.items())
        pairs = zip(self.components.names, self.components.values, strict=True)
        values = ", ".join(f"{name} {display.number(value)}" for name, value in pairs)
        return f"<components at {where}: {values}>"

    def _components(self) -> VarianceComponents:
        return self.components

    def _mean_of_scores(self) -> MeanOfScores:
        return self.mean

    def _planned_notes(self) -> tuple[str, ...]:
        where = ", ".join(f"{name} = {value}" for name, value in self.at.items())
        return (f"All scores of a measurement are at {where}.", *self.notes)

    def _source(self, interval: IntervalMethod, negative: Projected) -> IntervalSource:
        return pooled_source(
            self.record,
            self.rows,
            interval,
            negative,
            lambda components: components.at_columns(self.weights),
        )


def components_at(
    record: FitRecord,
    access: RowAccess,
    mean: MeanOfScores,
    at: Mapping[str, Any],
    notes: tuple[str, ...] = (),
) -> ComponentsAt:
    """Return the components at one value of each covariate of the slopes.

    Parameters
    ----------
    record, access : of the fit
    mean : of its scores
    at : a value of each covariate, a level of each factor
    notes : sentences on the residual variance of a score

    Raises
    ------
    EstimationError
        If the model has no slopes.
    DataError
        If a covariate has no value, or a name or value is none of the slopes.
    """
    blocks, data = access.data.design.blocks, access.data
    if blocks is None or not blocks.has_slopes:
        raise EstimationError("the model has no random slopes: its components are res.vcomp")
    columns = _columns(data.design.formula, data.fixed_columns, at)
    weights = tuple(
        np.ones(1)
        if own is None
        else np.array([1.0 if z is None else z[0] for z in own.values(columns, 1, centred=False)])
        for own in blocks.columns
    )
    components = record.tables.components.at_columns(weights)[0]
    return ComponentsAt(dict(at), components, record, access, weights, mean, notes)


def slope_names(formula: Formula) -> tuple[str, ...]:
    """Return the columns that slopes use.

    Parameters
    ----------
    formula : of the model
    """
    return tuple(dict.fromkeys(name for term in formula.random for name in term.covariates))


def _columns(formula: Formula, fitted: Mapping[str, Any], at: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of one row with the values, factors with the categories of the fit."""
    names = slope_names(formula)
    written = ", ".join(f"{name!r}: …" for name in names)
    if not isinstance(at, Mapping):
        raise DataError(f"at is a mapping {{{written}}}, not {at!r}")
    for name in at:
        if name not in names:
            raise DataError(
                f"at names {name!r}, which no slope uses{did_you_mean(str(name), names)}; it is "
                f"{{{written}}}",
                column=str(name),
            )
    for name in names:
        if name not in at:
            raise DataError(f"at has no value of {name!r}; it is {{{written}}}", column=name)
    return {name: _column(name, at[name], fitted.get(name)) for name in names}


def _column(name: str, value: Any, fitted: Any) -> Any:
    import pandas as pd

    if isinstance(fitted, pd.Categorical):
        levels: Sequence[Any] = fitted.categories.tolist()
        if value not in levels:
            known = ", ".join(map(repr, levels[:10]))
            raise DataError(
                f"at[{name!r}] is a level of {name}, such as {known}, not {value!r}", column=name
            )
        return pd.Categorical([value], categories=fitted.categories)
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not np.isfinite(value):
        raise DataError(
            f"at[{name!r}] is one finite number, as {name} is a covariate, not {value!r}",
            column=name,
        )
    return np.array([float(value)])
