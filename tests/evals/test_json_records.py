"""Documents whose records are read one at a time, compared with json.loads of the whole text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcomp.evals.json_records import UnreadableError, records

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
arrays = st.lists(values, max_size=5)


def read(text, paths, size):
    """Return the records and the rest of a document that comes in pieces of a size."""
    found = []
    pieces = (text[k : k + size] for k in range(0, len(text), size))
    stream = records(pieces, paths)
    while True:
        try:
            found.append(next(stream))
        except StopIteration as end:
            return found, end.value


@given(values, arrays, values, st.sampled_from([1, 5, 64]), st.sampled_from([None, 1]))
def test_records_and_the_rest(before, array, after, size, indent):
    documents = (
        ({"a": before, "samples": array, "b": after}, ["samples"]),
        ({"a": before, "results": {"b": after, "results": array}}, ["results", "results"]),
        (array, []),
    )
    for document, path in documents:
        text = json.dumps(document, indent=indent, ensure_ascii=size > 5).encode(errors="ignore")
        whole = json.loads(text)
        inner = whole
        for key in path:
            inner = inner[key]
        elements = list(inner)
        inner.clear()
        assert read(text, [tuple(path), ("other",)], size) == (elements, whole)
        for end in range(0, len(text), 11):
            with pytest.raises(UnreadableError):
                read(text[:end], [tuple(path)], size)


@pytest.mark.parametrize(
    "text",
    [
        "[1 2]",
        "[1,]",
        "[,1]",
        '{"a" 1}',
        '{"samples": [1}',
        "[1]x",
        "[1] [2]",
        '{"a": 1,}',
        "{1: 2}",
    ],
)
def test_text_that_is_not_json(text):
    with pytest.raises(UnreadableError):
        read(text.encode(), [("samples",), ()], 3)


def test_numbers_that_are_cut():
    text = b"[-3.25e-9, 12, NaN, -Infinity]"
    for size in range(1, len(text)):
        found, _ = read(text, [()], size)
        assert found[:2] == [-3.25e-9, 12]
        assert repr(found[2:]) == "[nan, -inf]"
