"""The equations of several variables before any covariance components are given.

They are the scores by units, the order of elimination, and the numbers of units of effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vcomp._typing import FloatArray
from vcomp.display import memory
from vcomp.exceptions import EstimationError
from vcomp.multivariate.elimination_plan import Elimination, GroupClass, plan_elimination
from vcomp.multivariate.unit_sums import (
    Counts,
    StageSums,
    Units,
    count_units,
    of_units,
    stage_sums,
    units_of,
)
from vcomp.multivariate.variable_layout import Layout
from vcomp.numerics import available_bytes, slices

_MOST_EFFECTS = 5000
"""Largest number of effects of the last stage."""

_MOST_VARIABLES = 60
"""Largest number of variables: those observed in a unit are the bits of one integer."""

CHUNK = 100_000
"""Number of elements of temporary arrays, about: more leave the cache of a processor."""


@dataclass(frozen=True, slots=True, eq=False)
class Equations:
    """Sums over the units of the effects of all stages.

    Attributes
    ----------
    layout : of the scores
    reml : whether for the restricted likelihood, or the full one
    units : the scores
    plan : order of elimination
    counts : numbers of units of pairs of effects
    stages : sums over the units of the effects of each stage
    chunk : number of elements of temporary arrays, about
    """

    layout: Layout
    reml: bool
    units: Units
    plan: Elimination
    counts: Counts
    stages: tuple[StageSums, StageSums, StageSums]
    chunk: int = CHUNK

    @property
    def v(self) -> int:
        """Number of variables."""
        return self.layout.n_variables

    @property
    def k(self) -> int:
        """Number of terms, without the residual."""
        return len(self.layout.names) - 1

    def groups_of_outer(self) -> Iterator[tuple[int, slice]]:
        """Yield each term of the third stage with the positions of its groups."""
        first = 0
        for t in self.plan.outer:
            yield t, slice(first, first + self.layout.sizes[t])
            first += self.layout.sizes[t]

    def at_once(self, columns: int) -> int:
        """Return for how many groups or levels arrays with so many columns are made at once."""
        return max(1, self.chunk // max(1, columns * self.v**2))

    def parts(self, group_class: GroupClass, columns: int = 0) -> Iterator[tuple[slice, slice]]:
        """Yield parts of a class, and the positions of their groups.

        Parameters
        ----------
        group_class : of the first stage
        columns : number of blocks (v, v) that arrays have for each group, if more than its own
        """
        own, first = group_class.columns.size + self.plan.n_slots, group_class.groups.start
        for part in slices(group_class.levels.size, self.at_once(max(own, columns))):
            yield part, slice(first + part.start, first + part.stop)


@dataclass(frozen=True, slots=True, eq=False)
class EquationsPoint:
    """The factored equations at given covariance components.

    Attributes
    ----------
    inverses : (p, v, v) residual matrices of the patterns inverted, 0 where a variable is missing
    D, E1, F1 : (groups, v, v) U'R⁻¹U, E of the first stage, and F with FF' = E
    inner : (groups, v, w) U'R⁻¹ times the second stage, w positions times variables of a level
    outer : for each class (m, v, c v) U'R⁻¹ times its columns of the third stage
    A, E2 : (levels, w, w) U'V⁻¹U and E of the second stage, V with the first one
    mixed : (levels, w, columns v) U'V⁻¹ of the second stage times the third
    omega : Ω of the third stage
    psi, psi_v : P = V⁻¹ − V⁻¹W Ψ W'V⁻¹ and the same of the V with all terms
    half : the rows of that Ψ which the criterion needs are L times these
    Py : (units, v)
    """

    loglike: float
    S: FloatArray
    inverses: FloatArray
    D: FloatArray
    E1: FloatArray
    F1: FloatArray
    inner: FloatArray
    outer: list[FloatArray]
    A: FloatArray
    E2: FloatArray
    mixed: FloatArray
    omega: FloatArray
    psi: FloatArray
    psi_v: FloatArray
    half: FloatArray
    Py: FloatArray


def equations_of(layout: Layout, y: FloatArray, *, reml: bool, chunk: int = CHUNK) -> Equations:
    """Return the equations of scores y (n,).

    Raises
    ------
    EstimationError
        If the terms have too many effects, or there are too many variables.
    """
    _check_variables(layout.n_variables)
    units, scores = units_of(layout, y), layout.scores
    plan = plan_elimination(
        [of_units(layout, g, units.order) for g in layout.groups[:-1]],
        layout.sizes[:-1],
        [
            (of_units(layout, codes, units.order), len(levels))
            for codes, levels in zip(scores.codes, scores.levels, strict=True)
        ],
        layout.n_variables,
    )
    _check_size(layout, plan)
    pattern, n = units.pattern, len(units.parts)
    stages = (
        stage_sums([plan.group], plan.n_groups, pattern, n),
        stage_sums(plan.slots, plan.n_levels * plan.n_slots, pattern, n),
        stage_sums(plan.columns, plan.n_columns, pattern, n),
    )
    counts = count_units(plan, pattern, n)
    return Equations(layout, reml, units, plan, counts, stages, chunk)


def _check_variables(v: int) -> None:
    if v > _MOST_VARIABLES:
        raise EstimationError(
            f"there are {v} variables, and REML and ML are for up to {_MOST_VARIABLES}; use "
            "method='anova'"
        )


def _check_size(
    layout: Layout, plan: Elimination, free_bytes: Callable[[], float] = available_bytes
) -> None:
    v = layout.n_variables
    effects = (plan.n_columns - 1) * v
    needed = 8.0 * (plan.numbers(v) + 4.0 * layout.scores.n * len(layout.names))
    if effects > _MOST_EFFECTS or needed > 0.8 * free_bytes():
        names = ", ".join(layout.names[t] for t in plan.terms)
        raise EstimationError(
            f"the terms except {names} have {effects:,} effects in {v} variables, and the "
            f"equations need {memory(needed)}; the limit is {_MOST_EFFECTS:,} effects, and 80 % "
            "of the free memory. Use method='anova', which has no limit, or fewer variables at "
            "once"
        )
