"""Logs of promptfoo: the JSON export, or its rows as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vcomp.evals.damage import Damage, UnreadableError, mapping
from vcomp.evals.log_files import LogFile
from vcomp.evals.run_rows import (
    Run,
    SampleRows,
    Wanted,
    content_hash,
    first_line,
    number_or_problem,
    within,
)

NAME = "promptfoo"

_ERROR = 2
"""failureReason of a row that has no answer; 1 is an assertion that does not hold."""


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether this is an export, or a row."""
    first = file.first
    is_row = {"promptIdx", "testIdx", "provider"} <= first.keys()
    return is_row or isinstance(within(first, "results", "results"), list)


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the run of an export."""
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
        for k, row in enumerate(export["results"]["results"], 1):
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


def _samples(wanted: Wanted, constant: Mapping[str, Any]) -> SampleRows:
    return SampleRows((*_Rows.NAMES, *wanted.metadata), constant)


def _repeats(export: Mapping[str, Any]) -> int:
    """Return how often each test was run."""
    places = (
        ("runtimeOptions", "repeat"),
        ("config", "evaluateOptions", "repeat"),
        ("config", "commandLineOptions", "repeat"),
    )
    found = (within(export, *place) for place in places)
    return next((n for n in found if isinstance(n, int) and n > 0), 1)


class _Rows:
    """Rows of the table for the rows of an export."""

    NAMES = (
        "model", "provider", "prompt", "item", "epoch", "content", "metric", "score", "problem",
    )  # fmt: skip

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
        more = [asked.get(name) for name in self._metadata]
        first = (model, identity, prompt, item, epoch, content)
        self.n += 1
        if row.get("failureReason") == _ERROR or (
            row.get("error") and not row.get("gradingResult")
        ):
            self.failed += 1
            why = f"failed: {first_line(row.get('error') or '')}"
            self.rows.add(*first, None, float("nan"), why, *more)
            return
        for metric, value in {"score": row.get("score"), **(row.get("namedScores") or {})}.items():
            self.rows.add(*first, metric, *number_or_problem(value), *more)

    def _place(self, test: int, key: tuple[Any, ...]) -> tuple[int, int]:
        """Return item and repetition: tests are numbered on over repetitions.

        Rows without their export lack the number of repetitions; equal provider, prompt and
        variables are repetitions there.
        """
        if self._repeats is not None:
            return test // self._repeats, test % self._repeats + 1
        self._times[key] = self._times.get(key, 0) + 1
        return self._items.setdefault(key[-1], test), self._times[key]
