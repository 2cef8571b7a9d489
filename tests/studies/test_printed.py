"""Printed reliabilities, halves and intraclass correlations beside their tables."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.ctt_scores import QUESTIONS, WINES
from tests.helpers.printed_tables import printed_columns, printed_words
from vcomp.ctt import icc, reliability, split_half_reliability

MEDIAN = np.median(QUESTIONS)
BINARY = (QUESTIONS > MEDIAN).astype(int)


def interval(low, high):
    return "" if np.isnan(low) else f"[{low:.3f}, {high:.3f}]"


@pytest.mark.parametrize("scores", [QUESTIONS, BINARY], ids=["points", "right or wrong"])
def test_reliability(scores):
    found = reliability(scores, alpha=0.1)
    printed, table = printed_columns(found.summary()), found.table
    shown = table[table["estimate"].notna()]
    n = len(shown)
    assert printed["estimate"][:n] == [f"{x:.3f}" for x in shown["estimate"]]
    assert printed["90 % interval"] == [
        *(interval(low, high) for low, high in zip(shown["low"], shown["high"], strict=True)),
        "", "",
    ]  # fmt: skip
    totals = np.asarray(scores, dtype=float).sum(axis=1)
    sem = totals.std(ddof=1) * np.sqrt(1.0 - found.cronbach_alpha)
    assert float(printed["estimate"][n]) == pytest.approx(sem, rel=1e-3)
    assert float(printed["estimate"][n + 1]) == pytest.approx(sem / scores.shape[1], rel=1e-3)
    assert ("KR20" in shown.index) == (scores is BINARY)
    if scores is BINARY:
        rows = table.loc[["alpha", "KR20"], ["estimate", "low", "high"]].to_numpy()
        np.testing.assert_allclose(rows[0], rows[1], rtol=1e-12)
    words = printed_words(found.summary())
    missing = table[table["estimate"].isna()]
    for name, why in missing["reason"].items():
        assert (why in words) == (name not in ("KR20", "KR21"))


@pytest.mark.parametrize("items", [5, 6])
def test_halves(items):
    found = split_half_reliability(QUESTIONS[:, :items], "all")
    table, printed = found.table, printed_columns(found.summary())
    odd = items % 2 == 1
    names = [n for n in found.mean.index if odd or n not in ("horst", "raju")]
    assert len(printed[""]) == len(names)
    for k, name in enumerate(names):
        column = table[name]
        assert printed["mean"][k] == f"{column.mean():.3f}"
        for header, share in (
            ("least", 0.0), ("5 %", 0.05), ("median", 0.5), ("95 %", 0.95), ("largest", 1.0),
        ):  # fmt: skip
            assert printed[header][k] == f"{np.quantile(column, share):.3f}"
    words = printed_words(found.summary())
    assert f"Cronbach's α of the same scores: {found.cronbach_alpha:.3f}" in words
    assert ("Raju's coefficient over all splits" in words) == odd
    key = "raju" if odd else "flanagan_rulon"
    assert table[key].mean() == pytest.approx(found.cronbach_alpha, rel=1e-9)
    one = split_half_reliability(QUESTIONS[:, :items], "odd-even")
    printed = printed_columns(one.summary())
    assert printed["estimate"] == [f"{one.table[n].iloc[0]:.3f}" for n in names]


@pytest.mark.parametrize("r0", [0.0, 0.3])
def test_intraclass_correlations(r0):
    found = icc(WINES, alpha=0.2, r0=r0)
    table, printed = found.table, printed_columns(found.summary())
    assert printed[""] == list(table.index)
    assert printed[" #2"] == list(table["mcgraw_wong"])
    assert printed["estimate"] == [f"{x:.3f}" for x in table["estimate"]]
    ends = zip(table["low"], table["high"], strict=True)
    assert printed["80 % interval"] == [interval(*pair) for pair in ends]
    for cell, F in zip(printed["F"], table["F"], strict=True):
        assert float(cell) == pytest.approx(F, rel=1e-3)
    for cell, p in zip(printed["p"], table["p_value"], strict=True):
        assert float(cell) == pytest.approx(p, rel=6e-3, abs=1e-12)
    assert printed["D-study"] == list(table["dstudy"])
    assert f"F tests whether a coefficient is above {r0:g}." in printed_words(found.summary())
