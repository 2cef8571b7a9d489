"""Identical runs: how often answers change, and how consistently they are right."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.evals.item_sampling import mean_of_items, share_limits
from vcomp.evals.model_fits import noise
from vcomp.evals.roles import FIXED, Roles, check_column, roles_of
from vcomp.evals.score_rows import ScoresOfEval, column_names, opened, sampled_levels, scored_rows
from vcomp.exceptions import (
    DataError,
    PlanError,
    check_alpha,
    guarded,
    is_real,
    visible,
)

if TYPE_CHECKING:
    import pandas as pd

_MOST_LISTED = 40
"""Models that are printed."""


@dataclass(frozen=True, slots=True)
class _Answers:
    """Counts of the runs of each answer: a model at an item, prompt and whatever else there is.

    Attributes
    ----------
    models, items, clusters, tasks : (answers,) codes
    runs : (answers,) how many
    passes : (answers,) how many succeed; None of graded scores
    squares, means : (answers,) sum of squared deviations, and mean; None of text
    groups, sizes : (groups,) answer and number of its runs that have the same score
    """

    models: LongArray
    items: LongArray
    clusters: LongArray
    tasks: LongArray
    runs: LongArray
    passes: LongArray | None
    squares: FloatArray | None
    means: FloatArray | None
    groups: LongArray
    sizes: LongArray


@dataclass(frozen=True, slots=False, eq=False, repr=False)
class Repetitions(display.Printed):
    """How answers vary between identical runs; ``print`` it.

    Made by :func:`vcomp.evals.repetitions`. Items are sampled in all errors; tasks have equal
    weights.

    Attributes
    ----------
    names : of the models
    roles : of the columns, as in :class:`EvalStudy`
    alpha : intervals have confidence 1 − alpha
    data : the scores
    """

    names: tuple[Any, ...]
    roles: Roles
    alpha: float
    data: pd.DataFrame
    _answers: _Answers
    _varies: bool

    @property
    def table(self) -> pd.DataFrame:
        """The models: runs, mean, variance between identical runs, and flicker.

        Returns
        -------
        pandas.DataFrame
            Index: the models; columns ``items``, ``answers``, ``runs`` and ``most_runs`` (the
            fewest and the most of an answer), ``mean`` of all scores, ``run_variance`` (between
            identical runs), and ``flicker`` of as many runs as all answers of all models have
            (at least 2), with ``std_error``, ``low`` and ``high``.
        """
        import pandas as pd

        a = self._answers
        n = len(self.names)
        counts = {
            "items": [np.unique(a.items[a.models == m]).size for m in range(n)],
            "answers": np.bincount(a.models, minlength=n),
            "runs": [int(a.runs[a.models == m].min()) for m in range(n)],
            "most_runs": [int(a.runs[a.models == m].max()) for m in range(n)],
            "mean": np.full(n, np.nan),
            "run_variance": np.full(n, np.nan),
        }
        if a.means is not None and a.squares is not None:
            rows = np.bincount(a.models, a.runs, minlength=n)
            counts["mean"] = np.bincount(a.models, a.means * a.runs, minlength=n) / rows
            squares = np.bincount(a.models, a.squares, minlength=n)
            df = np.bincount(a.models, a.runs - 1, minlength=n)
            with np.errstate(invalid="ignore", divide="ignore"):
                counts["run_variance"] = squares / df
        index = pd.Index(self.names, name=self.roles.model)
        frame = pd.DataFrame(counts, index=index)
        flicker = self.flicker(self.common).drop(columns=["items", "k"])
        return frame.join(flicker.rename(columns={"estimate": "flicker"}))

    @property
    def common(self) -> int:
        """The number of runs that all repeated answers have."""
        runs = self._answers.runs
        return int(runs[runs > 1].min())

    @property
    def most(self) -> int:
        """The largest number of runs of an answer."""
        return int(self._answers.runs.max())

    def flicker(self, k: int = 2) -> pd.DataFrame:
        """Return the share of items whose answer differs between k identical runs.

        Parameters
        ----------
        k : number of runs

        Returns
        -------
        pandas.DataFrame
            Index: the models; columns ``k``, ``estimate``, ``std_error``, ``low``, ``high`` and
            ``items``, the number of those with at least k runs.

        Raises
        ------
        PlanError
            If k is not between 2 and the largest number of runs.

        Notes
        -----
        1 − Σ_j C(n_j, k)/C(n, k), where n_j of the n runs have the same score: this is unbiased.
        """
        self._check(k, 2)
        a = self._answers
        alike = _choices(a.sizes, a.runs[a.groups], k)
        same = np.bincount(a.groups, alike, minlength=a.runs.size).astype(float)
        return self._mean(1.0 - same, k)

    def pass_at(self, k: int) -> pd.DataFrame:
        """Return pass@k, the share of items at which at least one of k runs succeeds.

        Parameters
        ----------
        k : number of runs

        Returns
        -------
        pandas.DataFrame
            As of :meth:`flicker`.

        Raises
        ------
        DataError
            If scores are graded.
        PlanError
            If k is not between 1 and the largest number of runs.

        Notes
        -----
        1 − C(n − c, k)/C(n, k) of c successes in n runs, which is unbiased.

        References
        ----------
        Chen, M. et al. (2021). Evaluating large language models trained on code.
        arXiv:2107.03374.
        """
        c = self._passes("pass@k")
        self._check(k, 1)
        return self._mean(1.0 - _choices(self._answers.runs - c, self._answers.runs, k), k)

    def pass_all(self, k: int) -> pd.DataFrame:
        """Return pass^k, the share of items at which all of k runs succeed.

        Parameters
        ----------
        k : number of runs

        Returns
        -------
        pandas.DataFrame
            As of :meth:`flicker`.

        Raises
        ------
        DataError, PlanError
            As :meth:`pass_at`.

        Notes
        -----
        C(c, k)/C(n, k) of c successes in n runs, which is unbiased.

        References
        ----------
        Yao, S. et al. (2024). τ-bench: a benchmark for tool-agent-user interaction in real-world
        domains. arXiv:2406.12045.
        """
        c = self._passes("pass^k")
        self._check(k, 1)
        return self._mean(_choices(c, self._answers.runs, k), k)

    def majority(self, k: int) -> pd.DataFrame:
        """Return the share of items at which most of k runs succeed; half of them count half.

        Parameters
        ----------
        k : number of runs

        Returns
        -------
        pandas.DataFrame
            As of :meth:`flicker`.

        Raises
        ------
        DataError, PlanError
            As :meth:`pass_at`.

        Notes
        -----
        The mean over all sets of k of the n runs, which is unbiased.
        """
        from scipy.stats import hypergeom

        c = self._passes("the majority")
        self._check(k, 1)
        n = np.maximum(self._answers.runs, k)
        more = hypergeom.sf(k // 2, n, c, k)
        ties = hypergeom.pmf(k // 2, n, c, k) if k % 2 == 0 else np.zeros(n.size)
        return self._mean(more + 0.5 * ties, k)

    @property
    def consistency(self) -> pd.DataFrame:
        """All measures for all numbers of runs.

        Returns
        -------
        pandas.DataFrame
            Columns: the models, ``measure`` (``"flicker"`` and, unless scores are graded,
            ``"pass_at"``, ``"pass_all"`` and ``"majority"``), and those of :meth:`flicker`.
        """
        import pandas as pd

        found = {("flicker", k): self.flicker(k) for k in range(2, self.most + 1)}
        if self._answers.passes is not None:
            for k in range(1, self.most + 1):
                found["pass_at", k] = self.pass_at(k)
                found["pass_all", k] = self.pass_all(k)
                found["majority", k] = self.majority(k)
        frames = [frame.reset_index().assign(measure=name) for (name, _), frame in found.items()]
        columns = [self.roles.model, "measure", *found["flicker", 2].columns]
        return pd.concat(frames, ignore_index=True)[columns]

    @cached_property
    def sources(self) -> pd.DataFrame | None:
        """Components of variance, the last one between identical runs.

        Returns
        -------
        pandas.DataFrame or None
            Index: the components; columns ``variance``, ``share`` in the variance of one score,
            and ``share_of_error`` in that of a difference between two models. None of text, and of
            scores that are all equal.
        """
        if not self._varies:
            return None
        roles, sources = noise(self.data, self.roles, self.alpha)
        sources = sources.rename(columns={"share": "share_of_error"})
        runs = f"{self._numbered} (identical runs)"
        if roles.identical:
            sources.loc[runs] = [0.0, 0.0 * sources["share_of_error"].sum()]
        sources = sources.rename({"Residual": runs} if roles.repetition else {})
        total = sources["variance"].clip(lower=0.0).sum()
        sources.insert(1, "share", sources["variance"].clip(lower=0.0) / total)
        return sources

    def summary(self) -> Any:
        """Return a printable page: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        k, tables = self.common, [self._runs_table()]
        if self._answers.passes is not None:
            cells = {}
            measures = ((f"pass@{k}", self.pass_at), (f"pass^{k}", self.pass_all),
                     (f"majority of {k}", self.majority))  # fmt: skip
            for title, measure in measures:
                shown = measure(k).head(_MOST_LISTED)
                cells[title] = display.fixed(shown["estimate"], decimals=3)
                cells[f"{display.level(self.alpha)} interval{' ' * len(cells)}"] = (
                    display.short_intervals(shown["low"], shown["high"])
                )
            title = f"Success in {k} runs: of any, of all, of most"
            tables.append(display.column_table(cells, title=title, stubs=self._stubs))
        sources = self.sources
        if sources is not None:
            parts = {
                "variance": display.fixed(sources["variance"]),
                "share": [display.percent(s) for s in sources["share"]],
                "": [display.bar(s) for s in sources["share"]],
            }
            stubs = [visible(str(name)) for name in sources.index]
            title = "Variance of one score"
            tables.append(display.column_table(parts, title=title, stubs=stubs, align="rrl"))
        return display.summary(tables, [visible(note) for note in self._notes()])

    @property
    def _stubs(self) -> list[str]:
        return [visible(str(name)) for name in self.names[:_MOST_LISTED]]

    @property
    def _numbered(self) -> str:
        return self.roles.repetition or "runs"

    def _runs_table(self) -> Any:
        shown = self.table.head(_MOST_LISTED)
        ends = zip(shown["runs"], shown["most_runs"], strict=True)
        cells = {
            "items": [display.count(n) for n in shown["items"]],
            "runs": [str(a) if a == b else f"{a} to {b}" for a, b in ends],
            "score": display.fixed(shown["mean"]),
            "variance of runs": display.fixed(shown["run_variance"], significant=3),
            "flicker": display.fixed(shown["flicker"], decimals=3),
            f"{display.level(self.alpha)} interval": display.short_intervals(
                shown["low"], shown["high"]
            ),
        }
        return display.column_table(cells, title=self._title(), stubs=self._stubs)

    def _notes(self) -> list[str]:
        runs = self._answers.runs
        meaning = (
            f"Flicker is the share of items whose answers differ between {self.common} identical "
            "runs. Items are sampled in all intervals, and tasks have equal weights."
        )
        said = [meaning]
        if self._answers.passes is None:
            said.append(
                "Scores are graded, so that neither pass@k nor a majority is defined; "
                "passes_from= names the score that passes."
            )
        once = int((runs == 1).sum())
        if once:
            said.append(f"Answers given once do not show flicker: {once:,} of {runs.size:,}.")
        if self.most > self.common:
            said.append(
                f"Measures of more than {self.common} runs are of the items that have so many."
            )
        if len(self.names) > _MOST_LISTED:
            n = len(self.names) - _MOST_LISTED
            said.append(f"{n:,} more are not listed; the table has all.")
        return said

    def _title(self) -> str:
        models = display.counted(len(self.names), self.roles.model)
        return f"Identical runs of {models}"

    def __repr__(self) -> str:
        return f"<Repetitions: {self._title()}>"

    # Estimates ---------------------------------------------------------------------------------

    def _passes(self, measure: str) -> LongArray:
        if self._answers.passes is None:
            raise DataError(
                f"{measure} counts successes, and scores are graded: name the score that passes, "
                "passes_from=…",
                column=self.roles.score,
            )
        return self._answers.passes

    def _check(self, k: object, least: int) -> None:
        if not is_real(k) or k != int(k) or not least <= k <= self.most:
            raise PlanError(
                f"k is between {least} and {self.most}, the largest number of identical runs, not "
                f"{k!r}"
            )

    def _mean(self, values: FloatArray, k: int) -> pd.DataFrame:
        """Return the means of models of values of answers, over those with at least k runs."""
        import pandas as pd

        a, rows = self._answers, []
        enough = a.runs >= k
        for m in range(len(self.names)):
            own = enough & (a.models == m)
            if not own.any():
                rows.append((k, math.nan, math.nan, math.nan, math.nan, 0))
                continue
            items, first, place = np.unique(a.items[own], return_index=True, return_inverse=True)
            means = np.bincount(place, values[own]) / np.bincount(place)
            clusters = a.clusters[own][first]
            mean, error, df = mean_of_items(means, clusters, a.tasks[own][first])
            most = float(np.unique(clusters).size if mean in (0.0, 1.0) else a.runs[own].sum())
            low, high = share_limits(mean, error, df, most, self.alpha)
            rows.append((k, mean, error or math.nan, low, high, items.size))
        columns = ["k", "estimate", "std_error", "low", "high", "items"]
        return pd.DataFrame(
            rows, columns=columns, index=pd.Index(self.names, name=self.roles.model)
        )


def _choices(some: LongArray, n: LongArray, k: int) -> FloatArray:
    """Return C(some, k)/C(n, k), the probability that k of n drawn runs are among some."""
    out = np.ones(n.size)
    for i in range(k):
        out *= np.maximum(some - i, 0) / np.maximum(n - i, 1)
    return out


@guarded
def repetitions(
    scores: ScoresOfEval,
    *,
    system: str = "model",
    score: str = "score",
    metric: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, Any] | None = None,
    sampled: Iterable[str] = (),
    fixed: Iterable[str] = (),
    cluster: str | None = None,
    passes_from: float | None = None,
    alpha: float = 0.05,
) -> Repetitions:
    """Return how answers change between identical runs, and how consistently they are right.

    Runs are identical if nothing but the columns ``"epoch"``, ``"run"`` and ``"seed"``
    distinguishes them.
    Answers may have different numbers of them.

    Parameters
    ----------
    scores : logs as :func:`read` returns them, their paths, or a long table with a row for each
        score
    system : column of the models, or other systems
    score : column of the scores; a column of text, such as the answers, has flicker only
    metric : which of several metrics
    columns : other names or roles of columns, as of :func:`study`
    where : the level, or levels, of columns whose rows are used, as of :func:`study`
    sampled, fixed : facets besides the usual ones, as of :func:`study`
    cluster : column of what several items share, such as a passage: clusters are sampled, not
        items
    passes_from : graded scores: the lowest score that is a success
    alpha : intervals have confidence 1 − alpha

    Returns
    -------
    Repetitions

    Raises
    ------
    DataError
        If no answer is repeated, there is one item, or as :func:`study`.
    PlanError
        If a column or metric that is named does not exist, or `passes_from` is not a number.

    Notes
    -----
    An item of several prompts, judges or other facets has the mean of its answers. The standard
    error is that of a mean of items. Intervals are Wilson's for the number of independent items
    that have this error. Where no item differs, there is no standard error, and the interval is
    that of so many equal items.

    Examples
    --------
    >>> import pandas as pd, vcomp
    >>> table = pd.DataFrame({
    ...     "model": "a", "item": [1, 1, 2, 2, 3, 3, 4, 4], "epoch": [1, 2] * 4,
    ...     "score": [1, 1, 1, 0, 0, 0, 1, 1]})
    >>> found = vcomp.evals.repetitions(table)
    >>> found.pass_all(2)["estimate"].tolist(), found.flicker(2)["estimate"].tolist()
    ([0.5], [0.25])
    """
    check_alpha(alpha)
    sampled, fixed = column_names("sampled", sampled), column_names("fixed", fixed)
    named = (system, score, cluster, *sampled, *fixed)
    scores, columns, where = opened(scores, columns, where, named)
    table, sampled = sampled_levels(scored_rows(scores, score, metric, columns, where), sampled)
    if cluster is not None:
        check_column(table, cluster)
    roles = roles_of(table, system, score, sampled, fixed)
    unit = "item" if "item" in roles.sampled else roles.sampled[0]
    text = table[score].dtype.kind not in "fiub"
    if passes_from is not None:
        if text or not is_real(passes_from) or not math.isfinite(passes_from):
            raise PlanError(f"passes_from is a score, such as 0.5, not {passes_from!r}")
        table = table.assign(**{score: (table[score] >= passes_from).astype(float)})
    cell = (
        table.groupby(roles.cell, observed=True, dropna=False).ngroup().to_numpy().astype(np.int64)
    )
    if not np.bincount(cell).max(initial=0) > 1:
        raise DataError(
            f"each {' of each '.join(reversed(roles.cell[:2]))} has one score: identical runs, "
            "numbered by a column 'epoch', show how much they differ",
            column="epoch",
        )
    names, counted = _counted(table, roles, cell, cluster or unit, unit, text)
    varies = not text and len(table[score].unique()) > 1
    return Repetitions(names, roles, alpha, table, counted, varies)


def _counted(
    table: pd.DataFrame, roles: Roles, cell: LongArray, cluster: str, unit: str, text: bool
) -> tuple[tuple[Any, ...], _Answers]:
    """Return the models, and the counts of the runs of each answer."""
    import pandas as pd

    _, first = np.unique(cell, return_index=True)
    answers = table.iloc[first]
    models, names = pd.factorize(answers[roles.model], sort=True, use_na_sentinel=False)
    tasks = [c for c in roles.fixed if c == FIXED[0]]
    task = (
        pd.factorize(answers[tasks[0]], use_na_sentinel=False)[0]
        if tasks
        else np.zeros(len(answers), np.int64)
    )
    runs = np.bincount(cell)
    codes, levels = pd.factorize(table[roles.score])
    joined, sizes = np.unique(cell * np.int64(len(levels)) + codes, return_counts=True)
    passes = squares = means = None
    if not text:
        values = table[roles.score].to_numpy(dtype=float)
        means = np.bincount(cell, values).astype(float) / runs
        squares = np.bincount(cell, (values - means[cell]) ** 2).astype(float)
        if np.isin(values, (0.0, 1.0)).all():
            passes = np.rint(np.bincount(cell, values)).astype(np.int64)
    items = pd.factorize(answers[unit], use_na_sentinel=False)[0].astype(np.int64)
    return tuple(names), _Answers(
        models.astype(np.int64),
        np.unique(items * (task.max() + 1) + task, return_inverse=True)[1].astype(np.int64),
        pd.factorize(answers[cluster], use_na_sentinel=False)[0].astype(np.int64),
        task.astype(np.int64),
        runs.astype(np.int64),
        passes,
        squares,
        means,
        joined // len(levels),
        sizes.astype(np.int64),
    )
