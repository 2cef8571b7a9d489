"""A curve from Eρ² or Φ to another indicator of reliability: published, or fitted to points.

References
----------
Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection reliability.
*Proc. ACM SIGIR*, 393-402. Section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.display import SYMBOLS
from vcomp.exceptions import DataError, EstimationError, PlanError, check_alpha, check_known
from vcomp.ir.agreement import Measure
from vcomp.numerics import solve

if TYPE_CHECKING:
    import pandas as pd

Coefficient = Literal["Erho2", "Phi"]
Feature = Literal["n_topics", "n_systems", "topic_share"]
Variance: TypeAlias = Literal["constant", "shrinking"]

FEATURES: tuple[Feature, ...] = get_args(Feature)

_FEWEST_POINTS = 3

_ABSOLUTE = frozenset({"sens_rel", "rmse", "Phi"})
"""Indicators of absolute scores; their curves are functions of Φ."""

_LOGARITHMIC = ("n_topics", "n_systems")
"""Features that enter on the log scale."""


def feature_values(name: str, values: ArrayLike) -> FloatArray:
    """Return a feature on its scale in the model of log a: logarithms for sizes.

    Parameters
    ----------
    name : ``"n_topics"``, ``"n_systems"`` or ``"topic_share"``
    values : one or several

    Raises
    ------
    DataError
        If a value is not a number above 0 (a share: from 0 to 1).

    Examples
    --------
    >>> feature_values("n_topics", [1, np.e]).tolist()
    [0.0, 1.0]
    """
    z = np.asarray(values, dtype=float)
    if name not in _LOGARITHMIC:
        return np.asarray(_shares(z, name))
    wrong = z[z <= 0.0]
    if wrong.size:
        raise DataError(f"{name} must be above 0, not {display.number(wrong[0])}")
    return np.log(z)


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityMap:
    """A curve from a coefficient x of a D-study to an indicator y between halves of a collection.

    y = x^a for indicators that go to 1, and y = (1 - x)^a for those that go to 0 (eq. 15.12 of the
    mathematics).

    Attributes
    ----------
    indicator : y, a name of :func:`vcomp.ir.measures.available`
    coefficient : x, ``"Erho2"`` or ``"Phi"``
    exponent : a
    rises : whether y rises with x
    lowest : smallest value of the indicator: -1 or 0
    bse : standard error of the exponent; nan where it is not known
    resid_sd : standard deviation of points about the curve; nan where it is not known
    nobs : points that the curve was fitted to
    n_collections : that these came from
    by_collection : exponents of the collections, each fitted by itself
    sd_power : b of the standard deviation of points about the curve, resid_sd (1 - x)^b; 0 for a
        constant one
    slopes : of log a in the features of a collection, by name; empty without features
    centres : of these features, at which the exponent is a; sizes as logarithms
    covariance : of log a and the slopes
    exponent_range : smallest and largest exponent of a single collection, where only these are
        known, as of a published curve

    Examples
    --------
    >>> PUBLISHED["tau"].at(0.95).round(3)
    np.float64(0.864)
    >>> PUBLISHED["tau"].required(0.9).round(3)
    np.float64(0.964)
    """

    indicator: str
    coefficient: Coefficient
    exponent: float
    rises: bool
    lowest: float = 0.0
    bse: float = np.nan
    resid_sd: float = np.nan
    nobs: int = 0
    n_collections: int = 0
    by_collection: Mapping[str, float] = field(default_factory=dict)
    sd_power: float = 0.0
    slopes: Mapping[str, float] = field(default_factory=dict)
    centres: Mapping[str, float] = field(default_factory=dict)
    covariance: FloatArray | None = None
    exponent_range: tuple[float, float] | None = None

    def exponents(self, features: Mapping[str, ArrayLike] | None = None) -> Any:
        """Return the exponents of collections with these features.

        Parameters
        ----------
        features : ``n_topics``, ``n_systems`` and ``topic_share``, as the curve has them; those
            that are left out are at their mean

        Raises
        ------
        PlanError
            If the curve has no such feature.
        DataError
            If a value is out of range.
        """
        away = self._away(features)
        return self.exponent * np.exp(sum(self.slopes[name] * z for name, z in away.items()))

    def at(self, coefficient: ArrayLike, features: Mapping[str, ArrayLike] | None = None) -> Any:
        """Return the indicator at one or more values of the coefficient, of the same shape.

        Parameters
        ----------
        coefficient : Eρ² or Φ, one value or several
        features : of the collections, as for :meth:`exponents`

        Raises
        ------
        DataError
            If a value is not a number between 0 and 1; nan, an unknown one, stays nan.
        PlanError
            If the curve has no such feature.
        """
        return self._base(coefficient) ** self.exponents(features)

    def required(self, goal: ArrayLike, features: Mapping[str, ArrayLike] | None = None) -> Any:
        """Return the coefficient at which the indicator reaches a goal: the curve from y to x.

        Parameters
        ----------
        goal : one or several values of the indicator
        features : of the collections, as for :meth:`exponents`

        Raises
        ------
        DataError
            If a value is not a number between 0 and 1; nan stays nan.
        PlanError
            If the curve has no such feature.
        """
        base = _shares(goal, self.indicator) ** (1.0 / self.exponents(features))
        return base if self.rises else 1.0 - base

    def _away(self, features: Mapping[str, ArrayLike] | None) -> dict[str, Any]:
        """Return the deviations of features from their centres, on the scale of the slopes."""
        away: dict[str, Any] = dict.fromkeys(self.slopes, 0.0)
        for name, value in (features or {}).items():
            said = f"the curve of {self.indicator!r} has no feature {{}}; its features:"
            check_known(name, self.slopes, said, quoted=True)
            away[name] = feature_values(name, value) - self.centres[name]
        return away

    def predict(
        self,
        coefficient: ArrayLike,
        *,
        features: Mapping[str, ArrayLike] | None = None,
        alpha: float = 0.05,
    ) -> pd.DataFrame:
        """Return the indicator with intervals, one row per value of the coefficient.

        Parameters
        ----------
        coefficient : one or more values
        features : of the collections, one value each or as many as coefficients, as for
            :meth:`exponents`
        alpha : intervals have confidence 1 − alpha

        Returns
        -------
        pandas.DataFrame
            with the coefficient under its name, ``estimate``, ``low`` and ``high`` of the curve,
            and ``obs_low`` and ``obs_high`` for one pair of halves: its prediction interval. Of a
            published curve with a printed range of exponents, ``obs_low`` and ``obs_high`` are
            for the curve of another collection, ``low`` and ``high`` are nan, and the column
            ``interval`` says so.

        Raises
        ------
        DataError
            If a value is not a number between 0 and 1, or values have two dimensions.
        PlanError
            If `alpha` is not between 0 and 1, the curve has no such feature, or it is a published
            one without a printed range, or with one that is too short for `alpha`.

        Notes
        -----
        By the delta method: with g = dy/da, the curve has variance g² bse², a point resid_sd²
        (1 - x)^2b more, and both intervals are cut where the indicator ends. **With b = 0 the
        variance about the curve is assumed to be constant**, which it is not: points come closer
        together as x goes to 1, where the interval is too long, and lie further apart at smaller
        x. ``fit_mapping(…, variance="shrinking")`` estimates b.

        The exponents of n collections and of another one are in any order equally likely. So the
        other one is within the range of the n with probability (n - 1)/(n + 1), .955 of the 43 of
        the published curves, whatever their distribution.
        """
        import pandas as pd
        from scipy.special import stdtrit, xlogy

        check_alpha(alpha)
        x = np.atleast_1d(_shares(coefficient, SYMBOLS[self.coefficient]))
        if x.ndim > 1:
            raise DataError(
                f"the table has one row per value of {SYMBOLS[self.coefficient]}; these have "
                f"{x.ndim} dimensions"
            )
        if np.isnan(self.resid_sd):
            return self._of_range(x, alpha)
        base = self._base(x)
        a = self.exponents(features)
        y = base**a
        slope = xlogy(y, base)
        df = self.n_collections - 1 if self.n_collections > 1 else self.nobs - 1
        columns = {self.coefficient: x, "estimate": y}
        curve = np.abs(slope) * self._error(features, a)
        spread = self.resid_sd * (1.0 - x) ** self.sd_power
        for name, half in (
            ("", stdtrit(df, 1.0 - alpha / 2.0) * curve),
            ("obs_", stdtrit(self.nobs - 1, 1.0 - alpha / 2.0) * np.hypot(curve, spread)),
        ):
            columns[f"{name}low"] = np.maximum(y - half, self.lowest)
            columns[f"{name}high"] = np.minimum(y + half, 1.0)
        return pd.DataFrame(columns)

    def _error(self, features: Mapping[str, ArrayLike] | None, a: Any) -> Any:
        """Return the standard error of the exponent at these features."""
        if self.covariance is None:
            return self.bse
        away = np.broadcast_arrays(1.0, *self._away(features).values())
        v = np.stack(away, axis=-1)
        return a * np.sqrt(np.einsum("...i,ij,...j->...", v, self.covariance, v))

    def _of_range(self, x: FloatArray, alpha: float) -> pd.DataFrame:
        """Return the curve with the published range over single collections."""
        import pandas as pd

        if self.exponent_range is None:
            raise PlanError(
                "the published curves have no variances, which intervals need, and of "
                f"{self.indicator!r} no range of exponents is printed; fit_mapping() fits curves "
                "that have them"
            )
        n = self.n_collections
        covered = (n - 1.0) / (n + 1.0)
        if 1.0 - alpha > covered:
            raise PlanError(
                f"the printed range of {n} collections holds another one with probability "
                f"{display.number(covered, 3)}: alpha must be at least "
                f"{display.number(1.0 - covered, 3)}"
            )
        base = self._base(x)
        ends = np.sort([base**a for a in self.exponent_range], axis=0)
        columns = {
            self.coefficient: x, "estimate": base**self.exponent, "low": np.nan, "high": np.nan,
            "obs_low": ends[0], "obs_high": ends[1],
            "interval": f"curve of another collection: printed range of {n}",
        }  # fmt: skip
        return pd.DataFrame(columns)

    def _base(self, coefficient: ArrayLike) -> FloatArray:
        x = _shares(coefficient, SYMBOLS[self.coefficient])
        return x if self.rises else 1.0 - x


_RANGE_OF_TAU = (float(np.log(0.9) / np.log(0.93)), float(np.log(0.9) / np.log(0.98)))
"""Exponents of the two extreme collections, which reach τ = .9 at Eρ² of about .93 (Million Query
2008) and .98 (2007): Urbano et al. (2013), section 4. Nothing else of Figure 2 is printed."""

PUBLISHED: Mapping[str, ReliabilityMap] = {
    curve.indicator: curve
    for curve in (
        ReliabilityMap(
            "tau",
            "Erho2",
            2.84729794002905,
            rises=True,
            lowest=-1.0,
            n_collections=43,
            exponent_range=_RANGE_OF_TAU,
        ),
        ReliabilityMap("tau_ap", "Erho2", 3.98652984123827, rises=True, lowest=-1.0),
        ReliabilityMap("power_ratio", "Erho2", 4.77902509574171, rises=True),
        ReliabilityMap("minor_conflicts", "Erho2", 1.53337366741287, rises=False),
        ReliabilityMap("major_conflicts", "Erho2", 2.62976839002005, rises=False),
        ReliabilityMap("sens_abs", "Erho2", 1.54402996734738, rises=False),
        ReliabilityMap("sens_rel", "Phi", 1.29759126030214, rises=False),
        ReliabilityMap("rmse", "Phi", 3.27642726002903, rises=False),
    )
}
"""Curves from 43 TREC collections: Urbano et al. (2013), Figure 3; exponents of gt4ireval 2.0."""


def _shares(values: ArrayLike, what: str) -> FloatArray:
    """Return numbers between 0 and 1, or nan."""
    raw = np.asarray(values)
    try:
        x = raw.astype(float) if raw.dtype.kind in "iufO" else None
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} must be a number: {error}") from error
    if x is None:
        raise DataError(f"{what} must be a number between 0 and 1, not {values!r}")
    outside = (x < 0.0) | (x > 1.0)
    if outside.any():
        raise DataError(
            f"{what} must be between 0 and 1, not {display.number(x[outside].flat[0])}"
        )
    return x[()]


def fit_exponent(base: FloatArray, y: FloatArray) -> float:
    """Return a of y = base^a by least squares (eq. 15.12 of the mathematics).

    Parameters
    ----------
    base : (m,) between 0 and 1, some of them inside
    y : (m,) at most 1

    Examples
    --------
    >>> x = np.array([0.7, 0.8, 0.95])
    >>> round(fit_exponent(x, x**2.5), 9)
    2.5
    """
    inside = (base > 0.0) & (base < 1.0)
    theta = _fit_log_exponent(base[inside], y[inside], np.zeros((int(inside.sum()), 0)))
    return float(np.exp(theta[0]))


def _fit_log_exponent(
    base: FloatArray,
    y: FloatArray,
    Z: FloatArray,
    weights: FloatArray | None = None,
    begin: FloatArray | None = None,
) -> FloatArray:
    """Return (1 + f,) log a and its slopes in the (m, f) features Z by weighted least squares."""
    from scipy.optimize import least_squares

    log_base = np.log(base)
    w = np.ones_like(base) if weights is None else weights
    design = np.column_stack([np.ones_like(base), Z])
    if begin is None:
        usual = (y > 0.0) & (y < 1.0)
        a = float(np.median(np.log(y[usual]) / log_base[usual])) if usual.any() else 1.0
        begin = np.array([np.log(a), *np.zeros(Z.shape[1])])
    # Parametrised by log a: a is positive and may have any magnitude.
    minimum = least_squares(
        lambda b: w * (base ** np.exp(design @ b) - y),
        begin,
        jac=lambda b: (w * base ** np.exp(design @ b) * log_base * np.exp(design @ b))[:, None]
        * design,
        xtol=1e-15, ftol=1e-15, gtol=1e-15,
    )  # fmt: skip
    return np.asarray(minimum.x)


def _fit_spread(away: FloatArray, residual: FloatArray) -> tuple[float, float]:
    """Return s and b ≥ 0 of the standard deviation s (1 - x)^b by normal likelihood.

    Parameters
    ----------
    away : (m,) 1 - x, above 0
    residual : (m,) points about the curve
    """
    design = np.column_stack([np.ones_like(away), 2.0 * np.log(away)])
    square = np.square(residual)
    if not square.any():
        return 0.0, 0.0
    beta = np.array([np.log(square.mean()), 0.0])
    # Gamma regression of squares with a log link, whose steps have constant weights
    for _ in range(200):
        step = np.linalg.lstsq(design, square / np.exp(design @ beta) - 1.0, rcond=None)[0]
        beta = beta + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-10:
            break
    if beta[1] < 0.0:
        return float(np.sqrt(square.mean())), 0.0
    return float(np.exp(0.5 * beta[0])), float(beta[1])


def curve_through(
    measure: Measure,
    points: pd.DataFrame,
    smallest: Mapping[Coefficient, float],
    variance: Variance = "constant",
    features: tuple[Feature, ...] = (),
) -> ReliabilityMap:
    """Return the curve of an indicator through the points of all collections.

    Parameters
    ----------
    measure : the indicator
    points : as :attr:`MappingStudy.points`
    smallest : least coefficients of the points to fit
    variance, features : as for :func:`fit_mapping`

    Raises
    ------
    EstimationError
        If there are too few points, values beyond 1, or features that do not vary.
    """
    from scipy.special import xlogy

    coefficient, used = _used(measure, points, smallest, len(features))
    x, y = used[coefficient].to_numpy(), used[measure.name].to_numpy()
    rises = measure.larger_is_better
    base = x if rises else 1.0 - x
    inside = (base > 0.0) & (base < 1.0)
    if variance == "shrinking":  # points at the ends carry no information on the variance within
        used, x, y, base = used[inside], x[inside], y[inside], base[inside]
        inside = inside[inside]
    names = used["collection"].to_numpy()
    Z, centres = _features(used, features, len(set(names)))
    theta, power = _fitted(base[inside], y[inside], Z[inside], 1.0 - x[inside], variance)
    a = np.exp(theta[0] + Z @ theta[1:])
    weights = (1.0 - x) ** -power
    residual = weights * (y - base**a)
    slope = weights * a * xlogy(base**a, base)
    jacobian = slope[:, None] * np.column_stack([np.ones_like(x), Z])
    resid_var = float(residual @ residual) / (y.size - theta.size)
    covariance = _sandwich(jacobian, residual, names, resid_var)
    exponent = float(np.exp(theta[0]))
    return ReliabilityMap(
        indicator=measure.name,
        coefficient=coefficient,
        exponent=exponent,
        rises=rises,
        lowest=measure.limits[0],
        bse=exponent * float(np.sqrt(covariance[0, 0])),
        resid_sd=float(np.sqrt(resid_var)),
        nobs=int(y.size),
        n_collections=len(set(names)),
        sd_power=power,
        slopes=dict(zip(features, theta[1:].tolist(), strict=True)),
        centres=dict(zip(features, centres.tolist(), strict=True)),
        covariance=covariance if features else None,
    )


def _used(
    measure: Measure,
    points: pd.DataFrame,
    smallest: Mapping[Coefficient, float],
    n_features: int = 0,
) -> tuple[Coefficient, pd.DataFrame]:
    """Return the coefficient of an indicator, and the points that its curve is fitted to."""
    coefficient: Coefficient = "Phi" if measure.name in _ABSOLUTE else "Erho2"
    used = points[points[coefficient] >= smallest[coefficient]].dropna(subset=[measure.name])
    x, highest = used[coefficient], used[measure.name].max()
    if highest > 1.0:
        raise EstimationError(
            f"{measure.name!r} has values up to {display.number(highest)}, and curves lie below 1"
        )
    inside, needed = int(((x > 0.0) & (x < 1.0)).sum()), _FEWEST_POINTS + n_features
    if inside < needed:
        raise EstimationError(
            f"{measure.name!r} has {inside} points with {coefficient} of at least "
            f"{display.number(smallest[coefficient])}, and a curve needs {needed}; "
            "collections with more topics, or a smaller value in smallest=, have more"
        )
    return coefficient, used


def exponents_by_collection(
    measure: Measure, points: pd.DataFrame, smallest: Mapping[Coefficient, float]
) -> dict[str, float]:
    """Return the exponent of each collection with enough points."""
    coefficient, used = _used(measure, points, smallest)
    exponents = {}
    for name, own in used.groupby("collection", sort=False):
        x, y = own[coefficient].to_numpy(), own[measure.name].to_numpy()
        if ((x > 0.0) & (x < 1.0)).sum() >= _FEWEST_POINTS:
            exponents[str(name)] = fit_exponent(x if measure.larger_is_better else 1.0 - x, y)
    return exponents


def _features(
    used: pd.DataFrame, features: tuple[Feature, ...], n_collections: int
) -> tuple[FloatArray, FloatArray]:
    """Return the (m, f) features centred at their means, and the means."""
    Z = np.column_stack(
        [np.zeros((len(used), 0)), *(feature_values(f, feature_of(used, f)) for f in features)]
    )
    if features and n_collections < len(features) + 2:
        raise EstimationError(
            f"{len(features)} features need {len(features) + 2} collections, and points come from "
            f"{n_collections}; give fewer features="
        )
    for name, column in zip(features, Z.T, strict=True):
        if np.ptp(column) <= 1e-9 * max(float(np.abs(column).max()), 1.0):
            raise EstimationError(f"the feature {name!r} is the same in all points; leave it out")
    centres = Z.mean(axis=0)
    return Z - centres, centres


def feature_of(points: pd.DataFrame, name: Feature) -> FloatArray:
    """Return a feature of the collections of points, such as :attr:`MappingStudy.points`."""
    return points["n" if name == "n_topics" else name].to_numpy(dtype=float)


def _fitted(
    base: FloatArray, y: FloatArray, Z: FloatArray, away: FloatArray, variance: Variance
) -> tuple[FloatArray, float]:
    """Return log a with its slopes, and the exponent b of the standard deviation s (1 - x)^b."""
    theta, power = _fit_log_exponent(base, y, Z), 0.0
    if variance == "constant":
        return theta, power
    for _ in range(50):
        residual = y - base ** np.exp(theta[0] + Z @ theta[1:])
        before = power
        _, power = _fit_spread(away, residual)
        theta = _fit_log_exponent(base, y, Z, away**-power, theta)
        if abs(power - before) < 1e-8:
            break
    return theta, power


def _sandwich(
    jacobian: FloatArray, residual: FloatArray, names: Any, resid_var: float
) -> FloatArray:
    """Return the cluster-robust covariance of the coefficients, clustered by collection."""
    information = jacobian.T @ jacobian
    n_collections = len(set(names))
    if n_collections == 1:
        return np.asarray(resid_var * solve(information, np.eye(len(information))))
    totals = np.array(
        [jacobian[names == name].T @ residual[names == name] for name in dict.fromkeys(names)]
    )
    half = solve(information, totals.T)
    return np.asarray(n_collections / (n_collections - 1.0) * half @ half.T)
