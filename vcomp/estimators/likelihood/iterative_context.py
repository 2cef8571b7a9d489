"""Right-hand sides, probes and solves that all points of the iterative engine share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.sparse_equations import SparseSystem
from vcomp.numerics import COSTS
from vcomp.numerics.sparse import Probes, SparseTable
from vcomp.statistics import CrossProducts

PROBES = 8
"""Probes with which a fit begins: as many as are solved for at once in a thread. Where facets meet
at random, the Monte Carlo error is then a hundredth of the standard error at most."""

_SECONDS = 0.12
"""Seconds of an evaluation that closed forms with probes allow."""

LEVELS = 128
"""Largest total number of groups of the small terms. Each of these groups is a right-hand side:
the traces are exact, and convergence does not depend on how the groups are connected."""

_LEVEL_EFFECTS = 2.5e7
"""Largest number of elements of the solutions for these right-hand sides."""

_OF_PROBES, _MOST_OF_PROBES = 1e3, 1e-5
"""Factor of the tolerance of probes, and the largest one: components then move by about 1e-5
standard errors, less than their Monte Carlo errors."""

_OF_AVERAGE, _MOST_OF_AVERAGE = 1e5, 0.1
"""Factor of the tolerance of the average information, whose relative error is about 1e-6, and the
largest tolerance: that of rough steps."""

_OF_EFFECTS = 0.01
"""Largest error of predicted effects, in their standard errors."""

_FINEST = 1e-14
"""Smallest tolerance: rounding error of the products leaves no smaller residual."""

_COEFFICIENTS = 2e6
"""Bytes of the coefficients of iterations, and of objects of all sizes."""

SolveKind: TypeAlias = tuple[str, tuple[int, ...]]
"""Kind of right-hand sides, and terms in the equations."""

OF_RESPONSE = ("columns", "average")
"""Kinds of right-hand sides that depend on the response."""


@dataclass(slots=True)
class Context:
    """Data and buffers that all points share.

    Attributes
    ----------
    stats : cross-products
    probes : random probes
    tol : tolerance of the solves
    small : for each small term the positions of its columns in W
    levels : for each large term Z_t'Z_s of the small terms s
    gram : W'W
    starts : where solves start, by kind of solve; others start at zero
    solved : the solutions at the last point, by kind of solve
    products : numbers of iterations of the solves so far, by kind of solve
    """

    stats: CrossProducts
    probes: Probes
    tol: float
    small: dict[int, slice]
    levels: dict[int, FloatArray]
    gram: FloatArray
    starts: dict[SolveKind, FloatArray] = field(default_factory=dict)
    solved: dict[SolveKind, FloatArray] = field(default_factory=dict)
    products: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, stats: CrossProducts, probes: Probes, tol: float, small_terms: Sequence[int]
    ) -> Context:
        """Return the context of these data."""
        small, end = {}, 1 + stats.n_fixed
        for t in small_terms:
            small[t] = slice(end, end + stats.sizes[t])
            end += stats.sizes[t]

        def with_small(t: int) -> FloatArray:
            tables = [stats.times(t, u, np.eye(stats.sizes[u])) for u in small]
            return np.column_stack([np.zeros((stats.sizes[t], 0)), *tables])

        top = np.column_stack([np.append(stats.yy, stats.Xy), np.vstack([stats.Xy, stats.XX])])
        sides = [np.column_stack([stats.Zy[t], stats.ZX[t]]) for t in small]
        rows = [np.hstack([side, with_small(t)]) for t, side in zip(small, sides, strict=True)]
        return cls(
            stats,
            probes,
            tol,
            small,
            {t: with_small(t) for t in range(stats.n_terms) if t not in small},
            np.vstack([np.hstack([top, *(side.T for side in sides)]), *rows]),
        )

    def right(self) -> dict[int, FloatArray]:
        """Return Z_t'W of each large term, with W = [y X Z_s …] and s the small terms."""
        stats = self.stats
        return {t: np.column_stack([stats.Zy[t], stats.ZX[t], Z]) for t, Z in self.levels.items()}

    def with_probes(self, probes: Probes, tol: float) -> Context:
        """Return the context of the same data with other probes, and another tolerance."""
        return replace(self, probes=probes, tol=tol, starts={}, solved={}, products={})

    def solve(
        self, system: SparseSystem, sides: dict[str, FloatArray], tol: float = 0.0
    ) -> list[tuple[FloatArray, FloatArray]]:
        """Solve for right-hand sides of several kinds, and keep the solutions.

        Parameters
        ----------
        system : the equations
        sides : (m, c) right-hand sides by their kind; they are removed, so that their memory is
            free for the solutions
        tol : tolerance, if not that of the context

        Returns
        -------
        solution and residual of each kind
        """
        ends = np.cumsum([0, *(b.shape[1] for b in sides.values())]).tolist()
        columns, tols = np.empty((system.diagonal.size, ends[-1]), order="F"), np.empty(ends[-1])
        parts = dict(zip(sides, (slice(*part) for part in pairwise(ends)), strict=True))
        for name, part in parts.items():
            columns[:, part] = sides.pop(name)
            tols[part] = _tolerances(system, name, columns[:, part], tol or self.tol)
        start, terms = None, system.equations.active
        if any((name, terms) in self.starts for name in parts):
            start = np.zeros_like(columns)
            for name, part in parts.items():
                start[:, part] = self.starts.get((name, terms), 0.0)
        solved = system.solve(columns, start, tols)
        for name, part in parts.items():
            self.solved[name, terms] = solved.x[:, part]
            self.products.setdefault(name, []).append(solved.iterations)
        return [(solved.x[:, part], solved.residual[:, part]) for part in parts.values()]


def _tolerances(system: SparseSystem, name: str, b: FloatArray, tol: float) -> FloatArray:
    """Return the tolerance of each right-hand side.

    A solution with the residual r differs from the exact one by at most √(r'S⁻¹r/σ²_e) standard
    errors of any contrast of effects. S is at least the ridges σ²_e/σ²_t, and near them along
    constants that move from one term to another, of which sums of scores have a small share. The
    average information has only forms, whose error r'S⁻¹r/σ²_e is compared with what is left of
    them: their share of ridges at least.
    """
    if name == "probes":
        tol = max(tol, min(_OF_PROBES * tol, _MOST_OF_PROBES))
    if name == "average" and b.size:
        share = float(system.ridge.sum() / system.diagonal.sum())
        tol = max(min(_OF_AVERAGE * tol, _MOST_OF_AVERAGE) * share, _FINEST)
    tols = np.full(b.shape[1], tol)
    if name == "columns" and b.size:
        least = float((system.ridge / system.diagonal).min())
        squares = (1.0 / system.diagonal) @ np.square(b)
        squares = np.maximum(squares, np.finfo(float).tiny)
        exact = _OF_EFFECTS * np.sqrt(least * system.residual / squares)
        tols = np.minimum(tols, np.maximum(exact, _FINEST))
    return tols


# Costs, before any solve ------------------------------------------------------------


def affordable_probes(stats: CrossProducts) -> int:
    """Return as many probes as closed forms of about a second allow; no more than effects."""
    return int(min(_SECONDS / _seconds_per_column(stats), sum(tail_sizes(stats))))


def seconds_of(stats: CrossProducts, n_probes: int = PROBES) -> float:
    """Return the expected time of an evaluation in seconds, from measured ones.

    Parameters
    ----------
    stats : cross-products
    n_probes : number of random probes
    """
    columns = n_probes + COSTS.iterative.other_columns
    return COSTS.iterative.call + columns * _seconds_per_column(stats)


def _seconds_per_column(stats: CrossProducts) -> float:
    """Return the seconds that a right-hand side adds to an evaluation."""
    large = _large_terms(stats.sizes, LEVELS)
    entries = sum(p.indices.size for (t, u), p in stats.pairs.items() if t in large and u in large)
    work = entries + COSTS.iterative.entries_per_effect * sum(tail_sizes(stats))
    return COSTS.iterative.entry * len(large) * max(work, 1)


def tail_sizes(stats: CrossProducts) -> list[int]:
    """Return the sizes of the large terms except the largest, which is eliminated."""
    return [stats.sizes[t] for t in _large_terms(stats.sizes, LEVELS)[1:]]


def _large_terms(sizes: tuple[int, ...], n_levels: int) -> list[int]:
    """Return the terms that are not small, largest first."""
    small = small_terms(sizes, n_levels)
    return sorted(set(range(len(sizes))) - set(small), key=lambda t: (-sizes[t], t))


def small_terms(sizes: tuple[int, ...], n_levels: int) -> list[int]:
    """Return the smallest terms with at most `n_levels` groups together, never the largest."""
    left = min(float(n_levels), _LEVEL_EFFECTS / max(sum(sizes), 1))
    small: list[int] = []
    for t in sorted(range(len(sizes)), key=lambda t: (sizes[t], -t))[:-1]:
        left -= sizes[t]
        if left < 0.0:
            break
        small.append(t)
    return small


def iterative_memory(
    stats: CrossProducts, n_probes: int = PROBES, n_levels: int = LEVELS
) -> float:
    """Return the largest memory of the engine in bytes, without the statistics.

    Parameters
    ----------
    stats : cross-products
    n_probes, n_levels : as for :class:`IterativeLikelihood`
    """
    small, large = small_terms(stats.sizes, n_levels), _large_terms(stats.sizes, n_levels)
    q, m = stats.sizes[large[0]], sum(stats.sizes[t] for t in large[1:])
    # Tables by rows in both orders; with three terms or more, joined to two others.
    copies, tables = (8.0 if len(large) == 2 else 24.0), 0.0
    for (t, u), pair in stats.pairs.items():
        if t in large and u in large:
            tables += copies * pair.indices.size + 8.0 * (stats.sizes[t] + stats.sizes[u])
    fixed = 1 + stats.n_fixed + sum(stats.sizes[t] for t in small)
    others = fixed + len(large) - 1
    threads = min(-(-(others + n_probes) // SparseTable.width), os.cpu_count() or 1)
    # Right-hand sides in parts, or projections; diagonals; solutions with their starts and
    # right-hand sides; columns that are solved for together, the last of them padded.
    columns = fixed * (2.0 * q + 3.0 * m) + 4.0 * q + 6.0 * m
    columns += 3.0 * (others + n_probes) * m
    columns += SparseTable.width * (threads * (q + 2.0 * m) + 2.0 * m)
    return float(tables + 8.0 * columns + _COEFFICIENTS)
