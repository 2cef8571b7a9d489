"""Compare systems in pairs: selection of test, pairs and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import DataError, PlanError, check_alpha, check_one_of, did_you_mean, guarded
from vcomp.inference.pairwise import (
    CORRECTIONS,
    CorrectionName,
    Pairs,
    PairwiseComparisons,
    pairs_table,
    pairs_with_baseline,
)
from vcomp.ir.pair_tests import (
    ZEROS,
    Alternative,
    Outcome,
    PairOptions,
    Zeros,
    bootstrap_tests,
    mean_differences,
    permutation_tests,
    randomised_tukey_tests,
    sign_tests,
    t_tests,
    tukey_tests,
    wilcoxon_tests,
)
from vcomp.ir.scores import ScoreMatrix, ScoresLike, as_score_matrix, complete
from vcomp.ir.significance import pairs_of
from vcomp.numerics import check_count, seed_from

SystemTest: TypeAlias = Literal[
    "t", "wilcoxon", "sign", "permutation", "bootstrap", "tukey", "randomised_tukey"
]

_REPLICATES, _MOST_REPLICATES = 10_000, 200_000
_BELOW = 10.0
"""Default replicates let the smallest adjusted p-value be α divided by this."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A test: its function, name and symbol, and its kind."""

    run: Callable[[FloatArray, Pairs, PairOptions], Outcome]
    words: str
    symbol: str
    is_of_all: bool = False
    is_resampled: bool = False


TESTS: Mapping[str, _Kind] = {
    "t": _Kind(t_tests, "paired t-test", "t"),
    "wilcoxon": _Kind(wilcoxon_tests, "Wilcoxon signed-rank test", "W+"),
    "sign": _Kind(sign_tests, "sign test", "positive"),
    "permutation": _Kind(permutation_tests, "permutation test", "difference", is_resampled=True),
    "bootstrap": _Kind(bootstrap_tests, "bootstrap-shift test", "difference", is_resampled=True),
    "tukey": _Kind(tukey_tests, "Tukey's HSD in the two-way layout", "q", is_of_all=True),
    "randomised_tukey": _Kind(
        randomised_tukey_tests, "randomised Tukey HSD", "difference", True, True
    ),
}


@guarded
def compare_systems(
    scores: ScoresLike,
    test: SystemTest = "t",
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
    systems: Iterable[object] | None = None,
    baseline: object | None = None,
    correction: CorrectionName | None = None,
    alternative: Alternative = "two-sided",
    zeros: Zeros | None = None,
    alpha: float = 0.05,
    n: int | None = None,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> PairwiseComparisons:
    """Test the differences between systems on the same topics, in pairs.

    A bare matrix has **one row per topic and one column per system**. Tests are those of
    Urbano (2016, sec. 8) and Urbano, Lima and Hanjalic (2019):

    * ``"t"``: Student's paired t-test;
    * ``"wilcoxon"``: signed ranks, exact up to 50 topics, also with ties;
    * ``"sign"``: the number of topics on which a system is better, exact;
    * ``"permutation"``: random signs of the differences of each topic; all signs if these are no
      more than `n`;
    * ``"bootstrap"``: topics drawn with replacement, shifted to the null hypothesis;
    * ``"tukey"``: Tukey's honestly significant differences, with the interaction of systems and
      topics as error;
    * ``"randomised_tukey"``: the scores of each topic are shuffled (Carterette, 2012).

    Tukey's tests are of all pairs at once: their p-values need no correction. Wilcoxon's test and
    the sign test are of the distribution of the differences, not of their mean.

    Parameters
    ----------
    scores : long table with its columns named, :class:`ScoreMatrix`, or topic × system matrix
    test : one of the above
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`
    systems : names of those to compare; all by default. Their order is that of the pairs
    baseline : a system with which each other is compared, in place of all pairs
    correction : for the number of pairs: ``"holm"`` (the default), ``"bonferroni"``, ``"fdr_bh"``
        (Benjamini and Hochberg), ``"fdr_by"`` (Benjamini and Yekutieli) or ``"none"``; not given
        for Tukey's tests
    alternative : ``"two-sided"``; ``"greater"``: the first of two systems (not the baseline) has
        the larger mean; ``"less"``
    zeros : Wilcoxon's treatment of differences of zero: ``"pratt"`` (the default) ranks them and
        leaves out their ranks, ``"wilcox"`` leaves them out before ranking, ``"zsplit"`` gives
        half of their ranks to either side
    alpha : level of significance; intervals have confidence 1 − alpha
    n : number of replicates of resampling tests. By default 10,000, or as many as p-values
        adjusted for all pairs need to be small enough, up to 200,000; the result says how many
    rng : seed of resampling tests, or a generator that one is drawn from once; 0 if not given
    workers : threads; the numbers are the same for any number of them
    progress : whether to show a bar; None for one where stderr is a terminal

    Returns
    -------
    PairwiseComparisons
        Prints as a table. `table` has a row for each pair with its difference (first − second, on
        the topics that both have), p-value, and adjusted p-value; `groups` the systems that
        cannot be distinguished. Intervals are those of ``"t"`` and ``"bootstrap"`` (each pair
        separately) and of Tukey's tests (all pairs at once).

    Raises
    ------
    DataError
        If the scores cannot be read, a system is not there, two systems have fewer than two topics
        in common, or a score is missing and the test is one of Tukey's.
    PlanError
        If an option is not one of the above, or is given to a test that has no use for it.
    EstimationError
        If `n` or `workers` is not a whole number of at least 1, or `rng` is neither a seed nor a
        generator.

    Notes
    -----
    Where scores are missing, a pair is compared on the topics that both systems have. Differences
    within rounding error of zero, or of each other, are zero, or tied. A difference that is the
    same on all topics has no error variance: it is significant by the t-test at any level, and the
    result says so. What each test needs and gets wrong, by simulation, is in
    docs/explanation/system-tests.md.

    References
    ----------
    Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
    statistical assumptions. *Information Retrieval Journal*, 19, 313-350.

    Urbano, J., Lima, H. and Hanjalic, A. (2019). Statistical significance testing in information
    retrieval: an empirical analysis of type I, type II and type III errors. *Proc. ACM SIGIR*,
    505-514.

    Carterette, B. (2012). Multiple testing in statistical analysis of systems-based information
    retrieval experiments. *ACM Transactions on Information Systems*, 30(1), 4.

    Smucker, M. D., Allan, J. and Carterette, B. (2007). A comparison of statistical significance
    tests for information retrieval evaluation. *Proc. ACM CIKM*, 623-632.

    Pratt, J. W. (1959). Remarks on zeros and ties in the Wilcoxon signed rank procedures. *Journal
    of the American Statistical Association*, 54, 655-667.

    Examples
    --------
    >>> scores = {"bm25": [0.2, 0.5, 0.1, 0.4, 0.3], "rm3": [0.3, 0.6, 0.3, 0.4, 0.5],
    ...           "ql": [0.2, 0.4, 0.1, 0.3, 0.4]}
    >>> import pandas as pd
    >>> compared = compare_systems(pd.DataFrame(scores), "t")
    >>> compared.table[["first", "second", "difference", "p_value", "p_adjusted"]].round(3)
      first second  difference  p_value  p_adjusted
    0  bm25    rm3       -0.12    0.033       0.065
    1  bm25     ql        0.02    0.621       0.621
    2   rm3     ql        0.14    0.005       0.014
    """
    _check_options(test, correction, alternative, zeros, n, baseline)
    check_alpha(alpha)
    matrix = as_score_matrix(scores, system=system, topic=topic, score=score)
    if systems is not None:
        matrix = matrix.select(systems=systems)
    pairs = pairs_of(matrix.n_systems) if baseline is None else _with_baseline(matrix, baseline)
    kind = TESTS[test]
    family = None if kind.is_of_all else correction or "holm"
    how = PairOptions(
        alternative=alternative,
        alpha=alpha,
        zeros="pratt" if zeros is None else zeros,
        n=_enough(pairs[0].size, family, alpha) if n is None else check_count(n, "n"),
        seed=seed_from(rng),
        workers=check_count(workers, "workers"),
        progress=progress,
    )
    if kind.is_of_all:
        complete(matrix, f"test={test!r} needs every system on every topic")
    outcome, differences, n_topics = _on_common_topics(matrix, pairs, kind, how)
    found = {
        "difference": differences,
        "statistic": outcome.statistic,
        "p_value": outcome.p_values,
        "low": outcome.low,
        "high": outcome.high,
    }
    table = pairs_table(matrix.systems, pairs, {"n_topics": n_topics}, found, family, alpha)
    return PairwiseComparisons(
        table=table,
        means=_means(matrix),
        facet=matrix.facets[0],
        observed=matrix.facets[1],
        test=kind.words if alternative == "two-sided" else f"{kind.words}, {alternative}",
        symbol=kind.symbol,
        correction=family,
        alpha=alpha,
        notes=tuple(_notes(test, how, outcome, differences, n_topics, matrix, family)),
    )


def outcome_of(
    X: FloatArray, test: SystemTest, how: PairOptions, pairs: Pairs | None = None
) -> Outcome:
    """Return the tests of pairs of systems, unchecked: for loops.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing; at least two of each
    test : of :func:`compare_systems`
    how : options
    pairs : the systems i and j of each pair; all pairs if None
    """
    return TESTS[test].run(X, pairs_of(X.shape[1]) if pairs is None else pairs, how)


def _check_options(
    test: object,
    correction: object,
    alternative: object,
    zeros: object,
    n: object,
    baseline: object,
) -> None:
    """Refuse options that are unknown, or do not apply to the test."""
    check_one_of("test", test, tuple(TESTS))
    kind = TESTS[str(test)]
    check_one_of("alternative", alternative, ("two-sided", "greater", "less"))
    if correction is not None:
        check_one_of("correction", correction, CORRECTIONS)
    if zeros is not None:
        check_one_of("zeros", zeros, tuple(ZEROS))
        if test != "wilcoxon":
            raise PlanError(f"zeros= is an option of test='wilcoxon'; test={test!r} has none")
    if n is not None and not kind.is_resampled:
        resampling = ", ".join(repr(name) for name, k in TESTS.items() if k.is_resampled)
        raise PlanError(
            f"n= is the number of replicates of resampling tests ({resampling}); test={test!r} "
            "has none"
        )
    if not kind.is_of_all:
        return
    if correction is not None:
        raise PlanError(f"test={test!r} is of all pairs at once: its p-values need no correction=")
    if alternative != "two-sided":
        raise PlanError(f"test={test!r} is two-sided; for one-sided tests use test='t'")
    if baseline is not None:
        raise PlanError(
            f"test={test!r} is of all pairs; with a baseline use another test, such as test='t', "
            "and a correction"
        )


def _times(m: int, correction: CorrectionName | None) -> int:
    """Return the largest factor that the correction applies to the smallest of m p-values."""
    return m if correction in ("bonferroni", "holm") else 1


def _enough(m: int, correction: CorrectionName | None, alpha: float) -> int:
    needed = int(np.ceil(_BELOW * _times(m, correction) / alpha))
    return min(max(_REPLICATES, needed), _MOST_REPLICATES)


def _with_baseline(matrix: ScoreMatrix, baseline: object) -> Pairs:
    """Return pairs of every other system (first) with the baseline (second)."""
    name = str(baseline)
    if name not in matrix.systems:
        raise DataError(
            f"there is no system {name!r}{did_you_mean(name, matrix.systems)}", level=name
        )
    return pairs_with_baseline(matrix.n_systems, matrix.systems.index(name))


def _on_common_topics(
    matrix: ScoreMatrix, pairs: Pairs, kind: _Kind, how: PairOptions
) -> tuple[Outcome, FloatArray, LongArray]:
    """Test each pair on its common topics; return outcome, differences and numbers of topics."""
    m = pairs[0].size
    differences, n_topics = np.empty(m), np.empty(m, dtype=np.int64)
    outcomes: list[tuple[LongArray, Outcome]] = []
    for topics, of in _families(matrix, pairs):
        used, places = np.unique(np.concatenate([pairs[0][of], pairs[1][of]]), return_inverse=True)
        X = matrix.scores[np.ix_(topics, used)]
        i, j = np.split(places, 2)
        differences[of], n_topics[of] = mean_differences(X, (i, j)), topics.size
        outcomes.append((of, kind.run(X, (i, j), how)))
    if len(outcomes) == 1:
        return outcomes[0][1], differences, n_topics
    joined = {}
    for field in fields(Outcome):
        values = np.empty(m, dtype=getattr(outcomes[0][1], field.name).dtype)
        for of, outcome in outcomes:
            values[of] = getattr(outcome, field.name)
        joined[field.name] = values
    return Outcome(**joined), differences, n_topics


def _families(matrix: ScoreMatrix, pairs: Pairs) -> Iterator[tuple[LongArray, LongArray]]:
    """Yield sets of at least two topics with the pairs that have exactly these in common."""
    present = ~np.isnan(matrix.scores)
    if present.all():
        yield np.arange(matrix.n_topics), np.arange(pairs[0].size)
        return
    common = present[:, pairs[0]] & present[:, pairs[1]]
    few = np.flatnonzero(common.sum(axis=0) < 2)
    if few.size:
        one, other = (matrix.systems[of[few[0]]] for of in pairs)
        more = f", and so have {few.size - 1:,} more pairs" if few.size > 1 else ""
        system, topic = map(display.levels_of, matrix.facets)
        raise DataError(
            f"{system} {one!r} and {other!r} have fewer than two {topic} in common{more}; leave "
            f"{system} with few scores out with systems=[…]",
            level=one,
        )
    _, family = np.unique(np.packbits(common, axis=0).T, axis=0, return_inverse=True)
    order = np.argsort(family.ravel(), kind="stable")
    for of in np.split(order, np.flatnonzero(np.diff(family.ravel()[order])) + 1):
        yield np.flatnonzero(common[:, of[0]]), of


def _means(matrix: ScoreMatrix) -> Any:
    import pandas as pd

    index = pd.Index(matrix.systems, name=matrix.facets[0], dtype=object)
    return pd.Series(np.nanmean(matrix.scores, axis=0), index=index, name="mean")


# Notes -------------------------------------------------------------------------------------------

_ZEROS = {
    "pratt": "Differences of zero are ranked, and their ranks left out (Pratt)",
    "wilcox": "Differences of zero are left out before ranking",
    "zsplit": "Half of the ranks of differences of zero are given to either side",
}


def _notes(
    test: str,
    how: PairOptions,
    outcome: Outcome,
    differences: FloatArray,
    n_topics: LongArray,
    matrix: ScoreMatrix,
    correction: CorrectionName | None,
) -> Iterator[str]:
    """Yield notes on the test, its replicates and its limits."""
    topics = display.levels_of(matrix.facets[1])
    if np.isnan(matrix.scores).any():
        least, most = display.count(int(n_topics.min())), display.count(int(n_topics.max()))
        counts = least if least == most else f"{least} to {most}"
        yield (
            f"Scores are missing: pairs are compared on the {topics} that both have ({counts} of "
            f"{display.count(matrix.n_topics)})."
        )
    yield from _on_test(test, how, outcome, topics, several=differences.size > 1)
    endless = np.isinf(outcome.statistic)
    if endless.any():
        yield (
            f"{display.count(int(endless.sum()))} of {display.count(differences.size)} "
            f"differences are the same on all {topics} and have no error variance: look at these "
            "scores."
        )
    yield from _on_resolution(test, how, outcome, correction, topics)


def _on_test(
    test: str, how: PairOptions, outcome: Outcome, topics: str = "topics", *, several: bool
) -> Iterator[str]:
    """Yield notes on the computation of p-values and intervals."""
    n = display.count(how.n)
    each = "each pair separately" if several else "of the mean difference"
    if test == "t":
        yield f"Intervals: t, {each}."
    elif test == "wilcoxon":
        exact = int(outcome.is_exact.sum())
        methods = {0: "normal approximation", outcome.is_exact.size: "exact, given ties"}
        words = methods.get(
            exact, f"exact for {display.count(exact)} pairs, else a normal approximation"
        )
        yield f"{_ZEROS[how.zeros]}; p: {words}."
    elif test == "sign":
        yield "Differences of zero do not count; p is exact."
    elif test == "permutation":
        exact = bool(outcome.is_exact.all())
        yield "p is exact: all signs." if exact else f"p: {n} replicates (random signs)."
    elif test == "bootstrap":
        yield f"p and intervals ({each}): {n} replicates ({topics} drawn with replacement)."
    elif test == "tukey":
        yield "Intervals: of all pairs at once, with equal error variances of all pairs."
    else:
        yield f"p and intervals (of all pairs at once): {n} replicates (scores shuffled)."


def _on_resolution(
    test: str,
    how: PairOptions,
    outcome: Outcome,
    correction: CorrectionName | None,
    topics: str = "topics",
) -> Iterator[str]:
    """Yield a warning if no p-value of the test can be significant."""
    times = _times(outcome.p_values.size, correction)
    least = float(outcome.smallest.min())
    if display.snapped(least * times, how.alpha) <= how.alpha:
        return
    what = f"No p-value can be below {display.number(least, 3)}"
    if times > 1:
        what += f", {display.number(min(least * times, 1.0), 3)} adjusted"
    if TESTS[test].is_resampled and not outcome.is_exact.any():
        need = int(np.ceil(times / how.alpha))
        yield f"{what}: nothing can be significant; use at least n={need} replicates."
    else:
        yield f"{what}: with so few {topics} nothing can be significant."
