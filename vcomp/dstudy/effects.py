"""The effects of a D-study: where each comes from, what divides it, and where it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vcomp.components import VarianceComponents
from vcomp.dstudy.plan import DStudyPlan
from vcomp.dstudy.project import composition, weights
from vcomp.uncertainty.taken import take_components

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["effects_table"]


def effects_table(
    components: VarianceComponents, plan: DStudyPlan, negative: str, row: int
) -> pd.DataFrame:
    """Return a row an effect of one plan; see :meth:`DStudy.effects`.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study
    negative : how negative components are taken, ``"zero"`` or ``"keep"``
    row : number of the plan

    References
    ----------
    Brennan (2001), Generalizability Theory, Tables 4.1 to 4.3: D-study variance components and
    the error variances and universe-score variance that they belong to.
    """
    import pandas as pd

    made, w = composition(components, plan), weights(components, plan)
    values = take_components(components, negative).values
    inverse = 1.0 / plan.sizes[row]
    rows = []
    place = {facet: k for k, facet in enumerate(plan.design.facets)}
    for effect in sorted(set(made.effects), key=lambda e: (len(e), sorted(place[f] for f in e))):
        parts = np.array([e == effect for e in made.effects])
        taken = np.where(parts, values, 0.0)
        divides = made.divides[parts][0]
        exact = None if plan.inverse_n is None else plan.inverse_n[row]
        n = 1.0 / (inverse[divides].prod() if exact is None else exact[parts][0])
        rows.append(
            {
                "effect": ":".join(f for f in plan.design.facets if f in effect),
                "components": " + ".join(
                    name for name, part in zip(components.names, parts, strict=True) if part
                ),
                "variance": float(taken.sum()),
                "n": n,
                "universe_var": float(w.universe[row] @ taken),
                "rel_err_var": float(w.relative[row] @ taken),
                "abs_err_var": float(w.absolute[row] @ taken),
            }
        )
    return pd.DataFrame(rows).set_index("effect")
