"""The design of rows in memory: levels, origins, terms and structure.

It makes the second value of the pipe formula → design → statistics → estimate → result, and
refuses terms that cannot be estimated before anything is summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.data import Rows, alike_levels
from vcomp.design.design import Design, Facet, TermDesign, facet_codes
from vcomp.design.grid import Grid, find_grid, find_partial_grid, number_combinations
from vcomp.design.nesting import describe_structure
from vcomp.exceptions import DataError, DesignError, warn
from vcomp.formula import RESIDUAL, FixedPart, Formula
from vcomp.numerics import check_memory

if TYPE_CHECKING:
    import pandas as pd

_MANY_TEXTS = 100_000
"""Number of levels up to which they are compared with each other."""

_MANY = 1_000_000
"""Number of combinations of levels up to which they are numbered one by one."""


def learn(formula: Formula, rows: Rows, environment: Any) -> Design:
    """Learn levels and origin from the rows, and check that the terms can be estimated.

    Raises
    ------
    DataError
        If there are fewer rows than parameters, or numbers are so large or small that their
        squares are not.
    DesignError
        If a facet has one level only, or a name that components have, or a term has one row in
        every group (that is the residual).
    FormulaError
        If the fixed part cannot be evaluated.
    """
    facets = learn_facets({f: rows.facets[f].cat.categories for f in formula.facets})
    codes = tuple(
        np.asarray(facet_codes(facet, rows.facets[facet.name]), dtype=np.int32) for facet in facets
    )
    labels = [facet.levels for facet in facets]
    n_levels, n = tuple(map(len, labels)), rows.y.size
    terms, grid = code_terms(formula, codes, n_levels)
    if rows.fixed:
        _check_codings(rows)
    if formula.intercept_only:
        fixed = FixedPart(("Intercept",))
    else:
        fixed = FixedPart.of_rows(formula, lambda: [rows.fixed], environment)
    check_parameters(n, len(fixed.names), len(terms))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
        if formula.intercept_only:
            centre = _centre_of_response(formula, rows.y)
        else:
            centre = _centre(formula, fixed, rows.y, fixed.matrix(rows.fixed, n))
    return Design(
        formula=formula,
        facets=facets,
        terms=terms,
        fixed=fixed,
        origin=centre.origin,
        x_origin=centre.x_origin,
        constant=centre.constant,
        structure=describe_structure(formula, n_levels, codes, n, grid, labels),
        grid=grid,
        partial_grid=find_partial_grid(codes, n_levels) if grid is None else None,
    )


@dataclass(frozen=True, slots=True)
class Centre:
    """What is subtracted before any product; see :class:`~vcomp.design.Design`."""

    origin: float
    x_origin: FloatArray
    constant: FloatArray


def learn_facets(levels: Mapping[str, pd.Index]) -> tuple[Facet, ...]:
    """Return the facets with their levels, in order.

    Raises
    ------
    DesignError
        If one has one level only, or the name that the residual has.
    """
    if RESIDUAL in levels:
        raise DesignError(f"{RESIDUAL!r} is the name of the last component; rename the facet")
    for name, found in levels.items():
        if len(found) == 1:
            raise DesignError(
                f"facet {name!r} has one level only ({_plain(found[0])!r}); a variance needs at "
                "least two"
            )
        if found.dtype.kind not in "iufbmM":
            _warn_of_alike(name, found)
    return tuple(Facet(name, found) for name, found in levels.items())


def check_parameters(n_rows: int, n_fixed: int, n_terms: int) -> None:
    """Refuse fewer rows than parameters.

    Raises
    ------
    DataError
    """
    n_parameters = n_fixed + n_terms + 1
    if n_rows <= n_parameters:
        raise DataError(
            f"{n_rows} rows are too few for {n_parameters} parameters "
            f"({n_fixed} fixed effects and {n_terms + 1} variance components)"
        )


def _centre_of_response(formula: Formula, y: FloatArray, *, centred: bool = True) -> Centre:
    """Return the origin of the response, whose range is checked, beside that of an intercept."""
    low, high = float(y.min()), float(y.max())
    # Of a constant response the constant itself, so that nothing is left.
    mean = low if low == high else float(y.mean())
    origin = mean if centred else 0.0
    check_range(f"the response {formula.response!r}", low, high, origin)
    return Centre(origin, np.zeros(1), np.ones(1))


def _centre(formula: Formula, fixed: FixedPart, y: FloatArray, X: FloatArray) -> Centre:
    """Return the origins of the response and the columns of X, whose range is checked."""
    constant = _constant_combination(fixed.names, X)
    origin = _centre_of_response(formula, y, centred=bool(constant.any())).origin
    x_origin = _x_origin(X, constant)
    for j, name in enumerate(fixed.names):
        ends = float(X[:, j].min()), float(X[:, j].max())
        check_range(f"column {name!r} of the fixed part", *ends, float(x_origin[j]))
    return Centre(origin, x_origin, constant)


def code_terms(
    formula: Formula, codes: Sequence[IntArray], n_levels: tuple[int, ...]
) -> tuple[tuple[TermDesign, ...], Grid | None]:
    """Return the random terms of coded rows, and the complete grid that they fill, if they do.

    Parameters
    ----------
    codes : (n,) level of each row in each facet of the formula, in its order
    n_levels : numbers of levels, all of which occur

    Raises
    ------
    DesignError
        If a term has one row in every group.
    """
    places = [tuple(formula.facets.index(f) for f in term.facets) for term in formula.random]
    grid = find_grid(codes, n_levels, places)
    return learn_terms(formula, codes, n_levels, grid, int(codes[0].size)), grid


def learn_terms(
    formula: Formula,
    codes: Sequence[IntArray],
    n_levels: tuple[int, ...],
    grid: Grid | None,
    n_rows: int,
) -> tuple[TermDesign, ...]:
    """Return the random terms; of a complete grid the cells suffice, and no codes are needed.

    Raises
    ------
    DesignError
        If a term has one row in every group.
    """
    terms = tuple(
        _learn_term(
            term.name, tuple(map(formula.facets.index, term.facets)), tuple(codes), n_levels, grid
        )
        for term in formula.random
    )
    for term in terms:
        if term.size == n_rows:
            expanded = len(term.facets) > 1 and len(terms) > 1
            hint = " (a*b is a + b + a:b, and a/b is a + a:b)" if expanded else ""
            raise DesignError(
                f"term {term.name!r} has one row in each of its {n_rows} groups: that is the "
                f"residual, which every model has; leave (1|{term.name}) out of the formula{hint}"
            )
    return terms


def _warn_of_alike(name: str, levels: pd.Index) -> None:
    """Warn of levels that differ in writing only, as if one were meant."""
    if len(levels) > _MANY_TEXTS:
        return
    alike = alike_levels(levels)
    if alike:
        shown = " and ".join(map(repr, alike[0]))
        more = f", and {len(alike) - 1:,} more such groups," if len(alike) > 1 else ""
        warn(
            f"facet {name!r} has levels that look alike: {shown}{more} differ only in case, "
            "blanks or type. They are taken as different; make them equal if they are not"
        )


def _plain(level: Any) -> Any:
    """Return a level as Python shows it: 7, not np.int64(7)."""
    return level.item() if isinstance(level, np.generic) else level


def _learn_term(
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
    """Return the order in which facets are joined, and few rows that hold every combination.

    The last are the facets whose joins with those before occur throughout, and need no rows: all
    of them where at most one facet is no axis. So are axes that come last, as they do where
    combinations are many.
    """
    nothing = np.zeros(0, np.int32)
    rest = tuple(f for f in facets if f not in grid.axes)
    if len(rest) <= 1:
        return facets, tuple(nothing for _ in facets), frozenset(facets)
    levels = {f: grid.levels[grid.rest.index(f)] for f in rest}
    distinct = _distinct([levels[f] for f in rest])
    axes = tuple(f for f in facets if f in grid.axes)
    if distinct.shape[1] * prod(n_levels[f] for f in axes) > _MANY:
        return (*rest, *axes), (*distinct, *(nothing for _ in axes)), frozenset(axes)
    shape = (*(n_levels[f] for f in axes), distinct.shape[1])
    *places, cells = np.indices(shape, dtype=np.int32, sparse=True)
    columns = dict(zip(axes, places, strict=True))
    columns |= {f: level[cells] for f, level in zip(rest, distinct, strict=True)}
    codes = tuple(np.broadcast_to(columns[f], shape).ravel() for f in facets)
    return facets, codes, frozenset()


def _distinct(levels: Sequence[IntArray]) -> IntArray:
    """Return the combinations of levels that occur, in their order, a row for each facet."""
    groups, size = levels[0], int(levels[0].max()) + 1
    for further in levels[1:]:
        keys, groups = number_combinations(groups, size, further, int(further.max()) + 1)
        size = keys.size
    cell = np.full(size, -1, np.int64)
    cell[groups] = np.arange(groups.size)
    found: IntArray = np.stack([level[cell] for level in levels])
    return found


def check_range(what: str, low: float, high: float, origin: float) -> None:
    """Refuse numbers whose powers up to the eighth, in the information, overflow or vanish."""
    spread = max(high - origin, origin - low)
    if spread != 0.0 and not 1e-35 < spread < 1e35:
        raise DataError(
            f"{what} varies by {spread:.1g}, too far from 1 to compute with; rescale it"
        )


def _check_codings(rows: Rows) -> None:
    import pandas as pd

    sizes = {
        name: len(column.categories)
        for name, column in rows.fixed.items()
        if isinstance(column, pd.Categorical)
    }
    check_codings(sizes, len(rows))


def check_codings(sizes: Mapping[str, int], n_rows: int) -> None:
    """Refuse a fixed factor whose coding (levels × levels) and columns exceed the memory.

    Parameters
    ----------
    sizes : numbers of levels of the factors
    n_rows : of the columns that are made at a time

    Raises
    ------
    EstimationError
    """
    for name, n_levels in sizes.items():
        check_memory(
            3.0 * 8.0 * n_levels * (n_levels + n_rows),
            f"column {name!r} of the fixed part has {n_levels:,} levels, whose columns need",
            f"as a random term, (1|{name}), it needs no columns",
        )


def _x_origin(X: FloatArray, constant: FloatArray) -> FloatArray:
    """Return the column means where the constant takes up what they leave, else zeros.

    The columns that make up the constant stay as they are, so that they still make it up.
    """
    if not constant.any():
        return np.zeros(X.shape[1])
    means: FloatArray = X.mean(axis=0)
    means[constant != 0.0] = 0.0
    return means


def _constant_combination(names: tuple[str, ...], X: FloatArray) -> FloatArray:
    """Return a with X a = 1 (the intercept, or a full set of dummies); zeros if there is none."""
    a = np.zeros(X.shape[1])
    if "Intercept" in names:
        a[names.index("Intercept")] = 1.0
        return a
    if not X.shape[1]:
        return a
    largest = np.abs(X).max(axis=0)
    scale = np.where(largest > 0.0, largest, 1.0)
    gram = (X.T @ X) / np.outer(scale, scale)
    # Refined, as covariates far from zero make the equations ill-conditioned.
    for _ in range(4):
        a += np.linalg.lstsq(gram, X.T @ (1.0 - X @ a) / scale, rcond=None)[0] / scale
    a[np.abs(a) * largest < 1e-6] = 0.0
    return a if np.abs(X @ a - 1.0).max() < 1e-6 else np.zeros(X.shape[1])
