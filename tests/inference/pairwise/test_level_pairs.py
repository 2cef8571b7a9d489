"""Adjusted p-values against statsmodels, what they promise, and the table of compared pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from tests.helpers.examples import examples
from vcomp.exceptions import DataError, PlanError
from vcomp.inference.pairwise import CORRECTIONS, adjusted, pairs_table

P_VALUES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30)


@settings(max_examples=examples(30))
@given(P_VALUES, st.sampled_from(["bonferroni", "holm", "fdr_bh", "fdr_by"]))
def test_as_multipletests(p, correction):
    made = adjusted(np.array(p), correction)
    np.testing.assert_allclose(made, multipletests(p, method=correction)[1], rtol=1e-13)


@given(P_VALUES)
def test_none_is_a_copy_and_all_others_are_at_least_as_large(p):
    values = np.array(p)
    assert adjusted(values, "none").tolist() == p
    assert adjusted(values, "none") is not values
    holm, bonferroni, bh = (adjusted(values, c) for c in ("holm", "bonferroni", "fdr_bh"))
    assert (values <= bh * (1 + 1e-12)).all()
    assert (bh <= holm * (1 + 1e-12)).all()
    assert (holm <= bonferroni).all()


def test_p_values_of_0_and_1_are_some():
    for correction in CORRECTIONS:
        assert adjusted(np.array([0.0, 1.0]), correction).tolist() == [0.0, 1.0]


def test_tied_p_values_stay_tied():
    for correction in CORRECTIONS:
        made = adjusted(np.array([0.02, 0.3, 0.02, 0.02]), correction)
        assert len(set(made[[0, 2, 3]])) == 1


@pytest.mark.parametrize("p", [[0.1, np.nan], [-0.1], [1.1]])
def test_what_is_no_p_value_is_refused(p):
    with pytest.raises(DataError, match="between 0 and 1, and none may be missing"):
        adjusted(np.array(p), "holm")


def test_an_unknown_correction_is_refused():
    with pytest.raises(PlanError, match=r"or 'fdr_by', not 'Holm' \(did you mean 'holm'\?\)"):
        adjusted(np.array([0.1]), "Holm")


def test_a_p_value_of_alpha_is_significant():
    """The level of significance is the largest p-value that is significant, up to rounding."""
    pairs = np.array([0, 0, 1]), np.array([1, 2, 2])
    p = np.array([np.nextafter(0.05, 1.0), 0.05 * (1.0 + 1e-9), 0.01])
    names = ("difference", "statistic", "low", "high")
    tests = dict.fromkeys(names, np.zeros(3)) | {"p_value": p}
    found = pairs_table("abc", pairs, {}, tests, None, 0.05)
    assert found["significant"].tolist() == [True, False, True]
    assert found["first"].tolist() == ["a", "a", "b"]
    assert found["second"].tolist() == ["b", "c", "c"]
