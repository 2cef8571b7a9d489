"""Likelihoods whose maximum has no residual variance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vcomp.estimators.estimate import Estimate
from vcomp.estimators.likelihood.engine import LikelihoodEngine
from vcomp.estimators.options import Known
from vcomp.exceptions import EstimationError
from vcomp.statistics import Statistics

_SAME = 1e-6
"""Relative difference of log-likelihoods at which a model without a residual is as likely."""


def check_weights(
    stats: Statistics,
    names: tuple[str, ...],
    llf: float,
    estimate: Callable[[Statistics, tuple[str, ...]], Estimate | None],
) -> None:
    """Refuse weighted scores whose residual goes to zero, as a term with one row a group has all.

    Only weights distinguish its component from the residual. Without a residual the model is
    that of scores that count alike, with the term as the residual.

    Parameters
    ----------
    stats, names : of the model
    llf : log-likelihood of its fit
    estimate : returns the estimate of the other model, which may raise an ``EstimationError``

    Raises
    ------
    EstimationError
        If the likelihood of that model is not below that of the fit.
    """
    single = next((t for t, size in enumerate(stats.sizes) if size == stats.n), None)
    if stats.log_weights is None or stats.blocks is not None or single is None:
        return
    rows = stats.cells
    if rows.counts is not None:
        return
    terms = (*rows.terms[:single], *rows.terms[single + 1 :])
    others = (*names[:single], *names[single + 1 :])
    alike = Statistics.from_rows(replace(rows, terms=terms, weights=None), None)
    try:
        alone = estimate(alike, others)
    except EstimationError:
        return
    if alone is not None and alone.converged and alone.llf >= llf - _SAME * abs(llf):
        raise EstimationError(
            f"the residual goes to zero: term {names[single]!r} has one row in each group and "
            "takes its variance, whatever the weights are; leave out that term and weights=, "
            "which gives the same likelihood, with its variance as the residual",
            term=names[single],
        )


def no_variance(likelihood: LikelihoodEngine, names: tuple[str, ...], known: Known) -> Estimate:
    """Return zeros for a response that the fixed part reproduces, such as a constant one.

    Parameters
    ----------
    likelihood, names, known : of the model

    Raises
    ------
    EstimationError
        If components are held.
    """
    k, p = len(names), likelihood.n_fixed
    what = "the response is constant" if likelihood.yy == 0.0 else "the fixed part fits exactly"
    if known.held.any():
        raise EstimationError(
            f"{what}: with components held the likelihood has no maximum; "
            "hold the residual as well, or no component"
        )
    beta = likelihood.least_squares()
    nothing = np.full((k, k), np.nan)
    return Estimate(
        method="reml" if likelihood.reml else "ml",
        names=names,
        values=np.zeros(k),
        covariances=dict.fromkeys(("observed", "expected", "average"), nothing),
        beta=beta,
        cov_beta=np.zeros((p, p)),
        llf=np.inf,
        converged=False,
        status=f"Not converged: {what}, so that the likelihood rises without limit as all "
        "components go to 0; they are given as 0, without standard errors.",
        engine="none: there is nothing to estimate",
    )
