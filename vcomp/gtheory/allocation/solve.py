"""The best sizes of one design: for a budget the least error, for a goal the least cost.

The error variance of a design of F facets is a sum of products of 1/n, its cost a sum of products
of n, and each facet occurs in a product at most once. Both are arrays of 2^F coefficients: the
bits of an index are the set of facets of its product, the first facet being the highest bit. One
of the two is the objective, the other has a limit.

In log n the logarithms of both are convex (Boyd and Vandenberghe 2004, Convex Optimization, sec.
4.5). So the least objective at a given size of one facet, the others not whole, falls and then
rises with that size. Facet by facet, all sizes are enumerated at which this bound is at most a
threshold; the last facet has its best whole size. The threshold rises until it is above the
objective of the designs that were found: no other design is then better.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import PlanError
from vcomp.gtheory.allocation.problem import (
    EQUAL,
    TIE,
    AllocationSolution,
    Limit,
    evaluate,
    first_sizes,
    tie_class,
)

_MOST_ROWS = 4_000_000
"""Largest number of combinations of sizes that are held at once."""

_LARGEST = 2.0**52
"""Size from which on whole numbers cannot be counted as floats."""

_ROUNDING, _SLACK = 1e-13, 1e-10
"""Relative tolerances of the limit of a relaxed problem, and of its least objective."""

_MORE_ROWS = 16.0
"""Approximate factor by which the combinations of sizes grow when the threshold rises."""

_AT_ONCE = 256
"""Number of problems that are solved together."""

_MOST_STEPS, _BISECTED = 200, 8
"""Largest number of steps to a root; every so many steps the interval is halved."""

_FLAT, _NARROW, _AT_END = 1e-9, 1e-11, 1e-9
"""Slope at which a root is found, width of the interval in log r, and relative distance from an
end of r within which r is at that end."""


# The relaxed problem: sizes that need not be whole -----------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Programs:
    """K problems: the least Σ o Π 1/r such that Σ c Π r is at most a limit.

    With a budget r is the size n, the objective the error variance, and the constraint the cost.
    With a goal r is 1/n, the objective the cost, and the constraint the error variance.

    Attributes
    ----------
    objective, constraint : (K, 2^m) coefficients, none negative
    limit : (K,)
    low, high : (K, m) limits of r, positive and finite
    """

    objective: FloatArray
    constraint: FloatArray
    limit: FloatArray
    low: FloatArray
    high: FloatArray

    def __getitem__(self, rows: LongArray | BoolArray) -> _Programs:
        return _Programs(*(getattr(self, f.name)[rows] for f in fields(self)))

    def at(self, r: FloatArray) -> _Programs:
        """Return the problems of the other facets when the first one has (K,) values."""
        half = self.objective.shape[1] // 2
        return _Programs(
            self.objective[:, :half] + self.objective[:, half:] / r[:, None],
            self.constraint[:, :half] + self.constraint[:, half:] * r[:, None],
            self.limit,
            self.low[:, 1:],
            self.high[:, 1:],
        )

    def furthest(self) -> FloatArray:
        """Return the largest r of the first facet, the others at their least; nan if none is."""
        half = self.objective.shape[1] // 2
        fixed = evaluate(self.constraint[:, :half], self.low[:, 1:])
        each = evaluate(self.constraint[:, half:], self.low[:, 1:])
        low, high = self.low[:, 0], self.high[:, 0]
        r = np.where(fixed + each * high <= self.limit, high, (self.limit - fixed) / each)
        kept = fixed + each * low <= self.limit * (1.0 + _ROUNDING)
        return np.where(kept, np.maximum(r, low), math.nan)

    def value(self, r: FloatArray) -> FloatArray:
        """Return the objective at (K, m) values, infinite where they are nan."""
        objective = evaluate(self.objective, 1.0 / r)
        return np.where(np.isnan(objective), math.inf, objective)


def _relax(programs: _Programs) -> FloatArray:
    """Return the best r if sizes need not be whole, (K, m); nan where none keep the limit."""
    m = programs.low.shape[1]
    if m == 1:
        return programs.furthest()[:, None]
    first = _best_of_two(programs) if m == 2 else _best_of_many(programs)
    return np.concatenate([first[:, None], _relax(programs.at(first))], axis=1)


def _best_of_two(programs: _Programs) -> FloatArray:
    """Return the best r of the first of two facets, the root of a quadratic equation.

    The second facet has what the limit leaves. Where that is more than its largest r, more of the
    first facet is better.
    """
    _, o_2, o_1, o_12 = programs.objective.T
    c, c_2, c_1, c_12 = programs.constraint.T
    rest = programs.limit - c
    low, high, most = programs.low[:, 0], programs.high[:, 1], programs.furthest()
    least = np.clip((rest - c_2 * high) / (c_1 + c_12 * high), low, most)
    root = np.sqrt(
        (o_2 * rest + o_12 * c_1) * (c_2 * c_1 + c_12 * rest) / (o_1 * rest + o_12 * c_2)
    )
    best = rest / (c_1 + root)
    return np.asarray(np.clip(np.where(np.isnan(best), least, best), least, most))


def _best_of_many(programs: _Programs) -> FloatArray:
    """Return the best r of the first of m > 2 facets, where the slope of the objective is zero.

    By false position in log r, with the value at an end reduced that stays (Anderson and Björck
    1973, BIT 13, 253-264).
    """
    most = programs.furthest()
    kept = np.flatnonzero(~np.isnan(most))
    programs, best = programs[kept], most
    left, right = np.log(programs.low[:, 0]), np.log(most[kept])
    both = np.tile(np.arange(len(kept)), 2)
    at_left, at_right = np.split(_slope(programs[both], np.append(left, right)), 2)
    x = np.where(at_left >= 0.0, left, right)
    active = np.flatnonzero((at_left < 0.0) & (at_right > 0.0))
    last = np.zeros(len(kept))
    for step in range(_MOST_STEPS):
        if not active.size:
            break
        a, b, at_a, at_b = (ends[active] for ends in (left, right, at_left, at_right))
        middle = (a * at_b - b * at_a) / (at_b - at_a)
        x[active] = np.where(step % _BISECTED, np.clip(middle, a, b), 0.5 * (a + b))
        slope = _slope(programs[active], x[active])
        side = np.sign(slope)
        less = 1.0 - slope / np.where(side < 0, at_a, at_b)
        kept_part = np.where(side == last[active], np.where(less > 0.0, less, 0.5), 1.0)
        left[active], at_left[active] = np.where(
            side < 0, (x[active], slope), (a, at_a * kept_part)
        )
        right[active], at_right[active] = np.where(
            side < 0, (b, at_b * kept_part), (x[active], slope)
        )
        last[active] = side
        active = active[(np.abs(slope) > _FLAT) & (b - a > _NARROW)]
    best[kept] = np.clip(np.exp(x), programs.low[:, 0], most[kept])
    return best


def _slope(programs: _Programs, x: FloatArray) -> FloatArray:
    """Return the slope of the least log-objective over x = log r of the first facet, within ±1.

    By the envelope theorem: with the price of the limit, which is by how much the objective falls
    for a unit of it. It is known from the facet that is furthest from both ends of its r.
    """
    r = np.exp(x)
    others = _relax(programs.at(r))
    all_r = np.column_stack([r, others])
    in_set = _in_sets(all_r.shape[1])
    products = np.where(in_set, all_r[:, None, :], 1.0).prod(axis=2)
    terms = programs.objective / products
    falls, costs = terms @ in_set, (programs.constraint * products) @ in_set
    low, high = programs.low[:, 1:], programs.high[:, 1:]
    inside = np.minimum(others / low - 1.0, 1.0 - others / high)
    rows, chosen = np.arange(len(r)), 1 + inside.argmax(axis=1)
    is_ample = (others >= high * (1.0 - _AT_END)).all(axis=1)
    price = np.where(
        inside[rows, chosen - 1] > _AT_END,
        falls[rows, chosen] / costs[rows, chosen],
        np.where(is_ample, 0.0, math.inf),
    )
    slope = (price * costs[:, 0] - falls[:, 0]) / terms.sum(axis=1)
    return np.where(np.isfinite(slope), slope / (1.0 + np.abs(slope)), 1.0)


@functools.cache
def _in_sets(m: int) -> BoolArray:
    """Return which of m facets are in each set of them, (2^m, m)."""
    return np.array(list(itertools.product([False, True], repeat=m)))


# Whole sizes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Problems:
    """K problems of one design, in the f facets that are free.

    Attributes
    ----------
    programs : of the free facets, those of which there are few first
    start : (K, f) the best sizes if they need not be whole, as r
    known : (K, F) sizes of all facets; those of free ones are not used
    free : (f,) places of the free facets
    budget : whether the limit is a budget
    """

    programs: _Programs
    start: FloatArray
    known: FloatArray
    free: LongArray
    budget: bool

    def __getitem__(self, rows: LongArray) -> _Problems:
        parts = {name: getattr(self, name)[rows] for name in ("programs", "start", "known")}
        return replace(self, **parts)

    def turned(self, values: FloatArray) -> FloatArray:
        """Return r for sizes, and sizes for r."""
        return values if self.budget else 1.0 / values

    def all_sizes(self, owner: LongArray, free_sizes: FloatArray) -> FloatArray:
        """Return (R, F) sizes of all facets for (R, f) sizes of the free ones."""
        rows = self.known[owner]
        rows[:, self.free] = free_sizes
        return rows


def _problems(
    errors: FloatArray,
    cost: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    limits: Sequence[Limit],
    near: float = 0.0,
) -> tuple[_Problems, LongArray]:
    """Return the problems that have a solution, and their numbers."""
    K, F = len(errors), lo.size
    limit, budget = np.array([one.value for one in limits]), limits[0].budget is not None
    low, high = np.tile(lo, (K, 1)), np.tile(np.minimum(hi, _LARGEST), (K, 1))
    e, c = errors.reshape(K, *(2,) * F), np.broadcast_to(cost, errors.shape).reshape(K, *(2,) * F)
    for j in range(F):
        matters = e.take(1, axis=1 + j).reshape(K, -1).any(axis=1)
        high[~matters, j] = lo[j]
        if not c.take(1, axis=1 + j).any():
            low[:, j] = high[:, j]
    used = evaluate(cost, low) if budget else evaluate(errors, 1.0 / high)
    rows = np.flatnonzero(used <= limit)
    if not budget:
        # A facet alone is not dearer than a whole design that reaches the goal.
        spent = (1.0 + near) * evaluate(cost, first_sizes(errors, lo, high, limit))
        prices = [cost.reshape((2,) * F).take(1, axis=j).ravel() for j in range(F)]
        each = [evaluate(price, np.delete(lo, j)[None, :])[0] for j, price in enumerate(prices)]
        high = np.fmin(high, np.floor(spent[:, None] / each) + 1.0)
    low, high, e, c = low[rows], high[rows], e[rows], c[rows]
    free = np.flatnonzero((low < high).any(axis=0))
    for j in reversed(range(F)):
        if j not in free:
            n = low[:, j].reshape(-1, *(1,) * (e.ndim - 2))
            e = e.take(0, axis=1 + j) + e.take(1, axis=1 + j) / n
            c = c.take(0, axis=1 + j) + c.take(1, axis=1 + j) * n
    ends = (low[:, free], high[:, free]) if budget else (1.0 / high[:, free], 1.0 / low[:, free])

    def programs(order: LongArray) -> _Programs:
        turned = [x.transpose(0, *(1 + order)).reshape(len(rows), 1 << free.size) for x in (e, c)]
        objective, constraint = turned if budget else turned[::-1]
        return _Programs(objective, constraint, limit[rows], ends[0][:, order], ends[1][:, order])

    start, order = np.empty((len(rows), 0)), np.arange(free.size)
    if free.size and rows.size:
        start = _relax(programs(order))
        sizes = np.log(start).mean(axis=0) * (1.0 if budget else -1.0)
        order = np.argsort(sizes, kind="stable")
    return _Problems(programs(order), start[:, order], low, free[order], budget), rows


def solve(
    errors: FloatArray,
    cost: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    limits: Sequence[Limit],
    *,
    top: int = 1,
    near: float = 0.0,
    most_rows: int = _MOST_ROWS,
) -> list[AllocationSolution]:
    """Return the globally best sizes of one design for several error variances and limits.

    Facets that do not affect the error have their least size, facets without cost their largest.

    Parameters
    ----------
    errors : (K, 2^F) coefficients of products of 1/n, none negative
    cost : (2^F,) coefficients of products of n, none negative
    lo, hi : (F,) least and largest sizes
    limits : (K,) all budgets or all goals
    top : how many designs, each of which no facet alone could improve within the limit
    near : their error (with a goal their cost) is at most (1 + near) times the best
    most_rows : largest number of combinations of sizes that are held at once

    Raises
    ------
    PlanError
        If there are too many combinations, or more levels than can be counted.

    Examples
    --------
    >>> errors, cost = np.array([[0.0, 0.5, 1.0, 2.0]]), np.array([0.0, 0.0, 10.0, 1.0])
    >>> (found,) = solve(errors, cost, np.ones(2), np.full(2, np.inf), [Limit(budget=200)])
    >>> found.sizes, found.error.round(4)
    (array([[10., 10.]]), array([0.17]))
    """
    solutions = []
    for first in range(0, len(errors), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        with np.errstate(all="ignore"):
            solutions += _solve_part(
                errors[part], cost, lo, hi, limits[part], top, near, most_rows
            )
    return solutions


def continuous_sizes(
    error: FloatArray, cost: FloatArray, lo: FloatArray, hi: FloatArray, limit: Limit
) -> FloatArray:
    """Return the best sizes if they need not be whole numbers, (F,); nan without a solution.

    Examples
    --------
    With n_i n_a = 400 the ratio n_i/n_a is that of their variances:

    >>> error, cost = np.array([0.0, 1.0, 4.0, 9.0]), np.array([0.0, 0.0, 0.0, 1.0])
    >>> continuous_sizes(error, cost, np.ones(2), np.full(2, np.inf), Limit(400)).round(4)
    array([40., 10.])
    """
    with np.errstate(all="ignore"):
        problems, rows = _problems(error[None, :], cost, lo, hi, [limit])
    if not rows.size:
        return np.full(lo.size, math.nan)
    owner = np.zeros(1, dtype=np.int64)
    return np.asarray(problems.all_sizes(owner, problems.turned(problems.start))[0])


class _TooManyRowsError(Exception):
    """More combinations of sizes than may be held at once."""


def _solve_part(
    errors: FloatArray,
    cost: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    limits: Sequence[Limit],
    top: int,
    near: float,
    most_rows: int,
) -> list[AllocationSolution]:
    """Return the solutions of problems that are solved together."""
    K, F = len(errors), lo.size
    problems, numbers = _problems(errors, cost, lo, hi, limits, near)
    solutions = [AllocationSolution(np.empty((0, F)), np.empty(0), np.empty(0))] * K
    try:
        designs = _search(problems, top, near, most_rows)
    except _TooManyRowsError:
        if K == 1:
            raise PlanError(
                f"the best sizes of {problems.free.size} facets are not found among "
                f"{display.count(most_rows)} candidates and more: give bounds= to some of them"
            ) from None
        halves = (slice(None, K // 2), slice(K // 2, None))
        return [
            one
            for half in halves
            for one in _solve_part(errors[half], cost, lo, hi, limits[half], top, near, most_rows)
        ]
    for k, rows in zip(numbers, designs, strict=True):
        if rows[:1].max(initial=0.0) >= _LARGEST:
            raise PlanError(
                "the best design has more levels of a facet than can be counted: are budget and "
                "prices in the same unit? Otherwise give bounds="
            )
        solutions[k] = AllocationSolution(
            rows, evaluate(errors[k], 1.0 / rows), evaluate(cost, rows)
        )
    return solutions


def _search(problems: _Problems, top: int, near: float, most_rows: int) -> list[FloatArray]:
    """Return the sizes of the best designs of each problem, (r, F)."""
    K, f = problems.start.shape
    if not f:
        return list(problems.known[:, None, :])
    growth = _MORE_ROWS ** (2.0 / max(f - 1, 1))
    least = problems.programs.value(problems.start)
    worst, wanted, gap = np.full(K, -math.inf), np.full(K, math.inf), np.zeros(K)
    found: list[FloatArray] = [problems.known[:0]] * K
    active = np.arange(K)
    while active.size:
        designs = _best_designs(problems[active], worst[active], most_rows)
        wanted[active] = np.minimum(wanted[active], designs.least * (1.0 + near + EQUAL))
        for k, (sizes, values) in zip(active, _of_each(designs, top, near), strict=True):
            if len(values) == top:
                wanted[k] = min(wanted[k], values[-1] * (1.0 + EQUAL))
            found[k] = sizes
        done = worst[active] >= wanted[active]
        # The first designs are those next to the relaxed optimum.
        gap[active] = np.where(
            worst[active] < 0.0,
            np.maximum(designs.least - least[active], TIE * least[active]) / _MORE_ROWS,
            gap[active] * growth,
        )
        worst[active] = np.minimum(wanted, least + gap)[active]
        active = active[~done]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Designs:
    """Designs of several problems that no change of one size improves, the best first.

    Attributes
    ----------
    owner : (R,) number of the problem, ascending
    sizes : (R, F)
    value : (R,) objective
    least : (K,) least objective of all designs, also of those that a facet alone could improve
    """

    owner: LongArray
    sizes: FloatArray
    value: FloatArray
    least: FloatArray


def _of_each(designs: _Designs, top: int, near: float) -> list[tuple[FloatArray, FloatArray]]:
    """Return sizes and objectives of the designs of each problem that are near its best."""
    ends = np.searchsorted(designs.owner, np.arange(len(designs.least) + 1))
    parts = []
    for first, end in itertools.pairwise(ends):
        value = designs.value[first : min(end, first + top)]
        value = value[value <= value[:1] * (1.0 + near + EQUAL)]
        parts.append((designs.sizes[first : first + len(value)], value))
    return parts


def _best_designs(problems: _Problems, worst: FloatArray, most_rows: int) -> _Designs:
    """Return all designs whose objective is at most `worst`, (K,); if it is infinite, the next."""
    owner, sizes = _enumerate(problems, worst, most_rows)
    programs = problems.programs[owner]
    r = problems.turned(sizes)
    value, used = programs.value(r), evaluate(programs.constraint, r)
    kept = (used <= programs.limit) & (
        (value <= worst[owner] * (1.0 + _SLACK)) | (worst[owner] < 0)
    )
    least = np.full(len(worst), math.inf)
    np.minimum.at(least, owner[kept], value[kept])
    for j in range(sizes.shape[1]):
        more = sizes.copy()
        more[:, j] += 1.0 if problems.budget else -1.0
        more = problems.turned(more)
        inside = more[:, j] <= programs.high[:, j]
        kept &= ~(inside & (evaluate(programs.constraint, more) <= programs.limit))
    owner, value, used = owner[kept], value[kept], used[kept]
    rows = problems.all_sizes(owner, sizes[kept])
    order = np.lexsort([*rows.T[::-1], tie_class(used), tie_class(value), owner])
    return _Designs(owner[order], rows[order], value[order], least)


def _enumerate(
    problems: _Problems, worst: FloatArray, most_rows: int
) -> tuple[LongArray, FloatArray]:
    """Return the problems, (R,), and sizes, (R, f), of all designs whose bound is at most `worst`.

    The last facet has its best whole size. Where `worst` is negative, these are designs next to
    the relaxed optimum.
    """
    owner, programs, best = np.arange(len(worst)), problems.programs, problems.start
    sizes = np.empty((len(worst), 0))
    for _ in range(best.shape[1] - 1):
        left, right = _spread(problems, programs, best[:, 0], worst[owner])
        counts = (right - left + 1.0).astype(np.int64)
        if counts.sum() > most_rows:
            raise _TooManyRowsError
        rows = np.repeat(np.arange(len(owner)), counts)
        n = left[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        owner, sizes = owner[rows], np.column_stack([sizes[rows], n])
        programs = programs[rows].at(problems.turned(n))
        best = _relax(programs)
        bound = programs.value(best)
        kept = (bound <= worst[owner] * (1.0 + _SLACK)) | (worst[owner] < 0.0)
        kept &= np.isfinite(bound)
        owner, sizes, programs, best = owner[kept], sizes[kept], programs[kept], best[kept]
    return owner, np.column_stack([sizes, _furthest_whole(problems, programs, best[:, 0])])


def _spread(
    problems: _Problems, programs: _Programs, r: FloatArray, worst: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return ends of the sizes of the first facet whose bound is at most `worst`, each (R,).

    The range may be wider by a factor of 2. Where `worst` is negative, it has four sizes around r.
    """
    middle = np.floor(problems.turned(r))
    ends = np.sort(
        np.rint(problems.turned(np.stack([programs.low[:, 0], programs.high[:, 0]]))), 0
    )
    ranges = []
    for first, step in ((middle, -1.0), (middle + 1.0, 1.0)):
        at = np.clip(first + np.where(worst < 0.0, step, 0.0), *ends)
        active = np.flatnonzero((worst >= 0.0) & (at == first))
        while active.size:
            part = programs[active].at(problems.turned(at[active]))
            inside = part.value(_relax(part)) <= worst[active] * (1.0 + _SLACK)
            active = active[inside]
            at[active] = np.clip(first + step, *ends)[active]
            active = active[at[active] == (first + step)[active]]
            step *= 2.0
        ranges.append(at)
    return ranges[0], ranges[1]


def _furthest_whole(problems: _Problems, programs: _Programs, r: FloatArray) -> FloatArray:
    """Return the best whole sizes of the last facet, for its real r, (R,).

    A quotient that should be whole may be off by rounding.
    """
    step = 1.0 if problems.budget else -1.0
    n = step * np.floor(step * problems.turned(r))
    further = problems.turned(n + step)
    fixed, each = programs.constraint.T
    fewer = np.where(fixed + each * problems.turned(n) <= programs.limit, n, n - step)
    kept = (further <= programs.high[:, 0]) & (fixed + each * further <= programs.limit)
    return np.where(kept, n + step, fewer)
