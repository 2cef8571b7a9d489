"""What is measured, and to what the scores are generalized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vcomp.components import REPLICATE
from vcomp.dstudy.sizes import positive_size
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.notation import Design

__all__ = [
    "Universe",
    "check_columns",
    "check_facets",
    "check_universe",
    "read_object",
    "read_universe",
]


@dataclass(frozen=True, slots=True)
class Universe:
    """To what the scores are generalized.

    Attributes
    ----------
    fixed : facets whose planned levels are the whole universe
    sizes : of facets with finite universes, N' of each within those that it is nested in; all
        others are infinite
    within : facets of the object of measurement within whose levels objects are compared

    Examples
    --------
    >>> Universe(fixed=frozenset({"o"})).is_infinite
    False
    """

    fixed: frozenset[str] = frozenset()
    sizes: Mapping[str, float] = field(default_factory=dict)
    within: frozenset[str] = frozenset()

    def holds_all(self, facets: Iterable[str], finite: str) -> bool:
        """Return whether all `facets` but `finite` are fixed: all its levels are all there is.

        Examples
        --------
        >>> Universe(frozenset({"o"}), {"i": 20}).holds_all(["i", "o"], "i")
        True
        """
        return all(f in self.fixed for f in facets if f != finite)

    @property
    def is_infinite(self) -> bool:
        """Whether all facets are random, and objects are compared without restriction."""
        return not (self.fixed or self.sizes or self.within)


def read_object(
    given: str | Sequence[str], design: Design, sizes: Iterable[str]
) -> tuple[frozenset[str], str]:
    """Return the facets of the object with those that they are nested in, and its name.

    Parameters
    ----------
    given : a facet, ``"doctor:patient"``, or a list of facets
    design : of the D-study
    sizes : facets for which a size is given

    Raises
    ------
    PlanError
        If a facet is not known or has a size, or replicates are given.

    Examples
    --------
    >>> from vcomp.dstudy import parse_design
    >>> sorted(read_object("p", parse_design("(p:c) x i"), ["i"])[0])
    ['c', 'p']
    """
    parts = [given] if given in design.facets else listed_facets("object", given)
    check_facets(parts, design.facets)
    named = [f for f in design.facets if f != REPLICATE]
    if REPLICATE in parts:
        raise PlanError(f"replicates cannot be the object; choose one of {named}")
    if not parts:
        raise PlanError(f"the object of measurement is empty; choose one of {named}")
    objects = design.closure(parts)
    name = ":".join(f for f in design.facets if f in objects)
    for facet in sizes:
        if facet in objects:
            part = "" if name == facet else "a part of "
            whole = f" {name}" if part else ""
            raise PlanError(
                f"{facet!r} is {part}the object of measurement{whole} and takes no size; leave "
                f"out {facet}=... or pass another object=..."
            )
    return objects, name


def read_universe(
    fixed: str | Sequence[str],
    universe: Mapping[str, float] | None,
    within: str | Sequence[str],
    design: Design,
    objects: frozenset[str],
) -> Universe:
    """Return to what the scores are generalized.

    Parameters
    ----------
    fixed : facets whose planned levels are all that there are
    universe : N' of facets with finite universes
    within : facets of the object within whose levels objects are compared
    design : of the D-study
    objects : the facets of the object of measurement

    Raises
    ------
    PlanError
        If a facet is not known or cannot be what it is said to be.

    Examples
    --------
    >>> from vcomp.dstudy import parse_design
    >>> read_universe("o", {"i": 100}, (), parse_design("p x i x o"), frozenset({"p"})).sizes
    {'i': 100.0}
    """
    if universe is not None and not isinstance(universe, Mapping):
        raise PlanError(
            "universe is a mapping from facets to the sizes of their universes, such as "
            f"{{'topic': 500}}, not {universe!r}"
        )
    held, inside = listed_facets("fixed", fixed), listed_facets("within", within)
    finite = {f: float(positive_size(f, size)) for f, size in (universe or {}).items()}
    for what, facets in (("fixed", held), ("universe", list(finite))):
        check_facets(facets, design.facets)
        _check_measured(what, facets, design, objects)
    both = [f for f in held if f in finite]
    if both:
        raise PlanError(f"{both[0]!r} is fixed: its universe is what is planned; drop universe=")
    _check_within(inside, design, objects)
    return Universe(frozenset(held), finite, frozenset(inside))


def check_universe(space: Universe, most: Mapping[str, float]) -> None:
    """Refuse plans with more levels than there are.

    Parameters
    ----------
    space : of generalization
    most : the most levels of each facet that any plan has

    Raises
    ------
    PlanError
        If a finite universe is smaller than what is planned.
    """
    for facet, size in space.sizes.items():
        if most[facet] > size * (1.0 + 1e-9):
            raise PlanError(
                f"{most[facet]:g} levels of {facet!r} cannot be drawn from a universe of {size:g}"
            )


def check_facets(names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse names that are no facets, with the nearest that is one."""
    for name in names:
        if name in known:
            continue
        hint = did_you_mean(name, known)
        parts = [p for p in str(name).split("x") if p]
        if len(parts) > 1 and all(p in known for p in parts):
            hint = f" (with spaces around x: {' x '.join(parts)!r})"
        raise PlanError(f"unknown facet {name!r}{hint}; the G-study has {', '.join(known)}")


def check_columns(columns: Iterable[str], facets: Sequence[str]) -> None:
    """Refuse facets that have the name of a column of the table that their sizes stand in.

    Parameters
    ----------
    columns : of the table
    facets : of the D-study

    Raises
    ------
    PlanError
        Naming the facet.
    """
    for name in columns:
        if name in facets:
            raise PlanError(
                f"the table has a column {name!r} of its own, and so no place for the sizes of "
                f"the facet {name!r}; give the facet another name in the G-study"
            )


def listed_facets(what: str, given: str | Sequence[str]) -> list[str]:
    """Return facets from a text such as ``"doctor:patient"`` or a list of names."""
    if isinstance(given, str):
        return [part.strip() for part in given.replace(" x ", ":").split(":") if part.strip()]
    if isinstance(given, Iterable) and all(isinstance(f, str) for f in given):
        return list(given)
    raise PlanError(f"{what} is a facet or a list of facets, not {given!r}")


def _check_measured(
    what: str, facets: Sequence[str], design: Design, objects: frozenset[str]
) -> None:
    for facet in facets:
        if facet in objects:
            raise PlanError(
                f"{facet!r} belongs to the object of measurement and cannot be in {what}=: its "
                "levels are what is measured"
            )
        if facet == REPLICATE:
            raise PlanError("replicates are repeated measurements and always random")


def _check_within(inside: Sequence[str], design: Design, objects: frozenset[str]) -> None:
    check_facets(inside, design.facets)
    name = ":".join(f for f in design.facets if f in objects)
    for facet in inside:
        if facet not in objects:
            raise PlanError(
                f"within={facet!r}: objects are compared within levels of a facet that is a part "
                f"of the object of measurement, which is {name}"
            )
    if inside and not design.closure(inside) == frozenset(inside) < objects:
        raise PlanError(
            f"within={list(inside)}: a facet that these are nested in is missing, or nothing of "
            f"the object {name} is left to tell apart"
        )
