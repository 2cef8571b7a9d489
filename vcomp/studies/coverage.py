"""How often the intervals of parts of the data hold what all of them say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import FloatArray
from vcomp.formula import REPLICATE
from vcomp.gtheory import two_way_plans, two_way_table
from vcomp.inference import TwoWayMeanSquares
from vcomp.inference.intervals import arteaga_interval, erho2_of, feldt_interval, phi_of

if TYPE_CHECKING:
    from vcomp.studies.subsample_result import SubsampleStudy

__all__ = [
    "covered",
]


_OF_ANOVA = ("anova", "type1", "henderson3")
_INTERVALS = {"Erho2": (feldt_interval, erho2_of), "Phi": (arteaga_interval, phi_of)}


def covered(study: SubsampleStudy, coefficient: str) -> FloatArray:
    """Return for each size the share of subsets whose interval holds the full coefficient.

    The intervals are those of F quantiles of the mean squares, which the components of a complete
    two-way table tell; nan where the components are not of that kind.

    Parameters
    ----------
    study : of the subsets
    coefficient : ``"Erho2"`` or ``"Phi"``
    """
    nothing = np.full(len(study.cells), np.nan)
    components, plan = study.dstudy.components, study.dstudy.plan
    table = two_way_table(components, plan)
    if table is None or study.results.method not in _OF_ANOVA:
        return nothing
    if not two_way_plans(table, plan)[0] or plan.objects != {table.rows}:
        return nothing
    n = plan.sizes[:, plan.facets.index(table.columns)]
    full = study.full(coefficient)
    interval, of = _INTERVALS[coefficient]
    held: dict[int, list[bool]] = {place: [] for place in range(len(study.cells))}
    made = study.replicates
    for number, values in zip(made.numbers[made.converged], made.values[made.converged],
                              strict=True):  # fmt: skip
        place = int(number) // study.trials
        part = _part(table, study, place, values)
        if part.ms_residual > 0.0 and part.ms_columns > 0.0:
            low, high = (of(end, n)[0] for end in interval(part, study.dstudy.alpha))
            held[place].append(bool(low <= full <= high))
    return np.array([np.mean(h) if h else np.nan for h in held.values()])


def _part(
    table: TwoWayMeanSquares, study: SubsampleStudy, place: int, values: FloatArray
) -> TwoWayMeanSquares:
    """Return the mean squares of a subset, of which its components are made."""
    drawn = dict(zip(study.facets, study.cells[place].tolist(), strict=True))
    n_rows = drawn.get(table.rows, table.n_rows)
    n_columns = drawn.get(table.columns, table.n_columns)
    both, by_facets = 0.0, {}
    for facets, value in zip(study.dstudy.components.facets, values.tolist(), strict=True):
        if facets >= {table.rows, table.columns}:
            both += value / (table.n_replicates if REPLICATE in facets else 1)
        else:
            by_facets[facets] = value
    return replace(
        table,
        n_rows=n_rows,
        n_columns=n_columns,
        ms_rows=both + n_columns * by_facets[frozenset({table.rows})],
        ms_columns=both + n_rows * by_facets[frozenset({table.columns})],
        ms_residual=both,
    )
