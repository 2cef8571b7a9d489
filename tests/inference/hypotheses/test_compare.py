"""Comparison of models: mixtures, what is nested, what cannot be compared."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import vcomp
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.designs import unbalanced
from tests.helpers.printed_tables import printed_columns
from vcomp.inference.hypotheses import model_comparison
from vcomp.inference.hypotheses.model_comparison import (
    _columns_differ,
    _compared,
    _efficient_correlation,
    _not_nested,
    _weights,
    check_rows,
    facets_of,
    mixture_tail,
)


@pytest.fixture(scope="module")
def data():
    _, frame = unbalanced("crossed, replicated", seed=5)
    rng = np.random.default_rng(1)
    return frame.assign(x=rng.normal(size=len(frame)), z=rng.normal(size=len(frame)))


def fit(formula, data, method="reml", **options):
    return vcomp.fit(formula, data, method=method, **options)


def test_one_component_more(data):
    small, large = fit("y ~ (1|a)", data), fit("y ~ (1|a) + (1|b)", data)
    found = vcomp.compare(small, large)
    table = found.table
    assert list(table.columns) == [
        "npar", "llf", "aic", "bic", "statistic", "df", "p_value", "distribution",
    ]  # fmt: skip
    assert list(table.index) == [small.formula, large.formula]
    assert list(table["npar"]) == [3, 4]
    for name in ("llf", "aic", "bic"):
        expected = [getattr(res, name) for res in (small, large)]
        np.testing.assert_allclose(table[name], expected, rtol=1e-14)
    LR = 2.0 * (large.llf - small.llf)
    assert table["statistic"].iloc[1] == pytest.approx(LR, rel=1e-12)
    assert table["p_value"].iloc[1] == pytest.approx(0.5 * stats.chi2.sf(LR, 1), rel=1e-9)
    assert table["distribution"].iloc[1] == "½ χ²(0) + ½ χ²(1)"
    assert np.isnan(table["p_value"].iloc[0])
    # The test of the component itself says the same.
    assert large.test("b", "lrt").p_value == pytest.approx(table["p_value"].iloc[1], rel=1e-6)
    assert vcomp.compare(large, small).table.equals(table)
    assert "restricted likelihood (REML)" in str(found)
    assert "of the smaller model at 0" not in str(found)


def test_fixed_effects_by_ml(data):
    small = fit("y ~ (1|a)", data, "ml")
    large = fit("y ~ x + z + (1|a)", data, "ml")
    row = vcomp.compare(small, large).table.iloc[1]
    LR = 2.0 * (large.llf - small.llf)
    assert row["df"] == 2
    assert row["p_value"] == pytest.approx(stats.chi2.sf(LR, 2), rel=1e-9)
    assert row["distribution"] == "χ²(2)"


def test_a_fixed_effect_and_a_component(data):
    small, large = fit("y ~ (1|a)", data, "ml"), fit("y ~ x + (1|a) + (1|b)", data, "ml")
    row = vcomp.compare(small, large).table.iloc[1]
    LR = 2.0 * (large.llf - small.llf)
    expected = 0.5 * stats.chi2.sf(LR, 1) + 0.5 * stats.chi2.sf(LR, 2)
    assert row["p_value"] == pytest.approx(expected, rel=1e-9)
    assert row["distribution"] == "½ χ²(1) + ½ χ²(2)"


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_two_components_have_the_weights_of_their_information(data, method):
    small = fit("y ~ (1|a)", data, method)
    large = fit("y ~ (1|a) + (1|b) + (1|a:b)", data, method)
    (found,) = vcomp.compare(small, large).comparisons
    dense = DenseLikelihood(large.model, reml=method == "reml")
    v = np.array([small.vcomp["a"], 0.0, 0.0, small.vcomp["Residual"]])
    assert (v[[0, 3]] > 0.0).all()
    # Of the unbounded estimates both are positive with the probability of χ²₂.
    covariance = np.linalg.inv(dense.expected(v))[1:3, 1:3]
    normal = stats.multivariate_normal(mean=[0.0, 0.0], cov=covariance / covariance[0, 0])
    both = normal.cdf([0.0, 0.0])
    np.testing.assert_allclose(found.weights, [0.5 - both, 0.5, both], atol=1e-6)
    LR = 2.0 * (large.llf - small.llf)
    expected = 0.5 * stats.chi2.sf(LR, 1) + both * stats.chi2.sf(LR, 2)
    assert found.p_value == pytest.approx(expected, rel=1e-4)
    assert found.df == 2


def test_more_components_have_an_upper_limit(data):
    small = fit("y ~ (1|a)", data, hold={"a": 0.0})
    large = fit("y ~ (1|a) + (1|b) + (1|a:b)", data)
    (found,) = vcomp.compare(small, large).comparisons
    assert found.weights == (0.0, 0.0, 0.5, 0.5)
    LR = 2.0 * (large.llf - small.llf)
    expected = 0.5 * stats.chi2.sf(LR, 2) + 0.5 * stats.chi2.sf(LR, 3)
    assert found.p_value == pytest.approx(expected, rel=1e-9)
    assert "upper limit (Perlman 1969)" in found.notes[-1]


def test_a_component_held_away_from_0_is_no_bound(data):
    held = fit("y ~ (1|a) + (1|b)", data, hold={"b": 1.0})
    free = fit("y ~ (1|a) + (1|b)", data)
    row = vcomp.compare(held, free).table.iloc[1]
    LR = 2.0 * (free.llf - held.llf)
    assert row["distribution"] == "χ²(1)"
    assert row["p_value"] == pytest.approx(stats.chi2.sf(LR, 1), rel=1e-9)
    at_zero = fit("y ~ (1|a) + (1|b)", data, hold={"b": 0.0})
    without = fit("y ~ (1|a)", data)
    rows = vcomp.compare(at_zero, free).table.iloc[1], vcomp.compare(without, free).table.iloc[1]
    assert rows[0]["p_value"] == pytest.approx(rows[1]["p_value"], rel=1e-6)


def test_a_chain_of_models(data):
    models = [fit(f, data) for f in ("y ~ (1|a)", "y ~ (1|a) + (1|b)", "y ~ (1|a*b)")]
    table = vcomp.compare(models[1], models[2], models[0]).table
    assert list(table["npar"]) == [3, 4, 5]
    for k in (1, 2):
        LR = 2.0 * (models[k].llf - models[k - 1].llf)
        assert table["statistic"].iloc[k] == pytest.approx(max(LR, 0.0), abs=1e-9)


def test_a_component_of_nothing_has_p_1():
    data = pd.DataFrame({"h": list("xyxyxyxy"), "g": list("aabbccdd")})
    data["y"] = [1.0, 3.0, 1.1, 2.8, 0.9, 3.2, 1.2, 3.1]
    small, large = fit("y ~ (1|h)", data), fit("y ~ (1|h) + (1|g)", data)
    assert large.vcomp["g"] == 0.0
    assert vcomp.compare(small, large).table["p_value"].iloc[1] == 1.0


@pytest.mark.parametrize(
    ("gain", "decrements", "is_nothing"),
    [
        (1.9e-11, (0.0, 0.0), True),  # two values of 100 rows, each rounded by 1e-11 or less
        (2.1e-11, (0.0, 0.0), False),
        (2.4e-10, (2e-5, 1e-5), True),  # two climbs ended 2e-10 and 5e-11 below their maxima
        (3.0e-10, (2e-5, 1e-5), False),
    ],
)
def test_a_likelihood_ratio_that_may_be_rounding_error_is_0(gain, decrements, is_nothing):
    small, large = (
        SimpleNamespace(llf=-80.0 + added, certificate=SimpleNamespace(newton_decrement=d))
        for added, d in zip((0.0, gain), decrements, strict=True)
    )
    for sign, (larger, smaller) in ((1.0, (large, small)), (-1.0, (small, large))):
        found = model_comparison.likelihood_ratio(larger, smaller, 100)
        assert found == (0.0 if is_nothing else pytest.approx(2.0 * sign * gain, abs=1e-13))


def test_names_of_terms_in_another_order(data):
    one = fit("y ~ (1|a) + (1|a:b)", data)
    other = fit("y ~ (1|a) + (1|b) + (1|b:a)", data)
    assert vcomp.compare(one, other).table["df"].iloc[1] == 1


def test_models_that_are_not_nested(data):
    found = vcomp.compare(fit("y ~ (1|a)", data), fit("y ~ (1|b)", data))
    assert found.table["statistic"].isna().all()
    assert found.table["df"].isna().all()
    assert found.table["aic"].notna().all()
    assert "is not nested in" in found.comparisons[0].notes[0]
    assert "AIC and BIC only" in str(found)
    fixed = vcomp.compare(fit("y ~ x + (1|a)", data, "ml"), fit("y ~ z + (1|a*b)", data, "ml"))
    assert "fixed effect 'x'" in fixed.comparisons[0].notes[0]


@pytest.mark.parametrize(("correlation", "outer"), [(1.0, 0.0), (-1.0, 0.5), (0.0, 0.25)])
@pytest.mark.parametrize("rounding", [-2e-16, 0.0, 2.5e-16])
def test_weights_of_correlations_next_to_1(correlation, outer, rounding, monkeypatch):
    """arccos(ρ)/2π of χ²_r, which has no value for 1 + 2e-16; the others are ½ and the rest."""
    rho = correlation + np.copysign(rounding, correlation) * np.sign(rounding)
    monkeypatch.setattr(model_comparison, "_efficient_correlation", lambda *_: rho)
    fit = SimpleNamespace(free={}, covariances=(), estimate=SimpleNamespace(names=(), values=()))
    weights, notes = _weights(fit, fit, [facets_of("a"), facets_of("b")])
    np.testing.assert_allclose(weights, [outer, 0.5, 0.5 - outer], atol=1e-8)
    assert notes == ()


@pytest.mark.parametrize("values", [(0.0, 1.0), (1.0, 0.0), (1.0, 2.0), (0.0, 0.0)])
def test_components_of_the_smaller_model_at_0_are_named(values):
    names = ("a", "Residual")
    free = {facets_of(name): name for name in names}
    fit = SimpleNamespace(
        free=free, covariances=(), estimate=SimpleNamespace(names=names, values=values)
    )
    weights, notes = _weights(fit, fit, [facets_of("b")])
    assert weights.tolist() == [0.5, 0.5]
    zero = ", ".join(f"σ²({name})" for name, v in zip(names, values, strict=True) if v == 0.0)
    said = f"{zero} of the smaller model at 0: the mixture is mostly conservative."
    assert notes == ((said,) if zero else ())
    assert _weights(fit, fit, [])[1] == ()


@pytest.mark.parametrize(
    ("small", "big", "why"),
    [
        ({"b": 2.0}, {}, "σ²(b) is held at different values"),  # 0 in the second, which has no b
        ({}, {"b": 2.0}, "σ²(b) is held at different values"),
        ({"b": 2.0}, {"b": 1.0}, "σ²(b) is held at different values"),
        ({"b": 2.0}, {"b": 2.0}, ""),
        ({"b": 0.0}, {}, ""),
        ({}, {"b": 0.0}, ""),
        ({"b": 2.0}, {"b": None}, ""),  # estimated in the second
        ({"b": None}, {"b": 2.0}, "σ²(b) is held in the second"),
        ({"b": None}, {}, "σ²(b) is missing in the second"),
    ],
)
def test_held_components_are_nested_where_they_have_the_same_value(small, big, why):
    """Of models with components a and e and, held at a value or estimated (None), b."""

    def fitted(b):
        values = {facets_of(name): v for name, v in b.items() if v is not None}
        free = {facets_of(name): name for name in ("a", "e", *b) if b.get(name) is None}
        return SimpleNamespace(exog_names=("Intercept",), known=values, free=free, groups=None)

    assert _not_nested(fitted(small), fitted(big)) == why


@pytest.mark.parametrize(
    ("below", "errors", "refused"),
    [
        (0.4e-6, (0.0, 0.0), False), (0.6e-6, (0.0, 0.0), True), (9.9, (3.0, 4.0), False),
        (10.1, (3.0, 4.0), True), (1.9, (1.0, 0.0), False), (2.1, (0.0, 1.0), True),
    ],
)  # fmt: skip
def test_the_larger_model_is_below_by_its_error_at_most(below, errors, refused):
    """Twice the difference of likelihoods with Monte Carlo errors, by four standard errors."""

    def fitted(llf, error, *names):
        values = np.ones(len(names))
        estimate = SimpleNamespace(
            llf=llf, llf_error=error, names=names, values=values, certificate=None
        )
        free = {facets_of(name): name for name in names}
        return SimpleNamespace(
            formula="+".join(names), exog_names=(), known={}, free=free, estimate=estimate,
            n_parameters=len(names), nobs=100, covariances=(), groups=None,
        )  # fmt: skip

    small, big = fitted(-50.0, errors[0], "a"), fitted(-50.0 - below, errors[1], "a", "b")
    if refused:
        with pytest.raises(vcomp.EstimationError, match="it is at another maximum"):
            _compared(small, big)
    else:
        found = _compared(small, big)
        assert (found.statistic, found.df, found.p_value) == (0.0, 1, 1.0)


def test_the_same_model_twice(data):
    found = vcomp.compare(fit("y ~ (1|a)", data), fit("y ~ (1|a)", data))
    assert "have the same parameters" in found.comparisons[0].notes[0]


def test_stored_results(data):
    results = fit("y ~ (1|a)", data), fit("y ~ (1|a) + (1|b)", data)
    stored = [vcomp.VarianceComponentsResults.from_json(r.to_json()) for r in results]
    pd.testing.assert_frame_equal(vcomp.compare(*stored).table, vcomp.compare(*results).table)
    # Weights of two need the rows of the larger model: without, the limit.
    small, large = fit("y ~ (1|a)", data), fit("y ~ (1|a*b)", data)
    away = vcomp.VarianceComponentsResults.from_json(large.to_json())
    here, there = vcomp.compare(small, large), vcomp.compare(small, away)
    assert there.comparisons[0].p_value >= here.comparisons[0].p_value
    assert there.comparisons[0].weights == (0.0, 0.5, 0.5)


def test_the_order_of_rows_does_not_matter(data):
    shuffled = data.sample(frac=1.0, random_state=1)
    assert vcomp.compare(fit("y ~ (1|a)", data), fit("y ~ (1|a*b)", shuffled)).table["df"].iloc[1]


@pytest.mark.parametrize(
    ("mean", "squares", "same"),
    [
        (10.0, 400.0, True),
        (10.0 + 1e-12, 400.0 * (1.0 + 1e-12), True),
        (10.0, 404.0, False),
        (10.0, 396.0, False),
        (10.1, 400.0, False),
        (9.9, 400.0, False),
    ],
)
def test_rows_are_known_by_mean_and_squares(mean, squares, same):
    for unit in (1.0, 1e-7, 1e7):
        fits = [
            SimpleNamespace(
                formula="y ~ 1",
                response="y",
                nobs=100,
                response_sums=sums,
                weights=None,
                offset=None,
            )
            for sums in ((10.0 * unit, 400.0 * unit**2), (mean * unit, squares * unit**2))
        ]
        for one, other in (fits, fits[::-1]):
            if same:
                check_rows(one, other)
            else:
                with pytest.raises(vcomp.DataError, match="fitted to different values of 'y'"):
                    check_rows(one, other)
    fits[1].response_sums = None
    for one, other in (fits, fits[::-1]):
        with pytest.raises(vcomp.DataError, match="stored by an older version"):
            check_rows(one, other)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_other_rows_are_noticed(data, offset):
    data = data.assign(y=data["y"] + offset)
    changed = data.copy()
    changed.loc[3, "y"] += 0.01
    res = fit("y ~ (1|a)", data)
    with pytest.raises(vcomp.DataError, match="different values of 'y'"):
        vcomp.compare(res, fit("y ~ (1|a*b)", changed))
    with pytest.raises(vcomp.DataError, match="rows: drop the rows with a missing"):
        vcomp.compare(res, fit("y ~ (1|a*b)", data.iloc[1:]))
    with pytest.raises(vcomp.DataError, match="responses 'y' and 'y2'"):
        vcomp.compare(res, fit("y2 ~ (1|a*b)", data.rename(columns={"y": "y2"})))
    if offset:  # squares about zero keep too few digits
        with pytest.raises(vcomp.DataError, match="and the model has no "):
            fit("y ~ 0 + (1|a)", data, "ml")
        return
    # Without an intercept the origin is 0, and the rows are the same all the same.
    ml = fit("y ~ (1|a)", data, "ml"), fit("y ~ 0 + (1|a)", data, "ml")
    assert vcomp.compare(*ml).table["df"].iloc[1] == 1


def test_likelihoods_that_cannot_be_compared(data):
    reml, ml = fit("y ~ (1|a)", data), fit("y ~ (1|a) + (1|b)", data, "ml")
    with pytest.raises(vcomp.EstimationError, match="by ML: fit both by the same method"):
        vcomp.compare(reml, ml)
    with pytest.raises(vcomp.EstimationError, match="fit both by method='ml'"):
        vcomp.compare(reml, fit("y ~ x + (1|a)", data))
    with pytest.raises(vcomp.EstimationError, match="fit both by method='ml'"):
        vcomp.compare(fit("y ~ x + (1|a)", data), fit("y ~ x + (1|a*b)", data.assign(x=data["z"])))
    with pytest.raises(vcomp.EstimationError, match="'anova', which has no likelihood"):
        vcomp.compare(reml, fit("y ~ (1|a) + (1|b)", data, "henderson3").model.fit("anova"))
    with pytest.warns(vcomp.VcompWarning, match="Not converged"):
        early = fit("y ~ (1|a*b)", data, max_iter=0)
    with pytest.raises(vcomp.EstimationError, match="is not at its maximum"):
        vcomp.compare(reml, early)


def test_what_is_no_comparison(data):
    with pytest.raises(vcomp.EstimationError, match="needs at least two results, not 1"):
        vcomp.compare(fit("y ~ (1|a)", data))
    with pytest.raises(
        vcomp.EstimationError, match=r"needs results such as vcomp.fit\(\) returns, not str"
    ):
        vcomp.compare("y ~ (1|a)", "y ~ (1|b)")


def test_tails_of_mixtures():
    weights, degrees = np.array([0.25, 0.5, 0.25]), np.array([0.0, 1.0, 2.0])
    assert mixture_tail(weights, degrees, 0.0) == 1.0
    expected = 0.5 * stats.chi2.sf(3.0, 1) + 0.25 * stats.chi2.sf(3.0, 2)
    assert mixture_tail(weights, degrees, 3.0) == pytest.approx(expected, rel=1e-12)


def test_the_printed_numbers_are_those_of_the_table(data):
    found = vcomp.compare(fit("y ~ (1|a)", data), fit("y ~ (1|a) + (1|b)", data))
    printed, table = printed_columns(found.summary(), 0), found.table
    for header, name, decimals in (("llf", "llf", 3), ("AIC", "aic", 2), ("BIC", "bic", 2)):
        cells = [cell.replace("−", "-") for cell in printed[header]]
        assert cells == [f"{x:.{decimals}f}" for x in table[name]]
    assert printed["LR"] == ["", f"{table['statistic'].iloc[1]:.3f}"]
    assert printed[""] == ["1", "2"]
    assert printed["p"][0] == ""
    assert float(printed["p"][1]) == pytest.approx(table["p_value"].iloc[1], rel=5e-3)


def test_printed(data):
    text = str(vcomp.compare(fit("y ~ (1|a)", data), fit("y ~ (1|a*b)", data)))
    assert "npar" in text
    assert "1: y ~ (1|a)" in text
    assert "2 against 1: 0." in text
    html = vcomp.compare(fit("y ~ (1|a)", data), fit("y ~ (1|a*b)", data))._repr_html_()
    assert html.count("<table") == html.count("</table") == 1


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("zero", [False, True])
def test_the_correlation_of_two_components_is_that_of_their_efficient_estimates(method, zero):
    """By the inverse of the dense expected information of what is free and not at zero."""
    rng = np.random.default_rng(3)
    n = 90
    sizes = {"a": 5, "b": 8, "c": 6, "d": 4}
    data = pd.DataFrame({f: rng.integers(q, size=n) for f, q in sizes.items()})
    data["y"] = rng.normal(size=n) + 2.0 * data["c"]
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b) + (1|c) + (1|d)", data)
    names = ("a", "b", "c", "d", "Residual")
    v = np.array([0.0, 0.0, 0.7, 0.0 if zero else 0.4, 0.6])
    null = SimpleNamespace(names=("d", "c", "Residual"), values=v[[3, 2, 4]])
    small = SimpleNamespace(estimate=null)
    big = SimpleNamespace(
        stats=model.statistics,
        estimate=SimpleNamespace(names=names, method=method),
        free={facets_of(name) for name in ("a", "b", "c", "d", "Residual")},
    )
    tested = [facets_of("a"), facets_of("b")]
    information = DenseLikelihood(model, reml=method == "reml").expected(v)
    kept = [0, 1, 2, 4] if zero else [0, 1, 2, 3, 4]
    cov = np.linalg.inv(information[np.ix_(kept, kept)])
    expected = cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1])
    assert abs(expected) > 1e-3
    for unit in (1.0, 1e-10, 1e10):  # of variances
        null.values = unit * v[[3, 2, 4]]
        found = _efficient_correlation(small, big, tested)
        assert found == pytest.approx(expected, rel=1e-8)
    null.values = v[[3, 2, 4]]
    big.free -= {facets_of("c")}  # held
    kept.remove(2)
    cov = np.linalg.inv(information[np.ix_(kept, kept)])
    expected = cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1])
    assert _efficient_correlation(small, big, tested) == pytest.approx(expected, rel=1e-8)
    small.estimate.values = v[[3, 2, 0]]  # without a residual nothing is known
    assert _efficient_correlation(small, big, tested) is None
    big.stats = None
    assert _efficient_correlation(small, big, tested) is None


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize(("moved", "expected"), [(0.0, False), (1e-10, False), (1e-6, True)])
@pytest.mark.parametrize("wide", [False, True])
def test_columns_of_any_unit_differ_by_more_than_rounding(unit, moved, expected, wide):
    """The second fit has the columns in another order."""
    X = unit * np.random.default_rng(1).normal(size=(20, 3))
    other = X[:, [2, 0, 1]].copy()
    other[:, 0] *= 1.0 + moved

    def of(columns, names):
        XX = columns.T @ columns
        products = SimpleNamespace(products_with=lambda a: XX @ a) if wide else None
        return SimpleNamespace(
            stats=SimpleNamespace(XX=XX, wide=products), exog_names=tuple(names)
        )

    nothing = of(np.zeros((20, 2)), "ab")
    assert not _columns_differ(nothing, nothing)
    one, two = of(X, "abc"), of(other, "cab")
    assert _columns_differ(one, two) is expected
    assert _columns_differ(two, one) is expected
    assert not _columns_differ(one, SimpleNamespace(stats=None, exog_names=("a",)))


@pytest.mark.parametrize("bars", ["(c||g)", "(0 + c|g)"])
@pytest.mark.parametrize("levels", ["pq", "pqr"])
def test_intercepts_are_nested_in_the_effects_of_a_factor(bars, levels):
    """σ²11' is one of their covariance matrices; (c|g) is the same model in differences."""
    rng = np.random.default_rng(5)
    g, c = np.repeat(np.arange(12), 12), np.tile(list(levels), 144 // len(levels))
    own = rng.normal(size=(12, 3))[g, np.unique(c, return_inverse=True)[1]]
    data = pd.DataFrame({"g": g, "c": c, "y": own + rng.normal(size=144)})
    small = fit("y ~ c + (1|g)", data)
    found = vcomp.compare(small, fit(f"y ~ c + {bars}", data)).comparisons[0]
    differences = vcomp.compare(small, fit("y ~ c + (c|g)", data)).comparisons[0]
    assert found.statistic == pytest.approx(differences.statistic, rel=1e-8)
    assert (found.df, found.weights) == (differences.df, differences.weights)
    assert found.p_value == pytest.approx(differences.p_value, rel=1e-7)


def test_intercepts_are_not_nested_in_slopes_or_in_some_levels():
    rng = np.random.default_rng(6)
    g = np.repeat(np.arange(10), 8)
    data = pd.DataFrame({"g": g, "x": rng.normal(size=80), "z": rng.normal(size=80)})
    data["c"] = np.tile(list("pq"), 40)
    data["y"] = rng.normal(size=10)[g] * (1 + data["x"]) + rng.normal(size=80)
    for bars in ("(0 + x + z|g)", "(0 + c:x|g)"):
        found = vcomp.compare(fit("y ~ (1|g)", data), fit(f"y ~ {bars}", data)).comparisons[0]
        assert np.isnan(found.statistic)
        assert "is not nested in" in found.notes[0]
