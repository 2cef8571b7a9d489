"""The result of a multivariate fit: the record with tables, D-studies and profiles as methods."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, EstimationError, PlanError, check_alpha, did_you_mean
from vcomp.gtheory import all_sizes
from vcomp.inference import Projected
from vcomp.inference.intervals import IntervalName, IntervalSource
from vcomp.model import read_json, write_json
from vcomp.multivariate.cone import positive_part
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
    summary,
)

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.multivariate.variable_layout import Layout


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

    def __init__(self, record: MultivariateRecord, layout: Layout | None = None) -> None:
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
        """The estimates with the design that they belong to: all that a D-study needs."""
        return self._record.components

    @property
    def components(self) -> pd.DataFrame:
        """A row for every variance and covariance.

        Columns ``term``, ``variable1``, ``variable2``, ``estimate``, ``se`` and ``correlation``
        (of covariances). What is not estimable has no row; :attr:`notes` say why.
        """
        return component_table(self._record.components)

    @property
    def means(self) -> pd.Series:
        """Means of the variables."""
        import pandas as pd

        return pd.Series(self._record.means.copy(), index=list(self.variables), name="mean")

    @property
    def method(self) -> str:
        """How they were estimated."""
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
        """Log-likelihood, restricted with REML; nan of closed forms."""
        return self._record.llf

    @property
    def converged(self) -> bool:
        """Whether the result is what the method defines."""
        return self._record.converged

    @property
    def status(self) -> str:
        """A sentence about it."""
        return self._record.status

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the data, such as covariances that there are not."""
        return self._record.notes

    @property
    def links(self) -> Mapping[str, FacetLink]:
        """For every facet whether the variables share its levels."""
        return self._record.links

    def matrix(self, term: str) -> pd.DataFrame:
        """Return the matrix of a term, (v, v); nan for variables that share no levels of it.

        An unknown term is an EstimationError.

        Parameters
        ----------
        term : name of a component
        """
        return self._framed(self._record.components.values[self._place(term)])

    def standard_errors(self, term: str) -> pd.DataFrame:
        """Return the standard errors of a term's matrix; nan where there are none.

        Parameters
        ----------
        term : name of a component
        """
        return self._framed(self._record.components.standard_errors[self._place(term)])

    def correlations(self, term: str) -> pd.DataFrame:
        """Return the correlations of a term's effects in the variables.

        Of the object of measurement these are correlations of universe scores, free of error
        (disattenuated). Estimates from closed forms can lie beyond ±1; nan where a variance is not
        positive or a covariance not estimable. An unknown term is an EstimationError.

        Parameters
        ----------
        term : name of a component
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
            the last three are nan where the correlation is not inside ±1 or has no standard error
        """
        check_alpha(alpha)
        return correlation_table(self._record.components, self._place(term), alpha)

    def observed_correlations(
        self,
        object: str | None = None,  # noqa: A002 - the word of the field
        **n: Any,
    ) -> pd.DataFrame:
        """Return the correlations that mean scores of the objects are expected to have.

        They are those of universe scores and relative errors together: with more levels of the
        other facets they approach the disattenuated ones.

        Parameters
        ----------
        object : of measurement, the first facet if None
        **n : sizes, one each, as in :meth:`dstudy`; those of the G-study if none is given
        """
        if n:
            study = self.dstudy(object=object, **n)
            if len(study.matrices) > 1:
                raise PlanError("observed_correlations takes one size of each facet")
            universe, relative, _ = study.matrices[0]
        else:
            name = object_term(self._record.components, object)
            universe, relative, _ = own_matrices(self._record.components, name)
        return self._framed(correlations_of(universe + relative))

    # What they mean ---------------------------------------------------------------------------

    def composite(self, weights: Any = None) -> Composite:
        """Return the variance components of Σ w_v X_v, with the D-studies of one variable.

        A difference of two variables is a composite with the weights 1 and −1.

        Parameters
        ----------
        weights : a mapping by name, or numbers in the order of :attr:`variables`; equal ones that
            add up to one if None

        Raises
        ------
        PlanError
            If weights are not what they can be, or two variables share no levels of any term.
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
        """Return what planned measurements are worth: every variable, and their composite.

        Parameters
        ----------
        weights : of the composite, as in :meth:`composite`
        design : in Brennan's notation, the G-study's own if None
        object : of measurement, the first facet without a size if None
        sizes, **n : for each facet one size or several; of independent facets also by variable,
            ``i={"verbal": [10, 20], "maths": [15, 30]}``, whose lists go together. Without any the
            plan is the G-study's own
        alpha, negative, interval : as for one variable

        Raises
        ------
        PlanError
            If the plan is not one that can be, or variables with weights share no objects.

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

        Each is drawn to the mean by what all of the object's scores say: variables that are
        measured badly borrow from those they correlate with, and one without scores has a
        prediction all the same. In balanced data these are the best linear predictions; elsewhere
        those from the object's means.

        Parameters
        ----------
        object : the object of measurement, a facet; the first facet if None

        Returns
        -------
        pandas.DataFrame
            with a row for every object and variable: the object, ``variable``, its number ``n`` of
            scores and their ``mean`` (nan without scores), ``universe_score`` and ``se``, the
            standard error of the prediction with the components taken as known

        Raises
        ------
        PlanError
            If the object is none, or the variables do not share its levels.
        DataError
            If the result was loaded without its rows.

        References
        ----------
        Brennan (2001), Generalizability Theory, chap. 12; Cronbach et al. (1972), chap. 10.
        """
        if self._layout is None:
            raise DataError(
                "profiles need the scores, and this result was loaded without them; fit it again"
            )
        name = object_term(self._record.components, object)
        return _predicted_profiles(self._layout, self._record.components, name, self._record.means)

    def profile_variability(
        self,
        object: str | None = None,  # noqa: A002 - the word of the field
    ) -> pd.Series:
        """Return how far the scores of one object lie apart, and how reliable such profiles are.

        Parameters
        ----------
        object : the object of measurement, a facet; the first facet if None

        Returns
        -------
        pandas.Series
            ``universe`` and ``observed``, the expected variance within an object of the universe
            scores and of the mean scores as measured, and ``reliability``, their ratio: near 0 the
            profiles that are seen are error

        References
        ----------
        Brennan (2001), Generalizability Theory, section 10.2.
        """
        import pandas as pd

        g = self._record.components
        name = object_term(g, object)
        found = profile_variability(g, name, self._record.means)
        return pd.Series(found, name="profile variance")

    def optimal_weights(
        self,
        object: str | None = None,  # noqa: A002 - the word of the field
    ) -> pd.Series:
        """Return the weights of the composite with the largest Eρ² as measured here.

        A caution: such weights serve reliability, not what the composite is to mean. They can be
        negative, and they are fitted to these data, so that Eρ² of the next ones is smaller.

        Parameters
        ----------
        object : the object of measurement, a facet; the first facet if None
        """
        import pandas as pd

        g = self._record.components
        w = optimal_weights(g, object_term(g, object))
        return pd.Series(w, index=list(self.variables), name="weight")

    # Tables and travel --------------------------------------------------------------------------

    def tidy(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return :attr:`components` with intervals in columns ``conf_low`` and ``conf_high``.

        Of variances by modified large samples, of covariances by the normal distribution.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha
        """
        check_alpha(alpha)
        return component_table(self._record.components, alpha)

    def summary(self) -> Any:
        """Return a summary on statsmodels' table classes: ``print`` it, or ``.as_html()``."""
        return summary(self._record)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.formula} by {self.method.upper()}>"

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the result as JSON text, without the scores; also write it to `path` if given."""
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
            If it is not such a text or file, or has another version of the format.
        """
        return cls(read_json(MultivariateRecord, source))

    def __getstate__(self) -> Any:
        return {"_record": self._record, "_layout": None}

    def _place(self, term: str) -> int:
        if term not in self.terms:
            raise EstimationError(
                f"unknown term {term!r}{did_you_mean(term, self.terms)}; the terms are "
                f"{', '.join(self.terms)}"
            )
        return self.terms.index(term)

    def _framed(self, values: FloatArray) -> pd.DataFrame:
        import pandas as pd

        names = list(self.variables)
        return pd.DataFrame(np.array(values), index=names, columns=names)


def _predicted_profiles(
    layout: Layout, g: CovarianceComponents, object_: str, means: FloatArray
) -> pd.DataFrame:
    """Return the regressed universe scores of every object, with standard errors.

    With x̄ the object's mean scores in the variables that it has, Σ the object's matrix and Δ that
    of the relative errors of these means,

        μ̂_p = μ + Σ(Σ + Δ)⁻¹(x̄_p − μ),    Var(μ̂_p − μ_p) = Σ − Σ(Σ + Δ)⁻¹Σ.

    Parameters
    ----------
    layout : of the scores
    g : the components
    object_ : facet that is measured
    means : (v,) of the variables
    """
    import pandas as pd

    term = g.place(object_)
    S = positive_part(g.known[term])
    n = layout.counts[term]
    error = np.zeros((layout.sizes[term], g.n_variables, g.n_variables))
    for t, facets in enumerate(g.facets):
        if object_ in facets and t != term:
            error += g.known[t] * layout.shares(term, t)
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
        try:
            weights = np.linalg.solve(total, S[has]).T
        except np.linalg.LinAlgError:
            weights = S[:, has] @ np.linalg.pinv(total, hermitian=True)
        variance = np.diagonal(S - weights @ S[has])
        estimate = means + weights @ deviation
        for a, name in enumerate(g.variables):
            observed = means[a] + sums[p, a] / n[p, a] if n[p, a] > 0.0 else np.nan
            se = float(np.sqrt(max(float(variance[a]), 0.0)))
            rows.append((level, name, int(n[p, a]), observed, float(estimate[a]), se))
    columns = [object_, "variable", "n", "mean", "universe_score", "se"]
    return pd.DataFrame(rows, columns=columns)
