"""What a result without rows keeps of its levels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vcomp.data import plain_label
from vcomp.exceptions import VcompError
from vcomp.formula import LevelRows
from vcomp.model.levels_of_rows import factor_rows, factors_of, term_levels
from vcomp.model.record import FitRecord
from vcomp.model.row_access import PredictedEffects, RowAccess, require_rows
from vcomp.model.stored_levels import ObjectScores, StoredDifferences, StoredLevels, StoredTerm
from vcomp.model.universe_scores import object_scores

_ROWS, _EFFECTS, _LEVELS = 250_000, 5_000, 2_000
"""Rows, effects of all terms, and levels of a term up to which levels are stored by default: a
fraction of the time of the fit, and some hundred kilobytes."""

_COMPARED = 300
"""Levels whose differences are stored: their number grows with the square."""

_ELEMENTS = 250_000
"""Elements of the rows of X of a factor that are stored."""


def with_levels(record: FitRecord, access: RowAccess | None, scores: bool | None) -> FitRecord:
    """Return a record with the values of its levels.

    Parameters
    ----------
    record, access : of the fit
    scores : whether there are such values; None for those that are cheap

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
    return replace(record, level_values=_Levels(record, access, everything=bool(scores)).found())


class _Levels:
    """The levels of a fit, gathered term by term, with reasons for what is left out."""

    def __init__(self, record: FitRecord, access: RowAccess, *, everything: bool) -> None:
        self.record, self.access, self.everything = record, access, everything
        self.no_scores: dict[str, str] = {}
        self.no_differences: dict[str, str] = {}

    def found(self) -> StoredLevels:
        """Return the levels of all terms and factors."""
        design, terms = self.access.model.design, {}
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

    def _effects(self) -> PredictedEffects | None:
        """Return the predicted effects, None if no term can be stored."""
        stats, names = self.access.model.statistics, self.record.estimate.names[:-1]
        try:
            if not self.everything and sum(stats.sizes) > _EFFECTS and stats.strata is None:
                raise _too_many("scores and comparisons", sum(stats.sizes), "effects", _EFFECTS)
            return self.access.effects
        except VcompError as error:
            for reasons in (self.no_scores, self.no_differences):
                reasons.update(dict.fromkeys(names, str(error)))
            return None

    def _objects(self, term: int, effects: PredictedEffects) -> ObjectScores | None:
        n_rows, size = self.record.structure.n_rows, self.access.model.statistics.sizes[term]
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

    def _differences(self, term: int, effects: PredictedEffects) -> StoredDifferences | None:
        name, size = self.record.estimate.names[term], self.access.model.statistics.sizes[term]
        try:
            if size > _COMPARED:
                raise VcompError(
                    f"comparisons of {name} were not stored: {size:,} levels have "
                    f"{size * (size - 1) // 2:,} differences, and errors of differences are "
                    f"stored of up to {_COMPARED} levels; fit the model again"
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
