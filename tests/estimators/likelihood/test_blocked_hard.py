"""The blocked engine where it is hard: any order of elimination, many terms, thin designs.

Scores are compared with complex steps through the log-likelihood of a dense V, Hessians with
complex steps through its score, and what cancels with exact fractions.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import tril

import vcomp
from tests.helpers.dense_likelihood import DenseLikelihood
from tests.helpers.dense_quadratic import eliminated
from tests.helpers.designs import DESIGNS, unbalanced
from tests.helpers.examples import examples
from vcomp.estimators.likelihood import blocked_covariance as elimination
from vcomp.estimators.likelihood.blocked import BlockedLikelihood
from vcomp.numerics.kernels.ordering import elimination_tree
from vcomp.numerics.sparse import EliminationOrder, plan_elimination

STEP = 1e-30


class Dense:
    """The likelihood with V written out, at complex components too: nothing is conjugated."""

    def __init__(self, model, *, reml):
        self.X, self.y, self.reml = model.exog, model.endog, reml
        codes, sizes = model.statistics.rows.codes, model.statistics.rows.sizes
        Z = [np.eye(q)[c] for c, q in zip(codes, sizes, strict=True)]
        self.K = [z @ z.T for z in Z] + [np.eye(len(self.y))]

    def matrices(self, v):
        V = sum(s * K for s, K in zip(v, self.K, strict=True))
        Vi = np.linalg.inv(V)
        XViX = self.X.T @ Vi @ self.X
        return V, Vi, XViX, Vi - Vi @ self.X @ np.linalg.solve(XViX, self.X.T @ Vi)

    def loglike(self, v):
        V, _, XViX, P = self.matrices(v)
        n, p = self.X.shape
        deviance = log_determinant(V) + self.y @ P @ self.y + n * np.log(2.0 * np.pi)
        if self.reml:
            deviance += log_determinant(XViX) - p * np.log(2.0 * np.pi)
        return -0.5 * deviance

    def score(self, v):
        _, Vi, _, P = self.matrices(v)
        Q, Py = P if self.reml else Vi, P @ self.y
        return np.array([0.5 * (Py @ K @ Py - np.sum(Q * K)) for K in self.K])


def log_determinant(A):
    sign, log_absolute = np.linalg.slogdet(A)
    return log_absolute + (1j * np.angle(sign) if np.iscomplexobj(A) else 0.0)


def derivative(function, v):
    """Return the derivatives of a function of the components, a row each."""
    rows = []
    for t in range(len(v)):
        moved = np.array(v, dtype=complex)
        moved[t] += 1j * STEP
        rows.append(np.imag(function(moved)) / STEP)
    return np.array(rows)


def check_at(engine, dense, v, rtol=1e-9):
    found = engine.derivatives(v)
    assert found.loglike == pytest.approx(dense.loglike(v), rel=rtol)
    score = derivative(dense.loglike, v)
    np.testing.assert_allclose(found.score, score, atol=rtol * np.abs(score).max())
    hessian = derivative(dense.score, v)
    np.testing.assert_allclose(
        engine.information(v), -hessian, atol=10.0 * rtol * np.abs(hessian).max()
    )


def any_plan(seed):
    """Return a planner that takes a random order, and eliminates a random part of it sparsely."""

    def plan(matrix, sizes):
        rng = np.random.default_rng(seed)
        n = matrix.shape[0]
        return plan_at(matrix, rng.permutation(n), int(rng.integers(0, n + 1)))

    return plan


def plan_at(matrix, order, cut):
    """Return the plan of an order, None for the original one, and a cut."""
    n, own = matrix.shape[0], matrix if order is None else matrix[order][:, order]
    lower = tril(own, -1, format="csr")
    lower.sort_indices()
    parent, counts = elimination_tree(
        lower.indptr.astype(np.int64), lower.indices.astype(np.int32), cut, 10**9
    )
    return EliminationOrder(order, cut, lower, np.where(parent < 0, n, parent), counts, 0.0)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.sampled_from(sorted(DESIGNS)),
    st.booleans(),
    st.sampled_from([(), (0,), (1,), (0, 1)]),
    st.integers(0, 1000),
)
def test_any_order_of_elimination(name, reml, zeros, seed):
    formula, data = unbalanced(name, seed=seed)
    model = vcomp.VarianceComponentsModel(formula, data)
    v = np.random.default_rng(seed).uniform(0.3, 2.0, size=len(model.component_names))
    v[[z for z in zeros if z < len(v) - 1]] = 0.0
    eliminations = elimination.Eliminations(
        model.statistics.cross_products, planner=any_plan(seed)
    )
    engine = BlockedLikelihood(
        model.statistics.cross_products, reml=reml, eliminations=eliminations
    )
    check_at(engine, Dense(model, reml=reml), v)
    permuted = engine.solution(v)
    own = BlockedLikelihood(model.statistics.cross_products, reml=reml).solution(v)
    for one, other in ((permuted.effects, own.effects),
                       (permuted.prediction_var, own.prediction_var)):  # fmt: skip
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("names", ["abcd", "abcde"])
def test_thirty_terms(names):
    """All of five facets at one point; all of four also where the likelihood is highest."""
    n = len(names)
    terms = [":".join(t) for r in range(1, n + 1) for t in combinations(names, r)][:30]
    grid = np.array(list(product(range(3), repeat=n)))
    rng = np.random.default_rng(0)
    rows = grid[rng.random(len(grid)) < 0.8]
    rows = np.concatenate([rows, rows[rng.random(len(rows)) < 0.5]])
    data = dict(zip(names, rows.T, strict=True)) | {"y": rng.normal(size=len(rows))}
    formula = "y ~ " + " + ".join(f"(1|{t})" for t in terms)
    model = vcomp.VarianceComponentsModel(formula, data)
    k = len(model.component_names)
    assert k == {"abcd": 16, "abcde": 31}[names]
    v = rng.uniform(0.1, 1.0, k)
    v[rng.choice(k - 1, 5, replace=False)] = 0.0
    check_at(
        BlockedLikelihood(model.statistics.cross_products, reml=True), Dense(model, reml=True), v
    )
    if n == 5:
        return
    res = model.fit("reml", engine="blocked")
    assert res.converged
    at = res.vcomp.to_numpy()
    score = derivative(Dense(model, reml=True).loglike, at)
    assert np.abs(score[at > 0.0] * at[at > 0.0]).max() < 1e-6
    assert (score[at == 0.0] < 0.0).all()


def thin():
    """A facet with one observation in most of its levels."""
    rng = np.random.default_rng(1)
    a = np.concatenate([np.arange(40), rng.integers(0, 5, 20)])
    return "y ~ (1|a) + (1|b)", {"y": rng.normal(size=60), "a": a, "b": rng.integers(0, 6, 60)}


def disconnected():
    """Two crossed pieces that share no level."""
    rng = np.random.default_rng(2)
    piece = np.repeat([0, 1], 30)
    a, b = rng.integers(0, 5, 60) + 5 * piece, rng.integers(0, 4, 60) + 4 * piece
    return "y ~ (1|a) + (1|b)", {"y": rng.normal(size=60) + piece, "a": a, "b": b}


@pytest.mark.parametrize("reml", [True, False], ids=["reml", "ml"])
@pytest.mark.parametrize("design", [thin, disconnected])
def test_thin_and_disconnected_designs(design, reml):
    formula, data = design()
    model = vcomp.VarianceComponentsModel(formula, data)
    engine, dense = (
        BlockedLikelihood(model.statistics.cross_products, reml=reml),
        Dense(model, reml=reml),
    )
    for v in ([1.0, 0.5, 2.0], [1e-6, 3.0, 1.0], [0.0, 1.0, 1.0], [50.0, 0.0, 0.1]):
        check_at(engine, dense, np.array(v), rtol=1e-8)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_of_the_response(scale):
    formula, data = unbalanced("three facets", seed=4)
    scaled = data.assign(y=scale * (data["y"] - data["y"].mean()))
    v = np.random.default_rng(0).uniform(0.3, 2.0, 7)
    first, second = (
        BlockedLikelihood(
            vcomp.VarianceComponentsModel(formula, d).statistics.cross_products, reml=True
        )
        for d in (data, scaled)
    )
    np.testing.assert_allclose(
        second.derivatives(scale**2 * v).score * scale**2, first.derivatives(v).score, rtol=1e-8
    )


def exact_residual_form(model, v):
    """Return y'Py of an intercept model in fractions."""
    y = [Fraction(float(x)) for x in model.endog]
    v = [Fraction(float(s)) for s in v]
    n, codes = len(y), model.statistics.rows.codes
    rows = [
        [sum(s for c, s in zip(codes, v, strict=False) if c[i] == c[j]) + (v[-1] if i == j else 0)
         for j in range(n)] + [y[i], Fraction(1)]
        for i in range(n)
    ]  # fmt: skip
    rows = eliminated(rows)
    Viy, Vi1 = [r[n] for r in rows], [r[n + 1] for r in rows]
    yViy = sum(a * b for a, b in zip(y, Viy, strict=True))
    return float(yViy - sum(Viy) ** 2 / sum(Vi1))


@pytest.mark.parametrize(("ratio", "rtol"), [(1e4, 1e-10), (1e7, 1e-7), (1e10, 1e-5)])
@pytest.mark.parametrize("terms", ["(1|a)", "(1|a) + (1|b)"])
def test_a_residual_far_below_the_other_components(terms, ratio, rtol):
    """What is left of y'y keeps the digits that y'y itself has to give, 1e-16 of it."""
    rng = np.random.default_rng(1)
    a, b = (x.ravel() for x in np.meshgrid(np.arange(6), np.arange(5)))
    kept = rng.random(30) > 0.15
    a, b = a[kept], b[kept]
    y = np.sqrt(ratio) * rng.normal(size=6)[a] + rng.normal(size=a.size)
    if "b" in terms:
        y = y + np.sqrt(ratio) * rng.normal(size=5)[b]
    model = vcomp.VarianceComponentsModel(f"y ~ {terms}", {"y": y, "a": a, "b": b})
    v = np.array([ratio] * (len(model.component_names) - 1) + [1.0])
    point = elimination.Eliminations(model.statistics.cross_products).at(v)
    assert point.solution[2] == pytest.approx(exact_residual_form(model, v), rel=rtol)


def large_sparse():
    """Students and teachers with few contacts, near each other: neither is small."""
    rng = np.random.default_rng(0)
    n = 800
    s = np.repeat(np.arange(n), 3)
    t = (s + rng.integers(-20, 20, s.size)) % n
    y = rng.normal(size=n)[s] + 0.7 * rng.normal(size=n)[t] + rng.normal(size=s.size)
    return vcomp.VarianceComponentsModel("y ~ (1|s) + (1|t)", {"y": y, "s": s, "t": t})


@pytest.mark.slow
def test_a_sparse_tail_in_two_orders():
    model = large_sparse()
    v = np.array([1.0, 0.5, 1.2])
    stats, names = model.statistics.cross_products, ("s", "t")
    engine = BlockedLikelihood(stats, reml=True, names=names)
    planner = partial(plan_elimination, good_enough=-1.0, most_entries=110_000)
    eliminations = elimination.Eliminations(stats, names, planner=planner)
    other = BlockedLikelihood(stats, reml=True, eliminations=eliminations)
    assert "minimum degree" in other.reason
    assert other.reason != engine.reason
    one, two = engine.derivatives(v), other.derivatives(v)
    assert one.loglike == pytest.approx(two.loglike, rel=1e-12)
    np.testing.assert_allclose(one.score, two.score, rtol=1e-9)
    np.testing.assert_allclose(engine.information(v), other.information(v), rtol=1e-9)


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (0, "all 19 columns dense"),
        (7, "sparse factor of 7 groups of a, 12 columns dense"),
        (10, "sparse factor of a, 9 columns dense"),
        (12, "sparse factor of a and 2 groups of b, 7 columns dense"),
        (16, "sparse factor of a and b, 3 columns dense"),
        (18, "sparse factor of a, b and 2 groups of c, 1 column dense"),
        (19, "sparse factor of a, b and c"),
    ],
)
def test_what_is_eliminated_sparsely_in_words(cut, words):
    rows = np.arange(60)
    data = {"y": rows % 7, "a": rows % 10, "b": rows // 10, "c": rows % 3}
    model = vcomp.VarianceComponentsModel("y ~ (1|c) + (1|a) + (1|b)", data)
    found = elimination.Eliminations(
        model.statistics.cross_products,
        model.component_names[:-1],
        planner=lambda matrix, sizes: plan_at(matrix, None, cut),
    )
    assert found.in_words() == words


def test_reasons_in_words():
    rng = np.random.default_rng(0)
    school = rng.integers(0, 800, 4000)
    student = np.repeat(np.arange(4000), 5)
    data = {
        "y": rng.normal(size=student.size),
        "student": student,
        "school": school[student],
        "item": rng.integers(0, 20, student.size),
    }
    model = vcomp.VarianceComponentsModel("y ~ (1|school/student) + (1|item)", data)
    names = model.component_names[:-1]
    engine = BlockedLikelihood(model.statistics.cross_products, reml=True, names=names)
    assert engine.reason == "sparse factor of school:student and school, 20 columns dense"
    assert engine.kinds == ("observed", "expected", "average")
    plan = engine.eliminations._whole_plan
    free = 0.5 * (plan.bytes_for_traces + plan.bytes_for_norms) / 0.8
    eliminations = elimination.Eliminations(
        model.statistics.cross_products, names, free_bytes=lambda: free
    )
    tight = BlockedLikelihood(
        model.statistics.cross_products, reml=True, eliminations=eliminations
    )
    assert tight.kinds == ("average",)
    assert tight.reason.startswith(engine.reason)
    words = "; average information only, as squared norms do not fit into memory"
    assert tight.reason.endswith(words)
    with pytest.raises(vcomp.EstimationError, match="information='average' needs no more"):
        tight.information(np.ones(4), "observed")
    assert np.isfinite(tight.derivatives(np.ones(4)).score).all()


def test_an_order_that_was_not_found_needs_much_memory():
    stats = vcomp.VarianceComponentsModel(*unbalanced("three facets")).statistics.cross_products
    words = (
        rf"of these {sum(stats.sizes):,} random effects needs tens of GiB, and .* are free; use"
    )
    with pytest.raises(vcomp.EstimationError, match=words):
        elimination.Eliminations(stats, planner=lambda *arguments, **options: None)


def test_forms_beside_a_small_residual_follow_the_unit_of_the_scores():
    """In binary units nothing is rounded: to the last digit."""
    formula, data = unbalanced("crossed")
    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=data[f].nunique())[data[f]] for f in "ab")
    y = a + b + 1e-4 * rng.normal(size=len(data))
    found = []
    for unit in (1.0, 2.0**20, 2.0**-20):
        model = vcomp.VarianceComponentsModel(formula, data.assign(y=unit * y))
        engine = BlockedLikelihood(model.statistics.cross_products, reml=True)
        effects, beta, rss = engine.point(unit**2 * np.array([1.0, 0.8, 1e-8])).solution
        found.append([*(effects / unit), *(beta / unit), rss / unit**2])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.parametrize("unit", [1.0, 1e6])
@pytest.mark.parametrize("reml", [True, False])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_small_component_does_not_cancel(place, reml, unit):
    """Forms of Z'QZ beside a component of 1e-9 are not differences of forms of C⁻¹."""
    formula, data = unbalanced("three facets")
    data = data.assign(x=np.random.default_rng(1).normal(size=len(data)), y=unit**0.5 * data["y"])
    model = vcomp.VarianceComponentsModel(formula.replace("~", "~ x +"), data)
    v = unit * np.random.default_rng(place).uniform(0.5, 2.0, len(model.component_names))
    v[place] = 1e-9 * unit
    engine = BlockedLikelihood(model.statistics.cross_products, reml=reml)
    dense = DenseLikelihood(model, reml=reml)
    for found, expected in (
        (engine.derivatives(v).score, dense.score(v)),
        (engine.information(v, "average"), dense.average(v)),
        (engine.information(v, "expected"), dense.expected(v)),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())
