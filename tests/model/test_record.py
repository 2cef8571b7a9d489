"""Cell means as they are stored, and mean squares of cell means."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from vcomp.model.record import _compact, _folded, _mean_of_cells, _spread


@pytest.mark.parametrize("filled", [1, 14, 15, 16, 29, 30])
@pytest.mark.parametrize("alike", [True, False])
def test_cells_come_back_from_a_file(filled, alike):
    """With 30 cells: only the filled ones are stored if they are fewer than half."""
    rng = np.random.default_rng(filled)
    counts = np.zeros(30)
    places = rng.choice(30, filled, replace=False)
    counts[places] = 2.0 if alike else rng.integers(1, 9, filled)
    means = np.where(counts > 0.0, rng.normal(size=30), np.nan)
    counts, means = counts.reshape(5, 6), means.reshape(5, 6)
    folded, kept = _folded(means), _compact(counts)
    stored = folded
    if isinstance(folded, dict):
        stored = {name: array.tolist() for name, array in folded.items()}
    assert isinstance(folded, dict) == (filled < 15)
    cells = {"levels": [range(5), range(6)], "means": stored}
    np.testing.assert_array_equal(_mean_of_cells(stored, cells), means)
    np.testing.assert_array_equal(_spread(kept, cells), counts)
    one_number = (alike or filled == 1) and (filled < 15 or filled == 30)
    assert isinstance(kept, float) == one_number


def test_a_table_that_is_too_large_is_not_unfolded():
    cells = {"means": {"filled": [0], "values": [1.0]}}
    allowed = _mean_of_cells(cells["means"], {**cells, "levels": [range(1_000), range(1_000)]})
    assert allowed.shape == (1_000, 1_000)
    assert np.isnan(allowed).sum() == 999_999
    with pytest.raises(ValueError, match=r"a table of 1,000 × 1,001 cells"):
        _mean_of_cells(cells["means"], {**cells, "levels": [range(1_000), range(1_001)]})


@pytest.mark.parametrize("replicates", [1, 3])
def test_mean_squares_of_cell_means(replicates):
    rng = np.random.default_rng(replicates)
    n, k = 7, 4
    p, i, _ = np.indices((n, k, replicates)).reshape(3, -1)
    y = 100.0 + rng.normal(size=n)[p] + rng.normal(size=k)[i] + rng.normal(size=p.size)
    term = " + (1|p:i)" if replicates > 1 else ""
    res = vcomp.fit(f"y ~ (1|p) + (1|i){term}", {"p": p, "i": i, "y": y})
    found = vcomp.model.record_of(res).components.mean_squares
    means = np.array([[y[(p == a) & (i == b)].mean() for b in range(k)] for a in range(n)])
    rows, columns = means.mean(axis=1), means.mean(axis=0)
    rest = means - rows[:, None] - columns + means.mean()
    assert (found.rows, found.columns) == ("p", "i")
    assert (found.n_rows, found.n_columns, found.n_replicates) == (n, k, replicates)
    assert found.ms_rows == pytest.approx(k * rows.var(ddof=1), rel=1e-9)
    assert found.ms_columns == pytest.approx(n * columns.var(ddof=1), rel=1e-9)
    assert found.ms_residual == pytest.approx((rest**2).sum() / ((n - 1) * (k - 1)), rel=1e-9)
    if replicates > 1:  # without the interaction, cell means differ by error only
        without = vcomp.fit("y ~ (1|p) + (1|i)", {"p": p, "i": i, "y": y})
        assert vcomp.model.record_of(without).components.mean_squares is None
    for kept in (np.arange(y.size) > 0, (p > 0) | (i > 0)):  # a score less, and a cell less
        rows = {"p": p[kept], "i": i[kept], "y": y[kept]}
        some = vcomp.fit(f"y ~ (1|p) + (1|i){term}", rows)
        assert vcomp.model.record_of(some).components.mean_squares is None
    held = vcomp.fit(f"y ~ (1|p) + (1|i){term}", {"p": p, "i": i, "y": y}, hold={"i": 0.5})
    assert vcomp.model.record_of(held).components.mean_squares is None
