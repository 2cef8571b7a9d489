"""Composites and profiles of covariance components, by sums over single covariances."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from vcomp.exceptions import EstimationError, PlanError
from vcomp.multivariate.covariance_components import (
    Composite,
    CovarianceComponents,
    check_shared,
    composite_of,
    divisors_of,
    elements,
    is_alike,
    object_term,
    optimal_weights,
    own_matrices,
    profile_variability,
    read_weights,
)

FACETS = (frozenset("p"), frozenset("i"), frozenset("pi"))
SIZES = {"p": (9.0, 9.0, 9.0), "i": (4.0, 6.0, 5.0)}


def components(seed=1, linked=None, unsure=()):
    """Return p x i components of three variables; items are independent unless linked."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(3, 3, 4))
    S = roots @ roots.transpose(0, 2, 1)
    if linked is None:
        linked = np.array([np.ones((3, 3)), np.eye(3), np.eye(3)]).astype(bool)
    S = np.where(linked, S, np.nan)
    m = len(elements(linked))
    root = rng.normal(size=(m, m + 2))
    cov = root @ root.T / 10.0
    for k in unsure:
        cov[k], cov[:, k] = np.nan, np.nan
    return CovarianceComponents(
        ("a", "b", "c"), ("p", "i", "Residual"), FACETS, S, linked, cov, sizes=SIZES
    )


def by_loops(g, W):
    """Return Σ w σ and its variance, each (co)variance once with the weights of its elements."""
    w = np.array([W[t, a, b] + (W[t, b, a] if a != b else 0.0) for t, a, b in g.elements])
    sigma = np.array([g.values[t, a, b] for t, a, b in g.elements])
    return w @ sigma, sum(
        w[k] * w[h] * g.cov[k, h]
        for k, h in itertools.product(range(w.size), repeat=2)
        if np.isfinite(g.cov[k, k]) and np.isfinite(g.cov[h, h])
    )


def test_elements_are_the_covariances_of_linked_variables():
    g = components()
    assert g.elements == (
        (0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 1), (0, 1, 2), (0, 2, 2), (1, 0, 0), (1, 1, 1),
        (1, 2, 2), (2, 0, 0), (2, 1, 1), (2, 2, 2),
    )  # fmt: skip
    assert g.n_variables == 3
    errors = g.standard_errors
    for k, (t, a, b) in enumerate(g.elements):
        assert errors[t, a, b] == errors[t, b, a] == pytest.approx(np.sqrt(g.cov[k, k]))
    assert np.isnan(errors[~g.linked]).all()
    np.testing.assert_array_equal(g.known, np.where(g.linked, g.values, 0.0))
    assert g.place("Residual") == 2


@pytest.mark.parametrize("unsure", [(), (1, 7)])
def test_combinations_are_sums_over_elements(unsure):
    g = components(2, unsure=unsure)
    rng = np.random.default_rng(4)
    W = rng.normal(size=(4, 3, 3, 3))
    W += W.transpose(0, 1, 3, 2)
    W[3] = 0.0
    W[3, 0, 0, 1] = W[3, 0, 1, 0] = 1.0  # the second element alone
    values, cov = g.combined(W)
    for r in range(3):
        value, variance = by_loops(g, W[r])
        assert values[r] == pytest.approx(value, rel=1e-12)
        assert cov[r, r] == pytest.approx(variance, rel=1e-11)
        both = by_loops(g, W[r] + W[0])[1]
        alone = by_loops(g, W[r])[1] + by_loops(g, W[0])[1]
        assert cov[r, 0] == pytest.approx((both - alone) / 2.0, rel=1e-9)
    if unsure:
        assert np.isnan(cov[3]).all()
        assert np.isnan(cov[:, 3]).all()
    else:
        assert np.isfinite(cov).all()


@pytest.mark.parametrize("w", [(1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (1.0, -2.0, 0.5)])
def test_composites(w):
    g, w = components(3), np.array(w)
    made = g.of_weights(w)
    for t in range(3):
        W = np.zeros((3, 3, 3))
        W[t] = np.outer(w, w)
        value, variance = by_loops(g, W)
        assert made.values[t] == pytest.approx(value, rel=1e-12)
        assert made.cov[t, t] == pytest.approx(variance, rel=1e-11)
    first = int(np.flatnonzero(w)[0])
    assert made.sizes == {"p": 9.0, "i": SIZES["i"][first]}
    one = np.count_nonzero(w) == 1
    assert is_alike(g, w) == one
    assert set(composite_of(g, w).sizes) == ({"p", "i"} if one else {"p"})


def test_exact_divisors_have_to_be_alike():
    g = replace(components(), sizes={"p": (9.0,) * 3})
    same = np.full((3, 3, 3), 0.25)
    w = np.array([1.0, 1.0, 0.0])
    assert is_alike(replace(g, inverse_n={"p": same}), w)
    assert is_alike(replace(g, inverse_n={"p": 0.0 * same}), w)
    other = same.copy()
    other[2, 2, 2] = 0.5  # of a variable without a weight
    assert is_alike(replace(g, inverse_n={"p": other}), w)
    other[1, 1, 1] = 0.2500001
    assert not is_alike(replace(g, inverse_n={"p": other}), w)
    other[1, 1, 1], other[1, 0, 1] = 0.25, 0.9  # variables that are not linked there
    assert is_alike(replace(g, inverse_n={"p": other}), w)


def test_measurements_of_the_own_design():
    g = components(5)
    divisors = divisors_of(g, {}, "p")
    n = np.array(SIZES["i"])
    for a, b in itertools.product(range(3), repeat=2):
        assert divisors[0, a, b] == 1.0
        assert divisors[1, a, b] == pytest.approx(1.0 / np.sqrt(n[a] * n[b]))
    given = divisors_of(g, {"i": (2, 8, 2)}, "p")
    assert given[2, 0, 1] == pytest.approx(0.25)
    exact = replace(g, inverse_n={"p": np.full((3, 3, 3), 0.3)})
    assert (divisors_of(exact, {}, "p") == 0.3).all()
    assert divisors_of(exact, {"i": (2, 8, 2)}, "p")[2, 0, 0] == 0.5
    universe, relative, rest = own_matrices(g, "p")
    np.testing.assert_allclose(universe, g.known[0], rtol=1e-14)
    np.testing.assert_allclose(relative, g.known[2] * divisors[2], rtol=1e-14)
    np.testing.assert_allclose(rest, g.known[1] * divisors[1] + relative, rtol=1e-14)


def test_variability_of_profiles():
    """The mean over objects of the variance of their v scores, in normal draws."""
    g, means = components(6), np.array([1.0, 3.0, 2.5])
    found = profile_variability(g, "p", means)
    universe, relative, _ = own_matrices(g, "p")
    for name, S in (("universe", universe), ("observed", universe + relative)):
        # E of the variance about the own mean: tr(HS)/v, and that of the means.
        H = np.eye(3) - 1.0 / 3.0
        expected = np.trace(H @ S) / 3.0 + means.var()
        assert found[name] == pytest.approx(expected, rel=1e-12)
    assert found["reliability"] == pytest.approx(found["universe"] / found["observed"])


def test_no_other_weights_are_better():
    g = components(7)
    universe, relative, _ = own_matrices(g, "p")

    def reliability(w):
        return w @ universe @ w / (w @ (universe + relative) @ w)

    w = optimal_weights(g, "p")
    assert w.sum() == pytest.approx(1.0)
    rng = np.random.default_rng(1)
    for size in (1.0, 0.1, 1e-3):
        for step in rng.normal(size=(50, 3)):
            assert reliability(w + size * step) <= reliability(w) * (1 + 1e-12)
    scaled = replace(g, values=g.values * np.outer([1e3, 1, 1], [1e3, 1, 1]))
    np.testing.assert_allclose(
        optimal_weights(scaled, "p") * [1e3, 1, 1] * (w[1] / optimal_weights(scaled, "p")[1]), w,
        rtol=1e-8,
    )  # fmt: skip
    negative = replace(g, values=-g.values)
    with pytest.raises(EstimationError, match="not positive definite"):
        optimal_weights(negative, "p")


def test_weights_are_read():
    names = ("a", "b", "c")
    assert read_weights(None, names).tolist() == [1 / 3] * 3
    assert read_weights({"c": 2}, names).tolist() == [0.0, 0.0, 2.0]
    assert read_weights([1, -1, 0.5], names).tolist() == [1.0, -1.0, 0.5]
    for bad, words in (
        ({"d": 1}, "which is not a variable"), ([1, 2], "or 3 numbers"), ("abc", "or 3 numbers"),
        (5, "or 3 numbers"), ([1, True, 0], "must be a finite number"),
        ({"a": np.inf}, "must be a finite number"), ([0, 0, 0], "must not be zero"), ({}, "zero"),
    ):  # fmt: skip
        with pytest.raises(PlanError, match=words):
            read_weights(bad, names)


def test_what_variables_have_to_share():
    g = components()
    check_shared(g, np.ones(3))
    apart = g.linked.copy()
    apart[0, 0, 2] = apart[0, 2, 0] = False
    g = components(linked=apart)
    check_shared(g, np.array([1.0, 1.0, 0.0]))
    with pytest.raises(PlanError, match="'a' and 'c' share no levels"):
        check_shared(g, np.ones(3))
    assert object_term(components(), None) == object_term(components(), "p") == "p"
    with pytest.raises(PlanError, match="do not all share levels of 'i'"):
        object_term(components(), "i")
    with pytest.raises(PlanError, match="unknown facet 'q'"):
        object_term(components(), "q")


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"a": 1.0, "b": -1.0}, "a − b"), ({"a": -1.0, "b": 1.0}, "−a + b"),
        ({"a": 0.0, "b": 0.5, "c": -2.0}, "0.5 × b − 2 × c"), ({"a": -0.25}, "−0.25 × a"),
    ],
)  # fmt: skip
def test_composites_in_words(weights, words):
    made = Composite(components().of_weights(np.ones(3)), weights=weights)
    assert repr(made) == f"<Composite: {words}>"


def test_the_best_weights_of_a_difference():
    """They add up to 0, and so are scaled to absolute values that add up to 1."""
    g = components()
    S = np.where(g.linked, 0.0, np.nan)
    S[0] = [[1.0, -0.9, 0.0], [-0.9, 1.0, 0.0], [0.0, 0.0, 1e-3]]
    for t in (1, 2):
        S[t][np.diag_indices(3)] = 1.0
    g = replace(g, values=S, sizes={"p": (9.0,) * 3, "i": (4.0,) * 3})
    w = optimal_weights(g, "p")
    np.testing.assert_allclose(np.abs(w), [0.5, 0.5, 0.0], atol=1e-12)
    assert w[0] == pytest.approx(-w[1])
