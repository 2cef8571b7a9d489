"""Read logs of evaluations, whatever framework wrote them.

``FORMATS`` lists the formats in the order in which they are tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, Protocol, TypeAlias

from vcomp import display
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
from vcomp.evals.assembling import EvalLogs, assemble
from vcomp.evals.damage import Damage
from vcomp.evals.log_files import LogFile, found_logs
from vcomp.evals.run_rows import COLUMNS, NO_ROWS, Run, Wanted
from vcomp.exceptions import DataError, check_one_of, did_you_mean, guarded


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
            if helm.is_beside(file):
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
            why.append("(scores are numbers, or true and false)")
        raise DataError("there are no scores in the logs: " + (" ".join(why) or "they are empty"))
    return logs


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
    elif found is None and is_log and file.is_json and not file.first and file.document is None:
        damage.add("the file", file.place_of_damage())
    elif file.is_given:
        raise DataError(
            f"{file.name!r} has no known format of a log; known ones are {', '.join(FORMATS)}, "
            "and a table needs a column of scores, which columns={'score': 'points'} names"
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
