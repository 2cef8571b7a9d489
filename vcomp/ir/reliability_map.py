"""A curve from Eρ² or Φ to another indicator of reliability, and the published ones.

References
----------
Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection reliability.
*Proc. ACM SIGIR*, 393-402. Section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.display import SYMBOLS
from vcomp.exceptions import DataError, PlanError, check_alpha, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

Coefficient = Literal["Erho2", "Phi"]
Feature = Literal["n_topics", "n_systems", "topic_share"]

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
            if name not in self.slopes:
                known = ", ".join(map(repr, self.slopes)) or "none"
                raise PlanError(
                    f"the curve of {self.indicator!r} has no feature {name!r}"
                    f"{did_you_mean(name, self.slopes)}; its features: {known}"
                )
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
