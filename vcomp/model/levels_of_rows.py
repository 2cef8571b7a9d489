"""Values of the levels of factors and terms that depend on the rows of a fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.data import plain_label
from vcomp.estimators.likelihood import difference_variances
from vcomp.exceptions import EstimationError, VcompError
from vcomp.formula import REPLICATE, LevelRows, average_rows, in_formula, level_rows, refuse
from vcomp.inference.pairwise import Pairs
from vcomp.model.objects_of_rows import object_scores
from vcomp.model.record import FitRecord
from vcomp.model.row_access import EffectSolution, RowAccess, require_rows
from vcomp.model.stored_levels import ObjectScores, StoredDifferences, StoredLevels, StoredTerm

if TYPE_CHECKING:
    import pandas as pd


def factors_of(access: RowAccess) -> list[str]:
    """Return the factors of the fixed part as written."""
    fixed = access.data.design.fixed
    info = fixed.design_info
    if info is None:
        return []
    apart = [] if fixed.factor is None else [fixed.factor.code]
    return apart + [f.factor.code for f in info.factor_infos.values() if f.type == "categorical"]


def column_means(access: RowAccess) -> FloatArray | None:
    """Return the means of the columns of X over the rows; None if they do not add up to 1."""
    data, design = access.data, access.data.design
    if not design.constant.any():
        return None
    return design.x_origin + data.column_products(design.constant) / data.statistics.n


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
    fixed = access.data.design.fixed
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


def term_levels(access: RowAccess, term: int, predicted: EffectSolution) -> TermLevels:
    """Return the predicted effects of a term.

    Raises
    ------
    EstimationError
        If its component is not estimated above zero.
    """
    design, stats, v = access.data.design, access.data.statistics, access.components
    name = design.terms[term].name
    if not v[term] > 0.0:
        written = in_formula(name)
        raise EstimationError(
            f"the component of {name} is estimated at zero, so that all of its predicted effects "
            f"are zero; to compare the levels as fixed, fit C({written}) in place of (1|{written})"
        )
    row = average_rows(design.fixed, column_means(access)) - design.x_origin
    return TermLevels(
        index=design.group_index(term),
        effects=predicted.of_terms[term],
        centre=float(design.mean(row, predicted.beta).sum()),
        variances=lambda pairs: difference_variances(stats, v, term, pairs),
    )


def omitted_term(access: RowAccess, facet: str) -> str:
    """Return the term that the model lacks for cells with several scores of a factor; or ""."""
    structure = access.data.design.structure
    facets = [name for name in structure.facets if name != REPLICATE]
    if access.data.rows is None or structure.cell_max < 2 or not facets:
        return ""
    rows, kept = access.data.statistics.single_rows, access.data.fixed_columns
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


_ROWS, _EFFECTS, _LEVELS = 250_000, 5_000, 2_000
"""Largest numbers of rows, of effects of all terms, and of levels of a term at which levels are
stored by default: a fraction of the time of the fit, and some hundred kilobytes."""

_COMPARED = 300
"""Largest number of levels whose differences are stored: these grow with the square."""

_ELEMENTS = 250_000
"""Largest number of stored elements of the rows of X of a factor."""


def with_levels(record: FitRecord, access: RowAccess | None, scores: bool | None) -> FitRecord:
    """Return a record with the values of its levels.

    Parameters
    ----------
    record, access : of the fit
    scores : whether to store such values; None to store the cheap ones

    Raises
    ------
    DataError
        If `scores` is True, and the result has neither rows nor such values.
    """
    if scores is False:
        return replace(record, level_values=None)
    if access is None:
        if scores and record.level_values is None:
            require_rows(access)
        return record
    if record.components.matrices:
        if scores:
            out = "leave scores= out"
            refuse("scores=True", record.traits, slopes=out, residuals=out)
        return record
    return replace(record, level_values=_Levels(record, access, everything=bool(scores)).found())


class _Levels:
    """Collector of the levels of a fit, term by term, with reasons for omissions."""

    def __init__(self, record: FitRecord, access: RowAccess, *, everything: bool) -> None:
        self.record, self.access, self.everything = record, access, everything
        self.no_scores: dict[str, str] = {}
        self.no_differences: dict[str, str] = {}

    def found(self) -> StoredLevels:
        """Return the levels of all terms and factors."""
        design, terms = self.access.data.design, {}
        effects = self._effects()
        for t, term in enumerate(design.terms if effects is not None else ()):
            assert effects is not None
            objects = self._objects(t, effects)
            differences = self._differences(t, effects)
            if objects is not None or differences is not None:
                terms[term.name] = StoredTerm(design.group_index(t), objects, differences)
        factors = [self._factor(code) for code in factors_of(self.access)]
        kept = tuple(rows for rows in factors if rows is not None)
        return StoredLevels(terms, kept, self.no_scores, self.no_differences)

    def _effects(self) -> EffectSolution | None:
        """Return the predicted effects, None if no term can be stored."""
        stats, names = self.access.data.statistics, self.record.estimate.names[:-1]
        try:
            if not self.everything and sum(stats.sizes) > _EFFECTS and stats.strata is None:
                raise _too_many("scores and comparisons", sum(stats.sizes), "effects", _EFFECTS)
            return self.access.effects
        except VcompError as error:
            for reasons in (self.no_scores, self.no_differences):
                reasons.update(dict.fromkeys(names, str(error)))
            return None

    def _objects(self, term: int, effects: EffectSolution) -> ObjectScores | None:
        n_rows, size = self.record.structure.n_rows, self.access.data.statistics.sizes[term]
        name = self.record.estimate.names[term]
        try:
            if not self.everything and n_rows > _ROWS:
                raise _too_many(f"universe scores of {name}", n_rows, "rows", _ROWS)
            if not self.everything and size > _LEVELS:
                raise _too_many(f"universe scores of {name}", size, "levels", _LEVELS)
            return object_scores(self.access, self.record.components, term, effects)
        except VcompError as error:
            self.no_scores[name] = str(error)
            return None

    def _differences(self, term: int, effects: EffectSolution) -> StoredDifferences | None:
        name, size = self.record.estimate.names[term], self.access.data.statistics.sizes[term]
        try:
            if size > _COMPARED:
                raise VcompError(
                    f"comparisons of {name} were not stored: {size:,} levels have "
                    f"{size * (size - 1) // 2:,} differences, and errors of differences are "
                    f"stored for up to {_COMPARED} levels; fit the model again"
                )
            levels = term_levels(self.access, term, effects)
            return StoredDifferences.of(levels.effects, levels.centre, levels.variances)
        except VcompError as error:
            self.no_differences[name] = str(error)
            return None

    def _factor(self, code: str) -> LevelRows | None:
        try:
            rows = factor_rows(self.access, code, _ELEMENTS)
        except VcompError as error:
            self.no_differences[code] = str(error)
            return None
        levels, absent = (tuple(map(_atom, some)) for some in (rows.levels, rows.not_estimable))
        return replace(rows, levels=levels, not_estimable=absent)


def _too_many(what: str, n: int, of: str, most: int) -> VcompError:
    return VcompError(
        f"{what} were not stored: {n:,} {of} are more than {most:,}; fit the model again, and "
        "store it by to_json(path, scores=True)"
    )


def _atom(level: Any) -> Any:
    plain = plain_label(level)
    return plain if isinstance(plain, str | int | float) else str(plain)
