"""Forecasts of paired t-tests between systems on other topics, by the noncentral t.

With D the mean difference of two systems on n topics and S the standard deviation of their
differences from topic to topic, t = √n D/S. The true difference in units of S, δ, comes from a
normal distribution with variance ω² = σ²(s)/σ²(st) (differences have variances 2σ²(s) and
2σ²(st)). Given t it is normal, with mean r t/√n and variance r/n, where r = nω²/(1 + nω²) is the
Eρ² of the collection: one less the mean of the share of error, as for Eτ. On n' other topics t is
√(1 + n' r/n) times a noncentral t with n' - 1 degrees of freedom (eq. 15.13 of the mathematics).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import PlanError, check_one_of
from vcomp.ir.pair_tests import PairOptions
from vcomp.ir.rank import PairedDifferences, difference_variances, error_share
from vcomp.ir.significance import critical_t, paired_tests, pairs_of, settled, sums_by_bin
from vcomp.ir.system_comparison import outcome_of

PairTest: TypeAlias = Literal["t", "wilcoxon"]
Sides: TypeAlias = Literal[1, 2]

TESTS: tuple[PairTest, ...] = get_args(PairTest)


def check_test(test: str, sides: int) -> None:
    """Refuse unknown tests.

    Raises
    ------
    PlanError
        If `test` is neither ``"t"`` nor ``"wilcoxon"``, or `sides` neither 1 nor 2.
    """
    check_one_of("test", test, TESTS)
    if isinstance(sides, bool) or sides not in (1, 2):
        raise PlanError(f"sides must be 1 or 2, not {sides!r}")


def two_sided(alpha: float, sides: Sides) -> float:
    """Return the level of the two-sided t-tests that are equivalent to tests with `sides`."""
    return min(alpha * 2 / sides, 1.0 - 1e-12)


@dataclass(frozen=True, slots=True, eq=False)
class PairComparisons:
    """Differences between all systems, and the p-values of their tests.

    Attributes
    ----------
    differences : (n_pairs,) mean of X_i - X_j; exactly zero if smaller than the rounding error
    p_values : (n_pairs,)
    """

    differences: FloatArray
    p_values: FloatArray


def compare_pairs(X: FloatArray, test: PairTest = "t", sides: Sides = 2) -> PairComparisons:
    """Test the difference of every two systems.

    Signed ranks are those of :func:`vcomp.ir.compare_systems`, without zero differences.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing, on at least two topics
    test : ``"t"`` for paired t-tests, ``"wilcoxon"`` for Wilcoxon's signed-rank test
    sides : 2 for two-sided p-values; 1 for those of the alternative that the system with the
        larger mean is better

    Examples
    --------
    >>> X = np.array([[0.3, 0.5], [0.4, 0.5], [0.2, 0.5], [0.9, 0.5]])
    >>> compare_pairs(X, "wilcoxon").p_values
    array([0.875])
    """
    if test == "t":
        tests = paired_tests(X)
        return PairComparisons(tests.differences, tests.p_values * (sides / 2))
    i, j = pairs_of(X.shape[1])
    differences = settled(X.mean(axis=0), i, j)
    # Zero differences have no rank. One-sided tests put the better system of a pair first.
    how = PairOptions("two-sided" if sides == 2 else "greater", zeros="wilcox")
    better, worse = np.where(differences >= 0, (i, j), (j, i))
    return PairComparisons(differences, outcome_of(X, "wilcoxon", how, (better, worse)).p_values)


def significant_pairs(
    X: FloatArray, alpha: float, test: PairTest = "t", sides: Sides = 2
) -> tuple[FloatArray, BoolArray]:
    """Return the differences of all pairs, and a mask of those significant at level `alpha`."""
    if test == "t":
        tests = paired_tests(X)
        return tests.differences, tests.significant(two_sided(alpha, sides))
    tested = compare_pairs(X, test, sides)
    return tested.differences, display.snapped(tested.p_values, alpha) <= alpha


_MOST_PAIRS = 20_000
"""Largest number of evaluated pairs; more are thinned evenly in the order of |t|."""

_NODES = 200_000
"""Quadrature nodes of new differences, of all pairs together."""

_FEWEST_NODES, _MOST_NODES = 200, 4_000

_CERTAIN = 45.0
"""Upper bound of |t|: a test of as many topics cannot miss such a difference."""

_TINY = 1e-300

_NEVER, _FAR = -7.5, 30.0

_STEP, _ALL_FOUND = 1.0 / 32.0, 12.0
"""Step and end of the grid of √n' δ for cubic splines, accurate to 1e-8; no swaps beyond."""

_GRID = 161
"""Number of nodes in |t|; functions are interpolated between these."""


@dataclass(frozen=True, slots=True, eq=False)
class PairForecast:
    """Standardised differences between systems, with the variance of the true ones.

    Attributes
    ----------
    t : (m,) |t| of each pair whose difference varies, at most :data:`_CERTAIN`
    deviations : (m,) standard deviations S of their differences over topics
    certain : share of pairs with the same difference, not zero, on all topics: always significant
    equal : share of pairs without any difference: never significant, p-value 1
    n_topics : number of topics n
    reliability : r
    fixed : (q,) sizes of the differences that do not vary
    """

    t: FloatArray
    deviations: FloatArray
    certain: float
    equal: float
    n_topics: int
    reliability: float
    fixed: FloatArray

    @classmethod
    def from_scores(cls, X: FloatArray, test: PairTest = "t") -> PairForecast:
        """Return the standardised differences of a collection.

        Parameters
        ----------
        X : (n_topics, n_systems) scores, none of them missing, on at least two topics
        test : with ``"wilcoxon"`` each |t| is the one that has the p-value of the signed ranks:
            for :meth:`power` and :meth:`conflicts`, as it is no difference over S
        """
        i, j = pairs_of(X.shape[1])
        differences = np.abs(settled(X.mean(axis=0), i, j))
        S = np.sqrt(difference_variances(X, (i, j)))
        varies = S > 0
        if test == "t":
            t = np.sqrt(len(X)) * differences[varies] / S[varies]
        else:
            t = _with_p_values(compare_pairs(X, test).p_values[varies], len(X) - 1)
        order = np.argsort(t, kind="stable")
        if order.size > _MOST_PAIRS:
            steps = (np.arange(_MOST_PAIRS) + 0.5) * order.size / _MOST_PAIRS
            order = order[steps.astype(np.int64)]
        fixed = differences[~varies]
        return cls(
            np.minimum(t[order], _CERTAIN),
            S[varies][order],
            float((fixed > 0).sum() / i.size),
            float((fixed == 0).sum() / i.size),
            len(X),
            _reliability(X),
            fixed[fixed > 0],
        )

    @property
    def variance(self) -> float:
        """Variance r/n of a true standardised difference, given t."""
        return self.reliability / self.n_topics

    def power(self, n_topics: float, alpha: float) -> float:
        """Return the expected share of pairs that are significant on n' topics.

        Parameters
        ----------
        n_topics : n', more than one
        alpha : level of two-sided tests; twice the level of one-sided ones
        """

        def found(t: FloatArray) -> FloatArray:
            # √n' D'/S' is √(1 + n' r/n) times a noncentral t.
            scale = np.sqrt(1.0 + n_topics * self.variance)
            centre = np.sqrt(n_topics) * self._means(t) / scale
            limit = critical_t(alpha, n_topics - 1) / scale
            return _exceeds(centre, limit, n_topics - 1) + _exceeds(-centre, limit, n_topics - 1)

        return self.certain + (1.0 - self.certain - self.equal) * self._over_pairs(found)

    def conflicts(self, n_topics: float, alpha: float, *, significantly: bool) -> float:
        """Return the expected conflict ratio of two tests of n' topics each; nan without power.

        Parameters
        ----------
        n_topics : n', more than one
        alpha : level of two-sided tests; twice the level of one-sided ones
        significantly : whether swapped pairs are significant in the second test, or are not
        """
        limit, df = critical_t(alpha, n_topics - 1), n_topics - 1

        def swapped(centre: FloatArray) -> FloatArray:
            up, down = _exceeds(centre, limit, df), _exceeds(-centre, limit, df)
            if significantly:
                return 2.0 * up * down
            below = _normal(-centre)
            return up * (below - down) + down * ((1.0 - below) - up)

        share = self.power(n_topics, alpha)
        varying = 1.0 - self.certain - self.equal
        expected = self._over_pairs(self._expected(swapped, n_topics))
        return varying * expected / share if share > 0 else np.nan

    def by_difference(
        self, n_topics: float, bounds: FloatArray, alpha: float | None = None
    ) -> FloatArray:
        """Return shares of pairs, of swapped ones and sums of p-values, by size of difference.

        Parameters
        ----------
        n_topics : n', more than one
        bounds : (b + 1,) of the differences on the new topics
        alpha : count significant differences only; all if None

        Returns
        -------
        (3, b) array
            Of all pairs: the share in each bin on n' topics, the share that is also swapped by a
            second test of n' topics, and the sum of two-sided p-values, over the number of pairs.
        """
        found = np.zeros((3, bounds.size - 1))
        m = self.t.size
        if m:
            nodes = int(np.clip(_NODES // m, _FEWEST_NODES, _MOST_NODES))
            step = 1_000_000 // nodes
            for at in range(0, m, step):
                found += self._by_difference(slice(at, at + step), nodes, n_topics, bounds, alpha)
            found *= (1.0 - self.certain - self.equal) / (m * nodes)
        each = np.full(self.fixed.size, self.certain / max(self.fixed.size, 1))
        found[0] += sums_by_bin(self.fixed, bounds, each)[0]
        return found

    def _by_difference(
        self, pairs: slice, nodes: int, n: float, bounds: FloatArray, alpha: float | None
    ) -> FloatArray:
        from scipy.special import ndtri

        mean, prior, S = self._means(self.t[pairs]), self.variance, self.deviations[pairs]
        quantiles = ndtri((np.arange(nodes) + 0.5) / nodes)
        x = mean[:, None] + np.sqrt(prior + 1.0 / n) * quantiles
        size = np.sqrt(n) * np.abs(x)
        weight = np.ones(x.shape) if alpha is None else _significance(size, n - 1, alpha)
        # Given the difference on the first topics, the true one is nearer to it.
        shrink = prior / (prior + 1.0 / n)
        again = mean[:, None] + shrink * (x - mean[:, None])
        swap = _normal(-np.sign(x) * again / np.sqrt(prior * (1.0 - shrink) + 1.0 / n))
        columns = (weight, weight * swap, _mean_p(size, n - 1, alpha))
        return sums_by_bin(np.abs(x) * S[:, None], bounds, *columns)

    def _means(self, t: FloatArray) -> FloatArray:
        return np.asarray(self.reliability / np.sqrt(self.n_topics) * t)

    def _expected(
        self, f: Callable[[FloatArray], FloatArray], n_topics: float
    ) -> Callable[[FloatArray], FloatArray]:
        """Return the expectation of an even function of √n' δ, as a function of t."""
        from scipy.interpolate import CubicSpline

        z, weights = np.polynomial.hermite_e.hermegauss(100)
        weights = weights / weights.sum()

        def mean(t: FloatArray) -> FloatArray:
            delta = self._means(t)[:, None] + np.sqrt(self.variance) * z
            centre = np.sqrt(n_topics) * np.abs(delta)
            grid = np.arange(0.0, min(float(centre.max()), _ALL_FOUND) + 4.0 * _STEP, _STEP)
            values = CubicSpline(grid, f(grid))(np.minimum(centre, grid[-1]))
            return np.asarray(values @ weights)

        return mean

    def _over_pairs(self, f: Callable[[FloatArray], FloatArray]) -> float:
        """Return the mean of a smooth function of |t| over the pairs that vary."""
        from scipy.interpolate import PchipInterpolator

        if self.t.size <= _GRID:
            return float(f(self.t).mean()) if self.t.size else 0.0
        u = np.linspace(0.0, 1.0, _GRID)
        grid = max(float(self.t.max()), 1.0) * u * (1.0 + 2.0 * u) / 3.0  # finer near t = 0
        return float(PchipInterpolator(grid, f(grid))(self.t).mean())


def _reliability(X: FloatArray) -> float:
    """Return r, Eρ² of the collection as Eτ shrinks differences (eq. 15.7).

    The ANOVA method is used with two or fewer effective degrees of freedom between systems.
    """
    share = error_share(PairedDifferences.from_scores(X, [str(s) for s in range(X.shape[1])]))
    if share.is_known:
        return 1.0 - share.mean
    return 1.0 - 1.0 / share.F if share.F > 1.0 else 0.0


def _with_p_values(p: FloatArray, df: float) -> FloatArray:
    """Return the |t| of two-sided p-values."""
    from scipy.special import stdtrit

    return np.asarray(-stdtrit(df, np.maximum(p, _TINY) / 2.0))


def _normal(x: FloatArray) -> FloatArray:
    from scipy.special import ndtr

    return np.asarray(ndtr(x))


def _exceeds(centre: FloatArray, limit: float, df: float) -> FloatArray:
    """Return P(t > limit) of noncentral t with these centres.

    Far centres, for which scipy has no number, by the normal approximation of Johnson and Welch;
    zero where even P(t > 0) is less than 1e-13.
    """
    from scipy.special import nctdtr

    spread = np.sqrt(1.0 + limit * limit / (2.0 * df))
    found = _normal((centre - limit * (1.0 - 1.0 / (4.0 * df))) / spread)
    found[centre < _NEVER] = 0.0
    near = (centre >= _NEVER) & (centre <= _FAR)
    found[near] = 1.0 - nctdtr(df, centre[near], limit)
    return np.asarray(np.clip(found, 0.0, 1.0))


def _significance(size: FloatArray, df: float, alpha: float) -> FloatArray:
    """Return P(√n |D|/S > limit) where √n |D|/σ is given, over S."""
    from scipy.special import chdtr

    return np.asarray(chdtr(df, df * np.square(size / critical_t(alpha, df))))


_POINTS, _QUANTILES = 600, 64


def _mean_p(size: FloatArray, df: float, alpha: float | None) -> FloatArray:
    """Return the mean two-sided p-value where √n |D|/σ is given, over S; zero if above alpha."""
    from scipy.special import chdtri, stdtr

    levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    ratio = np.sqrt(chdtri(df, 1.0 - levels) / df)  # S/σ
    grid = size.max() * np.square(np.linspace(0.0, 1.0, _POINTS))
    t = grid[:, None] / ratio
    limit = 0.0 if alpha is None else critical_t(alpha, df)
    p = np.where(t >= limit, 2.0 * stdtr(df, -t), 0.0)
    return np.asarray(np.interp(size, grid, p.mean(axis=1)))
