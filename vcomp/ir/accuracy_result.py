"""Result of an accuracy study: measures for tests of several sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import Polynomial

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_alpha, check_known, is_real
from vcomp.gtheory import DStudy, Requirement
from vcomp.ir.accuracy_estimators import (
    MOST_TOPICS,
    ByDStudy,
    ByHalves,
    ByItself,
    ByPairs,
    ByPower,
    BySubsets,
    Estimated,
    MeasureEstimator,
    smallest_size,
)
from vcomp.ir.agreement import Measure, check_sizes, whole
from vcomp.ir.splitting import SplitHalfStudy

if TYPE_CHECKING:
    import pandas as pd

_OF_RANKS = ("tau", "tau_ap")
"""Measures that have several estimators."""

_POINTS = 40
"""Points of a plotted line."""

_DEGREE = 5
"""Degree of the polynomial in log n that smooths plotted ends of simulated intervals."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Accuracy(display.Printed):
    """Measures of the accuracy of tests, made by :func:`vcomp.ir.accuracy` and ``res.accuracy``.

    Attributes
    ----------
    measures : by their names in tables
    estimators : of each of them
    requested : (m,) sizes of tests in :attr:`table`
    values : estimates and intervals of each measure at these sizes
    alpha : intervals have confidence 1 − alpha
    facets : the facet that is ranked and the facet that is sampled, ``("system", "topic")``
    counts : how many of each there are
    notes : further remarks, printed by :meth:`summary`

    Examples
    --------
    >>> import vcomp
    >>> scores = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    >>> accuracy = vcomp.fit("score ~ (1|sys) + (1|topic)", scores).accuracy(topic=[50, 100])
    >>> accuracy
    <Accuracy: tau, tau_ap, Erho2, Phi, rmse of 44 sys on 50 to 100 topic>
    >>> accuracy.table.query("n == 50")[["measure", "n", "estimator"]].tail(3)
      measure   n estimator
    4   Erho2  50   D-study
    6     Phi  50   D-study
    8    rmse  50   D-study
    """

    measures: Mapping[str, Measure]
    estimators: Mapping[str, MeasureEstimator]
    requested: FloatArray
    values: Mapping[str, Estimated]
    alpha: float
    facets: tuple[str, str]
    counts: tuple[int, int]
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """One row per measure and size of test.

        ``measure``; ``n`` topics; ``estimate``; ``low`` and ``high``, its interval, nan where
        there is none; and ``estimator``: see :func:`vcomp.ir.accuracy`.
        """
        import pandas as pd

        return pd.concat([self._rows(n, self.requested) for n in self.measures], ignore_index=True)

    @property
    def dstudy(self) -> DStudy | None:
        """D-study behind Eρ², Φ, ε and F; None if none of these was requested."""
        studies = [e.study for e in self.estimators.values() if isinstance(e, ByDStudy | ByPower)]
        return studies[0] if studies else None

    @property
    def split_half(self) -> SplitHalfStudy | None:
        """Split halves behind extrapolated measures; None if no measure was extrapolated."""
        studies = [e.study for e in self.estimators.values() if isinstance(e, ByHalves)]
        return studies[0] if studies else None

    def predict(
        self, n_topics: float | Iterable[float], *, alpha: float | None = None
    ) -> pd.DataFrame:
        """Return :attr:`table` for tests of other sizes.

        Parameters
        ----------
        n_topics : one or more numbers of topics
        alpha : intervals have confidence 1 − alpha; as it was given if None

        Raises
        ------
        PlanError
            If a number of topics is not positive (for the F test, not more than one), or alpha not
            between 0 and 1.
        """
        import pandas as pd

        n, level = check_sizes(n_topics), self.alpha if alpha is None else alpha
        check_alpha(level)
        return pd.concat([self._rows(m, n, level) for m in self.measures], ignore_index=True)

    def required(self, measure: str, goal: float) -> Requirement:
        """Return the smallest number of topics at which a measure reaches a goal.

        Parameters
        ----------
        measure : its name in :attr:`measures`
        goal : the value to reach; of an error, not to exceed

        Returns
        -------
        Requirement
            ``print`` it. ``n`` is infinite where no number of topics up to 2³⁰ suffices, and
            ``why`` says so. Eρ² and Φ have the interval of :meth:`DStudy.required`, others none

        Raises
        ------
        PlanError
            If the measure was not estimated, has no estimate, or is counted on random subsets of
            the topics, or if the goal is not one of its values.

        References
        ----------
        Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 4.3: the
        expectations of τ and τ_AP.

        Examples
        --------
        >>> import vcomp
        >>> scores = vcomp.datasets.load("docsearch").query("query == 'keywords'")
        >>> accuracy = vcomp.ir.accuracy(scores, ["tau", "Erho2"], [50, 100], system="sys")
        >>> print(accuracy.required("tau", 0.9))
        For τ = 0.9, 454 topics are needed.
        """
        self._check_known([measure])
        estimator, kind = self.estimators[measure], self.measures[measure]
        low, high = kind.limits
        if not is_real(goal) or not low < goal < high:
            values = "above 0" if np.isinf(high) else f"between {low:g} and {high:g}"
            raise PlanError(f"the goal of {measure} must be {values}, not {goal!r}")
        sampled, symbol = self.facets[1], self.symbol(measure)
        if isinstance(estimator, ByDStudy) and estimator.quantity in ("Erho2", "Phi"):
            study = replace(estimator.study, alpha=self.alpha)
            return study.required(goal, estimator.quantity, sampled)
        n, last = smallest_size(estimator, float(goal), kind, self.alpha)
        why = ""
        if np.isinf(n):
            most = f"{MOST_TOPICS:,} {display.levels_of(sampled)}"
            why = f"with {most} it is {display.coefficient(last)}."
        ends = (np.nan, np.nan)
        return Requirement(symbol, float(goal), sampled, n, *ends, self.alpha, why=why)

    def summary(self) -> Any:
        """Return a printable summary: every measure at every size, with its estimator.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        sampled = self.facets[1]
        n_ranked, n_sampled = map(display.counted, self.counts, self.facets)
        rows, stubs = [], []
        for name, found in self.values.items():
            cells = _cells(found, bounded=bool(np.isfinite(self.measures[name].limits).all()))
            for place, (n, cell) in enumerate(zip(self.requested, cells, strict=True)):
                first = place == 0
                stubs.append(self.symbol(name) if first else "")
                label = self.estimators[name].label if first else ""
                rows.append([display.count(n), *cell, label])
        table = display.simple_table(
            rows,
            [sampled, "estimate", f"{display.level(self.alpha)} interval", "estimator"],
            title=f"Accuracy of tests of n {display.levels_of(sampled)}, estimated from "
            f"{n_ranked} × {n_sampled}",
            stubs=stubs,
            align="rrrl",
        )
        return display.summary([table], _notes(self))

    def plot(
        self,
        measures: str | Iterable[str] | None = None,
        *,
        ax: Any | None = None,
    ) -> list[Any]:
        """Draw accuracy over the number of topics, with intervals as bands.

        Rank correlations have few values, and the ends of their intervals go in steps: bands
        follow them smoothly, and may differ by a step from those of :attr:`table`.

        Measures that have the same limits and improve in the same direction share a panel; each
        measure in units of the scores has its own.

        Parameters
        ----------
        measures : names in :attr:`measures`; all of them if None
        ax : matplotlib axes, one a panel; those of a new figure if None

        Returns
        -------
        list of matplotlib.axes.Axes

        Raises
        ------
        DataError
            If there are more or fewer axes than panels.
        PlanError
            If a measure was not estimated, or no measure has an estimate.
        VcompError
            If matplotlib is not installed.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> import vcomp
        >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
        >>> accuracy = vcomp.ir.accuracy(scores, ["tau", "Phi"], [5, 10, 20])
        >>> (ax,) = accuracy.plot(ax=Figure().subplots())
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['τ (shrunken)', 'Φ']
        """
        from vcomp import plots

        chosen = self._chosen(measures)
        rows = self.table
        shown = {name: self._label(name) for name in chosen}
        return plots.accuracies(
            rows[rows["measure"].isin(chosen)],
            self._curves(chosen),
            _panels({name: self.measures[name] for name in chosen}, shown),
            labels=shown,
            xlabel=self.facets[1],
            seen=float(self.counts[1]),
            alpha=self.alpha,
            ax=ax,
        )

    def symbol(self, name: str) -> str:
        """Return the symbol of a measure, or its name with options if several have that symbol.

        Parameters
        ----------
        name : of a measure
        """
        measure = self.measures[name]
        return measure.symbol if name == measure.name else name

    def _label(self, name: str) -> str:
        """Return the symbol of a measure in plots; for τ and τ_AP with the estimator."""
        estimator = self.estimators[name]
        if isinstance(estimator, ByPairs | ByHalves) and self.measures[name].name in _OF_RANKS:
            return f"{self.symbol(name)} ({estimator.label})"
        return self.symbol(name)

    def _chosen(self, measures: str | Iterable[str] | None) -> list[str]:
        names = [measures] if isinstance(measures, str) else measures
        chosen = list(self.measures) if names is None else list(dict.fromkeys(names))
        self._check_known(chosen)
        drawn = [name for name in chosen if not np.isnan(self.values[name].estimate).all()]
        if not drawn:
            raise PlanError("there is nothing to draw: no measure has an estimate")
        return drawn

    def _check_known(self, names: Iterable[str]) -> None:
        """Refuse measures that were not estimated."""
        for name in names:
            check_known(name, self.measures, "{} was not estimated; there are", quoted=True)

    def _curves(self, chosen: list[str]) -> pd.DataFrame:
        """Return the measures at sizes dense enough for smooth lines."""
        import pandas as pd

        low, high = float(self.requested.min()), float(self.requested.max())
        if low == high:
            low, high = min(low, max(2.0, low / 4.0)), 2.0 * high
        fine = np.union1d(np.geomspace(low, high, _POINTS), self.requested)
        few = np.sort(self.requested)
        return pd.concat(
            [self._rows(m, few) if self._is_slow(m) else self._line(m, fine) for m in chosen]
        )

    def _line(self, name: str, n: FloatArray) -> pd.DataFrame:
        """Return a measure at many sizes, with ends of simulated intervals smoothed.

        A rank correlation takes few values, so its simulated quantiles are step functions.
        """
        rows = self._rows(name, n)
        is_simulated = isinstance(self.estimators[name], ByPairs)
        if is_simulated and self.measures[name].name in _OF_RANKS and n.size > 2 * _DEGREE:
            for end in ("low", "high"):
                values = rows[end].to_numpy(dtype=float)
                if np.isfinite(values).all():
                    rows[end] = Polynomial.fit(np.log(n), values, _DEGREE)(np.log(n))
        return rows

    def _is_slow(self, name: str) -> bool:
        """Whether each plotted point needs a maximisation, or tests on many subsets."""
        estimator = self.estimators[name]
        if isinstance(estimator, BySubsets):
            return True
        if not isinstance(estimator, ByDStudy | ByPower):
            return False
        return estimator.study.source.interval == "profile"

    def _rows(self, name: str, n: FloatArray, alpha: float | None = None) -> pd.DataFrame:
        """Return the rows of a measure in :attr:`table`, stored for the requested sizes."""
        import pandas as pd

        estimator = self.estimators[name]
        is_stored = alpha is None and np.array_equal(n, self.requested)
        level = self.alpha if alpha is None else alpha
        found = self.values[name] if is_stored else estimator.at(n, level)
        columns = {"estimate": found.estimate, "low": found.low, "high": found.high}
        return pd.DataFrame(
            {"measure": name, "n": whole(n), **columns, "estimator": estimator.label}
        )

    def __repr__(self) -> str:
        ends = [display.count(n) for n in np.unique([self.requested.min(), self.requested.max()])]
        ranked, sampled = self.facets
        return (
            f"<Accuracy: {', '.join(self.measures)} of {display.count(self.counts[0])} {ranked} "
            f"on {' to '.join(ends)} {sampled}>"
        )


def _panels(measures: Mapping[str, Measure], labels: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the measures of each panel by its y label."""
    panels: dict[str, list[str]] = {}
    for name, measure in measures.items():
        if np.isinf(measure.limits).any():
            panels.setdefault(f"{labels[name]}  (less is better)", []).append(name)
        elif measure.larger_is_better:
            panels.setdefault("accuracy  (more is better)", []).append(name)
        else:
            panels.setdefault("error  (less is better)", []).append(name)
    return panels


def _cells(found: Estimated, *, bounded: bool) -> list[tuple[str, str]]:
    """Format estimates and intervals: fixed decimals if bounded, else significant digits."""
    ends = list(zip(found.low.tolist(), found.high.tolist(), strict=True))
    if bounded:
        values = [display.coefficient(v) for v in found.estimate]
        return list(
            zip(values, [display.coefficient_interval(*pair) for pair in ends], strict=True)
        )
    intervals = ["" if np.isnan(pair).any() else display.short_interval(*pair) for pair in ends]
    return list(zip(display.fixed(found.estimate, significant=3), intervals, strict=True))


def _notes(accuracy: Accuracy) -> list[str]:
    """Return notes on estimators, on their intervals, and on estimates that are missing."""
    notes, by_kind = [], _by_kind(accuracy)
    ranked, sampled = map(display.levels_of, accuracy.facets)
    if ByPairs in by_kind:
        notes.append(f"{by_kind[ByPairs]}: {_of_pairs(accuracy)}")
    if ByDStudy in by_kind:
        notes.append(f"{by_kind[ByDStudy]}: from variance components, with their uncertainty.")
    if ByPower in by_kind:
        notes.append(
            f"{by_kind[ByPower]}: power of the F test, with the uncertainty of its error variance."
        )
    if ByHalves in by_kind:
        notes.append(_of_halves(accuracy, by_kind[ByHalves]))
    if BySubsets in by_kind:
        notes.append(
            f"{by_kind[BySubsets]}: measured on random subsets of the {sampled} as far as these "
            "go, and carried on by the noncentral t with the components; the intervals are of the "
            f"expected value for these {ranked}, by a jackknife over groups of {sampled}."
        )
    if ByItself in by_kind:
        notes.append(f"{by_kind[ByItself]}: there is no interval.")
    return [*notes, *_empty(accuracy), *_problems(accuracy), *accuracy.notes]


_EMPTY = 0.99
"""Share of a measure's range; longer intervals carry no information."""


def _empty(accuracy: Accuracy) -> list[str]:
    """Return a note on intervals that span almost the whole range of their measure."""
    symbols = []
    for name, found in accuracy.values.items():
        lowest, highest = accuracy.measures[name].limits
        if np.isfinite([lowest, highest]).all():
            wide = found.high - found.low > _EMPTY * (highest - lowest)
            if bool(np.any(wide)):
                symbols.append(accuracy.symbol(name))
    if not symbols:
        return []
    listed = ", ".join(symbols)
    return [f"{listed}: an interval over the whole range of a measure carries no information."]


def _by_kind(accuracy: Accuracy) -> dict[type, str]:
    names: dict[type, list[str]] = {}
    for name, estimator in accuracy.estimators.items():
        names.setdefault(type(estimator), []).append(accuracy.symbol(name))
    return {kind: ", ".join(symbols) for kind, symbols in names.items()}


def _of_pairs(accuracy: Accuracy) -> str:
    used = {e.estimator for e in accuracy.estimators.values() if isinstance(e, ByPairs)}
    note = "expected correlation of the ranking by such a test with the true one"
    if "shrunken" in used:
        note += "; the intervals are of the correlation of one test (estimator shrunken)"
    if "urbano" in used:
        note += (
            "; as published, with intervals for independent swaps, which are too short (estimator "
            "urbano)"
        )
    return f"{note}."


def _of_halves(accuracy: Accuracy, symbols: str) -> str:
    study = accuracy.split_half
    assert study is not None
    sizes = study.sizes
    largest = display.counted(sizes[-1], accuracy.facets[1])
    note = (
        f"{symbols}: accuracy of halves of {sizes[0]} to {largest} against other halves, by a "
        f"curve; the intervals hold {display.level(accuracy.alpha)} of splits."
    )
    if accuracy.requested.max() > sizes[-1]:
        note += " Beyond, curves are extrapolated, which is known to be biased."
    return note


def _problems(accuracy: Accuracy) -> list[str]:
    """Return notes with the reasons for missing estimates."""
    notes = []
    for name, estimator in accuracy.estimators.items():
        if not isinstance(estimator, ByHalves) or estimator.problem is None:
            continue
        measure, symbol = accuracy.measures[name], accuracy.symbol(name)
        if bool(estimator.study.frame[estimator.name].isna().all()):
            notes.append(f"{symbol} has no value for any of the halves: {measure.undefined}.")
        else:
            notes.append(f"{symbol} has no estimate: {estimator.problem}.")
    return notes
