"""The effects of a design and their expected mean squares, from the nesting of its facets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from vcomp.exceptions import PlanError, did_you_mean, is_whole
from vcomp.formula.brennan import REPLICATE, BrennanDesign, parse_design
from vcomp.formula.dialects import in_formula

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Effect:
    """A main effect or an interaction of a design.

    Attributes
    ----------
    name : in Brennan's notation, ``"pi:h"``; of facets with longer names ``"(sys x judge):topic"``
    term : in the notation of formulas, ``"p:h:i"``
    facets : the facets of the effect, with those that they are nested in
    innermost : those in which no other is nested, written before the colon
    """

    name: str
    term: str
    facets: frozenset[str]
    innermost: frozenset[str]


def design_effects(design: BrennanDesign) -> tuple[Effect, ...]:
    """Return all main effects and interactions of a design, coarser ones first.

    There is one effect for each closed set of facets: a set that contains, with each facet, all
    facets that it is nested in.

    Parameters
    ----------
    design : as :func:`~vcomp.formula.parse_design` reads it

    Raises
    ------
    PlanError
        If the design has more than 12 facets.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 3: rules for the effects of a design.

    Examples
    --------
    >>> from vcomp.formula import parse_design
    >>> [effect.name for effect in design_effects(parse_design("p x (i:h)"))]
    ['p', 'h', 'i:h', 'ph', 'pi:h']
    >>> [effect.term for effect in design_effects(parse_design("p x (i:h)"))]
    ['p', 'h', 'h:i', 'p:h', 'p:h:i']
    """
    if len(design.facets) > BrennanDesign.MOST_FACETS:
        raise PlanError(
            f"the design '{design}' has {len(design.facets)} facets; effects are listed for up to "
            f"{BrennanDesign.MOST_FACETS}"
        )
    order = design.outer_first
    effects = [_effect(design, order, facets) for facets in _closed_sets(design)]
    place = {f: k for k, f in enumerate(design.facets)}
    return tuple(
        sorted(
            effects,
            key=lambda e: (
                len(e.facets),
                len(e.innermost),
                sorted(place[f] for f in e.innermost),
                sorted(place[f] for f in e.facets),
            ),
        )
    )


def expected_mean_squares(design: BrennanDesign, sizes: Mapping[str, Any]) -> pd.DataFrame:
    """Return degrees of freedom and expected mean squares of a balanced design.

    The degrees of freedom of an effect are the product of n − 1 over its innermost facets and of n
    over the facets that these are nested in. The expected mean square contains the component of
    each effect that has all its facets, multiplied by the sizes n of the facets that this effect
    does not have. All facets are random.

    Parameters
    ----------
    design : as :func:`~vcomp.formula.parse_design` reads it
    sizes : the number of levels of each facet, for a nested one within each combination of those
        that it is nested in; ``replicate`` is the number of scores in a cell, if above one

    Returns
    -------
    pandas.DataFrame
        A row for each effect, with the columns ``term``, ``df`` and ``E[…]`` for the coefficient
        of each component. With replicates the last row is that of ``replicate``.

    Raises
    ------
    PlanError
        If a size is missing, not that of a facet, or not a whole number of at least 1.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 3: rules for degrees of freedom and expected
    mean squares.

    Examples
    --------
    >>> from vcomp.formula import parse_design
    >>> table = expected_mean_squares(parse_design("p x (i:h)"), {"p": 10, "i": 4, "h": 3})
    >>> table["df"].tolist()
    [9, 2, 9, 18, 81]
    >>> table.loc["ph"].drop(["term", "df"]).to_dict()
    {'E[p]': 0, 'E[h]': 0, 'E[i:h]': 0, 'E[ph]': 4, 'E[pi:h]': 1}
    """
    import pandas as pd

    n = _checked(design, sizes)
    whole = design
    if REPLICATE in n and REPLICATE not in design.facets:
        above = {**design.nested_in, REPLICATE: frozenset(design.facets)}
        whole = BrennanDesign.of((*design.facets, REPLICATE), above)
    effects = design_effects(whole)
    rows: dict[str, dict[str, Any]] = {}
    for effect in effects:
        outer = effect.facets - effect.innermost
        df = math.prod(n[f] - 1 for f in effect.innermost) * math.prod(n[f] for f in outer)
        expected = {
            f"E[{other.name}]": math.prod(n[f] for f in n if f not in other.facets)
            if effect.facets <= other.facets
            else 0
            for other in effects
        }
        rows[effect.name] = {"term": effect.term, "df": df, **expected}
    return pd.DataFrame.from_dict(rows, orient="index")


def _closed_sets(design: BrennanDesign) -> Iterator[frozenset[str]]:
    for size in range(1, len(design.facets) + 1):
        for facets in map(frozenset, combinations(design.facets, size)):
            if design.closure(facets) == facets:
                yield facets


def _effect(design: BrennanDesign, order: tuple[str, ...], facets: frozenset[str]) -> Effect:
    # Replicates are nested in all other facets, which their name leaves out.
    alone = REPLICATE in facets and REPLICATE not in design.written
    name = REPLICATE if alone else _brennan(design, facets)
    innermost = design.innermost(facets)
    return Effect(name, ":".join(f for f in order if f in facets), facets, innermost)


def _brennan(design: BrennanDesign, facets: frozenset[str]) -> str:
    """Return the name in Brennan's notation: innermost facets, a colon, the others likewise."""
    innermost = design.innermost(facets)
    first = [f for f in design.facets if f in innermost]
    rest = facets - innermost
    letters = all(len(f) == 1 for f in design.facets)
    if letters or len(first) == 1:
        name = "".join(first)
    else:
        name = " x ".join(first)
        name = f"({name})" if rest else name
    return f"{name}:{_brennan(design, rest)}" if rest else name


def _checked(design: BrennanDesign, sizes: Mapping[str, Any]) -> dict[str, int]:
    known = (*design.facets, REPLICATE)
    for facet, size in sizes.items():
        if facet not in known:
            hint = did_you_mean(facet, design.facets)
            raise PlanError(
                f"unknown facet {facet!r}{hint}; the design has {', '.join(design.facets)}",
                column=facet,
            )
        if not is_whole(size) or size < 1:
            raise PlanError(
                f"the size of {facet!r} must be a whole number of at least 1, not {size!r}",
                column=facet,
            )
    missing = [f for f in design.facets if f not in sizes]
    if missing:
        raise PlanError(
            f"the size of {missing[0]!r} is missing; pass sizes={{{missing[0]!r}: …}}",
            column=missing[0],
        )
    return {facet: int(sizes[facet]) for facet in known if facet in sizes}


def design_formula(
    design: str | BrennanDesign, response: str = "score", *, replicated: bool = False
) -> str:
    """Return the formula of a G-study: a random term for every effect of its design.

    The last effect, of all facets, is the residual and has no term if a cell holds one score. A
    nested facet is written with those that it is nested in, so that its labels may be repeated in
    each of their levels.

    Parameters
    ----------
    design : in Brennan's notation
    response : the column of the scores, or an expression of Python
    replicated : whether cells hold several scores; the last effect is then a term as well

    Raises
    ------
    PlanError
        The design cannot be read, or has one facet and one score in each cell, which leaves no
        term.

    Examples
    --------
    >>> design_formula("p x (i:h)")
    'score ~ (1|p) + (1|h) + (1|h:i) + (1|p:h)'
    >>> design_formula("sys x topic", "ap", replicated=True)
    'ap ~ (1|sys) + (1|topic) + (1|sys:topic)'
    """
    read = parse_design(design) if isinstance(design, str) else design
    read.check_names()
    order = read.outer_first
    effects = design_effects(read)
    terms = [tuple(f for f in order if f in e.facets) for e in effects]
    kept = terms if replicated else terms[:-1]
    if not kept:
        raise PlanError(
            f"the design '{read}' has one effect, which cannot be distinguished from error "
            "with one score in each cell; pass replicated=True if there are several"
        )
    return formula_text(response, kept)


def formula_text(response: str, terms: Iterable[Iterable[str]]) -> str:
    """Return the formula with these random terms, with their facets in the given order.

    Parameters
    ----------
    response : text of the response
    terms : the facets of each term, any text

    Examples
    --------
    >>> formula_text("score", [["p"], ["p", "exam item"]])
    "score ~ (1|p) + (1|p:Q('exam item'))"
    """
    bars = (f"(1|{in_formula(facets)})" for facets in terms)
    return f"{response} ~ {' + '.join(bars)}"
