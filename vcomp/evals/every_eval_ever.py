"""Every Eval Ever: instances, a line for each sample and metric, and aggregates of models."""

from __future__ import annotations

from collections.abc import Iterator
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

NAME = "every_eval_ever"

ALL_TASKS = "mean over tasks"
"""Name of the last result in aggregates of studies with several tasks."""

_OF_AGGREGATE = {"evaluation_id", "model_info", "evaluation_results"}

_KEYS = {"evaluation_id", "model_id", "evaluation_name", "sample_id", "evaluation"}


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether this is a sample, or the aggregate of a model."""
    return file.first.keys() >= _KEYS or file.first.keys() >= _OF_AGGREGATE


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the run of a file; lines of several runs may be mixed."""
    if file.first.keys() >= _OF_AGGREGATE:
        yield _read_aggregate(file, damage)
    else:
        yield _read_instances(file, damage, wanted)


def _read_aggregate(file: LogFile, damage: Damage) -> Run:
    """Return the scores of a model in tasks, which has no scores of items."""
    stored = file.first
    model = within(stored, "model_info", "id") or within(stored, "model_info", "name")
    evaluation = stored["evaluation_id"]
    rows = SampleRows(("task", "metric"), constant={"model": model, "run": evaluation})
    results = stored["evaluation_results"]
    if within(stored, "eval_library", "name") == "vcomp":  # the mean of the others is no task
        results = [r for r in results if within(r, "evaluation_name") != ALL_TASKS]
    for k, result in enumerate(results, 1):
        with damage.at(f"result {k}"):
            metric = within(result, "metric_config", "metric_name") or "score"
            task = mapping(result, "a result")["evaluation_name"]
            rows.add((task, metric), [within(result, "score_details", "score")])
    return Run(
        file.name,
        NAME,
        rows.frame(),
        identity=f"{model} {evaluation}",
        samples=len(results),
        unreadable=damage.named,
        notes=["Aggregates of Every Eval Ever have scores of tasks, not of items."],
    )


def _read_instances(file: LogFile, damage: Damage, wanted: Wanted) -> Run:
    rows = SampleRows((*_NAMES, *wanted.metadata))
    seen: set[tuple[Any, ...]] = set()
    failed: set[tuple[Any, ...]] = set()

    def add(line: dict[str, Any]) -> None:
        if missing := sorted(_KEYS - line.keys()):
            raise UnreadableError(f"there is no {missing[0]}")
        sample = (line["evaluation_id"], line["evaluation_name"], line["sample_id"])
        seen.add(sample)
        own = line.get("metadata") or {}
        result = (
            line["evaluation_id"], line["model_id"], line["evaluation_name"], line["sample_id"],
            content_hash(within(line, "input", "raw"), within(line, "input", "reference")),
            line.get("evaluation_result_id") or "score", own.get("filter"),
            int(own["epoch"]) if "epoch" in own else None,  # text, by the converter of Inspect
        )  # fmt: skip
        score = within(line, "evaluation", "score")
        if error := line.get("error"):
            failed.add(sample)
            score = Unscored(f"failed: {first_line(error)}")
        rows.add((*result, *(own.get(name) for name in wanted.metadata)), [score])

    file.objects(damage, add)
    return Run(
        file.name,
        NAME,
        rows.frame(),
        identity=NAME,  # the column of the run distinguishes rows
        samples=len(seen),
        failed=len(failed),
        unreadable=damage.named,
    )


_NAMES = ("evaluation", "model", "task", "item", "content", "metric", "filter", "epoch")
