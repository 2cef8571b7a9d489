"""Dataclasses as JSON: every kind of field, empty matrices, infinity, and what is damaged."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from vcomp import DataError
from vcomp._typing import BoolArray, FloatArray
from vcomp.codec import (
    Format,
    from_document,
    from_plain,
    read_array,
    stored,
    to_document,
    to_plain,
)


@dataclass(frozen=True)
class Inner:
    name: str
    size: float | None = None


@dataclass(frozen=True, eq=False)
class Outer:
    kind: Literal["a", "b"]
    names: tuple[str, ...]
    pair: tuple[int, float]
    nested_in: Mapping[str, frozenset[str]]
    number: float
    known: BoolArray
    matrix: FloatArray = field(metadata=stored(shape=("names", "names")))
    by_name: dict[str, FloatArray] = field(default_factory=dict)
    inner: Inner | None = None
    all_inner: tuple[Inner, ...] = ()
    two: tuple[FloatArray, Inner] | None = field(
        default=None, metadata=stored(keys=("values", "inner"))
    )
    twice: float = field(
        default=1.0, metadata=stored(write=lambda x: 2.0 * x, read=lambda x, _: x / 2.0)
    )
    anything: Any = None

    _FORMAT: ClassVar[Format] = Format("Outer", 3, "an outer")


def outer(**changes):
    values = {
        "kind": "a",
        "names": ("p", "i"),
        "pair": (1, np.inf),
        "nested_in": {"i": frozenset({"q", "p"}), "p": frozenset()},
        "number": np.nan,
        "known": np.array([True, False]),
        "matrix": np.array([[1.0, np.nan], [-np.inf, 2.5]]),
        "by_name": {"x": np.array([0.1, np.nan])},
        "inner": Inner("one", 3),
        "all_inner": (Inner("two"), Inner("three", np.inf)),
        "two": (np.array([1.0, 2.0]), Inner("four")),
        "twice": 0.3,
        "anything": {"b": [1, "x", None]},
    }
    return Outer(**(values | changes))


def through_json(value):
    text = json.dumps(to_document(value), allow_nan=False)
    return from_document(type(value), json.loads(text))


def test_every_kind_of_field_comes_back():
    before, after = outer(), through_json(outer())
    for name in ("kind", "names", "pair", "nested_in", "inner", "all_inner", "twice", "anything"):
        assert getattr(after, name) == getattr(before, name), name
    assert np.isnan(after.number)
    assert after.known.dtype == bool
    for ours, theirs in (
        (after.known, before.known),
        (after.matrix, before.matrix),
        (after.by_name["x"], before.by_name["x"]),
        (after.two[0], before.two[0]),
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert after.two[1] == before.two[1]


def test_stored_forms():
    plain = to_plain(outer())
    assert plain["nested_in"] == {"i": ["p", "q"], "p": []}
    assert plain["matrix"] == [[1.0, None], [{"infinite": -1}, 2.5]]
    assert plain["pair"] == [1, {"infinite": 1}]
    assert plain["number"] is None
    assert plain["two"] == {"values": [1.0, 2.0], "inner": {"name": "four", "size": None}}
    assert plain["twice"] == 0.6


def test_an_empty_matrix_keeps_its_shape():
    assert through_json(outer(names=(), matrix=np.zeros((0, 0)))).matrix.shape == (0, 0)


def test_fields_that_are_left_out_have_their_defaults():
    plain = to_plain(outer())
    for name in ("by_name", "inner", "all_inner", "two", "twice", "anything"):
        del plain[name]
    found = from_plain(Outer, plain)
    assert (found.by_name, found.inner, found.all_inner, found.two) == ({}, None, (), None)
    assert found.twice == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vcomp": "Other"}, "this is not an outer that vcomp stored"),
        ({"format": 4}, "format 4, and this version of vcomp reads formats up to 3"),
        ({"format": "3"}, "format '3'"),
        ({"pair": [1]}, "damaged at 'pair': a value of another kind or length"),
        ({"matrix": [1.0, 2.0, 3.0]}, "damaged at 'matrix': cannot reshape"),
        ({"inner": {}}, "damaged at 'inner.name': 'name' is missing"),
        ({"number": {"finite": 1}}, "damaged at 'number': 'infinite' is missing"),
        ({"nested_in": 5}, "damaged at 'nested_in': a value of another kind"),
    ],
)
def test_what_is_damaged_is_refused(changes, message):
    with pytest.raises(DataError, match=message):
        from_document(Outer, to_document(outer()) | changes)
    with pytest.raises(DataError, match="not an outer"):
        from_document(Outer, [])


@pytest.mark.parametrize("code", [0xD800, 0xDFFF, 0x110000, 2**31])
@pytest.mark.parametrize("order", "<>")
def test_numbers_that_are_no_characters(order, code):
    """numpy takes them for text, which pandas cannot convert."""
    texts = np.array(["Erho2", "Phi"], f"{order}U5")
    whole, file = io.BytesIO(), io.BytesIO()
    np.save(whole, texts)
    assert read_array(whole.getvalue()).tolist() == ["Erho2", "Phi"]
    texts.view(f"{order}u4")[3] = code
    np.save(file, texts)
    with pytest.raises(ValueError, match="characters that do not exist"):
        read_array(file.getvalue())
