"""Robust intervals and what others would use: new methods, the file of rows, and the section."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import vcomp
from benchmarks.coverage import lme4_profile, peers
from benchmarks.coverage.burch import adjusted_covariance, burch, fourth_cumulants, k_statistic
from benchmarks.coverage.cells import Plan, cells_by_name
from benchmarks.coverage.designs import DESIGNS
from benchmarks.coverage.drawn_levels import drawn_levels
from benchmarks.coverage.methods import GROUPS
from benchmarks.coverage.methods_section import methods_section
from benchmarks.coverage.prepared import Prepared
from benchmarks.coverage.results import read_rows, write_rows
from benchmarks.coverage.study import Row


def prepared(name, population="normal", seed=3):
    (cell,) = cells_by_name((name,), DESIGNS)
    return Prepared(cell, population, seed)


# Burch -----------------------------------------------------------------------------------------


def test_burchs_variance_is_that_of_balanced_groups():
    # REML estimates of balanced groups are MS_e and (MS_s − MS_e)/n.
    a, n, v, cumulants = 20, 5, np.array([0.5, 1.0]), np.array([1.5, 6.0])
    of_means = v[0] + v[1] / n
    means = 2.0 * of_means**2 / (a - 1) + (cumulants[0] + cumulants[1] / n**3) / a
    errors = 2.0 * v[1] ** 2 / (a * (n - 1)) + cumulants[1] / (a * n)
    both = cumulants[1] / (a * n**2)
    found = adjusted_covariance(np.repeat(np.arange(a), n), v, cumulants)
    assert found[0, 0] == pytest.approx(means + errors / n**2 - 2.0 * both / n, rel=1e-10)
    assert found[0, 1] == pytest.approx(both - errors / n, rel=1e-10)
    assert found[1, 1] == pytest.approx(errors, rel=1e-10)


def test_burchs_variance_with_normal_effects_is_the_inverse_information():
    made = prepared("groups")
    codes = made.model.statistics.rows.level_codes(0)
    information = made.model.information(made.truth, information="expected")
    found = adjusted_covariance(codes, made.truth, np.zeros(2))
    np.testing.assert_allclose(found, np.linalg.inv(information), rtol=1e-8)


FOUR_GROUPS = np.array([0, 0, 1, 1, 1, 2, 2, 3])


def all_samples(v):
    """Return all scores of four groups whose effects and errors have two values, ±σ."""
    signs = np.array(list(product([-1.0, 1.0], repeat=12)))
    return np.sqrt(v[0]) * signs[:, :4][:, FOUR_GROUPS] + np.sqrt(v[1]) * signs[:, 4:]


def test_burchs_variance_of_scores_is_that_of_all_samples():
    # One step of scoring from the true components: I⁻¹ ½(y'P V_k P y)_k.
    v = np.array([0.5, 2.0])
    groups = np.eye(4)[FOUR_GROUPS]
    shapes = [groups @ groups.T, np.eye(8)]
    inverse = np.linalg.inv(v[0] * shapes[0] + v[1] * shapes[1])
    one = np.ones((8, 1))
    p = inverse - inverse @ one @ np.linalg.inv(one.T @ inverse @ one) @ one.T @ inverse
    scores = [0.5 * ((y := all_samples(v) @ p) @ shape * y).sum(axis=1) for shape in shapes]
    information = [[0.5 * np.trace(p @ a @ p @ b) for a in shapes] for b in shapes]
    steps = np.linalg.solve(information, np.array(scores))
    found = adjusted_covariance(FOUR_GROUPS, v, -2.0 * v**2)
    np.testing.assert_allclose(found, np.cov(steps, ddof=0), rtol=1e-10)


def test_fourth_cumulants_are_unbiased():
    # Fourth cumulants of two values ±σ are −2σ⁴.
    v = np.array([0.5, 2.0])
    found = np.mean([fourth_cumulants(y, FOUR_GROUPS, v[1]) for y in all_samples(v)], axis=0)
    np.testing.assert_allclose(found, -2.0 * v**2, rtol=1e-10)


def test_k_statistic_is_unbiased():
    samples = np.array(list(product([0.0, 1.0], repeat=6)))
    assert np.mean([k_statistic(x) for x in samples]) == pytest.approx(-0.125, rel=1e-12)


def test_burch_has_intervals_of_one_way_data_only():
    assert burch(prepared("st20x25"), 0, Plan()) == {}
    found = burch(prepared("groups", "exponential"), 1, Plan())["reml", "Burch"]
    assert (found[0] < found[1]).all()
    names = prepared("groups").names
    share, ratio = names.index("share(s)"), names.index("Residual/s")
    np.testing.assert_allclose(found[::-1, ratio], 1.0 / found[:, share] - 1.0, rtol=1e-8)


# Others ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["st20x25", "groups"])
@pytest.mark.filterwarnings("ignore::vcomp.exceptions.VcompWarning")
def test_levels_that_are_drawn_at_once_are_those_of_the_library(name):
    made, plan = prepared(name, "t5"), Plan(resamples=25)
    found, library = drawn_levels(made, 4, plan), GROUPS["levels"](made, 4, plan)
    assert found.keys() == library.keys()
    for key, ends in library.items():
        np.testing.assert_allclose(found[key], ends, rtol=1e-9)


def test_lme4_profiles_the_likelihood_of_ml():
    if not lme4_profile.installed():
        pytest.skip("Rscript is not installed, or has no lme4")
    made = prepared("groups", "t5")
    (_, found) = lme4_profile.by_lme4(made, [3, 2])
    y = made.draw(2, rows=True).rows.y
    res = vcomp.fit(made.cell.formula, made.cell.frame().assign(y=y), method="ml")
    profile = res.conf_int(interval="profile").loc[["var(s)", "var(Residual)"]].to_numpy()
    ends = found["ml", "lme4, profile"]
    np.testing.assert_allclose(ends[:, :2].T, profile, rtol=2e-3)
    assert np.isnan(ends[:, 2:]).all()


# The file of rows ------------------------------------------------------------------------------


ONE_CELL = peers.Steps((("groups", "t5"),), ("robust", "burch", "levels"), ("levels",), 4)
"""Groups of methods that are fast."""


def run(path, data_sets=6, seed=3):
    return peers.compare_methods(
        path, seed=seed, workers=1, data_sets=data_sets, progress=False, steps=ONE_CELL
    )


def test_a_file_of_methods_is_resumed(tmp_path):
    path = tmp_path / "methods.csv"
    rows = run(path)
    methods = ["mls", "robust", "log", "wald", "Burch", "bootstrap over s"]
    assert list(dict.fromkeys(r.method for r in rows)) == methods
    assert {r.n for r in rows} == {6}
    # What is not there is drawn, and the same.
    whole = path.read_text(encoding="utf-8")
    write_rows([r for r in read_rows(path) if r.method != "Burch"], path)
    run(path)
    assert path.read_text(encoding="utf-8") == whole


def test_what_the_file_has_is_not_drawn_again(tmp_path):
    path = tmp_path / "methods.csv"
    run(path)
    whole = path.read_text(encoding="utf-8")
    # Other data sets would have other rows.
    run(path, seed=4)
    run(path, data_sets=4, seed=4)
    assert path.read_text(encoding="utf-8") == whole


def test_all_methods_have_the_same_data_sets():
    made = peers._Cell("st20x25", "normal", 3, 1).prepared
    rows = made.draw(1).rows.y
    np.testing.assert_array_equal(rows, prepared("st20x25").draw(1, rows=True).rows.y)


# The section -----------------------------------------------------------------------------------


def row(method, quantity, coverage, *, population="normal", cell="st20x25", none=0.0, n=300):
    return Row(
        cell=cell,
        distribution=population,
        estimator="reml",
        method=method,
        quantity=quantity,
        near_zero=False,
        truth=1.0,
        n=n,
        none=none,
        coverage=coverage,
        below=1.0 - coverage,
        above=0.0,
        width=1.25,
    )


def test_section_says_which_method_holds():
    made = [
        row("mls", "s", 0.95),
        row("robust", "s", 0.94),
        row("mls", "s", 0.60, population="exponential"),
        row("robust", "s", 0.92, population="exponential"),
        row("log", "Residual", 0.95, population="exponential", none=0.1, n=200),
        row("jackknife over s", "s", 0.93),
        row("jackknife over s", "t", 0.40),
        row("jackknife over s", "Phi", 0.80),
        row("robust", "share(s)", 0.10),
        row("robust", "s", 0.95, cell="groups"),
        row("mls", "s", 0.85, cell="groups"),
        row("log", "s", 0.85, cell="groups"),
        row("Burch", "s", 0.89, cell="groups"),
        row("jackknife over s", "s", 0.96, cell="groups"),
    ]
    text = methods_section(made)
    said = " ".join(text.split())
    assert "In `st20x25` these are, normal: all but *jackknife over s*; exponential:" in said
    assert "exponential: all but *mls*. In `groups` these are, normal: *robust* and" in said
    assert "own component in 93.0 %, that of the other facet in 40.0 %, and Φ" in said
    assert "coverage in all populations is *jackknife over s* 96.0 %; that of *robust*" in said
    assert "one-way data its coverage is 89.0 %, with 1.25 of the width" in said
    assert "| jackknife over s | 40.0 / 93.0 | – | **96.0 / 96.0** |" in text
    assert "| mls | **95.0 / 95.0** | 60.0 / 60.0 | 85.0 / 85.0 |" in text
    assert "*log* up to 10.0 % (`st20x25`, exponential)" in said
    assert "300 data sets in each, but log have 200 or more" in said
    assert "| robust | 300 | 94.0 (1.25) | 92.0 (1.25) | – | – |" in text
    assert "### Methods in `groups`" in text
    assert "share(s)" not in text
    assert methods_section([]) == ""
