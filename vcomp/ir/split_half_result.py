"""What halves of a collection say of larger tests: observations, curves, predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, VcompError, check_alpha, did_you_mean, warn
from vcomp.ir.curve import COLUMNS, AccuracyCurve, Model, whole
from vcomp.ir.extrapolate import fit_curves
from vcomp.ir.measures import Measure, named, scale_of
from vcomp.ir.measures import sizes as check_sizes
from vcomp.ir.scores import ScoreMatrix
from vcomp.ir.splits import Halves

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class SplitHalfStudy(display.Printed):
    """Accuracies of halves of a collection, and curves that draw them out to larger tests.

    Attributes
    ----------
    measures : what was measured, by the name that frames have for it
    halves : for each size the pairs of halves that were drawn
    values : (measures, sizes, trials) accuracies of halves; nan where a measure is not defined
    models : curves that were fitted
    curves : of a measure and a model; those that could not be fitted are not there
    problems : why they could not
    n_topics, n_systems : of the collection
    asked : (m,) sizes of tests in :attr:`table`
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
    asked: FloatArray
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
        """The observations: a row a pair of halves, with ``n``, ``trial`` and every measure."""
        import pandas as pd

        columns: dict[str, Any] = {
            "n": np.repeat(self.sizes, self.trials),
            "trial": np.tile(np.arange(self.trials), len(self.sizes)),
        }
        flat = self.values.reshape(len(self.measures), -1)
        return pd.DataFrame(columns | dict(zip(self.measures, flat, strict=True)))

    @cached_property
    def fits(self) -> pd.DataFrame:
        """A row a curve: ``measure``, ``model``, ``scale``, its parameters ``a`` and ``b``.

        Then their standard errors ``bse_a`` and ``bse_b``, the ``dispersion``, ``nobs``
        observations, ``n_missing`` that were not defined and ``n_zero`` without error that were
        left out. Curves that could not be fitted are not there; :attr:`problems` says why.
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
        """Expected accuracies of tests of the sizes that were asked for; see :meth:`predict`."""
        return self.predict(self.asked)

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
            A row a measure, model and number of topics, with the columns ``measure``, ``model``,
            ``n``, ``estimate``, ``low`` and ``high``, ``obs_low`` and ``obs_high``: see
            :meth:`AccuracyCurve.predict` for what these intervals hold, and what they do not. nan
            where there is no curve; :attr:`problems` says why.

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
        return summary(self)

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
        if name not in self.measures:
            raise PlanError(
                f"{name!r} was not measured{did_you_mean(name, self.measures)}; there are "
                f"{', '.join(map(repr, self.measures))}"
            )
        largest = max(float(self.asked.max()), float(self.sizes[-1]))
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
    asked: FloatArray,
    alpha: float,
) -> SplitHalfStudy:
    """Return the study with curves fitted to what was observed.

    Parameters
    ----------
    matrix : the collection
    measures, halves : what was measured, and of what
    values : (measures, sizes, trials) what it gave
    models : curves to fit
    asked : (m,) sizes of tests
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
    for (name, measure), observed in zip(by_name.items(), values, strict=True):
        try:
            found, failed = fit_curves(n, observed, models, scale=scale_of(measure))
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
        asked, alpha,
    )  # fmt: skip


def _joined(reasons: Mapping[Model, str]) -> str:
    return "; ".join(dict.fromkeys(reasons.values()))


def summary(study: SplitHalfStudy) -> Any:
    """Return a summary: a row a measure and size of test, and what each model expects.

    Parameters
    ----------
    study : to print

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    table = study.table
    rows, stubs = [], []
    for name in study.measures:
        for place, n in enumerate(study.asked):
            stubs.append(_symbol(study, name) if place == 0 else "")
            row = [display.count(n)]
            for model in study.models:
                mine = table[(table["measure"] == name) & (table["model"] == model)].iloc[place]
                interval = display.coefficient_interval(mine["obs_low"], mine["obs_high"])
                row.append(f"{display.coefficient(mine['estimate'])} {interval}".rstrip())
            rows.append(row)
    title = (
        f"Accuracy extrapolated from halves of {display.count(study.n_topics)} topics, "
        f"{display.count(study.n_systems)} systems"
    )
    page = display.simple_table(rows, ["topics", *study.models], title=title, stubs=stubs)
    return display.summary([page], _notes(study))


def _symbol(study: SplitHalfStudy, name: str) -> str:
    measure = study.measures[name]
    return measure.symbol if name == measure.name else name


def _notes(study: SplitHalfStudy) -> list[str]:
    return [*_about(study), *_missing(study), *_left_out(study), *_not_fitted(study)]


def _about(study: SplitHalfStudy) -> list[str]:
    """Return what was drawn, what the brackets are, and where the data end."""
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
        "The truth that a test is compared with is another test of its size, not the true means."
    )
    notes = [drawn, brackets]
    if study.curves and study.asked.max() > sizes[-1]:
        differ = "; the models need not agree" if len(study.models) > 1 else ""
        notes.append(
            f"Beyond {sizes[-1]} topics curves are extrapolated, which is known to be biased"
            f"{differ}."
        )
    return notes


def _missing(study: SplitHalfStudy) -> list[str]:
    """Return which measures are not defined for some splits, and why."""
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
    """Return how many observations have no logarithm."""
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
    """Return which curves there are not, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (name, model), reason in study.problems.items():
        reasons.setdefault((name, reason), []).append(model)
    return [
        f"{_symbol(study, name)} has no curve by {', '.join(models)}: {reason}."
        for (name, reason), models in reasons.items()
    ]
