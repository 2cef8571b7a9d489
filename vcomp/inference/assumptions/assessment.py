"""Tests of all assumptions, from predicted effects, rows and tables of crossed facets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.design import number_combinations
from vcomp.display import number
from vcomp.inference.assumptions.diagnosis import (
    Diagnosis,
    FittedRows,
    LevelSpread,
    LevelStatistic,
    level_spread,
    permuted,
    summing,
)
from vcomp.inference.assumptions.samples import (
    AssumptionTest,
    EffectSample,
    ShapeNull,
    blocks,
    excess_kurtosis,
    independent_null,
    n_draws,
    p_of,
)
from vcomp.inference.assumptions.two_way_table import (
    Projection,
    TableFindings,
    TwoWayTable,
    findings_of,
)
from vcomp.inference.assumptions.verdicts import MissingSlope, OutlyingRows
from vcomp.inference.intervals import BelowZero
from vcomp.numerics import stream

ALPHA = 0.05
"""Level of the tests and of what counts as an outlier."""

_FEWEST_EFFECTS = 8
"""Fewer effects show nothing of their distribution."""

_FEWEST_SCORES = 8
"""With fewer scores of a level, the test of equal variances keeps its level for normal errors.

Residuals that are exchanged have their effects removed twice, which makes few of them more alike
than errors are.
"""

_FEW_VALUES = 10
"""A response of so few values is not normal, whether its residuals show it or not."""

_MOST_ROWS = 5
"""Rows that are left out to see what they weigh."""

_CONSTANT = 1e-10
_EQUAL = 1e-6  # beyond the error of sweeps
_CLEAR = 0.5
"""A row this much closer to the other data than its partner is not the wrong one."""

_REPLICATES = 2
"""Scores of a cell, on average, from which cells are compared and not scores alone."""

_COLUMNS = 16
"""Correlations of more columns than this take longer than drawing the residuals."""


@dataclass(frozen=True, slots=True, eq=False)
class PredictedEffects:
    """Predicted effects of a term in units of their standard deviation under the model.

    Attributes
    ----------
    name : of the term
    values : (q,)
    known : share of the component that the predictions have
    label : returns the name of an effect by its number
    """

    name: str
    values: FloatArray
    known: float
    label: Callable[[int], str]


@dataclass(frozen=True, slots=True, eq=False)
class OwnVariances:
    """The residual groups of rows.

    Attributes
    ----------
    codes : (n,) group of each row
    variances : (r,) estimated residual variances
    names : (r,) of the groups
    facets : whose levels they are
    """

    codes: LongArray
    variances: FloatArray
    names: tuple[str, ...]
    facets: frozenset[str]

    def divided(self, e: FloatArray) -> FloatArray:
        """Return residuals, (n,) or (n, m), divided by the root of their mean square by group."""
        counts = np.bincount(self.codes).reshape(-1, *(1,) * (e.ndim - 1))
        roots = np.sqrt((summing(self.codes) @ np.square(e)) / counts)
        return np.asarray(e / np.maximum(roots, 1e-300)[self.codes])

    def of_rows(self, rows: Sequence[int]) -> tuple[BoolArray, float, str]:
        """Return which rows are in the groups of some, their mean variance, and their names."""
        groups = np.unique(self.codes[rows])
        inside = np.isin(self.codes, groups)
        names = ", ".join(self.names[g] for g in groups)
        return inside, float(self.variances[self.codes[inside]].mean()), f" of {names}"


@dataclass(frozen=True)
class DiagnosedRows:
    """The rows of a fit: response, levels of facets, groups of terms.

    Attributes
    ----------
    y : (n,) response
    codes : for each facet the level of every row, from 0
    labels : for each facet the names of its levels
    groups : for each term the group of every row
    X : (n, p) columns of the fixed part
    crossed : for each facet the facets that it is crossed with
    names : of the rows; None where they have no names
    origin : that was subtracted from the response, one number or (n,)
    slopes : for each random slope the group of every row and the value of its column
    weights : (n,) of rows with the residual variance σ²/w; None where all have one
    own : the residual groups of the rows; None with one residual variance for all
    """

    y: FloatArray
    codes: Mapping[str, LongArray]
    labels: Mapping[str, Sequence[str]]
    groups: Sequence[LongArray]
    X: FloatArray

    crossed: Mapping[str, Sequence[str]]
    names: Sequence[Any] | None = None
    origin: float | FloatArray = 0.0
    slopes: Sequence[tuple[LongArray, FloatArray]] = ()
    weights: FloatArray | None = None
    own: OwnVariances | None = None

    @cached_property
    def _precision(self) -> FloatArray | None:
        weights = self.weights
        if self.own is None:
            return weights
        inverse = 1.0 / self.own.variances[self.own.codes]
        return inverse if weights is None else weights * inverse

    @cached_property
    def roots(self) -> FloatArray:
        """(n,) factors that give scores residuals of one variance; (1,) where they have one."""
        return np.ones(1) if self._precision is None else np.sqrt(self._precision)

    @cached_property
    def projection(self) -> Projection:
        """The projection on what all terms leave."""
        roots = None if self._precision is None else self.roots
        return Projection.of(self.groups, self.X, self.slopes, roots)

    @cached_property
    def removed(self) -> FloatArray:
        """(n,) residuals with all effects as fixed ones, in units of their estimated variance."""
        return self.projection.residuals(self.y * self.roots)

    @cached_property
    def residuals(self) -> FloatArray:
        """(n,) the same in units of the variance that they have themselves in their group."""
        return self.alike(self.removed)

    def alike(self, e: FloatArray) -> FloatArray:
        """Return residuals, (n,) or (n, m), of one variance in each residual group.

        An estimated variance is also of the outlying scores of its group. Those of drawn
        residuals have the same share in it.
        """
        return e if self.own is None else self.own.divided(e)

    def label(self, row: int) -> str:
        """Return the levels of a row in words, with its name if other rows have the same."""
        alike = np.ones(self.y.size, dtype=bool)
        for codes in self.codes.values():
            alike &= codes == codes[row]
        return self.cell(row) if alike.sum() == 1 else f"{self.cell(row)}, {self.name(row)}"

    def cell(self, row: int) -> str:
        """Return the levels of a row in words."""
        return ", ".join(f"{f} {self.labels[f][int(c[row])]}" for f, c in self.codes.items())

    def name(self, row: int) -> str:
        """Return the name of a row: its label in the data, or its number."""
        return f"row {row if self.names is None else self.names[row]}"

    def outlying(self, critical: float) -> OutlyingRows | None:
        """Return the rows by which the residual variance is large, one after another.

        The row with the largest residual is left out as long as it is an outlier; the residuals
        without it are e − M u (u'M u)⁻¹ u'e, with the projection M and the row's indicator u.
        Rows whose residuals are equal but for the sign, as those of a cell of two scores, differ
        by their distances from the other data.

        Parameters
        ----------
        critical : a larger deviate is an outlier
        """
        e, df = self.removed, self.projection.df
        left_out, rows = np.zeros((e.size, 0)), list[int]()
        while len(rows) < _MOST_ROWS and df > 1.0:
            z = self.alike(e)
            row = int(np.abs(z).argmax())
            if not abs(z[row]) > critical * z.std(ddof=1):
                break
            u = np.zeros(e.size)
            u[row] = 1.0
            u = self.projection.residuals(u)
            u -= left_out @ (left_out.T @ u)
            if not u[row] > _CONSTANT:
                break
            alike = np.flatnonzero(np.abs(u) >= (1.0 - _EQUAL) * u[row])
            u /= np.linalg.norm(u)
            left_out = np.column_stack([left_out, u])
            e, df = e - u * (u @ e), df - 1.0
            rows += self._farthest(alike) if alike.size > 1 else [row]
        if not rows:
            return None
        scores = self.y + self.origin
        labels = [f"{self.cell(r)} ({self.name(r)}: {number(scores[r])})" for r in rows]
        one_cell = all(np.ptp(codes[rows]) == 0 for codes in self.codes.values())
        whole, own_df, lost = self.removed, self.projection.df, self.projection.df - df
        variance, of = float(whole @ whole) / own_df, ""
        if self.own is not None:
            inside, variance, of = self.own.of_rows(rows)
            whole, e, own_df = whole[inside], e[inside], own_df * inside.mean()
        rest = float(e @ e) / float(whole @ whole)
        without = variance * rest * own_df / max(own_df - lost, 1.0)
        return OutlyingRows(tuple(labels), variance, without, 1.0 - rest, one_cell, of)

    def _farthest(self, rows: LongArray) -> list[int]:
        """Return those of some rows that are far from the other data; all if that is not clear.

        Distances are from the fit to the other rows without the finest terms, as few of these as
        need to be left out.
        """
        finest_first = sorted(self.groups, key=lambda codes: -int(codes.max()))
        indicators = np.zeros((self.y.size, rows.size))
        indicators[rows, np.arange(rows.size)] = 1.0
        for k in range(1, len(finest_first) + 1):
            coarser = [*finest_first[k:], np.zeros(self.y.size, dtype=np.int64)]
            dropped = [id(codes) for codes in finest_first[:k]]
            slopes = [(codes, z) for codes, z in self.slopes if id(codes) not in dropped]
            left = Projection.of(coarser, self.X, slopes, self.projection.roots)
            scaled = self.y * self.roots
            of_rows = left.residuals(indicators)[rows], left.residuals(scaled)[rows]
            distances = np.abs(np.linalg.lstsq(*of_rows, rcond=_EQUAL)[0])
            far = distances >= _CLEAR * distances.max()
            if not far.all():
                return [int(row) for row in rows[far]]
        return [int(row) for row in rows]

    def cells(self) -> Iterator[tuple[str, LongArray, Callable[[int], str]]]:
        """Yield name, cell of each row and labels of every two crossed facets with replicates.

        Cells whose effects are a term of the model have no residuals, and are left out.
        """
        facets = list(self.codes)
        for k, a in enumerate(facets):
            for b in facets[k + 1 :]:
                if b not in self.crossed[a]:
                    continue
                n = len(self.labels[b])
                keys, codes = number_combinations(
                    self.codes[a].astype(np.int32), len(self.labels[a]), self.codes[b], n
                )
                sums = np.bincount(codes, self.residuals * self.roots)
                none = np.abs(sums).max() <= _EQUAL * np.abs(self.residuals).max()
                if none or keys.size * _REPLICATES > self.y.size:
                    continue
                yield f"cells of {a} and {b}", codes.astype(np.int64), _CellNames(self, a, b, keys)

    def peers(self, facet: str) -> LongArray:
        """Return groups of rows that agree in all facets that a facet is crossed with."""
        joined, size = np.zeros(self.y.size, dtype=np.int32), 1
        for other in self.crossed[facet]:
            codes = self.codes[other]
            keys, joined = number_combinations(joined, size, codes, int(codes.max()) + 1)
            size = keys.size
        return joined.astype(np.int64)


@dataclass(frozen=True, slots=True)
class _CellNames:
    """Names of the cells of two facets."""

    rows: DiagnosedRows
    first: str
    second: str
    keys: LongArray

    def __call__(self, cell: int) -> str:
        labels = self.rows.labels
        a, b = divmod(int(self.keys[cell]), len(labels[self.second]))
        return f"{self.first} {labels[self.first][a]}, {self.second} {labels[self.second][b]}"


def assess(
    title: str,
    effects: Sequence[PredictedEffects],
    rows: DiagnosedRows,
    tables: Sequence[TwoWayTable],
    not_tested: Sequence[str],
    *,
    n: int | None,
    seed: int,
    slopes: Sequence[MissingSlope] = (),
    fitted: FittedRows | None = None,
    negative: Sequence[BelowZero] = (),
) -> Diagnosis:
    """Return the diagnosis of a fit.

    Parameters
    ----------
    title : what is diagnosed
    effects : of the terms
    rows : of the fit
    tables : of crossed facets
    not_tested : sentences on what could not be tested before
    n : number of draws of each null distribution; None for 99 to 999 by size
    seed : every test has a stream of its own
    slopes : tests of slopes that the model has not
    fitted : the rows with their fitted values, for pictures and lists
    negative : components that are below zero without bounds
    """
    left = list(not_tested)
    samples, tests = _of_effects(effects, n, seed, left)
    spreads: list[LevelSpread] = []
    outlying = None
    largest = float(np.abs(rows.y * rows.roots).max())
    if rows.projection.df < 2.0 or float(np.abs(rows.removed).max()) <= _CONSTANT * largest:
        left.append("Residuals are not tested: there are none once all effects are removed.")
    else:
        residuals, more, outlying = _of_residuals(rows, n, stream(seed, 1000))
        samples.append(residuals)
        tests += more
        for k, (name, codes, label) in enumerate(rows.cells()):
            cells, test = _of_cells(name, codes, label, rows, n, stream(seed, 4000 + k))
            samples.append(cells)
            tests.append(test)
        normal = all(
            display.snapped(t.p_value, ALPHA) > ALPHA for t in more if t.assumption == "normality"
        )
        normal = normal and np.unique(rows.y).size > _FEW_VALUES
        for k, facet in enumerate(rows.codes):
            spreads.append(_spread(facet, rows))
            if rows.own is not None and facet in rows.own.facets:
                left.append(_own_variances(facet))
            elif not _exchange(rows.peers(facet), rows.codes[facet]):
                left.append(_few_rows(facet))
            elif not normal and np.median(np.bincount(rows.codes[facet])) < _FEWEST_SCORES:
                left.append(_few_scores(facet))
            else:
                tests.append(_equal_variances(spreads[-1], rows, n, stream(seed, 2000 + k)))
    found: list[TableFindings] = []
    for k, table in enumerate(tables):
        cost = table.values.size * max(table.values.shape[1], _COLUMNS) // _COLUMNS
        found.append(findings_of(table, n_draws(cost, n), stream(seed, 3000 + k)))
        tests += found[-1].tests
    tests += [slope.test for slope in slopes]
    tests += [
        AssumptionTest(
            "nonnegative variance", of.name, of.ratio, of.p_value, 1.0 - of.ratio, "1 − F",
            "F of mean squares",
        )
        for of in negative
    ]  # fmt: skip
    return Diagnosis(
        title,
        rows.y.size,
        {facet: len(labels) for facet, labels in rows.labels.items()},
        tuple(tests),
        tuple(samples),
        tuple(spreads),
        tuple(found),
        tuple(left),
        outlying,
        tuple(slopes),
        fitted,
        has_slopes=bool(rows.slopes),
        negative=tuple(negative),
    )


def _of_effects(
    effects: Sequence[PredictedEffects], n: int | None, seed: int, left: list[str]
) -> tuple[list[EffectSample], list[AssumptionTest]]:
    """Return the samples of effects with their tests; add those that are not tested to `left`."""
    samples, tests = [], []
    for k, term in enumerate(effects):
        size = term.values.size
        if size < _FEWEST_EFFECTS or np.ptp(term.values) == 0.0:
            left.append(
                f"The distribution of the effects of {term.name} is not tested: it needs "
                f"{_FEWEST_EFFECTS} levels that differ."
            )
            continue
        null = independent_null(size, n_draws(size, n), stream(seed, k))
        sample = EffectSample(term.name, term.values, term.known, envelope=null.envelope)
        samples.append(sample.with_outliers(null.critical(ALPHA), term.label))
        tests += null.tests(samples[-1], "normal effects")
    return samples, tests


def _of_residuals(
    rows: DiagnosedRows, n: int | None, rng: np.random.Generator
) -> tuple[EffectSample, list[AssumptionTest], OutlyingRows | None]:
    e, df = rows.residuals, rows.projection.df
    null = _residual_null(rows, n_draws(e.size, n), rng)
    sample = EffectSample("residuals", e / np.sqrt((e @ e) / df), envelope=null.envelope)
    critical = null.critical(ALPHA)
    sample = sample.with_outliers(critical, rows.label)
    return sample, null.tests(sample, "normal residuals"), rows.outlying(critical)


def _few_rows(facet: str) -> str:
    return (
        f"Equal residual variances of the levels of {facet} are not tested: with its effects "
        "removed, rows that could exchange their residuals are lacking."
    )


def _own_variances(facet: str) -> str:
    return (
        f"Equal residual variances of the levels of {facet} are not tested: each has its own; "
        "res.test('Residual') compares them with one."
    )


def _few_scores(facet: str) -> str:
    return (
        f"Equal residual variances of the levels of {facet} are not tested: with fewer than "
        f"{_FEWEST_SCORES} scores of a level, the test needs residuals that are normal."
    )


def _residual_null(rows: DiagnosedRows, n: int, rng: np.random.Generator) -> ShapeNull:
    """Return the statistics of normal errors, from which all effects are removed."""
    size = rows.y.size

    def draw(m: int) -> FloatArray:
        return rows.alike(rows.projection.residuals(rng.standard_normal((m, size)).T))

    return ShapeNull.of(draw, size, size, n)


def _of_cells(
    name: str,
    codes: LongArray,
    label: Callable[[int], str],
    rows: DiagnosedRows,
    n: int | None,
    rng: np.random.Generator,
) -> tuple[EffectSample, AssumptionTest]:
    """Return the mean residuals of cells, times the root of their sizes, and their outliers."""
    size, weights = codes.size, np.broadcast_to(np.square(rows.roots), codes.shape)
    root = np.sqrt(np.bincount(codes, weights))
    averages = summing(codes, rows.roots / root[codes])

    def draw(m: int) -> FloatArray:
        drawn = rows.alike(rows.projection.residuals(rng.standard_normal((m, size)).T))
        return np.asarray(averages @ drawn)

    null = ShapeNull.of(draw, root.size, size, n_draws(size, n))
    scale = np.sqrt(rows.residuals @ rows.residuals / rows.projection.df)
    sample = EffectSample(name, averages @ (rows.residuals / scale), envelope=null.envelope)
    sample = sample.with_outliers(null.critical(ALPHA), label)
    return sample, null.tests(sample, "normal residuals")[1]


def _spread(facet: str, rows: DiagnosedRows) -> LevelSpread:
    """Return the residual variances of a facet's levels; the estimated ones if they have own."""
    e, codes, own = rows.residuals, rows.codes[facet], rows.own
    found = level_spread(
        facet, rows.labels[facet], codes, e, rows.projection.df, excess_kurtosis(e)
    )
    if own is None or facet not in own.facets:
        return found
    means = np.bincount(codes, own.variances[own.codes]) / np.bincount(codes)
    return replace(found, variances=means)


def _equal_variances(
    spread: LevelSpread, rows: DiagnosedRows, n: int | None, rng: np.random.Generator
) -> AssumptionTest:
    """Return the test that the variances of a facet's levels are equal.

    Under the hypothesis rows that agree in all facets that this one is crossed with can exchange
    their residuals, whatever their distribution and however variances differ between the levels
    of those facets. Effects are removed again afterwards.
    """
    facet, e = spread.facet, rows.residuals
    others = [rows.codes[other] for other in rows.crossed[facet]]
    statistic = LevelStatistic(rows.codes[facet], others)
    observed = float(statistic(e[:, None])[0])
    groups = rows.peers(facet)
    drawn = [
        statistic(rows.alike(rows.projection.residuals(permuted(e, groups, m, rng))))
        for m in blocks(e.size, n_draws(4 * e.size, n))
    ]
    p = p_of(observed * (1.0 - _CONSTANT), np.concatenate(drawn))
    return AssumptionTest(
        "equal variances", f"residuals by {facet}", observed, p, spread.log_sd,
        "s.d. of log variance", "Brown-Forsythe F, permuted residuals",
    )  # fmt: skip


def _exchange(groups: LongArray, codes: LongArray) -> bool:
    """Whether some group has rows of several levels, and a level has more than two rows."""
    first = np.zeros(groups.size, dtype=codes.dtype)
    first[groups] = codes
    return bool((first[groups] != codes).any()) and bool(np.bincount(codes).max() > 2)
