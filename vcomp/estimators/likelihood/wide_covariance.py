"""The covariance matrix of very many fixed effects, of which only products are formed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.equations import Point
from vcomp.formula import WIDE
from vcomp.numerics import check_memory, slices

_ELEMENTS = 4e6
"""Elements of the solutions that are computed at once."""

_COEFFICIENTS = 256
"""Coefficients that are solved for at once."""

_PRODUCTS = 2e9
"""Products of the solves for all of the factor's columns above which these are left out, if there
are too many columns for matrices of them."""


@dataclass(frozen=True, eq=False)
class SparseCovariance:
    """Φ = Cov(β̂) of a fit with a factor of many levels, from solves of Henderson's equations.

    ``L @ phi`` is the product with the rows of a matrix, as for an array.

    Attributes
    ----------
    point : the equations at the estimates; their last term is the factor
    dense_at, sparse_at : positions of the other columns of X, and of the factor's
    constant, x_origin : a and x₀ of T = I − a x₀', eq. (1.2), for Cov(Tβ̂); None for T = I
    """

    point: Point
    dense_at: LongArray
    sparse_at: LongArray
    constant: FloatArray | None = None
    x_origin: FloatArray | None = None

    __array_ufunc__: ClassVar[None] = None
    """NumPy leaves products with an array to :meth:`__rmatmul__`."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of fixed effects, twice."""
        return len(self), len(self)

    def __len__(self) -> int:
        return self.dense_at.size + self.sparse_at.size

    def uncentred(self, constant: FloatArray, x_origin: FloatArray) -> SparseCovariance:
        """Return the covariance matrix of the coefficients of the columns as they are."""
        return replace(self, constant=constant, x_origin=x_origin)

    def __rmatmul__(self, L: FloatArray) -> FloatArray:
        """Return LΦ of rows L, (m, p), or of one, (p,)."""
        rows = np.atleast_2d(L)
        made = np.concatenate([np.zeros((0, len(self))), *(p for p, _ in self._solved(rows))])
        return made if np.ndim(L) == 2 else made[0]

    def diagonal(self) -> FloatArray:
        """Return the variances of the fixed effects, (p,)."""
        point, factor = self.point, self.point.stats.n_terms - 1
        found = np.empty(len(self))
        found[self.sparse_at] = point.block_diagonal(factor, with_fixed=True)
        found[self.dense_at] = np.diagonal(point.fixed.inverse())
        found *= point.residual
        if self.constant is not None and self.x_origin is not None:
            across = self.x_origin @ replace(self, constant=None, x_origin=None)
            found += self.constant * (self.constant * (across @ self.x_origin) - 2.0 * across)
        return found

    def slopes(self, L: FloatArray) -> FloatArray:
        """Return l' ∂Φ/∂σ²_t l of rows l of L (m, p), (k + 1, m), the residual last, eq. (7.10c).

        It is ‖Z_t'V⁻¹XΦl‖², and σ² times it adds up to l'Φl over all components; 0 for terms at
        zero, which have no degrees of freedom.
        """
        found = [np.zeros((self.point.stats.n_terms, 0))]
        return np.concatenate([*found, *(s for _, s in self._solved(L))], axis=1)

    def slopes_of_each(self) -> FloatArray:
        """Return the slopes of every coefficient, (k + 1, p).

        nan for columns of the factor where these would need too many solves.
        """
        p, k = len(self), self.point.stats.n_terms - 1
        found = np.full((k + 1, p), np.nan)
        found[:, self.dense_at] = self._of_units(self.dense_at)
        shifted = self.constant is not None and self.constant[self.sparse_at].any()
        of_factor = None if shifted else self._of_leaves()
        pattern = self.point.equations.pattern
        products = float(self.sparse_at.size) * (pattern.rows.size + pattern.n_dense**2)
        if of_factor is not None:
            found[:, self.sparse_at] = of_factor
        elif p <= WIDE.formed or products < _PRODUCTS:
            found[:, self.sparse_at] = self._of_units(self.sparse_at)
        return found

    def _of_units(self, places: LongArray) -> FloatArray:
        """Return the slopes of some coefficients, by a solve for each."""
        found = [np.zeros((self.point.stats.n_terms, 0))]
        for part in slices(places.size, _COEFFICIENTS):
            L = np.zeros((part.stop - part.start, len(self)))
            L[np.arange(len(L)), places[part]] = 1.0
            found.append(self.slopes(L))
        return np.concatenate(found, axis=1)

    def _of_leaves(self) -> FloatArray | None:
        """Return the slopes of the factor's columns if they are what is eliminated first."""
        point, equations = self.point, self.point.equations
        k, s2, factor = point.stats.n_terms - 1, point.residual, point.factor
        place = dict(zip(point.active, equations.slices, strict=True))
        own, cut = place[k], equations.pattern.cut
        if own != slice(0, cut) or equations.pattern.order is not None:
            return None
        found, W = np.zeros((k + 1, cut)), point.white_border
        for part in slices(cut, max(1, int(_ELEMENTS // max(1, equations.group_n.size - cut)))):
            columns = factor.leaf_columns(part)
            if columns is None:
                return None
            columns += W[cut:] @ W[part].T
            for t, at in place.items():
                if t < k:
                    rows = columns[at.start - cut : at.stop - cut]
                    found[t, part] = (s2 / point.v[t]) ** 2 * np.square(rows).sum(axis=0)
        variance = s2 * point.block_diagonal(k, with_fixed=True)
        found[k] = (variance - point.v[:k] @ found[:k]) / s2
        return found

    def toarray(self) -> FloatArray:
        """Return the matrix.

        Raises
        ------
        EstimationError
            If it does not fit into memory.
        """
        p = len(self)
        check_memory(
            16.0 * float(p) ** 2,
            f"the covariance matrix of {p:,} fixed effects needs",
            "bse_fe has their standard errors, and t_test() those of combinations",
        )
        made = np.eye(p) @ self
        return np.asarray(0.5 * (made + made.T))

    def _solved(self, L: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield LΦ and the slopes of some rows of L at a time."""
        point, equations = self.point, self.point.equations
        k, s2 = point.stats.n_terms - 1, point.residual
        place = dict(zip(point.active, equations.slices, strict=True))
        n_effects = equations.group_n.size
        for part in slices(len(L), max(1, int(_ELEMENTS // n_effects))):
            rows = L[part]
            if self.constant is not None and self.x_origin is not None:
                rows = rows - np.outer(rows @ self.constant, self.x_origin)
            Zb = np.zeros((n_effects, len(rows)))
            Zb[place[k]] = rows[:, self.sparse_at].T
            effects, beta = point.solve(Zb, np.ascontiguousarray(rows[:, self.dense_at].T))
            made = np.empty((len(rows), len(self)))
            made[:, self.sparse_at] = s2 * effects[place[k]].T
            made[:, self.dense_at] = s2 * beta.T
            variance, slopes = (made * rows).sum(axis=1), np.zeros((k + 1, len(rows)))
            for t, at in place.items():
                if t < k:
                    slopes[t] = np.square(effects[at] * (s2 / point.v[t])).sum(axis=0)
            slopes[k] = (variance - point.v[:k] @ slopes[:k]) / s2
            if self.constant is not None and self.x_origin is not None:
                made -= np.outer(made @ self.x_origin, self.constant)
            yield made, slopes
