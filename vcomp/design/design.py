"""The design: what must be known before rows are summed (levels, origins, coding of terms).

In the pipe it follows the formula, and statistics follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.data import Rows
from vcomp.design.effect_columns import CovarianceBlocks
from vcomp.design.grid import Grid, PartialGrid, TermDesign, number_combinations
from vcomp.design.structure import Structure
from vcomp.exceptions import DataError
from vcomp.formula import FixedPart, Formula, OmittedColumns, ResidualGroups
from vcomp.markup import encodable
from vcomp.numerics import MixedColumns, congruent

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Facet:
    """A grouping column and its levels, sorted."""

    name: str
    levels: pd.Index

    @property
    def size(self) -> int:
        """Number of levels."""
        return len(self.levels)

    def codes(self, column: pd.Series) -> Any:
        """Return the (n,) level of each row in few bytes, −1 for a level that is not known."""
        import pandas as pd

        if isinstance(column.dtype, pd.CategoricalDtype):
            categorical: Any = column.array
            codes = categorical.codes.view()  # a copy by pandas would be large
            # For protected arrays all kernels would be compiled again; none changes codes.
            with suppress(ValueError):  # the memory itself is protected
                codes.flags.writeable = True
            if column.cat.categories is self.levels:
                return codes
            # A few categories are looked up, not every row.
            of_category = self.levels.get_indexer(column.cat.categories)
            return np.where(codes < 0, -1, of_category[codes]).astype(np.int32)
        return self.levels.get_indexer(pd.Index(column)).astype(np.int32)


@dataclass(frozen=True, slots=True)
class ResidualLevels:
    """How combinations of levels become groups of rows with a residual variance each.

    Attributes
    ----------
    facets : the columns with their levels
    term : the combinations that occur
    groups : names of the groups, and numbers of their rows
    """

    facets: tuple[Facet, ...]
    term: TermDesign
    groups: ResidualGroups

    @property
    def size(self) -> int:
        """Number of groups."""
        return self.term.size

    def codes(self, columns: Mapping[str, pd.Series]) -> IntArray:
        """Return the group of each row, (n,), −1 where it is not known.

        Parameters
        ----------
        columns : with those of the groups
        """
        codes = [facet.codes(columns[facet.name]) for facet in self.facets]
        return self.term.groups(codes, tuple(facet.size for facet in self.facets))


@dataclass(frozen=True, slots=True)
class Design:
    """The design of the data, determined once; printing it describes it in words.

    Attributes
    ----------
    formula : the formula that was read
    facets : the grouping columns with their levels
    terms : the random terms
    fixed : how the fixed part is coded
    origin : number that is subtracted from y before any product
    x_origin : (p,) numbers that are subtracted from the columns of X
    beta_origin : (p,) coefficients of the centred columns, whose fixed part is subtracted from y
        as well; 0 unless it dwarfs the rest
    constant : (p,) the combination of the columns of X that is the constant, zero if none is
    structure : crossed, nested, balanced, connected, replicated, confounded
    grid : the facets that are fully crossed with everything, and the cells of the others; None if
        the data are not a complete grid
    partial_grid : the grid that the rows nearly fill, if there is no complete one
    blocks : covariance matrices and columns of effects; None if all variances are single, with one
        residual
    residual : groups of rows with a residual variance each; None with one for all
    """

    formula: Formula
    facets: tuple[Facet, ...]
    terms: tuple[TermDesign, ...]
    fixed: FixedPart
    origin: float
    x_origin: FloatArray
    constant: FloatArray
    structure: Structure
    grid: Grid | None
    partial_grid: PartialGrid | None
    blocks: CovarianceBlocks | None = None
    residual: ResidualLevels | None = None
    beta_origin: FloatArray | float = 0.0

    @property
    def n_levels(self) -> tuple[int, ...]:
        """Numbers of levels of the facets."""
        return tuple(len(facet.levels) for facet in self.facets)

    def group_index(self, term: int) -> pd.Index:
        """Return the groups of a term as an index: its level, or a tuple of levels."""
        import pandas as pd

        design = self.terms[term]
        codes = dict(zip(design.facets, design.level_codes(self.n_levels), strict=True))
        shown = [self.formula.facets.index(f) for f in self.formula.random[term].facets]
        facets = [self.facets[f] for f in shown]
        if len(facets) == 1:
            return facets[0].levels.rename(facets[0].name)
        levels: list[Any] = [f.levels for f in facets]
        level_codes: list[Any] = [codes[f] for f in shown]
        return pd.MultiIndex(levels=levels, codes=level_codes, names=[f.name for f in facets])

    def without_columns(self, left_out: OmittedColumns, constant: FloatArray) -> Design:
        """Return the design without the columns of X that are linear combinations of others.

        Parameters
        ----------
        left_out : the columns
        constant : (p,) the combination of those kept that is the constant
        """
        kept, x_origin = left_out.kept, self.x_origin[left_out.kept]
        beta_origin = self.beta_origin
        if isinstance(beta_origin, np.ndarray):
            # X_d = X_k W, and with both centred: X_d = X_k (W + a (x_k'W − x_d')).
            W, rest = left_out.weights, beta_origin[left_out.at]
            moved = x_origin @ W - self.x_origin[left_out.at]
            beta_origin = beta_origin[kept] + W @ rest + constant * float(moved @ rest)
        return replace(
            self,
            fixed=self.fixed.without(left_out),
            x_origin=x_origin,
            constant=constant,
            beta_origin=beta_origin,
        )

    @property
    def transform(self) -> FloatArray:
        """The matrix T of ``β = T b + …`` for coefficients b of the centred columns, (p, p)."""
        return np.eye(self.x_origin.size) - np.outer(self.constant, self.x_origin)

    @property
    def transformed_origin(self) -> FloatArray:
        """What :meth:`uncentre` adds to T b, (p,)."""
        return self.uncentred(np.zeros(self.x_origin.size))

    def mean(self, X: FloatArray | MixedColumns, beta: FloatArray) -> FloatArray:
        """Return the fixed part of rows on the scale of the response.

        Parameters
        ----------
        X : (n, p) or (p,), centred
        beta : coefficients of the centred columns and the centred response
        """
        return np.asarray(self.origin + X @ (beta + self.beta_origin))

    def uncentred(self, beta: FloatArray) -> FloatArray:
        """Return coefficients of X from those of the centred X and y."""
        beta = beta + self.beta_origin
        return np.asarray(beta + (self.origin - self.x_origin @ beta) * self.constant)

    def uncentre(self, beta: FloatArray, cov_beta: Any) -> tuple[FloatArray, Any]:
        """Return coefficients of X and their covariance from those of the centred X and y.

        With X_c = X − 1 x₀' = X T, 1 = X a and the origin b₀ of b:
        y = X_c (b + b₀) + c 1 = X (T (b + b₀) + c a).

        Parameters
        ----------
        beta, cov_beta : of the centred columns; a covariance matrix that is not formed transforms
            itself
        """
        uncentred = self.uncentred(beta)
        if isinstance(cov_beta, np.ndarray):
            return uncentred, congruent(self.transform, cov_beta)
        return uncentred, cov_beta.uncentred(self.constant, self.x_origin)

    def encode(self, rows: Rows) -> Chunk:
        """Return the codes of `rows`, which are all of the data or some.

        Raises
        ------
        DataError
            If a facet has a level that the design does not have.
        """
        codes = []
        for facet in self.facets:
            column = rows.facets[facet.name]
            levels = facet.codes(column)
            if levels.min(initial=0) < 0:
                unknown = column.iloc[[int(np.argmax(levels < 0))]].tolist()[0]
                raise DataError(
                    f"facet {facet.name!r} has a level that the design does not have: {unknown!r}",
                    level=unknown,
                    column=facet.name,
                )
            codes.append(levels)
        code = partial(self.centred_columns, rows.fixed, rows.y.size, rows.weights)
        return Chunk(
            response=rows.y,
            origin=self.origin,
            beta_origin=self.beta_origin,
            columns=cache(code),
            compact_codes=tuple(codes),
            facet_sizes=self.n_levels,
            terms=self.terms,
            blocks=self.blocks,
            effects=None if self.blocks is None else self.blocks.values(rows.fixed, rows.y.size),
            residual_codes=None if self.residual is None else self.residual.codes(rows.facets),
            weights=rows.weights,
        )

    def centred_matrix(self, columns: Mapping[str, Any], n_rows: int) -> FloatArray:
        """Return X, (n_rows, p), minus its origin, which is zero for the intercept.

        Parameters
        ----------
        columns : of the fixed part
        n_rows : their length
        """
        if self.formula.intercept_only:
            return np.broadcast_to(1.0, (n_rows, 1))  # one number, broadcast over the rows
        return self.fixed.matrix(columns, n_rows, self.x_origin)

    def centred_columns(
        self, columns: Mapping[str, Any], n_rows: int, weights: FloatArray | None
    ) -> FloatArray | MixedColumns:
        """Return X minus its origin; columns of factors with many levels are kept sparse.

        Parameters
        ----------
        columns, n_rows : as of :meth:`centred_matrix`
        weights : of the rows, whose columns are then dense
        """
        mixed = None
        if not self.formula.intercept_only and weights is None:
            mixed = self.fixed.mixed(columns, n_rows)
        if mixed is None:
            return self.centred_matrix(columns, n_rows)
        return mixed.minus(self.x_origin)

    def __str__(self) -> str:
        return encodable(self.structure.report())


ScoresOfCells: TypeAlias = "Callable[[Any], tuple[LongArray, FloatArray, FloatArray]]"
"""Returns weighted scores of some cells, given by a slice or their numbers.

They are positions among these cells, distances of the scores from the means of their cells, and
the number of scores that each represents.
"""


class _Recoded:
    """A field whose value is given, or made by a cached function when it is read.

    All copies of a chunk share the function, so that :meth:`Chunk.forget_columns` frees X for all.
    For a million rows with five covariates that is a third of the memory that a fit by conjugate
    gradients takes. A field for the function and a property for X would do the same, but each
    chunk of given columns would wrap them into a function.
    """

    def __get__(self, chunk: object, owner: object) -> FloatArray | MixedColumns:
        given: Any = self if chunk is None else vars(chunk)["columns"]
        return given() if callable(given) else given

    def __set__(self, chunk: object, given: Any) -> None:
        vars(chunk)["columns"] = given


@dataclass(frozen=True)
class Chunk:
    """Coded rows of the data, or cells that each represent several scores.

    Where rows are cells, `response` and `X` are means over their scores. Without `within`, each
    represents `counts` equal scores; counts need not be whole. A row of weight w is one score with
    the residual variance σ²_e / w: sums of squares and products have weights in place of counts.
    Cells of such scores have both: the sums of the weights, and the numbers of scores.
    """

    response: FloatArray  # (n,) as given
    origin: float  # Design.origin
    compact_codes: tuple[Any, ...]  # level in each facet, in as few bytes as it takes
    facet_sizes: tuple[int, ...]  # number of levels of each facet
    terms: tuple[TermDesign, ...]
    counts: FloatArray | None = None  # (n,) scores of each cell; None where rows are scores
    within: FloatArray | None = None  # (1 + p, 1 + p) squares and products of y and X in cells
    alike: Chunk | None = None  # the same rows with another response, whose groups are the same
    blocks: CovarianceBlocks | None = None  # of the design
    effects: tuple[FloatArray | None, ...] | None = None  # (n,) columns of effects by term
    residual_codes: IntArray | None = None  # (n,) group of the residual; None with one for all
    weights: FloatArray | None = None  # (n,) of scores or cells; None where all count alike
    log_sums: FloatArray | None = None  # (n,) of weighted cells the sums of the logarithms
    products: FloatArray | None = None  # (b, b, n) in each cell of y, X and a column for each term
    beta_origin: FloatArray | float = 0.0  # (p,) of Design
    scores: ScoresOfCells | None = None  # within the cells; None where they are equal or not known
    columns: _Recoded = _Recoded()  # (n, p) fixed-effects matrix, centred at Design.x_origin

    @property
    def n(self) -> int:
        """Number of scores."""
        return int(self.response.size if self.counts is None else self.counts.sum())

    @property
    def multiplicity(self) -> FloatArray | None:
        """Factor of each row in sums: its number of scores or its weight; None for ones."""
        return self.counts if self.weights is None else self.weights

    @property
    def total(self) -> float:
        """Sum of the multiplicities: the number of scores, or the sum of the weights."""
        return float(self.n if self.weights is None else self.weights.sum())

    @property
    def log_weights(self) -> float:
        """Sum of the logarithms of the weights of the scores."""
        if self.weights is None:
            return 0.0
        return float((np.log(self.weights) if self.log_sums is None else self.log_sums).sum())

    @property
    def unweighted(self) -> Chunk:
        """The rows without their weights."""
        return replace(self, weights=None, log_sums=None)

    @cached_property
    def X(self) -> FloatArray:
        """The fixed-effects matrix as a dense array, (n, p).

        Raises
        ------
        EstimationError
            If it does not fit into memory.
        """
        columns = self.columns
        return columns.toarray() if isinstance(columns, MixedColumns) else columns

    def forget_columns(self) -> None:
        """Free the memory of X, if it can be coded again: it is when it is next read."""
        if callable(coded := vars(self)["columns"]):
            coded.cache_clear()

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return int(self.columns.shape[1])

    @property
    def is_mean(self) -> bool:
        """Whether X is an intercept alone, stored as one number."""
        columns = self.columns
        return (
            not isinstance(columns, MixedColumns)
            and columns.shape[1] == 1
            and columns.strides[0] == 0
        )

    @property
    def y(self) -> FloatArray:
        """The response less origin and fixed part at ``beta_origin``, (n,); made at every use."""
        return self.centred(slice(None))

    def centred(self, rows: Any) -> FloatArray:
        """Return :attr:`y` of some rows, given by a slice or their numbers."""
        y = self.response[rows] - self.origin
        if isinstance(self.beta_origin, np.ndarray):
            y -= self.columns[rows] @ self.beta_origin
        return y

    def with_response(
        self,
        y: FloatArray,
        within: FloatArray | None = None,
        products: FloatArray | None = None,
    ) -> Chunk:
        """Return the same rows with another response, (n,), which is centred already.

        Parameters
        ----------
        within, products : of cells the squares and products in all or each, with this response
        """
        return replace(
            self,
            response=y,
            origin=0.0,
            beta_origin=0.0,
            within=within,
            products=products,
            alike=self.alike or self,
        )

    @property
    def squares_within(self) -> float:
        """Sum of the squares of y within cells of several scores."""
        if self.products is not None:
            return float(self.products[0, 0].sum())
        return 0.0 if self.within is None else float(self.within[0, 0])

    def without_fixed(self, beta: FloatArray) -> Chunk:
        """Return the same rows, from whose response a fixed part is subtracted as well.

        Parameters
        ----------
        beta : (p,) coefficients of the columns
        """
        within, products = self.within, self.products
        if within is not None:
            within = congruent(_less_fixed(beta, len(within)), within)
        if products is not None:
            of_cells = congruent(_less_fixed(beta, len(products)), np.moveaxis(products, 2, 0))
            products = np.moveaxis(of_cells, 0, 2)
        return replace(
            self,
            beta_origin=self.beta_origin + beta,
            within=within,
            products=products,
            alike=self.alike or self,
        )

    def without_effects(self, effects: Sequence[FloatArray]) -> Chunk:
        """Return the same rows, from whose response effects are subtracted.

        Parameters
        ----------
        effects : of the levels of each term, with a column of effects
        """
        assert self.effects is not None
        y, first = self.y, 1 + self.n_fixed
        products = None if self.products is None else self.products.copy()
        for t, (codes, z, own) in enumerate(zip(self.codes, self.effects, effects, strict=True)):
            of_rows = own[codes]
            y -= of_rows if z is None else z * of_rows
            if products is not None:
                products[0] -= of_rows * products[first + t]
                products[:, 0] -= of_rows * products[:, first + t]
        return self.with_response(y, self.within, products)

    def without_effect(self, term: int) -> tuple[Chunk, list[int]]:
        """Return the rows of a model of covariance matrices without the effects of a term.

        The positions of the components that are left follow, those of the residuals apart.
        """
        assert self.blocks is not None
        assert self.effects is not None
        blocks, left = self.blocks.without(term)
        kept = [t for t in range(len(self.terms)) if t != term]
        products, first = self.products, 1 + self.n_fixed
        if products is not None:
            products = np.delete(np.delete(products, first + term, 0), first + term, 1)
        smaller = replace(
            self,
            terms=tuple(self.terms[t] for t in kept),
            effects=tuple(self.effects[t] for t in kept),
            blocks=blocks,
            products=products,
        )
        return smaller, left

    def with_one_residual(self) -> Chunk:
        """Return the rows of a model of covariance matrices with one residual variance."""
        assert self.blocks is not None
        blocks = replace(self.blocks, n_residuals=1)
        return replace(self, blocks=blocks, residual_codes=None)

    def with_residual_codes(self, codes: IntArray) -> Chunk:
        """Return the rows with the residual groups that codes have, renumbered.

        Parameters
        ----------
        codes : (n,) group of each row, some of which may not occur
        """
        assert self.blocks is not None
        occurring, numbers = np.unique(codes, return_inverse=True)
        if occurring.size == 1:
            return self.with_one_residual()
        blocks = replace(self.blocks, n_residuals=int(occurring.size))
        return replace(self, blocks=blocks, residual_codes=numbers.astype(np.int32))

    def residual_parts(self) -> Iterator[Chunk]:
        """Yield the rows of each residual group."""
        assert self.residual_codes is not None
        order = np.argsort(self.residual_codes, kind="stable")
        counts = np.bincount(self.residual_codes)
        dense = replace(self, columns=self.X, residual_codes=None)
        for at in np.split(order, np.cumsum(counts)[:-1]):
            yield dense.of_rows(at)

    def of_rows(self, at: LongArray) -> Chunk:
        """Return some of the rows or cells, each with its products, with the same terms.

        Parameters
        ----------
        at : their positions, which may be repeated
        """
        effects = None
        if self.effects is not None:
            effects = tuple(None if z is None else z[at] for z in self.effects)
        columns = np.broadcast_to(1.0, (at.size, 1)) if self.is_mean else self.columns[at]
        scores = self.scores
        part = replace(
            self,
            response=self.response[at],
            columns=columns,
            compact_codes=tuple(codes[at] for codes in self.compact_codes),
            effects=effects,
            counts=None if self.counts is None else self.counts[at],
            weights=None if self.weights is None else self.weights[at],
            log_sums=None if self.log_sums is None else self.log_sums[at],
            products=None if self.products is None else self.products[:, :, at],
            within=None,
            alike=None,
            scores=None if scores is None else lambda rows: scores(at[rows]),
        )
        if self.residual_codes is None:
            return part
        return part.with_residual_codes(self.residual_codes[at])

    @property
    def single_scores(self) -> Chunk:
        """The weighted scores of the cells, which are known, as rows."""
        assert self.scores is not None
        at, away, weights = self.scores(slice(None))
        rows = replace(self, scores=None).of_rows(at)
        return replace(rows, response=rows.response + away, counts=weights)

    def of_columns(self, kept: LongArray, beta_origin: FloatArray | float = 0.0) -> Chunk:
        """Return the rows with some of the columns of X, given by ascending positions.

        Parameters
        ----------
        beta_origin : of these, with the same fixed part
        """
        columns, within, both = self.columns, self.within, [0, *(1 + kept)]
        products = self.products
        if products is not None:
            of_effects = range(1 + self.n_fixed, len(products))
            products = products[np.ix_([*both, *of_effects], [*both, *of_effects])]
        mixed = columns.of_columns(kept) if isinstance(columns, MixedColumns) else None
        return replace(
            self,
            columns=np.asfortranarray(columns[:, kept]) if mixed is None else mixed,
            beta_origin=beta_origin,
            within=None if within is None else within[np.ix_(both, both)],
            products=products,
        )

    def level_codes(self, facet: int) -> IntArray:
        """Return the level of each row in a facet; computed at every use."""
        return np.asarray(self.compact_codes[facet], dtype=np.int32)

    @property
    def facet_codes(self) -> tuple[IntArray, ...]:
        """Level of each row in each facet."""
        return tuple(self.level_codes(f) for f in range(len(self.compact_codes)))

    def cells(self, facets: Iterable[int] | None = None) -> tuple[LongArray, int]:
        """Return the combination of levels in each row, numbered in their order, and how many.

        Parameters
        ----------
        facets : whose levels count; all if None
        """
        cells, n_cells = np.zeros(self.response.size, dtype=np.int32), 1
        for f in range(len(self.facet_sizes)) if facets is None else facets:
            keys, cells = number_combinations(
                cells, n_cells, self.compact_codes[f], self.facet_sizes[f]
            )
            n_cells = keys.size
        return cells.astype(np.int64), n_cells

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of groups of each random term."""
        return tuple(term.size for term in self.terms)

    @cached_property
    def codes(self) -> tuple[IntArray, ...]:
        """Group in each random term, k arrays of shape (n,); made when they are first used."""
        if self.alike is not None and self.alike.terms is self.terms:
            return self.alike.codes
        return tuple(term.groups(self.compact_codes, self.facet_sizes) for term in self.terms)


def _less_fixed(beta: FloatArray, size: int) -> FloatArray:
    """Return the matrix that makes [y − Xβ, X, …] of the `size` columns [y, X, …]."""
    K = np.eye(size)
    K[0, 1 : 1 + beta.size] = -beta
    return K
