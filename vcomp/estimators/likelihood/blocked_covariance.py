"""Elimination of Henderson's equations, and the forms of V = Σ c_l Z_l Z_l' + c_e I that follow.

:class:`Eliminations` keeps the equations of the blocked engine. :class:`BlockedCovariance` gives
the strata engine the forms of a stratum with crossed remaining facets
(docs/explanation/mathematics.md, section 3.4). Forms come from cross-products, without a matrix of
the order of V; those of the residual follow from those of the terms, eq. (5.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.display import listed, memory
from vcomp.estimators.likelihood.engine import FixedForms
from vcomp.estimators.likelihood.equations import BlockSums, Equations, Planner, Tables
from vcomp.estimators.likelihood.point import Point
from vcomp.estimators.likelihood.term_point import TermPoint, variances
from vcomp.estimators.likelihood.totals import Columns, Forms, with_last, with_residual_forms
from vcomp.exceptions import EstimationError
from vcomp.numerics import available_bytes
from vcomp.numerics.sparse import EliminationOrder, plan_elimination
from vcomp.statistics import CrossProducts, WideProducts

_SHARE = 0.8
"""Fraction of the free memory that a factor may use."""

OTHER_ENGINE = "use engine='iterative', or with a constant mean method='anova'"
"""Advice where a factor does not fit into memory."""

_KEPT_BYTES = 2.0**27
"""Largest size in bytes of a factor that is kept for other responses, or after a fit."""

_SETS_KEPT = 4
"""Largest number of sets of positive components whose equations are shared with another response;
each needs the memory of a factor."""


class Eliminations:
    """Henderson's equations, analysed once for each set of positive components.

    Parameters
    ----------
    stats : cross-products; a factor of many levels in the fixed part is a further term, whose
        component is infinite
    names : of the terms, for messages
    advice : end of the message if the factor does not fit into memory
    planner : returns the order of elimination of a matrix
    free_bytes : returns the free memory
    kept_bytes : memory up to which a factor is kept for other responses

    Attributes
    ----------
    norms_fit : whether the squared norms of the blocks of C⁻¹, eq. (7.10), fit into memory

    Raises
    ------
    EstimationError
        If the factor would not fit into memory; checked before it is allocated.
    """

    def __init__(
        self,
        stats: CrossProducts | WideProducts,
        names: Sequence[str] | None = None,
        advice: str = OTHER_ENGINE,
        *,
        planner: Planner = plan_elimination,
        free_bytes: Callable[[], float] = available_bytes,
        kept_bytes: float = _KEPT_BYTES,
    ) -> None:
        self._advice, self._planner, self._free_bytes = advice, planner, free_bytes
        self._kept_bytes = kept_bytes
        self._random_names = tuple(names or (f"term {t + 1}" for t in range(stats.n_terms)))
        self._names, self._inner = self._random_names, None
        if stats.factor is not None:
            self._names = *self._random_names, "the fixed factor"
            options = {"planner": planner, "free_bytes": free_bytes, "kept_bytes": kept_bytes}
            self._inner = _Later((stats.random, self._random_names, advice), options)
        # Value, derivatives and information are requested one after the other at the same point.
        self._last: tuple[bytes, TermPoint] | None = None
        self._start: tuple[bytes, TermPoint] | None = None
        self._equations: dict[tuple[int, ...], Equations] = {}
        self._tables = Tables(stats.products)
        self._plans: dict[tuple[int, ...], tuple[Any, EliminationOrder]] = {}
        every = self._ordered(range(stats.products.n_terms))
        self._whole_plan: EliminationOrder = self._planned(every)[1]
        self.norms_fit = self._whole_plan.bytes_for_norms <= _SHARE * free_bytes()

    def at(self, v: FloatArray) -> TermPoint:
        """Return the equations factored at components `v` of the random terms, residual last."""
        v = np.array(v, dtype=float)
        if self._inner is not None:
            v = np.insert(v, v.size - 1, np.inf)
        key = v.tobytes()
        last = self._last
        if last is None or last[0] != key:
            # The last factor is freed before the next is allocated.
            last = self._last = None
            start = self._start
            like = None if start is None or start[0] != key else start[1]
            equations = self._equations_of(v)
            last = self._last = key, TermPoint(equations, v, like=like, inner=self._inner)
        return last[1]

    def _equations_of(self, v: FloatArray) -> Equations:
        """Return the equations of the terms with a positive component."""
        terms = range(self._tables.stats.n_terms)
        active = self._ordered(t for t in terms if v[t] > 0.0)
        if active not in self._equations:
            planned, stats = self._planned(active), self._tables.stats
            self._plans.pop(active, None)
            fixed = tuple(t for t in active if v[t] == np.inf)
            random = tuple((t,) for t in active if t not in fixed)
            sums = BlockSums((stats,), random, stats.log_weights, fixed)
            self._equations[active] = Equations(sums, self._tables, planned)
        return self._equations[active]

    def refined_forms(self, v: FloatArray) -> FixedForms:
        """Return X'V⁻¹V_tV⁻¹X at positive components, next to a small residual too."""
        equations = self._equations_of(v)
        point = Point(equations, v[-1:], variances(equations, v))
        forms = point.fixed_forms()
        first = np.empty_like(forms)
        first[[-1, *(t for (t,) in equations.sums.terms)]] = forms
        return FixedForms(point.fixed_effects()[1], first)

    def keep(self, v: FloatArray) -> None:
        """Keep the factor at `v` for other responses, unless it needs much memory."""
        if self.are_small:
            point = self.at(v)
            self._start = point.v.tobytes(), point

    def with_response(self, stats: CrossProducts | WideProducts) -> Eliminations:
        """Return the equations of the same rows with another response.

        Orders and patterns are shared, so that only one of the two can be used at a time.

        Parameters
        ----------
        stats : cross-products that differ in Zy, X'y and y'y only
        """
        other = copy(self)
        other._tables, other._last = self._tables.with_response(stats.products), None
        other._equations = {
            active: equations.with_response((stats.products,))
            for active, equations in list(self._equations.items())[-_SETS_KEPT:]
        }
        return other

    @property
    def seconds(self) -> float:
        """Expected time of one factorisation and inverse in seconds."""
        return self._whole_plan.seconds

    @property
    def are_small(self) -> bool:
        """Whether a factor may be kept after its use."""
        return self._whole_plan.bytes_for_norms <= self._kept_bytes

    def are_named(self, names: Sequence[str] | None) -> bool:
        """Return whether messages have these names of the terms, or any if None."""
        return names is None or self._random_names == tuple(names)

    def check_norms(self, kind: str) -> None:
        """Refuse an information that needs squared norms if these do not fit into memory.

        Raises
        ------
        EstimationError
            If they do not; the message says how much they need and what to use instead.
        """
        if not self.norms_fit:
            raise EstimationError(
                f"the {kind} information needs {memory(self._whole_plan.bytes_for_norms)}, and "
                f"{memory(self._free_bytes())} are free; information='average' needs no more "
                "than the value"
            )

    def in_words(self) -> str:
        """Return a clause such as "sparse factor of student and school, 50 columns dense"."""
        plan = self._whole_plan
        if not self._names:
            return "no random terms"
        sparse, columns = self._sparse_in_words(plan), "column" if plan.n_dense == 1 else "columns"
        dense = f"{plan.n_dense:,} {columns} dense"
        if sparse:
            words = f"sparse factor of {sparse}{f', {dense}' if plan.n_dense else ''}"
        else:
            words = f"all {dense}"
        if not self.norms_fit:
            words += "; average information only, as squared norms do not fit into memory"
        return words

    def _sparse_in_words(self, plan: EliminationOrder) -> str:
        if plan.order is not None:
            return f"{plan.cut:,} columns in order of minimum degree"
        sizes, begin = self._tables.stats.sizes, 0
        sparse: list[str] = []
        for t in self._ordered(range(len(sizes))):
            if begin + sizes[t] > plan.cut:
                part = plan.cut - begin
                partly = [f"{part:,} groups of {self._names[t]}"] if part else []
                return listed([*sparse, *partly])
            sparse.append(self._names[t])
            begin += sizes[t]
        return listed(sparse)

    def _ordered(self, terms: Any) -> tuple[int, ...]:
        sizes = self._tables.stats.sizes
        return tuple(sorted(terms, key=lambda t: (-sizes[t], t)))

    def _planned(self, active: tuple[int, ...]) -> tuple[Any, EliminationOrder]:
        """Return the off-diagonal Z'Z of some terms and their order of elimination.

        Raises
        ------
        EstimationError
            If the factor would not fit into memory.
        """
        if active in self._plans:
            return self._plans[active]
        random, sizes = self._tables.off_diagonal(active), self._tables.stats.sizes
        plan, free = self._planner(random, [sizes[t] for t in active]), self._free_bytes()
        if plan is None or plan.bytes_for_traces > _SHARE * free:
            needed = "tens of GiB" if plan is None else memory(plan.bytes_for_traces)
            order = sum(sizes[t] for t in active)
            raise EstimationError(
                f"exact elimination of these {order:,} random effects needs {needed}, and "
                f"{memory(free)} are free; {self._advice}"
            )
        self._plans[active] = random, plan
        return random, plan


@dataclass
class _Later:
    """Equations without the factor of many levels, analysed when they are first used."""

    args: tuple[Any, ...]
    options: dict[str, Any]

    @cached_property
    def _made(self) -> Eliminations:
        return Eliminations(*self.args, **self.options)

    def __call__(self, v: FloatArray) -> TermPoint:
        return self._made.at(v)


class BlockedCovariance:
    """Forms of V⁻¹ and some columns at any components; implements ``totals.Covariance``.

    Parameters
    ----------
    stats : cross-products of the terms; their y and X are not used
    columns : sums of the columns within the groups of the same terms

    Raises
    ------
    EstimationError
        If the factor would not fit into memory.
    """

    def __init__(self, stats: CrossProducts, columns: Columns) -> None:
        self._stats = _without_columns(stats)
        self._columns = columns
        self._sums = [ZB.reshape(ZB.shape[0], -1) for ZB in columns.ZB]
        self._eliminations = Eliminations(self._stats)
        self._solved: tuple[TermPoint, FloatArray, FloatArray] | None = None

    def log_det_and_gram(self, c: FloatArray) -> tuple[float, FloatArray]:
        """Return log|V| and B'V⁻¹B only."""
        point = self._eliminations.at(c)
        return point.log_determinants()[0], self._gram(point)

    def forms(self, c: FloatArray) -> Forms:
        """Return all forms at components `c`: the residual (the last) positive, others ≥ 0."""
        point = self._eliminations.at(c)
        total = float(self._stats.n)
        traces = point.traces(with_fixed=False)
        squares = point.squares(traces, with_fixed=False, positive_only=False)
        gram = self._gram(point)
        rows = self._projected(point)
        first = np.array([self._product(r, r) for r in rows]).reshape(len(rows), *gram.shape)
        second = point.second_forms(rows, len(gram), self._product)
        return Forms(
            log_det=point.log_determinants()[0],
            traces=with_last(traces, total, point.v),
            squares=with_residual_forms(squares, traces, total, point.v),
            gram=gram,
            first=with_last(first, gram, point.v),
            second=with_residual_forms(second, first, gram, point.v),
        )

    def squares_of(self, c: FloatArray, weights: FloatArray) -> FloatArray:
        """Return r'V⁻¹K_l V⁻¹r of the column r = B `weights`, (L + 1,)."""
        point = self._eliminations.at(c)
        first = np.array([self._product(r, r) for r in self._projected(point)])
        terms: FloatArray = first.reshape(-1, weights.size, weights.size) @ weights @ weights
        whole = weights @ self._gram(point) @ weights
        return with_last(terms, whole, point.v)

    def projections(self, c: FloatArray) -> tuple[FloatArray, ...]:
        """Return Z_l'V⁻¹B of every term, (q_l, b, r)."""
        rows = self._projected(self._eliminations.at(c))
        return tuple(r.reshape(ZB.shape) for r, ZB in zip(rows, self._columns.ZB, strict=True))

    def between(self, c: FloatArray, groupings: Sequence[int]) -> FloatArray:
        """Return Z'V⁻¹Z of the groups of some groupings, (q, q)."""
        return self._eliminations.at(c).between_groups(groupings, with_fixed=False)

    def unexplained(self, c: FloatArray, grouping: int, own: float, others: float) -> FloatArray:
        """Return 1 − own · diag(Z_l'V⁻¹Z_l) of one grouping, (q_l,)."""
        return 1.0 - own * self._eliminations.at(c).diagonal(grouping, with_fixed=False)

    # At one point -------------------------------------------------------------------------

    def _solution(self, point: TermPoint) -> tuple[FloatArray, FloatArray]:
        """Return û and B'B − û'Z'B, refined once in extended precision if little is left."""
        if self._solved is None or self._solved[0] is not point:
            right = point.stacked(self._sums)
            effects = point.solve(right)[0]
            left = self._columns.BB - self._product(right, effects)
            if (np.diagonal(left) < 1e-3 * np.diagonal(self._columns.BB)).any():
                rest = right - point.applied(effects.astype(np.longdouble))
                # The error of this product is of second order in that of û.
                explained = self._product(right + rest, effects.astype(np.longdouble))
                left = (self._columns.BB - explained).astype(float)
                effects = effects + point.solve(rest.astype(float))[0]
            self._solved = point, effects, 0.5 * (left + left.T)
        return self._solved[1:]

    def _gram(self, point: TermPoint) -> FloatArray:
        return self._solution(point)[1] / point.residual

    def _projected(self, point: TermPoint) -> list[FloatArray]:
        effects = self._solution(point)[0]
        return point.projected(self._sums, (effects, np.zeros((0, effects.shape[1]))))

    def _product(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the (b, b) products of two sets of columns, summed over groups and vectors."""
        b = self._columns.BB.shape[0]
        shape = (left.shape[0], b, left.shape[1] // max(b, 1))
        return np.tensordot(left.reshape(shape), right.reshape(shape), axes=([0, 2], [0, 2]))


def _without_columns(stats: CrossProducts) -> CrossProducts:
    return replace(
        stats,
        Zy=tuple(np.zeros(q) for q in stats.sizes),
        ZX=tuple(np.zeros((q, 0)) for q in stats.sizes),
        XX=np.zeros((0, 0)),
        Xy=np.zeros(0),
        yy=0.0,
    )
