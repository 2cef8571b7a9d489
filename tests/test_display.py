import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vcomp
from vcomp import display

nan, inf = math.nan, math.inf


@pytest.mark.parametrize(
    ("values", "decimals"),
    [([0.002812, 0.028], 6), ([1.0, 2.0], 3), ([12345.6], 0), ([], 0), ([0.0, nan], 0)],
)
def test_decimals_for(values, decimals):
    assert display.decimals_for(values) == decimals


def test_a_column_has_common_decimals():
    assert display.fixed([0.00281169, 0.02809, -0.5]) == ["0.002812", "0.028090", "-0.500000"]
    assert display.fixed([1.5, nan, inf, -inf], decimals=1) == ["1.5", "–", "∞", "-∞"]
    assert display.fixed([nan], missing="") == [""]
    assert display.fixed([0.0, 0.0]) == ["0", "0"]
    assert display.fixed([]) == []


def test_scientific_notation():
    assert display.fixed([1e-7, 1.0]) == ["1.000e-07", "1.000e+00"]
    assert display.fixed([1.25e-9], significant=3) == ["1.25e-09"]
    assert display.fixed([1e-6, 1.0]) == ["0.000001000", "1.000000000"]


@given(st.floats(1e-9, 1.0 - 2e-12))
def test_a_coefficient_below_one_never_reads_as_one_or_zero(value):
    text = display.coefficient(value)
    assert text not in ("1.000", "0.000")
    if text[0] not in "<>":
        # Of a tie such as 0.0625 the difference is 0.0005 up to its rounding in binary.
        assert abs(float(text) - value) <= 0.0005 + 1e-16


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.93265, "0.933"), (0.9996, "0.9996"), (0.99996, "0.99996"), (0.9999999, "> 0.99999"),
        (1.0, "1.000"), (0.0, "0.000"), (0.0004, "0.0004"), (1e-9, "< 0.00001"), (nan, "–"),
        (-0.25, "-0.250"), (-1e-9, "> -0.00001"), (1 + 1e-9, "< 1.00001"),
    ],
)  # fmt: skip
def test_coefficient(value, text):
    assert display.coefficient(value) == text


def test_intervals():
    assert display.short_interval(0.00171, 0.00512) == "[0.00171, 0.00512]"
    assert display.short_interval(1.0, inf) == "[1.00, ∞]"
    assert display.short_interval(12345.0, 2e40) == "[12345, 2.00e+40]"
    assert display.short_interval(nan, 1.0) == "–"
    assert display.coefficient_interval(0.0, 0.9996) == "[0.000, 0.9996]"
    assert display.coefficient_interval(0.1, nan) == ""


def test_counts_levels_and_shares():
    assert [display.count(n) for n in (1500, 4.768, inf, nan)] == ["1,500", "4.77", "∞", "–"]
    assert [display.level(a) for a in (0.05, 0.1, 0.001)] == ["95 %", "90 %", "99.9 %"]
    assert [display.percent(s) for s in (0.684, 1.0, nan)] == ["68.4 %", "100.0 %", "–"]
    assert [display.bar(s, 10) for s in (0.5, 2.0, 0.01, 0.0, -1.0, nan)] == [
        "█████", "██████████", "▏", "", "", "",
    ]  # fmt: skip


def test_tables_travel():
    table = display.simple_table(
        [["1", "a"], ["22", "b"]], ["n", "what"], title="Title", align="rl", stubs=["x", "y"]
    )
    page = display.summary([table], ["A note. " * 20, "Another."])
    lines = str(page).splitlines()
    assert lines[0].startswith("Title")
    assert "Another." in lines
    assert max(map(len, lines)) <= 92
    assert "<table" in page.as_html()
    assert "tabular" in page.as_latex()
    assert "22" in page.as_csv()


def test_the_last_alignment_goes_on():
    rows = [["a", "b", "c"], ["long", "longer", "longest"]]
    left = str(display.simple_table(rows, ["one", "two", "three"], align="rl")).splitlines()
    assert left[3] == "   a   b        c      "
    right = str(display.simple_table(rows, ["one", "two", "three"])).splitlines()
    assert right[3] == "   a        b         c"


def test_zero_has_no_sign():
    assert display.number(-0.0) == "0"
    assert display.fixed([-0.00001, 1.0], decimals=2) == ["0.00", "1.00"]
    assert display.count(-0.0) == "0"
    data = {"x": ["a", "b"] * 6, "g": [k // 4 for k in range(12)], "y": [*range(11), 3]}
    res = vcomp.fit("y ~ x + (1|g)", data)
    assert res.f_test("x[T.b]").term == "x[T.b] = 0"
    assert "-0:" not in str(res.f_test("x[T.b]"))
