"""One table of all runs: items by content where ids clash, retries and copies once.

:class:`EvalLogs` holds the table and the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray
from vcomp.data import occurring_levels
from vcomp.evals.run_rows import COLUMNS, Run, joined, named_within, renamed
from vcomp.exceptions import visible

if TYPE_CHECKING:
    import pandas as pd

_TROUBLES = ("unscored", "failed", "unreadable", "duplicates")

_SHOWN = 30
"""Runs, and notes, that are printed."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvalLogs(display.Printed):
    """Scores of logs of evaluations, and what was read of each.

    Made by :func:`vcomp.evals.read`; ``print`` it.

    Attributes
    ----------
    table : a row for each score: ``model``, ``task``, ``item``, ``epoch``, ``prompt``, ``judge``,
        ``metric`` (those that the logs have), ``score``, and whatever else varies
    unscored : the rows without a score, with the ``problem`` of each; they are not in the table
    report : a row for each run: its ``file`` and ``format``, the numbers of ``samples``,
        ``failed`` and ``unreadable`` ones, of ``scores`` in the table, ``unscored`` rows, and
        ``duplicates`` that a later score replaced
    notes : sentences on what was not read or is not known, with the names
    """

    table: pd.DataFrame
    unscored: pd.DataFrame
    report: pd.DataFrame
    notes: tuple[str, ...]

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        counts = ["samples", "scores"]
        counts += [n for n in self.report if n in _TROUBLES and self.report[n].any()]
        shown = self.report.head(_SHOWN)
        cells = {
            name: [visible(str(v)) for v in shown[name]] for name in ("format", "model", "task")
        }
        cells |= {name: [display.count(v) for v in shown[name]] for name in counts}
        table = display.column_table(
            cells, title=self._size(), stubs=[visible(_short(name)) for name in shown["file"]]
        )
        notes = [visible(note) for note in self.notes[:_SHOWN]]
        if len(self.report) > _SHOWN:
            notes.insert(0, f"{len(self.report) - _SHOWN:,} more runs are in report.")
        if len(self.notes) > _SHOWN:
            notes.append(f"{len(self.notes) - _SHOWN:,} more sentences are in notes.")
        if len(self.unscored):
            problems = self.unscored["problem"].value_counts()
            listed = ", ".join(f"{p} ({n:,})" for p, n in problems.head(5).items() if n)
            notes.insert(0, visible(f"Rows without a score, in unscored: {listed}."))
        return display.summary([table], notes)

    def __repr__(self) -> str:
        return f"<EvalLogs: {self._size()}>"

    def _size(self) -> str:
        facets = ("model", "task", "item", "epoch", "prompt", "judge", "metric")
        sizes = [
            display.counted(self.table[name].nunique(), name)
            for name in facets
            if name in self.table
        ]
        return f"{display.count(len(self.table))} scores: {', '.join(sizes)}"


def _short(name: str) -> str:
    return name if len(name) <= 48 else f"…{name[-47:]}"


_HIDDEN = ("score", "problem", "content", "number")
"""Columns that do not distinguish scores."""


def assemble(runs: Sequence[Run], notes: Iterable[str], columns: Mapping[str, str]) -> EvalLogs:
    """Return the table and the report of runs.

    Parameters
    ----------
    runs : in the order of the rows
    notes : sentences that come first
    columns : our name of a column → its name in the logs; tables have it already
    """
    notes = [*notes, *_of_files(runs)]
    runs = [run for run in runs if run.samples or len(run.rows) or run.unreadable]
    rows = joined([r.rows.assign(number=np.full(len(r.rows), k)) for k, r in enumerate(runs)])
    n_of = dict[str, Any]()
    if len(rows):
        rows = _with_columns(rows, columns, any(run.format == "table" for run in runs))
        is_log = np.array([run.format != "table" for run in runs])[rows["number"].to_numpy(int)]
        rows, on_names = _with_names(rows, is_log)
        notes += on_names
        repeated = _replaced(rows, runs)
        n_of["duplicates"] = _per_run(rows["number"][repeated], runs)
        rows = _where(~repeated, rows)
        scored = rows["score"].notna()
        n_of["scores"] = _per_run(rows["number"][scored], runs)
        n_of["unscored"] = _per_run(rows["number"][~scored], runs)
        notes += _two_metrics(rows)
    else:
        rows = _empty()
        scored = rows["score"].notna()
    report = _report(runs, rows, n_of)
    names = _kept(rows)
    return EvalLogs(
        _selected(_where(scored.to_numpy(), rows), [*names, "score"]),
        _selected(rows[~scored], [*names, "problem"]),
        report,
        tuple(notes),
    )


def _with_columns(
    rows: pd.DataFrame, columns: Mapping[str, str], has_tables: bool
) -> pd.DataFrame:
    """Return rows with the names of columns that were given."""
    rows = renamed(rows, {o: t for o, t in columns.items() if t in rows or not has_tables})
    # The content that is known is not that of items which are named by another column.
    return rows.drop(columns="content", errors="ignore") if "item" in columns else rows


def _of_files(runs: Sequence[Run]) -> list[str]:
    """Return the notes of runs, each once with its files, and unreadable places."""
    files: dict[str, list[str]] = {}
    for run in runs:
        for note in run.notes:
            files.setdefault(note, []).append(run.file)
        for place in run.unreadable[:3]:
            files.setdefault(f"Unreadable: {place}.", []).append(run.file)
        if len(run.unreadable) > 3:
            files.setdefault("More is unreadable.", []).append(run.file)
    return [
        f"{note} ({names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''})"
        for note, names in files.items()
    ]


def _empty() -> pd.DataFrame:
    import pandas as pd

    levels = {name: pd.Categorical([]) for name in ("model", "task", "item", "metric", "problem")}
    return pd.DataFrame({**levels, "score": np.zeros(0), "number": np.zeros(0, dtype=int)})


def _per_run(numbers: pd.Series, runs: Sequence[Run]) -> Any:
    return np.bincount(numbers.to_numpy(np.int64), minlength=len(runs))


def _where(kept: BoolArray, rows: pd.DataFrame) -> pd.DataFrame:
    """Return some of the rows; without a copy if these are all."""
    return rows if kept.all() else rows[kept]


def _selected(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return columns, with the levels that occur."""
    found = rows.reindex(columns=list(names)).reset_index(drop=True)
    for name in found:
        if hasattr(found[name], "cat"):
            found[name] = occurring_levels(found[name].array)
    return found


def _n_levels(rows: pd.DataFrame, name: str) -> int:
    return len(rows[name].dropna().unique()) if name in rows else 0


def _kept(rows: pd.DataFrame) -> list[str]:
    """Return the facets that exist, and the other columns that vary, without runs if they may."""
    others = [n for n in map(str, rows) if n not in (*COLUMNS, *_HIDDEN, "run")]
    names = [n for n in COLUMNS if n in rows and rows[n].notna().any()]
    names += [n for n in others if _n_levels(rows, n) > 1]
    if _n_levels(rows, "run") > 1:
        without = rows.duplicated(names).sum()
        if without > rows.duplicated([*names, "run"]).sum():
            names.append("run")
    return names


# Items -----------------------------------------------------------------------------------------


def _with_names(rows: pd.DataFrame, is_log: BoolArray) -> tuple[pd.DataFrame, list[str]]:
    """Return rows in which equal names of items mean equal items, and notes on their names.

    Parameters
    ----------
    rows : of all runs
    is_log : which are of logs, where an id without known content is of its task alone
    """
    import pandas as pd

    if "item" not in rows:
        return rows, []
    if "task" not in rows:  # it has another role
        one = pd.Categorical.from_codes(np.zeros(len(rows), np.int8), pd.Index(["all logs"]))
        found, notes = _with_names(rows.assign(task=one), is_log)
        return found.drop(columns="task"), notes
    if "content" not in rows:
        return _within_tasks(rows, is_log), []
    known = rows.loc[rows["content"] > 0, ["task", "item", "content"]].drop_duplicates()
    clashing = _clashing(known)
    notes = []
    if clashing:
        rows = _by_content(rows, clashing)
        listed = display.listed([repr(str(task)) for task in clashing])
        notes.append(
            f"In {listed} an id names different items, or an item has different ids, in different "
            "runs or tasks: items there are named by a hash of their content."
        )
    return _within_tasks(rows, is_log), notes or _same_items(known)


def _clashing(known: pd.DataFrame) -> list[Any]:
    """Return the tasks where ids are no names: of items in other runs, or shared with tasks.

    Parameters
    ----------
    known : distinct combinations of ``task``, ``item`` and ``content``
    """
    found = set(known["task"][known.duplicated(["task", "item"])])
    tasks_of = known[["task", "content"]].drop_duplicates()
    shared = tasks_of["content"][tasks_of.duplicated("content")]
    sharing = known["task"].isin(known["task"][known["content"].isin(shared)])
    names = known.loc[sharing, ["item", "content"]].drop_duplicates()
    is_wrong = names.duplicated("item", keep=False)
    is_wrong |= names["content"].isin(shared) & names.duplicated("content", keep=False)
    if is_wrong.any():
        found |= set(known["task"][sharing])
    return [task for task in known["task"].unique() if task in found]


def _by_content(rows: pd.DataFrame, tasks: Sequence[Any]) -> pd.DataFrame:
    """Name the items of some tasks by the hash of their content."""
    import pandas as pd

    inside = (rows["task"].isin(tasks) & (rows["content"] > 0)).to_numpy()
    part = rows.loc[inside, ["number", "task", "content", "item"]]
    distinct = part.drop_duplicates()
    again = distinct.groupby(["number", "task", "content"], observed=True).cumcount()
    place = part.merge(distinct.assign(again=again), how="left")["again"].to_numpy()
    names = [
        f"{content:016x}" + (f"-{k + 1}" if k else "")
        for content, k in zip(part["content"], place, strict=True)
    ]
    items = rows["item"].astype(object).to_numpy(copy=True)
    items[inside] = names
    return rows.assign(item=pd.Categorical(items))


def _within_tasks(rows: pd.DataFrame, is_log: BoolArray) -> pd.DataFrame:
    """Put the task before ids that name other items in other tasks."""
    columns = [c for c in ("task", "item", "content") if c in rows]
    known = rows.loc[is_log, columns].dropna().drop_duplicates()
    if "content" in known:
        unknown = (known["content"] == 0) & known.duplicated("item", keep=False)
        of_contents = known.groupby("item", observed=True)["content"].transform("nunique")
        recurring = known["item"][unknown | (of_contents > 1)]
    else:
        recurring = known["item"][known.duplicated("item")]
    inside = rows["item"].isin(recurring.unique()).to_numpy() & is_log
    inside &= rows["task"].notna().to_numpy()
    return rows.assign(item=named_within(rows, "task", "item", inside)) if inside.any() else rows


def _same_items(known: pd.DataFrame) -> list[str]:
    """Return the advice on tasks with the same items, which may be forms of a prompt."""
    tasks: dict[frozenset[int], list[str]] = {}
    for task, own in known.groupby("task", observed=True)["content"]:
        tasks.setdefault(frozenset(own), []).append(repr(str(task)))
    return [
        f"The tasks {display.listed(alike)} have the same items. If they are forms of one "
        "prompt, read them with columns={'prompt': 'task'}."
        for alike in tasks.values()
        if len(alike) > 1
    ]


# Retries and copies ----------------------------------------------------------------------------


def _replaced(rows: pd.DataFrame, runs: Sequence[Run]) -> BoolArray:
    """Return which rows a later row of the same run, a copy or a retry replaces.

    A score is replaced by a later score only. A failed sample is replaced by its retry, whose rows
    have the metric that the failed one lacks.
    """
    import pandas as pd

    number = rows["number"].to_numpy(np.int64)
    replaced = np.zeros(len(rows), dtype=bool)
    may_recur = np.array([not run.identity for run in runs])[number]
    if may_recur.any():
        if not may_recur.all():
            replaced[~may_recur] = _replaced(rows[~may_recur], runs)
        return replaced
    identities, _ = pd.factorize(np.array([run.identity for run in runs], dtype=object))
    ranks = np.empty(len(runs), dtype=int)
    ranks[sorted(range(len(runs)), key=lambda k: runs[k].order)] = np.arange(len(runs))
    scored = rows["score"].notna().to_numpy()
    keys = pd.DataFrame(
        {
            name: rows[name].cat.codes if hasattr(rows[name], "cat") else rows[name]
            for name in rows
            if name not in (*_HIDDEN, "run")
        }
    )
    keys["identity"] = identities[number]
    order = np.lexsort((np.arange(len(rows)), ranks[number], scored))
    replaced[order] = keys.iloc[order].duplicated(keep="last").to_numpy()
    if "metric" in rows and (lacking := ~scored & rows["metric"].isna().to_numpy()).any():
        sample = [n for n in ("identity", "model", "task", "item", "epoch") if n in keys]
        with_score = pd.MultiIndex.from_frame(keys.loc[scored, sample].drop_duplicates())
        failed = pd.MultiIndex.from_frame(keys.loc[lacking, sample])
        replaced[np.flatnonzero(lacking)[failed.isin(with_score)]] = True
    return replaced


def _two_metrics(rows: pd.DataFrame) -> list[str]:
    """Return the advice to choose one of several metrics or filters."""
    several = [n for n in ("metric", "filter") if _n_levels(rows, n) > 1]
    if not several:
        return []
    listed = " and ".join(
        f"{_n_levels(rows, n)} {display.levels_of(n)} ({', '.join(rows[n].cat.categories[:5])})"
        for n in several
    )
    return [f"The table has {listed}; choose one of each before you fit it."]


# The report ------------------------------------------------------------------------------------


def _report(runs: Sequence[Run], rows: pd.DataFrame, n_of: dict[str, Any]) -> pd.DataFrame:
    import pandas as pd

    none = np.zeros(len(runs), dtype=int)
    return pd.DataFrame(
        {
            "file": [run.file for run in runs],
            "format": [run.format for run in runs],
            **{name: [_levels(run.rows, name) for run in runs] for name in ("model", "task")},
            "samples": [run.samples for run in runs],
            "scores": n_of.get("scores", none),
            "unscored": n_of.get("unscored", none),
            "failed": [run.failed for run in runs],
            "unreadable": [len(run.unreadable) for run in runs],
            "duplicates": n_of.get("duplicates", none) + [run.duplicates for run in runs],
        }
    )


def _levels(rows: pd.DataFrame, name: str) -> str:
    """Return the level of a run, or how many it has."""
    if name not in rows:
        return ""
    levels = rows[name].cat.categories
    return str(levels[0]) if len(levels) == 1 else display.counted(len(levels), name)
