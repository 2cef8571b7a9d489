"""The result of a D-study: the record of planned measurements with its functions as methods.

Nothing is computed here: :mod:`~vcomp.gtheory.study_record` makes the record, and
:mod:`~vcomp.gtheory.study_views` and :mod:`~vcomp.gtheory.allocation` are functions of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from vcomp import display
from vcomp.data import InJson
from vcomp.gtheory.power import (
    ERRORS,
    OF_TESTS,
    DifferenceTest,
    ErrorName,
    TestName,
    check_no_goal,
    check_no_test,
    detectable_table,
    power_table,
    required_error,
    required_power,
)
from vcomp.gtheory.projection import CoefficientName, ObjectiveName, PlannedName
from vcomp.gtheory.requirement import Requirement
from vcomp.gtheory.study_record import (
    StudyRecord,
    every_requirement,
    of_level,
    study_table,
)
from vcomp.gtheory.study_views import (
    draw,
    draw_phi_lambda,
    effects_table,
    phi_lambda_table,
    quantity_table,
    summary,
)

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.gtheory.allocation import Allocation


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DStudy(InJson, display.Printed, StudyRecord):
    """Error variances and coefficients of planned measurements.

    Attributes
    ----------
    plan : design, object of measurement and sizes
    components : of the G-study, as estimated
    alpha : intervals have confidence 1 − alpha
    negative : how negative components are used, ``"zero"`` or ``"keep"``
    columns : name of the quantity → (m,) values, one a plan; see :attr:`table`
    interval_methods : quantity → how its interval was made; those without one are missing
    notes : what a reader should know of these numbers
    source : of the intervals
    mean : of the scores, for decisions by a cut score; None where it is not known
    residuals : the components with the residual variance of each level, whose mean is the residual
        of `components`; None with one residual variance

    Notes
    -----
    :meth:`from_json` gives all of it back: ``required``, ``phi_lambda``, ``quantity``, ``plot``
    and ``optimize`` work as before :meth:`to_json`, with the same intervals. Intervals by
    ``"profile"`` and ``"bootstrap"`` are not stored: ``to_json`` refuses them.

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 20])
    >>> study.table[["i", "Erho2", "Phi"]].round(3)
        i  Erho2    Phi
    0  10  0.833  0.806
    1  20  0.909  0.893
    """

    @property
    def table(self) -> pd.DataFrame:
        """One row a plan.

        The sizes of the facets under their names; ``universe_var``, ``rel_err_var`` σ²(δ),
        ``abs_err_var`` σ²(Δ), ``Erho2``, ``Phi``; of each of the last four its standard error
        ``_se`` and the ends ``_low`` and ``_high`` of its interval, nan where not estimable.
        Limits of coefficients below 0 are cut at 0.

        Examples
        --------
        >>> from vcomp.gtheory import from_components
        >>> list(from_components({"p": 0.5, "i:p": 1.0}).dstudy(i=10).table.columns[:6])
        ['i', 'universe_var', 'rel_err_var', 'abs_err_var', 'Erho2', 'Phi']
        """
        return study_table(self)

    @property
    def by_level(self) -> Mapping[str, DStudy]:
        """The D-study of each level that has a residual variance of its own; empty with one.

        All scores of its measurements have the residual variance of the level. Its error variances
        are conditional ones, of an object at the level. Combinations of the levels of several
        facets have names such as ``"sys=a,judge=1"``.

        References
        ----------
        Brennan (2001), Generalizability Theory, section 5.4.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("docsearch")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, residual="query")
        >>> levels = res.dstudy(topic=50).by_level
        >>> {name: study.columns["Phi"].round(3) for name, study in levels.items()}
        {'keywords': array([0.736]), 'sentence': array([0.726])}
        """
        groups = None if self.residuals is None else self.residuals.groups
        labels = () if groups is None else groups.labels
        return {level: of_level(self, place) for place, level in enumerate(labels)}

    def quantity(
        self, what: PlannedName, *, se: Literal["delta", "unbiased"] = "delta"
    ) -> pd.DataFrame:
        """Return one quantity of every plan with its standard error and interval.

        Parameters
        ----------
        what : ``"universe_var"``, ``"rel_err_var"``, ``"abs_err_var"``, ``"Erho2"``, ``"Phi"``,
            ``"rel_sem"`` √σ²(δ), ``"abs_sem"`` √σ²(Δ) (standard errors of measurement),
            ``"se_difference"`` √(2σ²(δ)), the standard error of a difference between two objects,
            ``"rel_signal_noise"`` σ²(τ)/σ²(δ) or ``"abs_signal_noise"`` σ²(τ)/σ²(Δ)
        se : standard errors: ``"delta"``, those of :attr:`table`; or ``"unbiased"``, those of
            Brennan's normal procedure, from 2 MS²/(df + 2), which GENOVA prints

        Returns
        -------
        pandas.DataFrame
            The sizes of the facets, then ``estimate``, ``se``, ``low`` and ``high``; nan where it
            is not defined or there is none.

        Raises
        ------
        PlanError
            If the quantity or ``se`` is not one of these, or there is no covariance matrix for the
            unbiased ones.
        EstimationError
            If the interval of the D-study has none for it.

        References
        ----------
        Brennan (2001), Generalizability Theory, eq. 2.41 for signal-noise ratios, section 6.1 for
        the normal procedure.

        Examples
        --------
        >>> from vcomp.gtheory import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 40])
        >>> study.quantity("abs_sem")[["i", "estimate"]].round(3)
            i  estimate
        0  10     0.346
        1  40     0.173
        """
        return quantity_table(self, what, se)

    def phi_lambda(self, cut: Any) -> pd.DataFrame:
        """Return Φ(λ), the index of dependability of decisions by a cut score.

        Parameters
        ----------
        cut : one cut score λ or several, on the scale of the scores; the λ-curve is drawn by
            :meth:`plot_phi_lambda`

        Returns
        -------
        pandas.DataFrame
            A row for every plan and cut score: the sizes, ``cut``, ``estimate``, ``se``, ``low``
            and ``high``, intervals by the method of the D-study where it has one of such a
            function, else by the delta method.

        Raises
        ------
        PlanError
            If a cut score is not a finite number, or the mean of the scores is not known.

        References
        ----------
        Brennan and Kane (1977), Journal of Educational Measurement 14, 277-289; Brennan (2001),
        Generalizability Theory, eq. 2.54 and fig. 2.1.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> study = res.dstudy(topic=6)
        >>> study.phi_lambda([0.5, 0.724])[["topic", "cut", "estimate"]].round(3)
           topic    cut  estimate
        0      6  0.500     0.975
        1      6  0.724     0.871
        """
        return phi_lambda_table(self, cut)

    def plot_phi_lambda(self, cut: Any = None, ax: Any | None = None) -> Any:
        """Draw Φ(λ) over the cut score, with its interval, one curve per plan.

        Parameters
        ----------
        cut : cut scores of the curve; if None, from three standard deviations of the universe
            score below the mean to three above
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            As :meth:`phi_lambda`, or if there are more plans than curves can be distinguished.
        VcompError
            matplotlib is not installed.
        """
        return draw_phi_lambda(self, cut, ax)

    def effects(self, plan: int = 0) -> pd.DataFrame:
        """Return the composition of the error variances of one plan, by effect.

        Parameters
        ----------
        plan : number of the plan, the row of :attr:`table`

        Returns
        -------
        pandas.DataFrame
            One row per effect of the D-design, by its facets: the ``components`` of the G-study
            that go to it, their sum ``variance``, the number ``n`` of levels that it is averaged
            over, and its parts of ``universe_var``, ``rel_err_var`` and ``abs_err_var``, which add
            up to those of the table.

        Raises
        ------
        PlanError
            If there is no such plan.

        References
        ----------
        Brennan (2001), Generalizability Theory, chap. 4.

        Examples
        --------
        >>> from vcomp.gtheory import from_components
        >>> published = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0})
        >>> published.dstudy("i:p", object="p", i=10).effects().drop(columns="abs_err_var")
               components  variance     n  universe_var  rel_err_var
        effect
        p               p       0.5   1.0           0.5         0.00
        i:p  i + Residual       1.2  10.0           0.0         0.12
        """
        return effects_table(self, plan)

    def required(
        self,
        goal: float | None = None,
        coefficient: CoefficientName | ErrorName = "Erho2",
        facet: str | None = None,
        *,
        difference: float | None = None,
        power: float | None = None,
        n_objects: int | None = None,
        alpha: float | None = None,
        test: TestName | None = None,
    ) -> Requirement:
        """Return how many levels of `facet` reach `goal`, with an interval.

        With `difference` it is the size with which a test finds a difference of two objects.

        The other facets are held at the sizes of a plan; a facet nested in `facet` keeps its size
        within each level. The result is that of the first plan, with those of plans with other
        sizes as ``further``; ``table`` and the printed form have all of them.

        Parameters
        ----------
        goal : of the coefficient, between 0 and 1, 0.95 if not given; of an error, not to exceed
        coefficient : ``"Erho2"`` or ``"Phi"``; or an error: ``"rel_err_var"``, ``"abs_err_var"``,
            ``"rel_sem"``, ``"abs_sem"``, ``"se_difference"``; ``"width"`` of the interval of a
            difference, from end to end; ``"rank_set"``, the mean size of the simultaneous sets of
            ranks of `n_objects`, by Tukey's test, where universe scores are normal with their
            estimated variance
        facet : may be left out where only one has a size
        difference : instead of a goal, a true difference between two objects, above 0
        power : with which it is to be found, 0.8 if not given; see :meth:`power`
        n_objects, alpha, test : of that test, as for :meth:`power`; for sets of ranks the objects
            of the G-study if None

        Raises
        ------
        PlanError
            The goal, coefficient, facet or difference is not a possible one.

        References
        ----------
        Urbano, Marrero and Martín (2013), SIGIR, eq. (6), (7), (12) and (13).

        Examples
        --------
        >>> from vcomp.gtheory import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
        >>> print(study.required(0.9))
        For Eρ² = 0.9, 18 levels of i are needed.
        >>> print(study.required(difference=0.5))
        For power 0.8 at a difference of 0.5, 65 levels of i are needed.
        >>> print(study.required(0.5, "width"))
        For a width of 0.5 of the interval of a difference, 126 levels of i are needed.
        """
        if difference is not None:
            check_no_goal(goal)
            return required_power(self, facet, difference, power, n_objects, alpha, test)
        if coefficient in list(OF_TESTS):
            check_no_test(power=power)
            return required_error(self, facet, goal, coefficient, n_objects, alpha, test)
        check_no_test(power=power, n_objects=n_objects, alpha=alpha, test=test)
        if coefficient in list(ERRORS):
            return required_error(self, facet, goal, coefficient)
        return every_requirement(self, 0.95 if goal is None else goal, coefficient, facet)

    def power(
        self,
        difference: Any,
        *,
        n_objects: int = 2,
        alpha: float = 0.05,
        test: TestName = "t",
    ) -> pd.DataFrame:
        """Return the power of a test of the difference between two objects, in every plan.

        The test is two-sided, and its error variance has all sampled facets; ``"t"`` in a plan of
        one facet is the paired t-test.

        Parameters
        ----------
        difference : true difference on the scale of the scores, above 0; one or several
        n_objects : objects in the planned data, whose error variance is estimated together: 2 for
            a pair that is tested alone
        alpha : level of the test
        test : ``"t"``, of a pair that is chosen before; ``"tukey"``, of all pairs of `n_objects`:
            the power is that of one of these pairs

        Returns
        -------
        pandas.DataFrame
            A row for each plan and difference: the sizes, ``difference``, its ``std_error``, the
            ``df`` of that (Satterthwaite's; ∞ in layouts and with finite facets, which have no
            analysis of variance), ``power``, and the ends ``low`` and ``high`` of its
            interval, which is that of the error variance in the D-study.

        Raises
        ------
        PlanError
            If an argument is not a possible one.

        References
        ----------
        Cohen (1988), Statistical power analysis for the behavioral sciences, section 2.3;
        Miller (1981), Simultaneous statistical inference, section 2.1, for Tukey's test.

        Examples
        --------
        >>> from vcomp.gtheory import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[50, 100])
        >>> study.power(0.5)[["i", "std_error", "df", "power"]].round(3)
             i  std_error    df  power
        0   50      0.200  49.0  0.688
        1  100      0.141  99.0  0.938
        """
        return power_table(self, difference, DifferenceTest(alpha, n_objects, test))

    def detectable(
        self,
        power: float = 0.8,
        *,
        n_objects: int = 2,
        alpha: float = 0.05,
        test: TestName = "t",
    ) -> pd.DataFrame:
        """Return the difference between two objects that a test finds, in every plan.

        Parameters
        ----------
        power : probability with which it is found
        n_objects, alpha, test : of the test, as for :meth:`power`

        Returns
        -------
        pandas.DataFrame
            A row for each plan: the sizes, ``std_error`` and ``df`` as for :meth:`power`,
            ``difference``, and the ends ``low`` and ``high`` of its interval.

        Raises
        ------
        PlanError
            If an argument is not a possible one.

        Examples
        --------
        >>> from vcomp.gtheory import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[50, 100])
        >>> study.detectable()["difference"].round(3).tolist()
        [0.572, 0.4]
        """
        return detectable_table(self, power, DifferenceTest(alpha, n_objects, test))

    def optimize(
        self,
        cost: Any,
        *,
        budget: float | None = None,
        goal: float | None = None,
        coefficient: ObjectiveName | ErrorName = "Erho2",
        designs: str | Sequence[str] | None = None,
        bounds: Mapping[str, Any] | None = None,
        n_objects: Any = None,
        top: int = 10,
        difference: float | None = None,
        power: float | None = None,
        alpha: float | None = None,
        test: TestName | None = None,
    ) -> Allocation[DStudy]:
        """Return the best design for a budget, or the cheapest design that reaches a goal.

        With `difference` it is the cheapest design in which a test finds a difference of two
        objects. Its stability and frontier are those of the error variance that the recommended
        design's degrees of freedom allow.

        Sizes are chosen for all facets that are not fixed; the parameters are those of
        :func:`vcomp.gtheory.allocation.optimize`.

        Parameters
        ----------
        cost : of a measurement: prices per level of a facet and per combination of levels,
            ``{"topic": 50, "topic:judge": 2}``; text; :class:`vcomp.Cost`; or a function of sizes
        budget : upper limit of the cost of a measurement
        goal : instead of a budget, the value that the coefficient has to reach (an error
            variance: not to exceed)
        coefficient : ``"Erho2"``, ``"Phi"``, or an error as of :meth:`required`; ``"width"`` and
            ``"rank_set"`` with a goal
        designs : alternatives in Brennan's notation; the study's own design if None
        bounds : facet → the size at which it is held, or (least, largest)
        n_objects : number of objects of measurement, where the cost has a price for them; with
            `difference` also that of the test, 2 if None
        top : number of designs near the best that are listed
        difference : instead of a budget or goal, a true difference between two objects, above 0
        power : with which it is to be found, 0.8 if not given; see :meth:`power`
        alpha, test : of that test, 0.05 and ``"t"`` if not given

        Raises
        ------
        PlanError
            If no design is within the budget or none reaches the goal, a facet without bound
            costs nothing, the cost falls when a size grows, or an argument is not allowed.

        Examples
        --------
        >>> from vcomp.gtheory import from_components
        >>> trec = from_components({"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002,
        ...                         "ia": .00143, "pia": .00176})
        >>> study = trec.dstudy("p x (a:i)", i=50, a=1)
        >>> print(study.optimize({"i": 5, "a": 1}, goal=0.97, coefficient="Phi").best)
        p × (a:i): 137 i, 1 a in each i; costs 822; Φ = 0.970
        >>> print(study.optimize({"i": 5, "a": 1}, difference=0.1, power=0.9).best)
        p × (a:i): 33 i, 1 a in each i; costs 198; σ²(δ) = 0.0004352
        """
        # Deferred for start-up time: the search is compiled code.
        from vcomp.gtheory.allocation import optimize

        options = (budget, goal, coefficient, designs, bounds, n_objects, top)
        return optimize(
            self, cost, *options, difference=difference, power=power, alpha=alpha, test=test
        )

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary

        Examples
        --------
        >>> from vcomp.gtheory import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=10)
        >>> print(study.summary())  # doctest: +ELLIPSIS
        D-study p × i; object of measurement: p
        ...
        """
        return summary(self)

    def plot(
        self,
        x: str | None = None,
        coefficient: CoefficientName | Sequence[CoefficientName] = ("Erho2", "Phi"),
        ax: Any | None = None,
        goal: float | None = None,
    ) -> Any:
        """Draw Eρ² and Φ over the size of a facet, with their intervals.

        Planned sizes are points; the lines between them are the same D-study at sizes between.
        There is a line for every combination of the other facets' sizes.

        Parameters
        ----------
        x : the facet on the horizontal axis; that with the most planned sizes if None
        coefficient : ``"Erho2"``, ``"Phi"`` or both
        ax : matplotlib axes to draw on; those of a new figure if None
        goal : draws a line there, and the legend has the size of `x` that reaches it

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        PlanError
            The facet, a coefficient or the goal is not a possible one, or there are more lines
            than can be distinguished.
        VcompError
            matplotlib is not installed.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> from vcomp.gtheory import from_components
        >>> study = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=[10, 20])
        >>> ax = study.plot(goal=0.9, ax=Figure().subplots())
        >>> print(ax.get_legend().get_texts()[0].get_text())
        Eρ²:  0.9 at 18
        """
        return draw(self, x, coefficient, ax, goal)

    def __repr__(self) -> str:
        plan = self.plan
        return f"DStudy(object={plan.object!r}, design='{plan.design}', plans={len(plan)})"
