"""Tests of components and of fixed effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcomp.results import fixed_tables
from vcomp.results.evidence import component_fit
from vcomp.results.fitted import FittedComponents
from vcomp.significance.component_test import Simulation, component_test
from vcomp.significance.outcome import HypothesisTest

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

__all__ = ["Hypotheses"]


class Hypotheses(FittedComponents):
    """Tests of components, and tables and tests of fixed effects."""

    def test(
        self,
        term: str,
        method: str = "auto",
        *,
        n: int = 1000,
        rng: int | np.random.Generator | None = None,
        workers: int = 1,
    ) -> HypothesisTest:
        """Return a test of whether the component of a term is 0; ``print`` it.

        Parameters
        ----------
        term : name of a component
        method :

            ``"f"``
                ratio of mean squares with equal expectations if the component is 0: exact in
                balanced data, and for terms without a finer one in any (Wald 1947). Where only
                sums of several mean squares have the expectation, and the data are balanced, an
                approximate one that says so
            ``"lrt"``
                likelihood ratio, restricted after REML, against ½χ²₀ + ½χ²₁ (Self & Liang 1987):
                for many levels
            ``"simulated"``
                the same ratio against data drawn at the fit without the component
            ``"score"``
                restricted score at the fit without the component (Zhang & Lin 2003)
            ``"auto"``
                the exact F if there is one; else ``"simulated"`` where that is cheap (orthogonal
                strata, or up to 500 effects and 20,000 rows), else ``"lrt"``. After closed forms
                the F. The outcome says which and why
        n, rng, workers : data sets drawn by a simulated test (that ``"auto"`` may choose), their
            seed or generator, and threads; the p-value has its Monte Carlo standard error

        Raises
        ------
        EstimationError
            If there is no such component, it is held, or the method does not apply here.
        DataError
            If the method needs the rows of a result that was loaded without them.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> print(res.test("sys"))
        sys: F = 5.247, p = 0.0226; exact F-test, F(4, 8).
        F is MS(sys) / MS(Residual), whose expectations are equal if the component is 0.
        Chosen as it is exact.
        """
        simulation = Simulation(n, rng, workers)
        return component_test(component_fit(self), term, method, simulation)

    def fixed_effects(self, alpha: float = 0.05, ddf: str = "satterthwaite") -> pd.DataFrame:
        """Return a row a fixed effect: coef, std_error, df, t, p_value, ci_low, ci_high.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        ddf : degrees of freedom of t: ``"satterthwaite"`` (Giesbrecht & Burns 1985; as lmerTest),
            ``"kenward-roger"`` (1997, with its standard errors; after REML, by engines that
            factor) or ``"normal"``, the components as if known. df is ∞ where the normal
            distribution serves, and nan where it has to as the components have no covariance

        Raises
        ------
        EstimationError
            If ``ddf`` is not known, or the fit does not have it.
        PlanError
            If alpha is not between 0 and 1.
        """
        return fixed_tables.fixed_effects(self, alpha, ddf)

    def t_test(
        self, contrasts: Any, alpha: float = 0.05, ddf: str = "satterthwaite"
    ) -> pd.DataFrame:
        """Return a row a contrast Lβ = c of the fixed effects, as :meth:`fixed_effects` does.

        Parameters
        ----------
        contrasts : rows of numbers, one a fixed effect; or text such as ``"x = z"``
        alpha, ddf : as for :meth:`fixed_effects`; ``coef`` is Lβ̂ − c

        Raises
        ------
        EstimationError
            If they are no contrasts of these fixed effects, or the fit does not have ``ddf``.
        """
        return fixed_tables.contrasts(self, contrasts, alpha, ddf)

    def f_test(self, contrasts: Any, ddf: str = "satterthwaite") -> HypothesisTest:
        """Return the F-test of several contrasts Lβ = c of the fixed effects at once.

        Degrees of freedom of the denominator are those of Fai and Cornelius (1996), as in
        lmerTest; with ``ddf="kenward-roger"`` F is scaled.

        Parameters
        ----------
        contrasts : rows of numbers, one a fixed effect; or text such as ``"x = z, x = 1"``
        ddf : as for :meth:`fixed_effects`

        Raises
        ------
        EstimationError
            As for :meth:`t_test`, or if the contrasts contradict each other.
        """
        return fixed_tables.joint_test(self, contrasts, ddf)
