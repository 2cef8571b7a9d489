"""Complete data with a facet that is crossed with everything: its levels are replicates.

Where every person has the same columns, that is items of the same variables, the n vectors of m
columns fall into their mean and n − 1 contrasts, independent of each other and with

    V_c = Σ_{t with p} K_t ∘ Σ_t,   V_m = V_c + n Σ_{t without p} K_t ∘ Σ_t

between columns: K_t says which of them share a group of t, Σ_t has the variances and covariances
of their variables. All of the likelihood are matrices of m rows, however many persons there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray
from vcomp.design.combine import number_combinations
from vcomp.linalg.dense import Positive
from vcomp.multivariate.covariance_components import elements
from vcomp.multivariate.layout import Layout
from vcomp.multivariate.matrices import Derivatives, Kind

__all__ = ["Axis", "AxisLikelihood", "axis_forms", "find_axis"]

_MOST_COLUMNS = 400
"""Columns up to which their matrices are cheaper than equations of the effects."""


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """Scores as vectors of the same columns.

    Attributes
    ----------
    facet : whose levels have the vectors
    n : number of its levels
    variable : (m,) of each column
    same : (k + 1, m, m) whether two columns share a group of a term
    inside : (k + 1,) whether the term holds the facet
    contrasts : (m, m) sums of products about the means of the columns, of scores in their scale
    mean : (m,) the means times √n
    """

    facet: str
    n: int
    variable: IntArray
    same: BoolArray
    inside: BoolArray
    contrasts: FloatArray
    mean: FloatArray

    def covariances(self, S: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return V_c and V_m at (k + 1, v, v) matrices."""
        w = self.variable
        parts = self.same * S[:, w[:, None], w[None, :]]
        within = np.asarray(parts[self.inside].sum(axis=0))
        return within, np.asarray(within + self.n * parts[~self.inside].sum(axis=0))

    def unit(self, element: tuple[int, int, int]) -> FloatArray:
        """Return the derivative of V_c, or of V_m/n, by an element."""
        t, a, b = element
        pair = (self.variable == a)[:, None] & (self.variable == b)[None, :]
        return np.asarray(self.same[t] & (pair | pair.T), dtype=float)


def find_axis(layout: Layout) -> Axis | None:
    """Return the facet with most levels that is crossed with everything, None if there is none."""
    best: tuple[int, int] | None = None
    for place, levels in enumerate(layout.scores.levels):
        m, left = divmod(layout.scores.n, len(levels))
        if left == 0 and m <= _MOST_COLUMNS and (best is None or m < best[0]):
            columns, count = _columns(layout, place)
            if count == m and _fill(layout, place, columns, m):
                best = m, place
    if best is None:
        return None
    return _axis(layout, best[1], best[0])


def _columns(layout: Layout, place: int) -> tuple[IntArray, int]:
    """Return the column of every score, and how many there are."""
    scores = layout.scores
    cells, size = scores.codes[place], len(scores.levels[place])
    for other, codes in enumerate(scores.codes):
        if other != place:
            keys, cells = number_combinations(cells, size, codes, len(scores.levels[other]))
            size = keys.size
    # Units of one cell are numbered, so that the first of one level goes with that of another.
    keys, units = number_combinations(cells, size, scores.unit, scores.n_units)
    of_cell = keys // scores.n_units
    starts = np.searchsorted(of_cell, np.arange(size))
    rank = (np.arange(keys.size) - starts[of_cell])[units].astype(np.int32)
    columns, size = scores.variable, layout.n_variables
    others = [(c, len(x)) for c, x in zip(scores.codes, scores.levels, strict=True)]
    del others[place]
    for codes, levels in [*others, (rank, int(rank.max()) + 1)]:
        keys, columns = number_combinations(columns, size, codes, levels)
        size = keys.size
    return columns, size


def _fill(layout: Layout, place: int, columns: IntArray, m: int) -> bool:
    joint = layout.scores.codes[place].astype(np.int64) * m + columns
    n = layout.scores.n
    return bool((np.bincount(joint, minlength=n) == 1).all()) and joint.max() < n


def _axis(layout: Layout, place: int, m: int) -> Axis:
    scores = layout.scores
    columns, _ = _columns(layout, place)
    n = len(scores.levels[place])
    Y = np.empty((n, m))
    Y[scores.codes[place], columns] = layout.y / layout.scale[scores.variable]
    first = np.flatnonzero(scores.codes[place] == 0)
    first = first[np.argsort(columns[first])]
    groups = np.array([g[first] for g in layout.groups])
    means = Y.mean(axis=0)
    Y -= means
    facet = scores.facets[place]
    return Axis(
        facet=facet,
        n=n,
        variable=scores.variable[first],
        same=groups[:, :, None] == groups[:, None, :],
        inside=np.array([facet in f for f in layout.facets]),
        contrasts=Y.T @ Y,
        mean=np.sqrt(n) * means,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    loglike: float
    inverse: FloatArray  # of V_c
    within: FloatArray  # V_c⁻¹ times the contrasts
    P: FloatArray  # of the mean
    Q: FloatArray  # P with REML, V_m⁻¹ with ML
    Pz: FloatArray


class AxisLikelihood:
    """Restricted or full likelihood of vectors of the same columns, in their scale.

    Parameters
    ----------
    axis : the vectors
    layout : of the scores
    reml : restricted likelihood, or the full one
    """

    kinds: tuple[Kind, ...] = ("observed", "expected", "average")

    def __init__(self, axis: Axis, layout: Layout, *, reml: bool) -> None:
        self.axis, self.reml = axis, reml
        self.linked: BoolArray = layout.linked
        self.n = layout.scores.n
        self._elements = elements(layout.linked)
        self._X = np.eye(layout.n_variables)[axis.variable]
        self._last: tuple[bytes, _Point | None] | None = None

    @property
    def reason(self) -> str:
        """What computes it, and why."""
        return (
            f"matrices between the {self.axis.variable.size} columns that all levels of "
            f"{self.axis.facet} have"
        )

    def loglike(self, S: FloatArray) -> float:
        """Return the log-likelihood; −∞ where a matrix is not positive definite."""
        point = self._at(S)
        return -np.inf if point is None else point.loglike

    def derivatives(self, S: FloatArray) -> Derivatives:
        """Return the log-likelihood with gradient and average information."""
        point, axis = self._required(S), self.axis
        score_c = 0.5 * (point.within @ point.inverse - (axis.n - 1) * point.inverse)
        score_m = 0.5 * (np.outer(point.Pz, point.Pz) - point.Q)
        gradient = np.empty(self.linked.shape)
        for t, inside in enumerate(axis.inside):
            slopes = score_c + score_m if inside else axis.n * score_m
            gradient[t] = self._X.T @ (axis.same[t] * slopes) @ self._X
        gradient[~self.linked] = 0.0
        return Derivatives(point.loglike, gradient, self.information(S, "average"))

    def information(self, S: FloatArray, kind: Kind) -> FloatArray:
        """Return the observed, expected or average information of the elements."""
        point, axis = self._required(S), self.axis
        units = [axis.unit(e) for e in self._elements]
        times = np.array([1.0 if axis.inside[t] else float(axis.n) for t, _, _ in self._elements])
        inside = [bool(axis.inside[t]) for t, _, _ in self._elements]
        A = [point.inverse @ d if i else None for d, i in zip(units, inside, strict=True)]
        average = np.zeros((len(units), len(units)))
        if kind != "expected":
            F = np.stack([d @ point.Pz for d in units], axis=1) * times
            average = 0.5 * (F.T @ point.P @ F + _traces(A, [_times(x, point.within) for x in A]))
            if kind == "average":
                return np.asarray(average)
        B = [point.Q @ d * x for d, x in zip(units, times, strict=True)]
        expected = 0.5 * ((axis.n - 1) * _traces(A, A) + _traces(B, B))
        return np.asarray(expected if kind == "expected" else 2.0 * average - expected)

    def _required(self, S: FloatArray) -> _Point:
        point = self._at(S)
        if point is None:
            raise np.linalg.LinAlgError("a matrix is not positive definite")
        return point

    def _at(self, S: FloatArray) -> _Point | None:
        key = S.tobytes()
        if self._last is None or self._last[0] != key:
            try:
                self._last = key, self._factored(S)
            except np.linalg.LinAlgError:
                self._last = key, None
        return self._last[1]

    def _factored(self, S: FloatArray) -> _Point:
        axis, v = self.axis, self.linked.shape[1]
        within, mean = (Positive(V) for V in axis.covariances(S))
        inverse, of_mean = within.inverse(), mean.inverse()
        VX = of_mean @ self._X
        XVX = Positive(self._X.T @ VX)
        P = of_mean - VX @ XVX.solve(VX.T)
        Pz = P @ axis.mean
        products = inverse @ axis.contrasts
        deviance = (axis.n - 1) * within.log_determinant() + float(np.trace(products))
        deviance += mean.log_determinant() + float(axis.mean @ Pz)
        free = self.n
        if self.reml:
            deviance += XVX.log_determinant() + v * float(np.log(axis.n))
            free -= v
        loglike = -0.5 * (deviance + free * float(np.log(2.0 * np.pi)))
        return _Point(loglike, inverse, products, P, P if self.reml else of_mean, Pz)


def _times(A: FloatArray | None, B: FloatArray) -> FloatArray | None:
    return None if A is None else A @ B


def _traces(A: Sequence[FloatArray | None], B: Sequence[FloatArray | None]) -> FloatArray:
    """Return tr(A_i B_j), symmetric; 0 where there is none."""
    found = np.zeros((len(A), len(A)))
    for i, x in enumerate(A):
        for j, z in enumerate(B):
            if x is not None and z is not None:
                found[i, j] = (x * z.T).sum()
    return 0.5 * (found + found.T)


def axis_forms(axis: Axis, S: FloatArray, pairs: list[tuple[int, int]]) -> FloatArray:
    """Return the covariances of analogous products, (k + 1, pairs, k + 1, pairs).

    Their forms are the same in all contrasts, and another one in the mean.

    Parameters
    ----------
    axis : the vectors
    S : (k + 1, v, v) matrices at which they are taken
    pairs : of variables
    """
    within, mean = axis.covariances(S)
    C: list[FloatArray | None] = []
    M: list[FloatArray | None] = []
    for same, inside in zip(axis.same, axis.inside, strict=True):
        for pair in pairs:
            form, centre = _form(axis, same, pair)
            C.append(form @ within if inside else None)
            M.append((form - centre) @ mean)
    k, p = len(axis.same), len(pairs)
    forms = 2.0 * ((axis.n - 1) * _traces(C, C) + _traces(M, M))
    return forms.reshape(k, p, k, p)


def _form(axis: Axis, same: BoolArray, pair: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
    """Return Σ_g w_g ȳ_g(a) ȳ_g(b) between the columns, and what the weighted means take off."""
    of = [axis.variable == a for a in pair]
    counts = [(same & x[None, :]).sum(axis=1).astype(float) for x in of]  # of each column's group
    n = [np.where(c > 0.0, c, 1.0) for c in counts]
    w = np.sqrt(counts[0] * counts[1])
    left, right = of[0] / n[0], of[1] / n[1]
    form = np.where(same, w[:, None], 0.0) * left[:, None] * right[None, :]
    # Every column of a counts for its share of the group.
    total = float((w * left).sum())
    centre = np.outer(w * left, w * right) / (total if total > 0.0 else 1.0)
    return 0.5 * (form + form.T), 0.5 * (centre + centre.T)
