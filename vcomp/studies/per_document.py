"""Reliability of tests by set-based measures compared with scores of documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from vcomp.estimators import MethodName
from vcomp.exceptions import (
    DataError,
    PlanError,
    VcompError,
    check_alpha,
    check_known,
    check_one_of,
    guarded,
)
from vcomp.gtheory import DStudy
from vcomp.ir import DocumentUniverse, set_measures
from vcomp.ir.documents import NORMALIZED, SET_MEASURES, check_universe, measured_sets
from vcomp.model import VarianceComponentsResults
from vcomp.studies.comparison import MeasureComparison
from vcomp.studies.measured import MeasureModel, StudyOptions, fit_measure
from vcomp.studies.planned import options_of_fit

if TYPE_CHECKING:
    import pandas as pd

PER_DOCUMENT = "per document"
"""The name of the measure that has a score for every document."""

Assessors = Literal["crossed", "nested", "none"]

_TERMS = {
    "crossed": (
        "system assessor topic system:assessor system:topic assessor:topic",
        "topic:document system:topic:document assessor:topic:document system:assessor:topic",
        "system x assessor x (document:topic)",
        "system x assessor x topic",
    ),
    "nested": (
        "system topic topic:assessor system:topic",
        "topic:document system:topic:assessor system:topic:document topic:assessor:document",
        "system x ((assessor x document):topic)",
        "system x (assessor:topic)",
    ),
    "none": ("system topic", "system:topic topic:document", "system x (document:topic)",
             "system x topic"),
}  # fmt: skip
"""Terms of the set-based model, additional terms of documents, and both designs."""


@guarded
def per_document_study(
    universe: DocumentUniverse,
    *,
    measures: str | Sequence[str] = ("F", "utility", "normalized_utility"),
    scores: Any = "utility",
    beta: float = 1.0,
    assessors: Assessors | None = None,
    method: MethodName = "reml",
    options: Mapping[str, Any] | None = None,
    goal: float = 0.95,
    facet: str | None = "topic",
    alpha: float = 0.05,
    **n: Any,
) -> MeasureComparison:
    """Compare the reliability of a test by set-based measures and by scores of all documents.

    Set-based measures have one score for a system, topic and assessor: a G-study p × a × i. With a
    score for every document it is p × a × (d:i), and reliability depends on the number of
    documents as well. Whether a measure is valid cannot be decided by its reliability.

    Parameters
    ----------
    universe : of :func:`vcomp.ir.document_universe`
    measures : of the set, columns of :func:`vcomp.ir.set_measures`
    scores : of the four cases of a document, see :func:`vcomp.ir.score_table`
    beta : weight of recall in F
    assessors : ``"crossed"``: assessors judged several topics; ``"nested"``: every topic has its
        own assessors, or they are treated so; ``"none"``: one assessor for each topic, and no such
        facet. If None, as in the judgements
    method, options : how components are estimated, as for :func:`vcomp.fit`
    goal : coefficient for the required sizes
    facet : facet whose size is required; None for none
    alpha : intervals have confidence 1 − alpha
    **n : sizes of ``topic``, ``assessor`` and ``document`` (in a topic), each one or several. A
        facet without a size has that of the data; set-based measures ignore ``document``

    Returns
    -------
    MeasureComparison
        The set-based measures and ``"per document"``, with ``table``, ``components``, ``results``,
        ``studies``, ``differences()``, ``best()`` and ``plot()``; ``print`` shows a summary

    Raises
    ------
    DataError
        If `universe` is another object, a measure is unknown, the scores of all documents do not
        fit into memory, or there are fewer than two systems or topics.
    EstimationError, DesignError
        If a measure cannot be fitted; the message names it.
    PlanError
        If a size is invalid or for an unknown facet, or `assessors` does not agree with the
        judgements.

    Warns
    -----
    VcompWarning
        As :func:`vcomp.ir.set_measures` and :func:`vcomp.fit`.

    Notes
    -----
    The number of documents of a topic cannot be planned: it follows from the retrieved and the
    relevant documents (Bodoff, 2008, sec. 5.3, uses its average).

    Universe scores of both kinds of measures have different units and meanings, so that only
    coefficients can be compared.

    References
    ----------
    Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
    Processing & Management*, 44(3), 1117-1145. Section 5, tables 9 to 16, on data that are not
    public.

    Examples
    --------
    >>> import vcomp
    >>> track = vcomp.ir.novelty_like_track(n_systems=20, n_topics=10, n_documents=30, rng=1)
    >>> universe = vcomp.ir.document_universe(track.retrieved, track.judgements)
    >>> compared = vcomp.ir.per_document_study(
    ...     universe, measures="utility", topic=50, assessor=[1, 2], document=30
    ... )
    >>> compared.table[["measure", "assessor", "topic", "document", "Erho2"]].round(3)
            measure  assessor  topic  document  Erho2
    0       utility         1     50       NaN  0.844
    1       utility         2     50       NaN  0.872
    2  per document         1     50      30.0  0.858
    3  per document         2     50      30.0  0.888
    """
    check_universe(universe, "per_document_study")
    check_alpha(alpha)
    names = _measure_names(measures)
    kind = _kind_of_assessors(universe, assessors)
    _check_sizes(n, kind)
    # The warning of set_measures() concerns normalised measures only.
    measured = set_measures if set(names) & set(NORMALIZED) else measured_sets
    sets = _labelled(measured(universe, beta=beta, scores=scores), kind)
    documents = _labelled(universe.scores(scores), kind)
    terms, more, by_document, by_set = _TERMS[kind]
    results, studies = {}, {}

    def settings(design: str, **sizes: Any) -> StudyOptions:
        # Without sizes, the D-study has the design of the data with effective sizes.
        plan = {"design": design if sizes else None, "object": "system", "alpha": alpha, **sizes}
        return StudyOptions(method, "drop", options_of_fit(options), 0, plan, goal, facet)

    of_sets = settings(by_set, **{name: x for name, x in n.items() if name != "document"})
    for name in names:
        results[name], studies[name] = _fit(name, name, terms, sets, of_sets)
    results[PER_DOCUMENT], studies[PER_DOCUMENT] = _fit(
        PER_DOCUMENT, "score", f"{terms} {more}", documents, settings(by_document, **n)
    )
    return MeasureComparison(
        results=results,
        studies=studies,
        labels={name: {} for name in results},
        failures={},
        goal=goal,
        facet=facet,
        alpha=alpha,
    )


def _fit(
    name: str,
    response: str,
    terms: str,
    frame: pd.DataFrame,
    settings: StudyOptions,
) -> tuple[VarianceComponentsResults, DStudy]:
    """Return the fit and D-study of one measure."""
    formula = " + ".join([f"{response} ~ (1|system)", *(f"(1|{t})" for t in terms.split()[1:])])
    try:
        return fit_measure(MeasureModel(name, formula, frame), settings)
    except VcompError as error:
        raise type(error)(f"measure {name!r}: {error}") from None


def _measure_names(measures: str | Sequence[str]) -> list[str]:
    if not isinstance(measures, Iterable):
        raise DataError(f"measures must be a name or a list of names, not {measures!r}")
    names = [measures] if isinstance(measures, str) else list(measures)
    for name in names:
        check_known(name, SET_MEASURES, "{} is not a set-based measure; these are", DataError)
        if names.count(name) > 1:
            raise DataError(f"measure {name!r} is named twice")
    return names


def _kind_of_assessors(universe: DocumentUniverse, given: Assessors | None) -> Assessors:
    """Return the design of assessors and topics, as given or as judged."""
    if len(universe.systems) < 2 or len(universe.topics) < 2:
        raise DataError(
            "a G-study needs at least two systems and two topics; there are "
            f"{len(universe.systems)} and {len(universe.topics)}"
        )
    of_a_topic = np.diff(universe.judged_starts)
    topics_of = np.bincount(universe.judged_assessors, minlength=len(universe.assessors))
    alone, strangers = bool((of_a_topic == 1).all()), bool((topics_of == 1).all())
    if given is None:
        return "none" if alone else "nested" if strangers else "crossed"
    check_one_of("assessors", given, get_args(Assessors))
    if given == "none" and not alone:
        raise PlanError(
            "assessors='none' needs one assessor for each topic, and there are up to "
            f"{int(of_a_topic.max())}, each with a score for every document. Choose one for each "
            "topic, as vcomp.ir.assessor_layouts() does"
        )
    if given != "none" and alone:
        raise PlanError(
            f"assessors={given!r} needs several assessors for some topic, and each has one, so "
            "that effects of assessors and topics are confounded. Leave assessors= out"
        )
    if given == "crossed" and strangers:
        raise PlanError(
            "assessors='crossed' needs assessors that judged several topics, and none did: they "
            "are nested in topics"
        )
    return given


def _check_sizes(n: Mapping[str, Any], kind: Assessors) -> None:
    facets = ("topic", "document") if kind == "none" else ("topic", "assessor", "document")
    for name in n:
        why = ", with one assessor for each topic" if name == "assessor" else ""
        check_known(name, facets, f"{{}} has no size here{why}; facets with sizes are")


def _labelled(frame: pd.DataFrame, kind: Assessors) -> pd.DataFrame:
    """Return the rows, with unique names of nested assessors across topics."""
    import pandas as pd

    if kind == "none":
        return frame.drop(columns="assessor")
    if kind == "crossed":
        return frame
    topics, assessors = frame["topic"].cat, frame["assessor"].cat
    n_assessors = len(assessors.categories)
    both = topics.codes.to_numpy().astype(np.int64) * n_assessors + assessors.codes.to_numpy()
    keys = np.unique(both)
    names = [
        f"{topics.categories[k // n_assessors]}/{assessors.categories[k % n_assessors]}"
        for k in keys
    ]
    codes = np.searchsorted(keys, both)
    return frame.assign(assessor=pd.Categorical.from_codes(codes, categories=pd.Index(names)))
