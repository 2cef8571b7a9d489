"""Frontiers against all designs up to the budget."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from tests.helpers.gstudies import BODOFF_LI
from vcomp.exceptions import PlanError
from vcomp.gtheory.published import from_components

KINDS = ["p x i x a", "p x (a:i)"]


def all_designs(values, price_i, price_a, budget, kinds, largest=40):
    """Return cost and relative error of all designs that can be paid, by design."""
    v = dict(zip(BODOFF_LI, values, strict=True))
    i, a = (n.ravel() for n in np.meshgrid(*[np.arange(1, largest + 1)] * 2))
    cost = price_i * i + price_a * i * a
    crossed = v["pi"] / i + v["pa"] / a + v["pia"] / (i * a)
    nested = v["pi"] / i + (v["pa"] + v["pia"]) / (i * a)
    paid = cost <= budget
    errors = {KINDS[0]: crossed[paid], KINDS[1]: nested[paid]}
    return cost[paid], {kind: errors[kind] for kind in kinds}


def pareto(cost, error):
    """Return the pairs than which none is both cheaper and better, the cheapest first."""
    kept, best = [], np.inf
    for k in np.lexsort([error, cost]):
        if error[k] < best * (1 - 1e-12):
            kept.append((cost[k], error[k]))
            best = error[k]
    return np.array(kept)


@settings(deadline=None, max_examples=examples(40))
@given(
    values=st.lists(st.floats(1e-3, 1.0), min_size=7, max_size=7),
    price_i=st.integers(2, 9),
    budget=st.integers(12, 80),
    kinds=st.sampled_from([KINDS, KINDS[:1], KINDS[1:]]),
)
def test_all_designs_on_the_frontier_are_there(values, price_i, budget, kinds):
    g = from_components(dict(zip(BODOFF_LI, values, strict=True)))
    found = g.dstudy(i=1, a=1).optimize(f"{price_i}*i + 2*i*a", budget=budget, designs=kinds)
    cost, errors = all_designs(values, price_i, 2, budget, kinds)
    expected = pareto(np.concatenate([cost] * len(kinds)), np.concatenate(list(errors.values())))
    assert found.frontier_is_whole
    assert found.frontier.index.tolist() == list(range(len(found.frontier)))
    assert "index" not in found.frontier
    frame = found.frontier
    np.testing.assert_allclose(frame["cost"], expected[:, 0], rtol=1e-12)
    np.testing.assert_allclose(frame["rel_err_var"], expected[:, 1], rtol=1e-10)
    for kind, own in found.frontiers.tables.items():
        np.testing.assert_allclose(
            own[["cost", "rel_err_var"]], pareto(cost, errors[kind]), rtol=1e-10
        )
    last = frame.iloc[-1]
    assert (last["cost"], last["design"]) == (found.best.cost, found.best.design)


def test_thinned_frontiers_hold_designs_of_the_frontier():
    g = from_components(BODOFF_LI).dstudy(i=1, a=1)
    found = g.optimize("1.37*i + i*a", budget=1e5, coefficient="Phi")
    frame = found.frontier
    assert not found.frontier_is_whole
    assert 60 < len(frame) <= 120
    assert (np.diff(frame["cost"]) > 0).all()
    assert (np.diff(frame["Phi"]) > 0).all()
    for row in frame.iloc[::20].itertuples():
        best = g.optimize("1.37*i + i*a", budget=row.cost, coefficient="Phi").best
        assert best.sizes == {"i": row.i, "a": row.a}
        assert best.cost == pytest.approx(row.cost, rel=1e-12)


def test_with_a_goal_it_goes_on_to_twice_the_cost():
    g = from_components(BODOFF_LI).dstudy(i=1, a=1)
    found = g.optimize("3*i + i*a", goal=0.9)
    assert found.best.cost < found.frontier["cost"].max() <= 2 * found.best.cost
    row = found.frontier[found.frontier["cost"] == found.best.cost].iloc[0]
    assert {f: row[f] for f in "ia"} == found.best.sizes


def test_of_any_cost():
    g = from_components(BODOFF_LI).dstudy(i=1, a=1)
    by_function = g.optimize(lambda i, a: 3 * i + i * a, budget=60).frontier
    by_prices = g.optimize("3*i + i*a", budget=60).frontier
    np.testing.assert_array_equal(by_function["cost"], by_prices["cost"])
    np.testing.assert_array_equal(by_function[["i", "a"]], by_prices[["i", "a"]])


@pytest.mark.parametrize(("budget", "is_whole"), [(60, True), (61, False)])
def test_a_cost_function_has_a_frontier_of_sixty_designs(budget, is_whole):
    """Of more than these those are shown that are best for sixty budgets in equal ratios."""
    one = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=1)
    found = one.optimize(lambda i: i, budget=budget)
    assert found.frontier_is_whole == is_whole
    assert (found.frontier["i"].tolist() == list(range(1, budget + 1))) == is_whole
    assert found.frontier["i"].iloc[[0, -1]].tolist() == [1, budget]


@pytest.mark.parametrize(("budget", "is_whole"), [(300, True), (301, False)])
def test_a_frontier_of_prices_has_at_most_three_hundred_designs(budget, is_whole):
    one = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=1)
    found = one.optimize("i", budget=budget)
    assert found.frontier_is_whole == is_whole
    assert (len(found.frontier) == budget) == is_whole


def test_of_one_design():
    found = from_components(BODOFF_LI).dstudy(i=1, a=1).optimize("i*a", budget=1)
    assert found.frontier["cost"].tolist() == [1.0]
    held = (
        from_components(BODOFF_LI)
        .dstudy(i=1, a=1)
        .optimize("i*a", budget=99, bounds={"i": 9, "a": 2})
    )
    assert held.frontier[["i", "a", "cost"]].to_numpy().tolist() == [[9, 2, 18]]
    assert held.best.sizes == {"i": 9, "a": 2}
    with pytest.raises(PlanError, match=r"coefficient must be .* not \['Phi'\]"):
        held.plot(["Phi"])
