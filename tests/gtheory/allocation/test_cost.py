"""Prices, texts and functions as costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vcomp
from vcomp.exceptions import PlanError
from vcomp.formula.brennan import parse_design
from vcomp.gtheory.allocation.cost import Cost, CostFunction, money, read_cost

FACETS = ["topic", "judge", "doc", "exam item", "2nd"]
prices = st.one_of(
    st.integers(0, 10**6).map(float), st.floats(1e-3, 1e6).map(lambda x: float(f"{x:.6g}"))
)
keys = st.lists(st.sampled_from(FACETS), min_size=1, max_size=3, unique=True)


@given(st.lists(st.tuples(keys, prices), max_size=4), prices)
def test_what_is_printed_is_read_again(given_prices, setup):
    per = {frozenset(key): (tuple(key), price) for key, price in given_prices}
    cost = Cost(dict(per.values()), setup=setup)
    assert Cost.parse(str(cost)) == cost
    assert hash(Cost.parse(str(cost))) == hash(cost)


@pytest.mark.parametrize(
    "text",
    [
        "50*topic + 2*topic:judge + 1000",
        "50 per topic + 2 per topic:judge + 1,000",
        "1e3 + topic*50 + 2 topic*judge",
        "20 × topic + 500 + topic × judge × 2 + 30*topic + 500",
        "5*10 topic + 2'topic':\"judge\" + 1_000.",
    ],
)
def test_texts(text):
    cost = Cost.parse(text)
    assert cost.total({"topic": 7, "judge": 3}) == 50 * 7 + 2 * 21 + 1000
    assert read_cost(text) == cost


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("50*topic + ", 10, "expected a number or a facet"),
        ("50*topic + *judge", 11, "expected a number or a facet"),
        ("50*topic - 3", 9, "no negative parts"),
        ("-3", 0, "no negative parts"),
        ("50*(topic + judge)", 3, "pass a function"),
        ("50*topic/2", 8, "pass a function"),
        ("2*topic*topic", 8, "'topic' is named twice"),
        ("", 0, "expected a number or a facet"),
        ("50*topic*", 9, "expected a number or a facet"),
        ("50 per + 3", 7, "expected a number or a facet"),
        ("1e200*topic", 5, "the amount is too large"),
        ("3*'topic", 2, "expected a number or a facet"),
    ],
)
def test_faults_of_texts_are_pointed_at(text, place, message):
    with pytest.raises(PlanError, match=message) as caught:
        Cost.parse(text)
    assert str(caught.value).split("\n")[-1].index("^") == 4 + place


def test_nested_facets_are_paid_in_every_level():
    cost = vcomp.Cost({"i": 10, "a": 3, "i:a": 1}, setup=7)
    sizes = {"i": 20, "a": 4}
    assert cost.total(sizes) == 10 * 20 + 3 * 4 + 80 + 7
    assert cost.total(sizes, parse_design("p x (a:i)")) == 10 * 20 + 3 * 80 + 80 + 7
    three = Cost({"d": 2})
    assert three.total({"d": 5, "i": 3, "h": 2}, parse_design("p x d:i:h")) == 2 * 30


@pytest.mark.parametrize(
    ("per", "message"),
    [
        ({"i": -1}, r"the price per i is a finite number from 0 to 1e\+100, not -1"),
        ({"i": 1e308}, r"the price per i is a finite number from 0 to 1e\+100, not 1e\+308"),
        ({"i": np.nan}, "finite number"),
        ({"i": np.inf}, "finite number"),
        ({"i": True}, "not True"),
        ({"i": np.True_}, "finite number"),
        ({"i": "5"}, "not '5'"),
        ({"i": None}, "not None"),
        ({"i:a": 1, "a:i": 2}, "the price per a:i is given twice"),
        ({"i:i": 1}, "names a facet twice"),
        ({"": 1}, "such as 'topic:judge'"),
        ({"i:": 1}, "such as 'topic:judge'"),
        ({3: 1}, "such as 'topic:judge', not 3"),
        ([("i", 1)], "prices are a mapping"),
        ("10*i", "prices are a mapping"),
    ],
)
def test_prices_that_cannot_be(per, message):
    with pytest.raises(PlanError, match=message):
        Cost(per)


def test_other_mistakes():
    with pytest.raises(PlanError, match="set-up cost is a finite number"):
        Cost({"i": 1}, setup=-5)
    with pytest.raises(PlanError, match=r"'topc' is not a facet \(did you mean 'topic'\?\)"):
        Cost({"topc": 1}).terms(parse_design("p x topic"))
    with pytest.raises(PlanError, match="a fixed cost is Cost"):
        read_cost({"setup": 5}).terms(parse_design("p x i"))
    with pytest.raises(PlanError, match="size of 'i', which is not given"):
        Cost({"a": 1}).total({"a": 2}, parse_design("p x (a:i)"))
    with pytest.raises(PlanError, match="a cost is text"):
        Cost.parse(5)
    for wrong in (5, None, [1, 2], b"5*i"):
        with pytest.raises(PlanError, match="a cost is a mapping"):
            read_cost(wrong)


def test_numpy_scalars_and_tuples_of_facets():
    cost = Cost({("i", "a"): np.float32(2), "i": np.int64(3)}, setup=np.float64(1))
    assert str(cost) == "2 per i:a + 3 per i + 1"
    assert str(Cost()) == "0"
    assert str(Cost({"topic": 1 / 3, "judge": 2e6}, setup=0.125)) == (
        "0.3333333333 per topic + 2,000,000 per judge + 0.125"
    )
    assert Cost({"i": 2, "a": 0}, setup=0) == Cost({"i": 2})
    assert repr(Cost({"i": 2.5})) == "Cost.parse('2.5 per i')"


# functions ---------------------------------------------------------------------------------------

SIZES = {"i": np.array([1.0, 5.0, 20.0]), "a": np.array([2.0, 2.0, 3.0])}
EXPECTED = [12.0, 60.0, 260.0]


def by_i(i):
    return i


@pytest.mark.parametrize(
    "function",
    [
        lambda i, a: 8 * i + 2 * i * a + (a == 3) * -20,
        lambda sizes: 8 * sizes["i"] + 2 * sizes["i"] * sizes["a"] + (sizes["a"] == 3) * -20,
        lambda **n: 8 * n["i"] + 2 * n["i"] * n["a"] - 20 * (n["a"] == 3),
        lambda i, a, rate=2: 8 * i + rate * i * a - 20 * (a == 3),
        lambda i, a: 8 * i + 2 * i * a - (20 if a == 3 else 0),  # of single numbers alone
    ],
)
def test_functions(function):
    cost = read_cost(function)
    assert isinstance(cost, CostFunction)
    cost.check_facets(SIZES)
    np.testing.assert_array_equal(cost.at(SIZES), EXPECTED)


def test_functions_of_some_facets_alone():
    np.testing.assert_array_equal(read_cost(lambda a, i=5: a + i).at(SIZES), [3.0, 7.0, 23.0])
    np.testing.assert_array_equal(read_cost(lambda a: 2 * a).at(SIZES), [4.0, 4.0, 6.0])
    np.testing.assert_array_equal(read_cost(lambda a: 7).at(SIZES), [7.0, 7.0, 7.0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, "5", None, [1, 2], 1j, np.full(3, 1j)])
def test_functions_that_return_no_cost(value):
    with pytest.raises(PlanError, match="cost function"):
        read_cost(lambda i, a: value).at(SIZES)


def test_functions_may_return_nothing_to_pay():
    assert read_cost(lambda i, a: 0 * i).at(SIZES).tolist() == [0.0, 0.0, 0.0]


def test_parameters_that_are_no_facets():
    with pytest.raises(PlanError, match=r"parameter 'topc', .* \(did you mean 'topic'\?\)"):
        read_cost(lambda topc: topc).check_facets(["topic"])
    assert str(read_cost(by_i)) == "by the function by_i"
    assert str(read_cost(lambda i: i)) == "by the function of the user"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1250000.0, "1,250,000"),
        (43983.3333, "43,983.33"),
        (1000.126, "1,000.13"),
        (999.994, "999.994"),
        (123.4567, "123.457"),
        (99.999, "100"),
        (12.3, "12.3"),
        (1.0, "1"),
        (1.004, "1"),
        (0.5, "0.5"),
        (0.0, "0"),
        (0.004, "0.004"),
        (0.0125, "0.0125"),
        (0.0123456789, "0.0123457"),
    ],
)
def test_digits_of_money(value, text):
    assert money(value) == text
