"""τ and τ_AP from probabilities of swaps, and from counts of swaps."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal, TypeAlias

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import PlanError, check_alpha, did_you_mean
from vcomp.ir.rank.paired import PairedDifferences
from vcomp.ir.rank.rank_draws import error_share
from vcomp.numerics import check_rng

TauEstimator: TypeAlias = Literal["shrunken", "urbano"]
AccuracyEstimator: TypeAlias = Literal["shrunken", "urbano", "split_half"]
TauInterval: TypeAlias = Literal["auto", "draws", "independent"]
TauTarget: TypeAlias = Literal["test", "expectation"]
TauVariant: TypeAlias = Literal["a", "b"]

TAU_ESTIMATORS: tuple[TauEstimator, ...] = ("shrunken", "urbano")
ESTIMATORS: tuple[AccuracyEstimator, ...] = (*TAU_ESTIMATORS, "split_half")
"""All estimators of accuracies; τ and τ_AP have formulae for the first two."""
INTERVALS: tuple[TauInterval, ...] = ("auto", "draws", "independent")
TARGETS: tuple[TauTarget, ...] = ("test", "expectation")
VARIANTS: tuple[TauVariant, ...] = ("a", "b")


@dataclass(frozen=True, slots=True)
class RankOptions:
    """Options of an estimate of τ or τ_AP, checked when they are made.

    Attributes
    ----------
    estimator : ``"shrunken"`` or ``"urbano"``
    variant : of τ, ``"a"`` or ``"b"``
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
        check_variant(self.variant)
        check_one_of("target", self.target, TARGETS)
        check_one_of("interval", self.interval, INTERVALS)
        if self.interval == "independent" and self.target == "expectation":
            raise PlanError(
                "interval='independent' covers τ of one test; for its expectation use "
                "interval='draws'"
            )
        check_alpha(self.alpha)
        check_rng(self.rng)
        number = self.threshold
        if not isinstance(number, Real) or isinstance(number, bool) or not 0 <= number < np.inf:
            raise PlanError(
                f"threshold is the largest difference of equal systems, a number from 0 on, not "
                f"{number!r}"
            )
        is_whole = isinstance(self.draws, int | np.integer) and not isinstance(self.draws, bool)
        if not is_whole or self.draws < 1:
            raise PlanError(f"draws is a whole number from 1 on, not {self.draws!r}")

    @property
    def independent(self) -> bool:
        """Whether the interval is the published one, of independent swaps."""
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
    check_one_of("estimator", estimator, TAU_ESTIMATORS)


def check_variant(variant: object) -> None:
    """Refuse a variant of a rank correlation that is neither ``"a"`` nor ``"b"``.

    Raises
    ------
    PlanError
        Naming the two.
    """
    check_one_of("variant", variant, VARIANTS)


def check_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse a value of an option that is not one of those allowed.

    Raises
    ------
    PlanError
        Naming the option and its allowed values.
    """
    if not isinstance(value, str) or value not in known:
        listed = ", ".join(map(repr, known[:-1])) + f" or {known[-1]!r}"
        raise PlanError(f"{name} must be {listed}, not {value!r}{did_you_mean(value, known)}")


@dataclass(frozen=True, slots=True, eq=False)
class Swaps:
    """Probabilities of the order of each pair in a test of n' topics, for any n'.

    Attributes
    ----------
    differences : (pairs,) estimates of the true differences
    deviations : (pairs,) standard deviation over topics of each difference
    df : (pairs,) degrees of freedom of these; empty if they are treated as known
    threshold : largest difference of equal systems
    """

    differences: FloatArray
    deviations: FloatArray
    df: LongArray
    threshold: float

    @classmethod
    def of(
        cls,
        pairs: PairedDifferences,
        estimator: TauEstimator,
        threshold: float,
        at_hand: bool = False,
    ) -> Swaps:
        """Return what is needed of the differences.

        Parameters
        ----------
        pairs : the differences between systems
        estimator : ``"shrunken"`` or ``"urbano"``
        threshold : largest difference of equal systems
        at_hand : True for the test at hand, False for new tests
        """
        deviations = np.sqrt(pairs.variances)
        if estimator == "urbano":
            return cls(pairs.differences, deviations, np.empty(0, dtype=np.int64), threshold)
        shrunken = np.sqrt(1.0 - error_share(pairs).mean) * pairs.differences
        # With missing cells the order of means may contradict that on common topics. It is what
        # the test at hand says, but new tests are held against the likelier order.
        differences = shrunken if at_hand else np.abs(shrunken)
        return cls(differences, deviations, pairs.n_common - 1, threshold)

    @property
    def unequal(self) -> BoolArray:
        """Which pairs are truly not equal: with a threshold of zero, all."""
        return (np.abs(self.differences) > self.threshold) | (self.threshold == 0.0)

    def probabilities(self, n_topics: float) -> tuple[FloatArray, FloatArray]:
        """Return the probabilities that i is ahead of j by more than the threshold, and behind."""
        behind = self._tail(-self.differences - self.threshold, n_topics)
        if self.threshold == 0.0:
            return 1.0 - behind, behind
        return self._tail(self.differences - self.threshold, n_topics), behind

    def _tail(self, x: FloatArray, n_topics: float) -> FloatArray:
        """Return the probability that error, with deviation s/√n', is below x."""
        z = np.sqrt(n_topics) * x
        varies = self.deviations > 0.0
        if varies.all():
            z /= self.deviations
        else:
            # What does not vary and is right at the threshold is equal; without one half swapped.
            edge = 0.0 if self.threshold == 0.0 else -np.inf
            limit = np.where(x == 0.0, edge, np.copysign(np.inf, x))
            z = np.divide(z, self.deviations, out=limit, where=varies)
        if not self.df.size:
            from scipy.special import ndtr

            return np.asarray(ndtr(z))
        return _student(z, self.df)


def _student(z: FloatArray, df: LongArray) -> FloatArray:
    from vcomp.ir.kernels import student_cdf

    out = np.empty(z.size)
    for nu in np.unique(df):
        of = df == nu
        out[of] = student_cdf(z[of], int(nu))
    return out


@dataclass(frozen=True, slots=True)
class RankCorrelation:
    """τ or τ_AP, and its denominator where systems are equal.

    Attributes
    ----------
    ap : whether it is τ_AP
    variant : ``"a"`` or ``"b"``, see :func:`vcomp.ir.rank.rank_accuracy.expected_tau`
    """

    ap: bool
    variant: TauVariant

    def weights(self, k: int) -> FloatArray:
        """Return the weight of each pair; weights add up to one."""
        if not self.ap:
            n_pairs = k * (k - 1) // 2
            return np.full(n_pairs, 1.0 / n_pairs)
        n_above = np.triu_indices(k, 1)[1].astype(np.float64)
        return np.asarray(1.0 / ((k - 1.0) * n_above))

    def estimate(self, swaps: Swaps, weights: FloatArray, n: float) -> tuple[float, float]:
        """Return the expectation and the variance of independent swaps."""
        ahead, behind = swaps.probabilities(n)
        if swaps.threshold == 0.0:
            spread = 4.0 * (weights**2 @ (behind * ahead))
            return float(1.0 - 2.0 * (weights @ behind)), float(spread)
        unequal = swaps.unequal
        agreement = np.where(unequal, ahead - behind, 0.0)
        apart = ahead + behind
        mean = float(weights @ agreement)
        variance = float(weights**2 @ np.where(unequal, apart - agreement**2, 0.0))
        if self.variant == "a":
            return mean, variance
        product = float((weights @ unequal) * (weights @ apart))
        if product == 0.0:
            return np.nan, np.nan
        return mean / np.sqrt(product), variance / product

    def of_counts(self, counts: FloatArray, k: int) -> FloatArray:
        """Return the correlation in each draw."""
        if self.ap:
            return np.asarray(counts[:, 1] / (k - 1))
        if self.variant == "a":
            return np.asarray(counts[:, 0] / (k * (k - 1) / 2))
        product = counts[:, 2] * counts[:, 3]
        tau_b: FloatArray = np.divide(
            counts[:, 0],
            np.sqrt(product),
            out=np.full(len(counts), np.nan),
            where=product > 0,
        )
        return tau_b
