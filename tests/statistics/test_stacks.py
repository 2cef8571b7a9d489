"""Sums of many small data sets against indicator matrices of their rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from vcomp.statistics import Stack, StackLayout, StackTables

CLOSE = {"rtol": 1e-11, "atol": 1e-11}


def rows_of(rng, sizes, p, n):
    """Return groups of rows, of which some may not occur, and columns of X and y."""
    codes = [rng.integers(0, q, n).astype(np.int32) for q in sizes]
    columns = rng.normal(size=(p + 1, n))
    columns[: p // 2] = 0.0  # columns of X may be zero in a part of the data
    return codes, columns


def dense(layout, codes, columns):
    """Return [W y] and the indicators of the absorbed term."""
    W = [np.eye(layout.sizes[t])[codes[t]] for t in layout.places]
    return np.column_stack([*W, columns.T]), np.eye(layout.sizes[layout.lead])[codes[layout.lead]]


def expected_by_count(B, Z):
    """Return numbers of rows, numbers of groups and summed products, by counting groups."""
    n, sums = Z.sum(axis=0), Z.T @ B
    counts = np.unique(n[n > 0.0])
    numbers = [float((n == c).sum()) for c in counts]
    return counts, numbers, [sums[n == c].T @ sums[n == c] for c in counts]


def check_tables(tables, layout, codes, columns):
    B, Z = dense(layout, codes, columns)
    assert (tables.n, layout.width) == (len(B), B.shape[1] - 1)
    np.testing.assert_allclose(tables.products, B.T @ B, **CLOSE)
    np.testing.assert_allclose(tables.lead_n, Z.sum(axis=0), **CLOSE)
    np.testing.assert_allclose(tables.lead, Z.T @ B, **CLOSE)
    there = tuple(np.unique(c).size for c in codes)
    assert tables.n_groups == there
    counts, numbers, grams = tables.by_count
    expected = expected_by_count(B, Z)
    used = numbers > 0.0  # of parts of rows there may be numbers that no group has any more
    np.testing.assert_array_equal(counts[used], expected[0])
    np.testing.assert_array_equal(numbers[used], expected[1])
    np.testing.assert_allclose(grams[~used], 0.0, atol=1e-10)
    if used.any():
        np.testing.assert_allclose(grams[used], expected[2], rtol=1e-10, atol=1e-10)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(0, 3),
    st.integers(1, 30),
    st.integers(0, 2**32 - 1),
)
def test_sums_of_rows_and_of_parts(sizes, p, n, seed):
    rng = np.random.default_rng(seed)
    codes, columns = rows_of(rng, sizes, p, n)
    layout = StackLayout.of(sizes, p)
    assert sizes[layout.lead] == max(sizes)
    assert layout.lead == sizes.index(max(sizes))
    whole = StackTables.of(layout, codes, columns)
    check_tables(whole, layout, codes, columns)
    part = rng.random(n) < rng.choice([0.05, 0.5])
    out = StackTables.of(layout, [c[part] for c in codes], columns[:, part])
    left = whole.without(out)
    rest = [c[~part] for c in codes], columns[:, ~part]
    check_tables(left, layout, *rest)


def test_few_changed_groups_are_changed_one_by_one():
    """A tenth of forty groups are four; a fifth changed group means that all are summed."""
    codes = np.repeat(np.arange(40, dtype=np.int32), 3)
    columns = np.random.default_rng(2).normal(size=(2, codes.size))
    layout = StackLayout.of([40], 1)
    whole = StackTables.of(layout, [codes], columns)
    for groups in (4, 5):
        part = np.zeros(codes.size, dtype=bool)
        part[: 3 * groups] = True  # all rows of these groups
        out = StackTables.of(layout, [codes[part]], columns[:, part])
        left = whole.without(out)
        counts, numbers, grams = left.by_count
        assert (counts.tolist(), numbers.tolist()) == ([3.0], [40.0 - groups])
        again = StackTables.of(layout, [codes[~part]], columns[:, ~part]).by_count[2]
        np.testing.assert_allclose(grams, again, rtol=1e-12, atol=1e-12)
        by_subtraction = whole.by_count[2] - out.by_count[2]
        assert np.array_equal(grams, again) == (groups == 5)
        np.testing.assert_allclose(grams, by_subtraction, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("out", [[0], [0, 1], [4], [0, 1, 2], [4, 5, 6, 0], [119]])
def test_groups_that_lose_rows_have_other_numbers_of_them(out):
    """Groups of 4, 3 and 2 rows get 3 and 2, which others have, or 1, which is new."""
    sizes = [4, 3, *[4, 3, 2] * 12, 2]
    codes = [np.repeat(np.arange(39, dtype=np.int32), sizes), np.arange(117, dtype=np.int32) % 3]
    columns = np.random.default_rng(3).normal(size=(3, 117))
    layout = StackLayout.of([39, 3], 2)
    part = np.isin(np.arange(117), np.minimum(out, 116))
    tables = StackTables.of(layout, codes, columns)
    left = tables.without(StackTables.of(layout, [c[part] for c in codes], columns[:, part]))
    check_tables(left, layout, [c[~part] for c in codes], columns[:, ~part])


def check_stack(stack, b, scale, layout, codes, columns):
    """Compare a data set of a stack with its rows; columns without rows are left out."""
    B, Z = dense(layout, codes, columns)
    p = layout.n_fixed
    used = [layout.sizes[t] for t in layout.places]
    is_term = np.arange(layout.width) < sum(used)
    B[:, layout.width - p : layout.width] /= scale
    kept = ~is_term | (np.abs(B[:, :-1]).sum(axis=0) > 0.0)
    W, y = B[:, :-1][:, kept], B[:, -1]
    assert stack.n[b] == len(B)
    np.testing.assert_array_equal(stack.sizes[b], [np.unique(c).size for c in codes])
    assert stack.yy[b] == pytest.approx(y @ y, rel=1e-12)
    k = W.shape[1]

    def of_columns(table, *, axes):
        """Return the columns of a table that are there, the others of which are zero."""
        there = np.zeros(table.shape[-1], dtype=bool)
        begin, at = 0, 0
        for t, place in layout.places.items():
            width = int(stack.blocks[t].sum())
            there[at : at + int(kept[begin : begin + layout.sizes[t]].sum())] = True
            begin, at = place.stop, at + width
        there[at:] = True
        assert there.sum() == k
        whole = np.ix_(there, there) if axes == 2 else there
        out = table.copy()
        found = out[(..., *whole)] if axes == 2 else out[..., whole]
        assert np.abs(table).sum() == pytest.approx(np.abs(found).sum(), rel=1e-12)
        return found

    np.testing.assert_allclose(of_columns(stack.whole[b], axes=2), W.T @ W, **CLOSE)
    np.testing.assert_allclose(of_columns(stack.whole_y[b], axes=1), W.T @ y, **CLOSE)
    counts, numbers, grams = expected_by_count(np.column_stack([W, y]), Z)
    d = counts.size
    np.testing.assert_array_equal(stack.group_n[b, :d], counts)
    np.testing.assert_array_equal(stack.n_groups[b, :d], numbers)
    assert not stack.n_groups[b, d:].any()
    for c, gram in enumerate(grams):
        np.testing.assert_allclose(of_columns(stack.grams[b, c], axes=2), gram[:-1, :-1], **CLOSE)
        np.testing.assert_allclose(of_columns(stack.grams_y[b, c], axes=1), gram[:-1, -1], **CLOSE)
        assert stack.grams_yy[b, c] == pytest.approx(gram[-1, -1], rel=1e-10, abs=1e-12)


@settings(deadline=None, max_examples=examples(40))
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(0, 3),
    st.lists(st.integers(1, 25), min_size=1, max_size=3),
    st.integers(0, 2**32 - 1),
)
def test_stacks_of_data_sets(sizes, p, ns, seed):
    rng = np.random.default_rng(seed)
    layout, scale = StackLayout.of(sizes, p), rng.uniform(0.5, 20.0, p)
    data = [rows_of(rng, sizes, p, n) for n in ns]
    tables = [StackTables.of(layout, *rows) for rows in data]
    stack = Stack.of(tables, scale)
    assert (len(stack), stack.n_fixed, stack.lead) == (len(ns), p, layout.lead)
    assert stack.is_shared == (len(ns) == 1)
    np.testing.assert_allclose(stack.scale[stack.scale.size - p :], scale, rtol=1e-15)
    assert (stack.scale[: stack.scale.size - p] == 1.0).all()
    for b, rows in enumerate(data):
        check_stack(stack, b, scale, layout, *rows)
    chosen = rng.integers(0, len(ns), 4)
    some = stack.take(chosen)
    for at, b in enumerate(chosen):
        if not stack.is_shared:
            check_stack(some, at, scale, layout, *data[b])
        assert some.yy[at] == stack.yy[b]


@settings(deadline=None, max_examples=examples(30))
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(1, 25),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)
def test_other_responses_of_the_same_rows(sizes, p, n, times, seed):
    rng = np.random.default_rng(seed)
    layout, scale = StackLayout.of(sizes, p), rng.uniform(0.5, 20.0, p)
    codes, columns = rows_of(rng, sizes, p, n)
    codes = [np.unique(c, return_inverse=True)[1].astype(np.int32) for c in codes]
    layout = layout.resized([int(c.max()) + 1 for c in codes])
    tables = StackTables.of(layout, codes, columns)
    Y = rng.normal(size=(times, n))
    B, Z = dense(layout, codes, columns)
    stack = Stack.of([tables], scale).with_responses(
        tables, Y @ B[:, :-1], Y @ Z, np.square(Y).sum(axis=1)
    )
    assert len(stack) == times
    assert stack.is_shared
    for b, y in enumerate(Y):
        one = Stack.of([StackTables.of(layout, codes, np.vstack([columns[:-1], y]))], scale)
        for name in ("whole_y", "yy", "grams_y", "grams_yy", "n", "sizes"):
            np.testing.assert_allclose(getattr(stack, name)[b], getattr(one, name)[0], **CLOSE)
        taken = stack.take(np.array([b, b]))
        np.testing.assert_array_equal(taken.whole_y[1], stack.whole_y[b])
        assert taken.whole is stack.whole
