"""Aggregates of Every Eval Ever: scores of models with their uncertainty, a file a model."""

from __future__ import annotations

import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any

from vcomp import __version__, data
from vcomp.evals.every_eval_ever import ALL_TASKS
from vcomp.evals.next_data import EvalStudy
from vcomp.evals.roles import FIXED
from vcomp.exceptions import DataError

_SCHEMA = "0.3.0"


def aggregates(study: EvalStudy, organization: str) -> list[dict[str, Any]]:
    """Return the aggregate of each model, in the order of the scores.

    Parameters
    ----------
    study : of an evaluation
    organization : that evaluated
    """
    now = str(int(time.time()))
    by_task = _by_task(study)
    return [
        {
            "schema_version": _SCHEMA,
            "evaluation_id": f"{'+'.join(map(str, by_task)) or 'evaluation'}/{model}/{now}",
            "retrieved_timestamp": now,
            "source_metadata": {
                "source_type": "evaluation_run",
                "source_organization_name": organization,
                "evaluator_relationship": "other",
            },
            "eval_library": {"name": "vcomp", "version": __version__},
            "model_info": {
                "name": str(model),
                "id": str(model),
                "additional_details": {
                    "deployment_type": "unknown",
                    "model_availability": "unknown",
                },
            },
            "evaluation_results": _results(study, model, by_task),
        }
        for model in study.table.index
    ]


def _by_task(study: EvalStudy) -> dict[Any, Any]:
    """Return the scores of each task; none where a study has one or takes tasks as sampled."""
    if FIXED[0] not in study.roles.fixed:
        return {}
    scores = study.by_task
    if study.comparisons is None:
        return {task: scores.loc[[task]].set_axis(study.table.index) for task in scores.index}
    tasks = scores.index.get_level_values(0).unique()
    return {task: scores.xs(task) for task in tasks}


def _results(study: EvalStudy, model: Any, by_task: dict[Any, Any]) -> list[dict[str, Any]]:
    own = study.data[study.data[study.roles.model].astype(str) == str(model)]
    task = FIXED[0]
    found = [
        _result(study, str(name), scores.loc[model], int((own[task] == name).sum()))
        for name, scores in by_task.items()
    ]
    tasks = own[task].unique() if task in own else []
    name = str(tasks[0]) if len(tasks) == 1 else ALL_TASKS if by_task else "evaluation"
    return [*found, _result(study, name, study.table.loc[model], len(own))]


def _result(study: EvalStudy, name: str, row: Any, n: int) -> dict[str, Any]:
    roles = study.roles
    metric: dict[str, Any] = {"lower_is_better": False}
    if "metric" in study.data:
        metric["metric_name"] = str(study.data["metric"].iloc[0])
    if study.data[roles.score].isin([0.0, 1.0]).all():
        metric["score_type"] = "binary"
    over = " and ".join(roles.sampled)
    uncertainty: dict[str, Any] = {"num_samples": n}
    if math.isfinite(row["std_error"]):
        uncertainty["standard_error"] = {
            "value": float(row["std_error"]),
            "method": f"mixed model, sampled: {over}",
        }
    if math.isfinite(row["low"]) and math.isfinite(row["high"]):
        uncertainty["confidence_interval"] = {
            "lower": float(row["low"]),
            "upper": float(row["high"]),
            "confidence_level": 1.0 - study.alpha,
            "method": f"t with {float(row['df']):.4g} degrees of freedom",
        }
    return {
        "evaluation_name": name,
        "source_data": {"dataset_name": name, "source_type": "other"},
        "metric_config": metric,
        "score_details": {"score": float(row["mean"]), "uncertainty": uncertainty},
    }


def write_aggregates(documents: list[dict[str, Any]], folder: str | os.PathLike[str]) -> None:
    """Write a file for each model.

    Parameters
    ----------
    documents : of :func:`aggregates`
    folder : which is made if there is none

    Raises
    ------
    DataError
        If the folder cannot be made, or a file cannot be written.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the folder {str(target)!r} cannot be made: {error.strerror}") from None
    taken: set[str] = set()
    for document in documents:
        plain = re.sub(r"[^\w.-]", "_", document["model_info"]["id"]).lstrip(".") or "model"
        names = (plain if k == 1 else f"{plain}-{k}" for k in range(1, len(documents) + 1))
        name = next(name for name in names if name.lower() not in taken)
        taken.add(name.lower())
        text = json.dumps(document, ensure_ascii=False, indent=1)
        with data.replacing(target / f"{name}.json") as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
