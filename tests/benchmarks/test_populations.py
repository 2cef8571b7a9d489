"""Robust intervals in all populations: truth, draws, and a file that is added to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vcomp
from benchmarks.coverage import methods
from benchmarks.coverage.cells import Plan, cells_by_name
from benchmarks.coverage.comparison import compare
from benchmarks.coverage.designs import DESIGNS, FEW_LEVELS, populations
from benchmarks.coverage.populations import (
    EFFECTS,
    SCORES,
    draw_scores,
    latent_components,
    observed_components,
    shared_covariance,
)
from benchmarks.coverage.prepared import Prepared
from benchmarks.coverage.results import read_rows
from benchmarks.coverage.robust_section import EXTREME, WORDS
from benchmarks.coverage.study import run_cell

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "benchmarks" / "coverage" / "populations.csv"


def prepared(name, population="normal", seed=3):
    (cell,) = cells_by_name((name,), DESIGNS)
    return Prepared(cell, population, seed)


def test_covariance_of_binary_scores_is_sheppards():
    # Cov of the signs of two normal variables: arcsin ρ/(2π); at ρ = 1 the variance p(1 − p).
    for share in (0.1, 0.5, 0.9, 0.99):
        found = shared_covariance(SCORES["0/1 .5"], share)
        assert found == pytest.approx(np.arcsin(share) / (2.0 * np.pi), rel=1e-6)
    assert shared_covariance(SCORES["0/1 .86"], 1.0) == pytest.approx(0.86 * 0.14, rel=1e-12)


@pytest.mark.parametrize("population", ["graded", "cut", "0/1 .95"])
def test_covariance_of_scores_is_that_of_pairs(population):
    score, share, n = SCORES[population], 0.4, 400_000
    rng = np.random.default_rng(2)
    common, *own = rng.standard_normal((3, n))
    pair = [score(np.sqrt(share) * common + np.sqrt(1.0 - share) * one) for one in own]
    product = (pair[0] - pair[0].mean()) * (pair[1] - pair[1].mean())
    error = product.std() / np.sqrt(n)
    assert abs(product.mean() - shared_covariance(score, share)) < 4.5 * error
    spread = np.square(pair[0] - pair[0].mean())
    variance = shared_covariance(score, 1.0)
    assert abs(spread.mean() - variance) < 4.5 * spread.std() / np.sqrt(n)


def test_observed_components_add_up_to_covariances():
    facets = tuple(map(frozenset, ("p", "i", "a", "pi", "pa", "ia", "pia")))
    latent = latent_components(np.array([0.3, 0.3, 0.1, 0.2, 0.1, 0.1, 0.5]))
    assert latent.sum() == pytest.approx(1.0)
    assert latent[-1] == 0.5
    score = SCORES["0/1 .86"]
    found = observed_components(score, facets, latent)
    assert found.sum() == pytest.approx(0.86 * 0.14, rel=1e-12)
    of_pi = shared_covariance(score, latent[0] + latent[1] + latent[3])
    assert found[0] + found[1] + found[3] == pytest.approx(of_pi, rel=1e-12)
    assert (found > 0.0).all()


@pytest.mark.parametrize("population", list(EFFECTS))
def test_effects_have_mean_0_and_variance_1(population):
    x = EFFECTS[population](np.random.default_rng(4), 200_000)
    assert abs(x.mean()) < 4.5 / np.sqrt(x.size)
    assert abs(np.mean(x**2) - 1.0) < 4.5 * np.sqrt(8.0 / x.size)
    skewness = {"chi2": np.sqrt(2.0), "exponential": 2.0}.get(population.rstrip("-"), 0.0)
    skewness *= -1.0 if population.endswith("-") else 1.0
    assert np.mean(x**3) == pytest.approx(skewness, abs=0.15)


def test_errors_vary_by_level():
    made = prepared("st20x100")
    rng, v = np.random.default_rng(5), np.array([0.0, 0.0, 2.0])
    y = np.array([draw_scores(made.model, v, "variance by s", rng) for _ in range(200)])
    spread = np.mean(y.reshape(200, 20, 100) ** 2, axis=2)
    assert np.mean(spread) == pytest.approx(2.0, rel=0.06)
    assert np.log(spread).std() == pytest.approx(np.hypot(0.7, np.sqrt(2.0 / 100)), rel=0.05)
    with pytest.raises(ValueError, match="there is no distribution 'cauchy'"):
        draw_scores(made.model, v, "cauchy", rng)


@pytest.mark.parametrize("name", ["st20x25", "nested"])
def test_robust_intervals_are_those_of_a_fit(name):
    drawn = prepared(name, "exponential")
    ends = methods.GROUPS["robust"](drawn, 1, Plan())["reml", "robust"]
    y = drawn.draw(1, rows=True).rows.y
    res = vcomp.fit(drawn.cell.formula, drawn.cell.frame().assign(y=y))
    table = res.conf_int(interval="robust").loc[[f"var({n})" for n in res.vcomp.index]]
    np.testing.assert_allclose(ends[:, : len(res.vcomp)].T, table.to_numpy(), rtol=1e-6)
    study = res.dstudy(object="s", interval="robust")
    phi = study.table[["Phi_low", "Phi_high"]].to_numpy()[0]
    np.testing.assert_allclose(ends[:, drawn.names.index("Phi")], phi, rtol=1e-6)
    # Roots have the roots of the limits: standard errors of measurement need no rows of their own.
    sem = res.quantity("sqrt(var(Residual))", interval="robust")
    at = drawn.names.index("Residual")
    np.testing.assert_allclose(ends[:, at], np.square((sem.low, sem.high)), rtol=1e-6)


def test_true_required_size_is_that_of_the_design():
    made = prepared("st20x25")
    v = dict(zip(made.names, made.values, strict=True))
    assert v["required t"] == pytest.approx(25.0)
    assert v["t/s"] == pytest.approx(8.0)


def test_a_file_is_added_to(tmp_path):
    (cell,) = cells_by_name(("groups",), DESIGNS)
    path = tmp_path / "rows.csv"
    options = {"seed": 3, "workers": 1, "populations": ("uniform",), "progress": False}
    compare(cell, path, data_sets=7, **options)
    found = compare(cell, path, data_sets=12, **options)
    once = run_cell(Prepared(cell, "uniform", 3), Plan(local=0, robust=12))
    assert len(found) == len(once)
    for row, other in zip(read_rows(path), once, strict=True):
        assert (row.quantity, row.method, row.n) == (other.quantity, other.method, 12)
        assert (row.below, row.above) == pytest.approx((other.below, other.above), abs=6e-5)
    # What is there is not drawn again.
    before = path.read_text(encoding="utf-8")
    compare(cell, path, data_sets=12, **options)
    assert path.read_text(encoding="utf-8") == before


def test_populations_have_words():
    assert {p for cell in DESIGNS for p in cell.distributions} == set(WORDS)
    assert set(EXTREME) <= set(populations("s"))


# The rows of the whole study -------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    return [r for r in read_rows(ROWS) if not r.near_zero]


def test_robust_intervals_hold_in_usual_populations(rows):
    usual = [r for r in rows if r.cell not in FEW_LEVELS and r.distribution not in EXTREME]
    robust, normal = ([r for r in usual if r.method == m] for m in ("robust", "mls"))
    assert len({(r.cell, r.distribution) for r in robust}) > 100
    within = np.mean([0.91 <= r.coverage <= 0.98 for r in robust])
    assert within > 0.95 > 0.5 > np.mean([0.91 <= r.coverage <= 0.98 for r in normal])


def test_robust_intervals_are_hardly_wider_under_normality(rows):
    own = [r for r in rows if (r.method, r.distribution) == ("robust", "normal")]
    enough = [r for r in own if r.cell not in FEW_LEVELS]
    assert np.nanmedian([r.width for r in enough]) < 1.10
    assert all(r.width < 1.11 for r in enough if r.quantity == "Residual")
    # A tenth of the intervals may be wider, but not by much.
    wide = [r.wide for r in enough if r.quantity in ("s", "t", "p", "i", "Residual")]
    assert np.nanmax(wide) < 1.7
