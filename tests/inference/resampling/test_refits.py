"""Refits of drawn data: compiled ones are those of the ordinary engine and maximisation."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import GRIDS, gridded
from vcomp.estimators.likelihood.likelihood import ML, REML
from vcomp.estimators.likelihood.strata_likelihood import StrataLikelihood
from vcomp.inference.resampling import refits
from vcomp.inference.resampling.draws import StrataDraws
from vcomp.inference.resampling.refits import ByLikelihood, Compiled, Packed
from vcomp.numerics.parallel import stream
from vcomp.statistics.statistics import Statistics

NESTED = sorted(name for name in GRIDS if "not nested" not in name)

IS_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"
REFITTED = NESTED if IS_COMPILED else ["crossed", "nested", "one way"]
"""As plain Python a refit takes a hundred times as long, and a few reach every line."""


def model(name, fixed=""):
    formula, data = gridded(name)
    return vcomp.VarianceComponentsModel(formula.replace("~ ", f"~ {fixed}"), data)


@pytest.mark.parametrize(("name", "method"), alternately(REFITTED, REML, ML))
@pytest.mark.parametrize("fixed", ["", "x + "])
def test_refits_are_those_of_the_ordinary_way(name, method, fixed):
    """The same components, zeros among them, to far less than their standard errors."""
    whole = model(name, fixed)
    names, strata = whole.component_names, whole.statistics.strata
    v = np.full(len(names), 0.2)
    v[-1] = 1.0
    fast = Compiled(whole.statistics, method(), names, v)
    slow = ByLikelihood(whole.statistics, method(), names, v)
    draws, at_bound, given_up = StrataDraws(strata), 0, 0
    for b in range(15):
        stats = Statistics.from_strata(draws.draw(v, stream(4, b)))
        found, wanted = fast(stats), slow(stats)
        given_up += fast.by_kernel(stats) is None
        assert found.converged
        assert wanted.converged
        np.testing.assert_array_equal(found.values == 0.0, wanted.values == 0.0)
        engine = StrataLikelihood(stats.strata, reml=method is REML)
        average = np.sqrt(np.diagonal(engine.information(wanted.values, "average")))
        # In units of the error that each component would have alone.
        assert (np.abs(found.values - wanted.values) * average).max() < 1e-7
        np.testing.assert_allclose(found.llf, wanted.llf, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found.beta, wanted.beta, rtol=1e-6, atol=1e-7)
        at_bound += int((found.values == 0.0).any())
        if at_bound and b >= 1:
            break
    assert at_bound > 0
    if name == "nested":  # 12 rows: Python finds out whether a maximum is one
        assert given_up == b + 1
    else:
        assert given_up <= 1


def test_what_the_kernel_leaves_to_python():
    """Tables of about as many effects as rows, and starts next to nothing of a residual."""
    few, many = model("nested"), model("crossed")
    tiny = np.array([1.0, 1.0, 1e-31])
    for whole, start in ((few, np.ones(4)), (many, tiny)):
        made = Compiled(whole.statistics, ML(), whole.component_names, start)
        assert made.by_kernel(whole.statistics) is None
    made = Compiled(many.statistics, ML(), many.component_names, np.ones(3))
    assert made.by_kernel(many.statistics) is not None


class _GivesUp(Compiled):
    def by_kernel(self, stats):
        return None


def test_what_is_given_up_is_taken_over():
    whole = model("per document")
    names, v = whole.component_names, np.full(11, 0.5)
    usual = Compiled(whole.statistics, REML(), names, v)(whole.statistics)
    found = _GivesUp(whole.statistics, REML(), names, v)(whole.statistics)
    assert found.converged
    np.testing.assert_allclose(found.llf, usual.llf, rtol=1e-11)
    np.testing.assert_allclose(found.values, usual.values, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("hold", [{"p": 0.0}, {"p": 0.3, "Residual": 1.5}])
def test_held_components_stay(hold):
    whole = model("per document")
    names = whole.component_names
    v = np.full(len(names), 0.5)
    found = Compiled(whole.statistics, REML(hold=hold), names, v)(whole.statistics)
    exact = whole.fit("reml", hold=hold)
    for name, value in hold.items():
        assert found.values[names.index(name)] == value
    np.testing.assert_allclose(found.llf, exact.llf, rtol=1e-12)
    np.testing.assert_allclose(found.values, exact.vcomp, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "once", "expected"),
    [
        (REML(), False, True),
        (ML(), False, False),
        (ML(), True, True),
        (REML(hold={"p": 0.1}), False, False),
    ],
)
def test_one_climb_is_enough_where_restricted_likelihoods_have_one_maximum(
    options, once, expected
):
    whole = model("crossed")
    made = Compiled(whole.statistics, options, whole.component_names, np.ones(3), once=once)
    assert Packed(whole.statistics.strata).has_one_maximum()
    assert made._once is expected
    other = model("crossed", "x + ")
    assert not Packed(other.statistics.strata).has_one_maximum()
    made = Compiled(other.statistics, options, other.component_names, np.ones(3), once=once)
    assert made._once is once


@pytest.mark.parametrize("limit", [0, 1])
def test_a_limit_of_steps_is_kept(limit):
    whole = model("per document")
    v = np.full(11, 0.5)
    found = Compiled(whole.statistics, REML(max_iter=limit), whole.component_names, v)(
        whole.statistics
    )
    assert not found.converged


@pytest.mark.parametrize(
    ("climbs", "best"),
    [
        ([(1, -5.0), (1, -6.0), (1, -4.0), (1, -4.5)], 2),
        ([(1, -5.0), (0, -6.0), (2, -7.0)], 0),
        ([(1, -5.0), (-1, -1.0), (1, -4.0)], 2),
        ([(1, -5.0), (0, -4.0), (1, -6.0)], None),  # higher, but not known to be a maximum
        ([(0, -5.0)], None),
        ([(-1, -5.0)], None),
    ],
)
def test_of_several_climbs_the_highest_is_the_maximum(monkeypatch, climbs, best):
    """Climbs are given by how they end (1: at a maximum) and by their likelihoods."""
    whole, begun = model("crossed"), []

    def climb(start, rule, likelihood, known):
        begun.append((start, known))
        ended, loglike = climbs[len(begun) - 1]
        average, beta = np.diag([1.0, 4.0, -1.0]), np.array([loglike])
        v = np.array([1.0, 2.0, 3.0]) * len(begun)
        return ended, v, (None, loglike, None, average, np.eye(3), beta)

    made = Compiled(whole.statistics, ML(hold={"p": 1.0}), whole.component_names, np.ones(3))
    shares = np.array([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.0, 0.4, 0.6]])[: len(climbs) - 1]
    monkeypatch.setattr(made, "_elsewhere", lambda *_: shares)
    monkeypatch.setattr(refits, "climb_nested", climb)
    found = made.by_kernel(whole.statistics)
    if best is None:
        assert found is None
    else:
        assert found.values.tolist() == [1.0 + best, 2.0 + 2.0 * best, 3.0 + 3.0 * best]
        assert found.beta.tolist() == [found.llf] == [climbs[best][1]]
    for (start, known), share in zip(begun[1:], shares, strict=False):
        assert start.tolist() == [1.0, *(6.0 * share[1:])]
        assert [k.tolist() for k in known] == [[1.0, 2.0, 3.0], [1.0, 2.0, 0.0]]


@pytest.mark.parametrize(
    ("once", "doubtful", "n"), [(True, True, 0), (False, True, 2), (False, False, 0)]
)
def test_other_starts_are_for_doubts_about_one_climb(once, doubtful, n, monkeypatch):
    whole = model("crossed")
    made = Compiled(whole.statistics, ML(), whole.component_names, np.ones(3), once=once)
    others = SimpleNamespace(
        doubtful=lambda *_: np.array([False, doubtful, False]),
        elsewhere=lambda v, doubtful: np.outer([1.0, 2.0], v),
    )
    monkeypatch.setattr(made, "_others", others)
    shares = made._elsewhere(np.array([0.2, 0.3, 0.5]), np.eye(3), np.eye(3))
    assert shares.tolist() == [[0.2, 0.3, 0.5], [0.4, 0.6, 1.0]][:n]
    assert shares.shape == (n, 3)


# Steps and starts of the climb ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "fixed", "shape", "certain"),
    [
        ("ab", "", (5, 4), True),
        ("ab", "x + ", (5, 4), False),
        ("a", "", (5, 4), False),  # b gives replicates
        (("a", "b", "c", "a:b", "a:c"), "", (4, 3, 5), False),  # a is made of four mean squares
        (("a", "b", "c", "a:b", "a:c", "b:c"), "", (3, 3, 3), False),
        (("a", "a:b", "c"), "", (3, 3, 3), True),
        (("a:b", "a:c"), "", (4, 3, 5), False),  # of four different mean squares
    ],
)
def test_where_there_is_one_maximum(terms, fixed, shape, certain):
    """Of complete tables whose components are single mean squares, or differences of two."""
    cells = np.indices(shape).reshape(len(shape), -1)
    data = dict(zip("abc", cells, strict=False))
    rng = np.random.default_rng(5)
    data |= {"y": rng.normal(size=cells.shape[1]), "x": rng.normal(size=cells.shape[1])}
    made = vcomp.VarianceComponentsModel(
        f"y ~ {fixed}" + " + ".join(f"(1|{t})" for t in terms), data
    )
    assert Packed(made.statistics.strata).has_one_maximum() == certain


def test_refits_of_balanced_data_end_at_the_mean_squares():
    """REML is the analysis of variance there, if that is positive: refits start at it."""
    rng = np.random.default_rng(4)
    a, b, _ = (x.ravel() for x in np.indices((12, 9, 2)))
    y = rng.normal(size=12)[a] + rng.normal(size=9)[b] + rng.normal(size=(12, 9))[a, b]
    data = {"a": a, "b": b, "y": y + rng.normal(size=a.size)}
    model = vcomp.VarianceComponentsModel("y ~ (1|a*b)", data)
    expected = model.fit("anova").vcomp.to_numpy()
    assert (expected > 0.0).all()
    refit = ByLikelihood(model.statistics, REML(), model.component_names, np.ones(4))
    found = refit(model.statistics)
    assert found.converged
    np.testing.assert_allclose(found.values, expected, rtol=1e-12)
    for method in (REML, ML):
        refit = ByLikelihood(model.statistics, method(hold={"a": 0.25}), model.component_names,
                             np.ones(4))  # fmt: skip
        found = refit(model.statistics)
        wanted = model.fit("reml" if method is REML else "ml", hold={"a": 0.25})
        assert found.values[model.component_names.index("a")] == 0.25
        # Refits end at a decrement of 1e-6, in standard errors.
        np.testing.assert_allclose(found.values, wanted.vcomp, rtol=1e-5)
        assert found.llf == pytest.approx(wanted.llf, rel=1e-10)
