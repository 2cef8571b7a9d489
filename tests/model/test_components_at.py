"""Components and D-studies of models with random slopes at one value of the covariates."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import vcomp


def _scores():
    rng = np.random.default_rng(5)
    p, i, k = (a.ravel() for a in np.indices((30, 6, 3)))
    x = rng.normal(size=p.size)
    u = rng.multivariate_normal([0.0, 0.0], [[4.0, 1.5], [1.5, 2.0]], size=30)
    v = rng.multivariate_normal([0.0, 0.0], [[1.0, 0.5], [0.5, 0.4]], size=6)
    y = 3.0 + u[p, 0] + u[p, 1] * x + v[i, 0] + v[i, 1] * x + rng.normal(size=p.size)
    c = np.array(list("ab"))[k % 2]
    return pd.DataFrame({"y": y, "x": x, "p": p, "i": i, "c": c, "z": x**2})


DATA, X = _scores(), 1.5
FORMULA = "y ~ x + (x|p) + (x|i)"


@pytest.fixture(scope="module")
def res():
    return vcomp.fit(FORMULA, DATA)


@pytest.fixture(scope="module")
def moved():
    """The same model, whose intercepts are at the value."""
    return vcomp.fit(FORMULA, DATA.assign(x=DATA["x"] - X))


def test_components_are_those_of_intercepts_there(res, moved):
    found = res.components_at({"x": X})
    assert list(found.vcomp.index) == ["p", "i", "Residual"]
    np.testing.assert_allclose(found.vcomp, moved.vcomp[["p", "i", "Residual"]], rtol=1e-6)
    assert repr(found).startswith("<components at x = 1.5: p 15.7")


@pytest.mark.parametrize("interval", ["wald", "robust", "mls", "profile"])
def test_intervals_are_those_of_intercepts_there(res, moved, interval):
    at = res.components_at({"x": X})
    for name in ("p", "i"):
        ours, theirs = (r.quantity(name, interval=interval) for r in (at, moved))
        assert ours.estimate == pytest.approx(theirs.estimate, rel=1e-6)
        assert [ours.low, ours.high] == pytest.approx([theirs.low, theirs.high], rel=1e-4)


def test_replicates_are_of_intercepts_there(res):
    replicates = res.bootstrap(40, rng=1)
    v = replicates.values
    names = list(res.vcomp.index)
    p, slope, both = (names.index(n) for n in ("p", "p[x]", "p[(Intercept),x]"))
    there = v[:, p] + 2.0 * X * v[:, both] + X**2 * v[:, slope]
    found = res.components_at({"x": X}).quantity("p", interval=replicates)
    assert [found.low, found.high] == pytest.approx(np.quantile(there, [0.025, 0.975]), rel=0.05)


def test_dstudies_are_of_these_components(res, moved):
    p, i, e = moved.vcomp[["p", "i", "Residual"]]
    table = res.components_at({"x": X}).dstudy(i=[4, 8], replicate=2).table
    n = np.array([4, 8])
    np.testing.assert_allclose(table["universe_var"], p, rtol=1e-6)
    np.testing.assert_allclose(table["Erho2"], p / (p + e / (2 * n)), rtol=1e-6)
    np.testing.assert_allclose(table["Phi"], p / (p + i / n + e / (2 * n)), rtol=1e-6)
    assert ((table["Phi_low"] < table["Phi"]) & (table["Phi"] < table["Phi_high"])).all()
    summary = str(res.components_at({"x": X}).dstudy(i=4, replicate=2).summary())
    assert "All scores of a measurement are at x = 1.5." in summary


def test_a_level_of_a_factor():
    res = vcomp.fit("y ~ c + (c|p) + (1|i)", DATA)
    levels = vcomp.fit("y ~ c + (0 + c|p) + (1|i)", DATA)
    for level in "ab":
        found = res.components_at({"c": level}).vcomp
        assert found["p"] == pytest.approx(levels.vcomp[f"p[c[{level}]]"], rel=1e-5)
        assert found["i"] == res.vcomp["i"]


def test_bars_of_the_same_groups_are_one_term_and_residuals_their_mean():
    res = vcomp.fit("y ~ x + z + (x + z||p)", DATA, residual="c")
    v, at = res.vcomp, res.components_at({"x": 2.0, "z": 4.0})
    found = at.vcomp
    expected = v["p"] + 4.0 * v["p[x]"] + 16.0 * v["p[z]"]
    assert found["p"] == pytest.approx(expected, rel=1e-12)
    counts = DATA["c"].value_counts()
    mean = (v["Residual[c=a]"] * counts["a"] + v["Residual[c=b]"] * counts["b"]) / len(DATA)
    assert found["Residual"] == pytest.approx(mean, rel=1e-12)
    assert v["p[z]"] == 0.0  # at its bound, and treated as known
    for interval in ("robust", "mls", "wald"):
        there = at.quantity("p", interval=interval)
        assert there.low < there.estimate < there.high
    by_name = res.quantity("p + 4*p[x] + 16*p[z]", interval="wald")  # as the last
    assert [there.low, there.high] == pytest.approx([by_name.low, by_name.high], rel=1e-9)


def test_notes_say_what_a_score_is():
    res = vcomp.fit("y ~ x + (x|p)", DATA, residual="c", weights=1.0 + np.arange(len(DATA)) % 2)
    summary = str(res.components_at({"x": 0}).dstudy(replicate=1).summary())
    assert "All scores of a measurement are at x = 0." in summary
    assert "Residual: the mean of the residual variances of the levels of c." in summary
    assert "A score is one of weight 1" in summary


def test_known_matrices_are_known_there():
    known = {"p": 4.0, "p[x]": 2.0, "p[(Intercept),x]": 1.5}
    res = vcomp.fit(FORMULA, DATA, hold=known)
    at = res.components_at({"x": X})
    assert at.vcomp["p"] == pytest.approx(4.0 + 3.0 * 1.5 + X**2 * 2.0)
    assert at.components.held == ("p",)
    table = at.dstudy(i=4, replicate=1).table
    assert (table["Phi_low"] < table["Phi"]).all()


def test_merged_sums_have_components_there(res):
    merged = sum(vcomp.accumulate(FORMULA, DATA[DATA["p"] % 2 == k]) for k in range(2)).fit()
    found = merged.components_at({"x": X})
    np.testing.assert_allclose(found.vcomp, res.components_at({"x": X}).vcomp, rtol=1e-7)
    study = found.dstudy(i=4, replicate=1, interval="mls").table
    assert (study["Phi_low"] < study["Phi"]).all()


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ({"X": 1.0, "x": 1.0}, r"at names 'X', which no slope uses \(did you mean 'x'"),
        ({}, "at has no value of 'x'; it is {'x': …}"),
        ({"x": "high"}, r"at\['x'\] is one finite number, as x is a covariate, not 'high'"),
        ({"x": [1.0, 2.0]}, r"at\['x'\] is one finite number"),
        (1.0, "at is a mapping {'x': …}, not 1.0"),
    ],
)
def test_other_values_are_refused(res, at, words):
    with pytest.raises(vcomp.DataError, match=words):
        res.components_at(at)


def test_what_has_no_components_there(res):
    factor = vcomp.fit("y ~ (0 + c|p)", DATA)
    with pytest.raises(vcomp.DataError, match=r"at\['c'\] is a level of c, such as 'a', 'b'"):
        factor.components_at({"c": "d"})
    with pytest.raises(vcomp.EstimationError, match="no random slopes: its components"):
        vcomp.fit("y ~ x + (1|p)", DATA).components_at({"x": 1.0})
    with pytest.raises(vcomp.DataError, match="loaded without its rows"):
        vcomp.VarianceComponentsResults.from_json(res.to_json()).components_at({"x": 1.0})


def test_what_the_refusal_advises_leads_on(res):
    for call in (lambda: res.dstudy(i=4), res.universe_scores):
        with pytest.raises(vcomp.EstimationError, match="depend on the covariate then") as caught:
            call()
        advised = re.search(r"write (res.components_at\(.*\)).dstudy", str(caught.value))[1]
        assert advised == "res.components_at({'x': …})"
        there = eval(advised.replace("…", "1.5"), {"res": res})
        assert len(there.dstudy(i=4, replicate=1).table) == 1
    loaded = vcomp.VarianceComponentsResults.from_json(res.to_json())
    with pytest.raises(vcomp.EstimationError, match=r"fit the model again, and write res\.comp"):
        loaded.dstudy(i=4)
