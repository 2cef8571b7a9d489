"""Components of large matrices with missing cells, against those of their rows."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.gtheory import crossed_components, matrix_components


def found_in(X, facets=("object", "item")):
    return matrix_components(X, facets, many_cells=1)


def scores(n, k, kept, seed=1):
    rng = np.random.default_rng(seed)
    X = 100.0 + rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=k) + rng.normal(size=(n, k))
    X[rng.random(X.shape) >= kept] = np.nan
    return X


@pytest.mark.parametrize("shape", [(30, 12), (12, 30)])
@pytest.mark.parametrize("kept", [0.95, 0.5])
@pytest.mark.parametrize("facets", [("object", "item"), ("object",)])
def test_components_are_those_of_the_rows(shape, kept, facets):
    X = scores(*shape, kept)
    found = found_in(X, facets)
    rows = np.nonzero(~np.isnan(X))
    levels = dict(zip(("object", "item"), rows, strict=True))
    wanted, _ = crossed_components(X[rows], {f: levels[f] for f in facets}, "reml")
    assert (found.names, found.facets) == (wanted.names, wanted.facets)
    assert found.facets[-1] == {"object", "item" if len(facets) == 2 else "replicate"}
    np.testing.assert_allclose(found.values, wanted.values, rtol=1e-10)
    np.testing.assert_allclose(found.cov, wanted.cov, rtol=1e-7, atol=1e-10)


def test_what_rows_have_to_decide():
    X = scores(20, 10, 0.9)
    assert found_in(X) is not None
    assert found_in(scores(20, 10, 1.1)) is None  # complete
    assert found_in(scores(20, 10, 0.2)) is None  # sparse
    assert found_in(np.where(np.arange(20)[:, None] == 3, np.nan, X)) is None  # an empty row
    additive = np.where(np.isnan(X), np.nan, np.arange(20.0)[:, None] + np.arange(10.0))
    assert found_in(additive) is None  # no residual
    assert found_in(additive + 1e-3 * (X - 100.0)) is None  # 2e-8 of the variance
    assert found_in(np.where(np.isnan(X), np.nan, 1.0)) is None  # all equal
    assert matrix_components(X, ("object", "item")) is None  # small


@pytest.mark.parametrize(("filled", "is_there"), [(50, True), (49, False)])
def test_a_quarter_of_the_cells_is_needed(filled, is_there):
    X = scores(20, 10, 1.1)
    rows, columns = np.indices(X.shape)
    order = np.argsort((3 * rows + columns) % 10, axis=None, kind="stable")
    X.ravel()[order[filled:]] = np.nan  # every level has scores
    assert (found_in(X) is not None) == is_there
