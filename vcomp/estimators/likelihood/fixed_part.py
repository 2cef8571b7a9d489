"""The fixed part of engines on cross-products: least squares, and the forms and covariance of X.

One factor of very many levels may be among the columns of X (``WideProducts``). Its columns are
orthogonal, as those of a random term are, and are eliminated with the random effects, sparsely,
with nothing added to their diagonal: a random term whose component is infinite
(docs/explanation/mathematics.md, section 7.2a). No matrix of columns by columns is formed;
covariances of combinations of the fixed effects follow from solves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.estimators.likelihood.engine import FixedForms, SummedEngine
from vcomp.estimators.likelihood.term_point import TermPoint
from vcomp.estimators.likelihood.totals import with_last, with_residual_forms
from vcomp.formula import WIDE
from vcomp.numerics import Positive, available_bytes, check_memory, slices, solve, solve_positive
from vcomp.statistics import CrossProducts, WideProducts


class Projector:
    """Forms of Q = I − X(X'X)⁻¹X' from cross-products.

    Parameters
    ----------
    stats : cross-products, centred

    Raises
    ------
    numpy.linalg.LinAlgError
        If the columns of X are dependent.
    """

    def __init__(self, stats: CrossProducts | WideProducts) -> None:
        self._stats: Any = stats

    @staticmethod
    def of(stats: CrossProducts | WideProducts) -> Projector:
        """Return the projector of these statistics."""
        return Projector(stats) if stats.factor is None else WideProjector(stats.factor)

    @cached_property
    def beta(self) -> FloatArray:
        """The ordinary least squares estimate."""
        return solve_positive(self._stats.XX, self._stats.Xy)

    @cached_property
    def rss(self) -> float:
        """The residual sum of squares y'Qy of ordinary least squares on X."""
        return float(self._stats.yy - self.beta @ self._stats.Xy)

    def forms(self) -> FloatArray:
        """Return tr(Q V_t Q V_u), (k + 1, k + 1), the residual last."""
        known: FloatArray = self._stats.projector_forms
        return known

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative; the residual is the last.

        They solve docs/explanation/mathematics.md, eq. (2.12), at P = Q: all prior components but
        the residual are zero (Rao 1972).
        """
        return solve(self.forms(), np.array([*(s @ s for s in self._sums()), self.rss]))

    def _sums(self) -> list[FloatArray]:
        """Return Z_t'Qy of each term."""
        stats = self._stats
        return [Zy - ZX @ self.beta for Zy, ZX in zip(stats.Zy, stats.ZX, strict=True)]


class CrossProductsEngine(SummedEngine):
    """Base of engines on cross-products: least squares and the MIVQUE(0) start."""

    stats: CrossProducts | WideProducts

    @cached_property
    def _projector(self) -> Projector:
        return Projector.of(self.stats)

    @property
    def mean_weight(self) -> float:
        """Mean weight of the rows."""
        return self.stats.random.mean_weight

    @property
    def rss(self) -> float:
        """Residual sum of squares of ordinary least squares on X."""
        return self._projector.rss

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative."""
        return self._projector.mivque0()

    def least_squares(self) -> FloatArray:
        """Return the ordinary least squares estimate of the fixed effects."""
        return self._projector.beta


_SLAB = 2e7
"""Number of products in a slab of the pair tables."""


_DENSE_ELEMENTS, _LEAST_SHARE = 2.0**24, 0.02
"""Elements up to which a table is made dense, and share of non-zeros above which dense products
take less time."""


def _dense_if_small(table: Any) -> Any:
    """Return a sparse table, as an array where that is faster."""
    size = float(table.shape[0]) * table.shape[1]
    return (
        table.toarray() if size <= _DENSE_ELEMENTS and table.nnz > _LEAST_SHARE * size else table
    )


def _squares(table: Any) -> float:
    """Return the sum of the squares of a table, dense or sparse."""
    return float(np.square(table if isinstance(table, np.ndarray) else table.data).sum())


def _sum_of_products(a: Any, b: Any) -> float:
    """Return the sum of the products of the elements of two tables, dense or sparse."""
    if isinstance(a, np.ndarray):
        a, b = b, a
    return float(np.vdot(a, b) if isinstance(a, np.ndarray) else a.multiply(b).sum())


class WideProjector(Projector):
    """The projector with a factor of many levels: its columns first, then the others.

    Parameters
    ----------
    stats : cross-products with the factor
    """

    def __init__(self, stats: WideProducts) -> None:
        super().__init__(stats)
        self._n, self._B = stats.products.group_n[-1], stats.products.ZX[-1]

    @cached_property
    def _rest(self) -> Positive:
        """X'QX of the dense columns, Q that of the factor alone."""
        return Positive(self._stats.rest)

    @cached_property
    def beta(self) -> FloatArray:
        """The ordinary least squares estimate."""
        sums = self._stats.products
        means = sums.Zy[-1] / self._n
        dense = self._rest.solve(sums.Xy - self._B.T @ means)
        return self._stats.assembled(means - self._B @ dense / self._n, dense)

    def forms(self) -> FloatArray:
        """Return tr(Q V_t Q V_u), (k + 1, k + 1), the residual last."""
        wide, sums = self._stats, self._stats.products
        k, scale = wide.n_terms, 1.0 / np.sqrt(self._n)
        A = [_dense_if_small(sums.gram(t, k).multiply(scale[None, :]).tocsr()) for t in range(k)]
        means = self._B * scale[:, None]
        G = [self._rest.whitened(sums.ZX[t] - A[t] @ means) for t in range(k)]
        forms = np.empty((k + 1, k + 1))
        for t in range(k):
            for u in range(t + 1):
                total = float(np.vdot(G[t].T @ G[t], G[u].T @ G[u]))
                squares, mixed = self._of_factor((t, u), (A[t], A[u]), (G[t], G[u]))
                forms[t, u] = forms[u, t] = total + squares - 2.0 * mixed
            left = sums.group_n[t].sum() - _squares(A[t]) - np.square(G[t]).sum()
            forms[t, k] = forms[k, t] = left
        forms[k, k] = wide.n - wide.n_fixed
        return forms

    def _of_factor(
        self, terms: tuple[int, int], A: tuple[Any, Any], G: tuple[FloatArray, FloatArray]
    ) -> tuple[float, float]:
        """Return the squared norm of M = Z_t'QZ_u and G_t'MG_u, Q that of the factor alone.

        Of many groups with few levels each, M = Z_t'Z_u − A_t A_u' is not formed.
        """
        t, u = terms
        whole, across, sizes = self._stats.products.gram(t, u), A[1].T, self._stats.sizes
        tables = [self._stats.products.gram(i, self._stats.n_terms) for i in terms]
        of_groups = [np.diff(table.tocsr().indptr).astype(float) for table in tables]
        per_level = [np.diff(table.tocsc().indptr).astype(float) for table in tables]
        products = float(per_level[0] @ per_level[1])
        if sum(float(n @ n) for n in of_groups) < products:
            grams = [a.T @ a for a in A]
            both = _sum_of_products(grams[0], grams[1])
            squares = _squares(whole) - 2.0 * _sum_of_products(A[0], whole @ A[1]) + both
            return squares, float(np.vdot(G[0], whole @ G[1] - A[0] @ (across @ G[1])))
        squares = mixed = 0.0
        # Products of the columns of both: what a sparse product computes and may keep.
        step = int(max(1.0, sizes[t] * _SLAB / max(products, _SLAB)))
        for rows in slices(sizes[t], step):
            M = whole[rows] - A[0][rows] @ across
            squares += _squares(M)
            mixed += float(np.vdot(G[0][rows], M @ G[1]))
        return squares, mixed

    def _sums(self) -> list[FloatArray]:
        """Return Z_t'Qy of each random term."""
        wide, sums = self._stats, self._stats.products
        dense, sparse = self.beta[wide.dense_at], self.beta[wide.sparse_at]
        return [
            sums.Zy[t] - sums.ZX[t] @ dense - sums.gram(t, wide.n_terms) @ sparse
            for t in range(wide.n_terms)
        ]


_ELEMENTS = 4e6
"""Elements of the solutions in a batch."""

_COEFFICIENTS = 256
"""Number of coefficients in a batch of solves."""

_HELD = 2.2e8
"""Elements of the solutions of all combinations that are held at once."""

_PRODUCTS = 2e9
"""Products of the solves for all columns of the factor above which these solves are left out, if
the columns are too many for matrices."""


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

    point: TermPoint
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
        if self._is_formed_for(rows):
            made = self._back(self._at_origin(rows) @ self._matrix)
        else:
            made = np.concatenate([np.zeros((0, len(self))), *(p for p, _ in self._solved(rows))])
        return made if np.ndim(L) == 2 else made[0]

    def _is_formed_for(self, rows: FloatArray) -> bool:
        """Whether solves for all columns are fewer than twice those for the rows of a product."""
        return len(self) <= min(2 * len(rows), WIDE.formed)

    @property
    def _plain(self) -> SparseCovariance:
        return replace(self, constant=None, x_origin=None)

    @cached_property
    def _matrix(self) -> FloatArray:
        """The matrix of T = I, by a solve for each row unless they were made for its slopes."""
        known = vars(self).get("_with_slopes")
        if known is not None:
            whole = known[0]
        else:
            whole = np.concatenate([p for p, _ in self._plain._solutions(np.eye(len(self)))])
        return 0.5 * (whole + whole.T)

    @cached_property
    def _with_slopes(self) -> tuple[FloatArray, FloatArray] | None:
        """It with its slopes; None if they would need too much memory."""
        return self._plain._of_solves(np.eye(len(self)))

    def _at_origin(self, rows: FloatArray) -> FloatArray:
        """Return LT of rows L."""
        if self.constant is None or self.x_origin is None:
            return rows
        return rows - np.outer(rows @ self.constant, self.x_origin)

    def _back(self, products: FloatArray) -> FloatArray:
        """Return MT' of products M with the matrix of T = I."""
        if self.constant is None or self.x_origin is None:
            return products
        return products - np.outer(products @ self.x_origin, self.constant)

    def diagonal(self) -> FloatArray:
        """Return the variances of the fixed effects, (p,)."""
        point, factor = self.point, self.point.stats.n_terms - 1
        variances = np.empty(len(self))
        variances[self.sparse_at] = point.block_diagonal(factor, with_fixed=True)
        variances[self.dense_at] = np.diagonal(point.fixed.inverse())
        variances *= point.residual
        if self.constant is not None and self.x_origin is not None:
            across = self.x_origin @ self._plain
            variances += self.constant * (self.constant * (across @ self.x_origin) - 2.0 * across)
        return variances

    def slopes(self, L: FloatArray) -> FloatArray:
        """Return l' ∂Φ/∂σ²_t l of rows l of L (m, p), (k + 1, m), the residual last, eq. (7.10c).

        It is ‖Z_t'V⁻¹XΦl‖², and σ² times it adds up to l'Φl over all components; 0 for terms at
        zero, which have no degrees of freedom.
        """
        if self._is_formed_for(L) and (known := self._with_slopes) is not None:
            rows = self._at_origin(L)
            return np.array([((rows @ slope) * rows).sum(axis=1) for slope in known[1]])
        parts = [np.zeros((self.point.stats.n_terms, 0))]
        return np.concatenate([*parts, *(s for _, s in self._solved(L))], axis=1)

    def of_combinations(self, L: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Return LΦL' and L ∂Φ/∂σ²_t L', (k + 1, m, m), of rows of L (m, p).

        None if the effects of all rows are too many to be held at once.
        """
        if self._is_formed_for(L) and (known := self._with_slopes) is not None:
            rows = self._at_origin(L)
            return rows @ known[0] @ rows.T, rows @ known[1] @ rows.T
        return self._of_solves(L)

    def _of_solves(self, L: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Return what :meth:`of_combinations` does, by a solve for each row."""
        point, equations = self.point, self.point.equations
        held = float(len(L)) * equations.n_effects
        if held > _HELD or 16.0 * held > available_bytes():
            return None
        k, s2 = point.stats.n_terms - 1, point.residual
        products, done = [], 0
        whole = np.empty((len(L), equations.n_effects))
        for some, effects in self._solutions(L):
            products.append(some)
            whole[done : done + len(some)] = effects.T
            done += len(some)
        covariance = np.concatenate(products) @ L.T
        slopes = np.zeros((k + 1, len(L), len(L)))
        for t, at in point.places.items():
            if t < k:
                slopes[t] = (whole[:, at] @ whole[:, at].T) * (s2 / point.v[t]) ** 2
        slopes[k] = (covariance - np.tensordot(point.v[:k], slopes[:k], 1)) / s2
        return covariance, slopes

    def slopes_of_each(self) -> FloatArray:
        """Return the slopes of every coefficient, (k + 1, p).

        nan for columns of the factor where these would need too many solves.
        """
        p, k = len(self), self.point.stats.n_terms - 1
        slopes = np.full((k + 1, p), np.nan)
        slopes[:, self.dense_at] = self._of_units(self.dense_at)
        shifted = self.constant is not None and self.constant[self.sparse_at].any()
        of_factor = None if shifted else self._of_leaves()
        pattern = self.point.equations.pattern
        products = float(self.sparse_at.size) * (pattern.rows.size + pattern.n_dense**2)
        if of_factor is not None:
            slopes[:, self.sparse_at] = of_factor
        elif p <= WIDE.formed or products < _PRODUCTS:
            slopes[:, self.sparse_at] = self._of_units(self.sparse_at)
        return slopes

    def _of_units(self, places: LongArray) -> FloatArray:
        """Return the slopes of some coefficients, by a solve for each."""
        parts = [np.zeros((self.point.stats.n_terms, 0))]
        for part in slices(places.size, _COEFFICIENTS):
            L = np.zeros((part.stop - part.start, len(self)))
            L[np.arange(len(L)), places[part]] = 1.0
            parts.append(self.slopes(L))
        return np.concatenate(parts, axis=1)

    def _of_leaves(self) -> FloatArray | None:
        """Return the slopes of the factor's columns if these are eliminated first, else None."""
        point, equations = self.point, self.point.equations
        k, s2, factor = point.stats.n_terms - 1, point.residual, point.factor
        place = point.places
        own, cut = place[k], equations.pattern.cut
        if own != slice(0, cut) or equations.pattern.order is not None:
            return None
        slopes, W = np.zeros((k + 1, cut)), point.white_border
        for part in slices(cut, max(1, int(_ELEMENTS // max(1, equations.n_effects - cut)))):
            columns = factor.leaf_columns(part)
            if columns is None:
                return None
            columns += W[cut:] @ W[part].T
            for t, at in place.items():
                if t < k:
                    rows = columns[at.start - cut : at.stop - cut]
                    slopes[t, part] = (s2 / point.v[t]) ** 2 * np.square(rows).sum(axis=0)
        variance = s2 * point.block_diagonal(k, with_fixed=True)
        slopes[k] = (variance - point.v[:k] @ slopes[:k]) / s2
        return slopes

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
        covariance = np.eye(p) @ self
        return np.asarray(0.5 * (covariance + covariance.T))

    def _solved(self, L: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield LΦ and the slopes of some rows of L at a time."""
        point = self.point
        k, s2, done = point.stats.n_terms - 1, point.residual, 0
        place = point.places
        for products, effects in self._solutions(L):
            rows = L[done : done + len(products)]
            done += len(products)
            slopes = np.zeros((k + 1, len(rows)))
            for t, at in place.items():
                if t < k:
                    slopes[t] = np.square(effects[at] * (s2 / point.v[t])).sum(axis=0)
            slopes[k] = ((products * rows).sum(axis=1) - point.v[:k] @ slopes[:k]) / s2
            yield products, slopes

    def _solutions(self, L: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield LΦ and the solutions of the equations of some rows of L at a time."""
        point, equations = self.point, self.point.equations
        k, s2 = point.stats.n_terms - 1, point.residual
        place = point.places
        n_effects = equations.n_effects
        for part in slices(len(L), max(1, int(_ELEMENTS // n_effects))):
            rows = self._at_origin(L[part])
            Zb = np.zeros((n_effects, len(rows)))
            Zb[place[k]] = rows[:, self.sparse_at].T
            effects, beta = point.solve(Zb, np.ascontiguousarray(rows[:, self.dense_at].T))
            products = np.empty((len(rows), len(self)))
            products[:, self.sparse_at] = s2 * effects[place[k]].T
            products[:, self.dense_at] = s2 * beta.T
            yield self._back(products), effects


def fixed_effects_at(
    point: TermPoint, stats: CrossProducts | WideProducts
) -> tuple[FloatArray, FloatArray]:
    """Return β̂ and its covariance matrix, which is not formed for a factor of many levels."""
    effects, beta, _ = point.solution
    if stats.factor is None:
        return beta.copy(), point.residual * point.fixed.inverse()
    sparse = effects[point.places[stats.n_terms]]
    factor = stats.factor
    covariance: Any = SparseCovariance(point, factor.dense_at, factor.sparse_at)
    return factor.assembled(sparse, beta), covariance


def forms_with_residual(
    gram: FloatArray, cov_beta: FloatArray, rows: list[FloatArray], v: FloatArray
) -> FixedForms:
    """Return X'V⁻¹V_t V⁻¹X of all components; that of the residual by eq. (5.9).

    Parameters
    ----------
    gram, cov_beta : (p, p) X'V⁻¹X and its inverse
    rows : for each term (q_t, p) Z_t'V⁻¹X
    v : (k + 1,) components, the residual last
    """
    first = np.array([r.T @ r for r in rows]).reshape(len(rows), *gram.shape)
    return FixedForms(cov_beta, with_last(first, gram, v))


def forms_of_point(point: TermPoint, *, second: bool) -> FixedForms:
    """Return the forms of X in V⁻¹ from Henderson's equations at one point.

    The second forms need a solve with p right-hand sides for each term.
    """
    ZX, gram = list(point.stats.ZX), point.fixed.matrix() / point.residual
    rows = point.projected(ZX, point.solve(point.stacked(ZX)))
    found = forms_with_residual(gram, point.residual * point.fixed.inverse(), rows, point.v)
    if not second:
        return found
    forms = point.second_forms(rows, len(gram), lambda left, right: left.T @ right)
    return replace(found, second=with_residual_forms(forms, found.first[:-1], gram, point.v))
