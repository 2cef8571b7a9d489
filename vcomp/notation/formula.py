"""Design → formula: every effect a random term, the last one the residual."""

from __future__ import annotations

import keyword
from collections.abc import Iterable

from vcomp.components import REPLICATE, RESIDUAL
from vcomp.exceptions import PlanError
from vcomp.notation.brennan import Design, parse_design
from vcomp.notation.effects import design_effects

__all__ = ["as_written", "check_facets", "design_formula", "formula_text"]


def design_formula(
    design: str | Design, response: str = "score", *, replicated: bool = False
) -> str:
    """Return the formula of a G-study: a random term for every effect of its design.

    The last effect, of all facets, is the residual and has no term of its own where a cell holds
    one score. A nested facet stands with those that it is nested in, so that its labels may start
    anew in each of their levels.

    Parameters
    ----------
    design : in Brennan's notation
    response : the column of the scores, or an expression of Python
    replicated : whether cells hold several scores: then the last effect is a term as well

    Raises
    ------
    PlanError
        The design cannot be read, or has one facet and one score a cell, which leaves no term.

    Examples
    --------
    >>> design_formula("p x (i:h)")
    'score ~ (1|p) + (1|h) + (1|h:i) + (1|p:h)'
    >>> design_formula("sys x topic", "ap", replicated=True)
    'ap ~ (1|sys) + (1|topic) + (1|sys:topic)'
    """
    read = parse_design(design) if isinstance(design, str) else design
    check_facets(read)
    order = read.outer_first
    effects = design_effects(read)
    terms = [tuple(f for f in order if f in e.facets) for e in effects]
    kept = terms if replicated else terms[:-1]
    if not kept:
        raise PlanError(
            f"the design '{read}' has one effect, which cannot be told from error with one score "
            "a cell; pass replicated=True if there are several"
        )
    return formula_text(response, kept)


def formula_text(response: str, terms: Iterable[Iterable[str]]) -> str:
    """Return the formula with these random terms, the facets of each in the order given.

    Parameters
    ----------
    response : as it stands in the formula
    terms : the facets of every term, any text

    Examples
    --------
    >>> formula_text("score", [["p"], ["p", "exam item"]])
    "score ~ (1|p) + (1|p:Q('exam item'))"
    """
    bars = (f"(1|{':'.join(as_written(f) for f in facets)})" for facets in terms)
    return f"{response} ~ {' + '.join(bars)}"


def as_written(column: str) -> str:
    """Return a column as a formula names it: in ``Q(…)`` if it is no name of Python.

    Examples
    --------
    >>> as_written("topic"), as_written("class"), as_written("exam item")
    ('topic', "Q('class')", "Q('exam item')")
    """
    plain = column.isidentifier() and not keyword.iskeyword(column)
    return column if plain else f"Q({column!r})"


def check_facets(design: Design) -> None:
    """Refuse names that a G-study gives to other things.

    Raises
    ------
    PlanError
        If a facet is called ``replicate`` or ``Residual``, or has a colon in its name.
    """
    for facet in design.facets:
        if facet == REPLICATE:
            raise PlanError(
                f"{REPLICATE!r} is what several scores in a cell are called, and needs no place "
                "in the design of a G-study; leave it out, or give the facet another name"
            )
        if facet == RESIDUAL:
            raise PlanError(
                f"{RESIDUAL!r} is the name of the last component; give the facet another name"
            )
        if ":" in facet:
            raise PlanError(
                f"the facet {facet!r} has ':' in its name, which joins facets in the names of "
                "components; give it another name"
            )
