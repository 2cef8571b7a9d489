"""Cronbach's alpha: a published example, its identity with Eρ², and its errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from vcomp.exceptions import DataError
from vcomp.studies.alpha_coefficients import cronbach_alpha

# Bodoff and Li (2007), figure 2, p. 369: five algorithms on three queries
FIGURE_2 = np.array(
    [[0.7, 0.5, 0.6], [0.8, 0.6, 0.76], [0.94, 0.82, 0.89], [0.75, 0.7, 0.5], [0.75, 0.8, 0.75]]
)


def erho2(scores):
    """Return Eρ² of the p × i design from the mean squares of a two-way table."""
    n_p, n_i = scores.shape
    grand = scores.mean()
    person, item = scores.mean(axis=1) - grand, scores.mean(axis=0) - grand
    residual = scores - grand - person[:, None] - item
    ms_p = n_i * (person**2).sum() / (n_p - 1)
    ms_pi = (residual**2).sum() / ((n_p - 1) * (n_i - 1))
    return (ms_p - ms_pi) / ms_p


@pytest.mark.parametrize("read", [np.asarray, np.ndarray.tolist, pd.DataFrame])
def test_published_example(read):
    # the paper's .80942 comes from variances rounded to five decimals
    assert cronbach_alpha(read(FIGURE_2)) == pytest.approx(0.80942, abs=1e-4)
    assert cronbach_alpha(read(FIGURE_2)) == pytest.approx(erho2(FIGURE_2), rel=1e-12)


@given(arrays(int, array_shapes(min_dims=2, max_dims=2, min_side=2), elements=st.integers(0, 9)))
def test_alpha_is_erho2_of_persons_by_items(scores):
    assume(np.ptp(scores.sum(axis=1)) > 0)
    assert cronbach_alpha(scores) == pytest.approx(erho2(scores), rel=1e-9, abs=1e-9)


@given(st.permutations(range(5)), st.permutations(range(3)), st.floats(1e-3, 1e3))
def test_order_and_scale_do_not_matter(rows, items, scale):
    changed = scale * FIGURE_2[np.ix_(rows, items)]
    assert cronbach_alpha(changed) == pytest.approx(cronbach_alpha(FIGURE_2), rel=1e-12)


def test_origin_and_item_difficulty_do_not_matter():
    moved = FIGURE_2 + 1e6 + np.array([0.0, 3.0, -20.0])
    assert cronbach_alpha(moved) == pytest.approx(cronbach_alpha(FIGURE_2), abs=1e-8)


def test_rows_are_the_objects():
    assert cronbach_alpha(FIGURE_2.T) != pytest.approx(cronbach_alpha(FIGURE_2), abs=1e-2)


def test_trec_systems_are_measured_by_topics(reference, shared_data):
    values = reference("irj2015_adhoc3")["values"]
    topic_by_system = pd.read_csv(shared_data("adhoc3.csv"))
    at_50 = values["Erho2"][values["n_prime"].index(50)]
    assert cronbach_alpha(topic_by_system.T) == pytest.approx(at_50, rel=1e-10)


def test_nullable_frames():
    assert cronbach_alpha(pd.DataFrame(FIGURE_2).astype("Float64")) == cronbach_alpha(FIGURE_2)


HOLED = FIGURE_2.copy()
HOLED[[0, 3], [1, 2]] = np.nan


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (HOLED, "2 of 15 cells are missing"),
        (pd.DataFrame(HOLED).astype("Float64"), "2 of 15 cells are missing"),
        (FIGURE_2[:1], "there are 1 × 3"),
        (FIGURE_2[:, :1], "there are 5 × 1"),
        (FIGURE_2[0], r"1 dimension\(s\)"),
        (np.full((3, 2), np.inf), "infinite"),
        ([[0.1, 0.2], [0.2, 0.1]], "same total"),
        ([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.1, 0.3]], "same total"),
        (np.full((4, 3), 0.1), "same total"),
        (np.zeros((4, 3)), "same total"),
        (pd.DataFrame({"person": ["a", "b"], "x": [1, 2], "y": [3, 5]}), "column 'person'"),
        ([["1", "2"], ["3", "4"]], "they are str"),
        ([[1, 2], [3]], "matrix of numbers"),
    ],
)
def test_unfit_scores_are_refused(scores, message):
    with pytest.raises(DataError, match=message):
        cronbach_alpha(scores)
