"""The study of tests between systems: what it counts, and that its page has its numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.system_tests.page import _PAGE, page, rates
from benchmarks.system_tests.run import KEPT
from benchmarks.system_tests.study import COUNTS, _counted


def test_what_is_counted():
    true = np.array([0.0, 0.0, 0.2, -0.1, 0.3])
    observed = np.array([1.0, -1.0, 1.0, 1.0, 1.0])
    rejected = np.array([True, False, True, True, False])
    counted = dict(zip(COUNTS, _counted(rejected, observed, true), strict=True))
    assert counted == {
        "nulls": 2, "false": 1, "false_squared": 0.25, "any_false": 1,
        "false_share": pytest.approx(1 / 3), "found": 1, "wrong_sign": 1,
    }  # fmt: skip
    nothing = _counted(np.zeros(5, dtype=bool), observed, true)
    assert nothing.tolist() == [2, 0, 0, 0, 0, 0, 0]
    assert _counted(rejected[2:], observed[2:], true[2:]).tolist() == [0, 0, 0, 0, 0, 1, 1]


def test_rates_and_their_error():
    row = {"test": "t", "trials": 4, "nulls": 4 * 45, "false": 9, "false_squared": 4 * 0.05**2,
           "any_false": 2, "false_share": 0.4, "found": 290, "wrong_sign": 29}  # fmt: skip
    made = rates(pd.DataFrame([row]), ["test"]).iloc[0]
    assert made["type_1"] == pytest.approx(5.0)
    assert made["error"] == pytest.approx(0.0, abs=1e-6)
    assert made["family"] == 50.0
    assert made["fdr"] == pytest.approx(10.0)
    assert made["power"] == pytest.approx(100 * 290 / (4 * 145))
    assert made["wrong_sign"] == pytest.approx(5.0)


def test_the_page_is_that_of_the_kept_rows():
    assert _PAGE.read_text(encoding="utf-8") == page(pd.read_csv(KEPT))
