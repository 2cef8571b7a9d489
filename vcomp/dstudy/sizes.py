"""Sizes of facets in a D-study: one number, several, or the counts of an unbalanced design."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError

__all__ = ["Counts", "all_sizes", "effective_sizes", "positive_size", "read_sizes"]

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
        mean of the means of the outer levels. ``"arithmetic"``: the average count stands for all,
        which is simple and too favourable

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
    >>> from vcomp.dstudy import from_components
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
        if rule not in _RULES:
            raise PlanError(f"the rule of counts is one of {', '.join(_RULES)}, not {rule!r}")
        object.__setattr__(self, "counts", numbers)
        object.__setattr__(self, "rule", rule)


def effective_sizes(counts: Counts, *, outer_is_object: bool) -> tuple[float, float]:
    """Return the sizes that stand for `counts`: of the outer and of the nested facet.

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


def all_sizes(sizes: Mapping[str, Any] | None, n: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes that are given as a mapping and those given as keywords.

    Parameters
    ----------
    sizes : for facets whose names are no Python names or those of parameters
    n : by keyword

    Raises
    ------
    PlanError
        If `sizes` is no mapping, or the size of a facet is given twice.

    Examples
    --------
    >>> all_sizes({"exam item": 20}, {"a": [1, 2]})
    {'exam item': 20, 'a': [1, 2]}
    """
    if sizes is None:
        return dict(n)
    if not isinstance(sizes, Mapping):
        raise PlanError(f"sizes is a mapping such as {{'topic': [25, 50]}}, not {sizes!r}")
    twice = [f for f in n if f in sizes]
    if twice:
        raise PlanError(f"the size of {twice[0]!r} is given twice, in sizes= and as {twice[0]}=")
    return {**sizes, **n}


def read_sizes(facet: str, wanted: Any) -> tuple[float | Counts, ...]:
    """Return the sizes of a facet that are asked for.

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
        raise PlanError(f"no size is given for {facet!r}: its list is empty")
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
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            size = float(value)
        except OverflowError:
            size = math.inf  # an int that no float can hold
        if math.isfinite(size) and size > 0:
            return int(value) if isinstance(value, Integral) else size
    raise PlanError(f"the size of {facet!r} must be a positive number, not {value!r}")


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
