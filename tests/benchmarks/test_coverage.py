"""Intervals contain the truth as often as they say: a small study, and the rows of the whole."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import vcomp
from benchmarks.coverage import methods
from benchmarks.coverage.cells import CELLS, Plan, cells_by_name
from benchmarks.coverage.populations import draw_scores
from benchmarks.coverage.prepared import Prepared
from benchmarks.coverage.results import is_claimed, read_rows, violations, write_rows
from benchmarks.coverage.study import run_cell

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "coverage" / "results.csv"


def prepared(name, distribution="normal", seed=3):
    (cell,) = cells_by_name((name,))
    return Prepared(cell, distribution, seed)


@pytest.fixture(scope="module")
def rows():
    return read_rows(RESULTS)


@pytest.fixture(scope="module")
def of_six():
    """Return the rows of 100 data sets of six systems."""
    return run_cell(prepared("s6xt50"), Plan(local=100))


def test_default_covers_the_truth_as_often_as_it_says(of_six):
    # Mean squares of a balanced table: exact for Residual, t and Eρ²; the bounds are four Monte
    # Carlo errors of 100 data sets about 95 %.
    default = {r.quantity: r for r in of_six if r.method == "normal theory"}
    reach = 4.0 * np.sqrt(0.05 * 0.95 / 100)
    assert not any(r.near_zero for r in default.values())
    for row in default.values():
        assert abs(row.coverage - 0.95) < reach, row
        assert row.none == 0.0
        assert row.coverage + row.below + row.above == pytest.approx(1.0, abs=1e-12)


def test_wald_is_too_confident_of_few_groups(of_six):
    # A symmetric interval of a skewed estimate lies below the truth too often, never above it.
    row = next(r for r in of_six if (r.method, r.quantity) == ("wald", "s"))
    assert row.coverage < 0.91
    assert row.below > row.above + 0.05


@pytest.mark.parametrize("name", ["s20xt25", "s20xt25-40%", "oneway-uneven", "pxai-uneven"])
def test_intervals_are_those_of_a_fit(name):
    made = prepared(name)
    found = methods.GROUPS["local"](made, 0, Plan())
    # The same numbers by way of rows, which are drawn and fitted as a user would.
    drawn = Prepared(made.cell, "t5", 3)
    ours = methods.GROUPS["local"](drawn, 0, Plan())
    assert found.keys() == ours.keys()
    stats = drawn.draw(0)
    y = stats.rows.y
    res = vcomp.fit(made.cell.formula, made.cell.frame().assign(y=y))
    places = {quantity: j for j, quantity in enumerate(drawn.names)}
    ends = ours["reml", "normal theory"]
    components = [f"var({n})" for n in res.vcomp.index]
    robust = methods.GROUPS["robust"](drawn, 0, Plan())["reml", "robust"]
    for of_study, interval in ((ends, "mls"), (robust, "auto")):
        expected = res.conf_int(interval=interval).loc[components].to_numpy()
        np.testing.assert_allclose(of_study[:, : len(components)].T, expected, rtol=1e-6)
    complete = len(res.fittedvalues) == np.prod(res.design.n_levels)
    study = res.dstudy(object=made.cell.object, interval="f" if complete else "mls").table
    for name_ in ("rel_err_var", "abs_err_var", "Erho2", "Phi"):
        theirs = study[[f"{name_}_low", f"{name_}_high"]].to_numpy()[0]
        np.testing.assert_allclose(ends[:, places[name_]], theirs, rtol=1e-6)
    share = res.quantity("share(Residual)", interval="mls")
    np.testing.assert_allclose(
        ends[:, places["share(Residual)"]], (share.low, share.high), rtol=1e-6
    )


@pytest.mark.parametrize("distribution", ["normal", "t5", "chi2"])
def test_rows_are_drawn_with_their_variances(distribution):
    made = prepared("oneway-uneven")
    v = np.array([2.0, 0.5])
    rng = np.random.default_rng(5)
    y = np.array([draw_scores(made.model, v, distribution, rng) for _ in range(1_500)])
    # Of one row in every draw: independent numbers with mean 0; t₅ and χ²₄ have kurtosis 9 and 6.
    first = y[:, -1]
    assert abs(first.mean()) < 4.5 * np.sqrt(2.5 / 1_500)
    assert np.mean(first**2) == pytest.approx(2.5, abs=4.5 * 2.5 * np.sqrt(8.0 / 1_500))
    # Two rows of a group share its effect, rows of different groups nothing.
    assert np.mean(y[:, -1] * y[:, -2]) == pytest.approx(2.0, abs=4.5 * np.sqrt(40.0 / 1_500))
    assert np.mean(y[:, -1] * y[:, 0]) == pytest.approx(0.0, abs=4.5 * np.sqrt(6.25 / 1_500))


def test_numbers_do_not_depend_on_workers():
    made, plan = prepared("s20xt25-40%"), Plan(local=4, profile=1, bootstrap=1, inner=10)
    alone, together = (run_cell(made, plan, workers=w) for w in (1, 2))
    assert [str(r) for r in alone] == [str(r) for r in together]


def test_truth_and_what_is_near_zero():
    small, zero, away = (
        prepared(name) for name in ("s30xt50-near0", "s30xt50-zero", "s30xt50-alike")
    )
    by_name = dict(zip(zero.names, zero.near_zero, strict=True))
    assert [n for n, near in by_name.items() if near] == [
        "s",
        "share(s)",
        "Erho2",
        "Phi",
        "t/s",
        "required t",
    ]
    assert (small.near_zero == zero.near_zero).all()
    assert not away.near_zero.any()
    # Closed forms of a crossed design.
    v = dict(zip(away.names, away.values, strict=True))
    assert v["Erho2"] == pytest.approx(0.0005 / (0.0005 + 0.010 / 50), rel=1e-12)
    assert v["Phi"] == pytest.approx(0.0005 / (0.0005 + 0.038 / 50), rel=1e-12)
    # A twentieth of the standard error that σ̂²(s) has where σ²(s) is 0: √(2/29) σ²(e)/50.
    assert small.truth[0] == pytest.approx(0.05 * np.sqrt(2.0 / 29.0) * 0.010 / 50.0, rel=0.02)


def test_rows_travel_by_file(tmp_path):
    found = run_cell(prepared("s20xt25"), Plan(local=20))
    write_rows(found, tmp_path / "rows.csv")
    again = read_rows(tmp_path / "rows.csv")
    assert [(r.method, r.quantity, r.n) for r in again] == [
        (r.method, r.quantity, r.n) for r in found
    ]
    assert [r.coverage for r in again] == pytest.approx([r.coverage for r in found], abs=5e-5)


def test_an_unknown_cell_is_refused():
    with pytest.raises(ValueError, match=r"no cell 'x'; there are s30xt50, "):
        cells_by_name(("x",))


# The rows of the whole study -------------------------------------------------------------


def test_rows_are_of_all_cells(rows):
    assert {(r.cell, r.distribution) for r in rows} == {
        (cell.name, d) for cell in CELLS for d in cell.distributions
    }
    of_normal = [r for r in rows if (r.method, r.distribution) == ("normal theory", "normal")]
    assert {r.n for r in of_normal} >= {2_000}


def test_promise_is_kept(rows):
    claimed = [r for r in rows if r.method == "normal theory" and is_claimed(r)]
    assert len(claimed) > 160
    for estimator in ("reml", "anova"):
        assert violations(rows, estimator=estimator) == []
        assert violations(rows, estimator=estimator, method="mls") == []
    # It is no property of every method.
    assert violations(rows, method="wald")
    assert violations(rows, method="log")


def test_what_the_findings_rest_on(rows):
    def chosen(method, quantity, distribution="normal"):
        return [
            r
            for r in rows
            if (r.estimator, r.method, r.distribution) == ("reml", method, distribution)
            and quantity in (None, r.quantity)
        ]

    # It never leaves out an interval, near zero neither, and says too little there at most.
    assert all(r.none == 0.0 and r.coverage > 0.93 for r in chosen("normal theory", None))
    # Information of either kind gives the same in unbalanced designs.
    expected = chosen("mls, expected information", None)
    observed = {(r.cell, r.quantity): r.coverage for r in chosen("normal theory", None)}
    assert len(expected) > 70
    assert all(abs(r.coverage - observed[r.cell, r.quantity]) < 0.01 for r in expected)
    # What is not promised: heavy tails.
    assert all(r.coverage < 0.93 for r in chosen("normal theory", "Residual", "t5"))


def test_page_says_what_the_rows_say(rows):
    text = (ROOT / "docs" / "explanation" / "coverage.md").read_text(encoding="utf-8")
    promise = re.search(r"for (\d+) of (\d+) quantities", " ".join(text.split()))
    claimed = [
        r
        for r in rows
        if (r.estimator, r.method, r.distribution) == ("reml", "normal theory", "normal")
        and not r.near_zero
    ]
    outside = violations(rows)
    assert promise is not None
    assert promise.groups() == (str(len(claimed) - len(outside)), str(len(claimed)))
