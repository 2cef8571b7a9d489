"""What is missing is counted over all parts, and said with the parts it is in."""

from __future__ import annotations

import warnings
from functools import reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vcomp
from vcomp.data.reading import Reading, Tally
from vcomp.formula import parse

FORMULA = parse("y ~ (1|a)")


def tally(n, incomplete=0, infinite=0, part=None, **missing):
    found = {None: missing.pop("y", 0), **missing}
    return Tally(n, incomplete, found, infinite).named(part)


COUNTS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(0, 3), st.sampled_from("uvw")),
    min_size=1,
    max_size=8,
)


@given(COUNTS, st.randoms())
def test_parts_add_up_in_any_order(counts, random):
    made = [
        tally(n, min(missing, n), infinite, part, y=min(missing, n), a=0)
        for n, missing, infinite, part in counts
    ]
    shuffled = random.sample(made, len(made))
    one, other = reduce(add, made), reduce(add, shuffled)
    assert (one.n, one.incomplete, one.infinite) == (other.n, other.incomplete, other.infinite)
    assert one.n == sum(n for n, *_ in counts)
    assert one.incomplete == sum(min(missing, n) for n, missing, *_ in counts)
    assert dict(one.missing) == dict(other.missing)
    assert dict(one.parts) == dict(other.parts)
    # Rows of a part are counted however many batches it comes in.
    assert sum(incomplete for incomplete, _ in one.parts.values()) == one.incomplete
    assert sum(infinite for _, infinite in one.parts.values()) == one.infinite


def test_a_part_without_anything_wrong_is_not_named():
    assert tally(5, part="good.csv", y=0).parts == {}
    assert tally(5, 1, part="bad.csv", y=1).parts == {"bad.csv": (1, 0)}
    assert tally(5, 1, y=1).parts == {}


def test_rows_left_out_are_said_with_their_files():
    whole = tally(5, 2, part="a.csv", y=1, a=2) + tally(9, 1, part="b.csv", y=1, a=0)
    words = (
        r"3 of 14 rows \(2 in 'a\.csv', 1 in 'b\.csv'\) have a missing value "
        r"\(response y 2, a 2\) and were left out"
    )
    with pytest.warns(vcomp.VcompWarning, match=words):
        whole.check(FORMULA, "drop")
    with pytest.raises(vcomp.DataError, match="missing='drop' leaves them out"):
        whole.check(FORMULA, "raise")


def test_many_files_are_counted():
    whole = reduce(add, (tally(3, 1, part=f"{k}.csv", y=1, a=0) for k in range(9)))
    with pytest.warns(vcomp.VcompWarning, match=r"1 in '4\.csv', and in 4 more\)"):
        whole.check(FORMULA, "drop")


def test_infinite_scores_are_refused_with_their_files():
    whole = tally(5, 1, 2, "a.csv", y=1, a=0) + tally(4, y=0, a=0)
    with (
        pytest.warns(vcomp.VcompWarning),
        pytest.raises(vcomp.DataError, match=r"'y' is infinite in 2 of 8 rows \(2 in 'a\.csv'\)"),
    ):
        whole.check(FORMULA, "drop")


@pytest.mark.parametrize(
    ("whole", "missing", "words"),
    [
        (tally(0, y=0), "drop", "the data have no rows"),
        (tally(3, 3, y=3), "drop", "'y' is missing in every row"),
        (tally(3, 3, y=1, a=2), "drop", "no row is complete: 3 of 3 rows"),
    ],
)
def test_what_cannot_be_used(whole, missing, words):
    with pytest.raises(vcomp.DataError, match=words):
        whole.check(FORMULA, missing)


def test_whole_data_need_no_words():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (tally(3, y=0, a=0) + tally(4, y=0, a=0)).check(FORMULA, "raise")


def test_incomplete_rows_are_dropped_or_refused():
    with pytest.raises(vcomp.DataError, match="missing='ignore' is not known"):
        Reading(missing="ignore")
