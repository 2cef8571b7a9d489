"""Variances and covariances of several variables, a matrix for every term of the design."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import numpy as np

from vcomp._typing import BoolArray, FloatArray, Json
from vcomp.components import TwoWayMeanSquares, VarianceComponents

__all__ = ["CovarianceComponents", "elements"]


def elements(linked: BoolArray) -> tuple[tuple[int, int, int], ...]:
    """Return term, row and column of every variance and covariance that there is.

    Parameters
    ----------
    linked : (k + 1, v, v) whether two variables share levels of a term

    Examples
    --------
    >>> elements(np.array([[[True, True], [True, True]], [[True, False], [False, True]]]))
    ((0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 1, 1))
    """
    n_terms, v, _ = linked.shape
    pairs = list(combinations_with_replacement(range(v), 2))
    return tuple((t, a, b) for t in range(n_terms) for a, b in pairs if linked[t, a, b])


@dataclass(frozen=True, slots=True, eq=False)
class CovarianceComponents:
    """Covariance components of v variables with the design that they belong to.

    Attributes
    ----------
    variables : their names
    names : the terms as written, the residual last
    facets : for each term the facets that its effect depends on, see
        :class:`~vcomp.components.VarianceComponents`
    values : (k + 1, v, v) a matrix Σ a term; nan for variables that share no levels of it
    linked : (k + 1, v, v) whether they share levels
    cov : (m, m) covariance matrix of the variances and covariances, in the order of
        :func:`elements`; nan in rows without a standard error
    nested_in : for each facet those that it is nested in
    sizes : for each facet its number of levels in every variable, within those it is nested in
    inverse_n : for each possible object of measurement (k + 1, v, v) the exact 1/n of the
        G-study's own design: how the (co)variance of a term enters that of the objects' means
    mean_products : of complete two-way tables, those of rows, columns and residual (3, v, v), and
        the mean squares of every variable; nan for covariances where the tables are not one
    """

    variables: tuple[str, ...]
    names: tuple[str, ...]
    facets: tuple[frozenset[str], ...]
    values: FloatArray
    linked: BoolArray
    cov: FloatArray
    nested_in: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sizes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    inverse_n: Mapping[str, FloatArray] = field(default_factory=dict)
    mean_products: tuple[FloatArray, tuple[TwoWayMeanSquares, ...]] | None = None

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def elements(self) -> tuple[tuple[int, int, int], ...]:
        """Term, row and column of every variance and covariance."""
        return elements(self.linked)

    @property
    def known(self) -> FloatArray:
        """The matrices with 0 for what is not estimated."""
        return np.where(self.linked, self.values, 0.0)

    @property
    def standard_errors(self) -> FloatArray:
        """Standard errors in the places of the estimates, (k + 1, v, v)."""
        found = np.full_like(self.values, np.nan)
        t, a, b = np.array(self.elements).T
        with np.errstate(invalid="ignore"):
            found[t, a, b] = found[t, b, a] = np.sqrt(np.diagonal(self.cov))
        return found

    def place(self, name: str) -> int:
        """Return the position of a term."""
        return self.names.index(name)

    def combined(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return linear combinations of all elements and their covariance matrix.

        Parameters
        ----------
        weights : (r, k + 1, v, v), symmetric in its last two; of covariances both places count

        Returns
        -------
        (r,) values and (r, r) covariance, elements without a standard error taken as known; nan
        for what rests on such alone
        """
        t, a, b = np.array(self.elements).T
        W = weights[:, t, a, b] + np.where(a == b, 0.0, weights[:, t, b, a])
        values: FloatArray = W @ self.values[t, a, b]
        unsure = ~np.isfinite(np.diagonal(self.cov))
        C = np.where(unsure[:, None] | unsure[None, :], 0.0, self.cov)
        cov: FloatArray = W @ C @ W.T
        used = W != 0.0
        lost = used.any(axis=1) & ~(used & ~unsure).any(axis=1)
        cov[lost] = np.nan
        cov[:, lost] = np.nan
        return values, cov

    def of_weights(self, weights: FloatArray) -> VarianceComponents:
        """Return the variance components of Σ w_v X_v, as those of one variable.

        Parameters
        ----------
        weights : (v,) w; the variables with a weight must have the same sizes
        """
        w = np.asarray(weights, dtype=float)
        outer = np.outer(w, w)
        k = len(self.names)
        spread = np.zeros((k, k, w.size, w.size))
        spread[np.arange(k), np.arange(k)] = outer
        values, cov = self.combined(spread)
        used = np.flatnonzero(w)
        first = int(used[0])
        inverse = {
            o: dict(zip(self.names, n[:, first, first].tolist(), strict=True))
            for o, n in self.inverse_n.items()
        }
        return VarianceComponents(
            names=self.names,
            facets=self.facets,
            values=values,
            cov=cov,
            nested_in=self.nested_in,
            sizes={f: n[first] for f, n in self.sizes.items()},
            inverse_n=inverse,
            mean_squares=self._mean_squares(w),
        )

    def _mean_squares(self, w: FloatArray) -> TwoWayMeanSquares | None:
        """Return the mean squares of a composite of tables with the same cells."""
        if self.mean_products is None:
            return None
        products, tables = self.mean_products
        used = np.flatnonzero(w)
        inside = products[:, used[:, None], used]
        if np.isnan(inside).any():
            return None
        rows, columns, residual = np.einsum("a,tab,b->t", w[used], inside, w[used]).tolist()
        like = tables[int(used[0])]
        return TwoWayMeanSquares(
            rows=like.rows,
            columns=like.columns,
            n_rows=like.n_rows,
            n_columns=like.n_columns,
            ms_rows=rows,
            ms_columns=columns,
            ms_residual=residual,
            n_replicates=like.n_replicates,
        )

    def to_json(self) -> Json:
        """Return plain lists and dicts that :meth:`from_json` reads again."""
        products = self.mean_products
        return {
            "variables": list(self.variables),
            "names": list(self.names),
            "facets": [sorted(f) for f in self.facets],
            "values": _plain(self.values),
            "linked": self.linked.tolist(),
            "cov": _plain(self.cov),
            "nested_in": {f: sorted(above) for f, above in self.nested_in.items()},
            "sizes": {f: list(n) for f, n in self.sizes.items()},
            "inverse_n": {o: _plain(n) for o, n in self.inverse_n.items()},
            "mean_products": None
            if products is None
            else {
                "matrices": _plain(products[0]),
                "tables": [
                    {name: getattr(one, name) for name in TwoWayMeanSquares.__slots__}
                    for one in products[1]
                ],
            },
        }

    @classmethod
    def from_json(cls, stored: Json) -> CovarianceComponents:
        """Return what :meth:`to_json` stored."""
        products = stored["mean_products"]
        return cls(
            variables=tuple(stored["variables"]),
            names=tuple(stored["names"]),
            facets=tuple(frozenset(f) for f in stored["facets"]),
            values=np.array(stored["values"], dtype=float),
            linked=np.array(stored["linked"], dtype=bool),
            cov=np.array(stored["cov"], dtype=float),
            nested_in={f: frozenset(above) for f, above in stored["nested_in"].items()},
            sizes={f: tuple(n) for f, n in stored["sizes"].items()},
            inverse_n={o: np.array(n, dtype=float) for o, n in stored["inverse_n"].items()},
            mean_products=None
            if products is None
            else (
                np.array(products["matrices"], dtype=float),
                tuple(TwoWayMeanSquares(**one) for one in products["tables"]),
            ),
        )


def _plain(values: FloatArray) -> list[object]:
    """Return nested lists with None for nan, which JSON does not have."""
    if values.ndim > 1:
        return [_plain(row) for row in values]
    return [None if np.isnan(x) else float(x) for x in values]
