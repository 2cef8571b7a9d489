"""Accuracy of larger tests, extrapolated from halves of a collection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import (
    DataError,
    EstimationError,
    PlanError,
    VcompError,
    check_alpha,
    check_known,
    check_one_of,
    guarded,
    is_whole,
    warn,
)
from vcomp.ir.agreement import MeanMeasure, Measure, check_sizes, named, whole
from vcomp.ir.curve import COLUMNS, MODELS, AccuracyCurve, Model, fit_curves
from vcomp.ir.measures import several
from vcomp.ir.scores import ScoreMatrix, ScoresLike, as_score_matrix, complete
from vcomp.ir.splits import (
    FEWEST,
    TOGETHER,
    Halves,
    draw_halves,
    fewest,
    observed,
    published_sizes,
    published_trials,
    scale_of,
)
from vcomp.numerics import check_count, run, seed_from

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class SplitHalfStudy(display.Printed):
    """Accuracies of halves of a collection, and curves that extrapolate them to larger tests.

    Attributes
    ----------
    measures : by their names in tables
    halves : for each size the pairs of halves that were drawn
    values : (measures, sizes, trials) accuracies of halves; nan where a measure is not defined
    models : curves that were fitted
    curves : by measure and model, of those that could be fitted
    problems : by measure and model, why the others could not be fitted
    n_topics, n_systems : of the collection
    requested : (m,) sizes of tests in :attr:`table`
    alpha : intervals have confidence 1 − alpha

    Examples
    --------
    >>> from vcomp.ir import split_half
    >>> scores = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4
    >>> study = split_half(scores, "tau", [30, 60], rng=1)
    >>> study.curves["tau", "exp1"].params.round(2)
    array([-0.91, -0.47])
    """

    measures: Mapping[str, Measure]
    halves: tuple[Halves, ...]
    values: FloatArray
    models: tuple[Model, ...]
    curves: Mapping[tuple[str, Model], AccuracyCurve]
    problems: Mapping[tuple[str, Model], str]
    n_topics: int
    n_systems: int
    requested: FloatArray
    alpha: float = 0.05

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of topics of the halves."""
        return tuple(half.n_topics for half in self.halves)

    @property
    def trials(self) -> int:
        """Pairs of halves of each size."""
        return len(self.halves[0])

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The observations: one row per pair of halves: ``n``, ``trial`` and all measures."""
        import pandas as pd

        columns: dict[str, Any] = {
            "n": np.repeat(self.sizes, self.trials),
            "trial": np.tile(np.arange(self.trials), len(self.sizes)),
        }
        flat = self.values.reshape(len(self.measures), -1)
        return pd.DataFrame(columns | dict(zip(self.measures, flat, strict=True)))

    @cached_property
    def fits(self) -> pd.DataFrame:
        """One row per curve: ``measure``, ``model``, ``scale``, its parameters ``a`` and ``b``.

        Then their standard errors ``bse_a`` and ``bse_b``, the ``dispersion``, ``nobs``
        observations, ``n_missing`` that were not defined and ``n_zero`` without error that were
        left out. Curves that could not be fitted are left out; :attr:`problems` has the reasons.
        """
        import pandas as pd

        rows = []
        for (measure, model), curve in self.curves.items():
            a, b = curve.params
            bse_a, bse_b = np.sqrt(np.diag(curve.cov_params))
            rows.append((measure, model, curve.scale, a, b, bse_a, bse_b, curve.dispersion,
                         curve.nobs, curve.n_missing, curve.n_zero))  # fmt: skip
        return pd.DataFrame(
            rows,
            columns=["measure", "model", "scale", "a", "b", "bse_a", "bse_b", "dispersion", "nobs",
                     "n_missing", "n_zero"],
        )  # fmt: skip

    @cached_property
    def table(self) -> pd.DataFrame:
        """Expected accuracies of tests of the sizes that were requested; see :meth:`predict`."""
        return self.predict(self.requested)

    def predict(
        self, n_topics: float | Iterable[float], *, alpha: float | None = None
    ) -> pd.DataFrame:
        """Return the expected accuracies of tests of other sizes.

        Parameters
        ----------
        n_topics : one or more numbers of topics
        alpha : intervals have confidence 1 − alpha; as it was given if None

        Returns
        -------
        pandas.DataFrame
            One row per measure, model and number of topics, with columns ``measure``, ``model``,
            ``n``, ``estimate``, ``low`` and ``high``, ``obs_low`` and ``obs_high``: see
            :meth:`AccuracyCurve.predict` for the coverage of these intervals. nan
            where there is no curve; :attr:`problems` has the reason.

        Raises
        ------
        PlanError
            If `n_topics` is not positive, or `alpha` not between 0 and 1.
        """
        import pandas as pd

        n = check_sizes(n_topics)
        level = self.alpha if alpha is None else alpha
        check_alpha(level)
        pairs = [(measure, model) for measure in self.measures for model in self.models]
        unknown = dict.fromkeys(COLUMNS, np.full(n.size, np.nan))
        limits = [
            self.curves[pair].limits(n, level) if pair in self.curves else unknown
            for pair in pairs
        ]
        columns: dict[str, Any] = {
            "measure": np.repeat([measure for measure, _ in pairs], n.size),
            "model": np.repeat([model for _, model in pairs], n.size),
            "n": np.tile(whole(n), len(pairs)),
        }
        for name in COLUMNS:
            columns[name] = np.concatenate([by_name[name] for by_name in limits])
        return pd.DataFrame(columns)

    def summary(self) -> Any:
        """Return a printable summary: expected accuracies by each model, and how far they go.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        table = self.table
        rows, stubs = [], []
        for name in self.measures:
            for place, n in enumerate(self.requested):
                stubs.append(_symbol(self, name) if place == 0 else "")
                row = [display.count(n)]
                for model in self.models:
                    own = (table["measure"] == name) & (table["model"] == model)
                    mine = table[own].iloc[place]
                    interval = display.coefficient_interval(mine["obs_low"], mine["obs_high"])
                    row.append(f"{display.coefficient(mine['estimate'])} {interval}".rstrip())
                rows.append(row)
        title = (
            f"Accuracy extrapolated from halves of {display.count(self.n_topics)} topics, "
            f"{display.count(self.n_systems)} systems"
        )
        page = display.simple_table(rows, ["topics", *self.models], title=title, stubs=stubs)
        notes = [*_about(self), *_missing(self), *_left_out(self), *_not_fitted(self)]
        return display.summary([page], notes)

    def plot(self, measure: str | None = None, *, ax: Any | None = None) -> Any:
        """Draw the accuracies of halves and the curves through them, out to the largest test.

        Parameters
        ----------
        measure : one of :attr:`measures`; the first if None
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            If there is no such measure.
        VcompError
            If matplotlib is not installed.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> from vcomp.ir import split_half
        >>> scores = np.random.default_rng(1).normal(size=(30, 8)) + np.arange(8) / 4
        >>> ax = split_half(scores, "tau").plot(ax=Figure().subplots())
        >>> [line.get_label() for line in ax.get_legend().get_lines()]
        ['exp1', 'exp2', 'logit']
        """
        from vcomp import plots

        name = next(iter(self.measures)) if measure is None else measure
        check_known(name, self.measures, "{} was not measured; there are", quoted=True)
        largest = max(float(self.requested.max()), float(self.sizes[-1]))
        grid = np.geomspace(self.sizes[0], largest, 200)
        curves = self.predict(grid)
        return plots.accuracy_curves(
            self.frame[["n", name]].rename(columns={name: "accuracy"}),
            curves[curves["measure"] == name].dropna(subset=["estimate"]),
            label=self.measures[name].symbol,
            alpha=self.alpha,
            ax=ax,
        )

    def __repr__(self) -> str:
        n = self.sizes
        sizes = (
            f"{n[0]} topics"
            if len(n) == 1
            else f"each of {len(n)} sizes, from {n[0]} to {n[-1]} topics"
        )
        return f"<SplitHalfStudy: {', '.join(self.measures)} of {self.trials:,} splits of {sizes}>"


def fitted(
    matrix: ScoreMatrix,
    measures: Sequence[Measure],
    halves: tuple[Halves, ...],
    values: FloatArray,
    models: tuple[Model, ...],
    requested: FloatArray,
    alpha: float,
) -> SplitHalfStudy:
    """Return the study with curves fitted to the observations.

    Parameters
    ----------
    matrix : the collection
    measures, halves : what was measured, and of what
    values : (measures, sizes, trials) accuracies of the halves
    models : curves to fit
    requested : (m,) sizes of tests
    alpha : intervals have confidence 1 − alpha

    Warns
    -----
    VcompWarning
        If a curve cannot be fitted.
    """
    by_name = named(measures)
    n = [half.n_topics for half in halves]
    curves: dict[tuple[str, Model], AccuracyCurve] = {}
    problems: dict[tuple[str, Model], str] = {}
    for (name, measure), accuracies in zip(by_name.items(), values, strict=True):
        try:
            found, failed = fit_curves(n, accuracies, models, scale=scale_of(measure))
        except VcompError as error:
            problems |= {(name, model): str(error) for model in models}
            continue
        curves |= {(name, model): curve for model, curve in found.items()}
        problems |= {(name, model): str(error) for model, error in failed.items()}
    for name in dict.fromkeys(name for name, _ in problems):
        by_model = {model: problems[name, model] for model in models if (name, model) in problems}
        warn(f"{name} is not extrapolated by {', '.join(by_model)}: {_joined(by_model)}")
    return SplitHalfStudy(
        by_name, halves, values, models, curves, problems, matrix.n_topics, matrix.n_systems,
        requested, alpha,
    )  # fmt: skip


def _joined(reasons: Mapping[Model, str]) -> str:
    return "; ".join(dict.fromkeys(reasons.values()))


def _symbol(study: SplitHalfStudy, name: str) -> str:
    measure = study.measures[name]
    return measure.symbol if name == measure.name else name


def _about(study: SplitHalfStudy) -> list[str]:
    """Return notes on the splits, the intervals in brackets, and the largest observed size."""
    sizes, trials = study.sizes, display.count(study.trials)
    drawn = f"{trials} random splits into halves of {sizes[0]} topics."
    if len(sizes) > 1:
        drawn = (
            f"{trials} random splits of each of {len(sizes)} sizes, with halves of {sizes[0]} to "
            f"{sizes[-1]} topics."
        )
    inside = display.level(study.alpha)
    brackets = (
        f"In brackets: where {inside} of splits into tests of that size lie, by the fitted curve. "
        "Each test is compared with another test of its size, not with the true means."
    )
    notes = [drawn, brackets]
    if study.curves and study.requested.max() > sizes[-1]:
        differ = "; the models need not agree" if len(study.models) > 1 else ""
        notes.append(
            f"Beyond {sizes[-1]} topics curves are extrapolated, which is known to be biased"
            f"{differ}."
        )
    return notes


def _missing(study: SplitHalfStudy) -> list[str]:
    """Return notes on measures that are undefined for some splits, with the reasons."""
    notes = []
    for (name, measure), values in zip(study.measures.items(), study.values, strict=True):
        missing = int(np.isnan(values).sum())
        if missing:
            notes.append(
                f"{_symbol(study, name)} has no value in {missing:,} of {values.size:,} splits: "
                f"{measure.undefined}."
            )
    return notes


def _left_out(study: SplitHalfStudy) -> list[str]:
    """Return notes on observations left out because their error is zero."""
    left_out: dict[tuple[str, int], list[str]] = {}
    for (name, model), curve in study.curves.items():
        if curve.n_zero:
            left_out.setdefault((name, curve.n_zero), []).append(model)
    return [
        f"{_symbol(study, name)}: {n_zero:,} splits without any error are left out of "
        f"{' and '.join(models)}, which fit logarithms of errors."
        for (name, n_zero), models in left_out.items()
    ]


def _not_fitted(study: SplitHalfStudy) -> list[str]:
    """Return notes on curves that could not be fitted, with the reasons."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (name, model), reason in study.problems.items():
        reasons.setdefault((name, reason), []).append(model)
    return [
        f"{_symbol(study, name)} has no curve by {', '.join(models)}: {reason}."
        for (name, reason), models in reasons.items()
    ]


_BLOCK = 50
"""Number of splits of one size in one job."""


@guarded
def split_half(
    scores: ScoresLike,
    measures: str | Measure | Iterable[str | Measure] = ("tau", "tau_ap"),
    n_topics: float | Iterable[float] | None = None,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    sizes: int | Iterable[int] | None = None,
    trials: int | None = None,
    models: str | Iterable[str] = MODELS,
    drop_worst: float = 0.0,
    alpha: float = 0.05,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> SplitHalfStudy:
    """Return the accuracy of tests of any size, extrapolated from halves of the topics.

    Two disjoint sets of n topics are drawn at random. One is a test of n topics, and the mean
    scores over the other serve as the truth. Their agreement, over many draws of several sizes, is
    extrapolated to larger tests by curves (eq. 15.11 of the mathematics): the generic estimator of
    Urbano (2016, sec. 4.1), which works for any measure of accuracy.

    Parameters
    ----------
    scores : long table with its columns named, :class:`ScoreMatrix`, or topic × system matrix,
        **one row per topic and one column per system**; no score may be missing
    measures : names of :func:`vcomp.ir.measures.available`, or measures with options of their own
        such as ``vcomp.ir.measures.get("tau", variant="a")``
    n_topics : sizes of the tests whose accuracy is wanted; that of the collection if None
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
    sizes : topics of the halves, up to half of those there are; from 1 on if the means of systems
        suffice for all measures, from 2 on if differences are tested. If None as published: at
        most 20 equidistant ones from 2 on, and 1 and 2 for tests of 4 or 5 topics
    trials : pairs of halves of each size. If None as published: at most 100, and 1000 in all
    models : curves to fit, of ``"exp1"``, ``"exp2"`` and ``"logit"``; see
        :class:`vcomp.ir.AccuracyCurve`
    drop_worst : share of the systems to leave out, the worst by mean score; see
        :meth:`ScoreMatrix.drop_worst`
    alpha : intervals have confidence 1 − alpha
    rng : seed, or a generator that one is drawn from once; 0 if not given
    workers : threads; the numbers are the same for any number of them
    progress : whether to show a bar; None for one where stderr is a terminal

    Returns
    -------
    SplitHalfStudy
        with ``table``, the expected accuracies; ``fits``, the curves; ``frame``, the observations;
        ``predict()`` for further sizes, ``summary()`` and ``plot()``

    Raises
    ------
    DataError
        If the scores cannot be read, one of them is missing, or there are fewer than four topics.
    EstimationError
        If a size of halves, `trials` or `workers` is not a whole number, or out of range.
    PlanError
        If a measure or model is unknown, or `n_topics` or `alpha` is out of range.

    Warns
    -----
    VcompWarning
        If some curve cannot be fitted, as to halves of one size; its predictions are nan.

    Notes
    -----
    **Extrapolations are biased**, and the three models disagree (Urbano, 2016, sec. 6 to 8):
    halves are compared with halves, whose means are not the true ones. The intervals do not cover
    this bias: see :meth:`vcomp.ir.AccuracyCurve.predict` for their coverage in a simulation. For τ
    and τ_AP the estimators of :func:`vcomp.ir.expected_tau` are
    better.

    References
    ----------
    Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
    statistical assumptions. *Information Retrieval Journal*, 19(3), 313-350. Section 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from vcomp.ir import split_half
    >>> rng = np.random.default_rng(1)
    >>> scores = rng.normal(size=(30, 8)) + np.arange(8) / 4
    >>> study = split_half(scores, "tau", [30, 60], rng=1)
    >>> study
    <SplitHalfStudy: tau of 71 splits of each of 14 sizes, from 2 to 15 topics>
    >>> study.table.query("model == 'logit'")[["n", "estimate"]].round(2)
        n  estimate
    4  30      0.83
    5  60      0.88
    """
    matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
    matrix = matrix.drop_worst(drop_worst)
    X = complete(matrix)
    chosen = several(measures)
    curves = _models(models)
    requested = check_sizes(len(X) if n_topics is None else n_topics)
    check_alpha(alpha)
    halves_of = _sizes(sizes, len(X), fewest(chosen))
    trials = published_trials(len(halves_of)) if trials is None else check_count(trials, "trials")
    seed, workers = seed_from(rng), check_count(workers, "workers")
    halves = tuple(draw_halves(len(X), n, trials, seed) for n in halves_of)
    values = _accuracies(X, chosen, halves, workers, progress)
    return fitted(matrix, chosen, halves, values, curves, requested, alpha)


def _accuracies(
    X: FloatArray,
    measures: Sequence[Measure],
    halves: Sequence[Halves],
    workers: int,
    progress: bool | None,
) -> FloatArray:
    """Return the accuracies of all halves, (measures, sizes, trials)."""
    jobs = _jobs(halves, all(isinstance(measure, MeanMeasure) for measure in measures))
    X = np.ascontiguousarray(X)

    def work(number: int) -> FloatArray:
        return observed(X, measures, jobs[number])

    done = run(lambda: work, range(len(jobs)), workers=workers, progress=progress, label="halves")
    values = np.concatenate([done[number] for number in range(len(jobs))], axis=1)
    return values.reshape(len(measures), len(halves), len(halves[0]))


def _jobs(halves: Sequence[Halves], at_once: bool) -> list[list[Halves]]:
    """Return jobs of one block of halves in order, or with `at_once` of several for speed."""
    blocks = [
        Halves(one.collection[start : start + _BLOCK], one.truth[start : start + _BLOCK])
        for one in halves
        for start in range(0, len(one), _BLOCK)
    ]
    step = TOGETHER // _BLOCK if at_once else 1
    return [blocks[at : at + step] for at in range(0, len(blocks), step)]


def _models(given: str | Iterable[str]) -> tuple[Model, ...]:
    names: list[object] = [given]
    if isinstance(given, Iterable) and not isinstance(given, str):
        names = list(given)
    if not names:
        raise PlanError(f"no model is given; there are {', '.join(map(repr, MODELS))}")
    for name in names:
        check_one_of("model", name, MODELS)
    return tuple(model for model in MODELS if model in names)


def _sizes(given: int | Iterable[int] | None, n_topics: int, smallest: int) -> list[int]:
    """Return the sizes of halves in ascending order."""
    most = n_topics // 2
    if most < FEWEST:
        raise DataError(
            f"two halves of at least {FEWEST} topics each need {2 * FEWEST} topics; there are "
            f"{n_topics}"
        )
    if given is None:
        return published_sizes(n_topics, smallest)
    numbers = list(given) if isinstance(given, Iterable) else [given]
    if not numbers:
        raise EstimationError("no size of halves is given: sizes is empty")
    for n in numbers:
        if not is_whole(n) or not smallest <= n <= most:
            raise EstimationError(
                f"halves of {n_topics} topics have a whole number of topics from {smallest} to "
                f"{most}, not {n!r}"
            )
    return sorted({int(n) for n in numbers})
