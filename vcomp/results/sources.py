"""What gives a fit's intervals, by the name of a method or from what was resampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import FloatArray
from vcomp.estimators.profile_constraints import SmoothConstraint
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.resampling import Replicates
from vcomp.resampling.intervals import BootstrapKind, FromReplicates
from vcomp.results.profile import Likelihood
from vcomp.uncertainty import FromComponents, IntervalSource, Limits, Quantities, Smooth
from vcomp.uncertainty.limits import check_local_method, check_source

if TYPE_CHECKING:
    from vcomp.results.inference import Inference, IntervalMethod

__all__ = ["FromProfile", "source_of"]

PROFILE = "profile likelihood"

_OTHERS = ("profile", "bootstrap")
_OF_FACETS = {
    "jackknife": "jackknife",
    "resample": "resample",
    "facet bootstrap": "resample",
    "facet_bootstrap": "resample",
}


def source_of(
    res: Inference, method: IntervalMethod, negative: str, kind: BootstrapKind = "percentile"
) -> IntervalSource:
    """Return what gives the intervals of a fit.

    Parameters
    ----------
    res : the fit
    method : a name, replicates, or a source itself
    negative : how the delta method takes negative estimates
    kind : of intervals from replicates

    Raises
    ------
    EstimationError
        If the method is not known, or not there for this fit.
    DataError
        If it needs the rows, and the result was loaded without them.
    """
    record = res._record
    if method == "profile":
        return FromProfile(Likelihood.of(res._access()))
    if method == "bootstrap":
        method = res.bootstrap()
    if isinstance(method, Replicates):
        _check_own(method, record.estimate.names)
        return FromReplicates(method, record.estimate.values, record.estimate.beta, kind, negative)
    if kind != "percentile":
        raise EstimationError(f"kind={kind!r} is of intervals from replicates, not of {method!r}")
    if not isinstance(method, str):
        return check_source(method)
    if method in _OF_FACETS:
        raise EstimationError(
            f"method={method!r} needs to know over which facet; pass "
            f"method=res.{_OF_FACETS[method]}({record.structure.facets[0]!r})"
        )
    check_local_method(method, _OTHERS)
    estimate = record.estimate
    return FromComponents(record.components, method, negative, estimate.beta, estimate.cov_beta)


def _check_own(replicates: Replicates, names: tuple[str, ...]) -> None:
    if replicates.names != names:
        raise EstimationError(
            f"these replicates are of {', '.join(replicates.names)}, and the fit has "
            f"{', '.join(names)}; resample this fit"
        )


@dataclass(frozen=True, slots=True)
class FromProfile:
    """Intervals from the profile likelihood of each quantity.

    Parameters
    ----------
    likelihood : that the fit has maximised
    """

    likelihood: Likelihood

    @property
    def method(self) -> str:
        """Its name."""
        return "profile"

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        """Return intervals with confidence 1 − alpha.

        What depends on held components alone has none (nan).

        Raises
        ------
        EstimationError
            If a profile cannot be followed, or the quantity depends on the fixed effects.
        """
        check_alpha(alpha)
        if isinstance(quantities, Smooth):
            return self._of_function(quantities, alpha)
        ends, notes = [], []
        for j in range(len(quantities)):
            low, high, said = self._one(quantities.take(slice(j, j + 1)), alpha)
            ends.append((low, high))
            notes += [note for note in said if note not in notes]
        both = np.array(ends).reshape(-1, 2)
        return Limits(both[:, 0], both[:, 1], PROFILE, tuple(notes))

    def _one(self, q: Quantities, alpha: float) -> tuple[float, float, tuple[str, ...]]:
        a = q.a[0]
        if self._is_known(a) and (q.b is None or self._is_known(q.b[0])):
            return np.nan, np.nan, ("what depends on held components alone has no interval",)
        whole = Quantities("linear", q.a) if q.form == "root" else q
        curve = self.likelihood.profile_ratio(whole, "a quantity", alpha, points=0)
        if q.form == "root":
            return float(np.sqrt(max(curve.low, 0.0))), float(np.sqrt(curve.high)), curve.notes
        return curve.low, curve.high, curve.notes

    def _of_function(self, q: Smooth, alpha: float) -> Limits:
        if q.uses_fixed:
            raise EstimationError(
                "a quantity that depends on the fixed effects has no profile here; use "
                "method='log' or 'bootstrap'"
            )
        nothing = np.zeros(0)
        constraint = SmoothConstraint(
            lambda v: q.function(v, nothing), lambda v: q.slopes(v, nothing)[0]
        )
        curve = self.likelihood.profile(constraint, "a quantity", alpha, points=0)
        return Limits(np.array([curve.low]), np.array([curve.high]), PROFILE, curve.notes)

    def _is_known(self, weights: FloatArray) -> bool:
        return not (weights[~self.likelihood.held] != 0.0).any()
