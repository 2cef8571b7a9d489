"""Many small matrices at once: parts of larger ones, their sums, and their inverses."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.estimators.likelihood.kernels import add_embedded, fill_inside, invert_positive
from vcomp.estimators.likelihood.level_blocks import _inverted_by_loops
from vcomp.numerics import inverses


def positive(n, s, seed=0):
    half = np.random.default_rng(seed).normal(size=(n, s, 2 * s + 1))
    return half @ half.swapaxes(1, 2)


WAYS = [None, _inverted_by_loops]


@pytest.mark.parametrize("of_small", WAYS)
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("s", [1, 2, 5, 12, 13, 30, 61])
def test_inverses_and_determinants_are_those_of_lapack(n, s, of_small):
    matrices, logs = positive(n, s), np.ones(n)
    before = matrices.copy()
    found = inverses(matrices, logs, of_small)
    assert (matrices == before).all()
    wanted = np.linalg.inv(matrices)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=1e-12 * np.abs(wanted).max(initial=1))
    np.testing.assert_allclose(logs - 1.0, np.linalg.slogdet(matrices)[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("of_small", WAYS)
@pytest.mark.parametrize("s", [3, 20])
@pytest.mark.parametrize("at", [0, -1])
def test_a_matrix_that_is_not_positive_is_refused(s, at, of_small):
    matrices = positive(4, s)
    matrices[2, at, at] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        inverses(matrices, np.zeros(4), of_small)
    assert not invert_positive(matrices, np.zeros(4))


@pytest.mark.parametrize(("pairs", "s"), [(0, 2), (1, 1), (9, 4), (5, 0)])
def test_parts_of_matrices_and_their_sums(pairs, s):
    rng = np.random.default_rng(1)
    whole = rng.normal(size=(3, 6, 6))
    whole += whole.swapaxes(1, 2)
    cells = np.array([np.sort(rng.permutation(6)[:s]) for _ in range(4)], dtype=np.int64)
    pattern, node = rng.integers(4, size=pairs), rng.integers(3, size=pairs)
    found = np.empty((pairs, s, s))
    fill_inside(whole, cells, pattern, node, found)
    wanted = [whole[n][np.ix_(cells[p], cells[p])] for p, n in zip(pattern, node, strict=True)]
    np.testing.assert_array_equal(found, np.reshape(wanted, found.shape))
    weights, sums = rng.uniform(size=pairs), np.zeros((3, 6, 6))
    add_embedded(found, np.arange(pairs), cells, pattern, node, weights, sums)
    embedded = np.zeros((3, 6, 6))
    for p, n, w, values in zip(pattern, node, weights, found, strict=True):
        embedded[n][np.ix_(cells[p], cells[p])] += w * values
    np.testing.assert_allclose(sums, np.tril(embedded), rtol=1e-14, atol=1e-14)
