"""Standard errors of an evaluation by D-studies: with more data, and of tasks that were drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

from vcomp import display
from vcomp.evals.next_data import levels_within, whole_plan
from vcomp.evals.prices import replicated
from vcomp.evals.roles import FIXED
from vcomp.formula import REPLICATE
from vcomp.gtheory import dstudy

if TYPE_CHECKING:
    import pandas as pd

EvalStudy: TypeAlias = Any
"""The study of an evaluation, whose module imports this one."""


def more_data(study: EvalStudy) -> pd.DataFrame:
    """Return the standard error of a difference of two models with twice the levels of a facet.

    Parameters
    ----------
    study : of several models
    """
    import pandas as pd

    plan, roles = whole_plan(study), study.roles
    own = dict(zip(plan.plan.facets, plan.plan.sizes[0].tolist(), strict=True))
    errors = {"these data": _error(study, own)}
    for facet, n in own.items():
        if facet not in roles.fixed:
            name = replicated(roles, plan.plan.facets) if facet == REPLICATE else facet
            several = "runs of each" if name == roles.repeated else display.levels_of(name)
            errors[f"twice the {several}"] = _error(study, own | {facet: 2 * n})
    frame = pd.DataFrame({"std_error": errors})
    frame["ratio"] = frame["std_error"] / frame["std_error"].iloc[0]
    return frame.rename_axis("data")


def _error(study: EvalStudy, sizes: dict[str, float]) -> float:
    """Return the standard error of a difference in planned data."""
    roles = study.roles
    plan = dstudy(study.plan.components, object=roles.model, fixed=roles.fixed, sizes=sizes)
    return math.sqrt(2.0 * float(plan.columns["rel_err_var"][0]))


def means_of_drawn_tasks(study: EvalStudy) -> pd.DataFrame:
    """Return the mean of each model in each sampled task, with its error given the task.

    Parameters
    ----------
    study : of several models, with tasks as sampled
    """
    roles, task = study.roles, FIXED[0]
    by = study.data.groupby([task, roles.model], observed=True)[roles.score]
    frame = by.mean().rename("mean").to_frame()
    of_tasks = frame.index.get_level_values(0)
    errors = _errors_of_tasks(study)
    return frame.assign(std_error=[errors[level] for level in of_tasks])


def _errors_of_tasks(study: EvalStudy) -> dict[Any, float]:
    """Return the standard error of a mean in each task, of its levels of other sampled facets.

    nan if there are none: a task has one score of a model, which does not show its error.
    """
    roles, task, plan = study.roles, FIXED[0], study.plan.plan
    others = [facet for facet in plan.facets if facet not in (task, *roles.fixed)]
    if not others:
        return dict.fromkeys(study.data[task].unique(), math.nan)
    own = dict(zip(plan.facets, plan.sizes[0].tolist(), strict=True)) | {task: 1.0}
    levels = {}
    for facet in others:
        name = replicated(roles, plan.facets) if facet == REPLICATE else facet
        if name in roles.sampled and plan.design.nested_in[name] <= {task, roles.model}:
            within = levels_within(study.data, roles, [task], name)
            levels[facet] = within.groupby(level=task, observed=True).max()
    found = {}
    for level in study.data[task].unique():
        sizes = own | {facet: float(n[level]) for facet, n in levels.items()}
        given = dstudy(
            study.plan.components, object=roles.model, fixed=(task, *roles.fixed), sizes=sizes
        )
        found[level] = math.sqrt(float(given.columns["abs_err_var"][0]))
    return found
