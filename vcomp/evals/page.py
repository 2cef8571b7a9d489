"""Forms of an evaluation: its printed page, the same as JSON, and aggregates of Every Eval Ever.

Aggregates are scores of models with their uncertainty, a file a model.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vcomp import __version__, data, display
from vcomp.codec import Format
from vcomp.data import InJson
from vcomp.evals.every_eval_ever import ALL_TASKS
from vcomp.evals.next_data import (
    POWER,
    EvalStudy,
    as_estimated,
    found_difference,
    found_in_data,
    named_test,
)
from vcomp.evals.prices import replicated
from vcomp.evals.roles import FIXED, Roles, of_lacking
from vcomp.evals.unknown_effects import Unknown
from vcomp.exceptions import DataError, PlanError, visible
from vcomp.formula import REPLICATE, RESIDUAL

if TYPE_CHECKING:
    import pandas as pd

_SCHEMA = "0.3.0"

_MOST_TASKS = 6
"""Tasks whose scores are printed."""

_MOST_PAIRS = 10
"""Pairs that are printed; of more models those next to each other in rank."""

_MOST_LISTED = 40
"""Models that are printed."""


_WIDTH, _WIDTH_IN_PAIRS = 40, 28
"""Characters of a name in a table, and of each of two."""

_FEW_DF = 5
"""Degrees of freedom below which the page says why they are few."""


def printed(study: EvalStudy) -> Any:
    """Return the printable page: tables of scores and noise, and sentences.

    Parameters
    ----------
    study : of an evaluation
    """
    shown = study.table.head(_MOST_LISTED)
    cells = {
        "score": display.fixed(shown["mean"]),
        "std. err.": display.fixed(shown["std_error"], significant=3),
        f"{display.level(study.alpha)} interval": display.short_intervals(
            shown["low"], shown["high"]
        ),
    }
    if study.comparisons is not None:
        ends = zip(shown["rank_low"], shown["rank_high"], strict=True)
        cells["rank"] = [display.count(r) for r in shown["rank"]]
        cells["ranks"] = [str(a) if a == b else f"{a} to {b}" for a, b in ends]
        cells["P(best)"] = list(map(_probability, shown["p_best"]))
    stubs = _short(shown.index)
    tables = [display.column_table(cells, title=study.title, stubs=stubs)]
    few = 1 < study.roles.levels.get(FIXED[0], 0) <= _MOST_TASKS
    if few and (study.roles.fixed == FIXED or _drew_tasks(study)):
        tables.append(_table_of_tasks(study, shown.index))
    if study.comparisons is not None:
        tables.append(_table_of_pairs(study))
    tables.append(_table_of_noise(study))
    if study.comparisons is not None:
        tables.append(_table_of_more(study))
    said = [study.verdict, _on_pairs(study), _on_intervals(study)]
    if len(study.table) > _MOST_LISTED:
        said.append(f"{len(study.table) - _MOST_LISTED:,} more are not listed; the table has all.")
    if study.not_compared:
        said.append(f"Not compared: {of_lacking(study.roles, study.not_compared, study.data)}.")
    said += [study.same_quality, *study.roles.sentences(study.task_shares), *study.left_out]
    said += study.notes[:_MOST_LISTED]
    said += [*study.contradictions, *study.next_data, *map(str, study.unknown)]
    return display.summary(tables, [visible(sentence) for sentence in said if sentence])


def _short(names: Iterable[Any], width: int = _WIDTH) -> list[str]:
    """Return names for a table, of long ones the end, unless they are alike then."""
    whole = [visible(str(name)) for name in names]
    short = [x if len(x) <= width else f"…{x[1 - width :]}" for x in whole]
    return short if len(set(short)) == len(set(whole)) else whole


def _probability(p: float) -> str:
    """Return a probability in per cent; none is shown as 0 or 100 % by rounding."""
    if 0.0 <= p < 0.0005:
        return "below 0.1 %"
    return "above 99.9 %" if p > 0.9995 else display.percent(p)


def _drew_tasks(study: EvalStudy) -> bool:
    """Return whether tasks are sampled, and models have means in each."""
    return FIXED[0] in study.roles.sampled and study.comparisons is not None


def _table_of_more(study: EvalStudy) -> Any:
    """Return the printed table of what more data would do to the error of a difference."""
    more = study.more_data
    cells = {
        "std. err.": display.fixed(more["std_error"], significant=3),
        "ratio": display.fixed(more["ratio"], decimals=2),
    }
    title = f"Standard error of a difference between two {display.levels_of(study.roles.model)}"
    return display.column_table(cells, title=title, stubs=list(more.index))


def _table_of_tasks(study: EvalStudy, models: Any) -> Any:
    """Return the printed table of scores by task, with their errors."""
    scores, cells = study.by_task, {}
    one = study.comparisons is None
    for task in dict.fromkeys(scores.index if one else scores.index.get_level_values(0)):
        of_task = scores.loc[[task]] if one else scores.xs(task).reindex(models)
        errors = display.fixed(of_task["std_error"], significant=2)
        means = display.fixed(of_task["mean"], significant=3)
        both = zip(means, errors, strict=True)
        cells[visible(str(task))] = [f"{mean} ({error})" for mean, error in both]
    stubs = _short(models)
    title = "Scores by task (std. err.)"
    if _drew_tasks(study):
        title = "Means by task (std. err. given the task)"
    return display.column_table(cells, title=title, stubs=stubs)


def _table_of_pairs(study: EvalStudy) -> Any:
    """Return the printed table of all pairs, of many models of neighbours in rank."""
    pairs, place = study.comparisons.table, {m: k for k, m in enumerate(study.table.index)}
    ends = pairs[["first", "second"]].map(place.get).to_numpy()
    rank, sign = np.sort(ends, axis=1), np.where(ends[:, 0] < ends[:, 1], 1.0, -1.0)
    order = np.lexsort(rank.T[::-1])
    if len(pairs) > _MOST_PAIRS:
        order = order[np.diff(rank, axis=1)[order, 0] == 1][:_MOST_LISTED]
    rows, rank, sign = pairs.iloc[order], rank[order], sign[order]
    low, high = (
        np.where(sign > 0.0, rows[a], -rows[b]) for a, b in (("low", "high"), ("high", "low"))
    )
    cells = {
        "difference": display.fixed(sign * rows["difference"]),
        f"{display.level(study.alpha)} interval": display.short_intervals(low, high),
        "p" if len(pairs) == 1 else "p adj.": display.p_values(rows["p_adjusted"]),
        "": ["*" if is_real else "" for is_real in rows["significant"]],
    }
    names = _short(study.table.index, _WIDTH_IN_PAIRS)
    stubs = [f"{names[a]} − {names[b]}" for a, b in rank]
    title = f"Differences by {named_test(study).strip(',')}"
    return display.column_table(cells, title=title, stubs=stubs)


def _table_of_noise(study: EvalStudy) -> Any:
    """Return the printed table of the sources of noise, of one model in its score."""
    sources = study.sources.sort_values("share", ascending=False)
    sources = sources[sources["share"] > 0.0]
    cells = {
        "variance of a score": display.fixed(sources["variance"]),
        "share": [display.percent(s) for s in sources["share"]],
        "": [display.bar(s) for s in sources["share"]],
    }
    title = f"Noise of a difference between two {display.levels_of(study.roles.model)}"
    if study.comparisons is None:
        title = "Noise of the score"
    stubs = [visible(_source(str(name), study.roles)) for name in sources.index]
    return display.column_table(cells, title=title, stubs=stubs, align="rrl")


def _on_pairs(study: EvalStudy) -> str:
    """Return what the table of pairs has."""
    if study.comparisons is None:
        return ""
    n = len(study.comparisons.table)
    level = display.number(study.alpha)
    if n == 1:
        return f"* marks p of at most {level}."
    level = f"* marks p adj., which is adjusted for the number of pairs, of at most {level}"
    if n <= _MOST_PAIRS:
        return f"{level}."
    models = display.levels_of(study.roles.model)
    return (
        f"{level}. Listed are {models} next to each other in rank; all "
        f"{display.count(n)} pairs are in the table of comparisons."
    )


def _on_intervals(study: EvalStudy) -> str:
    """Return why intervals of scores are wide for their standard errors, if they are."""
    roles, df = study.roles, float(study.table["df"].min())
    facet = min(roles.sampled, key=lambda f: roles.levels[f])
    if not (df < _FEW_DF and roles.levels[facet] <= _FEW_DF):
        return ""
    return (
        f"Intervals of scores have {display.number(df, 2)} degrees of freedom: there are "
        f"{display.counted(roles.levels[facet], facet)}, and others may score otherwise."
    )


def _source(name: str, roles: Roles) -> str:
    """Return the name of a component, of the residual by what it contains."""
    if name != RESIDUAL:
        return name
    if roles.has_answers:
        return ":".join([*roles.cell, roles.repetition])
    return roles.repetition or roles.residual or name


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
        _result(study, str(name), scores.loc[model], own[own[task] == name])
        for name, scores in by_task.items()
    ]
    tasks = own[task].unique() if task in own else []
    name = str(tasks[0]) if len(tasks) == 1 else ALL_TASKS if by_task else "evaluation"
    return [*found, _result(study, name, study.table.loc[model], own)]


def _result(study: EvalStudy, name: str, row: Any, rows: pd.DataFrame) -> dict[str, Any]:
    roles = study.roles
    metric: dict[str, Any] = {"lower_is_better": False}
    names: Any = rows["metric"].unique() if "metric" in rows else []
    if len(names) == 1:
        metric["metric_name"] = str(names[0])
    if study.data[roles.score].isin([0.0, 1.0]).all():
        metric["score_type"] = "binary"
    over = " and ".join(roles.sampled)
    uncertainty: dict[str, Any] = {"num_samples": len(rows)}
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


Rows = tuple[Mapping[str, Any], ...]
"""Rows of a table, each by the names of its columns."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What data of some sizes find, and cost.

    Attributes
    ----------
    sizes : levels of each facet; of a nested one in each level of the others
    power : probability with which a difference is found
    difference : that is found, by the test of the comparisons
    cost : of the data; nan without prices
    """

    sizes: Mapping[str, float]
    power: float
    difference: float
    cost: float


@dataclass(frozen=True, slots=True)
class EvalPage(InJson):
    """What the page of an evaluation says, as :meth:`vcomp.evals.EvalStudy.to_json` stores it.

    Attributes
    ----------
    title, verdict : sentences
    alpha : intervals and sets have confidence 1 − alpha
    roles : of the columns
    scores : a row for each ``model``, the best first: ``mean``, ``std_error``, ``df``, ``low``,
        ``high``, ``rank``, ``rank_low``, ``rank_high``, ``p_best``
    tasks : a row for each task and model, where there are several tasks: as ``scores``; of sampled
        tasks ``mean``, and ``std_error`` given the task
    task_shares : weights of tasks in the scores; empty if they are equal
    ahead : models that may be the best
    not_compared : models that lack scores of some tasks, or other fixed facets
    test : of the pairs
    comparisons : a row for each pair: ``first``, ``second``, ``difference``, ``std_error``,
        ``df``, ``statistic``, ``p_value``, ``p_adjusted``, ``significant``, ``low``, ``high``
    sources : a row for each ``component``: ``variance``, and ``share`` of the noise
    more_data : ``std_error`` of a difference with twice the levels of a facet, and its ``ratio``
        to that of these data, a row for each ``data``; empty of one model
    data : what the data show and cost; null of one model
    better : the best data for the budget, or the cheapest that tell the best two apart
    budget : for the whole; null without
    next_data : what would make it surer, in sentences
    unknown : what the data cannot show
    left_out : samples of the logs that have no score, in sentences
    contradictions : what the scores contradict in the model, in sentences
    margin : the smallest difference that matters; null without
    noninferior : models shown to be worse than the best by less than the margin, if at all
    cheapest : those of them that cost the least; empty without prices of models
    notes : on the logs, as :func:`vcomp.evals.read` has them
    """

    title: str
    verdict: str
    alpha: float
    roles: Roles
    scores: Rows
    tasks: Rows
    task_shares: Mapping[str, float]
    ahead: tuple[Any, ...]
    not_compared: tuple[Any, ...]
    test: str
    comparisons: Rows
    sources: Rows
    data: Plan | None
    better: Plan | None
    budget: float | None
    next_data: tuple[str, ...]
    unknown: tuple[Unknown, ...]
    left_out: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    margin: float | None = None
    noninferior: tuple[Any, ...] = ()
    cheapest: tuple[Any, ...] = ()
    more_data: Rows = ()
    notes: tuple[str, ...] = ()

    _FORMAT: ClassVar[Format] = Format("EvalStudy", 1, "the page of an evaluation")


def page_of(study: EvalStudy) -> EvalPage:
    """Return the page of a study.

    Parameters
    ----------
    study : of an evaluation
    """
    pairs = study.comparisons
    scores = study.table.rename_axis("model").reset_index()
    has_tasks = FIXED[0] in study.roles.fixed or _drew_tasks(study)
    return EvalPage(
        title=study.title,
        verdict=study.verdict,
        alpha=study.alpha,
        roles=study.roles,
        scores=_rows(scores),
        tasks=_rows(study.by_task.reset_index()) if has_tasks else (),
        task_shares={str(task): share for task, share in study.task_shares.items()},
        ahead=tuple(map(_plain, study.ahead)),
        not_compared=tuple(map(_plain, study.not_compared)),
        test="" if pairs is None else pairs.test,
        comparisons=() if pairs is None else _rows(pairs.table),
        sources=_rows(study.sources.reset_index()),
        more_data=() if pairs is None else _rows(study.more_data.reset_index()),
        data=None if pairs is None else _of_data(study),
        better=_better(study),
        budget=study.budget,
        next_data=tuple(study.next_data),
        unknown=tuple(study.unknown),
        left_out=study.left_out,
        contradictions=tuple(study.contradictions),
        margin=study.margin,
        noninferior=tuple(map(_plain, study.noninferior)),
        cheapest=tuple(map(_plain, study.cheapest)),
        notes=study.notes,
    )


def _of_data(study: EvalStudy) -> Plan:
    """Return what the present data find."""
    cost = math.nan if study.prices is None else study.prices.of(study.data)
    return _plan(study, study.plan, found_in_data(study), cost)


def _better(study: EvalStudy) -> Plan | None:
    """Return what the best data find, if some can be bought."""
    try:
        found = None if study.comparisons is None else study.allocation
    except PlanError:
        return None
    if found is None:
        return None
    plan = as_estimated(study, found.best)
    return _plan(study, plan, found_difference(study, plan), found.best.cost)


def _plan(study: EvalStudy, plan: Any, difference: float, cost: float) -> Plan:
    names: dict[Any, str] = {REPLICATE: replicated(study.roles, plan.plan.facets)}
    sizes: dict[str, float] = dict(zip(plan.plan.facets, plan.plan.sizes[0].tolist(), strict=True))
    sizes |= {f: float(study.roles.levels[f]) for f in study.roles.fixed if f in sizes}
    return Plan({names.get(f) or f: n for f, n in sizes.items()}, POWER, difference, float(cost))


def _rows(table: pd.DataFrame) -> Rows:
    names = list(map(str, table))
    columns = [list(map(_plain, table[name].tolist())) for name in table]
    return tuple(dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    """Return a level as JSON has it: numbers and truth values as they are, else as text."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if isinstance(plain, bool | int | float | str) else str(plain)
