"""Forms of many data sets with nested strata at once.

The recursion of ``nested`` and the sums of ``totals`` (docs/explanation/mathematics.md,
eqs. (3.3), (3.4), (5.7) and (5.8)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.nested import EliminatedGroups, NestedGroups, fewer_vectors
from vcomp.estimators.likelihood.stacked import StackedForms, each, inverses_or_nan
from vcomp.statistics import StratumStatistics


@dataclass(frozen=True, slots=True, eq=False)
class _StrataColumns:
    """The columns y and X of the strata that have the same ones.

    Attributes
    ----------
    strata : (S,) positions of these strata
    places : (b,) positions of the columns in [y X]
    means, within : (S, b, r, N) means in innermost groups, and (B, S, b, b) squares and products
        within them
    """

    strata: LongArray
    places: LongArray
    means: FloatArray
    within: FloatArray

    @classmethod
    def all_of(cls, stats: Sequence[StratumStatistics]) -> list[_StrataColumns]:
        """Return the columns of all strata."""
        fixed = [stratum.fixed for stratum in stats[0].strata]
        return [
            cls(
                np.array(strata),
                np.array([0, *(1 + j for j in columns)]),
                _joined([[fewer_vectors(one.strata[s].columns) for one in stats]
                         for s in strata]),
                np.array([[one.strata[s].columns.within for s in strata] for one in stats]),
            )
            for columns in dict.fromkeys(fixed)
            for strata in [[s for s, own in enumerate(fixed) if own == columns]]
        ]  # fmt: skip


def _joined(tables: Sequence[Sequence[FloatArray]]) -> FloatArray:
    """Return the (q, b, r) tables of S strata and B data sets as one of (S, b, r, N)."""
    most = max(table.shape[2] for row in tables for table in row)
    sizes = np.array([len(table) for table in tables[0]])
    joined = np.zeros((len(tables), tables[0][0].shape[1], most, sizes.sum()))
    ends = np.cumsum(sizes)
    for into, row in zip(joined, tables, strict=True):
        for end, table in zip(ends, row, strict=True):
            into[:, : table.shape[2], end - len(table) : end] = table.transpose(1, 2, 0)
    return joined


class StackedStrata:
    """Nested strata of data sets.

    Parameters
    ----------
    stats : of the data sets, which have the same strata and levels; their groups may differ
    """

    def __init__(self, stats: Sequence[StratumStatistics]) -> None:
        whole = stats[0]
        self.n_fixed = whole.n_fixed
        self.n = np.array([float(one.n) for one in stats])
        self.sizes = np.array([one.sizes for one in stats], dtype=float)
        self.XX = np.array([one.XX for one in stats])
        self._groups = NestedGroups.of([one.remainder for one in stats])
        self._columns = _StrataColumns.all_of(stats)
        M = np.array([stratum.coefficients for stratum in whole.strata])
        # Levels that no term has are not components of any stratum.
        self._levels: list[int] = np.flatnonzero(M.any(axis=(0, 2))).tolist()
        self._all_M, self._M = M, M[:, self._levels]
        self._pairs = self._M[:, :, None, :, None] * self._M[:, None, :, None, :]
        self._multiplicity = np.array([float(s.multiplicity) for s in whole.strata])

    def __len__(self) -> int:
        return self.n.size

    def take(self, chosen: LongArray) -> StackedStrata:
        """Return the strata of some data sets, also repeatedly."""
        made = object.__new__(StackedStrata)
        vars(made).update(vars(self))
        made.n, made.sizes, made.XX = self.n[chosen], self.sizes[chosen], self.XX[chosen]
        places = self._groups.places(-1, chosen)
        made._groups = self._groups.take(chosen)
        made._columns = [
            replace(c, means=np.take(c.means, places, axis=-1), within=c.within[chosen])
            for c in self._columns
        ]
        return made

    def forms(self, v: FloatArray, *, reml: bool) -> StackedForms:
        """Return the forms at (B, k + 1) components, the residual positive."""
        (B, k1), b = v.shape, 1 + self.n_fixed
        of_strata = (self._all_M @ v[:, None, :, None])[..., 0]  # (B, S, size)
        c = np.ascontiguousarray(np.moveaxis(of_strata, (2, 1), (0, 1)))
        point = EliminatedGroups(self._groups, c)
        traces, squares = point.traces_and_squares(self._levels)
        mult = np.repeat(self._multiplicity, len(self._levels))
        total_traces = each(traces.reshape(B, -1) * mult, self._M.reshape(-1, k1))
        mult = np.repeat(mult, len(self._levels))
        pairs = self._pairs.reshape(mult.size, -1)
        total_squares = each(squares.reshape(B, -1) * mult, pairs).reshape(B, k1, k1)
        gram, first = np.zeros((B, b, b)), np.zeros((B, k1, b, b))
        second = np.zeros((B, k1, k1, b, b))
        for columns in self._columns:
            of_columns = point.of_strata(columns.strata)
            away = of_columns.differences(columns.means, of_columns.last)
            own_gram = of_columns.gram(away, columns.within)
            own_first, own_second = of_columns.quadratics(away, columns.within, self._levels)
            at, some = columns.places, columns.strata
            rows, of_pairs = self._M[some].reshape(-1, k1), self._pairs[some].reshape(-1, k1 * k1)
            there = (..., at[:, None], at)
            gram[there] += np.ascontiguousarray(own_gram).sum(axis=1)
            of_terms = rows.T @ own_first.reshape(B, len(rows), -1)
            first[there] += of_terms.reshape(B, k1, at.size, at.size)
            of_both = of_pairs.T @ own_second.reshape(B, len(of_pairs), -1)
            second[there] += of_both.reshape(B, k1, k1, at.size, at.size)
        log_det = (np.ascontiguousarray(point.log_det) * self._multiplicity).sum(axis=1)
        forms = log_det, total_traces, total_squares, gram, first, second
        return _less_fixed(*forms, reml=reml)


def _less_fixed(
    log_det: FloatArray,
    traces: FloatArray,
    squares: FloatArray,
    gram: FloatArray,
    first: FloatArray,
    second: FloatArray,
    *,
    reml: bool,
) -> StackedForms:
    """Return the forms of P and Q from those of V⁻¹ with [y X], as ``totals.Totals``."""
    inverse, log_fixed = inverses_or_nan(gram[:, 1:, 1:])
    beta = (inverse @ gram[:, 1:, :1])[:, :, 0]
    e = np.concatenate([np.ones((len(beta), 1)), -beta], axis=1)
    along = (first @ e[:, None, :, None])[..., 0]  # (B, k + 1, b)
    mixed = along[:, :, 1:]
    moved = mixed @ inverse
    twice = ((second @ e[:, None, None, :, None])[..., 0] * e[:, None, None]).sum(axis=3)
    if reml:
        relative = inverse[:, None] @ first[:, :, 1:, 1:]
        traces = traces - np.trace(relative, axis1=2, axis2=3)
        weighted = second[..., 1:, 1:] * inverse[:, None, None]
        flat = relative.reshape(*traces.shape, -1)
        turned = relative.swapaxes(2, 3).reshape(*traces.shape, -1)
        squares = squares - 2.0 * weighted.reshape(*squares.shape, -1).sum(axis=3)
        squares = squares + flat @ turned.swapaxes(1, 2)
        log_det = log_det + log_fixed
    return StackedForms(
        log_det=log_det,
        rss=((gram @ e[:, :, None])[:, :, 0] * e).sum(axis=1),
        quadratics=(along * e[:, None]).sum(axis=2),
        traces=traces,
        twice=twice - moved @ mixed.swapaxes(1, 2),
        squares=squares,
        beta=beta,
        slopes=-moved,
    )
