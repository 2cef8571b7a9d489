"""How the equations of each set of positive components are eliminated, in memory and in words."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.equations import Equations, Point, Tables, random_part
from vcomp.exceptions import EstimationError
from vcomp.linalg.memory import available_bytes, gib
from vcomp.linalg.ordering import Plan
from vcomp.statistics import CrossProducts

__all__ = ["Eliminations"]

_SHARE = 0.8
"""Of the free memory, what a factor may take."""

_SETS_KEPT = 4
"""Sets of positive components whose equations another response takes over: each has a factor."""


class Eliminations:
    """Makes the equations of a set of positive components once, and the last point asked for.

    Parameters
    ----------
    stats : cross-products
    names : of the terms, for messages
    advice : what a refusal ends with

    Raises
    ------
    EstimationError
        If the factor would not fit into memory: before anything of its size is allocated.
    """

    def __init__(
        self,
        stats: CrossProducts,
        names: Sequence[str] | None = None,
        advice: str = "use engine='iterative', or method='anova'",
    ) -> None:
        self._tables = Tables(stats)
        self._advice = advice
        self._names = tuple(names or (f"term {t + 1}" for t in range(stats.n_terms)))
        self._equations: dict[tuple[int, ...], Equations] = {}
        # Value, derivatives and information are asked for one after the other at the same point.
        self._last: tuple[bytes, Point] | None = None
        self._plans: dict[tuple[int, ...], tuple[Any, Plan]] = {}
        self._whole_plan: Plan = self._planned(self._ordered(range(stats.n_terms)))[1]

    def at(self, v: FloatArray) -> Point:
        """Return the equations factored at components `v`, the residual last."""
        v = np.array(v, dtype=float)
        key = v.tobytes()
        if self._last is None or self._last[0] != key:
            # The last ones are let go before the next are made.
            self._last = None
            terms = range(self._tables.stats.n_terms)
            active = self._ordered(t for t in terms if v[t] > 0.0)
            if active not in self._equations:
                random, plan = self._planned(active)
                del self._plans[active]
                self._equations[active] = Equations.of(self._tables, active, random, plan)
            self._last = key, Point(self._equations[active], v)
        return self._last[1]

    def with_response(self, stats: CrossProducts) -> Eliminations:
        """Return the eliminations of the same rows with another response.

        What was ordered and analysed is shared: of two of them one can be used at a time.

        Parameters
        ----------
        stats : that differ in Zy, X'y and y'y only
        """
        made = copy(self)
        made._tables, made._last = self._tables.with_response(stats), None
        made._equations = {
            active: equations.with_response(made._tables)
            for active, equations in list(self._equations.items())[-_SETS_KEPT:]
        }
        return made

    @property
    def seconds(self) -> float:
        """How long one factor and its inverse are expected to take."""
        return self._whole_plan.seconds

    def norms_fit(self) -> bool:
        """Whether exact squared norms of the inverse's blocks fit into memory."""
        return self._norms_fit

    @cached_property
    def _norms_fit(self) -> bool:
        return self._whole_plan.bytes_for_norms <= _SHARE * available_bytes()

    def check_norms(self, kind: str) -> None:
        """Refuse an information that needs squared norms where these do not fit.

        Raises
        ------
        EstimationError
            With the size and what can be had.
        """
        if not self._norms_fit:
            raise EstimationError(
                f"the {kind} information needs {gib(self._whole_plan.bytes_for_norms)}, and "
                f"{gib(available_bytes())} are free; kind='average' needs no more than the value"
            )

    def in_words(self) -> str:
        """Return how it is done, such as "student and school peeled, 50 columns dense"."""
        plan = self._whole_plan
        if not self._names:
            return "no random terms"
        dense = f"{plan.n_dense:,} columns dense" if plan.n_dense else "nothing dense"
        words = self._sparse_in_words(plan)
        words = f"{words}, {dense}" if words else f"all {dense}"
        if not self._norms_fit:
            words += "; average information only, as exact squared norms do not fit into memory"
        return words

    def _sparse_in_words(self, plan: Plan) -> str:
        if plan.order is not None:
            return f"{plan.cut:,} columns sparse in order of minimum degree"
        sizes, begin = self._tables.stats.sizes, 0
        peeled: list[str] = []
        for t in self._ordered(range(len(sizes))):
            if begin + sizes[t] > plan.cut:
                part = plan.cut - begin
                return _listed([*peeled, f"{part:,} of {self._names[t]}"] if part else peeled)
            peeled.append(self._names[t])
            begin += sizes[t]
        return _listed(peeled)

    def _ordered(self, terms: Any) -> tuple[int, ...]:
        sizes = self._tables.stats.sizes
        return tuple(sorted(terms, key=lambda t: (-sizes[t], t)))

    def _planned(self, active: tuple[int, ...]) -> tuple[Any, Plan]:
        if active in self._plans:
            return self._plans[active]
        random, plan = random_part(self._tables, active)
        free = available_bytes()
        if plan is None or plan.bytes_for_traces > _SHARE * free:
            needed = "tens of GiB" if plan is None else gib(plan.bytes_for_traces)
            order = sum(self._tables.stats.sizes[t] for t in active)
            raise EstimationError(
                f"exact elimination of these {order:,} random effects needs {needed}, and "
                f"{gib(free)} are free; {self._advice}"
            )
        self._plans[active] = random, plan
        return random, plan


def _listed(names: Sequence[str]) -> str:
    if not names:
        return ""
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{listed} peeled"
