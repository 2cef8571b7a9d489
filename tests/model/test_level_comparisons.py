"""Comparisons of the levels of a fit: against R, two-way tables, reference grids and dense forms.

Numbers of R are those of ``ls_means(…, pairwise=TRUE)`` of lmerTest 3, with the optimiser's
``rhoend=1e-12``, and of ``ptukey`` and ``p.adjust``.
"""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from patsy import build_design_matrices
from scipy import stats

import vcomp
from tests.helpers.designs import unbalanced
from vcomp.estimators.likelihood import EngineLimits, difference_variances
from vcomp.exceptions import DataError, EstimationError, FormulaError, PlanError
from vcomp.inference.hypotheses import ContrastTest
from vcomp.inference.pairwise import adjusted
from vcomp.model.level_comparisons import _pairs, _values


def deterministic():
    """Return 80 scores of 12 topics, unbalanced, that R has from the same formula."""
    rows = []
    for topic, s, q in itertools.product(range(12), range(4), range(2)):
        if (7 * topic + 3 * s + 5 * q) % 6 == 0:
            continue
        x = ((5 * topic + 2 * s + 3 * q) % 7) / 7
        noise = ((13 * topic + 29 * s + 17 * q + topic * s * (3 + q)) % 19) / 3
        y = (40 + (11 * topic) % 17 + 2 * s + 3 * q * (s % 2) + 4 * x + noise) / 64
        rows.append((f"t{topic:02d}", "abcd"[s], "kw"[q], x, y))
    return pd.DataFrame(rows, columns=["topic", "sys", "query", "x", "score"])


def two_way(n, k, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, k)) + 2.0 * rng.normal(size=(n, 1)) + 0.8 * np.arange(k)
    t, s = np.divmod(np.arange(n * k), k)
    return Z, pd.DataFrame({"topic": t, "sys": [f"s{j}" for j in s], "score": Z.ravel()})


@pytest.fixture(scope="module")
def main_effects():
    return vcomp.fit("score ~ sys + query + x + (1|topic)", deterministic())


@pytest.fixture(scope="module")
def interaction():
    return vcomp.fit("score ~ sys * query + x + (1|topic)", deterministic())


@pytest.fixture(scope="module")
def balanced():
    return vcomp.fit("score ~ C(sys) + (1|topic)", two_way(9, 4)[1])


# Against systems on topics ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_tukey_of_a_two_way_layout_is_that_of_compare_systems(seed):
    data = two_way(12, 5, seed)[1]
    res = vcomp.fit("score ~ C(sys) + (1|topic)", data)
    ours = res.compare_levels("sys", "tukey")
    theirs = vcomp.ir.compare_systems(data, "tukey", system="sys")
    for column in ("difference", "statistic", "p_value", "p_adjusted", "low", "high"):
        assert ours.table[column].to_numpy() == pytest.approx(
            theirs.table[column].to_numpy(), rel=1e-10, abs=1e-12
        )
    for column in ("first", "second", "significant"):
        assert ours.table[column].tolist() == theirs.table[column].tolist()
    assert ours.groups["group"].tolist() == theirs.groups["group"].tolist()
    assert ours.means.to_numpy() == pytest.approx(theirs.means.to_numpy(), rel=1e-13)
    assert type(ours) is type(theirs)


def test_t_of_a_two_way_layout_has_its_mean_square(balanced):
    Z = two_way(9, 4)[0]
    n, k = Z.shape
    rest = Z - Z.mean(axis=0) - Z.mean(axis=1, keepdims=True) + Z.mean()
    se = np.sqrt(2.0 * np.square(rest).sum() / ((n - 1) * (k - 1)) / n)
    table = balanced.compare_levels("sys", correction="fdr_bh").table
    i, j = np.triu_indices(k, 1)
    d = Z.mean(axis=0)[i] - Z.mean(axis=0)[j]
    p = 2.0 * stats.t.sf(np.abs(d / se), (n - 1) * (k - 1))
    assert table["std_error"].to_numpy() == pytest.approx(np.full(i.size, se), rel=1e-11)
    assert table["df"].to_numpy() == pytest.approx(np.full(i.size, 24.0), rel=1e-10)
    assert table["p_value"].to_numpy() == pytest.approx(p, rel=1e-9)
    assert table["p_adjusted"].to_numpy() == pytest.approx(adjusted(p, "fdr_bh"), rel=1e-9)
    reach = stats.t.isf(0.025, 24) * se
    assert table["high"].to_numpy() == pytest.approx(d + reach, abs=1e-11)


def test_one_way_layout_is_scipys():
    """Unequal groups, no variance between blocks: Tukey-Kramer with the pooled variance."""
    rng = np.random.default_rng(4)
    groups = [rng.normal(loc, 1.0, n) for loc, n in ((0.0, 7), (0.5, 12), (1.5, 9))]
    g = np.repeat(["a", "b", "c"], [7, 12, 9])
    data = pd.DataFrame({"y": np.concatenate(groups), "g": g, "block": np.arange(28) % 2})
    res = vcomp.fit("y ~ g + (1|block)", data, hold={"block": 0.0})
    found = res.compare_levels("g", "tukey")
    peer = stats.tukey_hsd(*groups)
    ends = peer.confidence_interval()
    for row in found.table.itertuples():
        a, b = "abc".index(row.first), "abc".index(row.second)
        assert row.difference == pytest.approx(peer.statistic[a, b], rel=1e-12)
        assert row.p_value == pytest.approx(peer.pvalue[a, b], rel=1e-8)
        assert (row.low, row.high) == pytest.approx((ends.low[a, b], ends.high[a, b]), rel=1e-8)
    assert "Tukey-Kramer" in found.test
    assert "Kramer's approximation" in str(found)


# Against R -------------------------------------------------------------------------------------


def test_least_squares_means_of_r(main_effects):
    found = main_effects.compare_levels("sys", correction="none")
    means = [0.828208424332796, 0.883408872928136, 0.867108517800746, 0.941818825836061]
    assert found.means.to_numpy() == pytest.approx(means, rel=1e-12)
    assert list(found.means.index) == ["a", "b", "c", "d"]
    differences = [
        -0.0552004485953407, -0.0389000934679506, -0.1136104015032654, 0.0163003551273902,
        -0.0584099529079247, -0.0747103080353149,
    ]  # fmt: skip
    assert found.table["difference"].to_numpy() == pytest.approx(differences, rel=1e-11)
    # The optimiser of R leaves a relative error of 3e-11 in the standard errors.
    errors = [
        0.00939189154847822, 0.00922712237879997, 0.00934072307481556, 0.00933975554334980,
        0.00921907273866680, 0.00937166334704501,
    ]  # fmt: skip
    assert found.table["std_error"].to_numpy() == pytest.approx(errors, rel=1e-10)
    df = [
        63.0966029895386, 63.0069340651200, 63.1019157531547, 63.1024800026316, 63.0067148270609,
        63.1083485987708,
    ]  # fmt: skip
    assert found.table["df"].to_numpy() == pytest.approx(df, rel=1e-9)
    p = [
        1.70603817940152e-07, 8.09796679026379e-05, 3.40233315438377e-18, 8.58065003293438e-02,
        2.82731684841596e-08, 3.95114845617112e-11,
    ]  # fmt: skip
    assert found.table["p_value"].to_numpy() == pytest.approx(p, rel=1e-8)


def test_kenward_roger_of_r(main_effects):
    table = main_effects.compare_levels("sys", ddf="kenward-roger").table
    errors = [
        0.00939333700974813, 0.00922714228498993, 0.00934224459661818, 0.00934128582531561,
        0.00921908920443107, 0.00937329196653557,
    ]  # fmt: skip
    assert table["std_error"].to_numpy() == pytest.approx(errors, rel=1e-10)
    df = [
        63.0910584042264, 63.0013518289648, 63.0963734024043, 63.0969378866241, 63.0011324982440,
        63.1028089502093,
    ]  # fmt: skip
    assert table["df"].to_numpy() == pytest.approx(df, rel=1e-11)


def test_interaction_and_tukey_of_r(interaction):
    found = interaction.compare_levels("sys", "tukey")
    means = [0.828271327800661, 0.883368417672972, 0.867061746674582, 0.941878074757287]
    assert found.means.to_numpy() == pytest.approx(means, rel=1e-10)
    # ptukey has an absolute error of 2e-11.
    p = [
        4.17452530432350e-07, 2.56060339596353e-04, 2.00065519706527e-11, 2.70217035772362e-01,
        5.94671244469325e-08, 9.05361341452249e-11,
    ]  # fmt: skip
    assert found.table["p_value"].to_numpy() == pytest.approx(p, rel=1e-8, abs=4e-11)
    holm = [
        2.11066771458301e-07, 8.94019239109585e-05, 6.05066129465417e-18, 7.24224957334895e-02,
        3.99430837849987e-08, 5.88967934480291e-11,
    ]  # fmt: skip
    t = interaction.compare_levels("sys").table
    assert t["p_adjusted"].to_numpy() == pytest.approx(holm, rel=1e-7)
    assert "sys interacts with query" in str(found)
    assert list(found.table["first"] + found.table["second"]) == [
        "ab", "ac", "ad", "bc", "bd", "cd",
    ]  # fmt: skip


# Least-squares means of any formula ------------------------------------------------------------


def averages(res, data, column, others):
    """Return mean rows of X: covariates of all rows with all combinations of the factors."""
    info = res.model.design.fixed.design_info
    rows = []
    for level in sorted(data[column].unique()):
        grid = itertools.product(*(sorted(data[name].unique()) for name in others))
        given = [
            data.assign(**{column: level}, **dict(zip(others, combination, strict=True)))
            for combination in grid
        ]
        X = [np.asarray(build_design_matrices([info], one)[0]).mean(axis=0) for one in given]
        rows.append(np.mean(X, axis=0))
    return np.array(rows)


@pytest.mark.parametrize(
    "fixed",
    [
        "C(sys)",
        "sys + x + np.log(z)",
        "C(sys, Sum) * query * x",
        "0 + sys:query + x",
        "0 + sys + x:query",
        "sys * x:z + query",
        "sys:query:x + sys",
        "query * bs(x, df=3, degree=2) * sys",
        "bs(x, df=3, degree=2):sys + z:bs(x, df=3, degree=2) + sys",
        "sys + center(x):C(sys, Helmert):query",
    ],
)
def test_means_are_those_of_the_reference_grid(fixed):
    rng = np.random.default_rng(8)
    n = 160
    data = pd.DataFrame(
        {
            "sys": rng.choice(list("abc"), n), "query": rng.choice(["k", "w"], n),
            "topic": rng.integers(0, 8, n), "x": rng.normal(3.0, 1.0, n),
            "z": rng.uniform(1.0, 5.0, n), "y": rng.normal(size=n),
        }
    )  # fmt: skip
    if fixed.endswith("Helmert):query"):
        with pytest.raises(FormulaError, match="both of column 'sys'"):
            vcomp.fit(f"y ~ {fixed} + (1|topic)", data).compare_levels("sys")
        return
    res = vcomp.fit(f"y ~ {fixed} + (1|topic)", data)
    L = averages(res, data, "sys", ["query"])
    found = res.compare_levels("sys")
    assert found.means.to_numpy() == pytest.approx(L @ res.fe_params.to_numpy(), rel=1e-8)
    i, j = np.triu_indices(3, 1)
    peer = res.t_test(L[i] - L[j])
    for ours, theirs in (("difference", "coef"), ("std_error", "std_error"), ("df", "df")):
        assert found.table[ours].to_numpy() == pytest.approx(
            peer[theirs].to_numpy(), rel=1e-7, abs=1e-12
        )
    has_others = ("x" in fixed) or ("query" in fixed)
    assert ("equal weights" in str(found)) == has_others


# Dunnett ---------------------------------------------------------------------------------------


def test_dunnett_of_a_balanced_layout_is_a_double_integral(balanced):
    """ρ = 1/2: sums over the error of the baseline and over that of the mean square."""
    found = balanced.compare_levels("sys", "dunnett", baseline="s1")
    table, df = found.table, 24.0
    assert list(table["second"]) == ["s1"] * 3

    z, s = np.linspace(-9.0, 9.0, 721)[:, None], np.linspace(0.2, 2.4, 441)
    weights = stats.norm.pdf(z) * stats.chi.pdf(s * np.sqrt(df), df) * np.sqrt(df)
    weights *= (z[1, 0] - z[0, 0]) * (s[1] - s[0])

    def over_both(q):
        ends = [stats.norm.cdf(np.sqrt(2.0) * side * q * s - z) for side in (1.0, -1.0)]
        return 1.0 - (weights * (ends[0] - ends[1]) ** 3).sum()

    for row in table.itertuples():
        assert row.p_value == pytest.approx(over_both(abs(row.statistic)), abs=1e-8)
        half = (row.high - row.low) / 2.0 / row.std_error
        assert over_both(half) == pytest.approx(0.05, abs=1e-8)
    assert found.test == "Dunnett's test, Satterthwaite's degrees of freedom"


def test_dunnett_of_one_difference_is_t(main_effects):
    one = main_effects.compare_levels("sys", "dunnett", levels=["b", "a"], baseline="a").table
    t = main_effects.compare_levels("sys", levels=["b", "a"]).table
    for column in ("difference", "statistic", "p_value", "low", "high"):
        assert one[column].to_numpy() == pytest.approx(t[column].to_numpy(), rel=1e-11)


def test_dunnett_of_a_one_way_layout():
    """Independent groups of unequal sizes: correlations are products, as scipy's."""
    rng = np.random.default_rng(1)
    groups = [rng.normal(loc, 1.0, n) for loc, n in ((0.0, 6), (0.6, 9), (1.1, 5), (0.2, 12))]
    g = np.repeat(list("abcd"), [6, 9, 5, 12])
    data = pd.DataFrame({"y": np.concatenate(groups), "g": g, "block": np.arange(32) % 2})
    res = vcomp.fit("y ~ g + (1|block)", data, hold={"block": 0.0})
    found = res.compare_levels("g", "dunnett", baseline="a").table
    peer = stats.dunnett(*groups[1:], control=groups[0], rng=np.random.default_rng(0))
    assert found["statistic"].to_numpy() == pytest.approx(peer.statistic, rel=1e-10)
    # scipy's p-values are quasi-Monte Carlo, with errors of about 1e-4.
    assert found["p_value"].to_numpy() == pytest.approx(peer.pvalue, abs=2e-3)


def test_dunnett_of_any_layout_is_an_integral_of_its_correlations():
    """With cells missing, correlations are not products; scipy integrates over their normal."""
    data = two_way(9, 6)[1].drop([1, 2, 9, 20, 22, 45])
    res = vcomp.fit("score ~ sys + (1|topic)", data)
    found = res.compare_levels("sys", "dunnett", baseline="s0", ddf="normal")
    columns = [name for name in res.fe_params.index if name.startswith("sys")]
    cov = res.cov_params().loc[columns, columns].to_numpy()
    se = np.sqrt(np.diagonal(cov))
    normal = stats.multivariate_normal(cov=cov / np.outer(se, se), seed=0, abseps=1e-6)
    for t, p in zip(found.table["statistic"].abs(), found.table["p_value"], strict=True):
        inside = normal.cdf(np.full(len(se), t), lower_limit=np.full(len(se), -t))
        assert p == pytest.approx(1.0 - inside, rel=2e-3, abs=2e-5)
    assert "quasi-Monte Carlo" in str(found)
    assert res.compare_levels("sys", "dunnett", baseline="s0").table["low"].notna().all()


def test_max_t_of_a_balanced_layout_is_tukeys(balanced):
    found = balanced.compare_levels("sys", "max-t")
    tukey = balanced.compare_levels("sys", "tukey").table
    columns = ["p_adjusted", "low", "high"]
    np.testing.assert_array_equal(found.table[columns], tukey[columns])
    assert found.symbol == "t"
    assert found.table["statistic"].abs().to_numpy() * np.sqrt(2.0) == pytest.approx(
        tukey["statistic"].to_numpy(), rel=1e-12
    )
    assert found.ranks().equals(balanced.compare_levels("sys", "tukey").ranks())


def test_max_t_of_any_layout_has_the_covariance_of_the_fit():
    data = two_way(9, 3)[1].drop([1, 2, 4, 5, 9, 13, 16, 20, 22, 25])
    res = vcomp.fit("score ~ sys + (1|topic)", data)
    found = res.compare_levels("sys", "max-t", ddf="normal")
    columns = [name for name in res.fe_params.index if name.startswith("sys")]
    cov = res.cov_params().loc[columns, columns].to_numpy()
    rows = np.array([[1, 0], [0, 1], [1, -1]]) @ np.linalg.cholesky(cov)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    # The length of two normals exceeds r with probability exp(-r²/2).
    angle = np.linspace(0.0, np.pi, 4001)[:-1]
    reach = np.abs(rows @ np.array([np.cos(angle), np.sin(angle)])).max(axis=0)
    for t, p in zip(found.table["statistic"], found.table["p_value"], strict=True):
        assert p == pytest.approx(np.exp(-0.5 * (t / reach) ** 2).mean(), rel=5e-3)
    assert "quasi-Monte Carlo" in str(found)
    loose = res.compare_levels("sys", "tukey", ddf="normal").table
    assert (found.table["high"] <= loose["high"] + 1e-3).all()


def test_the_probability_of_the_best_level(main_effects):
    found = main_effects.compare_levels("sys").probability_of_best()
    assert found.index.tolist() == main_effects.compare_levels("sys").groups.index.tolist()
    assert found["probability"].sum() == pytest.approx(1.0, rel=1e-12)
    two = main_effects.compare_levels("sys", levels=["a", "b"])
    d, se, df = two.table[["difference", "std_error", "df"]].to_numpy()[0]
    best = two.probability_of_best()["probability"]
    assert best["a"] == pytest.approx(stats.t.cdf(d / se, df), abs=1e-3)
    least = two.probability_of_best("smallest")["probability"]
    assert least["a"] == pytest.approx(best["b"], abs=1e-3)
    with pytest.raises(PlanError, match="needs errors of a fit"):
        vcomp.ir.compare_systems(two_way(9, 3)[0]).probability_of_best()
    res = vcomp.fit("score ~ sys + (1|topic)", two_way(9, 3)[1])
    assert res.compare_levels("sys").probability_of_best()["probability"].gt(0.0).all()


# Random terms ----------------------------------------------------------------------------------


def test_shrunken_differences_of_a_balanced_layout():
    Z, data = two_way(9, 6)
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data)
    found = res.compare_levels("sys", correction="none")
    s2, e2 = res.vcomp["sys"], res.vcomp["Residual"]
    kept = s2 / (s2 + e2 / 9)
    i, j = np.triu_indices(6, 1)
    means = Z.mean(axis=0)
    table = found.table
    assert table["difference"].to_numpy() == pytest.approx(kept * (means[i] - means[j]), rel=1e-11)
    assert table["std_error"].to_numpy() == pytest.approx(
        np.full(15, np.sqrt(2.0 * e2 / 9 * kept)), rel=1e-11
    )
    assert found.means.to_numpy() == pytest.approx(Z.mean() + kept * (means - Z.mean()), rel=1e-11)
    z = table["difference"] / table["std_error"]
    assert table["p_value"].to_numpy() == pytest.approx(2 * stats.norm.sf(np.abs(z)), rel=1e-10)
    assert "shrunken" in found.test
    assert "sys is random" in str(found)
    assert not table[["p_value", "p_adjusted"]].diff(axis=1).to_numpy()[:, 1].any()


@pytest.mark.parametrize("name", ["crossed", "crossed and nested", "three facets"])
@pytest.mark.parametrize("fixed", ["1", "x"])
def test_errors_of_shrunken_differences_are_dense(name, fixed):
    """Var(û − u) = G − G Z'PZ G of each term, with P of all terms."""
    formula, data = unbalanced(name, seed=5)
    data = data.assign(x=np.random.default_rng(0).normal(size=len(data)) + 4.0)
    res = vcomp.fit(formula.replace("~", f"~ {fixed} +"), data)
    chunk, v = res.model.statistics.rows, np.maximum(res.vcomp.to_numpy(), 0.0)
    Z = [np.eye(int(codes.max()) + 1)[codes] for codes in chunk.codes]
    V = v[-1] * np.eye(len(data)) + sum(c * z @ z.T for c, z in zip(v, Z, strict=False))
    Vi = np.linalg.inv(V)
    X = res.model.exog
    P = Vi - Vi @ X @ np.linalg.solve(X.T @ Vi @ X, X.T @ Vi)
    for t, term in enumerate(res.model.design.terms):
        if v[t] == 0.0:
            continue
        C = v[t] * np.eye(Z[t].shape[1]) - v[t] ** 2 * Z[t].T @ P @ Z[t]
        u = v[t] * Z[t].T @ P @ data["y"].to_numpy()
        found = res.compare_levels(term.name).table
        i, j = np.triu_indices(len(u), 1)
        assert found["difference"].to_numpy() == pytest.approx(u[i] - u[j], abs=1e-8)
        variances = C[i, i] + C[j, j] - 2.0 * C[i, j]
        assert np.square(found["std_error"].to_numpy()) == pytest.approx(variances, rel=1e-8)
        few = (i[:7], j[:7])
        iterative = difference_variances(
            res.model.statistics, v, t, few, EngineLimits(for_variances=-1.0)
        )
        assert iterative == pytest.approx(variances[:7], rel=1e-8)


def test_levels_of_nested_terms_have_names_of_all_their_facets():
    formula, data = unbalanced("nested", seed=2)
    found = vcomp.fit(formula, data).compare_levels("a:b", levels=[("0", "1"), "2:0"])
    assert found.table["first"].tolist() == ["0:1"]
    assert found.table["second"].tolist() == ["2:0"]


def test_a_component_of_zero_is_refused():
    data = two_way(9, 4)[1]
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, hold={"sys": 0.0})
    with pytest.raises(EstimationError, match=r"fit C\(sys\) in place of \(1\|sys\)"):
        res.compare_levels("sys")


# Options ---------------------------------------------------------------------------------------


def test_levels_and_baseline(main_effects):
    every = main_effects.compare_levels("sys", correction="none").table
    some = main_effects.compare_levels("sys", levels=["d", "a"], correction="none")
    assert some.table["difference"][0] == -every["difference"][2]
    assert some.table["p_value"][0] == every["p_value"][2]
    assert list(some.means.index) == ["d", "a"]
    against = main_effects.compare_levels("sys", baseline="b", correction="bonferroni")
    assert list(zip(against.table["first"], against.table["second"], strict=True)) == [
        ("a", "b"), ("c", "b"), ("d", "b"),
    ]  # fmt: skip
    assert against.table["p_adjusted"].to_numpy() == pytest.approx(
        np.minimum(3.0 * against.table["p_value"].to_numpy(), 1.0), rel=1e-14
    )
    with pytest.raises(PlanError, match="3 pairs of 4 levels of sys, with one baseline"):
        _ = against.groups


@pytest.mark.parametrize("values", [[1, 2, 3], [0.5, 1.5, 2.5], [False, True]])
def test_levels_that_are_no_text(values):
    data = deterministic()
    data["g"] = np.array(values)[np.arange(len(data)) % len(values)]
    res = vcomp.fit("score ~ C(g) + (1|topic)", data)
    found = res.compare_levels("g", levels=[values[1], str(values[0])])
    assert found.table["first"].tolist() == [values[1]]
    assert found.table["second"].tolist() == [values[0]]


def test_the_factor_has_the_name_of_its_column_or_its_code():
    data = deterministic().rename(columns={"sys": "the system"})
    res = vcomp.fit("score ~ C(Q('the system'), Treatment('b')) + (1|topic)", data)
    by_name = res.compare_levels("the system").table
    code = next(iter(res.model.design.fixed.design_info.factor_infos)).code
    pd.testing.assert_frame_equal(by_name, res.compare_levels(code).table)
    other = vcomp.fit("score ~ sys + (1|topic)", deterministic()).compare_levels("sys").table
    # The order of the columns differs, and with it rounding.
    pd.testing.assert_frame_equal(by_name, other, rtol=1e-8)


def test_errors_of_other_kinds(main_effects):
    normal = main_effects.compare_levels("sys", ddf="normal")
    assert normal.symbol == "z"
    assert np.isinf(normal.table["df"]).all()
    robust = main_effects.compare_levels("sys", cov_type="robust").table
    peer = main_effects.t_test("sys[T.b] - sys[T.c]", cov_type="robust").iloc[0]
    row = robust.iloc[3]
    assert (row["std_error"], row["df"], row["p_value"]) == pytest.approx(
        (peer["std_error"], peer["df"], peer["p_value"]), rel=1e-9
    )


def test_tukey_with_known_components_is_normal(balanced):
    table = balanced.compare_levels("sys", "tukey", ddf="normal").table
    q = table["statistic"].to_numpy()
    # scipy's quadrature has an absolute error of about 1e-9 without degrees of freedom.
    assert table["p_value"].to_numpy() == pytest.approx(
        stats.studentized_range.sf(q, 4, np.inf), abs=1e-8
    )


def test_means_of_random_levels_are_at_equal_weights_of_the_factors(main_effects):
    """Their predicted effects beside the mean of four systems and two queries."""
    b, data = main_effects.fe_params, deterministic()
    mean = b["Intercept"] + b["x"] * data["x"].mean() + b["query[T.w]"] / 2
    mean += (b["sys[T.b]"] + b["sys[T.c]"] + b["sys[T.d]"]) / 4
    found = main_effects.compare_levels("topic").means
    effects = main_effects.random_effects["topic"].iloc[:, 0]
    np.testing.assert_allclose(found.to_numpy(), mean + effects.to_numpy(), rtol=1e-10)


@pytest.mark.parametrize(("facet", "several"), [("sys", True), ("query", False)])
def test_intervals_of_several_pairs_are_said_to_be_separate(main_effects, facet, several):
    notes = main_effects.compare_levels(facet).notes
    assert ("Intervals: each pair separately." in notes) == several


def test_means_of_shares_that_make_up_the_constant():
    """Two shares that add up to 1 are as a constant and one of them."""
    data = deterministic()
    data = data.assign(a=data["x"] / 2 + 0.1, b=0.9 - data["x"] / 2)
    one, other = (
        vcomp.fit(f"score ~ {fixed} + (1|topic)", data).compare_levels("topic").means
        for fixed in ("0 + a + b", "a")
    )
    np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_name_of_a_test_does_not_depend_on_the_unit(unit):
    for data, name, notes in (
        (two_way(9, 4)[1], "Tukey's HSD", 0),
        (two_way(9, 4)[1].drop(index=[0, 7]), "Tukey-Kramer test", 1),
    ):
        res = vcomp.fit("score ~ C(sys) + (1|topic)", data.assign(score=unit * data["score"]))
        found = res.compare_levels("sys", "tukey")
        assert found.test.startswith(name)
        assert sum("Kramer" in note for note in found.notes) == notes


def test_rows_that_were_read_in_batches_have_the_same_means(main_effects, tmp_path):
    path = tmp_path / "rows.parquet"
    deterministic().to_parquet(path)
    res = vcomp.fit("score ~ sys + query + x + (1|topic)", path, stream=True)
    pd.testing.assert_frame_equal(
        res.compare_levels("sys").table, main_effects.compare_levels("sys").table, rtol=1e-8
    )


def test_the_result_is_printed_and_drawn(main_effects):
    from matplotlib.figure import Figure

    found = main_effects.compare_levels("sys")
    text = str(found)
    assert "Differences between levels of sys: t-test, Satterthwaite's degrees of freedom" in text
    assert "Degrees of freedom: 63.01 to 63.11, different for each pair." in text
    assert "std err" in text
    assert repr(found).endswith("5 of 6 pairs of sys distinct>")
    for kind in ("groups", "p_values"):
        assert found.plot(kind, ax=Figure().subplots()) is not None
    assert list(found.groups["group"]) == ["a", "b", "b", "c"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"facet": "sis"}, PlanError, "neither a factor.*did you mean 'sys'.*'topic'"),
        ({"facet": "x"}, FormulaError, "numerical covariate.*write C\\(x\\)"),
        ({"test": "hsd"}, PlanError, "test must be 't', 'tukey', 'max-t' or 'dunnett'"),
        ({"test": "holm"}, PlanError, "'holm' is a correction of t-tests: correction='holm'"),
        ({"test": "tukey", "correction": "holm"}, PlanError, "need no correction="),
        ({"test": "tukey", "baseline": "a"}, PlanError, "with a baseline use 'dunnett'"),
        ({"test": "max-t", "baseline": "a"}, PlanError, "test='max-t' is of all pairs"),
        ({"test": "dunnett"}, PlanError, "name it by baseline="),
        ({"correction": "bonf"}, PlanError, "correction must be"),
        ({"levels": "ab"}, PlanError, "a list of levels of sys, not the text 'ab'"),
        ({"levels": ["a", "e"]}, DataError, "sys has no level 'e'"),
        ({"levels": ["b", "a", "a"]}, PlanError, "level 'a' of sys is given twice"),
        ({"levels": ["a"]}, PlanError, "at least two levels of sys, not 1"),
        ({"levels": ["a", "b"], "baseline": "c"}, DataError, "sys has no level 'c'"),
        ({"alpha": 1.0}, PlanError, "alpha"),
        ({"ddf": "t"}, EstimationError, "ddf='t' is not known"),
        ({"cov_type": "hc"}, EstimationError, "cov_type='hc' is not known"),
        ({"facet": "topic", "ddf": "normal"}, PlanError, "topic is random.*ddf="),
        ({"facet": "topic", "cov_type": "model"}, PlanError, "topic is random.*cov_type="),
        ({"facet": "topic", "test": "tukey"}, PlanError, "fit C\\(topic\\) in place"),
    ],
)
def test_mistakes(main_effects, options, error, message):
    with pytest.raises(error, match=message):
        main_effects.compare_levels(**{"facet": "sys", **options})


@pytest.mark.parametrize(
    ("zeros", "note"),
    [
        (("s:t",), "s:t is estimated at zero and adds nothing to it."),
        (("s:t", "s:j"), "s:t and s:j are estimated at zero and add nothing to it."),
    ],
)
def test_components_of_the_error_variance_that_are_zero_are_named(zeros, note):
    """Rows with the same mean in each cell of a term have no variance of that term."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(list(np.ndindex(4, 5, 3)), columns=["s", "t", "j"])
    frame = frame.assign(y=rng.normal(size=60), s=frame["s"].map("s{}".format))
    for term in zeros:
        frame["y"] -= frame.groupby(term.split(":"))["y"].transform("mean")
    if "s:j" not in zeros:
        frame["y"] += 2.0 * frame.groupby(["s", "j"])["y"].transform("first")
    found = vcomp.fit("y ~ s + (1|t) + (1|j) + (1|s:t) + (1|s:j)", frame).compare_levels("s")
    assert note in found.notes


def test_differences_without_error_are_certain():
    """Of 0 they have p = 1, of others p = 0."""
    d, nothing = np.array([0.0, 2.0, -3.0]), np.zeros(3)
    tests = ContrastTest(d, nothing, np.full(3, 5.0), np.full(3, np.nan), np.full(3, np.nan))
    found, _ = _values("t", tests, lambda: np.zeros((3, 3)), np.triu_indices(3, 1), 0.05)
    np.testing.assert_array_equal(found["statistic"], [0.0, np.inf, -np.inf])
    np.testing.assert_array_equal(found["p_value"], [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(found["low"], d)
    np.testing.assert_array_equal(found["high"], d)


def test_differences_without_error_have_no_correlations():
    se, df = np.array([1.0, 0.0]), np.full(2, 5.0)
    tests = ContrastTest(np.ones(2), se, df, np.full(2, np.nan), np.full(2, np.nan))
    pairs = np.array([0, 0]), np.array([1, 2])
    with pytest.raises(EstimationError, match="standard errors above zero"):
        _values("dunnett", tests, lambda: np.diag(se), pairs, 0.05)


@pytest.mark.parametrize(("levels", "baseline"), [("ab", None), ("abc", "a"), ("abc", None)])
def test_intervals_of_several_pairs_are_of_each_separately(main_effects, levels, baseline):
    text = str(main_effects.compare_levels("sys", levels=list(levels), baseline=baseline))
    assert ("each pair separately" in text) == (len(levels) > 2)


def test_a_column_that_occurs_twice_is_refused():
    data = deterministic().assign(year=np.arange(80) % 3)
    res = vcomp.fit("score ~ C(year) + np.sin(year):x + (1|topic)", data)
    with pytest.raises(FormulaError, match=r"C\(year\) and np.sin\(year\), both of column 'year'"):
        res.compare_levels("year")
    # Functions of other columns are not in the way.
    res = vcomp.fit("score ~ C(year, Sum) + C(sys, Sum) + np.sin(x) + (1|topic)", data)
    assert len(res.compare_levels("year").table) == 3


def test_a_covariate_without_a_constant_is_refused():
    res = vcomp.fit("score ~ 0 + sys:x + (1|topic)", deterministic())
    with pytest.raises(FormulaError, match=r"the mean of x cannot be found.*add an intercept"):
        res.compare_levels("sys")


def test_too_many_pairs_are_refused():
    # Six pairs of 400 bytes are 80 % of 3000.
    with pytest.raises(EstimationError, match=r"pairs of 4 levels of sys need.*baseline="):
        _pairs("sys", list("abcd"), None, free_bytes=lambda: 2999.0)
    assert len(_pairs("sys", list("abcd"), None, free_bytes=lambda: 3001.0)[0]) == 6


@pytest.mark.parametrize(
    ("formula", "omitted"),
    [
        ("score ~ model + (1|item)", "model:item"),
        ("score ~ C(model) + (1|item) + (1|prompt)", "model:item:prompt"),
        ("score ~ model + (1|item) + (1|model:item)", None),
        ("score ~ group + (1|item)", None),  # items are nested in groups
        ("score ~ model * rep * prompt + (1|item)", None),  # factors separate the scores
    ],
)
def test_an_omitted_interaction_of_several_scores_is_noted(formula, omitted):
    model, item, prompt, rep = np.indices((3, 8, 2, 2)).reshape(4, -1)
    columns = {"model": model, "group": item % 2, "prompt": prompt, "rep": rep}
    data = pd.DataFrame({name: [f"{name}{k}" for k in codes] for name, codes in columns.items()})
    data["item"], data["score"] = item, np.random.default_rng(2).normal(size=item.size)
    res = vcomp.fit(formula, data)
    notes = res.compare_levels("group" if "group" in formula else "model").notes
    found = [note for note in notes if "hold several scores" in note]
    assert len(found) == (omitted is not None)
    if omitted is not None:
        assert f"no term {omitted}:" in found[0]
        more = vcomp.fit(f"{formula} + (1|{omitted})", data).compare_levels("model")
        assert not any("hold several scores" in note for note in more.notes)


def test_pairs_of_many_levels_need_a_solve_a_level():
    """Differences of a factor that is kept sparse, against a complete design's mean squares."""
    rng = np.random.default_rng(0)
    models, items, times = 101, 100, 2
    y = rng.normal(size=items)[:, None] + 0.5 * rng.normal(size=(models, items, 1))
    y = y + rng.normal(size=(models, items, times))
    m, i, _ = (of.ravel() for of in np.indices(y.shape))
    data = pd.DataFrame({"model": m, "item": i, "y": y.ravel()})
    res = vcomp.fit("y ~ C(model) + (1|item) + (1|model:item)", data)
    pairs = res.compare_levels("model", "t").table
    cells = y.mean(axis=2)
    rest = cells - cells.mean(axis=0) - cells.mean(axis=1, keepdims=True) + cells.mean()
    df = (models - 1) * (items - 1)
    error = np.sqrt(2.0 * (rest**2).sum() / df / items)
    assert pairs["std_error"].to_numpy() == pytest.approx(error, rel=1e-6)
    assert pairs["df"].to_numpy() == pytest.approx(df, rel=1e-5)
    # Of incomplete data one pair of two levels is solved for itself.
    res = vcomp.fit("y ~ C(model) + (1|item) + (1|model:item)", data[rng.random(len(data)) > 0.3])
    pairs = res.compare_levels("model", "t").table
    assert "sparse factor" in res.engine
    for two in ([3, 7], [50, 99]):
        alone = res.compare_levels("model", "t", levels=two).table
        kept = pairs.merge(alone[["first", "second"]])
        for name in ("std_error", "df", "p_value"):
            assert kept[name].to_numpy() == pytest.approx(alone[name].to_numpy(), rel=1e-9)


# An error of each pair --------------------------------------------------------------------------


def of_models(shape, seed=0, missing=0.0):
    """Return scores (models, items, prompts), the errors of some models larger, and their rows."""
    rng = np.random.default_rng(seed)
    k, n, p = shape
    size = np.exp(0.5 * rng.normal(size=(k, 1, 1)))
    y = rng.normal(size=(1, n, 1)) + size * rng.normal(size=(k, n, 1)) + rng.normal(size=shape)
    y = y + (p > 1) * 0.5 * rng.normal(size=(k, 1, p))
    y[rng.random(shape) < missing] = np.nan
    m, i, q = np.indices(shape).reshape(3, -1)
    columns = {"model": m, "item": i, "prompt": q, "score": y.ravel()}
    return y, pd.DataFrame(columns).dropna().reset_index(drop=True)


def test_robust_errors_of_two_crossed_facets_are_those_of_paired_t_tests():
    y, data = of_models((5, 12, 1))
    res = vcomp.fit("score ~ C(model) + (1|item)", data)
    found = res.compare_levels("model", "t", cov_type="robust", ddf="unbounded").table
    pairs = list(itertools.combinations(range(5), 2))
    paired = [stats.ttest_rel(y[i, :, 0], y[j, :, 0]) for i, j in pairs]
    assert found["p_value"].tolist() == pytest.approx([of.pvalue for of in paired], rel=1e-7)
    assert found["statistic"].tolist() == pytest.approx([of.statistic for of in paired], rel=1e-7)
    assert found["df"].tolist() == pytest.approx([11.0] * 10)
    ends = np.array([of.confidence_interval() for of in paired])
    np.testing.assert_allclose(found[["low", "high"]], ends, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        found["p_adjusted"], adjusted(np.array([of.pvalue for of in paired]), "holm"), rtol=1e-7
    )


TERMS = "(1|item) + (1|prompt) + (1|model:item) + (1|model:prompt) + (1|item:prompt)"


def test_robust_errors_of_three_facets_are_those_of_the_analysis_of_variance_of_differences():
    y, data = of_models((6, 20, 9), seed=3)
    res = vcomp.fit(f"score ~ C(model) + {TERMS}", data)
    found = res.compare_levels("model", "t", cov_type="robust").table
    for row, (i, j) in zip(found.itertuples(), itertools.combinations(range(6), 2), strict=True):
        d = y[i] - y[j]
        items, prompts = d.mean(axis=1) - d.mean(), d.mean(axis=0) - d.mean()
        rest = d - d.mean() - items[:, None] - prompts
        of_items, of_prompts = 9 * np.sum(items**2) / 19, 20 * np.sum(prompts**2) / 8
        variance = (of_items + of_prompts - np.sum(rest**2) / (19 * 8)) / (20 * 9)
        assert row.std_error == pytest.approx(np.sqrt(variance), rel=1e-6)
        assert 8.0 <= row.df <= 19.0


def test_robust_errors_of_few_prompts_have_the_component_of_all_models():
    y, data = of_models((7, 20, 3), seed=4)
    res = vcomp.fit(f"score ~ C(model) + {TERMS}", data)
    found = res.compare_levels("model", "t", cov_type="robust", ddf="unbounded").table
    model = res.compare_levels("model", "t", ddf="unbounded").table
    prompts = 2.0 * res.vcomp["model:prompt"] / 3.0
    for row, (i, j) in zip(found.itertuples(), itertools.combinations(range(7), 2), strict=True):
        items = np.var((y[i] - y[j]).mean(axis=1), ddof=1) / 20.0
        assert row.std_error == pytest.approx(np.sqrt(items + prompts), rel=1e-6)
    # Two variances for one: of all pairs together they are those of the model.
    squares = (np.square(table["std_error"]).mean() for table in (found, model))
    assert next(squares) == pytest.approx(next(squares), rel=1e-6)
    assert (found["df"] < model["df"]).mean() > 0.5


def test_robust_errors_of_holes_are_of_the_sums_of_items():
    """A dense form: W = Σ uu' + Σ HWH' of the items, u = ΦX'V⁻¹e, H = ΦX'V⁻¹X."""
    data = of_models((3, 14, 1), seed=5, missing=0.25)[1]
    res = vcomp.fit("score ~ C(model) + (1|item)", data)
    X = np.eye(3)[data["model"]]
    same = data["item"].to_numpy()[:, None] == data["item"].to_numpy()
    V = res.vcomp["item"] * same + res.vcomp["Residual"] * np.eye(len(data))
    phi = np.linalg.inv(X.T @ np.linalg.solve(V, X))
    weights = phi @ np.linalg.solve(V, X).T
    e = data["score"].to_numpy() - X @ (weights @ data["score"].to_numpy())
    items = [data["item"].to_numpy() == i for i in data["item"].unique()]
    sums = sum(np.outer(*[weights[:, of] @ e[of]] * 2) for of in items)
    lacking = sum(np.kron(*[weights[:, of] @ X[of]] * 2) for of in items)
    W = np.linalg.solve(np.eye(9) - lacking, sums.ravel()).reshape(3, 3)
    found = res.compare_levels("model", "t", cov_type="robust").table
    for row, (i, j) in zip(found.itertuples(), itertools.combinations(range(3), 2), strict=True):
        assert row.std_error == pytest.approx(np.sqrt(W[i, i] + W[j, j] - 2 * W[i, j]), rel=1e-6)


def test_equal_levels_differ_by_zero():
    right = (np.random.default_rng(0).random((3, 20)) < 0.5).astype(float)
    right[1] = right[0]
    m, i = np.indices(right.shape).reshape(2, -1)
    data = pd.DataFrame({"model": m, "item": i, "score": right.ravel()})
    res = vcomp.fit("score ~ C(model) + (1|item)", data)
    for options in ({}, {"cov_type": "robust"}):
        for test in ("t", "tukey"):
            row = res.compare_levels("model", test, **options).table.iloc[0]
            assert row["difference"] == row["statistic"] == 0.0
            assert row["p_value"] == pytest.approx(1.0, abs=1e-12)
    # That these items show no difference does not show that others would not.
    assert row["std_error"] > 0.0
    found = res.compare_levels("model", cov_type="robust")
    first, second = found.ranks().loc[[0, 1], "rank"]
    assert first == second
    assert found.probability_of_best().loc[[0, 1], "probability"].diff().abs().iloc[1] < 1e-3
