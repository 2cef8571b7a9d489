"""What a multivariate fit leaves behind: small values, no rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, Json
from vcomp.exceptions import DataError
from vcomp.multivariate.covariance_components import CovarianceComponents

__all__ = ["Ending", "FacetLink", "MultivariateRecord"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Ending:
    """How the iteration of a likelihood ended.

    Attributes
    ----------
    ranks : of the matrix of every term; one that is not full is a bound
    decrement : how far the maximum is, in standard errors
    kkt_residual : largest violation of the conditions of a maximum, without a unit
    iterations, evaluations : steps, and values of the likelihood
    information : what the standard errors are of, ``"observed"`` or ``"average"``
    """

    ranks: tuple[int, ...]
    decrement: float
    kkt_residual: float
    iterations: int
    evaluations: int
    information: str


@dataclass(frozen=True, slots=True)
class FacetLink:
    """Whether the variables share the levels of a facet.

    Attributes
    ----------
    kind : ``"linked"`` (•, all levels shared), ``"independent"`` (°, none) or
        ``"partly linked"``
    levels : numbers of levels in every variable
    shared : numbers that all variables share
    """

    kind: str
    levels: tuple[int, ...]
    shared: int


@dataclass(frozen=True, slots=True, eq=False)
class MultivariateRecord:
    """All that a result without rows knows.

    Attributes
    ----------
    formula : as given
    method : ``"reml"``, ``"ml"``, ``"anova"``, ``"type1"`` or ``"henderson3"``
    components : the estimates
    means : (v,) of the variables
    nobs : (v,) scores of each
    links : of every facet
    designs : of every variable in words
    llf : log-likelihood, nan for closed forms
    converged, status, engine : as of one variable
    notes : what a reader should know of the data
    ending : of likelihood methods, else None
    """

    formula: str
    method: str
    components: CovarianceComponents
    means: FloatArray
    nobs: tuple[int, ...]
    links: Mapping[str, FacetLink]
    designs: tuple[str, ...]
    llf: float
    converged: bool
    status: str
    engine: str
    notes: tuple[str, ...] = ()
    ending: Ending | None = field(default=None)

    def to_json(self) -> Json:
        """Return plain lists and dicts, with the version of the format."""
        return {
            "vcomp": "MultivariateResults",
            "format": _FORMAT,
            "formula": self.formula,
            "method": self.method,
            "components": self.components.to_json(),
            "means": self.means.tolist(),
            "nobs": list(self.nobs),
            "links": {f: [k.kind, list(k.levels), k.shared] for f, k in self.links.items()},
            "designs": list(self.designs),
            "llf": None if np.isnan(self.llf) else self.llf,
            "converged": self.converged,
            "status": self.status,
            "engine": self.engine,
            "notes": list(self.notes),
            "ending": None
            if self.ending is None
            else {name: getattr(self.ending, name) for name in Ending.__slots__},
        }

    @classmethod
    def from_json(cls, stored: Any) -> MultivariateRecord:
        """Return what :meth:`to_json` stored.

        Raises
        ------
        DataError
            If it is something else, damaged, or a newer version wrote it.
        """
        if not isinstance(stored, dict) or stored.get("vcomp") != "MultivariateResults":
            raise DataError("this is not a multivariate result that vcomp stored (res.to_json())")
        if stored.get("format") != _FORMAT:
            raise DataError(
                f"the stored result has format {stored.get('format')!r}, and this version of "
                f"vcomp reads format {_FORMAT}; load it with the version that wrote it"
            )
        try:
            return cls._from_plain(stored)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"the stored result is incomplete or damaged: {type(error).__name__} {error}"
            ) from None

    @classmethod
    def _from_plain(cls, stored: Json) -> MultivariateRecord:
        ending = stored["ending"]
        return cls(
            formula=stored["formula"],
            method=stored["method"],
            components=CovarianceComponents.from_json(stored["components"]),
            means=np.array(stored["means"], dtype=float),
            nobs=tuple(stored["nobs"]),
            links={
                f: FacetLink(kind, tuple(levels), shared)
                for f, (kind, levels, shared) in stored["links"].items()
            },
            designs=tuple(stored["designs"]),
            llf=np.nan if stored["llf"] is None else float(stored["llf"]),
            converged=stored["converged"],
            status=stored["status"],
            engine=stored["engine"],
            notes=tuple(stored["notes"]),
            ending=None
            if ending is None
            else Ending(**{**ending, "ranks": tuple(ending["ranks"])}),
        )
