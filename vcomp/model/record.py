"""All that a result is made of: small values, no rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, Json
from vcomp.design import Design, Part, Structure
from vcomp.estimators import Estimate
from vcomp.estimators.quadratic import AnovaTable
from vcomp.exceptions import DataError
from vcomp.formula import REPLICATE, closure, object_key
from vcomp.inference import TwoWayMeanSquares, VarianceComponents
from vcomp.ir.rank import PairedDifferences
from vcomp.statistics import GroupSums, ScoreTable

__all__ = [
    "CellMeans",
    "FitRecord",
    "label",
    "two_way_mean_squares",
]


def label(
    design: Design, sums: GroupSums, estimate: Estimate, table: ScoreTable | None
) -> VarianceComponents:
    """Give the estimated components their facets, nesting, sizes and covariance."""
    structure = design.structure
    facets = tuple(
        closure(frozenset(term.facets), structure.nested_in) for term in design.formula.random
    )
    everything = frozenset(structure.facets)
    nested_in = dict(structure.nested_in)
    if structure.replicated and not _is_taken(structure):
        nested_in[REPLICATE] = everything
        everything |= {REPLICATE}
    facets = (*facets, everything)
    # Intervals from mean squares would not know of components that are held.
    mean_squares = None
    if table is not None and not estimate.held:
        mean_squares = two_way_mean_squares(structure, facets, table)
    return VarianceComponents(
        names=estimate.names,
        facets=facets,
        values=estimate.values,
        cov=next(iter(estimate.covariances.values())),
        nested_in=nested_in,
        sizes={f: n for f, n in structure.sizes.items() if f in everything},
        inverse_n=_inverse_n(sums, facets, estimate.names),
        mean_squares=mean_squares,
        held=estimate.held,
        without_bounds=estimate.without_bounds,
    )


def _is_taken(structure: Structure) -> bool:
    """Whether a column has the name of the facet of repeated scores: no D-study is possible."""
    return REPLICATE in structure.facets


def _inverse_n(
    sums: GroupSums, facets: tuple[frozenset[str], ...], names: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Return the exact 1/n of every component, where the groups of a term are the objects."""
    return {
        object_key(objects): dict(zip(names, inverse.tolist(), strict=True))
        for objects, inverse in zip(facets[:-1], sums.inverse_n, strict=True)
    }


def two_way_mean_squares(
    structure: Structure, facets: tuple[frozenset[str], ...], table: ScoreTable
) -> TwoWayMeanSquares | None:
    """Return the mean squares of the cell means, where they are what the intervals rest on.

    That needs two fully crossed facets, equal cells, and (where cells hold several scores) a term
    for their interaction: without one the model says that the cell means differ by error alone.
    """
    if not (structure.balanced and structure.fully_crossed):
        return None
    n_replicates = structure.cell_max
    if n_replicates > 1 and frozenset(structure.facets) not in facets[:-1]:
        return None
    means = table.sums / table.counts
    means = means - means.mean()
    n_rows, n_columns = means.shape
    rows, columns = means.mean(axis=1), means.mean(axis=0)
    rest = means - rows[:, None] - columns
    return TwoWayMeanSquares(
        rows=structure.facets[0],
        columns=structure.facets[1],
        n_rows=n_rows,
        n_columns=n_columns,
        ms_rows=float(n_columns * (rows @ rows) / (n_rows - 1)),
        ms_columns=float(n_rows * (columns @ columns) / (n_columns - 1)),
        ms_residual=float(np.square(rest).sum() / ((n_rows - 1) * (n_columns - 1))),
        n_replicates=n_replicates,
    )


@dataclass(frozen=True, slots=True)
class CellMeans:
    """Means and numbers of scores in the cells of two crossed facets.

    Attributes
    ----------
    facets : names of the rows' and the columns' facet
    levels : their levels as text
    means : (n_rows, n_columns) on the scale of the response, nan where a cell is empty
    counts : (n_rows, n_columns) scores in each cell
    """

    facets: tuple[str, str]
    levels: tuple[tuple[str, ...], tuple[str, ...]]
    means: FloatArray
    counts: FloatArray

    @classmethod
    def of(cls, design: Design, table: ScoreTable) -> CellMeans:
        """Return the cell means of a design with two facets."""
        first, second = design.facets
        with np.errstate(invalid="ignore"):
            means = np.where(table.counts > 0, table.sums / np.maximum(table.counts, 1), np.nan)
        return cls(
            facets=(first.name, second.name),
            levels=(tuple(map(str, first.levels)), tuple(map(str, second.levels))),
            means=means + design.origin,
            counts=table.counts,
        )

    def differences(self, system: str) -> PairedDifferences:
        """Return the paired differences between the levels of one facet over the other."""
        if system == self.facets[0]:
            return PairedDifferences.from_scores(self.means.T, self.levels[0])
        return PairedDifferences.from_scores(self.means, self.levels[1])

    def matrix(self, system: str) -> tuple[FloatArray, tuple[str, ...], tuple[str, ...]]:
        """Return the means, the levels of `system` across, and the names of rows and columns."""
        rows, columns = self.levels
        return (
            (self.means.T, columns, rows)
            if system == self.facets[0]
            else (self.means, rows, columns)
        )

    def to_json(self) -> Json:
        """Return plain lists and dicts; a count that is the same everywhere is stored once."""
        equal = np.ptp(self.counts) == 0
        return {
            "facets": list(self.facets),
            "levels": [list(names) for names in self.levels],
            "means": [[None if np.isnan(x) else float(x) for x in row] for row in self.means],
            "counts": float(self.counts.flat[0]) if equal else self.counts.astype(int).tolist(),
        }

    @classmethod
    def from_json(cls, stored: Json) -> CellMeans:
        """Return what :meth:`to_json` stored."""
        means = np.array(stored["means"], dtype=float)
        first, second = stored["levels"]
        return cls(
            facets=(stored["facets"][0], stored["facets"][1]),
            levels=(tuple(first), tuple(second)),
            means=means,
            counts=np.broadcast_to(np.array(stored["counts"], dtype=float), means.shape).copy(),
        )


_FORMAT = 2
_READABLE = (1, 2)
"""Format 1 had no held components, iterations and seconds."""


@dataclass(frozen=True, slots=True)
class FitRecord:
    """What a fit leaves behind; a few kilobytes that can be stored and loaded again.

    Attributes
    ----------
    formula : as given
    response : its left-hand side
    exog_names : columns of the fixed part
    structure : of the design
    estimate : components and fixed effects
    components : the components with their facets, for D-studies
    table : analysis of variance; None for a mean that is not one constant
    cells : cell means of two facets, None for other designs and where there are very many
    response_sums : mean of the response and sum of squares about it, which show whether another
        fit is of the same rows; None in files of older versions
    """

    formula: str
    response: str
    exog_names: tuple[str, ...]
    structure: Structure
    estimate: Estimate
    components: VarianceComponents
    table: AnovaTable | None
    cells: CellMeans | None
    response_sums: tuple[float, float] | None = None

    def to_json(self) -> Json:
        """Return plain lists and dicts, with the version of the format."""
        return {
            "vcomp": "VarianceComponentsResults",
            "format": _FORMAT,
            "formula": self.formula,
            "response": self.response,
            "exog_names": list(self.exog_names),
            "structure": _structure_to_json(self.structure),
            "estimate": self.estimate.to_json(),
            "components": self.components.to_json(),
            "table": None if self.table is None else _table_to_json(self.table),
            "cells": None if self.cells is None else self.cells.to_json(),
            "response_sums": None if self.response_sums is None else list(self.response_sums),
        }

    @classmethod
    def from_json(cls, stored: Any) -> FitRecord:
        """Return what :meth:`to_json` stored.

        Raises
        ------
        DataError
            If it is something else, or a newer version wrote it.
        """
        if not isinstance(stored, dict) or stored.get("vcomp") != "VarianceComponentsResults":
            raise DataError("this is not a result that vcomp stored (res.to_json())")
        if stored.get("format") not in _READABLE:
            raise DataError(
                f"the stored result has format {stored.get('format')!r}, and this version of "
                f"vcomp reads formats up to {_FORMAT}; load it with the version that wrote it"
            )
        try:
            return cls._from_plain(stored)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"the stored result is incomplete or damaged: {type(error).__name__} {error}"
            ) from None

    @classmethod
    def _from_plain(cls, stored: Json) -> FitRecord:
        table, cells = stored["table"], stored["cells"]
        sums = stored.get("response_sums")
        return cls(
            formula=stored["formula"],
            response=stored["response"],
            exog_names=tuple(stored["exog_names"]),
            structure=_structure_from_json(stored["structure"]),
            estimate=Estimate.from_json(stored["estimate"]),
            components=VarianceComponents.from_json(stored["components"]),
            table=None if table is None else _table_from_json(table),
            cells=None if cells is None else CellMeans.from_json(cells),
            response_sums=None if sums is None else (float(sums[0]), float(sums[1])),
        )


def _structure_to_json(structure: Structure) -> Json:
    plain: Json = {f.name: getattr(structure, f.name) for f in fields(structure)}
    plain["nested_in"] = {f: sorted(above) for f, above in structure.nested_in.items()}
    plain["terms"] = {t: list(effects) for t, effects in structure.terms.items()}
    plain["parts"] = [
        {"sizes": dict(part.sizes), "examples": {f: list(e) for f, e in part.examples.items()}}
        for part in structure.parts
    ]
    return plain


def _structure_from_json(stored: Json) -> Structure:
    plain = dict(stored)
    plain["nested_in"] = {f: frozenset(above) for f, above in stored["nested_in"].items()}
    plain["terms"] = {t: tuple(effects) for t, effects in stored["terms"].items()}
    for name in ("facets", "n_levels", "implicit"):
        plain[name] = tuple(stored[name])
    plain["findings"] = tuple(stored.get("findings", ()))
    for name in ("fully_crossed", "partly_crossed"):
        plain[name] = tuple((a, b) for a, b in stored[name])
    plain["parts"] = tuple(
        Part(part["sizes"], {f: tuple(names) for f, names in part["examples"].items()})
        for part in stored.get("parts", ())
    )
    return Structure(**plain)


def _table_to_json(table: AnovaTable) -> Json:
    return {
        "names": list(table.names),
        "df": table.df.tolist(),
        "sum_sq": table.sum_sq.tolist(),
        "expected": [[None if np.isnan(x) else float(x) for x in row] for row in table.expected],
    }


def _table_from_json(stored: Json) -> AnovaTable:
    return AnovaTable(
        names=tuple(stored["names"]),
        df=np.array(stored["df"], dtype=float),
        sum_sq=np.array(stored["sum_sq"], dtype=float),
        expected=np.array(stored["expected"], dtype=float),
    )
