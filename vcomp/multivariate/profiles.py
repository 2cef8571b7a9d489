"""Profiles: the universe scores of an object in all variables at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError, PlanError, did_you_mean
from vcomp.multivariate.covariance_components import CovarianceComponents
from vcomp.multivariate.layout import Layout
from vcomp.multivariate.matrices import positive_part
from vcomp.multivariate.plans import own_matrices

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["object_term", "optimal_weights", "predicted_profiles", "profile_variability"]


def object_term(g: CovarianceComponents, object_: str | None) -> str:
    """Return the object of measurement, the first facet if it is not named.

    Raises
    ------
    PlanError
        If there is no such facet, it has no term of its own, or variables do not share its levels.
    """
    facets = tuple(dict.fromkeys(f for name in g.names[:-1] for f in name.split(":")))
    name = facets[0] if object_ is None else object_
    if name not in facets:
        raise PlanError(
            f"unknown facet {name!r}{did_you_mean(name, facets)}; the G-study has "
            f"{', '.join(facets)}"
        )
    if name not in g.names:
        raise PlanError(f"the model has no term (1|{name}), so nothing tells its levels apart")
    if not g.linked[g.place(name)].all():
        raise PlanError(
            f"the variables do not all share levels of {name!r}, which therefore have no profiles"
        )
    return name


def predicted_profiles(
    layout: Layout, g: CovarianceComponents, object_: str, means: FloatArray
) -> pd.DataFrame:
    """Return the regressed universe scores of every object, with standard errors.

    With x̄ the object's mean scores in the variables that it has, Σ the object's matrix and Δ that
    of the relative errors of these means,

        μ̂_p = μ + Σ(Σ + Δ)⁻¹(x̄_p − μ),    Var(μ̂_p − μ_p) = Σ − Σ(Σ + Δ)⁻¹Σ.

    Parameters
    ----------
    layout : of the scores
    g : the components
    object_ : facet that is measured
    means : (v,) of the variables
    """
    import pandas as pd

    term = g.place(object_)
    S = positive_part(g.known[term])
    n = layout.counts[term]
    error = np.zeros((layout.sizes[term], g.n_variables, g.n_variables))
    for t, facets in enumerate(g.facets):
        if object_ in facets and t != term:
            error += g.known[t] * layout.shares(term, t)
    sums = np.bincount(
        layout.groups[term].astype(np.int64) * g.n_variables + layout.scores.variable,
        weights=layout.y,
        minlength=n.size,
    ).reshape(n.shape)
    rows = []
    index = layout.scores.levels[layout.scores.facets.index(object_)]
    for p, level in enumerate(index):
        has = np.flatnonzero(n[p] > 0.0)
        deviation = sums[p, has] / n[p, has]
        total = S[np.ix_(has, has)] + error[p][np.ix_(has, has)]
        try:
            weights = np.linalg.solve(total, S[has]).T
        except np.linalg.LinAlgError:
            weights = S[:, has] @ np.linalg.pinv(total, hermitian=True)
        variance = np.diagonal(S - weights @ S[has])
        estimate = means + weights @ deviation
        for a, name in enumerate(g.variables):
            observed = means[a] + sums[p, a] / n[p, a] if n[p, a] > 0.0 else np.nan
            se = float(np.sqrt(max(float(variance[a]), 0.0)))
            rows.append((level, name, int(n[p, a]), observed, float(estimate[a]), se))
    columns = [object_, "variable", "n", "mean", "universe_score", "se"]
    return pd.DataFrame(rows, columns=columns)


def profile_variability(
    g: CovarianceComponents, object_: str, means: FloatArray
) -> dict[str, float]:
    """Return how far the scores of one object lie apart, expected, and how reliably.

    The expected variance of the v scores of one object about their mean, of universe scores and of
    observed means, and their ratio G(V). They are small where profiles are flat.

    Parameters
    ----------
    g : the components
    object_ : facet that is measured
    means : (v,) of the variables
    """
    universe, relative, _ = own_matrices(g, object_)
    spread = float(np.square(means - means.mean()).mean())

    def within(S: FloatArray) -> float:
        return float(np.diagonal(S).mean() - S.mean()) + spread

    observed = within(universe + relative)
    true = within(universe)
    ratio = true / observed if observed > 0.0 else np.nan
    return {"universe": true, "observed": observed, "reliability": ratio}


def optimal_weights(g: CovarianceComponents, object_: str) -> FloatArray:
    """Return the weights of the composite with the largest Eρ², (v,), adding up to one.

    They maximise w'Σw / w'(Σ + Δ)w: the first eigenvector of (Σ + Δ)⁻¹Σ.

    Parameters
    ----------
    g : the components
    object_ : facet that is measured

    Raises
    ------
    EstimationError
        If the errors and universe scores together have no positive definite matrix.
    """
    from scipy.linalg import eigh

    universe, relative, _ = own_matrices(g, object_)
    scale = np.sqrt(np.maximum(np.diagonal(universe + relative), 1e-300))
    units = np.outer(scale, scale)
    try:
        _, vectors = eigh(universe / units, (universe + relative) / units)
    except np.linalg.LinAlgError:
        raise EstimationError(
            "the matrix of observed scores is not positive definite, so no weights are best; "
            "use method='reml'"
        ) from None
    w: FloatArray = vectors[:, -1] / scale
    total = float(w.sum())
    if abs(total) > 1e-8 * float(np.abs(w).sum()):
        return w / total
    return w / float(np.abs(w).sum())
