"""How accurate tests of other sizes would be: a table of measures, each by its best estimator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_alpha, did_you_mean
from vcomp.gtheory import DStudy
from vcomp.ir.accuracy_estimators import (
    ByDStudy,
    ByHalves,
    ByItself,
    ByPairs,
    ByPower,
    Estimated,
    Estimator,
)
from vcomp.ir.curve import whole
from vcomp.ir.measures import Measure
from vcomp.ir.measures import sizes as check_sizes
from vcomp.ir.split_half_result import SplitHalfStudy

if TYPE_CHECKING:
    import pandas as pd

_POINTS = 40
"""Points of a curve: more cannot be seen."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Accuracy(display.Printed):
    """Measures of the accuracy of tests, made by :func:`vcomp.ir.accuracy` and ``res.accuracy``.

    Attributes
    ----------
    measures : what was estimated, by the name that tables have for it
    estimators : of each of them
    asked : (m,) sizes of tests in :attr:`table`
    values : of each measure at these sizes
    alpha : intervals have confidence 1 − alpha
    facets : what is ranked and what is sampled, ``("system", "topic")``
    counts : how many of each there are
    notes : what a reader should know of these numbers besides

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
    estimators: Mapping[str, Estimator]
    asked: FloatArray
    values: Mapping[str, Estimated]
    alpha: float
    facets: tuple[str, str]
    counts: tuple[int, int]
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """A row a measure and size of test.

        ``measure``; ``n`` topics; ``estimate``; ``low`` and ``high``, its interval, nan where
        there is none; and ``estimator``, what it comes from: see :func:`vcomp.ir.accuracy` for
        what each of them says.
        """
        import pandas as pd

        return pd.concat([self._rows(n, self.asked) for n in self.measures], ignore_index=True)

    @property
    def dstudy(self) -> DStudy | None:
        """The D-study that Eρ², Φ, ε or F come from; None where none of them was requested."""
        studies = [e.study for e in self.estimators.values() if isinstance(e, ByDStudy | ByPower)]
        return studies[0] if studies else None

    @property
    def split_half(self) -> SplitHalfStudy | None:
        """The halves that measures were extrapolated from; None where none was."""
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

    def summary(self) -> Any:
        """Return a printable summary: every measure at every size, and what it comes from.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        return summary(self)

    def plot(
        self, measures: str | Iterable[str] | None = None, *, axes: Any | None = None
    ) -> list[Any]:
        """Draw accuracy over the number of topics, with intervals as bands.

        Measures share a panel that lie between the same bounds and improve in the same direction;
        each that is in units of the scores has its own.

        Parameters
        ----------
        measures : names in :attr:`measures`; all of them if None
        axes : matplotlib axes to draw on, one a panel; those of a new figure if None

        Returns
        -------
        list of matplotlib.axes.Axes

        Raises
        ------
        PlanError
            If a measure is not there, nothing is left to draw, or there are not as many axes as
            panels.
        VcompError
            If matplotlib is not installed.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> import vcomp
        >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
        >>> accuracy = vcomp.ir.accuracy(scores, ["tau", "Phi"], [5, 10, 20])
        >>> (ax,) = accuracy.plot(axes=[Figure().subplots()])
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['τ', 'Φ']
        """
        from vcomp import plots

        chosen = self._chosen(measures)
        rows = self.table
        shown = {name: self.symbol(name) for name in chosen}
        return plots.accuracies(
            rows[rows["measure"].isin(chosen)],
            self._curves(chosen),
            _panels({name: self.measures[name] for name in chosen}, shown),
            labels=shown,
            xlabel=self.facets[1],
            seen=float(self.counts[1]),
            alpha=self.alpha,
            axes=axes,
        )

    def symbol(self, name: str) -> str:
        """Return how a measure is written: its symbol, its name and options where these differ.

        Parameters
        ----------
        name : of a measure
        """
        measure = self.measures[name]
        return measure.symbol if name == measure.name else name

    def _chosen(self, measures: str | Iterable[str] | None) -> list[str]:
        names = [measures] if isinstance(measures, str) else measures
        chosen = list(self.measures) if names is None else list(dict.fromkeys(names))
        for name in chosen:
            if name not in self.measures:
                raise PlanError(
                    f"{name!r} was not estimated{did_you_mean(name, self.measures)}; there are "
                    f"{', '.join(map(repr, self.measures))}"
                )
        drawn = [name for name in chosen if not np.isnan(self.values[name].estimate).all()]
        if not drawn:
            raise PlanError("there is nothing to draw: no measure has an estimate")
        return drawn

    def _curves(self, chosen: list[str]) -> pd.DataFrame:
        """Return the measures at so many sizes that their lines are smooth."""
        import pandas as pd

        low, high = float(self.asked.min()), float(self.asked.max())
        if low == high:
            low, high = min(low, max(2.0, low / 4.0)), 2.0 * high
        fine = np.union1d(np.geomspace(low, high, _POINTS), self.asked)
        parts = []
        for name in chosen:
            if self._is_slow(name):
                parts.append(self._rows(name, np.sort(self.asked)))
            else:
                parts.append(self._rows(name, fine))
        return pd.concat(parts, ignore_index=True)

    def _is_slow(self, name: str) -> bool:
        """Whether intervals take a maximisation each: then there are none between the sizes."""
        estimator = self.estimators[name]
        if not isinstance(estimator, ByDStudy | ByPower):
            return False
        return estimator.study.source.interval == "profile"

    def _rows(self, name: str, n: FloatArray, alpha: float | None = None) -> pd.DataFrame:
        """Return the rows of a measure in :attr:`table`; stored ones for the requested sizes."""
        import pandas as pd

        estimator = self.estimators[name]
        made = alpha is None and np.array_equal(n, self.asked)
        level = self.alpha if alpha is None else alpha
        found = self.values[name] if made else estimator.at(n, level)
        columns = {"estimate": found.estimate, "low": found.low, "high": found.high}
        return pd.DataFrame(
            {"measure": name, "n": whole(n), **columns, "estimator": estimator.label}
        )

    def __repr__(self) -> str:
        ends = [display.count(n) for n in np.unique([self.asked.min(), self.asked.max()])]
        ranked, sampled = self.facets
        return (
            f"<Accuracy: {', '.join(self.measures)} of {display.count(self.counts[0])} {ranked} "
            f"on {' to '.join(ends)} {sampled}>"
        )


def _panels(measures: Mapping[str, Measure], labels: Mapping[str, str]) -> dict[str, list[str]]:
    """Return what is drawn together, by the label of the vertical axis."""
    panels: dict[str, list[str]] = {}
    for name, measure in measures.items():
        if np.isinf(measure.limits).any():
            panels.setdefault(f"{labels[name]}  (less is better)", []).append(name)
        elif measure.larger_is_better:
            panels.setdefault("accuracy  (more is better)", []).append(name)
        else:
            panels.setdefault("error  (less is better)", []).append(name)
    return panels


def summary(accuracy: Accuracy) -> Any:
    """Return a summary: a row a measure and size of test.

    Parameters
    ----------
    accuracy : to print

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    ranked, sampled = accuracy.facets
    n_ranked, n_sampled = map(display.count, accuracy.counts)
    rows, stubs = [], []
    for name, found in accuracy.values.items():
        cells = _cells(found, bounded=bool(np.isfinite(accuracy.measures[name].limits).all()))
        for place, (n, cell) in enumerate(zip(accuracy.asked, cells, strict=True)):
            first = place == 0
            stubs.append(accuracy.symbol(name) if first else "")
            label = accuracy.estimators[name].label if first else ""
            rows.append([display.count(n), *cell, label])
    table = display.simple_table(
        rows,
        [sampled, "estimate", f"{display.level(accuracy.alpha)} interval", "estimator"],
        title=f"How near to the truth is a test of n {sampled}? "
        f"From {n_ranked} {ranked} × {n_sampled} {sampled}",
        stubs=stubs,
        align="rrrl",
    )
    return display.summary([table], _notes(accuracy))


def _cells(found: Estimated, *, bounded: bool) -> list[tuple[str, str]]:
    """Return estimates and intervals: of coefficients with decimals, of errors with digits."""
    ends = list(zip(found.low.tolist(), found.high.tolist(), strict=True))
    if bounded:
        values = [display.coefficient(v) for v in found.estimate]
        return list(
            zip(values, [display.coefficient_interval(*pair) for pair in ends], strict=True)
        )
    intervals = ["" if np.isnan(pair).any() else display.short_interval(*pair) for pair in ends]
    return list(zip(display.fixed(found.estimate, significant=3), intervals, strict=True))


def _notes(accuracy: Accuracy) -> list[str]:
    """Return what the estimators are, what their intervals hold, and what is missing."""
    notes, by_kind = [], _by_kind(accuracy)
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
    if ByItself in by_kind:
        notes.append(f"{by_kind[ByItself]}: there is no interval.")
    return [*notes, *_problems(accuracy), *accuracy.notes]


def _by_kind(accuracy: Accuracy) -> dict[type, str]:
    names: dict[type, list[str]] = {}
    for name, estimator in accuracy.estimators.items():
        names.setdefault(type(estimator), []).append(accuracy.symbol(name))
    return {kind: ", ".join(symbols) for kind, symbols in names.items()}


def _of_pairs(accuracy: Accuracy) -> str:
    pairs = next(e for e in accuracy.estimators.values() if isinstance(e, ByPairs))
    note = "expected correlation of the ranking by such a test with the true one; "
    if pairs.estimator == "urbano":
        return note + (
            "as published, with intervals for independent swaps, which are too short (estimator "
            "urbano)."
        )
    return note + "the intervals are of the correlation of one test (estimator shrunken)."


def _of_halves(accuracy: Accuracy, symbols: str) -> str:
    study = accuracy.split_half
    assert study is not None
    sizes = study.sizes
    note = (
        f"{symbols}: accuracy of halves of {sizes[0]} to {sizes[-1]} {accuracy.facets[1]} against "
        f"other halves, by a curve; the intervals hold {display.level(accuracy.alpha)} of splits."
    )
    if accuracy.asked.max() > sizes[-1]:
        note += " Beyond, curves are extrapolated, which is known to be biased."
    return note


def _problems(accuracy: Accuracy) -> list[str]:
    """Return why some measures have no estimate."""
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
