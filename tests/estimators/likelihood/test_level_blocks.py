"""The blocks of levels against the inverse of each block, made from its rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.likelihood.level_blocks import LevelBlocks, mirrored, product

CROSSED = "y ~ (1|m) + (1|i) + (1|p) + (1|m:i) + (1|i:p)"
NESTED = "y ~ (1|p) + (1|t) + (1|t:i) + (1|p:t) + (1|p:t:i) + (1|m:t)"


def crossed(kept, times=1, seed=0):
    """Return a part of the cells of 40 levels of i, in topics t, with 4 × 3 cells."""
    rng = np.random.default_rng(seed)
    grid = np.meshgrid(np.arange(40), np.arange(4), np.arange(3), indexing="ij")
    frame = pd.DataFrame({f: g.ravel() for f, g in zip("imp", grid, strict=True)})
    frame["t"] = frame["i"] % 6
    frame = pd.concat([frame] * times)
    frame = frame[rng.random(len(frame)) < kept].reset_index(drop=True)
    return frame.assign(y=rng.normal(size=len(frame)))


def twice(frame):
    return pd.concat([frame, frame.assign(y=frame["y"] + 1.0)])


CASES = {
    "complete": (CROSSED, crossed(1.0)),
    "few holes": (CROSSED, crossed(0.9)),
    "half missing": (CROSSED, crossed(0.5)),
    "most missing": (CROSSED, crossed(0.2)),
    "replicated": (CROSSED, twice(crossed(0.8))),
    "unequally replicated": (CROSSED, crossed(0.6, times=3)),
    "one way": ("y ~ (1|i)", crossed(0.6)[["i", "y"]]),
    "nested": (NESTED, crossed(0.8)),
    "nested, replicated": (NESTED, twice(crossed(0.7))),
    "nested, most missing": (NESTED, crossed(0.3)),
}
RTOL = 1e-11
"""Of blocks of order 12 whose condition is below 100."""


class Dense:
    """The same, level by level, with inverses of whole matrices."""

    def __init__(self, grid, v):
        self.grid, self.v = grid, v
        within = [t for t, term in enumerate(grid.terms) if term.depth == 0]
        self.B = [np.equal.outer(g, g).astype(float)
                  for g in (grid.terms[t].indicator.argmax(axis=1) for t in within)]  # fmt: skip
        self.above = grid.parents[0]
        self.W, self.filled = [], []
        for counts in grid.counts:
            o = np.flatnonzero(counts)
            V = sum(v[t] * B for t, B in zip(within, self.B, strict=True)) + np.zeros((1, 1))
            V = (V + np.zeros((counts.size, counts.size)))[np.ix_(o, o)]
            W = np.zeros((counts.size, counts.size))
            W[np.ix_(o, o)] = np.linalg.inv(V + np.diag(v[-1] / counts[o]))
            self.W.append(W)
            self.filled.append(np.diag((counts > 0).astype(float)))
        self.W = np.array(self.W)

    def variances(self, level):
        """Return V_t of the cell means of a level, the residual last."""
        counts, F = self.grid.counts[level], self.filled[level]
        inverse = np.divide(1.0, counts, out=np.zeros(counts.size), where=counts > 0)
        return [*(F @ B @ F for B in self.B), np.diag(inverse)]

    def log_det(self):
        """Return log|V| of the rows."""
        grid, v = self.grid, self.v
        level, cell = np.divmod(grid.place, grid.n_cells)
        V = v[-1] * np.eye(grid.n)
        within = [t for t, term in enumerate(grid.terms) if term.depth == 0]
        for t, B in zip(within, self.B, strict=True):
            V += v[t] * np.equal.outer(level, level) * B[np.ix_(cell, cell)]
        return np.linalg.slogdet(V)[1]

    def by_node(self, values):
        """Return sums of values of levels, (I, …), over those of each node."""
        found = np.zeros((self.grid.n_nodes[1], *values.shape[1:]))
        np.add.at(found, self.above, values)
        return found


@pytest.fixture(scope="module", params=CASES)
def both(request):
    formula, frame = CASES[request.param]
    grid = vcomp.VarianceComponentsModel(formula, frame).statistics.levels
    assert grid is not None
    v = np.random.default_rng(3).uniform(0.2, 1.5, size=grid.n_terms + 1)
    return LevelBlocks(grid, v), Dense(grid, v)


def near(found, expected):
    scale = np.abs(expected).max(initial=1e-300)
    np.testing.assert_allclose(found, expected, rtol=RTOL, atol=RTOL * scale)


def columns(grid, n=2):
    """Return columns of cells, zero in empty ones, and a value of each node's cells."""
    rng = np.random.default_rng(5)
    Y = rng.normal(size=(n, *grid.counts.shape)) * grid.filled
    return Y, rng.normal(size=(n, grid.n_nodes[1], grid.n_cells))


def symmetric(grid):
    Q = np.random.default_rng(6).normal(size=(grid.n_nodes[1], grid.n_cells, grid.n_cells))
    return 0.02 * (Q + Q.swapaxes(1, 2))


def test_log_determinant_is_that_of_the_rows(both):
    blocks, dense = both
    assert blocks.log_det == pytest.approx(dense.log_det(), rel=RTOL, abs=1e-10)


def test_sums_of_inverses(both):
    blocks, dense = both
    near(blocks.sums, dense.by_node(dense.W))


@pytest.mark.parametrize("n", [1, 3])
def test_products_with_columns(both, n):
    blocks, dense = both
    Y, away = columns(dense.grid, n)
    reduced, sums = blocks.reduced(Y)
    for c in range(n):
        of_levels = np.einsum("icd,id->ic", dense.W, Y[c])
        near(sums[c], dense.by_node(of_levels))
    found = blocks.times(Y, reduced, away)
    for c in range(n):
        near(found[c], np.einsum("icd,id->ic", dense.W, Y[c] - away[c][dense.above]))
    assert (found[:, dense.grid.counts == 0.0] == 0.0).all()


@pytest.mark.parametrize("n", [1, 2])
def test_forms_of_moved_columns(both, n):
    blocks, dense = both
    z, _ = columns(dense.grid, n)
    q = len(dense.B) + 1
    forms, sums = np.zeros((q * n, q * n)), np.zeros((q * n, *dense.grid.counts.shape))
    for i, W in enumerate(dense.W):
        F = np.array([V @ z[c, i] for V in dense.variances(i) for c in range(n)])
        forms += F @ W @ F.T
        sums[:, i] = F @ W
    found, found_sums = blocks.moved_forms(z)
    near(found, forms)
    for column, expected in zip(found_sums, sums, strict=True):
        near(column, dense.by_node(expected))


def test_diagonals_of_groups_of_cells(both):
    blocks, dense = both
    C, Q = dense.grid.n_cells, symmetric(dense.grid)
    for Z in (np.eye(C), np.ones((C, 1)), np.random.default_rng(1).normal(size=(C, 2))):
        inner = [W - W @ Q[node] @ W for W, node in zip(dense.W, dense.above, strict=True)]
        near(blocks.group_diagonal(Z, Q), np.einsum("cs,icd,ds->is", Z, inner, Z))


def test_traces(both):
    blocks, dense = both
    grid, Q = dense.grid, symmetric(dense.grid)
    of_terms = np.zeros(len(dense.B) + 1)
    for i, (W, node) in enumerate(zip(dense.W, dense.above, strict=True)):
        inner = W - W @ Q[node] @ W
        of_terms += [np.trace(V @ inner) for V in dense.variances(i)]
    of_terms[-1] += (grid.n - grid.n_filled) / dense.v[-1]
    expected = np.zeros(grid.n_terms + 1)
    expected[[*blocks.terms, -1]] = of_terms
    near(blocks.traces(Q), expected)


def test_a_triangle_is_mirrored_and_columns_are_multiplied():
    lower = np.tril(np.arange(18.0).reshape(2, 3, 3))
    expected = [np.tril(x) + np.tril(x, -1).T for x in lower.copy()]
    np.testing.assert_array_equal(mirrored(lower), expected)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(5, 3, 4))
    near(product(a, b), np.einsum("cij,dij->cd", a, b))
