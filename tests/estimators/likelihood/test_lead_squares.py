"""Squares of a bordered block-diagonal matrix against its dense inverse."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.sparse import csr_array

from vcomp.estimators.likelihood.block_point import LeadBlocks


@pytest.mark.parametrize("entries", [1, 6])
@pytest.mark.parametrize("levels", [60, 200])
def test_squares_of_few_and_of_many_entries(levels, entries):
    rng, q, m = np.random.default_rng(entries), 2, 70
    half = rng.normal(size=(levels, q, 4))
    gram = half @ half.swapaxes(1, 2) + 8.0 * np.eye(q)
    border = np.zeros((q, levels, m))
    for level in range(levels):
        at = rng.choice(m, entries, replace=False)
        border[:, level, at] = rng.normal(size=(q, entries))
    # The effects of a level are neighbours, then the corner.
    B = border.transpose(1, 0, 2).reshape(levels * q, m)
    C = np.block([[block_diag(*gram), B], [B.T, 30.0 * np.eye(m)]])
    inverse = np.linalg.inv(C)
    n = levels * q
    of_inverse = inverse[:n, :n].reshape(levels, q, levels, q)[np.arange(levels), :, range(levels)]
    blocks = LeadBlocks(gram, of_inverse, [csr_array(b) for b in border], inverse[n:, n:])
    units = np.zeros((3, q, q))
    units[[0, 1, 1, 2], [0, 0, 1, 1], [0, 1, 0, 1]] = 1.0
    first, second = np.arange(30), np.arange(30, 60)
    others = [(first, first), (first, second)]
    directions = [np.pad(np.kron(np.eye(levels), E), (0, m)) for E in units]
    for rows, columns in others:
        D = np.zeros_like(C)
        D[n + rows, n + columns] = D[n + columns, n + rows] = 1.0
        directions.append(D)
    moved = [inverse @ D for D in directions]
    expected = [[np.einsum("ij,ji->", X, W) for W in moved] for X in moved]
    np.testing.assert_allclose(blocks.squares(units, others), expected, rtol=1e-10, atol=1e-12)
