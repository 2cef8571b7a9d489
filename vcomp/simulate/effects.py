"""Scores of any design from its variance components: assessors, documents, sessions and all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vcomp._typing import FloatArray
from vcomp.components import REPLICATE, VarianceComponents
from vcomp.exceptions import PlanError, warn
from vcomp.notation import Design, parse_design
from vcomp.simulate.layout import Layout, check_sizes, groups_of, level_codes, n_rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HasComponents", "SimulatedScores", "simulate_effects"]

_BYTES_A_ROW = 8.0 * 5


class HasComponents(Protocol):
    """A fit, or published components."""

    @property
    def components(self) -> VarianceComponents:
        """The components with their facets."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimulatedScores:
    """Scores drawn from variance components, and the effects that they are made of.

    Attributes
    ----------
    levels : for each facet the level of every row, from 0; those of nested facets all differ
    scores : (n,)
    effects : for each component but the residual the effect of every group of its levels
    groups : for each of these the group of every row
    mean : of the universe
    response : name of the scores
    seed : with which they were drawn
    """

    levels: Layout
    scores: FloatArray
    effects: Mapping[str, FloatArray]
    groups: Mapping[str, Any]
    mean: float
    response: str
    seed: int

    def __repr__(self) -> str:
        sizes = " × ".join(f"{int(codes.max()) + 1:,} {f}" for f, codes in self.levels.items())
        return f"<{self.scores.size:,} simulated scores: {sizes}>"

    def to_frame(self) -> pd.DataFrame:
        """Return a row a score: a column a facet, levels from 1, and the response."""
        import pandas as pd

        columns: dict[str, Any] = {facet: codes + 1 for facet, codes in self.levels.items()}
        return pd.DataFrame({**columns, self.response: self.scores})

    def effect(self, component: str) -> FloatArray:
        """Return the effect of a component in every row.

        Raises
        ------
        PlanError
            If there is no such component, or it is the residual.
        """
        if component not in self.effects:
            known = ", ".join(self.effects)
            raise PlanError(f"no effects of {component!r} are kept; there are those of {known}")
        return np.asarray(self.effects[component][self.groups[component]])


def simulate_effects(
    source: VarianceComponents | HasComponents,
    design: str | None = None,
    *,
    sizes: Mapping[str, Any] | None = None,
    mean: float = 0.0,
    response: str = "score",
    rng: int | np.random.Generator | None = None,
    **n: Any,
) -> SimulatedScores:
    """Draw scores of a design from variance components: any facets, sizes and nesting.

    Every effect is normal with its component as variance. Facets that the simulation of
    collections leaves out, such as assessors and documents, are as good as any. (To draw the
    response of the rows of a fit again, use its ``simulate``.)

    Parameters
    ----------
    source : components: a fit, ``vcomp.from_components(…)``, or a ``VarianceComponents``
    design : in Brennan's notation, such as ``"p x a x (d:i)"``; that of the components if not
        given. A facet may be nested where the components have it crossed, not the other way round
    sizes : for facets whose names are no Python names or those of parameters
    mean : of all scores
    response : name of the scores in frames
    rng : seed, or a generator that one is drawn from once; 0 if not given. Every component has a
        stream to itself
    **n : number of levels of each facet, within those that it is nested in: one number, or one for
        each of their levels (or combinations of levels), in the order in which they come

    Returns
    -------
    SimulatedScores
        with ``to_frame()`` and ``effect(component)``

    Raises
    ------
    PlanError
        If the design is not one that the components support, a size is missing or not a whole
        number from 1 on, the scores would not fit into memory, `source` has no components, `mean`
        is no finite number, or `response` is no name or that of a facet.

    Warns
    -----
    VcompWarning
        If a negative component is taken as zero.

    Examples
    --------
    >>> import vcomp
    >>> published = vcomp.from_components(
    ...     {"p": 0.008, "i": 0.016, "a": 0.001, "pi": 0.013, "pa": 0.001, "ia": 0.001,
    ...      "Residual": 0.002}
    ... )
    >>> simulate_effects(published, p=30, i=50, a=3, mean=0.3, rng=1)
    <4,500 simulated scores: 30 p × 50 i × 3 a>
    >>> simulate_effects(published, "p x (a:i)", p=30, i=50, a=2, rng=1)
    <3,000 simulated scores: 30 p × 100 a × 50 i>
    """
    from vcomp.resampling.streams import seed_from, stream

    components = _components_of(source)
    asked = _both(sizes, n)
    made = _design(components, design)
    _check_response(response, made)
    if REPLICATE in made.facets:
        asked.setdefault(REPLICATE, 1)
    counts = check_sizes(made, asked)
    _check_memory(n_rows(made, counts))
    number = isinstance(mean, int | float | np.number) and not isinstance(mean, bool)
    if not number or not np.isfinite(mean):
        raise PlanError(f"mean is a finite number, not {mean!r}")
    values = _not_negative(components)
    layout, seed = level_codes(made, counts), seed_from(rng)
    scores = np.full(next(iter(layout.values())).size, float(mean))
    effects, groups = {}, {}
    for t, name in enumerate(components.names):
        facets = [f for f in made.facets if f in components.facets[t]]
        sd = float(np.sqrt(values[t]))
        generator = stream(seed, t)
        if t == len(components.names) - 1:
            scores += sd * generator.standard_normal(scores.size)
            break
        groups[name], count = groups_of(layout, facets)
        effects[name] = sd * generator.standard_normal(count)
        scores += effects[name][groups[name]]
    return SimulatedScores(layout, scores, effects, groups, float(mean), response, seed)


def _components_of(source: VarianceComponents | HasComponents) -> VarianceComponents:
    components = getattr(source, "components", source)
    if not isinstance(components, VarianceComponents):
        what = "None" if source is None else type(source).__name__
        raise PlanError(
            "source is a fit or components, such as vcomp.from_components() makes of a mapping, "
            f"not {what}"
        )
    return components


def _check_response(response: object, design: Design) -> None:
    if not isinstance(response, str):
        raise PlanError(f"response= is the name of a column, not {response!r}")
    if response in design.facets:
        raise PlanError(f"response={response!r} is a facet, which has a column of that name")


def _both(sizes: Mapping[str, Any] | None, n: Mapping[str, Any]) -> dict[str, Any]:
    if sizes is not None and not isinstance(sizes, Mapping):
        raise PlanError(f"sizes is a mapping such as {{'topic': 50}}, not {sizes!r}")
    twice = [f for f in n if f in (sizes or {})]
    if twice:
        raise PlanError(f"the size of {twice[0]!r} is given twice, in sizes= and as {twice[0]}=")
    return {**(sizes or {}), **n}


def _design(components: VarianceComponents, text: str | None) -> Design:
    """Return the design that is asked for, with the replicates of the components."""
    facets = components.facet_names
    above = {f: frozenset(components.nested_in.get(f, ())) for f in facets}
    if text is not None:
        asked = parse_design(text)
        own = set(facets) - {REPLICATE}
        if set(asked.facets) - {REPLICATE} != own:
            raise PlanError(
                f"the design {text!r} has the facets {', '.join(asked.facets)}; the components "
                f"have {', '.join(sorted(own))}"
            )
        for facet in sorted(own):
            lost = above[facet] - asked.nested_in[facet]
            if lost:
                outer = sorted(lost)[0]
                raise PlanError(
                    f"the components have {facet!r} nested in {outer!r}, which confounds what a "
                    f"design with both crossed needs; write {facet}:{outer}"
                )
        above = {**above, **{f: asked.nested_in[f] for f in own}}
        facets = tuple(f for f in asked.facets if f != REPLICATE)
        facets += (REPLICATE,) if REPLICATE in above else ()
    if REPLICATE in above:
        above[REPLICATE] = frozenset(facets) - {REPLICATE}
    return Design.of(facets, above)


def _not_negative(components: VarianceComponents) -> FloatArray:
    values = components.values
    if not np.isfinite(values).all():
        name = components.names[int((~np.isfinite(values)).argmax())]
        raise PlanError(f"component {name!r} is not known, so that nothing can be drawn from it")
    negative = [name for name, v in zip(components.names, values, strict=True) if v < 0]
    if negative:
        warn(f"negative components are taken as zero: {', '.join(negative)}")
    return np.maximum(values, 0.0)


def _check_memory(rows: float) -> None:
    from vcomp.linalg.memory import available_bytes, gib

    needed, free = _BYTES_A_ROW * rows, available_bytes()
    if needed > 0.8 * free:
        raise PlanError(
            f"about {rows:,.0f} scores need {gib(needed)}, and {gib(free)} are free; take fewer "
            "levels"
        )
