"""Boxes of text: what stands beside what, and inside of what."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.brennan_designs import DESIGNS, small_designs
from vcomp.formula.brennan import BrennanDesign, parse_design

CROSSED_AND_NESTED = """\
┌─────┐   ┌ 4 h ──────┐
│ 4 p │ × │ ┌───────┐ │
└─────┘   │ │ 4 i   │ │
          │ │ 2 i:h │ │
          │ └───────┘ │
          └───────────┘"""

WITHIN_TWO = """\
┌ p × t ┐
│ ┌───┐ │
│ │ r │ │
│ └───┘ │
└───────┘"""

TWO_ROWS = """\
┌───────┐   ┌──────┐
│ alpha │ × │ beta │
└───────┘   └──────┘
   ┌───────┐
 × │ gamma │
   └───────┘"""


def test_crossed_facets_stand_side_by_side_and_nested_ones_inside():
    text = parse_design("p x (i:h)").boxes(lambda f: f"4 {f}", lambda f: f"2 {f}:h")
    assert text == CROSSED_AND_NESTED


def test_a_facet_within_two():
    assert parse_design("r:(p x t)").boxes() == WITHIN_TWO


def test_what_does_not_fit_stands_below():
    assert parse_design("alpha x beta x gamma").boxes(width=25) == TWO_ROWS


def boxes_of(text):
    """Return every box: top, left, bottom and right, its title, and its first line."""
    lines = text.split("\n")
    found = []
    for top, line in enumerate(lines):
        for left in (m.start() for m in re.finditer("┌", line)):
            right = line.index("┐", left)
            bottom = next(k for k in range(top, len(lines)) if lines[k][left : left + 1] == "└")
            title = line[left + 1 : right].strip("─ ")
            found.append((top, left, bottom, right, title, lines[top + 1][left + 2 : right - 1]))
    return found


@pytest.mark.parametrize("text", DESIGNS)
def test_the_boxes_around_a_facet_are_those_that_it_is_nested_in(text):
    check_boxes(parse_design(text))


@given(small_designs(most=5))
def test_the_boxes_around_a_facet_of_any_design(design):
    check_boxes(design)


def check_boxes(design):
    boxes = boxes_of(design.boxes())
    seen = set()
    for top, left, bottom, right, title, first in boxes:
        around = [
            b for b in boxes if b[0] < top and b[1] < left and b[2] > bottom and b[3] > right
        ]
        outer = {letter for b in around for letter in b[4] if letter.isalpha()}
        seen |= outer
        if not title:
            facet = first.strip()
            assert design.nested_in[facet] == outer
            seen.add(facet)
    assert seen == set(design.facets)


@given(small_designs(most=5), st.integers(1, 40), st.integers(30, 100))
def test_drawings_are_as_wide_as_they_may_be(design, length, width):
    text = design.boxes(lambda f: f * length, lambda f: "9 in each", width)
    depth = max(len(design.nested_in[f]) for f in design.facets)
    assert max(map(len, text.split("\n"))) <= max(width, 6 + 4 * (depth + 1) + 3 * (depth + 2))
    assert all(line == line.rstrip() for line in text.split("\n"))
    assert text.count("┌") == text.count("┐") == text.count("└") == text.count("┘")


def test_long_names_are_cut():
    text = BrennanDesign.of(["participant" * 9], {}).boxes(width=40)
    assert "…" in text
    assert max(map(len, text.split("\n"))) <= 40
