"""τ and τ_AP from probabilities of swaps (eqs. 15.2 to 15.5) and from counts of swaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.design import LevelGroups, group_codes
from vcomp.exceptions import PlanError, check_alpha, check_one_of, is_real, is_whole
from vcomp.ir.rank.paired import Pairs
from vcomp.numerics import check_rng

_TINY = 1e-280
"""Probabilities below this are close to underflow."""


@dataclass(frozen=True, slots=True)
class ErrorShare:
    """The distribution of B = 1 - Eρ², the share of error in the variance of mean scores.

    Attributes
    ----------
    F : mean square between systems over mean square of error
    df : effective degrees of freedom between systems, ν
    df_error : those of error, ν'

    Notes
    -----
    With two effective degrees of freedom or fewer there is no such distribution: as with Stein's
    estimator the spread of true means is not estimable, and B is set to zero.

    Examples
    --------
    >>> share = ErrorShare(F=4.0, df=10.0, df_error=490.0)
    >>> round(share.mean, 3), share.quantile([0.025, 0.5, 0.975]).round(3)
    (0.2, array([0.054, 0.183, 0.442]))
    """

    F: float
    df: float
    df_error: float

    @property
    def is_known(self) -> bool:
        """Whether there are enough systems to distinguish error from true differences."""
        return self.df > 2.0 and bool(np.isfinite(self.F))

    @property
    def mean(self) -> float:
        """Mean of B (eq. 15.7 of the mathematics); zero if it is not estimable."""
        from scipy.special import betainc, betaln

        if not self.is_known:
            return 0.0
        a, b, c, x = self._beta()
        if self._is_near_one():
            slope = self._slope()
            return slope / (slope + 1.0)
        ratio = np.exp(betaln(a + 1.0, b - 1.0) - betaln(a, b)) / c
        return min(float(ratio * betainc(a + 1.0, b - 1.0, x) / betainc(a, b, x)), 1.0)

    def quantile(self, q: FloatArray | list[float]) -> FloatArray:
        """Return quantiles of B (eq. 15.6 of the mathematics); zero if it is not estimable."""
        from scipy.special import betainc, betaincinv

        q = np.asarray(q, dtype=float)
        if not self.is_known:
            return np.zeros(q.shape)
        if self._is_near_one():
            return np.asarray(q ** (1.0 / self._slope()))
        a, b, c, x = self._beta()
        y = np.minimum(betaincinv(a, b, q * betainc(a, b, x)), x)
        return np.minimum(y / ((1.0 - y) * c), 1.0)

    def _beta(self) -> tuple[float, float, float, float]:
        """Return a, b, c and x: c B/(1 + c B) is beta(a, b), cut off at x."""
        a = self.df / 2.0 - 1.0
        c = max(self.df * self.F / self.df_error, _TINY)
        return a, self.df_error / 2.0 + 1.0, c, c / (1.0 + c)

    def _is_near_one(self) -> bool:
        """Whether F is so small that the density is concentrated near one."""
        from scipy.special import betainc

        a, b, _, x = self._beta()
        return bool(betainc(a, b, x) < _TINY)

    def _slope(self) -> float:
        """Return the slope of the log-density of log B at B = 1."""
        a, b, _, x = self._beta()
        return a - (a + b) * x


def error_share(pairs: Pairs) -> ErrorShare:
    """Return the share of error in the differences between systems.

    The mean of D̄² over pairs is twice the mean square between systems over n, that of s² twice
    the mean square of error. With missing cells each pair has its own n.

    Examples
    --------
    >>> from vcomp.ir.rank.paired import PairedDifferences
    >>> scores = [[3, 5, 1, 2], [4, 5, 4, 1], [2, 5, 3, 1], [3, 6, 3, 2]]
    >>> share = error_share(PairedDifferences.from_scores(scores, "abcd"))
    >>> round(share.F, 3), round(share.df, 3)
    (14.04, 3.0)
    """
    error = pairs.mean_error
    observed = float((pairs.differences**2).mean())
    F = observed / error if error > 0.0 else np.inf
    return ErrorShare(F, pairs.df, pairs.error_df)


@dataclass(frozen=True, slots=True, eq=False)
class RankDraws:
    """Draws of true means of all systems, given their scores, and of errors of new tests.

    Attributes
    ----------
    truth : (draws, k) true means, each draw in descending order
    order : (draws, k) which systems these are
    errors : (draws, k) errors of a test of size one, in this order, before they are scaled
    scales : (1, draws) or (m, draws) what estimated standard deviations of new tests are
        multiplied by
    at_hand : (draws, k) mean scores in the observed test, in this order
    precision : (k, k) 1 / (√2 s), s the standard deviation of the difference between two systems
    """

    truth: FloatArray
    order: LongArray
    errors: FloatArray
    scales: FloatArray
    at_hand: FloatArray
    precision: FloatArray

    @classmethod
    def of(cls, pairs: Pairs, draws: int, seed: int) -> RankDraws:
        """Draw true means, and errors of new tests (eqs. 15.9 to 15.9b).

        Parameters
        ----------
        pairs : the differences between systems
        draws : number of draws
        seed : of random numbers
        """
        from scipy.special import ndtri

        from vcomp.numerics import limited_blas

        rng = np.random.default_rng(seed)
        shares = rng.random(draws)
        B = error_share(pairs).quantile(shares)[:, np.newaxis]
        # One thread: sums in another order differ in the last bit.
        with limited_blas(0):
            own, new, scales = pairs.drawn_errors(draws, rng, ndtri(shares))
        truth = (1.0 - B) * pairs.centres + np.sqrt(1.0 - B) * own
        order = np.argsort(-truth, axis=1, kind="stable")
        return cls(
            truth=np.take_along_axis(truth, order, axis=1),
            order=order,
            errors=np.take_along_axis(new, order, axis=1),
            scales=scales,
            at_hand=pairs.effects[order],
            precision=_precision(pairs),
        )

    def one_of_each(self, groups: LongArray, rng: np.random.Generator) -> RankDraws:
        """Return the draws restricted to one random system of each group, drawn anew per draw.

        Parameters
        ----------
        groups : (k,) group of each system, numbered without gaps
        rng : random numbers
        """
        draws = len(self.truth)
        n_groups = int(groups.max()) + 1
        members = np.argsort(groups, kind="stable")
        sizes = np.bincount(groups)
        starts = np.cumsum(sizes) - sizes
        chosen = members[starts + rng.integers(0, sizes, (draws, n_groups))]
        kept = np.zeros(self.truth.shape, dtype=bool)
        np.put_along_axis(kept, chosen, values=True, axis=1)
        kept = np.take_along_axis(kept, self.order, axis=1)
        some = {
            name: getattr(self, name)[kept].reshape(draws, n_groups)
            for name in ("truth", "order", "errors", "at_hand")
        }
        return replace(self, **some)

    def realised(self, n_topics: float | None, threshold: float, row: int = 0) -> FloatArray:
        """Count agreements of tests with the truth in each draw.

        Parameters
        ----------
        n_topics : of new tests; None for the observed test
        threshold : largest difference of equal systems
        row : of the scales

        Returns
        -------
        (draws, 4) array
            as of :func:`vcomp.ir.kernels.rank_agreement.drawn_agreement`
        """
        from vcomp.ir.kernels.rank_agreement import drawn_agreement

        if n_topics is None:
            return drawn_agreement(self.at_hand, self.truth, threshold)
        errors = self.errors * self._scales(row)[:, np.newaxis]
        means = self.truth + errors / np.sqrt(n_topics)
        counts = drawn_agreement(means, self.truth, threshold)
        return counts

    def expected(self, n_topics: float, threshold: float, row: int = 0) -> FloatArray:
        """Return the expectation of the counts of :meth:`realised` in new tests, in each draw."""
        from vcomp.ir.kernels.rank_agreement import drawn_expectation

        scales = np.sqrt(n_topics) / self._scales(row)
        return drawn_expectation(self.truth, self.order, self.precision, scales, threshold)

    def _scales(self, row: int) -> FloatArray:
        return self.scales[row if len(self.scales) > 1 else 0]


def _precision(pairs: Pairs) -> FloatArray:
    """Return 1 / (√2 s) of each pair of systems, infinite if s is zero."""
    k = pairs.n_systems
    i, j = np.triu_indices(k, 1)
    out = np.full((k, k), np.inf)
    with np.errstate(divide="ignore"):
        out[i, j] = out[j, i] = 1.0 / np.sqrt(2.0 * pairs.variances)
    return out


TauEstimator: TypeAlias = Literal["shrunken", "urbano"]
AccuracyEstimator: TypeAlias = Literal["shrunken", "urbano", "split_half"]
TauInterval: TypeAlias = Literal["auto", "draws", "independent"]
TauTarget: TypeAlias = Literal["test", "expectation"]
TauVariant: TypeAlias = Literal["a", "b", "ap"]


@dataclass(frozen=True, slots=True)
class RankOptions:
    """Options of an estimate of τ or τ_AP, checked on creation.

    Attributes
    ----------
    estimator : ``"shrunken"`` or ``"urbano"``
    variant : ``"a"`` or ``"b"`` for τ_a or τ_b, ``"ap"`` for τ_AP
    threshold : largest difference of systems that count as equal
    target : what the interval is of, ``"test"`` or ``"expectation"``
    interval : how it is made, ``"auto"``, ``"draws"`` or ``"independent"``
    alpha : intervals have confidence 1 − alpha
    draws : number of draws behind an interval
    rng : seed or generator

    Raises
    ------
    PlanError
        If an option does not have one of its allowed values, or ``interval="independent"`` is
        combined with ``target="expectation"``.
    EstimationError
        If `rng` is neither a seed nor a generator.
    """

    estimator: TauEstimator = "shrunken"
    variant: TauVariant = "a"
    threshold: float = 0.0
    target: TauTarget = "test"
    interval: TauInterval = "auto"
    alpha: float = 0.05
    draws: int = 2_000
    rng: int | np.random.Generator | None = None

    def __post_init__(self) -> None:
        check_tau_estimator(self.estimator)
        check_one_of("variant", self.variant, get_args(TauVariant))
        check_one_of("target", self.target, get_args(TauTarget))
        check_one_of("interval", self.interval, get_args(TauInterval))
        if self.interval == "independent" and self.target == "expectation":
            raise PlanError(
                "interval='independent' covers τ of one test; for its expectation use "
                "interval='draws'"
            )
        check_alpha(self.alpha)
        check_rng(self.rng)
        number = self.threshold
        if not is_real(number) or not 0 <= number < np.inf:
            raise PlanError(
                f"threshold is the largest difference of equal systems, a number of at least 0, "
                f"not {number!r}"
            )
        if not is_whole(self.draws) or self.draws < 1:
            raise PlanError(f"draws must be a whole number of at least 1, not {self.draws!r}")

    @property
    def independent(self) -> bool:
        """Whether the interval is the published one, for independent swaps."""
        if self.interval == "auto":
            return self.estimator == "urbano" and self.target == "test"
        return self.interval == "independent"


def check_tau_estimator(estimator: object) -> None:
    """Refuse an estimator without a formula for τ and τ_AP.

    Raises
    ------
    PlanError
        Naming those that have one.
    """
    if estimator == "split_half":
        raise PlanError(
            "estimator must be 'shrunken' or 'urbano', not 'split_half'; vcomp.ir.split_half and "
            "vcomp.ir.accuracy(…, estimator='split_half') extrapolate τ from halves of the topics"
        )
    check_one_of("estimator", estimator, get_args(TauEstimator))


@dataclass(frozen=True, slots=True, eq=False)
class Swaps:
    """Probabilities of the order of each pair in a test of n' topics (eq. 15.2).

    Attributes
    ----------
    differences : (pairs,) estimates of the true differences
    deviations : (pairs,) standard deviation over topics of each difference
    df : (pairs,) degrees of freedom of these, or one for all; empty if they are treated as known
    threshold : largest difference of equal systems
    """

    differences: FloatArray
    deviations: FloatArray
    df: LongArray | FloatArray
    threshold: float

    @classmethod
    def of(
        cls,
        pairs: Pairs,
        estimator: TauEstimator,
        threshold: float,
        at_hand: bool = False,
    ) -> Swaps:
        """Return estimates of the true differences with their standard deviations.

        Parameters
        ----------
        pairs : the differences between systems
        estimator : ``"shrunken"`` or ``"urbano"``
        threshold : largest difference of equal systems
        at_hand : True for the observed test, False for new tests
        """
        deviations = np.sqrt(pairs.variances)
        if estimator == "urbano":
            return cls(pairs.differences, deviations, np.empty(0, dtype=np.int64), threshold)
        shrunken = np.sqrt(1.0 - error_share(pairs).mean) * pairs.differences
        # With missing cells the order of means may contradict that on common topics. The observed
        # test has the order of means, but new tests are compared with the likelier one.
        differences = shrunken if at_hand else np.abs(shrunken)
        return cls(differences, deviations, pairs.swap_df, threshold)

    @property
    def unequal(self) -> BoolArray:
        """Mask of pairs that are truly unequal; all with a threshold of zero."""
        return (np.abs(self.differences) > self.threshold) | (self.threshold == 0.0)

    def probabilities(self, n_topics: float) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities that i is above j, and below, by more than the threshold."""
        behind = self._tail(-self.differences - self.threshold, n_topics)
        if self.threshold == 0.0:
            return 1.0 - behind, behind
        return self._tail(self.differences - self.threshold, n_topics), behind

    def _tail(self, x: FloatArray, n_topics: float) -> FloatArray:
        """Return the probability that an error with standard deviation s/√n' is below x."""
        z = np.sqrt(n_topics) * x
        varies = self.deviations > 0.0
        if varies.all():
            z /= self.deviations
        else:
            # A constant difference at the threshold is a tie; without threshold it is half a swap.
            edge = 0.0 if self.threshold == 0.0 else -np.inf
            limit = np.where(x == 0.0, edge, np.copysign(np.inf, x))
            z = np.divide(z, self.deviations, out=limit, where=varies)
        if not self.df.size:
            from scipy.special import ndtr

            return np.asarray(ndtr(z))
        return _student(z, self.df)


def _student(z: FloatArray, df: LongArray | FloatArray) -> FloatArray:
    if df.dtype.kind == "f":
        from scipy.special import stdtr

        return np.asarray(stdtr(df, z))
    from vcomp.ir.kernels.rank_agreement import student_cdf

    out = np.empty(z.size)
    for nu in np.unique(df):
        of = df == nu
        out[of] = student_cdf(z[of], int(nu))
    return out


def ranking(
    variant: TauVariant, groups: LevelGroups | None, systems: Sequence[str]
) -> RankCorrelation:
    """Return the correlation for rankings of all systems, or of one system of each group.

    Parameters
    ----------
    variant : ``"a"``, ``"b"`` or ``"ap"``
    groups : of the systems by name; None for all systems
    systems : (k,) names, the best first

    Raises
    ------
    DataError
        If a system has no group, or all have the same.
    """
    codes = None if groups is None else group_codes(groups, systems, "system")
    return RankCorrelation(variant, codes)


def _weights_by_group(groups: LongArray, *, ap: bool) -> FloatArray:
    """Return the weights of pairs if one system of each group is drawn (eq. 15.8d).

    Weights of τ_AP hold the expectation of 1/(i - 1), with i - 1 the number of drawn systems above
    the lower one. It is that of one more than a sum of independent indicators, one for each other
    group, and so ∫ Π (1 - p + p t) dt from 0 to 1, exact by Gauss-Legendre quadrature.

    Parameters
    ----------
    groups : (k,) group of each system, the best system first
    ap : whether the weights are those of τ_AP
    """
    k, sizes = groups.size, np.bincount(groups)
    n_groups = sizes.size
    i, j = np.triu_indices(k, 1)
    apart = groups[i] != groups[j]
    both = apart / (sizes[groups[i]] * sizes[groups[j]])
    if not ap:
        return np.asarray(both / (n_groups * (n_groups - 1) / 2))
    x, w = np.polynomial.legendre.leggauss(n_groups // 2 + 1)
    t, w = (x + 1.0) / 2.0, w / 2.0
    member = np.eye(n_groups)[groups]
    above = (np.cumsum(member, axis=0) - member) / sizes  # (k, G) share above each system
    factors = 1.0 - above[:, :, np.newaxis] * (1.0 - t)
    # Positive, as t > 0; the factors of the groups of both systems are divided out.
    every = np.exp(np.log(factors).sum(axis=1)) / factors[np.arange(k), groups]
    others = every[j] / factors[j, groups[i]]
    return np.asarray(both * (others @ w) / (n_groups - 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class RankCorrelation:
    """τ or τ_AP, with its denominator for equal systems.

    Attributes
    ----------
    variant : ``"a"``, ``"b"`` or ``"ap"``, see :func:`~vcomp.ir.rank.expected_correlation`
    groups : (k,) group of each system, numbered without gaps, if one of each group is ranked
    """

    variant: TauVariant
    groups: LongArray | None = None

    def weights(self, k: int) -> FloatArray:
        """Return the weight of each pair; weights add up to one."""
        if self.groups is not None:
            return _weights_by_group(self.groups, ap=self.variant == "ap")
        if self.variant != "ap":
            n_pairs = k * (k - 1) // 2
            return np.full(n_pairs, 1.0 / n_pairs)
        n_above = np.triu_indices(k, 1)[1].astype(np.float64)
        return np.asarray(1.0 / ((k - 1.0) * n_above))

    def n_ranked(self, k: int) -> int:
        """Return the number of ranked systems: one of each group, or all k."""
        return k if self.groups is None else int(self.groups.max()) + 1

    def estimate(self, swaps: Swaps, weights: FloatArray, n: float) -> tuple[float, float]:
        """Return the expectation, and the variance for independent swaps."""
        ahead, behind = swaps.probabilities(n)
        if swaps.threshold == 0.0:
            spread = 4.0 * (weights**2 @ (behind * ahead))
            return float(1.0 - 2.0 * (weights @ behind)), float(spread)
        unequal = swaps.unequal
        agreement = np.where(unequal, ahead - behind, 0.0)
        apart = ahead + behind
        mean = float(weights @ agreement)
        variance = float(weights**2 @ np.where(unequal, apart - agreement**2, 0.0))
        if self.variant != "b":
            return mean, variance
        product = float((weights @ unequal) * (weights @ apart))
        if product == 0.0:
            return np.nan, np.nan
        return mean / np.sqrt(product), variance / product

    def of_counts(self, counts: FloatArray, k: int) -> FloatArray:
        """Return the correlation in each draw."""
        if self.variant == "ap":
            return np.asarray(counts[:, 1] / (k - 1))
        if self.variant == "a":
            return np.asarray(counts[:, 0] / (k * (k - 1) / 2))
        product = counts[:, 2] * counts[:, 3]
        return np.divide(
            counts[:, 0],
            np.sqrt(product),
            out=np.full(len(counts), np.nan),
            where=product > 0,
        )
