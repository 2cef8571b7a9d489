"""Names of items in logs: equal ones mean equal items, also in other runs and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray
from vcomp.evals.run_rows import named_within

if TYPE_CHECKING:
    import pandas as pd


def with_names(rows: pd.DataFrame, is_log: BoolArray) -> tuple[pd.DataFrame, list[str]]:
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
        found, notes = with_names(rows.assign(task=one), is_log)
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


_SAME_ITEMS = (
    "the same items. If they are forms of one prompt, read them with columns={'prompt': 'task'}."
)


def on_same_items(notes: Sequence[str]) -> list[str]:
    """Return the notes on tasks with the same items.

    Parameters
    ----------
    notes : on logs
    """
    return [note for note in notes if note.endswith(_SAME_ITEMS)]


def _same_items(known: pd.DataFrame) -> list[str]:
    """Return the advice on tasks with the same items, which may be forms of a prompt."""
    tasks: dict[frozenset[int], list[str]] = {}
    for task, own in known.groupby("task", observed=True)["content"]:
        tasks.setdefault(frozenset(own), []).append(repr(str(task)))
    return [
        f"The tasks {display.listed(alike)} have {_SAME_ITEMS}"
        for alike in tasks.values()
        if len(alike) > 1
    ]
