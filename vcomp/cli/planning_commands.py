"""Options and texts of commands that plan a D-study: universe, cut scores, allocation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from vcomp.cli.arguments import cut_scores, facets_argument, single_sizes, with_options
from vcomp.cli.output import check_picture, save

plan_options = with_options(
    click.option(
        "--object", "object_", metavar="FACET", help="The object of measurement, such as p or d:p."
    ),
    click.option(
        "--fixed",
        multiple=True,
        metavar="FACET",
        help="A fixed facet: its levels are the whole universe.",
    ),
    click.option(
        "--universe", multiple=True, metavar="FACET=N", help="The size of a finite universe."
    ),
    click.option(
        "--within",
        multiple=True,
        metavar="FACET",
        help="Compare objects within the levels of this facet.",
    ),
)
"""Options for the object of measurement and the universe of generalization."""


def plan_of(
    object_: str | None, fixed: Sequence[str], universe: Sequence[str], within: Sequence[str]
) -> dict[str, Any]:
    """Return these options as arguments of a D-study, without those that were not given.

    Examples
    --------
    >>> plan_of("p", ["a,o"], ["i=500"], [])
    {'object': 'p', 'fixed': ['a', 'o'], 'universe': {'i': 500}}
    """
    given = {
        "object": object_,
        "fixed": facets_argument(fixed),
        "universe": single_sizes(universe),
        "within": facets_argument(within),
    }
    return {name: value for name, value in given.items() if value}


def allocation_text(
    study: Any,
    cost: str | None,
    budget: float | None,
    goal: float | None,
    coefficient: str,
    alternatives: Sequence[str],
    picture: Path | None = None,
    n_objects: int | None = None,
) -> str | None:
    """Return the best design for a budget or a goal, None if neither is given.

    Parameters
    ----------
    study : the D-study whose design comes first
    cost : prices as text
    budget, goal : one of them
    coefficient : to be maximised, or to reach the goal
    alternatives : other designs
    picture : where to draw the frontier
    n_objects : number of objects, if the cost depends on it
    """
    if cost is None:
        given: dict[str, Any] = {"--budget": budget, "--alternative": alternatives or None}
        given |= {"--plot": picture, "--n-objects": n_objects}
        lost = [name for name, value in given.items() if value is not None]
        if lost:
            raise click.UsageError(f"{lost[0]} needs --cost, such as --cost '50*topic + 1000'")
        return None
    if (budget is None) == (goal is None):
        raise click.UsageError("--cost needs one of --budget and --goal")
    if picture is not None:
        check_picture(str(picture))
    designs = [str(study.plan.design), *alternatives] if alternatives else None
    found = study.optimize(
        cost,
        budget=budget,
        goal=goal,
        coefficient=coefficient,
        designs=designs,
        n_objects=n_objects,
    )
    if picture is not None:
        save(found.plot(), str(picture))
    return str(found)


def cut_score_text(study: Any, cut: str | None) -> str | None:
    """Return a table of Φ(λ) as text, or None without cut scores."""
    from vcomp import display

    if cut is None:
        return None
    table = study.phi_lambda(cut_scores(cut))
    ends = zip(table["low"], table["high"], strict=True)
    facets = list(table.columns[: table.columns.get_loc("cut")])
    cells = [[display.count(n) for n in table[f]] for f in facets]
    cells += [
        [display.number(float(c)) for c in table["cut"]],
        [display.coefficient(v) for v in table["estimate"]],
        [display.coefficient_interval(low, high) for low, high in ends],
    ]
    header = [*facets, "λ", "Φ(λ)", f"{display.level(study.alpha)} interval"]
    made = display.simple_table(
        list(zip(*cells, strict=True)), header, title="Decisions by a cut score λ"
    )
    return str(display.summary([made], ["Φ(λ): dependability of decisions by the cut score λ."]))
