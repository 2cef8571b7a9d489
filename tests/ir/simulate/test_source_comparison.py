"""The nine indicators, loop by loop; and what simulated collections have to show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import ndtr

import vcomp
from tests.helpers.printed_tables import printed_columns
from vcomp.exceptions import DataError, VcompWarning
from vcomp.ir.simulate.margin_families import cdf_bandwidth
from vcomp.ir.simulate.source_comparison import (
    INDICATORS,
    OriginalCollection,
    _Distribution,
    _row_correlations,
    _shares,
)


def collection(n_topics, n_systems, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n_topics, 1)) + rng.normal(size=(n_topics, 2)) @ rng.normal(
        size=(2, n_systems)
    )
    logits += rng.normal(size=(n_topics, n_systems)) * np.linspace(0.3, 1.0, n_systems)
    return 1.0 / (1.0 + np.exp(-logits - np.linspace(-1.0, 0.3, n_systems)))


def effects(X):
    mean = X.mean()
    nu_s, nu_t = X.mean(axis=0) - mean, X.mean(axis=1) - mean
    return nu_s, nu_t, X - mean - nu_s - nu_t[:, None]


def shares(X):  # g.study of the paper's code
    n_t, n_s = X.shape
    nu_s, nu_t, E = effects(X)
    ms_s, ms_t = n_t * (nu_s**2).sum() / (n_s - 1), n_s * (nu_t**2).sum() / (n_t - 1)
    ms_e = (E**2).sum() / ((n_s - 1) * (n_t - 1))
    components = np.maximum([(ms_s - ms_e) / n_t, (ms_t - ms_e) / n_s, ms_e], 0)
    return components / components.sum()


def omega2(original, simulated):
    h = cdf_bandwidth(original)

    def F(t):
        G = [ndtr((end - original) / h).mean() for end in (-1.0, t, 1.0)]
        return (G[1] - G[0]) / (G[2] - G[0])

    where = original if len(original) > len(simulated) else simulated
    return np.mean([(F(t) - np.mean(simulated <= t)) ** 2 for t in where])


def tau_ap(means, truth):  # Urbano (2016), eq. 6, systems without ties
    order = np.argsort(-truth)
    total = 0.0
    for i in range(1, len(order)):
        total += np.mean([means[order[j]] > means[order[i]] for j in range(i)])
    return 2.0 * total / (len(order) - 1) - 1.0


def one_by_one(X, Y):
    nu_t, E = effects(X)[1:]
    new_t, new_E = effects(Y)[1:]
    pairs = np.triu_indices(X.shape[1], 1)
    R, new_R = np.corrcoef(E.T)[pairs], np.corrcoef(new_E.T)[pairs]
    return [
        Y.mean() - X.mean(),
        tau_ap(Y.mean(axis=0), X.mean(axis=0)),
        omega2(nu_t, new_t),
        np.mean([omega2(E[:, s], new_E[:, s]) for s in range(X.shape[1])]),
        *(shares(Y) - shares(X)),
        new_E.var(axis=0, ddof=1).std(ddof=1) - E.var(axis=0, ddof=1).std(ddof=1),
        np.corrcoef(R, new_R)[0, 1],
    ]


@pytest.mark.parametrize("n_topics", [2, 12, 30, 45])
def test_indicators_loop_by_loop(n_topics):
    X = collection(30, 6, seed=1)
    Y = np.stack([collection(n_topics, 6, seed) for seed in (2, 3, 4)])
    found = OriginalCollection(X).indicators(Y)
    expected = np.array([one_by_one(X, one) for one in Y])
    exact = [0, 1, 4, 5, 6, 7, 8]
    np.testing.assert_allclose(found[:, exact], expected[:, exact], rtol=1e-9, atol=1e-12)
    # Distributions are tabulated at 1025 points, on straight lines between them.
    np.testing.assert_allclose(found[:, 2:4], expected[:, 2:4], rtol=1e-3, atol=1e-6)


def test_a_collection_is_like_itself():
    X = collection(40, 5, seed=2)
    row = vcomp.ir.compare_simulated(X, X).table.iloc[0]
    assert list(row.index) == list(INDICATORS)
    zeros = row[["mu_s", "var_s", "var_t", "var_st", "sd_var"]]
    np.testing.assert_allclose(zeros, 0.0, atol=1e-12)
    np.testing.assert_allclose(row[["tau_ap", "cor"]], 1.0, rtol=1e-12)
    assert row["w2_t"] < 0.002  # the kernel estimate is not the sample


def compared(X, n_topics=200, size=60, **options):
    simulator = vcomp.ir.fit_collection(X, **options)
    return vcomp.ir.compare_simulated(simulator, simulator.simulate(n_topics, size, rng=8)).table


@pytest.fixture(params=["enterprise2006", "web2004"])
def trec(request, shared_data):
    scores = pd.read_csv(shared_data(f"{request.param}.csv"))
    return vcomp.ir.as_score_matrix(scores).drop_worst(0.25)


def test_simulated_trec_collections(trec):
    """Urbano (2016), figs. 4 and 5, right under the realistic assumptions."""
    table = compared(trec)
    # Means are unbiased: five standard errors.
    error = table["mu_s"].std() / np.sqrt(len(table))
    assert abs(table["mu_s"].mean()) < 5 * error
    # The rest as far as the boxes of the figures reach: kernels are wider than the residuals.
    assert table["tau_ap"].mean() > 0.7
    assert table["w2_t"].mean() < 0.005
    assert table["w2_E"].mean() < 0.005
    assert table[["var_s", "var_t", "var_st"]].mean().abs().max() < 0.04
    assert abs(table["sd_var"].mean()) < 0.007
    assert table["cor"].mean() > 0.85


SWITCHES = ("Normality", "Homoscedasticity", "Uncorrelated effects", "Random sampling")
ROWS = (*SWITCHES, "$n_t'$", "residuals")


def published_shares(printed):
    """Return Table 2 of Urbano (2016): a row a factor, a column an indicator, in per cent."""
    return pd.DataFrame(printed["shares"], index=list(INDICATORS), dtype=float).T


def variance_shares(values):
    """Return what each axis but the last two adds to the variance; then what is left over."""
    *axes, _, _ = range(values.ndim)
    n = values[..., 0].size
    centred = values - values.mean(axis=tuple(range(values.ndim - 1)))
    left, df, found = (centred**2).sum(axis=tuple(range(values.ndim - 1))), n - 1, []
    for axis in axes:
        levels = values.shape[axis]
        others = tuple(k for k in range(values.ndim - 1) if k != axis)
        squares = (centred.mean(axis=others) ** 2).sum(axis=0) * n / levels
        found.append((squares / (levels - 1), n / levels))
        left, df = left - squares, df - levels + 1
    error = left / df
    components = np.array([*((ms - error) / r for ms, r in found), error])
    return 100.0 * components / components.sum(axis=0)


def test_assumptions_matter_as_published(reference, shared_data):
    """Urbano (2016), Table 2, on the smallest of his four collections."""
    published = published_shares(reference("urbano2016_tables")["values"]["table2"])
    scores = pd.read_csv(shared_data("genomics2004.csv"))
    X = vcomp.ir.as_score_matrix(scores).drop_worst(0.25).scores
    original, sizes, trials = OriginalCollection(X), (15, 50, 200), 8
    values = np.empty((2, 2, 2, 2, len(sizes), trials, len(INDICATORS)))
    for switches in np.ndindex(2, 2, 2, 2):
        simulator = vcomp.ir.fit_collection(
            X,
            margins="normal" if switches[0] else "kernel",
            heteroscedasticity=float(not switches[1]),
            correlation=float(not switches[2]),
            random_sampling=bool(switches[3]),
            means="fitted",
        )
        number = int(np.ravel_multi_index(switches, (2, 2, 2, 2)))
        for k, n in enumerate(sizes):
            made = simulator.simulate(n, trials, rng=1_000 * number + n)
            values[(*switches, k)] = original.indicators(made.scores)
    found = pd.DataFrame(variance_shares(values), index=ROWS, columns=list(INDICATORS))
    for name in INDICATORS:
        ours, theirs = found.loc[list(SWITCHES), name], published.loc[list(SWITCHES), name]
        if theirs.max() >= 10:  # else no assumption matters, and which is largest is chance
            assert ours.idxmax() == theirs.idxmax() or theirs[ours.idxmax()] >= theirs.max() - 2
        # The switches that hardly matter in the table hardly matter here: one collection instead
        # of four, and some trials instead of a hundred.
        assert (ours[theirs <= 2] < 12).all(), name
    assert found.loc["Uncorrelated effects", "cor"] > 90
    assert found.loc["residuals", "mu_s"] > 85


def test_more_topics_are_nearer_to_the_original():
    X = collection(60, 10, seed=5)
    few, many = compared(X, 20), compared(X, 500)
    assert many["tau_ap"].mean() > few["tau_ap"].mean()
    assert many["cor"].mean() > few["cor"].mean()
    for name in ("w2_t", "w2_E"):
        assert many[name].mean() < few[name].mean()
    assert many["mu_s"].std() < few["mu_s"].std()


@pytest.mark.slow
def test_normal_residuals_without_kernels_keep_components_and_variances():
    # Nothing is smoothed but topic effects: σ²(system:topic) and its spread stay what they are.
    X = collection(50, 8, seed=6)
    table = compared(X, 2_000, 40, margins="normal")
    assert abs(table["sd_var"].mean()) < 5 * table["sd_var"].std() / np.sqrt(40) + 1e-4
    assert table["cor"].mean() > 0.99


@pytest.mark.slow
def test_switches_show_where_they_should():
    X = collection(60, 10, seed=5)
    as_it_is = compared(X, margins="normal")
    lost = compared(X, margins="normal", correlation=0)["cor"]
    # Centring alone leaves the correlations of independent residuals: next to none are kept.
    assert abs(lost.mean()) < 0.35 < 0.9 < as_it_is["cor"].mean()
    alike = compared(X, margins="normal", heteroscedasticity=0)
    spread = effects(X)[2].var(axis=0, ddof=1).std(ddof=1)
    # All that is left of the spread is that of variances of 200 normal residuals.
    left = effects(X)[2].var(axis=0, ddof=1).mean() * np.sqrt(2 / 199)
    assert alike["sd_var"].mean() == pytest.approx(left - spread, abs=0.5 * left)
    uneven = compared(X, random_sampling=False)
    assert uneven["mu_s"].std() > 3 * compared(X)["mu_s"].std()
    assert uneven["var_t"].mean() < -0.05  # "negative deviation"
    assert uneven["w2_t"].mean() > 3 * as_it_is["w2_t"].mean()


def test_summary_and_errors():
    X = collection(30, 4, seed=2)
    simulator = vcomp.ir.fit_collection(X)
    comparison = vcomp.ir.compare_simulated(X, simulator.simulate(20, 5))
    text = str(comparison.summary())
    assert "5 simulated collections of 20 topics; 30 in the original" in text
    assert all(name in text for name in INDICATORS)
    assert "nan" not in str(
        vcomp.ir.compare_simulated(X, X).summary()
    )  # one collection has no error
    with pytest.raises(DataError, match="have 3 systems, the original has 4"):
        vcomp.ir.compare_simulated(X, X[:, :3])
    with pytest.raises(DataError, match="at least two topics"):
        vcomp.ir.compare_simulated(X, X[:1])
    with pytest.raises(DataError, match="at least two topics; these are 0 × 30 × 4"):
        vcomp.ir.compare_simulated(X, np.empty((0, 30, 4)))
    with pytest.raises(DataError, match="missing or infinite"):
        vcomp.ir.compare_simulated(X, np.full((5, 4), np.nan))
    with pytest.raises(DataError, match="the original has missing scores"):
        vcomp.ir.compare_simulated(np.where(X > 0.9, np.nan, X), X)
    with pytest.warns(VcompWarning, match="cor is undefined for 1 of 1"):
        vcomp.ir.compare_simulated(X[:, :2], X[:, :2])


def test_collections_without_any_variance():
    X = collection(30, 4, seed=2)
    flat = np.stack([X[:10], np.full((10, 4), 0.3), X[10:20]])
    with pytest.warns(VcompWarning) as heard:
        table = vcomp.ir.compare_simulated(X, flat).table
    words = " ".join(str(w.message) for w in heard)
    assert "var_s, var_t and var_st are undefined for 1 of 3 collections" in words
    assert "cor is undefined for 1 of 3" in words
    assert table[["var_s", "var_t", "var_st"]].isna().all(axis=1).tolist() == [False, True, False]
    with pytest.raises(DataError, match=r"all scores of the original are 0\.3"):
        vcomp.ir.compare_simulated(flat[1], X)


def test_frames_are_read():
    X = collection(30, 5, seed=2)
    frame = pd.DataFrame(X, columns=list("abcde"))
    simulator = vcomp.ir.fit_collection(frame, drop_worst=0.25)
    assert len(simulator.systems) == 4
    assert set(simulator.systems) < set("abcde")
    other = vcomp.ir.fit_collection(X)
    np.testing.assert_array_equal(
        vcomp.ir.fit_collection(frame).simulate(9, rng=1).scores,
        other.simulate(9, rng=1).scores,
    )
    made = simulator.simulate(50, rng=2)
    found = vcomp.ir.measures.get("tau").actual(made.to_frame(), made.true_means.iloc[::-1])
    tau = stats.kendalltau(made[0].mean(axis=0), made.means).statistic
    assert found == pytest.approx(tau, abs=1e-12)
    frame.loc[3, "b"] = np.nan
    with pytest.raises(DataError, match="1 of 150 are missing, that of system 'b' on topic '3'"):
        vcomp.ir.fit_collection(frame)


def test_a_comparison_is_printed_as_its_summary():
    X = collection(30, 5, seed=2)
    comparison = vcomp.ir.compare_simulated(X, X[:20])
    assert str(comparison) == str(comparison.summary())
    assert "tau_ap" in str(comparison)
    assert "<table" in comparison._repr_html_()
    assert repr(comparison) == "<comparison of 1 simulated collections>"


@pytest.mark.parametrize(
    ("effects", "low", "high"), [([0.4, -0.2, 0.1], -1.0, 1.0), ([0.4, -1.5, 3.0], -1.5, 3.0)]
)
def test_distributions_of_effects_are_on_their_range(effects, low, high):
    """Effects of scores between 0 and 1 are between −1 and 1."""
    found = _Distribution(np.array(effects))
    assert (found.low, found.high) == (low, high)
    assert (found.table[0], found.table[-1]) == (0.0, 1.0)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_shares_of_components_are_those_of_any_unit(unit):
    X = collection(12, 4, seed=5)
    np.testing.assert_allclose(_shares(unit * X[None])[0], shares(X), rtol=1e-9)
    near = 1.0 + 1e-9 * X  # hardly any variance, but far more than rounding
    np.testing.assert_allclose(_shares(near[None])[0], shares(X), rtol=1e-5)
    assert np.isnan(_shares(np.full((1, 3, 2), unit))).all()


def test_two_of_each_are_enough():
    """Two systems and topics: shares, the distance of effects and standard errors by hand."""
    X, other = collection(30, 2, seed=2), collection(40, 2, seed=3)
    Y = np.stack([X[:2], other[:2]])
    with pytest.warns(VcompWarning, match="cor is undefined"):
        comparison = vcomp.ir.compare_simulated(X, Y)
    for row, y in zip(comparison.table.itertuples(), Y, strict=True):
        np.testing.assert_allclose(
            [row.var_s, row.var_t, row.var_st], shares(y) - shares(X), atol=1e-12
        )
    mu = comparison.table["mu_s"]
    printed, k = printed_columns(comparison.summary()), list(INDICATORS).index("mu_s")
    low, high = sorted(mu)
    expected = [(low + high) / 2.0, (high - low) / 2.0]
    expected += [low + q * (high - low) for q in (0.05, 0.95)]
    assert [column[k] for column in list(printed.values())[1:]] == [f"{x:.5f}" for x in expected]


@pytest.mark.parametrize("points", [[-0.2, 0.3], [0.0, 0.0, 0.3], [-0.3, 0.0, 0.0]])
def test_distances_of_few_effects(points):
    points = np.array(points)
    found = _Distribution(points).distances(points[None])
    assert found.item() == pytest.approx(omega2(points, points), abs=1e-6)  # from a table


def test_correlations_of_rows_leave_unknown_ones_out():
    rng = np.random.default_rng(4)
    rows, others = rng.normal(size=(2, 5, 9)) + 3.0
    rows[1, :2], others[1, 1:4], rows[2, 2:], others[3, :] = np.nan, np.nan, np.nan, np.nan
    found = _row_correlations(rows, others)
    expected = [pd.Series(x).corr(pd.Series(y)) for x, y in zip(rows, others, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.isnan(found).tolist() == [False, False, False, True, False]
