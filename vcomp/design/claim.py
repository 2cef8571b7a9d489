"""A G-study's design as it is claimed, and data → the formula that these can support."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from vcomp.design.estimable import Estimable, Occurring, estimable_terms
from vcomp.design.structure import Structure
from vcomp.exceptions import DataError, FormulaError, PlanError, did_you_mean
from vcomp.formula import Formula, parse
from vcomp.io import Source
from vcomp.notation import Design, design_effects, parse_design
from vcomp.notation.formula import as_written, check_facets, formula_text

__all__ = ["Claim", "Supported", "read_claim"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A design in Brennan's notation, and the columns that it is claimed for.

    Attributes
    ----------
    design : as it is claimed
    columns : those of its facets, by the names that the design has for them; in the order in
        which a formula with all effects of the design names them
    response : as it stands in a formula
    widest : a term for each of the columns: what has to be read
    source : the data; None for variables of the calling scope
    """

    design: Design
    columns: Mapping[str, str]
    response: str
    widest: Formula
    source: Source | None

    def supported(self, occurring: Occurring) -> Supported:
        """Find out which effects of the design the data tell apart.

        Raises
        ------
        DesignError
            If the data contradict the design, or nothing of it can be estimated.
        """
        found = estimable_terms(self.design, occurring)
        return Supported(self.design, formula_text(self.response, found.terms), found)


@dataclass(frozen=True, slots=True)
class Supported:
    """What of a design the data can support.

    Attributes
    ----------
    design : as it is claimed
    formula : a random term for every effect that the data tell apart, with facets under the
        names that the design has for them
    estimable : which these are, and why others are not
    """

    design: Design
    formula: str
    estimable: Estimable

    def described(self, structure: Structure) -> Structure:
        """Return the structure of the formula with what only the design says.

        Parameters
        ----------
        structure : as the formula and the rows give it
        """
        known = replace(structure, claim=str(self.design), findings=self.estimable.findings)
        scores = self.estimable.scores
        return known if scores is None else known.with_scores_as(scores)

    def in_words(self) -> str | None:
        """Return what is confounded in these data, as a warning; None if nothing is."""
        findings = self.estimable.findings
        if not findings:
            return None
        return (
            f"these data cannot tell all effects of the design '{self.design}' apart. "
            f"{' '.join(findings)} The formula is '{self.formula}'"
        )


def read_claim(
    design: str,
    response: str,
    facets: Mapping[str, str] | None,
    opened: Callable[[], Source | None],
) -> Claim:
    """Read the design of a G-study, and find its columns.

    Parameters
    ----------
    design : in Brennan's notation
    response : the column of the scores, or an expression of Python
    facets : columns by the names that the design has for them
    opened : opens the data once the design was read; None for variables of the calling scope

    Raises
    ------
    PlanError
        If the design cannot be read, or `facets` does not fit it.
    FormulaError
        If the response is no text.
    DataError
        If the data cannot be opened, or a column is not there.
    """
    read = parse_design(design)
    check_facets(read)
    if not isinstance(response, str) or not response.strip():
        raise FormulaError(
            "the response is the name of the column of the scores, such as response='score', not "
            f"{response!r}"
        )
    columns = _columns(read, facets)
    source, left = opened(), response.strip()
    if source is not None:
        _check_columns(columns, left, source)
        left = as_written(left) if left in source.columns else left
    widest = parse(formula_text(left, [[column] for column in columns.values()]))
    return Claim(read, columns, left, widest, source)


def _in_order(design: Design) -> tuple[str, ...]:
    """Return the facets in the order in which the formula of all effects names them."""
    found = [[f for f in design.outer_first if f in e.facets] for e in design_effects(design)]
    return tuple(dict.fromkeys(f for facets in found for f in facets))


def _columns(design: Design, facets: Mapping[str, str] | None) -> dict[str, str]:
    """Return the column of every facet of the design."""
    if facets is not None and not isinstance(facets, Mapping):
        raise PlanError(
            "facets is a mapping from the names of the design to columns, such as "
            f"{{'p': 'person'}}, not {facets!r}"
        )
    given = dict(facets or {})
    for name, column in given.items():
        if name not in design.facets:
            swapped = column in design.facets
            hint = (
                f"; facets= has the names of the design first: {{{column!r}: {name!r}}}"
                if swapped
                else did_you_mean(name, design.facets)
            )
            raise PlanError(
                f"{name!r} is no facet of the design '{design}', which has "
                f"{', '.join(design.facets)}{hint}"
            )
        if not isinstance(column, str):
            raise PlanError(f"the column of facet {name!r} is a name, not {column!r}")
    columns = {f: given.get(f, f) for f in _in_order(design)}
    for facet, column in columns.items():
        others = [f for f, c in columns.items() if c == column and f != facet]
        if others:
            raise PlanError(
                f"the facets {facet!r} and {others[0]!r} are both column {column!r}; each facet "
                "has a column of its own"
            )
    return columns


def _check_columns(columns: Mapping[str, str], response: str, source: Source) -> None:
    """Refuse columns that are not there, with what facets= would have to say."""
    for facet, column in columns.items():
        if column in source.columns:
            continue
        missing = source.no_column(column)
        if facet != column:
            raise missing
        taken = {*columns.values(), response}
        start = [c for c in source.columns if c.startswith(facet) and c not in taken]
        meant = start[0] if len(start) == 1 else "…"
        raise DataError(f"{missing}; facets={{{facet!r}: {meant!r}}} says which one a facet is")
