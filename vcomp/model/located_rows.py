"""Rows coded by the design of a fit, for predictions: their groups, seen or new, and their X."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.data import of_other_kind, plain_label, select_predictors
from vcomp.design import Design, ResidualLevels, number_combinations
from vcomp.exceptions import DataError, did_you_mean, warn
from vcomp.numerics import MixedColumns, dense_columns
from vcomp.statistics.batches import SummedData

if TYPE_CHECKING:
    import pandas as pd


Level: TypeAlias = str | Sequence[str]
NewLevels: TypeAlias = Literal["zero", "raise"]

_SHOWN = 3
"""Largest number of new levels that a message names."""


def included_terms(level: Level, names: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of the terms that a level of prediction includes.

    Parameters
    ----------
    level : ``"population"`` for none, ``"all"``, the name of a term, or several
    names : of all terms

    Raises
    ------
    DataError
        If there is no such term; the message lists the terms.
    """
    if isinstance(level, str):
        if level == "all":
            return tuple(range(len(names)))
        if level == "population":
            return ()
        level = (level,)
    known = (*names,)
    try:
        wanted = list(dict.fromkeys(level))
    except TypeError:
        raise DataError(f"level must be a name or a list of names, not {level!r}") from None
    for name in wanted:
        if name not in known:
            hint = did_you_mean(name, [*known, "population", "all"])
            raise DataError(
                f"level {name!r} is not known{hint}; it is 'population', 'all', or terms of the "
                f"model: {', '.join(map(repr, known))}",
                term=name,
            )
    return tuple(sorted(known.index(name) for name in wanted))


@dataclass(frozen=True)
class Located:
    """Rows coded by a design: the group of each row in every term, and X.

    Attributes
    ----------
    labels : (n,) of the rows
    X : (n, p) fixed part, centred
    groups : for each term the (n,) groups, −1 for a group that did not occur in the fit
    slopes : for each term the column that its effects are multiplied by, None for ones; empty in a
        model of intercepts with one residual
    residuals : (n,) residual group; None with one for all, or where errors do not matter
    offset : (n,) offset of each row; None without
    weights : (n,) weight of each row; None for 1
    """

    labels: pd.Index
    X: FloatArray | MixedColumns
    groups: tuple[Any, ...]
    slopes: tuple[FloatArray | None, ...] = ()
    residuals: IntArray | None = None
    offset: FloatArray | None = None
    weights: FloatArray | None = None

    @classmethod
    def of(
        cls,
        fitted: SummedData,
        data: Any,
        terms: Sequence[int],
        new_levels: NewLevels,
        *,
        errors: bool = False,
    ) -> Located:
        """Return the groups of the rows of the fit, or of other data.

        Parameters
        ----------
        terms : whose groups matter
        new_levels : ``"raise"`` refuses groups of these terms that did not occur in the fit
        errors : whether the residual variance of each row is needed

        Raises
        ------
        DataError
            If a column is missing, or a level is new and ``new_levels="raise"``, or has no
            residual variance.
        """
        if new_levels not in ("zero", "raise"):
            raise DataError(f"new_levels={new_levels!r} is not known; it is 'zero' or 'raise'")
        if data is None:
            rows = fitted.kept_rows
            chunk, columns = fitted.statistics.single_rows, fitted.fixed_columns
            slopes = slope_columns(fitted.design, columns, chunk.response.size)
            residuals = chunk.residual_codes
            known = residuals, rows.offset, rows.weights
            return cls(rows.labels, chunk.columns, chunk.codes, slopes, *known)
        design = fitted.design
        needed = {f: design.facets[f].name for t in terms for f in design.terms[t].facets}
        residual = design.residual if errors else None
        of_residual = () if residual is None else residual.groups.facets
        facets, fixed, labels, beside = select_predictors(
            design.formula,
            data,
            fitted.reading,
            fitted.fixed_columns,
            (*needed.values(), *of_residual),
        )
        n = len(labels)
        X = design.fixed.matrix(fixed, n, design.x_origin)
        codes = {f: design.facets[f].codes(facets[name]) for f, name in needed.items()}
        groups = tuple(
            term.groups(codes, design.n_levels) if t in terms else np.full(n, -1, np.int32)
            for t, term in enumerate(design.terms)
        )
        if new_levels == "raise":
            _refuse_new(design, terms, facets, codes, groups)
        else:
            _warn_of_new_facets(design, terms, facets, codes)
        residuals = None if residual is None else _residual_codes(residual, facets)
        return cls(labels, X, groups, slope_columns(design, fixed, n), residuals, *beside)

    @cached_property
    def combinations(self) -> tuple[LongArray, LongArray]:
        """The first row of each combination of groups and X, and the combination of each row."""
        number, size = np.zeros(len(self.labels), dtype=np.int32), 1
        columns = dense_columns(self.X).T if len(self.labels) else ()
        for column in (*self.groups, *columns):
            values, codes = np.unique(column, return_inverse=True)
            if values.size > 1:
                keys, number = number_combinations(number, size, codes, values.size)
                size = keys.size
        first = np.unique(number, return_index=True)[1]
        return first, number.astype(np.int64)


def slope_columns(design: Design, columns: Any, n_rows: int) -> tuple[FloatArray | None, ...]:
    """Return for each term the column that its effects are multiplied by; nothing without any.

    Parameters
    ----------
    design : of the fit
    columns : of the fixed part
    n_rows : their number of rows
    """
    return () if design.blocks is None else design.blocks.values(columns, n_rows, centred=False)


def _residual_codes(residual: ResidualLevels, facets: Mapping[str, pd.Series]) -> IntArray:
    """Return the residual group of new rows.

    Raises
    ------
    DataError
        If one did not occur in the fit.
    """
    codes = residual.codes(facets)
    if codes.size and codes.min() < 0:
        row = int(np.argmin(codes))
        level = tuple(str(plain_label(facets[f].iloc[row])) for f in residual.groups.facets)
        raise DataError(
            f"{residual.groups.level_name(level)} did not occur in the fit, and has no residual "
            "variance that the error of a new score needs; predict() has no errors",
            level=level[0],
        )
    return codes


_ZERO = "new_levels='zero' predicts their effects as zero"


def _refuse_new(
    design: Design, terms: Sequence[int], facets: Any, codes: Any, groups: Sequence[Any]
) -> None:
    wanted = {f for t in terms for f in design.terms[t].facets}
    for f in sorted(wanted):
        new = np.asarray(codes[f]) < 0
        if new.any():
            name = design.facets[f].name
            found = list(dict.fromkeys(facets[name][new].tolist()))
            why = of_other_kind(facets[name], design.facets[f].levels)
            raise DataError(
                f"facet {name!r} has {_named(found)}, which did not occur in the fit"
                f"{f'{why}, or' if why else ';'} {_ZERO}",
                column=name,
                level=found[0],
            )
    for t in terms:
        new = groups[t] < 0
        if new.any():
            names = [design.facets[f].name for f in design.terms[t].facets]
            columns = [facets[name][new].tolist() for name in names]
            found = list(dict.fromkeys(zip(*columns, strict=True)))
            raise DataError(
                f"term {design.terms[t].name!r} has {_named(found)}, a combination that did not "
                "occur in the fit; new_levels='zero' predicts its effect as zero",
                level=found[0],
                term=design.terms[t].name,
            )


def _named(levels: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, levels[:_SHOWN]))
    more = len(levels) - _SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def _warn_of_new_facets(design: Design, terms: Sequence[int], facets: Any, codes: Any) -> None:
    wanted = {f for t in terms for f in design.terms[t].facets}
    for f in sorted(wanted):
        facet, known = design.facets[f], np.asarray(codes[f])
        if known.size and (known < 0).all():
            why = of_other_kind(facets[facet.name], facet.levels)
            warn(
                f"no level of facet {facet.name!r} occurred in the fit"
                f"{why or f', which has levels such as {plain_label(facet.levels[0])!r}'}; its "
                "effects are predicted as zero"
            )
