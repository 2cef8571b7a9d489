"""The design of rows in memory: levels, origins, terms and structure.

It makes the second value of the pipe formula → design → statistics → estimate → result, and
refuses terms that cannot be estimated before anything is summed. Groups of rows with a residual
variance each are found here too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.data import Rows, alike_levels, plain_label
from vcomp.design.design import Design, Facet, ResidualLevels
from vcomp.design.effect_columns import bars_of_rows, learn_blocks
from vcomp.design.grid import Grid, TermDesign, find_grid, find_partial_grid, number_combinations
from vcomp.design.nesting import CountedPairs, describe_structure
from vcomp.exceptions import DataError, DesignError, warn
from vcomp.formula import RESIDUAL, WIDE, FixedPart, Formula, ResidualGroups, fixed_effects
from vcomp.numerics import MixedColumns, dense_columns

if TYPE_CHECKING:
    import pandas as pd


def residual_of_rows(groups: ResidualGroups, rows: Rows) -> ResidualLevels:
    """Return the groups of residuals that occur in rows, as :func:`learn_residual` does.

    Parameters
    ----------
    groups : with the names of their facets
    rows : all rows
    """
    columns = [rows.facets[name] for name in groups.facets]
    facets = tuple(
        Facet(name, column.cat.categories)
        for name, column in zip(groups.facets, columns, strict=True)
    )
    codes = [np.asarray(f.codes(c), np.int32) for f, c in zip(facets, columns, strict=True)]
    return learn_residual(groups, facets, codes)


def learn_residual(
    groups: ResidualGroups,
    facets: tuple[Facet, ...],
    codes: Sequence[IntArray],
    counts: FloatArray | None = None,
) -> ResidualLevels:
    """Return the groups of residuals that occur.

    Parameters
    ----------
    groups : with the names of their facets
    facets : with their levels
    codes : (n,) levels of the rows or cells in each
    counts : (n,) rows of each cell; None for rows

    Raises
    ------
    DesignError
        If there is one group only, a group has one row, or two groups have the same name.
    """
    joined, size = codes[0], facets[0].size
    keys: list[LongArray | None] = []
    for further, facet in zip(codes[1:], facets[1:], strict=True):
        occurring, joined = number_combinations(joined, size, further, facet.size)
        keys.append(occurring)
        size = occurring.size
    term = TermDesign(RESIDUAL, tuple(range(len(facets))), tuple(keys), size)
    labels = zip(
        *(
            [str(plain_label(facet.levels[k])) for k in of.tolist()]
            for facet, of in zip(
                facets, term.level_codes(tuple(f.size for f in facets)), strict=True
            )
        ),
        strict=True,
    )
    n = np.bincount(joined, counts, minlength=size)
    named = replace(groups, levels=tuple(labels), n=tuple(map(int, n)))
    _check(named)
    return ResidualLevels(facets, term, named)


def _check(groups: ResidualGroups) -> None:
    """Refuse groups whose variances cannot be estimated or named."""
    written = f"residual={groups.written!r}"
    if len(groups.n) == 1:
        raise DesignError(
            f"{written} has one level only; a comparison of residual variances needs two: leave "
            "residual= out",
            term=RESIDUAL,
        )
    least = int(np.argmin(groups.n))
    if groups.n[least] == 1:
        level = groups.level_name(groups.levels[least])
        n_single = groups.n.count(1)
        more = f", and so have {n_single - 1} more levels" if n_single > 1 else ""
        raise DesignError(
            f"{written}: {level} has one row{more}, and a variance needs two at least; join it "
            "with another level, leave its row out, or leave residual= out",
            term=RESIDUAL,
            level=level,
        )
    twice = [name for name, count in Counter(groups.names).items() if count > 1]
    if twice:
        raise DesignError(
            f"two levels have the name {twice[0]!r}; name them differently", term=RESIDUAL
        )


_MANY_TEXTS = 100_000
"""Largest number of levels that are searched for names that look alike."""

_MANY = 1_000_000
"""Largest number of cells from which the combinations of a term are numbered directly."""


def learn(
    formula: Formula, rows: Rows, environment: Any, counted: CountedPairs | None = None
) -> Design:
    """Return the design of the rows, whose terms can be estimated.

    Parameters
    ----------
    environment : patsy's ``EvalEnvironment`` of the caller
    counted : receives how often levels of two facets occur together, by positions of facets, where
        that was counted

    Raises
    ------
    DataError
        If numbers are so large or small that their squares overflow or vanish.
    DesignError
        If a facet has one level only, or a name that components have, or a term has one row in
        every group (that is the residual).
    EstimationError
        If the columns of the fixed part do not fit into memory.
    FormulaError
        If the fixed part cannot be evaluated.
    """
    levels = {f: rows.facets[f].cat.categories for f in formula.facets}
    facets = find_facets(levels, rows.fixed)
    codes = tuple(
        np.asarray(facet.codes(rows.facets[facet.name]), dtype=np.int32) for facet in facets
    )
    n_levels, n = tuple(len(facet.levels) for facet in facets), rows.y.size
    grid = find_grid(codes, n_levels, formula.positions)
    residual, blocks = None, None
    if formula.groups is not None:
        residual = residual_of_rows(formula.groups, rows)
        formula = replace(formula, groups=residual.groups)
    if formula.has_slopes or residual is not None:
        bars = bars_of_rows(formula, rows.fixed, environment, n)
        formula, blocks = learn_blocks(formula, bars)
    groups = n if rows.weights is None else None
    terms = find_terms(formula, codes, n_levels, grid, groups)
    fixed = FixedPart.of_rows(formula, lambda: [rows.fixed], environment, n, WIDE.factor)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is refused
        centre = _centre(formula, fixed, rows)
    design = make_design(formula, facets, terms, fixed, centre, n, grid, codes, counted=counted)
    return design if blocks is None else replace(design, blocks=blocks, residual=residual)


def make_design(
    formula: Formula,
    facets: tuple[Facet, ...],
    terms: tuple[TermDesign, ...],
    fixed: FixedPart,
    centre: Centre,
    n_rows: int,
    grid: Grid | None,
    codes: Sequence[IntArray] = (),
    counts: FloatArray | None = None,
    counted: CountedPairs | None = None,
) -> Design:
    """Return the design with its structure, and with the partial grid that single scores fill.

    Parameters
    ----------
    codes : (n,) level of each row or cell in each facet; a complete grid does not need them
    counts : (n,) scores of each cell; None where `codes` are those of rows
    counted : as of :func:`learn`
    """
    labels = [facet.levels for facet in facets]
    n_levels = [len(levels) for levels in labels]
    holes = grid is None and counts is None
    effects = frozenset() if formula.intercept_only else fixed_effects(fixed)
    return Design(
        formula=formula,
        facets=facets,
        terms=terms,
        fixed=fixed,
        origin=centre.origin,
        x_origin=centre.x_origin,
        constant=centre.constant,
        beta_origin=centre.beta_origin,
        structure=describe_structure(
            formula, n_levels, codes, n_rows, grid, labels, counts, effects, counted
        ),
        grid=grid,
        partial_grid=find_partial_grid(codes, n_levels) if holes else None,
    )


Ends = tuple[Any, Any, Any]
"""The smallest value, the largest and the mean: numbers, or (p,) arrays of columns."""


@dataclass(frozen=True, slots=True)
class Centre:
    """Origins, subtracted from y and the columns of X before any product.

    Attributes
    ----------
    origin, x_origin, constant, beta_origin : as of :class:`~vcomp.design.Design`
    """

    origin: float
    x_origin: FloatArray
    constant: FloatArray
    beta_origin: FloatArray | float = 0.0

    DOMINATED: ClassVar[float] = 1e-4
    """Share of y'y that least squares leaves, below which the fixed part is subtracted from y
    before squares are taken: a larger one costs four of sixteen digits at most."""

    @classmethod
    def of(
        cls,
        formula: Formula,
        names: tuple[str, ...],
        constant: FloatArray,
        y: Ends,
        X: Ends | None = None,
    ) -> Centre:
        """Return the means as origins if the model has a constant, which absorbs them; else zeros.

        Columns of the constant have the origin 0: their combination stays the constant.

        Parameters
        ----------
        names : (p,) of the columns of X
        constant : (p,) the combination of the columns that is the constant; zeros if none is
        y, X : ends and mean of the response and of the columns; None for an intercept alone

        Raises
        ------
        DataError
            If the response or a column varies by so much or so little that powers of it overflow
            or vanish.
        """
        low, high, mean = y
        origin = mean if constant.any() else 0.0
        spreads = {f"the response {formula.response!r}": max(high - origin, origin - low)}
        x_origin = np.zeros(constant.size)
        if X is not None:
            if constant.any():
                x_origin = np.where(constant != 0.0, 0.0, X[2])
            with np.errstate(over="ignore"):  # overflow is refused below
                widest = np.maximum(X[1] - x_origin, x_origin - X[0])
            for name, spread in zip(names, widest.tolist(), strict=True):
                spreads[f"column {name!r} of the fixed part"] = spread
        for what, spread in spreads.items():
            # The information contains eighth powers of the values.
            if spread != 0.0 and not 1e-35 < spread < 1e35:
                raise DataError(
                    f"{what} varies by {spread:.1g}, too far from 1 to compute with; rescale it"
                )
        return cls(origin, x_origin, constant)

    @classmethod
    def of_columns(
        cls,
        formula: Formula,
        names: tuple[str, ...],
        y: Ends,
        X: FloatArray | MixedColumns,
        counts: FloatArray,
    ) -> Centre:
        """Return the origins of cells, in which no column of X varies.

        Parameters
        ----------
        names, y : as of :meth:`of`
        X : (m, p) the columns
        counts : (m,) rows of each cell
        """
        is_sparse = np.zeros(len(names), dtype=bool)
        if isinstance(X, MixedColumns):
            low, high, mean = X.ends(counts)
            is_sparse[X.sparse_at] = True
        else:
            low, high, mean = X.min(axis=0), X.max(axis=0), counts @ X / counts.sum()
        mean = np.where(is_sparse, 0.0, np.where(low == high, low, mean))
        if "Intercept" in names:
            constant = np.array([float(name == "Intercept") for name in names])
        else:
            constant = _constant_combination(names, dense_columns(X))
        return cls.of(formula, names, constant, y, (low, high, mean))

    @staticmethod
    def constant_of(names: tuple[str, ...], mean: FloatArray, cov: FloatArray) -> FloatArray:
        """Return a with X a = 1, within the digits of sums of squares; zeros without such an a.

        Parameters
        ----------
        names : (p,) of the columns of X
        mean : (p,) their means
        cov : (p, p) their covariance matrix, exactly zero for columns that are constant
        """
        return _constant_of_sums(names, mean, cov)

    @staticmethod
    def is_one(away: float) -> bool:
        """Whether the largest difference of X a from 1 is the rounding of a sum."""
        return away < _ROUNDING


def _centre(formula: Formula, fixed: FixedPart, rows: Rows) -> Centre:
    """Return the origins of the response and of the columns of X."""
    low, high = float(rows.y.min()), float(rows.y.max())
    # The origin of a constant response is its value, so that it is centred to exact zeros.
    y = low, high, low if low == high else float(rows.y.mean())
    if formula.intercept_only:
        return Centre.of(formula, fixed.names, np.ones(1), y)
    ends = fixed.ends(rows.fixed, rows.y.size)
    if "Intercept" in fixed.names:
        constant = np.array([float(name == "Intercept") for name in fixed.names])
    else:
        constant = _constant_combination(fixed.names, fixed.matrix(rows.fixed, rows.y.size))
    means = np.where(ends.is_sparse, 0.0, ends.mean)
    return Centre.of(formula, fixed.names, constant, y, (ends.low, ends.high, means))


def find_facets(levels: Mapping[str, pd.Index], fixed: Mapping[str, Any]) -> tuple[Facet, ...]:
    """Return the facets with their levels, in order.

    Parameters
    ----------
    levels : by facet
    fixed : the columns of the fixed part, whose factors are checked as well

    Raises
    ------
    DesignError
        If one has one level only, or the name that the residual has.
    """
    if fixed:
        _check_factors(fixed)
    if RESIDUAL in levels:
        raise DesignError(f"{RESIDUAL!r} is the name of the last component; rename the facet")
    for name, found in levels.items():
        if len(found) == 1:
            raise DesignError(
                f"facet {name!r} has one level only ({plain_label(found[0])!r}); a variance needs "
                "at least two",
                column=name,
            )
        if found.dtype.kind not in "iufbmM":
            _warn_of_alike(name, found)
            if "." in found:
                warn(
                    f"facet {name!r} has the level '.', which marks a missing value in SAS; if it "
                    "does here, leave these rows out or replace it by None"
                )
    return tuple(Facet(name, found) for name, found in levels.items())


def _check_factors(fixed: Mapping[str, Any]) -> None:
    """Warn of factors of the fixed part with levels that look alike; refuse those of one name.

    Parameters
    ----------
    fixed : the columns of the fixed part, factors as ``pandas.Categorical``

    Raises
    ------
    DataError
        If two levels have the same name, which columns of X then have.
    """
    for name, column in fixed.items():
        levels = getattr(column, "categories", None)
        if levels is None or levels.dtype.kind in "iufbmM":
            continue
        names = [str(level) for level in levels]
        if len(set(names)) < len(names):
            twice = next(n for n in names if names.count(n) > 1)
            same = [level for level in levels if str(level) == twice]
            raise DataError(
                f"factor {name!r} of the fixed part has the levels "
                f"{' and '.join(map(repr, same))}, whose columns would have one name; make them "
                "equal or name them differently",
                column=name,
            )
        _warn_of_alike(name, levels, "factor")


def find_terms(
    formula: Formula,
    codes: Sequence[IntArray],
    n_levels: tuple[int, ...],
    grid: Grid | None,
    n_rows: int | None,
) -> tuple[TermDesign, ...]:
    """Return the random terms; with a complete grid the codes of rows are not needed.

    Parameters
    ----------
    n_rows : number of rows, which no term may have as groups; None where rows have weights, so
        that a term of one row in each group differs from the residual

    Raises
    ------
    DesignError
        If a term has one row in every group.
    """
    terms = tuple(
        _find_term(term.name, facets, tuple(codes), n_levels, grid)
        for term, facets in zip(formula.random, formula.positions, strict=True)
    )
    for term, of in zip(terms, formula.random, strict=True):
        if term.size == n_rows:
            expanded = len(term.facets) > 1 and len(terms) > 1
            hint = " (a*b is a + b + a:b, and a/b is a + a:b)" if expanded else ""
            raise DesignError(
                f"term {term.name!r} has one row in each of its {n_rows} groups: that is the "
                f"residual, which every model has; leave {of.written} out of the formula{hint}",
                term=term.name,
            )
    return terms


def _warn_of_alike(name: str, levels: pd.Index, what: str = "facet") -> None:
    """Warn of levels that differ only in how they are written."""
    if len(levels) > _MANY_TEXTS:
        return
    alike = alike_levels(levels)
    if alike:
        shown = " and ".join(map(repr, alike[0]))
        more = f", and {len(alike) - 1:,} more such groups," if len(alike) > 1 else ""
        warn(
            f"{what} {name!r} has levels that look alike: {shown}{more} differ only in case, "
            "blanks or type. They are treated as different levels; make them equal if they are "
            "the same"
        )


def _find_term(
    name: str,
    facets: tuple[int, ...],
    codes: tuple[IntArray, ...],
    n_levels: tuple[int, ...],
    grid: Grid | None,
) -> TermDesign:
    """Return a term with the combinations of its facets that occur."""
    if len(facets) == 1:
        return TermDesign(name, facets, (), n_levels[facets[0]])
    all_occur = frozenset[int]()
    if grid is None:
        codes = tuple(codes[f] for f in facets)
    else:
        facets, codes, all_occur = _grid_codes(facets, n_levels, grid)
    groups, size = codes[0], n_levels[facets[0]]
    keys: list[LongArray | None] = []
    for position, facet in enumerate(facets[1:], start=1):
        if facet in all_occur:
            keys.append(None)
            size *= n_levels[facet]
            continue
        occurring, groups = number_combinations(groups, size, codes[position], n_levels[facet])
        keys.append(occurring)
        size = occurring.size
    return TermDesign(name, facets, tuple(keys), size)


def _grid_codes(
    facets: tuple[int, ...], n_levels: tuple[int, ...], grid: Grid
) -> tuple[tuple[int, ...], tuple[IntArray, ...], frozenset[int]]:
    """Return the order of joining facets, codes that hold every combination, and the free facets.

    All combinations of a free facet with the facets before it occur, so that it needs no codes.
    All facets are free if at most one is not an axis. Where combinations are many, axes come
    last, and are free.
    """
    nothing = np.zeros(0, np.int32)
    rest = tuple(f for f in facets if f not in grid.axes)
    if len(rest) <= 1:
        return facets, tuple(nothing for _ in facets), frozenset(facets)
    levels = {f: grid.levels[grid.rest.index(f)] for f in rest}
    distinct: Sequence[IntArray] = [levels[f] for f in rest]
    if not {f for f, _ in grid.joins} <= set(rest):  # which the cells are combinations of
        distinct = _distinct(distinct)
    axes = tuple(f for f in facets if f in grid.axes)
    if distinct[0].size * prod(n_levels[f] for f in axes) > _MANY:
        return (*rest, *axes), (*distinct, *(nothing for _ in axes)), frozenset(axes)
    shape = (*(n_levels[f] for f in axes), distinct[0].size)
    *places, cells = np.indices(shape, dtype=np.int32, sparse=True)
    columns = dict(zip(axes, places, strict=True))
    columns |= {f: level[cells] for f, level in zip(rest, distinct, strict=True)}
    codes = tuple(np.broadcast_to(columns[f], shape).ravel() for f in facets)
    return facets, codes, frozenset()


def _distinct(levels: Sequence[IntArray]) -> Sequence[IntArray]:
    """Return the combinations of levels that occur, sorted, the levels of each facet."""
    groups, size = levels[0], int(levels[0].max()) + 1
    for further in levels[1:]:
        keys, groups = number_combinations(groups, size, further, int(further.max()) + 1)
        size = keys.size
    cell = np.full(size, -1, np.int64)
    cell[groups] = np.arange(groups.size)
    return [level[cell] for level in levels]


def _constant_combination(names: tuple[str, ...], X: FloatArray) -> FloatArray:
    """Return a with X a = 1 (a full set of dummies); zeros without such an a."""
    mean = X.mean(axis=0)
    low = X.min(axis=0, initial=np.inf)
    mean = np.where(low == X.max(axis=0, initial=-np.inf), low, mean)  # exact of a constant
    centred = X - mean
    a = _constant_of_sums(names, mean, centred.T @ centred / max(len(X), 1))
    return a if Centre.is_one(float(np.abs(X @ a - 1.0).max(initial=0.0))) else np.zeros(a.size)


_ROUNDING = 1e-11
"""Largest difference from 1, by rounding, of a combination of columns that is the constant.

The origin of the response is multiplied by it, and may be 10⁹ times its spread.
"""

_SHARE = 1e-6
"""Smallest part of a column in the constant that is not rounding error."""

_NO_VARIANCE = 1e-12
"""Variance below which a combination of scaled columns varies by rounding only."""


def _constant_of_sums(names: tuple[str, ...], mean: FloatArray, cov: FloatArray) -> FloatArray:
    """Return a with X a = 1, within the digits of sums of squares; zeros without such an a.

    It is the shortest combination of the columns without variance, on the scale of their
    correlations, that has the mean 1.

    Parameters
    ----------
    names : (p,) of the columns of X
    mean : (p,) their means
    cov : (p, p) their covariance matrix, exactly zero for columns that are constant
    """
    if "Intercept" in names:
        return np.array([float(name == "Intercept") for name in names])
    a = np.zeros(len(names))
    if not a.size:
        return a
    sd = np.sqrt(np.diagonal(cov))
    scale = np.where(sd > 0.0, sd, np.abs(mean))
    scale = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
    free = vectors[:, values < _NO_VARIANCE * a.size]
    along = free.T @ (mean / scale)
    shortest = free @ along / scale
    if not abs(float(mean @ shortest)) > 0.0:
        return a
    shortest = shortest / float(mean @ shortest)
    support = np.abs(shortest) * np.hypot(mean, sd) >= _SHARE
    # Solve again for the columns of the constant alone, without rounding from the others.
    means, S = mean[support], cov[np.ix_(support, support)]
    gram, scale = S + np.outer(means, means), np.hypot(means, sd[support])
    gram = gram / np.outer(scale, scale)
    for _ in range(3):
        b = a[support]
        rest = means * (1.0 - float(means @ b)) - S @ b
        a[support] += np.linalg.lstsq(gram, rest / scale, rcond=None)[0] / scale
    return a
