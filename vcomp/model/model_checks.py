"""Checks of a fit: the estimates of other methods, and the diagnosis of its assumptions.

Cross-check: all methods estimate the same components if the model is correct: normal effects,
independent of each other and of how often their groups were observed. Data are drawn from the fit
and estimated by all methods, which shows how much their estimates differ if the model is correct,
bounds at zero and the bias of ML included. A larger difference contradicts the model: this is a
specification test (Hausman 1978, Econometrica 46, 1251-1271) with a simulated null distribution.

Diagnosis: the predicted effects, rows and tables of crossed facets that
:mod:`vcomp.inference.assumptions` tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.data import Rows
from vcomp.design import Chunk, Design
from vcomp.estimators import ClosedForm, Estimate, MethodName, PointEstimate, get_estimator
from vcomp.estimators.likelihood import Solution
from vcomp.exceptions import EstimationError, PlanError, VcompError, did_you_mean
from vcomp.formula import refuse, traits_of
from vcomp.inference.assumptions import (
    DiagnosedRows,
    Diagnosis,
    FittedRows,
    OwnVariances,
    PredictedEffects,
    Projection,
    TwoWayTable,
    assess,
)
from vcomp.inference.intervals import BelowZero
from vcomp.inference.resampling import Recipe, Refitted, drawn_refits
from vcomp.model.prediction import fitted_values
from vcomp.model.row_access import RowAccess
from vcomp.model.slopes import is_numerical, missing_slopes
from vcomp.numerics import check_count, check_memory, check_time_limit, limited_blas, seed_from
from vcomp.statistics import Statistics

if TYPE_CHECKING:
    import pandas as pd


_FAR = 3.0
"""Smallest marked difference in standard errors; it must also exceed those in all drawn data."""

_NOTHING = 1e-4
"""Largest difference, in standard errors of the estimate, that tolerances explain."""

_LITTLE = 0.1
"""Smallest marked deviation from the expected difference, in standard errors of the estimate."""

_FEWEST = 20
"""Smallest number of replicates for a standard error."""


@dataclass(frozen=True)
class CrossCheck(display.Printed):
    """Estimates of several methods compared with those of a fit; ``print`` shows them.

    Attributes
    ----------
    table : a row for each component and method, with the columns

        ``component``, ``method``, ``estimate``
            the estimate of the method from the same data
        ``difference``, ``expected``, ``std_error``
            its difference from the estimate of the fit; the mean of the difference over data drawn
            from the fit (such as the bias of ML), and its standard deviation there
        ``z``, ``differs``
            (difference − expected)/std_error; and whether z is beyond 3, the difference beyond
            those in all drawn data, and at least a tenth of a standard error of the estimate away
            from the expected one. z is 0 if methods agree to 1e-4 standard errors of the estimate,
            and nan if fewer than 20 drawn data sets could be estimated
    fixed_effects : the same for the fixed effects, with ``coefficient`` for ``component``
    excluded : methods that do not apply, with the reason
    method : of the fit
    n : number of drawn data sets
    seed : of the drawn data sets
    """

    table: pd.DataFrame
    fixed_effects: pd.DataFrame
    excluded: Mapping[str, str]
    method: str
    n: int
    seed: int

    @property
    def agrees(self) -> bool | None:
        """Whether no method differs by more than sampling error explains; None if not known."""
        if len(self.table) and self.table["std_error"].isna().all():
            return None
        return not (self.table["differs"].any() or self.fixed_effects["differs"].any())

    def summary(self) -> Any:
        """Return a summary: estimates side by side, and where they differ."""
        methods = list(dict.fromkeys(self.table["method"]))
        names = list(dict.fromkeys(self.table["component"]))
        by_method = self.table.set_index(["method", "component"])
        columns = {self.method: self._own(names)}
        for method in methods:
            part = by_method.loc[method].loc[names]
            marks = np.where(part["differs"], " *", "  ")
            columns[method] = [
                f"{value}{mark}"
                for value, mark in zip(display.fixed(part["estimate"]), marks, strict=True)
            ]
        table = display.column_table(
            columns,
            title="Variance components by several methods",
            stubs=names,
        )
        return display.summary([table], self._notes())

    def _own(self, names: Sequence[str]) -> list[str]:
        first = self.table.drop_duplicates("component").set_index("component").loc[list(names)]
        return display.fixed(first["estimate"] - first["difference"])

    def _notes(self) -> list[str]:
        notes = []
        for frame, what, write in (
            (self.table, "component", "σ²({})".format),
            (self.fixed_effects, "coefficient", "{}".format),
        ):
            for row in frame[frame["differs"]].to_dict("records"):
                notes.append(
                    f"* {write(row[what])} by {row['method']} differs by "
                    f"{display.number(row['difference'], 3)}; expected is "
                    f"{display.number(row['expected'], 2)} ± "
                    f"{display.number(row['std_error'], 2)} (z = {display.number(row['z'], 2)})."
                )
        if notes:
            notes.append(
                "More than sampling error explains: effects may depend on how often their groups "
                "were observed, or their variances differ between parts of the data."
            )
        elif len(self.table) and self.table["std_error"].isna().all():
            notes.append(
                "Whether they differ by more than sampling error explains is not known: at least "
                f"{_FEWEST} drawn data sets are needed."
            )
        elif len(self.table):
            notes.append("No method differs by more than sampling error explains.")
        notes += [f"{method}: {reason}" for method, reason in self.excluded.items()]
        notes.append(
            f"Sampling error: from {self.n:,} data sets drawn from the fit by {self.method}, "
            f"seed {self.seed}."
        )
        return notes


def crosscheck(
    access: RowAccess,
    methods: Sequence[str] | str | None,
    n: int,
    rng: int | np.random.Generator | None,
    workers: int,
    time_limit: float | None,
    progress: bool | None,
) -> CrossCheck:
    """Return the estimates of other methods compared with those of a fit.

    Parameters
    ----------
    access : model and estimate
    methods, n, rng, workers, time_limit, progress : as of ``VarianceComponentsResults.crosscheck``
    """
    only = "only REML and ML estimate them: compare res with a fit by the other of these"
    has = traits_of(access.data.design.formula, access.data.weights)
    of_weights = "of the other methods only MINQUE has weights"
    refuse("crosscheck", has, slopes=only, residuals=only, weights=of_weights)
    n, workers = check_count(n, "n"), check_count(workers, "workers")
    check_time_limit(time_limit)
    seed, v = seed_from(rng), access.components
    if not v.any():
        raise EstimationError("all components are 0: the methods cannot differ")
    own = access.recipe()
    found, excluded = _estimates(access, own, _wanted(methods, own.estimator.name))
    if workers > 1:  # threads cannot share working memory
        found = [(replace(recipe, prepared=None), estimate) for recipe, estimate in found]
    recipes = [own, *(recipe for recipe, _ in found)]
    stats, fits = access.data.statistics, list[list[Refitted]]()
    if found:
        fits = drawn_refits(
            stats,
            recipes,
            v,
            n,
            rng=seed,
            workers=workers,
            time_limit=time_limit,
            progress=progress,
            label="crosscheck",
        )
    drawn = np.array([[_parameters(fit) for fit in row] for row in fits])
    drawn = drawn.reshape(-1, len(recipes), v.size + stats.Xy.size)
    table, fixed = _comparisons(access, found, drawn)
    return CrossCheck(table, fixed, excluded, own.estimator.name, len(drawn), seed)


def _wanted(methods: Sequence[str] | str | None, own: str) -> list[str]:
    if methods is None:
        return [m for m in get_args(MethodName) if m != own]
    requested = [methods] if isinstance(methods, str) else list(methods)
    return [m for m in dict.fromkeys(get_estimator(m).name for m in requested) if m != own]


def _estimates(
    access: RowAccess, own: Recipe, methods: Sequence[str]
) -> tuple[list[tuple[Recipe, Estimate | PointEstimate]], dict[str, str]]:
    """Return the estimates of the methods that apply, and the reasons against the others."""
    estimates, excluded = [], {}
    held = access.estimate.held
    values = dict(zip(access.estimate.names, access.estimate.values.tolist(), strict=True))
    for method in methods:
        likelihood = method in ("reml", "ml")
        if method == "anova" and not access.data.design.formula.intercept_only:
            excluded[method] = "does not apply: it needs a constant mean."
            continue
        if held and not likelihood:
            excluded[method] = f"does not apply: it cannot hold {', '.join(held)}."
            continue
        options: dict[str, Any] = {"hold": {name: values[name] for name in held}} if held else {}
        recipe = Recipe(get_estimator(method, **options), own.names, once=True)
        try:
            recipe, estimate = _estimated(access.data.statistics, recipe)
        except (VcompError, np.linalg.LinAlgError) as error:
            excluded[method] = f"does not apply: {error}."
            continue
        if estimate.converged:
            estimates.append((recipe, estimate))
        else:
            assert isinstance(estimate, Estimate)
            excluded[method] = estimate.status
    return estimates, excluded


def _estimated(stats: Statistics, recipe: Recipe) -> tuple[Recipe, Estimate | PointEstimate]:
    """Return an estimate, and the recipe prepared for other responses of the same rows.

    Standard errors of closed forms take longer than their estimates, and are not computed.
    """
    estimator, names = recipe.estimator, recipe.names
    if estimator.name in ("reml", "ml"):
        return recipe, estimator.estimate(stats, names)
    prepared = cast(ClosedForm, estimator).prepared(stats, names)
    (point,) = prepared([stats])
    recipe = replace(recipe, prepared=prepared)
    return recipe, point if point.converged else estimator.estimate(stats, names)


def _comparisons(
    access: RowAccess,
    others: Sequence[tuple[Recipe, Estimate | PointEstimate]],
    drawn: FloatArray,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the comparison of components and of fixed effects."""
    import pandas as pd

    fit, design = access.estimate, access.data.design
    k = fit.values.size
    T = design.transform
    components, coefficients = [], []
    for place, (recipe, other) in enumerate(others, start=1):
        values, method = other.values, recipe.estimator.name
        apart = drawn[:, place, :k] - drawn[:, 0, :k]
        columns = _compared(values - fit.values, apart, drawn[:, 0, :k])
        names = {"component": fit.names, "method": method, "estimate": values}
        components.append(pd.DataFrame({**names, **columns}))
        apart = (drawn[:, place, k:] - drawn[:, 0, k:]) @ T.T
        columns = _compared(T @ (other.beta - fit.beta), apart, drawn[:, 0, k:] @ T.T)
        estimate = design.uncentred(other.beta)
        names = {
            "coefficient": design.fixed.names, "method": method, "estimate": estimate,
        }  # fmt: skip
        coefficients.append(pd.DataFrame({**names, **columns}))
    return _joined(components, "component"), _joined(coefficients, "coefficient")


def _parameters(fit: Refitted) -> FloatArray:
    """Return components and fixed effects, nan if the estimation failed."""
    both = np.concatenate([fit.values, fit.beta])
    return both if fit.converged else np.full(both.size, np.nan)


def _joined(parts: Sequence[pd.DataFrame], name: str) -> pd.DataFrame:
    import pandas as pd

    if parts:
        return pd.concat(parts, ignore_index=True)
    columns = [name, "method", "estimate", "difference", "expected", "std_error", "z", "differs"]
    return pd.DataFrame(columns=columns).astype({"differs": bool})


def _compared(
    difference: FloatArray, drawn: FloatArray, estimates: FloatArray
) -> dict[str, FloatArray | np.ndarray]:
    """Compare differences with those in drawn data, (n, q), with `own` estimates of the fit."""
    has = np.isfinite(drawn).all(axis=1)
    drawn, estimates = drawn[has], estimates[has]
    if len(drawn) < _FEWEST:
        unknown = np.full(difference.size, np.nan)
        return {
            "difference": difference,
            "expected": unknown,
            "std_error": unknown,
            "z": unknown,
            "differs": np.zeros(difference.size, dtype=bool),
        }
    expected, spread = drawn.mean(axis=0), drawn.std(axis=0, ddof=1)
    error = estimates.std(axis=0, ddof=1)
    nothing = _NOTHING * error
    away = difference - expected
    same = np.minimum(np.abs(away), np.abs(difference)) <= nothing
    z = np.divide(away, np.maximum(spread, nothing), out=np.zeros(away.shape), where=~same)
    outside = (difference < drawn.min(axis=0)) | (difference > drawn.max(axis=0))
    return {
        "difference": difference,
        "expected": expected,
        "std_error": spread,
        "z": z,
        "differs": outside & (np.abs(z) > _FAR) & (np.abs(away) > _LITTLE * error),
    }


# The diagnosis of assumptions ------------------------------------------------------------------

_LEAST_LEVELS, _LEAST_FILLED = 3, 0.5
"""Smallest number of levels of each facet, and share of filled cells, of a tested table."""

_ROUNDING = 1e-8
"""Largest part of a column of X, relative to its largest value, that is rounding error."""

_LARGEST_TABLE = 2_000_000
"""Largest number of cells of a table that is tested."""

_BYTES_A_ROW = 8.0 * 60
"""Memory of the diagnosis per row, in bytes."""


def diagnose(
    access: RowAccess,
    object_: str | None,
    n: int | None,
    rng: int | np.random.Generator | None,
    negative: Sequence[BelowZero] = (),
) -> Diagnosis:
    """Return the diagnosis of a fit; see :meth:`VarianceComponentsResults.diagnose`.

    Parameters
    ----------
    access : model and estimate
    object_ : facet in the columns of tables; None for the first of the formula
    n : number of draws of each null distribution, or None
    rng : seed or generator
    negative : components that are below zero without bounds
    """
    design, seed = access.data.design, seed_from(rng)
    names = [facet.name for facet in design.facets]
    if not names:
        raise EstimationError("the model has no random term, so that there is nothing to diagnose")
    if object_ is not None and object_ not in names:
        raise PlanError(
            f"object={object_!r} is not a facet of the fit{did_you_mean(object_, names)}; facets "
            f"are {', '.join(names)}",
            column=object_,
        )
    chunk, rows = access.data.statistics.single_rows, access.data.kept_rows
    check_memory(
        _BYTES_A_ROW * rows.y.size, f"the diagnosis of {rows.y.size:,} rows needs",
        "diagnose a part of the data", EstimationError,
    )  # fmt: skip
    with limited_blas(0):
        solution = access.solution
        own = _own_variances(access, chunk)
        diagnosed = _rows(design, chunk, rows, own)
        tables, left = _crossed_tables(design, chunk, solution, object_ or _first(design))
        effects = _effects(access, solution)
        title = design.structure.title()
        slopes, not_tested = missing_slopes(access)
        return assess(
            title, effects, diagnosed, tables, [*left, *not_tested], n=n, seed=seed, slopes=slopes,
            fitted=_fitted_rows(access, chunk, solution, own), negative=negative,
        )  # fmt: skip


def _own_variances(access: RowAccess, chunk: Chunk) -> OwnVariances | None:
    """Return the residual groups of the rows; None with one residual variance."""
    groups = access.data.design.formula.groups
    if groups is None or chunk.residual_codes is None:
        return None
    variances = access.components[-len(groups.levels) :]
    names = tuple(map(groups.level_name, groups.levels))
    facets = frozenset(groups.facets)
    return OwnVariances(chunk.residual_codes.astype(np.int64), variances, names, facets)


def _fitted_rows(
    access: RowAccess, chunk: Chunk, solution: Solution, own: OwnVariances | None
) -> FittedRows:
    """Return the rows with their fitted values, and the numerical covariates."""
    design, rows = access.data.design, access.data.kept_rows
    fitted = fitted_values(design, solution, chunk, access.data.fixed_columns)
    fitted = fitted if rows.offset is None else fitted + rows.offset
    names = dict.fromkeys([*design.fixed.names, *sorted(design.formula.covariates)])
    covariates = {
        name: np.asarray(rows.fixed[name], dtype=float)
        for name in names
        if name in rows.fixed and is_numerical(rows.fixed[name])
    }
    facets = {f.name: f.levels.take(chunk.level_codes(k)) for k, f in enumerate(design.facets)}
    sd = None
    if own is not None or chunk.weights is not None:
        of_rows = access.components[-1] if own is None else own.variances[own.codes]
        sd = np.sqrt(of_rows / (1.0 if chunk.weights is None else chunk.weights))
    return FittedRows(rows.labels, rows.response, fitted, facets, covariates, sd)


def _first(design: Design) -> str:
    """Return the facet that comes first in the formula."""
    return str(design.formula.facets[0])


def _effects(access: RowAccess, solution: Solution) -> list[PredictedEffects]:
    """Return the predicted effects, each in units of its standard deviation under the model.

    A predicted effect has the variance σ² less that of its prediction error.
    """
    design, components = access.data.design, access.components
    effects = []
    for t in range(len(design.terms)):
        values, of_error = solution.effects[t], solution.prediction_var[t]
        variance = components[t] - of_error
        is_known = bool(np.isfinite(of_error).all()) and components[t] > 0.0
        if is_known:
            scale = np.sqrt(np.maximum(variance, 1e-12 * components[t]))
            known = float((variance / components[t]).mean())
            values = values / scale
        index = design.group_index(t)
        effects.append(
            PredictedEffects(
                access.estimate.names[t],
                np.asarray(values),
                known if is_known else np.nan,
                _label(index),
            )
        )
    return effects


def _label(index: Any) -> Any:
    def label(number: int) -> str:
        level = index[number]
        return ":".join(map(str, level)) if isinstance(level, tuple) else str(level)

    return label


def _rows(design: Design, chunk: Chunk, rows: Rows, own: OwnVariances | None) -> DiagnosedRows:
    structure = design.structure
    codes = {f.name: chunk.level_codes(k).astype(np.int64) for k, f in enumerate(design.facets)}
    crossed: dict[str, list[str]] = {name: [] for name in codes}
    for a, b in (*structure.fully_crossed, *structure.partly_crossed):
        crossed[a].append(b)
        crossed[b].append(a)
    levels = [chunk.level_codes(k) for k in range(len(design.facets))]
    columns = chunk.effects or (None,) * len(design.terms)
    groups, slopes = [], []
    for term, z in zip(design.terms, columns, strict=True):
        of_rows = term.groups(levels, design.n_levels).astype(np.int64)
        groups.append(of_rows) if z is None else slopes.append((of_rows, z))
    labels = {f.name: [str(level) for level in f.levels] for f in design.facets}
    names: Any = rows.labels
    origin = design.mean(chunk.X, np.zeros(chunk.n_fixed))
    origin = origin if rows.offset is None else origin + rows.offset
    return DiagnosedRows(
        chunk.y, codes, labels, groups or [np.zeros(chunk.n, dtype=np.int64)], chunk.X, crossed,
        names, origin, slopes, chunk.weights, own,
    )  # fmt: skip


def _crossed_tables(
    design: Design,
    chunk: Chunk,
    solution: Solution,
    object_: str,
    *,
    most_cells: int = _LARGEST_TABLE,
) -> tuple[list[TwoWayTable], list[str]]:
    """Return the tables of every two crossed facets, and reasons against the other pairs."""
    structure, names = design.structure, [f.name for f in design.facets]
    outer = [name for name in design.formula.facets if not structure.nested_in[name]]
    order = sorted(outer, key=lambda name: name != object_)
    tables, left = [], []
    for k, column in enumerate(order):
        for row in order[k + 1 :]:
            places = names.index(column), names.index(row)
            sizes = design.n_levels[places[1]], design.n_levels[places[0]]
            what = f"Additivity and correlations of {column} and {row} are not tested: "
            if design.blocks is not None or chunk.weights is not None:
                slopes = design.formula.has_slopes
                of = "models without random slopes" if slopes else "scores of one variance"
                left.append(f"{what}that is for {of}.")
                continue
            if min(sizes) < _LEAST_LEVELS:
                left.append(what + f"each needs {_LEAST_LEVELS} levels.")
                continue
            if len(names) > 2 and not structure.balanced:
                left.append(what + "with more than two facets that needs balanced data.")
                continue
            if sizes[0] * sizes[1] > most_cells:
                left.append(what + "the table is too large.")
                continue
            table = _cell_means(design, chunk, solution, places)
            if table.observed.mean() < _LEAST_FILLED or table.df < 2.0:
                left.append(what + "more than half of the cells are empty.")
                continue
            tables.append(table)
    return tables, left


def _cell_means(
    design: Design, chunk: Chunk, solution: Solution, places: Sequence[int]
) -> TwoWayTable:
    """Return the means of two facets' cells, of scores without the effects of covariates.

    Fixed effects that vary by row or by column of the table only stay in.
    """
    column, row = (design.facets[k] for k in places)
    y = chunk.response
    of_cells = Projection.of([chunk.level_codes(k).astype(np.int64) for k in places]).residuals(
        chunk.X
    )
    # Rounding is relative to the largest value of each column.
    if (np.abs(of_cells) > _ROUNDING * np.abs(chunk.X).max(axis=0, initial=0.0)).any():
        y = y - chunk.X @ (solution.beta + design.beta_origin)
    codes = chunk.level_codes(places[1]).astype(np.int64) * column.size
    codes = codes + chunk.level_codes(places[0])
    size = row.size * column.size
    counts = np.bincount(codes, minlength=size)
    sums = np.bincount(codes, y, minlength=size)
    means = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
    return TwoWayTable(
        row.name,
        column.name,
        tuple(map(str, row.levels)),
        tuple(map(str, column.levels)),
        means.reshape(row.size, column.size),
    )
