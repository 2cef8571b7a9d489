"""What the iterative engine computes at one value of the components."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.probes import Probes
from vcomp.estimators.sparse_equations import PairProducts, Reduced, SparseSystem
from vcomp.linalg.conjugate_gradients import Solved, log_quadrature
from vcomp.linalg.dense import solve_positive
from vcomp.statistics import CrossProducts

__all__ = ["COLUMNS_AT_ONCE", "Context", "IterativePoint"]

COLUMNS_AT_ONCE = 16
"""Right-hand sides of one pass over the tables: two cache lines of each level."""


@dataclass(slots=True)
class Context:
    """What all points share.

    Attributes
    ----------
    stats, pairs : cross-products, and products with their tables
    probes : random columns
    tol : of the solves
    starts : the last solutions, by what was solved
    products : of the iterations so far, by what was solved
    """

    stats: CrossProducts
    pairs: PairProducts
    probes: Probes
    tol: float
    starts: dict[tuple[object, ...], FloatArray] = field(default_factory=dict)
    products: dict[str, list[int]] = field(default_factory=dict)

    def solve(self, system: SparseSystem, name: str, part: int, b: FloatArray) -> Solved:
        """Solve from where the same right-hand sides were solved last, and remember."""
        key = (name, part, system.equations.active)
        solved = system.solve(b, self.starts.get(key), self.tol)
        self.starts[key] = solved.x
        self.products.setdefault(name, []).append(solved.iterations)
        return solved


class IterativePoint:
    """Solutions, traces and forms at components `v`, each computed when it is asked for."""

    def __init__(self, context: Context, system: SparseSystem, v: FloatArray) -> None:
        self.context = context
        self.system = system
        self.v = v
        self._stats = context.stats

    @property
    def active(self) -> tuple[int, ...]:
        """The terms with positive components, largest first."""
        return self.system.equations.active

    @property
    def residual(self) -> float:
        """The residual component σ²_e."""
        return float(self.v[-1])

    # Fixed effects and predictions --------------------------------------------------------

    @cached_property
    def _fixed(self) -> tuple[tuple[FloatArray, ...], FloatArray]:
        """Return Z_t'V⁻¹W of every term, and W'V⁻¹W, for W = [y X]."""
        stats = self._stats
        ZW = [np.column_stack([Zy, ZX]) for Zy, ZX in zip(stats.Zy, stats.ZX, strict=True)]
        WW = np.block([[np.array([[stats.yy]]), stats.Xy[None, :]], [stats.Xy[:, None], stats.XX]])
        effects, forms = self._solve_all("fixed", ZW)
        return self._projected(ZW, effects), (WW - forms) / self.residual

    def _solve_all(
        self, name: str, right: list[FloatArray]
    ) -> tuple[dict[int, FloatArray], FloatArray]:
        """Return C⁻¹b by term and b'C⁻¹b for right-hand sides (q_t, c) of every term."""
        width = right[0].shape[1] if right else 0
        parts = [slice(a, a + COLUMNS_AT_ONCE) for a in range(0, width, COLUMNS_AT_ONCE)]
        reduced = self._reduce(right)
        x = np.empty_like(reduced.tail)
        residual = np.empty_like(reduced.tail)
        for number, part in enumerate(parts):
            solved = self.context.solve(
                self.system, name, number, np.ascontiguousarray(reduced.tail[:, part])
            )
            x[:, part], residual[:, part] = solved.x, solved.residual
        whole = Solved(x, residual, 0, True, np.zeros((0, width)), np.zeros((0, width)))
        effects = dict(zip(self.active[1:], (x[s] for s in self._slices), strict=True))
        if self.active:
            effects[self.active[0]] = self.system.back(reduced, x)
        return effects, self.system.forms(reduced, whole)

    @property
    def _slices(self) -> tuple[slice, ...]:
        return self.system.equations.slices

    def _reduce(self, right: list[FloatArray]) -> Reduced:
        width = right[0].shape[1] if right else 0
        lead = right[self.active[0]] if self.active else np.zeros((0, width))
        tail = np.concatenate([np.zeros((0, width)), *(right[t] for t in self.active[1:])])
        return self.system.reduce(lead, tail)

    def _projected(
        self, right: list[FloatArray], effects: dict[int, FloatArray]
    ) -> tuple[FloatArray, ...]:
        """Return Z_t'V⁻¹w of every term from Z_t'w and the solutions for it."""
        found = []
        for t, b in enumerate(right):
            if t in effects:
                found.append(effects[t] / self.v[t])
                continue
            fitted = sum(
                (self.context.pairs.times(t, u, e) for u, e in effects.items()), np.zeros_like(b)
            )
            found.append((b - fitted) / self.residual)
        return tuple(found)

    @cached_property
    def beta(self) -> FloatArray:
        """The generalised least squares estimate."""
        gram = self._fixed[1]
        return solve_positive(gram[1:, 1:], gram[1:, 0])

    @property
    def information_beta(self) -> FloatArray:
        """X'V⁻¹X."""
        return self._fixed[1][1:, 1:]

    @property
    def yPy(self) -> float:
        """The quadratic form of the residuals."""
        gram = self._fixed[1]
        return float(gram[0, 0] - gram[0, 1:] @ self.beta)

    @cached_property
    def PZy(self) -> list[FloatArray]:
        """Z_t'P y of every term."""
        return [r[:, 0] - r[:, 1:] @ self.beta for r in self._fixed[0]]

    @property
    def ZVX(self) -> list[FloatArray]:
        """Z_t'V⁻¹X of every term."""
        return [r[:, 1:] for r in self._fixed[0]]

    def effects(self, term: int) -> FloatArray:
        """Return û of a term."""
        if self.v[term] == 0.0:
            return np.zeros(self._stats.sizes[term])
        effects: FloatArray = self.v[term] * self.PZy[term]
        return effects

    # Average information ------------------------------------------------------------------

    @cached_property
    def forms(self) -> FloatArray:
        """f_t'P f_u with f_t = V_t P y, the residual not among them."""
        stats, k = self._stats, self._stats.n_terms
        if not k:
            return np.zeros((0, 0))
        Zf = [
            np.column_stack(
                [self.context.pairs.times(t, u, self.PZy[u][:, None])[:, 0] for u in range(k)]
            )
            for t in range(k)
        ]
        ff = np.array([self.PZy[t] @ Zf[t] for t in range(k)])
        _, solved = self._solve_all("average", Zf)
        Xf = np.column_stack([H.T @ r for H, r in zip(self.ZVX, self.PZy, strict=True)])
        forms: FloatArray = (0.5 * (ff + ff.T) - solved) / self.residual
        if stats.n_fixed:
            forms -= Xf.T @ solve_positive(self.information_beta, Xf)
        return forms

    # Traces -------------------------------------------------------------------------------

    @cached_property
    def traces(self) -> FloatArray:
        """tr(V⁻¹V_t) of every term from each probe, (k, probes)."""
        found: dict[int, FloatArray] = dict(self._active_traces())
        for t in range(self._stats.n_terms):
            if t not in found:
                found[t] = self._trace_at_zero(t)
        width = max((x.size for x in found.values()), default=1)
        # Exhaustive probes differ in number from term to term; their means are exact.
        rows = [
            x if x.size == width else np.full(width, x.mean()) for _, x in sorted(found.items())
        ]
        return np.array(rows).reshape(self._stats.n_terms, width)

    def fixed_traces(self) -> FloatArray:
        """Return tr(V⁻¹V_t) − tr(P V_t) of every term."""
        if not self._stats.n_fixed:
            return np.zeros(self._stats.n_terms)
        return np.array(
            [float((solve_positive(self.information_beta, H.T @ H)).trace()) for H in self.ZVX]
        )

    def _active_traces(self) -> Iterator[tuple[int, FloatArray]]:
        if not self.active:
            return
        count = self.context.probes.count(self.system.equations.sizes[1:])
        blocks = [self._block_traces(part, a, b) for part, a, b in _parts(count)]
        # With nothing in the tail the inverse of the diagonal is all there is.
        inverse = np.concatenate(blocks, axis=1) if blocks else self._known_traces()[:, None]
        for place, t in enumerate(self.active):
            v = self.v[t]
            yield t, self._stats.sizes[t] / v - self.residual * inverse[place] / v**2

    def _known_traces(self) -> FloatArray:
        """Return the traces of C^tt, the tail taken to be its own diagonal."""
        system = self.system
        lead = system.inverse_lead.sum() + (system.lead_squares / system.diagonal).sum()
        return np.array([lead, *((1.0 / system.diagonal[s]).sum() for s in self._slices)])

    def _block_traces(self, part: int, first: int, last: int) -> FloatArray:
        """Return tr(C^tt) of the terms in the equations from some probes.

        With D the diagonal of S, z'D⁻¹z has no error and z'D⁻¹(S − D)D⁻¹z is zero on average; the
        second is what the trace of S⁻¹ errs by first, and is taken away.
        """
        system = self.system
        z = self.context.probes.columns(self.active[1:], system.equations.sizes[1:], first, last)
        rest = self.context.solve(system, "probes", part, z).x.copy()
        by_diagonal = z / system.diagonal[:, None]
        rest -= by_diagonal
        traces = np.empty((len(self.active), z.shape[1]))
        traces[0] = system.equations.coupling.forms(system.inverse_lead**2, rest, z)
        first_order = system.product(by_diagonal)
        first_order -= z
        rest += first_order / system.diagonal[:, None]
        rest *= z
        for place, s in enumerate(self._slices, start=1):
            traces[place] = rest[s].sum(axis=0)
        return traces + self._known_traces()[:, None]

    def _trace_at_zero(self, term: int) -> FloatArray:
        """Return tr(Z_t'V⁻¹Z_t) of a term outside the equations, from each probe."""
        size = (self._stats.sizes[term],)
        found = []
        for part, first, last in _parts(self.context.probes.count(size)):
            z = self.context.probes.columns((term,), size, first, last)
            right = {u: self.context.pairs.times(u, term, z) for u in self.active}
            tail = np.concatenate(
                [np.zeros((0, z.shape[1])), *(right[u] for u in self.active[1:])]
            )
            lead = right[self.active[0]] if self.active else np.zeros((0, z.shape[1]))
            reduced = self.system.reduce(lead, tail)
            solved = self.context.solve(self.system, f"zero {term}", part, reduced.tail)
            squared = np.einsum("ij,ij->j", lead, reduced.lead)
            squared += np.einsum("ij,ij->j", solved.x, reduced.tail + solved.residual)
            own = self._stats.group_n[term] @ np.square(z)
            found.append((own - squared) / self.residual)
        return np.concatenate(found)

    # Likelihood ---------------------------------------------------------------------------

    @cached_property
    def log_determinants(self) -> FloatArray:
        """log|V| from each probe.

        Each is a quadrature on D^-½ S D^-½, whose diagonal is one: its own first moment errs
        by what the logarithm errs by first, and is taken away.
        """
        system, s2 = self.system, self.residual
        log_V = self._stats.n * np.log(s2) + np.log(system.lead).sum()
        log_V += np.log(system.diagonal).sum()
        for t in self.active:
            log_V += self._stats.sizes[t] * np.log(self.v[t] / s2)
        sizes = system.equations.sizes[1:]
        m, samples = sum(sizes), [np.zeros(0)]
        root = np.sqrt(system.diagonal)[:, None]
        for _, first, last in _parts(self.context.probes.count(sizes) if m else 0):
            b = root * self.context.probes.columns(self.active[1:], sizes, first, last)
            solved = system.solve(b, None, float(np.sqrt(self.context.tol)))
            self.context.products.setdefault("likelihood", []).append(solved.iterations)
            logs, firsts = log_quadrature(solved)
            samples.append(m * (logs - (firsts - 1.0)))
        found = np.concatenate(samples)
        values: FloatArray = log_V + (found if found.size else np.zeros(1))
        return values


def _parts(count: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, first and end of blocks of columns."""
    for part, first in enumerate(range(0, count, COLUMNS_AT_ONCE)):
        yield part, first, min(first + COLUMNS_AT_ONCE, count)
