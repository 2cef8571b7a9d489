"""Forms of many data sets at once: with nested strata, or small.

Nested strata have the recursion of ``nested`` and the sums of ``totals``
(docs/explanation/mathematics.md, eqs. (3.3), (3.4), (5.7) and (5.8)).

Of small data sets the largest term is absorbed. All other terms are dense matrices of the order of
their effects, one for each data set: the equations of section 7.3, computed for a whole stack by
each call of numpy. With V = σ²_e Ṽ, Ṽ₀ the part of the residual and the absorbed term, and
A = W'Ṽ₀⁻¹W, the forms of P are those of A and of K, the inverse of Henderson's equations in W.
Components may be zero, as effects have unit variance in these equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.estimators.likelihood.nested import EliminatedGroups, NestedGroups, fewer_vectors
from vcomp.numerics import inverses
from vcomp.statistics import Stack, StratumStatistics


@dataclass(frozen=True, slots=True, eq=False)
class StackedForms:
    """Forms of V⁻¹ and P of B data sets by the components, the residual last.

    Q is P for the restricted likelihood, and V⁻¹ for the full one.

    Attributes
    ----------
    log_det : (B,) log|V|, with log|X'V⁻¹X| for the restricted likelihood
    rss : (B,) y'Py
    quadratics, traces : (B, k + 1) y'PV_tPy and tr(QV_t)
    twice, squares : (B, k + 1, k + 1) y'PV_tPV_uPy and tr(QV_tQV_u)
    beta, slopes : (B, p) fixed effects and (B, k + 1, p) their derivatives by the components
    """

    log_det: FloatArray
    rss: FloatArray
    quadratics: FloatArray
    traces: FloatArray
    twice: FloatArray
    squares: FloatArray
    beta: FloatArray
    slopes: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _StrataColumns:
    """The columns y and X of the strata that have the same ones.

    Attributes
    ----------
    strata : (S,) positions of these strata
    places : (b,) positions of the columns in [y X]
    means, within : (S, b, r, N) means in innermost groups, and (B, S, b, b) squares and products
        within them
    """

    strata: LongArray
    places: LongArray
    means: FloatArray
    within: FloatArray

    @classmethod
    def all_of(cls, stats: Sequence[StratumStatistics]) -> list[_StrataColumns]:
        """Return the columns of all strata."""
        fixed = [stratum.fixed for stratum in stats[0].strata]
        return [
            cls(
                np.array(strata),
                np.array([0, *(1 + j for j in columns)]),
                _joined([[fewer_vectors(one.strata[s].columns) for one in stats]
                         for s in strata]),
                np.array([[one.strata[s].columns.within for s in strata] for one in stats]),
            )
            for columns in dict.fromkeys(fixed)
            for strata in [[s for s, own in enumerate(fixed) if own == columns]]
        ]  # fmt: skip


def _joined(tables: Sequence[Sequence[FloatArray]]) -> FloatArray:
    """Return the (q, b, r) tables of S strata and B data sets as one of (S, b, r, N)."""
    most = max(table.shape[2] for row in tables for table in row)
    sizes = np.array([len(table) for table in tables[0]])
    joined = np.zeros((len(tables), tables[0][0].shape[1], most, sizes.sum()))
    ends = np.cumsum(sizes)
    for into, row in zip(joined, tables, strict=True):
        for end, table in zip(ends, row, strict=True):
            into[:, : table.shape[2], end - len(table) : end] = table.transpose(1, 2, 0)
    return joined


class StackedStrata:
    """Nested strata of data sets.

    Parameters
    ----------
    stats : of the data sets, which have the same strata and levels; their groups may differ
    """

    def __init__(self, stats: Sequence[StratumStatistics]) -> None:
        whole = stats[0]
        self.n_fixed = whole.n_fixed
        self.n = np.array([float(one.n) for one in stats])
        self.sizes = np.array([one.sizes for one in stats], dtype=float)
        self.XX = np.array([one.XX for one in stats])
        self._groups = NestedGroups.of([one.remainder for one in stats])
        self._columns = _StrataColumns.all_of(stats)
        M = np.array([stratum.coefficients for stratum in whole.strata])
        # Levels that no term has are not components of any stratum.
        self._levels: list[int] = np.flatnonzero(M.any(axis=(0, 2))).tolist()
        self._all_M, self._M = M, M[:, self._levels]
        self._pairs = self._M[:, :, None, :, None] * self._M[:, None, :, None, :]
        self._multiplicity = np.array([float(s.multiplicity) for s in whole.strata])

    def __len__(self) -> int:
        return self.n.size

    def take(self, chosen: LongArray) -> StackedStrata:
        """Return the strata of some data sets, also repeatedly."""
        made = object.__new__(StackedStrata)
        vars(made).update(vars(self))
        made.n, made.sizes, made.XX = self.n[chosen], self.sizes[chosen], self.XX[chosen]
        places = self._groups.places(-1, chosen)
        made._groups = self._groups.take(chosen)
        made._columns = [
            replace(c, means=np.take(c.means, places, axis=-1), within=c.within[chosen])
            for c in self._columns
        ]
        return made

    def forms(self, v: FloatArray, *, reml: bool) -> StackedForms:
        """Return the forms at (B, k + 1) components, the residual positive."""
        (B, k1), b = v.shape, 1 + self.n_fixed
        of_strata = (self._all_M @ v[:, None, :, None])[..., 0]  # (B, S, size)
        c = np.ascontiguousarray(np.moveaxis(of_strata, (2, 1), (0, 1)))
        point = EliminatedGroups(self._groups, c)
        traces, squares = point.traces_and_squares(self._levels)
        mult = np.repeat(self._multiplicity, len(self._levels))
        total_traces = each(traces.reshape(B, -1) * mult, self._M.reshape(-1, k1))
        mult = np.repeat(mult, len(self._levels))
        pairs = self._pairs.reshape(mult.size, -1)
        total_squares = each(squares.reshape(B, -1) * mult, pairs).reshape(B, k1, k1)
        gram, first = np.zeros((B, b, b)), np.zeros((B, k1, b, b))
        second = np.zeros((B, k1, k1, b, b))
        for columns in self._columns:
            of_columns = point.of_strata(columns.strata)
            away = of_columns.differences(columns.means, of_columns.last)
            own_gram = of_columns.gram(away, columns.within)
            own_first, own_second = of_columns.quadratics(away, columns.within, self._levels)
            at, some = columns.places, columns.strata
            rows, of_pairs = self._M[some].reshape(-1, k1), self._pairs[some].reshape(-1, k1 * k1)
            there = (..., at[:, None], at)
            gram[there] += np.ascontiguousarray(own_gram).sum(axis=1)
            of_terms = rows.T @ own_first.reshape(B, len(rows), -1)
            first[there] += of_terms.reshape(B, k1, at.size, at.size)
            of_both = of_pairs.T @ own_second.reshape(B, len(of_pairs), -1)
            second[there] += of_both.reshape(B, k1, k1, at.size, at.size)
        log_det = (np.ascontiguousarray(point.log_det) * self._multiplicity).sum(axis=1)
        forms = log_det, total_traces, total_squares, gram, first, second
        return _less_fixed(*forms, reml=reml)


def _less_fixed(
    log_det: FloatArray,
    traces: FloatArray,
    squares: FloatArray,
    gram: FloatArray,
    first: FloatArray,
    second: FloatArray,
    *,
    reml: bool,
) -> StackedForms:
    """Return the forms of P and Q from those of V⁻¹ with [y X], as ``totals.Totals``."""
    inverse, log_fixed = inverses_or_nan(gram[:, 1:, 1:])
    beta = (inverse @ gram[:, 1:, :1])[:, :, 0]
    e = np.concatenate([np.ones((len(beta), 1)), -beta], axis=1)
    along = (first @ e[:, None, :, None])[..., 0]  # (B, k + 1, b)
    mixed = along[:, :, 1:]
    moved = mixed @ inverse
    twice = ((second @ e[:, None, None, :, None])[..., 0] * e[:, None, None]).sum(axis=3)
    if reml:
        relative = inverse[:, None] @ first[:, :, 1:, 1:]
        traces = traces - np.trace(relative, axis1=2, axis2=3)
        weighted = second[..., 1:, 1:] * inverse[:, None, None]
        flat = relative.reshape(*traces.shape, -1)
        turned = relative.swapaxes(2, 3).reshape(*traces.shape, -1)
        squares = squares - 2.0 * weighted.reshape(*squares.shape, -1).sum(axis=3)
        squares = squares + flat @ turned.swapaxes(1, 2)
        log_det = log_det + log_fixed
    return StackedForms(
        log_det=log_det,
        rss=((gram @ e[:, :, None])[:, :, 0] * e).sum(axis=1),
        quadratics=(along * e[:, None]).sum(axis=2),
        traces=traces,
        twice=twice - moved @ mixed.swapaxes(1, 2),
        squares=squares,
        beta=beta,
        slopes=-moved,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Absorbed:
    """Sums over the groups of the absorbed term with weights g(n), at one power of 1/D."""

    WW: FloatArray
    Wy: FloatArray
    yy: FloatArray


class StackedEquations:
    """Equations of small data sets without their largest term.

    Parameters
    ----------
    stack : their sums
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.rest = [t for t in range(len(stack.blocks)) if t != stack.lead]
        self._blocks = stack.blocks[self.rest]
        self._is_fixed: BoolArray = stack.blocks.sum(axis=0) == 0.0
        self.n, self.sizes, self.n_fixed = stack.n, stack.sizes, stack.n_fixed
        of_fixed = slice(stack.whole.shape[1] - stack.n_fixed, None)
        self.XX = stack.whole[:, of_fixed, of_fixed]

    def __len__(self) -> int:
        return len(self.stack)

    def take(self, chosen: LongArray) -> StackedEquations:
        """Return the equations of some data sets, also repeatedly."""
        return StackedEquations(self.stack.take(chosen))

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

    def forms(self, v: FloatArray, *, reml: bool) -> StackedForms:
        """Return the forms at (B, k + 1) components, the residual positive."""
        stack, fixed = self.stack, self._is_fixed
        s2 = v[:, -1]
        ratio = v[:, stack.lead] / s2
        D = 1.0 + ratio[:, None] * stack.group_n
        powers = np.stack([ratio[:, None] / D, 1.0 / D**2, stack.group_n / D**3], axis=1)
        inner, second, third = self._weighted(powers)
        A = stack.whole - inner.WW
        a_y, a_yy = stack.whole_y - inner.Wy, stack.yy - inner.yy
        root = each(np.sqrt(v[:, self.rest] / s2[:, None]), self._blocks) + fixed
        K, K_traces, log_det = self._inverses(A, root, reml=reml)

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
        squares = self._squares(Q, KA, second.WW)
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
        s, total, scale = s2[:, None], rss / s2, stack.scale[fixed]
        log_det = log_det + (stack.n_groups * np.log(D)).sum(axis=1) + degrees * np.log(s2)
        slopes = np.empty((*v.shape, stack.n_fixed))
        slopes[:, :-1] = -solved[:, :, fixed] / s[:, :, None]
        slopes[:, -1] = -(v[:, None, :-1] @ slopes[:, :-1])[:, 0] / s
        quadratics, traces = quadratics / s**2, traces / s
        twice = 0.5 * (twice + twice.swapaxes(1, 2)) / s[:, :, None] ** 3
        squares = squares / s[:, :, None] ** 2
        return StackedForms(
            log_det=log_det + 2.0 * np.log(scale).sum() if reml else log_det,
            rss=total,
            quadratics=_of_residual(quadratics, total, v),
            traces=_of_residual(traces, degrees, v),
            twice=_with_residual(twice, quadratics, total, v),
            squares=_with_residual(squares, traces, degrees, v),
            beta=b[:, fixed] / scale,
            slopes=slopes / scale,
        )

    def _inverses(
        self, A: FloatArray, root: FloatArray, *, reml: bool
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
        if reml:
            return K, K, log_det
        n_random = int((~fixed).sum())
        inner, log_det = inverses_or_nan(np.ascontiguousarray(S[:, :n_random, :n_random]))
        r = root[:, :n_random]
        K_traces = np.zeros_like(K)
        K_traces[:, :n_random, :n_random] = inner * r[:, :, None] * r[:, None, :]
        return K, K_traces, log_det

    def _squares(self, Q: FloatArray, KA: FloatArray, M: FloatArray) -> FloatArray:
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


def _of_residual(forms: FloatArray, total: FloatArray, v: FloatArray) -> FloatArray:
    """Return the forms of all components from those of the terms, eq. (5.9)."""
    rest = (total - _dot(v[:, :-1], forms)) / v[:, -1]
    return np.concatenate([forms, rest[:, None]], axis=1)


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
