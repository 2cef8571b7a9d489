"""The D-study: what a planned measurement would be worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.components import REPLICATE, TwoWayMeanSquares, VarianceComponents
from vcomp.dstudy import intervals
from vcomp.dstudy.notes import study_notes
from vcomp.dstudy.plan import DStudyPlan, make_plans
from vcomp.dstudy.project import (
    gradients,
    quantities,
    take_components,
    weights,
)
from vcomp.dstudy.requirement import Requirement, required_size
from vcomp.exceptions import PlanError, check_alpha

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DStudy", "dstudy", "project"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DStudy:
    """Error variances and coefficients of planned measurements.

    Attributes
    ----------
    plan : design, object of measurement and sizes
    components : of the G-study, as estimated
    alpha : intervals have confidence 1 − alpha
    negative : how negative components are taken, ``"zero"`` or ``"keep"``
    columns : name of the quantity → (m,) values, one a plan; see :attr:`table`
    interval_methods : quantity → how its interval was made; those without one are missing
    notes : what a reader should know of these numbers

    Examples
    --------
    >>> from vcomp.dstudy import from_components
    >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 20])
    >>> study.table[["i", "Erho2", "Phi"]].round(3)
        i  Erho2    Phi
    0  10  0.833  0.806
    1  20  0.909  0.893
    """

    plan: DStudyPlan
    components: VarianceComponents
    alpha: float
    negative: str
    columns: Mapping[str, FloatArray]
    interval_methods: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """One row a plan.

        The sizes of the facets under their names; ``universe_var``, ``rel_err_var`` σ²(δ),
        ``abs_err_var`` σ²(Δ), ``Erho2``, ``Phi``; of each of the last four its standard error
        ``_se`` and the ends ``_low`` and ``_high`` of its interval, nan where not estimable.
        Limits of coefficients below 0 are cut at 0.

        Examples
        --------
        >>> from vcomp.dstudy import from_components
        >>> list(from_components({"p": 0.5, "i:p": 1.0}).dstudy(i=10).table.columns[:6])
        ['i', 'universe_var', 'rel_err_var', 'abs_err_var', 'Erho2', 'Phi']
        """
        import pandas as pd

        sizes = zip(*self.plan.sizes, strict=True)
        n = {f: _whole(np.array(s)) for f, s in zip(self.plan.facets, sizes, strict=True)}
        return pd.DataFrame({**n, **self.columns}, index=range(len(self.plan.sizes)))

    def required(
        self, target: float = 0.95, coefficient: str = "Erho2", facet: str | None = None
    ) -> Requirement:
        """Return how many levels of `facet` reach `target`, with an interval.

        The other facets are held at the sizes of the *first* plan; a facet nested in `facet` keeps
        its size within each level. See :func:`~vcomp.dstudy.required_size`.

        Parameters
        ----------
        target : of the coefficient, between 0 and 1
        coefficient : ``"Erho2"`` or ``"Phi"``
        facet : may be left out where only one has a size

        Raises
        ------
        PlanError
            The target, coefficient or facet is not one that can be.

        References
        ----------
        Urbano, Marrero and Martín (2013), SIGIR, eq. (6), (7), (12) and (13).

        Examples
        --------
        >>> from vcomp.dstudy import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
        >>> print(study.required(0.9))
        For Eρ² = 0.9, 18 levels of i are needed.
        """
        return required_size(
            self.components,
            take_components(self.components, self.negative),
            self.plan,
            target=target,
            coefficient=coefficient,
            facet=facet,
            alpha=self.alpha,
        )

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary

        Examples
        --------
        >>> from vcomp.dstudy import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
        >>> print(study.summary())  # doctest: +ELLIPSIS
        D-study p × i; object of measurement: p
        ...
        """
        from vcomp.dstudy.summary import summary

        return summary(self)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        plan = self.plan
        return f"DStudy(object={plan.object!r}, design='{plan.design}', plans={len(plan.sizes)})"

    def _repr_html_(self) -> str:
        return str(self.summary().as_html())


def dstudy(
    components: VarianceComponents,
    design: str | None = None,
    *,
    object: str | None = None,  # noqa: A002 - the word of the field
    sizes: Mapping[str, Any] | None = None,
    alpha: float = 0.05,
    negative: str = "zero",
    **n: Any,
) -> DStudy:
    """Return what planned measurements would be worth.

    Parameters
    ----------
    components : of the G-study
    design : in Brennan's notation, such as ``"p x (a:i)"``; the G-study's own if None
    object : the object of measurement; if None, the first facet of `design` without a size, see
        :func:`~vcomp.dstudy.make_plans`
    sizes : like `n`, for facets whose names are no Python names or those of other parameters
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` takes negative components as zero and says so, ``"keep"`` as estimated
    **n : one size or several for each facet; of a nested facet within those it is nested in. All
        combinations are planned. A facet without a size takes the G-study's

    Raises
    ------
    PlanError
        The plan is not one that can be, or the G-study cannot support it.

    References
    ----------
    Bodoff and Li (2007), SIGIR, eq. (2)-(6), pp. 370-371, whose components the example has.

    Examples
    --------
    >>> from vcomp.dstudy import from_components
    >>> published = {"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002, "ia": .00143,
    ...              "pia": .00176}
    >>> study = dstudy(from_components(published).components, i=20, a=3)
    >>> study.table[["i", "a", "abs_err_var", "Erho2", "Phi"]].round(5)
        i  a  abs_err_var    Erho2      Phi
    0  20  3      0.00149  0.91865  0.83474
    """
    if sizes is not None and not isinstance(sizes, Mapping):
        raise PlanError(f"sizes is a mapping such as {{'topic': [25, 50]}}, not {sizes!r}")
    if "fixed" in n and "fixed" not in components.facet_names:
        raise PlanError("fixed facets are not offered yet: every facet is taken as random")
    twice = [f for f in n if f in (sizes or {})]
    if twice:
        raise PlanError(f"the size of {twice[0]!r} is given twice, in sizes= and as {twice[0]}=")
    plan = make_plans(components, design, object, {**(sizes or {}), **n})
    return project(components, plan, alpha=alpha, negative=negative)


def project(
    components: VarianceComponents,
    plan: DStudyPlan,
    *,
    alpha: float = 0.05,
    negative: str = "zero",
) -> DStudy:
    """Divide each component by the sizes of its facets, sort it, and say how well all is known.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` or ``"keep"``

    Raises
    ------
    PlanError
        The G-study cannot support the design, or `alpha` or `negative` is not one that can be.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 4.

    Examples
    --------
    >>> from vcomp.dstudy import from_components, make_plans
    >>> g = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).components
    >>> project(g, make_plans(g, n={"i": 10})).columns["Erho2"].round(4)
    array([0.8333])
    """
    check_alpha(alpha)
    taken = take_components(components, negative)
    w = weights(components, plan)
    columns = quantities(taken.values, w)
    table = intervals.two_way_table(components, plan)
    exact = intervals.two_way_plans(table, plan)
    methods: dict[str, str] = {}
    unsure = np.isin(np.array(components.names, dtype=object), [*taken.zeroed, *taken.bounded])
    for name, gradient in gradients(taken.values, w).items():
        se = intervals.standard_errors(gradient, taken.cov)
        # all that matters here was taken as known, which it is not
        se = np.where((se == 0) & (gradient[:, unsure] != 0).any(axis=1), np.nan, se)
        delta = intervals.logit_interval if name in ("Erho2", "Phi") else intervals.log_interval
        low, high = delta(columns[name], se, alpha)
        if table is not None and name in ("Erho2", "Phi"):
            f_low, f_high = _f_interval(name, table, plan, alpha)
            low, high = np.where(exact, f_low, low), np.where(exact, f_high, high)
        columns |= {f"{name}_se": se, f"{name}_low": low, f"{name}_high": high}
        methods |= _method(name, ~np.isnan(low), exact, table)
    notes = study_notes(components, taken, plan, columns)
    return DStudy(plan, components, alpha, negative, columns, methods, notes)


def _f_interval(
    name: str, table: TwoWayMeanSquares, plan: DStudyPlan, alpha: float
) -> tuple[FloatArray, FloatArray]:
    column = plan.facets.index(table.columns)
    n = np.array([row[column] for row in plan.sizes], dtype=float)
    if name == "Erho2":
        low, high = intervals.feldt_interval(table, alpha)
        ends = intervals.erho2_of(low, n), intervals.erho2_of(high, n)
    else:
        low, high = intervals.arteaga_interval(table, alpha)
        ends = intervals.phi_of(low, n), intervals.phi_of(high, n)
    # Mean squares of the object far below chance put both limits below 0: no interval is left.
    nothing = ends[1] <= 0.0
    return np.where(nothing, np.nan, ends[0]), np.where(nothing, np.nan, ends[1])


def _method(
    name: str, known: BoolArray, exact: BoolArray, table: TwoWayMeanSquares | None
) -> dict[str, str]:
    if not known.any():
        return {}
    if name not in ("Erho2", "Phi"):
        return {name: intervals.LOG_SCALE}
    f_method = intervals.FELDT if name == "Erho2" else intervals.ARTEAGA
    if table is None or not exact.any():
        return {name: intervals.LOGIT_SCALE}
    if (known & ~exact).any():
        where = f"where {REPLICATE} = {table.n_replicates}"
        return {name: f"{f_method} {where}, else {intervals.LOGIT_SCALE}"}
    return {name: f_method}


def _whole(sizes: FloatArray) -> Any:
    return sizes.astype(np.int64) if np.all(sizes == np.floor(sizes)) else sizes.astype(float)
