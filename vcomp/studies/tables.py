"""Tables of measures side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.dstudy import DStudy
from vcomp.dstudy.requirement import Requirement
from vcomp.studies.plans import COEFFICIENTS, required_facet

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.studies.comparison import MeasureComparison

__all__ = ["components_table", "requirements", "side_by_side"]


def side_by_side(compared: MeasureComparison) -> pd.DataFrame:
    """Return a row a measure and plan.

    Parameters
    ----------
    compared : the measures
    """
    import pandas as pd

    frames = []
    for name, res in compared.results.items():
        study = compared.studies[name]
        table = study.table.reset_index(drop=True)
        sizes = list(study.plan.facets)
        shares = res.gstudy(compared.alpha)["percent"] / 100.0
        facet = required_facet(study, compared.target, compared.facet)
        first = {"measure": name, **compared.labels[name], "nobs": res.nobs}
        parts = [
            pd.DataFrame(first, index=table.index),
            table[sizes],
            pd.DataFrame({f"share({c})": x for c, x in shares.items()}, index=table.index),
            table.drop(columns=sizes),
        ]
        if facet is not None:
            parts.append(_required(study, compared.target, facet))
        frames.append(pd.concat(parts, axis=1))
    return pd.concat(frames, ignore_index=True)


def components_table(compared: MeasureComparison) -> pd.DataFrame:
    """Return a row a measure and component.

    Parameters
    ----------
    compared : the measures
    """
    import pandas as pd

    frames = []
    for name, res in compared.results.items():
        table = res.gstudy(compared.alpha)
        first = {"measure": name, **compared.labels[name], "component": table.index}
        frames.append(pd.concat([pd.DataFrame(first), table.reset_index(drop=True)], axis=1))
    return pd.concat(frames, ignore_index=True)


def requirements(study: DStudy, target: float, facet: str, coefficient: str) -> list[Requirement]:
    """Return the required size of a facet with the other sizes of every plan.

    Parameters
    ----------
    study : of the plans
    target : of the coefficient
    facet : whose size is required
    coefficient : ``"Erho2"`` or ``"Phi"``
    """
    plan = study.plan
    others = [k for k, f in enumerate(plan.facets) if f != facet]
    known: dict[tuple[float, ...], Requirement] = {}
    found = []
    for row in range(len(plan)):
        held = tuple(plan.sizes[row, others].tolist())
        if held not in known:
            known[held] = replace(study, plan=plan.alone(row)).required(target, coefficient, facet)
        found.append(known[held])
    return found


def _required(study: DStudy, target: float, facet: str) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {"facet": facet}
    for coefficient in COEFFICIENTS:
        found = requirements(study, target, facet, coefficient)
        for ending, attribute in (("", "n"), ("_low", "low"), ("_high", "high")):
            numbers = [float(getattr(r, attribute)) for r in found]
            columns[f"n_{coefficient}{ending}"] = _whole(numbers)
    return pd.DataFrame(columns, index=range(len(study.plan)))


def _whole(numbers: list[float]) -> Any:
    """Return whole numbers as such, where none is infinite or unknown."""
    values = np.array(numbers)
    return values.astype(np.int64) if all(map(math.isfinite, numbers)) else values
