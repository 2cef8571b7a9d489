"""The covariance of sums of squares by chains of tables and by one dense product."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.designs import DESIGNS, unbalanced
from vcomp.estimators.quadratic.quadratic_forms import (
    ChainLimits,
    TooLargeError,
    _Chains,
    _projector_forms,
    quadratic_covariance,
)


@pytest.mark.parametrize("name", DESIGNS)
def test_chains_and_a_dense_product_against_matrices_of_all_rows(name):
    model = vcomp.VarianceComponentsModel(*unbalanced(name))
    stats, n = model.statistics.cross_products, model.nobs
    v = np.linspace(-0.2, 1.5, stats.n_terms + 1)
    Z = [
        np.eye(q)[c]
        for c, q in zip(model.statistics.rows.codes, model.statistics.rows.sizes, strict=True)
    ]
    V = sum(s * z @ z.T for s, z in zip(v, Z, strict=False)) + v[-1] * np.eye(n)
    mean = np.full((n, n), 1.0 / n)
    A = [z @ np.diag(1.0 / z.sum(axis=0)) @ z.T - mean for z in Z] + [np.eye(n) - mean]
    expected = 2.0 * np.array([[np.trace(a @ V @ b @ V) for b in A] for a in A])
    scale = np.abs(expected).max()
    for many_terms in (1, 1000):
        found = quadratic_covariance(stats, v, ChainLimits(many_terms=many_terms))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * scale)


def test_what_is_too_large_is_refused_before_any_product_is_made():
    stats = vcomp.VarianceComponentsModel(*unbalanced("three facets")).statistics.cross_products
    limits, v = ChainLimits(dense_below=0, most_elements=0), np.ones(stats.n_terms + 1)
    with pytest.raises(TooLargeError):
        quadratic_covariance(stats, v, limits)
    chains = _Chains(stats, limits)
    with pytest.raises(TooLargeError):
        _projector_forms(chains, list(range(stats.n_terms + 2)), v)
    assert not chains._tables  # of which products are made


def test_a_product_between_the_two_smallest_terms_has_to_fit():
    """Of N_ab N_bc N_ca, which is as large as the two terms with the fewest groups allow."""
    rng = np.random.default_rng(3)
    codes = {f: rng.permutation(np.arange(60) % q) for f, q in {"a": 30, "b": 4, "c": 20}.items()}
    data = pd.DataFrame({**codes, "y": rng.normal(size=60)})
    model = vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b) + (1|c)", data)
    stats = model.statistics.cross_products
    Z = [
        np.eye(q)[c]
        for c, q in zip(model.statistics.rows.codes, model.statistics.rows.sizes, strict=True)
    ]
    sizes = {z.shape[1]: z for z in Z}
    place = {z.shape[1]: t for t, z in enumerate(Z)}
    chain = [(place[30], -1), (place[4], 0), (place[20], -1)]
    # An element takes 40 bytes, and a product two fifths of the free memory.
    for limits, fits in (
        (ChainLimits(dense_below=0, most_elements=79), False),
        (ChainLimits(dense_below=0, most_elements=80), True),
        (ChainLimits(dense_below=0, free_bytes=lambda: 79.9 * 40.0 / 0.4), False),
        (ChainLimits(dense_below=0, free_bytes=lambda: 80.1 * 40.0 / 0.4), True),
    ):
        chains = _Chains(stats, limits)
        if not fits:
            with pytest.raises(TooLargeError):
                chains.planned(chain)
            continue
        a, b, c = (sizes[q] for q in (30, 4, 20))
        of_a, of_c = (np.diag(1.0 / z.sum(axis=0)) for z in (a, c))
        expected = np.trace(of_a @ a.T @ b @ b.T @ c @ of_c @ c.T @ a)
        found = chains.trace(chains.planned(chain))
        assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("turn", range(4))
def test_chains_are_shortened_wherever_they_begin(turn):
    """A_t Z_u = Z_u of a finer term t on either side of u, and N_aa is diagonal."""
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed and nested"))
    stats = model.statistics.cross_products
    k = stats.n_terms
    fine, coarse = next(
        (a, b) for a in range(k) for b in range(k) if a != b and stats.is_finer(a, b)
    )
    other = next(
        c for c in range(k)
        if not any(stats.is_finer(x, y) for x, y in ((c, coarse), (fine, c), (c, fine)))
    )  # fmt: skip
    chains = _Chains(stats, ChainLimits())
    for chain in (
        [(fine, -1), (coarse, 0), (coarse, -1), (other, 0)],
        [(other, 0), (coarse, -1), (coarse, 0), (fine, -1)],
    ):
        found = chains._shortened(chain[turn:] + chain[:turn])
        assert sorted(found) == sorted([(coarse, 0), (other, 0)])


@pytest.mark.parametrize("name", ["three facets", "crossed and nested", "nested"])
def test_numbers_of_elements_are_those_of_the_products(name):
    """Of tables, and at most as many of products; exact if the middle term is finer than one."""
    stats = vcomp.VarianceComponentsModel(*unbalanced(name)).statistics.cross_products
    chains, terms = _Chains(stats, ChainLimits()), range(stats.n_terms + 1)
    for a, b in product(terms, repeat=2):
        assert chains._stored(a, b).nnz == chains._entries(a, b)
    for a, b, c in product(terms, repeat=3):
        made = (chains._stored(a, b) @ chains._stored(b, c)).nnz
        most = chains._elements(a, b, c)
        assert made <= most <= chains._group_n[a].size * chains._group_n[c].size
        if chains._finer(b, a):
            assert most <= chains._stored(b, c).nnz
        if chains._finer(b, c):
            assert most <= chains._stored(a, b).nnz
