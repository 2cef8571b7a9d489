"""What the data of an evaluation cannot show, and the cheapest data that would."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from vcomp import display
from vcomp.evals.next_data import POWER
from vcomp.formula import RESIDUAL

EvalStudy: TypeAlias = Any
"""The study of an evaluation, whose module imports this one."""

_LEVEL = 0.05

_MOST_LEVELS = 30
"""New levels of a facet that are tried."""

_FEW = 0.25
"""Standard error of a variance, as a share of it, with which it is known well enough."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that the data cannot show, and the cheapest data that would.

    Attributes
    ----------
    facet : column with one level; ``"repetition"`` if each sample was scored once
    levels : new levels of it; of repetitions 1
    of : column of the levels at which they are observed
    size : how many of these; of repetitions the scores
    scores : new scores
    cost : of them; nan without prices
    why : sentence on what cannot be known
    how : sentence on what would show it; empty if nothing was planned
    """

    facet: str
    levels: int
    of: str
    size: int
    scores: int
    cost: float
    why: str
    how: str

    def __str__(self) -> str:
        return f"{self.why} {self.how}".strip()


def unknown(study: EvalStudy) -> list[Unknown]:
    """Return what the data of an evaluation cannot show.

    Parameters
    ----------
    study : of the evaluation
    """
    roles = study.roles
    found = [_of_single(study, facet) for facet in roles.single]
    if roles.residual and not (roles.repetition or roles.identical):
        found.append(_of_repetitions(study))
    return found


def _of_single(study: EvalStudy, facet: str) -> Unknown:
    """Return the cheapest new levels of a facet that show whether they matter.

    They matter if models × levels of the facet add as much error variance as there is. The F-test
    of that interaction has mean squares of expectation σ² + q v over σ², on q items; of σ² the
    components of models × items are an upper bound.
    """
    roles = study.roles
    items = max(roles.sampled, key=lambda f: roles.levels[f])
    many = roles.levels[items]
    start = f"There is one {facet}" if facet in study.data else f"The logs name no {facet}"
    why = f"{start}: how much scores change with another {facet} cannot be known."
    same = f"a second {facet} for the same {display.levels_of(items)}"
    how = f"The cheapest data that show it are {same}."
    plain = Unknown(facet, 1, items, many, many * roles.levels[roles.model], math.nan, why, how)
    if study.comparisons is None:
        return replace(plain, cost=_cost(study, facet, {items: many}))
    values = study.sources["variance"].to_numpy()
    parts = [items in facets for facets in study.facets_of_sources]
    noise = float(np.maximum(values, 0.0)[np.array(parts) & _of_models(study)].sum())
    error = float(study.plan.columns["rel_err_var"][0])
    n_models = roles.levels[roles.model]
    new, q = (a.ravel() for a in np.indices((_MOST_LEVELS, many + 1))[:, 1:, 2:])
    if not (noise > 0.0 and error > 0.0 and q.size):
        return replace(plain, cost=_cost(study, facet, {items: many, roles.model: n_models}))
    power = _f_power((n_models - 1) * new, q - 1, q * error / noise)
    enough = power >= POWER
    if not enough.any():
        return replace(plain, cost=_cost(study, facet, {items: many, roles.model: n_models}))
    new, q = new[enough], q[enough]
    sizes = {facet: new, items: q, roles.model: n_models}
    costs = np.broadcast_to(_cost(study, facet, sizes), new.shape)
    by = new * q if np.isnan(costs).all() or not costs.any() else costs
    best = int(np.lexsort([new * q, by])[0])
    scores, cost = int(n_models * new[best] * q[best]), float(costs[best])
    levels = (
        f"{display.count(new[best])} more {facet if new[best] == 1 else display.levels_of(facet)}"
    )
    how = (
        f"The cheapest data that show, with power {POWER}, whether it adds as much error as there "
        f"is: {levels} for {display.counted(q[best], items)}, {_paid(scores, cost)}."
    )
    return Unknown(facet, int(new[best]), items, int(q[best]), scores, cost, why, how)


def _f_power(df: Any, df_of_each: Any, ratio: Any) -> Any:
    """Return the power of the F-test of a random interaction.

    Parameters
    ----------
    df : degrees of freedom of the interaction
    df_of_each : of the error for each of them
    ratio : q v/σ²
    """
    from scipy.special import fdtrc, fdtri

    rest = df * df_of_each
    return fdtrc(df, rest, fdtri(df, rest, 1.0 - _LEVEL) / (1.0 + ratio))


def _of_repetitions(study: EvalStudy) -> Unknown:
    """Return how many scores are to be repeated so that the variance of runs is known."""
    roles = study.roles
    why = (
        "Each combination was scored once: the variation of repeated runs cannot be separated "
        f"from {roles.residual}."
    )
    # A variance from r pairs of normal scores has a standard error of √(2/r) of it.
    r, given = math.ceil(2.0 / _FEW**2), ""
    scores = study.data[roles.score]
    if scores.isin([0.0, 1.0]).all():
        # Half of the share of pairs that differ is the variance: a count.
        differ = 0.5 * float(study.components.vcomp.get(RESIDUAL, 0.25))
        r = math.ceil((1.0 - differ) / (differ * _FEW**2)) if differ > 0.0 else len(scores)
        given = f", if it is a quarter of that of {roles.residual}"
    r = min(r, len(scores))
    cost = _cost(study, roles.repeated, {roles.repeated: r})
    how = (
        f"If runs can differ, repeat {_paid(r, cost)}: the standard error of the variance of runs "
        f"is then a quarter of it{given}."
    )
    return Unknown("repetition", 1, roles.model, r, r, cost, why, how)


def _of_models(study: EvalStudy) -> Any:
    """Return which sources make noise of differences."""
    return (study.sources["share"] > 0.0).to_numpy()


def _cost(study: EvalStudy, facet: str, sizes: Mapping[str, Any]) -> Any:
    return math.nan if study.prices is None else study.prices.of_new(facet, sizes)


def _paid(scores: int, cost: float) -> str:
    words = display.counted(scores, "score")
    return words if math.isnan(cost) else f"{words} for {display.number(cost, 6)}"
