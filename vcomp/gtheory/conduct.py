"""A D-study from its arguments: read the plan, choose the source of intervals, project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vcomp.gtheory import study_record
from vcomp.gtheory.plan import DStudyPlan, make_plans
from vcomp.gtheory.study import DStudy
from vcomp.gtheory.universe import all_sizes
from vcomp.inference import Projected, VarianceComponents
from vcomp.inference.intervals import (
    FromComponents,
    IntervalName,
    IntervalSource,
    check_source,
)

__all__ = [
    "dstudy",
    "project",
]


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
    """Return what planned measurements would be worth.

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
        are compared: what all objects of a level share tells no objects apart
    layout : instead of sizes the planned observations of every object, a row each, as a table
        with a column for every facet but the object's; or several tables by name. Unbalanced
        designs of any kind are given so, and every component is divided exactly. Where objects
        have rows of their own (the table has their columns), σ²(δ) holds what they differ by for
        having met other levels
    sizes : like `n`, for facets whose names are no Python names or those of other parameters
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` sets negative components to zero, ``"keep"`` uses them as estimated
    interval : how intervals are made. ``"mls"``: modified large sample; ``"f"``: F quantiles of a
        complete two-way table (Feldt for Eρ², Arteaga et al. for Φ); ``"log"``: the delta method
        on the log or logit scale; ``"wald"``: on the natural scale; ``"auto"``: F if the table is
        complete and two-way, else modified large sample. Or another source of intervals
    **n : one size or several for each facet; of a nested facet within those it is nested in, or
        :class:`~vcomp.gtheory.Counts` where these differ. All combinations are planned. A facet
        without a size takes the G-study's

    Raises
    ------
    PlanError
        The plan is not one that can be, or the G-study cannot support it.

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

    The same three assessors for good, and a topic judged by an assessor of its own:

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
    source: IntervalSource
    if isinstance(interval, str):
        source = FromComponents(components, interval, negative)
    else:
        source = check_source(interval)
    return project(components, plan, alpha=alpha, negative=negative, source=source)


def project(
    components: VarianceComponents,
    plan: DStudyPlan,
    *,
    alpha: float = 0.05,
    negative: Projected = "zero",
    source: IntervalSource | None = None,
) -> DStudy:
    """Return the D-study of a plan; see :func:`~vcomp.gtheory.study_record.project`.

    Examples
    --------
    >>> from vcomp.gtheory import from_components, make_plans
    >>> g = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).components
    >>> project(g, make_plans(g, n={"i": 10})).columns["Erho2"].round(4)
    array([0.8333])
    """
    return study_record.project(
        DStudy, components, plan, alpha=alpha, negative=negative, source=source
    )
