"""Which fits can be compared by their likelihoods: the same rows, and one scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp import display
from vcomp.estimators.estimate import Estimate
from vcomp.exceptions import DataError, EstimationError
from vcomp.statistics import Statistics

__all__ = ["ComparedFit", "check_comparable", "check_likelihood", "check_rows", "facets_of"]

_SAME = 1e-9
"""Relative differences of sums that rows in another order make."""

_ROUNDING = 1e-13
"""Relative differences that another order makes of a mean far from zero."""


@dataclass(frozen=True, slots=True)
class ComparedFit:
    """What is needed of a fit.

    Attributes
    ----------
    formula, response : of the model
    estimate : by REML or ML
    exog_names : columns of the fixed part
    nobs : number of rows
    response_sums : mean of the response and sum of squares about it; None if they are not known
    stats : sums of the rows, None after loading
    """

    formula: str
    response: str
    estimate: Estimate
    exog_names: tuple[str, ...]
    nobs: int
    response_sums: tuple[float, float] | None
    stats: Statistics | None

    @property
    def n_parameters(self) -> int:
        """Fixed effects and components that were estimated."""
        return len(self.exog_names) + len(self.estimate.names) - len(self.estimate.held)

    @property
    def known(self) -> dict[frozenset[str], float]:
        """The components that were held, by the facets of their terms."""
        values = dict(zip(self.estimate.names, self.estimate.values, strict=True))
        return {facets_of(name): float(values[name]) for name in self.estimate.held}

    @property
    def free(self) -> dict[frozenset[str], str]:
        """Names of the components that were estimated, by the facets of their terms."""
        held = self.estimate.held
        return {facets_of(name): name for name in self.estimate.names if name not in held}


def check_likelihood(fit: ComparedFit) -> None:
    """Refuse a fit without a likelihood at its maximum."""
    estimate = fit.estimate
    if estimate.method not in ("reml", "ml"):
        raise EstimationError(
            f"{fit.formula!r} was fitted by {estimate.method!r}, which has no likelihood to "
            "compare; fit by method='reml' or 'ml'"
        )
    if not estimate.converged or not np.isfinite(estimate.llf):
        raise EstimationError(
            f"the likelihood of {fit.formula!r} is not at its maximum, and a comparison is one of "
            f"maxima: {estimate.status}"
        )


def check_rows(one: ComparedFit, other: ComparedFit) -> None:
    """Refuse fits of different scores."""
    pair = f"{one.formula!r} and {other.formula!r}"
    if one.response != other.response:
        raise DataError(
            f"{pair} have the responses {one.response!r} and {other.response!r}: likelihoods of "
            "different responses cannot be compared"
        )
    if one.nobs != other.nobs:
        raise DataError(
            f"{pair} were fitted to {one.nobs:,} and {other.nobs:,} rows: drop the rows with a "
            "missing value in any column of either, and fit both to what is left"
        )
    if one.response_sums is None or other.response_sums is None:
        raise DataError(
            f"whether {pair} were fitted to the same rows cannot be told: one was stored by an "
            "older version; fit it again"
        )
    (mean, squares), (mean_2, squares_2) = one.response_sums, other.response_sums
    spread = np.sqrt(squares / one.nobs)
    same = abs(squares - squares_2) <= _SAME * squares
    if not same or abs(mean - mean_2) > _SAME * spread + _ROUNDING * abs(mean):
        raise DataError(
            f"{pair} were fitted to different values of {one.response!r} (their means are "
            f"{display.number(mean, 8)} and {display.number(mean_2, 8)})"
        )


def check_comparable(one: ComparedFit, other: ComparedFit) -> None:
    """Refuse likelihoods that are not on one scale."""
    methods = one.estimate.method, other.estimate.method
    if methods[0] != methods[1]:
        raise EstimationError(
            f"{one.formula!r} was fitted by {methods[0].upper()} and {other.formula!r} by "
            f"{methods[1].upper()}: fit both by the same method"
        )
    if methods[0] != "reml":
        return
    if set(one.exog_names) != set(other.exog_names) or _columns_differ(one, other):
        raise EstimationError(
            f"the fixed parts of {one.formula!r} and {other.formula!r} differ "
            f"({' + '.join(one.exog_names) or '0'}; {' + '.join(other.exog_names) or '0'}): "
            "restricted likelihoods are of what each fixed part leaves, and cannot be compared; "
            "fit both by method='ml'"
        )


def _columns_differ(one: ComparedFit, other: ComparedFit) -> bool:
    """Whether columns of the same names hold different numbers, as far as that is known."""
    if one.stats is None or other.stats is None or not one.exog_names:
        return False
    order = [other.exog_names.index(name) for name in one.exog_names]
    ours, theirs = one.stats.XX, other.stats.XX[np.ix_(order, order)]
    scale = np.sqrt(np.outer(np.diagonal(ours), np.diagonal(ours)))
    return bool((np.abs(ours - theirs) > 1e-8 * scale).any())


def facets_of(name: str) -> frozenset[str]:
    """Return the facets of a term, in whatever order its name has them."""
    return frozenset(name.split(":"))
