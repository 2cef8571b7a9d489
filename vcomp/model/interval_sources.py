"""Interval sources of a fit, for ``interval=``: components, replicates or a profile likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.inference import Projected, Quantities, Smooth, profile, resampling
from vcomp.inference.intervals import (
    LOCAL_INTERVALS,
    FromComponents,
    IntervalName,
    IntervalSource,
    Limits,
    check_local_interval,
    check_source,
    plugged_source,
)
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess, require_rows

if TYPE_CHECKING:
    from vcomp.model.profiling import Likelihood

IntervalMethod: TypeAlias = "IntervalName | IntervalSource | resampling.Replicates"
"""The name of a way to make intervals, or a source of them, such as bootstrap replicates."""

PROFILE = "profile likelihood"

_REPLICATES = 1000
"""Number of replicates for ``interval="bootstrap"``."""

_OTHERS = ("profile", "bootstrap")
_OF_FACETS = {
    "jackknife": "jackknife",
    "resample": "resample",
    "facet bootstrap": "resample",
    "facet_bootstrap": "resample",
}


def source_of(
    record: FitRecord,
    rows: RowAccess | None,
    interval: IntervalMethod,
    negative: Projected = "keep",
    bootstrap_type: resampling.BootstrapType = "percentile",
) -> IntervalSource:
    """Return the source of the intervals of a fit.

    Parameters
    ----------
    record : of the fit
    rows : of the fit; None after loading
    interval : a name, replicates, or a source itself
    negative : how negative components are used
    bootstrap_type : of intervals from replicates

    Raises
    ------
    EstimationError
        If the interval is not known, or not available for this fit.
    DataError
        If it needs the rows, and the result was loaded without them.
    """
    if interval == "profile":
        from vcomp.model.profiling import Likelihood  # deferred for start-up time

        return FromProfile(Likelihood.of(require_rows(rows)))
    if interval == "bootstrap":
        interval = resampling.parametric_bootstrap(require_rows(rows).generating(), _REPLICATES)
    if (
        not isinstance(interval, str)
        and isinstance(interval, resampling.Replicates)
        and not isinstance(interval, resampling.Jackknife)
    ):
        _check_own(interval, record.estimate.names)
        fitted = record.estimate.values, record.estimate.beta
        return resampling.FromReplicates(interval, *fitted, bootstrap_type, negative)
    if bootstrap_type != "percentile":
        raise EstimationError(
            f"bootstrap_type={bootstrap_type!r} applies to intervals from bootstrap replicates, "
            f"not to {interval!r}"
        )
    if not isinstance(interval, str):
        return check_source(interval)
    if interval in _OF_FACETS:
        raise EstimationError(
            f"interval={interval!r} needs a facet; pass "
            f"interval=res.{_OF_FACETS[interval]}({record.structure.facets[0]!r})"
        )
    if interval not in LOCAL_INTERVALS:
        plugged = plugged_source(interval, record.tables.components)
        if plugged is not None:
            return plugged
    check_local_interval(interval, _OTHERS)
    components, reason = record.tables.components, ""
    if interval == "robust":
        components = record.robust_components()
    elif interval == "auto":
        components, reason = record.with_influences()
    beta, cov_beta = record.estimate.beta, record.estimate.cov_beta
    return FromComponents(components, interval, negative, beta, cov_beta, reason)


def _check_own(replicates: resampling.Replicates, names: tuple[str, ...]) -> None:
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
    likelihood : that the fit maximised
    """

    likelihood: Likelihood

    @property
    def interval(self) -> str:
        """The name of this source of intervals, ``"profile"``."""
        return "profile"

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        """Return intervals with confidence 1 − alpha.

        Quantities that depend on held components only have no interval (nan).

        Raises
        ------
        EstimationError
            If a profile cannot be traced, or the quantity depends on the fixed effects.
        """
        check_alpha(alpha)
        if isinstance(quantities, Smooth):
            return self._of_function(quantities, alpha)
        low, high = np.full((2, len(quantities)), np.nan)
        notes: list[str] = []
        distinct = _alike(quantities)
        nearby = self.likelihood.nearby_ends(alpha) if len(distinct) > 1 else None
        for first, alike in distinct.items():
            found = self._one(quantities.take(slice(first, first + 1)), alpha, nearby)
            notes += [note for note in found[2] if note not in notes]
            for place, factor in alike.items():
                low[place], high[place] = (
                    _of_multiple(end, quantities.form, factor) for end in found[:2]
                )
        return Limits(low, high, PROFILE, tuple(notes))

    def _one(
        self, q: Quantities, alpha: float, nearby: profile.NearbyEnds | None
    ) -> tuple[float, float, tuple[str, ...]]:
        a = q.a[0]
        if self._is_known(a) and (q.b is None or self._is_known(q.b[0])):
            return np.nan, np.nan, ("a quantity made of held components only has no interval",)
        whole = Quantities("linear", q.a) if q.form == "root" else q
        low, high, notes = self._ends(whole, alpha, nearby)
        if q.form == "root":
            return float(np.sqrt(max(low, 0.0))), float(np.sqrt(high)), notes
        return low, high, notes

    def _ends(
        self, q: Quantities, alpha: float, nearby: profile.NearbyEnds | None
    ) -> tuple[float, float, tuple[str, ...]]:
        """Return the ends of an interval, from those of one that is alike if there is one."""
        from vcomp.model.profiling import constraint_of  # deferred for start-up time

        constraint = None if nearby is None else constraint_of(q)
        if nearby is not None and constraint is not None:
            found = nearby.interval(constraint)
            if found is not None:
                return *found, ()
        curve = self.likelihood.profile_ratio(q, "a quantity", alpha, points=0)
        if nearby is not None and constraint is not None:
            nearby.add(constraint, curve)
        return curve.low, curve.high, curve.notes

    def _of_function(self, q: Smooth, alpha: float) -> Limits:
        if q.uses_fixed:
            raise EstimationError(
                "a quantity that depends on the fixed effects has no profile; use "
                "interval='log' or 'bootstrap'"
            )
        nothing = np.zeros(0)
        constraint = profile.SmoothConstraint(
            lambda v: q.function(v, nothing), lambda v: q.slopes(v, nothing)[0]
        )
        curve = self.likelihood.profile(constraint, "a quantity", alpha, points=0)
        return Limits(np.array([curve.low]), np.array([curve.high]), PROFILE, curve.notes)

    def _is_known(self, weights: FloatArray) -> bool:
        return not (weights[~self.likelihood.held] != 0.0).any()


def _alike(q: Quantities) -> dict[int, dict[int, float]]:
    """Return quantities that are functions of another one, by the place of that one.

    A multiple of the weights multiplies a linear form, a ratio, or the odds of a share: error
    variances for other numbers of levels of one facet have a single profile, and so have their
    coefficients. The values are, for each quantity, its place and the factor.
    """
    found: dict[bytes, tuple[int, FloatArray]] = {}
    alike: dict[int, dict[int, float]] = {}
    for place in range(len(q)):
        weights = [q.a[place]] if q.b is None else [q.a[place], q.b[place]]
        sizes = np.array([np.abs(w).max(initial=0.0) or 1.0 for w in weights])
        # Rounded, so that 1/30 of a component and 2/60 of it are the same direction.
        key = np.round(np.concatenate([w / s for w, s in zip(weights, sizes, strict=True)]), 14)
        first, own = found.setdefault((key + 0.0).tobytes(), (place, sizes))
        ratio = sizes / own
        alike.setdefault(first, {})[place] = float(ratio[0] / (ratio[1] if len(ratio) > 1 else 1))
    return alike


def _of_multiple(end: float, form: str, factor: float) -> float:
    """Return the end of the interval of a quantity whose weights are multiplied by a factor."""
    if form == "root":
        return end * float(np.sqrt(factor))
    if form != "share" or factor == 1.0:
        return end * factor
    return factor * end / (1.0 - end + factor * end)
