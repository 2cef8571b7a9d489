"""The likelihood of orthogonal strata with nested remainders, from value to maximum in one call.

The algebra is that of :mod:`vcomp.estimators.nested` and :mod:`vcomp.estimators.totals`, and the
steps are those of :mod:`vcomp.estimators.maximise`, for refits by the thousand: what takes Python
longer than the arithmetic is compiled. An iteration that needs more than full and halved steps is
given up, for the ordinary path to take over.

The groups of all levels are nodes of one tree, the outermost first: ``parent`` (Q,) gives places
of nodes and ``offsets`` (D + 2,) where each level begins. The columns of a stratum are (q, b, r).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit

from vcomp._typing import BoolArray, FloatArray, LongArray

__all__ = ["maximise_nested", "nested_derivatives"]

Tree: TypeAlias = tuple[FloatArray, LongArray, LongArray]
Eliminated: TypeAlias = tuple[FloatArray, FloatArray, FloatArray]
Strata: TypeAlias = tuple[
    FloatArray, LongArray, FloatArray, FloatArray, FloatArray, LongArray, LongArray
]

_FAST = {"reassoc", "contract"}
_RIDGE = 1e-14


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
        # What groups of one observation add would cancel in the general formula.
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
    """Add Σ_g w_g L_g R_g' over nodes and replicates to a (b, b) matrix."""
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
    X, delta = np.empty((Q, w)), np.empty((Q, w))
    X[inner:] = means
    _deviations(X, delta, depth, tree, eliminated)
    gram = within / s2
    for g in range(1, Q):
        for k in range(w):
            X[g, k] = delta[g, k] - delta[parent[g], k] / shrink[parent[g]]
    _add_products(gram, X, X, a, 0, Q)
    first, second = np.zeros((size, b, b)), np.zeros((size, size, b, b))
    ones, n_inner = np.ones(Q), np.zeros(Q)
    sums, rest, again = np.empty((Q, w)), np.empty((Q, w)), np.empty((Q, w))
    for g in range(Q):
        for k in range(w):
            sums[g, k] = a[g] * delta[g, k]
    for d in range(depth + 1):
        _add_products(first[d], sums, sums, ones, offsets[d], offsets[d + 1])
        X[offsets[d] : offsets[d + 1]] = sums[offsets[d] : offsets[d + 1]]
        _deviations(X, again, d, tree, eliminated)
        for m in range(d + 1):
            _add_products(second[m, d], sums, again, a, offsets[m], offsets[m + 1])
            if m < d:
                second[d, m] = second[m, d].T
    for g in range(inner, Q):
        n_inner[g] = n[g - inner]
        for k in range(w):
            rest[g, k] = delta[g, k] / shrink[g]
            X[g, k] = rest[g, k] / s2
    _deviations(X, again, depth, tree, eliminated)
    for m in range(depth + 1):
        _add_products(second[m, size - 1], sums, again, a, offsets[m], offsets[m + 1])
        second[size - 1, m] = second[m, size - 1].T
    for g in range(inner, Q):
        for k in range(w):
            again[g, k] /= shrink[g]
    first[-1] = within
    _add_products(first[size - 1], rest, rest, n_inner, inner, Q)
    first[-1] /= s2 * s2
    second[-1, -1] = within / s2
    _add_products(second[size - 1, size - 1], rest, again, n_inner, inner, Q)
    second[-1, -1] /= s2 * s2
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
def nested_derivatives(
    v: FloatArray, tree: Tree, strata: Strata, p: int, reml: bool
) -> tuple[bool, float, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return what a likelihood has at components `v`, (k + 1,), the residual last.

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
    log_det, total_n = 0.0, 0.0
    traces, squares = np.zeros(k1), np.zeros((k1, k1))
    gram, first, second = np.zeros((B, B)), np.zeros((k1, B, B)), np.zeros((k1, k1, B, B))
    for s in range(S):
        c = M[s] @ v
        eliminated, log_s = _eliminate(c, tree)
        tr, sq = _traces(c, tree, eliminated)
        b = n_b[s]
        means = flat[starts[s] : starts[s + 1]].reshape((n.size, -1))
        of_columns = np.ascontiguousarray(within[s, :b, :b])
        g_s, f_s, s_s = _quadratics(c, tree, eliminated, means, of_columns)
        log_det += mult[s] * log_s
        total_n += mult[s] * n.sum()
        traces += mult[s] * (M[s].T @ tr)
        squares += mult[s] * (M[s].T @ sq @ M[s])
        for i in range(b):
            x = places[s, i]
            for j in range(b):
                y = places[s, j]
                gram[x, y] += g_s[i, j]
                first[:, x, y] += M[s].T @ np.ascontiguousarray(f_s[:, i, j])
                second[:, :, x, y] += M[s].T @ np.ascontiguousarray(s_s[:, :, i, j]) @ M[s]
    score, average, observed = np.empty(k1), np.empty((k1, k1)), np.empty((k1, k1))
    ok, log_fixed, inverse = _inverse(gram[1:, 1:].copy(), 0.0)
    beta = inverse @ np.ascontiguousarray(gram[1:, 0])
    e = np.ones(B)
    e[1:] = -beta
    if not ok:
        return False, -np.inf, score, average, observed, beta
    deviance = log_det + e @ gram @ e
    if reml:
        deviance += log_fixed
        total_n -= p
    value = -0.5 * (deviance + total_n * np.log(2.0 * np.pi))
    relative, mixed = np.empty((k1, p, p)), np.empty((k1, p))
    for t in range(k1):
        mixed[t] = np.ascontiguousarray(first[t, 1:]) @ e
        relative[t] = inverse @ np.ascontiguousarray(first[t, 1:, 1:])
        trace = traces[t] - (np.trace(relative[t]) if reml else 0.0)
        score[t] = 0.5 * (e @ np.ascontiguousarray(first[t]) @ e - trace)
    for t in range(k1):
        for u in range(k1):
            twice = e @ np.ascontiguousarray(second[t, u]) @ e - mixed[t] @ inverse @ mixed[u]
            expected = squares[t, u]
            if reml:
                expected -= 2.0 * np.sum(second[t, u, 1:, 1:] * inverse)
                expected += np.sum(relative[t] * relative[u].T)
            average[t, u] = 0.5 * twice
            observed[t, u] = twice - 0.5 * expected
    return np.isfinite(value), value, score, average, observed, beta


@njit(cache=True, nogil=True)
def _bounded(
    information: FloatArray, score: FloatArray, lower: FloatArray, moves: BoolArray
) -> tuple[FloatArray, float]:
    """Return the step on the components that move, as ``vcomp.linalg.bounded``, and √(2 gain)."""
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
            if d[f] + move[i] < floor[f] and (floor[f] - d[f]) / move[i] < reach:
                reach, blocked = max((floor[f] - d[f]) / move[i], 0.0), f
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
    """Return the step from a point and how far the maximum is, negative if it cannot be told."""
    moves = ~held
    for t in range(v.size):
        if v[t] == 0.0 and score[t] <= tol * np.sqrt(max(average[t, t], 0.0)):
            moves[t] = False
    lower = -v
    lower[-1] *= 0.9  # without a residual there is no likelihood
    at = np.flatnonzero(moves)
    if not _inverse(average[at][:, at], 1e-8)[0]:
        return lower, -1.0
    step, decrement = _bounded(average, score, lower, moves)
    if decrement < 0.05 and (v[at] > 0.0).all() and _inverse(observed[at][:, at], -1e-10)[0]:
        step, decrement = _bounded(observed, score, lower, moves)
    return step, decrement if np.isfinite(decrement) else -1.0


@njit(cache=True, nogil=True)
def maximise_nested(
    start: FloatArray,
    held: BoolArray,
    tol: float,
    max_iter: int,
    tree: Tree,
    strata: Strata,
    p: int,
    reml: bool,
) -> tuple[bool, FloatArray, float, FloatArray]:
    """Return the components at which the likelihood is largest.

    Parameters
    ----------
    start : (k + 1,) where to begin, held components at their values
    held : (k + 1,) which are held
    tol : Newton decrement, in standard errors, at which it ends
    max_iter : steps at most
    tree, strata, p, reml : as for :func:`nested_derivatives`

    Returns
    -------
    whether a maximum was reached by full and halved steps alone, the components, ℓ and β̂ there
    """
    v = start.copy()
    ok, value, score, average, observed, beta = nested_derivatives(v, tree, strata, p, reml)
    rows = strata[4].sum() * tree[0].sum()
    for _ in range(max_iter):
        if not ok:
            return False, v, value, beta
        step, decrement = _suggested(v, score, average, observed, held, tol)
        if decrement < 0.0:
            return False, v, value, beta
        balance = np.where(held, 0.0, np.abs(v * score))
        if decrement <= tol and balance.max() <= 1e-4 * np.sqrt(rows):
            near = (v > 0.0) & (v * np.sqrt(np.diag(average)) <= 1e-7) & ~held
            near[-1] = False
            if near.any():
                there = np.where(near, 0.0, v)
                ok, l2, s2, a2, o2, b2 = nested_derivatives(there, tree, strata, p, reml)
                if ok and 0.0 <= _suggested(there, s2, a2, o2, held, tol)[1] <= max(tol, 1e-7):
                    v, value, beta = there, l2, b2
            return True, v, value, beta
        lost = 1e-12 if decrement < 1e-3 else 1e-14
        slack, gain, share = lost * max(abs(value), rows), step @ score, 1.0
        found = False
        for _half in range(12):
            there = np.maximum(v + share * step, 0.0)
            ok, l2, s2, a2, o2, b2 = nested_derivatives(there, tree, strata, p, reml)
            if ok and l2 >= value + 1e-4 * share * gain - slack:
                found = True
                break
            share *= 0.5
        if not found:
            return False, v, value, beta
        v, value, score, average, observed, beta = there, l2, s2, a2, o2, b2
    return False, v, value, beta
