"""Copulas that need no vines: the normal one, and Student's t, whose extremes come together.

A t copula is a normal one whose vectors are each multiplied by a number of their own, √(ν / χ²_ν).
What is large then is large in many systems at once, the more so the smaller ν is; the normal one
is the limit of large ν. (Demarta and McNeil, 2005. *International Statistical Review*, 73,
111-129.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.ir.simulate.margin import GRID

COPULAS = ("gaussian", "t")

_FEWEST, _MOST = 1.0, 200.0
"""Degrees of freedom that are fitted; with more than that there is no telling from the normal."""

_TOO_CLOSE = 1e-6
"""Two columns with 1 - r² below this are one, and say nothing of their extremes."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Copula:
    """How the vectors of a topic's effects, or scores, are tied together beyond correlations.

    Attributes
    ----------
    name : ``"gaussian"`` or ``"t"``
    df : degrees of freedom; infinite for the normal one
    quantiles : (1025,) of t with these, at Φ of :data:`vcomp.ir.simulate.margin.GRID`; else empty

    Examples
    --------
    >>> student(4.0)
    <t copula with 4 degrees of freedom>
    """

    name: str
    df: float
    quantiles: FloatArray

    def __repr__(self) -> str:
        if self.name == "gaussian":
            return "<gaussian copula>"
        return f"<t copula with {display.number(self.df)} degrees of freedom>"

    def scales(self, n_topics: int, rng: np.random.Generator) -> FloatArray | None:
        """Return what the normal vector of each topic is multiplied by; None for ones."""
        if self.name == "gaussian":
            return None
        return np.sqrt(self.df / rng.chisquare(self.df, n_topics))

    def normals(self, z: FloatArray, scales: FloatArray | None) -> FloatArray:
        """Return vectors with normal margins that are tied together by the copula.

        Parameters
        ----------
        z : (n_topics, ...) normals, correlated
        scales : of the topics
        """
        if scales is None:
            return z
        scaled = z * scales.reshape(-1, *(1,) * (z.ndim - 1))
        return np.asarray(np.interp(scaled, self.quantiles, GRID))

    def conditional(self, correlation: float, z: FloatArray) -> FloatArray:
        """Return normals of a second variable, given those of the first and of what is new in it.

        Parameters
        ----------
        correlation : of the two
        z : (q,) normals that both are evaluated at; part of :data:`GRID`

        Returns
        -------
        (q, q), the first variable down
        """
        rest = np.sqrt(max(1.0 - correlation**2, 0.0))
        if self.name == "gaussian":
            return np.asarray(correlation * z[:, None] + rest * z)
        first = np.interp(z, GRID, self.quantiles)
        new = student_quantiles(self.df + 1.0, z)
        spread = rest * np.sqrt((self.df + first**2) / (self.df + 1.0))
        second = correlation * first[:, None] + spread[:, None] * new
        return np.asarray(np.interp(second, self.quantiles, GRID))


def gaussian() -> Copula:
    """Return the normal copula."""
    return Copula("gaussian", float("inf"), np.zeros(0))


def student(df: float) -> Copula:
    """Return the copula of Student's t with some degrees of freedom."""
    return Copula("t", df, student_quantiles(df, GRID))


def student_quantiles(df: float, z: FloatArray) -> FloatArray:
    """Return quantiles of t at Φ(z), from the tail that is the smaller."""
    from scipy.special import ndtr, stdtrit

    return np.asarray(np.sign(z) * -stdtrit(df, ndtr(-np.abs(z))))


def fitted_df(columns: FloatArray, correlations: FloatArray) -> float:
    """Return the degrees of freedom with the largest likelihood of all pairs of columns.

    Each column is known by its ranks, and correlations stay as they are. The likelihood is that of
    pairs, added up (a composite one): that of whole vectors is not defined where residuals add up
    to zero, or there are no more topics than systems.

    Parameters
    ----------
    columns : (n_topics, k)
    correlations : (k, k)

    Returns
    -------
    float
        Between 1 and 200.

    References
    ----------
    Varin, C., Reid, N. and Firth, D. (2011). An overview of composite likelihood methods.
    *Statistica Sinica*, 21, 5-42.
    """
    from scipy.optimize import minimize_scalar
    from scipy.stats import rankdata

    u = rankdata(columns, axis=0) / (len(columns) + 1.0)
    found = minimize_scalar(
        lambda inverse: -pair_likelihood(u, correlations, 1.0 / inverse),
        bounds=(1.0 / _MOST, 1.0 / _FEWEST),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return float(1.0 / found.x)


def pair_likelihood(u: FloatArray, correlations: FloatArray, df: float) -> float:
    """Return the log-likelihood of all pairs of columns under a t copula, added up.

    Parameters
    ----------
    u : (n, k) ranks between 0 and 1
    correlations : (k, k)
    df : degrees of freedom
    """
    from scipy.special import gammaln, stdtrit

    x = stdtrit(df, u)
    half = 0.5 * df
    of_one = (half + 0.5) * np.log1p(x * x / df)
    constant = gammaln(half + 1.0) + gammaln(half) - 2.0 * gammaln(half + 0.5)
    total = 0.0
    for i in range(x.shape[1] - 1):
        r = correlations[i, i + 1 :]
        apart = 1.0 - r * r > _TOO_CLOSE
        r, y = r[apart], x[:, i + 1 :][:, apart]
        rest = 1.0 - r * r
        distance = (x[:, [i]] ** 2 + y * y - 2.0 * r * x[:, [i]] * y) / (df * rest)
        logs = constant - 0.5 * np.log(rest) - (half + 1.0) * np.log1p(distance)
        total += float((logs + of_one[:, [i]] + of_one[:, i + 1 :][:, apart]).sum())
    return total
