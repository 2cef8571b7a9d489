"""Values of the levels of factors and terms that depend on the rows of a fit.

Those of objects of measurement are their scores, and analyses within them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.data import plain_label
from vcomp.design import Chunk, number_combinations
from vcomp.estimators.likelihood import (
    MatricesLikelihood,
    difference_variances,
    prediction_variances,
)
from vcomp.exceptions import EstimationError, VcompError
from vcomp.formula import REPLICATE, LevelRows, average_rows, in_formula, level_rows, refuse
from vcomp.inference import VarianceComponents
from vcomp.model.record import FitRecord
from vcomp.model.row_access import EffectSolution, RowAccess, require_rows
from vcomp.model.stored_levels import (
    EffectsWithin,
    ObjectScores,
    StoredDifferences,
    StoredLevels,
    StoredTerm,
    Within,
)

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.inference.pairwise import Pairs

_SINGULAR = 1e-10
"""Relative singular value of scaled coefficients below which equations are singular."""


_ROWS = 262_144
"""Largest number of rows whose groups are in memory at once, unless one object has more."""


def object_scores(
    access: RowAccess, components: VarianceComponents, term: int, effects: EffectSolution
) -> ObjectScores:
    """Return the values of a term's levels as objects of measurement, from the rows.

    Parameters
    ----------
    access : model and components
    components : of the G-study
    term : whose levels are the objects
    effects : predicted, of all terms
    """
    chunk = access.data.statistics.single_rows
    within = EffectsWithin.of(components, components.facets[term])
    rows = _RowsOfObjects.of(chunk, term)
    terms = [within.all.index(e) for e in within.distinct]
    profile, cells = None, None
    if not within.own.all() and rows.have_one_size():
        cells = _cells(access, within)
        if _is_complete(rows.objects, cells, chunk.weights):
            profile = rows.profile(cells)
    blocks = [_within(rows, block, terms, cells, profile) for block in rows.blocks()]
    scores, se = _predicted(access, term, within.parts, effects)
    shared = [block.shared for block in blocks if block.shared is not None]
    of_scores = [block.of_scores for block in blocks if block.of_scores is not None]
    return ObjectScores(
        n=rows.n,
        mean=access.data.design.origin + np.concatenate([rows.means(b) for b in rows.blocks()]),
        score=scores,
        se=se,
        within=Within(
            np.concatenate([block.components for block in blocks]),
            np.concatenate(shared) if shared else None,
            np.concatenate([block.inverse_n for block in blocks]),
            np.concatenate(of_scores) if of_scores else None,
        ),
    )


def residuals_of_objects(access: RowAccess, term: int) -> FloatArray | None:
    """Return the mean residual variance of the scores of each object; None if all have one."""
    chunk = access.data.statistics.single_rows
    if chunk.residual_codes is None:
        return None
    objects = _groups(chunk, term)
    residuals = access.components[-int(chunk.residual_codes.max()) - 1 :]
    sums = _sums(objects, residuals[chunk.residual_codes], chunk.weights)
    return np.asarray(sums / np.bincount(objects, chunk.weights), dtype=float)


@dataclass(frozen=True, slots=True)
class _RowsOfObjects:
    """The rows in the order of their objects, read in blocks of whole objects.

    Attributes
    ----------
    chunk : of all rows
    objects : (n,) the object of each row
    order : (n,) the rows, those of an object together
    n, total : (P,) scores of each object, and the sums of their weights
    """

    chunk: Chunk
    objects: IntArray
    order: Any
    n: Any
    total: Any

    @classmethod
    def of(cls, chunk: Chunk, term: int) -> _RowsOfObjects:
        objects = _groups(chunk, term)
        order, n = np.argsort(objects, kind="stable"), np.bincount(objects)
        return cls(chunk, objects, order, n, np.bincount(objects, chunk.weights))

    def have_one_size(self) -> bool:
        """Whether all objects have as many scores."""
        return bool((self.n == self.n[0]).all())

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the first object of each block, and the one after its last."""
        ends, first = np.cumsum(self.n), 0
        while first < ends.size:
            before = ends[first] - self.n[first]
            last = max(first + 1, int(np.searchsorted(ends, before + _ROWS, side="right")))
            yield first, last
            first = last

    def rows(self, block: tuple[int, int]) -> Any:
        """Return the rows of a block."""
        first = int(self.n[: block[0]].sum())
        return self.order[first : first + int(self.n[block[0] : block[1]].sum())]

    def means(self, block: tuple[int, int]) -> FloatArray:
        """Return the mean of the centred scores of each object."""
        at = self.rows(block)
        sums = _sums(self.objects[at] - block[0], self._y(block), self.weights(at))
        return sums / self.total[block[0] : block[1]]

    def weights(self, rows: Any) -> FloatArray | None:
        """Return the weights of some rows; None where all count alike."""
        return None if self.chunk.weights is None else self.chunk.weights[rows]

    def deviations(self, block: tuple[int, int]) -> FloatArray:
        """Return deviations from the object's mean: differences of T terms keep digits."""
        found: FloatArray = self._y(block)
        found -= np.repeat(self.means(block), self.n[block[0] : block[1]])
        return found

    def profile(self, cells: IntArray) -> FloatArray:
        """Return the mean deviation in each cell."""
        n = np.bincount(cells, self.chunk.weights)
        sums = np.zeros(n.size)
        for block in self.blocks():
            at = self.rows(block)
            sums += _sums(cells[at], self.deviations(block), self.weights(at), n.size)
        return sums / n

    def _y(self, block: tuple[int, int]) -> FloatArray:
        return self.chunk.response[self.rows(block)] - self.chunk.origin


def _sums(groups: IntArray, x: FloatArray, weights: FloatArray | None, n: int = 0) -> FloatArray:
    """Return the weighted sum of each group, of at least n groups."""
    return np.asarray(np.bincount(groups, x if weights is None else weights * x, n), dtype=float)


def _groups(chunk: Chunk, term: int) -> IntArray:
    """Return the group of each row in a term, computed at every call."""
    return chunk.terms[term].groups(chunk.compact_codes, chunk.facet_sizes)


def _within(
    rows: _RowsOfObjects,
    block: tuple[int, int],
    terms: Sequence[int],
    cells: IntArray | None,
    profile: FloatArray | None,
) -> Within:
    """Return an analysis of variance of the scores of every object in a block.

    Parameters
    ----------
    rows, block : of the objects
    terms : of the effects except the residual
    cells : (n,) combination of all facets whose levels objects can share
    profile : the mean deviation in each cell; None if objects do not have the same cells
    """
    at, chunk = rows.rows(block), rows.chunk
    objects = rows.objects[at] - block[0]
    n, total = (sizes[block[0] : block[1]].astype(float) for sizes in (rows.n, rows.total))
    x, w = rows.deviations(block), rows.weights(at)
    codes = [column[at] for column in chunk.compact_codes]
    groups = [_joined(objects, chunk.terms[t].groups(codes, chunk.facet_sizes)) for t in terms]
    coefficients, inverse_n = _coefficients(objects, n, total, groups, w)
    shared = None
    if profile is not None and cells is not None:
        # In products between objects, the scores of a cell are replaced by their mean.
        own = _joined(objects, cells[at])
        mean = (_sums(own, x, w) / np.bincount(own, w))[own]
        crossed = _squares(objects, groups, x, profile[cells[at]], w)
        alone = _squares(objects, groups, x, mean, w)
        shared = _solved(coefficients, (rows.n.size * crossed - alone) / (rows.n.size - 1.0))
    of_scores = None
    if w is not None:
        of_scores = (np.bincount(objects, w * w) / total**2)[:, None]
    found = _solved(coefficients, _squares(objects, groups, x, x, w))
    return Within(found, shared, inverse_n, of_scores)


def _is_complete(objects: IntArray, cells: IntArray, weights: FloatArray | None) -> bool:
    """Whether all objects have the same cells, with the same numbers or weights of scores."""
    n_objects, n_cells = int(objects.max()) + 1, int(cells.max()) + 1
    if n_objects * n_cells > objects.size:
        return False
    counts = np.bincount(objects * n_cells + cells, weights, n_objects * n_cells)
    counts = counts.reshape(n_objects, n_cells)
    return bool((counts == counts[0]).all())


def _coefficients(
    objects: IntArray,
    n: FloatArray,
    total: FloatArray,
    groups: Sequence[IntArray],
    w: FloatArray | None,
) -> tuple[FloatArray, FloatArray]:
    """Return the coefficients of E(T − T_μ), (P, k + 1, k + 1), and Σ n²/(Σ n)², (P, k + 1).

    With weights w of residual variances σ²/w, sums of weights are in the place of n; the residual
    has a coefficient of 1 in the square of each group, as without.
    """
    k, P = len(groups), n.size
    coefficients, inverse_n = np.empty((P, k + 1, k + 1)), np.empty((P, k + 1))
    sizes = [np.bincount(g, w).astype(float) for g in groups]
    owner = [_owner(g, objects) for g in groups]
    for s in range(k):
        coefficients[:, s, k] = np.bincount(owner[s], minlength=P) - 1.0
        squares = np.bincount(owner[s], sizes[s] ** 2, minlength=P) / total
        inverse_n[:, s] = squares / total
        coefficients[:, k, s] = total - squares
        for u in range(s + 1):
            both = groups[s] if u == s else _joined(groups[s], groups[u])
            squares = np.square(np.bincount(both, w), dtype=float)
            for one, other in {(s, u), (u, s)}:
                inside = _owner(both, groups[one])
                terms = squares / sizes[one][inside]
                coefficients[:, one, other] = np.bincount(owner[one][inside], terms, minlength=P)
    for u in range(k):
        coefficients[:, :k, u] -= (inverse_n[:, u] * total)[:, None]
    coefficients[:, k, k] = n - 1.0
    inverse_n[:, k] = 1.0 / total
    return coefficients, inverse_n


def _joined(left: IntArray, right: IntArray) -> IntArray:
    """Return the combination of two columns of codes in each row, numbered in order."""
    (a, n_a), (b, n_b) = (
        (codes.astype(np.int32, copy=False), int(codes.max()) + 1) for codes in (left, right)
    )
    return number_combinations(a, n_a, b, n_b)[1]


def _owner(groups: IntArray, coarser: IntArray) -> LongArray:
    """Return for each group the coarser group that contains it."""
    owner = np.empty(int(groups.max()) + 1, dtype=np.int64)
    owner[groups] = coarser
    return owner


def _squares(
    objects: IntArray,
    groups: Sequence[IntArray],
    x: FloatArray,
    z: FloatArray,
    w: FloatArray | None,
) -> FloatArray:
    """Return Σ_g (Σ x)(Σ z)/n_g of every object and effect, Σ x z as the last, (P, k + 1)."""
    squares = []
    for g in groups:
        product = _sums(g, x, w) * _sums(g, z, w) / np.bincount(g, w)
        squares.append(np.bincount(_owner(g, objects), product))
    return np.column_stack([*squares, _sums(objects, x * z, w)])


def _solved(coefficients: FloatArray, T: FloatArray) -> FloatArray:
    """Return the components of every object, nan where its equations are singular."""
    scale = np.abs(coefficients).max(axis=2, keepdims=True)
    scaled = coefficients / np.where(scale > 0.0, scale, 1.0)
    values = np.linalg.svd(scaled, compute_uv=False)
    regular = values[:, -1] > _SINGULAR * values[:, 0]
    solved = np.full(T.shape, np.nan)
    right = T[regular] / scale[regular, :, 0]
    solved[regular] = np.linalg.solve(scaled[regular], right[..., None])[..., 0]
    return solved


def _predicted(
    access: RowAccess, term: int, parts: Sequence[int], effects: EffectSolution
) -> tuple[FloatArray, FloatArray]:
    """Return μ̂ + Σ û of every level of a term and its standard error, at the mean of X.

    The sum is over the terms that are parts of the object, such as doctor and doctor:patient.
    """
    design, stats, v = access.data.design, access.data.statistics, access.components
    chunk, mean = stats.single_rows, stats.single_rows.columns.mean(axis=0)
    n_levels = stats.sizes[term]
    groups = np.full((n_levels, len(design.terms)), -1, dtype=np.int64)
    scores = np.full(n_levels, design.mean(mean, effects.beta))
    for part in parts:
        if part == term:
            groups[:, part] = np.arange(n_levels)
        else:
            groups[_groups(chunk, term), part] = _groups(chunk, part)
        scores += effects.of_terms[part][groups[:, part]]
    if not v.any():
        return scores, np.zeros(scores.size)
    X = np.broadcast_to(mean, (scores.size, mean.size))
    if stats.blocks is None:
        return scores, np.sqrt(prediction_variances(stats, v, groups, X))
    weights = [(own, (own >= 0)[:, None].astype(np.float64)) for own in groups.T]
    likelihood = MatricesLikelihood(stats, reml=True)
    return scores, np.sqrt(likelihood.prediction_variances(v, weights, X))


def _cells(access: RowAccess, effects: EffectsWithin) -> IntArray:
    """Return the combination of all facets except the object and the facets nested in it."""
    design, chunk = access.data.design, access.data.statistics.single_rows
    cells = np.zeros(chunk.response.size, dtype=np.int32)
    for position, facet in enumerate(design.facets):
        if facet.name not in effects.excluded:
            cells = _joined(cells, chunk.level_codes(position))
    return cells


def factors_of(access: RowAccess) -> list[str]:
    """Return the factors of the fixed part as written."""
    fixed = access.data.design.fixed
    info = fixed.design_info
    if info is None:
        return []
    apart = [] if fixed.factor is None else [fixed.factor.code]
    return apart + [f.factor.code for f in info.factor_infos.values() if f.type == "categorical"]


def column_means(access: RowAccess) -> FloatArray | None:
    """Return the means of the columns of X over the rows; None if they do not add up to 1."""
    data, design = access.data, access.data.design
    if not design.constant.any():
        return None
    return design.x_origin + data.column_products(design.constant) / data.statistics.n


def factor_rows(access: RowAccess, code: str, most: int) -> LevelRows:
    """Return rows of X for the levels of a factor, to be stored.

    Parameters
    ----------
    access : of the fit
    code : of the factor, as it is written
    most : number of elements

    Raises
    ------
    EstimationError
        If there are more.
    FormulaError, DataError
        If the levels cannot be compared.
    """
    fixed = access.data.design.fixed
    factor, p = fixed.factor, len(fixed.names)
    if factor is None or code != factor.code:
        rows = level_rows(fixed, code, column_means(access))
        assert rows is not None
        return replace(rows, omitted=omitted_term(access, rows.names[-1]))
    if len(factor.levels) * p > most:
        raise EstimationError(
            f"comparisons of {code} were not stored: {len(factor.levels):,} levels with {p:,} "
            "columns of the fixed part are too many; fit the model again",
            column=code,
        )
    X = np.repeat(average_rows(fixed, column_means(access)), len(factor.levels), axis=0)
    X[:, -factor.n_columns :] = np.eye(len(factor.levels))[:, 1:]
    return LevelRows(tuple(factor.levels), X, (), names=(factor.code, factor.column))


@dataclass(frozen=True, slots=True)
class TermLevels:
    """The predicted effects of a term.

    Attributes
    ----------
    index : names of the levels
    effects : (q,)
    centre : the mean of the data, to which they are added
    variances : returns the variances of the differences of pairs
    """

    index: pd.Index
    effects: FloatArray
    centre: float
    variances: Callable[[Pairs], FloatArray]


def term_levels(access: RowAccess, term: int, predicted: EffectSolution) -> TermLevels:
    """Return the predicted effects of a term.

    Raises
    ------
    EstimationError
        If its component is not estimated above zero.
    """
    design, stats, v = access.data.design, access.data.statistics, access.components
    name = design.terms[term].name
    if not v[term] > 0.0:
        written = in_formula(name)
        raise EstimationError(
            f"the component of {name} is estimated at zero, so that all of its predicted effects "
            f"are zero; to compare the levels as fixed, fit C({written}) in place of "
            f"(1|{written})",
            term=name,
        )
    row = average_rows(design.fixed, column_means(access)) - design.x_origin
    return TermLevels(
        index=design.group_index(term),
        effects=predicted.of_terms[term],
        centre=float(design.mean(row, predicted.beta).sum()),
        variances=lambda pairs: difference_variances(stats, v, term, pairs),
    )


def omitted_term(access: RowAccess, facet: str) -> str:
    """Return the term that the model lacks for cells with several scores of a factor; or ""."""
    structure = access.data.design.structure
    facets = [name for name in structure.facets if name != REPLICATE]
    if access.data.rows is None or structure.cell_max < 2 or not facets:
        return ""
    rows, kept = access.data.statistics.single_rows, access.data.fixed_columns
    import pandas as pd  # deferred for start-up time

    whole, n_cells = rows.cells()
    n_whole = n_cells
    for name in kept:
        if name == facet or kept[name].dtype.kind != "f":
            codes, levels = pd.factorize(kept[name])
            keys, rows_of = number_combinations(whole, n_whole, codes, len(levels))
            whole, n_whole = rows_of.astype(np.int64), keys.size
    if n_whole == whole.size:
        return ""
    # A factor in which the cells are nested needs no term of its own.
    nested = n_whole == n_cells
    named = facets if nested or facet in facets or facet not in kept else [facet, *facets]
    terms = [frozenset(name.split(":")) for name in access.estimate.names[:-1]]
    return "" if frozenset(named) in terms else ":".join(named)


_ROWS, _EFFECTS, _LEVELS = 250_000, 5_000, 2_000
"""Largest numbers of rows, of effects of all terms, and of levels of a term at which levels are
stored by default: a fraction of the time of the fit, and some hundred kilobytes."""

_COMPARED = 300
"""Largest number of levels whose differences are stored: these grow with the square."""

_ELEMENTS = 250_000
"""Largest number of stored elements of the rows of X of a factor."""


def with_levels(record: FitRecord, access: RowAccess | None, scores: bool | None) -> FitRecord:
    """Return a record with the values of its levels.

    Parameters
    ----------
    record, access : of the fit
    scores : whether to store such values; None to store the cheap ones

    Raises
    ------
    DataError
        If `scores` is True, and the result has neither rows nor such values.
    """
    if scores is False:
        return replace(record, level_values=None)
    if access is None:
        if scores and record.level_values is None:
            require_rows(access)
        return record
    if record.components.matrices:
        if scores:
            out = "leave scores= out"
            refuse("scores=True", record.traits, slopes=out, residuals=out)
        return record
    return replace(record, level_values=_Levels(record, access, everything=bool(scores)).found())


class _Levels:
    """Collector of the levels of a fit, term by term, with reasons for omissions."""

    def __init__(self, record: FitRecord, access: RowAccess, *, everything: bool) -> None:
        self.record, self.access, self.everything = record, access, everything
        self.no_scores: dict[str, str] = {}
        self.no_differences: dict[str, str] = {}

    def found(self) -> StoredLevels:
        """Return the levels of all terms and factors."""
        design, terms = self.access.data.design, {}
        effects = self._effects()
        for t, term in enumerate(design.terms if effects is not None else ()):
            assert effects is not None
            objects = self._objects(t, effects)
            differences = self._differences(t, effects)
            if objects is not None or differences is not None:
                terms[term.name] = StoredTerm(design.group_index(t), objects, differences)
        factors = [self._factor(code) for code in factors_of(self.access)]
        kept = tuple(rows for rows in factors if rows is not None)
        return StoredLevels(terms, kept, self.no_scores, self.no_differences)

    def _effects(self) -> EffectSolution | None:
        """Return the predicted effects, None if no term can be stored."""
        stats, names = self.access.data.statistics, self.record.estimate.names[:-1]
        try:
            if not self.everything and sum(stats.sizes) > _EFFECTS and stats.strata is None:
                raise _too_many("scores and comparisons", sum(stats.sizes), "effects", _EFFECTS)
            return self.access.effects
        except VcompError as error:
            for reasons in (self.no_scores, self.no_differences):
                reasons.update(dict.fromkeys(names, str(error)))
            return None

    def _objects(self, term: int, effects: EffectSolution) -> ObjectScores | None:
        n_rows, size = self.record.structure.n_rows, self.access.data.statistics.sizes[term]
        name = self.record.estimate.names[term]
        try:
            if not self.everything and n_rows > _ROWS:
                raise _too_many(f"universe scores of {name}", n_rows, "rows", _ROWS)
            if not self.everything and size > _LEVELS:
                raise _too_many(f"universe scores of {name}", size, "levels", _LEVELS)
            return object_scores(self.access, self.record.components, term, effects)
        except VcompError as error:
            self.no_scores[name] = str(error)
            return None

    def _differences(self, term: int, effects: EffectSolution) -> StoredDifferences | None:
        name, size = self.record.estimate.names[term], self.access.data.statistics.sizes[term]
        try:
            if size > _COMPARED:
                raise VcompError(
                    f"comparisons of {name} were not stored: {size:,} levels have "
                    f"{size * (size - 1) // 2:,} differences, and errors of differences are "
                    f"stored for up to {_COMPARED} levels; fit the model again",
                    column=name,
                )
            levels = term_levels(self.access, term, effects)
            return StoredDifferences.of(levels.effects, levels.centre, levels.variances)
        except VcompError as error:
            self.no_differences[name] = str(error)
            return None

    def _factor(self, code: str) -> LevelRows | None:
        try:
            rows = factor_rows(self.access, code, _ELEMENTS)
        except VcompError as error:
            self.no_differences[code] = str(error)
            return None
        levels, absent = (tuple(map(_atom, some)) for some in (rows.levels, rows.not_estimable))
        return replace(rows, levels=levels, not_estimable=absent)


def _too_many(what: str, n: int, of: str, most: int) -> VcompError:
    return VcompError(
        f"{what} were not stored: {n:,} {of} are more than {most:,}; fit the model again, and "
        "store it by to_json(path, scores=True)"
    )


def _atom(level: Any) -> Any:
    plain = plain_label(level)
    return plain if isinstance(plain, str | int | float) else str(plain)
