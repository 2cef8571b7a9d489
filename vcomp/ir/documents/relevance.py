"""Threshold model of relevance: variance components of topics, documents and assessors.

See section 16.4 of the mathematics.

References
----------
Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
Processing & Management*, 44(3), 1117-1145. Sections 5 and 6.

Olsson, U. (1979). Maximum likelihood estimation of the polychoric correlation coefficient.
*Psychometrika*, 44(4), 443-460. The two-step estimator: thresholds by the shares of grades.

Owen, D. B. (1956). Tables for computing bivariate normal probabilities. *Annals of Mathematical
Statistics*, 27(4), 1075-1090. Equation (2.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import DataError, EstimationError, guarded, warn
from vcomp.gtheory import from_components
from vcomp.inference import VarianceComponents
from vcomp.ir.documents.document_files import check_once, is_table, read_documents, table_of_qrels

if TYPE_CHECKING:
    import pandas as pd

_MOST_GRADES = 10
_FEWEST_TOPICS = 3
_ROUNDING = 1e-12

_FARTHEST = 30.0
"""Bound of the thresholds, beyond which the probability is negligible."""

_HIGHEST = 1.0 - 1e-6
_HALVINGS = 60
_TINY = 1e-300

_PAIRS = (
    "one topic, one assessor",
    "one topic, two assessors",
    "one document, two assessors",
    "two topics, one assessor",
    "two topics, two assessors",
)
"""Kinds of pairs of judgements, of two documents except for the third kind."""


@dataclass(frozen=True, slots=True, eq=False)
class _Judgements:
    """Grades, topics, documents and assessors of judgements, as numbers from 0."""

    grades: LongArray
    topics: LongArray
    documents: LongArray
    assessors: LongArray


@dataclass(frozen=True, eq=False, repr=False)
class RelevanceModel(display.Printed):
    """Threshold model of relevance on a sum of normal effects, by :func:`vcomp.ir.fit_relevance`.

    Attributes
    ----------
    grades : the grades of the judgements, ascending
    shares : (m,) share of each grade
    correlations : a row for each kind of pairs of judgements: the number of pairs and the
        correlation of their sums of effects, nan where there are no pairs
    components : of the sum, whose variance is 1, with the covariance matrix of a jackknife over
        topics: topic, assessor, assessor:topic, topic:document and residual, by the names of the
        columns
    sizes : numbers of judgements, topics, documents and assessors
    notes : what cannot be separated, and what was set to zero
    """

    grades: tuple[float, ...]
    shares: FloatArray
    correlations: pd.DataFrame
    components: VarianceComponents
    sizes: Mapping[str, int]
    notes: tuple[str, ...]

    @cached_property
    def effects(self) -> dict[str, float]:
        """Effects for :func:`vcomp.ir.novelty_like_track`, scaled to documents with s.d. 1."""
        sd = dict(zip(("i", "a", "a:i", "d", "a:d"), np.sqrt(self.components.values), strict=True))
        return {
            "relevance": -float(thresholds(self.shares)[0] / sd["d"]),
            **{name: float(value / sd["d"]) for name, value in sd.items()},
        }

    @cached_property
    def cuts(self) -> tuple[float, ...]:
        """Cuts of the grades for :func:`vcomp.ir.novelty_like_track`, the first at 0."""
        at = thresholds(self.shares)
        sd = float(np.sqrt(self.components.values[3]))
        return tuple(float(cut) for cut in (at - at[0]) / sd)

    def summary(self) -> Any:
        """Return a printable summary: components with standard errors, and shares of grades.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        size, made = self.sizes, self.components
        head = display.plain_table(
            [
                (f"Judgements: {size['judgements']:,}", f"Topics: {size['topics']:,}"),
                (f"Documents: {size['documents']:,}", f"Assessors: {size['assessors']:,}"),
            ]
        )
        assert made.cov is not None
        cells = {
            "var. comp.": display.fixed(made.values, decimals=3),
            "std. err.": display.fixed(np.sqrt(np.diag(made.cov)), decimals=3),
            "SD": display.fixed(np.sqrt(made.values), decimals=3),
        }
        table = display.column_table(cells, title="Relevance", stubs=list(made.names))
        grades = display.column_table(
            {"share": [display.percent(share) for share in self.shares]},
            title="Grades",
            stubs=[display.number(grade) for grade in self.grades],
        )
        note = (
            "Components of the sum of effects behind a judgement, whose variance is 1. Standard "
            "errors by a jackknife over topics: of other topics, and the same assessors."
        )
        return display.summary([head, table, grades], [note, *self.notes])

    def __repr__(self) -> str:
        size = self.sizes
        assessors = f"{size['assessors']:,} assessor{'s' * (size['assessors'] != 1)}"
        return (
            f"<Relevance of {size['judgements']:,} judgements: {size['topics']:,} topics, "
            f"{size['documents']:,} documents, {assessors}>"
        )


@guarded
def fit_relevance(
    judgements: Any,
    *,
    assessor: str = "assessor",
    topic: str = "topic",
    document: str = "document",
    relevant: str = "relevant",
) -> RelevanceModel:
    """Fit variance components of relevance (topics, documents, assessors) to judgements.

    Behind the judgement of a document is a normal sum of effects of the topic, the assessor, the
    assessor in the topic, the document, and the assessor in the document; the grade counts the
    cuts that it exceeds. Simulations with these effects, :func:`vcomp.ir.novelty_like_track` and
    :func:`vcomp.simulate.simulate_effects`, have as many relevant documents, topics that differ as
    much and assessors who agree as much as those of the judgements.

    Parameters
    ----------
    judgements : one row per judgement, with the columns `assessor`, `topic`, `document` and
        `relevant` (grades, such as 0 and 1, or True and False): a pandas or polars frame, pyarrow
        Table, dict of arrays, or path of a CSV or Parquet file. Or qrels, as for
        :func:`vcomp.ir.document_universe`: several files are several assessors, called by the
        names of the files; in a dict by its keys. Documents without a row were not judged, and do
        not count
    assessor, topic, document, relevant : names of the columns

    Returns
    -------
    RelevanceModel

    Raises
    ------
    DataError
        If a column is missing or lacks values, an assessor judged a document twice, grades are
        not finite numbers, all the same, or more than ten, there are fewer than three topics, or
        no topic has two documents.
    EstimationError
        If judgements of one document are no more alike than those of two.

    Warns
    -----
    VcompWarning
        If assessors cannot be separated from topics or documents, which is so unless several
        judged the same documents.

    Notes
    -----
    Cuts follow from the shares of grades; correlations of two judgements of one topic, of one
    document, or by one assessor maximise the likelihood of the pairs given the cuts (Olsson 1979),
    and components are their differences. The means of the same topics and assessors make all
    pairs alike; pairs that have nothing in common show by how much. Every judgement has the same
    weight. Components of assessors rest on as many assessors as there are.

    References
    ----------
    Bodoff, D. (2008). *Information Processing & Management*, 44(3), 1117-1145. Section 6, page
    1143: effects of assessors, of assessors in topics and in documents.

    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 8, page 343:
    simulation of assessors and documents.

    Examples
    --------
    >>> import vcomp
    >>> judged = vcomp.ir.novelty_like_track(n_systems=2, n_documents=200, rng=1).judgements
    >>> model = vcomp.ir.fit_relevance(judged)
    >>> model
    <Relevance of 19,852 judgements: 50 topics, 9,926 documents, 2 assessors>
    >>> {name: round(value, 1) for name, value in model.effects.items()}
    {'relevance': -1.1, 'i': 0.3, 'a': 0.3, 'a:i': 0.4, 'd': 1.0, 'a:d': 0.6}
    >>> alike = vcomp.ir.novelty_like_track(effects=model.effects, cuts=model.cuts, rng=2)
    """
    columns, names = (topic, document, assessor), (assessor, topic, document, relevant)
    if not is_table(judgements, names):
        judgements = table_of_qrels(judgements, names)
    judged, grades, sizes = _read(judgements, columns, relevant)
    return _model(judged, grades, sizes, columns)


def _read(
    judgements: Any, columns: tuple[str, str, str], relevant: str
) -> tuple[_Judgements, tuple[float, ...], dict[str, int]]:
    """Return the judgements as codes, the grades, and the number of levels of each facet."""
    table = read_documents("judgements", judgements, columns, relevant)
    grades, codes = np.unique(table.grades, return_inverse=True)
    if not 2 <= grades.size <= _MOST_GRADES:
        values = "one value" if grades.size == 1 else f"{grades.size:,} values"
        raise DataError(
            f"judgements: column {relevant!r} holds {values}; relevance has 2 to {_MOST_GRADES} "
            "grades",
            column=relevant,
        )
    labels = [table.columns[name].cat for name in columns]
    topics, named, assessors = (label.codes.to_numpy().astype(np.int64) for label in labels)
    of_topics, of_documents, of_assessors = (label.categories for label in labels)
    keys = topics * len(of_documents) + named
    check_once("judged", "assessor", of_assessors, keys, assessors, of_topics, of_documents)
    if len(of_topics) < _FEWEST_TOPICS:
        raise DataError(
            f"judgements are of {len(of_topics):,} topics; how topics differ needs "
            f"{_FEWEST_TOPICS} or more"
        )
    distinct, documents = np.unique(keys, return_inverse=True)
    if np.bincount(distinct // len(of_documents)).max() < 2:
        raise DataError("judgements: no topic has two documents, so that they cannot differ in it")
    sizes = {
        "judgements": codes.size,
        "topics": len(of_topics),
        "documents": distinct.size,
        "assessors": len(of_assessors),
    }
    judged = _Judgements(codes, topics, documents, assessors)
    return judged, tuple(map(float, grades)), sizes


def _model(
    judged: _Judgements,
    grades: tuple[float, ...],
    sizes: Mapping[str, int],
    columns: tuple[str, str, str],
) -> RelevanceModel:
    import pandas as pd

    pairs, shares = _pair_tables(judged, len(grades), sizes)
    correlations = np.stack([polychoric_correlations(part, shares) for part in pairs.tables])
    estimates = _components(correlations[:, 0])
    if not estimates[3] > 0.0:
        raise EstimationError(
            "judgements of one document are no more alike than those of two documents of its "
            "topic, so that relevance is not of documents; check the columns of documents and "
            "relevance"
        )
    values = np.maximum(estimates, 0.0)
    values /= values.sum()
    without = np.stack([_components(one) for one in correlations[:, 1:].T])
    deviations = without - without.mean(axis=0)
    n = len(without)
    cov = (n - 1) / n * deviations.T @ deviations
    topic, document, assessor = columns
    names = (topic, assessor, f"{assessor}:{topic}", f"{topic}:{document}", "Residual")
    made = from_components(dict(zip(names, values, strict=True)), cov=cov).components
    missing = ~np.isfinite(correlations[:, 0])
    confounded = _confounded(missing)
    if confounded:
        warn(confounded)
    zero = [name for name, value in zip(names, estimates, strict=True) if value < 0.0]
    notes = [f"{confounded[0].upper()}{confounded[1:]}."] if confounded else []
    if zero:
        notes.append(f"Negative estimates were set to zero: {', '.join(zero)}.")
    kinds = {"pairs": pairs.counts.astype(np.int64), "correlation": correlations[:, 0]}
    table = pd.DataFrame(kinds, index=pd.Index(_PAIRS, name="judgements"))
    return RelevanceModel(grades, shares[0], table, made, dict(sizes), tuple(notes))


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Pairs of judgements by kind and grades: over all topics, and without each topic.

    Attributes
    ----------
    tables : (5, T + 1, m, m) weights of pairs by their grades
    counts : (5,) numbers of pairs
    """

    tables: FloatArray
    counts: FloatArray


def _pair_tables(
    judged: _Judgements, m: int, sizes: Mapping[str, int]
) -> tuple[_Pairs, FloatArray]:
    """Return the pairs, and the (T + 1, m) shares of grades.

    Pairs within topics are weighted by the judgements of the topic, not by its pairs.
    """
    T, A = sizes["topics"], sizes["assessors"]
    groups, of = np.unique(judged.topics * A + judged.assessors, return_inverse=True)
    N_at = _counted(of, judged.grades, groups.size, m)
    topic_of, assessor_of = np.divmod(groups, A)
    N_t = _added(topic_of, N_at, T)
    documents = _counted(judged.documents, judged.grades, sizes["documents"], m)
    of_document = np.zeros(sizes["documents"], dtype=np.int64)
    of_document[judged.documents] = judged.topics

    one = _products(topic_of, N_at, N_at, T) - _diagonal(N_t)
    same = _products(of_document, documents, documents, T) - _diagonal(N_t)
    two = _outer(N_t, N_t) - _diagonal(N_t) - one - same
    within = [_left_out(part, N_t.sum(axis=1)) for part in (one, two, same)]
    across = _across(N_at, N_t, topic_of, assessor_of, A)
    tables = np.stack([*within, *across])
    counts = [part.sum() for part in (one, two, same)] + [part[0].sum() for part in across]
    totals = np.concatenate([N_t.sum(axis=0)[np.newaxis], N_t.sum(axis=0) - N_t])
    shares = totals / totals.sum(axis=1, keepdims=True)
    return _Pairs(tables, np.array(counts) / 2.0), shares


def _across(
    N_at: FloatArray, N_t: FloatArray, topic_of: LongArray, assessor_of: LongArray, A: int
) -> tuple[FloatArray, FloatArray]:
    """Return pairs across topics by one and by two assessors: of all topics, and without each."""
    T = len(N_t)
    N_a = _added(assessor_of, N_at, A)
    # Pairs of a topic with all others: by the same assessor, and by any.
    by_one = _products(topic_of, N_at, N_a[assessor_of] - N_at, T)
    by_any = _outer(N_t, N_t.sum(axis=0) - N_t)

    def parts(of_topic: FloatArray) -> FloatArray:
        every = of_topic.sum(axis=0)
        return np.concatenate([every[np.newaxis], every - of_topic - of_topic.transpose(0, 2, 1)])

    return parts(by_one), parts(by_any - by_one)


def _counted(groups: Any, grades: LongArray, n: int, m: int) -> FloatArray:
    counts = np.bincount(groups * np.int64(m) + grades, minlength=n * m)
    return counts.reshape(n, m).astype(float)


def _added(groups: Any, values: FloatArray, n: int) -> FloatArray:
    """Return the sums of rows by group."""
    return np.stack([np.bincount(groups, column, minlength=n) for column in values.T], axis=1)


def _products(groups: Any, x: FloatArray, y: FloatArray, n: int) -> FloatArray:
    """Return the sums by group of the products of all columns of x with all of y."""
    columns = [np.bincount(groups, a * b, minlength=n) for a in x.T for b in y.T]
    return np.array(columns, dtype=float).T.reshape(n, x.shape[1], y.shape[1])


def _outer(x: FloatArray, y: FloatArray) -> FloatArray:
    return x[:, :, np.newaxis] * y[:, np.newaxis, :]


def _diagonal(counts: FloatArray) -> FloatArray:
    return counts[:, :, np.newaxis] * np.eye(counts.shape[1])


def _left_out(tables: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the sum of the tables of topics, and those without each topic.

    Each table is weighted by the judgements of its topic, not by its pairs.
    """
    pairs = tables.sum(axis=(1, 2))
    share = np.divide(weights, pairs, out=np.zeros_like(pairs), where=pairs > 0.0)
    weighted = tables * share[:, np.newaxis, np.newaxis]
    every = weighted.sum(axis=0)
    return np.concatenate([every[np.newaxis], every - weighted])


def _components(correlations: FloatArray) -> FloatArray:
    """Return the estimated components, which add up to 1; some may be negative.

    Parameters
    ----------
    correlations : (5,) of the kinds of pairs, nan where there are none
    """
    one, two, same, by_one, by_two = correlations
    # Pairs with nothing in common are alike because their means are those of the same topics.
    nothing = by_two if np.isfinite(by_two) else by_one
    total = 1.0 - nothing
    a = by_one - nothing if np.isfinite(by_one) and np.isfinite(by_two) else 0.0
    i = two - nothing if np.isfinite(two) else one - nothing - a
    ai = one - nothing - i - a if np.isfinite(two) and np.isfinite(one) else 0.0
    d = same - nothing - i if np.isfinite(same) else total - i - a - ai
    made: FloatArray = np.array([i, a, ai, d, total - i - a - ai - d]) / total
    made[np.abs(made) < _ROUNDING] = 0.0
    return made


def _confounded(missing: Any) -> str:
    """Return a note on confounded components; "" if all are identified."""
    _, two, same, by_one, by_two = map(bool, missing)
    if by_two:
        return (
            "one assessor judged everything: the components of topics and documents include what "
            "is of this assessor; judgements of some of these documents by a second assessor, as "
            "further rows or other qrels, separate them"
        )
    parts = []
    if two:
        parts.append(
            "no topic was judged by two assessors: the component of topics includes how assessors "
            "differ in them"
        )
    if same:
        parts.append(
            "no document was judged by two assessors: the component of documents includes how "
            "assessors differ about them"
        )
    if by_one:
        parts.append(
            "no assessor judged two topics: the component of assessors in topics, or of topics, "
            "includes that of assessors"
        )
    return "; ".join(parts)


# Polychoric correlations: of the normal variables behind pairs of grades -------------------------


def thresholds(shares: FloatArray) -> FloatArray:
    """Return the standard normal thresholds that give the shares of the grades.

    Parameters
    ----------
    shares : (..., m) of the grades, which add up to 1

    Returns
    -------
    numpy.ndarray
        (..., m - 1)

    Examples
    --------
    >>> thresholds(np.array([0.5, 0.4772499, 0.0227501])).round(4).tolist()
    [0.0, 2.0]
    """
    from scipy.special import ndtri

    below = np.cumsum(shares, axis=-1)[..., :-1]
    return np.asarray(np.clip(ndtri(np.minimum(below, 1.0)), -_FARTHEST, _FARTHEST))


def bivariate_normal(h: FloatArray, k: FloatArray, rho: FloatArray) -> FloatArray:
    """Return the probability that two standard normals are below h and k.

    Parameters
    ----------
    h, k : limits
    rho : correlations, between -1 and 1

    Examples
    --------
    >>> float(bivariate_normal(np.zeros(1), np.zeros(1), np.full(1, 0.5))[0])  # 1/4 + asin ρ / 2π
    0.3333333333333333
    """
    from scipy.special import ndtr, owens_t

    h = np.where(h == 0.0, _TINY, h)
    k = np.where(k == 0.0, _TINY, k)
    slope = np.sqrt((1.0 - rho) * (1.0 + rho))
    with np.errstate(over="ignore"):
        parts = owens_t(h, (k / h - rho) / slope) + owens_t(k, (h / k - rho) / slope)
    opposite = np.where(np.sign(h) == np.sign(k), 0.0, 0.5)
    return np.asarray(0.5 * (ndtr(h) + ndtr(k)) - parts - opposite)


def polychoric_correlations(tables: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the correlation with the highest likelihood of each table of pairs of grades.

    Parameters
    ----------
    tables : (n, m, m) weights of pairs, symmetric
    shares : (n, m) of the grades, from which thresholds follow

    Returns
    -------
    numpy.ndarray
        (n,), nan where a table is empty

    Examples
    --------
    >>> third = np.array([[[2.0, 1.0], [1.0, 2.0]]])  # both below with probability 1/3
    >>> polychoric_correlations(third, np.array([[0.5, 0.5]])).round(9).tolist()
    [0.5]
    """
    at = thresholds(shares)
    h, k = np.broadcast_arrays(at[:, :, np.newaxis], at[:, np.newaxis, :])
    low, high = np.full(len(tables), -_HIGHEST), np.full(len(tables), _HIGHEST)
    for _ in range(_HALVINGS):
        rho = 0.5 * (low + high)
        rises = _slope(tables, h, k, rho[:, np.newaxis, np.newaxis]) > 0.0
        low, high = np.where(rises, rho, low), np.where(rises, high, rho)
    found = 0.5 * (low + high)
    return np.where(tables.sum(axis=(1, 2)) > 0.0, found, np.nan)


def _slope(tables: FloatArray, h: FloatArray, k: FloatArray, rho: FloatArray) -> FloatArray:
    """Return a positive multiple of the derivative of the log-likelihood by the correlation."""
    free = (1.0 - rho) * (1.0 + rho)
    density = np.exp(-0.5 * (h * h - 2.0 * rho * h * k + k * k) / free)
    cumulated = bivariate_normal(h, k, rho)
    probability = _rectangles(cumulated, _borders(h, k))
    derivative = _rectangles(density, None)
    return np.asarray((tables * derivative / np.maximum(probability, _TINY)).sum(axis=(1, 2)))


def _borders(h: FloatArray, k: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the marginal cumulative shares of rows and of columns."""
    from scipy.special import ndtr

    return ndtr(h[:, :, 0]), ndtr(k[:, 0, :])


def _rectangles(inner: FloatArray, borders: tuple[FloatArray, FloatArray] | None) -> FloatArray:
    """Difference a function twice over the cells, from its values at the thresholds."""
    n, m = len(inner), inner.shape[1] + 1
    padded = np.zeros((n, m + 1, m + 1))
    padded[:, 1:m, 1:m] = inner
    if borders is not None:
        padded[:, 1:m, m], padded[:, m, 1:m] = borders
        padded[:, m, m] = 1.0
    return np.diff(np.diff(padded, axis=1), axis=2)
