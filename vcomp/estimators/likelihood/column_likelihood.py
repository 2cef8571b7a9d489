"""The levels engine for two nested terms in a table, and a third one of the table's columns.

V = V₀ + σ²_c ZZ' has few columns Z beside those of X. The engine of the table gives the forms of
[y X Z] in V₀⁻¹, from which those in V⁻¹ follow by Woodbury's identity: with G = Z'V₀⁻¹Z,
V⁻¹ = V₀⁻¹ − V₀⁻¹Z H Z'V₀⁻¹ and H = σ²_c (I + σ²_c G)⁻¹ (docs/explanation/mathematics.md, eq.
(4.17)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.engine import Cancellation, Solution
from vcomp.estimators.likelihood.nested_likelihood import NestedTableLikelihood
from vcomp.estimators.likelihood.totals import Totals, TotalsEngine
from vcomp.statistics import ColumnTable, Statistics


@dataclass(slots=True)
class _ColumnPoint:
    """The forms at one point.

    Attributes
    ----------
    v : components
    total : forms of [y X]; squares and second ones are added when they are needed
    of_table : forms of [y X Z] without the third term
    left : (m, m) (I + σ²_c G)⁻¹
    across : (m, 1 + p) Z'V⁻¹[y X]
    whole : whether squares and second forms are there
    """

    v: FloatArray
    total: Totals
    of_table: Totals
    left: FloatArray
    across: FloatArray
    whole: bool = False


class ColumnTermLikelihood(TotalsEngine[_ColumnPoint]):
    """Restricted or full log-likelihood of two nested terms and one of the columns of their table.

    Parameters
    ----------
    table : means and numbers of scores
    reml : whether the likelihood is the restricted one
    """

    name: ClassVar[str] = "levels"
    cancellation: ClassVar[Cancellation] = "equations"
    newton_below: ClassVar[float] = 0.0  # informations cost an evaluation

    def __init__(self, table: ColumnTable, *, reml: bool) -> None:
        self.stats = self.table = table
        self.reml = reml
        self._base = NestedTableLikelihood(table.with_indicators, reml=False)
        self._others = [t for t in range(table.n_terms + 1) if t != table.column]

    def with_response(self, stats: Statistics) -> Self:
        """Return the engine of the same rows with another response."""
        self._last = None  # its memory is free for the next
        return type(self)(self.table.with_response(stats.cells), reml=self.reml)

    @property
    def reason(self) -> str:
        """Why this engine was chosen: numbers of groups and columns, share of empty cells."""
        return self._base.reason

    @property
    def seconds(self) -> float:
        """Expected time of one evaluation in seconds."""
        return 2.0 * self._base.seconds

    @property
    def bytes(self) -> float:
        """Expected memory of one evaluation."""
        return self._base.bytes

    def _forms_of_effects(self, v: FloatArray, terms: Sequence[int]) -> None:
        """Return None: the groups are many."""

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`."""
        point, table, c = self._at(v), self.table, float(v[self.table.column])
        beta, cov_beta = self.fixed_effects(v)
        of_columns = c * (point.across @ point.total.contrast)
        levels, others = table.table.levels, v[self._others]
        effects = self._base.effects(others, levels @ beta + of_columns)

        def variances() -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
            known, by_beta = c * point.left, levels - c * point.across[:, 1:]
            whole = known + by_beta @ cov_beta @ by_beta.T
            of_x = c * point.across[:, 1:]
            own = np.diagonal(known) + np.einsum("mp,pq,mq->m", of_x, cov_beta, of_x)
            prediction = self._base.variances(others, whole)[0]
            conditional = self._base.variances(others, known)[0]
            return (
                self._in_order(prediction, own),
                self._in_order(conditional, np.diagonal(known).copy()),
            )

        return Solution(beta, cov_beta, self._in_order(effects, of_columns), variances)

    def _in_order(
        self, of_table: tuple[FloatArray, ...], of_columns: FloatArray
    ) -> tuple[FloatArray, ...]:
        at = self.table.column
        return (*of_table[:at], of_columns, *of_table[at:])

    # At one point -------------------------------------------------------------------------------

    def _total(self, point: _ColumnPoint) -> Totals:
        return point.total

    def _evaluated(self, v: FloatArray) -> _ColumnPoint:
        at, others, c = self.table.column, self._others, float(v[self.table.column])
        base = self._base.totals(v[others], second=False)
        b = 1 + self.n_fixed
        G = base.gram[b:, b:]
        S = np.eye(len(G)) + c * G
        left = np.linalg.inv(S)
        left = 0.5 * (left + left.T)
        across = left @ base.gram[b:, :b]
        total = Totals(self.table.n_terms + 1, b)
        total.log_det = base.log_det + float(np.linalg.slogdet(S)[1])
        total.gram[:] = base.gram[:b, :b] - c * (base.gram[:b, b:] @ across)
        R = self._reduced(c, across)
        total.first[others] = R.T @ base.first @ R
        total.first[at] = across.T @ across
        total.traces[others] = base.traces - c * np.tensordot(base.first[:, b:, b:], left, 2)
        total.traces[at] = float(np.vdot(left, G))
        return _ColumnPoint(v, total, base, left, across)

    @staticmethod
    def _reduced(c: float, across: FloatArray) -> FloatArray:
        """Return R of V⁻¹[y X] = V₀⁻¹[y X Z]R."""
        return np.concatenate([np.eye(across.shape[1]), -c * across])

    def _squares(self, point: _ColumnPoint) -> Totals:
        """Return the totals with squares and second forms."""
        if point.whole:
            return point.total
        at, others, v = self.table.column, self._others, point.v
        c, left, across, total = float(v[at]), point.left, point.across, point.total
        base, b = self._base.totals(v[others], second=True), across.shape[1]
        G, F, S = base.gram[b:, b:], base.first, base.second
        H, R, within = c * left, self._reduced(c, across), F[:, b:, b:]
        HF = H @ within
        both = np.ix_(others, others)
        total.squares[both] = (
            base.squares
            - 2.0 * np.tensordot(S[:, :, b:, b:], H, 2)
            + np.tensordot(HF, HF.swapaxes(1, 2), ((1, 2), (1, 2)))
        )
        mixed = np.einsum("mn,knl,lm->k", left, within, left)
        total.squares[others, at] = total.squares[at, others] = mixed
        own = left @ G
        total.squares[at, at] = float(np.vdot(own, own.T))
        # Z'V⁻¹K V⁻¹[y X] of the other terms
        of_columns = left @ (F[:, b:] @ R)
        right = F[:, b:] @ R
        total.second[both] = R.T @ S @ R - np.einsum("kmx,mn,lny->klxy", right, H, right)
        total.second[others, at] = of_columns.swapaxes(1, 2) @ across
        total.second[at, others] = across.T @ of_columns
        total.second[at, at] = across.T @ own @ across
        point.whole = True
        return total

    def _average(self, point: _ColumnPoint) -> FloatArray:
        return 0.5 * self._squares(point).average()
