"""Covariance components by analogous products, and data with a fully crossed facet.

Analogous products are for any data, balanced or not, with variables observed together or not. For
variables a and b and the groups g of a term α that both have, with n_g and ȳ_g the numbers and
means of their scores and weights w_g = √(n_g(a) n_g(b)),

    Q_α(a, b) = Σ_g w_g (ȳ_g(a) − m_α(a)) (ȳ_g(b) − m_α(b)),    m_α = Σ w_g ȳ_g / Σ w_g.

For one variable this is Henderson's T_α − T_μ; for balanced data with all variables observed
together it is the sum of products of the analysis of variance. Its expectation is
Σ_β k_αβ σ_β(a, b) with

    k_αβ = Σ_h [Σ_g w_g p_gh(a) p_gh(b)] − Σ_h [Σ_g w_g p_gh(a)] [Σ_g w_g p_gh(b)] / Σ w_g,

with p_gh = n_gh/n_g, the share of group h of term β in the scores of g. The equations of each pair
of variables are solved for the terms whose groups they share. Brennan (2001, section 11.1) has
such products for his designs; those used here do not depend on the means.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray
from vcomp.design import number_combinations
from vcomp.estimators.likelihood import elements
from vcomp.exceptions import EstimationError
from vcomp.multivariate.strata_covariances import Strata
from vcomp.multivariate.variables import VariableLayout, sums_of
from vcomp.numerics import solve

_MOST_COLUMNS = 400
"""Largest number of columns at which their matrices cost less than mixed model equations."""


def find_axis(layout: VariableLayout) -> Strata | None:
    """Return the scores by the largest facet fully crossed with all others; None without one."""
    best: tuple[int, int] | None = None
    for place, levels in enumerate(layout.scores.levels):
        m, left = divmod(layout.scores.n, len(levels))
        if left == 0 and m <= _MOST_COLUMNS and (best is None or m < best[0]):
            columns, count = _columns(layout, place)
            if count == m and _fill(layout, place, columns, m):
                best = m, place
    if best is None:
        return None
    return _axis(layout, best[1], best[0])


def _columns(layout: VariableLayout, place: int) -> tuple[IntArray, int]:
    """Return the column of every score, and the number of columns."""
    scores = layout.scores
    cells, size = scores.codes[place], len(scores.levels[place])
    for other, codes in enumerate(scores.codes):
        if other != place:
            keys, cells = number_combinations(cells, size, codes, len(scores.levels[other]))
            size = keys.size
    # Units are numbered within cells: those with the same number are in the same column.
    keys, units = number_combinations(cells, size, scores.unit, scores.n_units)
    of_cell = keys // scores.n_units
    starts = np.searchsorted(of_cell, np.arange(size))
    rank = (np.arange(keys.size) - starts[of_cell])[units].astype(np.int32)
    columns, size = scores.variable, layout.n_variables
    others = [(c, len(x)) for c, x in zip(scores.codes, scores.levels, strict=True)]
    del others[place]
    for codes, levels in [*others, (rank, int(rank.max()) + 1)]:
        keys, columns = number_combinations(columns, size, codes, levels)
        size = keys.size
    return columns, size


def _fill(layout: VariableLayout, place: int, columns: IntArray, m: int) -> bool:
    joint = layout.scores.codes[place].astype(np.int64) * m + columns
    return bool((np.bincount(joint, minlength=layout.scores.n) == 1).all())


def _axis(layout: VariableLayout, place: int, m: int) -> Strata:
    scores = layout.scores
    columns, _ = _columns(layout, place)
    n = len(scores.levels[place])
    Y = np.empty((n, m))
    Y[scores.codes[place], columns] = layout.y / layout.scale[scores.variable]
    first = np.flatnonzero(scores.codes[place] == 0)
    first = first[np.argsort(columns[first])]
    groups = np.array([g[first] for g in layout.groups])
    means = Y.mean(axis=0)
    Y -= means
    facet = scores.facets[place]
    inside = np.array([facet in f for f in layout.facets])
    return Strata(
        facets=(frozenset({place}),),
        df=np.array([n - 1.0]),
        products=(Y.T @ Y)[None] / max(n - 1.0, 1.0),
        coefficients=inside[None].astype(float),
        mean=np.where(inside, 1.0, float(n)),
        n=n,
        variable=scores.variable[first],
        same=groups[:, :, None] == groups[:, None, :],
        means=np.sqrt(n) * means,
        reason=f"covariance matrix of the {m} columns of each level of {facet}",
    )


def axis_forms(axis: Strata, S: FloatArray, pairs: list[tuple[int, int]]) -> FloatArray:
    """Return the covariances of analogous products, (k + 1, pairs, k + 1, pairs).

    Each product is a quadratic form in the contrasts plus another one in the mean.

    Parameters
    ----------
    axis : the scores by its levels
    S : (k + 1, v, v) matrices at which they are computed
    pairs : of variables
    """
    (within,), of_means = axis.covariances(S)
    k, p, m = len(axis.same), len(pairs), axis.variable.size
    forms = np.zeros((k * p, k * p))
    both = [_form(axis, same, pair) for same in axis.same for pair in pairs]
    inside = np.repeat(axis.coefficients[0], p)[:, None, None]
    of_contrasts = inside * [form @ within for form, _ in both]
    for d, C in (
        (axis.df[0], of_contrasts),
        (1.0, np.array([(form - centre) @ of_means for form, centre in both])),
    ):
        forms += 2.0 * d * C.reshape(-1, m * m) @ C.swapaxes(1, 2).reshape(-1, m * m).T
    return (0.5 * (forms + forms.T)).reshape(k, p, k, p)


def _form(axis: Strata, same: BoolArray, pair: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
    """Return the matrices of Σ_g w_g ȳ_g(a) ȳ_g(b) and of its correction for the means."""
    of = [axis.variable == a for a in pair]
    counts = [(same & x[None, :]).sum(axis=1).astype(float) for x in of]  # of each column's group
    n = [np.where(c > 0.0, c, 1.0) for c in counts]
    w = np.sqrt(counts[0] * counts[1])
    left, right = of[0] / n[0], of[1] / n[1]
    form = np.where(same, w[:, None], 0.0) * left[:, None] * right[None, :]
    total = float((w * left).sum())
    centre = np.outer(w * left, w * right) / (total if total > 0.0 else 1.0)
    return 0.5 * (form + form.T), 0.5 * (centre + centre.T)


_MOST_PRODUCTS = 7e8
"""Largest number of multiplications for standard errors: some seconds."""

_CHUNK = 2_000_000
"""Largest number of elements in a block of a matrix between the groups of two terms."""

Pair = tuple[int, int]


class _Products:
    """The analogous products of every pair of variables, and their expectations."""

    def __init__(self, layout: VariableLayout) -> None:
        self.layout = layout
        self.pairs: list[Pair] = list(combinations_with_replacement(range(layout.n_variables), 2))
        self.means = [self._means(t) for t in range(len(layout.names))]

    @cached_property
    def weights(self) -> list[FloatArray]:
        """w_g(a, b) of the groups of every term, (groups, v, v)."""
        return [np.sqrt(n[:, :, None] * n[:, None, :]) for n in self.layout.counts]

    def _means(self, term: int) -> FloatArray:
        """Return group means in standard deviations of each variable; 0 without scores."""
        layout, v = self.layout, self.layout.n_variables
        groups = layout.groups[term].astype(np.int64) * v + layout.scores.variable
        sums = np.bincount(groups, weights=layout.y, minlength=layout.sizes[term] * v)
        n = layout.counts[term]
        return sums.reshape(n.shape) / np.where(n > 0.0, n, 1.0) / layout.scale

    def terms(self, pair: Pair) -> list[int]:
        """Return the terms whose groups two variables share."""
        return [t for t in range(len(self.layout.names)) if self.layout.linked[t][pair]]

    @cached_property
    def forms(self) -> FloatArray:
        """Q_α(a, b) of every term α, (k + 1, v, v)."""
        found = []
        for n, x in zip(self.layout.counts, self.means, strict=True):
            root = np.sqrt(n)
            scaled, sums = root * x, (root * x).T @ root
            found.append(scaled.T @ scaled - sums * sums.T / _not_zero(root.T @ root))
        return np.array(found)

    @cached_property
    def coefficients(self) -> FloatArray:
        """k_αβ, of σ_β(a, b) in the expectation of Q_α(a, b), (k + 1, k + 1, v, v)."""
        terms = range(len(self.layout.names))
        return np.array([[self._coefficients(t, u) for u in terms] for t in terms])

    def _coefficients(self, term: int, other: int) -> FloatArray:
        layout, pairs = self.layout, self.layout.joint(term, other)
        root = np.sqrt(layout.counts[term])
        # w_g p_gh(a) = √n_g(b) n_gh(a)/√n_g(a)
        scaled = pairs.counts / _not_zero(root)[pairs.rows]
        if pairs.rows.size == layout.sizes[other]:  # a group h is in one group g
            squares = pairs.counts.T @ pairs.counts
        else:
            sums, of_pair = sums_of(pairs.columns, layout.sizes[other]), root[pairs.rows]
            X = np.stack([sums @ (x[:, None] * of_pair) for x in scaled.T], axis=1)
            squares = np.einsum("hab,hba->ab", X, X)
        return np.asarray(scaled.T @ scaled - squares / _not_zero(root.T @ root))

    def share(self, term: int, other: int, variable: int) -> Any:
        """Return the sparse matrix p_gh between the groups of two terms."""
        from scipy.sparse import csr_array

        layout, pairs = self.layout, self.layout.joint(term, other)
        there = pairs.counts[:, variable] > 0.0
        rows, columns = pairs.rows[there], pairs.columns[there]
        shares = pairs.counts[there, variable] / layout.counts[term][rows, variable]
        return csr_array(
            (shares, (rows, columns)), shape=(layout.sizes[term], layout.sizes[other])
        )

    def equations(self, pair: Pair) -> tuple[list[int], FloatArray]:
        """Return the terms whose groups a pair of variables shares, and their coefficients k."""
        terms = self.terms(pair)
        return terms, self.coefficients[:, :, *pair][np.ix_(terms, terms)]


def analogous_components(layout: VariableLayout) -> FloatArray:
    """Return the (k + 1, v, v) estimates; nan if two variables share no groups of a term.

    Raises
    ------
    EstimationError
        If the components of two variables cannot be distinguished.
    """
    products = _Products(layout)
    values = np.full((len(layout.names), layout.n_variables, layout.n_variables), np.nan)
    for pair in products.pairs:
        terms, K = products.equations(pair)
        if not terms:
            continue
        a, b = pair
        solved = _solved(K, products.forms[terms, a, b][:, None], layout, pair, terms)[:, 0]
        values[terms, a, b] = values[terms, b, a] = solved * layout.scale[a] * layout.scale[b]
    return values


def _not_zero(x: FloatArray) -> FloatArray:
    """Return x with ones for zeros, as a divisor of zeros."""
    return np.where(x > 0.0, x, 1.0)


def _solved(
    K: FloatArray, right: FloatArray, layout: VariableLayout, pair: Pair, terms: list[int]
) -> FloatArray:
    scale = np.abs(K).max(axis=0)
    if (scale > 0.0).all() and np.linalg.matrix_rank(K / scale, tol=1e-10) == len(terms):
        return solve(K, right)
    a, b = (layout.scores.variables[x] for x in pair)
    which = f"variable {a!r}" if a == b else f"variables {a!r} and {b!r}"
    names = [layout.names[t] for t in terms]
    raise EstimationError(
        f"the components of {', '.join(names)} cannot be distinguished in {which} by their sums "
        "of products; use method='reml', or leave out a term",
        column=a,
        term=names[0],
    )


# Standard errors --------------------------------------------------------------------------------


def analogous_covariance(
    layout: VariableLayout,
    values: FloatArray,
    axis: Strata | None = None,
    *,
    most_products: float = _MOST_PRODUCTS,
) -> tuple[FloatArray, str]:
    """Return the covariance matrix of these estimates under normality, or the reason why not.

    With H = diag(w) − ww'/Σw and Γ the covariance matrices of group means, the products of normal
    scores have Cov[Q_α(a, b), Q_β(c, d)] = tr(H_α Γ_ac H_β Γ_bd') + tr(H_α Γ_ad H_β Γ_bc').

    Parameters
    ----------
    layout : of the scores
    values : (k + 1, v, v) the estimates, at which it is computed
    axis : the scores by the levels of a fully crossed facet; None without one
    most_products : products of groups above which there is none without an axis
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
    if axis is None and sum(needed) > most_products:
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
    """Return the covariances of all analogous products, (k + 1, pairs, k + 1, pairs)."""
    k, n_pairs = len(products.layout.names), len(products.pairs)
    forms = np.zeros((k, n_pairs, k, n_pairs))
    for t in range(k):
        for u in range(t + 1):
            block = _forms(products, values, t, u)
            forms[t, :, u, :] = block
            forms[u, :, t, :] = block.T
    return forms


def _forms(products: _Products, values: FloatArray, t: int, u: int) -> FloatArray:
    """Return the covariances of the analogous products of two terms, (pairs, pairs)."""
    layout, pairs = products.layout, products.pairs
    v, last = layout.n_variables, len(layout.names) - 1
    a, b = np.array(pairs).T
    w, z = products.weights[t][:, a, b], products.weights[u][:, a, b]  # (groups, pairs)
    # A pair without common groups has weights and products of zero.
    W, Z = w.sum(axis=0), z.sum(axis=0)
    W, Z = np.where(W > 0.0, W, 1.0), np.where(Z > 0.0, Z, 1.0)
    left = np.empty((v, v, layout.sizes[t], len(pairs)))  # Γ_ac z of every pair
    right = np.empty((v, v, layout.sizes[u], len(pairs)))  # Γ_ac' w
    for x in range(v):
        for y in range(v):
            left[x, y], right[x, y] = _mean_products(products, values, t, u, (x, y), w, z)
    covariances = np.zeros((len(pairs), len(pairs)))
    both = _squares_of_units if t == u == last else _squares
    squares = both(products, values, t, u, w, z)
    for p, (pa, pb) in enumerate(pairs):
        for q, (qa, qb) in enumerate(pairs):
            for (e, f), (g, h) in (((pa, qa), (pb, qb)), ((pa, qb), (pb, qa))):
                rows = w[:, p] @ (left[e, f][:, q] * left[g, h][:, q]) / Z[q]
                columns = z[:, q] @ (right[e, f][:, p] * right[g, h][:, p]) / W[p]
                middle = (w[:, p] @ left[e, f][:, q]) * (w[:, p] @ left[g, h][:, q])
                covariances[p, q] += middle / (W[p] * Z[q]) - rows - columns
    covariances += squares
    return covariances


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
    """Return Σ_gh w_g z_h (Γ_ac Γ_bd + Γ_ad Γ_bc)_gh of every two pairs, in blocks of rows."""
    layout, pairs = products.layout, products.pairs
    v, k = layout.n_variables, len(layout.names)
    shares = {
        (s, a): (products.share(t, s, a), products.share(u, s, a).T.tocsc())
        for s in range(k)
        for a in range(v)
    }
    sums = np.zeros((len(pairs), len(pairs)))
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
                sums[p, q] += w[part, p] @ (both @ z[:, q])
    return sums


def _squares_of_units(
    products: _Products, values: FloatArray, t: int, u: int, w: FloatArray, z: FloatArray
) -> FloatArray:
    """Return the sums of `_squares` for the residual, whose groups are single units.

    Σ_gh w_g z_h [same group of s] [same group of r] is a sum over the combinations of groups of s
    and r, which needs no matrix between all units.
    """
    layout, pairs = products.layout, products.pairs
    k = len(layout.names)
    of_unit = _groups_of_units(layout)
    found = np.zeros((len(pairs), len(pairs)))
    for s in range(k):
        for r in range(k):
            sizes = layout.sizes[s], layout.sizes[r]
            number = number_combinations(of_unit[s], sizes[0], of_unit[r], sizes[1])[1]
            sums = np.array([np.bincount(number, weights=column) for column in w.T])
            together = sums @ sums.T  # both terms are the residual, so z is w
            for p, (a, b) in enumerate(pairs):
                for q, (c, d) in enumerate(pairs):
                    found[p, q] += together[p, q] * (
                        values[s, a, c] * values[r, b, d] + values[s, a, d] * values[r, b, c]
                    )
    return found


def _groups_of_units(layout: VariableLayout) -> list[Any]:
    """Return for each term the group of every unit."""
    found = []
    for groups, size in zip(layout.groups, layout.sizes, strict=True):
        of_unit = np.zeros(layout.scores.n_units, dtype=np.int32)
        of_unit[layout.scores.unit] = groups
        assert of_unit.max() < size
        found.append(of_unit)
    return found
