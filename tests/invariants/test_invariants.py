"""What must hold for every design: equalities that need no reference values."""

from __future__ import annotations

import copy
import warnings
from functools import cache, reduce
from operator import add

import numpy as np
import pandas as pd
import pytest
from patsy import EvalEnvironment

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import DESIGNS, balanced, unbalanced
from vcomp.data.reading import Reading
from vcomp.data.rows import Rows
from vcomp.design import learn
from vcomp.estimators.registry import get_estimator
from vcomp.formula import parse
from vcomp.statistics.cross_products import accumulate
from vcomp.statistics.statistics import Statistics

METHODS = ("anova", "reml", "ml")

ONE_METHOD = alternately(sorted(DESIGNS), *METHODS)
"""Each design with one method, by turns."""

OTHER_METHOD = alternately(sorted(DESIGNS), "reml", "ml", "anova")
"""Each design with another one."""


def fit(formula, data, method="reml", **options):
    with warnings.catch_warnings():
        # That Method I is a poor one for partly crossed data does not matter here.
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        return vcomp.fit(formula, data, method=method, **options)


@cache
def unbalanced_fit(design, method):
    """Return formula, data and result, which tests leave as they are."""
    formula, data = unbalanced(design)
    return formula, data, fit(formula, data, method)


@pytest.fixture(params=sorted(DESIGNS))
def design(request):
    return request.param


@pytest.mark.parametrize("seed", range(2))
def test_reml_is_anova_when_balanced_and_interior(design, seed):
    formula, data = balanced(design, seed, scale=4.0)
    by_anova = fit(formula, data, "anova").vcomp
    if (by_anova <= 0.0).any():
        by_reml = fit(formula, data, "reml").vcomp
        assert (by_reml >= 0.0).all()
        assert (by_reml == 0.0).any()
        return
    by_reml = fit(formula, data, "reml").vcomp
    np.testing.assert_allclose(by_reml, by_anova, rtol=1e-8)


@pytest.mark.parametrize(("design", "method"), ONE_METHOD)
def test_shift_and_scale(design, method):
    formula, data, res = unbalanced_fit(design, method)
    sd = data["y"].std()
    # 1e7 standard deviations leave nine digits of y: components agree to 1e-6.
    for a, b, rtol in (
        (1.0, 0.0, 1e-12),
        (3.5, 100.0, 1e-7),
        (1e-6, 0.0, 1e-8),
        (1.0, 1e7 * sd, 1e-6),
    ):
        moved = fit(formula, data.assign(y=a * data["y"] + b), method)
        np.testing.assert_allclose(
            moved.vcomp, a**2 * res.vcomp, rtol=rtol, atol=rtol * a**2 * res.vcomp.abs().max()
        )
        assert moved.fe_params.iloc[0] == pytest.approx(a * res.fe_params.iloc[0] + b, rel=1e-7)


@pytest.mark.parametrize(("design", "method"), OTHER_METHOD)
def test_row_order(design, method):
    formula, data, res = unbalanced_fit(design, method)
    other = fit(formula, data.sample(frac=1.0, random_state=5), method)
    scale = res.vcomp.abs().max()
    np.testing.assert_allclose(other.vcomp, res.vcomp, rtol=1e-9, atol=1e-11 * scale)
    for term, frame in res.random_effects.items():
        pd.testing.assert_frame_equal(frame, other.random_effects[term], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("design", "method"), ONE_METHOD)
def test_level_names(design, method):
    formula, data, res = unbalanced_fit(design, method)
    facets = [c for c in data.columns if c != "y"]
    renamed = data.copy()
    for facet in facets:
        levels = pd.unique(data[facet])
        new = np.random.default_rng(1).permutation(len(levels))
        names = {old: f"ü:{k}|{facet} {k}" for old, k in zip(levels, new, strict=True)}
        renamed[facet] = data[facet].map(names)
    other = fit(formula, renamed, method)
    scale = res.vcomp.abs().max()
    np.testing.assert_allclose(other.vcomp, res.vcomp, rtol=1e-9, atol=1e-11 * scale)


@pytest.mark.parametrize(("design", "method"), ONE_METHOD)
def test_container(design, method, tmp_path):
    import polars as pl
    import pyarrow as pa

    formula, data, res = unbalanced_fit(design, method)
    data.to_csv(tmp_path / "data.csv", index=False, float_format="%.17g")
    data.to_parquet(tmp_path / "data.parquet")
    containers = [
        {name: column.to_numpy() for name, column in data.items()},
        pl.from_pandas(data),
        pa.Table.from_pandas(data),
        tmp_path / "data.csv",
        str(tmp_path / "data.parquet"),
        data.astype({c: "category" for c in data.columns if c != "y"}),
    ]
    for container in containers:
        np.testing.assert_allclose(fit(formula, container, method).vcomp, res.vcomp, rtol=1e-12)


@pytest.mark.parametrize("order", [1, -1], ids=["as it is", "reversed"])
def test_container_and_row_order_do_not_change_codings(order, tmp_path):
    """Text has its levels sorted, wherever it comes from and whichever comes first."""
    import polars as pl
    import pyarrow as pa

    rng = np.random.default_rng(0)
    n = 60
    data = pd.DataFrame(
        {
            "y": rng.normal(size=n),
            "g": rng.choice(list("zyabc"), n),
            "sex": np.where(rng.random(n) < 0.5, "m", "f"),
        }
    )
    expected = vcomp.fit("y ~ sex + (1|g)", data)
    given = data.iloc[::order].reset_index(drop=True)
    given.to_csv(tmp_path / "data.csv", index=False, float_format="%.17g")
    given.to_parquet(tmp_path / "data.parquet")
    polars = pl.from_pandas(given)
    categories = polars.with_columns(pl.col("sex", "g").cast(pl.Categorical))
    for container in (
        *(given, given.to_dict("list"), polars, categories, pa.Table.from_pandas(given)),
        *(tmp_path / "data.csv", tmp_path / "data.parquet"),
    ):
        res = vcomp.fit("y ~ sex + (1|g)", container)
        pd.testing.assert_series_equal(res.fe_params, expected.fe_params)
        for term, frame in expected.random_effects.items():
            np.testing.assert_allclose(res.random_effects[term], frame, rtol=1e-6, atol=1e-12)
            assert list(map(str, res.random_effects[term].index)) == list(map(str, frame.index))


@pytest.mark.parametrize(("design", "method"), OTHER_METHOD)
def test_term_order(design, method):
    formula, data, res = unbalanced_fit(design, method)
    model = vcomp.VarianceComponentsModel(formula, data)
    reversed_ = " + ".join(f"(1|{t})" for t in reversed(model.component_names[:-1]))
    other = fit(f"y ~ {reversed_}", data, method)
    scale = res.vcomp.abs().max()
    np.testing.assert_allclose(
        other.vcomp[res.vcomp.index], res.vcomp, rtol=1e-8, atol=1e-10 * scale
    )


@pytest.mark.parametrize(
    ("design", "method", "n_chunks"),
    [(*pair, n_chunks) for pair, n_chunks in alternately(ONE_METHOD, 2, 7)],
)
def test_chunks_add_up(design, method, n_chunks):
    formula, data = unbalanced(design)
    environment = EvalEnvironment.capture()
    parsed = parse(formula)
    rows = Rows.select(parsed, data, Reading(environment))
    learned = learn(parsed, rows, environment)
    names = (*(t.name for t in learned.terms), "Residual")
    parts = np.array_split(np.random.default_rng(3).permutation(len(data)), n_chunks)
    chunks = (
        accumulate(learned.encode(Rows.select(parsed, data.iloc[part], Reading(environment))))
        for part in parts
    )
    summed = reduce(add, chunks)
    whole = accumulate(learned.encode(rows))
    by_parts = get_estimator(method).estimate(Statistics.from_cross_products(summed), names)
    by_one = get_estimator(method).estimate(Statistics.from_cross_products(whole), names)
    scale = np.abs(by_one.values).max()
    np.testing.assert_allclose(by_parts.values, by_one.values, rtol=1e-9, atol=1e-11 * scale)
    if method != "anova":
        assert by_parts.llf == pytest.approx(by_one.llf, rel=1e-12)


@pytest.mark.parametrize(("design", "method"), ONE_METHOD)
def test_fit_does_not_change_its_input(design, method):
    formula, data = unbalanced(design)
    before = copy.deepcopy(data)
    res = fit(formula, data, method)
    first = res.vcomp.index[0]
    for given in (res.vcomp, res.random_effects[first], res.fittedvalues, res.cov_vcomp()):
        given.iloc[:] = -1.0
    pd.testing.assert_frame_equal(data, before)
    assert (res.vcomp != -1.0).all()
    assert (res.random_effects[first] != -1.0).all(axis=None)
    assert (res.fittedvalues != -1.0).all()


def test_two_fits_of_one_model_do_not_see_each_other(design):
    formula, data = unbalanced(design)
    model = vcomp.VarianceComponentsModel(formula, data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", vcomp.VcompWarning)
        first = {m: model.fit(m).vcomp for m in METHODS}
        again = {m: model.fit(m).vcomp for m in reversed(METHODS)}
    for m in METHODS:
        pd.testing.assert_series_equal(first[m], again[m], check_exact=True)
        alone = unbalanced_fit(design, m)[2].vcomp
        pd.testing.assert_series_equal(first[m], alone, check_exact=True)


@pytest.mark.parametrize(("design", "reml"), alternately(sorted(DESIGNS), True, False))
def test_the_estimate_is_a_maximum(design, reml):
    formula, data, res = unbalanced_fit(design, "reml" if reml else "ml")
    model = vcomp.VarianceComponentsModel(formula, data)
    v = res.vcomp.to_numpy()
    rng = np.random.default_rng(7)
    for _ in range(30):
        other = np.maximum(v + 0.2 * v.sum() * rng.normal(size=v.size), 0.0)
        other[-1] = max(other[-1], 0.05 * v[-1])
        assert model.loglike(other, reml=reml) <= res.llf + 1e-9
    assert model.loglike(v, reml=reml) == pytest.approx(res.llf, rel=1e-13)


@pytest.mark.parametrize(("design", "method"), ONE_METHOD)
def test_nothing_is_lost_on_the_way_through_json_and_pickle(design, method):
    import pickle

    _, _, res = unbalanced_fit(design, method)
    for other in (
        vcomp.VarianceComponentsResults.from_json(res.to_json()),
        pickle.loads(pickle.dumps(res)),
    ):
        pd.testing.assert_series_equal(other.params, res.params, check_exact=True)
        pd.testing.assert_frame_equal(other.cov_params(), res.cov_params(), check_exact=True)
        pd.testing.assert_frame_equal(other.gstudy(), res.gstudy(), check_exact=True)
        pd.testing.assert_frame_equal(other.anova_table(), res.anova_table(), check_exact=True)
        pd.testing.assert_frame_equal(other.dstudy().table, res.dstudy().table, check_exact=True)
        pd.testing.assert_frame_equal(other.glance(), res.glance(), check_exact=True)
        assert str(other.summary()) == str(res.summary())
        assert str(other.design) == str(res.design)
        with pytest.raises(vcomp.DataError, match="loaded without its rows"):
            _ = other.fittedvalues


@pytest.mark.parametrize(("design", "method"), ONE_METHOD)
def test_fitted_values_and_residuals(design, method):
    _, data, res = unbalanced_fit(design, method)
    np.testing.assert_allclose(res.fittedvalues + res.resid, data["y"], rtol=1e-12)
    np.testing.assert_allclose(res.predict(data), res.fittedvalues, rtol=1e-12)
    np.testing.assert_allclose(res.predict(data.drop(columns="y")), res.fittedvalues, rtol=1e-12)
    augmented = res.augment()
    np.testing.assert_allclose(augmented["fitted"] + augmented["resid"], augmented["y"])
