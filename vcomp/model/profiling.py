"""Profile likelihoods of a fit: its parameters by name, and tables of their curves."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators import Estimate
from vcomp.estimators.likelihood import LikelihoodEngine, MatricesLikelihood, choose_engine
from vcomp.exceptions import EstimationError, check_alpha
from vcomp.formula import EffectMatrix, parameter_names
from vcomp.inference import Quantities, Smooth, profile, read_correlation, read_quantity
from vcomp.inference.intervals import Limits
from vcomp.inference.profile import (
    Constraint,
    LinearConstraint,
    NearbyEnds,
    ProfileCurve,
    RatioConstraint,
    SmoothConstraint,
    profile_fixed_effect,
    profile_matrices,
    profile_quantity,
)
from vcomp.model.row_access import RowAccess

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, repr=False)
class Profile(display.PrintsAsSentence):
    """Profile likelihoods with their intervals.

    Attributes
    ----------
    curves : by parameter
    alpha : level of the intervals
    """

    curves: Mapping[str, ProfileCurve]
    alpha: float

    def conf_int(self, alpha: float | None = None) -> pd.DataFrame:
        """Return the ends of the intervals in columns 0 and 1, a row for each parameter.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha; that of the profile if not given. Curves are
            extended if necessary

        Raises
        ------
        PlanError
            If alpha is not between 0 and 1.
        EstimationError
            If a profile cannot be traced far enough.
        """
        import pandas as pd

        level = self.alpha if alpha is None else alpha
        ends = [curve.interval(level) for curve in self.curves.values()]
        return pd.DataFrame(ends, index=list(self.curves), columns=[0, 1], dtype=float)

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each visited point: parameter, value, z (root of the likelihood ratio)."""
        import pandas as pd

        frames = [curve.frame for curve in self.curves.values()]
        return pd.concat(frames, ignore_index=True)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on intervals that end at a bound, or that do not exist."""
        return tuple(note for curve in self.curves.values() for note in curve.notes)

    def plot(self, ax: Any | None = None) -> list[Any]:
        """Draw a zeta plot of every curve: z over the value, with the interval.

        Parameters
        ----------
        ax : matplotlib axes, as many as curves; those of a new figure if None

        Returns
        -------
        list of matplotlib.axes.Axes

        Raises
        ------
        DataError
            If the number of axes is not that of the curves.
        VcompError
            If matplotlib is not installed.
        """
        from vcomp import plots

        return plots.profile(self.curves, ax=ax)

    def __repr__(self) -> str:
        return f"<profile likelihood of {', '.join(self.curves)}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        table = self.conf_int().to_string(header=["low", "high"])
        return "\n".join(
            [f"Profile likelihood, {display.level(self.alpha)} intervals", table, *self.notes]
        )


@dataclass(frozen=True, slots=True)
class MaximisedLikelihood:
    """The likelihood that a fit maximised, and its maximum.

    Attributes
    ----------
    engine : value and derivatives
    estimate : the maximum
    held : (k + 1,) components that were not estimated
    """

    engine: LikelihoodEngine
    estimate: Estimate
    held: BoolArray

    @classmethod
    def of(cls, access: RowAccess) -> MaximisedLikelihood:
        """Return the likelihood of a fit by REML or ML that converged.

        Raises
        ------
        EstimationError
            If the fit is by another method, or did not converge.
        """
        estimate = access.estimate
        if estimate.method not in ("reml", "ml"):
            raise EstimationError(
                f"method {estimate.method!r} does not maximise a likelihood, and has no profile; "
                "fit with method='reml' or 'ml', or use another interval"
            )
        if estimate.certificate is None:
            raise EstimationError(f"there is no profile: {estimate.status}")
        if not estimate.converged:
            raise EstimationError(
                f"a profile needs a maximum, and the fit did not converge: {estimate.status}"
            )
        if access.data.statistics.blocks is not None:
            if estimate.held:
                raise EstimationError(
                    "a profile of covariance matrices and residual groups is for fits in which "
                    f"all are estimated, and this one holds {', '.join(estimate.held)}; use "
                    "interval='wald', or fit without hold=",
                    term=estimate.held[0],
                )
            matrices = MatricesLikelihood(access.data.statistics, reml=estimate.method == "reml")
            return MaximisedMatrices(matrices, estimate, np.zeros(len(estimate.names), dtype=bool))
        name = estimate.certificate.engine
        engine = choose_engine(
            access.data.statistics,
            name if name in ("strata", "blocked") else "auto",
            reml=estimate.method == "reml",
            names=estimate.names[:-1],
            repeated=True,
        )
        held = np.array([name in estimate.held for name in estimate.names])
        return cls(engine.expanded(estimate.values, held), estimate, held)

    def profile(
        self, constraint: Constraint, name: str, alpha: float, points: int = 9
    ) -> ProfileCurve:
        """Return the profile of a quantity of the components."""
        return profile_quantity(
            self.engine,
            self.estimate.values,
            constraint,
            held=self.held,
            alpha=alpha,
            name=name,
            points=points,
        )

    def profile_ratio(
        self, q: Quantities, name: str, alpha: float, points: int = 9
    ) -> ProfileCurve:
        """Return the profile of one linear form, ratio or share of components."""
        constraint = constraint_of(q)
        if constraint is not None:
            return self.profile(constraint, name, alpha, points)
        # The denominator of a required size can be negative, that of its reciprocal cannot.
        turned = RatioConstraint(_denominator(q), q.a[0])
        return self.profile(turned, name, alpha, points).reciprocal()

    def nearby_ends(self, alpha: float) -> NearbyEnds | None:
        """Return a search for interval ends with confidence 1 − alpha, without known ends.

        None if each profile has to be traced.
        """
        from scipy.special import ndtri

        top = self.engine.loglike(self.estimate.values)
        return NearbyEnds(self.engine, self.held, top - 0.5 * float(ndtri(0.5 * alpha)) ** 2)

    def profile_component(self, place: int, name: str, alpha: float) -> ProfileCurve:
        """Return the profile of a component."""
        if self.held[place]:
            raise EstimationError(
                f"component {self.estimate.names[place]!r} was held, not estimated: it has no "
                "profile; fit without hold=",
                term=self.estimate.names[place],
            )
        weights = np.zeros(self.held.size)
        weights[place] = 1.0
        return self.profile(LinearConstraint(weights), name, alpha)

    def profile_coefficient(
        self, place: int, name: str, alpha: float, design: Any
    ) -> ProfileCurve:
        """Return the profile of a fixed effect."""
        return profile_fixed_effect(
            self.engine,
            self.estimate.values,
            design.transform[place],
            offset=float(design.transformed_origin[place]),
            held=self.held,
            alpha=alpha,
            name=name,
        )


@dataclass(frozen=True, slots=True)
class MaximisedMatrices(MaximisedLikelihood):
    """The likelihood of a model of covariance matrices, and its maximum."""

    engine: MatricesLikelihood  # type: ignore[assignment]

    def profile(
        self, constraint: Constraint, name: str, alpha: float, points: int = 9
    ) -> ProfileCurve:
        """Return the profile of a quantity of the components."""
        return profile_matrices(
            self.engine, self.estimate.values, constraint, alpha=alpha, name=name, points=points
        )

    def nearby_ends(self, alpha: float) -> None:
        """Return None: each profile is traced."""

    def profile_coefficient(
        self, place: int, name: str, alpha: float, design: Any
    ) -> ProfileCurve:
        """Refuse: the profile of a fixed effect."""
        raise EstimationError(
            f"the profile of the fixed effect {name} is for models of intercepts with one "
            "residual variance; use interval='wald' or fixed_effects()",
            column=name,
        )


def constraint_of(q: Quantities) -> LinearConstraint | RatioConstraint | None:
    """Return the constraint of one quantity; None if its denominator can be negative."""
    if q.b is None:
        return LinearConstraint(q.a[0])
    b = _denominator(q)
    return RatioConstraint(q.a[0], b) if (b >= 0.0).all() else None


def _denominator(q: Quantities) -> FloatArray:
    assert q.b is not None
    return q.b[0] + (q.a[0] if q.form == "share" else 0.0)


def profiles(
    access: RowAccess,
    exog_names: Sequence[str],
    what: str | Sequence[str] | None,
    alpha: float,
) -> Profile:
    """Return the profiles of components and fixed effects.

    Parameters
    ----------
    access : the fit with its rows
    exog_names : of the fixed effects
    what : names of parameters, or quantities of components as text; all estimated components if
        not given
    alpha : intervals have confidence 1 − alpha

    Raises
    ------
    EstimationError
        If a name is not known, or the fit has no profile or it cannot be traced.
    """
    check_alpha(alpha)
    names, fixed = access.estimate.names, tuple(exog_names)
    matrices = access.data.design.formula.matrices
    requested = _requested(what, names, fixed, access.estimate.held, matrices)
    likelihood = MaximisedLikelihood.of(access)
    curves = {}
    for name, parameter in requested.items():
        if isinstance(parameter, Quantities):
            curves[name] = likelihood.profile_ratio(parameter, name, alpha)
        elif isinstance(parameter, Smooth):
            curves[name] = likelihood.profile(_smooth_constraint(parameter), name, alpha)
        elif parameter.is_fixed:
            design = access.data.design
            curves[name] = likelihood.profile_coefficient(parameter.place, name, alpha, design)
        else:
            curves[name] = likelihood.profile_component(parameter.place, name, alpha)
    return Profile(curves, alpha)


@dataclass(frozen=True, slots=True)
class _Parameter:
    place: int
    is_fixed: bool


def _requested(
    what: str | Sequence[str] | None,
    names: tuple[str, ...],
    fixed: tuple[str, ...],
    held: tuple[str, ...],
    matrices: Sequence[EffectMatrix],
) -> dict[str, _Parameter | Quantities | Smooth]:
    """Return the parameter, or the quantity of components, for every requested name."""
    parameters = parameter_names(names)
    if what is None:
        free = zip(names, parameters, strict=True)
        names_of: Sequence[str] = [full for name, full in free if name not in held]
    else:
        names_of = [what] if isinstance(what, str) else list(what)
    if not names_of:
        raise EstimationError("what= names no parameter, or all components are held")
    known = {name: _Parameter(t, is_fixed=False) for t, name in enumerate(names)}
    known |= {name: _Parameter(t, is_fixed=False) for t, name in enumerate(parameters)}
    # As in `params`, a name that a fixed effect and a component share means the fixed effect.
    known |= {name: _Parameter(j, is_fixed=True) for j, name in enumerate(fixed)}
    requested: dict[str, _Parameter | Quantities | Smooth] = {}
    for name in names_of:
        if name not in known:
            correlation = read_correlation(name, names, matrices)
            requested[name] = correlation or _quantity(name, names, fixed)
            continue
        parameter = known[name]
        stays = parameter.is_fixed or names[parameter.place] in fixed
        requested[name if stays else names[parameter.place]] = parameter
    return requested


def _quantity(text: str, names: tuple[str, ...], fixed: tuple[str, ...]) -> Quantities:
    try:
        quantity = read_quantity(text, names)
    except EstimationError as error:
        raise EstimationError(
            f"{text!r} is neither a parameter of this fit (the fixed effects are "
            f"{', '.join(fixed) or 'none'}) nor a quantity of its components: {error}"
        ) from None
    if quantity.form == "root":
        raise EstimationError(
            f"{text!r} is a root: profile the variance instead, or use res.quantity(…, "
            "interval='profile') for the interval of the root"
        )
    return quantity


PROFILE = "profile likelihood"


@dataclass(frozen=True, slots=True)
class FromProfile:
    """Intervals from the profile likelihood of each quantity.

    Parameters
    ----------
    likelihood : that the fit maximised
    """

    likelihood: MaximisedLikelihood

    @property
    def interval(self) -> str:
        """The name of this source of intervals, ``"profile"``."""
        return "profile"

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        """Return intervals with confidence 1 − alpha.

        Sums of held components have no interval (nan); coefficients of them are known.

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
            interval = self._one(quantities.take(slice(first, first + 1)), alpha, nearby)
            notes += [note for note in interval[2] if note not in notes]
            for place, factor in alike.items():
                low[place], high[place] = (
                    _of_multiple(end, quantities.form, factor) for end in interval[:2]
                )
        return Limits(low, high, PROFILE, tuple(notes))

    def _one(
        self, q: Quantities, alpha: float, nearby: profile.NearbyEnds | None
    ) -> tuple[float, float, tuple[str, ...]]:
        a = q.a[0]
        if self._is_known(a) and (q.b is None or self._is_known(q.b[0])):
            if q.form != "linear":
                known = float(q.values(self.likelihood.estimate.values)[0])
                return known, known, ()
            return np.nan, np.nan, ("a quantity made of held components only has no interval",)
        whole = Quantities("linear", q.a) if q.form == "root" else q
        low, high, notes = self._ends(whole, alpha, nearby)
        if q.form == "root":
            return float(np.sqrt(max(low, 0.0))), float(np.sqrt(high)), notes
        return low, high, notes

    def _ends(
        self, q: Quantities, alpha: float, nearby: profile.NearbyEnds | None
    ) -> tuple[float, float, tuple[str, ...]]:
        """Return the ends of an interval, from a similar interval if one is known."""
        constraint = None if nearby is None else constraint_of(q)
        if nearby is not None and constraint is not None:
            ends = nearby.interval(constraint)
            if ends is not None:
                return *ends, ()
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
        curve = self.likelihood.profile(_smooth_constraint(q), "a quantity", alpha, points=0)
        return Limits(np.array([curve.low]), np.array([curve.high]), PROFILE, curve.notes)

    def _is_known(self, weights: FloatArray) -> bool:
        return not (weights[~self.likelihood.held] != 0.0).any()


def _smooth_constraint(q: Smooth) -> SmoothConstraint:
    nothing = np.zeros(0)
    low, high = (-1.0, 1.0) if q.scale == "correlation" else (-np.inf, np.inf)
    return SmoothConstraint(
        lambda v: q.function(v, nothing), lambda v: q.slopes(v, nothing)[0], low, high
    )


def _alike(q: Quantities) -> dict[int, dict[int, float]]:
    """Return groups of quantities with one profile: by the first place, the factor of each place.

    A multiple of the weights multiplies a linear form, a ratio, or the odds of a share: error
    variances for other numbers of levels of one facet have a single profile, and so have their
    coefficients.
    """
    first_of: dict[bytes, tuple[int, FloatArray]] = {}
    alike: dict[int, dict[int, float]] = {}
    for place in range(len(q)):
        weights = [q.a[place]] if q.b is None else [q.a[place], q.b[place]]
        sizes = np.array([np.abs(w).max(initial=0.0) or 1.0 for w in weights])
        # Rounding makes 1/30 and 2/60 of a component the same direction.
        key = np.round(np.concatenate([w / s for w, s in zip(weights, sizes, strict=True)]), 14)
        first, first_sizes = first_of.setdefault((key + 0.0).tobytes(), (place, sizes))
        ratio = sizes / first_sizes
        alike.setdefault(first, {})[place] = float(ratio[0] / (ratio[1] if len(ratio) > 1 else 1))
    return alike


def _of_multiple(end: float, form: str, factor: float) -> float:
    """Return the end of the interval of a quantity whose weights are multiplied by a factor."""
    if form == "root":
        return end * float(np.sqrt(factor))
    if form != "share" or factor == 1.0:
        return end * factor
    return factor * end / (1.0 - end + factor * end)
