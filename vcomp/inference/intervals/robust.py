"""Mean squares whose degrees of freedom follow from the data, not from normal effects.

The variance of a mean square is estimated from the influences of rows on the components, summed
over the levels of the sampled facets: pairs of rows that share levels may be correlated, others
are not (docs/explanation/mathematics.md, section 10.10). No distribution is assumed, and neither
is one variance for all cells. The degrees of freedom that follow are those of modified large
samples, so that every interval that is made from mean squares has its robust form.

:func:`level_variances` passes over the rows twice: once for sums by the groups of the terms, once
for sums of influences by the groups of all sets of facets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.design import Chunk, Design
from vcomp.estimators.likelihood import Solution, choose_engine, prediction_engine
from vcomp.formula import closure
from vcomp.inference.intervals.classical import MeanSquares, expected_squares, mean_squares
from vcomp.inference.quantities import LevelVariances, VarianceComponents
from vcomp.numerics import solve
from vcomp.statistics import Statistics

_AT_ONCE = 65_536
"""Rows whose codes are copied side by side at a time."""

_TABLE = 20_000_000
"""Combinations of levels up to which groups are numbered by a table, else by a sorted list."""

FEWEST = 6
"""A facet with fewer levels shows nothing of the distribution of its effects."""

_CORRELATED = 0.99
"""Estimated correlations of mean squares are at most this large."""


def closed_sets(
    facets: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> tuple[frozenset[str], ...]:
    """Return the sets of facets that hold all facets that theirs are nested in, small ones first.

    Examples
    --------
    >>> [sorted(s) for s in closed_sets(["p", "i", "h"], {"i": frozenset({"h"})})]
    [['h'], ['p'], ['h', 'i'], ['h', 'p'], ['h', 'i', 'p']]
    """
    found = [
        frozenset(chosen)
        for size in range(1, len(facets) + 1)
        for chosen in combinations(sorted(facets), size)
    ]
    return tuple(s for s in found if all(nested_in.get(f, frozenset()) <= s for f in s))


def exactly_shared(sets: Sequence[frozenset[str]], products: FloatArray) -> FloatArray:
    """Return the products of pairs that share exactly a set from those that share at least it.

    Parameters
    ----------
    sets : (m,) closed sets, small ones first
    products : (m, k, k) Σ s_g s_g' over the groups g of each set, and of single rows after them:
        (m + 1, k, k)

    Returns
    -------
    (m + 1, k, k)
    """
    exact = products.copy()
    last = len(sets)
    for at in range(last - 1, -1, -1):
        exact[at] -= exact[last]
        for other in range(at + 1, last):
            if sets[at] < sets[other]:
                exact[at] -= exact[other]
    return exact


def robust_mean_squares(components: VarianceComponents) -> MeanSquares | None:
    """Return the mean squares of the components with degrees of freedom from the data.

    Returns
    -------
    None if the components have no covariance matrix, or no influences by level
    """
    squares, levels = mean_squares(components), components.levels
    if squares is None or levels is None:
        return None
    expected = expected_squares(components, squares)
    at = np.ix_(squares.places, squares.places)
    information = levels.information[at]
    # From scores of the components to relative influences on the mean squares
    to_squares = (squares.basis / expected[:, None]) @ solve(information, np.eye(len(information)))
    shared = np.stack([to_squares @ t[at] @ to_squares.T for t in levels.shared])
    normal = np.einsum("ij,jk,ik->i", to_squares, information, to_squares)
    relation = _Relation.of(components, squares, levels)
    lower, upper, correlation = _variances(shared, levels.sizes, normal, relation)
    # Estimates by another method than likelihood: the same excess over their normal variance
    scale = 2.0 / squares.df / normal
    return replace(
        squares,
        df=2.0 / (lower * scale),
        df_upper=2.0 / (upper * scale),
        correlation=correlation,
    )


def robust_covariance(components: VarianceComponents) -> FloatArray | None:
    """Return the (k, k) covariance matrix of the components that belongs to their robust limits.

    Rows and columns of components without a standard error are nan.
    """
    squares = robust_mean_squares(components)
    if squares is None or components.cov is None:
        return None
    spread = expected_squares(components, squares) * np.sqrt(2.0 / squares.df)
    half = solve(squares.basis, np.diag(spread))
    cov = np.full_like(components.cov, np.nan)
    cov[np.ix_(squares.places, squares.places)] = half @ squares.correlation @ half.T
    known: BoolArray = np.isnan(np.diag(components.cov))
    return np.where(known[:, None] | known[None, :], np.nan, cov)


@dataclass(frozen=True, slots=True)
class _Relation:
    """How sets of facets lie to the terms of the mean squares, each (m, K).

    Attributes
    ----------
    own : the set is that of the term
    coarser : the levels of the term lie within the groups of the set
    apart : neither contains the other
    few : the set has too few groups to show the variance of the mean square. Of a mean square on
        the levels of such a facet, and on those within them, it is at least that under normality
    """

    own: BoolArray
    coarser: BoolArray
    apart: BoolArray
    few: BoolArray

    @classmethod
    def of(
        cls, components: VarianceComponents, squares: MeanSquares, levels: LevelVariances
    ) -> _Relation:
        terms = [components.facets[place] for place in squares.places]
        *sets, _ = levels.sets

        def where(
            holds: Callable[[frozenset[str], frozenset[str]], bool], rows: bool
        ) -> BoolArray:
            # The last set, single rows, is finer than all terms but the residual.
            of_rows = [rows and term == components.facets[-1] for term in terms]
            return np.array([*([holds(s, t) for t in terms] for s in sets), of_rows], dtype=bool)

        return cls(
            own=where(lambda s, t: s == t, True),
            coarser=where(lambda s, t: s < t, False),
            apart=where(lambda s, t: not (s <= t or s >= t), False),
            few=where(lambda s, t: s <= levels.few.keys() and s <= t, False),
        )


def _variances(
    shared: FloatArray, sizes: FloatArray, normal: FloatArray, relation: _Relation
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return relative variances for lower and upper limits, and correlations, eq. (10.20).

    Parameters
    ----------
    shared : (m, K, K) relative covariances by shared levels
    sizes : (m,) numbers of groups
    normal : (K,) relative variances under normality
    relation : of sets and mean squares
    """
    diagonal = np.einsum("mkk->mk", shared)
    n = np.where(sizes < 3.0, 3.0, sizes)[:, None]
    kurtosis = np.clip(n * diagonal, 0.0, 2.0) / 2.0
    factor = n / (n - 1.0) * (1.0 + kurtosis * 3.0 / np.maximum(n - 2.0, 1.0))
    factor = np.where(relation.few.any(axis=1, keepdims=True), 0.0, factor)
    root = np.sqrt(factor)
    shared = shared * root[:, :, None] * root[:, None, :]
    diagonal = diagonal * factor
    total = shared.sum(axis=0)
    # Negative parts are noise, or what the mean of the own levels takes away.
    dropped = np.where(relation.apart, 1.0, np.where(relation.coarser, 0.7, 0.0))
    variance = np.diagonal(total) - (dropped * np.minimum(diagonal, 0.0)).sum(axis=0)
    weight = np.abs(diagonal) + 1e-300
    inverse_n = (weight / n).sum(axis=0) / weight.sum(axis=0)
    base = (1.0 + 3.0 * inverse_n) * variance + 2.5 * inverse_n * normal
    # Variances that differ between few groups are uncertain themselves.
    differing = np.where(relation.coarser, diagonal - normal * np.sqrt(2.0 / n), 0.0)
    base = base + (2.0 / np.sqrt(n) * np.maximum(differing, 0.0)).sum(axis=0)
    of_normal = np.maximum(2.0 / (n - 1.0), np.where(relation.own, normal, 0.0))
    excess = np.maximum(diagonal - of_normal, 0.0)
    least = np.where(relation.few.any(axis=0), 1.0, 0.3) * normal
    lower, upper = (
        np.maximum(base + (slope * excess).sum(axis=0), least)
        for slope in (np.minimum(2.75, 80.0 / n), np.minimum(6.0, 650.0 / n))
    )
    scale = np.sqrt(np.maximum(variance, least))
    correlation = np.clip(total / np.outer(scale, scale), -_CORRELATED, _CORRELATED)
    np.fill_diagonal(correlation, 1.0)
    return lower, upper, correlation


# Influences -------------------------------------------------------------------------------------


def level_variances(
    design: Design, stats: Statistics, chunks: Callable[[], Iterable[Chunk]], v: FloatArray
) -> LevelVariances:
    """Return the products of the influences of rows on the components, by shared levels.

    Parameters
    ----------
    design, stats : of the data
    chunks : makes an iterator over all rows, coded; called twice
    v : (k + 1,) components at which residuals are taken, none negative, the residual positive
    """
    point = _Point.of(design, stats, v)
    sums = _TermSums.of(point, chunks())
    pulls = [_pull(point, sums, t) for t in range(len(stats.sizes))]
    sets, products, numbers = _products(point, sums, pulls, chunks())
    engine = choose_engine(stats, reml=True)
    information = engine.information(v, "expected" if "expected" in engine.kinds else "average")
    few = {next(iter(s)): n for s, n in zip(sets, numbers, strict=True) if len(s) == 1}
    return LevelVariances(
        information=information,
        sets=(*sets, frozenset({*design.structure.facets, "row"})),
        sizes=np.array([*numbers, sums.n], dtype=float),
        shared=0.25 * exactly_shared(sets, products),
        few={facet: n for facet, n in few.items() if n < FEWEST},
    )


@dataclass(frozen=True, slots=True)
class _Point:
    """The design at the components: predicted effects, and which terms are finer than others."""

    design: Design
    v: FloatArray
    solution: Solution
    finer: FloatArray  # (k, k) 1 where the second term is finer than the first

    @classmethod
    def of(cls, design: Design, stats: Statistics, v: FloatArray) -> _Point:
        nested_in = design.structure.nested_in
        closed = [closure(frozenset(t.facets), nested_in) for t in design.formula.random]
        finer = np.array([[float(a < b) for b in closed] for a in closed])
        solution = prediction_engine(stats).solution(v)
        return cls(design, v, solution, finer.reshape(len(closed), len(closed)))

    def residuals(self, chunk: Chunk) -> FloatArray:
        """Return y − Xβ̂ − Zû."""
        rest = chunk.y - chunk.X @ self.solution.beta
        for codes, effects in zip(chunk.codes, self.solution.effects, strict=True):
            rest -= effects[codes]
        return rest


@dataclass(frozen=True, slots=True)
class _TermSums:
    """Sums over all rows by the groups of the terms.

    Attributes
    ----------
    n, n_fixed : rows, and columns of X
    squares : of the residuals
    counts, rest : for each term the rows of each group, and their residuals
    left : the same of the residuals with the effects of finer terms
    parents : by term and finer term the group that each group of the finer one lies in
    groups : for each set of facets the groups that occur
    """

    n: int
    n_fixed: int
    squares: float
    counts: list[FloatArray]
    rest: list[FloatArray]
    left: list[FloatArray]
    parents: dict[tuple[int, int], IntArray]
    groups: list[_Groups]

    @classmethod
    def of(cls, point: _Point, chunks: Iterable[Chunk]) -> _TermSums:
        design, sizes = point.design, [e.size for e in point.solution.effects]
        counts, rest, left = ([np.zeros(q) for q in sizes] for _ in range(3))
        pairs = [(int(a), int(b)) for a, b in np.argwhere(point.finer)]
        parents = {pair: np.zeros(sizes[pair[1]], dtype=np.int32) for pair in pairs}
        sets = _sets(design)
        groups = [_Groups.of(design, chosen) for chosen in sets]
        n, n_fixed, squares = 0, 0, 0.0
        for chunk in chunks:
            residuals = point.residuals(chunk)
            n, n_fixed = n + residuals.size, chunk.X.shape[1]
            squares += float(residuals @ residuals)
            for t, codes in enumerate(chunk.codes):
                outer = residuals
                for _, other in (pair for pair in pairs if pair[0] == t):
                    parents[t, other][chunk.codes[other]] = codes
                    outer = outer + point.solution.effects[other][chunk.codes[other]]
                counts[t] += np.bincount(codes, minlength=sizes[t])
                rest[t] += np.bincount(codes, residuals, minlength=sizes[t])
                left[t] += np.bincount(codes, outer, minlength=sizes[t])
            groups = [g.with_rows(chunk) for g in groups]
        return cls(n, n_fixed, squares, counts, rest, left, parents, groups)


@dataclass(frozen=True, slots=True)
class _Pull:
    """The influence of a row on one component, by group: constant + slope times what is left."""

    constant: FloatArray
    slope: FloatArray
    expected: FloatArray  # expectation of the product of one row with its group
    factor: float  # of `expected` in that of the squared residual


def _pull(point: _Point, sums: _TermSums, t: int) -> _Pull:
    """Return the influences on the component of a term, eqs. (10.16) and (10.17)."""
    v, n = point.v, sums.counts[t]
    u = sums.rest[t] / v[-1]  # Z'Py
    spread: FloatArray = v[t] + v[-1] / n
    for other in map(int, np.flatnonzero(point.finer[t])):
        squares = sums.counts[other] ** 2
        spread = spread + v[other] * np.bincount(sums.parents[t, other], squares, n.size) / n**2
    information = n
    if v[t] > 0.0:
        information = (v[t] - point.solution.prediction_var[t]) / v[t] ** 2
        # Engines with random probes have no variances of prediction.
        information = np.where(np.isfinite(information), information, 1.0 / spread)
    scale = (u @ u) / information.sum()
    slope = u / (n * spread)
    expected = scale * information / n
    constant = u**2 / n - slope * sums.left[t] / n - expected
    return _Pull(constant, slope, expected, v[t] / scale if scale > 0.0 else 0.0)


def _of_residual(point: _Point, sums: _TermSums, pulls: list[_Pull]) -> FloatArray:
    """Return factor of r², constant and factors of expectations of the influence on the residual.

    As V P = I − H, E r² = (1 − h − Σ θ (KP))/σ² in each row, h the leverage of the fixed part.
    """
    square = point.v[-1] ** 2
    base = 1.0 - sums.n_fixed / sums.n
    total = sums.n * base
    for pull, n in zip(pulls, sums.counts, strict=True):
        total -= pull.factor * float(pull.expected @ n)
    scale = sums.squares / square / total
    return np.array([1.0 / square, scale * base, *(-scale * p.factor for p in pulls)])


def _products(
    point: _Point, sums: _TermSums, pulls: list[_Pull], chunks: Iterable[Chunk]
) -> tuple[tuple[frozenset[str], ...], FloatArray, list[int]]:
    """Return the sets of facets, products of influences by groups, and numbers of groups."""
    # Deferred for start-up time: numba takes a second to import.
    from vcomp.inference.kernels.level_sums import add_level_sums

    k = len(pulls) + 1
    numbers = [g.keys.size for g in sums.groups]
    starts = np.cumsum([0, *numbers])[:-1].astype(np.int64)
    offsets = np.cumsum([0, *(n.size for n in sums.counts)])[:-1].astype(np.int64)
    parts = [
        np.concatenate([np.zeros(0), *(getattr(p, name) for p in pulls)])
        for name in ("constant", "slope", "expected")
    ]
    effects = np.concatenate([np.zeros(0), *point.solution.effects])
    own = _of_residual(point, sums, pulls)
    total, of_rows = np.zeros((sum(numbers), k)), np.zeros((k, k))
    for chunk in chunks:
        rest, groups = point.residuals(chunk), [g.numbers(chunk) for g in sums.groups]
        for start in range(0, rest.size, _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            codes, chosen = (_beside(c, rows, rest.size) for c in (chunk.codes, groups))
            add_level_sums(
                rest[rows], codes, chosen, offsets, effects, *parts, point.finer, own, starts,
                total, of_rows,
            )  # fmt: skip
    ends = [*starts[1:], len(total)]
    products = [total[a:b].T @ total[a:b] for a, b in zip(starts, ends, strict=True)]
    products.append(of_rows + np.tril(of_rows, -1).T)
    return tuple(g.facets for g in sums.groups), np.array(products), numbers


def _beside(codes: Iterable[IntArray], rows: slice, n: int) -> IntArray:
    """Return some rows of several codes, (number of codes, rows)."""
    chosen = [c[rows] for c in codes]
    return np.array(chosen, dtype=np.int32).reshape(len(chosen), min(rows.stop, n) - rows.start)


def level_products(
    design: Design,
    chunks: Callable[[], Iterable[Chunk]],
    contributions: Callable[[Chunk], Iterable[FloatArray]],
    information: FloatArray,
) -> LevelVariances:
    """Return the products of contributions of rows to p estimates, by shared levels.

    Parameters
    ----------
    design : of the data
    chunks : makes an iterator over all rows, coded; called twice
    contributions : of the rows of a chunk, arrays (n, p), the same number for each chunk; their
        products are added
    information : (p, p) of the estimates
    """
    groups, n = [_Groups.of(design, chosen) for chosen in _sets(design)], 0
    for chunk in chunks():
        groups, n = [g.with_rows(chunk) for g in groups], n + chunk.response.size
    p, numbers = len(information), [g.keys.size for g in groups]
    of_rows = np.zeros((p, p))
    sums: dict[int, list[FloatArray]] = {}
    for chunk in chunks():
        places = [g.numbers(chunk) for g in groups]
        for which, found in enumerate(contributions(chunk)):
            of_rows += found.T @ found
            totals = sums.setdefault(which, [np.zeros((p, size)) for size in numbers])
            for total, place in zip(totals, places, strict=True):
                for j in range(p):
                    total[j] += np.bincount(place, found[:, j], minlength=total.shape[1])
    products = np.zeros((len(groups) + 1, p, p))
    products[-1] = of_rows
    for totals in sums.values():
        products[:-1] += np.array([t @ t.T for t in totals]).reshape(-1, p, p)
    sets = tuple(g.facets for g in groups)
    few = {next(iter(s)): size for s, size in zip(sets, numbers, strict=True) if len(s) == 1}
    return LevelVariances(
        information=information,
        sets=(*sets, frozenset({*design.structure.facets, "row"})),
        sizes=np.array([*numbers, n], dtype=float),
        shared=exactly_shared(sets, products),
        few={facet: size for facet, size in few.items() if size < FEWEST},
    )


# Groups of sets of facets -----------------------------------------------------------------------


def _sets(design: Design) -> tuple[frozenset[str], ...]:
    """Return the sets of sampled facets, without that of all if its groups are single rows."""
    structure = design.structure
    used = {f for term in design.formula.random for f in term.facets}
    facets = [f for f in structure.facets if f in used]
    sets = closed_sets(facets, structure.nested_in)
    single = len(facets) == len(structure.facets) and structure.cell_max == 1
    return sets[:-1] if single and sets else sets


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of a set of facets that occur in the rows.

    Attributes
    ----------
    facets : with all that they are nested in
    places, sizes : of the facets in the design, and their numbers of levels
    keys : combinations of levels that occur, sorted
    """

    facets: frozenset[str]
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    keys: LongArray

    @classmethod
    def of(cls, design: Design, facets: frozenset[str]) -> _Groups:
        places = tuple(i for i, f in enumerate(design.facets) if f.name in facets)
        sizes = tuple(design.n_levels[i] for i in places)
        return cls(facets, places, sizes, np.zeros(0, dtype=np.int64))

    def with_rows(self, chunk: Chunk) -> _Groups:
        """Return the groups of these and of other rows."""
        joined, total = self._join(chunk), self._total
        if total <= _TABLE:
            occurs = np.bincount(joined, minlength=total) > 0
            occurs[self.keys] = True
            keys = np.flatnonzero(occurs)
        else:
            keys = np.union1d(self.keys, joined)
        return _Groups(self.facets, self.places, self.sizes, keys)

    def numbers(self, chunk: Chunk) -> IntArray:
        """Return the number of the group of each row."""
        joined, total = self._join(chunk), self._total
        if total > _TABLE:
            return np.searchsorted(self.keys, joined).astype(np.int32)
        table = np.zeros(total, dtype=np.int32)
        table[self.keys] = np.arange(self.keys.size)
        return np.asarray(table[joined])

    @property
    def _total(self) -> int:
        return int(np.prod([float(n) for n in self.sizes]))

    def _join(self, chunk: Chunk) -> LongArray:
        joined = np.zeros(chunk.response.size, dtype=np.int64)
        for place, size in zip(self.places, self.sizes, strict=True):
            joined = joined * size + chunk.level_codes(place)
        return joined
