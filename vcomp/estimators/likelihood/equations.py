"""Henderson's mixed-model equations: what does not depend on the components.

Let A_r = [Z X] be the rows of residual group r, D_r their weights, and Λ_t the covariance matrix
of the q effects of a level of term t. The matrix of the equations,

    C = Σ_r A_r'D_rA_r/σ²_r + Σ_t Λ_t⁻¹ ⊗ I,

is linear in the natural parameters φ: the 1/σ²_r and the elements of the Λ_t⁻¹. ``point`` factors
σ²C with σ² = σ²_1: with one residual variance and intercepts alone only its diagonal changes. A
fixed factor of many levels is a column of effects without a Λ⁻¹.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement, pairwise, product
from typing import Any, TypeAlias

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.sparse import Direction, EliminationOrder, Factor, Pattern, plan_elimination
from vcomp.statistics import CrossProducts

Planner: TypeAlias = Callable[[Any, list[int]], EliminationOrder | None]
"""Returns the order of elimination of a sparse matrix with blocks of some sizes."""


class Tables:
    """The pair tables Z_t'Z_u as sparse matrices, each made once."""

    def __init__(
        self, stats: CrossProducts, made: dict[tuple[int, int], Any] | None = None
    ) -> None:
        self.stats = stats
        self._made: dict[tuple[int, int], Any] = {} if made is None else made

    def with_response(self, stats: CrossProducts) -> Tables:
        """Return the tables of the same rows with another response; the matrices are shared."""
        return Tables(stats, self._made)

    def between(self, t: int, u: int) -> Any:
        """Return Z_t'Z_u of two different terms."""
        if (t, u) not in self._made:
            self._made[t, u] = self.stats.gram(t, u)
        return self._made[t, u]

    def times(self, t: int, u: int, x: FloatArray) -> FloatArray:
        """Return Z_t'Z_u x for columns of effects of term u."""
        if t == u:
            return self.stats.group_n[t][:, None] * x
        return self.between(t, u) @ x

    def off_diagonal(self, columns: Sequence[int]) -> Any:
        """Return Z'Z of some columns of effects without its diagonal, sparse.

        No array larger than the pair tables is allocated.
        """
        from scipy.sparse import block_array, csr_array

        n = sum(self.stats.sizes[t] for t in columns)
        if len(columns) < 2:
            return csr_array((n, n))
        blocks = [[None if t == u else self.between(t, u) for u in columns] for t in columns]
        return block_array(blocks, format="csr")


@dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """Sums over rows for terms with one or several effects of each level.

    Attributes
    ----------
    groups : weighted cross-products of the rows of each residual group; their terms are columns of
        effects (intercepts, slopes)
    terms : for each term the positions of its columns, which have the same levels
    log_weights : sum of the logarithms of the weights of all rows
    fixed : columns of effects to which no Λ⁻¹ is added
    """

    groups: tuple[CrossProducts, ...]
    terms: tuple[tuple[int, ...], ...]
    log_weights: float = 0.0
    fixed: tuple[int, ...] = ()


class RowsPart:
    """The derivative D of C by the 1/σ²_r of a residual group, and the sums that belong to it.

    Parameters
    ----------
    off_diagonal : of the block of D for effects, sparse
    direction : D for the effects
    sums : of the rows
    ZX, right : (n, p) sums of the columns of X, and (m,) A_r'D_ry

    Attributes
    ----------
    gram : (n, n) D for the effects, sparse, in extended precision
    border : (n, p) D between effects and columns of X
    right, yy : (m,) and number: A_r'D_ry, of turned effects in extended precision, and y'D_ry
    """

    def __init__(
        self,
        off_diagonal: Any,
        direction: Direction,
        sums: CrossProducts,
        ZX: FloatArray,
        right: Any,
    ) -> None:
        self._off_diagonal, self.direction = off_diagonal, direction
        self.right: Any = right
        self.yy = sums.yy
        self._ZX: Any = ZX
        self.border, self.XX = ZX, sums.XX

    @cached_property
    def gram(self) -> Any:
        """D for the effects, sparse, in extended precision."""
        from scipy.sparse import diags_array

        gram = self._off_diagonal + diags_array(self.direction.diagonal)
        return gram.astype(np.longdouble).tocsr()

    def with_response(self, sums: CrossProducts, right: FloatArray) -> RowsPart:
        """Return the part of the same rows with another response."""
        other = copy(self)
        other.right, other.yy = right, sums.yy
        return other

    def turned(self, R: Any, direction_of: Callable[[Any], Direction]) -> RowsPart:
        """Return the part for effects v of u = Rv."""
        other, n = copy(self), len(self.border)
        other.gram = (R.T @ self.gram @ R).tocsr()
        other.direction = direction_of(other.gram)
        other._ZX = R.T @ self._ZX
        other.border = other._ZX.astype(float)
        other.right = np.concatenate([R.T @ self.right[:n], self.right[n:]])
        return other

    def times(self, x: Any) -> Any:
        """Return Dx of columns x, in extended precision."""
        n, x = len(self.border), x.astype(np.longdouble)
        u, b = x[:n], x[n:]
        return np.concatenate([self.gram @ u + self._ZX @ b, self._ZX.T @ u + self.XX @ b])

    def form(self, x: Any) -> Any:
        """Return x'Dx of columns x."""
        return x.T @ self.times(x)


@dataclass(frozen=True, slots=True, eq=False)
class PriorPart:
    """The derivative D of C by an element of a Λ_t⁻¹: ones between two columns of effects.

    Attributes
    ----------
    places : positions of the two columns of effects among the unknowns
    direction : D for the effects
    """

    places: tuple[slice, slice]
    direction: Direction

    def times(self, x: Any) -> Any:
        """Return Dx of columns x."""
        product = np.zeros_like(x)
        self.add_times(product, 1.0, x)
        return product

    def add_times(self, total: Any, factor: Any, x: Any) -> None:
        """Add a multiple of Dx to a total, in place."""
        a, b = self.places
        total[a] += factor * x[b]
        if a != b:
            total[b] += factor * x[a]

    def form(self, x: Any) -> Any:
        """Return x'Dx of columns x."""
        a, b = self.places
        half = x[a].T @ x[b]
        return half if a == b else half + half.T

    def inner(self, x: FloatArray, y: FloatArray) -> float:
        """Return tr(x'Dy)."""
        a, b = self.places
        half = float(np.vdot(x[a], y[b]))
        return half if a == b else half + float(np.vdot(x[b], y[a]))


class Equations:
    """The parts of the equations that do not depend on the components.

    Parameters
    ----------
    sums : sums over rows
    tables : pair tables of the first residual group; None makes them
    planned : Z'Z without its diagonal and its order of elimination, of intercepts with one
        residual variance; None plans it

    Attributes
    ----------
    places : for each column of effects its positions among the unknowns, largest terms first
    pairs : for each term the pairs of its columns, (a, b) with a ≤ b by their places in the term
    rows, priors : derivatives of C by the residual groups' 1/σ²_r, and by the elements of each
        Λ_t⁻¹
    offset : (m,) solution whose part of the response was subtracted from it
    pattern : sparsity pattern of the factor

    Raises
    ------
    numpy.linalg.LinAlgError
        If the factor has too many entries.
    """

    def __init__(
        self,
        sums: BlockSums,
        tables: Tables | None = None,
        planned: tuple[Any, EliminationOrder] | None = None,
    ) -> None:
        self.sums, stats = sums, sums.groups[0]
        self.tables = tables or Tables(stats)
        blocks = [*sums.terms, *((c,) for c in sums.fixed)]
        blocks.sort(key=lambda block: (-stats.sizes[block[0]], block))
        columns = [c for block in blocks for c in block]
        sizes = [stats.sizes[c] for c in columns]
        spans = pairwise([0, *np.cumsum(sizes).tolist()])
        self.places = {c: slice(*span) for c, span in zip(columns, spans, strict=True)}
        self.n_effects = sum(sizes)
        self.offset = np.zeros(self.n_effects + stats.n_fixed)
        self.pairs = [list(combinations_with_replacement(range(len(t)), 2)) for t in sums.terms]
        self._is_constant = len(sums.groups) == 1 and all(len(term) == 1 for term in sums.terms)
        if planned is None:
            of_rows = [Tables(group).off_diagonal(columns) for group in sums.groups]
            random = of_rows[0] if self._is_constant else self._pattern_of(of_rows)
            plan = plan_elimination(random, sizes)
        else:
            of_rows, plan = [planned[0]], planned[1]
        if plan is None:
            raise np.linalg.LinAlgError("the factor has too many entries")
        self.pattern, self._lower = Pattern.of(plan), plan.lower
        self.rows = [
            self._of_rows(group, random)
            for group, random in zip(sums.groups, of_rows, strict=True)
        ]
        self.priors = [
            self._prior(self.places[term[a]], self.places[term[b]])
            for term, pairs in zip(sums.terms, self.pairs, strict=True)
            for a, b in pairs
        ]

    def _of_rows(self, group: CrossProducts, off_diagonal: Any) -> RowsPart:
        """Return the part of a residual group."""
        diagonal = self._stacked(group.group_n, 1)[:, 0]
        if self._is_constant:
            direction = Direction(diagonal, self._lower.data.astype(float))
        else:
            direction = self._direction(off_diagonal, diagonal)
        ZX = self._stacked(group.ZX, group.n_fixed)
        return RowsPart(off_diagonal, direction, group, ZX, self._right(group))

    def _prior(self, a: slice, b: slice) -> PriorPart:
        """Return the part of an element of a Λ⁻¹ between two columns of effects."""
        if a == b:
            diagonal = np.zeros(self.n_effects)
            diagonal[a] = 1.0
            return PriorPart((a, b), Direction(diagonal))
        place = self.pattern.place()
        keys = np.maximum(place[a], place[b]) * self.n_effects + np.minimum(place[a], place[b])
        data = np.zeros(self._keys.size)
        data[np.searchsorted(self._keys, keys)] = 1.0
        return PriorPart((a, b), Direction(np.zeros(self.n_effects), data))

    def _pattern_of(self, matrices: Sequence[Any]) -> Any:
        """Return a matrix with an entry of effects where one of several may have any, sparse.

        Levels that occur together may have any in all bases of their effects.
        """
        from scipy.sparse import csr_array

        n = self.n_effects
        parts = [matrix.tocoo() for matrix in matrices]
        rows, columns = (np.concatenate([getattr(m, at) for m in parts]) for at in ("row", "col"))
        lead = np.arange(n)
        for term in self.sums.terms:
            for c in term[1:]:
                lead[self.places[c]] = lead[self.places[term[0]]]
        rows, columns = (np.concatenate([at, np.arange(n)]) for at in (rows, columns))
        members = csr_array((np.ones(n), (lead, np.arange(n))), shape=(n, n))
        whole = csr_array((np.ones(rows.size), (lead[rows], lead[columns])), shape=(n, n))
        whole = (members.T @ whole @ members).tocoo()
        used = whole.row != whole.col
        ones = np.ones(np.count_nonzero(used))
        return csr_array((ones, (whole.row[used], whole.col[used])), shape=(n, n))

    def with_response(
        self, groups: tuple[CrossProducts, ...], offset: FloatArray | float = 0.0
    ) -> Equations:
        """Return the equations of the same rows, by residual group, with another response.

        Parameters
        ----------
        groups : sums of the rows
        offset : solution whose part of the response was subtracted from it
        """
        other = copy(self)
        other.offset = np.zeros(self.offset.size) + offset
        other.sums = replace(self.sums, groups=groups)
        other.tables = self.tables.with_response(groups[0])
        other.rows = [
            part.with_response(group, self._right(group))
            for part, group in zip(self.rows, groups, strict=True)
        ]
        return other

    def rotated(self, bases: Sequence[FloatArray]) -> Equations:
        """Return the equations for effects v of u = Uv.

        Parameters
        ----------
        bases : invertible matrix U of each term
        """
        from scipy.sparse import csr_array

        n, effects = self.n_effects, np.arange(self.n_effects)
        turned = copy(self)
        vars(turned).pop("_level_means", None)
        turned._is_constant, turned.offset = False, self.offset.copy()
        rows, columns, data = [], [], []
        for term, U in zip(self.sums.terms, bases, strict=True):
            for (i, a), (j, b) in product(enumerate(term), repeat=2):
                rows.append(effects[self.places[a]])
                columns.append(effects[self.places[b]])
                data.append(np.full(rows[-1].size, U[i, j]))
            own = np.array([self.offset[self.places[c]] for c in term])
            for c, values in zip(term, np.linalg.solve(U, own), strict=True):
                turned.offset[self.places[c]] = values
        entries = np.concatenate(data).astype(np.longdouble)
        places = np.concatenate(rows), np.concatenate(columns)
        R = csr_array((entries, places), shape=(n, n))
        turned.rows = [part.turned(R, self._direction) for part in self.rows]
        return turned

    def factored(self, phi: FloatArray) -> Factor:
        """Return the factor of Σφ_jD_j of the effects; the first φ is 1 if no entry changes.

        Raises
        ------
        numpy.linalg.LinAlgError
            If it is not positive definite up to rounding error.
        """
        diagonal: Any = sum(
            x * part.direction.diagonal for x, part in zip(phi, self.rows, strict=False)
        )
        for x, prior in zip(phi[len(self.rows) :], self.priors, strict=True):
            a, b = prior.places
            if a == b:
                diagonal[a] += x
        if self._is_constant:
            return Factor(self.pattern, diagonal)
        data: Any = sum(
            x * part.direction.data
            for x, part in zip(phi, self.parts, strict=True)
            if part.direction.data is not None
        )
        return Factor(self.pattern.with_entries(data), diagonal)

    def level_precisions(self, residuals: FloatArray) -> list[FloatArray]:
        """Return of each term the mean over levels of Z_l'R⁻¹Z_l, the precision of their effects.

        Parameters
        ----------
        residuals : σ²_r of the residual groups
        """
        return [
            sum(K / s2 for K, s2 in zip(grams, residuals, strict=True))
            for grams in self._level_means
        ]

    @cached_property
    def _level_means(self) -> list[list[FloatArray]]:
        """Of each term and residual group the mean over levels of Z_l'DZ_l."""
        return [
            [np.mean(self.level_grams(t, part), axis=0) for part in self.rows]
            for t in range(len(self.pairs))
        ]

    def level_grams(self, t: int, part: RowsPart) -> FloatArray:
        """Return Z_l'DZ_l of each level of a term, (levels, q, q)."""
        term, pairs = self.sums.terms[t], self.pairs[t]
        grams = np.empty((self.sums.groups[0].sizes[term[0]], len(term), len(term)))
        for a, b in pairs:
            at, other = self.places[term[a]], self.places[term[b]]
            between = part.gram.diagonal(other.start - at.start)[at]
            grams[:, a, b] = grams[:, b, a] = between
        return grams

    def positions(self, term: int) -> list[LongArray]:
        """Return for each effect of a term its positions among the unknowns, by level."""
        effects = np.arange(self.n_effects)
        return [effects[self.places[c]] for c in self.sums.terms[term]]

    @property
    def parts(self) -> list[RowsPart | PriorPart]:
        """Derivatives of C by all natural parameters."""
        return [*self.rows, *self.priors]

    def _stacked(self, sums: Sequence[FloatArray], width: int) -> FloatArray:
        blocks = [sums[c].reshape(sums[c].shape[0], width) for c in self.places]
        return np.concatenate([np.zeros((0, width)), *blocks])

    def _right(self, group: CrossProducts) -> FloatArray:
        return np.concatenate([self._stacked(group.Zy, 1)[:, 0], group.Xy])

    @cached_property
    def _keys(self) -> LongArray:
        """The places of the pattern's lower triangle, row by row, as numbers in order."""
        lower = self._lower.tocoo()
        keys: LongArray = lower.row.astype(np.int64) * self.n_effects + lower.col
        return keys

    def _direction(self, gram: Any, diagonal: FloatArray | None = None) -> Direction:
        """Return a matrix for the effects, or its part off a diagonal, in the pattern's places."""
        from scipy.sparse import tril

        n, order = self.n_effects, self.pattern.order
        effects = gram.astype(float)
        ordered = effects if order is None else effects[order][:, order]
        own = tril(ordered, -1, format="coo")
        data = np.zeros(self._keys.size)
        used = own.data != 0.0
        data[np.searchsorted(self._keys, (own.row.astype(np.int64) * n + own.col)[used])] = (
            own.data[used]
        )
        return Direction(effects.diagonal() if diagonal is None else diagonal, data)
