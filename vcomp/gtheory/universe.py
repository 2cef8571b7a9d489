"""The object of measurement, the universe of generalization, and sizes as users give them.

:mod:`~vcomp.gtheory.plan` makes plans of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.display import listed
from vcomp.exceptions import PlanError, check_one_of, did_you_mean, is_real
from vcomp.formula import REPLICATE, BrennanDesign

Rule = Literal["exact", "harmonic", "arithmetic"]
_RULES = ("exact", "harmonic", "arithmetic")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many levels of a nested facet each level of the outer facet has.

    Four headings with 3, 5, 4 and 4 items are ``i=Counts([3, 5, 4, 4])`` in the design
    ``p x (i:h)``; the size of h is their number.

    Attributes
    ----------
    counts : one for each level of the facet in which the facet is nested
    rule : ``"exact"``: a score is the mean over all levels of the nested facet, each with the same
        weight, so that outer levels with more of them weigh more. ``"harmonic"``: a score is the
        mean of the means of the outer levels. ``"arithmetic"``: the mean count is used for all
        levels, which understates the error

    Raises
    ------
    PlanError
        If there are no counts, one is not a positive number, or the rule is not known.

    References
    ----------
    Brennan (2001), Generalizability Theory, sections 7.2 and 7.3: the divisors of unbalanced
    designs.

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> g = from_components({"p": 0.5, "h": 0.1, "i:h": 0.3, "p:h": 0.2, "Residual": 1.0})
    >>> g.dstudy(i=Counts([2, 4])).table[["h", "i", "abs_err_var"]].round(4)
           h       i  abs_err_var
    0  1.8  3.3333       0.3833
    """

    counts: tuple[float, ...]
    rule: Rule = "exact"

    def __init__(self, counts: Iterable[float], rule: Rule = "exact") -> None:
        if not isinstance(counts, Iterable) or isinstance(counts, (str, bytes, Mapping)):
            raise PlanError(f"counts are numbers such as [3, 5, 4], not {counts!r}")
        numbers = tuple(positive_size("a group", n) for n in counts)
        if not numbers:
            raise PlanError("there are no counts: give one for each level of the outer facet")
        check_one_of("the rule of counts", rule, _RULES)
        object.__setattr__(self, "counts", numbers)
        object.__setattr__(self, "rule", rule)


def effective_sizes(counts: Counts, *, outer_is_object: bool) -> tuple[float, float]:
    """Return the effective sizes of the outer and of the nested facet.

    With n₊ = Σ n_h the exact ones are n₊²/Σ n_h² and Σ n_h²/n₊, whose product is n₊. Within an
    object of measurement the average error is that of the harmonic mean.

    Parameters
    ----------
    counts : n_h
    outer_is_object : whether the facet is nested in the object of measurement, whose own size does
        not matter

    Examples
    --------
    >>> effective_sizes(Counts([2, 4]), outer_is_object=False)
    (1.8, 3.3333333333333335)
    """
    n = np.array(counts.counts, dtype=float)
    if counts.rule == "arithmetic":
        return float(n.size), float(n.mean())
    if counts.rule == "harmonic" or outer_is_object:
        return float(n.size), float(n.size / (1.0 / n).sum())
    total, squares = float(n.sum()), float(n @ n)
    return total**2 / squares, squares / total


def all_sizes(
    sizes: Mapping[str, Any] | None,
    n: Mapping[str, Any],
    facets: Iterable[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """Return the sizes that are given as a mapping and those given as keywords.

    Parameters
    ----------
    sizes : for facets whose names are not Python names, or are names of parameters
    n : by keyword
    facets : of the G-study
    **options : arguments of the call; one with the name of a facet may be meant as its size

    Raises
    ------
    PlanError
        If `sizes` is not a mapping, the size of a facet is given twice, or as an option.

    Examples
    --------
    >>> all_sizes({"exam item": 20}, {"a": [1, 2]})
    {'exam item': 20, 'a': [1, 2]}
    >>> all_sizes(None, {}, ["alpha", "p"], alpha=20)
    Traceback (most recent call last):
    vcomp.exceptions.PlanError: alpha= is an option here: the size of the facet 'alpha' is given
    as sizes={'alpha': 20}
    """
    for name in set(facets).intersection(options):
        value = options[name]
        several = isinstance(value, list | tuple | range) and not isinstance(value, str)
        first = next(iter(value), None) if several else value
        if is_real(first) and float(first) >= 1.0:
            raise PlanError(
                f"{name}= is an option here: the size of the facet {name!r} is given as "
                f"sizes={{{name!r}: {value!r}}}",
                column=name,
            )
    if sizes is None:
        return dict(n)
    if not isinstance(sizes, Mapping):
        raise PlanError(f"sizes is a mapping such as {{'topic': [25, 50]}}, not {sizes!r}")
    twice = [f for f in n if f in sizes]
    if twice:
        raise PlanError(
            f"the size of {twice[0]!r} is given twice, in sizes= and as {twice[0]}=",
            column=twice[0],
        )
    return {**sizes, **n}


def read_sizes(facet: str, wanted: Any) -> tuple[float | Counts, ...]:
    """Return the sizes of a facet that are planned.

    Parameters
    ----------
    facet : its name
    wanted : a number, :class:`Counts`, or several of them

    Raises
    ------
    PlanError
        If there is none, or one is not a positive number.

    Examples
    --------
    >>> read_sizes("i", range(10, 30, 10))
    (10, 20)
    """
    if isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes, Mapping)):
        # a zero-dimensional array is iterable by type only
        values = [wanted[()]] if getattr(wanted, "ndim", 1) == 0 else list(wanted)  # type: ignore[index]
    else:
        values = [wanted]
    if not values:
        raise PlanError(f"no size is given for {facet!r}: its list is empty", column=facet)
    return tuple(v if isinstance(v, Counts) else positive_size(facet, v) for v in values)


def positive_size(facet: str, value: Any) -> float:
    """Return `value` as the size of `facet`: an int, or a float for an effective size.

    Raises
    ------
    PlanError
        It is not a positive number.

    Examples
    --------
    >>> positive_size("topic", 50)
    50
    """
    # Python's bool is a number, numpy's is not
    if is_real(value):
        try:
            size = float(value)
        except OverflowError:
            size = math.inf  # an int that no float can hold
        if math.isfinite(size) and size > 0:
            return int(value) if isinstance(value, Integral) else size
    raise PlanError(
        f"the size of {facet!r} must be a positive number, not {value!r}", column=facet
    )


def grid(columns: list[FloatArray]) -> FloatArray:
    """Return the Cartesian product of columns, the last one running fastest, as (m, F) rows.

    Examples
    --------
    >>> grid([np.array([1.0, 2.0]), np.array([5.0, 6.0])]).tolist()
    [[1.0, 5.0], [1.0, 6.0], [2.0, 5.0], [2.0, 6.0]]
    """
    if not columns:
        return np.empty((1, 0))
    crossed = np.meshgrid(*columns, indexing="ij")
    return np.column_stack([axis.ravel() for axis in crossed])


@dataclass(frozen=True, slots=True)
class Universe:
    """The universe of generalization.

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
        """Return whether all `facets` but `finite` are fixed, so that its levels are the universe.

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
    given: str | Sequence[str], design: BrennanDesign, sizes: Iterable[str]
) -> tuple[frozenset[str], str]:
    """Return the facets of the object, with the facets above them, and its name.

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
    >>> from vcomp.formula import parse_design
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
                f"{facet!r} is {part}the object of measurement{whole} and has no size; leave "
                f"out {facet}=... or pass another object=...",
                column=facet,
            )
    return objects, name


def read_universe(
    fixed: str | Sequence[str],
    universe: Mapping[str, float] | None,
    within: str | Sequence[str],
    design: BrennanDesign,
    objects: frozenset[str],
) -> Universe:
    """Return the universe of generalization.

    Parameters
    ----------
    fixed : facets whose planned levels are the whole universe
    universe : N' of facets with finite universes
    within : facets of the object within whose levels objects are compared
    design : of the D-study
    objects : the facets of the object of measurement

    Raises
    ------
    PlanError
        If a facet is unknown, cannot be fixed, finite or compared within as given, or is fixed or
        finite and nested in a random facet.

    Examples
    --------
    >>> from vcomp.formula import parse_design
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
        _check_measured(what, facets, objects)
    both = [f for f in held if f in finite]
    if both:
        raise PlanError(
            f"{both[0]!r} is fixed: its universe are the planned levels; drop universe=",
            column=both[0],
        )
    for what, facets in (("fixed", held), ("universe", list(finite))):
        _check_outer(what, facets, design, objects | {*held, *finite})
    _check_within(inside, design, objects)
    return Universe(frozenset(held), finite, frozenset(inside))


def check_universe(space: Universe, most: Mapping[str, float]) -> None:
    """Refuse plans with more levels than the universe.

    Parameters
    ----------
    space : of generalization
    most : the most levels of each facet that any plan has

    Raises
    ------
    PlanError
        If a plan has more levels than a finite universe.
    """
    for facet, size in space.sizes.items():
        if most[facet] > size * (1.0 + 1e-9):
            raise PlanError(
                f"{display.counted(most[facet], facet)} cannot be drawn from a universe of "
                f"{size:g}",
                column=facet,
            )


def check_facets(names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse unknown facets, and suggest the nearest known one."""
    for name in names:
        if name in known:
            continue
        hint = did_you_mean(name, known)
        parts = [p for p in str(name).split("x") if p]
        if len(parts) > 1 and all(p in known for p in parts):
            hint = f" (with spaces around x: {' x '.join(parts)!r})"
        raise PlanError(
            f"unknown facet {name!r}{hint}; the G-study has {', '.join(known)}", column=name
        )


def check_columns(columns: Iterable[str], facets: Sequence[str]) -> None:
    """Refuse facets with the name of a column of the table of sizes.

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
                f"the facet {name!r}; give the facet another name in the G-study",
                column=name,
            )


def listed_facets(what: str, given: str | Sequence[str]) -> list[str]:
    """Return facets from a text such as ``"doctor:patient"`` or a list of names."""
    if isinstance(given, str):
        return [part.strip() for part in given.replace(" x ", ":").split(":") if part.strip()]
    if isinstance(given, Iterable) and all(isinstance(f, str) for f in given):
        return list(given)
    raise PlanError(f"{what} is a facet or a list of facets, not {given!r}")


def _check_measured(what: str, facets: Sequence[str], objects: frozenset[str]) -> None:
    for facet in facets:
        if facet in objects:
            raise PlanError(
                f"{facet!r} belongs to the object of measurement and cannot be in {what}=: its "
                "levels are measured",
                column=facet,
            )
        if facet == REPLICATE:
            raise PlanError("replicates are repeated measurements and always random")


def _check_outer(
    what: str, facets: Sequence[str], design: BrennanDesign, bounded: frozenset[str]
) -> None:
    """Refuse a fixed or finite facet nested in a random one, which has infinitely many levels."""
    for facet in facets:
        random = [f for f in design.facets if f in design.nested_in[facet] - bounded]
        if not random:
            continue
        outer = listed(random)
        also = f"fixed={[*random, facet]!r}" if what == "fixed" else f"{outer} a size as well"
        raise PlanError(
            f"{facet!r} cannot be in {what}=: it is nested in {outer}, which "
            f"{'is' if len(random) == 1 else 'are'} random, so that the next study has other "
            f"levels of {facet}. Leave {facet} out of {what}=, or give {also}; if all levels of "
            f"{outer} have the same levels of {facet}, cross them in the design",
            column=facet,
        )


def _check_within(inside: Sequence[str], design: BrennanDesign, objects: frozenset[str]) -> None:
    check_facets(inside, design.facets)
    name = ":".join(f for f in design.facets if f in objects)
    for facet in inside:
        if facet not in objects:
            raise PlanError(
                f"within={facet!r}: objects are compared within levels of a facet that is a part "
                f"of the object of measurement, which is {name}",
                column=facet,
            )
    if inside and not design.closure(inside) == frozenset(inside) < objects:
        raise PlanError(
            f"within={list(inside)}: a facet that these are nested in is missing, or nothing of "
            f"the object {name} is left to distinguish"
        )
