"""How many points a surface has."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp.inference.resampling.surfaces import Surface


@pytest.mark.parametrize(("width", "nodes"), [(np.pi, 27), (np.pi / 2, 16), (0.01, 5)])
def test_nodes_for_ten_digits(width, nodes):
    """Bernstein's ellipse through iπ from an interval of ± width: ρ⁻ⁿ ≤ 1e-10, 5 at least.

    With width π it is ρ = 1 + √2, with half of that 2 + √5: n is 26.1 and 15.9, rounded up.
    """
    assert Surface.n_nodes(None, np.array([0.5 * width, width])) == nodes
