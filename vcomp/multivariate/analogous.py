"""Covariance components of variables that were not all observed together: analogous products.

For variables a and b and the groups g of a term α that both have, with n_g and ȳ_g the numbers and
means of their scores and weights w_g = √(n_g(a) n_g(b)),

    Q_α(a, b) = Σ_g w_g (ȳ_g(a) − m_α(a)) (ȳ_g(b) − m_α(b)),    m_α = Σ w_g ȳ_g / Σ w_g.

Of one variable that is Henderson's T_α − T_μ, and of balanced data that were observed together the
sum of products of the classical analysis. Its expectation is Σ_β k_αβ σ_β(a, b) with

    k_αβ = Σ_h [Σ_g w_g p_gh(a) p_gh(b)] − Σ_h [Σ_g w_g p_gh(a)] [Σ_g w_g p_gh(b)] / Σ w_g,

p_gh = n_gh/n_g the share of group h of term β in the scores of g. The equations of each pair of
variables are solved for the terms whose groups they share (Brennan 2001, section 11.1, has such
products for the designs that he treats; means do not enter these ones).
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError
from vcomp.linalg.dense import solve
from vcomp.multivariate.axis import Axis, axis_forms
from vcomp.multivariate.covariance_components import elements
from vcomp.multivariate.layout import Layout

__all__ = ["analogous_components", "analogous_covariance"]

_MOST_PRODUCTS = 7e8
"""Multiplications up to which standard errors are computed: some seconds."""

_CHUNK = 2_000_000
"""Numbers that one part of a matrix between groups of two terms has."""

Pair = tuple[int, int]


class _Products:
    """The forms of every pair of variables and their expectations."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.pairs: list[Pair] = list(combinations_with_replacement(range(layout.n_variables), 2))
        self.means = [self._means(t) for t in range(len(layout.names))]
        self.weights = [np.sqrt(n[:, :, None] * n[:, None, :]) for n in layout.counts]

    def _means(self, term: int) -> FloatArray:
        """Return the means of a term's groups in every variable, in its scale; 0 of none."""
        layout, v = self.layout, self.layout.n_variables
        groups = layout.groups[term].astype(np.int64) * v + layout.scores.variable
        sums = np.bincount(groups, weights=layout.y, minlength=layout.sizes[term] * v)
        n = layout.counts[term]
        return sums.reshape(n.shape) / np.where(n > 0.0, n, 1.0) / layout.scale

    def terms(self, pair: Pair) -> list[int]:
        """Return the terms whose groups two variables share."""
        return [t for t in range(len(self.layout.names)) if self.layout.linked[t][pair]]

    def form(self, term: int, pair: Pair) -> float:
        """Return Q of a term."""
        w = self.weights[term][:, pair[0], pair[1]]
        x, z = (self.means[term][:, a] for a in pair)
        x, z = x - (w @ x) / w.sum(), z - (w @ z) / w.sum()
        return float(w @ (x * z))

    def coefficient(self, term: int, other: int, pair: Pair) -> float:
        """Return k: the expectation of Q for a unit covariance of another term."""
        w = self.weights[term][:, pair[0], pair[1]]
        P, R = (self.share(term, other, a) for a in pair)
        both = float(w @ np.asarray(P.multiply(R).sum(axis=1)).ravel())
        return both - float((P.T @ w) @ (R.T @ w)) / float(w.sum())

    def share(self, term: int, other: int, variable: int) -> Any:
        """Return p_gh of the groups of two terms, sparse."""
        from scipy.sparse import diags_array

        n = self.layout.counts[term][:, variable]
        inverse = np.divide(1.0, n, out=np.zeros_like(n), where=n > 0.0)
        return (diags_array(inverse) @ self.layout.table(term, other, variable)).tocsr()

    def equations(self, pair: Pair) -> tuple[list[int], FloatArray]:
        """Return the terms of a pair and the coefficients of their equations."""
        terms = self.terms(pair)
        return terms, np.array([[self.coefficient(t, u, pair) for u in terms] for t in terms])


def analogous_components(layout: Layout) -> FloatArray:
    """Return the (k + 1, v, v) estimates; nan where two variables share no groups of a term.

    Raises
    ------
    EstimationError
        If the components of two variables cannot be told apart.
    """
    products = _Products(layout)
    values = np.full((len(layout.names), layout.n_variables, layout.n_variables), np.nan)
    for pair in products.pairs:
        terms, K = products.equations(pair)
        if not terms:
            continue
        Q = np.array([products.form(t, pair) for t in terms])
        solved = _solved(K, Q[:, None], layout, pair, terms)[:, 0]
        a, b = pair
        values[terms, a, b] = values[terms, b, a] = solved * layout.scale[a] * layout.scale[b]
    return values


def _solved(
    K: FloatArray, right: FloatArray, layout: Layout, pair: Pair, terms: list[int]
) -> FloatArray:
    scale = np.abs(K).max(axis=0)
    if (scale > 0.0).all() and np.linalg.matrix_rank(K / scale, tol=1e-10) == len(terms):
        return solve(K, right)
    a, b = (layout.scores.variables[x] for x in pair)
    which = f"variable {a!r}" if a == b else f"variables {a!r} and {b!r}"
    raise EstimationError(
        f"the components of {', '.join(layout.names[t] for t in terms)} cannot be told apart in "
        f"{which} by their sums of products; use method='reml', or leave out a term"
    )


# Standard errors --------------------------------------------------------------------------------


def analogous_covariance(
    layout: Layout, values: FloatArray, axis: Axis | None = None
) -> tuple[FloatArray, str]:
    """Return the covariance matrix of these estimates under normality, and why there is none.

    With H = diag(w) − ww'/Σw and Γ the covariance matrices of group means, forms of normal scores
    have Cov[Q_α(a, b), Q_β(c, d)] = tr(H_α Γ_ac H_β Γ_bd') + tr(H_α Γ_ad H_β Γ_bc').

    Parameters
    ----------
    layout : of the scores
    values : (k + 1, v, v) the estimates, at which it is taken
    axis : the scores as vectors of the same columns, if they are
    """
    products = _Products(layout)
    places = elements(layout.linked)
    k, n_pairs = len(layout.names), len(products.pairs)
    needed = [
        float(layout.sizes[t]) * layout.sizes[u] * n_pairs**2
        for t in range(k)
        for u in range(t + 1)
        if (t, u) != (k - 1, k - 1)
    ]
    if axis is None and sum(needed) > _MOST_PRODUCTS:
        nothing = np.full((len(places), len(places)), np.nan)
        return (
            nothing,
            " No standard errors: they take too much memory or time; use method='reml'.",
        )
    scaled = np.where(layout.linked, values, 0.0) / np.outer(layout.scale, layout.scale)
    forms = (
        _all_forms(products, scaled) if axis is None else axis_forms(axis, scaled, products.pairs)
    )
    solver = np.zeros((k, n_pairs, k, n_pairs))
    for p, pair in enumerate(products.pairs):
        terms, K = products.equations(pair)
        if terms:
            solver[np.ix_(terms, [p], terms, [p])] = _solved(
                K, np.eye(len(terms)), layout, pair, terms
            )[:, None, :, None]
    index = {pair: p for p, pair in enumerate(products.pairs)}
    kept = [t * n_pairs + index[a, b] for t, a, b in places]
    A = solver.reshape(k * n_pairs, -1)
    whole = (A @ forms.reshape(k * n_pairs, -1) @ A.T)[np.ix_(kept, kept)]
    units = np.array([layout.scale[a] * layout.scale[b] for _, a, b in places])
    return 0.5 * (whole + whole.T) * np.outer(units, units), ""


def _all_forms(products: _Products, values: FloatArray) -> FloatArray:
    """Return the covariances of all forms, (k + 1, pairs, k + 1, pairs)."""
    k, n_pairs = len(products.layout.names), len(products.pairs)
    forms = np.zeros((k, n_pairs, k, n_pairs))
    for t in range(k):
        for u in range(t + 1):
            block = _forms(products, values, t, u)
            forms[t, :, u, :] = block
            forms[u, :, t, :] = block.T
    return forms


def _forms(products: _Products, values: FloatArray, t: int, u: int) -> FloatArray:
    """Return the covariances of the forms of two terms, (pairs, pairs)."""
    layout, pairs = products.layout, products.pairs
    v, last = layout.n_variables, len(layout.names) - 1
    a, b = np.array(pairs).T
    w, z = products.weights[t][:, a, b], products.weights[u][:, a, b]  # (groups, pairs)
    # A pair without groups has weights of zero and forms of zero.
    W, Z = w.sum(axis=0), z.sum(axis=0)
    W, Z = np.where(W > 0.0, W, 1.0), np.where(Z > 0.0, Z, 1.0)
    left = np.empty((v, v, layout.sizes[t], len(pairs)))  # Γ_ac z of every pair
    right = np.empty((v, v, layout.sizes[u], len(pairs)))  # Γ_ac' w
    for x in range(v):
        for y in range(v):
            left[x, y], right[x, y] = _mean_products(products, values, t, u, (x, y), w, z)
    found = np.zeros((len(pairs), len(pairs)))
    both = _squares_of_units if t == u == last else _squares
    squares = both(products, values, t, u, w, z)
    for p, (pa, pb) in enumerate(pairs):
        for q, (qa, qb) in enumerate(pairs):
            for (e, f), (g, h) in (((pa, qa), (pb, qb)), ((pa, qb), (pb, qa))):
                rows = w[:, p] @ (left[e, f][:, q] * left[g, h][:, q]) / Z[q]
                columns = z[:, q] @ (right[e, f][:, p] * right[g, h][:, p]) / W[p]
                middle = (w[:, p] @ left[e, f][:, q]) * (w[:, p] @ left[g, h][:, q])
                found[p, q] += middle / (W[p] * Z[q]) - rows - columns
    found += squares
    return found


def _mean_products(
    products: _Products,
    values: FloatArray,
    t: int,
    u: int,
    pair: Pair,
    w: FloatArray,
    z: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return Γz and Γ'w for the covariances Γ of the group means of two variables."""
    left, right = 0.0, 0.0
    for s in range(len(products.layout.names)):
        sigma = values[s][pair]
        if sigma == 0.0:
            continue
        P, R = products.share(t, s, pair[0]), products.share(u, s, pair[1])
        left = left + sigma * (P @ (R.T @ z))
        right = right + sigma * (R @ (P.T @ w))
    return np.asarray(left), np.asarray(right)


def _squares(
    products: _Products, values: FloatArray, t: int, u: int, w: FloatArray, z: FloatArray
) -> FloatArray:
    """Return Σ_gh w_g z_h (Γ_ac Γ_bd + Γ_ad Γ_bc)_gh of every two pairs, in parts of rows."""
    layout, pairs = products.layout, products.pairs
    v, k = layout.n_variables, len(layout.names)
    shares = {
        (s, a): (products.share(t, s, a), products.share(u, s, a).T.tocsc())
        for s in range(k)
        for a in range(v)
    }
    found = np.zeros((len(pairs), len(pairs)))
    width = max(1, _CHUNK // (v * v * layout.sizes[u]))
    for first in range(0, layout.sizes[t], width):
        part = slice(first, min(first + width, layout.sizes[t]))
        G = np.zeros((v, v, part.stop - part.start, layout.sizes[u]))
        for a in range(v):
            for b in range(v):
                for s in range(k):
                    if values[s, a, b] != 0.0:
                        product = shares[s, a][0][part] @ shares[s, b][1]
                        G[a, b] += values[s, a, b] * product.toarray()
        for p, (a, b) in enumerate(pairs):
            for q, (c, d) in enumerate(pairs):
                both = G[a, c] * G[b, d] + G[a, d] * G[b, c]
                found[p, q] += w[part, p] @ (both @ z[:, q])
    return found


def _squares_of_units(
    products: _Products, values: FloatArray, t: int, u: int, w: FloatArray, z: FloatArray
) -> FloatArray:
    """Return the same of the single scores: two are in one group of s and of r, or are not.

    Σ_gh w_g z_h [same group of s] [same group of r] is a sum over the groups that s and r make
    together, so that nothing between all scores is formed.
    """
    layout, pairs = products.layout, products.pairs
    k = len(layout.names)
    of_unit = _groups_of_units(layout)
    found = np.zeros((len(pairs), len(pairs)))
    for s in range(k):
        for r in range(k):
            joint = of_unit[s].astype(np.int64) * layout.sizes[r] + of_unit[r]
            number = np.unique(joint, return_inverse=True)[1]
            sums = np.array([np.bincount(number, weights=column) for column in w.T])
            together = sums @ sums.T  # w is z here
            for p, (a, b) in enumerate(pairs):
                for q, (c, d) in enumerate(pairs):
                    found[p, q] += together[p, q] * (
                        values[s, a, c] * values[r, b, d] + values[s, a, d] * values[r, b, c]
                    )
    return found


def _groups_of_units(layout: Layout) -> list[Any]:
    """Return for each term the group of every unit."""
    found = []
    for groups, size in zip(layout.groups, layout.sizes, strict=True):
        of_unit = np.zeros(layout.scores.n_units, dtype=np.int32)
        of_unit[layout.scores.unit] = groups
        assert of_unit.max() < size
        found.append(of_unit)
    return found
