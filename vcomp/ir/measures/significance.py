"""Paired t-tests between all systems of a collection at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import PlanError
from vcomp.ir.measures.agreement import rounding
from vcomp.ir.rank import difference_variances


@dataclass(frozen=True, slots=True, eq=False)
class PairedTests:
    """Every two systems compared by a paired t-test.

    Pairs i < j are in the order of the rows of an upper triangle: (0, 1), (0, 2), …, (1, 2), ….

    Attributes
    ----------
    differences : (n_pairs,) mean of X_i - X_j; exactly zero where it is but for rounding
    t : (n_pairs,) √n times the mean difference over its standard deviation; where the difference
        is the same on all topics, zero if it is zero and infinite if it is not
    df : degrees of freedom, one less than the number of topics
    """

    differences: FloatArray
    t: FloatArray
    df: int

    def significant(self, alpha: float) -> BoolArray:
        """Return which differences are significant at level `alpha`, two-sided."""
        return np.abs(self.t) > _critical_t(alpha, self.df)

    @property
    def p_values(self) -> FloatArray:
        """Two-sided p-values."""
        from scipy.special import stdtr

        p: FloatArray = 2.0 * stdtr(self.df, -np.abs(self.t))
        return p


def paired_tests(X: FloatArray) -> PairedTests:
    """Compare every two systems by a paired t-test, from one covariance matrix.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing, on at least two topics
    """
    i, j = pairs_of(X.shape[1])
    differences = _settled(X.mean(axis=0), i, j)
    deviations = np.sqrt(difference_variances(X, (i, j)))
    limit = np.where(differences == 0, 0.0, np.copysign(np.inf, differences))
    t = np.divide(differences * np.sqrt(len(X)), deviations, out=limit, where=deviations > 0)
    return PairedTests(differences, t, len(X) - 1)


def signs(Y: FloatArray) -> FloatArray:
    """Return the sign of the difference of each pair: of scores on topics, or of true means."""
    means = Y.mean(axis=0) if Y.ndim == 2 else Y
    return np.sign(_settled(means, *pairs_of(means.size)))


@lru_cache(maxsize=16)
def pairs_of(n_systems: int) -> tuple[LongArray, LongArray]:
    """Return the systems of each pair."""
    i, j = np.triu_indices(n_systems, 1)
    i.flags.writeable = j.flags.writeable = False
    return i, j


def _settled(means: FloatArray, i: LongArray, j: LongArray) -> FloatArray:
    differences: FloatArray = means[i] - means[j]
    differences[np.abs(differences) <= rounding(means)] = 0.0
    return differences


@lru_cache(maxsize=64)
def _critical_t(alpha: float, df: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, 1.0 - alpha / 2.0))


def between(differences: FloatArray, lower: float, upper: float) -> BoolArray:
    """Return which differences, regardless of sign, are in a bin; those of zero are in none.

    A difference that is on a bound but for rounding is on it: 0.3 - 0.2 is 0.1.
    """
    d = np.abs(differences)
    slack = 1e-12 * d.max(initial=0.0)
    inside: BoolArray = (d > 0) & (d >= lower - slack) & (d < upper - slack)
    return inside


def check_bin(lower: float, upper: float) -> None:
    """Refuse bins of differences that hold nothing.

    Raises
    ------
    PlanError
        If `lower` is negative, or `upper` is not more.
    """
    for bound in (lower, upper):
        if isinstance(bound, bool) or not isinstance(bound, int | float | np.number):
            raise PlanError(f"lower and upper must be numbers, not {bound!r}")
    if not 0 <= lower < upper:
        raise PlanError(f"a bin needs 0 <= lower < upper; they are {lower!r} and {upper!r}")
