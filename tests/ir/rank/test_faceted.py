"""Differences of systems with several random facets, by loops and least squares (eq. 15.8a)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gamma

from vcomp.exceptions import DataError
from vcomp.ir.rank import ErrorEffect, FacetedDifferences
from vcomp.ir.rank.faceted import _pattern

SYSTEMS = ["d", "b", "a", "c"]


def rows(seed, k=4, n=5, a=3, most=1, kept=1.0):
    """Return y, system, topic and assessor of each score, and how many scores it stands for."""
    rng = np.random.default_rng(seed)
    s, t, j = np.indices((k, n, a)).reshape(3, -1)
    again = rng.integers(1, most + 1, s.size) * (rng.random(s.size) < kept)
    s, t, j = (np.repeat(code, again) for code in (s, t, j))
    y = 5.0 + 0.7 * s + rng.normal(size=n)[t] + rng.normal(size=(k, n))[s, t]
    return y + rng.normal(size=s.size) * (1.0 + s), s, t, j


def by_hand(y, s, t, j, parts, weights=None):
    """Return centres, S and its degrees of freedom by the formulas, over dictionaries of cells."""
    weights = np.ones(y.size) if weights is None else weights
    k = int(s.max()) + 1
    cells = sorted(set(zip(t, j, strict=True)))
    mean = {
        (c, i): np.average(y[of], weights=weights[of])
        for c in cells
        for i in range(k)
        if (of := (t == c[0]) & (j == c[1]) & (s == i)).any()
    }
    # Least squares of the cell means, each once, on systems and cells.
    X = np.array([[*(i == np.arange(k)), *(c == d for d in cells)] for c, i in mean], dtype=float)
    solved = np.linalg.lstsq(X, np.array(list(mean.values())), rcond=None)[0]
    left = dict(zip(mean, np.array(list(mean.values())) - X @ solved, strict=True))
    blocks = []
    for kind, variance in parts:
        if kind == "own":
            of = [[y[(t == c[0]) & (j == c[1]) & (s == i)] for c in cells] for i in range(k)]
            df = np.array([sum(max(y.size - 1, 0) for y in each) for each in of], dtype=float)
            if weights.max() > 1 or df.min() < 1:
                continue
            squares = [sum(((y - y.mean()) ** 2).sum() for y in each if y.size) for each in of]
            blocks.append((np.diag(squares / df), 1.0 / (1.0 / df).mean(), variance))
            continue
        group = {"t": lambda c: c[0], "a": lambda c: c[1], "ta": lambda c: c}[kind]
        names = sorted({group(c) for c in cells})
        Z = np.zeros((len(names), k))
        for g, i in itertools.product(range(len(names)), range(k)):
            values = [left[c, i] for c in cells if group(c) == names[g] and (c, i) in left]
            Z[g, i] = np.mean(values) if values else 0.0
        blocks.append((Z.T @ Z, len(names) - 1.0, variance))
    H = np.eye(k) - 1.0 / k
    u = np.array([v * d / (d + k - 1.0) for _, d, v in blocks])
    used = [(w, G, d) for w, (G, d, _) in zip(u / u.sum(), blocks, strict=True) if w > 0.0]
    S = sum(w * (k - 1.0) * H @ G @ H / np.trace(H @ G @ H) for w, G, _ in used)
    return solved[:k] - solved[:k].mean(), S, 1.0 / sum(w**2 / d for w, _, d in used)


def made_of(y, s, t, j, parts, counts=None, variance_df=7.0):
    cell = t * (j.max() + 1) + j
    cell = np.unique(cell, return_inverse=True)[1]
    groups = {"t": t, "a": j, "ta": cell, "own": None}
    effects = [ErrorEffect(groups[kind], v) for kind, v in parts]
    return FacetedDifferences.of(y, s, cell, SYSTEMS[: s.max() + 1], effects, variance_df, counts)


PARTS = [
    [("t", 0.3)],
    [("t", 0.3), ("a", 0.2), ("ta", 0.1)],
    [("a", 0.0), ("ta", 0.4)],
    [("own", 0.2), ("t", 0.3)],
]


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize(("most", "kept"), [(1, 1.0), (3, 1.0), (1, 0.8), (4, 0.75)])
@pytest.mark.parametrize("k", [2, 4])
def test_centres_and_covariances_are_those_of_the_definition(parts, most, kept, k):
    y, s, t, j = rows(3, k=k, most=most, kept=kept)
    made = made_of(y, s, t, j, parts)
    centres, S, df = by_hand(y, s, t, j, parts)
    at = [SYSTEMS.index(name) for name in made.systems]
    means = np.array([y[s == i].mean() for i in range(k)])
    assert (np.diff(means[at]) < 0).all()
    np.testing.assert_allclose(made.effects, means[at] - y.mean(), rtol=1e-12)
    np.testing.assert_allclose(made.centres, centres[at], rtol=1e-11, atol=1e-13)
    found = made.pattern.T @ made.pattern
    np.testing.assert_allclose(found, S[np.ix_(at, at)], rtol=1e-10, atol=1e-12)
    assert made.pattern_df == pytest.approx(df, rel=1e-12)
    assert made.error_variance == pytest.approx(sum(v for _, v in parts), rel=1e-14)
    pairs = list(itertools.combinations(range(k), 2))
    np.testing.assert_allclose(
        made.differences, [centres[at[p]] - centres[at[q]] for p, q in pairs], rtol=1e-10
    )
    np.testing.assert_allclose(
        made.variances, [found[p, p] + found[q, q] - 2 * found[p, q] for p, q in pairs], rtol=1e-9
    )
    assert made.variances.mean() == pytest.approx(2.0, rel=1e-12)
    assert len(made.pattern) == made.n_residuals


def test_a_score_that_stands_for_several_counts_so_often():
    y, s, t, j = rows(5)
    counts = np.random.default_rng(1).integers(1, 4, y.size).astype(float)
    parts = [("t", 0.3), ("own", 0.1)]  # nothing is known within cells
    made = made_of(y, s, t, j, parts, counts)
    at = [SYSTEMS.index(name) for name in made.systems]
    means = np.array([np.average(y[s == i], weights=counts[s == i]) for i in range(4)])
    grand = np.average(y, weights=counts)
    np.testing.assert_allclose(made.effects, means[at] - grand, rtol=1e-12)
    _, S, df = by_hand(y, s, t, j, parts, counts)
    np.testing.assert_allclose(made.pattern.T @ made.pattern, S[np.ix_(at, at)], atol=1e-12)
    assert made.pattern_df == pytest.approx(df, rel=1e-12)


def test_several_scores_of_a_cell_are_averaged_by_how_many_each_stands_for():
    y, s, t, j = rows(6, most=3)
    counts = np.random.default_rng(2).integers(1, 4, y.size).astype(float)
    made = made_of(y, s, t, j, [("t", 0.3)], counts)
    centres, S, _ = by_hand(y, s, t, j, [("t", 0.3)], counts)
    at = [SYSTEMS.index(name) for name in made.systems]
    np.testing.assert_allclose(made.centres, centres[at], rtol=1e-11)
    np.testing.assert_allclose(made.pattern.T @ made.pattern, S[np.ix_(at, at)], atol=1e-12)


@pytest.mark.parametrize("parts", [[("t", 0.0)], [("own", 0.5)], []])
def test_pairs_vary_equally_where_nothing_is_known_of_them(parts):
    """No variance, or single scores in the cells of systems: S = I − 11'/k."""
    made = made_of(*rows(1), parts)
    np.testing.assert_allclose(made.variances, 2.0, rtol=1e-12)
    assert made.pattern_df == 1e12
    assert made.swap_df[0] == pytest.approx(made.error_df, rel=1e-6)


@pytest.mark.parametrize("lone", [0, 1])
def test_systems_need_one_degree_of_freedom_within_their_cells(lone):
    s = np.array([0, 0, 1, 1, 2, 2, 2])
    y = np.array([0.0, 2.0, 5.0, 5.5, 1.0, 2.0, 6.0])
    kept = np.delete(np.arange(7), [1]) if lone else np.arange(7)
    zero = np.zeros(kept.size, dtype=np.int64)
    made = FacetedDifferences.of(y[kept], s[kept], zero, "xyz", [ErrorEffect(None, 1.0)], 3.0)
    if lone:
        np.testing.assert_allclose(made.variances, 2.0, rtol=1e-12)
        return
    own = {"x": 2.0, "y": 0.125, "z": 7.0}
    pair = np.array([own[p] + own[q] for p, q in itertools.combinations(made.systems, 2)])
    np.testing.assert_allclose(made.variances, 2.0 * pair / pair.mean(), rtol=1e-12)
    assert made.pattern_df == pytest.approx(3 / (1 + 1 + 0.5))


def test_identical_systems_have_no_variance_but_for_rounding():
    y, s, t, j = rows(2)
    y[s == 3] = y[s == 1]
    made = made_of(y + 1e6, s, t, j, [("t", 0.3), ("a", 0.1)])
    pairs = list(itertools.combinations(made.systems, 2))
    zero = [pair == ("b", "c") for pair in pairs]
    np.testing.assert_array_equal(made.variances == 0.0, zero)
    assert (made.variances[~np.array(zero)] > 0.1).all()


def test_degrees_of_freedom():
    made = made_of(*rows(4, n=9), PARTS[1], variance_df=6.5)
    S = made.pattern.T @ made.pattern
    box = np.trace(S) ** 2 / (S**2).sum()
    n = made.pattern_df + 1.0
    nu = min(max((n * box - 2.0) / (n - 1.0 - box), box), 3.0)
    assert 1.0 < nu < 3.0
    assert made.df == pytest.approx(nu, rel=1e-12)
    assert made.error_df == pytest.approx(6.5 * nu, rel=1e-12)
    f = 1.0 / ((1.0 - 1.0 / nu) / made.pattern_df + 1.0 / (6.5 * nu))
    assert made.swap_df.tolist() == pytest.approx([f], rel=1e-12)
    assert made.mean_error == pytest.approx(1.2, rel=1e-14)
    two = made_of(*rows(4, k=2), PARTS[1], variance_df=6.5)
    assert two.df == 1.0
    assert two.swap_df[0] == pytest.approx(6.5, rel=1e-12)  # their ratio to the mean is one


def test_errors_have_the_size_of_the_plan_and_their_own_size():
    """The lengths of (15.9a) have the mean tr S and the relative variance 2/ν to first order."""
    made = made_of(*rows(4, n=9), PARTS[1], variance_df=6.5)
    draws = 200_000
    rng = np.random.default_rng(1)
    own, new, scales = made.drawn_errors(draws, rng, rng.standard_normal(draws))
    f, nu = made.swap_df[0], made.df
    h = np.sqrt(f / 2) * gamma((f - 1) / 2) / gamma(f / 2)
    (own_scales,) = scales
    logs = np.log(own_scales / h)
    spread = np.sqrt(1.0 / (2.0 * made.error_df))
    # Five standard errors of a mean and of a standard deviation.
    assert logs.mean() == pytest.approx(0.0, abs=5 * spread / np.sqrt(draws))
    assert logs.std() == pytest.approx(spread, rel=5 / np.sqrt(2 * draws))
    S = made.pattern.T @ made.pattern
    for drawn in (own / (own_scales[:, np.newaxis] * np.sqrt(0.6)), new):
        lengths = (drawn**2).sum(axis=1)
        error = np.sqrt(2.0 / nu / draws)
        assert lengths.mean() == pytest.approx(np.trace(S), rel=5 * error)
        assert lengths.var() / lengths.mean() ** 2 == pytest.approx(2.0 / nu, rel=0.1)
        products = drawn.T @ drawn / draws
        np.testing.assert_allclose(products, S, atol=0.06)
    assert abs(np.corrcoef(own[:, 0], new[:, 0])[0, 1]) < 5 / np.sqrt(draws)


def test_sizes_of_errors_of_new_tests_go_with_that_of_the_scores():
    """log c = log h + (l₁g₁ + l₂g₂)/2√ν, with the g₁ of the observed test and another g₂."""
    loadings = np.array([[0.5, 0.0], [0.2, 0.6], [0.0, 0.0]])
    y, s, t, j = rows(4, n=9)
    made = FacetedDifferences.of(
        y, s, t * 3 + j, SYSTEMS, [ErrorEffect(t, 0.3), ErrorEffect(j, 0.2)], 8.0, None, loadings
    )
    rng = np.random.default_rng(3)
    own, _, scales = made.drawn_errors(100_000, rng, rng.standard_normal(100_000))
    assert scales.shape == (3, 100_000)
    f = made.swap_df[0]
    h = np.sqrt(f / 2) * gamma((f - 1) / 2) / gamma(f / 2)
    np.testing.assert_allclose(scales[2], h, rtol=1e-12)
    logs = np.log(scales / h)
    for m in range(2):
        expected = np.hypot(*loadings[m]) / (2.0 * np.sqrt(made.df))
        assert logs[m].std() == pytest.approx(expected, rel=0.02)
    assert np.corrcoef(logs[:2])[0, 1] == pytest.approx(0.2 / np.hypot(0.2, 0.6), abs=0.02)
    # The errors of the scores are larger where those of new tests are.
    lengths = np.log((own**2).sum(axis=1))
    assert np.cov(lengths, logs[0])[0, 1] == pytest.approx(
        2.0 * logs[0].std() / np.sqrt(2.0 * made.error_df), rel=0.2
    )


def test_systems_that_no_chain_of_cells_connects():
    """The first two meet in cell 0, the last two in cell 1, and a third one in between."""
    s, cell = np.array([0, 1, 2, 3]), np.array([0, 0, 1, 1])
    with pytest.raises(DataError, match="systems 'd' and 'a' are not connected"):
        FacetedDifferences.of(np.arange(4.0), s, cell, SYSTEMS, [], 3.0)
    with pytest.raises(DataError, match="systems 'd' and 'b' are not connected"):
        FacetedDifferences.of(np.arange(4.0), s, np.array([0, 1, 1, 1]), SYSTEMS, [], 3.0)
    chain = np.append(s, 1), np.append(cell, 1)
    made = FacetedDifferences.of(np.array([0.0, 1.0, 2.0, 5.0, 4.0]), *chain, SYSTEMS, [], 3.0)
    # b − d from cell 0; a and c less b from cell 1.
    effect = dict(zip(made.systems, made.centres, strict=True))
    assert effect["b"] - effect["d"] == pytest.approx(1.0)
    assert effect["b"] - effect["a"] == pytest.approx(2.0)
    assert effect["c"] - effect["b"] == pytest.approx(1.0)
    assert sum(effect.values()) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_systems_that_share_no_cell(k):
    """As where topics are nested in systems."""
    s, cell = np.repeat(np.arange(k), 3), np.arange(3 * k)
    with pytest.raises(DataError, match="systems 'd' and 'b' are not connected"):
        FacetedDifferences.of(np.arange(3.0 * k), s, cell, SYSTEMS[:k], [], 3.0)


def test_a_small_variance_is_no_rounding():
    """The pattern has a mean variance of two, and the roots of what is rounding are of its eps."""
    y, s, t, _ = rows(4, n=9)
    made = FacetedDifferences.of(y, s, t, SYSTEMS, [ErrorEffect(t, 0.3)], 8.0)
    pattern = np.array([[1.0, 1.0 + 1e-9, -1.0, -1.0], [1.0, 1.0, 0.5, 0.5 + 1e-15]])
    found = replace(made, pattern=pattern).variances
    expected = [1e-18, 4.25, 4.25, 4.25, 4.25, 0.0]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-30)
    assert found[-1] == 0.0


def test_limits_of_size():
    one = np.zeros(1, dtype=np.int64)
    with pytest.raises(DataError, match="at least two systems; there are 1"):
        FacetedDifferences.of(np.ones(1), one, one, "a", [], 3.0)
    with pytest.raises(DataError, match="2 systems in 50,000,001 cells"):
        FacetedDifferences.of(np.ones(2), np.arange(2), np.array([0, 5 * 10**7]), "ab", [], 3.0)


@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e7])
def test_equal_means_are_equal_in_any_unit(unit):
    """But for rounding: those of the same scores in another order; a real difference stays."""
    rng = np.random.default_rng(8)
    scores = rng.uniform(size=50)
    columns = [scores, scores * (1.0 + 1e-11), *(rng.permutation(scores) for _ in range(6))]
    s, t = np.indices((8, 50)).reshape(2, -1)
    made = FacetedDifferences.of(
        unit * np.concatenate(columns), s, t, "abcdefgh", [ErrorEffect(t, 1.0)], 3.0
    )
    assert made.systems == tuple("bacdefgh")
    assert len(set(made.effects)) == 2
    assert made.effects[0] > made.effects[1]


@pytest.mark.parametrize("bad", [(1.0, 0.0, 2.0), (1.0, 3.0, 0.0), (0.0, 3.0, 2.0)])
def test_effects_without_variance_have_no_pattern(bad):
    """Of residuals, degrees of freedom or a component that are zero."""
    vectors = np.random.default_rng(3).normal(size=(2, 4))
    scale, df, variance = bad
    empty, good = (scale * vectors[::-1], df, variance), (vectors, 5.0, 1.5)
    for one, other in zip(_pattern([good, empty], 4), _pattern([good], 4), strict=True):
        np.testing.assert_array_equal(one, other)
    pattern, df = _pattern([empty], 4)
    np.testing.assert_array_equal(pattern, np.eye(4) - 0.25)
    assert df == _pattern([], 4)[1]
