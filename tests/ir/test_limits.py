"""The last size that is allowed, and the first that is not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.exceptions import DataError, PlanError
from vcomp.ir import ScoreMatrix
from vcomp.ir.documents.document_files import listed
from vcomp.ir.measures import get
from vcomp.ir.rank.paired import check_systems
from vcomp.ir.simulate import simulated_effects
from vcomp.ir.simulate.effect_draws import check_scale, effect_margins, level_factors


def judgements(grades, topics=4, documents=12):
    """Return judgements with so many grades by two assessors who agree."""
    t, d, a = (x.ravel() for x in np.indices((topics, documents, 2)))
    rng = np.random.default_rng(3)
    of_document = rng.permutation(np.arange(topics * documents) % grades)
    grade = of_document.reshape(topics, documents)[t, d]
    return pd.DataFrame({"topic": t, "document": d, "assessor": a, "relevant": grade})


@pytest.mark.parametrize(("grades", "allowed"), [(1, False), (2, True), (10, True), (11, False)])
def test_grades_of_relevance(grades, allowed):
    table = judgements(grades)
    if allowed:
        assert len(vcomp.ir.fit_relevance(table).cuts) == grades - 1
    else:
        with pytest.raises(DataError, match="relevance has 2 to 10 grades"):
            vcomp.ir.fit_relevance(table)


@pytest.mark.parametrize(("topics", "allowed"), [(2, False), (3, True)])
def test_topics_of_relevance(topics, allowed):
    table = judgements(2, topics)
    if allowed:
        vcomp.ir.fit_relevance(table)
    else:
        with pytest.raises(DataError, match="judgements are of 2 topics"):
            vcomp.ir.fit_relevance(table)


def test_two_documents_of_a_topic_are_needed():
    with pytest.raises(DataError, match="no topic has two documents"):
        vcomp.ir.fit_relevance(judgements(2, 5, 1))
    assert len(vcomp.ir.fit_relevance(judgements(2, 10, 2)).cuts) == 1


@pytest.mark.parametrize(("topics", "allowed"), [(2, False), (3, True)])
def test_a_jackknife_leaves_topics_that_can_be_tested(topics, allowed):
    X = np.random.default_rng(1).normal(size=(topics, 12)) + np.arange(12.0) / 2.0
    ends = get("power_ratio", alpha=0.3).interval_of_matrix(
        ScoreMatrix(X, tuple("abc"[:topics]), tuple("abcdefghijkl")), np.array([3.0, 6.0]), 0.05
    )
    assert (np.isfinite(ends) == allowed).all()


@pytest.mark.parametrize(("k", "allowed"), [(1, False), (2, True), (5_000, True), (5_001, False)])
def test_systems_that_can_be_paired(k, allowed):
    if allowed:
        check_systems(k)
    else:
        words = "at least two" if k < 2 else "5,001 systems make 12,502,500 pairs"
        with pytest.raises(DataError, match=words):
            check_systems(k)


@pytest.mark.parametrize(("size", "allowed"), [(1e150, True), (1.1e150, False), (np.inf, False)])
def test_scores_that_can_be_squared(size, allowed):
    scores = [[0.1, 0.2], [-size, 0.3]]
    if allowed:
        assert vcomp.ir.as_score_matrix(scores).scores[1, 0] == -size
    else:
        words = "infinite" if np.isinf(size) else "too large to be squared"
        with pytest.raises(DataError, match=f"system '0' on topic '1' is {words}|{words}"):
            vcomp.ir.as_score_matrix(scores)


def test_labels_in_a_message():
    for n in range(1, 9):
        shown = listed(pd.Index([f"t{k}" for k in range(n)])).split(", ")
        names = [f"'t{k}'" for k in range(n)]
        assert shown == names or (shown == [*names[: len(shown) - 1], "…"] and len(shown) - 1 < n)
    few = [listed(pd.Index(list("abcdefgh"[:n]))).endswith("…") for n in range(1, 9)]
    assert few == sorted(few)
    assert few[0] is False
    assert few[-1] is True


def test_listed_sensitivity_has_a_largest_number_of_systems():
    measure = get("sens_abs", ties="listed")
    means = np.linspace(0.0, 1.0, 8_193)
    assert measure.actual_of_means(means[:5], means[:5]).shape == ()
    with pytest.raises(PlanError, match="8,192 systems at most; there are 8,193"):
        measure.actual_of_means(means, means)


# Simulated effects ----------------------------------------------------------------------------


@pytest.mark.parametrize("excess", [0.5, 2.0])
def test_correlation_matrices_may_be_off_by_rounding(excess):
    """By 1e-8: asymmetric, off one in the diagonal, or not positive semidefinite."""
    off = 1e-8
    R = np.array([[1.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.0]])
    wrong = []
    for place in ((0, 1), (2, 2)):
        wrong.append(R.copy())
        wrong[-1][place] += excess * off
    k = 3
    wrong.append(np.full((k, k), -0.5 - excess * off / 2) + (1.5 + excess * off / 2) * np.eye(k))
    for given in wrong:
        if excess < 1.0:
            L = level_factors({"s": given}, {"s": 3})["s"]
            np.testing.assert_allclose(L @ L.T, given, atol=1e-4)
        else:
            with pytest.raises(PlanError, match="positive semidefinite 3 × 3"):
                level_factors({"s": given}, {"s": 3})


def test_correlations_by_one_number():
    L = level_factors({"s": 0.4}, {"s": 4, "t": 2})["s"]
    np.testing.assert_allclose(L @ L.T, np.full((4, 4), 0.4) + 0.6 * np.eye(4), atol=1e-12)
    for bad in (np.eye(3), np.full((4, 4), np.nan), -0.4, 1.1):
        with pytest.raises(PlanError, match="correlations of 's'"):
            level_factors({"s": bad}, {"s": 4})
    with pytest.raises(PlanError, match="names 'x'"):
        level_factors({"x": 0.1}, {"s": 4})


def test_scales_of_scores():
    assert check_scale(0.5, (0, 1), None) == ((0.0, 1.0), None)
    for bounds in ((0.5, 1), (0, 0.5), (0, 1, 2), (0, np.inf), (1, 0)):
        with pytest.raises(PlanError, match="bounds="):
            check_scale(0.5, bounds, None)
    np.testing.assert_array_equal(check_scale(0.0, None, [0.25, 0.75])[1], [0.25, 0.75])
    for grades in ([1.0], [0.0, 1.0], [0.5, 0.6], [[0.5, 0.5]], [-0.5, 1.5]):
        with pytest.raises(PlanError, match="grades="):
            check_scale(0.0, None, grades)
    with pytest.raises(PlanError, match="two scales"):
        check_scale(0.5, (0, 1), [0.5, 0.5])


@pytest.mark.parametrize(("n", "enough"), [(4, False), (5, True)])
def test_observed_effects_that_make_a_margin(n, enough):
    effects = np.linspace(-1.0, 2.0, n)
    if enough:
        margin = effect_margins({"s": effects}, ("s", "t"))["s"]
        assert np.ptp(margin.quantiles) > 1.0
    else:
        with pytest.raises(PlanError, match="5 or more observed effects that differ"):
            effect_margins({"s": effects}, ("s", "t"))
    for bad in (np.ones(20), np.full(20, np.nan), np.ones((20, 2)), "x"):
        with pytest.raises(PlanError, match="the margin of 's'"):
            effect_margins({"s": bad}, ("s",))


def test_scores_that_are_too_many():
    most = simulated_effects._MOST_ROWS
    with pytest.raises(PlanError, match="are more than"):
        simulated_effects._check_memory(most * 1.001, 2)
    with pytest.raises(PlanError) as refused:
        simulated_effects._check_memory(float(most), 10**6)  # allowed, but not in this memory
    assert "are more than" not in str(refused.value)
