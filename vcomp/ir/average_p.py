"""Average p-values by size of difference and number of topics (Bodoff, 2008, fig. 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, guarded
from vcomp.ir.agreement import check_sizes, whole
from vcomp.ir.pair_forecast import PairForecast, PairTest, Sides, check_test, compare_pairs
from vcomp.ir.scores import ScoresLike, as_score_matrix, complete
from vcomp.ir.significance import bin_bounds, sums_by_bin
from vcomp.ir.splits import draw_subsets, usual_subsets
from vcomp.numerics import check_count, run, seed_from

if TYPE_CHECKING:
    import pandas as pd

_BINS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.10, np.inf)
_SIZES = 10


@dataclass(frozen=True, eq=False, repr=False)
class AveragePValues(display.Printed):
    """Average p-values by size of difference and number of topics, made by ``average_p_values``.

    Attributes
    ----------
    sizes : (m,) numbers of topics
    bounds : (b + 1,) of the bins of differences
    n_pairs : (m, b) pairs in each bin, of all subsets; nan beyond the collection
    values : (m, b) average p-values; nan where no pair is in the bin
    trials : subsets of each size
    n_topics, n_systems : of the collection
    test, sides : of the tests

    Examples
    --------
    >>> from vcomp.ir import average_p_values
    >>> scores = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4
    >>> average_p_values(scores, [10, 30, 60], bins=[0, 0.5, 1, 3])
    <AveragePValues: two-sided t-tests of 8 systems on 10 to 60 topics, 3 bins of differences>
    """

    sizes: FloatArray
    bounds: FloatArray
    n_pairs: FloatArray
    values: FloatArray
    trials: int
    n_topics: int
    n_systems: int
    test: PairTest
    sides: Sides

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per number of topics and bin.

        ``n`` topics; ``low`` and ``high``, bounds of the bin; ``n_pairs``, pairs in it over all
        subsets, nan for forecasts; ``p_value``; and ``source``, ``"subsets"``, ``"all topics"`` or
        ``"noncentral t"``.
        """
        import pandas as pd

        b = self.bounds.size - 1
        return pd.DataFrame(
            {
                "n": np.repeat(whole(self.sizes), b),
                "low": np.tile(self.bounds[:-1], self.sizes.size),
                "high": np.tile(self.bounds[1:], self.sizes.size),
                "n_pairs": self.n_pairs.ravel(),
                "p_value": self.values.ravel(),
                "source": np.repeat([self._source(n) for n in self.sizes], b),
            }
        )

    def summary(self) -> Any:
        """Return a printable summary: a row per bin of differences, a column per size.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        rows = [[display.coefficient(p) for p in row] for row in self.values.T]
        table = display.simple_table(
            rows,
            [display.count(n) for n in self.sizes],
            title=f"Average p-value by difference and topics, {self.n_systems:,} systems",
            stubs=self.labels,
        )
        notes = [
            (
                f"{self._kind()}. Up to {self.n_topics - 1} topics means of random subsets "
                f"({display.count(self.trials)} of each size); {self.n_topics} are all topics."
            )
        ]
        if self.sizes.max() > self.n_topics:
            notes.append(f"Beyond {self.n_topics} topics by the noncentral t with the components.")
        return display.summary([table], notes)

    @property
    def labels(self) -> list[str]:
        """Labels of the bins."""
        ends = [display.number(b) for b in self.bounds]
        return [
            f"≥ {low}" if high == np.inf else f"{low} – {upper}"
            for low, upper, high in zip(ends[:-1], ends[1:], self.bounds[1:], strict=True)
        ]

    def plot(self, *, ax: Any | None = None) -> Any:
        """Draw the average p-value over the number of topics, a line for each bin.

        Figure 1 of Bodoff (2008). Beyond the collection lines are dashed.

        Parameters
        ----------
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        VcompError
            If matplotlib is not installed.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> from vcomp.ir import average_p_values
        >>> scores = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4
        >>> found = average_p_values(scores, bins=[0, 0.5, 1, 3], trials=5)
        >>> found.plot(ax=Figure().subplots()).get_ylabel()
        'average p-value'
        """
        from vcomp import plots

        lines = dict(zip(self.labels, self.values.T, strict=True))
        return plots.p_value_lines(self.sizes, lines, seen=float(self.n_topics), ax=ax)

    def _source(self, n: float) -> str:
        if n > self.n_topics:
            return "noncentral t"
        return "all topics" if n == self.n_topics else "subsets"

    def _kind(self) -> str:
        sides = "two-sided" if self.sides == 2 else "one-sided"
        return f"{sides.capitalize()} {_NAMES[self.test]}"

    def __repr__(self) -> str:
        ends = f"{display.count(self.sizes[0])} to {display.count(self.sizes[-1])}"
        kind = self._kind()[0].lower() + self._kind()[1:]
        return (
            f"<AveragePValues: {kind} of {self.n_systems:,} systems on {ends} topics, "
            f"{self.bounds.size - 1} bins of differences>"
        )


_NAMES: dict[PairTest, str] = {"t": "t-tests", "wilcoxon": "signed-rank tests"}


@guarded
def average_p_values(
    scores: ScoresLike,
    n_topics: float | Iterable[float] | None = None,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    bins: Iterable[float] = _BINS,
    test: PairTest = "t",
    sides: Sides = 2,
    trials: int | None = None,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> AveragePValues:
    """Return the average p-value of differences between systems, by their size and the topics.

    On random subsets of n topics every two systems are tested, and the mean p-value is taken over
    all pairs whose mean scores differ by some amount on these topics. Unlike a swap rate it needs
    no second set of topics, so that it is measured up to the whole collection (Bodoff and Li,
    2007, sec. 1 and fig. 1, p. 368; Bodoff, 2008, sec. 1.2 and fig. 1).

    Parameters
    ----------
    scores : long table with its columns named, :class:`ScoreMatrix`, or topic × system matrix,
        **one row per topic and one column per system**
    n_topics : numbers of topics, from 2 on; ten from 5 to all topics if None. Beyond the
        collection, the value of all topics is carried on by the noncentral t
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
    bins : bounds of the bins of differences, increasing, in the units of the scores; a difference
        on a bound is in the upper bin. By default points up to 0.06, then 0.08, 0.10 and infinity
    test : ``"t"`` for paired t-tests, as in the figures, or ``"wilcoxon"`` for signed ranks
    sides : 2 for two-sided p-values, or 1 for those of the alternative that the system with the
        larger mean is better
    trials : subsets of each size; 100 if None, or fewer if there are many systems
    rng : seed, or a generator that one is drawn from once; 0 if not given
    workers : threads; the numbers are the same for any number of them
    progress : whether to show a bar; None for one where stderr is a terminal

    Returns
    -------
    AveragePValues
        with ``table``, ``summary()`` and ``plot()``

    Raises
    ------
    DataError
        If `scores` cannot be read, a score is missing, or there are fewer than two topics.
    PlanError
        If `bins`, `test` or `sides` cannot be, a number of topics is less than 2, or one within
        the collection is not whole.
    EstimationError
        If `trials` or `workers` is not a whole number of at least 1, or `rng` is neither a seed
        nor a generator.

    Notes
    -----
    Beyond the collection, the true standardised differences of the pairs come from a normal
    distribution with variance σ²(s)/σ²(st), given their observed t. The average p-value is that of
    all topics times the ratio of what this makes expect of n' and of n topics (eq. 15.13 of the
    mathematics); where all topics have no pair in the bin, it is what it makes expect.

    References
    ----------
    Bodoff, D. and Li, P. (2007). Test theory for assessing IR test collections. *Proc. ACM SIGIR*,
    367-374.

    Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
    Processing and Management*, 44(3), 1117-1145.

    Examples
    --------
    >>> from vcomp.ir import average_p_values
    >>> scores = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4
    >>> found = average_p_values(scores, [10, 30, 60], bins=[0, 0.5, 1, 3])
    >>> found.table.query("n > 10")[["n", "low", "p_value", "source"]].round(3)
        n  low  p_value        source
    3  30  0.0    0.395    all topics
    4  30  0.5    0.009    all topics
    5  30  1.0    0.000    all topics
    6  60  0.0    0.284  noncentral t
    7  60  0.5    0.001  noncentral t
    8  60  1.0    0.000  noncentral t
    """
    X = complete(as_score_matrix(scores, system=system, topic=topic, score=score))
    check_test(test, sides)
    bounds = bin_bounds(bins)
    n = _sizes(n_topics, len(X))
    each = usual_subsets(X.shape[1]) if trials is None else check_count(trials, "trials")
    seed = seed_from(rng)
    beyond = n[n > len(X)]
    within = [int(m) for m in n[n <= len(X)]]
    measured = [*within, len(X)] if beyond.size else within

    def work(place: int) -> FloatArray:
        m = measured[place]
        if m == len(X):
            return _sums(X, bounds, test, sides)
        subsets = draw_subsets(len(X), m, each, seed)
        each_set = [_sums(X[one], bounds, test, sides) for one in subsets]
        return np.asarray(np.sum(each_set, axis=0))

    jobs = range(len(measured))
    done = run(
        lambda: work,
        jobs,
        workers=check_count(workers, "workers"),
        progress=progress,
        label="sizes",
    )
    sums = np.stack([done[place] for place in jobs])
    seen = _ratio(sums[:, 1], sums[:, 0])
    counts, values = sums[: len(within), 0], seen[: len(within)]
    if beyond.size:
        values = np.concatenate([values, _carried(X, beyond, bounds, seen[-1], sides)])
        counts = np.concatenate([counts, np.full((beyond.size, bounds.size - 1), np.nan)])
    n_rows, k = X.shape
    return AveragePValues(n, bounds, counts, values, each, n_rows, k, test, sides)


def _sums(X: FloatArray, bounds: FloatArray, test: PairTest, sides: Sides) -> FloatArray:
    """Return the number of pairs in each bin, and the sum of their p-values, (2, b)."""
    tested = compare_pairs(X, test, sides)
    count = np.ones(tested.differences.size)
    return sums_by_bin(tested.differences, bounds, count, tested.p_values)


def _carried(
    X: FloatArray, n_topics: FloatArray, bounds: FloatArray, at_hand: FloatArray, sides: Sides
) -> FloatArray:
    """Return average p-values for sizes beyond the collection, (sizes, b)."""
    forecast = PairForecast.from_scores(X)

    def expected(n: float) -> FloatArray:
        share, _, p = forecast.by_difference(n, bounds)
        return np.asarray(_ratio(p, share) * sides / 2)

    now = expected(len(X))
    known = np.minimum(at_hand, now) > 0
    rows = [expected(float(n)) for n in n_topics]
    return np.stack([np.where(known, at_hand * _ratio(then, now), then) for then in rows])


def _ratio(sums: FloatArray, counts: FloatArray) -> FloatArray:
    none = np.full(np.shape(sums), np.nan)
    return np.asarray(np.divide(sums, counts, out=none, where=np.asarray(counts) > 0))


def _sizes(given: float | Iterable[float] | None, n_topics: int) -> FloatArray:
    """Return the distinct numbers of topics in ascending order."""
    if given is None:
        return np.unique(np.rint(np.linspace(min(5, n_topics), n_topics, _SIZES)))
    n = np.unique(check_sizes(given))
    for m in n:
        if m < 2 or (m <= n_topics and m != np.floor(m)):
            raise PlanError(
                f"tests need two topics or more, and subsets of {n_topics} topics have a whole "
                f"number, not {float(m)!r}"
            )
    return n
