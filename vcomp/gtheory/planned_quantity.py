"""Quantities of components and a plan, with estimates, standard errors and intervals.

A quantity is a component, a sum or ratio of components, what a D-study projects, Φ(λ), a required
size, or a function that the user writes. The plan comes from :mod:`~vcomp.gtheory.plan`, the
intervals from :mod:`vcomp.inference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.exceptions import EstimationError, PlanError, check_alpha, guarded
from vcomp.gtheory.plan import DStudyPlan, PlanOptions, make_plans
from vcomp.gtheory.projection import (
    PLANNED,
    CoefficientName,
    planned_limits,
    planned_quantity,
    weights,
)
from vcomp.gtheory.requirement import (
    MeanOfScores,
    check_requirement,
    mean_in_universe,
    not_below_phi,
    phi_lambda,
    read_cuts,
    required_size,
    requirement_ratio,
    source_in_universe,
)
from vcomp.gtheory.study import DStudy
from vcomp.gtheory.study_record import project
from vcomp.gtheory.universe import all_sizes
from vcomp.inference import (
    EstimatedQuantity,
    Projected,
    Quantities,
    Smooth,
    VarianceComponents,
    read_correlation,
    read_quantity,
    smooth_of,
)
from vcomp.inference.intervals import (
    LOCAL_INTERVALS,
    FromComponents,
    IntervalName,
    IntervalSource,
    Limits,
    check_source,
    plugged_source,
)

if TYPE_CHECKING:
    from vcomp.inference.resampling import Replicates

DSTUDY_QUANTITIES = (*PLANNED, "Phi_lambda", "n")
"""Names of quantities that need a plan."""

_OPTIONS = {"n": ("goal", "coefficient", "facet"), "Phi_lambda": ("cut",)}


def dstudy(
    components: VarianceComponents,
    design: str | None = None,
    *,
    object: str | Sequence[str] | None = None,  # noqa: A002 - the word of the field
    fixed: str | Sequence[str] = (),
    universe: Mapping[str, float] | None = None,
    within: str | Sequence[str] = (),
    layout: Any = None,
    sizes: Mapping[str, Any] | None = None,
    alpha: float = 0.05,
    negative: Projected = "zero",
    interval: IntervalName | IntervalSource = "auto",
    **n: Any,
) -> DStudy:
    """Return error variances, Eρ² and Φ of planned measurements, with intervals.

    Parameters
    ----------
    components : of the G-study
    design : in Brennan's notation, such as ``"p x (a:i)"``; the G-study's own if None
    object : the object of measurement: a facet, or several (``"doctor:patient"``); if None, the
        first facet of `design` without a size, see :func:`~vcomp.gtheory.make_plans`
    fixed : facets whose planned levels are the whole universe of generalization: what they add to
        differences between objects is universe score
    universe : N' of facets with finite universes, ``{"topic": 500}``; of all others it is infinite
    within : facets of the object (``"school"`` of ``"school:pupil"``) within whose levels objects
        are compared: variance that all objects in a level share does not distinguish them
    layout : instead of sizes the planned observations of every object, a row each, as a table
        with a column for every facet but the object's; or several tables by name. A layout may be
        unbalanced in any way; every component has its exact divisor. If objects have rows of
        their own (the table has the object's columns), σ²(δ) contains the effects of the
        different levels at which they are observed
    sizes : like `n`, for facets whose names are not Python names, or are names of parameters
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` sets negative components to zero, ``"keep"`` uses them as estimated
    interval : how intervals are made. ``"mls"``: modified large sample; ``"robust"``: the same
        with degrees of freedom from the data, for effects that are not normal, such as those of
        0/1 scores; ``"f"``: F quantiles of a complete two-way table (Feldt for Eρ², Arteaga et al.
        for Φ); ``"log"``: the delta method
        on the log or logit scale; ``"wald"``: on the natural scale; ``"auto"``: robust if the
        components have what it needs of the rows of a fit, else F if the table is complete and
        two-way, else modified large sample. Or another source of intervals
    **n : one size or several for each facet; of a nested facet within those it is nested in, or
        :class:`~vcomp.gtheory.Counts` where these differ. All combinations are planned. A facet
        without a size has the G-study's

    Raises
    ------
    PlanError
        The plan is not possible, or the G-study cannot support it.

    References
    ----------
    Bodoff and Li (2007), SIGIR, eq. (2)-(6), pp. 370-371, whose components the example has;
    Brennan (2001), Generalizability Theory, chap. 4 and 5.

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> published = {"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002, "ia": .00143,
    ...              "pia": .00176}
    >>> study = dstudy(from_components(published).components, i=20, a=3)
    >>> study.table[["i", "a", "abs_err_var", "Erho2", "Phi"]].round(5)
        i  a  abs_err_var    Erho2      Phi
    0  20  3      0.00149  0.91865  0.83474

    The same three assessors in all measurements; then a different assessor for each topic:

    >>> fixed = dstudy(from_components(published).components, i=20, a=3, fixed="a")
    >>> fixed.table[["universe_var", "Erho2", "Phi"]].round(5)
       universe_var    Erho2      Phi
    0       0.00752  0.91947  0.83548
    >>> dstudy(from_components(published).components, "p x (a:i)", i=20, a=1).table["Phi"].round(5)
    0    0.8255
    Name: Phi, dtype: float64
    """
    plan = make_plans(
        components,
        design,
        object,
        all_sizes(sizes, n),
        fixed=fixed,
        universe=universe,
        within=within,
        layout=layout,
    )
    if not isinstance(interval, str):
        source = check_source(interval)
    else:
        made = None if interval in LOCAL_INTERVALS else plugged_source(interval, components)
        source = FromComponents(components, interval, negative) if made is None else made
    return project(DStudy, components, plan, alpha=alpha, negative=negative, source=source)


@dataclass(frozen=True, slots=True)
class _QuantityOptions:
    """Plan and options of a quantity; see :meth:`HasDStudies.quantity`."""

    plan: PlanOptions
    negative: Projected | None = None
    goal: float | None = None
    coefficient: CoefficientName | None = None
    facet: str | None = None
    cut: float | None = None


class HasDStudies:
    """D-studies and arbitrary quantities of components with a design.

    Derived classes define the components, the mean of the scores and the source of the intervals.
    """

    __slots__ = ()

    def _components(self) -> VarianceComponents:
        """Return the components, with any names."""
        raise NotImplementedError

    def _mean_of_scores(self) -> MeanOfScores:
        raise NotImplementedError

    def _source(
        self, interval: IntervalName | IntervalSource | Replicates, negative: Projected
    ) -> IntervalSource:
        """Return the source of intervals, with a policy for negative estimates."""
        raise NotImplementedError

    def _planned_components(self) -> VarianceComponents:
        """Return the components that a D-study starts from."""
        return self._components()

    def _planned_source(
        self, interval: IntervalName | IntervalSource | Replicates, negative: Projected
    ) -> IntervalSource:
        """Return the source of intervals of D-studies."""
        return self._source(interval, negative)

    def _residuals(self, source: IntervalSource) -> VarianceComponents | None:
        """Return the components with the residual variance of each level; None with one.

        They have the influences by level that the source of the intervals has.
        """
        return None

    def _planned_notes(self) -> tuple[str, ...]:
        """Return sentences on the components that a D-study starts from."""
        return ()

    @guarded
    def dstudy(
        self,
        design: str | None = None,
        *,
        object: str | Sequence[str] | None = None,  # noqa: A002 - the word of the field
        fixed: str | Sequence[str] = (),
        universe: Mapping[str, float] | None = None,
        within: str | Sequence[str] = (),
        layout: Any = None,
        sizes: Mapping[str, Any] | None = None,
        alpha: float = 0.05,
        negative: Projected = "zero",
        interval: IntervalName | IntervalSource | Replicates = "auto",
        **n: Any,
    ) -> DStudy:
        """Return error variances, Eρ² and Φ of planned measurements, with intervals.

        Parameters
        ----------
        design : in Brennan's notation, ``"p x (a:i)"``; the G-study's own if None
        object : the object of measurement, a facet or several (``"doctor:patient"``); if None,
            the first facet without a size
        fixed : facets whose planned levels are the whole universe of generalization
        universe : N' of facets with finite universes, ``{"topic": 500}``
        within : facets of the object within whose levels objects are compared
        layout : instead of sizes a table of the planned observations, or several by name, see
            :func:`vcomp.gtheory.dstudy`
        sizes, **n : for each facet one size or several, ``topic=[25, 50]``, or
            :class:`vcomp.gtheory.Counts`; all combinations are planned. A facet without a size
            has the G-study's. Without any size the plan is the G-study's own, with the exact
            effective sizes of unbalanced data. ``sizes`` is for facets whose names are those of
            other parameters
        alpha : intervals have confidence 1 − alpha
        negative : ``"zero"`` sets negative components to zero, ``"keep"`` uses them as estimated
        interval : how intervals are made, as in
            :meth:`VarianceComponentsResults.conf_int`. ``"f"``: F quantiles (Feldt, Arteaga et
            al.) for Eρ² and Φ of a complete two-way design; ``"auto"`` has them where intervals
            are not robust. ``"profile"`` and ``"bootstrap"`` need the rows of a fit

        Raises
        ------
        PlanError
            If a facet is not known, a size is not positive or larger than its universe, or the
            design needs components that the G-study confounds.
        EstimationError
            If the interval is not known, or not available here.

        References
        ----------
        Brennan (2001), Generalizability Theory, chap. 4 and 5; Bodoff and Li (2007), SIGIR,
        Table 4, p. 372, for the second example.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> res.dstudy(topic=[3, 6]).table[["topic", "Erho2", "Phi"]].round(3)
           topic  Erho2    Phi
        0      3  0.809  0.772
        1      6  0.895  0.871
        >>> trec = vcomp.from_components({"p": .00751, "i": .01596, "a": 0, "pi": .01258,
        ...                               "pa": .00002, "ia": .00143, "pia": .00176})
        >>> trec.dstudy(i=[50, 100], a=[1, 2]).table[["Phi", "Erho2"]].round(3)
             Phi  Erho2
        0  0.920  0.961
        1  0.925  0.964
        2  0.957  0.979
        3  0.960  0.981
        """
        planned, source = self._planned_components(), self._planned_source(interval, negative)
        study = dstudy(
            planned,
            design,
            object=object,
            fixed=fixed,
            universe=universe,
            within=within,
            layout=layout,
            sizes=all_sizes(sizes, n, planned.facet_names, alpha=alpha, object=object),
            alpha=alpha,
            negative=negative,
            interval=source,
        )
        notes, residuals = (*study.notes, *self._planned_notes()), self._residuals(source)
        return replace(study, mean=self._mean_of_scores(), notes=notes, residuals=residuals)

    @guarded
    def quantity(
        self,
        what: str | Callable[..., Any],
        design: str | None = None,
        *,
        object: str | Sequence[str] | None = None,  # noqa: A002 - the word of the field
        fixed: str | Sequence[str] = (),
        universe: Mapping[str, float] | None = None,
        within: str | Sequence[str] = (),
        layout: Any = None,
        sizes: Mapping[str, Any] | None = None,
        alpha: float = 0.05,
        negative: Projected | None = None,
        interval: IntervalName | IntervalSource | Replicates = "auto",
        goal: float | None = None,
        coefficient: CoefficientName | None = None,
        facet: str | None = None,
        cut: float | None = None,
        **n: Any,
    ) -> EstimatedQuantity:
        """Return estimate, standard error and interval of any quantity made of components.

        Parameters
        ----------
        what : one of

            a component, a sum of components, a ratio of two, a root
                ``"sys"``, ``"sys + topic"``, ``"sys / (sys + Residual/50)"``, ``"sd(sys)"``,
                ``"share(sys)"``, ``"total"``
            a correlation of random slopes
                ``"corr(g[(Intercept),x])"``, of a covariance
            a quantity that a D-study projects
                ``"universe_var"``, ``"rel_err_var"`` σ²(δ), ``"abs_err_var"`` σ²(Δ), ``"Erho2"``,
                ``"Phi"``, ``"rel_sem"`` and ``"abs_sem"`` (standard errors of measurement),
                ``"se_difference"`` √(2σ²(δ)) of two objects, ``"rel_signal_noise"`` and
                ``"abs_signal_noise"``; ``"Phi_lambda"``, with the cut score ``cut``; ``"n"``, the
                required size of ``facet`` for ``goal`` (.95) of ``coefficient`` (``"Erho2"``)
            a function
                of a pandas Series of the components, such as ``lambda v: v["sys"] ** 0.5``
        design, object, fixed, universe, within, layout, sizes, **n : the plan of a D-study, as in
            :meth:`dstudy`
        alpha : the interval has confidence 1 − alpha
        negative : ``"zero"`` sets negative components to zero, ``"keep"`` uses them as estimated.
            None is ``"zero"`` for shares and for projections of a D-study, else ``"keep"``
        interval : how the interval is made, as in :meth:`dstudy`; functions have ``"wald"``,
            ``"log"``, ``"profile"`` and ``"bootstrap"``
        goal, coefficient, facet : of ``"n"``
        cut : of ``"Phi_lambda"``, on the scale of the scores

        Raises
        ------
        EstimationError
            If the quantity or the interval is not known, or the quantity has no such interval.
        PlanError
            If the plan is not possible or has several rows, an option is not one of the quantity,
            or alpha is not between 0 and 1.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> print(res.quantity("sys / (sys + Residual)", alpha=0.2, interval="mls"))
        sys / (sys + Residual) = 0.586 (standard error 0.26), 80 % interval [0.225, 0.868] by
        modified large sample (Graybill and Wang 1980; Ting et al. 1990)
        >>> res.quantity("Phi", topic=6).estimate == float(res.dstudy(topic=6).table["Phi"][0])
        True
        >>> values = {"p": 2.0, "Residual": 4.0}
        >>> published = vcomp.from_components(values, cov=[[0.5, 0], [0, 0.1]])
        >>> print(published.quantity("p", interval="wald"))
        p = 2 (standard error 0.707), 95 % interval [0.614, 3.39] by Wald
        """
        components = self._components()
        source = self._source
        if _is_planned(what, components):
            components, source = self._planned_components(), self._planned_source
        facets = components.facet_names
        wanted = all_sizes(sizes, n, facets, alpha=alpha, object=object, goal=goal, cut=cut)
        plan = PlanOptions(design, object, wanted, fixed, universe, within, layout)
        options = _QuantityOptions(plan, negative, goal, coefficient, facet, cut)
        return _quantity(
            components,
            what,
            lambda policy: source(interval, policy),
            self._mean_of_scores(),
            options,
            alpha,
        )


def _is_planned(what: Any, components: VarianceComponents) -> bool:
    """Return whether a quantity is one of a D-study, and no component of its name."""
    return isinstance(what, str) and what in DSTUDY_QUANTITIES and what not in components.names


def _quantity(
    components: VarianceComponents,
    what: str | Callable[..., Any],
    source_of: Callable[[Projected], IntervalSource],
    mean: MeanOfScores,
    options: _QuantityOptions,
    alpha: float,
) -> EstimatedQuantity:
    """Return estimate, standard error and interval; see :meth:`HasDStudies.quantity`."""
    check_alpha(alpha)
    given = {k: getattr(options, k) for k in ("goal", "coefficient", "facet", "cut")}
    allowed = _OPTIONS.get(what, ()) if isinstance(what, str) else ()
    strange = [k for k, value in given.items() if value is not None and k not in allowed]
    if strange:
        homes = {k: name for name, own in _OPTIONS.items() for k in own}
        home = homes[strange[0]]
        shadowed = f"; {home!r} is a component here" if home in components.names else ""
        raise PlanError(
            f"{strange[0]}= is an option of {home!r}, not of {what!r}{shadowed}", column=strange[0]
        )
    if isinstance(what, str) and _is_planned(what, components):
        return _of_plan(
            components, what, source_of(options.negative or "zero"), mean, options, alpha
        )
    if options.plan.is_given:
        names = [name for name in DSTUDY_QUANTITIES if name not in components.names]
        raise PlanError(
            f"{what!r} needs no plan: design=, object=, fixed=, universe=, within=, layout= and "
            f"sizes are for {', '.join(names)}"
        )
    default: Projected = "keep"
    quantity: Quantities | Smooth | None
    if isinstance(what, str):
        name = what
        quantity = read_correlation(what, components.names, components.matrices)
        if quantity is None:
            quantity = read_quantity(what, components.names, DSTUDY_QUANTITIES)
            # Shares lie between 0 and 1, as those of the tables do.
            default = "zero" if quantity.form == "share" else "keep"
    elif callable(what):
        name = getattr(what, "__name__", "function").replace("<lambda>", "function")
        quantity = smooth_of(what, components.names)
    else:
        raise EstimationError(
            f"a quantity is a text such as 'sys / total', or a function of the components; not "
            f"{what!r}"
        )
    source = source_of(options.negative or default)
    local = _local(source, components, mean, options, default)
    return _estimated(name, quantity, source, local, alpha)


def _local(
    source: IntervalSource,
    components: VarianceComponents,
    mean: MeanOfScores,
    options: _QuantityOptions,
    default: Projected,
) -> FromComponents:
    negative = options.negative or default
    return FromComponents.beside(source, components, negative, (mean.beta, mean.cov_beta))


def _estimated(
    name: str, q: Quantities | Smooth, source: IntervalSource, local: FromComponents, alpha: float
) -> EstimatedQuantity:
    """Return a quantity with its interval."""
    value, se = float(local.values(q)[0]), float(local.standard_errors(q)[0])
    if np.isnan(value):
        raise EstimationError(
            f"{name} is not defined at these estimates: a denominator is zero or negative, or "
            "there is a root of a negative number"
        )
    if isinstance(q, Quantities) and _is_held(q, local.components):
        held = ("no error: it is held, not estimated",)
        return EstimatedQuantity(name, value, np.nan, np.nan, np.nan, alpha, "", held)
    limits = source.limits(q, alpha)
    low, high = float(limits.low[0]), float(limits.high[0])
    notes = [*limits.notes, *_replaced_by_zero(q, local)]
    if np.isnan(low):
        notes.append(
            "no interval: its components have no standard error, or the covariance matrix of "
            "the components is not known"
        )
    elif np.isnan(se):
        notes.append(
            "no standard error: a component that it depends on is at its bound, or replaced by 0"
        )
    return EstimatedQuantity(
        name, value, se, low, high, alpha, limits.interval_method, tuple(notes)
    )


def _is_held(q: Quantities, components: VarianceComponents) -> bool:
    used = q.used[0]
    held = np.isin(np.array(components.names, dtype=object), list(components.held))
    return bool(used.any() and held[used].all())


def _replaced_by_zero(q: Quantities | Smooth, local: FromComponents) -> list[str]:
    """Return a note on the negative estimates that are replaced by zero."""
    names = local.components.names
    used = q.used[0] if isinstance(q, Quantities) else np.ones(len(names), dtype=bool)
    zeroed = [f"σ²({n})" for n, u in zip(names, used, strict=True) if u and n in local.used.zeroed]
    return [f"{', '.join(zeroed)} below zero replaced by 0"] if zeroed else []


def _of_plan(
    components: VarianceComponents,
    what: str,
    source: IntervalSource,
    mean: MeanOfScores,
    options: _QuantityOptions,
    alpha: float,
) -> EstimatedQuantity:
    plan = options.plan.plans(components)
    if len(plan) > 1:
        raise PlanError(
            f"{what!r} is estimated for one plan, and these sizes make {len(plan)}; use "
            "dstudy(…).table for several"
        )
    local = _local(source, components, mean, options, "zero")
    if what == "n":
        return _required(components, plan, source, local, options, alpha)
    if what == "Phi_lambda":
        w, cuts = weights(components, plan), read_cuts(options.cut)
        if len(cuts) > 1:
            raise PlanError(
                f"{what!r} is estimated for one cut score, and cut= has {len(cuts)}; use "
                "dstudy(…).phi_lambda(cut) for several"
            )
        source = source_in_universe(source, mean, components, plan)
        mean = mean_in_universe(mean, components, plan)
        local = _local(source, components, mean, options, "zero")
        index = phi_lambda(w.universe[0], w.absolute[0], mean, cuts[0])
        if not isinstance(source, FromComponents):
            return _estimated(what, index, source, local, alpha)
        phi = planned_quantity(w, "Phi")
        of_phi = planned_limits("Phi", phi, components, plan, source, alpha)
        limits = not_below_phi(source.limits(index, alpha), index, phi, of_phi, local)
        return _estimated(what, index, _Fixed(limits), local, alpha)
    q = planned_quantity(weights(components, plan), what)
    limits = planned_limits(what, q, components, plan, source, alpha)
    return _estimated(what, q, _Fixed(limits), local, alpha)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Interval source that holds one computed interval."""

    found: Limits
    interval: str = "f"

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        return self.found


def _required(
    components: VarianceComponents,
    plan: DStudyPlan,
    source: IntervalSource,
    local: FromComponents,
    options: _QuantityOptions,
    alpha: float,
) -> EstimatedQuantity:
    """Return the size of a facet that a coefficient needs, not rounded up."""
    goal = 0.95 if options.goal is None else options.goal
    coefficient: CoefficientName = options.coefficient or "Erho2"
    facet = check_requirement(plan, goal, coefficient, options.facet)
    ratio = requirement_ratio(components, plan, goal, coefficient, facet)
    size = required_size(
        components,
        source,
        plan,
        negative=local.negative,
        goal=goal,
        coefficient=coefficient,
        facet=facet,
        alpha=alpha,
    )
    if size.why:
        notes = (f"out of reach: {size.why}",)
        return EstimatedQuantity(
            "n", size.n, np.nan, size.low, size.high, alpha, size.interval_method, notes
        )
    value, se = float(local.values(ratio)[0]), float(local.standard_errors(ratio)[0])
    notes = (f"{display.levels_of(facet)} for {coefficient} = {goal}: {display.count(size.n)}",)
    return EstimatedQuantity(
        "n", value, se, size.low, size.high, alpha, size.interval_method, notes
    )
