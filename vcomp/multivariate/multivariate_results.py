"""The result of a multivariate fit, a façade over its record: tables, D-studies, profiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.data import read_json, write_json
from vcomp.estimators.likelihood import positive_part
from vcomp.exceptions import DataError, EstimationError, PlanError, check_alpha, check_known
from vcomp.gtheory import all_sizes
from vcomp.inference import Projected
from vcomp.inference.intervals import IntervalName, IntervalSource
from vcomp.multivariate.covariance_components import (
    Composite,
    CovarianceComponents,
    check_shared,
    composite_of,
    object_term,
    optimal_weights,
    own_matrices,
    profile_variability,
    read_weights,
)
from vcomp.multivariate.dstudies import MultivariateDStudy, plan_studies
from vcomp.multivariate.estimate_record import (
    FacetLink,
    MultivariateRecord,
    component_table,
    correlation_table,
    correlations_of,
    shares_of,
    summary,
)

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.multivariate.variables import VariableLayout


class MultivariateResults(display.Printed):
    """Variance and covariance components of several dependent variables.

    Made by :func:`vcomp.fit_multivariate`. All but :meth:`profiles` also works after
    :meth:`from_json`.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch").pivot(
    ...     index=["sys", "topic"], columns="query", values="score").reset_index()
    >>> res = vcomp.fit_multivariate("keywords + sentence ~ (1|sys) + (1|topic)", data)
    >>> res.correlations("sys").round(3)
              keywords  sentence
    keywords     1.000     0.953
    sentence     0.953     1.000
    """

    def __init__(self, record: MultivariateRecord, layout: VariableLayout | None = None) -> None:
        self._record = record
        self._layout = layout

    # Estimates --------------------------------------------------------------------------------

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the dependent variables."""
        return self._record.components.variables

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms, the residual last."""
        return self._record.components.names

    @property
    def covariance_components(self) -> CovarianceComponents:
        """The estimates with their design: all that a D-study needs."""
        return self._record.components

    @property
    def components(self) -> pd.DataFrame:
        """A row for every variance and covariance.

        Columns ``term``, ``variable1``, ``variable2``, ``estimate``, ``se`` and ``correlation``
        (of covariances). Elements that are not estimable have no row; see :attr:`notes`.
        """
        return component_table(self._record.components)

    @property
    def means(self) -> pd.Series:
        """Means of the variables."""
        import pandas as pd

        return pd.Series(self._record.means.copy(), index=list(self.variables), name="mean")

    @property
    def method(self) -> str:
        """The name of the method, such as ``"reml"``."""
        return self._record.method

    @property
    def formula(self) -> str:
        """The formula as given."""
        return self._record.formula

    @property
    def nobs(self) -> int:
        """Number of scores of all variables."""
        return sum(self._record.nobs)

    @property
    def llf(self) -> float:
        """Log-likelihood, restricted for REML; nan for closed forms."""
        return self._record.llf

    @property
    def converged(self) -> bool:
        """Whether the estimation converged."""
        return self._record.converged

    @property
    def status(self) -> str:
        """A sentence on how the estimation ended."""
        return self._record.status

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the data, such as covariances that are not estimable."""
        return self._record.notes

    @property
    def links(self) -> Mapping[str, FacetLink]:
        """For every facet, whether the variables share its levels."""
        return self._record.links

    def matrix(self, term: str) -> pd.DataFrame:
        """Return the matrix of a term, (v, v); nan for variables that share no levels of it.

        Parameters
        ----------
        term : name of a component

        Raises
        ------
        EstimationError
            If there is no such term.
        """
        return self._framed(self._record.components.values[self._place(term)])

    def standard_errors(self, term: str) -> pd.DataFrame:
        """Return the standard errors of a term's matrix; nan for elements without one.

        Parameters
        ----------
        term : name of a component

        Raises
        ------
        EstimationError
            If there is no such term.
        """
        return self._framed(self._record.components.standard_errors[self._place(term)])

    def correlations(self, term: str) -> pd.DataFrame:
        """Return the correlations of a term's effects in the variables.

        For the object of measurement these are correlations of universe scores, free of error
        (disattenuated). Estimates from closed forms can lie beyond ±1. They are nan if a variance
        is not positive or a covariance not estimable.

        Parameters
        ----------
        term : name of a component

        Raises
        ------
        EstimationError
            If there is no such term.
        """
        return self._framed(correlations_of(self._record.components.values[self._place(term)]))

    def correlation_intervals(self, term: str, alpha: float = 0.05) -> pd.DataFrame:
        """Return the correlations of a term with standard errors and intervals.

        By the delta method, intervals on the scale of Fisher's z = atanh r.

        Parameters
        ----------
        term : name of a component
        alpha : intervals have confidence 1 − alpha

        Returns
        -------
        pandas.DataFrame
            with columns ``variable1``, ``variable2``, ``estimate``, ``se``, ``low`` and ``high``;
            the last three are nan if the correlation is not inside ±1 or has no standard error

        Raises
        ------
        EstimationError
            If there is no such term.
        PlanError
            If alpha is not between 0 and 1.
        """
        check_alpha(alpha)
        return correlation_table(self._record.components, self._place(term), alpha)

    def observed_correlations(
        self,
        object: str | None = None,  # noqa: A002 - the word of the field
        **n: Any,
    ) -> pd.DataFrame:
        """Return the expected correlations of the objects' mean scores.

        They are correlations of universe scores plus relative errors. With more levels of the
        other facets they approach the disattenuated correlations.

        Parameters
        ----------
        object : of measurement, the first facet if None
        **n : one size for each facet, as in :meth:`dstudy`; those of the G-study if none is given

        Raises
        ------
        PlanError
            If a facet has several sizes, or the plan is invalid.
        """
        if n:
            study = self.dstudy(object=object, **n)
            if len(study.matrices) > 1:
                raise PlanError("observed_correlations needs one size of each facet")
            universe, relative, _ = study.matrices[0]
        else:
            name = object_term(self._record.components, object)
            universe, relative, _ = own_matrices(self._record.components, name)
        return self._framed(correlations_of(universe + relative))

    # Composites and D-studies -----------------------------------------------------------------

    def composite(self, weights: Any = None) -> Composite:
        """Return the variance components of Σ w_v X_v, with the D-studies of one variable.

        A difference of two variables is a composite with the weights 1 and −1.

        Parameters
        ----------
        weights : a mapping by name, or numbers in the order of :attr:`variables`; equal weights
            that add up to 1 if None

        Raises
        ------
        PlanError
            If weights are invalid, or two variables share no levels of any term.
        """
        g = self._record.components
        w = read_weights(weights, g.variables)
        check_shared(g, w)
        named = dict(zip(g.variables, w.tolist(), strict=True))
        return Composite(composite_of(g, w), weights=named)

    def dstudy(
        self,
        weights: Any = None,
        design: str | None = None,
        *,
        object: str | None = None,  # noqa: A002 - the word of the field
        sizes: Mapping[str, Any] | None = None,
        alpha: float = 0.05,
        negative: Projected = "zero",
        interval: IntervalName | IntervalSource = "auto",
        **n: Any,
    ) -> MultivariateDStudy:
        """Return error variances and coefficients of planned measurements by all variables.

        Every plan has a row for each variable and one for their composite.

        Parameters
        ----------
        weights : of the composite, as in :meth:`composite`
        design : in Brennan's notation; that of the G-study if None
        object : of measurement; the first facet without a size if None
        sizes, **n : for each facet one size or several; for independent facets also by variable,
            ``i={"verbal": [10, 20], "maths": [15, 30]}``, with lists of equal length. If none are
            given, those of the G-study
        alpha, negative, interval : as for :meth:`VarianceComponentsResults.dstudy`

        Raises
        ------
        PlanError
            If the plan is invalid, or variables with weights share no objects.

        References
        ----------
        Brennan (2001), Generalizability Theory, section 10.1.
        """
        g = self._record.components
        return plan_studies(
            g,
            read_weights(weights, g.variables),
            independent=frozenset(
                f for f, link in self.links.items() if link.kind == "independent"
            ),
            design=design,
            object_=object,
            sizes=all_sizes(sizes, n),
            alpha=alpha,
            negative=negative,
            interval=interval,
        )

    def profiles(
        self,
        object: str | None = None,  # noqa: A002 - the word of the field
    ) -> pd.DataFrame:
        """Return the predicted universe scores of every object in all variables.

        Each prediction uses the scores of the object in all variables: an unreliable variable
        gains information from those that it correlates with, and a variable without scores is
        predicted from the others. In balanced data these are the best linear predictions; in
        others they are the best ones from the object's means.

        Parameters
        ----------
        object : the object of measurement, a facet; the first facet if None

        Returns
        -------
        pandas.DataFrame
            with a row for every object and variable: the object, ``variable``, its number ``n`` of
            scores and their ``mean`` (nan without scores), ``universe_score`` and ``se``, the
            standard error of the prediction with the components treated as known

        Raises
        ------
        PlanError
            If there is no such facet or term, or the variables do not share its levels.
        DataError
            If the result was loaded without its rows.

        References
        ----------
        Brennan (2001), Generalizability Theory, chap. 12; Cronbach et al. (1972), chap. 10.
        """
        if self._layout is None:
            raise DataError(
                "profiles need the scores, and this result was loaded without them; fit again"
            )
        name = object_term(self._record.components, object)
        return _predicted_profiles(self._layout, self._record.components, name, self._record.means)

    def profile_variability(
        self,
        object: str | None = None,  # noqa: A002 - the word of the field
    ) -> pd.Series:
        """Return the expected variance within profiles of scores, and its reliability.

        Parameters
        ----------
        object : the object of measurement, a facet; the first facet if None

        Returns
        -------
        pandas.Series
            ``universe`` and ``observed``, the expected variance within an object of the universe
            scores and of the observed mean scores, and ``reliability``, their ratio: near 0,
            observed profiles are mostly error

        Raises
        ------
        PlanError
            If there is no such facet or term, or the variables do not share its levels.

        References
        ----------
        Brennan (2001), Generalizability Theory, section 10.2.
        """
        import pandas as pd

        g = self._record.components
        name = object_term(g, object)
        variability = profile_variability(g, name, self._record.means)
        return pd.Series(variability, name="profile variance")

    def optimal_weights(
        self,
        object: str | None = None,  # noqa: A002 - the word of the field
    ) -> pd.Series:
        """Return the weights of the composite with the largest Eρ² in the G-study's design.

        These weights maximise reliability and ignore the intended meaning of the composite. They
        can be negative. As they are fitted to these data, Eρ² in new data is smaller.

        Parameters
        ----------
        object : the object of measurement, a facet; the first facet if None

        Raises
        ------
        PlanError
            If there is no such facet or term, or the variables do not share its levels.
        EstimationError
            If the matrix of the observed scores is not positive definite.
        """
        import pandas as pd

        g = self._record.components
        w = optimal_weights(g, object_term(g, object))
        return pd.Series(w, index=list(self.variables), name="weight")

    # Tables and storage -------------------------------------------------------------------------

    def tidy(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return :attr:`components` with intervals in columns ``conf_low`` and ``conf_high``.

        Intervals of variances are by modified large samples, those of covariances are normal.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha

        Raises
        ------
        PlanError
            If alpha is not between 0 and 1.
        """
        check_alpha(alpha)
        return component_table(self._record.components, alpha)

    def summary(self) -> Any:
        """Return a summary as a table of statsmodels: ``print`` it, or ``.as_html()``."""
        return summary(self._record)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.formula} by {self.method.upper()}>"

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the result as JSON text, without the scores; also write it to a file.

        Parameters
        ----------
        path : of the file; None writes none. An existing file is replaced when the new one is
            complete

        Raises
        ------
        DataError
            If the file cannot be written.
        """
        return write_json(self._record, path)

    @classmethod
    def from_json(cls, source: str | Path) -> MultivariateResults:
        """Return a result from JSON text or from the file that :meth:`to_json` wrote.

        Parameters
        ----------
        source : JSON text, or path of a file

        Raises
        ------
        DataError
            If it is not such a text or file, or of another version of the format.
        """
        return cls(read_json(MultivariateRecord, source))

    def __getstate__(self) -> Any:
        return {"_record": self._record, "_layout": None}

    def _place(self, term: str) -> int:
        check_known(term, self.terms, "unknown term {}; the terms are", EstimationError, term=term)
        return self.terms.index(term)

    def _framed(self, values: FloatArray) -> pd.DataFrame:
        import pandas as pd

        names = list(self.variables)
        return pd.DataFrame(np.array(values), index=names, columns=names)


def _predicted_profiles(
    layout: VariableLayout, g: CovarianceComponents, object_: str, means: FloatArray
) -> pd.DataFrame:
    """Return the regressed universe scores of every object, with standard errors.

    With x̄ the object's mean scores in the variables that it has, Σ the object's matrix and Δ that
    of the relative errors of these means,

        μ̂_p = μ + Σ(Σ + Δ)⁻¹(x̄_p − μ),    Var(μ̂_p − μ_p) = Σ − Σ(Σ + Δ)⁻¹Σ.

    Parameters
    ----------
    layout : of the scores
    g : the components
    object_ : the object of measurement
    means : (v,) of the variables
    """
    import pandas as pd

    term = g.place(object_)
    # The nearest matrix depends on the units of the variables: use unit variances.
    units = np.outer(layout.scale, layout.scale)
    S = units * positive_part(g.known[term] / units)
    n = layout.counts[term]
    error = np.zeros((layout.sizes[term], g.n_variables, g.n_variables))
    for t, facets in enumerate(g.facets):
        if object_ in facets and t != term:
            error += g.known[t] * shares_of(layout, term, t)
    sums = np.bincount(
        layout.groups[term].astype(np.int64) * g.n_variables + layout.scores.variable,
        weights=layout.y,
        minlength=n.size,
    ).reshape(n.shape)
    rows = []
    index = layout.scores.levels[layout.scores.facets.index(object_)]
    for p, level in enumerate(index):
        has = np.flatnonzero(n[p] > 0.0)
        deviation = sums[p, has] / n[p, has]
        total = S[np.ix_(has, has)] + error[p][np.ix_(has, has)]
        unit = np.sqrt(np.maximum(np.diagonal(total), 0.0))
        unit[unit == 0.0] = 1.0
        scaled = total / np.outer(unit, unit)
        try:
            weights = (np.linalg.solve(scaled, S[has] / unit[:, None]) / unit[:, None]).T
        except np.linalg.LinAlgError:
            weights = S[:, has] / unit @ np.linalg.pinv(scaled, hermitian=True) / unit
        variance = np.diagonal(S - weights @ S[has])
        estimate = means + weights @ deviation
        for a, name in enumerate(g.variables):
            observed = means[a] + sums[p, a] / n[p, a] if n[p, a] > 0.0 else np.nan
            se = float(np.sqrt(max(float(variance[a]), 0.0)))
            rows.append((level, name, int(n[p, a]), observed, float(estimate[a]), se))
    columns = [object_, "variable", "n", "mean", "universe_score", "se"]
    return pd.DataFrame(rows, columns=columns)
