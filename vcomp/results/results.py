"""The result of a fit: a façade that names, labels and delegates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vcomp.components import REPLICATE, VarianceComponents
from vcomp.design import Structure
from vcomp.dstudy import DStudy, dstudy
from vcomp.dstudy.rank_accuracy import expected_tau, expected_tau_ap
from vcomp.estimators import Certificate
from vcomp.exceptions import DataError, EstimationError, PlanError
from vcomp.results import tables
from vcomp.results.record import FitRecord

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from vcomp.results.rows import RowAccess

__all__ = ["VarianceComponentsResults"]

CovarianceKind = Literal["observed", "expected", "average", "sampling"]


class VarianceComponentsResults:
    """Variance components with their uncertainty, and what follows from them.

    Made by :meth:`VarianceComponentsModel.fit` and :func:`vcomp.fit`. What needs no rows (tables,
    D-studies, rank accuracy, the summary) also works after pickling or :meth:`from_json`.

    Examples
    --------
    >>> import vcomp
    >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    >>> res.vcomp.round(5)
    sys         0.00973
    topic       0.00176
    Residual    0.00687
    Name: variance, dtype: float64
    >>> res.converged, res.status
    (True, 'Converged.')
    """

    def __init__(self, record: FitRecord, rows: RowAccess | None = None) -> None:
        self._record = record
        self._rows = rows

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
        """Number of scores less number of fixed effects."""
        return self.nobs - len(self._record.exog_names)

    # How it ended ---------------------------------------------------------------------------

    @property
    def converged(self) -> bool:
        """Whether the method reached its answer; a bound at zero is an answer."""
        return self._record.estimate.converged

    @property
    def status(self) -> str:
        """A sentence on how the estimation ended."""
        return self._record.estimate.status

    @property
    def certificate(self) -> Certificate | None:
        """The numbers that show convergence; None for closed forms."""
        return self._record.estimate.certificate

    @property
    def iterations(self) -> pd.DataFrame:
        """How the maximum was reached: a row a point, the first the start; empty without steps.

        The columns are ``llf``, ``step`` (what led there: start, scale, AI, Newton or EM),
        ``fraction`` of it, ``newton_decrement`` (in standard errors), ``kkt_residual``,
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
        return -2.0 * self.llf + 2.0 * self._n_parameters

    @property
    def bic(self) -> float:
        """−2 llf + log(nobs) (fixed effects + estimated components), as in lme4."""
        return float(-2.0 * self.llf + np.log(self.nobs) * self._n_parameters)

    @property
    def _n_parameters(self) -> int:
        estimate = self._record.estimate
        return len(self._record.exog_names) + len(estimate.names) - len(estimate.held)

    # Estimates ------------------------------------------------------------------------------

    @property
    def vcomp(self) -> pd.Series:
        """Variance components, negative ANOVA estimates as estimated; the residual is the last."""
        return tables.series(self._record.estimate.values, self._record.estimate.names, "variance")

    @property
    def bse_vcomp(self) -> pd.Series:
        """Standard errors of the components; nan for one at its bound or held: it has none."""
        variances = np.diagonal(self.cov_vcomp().to_numpy())
        se = np.sqrt(np.where(variances > 0.0, variances, np.nan))
        return tables.series(se, self._record.estimate.names, "std_error")

    def cov_vcomp(self, kind: CovarianceKind | None = None) -> pd.DataFrame:
        """Return the covariance matrix of the components.

        Parameters
        ----------
        kind : for REML and ML the inverse of the ``"observed"`` (default), ``"expected"`` or
            ``"average"`` information; for ANOVA ``"sampling"``, exact under normality at the
            estimates. nan where a component is at its bound or held

        Raises
        ------
        EstimationError
            If the method has no such matrix.
        """
        covariances = self._record.estimate.covariances
        chosen = next(iter(covariances)) if kind is None else kind
        if chosen not in covariances:
            raise EstimationError(
                f"method {self.method!r} has no {kind!r} covariance; it has "
                f"{', '.join(map(repr, covariances))}"
            )
        return tables.matrix(covariances[chosen], self._record.estimate.names)

    @property
    def held(self) -> tuple[str, ...]:
        """Components that were held at a given value, and not estimated."""
        return self._record.estimate.held

    @property
    def mc_error(self) -> pd.Series:
        """Standard errors that the engine's random probes give the components; 0 without.

        With them is how far the iteration, which ends within these errors, was from the maximum.
        """
        estimate = self._record.estimate
        errors = np.array([estimate.monte_carlo.get(name, 0.0) for name in estimate.names])
        return tables.series(errors, estimate.names, "mc_error")

    @property
    def mc_error_llf(self) -> float:
        """The same of the log-likelihood."""
        return self._record.estimate.llf_error

    @property
    def fe_params(self) -> pd.Series:
        """Fixed effects."""
        return tables.series(self._record.estimate.beta, self._record.exog_names, "coef")

    @property
    def bse_fe(self) -> pd.Series:
        """Standard errors of the fixed effects."""
        variances = np.diagonal(self._record.estimate.cov_beta)
        return tables.series(np.sqrt(variances), self._record.exog_names, "std_error")

    @property
    def params(self) -> pd.Series:
        """Fixed effects, then components as ``var(sys)``, …, ``var(Residual)``."""
        import pandas as pd

        both: pd.Series = pd.concat([self.fe_params, self._as_params(self.vcomp)])
        return both.rename("params")

    @property
    def bse(self) -> pd.Series:
        """Standard errors of :attr:`params`."""
        import pandas as pd

        both: pd.Series = pd.concat([self.bse_fe, self._as_params(self.bse_vcomp)])
        return both.rename("bse")

    def cov_params(self) -> pd.DataFrame:
        """Return the covariance matrix of :attr:`params`: fixed effects and components apart."""
        estimate, p = self._record.estimate, len(self._record.exog_names)
        k = len(estimate.names)
        covariance = np.zeros((p + k, p + k))
        covariance[:p, :p] = estimate.cov_beta
        covariance[p:, p:] = self.cov_vcomp().to_numpy()
        return tables.matrix(covariance, tuple(self.params.index))

    def conf_int(self, alpha: float = 0.05, method: str = "satterthwaite") -> pd.DataFrame:
        """Return intervals of :attr:`params` in columns 0 and 1, as statsmodels does.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        method : for the components ``"satterthwaite"`` (χ² with ν = 2 (σ̂²/se)²) or ``"wald"``;
            fixed effects have Wald intervals (normal) in both cases. A component at its bound, or
            a negative one with Satterthwaite's method, has none (nan)

        Raises
        ------
        EstimationError
            If the method is not known or alpha is not between 0 and 1.
        """
        return tables.conf_int(self, alpha, method)

    def _as_params(self, components: pd.Series) -> pd.Series:
        return components.rename(index=lambda name: f"var({name})")

    # Tables ---------------------------------------------------------------------------------

    def anova_table(self) -> pd.DataFrame:
        """Return the analysis of variance: df, sum_sq, mean_sq and expected mean squares.

        The columns ``E[…]`` hold the coefficients of the components in the expected mean squares.
        After ``method="type1"`` they are sequential, after ``"henderson3"`` each term is adjusted
        for the others. After any other method they are those of Henderson's Method I: unbalanced
        data have "analogous" sums of squares, each T term less those of coarser terms.

        Raises
        ------
        EstimationError
            If the mean is not one constant: Method I has no place for covariates.
        """
        if self._record.table is None:
            raise EstimationError(
                "the analysis of variance by Henderson's Method I needs a mean that is one "
                f"constant, and the fixed part is {' + '.join(self._record.exog_names) or '0'}; "
                "method='type1' and 'henderson3' have one with covariates"
            )
        return tables.anova(self._record.table)

    def gstudy(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return a row a component: estimate, se, ci_low, ci_high (Satterthwaite) and percent.

        Percent is of the total variance, negative estimates taken as zero. After an engine with
        random probes there is ``mc_error`` after se.
        """
        return tables.gstudy(self, alpha)

    def tidy(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return a row a parameter: term, kind, estimate, std_error, conf_low, conf_high."""
        return tables.tidy(self, alpha)

    def glance(self) -> pd.DataFrame:
        """Return one row: method, nobs, df_resid, llf, aic, bic, converged, status."""
        return tables.glance(self)

    def summary(self, alpha: float = 0.05) -> Any:
        """Return a summary on statsmodels' table classes: ``print`` it, or ``.as_html()``."""
        from vcomp.results.summary import summary

        return summary(self, alpha)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.formula} by {self.method.upper()}>"

    def _repr_html_(self) -> str:
        return str(self.summary().as_html())

    # What it means for the test ---------------------------------------------------------------

    @property
    def components(self) -> VarianceComponents:
        """Components with facets, nesting, sizes and covariance: what a D-study starts from.

        Raises
        ------
        PlanError
            If cells hold several scores and a facet of the formula has the name ``replicate``,
            which a D-study needs for them.
        """
        if self.design.replicated and REPLICATE in self.design.facets:
            raise PlanError(
                f"the cells hold several scores, which a D-study calls {REPLICATE!r}, and a facet "
                "of the formula has that name; rename the column for a D-study"
            )
        return self._record.components

    def dstudy(
        self,
        design: str | None = None,
        *,
        object: str | None = None,  # noqa: A002 - the word of the field
        sizes: Mapping[str, Any] | None = None,
        alpha: float = 0.05,
        negative: str = "zero",
        **n: Any,
    ) -> DStudy:
        """Return what planned measurements would be worth: error variances, Eρ² and Φ.

        Parameters
        ----------
        design : in Brennan's notation, ``"p x (a:i)"``; the G-study's own if None
        object : the object of measurement; if None, the first facet without a size
        sizes, **n : for each facet one size or several, ``topic=[25, 50]``; all combinations are
            planned. A facet without a size takes the G-study's. Without any size the plan is the
            G-study's own, with the exact effective sizes of unbalanced data
        alpha : intervals have confidence 1 − alpha
        negative : ``"zero"`` takes negative components as zero, ``"keep"`` as estimated

        Raises
        ------
        PlanError
            If a facet is not known, a size is not positive, or the design needs components that
            the G-study cannot tell apart.

        Examples
        --------
        >>> import vcomp
        >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
        >>> res.dstudy(topic=[3, 6]).table[["topic", "Erho2", "Phi"]].round(3)
           topic  Erho2    Phi
        0      3  0.809  0.772
        1      6  0.895  0.871
        """
        return dstudy(
            self.components,
            design,
            object=object,
            sizes=sizes,
            alpha=alpha,
            negative=negative,
            **n,
        )

    def expected_tau(self, *, alpha: float = 0.05, **n: Any) -> pd.DataFrame:
        """Return Eτ, the expected correlation of a ranking by n topics with the true ranking.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        **n : the facet that is sampled anew, and its sizes: ``topic=[25, 50]``. Without one the
            formula's first facet is ranked, over as many levels of the second as there were

        Returns
        -------
        pandas.DataFrame with columns n, estimate, variance, low, high

        Raises
        ------
        PlanError
            If the design does not have exactly two crossed facets, or the facet is not one of
            them.

        References
        ----------
        Urbano (2016), Information Retrieval Journal 19, section 3.
        """
        pairs, sizes = self._rank(n)
        return expected_tau(pairs, sizes, alpha=alpha)

    def expected_tau_ap(self, *, alpha: float = 0.05, **n: Any) -> pd.DataFrame:
        """Return Eτ_AP, which weighs swaps at the top; otherwise as :meth:`expected_tau`."""
        pairs, sizes = self._rank(n)
        return expected_tau_ap(pairs, sizes, alpha=alpha)

    def _rank(self, n: Mapping[str, Any]) -> tuple[Any, Any]:
        cells = self._record.cells
        if cells is None:
            raise PlanError(
                "rank accuracy needs the cell means of two facets (systems and topics), and this "
                f"result has {', '.join(self.design.facets)}; average the scores to a "
                "topic × system matrix and call vcomp.ir.expected_tau(matrix)"
            )
        if len(n) > 1 or any(facet not in cells.facets for facet in n):
            raise PlanError(
                f"give one size of {cells.facets[0]!r} or of {cells.facets[1]!r}, such as "
                f"{cells.facets[1]}=50; given were {', '.join(map(repr, n))}"
            )
        sampled = next(iter(n), cells.facets[1])
        system = cells.facets[1 - cells.facets.index(sampled)]
        sizes = n.get(sampled, len(cells.levels[cells.facets.index(sampled)]))
        return cells.differences(system), sizes

    # What needs the rows ----------------------------------------------------------------------

    @property
    def random_effects(self) -> dict[str, pd.DataFrame]:
        """Predicted effects (BLUPs) of every term.

        Frames with the levels as index and the columns ``estimate``, ``se`` (of the prediction
        error, fixed effects estimated) and ``conditional_se`` (fixed effects taken as known: what
        lme4 prints). Both are nan where effects can only be solved for iteratively: each would
        need a solve of its own.
        """
        return self._access().random_effects()

    @property
    def fittedvalues(self) -> pd.Series:
        """Fixed part plus predicted effects of every row that was used."""
        return self._access().fitted_values()

    @property
    def resid(self) -> pd.Series:
        """Response less :attr:`fittedvalues`."""
        return self._access().residuals()

    def predict(self, data: Any = None) -> pd.Series:
        """Return fixed part plus predicted effects for new rows.

        Parameters
        ----------
        data : rows with the columns of the formula (the response may be absent), in any
            container that :func:`vcomp.fit` takes; None for the rows that were used. A level that
            the fit has not seen contributes nothing: the best prediction of its effect is zero

        Raises
        ------
        DataError
            If a column is missing, or the result was loaded without its rows.
        """
        return self._access().predict(data)

    def augment(self) -> pd.DataFrame:
        """Return a row a score: response, facets, fitted, resid."""
        return self._access().augment()

    def _access(self) -> RowAccess:
        if self._rows is None:
            raise DataError(
                "this result was loaded without its rows; fit the model again for predicted "
                "effects, fitted values and residuals"
            )
        return self._rows

    # Travel -----------------------------------------------------------------------------------

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the result as JSON text, without the rows; also write it to `path` if given."""
        from vcomp.results.storage import write_json

        return write_json(self._record, path)

    @classmethod
    def from_json(cls, source: str | Path) -> VarianceComponentsResults:
        """Return a result from JSON text or from the file that :meth:`to_json` wrote.

        Raises
        ------
        DataError
            If it is not such a text or file, or has another version of the format.
        """
        from vcomp.results.storage import read_json

        return cls(read_json(source))

    def __copy__(self) -> VarianceComponentsResults:
        return type(self)(self._record, self._rows)

    def __deepcopy__(self, memo: dict[int, Any]) -> VarianceComponentsResults:
        # Nothing in a result can be changed; the rows are shared.
        return self.__copy__()

    def __getstate__(self) -> dict[str, Any]:
        return {"_record": self._record, "_rows": None}
