"""Squares of large terms at zero by the matrix between positive effects; dense matrices know."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.designs import DESIGNS, unbalanced
from vcomp.estimators.likelihood.blocked_covariance import Eliminations, _without_columns
from vcomp.estimators.likelihood.term_point import SquareLimits, large_at_zero

ZEROS = [(0,), (1,), (0, 1), "all"]

# A spans most of what a term of a small design has: some digits cancel.
RTOL = 1e-9


def dense_squares(model, v, *, with_fixed):
    """Return ‖Z_t'Q Z_u‖² with Q written out, row by row."""
    incidences = [
        np.eye(size)[code]
        for code, size in zip(
            model.statistics.rows.codes, model.statistics.rows.sizes, strict=True
        )
    ]
    V = v[-1] * np.eye(model.nobs)
    V += sum(x * Z @ Z.T for x, Z in zip(v, incidences, strict=False))
    Q = np.linalg.inv(V)
    if with_fixed:
        QX = Q @ model.exog
        Q = Q - QX @ np.linalg.solve(model.exog.T @ QX, QX.T)
    return np.array([[np.square(Z.T @ Q @ W).sum() for W in incidences] for Z in incidences])


def squares_of(point, *, with_fixed=False, **limits):
    traces = point.traces(with_fixed=with_fixed)
    return point.squares(traces, with_fixed=with_fixed, positive_only=False, **limits)


def at_zero(model, zeros, seed=1):
    k = len(model.component_names)
    v = np.random.default_rng(seed).uniform(0.3, 2.0, size=k)
    v[list(range(k - 1)) if zeros == "all" else [z for z in zeros if z < k - 1]] = 0.0
    return v


@pytest.mark.parametrize("with_fixed", [True, False])
@pytest.mark.parametrize("zeros", ZEROS, ids=str)
@pytest.mark.parametrize("name", sorted(DESIGNS))
def test_every_design_and_every_term_at_zero(name, zeros, with_fixed):
    limits = SquareLimits(many_elements=0.0, times_as_many=0)
    formula, data = unbalanced(name, seed=3)
    model = vcomp.VarianceComponentsModel(formula.replace("~", "~ C(g) +"), data.assign(
        g=np.random.default_rng(0).integers(0, 3, len(data))
    ))  # fmt: skip
    v = at_zero(model, zeros)
    point = Eliminations(model.statistics.cross_products).at(v)
    assert large_at_zero(point, limits) == [t for t, x in enumerate(v[:-1]) if x == 0.0]
    found = point.squares(
        point.traces(with_fixed=with_fixed),
        with_fixed=with_fixed,
        positive_only=False,
        limits=limits,
    )
    expected = dense_squares(model, v, with_fixed=with_fixed)
    np.testing.assert_allclose(found, expected, rtol=RTOL, atol=RTOL * expected.max())


def test_a_small_term_at_zero_beside_a_large_one_goes_by_its_columns():
    limits = SquareLimits(many_elements=400.0, times_as_many=0)
    formula, data = unbalanced("deeply nested", seed=3)
    model = vcomp.VarianceComponentsModel(formula, data)
    v = at_zero(model, "all")
    point = Eliminations(model.statistics.cross_products).at(v)
    large = large_at_zero(point, limits)
    assert 0 < len(large) < len(v) - 1
    found = squares_of(point, limits=limits)
    expected = dense_squares(model, v, with_fixed=False)
    np.testing.assert_allclose(found, expected, rtol=RTOL, atol=RTOL * expected.max())


def test_nothing_small_and_nothing_that_cancels_is_taken_for_large():
    rng = np.random.default_rng(0)
    n = 20_000
    data = pd.DataFrame(
        {"y": rng.normal(size=n), "i": np.arange(n) // 400, "d": np.arange(n) // 4}
    )
    model = vcomp.VarianceComponentsModel("y ~ (1|i/d)", data)
    eliminations = Eliminations(model.statistics.cross_products)
    # 5,000 documents in 50 topics: the documents are many, the topics few, beside them none is.
    assert large_at_zero(eliminations.at(np.array([0.5, 0.0, 1.0]))) == [1]
    assert large_at_zero(eliminations.at(np.array([0.0, 0.0, 1.0]))) == [1]
    assert large_at_zero(eliminations.at(np.array([0.0, 0.5, 1.0]))) == []
    assert large_at_zero(eliminations.at(np.array([0.5, 0.5, 1.0]))) == []


def test_documents_at_zero_agree_with_their_columns():
    """Of a nested design the two ways agree to more digits than a dense matrix would have."""
    rng = np.random.default_rng(2)
    n = 6000
    data = pd.DataFrame(
        {"y": rng.normal(size=n), "i": np.arange(n) // 300, "d": np.arange(n) // 3}
    )
    model = vcomp.VarianceComponentsModel("y ~ (1|i/d)", data)
    v = np.array([0.7, 0.0, 1.3])
    point, limits = (
        Eliminations(model.statistics.cross_products).at(v),
        SquareLimits(many_elements=0.0),
    )
    assert (large_at_zero(point), large_at_zero(point, limits)) == ([], [1])
    by_columns = squares_of(point, with_fixed=True)
    by_rank = squares_of(point, with_fixed=True, limits=limits)
    np.testing.assert_allclose(by_rank, by_columns, rtol=1e-12)


def test_forms_of_documents_that_differ_between_assessors_are_the_same_either_way():
    track = vcomp.ir.novelty_like_track(
        n_systems=6, n_topics=5, n_documents=40, effects={"retrieval": -2.5}, rng=1
    )
    universe = vcomp.ir.document_universe(
        track.retrieved, track.judgements, universe="assessor"
    ).scores()
    design = "system x assessor x (document:topic)"
    res = vcomp.gstudy(design, universe, "score", method="reml")
    assert "the rest is crossed" in res.engine
    strata, limits = res.model.statistics.strata, SquareLimits(many_elements=0.0)
    eliminations = Eliminations(_without_columns(strata.remainder.tables))
    without_documents = res.vcomp.mask(res.vcomp.index.str.contains("document"), 0.0)
    at_start = np.eye(len(res.vcomp))[-1]  # of MIVQUE(0)
    for v in (without_documents.to_numpy(), at_start):
        used = 0
        for stratum in strata.strata:
            point = eliminations.at(stratum.coefficients @ v)
            used += bool(large_at_zero(point, limits))
            by_columns, by_rank = squares_of(point), squares_of(point, limits=limits)
            np.testing.assert_allclose(by_rank, by_columns, rtol=1e-9)
        assert used
