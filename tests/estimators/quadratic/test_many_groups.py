"""Type I, Henderson III and MINQUE of many groups against their dense computation."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.quadratic.probed_priors import ProbedPriors
from vcomp.estimators.quadratic.reductions import Adjustment, ReductionLimits, Reductions
from vcomp.estimators.quadratic.spaces import SpaceContrasts

NONE, A, B = frozenset[int](), frozenset({0}), frozenset({1})
ADJUSTMENTS = {
    "type1": [Adjustment(0, NONE), Adjustment(1, A)],
    "henderson3": [Adjustment(0, B), Adjustment(1, A)],
}


def frame(seed: int = 1, *, in_blocks: bool = False) -> pd.DataFrame:
    """Return crossed scores; in blocks of five levels, the groups have several connected parts."""
    rng = np.random.default_rng(seed)
    n, q = 500, 60
    a, b = rng.integers(0, q, n), rng.integers(0, q, n)
    if in_blocks:
        b = (a // 5) * 5 + rng.integers(0, 5, n)
    a[0], b[0] = q, q  # a group that is alone in the one of the other term
    y = rng.normal(size=q + 1)[a] + rng.normal(size=q + 1)[b] + rng.normal(size=n)
    of_a = rng.normal(size=q + 1)[a]  # a covariate in the space of a term
    return pd.DataFrame({"a": a, "b": b, "x": rng.normal(size=n) + 3.0, "of_a": of_a, "y": y})


def products(formula: str, data: pd.DataFrame):
    return vcomp.VarianceComponentsModel(formula, data).statistics.cross_products


@pytest.mark.parametrize("method", ADJUSTMENTS)
@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("fixed", ["1", "x + of_a", "0 + x", "0"])
def test_reductions_by_sparse_solves(method, in_blocks, fixed):
    stats = products(f"y ~ {fixed} + (1|a) + (1|b)", frame(in_blocks=in_blocks))
    v = np.array([1.0, -0.1, 2.0])
    dense = Reductions(stats, ADJUSTMENTS[method], ReductionLimits(sparse_from=10**9))
    sparse = Reductions(stats, ADJUSTMENTS[method], ReductionLimits(sparse_from=1))
    assert type(sparse._spaces[A | B]).__name__ == "SparseSpace"
    np.testing.assert_array_equal(sparse.df, dense.df)
    np.testing.assert_allclose(sparse.sum_sq, dense.sum_sq, rtol=1e-11)
    np.testing.assert_allclose(sparse.coefficients, dense.coefficients, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(sparse.covariance(v), dense.covariance(v), rtol=1e-11)


@pytest.mark.parametrize("rows", [[103] * 7, [98] * 5, [49], [1], [20, 30, 40]])
def test_a_group_that_is_alone_in_its_groups_of_the_other_term(rows):
    """What is left of its rows is nothing, or rounding: 103² · (1/103) is not 103."""
    rng = np.random.default_rng(4)
    own = np.repeat(np.arange(len(rows)) + 100, rows)
    a = np.append(rng.permutation(np.arange(2000) % 100), own)
    b = np.append(rng.permutation(np.arange(2000) % 30), np.full(own.size, 30))
    y = rng.normal(size=200)[a] + rng.normal(size=31)[b] + rng.normal(size=a.size)
    data = pd.DataFrame({"a": a, "b": b, "x": rng.normal(size=a.size), "y": y})
    stats = products("y ~ x + (1|a) + (1|b)", data)
    dense, sparse = (
        Reductions(stats, ADJUSTMENTS["henderson3"], ReductionLimits(sparse_from=n))
        for n in (10**9, 1)
    )
    assert type(sparse._spaces[A | B]).__name__ == "SparseSpace"
    # The groups are in two connected parts, and there is a covariate.
    assert sparse.df[-1] == len(data) - (100 + len(rows) + 31 - 2 + 1)
    np.testing.assert_array_equal(sparse.df, dense.df)
    np.testing.assert_allclose(sparse.sum_sq, dense.sum_sq, rtol=1e-11)


def test_sums_of_squares_are_those_of_least_squares():
    data = frame(3, in_blocks=True)
    stats = products("y ~ x + (1|a) + (1|b)", data)
    found = Reductions(stats, ADJUSTMENTS["henderson3"], ReductionLimits(sparse_from=1))
    Z = {t: np.eye(61)[data[t]] for t in "ab"}
    X = np.column_stack([np.ones(len(data)), data["x"]])

    def left(*columns):
        W = np.column_stack([X, *columns])
        rest = data["y"] - W @ np.linalg.lstsq(W, data["y"], rcond=None)[0]
        return rest @ rest, len(data) - np.linalg.matrix_rank(W)

    full, df = left(Z["a"], Z["b"])
    of = {t: left(Z[t]) for t in "ab"}
    np.testing.assert_allclose(
        found.sum_sq, [of["b"][0] - full, of["a"][0] - full, full], rtol=1e-10
    )
    np.testing.assert_array_equal(found.df, [of["b"][1] - df, of["a"][1] - df, df])


@pytest.mark.parametrize(
    ("formula", "w"),
    [
        ("y ~ (1|a) + (1|b)", [1.0, 0.5, 1.5]),
        ("y ~ x + (1|a) + (1|b) + (1|c)", [1.0, 0.5, 0.2, 2.0]),
        ("y ~ x + (1|a) + (1|b)", [1.0, 0.0, 1.0]),
        ("y ~ 0 + (1|a) + (1|b)", [0.0, 0.0, 1.0]),
    ],
)
def test_probed_equations_of_minque(formula, w):
    data = frame(5).assign(c=np.arange(500) % 7)
    stats = products(formula, data)
    w, v = np.array(w), np.linspace(0.3, 1.2, len(w))
    v[0] = -0.05  # estimates may be negative
    exact, probed = SpaceContrasts(stats), ProbedPriors(stats, 600, seed=3)
    expected, found = exact.at(w), probed.at(w)
    np.testing.assert_allclose(found.right, expected.right, rtol=1e-10)
    np.testing.assert_allclose(found.second, expected.second, rtol=1e-7)
    errors = found.samples.std(axis=0) / np.sqrt(len(found.samples))
    away = np.abs(found.matrix - expected.matrix)
    assert (away <= 4.5 * errors + 1e-9 * np.abs(expected.matrix)).all()
    away = np.abs(found.solution - expected.solution)
    assert (away <= 4.5 * found.monte_carlo + 1e-9).all()
    assert (found.monte_carlo > 0.0).any()
    # 16 probes of some 60 groups
    pair = probed.covariance(found, v), exact.covariance(expected, v)
    scale = np.sqrt(np.outer(np.diagonal(pair[1]), np.diagonal(pair[1])))
    assert np.abs((pair[0] - pair[1]) / scale).max() < 0.1


@pytest.mark.parametrize(("q", "affordable"), [(300, 150), (30, 32)])
def test_tables_of_a_second_have_more_probes(q, affordable):
    """As many as the effects that are solved for, for both terms together; 32 at least."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, q, (2, 2_000))
    stats = products(
        "y ~ (1|a) + (1|b)", pd.DataFrame({"y": rng.normal(size=2_000), "a": a, "b": b})
    )
    assert stats.sizes == (q, q)
    assert ProbedPriors(stats).n_probes == affordable
    assert ProbedPriors(stats, 7).n_probes == 7


def test_the_error_of_the_solution_is_that_of_other_seeds():
    stats = products("y ~ (1|a) + (1|b)", frame(7))
    w = np.ones(3)
    found = [ProbedPriors(stats, 16, seed=seed).at(w) for seed in range(40)]
    spread = np.std([forms.solution for forms in found], axis=0)
    mean = np.mean([forms.monte_carlo for forms in found], axis=0)
    np.testing.assert_allclose(spread, mean, rtol=0.35)  # 40 seeds


def test_minque_by_probes_reports_its_errors(monkeypatch):
    data, formula = frame(9), "y ~ (1|a) + (1|b)"
    exact = vcomp.fit(formula, data, method="minque")
    monkeypatch.setattr(
        "vcomp.estimators.quadratic.minque._priors",
        lambda stats, *_: ProbedPriors(stats.cross_products, 200),
    )
    found, again = (vcomp.fit(formula, data, method="minque") for _ in range(2))
    np.testing.assert_array_equal(found.vcomp, again.vcomp)
    np.testing.assert_allclose(found.vcomp, exact.vcomp, rtol=0.02)
    np.testing.assert_allclose(found.bse, exact.bse, rtol=0.05)
    assert "Monte Carlo" in str(found.summary())
    assert "Monte Carlo" not in str(exact.summary())
    iterated = vcomp.fit(formula, data, method="minque", iterated=True)
    reml = vcomp.fit(formula, data)
    assert iterated.converged
    np.testing.assert_allclose(iterated.vcomp, reml.vcomp, rtol=0.02)


def test_the_memory_of_probes_is_expected():
    """Twelve arrays of sixteen columns, and four of those of X, of the length of all groups."""
    stats = products("y ~ x + (1|a) + (1|b)", frame(5))
    needed = 8.0 * sum(stats.sizes) * (12.0 * 16.0 + 4.0 * 2.0)
    ProbedPriors(stats, free_bytes=lambda: 1.001 * needed / 0.8)
    with pytest.raises(vcomp.EstimationError, match=r"random columns of [\d,]+ groups need"):
        ProbedPriors(stats, free_bytes=lambda: 0.999 * needed / 0.8)
