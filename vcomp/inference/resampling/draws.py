"""Statistics of data drawn from a fitted model, by strata or by rows.

In nested strata the statistics themselves are drawn, docs/explanation/mathematics.md, eq. (10.11);
elsewhere rows or cells are drawn and summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.design import Chunk
from vcomp.estimators import ClosedForm
from vcomp.estimators.likelihood import LikelihoodMethod
from vcomp.exceptions import DataError, EstimationError
from vcomp.inference.resampling.refits import Recipe
from vcomp.numerics import available_bytes, check_count, check_memory, seed_from, slices, stream
from vcomp.statistics import GroupedColumns, Statistics, Stratum, StratumStatistics

Made = TypeVar("Made")

_DEPENDENT = 1e-12
"""Eigenvalue of products with unit diagonal below which columns are linearly dependent."""


class StrataDraws:
    """Draws the statistics of a design with nested strata; the fixed effects are zero.

    Parameters
    ----------
    stats : the strata; their response is not used

    Raises
    ------
    ValueError
        If the remaining facets are crossed: means of groups are then not sufficient.
    """

    def __init__(self, stats: StratumStatistics) -> None:
        if stats.remainder.parents is None:
            raise ValueError("the remainder is crossed; its statistics must be drawn from rows")
        self.stats = stats
        self._strata = [_StratumDraws.of(stats, s) for s in stats.strata]

    def columns(self, v: FloatArray, rng: np.random.Generator) -> list[GroupedColumns]:
        """Return y and X of each stratum, y drawn at the components `v`, the residual last."""
        return [stratum.draw(stratum.coefficients @ v, rng) for stratum in self._strata]

    def draw(self, v: FloatArray, rng: np.random.Generator) -> StratumStatistics:
        """Return strata with a response drawn at the components `v`, (k + 1,), and no mean."""
        return self.stats.with_columns(self.columns(v, rng))


@dataclass(frozen=True, slots=True)
class _StratumDraws:
    """The draws of one stratum, eq. (10.11).

    Attributes
    ----------
    coefficients : (L + 1, k + 1) M, eq. (3.2)
    vectors : number of independent vectors
    parents, n : the groups, as in the remainder, and observations of the innermost
    df_within : degrees of freedom within innermost groups
    means, within : of the columns of X, (q, p, vectors) and (p, p)
    factor : (p, rank) F with FF' their products within groups
    """

    coefficients: FloatArray
    vectors: int
    parents: tuple[IntArray, ...]
    n: FloatArray
    df_within: float
    means: FloatArray
    within: FloatArray
    factor: FloatArray

    @classmethod
    def of(cls, stats: StratumStatistics, stratum: Stratum) -> _StratumDraws:
        n, parents = stats.remainder.tables.group_n[-1], stats.remainder.parents
        assert parents is not None
        df = stratum.multiplicity * float((n - 1.0).sum())
        within = stratum.columns.within[1:, 1:]
        shape = tuple(stats.shape[f] for f in stratum.contrasts)
        return cls(
            coefficients=stratum.coefficients,
            vectors=stratum.multiplicity,
            parents=parents,
            n=n,
            df_within=df,
            means=_in_contrasts(stratum.columns.means[0][:, 1:], shape),
            within=within,
            factor=factor_of(within, int(df)),
        )

    def draw(self, c: FloatArray, rng: np.random.Generator) -> GroupedColumns:
        """Return the columns with a new y."""
        p = self.within.shape[0]
        y = self._means(c, self._independent(rng, triangle=p == 0))
        within = np.empty((1 + p, 1 + p))
        within[1:, 1:] = self.within
        z: FloatArray = rng.standard_normal((self.factor.shape[1],))
        within[0, 1:] = within[1:, 0] = np.sqrt(c[-1]) * (self.factor @ z)
        left = self.df_within - z.size
        within[0, 0] = c[-1] * (z @ z + (rng.chisquare(left) if left > 0.0 else 0.0))
        means = y[:, None] if p == 0 else np.concatenate([y[:, None], self.means], axis=1)
        return GroupedColumns((means,), within)

    def _independent(self, rng: np.random.Generator, *, triangle: bool) -> FloatArray:
        """Return independent unit effects of all groups of all levels, or Bartlett's triangle.

        The products of their columns have the same distribution.
        """
        size = 1 + sum(parent.size for parent in self.parents)
        if not triangle or size >= self.vectors:
            return rng.standard_normal((size, self.vectors))
        lower = np.zeros((size, size))
        below = np.tri(size, k=-1, dtype=bool)
        lower[below] = rng.standard_normal(size * (size - 1) // 2)
        lower[np.diag_indices(size)] = np.sqrt(rng.chisquare(self.vectors - np.arange(size)))
        return lower

    def _means(self, c: FloatArray, unit: FloatArray) -> FloatArray:
        """Return the means of the innermost groups, (q, columns), from unit effects."""
        depth, first = len(self.parents), 0
        value = np.zeros((1, unit.shape[1]))
        for level in range(depth + 1):
            size = 1 if level == 0 else self.parents[level - 1].size
            part = unit[first : first + size]
            first += size
            if level:
                value = value[self.parents[level - 1]]
            if level == depth:
                break
            value = value + np.sqrt(c[level]) * part
        return value + np.sqrt(c[depth] + c[-1] / self.n)[:, None] * part


def _in_contrasts(columns: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return columns (q, p, Π n), which sum to zero along their axes, in n − 1 contrasts each."""
    q, p = columns.shape[:2]
    if p == 0:
        return np.zeros((q, 0, int(np.prod([n - 1 for n in shape], dtype=int))))
    table = columns.reshape((q, p, *shape))
    for axis, n in enumerate(shape):
        table = np.moveaxis(np.tensordot(_helmert(n), table, (1, 2 + axis)), 0, 2 + axis)
    return np.ascontiguousarray(table).reshape((q, p, -1))


def _helmert(n: int) -> FloatArray:
    """Return n − 1 orthonormal contrasts of n levels, the rows."""
    i = np.arange(1, n, dtype=float)[:, None]
    j = np.arange(n)[None, :]
    return np.where(j < i, 1.0, np.where(j == i, -i, 0.0)) / np.sqrt(i * (i + 1.0))


def factor_of(products: FloatArray, most: int) -> FloatArray:
    """Return F with FF' = products, without columns at rounding error, and the `most` largest."""
    scale = np.sqrt(np.diagonal(products))
    there = scale > 0.0
    factor = np.zeros((scale.size, 0))
    if there.any():
        s = scale[there]
        values, vectors = np.linalg.eigh(products[np.ix_(there, there)] / np.outer(s, s))
        # Either sign is an eigenvector: draws do not depend on which one is found.
        largest = np.argmax(np.abs(vectors) > 0.999 * np.abs(vectors).max(axis=0), axis=0)
        vectors = vectors * np.sign(np.take_along_axis(vectors, largest[None], axis=0))
        kept = values > _DEPENDENT
        factor = np.zeros((scale.size, int(kept.sum())))
        factor[there] = s[:, None] * vectors[:, kept] * np.sqrt(values[kept])
    return factor[:, max(factor.shape[1] - most, 0) :]


_BLOCK = 262_144
"""Rows of a block, which does not change the numbers."""


class RowDraws:
    """Draws the statistics of any design from rows or cells; the fixed effects are zero.

    Only sums with the response are drawn; pair tables and groups are those of the data.

    Parameters
    ----------
    stats : of the data, with their rows or cells
    """

    def __init__(self, stats: Statistics) -> None:
        self._stats, self._rows = stats, stats.cells
        self._inside = None if self._rows.within is None else _Inside(self._rows)
        self._each = None if self._rows.products is None else _InsideEach(self._rows)

    def draw(self, v: FloatArray, rng: np.random.Generator) -> Statistics:
        """Return statistics of a response drawn at the components `v`, (k + 1,), and no mean."""
        if self._each is not None:
            y, effects, variances = _of_matrices(self._rows, v, rng)
            return self._stats.with_response(y, products=self._each.draw(effects, variances, rng))
        y = draw_errors(self._rows, v, rng)
        within = None if self._inside is None else self._inside.draw(v[-1], rng)
        return self._stats.with_response(y, within)


class _Inside:
    """Draws the squares and products of scores within cells.

    Parameters
    ----------
    cells : of which some or all hold several scores
    """

    def __init__(self, cells: Chunk) -> None:
        assert cells.within is not None
        self._within = cells.within
        df = cells.n - cells.response.size
        self._factor = factor_of(self._within[1:, 1:], df)
        self._left = df - self._factor.shape[1]

    def draw(self, variance: float, rng: np.random.Generator) -> FloatArray:
        """Return the products of a new y and X, (1 + p, 1 + p)."""
        within = self._within.copy()
        z: FloatArray = rng.standard_normal((self._factor.shape[1],))
        within[0, 1:] = within[1:, 0] = np.sqrt(variance) * (self._factor @ z)
        rest = rng.chisquare(self._left) if self._left > 0 else 0.0
        within[0, 0] = variance * (z @ z + rest)
        return within


class _InsideEach:
    """Draws the squares and products of scores within each cell, where columns of effects vary.

    Parameters
    ----------
    cells : with the products of y, X and the columns of effects in each
    """

    def __init__(self, cells: Chunk) -> None:
        assert cells.products is not None
        self._products, self._first = cells.products, cells.n_fixed
        self._columns = np.moveaxis(self._products[1:, 1:], 2, 0)
        scale = np.sqrt(np.diagonal(self._columns, axis1=1, axis2=2))
        unit = np.where(scale > 0.0, scale, 1.0)
        values, vectors = np.linalg.eigh(self._columns / (unit[:, :, None] * unit[:, None, :]))
        df = np.ones(len(scale)) if cells.counts is None else cells.counts
        # A cell of n scores has n − 1 dimensions, of which the columns take the largest first.
        last = np.arange(scale.shape[1])[::-1]
        self._kept = (values > _DEPENDENT) & (last < df[:, None] - 1.0)
        roots = np.sqrt(np.where(self._kept, values, 0.0))
        self._factor = scale[:, :, None] * vectors * roots[:, None, :]
        self._left = df - 1.0 - self._kept.sum(axis=1)

    def draw(
        self, effects: Sequence[FloatArray], variances: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Return the products of a new y, X and the columns of effects in each cell.

        Parameters
        ----------
        effects : for each term the (n,) effects that its column is multiplied by
        variances : (n,) of the residuals of scores of weight 1
        """
        z = rng.standard_normal(self._kept.shape) * self._kept
        u = np.zeros(z.shape)
        u[:, self._first :] = np.column_stack(effects)
        with_errors = np.sqrt(variances)[:, None] * (self._factor @ z[:, :, None])[:, :, 0]
        with_effects = (self._columns @ u[:, :, None])[:, :, 0]
        rest = np.square(z).sum(axis=1) + 2.0 * rng.standard_gamma(0.5 * self._left)
        products = self._products.copy()
        products[0, 1:] = products[1:, 0] = (with_effects + with_errors).T
        squares = (u * (with_effects + 2.0 * with_errors)).sum(axis=1)
        products[0, 0] = squares + variances * rest
        return products


def draw_errors(
    rows: Chunk, v: FloatArray, rng: np.random.Generator, *, block: int = _BLOCK
) -> FloatArray:
    """Return Σ Z_t u_t + e, (n,), normal with the components `v`, the residual last.

    For cells these are means. Terms with a component of zero do not use random numbers.

    Parameters
    ----------
    rows : coded, or cells
    v : (k + 1,) not negative
    rng : a stream of its own for each response
    block : number of rows to which effects are added at a time; the numbers do not depend on it
    """
    n, times = rows.response.size, rows.multiplicity
    errors = np.zeros(n)
    if rows.blocks is not None:
        return _of_matrices(rows, v, rng)[0]
    for t, size in enumerate(rows.sizes):
        if v[t] > 0.0:
            effects = rng.standard_normal(size) * np.sqrt(v[t])
            for some in slices(n, block):
                errors[some] += effects[rows.codes[t][some]]
    for some in slices(n, block):
        part = errors[some]
        e = rng.standard_normal(part.size) * np.sqrt(v[-1])
        part += e if times is None else e / np.sqrt(times[some])
    return errors


def _of_matrices(
    rows: Chunk, v: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, list[FloatArray], FloatArray]:
    """Return Σ Z_t u_t + e of rows, with correlated effects of each bar.

    The effects of each term in the rows follow, and the variances of residuals of weight 1.
    """
    blocks = rows.blocks
    assert blocks is not None
    assert rows.effects is not None
    errors = np.zeros(rows.response.size)
    by_term: dict[int, FloatArray] = {}
    for term, matrix in zip(blocks.terms, blocks.centred_matrices(v), strict=True):
        values, vectors = np.linalg.eigh(matrix)
        factor = vectors * np.sqrt(np.maximum(values, 0.0))
        effects = rng.standard_normal((rows.sizes[term[0]], len(term))) @ factor.T
        for t, u in zip(term, effects.T, strict=True):
            z, own = rows.effects[t], u[rows.codes[t]]
            errors += own if z is None else own * z
            by_term[t] = own
    residuals = v[-blocks.n_residuals :]
    variances = np.full(errors.size, residuals[0])
    if rows.residual_codes is not None:
        variances = residuals[rows.residual_codes]
    of_rows = variances if rows.multiplicity is None else variances / rows.multiplicity
    errors += rng.standard_normal(errors.size) * np.sqrt(of_rows)
    return errors, [by_term[t] for t in range(len(by_term))], variances


class Responses(tuple[Statistics, ...]):
    """Statistics of drawn responses, with what several refits of the same ones compute of them."""

    def shared(self, name: str, make: Callable[[], Made]) -> Made:
        """Return what `make` returned for this name first."""
        if name not in self.__dict__:
            self.__dict__[name] = make()
        return self.__dict__[name]


class Draws(Protocol):
    """A source of the statistics of a fit with drawn responses."""

    def draw(self, v: FloatArray, rng: np.random.Generator) -> Statistics:
        """Return the statistics of a response drawn at the components `v`, and no mean."""


@dataclass(frozen=True, slots=True)
class _OfStrata:
    strata: StrataDraws
    data: Statistics

    def draw(self, v: FloatArray, rng: np.random.Generator) -> Statistics:
        return Statistics.from_strata(self.strata.draw(v, rng), like=self.data)


def draws_of(stats: Statistics, recipe: Recipe) -> Draws:
    """Return the source of drawn statistics for an estimator.

    Parameters
    ----------
    stats : of the data
    recipe : the estimator; REML and ML use strata if there are any, whatever the requested engine,
        as the likelihood is the same

    Raises
    ------
    EstimationError
        If the rows that are needed would not fit into memory.
    DataError
        If there are no rows.
    """
    strata = stats.strata
    by_likelihood = isinstance(recipe.estimator, LikelihoodMethod)
    nested = strata is not None and strata.remainder.parents is not None
    if strata is not None and nested and (by_likelihood or _needs_strata_only(strata, recipe)):
        return _OfStrata(StrataDraws(strata), stats)
    # A response, its square, and the groups of each row in each term.
    check_memory(
        stats.cells.response.size * (24.0 + 4.0 * stats.n_terms),
        f"drawing {stats.n:,} rows needs",
        "use fewer rows, or one worker",
    )
    return RowDraws(stats)


def _needs_strata_only(strata: StratumStatistics, recipe: Recipe) -> bool:
    """Whether an estimator in closed form needs strata only."""
    if recipe.estimator.name == "anova":
        return True
    if recipe.negative == "refit":
        return False
    try:
        stats = Statistics.from_strata(strata)
        cast(ClosedForm, recipe.estimator).prepared(stats, recipe.names)([stats])
    except DataError:
        return False
    return True


def simulate_responses(
    rows: Chunk,
    v: FloatArray,
    beta: FloatArray,
    n: int,
    rng: int | np.random.Generator | None = None,
    *,
    free_bytes: Callable[[], float] = available_bytes,
) -> FloatArray:
    """Return responses drawn from the model, (rows, n): Xβ + Σ Z_t u_t + e.

    Parameters
    ----------
    rows : coded
    v : (k + 1,) components, not negative, the residual last
    beta : (p,) fixed effects of the centred columns of X
    n : number of responses
    rng : seed, or a generator from which one is drawn; 0 if not given. Response j has its own
        stream ``SeedSequence(seed, spawn_key=(j,))``
    free_bytes : returns the free memory

    Raises
    ------
    EstimationError
        If an option is invalid, a fixed effect is not known, or the responses would not fit into
        memory.
    """
    n, seed = check_count(n, "n"), seed_from(rng)
    if not np.isfinite(beta).all():
        raise EstimationError(
            "the fixed effects of this fit are not known, so that responses have no mean; "
            "use method='reml'"
        )
    # The codes of the rows in every term are made as well.
    check_memory(
        8.0 * rows.n * (n + 3.0) + 4.0 * rows.n * len(rows.terms),
        f"{n:,} responses of {rows.n:,} rows need",
        "simulate fewer at a time, with another rng= each time",
        free_bytes=free_bytes,
    )
    mean = rows.origin + rows.columns @ (beta + rows.beta_origin)
    simulated = np.empty((rows.n, n), order="F")
    for j in range(n):
        simulated[:, j] = mean + draw_errors(rows, v, stream(seed, j))
    return simulated
