"""What follows from cross-products, against indicator matrices: weights, other columns, terms."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import vcomp
from tests.helpers.examples import examples
from vcomp.statistics.cross_products import accumulate, cell_moments, resum
from vcomp.statistics.roll_up import RollUp, row_blocks
from vcomp.statistics.two_term_tables import tabulate

CLOSE = {"rtol": 1e-11, "atol": 1e-11}
TERMS = ("a", "b", "c", "d", "a:b", "a:c", "b:d", "a:b:c")


def chunk_of(seed, terms, fixed):
    """Return coded rows of four facets, d within c."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(40, 80))
    frame = pd.DataFrame(
        {f: rng.permutation(np.arange(n) % q) for f, q in zip("abd", (3, 4, 9), strict=True)}
    )
    frame["c"] = frame["d"] % 3
    frame["x"], frame["y"] = rng.normal(size=(2, n))
    formula = f"y ~ {fixed}" + " + ".join(f"(1|{t})" for t in terms)
    return vcomp.VarianceComponentsModel(formula, frame).statistics.rows, rng


def check(found, chunk, columns=None):
    weights = np.ones(chunk.y.size) if chunk.counts is None else chunk.counts
    columns = np.column_stack([chunk.y, chunk.X]) if columns is None else columns
    Z = [np.eye(q)[c] for c, q in zip(chunk.codes, chunk.sizes, strict=True)]
    W = weights[:, None]
    assert found.n == round(weights.sum())
    assert (found.sizes, found.n_terms) == (chunk.sizes, len(Z))
    assert found.n_fixed == columns.shape[1] - 1
    within = 0.0 if chunk.within is None else chunk.within
    gram = columns.T @ (W * columns) + within
    np.testing.assert_allclose(found.XX, gram[1:, 1:], **CLOSE)
    np.testing.assert_allclose(found.Xy, gram[1:, 0], **CLOSE)
    assert found.yy == pytest.approx(gram[0, 0], rel=1e-12)
    entries = sum(found.sizes)
    for t, z in enumerate(Z):
        n = z.T @ weights
        np.testing.assert_allclose(found.group_n[t], n, **CLOSE)
        np.testing.assert_allclose(found.Zy[t], z.T @ (weights * columns[:, 0]), **CLOSE)
        np.testing.assert_allclose(found.ZX[t], z.T @ (W * columns[:, 1:]), **CLOSE)
        assert found.group_squares(t) == pytest.approx(n @ n, rel=1e-12)
        for u, w in enumerate(Z):
            both = z.T @ (W * w)
            np.testing.assert_allclose(found.gram(t, u).toarray(), both, **CLOSE)
            assert found.is_finer(t, u) == bool(((both > 0.0).sum(axis=1) == 1).all())
            if t < u:
                assert found.pairs[t, u].shape == both.shape
                entries += np.count_nonzero(both)
    assert found.n_entries == entries


@settings(deadline=None, max_examples=examples(40))
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from(TERMS), min_size=1, max_size=5, unique=True),
    st.sampled_from(["", "x + ", "0 + "]),
    st.booleans(),
)
@example(3, ["a", "b:d"], "x + ", True)
def test_sums_of_rows_and_of_cells(seed, terms, fixed, weighted):
    try:
        chunk, rng = chunk_of(seed, terms, fixed)
    except vcomp.VcompError:
        return  # a term that is the residual
    if weighted:
        counts = rng.integers(1, 4, chunk.y.size).astype(float)
        half = rng.normal(size=(1 + chunk.n_fixed,) * 2)
        within = half @ half.T
        if chunk.is_mean:  # which is the same in all scores of a cell
            within[1], within[:, 1] = 0.0, 0.0
        chunk = replace(chunk, counts=counts, within=within)
    sums = accumulate(chunk)
    check(sums, chunk)
    again = chunk.with_response(rng.normal(size=chunk.y.size), chunk.within)
    check(resum(sums, again, RollUp(chunk)), again)
    kept = sorted(rng.permutation(len(terms))[: rng.integers(1, len(terms) + 1)].tolist())
    check(sums.of_terms(kept), replace(chunk, terms=tuple(chunk.terms[t] for t in kept)))
    if not weighted:
        other = rng.normal(size=(1 + chunk.n_fixed, 3))
        columns = np.column_stack([chunk.y, chunk.X]) @ other
        check(sums.recombined(other), chunk, columns)
    table = tabulate(chunk, 0, len(chunk.facet_sizes) - 1)
    weights = np.ones(chunk.y.size) if chunk.counts is None else chunk.counts
    expected = np.zeros((2, chunk.facet_sizes[0], chunk.facet_sizes[-1]))
    at = chunk.level_codes(0), chunk.level_codes(len(chunk.facet_sizes) - 1)
    np.add.at(expected[0], at, weights * chunk.y)
    np.add.at(expected[1], at, weights)
    np.testing.assert_allclose(table.sums, expected[0], **CLOSE)
    np.testing.assert_array_equal(table.counts, expected[1])
    np.testing.assert_allclose((table + table).sums, 2.0 * expected[0], **CLOSE)


def test_memory_of_the_tables_of_pairs():
    """Of groups twelve bytes for each pair and eight for each row of a table, 24 while sorting."""
    chunk, _ = chunk_of(1, ["a", "b", "a:b:c"], "")
    a, b, abc = chunk.sizes
    tables = [12.0 * min(a * b, abc), 12.0 * abc, 12.0 * abc]
    needed = sum(tables) + 8.0 * (a + a + b) + 24.0 * abc - min(tables)
    rolled = RollUp(chunk)
    assert len(rolled.pairs(free_bytes=lambda: 1.000001 * needed / 0.8)) == 3
    with pytest.raises(vcomp.EstimationError, match="tables of the pairs of groups that occur in"):
        RollUp(chunk).pairs(free_bytes=lambda: 0.999999 * needed / 0.8)
    # Terms that no term contains are counted row by row.
    chunk, _ = chunk_of(1, ["a", "b"], "")
    needed = 12.0 * 3 * 4 + 8.0 * 3 + 9.0 * chunk.y.size - 12.0 * 3 * 4
    assert len(RollUp(chunk).pairs(free_bytes=lambda: 1.000001 * needed / 0.8)) == 1
    with pytest.raises(vcomp.EstimationError, match="may need"):
        RollUp(chunk).pairs(free_bytes=lambda: 0.999999 * needed / 0.8)


@pytest.mark.parametrize(
    ("n", "p"), [(1, 0), (7, 0), (700, 2), (131_073, 0), (33_000, 3), (16_500, 7), (700, 600)]
)
def test_moments_of_few_and_of_many_rows(n, p):
    """More than 131,072 numbers are summed by a kernel, a block of 32,768 at a time."""
    rng = np.random.default_rng(n + p)
    size = min(n, 5)
    places = rng.permutation(np.arange(n) % size)
    y, X = 1e3 + rng.normal(size=n), rng.normal(size=(n, p)) * (1.0 + places[:, None])
    counts = np.bincount(places).astype(float)
    means, within = cell_moments(places, y, X, counts)
    columns = np.column_stack([y - 1e3, X])
    sums = np.array([np.bincount(places, c, size) for c in columns.T]) / counts
    assert means.flags.c_contiguous
    np.testing.assert_allclose(means[0] - 1e3, sums[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(means[1:], sums[1:], rtol=0, atol=1e-11)
    away = columns - sums.T[places]
    np.testing.assert_allclose(within, away.T @ away, rtol=1e-10, atol=1e-9 * np.sqrt(n))


@pytest.mark.parametrize(("p", "width"), [(0, 32_768), (3, 8192), (511, 64), (2000, 64)])
def test_blocks_fill_a_cache_and_have_64_rows_at_least(p, width):
    n = 2 * width + 1
    y = np.arange(float(n))
    X = np.broadcast_to(np.arange(float(p)), (n, p))
    found = [(rows, block.copy()) for rows, block in row_blocks(y, X)]
    assert [rows.stop - rows.start for rows, _ in found] == [width, width, 1]
    whole = np.concatenate([block for _, block in found])
    np.testing.assert_array_equal(whole[:, 0], y)
    np.testing.assert_array_equal(whole[:, 1:], X)
    assert not list(row_blocks(y[:0], X[:0]))


@pytest.mark.parametrize("levels", [(700, 600), (40, 30)], ids=["many entries", "few"])
def test_forms_of_the_projector_are_traces(levels):
    """tr(Q V_t Q V_u) by Z_t'QZ_u, of more entries than NumPy is used for, and of fewer."""
    rng, n = np.random.default_rng(3), 200_000
    data = {f: rng.integers(0, q, n) for f, q in zip("ab", levels, strict=True)}
    data |= {"x": rng.normal(size=n), "y": rng.normal(size=n)}
    stats = vcomp.VarianceComponentsModel("y ~ x + (1|a) + (1|b)", pd.DataFrame(data)).statistics
    found = accumulate(stats.rows).projector_forms
    Q = np.linalg.qr(np.column_stack([np.ones(n), data["x"]]))[0]
    Z = [csr_array((np.ones(n), (np.arange(n), data[f]))) for f in "ab"]
    grams = {(t, u): (Z[t].T @ Z[u]).toarray() for t in range(2) for u in range(2)}
    of_Q = [(z.T @ Q) for z in Z]
    for t in range(2):
        for u in range(2):
            expected = np.square(grams[t, u] - of_Q[t] @ of_Q[u].T).sum()
            assert found[t, u] == pytest.approx(expected, rel=1e-10)
        assert found[t, 2] == pytest.approx(n - np.square(of_Q[t]).sum(), rel=1e-12)
    assert found[2, 2] == n - 2


_MEASURED = """
import numpy as np, pandas as pd, vcomp
from pathlib import Path
from vcomp.statistics.roll_up import RollUp

def rows(n):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f: rng.integers(0, n // 20, n) for f in "ab"})
    frame["y"] = rng.normal(size=n)
    return vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b)", frame).statistics.rows

def taken(name):
    return 1024.0 * float(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0])

RollUp(rows(200_000)).pairs()  # compiles
rolled = RollUp(rows(3_000_000))
Path("/proc/self/clear_refs").write_text("5")
before = taken("VmRSS")
tables = rolled.pairs()
most = taken("VmHWM") - before
rolled.pairs(free_bytes=lambda: 1.2 * most / 0.8)
try:
    rolled.pairs(free_bytes=lambda: 0.9 * most / 0.8)
except vcomp.EstimationError:
    print("within the limits")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux reports it")
def test_memory_of_the_tables_of_pairs_is_what_they_take():
    run = subprocess.run(
        [sys.executable, "-c", _MEASURED],
        capture_output=True,
        text=True,
        check=True,
        # Compiled, and what is freed is given back.
        env=os.environ | {"NUMBA_DISABLE_JIT": "0", "MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    assert run.stdout == "within the limits\n"
