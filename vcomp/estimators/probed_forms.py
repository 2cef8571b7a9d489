"""The covariance of the T terms by random probes, where chains of tables are too large.

With A_α and V as in :mod:`vcomp.estimators.quadratic_forms` and C_α = Z'A_αZ, which between the
groups of terms t and u is C_α[t, u] = N_tα D_α⁻¹ N_αu,

    tr(A_α V A_β V) = Σ_tu σ²_t σ²_u tr(C_α[t, u] C_β[u, t]) + 2σ² Σ_t σ²_t tr(Z_t'A_α A_β Z_t)
                      + σ⁴ tr(A_α A_β)

The last trace is a sum over a pair table. The others are taken over the groups of one term, of a
pair of terms the one with fewer groups: of all of them where they are few, else by signs x with
E xx' = I, which are exact on the diagonal (Hutchinson 1990). One x serves all α and β, so that
what cancels between sums of squares cancels for every x and the error of a component is relative
to its own variance. Where α is finer than t or u, Z_u'A_α Z_t is Z_u'Z_t, so that of all these
products few are made, and of a large term u they are made for a block of its groups at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.probes import Rademacher
from vcomp.linalg.row_products import Fill, row_products
from vcomp.linalg.sparse_table import SparseTable
from vcomp.statistics import CrossProducts

__all__ = ["ProbedForms", "Probing", "average_until"]

_ALL_GROUPS_UP_TO = 128
"""Groups of all the smallest terms together up to which no probes are needed for their traces."""

_COLUMNS_AT_ONCE = 8
_ELEMENTS_AT_ONCE = 60_000_000
"""Elements that the products of one term's columns with all tables may have together."""


@dataclass(frozen=True, slots=True)
class Probing:
    """Forms averaged over probes, and what the average is worth.

    Attributes
    ----------
    forms : (m, m) the average
    spread : (b, m, m) the forms of each probe less the average
    """

    forms: FloatArray
    spread: FloatArray

    @property
    def n_probes(self) -> int:
        """Number of probes."""
        return int(self.spread.shape[0])

    def variance_of_diagonal(self, rows: FloatArray) -> FloatArray:
        """Return the Monte Carlo variances of the diagonal of R F R', (r,), for R of (r, m)."""
        b = self.n_probes
        values = np.einsum("ra,bac,rc->br", rows, self.spread, rows)
        variances: FloatArray = np.square(values).sum(axis=0) / (b * (b - 1))
        return variances


class ProbedForms:
    """tr(A_a V A_b V) of some projectors for one probe after the other.

    Parameters
    ----------
    tables : cross-products, of which only the tables are used
    positions : the projectors: terms, then ``n_terms`` for the mean, then one more for all
        observations
    v : (k + 1,) components, the residual last; negative ones as they are
    seed : of the probes
    all_up_to : groups of the smallest terms together up to which their traces are exact

    Attributes
    ----------
    exact : (m, m) the part of the forms that needs no probes
    """

    def __init__(
        self,
        tables: CrossProducts,
        positions: Sequence[int],
        v: FloatArray,
        seed: int,
        all_up_to: int = _ALL_GROUPS_UP_TO,
    ) -> None:
        self._tables, self._v, self._positions = tables, v, tuple(positions)
        self._n, self._k = float(tables.n), tables.n_terms
        self._inside = [a for a in self._positions if a < self._k]
        self._products = {pair: _sparse(tables, *pair) for pair in tables.pairs}
        self._transposed: dict[tuple[int, int], SparseTable] = {}
        k = range(self._k)
        self._finer = np.array([[tables.is_finer(a, b) for b in k] for a in k], dtype=bool)
        self._signs = Rademacher(0, seed)
        by_size = sorted(range(self._k), key=lambda t: (tables.sizes[t], t))
        self._order = [t for t in by_size if v[t] != 0.0]
        sums = np.cumsum([tables.sizes[t] for t in self._order])
        n_exact = int(np.searchsorted(sums, all_up_to, side="right"))
        self._probed = self._order[n_exact:]
        self.exact: FloatArray = v[-1] ** 2 * self._traces_of_products()
        for t in self._order[:n_exact]:
            for columns in self._units(t):
                self.exact += self._over_columns(t, columns).sum(axis=0)

    @property
    def operations(self) -> float:
        """Multiplications that one probe takes."""
        return sum(self._operations_of(t) for t in self._probed)

    def _operations_of(self, t: int) -> float:
        """Return the multiplications that a column of term t takes."""
        sizes = self._tables.sizes
        own = [a for a in self._inside if not self._finer[a, t]]
        total = float(sum(self._entries(u, t) for u in range(self._k)))
        for u in self._after(t):
            slots = [a for a in own if not self._finer[a, u]]
            total += sum(self._entries(u, a) for a in slots)
            total += 0.5 * sizes[u] * (len(slots) + 3) ** 2
        return total

    def _entries(self, u: int, t: int) -> int:
        """Return the number of entries of N_ut."""
        return self._tables.sizes[t] if u == t else self._products[min(u, t), max(u, t)].nnz

    def _after(self, t: int) -> list[int]:
        """Return the terms that are paired with term t: itself and those with more groups."""
        return self._order[self._order.index(t) :]

    def sample(self, first: int, last: int) -> FloatArray:
        """Return the part that needs probes for the probes ``first .. last − 1``, (b, m, m)."""
        m = len(self._positions)
        forms = np.zeros((last - first, m, m))
        for t in self._probed:
            step = self._step()
            for begin in range(first, last, step):
                end = min(begin + step, last)
                size = self._tables.sizes[t]
                x = self._signs.columns((t,), (size,), begin, end)
                forms[begin - first : end - first] += self._over_columns(t, x)
        return forms

    def _step(self) -> int:
        """Return how many columns are multiplied at once: h and g are there whole."""
        elements = 2 * sum(self._tables.sizes)
        return int(np.clip(_ELEMENTS_AT_ONCE // max(elements, 1), 1, _COLUMNS_AT_ONCE))

    def _units(self, t: int) -> list[FloatArray]:
        eye, step = np.eye(self._tables.sizes[t]), self._step()
        return [np.ascontiguousarray(eye[:, i : i + step]) for i in range(0, len(eye), step)]

    def _over_columns(self, t: int, x: FloatArray) -> FloatArray:
        """Return for each column x of term t what it adds to the forms, (b, m, m).

        The sum over unit columns, or the expectation over signs, is the trace over the groups of t
        with those of itself and of the terms after it, twice, and with single observations.
        """
        v, n = self._v, self._tables.group_n
        h = [self._times(u, t, x) for u in range(self._k)]
        g = {a: h[a] / n[a][:, None] for a in self._inside if not self._finer[a, t]}
        mean = n[t] @ x / self._n
        forms = np.zeros((len(self._positions), len(self._positions), x.shape[1]))
        crossed: dict[tuple[int, int], FloatArray] = {}
        for u in self._after(t):
            slots = [a for a in g if not self._finer[a, u]]
            products = self._products_of_images(u, slots, g, h[u], mean)
            at = {a: 2 + i for i, a in enumerate(slots)} | {self._k: 1}
            places = [at.get(a, 0) for a in self._positions]
            weight = v[t] * v[u] * (1.0 if u == t else 2.0)
            forms += weight * products[places][:, places]
            if u in g:
                crossed |= {(a, u): products[at[a], -1] for a in slots}
        whole = n[t] @ np.square(x)
        forms += 2.0 * v[-1] * v[t] * self._residual_part(g, h, whole, mean, crossed)
        return np.ascontiguousarray(forms.transpose(2, 0, 1))

    def _products_of_images(
        self,
        u: int,
        slots: Sequence[int],
        g: dict[int, FloatArray],
        h: FloatArray,
        mean: FloatArray,
    ) -> FloatArray:
        """Return the products of Z_u'A_a Z_t x for all pairs of some projectors a.

        The first is that of all projectors that are finer than t or u, and of all observations:
        Z_u'Z_t x = h. The second is the mean's, the others are those of `slots`; after them comes,
        if there is one, D_u⁻¹h.
        """
        n = self._tables.group_n[u]
        fills = [_copies(h), _multiplies(n, mean)]
        fills += [_gathers(self._by_rows(u, a), g[a]) for a in slots]
        if u in g:
            fills.append(_copies(g[u]))
        return row_products(fills, n.size, mean.size)

    def _residual_part(
        self,
        g: dict[int, FloatArray],
        h: list[FloatArray],
        whole: FloatArray,
        mean: FloatArray,
        crossed: dict[tuple[int, int], FloatArray],
    ) -> FloatArray:
        """Return x'Z_t'A_a A_b Z_t x of all pairs of projectors, (m, m, b).

        Of two of which one is finer it is that of the coarser: A_a A_b = A_b.
        """
        squares = {a: np.einsum("qb,qb->b", g[a], h[a]) for a in g}
        part = np.empty((len(self._positions), len(self._positions), mean.size))
        for i, a in enumerate(self._positions):
            for j, b in enumerate(self._positions[: i + 1]):
                if self._k in (a, b):
                    value = self._n * np.square(mean)
                elif a not in g or b not in g:
                    value = squares.get(a, squares.get(b, whole))
                elif self._finer[a, b] or self._finer[b, a]:
                    value = squares[b if self._finer[a, b] else a]
                elif (a, b) in crossed or (b, a) in crossed:
                    value = crossed[(a, b) if (a, b) in crossed else (b, a)]
                else:
                    value = np.einsum("qb,qb->b", g[b], self._times(b, a, g[a]))
                part[i, j] = part[j, i] = value
        return part

    def _by_rows(self, u: int, a: int) -> SparseTable:
        """Return N_ua by its rows."""
        if u < a:
            return self._products[u, a]
        if (u, a) not in self._transposed:
            self._transposed[u, a] = self._products[a, u].transposed()
        return self._transposed[u, a]

    def _times(self, u: int, t: int, x: FloatArray) -> FloatArray:
        """Return N_ut x."""
        if u == t:
            product: FloatArray = self._tables.group_n[t][:, None] * x
            return product
        if u < t:
            return self._products[u, t].times(x)
        return self._products[t, u].transposed_times(x)

    def _traces_of_products(self) -> FloatArray:
        """Return tr(A_a A_b)."""
        m, total = len(self._positions), self._k + 1
        traces = np.ones((m, m))  # with the mean
        for i, a in enumerate(self._positions):
            for j, b in enumerate(self._positions[: i + 1]):
                if self._k not in (a, b):
                    traces[i, j] = traces[j, i] = self._trace_of_product(min(a, b), max(a, b))
        if total in self._positions:
            place = self._positions.index(total)
            traces[place, place] = self._n
        return traces

    def _trace_of_product(self, a: int, b: int) -> float:
        if b > self._k or a == b:
            return float(self._tables.sizes[a]) if a < self._k else self._n
        table, n = self._tables.pairs[a, b], self._tables.group_n
        rows = np.repeat(n[a], np.diff(table.indptr))
        return float((np.square(table.counts) / rows / n[b][table.indices]).sum())


def average_until(
    sample: Callable[[int, int], FloatArray],
    exact: FloatArray,
    enough: Callable[[Probing], bool],
    batch: int,
    limit: int,
) -> Probing:
    """Return forms averaged over probes, drawn until they are enough or `limit` is reached.

    Parameters
    ----------
    sample : gives the forms of the probes from a number to another
    exact : (m, m) what is added to all of them
    enough : whether an average will do
    batch : probes between two questions; at least 2 are drawn
    limit : probes at most
    """
    drawn: list[FloatArray] = []
    count = 0
    while True:
        upto = min(max(count + batch, 2), limit)
        drawn.append(sample(count, upto))
        count = upto
        forms = np.concatenate(drawn)
        mean = forms.mean(axis=0)
        found = Probing(exact + mean, forms - mean)
        if count >= limit or enough(found):
            return found


def _sparse(tables: CrossProducts, a: int, b: int) -> SparseTable:
    table = tables.pairs[a, b]
    return SparseTable.of(table.indptr, table.indices, table.counts, table.n_cols)


def _copies(x: FloatArray) -> Fill:
    return lambda first, last, out: np.copyto(out, x[first:last])


def _multiplies(n: FloatArray, row: FloatArray) -> Fill:
    def fill(first: int, last: int, out: FloatArray) -> None:
        np.multiply(n[first:last, None], row, out=out)

    return fill


def _gathers(table: SparseTable, x: FloatArray) -> Fill:
    return lambda first, last, out: table.rows_times(first, last, x, out)
