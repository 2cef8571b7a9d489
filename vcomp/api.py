"""``fit``, ``gstudy``, ``compare`` and ``diagnose``, each once through the pipe."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vcomp.data import Missing, Reading, RowColumns, level_columns
from vcomp.estimators import MethodName, refuse_foreign
from vcomp.exceptions import EstimationError, PlanError, VcompWarning, guarded
from vcomp.formula import caller_environment, formula_text, parse
from vcomp.inference import hypotheses
from vcomp.model import VarianceComponentsModel, VarianceComponentsResults
from vcomp.statistics import read_data

if TYPE_CHECKING:
    import numpy as np

    from vcomp.inference.assumptions import Diagnosis

# Other imports are deferred for start-up time: few calls compare, diagnose or claim a design.


@guarded
def fit(
    formula: str,
    data: Any = None,
    *,
    method: MethodName = "reml",
    weights: Any = None,
    frequency: Any = None,
    known_variance: Any = None,
    offset: Any = None,
    missing: Missing = "drop",
    residual: str | None = None,
    stream: bool | None = None,
    progress: bool | None = None,
    eval_env: Any = 0,
    **options: Any,
) -> VarianceComponentsResults:
    """Estimate the variance components of a model with random intercepts.

    Parameters
    ----------
    formula : response, fixed part and random terms: ``"score ~ (1|sys) + (1|topic/doc)"``. Inside
        a bar ``a:b`` are combinations of levels, ``a/b`` is ``a + a:b``, ``a*b`` is
        ``a + b + a:b``; the residual is always there
    data : pandas or polars frame (also a lazy one), pyarrow Table, Dataset or RecordBatchReader,
        relation of DuckDB, Dask DataFrame, dict of arrays, list of such tables; or path of a CSV
        or Parquet file, a folder or a pattern of them. None uses the variables of the calling
        scope, as patsy does
    method : ``"reml"`` (default), ``"ml"``, ``"anova"`` (Henderson's Method I; for balanced data
        the classical analysis of variance), ``"type1"``, ``"henderson3"`` or ``"minque"``
    weights : column of the data, or array, of weights w: the residual variance of a row is σ²_e/w,
        as in lme4. Means of n observations have the weights n
    frequency : column or array of whole numbers: how many equal rows a row stands for
    known_variance : column or array of variances of the scores about their expectation, which
        replace σ²_e, as in a meta-analysis
    offset : column or array that is part of the expectation of the scores, with coefficient 1; in
        the formula ``offset(x)``
    missing : ``"drop"`` rows with a missing value in a used column and warn, or ``"raise"``
    residual : facets whose levels have a residual variance each, ``"sys"``; ``"sys:judge"`` or
        ``"sys + judge"`` for each combination of levels. They need not be in the formula. For
        REML and ML
    stream : True to read the rows in batches, twice or more, and keep none of them: residuals and
        fitted values are then written by ``res.augment(path="out.parquet")``. False to keep them
        in memory. None reads rows in batches that are not in memory yet and would need more than a
        quarter of the free memory
    progress : whether to show a bar of the rows that are read in batches, with their number a
        second; None for one where stderr is a terminal, after two seconds
    eval_env : as in patsy: 0 for the scope of the caller, 1 for the one above, or an
        ``EvalEnvironment``
    **options : of :meth:`VarianceComponentsModel.fit`: for REML and ML ``max_iter``, ``tol``,
        ``hold`` (known components), ``start``, ``engine``, ``n_probes`` and ``rng``; for MINQUE
        ``prior`` and ``iterated``; for closed forms ``negative="refit"``, which drops terms that
        are estimated below zero

    Returns
    -------
    VarianceComponentsResults

    Raises
    ------
    FormulaError, DataError, DesignError, EstimationError
        All of them :class:`vcomp.VcompError`; the message names the column, term or level at fault
        and says what to do.

    Warns
    -----
    VcompWarning
        If rows were dropped, the estimation did not converge, or another method suits these data
        better.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("bodoff2007_alpha")
    >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
    >>> res.vcomp.round(5).to_dict()
    {'sys': 0.00973, 'topic': 0.00176, 'Residual': 0.00687}
    """
    refuse_foreign(options, formula)
    columns = RowColumns(weights, frequency, known_variance, offset)
    environment = caller_environment(eval_env, 1)
    reading = Reading(environment, missing, stream, progress, row_columns=columns)
    parsed = parse(formula, level_columns(data), residual)
    model = VarianceComponentsModel(formula, read_data(parsed, data, reading))
    return model.fit(method, **options)


@guarded
def gstudy(
    design: str,
    data: Any,
    response: str,
    *,
    facets: Mapping[str, str] | None = None,
    method: MethodName = "reml",
    weights: Any = None,
    frequency: Any = None,
    known_variance: Any = None,
    offset: Any = None,
    missing: Missing = "drop",
    residual: str | None = None,
    stream: bool | None = None,
    progress: bool | None = None,
    eval_env: Any = 0,
    **options: Any,
) -> VarianceComponentsResults:
    """Estimate all variance components of a design in Brennan's notation.

    The formula is written from the design: a random term for every main effect and interaction
    that the data can distinguish; the highest interaction is the residual where a cell holds one
    score. ``res.formula`` shows it, and ``print(res.design)`` says where the variance of every
    effect is. Labels of a nested facet may start anew in each level of the facet above.

    Parameters
    ----------
    design : such as ``"p x i x a"``, ``"p x (i:h)"`` or ``"sys x (judge:topic)"``, see
        :func:`vcomp.formula.parse_design`; facets are columns of the data
    data : as for :func:`fit`: frames, files, folders and patterns of files, also a Dask DataFrame;
        None uses the variables of the calling scope
    response : the column of the scores, or an expression of Python
    facets : columns by the letters of the design, ``{"p": "person"}``. The result, and D-studies
        of it, speak of these facets by their letters
    method, weights, frequency, known_variance, offset : as in :func:`fit`; known variances are
        refused, as the residual holds the highest interaction
    missing : ``"drop"`` rows with a missing value in a used column and warn, or ``"raise"``
    residual : as in :func:`fit`: facets of the design or other columns, whose levels have a
        residual variance each
    stream, progress : as in :func:`fit`. Which effects the data distinguish is then found from the
        cells, the combinations of levels that occur
    eval_env : as in patsy, for a response that is an expression
    **options : of the method, as in :func:`fit`

    Returns
    -------
    VarianceComponentsResults
        The facet that is nested in all others, if there is one, stands for the scores of a cell:
        D-studies use its size.

    Raises
    ------
    PlanError
        If the design cannot be read, or `facets` does not fit it.
    FormulaError, DataError, EstimationError
        As :func:`fit` raises them.
    DesignError
        If the data contradict the design: a facet that it crosses with another one is nested in
        it; or if no effect can be distinguished from error.

    Warns
    -----
    VcompWarning
        If the data confound effects of the design: which with which, and what would separate them.
        Otherwise as :func:`fit` does.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 3.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch")
    >>> res = vcomp.gstudy("s x t", data, "score", facets={"s": "sys", "t": "topic"})
    >>> res.formula
    'score ~ (1|s) + (1|t) + (1|s:t)'
    >>> res.dstudy("s x T", t=[50, 100]).table[["t", "Erho2"]].round(3)
         t  Erho2
    0   50  0.889
    1  100  0.941
    """
    from vcomp.model import claimed_model

    columns = RowColumns(weights, frequency, known_variance, offset)
    environment = caller_environment(eval_env, 1)
    reading = Reading(environment, missing, stream, progress, row_columns=columns)
    model = claimed_model(design, response, data, facets, reading, residual)
    return model.fit(method, **options)


def compare(*results: VarianceComponentsResults) -> hypotheses.ModelComparison:
    """Compare models of the same rows by their likelihoods, each with the next smaller one.

    A component that the smaller model does not have is at its bound there: the likelihood ratio
    has a mixture of χ² (Self & Liang 1987), which the outcome names. Models that are not nested
    have AIC and BIC only.

    Parameters
    ----------
    *results : two or more, in any order: fitted by REML with the same fixed part, or all by ML

    Returns
    -------
    ModelComparison
        Its ``table`` has a row a model, with the columns npar, llf, aic, bic, statistic, df,
        p_value and distribution; ``print`` it for reading.

    Raises
    ------
    DataError
        If they were not fitted to the same rows of the same response.
    EstimationError
        If there are fewer than two, one has no likelihood or is not at its maximum, or the
        likelihoods are not comparable: REML with ML, or REML with different fixed parts.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("bodoff2007_alpha")
    >>> small = vcomp.fit("score ~ (1|sys)", data)
    >>> large = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
    >>> vcomp.compare(large, small).table["p_value"].round(3).tolist()
    [nan, 0.213]
    """
    for res in results:
        if not isinstance(res, VarianceComponentsResults):
            raise EstimationError(
                f"compare() needs results such as vcomp.fit() returns, not {type(res).__name__}"
            )
    from vcomp.model import compared_fit

    return hypotheses.compare_fits(tuple(compared_fit(res) for res in results))


@guarded
def diagnose(
    scores: Any,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    n: int | None = None,
    rng: int | np.random.Generator | None = None,
) -> Diagnosis:
    """Return tests of the assumptions of a fit, or of the scores of systems on topics.

    Normality and outliers of effects and residuals, equal variances over systems and topics,
    correlations of systems' residuals with each other and with topic effects, additivity; with
    effect sizes, and in words which numbers of the library the deviations matter for.

    Parameters
    ----------
    scores : a result of :func:`fit` or :func:`gstudy`; or scores as
        :func:`vcomp.ir.as_score_matrix` reads them: a long table with its columns named,
        a :class:`vcomp.ir.ScoreMatrix`, or a matrix, **one row per topic and one column per
        system**, also with missing cells
    system, topic, score : columns of a long table. If one of them is given, each other is the
        column of its own name
    n : number of draws of each null distribution; None for 99 to 999, the fewer the more rows
    rng : seed or ``numpy.random.Generator``; 0 if not given

    Returns
    -------
    Diagnosis

    Raises
    ------
    DataError
        If the scores are not a matrix or long table, or a result has no rows.
    EstimationError
        If there is no residual variance, or `rng` is neither a seed nor a generator.
    PlanError
        If columns are named for a result, or `n` is less than 19.

    See Also
    --------
    VarianceComponentsResults.diagnose : the same of a fit; the tests are described there

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 1, Fig. 1 and
    section 4.2.

    Examples
    --------
    >>> import vcomp
    >>> scores = vcomp.datasets.load("bodoff2007_alpha")
    >>> diagnosis = vcomp.diagnose(scores, system="sys", n=99)
    >>> diagnosis
    <diagnosis of 5 sys × 3 topics, fully crossed, balanced: 5 tests>
    """
    if isinstance(scores, VarianceComponentsResults):
        if any((system, topic, score)):
            raise PlanError("columns are named for scores; a fit has its own")
        return scores.diagnose(n=n, rng=rng)
    from vcomp.ir import as_score_matrix

    matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
    with warnings.catch_warnings():
        # A component at zero is no fault of the scores; the diagnosis does not print components.
        warnings.simplefilter("ignore", VcompWarning)
        long = matrix.to_long()
        long.columns = [*matrix.facets, *long.columns[2:]]
        res = fit(formula_text("score", [[facet] for facet in matrix.facets]), long)
    return res.diagnose(object=matrix.facets[0], n=n, rng=rng)
