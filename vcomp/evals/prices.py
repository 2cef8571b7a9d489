"""Prices of the data of an evaluation and of its models, and budgets."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcomp.evals.roles import JUDGE, NUMBERED, Roles
from vcomp.exceptions import PlanError, check_margin, did_you_mean, is_real
from vcomp.formula import REPLICATE
from vcomp.gtheory.allocation import Cost

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.gtheory import DStudy

CELLS = ("call", "score", "judgement")
"""Names of prices of an answer of a model, and of one of its scores."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What data of an evaluation cost.

    Attributes
    ----------
    roles : of the columns
    terms : columns over whose combinations of levels each price is paid
    """

    roles: Roles
    terms: Mapping[frozenset[str], float]

    def of(self, table: pd.DataFrame) -> float:
        """Return what a table of scores cost, by the combinations of levels that it has."""
        total = 0.0
        for columns, price in self.terms.items():
            # A price of repetitions alone is of each answer.
            answer = [c for c in self.roles.cell if c != JUDGE]
            over = answer if columns == {self.roles.repeated} else columns
            numbering = NUMBERED if self.roles.repeated in columns else ()
            known = [c for c in dict.fromkeys((*over, *numbering)) if c in table]
            total += price * (len(table[known].drop_duplicates()) if known else 1)
        return total

    def of_new(self, facet: str, sizes: Mapping[str, Any]) -> Any:
        """Return what new levels of a facet cost.

        Parameters
        ----------
        facet : column; answers that are judged again are not paid for again
        sizes : levels of all columns in the new data, 1 where none is given; or arrays of them
        """
        terms = [(c, price) for c, price in self.terms.items() if facet in c]
        return sum(p * math.prod(sizes.get(f, 1.0) for f in c) for c, p in terms)

    def of_plan(self, plan: DStudy) -> Cost:
        """Return the cost of a planned measurement.

        Parameters
        ----------
        plan : of the data
        """
        facets, setup = plan.plan.design.facets, 0.0
        sizes = dict(zip(plan.plan.facets, plan.plan.sizes[0].tolist(), strict=True))
        fixed = set(self.roles.fixed) & set(sizes)
        made: dict[frozenset[str], float] = {}
        for columns, price in self.terms.items():
            alone = self.roles.repeated, replicated(self.roles, facets)
            named = (REPLICATE if c in alone and c not in facets else c for c in columns)
            kept = frozenset(f for f in named if f in facets)
            # Sizes of weighted tasks are effective ones; all tasks are paid for.
            all_there_is = math.prod(self.roles.levels[f] / sizes[f] for f in kept & fixed)
            made[kept] = made.get(kept, 0.0) + price * all_there_is
        setup = made.pop(frozenset(), 0.0)
        return Cost({tuple(sorted(of)): price for of, price in made.items()}, setup=setup)


def replicated(roles: Roles, facets: Collection[str]) -> str:
    """Return what the replicates of a design are: repetitions, or items if each has one score.

    Parameters
    ----------
    roles : of the columns
    facets : of the design
    """
    return next((f for f in roles.sampled if f not in facets), roles.repeated)


def read_prices(given: Any, roles: Roles) -> Prices | None:
    """Return prices by the columns over whose levels each is paid, or None.

    Parameters
    ----------
    given : column, or several joined by colons, or one of :data:`CELLS` → price
    roles : of the columns

    Raises
    ------
    PlanError
        If they are not prices of columns that have a role.
    """
    if given is None:
        return None
    if not isinstance(given, Mapping) or not given:
        raise PlanError(
            f"prices are a mapping such as {{'item': 0.05, 'call': 0.01}}, not {given!r}"
        )
    facets = [roles.model, *roles.sampled, *roles.fixed, *roles.single, roles.repeated]
    terms: dict[frozenset[str], float] = {}
    for key, price in given.items():
        if not is_real(price) or not 0.0 <= price < math.inf:
            raise PlanError(
                f"the price per {key} must be a number from 0, not {price!r}", column=key
            )
        names = [key] if key in facets else str(key).split(":")
        if key in CELLS and key not in facets:
            names = [f for f in facets if key != "call" or f != JUDGE]
        for name in names:
            if name not in facets:
                known = [*facets[: None if roles.repetition else -1], *CELLS]
                raise PlanError(
                    f"there is a price per {name!r}, which is no column with a role"
                    f"{did_you_mean(name, known)}; there are {', '.join(map(repr, known))}",
                    column=name,
                )
        columns = frozenset(names)
        terms[columns] = terms.get(columns, 0.0) + float(price)
    return Prices(roles, terms)


def read_model_prices(given: Any, margin: Any, models: Sequence[Any]) -> dict[str, float] | None:
    """Return the price of each model by its name as text, or None.

    Parameters
    ----------
    given : model → price
    margin : by which a model may be worse than the best; None without
    models : all that have scores

    Raises
    ------
    PlanError
        If the margin is not above 0, one model has no others, or not each model has a price.
    """
    if margin is not None:
        check_margin(margin)
        if len(models) == 1:
            raise PlanError(f"a margin is of differences, and {str(models[0])!r} is alone")
    if given is None:
        return None
    if margin is None:
        raise PlanError(
            "prices of models need a margin by which a model may be worse than the best, such as "
            "margin=0.02"
        )
    if not isinstance(given, Mapping):
        raise PlanError(
            f"model_prices are a mapping such as {{'small': 0.1, 'large': 2.0}}, not {given!r}"
        )
    names, found = list(map(str, models)), {}
    for model, price in given.items():
        if str(model) not in names:
            raise PlanError(
                f"there is a price of {model!r}, which has no scores"
                f"{did_you_mean(model, names)}; there are {', '.join(map(repr, names))}",
                level=model,
            )
        if not is_real(price) or not 0.0 <= price < math.inf:
            raise PlanError(
                f"the price of {model!r} must be a number from 0, not {price!r}", level=model
            )
        found[str(model)] = float(price)
    lacking = [name for name in names if name not in found]
    if lacking:
        raise PlanError(
            f"prices of models lack {', '.join(map(repr, lacking))}; give the price of each model",
            level=lacking[0],
        )
    return found


def read_budget(given: Any, prices: Any) -> float | None:
    """Return a budget, a number above 0, or None.

    Parameters
    ----------
    given : the budget
    prices : without which there is none

    Raises
    ------
    PlanError
        If it is not a number above 0, or there are no prices.
    """
    if given is None:
        return None
    if not is_real(given) or not 0.0 < given < math.inf:
        raise PlanError(f"the budget is a number above 0, not {given!r}")
    if prices is None:
        raise PlanError("a budget needs prices, such as prices={'item': 0.05, 'call': 0.01}")
    return float(given)
