"""The likelihoods of many small data sets of one model at once, the largest term absorbed.

All other terms are dense matrices of the order of their effects, one for each data set: the
equations of docs/explanation/mathematics.md, section 7.3, computed for a whole stack by each call
of numpy. With V = σ²_e Ṽ, Ṽ₀ the part of the residual and the absorbed term, and A = W'Ṽ₀⁻¹W, the
forms of P are those of A and of K, the inverse of Henderson's equations in W. Components may be
zero, as effects have unit variance in these equations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.estimators.likelihood.stacked_climb import StackedDerivatives
from vcomp.numerics import inverses
from vcomp.statistics import Stack


@dataclass(frozen=True, slots=True, eq=False)
class _Absorbed:
    """Sums over the groups of the absorbed term with weights g(n), at one power of 1/D."""

    WW: FloatArray
    Wy: FloatArray
    yy: FloatArray


class StackedLikelihood:
    """Restricted or full log-likelihoods of a stack of data sets.

    Parameters
    ----------
    stack : their sums
    reml : whether the likelihoods are the restricted ones
    """

    def __init__(self, stack: Stack, *, reml: bool) -> None:
        self.stack, self.reml = stack, reml
        self.rest = [t for t in range(len(stack.blocks)) if t != stack.lead]
        self._blocks = stack.blocks[self.rest]
        self._is_fixed: BoolArray = stack.blocks.sum(axis=0) == 0.0

    def __len__(self) -> int:
        return len(self.stack)

    @property
    def n(self) -> FloatArray:
        """(B,) numbers of rows."""
        return self.stack.n

    @property
    def sizes(self) -> FloatArray:
        """(B, k) numbers of groups of the terms."""
        return self.stack.sizes

    @property
    def n_fixed(self) -> int:
        """Number of columns of X."""
        return self.stack.n_fixed

    @property
    def XX(self) -> FloatArray:
        """(B or 1, p, p) cross-products of the columns of X, in units of their own."""
        p = self.n_fixed
        return self.stack.whole[:, -p:, -p:] if p else np.zeros((1, 0, 0))

    def take(self, chosen: LongArray) -> StackedLikelihood:
        """Return the likelihoods of some data sets, also repeatedly."""
        return StackedLikelihood(self.stack.take(chosen), reml=self.reml)

    def _weighted(self, weights: FloatArray) -> list[_Absorbed]:
        """Return Σ_d weights_d of the products of groups, for (B, 3, d) weights."""
        stack = self.stack
        d, R = stack.grams.shape[1:3]
        WW = weights @ stack.grams.reshape(-1, d, R * R)
        Wy = weights @ stack.grams_y
        yy = (weights * stack.grams_yy[:, None]).sum(axis=2)
        return [
            _Absorbed(WW[:, i].reshape(-1, R, R), Wy[:, i], yy[:, i])
            for i in range(weights.shape[1])
        ]

    def derivatives(self, v: FloatArray) -> StackedDerivatives:
        """Return value, score and informations at (B, k + 1) components, the residual positive."""
        stack, reml, fixed = self.stack, self.reml, self._is_fixed
        s2 = v[:, -1]
        ratio = v[:, stack.lead] / s2
        D = 1.0 + ratio[:, None] * stack.group_n
        powers = np.stack([ratio[:, None] / D, 1.0 / D**2, stack.group_n / D**3], axis=1)
        inner, second, third = self._weighted(powers)
        A = stack.whole - inner.WW
        a_y, a_yy = stack.whole_y - inner.Wy, stack.yy - inner.yy
        root = each(np.sqrt(v[:, self.rest] / s2[:, None]), self._blocks) + fixed
        K, K_traces, log_det = self._inverses(A, root)

        # Effects, and forms in P y.
        b = _times(K, a_y)
        q = a_y - _times(A, b)
        rss = a_yy - _dot(a_y, b)
        G = q[:, :, None] * self._blocks.T
        lead_y = second.Wy - _times(second.WW, b)
        quadratics = np.empty((len(s2), len(stack.blocks)))
        quadratics[:, self.rest] = each(np.square(q), self._blocks.T)
        quadratics[:, stack.lead] = second.yy - _dot(b, second.Wy) - _dot(b, lead_y)

        # Traces and squares of the blocks of Z'PZ.
        KA = K_traces @ A
        Q = A - A @ KA
        traces = np.empty_like(quadratics)
        traces[:, self.rest] = each(np.diagonal(Q, axis1=1, axis2=2), self._blocks.T)
        both = K_traces @ second.WW
        weight = stack.n_groups * stack.group_n / D
        traces[:, stack.lead] = weight.sum(axis=1) - np.trace(both, axis1=1, axis2=2)
        squares = self._squares(Q, KA, K_traces, second.WW, both)
        squares[:, stack.lead, stack.lead] = (
            (weight * stack.group_n / D).sum(axis=1)
            - 2.0 * (K_traces * third.WW).sum(axis=(1, 2))
            + (both * both.swapaxes(1, 2)).sum(axis=(1, 2))
        )

        # V_t P y, and the forms with two of them.
        moved = np.empty((*quadratics.shape, len(fixed)))
        moved[:, self.rest] = (A @ G).swapaxes(1, 2)
        moved[:, stack.lead] = lead_y
        solved = moved @ K
        twice = np.empty_like(squares)
        twice[:, self.rest] = G.swapaxes(1, 2) @ moved.swapaxes(1, 2)
        twice[:, :, self.rest] = twice[:, self.rest].swapaxes(1, 2)
        twice[:, stack.lead, stack.lead] = (
            third.yy - 2.0 * _dot(b, third.Wy) + _dot(b, _times(third.WW, b))
        )
        twice = twice - solved @ moved.swapaxes(1, 2)

        degrees = stack.n - stack.n_fixed if reml else stack.n
        s = s2[:, None]
        total = rss / s2
        score = np.empty_like(v)
        score[:, :-1] = 0.5 * (quadratics / s**2 - traces / s)
        score[:, -1] = (0.5 * (total - degrees) - _dot(v[:, :-1], score[:, :-1])) / s2
        average = 0.5 * _with_residual(
            0.5 * (twice + twice.swapaxes(1, 2)) / s[:, :, None] ** 3, quadratics / s**2, total, v
        )
        expected = 0.5 * _with_residual(squares / s[:, :, None] ** 2, traces / s, degrees, v)
        determinant = (stack.n_groups * np.log(D)).sum(axis=1) + log_det
        loglike = -0.5 * (determinant + total + degrees * np.log(2.0 * np.pi * s2))
        if reml:
            loglike -= np.log(stack.scale[fixed]).sum()
        slopes = np.empty((*v.shape, stack.n_fixed))
        slopes[:, :-1] = -solved[:, :, fixed] / s[:, :, None]
        slopes[:, -1] = -(v[:, None, :-1] @ slopes[:, :-1])[:, 0] / s
        scale = stack.scale[fixed]
        return StackedDerivatives(
            loglike=loglike,
            score=score,
            average=average,
            observed=2.0 * average - expected,
            beta=b[:, fixed] / scale,
            slopes=slopes / scale,
            scale_factor=total / degrees,
        )

    def _inverses(
        self, A: FloatArray, root: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return K, the K of the traces, and the log-determinant of the equations.

        For the full likelihood the fixed effects are left out of the last two.
        """
        fixed = self._is_fixed
        S = A * root[:, :, None] * root[:, None, :]
        places = np.flatnonzero(~fixed)
        S[:, places, places] += 1.0
        whole, log_det = inverses_or_nan(S)
        K = whole * root[:, :, None] * root[:, None, :]
        if self.reml:
            return K, K, log_det
        n_random = int((~fixed).sum())
        inner, log_det = inverses_or_nan(np.ascontiguousarray(S[:, :n_random, :n_random]))
        r = root[:, :n_random]
        K_traces = np.zeros_like(K)
        K_traces[:, :n_random, :n_random] = inner * r[:, :, None] * r[:, None, :]
        return K, K_traces, log_det

    def _squares(
        self, Q: FloatArray, KA: FloatArray, K: FloatArray, M: FloatArray, KM: FloatArray
    ) -> FloatArray:
        """Return the squared norms of the blocks of Z'PZ, without the absorbed term's own block.

        With T = I − K A the block of the absorbed term has the squared norm of T'M T.
        """
        stack, blocks = self.stack, self._blocks
        k = len(stack.blocks)
        squares = np.zeros((len(KA), k, k))
        rest = np.array(self.rest, dtype=np.int64)
        squares[:, rest[:, None], rest] = blocks @ np.square(Q) @ blocks.T
        # diag(T'MT) of the columns of terms, T = I − KA: M − 2 M K A + A K M K A
        mixed = M @ KA
        diagonal = (
            np.diagonal(M, axis1=1, axis2=2)
            - 2.0 * np.diagonal(mixed, axis1=1, axis2=2)
            + (KA * mixed).sum(axis=1)
        )
        squares[:, rest, stack.lead] = squares[:, stack.lead, rest] = each(diagonal, blocks.T)
        return squares


def inverses_or_nan(S: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return inverses and log-determinants; nan and I for a matrix that is not positive definite.

    No digit of one depends on the others.
    """
    log_det = np.zeros(len(S))
    try:
        return inverses(S, log_det), log_det
    except np.linalg.LinAlgError:
        if len(S) == 1:
            return np.eye(S.shape[1])[None], np.array([np.nan])
    parts = [inverses_or_nan(S[b : b + 1]) for b in range(len(S))]
    found, logs = zip(*parts, strict=True)
    return np.concatenate(found), np.concatenate(logs)


def _times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    return (matrix @ vector[:, :, None])[:, :, 0]


def each(rows: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return the products of rows with a matrix; no digit depends on other rows."""
    return (rows[:, None] @ matrix)[:, 0]


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    return (a * b).sum(axis=1)


def _with_residual(
    squares: FloatArray, traces: FloatArray, total: FloatArray, v: FloatArray
) -> FloatArray:
    """Return the forms of all components from those of the terms, eq. (5.9), for each data set."""
    k, s2 = traces.shape[1], v[:, -1]
    whole = np.empty((len(v), k + 1, k + 1))
    whole[:, :k, :k] = squares
    mixed = (traces - _times(squares, v[:, :-1])) / s2[:, None]
    whole[:, :k, k] = whole[:, k, :k] = mixed
    alone = (total - _dot(v[:, :-1], traces)) / s2
    whole[:, k, k] = (alone - _dot(v[:, :-1], mixed)) / s2
    return whole
