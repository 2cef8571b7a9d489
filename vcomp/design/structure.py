"""How the facets stand to each other: a value, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Part", "Structure"]


@dataclass(frozen=True, slots=True)
class Part:
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


@dataclass(frozen=True, slots=True)
class Structure:
    """What the data say about the design; :meth:`report` says it in words.

    Attributes
    ----------
    facets : the grouping columns
    n_levels : the number of levels of each facet; of a nested facet the number of its units
        (combinations with the facets that it is nested in)
    nested_in : for each facet those that it is nested in: by its labels (each level occurs within
        one level of the other) or by the formula (``topic/doc``)
    implicit : the nested facets whose labels say so by themselves
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
    parts: tuple[Part, ...] = ()

    @property
    def replicated(self) -> bool:
        """Whether some cell holds several scores."""
        return self.cell_max > 1

    @property
    def connected(self) -> bool:
        """Whether all levels can be compared through the cells that they share."""
        return self.n_parts == 1

    def title(self) -> str:
        """Return the design in one line: ``30 sys × 50 topic, fully crossed, balanced``."""
        return f"{self._notation()}, {', '.join(self._properties())}"

    def report(self) -> str:
        """Return the design in words, with what each component holds."""
        lines = [self.title(), f"{self.n_rows:,} scores, {self.cells()}"]
        for facet in self.facets:
            above = self.nested_in[facet]
            if above:
                how = "by its labels" if facet in self.implicit else "as the formula says"
                lines.append(f"{facet} is nested in {_and(sorted(above))} ({how})")
        lines += [f"{a} and {b} are partly crossed" for a, b in self.partly_crossed]
        if not self.connected:
            lines.append(
                f"the design falls into {self.n_parts} parts that share no level: "
                "differences between levels of different parts cannot be told from differences "
                "between the parts"
            )
            lines += [f"  part {number}: {part}" for number, part in enumerate(self.parts, 1)]
            if self.n_parts > len(self.parts) > 0:
                lines.append(f"  and {self.n_parts - len(self.parts):,} more that are no larger")
        for term, effects in self.terms.items():
            if len(effects) > 1:
                lines.append(f"{term} holds {_and(effects)}, which cannot be told apart")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.report()

    def _notation(self) -> str:
        """Return Brennan's notation with the sizes: ``8 p × 4 a × (21 d : 6 i)``."""
        parts: list[str] = []
        done: set[str] = set()
        for facet in self.facets:
            if self.nested_in[facet] or facet in done:
                continue
            together = self._together(facet)
            done |= together
            parts.append(self._with_nested(tuple(f for f in self.facets if f in together)))
        text = " × ".join(parts)
        return _bare(text) if len(parts) == 1 else text

    def _together(self, facet: str) -> frozenset[str]:
        """Return the facet and those with which it is crossed where others are nested in both."""
        found = frozenset({facet})
        for above in map(self._innermost, self.facets):
            if facet in above and not any(self.nested_in[f] for f in above):
                found |= frozenset(above)
        return found

    def _with_nested(self, parents: tuple[str, ...]) -> str:
        """Return one facet, or several that are crossed, with those directly nested in them."""
        size = dict(zip(self.facets, self.n_levels, strict=True))
        own = " × ".join(f"{size[f]:,} {f}" for f in parents)
        own = own if len(parents) == 1 else f"({own})"
        inner = [f for f in self.facets if self._innermost(f)[:1] in [[p] for p in parents]]
        if not inner:
            return own
        nested = " × ".join(self._with_nested((f,)) for f in inner)
        within = f"({nested})" if len(inner) > 1 else _bare(nested)
        return f"({within} : {own})"

    def _innermost(self, facet: str) -> list[str]:
        above = self.nested_in[facet]
        outer = frozenset().union(*(self.nested_in[f] for f in above))
        return [f for f in self.facets if f in above - outer]

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
            words.append(f"not connected ({self.n_parts} parts)")
        return words

    def cells(self) -> str:
        """Return how many scores a cell holds: ``1 a cell``, ``1 to 3 a cell (120 cells)``."""
        if self.cell_min == self.cell_max:
            return f"{self.cell_max} a cell"
        return f"{self.cell_min} to {self.cell_max} a cell ({self.n_cells:,} cells)"


def _bare(text: str) -> str:
    """Return a text without the parentheses around all of it."""
    return text[1:-1] if text.startswith("(") else text


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
