"""Logs of promptfoo: the JSON export, its rows as lines, or its CSV with a column an output."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vcomp.evals.json_records import UnreadableError, mapping
from vcomp.evals.log_files import Damage, LogFile
from vcomp.evals.run_rows import (
    Run,
    SampleRows,
    Unscored,
    Wanted,
    content_hash,
    first_line,
    within,
)

NAME = "promptfoo"

_ERROR = 2
"""failureReason of a row that has no answer; 1 is an assertion that does not hold."""


_OUTPUT = re.compile(r"\[(?P<provider>.+?)\] (?P<prompt>.*)", re.DOTALL)
"""Head of a column of outputs."""

_CELL = re.compile(r"\[(?P<how>PASS|FAIL|ERROR)\](?: \((?P<score>-?[\d.]+)(?P<named>, [^)]*)?\))?")
"""Beginning of an output: whether it passed, its score and the named ones, if it has any."""


_BEHIND = ["Status", "Score", "Named Scores"]
"""Columns behind each output, since 2026; before, its cell began with them."""


_NO_REASON = "the CSV does not say why"


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether this is an export, or a row."""
    if not (file.is_json or file.is_zip or file.is_parquet):
        return _is_csv(file)
    first = file.first
    is_row = {"promptIdx", "testIdx", "provider"} <= first.keys()
    return is_row or isinstance(within(first, "results", "results"), list)


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the run of an export."""
    if not file.is_json:
        yield _read_csv(file, damage, wanted)
        return
    if "results" not in file.first:
        rows = _Rows(_samples(wanted, {"task": file.path.stem}), wanted.metadata, None)
        file.objects(damage, rows.add)
        identity, order = file.name, ""
    else:
        export = file.first
        task = within(export, "config", "description") or file.path.stem
        run = export.get("evalId")
        constant = {"task": task, "run": run}
        rows = _Rows(_samples(wanted, constant), wanted.metadata, _repeats(export))
        for k, row in enumerate(file.records(), 1):
            with damage.at(f"row {k}"):
                rows.add(mapping(row, "a row"))
        identity, order = str(run or file.name), str(within(export, "results", "timestamp"))
    yield Run(
        file.name,
        NAME,
        rows.rows.frame(),
        identity=identity,
        order=order,
        samples=rows.n,
        failed=rows.failed,
        unreadable=damage.named,
    )


def _is_csv(file: LogFile) -> bool:
    """Return whether a table has columns of outputs, and these begin as outputs do."""
    with file.opened() as stream:
        if b"[" not in stream.readline(1 << 20):
            return False
    rows = _lines(file)
    try:
        heads, row = next(rows, []), next(rows, [])
    except UnreadableError:  # of other formats, or none
        return False
    if _with_status(heads):
        return True
    found = [cell for head, cell in zip(heads, row, strict=False) if _OUTPUT.match(head)]
    return any(_CELL.match(cell) for cell in found)


def _lines(file: LogFile) -> Iterator[list[str]]:
    """Yield the rows of a table, whose cells may have several lines.

    Raises
    ------
    UnreadableError
        If a row is not CSV.
    """
    with file.opened() as stream:
        try:
            yield from csv.reader(str(line, "utf-8-sig", "replace") for line in stream)
        except csv.Error as error:
            raise UnreadableError(f"it is not CSV ({error})") from None


def _with_status(heads: list[str]) -> dict[int, re.Match[str]]:
    """Return the columns of outputs whose status is in the next column."""
    found = {k: _OUTPUT.match(head) for k, head in enumerate(heads)}
    return {k: at for k, at in found.items() if at and heads[k + 1 : k + 4] == _BEHIND}


def _outputs(file: LogFile) -> dict[int, re.Match[str]]:
    """Return the columns of outputs, with the parts of their heads.

    A variable may have such a head too. Outputs are behind the variables, and one of the first has
    a cell that begins as outputs do.
    """
    lines = _lines(file)
    names = next(lines, [])
    if found := _with_status(names):
        return found
    heads = [_OUTPUT.match(head) for head in names]
    named = [k for k, head in enumerate(heads) if head]
    first = max(named, default=0)
    for line in lines:
        of_outputs = (k for k in named if k < min(first, len(line)) and _CELL.match(line[k]))
        first = next(of_outputs, first)
        if first == named[0]:
            break
    return {k: head for k, head in enumerate(heads) if head and k >= first}


def _read_csv(file: LogFile, damage: Damage, wanted: Wanted) -> Run:
    """Return the scores of the outputs; promptfoo rounds them to two decimals there."""
    rows = _Rows(_samples(wanted, {"task": file.path.stem}), wanted.metadata, None)
    outputs = _outputs(file)
    lines = _lines(file)
    heads = next(lines)
    has_status = bool(_with_status(heads))
    for test, line in enumerate(lines):
        with damage.at(f"row {test + 1}"):
            if len(line) != len(heads):
                raise UnreadableError(f"{len(line)} fields instead of {len(heads)}")
            asked = {head: line[k] for k, head in enumerate(heads[: min(outputs)])}
            for k, head in outputs.items():
                output = _in_columns(line[k : k + 4]) if has_status else _in_cell(line[k])
                if output is not None:
                    prompt = {"raw": head["prompt"]}
                    known = {"testIdx": test, "provider": head["provider"], "prompt": prompt}
                    rows.add({**known, "vars": asked, **output})
    return Run(
        file.name,
        NAME,
        rows.rows.frame(),
        identity=file.name,
        samples=rows.n,
        failed=rows.failed,
        unreadable=damage.named,
    )


def _in_cell(text: str) -> dict[str, Any] | None:
    """Return the result of an output whose text begins with it."""
    cell = _CELL.match(text)
    if cell is None:
        if text.strip():
            raise UnreadableError(f"an output begins {text[:20]!r}, not [PASS] (1.00)")
        return None
    named = [part.rpartition(": ") for part in (cell["named"] or "").split(", ")[1:]]
    score = cell["score"] or float(cell["how"] == "PASS")
    why = text[cell.end() :].strip()
    return _result(cell["how"], score, {name: value for name, _, value in named}, why)


def _in_columns(cells: list[str]) -> dict[str, Any] | None:
    """Return the result of an output that has columns behind it."""
    text, how, score, named = cells
    if not how:
        return None
    if how not in ("PASS", "FAIL", "ERROR"):
        raise UnreadableError(f"the status of an output is {how!r}, not PASS, FAIL or ERROR")
    return _result(
        how, score, mapping(json.loads(named or "{}"), "named scores"), text or _NO_REASON
    )


def _result(how: str, score: Any, named: Mapping[str, Any], why: str) -> dict[str, Any]:
    """Return the result of an output as a row of the export has it."""
    failed = how == "ERROR"
    return {
        "score": score,
        "namedScores": named,
        "failureReason": _ERROR if failed else 0,
        "error": why if failed else None,
    }


def _samples(wanted: Wanted, constant: Mapping[str, Any]) -> SampleRows:
    return SampleRows((*_Rows.NAMES, *wanted.metadata), ("metric",), constant)


def _repeats(export: Mapping[str, Any]) -> int | None:
    """Return how often each test was run; None if the export does not have the options."""
    places = ("runtimeOptions",), ("config", "evaluateOptions"), ("config", "commandLineOptions")
    found = (within(export, *place, "repeat") for place in places)
    default = 1 if "runtimeOptions" in export else None
    return next((n for n in found if isinstance(n, int) and n > 0), default)


class _Rows:
    """Rows of the table for the rows of an export."""

    NAMES = ("model", "provider", "prompt", "item", "epoch", "content")

    def __init__(self, rows: SampleRows, metadata: tuple[str, ...], repeats: int | None) -> None:
        self.rows, self.n, self.failed = rows, 0, 0
        self._metadata, self._repeats = metadata, repeats
        self._items: dict[int, int] = {}
        self._times: dict[tuple[Any, ...], int] = {}

    def add(self, row: dict[str, Any]) -> None:
        """Add the scores of a row: the whole one, and the named ones."""
        test = row.get("testIdx")
        if not isinstance(test, int):
            raise UnreadableError(f"testIdx is {test!r}")
        provider = row.get("provider")
        identity = provider.get("id") if isinstance(provider, dict) else provider
        model = within(provider, "label") or identity
        prompt = row.get("promptId") or content_hash(within(row, "prompt", "raw"))
        asked = row.get("vars") or {}
        content = content_hash(asked)
        item, epoch = self._place(test, (identity, model, prompt, content))
        content = content if asked else 0
        more = [asked.get(name) for name in self._metadata]
        sample = (model, identity, prompt, item, epoch, content, *more)
        self.n += 1
        if row.get("failureReason") == _ERROR or (
            row.get("error") and not row.get("gradingResult")
        ):
            self.failed += 1
            why = f"failed: {first_line(row.get('error') or '')}"
            self.rows.add(sample, [Unscored(why)], ((None,),))
            return
        scores = {"score": row.get("score"), **(row.get("namedScores") or {})}
        self.rows.add(sample, [*scores.values()], tuple((metric,) for metric in scores))

    def _place(self, test: int, key: tuple[Any, ...]) -> tuple[int, int]:
        """Return item and repetition: tests are numbered on over repetitions.

        Rows without their export, and exports without the options of the run, lack the number of
        repetitions; equal provider, prompt and variables are repetitions there.
        """
        if self._repeats is not None:
            return test // self._repeats, test % self._repeats + 1
        self._times[key] = self._times.get(key, 0) + 1
        return self._items.setdefault(key[-1], test), self._times[key]
