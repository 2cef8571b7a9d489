"""What Eρ² and Φ mean: curves to τ, power, sensitivity and other indicators of reliability.

References
----------
Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection reliability.
*Proc. ACM SIGIR*, 393-402. Section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, PlanError, check_alpha, did_you_mean
from vcomp.gtheory import DStudy

if TYPE_CHECKING:
    import pandas as pd

Coefficient = Literal["Erho2", "Phi"]

_SYMBOLS: dict[Coefficient, str] = {"Erho2": "Eρ²", "Phi": "Φ"}


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityMap:
    """A curve from a coefficient x of a D-study to an indicator y between halves of a collection.

    y = x^a for indicators that go to 1, and y = (1 - x)^a for those that go to 0.

    Attributes
    ----------
    indicator : what the curve leads to, a name of :func:`vcomp.ir.measures.available`
    coefficient : what it comes from, ``"Erho2"`` or ``"Phi"``
    exponent : a
    rises : whether y rises with x
    lowest : smallest value of the indicator: -1 or 0
    bse : standard error of the exponent; nan where it is not known
    resid_sd : standard deviation of points about the curve; nan where it is not known
    nobs : points that the curve was fitted to
    n_collections : that these came from
    by_collection : exponents of the collections, each fitted by itself

    Examples
    --------
    >>> PUBLISHED["tau"].at(0.95).round(3)
    np.float64(0.864)
    >>> PUBLISHED["tau"].needed(0.9).round(3)
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

    def at(self, coefficient: ArrayLike) -> Any:
        """Return the indicator at one or more values of the coefficient, of the same shape.

        Parameters
        ----------
        coefficient : Eρ² or Φ, one value or several

        Raises
        ------
        DataError
            If a value is not a number between 0 and 1; nan, an unknown one, stays nan.
        """
        return self._base(coefficient) ** self.exponent

    def needed(self, value: ArrayLike) -> Any:
        """Return the coefficient that gives a value of the indicator: the curve from y to x.

        Parameters
        ----------
        value : of the indicator, one or several

        Raises
        ------
        DataError
            If a value is not a number between 0 and 1; nan stays nan.
        """
        base = _shares(value, self.indicator) ** (1.0 / self.exponent)
        return base if self.rises else 1.0 - base

    def predict(self, coefficient: ArrayLike, *, alpha: float = 0.05) -> pd.DataFrame:
        """Return the indicator with intervals, a row a value of the coefficient.

        Parameters
        ----------
        coefficient : one or more values
        alpha : intervals have confidence 1 − alpha

        Returns
        -------
        pandas.DataFrame
            with the coefficient under its name, ``estimate``, ``low`` and ``high`` of the curve,
            and ``obs_low`` and ``obs_high`` for one pair of halves: its prediction interval.

        Raises
        ------
        DataError
            If a value is not a number between 0 and 1, or there are rows of them.
        PlanError
            If `alpha` is not between 0 and 1, or the curve is a published one, which came without
            the variances that intervals need.

        Notes
        -----
        By the delta method: with g = dy/da, the curve has variance g² bse², a point resid_sd²
        more, and both intervals are cut where the indicator ends. **The variance about the curve
        is taken to be the same everywhere**, which it is not: points come closer together as x
        goes to 1, where the interval is too long, and lie further apart at smaller x.
        """
        import pandas as pd
        from scipy.special import stdtrit

        check_alpha(alpha)
        if np.isnan(self.resid_sd):
            raise PlanError(
                "the published curves came without the variances that intervals need; "
                "fit_mapping() makes curves that have them"
            )
        x = np.atleast_1d(_shares(coefficient, _SYMBOLS[self.coefficient]))
        if x.ndim > 1:
            raise DataError(
                f"the table has a row a value of {_SYMBOLS[self.coefficient]}; these have "
                f"{x.ndim} dimensions"
            )
        base = self._base(x)
        y = base**self.exponent
        slope = np.where(base > 0.0, y * np.log(np.where(base > 0.0, base, 1.0)), 0.0)
        df = self.n_collections - 1 if self.n_collections > 1 else self.nobs - 1
        columns = {self.coefficient: x, "estimate": y}
        curve = np.abs(slope) * self.bse
        for name, half in (
            ("", stdtrit(df, 1.0 - alpha / 2.0) * curve),
            ("obs_", stdtrit(self.nobs - 1, 1.0 - alpha / 2.0) * np.hypot(curve, self.resid_sd)),
        ):
            columns[f"{name}low"] = np.maximum(y - half, self.lowest)
            columns[f"{name}high"] = np.minimum(y + half, 1.0)
        return pd.DataFrame(columns)

    def _base(self, coefficient: ArrayLike) -> FloatArray:
        x = _shares(coefficient, _SYMBOLS[self.coefficient])
        return x if self.rises else 1.0 - x


PUBLISHED: Mapping[str, ReliabilityMap] = {
    curve.indicator: curve
    for curve in (
        ReliabilityMap("tau", "Erho2", 2.84729794002905, rises=True, lowest=-1.0),
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


def map_reliability(
    indicator: str = "tau",
    *,
    Erho2: ArrayLike | None = None,
    Phi: ArrayLike | None = None,
    mapping: Mapping[str, ReliabilityMap] = PUBLISHED,
) -> Any:
    """Say what a generalizability coefficient or index of dependability means in practice.

    Parameters
    ----------
    indicator : ``"tau"``, ``"tau_ap"``, ``"power_ratio"``, ``"minor_conflicts"``,
        ``"major_conflicts"`` and ``"sens_abs"`` come from Eρ²; ``"sens_rel"`` and ``"rmse"``
        from Φ
    Erho2, Phi : one or more values, of the one coefficient that the indicator comes from
    mapping : curves by indicator: those published, or those of :func:`fit_mapping`

    Returns
    -------
    number or array, of the shape of the values
        What to expect between two collections, each with that coefficient.

    Raises
    ------
    PlanError
        If there is no curve for the indicator, or the other coefficient is given.
    DataError
        If a value is not a number between 0 and 1; nan stays nan.

    Notes
    -----
    "Take these mappings with a grain of salt" (documentation of gt4ireval). They are a summary of
    43 TREC collections, about which single collections lie widely: see the prediction intervals of
    the paper's Figure 3. Its sensitivities and errors are of scores between 0 and 1.

    References
    ----------
    Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection
    reliability. *Proc. ACM SIGIR*, 393-402. Section 4 and Figure 3.

    Examples
    --------
    >>> map_reliability("tau", Erho2=[0.9, 0.95, 0.975]).round(2)
    array([0.74, 0.86, 0.93])
    >>> round(map_reliability("sens_rel", Phi=0.75), 3)
    np.float64(0.165)
    """
    curve = _curve(mapping, indicator)
    given = {"Erho2": Erho2, "Phi": Phi}
    value = given.pop(curve.coefficient)
    if value is None or any(other is not None for other in given.values()):
        raise PlanError(
            f"{indicator!r} comes from {_SYMBOLS[curve.coefficient]}: give {curve.coefficient}= "
            "alone"
        )
    return curve.at(value)


def map_dstudy(
    study: DStudy,
    indicators: str | Iterable[str] | None = None,
    *,
    mapping: Mapping[str, ReliabilityMap] = PUBLISHED,
) -> pd.DataFrame:
    """Say what each plan of a D-study means in practice, as Table 2 of Urbano et al. (2013) does.

    Parameters
    ----------
    study : of ``res.dstudy(...)``
    indicators : names of curves; all of them if None
    mapping : curves by indicator: those published, or those of :func:`fit_mapping`

    Returns
    -------
    pandas.DataFrame
        A row a plan and indicator: the sizes of the plan, ``indicator``, ``coefficient``,
        ``estimate``, and ``low`` and ``high`` from the limits of the coefficient. They do not hold
        the uncertainty of the curve; nan where the coefficient has no interval.

    Raises
    ------
    PlanError
        If there is no curve for an indicator.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    >>> study = vcomp.fit("score ~ (1|sys) + (1|topic)", data).dstudy(topic=[50, 100])
    >>> map_dstudy(study, "tau")[["topic", "estimate"]].round(2)
       topic  estimate
    0     50      0.58
    1    100      0.75
    """
    import pandas as pd

    if not isinstance(study, DStudy):
        raise PlanError(
            f"study is a D-study, such as res.dstudy(topic=50), not a {type(study).__name__}"
        )
    names: Iterable[object] = [indicators]
    if indicators is None:
        names = mapping
    elif isinstance(indicators, Iterable) and not isinstance(indicators, str):
        names = indicators
    table, facets = study.table, list(study.plan.facets)
    parts = []
    for place, name in enumerate(names):
        curve = _curve(mapping, name)
        part = table[facets].copy()
        part["indicator"], part["coefficient"] = str(name), curve.coefficient
        part["estimate"] = curve.at(table[curve.coefficient].to_numpy())
        ends = [
            curve.at(table[f"{curve.coefficient}_{end}"].to_numpy()) for end in ("low", "high")
        ]
        part["low"], part["high"] = ends if curve.rises else ends[::-1]
        parts.append(part.assign(place=place))
    if not parts:
        raise PlanError("no indicator is given")
    rows = pd.concat(parts).rename_axis("plan").reset_index()
    return rows.sort_values(["plan", "place"], ignore_index=True).drop(columns=["plan", "place"])


def _curve(mapping: Mapping[str, ReliabilityMap], indicator: object) -> ReliabilityMap:
    if not isinstance(mapping, Mapping):
        raise PlanError(f"mapping is a dict of curves by indicator, not {mapping!r}")
    curve = mapping.get(str(indicator))
    if curve is None:
        raise PlanError(
            f"there is no curve for {indicator!r}{did_you_mean(indicator, mapping)}; there are "
            f"{', '.join(map(repr, mapping))}"
        )
    return curve


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
            f"{what} lies between 0 and 1, not at {display.number(x[outside].flat[0])}"
        )
    return x[()]
