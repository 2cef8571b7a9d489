"""Eτ and Eτ_AP of normal effects, as functions of Eρ² (section 15.3b of the mathematics)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.gtheory import DStudy

if TYPE_CHECKING:
    import pandas as pd

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
