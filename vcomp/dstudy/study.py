"""The D-study: what a planned measurement would be worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.components import REPLICATE, VarianceComponents
from vcomp.dstudy.notes import study_notes
from vcomp.dstudy.plan import DStudyPlan, make_plans
from vcomp.dstudy.project import QUANTITIES, quantities, weights
from vcomp.dstudy.requirement import Requirement, required_size
from vcomp.dstudy.two_way import two_way_plans, two_way_table
from vcomp.exceptions import PlanError, check_alpha
from vcomp.uncertainty.limits import FromComponents, IntervalSource, Limits
from vcomp.uncertainty.two_way import (
    ARTEAGA,
    FELDT,
    arteaga_interval,
    erho2_of,
    feldt_interval,
    phi_of,
)

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
    source : what gave the intervals

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
    source: IntervalSource

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
            self.source,
            self.plan,
            negative=self.negative,
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

    def plot(
        self,
        x: str | None = None,
        coefficient: str | Sequence[str] = ("Erho2", "Phi"),
        ax: Any | None = None,
        target: float | None = None,
    ) -> Any:
        """Draw Eρ² and Φ over the size of a facet, with their intervals.

        Planned sizes are points; the lines between them are the same D-study at sizes between.
        There is a line for every combination of the other facets' sizes.

        Parameters
        ----------
        x : the facet on the horizontal axis; the one of which most sizes are planned if None
        coefficient : ``"Erho2"``, ``"Phi"`` or both
        ax : matplotlib axes to draw on; those of a new figure if None
        target : draws a line there, and the legend has the size of `x` that reaches it

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            The facet, a coefficient or the target is not one that can be, or there are more lines
            than can be told apart.
        VcompError
            matplotlib is not installed.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> from vcomp.dstudy import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 20])
        >>> ax = study.plot(target=0.9, ax=Figure().subplots())
        >>> print(ax.get_legend().get_texts()[0].get_text())
        Eρ²:  0.9 at 18
        """
        from vcomp.dstudy.picture import draw

        return draw(self, x, coefficient, ax, target)

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
    method: str | IntervalSource = "auto",
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
    method : of the intervals. ``"mls"``: modified large sample; ``"f"``: F quantiles of a complete
        two-way table (Feldt for Eρ², Arteaga et al. for Φ); ``"log"``: the delta method on the log
        or logit scale; ``"wald"``: on the natural scale; ``"auto"``: F where it can be, else
        modified large sample. Or what else gives intervals, such as bootstrap replicates
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
    source = FromComponents(components, method, negative) if isinstance(method, str) else method
    return project(components, plan, alpha=alpha, negative=negative, source=source)


def project(
    components: VarianceComponents,
    plan: DStudyPlan,
    *,
    alpha: float = 0.05,
    negative: str = "zero",
    source: IntervalSource | None = None,
) -> DStudy:
    """Divide each component by the sizes of its facets, sort it, and say how well all is known.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study
    alpha : intervals have confidence 1 − alpha
    negative : ``"zero"`` or ``"keep"``
    source : of the intervals; the components and their covariance if None

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
    local = FromComponents(components, negative=negative)
    source = local if source is None else source
    made = quantities(weights(components, plan))
    columns = {name: q.values(local.taken.values) for name, q in made.items()}
    by_f = f_intervals(components, plan, alpha, source.method)
    methods: dict[str, str] = {}
    said: list[str] = []
    for name in QUANTITIES:
        f = by_f.get(name)
        if f is not None and f.spoken.all():
            found = Limits(f.low, f.high, f.method)
        else:
            found = _combined(source.limits(made[name], alpha), f)
        columns |= {
            f"{name}_se": local.standard_errors(made[name]),
            f"{name}_low": found.low,
            f"{name}_high": found.high,
        }
        if found.method:
            methods[name] = found.method
        said += [note for note in found.notes if note not in said]
    notes = study_notes(components, local.taken, plan, columns)
    notes += tuple(f"Intervals: {note}." for note in said)
    return DStudy(plan, components, alpha, negative, columns, methods, notes, source)


@dataclass(frozen=True, slots=True)
class FLimits:
    """Intervals from F quantiles of the plans that the mean squares speak about."""

    low: FloatArray
    high: FloatArray
    method: str
    spoken: BoolArray
    n_replicates: int


def f_intervals(
    components: VarianceComponents, plan: DStudyPlan, alpha: float, method: str
) -> dict[str, FLimits]:
    """Return the intervals of Eρ² and Φ that a complete two-way table gives from F quantiles.

    Parameters
    ----------
    components : of the G-study
    plan : of the D-study
    alpha : intervals have confidence 1 − alpha
    method : that was asked for; none but ``"auto"`` and ``"f"`` takes these
    """
    table = two_way_table(components, plan) if method in ("auto", "f") else None
    spoken = two_way_plans(table, plan)
    # Below zero both limits may be; other intervals go on from there.
    if table is None or not spoken.any() or table.ms_rows <= table.ms_residual:
        return {}
    column = plan.facets.index(table.columns)
    n = np.array([row[column] for row in plan.sizes], dtype=float)
    found = {}
    for name, (interval, of, words) in _F_INTERVALS.items():
        low, high = (of(end, n) for end in interval(table, alpha))
        found[name] = FLimits(low, high, words, spoken, table.n_replicates)
    return found


_F_INTERVALS: dict[str, tuple[Any, Any, str]] = {
    "Erho2": (feldt_interval, erho2_of, FELDT),
    "Phi": (arteaga_interval, phi_of, ARTEAGA),
}


def _combined(other: Limits, by_f: FLimits | None) -> Limits:
    """Return F intervals where there are any, else the others."""
    if by_f is None:
        return other
    spoken = by_f.spoken
    low = np.where(spoken, by_f.low, other.low)
    high = np.where(spoken, by_f.high, other.high)
    mixed = bool((~spoken & np.isfinite(other.low)).any())
    where = f" where {REPLICATE} = {by_f.n_replicates}, else {other.method}" if mixed else ""
    return Limits(low, high, by_f.method + where, other.notes)


def _whole(sizes: FloatArray) -> Any:
    return sizes.astype(np.int64) if np.all(sizes == np.floor(sizes)) else sizes.astype(float)
