"""Tables and printed matrices of several variables, by derivatives and cell by cell."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

import vcomp
from tests.helpers.multivariate_scores import crossed
from vcomp.estimators.likelihood import elements
from vcomp.multivariate.covariance_components import CovarianceComponents
from vcomp.multivariate.estimate_record import (
    _on_links,
    component_table,
    correlation_table,
    correlations_of,
)


def components(seed=1, unsure=(), perfect=False):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(3, 3, 2 if perfect else 5))
    if perfect:
        roots[0, 1] = 2.0 * roots[0, 0]
    S = roots @ roots.transpose(0, 2, 1)
    linked = np.array([np.ones((3, 3)), np.ones((3, 3)), np.eye(3)]).astype(bool)
    S[2][~linked[2]] = np.nan
    m = len(elements(linked))
    root = rng.normal(size=(m, m + 3)) / 8.0
    cov = root @ root.T
    for k in unsure:
        cov[k] = cov[:, k] = np.nan
    facets = (frozenset("p"), frozenset("i"), frozenset("pi"))
    names, sizes = ("p", "i", "Residual"), {"p": (9.0,) * 3, "i": (5.0,) * 3}
    return CovarianceComponents(("a", "b", "c"), names, facets, S, linked, cov, sizes=sizes)


def test_correlations():
    S = components().values[0]
    d = np.sqrt(np.diagonal(S))
    np.testing.assert_allclose(correlations_of(S), S / np.outer(d, d), rtol=1e-14)
    S = np.array([[4.0, 1.0, 0.5], [1.0, 0.0, 0.2], [0.5, 0.2, -1.0]])
    found = correlations_of(S)
    assert found[0, 0] == 1.0
    assert np.isnan(found[1:]).all()
    assert np.isnan(found[0, 1:]).all()


@pytest.mark.parametrize("term", [0, 1])
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_errors_of_correlations_are_those_of_the_delta_method(term, alpha):
    g = components(3)
    table = correlation_table(g, term, alpha)
    assert table[["variable1", "variable2"]].to_numpy().tolist() == [
        ["a", "b"], ["a", "c"], ["b", "c"],
    ]  # fmt: skip
    place = {e: k for k, e in enumerate(g.elements)}
    for (a, b), row in zip(((0, 1), (0, 2), (1, 2)), table.itertuples(), strict=True):

        def correlation(s):
            return s[0] / np.sqrt(s[1] * s[2])

        at = [place[term, a, b], place[term, a, a], place[term, b, b]]
        s, h = np.array([g.values[g.elements[k]] for k in at]), 1e-6
        slopes = [(correlation(s + h * e) - correlation(s - h * e)) / (2 * h) for e in np.eye(3)]
        se = np.sqrt(slopes @ g.cov[np.ix_(at, at)] @ slopes)
        r = correlation(s)
        assert (row.estimate, row.se) == (pytest.approx(r), pytest.approx(se, rel=1e-6))
        half = norm.isf(alpha / 2) * se / (1 - r**2)
        ends = np.tanh(np.arctanh(r) + np.array([-half, half]))
        assert (row.low, row.high) == pytest.approx(tuple(ends), rel=1e-5)
    assert correlation_table(g, 2, alpha).empty


def test_correlations_without_an_error():
    one = correlation_table(components(perfect=True), 0, 0.05)
    assert one["estimate"][0] == pytest.approx(1.0)
    assert one[["se", "low", "high"]].iloc[0].isna().all()
    unsure = correlation_table(components(unsure=(3,)), 0, 0.05)  # the variance of b
    assert unsure["se"].isna().tolist() == [True, False, True]


def test_correlations_whose_elements_are_known_have_no_error():
    g = components(3)
    row = correlation_table(replace(g, cov=0.0 * g.cov), 0, 0.05).iloc[0]
    assert row["se"] == 0.0
    assert [row["low"], row["high"]] == pytest.approx([row["estimate"]] * 2, rel=1e-12)


def test_the_table_has_every_element_once():
    g = components(4)
    table = component_table(g, 0.1)
    rows = list(zip(table["term"], table["variable1"], table["variable2"], strict=True))
    assert rows == [(g.names[t], g.variables[a], g.variables[b]) for t, a, b in g.elements]
    z = norm.isf(0.05)
    for k, (t, a, b) in enumerate(g.elements):
        row = table.iloc[k]
        se = np.sqrt(g.cov[k, k])
        assert (row["estimate"], row["se"]) == (g.values[t, a, b], pytest.approx(se))
        if a == b:
            assert np.isnan(row["correlation"])
            assert row["conf_low"] < row["estimate"] < row["conf_high"]
        else:
            assert row["correlation"] == pytest.approx(correlations_of(g.values[t])[a, b])
            assert row["conf_low"] == pytest.approx(row["estimate"] - z * se)
            assert row["conf_high"] == pytest.approx(row["estimate"] + z * se)
    assert "conf_low" not in component_table(g)


@pytest.mark.parametrize("method", ["anova", "reml"])
def test_printed_matrices(method):
    data = crossed(28, n_p=30, n_i=12)
    res = vcomp.fit_multivariate("a + b + c ~ (1|p) + (1|i)", data, method=method)
    g = res.record.components if hasattr(res, "record") else res._record.components
    cells = [[str(c.data).strip() for c in row] for row in res.summary().tables[1]]
    assert cells[0] == ["", "", "a", "b", "c"]
    for t, name in enumerate(g.names):
        block = cells[1 + 3 * t : 4 + 3 * t]
        assert [row[0] for row in block] == [name, "", ""]
        assert [row[1] for row in block] == ["a", "b", "c"]
        lower = np.tril_indices(3)
        d, e = (
            digits - 1 - math.floor(math.log10(np.abs(values[t][lower]).min()))
            for values, digits in ((g.values, 3), (g.standard_errors, 2))
        )
        R = correlations_of(g.values[t])
        for a in range(3):
            for b in range(3):
                shown = block[a][2 + b]
                if b > a:
                    assert shown == f"{R[a, b]:.2f}".replace("-0.00", "0.00")
                else:
                    se = g.standard_errors[t, a, b]
                    assert shown == f"{g.values[t, a, b]:.{d}f} ({se:.{e}f})"
    text = " ".join(str(res.summary()).split())
    assert "1,080 scores of 3 variables" in text
    assert "p•, i•: linked, their levels are the same for all variables." in text
    for absent in ("average information", "independent", "partly linked", "Converged."):
        assert absent not in text
    assert ("closed form" in text) == (method == "anova")
    assert ("converged" in text) == (method == "reml")


@pytest.mark.parametrize(
    ("shared", "notes"),
    [
        ([[9, 5, 2], [5, 9, 2], [2, 2, 9]], []),
        ([[9, 0, 0], [0, 9, 0], [0, 0, 9]], ["i: no covariances, as each of its levels has"]),
        ([[9, 1, 0], [1, 9, 0], [0, 0, 9]], ["i: no covariances, as any two variables share at"]),
        ([[9, 5, 0], [5, 9, 1], [0, 1, 9]], ["i: no covariance of a, c; b, c, which share no"]),
        ([[9, 2, 2], [2, 9, 0], [2, 0, 9]], ["i: no covariance of b, c, which share no levels."]),
    ],
)
def test_covariances_that_are_not_estimable_are_said_with_the_reason(shared, notes):
    """A covariance needs two levels that two variables share."""
    all_shared = np.full((3, 3), 9.0)
    counts = np.array([all_shared, shared], dtype=float)
    layout = SimpleNamespace(
        names=("p", "i"),
        linked=counts >= 2.0,
        shared=counts,
        scores=SimpleNamespace(variables="abc"),
    )
    found = _on_links(layout)
    assert len(found) == len(notes)
    assert all(one.startswith(other) for one, other in zip(found, notes, strict=True))
