"""What scores are made of: effects of systems and topics, residuals, and their correlations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray

_LEAST_EIGENVALUE = 1e-8
"""Smallest eigenvalue of a covariance matrix, relative to its largest: as R's ``nearPD``."""


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """X_st = μ + ν_s + ν_t + e_st (Urbano, 2016, eqs. 7, 43 and 44).

    Attributes
    ----------
    mean : μ
    systems : (n_systems,) ν_s
    topics : (n_topics,) ν_t
    residuals : (n_topics, n_systems) e
    """

    mean: float
    systems: FloatArray
    topics: FloatArray
    residuals: FloatArray

    def pooled(self) -> Effects:
        """Return the effects with residuals of one variance, the mean of those of systems."""
        sd = self.residuals.std(axis=0, ddof=1)
        scaled = self.residuals / sd * np.sqrt(np.mean(sd**2))
        return Effects(self.mean, self.systems, self.topics, scaled)

    def covariance(self) -> FloatArray:
        """Return the covariance of topic effects, first, and the residuals of systems."""
        columns = np.column_stack([self.topics, self.residuals])
        return np.asarray(np.cov(columns, rowvar=False))


def decompose(X: FloatArray) -> Effects:
    """Return the effects of a topic × system matrix.

    Examples
    --------
    >>> decompose(np.array([[1.0, 2.0], [3.0, 6.0]])).topics
    array([-1.5,  1.5])
    """
    mean = float(X.mean())
    rest = X - mean
    systems = rest.mean(axis=0)
    rest = rest - systems
    topics = rest.mean(axis=1)
    return Effects(mean, systems, topics, rest - topics[:, None])


def normal_scores(X: FloatArray) -> FloatArray:
    """Return Φ⁻¹(rank / (n + 1)) of each column; ties share the mean of their ranks."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    return np.asarray(ndtri(rankdata(X, axis=0) / (len(X) + 1.0)))


def correlation_factor(covariance: FloatArray) -> FloatArray:
    """Return the Cholesky factor L of a correlation matrix, R = LL'.

    The covariance is singular as a rule: residuals add up to zero, and there may be fewer topics
    than systems. So its eigenvalues are raised to 1e-8 of the largest, and the variances are then
    set back, as ``Matrix::nearPD`` does for Urbano (2016).

    Parameters
    ----------
    covariance : (k, k), its variances positive

    Examples
    --------
    >>> correlation_factor(np.array([[4.0, 1.0], [1.0, 1.0]])).round(4)
    array([[1.   , 0.   ],
           [0.5  , 0.866]])
    """
    values, vectors = np.linalg.eigh(covariance)
    raised = (vectors * np.maximum(values, _LEAST_EIGENVALUE * values[-1])) @ vectors.T
    sd = np.sqrt(np.diag(raised))
    return np.asarray(np.linalg.cholesky(raised / np.outer(sd, sd)))
