"""Facets, nesting and covariance matrix of published components, as they are given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.formula import REPLICATE, RESIDUAL

_SEPARATOR = re.compile(r"\s*[:×*,]\s*|\s+[xX]\s+")
_ERROR_SUFFIX = re.compile(r"\s*,\s*e$")


def terms_of(names: Sequence[str], *, replicated: bool = False) -> list[frozenset[str]]:
    """Return the facets of each component.

    Parameters
    ----------
    replicated : whether cells hold several scores; they do if another component than the residual
        has all facets
    names : ``"p:i"``, ``"p x i"``, ``"p*i"``, ``"p,i"``, or ``"pi"`` where each letter is a facet;
        ``"Residual"``

    Raises
    ------
    PlanError
        If a name cannot be read, names a facet twice, or has the facets of another one; or no
        component has all facets.

    Examples
    --------
    >>> [sorted(term) for term in terms_of(["p", "i:p", "Residual"])]
    [['p'], ['i', 'p'], ['i', 'p', 'replicate']]
    """
    parts = {name: _parts(name, names) for name in names}
    written = [p for name in names for p in parts[name]]
    letters = frozenset(p for p in written if len(p) == 1)
    terms: dict[str, frozenset[str]] = {}
    for name in names:
        facets = [f for p in parts[name] for f in (p if set(p) <= letters else [p])]
        twice = [f for f in facets if facets.count(f) > 1]
        if twice:
            raise PlanError(
                f"component {name!r} names facet {twice[0]!r} twice", term=name, column=twice[0]
            )
        terms[name] = frozenset(facets)
    everything = frozenset().union(*terms.values())
    if not everything:
        raise PlanError("no component names a facet; the residual alone has no D-study")
    replicated = replicated or any(term == everything for term in terms.values())
    for name in names:
        if not parts[name]:
            terms[name] = everything | {REPLICATE} if replicated else everything
    for k, name in enumerate(names):
        same = [other for other in names[:k] if terms[other] == terms[name]]
        if same:
            raise PlanError(f"components {same[0]!r} and {name!r} have the same facets")
    if not {everything, everything | {REPLICATE}}.intersection(terms.values()):
        raise PlanError(
            f"no component has all facets ({', '.join(sorted(everything))}): the residual is "
            f"missing, or a name is not read as meant. Write {RESIDUAL!r} for the residual, and "
            "colons between facets, as in 'p:i'"
        )
    return [terms[name] for name in names]


def _parts(name: str, names: Sequence[str]) -> list[str]:
    """Return the parts of a component's name, none for the residual."""
    if not isinstance(name, str):
        raise PlanError(f"components are named by text such as 'p:i', not {name!r}")
    text = name.strip()
    if text.lower() == RESIDUAL.lower():
        return []
    if "e" not in names:
        text = _ERROR_SUFFIX.sub("", text)
    parts = _SEPARATOR.split(text.replace("(", "").replace(")", ""))
    if not all(parts) or any(re.search(r"\s", p) for p in parts):
        raise PlanError(
            f"cannot read component {name!r}; write colons between facets, as 'p:i'", term=name
        )
    return parts


def nesting_of(terms: Sequence[frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the facets in which each facet is nested: those without which it never occurs.

    Parameters
    ----------
    terms : the facets of each component

    Raises
    ------
    PlanError
        If two facets always occur together.

    Examples
    --------
    >>> nesting_of([frozenset("p"), frozenset("pi")])
    {'i': frozenset({'p'}), 'p': frozenset()}
    """
    facets = sorted(frozenset().union(*terms))
    nested_in = {f: frozenset.intersection(*(t for t in terms if f in t)) - {f} for f in facets}
    for facet, above in nested_in.items():
        for other in sorted(above):
            if facet in nested_in[other]:
                raise PlanError(
                    f"{facet!r} and {other!r} always occur together, so it is not clear which "
                    "is nested in which; add a component of the outer one, as 0 if it is not known"
                )
    return nested_in


def covariance_of(cov: Any, names: list[str]) -> FloatArray:
    """Return a covariance matrix of components in the order of their names.

    Raises
    ------
    PlanError
        If it is not one, or has other components.
    """
    k = len(names)
    labels = getattr(cov, "columns", None)
    if labels is not None:
        strange = sorted(set(names).symmetric_difference(labels), key=str)
        if strange or set(cov.index) != set(names):
            raise PlanError(f"cov must have the components {names} as rows and columns")
        cov = cov.loc[names, names].to_numpy()
    try:
        matrix = np.asarray(cov, dtype=float)
    except (TypeError, ValueError):
        raise PlanError(f"cov is a matrix of numbers or a frame, not {cov!r}") from None
    if matrix.shape != (k, k):
        raise PlanError(f"cov must be {k} × {k}, one row a component, not of shape {matrix.shape}")
    if np.isinf(matrix).any() or not np.allclose(matrix, matrix.T, equal_nan=True):
        raise PlanError("cov must be symmetric, and finite or nan")
    if (np.diagonal(matrix) < 0).any():
        at = names[int(np.flatnonzero(np.diagonal(matrix) < 0)[0])]
        raise PlanError(f"cov has a negative variance for component {at!r}", term=at)
    known = ~np.isnan(np.diagonal(matrix))
    inside = matrix[np.ix_(known, known)]
    scale = np.sqrt(np.diagonal(inside))
    scale[scale == 0.0] = 1.0
    # Test the correlations, as variances of components may differ by many orders of magnitude.
    if known.any() and np.linalg.eigvalsh(inside / np.outer(scale, scale))[0] < -1e-8:
        raise PlanError("cov is not a covariance matrix: some combination has a negative variance")
    return matrix
