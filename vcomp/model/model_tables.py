"""Tables of a mixed model: tests of terms, marginal means, explained variance, components.

Methods delegate to :mod:`vcomp.inference.hypotheses` and :mod:`~vcomp.model.marginal_means`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.exceptions import DataError, EstimationError, check_alpha, guarded
from vcomp.formula import ResidualGroups, refuse
from vcomp.gtheory import DStudy, all_sizes
from vcomp.inference import hypotheses
from vcomp.inference.intervals import IntervalSource
from vcomp.model.estimates import component_limits, fixed_fit, gstudy, series
from vcomp.model.record import FitRecord
from vcomp.model.universe_scores import UniverseScores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from vcomp.inference.hypotheses import CovarianceOfFixed, DegreesOfFreedom, TypeOfTest
    from vcomp.inference.pairwise import CorrectionName
    from vcomp.model.interval_sources import IntervalMethod
    from vcomp.model.level_comparisons import LevelTest
    from vcomp.model.marginal_means import MarginalMeans
    from vcomp.model.row_access import RowAccess


def error_variances(record: FitRecord, source: IntervalSource, alpha: float) -> pd.DataFrame:
    """Return a row for each residual variance: scores, estimate, error and interval.

    Parameters
    ----------
    record : of the fit
    source : of the intervals
    alpha : intervals have confidence 1 − alpha

    Raises
    ------
    EstimationError
        If there is one residual variance.
    PlanError
        If alpha is not between 0 and 1.
    """
    import pandas as pd

    groups = residual_groups(record)
    check_alpha(alpha)
    limits = component_limits(record.estimate, alpha, source)
    rows = gstudy(record, source, limits).iloc[-len(groups.n) :]
    columns = {
        "n": groups.n,
        "variance": rows["estimate"].to_numpy(),
        "se": rows["se"].to_numpy(),
        "low": rows["low"].to_numpy(),
        "high": rows["high"].to_numpy(),
        "std_dev": np.sqrt(rows["estimate"].to_numpy()),
    }
    return pd.DataFrame(columns, index=_index(groups.facets, groups.levels))


def residual_groups(record: FitRecord) -> ResidualGroups:
    """Return the groups of rows that have a residual variance each.

    Raises
    ------
    EstimationError
        If there is one residual variance.
    """
    groups = record.components.groups
    if groups is None:
        raise EstimationError(
            "there is one residual variance for all scores; fit with residual='sys' for one for "
            "each level of sys"
        )
    return groups


def _index(facets: tuple[str, ...], levels: Sequence[tuple[str, ...]]) -> pd.Index:
    import pandas as pd

    if len(facets) == 1:
        return pd.Index([level for (level,) in levels], name=facets[0])
    return pd.MultiIndex.from_tuples(levels, names=list(facets))


def errors_by_level(study: DStudy) -> pd.DataFrame:
    """Return the D-studies of the residual variance of each level, a row for each level and plan.

    Parameters
    ----------
    study : with several residual variances
    """
    import pandas as pd

    assert study.residuals is not None
    groups, tables = study.residuals.groups, []
    assert groups is not None
    for level, own in zip(groups.levels, study.by_level.values(), strict=True):
        sems = {sem: own.quantity(sem)["estimate"] for sem in ("rel_sem", "abs_sem")}
        table = own.table.assign(**sems)
        tables.append(table.set_axis(_index(groups.facets, [level] * len(table))))
    return pd.concat(tables)


class ModelTables(UniverseScores):
    """Tables that users of mixed models expect."""

    @guarded
    def anova(
        self,
        type: TypeOfTest = 3,  # noqa: A002 - the word of the field
        ddf: DegreesOfFreedom = "satterthwaite",
        cov_type: CovarianceOfFixed = "model",
    ) -> pd.DataFrame:
        """Return an F-test of each term of the fixed part, as lmerTest's ``anova``.

        The hypotheses do not depend on the coding of factors: with patsy's default coding, type 3
        is that of SAS and of ``contr.sum`` in R.

        Parameters
        ----------
        type : which hypotheses

            ``1``
                each term adjusted for those before it, main effects before interactions
            ``2``
                each adjusted for all others but those that contain it
            ``3``
                each averaged over the levels of other factors with equal weights. Where cells are
                empty, the contrasts that are estimable, as SAS and lmerTest choose them
        ddf, cov_type : as for :meth:`~vcomp.VarianceComponentsResults.fixed_effects`; with
            ``"kenward-roger"`` F is scaled

        Returns
        -------
        pandas.DataFrame
            A row for each term, in the order of the formula, main effects first: ``sum_sq`` and
            ``mean_sq`` on the scale of the residual component, ``df_num``, ``df_denom``, ``F`` and
            ``p_value``. A term whose columns all depend on those of others has ``df_num`` 0 and
            nan.

        Raises
        ------
        PlanError
            If the type is not known.
        EstimationError
            If the fixed part has no terms, or more than 2,000 columns; or if ``ddf`` or
            ``cov_type`` is not known or not available for this fit.
        DataError
            If the result was loaded without its rows.

        References
        ----------
        Kuznetsova, A., Brockhoff, P. B. and Christensen, R. H. B. (2017). lmerTest package: tests
        in linear mixed effects models. *Journal of Statistical Software*, 82(13).

        SAS Institute (1978). *SAS Technical Report R-101: Tests of hypotheses in fixed-effects
        linear models*.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
        >>> res.anova().round(3)
                sum_sq  mean_sq  df_num  df_denom      F  p_value
        term
        C(sys)   0.144    0.036       4       8.0  5.247    0.023
        """
        fit = fixed_fit(self._record, self._rows)
        return hypotheses.anova_of_terms(fit, type, ddf, cov_type)

    @guarded
    def marginal_means(
        self,
        facets: str | Sequence[str],
        by: str | Sequence[str] | None = None,
        *,
        at: Mapping[str, Any] | None = None,
        test: LevelTest = "t",
        correction: CorrectionName | None = None,
        alpha: float = 0.05,
        ddf: DegreesOfFreedom = "satterthwaite",
        cov_type: CovarianceOfFixed = "model",
    ) -> MarginalMeans:
        """Return the means of factors of the fixed part, all else averaged, as R's emmeans.

        Levels of other factors have equal weights, and covariates their means over the rows:
        ``log(x)`` and ``x**2`` are those of the mean of x. A mean is not estimable, and nan, if it
        is over combinations of levels that have no rows.

        Parameters
        ----------
        facets : a factor, several, or an interaction such as ``"recipe:oven"``; of an empty list
            the one mean over all of them
        by : factors in each of whose levels, or combinations of levels, means are compared
        at : values of covariates, in place of their means; of factors a level, or a list of
            levels: those that are shown, or averaged over; or levels with their weights in the
            average, ``{"query": {"long": 2, "short": 1}}``
        test, correction : of the differences of two means with the same `by`, as for
            :meth:`~vcomp.VarianceComponentsResults.compare_levels`: ``"t"``, ``"tukey"`` or
            ``"max-t"``
        alpha : level of significance; intervals have confidence 1 − alpha
        ddf, cov_type : as for :meth:`~vcomp.VarianceComponentsResults.fixed_effects`

        Returns
        -------
        MarginalMeans
            ``table`` of the means with the letters of groups that do not differ, ``pairs`` of
            their differences, and ``summary()``.

        Raises
        ------
        PlanError
            If a name is not that of a factor, or is given twice; `at` names neither a factor nor a
            covariate, or its value is not one; or a test is not known.
        DataError
            If a factor has no level that `at` names, the mean of a covariate is not known as the
            rows are not kept, or the result was loaded without its rows.
        FormulaError
            If a column is in several expressions, or an expression has no value at these
            covariates.
        EstimationError
            If ``ddf`` or ``cov_type`` is not known or not available for this fit, or the
            combinations do not fit into memory.

        References
        ----------
        Searle, S. R., Speed, F. M. and Milliken, G. A. (1980). Population marginal means in the
        linear model: an alternative to least squares means. *The American Statistician*, 34,
        216-221.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
        >>> means = res.marginal_means("sys", test="tukey")
        >>> means.table[["mean", "std_error", "group"]].round(3)
                      mean  std_error group
        sys
        algorithm 1  0.600      0.054     b
        algorithm 2  0.720      0.054    ab
        algorithm 3  0.883      0.054     a
        algorithm 4  0.650      0.054    ab
        algorithm 5  0.767      0.054    ab
        """
        from vcomp.model.marginal_means import marginal_means  # deferred for start-up time

        return marginal_means(
            self._record,
            self._rows,
            facets,
            by,
            at,
            test,
            correction,
            alpha,
            ddf,
            cov_type,
        )

    @guarded
    def r2(self) -> pd.Series:
        """Return the shares of the variance that the model explains (Nakagawa & Schielzeth 2013).

        Returns
        -------
        pandas.Series
            ``marginal``, of the fixed part: the variance of its values over the rows, divided by
            the sum of it and all components; ``conditional``, of the fixed part and the random
            terms. Negative components count as zero. The variance of random slopes is the mean of
            that of z'u over the rows (Johnson 2014), and so is the residual one of several.

        Raises
        ------
        DataError
            If the result was loaded without its rows.
        EstimationError
            If there is no variance, or the fixed part contains no constant.

        References
        ----------
        Nakagawa, S. and Schielzeth, H. (2013). A general and simple method for obtaining R² from
        generalized linear mixed-effects models. *Methods in Ecology and Evolution*, 4, 133-142.
        Johnson, P. C. D. (2014). Extension of Nakagawa & Schielzeth's R² GLMM to random slopes
        models. *Methods in Ecology and Evolution*, 5, 944-946.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> vcomp.fit("score ~ C(sys) + (1|topic)", data).r2().round(3)
        marginal       0.544
        conditional    0.637
        Name: r2, dtype: float64
        """
        refuse("r2()", self._record.traits, variances="see vcomp and fixed_effects()")
        fixed = _variance_of_fixed(self._rows)
        values = self._record.estimate.values
        blocks = None if self._rows is None else self._rows.data.design.blocks
        if blocks is not None:
            random = sum(
                float((matrix * squares).sum())
                for squares, matrix in zip(
                    blocks.mean_squares, blocks.centred_matrices(values), strict=True
                )
            )
        else:
            random = float(np.maximum(values[:-1], 0.0).sum())
        groups = self._record.components.groups
        n = np.ones(1) if groups is None else np.array(groups.n)
        residual = float(values[-n.size :] @ n) / n.sum()
        total = fixed + random + max(residual, 0.0)
        if not total > 0.0:
            raise EstimationError("the scores have no variance, so that r2() has no shares of it")
        explained = np.array([fixed, fixed + random]) / total
        return series(explained, ("marginal", "conditional"), "r2")

    @guarded
    def icc(self, alpha: float = 0.05, interval: IntervalMethod = "auto") -> pd.DataFrame:
        """Return the share of each random term in the sum of all components, with its interval.

        It is the intraclass correlation of two scores that have a level of this term in common,
        and of no other, given the fixed part.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        interval : how they are made, as for
            :meth:`~vcomp.VarianceComponentsResults.conf_int`

        Returns
        -------
        pandas.DataFrame
            A row for each term: ``estimate``, ``se``, ``low`` and ``high``, those of
            ``quantity("share(term)")``; sums of terms are quantities, too.

        Raises
        ------
        EstimationError
            If the interval is not known, or not available for this fit; or if the model has
            random slopes, where it depends on the covariate, or several residual variances.
        PlanError
            If alpha is not between 0 and 1.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> res.icc(interval="mls").round(3)
                   estimate     se    low   high
        component
        sys           0.530  0.260  0.029  0.922
        topic         0.096  0.167  0.000  0.874
        """
        import pandas as pd

        refuse(
            "icc()",
            self._record.traits,
            slopes="the correlation depends on the covariate then: see r2() and varcorr()",
            residuals="the correlation depends on the level then: see error_variances() and "
            "varcorr()",
            variances="see vcomp and quantity()",
        )
        names = self._record.estimate.names[:-1]
        source = self._source(interval, "keep")
        found = [self.quantity(f"share({name})", alpha=alpha, interval=source) for name in names]
        columns = ("estimate", "se", "low", "high")
        values = {column: [getattr(quantity, column) for quantity in found] for column in columns}
        return pd.DataFrame(values, index=pd.Index(names, name="component", dtype=object))

    @guarded
    def error_variances(
        self,
        *,
        object: str | Sequence[str] | None = None,  # noqa: A002 - the word of the field
        sizes: Mapping[str, Any] | None = None,
        alpha: float = 0.05,
        interval: IntervalMethod = "auto",
        **n: Any,
    ) -> pd.DataFrame:
        """Return the residual variance of each level of ``residual=``, or its D-studies.

        Parameters
        ----------
        object : the object of measurement of the D-studies, as of :meth:`dstudy`
        sizes, **n : sizes of facets, ``topic=50`` or several. With any, the rows are the D-studies
            of measurements whose scores all have the residual variance of the level
        alpha : intervals have confidence 1 − alpha
        interval : how they are made: as for :meth:`~vcomp.VarianceComponentsResults.conf_int`; of
            D-studies ``"mls"``, ``"log"``, ``"wald"``, ``"profile"`` or ``"bootstrap"``

        Returns
        -------
        pandas.DataFrame
            A row for each level. Without sizes: ``n``, its number of scores, ``variance``, ``se``,
            ``low``, ``high`` and ``std_dev``. With sizes a row for each plan, with the columns of
            the table of :meth:`dstudy`, and ``rel_sem`` and ``abs_sem``, the conditional standard
            errors of measurement √σ²(δ) and √σ²(Δ) of an object at this level.

        Raises
        ------
        EstimationError
            If there is one residual variance, random slopes (for D-studies), or the interval is
            not available.
        PlanError
            If alpha is not between 0 and 1, or a plan is not possible.

        References
        ----------
        Brennan (2001), Generalizability Theory, sections 5.4 and 5.5: conditional standard errors
        of measurement; here they are those of a level, from the model.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("docsearch")
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, residual="query")
        >>> res.error_variances()[["n", "variance"]].round(4)
                     n  variance
        query
        keywords  6600    0.0528
        sentence  6600    0.0644
        """
        residual_groups(self._record)  # refuses one
        facets = self._record.components.facet_names
        wanted = all_sizes(sizes, n, facets, alpha=alpha, object=object)
        if not wanted and object is None:
            return error_variances(self._record, self._source(interval, "keep"), alpha)
        study = self.dstudy(object=object, sizes=wanted, alpha=alpha, interval=interval)
        return errors_by_level(study)

    def varcorr(self) -> pd.DataFrame:
        """Return the components with their standard deviations, as lme4's ``VarCorr``.

        Returns
        -------
        pandas.DataFrame
            A row for each component, residuals last: ``variance`` and ``std_dev``, nan for a
            negative estimate. With random slopes a row for each covariance as well, and
            ``correlation``, nan for variances.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> res.varcorr().round(4)
                   variance  std_dev
        component
        sys          0.0097   0.0986
        topic        0.0018   0.0420
        Residual     0.0069   0.0829
        """
        import pandas as pd

        estimate = self._record.estimate
        values = np.array(estimate.values)
        components = self._record.components
        is_covariance = np.isin(estimate.names, components.covariance_names)
        deviations = np.sqrt(np.where((values >= 0.0) & ~is_covariance, values, np.nan))
        columns = {"variance": values, "std_dev": deviations}
        if components.has_slopes:
            columns["correlation"] = components.correlations()
        return pd.DataFrame(
            columns, index=pd.Index(estimate.names, name="component", dtype=object)
        )


def _variance_of_fixed(rows: RowAccess | None) -> float:
    """Return the variance of Xβ̂ over the rows, with divisor n − 1.

    Raises
    ------
    DataError
        If there are no rows.
    """
    if rows is None:
        raise DataError(
            "this result was loaded without the sums of its rows, which r2() needs; fit the model "
            "again"
        )
    n, design = rows.data.statistics.n, rows.data.design
    beta, a = rows.estimate.beta + design.beta_origin, design.constant
    if not beta.size or n < 2:
        return 0.0
    if not a.any():
        raise EstimationError(
            "r2() needs the mean of the fixed part over the rows, which is known for a fixed part "
            "with an intercept, or with a factor that has a column for each level"
        )
    products = rows.data.column_products(beta)
    mean = float(products @ a) / n
    return max(float(beta @ products - n * mean**2) / (n - 1), 0.0)
