"""The D-study: what a planned measurement would be worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.components import VarianceComponents
from vcomp.dstudy.plan import DStudyPlan
from vcomp.dstudy.requirement import Requirement, required_size
from vcomp.uncertainty.limits import IntervalSource

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DStudy"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DStudy:
    """Error variances and coefficients of planned measurements.

    Attributes
    ----------
    plan : design, object of measurement and sizes
    components : of the G-study, as estimated
    alpha : intervals have confidence 1 − alpha
    negative : how negative components are taken, ``"zero"`` or ``"keep"``
    columns : name of the quantity → (m,) values, one a plan; see :attr:`table`
    interval_methods : quantity → how its interval was made; those without one are missing
    notes : what a reader should know of these numbers
    source : what gave the intervals

    Examples
    --------
    >>> from vcomp.dstudy import from_components
    >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 20])
    >>> study.table[["i", "Erho2", "Phi"]].round(3)
        i  Erho2    Phi
    0  10  0.833  0.806
    1  20  0.909  0.893
    """

    plan: DStudyPlan
    components: VarianceComponents
    alpha: float
    negative: str
    columns: Mapping[str, FloatArray]
    interval_methods: Mapping[str, str]
    notes: tuple[str, ...]
    source: IntervalSource

    @property
    def table(self) -> pd.DataFrame:
        """One row a plan.

        The sizes of the facets under their names; ``universe_var``, ``rel_err_var`` σ²(δ),
        ``abs_err_var`` σ²(Δ), ``Erho2``, ``Phi``; of each of the last four its standard error
        ``_se`` and the ends ``_low`` and ``_high`` of its interval, nan where not estimable.
        Limits of coefficients below 0 are cut at 0.

        Examples
        --------
        >>> from vcomp.dstudy import from_components
        >>> list(from_components({"p": 0.5, "i:p": 1.0}).dstudy(i=10).table.columns[:6])
        ['i', 'universe_var', 'rel_err_var', 'abs_err_var', 'Erho2', 'Phi']
        """
        import pandas as pd

        labels = self.plan.labels
        index = pd.RangeIndex(len(self.plan)) if labels is None else pd.Index(labels)
        return pd.DataFrame({**self._sizes(), **self.columns}, index=index)

    def required(
        self, target: float = 0.95, coefficient: str = "Erho2", facet: str | None = None
    ) -> Requirement:
        """Return how many levels of `facet` reach `target`, with an interval.

        The other facets are held at the sizes of the *first* plan; a facet nested in `facet` keeps
        its size within each level. See :func:`~vcomp.dstudy.required_size`.

        Parameters
        ----------
        target : of the coefficient, between 0 and 1
        coefficient : ``"Erho2"`` or ``"Phi"``
        facet : may be left out where only one has a size

        Raises
        ------
        PlanError
            The target, coefficient or facet is not one that can be.

        References
        ----------
        Urbano, Marrero and Martín (2013), SIGIR, eq. (6), (7), (12) and (13).

        Examples
        --------
        >>> from vcomp.dstudy import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
        >>> print(study.required(0.9))
        For Eρ² = 0.9, 18 levels of i are needed.
        """
        return required_size(
            self.components,
            self.source,
            self.plan,
            negative=self.negative,
            target=target,
            coefficient=coefficient,
            facet=facet,
            alpha=self.alpha,
        )

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary

        Examples
        --------
        >>> from vcomp.dstudy import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
        >>> print(study.summary())  # doctest: +ELLIPSIS
        D-study p × i; object of measurement: p
        ...
        """
        from vcomp.dstudy.summary import summary

        return summary(self)

    def plot(
        self,
        x: str | None = None,
        coefficient: str | Sequence[str] = ("Erho2", "Phi"),
        ax: Any | None = None,
        target: float | None = None,
    ) -> Any:
        """Draw Eρ² and Φ over the size of a facet, with their intervals.

        Planned sizes are points; the lines between them are the same D-study at sizes between.
        There is a line for every combination of the other facets' sizes.

        Parameters
        ----------
        x : the facet on the horizontal axis; the one of which most sizes are planned if None
        coefficient : ``"Erho2"``, ``"Phi"`` or both
        ax : matplotlib axes to draw on; those of a new figure if None
        target : draws a line there, and the legend has the size of `x` that reaches it

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            The facet, a coefficient or the target is not one that can be, or there are more lines
            than can be told apart.
        VcompError
            matplotlib is not installed.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> from vcomp.dstudy import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 20])
        >>> ax = study.plot(target=0.9, ax=Figure().subplots())
        >>> print(ax.get_legend().get_texts()[0].get_text())
        Eρ²:  0.9 at 18
        """
        from vcomp.dstudy.picture import draw

        return draw(self, x, coefficient, ax, target)

    def _sizes(self) -> dict[str, Any]:
        columns = zip(self.plan.facets, self.plan.sizes.T, strict=True)
        return {facet: _whole(sizes) for facet, sizes in columns}

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        plan = self.plan
        return f"DStudy(object={plan.object!r}, design='{plan.design}', plans={len(plan)})"

    def _repr_html_(self) -> str:
        return str(self.summary().as_html())


def _whole(sizes: FloatArray) -> Any:
    return sizes.astype(np.int64) if np.all(sizes == np.floor(sizes)) else sizes.astype(float)
