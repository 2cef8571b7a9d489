"""Henderson's equations of intercepts with one residual variance, whose components may be zero.

Let Q be P = V⁻¹ − V⁻¹X(X'V⁻¹X)⁻¹X'V⁻¹, or V⁻¹ if the fixed part is left out. The forms of Q of a
term with a positive component follow from solutions and from blocks of the inverse
(docs/explanation/mathematics.md, eqs. (7.1) to (7.5)). A term with σ²_t = 0 is not in the
equations; its forms come from its pair tables with the others, eqs. (7.6) and (7.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.engine import Squares
from vcomp.estimators.likelihood.equations import Equations
from vcomp.estimators.likelihood.point import Point
from vcomp.estimators.likelihood.totals import FormsOfTerms, with_last, with_residual_forms
from vcomp.numerics import in_threads, limited_blas


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


def large_at_zero(point: TermPoint, limits: SquareLimits = _LIMITS) -> list[int]:
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


def squares_at_zero(point: TermPoint, terms: Sequence[int], *, with_fixed: bool) -> FloatArray:
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
        for u, place in point.places.items():
            squares[i, u] = np.trace(W[place, place]) / v[u] ** 2
        for u in terms:
            N = stats.gram(t, u)
            explained = np.sum(inverse * _dense(between[t] @ N @ between[u].T))
            twice = np.sum(halves[t] * halves[u].T)
            squares[i, u] = (np.square(N.data).sum() - 2.0 * explained + twice) / point.residual**2
    return squares


def _inverse(point: TermPoint, *, with_fixed: bool) -> FloatArray:
    """Return C⁻¹; if not `with_fixed`, the inverse of its random part."""
    m = point.equations.n_effects
    p = point.stats.n_fixed if with_fixed else 0
    units = np.eye(m + p)
    effects, beta = point.solve(units[:m], units[m:] if with_fixed else None)
    return np.concatenate([effects, beta]) if p else effects


def _with_positive(point: TermPoint, term: int, *, with_fixed: bool) -> Any:
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


def variances(equations: Equations, v: FloatArray) -> list[FloatArray]:
    """Return the components of the terms of the equations, as matrices."""
    return [np.array([[v[t]]]) for (t,) in equations.sums.terms]


class TermPoint(FormsOfTerms, Point):
    """The equations factored at one value of the components.

    Parameters
    ----------
    equations : for the positive components of `v`
    v : (k + 1,) components, the residual last; a term with an infinite one has fixed effects, and
        its forms of P are zero
    like : the point of another response of the same rows at `v`, whose factor is shared
    inner : returns the point of the random terms alone at components, with a factor of many levels

    Raises
    ------
    numpy.linalg.LinAlgError
        If the equations are not positive definite up to rounding error.
    """

    def __init__(
        self,
        equations: Equations,
        v: FloatArray,
        *,
        like: TermPoint | None = None,
        inner: Callable[[FloatArray], TermPoint] | None = None,
    ) -> None:
        self.v, self.stats, self._inner = v, equations.sums.groups[0], inner
        self.places = equations.places
        self.active = tuple(self.places)
        self._positive = [t for (t,) in equations.sums.terms]
        self._at_zero = [t for t in range(self.stats.n_terms) if v[t] == 0.0]
        super().__init__(equations, v[-1:], variances(equations, v), refined=False, like=like)
        self._traces: dict[bool, FloatArray] = {} if like is None else like._traces

    @cached_property
    def components(self) -> FloatArray:
        """The components of the random terms and of the residual."""
        return np.append(self.v[self._random_terms], self.residual)

    def of_likelihood(self, *, with_fixed: bool) -> TermPoint:
        """Return the point from which forms of P follow, or of V⁻¹ if not `with_fixed`."""
        if with_fixed or self._inner is None:
            return self
        return self._inner(self.components)

    # Forms of the components, the residual last ------------------------------------------------

    def likelihood_traces(self, *, with_fixed: bool) -> FloatArray:
        """Return tr(QV_t) of each random term."""
        traces = self.of_likelihood(with_fixed=with_fixed).traces(with_fixed=with_fixed)
        return traces[: len(self._random_terms)]

    def traces_of_components(self, *, with_fixed: bool) -> FloatArray:
        """Return tr(QV_t)."""
        traces = self.likelihood_traces(with_fixed=with_fixed)
        total = float(self.degrees(with_fixed=with_fixed))
        return with_last(traces, total, self.components)

    def likelihood_squares(self, *, with_fixed: bool, positive_only: bool = False) -> Squares:
        """Return tr(QV_tQV_u) of the random terms, from squared norms of the blocks of Z'QZ.

        Those of components at zero are left nan if `positive_only`.
        """
        point, k = self.of_likelihood(with_fixed=with_fixed), len(self._random_terms)
        traces = point.traces(with_fixed=with_fixed)
        squares = point.squares(traces, with_fixed=with_fixed, positive_only=positive_only)
        return Squares(self.components, traces[:k], squares[:k, :k])

    def squares_of_components(
        self, *, with_fixed: bool, known: Squares | None = None
    ) -> FloatArray:
        """Return tr(QV_tQV_u); nan for terms without squares.

        Parameters
        ----------
        with_fixed : whether Q is P; else V⁻¹
        known : squares, also of another point; None computes them
        """
        known = known or self.likelihood_squares(with_fixed=with_fixed)
        k = known.v.size - 1
        kept = np.flatnonzero(~np.isnan(np.diagonal(known.squares)))
        whole = [*kept, k]
        found = np.full((k + 1, k + 1), np.nan)
        found[np.ix_(whole, whole)] = with_residual_forms(
            known.squares[np.ix_(kept, kept)],
            known.traces[kept],
            float(self.degrees(with_fixed=with_fixed)),
            known.v[whole],
        )
        return found

    # Solutions ----------------------------------------------------------------------------------

    def effects_of(self, term: int) -> FloatArray:
        """Return û of a term with a positive component."""
        return self.solution[0][self.places[term]]

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
            if t in self.places:
                yield effects[self.places[t]], float(self.v[t])
                continue
            rest = sums[t] - self.stats.ZX[t] @ beta
            for u, place in self.places.items():
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

    def second_forms(
        self,
        rows: list[FloatArray],
        b: int,
        product: Callable[[FloatArray, FloatArray], FloatArray],
    ) -> FloatArray:
        """Return B'V⁻¹V_lV⁻¹V_mV⁻¹B of all pairs of terms, (k, k, b, b).

        Parameters
        ----------
        rows : Z_l'V⁻¹B of each term
        b : number of columns of B
        product : of two such, summed over groups
        """
        k, tables, pattern = self.stats.n_terms, self.equations.tables, self.equations.pattern

        def with_term(m: int) -> list[FloatArray]:
            # Z_l'V⁻¹f for f = Z_m r, whose sums within groups are Z_l'Z_m r.
            sums = [tables.times(t, m, rows[m]) for t in range(k)]
            solved = self.solve(self.stacked(sums), overwrite=True)
            forms = zip(rows, self.scaled_projections(sums, solved), strict=True)
            return [product(r, f) / scale for r, (f, scale) in forms]

        entries = float(pattern.rows.size + pattern.n_dense**2)
        multiplications = 2.0 * k * entries * rows[0].shape[1] if k else 0.0
        # Threads would restore each other's number of BLAS threads.
        second = np.empty((k, k, b, b))
        with limited_blas(pattern.n_dense):
            for m, found in enumerate(in_threads(with_term, range(k), multiplications)):
                second[:, m] = found
        # The two halves differ by rounding only.
        return 0.5 * (second + second.transpose(1, 0, 3, 2))

    def stacked(self, sums: list[FloatArray]) -> FloatArray:
        """Return the sums of the positive terms, stacked."""
        nothing = np.zeros((0, sums[0].shape[1] if sums else 0))
        return np.concatenate([nothing, *(sums[t] for t in self.active)])

    # Forms of Q: P if `with_fixed`, else V⁻¹ ----------------------------------------------------

    def block_diagonal(self, term: int, *, with_fixed: bool) -> FloatArray:
        """Return the diagonal of the block C^tt of C⁻¹, or of the inverse of C's random part."""
        place = self.places[term]
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
                D = D - between @ self.border
            rest -= np.square(self.fixed.whitened(D)).sum(axis=1)
        rest /= s2
        return rest

    def traces(self, *, with_fixed: bool) -> FloatArray:
        """Return tr(Z_t'Q Z_t) of each term, eq. (7.4); 0 of terms with fixed effects."""
        if with_fixed not in self._traces:
            v, found = self.v[self._positive], np.zeros(self.stats.n_terms)
            sizes = np.array(self.stats.sizes)[self._positive]
            of_parts = self.traces_of_parts(with_fixed=with_fixed)[1:]
            found[self._positive] = (sizes - of_parts / v) / v
            for t in [*self._small, *self._at_zero]:
                found[t] = self.diagonal(t, with_fixed=with_fixed).sum()
            self._traces[with_fixed] = found
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
        k, v = self.stats.n_terms, self.v
        squares = np.full((k, k), np.nan)
        active = self._positive
        if active:
            c = v[active]
            norms = self.squares_of_parts(with_fixed=with_fixed)[1:, 1:]
            squares[np.ix_(active, active)] = norms / np.outer(c, c) ** 2
        for t in active:
            # ‖I/σ² − M‖² = q/σ⁴ − 2 tr(M)/σ² + ‖M‖², and tr(M) = q/σ² − tr(Z'QZ).
            squares[t, t] += (2.0 * traces[t] - self.stats.sizes[t] / v[t]) / v[t]
        large = [] if positive_only else large_at_zero(self, limits)
        if large:
            found = squares_at_zero(self, large, with_fixed=with_fixed)
            squares[large] = found
            squares[:, large] = found.T
        small = [t for t in self._small if self._columns_are_cheap(t)]
        zero = [] if positive_only else [t for t in self._at_zero if t not in large]
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
        solved = sum(sizes[t] for t in self._at_zero if t not in large)
        rank = float(self.equations.n_effects + self.stats.n_fixed)
        return _PRODUCT_SECONDS * (solved * each + len(large) * rank**3)

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
