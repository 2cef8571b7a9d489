"""What a G-study leaves behind: all that a D-study needs, and no rows.

:class:`VarianceComponents` is the value that travels from an estimation, or from a published
table, to the D-study. Which estimator made it is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vcomp._typing import FloatArray, Json
from vcomp.estimators import nan_to_none, without_bounds_from_json, without_bounds_to_json
from vcomp.formula import REPLICATE

__all__ = [
    "TwoWayMeanSquares",
    "VarianceComponents",
]


@dataclass(frozen=True, slots=True)
class TwoWayMeanSquares:
    """Mean squares of a complete two-way table with one mean a cell.

    They give the exact F interval of Eρ² (Feldt, 1965) and the interval of Φ of Arteaga,
    Jeyaratnam and Franklin (1982). Mean squares are per cell mean: with r scores in every cell
    they are 1/r of those of the scores.
    """

    rows: str
    columns: str
    n_rows: int
    n_columns: int
    ms_rows: float
    ms_columns: float
    ms_residual: float
    n_replicates: int = 1

    def oriented(self, object_: str) -> TwoWayMeanSquares:
        """Return the same table with the object of measurement as its rows."""
        if object_ == self.rows:
            return self
        return TwoWayMeanSquares(
            rows=self.columns,
            columns=self.rows,
            n_rows=self.n_columns,
            n_columns=self.n_rows,
            ms_rows=self.ms_columns,
            ms_columns=self.ms_rows,
            ms_residual=self.ms_residual,
            n_replicates=self.n_replicates,
        )


@dataclass(frozen=True, slots=True, eq=False)
class VarianceComponents:
    """Variance components with the design that they belong to.

    Attributes
    ----------
    names : the components as written, ``"sys"`` or ``"topic:doc"``; the last is ``"Residual"``
    facets : for each component, the facets that its effect depends on, with those that they are
        nested in (``{"topic", "doc"}``); of the residual all facets, and ``"replicate"`` where
        cells hold several scores
    values : (k,) estimates, negative ones as estimated
    cov : (k, k) their covariance matrix, or None where it is not known; rows and columns of a
        component without a standard error (at its bound) are nan
    nested_in : for each facet of the G-study the facets that it is nested in (transitively)
    sizes : for each facet the number of levels in the G-study *within* the facets that it is
        nested in, a harmonic mean where that differs from group to group. Empty when not known
    inverse_n : for each possible object of measurement (see :func:`object_key`) and each
        component, the exact divisor of the G-study's own design as 1/n: the mean over the levels
        of the object of Σ n²/(Σ n)² over the groups of the component (Brennan 2001, eq. 7.28).
        Empty when not known
    mean_squares : of a complete two-way design, else None
    held : components that were given, not estimated: they count as known
    without_bounds : where components are at their bound, (k,) what the estimates would be without
        bounds, by one step of Fisher's scoring, and their (k, k) covariance matrix; else None
    """

    names: tuple[str, ...]
    facets: tuple[frozenset[str], ...]
    values: FloatArray
    cov: FloatArray | None = None
    nested_in: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    inverse_n: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    mean_squares: TwoWayMeanSquares | None = None
    held: tuple[str, ...] = ()
    without_bounds: tuple[FloatArray, FloatArray] | None = None

    @property
    def facet_names(self) -> tuple[str, ...]:
        """All facets in the order in which the components first name them, ``replicate`` last."""
        everything: frozenset[str] = frozenset().union(*self.facets)
        mentioned = (part for name in self.names for part in name.split(":"))
        first = {part: None for part in mentioned if part in everything - {REPLICATE}}
        # Names of published terms ("pia") need not be facets joined by colons.
        others = sorted(everything - first.keys() - {REPLICATE})
        last = [REPLICATE] if REPLICATE in everything else []
        return (*first, *others, *last)

    def to_json(self) -> Json:
        """Return plain lists and dicts that :meth:`from_json` reads again."""
        two_way = self.mean_squares
        return {
            "names": list(self.names),
            "facets": [sorted(f) for f in self.facets],
            "values": self.values.tolist(),
            "cov": None if self.cov is None else nan_to_none(self.cov),
            "nested_in": {f: sorted(above) for f, above in self.nested_in.items()},
            "sizes": dict(self.sizes),
            "inverse_n": {o: dict(n) for o, n in self.inverse_n.items()},
            "mean_squares": None
            if two_way is None
            else {name: getattr(two_way, name) for name in TwoWayMeanSquares.__slots__},
            "held": list(self.held),
            "without_bounds": without_bounds_to_json(self.without_bounds),
        }

    @classmethod
    def from_json(cls, stored: Json) -> VarianceComponents:
        """Return what :meth:`to_json` stored.

        Parameters
        ----------
        stored : the mapping that :meth:`to_json` returned
        """
        cov, two_way = stored["cov"], stored["mean_squares"]
        return cls(
            names=tuple(stored["names"]),
            facets=tuple(frozenset(f) for f in stored["facets"]),
            values=np.array(stored["values"], dtype=float),
            cov=None if cov is None else np.array(cov, dtype=float),
            nested_in={f: frozenset(above) for f, above in stored["nested_in"].items()},
            sizes=dict(stored["sizes"]),
            inverse_n={o: dict(n) for o, n in stored["inverse_n"].items()},
            mean_squares=None if two_way is None else TwoWayMeanSquares(**two_way),
            held=tuple(stored.get("held", ())),
            without_bounds=without_bounds_from_json(stored.get("without_bounds")),
        )
