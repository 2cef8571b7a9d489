"""The best sizes of one design: for a budget the least error, for a goal the least cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.exceptions import PlanError
from vcomp.gtheory.allocation.problem import SizeProblem, evaluate

ROOM = 1e-10
"""Relative tolerance for rounding within which a budget or a goal is met."""

_MOST_WORK = 50_000_000
"""Sizes that are tried before a search is given up: some seconds."""

_SECONDS, _SECONDS_OF_BOUND = 3e-6, 2e-3
"""What a size, and a bound by an interior point for each facet, take in Python."""

_LARGEST = 2.0**52
_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit that sizes have to keep: a budget, or an allowed error variance.

    Attributes
    ----------
    budget : largest cost of a measurement, or None
    allowed : otherwise the largest error variance, of the terms that fall with sizes
    """

    budget: float | None
    allowed: float = math.inf

    @property
    def value(self) -> float:
        """The upper limit of the cost, or else of the error variance."""
        limit = self.allowed if self.budget is None else self.budget
        return limit + ROOM * abs(limit)


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The best designs, the best one first; none if no sizes keep the limit.

    Attributes
    ----------
    sizes : (r, F)
    error : (r,) error variance, without the reduction by finite universes
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
    """The problem without the facets whose best size is known in advance.

    Attributes
    ----------
    sizes : (F,) of the facets whose best size is known
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
    limit: Limit,
    *,
    top: int = 1,
    near: float = 0.0,
    ceiling: float = math.inf,
    most_work: int = _MOST_WORK,
) -> Solution:
    """Return the globally best sizes of a design whose cost is a sum of products.

    Facets that do not affect the error have their least size, facets without cost their largest.
    All others are searched by branch and bound, see :mod:`vcomp.gtheory.allocation.search`.

    Parameters
    ----------
    error, cost : (2^F,) coefficients of products of 1/n, and of n, none negative
    lo, hi : (F,) least and largest sizes
    limit : the limit
    top : how many designs, each of which no facet alone could improve within the limit
    near : their error (with a goal their cost) is at most (1 + near) times the best
    ceiling : and at most this
    most_work : sizes that are tried before the search is given up

    Raises
    ------
    PlanError
        If the search would take too long.

    Examples
    --------
    >>> error, cost = np.array([0.0, 0.5, 1.0, 2.0]), np.array([0.0, 0.0, 10.0, 1.0])
    >>> found = solve(error, cost, np.ones(2), np.full(2, np.inf), Limit(budget=200))
    >>> found.sizes, found.error.round(4)
    (array([[10., 10.]]), array([0.17]))
    """
    reduced = _reduce(error, cost, lo, hi, limit, near=near)
    if reduced is None:
        return Solution(np.empty((0, lo.size)), np.empty(0), np.empty(0), 1)
    if not reduced.free:
        rows, work = reduced.sizes[None, :], 1
    else:
        free_sizes, work = _search(reduced, limit, top, near, ceiling, most_work)
        rows = reduced.rows(free_sizes)
    if rows.size and rows[0].max() >= _LARGEST:
        raise PlanError(
            "the best design has more levels of a facet than can be counted: are budget and "
            "prices in the same unit? Otherwise give bounds="
        )
    return Solution(rows, evaluate(error, 1.0 / rows), evaluate(cost, rows), work)


def continuous_sizes(
    error: FloatArray, cost: FloatArray, lo: FloatArray, hi: FloatArray, limit: Limit
) -> FloatArray:
    """Return the best sizes if they need not be whole numbers, (F,); nan if there are none.

    Examples
    --------
    With n_i n_a = 400 the ratio n_i/n_a is that of their variances:

    >>> error, cost = np.array([0.0, 1.0, 4.0, 9.0]), np.array([0.0, 0.0, 0.0, 1.0])
    >>> continuous_sizes(error, cost, np.ones(2), np.full(2, np.inf), Limit(400)).round(4)
    array([40., 10.])
    """
    reduced = _reduce(error, cost, lo, hi, limit, whole=False)
    if reduced is None:
        return np.full(lo.size, math.nan)
    if not reduced.free:
        return reduced.sizes
    rows = reduced.rows(_relaxed_sizes(reduced, limit)[None, :])
    return np.asarray(rows[0])


def _search(
    reduced: _Reduced, limit: Limit, top: int, near: float, ceiling: float, most_work: int
) -> tuple[FloatArray, int]:
    """Return the sizes of the free facets, (r, f), and the work that it took."""
    f, budget = len(reduced.free), limit.budget is not None
    # Facets of which there are few come first, so that the last one has fine steps.
    order = np.argsort(_relaxed_sizes(reduced, limit), kind="stable").astype(np.int64)
    arrays = [_reordered(c, order, f) for c in (reduced.error, reduced.cost)]
    lo, hi = reduced.lo[order], reduced.hi[order]
    if f == 1:
        # The search knows pairs: a facet of one level that costs nothing is put in front.
        arrays = [np.concatenate([c, np.zeros(2)]) for c in arrays]
        lo, hi = np.concatenate([[1.0], lo]), np.concatenate([[1.0], hi])
    objective, constraint = arrays if budget else arrays[::-1]
    places = np.argsort(order, kind="stable") + lo.size - f
    # Deferred for start-up time: most studies search for nothing.
    from vcomp.gtheory.allocation.search import search
    from vcomp.numerics.kernels import at_once, seconds_as_python

    arguments = objective, constraint, limit.value, lo, hi, budget, places, top, near, ceiling
    # How long it takes is not known before: a long search in Python is given up, and compiled.
    most = min(int(0.1 * seconds_as_python(search) / _SECONDS), most_work)
    if most:
        found, _, work = at_once(search, 0.0)(*arguments, most)
    if most < most_work and (not most or work > most):
        found, _, work = search(*arguments, most_work)
    if work > most_work:
        raise PlanError(
            f"the best sizes of {f} facets are not found among {display.count(work)} candidates "
            "and more: give bounds= to some of them"
        )
    sizes = found[np.isfinite(found[:, 0]), 1 + lo.size - f :]
    return sizes[:, np.argsort(order, kind="stable")], work


def _relaxed_sizes(reduced: _Reduced, limit: Limit) -> FloatArray:
    budget, f = limit.budget is not None, len(reduced.free)
    pair = (reduced.error, reduced.cost) if budget else (reduced.cost, reduced.error)
    best = reduced.lo.copy()
    from vcomp.gtheory.allocation.search import relaxed
    from vcomp.numerics.kernels import at_once

    at_once(relaxed, f * _SECONDS_OF_BOUND)(
        *pair, f, limit.value, reduced.lo, reduced.hi, budget, best
    )
    return best


def _reduce(
    error: FloatArray,
    cost: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    limit: Limit,
    *,
    near: float = 0.0,
    whole: bool = True,
) -> _Reduced | None:
    """Fix sizes that are known in advance and bound the others; None if none keep the limit."""
    F = lo.size
    e, c = error.reshape((2,) * F), cost.reshape((2,) * F)
    reach = _reach(error, cost, lo, hi, limit, near, whole=whole)
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
    limit: Limit,
    near: float,
    *,
    whole: bool,
) -> FloatArray | None:
    """Return finite upper bounds of the best sizes; None if no sizes keep the limit.

    With a goal the cost of a first design that reaches it is the budget.
    """
    most = limit.value
    if limit.budget is None:
        first = first_that_reaches(error, lo, hi, limit.value)
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


_MOST_ROWS = 4_000_000
"""Combinations of all sizes except one that are tried before a search is given up."""

_CHUNK = 1 << 18
_SOLVE_ANY_LARGEST = 2.0**40
_TIE = 1e-11

_SAMPLE, _FIRST = 500, 10.0


def solve_any(
    problem: SizeProblem, error: FloatArray, limit: Limit, *, top: int = 1, near: float = 0.0
) -> Solution:
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
    nothing = Solution(np.empty((0, F)), np.empty(0), np.empty(0), 1)
    matters = np.array([error.reshape((2,) * F).take(1, axis=j).any() for j in range(F)])
    lo, hi = problem.lo, np.where(matters, problem.hi, problem.lo)
    most = limit.value
    if limit.budget is None:
        first = first_that_reaches(error, lo, hi, limit.value)
        if first is None:
            return nothing
        most = float(problem.costs(first[None, :])[0]) * (1.0 + near + ROOM)
    if float(problem.costs(lo[None, :])[0]) > most:
        return nothing
    reach = _solve_any_reach(problem, lo, hi, most)
    rows, work = _candidates(problem, error, lo, reach, limit, most)
    _check_rises(problem, rows, reach)
    return _best(problem, error, rows, reach, limit, top, near, work)


def _solve_any_reach(
    problem: SizeProblem, lo: FloatArray, hi: FloatArray, most: float
) -> FloatArray:
    """Return the largest affordable size of every facet, with the least sizes of the others."""
    reach = lo.copy()
    for j, facet in enumerate(problem.facets):
        # Small sizes first: the affordable sizes of a falling cost have no limit.
        _check_axis(problem, lo, j, min(hi[j], lo[j] + _FIRST))
        top = np.array([min(hi[j], _SOLVE_ANY_LARGEST)])
        reach[j] = _largest(_paid(problem, lo[None, :], j, most), lo[[j]], top)[0]
        if reach[j] == _SOLVE_ANY_LARGEST < hi[j]:
            raise PlanError(
                f"any number of levels of {facet!r} can be paid: the cost does not grow with it; "
                f"give it a bound such as bounds={{{facet!r}: (1, 10)}}"
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
) -> tuple[FloatArray, int]:
    """Return the sizes that may be best, (m, F), and how many were tried."""
    order = np.argsort(reach - lo, kind="stable")
    rows, tried = lo[None, :].copy(), 0
    for j in order[:-1]:
        top = _largest(_paid(problem, rows, j, most), lo[[j]].repeat(len(rows)), reach[[j]])
        counts = (top - lo[j] + 1.0).astype(np.int64)
        _check_number(problem, int(counts.sum()))
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.repeat(rows, counts, axis=0)
        rows[:, j] = lo[j] + np.arange(len(rows)) - starts
        tried += len(rows)
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
    return rows, tried + len(rows)


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
    work: int,
) -> Solution:
    """Return the best of the candidates that no facet alone could improve."""
    errors, costs = evaluate(error, 1.0 / rows), problem.costs(rows)
    budget = limit.budget is not None
    first, second = (errors, costs) if budget else (costs, errors)
    if not budget:
        kept = errors <= limit.value
        rows, errors, costs, first, second = (
            x[kept] for x in (rows, errors, costs, first, second)
        )
    keys = [*rows.T[::-1], _ranked(second), _ranked(first)]
    places: list[int] = []
    for place in np.lexsort(keys):
        if places and first[place] > first[places[0]] * (1.0 + near + 1e-12):
            break
        if _is_undominated(problem, error, rows[place], reach, limit):
            places.append(int(place))
        if len(places) == top:
            break
    return Solution(rows[places], errors[places], costs[places], work)


def _ranked(values: FloatArray) -> FloatArray:
    """Return classes of values, ascending; those that differ by rounding alone are in one."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.floor(np.log(values) / _TIE))


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
    falls = np.flatnonzero(high < low * (1.0 - 1e-12))
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
