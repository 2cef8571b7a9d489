"""Logs of OpenAI evals: a line for each event of a sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vcomp.evals.json_records import UnreadableError, mapping
from vcomp.evals.log_files import Damage, LogFile
from vcomp.evals.run_rows import (
    NOT_SCORED,
    Run,
    SampleRows,
    Unscored,
    Wanted,
    first_line,
    within,
)

NAME = "openai_evals"


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether the first line is the specification of a run, or an event."""
    first = file.first
    return "eval_name" in (first.get("spec") or {}) or (
        {"run_id", "event_id", "sample_id", "type", "data"} <= first.keys()
    )


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the run of a log."""
    spec = file.first.get("spec") or {}
    models = spec.get("completion_fns") or [within(spec, "model")]
    constant = {
        "model": "+".join(str(m) for m in models if m is not None) or None,
        "task": spec.get("eval_name"),
        "seed": within(spec, "run_config", "seed"),
        "run": spec.get("run_id"),
    }
    events = _Events(SampleRows(("item", "metric", "epoch"), constant=constant))
    file.objects(damage, events.add)
    events.end()
    yield Run(
        file.name,
        NAME,
        events.rows.frame(),
        identity=str(spec.get("run_id") or file.name),
        order=str(spec.get("created_at", "")),
        samples=len(events.scored),
        failed=events.failed,
        unreadable=damage.named,
        notes=[] if events.has_ended else ["The run did not end: it has no final report."],
    )


class _Events:
    """Rows of the events that score a sample."""

    def __init__(self, rows: SampleRows) -> None:
        self.rows = rows
        self.scored: dict[Any, dict[str, int]] = {}
        self.failed, self.has_ended = 0, False
        self._errors: dict[Any, str] = {}

    def add(self, line: dict[str, Any]) -> None:
        """Add the scores of an event."""
        if "spec" in line or "final_report" in line:
            self.has_ended |= "final_report" in line
            return
        if "sample_id" not in line or "type" not in line:
            raise UnreadableError("there is no sample_id or type")
        item, kind = line["sample_id"], line["type"]
        if item is None:
            return
        counts = self.scored.setdefault(str(item), {})
        data = line.get("data")
        if kind == "match":
            self._score(item, "match", mapping(data, "data").get("correct"), counts)
        elif kind == "metrics":
            for name, value in mapping(data, "data").items():
                self._score(item, name, value, counts)
        elif kind == "error":
            self.failed += 1
            self._errors[str(item)] = first_line(within(data, "message") or within(data, "type"))

    def _score(self, item: Any, metric: str, value: Any, counts: dict[str, int]) -> None:
        counts[metric] = counts.get(metric, 0) + 1
        self.rows.add((item, metric, counts[metric]), [value])

    def end(self) -> None:
        """Add the samples without a score."""
        for item, counts in self.scored.items():
            if not counts:
                error = self._errors.get(item)
                why = NOT_SCORED if error is None else f"failed: {error}"
                self.rows.add((item, None, 1), [Unscored(why)])
