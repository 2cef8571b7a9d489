"""Pairwise differences between systems, from which rank accuracy is estimated.

:class:`PairedDifferences` holds how much every two systems differ, and how much their difference
varies from topic to topic; of the scores it keeps the residuals after the means of systems and
topics are subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import DataError

_ROUNDING = 64 * float(np.finfo(float).eps)
"""Relative rounding error: smaller differences count as zero."""

_CANCELLED = 1e-6
"""Share of S_ii + S_jj below which S_ii + S_jj - 2 S_ij has lost six of sixteen digits."""

_MAX_SYSTEMS = 5_000
"""Largest number of systems: several system × system matrices of 200 MB are needed."""

_BLOCK = 2**20
"""Scores in one block of directly computed differences: 8 MB."""

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


@dataclass(frozen=True, slots=True, eq=False)
class PairedDifferences:
    """Means and variances over topics of the differences between every two systems.

    Systems are sorted, the best first; those of equal mean stay in the order in which they came.
    Pairs i < j are in the order of the rows of an upper triangle: (0, 1), (0, 2), …, (1, 2), ….

    Attributes
    ----------
    systems : (k,) names, the best first
    n_topics : number of topics with a score
    grand_mean : mean of all scores
    effects : (k,) mean score of each system, less `grand_mean`
    differences : (k(k-1)/2,) mean of D = X_i - X_j over the topics that both systems have
    variances : (k(k-1)/2,) variance of D over these topics, with denominator n - 1; exactly zero
        where D varies by rounding alone
    n_common : (k(k-1)/2,) number of these topics
    centres : (k,) mean score of each system less the means of its topics, on average zero; without
        missing cells the same as `effects`
    n_scores : (k,) number of topics on which each system has a score
    residuals : (n_topics, k) scores less topic means and system means; zero where one is missing

    Examples
    --------
    >>> pairs = PairedDifferences.from_scores(
    ...     [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.5, 0.4]], ["a", "b", "c"]
    ... )
    >>> pairs.systems
    ('b', 'a', 'c')
    >>> pairs.differences.round(3), pairs.variances.round(3)
    (array([0.2, 0.2, 0. ]), array([0.01, 0.03, 0.04]))
    """

    systems: tuple[str, ...]
    n_topics: int
    grand_mean: float
    effects: FloatArray
    differences: FloatArray
    variances: FloatArray
    n_common: LongArray
    centres: FloatArray
    n_scores: LongArray
    residuals: FloatArray

    @classmethod
    def from_scores(
        cls, scores: FloatArray | Sequence[Sequence[float]], systems: Sequence[str]
    ) -> PairedDifferences:
        """Return the differences between the systems of a matrix of scores.

        Parameters
        ----------
        scores : (n_topics, n_systems) score of each system on each topic, nan where there is none;
            topics without any score are left out
        systems : (n_systems,) their names

        Returns
        -------
        PairedDifferences

        Raises
        ------
        DataError
            If there are fewer than two systems or two topics, more systems than can be paired, a
            score is infinite, or two systems have fewer than two topics in common.

        Notes
        -----
        With S the covariance matrix of the systems over topics, s_ij² = S_ii + S_jj - 2 S_ij.
        Topic means and then system means are subtracted before anything is squared; the variances
        of pairs for which that sum still cancels are computed from their differences.

        With S doubly centred, :attr:`df` is (tr S)²/tr S² (Box, 1954; eq. 15.8),
        both estimated without bias under normality (Huynh and Feldt, 1976).

        References
        ----------
        Box, G. E. P. (1954). Some theorems on quadratic forms applied in the study of analysis of
        variance problems, II. *Annals of Mathematical Statistics*, 25, 484-498.

        Huynh, H. and Feldt, L. S. (1976). Estimation of the Box correction for degrees of freedom
        from sample data in randomized block and split-plot designs. *Journal of Educational
        Statistics*, 1, 69-82.

        Examples
        --------
        >>> PairedDifferences.from_scores([[0.3, 0.5], [0.4, 0.5]], ["a", "b"]).systems
        ('b', 'a')
        """
        X = np.asarray(scores, dtype=float)
        _check(X, systems)
        missing = np.isnan(X)
        if missing.any():
            empty = missing.all(axis=1)
            X = X[~empty]
            if missing[~empty].any():
                return cls._of_incomplete(X, systems)
        return cls._of_complete(X, systems)

    @classmethod
    def _of_complete(cls, X: FloatArray, systems: Sequence[str]) -> PairedDifferences:
        grand_mean = float(X.mean())
        tolerance = _ROUNDING * float(np.abs(X).max())
        order, effects = best_first((X - grand_mean).mean(axis=0), tolerance)
        X = X[:, order]
        Z = X - X.mean(axis=1, keepdims=True)
        Z -= Z.mean(axis=0)
        i, j = pairs = np.triu_indices(effects.size, 1)
        differences = effects[i] - effects[j]
        variances = _pair_variances(Z.T @ Z / (len(Z) - 1), X, pairs)
        _make_exact(differences, variances, tolerance)
        n, k = X.shape
        return cls(
            systems=tuple([str(systems[s]) for s in order]),
            n_topics=n,
            grand_mean=grand_mean,
            effects=effects,
            differences=differences,
            variances=variances,
            n_common=np.full(differences.size, n, dtype=np.int64),
            centres=effects,
            n_scores=np.full(k, n, dtype=np.int64),
            residuals=Z,
        )

    @classmethod
    def _of_incomplete(cls, X: FloatArray, systems: Sequence[str]) -> PairedDifferences:
        grand_mean = float(np.nanmean(X))
        tolerance = _ROUNDING * float(np.nanmax(np.abs(X)))
        order, effects = best_first(np.nanmean(X - grand_mean, axis=0), tolerance)
        X = X[:, order]
        names = tuple(str(systems[s]) for s in order)
        upper = np.triu_indices(len(names), 1)
        Z, centres = _centred(X)
        Z = np.nan_to_num(Z)
        differences, variances, doubtful, n_common = _incomplete(X, Z, centres, names, upper)
        variances[doubtful] = _direct_variances(X, upper[0][doubtful], upper[1][doubtful])
        _make_exact(differences, variances, tolerance)
        return cls(
            systems=names,
            n_topics=len(X),
            grand_mean=grand_mean,
            effects=effects,
            differences=differences,
            variances=variances,
            n_common=n_common,
            centres=centres,
            n_scores=(~np.isnan(X)).sum(axis=0),
            residuals=Z,
        )

    @property
    def n_systems(self) -> int:
        """Number of systems."""
        return len(self.systems)

    @property
    def n_residuals(self) -> int:
        """Number of residuals of each system, one for each topic."""
        return self.n_topics

    @property
    def is_complete(self) -> bool:
        """Whether every system has a score on every topic."""
        return bool((self.n_common == self.n_topics).all())

    @property
    def n_zero_variance(self) -> int:
        """Number of pairs with the same difference on every topic, such as identical systems."""
        return int((self.variances == 0).sum())

    @property
    def df(self) -> float:
        """Effective degrees of freedom between systems, from 1 to k - 1.

        How many independent systems would vary as much in their mean square as these, whose errors
        are correlated.
        """
        return self._effective_df()[1]

    @property
    def sample_df(self) -> float:
        """Effective degrees of freedom of the raw sample covariance matrix, biased downward.

        The fewer topics there are, the more its eigenvalues differ.
        """
        return self._effective_df()[0]

    def _effective_df(self) -> tuple[float, float]:
        """Return the effective degrees of freedom of the sample covariances, raw and corrected."""
        products = self.residuals.T @ self.residuals
        if self.is_complete:
            return effective_df(products / (self.n_topics - 1), float(self.n_topics))
        counts = np.diag(self.n_scores.astype(float))
        i, j = np.triu_indices(self.n_systems, 1)
        counts[i, j] = counts[j, i] = self.n_common
        return effective_df(products / (counts - 1.0), float(self.n_common.mean()))

    @property
    def mean_error(self) -> float:
        """Mean over pairs of the squared standard error of D̄."""
        return float((self.variances / self.n_common).mean())

    @property
    def swap_df(self) -> LongArray:
        """(k(k-1)/2,) degrees of freedom of :attr:`variances`."""
        return self.n_common - 1

    @property
    def error_df(self) -> float:
        """Degrees of freedom of the mean square of error, ν' (eq. 15.8)."""
        return self.df * (float(self.n_common.mean()) - 1.0)

    def drawn_errors(
        self, draws: int, rng: np.random.Generator, share: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw errors of means in the observed test and in new tests, with scales.

        Parameters
        ----------
        draws : number of draws
        rng : random numbers
        share : not used: with ν' = ν(n - 1) the share of error says little of the size of errors

        Returns
        -------
        own : (draws, k) errors of the means of the observed test
        new : (draws, k) errors of a test of one topic, before they are multiplied by `scales`
        scales : (1, draws) what estimated standard deviations are multiplied by, as in `own`

        Notes
        -----
        With g standard normal and Z the residuals of systems, Zᵀg/√(n - 1) has the covariance S of
        the systems, which need not be formed, nor have full rank. The same g moves the true means
        and the scale of errors, so that both depend on each other as in the scores.
        """
        n = self.n_topics
        g = rng.standard_normal((draws, n))
        scales = self._drawn_scales(g)[:, np.newaxis]
        df = self._effective_df()
        own = self._errors_of_one(g, *df) * (scales / np.sqrt(self.n_scores))
        return own, self._errors_of_one(rng.standard_normal((draws, n)), *df), scales.T

    def _errors_of_one(self, g: FloatArray, sample_df: float, df: float) -> FloatArray:
        """Return errors of a test of one topic with the covariances of systems (eq. 15.9a)."""
        weights = 1.0 / np.sqrt(self.n_scores - 1.0)
        mean = float(((self.residuals * weights) ** 2).sum())
        return corrected_lengths((g @ self.residuals) * weights, mean, sample_df, df)

    def _drawn_scales(self, g: FloatArray) -> FloatArray:
        """Return the scale factors of estimated standard deviations (eq. 15.9b).

        The mean square of error is the mean over topics of the squares of residuals, and varies as
        these do. With their deviation from their mean as weights, the numbers `g` that move the
        means of systems move the mean square as well.

        Parameters
        ----------
        g : (draws, n_topics) standard normal numbers
        """
        n = self.n_topics
        constant = mean_error_ratio(n - 1.0)
        squares = (self.residuals**2).sum(axis=1)
        mean = float(squares.mean())
        if mean == 0.0:
            return np.full(len(g), constant)
        moved = g @ (squares / mean - 1.0)
        return constant * np.exp(moved / (2.0 * np.sqrt(n * (n - 1.0))))

    @property
    def standardized(self) -> FloatArray:
        """D̄_ij / s_ij of each pair; where s_ij is zero, zero or ±inf as the sign of D̄_ij."""
        D, variance = self.differences, self.variances
        limit = np.where(D == 0, 0.0, np.copysign(np.inf, D))
        return np.divide(D, np.sqrt(variance), out=limit, where=variance > 0)


def _check(X: FloatArray, systems: Sequence[str]) -> None:
    if X.ndim != 2:
        raise DataError(f"scores must be a topic × system matrix; it has {X.ndim} dimension(s)")
    k = X.shape[1]
    if len(systems) != k:
        raise DataError(f"there are {len(systems)} names for {k} systems")
    check_systems(k)
    finite = np.isfinite(X)
    if len(X) > 1 and finite.all():
        return
    if np.isinf(X).any():
        system = systems[int(np.flatnonzero(np.isinf(X).any(axis=0))[0])]
        raise DataError(f"system {str(system)!r} has an infinite score", level=system)
    n_topics = int(finite.any(axis=1).sum())
    if n_topics < 2:
        raise DataError(f"rank accuracy needs at least two topics; scores are on {n_topics}")
    lone = np.flatnonzero(finite.sum(axis=0) < 2)
    if lone.size:
        name = str(systems[lone[0]])
        raise DataError(
            f"system {name!r} has scores on fewer than two topics; leave it out", level=name
        )


def check_systems(k: int) -> None:
    """Refuse numbers of systems that cannot be ranked, or are too many to be paired.

    Raises
    ------
    DataError
        Stating the limits.
    """
    if k < 2:
        raise DataError(f"rank accuracy needs at least two systems; there are {k}")
    if k > _MAX_SYSTEMS:
        raise DataError(
            f"{k:,} systems make {k * (k - 1) // 2:,} pairs; "
            f"rank accuracy is limited to {_MAX_SYSTEMS:,} systems"
        )


def best_first(effects: FloatArray, tolerance: float) -> tuple[LongArray, FloatArray]:
    """Sort systems by descending `effects`; return order and effects, with ties made exact.

    Means that are mathematically equal may differ in the last bit, which would change the order of
    the systems and Eτ_AP. So neighbours no further apart than `tolerance` are tied: they keep the
    order in which they came, and share one mean.
    """
    order = np.argsort(-effects, kind="stable")
    ranked = effects[order]
    starts = np.concatenate([[True], ranked[:-1] - ranked[1:] > tolerance])
    tie = np.cumsum(starts) - 1
    return order[np.lexsort((order, tie))], ranked[starts][tie]


_Pairs = tuple[LongArray, LongArray]


def _make_exact(differences: FloatArray, variances: FloatArray, tolerance: float) -> None:
    """Set differences and variances within rounding error of zero to zero, in place."""
    constant = variances <= tolerance**2
    if constant.any():
        variances[constant] = 0.0
        differences[constant & (np.abs(differences) <= tolerance)] = 0.0


def _incomplete(
    X: FloatArray, Z: FloatArray, centres: FloatArray, systems: Sequence[str], pairs: _Pairs
) -> tuple[FloatArray, FloatArray, BoolArray, LongArray]:
    """Return means and variances of differences, a mask of cancelled variances, and n."""
    i, j = pairs
    M = (~np.isnan(X)).astype(float)
    counts = M.T @ M
    n = counts[i, j]
    _check_common(n, systems, pairs)
    sums, squares, products = Z.T @ M, (Z * Z).T @ M, Z.T @ Z
    mean = (sums[i, j] - sums[j, i]) / n
    total = squares[i, j] + squares[j, i]
    ss = total - 2.0 * products[i, j] - n * mean**2
    differences = mean + centres[i] - centres[j]
    variances, doubtful = ss / (n - 1.0), ss <= _CANCELLED * total
    return differences, variances, doubtful, n.astype(np.int64)


def effective_df(S: FloatArray, n: float) -> tuple[float, float]:
    """Return the effective degrees of freedom of the mean square between systems.

    First those of `S` itself, then those estimated without bias.

    Parameters
    ----------
    S : (k, k) covariances of scores less topic means
    n : number of topics, of which a pair of systems has as many in common on average
    """
    k = len(S)
    S = S - S.mean(axis=0) - S.mean(axis=1, keepdims=True) + S.mean()
    squares = float(np.vdot(S, S))
    if squares == 0.0:
        return k - 1.0, k - 1.0
    box = float(np.trace(S)) ** 2 / squares
    spare = n - 1.0 - box
    corrected = (n * box - 2.0) / spare if spare > _ROUNDING * n else box
    return box, min(max(corrected, box, 1.0), k - 1.0)


def _centred(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return `X` less topic means and then system means, and the latter."""
    Z = X - np.nanmean(X, axis=1, keepdims=True)
    effects = np.nanmean(Z, axis=0)
    return Z - effects, effects


def difference_variances(X: FloatArray, pairs: _Pairs) -> FloatArray:
    """Return the variance of X_i - X_j over topics for each of `pairs`, of complete scores.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    pairs : the systems i and j of each pair

    Returns
    -------
    (n_pairs,) array
        Exactly zero where the difference varies by rounding alone.
    """
    S, _, zero = centred_covariances(X)
    variances = _pair_variances(S, X, pairs)
    variances[variances <= zero] = 0.0
    return variances


def _pair_variances(S: FloatArray, X: FloatArray, pairs: _Pairs) -> FloatArray:
    """Return s_ii + s_jj − 2 s_ij of pairs, from the scores where digits cancel."""
    i, j = pairs
    diagonal = np.diag(S)
    total = diagonal[i] + diagonal[j]
    variances: FloatArray = total - 2.0 * S[i, j]
    doubtful = variances <= _CANCELLED * total
    variances[doubtful] = _direct_variances(X, i[doubtful], j[doubtful])
    return variances


def centred_covariances(X: FloatArray) -> tuple[FloatArray, float, float]:
    """Return the covariances of systems, of complete scores less the means of their topics.

    And the share of s_ii + s_jj up to which the variance s_ii + s_jj − 2 s_ij of a difference has
    to be computed directly, and the variance up to which it is rounding.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing
    """
    Z = _centred(X)[0]
    zero = float(_ROUNDING * np.abs(X).max()) ** 2
    return Z.T @ Z / (len(Z) - 1), _CANCELLED, zero


def _direct_variances(X: FloatArray, i: LongArray, j: LongArray) -> FloatArray:
    """Return the variances of X_i - X_j from the differences, some pairs at a time."""
    step = max(1, _BLOCK // len(X))
    blocks = [
        np.nanvar(X[:, i[at : at + step]] - X[:, j[at : at + step]], axis=0, ddof=1)
        for at in range(0, i.size, step)
    ]
    return np.concatenate([np.empty(0), *blocks])


def _check_common(n: FloatArray, systems: Sequence[str], pairs: _Pairs) -> None:
    few = np.flatnonzero(n < 2)
    if not few.size:
        return
    one, other = systems[pairs[0][few[0]]], systems[pairs[1][few[0]]]
    if few.size == 1:
        raise DataError(
            f"systems {one!r} and {other!r} have fewer than two topics in common, "
            "so the variance of their difference is unknown",
            level=one,
        )
    raise DataError(
        f"{few.size:,} of {n.size:,} pairs of systems, {one!r} and {other!r} among them, "
        "have fewer than two topics in common, so the variances of their differences are unknown",
        level=one,
    )
