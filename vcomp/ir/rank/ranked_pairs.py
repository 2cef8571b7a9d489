"""The quantities of the differences between systems that rank accuracy is estimated from."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from vcomp._typing import FloatArray, LongArray


class Pairs(Protocol):
    """Differences between systems, whatever facets their scores have.

    The size of a test is a number whose inverse its error variances are proportional to: the
    number of topics, or 1/σ²(δ) where there are several random facets. Attributes are those of
    :class:`~vcomp.ir.rank.paired.PairedDifferences`, which has the first, and
    :class:`~vcomp.ir.rank.faceted.FacetedDifferences`, which has the second.
    """

    @property
    def n_systems(self) -> int:
        """Number of systems, k."""

    @property
    def n_residuals(self) -> int:
        """Number of residuals of each system, from which errors are drawn."""

    @property
    def effects(self) -> FloatArray:
        """(k,) mean scores in the test at hand, the best first."""

    @property
    def centres(self) -> FloatArray:
        """(k,) the same, less what systems without missing cells would have in common."""

    @property
    def differences(self) -> FloatArray:
        """(k(k-1)/2,) estimates of the difference of each pair."""

    @property
    def variances(self) -> FloatArray:
        """(k(k-1)/2,) their error variances in a test of size one."""

    @property
    def mean_error(self) -> float:
        """Mean over pairs of the squared standard error of the differences."""

    @property
    def df(self) -> float:
        """Effective degrees of freedom between systems, ν."""

    @property
    def error_df(self) -> float:
        """Those of the mean error variance, ν'."""

    @property
    def swap_df(self) -> LongArray | FloatArray:
        """Degrees of freedom of the variance of each pair, or of all pairs."""

    def drawn_errors(
        self, draws: int, rng: np.random.Generator, share: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw errors of the test at hand and of a test of size one, and what scales the latter.

        Scales are of all new tests, (1, draws), or of each, (m, draws). `share` are the normal
        scores of the shares of error that belong to the draws.
        """
