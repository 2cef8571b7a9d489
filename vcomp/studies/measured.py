"""Compare measures by the same G-study and D-study: data, models and fits."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.data import Missing, Reading, Source, open_source
from vcomp.estimators import MethodName
from vcomp.exceptions import (
    DataError,
    DesignError,
    EstimationError,
    FormulaError,
    PlanError,
    VcompError,
    VcompWarning,
    check_alpha,
    guarded,
    warn,
)
from vcomp.formula import caller_environment, parse, parse_design
from vcomp.gtheory import DStudy
from vcomp.ir import ScoreMatrix, as_score_matrix
from vcomp.model import (
    IntervalMethod,
    VarianceComponentsModel,
    VarianceComponentsResults,
    claimed_model,
)
from vcomp.numerics import check_count, run
from vcomp.studies.comparison import MeasureComparison
from vcomp.studies.planned import options_of_fit, required_facet

if TYPE_CHECKING:
    import pandas as pd

MATRIX_FORMULA = "score ~ (1|sys) + (1|topic)"
"""Model of a topic × system matrix."""


@dataclass(frozen=True, slots=True, eq=False)
class MeasureModel:
    """Data and model of a measure.

    Attributes
    ----------
    name : of the measure
    formula : of its model; or its design in Brennan's notation
    data : its rows; or the result of a fit
    labels : the columns that identify it, ``{"track": "web"}``
    response : of a design, else None
    """

    name: str
    formula: str
    data: Any
    labels: Mapping[str, Any] = field(default_factory=dict)
    response: str | None = None


def measures_of(
    data: Any,
    formula: str | None,
    responses: str | Sequence[str] | Mapping[str, str] | None,
    by: str | Sequence[str] | None,
) -> list[MeasureModel]:
    """Return the measures, at least two, with different names.

    Parameters
    ----------
    data : a mapping of names to data, matrices or results; or one table
    formula : of the model, or a design; None for matrices and results
    responses : columns of the one table, with their names or those of a mapping
    by : columns of the one table whose levels are the groups

    Raises
    ------
    DataError
        If a column is missing, or there are fewer than two measures.
    FormulaError
        If a formula is needed and there is none.
    """
    if formula is not None and not isinstance(formula, str):
        raise FormulaError(
            f"the formula, the first argument, must be text, not {type(formula).__name__}: "
            "compare_measures(formula, data, ...); matrices and results need none: "
            "compare_measures(data=...)"
        )
    if isinstance(formula, str) and "~" not in formula and responses is None:
        raise FormulaError(
            f"{formula!r} has no ~: write a formula such as 'score ~ (1|sys) + (1|topic)', or "
            "name the columns of the scores for a design in Brennan's notation, "
            "responses=['ap', 'p20']"
        )
    if responses is None and by is None:
        measures = _named(data, formula)
    else:
        if formula is None:
            raise FormulaError(
                "responses= and by= need a formula, such as '~ (1|sys) + (1|topic)'"
            )
        measures = _of_one_table(data, formula, responses, by)
    if len(measures) < 2:
        which = repr(measures[0].name) if measures else "none"
        raise DataError(
            f"a comparison needs at least two measures, and there is {which}; use vcomp.fit() for "
            "one"
        )
    return measures


# Data by name -----------------------------------------------------------------------------------


def _named(data: Any, formula: str | None) -> list[MeasureModel]:
    if not isinstance(data, Mapping) or not data:
        raise DataError(
            "data must be a mapping of names to tables, {'AP': ap, 'P@20': p20}, or one table "
            "with the columns of the measures in responses=['ap', 'p20'] or groups in by='track', "
            f"not {type(data).__name__}"
        )
    if formula is not None and all(_is_column(value) for value in data.values()):
        raise DataError(
            "data are one table, a mapping of columns: name the columns of the measures, "
            "responses=['ap', 'p20'], or those of groups, by='track'"
        )
    measures = []
    for name, value in data.items():
        if isinstance(value, VarianceComponentsResults):
            measures.append(MeasureModel(str(name), value.formula, value))
        elif formula is not None:
            measures.append(MeasureModel(str(name), formula, _rows(value)))
        else:
            measures.append(MeasureModel(str(name), MATRIX_FORMULA, _matrix(str(name), value)))
    return _distinct(measures)


def _is_column(value: Any) -> bool:
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1


def _rows(value: Any) -> Any:
    return _long(value) if isinstance(value, ScoreMatrix) else value


def _matrix(name: str, value: Any) -> Any:
    """Return the rows of a topic × system matrix in memory or in a file."""
    try:
        if isinstance(value, str | os.PathLike):
            source = open_source(value)
            value = source.read(source.columns)
        return _long(as_score_matrix(value))
    except DataError as error:
        raise DataError(
            f"measure {name!r}: without a formula, data must be topic × system matrices or "
            f"vcomp.ir.ScoreMatrix, but {error}"
        ) from None


def _long(matrix: ScoreMatrix) -> pd.DataFrame:
    """Return a row for each score, without missing ones."""
    import pandas as pd

    topics = np.repeat(np.arange(matrix.n_topics), matrix.n_systems)
    systems = np.tile(np.arange(matrix.n_systems), matrix.n_topics)
    there = ~np.isnan(matrix.scores.ravel())
    return pd.DataFrame(
        {
            "sys": pd.Categorical.from_codes(systems, categories=pd.Index(matrix.systems)),
            "topic": pd.Categorical.from_codes(topics, categories=pd.Index(matrix.topics)),
            "score": matrix.scores.ravel(),
        }
    )[there]


# Parts of one table -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Model:
    """A response with its formula, or with the design that its formula is derived from."""

    name: str
    formula: str
    response: str | None

    @property
    def facets(self) -> tuple[str, ...]:
        """The grouping columns."""
        if self.response is None:
            return parse(self.formula).facets
        return parse_design(self.formula).facets


def _of_one_table(
    data: Any,
    formula: str,
    responses: str | Sequence[str] | Mapping[str, str] | None,
    by: str | Sequence[str] | None,
) -> list[MeasureModel]:
    source = open_source(data)
    models = _models(source, formula, responses)
    groups = _names("by", by)
    for column in (*groups, *(f for model in models for f in model.facets)):
        if column not in source.columns:
            raise source.no_column(column)
    frame = source.read(_used(source, models, groups))
    if not groups:
        return [MeasureModel(m.name, m.formula, frame, response=m.response) for m in models]
    for name in groups:
        if (absent := int(frame[name].isna().sum())) > 0:
            raise DataError(
                f"column {name!r} is missing in {absent:,} of {len(frame):,} rows", column=name
            )
    used = [g for g in groups if any(g in m.facets for m in models)]
    if used:
        raise DataError(
            f"by={used[0]!r} is a facet of the formula, which would have one level in each group; "
            "leave it out of by= or the formula",
            column=used[0],
        )
    measures = []
    for model, (key, part) in product(models, list(frame.groupby(groups, observed=True))):
        labels = dict(zip(groups, key if isinstance(key, tuple) else (key,), strict=True))
        words = [*([model.name] if len(models) > 1 else []), *map(str, labels.values())]
        both = {"response": model.name, **labels} if len(models) > 1 else labels
        measures.append(MeasureModel(", ".join(words), model.formula, part, both, model.response))
    return _distinct(measures)


def _models(
    source: Source, formula: str, responses: str | Sequence[str] | Mapping[str, str] | None
) -> list[_Model]:
    """Return the models of the responses, by name."""
    left, tilde, right = formula.partition("~")
    if responses is None:
        return [_Model(left.strip(), formula, None)]
    if isinstance(responses, Mapping):
        pairs = [(str(name), column) for name, column in responses.items()]
    else:
        pairs = [(column, column) for column in _names("responses", responses)]
    for _, column in pairs:
        if column not in source.columns:
            raise source.no_column(column)
    if not tilde:
        return [_Model(name, formula, _quoted(column)) for name, column in pairs]
    return [_Model(name, f"{_quoted(column)} ~{right}", None) for name, column in pairs]


def _quoted(column: str) -> str:
    return column if column.isidentifier() else f"Q({column!r})"


def _names(what: str, given: str | Sequence[str] | None) -> list[str]:
    if given is not None and not isinstance(given, Iterable):
        raise DataError(f"{what} must be a column or a list of columns, not {given!r}")
    names = [given] if isinstance(given, str) else [] if given is None else list(given)
    for name in names:
        if not isinstance(name, str):
            raise DataError(f"{what} must contain names of columns, not {name!r}")
        if names.count(name) > 1:
            raise DataError(f"{what} names {name!r} twice")
    return names


def _used(source: Source, models: Sequence[_Model], groups: Sequence[str]) -> list[str]:
    """Return the columns whose names occur in a formula."""
    texts = [f"{m.formula} {m.response or ''}" for m in models]
    return [c for c in source.columns if c in groups or any(c in text for text in texts)]


def _distinct(measures: list[MeasureModel]) -> list[MeasureModel]:
    names = [m.name for m in measures]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise DataError(f"two measures are called {twice!r}", level=twice)
    return measures


@guarded
def compare_measures(
    formula: str | None = None,
    data: Any = None,
    *,
    responses: str | Sequence[str] | Mapping[str, str] | None = None,
    by: str | Sequence[str] | None = None,
    method: MethodName = "reml",
    missing: Missing = "drop",
    options: Mapping[str, Any] | None = None,
    dstudy: Mapping[str, Any] | None = None,
    goal: float = 0.95,
    facet: str | None = None,
    alpha: float = 0.05,
    interval: IntervalMethod = "auto",
    workers: int = 1,
    progress: bool | None = None,
    eval_env: Any = 0,
    **n: Any,
) -> MeasureComparison:
    """Compare several measures by the same G-study and D-study.

    Generalizability theory determines how many topics or judges a test needs; the comparison shows
    which effectiveness measure, or which kind of topic, needs fewest.

    Parameters
    ----------
    formula : as for :func:`vcomp.fit`. With `responses` its left side is ignored and may be left
        out, ``"~ (1|sys) + (1|topic)"``; or a design in Brennan's notation, ``"sys x topic"``, as
        for :func:`vcomp.gstudy`. Matrices and results need none: ``compare_measures(data=…)``
    data : one of

        a mapping of names to tables
            ``{"AP": ap, "P@20": p20}``: any data of :func:`vcomp.fit`, with one formula;
            results of :func:`vcomp.fit`; or, without a formula, topic × system matrices as
            :func:`vcomp.ir.as_score_matrix` reads them, with facets ``sys`` and ``topic``
        one table
            with several measures as columns (`responses`), groups of rows (`by`), or both
    responses : columns of the one table, or a mapping of names to columns
    by : column or columns of the one table; every combination of their values is a group
    method, missing, options : how measures are fitted: method, treatment of missing values, and
        further arguments of :meth:`VarianceComponentsModel.fit`
    dstudy : further arguments of :meth:`VarianceComponentsResults.dstudy`, such as
        ``{"design": "p x (a:i)", "fixed": "a"}``
    goal : of the coefficients in required sizes
    facet : whose size is required; not needed if only one has a size
    alpha : intervals have confidence 1 − alpha
    interval : how the intervals of all measures are made, as in
        :meth:`VarianceComponentsResults.dstudy`
    workers : number of threads
    progress : whether to show a bar; None shows one if stderr is a terminal
    eval_env : as for :func:`vcomp.fit`
    **n : sizes of facets, as for ``dstudy``: ``topic=[25, 50]``. If none are given, each measure
        has the sizes of its own G-study

    Returns
    -------
    MeasureComparison
        with ``table``, ``components``, ``results`` by name, ``differences()``, ``ranking()`` and
        ``plot()``; ``print`` shows a summary

    Raises
    ------
    FormulaError, DataError
        If a formula or table cannot be read, a column is missing, or there are fewer than two
        measures; the message names the measure.
    EstimationError
        If no measure could be fitted, or an option is invalid.
    PlanError
        If the D-study is invalid.

    Warns
    -----
    VcompWarning
        If a measure could not be fitted, with its name and the reason (also in ``failures``); and
        the warnings of fits, with the names of the measures.

    References
    ----------
    Bodoff and Li (2007), Test Theory for Assessing IR Test Collections, SIGIR, section 4.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    >>> data["top10"] = (data["score"] >= 0.1).astype(float)
    >>> compared = vcomp.compare_measures(
    ...     "~ (1|sys) + (1|topic)", data, responses={"RR": "score", "top 10": "top10"}, topic=50
    ... )
    >>> compared.table[["measure", "topic", "Erho2", "n_Erho2"]].round(3)
      measure  topic  Erho2  n_Erho2
    0      RR     50  0.824      204
    1  top 10     50  0.802      234
    """
    check_alpha(alpha)
    check_count(workers, "workers")
    measures = measures_of(data, formula, responses, by)
    environment = caller_environment(eval_env, 1)
    arguments = _dstudy_arguments(dstudy, n, alpha, interval)
    further = options_of_fit(options)
    settings = StudyOptions(method, missing, further, environment, arguments, goal, facet)
    made = _fit_all(measures, settings, workers, progress)
    failures = {m.name: str(f) for m, f in zip(measures, made, strict=True)
                if isinstance(f, VcompError)}  # fmt: skip
    if len(failures) == len(measures):
        every = dict.fromkeys(failures.values())
        reasons = [f"{name}: {reason}" for name, reason in failures.items()]
        words = "; ".join(every if len(every) == 1 else reasons)
        raise EstimationError(f"no measure could be fitted ({words})")
    for name, reason in failures.items():
        warn(f"measure {name!r} could not be fitted and is left out: {reason}")
    done = [(m, f) for m, f in zip(measures, made, strict=True) if isinstance(f, tuple)]
    return MeasureComparison(
        results={m.name: res for m, (res, _) in done},
        studies={m.name: study for m, (_, study) in done},
        labels={m.name: m.labels for m, _ in done},
        failures=failures,
        goal=goal,
        facet=facet,
        alpha=alpha,
    )


@dataclass(frozen=True, slots=True, eq=False)
class StudyOptions:
    """The options of all fits and D-studies."""

    method: MethodName
    missing: Missing
    options: Mapping[str, Any]
    environment: Any
    dstudy: Mapping[str, Any]
    goal: float
    facet: str | None


def _dstudy_arguments(
    dstudy: Mapping[str, Any] | None,
    n: Mapping[str, Any],
    alpha: float,
    interval: IntervalMethod,
) -> dict[str, Any]:
    if dstudy is not None and not isinstance(dstudy, Mapping):
        raise PlanError(
            "dstudy must be a mapping of arguments of res.dstudy(), such as {'fixed': 'a'}, not "
            f"{dstudy!r}"
        )
    if dstudy is not None and "alpha" in dstudy:
        raise PlanError("give alpha, which applies to all intervals, as alpha=, not in dstudy=")
    if dstudy is not None and "interval" in dstudy and interval != "auto":
        raise PlanError("interval is given twice, in dstudy= and as interval=")
    twice = [name for name in n if name in (dstudy or {})]
    if twice:
        raise PlanError(
            f"{twice[0]!r} is given twice, in dstudy= and as {twice[0]}=", column=twice[0]
        )
    return {"alpha": alpha, "interval": interval, **(dstudy or {}), **n}


_Made = tuple[VarianceComponentsResults, DStudy] | VcompError


def _fit_all(
    measures: list[MeasureModel], settings: StudyOptions, workers: int, progress: bool | None
) -> list[_Made]:
    """Return the fit and D-study of every measure, or the error."""
    current = threading.local()

    def work(number: int) -> _Made:
        measure = measures[number]
        current.name = measure.name
        try:
            return fit_measure(measure, settings)
        except (DesignError, EstimationError) as error:
            return error
        except (DataError, PlanError) as error:
            # Groups of one table have the same columns, so only this group fails.
            if measure.labels and isinstance(error, DataError):
                return error
            raise type(error)(f"measure {measure.name!r}: {error}") from None

    with _named_warnings(current) as heard:
        done = run(
            lambda: work, range(len(measures)), workers=workers, progress=progress,
            label="measures",
        )  # fmt: skip
    for message in sorted(heard):
        warn(message)
    return [done[number] for number in range(len(measures))]


def fit_measure(
    measure: MeasureModel, settings: StudyOptions
) -> tuple[VarianceComponentsResults, DStudy]:
    """Return the fit and the D-study of a measure.

    Raises
    ------
    VcompError
        If the model cannot be fitted, or the D-study not planned.
    """
    res = measure.data
    if not isinstance(res, VarianceComponentsResults):
        res = _model(measure, settings).fit(settings.method, **settings.options)
    if not res.vcomp.any():
        raise EstimationError("all its components are zero: the scores do not vary")
    study = res.dstudy(**settings.dstudy)
    required_facet(study, settings.goal, settings.facet)
    return res, study


def _model(measure: MeasureModel, settings: StudyOptions) -> VarianceComponentsModel:
    rows, missing, environment = measure.data, settings.missing, settings.environment
    if measure.response is not None:
        design, response = measure.formula, measure.response
        return claimed_model(design, response, rows, None, Reading(environment, missing))
    return VarianceComponentsModel(measure.formula, rows, missing=missing, eval_env=environment)


@contextmanager
def _named_warnings(current: threading.local) -> Iterator[list[str]]:
    """Collect warnings of fits in all threads, prefixed with the names of their measures."""
    heard: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", VcompWarning)
        shown: Callable[..., None] = warnings.showwarning

        def listen(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, VcompWarning):
                heard.append(f"measure {getattr(current, 'name', '')!r}: {message}")
            else:
                shown(message, category, *place)

        warnings.showwarning = listen  # type: ignore[assignment]
        yield heard
