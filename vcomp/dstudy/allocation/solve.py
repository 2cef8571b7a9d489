"""The best sizes of one design: for a budget the least error, for a target the least cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.dstudy.allocation.problem import evaluate
from vcomp.exceptions import PlanError

__all__ = ["ROOM", "Goal", "Solution", "continuous_sizes", "first_that_reaches", "solve"]

ROOM = 1e-10
"""A budget or a target counts as kept within this share of it: what rounding may take away."""

_MOST_WORK = 50_000_000
"""Sizes that are tried before a search is given up: some seconds."""

_LARGEST = 2.0**52
_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted of the sizes.

    Attributes
    ----------
    budget : the most that a measurement may cost, or None
    allowed : else the most that its error variance may be, in the terms that fall with sizes
    """

    budget: float | None
    allowed: float = math.inf

    @property
    def limit(self) -> float:
        """What the cost, or else the error variance, may reach."""
        limit = self.allowed if self.budget is None else self.budget
        return limit + ROOM * abs(limit)


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The best designs, the best one first; none where nothing keeps the limit.

    Attributes
    ----------
    sizes : (r, F)
    error : (r,) error variance, without what finite universes take off
    cost : (r,)
    work : sizes that were tried
    """

    sizes: FloatArray
    error: FloatArray
    cost: FloatArray
    work: int

    @property
    def found(self) -> bool:
        """Whether there is one."""
        return len(self.sizes) > 0


@dataclass(frozen=True, slots=True, eq=False)
class _Reduced:
    """What is left to choose once the facets are out whose best size is plain.

    Attributes
    ----------
    sizes : (F,) of the facets that are settled
    free : (f,) places of the others
    error, cost : (2^f,) coefficients
    lo, hi : (f,) finite
    """

    sizes: FloatArray
    free: list[int]
    error: FloatArray
    cost: FloatArray
    lo: FloatArray
    hi: FloatArray

    def rows(self, free_sizes: FloatArray) -> FloatArray:
        """Return the sizes of all facets for those of the free ones."""
        rows = np.repeat(self.sizes[None, :], len(free_sizes), axis=0)
        rows[:, self.free] = free_sizes
        return rows


def solve(
    error: FloatArray,
    cost: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    goal: Goal,
    *,
    top: int = 1,
    near: float = 0.0,
    ceiling: float = math.inf,
) -> Solution:
    """Return the best sizes: no others are better, whatever they are.

    A size that does not matter to the error is the least; one that costs nothing the largest. All
    others are searched for by branch and bound, see :mod:`vcomp.kernels.allocation`.

    Parameters
    ----------
    error, cost : (2^F,) coefficients of products of 1/n, and of n, none negative
    lo, hi : (F,) least and largest sizes
    goal : the limit
    top : how many designs, each of which no facet alone could improve within the limit
    near : their error (with a target their cost) is at most (1 + near) times the best
    ceiling : and at most this

    Raises
    ------
    PlanError
        If the search would take too long.

    Examples
    --------
    >>> error, cost = np.array([0.0, 0.5, 1.0, 2.0]), np.array([0.0, 0.0, 10.0, 1.0])
    >>> found = solve(error, cost, np.ones(2), np.full(2, np.inf), Goal(budget=200))
    >>> found.sizes, found.error.round(4)
    (array([[10., 10.]]), array([0.17]))
    """
    reduced = _reduce(error, cost, lo, hi, goal, near=near)
    if reduced is None:
        return Solution(np.empty((0, lo.size)), np.empty(0), np.empty(0), 1)
    if not reduced.free:
        rows, work = reduced.sizes[None, :], 1
    else:
        free_sizes, work = _search(reduced, goal, top, near, ceiling)
        rows = reduced.rows(free_sizes)
    if rows.size and rows[0].max() >= _LARGEST:
        raise PlanError(
            "the best design has more levels of a facet than can be counted: are budget and "
            "prices in the same money? Else give bounds="
        )
    return Solution(rows, evaluate(error, 1.0 / rows), evaluate(cost, rows), work)


def continuous_sizes(
    error: FloatArray, cost: FloatArray, lo: FloatArray, hi: FloatArray, goal: Goal
) -> FloatArray:
    """Return the best sizes if they need not be whole numbers, (F,); nan where nothing is.

    Examples
    --------
    With n_i n_a = 400 the ratio n_i/n_a is that of their variances:

    >>> error, cost = np.array([0.0, 1.0, 4.0, 9.0]), np.array([0.0, 0.0, 0.0, 1.0])
    >>> continuous_sizes(error, cost, np.ones(2), np.full(2, np.inf), Goal(400)).round(4)
    array([40., 10.])
    """
    reduced = _reduce(error, cost, lo, hi, goal, whole=False)
    if reduced is None:
        return np.full(lo.size, math.nan)
    if not reduced.free:
        return reduced.sizes
    rows = reduced.rows(_relaxed_sizes(reduced, goal)[None, :])
    return np.asarray(rows[0])


def _search(
    reduced: _Reduced, goal: Goal, top: int, near: float, ceiling: float
) -> tuple[FloatArray, int]:
    """Return the sizes of the free facets, (r, f), and the work that it took."""
    f, budget = len(reduced.free), goal.budget is not None
    # Facets of which there are few come first, so that the last one has fine steps.
    order = np.argsort(_relaxed_sizes(reduced, goal), kind="stable").astype(np.int64)
    arrays = [_reordered(c, order, f) for c in (reduced.error, reduced.cost)]
    lo, hi = reduced.lo[order], reduced.hi[order]
    if f == 1:
        # The search knows pairs: a facet of one level that costs nothing is put in front.
        arrays = [np.concatenate([c, np.zeros(2)]) for c in arrays]
        lo, hi = np.concatenate([[1.0], lo]), np.concatenate([[1.0], hi])
    objective, constraint = arrays if budget else arrays[::-1]
    places = np.argsort(order, kind="stable") + lo.size - f
    # With it comes numba, which D-studies do not wait for.
    from vcomp.kernels.allocation import search

    found, _, work = search(
        objective, constraint, goal.limit, lo, hi, budget, places, top, near, ceiling, _MOST_WORK
    )
    if work > _MOST_WORK:
        raise PlanError(
            f"the best sizes of {f} facets are not found among {display.count(work)} candidates "
            "and more: give bounds= to some of them"
        )
    sizes = found[np.isfinite(found[:, 0]), 1 + lo.size - f :]
    return sizes[:, np.argsort(order, kind="stable")], work


def _relaxed_sizes(reduced: _Reduced, goal: Goal) -> FloatArray:
    budget, f = goal.budget is not None, len(reduced.free)
    pair = (reduced.error, reduced.cost) if budget else (reduced.cost, reduced.error)
    best = reduced.lo.copy()
    from vcomp.kernels.allocation import relaxed

    relaxed(*pair, f, goal.limit, reduced.lo, reduced.hi, budget, best)
    return best


def _reduce(
    error: FloatArray,
    cost: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    goal: Goal,
    *,
    near: float = 0.0,
    whole: bool = True,
) -> _Reduced | None:
    """Settle the sizes that are plain and bound the others; None where nothing keeps the limit."""
    F = lo.size
    e, c = error.reshape((2,) * F), cost.reshape((2,) * F)
    reach = _reach(error, cost, lo, hi, goal, near, whole=whole)
    if reach is None:
        return None
    sizes, free = lo.copy(), []
    for j in range(F):
        if not e.take(1, axis=j).any() or lo[j] == reach[j]:
            continue
        if not c.take(1, axis=j).any():
            sizes[j] = reach[j]
        else:
            free.append(j)
    for j in reversed([j for j in range(F) if j not in free]):
        e = e.take(0, axis=j) + e.take(1, axis=j) / sizes[j]
        c = c.take(0, axis=j) + c.take(1, axis=j) * sizes[j]
    return _Reduced(sizes, free, e.ravel(), c.ravel(), lo[free], reach[free])


def _reach(
    error: FloatArray,
    cost: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    goal: Goal,
    near: float,
    *,
    whole: bool,
) -> FloatArray | None:
    """Return the largest sizes that can be best, all finite; None where nothing keeps the limit.

    With a target a first design that reaches it says what may be spent.
    """
    most = goal.limit
    if goal.budget is None:
        first = first_that_reaches(error, lo, hi, goal.limit)
        if first is None:
            return None
        most = float(evaluate(cost, first[None, :])[0]) * (1.0 + near + ROOM)
    least = float(evaluate(cost, lo[None, :])[0])
    if least > most:
        return None
    reach = hi.copy()
    e, c = error.reshape((2,) * lo.size), cost.reshape((2,) * lo.size)
    for j in range(lo.size):
        others = np.delete(lo, j)[None, :]
        price = float(evaluate(c.take(1, axis=j).ravel(), others)[0])
        if not e.take(1, axis=j).any():
            reach[j] = lo[j]
        elif price > 0.0:
            more = (most - least) / price * (1.0 + ROOM)
            reach[j] = min(hi[j], lo[j] + (math.floor(more) if whole else more))
    return np.minimum(reach, _LARGEST)


def first_that_reaches(
    error: FloatArray, lo: FloatArray, hi: FloatArray, limit: float
) -> FloatArray | None:
    """Return sizes at which the error is below the limit, reduced one by one; None if none are."""

    def at(sizes: FloatArray) -> float:
        return float(evaluate(error, 1.0 / sizes[None, :])[0])

    if at(hi) > limit:
        return None
    sizes = lo.copy()
    for _ in range(_MOST_DOUBLINGS):
        if at(sizes) <= limit:
            break
        sizes = np.minimum(2.0 * sizes, np.minimum(hi, _LARGEST))
    else:
        return None
    for j in range(lo.size):
        least, most = lo[j], sizes[j]
        while least < most:
            sizes[j] = math.floor(0.5 * (least + most))
            if at(sizes) <= limit:
                most = sizes[j]
            else:
                least = sizes[j] + 1.0
        sizes[j] = most
    return sizes


def _reordered(coefficients: FloatArray, order: LongArray, f: int) -> FloatArray:
    return np.ascontiguousarray(coefficients.reshape((2,) * f).transpose(order)).ravel()
