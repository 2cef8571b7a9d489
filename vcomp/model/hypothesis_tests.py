"""Methods of a result that test components, fixed effects and differences of levels.

Methods delegate to :mod:`vcomp.inference.hypotheses` and :mod:`~vcomp.model.level_comparisons`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vcomp.exceptions import guarded
from vcomp.inference import hypotheses
from vcomp.model.estimates import fixed_fit
from vcomp.model.record import FitRecord
from vcomp.model.row_access import Fitted, RowAccess

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import pandas as pd

    from vcomp.inference.hypotheses import (
        CovarianceOfFixed,
        DegreesOfFreedom,
        HypothesisTest,
        TestName,
    )
    from vcomp.inference.pairwise import CorrectionName, PairwiseComparisons
    from vcomp.model.level_comparisons import LevelTest


class HypothesisTests(Fitted):
    """Tests of components, and of fixed effects with their tables."""

    @guarded
    def test(
        self,
        term: str,
        test: TestName = "auto",
        *,
        n: int = 1000,
        rng: int | np.random.Generator | None = None,
        workers: int = 1,
    ) -> HypothesisTest:
        """Return a test of whether the component of a term is 0; ``print`` it.

        Parameters
        ----------
        term : name of a component; ``"Residual"``, if there are several residual variances, tests
            whether these are equal
        test : which test

            ``"f"``
                ratio of mean squares with equal expectations if the component is 0: exact in
                balanced data, and for terms without a finer one in any (Wald 1947). If only sums
                of several mean squares have equal expectations, and the data are balanced, an
                approximate F, which its notes state. For normal effects
            ``"robust"``
                the ratio of a mean square to its expectation without the component, with degrees
                of freedom from the data, as ``interval="robust"``: for effects of any distribution
                and variances that differ, such as 0/1 scores. Approximate
            ``"lrt"``
                likelihood ratio, restricted after REML, against ½χ²₀ + ½χ²₁ (Self & Liang 1987):
                for many levels
            ``"simulated"``
                the same ratio, compared with that of data drawn at the fit without the component
            ``"score"``
                restricted score at the fit without the component (Zhang & Lin 2003)
            ``"auto"``
                the exact F if there is one; else ``"simulated"`` if that is cheap (orthogonal
                strata, or up to 500 effects and 20,000 rows), else ``"lrt"``. After closed forms
                the F test. The result states which test was used, and why
        n : number of data sets that a simulated test (which ``"auto"`` may choose) draws; the
            p-value has its Monte Carlo standard error
        rng : seed, or a ``numpy.random.Generator`` from which one is drawn; 0 if not given
        workers : number of threads, which changes the numbers by rounding at most: many
            small data sets, or alike ones, are fitted together

        Raises
        ------
        EstimationError
            If there is no such component, it is held, or the test does not apply here.
        DataError
            If the test needs the rows of a result that was loaded without them.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> print(res.test("sys"))
        sys: F = 5.247, p = 0.0226; exact F-test, F(4, 8).
        F is MS(sys) / MS(Residual), whose expectations are equal if the component is 0.
        The distribution is that for normal effects; test='robust' does not assume it.
        Chosen because it is exact.
        """
        fit = component_fit(self._record, self._rows)
        return hypotheses.component_test(fit, term, test, hypotheses.Simulation(n, rng, workers))

    @guarded
    def fixed_effects(
        self,
        alpha: float = 0.05,
        ddf: DegreesOfFreedom = "satterthwaite",
        cov_type: CovarianceOfFixed = "model",
    ) -> pd.DataFrame:
        """Return a row for each fixed effect: coef, std_error, df, t, p_value, low, high.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        ddf : degrees of freedom of t: ``"satterthwaite"`` (Giesbrecht & Burns 1985; as lmerTest,
            with a component at its bound 0 treated as known), ``"unbounded"`` (an estimate of 0 is
            uncertain, and degrees of freedom are those at upper limits of the components unless
            the variance is a multiple of one mean square: for facets with few levels, such as two
            prompts; fixed parts with a factor of hundreds of levels have those of the former),
            ``"kenward-roger"`` (1997, with its standard errors, components at their
            bound as uncertain; after REML, by engines that factor) or ``"normal"``, with all
            components treated as known. df is ∞ if the normal distribution is used by choice or
            because no component is estimated, and nan if it is used because the components have
            no covariance matrix
        cov_type : ``"model"`` for the covariance matrix that follows from the components;
            ``"robust"`` for that of rows that may be correlated in any way if they share a level
            of a facet, and are independent if they do not (clustered by all crossed facets,
            Cameron, Gelbach & Miller 2011), without bias if the model is correct.
            ``ddf="satterthwaite"`` then combines the numbers of levels − 1. Facets with fewer than
            6 levels are treated as in the model

        Raises
        ------
        EstimationError
            If ``ddf`` or ``cov_type`` is not known, or not available for this fit.
        DataError
            If they need rows, or contributions of rows, that the result was loaded without.
        PlanError
            If alpha is not between 0 and 1.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("docsearch")
        >>> res = vcomp.fit("score ~ query + (1|sys) + (1|topic)", data)
        >>> columns = ["coef", "std_error", "df"]
        >>> res.fixed_effects()[columns].round(3)  # doctest: +NORMALIZE_WHITESPACE
                            coef  std_error         df
        term
        Intercept          0.318      0.026   191.851
        query[T.sentence]  0.048      0.004 13006.000
        >>> res.fixed_effects(cov_type="robust")[columns].round(3)
        ... # doctest: +NORMALIZE_WHITESPACE
                            coef  std_error     df
        term
        Intercept          0.318      0.026  149.0
        query[T.sentence]  0.048      0.016  149.0
        """
        return fixed_fit(self._record, self._rows).table(alpha, ddf, cov_type)

    @guarded
    def t_test(
        self,
        contrasts: Any,
        alpha: float = 0.05,
        ddf: DegreesOfFreedom = "satterthwaite",
        cov_type: CovarianceOfFixed = "model",
    ) -> pd.DataFrame:
        """Return a row for each contrast Lβ = c of the fixed effects, as :meth:`fixed_effects`.

        Parameters
        ----------
        contrasts : rows of numbers, one for each fixed effect; or text such as ``"x = z"``
        alpha, ddf, cov_type : as for :meth:`fixed_effects`; ``coef`` is Lβ̂ − c

        Raises
        ------
        EstimationError
            If they are not contrasts of these fixed effects, or ``ddf`` or ``cov_type`` is not
            known or not available for this fit.
        """
        return fixed_fit(self._record, self._rows).t_test(contrasts, alpha, ddf, cov_type)

    @guarded
    def f_test(
        self,
        contrasts: Any,
        ddf: DegreesOfFreedom = "satterthwaite",
        cov_type: CovarianceOfFixed = "model",
    ) -> HypothesisTest:
        """Return the F-test of several contrasts Lβ = c of the fixed effects at once.

        Degrees of freedom of the denominator are those of Fai and Cornelius (1996), as in
        lmerTest; with ``ddf="kenward-roger"`` F is scaled.

        Parameters
        ----------
        contrasts : rows of numbers, one for each fixed effect; text such as ``"x = z, x = 1"``; or
            the name of a factor or an interaction, ``"recipe"`` or ``"recipe:oven"``, whose row of
            :meth:`~vcomp.VarianceComponentsResults.anova` of type 3 this is. The name of a column
            is that column
        ddf, cov_type : as for :meth:`fixed_effects`

        Raises
        ------
        EstimationError
            As for :meth:`t_test`, or if the contrasts contradict each other, a name is not known,
            or all columns of the term depend on those of others.
        DataError
            If a term is named, and the result was loaded without its rows.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
        >>> print(res.f_test("sys"))
        C(sys): F = 5.247, p = 0.0226; F-test with Satterthwaite's degrees of freedom, F(4, 8.0).
        """
        fit = fixed_fit(self._record, self._rows)
        return hypotheses.f_test_of(fit, contrasts, ddf, cov_type)

    @guarded
    def wald_test(self, contrasts: Any, cov_type: CovarianceOfFixed = "model") -> HypothesisTest:
        """Return the Wald χ² test of contrasts Lβ = c of the fixed effects, for large samples.

        The components are treated as known, as statsmodels does; :meth:`f_test` allows for their
        errors.

        Parameters
        ----------
        contrasts : rows of numbers, one for each fixed effect; or text such as ``"x = z, x = 1"``
        cov_type : as for :meth:`fixed_effects`

        Raises
        ------
        EstimationError
            As for :meth:`f_test`.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("docsearch")
        >>> res = vcomp.fit("score ~ query + (1|sys) + (1|topic)", data)
        >>> test = res.wald_test("query[T.sentence] = 0")
        >>> round(test.statistic, 1), test.df
        (129.4, (1.0,))
        """
        found = fixed_fit(self._record, self._rows).f_test(contrasts, "normal", cov_type)
        n = found.df[0]
        return replace(
            found,
            symbol="χ²",
            statistic=n * found.statistic,
            distribution=f"χ²({n:g})",
            df=(n,),
        )

    @guarded
    def compare_levels(
        self,
        facet: str,
        test: LevelTest = "t",
        *,
        levels: Iterable[object] | None = None,
        baseline: object | None = None,
        correction: CorrectionName | None = None,
        alpha: float = 0.05,
        ddf: DegreesOfFreedom | None = None,
        cov_type: CovarianceOfFixed | None = None,
    ) -> PairwiseComparisons:
        """Test the differences between levels of a factor of the fixed part, in pairs.

        Compared are least-squares means (estimated marginal means): levels of other factors have
        equal weights, and covariates their means over the rows. Interactions are averaged in the
        same way, and the result says so.

        Levels of a random term can be compared, too. Their differences are those of predicted
        effects, which are shrunken towards zero: they are predictions with their errors, and no
        tests of levels that somebody chose.

        Parameters
        ----------
        facet : column of a factor of the fixed part, whether it is written as ``sys`` or as
            ``C(sys)``; else the name of a random term
        test : ``"t"``, of each pair; ``"tukey"``, of all pairs at once (Tukey-Kramer if standard
            errors differ); ``"max-t"``, the same with the correlations of the differences, where
            Tukey-Kramer is approximate; ``"dunnett"``, of all other levels with `baseline` at once
        levels : those to compare, all if None; their order is that of the pairs
        baseline : a level with which each other is compared, in place of all pairs
        correction : of the p-values of ``"t"`` for the number of pairs: ``"holm"`` (the default),
            ``"bonferroni"``, ``"fdr_bh"`` (Benjamini and Hochberg), ``"fdr_by"`` (Benjamini and
            Yekutieli) or ``"none"``; not given for the other tests
        alpha : level of significance; intervals have confidence 1 − alpha
        ddf : degrees of freedom, as for :meth:`t_test`, each pair its own; ``"satterthwaite"`` if
            None. Not given for a random term, whose errors are normal, with the components as if
            known
        cov_type : which covariance matrix, as for :meth:`t_test`; ``"model"`` if None. Not given
            for a random term

        Returns
        -------
        PairwiseComparisons
            The same value as that of :func:`vcomp.ir.compare_systems`: `table` with a row for each
            pair, `groups` of levels that are not distinguished, `summary()` and `plot()`.

        Raises
        ------
        PlanError
            If `facet` is neither a factor of the fixed part nor a random term, or an option is not
            one of the above, or is given to a test that has no use for it.
        DataError
            If a level is not there, or the result was stored without comparisons of `facet`
            (:meth:`~vcomp.VarianceComponentsResults.to_json`).
        FormulaError
            If `facet` is a numerical covariate, its column is also in another expression of the
            fixed part, or the mean of a covariate is not known because there is no intercept.
        EstimationError
            If degrees of freedom or covariance matrix are not available, as for :meth:`t_test`;
            the component of a random term is estimated at zero; or the mean of a level is not
            estimable, as combinations of factors have no rows.

        References
        ----------
        Searle, S. R., Speed, F. M. and Milliken, G. A. (1980). Population marginal means in the
        linear model: an alternative to least squares means. *The American Statistician*, 34,
        216-221.

        Kramer, C. Y. (1956). Extension of multiple range tests to group means with unequal numbers
        of replications. *Biometrics*, 12, 307-310.

        Dunnett, C. W. (1955). A multiple comparison procedure for comparing several treatments
        with a control. *Journal of the American Statistical Association*, 50, 1096-1121.

        Gelman, A., Hill, J. and Yajima, M. (2012). Why we (usually) don't have to worry about
        multiple comparisons. *Journal of Research on Educational Effectiveness*, 5, 189-211.

        Examples
        --------
        >>> import vcomp
        >>> data = vcomp.datasets.load("bodoff2007_alpha")
        >>> res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
        >>> compared = res.compare_levels("sys", "tukey")
        >>> compared.groups.round(3)
                      mean group
        sys
        algorithm 3  0.883     a
        algorithm 5  0.767    ab
        algorithm 2  0.720    ab
        algorithm 4  0.650    ab
        algorithm 1  0.600     b
        """
        from vcomp.model.level_comparisons import compare_levels  # deferred for start-up time

        return compare_levels(
            self._record,
            self._rows,
            facet,
            test,
            levels,
            baseline,
            correction,
            alpha,
            ddf,
            cov_type,
        )


def component_fit(record: FitRecord, rows: RowAccess | None) -> hypotheses.ComponentFit:
    """Return the values that tests of a component use."""
    return hypotheses.ComponentFit(
        estimate=record.estimate,
        table=record.tables.table,
        classical=record.structure.balanced and record.components.is_closed,
        stats=None if rows is None else rows.data.statistics,
        robust=record.robust_components,
        n_residuals=record.components.n_residuals,
        has_matrices=bool(record.components.matrices),
        fixed=record.exog_names,
    )
