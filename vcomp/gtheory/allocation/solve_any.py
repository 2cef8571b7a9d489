"""The best sizes of one design for a cost that is any function of the sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import PlanError
from vcomp.gtheory.allocation.problem import (
    EQUAL,
    ROOM,
    AllocationSolution,
    Limit,
    SizeProblem,
    evaluate,
    first_sizes,
    tie_class,
)

_MOST_ROWS = 4_000_000
"""Largest number of combinations of all sizes but one that a search tries."""

_CHUNK = 1 << 18
"""Number of combinations of sizes with which the cost function is called at once."""

_LARGEST = 2.0**40
"""Size of a facet that no budget can pay for, if its cost grows at all."""

_SAMPLE, _FIRST = 500, 10.0
"""Number of sizes at which the cost is tested for falling, and range of the first such test."""

_FALL = 1e-12
"""Relative fall of a cost that is more than rounding."""


def solve_any(
    problem: SizeProblem, error: FloatArray, limit: Limit, *, top: int = 1, near: float = 0.0
) -> AllocationSolution:
    """Return the best sizes for a cost function that is only known not to fall.

    All affordable sizes are tried, except for one facet, whose size is the largest within the
    budget or the smallest that reaches the goal.

    Parameters
    ----------
    problem : whose cost is a function
    error : (2^F,) coefficients of products of 1/n
    limit : the limit
    top : how many designs, each of which no facet alone could improve within the limit
    near : their error (with a goal their cost) is at most (1 + near) times the best

    Raises
    ------
    PlanError
        If the cost falls where a size grows, a facet could have any size for a budget, or there
        are too many combinations of sizes.
    """
    F = problem.lo.size
    nothing = AllocationSolution(np.empty((0, F)), np.empty(0), np.empty(0))
    matters = np.array([error.reshape((2,) * F).take(1, axis=j).any() for j in range(F)])
    lo, hi = problem.lo, np.where(matters, problem.hi, problem.lo)
    most = limit.value
    if limit.budget is None:
        first = first_sizes(error[None, :], lo, hi[None, :], np.array([limit.value]))
        if float(evaluate(error, 1.0 / first)[0]) > limit.value:
            return nothing
        for j in range(F):
            first[:, j] = _smallest(error, first, j, limit.value, lo[[j]], float(first[0, j]))
        most = float(problem.costs(first)[0]) * (1.0 + near + ROOM)
    if float(problem.costs(lo[None, :])[0]) > most:
        return nothing
    reach = _reach(problem, lo, hi, most)
    rows = _candidates(problem, error, lo, reach, limit, most)
    _check_rises(problem, rows, reach)
    return _best(problem, error, rows, reach, limit, top, near)


def _reach(problem: SizeProblem, lo: FloatArray, hi: FloatArray, most: float) -> FloatArray:
    """Return the largest affordable size of every facet, with the least sizes of the others."""
    reach = lo.copy()
    for j, facet in enumerate(problem.facets):
        # Small sizes first: the affordable sizes of a falling cost have no limit.
        _check_axis(problem, lo, j, min(hi[j], lo[j] + _FIRST))
        top = np.array([min(hi[j], _LARGEST)])
        reach[j] = _largest(_paid(problem, lo[None, :], j, most), lo[[j]], top)[0]
        if reach[j] == _LARGEST < hi[j]:
            raise PlanError(
                f"any number of levels of {facet!r} can be paid: the cost does not grow with it; "
                f"give it a bound such as bounds={{{facet!r}: (1, 10)}}",
                column=facet,
            )
        _check_axis(problem, lo, j, reach[j])
    return reach


def _candidates(
    problem: SizeProblem,
    error: FloatArray,
    lo: FloatArray,
    reach: FloatArray,
    limit: Limit,
    most: float,
) -> FloatArray:
    """Return the sizes that may be best, (m, F)."""
    order = np.argsort(reach - lo, kind="stable")
    rows = lo[None, :].copy()
    for j in order[:-1]:
        top = _largest(_paid(problem, rows, j, most), lo[[j]].repeat(len(rows)), reach[[j]])
        counts = (top - lo[j] + 1.0).astype(np.int64)
        _check_number(problem, int(counts.sum()))
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.repeat(rows, counts, axis=0)
        rows[:, j] = lo[j] + np.arange(len(rows)) - starts
        if limit.budget is None:
            ahead = order[list(order).index(j) + 1 :]
            strongest = rows.copy()
            strongest[:, ahead] = reach[ahead]
            rows = rows[evaluate(error, 1.0 / strongest) <= limit.value]
    last = int(order[-1])
    bottom, top = lo[[last]].repeat(len(rows)), reach[[last]]
    if limit.budget is not None:
        rows[:, last] = _largest(_paid(problem, rows, last, most), bottom, top)
    else:
        rows[:, last] = _smallest(error, rows, last, limit.value, bottom, float(top[0]))
        rows = rows[problem.costs(rows) <= most] if len(rows) else rows
    return rows


def _paid(
    problem: SizeProblem, rows: FloatArray, j: int, most: float
) -> Callable[[FloatArray, BoolArray], BoolArray]:
    """Return a function of sizes of facet j that determines which rows are affordable."""

    def is_paid(sizes: FloatArray, places: BoolArray) -> BoolArray:
        changed = rows[places]
        changed[:, j] = sizes
        chunks = [problem.costs(c) for c in np.array_split(changed, 1 + len(changed) // _CHUNK)]
        return np.asarray(np.concatenate(chunks) <= most)

    return is_paid


def _largest(
    is_paid: Callable[[FloatArray, BoolArray], BoolArray], bottom: FloatArray, top: FloatArray
) -> FloatArray:
    """Return the largest affordable size of each row: doubled steps, then bisection.

    The smallest, `bottom`, is affordable.
    """
    low, high = bottom.copy(), np.broadcast_to(top, bottom.shape).copy()
    step = np.ones_like(low)
    growing = low < high
    while growing.any():
        tried = np.minimum(low + step, high)[growing]
        paid = is_paid(tried, growing)
        places = np.flatnonzero(growing)
        low[places[paid]] = tried[paid]
        high[places[~paid]] = tried[~paid] - 1.0
        step *= 2.0
        growing[places[~paid]] = False
        growing &= low < high
    active = low < high
    while active.any():
        middle = np.ceil(0.5 * (low + high))[active]
        paid = is_paid(middle, active)
        places = np.flatnonzero(active)
        low[places[paid]] = middle[paid]
        high[places[~paid]] = middle[~paid] - 1.0
        active = low < high
    return low


def _smallest(
    error: FloatArray, rows: FloatArray, j: int, limit: float, bottom: FloatArray, top: float
) -> FloatArray:
    """Return the least size of facet j with which each row keeps the limit, from A + B/n."""
    ends = np.repeat(rows[None, :, :], 2, axis=0)
    ends[0, :, j], ends[1, :, j] = math.inf, 1.0
    A = evaluate(error, 1.0 / ends[0])
    B = evaluate(error, 1.0 / ends[1]) - A
    with np.errstate(divide="ignore", invalid="ignore"):
        n = np.where(B > 0.0, np.ceil(B / (limit - A)), 1.0)
    n = np.clip(np.where(limit > A, n, top), bottom, top)
    # The quotient may be off by rounding.
    fewer = np.maximum(n - 1.0, bottom)
    return np.where(A + B / fewer <= limit, fewer, n)


def _best(
    problem: SizeProblem,
    error: FloatArray,
    rows: FloatArray,
    reach: FloatArray,
    limit: Limit,
    top: int,
    near: float,
) -> AllocationSolution:
    """Return the best of the candidates that no facet alone could improve."""
    errors, costs = evaluate(error, 1.0 / rows), problem.costs(rows)
    budget = limit.budget is not None
    first, second = (errors, costs) if budget else (costs, errors)
    if not budget:
        kept = errors <= limit.value
        rows, errors, costs, first, second = (
            x[kept] for x in (rows, errors, costs, first, second)
        )
    keys = [*rows.T[::-1], tie_class(second), tie_class(first)]
    places: list[int] = []
    for place in np.lexsort(keys):
        if places and first[place] > first[places[0]] * (1.0 + near + EQUAL):
            break
        if _is_undominated(problem, error, rows[place], reach, limit):
            places.append(int(place))
        if len(places) == top:
            break
    return AllocationSolution(rows[places], errors[places], costs[places])


def _is_undominated(
    problem: SizeProblem, error: FloatArray, sizes: FloatArray, reach: FloatArray, limit: Limit
) -> bool:
    step = 1.0 if limit.budget is not None else -1.0
    moved = sizes + step * np.eye(sizes.size)
    moved = moved[((moved >= problem.lo) & (moved <= np.maximum(reach, problem.lo))).all(axis=1)]
    if not len(moved):
        return True
    within = problem.costs(moved) if limit.budget is not None else evaluate(error, 1.0 / moved)
    return not bool((within <= limit.value).any())


def _check_number(problem: SizeProblem, n: int) -> None:
    if n > _MOST_ROWS:
        raise PlanError(
            f"{display.count(n)} combinations of sizes of {', '.join(problem.facets)} would have "
            "to be tried, as the cost is a function: give bounds= to some of them, or write the "
            "cost as prices"
        )


def _check_axis(problem: SizeProblem, lo: FloatArray, j: int, reach: float) -> None:
    """Refuse a cost that falls along one facet."""
    sizes = np.unique(np.round(np.geomspace(lo[j], max(reach, lo[j]), _SAMPLE)))
    rows = np.repeat(lo[None, :], len(sizes), axis=0)
    rows[:, j] = sizes
    if len(sizes) > 1:
        _refuse_falls(problem, rows[:-1], rows[1:], j)


def _check_rises(problem: SizeProblem, rows: FloatArray, reach: FloatArray) -> None:
    """Refuse a cost that falls from one of the candidates to its neighbour."""
    some = rows[:: 1 + len(rows) // _SAMPLE]
    for j in range(reach.size):
        more = some.copy()
        more[:, j] += 1.0
        inside = more[:, j] <= reach[j]
        if inside.any():
            _refuse_falls(problem, some[inside], more[inside], j)


def _refuse_falls(problem: SizeProblem, fewer: FloatArray, more: FloatArray, j: int) -> None:
    low, high = problem.costs(fewer), problem.costs(more)
    falls = np.flatnonzero(high < low * (1.0 - _FALL))
    if falls.size:
        k = int(falls[0])
        facet, others = problem.facets[j], problem.sizes(fewer[[k]])[0]
        held = [
            f"{f} = {display.count(n)}"
            for f, n in zip(problem.plan.facets, others, strict=True)
            if f != facet
        ]
        raise PlanError(
            f"the cost falls from {display.number(low[k])} to {display.number(high[k])} when "
            f"{facet} grows from {display.count(fewer[k, j])} to {display.count(more[k, j])}"
            f"{' with ' + ', '.join(held) if held else ''}: a cost must not fall when a size grows"
        )
