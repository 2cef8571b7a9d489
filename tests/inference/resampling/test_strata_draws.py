"""Statistics of strata drawn without rows have the distribution that rows give them."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import GRIDS, gridded
from tests.helpers.moments import agree_in_mean, score_agrees
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood
from vcomp.inference.resampling.draws import StrataDraws, _helmert, _in_contrasts, _StratumDraws
from vcomp.numerics.parallel import stream
from vcomp.statistics.statistics import Statistics

NESTED = sorted(name for name in GRIDS if "not nested" not in name)

SHAPES = ("one way", "replicated", "per document", "unequally replicated", "deep, replicated")
"""One grid of each shape: groups, cells, nested groups, of one size and of several."""


def model(name, fixed="", seed=0):
    formula, data = gridded(name, seed)
    return vcomp.VarianceComponentsModel(formula.replace("~ ", f"~ {fixed}"), data)


def components(n_terms):
    return np.random.default_rng(5).uniform(0.3, 2.0, n_terms + 1)


@pytest.mark.parametrize("name", SHAPES)
def test_means_and_squares_have_the_moments_of_normal_data(name):
    """W ~ c_e χ² and Σ ȳȳ' ~ Wishart, with V̄ = Σ c_l Z_l Z_l' + diag(c_e/n) of the group means."""
    stats = model(name).statistics.strata
    v = components(stats.n_terms)
    draws = StrataDraws(stats)
    drawn = [draws.columns(v, stream(1, b)) for b in range(1000)]
    n = stats.remainder.tables.group_n[-1]
    for s, stratum in enumerate(stats.strata):
        c, m = stratum.coefficients @ v, stratum.multiplicity
        V = np.diag(c[-1] / n) + c[0]
        groups = np.arange(n.size)
        for level in range(len(stats.remainder.parents), 0, -1):
            V += c[level] * (groups[:, None] == groups[None, :])
            groups = stats.remainder.parents[level - 1][groups]
        y = [columns[s].means[0][:, 0] for columns in drawn]
        variance = m * (np.outer(np.diagonal(V), np.diagonal(V)) + V**2)
        agree_in_mean([a @ a.T for a in y], m * V, variance)
        df = m * (n - 1.0).sum()
        within = [columns[s].within[0, 0] for columns in drawn]
        agree_in_mean(within, df * c[-1], 2.0 * df * c[-1] ** 2)
        squares = [(w - df * c[-1]) ** 2 for w in within]
        agree_in_mean(squares, 2.0 * df * c[-1] ** 2)


@pytest.mark.parametrize(
    ("case", "reml"),
    alternately(
        [
            ("one way", "x + xi + "),
            ("replicated", "x + xp + "),
            ("per document", "xd + xp + x + "),
            ("unequally replicated", "x + "),
            ("nested", "0 + x + "),
        ],
        *(True, False),
    ),
)
def test_the_score_has_mean_zero_and_variance_information(case, reml):
    stats = model(*case).statistics.strata
    v = components(stats.n_terms)
    draws = StrataDraws(stats)
    drawn = [draws.draw(v, stream(3, b)) for b in range(300)]
    if reml:
        score_agrees(drawn.__getitem__, lambda s: StrataLikelihood(s, reml=True), v, n=len(drawn))
        return
    # Of the full likelihood the score's mean is what the fixed part takes from the traces.
    engines = [StrataLikelihood(stats, reml=False) for stats in drawn]
    restricted = StrataLikelihood(engines[0].stats, reml=True)
    shift = engines[0].derivatives(v).score - restricted.derivatives(v).score
    expected = restricted.information(v, "expected")
    agree_in_mean([e.derivatives(v).score for e in engines], shift, np.diagonal(expected))


def test_products_of_columns_are_those_of_the_strata():
    """What all rows have of X'y and y'y is the sum over strata, X'X is as it was."""
    stats = model("per document", "x + xp + ").statistics.strata
    drawn = StrataDraws(stats).draw(components(stats.n_terms), stream(0, 0))
    n = stats.remainder.tables.group_n[-1]
    total = np.zeros((1 + stats.n_fixed, 1 + stats.n_fixed))
    for stratum in drawn.strata:
        at = [0, *(1 + j for j in stratum.fixed)]
        means = stratum.columns.means[0]
        total[np.ix_(at, at)] += stratum.columns.within
        total[np.ix_(at, at)] += np.einsum("q,qbr,qdr->bd", n, means, means)
    np.testing.assert_allclose(drawn.yy, total[0, 0], rtol=1e-12)
    np.testing.assert_allclose(drawn.Xy, total[1:, 0], rtol=0, atol=1e-11 * np.sqrt(drawn.yy))
    np.testing.assert_allclose(stats.XX, total[1:, 1:], rtol=0, atol=1e-10 * stats.XX.max())
    assert drawn.cells is None


def test_no_more_columns_are_drawn_than_there_are_groups():
    """With 200 persons and 5 topics a Wishart's triangle serves for 199 vectors."""
    index = pd.MultiIndex.from_product([range(200), range(2), range(5)], names=["p", "q", "i"])
    data = index.to_frame(index=False)
    data["y"] = np.random.default_rng(0).normal(size=len(data))
    model = vcomp.VarianceComponentsModel("y ~ (1|p) + (1|i:q) + (1|i) + (1|p:i)", data)
    stats = model.statistics.strata
    columns = StrataDraws(stats).columns(components(stats.n_terms), stream(0, 0))
    for stratum, drawn in zip(stats.strata, columns, strict=True):
        groups = sum(stats.remainder.tables.sizes)
        assert drawn.means[0].shape[2] == min(stratum.multiplicity, groups)


def test_contrasts_keep_products():
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(3, 2, 4, 5))
    columns -= columns.mean(axis=2, keepdims=True)
    columns -= columns.mean(axis=3, keepdims=True)
    flat = columns.reshape(3, 2, 20)
    turned = _in_contrasts(flat, (4, 5))
    assert turned.shape == (3, 2, 12)
    np.testing.assert_allclose(
        np.einsum("abr,cdr->abcd", turned, turned), np.einsum("abr,cdr->abcd", flat, flat),
        atol=1e-13,
    )  # fmt: skip
    assert _in_contrasts(np.zeros((3, 0, 20)), (4, 5)).shape == (3, 0, 12)
    H = _helmert(6)
    np.testing.assert_allclose(H @ H.T, np.eye(5), atol=1e-15)
    np.testing.assert_allclose(H.sum(axis=1), 0.0, atol=1e-15)


def test_a_crossed_remainder_is_refused():
    with pytest.raises(ValueError, match="crossed"):
        StrataDraws(model("not nested").statistics.strata)


@pytest.mark.parametrize("name", NESTED)
def test_groups_that_are_not_counted_again_give_the_same_sums(name):
    data = model(name).statistics
    strata = StrataDraws(data.strata).draw(components(data.n_terms), stream(0, 3))
    shared = Statistics.from_strata(strata, like=data).group_sums
    anew = Statistics.from_strata(strata).group_sums
    for field in fields(anew):
        np.testing.assert_array_equal(getattr(shared, field.name), getattr(anew, field.name))


@pytest.mark.parametrize("n_groups", [0, 1, 3])
def test_bartletts_triangle_has_the_moments_of_a_wishart_matrix(n_groups):
    """E[W] = m I and var(W_ij) = m (1 + [i = j]) for m vectors."""
    draws, m, n = SimpleNamespace(parents=[np.zeros(n_groups, int)], vectors=9), 9, 4000
    rng = np.random.default_rng(1)
    drawn = [_StratumDraws._independent(draws, rng, triangle=True) for _ in range(n)]
    W = np.array([L @ L.T for L in drawn])
    unit = np.eye(1 + n_groups)
    np.testing.assert_allclose(W.mean(axis=0), m * unit, atol=4.5 * np.sqrt(2 * m / n))
    np.testing.assert_allclose(W.var(axis=0), m * (1.0 + unit), rtol=0.15)
    assert not np.triu(drawn, 1).any()


def test_means_are_sums_of_the_effects_of_groups():
    """A seed gives the same means in every version: those of all groups, from above downwards."""
    top, middle = np.array([0, 0, 0]), np.array([2, 0, 1, 1, 2, 2])
    n, c = np.array([1.0, 3.0, 2.0, 5.0, 1.0, 4.0]), np.array([0.3, 1.1, 0.7, 2.0])
    draws = _StratumDraws(
        np.eye(4), 2, (top, middle), n, 10.0, np.zeros((6, 0, 2)), np.zeros((0, 0)),
        np.zeros((0, 0)),
    )  # fmt: skip
    unit = draws._independent(stream(1, 2), triangle=False)
    assert unit.shape == (1 + 3 + 6, 2)
    roots = np.sqrt(c[:2])
    expected = roots[0] * unit[0] + roots[1] * unit[1:4][middle]
    expected = expected + np.sqrt(c[2] + c[3] / n)[:, None] * unit[4:]
    np.testing.assert_allclose(draws._means(c, unit), expected, rtol=1e-14)


@pytest.mark.parametrize(("df", "rank"), [(0, 0), (1, 0), (1, 1), (2, 2), (6, 2)])
def test_products_within_groups_are_those_of_so_many_vectors(df, rank):
    """Of e of `df` dimensions, of which the columns of X take as many as their products have."""
    F = np.array([[2.0, 0.5], [0.7, -1.0], [0.3, 0.1]])[:, :rank]
    c = np.array([0.4, 1.7])
    draws = _StratumDraws(
        np.eye(2), 1, (), np.array([3.0]), float(df), np.zeros((1, 3, 1)), F @ F.T, F
    )  # fmt: skip
    made = np.array([draws.draw(c, stream(1, b)).within for b in range(500)])
    np.testing.assert_array_equal(made[:, 1:, 1:], np.broadcast_to(F @ F.T, (500, 3, 3)))
    rest = [m[0, 0] - np.square(np.linalg.pinv(F) @ m[0, 1:]).sum() for m in made]
    if df == rank:
        np.testing.assert_allclose(rest, 0.0, atol=1e-12 * (1.0 + made[:, 0, 0].max()))
    else:
        agree_in_mean(rest, c[1] * (df - rank), 2.0 * (df - rank) * c[1] ** 2)
    if rank:
        agree_in_mean(np.square(made[:, 0, 1:]), c[1] * np.diagonal(F @ F.T))
