"""The strata engine: the likelihood of designs with fully crossed facets or nested terms only.

Strata are independent, and the components of each are linear in those of the model, c_s = M_s σ²
(docs/explanation/mathematics.md, eq. (3.2)). Log-determinants, traces and quadratic forms add up
over strata, eqs. (3.3) and (3.4). Only the residual occurs in denominators, so that components of
zero need no special treatment. The forms of a stratum come from a recursion over nested groups
(:mod:`~vcomp.estimators.likelihood.nested`), or from elimination if the remaining facets are
crossed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import ClassVar

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.estimators.likelihood.engine import Solution
from vcomp.estimators.likelihood.nested import NestedCovariance
from vcomp.estimators.likelihood.totals import Columns, Covariance, Totals, TotalsEngine
from vcomp.exceptions import EstimationError
from vcomp.numerics import solve
from vcomp.statistics import Cells, Stratum, StratumStatistics, split_axes


def strata_solution(
    stats: StratumStatistics,
    covariances: Sequence[Covariance],
    v: FloatArray,
    beta: FloatArray,
    cov_beta: FloatArray,
) -> Solution:
    """Return fixed effects and predicted effects at components `v`.

    Parameters
    ----------
    stats : strata; either the remaining facets are nested, or no term has single cells as groups
    covariances : covariance of each stratum
    v : (k + 1,) components, the residual last
    beta, cov_beta : fixed effects at `v` with their covariance matrix
    """
    effects = [np.zeros(size) for size in stats.sizes]
    # Variances may be the same at all levels of the axes, and are not always asked for.
    unknown: dict[int, tuple[FloatArray, FloatArray]] = {}
    positive = np.flatnonzero(v[:-1]).tolist()
    for t, inside, sums, fixed in _forms_of_terms(stats, covariances, v, beta, positive):
        used: FloatArray = np.einsum("j...,j...->...", np.tensordot(cov_beta, fixed, 1), fixed)
        own = v[t] * _unexplained(stats, t, inside)
        unknown[t] = np.broadcast_to(v[t] ** 2 * used + own, sums.shape), own
        sums *= v[t]
        (effects[t],) = stats.layout.at_places(t, [sums])

    def variances() -> tuple[list[FloatArray], list[FloatArray]]:
        prediction = [np.zeros(size) for size in stats.sizes]
        conditional = list(prediction)
        for t, (whole, own) in unknown.items():
            parts = whole, np.broadcast_to(own, whole.shape)
            prediction[t], conditional[t] = stats.layout.at_places(t, parts)
        return prediction, conditional

    return Solution(beta, cov_beta, tuple(effects), variances)


def fixed_of_terms(
    stats: StratumStatistics, covariances: Sequence[Covariance], v: FloatArray, beta: FloatArray
) -> list[FloatArray]:
    """Return X'V⁻¹Z_t of each term, (p, q_t); zeros for terms at zero.

    Parameters
    ----------
    stats, covariances, v, beta : as for :func:`strata_solution`
    """
    of_terms = [np.zeros((stats.n_fixed, size)) for size in stats.sizes]
    positive = np.flatnonzero(v[:-1]).tolist()
    for t, _, sums, fixed in _forms_of_terms(stats, covariances, v, beta, positive):
        whole = np.broadcast_to(fixed, (stats.n_fixed, *sums.shape)).reshape(-1, sums.size)
        of_terms[t] = whole[:, stats.layout.places(t)]
    return of_terms


def _forms_of_terms(
    stats: StratumStatistics,
    covariances: Sequence[Covariance],
    v: FloatArray,
    beta: FloatArray,
    terms: Sequence[int],
) -> Iterator[tuple[int, list[_StratumForms], FloatArray, FloatArray]]:
    """Yield each of the terms, its strata and what `_term_forms` returns."""
    parts = [
        _StratumForms(stratum, covariance, v, beta)
        for stratum, covariance in zip(stats.strata, covariances, strict=True)
        if any(stats.term_axes[t].issuperset(stratum.contrasts) for t in terms)
    ]
    single = any(stats.term_groupings[t] == stats.remainder.n_groupings for t in terms)
    cells = stats.cells() if single and stats.cells is not None else None
    split = {} if cells is None else _split_cells(cells, beta)
    for t in terms:
        inside = [p for p in parts if stats.term_axes[t].issuperset(p.stratum.contrasts)]
        yield t, inside, *_term_forms(stats, t, inside, split)


class _StratumForms:
    """One stratum at given components: Z_l'P y, Z_l'V⁻¹X and conditional variances."""

    def __init__(
        self,
        stratum: Stratum,
        covariance: Covariance,
        v: FloatArray,
        beta: FloatArray,
    ) -> None:
        self.stratum, self._covariance, self._v = stratum, covariance, v
        self.c = stratum.coefficients @ v
        contrast = np.concatenate([[1.0], -beta[list(stratum.fixed)]])
        projections = covariance.projections(self.c)
        # (r, q): the vectors of a stratum are combinations of levels of the axes.
        self.sums = [np.tensordot(r, contrast, axes=(1, 0)).T for r in projections]
        self.fixed = [r[:, 1:].transpose(1, 2, 0) for r in projections]

    def unexplained(self, term: int, grouping: int) -> FloatArray:
        """Return the conditional variances of effects relative to their component, (q,)."""
        weights = self.stratum.coefficients[grouping]
        others = np.where(np.arange(self._v.size) == term, 0.0, self._v)
        own = float(weights[term] * self._v[term])
        return self._covariance.unexplained(self.c, grouping, own, float(weights @ others))

    def between(self, one: int, other: int) -> FloatArray:
        """Return Z_l'V⁻¹Z_m of the groups of two groupings."""
        size = self.sums[one].shape[1]
        both = self._covariance.between(self.c, (one, other))
        return both[:size, size:]


def _split_cells(cells: Cells, beta: FloatArray) -> dict[tuple[int, ...], list[FloatArray]]:
    """Return y − Xβ̂ and the columns of X of the cells in every stratum."""
    table = cells.tables[0].copy()
    for column, b in zip(cells.tables[1:], beta, strict=True):
        table -= b * column
    # A column that does not vary between cells has a table (R, 1), and so do its parts.
    columns = [column.copy() for column in cells.tables[1:]]
    parts = [split_axes(column, cells.shape) for column in [table, *columns]]
    return {contrasts: [part[contrasts] for part in parts] for contrasts in parts[0]}


def _term_forms(
    stats: StratumStatistics,
    term: int,
    parts: Sequence[_StratumForms],
    split: dict[tuple[int, ...], list[FloatArray]],
) -> tuple[FloatArray, FloatArray]:
    """Return Z_t'P y and X'V⁻¹Z_t of a term.

    They are tables (n₁, …, q) of the levels of its axes and the groups of its grouping; those of
    X, which are the first axis of theirs, have one level of an axis where all are alike.
    """
    axes, grouping = sorted(stats.term_axes[term]), stats.term_groupings[term]
    sums: dict[tuple[int, ...], FloatArray] = {}
    fixed: list[dict[tuple[int, ...], FloatArray]] = [{} for _ in range(stats.n_fixed)]
    for part in parts:
        contrasts = part.stratum.contrasts
        sums[contrasts], used = _group_forms(stats, part, grouping, split)
        for column, j in zip(used, part.stratum.fixed, strict=True):
            fixed[j][contrasts] = column
    columns = [over_axes(stats.shape, axes, parts_of, once=True) for parts_of in fixed]
    total = over_axes(stats.shape, axes, sums)
    if not columns:
        return total, np.zeros((0, *(1 for _ in total.shape)))
    if len(columns) == 1:  # is not copied
        return total, columns[0][None]
    return total, np.array(np.broadcast_arrays(*columns))


def _unexplained(
    stats: StratumStatistics, term: int, parts: Sequence[_StratumForms]
) -> FloatArray:
    """Return the conditional variances of a term's effects relative to σ²_t, eq. (9.3), (q,).

    They are the same at all levels of its axes.
    """
    axes, grouping = stats.term_axes[term], stats.term_groupings[term]
    left = np.zeros(1)
    for part in parts:
        contrasts = part.stratum.contrasts
        away = prod(stats.shape[f] for f in axes if f not in contrasts)
        weight = prod(1.0 - 1.0 / stats.shape[f] for f in contrasts) / away
        groups = part.unexplained(term, grouping)
        if grouping == stats.remainder.n_groupings:
            groups = groups[stats.layout.codes[-1]]
        left = left + weight * groups
    return left


def _between(stats: StratumStatistics, part: _StratumForms, t: int, u: int) -> FloatArray:
    """Return the part of a stratum in Z_t'V⁻¹Z_u, by levels of axes and groups."""
    across: FloatArray = np.ones((1, 1))
    for f, n in enumerate(stats.shape):
        rows, columns = (n if f in stats.term_axes[term] else 1 for term in (t, u))
        if f in part.stratum.contrasts:
            along = np.eye(n) - 1.0 / n
        else:
            along = np.full((rows, columns), n / float(rows * columns))
        across = np.asarray(np.kron(across, along), dtype=float)
    groups = part.between(stats.term_groupings[t], stats.term_groupings[u])
    return np.asarray(np.kron(across, groups), dtype=float)


def over_axes(
    shape: tuple[int, ...],
    axes: Sequence[int],
    parts: Mapping[tuple[int, ...], FloatArray],
    *,
    once: bool = False,
) -> FloatArray:
    """Return sums within the groups of a term from those in its strata.

    Parameters
    ----------
    shape : numbers of levels of all axes
    axes : axes of the term
    parts : for each stratum of the term, (r, q) sums by its contrasts and groups of the grouping
    once : whether sums that are the same at all levels of an axis are returned for one of them

    Returns
    -------
    (n₁, …, q) sums by the levels of the term's axes and groups of the grouping
    """
    outside = prod(n for f, n in enumerate(shape) if f not in axes)
    total = np.zeros((*(1 if once else shape[f] for f in axes), 1))
    for contrasts, part in parts.items():
        away = prod(shape[f] for f in axes if f not in contrasts)
        kept = tuple(shape[f] if f in contrasts else 1 for f in axes)
        scaled = np.sqrt(outside / away) * part.reshape((*kept, -1))
        if scaled.shape == np.broadcast_shapes(scaled.shape, total.shape):
            scaled += total
            total = scaled
        else:
            total = total + scaled
    return total


def single_cells(
    values: FloatArray, c: FloatArray, sums: Sequence[FloatArray], codes: Sequence[IntArray]
) -> FloatArray:
    """Return V⁻¹x = (x − Σ c_l Z_l Z_l'V⁻¹x)/c_e for single cells, (r, M).

    Parameters
    ----------
    values : (r, M) the column; overwritten by the result
    c : components of the stratum
    sums : for each grouping (r, q) Z_l'V⁻¹x
    codes : for each grouping the (M,) group of the cells
    """
    for level, groups in enumerate(codes):
        if c[level]:
            # Single cells are many: `take` makes one table, an index and a product two.
            values -= np.take(c[level] * sums[level], groups, axis=1)
    values /= c[-1]
    return values


def _group_forms(
    stats: StratumStatistics,
    part: _StratumForms,
    grouping: int,
    split: dict[tuple[int, ...], list[FloatArray]],
) -> tuple[FloatArray, Sequence[FloatArray]]:
    """Return Z_t'P y (r, q) and the columns of Z_t'V⁻¹X, (r, q) each, of one stratum."""
    if grouping < stats.remainder.n_groupings:
        return part.sums[grouping], list(part.fixed[grouping])
    codes = stats.layout.codes
    rest, *columns = split[part.stratum.contrasts]
    left = single_cells(rest.copy(), part.c, part.sums, codes)
    used = [
        single_cells(
            np.broadcast_to(columns[j], rest.shape).copy(),
            part.c,
            [f[i] for f in part.fixed],
            codes,
        )
        for i, j in enumerate(part.stratum.fixed)
    ]
    return left, used


class StrataLikelihood(TotalsEngine[Totals]):
    """Restricted or full log-likelihood from the statistics of orthogonal strata.

    Parameters
    ----------
    stats : the strata
    reml : whether the likelihood is the restricted one
    ordinary : the forms at V = I, if they are known
    """

    stats: StratumStatistics
    name: ClassVar[str] = "strata"
    sums_of: ClassVar[str] = "strata"

    def __init__(
        self, stats: StratumStatistics, *, reml: bool, ordinary: Totals | None = None
    ) -> None:
        self.stats, self.reml, self._known_ordinary = stats, reml, ordinary
        self.covariances = [stratum_covariance(stats, s) for s in stats.strata]

    @property
    def reason(self) -> str:
        """Why this engine was chosen: the strata of the design, in words."""
        n, k = len(self.stats.strata), len(self.stats.shape)
        rest = "nested" if self.stats.remainder.parents is not None else "crossed"
        if not k:
            return "nested groups, eliminated from the innermost outwards"
        facets = "a fully crossed facet gives" if k == 1 else f"{k} fully crossed facets give"
        if self.stats.remainder.n_groupings == 1:
            return f"{facets} {n} orthogonal strata"
        return f"{facets} {n} orthogonal strata, the rest is {rest}"

    @cached_property
    def rss(self) -> float:
        """Residual sum of squares of ordinary least squares on X."""
        return self.ordinary.rss

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which may be negative.

        They solve docs/explanation/mathematics.md, eq. (2.12), at P = Q = I − X(X'X)⁻¹X'.
        """
        return solve(self.ordinary.expected(reml=True), self.ordinary.quadratics)

    def loglike(self, v: FloatArray) -> float:
        """Return the log-likelihood at components `v`, the residual last; equal to lme4's."""
        return self._with_grams(v).loglike(self.n, reml=self.reml)

    def fixed_effects(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return β̂ and its covariance matrix at `v`, on the centred scale."""
        total = self._with_grams(v)
        return total.beta.copy(), total.inverse.copy()

    def quadratics(self, v: FloatArray) -> FloatArray:
        """Return y'P V_t P y at `v`, the residual last."""
        known = self._known(v)
        if known is not None:
            return known.quadratics
        beta, quadratics = self.fixed_effects(v)[0], np.zeros(v.size)
        for stratum, covariance in zip(self.stats.strata, self.covariances, strict=True):
            contrast = np.concatenate([[1.0], -beta[list(stratum.fixed)]])
            M = stratum.coefficients
            quadratics += M.T @ covariance.squares_of(M @ v, contrast)
        return quadratics

    @property
    def gives_effects(self) -> bool:
        """Whether :meth:`solution` is available: not for single cells of a crossed remainder."""
        return self.stats.remainder.parents is not None or self.stats.cells is None

    def solution(self, v: FloatArray) -> Solution:
        """Return fixed effects and predicted effects at `v`.

        Raises
        ------
        EstimationError
            If a term has single cells as groups and the remaining facets are crossed.
        """
        if not self.gives_effects:
            raise EstimationError(
                "the strata engine predicts effects of single cells only if the facets that are "
                "not fully crossed are nested; use engine='blocked'"
            )
        v = np.asarray(v, dtype=float)
        beta, cov_beta = self.fixed_effects(v)
        return strata_solution(self.stats, self.covariances, v, beta, cov_beta)

    # One point ------------------------------------------------------------------------------

    def _forms_of_effects(
        self, v: FloatArray, terms: Sequence[int]
    ) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        stats, single = self.stats, self.stats.remainder.n_groupings
        if not stats.by_level:
            return None
        # Single cells of data in batches need another pass over the rows. They are left out for
        # all data, as results may not depend on how rows were read.
        if any(stats.term_groupings[t] == single for t in terms):
            return None
        beta, fixed, fitted = self._total(self._at(v)).beta, [], []
        blocks = {(t, u): np.zeros((stats.sizes[t], stats.sizes[u])) for t in terms for u in terms}
        for t, parts, sums, used in _forms_of_terms(stats, self.covariances, v, beta, terms):
            fitted.append(sums.ravel())
            columns = np.broadcast_to(used, (stats.n_fixed, *sums.shape))
            fixed.append(columns.reshape(stats.n_fixed, sums.size))
            for u in terms:
                for part in parts:
                    if stats.term_axes[u].issuperset(part.stratum.contrasts):
                        blocks[t, u] += _between(stats, part, t, u)
        full = np.block([[blocks[t, u] for u in terms] for t in terms])
        return full, np.concatenate(fixed, axis=1), np.concatenate(fitted)

    @cached_property
    def ordinary(self) -> Totals:
        """The forms at V = I."""
        return self._known_ordinary or self._evaluated(np.eye(self.stats.n_terms + 1)[-1])

    def _total(self, point: Totals) -> Totals:
        return point

    def _known(self, v: FloatArray) -> Totals | None:
        """Return all forms at `v`, if they were computed last."""
        last = self._last
        same = last is not None and last[0] == np.asarray(v, dtype=float).tobytes()
        return last[1] if last is not None and same else None

    def _with_grams(self, v: FloatArray) -> Totals:
        """Return log|V| and the forms B'V⁻¹B at `v`, with all others if they are known."""
        totals, v = self._known(v), np.asarray(v, dtype=float)
        if totals is None:
            totals = Totals(v.size, 1 + self.n_fixed)
            for stratum, covariance in zip(self.stats.strata, self.covariances, strict=True):
                log_det, gram = covariance.log_det_and_gram(stratum.coefficients @ v)
                columns = _places(stratum)
                totals.log_det += stratum.multiplicity * log_det
                totals.gram[np.ix_(columns, columns)] += gram
        return totals

    def _evaluated(self, v: FloatArray) -> Totals:
        """Return the forms of all strata at components `v`."""
        totals = Totals(v.size, 1 + self.n_fixed)
        for stratum, covariance in zip(self.stats.strata, self.covariances, strict=True):
            M = stratum.coefficients
            totals.add(covariance.forms(M @ v), M, stratum.multiplicity, _places(stratum))
        return totals


def _places(stratum: Stratum) -> list[int]:
    """Return the positions of a stratum's columns in [y X]."""
    return [0, *(1 + j for j in stratum.fixed)]


def stratum_covariance(stats: StratumStatistics, stratum: Stratum) -> Covariance:
    """Return the covariance of a stratum: a recursion if groups are nested, else elimination."""
    columns, remainder = stratum.columns, stats.remainder
    if remainder.parents is not None:
        return NestedCovariance(remainder, columns)
    # Deferred for start-up time: few designs need sparse matrices.
    from vcomp.estimators.likelihood.blocked_covariance import BlockedCovariance

    sums = tuple(
        n[:, None, None] * means
        for n, means in zip(remainder.tables.group_n, columns.means, strict=True)
    )
    return BlockedCovariance(remainder.tables, Columns(sums, columns.within))
