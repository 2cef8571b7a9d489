"""All that a result is made of: small values, no rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from vcomp._typing import Json
from vcomp.components import VarianceComponents
from vcomp.design import Structure
from vcomp.design.structure import Part
from vcomp.estimators import Estimate
from vcomp.estimators.anova import AnovaTable
from vcomp.exceptions import DataError
from vcomp.results.scores import CellMeans

__all__ = ["FitRecord"]

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
    response_sums : mean of the response and sum of squares about it, which tell whether another
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
