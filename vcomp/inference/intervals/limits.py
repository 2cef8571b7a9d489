"""Intervals of quantities from components and their covariance matrix, without rows or refits.

They are made by the delta method, as Satterthwaite's interval (docs/explanation/mathematics.md,
eqs. (10.2) and (10.3)) or from mean squares
(:mod:`~vcomp.inference.intervals.modified_large_sample`).
``IntervalSource`` is the interface of everything that gives intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np

from vcomp import display
from vcomp._plugins import plugin, refused
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.inference.intervals.closed_forms import (
    correlation_interval,
    log_interval,
    logit_interval,
    satterthwaite_interval,
    standard_errors,
    wald_interval,
)
from vcomp.inference.intervals.component_squares import (
    MeanSquares,
    expected_squares,
    mean_squares,
    robust_mean_squares,
)
from vcomp.inference.intervals.modified_large_sample import limits_of, linear_limits, rests_on_two
from vcomp.inference.quantities import (
    NOT_CONVERGED,
    Projected,
    Quantities,
    Scale,
    Smooth,
    UsedComponents,
    VarianceComponents,
    used_components,
)
from vcomp.numerics import solve

MODIFIED_LARGE_SAMPLE = "modified large sample (Graybill and Wang 1980; Ting et al. 1990)"
ROBUST = "robust modified large sample"
EXACT_F = "exact F of two mean squares"
SATTERTHWAITE = "Satterthwaite"
WALD = "Wald"
LOG_SCALE = "delta method on the log scale"
LOGIT_SCALE = "delta method on the logit scale"
FISHER_SCALE = "delta method on Fisher's scale of correlations"

AT_ITS_END = (
    "an interval that ends at its estimate is extended to it: intervals are made of estimates "
    "without bounds, and the bound 0 of another component moves this one"
)
_MOVED = 1e-6
"""Share of a limit by which it lies beyond its estimate, and not by rounding alone."""

AT_BOUND = "an estimate at its bound 0 has a one-sided interval, from 0 to its upper limit"
NORMAL_EFFECTS = "effects are treated as normal, as {}"
FEW_LEVELS = "facets with few levels, whose effects are treated as normal: {}"
BELOW_ZERO = "where an estimate is 0 or below, the upper limit is kept from being too small"

_ONE_ERROR = 0.3173105078629141
"""α of an interval of ± one standard error, 68 % confidence."""

_LocalName: TypeAlias = Literal["auto", "robust", "mls", "f", "satterthwaite", "wald", "log"]

IntervalName: TypeAlias = Literal[_LocalName, "profile", "bootstrap"]
"""Names of ways to make intervals; the last two need the rows of a fit."""

LOCAL_INTERVALS: tuple[str, ...] = get_args(_LocalName)


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """Intervals of several quantities.

    Attributes
    ----------
    low, high : (m,) ends, nan if there is no interval
    interval_method : name of the method in words; empty if there is no interval
    notes : remarks on the intervals, clauses without a full stop
    """

    low: FloatArray
    high: FloatArray
    interval_method: str
    notes: tuple[str, ...] = ()


@runtime_checkable
class IntervalSource(Protocol):
    """A source of intervals of quantities: a covariance matrix, a likelihood, replicates."""

    @property
    def interval(self) -> str:
        """Its name, as the user gives it."""

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        """Return intervals with confidence 1 − alpha.

        Parameters
        ----------
        quantities : of the components, or a function of them
        alpha : intervals have confidence 1 − alpha
        """


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """Intervals of quantities of linear combinations of the components.

    Attributes
    ----------
    source : of the components σ²
    A : (m, k) of the combinations Aσ²
    """

    source: IntervalSource
    A: FloatArray

    @property
    def interval(self) -> str:
        """The name of the source."""
        return self.source.interval

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        """Return intervals with confidence 1 − alpha."""
        return self.source.limits(quantities.before(self.A), alpha)


@dataclass(frozen=True)
class FromComponents:
    """Intervals from estimates and their covariance matrix.

    Parameters
    ----------
    components : of the G-study
    interval : ``"robust"``, ``"mls"``, ``"f"`` (the same, but only where it is exact),
        ``"satterthwaite"``, ``"wald"`` or ``"log"``; ``"auto"`` is ``"robust"`` if the
        components have influences by level, else ``"mls"``, or ``"log"`` without mean squares
    negative : policy for negative estimates, ``"keep"`` or ``"zero"``; intervals of ``"mls"`` are
        made from mean squares and extended to contain the estimate under this policy
    beta, cov_beta : fixed effects and their covariance, for functions that depend on them
    reason : why a fit has no influences by level, for the notes; empty if it has them, or if
        intervals that assume normal effects were requested

    Raises
    ------
    EstimationError
        If the interval is not known.

    Examples
    --------
    >>> import numpy as np
    >>> from vcomp.gtheory import from_components
    >>> g = from_components({"p": 2.0, "Residual": 4.0}, cov=np.diag([0.5, 0.1])).components
    >>> found = FromComponents(g, "wald").limits(Quantities("linear", np.eye(2)), 0.05)
    >>> found.low.round(3), found.high.round(3)
    (array([0.614, 3.38 ]), array([3.386, 4.62 ]))
    """

    components: VarianceComponents
    interval: IntervalName = "auto"
    negative: Projected = "keep"
    beta: FloatArray = field(default_factory=lambda: np.zeros(0))
    cov_beta: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    reason: str = ""

    def __post_init__(self) -> None:
        check_interval(self.interval, LOCAL_INTERVALS)
        if self.interval != "auto" or self.components.levels is None:
            return
        # None for a fit that did not converge
        if mean_squares(self.components) is not None:
            object.__setattr__(self, "interval", "robust")

    @classmethod
    def beside(
        cls,
        source: IntervalSource,
        components: VarianceComponents,
        negative: Projected = "keep",
        fixed: tuple[FloatArray, FloatArray] | None = None,
    ) -> FromComponents:
        """Return the source of the estimates and standard errors that are shown with intervals.

        Standard errors shown with robust intervals are robust.

        Parameters
        ----------
        source : of the intervals
        components : used if `source` is not made from components
        negative : as for the class
        fixed : effects and their covariance, for functions that depend on them
        """
        own = cls(components, "mls", negative)
        if isinstance(source, FromComponents):
            own = replace(source, negative=negative)
        return own if fixed is None else replace(own, beta=fixed[0], cov_beta=fixed[1])

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        """Return intervals.

        Parameters
        ----------
        quantities : of the components, or a function of them
        alpha : intervals have confidence 1 − alpha

        Raises
        ------
        EstimationError
            If the method has no interval for quantities of this form.
        PlanError
            If alpha is not between 0 and 1.
        """
        check_alpha(alpha)
        found = self._limits(quantities, alpha)
        covariances = np.isin(self.components.names, self.components.covariance_names)
        if covariances.any() and isinstance(quantities, Quantities):
            found = self._with_covariances(found, quantities, covariances, alpha)
        if self.components.converged:
            return found
        return replace(found, notes=(*found.notes, NOT_CONVERGED))

    def _with_covariances(
        self, found: Limits, quantities: Quantities, covariances: BoolArray, alpha: float
    ) -> Limits:
        """Return normal limits where a quantity has a covariance, which may be negative."""
        used = quantities.a[:, covariances].any(axis=1)
        if quantities.b is not None:
            used = used | quantities.b[:, covariances].any(axis=1)
        if not used.any():
            return found
        values, se = self.values(quantities), self.standard_errors(quantities)
        normal = delta_limits(values, se, alpha, "real")
        low, high = np.where(used, normal.low, found.low), np.where(used, normal.high, found.high)
        if self.interval in ("auto", "robust", "mls"):
            for row in np.flatnonzero(used & (quantities.form == "linear")):
                ends = self._of_covariance(quantities.a[row], alpha)
                if ends is not None:
                    low[row], high[row] = ends
        return replace(normal if used.all() else found, low=low, high=high)

    def _of_covariance(self, weights: FloatArray, alpha: float) -> tuple[float, float] | None:
        """Return the limits of a multiple of a covariance from two mean squares."""
        (places,) = np.nonzero(weights)
        if places.size != 1:
            return None
        made = robust_mean_squares if self.interval == "robust" else mean_squares
        squares = made(self.components, int(places[0]))
        if squares is None:
            return None
        low, high = linear_limits(squares, weights[None, :], alpha)
        return float(low[0]), float(high[0])

    def _limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        if isinstance(quantities, Smooth):
            return self._of_function(quantities, alpha)
        if self.interval == "auto" and self.squares is None:
            return replace(self, interval="log")._limits(quantities, alpha)
        if self.interval == "f":
            self._check_two(quantities)
        if self.interval in ("auto", "robust", "mls", "f"):
            return self._modified_large_sample(quantities, alpha)
        if self.interval == "satterthwaite" and quantities.form not in ("linear", "root"):
            raise EstimationError(
                "Satterthwaite's interval is for variances, not for ratios; use interval='mls', "
                "'log', 'wald', 'profile' or 'bootstrap'"
            )
        return self._by_delta(quantities, alpha)

    def values(self, quantities: Quantities | Smooth) -> FloatArray:
        """Return the quantities at the estimates, (m,)."""
        if isinstance(quantities, Smooth):
            return np.array([quantities.function(self.used.values, self.beta)])
        return quantities.values(self.used.values)

    def standard_errors(self, quantities: Quantities | Smooth) -> FloatArray:
        """Return delta method standard errors; nan for quantities of `unsure` components."""
        if isinstance(quantities, Smooth):
            by_v, by_beta = quantities.slopes(self.used.values, self.beta)
            se = standard_errors(by_v[None, :], self.used.cov, self.unsure)
            return np.sqrt(np.square(se) + by_beta @ self.cov_beta @ by_beta)
        gradients = quantities.gradients(self.used.values)
        return standard_errors(gradients, self.used.cov, self.unsure)

    @cached_property
    def used(self) -> UsedComponents:
        """The components under the policy for negative ones."""
        components = self.components
        if self.interval == "robust":
            components = replace(components, cov=self.robust_covariance)
        return used_components(components, self.negative)

    @cached_property
    def unsure(self) -> BoolArray:
        """Components without a standard error that are not held."""
        names = np.array(self.components.names, dtype=object)
        return np.isin(names, [*self.used.zeroed, *self.used.bounded])

    @cached_property
    def squares(self) -> MeanSquares | None:
        """The mean squares that represent the estimates, eq. (10.4); None without a covariance.

        Robust ones have degrees of freedom from the data, eq. (10.20).
        """
        if self.interval == "robust":
            return robust_mean_squares(self.components)
        return mean_squares(self.components)

    @cached_property
    def robust_covariance(self) -> FloatArray | None:
        """The (k, k) covariance matrix of the components that belongs to their robust limits.

        Rows and columns of components without a standard error are nan; None without mean squares.
        """
        squares, normal = self.squares, self.components.cov
        if squares is None or normal is None:
            return None
        spread = expected_squares(self.components, squares) * np.sqrt(2.0 / squares.df)
        half = solve(squares.basis, np.diag(spread))
        cov = np.full_like(normal, np.nan)
        cov[np.ix_(squares.places, squares.places)] = half @ squares.correlation @ half.T
        known: BoolArray = np.isnan(np.diag(normal))
        return np.where(known[:, None] | known[None, :], np.nan, cov)

    # Methods ------------------------------------------------------------------------------------

    def _modified_large_sample(self, q: Quantities, alpha: float) -> Limits:
        squares = self.squares
        if squares is None and self.interval == "robust":
            raise EstimationError(
                "interval='robust' needs the rows of a fit with standard errors; published "
                "components have interval='mls': dstudy(…, interval='mls')"
            )
        if squares is None:
            raise EstimationError(
                "interval='mls' needs a covariance matrix of the components that mean squares "
                "with degrees of freedom explain, and these have none; published components need "
                "sizes= of all facets or cov=, fits have interval='profile' and 'bootstrap'"
            )
        found = self._from_zero(Limits(*limits_of(squares, q, alpha), ""), squares, q)
        if self.components.without_bounds is not None or self.used.zeroed:
            # Mean squares ignore bounds: the interval is extended to contain the bounded estimate.
            values = q.values(self.used.values)
            low, high = np.fmin(found.low, values), np.fmax(found.high, values)
            moved = values > 0.0
            moved &= (low < found.low * (1.0 - _MOVED)) | (high > found.high * (1.0 + _MOVED))
            said = (*found.notes, AT_ITS_END) if moved.any() else found.notes
            found = replace(found, low=low, high=high, notes=said)
        found = self._in_order(found, squares, q, alpha)
        silent = self._is_undetermined(squares, q)
        low, high = np.where(silent, np.nan, found.low), np.where(silent, np.nan, found.high)
        found = replace(found, low=low, high=high)
        notes = [*found.notes, *self._at_bound(q)]
        exact = self.interval == "f" and q.form in ("ratio", "share")
        words = EXACT_F if exact else MODIFIED_LARGE_SAMPLE
        if self.interval == "robust":
            words, notes = ROBUST, [*notes, *self._few_levels()]
        elif self.reason:
            notes.append(NORMAL_EFFECTS.format(self.reason))
        return replace(found, interval_method=words, notes=tuple(notes))

    def _few_levels(self) -> list[str]:
        levels = self.components.levels
        assert levels is not None
        few = ", ".join(f"{facet} ({n})" for facet, n in sorted(levels.few.items()))
        return [FEW_LEVELS.format(few)] if few else []

    def _from_zero(self, found: Limits, squares: MeanSquares, q: Quantities) -> Limits:
        """Return limits whose upper ends are raised for estimates below zero.

        The interval of an estimate far below zero would be [0, 0]. Its upper limit is therefore at
        least the 68 % limit for an estimate of zero. This bound is the same for every alpha, so
        that intervals of higher confidence remain at least as wide.
        """
        without = self.components.without_bounds
        free = self.components.values if without is None else without[0]
        below = (q.a @ free < 0.0) & (q.a >= 0.0).all(axis=1)
        if not below.any():
            return found
        high = found.high.copy()
        for used in np.unique(q.a[below] != 0.0, axis=0):
            rows = below & ((q.a != 0.0) == used).all(axis=1)
            zeroed = np.where(used, np.maximum(free, 0.0), free)
            at_zero = limits_of(squares.at(zeroed), q.take(rows), _ONE_ERROR)
            high[rows] = np.fmax(high[rows], at_zero[1])
        notes = (*found.notes, BELOW_ZERO) if (high > found.high).any() else found.notes
        return replace(found, high=high, notes=notes)

    def _in_order(
        self, found: Limits, squares: MeanSquares, q: Quantities, alpha: float
    ) -> Limits:
        """Return limits of sums that are not below those without components estimated at zero.

        Mean squares ignore bounds, so that such components draw the limits of a sum towards or
        below zero; but a sum is never less than a part of it. Limits of a ratio are not above
        those without such components in its denominator.
        """
        zero = np.flatnonzero(self.used.values == 0.0)
        low, high = found.low.copy(), found.high.copy()
        for left_out in _subsets(zero.tolist()):
            for name, further in (("a", np.fmax), ("b", np.fmin)):
                weights = getattr(q, name)
                if weights is None:
                    continue
                rest = weights.copy()
                rest[:, left_out] = 0.0
                rows = (weights >= 0.0).all(axis=1) & rest.any(axis=1)
                used = weights[:, left_out] != 0.0
                rows &= used.any(axis=1) if len(left_out) > _MOST_ZERO else used.all(axis=1)
                if rows.any():
                    part = replace(q, **{name: rest}).take(rows)
                    ends = limits_of(squares, part, alpha)
                    low[rows] = further(low[rows], ends[0])
                    high[rows] = further(high[rows], ends[1])
        return replace(found, low=low, high=high)

    def _check_two(self, q: Quantities) -> None:
        """Refuse ratios without an exact F interval."""
        squares = self.squares
        if q.form in ("linear", "root") or squares is None:
            return
        if not rests_on_two(squares, q.a, q.denominator):
            raise EstimationError(
                "interval='f' is for ratios that depend on two independent mean squares of a "
                "balanced design, and for Φ of a complete two-way table; use interval='mls'"
            )

    def _is_undetermined(self, squares: MeanSquares, q: Quantities) -> BoolArray:
        """Return which quantities depend only on components neither estimated nor held."""
        unsure = np.ones(q.a.shape[1], dtype=bool)
        unsure[squares.places] = False
        unsure &= ~np.isin(np.array(self.components.names, dtype=object), self.components.held)

        def only(weights: FloatArray) -> BoolArray:
            used = weights != 0.0
            return np.asarray(used.any(axis=1) & ~(used & ~unsure).any(axis=1))

        return only(q.a) if q.b is None else only(q.a) | only(q.b)

    def _at_bound(self, q: Quantities) -> list[str]:
        zero = q.values(self.components.values) == 0.0
        bound = self.components.without_bounds is not None
        return [AT_BOUND] if bound and bool((zero & (q.a != 0.0).any(axis=1)).any()) else []

    def _by_delta(self, q: Quantities, alpha: float) -> Limits:
        values, se = self.values(q), self.standard_errors(q)
        if self.interval == "satterthwaite":
            power = 2.0 if q.form == "root" else 1.0
            # The interval of a standard deviation is that of its variance.
            spread = se * (2.0 * values if q.form == "root" else 1.0)
            ends = satterthwaite_interval(values**power, spread, alpha)
            low, high = ends[0] ** (1.0 / power), ends[1] ** (1.0 / power)
            return Limits(low, high, SATTERTHWAITE if np.isfinite(low).any() else "")
        return delta_limits(values, se, alpha, "real" if self.interval == "wald" else q.scale)

    def _of_function(self, q: Smooth, alpha: float) -> Limits:
        if self.interval not in ("auto", "robust", "wald", "log"):
            raise EstimationError(
                f"interval={self.interval!r} is not defined for functions of the components; use "
                "interval='wald', 'log', 'profile' or 'bootstrap'"
            )
        scale: Scale = q.scale if self.interval in ("auto", "robust") else "real"
        if self.interval == "log":
            scale = "variance" if q.scale == "real" else q.scale
        return delta_limits(self.values(q), self.standard_errors(q), alpha, scale)


_MOST_ZERO = 4
"""Largest number of components at zero whose subsets are all tried (15 subsets)."""


def _subsets(places: list[int]) -> Iterator[list[int]]:
    """Yield the subsets of some places that are not empty."""
    if len(places) > _MOST_ZERO:
        yield places
        return
    for size in range(1, len(places) + 1):
        yield from map(list, combinations(places, size))


def delta_limits(values: FloatArray, se: FloatArray, alpha: float, scale: Scale) -> Limits:
    """Return intervals that are normal on the scale of their values, eq. (10.2)."""
    interval, name = {
        "real": (wald_interval, WALD),
        "variance": (log_interval, LOG_SCALE),
        "share": (logit_interval, LOGIT_SCALE),
        "correlation": (correlation_interval, FISHER_SCALE),
    }[scale]
    low, high = interval(values, se, alpha)
    return Limits(low, high, name if np.isfinite(low).any() else "")


_WITHOUT_DISTRIBUTION = (ROBUST, "jackknife")
"""First words of the names of methods that do not assume normal effects."""

_OF_LEVELS = "facet bootstrap"


def note_on_scores(
    values: tuple[float, ...] | None, interval_methods: Iterable[str]
) -> tuple[str, ...]:
    """Return a note on scores that have two values, or a few equally spaced ones; else none.

    Parameters
    ----------
    values : distinct scores in order, None if there are many
    interval_methods : of the intervals, in words

    Examples
    --------
    >>> note_on_scores((0.0, 1.0), [ROBUST])[0].split("; ")[1]
    'intervals (robust modified large sample) do not assume normal effects.'
    >>> note_on_scores((0.0, 0.1, 1.0), [LOG_SCALE])
    ()
    """
    if values is None or len(values) < 2:
        return ()
    steps = np.diff(values)
    if not np.allclose(steps, steps[0], rtol=1e-6, atol=0.0):
        return ()
    low, high = display.number(values[0]), display.number(values[-1])
    few = f"{low} or {high}" if len(values) == 2 else f"{len(values)} grades from {low} to {high}"
    note = (
        f"Scores are {few}: components are on the observed scale, on which reliability is defined"
    )
    methods = list(dict.fromkeys(interval_methods))
    if not methods:
        return (f"{note}.",)
    words = ", ".join(m.split(" (")[0].removesuffix(" of the mean squares") for m in methods)
    assume = "do not assume normal effects"
    if not all(m.startswith(_WITHOUT_DISTRIBUTION) or _OF_LEVELS in m for m in methods):
        assume = "assume normal effects, interval='robust' does not"
    return (f"{note}; intervals ({words}) {assume}.",)


def check_interval(interval: str, known: tuple[str, ...] = get_args(IntervalName)) -> None:
    """Check the name of an interval.

    Raises
    ------
    EstimationError
        If it is not known; the message lists the methods.
    """
    if interval not in known:
        names = ", ".join(map(repr, known))
        raise EstimationError(f"interval={interval!r} is not known; intervals are {names}")


def check_source(interval: object) -> IntervalSource:
    """Return an interval source, checked.

    Raises
    ------
    EstimationError
        If `interval` is not an interval source.
    """
    if not isinstance(interval, IntervalSource):
        raise EstimationError(
            "interval must be the name of an interval, or the result of bootstrap(), resample() "
            f"or jackknife(), not {interval!r} (the size of a facet with the name 'interval' is "
            "given by sizes={'interval': …})"
        )
    return interval


def plugged_source(interval: str, components: VarianceComponents) -> IntervalSource | None:
    """Return the source of intervals that an installed package declares; None if none does.

    Parameters
    ----------
    interval : name of an entry point of the group ``vcomp.intervals``, a function of components
    components : that the intervals are made from

    Raises
    ------
    VcompError
        If the package cannot be imported, or its function returns something else.
    """
    made = plugin("intervals", interval)
    if made is None:
        return None
    try:
        source = made(components)
    except TypeError:  # it takes something else
        source = None
    if not isinstance(source, IntervalSource):
        raise refused("intervals", interval, "a function of components that returns intervals")
    return source
