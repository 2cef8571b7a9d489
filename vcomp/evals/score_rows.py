"""The rows of an evaluation: of logs or a table, of one metric, with a score."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vcomp import display
from vcomp.data import open_source
from vcomp.evals.item_names import on_same_items
from vcomp.evals.partitions import Partitions
from vcomp.evals.reading_logs import EvalLogs, PathOfLog, on_choices, read
from vcomp.evals.roles import (
    FIXED,
    JUDGE,
    METRICS_ARE_JUDGES,
    SAMPLED,
    Roles,
    check_column,
    copies,
    one_of_each_task,
    roles_of,
)
from vcomp.evals.run_rows import NOT_SCORED, named_within, number_or_problem, renamed
from vcomp.exceptions import DataError, PlanError, did_you_mean, warn

if TYPE_CHECKING:
    import pandas as pd

_OF_NUMBERS = {"integer", "floating", "mixed-integer-float", "boolean", "decimal"}

_REASONS = 3
"""Reasons that a sentence lists."""

_SHOWN = 10
"""Levels that an error lists."""

ScoresOfEval: TypeAlias = (
    "EvalLogs | pd.DataFrame | Mapping[str, Any] | PathOfLog | Iterable[PathOfLog]"
)


def scored_rows(
    scores: Any,
    score: str,
    metric: str | None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Return the rows of logs or a table that have a score of one metric, or of one in each task.

    Parameters
    ----------
    scores : logs, their paths, or a table
    score : column of the scores
    metric : which of several metrics
    columns : of logs that are read, and of tables: our name of a column → its name there
    where : the level, or levels, of some columns whose rows are kept
    """
    is_chosen = "metric" in (where or {})
    table = _of_metric(table_of(scores, columns, where), metric, is_chosen)
    return _in_numbers(_scored(table, score), score)


def opened(
    scores: Any,
    columns: Mapping[str, str] | None,
    where: Mapping[str, Any] | None,
    named: Iterable[Any],
) -> tuple[Any, Mapping[str, str] | None, Mapping[str, Any] | None]:
    """Return logs with the names of used columns, and the renames and levels that remain.

    Parameters
    ----------
    scores : logs, their paths, or a table, of any kind that fit() reads
    columns : our name of a column → its name there
    where : the level, or levels, of some columns whose rows are used
    named : columns that options name, each perhaps in others, as ``"task:item"``

    Raises
    ------
    PlanError
        If the levels are not given by columns.
    """
    import pandas as pd

    if where is not None and not isinstance(where, Mapping):
        raise PlanError(f"where is a mapping such as {{'filter': 'none'}}, not {where!r}")
    if not isinstance(scores, pd.DataFrame | EvalLogs) and (
        isinstance(scores, Mapping) or hasattr(type(scores), "columns")
    ):
        source = open_source(scores)  # of Arrow, Polars or DuckDB
        scores = source.read(source.columns)
    if isinstance(scores, pd.DataFrame):
        return scores, columns, where
    if not isinstance(scores, EvalLogs):
        scores, columns = read(scores, columns=columns), None
    parts = {x for name in named if isinstance(name, str) for x in [name, *name.split(":")]}
    scores = _in_words_of_files(scores, parts)
    for name in sorted(parts & set(scores.constants)):
        raise PlanError(
            f"column {name!r} has one level, {scores.constants[name]!r}: it distinguishes no "
            "scores, and was not read; leave it out",
            column=name,
        )
    if where:
        where = {n if n in scores.table else scores.names.get(n, n): v for n, v in where.items()}
    return scores, columns, where


def _in_words_of_files(logs: EvalLogs, wanted: set[str]) -> EvalLogs:
    """Return logs with columns by their names in the files, where these are wanted."""
    back = {
        ours: theirs
        for theirs, ours in logs.names.items()
        if theirs in wanted and theirs not in logs.table and ours not in wanted
    }
    if not back:
        return logs
    return replace(
        logs,
        table=logs.table.rename(columns=back),
        unscored=logs.unscored.rename(columns=back),
        names={theirs: back.get(ours, ours) for theirs, ours in logs.names.items()},
    )


def left_out(
    scores: Any, system: str, metric: str | None, where: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """Return sentences on samples of logs that have no score.

    Parameters
    ----------
    scores : logs, or a table, of which nothing is known
    system : column of the models
    metric : which of several metrics
    where : the level, or levels, of some columns whose rows are used
    """
    if not isinstance(scores, EvalLogs):
        return ()
    rows, said = scores.unscored, []
    if metric is not None and "metric" in rows:
        rows = rows[rows["metric"].isna() | (rows["metric"] == metric)]
    for name, given in (where or {}).items():
        if name in rows:
            rows = rows[rows[name].isna() | rows[name].astype(str).isin(_as_texts(given))]
    if len(rows):
        problems = rows["problem"].value_counts()
        reasons = [str(name) for name, n in problems.items() if n and name != NOT_SCORED]
        counts = rows[system].value_counts() if system in rows else problems
        parts = [f"{name} {display.count(n)}" for name, n in counts.items() if n]
        are = "row has" if len(rows) == 1 else "rows have"
        why = f" ({display.shortened(reasons, _REASONS)})" if reasons and system in rows else ""
        said.append(
            f"{display.count(len(rows))} {are} no score{why}: {display.shortened(parts, _SHOWN)}. "
            "If a model is more often without a score where it would be wrong, its score is too "
            "high."
        )
    missing = scores.report[scores.report["missing"] > 0]
    if len(missing):
        counts = missing.groupby("model")["missing"].sum()
        parts = [f"{name} {display.count(n)}" for name, n in counts.items()]
        listed = display.shortened(parts, _SHOWN)
        said.append(f"Results count samples that the logs do not have: {listed}.")
    unreadable = int(scores.report["unreadable"].sum())
    if unreadable:
        said.append(f"{display.counted(unreadable, 'sample')} cannot be read.")
    return tuple(said)


def notes_of(scores: Any, table: pd.DataFrame) -> tuple[str, ...]:
    """Return the notes on logs, without the advice on choices that a study has made.

    Parameters
    ----------
    scores : logs, or a table, of which nothing is known
    table : of the scores that are compared
    """
    notes, task = [], FIXED[0]
    if _n_levels(table, "metric") > 1:
        of_tasks = table[[task, "metric"]].drop_duplicates().to_numpy().tolist()
        listed = display.listed([f"{metric} of {name}" for name, metric in of_tasks])
        notes.append(f"The metrics are {listed}.")
    if isinstance(scores, EvalLogs):
        made = on_choices(scores.table)
        if _n_levels(table, task) == 1:
            made += on_same_items(scores.notes)
        notes += [note for note in scores.notes if note not in made]
    return tuple(notes)


def _n_levels(table: pd.DataFrame, name: str) -> int:
    return len(table[name].dropna().unique()) if name in table else 0


def lacking_scores(
    table: pd.DataFrame, roles: Roles, groups: Partitions, scores: Any
) -> tuple[str, ...]:
    """Return the sentence on models that lack items, or other samples, which others have.

    Parameters
    ----------
    table : a row for each score
    roles : of its columns
    groups : of the table
    scores : logs, whose rows without a score are said already, or a table
    """
    over, n_models = [c for c in roles.cell if c != roles.model], roles.levels[roles.model]
    groups = Partitions(table) if len(table) != groups.n_rows else groups
    all_of, n_cells = groups.n_groups(over), groups.n_groups([roles.model, *over])
    if n_cells in (all_of, n_models * all_of):
        return ()
    own = groups.n_of_each(roles.model, over)
    if isinstance(scores, EvalLogs) and roles.model in scores.unscored:
        rows = scores.unscored
        if "metric" in rows and "metric" in table:
            rows = rows[rows["metric"].isna() | rows["metric"].isin(table["metric"].unique())]
        counts = rows[roles.model].astype(object).value_counts()
        own = own + counts.reindex(own.index).fillna(0)
    lacks = (all_of - own).astype(int).sort_values(ascending=False, kind="stable")
    parts = [f"{name} {display.count(n)}" for name, n in lacks.items() if n > 0]
    if not parts:
        return ()
    of_items = next((f for f in roles.sampled if roles.levels[f] == all_of), "")
    what = display.levels_of(of_items) if of_items else f"combinations of {display.listed(over)}"
    listed = display.shortened(parts, _SHOWN)
    why = f"If a {roles.model} lacks those where it would be wrong, its score is too high."
    return (f"Of {display.count(all_of)} {what} these lack scores: {listed}. {why}",)


def with_unnamed_prompt(roles: Roles, scores: Any, table: pd.DataFrame) -> Roles:
    """Return roles with one prompt, of logs that name none.

    Parameters
    ----------
    roles : of the columns
    scores : logs, or a table, whose columns are all that is known
    table : of the scores
    """
    prompt = SAMPLED[1]
    is_log = isinstance(scores, EvalLogs) and (scores.report["format"] != "table").all()
    if not is_log or prompt in roles.levels or prompt in table:
        return roles
    return replace(roles, single=(*roles.single, prompt), levels={**roles.levels, prompt: 1})


def check_margin_of(margin: float | None, values: pd.Series) -> None:
    """Refuse a margin that no difference of scores exceeds.

    Parameters
    ----------
    margin : of differences, or None
    values : scores
    """
    if margin is None:
        return
    low, high = float(values.min()), float(values.max())
    if margin >= high - low:
        raise PlanError(
            f"margin={margin!r} is not less than the largest difference of scores, which are from "
            f"{display.number(low)} to {display.number(high)}: any model is within it"
        )


def column_names(option: str, given: Any) -> list[str]:
    """Return the columns that an option names."""
    names = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if not all(isinstance(name, str) for name in names):
        raise PlanError(f"{option} is a list of columns, not {given!r}")
    return names


def table_of(
    scores: Any,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Return the table of logs, of their paths, or itself.

    Parameters
    ----------
    scores : logs, their paths, or a table, of any kind that fit() reads
    columns : our name of a column → its name there
    where : the level, or levels, of some columns whose rows are kept
    """
    return _chosen(_whole_table(scores, columns), where)


def _chosen(table: pd.DataFrame, where: Mapping[str, Any] | None) -> pd.DataFrame:
    """Return the rows with some levels of columns."""
    whole = table
    for name, given in (where or {}).items():
        check_column(table, name)
        wanted = dict.fromkeys(_as_texts(given))
        levels = whole[name].dropna().unique()
        known = dict.fromkeys(map(str, levels))
        unknown = next((text for text in wanted if text not in known), None)
        if unknown is not None:
            raise PlanError(
                f"column {name!r} has no level {unknown!r}{did_you_mean(unknown, list(known))}; "
                f"it has {display.shortened(list(map(repr, known)), _SHOWN)}",
                column=name,
                level=unknown,
            )
        table = table[table[name].isin([level for level in levels if str(level) in wanted])]
    if where and table.empty:
        raise PlanError(f"no row has all of where={where!r}")
    return table


def _as_texts(given: Any) -> list[str]:
    """Return one or several levels as text, as they are on a command line."""
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    return list(map(str, given if several else [given]))


def _whole_table(scores: Any, columns: Mapping[str, str] | None) -> pd.DataFrame:
    import pandas as pd

    if isinstance(scores, EvalLogs):
        if columns:
            raise PlanError(
                "these logs were read without columns=…, which decides which items are the same: "
                "give it to vcomp.evals.read, or give the paths of the logs"
            )
        return scores.table
    if isinstance(scores, pd.DataFrame):
        if not scores.columns.is_unique:
            name = scores.columns[scores.columns.duplicated()][0]
            raise DataError(
                f"there are several columns {name!r}; name each differently", column=name
            )
        table = renamed(scores, columns or {})
        texts = {
            str(name): column.map(str, na_action="ignore")
            for name, column in table.items()
            if pd.api.types.infer_dtype(column).startswith("mixed")  # at once for columns of text
            and not all(isinstance(x, Hashable) for x in column)
        }
        return table.assign(**texts)  # as lists are read from files
    return read(scores, columns=columns).table


def _of_metric(table: pd.DataFrame, metric: str | None, is_chosen: bool) -> pd.DataFrame:
    """Return the scores of one metric, or of one in each task if metrics were chosen."""
    if "metric" not in table:
        if metric is not None:
            raise PlanError("there is no column 'metric' to choose from; leave metric= out")
        return table
    known = table["metric"].unique().tolist()
    if metric is None and len(known) > 1:
        by_task = one_of_each_task(table, "metric")
        if is_chosen and set(by_task) == set(known):
            return table
        of_tasks = f"; or one of each task, where={{'metric': {by_task}}}" if by_task[1:] else ""
        raise DataError(
            f"the table has several metrics; name one, metric=… of {', '.join(map(repr, known))}"
            f"{of_tasks}{'' if JUDGE in table else f'; or, {METRICS_ARE_JUDGES}'}",
            column="metric",
        )
    if metric is not None and metric not in known:
        raise PlanError(
            f"there is no metric {metric!r}; there are {', '.join(map(repr, known))}",
            column="metric",
        )
    return table if metric is None else table[table["metric"] == metric]


def _scored(table: pd.DataFrame, score: str) -> pd.DataFrame:
    """Return the rows that have a score."""
    if score not in table or not table[score].isna().any():
        return table
    kept = table[table[score].notna()]
    missing = display.count(len(table) - len(kept))
    warn(f"{missing} of {display.count(len(table))} rows have no {score} and were left out")
    return kept


def _in_numbers(table: pd.DataFrame, score: str) -> pd.DataFrame:
    """Return the table with NumPy's numbers as scores, if they are numbers of any type."""
    from pandas import CategoricalDtype
    from pandas.api.types import infer_dtype

    if score not in table or table[score].dtype in (float, int, bool):
        return table
    values = table[score]
    if isinstance(values.dtype, CategoricalDtype):  # a column of a file, which has text
        known = {level: number_or_problem(level) for level in values.cat.categories}
        if all(problem is None for _, problem in known.values()):
            values = values.map({level: number for level, (number, _) in known.items()})
    values = values.astype(object)
    if infer_dtype(values) not in _OF_NUMBERS:
        return table
    return table.assign(**{score: values.astype(float)})


def of_known_levels(
    table: pd.DataFrame, groups: Partitions, named: Iterable[str]
) -> tuple[pd.DataFrame, Partitions]:
    """Return the rows that have a level of all columns that errors depend on, and their groups.

    Parameters
    ----------
    table : a row for each score
    groups : of the table
    named : columns that options name
    """
    names = dict.fromkeys([*named, *(c for c in (*SAMPLED, *FIXED) if c in table)])
    lacking = [c for c in names if c in table and groups.has_missing(c) and groups.n_levels(c) > 1]
    if not lacking:
        return table, groups
    is_known = table[lacking].notna()
    kept = table[is_known.all(axis=1)]
    parts = ", ".join(f"{name} {display.count(n)}" for name, n in (~is_known).sum().items())
    n_rows = f"{display.count(len(table) - len(kept))} of {display.count(len(table))} rows"
    warn(f"{n_rows} have a missing value ({parts}) and were left out")
    return kept, Partitions(kept)


def sampled_levels(table: pd.DataFrame, sampled: Any) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with levels that are sampled in each level of others, and the columns.

    Parameters
    ----------
    table : a row for each score
    sampled : columns; ``"task:item"`` is items of which each task has others

    Raises
    ------
    PlanError
        If there is no such column.
    """
    names = []
    for given in column_names("sampled", sampled):
        *outer, name = [given] if given in table else given.split(":")
        names += [name] if not outer or name not in SAMPLED else []
        for column in outer:
            check_column(table, column)
            check_column(table, name)
            known = table[[column, name]].notna().all(axis=1).to_numpy()
            table = table.assign(**{name: named_within(table, column, name, known)})
    return table, names


def distinct(table: pd.DataFrame, roles: Roles, groups: Partitions) -> tuple[pd.DataFrame, Roles]:
    """Return one of each repetition if all are equal, and the roles of what remains.

    Parameters
    ----------
    table : a row for each score
    roles : of its columns
    groups : of the table

    Raises
    ------
    DataError
        If rows are copies of others.
    """
    is_repeated = groups.n_groups(roles.cell) < len(table)
    if not (is_repeated and groups.are_constant(table[roles.score], roles.cell)):
        return table, roles
    repeated = groups.repeated(roles.cell)
    if not roles.repetition:
        raise DataError(copies(repeated, roles.cell))
    table = table[~repeated]
    sampled = (*roles.sampled, *roles.single)
    left = roles_of(table, roles.model, roles.score, sampled, roles.fixed)
    return table, replace(left, identical=roles.repetition)


def _of_equal(value: float, table: pd.DataFrame, roles: Roles, alpha: float) -> str:
    """Return the exact limit of a mean of scores that are all right or all wrong, in words."""
    if value not in (0.0, 1.0):
        return ""
    items = max(roles.sampled, key=lambda f: roles.levels[f])
    n = int(table.groupby(roles.model, observed=True)[items].nunique().min())
    limit = (0.5 * alpha) ** (1.0 / n)
    end = f"least {display.number(limit)}" if value else f"most {display.number(1.0 - limit)}"
    return (
        f"; by {display.counted(n, items)}, if they are independent, the true mean of a "
        f"{roles.model} is at {end} ({display.level(alpha)})"
    )


def _check_words(score: pd.Series, name: str) -> None:
    """Refuse a few words in place of numbers; other text is refused as a response."""
    words = score.unique()
    if len(words) > _SHOWN or not all(isinstance(w, str) and w.isalpha() for w in words):
        return
    listed = ", ".join(f"{word!r}: …" for word in sorted(words))
    raise DataError(
        f"the {name}s are words, such as {words[0]!r}; give each a number: "
        f"table[{name!r}] = table[{name!r}].map({{{listed}}})",
        column=name,
    )


def check_varying(table: pd.DataFrame, roles: Roles, groups: Partitions, alpha: float) -> None:
    """Refuse scores that show no errors.

    Parameters
    ----------
    table : a row for each score
    roles : of its columns
    groups : of the table
    alpha : of the limit of scores that are all right or all wrong

    Raises
    ------
    DataError
        If scores are words, all are equal, those of each model are, or any two models differ by a
        constant.
    """
    score = table[roles.score]
    if score.dtype.kind not in "fiub":
        _check_words(score, roles.score)
        return
    if score.min() == score.max():
        value = float(score.iloc[0])
        raise DataError(
            f"all scores are {display.number(value)}: they show neither differences nor errors"
            f"{_of_equal(value, table, roles, alpha)}",
            column=roles.score,
        )
    if groups.are_constant(score, [roles.model, *roles.fixed]):
        raise DataError(
            f"all scores of each {' and '.join([roles.model, *roles.fixed])} are equal: they show "
            "differences, but no errors",
            column=roles.score,
        )
    others = [name for name in roles.cell if name != roles.model]
    n = roles.levels[roles.model]
    if n == 1 or groups.n_groups(others) * n != len(table):
        return
    differences = score - score.groupby([table[name] for name in others], observed=True).transform(
        "mean"
    )
    rounded = np.round(differences / float(np.abs(score).max()), 12)
    if groups.are_constant(rounded, [roles.model]):
        raise DataError(
            f"any two {display.levels_of(roles.model)} differ by the same amount on every "
            f"{' and '.join(others)}: the differences show no errors; if they do not differ, was "
            "a run read under two names?",
            column=roles.score,
        )
