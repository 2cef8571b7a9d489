"""The covariance of the T terms by random probes, where chains of tables are too large.

With A_α and V as in :mod:`vcomp.estimators.quadratic_forms` and C_α = Z'A_αZ, which between the
groups of terms t and u is C_α[t, u] = N_tα D_α⁻¹ N_αu,

    tr(A_α V A_β V) = Σ_tu σ²_t σ²_u tr(C_α[t, u] C_β[u, t]) + 2σ² Σ_t σ²_t tr(Z_t'A_α A_β Z_t)
                      + σ⁴ tr(A_α A_β)

The last trace is a sum over a pair table. The others are taken over the groups of one term, of a
pair of terms the one with fewer groups: of all of them where they are few, else by signs x with
E xx' = I, which are exact on the diagonal (Hutchinson 1990). One x serves all α and β, so that
what cancels between sums of squares cancels for every x and the error of a component is relative
to its own variance. A product costs as much as reading the pair tables twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.probes import Rademacher
from vcomp.linalg.sparse_table import SparseTable
from vcomp.statistics import CrossProducts

__all__ = ["ProbedForms", "Probing", "average_until"]

_ALL_GROUPS_UP_TO = 128
"""Groups of all the smallest terms together up to which no probes are needed for their traces."""

_COLUMNS_AT_ONCE = 8
_ELEMENTS_AT_ONCE = 20_000_000
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
        nnz = sum(table.indices.size for table in self._products.values())
        return float(sum(2 * nnz + 4 * sum(self._tables.sizes) for _ in self._probed))

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
        """Return how many columns are multiplied at once."""
        elements = (len(self._positions) + 2) * sum(self._tables.sizes)
        return int(np.clip(_ELEMENTS_AT_ONCE // max(elements, 1), 1, _COLUMNS_AT_ONCE))

    def _units(self, t: int) -> list[FloatArray]:
        eye, step = np.eye(self._tables.sizes[t]), 4 * self._step()
        return [np.ascontiguousarray(eye[:, i : i + step]) for i in range(0, len(eye), step)]

    def _over_columns(self, t: int, x: FloatArray) -> FloatArray:
        """Return for each column x of term t what it adds to the forms, (b, m, m).

        The sum over unit columns, or the expectation over signs, is the trace over the groups of t
        with those of itself and of the terms after it, twice, and with single observations.
        """
        v, n = self._v, self._tables.group_n
        h = [self._times(u, t, x) for u in range(self._k)]
        g = {a: h[a] / n[a][:, None] for a in self._inside}
        total = self._k + 1
        mean = n[t] @ x / self._n
        rows = np.zeros((x.shape[1], len(self._positions), len(self._positions)))
        forms = np.zeros_like(rows)
        after = self._order[self._order.index(t) :]
        for u in {*after, *self._inside, t}:
            e = self._images(u, g, h[u], mean)
            if u in after:
                weight = v[t] * v[u] * (1.0 if u == t else 2.0)
                forms += weight * (e @ e.transpose(0, 2, 1))
            if u in g:
                rows[:, self._positions.index(u)] = np.einsum("bmq,qb->bm", e, g[u])
            if u == t and total in self._positions:
                rows[:, self._positions.index(total)] = np.einsum("bmq,qb->bm", e, x)
        if self._k in self._positions:
            rows[:, self._positions.index(self._k)] = self._n * np.square(mean)[:, None]
        forms += 2.0 * v[-1] * v[t] * rows
        return forms

    def _images(
        self, u: int, g: dict[int, FloatArray], h: FloatArray, mean: FloatArray
    ) -> FloatArray:
        """Return Z_u'A_a Z_t x of all projectors, (b, m, q_u)."""
        n = self._tables.group_n[u]
        images = np.empty((mean.size, len(self._positions), n.size))
        for place, a in enumerate(self._positions):
            if a == u or a == self._k + 1:
                images[:, place] = h.T
            elif a == self._k:
                images[:, place] = mean[:, None] * n
            else:
                images[:, place] = self._times(u, a, g[a]).T
        return images

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
