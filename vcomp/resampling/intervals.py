"""Intervals of quantities from replicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.resampling.replicates import Replicates
from vcomp.uncertainty.limits import Limits
from vcomp.uncertainty.quantity import Quantities, Scale, Smooth
from vcomp.uncertainty.scales import TRANSFORMS

__all__ = ["BootstrapKind", "FromReplicates"]

BootstrapKind: TypeAlias = Literal["percentile", "basic", "bias-corrected"]

_FEW = 20
"""Fewer replicates than this beyond a limit leave it uncertain."""


@dataclass(frozen=True, slots=True)
class FromReplicates:
    """Intervals from quantiles of bootstrap replicates.

    Parameters
    ----------
    replicates : of the components and fixed effects, adjusted where they are
    estimates : (k,) components of the fit
    beta : (p,) its fixed effects
    kind : ``"percentile"``: quantiles of the replicates; ``"basic"``: these quantiles reflected at
        the estimate, on the log or logit scale; ``"bias-corrected"``: quantiles moved by the share
        of replicates below the estimate (Efron 1981)
    negative : how negative components are taken, in the fit and in every replicate: ``"keep"``, or
        ``"zero"`` as D-studies do

    Raises
    ------
    EstimationError
        If the kind is not known, or there are fewer than two replicates.

    References
    ----------
    Davison and Hinkley (1997), Bootstrap Methods and their Application, sec. 5.2 and 5.3.
    """

    replicates: Replicates
    estimates: FloatArray
    beta: FloatArray
    kind: BootstrapKind = "percentile"
    negative: str = "keep"

    def __post_init__(self) -> None:
        if self.kind not in get_args(BootstrapKind):
            known = ", ".join(map(repr, get_args(BootstrapKind)))
            raise EstimationError(f"kind={self.kind!r} is not known; it is one of {known}")
        if len(self.replicates) < 2:
            raise EstimationError(
                f"there is no interval from {len(self.replicates)} replicates; make some hundreds"
            )

    @property
    def method(self) -> str:
        """Its name."""
        return "bootstrap"

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        """Return intervals with confidence 1 − alpha.

        Replicates in which a quantity is not defined are left out, and said.
        """
        check_alpha(alpha)
        values, estimate = self._values(quantities)
        low, high, absent = _each(values, estimate, alpha, self.kind, quantities.scale)
        usable = len(self.replicates) - absent
        words = f"{self.kind} of {usable:,} {self.replicates.kind} replicates"
        notes = list(self.replicates.notes)
        if absent:
            notes.append(
                f"in {absent:,} of {len(self.replicates):,} replicates the estimation did not end "
                "or the quantity is not defined; they are left out"
            )
        if usable * alpha / 2.0 < _FEW:
            notes.append(
                f"with {usable:,} replicates the ends are uncertain; "
                f"{int(np.ceil(2.0 * _FEW / alpha)):,} or more would do"
            )
        return Limits(low, high, words, tuple(notes))

    def standard_errors(self, quantities: Quantities | Smooth) -> FloatArray:
        """Return the standard deviations of the replicates of each quantity."""
        values, _ = self._values(quantities)
        finite = np.where(np.isfinite(values), values, np.nan)
        found: FloatArray = np.nanstd(finite, axis=0, ddof=1)
        return found

    def _values(self, quantities: Quantities | Smooth) -> tuple[FloatArray, FloatArray]:
        """Return (B, m) values of the replicates and (m,) those of the fit."""
        made = self.replicates
        components = made.values if made.adjusted is None else made.adjusted
        estimates = self.estimates
        if self.negative == "zero":
            components, estimates = np.maximum(components, 0.0), np.maximum(estimates, 0.0)
        if isinstance(quantities, Quantities):
            values = quantities.values(components)
            estimate = quantities.values(estimates)
        else:
            pairs = zip(components, made.beta, strict=True)
            values = np.array([[quantities.function(v, b)] for v, b in pairs])
            estimate = np.array([quantities.function(estimates, self.beta)])
        return np.where(made.converged[:, None], values, np.nan), estimate


def _each(
    values: FloatArray, estimate: FloatArray, alpha: float, kind: str, scale: Scale
) -> tuple[FloatArray, FloatArray, int]:
    low, high = np.full(estimate.size, np.nan), np.full(estimate.size, np.nan)
    absent = 0
    for j, (column, center) in enumerate(zip(values.T, estimate, strict=True)):
        known = column[~np.isnan(column)]
        absent = max(absent, column.size - known.size)
        if known.size > 1 and not np.isnan(center):
            low[j], high[j] = _interval(known, float(center), alpha, kind, scale)
    return low, high, absent


def _interval(
    values: FloatArray, estimate: float, alpha: float, kind: str, scale: Scale
) -> tuple[float, float]:
    tails = np.array([alpha / 2.0, 1.0 - alpha / 2.0])
    if kind == "bias-corrected":
        from scipy.special import ndtr, ndtri

        below = (np.sum(values < estimate) + 0.5 * np.sum(values == estimate)) / values.size
        # All on one side: as far as so many replicates can tell.
        share = min(max(float(below), 0.5 / values.size), 1.0 - 0.5 / values.size)
        tails = ndtr(2.0 * ndtri(share) + ndtri(tails))
    low, high = np.quantile(values, tails)
    if kind != "basic":
        return float(low), float(high)
    to, back = TRANSFORMS[scale]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        center, *ends = to(np.array([estimate, high, low]))
        reflected = back(2.0 * center - np.array(ends))
    # From an estimate at the end of the scale nothing can be reflected.
    if not np.isfinite(center):
        return float(low), float(high)
    return float(reflected[0]), float(reflected[1])
