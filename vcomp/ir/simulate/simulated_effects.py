"""Scores of any design, simulated from its variance components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.design import number_combinations
from vcomp.exceptions import PlanError, check_known, guarded, is_real, warn
from vcomp.formula import REPLICATE, BrennanDesign, parse_design
from vcomp.gtheory import all_sizes
from vcomp.inference import VarianceComponents
from vcomp.ir.simulate.effect_draws import (
    bounded,
    check_scale,
    correlated,
    effect_margins,
    graded,
    level_factors,
)
from vcomp.ir.simulate.margin import Margin

if TYPE_CHECKING:
    import pandas as pd

Layout = dict[str, IntArray]
"""Level codes of each row by facet; levels of nested facets are unique over all groups."""


def check_sizes(design: BrennanDesign, sizes: Mapping[str, object]) -> dict[str, LongArray]:
    """Return the sizes of all facets: one number, or one per level of the outer facets.

    Raises
    ------
    PlanError
        If a facet has no size, an unknown facet has one, or a size is not a whole number of at
        least 1.
    """
    for facet in sizes:
        check_known(facet, design.facets, "no facet {}; facets are", column=facet)
    missing = [f for f in design.facets if f not in sizes]
    if missing:
        raise PlanError(
            f"facet {missing[0]!r} has no size; give a number of levels to each of "
            f"{', '.join(design.facets)}",
            column=missing[0],
        )
    return {facet: _whole_numbers(facet, sizes[facet]) for facet in design.facets}


def _whole_numbers(facet: str, size: object) -> LongArray:
    values = np.asarray(size)
    if values.dtype.kind not in "iu" or values.ndim > 1 or values.size == 0 or (values < 1).any():
        raise PlanError(
            f"the size of {facet!r} must be a whole number of at least 1, or one for each "
            f"combination of levels that it is nested in, not {size!r}",
            column=facet,
        )
    return values.astype(np.int64)


def n_rows(design: BrennanDesign, sizes: Mapping[str, LongArray]) -> float:
    """Estimate the number of rows before they are created."""
    return float(np.prod([float(sizes[f].mean()) for f in design.facets]))


def level_codes(design: BrennanDesign, sizes: Mapping[str, LongArray]) -> Layout:
    """Return the level codes of all rows: all combinations that the nesting allows.

    Parameters
    ----------
    design : facets and their nesting
    sizes : of every facet, within those that it is nested in: one for all, or one for each
        combination of their levels, in the order in which they come

    Raises
    ------
    PlanError
        If a facet has several sizes, and not one for each combination.

    Examples
    --------
    >>> from vcomp.formula import parse_design
    >>> rows = level_codes(parse_design("d:t"), {"t": np.array(2), "d": np.array([1, 2])})
    >>> rows["t"].tolist(), rows["d"].tolist()
    ([0, 1, 1], [0, 1, 2])
    """
    rows: Layout = {}
    length = 1
    for facet in design.outer_first:
        above = [f for f in design.outer_first if f in design.nested_in[facet]]
        combination, count = _combinations([rows[f] for f in above], length)
        size = sizes[facet]
        if size.ndim and size.size != count:
            raise PlanError(
                f"facet {facet!r} has {size.size:,} sizes, and "
                + (
                    f"{count:,} levels of {' and '.join(above)}"
                    if above
                    else "is nested in nothing"
                ),
                column=facet,
            )
        within = np.broadcast_to(size, count)
        first = np.cumsum(within) - within
        times = within[combination]
        ends = np.cumsum(times)
        rows = {name: np.repeat(codes, times) for name, codes in rows.items()}
        length = int(ends[-1])
        # place of each row within its repetition, plus the first level of the combination
        codes_within = np.arange(length, dtype=np.int32)
        codes_within += np.repeat((first[combination] - (ends - times)).astype(np.int32), times)
        rows[facet] = codes_within
    return {facet: rows[facet] for facet in design.facets}


def _combinations(codes: list[IntArray], length: int) -> tuple[IntArray, int]:
    """Return the code of each row's combination of levels, and the number of combinations."""
    combined, count = np.zeros(length, dtype=np.int32), 1
    for one in codes:
        keys, combined = number_combinations(combined, count, one, int(one.max()) + 1)
        count = keys.size
    return combined, count


def groups_of(layout: Layout, facets: Sequence[str]) -> tuple[IntArray, int]:
    """Return the group of each row under an effect, from 0, and the number of groups."""
    length = next(iter(layout.values())).size
    return _combinations([layout[f] for f in facets], length)


_BYTES_A_ROW, _BYTES_A_LEVEL = 48.0, 4.0
"""Bytes per score, and per level code of a score, while scores are drawn."""


_MOST_ROWS = 2.0**31 - 1.0
"""Largest number of rows with four-byte level codes."""


class HasComponents(Protocol):
    """A fit, or published components."""

    @property
    def components(self) -> VarianceComponents:
        """The components with their facets."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimulatedScores:
    """Scores drawn from variance components, with their effects.

    Attributes
    ----------
    levels : for each facet the level of every row, from 0; those of nested facets all differ
    scores : (n,)
    effects : for each component but the residual the effect of every group of its levels
    facets : for each of these its facets
    mean : of the universe
    response : name of the scores
    seed : with which they were drawn
    """

    levels: Layout
    scores: FloatArray
    effects: Mapping[str, FloatArray]
    facets: Mapping[str, tuple[str, ...]]
    mean: float
    response: str
    seed: int

    def __repr__(self) -> str:
        sizes = " × ".join(f"{int(codes.max()) + 1:,} {f}" for f, codes in self.levels.items())
        return f"<{self.scores.size:,} simulated scores: {sizes}>"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per score: one column per facet, levels from 1, and the response."""
        import pandas as pd

        columns: dict[str, Any] = {facet: codes + 1 for facet, codes in self.levels.items()}
        return pd.DataFrame({**columns, self.response: self.scores})

    def effect(self, component: str) -> FloatArray:
        """Return the effect of a component in every row.

        Parameters
        ----------
        component : its name

        Raises
        ------
        PlanError
            If there is no such component, or it is the residual.
        """
        if component not in self.effects:
            known = ", ".join(self.effects)
            raise PlanError(
                f"no effects of {component!r} are kept; there are those of {known}", term=component
            )
        groups, _ = groups_of(self.levels, self.facets[component])
        return np.asarray(self.effects[component][groups])


@guarded
def simulate_effects(
    source: VarianceComponents | HasComponents,
    design: str | None = None,
    *,
    sizes: Mapping[str, Any] | None = None,
    mean: float = 0.0,
    margins: Mapping[str, Margin | ArrayLike] | None = None,
    correlations: Mapping[str, ArrayLike] | None = None,
    bounds: Sequence[float] | None = None,
    grades: Sequence[float] | None = None,
    response: str = "score",
    rng: int | np.random.Generator | None = None,
    **n: Any,
) -> SimulatedScores:
    """Draw scores of a design from variance components: any facets, sizes and nesting.

    Every effect has its component as variance; it is normal, or has the distribution in
    `margins`. Facets may be any, such as assessors and documents, which the simulation of
    collections does not have. (To draw the response of the rows of a fit, use its ``simulate``.)

    Parameters
    ----------
    source : components: a fit, ``vcomp.from_components(…)``, or a ``VarianceComponents``
    design : in Brennan's notation, such as ``"p x a x (d:i)"``; that of the components if not
        given. A facet may be nested where the components have it crossed, not the other way round
    sizes : for facets whose names are not Python names, or are names of parameters
    mean : of all scores; with `bounds` the score where all effects are 0
    margins : component → distribution of its effects: observed effects, such as those of a fit,
        of which a kernel estimate is made, or a :class:`vcomp.simulate.Margin`. Mean and variance
        are set to 0 and the component. ``"Residual"`` is a component
    correlations : facet → correlations of its levels, such as assessors who agree or systems of
        one group: a matrix or one number for all pairs. They join the effects of every component
        with this facet by a Gaussian copula; errors of replicates, which are nested, stay
        independent
    bounds : lowest and highest score: a logistic function of the sum of effects, with slope 1 at
        the mean. Components are those of the sum
    grades : shares of the grades 0, 1, …, such as ``(.9, .1)`` for 0/1 relevance: cuts of the sum
        of effects. Components are those of the sum
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
        number of at least 1, the scores would not fit into memory, `source` has no components,
        `mean` is not finite, `response` is not a name or is that of a facet, or a margin, a
        correlation, `bounds` or `grades` are not allowed.

    Warns
    -----
    VcompWarning
        If a negative component is set to zero.

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 5.1: margins and a
    copula, of topics; section 8, page 343: assessors and documents.

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

    Relevance in three grades, by assessors who agree, with a skewed share of relevant documents:

    >>> judged = simulate_effects(
    ...     vcomp.from_components({"d": 1.0, "a": 0.1, "Residual": 0.5}),
    ...     d=200,
    ...     a=3,
    ...     correlations={"a": 0.6},
    ...     margins={"d": np.random.default_rng(1).exponential(size=100)},
    ...     grades=(0.8, 0.15, 0.05),
    ... )
    >>> sorted(map(float, set(judged.scores)))
    [0.0, 1.0, 2.0]
    """
    from vcomp.numerics import seed_from, stream

    components = _components_of(source)
    requested = all_sizes(sizes, n)
    resolved = _design(components, design)
    _check_response(response, resolved)
    if REPLICATE in resolved.facets:
        requested.setdefault(REPLICATE, 1)
    counts = check_sizes(resolved, requested)
    _check_memory(n_rows(resolved, counts), len(resolved.facets))
    if not is_real(mean) or not np.isfinite(mean):
        raise PlanError(f"mean is a finite number, not {mean!r}")
    scale, shares = check_scale(float(mean), bounds, grades)
    values = _not_negative(components)
    sds = dict(zip(components.names, map(float, np.sqrt(values)), strict=True))
    of_effects = effect_margins(margins, components.names)
    layout, seed = level_codes(resolved, counts), seed_from(rng)
    factors = _factors(correlations, resolved, layout, components)
    latent = np.zeros(next(iter(layout.values())).size)
    effects, of_terms = {}, {}
    for t, name in enumerate(components.names[:-1]):
        of_terms[name] = tuple(f for f in resolved.facets if f in components.facets[t])
        groups, count = groups_of(layout, of_terms[name])
        drawn = _draw(layout, of_terms[name], groups, count, factors, stream(seed, t))
        effects[name] = sds[name] * of_effects[name].at(drawn)
        latent += effects[name][groups]
    groups, name = np.arange(latent.size, dtype=np.int32), components.names[-1]
    residual_stream = stream(seed, len(components.names) - 1)
    drawn = _draw(layout, resolved.facets, groups, latent.size, factors, residual_stream)
    drawn = of_effects[name].at(drawn)
    drawn *= sds[name]
    latent += drawn
    del groups, drawn
    if scale is not None:
        scores = bounded(latent, float(mean), scale)
    elif shares is not None:
        scores = graded(latent, shares, of_effects, sds, seed)
    else:
        scores = latent
        scores += float(mean)
    return SimulatedScores(layout, scores, effects, of_terms, float(mean), response, seed)


def _factors(
    correlations: Mapping[str, ArrayLike] | None,
    made: BrennanDesign,
    layout: Layout,
    components: VarianceComponents,
) -> dict[str, FloatArray]:
    """Return the factors by component; a component may have one facet with correlations."""
    sizes = {f: int(layout[f].max()) + 1 for f in made.facets if not made.nested_in[f]}
    factors = level_factors(correlations, sizes)
    for name, facets in zip(components.names, components.facets, strict=True):
        several = [f for f in factors if f in facets]
        if len(several) > 1:
            raise PlanError(
                f"component {name!r} has the facets {' and '.join(several)}; give correlations of "
                "one of them",
                term=name,
            )
    return factors


def _draw(
    layout: Layout,
    facets: Sequence[str],
    groups: IntArray,
    count: int,
    factors: Mapping[str, FloatArray],
    rng: np.random.Generator,
) -> FloatArray:
    """Return a normal for every group of a component."""
    facet = next((f for f in facets if f in factors), None)
    if facet is None:
        return np.asarray(rng.standard_normal(count))
    rest, _ = groups_of(layout, [f for f in facets if f != facet] or [])
    return correlated(groups, count, layout[facet], rest, factors[facet], rng)


def _components_of(source: VarianceComponents | HasComponents) -> VarianceComponents:
    components = getattr(source, "components", source)
    if not isinstance(components, VarianceComponents):
        what = "None" if source is None else type(source).__name__
        raise PlanError(
            "source is a fit or components, such as vcomp.from_components() makes of a mapping, "
            f"not {what}"
        )
    return components


def _check_response(response: object, design: BrennanDesign) -> None:
    if not isinstance(response, str):
        raise PlanError(f"response= is the name of a column, not {response!r}")
    if response in design.facets:
        raise PlanError(
            f"response={response!r} is a facet, which has a column of that name", column=response
        )


def _design(components: VarianceComponents, text: str | None) -> BrennanDesign:
    """Return the requested design, with the replicates of the components."""
    facets = components.facet_names
    above = {f: frozenset(components.nested_in.get(f, ())) for f in facets}
    if text is not None:
        requested = parse_design(text)
        named = set(facets) - {REPLICATE}
        if set(requested.facets) - {REPLICATE} != named:
            raise PlanError(
                f"the design {text!r} has the facets {', '.join(requested.facets)}; the "
                f"components have {', '.join(sorted(named))}"
            )
        for facet in sorted(named):
            lost = above[facet] - requested.nested_in[facet]
            if lost:
                outer = sorted(lost)[0]
                raise PlanError(
                    f"the components have {facet!r} nested in {outer!r}, which confounds what a "
                    f"design with both crossed needs; write {facet}:{outer}",
                    column=facet,
                )
        above = {**above, **{f: requested.nested_in[f] for f in named}}
        facets = tuple(f for f in requested.facets if f != REPLICATE)
        facets += (REPLICATE,) if REPLICATE in above else ()
    if REPLICATE in above:
        above[REPLICATE] = frozenset(facets) - {REPLICATE}
    return BrennanDesign.of(facets, above)


def _not_negative(components: VarianceComponents) -> FloatArray:
    values = components.values
    if not np.isfinite(values).all():
        name = components.names[int((~np.isfinite(values)).argmax())]
        raise PlanError(
            f"component {name!r} is nan, so that its effects cannot be drawn", term=name
        )
    negative = [name for name, v in zip(components.names, values, strict=True) if v < 0]
    if negative:
        warn(f"negative components are set to zero: {', '.join(negative)}")
    return np.maximum(values, 0.0)


def _check_memory(rows: float, n_facets: int) -> None:
    from vcomp.numerics import check_memory

    what = f"about {display.count(rows)} scores need"
    if rows > _MOST_ROWS:
        raise PlanError(f"{what[:-5]} are more than {display.count(_MOST_ROWS)}; use fewer levels")
    needed = (_BYTES_A_ROW + _BYTES_A_LEVEL * n_facets) * rows
    check_memory(needed, what, "use fewer levels", PlanError)
