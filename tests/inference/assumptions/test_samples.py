"""Shape statistics against scipy, numbers of draws, and tests against draws."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

import vcomp
from vcomp.exceptions import PlanError
from vcomp.inference.assumptions import excess_kurtosis, skewness
from vcomp.inference.assumptions.diagnosis import _LISTED as LISTED
from vcomp.inference.assumptions.diagnosis import LevelStatistic, level_spread, permuted
from vcomp.inference.assumptions.samples import (
    EffectSample,
    ShapeNull,
    blocks,
    deviates,
    independent_null,
    n_draws,
    p_of,
    straightness,
)


def test_moments_and_probability_plots_are_those_of_scipy():
    x = np.random.default_rng(1).exponential(size=40)
    assert skewness(x) == pytest.approx(stats.skew(x), rel=1e-12)
    assert excess_kurtosis(x) == pytest.approx(stats.kurtosis(x), rel=1e-12)
    m = stats.norm.ppf((np.arange(1, 41) - 0.375) / 40.25)
    r = np.corrcoef(np.sort(x), m)[0, 1]
    assert straightness(np.sort(x)[:, None])[0] == pytest.approx(1 - r**2, rel=1e-9)


def test_equal_values_have_no_shape():
    for shape in (skewness, excess_kurtosis):
        assert np.isnan(shape(np.full(5, 3.0)))


def test_numbers_of_draws():
    assert (n_draws(100), n_draws(10**8), n_draws(100, 19)) == (999, 99, 19)
    assert (n_draws(20_020), n_draws(20_021)) == (999, 979)  # 998 may be drawn of the second
    for wrong in (18, 2.5, 25.5, True, "99"):
        with pytest.raises(PlanError, match="n is a whole number from 19 on"):
            n_draws(100, wrong)


def test_p_values():
    drawn = np.arange(1.0, 100.0)
    assert p_of(50.0, drawn) == 0.51
    assert p_of(0.5, drawn) == 1.0
    assert 0.0 < p_of(1e6, drawn) < 1e-6  # beyond all draws: the tail
    assert p_of(100.0, drawn) <= 0.01
    assert p_of(5.0, np.array([0.0, 1.0, 2.0])) == 0.25  # logarithms need positive draws
    small = np.exp(np.array([-1.0, -3.0, -2.5, -4.0, 0.5]))
    for observed in (1.7, 40.0):
        z = (np.log(observed) - np.log(small).mean()) / np.log(small).std(ddof=1)
        assert p_of(observed, small) == pytest.approx(min(stats.norm.sf(z), 1 / 6), rel=1e-12)


def test_outliers_are_named_and_the_critical_deviate_has_its_level():
    null = independent_null(30, 999, np.random.default_rng(1))
    t = stats.t.isf(0.05 / 60, 28)  # Grubbs (1950): Bonferroni's bound of the critical value
    bound = 29 / np.sqrt(30) * np.sqrt(t**2 / (28 + t**2))
    assert null.critical(0.05) == pytest.approx(bound, abs=0.06)
    values = np.append(np.linspace(-1.0, 1.0, 29), 9.0)
    found = EffectSample("topic", values).with_outliers(null.critical(0.05), lambda k: f"t{k}")
    assert [label for label, _ in found.outliers] == ["t29"]
    z = np.sort(np.abs(found.deviates))[::-1]
    for critical, n in ((z[0], 0), (z[1], 1), (np.nextafter(z[2], 0.0), 3 + (z[3] == z[2]))):
        beyond = found.with_outliers(float(critical), str).outliers
        assert len(beyond) == n
        np.testing.assert_allclose([abs(d) for _, d in beyond], z[:n], rtol=1e-14)


def test_draws_of_normal_samples_have_the_statistics_of_sorted_samples():
    """The correlation with normal scores, of which scipy's probability plot is another form."""
    null = independent_null(30, 300, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    samples = np.sort(rng.normal(size=(30, 300)), axis=0)
    wanted = straightness(samples)
    assert stats.ks_2samp(null.straightness, wanted).pvalue > 1e-4
    furthest = np.abs(stats.zscore(samples, axis=0, ddof=1)).max(axis=0)
    assert stats.ks_2samp(null.deviates, furthest).pvalue > 1e-4


def test_levels_need_three_degrees_of_freedom_for_their_spread():
    e = np.array([1.0, -2.0, 3.0, 8.0, -7.0, 9.0])
    for n, known in ((3, True), (2, False)):
        codes, labels = np.repeat(np.arange(2), 3)[3 - n : 3 + n], ["a", "b"]
        found = level_spread("t", labels, codes, e[3 - n : 3 + n], 2.0 * n, 0.0)
        assert found.df.tolist() == [n, n]
        assert np.isfinite(found.log_sd) == known


def test_levels_without_residuals_have_no_spread_to_compare():
    e = np.array([2.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 3.0, -3.0, 1.0, -1.0])
    codes = np.repeat(np.arange(3), [3, 4, 4])
    with_nothing = level_spread("t", ["a", "b", "c"], codes, e, 11.0, 0.0)
    rest = np.delete(np.arange(11), slice(3, 7))
    alone = level_spread("t", ["a", "b"], (codes // 2)[rest], e[rest], 7.0, 0.0)
    assert with_nothing.variances[1] == 0.0
    assert with_nothing.log_sd == alone.log_sd
    assert np.isfinite(alone.log_sd)


@pytest.mark.parametrize("n_blocks", [0, 1, 2])
@pytest.mark.parametrize("equal", [True, False])
def test_levels_statistic_is_brown_and_forsythes(equal, n_blocks):
    """With other facets as blocks, F of distances from which the means of blocks are taken."""
    rng = np.random.default_rng(4)
    codes = np.tile(np.arange(4), 15) if equal else rng.integers(0, 4, 60)
    e = rng.exponential(size=(60, 2))
    others = [rng.integers(0, 3, 60), rng.integers(0, 5, 60)][:n_blocks]
    expected = []
    for column in e.T:
        levels = [column[codes == k] for k in range(4)]
        w = np.abs(column - np.array([np.median(level) for level in levels])[codes])
        for block in others:
            w = w - np.array([w[block == k].mean() for k in range(block.max() + 1)])[block]
        expected.append(stats.f_oneway(*(w[codes == k] for k in range(4))).statistic)
        if n_blocks == 0:
            levene = stats.levene(*levels, center="median").statistic
            assert expected[-1] == pytest.approx(levene, rel=1e-12)
    np.testing.assert_allclose(LevelStatistic(codes, others)(e), expected, rtol=1e-10)


def test_skewed_errors_of_one_variance_keep_the_level():
    """Exponential errors of 12 × 8 cells: with distances from the mean 14 % are rejected."""
    rng = np.random.default_rng(6)
    codes, others = np.divmod(np.arange(96), 8)
    statistic, p = LevelStatistic(codes, [others]), []
    for _ in range(250):
        drawn = rng.exponential(size=(12, 8))
        e = centred(drawn).ravel()
        orders = permuted(e, others, 39, rng)
        null = statistic(centred(orders.T.reshape(39, 12, 8)).reshape(39, 96).T)
        p.append((1 + (null >= statistic(e[:, None])[0]).sum()) / 40)
    assert np.mean(np.array(p) <= 0.05) < 0.09  # 2.9 standard errors above the level


def centred(tables):
    tables = tables - tables.mean(axis=-1, keepdims=True)
    return tables - tables.mean(axis=-2, keepdims=True)


def test_residuals_are_permuted_within_groups():
    groups = np.array([1, 0, 1, 0, 2, 1])
    e = np.array([10.0, 1, 20, 2, 5, 30])
    drawn = permuted(e, groups, 50, np.random.default_rng(1))
    for g in range(3):
        assert (np.sort(drawn[groups == g], axis=0) == np.sort(e[groups == g])[:, None]).all()
    assert len({tuple(column) for column in drawn.T}) > 5


def test_spread_of_variances_is_without_sampling_error():
    """The mean of estimates of 20 samples; a single one has an error of .02 in its square."""
    rng = np.random.default_rng(6)
    codes = np.repeat(np.arange(200), 20)
    labels = [str(k) for k in range(200)]
    true = 0.5 * rng.normal(size=200)
    for logs, wanted in ((np.zeros(200), 0.0), (true, true.var())):
        found = []
        for _ in range(20):
            e = rng.normal(size=4000) * np.exp(0.5 * logs)[codes]
            spread = level_spread("t", labels, codes, e, 4000.0, 0.0)
            found.append(spread.log_sd**2)
        assert np.mean(found) == pytest.approx(wanted, abs=0.02)
    np.testing.assert_allclose(spread.variances, np.bincount(codes, e**2) / 20)


def test_heavy_tails_add_to_the_sampling_error_of_variances():
    """Var(log s²) is about (2 + κ)/df: with normal errors trigamma(df/2), else 1 + κ/2 as much."""
    rng = np.random.default_rng(9)
    sizes = np.array([4, 9, 2, 30, 12])
    codes = rng.permutation(np.repeat(np.arange(5), sizes))
    e = rng.normal(size=codes.size) * np.array([1.0, 3.0, 9.0, 0.2, 0.8])[codes]
    plain, heavy, light = (
        level_spread("t", "abcde", codes, e, 50.0, kurtosis) for kurtosis in (0.0, 1.5, -1.0)
    )
    df = sizes * 50.0 / 57.0
    np.testing.assert_allclose(plain.df, df, rtol=1e-14)
    kept = df >= 3.0
    assert kept.tolist() == [True, True, False, True, True]
    chance = special.polygamma(1, 0.5 * df[kept]).mean()
    assert plain.log_sd**2 - heavy.log_sd**2 == pytest.approx(0.75 * chance, rel=1e-10)
    assert light.log_sd == plain.log_sd
    # log s² has the mean log σ² + digamma(df/2) − log(df/2).
    s2 = np.bincount(codes, e**2)[kept] / df[kept]
    logs = np.log(s2) - special.digamma(0.5 * df[kept]) + np.log(0.5 * df[kept])
    assert plain.log_sd**2 + chance == pytest.approx(logs.var(ddof=1), rel=1e-12)


def test_equal_variances_do_not_spread():
    codes, e = np.repeat(np.arange(3), 6), np.tile([1.0, -1.0], 9)
    assert level_spread("t", "abc", codes, e, 15.0, 0.0).log_sd == 0.0


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_distances_differ_by_more_than_rounding_or_not(unit):
    codes, e = np.repeat(np.arange(2), 8), np.tile([1.0, -1.0], 8)
    for apart, differ in ((1e-9, True), (1e-16, False)):
        found = LevelStatistic(codes, [])(unit * (e * (1.0 + apart * codes))[:, None])[0]
        assert (found > 0.0) == differ


def test_deviates_are_standard_scores():
    x = np.random.default_rng(3).exponential(size=(9, 3)) - 4.0
    scores = stats.zscore(x, axis=0, ddof=1)
    np.testing.assert_allclose(deviates(x), np.abs(scores).max(axis=0), rtol=1e-13)
    np.testing.assert_allclose(EffectSample("t", x[:, 1]).deviates, scores[:, 1], rtol=1e-12)
    null = ShapeNull(np.linspace(1e-3, 0.2, 19), np.linspace(1.0, 3.0, 19))
    sample = EffectSample("t", x[:, 0], outliers=(("t3", 9.0), ("t1", 8.0)))
    normality, outliers = null.tests(sample, "drawn")
    r = np.corrcoef(np.sort(x[:, 0]), stats.norm.ppf((np.arange(1, 10) - 0.375) / 9.25))[0, 1]
    assert normality.statistic == pytest.approx(1.0 - r**2, rel=1e-11)
    assert normality.effect == pytest.approx(stats.kurtosis(x[:, 0]), rel=1e-12)
    assert outliers.statistic == pytest.approx(np.abs(scores[:, 0]).max(), rel=1e-13)
    assert outliers.effect == 2.0
    assert null.critical(0.1) == pytest.approx(2.8, rel=1e-12)


@pytest.mark.parametrize("n", [0, 1, 5, 6, 8])
def test_outliers_beyond_those_that_are_listed_are_counted(n):
    scores = np.random.default_rng(1).normal(size=(8, 5))
    found = vcomp.diagnose(scores, n=19)
    listed = tuple((f"t{k}", 9.0 - k) for k in range(n))
    little = EffectSample("system", np.arange(5.0), known=0.4999)
    made = replace(found, samples=(EffectSample("topic", np.arange(8.0), outliers=listed), little))
    lines = made._named()
    outlying = [line for line in lines if line.startswith("Outlying in topic: ")]
    assert len(outlying) == (n > 0)
    if n:
        more = f" and {n - LISTED} more." if n > LISTED else f"{listed[-1][0]} ({9 - n + 1} s.d.)."
        assert outlying[0].endswith(more)
        assert outlying[0].count(" s.d.)") == min(n, LISTED)
    assert sum("Predicted effects of system have 50 %" in line for line in lines) == 1
    half = replace(made, samples=(replace(little, known=0.5),))._named()
    assert not any("Predicted effects" in line for line in half)


@pytest.mark.parametrize("size", [0, 1, 1000, 10**9])
@pytest.mark.parametrize("n", [1, 2, 99, 999])
def test_blocks_are_all_draws(size, n):
    found = blocks(size, n)
    assert sum(found) == n
    assert min(found) > 0
    if size == 10**9:  # one after the other
        assert found == [1] * n
