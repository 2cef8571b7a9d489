"""Marginal means of factors of the fixed part, and their differences in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import DataError, PlanError, check_alpha, check_one_of, did_you_mean, is_real
from vcomp.formula import GridFactor, ReferenceGrid, factors_in, quoted
from vcomp.inference.hypotheses import CovarianceOfFixed, DegreesOfFreedom
from vcomp.inference.pairwise import CORRECTED, CorrectionName, PairwiseComparisons
from vcomp.markup import encodable
from vcomp.model.estimates import fixed_fit
from vcomp.model.level_comparisons import (
    ComparedLevels,
    Differences,
    LevelTest,
    check_options,
    errors_in_words,
    label_of,
    of_compared,
    place_of,
)
from vcomp.model.levels_of_rows import column_means
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess
from vcomp.numerics import check_memory

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class MarginalMeans(display.Printed):
    """Marginal means of factors of the fixed part with their intervals; ``print`` shows them.

    Attributes
    ----------
    table : a row for each combination of levels, those of `by` first: ``mean``, ``std_error``,
        ``df``, ``low`` and ``high``, and the letters ``group``. Two levels with the same `by`
        share a letter if, and only if, their difference is not significant. nan, and no letter,
        where a mean is not estimable
    pairs : a row for each pair of combinations with the same `by`: the columns of `by`, then those
        of :attr:`PairwiseComparisons.table <vcomp.inference.pairwise.PairwiseComparisons.table>`
    facets : the factors; none of the mean over all of them
    by : factors within whose levels means are compared
    comparisons : of each combination of levels of `by` the comparison in pairs, where two means
        are estimable; by the level, or a tuple of levels
    alpha : intervals have confidence 1 − alpha
    notes : sentences on the means
    """

    table: pd.DataFrame
    pairs: pd.DataFrame
    facets: tuple[str, ...]
    by: tuple[str, ...]
    comparisons: Mapping[Any, PairwiseComparisons]
    alpha: float
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        within = f" by {', '.join(self.by)}" if self.by else ""
        facets = ", ".join(self.facets) or "all"
        return encodable(f"<MarginalMeans of {facets}{within}: {len(self.table)}>")

    def summary(self) -> Any:
        """Return the printable table of the means.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        table = self.table
        cells = {
            "mean": display.fixed(table["mean"]),
            "std. err.": display.fixed(table["std_error"], significant=3),
            "df": display.fixed(table["df"], decimals=1),
            f"{display.level(self.alpha)} interval": display.short_intervals(
                table["low"], table["high"]
            ),
            "group": list(table["group"]),
        }
        if not np.isfinite(table["df"]).any():
            del cells["df"]
        if not self.comparisons:
            del cells["group"]
        stubs = [str(label_of(row)) for row in table.index]
        title = f"Marginal means of {':'.join((*self.by, *self.facets)) or _OVERALL}"
        align = "r" * (len(cells) - 1) + ("l" if self.comparisons else "r")
        tables = [display.column_table(cells, title=title, stubs=stubs, align=align)]
        return display.summary(tables, list(self.notes))


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """The combinations of levels that have a mean each.

    Attributes
    ----------
    factors : those of `by`, then the facets
    names : under which they were asked for
    levels : of each factor the (n,) level in each combination; the last factor is the fastest
    X : (n, p) rows
    estimable : (n,)
    """

    factors: tuple[GridFactor, ...]
    names: tuple[str, ...]
    levels: tuple[LongArray, ...]
    X: FloatArray
    estimable: BoolArray

    def labels(self, places: LongArray) -> list[tuple[Any, ...]]:
        """Return the levels of some factors, by their places, in each combination."""
        columns = [
            [label_of(self.factors[k].levels[level]) for level in self.levels[k]] for k in places
        ]
        return list(zip(*columns, strict=True)) if columns else [(_OVERALL,)] * len(self.X)


def marginal_means(
    record: FitRecord,
    access: RowAccess | None,
    facets: str | Sequence[str],
    by: str | Sequence[str] | None,
    at: Mapping[str, Any] | None,
    test: LevelTest,
    correction: CorrectionName | None,
    alpha: float,
    ddf: DegreesOfFreedom,
    cov_type: CovarianceOfFixed,
) -> MarginalMeans:
    """Return the marginal means with their differences in pairs.

    Parameters
    ----------
    record, access : of the fit; None without rows
    facets, by, at, test, correction, alpha, ddf, cov_type : as of
        ``VarianceComponentsResults.marginal_means``
    """
    import pandas as pd

    check_alpha(alpha)
    check_one_of("test", test, ("t", "tukey", "max-t"))
    check_options(test, None, correction)
    if access is None:
        raise DataError(
            "this result was loaded without its rows, which marginal_means() needs; fit the model "
            "again, or compare the levels of one factor with compare_levels()"
        )
    names = _names(facets)
    within = () if by is None else _names(by)
    grid, notes = _grid(record, access, (*within, *names), dict(at or {}))
    rows, tests = np.flatnonzero(grid.estimable), fixed_fit(record, access)
    found = tests.of_rows(grid.X[rows], alpha, ddf, cov_type)
    offset = record.mean_offset
    notes += record.on_offset
    table = pd.DataFrame(index=_index(grid, range(len(grid.names))))
    for column, source in _COLUMNS.items():
        values = np.full(len(table), np.nan)
        values[rows] = found[source]
        table[column] = values + offset if column in ("mean", "low", "high") else values
    groups = np.full(len(table), "", dtype=object)
    comparisons = dict[Any, PairwiseComparisons]()
    tables = []
    for key, members in _groups(grid, len(within)).items():
        kept = members[grid.estimable[members]]
        groups[kept] = "a"
        if kept.size < 2:
            continue
        compared = _compared(record, access, grid, kept, len(within), ddf, cov_type)
        result = of_compared(
            record, ":".join(names), compared, test, None, None, correction, alpha
        )
        letters = result.groups["group"]
        groups[kept] = letters.reindex(list(result.means.index)).to_numpy()
        comparisons[key[0] if len(key) == 1 else key] = result
        tables.append(_with_levels(result.table, within, key))
    table["group"] = groups
    if tables:
        among = f"Of the same {display.listed(within)}, two" if within else "Two"
        notes.append(f"{among} means share a letter if their difference is not significant.")
        first = next(iter(comparisons.values()))
        notes.append(f"Differences: {first.test}{_adjusted(first)}.")
    return MarginalMeans(
        table=table,
        pairs=pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(),
        facets=names,
        by=within,
        comparisons=comparisons,
        alpha=alpha,
        notes=(*notes, *record.caveats),
    )


_OVERALL = "all"
"""Label of the mean over all factors."""

_COLUMNS = {"mean": "coef", "std_error": "std_error", "df": "df", "low": "low", "high": "high"}


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of factors, given as a list or as text such as ``a:b``."""
    names = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in names):
        raise PlanError(f"factors are given by their names, one or a list of them, not {given!r}")
    return tuple(part.strip() for name in names for part in factors_in(name))


def _grid(
    record: FitRecord, access: RowAccess, names: tuple[str, ...], at: dict[str, Any]
) -> tuple[_Grid, list[str]]:
    """Return the combinations of levels, with notes on other factors and covariates."""
    grid = ReferenceGrid.of(access.data.design.fixed)
    factors = [_factor(record, grid, name) for name in names]
    twice = [name for k, name in enumerate(names) if factors[k] in factors[:k]]
    if twice:
        raise PlanError(f"factor {twice[0]!r} is named twice", column=twice[0])
    chosen = _chosen_levels(grid, at)
    point = _point(grid, access, at)
    _check_unweighted(factors, names, chosen)
    choices = [list(chosen.get(f.code, range(len(f.levels)))) for f in factors]
    n = int(np.prod([len(choice) for choice in choices]))
    check_memory(
        24.0 * n * len(record.exog_names),
        f"the means of {n:,} combinations of levels need",
        "name fewer factors, or levels by at={…}",
    )
    combinations = np.array(list(product(*choices)), dtype=np.int64).reshape(n, len(factors))
    levels = tuple(combinations.T)
    weights = {
        factor.code: np.repeat(_weights(chosen[factor.code], factor)[None, :], n, axis=0)
        for factor in grid.factors
        if factor.code in chosen
    }
    weights |= {f.code: np.eye(len(f.levels))[of] for f, of in zip(factors, levels, strict=True)}
    X, estimable = grid.rows(n, weights, point)
    found = _Grid(tuple(factors), names, levels, X, estimable)
    return found, _notes(grid, found, chosen, point)


def _weights(chosen: Mapping[int, float], factor: GridFactor) -> FloatArray:
    """Return the weights of all levels of a factor, with a sum of 1."""
    weights = np.zeros(len(factor.levels))
    weights[list(chosen)] = list(chosen.values())
    return np.asarray(weights / weights.sum())


def _check_unweighted(
    factors: Sequence[GridFactor], names: Sequence[str], chosen: Mapping[str, Mapping[int, float]]
) -> None:
    """Refuse weights of the levels of a factor that has a mean at each."""
    for factor, name in zip(factors, names, strict=True):
        if len(set(chosen.get(factor.code, {}).values())) > 1:
            raise PlanError(
                f"at has weights of the levels of {name}, which have a mean each: name them as a "
                "list",
                column=name,
            )


def _factor(record: FitRecord, grid: ReferenceGrid, name: str) -> GridFactor:
    """Return the factor of a name.

    Raises
    ------
    PlanError
        If it is no factor of the fixed part.
    """
    factor = grid.factor(name)
    if factor is not None:
        return factor
    if name in grid.covariates:
        raise PlanError(
            f"{name!r} is a numerical covariate, which has no levels; write C({quoted(name)}) in "
            f"the formula for means at its values, or at={{{name!r}: …}} for means at one value",
            column=name,
        )
    known = [names for factor in grid.factors for names in factor.names]
    if name in record.estimate.names[:-1]:
        raise PlanError(
            f"{name!r} is a random term, whose levels have predicted effects; "
            f"res.compare_levels({name!r}) compares them",
            term=name,
        )
    there = ", ".join(repr(f.code) for f in grid.factors) or "none"
    raise PlanError(
        f"{name!r} is not a factor of the fixed part{did_you_mean(name, known)}; factors are "
        f"{there}",
        column=name,
    )


def _chosen_levels(grid: ReferenceGrid, at: dict[str, Any]) -> dict[str, dict[int, float]]:
    """Return the levels that `at` names with their weights, by the code of their factor.

    Raises
    ------
    PlanError
        If a name is neither a factor nor a covariate, or no level is named.
    DataError
        If a factor has no such level.
    """
    chosen = {}
    for name, value in at.items():
        factor = grid.factor(str(name))
        if factor is None and name in grid.covariates:
            continue
        if factor is None:
            known = [*(names for f in grid.factors for names in f.names), *grid.covariates]
            raise PlanError(
                f"at names {name!r}, which is not in the fixed part{did_you_mean(name, known)}; "
                f"there are {', '.join(map(repr, known)) or 'none'}",
                column=str(name),
            )
        given = list(value) if isinstance(value, list | tuple | np.ndarray | Mapping) else [value]
        places = [place_of(str(name), factor.levels, level) for level in given]
        if not places or len(set(places)) < len(places):
            raise PlanError(
                f"at[{name!r}] is a level of {name}, or a list of different levels, not {value!r}",
                column=str(name),
            )
        weights = list(value.values()) if isinstance(value, Mapping) else [1.0] * len(places)
        if not all(is_real(w) and 0.0 <= w < np.inf for w in weights) or not any(weights):
            raise PlanError(
                f"weights of levels are numbers from 0, not all 0; at[{name!r}] is {value!r}",
                column=str(name),
            )
        chosen[factor.code] = dict(zip(places, map(float, weights), strict=True))
    return chosen


def _point(grid: ReferenceGrid, access: RowAccess, at: dict[str, Any]) -> dict[str, float]:
    """Return the value of each covariate: as given, else its mean over the rows.

    Raises
    ------
    PlanError
        If a value is not a number.
    DataError
        If a mean is not known.
    """
    point = {}
    for name in grid.covariates:
        if name not in at:
            point[name] = _mean(access, name)
            continue
        value = at[name]
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not is_number or not np.isfinite(value):
            raise PlanError(
                f"at[{name!r}] is one finite number, as {name} is a covariate, not {value!r}; for "
                "several values call marginal_means() several times",
                column=name,
            )
        point[name] = float(value)
    return point


def _mean(access: RowAccess, name: str) -> float:
    data = access.data
    column = data.fixed_columns.get(name)
    if data.rows is not None and getattr(column, "dtype", None) is not None:
        values = np.asarray(column)
        if values.dtype.kind in "fiub":
            return float(values.mean(dtype=float))
    names, means = data.design.fixed.names, column_means(access)
    if name in names and means is not None:
        return float(means[names.index(name)])
    raise DataError(
        f"the mean of {name!r} is not known, as the rows are not kept; give a value by "
        f"at={{{name!r}: …}}",
        column=name,
    )


def _notes(
    grid: ReferenceGrid,
    found: _Grid,
    chosen: dict[str, dict[int, float]],
    point: dict[str, float],
) -> list[str]:
    """Return sentences on other factors, covariates and means that are not estimable."""
    notes, codes = [], {factor.code for factor in found.factors}
    others = [factor.code for factor in grid.factors if factor.code not in codes | chosen.keys()]
    if others:
        notes.append(f"Averaged with equal weights over {display.listed(others)}.")
    for factor in grid.factors:
        if factor.code in chosen and factor.code not in codes:
            of_levels = chosen[factor.code].items()
            alike = len({weight for _, weight in of_levels}) == 1
            levels = [
                str(label_of(factor.levels[k]))
                + ("" if alike else f" (weight {display.number(weight)})")
                for k, weight in of_levels
            ]
            notes.append(f"{factor.code}: {', '.join(levels)}.")
    if point:
        values = [f"{name} = {display.number(value)}" for name, value in point.items()]
        notes.append(f"Covariates: {', '.join(values)}.")
    absent = np.flatnonzero(~found.estimable)
    if absent.size:
        labels = found.labels(np.arange(len(found.names)))
        listed = ", ".join(str(label_of(labels[k])) for k in absent)
        notes.append(f"Not estimable, as some combinations of levels have no rows: {listed}.")
    return notes


def _index(grid: _Grid, places: Sequence[int]) -> Any:
    import pandas as pd

    labels = grid.labels(np.array(places))
    names = [grid.names[k] for k in places] or [""]
    if len(names) == 1:
        return pd.Index(pd.Series([one for (one,) in labels], dtype=object), name=names[0])
    return pd.MultiIndex.from_tuples(labels, names=names)


def _groups(grid: _Grid, n_by: int) -> dict[tuple[Any, ...], LongArray]:
    """Return the combinations with the same levels of `by`."""
    if not n_by:
        return {(): np.arange(len(grid.X))}
    members: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(grid.labels(np.arange(n_by))):
        members.setdefault(key, []).append(place)
    return {key: np.array(places) for key, places in members.items()}


def _compared(
    record: FitRecord,
    access: RowAccess,
    grid: _Grid,
    kept: LongArray,
    n_by: int,
    ddf: DegreesOfFreedom,
    cov_type: CovarianceOfFixed,
) -> ComparedLevels:
    """Return combinations with the same levels of `by`, as levels that are compared."""
    X, fit = grid.X[kept], fixed_fit(record, access)
    labels = grid.labels(np.arange(n_by, len(grid.names)))
    names = [labels[k][0] if len(labels[k]) == 1 else labels[k] for k in kept]

    def tested(pairs: tuple[LongArray, LongArray]) -> Differences:
        return fit.differences(X, pairs, ddf, cov_type)

    words = errors_in_words(ddf, cov_type)
    return ComparedLevels(tuple(names), X @ record.estimate.beta, tested, *words, ())


def _with_levels(table: pd.DataFrame, by: tuple[str, ...], key: tuple[Any, ...]) -> pd.DataFrame:
    table = table.copy()
    for place, (name, level) in enumerate(zip(by, key, strict=True)):
        table.insert(place, name, level)
    return table


def _adjusted(result: PairwiseComparisons) -> str:
    """Return how p-values are adjusted, if the test is not one of all pairs."""
    return "" if result.correction is None else f"; p {CORRECTED[result.correction]}"
