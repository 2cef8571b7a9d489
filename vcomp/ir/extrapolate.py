"""Curves of accuracy over the number of topics, fitted to halves and drawn out to larger tests.

References
----------
Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
statistical assumptions. *Information Retrieval Journal*, 19(3), 313-350. Section 4.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, EstimationError
from vcomp.ir.curve import (
    MODELS,
    NO_ERROR,
    SCALES,
    AccuracyCurve,
    Model,
    Scale,
    axis,
    choice,
    to_error,
)

__all__ = ["fit_curve"]

_MOST_STEPS = 100
_NEAR = 1e-13
"""Newton's method ends where no step is larger than this, relative to the linear predictor."""


def fit_curve(
    n_topics: ArrayLike,
    accuracy: ArrayLike,
    model: Model = "logit",
    *,
    scale: Scale = "correlation",
) -> AccuracyCurve:
    """Fit a curve of accuracy over the number of topics to observations of smaller tests.

    Parameters
    ----------
    n_topics : (m,) topics of each observation
    accuracy : (m,) its accuracy; nan is missing
    model : ``"exp1"`` and ``"exp2"`` by least squares on the logarithms of errors, those without
        error left out; ``"logit"`` by a generalised linear model with binomial errors. See
        :class:`AccuracyCurve`
    scale : ``"correlation"`` for τ and τ_AP, from -1 to 1; ``"share"`` for what lies between 0 and
        1 and grows with accuracy; ``"error"`` for what lies there and falls, as sensitivities do.
        Of these Urbano (2016) has the first and the last

    Returns
    -------
    AccuracyCurve

    Raises
    ------
    DataError
        If the two are not of one length, sizes are not positive, or an accuracy is outside of its
        scale.
    EstimationError
        If observations are of fewer than two sizes or fewer than three in all, those without error
        aside; for ``"logit"`` if none has an error, or all are wholly wrong; for the others if
        some have none and the rest are wholly wrong, as successes and failures.
    PlanError
        If `model` or `scale` is unknown.

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Eqs. 23 to 25.

    Examples
    --------
    >>> curve = fit_curve([5, 10, 20, 40], [0.5, 0.64, 0.76, 0.83])
    >>> curve.at(80.0).round(4)
    np.float64(0.8883)
    """
    choice("model", model, MODELS)
    choice("scale", scale, SCALES)
    n, e, n_missing = _observations(n_topics, accuracy, scale)
    if model == "logit":
        _enough(n)
        params, cov, dispersion = _binomial(np.log(n), e)
        return AccuracyCurve(model, scale, params, cov, dispersion, n.size, n_missing)
    kept = e > 0.0
    n_zero = int(e.size - kept.sum())
    _enough(n[kept], n_zero)
    if n_zero and (e[kept] == 1.0).all():
        raise EstimationError(
            f"{model} fits logarithms of errors: of {e.size} observations {n_zero} have none and "
            "are left out, and the others are wholly wrong; 'logit' fits both"
        )
    params, cov, dispersion = _least_squares(axis(model, n[kept]), np.log(e[kept]))
    return AccuracyCurve(model, scale, params, cov, dispersion, int(kept.sum()), n_missing, n_zero)


def _observations(
    n_topics: ArrayLike, accuracy: ArrayLike, scale: Scale
) -> tuple[FloatArray, FloatArray, int]:
    """Return sizes and errors of the observations that are there, and how many are not."""
    try:
        n, y = np.asarray(n_topics, dtype=float), np.asarray(accuracy, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(f"numbers of topics and accuracies must be numbers: {error}") from error
    if n.ndim != 1 or n.shape != y.shape:
        raise DataError(
            "n_topics and accuracy are two columns of one length; they have the shapes "
            f"{n.shape} and {y.shape}"
        )
    if not ((n > 0) & (n < np.inf)).all():
        wrong = n[~((n > 0) & (n < np.inf))][0]
        raise DataError(f"the number of topics of an observation must be positive, not {wrong}")
    known = ~np.isnan(y)
    n, y = n[known], y[known]
    low = -1.0 if scale == "correlation" else 0.0
    outside = (y < low - NO_ERROR) | (y > 1.0 + NO_ERROR)
    if outside.any():
        raise DataError(
            f"an accuracy is {display.number(y[outside][0])}, outside of "
            f"[{display.number(low)}, 1], where those of scale {scale!r} lie"
        )
    e = to_error(y, scale)
    e = np.where(e < NO_ERROR, 0.0, np.minimum(e, 1.0))
    return n, e, int(known.size - known.sum())


def _enough(n: FloatArray, n_zero: int = 0) -> None:
    """Refuse what no line can be drawn through."""
    sizes = np.unique(n).size
    if sizes >= 2 and n.size >= 3:
        return
    left_out = f" ({n_zero} without any error left out)" if n_zero else ""
    raise EstimationError(
        "a curve needs three observations or more, at two numbers of topics or more; there are "
        f"{n.size} at {sizes}{left_out}"
    )


def _least_squares(x: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return a and b of z = a + b x, their covariance matrix and the residual variance."""
    centre, level = x.mean(), z.mean()
    deviation = x - centre
    spread = float(deviation @ deviation)
    slope = float(deviation @ (z - level)) / spread
    residual = z - level - slope * deviation
    dispersion = float(residual @ residual) / (x.size - 2)
    cov = dispersion * _uncentred(1.0 / x.size, 1.0 / spread, centre)
    return np.array([level - slope * centre, slope]), cov, dispersion


def _uncentred(level: float, slope: float, centre: float) -> FloatArray:
    """Return the covariance matrix of a and b from the variances about the centre of x."""
    away = -centre * slope
    return np.array([[level - centre * away, away], [away, slope]])


def _binomial(x: FloatArray, e: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Return a and b of logit e = a + b x by maximum likelihood, covariance and dispersion.

    The likelihood depends on the observations of one size through their mean alone.
    """
    if e.sum() == 0.0 or (e == 1.0).all():
        which = "none has any error" if e.sum() == 0.0 else "all are wholly wrong"
        raise EstimationError(f"logit has no finite fit: of {e.size} observations {which}")
    sizes, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    centre = float(x.mean())
    means = np.bincount(place, e) / counts
    if _is_step(means) or _is_step(means[::-1]):
        raise EstimationError(
            "logit has no finite fit: observations lie between no error and wholly wrong at one "
            "number of topics at most"
        )
    params, mu, information = _newton(sizes - centre, means, counts.astype(float))
    mu = mu[place]
    dispersion = float(np.sum((e - mu) ** 2 / (mu * (1.0 - mu)))) / (x.size - 2)
    shift = np.array([[1.0, -centre], [0.0, 1.0]])
    cov = dispersion * shift @ np.linalg.solve(information, shift.T)
    return shift @ params, cov, dispersion


def _is_step(means: FloatArray) -> bool:
    """Whether means go from 0 to 1 with one of them between at most: then b has no estimate."""
    first = int(np.argmax(np.append(means > 0.0, True)))
    return bool((means[first + 1 :] == 1.0).all())


def _newton(
    x: FloatArray, means: FloatArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return parameters, fitted means and information of logit μ = a + b x.

    Parameters
    ----------
    x : (m,) sizes, centred
    means, counts : (m,) mean of the observations of each, and their number
    """
    from scipy.special import expit, logit

    design = np.column_stack([np.ones(x.size), x])
    params = np.array([logit(counts @ means / counts.sum()), 0.0])
    fit = _log_likelihood(design @ params, means, counts)
    for _ in range(_MOST_STEPS):
        mu = expit(design @ params)
        information = design.T @ (design * (counts * mu * (1.0 - mu))[:, None])
        step = np.linalg.solve(information, design.T @ (counts * (means - mu)))
        if np.abs(step).max() <= _NEAR * max(1.0, np.abs(params).max()):
            return params, mu, information
        # The likelihood is concave: a step too far is one that does not raise it.
        for _ in range(_MOST_STEPS):
            further = _log_likelihood(design @ (params + step), means, counts)
            if further >= fit - _NEAR * abs(fit):
                break
            step = step / 2.0
        params, fit = params + step, further
    raise EstimationError(f"logit was not fitted after {_MOST_STEPS} steps")


def _log_likelihood(line: FloatArray, means: FloatArray, counts: FloatArray) -> float:
    return float(counts @ (means * line - np.logaddexp(0.0, line)))
