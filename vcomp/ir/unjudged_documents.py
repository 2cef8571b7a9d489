"""What unjudged documents may change: bounds of scores, condensed lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from vcomp import display
from vcomp.exceptions import DataError, guarded, is_whole
from vcomp.ir.run_scores import (
    Judge,
    RunScores,
    explained,
    first,
    judges_of,
    load_ir_measures,
    parse_measure,
    skips_unjudged,
)
from vcomp.ir.runs import Run, RunsLike, check_name_by, named_runs
from vcomp.ir.scores import ScoreMatrix, check_matrix

if TYPE_CHECKING:
    import pandas as pd

_RISING = ("P", "R", "RR", "Success", "RBP", "ERR", "SetP", "SetR", "SetF")
"""Measures that rise with every document that becomes relevant."""

_MANY = 200
"""Unjudged documents of a run on a topic, above which not all cases are scored."""

_AT_ONCE = 1 << 18
"""Documents that are scored at once."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unjudged(display.Printed):
    """What unjudged documents may change, made by :func:`unjudged`.

    Attributes
    ----------
    measure : its name
    grade : of unjudged documents that are relevant
    score : scores if all unjudged documents are not relevant
    low, high : bounds over all ways in which the unjudged documents that a run retrieved, to the
        depth of the measure, are relevant or not
    condensed : scores of the runs without their unjudged documents
    documents : (topic, document) → rank in each run that retrieved it, to the depth of the
        measure, of all unjudged documents
    """

    measure: str
    grade: int
    score: ScoreMatrix
    low: ScoreMatrix
    high: ScoreMatrix
    condensed: ScoreMatrix
    documents: Mapping[tuple[str, str], list[int]]

    def __repr__(self) -> str:
        return f"<unjudged documents of {self.score.n_systems:,} runs, {self.measure}>"

    @property
    def table(self) -> pd.DataFrame:
        """One row per run: mean share of judged documents, scores and bounds, best run first."""
        import pandas as pd

        columns: dict[str, Any] = {
            "judged": self.score.judged,
            "score": self.score.scores,
            "low": self.low.scores,
            "high": self.high.scores,
            "condensed": self.condensed.scores,
        }
        index = pd.Index(self.score.systems, name="system", dtype=object)
        means = {name: np.nanmean(values, axis=0) for name, values in columns.items()}
        return pd.DataFrame(means, index=index).sort_values(
            "score", ascending=False, kind="stable"
        )

    @property
    def pairs(self) -> pd.DataFrame:
        """One row per pair of runs: difference of their mean scores, bounds, and if it is decided.

        The bounds are those of the two runs, the high end of one with the low end of the other.
        They are too wide where both retrieved the same unjudged document.
        """
        import pandas as pd

        table = self.table
        a, b = np.triu_indices(len(table), 1)
        score, low, high = (table[name].to_numpy() for name in ("score", "low", "high"))
        pairs = pd.DataFrame(
            {
                "first": table.index[a],
                "second": table.index[b],
                "difference": score[a] - score[b],
                "low": low[a] - high[b],
                "high": high[a] - low[b],
            }
        )
        return pairs.assign(decided=(pairs["low"] > 0) | (pairs["high"] < 0))

    def to_judge(self) -> pd.DataFrame:
        """Return the unjudged documents, those first that most runs retrieved at low ranks.

        Returns
        -------
        DataFrame
            Columns ``topic``, ``document``, ``runs`` (number of runs that retrieved it, to the
            depth of the measure) and ``rank`` (the best one, from 1).

        Examples
        --------
        >>> qrels = {"401": {"d1": 1}, "402": {"d3": 1}}
        >>> runs = {
        ...     "bm25": {"401": {"d1": 2.0, "d9": 1.0}, "402": {"d3": 1.0}},
        ...     "new": {"401": {"d9": 2.0, "d1": 1.0}, "402": {"d3": 2.0, "d8": 1.0}},
        ... }
        >>> unjudged(runs, qrels, "P@2").to_judge()
          topic document  runs  rank
        0   401       d9     2     1
        1   402       d8     1     2
        """
        import pandas as pd

        rows = [(*key, len(ranks), min(ranks)) for key, ranks in self.documents.items()]
        table = pd.DataFrame(rows, columns=["topic", "document", "runs", "rank"])
        order = ["runs", "rank", "topic", "document"]
        return table.sort_values(order, ascending=[False, True, True, True], ignore_index=True)

    def summary(self) -> Any:
        """Return the table with notes on what it says."""
        table = self.table
        cells = [
            [display.percent(judged, 0), *(display.number(value, 3) for value in rest)]
            for judged, *rest in table.itertuples(index=False)
        ]
        shown = display.simple_table(
            cells,
            headers=["judged", "score", "low", "high", "condensed"],
            stubs=list(table.index),
            title=f"Unjudged documents, {self.measure}",
        )
        pairs = self.pairs
        n_open = display.count(int((~pairs["decided"]).sum()))
        meaning = (
            "score: unjudged documents are not relevant; low, high: bounds over all ways in which "
            f"those that a run retrieved are relevant (grade {self.grade}) or not; condensed: "
            "without them."
        )
        order = (
            f"Unjudged documents may change the order of {n_open} of {display.count(len(pairs))} "
            "pairs of runs."
        )
        return display.summary([shown], [meaning, order])


@guarded
def unjudged(
    runs: RunsLike,
    qrels: Any,
    measure: Any = "nDCG@10",
    *,
    name_by: Literal["runid", "file"] = "runid",
    grade: int | None = None,
) -> Unjudged:
    """Return what the unjudged documents of runs may change in their scores.

    Parameters
    ----------
    runs, qrels : see :func:`score_runs`; the judgements of one assessor
    measure : see :func:`score_runs`. One whose greatest value is not that of a run with all
        unjudged documents relevant, such as nDCG and AP, needs a cutoff if runs have many of them
    name_by : see :func:`read_scores`
    grade : of an unjudged document that is relevant; by default the highest of the judgements

    Returns
    -------
    Unjudged

    Raises
    ------
    VcompError
        If ir_measures is not installed.
    DataError
        As :func:`score_runs`; also if there are several sets of judgements, `measure` leaves
        unjudged documents out, a run has too many for bounds by it, or `grade` is not a positive
        whole number.

    Notes
    -----
    *Bounds.* Each unjudged document to the depth of the measure is of grade 0 or `grade`. Given
    how many of them are relevant, a score is highest if these are the first ones and lowest if
    they are the last ones, so that not all ways need to be scored. Documents that the
    run did not retrieve are as judged: if more of them are relevant, nDCG, AP and recall are
    lower. The difference
    ``high - low`` of RBP, with all documents of a run, is its residual less that of the ranks
    below the end of the run. Ties are broken as trec_eval does.

    *Condensed lists* are runs without their unjudged documents, as by measures of ir_measures
    with ``judged_only=True``. They favour runs with many unjudged documents, as scores with
    unjudged documents as not relevant disfavour them.

    References
    ----------
    Moffat, A. & Zobel, J. (2008). Rank-biased precision for measurement of retrieval
    effectiveness. *ACM Transactions on Information Systems*, 27(1), 2. Sakai, T. (2007).
    Alternatives to Bpref. *SIGIR*, 71-78.

    Examples
    --------
    >>> qrels = {"401": {"d1": 1, "d2": 0}, "402": {"d1": 0, "d3": 1}}
    >>> runs = {
    ...     "bm25": {"401": {"d1": 2.0, "d2": 1.0}, "402": {"d1": 2.0, "d3": 1.0}},
    ...     "new": {"401": {"d9": 2.0, "d1": 1.0}, "402": {"d3": 2.0, "d8": 1.0}},
    ... }
    >>> unjudged(runs, qrels, "P@2").table
            judged  score  low  high  condensed
    system
    bm25       1.0    0.5  0.5   0.5        0.5
    new        0.5    0.5  0.5   1.0        0.5
    """
    ir_measures = load_ir_measures()
    check_name_by(name_by)
    parsed = parse_measure(ir_measures, measure)
    if skips_unjudged(parsed):
        raise DataError(
            f"{measure} leaves unjudged documents out, so they change nothing; score_runs "
            "computes it, and bounds are those of measures such as 'nDCG@10'"
        )
    judge, *others = judges_of(ir_measures, qrels, {str(measure): parsed})
    if others:
        raise DataError(
            f"there are {len(others) + 1} sets of judgements, and an unjudged document is one of "
            "one set: {name: vcomp.ir.unjudged(runs, one) for name, one in qrels.items()}"
        )
    relevant = _grade(grade, judge)
    found = {kind: RunScores({}, {}) for kind in ("score", "low", "high", "condensed")}
    documents: dict[tuple[str, str], list[int]] = {}
    for system, run in named_runs(runs, name_by):
        bounds = _bounds(ir_measures, system, run, judge, parsed, relevant)
        condensed = {
            topic: {document: x for document, x in of.items() if document in judge.grades[topic]}
            for topic, of in run.items()
            if not judge.grades.get(topic, {}).keys().isdisjoint(of)
        }
        bounds["condensed"] = judge.scores(condensed, {str(measure): parsed})[parsed]
        depths = {topic: parsed.params.get("cutoff", len(run[topic])) for topic in run}
        read = {t: first(run[t], depth) for t, depth in depths.items() if t in judge.grades}
        shares = judge.shares(read)
        for topic, retrieved in read.items():
            for rank, document in enumerate(retrieved, start=1):
                if document not in judge.grades[topic]:
                    documents.setdefault((topic, document), []).append(rank)
        for kind, of_topic in bounds.items():
            found[kind].scores[system] = of_topic
            found[kind].judged[system] = shares
    matrices = {kind: check_matrix(of.matrix()) for kind, of in found.items()}
    return Unjudged(str(measure), relevant, **matrices, documents=documents)


def _grade(grade: int | None, judge: Judge) -> int:
    """Return the grade of unjudged documents that are relevant."""
    highest = max(x for of_topic in judge.grades.values() for x in of_topic.values())
    if grade is None:
        if highest < 1:
            raise DataError("no document of the judgements is relevant; give grade=1")
        return highest
    if not is_whole(grade) or grade < 1:
        raise DataError(f"grade must be a positive whole number, not {grade!r}")
    return int(grade)


class _Case(NamedTuple):
    """A way in which unjudged documents of a run on a topic are relevant or not.

    Attributes
    ----------
    topic : of them
    relevant : those that are
    """

    topic: str
    relevant: list[str]


def _bounds(
    ir_measures: Any, system: str, run: Run, judge: Judge, measure: Any, grade: int
) -> dict[str, dict[str, float]]:
    """Return the score of a run on each topic, and its bounds.

    Parameters
    ----------
    ir_measures : the package
    system : name of the run
    run : the documents
    judge, measure : by which they are scored
    grade : of an unjudged document that is relevant
    """
    depth = measure.params.get("cutoff")
    rankings = {t: list(first(of, len(of))) for t, of in run.items() if t in judge.grades}
    lists = {topic: _placed(documents) for topic, documents in rankings.items()}
    score = judge.scores(lists, {str(measure): measure})[measure]
    low, high = dict(score), dict(score)
    read = {topic: documents[:depth] for topic, documents in rankings.items()}
    cases = _cases(system, read, judge, measure)
    for some in _in_parts(cases, read):
        qrels = {
            str(k): {
                **{d: x for d, x in judge.grades[case.topic].items() if x > 0},
                **{d: judge.grades[case.topic].get(d, 0) for d in read[case.topic]},
                **dict.fromkeys(case.relevant, grade),
            }
            for k, case in enumerate(some)
        }
        lists = {str(k): _placed(read[case.topic]) for k, case in enumerate(some)}
        with explained(measure):
            found = list(ir_measures.iter_calc([measure], qrels, lists))
        for one in found:
            topic = some[int(one.query_id)].topic
            low[topic] = min(low[topic], float(one.value))
            high[topic] = max(high[topic], float(one.value))
    return {"score": score, "low": low, "high": high}


def _placed(documents: list[str]) -> dict[str, float]:
    """Return documents with scores that have their order and no ties."""
    return {document: -float(rank) for rank, document in enumerate(documents)}


def _cases(
    system: str, read: Mapping[str, list[str]], judge: Judge, measure: Any
) -> Iterator[_Case]:
    """Yield cases with the lowest and the highest score among them, but not the case of none."""
    for topic, documents in read.items():
        unknown = [document for document in documents if document not in judge.grades[topic]]
        n = len(unknown)
        if measure.NAME in _RISING:
            if n:
                yield _Case(topic, unknown)
            continue
        if n > _MANY:
            raise DataError(
                f"run {system!r} has {n:,} unjudged documents on topic {topic!r}, too many for "
                f"bounds by {measure}; give the measure a smaller cutoff, such as "
                f"'{measure.NAME}@10'",
                level=topic,
            )
        for k in range(n):
            yield _Case(topic, unknown[: k + 1])
            if k:
                yield _Case(topic, unknown[k:])


def _in_parts(cases: Iterator[_Case], read: Mapping[str, list[str]]) -> Iterator[list[_Case]]:
    """Yield lists of cases whose documents fit into memory."""
    part: list[_Case] = []
    size = 0
    for case in cases:
        part.append(case)
        size += len(read[case.topic])
        if size >= _AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part
