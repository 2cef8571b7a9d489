"""How many points a surface has."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.inference.resampling.parametric import _Box
from vcomp.inference.resampling.surfaces import Surface


@pytest.mark.parametrize(("width", "nodes"), [(np.pi, 27), (np.pi / 2, 16), (0.01, 5)])
def test_nodes_for_ten_digits(width, nodes):
    """Bernstein's ellipse through iπ from an interval of ± width: ρ⁻ⁿ ≤ 1e-10, 5 at least.

    With width π it is ρ = 1 + √2, with half of that 2 + √5: n is 26.1 and 15.9, rounded up.
    """
    assert Surface.n_nodes(None, np.array([0.5 * width, width])) == nodes


@pytest.mark.parametrize(("digits", "nodes"), [(10.0, 27), (11.0, 29), (12.0, 32)])
def test_nodes_for_other_digits(digits, nodes):
    """n is 26.1, 28.7 and 31.3."""
    assert Surface.n_nodes(None, np.array([np.pi]), digits) == nodes


@pytest.mark.parametrize(
    ("width", "rows", "nodes"), [(np.pi, 100, 27), (np.pi / 2, 10_000, 20), (0.01, 10, 5)]
)
def test_nodes_for_eight_digits_of_a_row(width, rows, nodes):
    """The same with ρ⁻ⁿ ≤ 1e-8/rows: n is 26.1, 19.1 and 3.2."""
    box = _Box(np.zeros(2), np.array([0.5 * width, width]), np.zeros(2), np.zeros(2, dtype=bool))
    assert box.n_nodes(rows) == nodes
