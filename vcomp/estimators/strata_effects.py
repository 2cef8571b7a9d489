"""Predicted effects from orthogonal strata.

û_t = σ²_t Z_t'P y. In the coordinates of the strata a group of term t, with the axes C_t, has its
part in every stratum s ⊆ C_t; a mean over an axis of n levels stands there scaled by √n, so that

    Z_t'P y = Π_{f ∉ C_t} √n_f  Σ_{s ⊆ C_t} Π_{f ∈ C_t∖s} n_f^(−½)  Z'P_s y_s
    diag(Z_t'V⁻¹Z_t) = Π_{f ∉ C_t} n_f  Σ_s w_s d_s
    w_s = Π_{f ∈ s} (1 − 1/n_f) Π_{f ∈ C_t∖s} 1/n_f

with d_s the diagonal of Z'V_s⁻¹Z. Variances follow: σ²_t − σ⁴_t diag(Z_t'V⁻¹Z_t) given the fixed
effects, and with their uncertainty σ⁴_t diag(Z_t'V⁻¹X (X'V⁻¹X)⁻¹ X'V⁻¹Z_t) more. The w_s add up
to 1: the first is σ²_t Σ_s w_s (1 − σ²_t Π n_f d_s), and strata of nested groups give the bracket
without a difference, so that nothing cancels where components are far apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.estimators.engine import Solution
from vcomp.estimators.forms import Covariance
from vcomp.statistics.split import split_axes
from vcomp.statistics.strata import Cells, Stratum, StratumStatistics

__all__ = ["fixed_of_terms", "over_axes", "single_cells", "strata_solution"]


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
    stats : strata whose remaining facets are nested, or where no term tells single cells apart
    covariances : of the strata
    v : (k + 1,) components, the residual last
    beta, cov_beta : fixed effects at `v` with their covariance
    """
    parts = [_Part(s, c, v, beta) for s, c in zip(stats.strata, covariances, strict=True)]
    cells = None if stats.cells is None else stats.cells()
    split = {} if cells is None else _split_cells(cells, beta)
    effects, prediction, conditional = [], [], []
    for t in range(stats.n_terms):
        if v[t] == 0.0:
            nothing = np.zeros(stats.sizes[t])
            effects.append(nothing)
            prediction.append(nothing)
            conditional.append(nothing)
            continue
        inside = [p for p in parts if stats.term_axes[t].issuperset(p.stratum.contrasts)]
        sums, fixed = _term_forms(stats, t, inside, split)
        places = stats.layout.places(t)
        effects.append(v[t] * sums[places])
        conditional.append(v[t] * _unexplained(stats, t, inside)[places])
        used = np.einsum("ig,ij,jg->g", fixed, cov_beta, fixed)
        prediction.append(conditional[-1] + v[t] ** 2 * used[places])
    return Solution(beta, cov_beta, tuple(effects), tuple(prediction), tuple(conditional))


def fixed_of_terms(
    stats: StratumStatistics, covariances: Sequence[Covariance], v: FloatArray, beta: FloatArray
) -> list[FloatArray]:
    """Return X'V⁻¹Z_t of every term, (p, q_t); zeros for terms at zero.

    Parameters
    ----------
    stats, covariances, v, beta : as for :func:`strata_solution`
    """
    parts = [_Part(s, c, v, beta) for s, c in zip(stats.strata, covariances, strict=True)]
    cells = None if stats.cells is None else stats.cells()
    split = {} if cells is None else _split_cells(cells, beta)
    found = []
    for t in range(stats.n_terms):
        if v[t] == 0.0:
            found.append(np.zeros((stats.n_fixed, stats.sizes[t])))
            continue
        inside = [p for p in parts if stats.term_axes[t].issuperset(p.stratum.contrasts)]
        found.append(_term_forms(stats, t, inside, split)[1][:, stats.layout.places(t)])
    return found


class _Part:
    """One stratum at given components: what its groups hold of P y, of V⁻¹X and of effects."""

    def __init__(
        self, stratum: Stratum, covariance: Covariance, v: FloatArray, beta: FloatArray
    ) -> None:
        self.stratum, self._covariance, self._v = stratum, covariance, v
        self.c = stratum.coefficients @ v
        contrast = np.concatenate([[1.0], -beta[list(stratum.fixed)]])
        projections = covariance.projections(self.c)
        # (r, q): replicates are combinations of axis levels.
        self.sums = [np.tensordot(r, contrast, axes=(1, 0)).T for r in projections]
        self.fixed = [r[:, 1:].transpose(1, 2, 0) for r in projections]

    def unexplained(self, term: int, grouping: int) -> FloatArray:
        """Return the share of its variance that is left of each effect of a term, (q,)."""
        weights = self.stratum.coefficients[grouping]
        others = np.where(np.arange(self._v.size) == term, 0.0, self._v)
        own = float(weights[term] * self._v[term])
        return self._covariance.unexplained(self.c, grouping, own, float(weights @ others))


def _split_cells(cells: Cells, beta: FloatArray) -> dict[tuple[int, ...], list[FloatArray]]:
    """Return y − Xβ̂ and the columns of X of the cells in every stratum."""
    table = cells.tables[0].copy()
    for column, b in zip(cells.tables[1:], beta, strict=True):
        table -= b * column
    columns = [np.broadcast_to(column, table.shape).copy() for column in cells.tables[1:]]
    parts = [split_axes(column, cells.shape) for column in [table, *columns]]
    return {contrasts: [part[contrasts] for part in parts] for contrasts in parts[0]}


def _term_forms(
    stats: StratumStatistics,
    term: int,
    parts: Sequence[_Part],
    split: dict[tuple[int, ...], list[FloatArray]],
) -> tuple[FloatArray, FloatArray]:
    """Return Z'P y (g,) and X'V⁻¹Z (p, g) of a term.

    They are in the order of the layout: combinations of the term's axes, then its groups of cells.
    """
    axes, grouping = sorted(stats.term_axes[term]), stats.term_groupings[term]
    sums: dict[tuple[int, ...], FloatArray] = {}
    fixed: list[dict[tuple[int, ...], FloatArray]] = [{} for _ in range(stats.n_fixed)]
    for part in parts:
        contrasts = part.stratum.contrasts
        sums[contrasts], used = _group_forms(stats, part, grouping, split)
        for column, j in zip(used, part.stratum.fixed, strict=True):
            fixed[j][contrasts] = column
    total = over_axes(stats.shape, axes, sums)
    columns = [
        np.broadcast_to(over_axes(stats.shape, axes, parts_of), total.shape).ravel()
        for parts_of in fixed
    ]
    return total.ravel(), np.array(columns).reshape(stats.n_fixed, total.size)


def _unexplained(stats: StratumStatistics, term: int, parts: Sequence[_Part]) -> FloatArray:
    """Return the share of its variance that is left of each effect of a term, (g,)."""
    axes, grouping = stats.term_axes[term], stats.term_groupings[term]
    left = np.zeros(1)
    for part in parts:
        contrasts = part.stratum.contrasts
        away = prod(stats.shape[f] for f in axes if f not in contrasts)
        share = prod(1.0 - 1.0 / stats.shape[f] for f in contrasts) / away
        groups = part.unexplained(term, grouping)
        if grouping == stats.remainder.n_groupings:
            groups = groups[stats.layout.codes[-1]]
        left = left + share * groups
    return np.tile(left, prod(stats.shape[f] for f in axes))


def over_axes(
    shape: tuple[int, ...], axes: Sequence[int], parts: Mapping[tuple[int, ...], FloatArray]
) -> FloatArray:
    """Return sums in the groups of a term from those in its strata.

    Parameters
    ----------
    shape : numbers of levels of all axes
    axes : of the term
    parts : for each stratum that the term is in (r, q) sums for its contrasts and groups of cells

    Returns
    -------
    (n₁, …, q) sums for the levels of the term's axes and groups of cells
    """
    outside = prod(n for f, n in enumerate(shape) if f not in axes)
    total = np.zeros((*(shape[f] for f in axes), 1))
    for contrasts, part in parts.items():
        away = prod(shape[f] for f in axes if f not in contrasts)
        kept = tuple(shape[f] if f in contrasts else 1 for f in axes)
        total = total + np.sqrt(outside / away) * part.reshape((*kept, -1))
    return total


def single_cells(
    values: FloatArray, c: FloatArray, sums: Sequence[FloatArray], codes: Sequence[IntArray]
) -> FloatArray:
    """Return V⁻¹x = (x − Σ c_l Z_l Z_l'V⁻¹x)/c_e of single cells, (r, M).

    Parameters
    ----------
    values : (r, M) the column; it is written to
    c : components of the stratum
    sums : for each grouping (r, q) Z_l'V⁻¹x
    codes : for each grouping the (M,) group of the cells
    """
    for level, groups in enumerate(codes):
        if c[level]:
            values -= c[level] * sums[level][:, groups]
    inside: FloatArray = values / c[-1]
    return inside


def _group_forms(
    stats: StratumStatistics,
    part: _Part,
    grouping: int,
    split: dict[tuple[int, ...], list[FloatArray]],
) -> tuple[FloatArray, Sequence[FloatArray]]:
    """Return Z'P y (r, q) and columns of Z'V⁻¹X, (r, q) each."""
    if grouping < stats.remainder.n_groupings:
        return part.sums[grouping], list(part.fixed[grouping])
    codes = stats.layout.codes
    rest, *columns = split[part.stratum.contrasts]
    left = single_cells(rest.copy(), part.c, part.sums, codes)
    used = [
        single_cells(columns[j].copy(), part.c, [f[i] for f in part.fixed], codes)
        for i, j in enumerate(part.stratum.fixed)
    ]
    return left, used
