"""Tukey's test and correlations, against statsmodels and explicit formulas."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from vcomp.inference.assumptions.sphericity import sphericity
from vcomp.inference.assumptions.two_way_table import TwoWayTable, findings_of, tukey


def table(n=12, k=5, seed=1, missing=0.0):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(n, 1)) + rng.normal(size=k) + rng.normal(size=(n, k))
    y[rng.random((n, k)) < missing] = np.nan
    return TwoWayTable.of(y)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_tukey_is_the_test_of_the_product_of_effects(missing):
    made = table(missing=missing)
    row, column = np.nonzero(made.observed)
    frame = pd.DataFrame({"y": made.values[made.observed], "r": row, "c": column})
    a, b = made.effects
    frame["product"] = a[row] * b[column]
    additive = smf.ols("y ~ C(r) + C(c)", frame).fit()
    np.testing.assert_allclose(made.residuals[made.observed], additive.resid, atol=1e-10)
    assert made.df == additive.df_resid
    with_product = smf.ols("y ~ C(r) + C(c) + product", frame).fit()
    slope, test = tukey(made)
    assert slope == pytest.approx(with_product.params["product"], rel=1e-8)
    assert test.statistic == pytest.approx(with_product.tvalues["product"] ** 2, rel=1e-8)
    assert test.p_value == pytest.approx(with_product.pvalues["product"], rel=1e-8)
    assert test.effect == pytest.approx(1 - with_product.ssr / additive.ssr, rel=1e-8)


def test_correlations_are_those_of_numpy():
    made = table(30, 6)
    e = made.residuals
    np.testing.assert_allclose(made.correlations, np.corrcoef(e, rowvar=False), atol=1e-12)
    np.testing.assert_allclose(made.covariance, np.cov(e, rowvar=False), atol=1e-12)
    expected = [np.corrcoef(e[:, s], made.effects[0])[0, 1] for s in range(6)]
    np.testing.assert_allclose(made.row_correlations, expected, atol=1e-12)


def test_pairs_and_effects_that_correlate_are_found():
    rng = np.random.default_rng(2)
    topic = rng.normal(size=(60, 1))
    y = topic * np.linspace(0.5, 1.5, 8) + rng.normal(size=(60, 8))
    twin = y + 0.0
    twin[:, 3] = y[:, 2] + 0.2 * rng.normal(size=60)
    found = findings_of(TwoWayTable.of(twin), 199, np.random.default_rng(1))
    first, second, r, p = found.pairs()[0]
    assert {first, second} == {"2", "3"}
    assert r > 0.8
    assert p == 1 / 200
    # One more than the draws whose largest correlation is as large; all of them reach r = 0.
    p_values, r = found.p_pairs, np.abs(found.table.correlations)
    np.testing.assert_allclose(200 * p_values, np.round(200 * p_values), rtol=1e-12)
    assert (p_values[r == r.min()] > 0.9).all()
    assert p_values.max() <= 1.0
    falling = p_values.ravel()[np.argsort(r.ravel())]
    assert (np.diff(falling) <= 0.0).all()
    effects = next(t for t in found.tests if t.assumption == "uncorrelated effects")
    assert effects.p_value < 0.01
    assert effects.effect == pytest.approx(
        np.sqrt(np.mean(found.table.row_correlations**2)), abs=0.1
    )


@pytest.mark.parametrize(("missing", "n"), [(0.0, 6100), (0.2, 39)])
def test_correlations_are_beyond_those_with_random_signs(missing, n):
    """Every draw by least squares on columns of zeros and ones; 6100 are more than one block."""
    made = table(8, 4, seed=5, missing=missing)
    seen = made.observed
    row, column = np.nonzero(seen)
    Z = np.column_stack([np.eye(8)[row], np.eye(4)[column]])
    leave = np.eye(row.size) - Z @ np.linalg.pinv(Z)
    effects = np.linalg.lstsq(Z, made.values[seen], rcond=None)[0]
    for own, of_term in zip(made.effects, (effects[:8], effects[8:]), strict=True):
        np.testing.assert_allclose(own, of_term - of_term.mean(), atol=1e-12)

    def correlations(residuals):
        """Return r of every two columns, and of each column with the effects of rows."""
        e = np.zeros((len(residuals), 8, 4))
        e[:, seen] = residuals
        a = np.where(seen, (effects[:8] - effects[:8].mean())[:, None], 0.0)
        length = np.sqrt((e**2).sum(axis=1))
        r = np.einsum("dij,dik->djk", e, e) / (length[:, :, None] * length[:, None])
        of_rows = (e * a).sum(axis=1) / (length * np.sqrt((a**2).sum(axis=0)))
        return r[:, *np.triu_indices(4, 1)], of_rows

    e = leave @ made.values[seen]
    rng = np.random.default_rng(7)
    signs = np.array([rng.integers(0, 2, (8, 4), np.int8)[seen] for _ in range(n)]) * 2.0 - 1.0
    (r, of_rows), (drawn, drawn_rows) = correlations(e[None]), correlations(signs * e @ leave)
    found = findings_of(made, n, np.random.default_rng(7))
    for assumption, own, null in (
        ("uncorrelated effects", of_rows, drawn_rows), ("uncorrelated", r, drawn),
    ):  # fmt: skip
        (test,) = (t for t in found.tests if t.assumption == assumption)
        own, null = np.mean(own**2), np.mean(null**2, axis=1)
        assert test.statistic == pytest.approx(own, rel=1e-10)
        assert test.p_value == (1 + (null >= own).sum()) / (n + 1)
        assert test.effect == pytest.approx(np.sqrt(max(own - null.mean(), 0.0)), rel=1e-8)
    largest = np.abs(drawn).max(axis=1)
    p_pairs = [(1 + (largest >= abs(one)).sum()) / (n + 1) for one in r[0]]
    np.testing.assert_allclose(found.p_pairs[np.triu_indices(4, 1)], p_pairs, rtol=1e-12)
    np.testing.assert_array_equal(found.p_pairs, found.p_pairs.T)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_unit_of_the_scores_does_not_matter(unit):
    sd = np.array([1.0, 1.0, 5.0, 1.0, 1.0, 1.0])
    made = TwoWayTable.of(sd * table(14, 6).values)
    other = TwoWayTable.of(unit * made.values)
    S, df = made.covariance, 13.0
    assert sphericity(S, df) < 1.0
    assert sphericity(other.covariance, df) == pytest.approx(sphericity(S, df), rel=1e-11)
    (_, test), (_, scaled) = tukey(made), tukey(other)
    assert scaled.statistic == pytest.approx(test.statistic, rel=1e-9)
    assert scaled.p_value == pytest.approx(test.p_value, rel=1e-9)
    np.testing.assert_allclose(other.correlations, made.correlations, atol=1e-12)
    np.testing.assert_allclose(other.row_correlations, made.row_correlations, atol=1e-12)
