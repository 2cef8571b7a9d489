"""Cells by a product and a correction are those by whole-number division."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vcomp.statistics.kernels.cells import cells_that_occur, renumber_cells


@given(
    st.integers(1, 2**20),
    st.lists(st.tuples(st.integers(0, 2**40), st.floats(0, 1, exclude_max=True)), max_size=50),
    st.booleans(),
)
def test_cells_and_numbers(n_cells, rows, at_ends):
    """At the first and last cell of a combination, where a quotient is nearly whole, above all."""
    cells = np.array([int(share * n_cells) for _, share in rows], dtype=np.int64)
    if at_ends:
        cells = np.where(cells % 2 == 0, 0, n_cells - 1)
    combinations = np.array([combination for combination, _ in rows], dtype=np.int64)
    places = combinations * n_cells + cells
    occurs = cells_that_occur(places, n_cells)
    np.testing.assert_array_equal(np.flatnonzero(occurs), np.unique(cells))
    numbers = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    n = int(occurs.sum())
    renumber_cells(places, n_cells, numbers, n)
    np.testing.assert_array_equal(
        places, combinations * n + np.searchsorted(np.unique(cells), cells)
    )
