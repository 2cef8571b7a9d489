"""Prediction error variances of combinations of fixed and random effects.

Var(x'β̂ + z'û − x'β − z'u) is given by docs/explanation/mathematics.md, eq. (9.1) (Henderson 1975,
Biometrics 31, 423-447). It is computed from Henderson's equations or from orthogonal strata, where
stratum s contributes Π_{f∈s}(1 − 1/n_f) r_s'V_s⁻¹r_s to w'V⁻¹w; r_s is a weighted sum of the
indicators of a few groups that are nested in one another. Terms at zero have no effects.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.choose import (
    ENGINE_LIMITS,
    EngineLimits,
    blocked_for_variances,
    choose_engine,
)
from vcomp.estimators.likelihood.engine import predicting
from vcomp.estimators.likelihood.nested import NestedCovariance
from vcomp.estimators.likelihood.sparse_equations import (
    SparseSystem,
    build_sparse_equations,
)
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood, fixed_of_terms
from vcomp.exceptions import EstimationError
from vcomp.numerics import Positive, slices
from vcomp.statistics import CrossProducts, Statistics, StratumStatistics

_NONE = -1
"""Code of a term without a group in the combination."""

_AT_ONCE = 65_536
"""Number of combinations per batch."""

_MOST_CELLS = 2e7
"""Cells of the nodes of all effects up to which Z'V⁻¹Z is formed from levels."""

_COLUMNS = 16
"""Right-hand sides of one iterative solve."""

_LOST = 1e-8
"""Share of the sum of its components below which a variance from strata or levels has lost its
digits."""

_TOL = 1e-9
"""Tolerance of iterative solves; the error of quadratic forms is its square."""

_ENTRIES = 5e9
"""Largest product of pair-table entries and combinations for iterative solves: two minutes."""

_EXACTLY = 1e8
"""The same above which combinations of one effect have variances from probes: two seconds."""

_SECONDS_PER_ENTRY = 2e-8
"""Time of the iterative solve for one combination, divided by the entries of the pair tables: 0.9
to 2.7e-8 were measured, with twenty and with two scores a level."""


@predicting()
def prediction_variances(
    stats: Statistics,
    v: FloatArray,
    groups: LongArray,
    X: FloatArray,
    limits: EngineLimits = ENGINE_LIMITS,
) -> FloatArray:
    """Return the prediction error variance of each combination of effects, (m,).

    Components are treated as known, fixed effects as estimated.

    Parameters
    ----------
    stats : sums of the data
    v : (k + 1,) components, none negative, the residual positive
    groups : (m, k) group of each term, −1 for none
    X : (m, p) fixed part, centred as in the statistics
    limits : of the blocked engine

    Raises
    ------
    EstimationError
        If there are too many effects to factor and too many combinations for iterative solves.
    """
    groups = np.where(v[None, :-1] > 0.0, groups, _NONE)
    variances = np.empty(groups.shape[0])
    left = np.ones(variances.size, dtype=bool)
    strata = stats.strata
    if strata is not None and strata.remainder.parents is not None:
        paths = _Paths(strata)
        known = np.zeros(variances.size, dtype=bool)
        for part in slices(variances.size, _AT_ONCE):
            known[part] = paths.fit(groups[part])
        if known.any():
            variances[known], exact = _by_strata(strata, paths, v, groups[known], X[known])
            left = ~known
            if not exact.all() and (blocked := blocked_for_variances(stats, limits)) is not None:
                lost = np.flatnonzero(known)[~exact]
                variances[lost] = _by_elimination(blocked, v, groups[lost], X[lost])
    if left.any():
        variances[left] = _by_equations(stats, v, groups[left], X[left], limits)
    return variances


@predicting()
def difference_variances(
    stats: Statistics,
    v: FloatArray,
    term: int,
    pairs: tuple[LongArray, LongArray],
    limits: EngineLimits = ENGINE_LIMITS,
) -> FloatArray:
    """Return the prediction error variances of differences of effects of a term, (m,).

    Components are treated as known, fixed effects as estimated.

    Parameters
    ----------
    stats : sums of the data
    v : (k + 1,) components, none negative, that of the term and the residual positive
    term : place of the term
    pairs : (m,) groups whose effects are the first and the second of each difference
    limits : of the blocked engine

    Raises
    ------
    EstimationError
        If there are too many effects to factor and too many differences for iterative solves.
    """
    m = pairs[0].size
    none = np.zeros((m, stats.XX.shape[0] if stats.wide is None else stats.wide.n_fixed))
    groups = np.full((2, m, v.size - 1), _NONE, dtype=np.int64)
    groups[0, :, term], groups[1, :, term] = pairs
    return _by_equations(stats, v, groups[0], none, limits, other=groups[1])


@predicting()
def predicted_columns(stats: Statistics, v: FloatArray) -> tuple[FloatArray, ...]:
    """Return the predicted effects C_t of the columns of X: V⁻¹X = (X − Σ Z_t C_t)/σ²_e.

    Parameters
    ----------
    stats : sums of the data
    v : (k + 1,) components, none negative, the residual positive

    Returns
    -------
    (q_t, p) for each term
    """
    strata = stats.strata
    if strata is not None:
        engine = StrataLikelihood(strata, reml=True)
        if engine.gives_effects:
            beta = engine.fixed_effects(v)[0]
            fixed = fixed_of_terms(strata, engine.covariances, v, beta)
            return tuple(v[t] * of_term.T for t, of_term in enumerate(fixed))
    sums = stats.cross_products
    columns = [np.zeros((q, sums.n_fixed)) for q in sums.sizes]
    active = _active(sums, v)
    if active:
        system = build_sparse_equations(sums, active).at(v)
        whole = _solved(system, np.concatenate([sums.ZX[t] for t in active]))[0]
        ends = np.cumsum([sums.sizes[t] for t in active])[:-1]
        for t, part in zip(active, np.split(whole, ends), strict=True):
            columns[t] = part
    return tuple(columns)


# Orthogonal strata ----------------------------------------------------------------------------


class _Paths:
    """Nested groups of the remainder that contain a combination, one of each grouping.

    A combination names one group of each term, or none. The last grouping is that of single cells.
    """

    def __init__(self, stats: StratumStatistics) -> None:
        self.stats = stats
        self.depth = stats.remainder.n_groupings
        self._parents: list[Any] = [*(stats.remainder.parents or ()), stats.layout.codes[-1]]
        self._sizes = [*stats.remainder.tables.sizes, stats.remainder.n]
        self._places = [stats.layout.places(t) for t in range(stats.n_terms)]

    def groups(self, combinations: LongArray) -> tuple[LongArray, BoolArray]:
        """Return the group of each grouping, (depth + 1, m), 0 for none; and which are consistent.

        A combination is inconsistent if its groups are not nested in one another, such as a
        document with a topic that it does not belong to.
        """
        m, shape = combinations.shape[0], self.stats.shape
        of_groupings = np.full((self.depth + 1, m), _NONE, dtype=np.int64)
        of_axes = np.full((len(shape), m), _NONE, dtype=np.int64)
        fits = np.ones(m, dtype=bool)
        for grouping in range(self.depth, -1, -1):
            if grouping < self.depth:
                inner = of_groupings[grouping + 1]
                of_groupings[grouping] = np.where(inner < 0, _NONE, self._parents[grouping][inner])
            for t, of_term in enumerate(self.stats.term_groupings):
                if of_term != grouping:
                    continue
                group = combinations[:, t]
                place = np.where(group < 0, _NONE, self._places[t][group])
                above, given = place // self._sizes[grouping], place % self._sizes[grouping]
                _agree(of_groupings[grouping], np.where(place < 0, _NONE, given), fits)
                for axis in sorted(self.stats.term_axes[t], reverse=True):
                    above, given = above // shape[axis], above % shape[axis]
                    _agree(of_axes[axis], np.where(place < 0, _NONE, given), fits)
        return np.maximum(of_groupings, 0), fits

    def fit(self, combinations: LongArray) -> BoolArray:
        """Return which combinations are consistent."""
        return self.groups(combinations)[1]


def _agree(known: LongArray, given: LongArray, fits: BoolArray) -> None:
    """Copy given groups (−1 for none) to `known`, and clear `fits` where they differ."""
    fits &= (given < 0) | (known < 0) | (given == known)
    np.copyto(known, given, where=given >= 0)


def _by_strata(
    stats: StratumStatistics, paths: _Paths, v: FloatArray, groups: LongArray, X: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return the variances, and which of them are exact, without cancellation."""
    engine = StrataLikelihood(stats, reml=True)
    beta, cov_beta = engine.fixed_effects(v)
    fixed = fixed_of_terms(stats, engine.covariances, v, beta)
    variances, exact = np.empty(groups.shape[0]), np.empty(groups.shape[0], dtype=bool)
    for part in slices(variances.size, _AT_ONCE):
        some, d = groups[part], X[part].copy()
        used = np.zeros(d.shape[0])
        for t in range(stats.n_terms):
            has = some[:, t] >= 0
            d[has] -= v[t] * fixed[t][:, some[has, t]].T
            used += np.where(has, v[t], 0.0)
        whole, path = used.copy(), paths.groups(some)[0]
        for stratum, covariance in zip(stats.strata, engine.covariances, strict=True):
            assert isinstance(covariance, NestedCovariance)
            weights = _weights(stats, v, some, stratum.contrasts)
            weight = prod(1.0 - 1.0 / stats.shape[f] for f in stratum.contrasts)
            forms = covariance.path_forms(stratum.coefficients @ v, path[:-1], weights)
            used -= weight * forms
        exact[part] = used >= _LOST * whole
        # If the data nearly determine a combination, rounding error may make this negative.
        variances[part] = np.maximum(used, 0.0) + np.einsum("ij,ij->i", d @ cov_beta, d)
    return variances, exact


def _weights(
    stats: StratumStatistics, v: FloatArray, groups: LongArray, contrasts: tuple[int, ...]
) -> FloatArray:
    """Return the weights in r_s of the groups of each combination, (depth + 1, m)."""
    weights = np.zeros((stats.remainder.n_groupings + 1, groups.shape[0]))
    for t, (axes, grouping) in enumerate(zip(stats.term_axes, stats.term_groupings, strict=True)):
        if not axes.issuperset(contrasts):
            continue
        means = [
            stats.shape[f] ** (-0.5 if f in axes else 0.5)
            for f in range(len(stats.shape))
            if f not in contrasts
        ]
        weights[grouping] += np.where(groups[:, t] >= 0, v[t] * prod(means), 0.0)
    return weights


# Henderson's equations --------------------------------------------------------------------------


def _by_equations(
    stats: Statistics,
    v: FloatArray,
    groups: LongArray,
    X: FloatArray,
    limits: EngineLimits,
    other: LongArray | None = None,
    most_solved: float = _EXACTLY,
) -> FloatArray:
    """Return the variances of combinations; less the effects of `other` groups if given."""
    if stats.wide is not None:
        return _beside_factor(stats, v, groups, X, limits, other)
    variances = _by_levels(stats, v, groups, X, other, limits)
    if variances is not None:
        return variances
    sums = stats.cross_products
    entries = float(X.shape[0]) * sums.n_entries
    by_probes = other is None and entries > most_solved
    # As for a fit, probes serve where an evaluation takes longer than that of an exact engine may.
    if by_probes and blocked_for_variances(stats, limits, most=0.0) is None:
        from vcomp.estimators.likelihood.iterative import IterativeLikelihood  # start-up time

        variances = IterativeLikelihood(sums, reml=True).combination_variances(v, groups, X)
        if variances is not None:
            return variances
    blocked = blocked_for_variances(stats, limits, most=_SECONDS_PER_ENTRY * entries)
    if blocked is None:
        return _by_iteration(sums, v, groups, X, other=other)
    return _by_elimination(blocked, v, groups, X, other)


def _by_levels(
    stats: Statistics,
    v: FloatArray,
    groups: LongArray,
    X: FloatArray,
    other: LongArray | None = None,
    limits: EngineLimits | None = None,
) -> FloatArray | None:
    """Return the variances of combinations of few effects over many levels, each a small grid.

    Only Z'V⁻¹Z of these effects is formed, in the time of an evaluation: c'Gc − g'V⁻¹g and the
    fixed part, with g = ZGc.

    Returns
    -------
    None if the data are not such levels, an effect is one of a level, digits are lost, or the
    blocked engine is faster within its `limits`: a fit has kept its factor
    """
    grid = stats.levels
    if grid is None:
        return None
    whole = groups if other is None else np.concatenate([groups, other])
    used = np.flatnonzero((whole >= 0).any(axis=0) & (v[:-1] > 0.0)).tolist()
    nodes = sum(stats.sizes[t] * grid.n_nodes[grid.terms[t].depth] for t in used)
    if any(grid.terms[t].depth == 0 for t in used) or nodes * grid.n_cells > _MOST_CELLS:
        return None
    from vcomp.estimators.likelihood.levels import LevelsLikelihood  # deferred for start-up time

    engine = LevelsLikelihood(grid, reml=True)
    if limits is not None and blocked_for_variances(stats, limits, below=engine.seconds):
        return None
    used.sort(key=lambda t: grid.terms[t].depth)
    full, right = engine.between_groups(v, used)
    starts = np.cumsum([0, *(stats.sizes[t] for t in used)])
    cov_beta = engine.fixed_effects(v)[1]
    named = [(some[:, t], sign * v[t], start, v[t])
             for sign, some in ((1.0, groups), (-1.0, other)) if some is not None
             for t, start in zip(used, starts.tolist(), strict=False)]  # fmt: skip
    at = [np.maximum(of_term, 0) + start for of_term, _, start, _ in named]
    weights = [np.where(of_term >= 0, weight, 0.0) for of_term, weight, _, _ in named]
    prior, known, d = np.zeros(len(X)), np.zeros(len(X)), X.copy()
    for i, w, component in zip(at, weights, (own for *_, own in named), strict=True):
        d -= w[:, None] * right.T[i]
        for j, u in zip(at, weights, strict=True):
            prior += np.where(i == j, w * u / component, 0.0)
            known += w * u * full[i, j]
    random = prior - known
    if (random < _LOST * prior).any():
        return None
    return np.asarray(random + np.einsum("ij,ij->i", d @ cov_beta, d))


def _by_elimination(
    blocked: BlockedLikelihood,
    v: FloatArray,
    groups: LongArray,
    X: FloatArray,
    other: LongArray | None = None,
) -> FloatArray:
    """Return the variances of combinations; less the effects of `other` groups if given."""
    point, variances = blocked.point(v), np.empty(X.shape[0])
    for part in slices(variances.size, _AT_ONCE):
        rows = _indicators(groups[part], point.active, blocked.sizes)
        if other is not None:
            rows = rows - _indicators(other[part], point.active, blocked.sizes)
        variances[part] = point.prediction_variances(rows, X[part])
    return variances


def _beside_factor(
    stats: Statistics,
    v: FloatArray,
    groups: LongArray,
    X: FloatArray,
    limits: EngineLimits,
    other: LongArray | None = None,
) -> FloatArray:
    """Return the variances with a factor of very many levels; its columns count as effects."""
    from scipy.sparse import csr_array, hstack

    wide = stats.wide
    engine = choose_engine(stats, "blocked", reml=True, limits=limits)
    assert wide is not None
    assert isinstance(engine, BlockedLikelihood)
    point, variances, k = engine.point(v), np.empty(X.shape[0]), wide.n_terms
    at = point.active.index(k)
    before, after = point.active[:at], point.active[at + 1 :]
    for part in slices(variances.size, _AT_ONCE):
        sparse = csr_array(X[part][:, wide.sparse_at])
        rows = [_indicators(groups[part], terms, wide.sizes) for terms in (before, after)]
        if other is not None:
            left = [_indicators(other[part], terms, wide.sizes) for terms in (before, after)]
            rows = [one - two for one, two in zip(rows, left, strict=True)]
        whole = hstack([rows[0], sparse, rows[1]], format="csr")
        variances[part] = point.prediction_variances(whole, X[part][:, wide.dense_at])
    return variances


def _indicators(groups: LongArray, terms: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    """Return the indicators of the groups of combinations, (m, groups of all `terms`), sparse."""
    from scipy.sparse import csr_array

    starts = np.cumsum([0, *(sizes[t] for t in terms)])
    columns = groups[:, list(terms)] + starts[:-1]
    known = groups[:, list(terms)] >= 0
    indptr = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    indices = columns[known]
    return csr_array(
        (np.ones(indices.size), indices, indptr), shape=(groups.shape[0], int(starts[-1]))
    )


def _by_iteration(
    stats: CrossProducts,
    v: FloatArray,
    groups: LongArray,
    X: FloatArray,
    most_entries: float = _ENTRIES,
    other: LongArray | None = None,
) -> FloatArray:
    """Return the variances of combinations; less the effects of `other` groups if given."""
    entries = float(stats.n_entries)
    if entries * X.shape[0] > most_entries:
        most = max(int(most_entries / entries), 1)
        minutes = max(round(entries * X.shape[0] * _SECONDS_PER_ENTRY / 60.0), 2)
        raise EstimationError(
            f"the {sum(stats.sizes):,} random effects of these data are too many to factor, and "
            f"the variances of {X.shape[0]:,} different predictions need {minutes:,} minutes; "
            f"request variances of at most {most:,} predictions at a time, or use predict() "
            "without variances, or level='population', which has one prediction for each set of "
            "covariates"
        )
    active = _active(stats, v)
    system = build_sparse_equations(stats, active).at(v)
    nothing = np.zeros((0, stats.n_fixed))
    ZX = np.concatenate([nothing, *(stats.ZX[t] for t in active)])
    border = _solved(system, ZX)[0]
    inner = Positive(stats.XX - ZX.T @ border)
    rows, variances = _indicators(groups, active, stats.sizes), np.empty(X.shape[0])
    if other is not None:
        rows = rows - _indicators(other, active, stats.sizes)
    for part in slices(variances.size, _COLUMNS):
        some = rows[part]
        d = X[part] - some @ border
        forms = _solved(system, some.toarray().T)[1]
        variances[part] = v[-1] * (forms + np.einsum("ij,ji->i", d, inner.solve(d.T)))
    return variances


def _active(stats: CrossProducts, v: FloatArray) -> tuple[int, ...]:
    """Return the terms with positive components, largest first."""
    positive = np.flatnonzero(v[:-1] > 0.0).tolist()
    return tuple(sorted(positive, key=lambda t: (-stats.sizes[t], t)))


def _solved(system: SparseSystem, right: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return C⁻¹b and b'C⁻¹b of each column b."""
    lead = system.lead.size
    reduced = system.reduce(right[:lead], np.ascontiguousarray(right[lead:]))
    solved = system.solve(reduced.tail.copy(), None, _TOL)
    whole = np.concatenate([system.back(reduced, solved.x), solved.x])
    return whole, np.diagonal(system.forms(reduced, solved.x, solved.residual))
