"""Influences of the rows of a fit on its components, summed over the levels of the facets.

What robust intervals are made of (:mod:`vcomp.inference.intervals.robust`): one pass over coded
rows, from the solution of Henderson's equations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.design import Chunk
from vcomp.estimators.likelihood import Solution, choose_engine
from vcomp.exceptions import EstimationError
from vcomp.formula import closure
from vcomp.inference.intervals.robust import _FEWEST, LevelVariances, closed_sets, exactly_shared
from vcomp.model.row_access import RowAccess

_AT_ONCE = 65_536
"""Rows whose codes are put side by side at a time."""


def level_variances(access: RowAccess) -> LevelVariances:
    """Return the products of the influences of a fit by shared levels.

    Raises
    ------
    EstimationError
        If no component is above zero, or the residual is not.
    """
    from vcomp.inference.kernels.level_sums import add_level_sums

    v = access.components
    if not v.any():
        raise EstimationError("robust intervals need a component above zero")
    model, stats = access.model, access.model.statistics
    chunk, structure = model.chunk, model.design.structure
    names = access.estimate.names
    closed = [
        closure(frozenset(term.facets), structure.nested_in) for term in model.design.formula.random
    ]
    finer = np.array([[float(a < b) for b in closed] for a in closed])
    solution = access.solution
    rest = _residuals(chunk, solution.beta, solution.effects)
    pulls = [
        _pulls(chunk, t, v, solution, rest, finer[t]) for t in range(len(chunk.sizes))
    ]
    sizes = chunk.sizes
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    own = _of_residual(chunk, v, rest, pulls)
    facets = tuple(f for f in structure.facets if any(f in t.facets for t in model.design.formula.random))
    sets = closed_sets(facets, structure.nested_in)
    groups, numbers = _groups(chunk, structure.facets, sets)
    places = np.concatenate([[0], np.cumsum(numbers)[:-1]]).astype(np.int64)
    flat = [np.concatenate([getattr(p, name) for p in pulls]) for name in ("constant", "slope", "expected")]
    effects = np.concatenate(solution.effects)
    k = len(sizes) + 1
    sums, of_rows = np.zeros((sum(numbers), k)), np.zeros((k, k))
    for start in range(0, chunk.n, _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        add_level_sums(
            rest[rows],
            np.ascontiguousarray([c[rows] for c in chunk.codes]),
            np.ascontiguousarray([g[rows] for g in groups]),
            offsets,
            effects,
            *flat,
            finer,
            own,
            places,
            sums,
            of_rows,
        )
    products = [
        (part := sums[p : p + q]).T @ part for p, q in zip(places, numbers, strict=True)
    ]
    lower = np.tril(of_rows)
    products.append(lower + np.tril(of_rows, -1).T)
    engine = choose_engine(stats, reml=True)
    information = engine.information(v, "expected" if "expected" in engine.kinds else "average")
    few = {f: n for s, n in zip(sets, numbers, strict=True) if len(s) == 1 and n < _FEWEST for f in s}
    return LevelVariances(
        names=access.estimate.names,
        information=information,
        sets=(*sets, frozenset({*facets, "row"})),
        sizes=np.array([*numbers, chunk.n], dtype=float),
        shared=0.25 * exactly_shared(sets, np.array(products)),
        few=few,
    )


@dataclass(frozen=True, slots=True)
class _Pulls:
    """The influences of rows on one component, by group of its term."""

    constant: FloatArray
    slope: FloatArray
    expected: FloatArray
    factor: float
    counts: FloatArray


def _pulls(
    chunk: Chunk, t: int, v: FloatArray, solution: Solution, rest: FloatArray, finer: FloatArray
) -> _Pulls:
    codes, size = chunk.codes[t], chunk.sizes[t]
    n = np.bincount(codes, minlength=size).astype(float)
    u = np.bincount(codes, rest, minlength=size) / v[-1]
    d = (v[t] - solution.prediction_var[t]) / v[t] ** 2 if v[t] > 0.0 else n
    scale = (u @ u) / d.sum() if d.sum() > 0.0 else 0.0
    left, spread = rest, v[t] + v[-1] / n
    for other in np.flatnonzero(finer):
        inner = chunk.codes[other]
        left = left + solution.effects[other][inner]
        counts = np.bincount(inner, minlength=chunk.sizes[other]).astype(float)
        spread = spread + v[other] * np.bincount(codes, counts[inner], minlength=size) / n**2
    mean = np.bincount(codes, left, minlength=size) / n
    slope = u / (n * spread)
    expected = scale * d / n
    constant = u**2 / n - slope * mean - expected
    return _Pulls(constant, slope, expected, v[t] / scale if scale > 0.0 else 0.0, n)


def _of_residual(
    chunk: Chunk, v: FloatArray, rest: FloatArray, pulls: list[_Pulls]
) -> FloatArray:
    """Return the factors of the influence on the residual.

    From V P = I − H: E r² = (1 − h − Σ θ (KP))/σ² for each row, h the leverage of the fixed part.
    """
    base = 1.0 - chunk.X.shape[1] / chunk.n
    total = chunk.n * base - sum(p.factor * (p.expected @ p.counts) for p in pulls)
    squares = float(rest @ rest) / v[-1] ** 2
    scale = squares / total
    return np.array([1.0 / v[-1] ** 2, scale * base, *(-scale * p.factor for p in pulls)])


def _residuals(chunk: Chunk, beta: FloatArray, effects: tuple[FloatArray, ...]) -> FloatArray:
    """Return y − Xβ̂ − Zû."""
    rest = chunk.y - chunk.X @ beta
    for codes, effect in zip(chunk.codes, effects, strict=True):
        rest -= effect[codes]
    return rest


def _groups(
    chunk: Chunk, facets: tuple[str, ...], sets: tuple[frozenset[str], ...]
) -> tuple[list[IntArray], list[int]]:
    """Return the group of each row in each set of facets, and the numbers of groups."""
    groups, numbers = [], []
    for chosen in sets:
        joined = np.zeros(chunk.response.size, dtype=np.int64)
        total = 1
        for f in sorted(chosen):
            place = facets.index(f)
            size = chunk.facet_sizes[place]
            joined = joined * size + chunk.level_codes(place)
            total *= size
        counts = np.bincount(joined, minlength=total) if total <= 4 * joined.size + 1000 else None
        if counts is None:
            kept, codes = np.unique(joined, return_inverse=True)
            groups.append(codes.astype(np.int32))
            numbers.append(kept.size)
            continue
        used = counts > 0
        codes = np.cumsum(used) - 1
        groups.append(codes[joined].astype(np.int32))
        numbers.append(int(used.sum()))
    return groups, numbers
