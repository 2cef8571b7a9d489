"""The effects of a design that data can estimate, and sentences on those that they confound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from vcomp._typing import IntArray
from vcomp.design import Grid, Structure, number_combinations
from vcomp.display import listed
from vcomp.exceptions import DesignError
from vcomp.formula import RESIDUAL, BrennanDesign, Effect, design_effects


@dataclass(frozen=True, slots=True, eq=False)
class Cooccurrence:
    """The combinations of levels that occur, by row or by cell.

    Attributes
    ----------
    n_levels : number of levels of each facet, all of which occur
    codes : (m,) level of each row or cell; a facet is left out if each of its levels occurs
        with every combination of the levels of all others
    n_rows : number of rows
    """

    n_levels: Mapping[str, int]
    codes: Mapping[str, IntArray]
    n_rows: int

    @classmethod
    def on_grid(
        cls, grid: Grid, positions: Mapping[str, int], n_levels: Mapping[str, int], n_rows: int
    ) -> Cooccurrence:
        """Return the combinations in rows that fill a grid, from the cells of its remainder.

        Parameters
        ----------
        positions : of the facets in the grid
        """
        levels = dict(zip(grid.rest, grid.levels, strict=True))
        codes = {f: levels[k] for f, k in positions.items() if k in levels}
        return cls(n_levels, codes, n_rows)


@dataclass(frozen=True, slots=True)
class Estimable:
    """The part of a design that can be estimated from these data.

    Attributes
    ----------
    claim : the design as claimed
    design : without facets that the data do not distinguish from others
    terms : the facets of each random term, outer ones first
    scores : the facet that distinguishes the scores of a cell, if there is one: it is part of the
        residual only
    findings : sentences on confounded effects, and how to separate them
    """

    claim: BrennanDesign
    design: BrennanDesign
    terms: tuple[tuple[str, ...], ...]
    scores: str | None
    findings: tuple[str, ...]

    def described(self, structure: Structure) -> Structure:
        """Return a structure with the claim, its findings and the facet of the scores.

        Parameters
        ----------
        structure : of the formula and the rows
        """
        known = replace(structure, claim=str(self.claim), findings=self.findings)
        return known if self.scores is None else known.with_scores_as(self.scores)


@dataclass(slots=True)
class _Groups:
    """Counts the groups of sets of facets, each set once.

    Parameters
    ----------
    codes, n_levels : as of :class:`Cooccurrence`
    """

    codes: Mapping[str, IntArray]
    n_levels: Mapping[str, int]
    known: dict[frozenset[str], tuple[IntArray, int]] = field(default_factory=dict)

    def count(self, facets: Iterable[str]) -> int:
        """Return the number of combinations of levels that occur; 1 without facets."""
        chosen = frozenset(facets)
        rest = chosen.intersection(self.codes)
        crossed = prod(self.n_levels[f] for f in chosen - rest)
        return crossed * (self._numbered(rest)[1] if rest else 1)

    def _numbered(self, facets: frozenset[str]) -> tuple[IntArray, int]:
        if facets not in self.known:
            *others, last = (f for f in self.codes if f in facets)
            column, size = self.codes[last], self.n_levels[last]
            if others:
                groups, n_groups = self._numbered(frozenset(others))
                keys, column = number_combinations(groups, n_groups, column, size)
                size = keys.size
            self.known[facets] = column, size
        return self.known[facets]


def estimable_terms(design: BrennanDesign, occurring: Cooccurrence) -> Estimable:
    """Return the effects of a design whose components these data can estimate.

    Parameters
    ----------
    design : that is claimed for the data
    occurring : combinations of levels in these data

    Raises
    ------
    DesignError
        If the data contradict the design (a crossed facet is nested, or nesting is reversed), or
        no effect can be distinguished from error.
    """
    codes = {f: occurring.codes[f] for f in design.facets if f in occurring.codes}
    groups = _Groups(codes, occurring.n_levels)
    _refuse_contradictions(design, groups)
    left, findings = _reduced(design, groups)
    if not left.facets:
        raise DesignError(
            f"every facet of '{design}' has one level only; a variance needs at least two"
        )
    effects = design_effects(left)
    holders: dict[object, tuple[Effect, ...]] = {}
    for effect in effects:
        n = groups.count(effect.facets)
        alike: object = (
            RESIDUAL if n == occurring.n_rows else _determined(left, effect.facets, groups)
        )
        holders[alike] = (*holders.get(alike, ()), effect)
    kept = [held[0].facets for alike, held in holders.items() if alike != RESIDUAL]
    if not kept:
        raise DesignError(
            f"the data have one score for each level of {left.facets[0]}, so no effect of "
            f"'{design}' can be distinguished from error; collect several scores of each level",
            column=left.facets[0],
        )
    for alike, held in holders.items():
        findings += _on_held(left, held, groups, in_residual=alike == RESIDUAL)
    order = left.outer_first
    unnamed = [f for f in left.facets if not any(f in facets for facets in kept)]
    return Estimable(
        claim=design,
        design=left,
        terms=tuple(tuple(f for f in order if f in facets) for facets in kept),
        scores=unnamed[0] if unnamed else None,
        findings=tuple(findings),
    )


def _determined(design: BrennanDesign, facets: frozenset[str], groups: _Groups) -> frozenset[str]:
    """Return the facets whose levels are determined by the groups of some facets."""
    n = groups.count(facets)
    return facets.union(
        *(c for f in design.facets if groups.count(facets | (c := design.closure({f}))) == n)
    )


# Contradictions ----------------------------------------------------------------------------------


def _refuse_contradictions(design: BrennanDesign, groups: _Groups) -> None:
    nested = _nested_all_the_same(design, groups)
    if nested:
        above = {f: set(a) for f, a in design.nested_in.items()}
        for inner, outer in nested:
            above[inner].add(outer)
        inner, outer = nested[0]
        raise DesignError(
            f"the design '{design}' says that {inner} and {outer} are crossed, but each level of "
            f"{inner} occurs with one level of {outer} only: {inner} is nested in {outer}, and "
            "the effects that crossing would separate are confounded. Write "
            f"'{BrennanDesign.of(design.facets, above)}', or collect scores of the same levels of "
            f"{inner} with several levels of {outer}",
            column=inner,
        )
    for inner in design.facets:
        outer_facets = design.nested_in[inner]
        nearest = design.innermost(outer_facets)
        n = groups.count(outer_facets)
        labels = groups.count([inner])
        if len(nearest) == 1 and groups.count({*outer_facets, inner}) == n and 1 < labels < n:
            (outer,) = nearest
            raise DesignError(
                f"the design '{design}' says that {inner} is nested in {outer}, but each level of "
                f"{outer} occurs with one level of {inner} only, and {inner} has fewer levels: "
                f"{outer} is nested in {inner}; write {outer}:{inner}",
                column=inner,
            )


def _nested_all_the_same(design: BrennanDesign, groups: _Groups) -> list[tuple[str, str]]:
    """Return pairs of facets that are crossed in the design but nested in the data."""
    pairs = []
    for inner in design.facets:
        above = design.nested_in[inner]
        inner_facets = above | {inner}
        n = groups.count(inner_facets)
        for outer in sorted(design.facets, key=lambda f: len(design.nested_in[f])):
            other = design.closure({outer})
            if outer in inner_facets or inner in other or groups.count(other) >= n:
                continue
            # If the outer facets of `inner` determine `outer`, the pair is found at one of them.
            by_those = groups.count(above | other) == groups.count(above)
            if groups.count(inner_facets | other) == n and not by_those:
                pairs.append((inner, outer))
    return pairs


# Facets that are left out ------------------------------------------------------------------------


def _reduced(design: BrennanDesign, groups: _Groups) -> tuple[BrennanDesign, list[str]]:
    """Return the design without redundant facets, and sentences on these."""
    findings: list[str] = []
    left = design
    while True:
        alone = next((f for f in left.facets if _is_alone(left, f, groups)), None)
        if alone is not None:
            findings.append(_on_alone(left, alone))
            left = _without(left, alone, frozenset())
            continue
        pair = _one_to_one(left, groups)
        if pair is None:
            return left, findings
        first, second = pair
        findings.append(
            f"Levels of {first} and {second} correspond one to one: the component {first} holds "
            f"{second} as well, and their interaction cannot be estimated; to separate them, "
            f"score the same levels of {first} with several levels of {second}."
        )
        left = _without(left, second, left.closure({first}))


def _is_alone(design: BrennanDesign, facet: str, groups: _Groups) -> bool:
    """Return whether a facet has one level, or one in each group of its outer facets."""
    above = design.nested_in[facet]
    return groups.count(above | {facet}) == groups.count(above)


def _on_alone(design: BrennanDesign, facet: str) -> str:
    above = design.nested_in[facet]
    if not above:
        return (
            f"{facet} has one level only: components without {facet} hold its interactions, and "
            f"the mean holds its effect; to separate them, use several levels of {facet}."
        )
    order = design.outer_first
    outer = ":".join(f for f in order if f in above)
    inner = ":".join(f for f in order if f in above | {facet})
    return (
        f"{facet} has one level in each level of {outer}: components of {outer} hold those of "
        f"{inner} as well; to separate them, use several levels of {facet} in some levels of "
        f"{outer}."
    )


def _one_to_one(design: BrennanDesign, groups: _Groups) -> tuple[str, str] | None:
    """Return two crossed facets whose levels determine each other, the outer one first."""
    by_depth = sorted(design.facets, key=lambda f: len(design.nested_in[f]))
    for place, first in enumerate(by_depth):
        closure = design.closure({first})
        for second in by_depth[place + 1 :]:
            other = design.closure({second})
            n = groups.count(closure | other)
            if groups.count(closure) == groups.count(other) == n:
                return first, second
    return None


def _without(design: BrennanDesign, facet: str, instead: frozenset[str]) -> BrennanDesign:
    """Return the design without a facet; facets nested in it are nested in others instead."""
    above = {
        f: (a - {facet}) | (instead if facet in a else frozenset())
        for f, a in design.nested_in.items()
        if f != facet
    }
    return BrennanDesign.of((f for f in design.facets if f != facet), above)


# Effects that are left out -----------------------------------------------------------------------


def _on_held(
    design: BrennanDesign, held: tuple[Effect, ...], groups: _Groups, *, in_residual: bool
) -> list[str]:
    """Return which effects are confounded with a smaller one, and how to separate them."""
    smallest, whole = held[0], frozenset(design.facets)
    component = RESIDUAL if in_residual else smallest.term
    names = [e.term for e in held if (e.facets != whole if in_residual else e != smallest)]
    if not names:
        return []
    missing = sorted(_determined(design, smallest.facets, groups) - smallest.facets)
    kind = "level" if len(smallest.facets) == 1 else "combination"
    own, other = listed(smallest.term.split(":")), listed(missing)
    sentence = (
        f"{component} holds {listed(names)} as well: each {kind} of {own} occurs with one level "
        f"of {other} only; to separate them, use several levels of {other} for some {kind}s of "
        f"{own}."
    )
    return [sentence]
