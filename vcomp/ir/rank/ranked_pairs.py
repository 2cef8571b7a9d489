"""Protocol of differences between systems for rank accuracy, and their drawn errors."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from vcomp._typing import FloatArray, LongArray

_TINY = 1e-280
"""Lower bound of the relative squared length of an error."""


class Pairs(Protocol):
    """Differences between systems, for any facets of the scores.

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
        """(k,) mean scores in the observed test, in descending order."""

    @property
    def centres(self) -> FloatArray:
        """(k,) effects, less the part that systems without missing cells would have in common."""

    @property
    def differences(self) -> FloatArray:
        """(k(k-1)/2,) estimates of the difference of each pair."""

    @property
    def variances(self) -> FloatArray:
        """(k(k-1)/2,) error variances of the differences in a test of size one."""

    @property
    def mean_error(self) -> float:
        """Mean over pairs of the squared standard error of the differences."""

    @property
    def df(self) -> float:
        """Effective degrees of freedom between systems, ν."""

    @property
    def error_df(self) -> float:
        """Effective degrees of freedom of the mean error variance, ν'."""

    @property
    def swap_df(self) -> LongArray | FloatArray:
        """Degrees of freedom of the variance of each pair, or of all pairs."""

    def drawn_errors(
        self, draws: int, rng: np.random.Generator, share: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw errors of the observed test and of a test of size one, with scales of the latter.

        Scales are of all new tests, (1, draws), or of each, (m, draws). `share` are the normal
        scores of the shares of error that belong to the draws.
        """


# Draws of errors (eqs. 15.9a and 15.9b) ---------------------------------------------------------


def corrected_lengths(errors: FloatArray, mean: float, sample_df: float, df: float) -> FloatArray:
    """Return errors with the variance of length of the true covariances (eq. 15.9a).

    The sample covariances of few topics have fewer effective degrees of freedom than the true
    ones. So the lengths of errors that are drawn with them vary too much: their squares are raised
    to a power that leaves the mean and makes their relative variance 2/ν.

    Parameters
    ----------
    errors : (draws, k) drawn with the sample covariances
    mean : expectation of their squared lengths
    sample_df, df : effective degrees of freedom of the sample covariances and of the true ones
    """
    from scipy.special import gammaln

    power = np.sqrt(sample_df / df)
    if power >= 1.0 or mean == 0.0:
        return errors
    squares = np.einsum("ij,ij->i", errors, errors) / mean
    half = sample_df / 2.0
    raised = power * np.log(half) + gammaln(half) - gammaln(half + power)
    factors = np.exp((raised + (power - 1.0) * np.log(np.maximum(squares, _TINY))) / 2.0)
    return np.asarray(errors * factors[:, np.newaxis])


def mean_error_ratio(df: float) -> float:
    """Return E|t| over E|z|, for Student's t with at least 2 degrees of freedom and a normal z.

    So errors of a single pair, whose variance has these degrees of freedom, are on average as
    large as Student's distribution says.

    Parameters
    ----------
    df : degrees of freedom of the variance of a pair

    Examples
    --------
    >>> round(mean_error_ratio(19), 3)
    1.042
    """
    from scipy.special import gammaln

    half = max(df, 2.0) / 2.0
    return float(np.sqrt(half) * np.exp(gammaln(half - 0.5) - gammaln(half)))
