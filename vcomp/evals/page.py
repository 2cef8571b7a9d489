"""The page of an evaluation as values, for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vcomp.codec import Format
from vcomp.data import InJson
from vcomp.evals.next_data import POWER, EvalStudy, Unknown, replicated
from vcomp.evals.roles import FIXED, Roles
from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE

if TYPE_CHECKING:
    import pandas as pd


Rows = tuple[Mapping[str, Any], ...]
"""Rows of a table, each by the names of its columns."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What data of some sizes find, and cost.

    Attributes
    ----------
    sizes : levels of each facet; of a nested one in each level of the others
    power : probability with which a difference is found
    difference : that is found, by a test of one pair
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
    tasks : a row for each task and model, where there are several tasks
    task_shares : weights of tasks in the scores; empty if they are equal
    ahead : models that may be the best
    not_compared : models that lack scores of some tasks, or other fixed facets
    test : of the pairs
    comparisons : a row for each pair: ``first``, ``second``, ``difference``, ``std_error``,
        ``df``, ``statistic``, ``p_value``, ``p_adjusted``, ``significant``, ``low``, ``high``
    sources : a row for each ``component``: ``variance``, and ``share`` of the noise
    data : what the data show and cost; null of one model
    better : the best data for the budget, or the cheapest that tell the best two apart
    budget : for the whole; null without
    next_data : what would make it surer, in sentences
    unknown : what the data cannot show
    left_out : samples of the logs that have no score, in sentences
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

    _FORMAT: ClassVar[Format] = Format("EvalStudy", 1, "the page of an evaluation")


def page_of(study: EvalStudy) -> EvalPage:
    """Return the page of a study.

    Parameters
    ----------
    study : of an evaluation
    """
    pairs = study.comparisons
    scores = study.table.rename_axis("model").reset_index()
    return EvalPage(
        title=study.title,
        verdict=study.verdict,
        alpha=study.alpha,
        roles=study.roles,
        scores=_rows(scores),
        tasks=_rows(study.by_task.reset_index()) if FIXED[0] in study.roles.fixed else (),
        task_shares={str(task): share for task, share in study.task_shares.items()},
        ahead=tuple(map(_plain, study.ahead)),
        not_compared=tuple(map(_plain, study.not_compared)),
        test="" if pairs is None else pairs.test,
        comparisons=() if pairs is None else _rows(pairs.table),
        sources=_rows(study.sources.reset_index()),
        data=None if pairs is None else _of_data(study),
        better=_better(study),
        budget=study.budget,
        next_data=tuple(study.next_data),
        unknown=tuple(study.unknown),
        left_out=study.left_out,
    )


def _of_data(study: EvalStudy) -> Plan:
    """Return what the present data find."""
    cost = math.nan if study.prices is None else study.prices.of(study.data)
    return _plan(study, study.plan, cost)


def _better(study: EvalStudy) -> Plan | None:
    """Return what the best data find, if some can be bought."""
    try:
        found = None if study.comparisons is None else study.allocation
    except PlanError:
        return None
    return None if found is None else _plan(study, found.best.study, found.best.cost)


def _plan(study: EvalStudy, plan: Any, cost: float) -> Plan:
    names = {REPLICATE: replicated(study.roles, plan.plan.facets)}
    sizes = zip(plan.plan.facets, plan.plan.sizes[0].tolist(), strict=True)
    difference = float(plan.detectable(POWER)["difference"].iloc[0])
    return Plan({names.get(f, f): n for f, n in sizes}, POWER, difference, float(cost))


def _rows(table: pd.DataFrame) -> Rows:
    columns = [list(map(_plain, table[name].tolist())) for name in table]
    return tuple(
        dict(zip(map(str, table), row, strict=True)) for row in zip(*columns, strict=True)
    )


def _plain(value: Any) -> Any:
    """Return a level as JSON has it: numbers and truth values as they are, else as text."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain if isinstance(plain, bool | int | float | str) else str(plain)
