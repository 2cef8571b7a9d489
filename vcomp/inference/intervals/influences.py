"""The influences of rows on estimates, and their products by shared levels.

:func:`level_variances` sums influences in one pass over the rows, and in another one before it
where a component is zero. :func:`level_products` does so for other estimates than components.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Chunk, Design
from vcomp.estimators.likelihood import (
    LikelihoodEngine,
    MatricesLikelihood,
    choose_engine,
    predicted,
    prediction_engine,
)
from vcomp.exceptions import EstimationError
from vcomp.formula import closure
from vcomp.inference.intervals.level_passes import (
    LevelSums,
    LevelWork,
    sum_influences,
    write_pulls,
)
from vcomp.inference.intervals.margin_sums import Groups, LevelLayout, MarginSums, Total
from vcomp.inference.intervals.matrix_influences import row_scores, with_matrices
from vcomp.inference.quantities import LevelVariances, information_of
from vcomp.numerics import check_memory
from vcomp.statistics import Statistics

Contributions: TypeAlias = Callable[[Chunk], tuple[FloatArray, FloatArray]]
"""Returns contributions of rows, (n, p), and numbers by which they count, (n, m)."""

FEWEST = 6
"""A facet with fewer levels shows nothing of the distribution of its effects."""


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


def level_variances(
    design: Design,
    stats: Statistics,
    total: Total,
    values: FloatArray,
    covariance: FloatArray | None = None,
) -> LevelVariances:
    """Return the products of the influences of rows on the components, by shared levels.

    Parameters
    ----------
    design, stats : of the data
    total : ``total(of, *known)`` is the sum of ``of(*known, chunk)`` over parts of the coded rows
    values : (k + 1,) estimates at which residuals are computed, negative ones as zero
    covariance : of the estimates of covariance matrices or of several residuals, by the expected
        information at the ranks of the matrices

    Raises
    ------
    EstimationError
        If the residual is not estimated above zero.
    """
    if stats.blocks is not None or stats.log_weights is not None:
        return _of_matrices(design, stats, total, values, covariance)
    v = positive_residual(values, "interval='robust'", "interval='mls'")
    layout = LevelLayout.of(design, _sets(design), total)
    fitted = choose_engine(stats)
    # Variances of prediction only say how the expectation of a product is spread over groups, and
    # are not worth an engine of their own.
    engine = fitted if fitted.gives_effects else prediction_engine(stats)
    point = _InfluencePoint.of(layout, engine, total, v)
    sums: LevelSums = total(sum_influences, point.work(slabs=True))
    k = v.size - 1
    # The expectation of the squared residual has the sum of the squares.
    square, expected = sums.products[-1, k:]
    to_influence = np.eye(k + 2)[:-1]
    to_influence[k, k + 1] = -square / expected if expected > 0.0 else 0.0
    products = np.array(
        [to_influence @ p @ to_influence.T for p in (*_by_set(layout, sums), sums.of_rows)]
    )
    information = fitted.information(v, "expected" if "expected" in fitted.kinds else "average")
    return _level_variances(layout, information, 0.25 * exactly_shared(layout.sets, products))


def _of_matrices(
    design: Design,
    stats: Statistics,
    total: Total,
    v: FloatArray,
    covariance: FloatArray | None,
) -> LevelVariances:
    """Return :func:`level_variances` of rows in memory, with matrices, residuals or weights."""
    nested_in = design.structure.nested_in
    terms = [closure(frozenset(t.facets), nested_in) for t in design.formula.random]
    matrices = with_matrices(stats, [term.name for term in design.terms])
    likelihood = MatricesLikelihood(matrices, reml=True)
    scores = row_scores(likelihood, matrices.cells, terms, v)
    once = np.ones((len(scores), 1))
    if covariance is None:
        information = choose_engine(stats).information(v, "expected")
        return level_products(design, total, lambda _: (scores, once), information)
    inverse = np.where(np.isnan(covariance), 0.0, covariance)
    found = level_products(design, total, lambda _: (scores, once), information_of(inverse))
    return replace(found, inverse=inverse)


def two_way_level_variances(
    X: FloatArray, facets: tuple[str, str], values: FloatArray
) -> LevelVariances:
    """Return :func:`level_variances` of a complete table with one score a cell, in closed form.

    Parameters
    ----------
    X : (rows, columns) scores
    facets : names of the rows and columns
    values : (3,) estimated components of rows, columns and residual, negative ones as zero

    Raises
    ------
    EstimationError
        If the residual is not estimated above zero.
    """
    v = positive_residual(values, "interval='robust'", "interval='mls'")
    sizes = X.shape
    centred = X - X.mean()
    means = centred.mean(axis=1, keepdims=True), centred.mean(axis=0, keepdims=True)
    repeats = np.array([sizes[1], sizes[0], 0.0])
    # Eigenvalues of V on the spaces of rows, columns and residual, and their derivatives
    expected = v[-1] + repeats[:2] * v[:2]
    Py = (centred - means[0] - means[1]) / v[-1] + means[0] / expected[0] + means[1] / expected[1]
    parts = np.empty((3, *sizes))
    for k, (mean, n) in enumerate(zip(means, repeats[:2], strict=True)):
        u = n * mean / expected[k]
        parts[k] = u**2 / n + u * v[-1] * (Py - u / n) / expected[k]  # eq. (10.16)
    parts[2] = Py**2
    parts -= parts.mean(axis=(1, 2), keepdims=True)
    of_sets = [sums @ sums.T for sums in (parts.sum(axis=2), parts.sum(axis=1))]
    flat = parts.reshape(3, -1)
    sets = tuple(frozenset({facet}) for facet in facets)
    derivatives = np.diag(repeats)
    derivatives[:, 2] = 1.0
    df = np.array([sizes[0] - 1.0, sizes[1] - 1.0, (sizes[0] - 1.0) * (sizes[1] - 1.0)])
    weights = df / np.square([*expected, v[-1]])
    return LevelVariances(
        information=0.5 * (derivatives.T * weights) @ derivatives,
        sets=(*sets, frozenset({*facets, "row"})),
        sizes=np.array([*sizes, X.size], dtype=float),
        shared=0.25 * exactly_shared(sets, np.array([*of_sets, flat @ flat.T])),
        few={facet: n for facet, n in zip(facets, sizes, strict=True) if n < FEWEST},
    )


def positive_residual(values: FloatArray, what: str, other: str) -> FloatArray:
    """Return the components with negative ones as zero.

    Parameters
    ----------
    values : estimates, the residual last
    what, other : what needs a residual above zero, and what to use instead

    Raises
    ------
    EstimationError
        If the residual is not estimated above zero.
    """
    if values[-1] <= 0.0:
        raise EstimationError(
            f"{what} needs a residual above zero, and its estimate is {values[-1]:g}; use {other}"
        )
    return np.maximum(values, 0.0)


def level_products(
    design: Design,
    total: Total,
    contributions: Contributions,
    information: FloatArray,
    root: FloatArray | None = None,
    fixed: frozenset[str] = frozenset(),
    instead: str = "",
) -> LevelVariances:
    """Return the products of contributions of rows to p estimates, by shared levels.

    Parameters
    ----------
    design : of the data
    total : as for :func:`level_variances`
    contributions : of the rows of a chunk, (n, p), and m numbers of each row by which they count,
        (n, m); products of the m contributions are added
    information : (p, p) of the estimates
    root : (p, p) B of a model in which estimates have the covariance BB'. The first contribution
        is of residuals, the others are what residuals lack by each column of B. Those of groups
        are then by the covariance of the products themselves, :func:`_corrected`
    fixed : facets that are no sample, whose levels rows do not share by chance
    instead : what needs less memory, if contributions of rows may not fit

    Raises
    ------
    EstimationError
        If they do not.
    """
    layout = LevelLayout.of(design, _sets(design, fixed), total)
    groups = tuple(layout.groups[s] for s in layout.sets)
    sums: _Contributed = total(_contributed, contributions, groups, len(information), instead)
    of_sets = [_contracted(tables, tables) for tables in sums.tables]
    products = np.array([*of_sets, sums.of_rows])
    found = _level_variances(layout, information, exactly_shared(layout.sets, products), fixed)
    if root is None or not layout.sets:
        return found
    products = _corrected(layout.sets, found, sums, root)
    used = found.coarsest().values()
    of_groups = tuple(
        _once(tables[..., 1:] @ root.T) if m in used else None
        for m, tables in enumerate(sums.tables)
    )
    return replace(found, shared=exactly_shared(layout.sets, products), of_groups=of_groups)


def _once(parts: FloatArray) -> FloatArray:
    """Return the parts of groups, or the first if all are equal, as in complete tables."""
    return parts[:1].copy() if (parts == parts[:1]).all() else parts


_STEPS, _CLOSE = 100, 1e-12
"""Largest number of steps of a correction, and its relative change at convergence."""


def _corrected(
    sets: Sequence[frozenset[str]], found: LevelVariances, sums: _Contributed, root: FloatArray
) -> FloatArray:
    """Return the products of sets, with what residuals lack by their own covariance, eq. (11.10).

    The covariance of the estimates is the sum S + C(W) of the products of residuals S and what
    they lack, C(W), if W is this covariance. W = S + C(W) is solved by iteration from BB', which
    remains where a single group determines an estimate, and everywhere without convergence.

    Parameters
    ----------
    sets, root : as of :func:`level_products`
    found : with the products by BB'
    sums : of the contributions
    """
    few = np.array([s <= found.few.keys() for s in found.sets])
    # The weights of the products of sets in the sum over all sets that rows serve for.
    weights = exactly_shared(sets, np.eye(len(few))[:, None])[~few].sum(axis=0)[0]
    residuals = [tables[..., 0].T @ tables[..., 0] for tables in sums.tables]
    lacking = [tables[..., 1:] for tables in sums.tables]

    def products(R: FloatArray) -> FloatArray:
        parts = (s + _contracted(h @ R, h) for s, h in zip(residuals, lacking, strict=True))
        return np.array([*parts, sums.of_rows])

    first = products(np.eye(len(root)))
    of_set = first
    for _ in range(_STEPS):
        W = np.tensordot(weights, of_set, 1)
        R = np.linalg.solve(root, np.linalg.solve(root, W).T)
        following = products(0.5 * (R + R.T))
        change = np.abs(following - of_set).max()
        of_set = following
        if not np.isfinite(change):
            break
        if change <= _CLOSE * np.abs(first).max():
            return of_set
    return first


@dataclass(frozen=True, slots=True, eq=False)
class _Contributed:
    """Contributions of rows.

    Attributes
    ----------
    of_rows : (p, p) products of single rows
    tables : for each set the (groups, p, m) sums over its groups
    """

    of_rows: FloatArray
    tables: tuple[FloatArray, ...]

    def __add__(self, other: _Contributed) -> _Contributed:
        pairs = zip(self.tables, other.tables, strict=True)
        return _Contributed(self.of_rows + other.of_rows, tuple(a + b for a, b in pairs))


def _contracted(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return Σ a_g b_g' over groups, (p, p), of (groups, p, m)."""
    return np.asarray(np.tensordot(a, b, ((0, 2), (0, 2))))


_OF_ROWS, _OF_GROUPS = 8.0, 3.0
"""Copies of the contributions of rows, and of the tables of their sums, in memory."""


def _contributed(
    contributions: Contributions, groups: tuple[Groups, ...], p: int, instead: str, chunk: Chunk
) -> _Contributed:
    chunk = chunk if chunk.scores is None else chunk.single_scores
    n, size = chunk.response.size, sum(g.size for g in groups)
    if instead:
        check_memory(
            8.0 * p * (_OF_ROWS * n + _OF_GROUPS * size * (1.0 + p)),
            f"contributions of {n:,} rows to {p:,} coefficients need",
            instead,
        )
    codes = dict(enumerate(chunk.compact_codes))
    of_rows, numbers = contributions(chunk)
    weighted = of_rows if chunk.counts is None else of_rows * chunk.counts[:, None]
    tables = []
    for g in groups:
        places = g.numbers(codes)
        order = np.argsort(places, kind="stable")
        ends = np.cumsum(np.bincount(places, minlength=g.size))
        first, second = weighted[order].T, numbers[order]
        table = np.zeros((g.size, p, numbers.shape[1]))
        start = 0
        for group, end in enumerate(ends.tolist()):
            if end > start:
                table[group] = first[:, start:end] @ second[start:end]
            start = end
        tables.append(table)
    squares = np.square(numbers).sum(axis=1)[:, None]
    return _Contributed((weighted * squares).T @ of_rows, tuple(tables))


def _level_variances(
    layout: LevelLayout,
    information: FloatArray,
    shared: FloatArray,
    fixed: frozenset[str] = frozenset(),
) -> LevelVariances:
    structure = layout.design.structure
    sets = tuple(s - fixed for s in layout.sets)
    numbers = [int(np.count_nonzero(layout.counts[s])) for s in layout.sets]
    few = {next(iter(s)): n for s, n in zip(sets, numbers, strict=True) if len(s) == 1}
    return LevelVariances(
        information=information,
        sets=(*sets, frozenset({*structure.facets, "row"}) - fixed),
        sizes=np.array([*numbers, structure.n_rows], dtype=float),
        shared=shared,
        few={facet: n for facet, n in few.items() if n < FEWEST},
    )


def _by_set(layout: LevelLayout, sums: LevelSums) -> list[FloatArray]:
    """Return the products of the sums over the groups of each set."""
    tables = {
        leaf: MarginSums(layout, leaf, table.dense)
        for leaf, table in zip(layout.leaves, sums.tables, strict=True)
        if table is not None
    }
    found = []
    for chosen in layout.sets:
        if chosen in layout.leaves and chosen not in tables:
            assert sums.slabs is not None
            found.append(sums.slabs)
            continue
        source = min((s for s in tables if chosen <= s), key=layout.size)
        table = tables[source].to(chosen)
        found.append(table.T @ table)
    return found


@dataclass(frozen=True, slots=True)
class _InfluencePoint:
    """The components, and the influences that they give the rows of each group.

    Attributes
    ----------
    layout : groups of the design
    v : components
    beta : fixed effects
    finer : (k, k) 1 where the second term is finer than the first
    pulls : of all terms what :func:`~vcomp.inference.intervals.level_passes.write_pulls` writes
    own : factor of the squared residual, and its expectation without terms
    """

    layout: LevelLayout
    v: FloatArray
    beta: FloatArray
    finer: FloatArray
    pulls: FloatArray
    own: FloatArray

    @classmethod
    def of(
        cls, layout: LevelLayout, engine: LikelihoodEngine, total: Total, v: FloatArray
    ) -> _InfluencePoint:
        terms = layout.terms
        finer = np.array([[float(a < b) for b in terms] for a in terms])
        finer = finer.reshape(len(terms), len(terms))
        beta, effects, variances = _predicted(layout, engine, v)
        n = float(layout.design.structure.n_rows)
        own = np.array([1.0 / v[-1] ** 2, 1.0 - beta.size / n])
        point = cls(layout, v, beta, finer, np.zeros((0, 4)), own)
        u = [e / t if t > 0.0 else e for e, t in zip(effects, v[:-1], strict=True)]
        left = []
        for t in np.flatnonzero(v[:-1] == 0.0).tolist():
            inner = np.flatnonzero((finer[t] != 0.0) & (v[:-1] > 0.0)).tolist()
            if inner:  # its groups are made of those of a finer term
                finest = min(inner, key=lambda o: u[o].size)
                u[t] = MarginSums(layout, terms[finest], u[finest]).to(terms[t])
            else:
                left.append(t)
        for t, sums in point._sums_at_zero(left, effects, total).items():
            u[t] = sums / v[-1]
        return replace(point, pulls=point._pulls(effects, u, variances))

    @property
    def starts(self) -> LongArray:
        """First group of each term among those of all, and their number."""
        sizes = [self.layout.size(chosen) for chosen in self.layout.terms]
        return np.cumsum([0, *sizes], dtype=np.int64)

    def _pulls(
        self,
        effects: list[FloatArray],
        u: list[FloatArray],
        variances: list[FloatArray | None],
    ) -> FloatArray:
        """Return the influences on the components of the terms, eqs. (10.16) and (10.17)."""
        layout, v = self.layout, self.v
        starts = self.starts
        inner = sorted({int(o) for o in np.flatnonzero(self.finer.any(axis=0))})
        counts = [layout.counts[s] for s in layout.terms]
        squares = {o: MarginSums(layout, layout.terms[o], counts[o] ** 2) for o in inner}
        predicted = {o: MarginSums(layout, layout.terms[o], counts[o] * effects[o]) for o in inner}
        of_finer: list[tuple[FloatArray | None, FloatArray | None]] = []
        for t, chosen in enumerate(layout.terms):
            left: FloatArray | None = None
            within: FloatArray | None = None
            for other in map(int, np.flatnonzero(self.finer[t])):
                effect, square = predicted[other].to(chosen), v[other] * squares[other].to(chosen)
                left = effect if left is None else left + effect
                within = square if within is None else within + square
            of_finer.append((left, within))
        del squares, predicted  # as long as the finest terms, and no longer needed
        pulls = np.empty((int(starts[-1]), 4))
        for t, (left, within) in enumerate(of_finer):
            own = pulls[starts[t] : starts[t + 1]]
            write_pulls(
                own, counts[t], u[t], effects[t], variances[t], left, within, v[t], v[-1]
            )  # fmt: skip
        return pulls

    def _sums_at_zero(
        self, zero: list[int], effects: list[FloatArray], total: Total
    ) -> dict[int, FloatArray]:
        """Return the sums of the residuals in the groups of terms whose component is zero."""
        if not zero:
            return {}
        pulls = np.zeros((int(self.starts[-1]), 4))
        pulls[:, 0], pulls[:, 2] = np.concatenate(effects), 1.0
        point = replace(self, pulls=pulls, finer=np.zeros_like(self.finer))
        sums: LevelSums = total(sum_influences, point.work(slabs=False))
        found, layout = {}, self.layout
        for t in zero:
            chosen = layout.terms[t]
            place = min(
                (i for i, leaf in enumerate(layout.leaves) if chosen <= leaf),
                key=lambda i: layout.size(layout.leaves[i]),
            )
            table = sums.tables[place]
            assert table is not None
            column = np.ascontiguousarray(table.dense[:, t])
            found[t] = MarginSums(layout, layout.leaves[place], column).to(chosen)
        return found

    def work(self, *, slabs: bool) -> LevelWork:
        """Return what a pass over rows needs."""
        layout = self.layout
        return LevelWork(
            beta=self.beta,
            terms=tuple(layout.groups[s] for s in layout.terms),
            leaves=tuple(layout.groups[s] for s in layout.leaves),
            starts=self.starts[:-1],
            pulls=self.pulls,
            finer=self.finer,
            own=self.own,
            n_rows=layout.design.structure.n_rows,
            slabs=layout.dead_end() if slabs else None,
        )


def _predicted(
    layout: LevelLayout, engine: LikelihoodEngine, v: FloatArray
) -> tuple[FloatArray, list[FloatArray], list[FloatArray | None]]:
    """Return fixed effects, effects, and their variances or None, by the groups of each set."""
    solution = predicted(engine, v)
    effects: list[FloatArray] = []
    variances: list[FloatArray | None] = []
    for t, chosen in enumerate(layout.terms):
        groups, variance = layout.groups[chosen], solution.prediction_var[t]
        places = layout.places_of(t)
        effects.append(_spread(solution.effects[t], places, groups.size))
        # Engines with random probes have no variances of prediction.
        known = v[t] > 0.0 and bool(np.isfinite(variance).all())
        variances.append(_spread(variance, places, groups.size) if known else None)
    return solution.beta, effects, variances


def _spread(values: FloatArray, places: LongArray | None, size: int) -> FloatArray:
    if places is None:
        return values
    found = np.zeros(size)
    found[places] = values
    return found


def _sets(design: Design, fixed: frozenset[str] = frozenset()) -> tuple[frozenset[str], ...]:
    """Return the sets of sampled facets, without that of all if its groups are single rows."""
    structure = design.structure
    used = {f for term in design.formula.random for f in term.facets}
    # Sampled facets may be nested in others.
    around = frozenset[str]().union(*structure.nested_in.values())
    facets = [f for f in structure.facets if f in used and (f not in fixed or f in around)]
    sets = closed_sets(facets, structure.nested_in)
    if fixed:
        sets = tuple(s for s in sets if not s <= fixed)
    single = len(facets) == len(structure.facets) and structure.cell_max == 1
    return sets[:-1] if single and sets else sets
