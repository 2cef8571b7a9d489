"""What resampling the levels of a facet does to estimates, and how it is undone.

Of n levels drawn with replacement n − 1 are, so to speak, independent: a bootstrap over persons
makes σ²(p) and σ²(pi) too small and σ²(i) too large (Brennan, Harris & Hanson 1987; Wiley 2000;
Brennan 2001, sec. 6.2). The expectation over all resamples follows from the sums of squares. With
T_S the uncorrected sum of squares of the means of the groups that the facets S make, n_S the rows
of such a group, f the facet that is resampled within the facets o that it is nested in:

    E* T_S = T_S                                          f in S
    E* T_S = T_S + (n_u / n_S) (T_u − T_w)                else; w = S ∪ o, u = w ∪ {f}

since the sum of a group varies from resample to resample by what its n parts differ. In expected
values T_S is Σ_β (N n_{S∪β} / n_S) σ²_β, so that the expectation of the estimates is linear in the
estimates, E* σ²* = A σ². For p × i and persons that is Wiley's: (n − 1)/n for what holds p, and
σ²(i) + σ²(pi)/n. Adjusted are the estimates A⁻¹ σ²*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from vcomp._typing import FloatArray
from vcomp.components import VarianceComponents, closure
from vcomp.exceptions import EstimationError
from vcomp.linalg.dense import solve

__all__ = ["adjusted", "expectation"]


def expectation(components: VarianceComponents, facet: str) -> FloatArray:
    """Return A with E* σ²* = A σ² over all resamples of a facet, (k + 1, k + 1).

    For the analysis of variance of balanced data whose terms are all that the design has it holds
    for the data at hand; with fewer terms in expectation, under the model; and for unbalanced data
    it is an approximation, with harmonic means of the sizes.

    Parameters
    ----------
    components : whose facets, nesting and sizes are used, not their values
    facet : that is drawn, within the facets that it is nested in

    Raises
    ------
    EstimationError
        If a size is not known, or components cannot be told apart at these sizes.

    Examples
    --------
    >>> from vcomp.dstudy import from_components
    >>> g = from_components({"p": 1.0, "i": 1.0, "pi": 1.0}, sizes={"p": 10, "i": 4})
    >>> expectation(g.components, "p").round(3)
    array([[0.9, 0. , 0. ],
           [0. , 1. , 0.1],
           [0. , 0. , 0.9]])
    """
    sizes, nested_in = components.sizes, components.nested_in
    terms, everything = components.facets, components.facets[-1]
    unknown = sorted(everything - sizes.keys())
    if unknown:
        raise EstimationError(
            f"the adjustment needs the number of levels of every facet; that of {unknown[0]!r} "
            "is not known"
        )
    outer = closure(frozenset({facet}), nested_in) - {facet}
    rows = [*terms[:-1], everything, frozenset[str]()]
    expected = np.array([_coefficients(s, terms, sizes) for s in rows])
    added = np.zeros_like(expected)
    for row, s in enumerate(rows):
        if facet not in s:
            around = s | outer
            inside = around | {facet}
            share = _group_size(inside, everything, sizes) / _group_size(s, everything, sizes)
            added[row] = share * (
                _coefficients(inside, terms, sizes) - _coefficients(around, terms, sizes)
            )
    left, change = expected[:-1] - expected[-1], added[:-1] - added[-1]
    try:
        return np.eye(len(terms)) + solve(left, change)
    except np.linalg.LinAlgError:
        raise EstimationError(
            "components cannot be told apart at the sizes "
            + ", ".join(f"{f} {n:g}" for f, n in sizes.items())
            + "; adjust=False leaves the replicates as they are"
        ) from None


def adjusted(
    values: FloatArray, components: VarianceComponents, facets: Sequence[str]
) -> FloatArray:
    """Return replicates as they would be, in the mean, without the resampling's bias.

    Parameters
    ----------
    values : (B, k + 1) estimates; nan stays nan
    components : whose facets, nesting and sizes are used
    facets : in the order in which they were drawn

    Raises
    ------
    EstimationError
        As :func:`expectation` does.
    """
    whole = np.eye(len(components.names))
    for facet in facets:
        whole = expectation(components, facet) @ whole
    try:
        return solve(whole, values.T).T
    except np.linalg.LinAlgError:
        raise EstimationError(
            "nothing is left to adjust where a facet has one level: adjust=False leaves the "
            "replicates as they are"
        ) from None


def _coefficients(
    s: frozenset[str], terms: Sequence[frozenset[str]], sizes: Mapping[str, float]
) -> FloatArray:
    """Return those of the components in E T_S: N n_{S∪β} / n_S."""
    everything = terms[-1]
    n, n_s = _group_size(frozenset(), everything, sizes), _group_size(s, everything, sizes)
    return np.array([n * _group_size(s | t, everything, sizes) / n_s for t in terms])


def _group_size(
    s: frozenset[str], everything: frozenset[str], sizes: Mapping[str, float]
) -> float:
    """Return the rows of a group in which the facets S are fixed."""
    return float(prod(sizes[f] for f in everything - s))
