"""Fixed parts with columns that are linear combinations of others, against dense least squares."""

import json

import numpy as np
import pandas as pd
import pytest
from patsy import dmatrix
from scipy.linalg import null_space, qr

import vcomp

RNG = np.random.default_rng(7)
N = 90
A, B = np.repeat(np.arange(3), 30), RNG.integers(0, 3, N)
ROWS = pd.DataFrame(
    {
        "a": [f"a{i}" for i in A],
        "b": [f"b{i}" for i in B],
        "g": RNG.integers(0, 6, N),
        "h": RNG.integers(0, 5, N),
        "x": RNG.normal(100.0, 1.0, N),
    }
)
ROWS["y"] = RNG.normal(size=6)[ROWS["g"]] + ROWS["x"] + RNG.normal(size=N)
ROWS["twice"], ROWS["one"], ROWS["zero"] = 2.0 * ROWS["x"] + 3.0, 1.0, 0.0
ROWS = ROWS[~((A == 2) & (B == 2))].sample(frac=1.0, random_state=1).reset_index(drop=True)
FORMULA = "y ~ a*b + x + twice + (1|g) + (1|h)"
LEFT_OUT = ["a[T.a2]:b[T.b2]", "twice"]


def fitted(formula, data, **options):
    with pytest.warns(vcomp.VcompWarning, match="left out"):
        return vcomp.fit(formula, data, **options)


@pytest.fixture(scope="module")
def res():
    return fitted(FORMULA, ROWS)


def dense(fixed, v, data=ROWS, reml=True):
    """The log-likelihood, fitted means and rank of a fixed part, from its column space."""
    X = np.asarray(dmatrix(fixed, data))
    Q, R, _ = qr(X, mode="economic", pivoting=True)
    U = Q[:, np.abs(np.diagonal(R)) > 1e-8 * abs(R[0, 0])]
    Z = [pd.get_dummies(data[f]).to_numpy(float) for f in ("g", "h")]
    V = sum(c * z @ z.T for c, z in zip(v, Z, strict=False)) + v[-1] * np.eye(len(data))
    W, y = np.linalg.inv(V), data["y"].to_numpy()
    beta = np.linalg.solve(U.T @ W @ U, U.T @ W @ y)
    rest, n = y - U @ beta, len(y) - (U.shape[1] if reml else 0)
    terms = np.linalg.slogdet(V)[1] + rest @ W @ rest + n * np.log(2.0 * np.pi)
    if reml:
        terms += np.linalg.slogdet(U.T @ W @ U)[1]
    return -0.5 * terms, U @ beta, U.shape[1]


@pytest.mark.parametrize("reml", [True, False])
def test_likelihood_and_means_are_those_of_the_column_space(reml):
    fit = fitted(FORMULA, ROWS, method="reml" if reml else "ml")
    llf, means, rank = dense("a*b + x + twice", fit.vcomp.to_numpy(), reml=reml)
    assert len(fit.fe_params) == rank == 9
    # The restricted likelihood has |X'V⁻¹X|, of columns in place of an orthonormal basis.
    other = fit.vcomp.to_numpy() * [1.3, 0.7, 1.1]
    moved = dense("a*b + x + twice", other, reml=reml)[0]
    assert fit.model.loglike(other, reml=reml) - fit.llf == pytest.approx(moved - llf, abs=1e-9)
    # Values near 100 with a rounding of 1e-14 each
    np.testing.assert_allclose(fit.predict(ROWS, level="population"), means, rtol=1e-11)
    assert not set(fit.fe_params.index).intersection(LEFT_OUT)


def test_the_maximum_is_that_of_the_column_space(res):
    v, best = res.vcomp.to_numpy(), dense("a*b + x + twice", res.vcomp.to_numpy())[0]
    for place in range(3):
        for factor in (0.98, 1.02):
            near = np.where(np.arange(3) == place, factor * v, v)
            assert dense("a*b + x + twice", near)[0] <= best


@pytest.mark.parametrize("method", ["reml", "ml", "type1", "henderson3", "minque"])
@pytest.mark.parametrize("how", [{}, {"stream": True}])
def test_every_estimator_is_that_of_a_formula_without_the_columns(method, how):
    plain = "y ~ a + b + Q('a[T.a1]:b[T.b1]') + Q('a[T.a2]:b[T.b1]') + Q('a[T.a1]:b[T.b2]') + x"
    products = dmatrix("a*b", ROWS, return_type="dataframe").iloc[:, 5:]
    expected = vcomp.fit(f"{plain} + (1|g) + (1|h)", ROWS.join(products), method=method)
    fit = fitted(FORMULA, ROWS, method=method, **how)
    np.testing.assert_allclose(fit.vcomp, expected.vcomp, rtol=1e-6)
    np.testing.assert_allclose(fit.fe_params, expected.fe_params, rtol=1e-6)
    np.testing.assert_allclose(fit.bse_fe, expected.bse_fe, rtol=1e-6)


COMPLETE = pd.DataFrame(
    [(i, j, k) for i in range(8) for j in range(6) for k in range(2)], columns=["g", "h", "m"]
)
COMPLETE["z"] = (COMPLETE["g"] % 2) * 1.0
COMPLETE["u"] = 3.0 - COMPLETE["z"]
COMPLETE["y"] = RNG.normal(size=8)[COMPLETE["g"]] + RNG.normal(size=96)


@pytest.mark.parametrize(
    "data",
    [COMPLETE, COMPLETE.drop([3, 40]), COMPLETE[COMPLETE["m"] == 0].drop([4, 10])],
    ids=["strata", "unbalanced", "single"],
)
@pytest.mark.parametrize("how", [{}, {"stream": True}])
def test_every_kind_of_sum(data, how):
    expected = vcomp.fit("y ~ z + (1|g) + (1|h)", data)
    fit = fitted("y ~ z + u + (1|g) + (1|h)", data, **how)
    np.testing.assert_allclose(fit.vcomp, expected.vcomp, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(fit.fe_params, expected.fe_params, rtol=1e-9)
    assert fit.llf == pytest.approx(expected.llf, abs=1e-9)


@pytest.mark.parametrize("engine", ["blocked", "iterative", "levels"])
def test_every_engine(engine):
    data = COMPLETE[COMPLETE["m"] == 0].drop([4, 10])
    expected = vcomp.fit("y ~ z + (1|g) + (1|h)", data, engine=engine)
    fit = fitted("y ~ z + u + (1|g) + (1|h)", data, engine=engine)
    np.testing.assert_allclose(fit.vcomp, expected.vcomp, rtol=1e-7, atol=1e-12)


def test_merged_statistics():
    parts = [vcomp.accumulate(FORMULA, ROWS.iloc[k::2]) for k in range(2)]
    with pytest.warns(vcomp.VcompWarning, match="left out"):
        merged = (parts[0] + parts[1]).fit()
    np.testing.assert_allclose(merged.vcomp, fitted(FORMULA, ROWS).vcomp, rtol=1e-7)


def test_columns_beside_a_factor_of_many_levels():
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"item": np.tile(np.arange(150), 8), "g": np.repeat(np.arange(8), 150)})
    data["of_item"] = np.sqrt(data["item"])
    data["x"] = rng.normal(size=1200)
    data["y"] = data["x"] + rng.normal(size=8)[data["g"]] + rng.normal(size=1200)
    wide = "y ~ x + of_item + C(item) + (1|g)"
    fit, expected = fitted(wide, data), vcomp.fit("y ~ x + C(item) + (1|g)", data)
    np.testing.assert_allclose(fit.vcomp, expected.vcomp, rtol=1e-9)
    np.testing.assert_allclose(fit.fe_params, expected.fe_params, rtol=1e-6, atol=1e-9)
    with pytest.raises(vcomp.DataError, match="of_item"):
        fit.predict(data.head(2).assign(of_item=-1.0))


@pytest.mark.parametrize(
    ("right", "left_out"),
    [
        ("x + twice", ["twice"]),
        ("twice + x", ["x"]),
        ("one", ["one"]),
        ("zero", ["zero"]),
        ("0 + zero", ["zero"]),
        ("a + C(a)", ["C(a)[T.a1]", "C(a)[T.a2]"]),
        ("0 + a + one", ["one"]),
        ("0 + a + C(b, Treatment) + x + I(x - 100)", ["I(x - 100)"]),
        ("bs(x, df=4) + x", ["x"]),
    ],
)
def test_which_columns_are_left_out(right, left_out):
    fit = fitted(f"y ~ {right} + (1|g)", ROWS)
    X = np.asarray(dmatrix(right, ROWS))
    assert len(fit.fe_params) == X.shape[1] - null_space(X, rcond=1e-9).shape[1]
    names = dmatrix(right, ROWS).design_info.column_names
    assert [name for name in names if name not in fit.fe_params.index] == left_out
    for name in left_out:
        assert repr(name) in str(fit.summary()).replace("\n  ", " ")
    np.testing.assert_allclose(
        fit.predict(ROWS, level="population"),
        dense(right, [fit.vcomp["g"], 0.0, fit.vcomp["Residual"]])[1] if X.any() else 0.0,
        rtol=1e-7,
    )


def test_a_stored_result_names_them(res):
    stored = type(res).from_json(res.to_json())
    assert str(stored.summary()) == str(res.summary())
    assert all(name in str(stored.summary()) for name in LEFT_OUT)
    older = json.loads(res.to_json())
    assert "left_out" in json.dumps(older)


def test_means_of_rows_like_those_fitted(res):
    np.testing.assert_allclose(res.predict(ROWS), res.fittedvalues, rtol=1e-12)
    new = pd.DataFrame({"a": ["a2", "a1"], "b": ["b1", "b2"], "x": [90.0, 110.0]})
    new["twice"] = 2.0 * new["x"] + 3.0
    _, means, _ = dense("a*b + x + twice", res.vcomp.to_numpy())
    # The mean at (a2, b1) is that of rows of this cell, moved by the slope.
    cell = ROWS[(ROWS["a"] == "a2") & (ROWS["b"] == "b1")]
    slope = np.polyfit(cell["x"], means[cell.index], 1)
    found = res.predict(new, level="population")
    np.testing.assert_allclose(found[0], np.polyval(slope, 90.0), rtol=1e-8)


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"a": "a2", "b": "b2", "x": 100.0, "twice": 203.0}, "a[T.a2]:b[T.b2]"),
        ({"a": "a0", "b": "b0", "x": 100.0, "twice": 200.0}, "twice"),
    ],
)
def test_means_that_the_rows_do_not_tell(res, row, name):
    with pytest.raises(vcomp.DataError) as caught:
        res.predict(pd.DataFrame([row]), level="population")
    assert f"do not determine the effect of {name};" in str(caught.value)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_tests_of_a_column_left_out(res, name):
    for test in (res.f_test, res.t_test, type(res).from_json(res.to_json()).f_test):
        with pytest.raises(
            vcomp.EstimationError, match="was left out of the fixed part"
        ) as caught:
            test(f"{name} = 0")
        assert repr(name) in str(caught.value)
    assert res.f_test("x = 0").p_value < 0.01


def test_levels_with_a_combination_without_rows(res):
    compared = res.compare_levels("a")
    assert list(compared.means.index) == ["a0", "a1"]
    assert "a a2" in str(compared)
    beta, names = res.fe_params, list(res.fe_params.index)
    a1 = np.array([n == "a[T.a1]" for n in names], float)
    a1 += np.array([n in ("a[T.a1]:b[T.b1]", "a[T.a1]:b[T.b2]") for n in names]) / 3.0
    difference = -(a1 @ beta)
    assert compared.table["difference"][0] == pytest.approx(difference, rel=1e-9)
    cells = ROWS.assign(ab=ROWS["a"] + ROWS["b"])
    with pytest.raises(vcomp.EstimationError, match=r"a 'a2' .* not estimable.* leave it out of"):
        res.compare_levels("a", levels=["a2", "a1"])
    with pytest.raises(vcomp.EstimationError, match=r"a 'a2' .* name another baseline=, or fit a"):
        res.compare_levels("a", baseline="a2")
    named = res.compare_levels("a", levels=["a0", "a1"])
    assert not any("Left out" in note for note in named.notes)
    np.testing.assert_array_equal(named.table["difference"], compared.table["difference"])
    np.testing.assert_allclose(
        res.compare_levels("g").table["difference"],
        vcomp.fit("y ~ ab + x + (1|g) + (1|h)", cells).compare_levels("g").table["difference"],
        rtol=1e-6,
    )


def test_of_two_levels_one_cannot_be_left_out():
    two = ROWS[ROWS["a"] != "a1"]
    with pytest.warns(vcomp.VcompWarning, match="left out"):
        res = vcomp.fit("y ~ a*b + (1|g)", two)
    for options in ({}, {"levels": ["a0", "a2"]}, {"baseline": "a2"}):
        with pytest.raises(vcomp.EstimationError, match="no rows; fit a without its interactions"):
            res.compare_levels("a", **options)
    apart = vcomp.fit("y ~ a + b + (1|g)", two)
    assert apart.compare_levels("a").table["difference"][0] == pytest.approx(
        -apart.fe_params["a[T.a2]"], rel=1e-9
    )


def test_a_column_that_nearly_is_a_combination_is_refused():
    near = ROWS.assign(near=ROWS["x"] + 1e-7 * RNG.normal(size=len(ROWS)))
    with pytest.raises(vcomp.DesignError, match=r"column 'near' .* differs by .* combination"):
        vcomp.fit("y ~ x + near + (1|g)", near)


def test_rows_are_counted_against_the_columns_that_are_kept():
    few = ROWS.groupby(["a", "b"]).head(2)
    assert len(few) == 16
    columns = " + ".join(f"I({k} * x)" for k in range(1, 9))
    assert len(fitted(f"y ~ a*b + {columns} + (1|g)", few).fe_params) == 9
