"""The likelihood of orthogonal strata with nested remainders, from value to maximum in one call.

The compiled twin of ``nested``, ``engine`` and ``climb`` in vcomp/estimators/likelihood,
for the thousands of refits of a bootstrap (docs/explanation/mathematics.md, eqs. (3.5) to (3.9),
(5.7), (5.8) and (6.1)). An iteration that needs more than full and halved steps is abandoned, and
the caller uses the engine in Python.

Why there are two: a refit takes 0.2 to 0.8 ms here, and 5 to 50 ms by the engine; with the forms
alone compiled and ``maximise`` as it is, 2 to 3 ms. To compile all takes 14 s, once, which neither
a fit nor a few refits must wait for; and the recursion over whole levels, in a form that runs with
numpy and compiles as well, is half as fast with numpy and takes ten times as long to compile.

The groups of all levels are nodes of one tree, the outermost first: ``parent`` (Q,) gives
positions of nodes and ``offsets`` (D + 2,) where each level begins. The columns of a stratum are
(q, b, r).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.numerics.kernels import njit

Tree: TypeAlias = tuple[FloatArray, LongArray, LongArray]
Eliminated: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]
Strata: TypeAlias = tuple[
    FloatArray, LongArray, FloatArray, FloatArray, FloatArray, LongArray, LongArray
]

Sums: TypeAlias = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]
Derived: TypeAlias = tuple[bool, float, FloatArray, FloatArray, FloatArray, FloatArray]
Likelihood: TypeAlias = tuple[Tree, Strata, int, bool]
Rule: TypeAlias = tuple[BoolArray, float, int]
Known: TypeAlias = tuple[FloatArray, FloatArray]

_FAST = {"reassoc", "contract"}
_RIDGE = 1e-14

_NEWTON_BELOW = 0.05
"""Newton decrement below which the observed information is tried."""

_SAME = 0.3
"""Distance in standard errors within which a climb leads to a known maximum."""

NOTHING = 1e-30
"""A residual below this fraction of its start goes to zero, where there is no likelihood."""


@njit(cache=True, nogil=True)
def _eliminate(c: FloatArray, tree: Tree) -> tuple[Eliminated, float]:
    """Return A, a and 1 + cA of all nodes, and log|V|."""
    n, parent, offsets = tree
    depth, Q = offsets.size - 2, offsets[-1]
    A, a, shrink = np.zeros(Q), np.empty(Q), np.empty(Q)
    total = 0.0
    for g in range(n.size):
        A[offsets[depth] + g] = n[g] / c[-1]
        total += n[g]
    log_det = total * np.log(c[-1])
    for d in range(depth, -1, -1):
        for g in range(offsets[d], offsets[d + 1]):
            shrink[g] = 1.0 + c[d] * A[g]
            a[g] = A[g] / shrink[g]
            log_det += np.log1p(c[d] * A[g])
            if d:
                A[parent[g]] += a[g]
    return (A, a, shrink), log_det


@njit(cache=True, nogil=True)
def _traces(c: FloatArray, tree: Tree, eliminated: Eliminated) -> tuple[FloatArray, FloatArray]:
    """Return tr(V⁻¹K_l) and tr(V⁻¹K_l V⁻¹K_m)."""
    n, parent, offsets = tree
    A, a, shrink = eliminated
    depth, Q, size = offsets.size - 2, offsets[-1], offsets.size
    s2, inner = c[-1], offsets[depth]
    kappa, slope = np.ones(Q), np.zeros((Q, size))
    dA, da = np.zeros((Q, size)), np.empty((Q, size))
    left_slope = np.empty((Q, size))  # of κ/(1 + cA)
    traces, squares = np.zeros(size), np.zeros((size, size))
    for g in range(n.size):
        dA[inner + g, size - 1] = -n[g] / s2 / s2
    for d in range(depth, -1, -1):
        for g in range(offsets[d], offsets[d + 1]):
            for m in range(size):
                da[g, m] = dA[g, m] / shrink[g] ** 2
            da[g, d] -= a[g] ** 2
            if d:
                for m in range(size):
                    dA[parent[g], m] += da[g, m]
    for d in range(depth + 1):
        for g in range(offsets[d], offsets[d + 1]):
            if d:
                p = parent[g]
                x, y = a[g] / A[p], kappa[p] / shrink[p]
                kappa[g] = ((A[p] - a[g]) + a[g] * y) / A[p]
                for m in range(size):
                    dx = (da[g, m] - x * dA[p, m]) / A[p]
                    slope[g, m] = x * left_slope[p, m] - dx * (1.0 - y)
            left = kappa[g] / shrink[g]
            traces[d] += a[g] * kappa[g]
            for m in range(size):
                d_shrink = c[d] * dA[g, m] + (A[g] if m == d else 0.0)
                left_slope[g, m] = (slope[g, m] - left * d_shrink) / shrink[g]
                squares[d, m] -= kappa[g] * da[g, m] + a[g] * slope[g, m]
    for g in range(inner, Q):
        singles = n[g - inner] - 1.0
        traces[-1] += (singles + kappa[g] / shrink[g]) / s2
        for m in range(size - 1):
            squares[-1, m] -= left_slope[g, m] / s2
        # For groups of one observation the general formula would cancel.
        scale = s2 * shrink[g]
        squares[-1, -1] += kappa[g] / scale**2 - slope[g, size - 1] / scale + singles / s2 / s2
    return traces, 0.5 * (squares + squares.T)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _deviations(
    X: FloatArray, delta: FloatArray, depth: int, tree: Tree, eliminated: Eliminated
) -> None:
    """Fill in the means above a level, whose rows of X are there, and δ down to it."""
    _, parent, offsets = tree
    A, a, shrink = eliminated
    w = X.shape[1]
    for d in range(depth, 0, -1):
        X[offsets[d - 1] : offsets[d]] = 0.0
        for g in range(offsets[d], offsets[d + 1]):
            p, share = parent[g], a[g] / A[parent[g]]
            for k in range(w):
                X[p, k] += share * X[g, k]
    for k in range(w):
        delta[0, k] = X[0, k]
    for d in range(1, depth + 1):
        for g in range(offsets[d], offsets[d + 1]):
            p, carried = parent[g], 1.0 / shrink[parent[g]]
            for k in range(w):
                delta[g, k] = (X[g, k] - X[p, k]) + carried * delta[p, k]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_products(
    out: FloatArray, L: FloatArray, R: FloatArray, weights: FloatArray, first: int, last: int
) -> None:
    """Add Σ_g w_g L_g R_g' over nodes and vectors to a (b, b) matrix."""
    b = out.shape[0]
    r = L.shape[1] // b
    for g in range(first, last):
        for i in range(b):
            for j in range(b):
                total = 0.0
                for k in range(r):
                    total += L[g, i * r + k] * R[g, j * r + k]
                out[i, j] += weights[g] * total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _quadratics(
    c: FloatArray, tree: Tree, eliminated: Eliminated, means: FloatArray, within: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return B'V⁻¹B, B'V⁻¹K_l V⁻¹B and B'V⁻¹K_l V⁻¹K_m V⁻¹B; the means are (q, b·r)."""
    n, parent, offsets = tree
    _, a, shrink = eliminated
    depth, Q, size = offsets.size - 2, offsets[-1], offsets.size
    s2, inner, b, w = c[-1], offsets[depth], within.shape[0], means.shape[1]
    X, delta, sums, again = np.empty((Q, w)), np.empty((Q, w)), np.empty((Q, w)), np.empty((Q, w))
    ones, n_inner = np.ones(Q), np.zeros(Q)
    gram, first, second = np.zeros((b, b)), np.zeros((size, b, b)), np.zeros((size, size, b, b))
    for g in range(n.size):
        n_inner[inner + g] = n[g]
        for k in range(w):
            X[inner + g, k] = means[g, k]
    _deviations(X, delta, depth, tree, eliminated)
    for g in range(Q):
        for k in range(w):
            sums[g, k] = a[g] * delta[g, k]
            if g:
                X[g, k] = delta[g, k] - delta[parent[g], k] / shrink[parent[g]]
    _add_products(gram, X, X, a, 0, Q)
    for d in range(depth + 2):
        # V⁻¹ is applied again to a column that is constant in the groups of level d or, for the
        # residual, to the deviations of the means.
        level = min(d, depth)
        for g in range(offsets[level], offsets[level + 1]):
            for k in range(w):
                X[g, k] = sums[g, k] if d <= depth else delta[g, k] / shrink[g] / s2
        if d <= depth:
            _add_products(first[d], sums, sums, ones, offsets[d], offsets[d + 1])
        else:
            _add_products(first[d], X, X, n_inner, inner, Q)
        _deviations(X, again, level, tree, eliminated)
        for m in range(level + 1):
            _add_products(second[m, d], sums, again, a, offsets[m], offsets[m + 1])
    for g in range(inner, Q):
        for k in range(w):
            X[g, k] = delta[g, k] / shrink[g] / s2
            again[g, k] /= shrink[g] * s2
    _add_products(second[size - 1, size - 1], X, again, n_inner, inner, Q)
    for i in range(b):
        for j in range(b):
            gram[i, j] += within[i, j] / s2
            first[size - 1, i, j] += within[i, j] / s2 / s2
            second[size - 1, size - 1, i, j] += within[i, j] / s2 / s2 / s2
            for d in range(size):
                for m in range(d):
                    second[d, m, i, j] = second[m, d, j, i]
    return gram, first, second


@njit(cache=True, nogil=True)
def _inverse(matrix: FloatArray, lift: float) -> tuple[bool, float, FloatArray]:
    """Return whether a matrix, lifted on a unit diagonal, is positive, log|·| and the inverse."""
    m = matrix.shape[0]
    scale, lower = np.empty(m), np.zeros((m, m))
    inverse = np.zeros((m, m))
    log_det = 0.0
    for i in range(m):
        if not (matrix[i, i] > 0.0 and np.isfinite(matrix[i, i])):
            return False, 0.0, inverse
        scale[i] = np.sqrt(matrix[i, i])
    for i in range(m):
        for j in range(i + 1):
            total = matrix[i, j] / (scale[i] * scale[j]) + (lift if i == j else 0.0)
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            if i == j:
                if not total > 0.0:
                    return False, 0.0, inverse
                lower[i, i] = np.sqrt(total)
                log_det += 2.0 * np.log(lower[i, i] * scale[i])
            else:
                lower[i, j] = total / lower[j, j]
    for e in range(m):
        for i in range(e, m):
            total = 1.0 if i == e else 0.0
            for k in range(e, i):
                total -= lower[i, k] * inverse[k, e]
            inverse[i, e] = total / lower[i, i]
        for i in range(m - 1, -1, -1):
            total = inverse[i, e]
            for k in range(i + 1, m):
                total -= lower[k, i] * inverse[k, e]
            inverse[i, e] = total / lower[i, i]
    for i in range(m):
        for j in range(m):
            inverse[i, j] /= scale[i] * scale[j]
    return True, log_det, inverse


@njit(cache=True, nogil=True)
def nested_derivatives(v: FloatArray, tree: Tree, strata: Strata, p: int, reml: bool) -> Derived:
    """Return the likelihood and its derivatives at components `v`, (k + 1,), the residual last.

    Parameters
    ----------
    tree : (q,) observations of the innermost groups, parent and offsets of all nodes
    strata : the (q, b, r) means of the columns of every stratum, one after the other; (S + 1,)
        where each begins; (S, B, B) squares and products within innermost groups; coefficients
        (S, D + 2, k + 1); (S,) numbers of independent vectors; (S, B) places of the columns among
        y and X; and (S,) how many they are
    p, reml : number of columns of X; restricted likelihood, or the full one

    Returns
    -------
    whether it can be computed, ℓ, score, average and observed information, β̂
    """
    n = tree[0]
    flat, starts, within, M, mult, places, n_b = strata
    S, k1, B = mult.size, v.size, 1 + p
    log_det, rows = 0.0, 0.0
    traces, squares = np.zeros(k1), np.zeros((k1, k1))
    gram, first, second = np.zeros((B, B)), np.zeros((k1, B, B)), np.zeros((k1, k1, B, B))
    sums = (traces, squares, gram, first, second)
    c = np.empty(M.shape[1])
    for s in range(S):
        for h in range(c.size):
            c[h] = 0.0
            for t in range(k1):
                c[h] += M[s, h, t] * v[t]
        eliminated, log_s = _eliminate(c, tree)
        log_det += mult[s] * log_s
        rows += mult[s] * n.sum()
        means = flat[starts[s] : starts[s + 1]].reshape((n.size, -1))
        forms = _quadratics(c, tree, eliminated, means, within[s, : n_b[s], : n_b[s]])
        own = _traces(c, tree, eliminated)
        _add_forms(M[s], mult[s], places[s], own, forms, sums)
    return _combined(log_det, rows, sums, reml)


@njit(cache=True, nogil=True)
def _add_forms(
    M: FloatArray,
    mult: float,
    places: LongArray,
    own: tuple[FloatArray, FloatArray],
    forms: tuple[FloatArray, FloatArray, FloatArray],
    sums: Sums,
) -> None:
    """Add the forms of one stratum, in terms of its own components, to those of the model."""
    traces, squares, gram, first, second = sums
    size, k1 = M.shape
    b = forms[0].shape[0]
    for i in range(b):
        for j in range(b):
            gram[places[i], places[j]] += forms[0][i, j]
    for t in range(k1):
        for h in range(size):
            if M[h, t] == 0.0:
                continue
            traces[t] += mult * M[h, t] * own[0][h]
            for i in range(b):
                for j in range(b):
                    first[t, places[i], places[j]] += M[h, t] * forms[1][h, i, j]
            for u in range(k1):
                for m in range(size):
                    both = M[h, t] * M[m, u]
                    if both == 0.0:
                        continue
                    squares[t, u] += mult * both * own[1][h, m]
                    for i in range(b):
                        for j in range(b):
                            second[t, u, places[i], places[j]] += both * forms[2][h, m, i, j]


@njit(cache=True, nogil=True)
def _form(left: FloatArray, matrix: FloatArray, right: FloatArray) -> float:
    total = 0.0
    for i in range(left.size):
        for j in range(right.size):
            total += left[i] * matrix[i, j] * right[j]
    return total


@njit(cache=True, nogil=True)
def _combined(log_det: float, rows: float, sums: Sums, reml: bool) -> Derived:
    """Return value, score and informations of REML or ML from the forms, as ``totals.Totals``."""
    traces, squares, gram, first, second = sums
    k1, B = traces.size, gram.shape[0]
    p = B - 1
    score, average, observed = np.empty(k1), np.empty((k1, k1)), np.empty((k1, k1))
    ok, log_fixed, inverse = _inverse(gram[1:, 1:], 0.0)
    e, mixed, relative = np.ones(B), np.zeros((k1, p)), np.zeros((k1, p, p))
    for i in range(p):
        e[1 + i] = 0.0
        for j in range(p):
            e[1 + i] -= inverse[i, j] * gram[1 + j, 0]
    beta = -e[1:]
    deviance = log_det + _form(e, gram, e)
    if reml:
        deviance += log_fixed
        rows -= p
    value = -0.5 * (deviance + rows * np.log(2.0 * np.pi))
    for t in range(k1):
        trace = traces[t]
        for i in range(p):
            for j in range(B):
                mixed[t, i] += first[t, 1 + i, j] * e[j]
            for j in range(p):
                for h in range(p):
                    relative[t, i, j] += inverse[i, h] * first[t, 1 + h, 1 + j]
            if reml:
                trace -= relative[t, i, i]
        score[t] = 0.5 * (_form(e, first[t], e) - trace)
    for t in range(k1):
        for u in range(k1):
            twice = _form(e, second[t, u], e) - _form(mixed[t], inverse, mixed[u])
            expected = squares[t, u]
            if reml:
                for i in range(p):
                    for j in range(p):
                        expected -= 2.0 * second[t, u, 1 + i, 1 + j] * inverse[i, j]
                        expected += relative[t, i, j] * relative[u, j, i]
            average[t, u] = 0.5 * twice
            observed[t, u] = twice - 0.5 * expected
    return ok and np.isfinite(value), value, score, average, observed, beta


@njit(cache=True, nogil=True)
def _bounded(
    information: FloatArray, score: FloatArray, lower: FloatArray, moves: BoolArray
) -> tuple[FloatArray, float]:
    """Return the bounded step on the components that move, eq. (6.1), and √(2 gain)."""
    at = np.flatnonzero(moves)
    m = at.size
    step, scale = np.zeros(score.size), np.ones(m)
    A, slope, floor = np.zeros((m, m)), np.empty(m), np.empty(m)
    for i in range(m):
        scale[i] = np.sqrt(np.abs(information[at[i], at[i]]))
    for i in range(m):
        slope[i], floor[i] = score[at[i]] / scale[i], lower[at[i]] * scale[i]
        for j in range(m):
            A[i, j] = information[at[i], at[j]] / (scale[i] * scale[j])
        A[i, i] += _RIDGE
    d = np.zeros(m)
    fixed = (floor == 0.0) & (slope <= 0.0)
    largest = np.abs(slope).max() if m else 0.0
    for _ in range(20 * (m + 1)):
        free = np.flatnonzero(~fixed)
        gradient = slope - A @ d
        block = np.empty((free.size, free.size))
        for i in range(free.size):
            for j in range(free.size):
                block[i, j] = A[free[i], free[j]]
        ok, _, inverse = _inverse(block, 0.0)
        if not ok:
            return step, np.inf
        move = inverse @ gradient[free]
        reach, blocked = 1.0, -1
        for i in range(free.size):
            f = free[i]
            part = (floor[f] - d[f]) / move[i] if d[f] + move[i] < floor[f] else 1.0
            if part < reach:
                reach, blocked = max(part, 0.0), f
        for i in range(free.size):
            d[free[i]] += reach * move[i]
        if blocked >= 0:
            d[blocked] = floor[blocked]
            fixed[blocked] = True
            continue
        gradient = slope - A @ d
        released, most = -1, 1e-14 * largest
        for i in range(m):
            if fixed[i] and gradient[i] > most:
                released, most = i, gradient[i]
        if released < 0:
            break
        fixed[released] = False
    for i in range(m):
        step[at[i]] = lower[at[i]] if d[i] == floor[i] else d[i] / scale[i]
    gain = float(slope @ d - 0.5 * d @ (A @ d))
    return step, float(np.sqrt(max(2.0 * gain, 0.0)))


@njit(cache=True, nogil=True)
def _suggested(
    v: FloatArray,
    score: FloatArray,
    average: FloatArray,
    observed: FloatArray,
    held: BoolArray,
    tol: float,
) -> tuple[FloatArray, float]:
    """Return the step from a point and the Newton decrement, negative if it is not known."""
    k1 = v.size
    moves, lower = np.ones(k1, np.bool_), -v
    lower[-1] *= 0.9  # without a residual there is no likelihood
    inside = True
    for t in range(k1):
        stays = v[t] == 0.0 and score[t] <= tol * np.sqrt(max(average[t, t], 0.0))
        moves[t] = not (held[t] or stays)
        inside = inside and (v[t] > 0.0 or not moves[t])
    if not _inverse(_block(average, moves), 1e-8)[0]:
        return lower, -1.0
    step, decrement = _bounded(average, score, lower, moves)
    if decrement < _NEWTON_BELOW and inside and _inverse(_block(observed, moves), -1e-10)[0]:
        step, decrement = _bounded(observed, score, lower, moves)
    return step, decrement if np.isfinite(decrement) else -1.0


@njit(cache=True, nogil=True)
def _block(matrix: FloatArray, kept: BoolArray) -> FloatArray:
    at = np.flatnonzero(kept)
    block = np.empty((at.size, at.size))
    for i in range(at.size):
        for j in range(at.size):
            block[i, j] = matrix[at[i], at[j]]
    return block


@njit(cache=True, nogil=True)
def climb_nested(
    start: FloatArray, rule: Rule, likelihood: Likelihood, known: Known
) -> tuple[int, FloatArray, Derived]:
    """Return 1 at a maximum (−1 near a known one) or 0, with the point.

    Parameters
    ----------
    start : (k + 1,) where to begin, held components at their values
    rule : (k + 1,) which are held; Newton decrement, in standard errors, at which it ends; and
        steps at most
    likelihood : tree, strata, p and reml, as for :func:`nested_derivatives`
    known : components at a maximum, and 1/(their standard errors); empty arrays if there is none

    Returns
    -------
    the end, the components there, and what :func:`nested_derivatives` returns of them
    """
    held, tol, max_iter = rule
    tree, strata, p, reml = likelihood
    v, least = start.copy(), NOTHING * start.max()
    here = nested_derivatives(v, tree, strata, p, reml)
    rows = strata[4].sum() * tree[0].sum()
    for _ in range(max_iter):
        ok, value, score, average, observed, _beta = here
        if not ok or v[-1] <= least:
            break
        step, decrement = _suggested(v, score, average, observed, held, tol)
        if decrement < 0.0:
            break
        if known[0].size and _distance(v, step, known) <= _SAME:
            return -1, v, here
        balance, near, there = 0.0, False, v.copy()
        for t in range(v.size):
            if not held[t]:
                balance = max(balance, abs(v[t] * score[t]))
                if t < v.size - 1 and 0.0 < v[t] * np.sqrt(average[t, t]) <= 1e-7:
                    near, there[t] = True, 0.0
        if decrement <= tol and balance <= 1e-4 * np.sqrt(rows):
            if near:
                found = nested_derivatives(there, tree, strata, p, reml)
                if found[0]:
                    _, left = _suggested(there, found[2], found[3], found[4], held, tol)
                    if 0.0 <= left <= max(tol, 1e-7):
                        return 1, there, found
            return 1, v, here
        lost = 1e-12 if decrement < 1e-3 else 1e-14
        slack, gain, share = lost * max(abs(value), rows), 0.0, 1.0
        for t in range(v.size):
            gain += step[t] * score[t]
        for _half in range(12):
            there = np.empty(v.size)
            for t in range(v.size):
                there[t] = max(v[t] + share * step[t], 0.0)
            found = nested_derivatives(there, tree, strata, p, reml)
            if found[0] and found[1] >= value + 1e-4 * share * gain - slack:
                break
            share *= 0.5
        else:
            break
        v, here = there, found
    return 0, v, here


@njit(cache=True, nogil=True)
def _distance(v: FloatArray, step: FloatArray, known: Known) -> float:
    """Return the distance between the end of a step and a known maximum in standard errors."""
    largest = 0.0
    for t in range(v.size):
        largest = max(largest, abs(v[t] + step[t] - known[0][t]) * known[1][t])
    return largest
