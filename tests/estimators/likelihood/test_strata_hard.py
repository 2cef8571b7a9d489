"""Hard data for the strata engine: far scales, single rows, no variance, interruptions."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.designs import gridded
from vcomp.estimators.likelihood import strata_likelihood as strata
from vcomp.estimators.likelihood.choose import choose_engine
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood
from vcomp.estimators.likelihood.totals import Totals
from vcomp.estimators.quadratic.anova import henderson1
from vcomp.estimators.quadratic.quadratic_forms import ChainLimits
from vcomp.estimators.quadratic.sampling import exact_sampling
from vcomp.statistics import groupings as split
from vcomp.statistics import stratification as stratify

SPANS = {
    # p, i, i:d, p:i, p:i:d, Residual
    "down": [1e4, 1e2, 1e0, 1e-3, 1e-6, 1e-10],
    "small residual": [1e4, 1e4, 1e4, 1e4, 1e4, 1e-10],
    "up": [1e-10, 1e-6, 1e-3, 1e0, 1e2, 1e4],
    "in turn": [1e4, 1e-10, 1e4, 1e-10, 1e4, 1e-10],
}
TERMS = {"p": "p", "i": "i", "i:d": "id", "p:i": "pi", "p:i:d": "pid"}


def replicated(components, seed=0):
    """Return p × (d:i) with two rows in a cell."""
    shape, rng = (8, 6, 3, 2), np.random.default_rng(seed)
    levels = dict(zip("pidr", np.indices(shape).reshape(4, -1), strict=True))
    sizes = dict(zip("pid", shape, strict=False))
    y = np.sqrt(components[-1]) * rng.normal(size=levels["p"].size)
    for facets, component in zip(TERMS.values(), components, strict=False):
        codes = np.ravel_multi_index([levels[f] for f in facets], [sizes[f] for f in facets])
        y += np.sqrt(component) * rng.normal(size=codes.max() + 1)[codes]
    levels["d"] = levels["i"] * shape[2] + levels["d"]
    formula = "y ~ " + " + ".join(f"(1|{term})" for term in TERMS)
    return formula, pd.DataFrame(levels).assign(y=y)


def mean_squares(data):
    """Return σ² estimates by the textbook, every effect as a difference of means; balanced."""
    y = data["y"].to_numpy(np.longdouble)
    y = (y - y.mean()).reshape(8, 6, 3, 2)
    cells = y.mean(axis=3, keepdims=True)
    pi, id_ = cells.mean(axis=2, keepdims=True), cells.mean(axis=0, keepdims=True)
    p, i = pi.mean(axis=1, keepdims=True), pi.mean(axis=0, keepdims=True)
    ms = {
        "p": 36 * (p**2).sum() / 7,
        "i": 48 * (i**2).sum() / 5,
        "i:d": 16 * ((id_ - i) ** 2).sum() / 12,
        "p:i": 6 * ((pi - p - i) ** 2).sum() / 35,
        "p:i:d": 2 * ((cells - pi - id_ + i) ** 2).sum() / 84,
        "Residual": ((y - cells) ** 2).sum() / 144,
    }
    return {
        "p": (ms["p"] - ms["p:i"]) / 36,
        "i": (ms["i"] - ms["i:d"] - ms["p:i"] + ms["p:i:d"]) / 48,
        "i:d": (ms["i:d"] - ms["p:i:d"]) / 16,
        "p:i": (ms["p:i"] - ms["p:i:d"]) / 6,
        "p:i:d": (ms["p:i:d"] - ms["Residual"]) / 2,
        "Residual": ms["Residual"],
    }


@pytest.mark.parametrize("span", SPANS)
def test_components_fourteen_decades_apart(span):
    formula, data = replicated(SPANS[span])
    res = vcomp.fit(formula, data, engine="strata")
    assert res.converged
    expected = {name: float(value) for name, value in mean_squares(data).items()}
    if all(value > 0.0 for value in expected.values()):
        for name, value in expected.items():
            assert res.vcomp[name] == pytest.approx(value, rel=1e-6), name
    # The residual is that of the cells whatever the rest is.
    elif span == "in turn":
        assert res.vcomp["Residual"] == pytest.approx(expected["Residual"], rel=1e-6)


@pytest.mark.parametrize("span", SPANS)
def test_analysis_of_variance_fourteen_decades_apart(span):
    formula, data = replicated(SPANS[span])
    res = vcomp.fit(formula, data, method="anova")
    scale = res.vcomp.abs().max()
    for name, value in mean_squares(data).items():
        assert res.vcomp[name] == pytest.approx(float(value), rel=1e-6, abs=1e-18 * scale), name


# Few rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_one_row_in_most_levels(method):
    """300 levels, 297 of them with one row: no balance at all, and a textbook answer."""
    rng = np.random.default_rng(1)
    codes = np.concatenate([np.arange(300), [0] * 5, [1] * 7, [2] * 4])
    y = rng.normal(size=300)[codes] + rng.normal(size=codes.size)
    res = vcomp.fit("y ~ (1|a)", {"a": codes, "y": y}, method=method, engine="strata")
    other = vcomp.fit("y ~ (1|a)", {"a": codes, "y": y}, method=method, engine="blocked")
    assert res.converged
    np.testing.assert_allclose(res.vcomp, other.vcomp, rtol=1e-9)
    assert res.llf == pytest.approx(other.llf, rel=1e-12)
    model = vcomp.VarianceComponentsModel("y ~ (1|a)", {"a": codes, "y": y})
    dense = DenseLikelihood(model, reml=method == "reml")
    v = res.vcomp.to_numpy()
    assert res.llf == pytest.approx(dense.loglike(v), rel=1e-12)
    np.testing.assert_allclose(dense.score(v), 0.0, atol=1e-8)


# No variance ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "method"),
    alternately(
        product(["per document", "nested", "not nested", "replicated"], [0.0, 7.0, 0.1, 1e12]),
        *("anova", "reml", "ml"),
    ),
)
def test_a_constant_response(case, method):
    name, constant = case
    formula, data = gridded(name)
    with np.errstate(all="raise"), warnings.catch_warnings():
        # That Method I is a poor one for partly crossed data does not matter here.
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        res = vcomp.fit(formula, data.assign(y=constant), method=method)
    assert (res.vcomp == 0.0).all()
    assert "response is constant" in res.status
    assert res.fe_params.iloc[0] == constant


# Interruptions ----------------------------------------------------------------------------------


class Interrupts:
    """Calls a function as it is, but is interrupted once, at one of the calls."""

    def __init__(self, function, at):
        self.function, self.left = function, at

    def __call__(self, *args, **kwargs):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self.function(*args, **kwargs)


PLACES = [
    (strata, "stratum_covariance"),
    (StrataLikelihood, "loglike"),
    (Totals, "add"),
    (Totals, "average"),
    (Totals, "loglike"),
]


@pytest.mark.parametrize(("name", "at"), [("per document", 1), ("not nested", 2)])
def test_an_interrupted_fit_leaves_the_model_as_it_was(name, at, monkeypatch):
    formula, data = gridded(name)
    model = vcomp.VarianceComponentsModel(formula, data)
    before = model.fit()
    for owner, function in PLACES:
        with monkeypatch.context() as patch:
            interrupted = Interrupts(getattr(owner, function), at)
            patch.setattr(owner, function, lambda *args, f=interrupted, **kw: f(*args, **kw))
            with pytest.raises(KeyboardInterrupt):
                model.fit()
        after = model.fit()
        pd.testing.assert_series_equal(after.vcomp, before.vcomp, rtol=0.0)
        assert after.llf == before.llf


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (stratify, "_tabulate"),
        (stratify, "split_columns"),
        (split, "group_means"),
        (split, "_products"),
        (split, "squares_in_strata"),
    ],
)
def test_an_interrupted_summing_leaves_nothing_behind(module, function, monkeypatch):
    formula, data = gridded("per document")
    if function == "squares_in_strata":  # of large tables
        formula, (p, d) = "y ~ (1|p) + (1|i/d)", np.indices((40, 2_000)).reshape(2, -1)
        y = np.random.default_rng(0).normal(size=p.size)
        data = pd.DataFrame({"y": y, "p": p, "i": d // 100, "d": d})
    copy = data.copy()
    expected = vcomp.fit(formula, data)
    with monkeypatch.context() as patch:
        patch.setattr(module, function, Interrupts(getattr(module, function), 1))
        with pytest.raises(KeyboardInterrupt):
            vcomp.VarianceComponentsModel(formula, data)
    pd.testing.assert_frame_equal(data, copy)
    pd.testing.assert_series_equal(vcomp.fit(formula, data).vcomp, expected.vcomp, rtol=0.0)


def test_an_engine_that_was_interrupted_answers_again(monkeypatch):
    """What it remembers of the last point is whole, or not there."""
    model = vcomp.VarianceComponentsModel(*gridded("per document"))
    engine = choose_engine(model.statistics, "strata", reml=True)
    v = np.linspace(0.5, 2.0, len(model.component_names))
    expected = choose_engine(model.statistics, "strata", reml=True).derivatives(2.0 * v)
    engine.derivatives(v)
    with monkeypatch.context() as patch:
        interrupted = Interrupts(Totals.add, 3)
        patch.setattr(Totals, "add", lambda *args: interrupted(*args))
        with pytest.raises(KeyboardInterrupt):
            engine.derivatives(2.0 * v)
    again = engine.derivatives(2.0 * v)
    np.testing.assert_array_equal(again.score, expected.score)
    assert again.loglike == expected.loglike
    assert engine.loglike(v) != again.loglike


# Many levels ------------------------------------------------------------------------------------


def test_errors_of_many_nested_levels_need_no_large_matrix():
    """Between the groups of one term, and of those nested in them, a matrix has few elements."""
    rng = np.random.default_rng(0)
    inner = np.concatenate([np.arange(900), rng.integers(0, 900, 1500)])
    data = {"a": inner % 300, "b": inner, "y": rng.normal(size=900)[inner] + rng.normal(size=2400)}
    res = vcomp.fit("y ~ (1|a/b)", data, method="anova")
    stats = res.model.statistics
    limits = ChainLimits(dense_below=3000, free_bytes=lambda: 1e3)
    found = exact_sampling(stats, henderson1(stats.group_sums), res.vcomp.to_numpy(), limits)
    np.testing.assert_allclose(found.covariance, res.cov_vcomp(), rtol=1e-10)
    assert np.isfinite(found.covariance).all()
