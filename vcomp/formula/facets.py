"""Names of facets that every design has, and which facets a set of them implies by nesting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

__all__ = [
    "MOST_FACETS",
    "REPLICATE",
    "RESIDUAL",
    "closure",
    "held_effects",
    "object_key",
]


RESIDUAL = "Residual"
"""Name of the last component, as in lme4's tables."""


REPLICATE = "replicate"
"""The facet of repeated scores in one cell; it is nested in all other facets."""


MOST_FACETS = 12
"""Effects are listed of designs with up to this many facets: crossed they have 4,095."""


def closure(facets: frozenset[str], nested_in: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return `facets` with every facet that one of them is nested in.

    Examples
    --------
    >>> sorted(closure(frozenset({"doc"}), {"doc": frozenset({"topic"})}))
    ['doc', 'topic']
    """
    grown = facets.union(*(nested_in.get(f, frozenset()) for f in facets))
    return grown if grown == facets else closure(grown, nested_in)


def object_key(objects: frozenset[str]) -> str:
    """Return the name under which ``inverse_n`` has an object of measurement.

    Parameters
    ----------
    objects : its facets, with those that they are nested in

    Examples
    --------
    >>> object_key(frozenset({"patient", "doctor"}))
    'doctor:patient'
    """
    return ":".join(sorted(objects))


def held_effects(
    facets: Sequence[str],
    terms: Iterable[tuple[str, ...]],
    nested_in: Mapping[str, frozenset[str]],
    *,
    replicated: bool,
) -> dict[str, tuple[str, ...]]:
    """Return the crossed effects that each component holds under the nesting of a design.

    An effect that the model has no term for is in the residual when all its facets are.

    Parameters
    ----------
    facets : of the design
    terms : the facets of each random term
    nested_in : for each facet those that it is nested in
    replicated : whether some cell holds several scores
    """
    last = "replication and error" if replicated else "error"
    names = {":".join(term): term for term in terms}
    if len(facets) > MOST_FACETS:
        alone = {name: (name,) for name in names}
        return {**alone, RESIDUAL: ("all that the model has no term for", last)}
    subsets = [frozenset(s) for r in range(1, len(facets) + 1) for s in combinations(facets, r)]
    by_closure: dict[frozenset[str], list[str]] = {}
    for s in subsets:
        label = ":".join(f for f in facets if f in s)
        by_closure.setdefault(closure(s, nested_in), []).append(label)
    held: dict[str, tuple[str, ...]] = {}
    for name, term in names.items():
        effects = by_closure.pop(closure(frozenset(term), nested_in), [])
        held[name] = tuple(effects) or (name,)
    left = by_closure.get(frozenset(facets), [])
    held[RESIDUAL] = (*left, last)
    return held
