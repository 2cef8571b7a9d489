"""Instances of Every Eval Ever: a line for each sample and metric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vcomp.evals.damage import Damage, UnreadableError
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

NAME = "every_eval_ever"

_KEYS = {"evaluation_id", "model_id", "evaluation_name", "sample_id", "evaluation"}


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether this is a sample."""
    return file.first.keys() >= _KEYS


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the run of a file; lines of several runs may be mixed."""
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
        )  # fmt: skip
        score, problem = number_or_problem(within(line, "evaluation", "score"))
        if error := line.get("error"):
            failed.add(sample)
            score, problem = float("nan"), f"failed: {first_line(error)}"
        rows.add(*result, score, problem, *(own.get(name) for name in wanted.metadata))

    file.objects(damage, add)
    yield Run(
        file.name,
        NAME,
        rows.frame(),
        identity=NAME,  # the column of the run distinguishes rows
        samples=len(seen),
        failed=len(failed),
        unreadable=damage.named,
    )


_NAMES = (
    "evaluation", "model", "task", "item", "content", "metric", "filter", "score", "problem",
)  # fmt: skip
