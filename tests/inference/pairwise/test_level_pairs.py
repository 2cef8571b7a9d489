"""The table of compared pairs."""

from __future__ import annotations

import numpy as np

from vcomp.inference.pairwise.level_pairs import pairs_table


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
