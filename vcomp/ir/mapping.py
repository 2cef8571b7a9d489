"""Curves from Eρ² and Φ to τ, power, sensitivity and other indicators of reliability.

References
----------
Urbano, J., Marrero, M. and Martín, D. (2013). On the measurement of test collection reliability.
*Proc. ACM SIGIR*, 393-402. Section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display, plots
from vcomp._typing import FloatArray
from vcomp.display import SYMBOLS
from vcomp.exceptions import PlanError, check_known
from vcomp.gtheory import DStudy
from vcomp.ir.agreement import Measure
from vcomp.ir.reliability_map import PUBLISHED, Coefficient, ReliabilityMap

if TYPE_CHECKING:
    import pandas as pd


def map_reliability(
    indicator: str = "tau",
    *,
    Erho2: ArrayLike | None = None,
    Phi: ArrayLike | None = None,
    mapping: Mapping[str, ReliabilityMap] = PUBLISHED,
) -> Any:
    """Return indicators of reliability that correspond to values of Eρ² or Φ.

    Parameters
    ----------
    indicator : ``"tau"``, ``"tau_ap"``, ``"power_ratio"``, ``"minor_conflicts"``,
        ``"major_conflicts"`` and ``"sens_abs"`` are functions of Eρ², ``"sens_rel"`` and
        ``"rmse"`` of Φ
    Erho2, Phi : one or more values, of the coefficient that the indicator is a function of
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
            f"{indicator!r} comes from {SYMBOLS[curve.coefficient]}: give {curve.coefficient}= "
            "alone"
        )
    return curve.at(value)


def map_dstudy(
    study: DStudy,
    indicators: str | Iterable[str] | None = None,
    *,
    mapping: Mapping[str, ReliabilityMap] = PUBLISHED,
) -> pd.DataFrame:
    """Return indicators of reliability for each plan of a D-study (Urbano et al., 2013, Table 2).

    Parameters
    ----------
    study : of ``res.dstudy(...)``
    indicators : names of curves; all of them if None
    mapping : curves by indicator: those published, or those of :func:`fit_mapping`

    Returns
    -------
    pandas.DataFrame
        One row per plan and indicator: the sizes of the plan, ``indicator``, ``coefficient``,
        ``estimate``, and ``low`` and ``high`` from the limits of the coefficient. They do not hold
        the uncertainty of the curve; nan where the coefficient has no interval. A curve with
        features has those of the plan: its number of topics, the number of systems and the share
        of topics of the G-study.

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
    features = _features_of(study)
    parts = []
    for place, name in enumerate(names):
        curve = _curve(mapping, name)
        part = table[facets].copy()
        part["indicator"], part["coefficient"] = str(name), curve.coefficient
        values = {feature: z for feature, z in features.items() if feature in curve.slopes}
        part["estimate"] = curve.at(table[curve.coefficient].to_numpy(), values)
        ends = [
            curve.at(table[f"{curve.coefficient}_{end}"].to_numpy(), values)
            for end in ("low", "high")
        ]
        part["low"], part["high"] = ends if curve.rises else ends[::-1]
        parts.append(part.assign(place=place))
    if not parts:
        raise PlanError("no indicator is given")
    rows = pd.concat(parts).rename_axis("plan").reset_index()
    return rows.sort_values(["plan", "place"], ignore_index=True).drop(columns=["plan", "place"])


def _features_of(study: DStudy) -> dict[str, Any]:
    """Return the features of the planned collections that the D-study knows."""
    g, facets = study.components, study.plan.facets
    if len(facets) != 1:
        return {}
    found: dict[str, Any] = {"n_topics": study.table[facets[0]].to_numpy(dtype=float)}
    if study.plan.object in g.sizes:
        found["n_systems"] = g.sizes[study.plan.object]
    values = dict(zip(g.facets, np.maximum(g.values, 0.0).tolist(), strict=True))
    topic, error = values.get(frozenset({facets[0]})), float(max(g.values[-1], 0.0))
    if topic is not None and topic + error > 0.0:
        found["topic_share"] = topic / (topic + error)
    return found


_NO_CURVE = "there is no curve for {}; there are"


def _curve(mapping: Mapping[str, ReliabilityMap], indicator: Any) -> ReliabilityMap:
    if not isinstance(mapping, Mapping):
        raise PlanError(f"mapping is a dict of curves by indicator, not {mapping!r}")
    check_known(indicator, mapping, _NO_CURVE, quoted=True)
    return mapping[indicator]


_EXAMPLES: dict[str, float] = {"Erho2": 0.95, "Phi": 0.75}
_LEVELS = (0.05, 0.1)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MappingStudy(display.Printed):
    """Curves from Eρ² and Φ to other indicators, with the fitted points.

    Attributes
    ----------
    maps : curves by indicator
    measures : the indicators
    points : one row per half: ``collection``, ``n`` topics, ``trial``, its ``Erho2`` and ``Phi``,
        ``n_systems`` and ``topic_share``, and every indicator of it against the other half; nan
        where one is not defined
    smallest : least coefficients of the fitted points

    Examples
    --------
    >>> from vcomp.ir import fit_mapping
    >>> rng = np.random.default_rng(1)
    >>> collections = [rng.normal(size=(40, 20)) + np.linspace(0, 2, 20) for _ in range(2)]
    >>> fit_mapping(collections, ["tau", "rmse"], drop_worst=0.0).table["coefficient"].tolist()
    ['Erho2', 'Phi']
    """

    maps: Mapping[str, ReliabilityMap]
    measures: Mapping[str, Measure]
    points: pd.DataFrame
    smallest: Mapping[Coefficient, float]

    @property
    def table(self) -> pd.DataFrame:
        """One row per curve: ``indicator``, ``coefficient``, ``exponent``, ``bse``, ``resid_sd``.

        Then ``nobs`` points; ``lowest`` and ``highest`` exponent of a single collection; and
        ``published``, the exponent of Urbano et al. (2013), nan where there is none.
        """
        import pandas as pd

        rows = []
        for name, curve in self.maps.items():
            single = list(curve.by_collection.values()) or [np.nan]
            known = PUBLISHED[name].exponent if name in PUBLISHED else np.nan
            rows.append((name, curve.coefficient, curve.exponent, curve.bse, curve.resid_sd,
                         curve.nobs, min(single), max(single), known))  # fmt: skip
        return pd.DataFrame(
            rows,
            columns=["indicator", "coefficient", "exponent", "bse", "resid_sd", "nobs", "lowest",
                     "highest", "published"],
        )  # fmt: skip

    def summary(self) -> Any:
        """Return a printable summary: exponents, and values of the curves at two coefficients.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        rows = [_row(curve) for curve in self.maps.values()]
        n = self.points["collection"].nunique()
        at = " or ".join(f"{SYMBOLS[c]} = {display.number(x)}" for c, x in _EXAMPLES.items())
        table = display.simple_table(
            rows,
            ["points", "exponent", "std. err.", "by collection", f"at {at}"],
            title="Curves from Eρ² and Φ to other indicators, from halves of "
            f"{n} collection{'s' if n > 1 else ''}",
            stubs=list(self.maps),
        )
        return display.summary([table], _notes(self))

    def plot(self, indicator: str | None = None, *, ax: Any | None = None) -> Any:
        """Draw the points of an indicator, its curve, and the 90 % and 95 % prediction intervals.

        Parameters
        ----------
        indicator : one of :attr:`maps`; the first if None
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            If there is no such curve.
        VcompError
            If matplotlib is not installed.
        """
        name = next(iter(self.maps)) if indicator is None else indicator
        check_known(name, self.maps, _NO_CURVE, quoted=True)
        curve = self.maps[name]
        x = curve.coefficient
        used = self.points[self.points[x] >= self.smallest[x]].dropna(subset=[name])
        grid = np.linspace(self.smallest[x], 1.0, 200)
        return plots.reliability_map(
            used.rename(columns={x: "x", name: "y"})[["x", "y"]],
            {a: curve.predict(grid, alpha=a).rename(columns={x: "x"}) for a in _LEVELS},
            labels=(SYMBOLS[x], self.measures[name].symbol),
            ax=ax,
        )

    def __repr__(self) -> str:
        n = self.points["collection"].nunique()
        return (
            f"<MappingStudy: {', '.join(self.maps)} from {len(self.points):,} points of {n} "
            f"collection{'s' if n > 1 else ''}>"
        )


def _row(curve: ReliabilityMap) -> list[str]:
    """Return the cells of a curve: its exponent, and an example."""
    at = curve.predict(_EXAMPLES[curve.coefficient]).iloc[0]
    single = list(curve.by_collection.values())
    value = display.coefficient(at["estimate"])
    interval = display.coefficient_interval(at["obs_low"], at["obs_high"])
    return [
        display.count(curve.nobs),
        display.number(curve.exponent),
        display.number(curve.bse, 2),
        display.short_interval(min(single), max(single)) if single else display.MISSING,
        f"{value} {interval}",
    ]


def _notes(study: MappingStudy) -> list[str]:
    rising = [name for name, curve in study.maps.items() if curve.rises]
    falling = [name for name, curve in study.maps.items() if not curve.rises]
    words = []
    if rising:
        words.append(f"x^exponent for {', '.join(rising)}")
    if falling:
        words.append(f"(1 − x)^exponent for {', '.join(falling)}")
    least = " and ".join(f"{SYMBOLS[c]} ≥ {display.number(v)}" for c, v in study.smallest.items())
    notes = [
        f"Curves: {'; '.join(words)}. Points with {least}.",
        "In brackets: where 95 % of pairs of halves of these collections lie.",
    ]
    n = study.points["collection"].nunique()
    fewer = [name for name, curve in study.maps.items() if curve.n_collections < n]
    if fewer:
        notes.append(
            "Not every collection has such points: there are "
            + ", ".join(f"{study.maps[name].n_collections} for {name}" for name in fewer)
            + "."
        )
    if n == 1:
        notes.append(
            "Standard errors from one collection treat its halves as independent, which they are "
            "not: they are too small."
        )
    else:
        notes.append("By collection: smallest and largest exponent of a single collection.")
    return notes


_NODES = 160
"""Quadrature nodes for τ_AP, accurate to nine digits."""

_FAR = 9.0
"""Integration bound: a normal number exceeds it with probability 1e-19."""


def tau_of_erho2(erho2: float | Iterable[float] | FloatArray) -> FloatArray:
    """Return Eτ of normal universe scores and errors: (2/π) arcsin √Eρ².

    The observed and the true difference of two systems drawn at random are normal with
    correlation √Eρ², and have the same sign with probability ½ + arcsin(√Eρ²)/π. So whatever the
    facets of a plan, Eτ depends on its Eρ² alone.

    Parameters
    ----------
    erho2 : values of Eρ²; nan stays nan

    Returns
    -------
    array of the same shape

    Raises
    ------
    PlanError
        If a value is not between 0 and 1.

    References
    ----------
    Sheppard, W. F. (1899). On the application of the theory of error to cases of normal
    distribution and normal correlation. *Philosophical Transactions A*, 192, 101-167.

    Examples
    --------
    >>> tau_of_erho2([0.0, 0.25, 0.95, 1.0]).round(3)
    array([0.   , 0.333, 0.856, 1.   ])
    """
    return np.asarray(2.0 / np.pi * np.arcsin(np.sqrt(_shares(erho2))))


def tau_ap_of_erho2(erho2: float | Iterable[float] | FloatArray, n_systems: int) -> FloatArray:
    """Return Eτ_AP of normal universe scores and errors, for a number of systems.

    With r(y) the probability that a system truly better than one of true score y is also observed
    to be better, and p(y) that of being truly better, ranks being true ones,

        Eτ_AP = 2k/(k-1) ∫ φ(y) r(y) {1 - (1 - p(y))^(k-1)} dy - 1.

    Parameters
    ----------
    erho2 : values of Eρ²; nan stays nan
    n_systems : k

    Returns
    -------
    array of the same shape

    Raises
    ------
    PlanError
        If a value is not between 0 and 1, or there are fewer than two systems.

    Examples
    --------
    >>> tau_ap_of_erho2([0.0, 0.95, 1.0], 30).round(3)
    array([0.   , 0.803, 1.   ])
    """
    from scipy.special import log_ndtr, ndtr

    x = _shares(erho2)
    if not n_systems >= 2:
        raise PlanError(f"a ranking has at least two systems, not {n_systems!r}")
    node, w = np.polynomial.legendre.leggauss(_NODES)
    y = _FAR * node
    others = (n_systems - 1.0) * log_ndtr(y)  # log (1 - p)^(k-1)
    # φ(y) {1 - (1 - p)^(k-1)} / p, where p r(y) is the inner integral
    outer = _FAR * w * _density(y) * -np.expm1(others) / np.exp(log_ndtr(-y))
    above = (_FAR - y) / 2.0
    ahead = above[:, np.newaxis] * (node + 1.0)
    inner = above[:, np.newaxis] * w * _density(y[:, np.newaxis] + ahead)
    rho = np.sqrt(x)
    values = []
    for r in np.ravel(rho):
        with np.errstate(divide="ignore"):
            right = ndtr(r * ahead / np.sqrt(2.0 * (1.0 - r * r)))
        share = float(outer @ (inner * right).sum(axis=1))
        values.append(2.0 * n_systems / (n_systems - 1.0) * share - 1.0)
    return np.array(values).reshape(np.shape(rho))


def _density(y: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-(y**2) / 2.0) / np.sqrt(2.0 * np.pi))


def normal_tau(study: DStudy, n_systems: int | None = None) -> pd.DataFrame:
    """Return Eτ and Eτ_AP of the plans of a D-study from Eρ², for normal effects.

    Unlike :meth:`~vcomp.VarianceComponentsResults.expected_tau`, which is for the systems of the
    data, this is for systems drawn anew from the same normal population. It needs components
    alone, published ones for instance, and holds for any number of random facets.

    Parameters
    ----------
    study : of ``res.dstudy(...)``; its object of measurement is ranked
    n_systems : number of ranked systems, on which τ_AP depends; that of the G-study if None

    Returns
    -------
    pandas.DataFrame
        Two rows per plan: the sizes of its facets, ``measure``, ``estimate``, ``low`` and ``high``
        from the limits of Eρ² (nan where it has none), and ``estimator``, ``"normal"``.

    Raises
    ------
    PlanError
        If `study` is not a D-study, there are fewer than two systems, or their number is unknown.

    See Also
    --------
    vcomp.ir.map_dstudy : curves from Eρ² to τ of 43 TREC collections (Urbano et al., 2013)

    References
    ----------
    Urbano, Marrero and Martín (2013), SIGIR, section 4, has the empirical curves.

    Examples
    --------
    >>> import vcomp
    >>> published = vcomp.from_components({"p": 0.5, "i": 0.2, "Residual": 1.0})
    >>> normal_tau(published.dstudy(i=[10, 40]), 30).round(3)
        i measure  estimate  low  high estimator
    0  10     tau     0.732  NaN   NaN    normal
    1  10  tau_ap     0.658  NaN   NaN    normal
    2  40     tau     0.860  NaN   NaN    normal
    3  40  tau_ap     0.808  NaN   NaN    normal
    """
    import pandas as pd

    if not isinstance(study, DStudy):
        raise PlanError(
            f"study is a D-study, such as res.dstudy(topic=50), not a {type(study).__name__}"
        )
    k = _number_of_systems(study) if n_systems is None else n_systems
    table = study.table
    found: dict[str, FloatArray] = {
        end: np.clip(table[name].to_numpy(dtype=float), 0.0, 1.0)
        for end, name in (("estimate", "Erho2"), ("low", "Erho2_low"), ("high", "Erho2_high"))
    }
    parts: list[pd.DataFrame] = []
    for measure in ("tau", "tau_ap"):
        part: Any = table[list(study.plan.facets)].assign(measure=measure)
        for end, erho2 in found.items():
            part[end] = tau_of_erho2(erho2) if measure == "tau" else tau_ap_of_erho2(erho2, k)
        parts.append(part.assign(estimator="normal"))
    rows = pd.concat(parts).sort_index(kind="stable")
    return rows.reset_index(drop=True)


def _number_of_systems(study: DStudy) -> int:
    size = study.components.sizes.get(study.plan.object)
    if size is None:
        raise PlanError(
            f"the number of {study.plan.object} in the G-study is not known, on which τ_AP "
            "depends; pass n_systems=..."
        )
    return round(size)


def _shares(values: Any) -> FloatArray:
    x = np.asarray(values, dtype=float)
    if ((x < 0.0) | (x > 1.0)).any():
        raise PlanError("Eρ² must be between 0 and 1")
    return x
