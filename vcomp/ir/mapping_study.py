"""Curves from coefficients to indicators, with the points that they were fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display, plots
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.ir.mapping import PUBLISHED, Coefficient, ReliabilityMap
from vcomp.ir.measures import Measure

if TYPE_CHECKING:
    import pandas as pd

_SYMBOLS: dict[str, str] = {"Erho2": "Eρ²", "Phi": "Φ"}
_EXAMPLES: dict[str, float] = {"Erho2": 0.95, "Phi": 0.75}
_LEVELS = (0.05, 0.1)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MappingStudy(display.Printed):
    """Curves from Eρ² and Φ to other indicators, and what they were fitted to.

    Attributes
    ----------
    maps : curves by indicator
    measures : the indicators
    points : a row a half: ``collection``, ``n`` topics, ``trial``, its ``Erho2`` and ``Phi``, and
        every indicator of it against the other half; nan where one is not defined
    smallest : coefficients that points needed to be fitted

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
        """A row a curve: ``indicator``, ``coefficient``, ``exponent``, ``bse``, ``resid_sd``.

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
        """Return a printable summary: exponents, and what the curves say at two coefficients.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        rows = [_row(curve) for curve in self.maps.values()]
        n = self.points["collection"].nunique()
        at = " or ".join(f"{_SYMBOLS[c]} = {display.number(x)}" for c, x in _EXAMPLES.items())
        table = display.simple_table(
            rows,
            ["points", "exponent", "std. err.", "single ones", f"at {at}"],
            title=f"What Eρ² and Φ mean, from halves of {n} collection{'s' if n > 1 else ''}",
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
        if name not in self.maps:
            raise PlanError(
                f"there is no curve for {name!r}{did_you_mean(name, self.maps)}; there are "
                f"{', '.join(map(repr, self.maps))}"
            )
        curve = self.maps[name]
        x = curve.coefficient
        used = self.points[self.points[x] >= self.smallest[x]].dropna(subset=[name])
        grid = np.linspace(self.smallest[x], 1.0, 200)
        return plots.reliability_map(
            used.rename(columns={x: "x", name: "y"})[["x", "y"]],
            {a: curve.predict(grid, alpha=a).rename(columns={x: "x"}) for a in _LEVELS},
            labels=(_SYMBOLS[x], self.measures[name].symbol),
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
    least = " and ".join(f"{_SYMBOLS[c]} ≥ {display.number(v)}" for c, v in study.smallest.items())
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
            "From one collection standard errors take its halves as independent, which they are "
            "not: they are too small."
        )
    else:
        notes.append("Single ones: smallest and largest exponent of a collection by itself.")
    return notes
