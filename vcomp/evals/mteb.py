"""Results of MTEB: a file for each task, with a score for each split and subset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vcomp.evals.json_records import mapping
from vcomp.evals.log_files import Damage, LogFile
from vcomp.evals.run_rows import Run, SampleRows, Wanted, within

NAME = "mteb"


def recognises(file: LogFile, _: Wanted) -> bool:
    """Return whether this is the result of a task."""
    return "task_name" in file.first and isinstance(file.first.get("scores"), dict)


def read(file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
    """Yield the main scores of a task, which has no scores of items."""
    result, folder = file.first, file.path.absolute().parent
    meta = LogFile(folder / "model_meta.json", "model_meta.json").described
    # results/{model}/{revision}[/experiments/{experiment}]/{task}.json, with / in the model as __
    experiment = folder.name if folder.parent.name == "experiments" else None
    folder = folder if experiment is None else folder.parent.parent
    model = meta.get("name") or folder.parent.name.replace("__", "/")
    constant = {
        "model": model,
        "task": result["task_name"],
        "metric": "main_score",
        "revision": meta.get("revision") or folder.name,
        "experiment": experiment or "none",
    }
    rows = SampleRows(("split", "subset"), constant=constant)
    n = 0
    for split, scores in result["scores"].items():
        for k, one in enumerate(scores if isinstance(scores, list) else [scores], 1):
            with damage.at(f"{split}, score {k}"):
                score: dict[str, Any] = mapping(one, "a score")
                rows.add((split, score.get("hf_subset")), [within(score, "main_score")])
                n += 1
    yield Run(
        file.name,
        NAME,
        rows.frame(),
        identity=" ".join(map(str, constant.values())),
        samples=n,
        unreadable=damage.named,
        notes=["Results of MTEB have scores of tasks, not of items."],
    )
