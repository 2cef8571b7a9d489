"""Checks of results that were stored: values that contradict each other are refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from vcomp._plugins import plugin_names
from vcomp.estimators import METHODS
from vcomp.formula import REPLICATE, RESIDUAL, EffectMatrix
from vcomp.inference import TwoWayMeanSquares, are_computable

_MANY = 2**53
"""Largest count up to which floats represent all whole numbers."""


def check_record(record: Any) -> None:
    """Raise a ValueError that names the part of a stored result that contradicts others.

    Parameters
    ----------
    record : a ``FitRecord`` as it was read
    """
    method, known = record.estimate.method, (*METHODS, *plugin_names("estimators"))
    if method not in known:
        raise ValueError(f"method {method!r} is not known; the methods are {', '.join(known)}")
    for name, found, shape in _shapes(record):
        if np.shape(found) != shape:
            raise ValueError(f"{name} has the shape {np.shape(found)}, and {shape} belongs there")
    for name, holds in _agreements(record):
        if not all(holds):
            raise ValueError(f"the values of {name} contradict each other, or other values")


def _shapes(record: Any) -> Iterator[tuple[str, Any, tuple[int, ...]]]:
    """Yield arrays with the shapes that the numbers of components and effects give them."""
    estimate, components, fixed = record.estimate, record.components, record.estimate.fixed_errors
    k, p = len(estimate.names), len(record.exog_names)
    yield "estimate.values", estimate.values, (k,)
    yield "components.values", components.values, (k,)
    yield "estimate.beta", estimate.beta, (p,)
    yield "estimate.cov_beta", estimate.cov_beta, (p, p)
    for kind, cov in estimate.covariances.items():
        yield f"estimate.covariances.{kind}", cov, (k, k)
    if components.cov is not None:
        yield "components.cov", components.cov, (k, k)
    if fixed is not None:
        yield "estimate.fixed_errors.df", fixed.df, (p,)
    if fixed is not None and fixed.slopes is not None:
        yield "estimate.fixed_errors.slopes", fixed.slopes, (k, p, p)
    table, cells = record.tables.table, record.tables.cells
    if table is not None:
        m = len(table.names)
        yield "table.df", table.df, (m,)
        yield "table.sum_sq", table.sum_sq, (m,)
        yield "table.expected", table.expected, (m, m)
    if cells is not None:
        size = tuple(map(len, cells.levels))
        yield "cells.means", cells.means, size
        yield "cells.counts", cells.counts, size
    for name in ("levels", "fixed_levels"):
        levels = getattr(record.tables, name)
        if levels is not None:
            m, q = len(levels.sets), levels.information.shape[0]
            yield f"{name}.information", levels.information, (q, q)
            yield f"{name}.shared", levels.shared, (m, q, q)
            yield f"{name}.sizes", levels.sizes, (m,)


def _agreements(record: Any) -> Iterator[tuple[str, Iterable[bool]]]:
    """Yield the parts of a result with what must hold for their values."""
    estimate, components, structure = record.estimate, record.components, record.structure
    k, names, facets = len(estimate.names), estimate.names, set(structure.facets)
    named = frozenset([REPLICATE]).union(facets, *components.facets)
    effects = set(record.exog_names)
    yield "exog_names", (len(effects) == len(record.exog_names),)
    yield "left_out", (not effects.intersection(record.left_out),)
    finite = bool(np.isfinite(estimate.values).all()) and are_computable(estimate.values)
    yield "estimate.names", (len(set(names)) == k,)
    yield "estimate.values", (finite,)
    yield "estimate.covariances", (bool(estimate.covariances),)
    finite = bool(np.isfinite(components.values).all()) and are_computable(components.values)
    yield "components.names", (names == components.names, len(components.facets) == k)
    yield "components.values", (finite,)
    nested = (named >= {f, *outer} for f, outer in components.nested_in.items())
    yield "components.nested_in", nested
    yield "components.sizes", (n > 0.0 for n in components.sizes.values())
    of_names = (of.keys() == set(components.names) for of in components.inverse_n.values())
    above = (not x <= 0.0 for of in components.inverse_n.values() for x in of.values())
    yield "components.inverse_n", (*of_names, *above)
    squares = components.mean_squares
    yield "components.mean_squares", (squares is None or _are_sizes(squares),)
    yield "components.matrices", (_is_symmetric(m, k) for m in components.matrices)
    counts = (*structure.n_levels, structure.n_rows)
    yield "structure.facets", (len(facets) == len(structure.facets) == len(structure.n_levels),)
    yield "structure.n_levels", (1 <= n < _MANY for n in counts)
    pairs = (*structure.partly_crossed, *structure.fully_crossed)
    yield "structure.fully_crossed", (facets.issuperset(pair) for pair in pairs)
    nested = (named >= {f, *outer} for f, outer in structure.nested_in.items())
    yield "structure.nested_in", (*nested, structure.nested_in.keys() >= facets)
    named_terms = (bool(t) and all(map(str.strip, t)) for t in structure.terms.values())
    yield "structure.terms", (RESIDUAL in structure.terms, *named_terms)
    yield "structure.sizes", (n > 0.0 for n in structure.sizes.values())
    yield "cells", (record.tables.cells is None or _are_means(record.tables.cells),)
    if record.level_values is not None:
        yield "level_values", record.level_values.agree(components, len(record.exog_names))


def _is_symmetric(matrix: EffectMatrix, n_components: int) -> bool:
    """Return whether the places of a covariance matrix are those of components."""
    q, places = len(matrix.effects), matrix.places
    if [len(row) for row in places] != [q] * q:
        return False
    inside = all(0 <= place < n_components for row in places for place in row)
    return inside and all(places[i][j] == places[j][i] for i in range(q) for j in range(i))


def _are_means(cells: Any) -> bool:
    """Return whether stored cell means can be computed with."""
    known = cells.means[~np.isnan(cells.means)]
    return bool(known.size and are_computable(known) and (cells.counts >= 0.0).all())


def _are_sizes(table: TwoWayMeanSquares) -> bool:
    return all(1 <= n < _MANY for n in (table.n_rows, table.n_columns, table.n_replicates))
