"""Henderson's equations with q × q blocks of each level, row weights and residual groups.

Let A_r = [Z X] be the rows of residual group r, D_r their weights, and Λ_t the covariance matrix
of the q effects of a level of term t. The matrix of the equations,

    C = Σ_r A_r'D_rA_r/σ²_r + Σ_t Λ_t⁻¹ ⊗ I,

is linear in the natural parameters φ: the 1/σ²_r and the elements of the Λ_t⁻¹. What does not
depend on these is here, with the sums of rows; ``block_point`` has the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement, pairwise, product
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.numerics.sparse import Direction, Pattern, plan_elimination
from vcomp.statistics import CrossProducts


@dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """Sums over rows for terms with several effects of each level.

    Attributes
    ----------
    groups : weighted cross-products of the rows of each residual group; their terms are columns of
        effects (intercepts, slopes)
    terms : for each term the positions of its columns, which have the same levels
    log_weights : sum of the logarithms of the weights of all rows
    """

    groups: tuple[CrossProducts, ...]
    terms: tuple[tuple[int, ...], ...]
    log_weights: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RowsPart:
    """The derivative D of C by the 1/σ²_r of a residual group, and the sums that belong to it.

    Attributes
    ----------
    matrix : (m, m) D for effects and columns of X, sparse, in extended precision
    direction : D for the effects
    border : (n, p) D between effects and columns of X
    right, yy : (m,) and number: A_r'D_ry, of turned effects in extended precision, and y'D_ry
    """

    matrix: Any
    direction: Direction
    border: FloatArray
    right: FloatArray
    yy: float

    def times(self, x: Any) -> Any:
        """Return Dx of columns x, in extended precision."""
        return self.matrix @ x

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
    entries : off the diagonal, their places in the pattern's triangle
    """

    places: tuple[slice, slice]
    direction: Direction
    entries: LongArray

    def times(self, x: Any) -> Any:
        """Return Dx of columns x."""
        product, (a, b) = np.zeros_like(x), self.places
        product[a] = x[b]
        product[b] = x[a]
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


class BlockEquations:
    """The parts of the equations that do not depend on the components.

    Parameters
    ----------
    sums : sums over rows

    Attributes
    ----------
    places : for each column of effects its positions among the unknowns
    pairs : for each term the pairs of its columns, (a, b) with a ≤ b by their places in the term
    rows, priors : derivatives of C by the residual groups' 1/σ²_r, and by the elements of each
        Λ_t⁻¹
    offset : (m,) solution whose part of the response was subtracted from it
    pattern : sparsity pattern of the factor
    lead : position of the term whose effects are all of the sparse part, if there is one
    """

    def __init__(self, sums: BlockSums) -> None:
        self.sums, stats = sums, sums.groups[0]
        by_size = sorted(range(len(sums.terms)), key=lambda t: -stats.sizes[sums.terms[t][0]])
        columns = [c for t in by_size for c in sums.terms[t]]
        sizes = [stats.sizes[c] for c in columns]
        spans = pairwise([0, *np.cumsum(sizes).tolist()])
        self.places = {c: slice(*span) for c, span in zip(columns, spans, strict=True)}
        self.n_effects = sum(sizes)
        self.offset = np.zeros(self.n_effects + stats.n_fixed)
        self.pairs = [list(combinations_with_replacement(range(len(t)), 2)) for t in sums.terms]
        grams = [self._of_rows(group) for group in sums.groups]
        priors = [
            self._between(term, *pair)
            for term, pairs in zip(sums.terms, self.pairs, strict=True)
            for pair in pairs
        ]
        plan = plan_elimination(self._off_diagonal([*grams, *priors]), sizes)
        if plan is None:
            raise np.linalg.LinAlgError("the factor has too many entries")
        self.pattern = Pattern.of(plan)
        self.lead = self._lead(by_size)
        lower = plan.lower.tocoo()
        self._keys = lower.row.astype(np.int64) * self.n_effects + lower.col
        self.rows = [
            RowsPart(
                gram,
                self._direction(gram),
                self._stacked(group.ZX, group.n_fixed),
                self._right(group),
                group.yy,
            )
            for gram, group in zip(grams, sums.groups, strict=True)
        ]
        places = [
            (self.places[term[a]], self.places[term[b]])
            for term, pairs in zip(sums.terms, self.pairs, strict=True)
            for a, b in pairs
        ]
        self.priors = [
            PriorPart(place, self._direction(prior), self._entries(place))
            for place, prior in zip(places, priors, strict=True)
        ]

    def _of_rows(self, group: CrossProducts) -> Any:
        """Return A'DA of a residual group, sparse."""
        from scipy.sparse import block_array, csr_array

        rows = [[group.gram(a, b) for b in self.places] for a in self.places]
        Z = block_array(rows, format="csr") if rows else csr_array((0, 0))
        ZX = csr_array(self._stacked(group.ZX, group.n_fixed))
        whole = block_array([[Z, ZX], [ZX.T, csr_array(group.XX)]], format="csr")
        return whole.astype(np.longdouble)

    def _between(self, term: Sequence[int], a: int, b: int) -> Any:
        """Return the ones where Λ⁻¹ ⊗ I has its element (a, b), sparse."""
        from scipy.sparse import csr_array

        stats = self.sums.groups[0]
        rows, columns = (np.arange(self.n_effects)[self.places[term[i]]] for i in (a, b))
        m = self.n_effects + stats.n_fixed
        ones = csr_array((np.ones(rows.size, np.longdouble), (rows, columns)), shape=(m, m))
        return ones if a == b else ones + ones.T

    def _off_diagonal(self, matrices: Sequence[Any]) -> Any:
        """Return a matrix with an entry of effects where one of several may have any, sparse.

        Levels that occur together may have any in all bases of their effects.
        """
        from scipy.sparse import csr_array

        n = self.n_effects
        parts = [matrix[:n][:, :n].tocoo() for matrix in matrices]
        rows, columns = (np.concatenate([getattr(m, at) for m in parts]) for at in ("row", "col"))
        lead = np.arange(n)
        for term in self.sums.terms:
            for c in term[1:]:
                lead[self.places[c]] = lead[self.places[term[0]]]
        members = csr_array((np.ones(n), (lead, np.arange(n))), shape=(n, n))
        whole = csr_array((np.ones(rows.size), (lead[rows], lead[columns])), shape=(n, n))
        whole = (members.T @ whole @ members).tocoo()
        used = whole.row != whole.col
        ones = np.ones(np.count_nonzero(used))
        return csr_array((ones, (whole.row[used], whole.col[used])), shape=(n, n))

    def with_response(
        self, groups: tuple[CrossProducts, ...], offset: FloatArray | float = 0.0
    ) -> BlockEquations:
        """Return the equations of the same rows, by residual group, with another response.

        Parameters
        ----------
        groups : sums of the rows
        offset : solution whose part of the response was subtracted from it
        """
        other = copy(self)
        other.offset = np.zeros(self.offset.size) + offset
        other.sums = replace(self.sums, groups=groups)
        other.rows = [
            replace(part, right=self._right(group), yy=group.yy)
            for part, group in zip(self.rows, groups, strict=True)
        ]
        return other

    def rotated(self, bases: Sequence[FloatArray]) -> BlockEquations:
        """Return the equations for effects v of u = Uv.

        Parameters
        ----------
        bases : invertible matrix U of each term
        """
        from scipy.sparse import csr_array

        n, p = self.n_effects, self.sums.groups[0].n_fixed
        effects = np.arange(n)
        rows, columns, data = [np.arange(n, n + p)], [np.arange(n, n + p)], [np.ones(p)]
        for term, U in zip(self.sums.terms, bases, strict=True):
            for (i, a), (j, b) in product(enumerate(term), repeat=2):
                rows.append(effects[self.places[a]])
                columns.append(effects[self.places[b]])
                data.append(np.full(rows[-1].size, U[i, j]))
        entries = np.concatenate(data).astype(np.longdouble)
        places = np.concatenate(rows), np.concatenate(columns)
        R = csr_array((entries, places), shape=(n + p, n + p))
        turned = copy(self)
        vars(turned).pop("_level_means", None)
        turned.rows, turned.offset = [], self.offset.copy()
        for term, U in zip(self.sums.terms, bases, strict=True):
            own = np.array([self.offset[self.places[c]] for c in term])
            for c, values in zip(term, np.linalg.solve(U, own), strict=True):
                turned.offset[self.places[c]] = values
        for part in self.rows:
            matrix = (R.T @ part.matrix @ R).tocsr()
            turned.rows.append(
                replace(
                    part,
                    matrix=matrix,
                    direction=self._direction(matrix),
                    border=matrix[:n][:, n:].toarray().astype(float),
                    right=R.T @ part.right,
                )
            )
        return turned

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
            between = part.matrix.diagonal(other.start - at.start)[at]
            grams[:, a, b] = grams[:, b, a] = between
        return grams

    def _lead(self, by_size: Sequence[int]) -> int | None:
        """Return the term whose effects are all of the sparse part, if there is one."""
        cut, order = self.pattern.cut, self.pattern.permuted(np.arange(self.n_effects))
        for t in by_size[:1]:
            if cut == sum(self.sums.groups[0].sizes[c] for c in self.sums.terms[t]):
                return t if (order[:cut] < cut).all() else None
        return None

    def _entries(self, places: tuple[slice, slice]) -> LongArray:
        """Return the places of a prior's entries off the diagonal in the pattern's triangle."""
        if places[0] == places[1]:
            return np.zeros(0, dtype=np.int64)
        rows, columns = (self.pattern.place()[at] for at in places)
        keys = np.maximum(rows, columns) * self.n_effects + np.minimum(rows, columns)
        return np.searchsorted(self._keys, keys)

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

    def _direction(self, matrix: Any) -> Direction:
        """Return a matrix for the effects in the places of the pattern."""
        from scipy.sparse import tril

        n, order = self.n_effects, self.pattern.order
        effects = matrix[:n][:, :n].astype(float).tocsr()
        ordered = effects if order is None else effects[order][:, order]
        own = tril(ordered, -1, format="coo")
        data = np.zeros(self._keys.size)
        used = own.data != 0.0
        data[np.searchsorted(self._keys, (own.row.astype(np.int64) * n + own.col)[used])] = (
            own.data[used]
        )
        return Direction(effects.diagonal(), data)
