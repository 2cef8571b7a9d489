"""Weights, residual groups and random slopes of rows in batches, and of sums that are merged.

They are as those of rows in memory: components, log-likelihoods, effects and printed pages.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.readings import accumulated, model_of

SMALL = {"batch_rows": 40, "kept_bytes": 0.0}
"""Batches of few rows, none of which are kept."""

EXACT = 1e-11
"""Sums of other batches differ in their last digits, and maxima by a hundred times that."""


def made():
    """Return rows of two crossed facets, whose first batches lack levels of all facets."""
    rng, n = np.random.default_rng(31), 300
    a, b = rng.integers(0, 9, n), rng.integers(0, 6, n)
    x, w = rng.normal(size=n), rng.integers(1, 8, n).astype(float)
    kind = rng.choice(["p", "q", "r"], n)
    u, v, slopes = rng.normal(size=9), rng.normal(size=6), 0.4 * rng.normal(size=9)
    of_kinds = rng.normal(size=(9, 3))[a, np.searchsorted(["p", "q", "r"], kind)]
    e = rng.normal(size=n) / np.sqrt(w) * np.where(b < 3, 1.0, 2.0)
    data = pd.DataFrame(
        {
            "y": 1.0 + 0.5 * x + u[a] + v[b] + slopes[a] * x + of_kinds + e,
            "x": x,
            "far": 1e6 + 1200.0 * x,
            "a": [f"a{k}" for k in a],
            "b": b,
            "kind": kind,
            "half": np.where(b < 3, "one", "two"),
            "w": w,
            "v": 1.0 / w,
            "n": w.astype(int),
            "o": rng.normal(size=n),
        }
    )
    return data.sort_values(["kind", "a"], ascending=[False, True], ignore_index=True)


DATA = made()

CROSSED = "y ~ x + kind + (1|a) + (1|b)"

MODELS = [
    (CROSSED, {"weights": "w"}),
    ("y ~ (1|a/b)", {"weights": "w"}),
    (CROSSED, {"known_variance": "v", "offset": "o"}),
    ("y ~ x + (1|a) + (1|b)", {"weights": "w", "frequency": "n"}),
    (CROSSED, {"residual": "half"}),
    ("y ~ (1|a)", {"residual": "b", "weights": "w"}),
    ("y ~ (1|a) + (1|b)", {"residual": "half:kind"}),
    ("y ~ x + (x|a) + (1|b)", {}),
    ("y ~ x + (far|a)", {}),
    ("y ~ (0 + x|a)", {"weights": "w"}),
    ("y ~ kind + (kind|a)", {}),
    ("y ~ x + (x + np.abs(x)||a)", {"weights": "w", "residual": "half"}),
]


def names(value):
    return value if isinstance(value, str) else ",".join(value)


@pytest.fixture(scope="module", params=MODELS, ids=lambda m: f"{m[0]} {' '.join(m[1])}")
def fits(request):
    """Return a formula, its options, and the fits of rows in memory and in batches."""
    formula, options = request.param
    fit = [model_of(formula, DATA, stream=s, **SMALL, **options).fit() for s in (False, True)]
    return formula, options, *fit


def assert_same(found, expected):
    scale = np.sqrt(np.outer(*[expected.vcomp.abs().max()] * 2)).item()
    np.testing.assert_allclose(found.vcomp, expected.vcomp, rtol=EXACT, atol=EXACT * scale)
    np.testing.assert_allclose(found.fe_params, expected.fe_params, rtol=EXACT, atol=EXACT)
    assert found.llf == pytest.approx(expected.llf, rel=1e-12)
    assert found.nobs == expected.nobs


def test_batches_are_as_rows_in_memory(fits):
    _, _, kept, streamed = fits
    assert_same(streamed, kept)
    assert str(streamed.summary(interval="mls")) == str(kept.summary(interval="mls"))
    assert str(streamed.design) == str(kept.design)


def test_what_is_made_of_the_sums_is_the_same(fits):
    formula, options, kept, streamed = fits
    for term, frame in kept.random_effects.items():
        np.testing.assert_allclose(streamed.random_effects[term], frame, rtol=1e-8, atol=1e-10)
    calls = [
        lambda r: r.conf_int(interval="wald").to_numpy(),
        lambda r: r.fixed_effects().select_dtypes("number").to_numpy(),
        lambda r: r.predict(DATA.head(12)).to_numpy(),
    ]
    if not kept.model.design.formula.has_slopes:
        calls.append(lambda r: r.conf_int(interval="mls").to_numpy())
    if "known_variance" not in options:
        calls.append(lambda r: r.r2().to_numpy())
    # Variances at zero, 833 standard deviations away, keep four digits, and p-values three.
    rtol = 1e-3 if "far" in formula else 1e-7
    for call in calls:
        np.testing.assert_allclose(call(streamed), call(kept), rtol=rtol, atol=1e-9)


def test_marginal_means_count_each_row_once():
    kept, streamed = (
        model_of(CROSSED, DATA, stream=s, weights="w", **SMALL).fit() for s in (False, True)
    )
    for table in (lambda r: r.marginal_means("kind").table["mean"], lambda r: r.r2()):
        np.testing.assert_allclose(table(streamed), table(kept), rtol=1e-10)
    pd.testing.assert_series_equal(
        streamed.compare_levels("a").means, kept.compare_levels("a").means, rtol=1e-9
    )


PARTS = [slice(0, 20), slice(20, 130), slice(130, 141), slice(141, 300)]
"""The third has one level of each factor, and of the facets levels that no other part lacks."""


@pytest.mark.parametrize(
    ("formula", "options"), [m for m in MODELS if "kind" not in m[0]], ids=names
)
def test_merged_sums_are_those_of_all_rows(formula, options, tmp_path):
    order = (2, 0, 3, 1)
    kept = model_of(formula, DATA, stream=False, **options).fit()
    parts = [accumulated(formula, DATA[PARTS[k]], **SMALL, **options) for k in order]
    parts[1].save(tmp_path / "part.vcomp")
    parts[1] = type(parts[1]).load(tmp_path / "part.vcomp")
    whole = (parts[0] + parts[1]) + (parts[2] + parts[3])
    whole.save(tmp_path / "whole.vcomp")
    for sums in (whole, type(whole).load(tmp_path / "whole.vcomp")):
        res = sums.fit()
        assert_same(res, kept)
        assert str(res.summary(interval="mls")) == str(kept.summary(interval="mls"))


def test_a_table_of_cells_does_not_grow_with_rows():
    """A covariate that differs from row to row needs no more than its products in each cell."""
    once = accumulated("y ~ x + (x|a) + (1|b)", DATA, weights="w")
    several = pd.concat([DATA.assign(x=DATA["x"] + 0.1 * k) for k in range(5)])
    again = accumulated("y ~ x + (x|a) + (1|b)", several, weights="w")
    tables = [sums._sums.table for sums in (once, again)]
    assert tables[1].n == 5 * tables[0].n
    assert tables[0].products.shape == tables[1].products.shape


def sleep(rng):
    """Return times of persons on the days 0 to 9, the last persons measured twice a day."""
    person, day = np.repeat(np.arange(12), 10), np.tile(np.arange(10.0), 12)
    rows = pd.DataFrame({"person": person, "day": day})
    rows = pd.concat([rows, rows[rows["person"] > 9]], ignore_index=True)
    u, v = 20.0 * rng.normal(size=12), 6.0 * rng.normal(size=12)
    at = rows["person"].to_numpy()
    error = 25.0 * rng.normal(size=len(rows))
    return rows.assign(time=250.0 + u[at] + (10.0 + v[at]) * rows["day"] + error)


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_slopes_of_batches_in_odd_order_are_those_of_dense_matrices(shift):
    """The value, and its derivative at the maximum, of V = ZΛZ' + σ²I."""
    data = sleep(np.random.default_rng(8))
    data = data.assign(day=data["day"] + shift)
    order = np.argsort(data["person"] % 5 * 100 + data["day"], kind="stable")[::-1]
    model = model_of("time ~ day + (day|person)", data.iloc[order], stream=True, **SMALL)
    res = model.fit()
    person = data["person"].to_numpy()[:, None] == np.arange(12)
    Z = np.hstack([person, person * data["day"].to_numpy()[:, None]]).astype(float)
    X = np.column_stack([np.ones(len(data)), data["day"] - shift])

    def dense(v):
        matrix = np.kron(np.array([[v[0], v[2]], [v[2], v[1]]]), np.eye(12))
        V = Z @ matrix @ Z.T + v[3] * np.eye(len(data))
        W = np.linalg.inv(V)
        A = X.T @ W @ X
        r = data["time"] - X @ np.linalg.solve(A, X.T @ W @ data["time"])
        logs = np.linalg.slogdet(V)[1] + np.linalg.slogdet(A)[1]
        return -0.5 * (logs + r @ W @ r + (len(data) - 2) * np.log(2.0 * np.pi))

    v = res.vcomp.to_numpy()
    # With days far from 0, elements of V are a million times those of its inverse.
    assert res.llf == pytest.approx(dense(v), rel=1e-10 if shift == 0.0 else 1e-7)
    if shift == 0.0:
        for k in range(4):
            step = np.where(np.arange(4) == k, 1e-3 * v[3], 0.0) * (0.01 if k in (1, 2) else 1.0)
            assert dense(v + step) < res.llf
            assert dense(v - step) < res.llf


@pytest.mark.parametrize("shift", [1e3, 1e4, 1e5, 1e6])
def test_columns_far_from_zero_are_as_in_memory(shift):
    data = DATA.assign(x=DATA["x"] + shift)
    found = []
    for stream in (False, True):
        try:
            found.append(model_of("y ~ (x|a)", data, stream=stream, **SMALL).fit())
        except vcomp.DataError as error:
            found.append(str(error))
    kept, streamed = found
    if isinstance(kept, str):
        assert "far from zero" in kept
        assert streamed == kept
    else:
        assert_same(streamed, kept)


@pytest.mark.parametrize("option", ["weights", "known_variance"])
@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf])
def test_weights_of_a_late_batch_are_checked(option, bad):
    data = DATA.assign(w=DATA["w"].where(DATA.index != 290, bad))
    for stream in (False, True):
        with pytest.raises(vcomp.DataError, match=re.escape(f"{option}='w' must be above")) as e:
            model_of("y ~ (1|a)", data, stream=stream, **{option: "w"}, **SMALL)
        assert e.value.column == "w"
        assert f"the first {bad:g}" in str(e.value)
        kept = "(data['w'] > 0) & (np.isfinite(data['w']))" if bad == np.inf else "data['w'] > 0"
        assert f"data[{kept}]" in str(e.value)


def test_missing_weights_of_a_late_batch_are_left_out():
    data = DATA.assign(w=DATA["w"].where(DATA.index != 290))
    fits = []
    for stream in (False, True):
        with pytest.warns(vcomp.VcompWarning, match=r"1 of 300 rows have a missing value \(w 1\)"):
            fits.append(model_of("y ~ (1|a)", data, stream=stream, weights="w", **SMALL).fit())
    assert_same(*fits)


def test_a_constant_slope_is_refused_as_in_memory():
    for stream in (False, True):
        with pytest.raises(vcomp.DesignError, match=r"which is constant: write \(1\|a\)") as e:
            model_of("y ~ (c|a)", DATA.assign(c=3.1), stream=stream, **SMALL)
        assert (e.value.term, e.value.column) == ("a", "c")
    # Constant in each part, but not in the whole
    parts = [accumulated("y ~ (c|a)", DATA[s].assign(c=float(k))) for k, s in enumerate(PARTS)]
    step = np.repeat(np.arange(4.0), [len(DATA[s]) for s in PARTS])
    assert_same(sum(parts).fit(), vcomp.fit("y ~ (c|a)", DATA.assign(c=step)))


def test_groups_of_one_row_are_refused_as_in_memory():
    data = DATA.assign(own=["z" if k == 7 else "y" for k in range(len(DATA))])
    for stream in (False, True):
        with pytest.raises(vcomp.DesignError, match="own=z has one row") as e:
            model_of("y ~ (1|a)", data, residual="own", stream=stream, **SMALL)
        assert e.value.level == "own=z"
    # A group may have one row in each part.
    parts = [accumulated("y ~ (1|a)", data, residual="own") for data in (data[:20], data)]
    assert sum(parts).design.residual.groups.n == (318, 2)


def test_sums_of_other_models_are_not_added():
    plain = vcomp.accumulate("y ~ (1|a)", DATA)
    for options in ({"weights": "w"}, {"known_variance": "w"}, {"offset": "o"}):
        with pytest.raises(vcomp.DataError, match="known_variance= and offset= must be the same"):
            plain + vcomp.accumulate("y ~ (1|a)", DATA, **options)
    with pytest.raises(vcomp.DataError, match="levels of residual= must be the same"):
        plain + vcomp.accumulate("y ~ (1|a)", DATA, residual="half")
    with pytest.raises(vcomp.DataError, match="random terms must be the same"):
        plain + vcomp.accumulate("y ~ (x|a)", DATA)
    with pytest.raises(vcomp.DataError, match="factor 'kind' of the fixed part has other levels"):
        vcomp.accumulate("y ~ (kind|a)", DATA) + vcomp.accumulate("y ~ (kind|a)", DATA[:150])
    with pytest.raises(vcomp.DataError, match="a slope has a transform that depends on all rows"):
        vcomp.accumulate("y ~ (center(x)|a)", DATA) + vcomp.accumulate("y ~ (center(x)|a)", DATA)
    with pytest.raises(vcomp.DataError, match="make it a column of the data"):
        vcomp.accumulate("y ~ (1|a)", DATA, weights=DATA["w"])


@pytest.mark.parametrize(
    ("formula", "options", "facet"),
    [
        ("y ~ x + (x|a) + (1|b)", {}, "a"),
        ("y ~ x + (x|a) + (1|b)", {}, "b"),
        ("y ~ kind + (kind|a)", {}, "a"),
        ("y ~ x + (1|a) + (1|b)", {"residual": "half", "weights": "w"}, "b"),
        ("y ~ x + (x|a)", {"weights": "w", "residual": "half"}, "a"),
    ],
    ids=names,
)
def test_levels_of_cells_are_left_out_and_drawn(formula, options, facet):
    """Each cell has its squares and products, so that levels leave the sums with their cells."""
    kept, read = (
        model_of(formula, DATA, stream=stream, **SMALL, **options).fit()
        for stream in (False, True)
    )
    assert read.model._data.statistics.cells.counts is not None
    influence = [res.influence(facet) for res in (kept, read)]
    assert influence[1].counts.tolist() == influence[0].counts.tolist()
    for name in ("values", "beta", "distances"):
        one, other = (getattr(found, name) for found in influence)
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-8)
    # The fits without a level are those of its influence.
    without = read.jackknife(facet).values
    np.testing.assert_allclose(without, influence[0].values, rtol=1e-6, atol=1e-8)
    if options.get("residual") is None or facet == "a":
        one, other = (res.resample(facet, n=4, adjust=False, rng=5).values for res in (kept, read))
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-8)


def test_a_level_of_cells_that_the_fixed_part_needs_is_named():
    """One level of a has all rows in which a covariate is not 0."""
    data = DATA.assign(z=np.where(DATA["a"] == "a3", DATA["x"] ** 2, 0.0))
    sums = vcomp.accumulate("y ~ x + z + (x|a)", data)
    with pytest.warns(vcomp.VcompWarning, match="without a a3 the other scores do not determine"):
        found = sums.fit().influence("a")
    assert np.isnan(found.fixed_effects.loc["a3"]).all()
    assert found.converged.sum() == 8


def test_levels_of_merged_sums_are_left_out():
    """The subjects of the parts are others, and one measurement each is in a cell of its own."""
    formula, data = "time ~ day + (day|person)", sleep(np.random.default_rng(8))
    parts = [vcomp.accumulate(formula, data[data["person"] % 3 == k]) for k in range(3)]
    whole, kept = sum(parts).fit(), vcomp.fit(formula, data)
    without = kept.influence("person")
    np.testing.assert_allclose(
        whole.influence("person").table["cooks_distance"],
        without.table["cooks_distance"],
        rtol=1e-6,
    )
    alone = vcomp.fit(formula, data[data["person"] != 4])
    np.testing.assert_allclose(whole.jackknife("person").values[4], alone.vcomp, rtol=1e-7)


def test_what_needs_single_rows_is_refused():
    formula = "y ~ x + (x|a) + (1|b)"
    res = model_of(formula, DATA, stream=True, **SMALL).fit()
    merged = sum(vcomp.accumulate(formula, DATA[DATA["b"] % 2 == k]) for k in range(2)).fit()
    kept = vcomp.fit(formula, DATA, stream=False)
    for name, arguments in (
        ("simulate", {"rng": 1}),
        ("diagnose", {"n": 19}),
        ("predict", {}),
    ):
        for other in (res, merged):
            with pytest.raises(vcomp.DataError, match="stream=False"):
                getattr(other, name)(**arguments)
        getattr(kept, name)(**arguments)
    with pytest.raises(vcomp.DataError, match=r"use res\.bootstrap\(\), which draws"):
        merged.simulate()
    assert merged.bootstrap(3).values.shape == (3, merged.vcomp.size)
    with pytest.raises(vcomp.DataError, match="or use interval='mls'"):
        res.conf_int(interval="robust")
    assert "read in parts" in str(res.summary())


def test_rows_are_read_again_for_fitted_values(tmp_path):
    DATA.to_parquet(tmp_path / "rows.parquet", index=False)
    for formula, options in MODELS[7:8] + MODELS[4:5] + MODELS[:1]:
        res = vcomp.fit(formula, tmp_path / "rows.parquet", stream=True, **options)
        res.augment(path=tmp_path / "fitted.parquet")
        kept = vcomp.fit(formula, DATA, **options)
        found = pd.read_parquet(tmp_path / "fitted.parquet")
        np.testing.assert_allclose(found["fitted"], kept.fittedvalues, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("formula", "options"), MODELS[::3], ids=names)
def test_partitions_of_dask_are_as_rows_in_memory(formula, options):
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    with dask.config.set(scheduler="sync"):
        res = vcomp.fit(formula, frames.from_pandas(DATA, npartitions=5), **options)
    assert_same(res, vcomp.fit(formula, DATA, **options))


def test_gstudies_in_batches_have_weights_and_residual_groups():
    for options in ({"weights": "w"}, {"residual": "a"}):
        kept, streamed = (
            vcomp.gstudy("a x b", DATA, "y", stream=stream, **options) for stream in (False, True)
        )
        assert_same(streamed, kept)


def test_gstudies_in_batches_have_groups_of_facets_under_other_names():
    for residual in ("half", "half:b"):
        kept, streamed = (
            vcomp.gstudy(
                "p x r",
                DATA,
                "y",
                facets={"p": "a", "r": "b"},
                stream=stream,
                residual=residual,
            )
            for stream in (False, True)
        )
        assert_same(streamed, kept)


def test_a_batch_may_have_no_scores_that_count():
    data = DATA.assign(n=DATA["n"].where(DATA.index >= 45, 0))
    assert_same(
        *(
            model_of("y ~ (1|a)", data, frequency="n", stream=s, **SMALL).fit()
            for s in (False, True)
        )
    )
    for stream in (False, True):
        with pytest.raises(vcomp.DataError, match="no score is left"):
            model_of("y ~ (1|a)", data.assign(n=0), frequency="n", stream=stream, **SMALL)
