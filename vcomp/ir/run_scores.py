"""Score runs against relevance judgements, by the measures of ir_measures.

Measures go by the names of ir_measures, trec_eval, ranx and common usage.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from vcomp import display
from vcomp.exceptions import DataError, VcompError, did_you_mean, guarded, warn
from vcomp.ir.runs import (
    JudgedDocument,
    Run,
    RunsLike,
    check_name_by,
    each_measure,
    is_named_sets,
    matrix_of,
    named_judgements,
    named_runs,
    read_judgements,
)
from vcomp.ir.scores import ScoreMatrix, check_matrix

if TYPE_CHECKING:
    import pandas as pd

_OTHER_NAMES = {
    "map": "AP",
    "ndcg": "nDCG",
    "mrr": "RR",
    "p": "P",
    "precision": "P",
    "recall": "R",
    "hit_rate": "Success",
    "r-precision": "Rprec",
    "bpref": "Bpref",
    "recip_rank": "RR",
}
"""Names of ir_measures by lower-case names of trec_eval, ranx and common usage."""

_CUTOFF = re.compile(r"(.*?)(?:_cut|_at_recall)?[_.@](\d+(?:\.\d+)?)")


def find_measure(name: str, known: Iterable[str]) -> str | None:
    """Return the measure of a source that has a name, or the same one in another program.

    Parameters
    ----------
    name : such as ``"map"``, ``"AP"``, ``"P_10"`` or ``"P@10"``
    known : names of the source

    Returns
    -------
    str or None
        None if no name is that of the measure.
    """
    known = list(known)
    if name in known:
        return name
    wanted = _common_name(name)
    return next((one for one in known if _common_name(one) == wanted), None)


def _common_name(name: str) -> str:
    """Return a name that a measure has in all programs: base and cutoff, in lower case."""
    found = _CUTOFF.fullmatch(name)
    base, at = (found[1], f"@{float(found[2]):g}") if found else (name, "")
    return (_OTHER_NAMES.get(base.lower(), base) + at).lower()


def load_ir_measures() -> Any:
    """Return the package ir_measures.

    Raises
    ------
    VcompError
        If it is not installed.
    """
    try:
        import ir_measures
    except ImportError as error:
        raise VcompError(
            "runs are scored by the package ir_measures, which is not installed: "
            "pip install 'variance-components[ir]'"
        ) from error
    return ir_measures


_TREC_NAME = re.compile(r"[A-Za-z_]+?([._][\d.,]+)?")


def parse_measure(ir_measures: Any, measure: Any) -> Any:
    """Return a measure of ir_measures.

    Parameters
    ----------
    ir_measures : the package
    measure : its name in ir_measures, trec_eval or ranx; or the measure

    Raises
    ------
    DataError
        If ir_measures has no such measure, the name is that of several, or lacks a cutoff.
    """
    if isinstance(measure, ir_measures.Measure):
        return measure
    if not isinstance(measure, str):
        raise DataError(
            f"a measure is its name, such as 'nDCG@10', or one of ir_measures, not {measure!r}"
        )
    base, at, cutoff = measure.partition("@")
    registry = ir_measures.measures.registry
    known = _OTHER_NAMES.get(base.lower(), base)
    if known not in registry:
        known = {name.lower(): name for name in registry}.get(known.lower(), known)
    found, why = None, ""
    try:
        with warnings.catch_warnings():
            # From Python 3.12 on, names of ast that ir_measures 0.4 uses are deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            found = ir_measures.parse_measure(known + at + cutoff)
    except (NameError, ValueError) as error:
        why = str(error)
    if found is not None and not _lacks_cutoff(found):
        return found
    of_trec = _trec_measures(ir_measures, measure)
    if len(of_trec) == 1:
        return of_trec[0]
    if of_trec:
        names = ", ".join(repr(str(one)) for one in of_trec)
        raise DataError(
            f"{measure!r} are {len(of_trec)} measures of trec_eval; write measure=[{names}], or "
            "those that you need"
        )
    if found is not None:
        raise DataError(f"the measure {measure!r} needs a rank cutoff, such as '{found}@10'")
    every = sorted({one.NAME for one in registry.values() if one.NAME.isascii()}, key=str.lower)
    raise DataError(
        f"ir_measures does not know the measure {measure!r}: {why}{_nearest(measure, registry)}; "
        f"it has {', '.join(every)}"
    )


def _lacks_cutoff(measure: Any) -> bool:
    cutoff = measure.SUPPORTED_PARAMS.get("cutoff")
    return cutoff is not None and cutoff.required and "cutoff" not in measure.params


def _nearest(measure: str, registry: Mapping[str, Any]) -> str:
    """Return the known name that is closest as a question; empty if none is close."""
    numbered = re.fullmatch(r"([A-Za-z]+)[ _-]?(\d+)", measure)
    if numbered is None:
        return did_you_mean(measure.partition("@")[0], [one.NAME for one in registry.values()])
    base = _OTHER_NAMES.get(numbered[1].lower(), numbered[1])
    return f" (did you mean '{base}@{numbered[2]}'?)" if base in registry else ""


def _trec_measures(ir_measures: Any, measure: str) -> list[Any]:
    """Return the measures that trec_eval computes under a name; empty if unknown."""
    if _TREC_NAME.fullmatch(measure) is None:
        return []
    try:
        # It prints the measures of a set that it lacks.
        with redirect_stdout(io.StringIO()):
            return list(ir_measures.parse_trec_measure(measure))
    except ValueError:
        return []


@guarded
def score_runs(
    runs: RunsLike,
    qrels: str | os.PathLike[str] | Any,
    measure: str | Sequence[Any] | Any = "AP",
    *,
    name_by: Literal["runid", "file"] = "runid",
) -> ScoreMatrix | pd.DataFrame | dict[str, Any]:
    """Return the scores of runs against relevance judgements, computed by ir_measures.

    The package ir_measures has to be installed: ``pip install 'variance-components[ir]'``. On a
    judged topic for which it retrieved nothing a run has the score that ir_measures gives, usually
    0; topics without judgements have no score.

    Parameters
    ----------
    runs : files in TREC's format (topic, ``Q0``, document, rank, score, runid), given as for
        :func:`read_scores`; or a dict of runs by system, each of them a file or an object:
        nested dicts ``{topic: {document: score}}``, a list of ``ScoredDoc`` of ir_measures, a
        ``Run`` of ranx, or a frame with the columns ``query_id``, ``doc_id`` and ``score`` or, of
        PyTerrier, ``qid``, ``docno`` and ``score``
    qrels : file in TREC's format (topic, iteration, document, relevance), or an object of one of
        these kinds; the column of a frame is ``relevance`` or ``label``. Several assessors are
        a dict of such sets by name, ``{"A": "qrels.A", "B": "qrels.B"}``, or several files (a
        folder, pattern or list), called by the names of the files. In a dict, several files are
        joined to the set of one assessor
    measure : name in ir_measures, such as ``"AP"``, ``"nDCG@10"`` or ``"P(rel=2)@5"``, in
        trec_eval (``"map"``, ``"ndcg_cut_10"``) or in ranx (``"mrr@10"``), or a measure of
        ir_measures. Each file is read once for a list of measures
    name_by : see :func:`read_scores`

    Returns
    -------
    ScoreMatrix, DataFrame, or a dict of them
        Of one set of judgements a matrix, topics in the order of the judgements; its ``judged``
        is the share of the documents, to the depth of the measure, that were judged. Of several
        assessors a table with the columns ``assessor``, ``system``, ``topic``, ``score`` and
        ``judged``. Of a list of measures, a matrix or table by the name of each.

    Raises
    ------
    VcompError
        If ir_measures is not installed.
    DataError
        If a file is missing, a line cannot be parsed (the message has its number), a run has a
        score that is not a number, a document twice on a topic, or no judged topic, ir_measures
        does not know `measure` or cannot compute it, two runs have the same name, a set judges a
        document twice, or there are fewer than two topics or runs.

    Warns
    -----
    VcompWarning
        If runs are cut at different ranks, above that to which a measure reads; if the share of
        judged documents, to the cutoff of a measure, differs by .1 or more between runs; if no
        topic was judged by two of several assessors.

    Notes
    -----
    A document is judged if the qrels have it, as in ``Judged@10`` of ir_measures. Unjudged ones
    count as not relevant, but not in ``"Bpref"``, ``"infAP"`` and measures with
    ``judged_only=True``; :func:`unjudged` says what they may change.

    Examples
    --------
    >>> qrels = {"401": {"d1": 1, "d2": 0}, "402": {"d1": 0, "d3": 2}}
    >>> runs = {
    ...     "bm25": {"401": {"d1": 2.0, "d2": 1.0}, "402": {"d1": 2.0, "d3": 1.0}},
    ...     "rm3": {"401": {"d2": 2.0, "d1": 1.0}, "402": {"d3": 2.0}},
    ... }
    >>> score_runs(runs, qrels, "AP").scores.tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    >>> {name: matrix.scores[0].tolist() for name, matrix in
    ...  score_runs(runs, qrels, ["map", "P_1"]).items()}
    {'map': [1.0, 0.5], 'P_1': [1.0, 0.0]}
    >>> score_runs(runs, {"A": qrels, "B": {"401": {"d2": 1}}}, "P@2")
      assessor system topic  score  judged
    0        A   bm25   401    0.5     1.0
    1        A   bm25   402    0.5     1.0
    2        A    rm3   401    0.5     1.0
    3        A    rm3   402    0.5     1.0
    4        B   bm25   401    0.5     0.5
    5        B    rm3   401    0.5     0.5
    """
    ir_measures = load_ir_measures()
    check_name_by(name_by)
    names = each_measure(measure)
    parsed = {str(name): parse_measure(ir_measures, name) for name in names}
    judges = judges_of(ir_measures, qrels, parsed)
    found = {(judge.name, one): RunScores({}, {}) for judge in judges for one in parsed}
    depths: dict[str, list[int]] = {}
    for system, run in named_runs(runs, name_by):
        topics = {topic for judge in judges for topic in judge.grades}
        depths[system] = [len(run[topic]) for topic in topics if topic in run]
        if run and topics.isdisjoint(run):
            raise DataError(
                f"no topic of run {system!r} is judged: it has {next(iter(run))!r}, and the "
                f"judgements have {next(iter(judges[0].grades))!r}",
                level=system,
            )
        firsts = {
            depth: {topic: first(run[topic], depth) for topic in topics if topic in run}
            for depth in {one.params.get("cutoff") for one in parsed.values()}
        }
        for judge in judges:
            scores = judge.scores(run, parsed)
            shares = {depth: judge.shares(of_topic) for depth, of_topic in firsts.items()}
            for name, one in parsed.items():
                cell = found[judge.name, name]
                cell.scores[system] = scores[one]
                cell.judged[system] = shares[one.params.get("cutoff")]
    _warn_of_cut_runs(depths, parsed)
    if is_named_sets(qrels) or len(judges) > 1:
        _warn_of_nested(judges)
        tables = {name: _table([(j.name, found[j.name, name]) for j in judges]) for name in parsed}
        _warn_of_unjudged(found, parsed)
        return tables if isinstance(measure, list | tuple) else tables[str(measure)]
    matrices = {name: check_matrix(found[judges[0].name, name].matrix()) for name in parsed}
    _warn_of_unjudged(found, parsed)
    return matrices if isinstance(measure, list | tuple) else matrices[str(measure)]


class RunScores(NamedTuple):
    """Scores by one measure and one assessor, by system and topic.

    Attributes
    ----------
    scores : by system and topic
    judged : shares of the documents, to the depth of the measure, that were judged
    """

    scores: dict[str, dict[str, float]]
    judged: dict[str, dict[str, float]]

    def matrix(self) -> ScoreMatrix:
        """Return them as a matrix, with topics in the order of the scores."""
        matrix = matrix_of(self.scores, None)
        shares = [[of.get(t, np.nan) for of in self.judged.values()] for t in matrix.topics]
        return replace(matrix, judged=np.array(shares, dtype=float).reshape(matrix.scores.shape))


@dataclass(frozen=True)
class Judge:
    """One set of judgements.

    Attributes
    ----------
    name : of the set
    grades : relevance by topic and document
    evaluators : of ir_measures, for all measures of a call
    """

    name: str
    grades: Mapping[str, Mapping[str, int]]
    evaluators: Sequence[Any]

    def scores(self, run: Run, measures: Mapping[str, Any]) -> dict[Any, dict[str, float]]:
        """Return the scores of a run by measure of ir_measures and topic."""
        scores: dict[Any, dict[str, float]] = {one: {} for one in measures.values()}
        with explained(", ".join(measures)):
            for evaluator in self.evaluators:
                for found in evaluator.iter_calc(run):
                    scores[found.measure][found.query_id] = float(found.value)
        return scores

    def shares(self, read: Mapping[str, Collection[str]]) -> dict[str, float]:
        """Return the share of the documents that were judged, by topic.

        Parameters
        ----------
        read : the documents to the depth of a measure, by topic
        """
        return {
            topic: len(grades.keys() & read[topic]) / len(read[topic])
            for topic, grades in self.grades.items()
            if read.get(topic)
        }


def judges_of(ir_measures: Any, qrels: Any, measures: Mapping[str, Any]) -> list[Judge]:
    """Return the sets of judgements, each with what evaluates runs by it.

    Parameters
    ----------
    ir_measures : the package
    qrels : see :func:`score_runs`
    measures : of ir_measures, by name

    Raises
    ------
    DataError
        If a set cannot be read, judges a document twice, or a measure cannot be computed.
    """
    judges = []
    for name, one in named_judgements(qrels):
        judged = read_judgements(one)
        grades = _grades(judged, name)
        different = list(dict.fromkeys(measures.values()))
        of_subtopics = [one for one in different if one.NAME in _OF_SUBTOPICS]
        parts = [(of_subtopics, judged), ([x for x in different if x not in of_subtopics], judged)]
        if sum(map(len, grades.values())) < len(judged):
            # Of several grades ir_measures would use that of the last line.
            parts[1] = (
                parts[1][0],
                [
                    JudgedDocument(topic, document, grade, "0")
                    for topic, of_topic in grades.items()
                    for document, grade in of_topic.items()
                ],
            )
        with explained(", ".join(measures)):
            evaluators = [ir_measures.evaluator(some, of) for some, of in parts if some]
        judges.append(Judge(name, grades, evaluators))
    return judges


def _grades(judged: list[JudgedDocument], name: str) -> dict[str, dict[str, int]]:
    """Return the grades by topic and document; those of subtopics are put together."""
    grades: dict[str, dict[str, int]] = {}
    for topic, document, grade, _ in judged:
        of_topic = grades.setdefault(topic, {})
        of_topic[document] = max(of_topic.get(document, grade), grade)
    if sum(map(len, grades.values())) < len(judged):
        counts = Counter((one.query_id, one.iteration, one.doc_id) for one in judged)
        (topic, _, document), n = counts.most_common(1)[0]
        if n > 1:
            raise DataError(
                f"judgements {name!r}: document {document!r} of topic {topic!r} is judged twice; "
                "two assessors are two sets, {'A': qrels, 'B': qrels}",
                level=topic,
            )
    return grades


def first(documents: Mapping[str, float], depth: int | None) -> Collection[str]:
    """Return the first documents of a ranking; all of them, in any order, if `depth` is None.

    Parameters
    ----------
    documents : scores by document; ties are broken as by trec_eval
    depth : number of documents
    """
    if depth is None:
        return documents.keys()
    pairs = zip(documents.values(), documents.keys(), strict=True)
    return [document for _, document in nlargest(depth, pairs)]


def _table(by_assessor: list[tuple[str, RunScores]]) -> pd.DataFrame:
    """Return one row per score, with the assessor first."""
    import pandas as pd

    tables = {name: scores.matrix().to_long() for name, scores in by_assessor}
    table = pd.concat(tables, names=["assessor"]).reset_index("assessor")
    return table.reset_index(drop=True)


def _warn_of_nested(judges: list[Judge]) -> None:
    """Warn if no topic has two sets of judgements: they may be the parts of one set."""
    topics = [topic for judge in judges for topic in judge.grades]
    if len(judges) > 1 and len(set(topics)) == len(topics):
        warn(
            f"no topic was judged by two of the {len(judges)} sets of judgements, "
            f"{judges[0].name!r} and others, so topics are nested in assessors; files that are "
            "parts of one set are joined in a dict, qrels={'assessor': ['part1', 'part2']}"
        )


_OF_SUBTOPICS = (
    "alpha_DCG", "alpha_nDCG", "AP_IA", "ERR_IA", "MAP_IA", "nERR_IA", "nNRBP", "NRBP", "P_IA",
    "StRecall",
)  # fmt: skip
"""Measures that read the grades of subtopics; others read the highest of them."""

_SKIP_UNJUDGED = ("Bpref", "infAP", "Judged")
"""Measures to which unjudged documents are not the same as documents that are not relevant."""

_UNEQUAL = 0.1
"""Difference between runs in the share of judged documents from which on it is named."""

_FEW_TOPICS = 5


def skips_unjudged(measure: Any) -> bool:
    """Return whether a measure leaves unjudged documents out."""
    return measure.NAME in _SKIP_UNJUDGED or bool(measure.params.get("judged_only"))


def _warn_of_unjudged(
    found: Mapping[tuple[str, str], RunScores], measures: Mapping[str, Any]
) -> None:
    """Warn if many more of the first documents of one run than of another are unjudged.

    Measures without a cutoff read documents that hardly any collection has judged.
    """
    for (judge, name), of in found.items():
        if "cutoff" not in measures[name].params or skips_unjudged(measures[name]):
            continue
        shares = {s: float(np.mean([*by.values()])) for s, by in of.judged.items() if by}
        least, most = (pick(shares, key=lambda s: shares[s]) for pick in (min, max))
        if len(of.judged[least]) < _FEW_TOPICS or shares[most] - shares[least] < _UNEQUAL:
            continue
        by = "" if len({judge for judge, _ in found}) == 1 else f" by {judge!r}"
        warn(
            f"to the depth of {name}, {display.percent(shares[least], 0)} of the documents of run "
            f"{least!r} were judged{by}, and {display.percent(shares[most], 0)} of those of "
            f"{most!r}; unjudged documents count as not relevant: "
            f"vcomp.ir.unjudged(runs, qrels, {name!r}) says what they may change"
        )
        return


def _warn_of_cut_runs(depths: Mapping[str, list[int]], measures: Mapping[str, Any]) -> None:
    """Warn if runs end at one rank on most topics, others go deeper, and measures read on.

    Parameters
    ----------
    depths : numbers of documents by topic of each run
    measures : by name
    """
    deepest = max((max(counts, default=0) for counts in depths.values()), default=0)
    cut = {}
    for name, counts in depths.items():
        end = max(counts, default=0)
        if 0 < end < deepest and 2 * counts.count(end) >= max(len(counts), 4):
            cut[name] = end
    least = min(cut.values(), default=deepest)
    read = [name for name, m in measures.items() if m.params.get("cutoff", deepest) > least]
    if not cut or not read:
        return
    shown = ", ".join(f"{name!r} at {end}" for name, end in list(cut.items())[:3])
    warn(
        f"runs are cut at different ranks: {shown}{', …' * (len(cut) > 3)}, and others go to rank "
        f"{deepest}; scores by {', '.join(read)} favour longer runs: cut all runs at rank "
        f"{least}, or use a measure with that cutoff, such as 'nDCG@{least}'"
    )


@contextmanager
def explained(measure: object) -> Iterator[None]:
    """Convert errors of ir_measures, or of a program that it calls, to a DataError."""
    try:
        yield
    except Exception as error:
        raise DataError(f"ir_measures cannot compute {measure}: {error}") from error
