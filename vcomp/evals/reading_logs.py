"""Read logs of evaluations, whatever framework wrote them.

``FORMATS`` lists the formats in the order in which they are tried. All runs become one table:
items by content where ids clash, retries and copies once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray
from vcomp.data import occurring_levels
from vcomp.evals import (
    every_eval_ever,
    helm,
    inspect_logs,
    lighteval,
    lm_eval,
    mteb,
    openai_evals,
    promptfoo,
    score_tables,
)
from vcomp.evals.item_names import with_names
from vcomp.evals.log_files import Damage, LogFile, found_logs
from vcomp.evals.run_rows import COLUMNS, NO_ROWS, Run, Wanted, joined, renamed
from vcomp.exceptions import DataError, check_one_of, did_you_mean, guarded, visible, warn

if TYPE_CHECKING:
    import pandas as pd

_TROUBLES = ("unscored", "failed", "unreadable", "missing", "duplicates")

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
        ``failed`` and ``unreadable`` ones, of ``scores`` in the table, ``unscored`` rows,
        samples that are ``missing`` though results count them, and ``duplicates`` that a later
        score replaced
    notes : sentences on what was not read or is not known, with the names
    names : of columns of plain tables → their names in `table`; either is understood by
        :func:`vcomp.evals.study`, and the name that is given is printed
    constants : columns besides those of the table that have one level, and it
    """

    table: pd.DataFrame
    unscored: pd.DataFrame
    report: pd.DataFrame
    notes: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)

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
        return f"{display.sized(len(self.table), 'score')}: {', '.join(sizes)}"


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
    kind = np.min_scalar_type(len(runs))
    numbers = [np.full(len(run.rows), k, kind) for k, run in enumerate(runs)]
    rows = joined([run.rows.assign(number=n) for run, n in zip(runs, numbers, strict=True)])
    n_of = dict[str, Any]()
    if len(rows):
        rows = _with_columns(rows, columns, any(run.format == "table" for run in runs))
        is_log = np.array([run.format != "table" for run in runs])
        if is_log.any():
            rows, on_names = with_names(rows, is_log[rows["number"].to_numpy()])
            notes += on_names
        repeated = _replaced(rows, runs)
        n_of["duplicates"] = _per_run(rows["number"][repeated], runs)
        rows = _where(~repeated, rows)
        scored = rows["score"].notna()
        n_of["scores"] = _per_run(rows["number"][scored], runs)
        n_of["unscored"] = _per_run(rows["number"][~scored], runs)
    else:
        rows = _empty()
        scored = rows["score"].notna()
    report = _report(runs, rows, n_of)
    names, constants = _kept(rows)
    table = _selected(_where(scored.to_numpy(), rows), [*names, "score"])
    return EvalLogs(
        table,
        _selected(rows[~scored], [*names, "problem"]),
        report,
        (*notes, *on_choices(table)),
        {theirs: ours for run in runs for theirs, ours in run.names.items()},
        constants,
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
    if len(runs) == 1:
        return np.array([len(numbers)])
    return np.bincount(numbers.to_numpy(), minlength=len(runs))


def _where(kept: BoolArray, rows: pd.DataFrame) -> pd.DataFrame:
    """Return some of the rows; without a copy if these are all."""
    return rows if kept.all() else rows[kept]


def _selected(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return columns, with the levels that occur."""
    found = rows.reindex(columns=list(names)).reset_index(drop=True)
    for name in found:
        if hasattr(found[name], "cat"):
            levels = occurring_levels(found[name].array)
            if len(levels.categories) < len(found[name].cat.categories):
                found[name] = levels
    return found


def _n_levels(rows: pd.DataFrame, name: str) -> int:
    return len(rows[name].dropna().unique()) if name in rows else 0


def _kept(rows: pd.DataFrame) -> tuple[list[str], dict[str, str]]:
    """Return the facets that exist, and what else varies; and what does not, with its level.

    Runs are kept if they separate rows.
    """
    others = [n for n in map(str, rows) if n not in (*COLUMNS, *_HIDDEN, "run")]
    levels = {n: _n_levels(rows, n) for n in others}
    names = [n for n in COLUMNS if n in rows and rows[n].notna().any()]
    names += [n for n in others if levels[n] > 1]
    constants = {n: str(rows[n].dropna().iloc[0]) for n in others if levels[n] == 1}
    if _n_levels(rows, "run") > 1:
        without = rows.duplicated(names).sum()
        if without > rows.duplicated([*names, "run"]).sum():
            names.append("run")
    return names, constants


# Retries and copies ----------------------------------------------------------------------------


def _replaced(rows: pd.DataFrame, runs: Sequence[Run]) -> BoolArray:
    """Return which rows a later row of the same run, a copy or a retry replaces.

    A score is replaced by a later score only. A failed sample is replaced by its retry, whose rows
    have the metric, scorer and judge that the failed one lacks.
    """
    import pandas as pd

    replaced = np.zeros(len(rows), dtype=bool)
    if not any(run.identity for run in runs):
        return replaced
    number = rows["number"].to_numpy()
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
        sample = [n for n in keys if n not in ("metric", "scorer", "judge")]
        with_score = pd.MultiIndex.from_frame(keys.loc[scored, sample].drop_duplicates())
        failed = pd.MultiIndex.from_frame(keys.loc[lacking, sample])
        replaced[np.flatnonzero(lacking)[failed.isin(with_score)]] = True
    return replaced


def on_choices(table: pd.DataFrame) -> list[str]:
    """Return the advice to choose one of several metrics or filters.

    Parameters
    ----------
    table : of logs, whose levels are categories
    """
    several = [n for n in ("metric", "filter") if _n_levels(table, n) > 1]
    if not several:
        return []
    listed = " and ".join(
        f"{_n_levels(table, n)} {display.levels_of(n)} ({', '.join(table[n].cat.categories[:5])})"
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
            "missing": [run.missing for run in runs],
            "duplicates": n_of.get("duplicates", none) + [run.duplicates for run in runs],
        }
    )


def _levels(rows: pd.DataFrame, name: str) -> str:
    """Return the level of a run, or how many it has."""
    if name not in rows:
        return ""
    levels = rows[name].cat.categories
    return str(levels[0]) if len(levels) == 1 else display.counted(len(levels), name)


class LogFormat(Protocol):
    """A module that knows a format."""

    def recognises(self, file: LogFile, wanted: Wanted) -> bool:
        """Return whether a file has this format, by its content."""

    def read(self, file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
        """Yield the runs of a file; unreadable samples are added to the damage."""


FORMATS: Mapping[str, LogFormat] = {
    "inspect": inspect_logs,
    "lm_eval": lm_eval,
    "helm": helm,
    "lighteval": lighteval,
    "openai_evals": openai_evals,
    "promptfoo": promptfoo,
    "mteb": mteb,
    "every_eval_ever": every_eval_ever,
    "table": score_tables,
}
"""By the names of ``format=``; tables are last, as lines of several formats could be rows."""


PathOfLog: TypeAlias = "str | os.PathLike[str]"

_DATA_ENDINGS = (".json", ".jsonl", ".eval", ".csv", ".parquet")
"""Files of folders that are logs if they can be read at all."""


@guarded
def read(
    paths: PathOfLog | Iterable[PathOfLog],
    format: str | None = None,  # noqa: A002
    *,
    unreadable: Literal["raise", "skip"] = "raise",
    metadata: Iterable[str] = (),
    columns: Mapping[str, str] | None = None,
) -> EvalLogs:
    r"""Return the scores in logs of model evaluations as one long table.

    The format is found by content. Samples that failed, were not scored or cannot be read are
    counted and named in the report, and are no zeros in the table.

    Parameters
    ----------
    paths : files, folders (at any depth) and patterns; ``"-"`` is standard input
    format : read only logs of this format, ``"inspect"``, ``"lm_eval"``,
        ``"helm"``, ``"lighteval"``, ``"openai_evals"``, ``"promptfoo"``, ``"mteb"``,
        ``"every_eval_ever"``, ``"table"`` (CSV, JSON lines, Parquet);
        None finds it by content
    unreadable : samples that cannot be read: ``"raise"`` an error that names file and line, or
        ``"skip"`` them and name them in the report
    metadata : keys of the samples' metadata (of lm_eval the document's) that become columns, such
        as the passage that several questions share
    columns : names of columns that are not understood, or have another role: ``{"score":
        "points"}`` of tables, ``{"prompt": "task"}`` of tasks that are forms of the same items

    Returns
    -------
    EvalLogs
        with ``table``, ``unscored``, ``report`` and ``notes``

    Raises
    ------
    DataError
        If there is no such file, it has no known format, there are no scores, or a sample cannot
        be read and `unreadable` is ``"raise"``.
    PlanError
        If an option has another value.

    Notes
    -----
    All columns but ``score`` and ``epoch`` are levels of facets. Of copies of a run, retries and
    samples that occur twice, the last score counts. If an id names different items in different
    runs, items are named by a hash of their content.

    Examples
    --------
    >>> import tempfile, pathlib, vcomp
    >>> lines = "model,item,score\na,1,1\na,2,0\nb,1,1\nb,2,\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "scores.csv").write_text(lines)
    ...     logs = vcomp.evals.read(folder)
    >>> logs.table
      model item  score
    0     a    1    1.0
    1     a    2    0.0
    2     b    1    1.0
    >>> logs.unscored
      model item     problem
    0     b    2  not scored
    """
    check_one_of("unreadable", unreadable, ("raise", "skip"))
    if format is not None:
        check_one_of("format", format, tuple(FORMATS))
    wanted = _wanted(metadata, columns)
    runs: list[Run] = []
    others: list[str] = []
    with found_logs(paths) as files:
        for file in files:
            if helm.is_of_run(file):
                continue
            damage = Damage(file.name, unreadable == "skip")
            known = _format_of(file, format, wanted, damage)
            if known is not None:
                runs += _read(file, known, damage, wanted)
            elif damage.named:
                runs.append(Run(file.name, "", NO_ROWS.frame(), unreadable=damage.named))
            else:
                others.append(file.name)
            file.forget()
    logs = assemble(runs, _on_others(others), wanted.columns)
    if logs.table.empty:
        problems = logs.unscored["problem"].unique()[:3].tolist()
        why = [*logs.notes, display.listed(problems)] if problems else [*logs.notes]
        if any("not a number" in problem for problem in problems):
            column = next((t for t, ours in logs.names.items() if ours == "score"), "")
            of_table = f" in column {column!r}" if column else ""
            why.append(
                f"(scores are numbers, or true and false: write 1 and 0 for the words{of_table}, "
                "or name another column, columns={'score': …})"
            )
        if runs and not why:
            why.append("these files have no samples; give the folder, or the files of the samples")
        raise DataError("there are no scores in the logs: " + (" ".join(why) or "they are empty"))
    columns_now = {*logs.table, *wanted.columns.values()}
    lacking = [n for n in wanted.metadata if n not in columns_now]
    on_metadata = _on_metadata(lacking, logs.constants)
    return replace(logs, notes=(*logs.notes, *on_metadata))


def _on_metadata(names: Sequence[str], constants: Mapping[str, str]) -> list[str]:
    """Return notes on keys of metadata that are no columns as they do not vary.

    Warns of keys that no sample has.
    """
    notes = []
    for name in names:
        if name in constants:
            notes.append(
                f"metadata {name!r} is {constants[name]!r} in all samples, and no column."
            )
        else:
            warn(f"no sample has metadata {name!r}")
    return notes


def _wanted(metadata: Iterable[str], columns: Mapping[str, str] | None) -> Wanted:
    names = (metadata,) if isinstance(metadata, str) else tuple(metadata)
    for name in names:
        if not isinstance(name, str) or name in (*COLUMNS, "score"):
            raise DataError(f"metadata are keys of samples that are not columns, not {name!r}")
    for name in columns or {}:
        if name not in (*COLUMNS, "score"):
            raise DataError(
                f"columns are {display.listed([*COLUMNS, 'score'])}, not {name!r}"
                f"{did_you_mean(name, (*COLUMNS, 'score'))}"
            )
    return Wanted(names, dict(columns or {}))


def _format_of(
    file: LogFile, insisted: str | None, wanted: Wanted, damage: Damage
) -> LogFormat | None:
    """Return the format of a file; None if it has another one, or is damaged."""
    if insisted is not None and (file.is_given or FORMATS[insisted].recognises(file, wanted)):
        return FORMATS[insisted]
    found = None
    with damage.at("the file"):
        found = next((f for f in FORMATS.values() if f.recognises(file, wanted)), None)
    if damage.named:
        return None
    if insisted is None and found is not None:
        return found
    is_log = file.is_given or file.path.suffix.lower() in _DATA_ENDINGS
    if found is None and is_log and not file.head:
        damage.add("the file", "it is empty")
    elif found is None and is_log and file.is_json and not file.first and (why := file.damage()):
        damage.add("the file", why)
    elif file.is_given:
        raise DataError(
            f"{file.name!r} has no known format of a log; known ones are {', '.join(FORMATS)}; a "
            "table has a row for each score, in a column that columns={'score': 'points'} names"
        )
    return None


def _read(file: LogFile, known: LogFormat, damage: Damage, wanted: Wanted) -> list[Run]:
    """Return the runs of a file; without any if it is unreadable as a whole."""
    runs: list[Run] = []
    with damage.at("the file"):
        runs += known.read(file, damage, wanted)
    if not runs and damage.named:
        runs.append(Run(file.name, "", NO_ROWS.frame(), unreadable=damage.named))
    return runs


def _on_others(names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return [f"Files that are not logs were not read: {', '.join(names[:10])}{more}."]
