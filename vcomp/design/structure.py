"""The structure of a design as a value (crossed, nested, balanced, connected) and in words."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vcomp import display
from vcomp.exceptions import DesignError
from vcomp.formula import (
    REPLICATE,
    RESIDUAL,
    BrennanDesign,
    Effect,
    closure,
    design_effects,
    in_formula,
    parse_design,
)
from vcomp.markup import encodable
from vcomp.plots import Node, ellipses, lattice, venn

_MOST = 64
"""Largest number of effects that one picture shows legibly: six crossed facets have 63."""


FIXED = "fixed part"
"""In place of the component of an effect that is in the fixed part."""


def draw(structure: Structure, ax: Any | None) -> Any:
    """Return the axes on which a design is drawn; see :meth:`Structure.plot`.

    Parameters
    ----------
    structure : of the design
    ax : matplotlib axes, or None
    """
    places = structure.effects
    if not 0 < len(places) <= _MOST:
        many = str(len(places)) if places else "thousands of"
        raise DesignError(
            f"the design '{structure.notation}' has {many} effects, and up to {_MOST} can be "
            "drawn; print the design instead"
        )
    placed = ellipses(structure.facets, structure.nested_in)
    if placed is None:
        return lattice([_node(p, noted=True) for p in places], structure.notation, ax=ax)
    return venn(placed, [_node(p) for p in places], structure.notation, ax=ax)


def _node(place: EffectPlace, *, noted: bool = False) -> Node:
    kind = "own"
    if place.component is None:
        kind = "none"
    elif place.component == FIXED:
        kind = "fixed"
    elif place.component == RESIDUAL:
        kind = "residual"
    confounded = noted and len(place.holds) > 1
    note = f"= {' + '.join(place.holds)}" if confounded else ""
    return Node(place.effect.name, place.effect.facets, kind, note)


_LINE = 79


@dataclass(frozen=True, slots=True)
class ConnectedPart:
    """Cells that share no level with those of other parts.

    Attributes
    ----------
    sizes : for each facet that is not nested how many of its levels the part has
    examples : a few of them by name
    """

    sizes: Mapping[str, int]
    examples: Mapping[str, tuple[str, ...]]

    def __str__(self) -> str:
        return "; ".join(
            f"{size:,} {facet} ({self._named(facet, size)})" for facet, size in self.sizes.items()
        )

    def _named(self, facet: str, size: int) -> str:
        names = self.examples[facet]
        return ", ".join(names) + (", …" if size > len(names) else "")


_NAMED = 2
"""Variances of a covariance matrix that are named."""


@dataclass(frozen=True, slots=True)
class EffectPlace:
    """Component that holds the variance of an effect of the design.

    Attributes
    ----------
    effect : of the design
    component : that holds its variance, of a term with slopes the first two variances of its
        matrix; None if the model has none and assumes zero variance, :data:`FIXED` if the effect
        is in the fixed part, which has no variance
    holds : crossed effects, and the error of single scores, that this component does not
        separate
    """

    effect: Effect
    component: str | None
    holds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure of data: which facets are crossed, nested, balanced and connected.

    Attributes
    ----------
    facets : the grouping columns
    n_levels : the number of levels of each facet; of a nested facet the number of its units
        (combinations with the facets that it is nested in)
    nested_in : for each facet those that it is nested in: by its labels (each level occurs within
        one level of the other) or by the formula (``topic/doc``)
    implicit : the nested facets whose labels alone show the nesting
    fully_crossed : pairs of facets of which every combination occurs
    partly_crossed : pairs of facets of which some combinations do not occur
    n_rows, n_cells : scores, and cells that hold at least one
    cell_min, cell_max : the smallest and the largest number of scores in a cell
    balanced : whether every cell that the design has is filled, equally often
    sizes : for each facet how many of its levels a level of those that it is nested in has, of
        one that is not nested how many go with a level of the first other facet; harmonic means
        where that differs. With repeated scores also those of a cell, under ``"replicate"``
    n_parts : number of groups of cells without any level in common; 1 is a connected design
    terms : for each random term and the residual the effects that it holds
    parts : the largest of these groups, if there are several
    claim : the design that the user of a G-study stated, in Brennan's notation; None of a formula
    findings : sentences on what of this design these data confound
    fixed : effects of these facets that are in the fixed part
    slopes : for each random term with slopes the names of its variances
    """

    facets: tuple[str, ...]
    n_levels: tuple[int, ...]
    nested_in: Mapping[str, frozenset[str]]
    implicit: tuple[str, ...]
    fully_crossed: tuple[tuple[str, str], ...]
    partly_crossed: tuple[tuple[str, str], ...]
    n_rows: int
    n_cells: int
    cell_min: int
    cell_max: int
    balanced: bool
    sizes: Mapping[str, float]
    n_parts: int
    terms: Mapping[str, tuple[str, ...]]
    parts: tuple[ConnectedPart, ...] = ()
    claim: str | None = None
    findings: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    slopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def replicated(self) -> bool:
        """Whether some cell holds several scores."""
        return self.cell_max > 1

    @property
    def connected(self) -> bool:
        """Whether all levels can be compared through the cells that they share."""
        return self.n_parts == 1

    def title(self) -> str:
        """Return the design in one line: ``30 sys × 50 topics, fully crossed, balanced``."""
        return f"{self._notation()}, {', '.join(self._properties())}"

    @property
    def design(self) -> BrennanDesign:
        """The facets and their nesting alone, in the order of the claim if there is one."""
        claimed = () if self.claim is None else parse_design(self.claim).facets
        order = dict.fromkeys((*(f for f in claimed if f in self.facets), *self.facets))
        return BrennanDesign.of(order, self.nested_in, all_columns=True)

    @property
    def notation(self) -> str:
        """The design in Brennan's notation, as D-studies accept it.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> vcomp.fit("score ~ (1|sys) + (1|topic)", data).design.notation
        'sys x topic'
        """
        return str(self.design)

    @property
    def effects(self) -> tuple[EffectPlace, ...]:
        """The effects of the design, and the component that holds the variance of each.

        Designs with more than 12 facets have no such list.
        """
        if len(self.facets) > BrennanDesign.MOST_FACETS:
            return ()
        components = {
            closure(frozenset(term.split(":")), self.nested_in): term
            for term in self.terms
            if term != RESIDUAL
        }
        fixed = [closure(frozenset(term.split(":")), self.nested_in) for term in self.fixed]
        components = dict.fromkeys(fixed, FIXED) | components
        everything = frozenset(self.facets)
        places = []
        for effect in design_effects(self.design):
            component = components.get(effect.facets)
            if component is None and effect.facets == everything:
                component = RESIDUAL
            holds = self.terms.get(component or "", ())
            if component is not None and component in self.slopes:
                component = display.shortened(self.slopes[component], _NAMED)
            places.append(EffectPlace(effect, component, holds))
        return tuple(places)

    def report(self) -> str:
        """Return the design in words and as a drawing, with the component of every effect."""
        lines = [self.title(), f"{self.n_rows:,} scores, {self.cells()}"]
        for facet in self.facets:
            above = self.nested_in[facet]
            if above:
                source = "formula" if self.claim is None else "design"
                how = "by its labels" if facet in self.implicit else f"as the {source} says"
                lines.append(f"{facet} is nested in {display.listed(sorted(above))} ({how})")
        lines += [f"{a} and {b} are partly crossed" for a, b in self.partly_crossed]
        if not self.connected:
            lines.append(
                f"the design falls into {self.n_parts:,} parts that share no level: "
                "differences between levels of different parts cannot be distinguished from "
                "differences between the parts"
            )
            lines += [f"  part {number}: {part}" for number, part in enumerate(self.parts, 1)]
            if self.parts and self.n_parts > len(self.parts):
                lines.append(f"  and {self.n_parts - len(self.parts):,} more that are no larger")
        for term, effects in self.terms.items():
            if len(effects) > 1:
                lines.append(
                    f"{term} holds {display.listed(effects)}, which cannot be distinguished"
                )
        blocks = ["\n".join(lines), self.drawing(), self._effects_table(), self._what_separates()]
        return "\n\n".join(block for block in blocks if block)

    def drawing(self) -> str:
        """Return the design as boxes: × between those that are crossed, nested facets inside.

        It is at most 79 letters wide, unless many facets are nested in one another.
        """
        size = dict(zip(self.facets, self.n_levels, strict=True))
        return self.design.boxes(lambda f: f"{size[f]:,} {f}", self._within, _LINE)

    def plot(self, ax: Any | None = None) -> Any:
        """Draw the design: a Venn diagram of up to four facets, a lattice of effects for more.

        In the Venn diagram the circles of crossed facets overlap, and that of a nested one lies
        inside; every area is an effect. Areas and nodes have the colour of the component that
        holds their variance.

        Parameters
        ----------
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        DesignError
            If there are more effects than can be drawn.
        VcompError
            If matplotlib is not installed.

        Examples
        --------
        >>> import vcomp
        >>> from matplotlib.figure import Figure
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
        >>> res.design.plot(ax=Figure().subplots()).get_title()
        'sys x topic'
        """
        return draw(self, ax)

    def with_scores_as(self, facet: str) -> Structure:
        """Return the structure with a facet whose levels are the scores within the cells.

        Parameters
        ----------
        facet : its name; it is nested in all others
        """
        facets = (*self.facets, facet)
        nested_in = {**self.nested_in, facet: frozenset(self.facets)}
        sizes = {f: n for f, n in self.sizes.items() if f != REPLICATE}
        terms = [tuple(term.split(":")) for term in self.terms if term != RESIDUAL]
        return replace(
            self,
            facets=facets,
            n_levels=(*self.n_levels, self.n_rows),
            nested_in=nested_in,
            n_cells=self.n_rows,
            cell_min=1,
            cell_max=1,
            sizes={**sizes, facet: self.sizes[REPLICATE]},
            terms=BrennanDesign(facets, nested_in).held_effects(terms, replicated=False),
        )

    def __str__(self) -> str:
        return encodable(self.report())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.report())}</pre>"

    def _notation(self) -> str:
        """Return Brennan's notation with the sizes: ``8 p × 4 a × (21 d : 6 i)``."""
        size = dict(zip(self.facets, self.n_levels, strict=True))
        return self.design.text(lambda f: display.sized(size[f], f), " × ", " : ")

    def _within(self, facet: str) -> str:
        """Return how many levels a nested facet has in each level of those above."""
        n = self.sizes.get(facet)
        if n is None:
            return ""
        about = "" if float(n).is_integer() else "about "
        return f"{about}{display.count(n)} in each"

    def _effects_table(self) -> str:
        """Return a line for every effect: its component, and the effects confounded in it."""
        places = self.effects
        if not places:
            return ""
        rows = [("effect", "component", "holds the variance of")]
        for place in places:
            holds = ", ".join(place.holds)
            if place.component in (None, FIXED):
                holds = "no term: assumed to be zero" if place.component is None else "no variance"
            rows.append((place.effect.name, place.component or display.MISSING, holds))
        first, second = (max(len(row[k]) for row in rows) for k in (0, 1))
        lines = []
        for name, component, holds in rows:
            start = f"{name:<{first}}   {component:<{second}}   "
            room = max(_LINE - len(start), _LINE // 3)
            first_line, *others = textwrap.wrap(holds, room)
            lines += [start + first_line, *(" " * len(start) + line for line in others)]
        return "\n".join(lines)

    def _what_separates(self) -> str:
        """Return the data, or the terms, that would separate confounded effects."""
        places = self.effects
        needs = [self._of_nested(f) for f in self.facets if self.nested_in[f]]
        last = places[-1] if places else None
        if last is not None and last.component == RESIDUAL:
            term = last.effect.term
            what = (
                f"(1|{in_formula(term)}) in the formula"
                if self.replicated
                else "several scores in a cell"
            )
            needs.append(f"{term} from error: {what}")
        absent = [place.effect.term for place in places if place.component is None]
        if absent:
            terms = " + ".join(f"(1|{in_formula(term)})" for term in absent)
            needs.append(f"{display.listed(absent)} from zero: {terms} in the formula")
        needs += [finding.rstrip(".") for finding in self.findings]
        if not needs:
            return ""
        lines = ["What would separate the effects that are confounded:"]
        for need in needs:
            lines += textwrap.wrap(need, _LINE, initial_indent="  ", subsequent_indent="    ")
        return "\n".join(lines)

    def _of_nested(self, facet: str) -> str:
        above = self.nested_in[facet]
        nearest = [f for f in self.facets if f in self.design.innermost(above)]
        whole = ":".join(f for f in self.design.outer_first if f in above | {facet})
        outer = display.listed(nearest)
        if facet in self.implicit:
            return f"{facet} from {whole}: the same levels of {facet} in several levels of {outer}"
        how = f"(1|{in_formula(facet)}) in the formula"
        if self.claim is not None:
            how = f"a design in which {facet} and {outer} are crossed"
        return (
            f"{facet} from {whole}: {how}, if equal labels are the same {facet} in several levels "
            f"of {outer}"
        )

    def _properties(self) -> list[str]:
        words = []
        if len(self.facets) == 1:
            words.append("one-way")
        elif self.partly_crossed:
            words.append("partly crossed")
        elif not any(self.nested_in.values()):
            words.append("fully crossed")
        elif not self.fully_crossed:
            words.append("nested")
        else:
            words.append("crossed and nested")
        words.append("balanced" if self.balanced else "unbalanced")
        if not self.connected:
            words.append(f"not connected ({self.n_parts:,} parts)")
        return words

    def cells(self) -> str:
        """Return how many scores a cell holds: ``1 a cell``, ``1 to 3 a cell (120 cells)``."""
        if self.cell_min == self.cell_max:
            return f"{self.cell_max} a cell"
        return f"{self.cell_min} to {self.cell_max} a cell ({self.n_cells:,} cells)"
