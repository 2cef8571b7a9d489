"""What analysis of variance needs of the groups: by counting rows, in strata and in general."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.designs import DESIGNS, GRIDS, gridded, unbalanced
from vcomp.statistics.groupings import group_sums, stratum_group_sums


def by_counting(chunk):
    """Return sums and coefficients from dense indicator matrices."""
    Z = [np.eye(q)[c] for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
    n = [z.sum(axis=0) for z in Z]
    y, rows = chunk.y, chunk.y.size
    shared = [[(z.T @ w) ** 2 for w in Z] for z in Z]
    k = len(Z)
    inverse = [[np.mean(shared[t][u].sum(axis=1) / n[t] ** 2) for u in range(k)] for t in range(k)]
    return {
        "total": y.sum(),
        "yy": y @ y,
        "T": [((z.T @ y) ** 2 / m).sum() for z, m in zip(Z, n, strict=True)],
        "coefficients": [
            [(shared[t][u].sum(axis=1) / n[t]).sum() for u in range(k)] for t in range(k)
        ],
        "squares": [m @ m for m in n],
        "inverse_n": [[*inverse[t], np.mean(1.0 / n[t])] for t in range(k)],
        # One of finer groups: every group meets one group of the other.
        "finer": [[((z.T @ w) > 0).sum() == z.shape[1] for w in Z] for z in Z],
    }, rows


def check(sums, chunk):
    expected, rows = by_counting(chunk)
    assert sums.n == rows
    assert sums.sizes == chunk.sizes
    assert sums.n_terms == len(chunk.sizes)
    # Then those of all rows, and of their mean.
    T = [*expected["T"], expected["yy"], expected["total"] ** 2 / rows]
    np.testing.assert_allclose(sums.holds @ sums.parts, T, rtol=1e-12, atol=1e-11)
    for name, values in expected.items():
        # The response is centred: its total is rounding.
        np.testing.assert_allclose(
            getattr(sums, name), values, rtol=1e-12, atol=1e-11, err_msg=name
        )


@pytest.mark.parametrize("name", [*GRIDS, *DESIGNS])
def test_sums_of_another_response(name):
    """Counts are those of the first response, what depends on the response is its own."""
    formula, data = gridded(name, seed=4) if name in GRIDS else unbalanced(name)
    stats = vcomp.VarianceComponentsModel(formula, data).statistics
    y = np.random.default_rng(0).normal(size=stats.n)
    other = stats.with_response(y - y.mean())
    check(other.group_sums, other.cells)


@pytest.mark.parametrize("fixed", ["1", "0"])
@pytest.mark.parametrize("name", GRIDS)
def test_sums_of_strata(name, fixed):
    formula, data = gridded(name, seed=4)
    model = vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)
    check(stratum_group_sums(model.statistics.strata), model.chunk)
    check(group_sums(model.statistics.cross_products), model.chunk)


@pytest.mark.parametrize("fixed", ["1", "0"])
@pytest.mark.parametrize("name", DESIGNS)
def test_sums_of_other_designs(name, fixed):
    formula, data = unbalanced(name)
    model = vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)
    check(group_sums(model.statistics.cross_products), model.chunk)
    check(model.statistics.group_sums, model.chunk)
