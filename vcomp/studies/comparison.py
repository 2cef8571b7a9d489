"""Several measures side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcomp.dstudy import DStudy
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.results.results import VarianceComponentsResults
from vcomp.studies.differences import MeasureDifferences
from vcomp.studies.tables import components_table, side_by_side

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

__all__ = ["MeasureComparison"]

_MORE_IS_WORSE = ("n_", "rel_", "abs_")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MeasureComparison:
    """The same G-study and D-study of several measures.

    Attributes
    ----------
    results : the fit of each measure, by name
    studies : its D-study
    labels : the columns that tell it from others, empty where it has its name only
    failures : measures that could not be fitted, with the reason
    target : of the coefficients in required sizes
    facet : whose size is required, as it was given
    alpha : intervals have confidence 1 − alpha

    Examples
    --------
    >>> import vcomp
    >>> compared = vcomp.compare_measures(
    ...     vcomp.datasets.load("docsearch"), "score ~ (1|sys) + (1|topic)", by="query", topic=50
    ... )
    >>> compared
    <MeasureComparison: keywords, sentence>
    >>> compared.table[["query", "topic", "Phi", "Phi_low", "Phi_high"]].round(3)
          query  topic    Phi  Phi_low  Phi_high
    0  keywords     50  0.613     0.50     0.729
    1  sentence     50  0.752     0.66     0.836
    """

    results: Mapping[str, VarianceComponentsResults]
    studies: Mapping[str, DStudy]
    labels: Mapping[str, Mapping[str, Any]]
    failures: Mapping[str, str]
    target: float
    facet: str | None
    alpha: float

    @property
    def table(self) -> pd.DataFrame:
        """A row a measure and plan.

        ``measure`` and the columns that it is told by; ``nobs``; the sizes of the plan; the shares
        of the components, ``share(sys)``, negative ones as zero; all columns of
        :attr:`DStudy.table`; the required size of ``facet`` as ``n_Erho2`` and ``n_Phi``, each
        with the ends ``_low`` and ``_high`` of its interval. The last are there where it is known
        whose size is required.
        """
        return side_by_side(self)

    @property
    def components(self) -> pd.DataFrame:
        """A row a measure and component: estimate, se, ci_low, ci_high and percent."""
        return components_table(self)

    def ranking(self, by: str = "Erho2") -> pd.DataFrame:
        """Return the rows of :attr:`table`, the best measure first.

        Parameters
        ----------
        by : a column: coefficients from the highest on, required sizes and error variances from
            the lowest on

        Raises
        ------
        PlanError
            If there is no such column of numbers.
        """
        table = self.table
        known = [c for c in table.columns if table[c].dtype.kind in "fi"]
        if by not in known:
            raise PlanError(
                f"{by!r} is no column of numbers{did_you_mean(by, known)}; there are "
                f"{', '.join(map(repr, known))}"
            )
        up = by.startswith(_MORE_IS_WORSE)
        return table.sort_values(by, ascending=up, kind="stable", ignore_index=True)

    def differences(
        self,
        coefficient: str = "Erho2",
        *,
        method: str = "mover",
        shared: str | Sequence[str] = "auto",
        n: int = 1000,
        rng: int | np.random.Generator | None = None,
        workers: int = 1,
        progress: bool | None = None,
    ) -> MeasureDifferences:
        """Return the differences of a coefficient between all pairs of measures.

        Measures of the same systems and topics are alike in what these happen to be, so that their
        difference is better known than two intervals side by side suggest. In 420 simulated data
        sets of 20 systems and 30 topics, effects of two measures correlated by .8, 95 % intervals
        of the difference held it in 93 % (Eρ²) and 95 % (Φ); as if the measures were independent,
        in 99 %. Like the intervals that it starts from, ``"mover"`` supposes normal effects, the
        bootstrap does not; scores with heavy tails have wider intervals by it.

        Parameters
        ----------
        coefficient : ``"Erho2"`` or ``"Phi"``
        method : ``"mover"`` combines the intervals of both measures, with the correlation of their
            estimates from a jackknife: every level of a facet is left out of all measures at once.
            ``"bootstrap"``: percentiles of differences, all levels of the facets drawn again
            jointly; the measures then need the same levels
        shared : facets whose levels of one name are the same in all measures; ``"auto"`` takes all
            that have names in common. With an empty list all measures are independent
        n, rng : number and seed of bootstrap replicates
        workers : threads
        progress : whether to show bars; None for where stderr is a terminal

        Returns
        -------
        MeasureDifferences

        Raises
        ------
        PlanError
            If the coefficient or method is not known, or measures have not the same plans.
        EstimationError
            If a facet is not there, or the measures do not have the same levels, as the bootstrap
            needs.
        DataError
            If a result was loaded without its rows.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> data["square"] = data["score"] ** 2
        >>> compared = vcomp.compare_measures(
        ...     data, "~ (1|sys) + (1|topic)", responses=["score", "square"], method="anova"
        ... )
        >>> found = compared.differences("Phi").table
        >>> found[["first", "second", "topic", "difference", "correlation"]].round(3)
           first  second  topic  difference  correlation
        0  score  square      3       -0.04        0.996
        """
        from vcomp.studies.pairs import differences

        return differences(self, coefficient, method, shared, n, rng, workers, progress)

    def required_ratios(
        self,
        coefficient: str = "Erho2",
        *,
        shared: str | Sequence[str] = "auto",
        workers: int = 1,
        progress: bool | None = None,
    ) -> MeasureDifferences:
        """Return how many times as many levels one measure needs as another for the target.

        Parameters
        ----------
        coefficient : ``"Erho2"`` or ``"Phi"``
        shared, workers, progress : as for :meth:`differences`, whose method ``"mover"`` it has, on
            the logarithms of the sizes

        Raises
        ------
        PlanError
            If the coefficient is not known, or not whose size is required.
        """
        from vcomp.studies.pairs import required_ratios

        return required_ratios(self, coefficient, shared, workers, progress)

    def best(
        self,
        cost: Any,
        *,
        budget: float | None = None,
        target: float | None = None,
        coefficient: str = "Erho2",
        **options: Any,
    ) -> pd.DataFrame:
        """Return the best design of every measure for a budget, or the cheapest for a target.

        The measures compare by what can be had of each for the same money, best first; every one
        has sizes of its own.

        Parameters
        ----------
        cost : as for :meth:`DStudy.optimize`; or a mapping of the names of the measures to their
            costs, where judgements for one take more than those for another
        budget, target, coefficient, **options : as for :meth:`DStudy.optimize`, which also gives
            more of one measure: ``compared.studies["AP"].optimize(...)``

        Returns
        -------
        pandas.DataFrame
            with the columns ``measure``, ``design``, the sizes, ``cost``, ``universe_var``,
            ``rel_err_var``, ``abs_err_var``, ``Erho2``, ``Phi`` and the interval of the
            coefficient; and ``reason`` where there is no such design

        Raises
        ------
        PlanError
            If there is no such design for any measure, or an argument does not fit.

        References
        ----------
        Bodoff and Li (2007), SIGIR, section 4: "compares the reliability that can be achieved with
        each, for a fixed budget".

        Examples
        --------
        >>> import vcomp
        >>> compared = vcomp.compare_measures(
        ...     vcomp.datasets.load("docsearch"), "score ~ (1|sys) + (1|topic)", by="query"
        ... )
        >>> price = {"keywords": "2*topic", "sentence": "5*topic"}
        >>> compared.best(price, budget=600)[["measure", "topic", "cost", "Erho2"]].round(3)
            measure  topic   cost  Erho2
        0  keywords    300  600.0  0.966
        1  sentence    120  600.0  0.950
        """
        from vcomp.studies.budget import best_for_each

        return best_for_each(self, cost, budget, target, coefficient, options)

    def summary(self) -> Any:
        """Return a printable summary: the measures side by side, with intervals.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        from vcomp.studies.comparison_summary import summary

        return summary(self)

    def plot(
        self,
        kind: str = "dots",
        *,
        coefficient: str | Sequence[str] = ("Erho2", "Phi"),
        x: str | None = None,
        plan: int = 0,
        ax: Any | None = None,
    ) -> Any:
        """Draw the measures side by side.

        Parameters
        ----------
        kind : ``"dots"``: coefficients of one plan with their intervals; ``"curves"``: one
            coefficient over the size of a facet, a line a measure, with intervals at planned sizes
        coefficient : ``"Erho2"``, ``"Phi"`` or both; curves take the first
        x : the facet of curves; may be None where only one has a size
        plan : which row of the plans the dots are of
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            If the kind, coefficient, facet or plan is not one that can be, or there are more lines
            than can be told apart.
        VcompError
            If matplotlib is not installed.
        """
        from vcomp.studies.comparison_picture import draw

        return draw(self, kind, coefficient, x, plan, ax)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        return f"<MeasureComparison: {', '.join(self.results)}>"

    def _repr_html_(self) -> str:
        return str(self.summary().as_html())
