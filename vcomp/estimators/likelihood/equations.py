"""Henderson's mixed-model equations for the terms that have a positive component.

The matrix C = [Z'Z + Λ⁻¹, Z'X; X'Z, X'X] with λ_t = σ²_t/σ²_e is ordered and analysed once for
each set of positive components, then factored at each value of the components. Let Q be
P = V⁻¹ − V⁻¹X(X'V⁻¹X)⁻¹X'V⁻¹, or V⁻¹ if the fixed part is left out. The forms of Q follow from
solutions and from blocks of C⁻¹ (docs/explanation/mathematics.md, eqs. (7.1) to (7.5)). A term
with σ²_t = 0 is not in the equations; its forms come from its pair tables with the others, eqs.
(7.6) and (7.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.sparse_equations import Tables
from vcomp.numerics import Positive
from vcomp.numerics.sparse import EliminationOrder, Factor, Pattern, plan_elimination
from vcomp.statistics import CrossProducts


@dataclass(frozen=True, slots=True)
class SquareLimits:
    """Limits for the computation of the squares of terms at zero.

    Attributes
    ----------
    many_elements : elements of Z'Q Z_t, for all terms Z, above which eq. (7.7) is used in its
        place
    most_effects : order of C up to which its dense inverse is faster than solves for the columns
        of Z_t
    times_as_many : groups per column of A = [Z X] from which the difference in eq. (7.7) does not
        cancel
    slab_bytes : bytes of the columns of Z_t that are solved for at a time
    """

    many_elements: float = 2e7
    most_effects: int = 3000
    times_as_many: int = 4
    slab_bytes: float = 2.0**26


_LIMITS = SquareLimits()


def large_at_zero(point: Point, limits: SquareLimits = _LIMITS) -> list[int]:
    """Return the terms at zero with so many groups that eq. (7.7) is used."""
    sizes, n_fixed = point.stats.sizes, point.stats.n_fixed
    rank = sum(sizes[t] for t in point.active) + n_fixed
    if rank > limits.most_effects:
        return []
    return [
        t
        for t, size in enumerate(sizes)
        if point.v[t] == 0.0
        and size * sum(sizes) > limits.many_elements
        and size >= limits.times_as_many * rank
    ]


def squares_at_zero(point: Point, terms: Sequence[int], *, with_fixed: bool) -> FloatArray:
    """Return ‖Z_t'Q Z_u‖² of some terms t at zero by eq. (7.7).

    Parameters
    ----------
    point : the equations, factored
    terms : the terms t
    with_fixed : whether Q is P; else V⁻¹

    Returns
    -------
    (len(terms), k) for terms u that are positive or among `terms`; nan for others
    """
    stats, v = point.stats, point.v
    inverse = _inverse(point, with_fixed=with_fixed)
    between = {t: _with_positive(point, t, with_fixed=with_fixed) for t in terms}
    halves = {t: inverse @ _dense(F @ F.T) for t, F in between.items()}
    squares = np.full((len(terms), stats.n_terms), np.nan)
    for i, t in enumerate(terms):
        W = halves[t] @ inverse
        for u, place in zip(point.active, point.equations.slices, strict=True):
            squares[i, u] = np.trace(W[place, place]) / v[u] ** 2
        for u in terms:
            N = stats.gram(t, u)
            explained = np.sum(inverse * _dense(between[t] @ N @ between[u].T))
            twice = np.sum(halves[t] * halves[u].T)
            squares[i, u] = (np.square(N.data).sum() - 2.0 * explained + twice) / point.residual**2
    return squares


def _inverse(point: Point, *, with_fixed: bool) -> FloatArray:
    """Return C⁻¹; if not `with_fixed`, the inverse of its random part."""
    m = point.equations.group_n.size
    p = point.stats.n_fixed if with_fixed else 0
    units = np.eye(m + p)
    effects, beta = point.solve(units[:m], units[m:] if with_fixed else None)
    return np.concatenate([effects, beta]) if p else effects


def _with_positive(point: Point, term: int, *, with_fixed: bool) -> Any:
    """Return A'Z_t, sparse, with A = [Z X], or Z if not `with_fixed`."""
    from scipy.sparse import csr_array, vstack

    stats, tables = point.stats, point.equations.tables
    blocks = [csr_array((0, stats.sizes[term])), *(tables.between(u, term) for u in point.active)]
    if with_fixed and stats.n_fixed:
        blocks.append(csr_array(stats.ZX[term].T))
    return vstack(blocks, format="csr")


def _dense(matrix: Any) -> FloatArray:
    return matrix.toarray()


_SMALL = 1e-3
"""A component below this fraction of the error variance of a group's mean counts as small."""

_PRODUCT_SECONDS = 1e-9
"""Time of a multiplication in solves for few columns at a time."""

_CHEAP_PRODUCTS = 4e9
"""Multiplications up to which ‖Z_t'Q Z_u‖² of a small component is computed column by column."""


@dataclass(frozen=True, slots=True)
class Equations:
    """The parts of the equations that do not depend on the components.

    Attributes
    ----------
    tables : pair tables, with the cross-products
    active : terms with a positive component, largest first
    slices : for each of them the positions of its effects among the unknowns
    off_diagonal : Z'Z of these terms without its diagonal, sparse
    group_n, Zy, ZX : group sizes and sums of these terms, stacked
    pattern : sparsity pattern of the factor
    """

    tables: Tables
    active: tuple[int, ...]
    slices: tuple[slice, ...]
    off_diagonal: Any
    group_n: FloatArray
    Zy: FloatArray
    ZX: FloatArray
    pattern: Pattern

    @property
    def stats(self) -> CrossProducts:
        """The cross-products."""
        return self.tables.stats

    @classmethod
    def of(
        cls, tables: Tables, active: tuple[int, ...], random: Any, plan: EliminationOrder
    ) -> Equations:
        """Return the equations of the terms `active`; `random` is their off-diagonal Z'Z."""
        stats = tables.stats
        ends = np.cumsum([0, *(stats.sizes[t] for t in active)])
        return cls(
            tables=tables,
            active=active,
            slices=tuple(slice(int(a), int(b)) for a, b in pairwise(ends)),
            off_diagonal=random,
            group_n=_stacked(stats.group_n, active),
            Zy=_stacked(stats.Zy, active),
            ZX=np.concatenate([np.zeros((0, stats.n_fixed)), *(stats.ZX[t] for t in active)]),
            pattern=Pattern.of(plan),
        )

    def with_response(self, tables: Tables) -> Equations:
        """Return the equations of the same rows with the response of other tables."""
        return replace(self, tables=tables, Zy=_stacked(tables.stats.Zy, self.active))


def _stacked(sums: Sequence[FloatArray], active: Sequence[int]) -> FloatArray:
    return np.concatenate([np.zeros(0), *(sums[t] for t in active)])


Planner: TypeAlias = Callable[[Any, list[int]], EliminationOrder | None]
"""Returns the order of elimination of a sparse matrix with blocks of some sizes."""


def random_part(
    tables: Tables, active: tuple[int, ...], planner: Planner = plan_elimination
) -> tuple[Any, EliminationOrder | None]:
    """Return the off-diagonal blocks of Z'Z of the terms, sparse, and their elimination order.

    No array larger than the pair tables is allocated.

    Parameters
    ----------
    tables : of the pairs of terms
    active : the terms in order
    planner : returns the order of elimination
    """
    from scipy.sparse import block_array, csr_array

    sizes = [tables.stats.sizes[t] for t in active]
    if len(active) < 2:
        random = csr_array((sum(sizes), sum(sizes)))
    else:
        random = block_array(
            [[None if t == u else tables.between(t, u) for u in active] for t in active]
        ).tocsr()
    return random, planner(random, sizes)


class Point:
    """The equations factored at one value of the components.

    Parameters
    ----------
    equations : for the positive components of `v`
    v : (k + 1,) components, the residual last; a term with an infinite one has fixed effects: its
        diagonal gets nothing added, and its forms of P are zero
    like : the point of another response of the same rows at `v`, whose factor is shared

    Raises
    ------
    numpy.linalg.LinAlgError
        If the equations are not positive definite up to rounding error.
    """

    def __init__(self, equations: Equations, v: FloatArray, *, like: Point | None = None) -> None:
        self.equations, self.v = equations, v
        self.stats, self.active = equations.stats, equations.active
        self.residual = float(v[-1])
        self._traces: dict[bool, FloatArray] = {}
        self._norms: dict[bool, FloatArray] = {}
        if like is None:
            diagonal = equations.group_n.copy()
            for t, place in zip(self.active, equations.slices, strict=True):
                diagonal[place] += self.residual / v[t]
            self.factor = Factor(equations.pattern, diagonal)
            # X is eliminated last.
            solved = self.factor.solve(np.column_stack([equations.ZX, equations.Zy]))
            self._border, self._from_y = solved[:, :-1], solved[:, -1]
            self.fixed = Positive(self.stats.XX - equations.ZX.T @ self._border)
        else:
            self.factor, self.fixed, self._border = like.factor, like.fixed, like._border
            self._traces, self._norms = like._traces, like._norms
            self._from_y = self.factor.solve(equations.Zy[:, None])[:, 0]

    def log_determinants(self) -> tuple[float, float]:
        """Return log|V| and log|X'V⁻¹X|, eq. (7.1); with fixed terms only their sum is right."""
        stats, s2 = self.stats, self.residual
        log_v = stats.n * np.log(s2) - stats.log_weights + self.factor.log_determinant()
        n_fixed = stats.n_fixed
        for t in self.active:
            if np.isfinite(self.v[t]):
                log_v += stats.sizes[t] * np.log(self.v[t] / s2)
            else:
                n_fixed += stats.sizes[t]
        return float(log_v), self.fixed.log_determinant() - n_fixed * float(np.log(s2))

    # Solutions ------------------------------------------------------------------------------

    def solve(
        self, Zb: FloatArray, Xb: FloatArray | None = None, *, overwrite: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Return û and β̂ of columns b from Z'b of the positive terms, stacked, and X'b.

        If X'b is None, the equations are those without fixed effects, and β̂ is zero. Z'b may be
        overwritten if nobody needs it.
        """
        effects = self.factor.solve(Zb, overwrite=overwrite)
        if Xb is None:
            return effects, np.zeros((self.stats.n_fixed, Zb.shape[1]))
        beta = self.fixed.solve(Xb - self.equations.ZX.T @ effects)
        effects -= self._border @ beta
        return effects, beta

    @cached_property
    def solution(self) -> tuple[FloatArray, FloatArray, float]:
        """û, β̂ and σ²_e y'Py, eq. (7.2).

        If the effects explain nearly all of y, the difference y'y − û'Z'y − β̂'X'y cancels. One
        step of iterative refinement in extended precision then makes it as exact as the
        statistics.
        """
        Zy, Xy = self.equations.Zy, self.stats.Xy
        beta = self.fixed.solve(Xy - self.equations.ZX.T @ self._from_y)
        effects = self._from_y - self._border @ beta
        rss = float(self.stats.yy - Zy @ effects - Xy @ beta)
        if rss < 1e-3 * self.stats.yy:
            rest_z, rest_x = self._rest(effects, beta)
            more, more_x = self.solve(rest_z[:, None].astype(float), rest_x[:, None].astype(float))
            rss = self._rss(effects, beta, rest_z, rest_x)
            effects, beta = effects + more[:, 0], beta + more_x[:, 0]
        return effects, beta, rss

    def _rest(self, effects: FloatArray, beta: FloatArray) -> tuple[Any, Any]:
        """Return the residuals of the equations at a solution, in extended precision."""
        u, b = effects.astype(np.longdouble), beta.astype(np.longdouble)
        rest_z = self.random_rest(self.equations.Zy[:, None], effects[:, None])[:, 0]
        rest_x = self.stats.Xy - u @ self.equations.ZX - self.stats.XX @ b
        return rest_z - self.equations.ZX @ b, rest_x

    def random_rest(self, Zb: FloatArray, effects: FloatArray) -> Any:
        """Return Z'b − (Z'Z + Λ⁻¹)û in extended precision, for columns."""
        u = effects.astype(np.longdouble)
        rest = Zb - self.equations.off_diagonal.astype(np.longdouble) @ u
        rest -= self.equations.group_n[:, None] * u
        for t, place in zip(self.active, self.equations.slices, strict=True):
            rest[place] -= np.longdouble(self.residual) / np.longdouble(self.v[t]) * u[place]
        return rest

    def _rss(self, effects: FloatArray, beta: FloatArray, rest_z: Any, rest_x: Any) -> float:
        """Return y'y − û'(Z'y + rest) − β̂'(X'y + rest), whose error is of second order in û's."""
        u, b = effects.astype(np.longdouble), beta.astype(np.longdouble)
        explained = (u * (self.equations.Zy + rest_z)).sum() + (b * (self.stats.Xy + rest_x)).sum()
        return float(np.longdouble(self.stats.yy) - explained)

    def effects_of(self, term: int) -> FloatArray:
        """Return û of a term with a positive component."""
        return self.solution[0][self.equations.slices[self.active.index(term)]]

    def projected(
        self, sums: list[FloatArray], solved: tuple[FloatArray, FloatArray]
    ) -> list[FloatArray]:
        """Return Z_t'Q b of each term, eqs. (7.3) and (7.6), from Z_t'b and the solution for b."""
        return [rows / scale for rows, scale in self.scaled_projections(sums, solved)]

    def scaled_projections(
        self, sums: list[FloatArray], solved: tuple[FloatArray, FloatArray]
    ) -> Iterator[tuple[FloatArray, float]]:
        """Yield a multiple of Z_t'Q b of each term, where possible as a view, and its factor."""
        effects, beta = solved
        for t in range(self.stats.n_terms):
            if self.v[t] > 0.0:
                yield effects[self.equations.slices[self.active.index(t)]], float(self.v[t])
                continue
            rest = sums[t] - self.stats.ZX[t] @ beta
            for u, place in zip(self.active, self.equations.slices, strict=True):
                rest -= self.equations.tables.times(t, u, effects[place])
            yield rest, self.residual

    @cached_property
    def _random_terms(self) -> list[int]:
        """The terms but for those with fixed effects."""
        return [t for t, v in enumerate(self.v[:-1]) if np.isfinite(v)]

    @cached_property
    def PZy(self) -> list[FloatArray]:
        """Z_t'P y of each random term."""
        effects, beta, _ = self.solution
        sums = [Zy[:, None] for Zy in self.stats.Zy]
        projected = self.projected(sums, (effects[:, None], beta[:, None]))
        return [projected[t][:, 0] for t in self._random_terms]

    @cached_property
    def forms(self) -> FloatArray:
        """The forms (Z_t'P y)'(Z_t'P f_u) of the random terms, with f_u = Z_u Z_u'P y."""
        pairs, tables = list(zip(self._random_terms, self.PZy, strict=True)), self.equations.tables
        sums = [
            np.column_stack([tables.times(t, u, r[:, None]) for u, r in pairs])
            for t in range(self.stats.n_terms)
        ]
        Xf = np.column_stack([self.stats.ZX[u].T @ r for u, r in pairs])
        projected = self.projected(sums, self.solve(self.stacked(sums), Xf))
        fPf = np.array([r @ projected[t] for t, r in pairs])
        return 0.5 * (fPf + fPf.T)

    def stacked(self, sums: list[FloatArray]) -> FloatArray:
        """Return the sums of the positive terms, stacked."""
        nothing = np.zeros((0, sums[0].shape[1] if sums else 0))
        return np.concatenate([nothing, *(sums[t] for t in self.active)])

    def prediction_variances(self, rows: Any, X: FloatArray) -> FloatArray:
        """Return the prediction error variances σ²_e c'C⁻¹c of c = (z, x), eq. (9.1), (m,).

        Parameters
        ----------
        rows : (m, effects of the positive terms) z, sparse
        X : (m, p) x
        """
        variances: FloatArray = np.zeros(X.shape[0])
        if self.active:
            variances += self.factor.quadratics(rows)
            X = X - rows @ self._border
        if self.stats.n_fixed:
            variances += np.einsum("ij,ji->i", X, self.fixed.solve(X.T))
        return self.residual * variances

    # Forms of Q: P if `with_fixed`, else V⁻¹ ----------------------------------------------------

    def block_diagonal(self, term: int, *, with_fixed: bool) -> FloatArray:
        """Return the diagonal of the block C^tt of C⁻¹, or of the inverse of C's random part."""
        place = self.equations.slices[self.active.index(term)]
        diagonal = self.factor.inverse.diagonal[place]
        if with_fixed and self.stats.n_fixed:
            diagonal = diagonal + np.square(self.white_border[place]).sum(axis=1)
        return diagonal

    def diagonal(self, term: int, *, with_fixed: bool) -> FloatArray:
        """Return the diagonal of Z_t'Q Z_t."""
        v, s2 = self.v[term], self.residual
        if v > 0.0 and term not in self._small:
            block = self.block_diagonal(term, with_fixed=with_fixed)
            return (1.0 - s2 * block / v) / v
        rest: FloatArray = self.stats.group_n[term].copy()
        between = self._with_active(term)
        # Z_t'V⁻¹Z_t = (Z_t'Z_t − Z_t'Z C⁻¹Z'Z_t)/σ²_e holds whether or not Z_t is in Z.
        if between is not None:
            rest -= self.factor.quadratics(between)
        if with_fixed and self.stats.n_fixed:
            D = self.stats.ZX[term]
            if between is not None:
                D = D - between @ self._border
            rest -= np.square(self.fixed.whitened(D)).sum(axis=1)
        rest /= s2
        return rest

    def traces(self, *, with_fixed: bool) -> FloatArray:
        """Return tr(Z_t'Q Z_t) of each term, eq. (7.4)."""
        if with_fixed not in self._traces:
            terms = range(self.stats.n_terms)
            self._traces[with_fixed] = np.array(
                [self.diagonal(t, with_fixed=with_fixed).sum() for t in terms]
            )
        return self._traces[with_fixed]

    def squares(
        self,
        traces: FloatArray,
        *,
        with_fixed: bool,
        positive_only: bool,
        limits: SquareLimits = _LIMITS,
    ) -> FloatArray:
        """Return ‖Z_t'Q Z_u‖² of all pairs of terms, eq. (7.5).

        Parameters
        ----------
        traces : as returned by :meth:`traces`
        positive_only : whether rows of components at zero, which need a solve for each group, are
            left nan
        limits : how those of terms at zero are computed
        """
        k, v, s2 = self.stats.n_terms, self.v, self.residual
        squares = np.full((k, k), np.nan)
        active = self._active_random
        if active:
            c = v[active]
            if with_fixed not in self._norms:
                self._norms[with_fixed] = self._squared_norms(with_fixed=with_fixed)
            norms = self._norms[with_fixed]
            squares[np.ix_(active, active)] = s2**2 * norms / np.outer(c, c) ** 2
        for t in active:
            # ‖I/σ² − M‖² = q/σ⁴ − 2 tr(M)/σ² + ‖M‖², and tr(M) = q/σ² − tr(Z'QZ).
            squares[t, t] += (2.0 * traces[t] - self.stats.sizes[t] / v[t]) / v[t]
        large = [] if positive_only else large_at_zero(self, limits)
        if large:
            found = squares_at_zero(self, large, with_fixed=with_fixed)
            squares[large] = found
            squares[:, large] = found.T
        small = [t for t in self._small if self._columns_are_cheap(t)]
        zero = [] if positive_only else [t for t in range(k) if v[t] == 0.0 and t not in large]
        for t in [*small, *zero]:
            found = np.zeros(k)
            for columns in self._columns_of(t, limits.slab_bytes, with_fixed=with_fixed):
                found += [np.square(block).sum() for block in columns]
            kept = (v[:-1] > 0.0) | (not positive_only)
            squares[t, kept] = squares[kept, t] = found[kept]
        return squares

    def seconds_at_zero(self, limits: SquareLimits = _LIMITS) -> float:
        """Return the expected time of the squares of components at zero in seconds."""
        sizes, large = self.stats.sizes, large_at_zero(self, limits)
        pattern = self.equations.pattern
        each = float(pattern.rows.size + pattern.n_dense**2)
        solved = sum(sizes[t] for t, v in enumerate(self.v[:-1]) if v == 0.0 and t not in large)
        rank = float(self.equations.group_n.size + self.stats.n_fixed)
        return _PRODUCT_SECONDS * (solved * each + len(large) * rank**3)

    @property
    def _active_random(self) -> list[int]:
        """The positive terms but for those with fixed effects, whose squares are not computed.

        They are in the order of the equations.
        """
        return [t for t in self.active if np.isfinite(self.v[t])]

    def between_groups(self, terms: Sequence[int], *, with_fixed: bool) -> FloatArray:
        """Return Z'QZ of the groups of some terms, (q, q), by a solve for each of them."""
        columns = [
            np.concatenate([block[u] for u in terms])
            for t in terms
            for block in self._columns_of(t, _LIMITS.slab_bytes, with_fixed=with_fixed)
        ]
        between: FloatArray = np.concatenate(columns, axis=1)
        return 0.5 * (between + between.T)

    def seconds_of_columns(self, terms: Sequence[int]) -> float:
        """Return the expected time of `between_groups` in seconds."""
        pattern = self.equations.pattern
        each = float(pattern.rows.size + pattern.n_dense**2)
        return _PRODUCT_SECONDS * each * sum(self.stats.sizes[t] for t in terms)

    @cached_property
    def _small(self) -> list[int]:
        """Positive terms whose components are so small that eq. (7.3) cancels."""
        sizes, n = self.stats.sizes, [float(n.sum()) for n in self.stats.group_n]
        return [t for t in self.active if self.v[t] * n[t] < _SMALL * self.residual * sizes[t]]

    def _columns_are_cheap(self, term: int) -> bool:
        pattern = self.equations.pattern
        products = self.stats.sizes[term] * (pattern.rows.size + pattern.n_dense**2)
        return products < _CHEAP_PRODUCTS

    def _squared_norms(self, *, with_fixed: bool) -> FloatArray:
        """Return ‖C^tu‖² of the positive terms, from C^zz = (C_zz)⁻¹ + W (S_X)⁻¹ W' with X."""
        pairs = zip(self.active, self.equations.slices, strict=True)
        places = [place for t, place in pairs if t in self._active_random]
        norms = self.factor.inverse.squared_norms(places)
        p = self.stats.n_fixed
        if not with_fixed or p == 0:
            return norms
        W = self.white_border
        grams = [W[place].T @ W[place] if W[place].shape[0] > p else None for place in places]
        apart = np.zeros((W.shape[0], p * len(places)))
        for i, place in enumerate(places):
            apart[place, p * i : p * (i + 1)] = W[place]
        solved = self.factor.solve(apart, overwrite=True)
        for i, rows in enumerate(places):
            for j, others in enumerate(places):
                norms[i, j] += 2.0 * np.vdot(W[rows], solved[rows, p * j : p * (j + 1)])
                a, b = grams[i], grams[j]
                if a is not None and b is not None:
                    norms[i, j] += np.vdot(a, b)
                else:  # fewer products
                    norms[i, j] += np.square(W[rows] @ W[others].T).sum()
        return norms

    @cached_property
    def white_border(self) -> FloatArray:
        """W L⁻ᵀ with W = (C_zz)⁻¹Z'X and S_X = L L', so that its products are W (S_X)⁻¹ W'."""
        return self.fixed.whitened(self._border)

    def _with_active(self, term: int) -> Any | None:
        """Return Z_t'Z of the positive terms, sparse."""
        from scipy.sparse import hstack

        if not self.active:
            return None
        tables = self.equations.tables
        return hstack(
            [self.stats.gram(u, u) if u == term else tables.between(term, u) for u in self.active],
            format="csr",
        )

    def _columns_of(
        self, term: int, slab_bytes: float, *, with_fixed: bool
    ) -> Iterator[list[FloatArray]]:
        """Yield Z_u'Q Z_t of all terms u, some columns of term t at a time."""
        stats = self.stats
        tables = [stats.gram(u, term).tocsc() for u in range(stats.n_terms)]
        width = max(1, int(slab_bytes / (8.0 * sum(stats.sizes))))
        for start in range(0, stats.sizes[term], width):
            slab = slice(start, start + width)
            sums = [table[:, slab].toarray() for table in tables]
            X = stats.ZX[term][slab].T if with_fixed else None
            solved = self.solve(self.stacked(sums), X, overwrite=True)
            yield self.projected(sums, solved)
