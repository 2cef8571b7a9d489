"""Predicted effects from orthogonal strata.

û_t = σ²_t Z_t'P y. In the coordinates of the strata a group of term t, with the axes C_t, has its
part in every stratum s ⊆ C_t; a mean over an axis of n levels stands there scaled by √n, so that

    Z_t'P y = Π_{f ∉ C_t} √n_f  Σ_{s ⊆ C_t} Π_{f ∈ C_t∖s} n_f^(−½)  Z'P_s y_s
    diag(Z_t'V⁻¹Z_t) = Π_{f ∉ C_t} n_f  Σ_s Π_{f ∈ s} (1 − 1/n_f) Π_{f ∈ C_t∖s} 1/n_f  d_s

with d_s the diagonal of Z'V_s⁻¹Z. Variances follow: σ²_t − σ⁴_t diag(Z_t'V⁻¹Z_t) given the fixed
effects, and with their uncertainty σ⁴_t diag(Z_t'V⁻¹X (X'V⁻¹X)⁻¹ X'V⁻¹Z_t) more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from vcomp._typing import FloatArray, IntArray
from vcomp.estimators.engine import Solution
from vcomp.estimators.forms import Covariance
from vcomp.estimators.nested import NestedCovariance
from vcomp.linalg.dense import solve_positive
from vcomp.statistics.strata import Cells, Stratum, StratumStatistics
from vcomp.statistics.stratify import split_axes

__all__ = ["over_axes", "single_cells", "strata_solution"]


def strata_solution(
    stats: StratumStatistics, covariances: Sequence[Covariance], v: FloatArray
) -> Solution:
    """Return fixed effects and predicted effects at components `v`.

    Parameters
    ----------
    stats : strata whose remaining facets are nested
    covariances : of the strata
    v : (k + 1,) components, the residual last
    """
    parts = [_Part(stats, s, c, v) for s, c in zip(stats.strata, covariances, strict=True)]
    beta, cov_beta = np.zeros(stats.n_fixed), np.zeros((stats.n_fixed, stats.n_fixed))
    for part in parts:
        columns = list(part.stratum.fixed)
        beta[columns] = part.beta
        cov_beta[np.ix_(columns, columns)] = part.cov_beta
    cells = None if stats.cells is None else stats.cells()
    rest = {} if cells is None else _residual_parts(cells, beta)
    effects, prediction, conditional = [], [], []
    for t in range(stats.n_terms):
        if v[t] == 0.0:
            nothing = np.zeros(stats.sizes[t])
            effects.append(nothing)
            prediction.append(nothing)
            conditional.append(nothing)
            continue
        inside = [p for p in parts if stats.term_axes[t].issuperset(p.stratum.contrasts)]
        sums, diagonal, fixed = _term_forms(stats, t, inside, rest, cells)
        places = stats.layout.places(t)
        effects.append(v[t] * sums[places])
        conditional.append(v[t] - v[t] ** 2 * diagonal[places])
        prediction.append(conditional[-1] + v[t] ** 2 * fixed[places])
    return Solution(beta, cov_beta, tuple(effects), tuple(prediction), tuple(conditional))


class _Part:
    """One stratum at given components: what its groups hold of P y, of V⁻¹ and of V⁻¹X."""

    def __init__(
        self, stats: StratumStatistics, stratum: Stratum, covariance: Covariance, v: FloatArray
    ) -> None:
        assert isinstance(covariance, NestedCovariance)
        self.stratum = stratum
        self.c = stratum.coefficients @ v
        _, gram = covariance.log_det_and_gram(self.c)
        p = gram.shape[0] - 1
        self.cov_beta = solve_positive(gram[1:, 1:], np.eye(p))
        self.beta = solve_positive(gram[1:, 1:], gram[1:, 0])
        contrast = np.concatenate([[1.0], -self.beta])
        projections = covariance.projections(self.c)
        # (r, q): replicates are combinations of axis levels.
        self.sums = [np.tensordot(r, contrast, axes=(1, 0)).T for r in projections]
        self.fixed = [r[:, 1:].transpose(1, 2, 0) for r in projections]
        self.diagonals = covariance.diagonals(self.c)
        self.single_diagonal = covariance.single_diagonal(self.c)


def _residual_parts(cells: Cells, beta: FloatArray) -> dict[tuple[int, ...], FloatArray]:
    """Return y − Xβ̂ of the cells in every stratum."""
    table = cells.tables[0].copy()
    for column, b in zip(cells.tables[1:], beta, strict=True):
        table -= b * column
    return split_axes(table, cells.shape)


def _term_forms(
    stats: StratumStatistics,
    term: int,
    parts: Sequence[_Part],
    rest: dict[tuple[int, ...], FloatArray],
    cells: Cells | None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Z'P y, and the diagonals of Z'V⁻¹Z and Z'V⁻¹X (X'V⁻¹X)⁻¹ X'V⁻¹Z of a term.

    They are in the order of the layout: combinations of the term's axes, then its groups of cells.
    """
    axes = sorted(stats.term_axes[term])
    outside = prod(n for f, n in enumerate(stats.shape) if f not in axes)
    sums, diagonal, fixed = {}, np.zeros(1), np.zeros(1)
    for part in parts:
        contrasts = part.stratum.contrasts
        away = prod(stats.shape[f] for f in axes if f not in contrasts)
        share = prod(1.0 - 1.0 / stats.shape[f] for f in contrasts) / away
        grouping = stats.term_groupings[term]
        sums[contrasts], squares, used = _group_forms(stats, part, grouping, rest, cells)
        diagonal = diagonal + outside * share * squares
        if part.beta.size:
            taken = np.einsum("irq,ij,jrq->rq", used, part.cov_beta, used)
            kept = tuple(stats.shape[f] if f in contrasts else 1 for f in axes)
            fixed = fixed + outside / away * taken.reshape((*kept, -1))
    total = over_axes(stats.shape, axes, sums)
    return (
        total.ravel(),
        np.broadcast_to(diagonal, total.shape).ravel(),
        np.broadcast_to(fixed, total.shape).ravel(),
    )


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
    rest: dict[tuple[int, ...], FloatArray],
    cells: Cells | None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Z'P y (r, q), the diagonal of Z'V⁻¹Z (q,), and Z'V⁻¹X (p, r, q) in one stratum."""
    if grouping < stats.remainder.n_groupings:
        return part.sums[grouping], part.diagonals[grouping], part.fixed[grouping]
    assert cells is not None
    codes, contrasts = stats.layout.codes, part.stratum.contrasts
    left = single_cells(rest[contrasts].copy(), part.c, part.sums, codes)
    used = np.zeros((part.beta.size, *left.shape))
    for i, j in enumerate(part.stratum.fixed):
        column = np.broadcast_to(cells.tables[1 + j], cells.tables[0].shape)
        values = split_axes(column.copy(), stats.shape)[contrasts]
        used[i] = single_cells(values, part.c, [f[i] for f in part.fixed], codes)
    return left, part.single_diagonal[codes[-1]], used
