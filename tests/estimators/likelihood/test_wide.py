"""A factor of many levels in the fixed part: sparse elimination against dense formulas."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.likelihood import EngineLimits, Projector, choose_engine
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.estimators.likelihood.fixed_part import SparseCovariance
from vcomp.estimators.likelihood.prediction_errors import difference_variances
from vcomp.exceptions import DataError, DesignError, EstimationError, VcompError
from vcomp.formula.coding import WideLimits
from vcomp.model import VarianceComponentsModel
from vcomp.statistics import CrossProducts, Statistics, WideProducts, find_wide_products
from vcomp.statistics.cross_products import accumulate
from vcomp.statistics.roll_up import RollUp

LEAVES = "y ~ x + item + (1|a) + (1|b)"
"""Terms with fewer groups than the factor has levels, so that its columns come first."""
INSIDE = "y ~ x + item + (1|a) + (1|b) + (1|a:b) + (1|item:a)"


def _data(n: int = 3_500, n_items: int = 200, seed: int = 1) -> pd.DataFrame:
    """Return enough rows that the columns of the factor are kept sparse."""
    rng = np.random.default_rng(seed)
    a, b, item = rng.integers(0, 13, n), rng.integers(0, 9, n), rng.integers(0, n_items, n)
    y = rng.normal(size=13)[a] + 0.5 * rng.normal(size=9)[b] + rng.normal(size=n)
    y += 0.4 * rng.normal(size=(n_items, 13))[item, a] + rng.normal(size=n_items)[item]
    levels = [f"i{k:05d}" for k in range(n_items)]
    x = rng.normal(5.0, 1.0, n)
    return pd.DataFrame(
        {"a": a, "b": b, "item": pd.Categorical.from_codes(item, levels), "x": x, "y": y + 0.3 * x}
    )


def _model(formula: str, data: pd.DataFrame, least: int = 100) -> VarianceComponentsModel:
    """Return a model whose factor counts as one of very many levels."""
    model = VarianceComponentsModel(formula, data)
    wide = find_wide_products(model.statistics.rows, RollUp(model.statistics.rows), least)
    assert wide is not None
    return _with_statistics(model, replace(model.statistics, strata=None), wide)


def _dense(formula: str, data: pd.DataFrame) -> VarianceComponentsModel:
    """Return a model whose factor has dense columns."""
    model = VarianceComponentsModel(formula, data)
    statistics = Statistics.from_cells(lambda: model.statistics.rows, None, None, None)
    return _with_statistics(model, statistics, None)


def _with_statistics(
    model: VarianceComponentsModel, statistics: Statistics, wide: WideProducts | None
) -> VarianceComponentsModel:
    """Return a model with other statistics, whose sums with a wide factor are known."""
    vars(statistics)["wide"] = wide
    return VarianceComponentsModel(model.formula, replace(model._data, statistics=statistics))


@cache
def _sparse_and_dense_fits(
    formula: str, method: str = "reml", n: int = 3_500, n_items: int = 200
) -> tuple[vcomp.VarianceComponentsResults, vcomp.VarianceComponentsResults]:
    """Return the fits of one table, the columns of its factor sparse and dense."""
    data = _data(n, n_items)
    return _model(formula, data).fit(method), _dense(formula, data).fit(method, engine="blocked")


def _sums(formula: str, data: pd.DataFrame | None = None) -> tuple[WideProducts, CrossProducts]:
    model = VarianceComponentsModel(formula, _data() if data is None else data)
    wide = find_wide_products(model.statistics.rows, RollUp(model.statistics.rows), 100)
    assert wide is not None
    return wide, accumulate(model.statistics.rows)


@pytest.fixture(scope="module", params=[LEAVES, INSIDE], ids=["leaves", "inside"])
def sums(request: Any) -> tuple[WideProducts, CrossProducts]:
    """The sums of data with a factor, with its columns sparse and dense."""
    return _sums(request.param)


def _points(k: int) -> list[list[float]]:
    return [
        [*([0.7, 0.3, 0.2, 0.1][:k]), 1.1],
        [*([0.7, 0.0, 0.2, 0.0][:k]), 1.1],
        [*([0.0] * k), 2.0],
    ]


class TestLikelihood:
    def test_sums_are_those_of_dense_columns(self, sums):
        wide, dense = sums
        np.testing.assert_allclose(wide.XX, dense.XX, rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(wide.Xy, dense.Xy, rtol=1e-10, atol=1e-10)
        assert (wide.n, wide.sizes, wide.n_fixed) == (dense.n, dense.sizes, dense.n_fixed)
        a = np.random.default_rng(4).normal(size=wide.n_fixed)
        np.testing.assert_allclose(wide.products_with(a), dense.XX @ a, rtol=1e-10, atol=1e-8)

    @pytest.mark.parametrize("reml", [True, False])
    def test_all_forms_equal_those_of_dense_columns(self, sums, reml):
        wide, dense = sums
        found, wanted = BlockedLikelihood(wide, reml=reml), BlockedLikelihood(dense, reml=reml)
        for v in map(np.array, _points(wide.n_terms)):
            ours, theirs = found.derivatives(v), wanted.derivatives(v)
            # Scores of components at zero are of the order of their numbers of rows.
            assert ours.loglike == pytest.approx(theirs.loglike, rel=1e-12)
            np.testing.assert_allclose(ours.score, theirs.score, rtol=1e-9, atol=1e-7)
            np.testing.assert_allclose(ours.average, theirs.average, rtol=1e-9, atol=1e-7)
            for kind in ("observed", "expected"):
                np.testing.assert_allclose(
                    found.information(v, kind), wanted.information(v, kind), rtol=1e-8, atol=1e-6
                )

    @pytest.mark.parametrize("reml", [True, False])
    def test_forms_of_columns_equal_those_of_dense_columns(self, sums, reml):
        wide, dense = sums
        v = np.array(_points(wide.n_terms)[0])
        found = BlockedLikelihood(wide, reml=reml).fixed_forms(v, second=True)
        wanted = BlockedLikelihood(dense, reml=reml).fixed_forms(v, second=True)
        for ours, theirs in (
            (found.cov_beta, wanted.cov_beta),
            (found.first, wanted.first),
            (found.second, wanted.second),
        ):
            scale = np.abs(theirs).max()
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12 * scale)

    @pytest.mark.parametrize("reml", [True, False])
    def test_forms_of_effects_equal_those_of_dense_columns(self, sums, reml):
        wide, dense = sums
        found, wanted = BlockedLikelihood(wide, reml=reml), BlockedLikelihood(dense, reml=reml)
        v = np.array(_points(wide.n_terms)[0])
        ours, theirs = (engine.effect_forms(v, [0, 1]) for engine in (found, wanted))
        for name in ("term", "within", "full", "fitted"):
            one, other = getattr(ours, name), getattr(theirs, name)
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10 * np.abs(other).max())

    def test_fixed_effects_equal_those_of_dense_columns(self, sums):
        wide, dense = sums
        found, wanted = BlockedLikelihood(wide, reml=True), BlockedLikelihood(dense, reml=True)
        rng = np.random.default_rng(2)
        for v in map(np.array, _points(wide.n_terms)):
            beta, phi = found.fixed_effects(v)
            expected, matrix = wanted.fixed_effects(v)
            np.testing.assert_allclose(beta, expected, rtol=1e-9, atol=1e-10)
            np.testing.assert_allclose(phi.toarray(), matrix, rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(phi.diagonal(), np.diagonal(matrix), rtol=1e-10)
            slopes = wanted.fixed_forms(v).slopes
            kept = np.append(v[:-1] > 0.0, True)  # a component at zero has no degrees of freedom
            L = rng.normal(size=(3, beta.size))
            in_rows = np.array([((L @ S) * L).sum(axis=1) for S in slopes])
            np.testing.assert_allclose(phi.slopes(L)[kept], in_rows[kept], rtol=1e-9)
            of_each = np.diagonal(slopes, axis1=1, axis2=2)
            np.testing.assert_allclose(
                phi.slopes_of_each()[kept], of_each[kept], rtol=1e-8, atol=1e-12
            )
            a, x0 = rng.normal(size=(2, beta.size))
            T = np.eye(beta.size) - np.outer(a, x0)
            moved, whole = phi.uncentred(a, x0), T @ matrix @ T.T
            np.testing.assert_allclose(L @ moved, L @ whole, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(moved.diagonal(), np.diagonal(whole), rtol=1e-8)

    def test_predicted_effects_equal_those_of_dense_columns(self, sums):
        wide, dense = sums
        v = np.array(_points(wide.n_terms)[1])
        found = BlockedLikelihood(wide, reml=True).solution(v)
        wanted = BlockedLikelihood(dense, reml=True).solution(v)
        for one, other in (
            (found.effects, wanted.effects),
            (found.prediction_var, wanted.prediction_var),
            (found.conditional_var, wanted.conditional_var),
        ):
            for ours, theirs in zip(one, other, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)

    def test_start_equals_that_of_dense_columns(self, sums):
        wide, dense = sums
        found, wanted = BlockedLikelihood(wide, reml=True), BlockedLikelihood(dense, reml=True)
        np.testing.assert_allclose(found.mivque0(), wanted.mivque0(), rtol=1e-8)
        np.testing.assert_allclose(found.least_squares(), wanted.least_squares(), rtol=1e-9)
        assert found.rss == pytest.approx(wanted.rss, rel=1e-11)

    def test_start_with_many_groups_of_few_levels_each(self):
        """Of these Z_t'QZ_u is not formed."""
        rng = np.random.default_rng(8)
        data = _data()
        data["person"] = rng.permutation(len(data)) // 4
        wide, dense = _sums("y ~ x + item + (1|person) + (1|a) + (1|person:a)", data)
        found, wanted = BlockedLikelihood(wide, reml=True), BlockedLikelihood(dense, reml=True)
        np.testing.assert_allclose(Projector.of(wide).forms(), Projector(dense).forms(), rtol=1e-9)
        np.testing.assert_allclose(found.mivque0(), wanted.mivque0(), rtol=1e-8)

    def test_textbook_formulas(self):
        data = _data(n=7_000).iloc[:400]
        data["item"] = data["item"].cat.remove_unused_categories()
        fixed = VarianceComponentsModel(LEAVES, data)
        X = fixed.exog
        dense = np.column_stack([np.ones(400), data["x"]])
        sparse = [j for j, name in enumerate(fixed.exog_names) if name.startswith("item")]
        from scipy.sparse import csr_array

        from vcomp.numerics import MixedColumns

        others = np.setdiff1d(np.arange(X.shape[1]), sparse)
        columns = MixedColumns(dense, csr_array(X[:, sparse]), others, np.array(sparse))
        chunk = replace(fixed.statistics.rows, columns=columns, origin=0.0)
        wide = find_wide_products(chunk, RollUp(chunk), 2)
        assert wide is not None
        v = np.array([0.7, 0.3, 1.1])
        Z = [np.equal.outer(data[f].to_numpy(), np.unique(data[f])).astype(float) for f in "ab"]
        parts = [*(z @ z.T for z in Z), np.eye(400)]
        V = sum(c * part for c, part in zip(v, parts, strict=True))
        Vi, y = np.linalg.inv(V), data["y"].to_numpy()
        phi = np.linalg.inv(X.T @ Vi @ X)
        P = Vi - Vi @ X @ phi @ X.T @ Vi
        deviance = np.linalg.slogdet(V)[1] + y @ P @ y
        restricted = deviance + np.linalg.slogdet(X.T @ Vi @ X)[1]
        n, p = X.shape
        for reml, wanted in ((True, restricted + (n - p) * np.log(2.0 * np.pi)),
                             (False, deviance + n * np.log(2.0 * np.pi))):  # fmt: skip
            found = BlockedLikelihood(wide, reml=reml)
            assert -2.0 * found.loglike(v) == pytest.approx(wanted, rel=1e-10)
            Q = P if reml else Vi
            score = [0.5 * (y @ P @ W @ P @ y - np.trace(Q @ W)) for W in parts]
            np.testing.assert_allclose(found.derivatives(v).score, score, rtol=1e-8)
        beta, cov = BlockedLikelihood(wide, reml=True).fixed_effects(v)
        np.testing.assert_allclose(beta, phi @ X.T @ Vi @ y, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(cov.toarray(), phi, rtol=1e-7, atol=1e-9)
        M = np.eye(n) - X @ np.linalg.pinv(X)
        forms = [[np.trace(M @ A @ M @ B) for A in parts] for B in parts]
        np.testing.assert_allclose(Projector.of(wide).forms(), forms, rtol=1e-8)


class TestFit:
    @pytest.mark.parametrize("method", ["reml", "ml"])
    @pytest.mark.parametrize("formula", [LEAVES, INSIDE])
    def test_result_equals_that_of_dense_columns(self, formula, method):
        found, wanted = _sparse_and_dense_fits(formula, method)
        assert "the fixed factor" not in wanted.certificate.reason
        assert "the fixed factor" in found.certificate.reason
        assert found.llf == pytest.approx(wanted.llf, rel=1e-12)
        for ours, theirs in (
            (found.vcomp, wanted.vcomp),
            (found.fe_params, wanted.fe_params),
            (found.bse, wanted.bse),
            (found.df_fe, wanted.df_fe),
            (found.conf_int(), wanted.conf_int()),
            (found.cov_params(), wanted.cov_params()),
            (
                found.tidy().set_index("term").iloc[:, 1:],
                wanted.tidy().set_index("term").iloc[:, 1:],
            ),
        ):
            # The maxima differ by the tolerance of the iteration.
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
            assert ours.index.equals(theirs.index)

    @pytest.mark.parametrize("ddf", ["satterthwaite", "normal"])
    def test_contrasts(self, ddf):
        found, wanted = _sparse_and_dense_fits(LEAVES)
        text = "item[T.i00003] - item[T.i00007] = 0, x = 0.3"
        np.testing.assert_allclose(
            found.t_test(text, ddf=ddf).astype(float),
            wanted.t_test(text, ddf=ddf).astype(float),
            rtol=1e-7,
        )
        ours, theirs = found.f_test(text, ddf=ddf), wanted.f_test(text, ddf=ddf)
        assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-7)
        assert ours.df == pytest.approx(theirs.df, rel=1e-6)

    @pytest.mark.parametrize("options", [{"ddf": "kenward-roger"}, {"cov_type": "robust"}])
    def test_contrasts_with_matrices_of_the_columns(self, options):
        found, wanted = _sparse_and_dense_fits(LEAVES, n=3_000, n_items=102)
        text = "item[T.i00003] - item[T.i00007] = 0, x = 0.3"
        ours, theirs = (r.t_test(text, **options).astype(float) for r in (found, wanted))
        # The maxima differ by the tolerance of the iteration.
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)

    def test_stored_results(self):
        found, _ = _sparse_and_dense_fits(LEAVES)
        read = vcomp.VarianceComponentsResults.from_json(found.to_json())
        np.testing.assert_allclose(read.cov_params(), found.cov_params(), rtol=1e-12)
        np.testing.assert_array_equal(read.df_fe, found.df_fe)
        with pytest.raises(DataError, match="stored without them; fit the model again"):
            read.t_test("x = 0.3", cov_type="robust")

    def test_pickled_results(self):
        found, _ = _sparse_and_dense_fits(LEAVES, n=3_000, n_items=102)
        read = pickle.loads(pickle.dumps(found))
        np.testing.assert_array_equal(read.bse_fe, found.bse_fe)

    def test_predictions(self):
        found, wanted = _sparse_and_dense_fits(LEAVES)
        few = _data().iloc[:20]
        for level in ("all", "population"):
            np.testing.assert_allclose(
                found.predict(few, level=level), wanted.predict(few, level=level), rtol=1e-7
            )
            ours, theirs = (r.get_prediction(few, level=level).se_mean for r in (found, wanted))
            np.testing.assert_allclose(ours, theirs, rtol=1e-7)
        np.testing.assert_allclose(found.fittedvalues, wanted.fittedvalues, rtol=1e-7)


def test_many_products_with_the_covariance_matrix_take_a_solve_a_column(monkeypatch):
    fits = _sparse_and_dense_fits(INSIDE)
    sparse, dense = (fit._record.estimate.cov_beta for fit in fits)
    sparse = replace(sparse)  # without what the fit has formed
    p, solved, solutions = len(dense), [], SparseCovariance._solutions

    def counted(self, L):
        solved.append(len(L))
        return solutions(self, L)

    monkeypatch.setattr(SparseCovariance, "_solutions", counted)
    rows = np.random.default_rng(7).normal(size=(2 * p, p))
    close = {"rtol": 1e-6, "atol": 1e-9 * np.abs(dense).max()}
    few = rows[:5] @ sparse
    np.testing.assert_allclose(few, rows[:5] @ dense, **close)
    np.testing.assert_allclose(rows @ sparse, rows @ dense, **close)
    assert solved == [5, p]
    np.testing.assert_array_equal(rows[:5] @ sparse, few)
    np.testing.assert_array_equal(rows @ sparse, rows @ sparse)
    assert solved == [5, p, 5]
    few = sparse.slopes(rows[:5])
    every = sparse.slopes(rows)
    np.testing.assert_allclose(every[:, :5], few, rtol=1e-8, atol=1e-10 * np.abs(few).max())
    np.testing.assert_array_equal(sparse.slopes(rows[:5]), few)
    assert solved == [5, p, 5, 5, p, 5]


@pytest.fixture(scope="module")
def data() -> pd.DataFrame:
    data = _data(n=6_600, n_items=2_100, seed=4)
    # Every level occurs.
    data["item"] = pd.Categorical.from_codes(
        np.concatenate([np.arange(2_100), data["item"].cat.codes[2_100:]]),
        data["item"].cat.categories,
    )
    data["number"] = data["item"].cat.codes.astype(int)
    data["kind"] = np.where(np.random.default_rng(5).random(len(data)) < 0.5, "u", "v")
    data["even"] = np.where(data["number"] % 2 == 0, "even", "odd")
    return data


@pytest.fixture(scope="module")
def found(data) -> vcomp.VarianceComponentsResults:
    return vcomp.fit("y ~ x + kind + item + (1|a) + (1|b)", data)


class TestManyLevels:
    """Fits of data whose factor has enough levels to be coded apart from patsy."""

    def test_result_has_the_maximum_of_a_random_term_with_an_infinite_component(self, data, found):
        """The limit of (1|item) is the fixed factor, with sums instead of a reference level."""
        held = {"item": 1e7}
        wanted = vcomp.fit("y ~ x + kind + (1|item) + (1|a) + (1|b)", data, hold=held)
        names = ["a", "b", "Residual"]
        # Terms of the order of the residual over the held variance are left out.
        np.testing.assert_allclose(found.vcomp[names], wanted.vcomp[names], rtol=1e-5)
        both = ["kind[T.v]", "x"]
        np.testing.assert_allclose(found.fe_params[both], wanted.fe_params[both], rtol=1e-5)
        np.testing.assert_allclose(found.bse_fe[both], wanted.bse_fe[both], rtol=1e-5)
        effects = wanted.random_effects["item"]["estimate"].to_numpy()
        ours = found.fe_params.filter(like="item").to_numpy()
        np.testing.assert_allclose(ours, effects[1:] - effects[0], rtol=1e-4, atol=1e-4)

    def test_names_are_those_of_patsy(self, data, found):
        few = data[data["number"] < 300]
        few = few.assign(item=few["item"].cat.remove_unused_categories())
        for name in ("item", "C(item)", "C(number)"):
            made = vcomp.fit(f"y ~ x + kind + {name} + (1|a)", few).fe_params.index
            many = vcomp.fit(f"y ~ x + kind + {name} + (1|a)", data).fe_params.index
            assert set(made) <= set(many)
            assert len(many) == 2_102
        assert list(found.fe_params.index[:3]) == ["Intercept", "kind[T.v]", "x"]

    def test_rows_of_X(self, data, found):
        model = VarianceComponentsModel("y ~ x + kind + item + (1|a) + (1|b)", data)
        few = model.exog[:50]
        levels = data["number"].to_numpy()[:50]
        np.testing.assert_array_equal(few[:, 3:].sum(axis=1), levels > 0)
        np.testing.assert_array_equal(
            few[:, 3:].argmax(axis=1)[levels > 0], levels[levels > 0] - 1
        )
        np.testing.assert_array_equal(few[:, 2], data["x"].iloc[:50])
        fixed = pickle.loads(pickle.dumps(model.design.fixed))
        np.testing.assert_array_equal(fixed.matrix(model.rows.fixed, 6_600)[:50], few)

    def test_columns_beside_the_factor_may_be_sparse(self, data):
        data = data.assign(other=pd.Categorical((data["number"] * 7 % 41).astype(str)))
        model = VarianceComponentsModel("y ~ x + item + (1|a)", data)
        fixed = VarianceComponentsModel("y ~ x + other + kind + (1|a)", data).design.fixed
        whole = replace(
            fixed,
            names=(*fixed.names, *model.design.fixed.names[2:]),
            factor=model.design.fixed.factor,
        )
        columns = {name: pd.Categorical(data[name]) for name in ("item", "other", "kind")}
        columns["x"] = data["x"].to_numpy()
        mixed = whole.mixed(columns, len(data), WideLimits(columns=32, elements=0, beside=0.0))
        assert mixed is not None
        assert mixed.sparse_at.size == 40 + 2_099
        assert mixed.sparse_levels() is None
        np.testing.assert_array_equal(mixed.toarray(), whole.matrix(columns, len(data)))

    def test_sums_of_another_response_and_of_some_terms(self, data):
        model = VarianceComponentsModel("y ~ x + item + (1|a) + (1|b)", data)
        stats, y = model.statistics, np.random.default_rng(6).normal(size=len(data))
        found, one = stats.with_response(y).wide, stats.of_terms([1]).wide
        chunk = model.statistics.rows.with_response(y)
        wanted = find_wide_products(chunk, RollUp(chunk))
        assert found is not None
        assert one is not None
        assert wanted is not None
        for t in range(3):
            np.testing.assert_allclose(found.products.Zy[t], wanted.products.Zy[t], atol=1e-10)
        np.testing.assert_allclose(found.Xy, wanted.Xy, atol=1e-9)
        alone = VarianceComponentsModel("y ~ x + item + (1|b)", data).statistics.wide
        assert alone is not None
        v = np.array([0.3, 1.2])
        assert BlockedLikelihood(one, reml=True).loglike(v) == pytest.approx(
            BlockedLikelihood(alone, reml=True).loglike(v), rel=1e-12
        )

    def test_levels_are_compared_by_solves(self, data, found):
        pairs = found.compare_levels("item", levels=["i00003", "i00000", "i00007"])
        contrast = found.t_test("item[T.i00003] - item[T.i00007] = 0").iloc[0]
        row = pairs.table.set_index(["first", "second"]).loc[("i00003", "i00007")]
        for one, other in (("difference", "coef"), ("std_error", "std_error"), ("df", "df")):
            assert row[one] == pytest.approx(contrast[other], rel=1e-9)
        baseline = pairs.table.set_index(["first", "second"]).loc[("i00003", "i00000")]
        alone = found.t_test("item[T.i00003] = 0").iloc[0]
        assert baseline["difference"] == pytest.approx(alone["coef"], rel=1e-9)
        assert baseline["std_error"] == pytest.approx(alone["std_error"], rel=1e-9)
        b = found.fe_params
        first = b["Intercept"] + b["x"] * data["x"].mean() + b["kind[T.v]"] / 2
        of_items = pairs.means
        assert of_items["i00000"] == pytest.approx(first, rel=1e-9)
        assert of_items["i00003"] == pytest.approx(first + b["item[T.i00003]"], rel=1e-9)
        kinds = found.compare_levels("kind").table.iloc[0]
        assert kinds["difference"] == pytest.approx(-found.fe_params["kind[T.v]"], rel=1e-9)

    def test_pickled_result_tests_contrasts(self, found):
        loaded = pickle.loads(pickle.dumps(found))
        text = "item[T.i00003] - item[T.i00007] = 0"
        np.testing.assert_array_equal(
            loaded.t_test(text).astype(float), found.t_test(text).astype(float)
        )

    def test_predictions_are_of_known_levels(self, data, found):
        few = data.iloc[:3]
        assert np.isfinite(found.get_prediction(few).se_mean).all()
        with pytest.raises(VcompError, match="item"):
            found.predict(few.assign(item="new"))

    def test_refits_start_from_the_statistics(self, found):
        drawn = found.bootstrap(3, rng=1, progress=False)
        assert drawn.values.shape == (3, 3)
        assert np.isfinite(drawn.values).all()

    @pytest.mark.parametrize(("other", "same"), [("even", ""), ("even:kind", "v + odd_v +")])
    def test_dependent_columns_are_left_out(self, data, other, same):
        """The column space, and so the likelihood, is that of the other columns."""
        with pytest.warns(vcomp.VcompWarning, match=r"'even.* is a linear combination of other"):
            res = vcomp.fit(f"y ~ {other} + item + (1|a)", data)
        v = 1.0 * (data["kind"] == "v")
        numbers = data.assign(v=v, odd_v=v * (data["even"] == "odd"))
        alone = vcomp.fit(f"y ~ {same} item + (1|a)", numbers)
        np.testing.assert_allclose(res.vcomp, alone.vcomp, rtol=1e-6)
        assert res.llf == pytest.approx(alone.llf, rel=1e-9)

    @pytest.mark.parametrize("unit", [1e-6, 1e6])
    def test_dependent_columns_of_any_unit_are_named_alone(self, data, unit):
        rng = np.random.default_rng(3)
        z, u = rng.normal(size=(2, len(data)))
        more = data.assign(z=z, u=u, w=unit * u)
        with pytest.warns(vcomp.VcompWarning, match=r"'w' of the fixed part is a linear comb"):
            res = vcomp.fit("y ~ z + u + w + item + (1|a)", more)
        np.testing.assert_allclose(
            res.vcomp, vcomp.fit("y ~ z + u + item + (1|a)", more).vcomp, rtol=1e-6
        )

    def test_confounded_term_is_refused(self, data):
        with pytest.raises(DesignError, match="confounded with the fixed part"):
            vcomp.fit("y ~ item + (1|even) + (1|a)", data)

    def test_matrices_of_columns_are_refused(self, found):
        with pytest.raises(EstimationError, match=r"2,102 columns.*not formed.*use ddf='satterth"):
            found.t_test("x = 0", ddf="kenward-roger")
        assert (found.fixed_effects(ddf="satterthwaite")["df"] > 0.0).all()
        with pytest.raises(EstimationError, match="use cov_type='model'"):
            found.t_test("x = 0", cov_type="robust")
        with pytest.raises(EstimationError, match="covariance matrix of 2,102 fixed effects"):
            found.to_json()

    def test_profiles_of_fixed_effects_are_refused(self, data):
        res = vcomp.fit("y ~ x + item + (1|a) + (1|b)", data, method="ml")
        with pytest.raises(EstimationError, match=r"no profile if .* \(2,101 columns\)"):
            res.profile("x")

    def test_engine_of_levels_is_refused(self, data):
        with pytest.raises(EstimationError, match=r"2,101 columns.*use engine='blocked'"):
            vcomp.fit("y ~ x + item + (1|a) + (1|b)", data, engine="levels")

    def test_names_in_messages_are_few(self, found):
        with pytest.raises(VcompError, match=r"needs a formula without covariates") as caught:
            found.expected_tau(b=10)
        assert len(str(caught.value)) < 300

    def test_unknown_level_is_named_as_it_is_written(self, data):
        res = vcomp.fit("y ~ x + C(number) + (1|a)", data)
        with pytest.raises(VcompError, match="has no level -5 in the fit"):
            res.predict(data[:3].assign(number=-5))

    def test_too_slow_elimination_is_refused(self, data):
        model = VarianceComponentsModel("y ~ x + item + (1|a) + (1|b)", data)
        limits = EngineLimits(seconds=1e-9)
        with pytest.raises(EstimationError, match=r"hold="):
            choose_engine(model.statistics, reml=True, limits=limits)


def test_errors_of_differences_of_effects_next_to_a_wide_factor():
    """Against the inverse of Henderson's equations, the columns of the factor dense."""
    formula, data = "y ~ x + item + (1|a) + (1|b) + (1|a:b)", _data(1_200)
    rows, statistics = _dense(formula, data).statistics.rows, _model(formula, data).statistics
    v = np.array([0.7, 0.3, 0.2, 1.1])
    W = np.column_stack(
        [*(np.eye(q)[c] for c, q in zip(rows.codes, rows.sizes, strict=True)), rows.X]
    )
    ridge = np.zeros(W.shape[1])
    ridge[: sum(rows.sizes)] = np.repeat(1.0 / v[:-1], rows.sizes)
    inverse = np.linalg.inv(W.T @ W / v[-1] + np.diag(ridge))
    starts = np.cumsum([0, *rows.sizes])
    for t, q in enumerate(rows.sizes):
        first, second = starts[t] + np.random.default_rng(t).integers(0, q, (2, 12))
        variances = np.diagonal(inverse)
        expected = variances[first] + variances[second] - 2.0 * inverse[first, second]
        pairs = first - starts[t], second - starts[t]
        found = difference_variances(statistics, v, t, pairs, EngineLimits())
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
