"""The certificate of a maximum, and the covariance matrices that follow from its information.

The last stage of a likelihood estimate; docs/explanation/mathematics.md, sections 6.2 to 6.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.estimate import Certificate
from vcomp.estimators.likelihood.engine import InformationKind, LikelihoodEngine
from vcomp.estimators.likelihood.maximisation import Maximum
from vcomp.exceptions import EstimationError

__all__ = [
    "Certified",
    "certify",
]


_FLAT = 1e-8
"""An eigenvalue below this, on a unit diagonal, is a flat direction: its standard error is over
10,000 times those of the single components."""

_SINGULAR = 1e-13
"""An eigenvalue below this is rounding error; the matrix is treated as singular."""


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate with the covariance matrices that go with it.

    Attributes
    ----------
    certificate : with ``at_maximum``
    covariances : (k + 1, k + 1) by kind of information, nan where a component is not free
    rises : a combination of components along which the likelihood rises; empty at a maximum
    without_bounds : if components are at zero, the estimates without bounds, eq. (6.3), and their
        covariance matrix; else None
    """

    certificate: Certificate
    covariances: dict[str, FloatArray]
    rises: str
    without_bounds: tuple[FloatArray, FloatArray] | None


def certify(
    likelihood: LikelihoodEngine, found: Maximum, names: tuple[str, ...], tol: float
) -> Certified:
    """Return the certificate of the end of an iteration, with covariance matrices.

    Parameters
    ----------
    likelihood : the engine
    found : the end of the iteration
    names : the components, the residual last
    tol : the requested tolerance
    """
    informations = _informations(likelihood, found.v)
    kind = next(iter(informations))
    free = (found.v > 0.0) & ~found.held
    bounded = (found.v == 0.0) & ~found.held
    free_names = _chosen(names, free)
    values, vectors = _eigen(informations[kind][np.ix_(free, free)])
    rises = _directions(free_names, vectors[:, values < -_FLAT])
    flat = _directions(free_names, vectors[:, np.abs(values) <= _FLAT])
    certificate = Certificate(
        free=free_names,
        bounded=_chosen(names, bounded),
        bound_scores={n: float(found.score[names.index(n)]) for n in _chosen(names, bounded)},
        kkt_residual=found.kkt_residual,
        newton_decrement=found.newton_decrement,
        information_eigenvalues=tuple(float(e) for e in values),
        iterations=found.iterations,
        evaluations=found.evaluations,
        at_maximum=found.converged and not rises,
        held=_chosen(names, found.held),
        information=kind,
        flat=flat,
        tolerance=float(tol),
        engine=likelihood.name,
        reason=likelihood.reason,
    )
    covariances = {kind: _covariance(matrix, free) for kind, matrix in informations.items()}
    unbounded = _without_bounds(likelihood, found) if bounded.any() else None
    return Certified(certificate, covariances, rises[0] if rises else "", unbounded)


def _without_bounds(
    likelihood: LikelihoodEngine, found: Maximum
) -> tuple[FloatArray, FloatArray] | None:
    """Return estimates without bounds: one step of Fisher's scoring from the maximum, eq. (6.3).

    For balanced data the step ends at the estimates of the analysis of variance, whatever its
    start. None if the information is singular or does not fit into memory.
    """
    kind: InformationKind = "expected" if "expected" in likelihood.kinds else "average"
    estimated = ~found.held
    try:
        information = likelihood.information(found.v, kind)
    except EstimationError:
        return None
    cov = _covariance(information, estimated)
    if np.isnan(cov[np.ix_(estimated, estimated)]).any():
        return None
    values = found.v.copy()
    values[estimated] += cov[np.ix_(estimated, estimated)] @ found.score[estimated]
    return values, cov


def _informations(likelihood: LikelihoodEngine, v: FloatArray) -> dict[str, FloatArray]:
    """Return the information matrices that the engine has, the one for standard errors first."""
    average = likelihood.information(v, "average")
    if "observed" not in likelihood.kinds:
        return {"average": average}
    observed = likelihood.information(v, "observed", positive_only=True)
    return {"observed": observed, "expected": 2.0 * average - observed, "average": average}


def _chosen(names: tuple[str, ...], which: BoolArray) -> tuple[str, ...]:
    return tuple(name for name, chosen in zip(names, which, strict=True) if chosen)


def _eigen(information: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues on a unit diagonal, and eigenvectors on the scale of the components."""
    scale = _unit(information)
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    return values, vectors / scale[:, None]


def _unit(information: FloatArray) -> FloatArray:
    scale = np.sqrt(np.abs(np.diagonal(information)))
    return np.where(scale > 0.0, scale, 1.0)


def _directions(names: tuple[str, ...], vectors: FloatArray) -> tuple[str, ...]:
    """Return combinations of components as text, such as σ²(a) − 0.5 σ²(b)."""
    found = []
    for vector in vectors.T:
        parts = vector / vector[np.argmax(np.abs(vector))]
        text = ""
        for name, part in zip(names, parts, strict=True):
            if abs(part) < 1e-3:
                continue
            sign = "−" if part < 0.0 else "+"
            size = display.number(abs(float(part)), 2)
            term = f"σ²({name})" if size == "1" else f"{size} σ²({name})"
            text += f" {sign} {term}" if text else (f"−{term}" if part < 0.0 else term)
        found.append(text)
    return tuple(found)


def _covariance(information: FloatArray, free: BoolArray) -> FloatArray:
    """Return the inverse on the free components; nan elsewhere, and if not positive definite."""
    covariance = np.full_like(information, np.nan)
    block = information[np.ix_(free, free)]
    scale = np.sqrt(np.abs(np.diagonal(block)))
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = block / np.outer(scale, scale)
    if scaled.size and np.isfinite(scaled).all() and np.linalg.eigvalsh(scaled)[0] > _SINGULAR:
        covariance[np.ix_(free, free)] = np.linalg.inv(scaled) / np.outer(scale, scale)
    return covariance
