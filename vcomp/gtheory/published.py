"""Published components and mean squares, with the D-studies and intervals of a fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.codec import Format
from vcomp.data import InJson
from vcomp.exceptions import EstimationError, PlanError, did_you_mean, is_real
from vcomp.formula import REPLICATE
from vcomp.gtheory.plan import gstudy_design
from vcomp.gtheory.planned_quantity import HasDStudies
from vcomp.gtheory.published_tables import (
    BalancedAnova,
    anova_of_components,
    anova_of_mean_squares,
    covariance_of,
    degrees_of_freedom,
    df_show_replicates,
    finite_value,
    nesting_of,
    sizes_of_df,
    terms_of,
)
from vcomp.gtheory.requirement import NO_MEAN, MeanOfScores
from vcomp.gtheory.universe import positive_size
from vcomp.inference import Projected, Quantities, VarianceComponents, are_computable
from vcomp.inference.intervals import (
    LOCAL_INTERVALS,
    FromComponents,
    IntervalName,
    IntervalSource,
    check_source,
    plugged_source,
    unbiased_covariance,
)

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.inference.resampling import Replicates


_WITH_ERRORS = ("mls", "f", "satterthwaite", "wald", "log")
"""Intervals that need standard errors; the default ones are left out without them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PublishedComponents(HasDStudies, InJson, display.Printed):
    """Variance components from a table; they have the D-studies of a fitted model.

    Attributes
    ----------
    components : with the design that follows from their names
    mean : of the scores, where it is known
    anova : mean squares and degrees of freedom, where they are known or follow from the sizes
    reason : why there are no standard errors although sizes were given; else empty

    Examples
    --------
    >>> published = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0})
    >>> published
    PublishedComponents('p x i', p=0.5, i=0.2, Residual=1)
    """

    components: VarianceComponents
    mean: MeanOfScores = NO_MEAN
    anova: BalancedAnova | None = None
    reason: str = ""

    _FORMAT: ClassVar[Format] = Format("PublishedComponents", 1, "published components")

    def _check(self) -> None:
        """Raise a ValueError if names and values contradict each other."""
        components, k = self.components, len(self.components.names)
        shapes: list[tuple[FloatArray, tuple[int, ...]]] = [(components.values, (k,))]
        if components.cov is not None:
            shapes.append((components.cov, (k, k)))
        if self.anova is not None:
            shapes += [(self.anova.df, (k,)), (self.anova.mean_squares, (k,))]
            shapes.append((self.anova.expected, (k, k)))
        agree = [
            *(np.shape(array) == shape for array, shape in shapes),
            len(components.facets) == k == len(set(components.names)) > 0,
            bool(np.isfinite(components.values).all()) and are_computable(components.values),
            all(n > 0.0 for n in components.sizes.values()),
            self.mean.cov_beta.shape == (self.mean.beta.size,) * 2,
        ]
        if not all(agree):
            raise ValueError("its values contradict each other")

    def _components(self) -> VarianceComponents:
        return self.components

    def _mean_of_scores(self) -> MeanOfScores:
        return self.mean

    def _source(
        self, interval: IntervalName | IntervalSource | Replicates, negative: Projected
    ) -> IntervalSource:
        if not isinstance(interval, str):
            return check_source(interval)
        if interval in ("profile", "bootstrap"):
            raise EstimationError(
                f"interval={interval!r} needs the rows of a fit; published components with "
                "sizes= or cov= have interval='mls'"
            )
        made = None if interval in LOCAL_INTERVALS else plugged_source(interval, self.components)
        if made is not None:
            return made
        if self.components.cov is None and interval in _WITH_ERRORS:
            why = self.reason or "pass sizes= of all facets of the G-study, or cov="
            raise EstimationError(
                f"interval={interval!r} needs standard errors, which are not known: {why}"
            )
        why = "" if self.anova is None else "mean squares do not show how scores are distributed"
        return FromComponents(
            self.components, interval, negative, self.mean.beta, self.mean.cov_beta, reason=why
        )

    @property
    def vcomp(self) -> pd.Series:
        """The components by name."""
        import pandas as pd

        return pd.Series(np.array(self.components.values), list(self.components.names))

    @property
    def bse_vcomp(self) -> pd.Series:
        """Standard errors of the components; nan where they are not known."""
        return self.gstudy()["se"].rename_axis(None)

    def cov_vcomp(self, cov_type: Literal["sampling", "unbiased"] = "sampling") -> pd.DataFrame:
        """Return the covariance matrix of the components.

        Parameters
        ----------
        cov_type : ``"sampling"``, as given or with 2 MS²/df as the variance of a mean square;
            ``"unbiased"``, with 2 MS²/(df + 2), as GENOVA prints it

        Raises
        ------
        EstimationError
            If it is not known, or `cov_type` is neither.

        References
        ----------
        Brennan (2001), Generalizability Theory, eq. 6.1; the standard errors of Bodoff (2008),
        Information Processing & Management 44, Table 7, by the "normal procedure" (section 4.3).

        Examples
        --------
        >>> published = from_components({"p": 2.0, "i": 1.0, "pi": 4.0}, sizes={"p": 10, "i": 4})
        >>> published.cov_vcomp().loc["p", "p"].round(4)  # (2 × 12²/9 + 2 × 4²/27)/4²
        np.float64(2.0741)
        """
        import pandas as pd

        if cov_type not in ("sampling", "unbiased"):
            raise EstimationError(f"cov_type is 'sampling' or 'unbiased', not {cov_type!r}")
        g = self.components
        cov = g.cov if cov_type == "sampling" else unbiased_covariance(g)
        if cov is None:
            why = self.reason or "pass sizes= of all facets of the G-study, or cov="
            raise EstimationError(f"the covariance matrix of the components is not known: {why}")
        return pd.DataFrame(np.array(cov), list(g.names), list(g.names))

    def gstudy(
        self, alpha: float = 0.05, interval: IntervalName | IntervalSource = "auto"
    ) -> pd.DataFrame:
        """Return a row for each component: estimate, se, low, high and percent.

        Percent is of the total variance, negative estimates set to zero.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how intervals are made: ``"auto"``, ``"mls"``, ``"f"``, ``"satterthwaite"``,
            ``"log"`` or ``"wald"``

        Raises
        ------
        EstimationError
            If the interval is not known, or not available here.
        PlanError
            If alpha is not between 0 and 1.

        Examples
        --------
        >>> published = from_components({"p": 2.0, "i": 1.0, "pi": 4.0}, sizes={"p": 10, "i": 4})
        >>> published.gstudy()[["se", "low", "high"]].round(2).rename_axis(None)
              se  low   high
        p   1.44  0.2   8.97
        i   1.15  0.0  19.04
        pi  1.09  2.5   7.41
        """
        import pandas as pd

        g = self.components
        source = self._source(interval, "keep")
        q = Quantities("linear", np.eye(len(g.names)))
        limits = source.limits(q, alpha)
        local = FromComponents.beside(source, g)
        positive = np.maximum(g.values, 0.0)
        total = float(positive.sum())
        columns = {
            "estimate": np.array(g.values),
            "se": local.standard_errors(q),
            "low": limits.low,
            "high": limits.high,
            "percent": 100.0 * (positive / total) if total > 0 else np.full_like(positive, np.nan),
        }
        return pd.DataFrame(columns, index=list(g.names)).rename_axis("component")

    def anova_table(self) -> pd.DataFrame:
        """Return the analysis of variance: df, sum_sq, mean_sq and expected mean squares.

        The columns ``E[…]`` hold the coefficients of the components in the expected mean squares.

        Raises
        ------
        EstimationError
            If it is not known and does not follow from the sizes of the G-study.

        References
        ----------
        Bodoff (2008), Information Processing & Management 44, appendix B.

        Examples
        --------
        >>> published = from_components({"p": 2.0, "i": 1.0, "pi": 4.0}, sizes={"p": 10, "i": 4})
        >>> published.anova_table()[["df", "mean_sq", "E[p]", "E[i]", "E[pi]"]]
              df  mean_sq  E[p]  E[i]  E[pi]
        p    9.0     12.0   4.0   0.0    1.0
        i    3.0     14.0   0.0  10.0    1.0
        pi  27.0      4.0   0.0   0.0    1.0
        """
        import pandas as pd

        anova, names = self.anova, self.components.names
        if anova is None:
            why = self.reason or "pass sizes= of all facets of the G-study"
            raise EstimationError(f"mean squares are not known: {why}")
        columns = {"df": anova.df, "sum_sq": anova.df * anova.mean_squares}
        columns |= {"mean_sq": anova.mean_squares}
        columns |= {f"E[{name}]": anova.expected[:, k] for k, name in enumerate(names)}
        return pd.DataFrame(columns, index=list(names))

    def interval_source(
        self,
        interval: IntervalName | IntervalSource | Replicates = "auto",
        negative: Projected = "keep",
    ) -> IntervalSource:
        """Return the source of the intervals of any quantity, for a function that takes one.

        Parameters
        ----------
        interval : as in :meth:`gstudy`
        negative : ``"zero"`` sets negative components to zero, ``"keep"`` uses them as estimated

        Raises
        ------
        EstimationError
            If the interval is not known, or not available here.
        """
        return self._source(interval, negative)

    def summary(
        self, alpha: float = 0.05, interval: IntervalName | IntervalSource = "auto"
    ) -> Any:
        """Return a printable table of the components, their errors and intervals, and shares.

        Parameters
        ----------
        alpha, interval : of the intervals, as in :meth:`gstudy`

        Returns
        -------
        statsmodels.iolib.summary.Summary

        Raises
        ------
        EstimationError, PlanError
            As :meth:`gstudy`.

        Examples
        --------
        >>> print(from_components({"p": 0.5, "i": 0.2, "Residual": 1.3}).summary())
        Published variance components, p × i
        ===================================================
                   estimate    share
        ---------------------------------------------------
        p            0.5000   25.0 %   ████████
        i            0.2000   10.0 %   ███
        Residual     1.3000   65.0 %   ████████████████████
        ---------------------------------------------------
        """
        table = self.gstudy(alpha, interval)
        shares = table["percent"] / 100.0
        cells = {"estimate": display.fixed(table["estimate"])}
        notes = []
        if self.components.cov is not None:
            cells["std. err."] = display.fixed(table["se"], significant=3)
            ends = display.short_intervals(table["low"], table["high"])
            cells[f"{display.level(alpha)} interval"] = ends
        if self.anova is not None:
            sizes = gstudy_design(self.components).facets
            levels = ", ".join(
                display.sized(self.anova.sizes[f], f) for f in sizes if f in self.anova.sizes
            )
            notes.append(f"Standard errors and intervals from the mean squares of {levels}.")
            notes.append("Effects are treated as normal.")
        if self.reason:
            notes.append(f"No standard errors: {self.reason}.")
        cells["share"] = [display.percent(share) for share in shares]
        cells[""] = [display.bar(share) for share in shares]
        made = display.column_table(
            cells,
            title=self._title(),
            stubs=self.components.names,
            align="r" * (len(cells) - 1) + "l",
        )
        return display.summary([made], notes)

    def _title(self) -> str:
        design = str(gstudy_design(self.components)).replace(" x ", " × ")
        return f"Published variance components, {design}"

    def __repr__(self) -> str:
        pairs = zip(self.components.names, self.components.values, strict=True)
        shown = ", ".join(f"{name}={display.number(value)}" for name, value in pairs)
        return f"PublishedComponents('{gstudy_design(self.components)}', {shown})"


def from_components(
    values: Mapping[str, float],
    cov: Any = None,
    sizes: Mapping[str, float] | None = None,
    mean: float | None = None,
) -> PublishedComponents:
    """Return published variance components, ready for D-studies.

    A component is named by its facets: ``"p:i"``, ``"p x i"``, ``"p*i"``, ``"p,i"``, or ``"pi"``
    where each letter is a facet. ``"Residual"`` has all facets (and ``replicate``, where another
    component has them all already, or `sizes` has it); Brennan's ``",e"`` at the end of the
    residual may stay. A facet that never occurs without another one is nested in it: leave no
    component out, give 0.

    Parameters
    ----------
    values : of the components by name; negative ones as estimated
    cov : their covariance matrix: a data frame by name, or an array in the order of `values`; nan
        for a component without a standard error
    sizes : of the G-study, for each facet within those that it is nested in. With the sizes of
        all facets, the object of measurement's included, there are standard errors and intervals:
        components and sizes of a balanced design give its mean squares and degrees of freedom
    mean : of all scores of the G-study, for decisions by a cut score; its error variance is that
        of a balanced G-study with these `sizes`

    Raises
    ------
    PlanError
        A name cannot be read, is given twice or names a facet twice; a value is not finite; the
        residual is missing; `cov` or `sizes` do not fit.

    Notes
    -----
    Standard errors from sizes are those of the analysis of variance under normality, with the
    rounding of the printed components. A component that is printed as 0 for a negative estimate
    gives a mean square that is too large; :func:`from_mean_squares` has it exactly. Where mean
    squares do not follow (a size is missing or not whole, a mean square would be negative) there
    are no standard errors, and ``reason`` says why.

    References
    ----------
    Bodoff and Li (2007), SIGIR, eq. (2)-(6), p. 370: the components of the example. Bodoff (2008),
    Information Processing & Management 44, section 4.3: standard errors of the error variances of
    D-studies (Table 7) from the same G-study with 48 queries.

    Examples
    --------
    >>> trec = from_components({"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002,
    ...                         "ia": .00143, "pia": .00176})
    >>> nested = trec.dstudy("p x (a:i)", i=20, a=3).table
    >>> nested[["rel_err_var", "abs_err_var"]].round(5)
       rel_err_var  abs_err_var
    0      0.00066      0.00148
    >>> known = from_components({"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002,
    ...                          "ia": .00143, "pia": .00176}, sizes={"p": 33, "i": 48, "a": 2})
    >>> known.dstudy(i=50, a=1).table[["Erho2", "Erho2_low", "Erho2_high"]].round(3)
       Erho2  Erho2_low  Erho2_high
    0  0.961      0.938       0.978
    """
    values = dict(values.items()) if hasattr(values, "items") else values
    if not isinstance(values, Mapping) or not values:
        raise PlanError("components are a mapping such as {'p': 0.5, 'i': 0.2, 'Residual': 1.0}")
    matrix = None if cov is None else covariance_of(cov, list(values))
    components_read, order = _named(values, "component", sizes)
    components = replace(
        components_read,
        cov=None if matrix is None else matrix[np.ix_(order, order)],
        sizes=_gstudy_sizes(sizes or {}, components_read.nested_in),
    )
    mean_of = _mean(mean, components)
    if matrix is not None or not sizes:
        return PublishedComponents(components, mean_of)
    try:
        anova = anova_of_components(
            components.names, components.facets, components.values, components.sizes
        )
    except PlanError as error:
        return PublishedComponents(components, mean_of, reason=str(error))
    return PublishedComponents(_with_errors(components, anova), mean_of, anova)


def from_mean_squares(
    values: Mapping[str, float],
    df: Mapping[str, float] | None = None,
    sizes: Mapping[str, float] | None = None,
    mean: float | None = None,
) -> PublishedComponents:
    """Return the components of a published analysis of variance, ready for D-studies.

    The components are those of the balanced design whose terms the mean squares name, with
    standard errors and intervals. Negative ones are kept; D-studies set them to zero.

    Parameters
    ----------
    values : mean squares by name, named as the components of :func:`from_components`, with the
        residual's. A term that is left out belongs to the residual
    df : degrees of freedom by the same names. Sizes follow from them
    sizes : of the G-study, for each facet within those that it is nested in; degrees of freedom
        follow from them. Give `df`, `sizes` or, of an unbalanced design, both: sizes are then the
        coefficients n₀ of its expected mean squares. Scores in a cell are the size of
        ``replicate``
    mean : of all scores of the G-study, for decisions by a cut score

    Returns
    -------
    PublishedComponents
        with ``vcomp``, ``gstudy()``, ``anova_table()``, ``dstudy(…)`` and ``quantity(…)``

    Raises
    ------
    PlanError
        A name cannot be read, is given twice or names a facet twice; a mean square is negative or
        not finite, or the residual's is missing or 0; `df` and `sizes` are both missing, do not
        name the same terms or facets, contradict each other, or leave a term no degrees of
        freedom.

    Notes
    -----
    A mean square that is printed as 0 is 0 in every estimate and limit.

    References
    ----------
    Bodoff and Li (2007), SIGIR, Table 1, p. 370: the mean squares of the example, of 48 queries
    (the heading says 50). Bodoff (2008), Information Processing & Management 44, appendix B: the
    components from the expected mean squares.

    Examples
    --------
    >>> trec = from_mean_squares(
    ...     {"p": .7485, "i": 1.1274, "a": 0, "pi": .0269, "pa": .00251, "ia": .04884,
    ...      "pia": .00176},
    ...     df={"p": 32, "i": 47, "a": 1, "pi": 1504, "pa": 32, "ia": 47, "pia": 1504})
    >>> trec.vcomp.round(5).to_dict()  # the paper prints 0 for the component of a
    {'p': 0.00751, 'i': 0.01596, 'a': -3e-05, 'pi': 0.01257, 'pa': 2e-05, 'ia': 0.00143,
    'pia': 0.00176}
    >>> trec.dstudy(i=50, a=1).table[["Phi", "Phi_low", "Phi_high"]].round(3)
        Phi  Phi_low  Phi_high
    0  0.92    0.872     0.955
    """
    values = dict(values.items()) if hasattr(values, "items") else values
    if not isinstance(values, Mapping) or not values:
        raise PlanError("mean squares are a mapping such as {'p': 12.0, 'i': 14.0, 'pi': 4.0}")
    made, order = _named(values, "mean square", sizes, df)
    below = [name for name, value in zip(made.names, made.values, strict=True) if value < 0.0]
    if below:
        raise PlanError(f"the mean square of {below[0]!r} is negative", term=below[0])
    anova = anova_of_mean_squares(
        made.names,
        made.facets,
        made.nested_in,
        made.values,
        None if df is None else degrees_of_freedom(df, list(values))[order],
        None if sizes is None else _all_sizes(sizes, df, made),
    )
    components = replace(made, values=anova.components, sizes=dict(anova.sizes))
    return PublishedComponents(_with_errors(components, anova), _mean(mean, components), anova)


def _named(
    values: Mapping[str, float],
    what: str,
    sizes: Mapping[str, float] | None = None,
    df: Mapping[str, float] | None = None,
) -> tuple[VarianceComponents, list[int]]:
    """Return values with the design that follows from their names, and their order in it.

    In an additive design with several scores in a cell the residual holds replicates, which sizes
    name or degrees of freedom show.
    """
    names = list(values)
    terms = terms_of(names, replicated=isinstance(sizes, Mapping) and REPLICATE in sizes)
    if sizes is None and df is not None and df_show_replicates(names, terms, df):
        terms = terms_of(names, replicated=True)
    # the residual goes last, as in all tables
    order = sorted(range(len(terms)), key=lambda k: len(terms[k]) == max(map(len, terms)))
    components = VarianceComponents(
        names=tuple(names[k].strip() for k in order),
        facets=tuple(terms[k] for k in order),
        values=np.array([finite_value(names[k], values[names[k]], what) for k in order]),
        nested_in=nesting_of(terms),
    )
    if not are_computable(components.values):
        at = int(np.abs(components.values).argmax())
        raise PlanError(
            f"{what} {components.names[at]!r}, the largest, is "
            f"{display.number(components.values[at])}: too far from 1 to compute with; "
            "rescale the scores",
            term=components.names[at],
        )
    return components, order


def _with_errors(components: VarianceComponents, anova: BalancedAnova) -> VarianceComponents:
    return replace(components, cov=anova.covariance, mean_squares=anova.two_way)


def _mean(mean: float | None, components: VarianceComponents) -> MeanOfScores:
    """Return the mean of the scores with the error variance of a balanced G-study."""
    if mean is None:
        return NO_MEAN
    if not is_real(mean) or not math.isfinite(mean):
        raise PlanError(f"the mean of the scores is a finite number, not {mean!r}")
    unknown = [f for f in components.facet_names if f not in components.sizes]
    if unknown:
        raise PlanError(
            f"the error of the mean depends on all sizes of the G-study; sizes= lacks "
            f"{', '.join(unknown)}",
            column=unknown[0],
        )
    n = [math.prod(components.sizes[f] for f in facets) for facets in components.facets]
    variance = max(float(components.values @ (1.0 / np.array(n))), 0.0)
    return MeanOfScores(np.array([float(mean)]), np.array([[variance]]), is_mean=True)


def _all_sizes(
    sizes: Mapping[str, float], df: Mapping[str, float] | None, made: VarianceComponents
) -> dict[str, float]:
    """Return the given sizes; if only replicates have one, the others follow from df."""
    given = _gstudy_sizes(sizes, made.nested_in)
    if df is None or list(given) != [REPLICATE]:
        return given
    by_name = {name.strip(): float(n) for name, n in df.items()}
    degrees = np.array([by_name[name] for name in made.names])
    return sizes_of_df(made.names, made.facets, made.nested_in, degrees) | given


def _gstudy_sizes(
    sizes: Mapping[str, float], nested_in: Mapping[str, frozenset[str]]
) -> dict[str, float]:
    for facet in sizes:
        if facet not in nested_in:
            known, hint = (
                ", ".join(sorted(nested_in)),
                did_you_mean(facet, [*nested_in, REPLICATE]),
            )
            raise PlanError(f"sizes has {facet!r}; the facets are {known}{hint}", column=facet)
    return {facet: float(positive_size(facet, n)) for facet, n in sizes.items()}
