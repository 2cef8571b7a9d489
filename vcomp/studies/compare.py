"""The outer loop: the same G-study and D-study for several measures, side by side."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vcomp.claimed import claimed_model
from vcomp.design.rows import Missing
from vcomp.dstudy import DStudy
from vcomp.exceptions import (
    DataError,
    DesignError,
    EstimationError,
    PlanError,
    VcompError,
    VcompWarning,
    check_alpha,
    warn,
)
from vcomp.formula import caller_environment
from vcomp.model import VarianceComponentsModel
from vcomp.resampling.run import run
from vcomp.resampling.streams import check_count
from vcomp.results.results import VarianceComponentsResults
from vcomp.studies.comparison import MeasureComparison
from vcomp.studies.measures import Measure, measures_of
from vcomp.studies.plans import options_of_fit, required_facet

__all__ = ["compare_measures"]


def compare_measures(
    data: Any,
    formula: str | None = None,
    *,
    responses: str | Sequence[str] | Mapping[str, str] | None = None,
    by: str | Sequence[str] | None = None,
    method: str = "reml",
    missing: Missing = "drop",
    options: Mapping[str, Any] | None = None,
    dstudy: Mapping[str, Any] | None = None,
    target: float = 0.95,
    facet: str | None = None,
    alpha: float = 0.05,
    workers: int = 1,
    progress: bool | None = None,
    eval_env: Any = 0,
    **n: Any,
) -> MeasureComparison:
    """Run the same G-study and D-study for several measures, and lay them side by side.

    Generalizability theory tells how many topics or judges a test needs; which effectiveness
    measure, or which kind of topic, needs fewest is asked by an outer loop around it.

    Parameters
    ----------
    data : one of

        a mapping of names to tables
            ``{"AP": ap, "P@20": p20}``: whatever :func:`vcomp.fit` takes, with one formula;
            results of :func:`vcomp.fit`; or, without a formula, topic × system matrices as
            :func:`vcomp.ir.as_score_matrix` reads them, with facets ``sys`` and ``topic``
        one table
            with several measures as columns (`responses`), groups of rows (`by`), or both
    formula : as for :func:`vcomp.fit`. With `responses` its left side does not matter and may be
        left out, ``"~ (1|sys) + (1|topic)"``; or it is a design in Brennan's notation,
        ``"sys x topic"``, as for :func:`vcomp.gstudy`
    responses : columns of the one table, or a mapping of names to columns
    by : column or columns of the one table, every combination of whose values is a group
    method, missing, options : how all are fitted: method, treatment of missing values, and further
        arguments of :meth:`VarianceComponentsModel.fit`
    dstudy : further arguments of :meth:`VarianceComponentsResults.dstudy`, such as
        ``{"design": "p x (a:i)", "fixed": "a"}``
    target : of the coefficients in required sizes
    facet : whose size is required; may be None, and is told where only one has a size
    alpha : intervals have confidence 1 − alpha
    workers : threads that fit
    progress : whether to show a bar; None for one where stderr is a terminal
    eval_env : as for :func:`vcomp.fit`
    **n : sizes of facets, as for ``dstudy``: ``topic=[25, 50]``. Without any each measure has the
        sizes of its own G-study

    Returns
    -------
    MeasureComparison
        with ``table``, ``components``, ``results`` by name, ``differences()``, ``ranking()`` and
        ``plot()``; ``print`` it for reading

    Raises
    ------
    FormulaError, DataError
        If a formula or table cannot be read, a column is not there, or there are fewer than two
        measures; the message names the measure.
    EstimationError
        If no measure could be fitted, or options cannot be.
    PlanError
        If the D-study cannot be.

    Warns
    -----
    VcompWarning
        If a measure could not be fitted, with its name and the reason (they are in ``failures``,
        too), or what a fit warns of, with the name of its measure.

    References
    ----------
    Bodoff and Li (2007), Test Theory for Assessing IR Test Collections, SIGIR, section 4, who call
    it an outer loop.

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch").query("query == 'keywords'")
    >>> data["top10"] = (data["score"] >= 0.1).astype(float)
    >>> compared = vcomp.compare_measures(
    ...     data, "~ (1|sys) + (1|topic)", responses={"RR": "score", "top 10": "top10"}, topic=50
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
    arguments = _dstudy_arguments(dstudy, n, alpha)
    further = options_of_fit(options)
    asked = _Asked(method, missing, further, environment, arguments, target, facet)
    made = _fit_all(measures, asked, workers, progress)
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
        target=target,
        facet=facet,
        alpha=alpha,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """What is done for every measure."""

    method: str
    missing: Missing
    options: Mapping[str, Any]
    environment: Any
    dstudy: Mapping[str, Any]
    target: float
    facet: str | None


def _dstudy_arguments(
    dstudy: Mapping[str, Any] | None, n: Mapping[str, Any], alpha: float
) -> dict[str, Any]:
    if dstudy is not None and not isinstance(dstudy, Mapping):
        raise PlanError(
            "dstudy is a mapping of arguments of res.dstudy(), such as {'fixed': 'a'}, not "
            f"{dstudy!r}"
        )
    if dstudy is not None and "alpha" in dstudy:
        raise PlanError("alpha is given by itself, for all intervals: alpha=, not in dstudy=")
    twice = [name for name in n if name in (dstudy or {})]
    if twice:
        raise PlanError(f"{twice[0]!r} is given twice, in dstudy= and as {twice[0]}=")
    return {"alpha": alpha, **(dstudy or {}), **n}


_Made = tuple[VarianceComponentsResults, DStudy] | VcompError


def _fit_all(
    measures: list[Measure], asked: _Asked, workers: int, progress: bool | None
) -> list[_Made]:
    """Return of every measure its fit and D-study, or why there is none."""
    current = threading.local()

    def work(number: int) -> _Made:
        measure = measures[number]
        current.name = measure.name
        try:
            return _one(measure, asked)
        except (DesignError, EstimationError) as error:
            return error
        except DataError as error:
            # Of groups of one table columns are the same: what fails is this group.
            if measure.labels:
                return error
            raise DataError(f"measure {measure.name!r}: {error}") from None

    with _named_warnings(current) as heard:
        done = run(
            lambda: work, range(len(measures)), workers=workers, progress=progress,
            label="measures",
        )  # fmt: skip
    for message in sorted(heard):
        warn(message)
    return [done[number] for number in range(len(measures))]


def _one(measure: Measure, asked: _Asked) -> tuple[VarianceComponentsResults, DStudy]:
    res = measure.data
    if not isinstance(res, VarianceComponentsResults):
        res = _model(measure, asked).fit(asked.method, **asked.options)
    if not res.vcomp.any():
        raise EstimationError("all its components are zero: the scores do not vary")
    try:
        study = res.dstudy(**asked.dstudy)
        required_facet(study, asked.target, asked.facet)
        return res, study
    except PlanError as error:
        raise PlanError(f"measure {measure.name!r}: {error}") from None


def _model(measure: Measure, asked: _Asked) -> VarianceComponentsModel:
    rows, missing, environment = measure.data, asked.missing, asked.environment
    if measure.response is not None:
        design, response = measure.formula, measure.response
        return claimed_model(design, response, rows, None, missing, environment)
    return VarianceComponentsModel(measure.formula, rows, missing=missing, eval_env=environment)


@contextmanager
def _named_warnings(current: threading.local) -> Iterator[list[str]]:
    """Collect what fits warn of with the name of their measure, whichever thread makes it."""
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
