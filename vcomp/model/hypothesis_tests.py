"""The methods of a result that test components and fixed effects.

Methods delegate to :mod:`vcomp.inference.hypotheses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcomp.inference import hypotheses
from vcomp.model.row_access import Fitted, component_fit, fixed_fit

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from vcomp.inference.hypotheses import (
        CovarianceOfFixed,
        DegreesOfFreedom,
        HypothesisTest,
        TestName,
    )


class HypothesisTests(Fitted):
    """Tests of components, and of fixed effects with their tables."""

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
        term : name of a component
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

    def fixed_effects(
        self,
        alpha: float = 0.05,
        ddf: DegreesOfFreedom = "satterthwaite",
        cov_type: CovarianceOfFixed = "model",
    ) -> pd.DataFrame:
        """Return a row for each fixed effect: coef, std_error, df, t, p_value, ci_low, ci_high.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        ddf : degrees of freedom of t: ``"satterthwaite"`` (Giesbrecht & Burns 1985; as lmerTest),
            ``"kenward-roger"`` (1997, with its standard errors; after REML, by engines that
            factor) or ``"normal"``, with the components treated as known. df is ∞ if the normal
            distribution is used by choice or because no component is estimated, and nan if it is
            used because the components have no covariance matrix
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
        contrasts : rows of numbers, one for each fixed effect; or text such as ``"x = z, x = 1"``
        ddf, cov_type : as for :meth:`fixed_effects`

        Raises
        ------
        EstimationError
            As for :meth:`t_test`, or if the contrasts contradict each other.
        """
        return fixed_fit(self._record, self._rows).f_test(contrasts, ddf, cov_type)
