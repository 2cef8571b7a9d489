"""A G-study's design as it is claimed, and rows → the formula that these rows can support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcomp.design.estimable import Estimable, estimable_terms
from vcomp.design.rows import Missing, Rows, select_rows
from vcomp.design.structure import Structure
from vcomp.exceptions import DataError, FormulaError, PlanError, did_you_mean
from vcomp.formula import parse
from vcomp.io import Source, open_source
from vcomp.notation import Design, parse_design
from vcomp.notation.formula import as_written, check_facets, formula_text

__all__ = ["Claim", "read_claim"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A design in Brennan's notation, with the rows and what of it they can support.

    Attributes
    ----------
    design : as it is claimed
    rows : complete ones, with facets under the names that the design has for them
    formula : a random term for every effect that these rows tell apart
    estimable : which these are, and why others are not
    """

    design: Design
    rows: Rows
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
        """Return what is confounded in these rows, as a warning; None if nothing is."""
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
    data: Any,
    facets: Mapping[str, str] | None,
    environment: Any,
    missing: Missing,
) -> Claim:
    """Read the rows of a G-study and find out which effects of its design they tell apart.

    Parameters
    ----------
    design : in Brennan's notation
    response : the column of the scores, or an expression of Python
    data : any container that :func:`vcomp.io.open_source` opens, or None for variables of
        `environment`
    facets : columns by the names that the design has for them
    environment : patsy's ``EvalEnvironment`` of the caller
    missing : ``"drop"`` rows with a missing value and warn, or ``"raise"``

    Raises
    ------
    PlanError
        If the design cannot be read, or `facets` does not fit it.
    FormulaError
        If the response is no text.
    DataError
        If a column is not there, or holds what it cannot.
    DesignError
        If the data contradict the design, or nothing of it can be estimated.
    """
    read = parse_design(design)
    check_facets(read)
    if not isinstance(response, str) or not response.strip():
        raise FormulaError(
            "the response is the name of the column of the scores, such as response='score', not "
            f"{response!r}"
        )
    columns = _columns(read, facets)
    # Opened once: a stream cannot be opened again.
    source = None if data is None else open_source(data)
    left = response.strip()
    if source is not None:
        _check_columns(columns, left, source)
        left = as_written(left) if left in source.columns else left
    widest = parse(formula_text(left, [[column] for column in columns.values()]))
    rows = select_rows(widest, source, environment, missing)
    renamed = {f: rows.facets[column].rename(f) for f, column in columns.items()}
    codes = {f: np.asarray(c.cat.codes, dtype=np.int32) for f, c in renamed.items()}
    n_levels = {f: len(c.cat.categories) for f, c in renamed.items()}
    estimable = estimable_terms(read, codes, n_levels)
    used = dict.fromkeys(f for facets_of in estimable.terms for f in facets_of)
    return Claim(
        design=read,
        rows=replace(rows, facets={f: renamed[f] for f in used}),
        formula=formula_text(left, estimable.terms),
        estimable=estimable,
    )


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
    columns = {f: given.get(f, f) for f in design.facets}
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
