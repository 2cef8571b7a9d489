from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import vcomp
from tests.helpers.multivariate_scores import SMALL, alone_of, crossed, layout_of, unit_matrices
from vcomp.estimators.likelihood import elements
from vcomp.multivariate.analogous import analogous_components, analogous_covariance
from vcomp.multivariate.strata_covariances import polarised_components, polarised_covariance

FORMULA = "x + y ~ (1|p) + (1|i)"


def mean_products_by_hand():
    """Brennan (2001, section 9.2): mean products in fractions, and components from them."""
    table = {name: SMALL.pivot(index="p", columns="i", values=name).to_numpy() for name in "xy"}
    n_p, n_i = table["x"].shape

    def component(a, b):
        A = [[Fraction(int(z)) for z in row] for row in table[a]]
        B = [[Fraction(int(z)) for z in row] for row in table[b]]

        def parts(M):
            rows = [sum(row) / n_i for row in M]
            columns = [sum(column) / n_p for column in zip(*M, strict=True)]
            return rows, columns, sum(rows) / n_p

        (ra, ca, ma), (rb, cb, mb) = parts(A), parts(B)
        mp_p = n_i * sum((u - ma) * (w - mb) for u, w in zip(ra, rb, strict=True)) / (n_p - 1)
        mp_i = n_p * sum((u - ma) * (w - mb) for u, w in zip(ca, cb, strict=True)) / (n_i - 1)
        mp_r = sum(
            (A[p][i] - ra[p] - ca[i] + ma) * (B[p][i] - rb[p] - cb[i] + mb)
            for p in range(n_p)
            for i in range(n_i)
        ) / ((n_p - 1) * (n_i - 1))
        return [(mp_p - mp_r) / n_i, (mp_i - mp_r) / n_p, mp_r]

    pairs = [("x", "x"), ("x", "y"), ("y", "y")]
    return {pair: [float(c) for c in component(*pair)] for pair in pairs}


@pytest.mark.parametrize("method", ["anova", "type1", "henderson3"])
def test_balanced_components_are_those_of_mean_products(method):
    values = polarised_components(layout_of(FORMULA, SMALL), method)
    by_hand = mean_products_by_hand()
    for (a, b), expected in by_hand.items():
        found = values[:, "xy".index(a), "xy".index(b)]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_covariances_of_mean_products_are_wishart():
    """Cov(M_ab, M_cd) = (Λ_ac Λ_bd + Λ_ad Λ_bc)/df, here at the estimates."""
    layout = layout_of(FORMULA, SMALL)
    values = polarised_components(layout, "anova")
    cov, why = polarised_covariance(layout, "anova", values)
    assert why == ""
    n_p, n_i = 4, 3
    C = np.array([[n_i, 0, 1], [0, n_p, 1], [0, 0, 1]], dtype=float)
    L = np.einsum("st,tab->sab", C, values)
    df = [n_p - 1, n_i - 1, (n_p - 1) * (n_i - 1)]
    to_components = np.linalg.inv(C)
    places = elements(layout.linked)
    expected = np.zeros((len(places), len(places)))
    for x, (t, a, b) in enumerate(places):
        for z, (u, c, d) in enumerate(places):
            expected[x, z] = sum(
                to_components[t, s]
                * to_components[u, s]
                * (L[s, a, c] * L[s, b, d] + L[s, a, d] * L[s, b, c])
                / df[s]
                for s in range(3)
            )
    np.testing.assert_allclose(cov, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", ["anova", "type1", "henderson3"])
def test_one_variable_has_what_it_has_alone(method):
    data = crossed(3).drop(index=[1, 7, 30])
    layout = layout_of("a + b + c ~ (1|p) + (1|i)", data)
    values = polarised_components(layout, method)
    cov, _ = polarised_covariance(layout, method, values)
    places = elements(layout.linked)
    for k, name in enumerate("abc"):
        alone = alone_of(f"{name} ~ (1|p) + (1|i)", data, method=method)
        np.testing.assert_allclose(values[:, k, k], alone.vcomp, rtol=1e-10)
        own = [places.index((t, k, k)) for t in range(3)]
        np.testing.assert_allclose(cov[np.ix_(own, own)], alone.cov_vcomp(), rtol=1e-9)


@pytest.mark.parametrize("method", ["anova", "type1", "henderson3"])
def test_a_composite_has_what_its_scores_have(method):
    """w'Σw is the closed form of the weighted scores, with its standard error."""
    data = crossed(4).drop(index=[0, 13])
    weights = np.array([0.5, -1.0, 2.0])
    data["z"] = data[list("abc")].to_numpy() @ weights
    res = vcomp.fit_multivariate("a + b + c ~ (1|p) + (1|i)", data, method=method)
    made = res.composite(weights).components
    alone = alone_of("z ~ (1|p) + (1|i)", data, method=method)
    np.testing.assert_allclose(made.values, alone.vcomp, rtol=1e-10)
    np.testing.assert_allclose(made.cov, alone.cov_vcomp(), rtol=1e-9)


def test_units_far_apart_do_not_drown_each_other():
    data = crossed(5)
    plain = polarised_components(layout_of("a + b ~ (1|p) + (1|i)", data), "anova")
    far = data.assign(a=data["a"] * 1e7 + 1e9)
    scaled = polarised_components(layout_of("a + b ~ (1|p) + (1|i)", far), "anova")
    np.testing.assert_allclose(scaled[:, 0, 1], plain[:, 0, 1] * 1e7, rtol=1e-7)


@pytest.mark.parametrize("drop", [[], [2, 9, 17]], ids=["complete", "rows missing"])
def test_analogous_products_of_the_same_rows_are_method_one(drop):
    layout = layout_of("a + b + c ~ (1|p) + (1|i)", crossed(6).drop(index=drop))
    values = polarised_components(layout, "anova")
    np.testing.assert_allclose(analogous_components(layout), values, rtol=1e-9, atol=1e-12)
    expected, _ = polarised_covariance(layout, "anova", values)
    found, _ = analogous_covariance(layout, values)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_estimates_are_unbiased():
    """Expectations of the closed form at known components are these, by the dense matrices."""
    layout = layout_of("a + b ~ (1|p) + (1|i)", crossed(7, n_p=5, n_i=4, v=2).drop(index=[3]))
    D = unit_matrices(layout)
    rng = np.random.default_rng(0)
    true = rng.normal(size=len(D))
    # E[q(y, z)] is linear in V: add up the forms of a square root's columns.
    V = np.einsum("m,mij->ij", true, D) + 50.0 * np.eye(layout.scores.n)
    shifted = true + 50.0 * np.array([t == 2 and a == b for t, a, b in elements(layout.linked)])
    columns = np.linalg.cholesky(V)
    total = np.zeros(len(D))
    for column in columns.T:
        scores = replace(layout.scores, y=column)
        one = replace(layout, scores=scores)
        # The models keep their own rows; the forms here read the layout alone.
        total += [analogous_components(one)[e] for e in elements(layout.linked)]
    np.testing.assert_allclose(total, shifted, rtol=1e-9)
