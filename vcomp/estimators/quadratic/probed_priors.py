"""MINQUE's equations of many groups: right-hand sides by sparse solves, traces by random probes.

At a prior V_w = Σ w_t Z_t Z_t' + w_e I every quantity is a form of the matrix
P = V_w⁻¹ − V_w⁻¹X(X'V_w⁻¹X)⁻¹X'V_w⁻¹ in columns Z c + X β. Henderson's equations give
P(Z c + X β) as such a column, so that no vector of the length of the data is needed. With random
signs x of term t (Hutchinson 1990),

    tr(Z_t'P V_u P Z_t) = E‖Z_u'P Z_t x‖²,    tr(P V_t) = E x'Z_t'P Z_t x,

and the traces with the residual follow from P V_w P = P (docs/explanation/mathematics.md, section
2.5). The seed is fixed: equal data have equal estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood import (
    Projector,
    SparseSystem,
    affordable_probes,
    build_sparse_equations,
)
from vcomp.estimators.quadratic.spaces import PriorForms
from vcomp.numerics import Positive, available_bytes, check_memory, slices
from vcomp.numerics.sparse import Rademacher
from vcomp.statistics import CrossProducts, Statistics

_PROBES = 32
"""Smallest number of probes of a term; smaller tables have as many as a fit of the likelihood."""

_PROBES_OF_COVARIANCE = 16
"""Number of probes for standard errors, which need fewer digits than estimates."""

_COLUMNS = 16
_SEED = 0

_TOLERANCE = 1e-8
"""Tolerance of the solves for probes, relative to their right-hand sides."""

_TIGHT = 1e-11
"""Tolerance of the solves for y and X; the error of forms is its square."""


class ProbedPriors:
    """MINQUE's equations as a function of a non-negative prior, with Monte Carlo traces.

    Parameters
    ----------
    stats : cross-products, centred
    n_probes : number of random columns of each term, at least 2; by default 32, and more for
        tables that a second allows
    seed : of their generators
    free_bytes : returns the free memory

    Raises
    ------
    EstimationError
        If the columns would not fit into memory.
    """

    def __init__(
        self,
        stats: CrossProducts,
        n_probes: int | None = None,
        seed: int = _SEED,
        free_bytes: Callable[[], float] = available_bytes,
    ) -> None:
        check_memory(
            8.0 * sum(stats.sizes) * (12.0 * _COLUMNS + 4.0 * stats.n_fixed),
            f"random columns of {sum(stats.sizes):,} groups need",
            "with a constant mean method='anova' needs no more than the data",
            free_bytes=free_bytes,
        )
        if n_probes is None:
            n_probes = max(_PROBES, affordable_probes(stats) // stats.n_terms)
        self.stats, self.n_probes = stats, n_probes
        self._signs = Rademacher(self.n_probes, seed)

    def __str__(self) -> str:
        return str(self._signs)

    def mivque0(self) -> FloatArray:
        """Return the MIVQUE(0) estimates, which need no probes."""
        return Projector(self.stats).mivque0()

    def at(self, w: FloatArray) -> PriorForms:
        """Return the forms at components `w`, none of them negative, with those of each probe."""
        P, k = self._projector(w), self.stats.n_terms
        squares, traces = np.zeros((self.n_probes, k, k)), np.zeros((self.n_probes, k))
        for t in range(k):
            for part in slices(self.n_probes, _COLUMNS):
                x = self._signs.columns((t,), (self.stats.sizes[t],), part.start, part.stop)
                sums = P.sums(P.times(self._of_term(t, x)))
                squares[part, t] = _squares(sums)
                traces[part, t] = (x * sums[t]).sum(axis=0)
        degrees = np.full(self.n_probes, float(self.stats.n - self.stats.n_fixed))
        samples = _with_residual(squares, traces, degrees, w)
        right, second = P.of_response()
        return PriorForms(w, samples.mean(axis=0), right, second, samples)

    def covariance(self, forms: PriorForms, v: FloatArray) -> FloatArray:
        """Return 2 tr(D V_t D V_u) with D = P V P, P at the prior and V at `v`, eq. (2.13).

        Parameters
        ----------
        forms : the equations at the prior
        v : (k + 1,) the components, which may be negative
        """
        P, k = self._projector(forms.w), self.stats.n_terms
        n = min(self.n_probes, _PROBES_OF_COVARIANCE)
        squares, traces = np.zeros((n, k, k)), np.zeros((n, k))
        for t in range(k):
            for part in slices(n, _COLUMNS):
                x = self._signs.columns((t,), (self.stats.sizes[t],), part.start, part.stop)
                column = P.times(self._of_term(t, x))
                # V P Z_t x is Σ v_s Z_s (Z_s'P Z_t x) + v_e P Z_t x.
                sums = P.sums(column)
                effects = [
                    v[s] * of_term + v[-1] * effect
                    for s, (of_term, effect) in enumerate(zip(sums, column.effects, strict=True))
                ]
                again = P.sums(P.times(_Columns(effects, v[-1] * column.beta)))
                squares[part, t] = _squares(again)
                traces[part, t] = sum(
                    (a * b).sum(axis=0) for a, b in zip(effects, again, strict=True)
                )
        whole = np.full(n, float(v @ forms.matrix @ v))
        covariance: FloatArray = _with_residual(squares, traces, whole, forms.w).mean(axis=0)
        return 2.0 * covariance

    def rights(self, w: FloatArray, stats: Sequence[Statistics]) -> FloatArray:
        """Return y'P V_t P y of other responses at components `w`, none of them negative."""
        P, parts = self._projector(w), []
        for part in slices(len(stats), _COLUMNS):
            parts.append(P.of_responses([s.cross_products for s in stats[part]])[0])
        return np.concatenate(parts)

    def _of_term(self, term: int, x: FloatArray) -> _Columns:
        """Return the columns Z_t x."""
        b = x.shape[1]
        effects = [
            x if s == term else np.zeros((size, b)) for s, size in enumerate(self.stats.sizes)
        ]
        return _Columns(effects, np.zeros((self.stats.n_fixed, b)))

    def _projector(self, w: FloatArray) -> _Projector:
        positive = [t for t in range(self.stats.n_terms) if w[t] > 0.0]
        active = tuple(sorted(positive, key=lambda t: (-self.stats.sizes[t], t)))
        equations = build_sparse_equations(self.stats, active)
        return _Projector(self.stats, equations.at(w), w)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns Z c + X β.

    Attributes
    ----------
    effects : for each term the (q_t, b) effects c
    beta : (p, b)
    """

    effects: Sequence[FloatArray]
    beta: FloatArray


@dataclass(frozen=True)
class _Projector:
    """P at one prior, by solves of Henderson's equations."""

    stats: CrossProducts
    system: SparseSystem
    w: FloatArray

    def times(self, columns: _Columns) -> _Columns:
        """Return P(Z c + X β), which does not depend on β."""
        sums = self.sums(_Columns(columns.effects, np.zeros_like(columns.beta)))
        of_X = _over_terms(self.stats.ZX, columns.effects)
        solved = self._solved(sums, _TOLERANCE)
        beta = self._beta(of_X - _over_terms(self.stats.ZX, solved))
        fixed = self._of_fixed
        effects = [
            (c - u + of_fixed @ beta) / self.w[-1]
            for c, u, of_fixed in zip(columns.effects, solved, fixed, strict=True)
        ]
        return _Columns(effects, -beta / self.w[-1])

    def sums(self, columns: _Columns) -> list[FloatArray]:
        """Return Z_t'(Z c + X β) of every term."""
        of_terms = []
        for t in range(self.stats.n_terms):
            total = self.stats.ZX[t] @ columns.beta
            for u, effects in enumerate(columns.effects):
                total = total + self.stats.times(t, u, effects)
            of_terms.append(total)
        return of_terms

    def of_response(self) -> tuple[FloatArray, FloatArray]:
        """Return y'P V_t P y and y'P V_t P V_u P y, the residual last."""
        stats, w, k = self.stats, self.w, self.stats.n_terms
        rights, sums = self.of_responses([stats])
        right, second = rights[0], np.empty((k + 1, k + 1))
        for t in range(k):
            column = _Columns(
                [s if u == t else np.zeros_like(s) for u, s in enumerate(sums)],
                np.zeros((stats.n_fixed, 1)),
            )
            again = self.sums(self.times(column))
            second[t, :k] = [float((a * s).sum()) for a, s in zip(again, sums, strict=True)]
        second[:k, :k] = 0.5 * (second[:k, :k] + second[:k, :k].T)
        second[:k, k] = second[k, :k] = (right[:k] - second[:k, :k] @ w[:k]) / w[-1]
        second[k, k] = (right[k] - w[:k] @ second[:k, k]) / w[-1]
        return right, second

    def of_responses(
        self, responses: Sequence[CrossProducts]
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return y'P V_t P y of b responses of the rows, (b, k + 1), and the sums Z_t'P y."""
        w = self.w
        Zy = [np.column_stack(columns) for columns in zip(*(s.Zy for s in responses), strict=True)]
        Xy, yy = np.column_stack([s.Xy for s in responses]), np.array([s.yy for s in responses])
        solved = self._solved(Zy, _TIGHT)
        beta = self._beta(Xy - _over_terms(self.stats.ZX, solved))
        effects = [u - own @ beta for u, own in zip(solved, self._of_fixed, strict=True)]
        whole = yy - (Xy * beta).sum(axis=0)
        for y, u in zip(Zy, effects, strict=True):
            whole -= (y * u).sum(axis=0)
        sums = [
            (y - s) / w[-1] for y, s in zip(Zy, self.sums(_Columns(effects, beta)), strict=True)
        ]
        of_terms = _squares(sums)
        of_residual = (whole / w[-1] - of_terms @ w[:-1]) / w[-1]
        return np.column_stack([of_terms, of_residual]), sums

    @cached_property
    def _of_fixed(self) -> list[FloatArray]:
        """The solutions C⁻¹Z'X, for each term (q_t, p)."""
        return self._solved(self.stats.ZX, _TIGHT)

    @cached_property
    def _information(self) -> Positive:
        """X'V_w⁻¹X times w_e."""
        explained = _over_terms(self.stats.ZX, self._of_fixed)
        return Positive(self.stats.XX - 0.5 * (explained + explained.T))

    def _beta(self, right: FloatArray) -> FloatArray:
        return self._information.solve(right) if right.size else right

    def _solved(self, right: Sequence[FloatArray], tol: float) -> list[FloatArray]:
        """Return C⁻¹ b of right-hand sides b by term; zeros for terms at zero."""
        system = self.system
        active = system.equations.active
        effects = [np.zeros_like(r) for r in right]
        if not active or not right[0].shape[1]:
            return effects
        if len(active) == 1:
            effects[active[0]] = right[active[0]] * system.inverse_lead[:, None]
            return effects
        reduced = system.reduce(right[active[0]], np.concatenate([right[t] for t in active[1:]]))
        solved = system.solve(reduced.tail, None, tol).x
        effects[active[0]] = system.back(reduced, solved)
        for t, place in zip(active[1:], system.equations.slices, strict=True):
            effects[t] = solved[place]
        return effects


def _over_terms(left: Sequence[FloatArray], right: Sequence[FloatArray]) -> FloatArray:
    """Return Σ_t L_t'R_t."""
    total = np.zeros((left[0].shape[1], right[0].shape[1]))
    for a, b in zip(left, right, strict=True):
        total += a.T @ b
    return total


def _squares(sums: Sequence[FloatArray]) -> FloatArray:
    """Return the squared lengths of columns of every term, (b, k)."""
    return np.array([np.square(s).sum(axis=0) for s in sums]).T


def _with_residual(
    squares: FloatArray, traces: FloatArray, whole: FloatArray, w: FloatArray
) -> FloatArray:
    """Return samples of the forms of all components, symmetric, (b, k + 1, k + 1).

    For a matrix D with D V_w D = E, tr(D V_t D V_w) = tr(V_t E) and tr(V_w E) are known.

    Parameters
    ----------
    squares : (b, k, k) samples of tr(D V_t D V_u)
    traces : (b, k) samples of tr(V_t E)
    whole : (b,) tr(V_w E)
    w : (k + 1,) the prior
    """
    k = traces.shape[1]
    samples = np.empty((len(traces), k + 1, k + 1))
    samples[:, :k, :k] = 0.5 * (squares + squares.swapaxes(1, 2))
    last = (traces - squares @ w[:k]) / w[-1]
    samples[:, :k, k] = samples[:, k, :k] = last
    alone = (whole - traces @ w[:k]) / w[-1]
    samples[:, k, k] = (alone - last @ w[:k]) / w[-1]
    return samples
