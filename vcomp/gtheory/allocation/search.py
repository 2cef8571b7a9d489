"""The search for the sizes of a design: branch and bound over whole numbers.

A design has F facets with sizes n. Its error variance is a sum of products of 1/n, its cost one of
products of n, and each facet occurs in a product at most once. So both are arrays of 2^F
coefficients: that of the product over a set of facets stands at the number whose bits are the
set, the first facet being the highest bit. One of the two is the objective, the other has a limit.

In x = log n the logarithms of both are convex (Boyd and Vandenberghe 2004, Convex Optimization,
sec. 4.5). What the best design costs at a given size of one facet, when the others need not be
whole numbers, therefore falls and then rises with that size: sizes are tried from the bottom of
the valley outwards, until that bound is worse than what was found.

Everything is in one file, since numba's cache does not notice changes in another.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.kernels import njit

_TIE = 1e-11
"""Relative width of the classes within which values are equal. Classes are used, as equality up to
a tolerance is not transitive."""

_SLACK = 1e-8
"""Relative tolerance of bounds, which are not exactly at their optimum."""

_GOLDEN = 0.6180339887498949
_GOLDEN_STEPS = 60

_COST_OF_BOUND, _COST_OF_PAIR = 1500, 100
"""Work of a bound by an interior point, and of one by golden section, in sizes tried."""

_NO_ROOM, _ROUNDING = 1e-12, 1e-12

_LAST_T = 1e10
_T_GROWS = 30.0
_NEWTON_STEPS = 30


@njit(cache=True, nogil=True)
def value_at(coefficients: FloatArray, sizes: FloatArray, inverse: bool) -> float:
    """Return Σ coefficient · Π n, or with Π 1/n, over the sets of facets."""
    n_facets = sizes.size
    total = 0.0
    for mask in range(coefficients.size):
        if coefficients[mask] != 0.0:
            product = coefficients[mask]
            for j in range(n_facets):
                if mask >> (n_facets - 1 - j) & 1:
                    product = product / sizes[j] if inverse else product * sizes[j]
            total += product
    return total


@njit(cache=True, nogil=True)
def _fix_first(coefficients: Any, m: int, weight: float, out: Any) -> None:
    """Write the coefficients that are left when the first of m facets has a size."""
    half = 1 << (m - 1)
    for k in range(half):
        out[k] = coefficients[k] + coefficients[half + k] * weight


@njit(cache=True, nogil=True)
def _furthest(a: float, b: float, limit: float, lo: float, hi: float, budget: bool) -> float:
    """Return the best size of one facet within the limit, not a whole number; nan if none is.

    With a budget it is the largest n with a + b·n below the limit, else the smallest with a + b/n.
    """
    if not a + b * (lo if budget else 1.0 / hi) <= limit:
        return math.nan
    if budget:
        return hi if b <= 0.0 or a + b * hi <= limit else max((limit - a) / b, lo)
    return lo if b <= 0.0 or a + b / lo <= limit else min(b / (limit - a), hi)


@njit(cache=True, nogil=True)
def _furthest_whole(a: float, b: float, limit: float, lo: float, hi: float, budget: bool) -> float:
    """Return the best whole size of one facet within the limit; nan if none is."""
    size = _furthest(a, b, limit, lo, hi, budget)
    if math.isnan(size):
        return float(size)
    step = 1.0 if budget else -1.0
    n = math.floor(size) if budget else math.ceil(size)
    # A quotient that should be whole may be off by rounding.
    beyond = min(max(n + step, lo), hi)
    near = abs(beyond - size) < 1e-6 * size
    if near and a + b * (beyond if budget else 1.0 / beyond) <= limit:
        return float(beyond)
    if a + b * (n if budget else 1.0 / n) <= limit:
        return float(n)
    return float(min(max(n - step, lo), hi))


@njit(cache=True, nogil=True)
def _reach(constraint: Any, limit: float, lo: Any, hi: Any, budget: bool, others: Any) -> float:
    """Return the best whole size of the first facet, the others having sizes; or nan."""
    m = lo.size
    a, b = 0.0, 0.0
    for mask in range(1 << (m - 1)):
        product = 1.0
        for j in range(1, m):
            if mask >> (m - 1 - j) & 1:
                product *= others[j] if budget else 1.0 / others[j]
        a += constraint[mask] * product
        b += constraint[(1 << (m - 1)) + mask] * product
    return float(_furthest_whole(a, b, limit, lo[0], hi[0], budget))


@njit(cache=True, nogil=True)
def _ends(constraint: Any, limit: float, lo: Any, hi: Any, budget: bool) -> tuple[float, float]:
    """Return the least and largest size of the first facet in the best design; nan if none is.

    At one end the others have their least sizes, at the other end their largest.
    """
    if budget:
        furthest = _reach(constraint, limit, lo, hi, budget, lo)
        nearest = _reach(constraint, limit, lo, hi, budget, hi)
        return (lo[0] if math.isnan(nearest) else nearest), furthest
    furthest = _reach(constraint, limit, lo, hi, budget, hi)
    nearest = _reach(constraint, limit, lo, hi, budget, lo)
    return furthest, (hi[0] if math.isnan(nearest) else nearest)


@njit(cache=True, nogil=True)
def _pair_bound(o: Any, c: Any, limit: float, lo: Any, hi: Any, budget: bool, n: float) -> float:
    """Return the least objective at a size of the first of two facets, the other not whole."""
    to_o, to_c = (1.0 / n, n) if budget else (n, 1.0 / n)
    last = _furthest(c[0] + c[2] * to_c, c[1] + c[3] * to_c, limit, lo[1], hi[1], budget)
    if math.isnan(last):
        return math.inf
    return float(o[0] + o[2] * to_o + (o[1] + o[3] * to_o) * (1.0 / last if budget else last))


@njit(cache=True, nogil=True)
def _pair_relaxed(
    o: Any, c: Any, limit: float, lo: Any, hi: Any, budget: bool
) -> tuple[float, float]:
    """Return the least objective of two facets, and the size of the first, by golden section."""
    weak = lo[1] if budget else 1.0 / hi[1]
    end = _furthest(c[0] + c[1] * weak, c[2] + c[3] * weak, limit, lo[0], hi[0], budget)
    if math.isnan(end):
        return math.inf, lo[0]
    left = math.log(lo[0] if budget else end)
    right = math.log(end if budget else hi[0])
    x, y = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
    at_x = _pair_bound(o, c, limit, lo, hi, budget, math.exp(x))
    at_y = _pair_bound(o, c, limit, lo, hi, budget, math.exp(y))
    for _ in range(_GOLDEN_STEPS):
        if right - left < 1e-13:
            break
        if at_x <= at_y:
            right, y, at_y = y, x, at_x
            x = right - _GOLDEN * (right - left)
            at_x = _pair_bound(o, c, limit, lo, hi, budget, math.exp(x))
        else:
            left, x, at_x = x, y, at_y
            y = left + _GOLDEN * (right - left)
            at_y = _pair_bound(o, c, limit, lo, hi, budget, math.exp(y))
    # Rounding can move the end of the range past the limit.
    return (at_x, math.exp(x)) if at_x <= at_y else (at_y, math.exp(y))


@njit(cache=True, nogil=True)
def _log_sum(coefficients: Any, m: int, sign: float, x: Any) -> float:
    """Return log Σ coefficient · exp(± Σ x)."""
    total = 0.0
    for mask in range(1 << m):
        if coefficients[mask] > 0.0:
            power = 0.0
            for j in range(m):
                if mask >> (m - 1 - j) & 1:
                    power += x[j]
            total += coefficients[mask] * math.exp(sign * power)
    return math.log(total)


@njit(cache=True, nogil=True)
def _log_slopes(
    coefficients: Any, m: int, sign: float, x: Any, slope: FloatArray, bend: FloatArray
) -> float:
    """Return what :func:`_log_sum` does, and write its gradient and Hessian."""
    value = _log_sum(coefficients, m, sign, x)
    for j in range(m):
        slope[j] = 0.0
        for k in range(m):
            bend[j, k] = 0.0
    for mask in range(1 << m):
        if coefficients[mask] > 0.0:
            power = 0.0
            for j in range(m):
                if mask >> (m - 1 - j) & 1:
                    power += x[j]
            share = coefficients[mask] * math.exp(sign * power - value)
            for j in range(m):
                if mask >> (m - 1 - j) & 1:
                    slope[j] += sign * share
                    for k in range(m):
                        if mask >> (m - 1 - k) & 1:
                            bend[j, k] += share
    for j in range(m):
        for k in range(m):
            bend[j, k] -= slope[j] * slope[k]
    return float(value)


@njit(cache=True, nogil=True)
def _newton_step(H: FloatArray, g: FloatArray, m: int, step: FloatArray) -> float:
    """Solve H·step = −g by Cholesky, in place; return the decrease that it promises."""
    for j in range(m):
        for k in range(j + 1):
            total = H[j, k]
            for i in range(k):
                total -= H[j, i] * H[k, i]
            H[j, k] = math.sqrt(max(total, 1e-300)) if j == k else total / H[k, k]
    for j in range(m):
        total = -g[j]
        for i in range(j):
            total -= H[j, i] * step[i]
        step[j] = total / H[j, j]
    decrease = 0.0
    for j in range(m):
        decrease += step[j] * step[j]
    for j in range(m - 1, -1, -1):
        total = step[j]
        for i in range(j + 1, m):
            total -= H[i, j] * step[i]
        step[j] = total / H[j, j]
    return decrease


@njit(cache=True, nogil=True)
def _barrier(
    o: Any, c: Any, m: int, sign: float, limit: float, low: Any, high: Any, t: float, x: Any
) -> float:
    """Return the function whose minima lead to the optimum, infinite beyond the limits."""
    total = 0.0
    for j in range(m):
        if not low[j] < x[j] < high[j]:
            return math.inf
        total -= math.log(x[j] - low[j]) + math.log(high[j] - x[j])
    room = limit - _log_sum(c, m, sign, x)
    if not room > 0.0:
        return math.inf
    return float(total + t * _log_sum(o, m, -sign, x) - math.log(room))


@njit(cache=True, nogil=True)
def _centre(
    o: Any, c: Any, m: int, sign: float, limit: float, low: Any, high: Any, t: float, x: Any
) -> None:
    """Move x to the minimum of the barrier function, by Newton's method."""
    gf, gh, g, step, moved = (np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.empty(m))
    Hf, Hh, H = np.empty((m, m)), np.empty((m, m)), np.empty((m, m))
    here = _barrier(o, c, m, sign, limit, low, high, t, x)
    for _ in range(_NEWTON_STEPS):
        _log_slopes(o, m, -sign, x, gf, Hf)
        room = limit - _log_slopes(c, m, sign, x, gh, Hh)
        for j in range(m):
            g[j] = t * gf[j] + gh[j] / room - 1.0 / (x[j] - low[j]) + 1.0 / (high[j] - x[j])
            for k in range(m):
                H[j, k] = t * Hf[j, k] + Hh[j, k] / room + gh[j] * gh[k] / room**2
            H[j, j] += 1.0 / (x[j] - low[j]) ** 2 + 1.0 / (high[j] - x[j]) ** 2
        decrease = _newton_step(H, g, m, step)
        if decrease < 1e-6:
            return
        length, there = 1.0, math.inf
        for _ in range(60):
            for j in range(m):
                moved[j] = x[j] + length * step[j]
            there = _barrier(o, c, m, sign, limit, low, high, t, moved)
            if there <= here - 0.01 * length * decrease:
                break
            length *= 0.5
        if not there < here:
            return
        for j in range(m):
            x[j] = moved[j]
        here = there


@njit(cache=True, nogil=True)
def _step_inside(
    c: Any, m: int, sign: float, limit: float, low: FloatArray, high: FloatArray, x: FloatArray
) -> float:
    """Write a point well within all limits to x, and return its distance from the corner."""
    share, least = 1.0, _log_sum(c, m, sign, low if sign > 0.0 else high)
    while share >= _NO_ROOM:
        share *= 0.5
        for j in range(m):
            across = share * (high[j] - low[j])
            x[j] = low[j] + across if sign > 0.0 else high[j] - across
        if _log_sum(c, m, sign, x) < least + 0.9 * (limit - least):
            break
    return share


@njit(cache=True, nogil=True)
def _bound_from(
    o: Any, c: Any, m: int, sign: float, limit: float, low: Any, high: Any, t: float, x: Any
) -> float:
    """Return a bound below the logarithm of the objective at all points within the limits.

    It holds for any x and λ ≥ 0: at all y within the limit a convex f is at least
    f(x) + λ(h(x) − limit) + (∇f + λ∇h)'(y − x), and this is least in a corner of the box. Tried
    are the λ of the barrier and the one that balances the gradients where the box does not bind.
    """
    gf, gh, bend = np.empty(m), np.empty(m), np.empty((m, m))
    f = _log_slopes(o, m, -sign, x, gf, bend)
    room = limit - _log_slopes(c, m, sign, x, gh, bend)
    top, bottom = 0.0, 1e-300
    for j in range(m):
        inside = min(x[j] - low[j], high[j] - x[j])
        top -= inside * inside * gf[j] * gh[j]
        bottom += inside * inside * gh[j] * gh[j]
    best = -math.inf
    for multiplier in (1.0 / (t * room), max(top / bottom, 0.0)):
        bound = f - multiplier * room
        for j in range(m):
            slope = gf[j] + multiplier * gh[j]
            bound += min(slope * (low[j] - x[j]), slope * (high[j] - x[j]))
        best = max(best, bound)
    return best


@njit(cache=True, nogil=True)
def relaxed(
    o: Any, c: Any, m: int, limit: float, lo: Any, hi: Any, budget: bool, best: Any
) -> float:
    """Return a bound below the least objective of m facets, and write the sizes near it to `best`.

    By an interior point method, whether or not it converged.
    """
    sign, log_limit = (1.0 if budget else -1.0), math.log(limit)
    low, high, x = np.empty(m), np.empty(m), np.empty(m)
    for j in range(m):
        low[j], high[j] = math.log(lo[j]), math.log(hi[j])
    if _log_sum(c, m, sign, low if budget else high) > log_limit + _ROUNDING:
        return math.inf
    share = _step_inside(c, m, sign, log_limit, low, high, x)
    if share < _NO_ROOM:
        # Only the corner is feasible: a bound that is too low costs a little time.
        for j in range(m):
            best[j] = lo[j] if budget else hi[j]
        return math.exp(_log_sum(o, m, -sign, high if budget else low))
    t = 1.0
    while t < _LAST_T:
        t *= _T_GROWS
        _centre(o, c, m, sign, log_limit, low, high, t, x)
    for j in range(m):
        best[j] = math.exp(x[j])
    return math.exp(_bound_from(o, c, m, sign, log_limit, low, high, t, x))


@njit(cache=True, nogil=True)
def _bound(
    o: Any, c: Any, m: int, limit: float, lo: Any, hi: Any, budget: bool, best: Any
) -> float:
    """Return a bound below the least objective of m ≥ 2 facets; `best` gets the sizes near it."""
    if m > 2:
        return float(relaxed(o, c, m, limit, lo, hi, budget, best))
    value, best[0] = _pair_relaxed(o, c, limit, lo, hi, budget)
    return float(value)


@njit(cache=True, nogil=True)
def _bound_at(at: Any, n: float, ends: Any, spare: Any, best: Any) -> float:
    """Return a bound below the least objective when the first of m ≥ 3 facets has a size."""
    o, c, m, limit, lo, hi, budget = at
    if not ends[0] <= n <= ends[1]:
        return math.inf
    _fix_first(o, m, 1.0 / n if budget else n, spare[0])
    _fix_first(c, m, n if budget else 1.0 / n, spare[1])
    return float(_bound(spare[0], spare[1], m - 1, limit, lo[1:], hi[1:], budget, best))


@njit(cache=True, nogil=True)
def _is_undominated(
    constraint: Any, limit: float, hi: Any, lo: Any, sizes: FloatArray, budget: bool
) -> bool:
    """Return whether no facet alone could have more at the same budget, or less at the goal."""
    step = 1.0 if budget else -1.0
    for j in range(sizes.size):
        sizes[j] += step
        inside = lo[j] <= sizes[j] <= hi[j]
        better = inside and value_at(constraint, sizes, not budget) <= limit
        sizes[j] -= step
        if better:
            return False
    return True


@njit(cache=True, nogil=True)
def _class(value: float) -> float:
    return math.floor(math.log(value) / _TIE) if value > 0.0 else -math.inf


@njit(cache=True, nogil=True)
def _comes_before(
    value: float, other: float, sizes: FloatArray, than: Any, its: float, order: LongArray
) -> bool:
    """Return whether a design is better than another, or as good and cheaper, or smaller."""
    if math.isinf(than[0]):
        return True
    if _class(value) != _class(than[0]):
        return bool(value < than[0])
    if _class(other) != _class(its):
        return other < its
    for j in order:
        if sizes[j] != than[1 + j]:
            return bool(sizes[j] < than[1 + j])
    return False


@njit(cache=True, nogil=True)
def _keep(
    value: float, other: float, sizes: FloatArray, order: LongArray, found: Any, others: Any
) -> None:
    """Insert a design into the rows of `found`, which are sorted."""
    place = found.shape[0]
    while place > 0 and _comes_before(
        value, other, sizes, found[place - 1], others[place - 1], order
    ):
        place -= 1
    if place == found.shape[0]:
        return
    for k in range(found.shape[0] - 1, place, -1):
        others[k] = others[k - 1]
        for j in range(found.shape[1]):
            found[k, j] = found[k - 1, j]
    others[place], found[place, 0] = other, value
    for j in range(sizes.size):
        found[place, 1 + j] = sizes[j]


@njit(cache=True, nogil=True)
def _threshold(found: FloatArray, near: float, ceiling: float) -> float:
    """Return the objective above which a design is of no interest."""
    return float(min(found[-1, 0], found[0, 0] * (1.0 + near), ceiling) * (1.0 + 4.0 * _TIE))


@njit(cache=True, nogil=True)
def _pair(
    o: Any,
    c: Any,
    limit: float,
    lo: Any,
    hi: Any,
    budget: bool,
    near: float,
    ceiling: float,
    sizes: FloatArray,
    whole: Any,
    order: LongArray,
    found: FloatArray,
    others: FloatArray,
    most: int,
) -> int:
    """Try the sizes of the last two facets, and return how many were tried.

    Parameters
    ----------
    sizes : (F,) the others' are there already
    whole : the constraint's coefficients, and the limits of all facets
    most : after which it is given up
    """
    constraint, all_lo, all_hi = whole
    low, high = _ends(c, limit, lo, hi, budget)
    if not low <= high:
        return 0
    _, start = _pair_relaxed(o, c, limit, lo, hi, budget)
    below = min(max(math.floor(start), low), high)
    above = below + 1.0
    at_below = _pair_bound(o, c, limit, lo, hi, budget, below)
    at_above = math.inf
    if above <= high:
        at_above = _pair_bound(o, c, limit, lo, hi, budget, above)
    tried = 0
    while min(at_below, at_above) < math.inf and tried <= most:
        if min(at_below, at_above) > _threshold(found, near, ceiling):
            break
        tried += 1
        falls = at_below <= at_above
        n = below if falls else above
        to_o, to_c = (1.0 / n, n) if budget else (n, 1.0 / n)
        a, b = c[0] + c[2] * to_c, c[1] + c[3] * to_c
        last = _furthest_whole(a, b, limit, lo[1], hi[1], budget)
        value = o[0] + o[2] * to_o + (o[1] + o[3] * to_o) * (1.0 / last if budget else last)
        if value <= _threshold(found, near, ceiling):
            sizes[-2], sizes[-1] = n, last
            if _is_undominated(constraint, limit, all_hi, all_lo, sizes, budget):
                other = a + b * (last if budget else 1.0 / last)
                _keep(value, other, sizes, order, found, others)
        if falls:
            below -= 1.0
            at_below = math.inf
            if below >= low:
                at_below = _pair_bound(o, c, limit, lo, hi, budget, below)
        else:
            above += 1.0
            at_above = math.inf
            if above <= high:
                at_above = _pair_bound(o, c, limit, lo, hi, budget, above)
    return tried


@njit(cache=True, nogil=True)
def search(
    objective: FloatArray,
    constraint: FloatArray,
    limit: float,
    lo: FloatArray,
    hi: FloatArray,
    budget: bool,
    order: LongArray,
    top: int,
    near: float,
    ceiling: float,
    most: int,
) -> tuple[FloatArray, FloatArray, int]:
    """Return the designs with the least objective whose constraint is at most the limit.

    Parameters
    ----------
    objective, constraint : (2^F,) coefficients, none negative, F ≥ 2; error variance and cost with
        a budget, cost and error variance without
    limit : positive
    lo, hi : (F,) the least and the largest sizes, whole numbers; of three or more facets lo < hi
    budget : whether the objective falls with sizes
    order : (F,) places of the facets in the order in which equally good designs are compared
    top : how many designs, of those in which no facet alone could be better within the limit
    near : their objective is at most (1 + near) times the best
    ceiling : and at most this
    most : work after which the search is given up

    Returns
    -------
    (top, 1 + F) objective, infinite where there is no design, and sizes; (top,) constraint; the
    work that was done, above `most` where the search was given up
    """
    F = lo.size
    found, others = np.full((top, 1 + F), math.inf), np.full(top, math.inf)
    # Coefficients that are left when the facets above a level have sizes.
    o, c = np.zeros((F, 1 << F)), np.zeros((F, 1 << F))
    for k in range(1 << F):
        o[0, k], c[0, k] = objective[k], constraint[k]
    sizes, best, spare = lo.copy(), np.empty(F), np.zeros((2, 1 << F))
    # At each level the next sizes below and above, bounds of both, and where they end.
    ahead, bounds, ends = np.zeros((F, 2)), np.full((F, 2), math.inf), np.zeros((F, 2))
    level, fresh, work = 0, True, 0
    while level >= 0 and work <= most:
        m, rest_lo, rest_hi = F - level, lo[level:], hi[level:]
        if m == 2:
            work += _COST_OF_PAIR + _pair(
                o[level], c[level], limit, rest_lo, rest_hi, budget, near, ceiling, sizes,
                (constraint, lo, hi), order, found, others, most - work,
            )  # fmt: skip
            level, fresh = level - 1, False
            continue
        at = (o[level], c[level], m, limit, rest_lo, rest_hi, budget)
        work += _COST_OF_PAIR if m == 3 else _COST_OF_BOUND
        if fresh:
            work += _COST_OF_BOUND
            ends[level, 0], ends[level, 1] = _ends(c[level], limit, rest_lo, rest_hi, budget)
            relaxed(*at, best)
            start = min(max(math.floor(best[0]), ends[level, 0]), ends[level, 1])  # nan if none is
            ahead[level, 0], ahead[level, 1] = start, start + 1.0
            for side in range(2):
                bounds[level, side] = _bound_at(at, ahead[level, side], ends[level], spare, best)
        side = 0 if bounds[level, 0] <= bounds[level, 1] else 1
        worst = _threshold(found, near, ceiling) * (1.0 + _SLACK)
        if math.isinf(bounds[level, side]) or bounds[level, side] > worst:
            level, fresh = level - 1, False
            continue
        n = ahead[level, side]
        sizes[level] = n
        _fix_first(o[level], m, 1.0 / n if budget else n, o[level + 1])
        _fix_first(c[level], m, n if budget else 1.0 / n, c[level + 1])
        ahead[level, side] += 1.0 if side else -1.0
        bounds[level, side] = _bound_at(at, ahead[level, side], ends[level], spare, best)
        level, fresh = level + 1, True
    for k in range(top):
        # Some were near the best only until a better design was found.
        if found[k, 0] > found[0, 0] * (1.0 + near) * (1.0 + 4.0 * _TIE):
            found[k, 0] = math.inf
    return found, others, work
