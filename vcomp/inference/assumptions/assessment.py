"""Tests of all assumptions, from predicted effects, rows and tables of crossed facets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.inference.assumptions.crossed_table import CrossedTable, TableFindings, findings_of
from vcomp.inference.assumptions.diagnosis import Diagnosis
from vcomp.inference.assumptions.levels import (
    LevelSpread,
    LevelStatistic,
    level_spread,
    permuted,
)
from vcomp.inference.assumptions.projection import Projection
from vcomp.inference.assumptions.samples import (
    AssumptionTest,
    Sample,
    ShapeNull,
    blocks,
    deviates,
    excess_kurtosis,
    independent_null,
    n_draws,
    p_of,
    straightness,
)
from vcomp.numerics import stream

ALPHA = 0.05
"""Level of the tests and of what counts as an outlier."""

_FEWEST_EFFECTS = 8
"""Fewer effects show nothing of their distribution."""

_FEWEST_LEVELS = 2
_CONSTANT = 1e-10


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
    """

    y: FloatArray
    codes: Mapping[str, LongArray]
    labels: Mapping[str, Sequence[str]]
    groups: Sequence[LongArray]
    X: FloatArray

    crossed: Mapping[str, Sequence[str]]

    @cached_property
    def projection(self) -> Projection:
        """The projection on what all terms leave."""
        return Projection.of(self.groups, self.X)

    @cached_property
    def residuals(self) -> FloatArray:
        """(n,) residuals with all effects as fixed ones."""
        return self.projection.residuals(self.y)

    def label(self, row: int) -> str:
        """Return the levels of a row, in words."""
        return ", ".join(f"{f} {self.labels[f][int(c[row])]}" for f, c in self.codes.items())

    def peers(self, facet: str) -> LongArray:
        """Return groups of rows that agree in all facets that a facet is crossed with."""
        joined = np.zeros(self.y.size, dtype=np.int64)
        for other in self.crossed[facet]:
            joined = joined * (int(self.codes[other].max()) + 1) + self.codes[other]
            joined = np.unique(joined, return_inverse=True)[1].reshape(-1)
        return joined


def assess(
    title: str,
    effects: Sequence[PredictedEffects],
    rows: DiagnosedRows,
    tables: Sequence[CrossedTable],
    not_tested: Sequence[str],
    *,
    n: int | None,
    seed: int,
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
    """
    tests: list[AssumptionTest] = []
    samples: list[Sample] = []
    left = list(not_tested)
    number = 0
    for term in effects:
        if term.values.size < _FEWEST_EFFECTS or np.ptp(term.values) == 0.0:
            left.append(
                f"The distribution of the effects of {term.name} is not tested: it needs "
                f"{_FEWEST_EFFECTS} levels that differ."
            )
            continue
        size = term.values.size
        null = independent_null(size, n_draws(size, n), stream(seed, number))
        number += 1
        sample = Sample(term.name, term.values, term.known)
        sample = sample.with_outliers(null.critical(ALPHA), term.label)
        samples.append(sample)
        tests += null.tests(sample, "normal effects")
    spreads: list[LevelSpread] = []
    e = rows.residuals
    if rows.projection.df < 2.0 or float(np.abs(e).max()) <= _CONSTANT * float(
        np.abs(rows.y).max()
    ):
        left.append("Residuals are not tested: there are none once all effects are removed.")
    else:
        null = _residual_null(rows.projection, e.size, n_draws(e.size, n), stream(seed, 1000))
        residuals = Sample("residuals", e / np.sqrt((e @ e) / rows.projection.df))
        residuals = residuals.with_outliers(null.critical(ALPHA), rows.label)
        samples.append(residuals)
        tests += null.tests(residuals, "normal residuals")
        for k, facet in enumerate(rows.codes):
            found = _spread(facet, rows, n, stream(seed, 2000 + k))
            spreads.append(found[0])
            if found[1] is not None:
                tests.append(found[1])
            else:
                left.append(_few_rows(facet))
    found_tables: list[TableFindings] = []
    for k, table in enumerate(tables):
        cost = table.values.size * max(1, table.values.shape[1] // 16)
        found_tables.append(findings_of(table, n_draws(cost, n), stream(seed, 3000 + k)))
        tests += found_tables[-1].tests
    sizes = {f: len(labels) for f, labels in rows.labels.items()}
    return Diagnosis(
        title, e.size, sizes, tuple(tests), tuple(samples), tuple(spreads), tuple(found_tables),
        tuple(left),
    )  # fmt: skip


def _few_rows(facet: str) -> str:
    return (
        f"Equal residual variances of the levels of {facet} are not tested: with its effects "
        "removed, rows that could exchange their residuals are lacking."
    )


def _residual_null(
    projection: Projection, size: int, n: int, rng: np.random.Generator
) -> ShapeNull:
    """Return the statistics of normal errors, from which all effects are removed."""
    parts = []
    for m in blocks(size, n):
        e = projection.residuals(rng.standard_normal((m, size)).T)
        parts.append((straightness(np.sort(e, axis=0)), deviates(e)))
    return ShapeNull(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _spread(
    facet: str, rows: DiagnosedRows, n: int | None, rng: np.random.Generator
) -> tuple[LevelSpread, AssumptionTest | None]:
    """Return the variances of a facet's levels, and the test that they are equal.

    Under the hypothesis rows that agree in all facets that this one is crossed with can exchange
    their residuals, whatever their distribution and however variances differ between the levels
    of those facets. Effects are removed again afterwards.
    """
    codes, e = rows.codes[facet], rows.residuals
    spread = level_spread(
        facet, rows.labels[facet], codes, e, rows.projection.df, excess_kurtosis(e)
    )
    groups = rows.peers(facet)
    if len(rows.labels[facet]) < _FEWEST_LEVELS or not _exchange(groups, codes):
        return spread, None
    statistic = LevelStatistic(codes, [rows.codes[other] for other in rows.crossed[facet]])
    observed = float(statistic(e[:, None])[0])
    drawn = [
        statistic(rows.projection.residuals(permuted(e, groups, m, rng)))
        for m in blocks(e.size, n_draws(4 * e.size, n))
    ]
    p = p_of(observed * (1.0 - _CONSTANT), np.concatenate(drawn))
    return spread, AssumptionTest(
        "equal variances", f"residuals by {facet}", observed, p, spread.log_sd,
        "s.d. of log variance", "Levene's F, permuted residuals",
    )  # fmt: skip


def _exchange(groups: LongArray, codes: LongArray) -> bool:
    """Whether some group has rows of several levels, and a level has several rows."""
    first = np.zeros(int(groups.max()) + 1, dtype=codes.dtype)
    first[groups] = codes
    return bool((first[groups] != codes).any()) and bool(np.bincount(codes).max() > 2)
