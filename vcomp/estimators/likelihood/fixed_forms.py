"""Forms of X in V⁻¹: the covariance of the fixed effects and its derivatives.

With Φ = (X'V⁻¹X)⁻¹ the derivative of Cov(β̂) by a component is

    ∂Φ/∂σ²_t = Φ G_t Φ,   G_t = X'V⁻¹V_t V⁻¹X

which Satterthwaite's degrees of freedom need (Giesbrecht & Burns 1985; docs/explanation/
mathematics.md, eq. (11.5)). Kenward and Roger (1997) also need Q_tu = X'V⁻¹V_t V⁻¹V_u V⁻¹X, eq.
(11.6). In Henderson's equations both follow from Z_t'V⁻¹X, the solutions for the columns of X.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.likelihood.blocked_covariance import last_form, with_residual_forms
from vcomp.estimators.likelihood.engine import FixedForms
from vcomp.estimators.likelihood.equations import Point

__all__ = [
    "forms_of_point",
    "forms_with_residual",
]


def forms_with_residual(
    gram: FloatArray, cov_beta: FloatArray, rows: list[FloatArray], v: FloatArray
) -> FixedForms:
    """Return the first forms from Z_t'V⁻¹X of every term.

    Parameters
    ----------
    gram, cov_beta : (p, p) X'V⁻¹X and its inverse
    rows : for each term (q_t, p)
    v : (k + 1,) components, the residual last
    """
    first = np.array([r.T @ r for r in rows]).reshape(len(rows), *gram.shape)
    return FixedForms(cov_beta, np.concatenate([first, [last_form(gram, first, v)]]))


def forms_of_point(point: Point, *, second: bool) -> FixedForms:
    """Return the forms from Henderson's equations, factored at one point.

    The second forms cost a solution for p columns for each term.
    """
    stats, tables, k = point.stats, point.equations.tables, point.stats.n_terms
    gram = point.fixed.matrix() / point.residual
    rows = _projected(point, list(stats.ZX))
    found = forms_with_residual(gram, point.residual * point.fixed.inverse(), rows, point.v)
    if not second:
        return found
    forms = np.empty((k, k, *gram.shape))
    for u, r in enumerate(rows):
        solved = _projected(point, [tables.times(t, u, r) for t in range(k)])
        for t, s in enumerate(solved):
            forms[t, u] = rows[t].T @ s
    # The two halves are the same numbers but for rounding.
    forms = 0.5 * (forms + forms.transpose(1, 0, 3, 2))
    return replace(found, second=with_residual_forms(forms, found.first[:-1], gram, point.v))


def _projected(point: Point, sums: list[FloatArray]) -> list[FloatArray]:
    """Return Z_t'V⁻¹b of every term, from Z_t'b of all."""
    return point.projected(sums, point.solve(point.stacked(sums)))
