"""The methods of a result on its estimates: the model, convergence, components, fixed effects.

Methods read the record of the fit; frames come from :mod:`~vcomp.model.tables`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.design import Structure
from vcomp.estimators import Certificate
from vcomp.inference.hypotheses import degrees_of_freedom
from vcomp.model import tables
from vcomp.model.row_access import Fitted, fixed_fit
from vcomp.model.tables import CovarianceType

if TYPE_CHECKING:
    import pandas as pd


class Estimates(Fitted):
    """Estimates with their covariance, and how they were reached."""

    # What was fitted ------------------------------------------------------------------------

    @property
    def model(self) -> Any:
        """The model that was fitted; None after loading."""
        return None if self._rows is None else self._rows.model

    @property
    def formula(self) -> str:
        """The formula as given."""
        return self._record.formula

    @property
    def method(self) -> str:
        """The name of the method, such as ``"reml"``."""
        return self._record.estimate.method

    @property
    def design(self) -> Structure:
        """The design of the data; ``print(res.design)`` describes it in words."""
        return self._record.structure

    @property
    def nobs(self) -> int:
        """Number of scores that were used."""
        return self._record.structure.n_rows

    @property
    def df_resid(self) -> int:
        """Number of scores minus number of fixed effects."""
        return self.nobs - len(self._record.exog_names)

    # How it ended ---------------------------------------------------------------------------

    @property
    def converged(self) -> bool:
        """Whether the estimation converged; components may be at their bound zero."""
        return self._record.estimate.converged

    @property
    def status(self) -> str:
        """A sentence on how the estimation ended."""
        return self._record.estimate.status

    @property
    def certificate(self) -> Certificate | None:
        """Gradient, Newton decrement and bounds at convergence; None for closed forms."""
        return self._record.estimate.certificate

    @property
    def iterations(self) -> pd.DataFrame:
        """The iterations: a row for each point, the first the start; empty without steps.

        The columns are ``llf``, ``step`` (its kind: start, scale, AI, Newton or EM), ``fraction``
        of it, ``newton_decrement`` (in standard errors), ``kkt_residual``,
        ``n_bound`` (components at zero) and ``var(…)`` for every component.
        """
        return tables.iterations(self._record.estimate.log, self._record.estimate.names)

    @property
    def engine(self) -> str:
        """Which engine computed the estimates, and why."""
        return self._record.estimate.engine

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that each stage took."""
        return dict(self._record.estimate.seconds)

    @property
    def llf(self) -> float:
        """Log-likelihood (restricted for REML), constants kept as in lme4; nan for ANOVA."""
        return self._record.estimate.llf

    @property
    def aic(self) -> float:
        """−2 llf + 2 (fixed effects + components that were estimated), as in lme4."""
        return tables.aic(self._record)

    @property
    def bic(self) -> float:
        """−2 llf + log(nobs) (fixed effects + estimated components), as in lme4."""
        return tables.bic(self._record)

    # Estimates ------------------------------------------------------------------------------

    @property
    def vcomp(self) -> pd.Series:
        """Variance components, negative ANOVA estimates as estimated; the residual is the last."""
        return tables.series(self._record.estimate.values, self._record.estimate.names, "variance")

    @property
    def bse_vcomp(self) -> pd.Series:
        """Standard errors of the components; nan for a component at its bound or held."""
        return tables.component_errors(self._record)

    def cov_vcomp(self, cov_type: CovarianceType | None = None) -> pd.DataFrame:
        """Return the covariance matrix of the components.

        Parameters
        ----------
        cov_type : for REML and ML the inverse of the ``"observed"`` (default), ``"expected"`` or
            ``"average"`` information; for ANOVA ``"sampling"``, under normality at the
            estimates: exact, or by Monte Carlo where that takes long (:attr:`mc_error_bse`). For
            all ``"unbiased"``: from mean squares with 2 MS²/(df + 2) instead of 2 MS²/df, as
            GENOVA prints them (Brennan's normal procedure). nan where a component is at its bound
            or held

        Raises
        ------
        EstimationError
            If the method has no such matrix.
        """
        return tables.component_covariance(self._record, cov_type)

    @property
    def held(self) -> tuple[str, ...]:
        """Components that were held at a given value, and not estimated."""
        return self._record.estimate.held

    @property
    def mc_error(self) -> pd.Series:
        """Monte Carlo errors of the components from the engine's random probes; 0 without.

        They include the distance of the last iteration from the maximum.
        """
        return tables.mc_errors(self._record.estimate)

    @property
    def mc_error_llf(self) -> float:
        """Monte Carlo standard error of the log-likelihood; 0 without random probes."""
        return self._record.estimate.llf_error

    @property
    def mc_error_bse(self) -> pd.Series:
        """Relative Monte Carlo errors of the standard errors: 0.01 is one per cent; 0 if exact.

        Standard errors of ANOVA come from random probes where the data are large; ``n_probes=``
        sets their number.
        """
        return tables.mc_errors_of_standard_errors(self._record.estimate)

    @property
    def fe_params(self) -> pd.Series:
        """Fixed effects."""
        return tables.series(self._record.estimate.beta, self._record.exog_names, "coef")

    @property
    def bse_fe(self) -> pd.Series:
        """Standard errors of the fixed effects."""
        variances = self._record.estimate.cov_beta.diagonal()
        return tables.series(np.sqrt(variances), self._record.exog_names, "std_error")

    @property
    def df_fe(self) -> pd.Series:
        """Satterthwaite's degrees of freedom of the fixed effects (Giesbrecht & Burns 1985).

        ∞ where all components are held, nan where their covariance is not known.
        """
        df = degrees_of_freedom(self._record.estimate)
        return tables.series(df, self._record.exog_names, "df")

    @property
    def params(self) -> pd.Series:
        """Fixed effects, then components as ``var(sys)``, …, ``var(Residual)``."""
        return tables.params(self._record)

    @property
    def bse(self) -> pd.Series:
        """Standard errors of :attr:`params`, from :meth:`cov_params`.

        Those of components are of the information matrix, for normal effects. Where intervals are
        robust, :meth:`summary` and :meth:`gstudy` show robust ones, which belong to the intervals;
        ``summary(interval="mls")`` shows these.
        """
        return tables.joined(self.bse_fe, self.bse_vcomp, "bse")

    @property
    def tvalues(self) -> pd.Series:
        """Fixed effects over their standard errors; nan for components, which have no t-test.

        :meth:`test` tests a component.
        """
        return tables.with_components(self._record, self.fe_params / self.bse_fe, "tvalues")

    @property
    def pvalues(self) -> pd.Series:
        """P-values of the fixed effects, with Satterthwaite's degrees of freedom; else nan."""
        found = fixed_fit(self._record, self._rows).table(0.05, "satterthwaite")["p_value"]
        return tables.with_components(self._record, found, "pvalues")

    def cov_params(self) -> pd.DataFrame:
        """Return the covariance matrix of :attr:`params`, block diagonal."""
        return tables.parameter_covariance(self._record)

    def anova_table(self) -> pd.DataFrame:
        """Return the analysis of variance: df, sum_sq, mean_sq and expected mean squares.

        The columns ``E[…]`` hold the coefficients of the components in the expected mean squares.
        Sums of squares are sequential after ``method="type1"``, and those of each term adjusted
        for all others after ``"henderson3"``. After any other method they are those of Henderson's
        Method I: for unbalanced data "analogous" ones, each T term less those of coarser terms.

        Raises
        ------
        EstimationError
            If the mean is not constant: Method I does not allow covariates.
        """
        return tables.anova(self._record)
