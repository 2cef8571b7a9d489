"""Products of sets of columns by blocks of rows, against the sets written out."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.numerics.sparse.sparse_table import row_products


def fills_of(sets):
    return [lambda a, b, out, x=x: np.copyto(out, x[a:b]) for x in sets]


@pytest.mark.parametrize("n_rows", [0, 1, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("m", [1, 4])
def test_against_the_whole_sets(m, n_rows):
    sets = np.random.default_rng(n_rows).normal(size=(m, n_rows, 3))
    found = row_products(fills_of(sets), n_rows, 3)
    expected = np.einsum("aic,bic->abc", sets, sets)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * max(n_rows, 1))
    np.testing.assert_array_equal(found, found.swapaxes(0, 1))


def test_no_sum_depends_on_the_number_of_threads():
    sets = np.random.default_rng(1).normal(size=(3, 2500, 2))
    alone, shared = (
        row_products(fills_of(sets), 2500, 2, rows_a_part=100, threads=n) for n in (1, 4)
    )
    np.testing.assert_array_equal(shared, alone)
    np.testing.assert_allclose(alone, np.einsum("aic,bic->abc", sets, sets), atol=1e-10)
