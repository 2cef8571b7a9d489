"""Kendall's τ between the ranking of systems by a collection and their true ranking."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import check_one_of
from vcomp.ir.agreement import MeanRows, RowMeasure, check_sizes
from vcomp.ir.kernels.rank_agreement import pair_agreement
from vcomp.ir.rank import (
    PairedDifferences,
    TauEstimator,
    TauVariant,
    check_tau_estimator,
    estimated_tau,
)
from vcomp.ir.scores import ScoresLike, as_score_matrix


class CorrelationOfRankings(RowMeasure):
    """A correlation of rankings, with an estimate of its expectation."""

    __slots__ = ()

    limits: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    has_estimator: ClassVar[bool] = True
    undefined: ClassVar[str] = "all systems have the same mean score; variant='a' makes it zero"
    expected: ClassVar[TauVariant] = "a"
    """Variant of :func:`vcomp.ir.expected_tau` that estimates the expectation."""
    estimator: TauEstimator | None
    """Estimator of the expectation; None if not chosen."""

    def estimate(
        self,
        scores: ScoresLike,
        n_topics: float | Iterable[float],
        *,
        system: str | None = None,
        topic: str | None = None,
        score: str | None = None,
        estimator: TauEstimator | None = None,
    ) -> FloatArray:
        """Return Eτ or Eτ_AP, the estimate of :func:`vcomp.ir.expected_tau`.

        Parameters
        ----------
        scores, n_topics, system, topic, score : as of :meth:`Measure.estimate`
        estimator : ``"shrunken"`` or ``"urbano"``; if None that of the measure, and
            ``"shrunken"`` if it has none

        Returns
        -------
        (len(n_topics),) array

        Raises
        ------
        PlanError
            If a number of topics is not positive, or `estimator` is not one of the two.
        DataError
            If the scores cannot be read, or two systems have fewer than two topics in common.
        """
        matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
        return estimated_tau(
            PairedDifferences.from_scores(matrix.scores, matrix.systems),
            check_sizes(n_topics),
            variant=self.expected,
            estimator=estimator or self.estimator or "shrunken",
        )

    def __repr__(self) -> str:
        """Return the options, without an estimator that was not given."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        if self.estimator is None:
            del given["estimator"]
        options = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"{type(self).__name__}({options})"


@dataclass(frozen=True, slots=True, repr=False)
class Tau(CorrelationOfRankings):
    """Kendall's τ (Urbano, 2016, eq. 5): pairs of systems in the same order, less swapped pairs.

    Parameters
    ----------
    variant : of τ where systems have equal means

        * ``"b"``: τ_b. With C concordant and D discordant pairs, and n₁ and n₂ the pairs that are
          not tied in the one and the other ranking, (C - D) / √(n₁ n₂). Two rankings with the same
          ties agree perfectly. What R's ``cor`` and so Urbano's code computes;
        * ``"a"``: τ_a. (C - D) / (k(k-1)/2): the mean over all orders of the tied systems.

        Without ties the two are the same. Means are tied if they differ by rounding alone.
    estimator : of its expectation: ``"shrunken"`` or ``"urbano"``, as published. None leaves it to
        the function that estimates, where ``"shrunken"`` is the default

    Raises
    ------
    PlanError
        If `variant` or `estimator` is none of these.

    Notes
    -----
    τ_b is undefined (nan) if all systems are tied in one of the rankings; τ_a is then zero.

    References
    ----------
    Kendall, M. G. (1948). *Rank Correlation Methods*. Griffin.

    Examples
    --------
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.3]]
    >>> Tau().actual(scores, [0.4, 0.3, 0.1])
    0.3333333333333333
    >>> Tau().estimate(scores, [3, 30]).round(3)
    array([0.689, 0.874])
    >>> Tau(estimator="urbano").estimate(scores, [3, 30]).round(3)
    array([0.762, 0.923])
    """

    variant: Literal["a", "b"] = "b"
    estimator: TauEstimator | None = None

    name: ClassVar[str] = "tau"
    symbol: ClassVar[str] = "τ"

    def __post_init__(self) -> None:
        check_one_of("variant", self.variant, ("a", "b"))
        if self.estimator is not None:
            check_tau_estimator(self.estimator)

    def actual_of_rows(self, rows: MeanRows) -> FloatArray:
        """Return τ of each row."""
        n_pairs = rows.n_systems * (rows.n_systems - 1) // 2
        return rows.filled((n_pairs - 2 * rows.swaps[0]) / max(n_pairs, 1), self._of_tied)

    def _of_tied(self, rows: MeanRows) -> FloatArray:
        """Return τ of each row, with or without ties."""
        counts = pair_agreement(rows.means, rows.truth, *rows.tolerances).astype(float)
        if self.variant == "a":
            k = rows.n_systems
            return counts[:, 0] / (k * (k - 1) / 2)
        untied = counts[:, 1] * counts[:, 2]
        return np.divide(
            counts[:, 0], np.sqrt(untied), out=np.full(len(counts), np.nan), where=untied > 0
        )
