"""Names of facets that every design has, and which facets a set of them implies by nesting."""

from __future__ import annotations

from collections.abc import Mapping

RESIDUAL = "Residual"
"""Name of the last component, as in lme4's tables."""


REPLICATE = "replicate"
"""The facet of repeated scores in one cell; it is nested in all other facets."""


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
