"""Power, detectable differences and sizes, against statsmodels, formulas and draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestIndPower, TTestPower

import vcomp
from tests.helpers.printed_tables import printed_words
from vcomp.exceptions import PlanError

P_I = {"p": 0.5, "i": 0.2, "Residual": 1.0}
P_I_A = {"p": 1.0, "i": 0.3, "a": 0.1, "pi": 0.6, "pa": 0.3, "ia": 0.05, "pia": 1.2}


def study(components=P_I, design=None, sizes=None, **n):
    return vcomp.from_components(components, sizes=sizes).dstudy(design, **n)


@pytest.mark.parametrize("n", [2, 3, 20, 400])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_one_facet_has_the_paired_t_test(n, alpha):
    found = study(i=n).power([0.1, 0.3], alpha=alpha)
    expected = [TTestPower().power(d / np.sqrt(2.0), n, alpha) for d in (0.1, 0.3)]
    assert found["power"].to_numpy() == pytest.approx(expected, rel=1e-9)
    assert found["df"].to_numpy() == pytest.approx(n - 1.0, rel=1e-12)
    assert found["std_error"].to_numpy() == pytest.approx(np.sqrt(2.0 / n), rel=1e-14)


def test_nested_items_have_the_t_test_of_two_samples():
    found = study({"p": 0.5, "i:p": 1.0}, i=[5, 30]).power(0.7)
    expected = [TTestIndPower().power(0.7, n, 0.05) for n in (5, 30)]
    assert found["power"].to_numpy() == pytest.approx(expected, rel=1e-9)


def test_power_near_one_has_its_digits():
    # Noncentral t by its definition; scipy's own distribution ends in nan here.
    made = study(i=2).power(36.0)
    c = stats.t.isf(0.025, 1)

    def density(s):
        return stats.norm.sf(c * s - made["difference"][0]) * stats.chi.pdf(s, 1)

    from scipy.integrate import quad

    expected = sum(quad(density, *ends, epsabs=1e-13)[0] for ends in ((0, 2), (2, 4), (4, 40)))
    assert made["power"].item() == pytest.approx(expected, abs=1e-10)


def test_degrees_of_freedom_of_two_facets_are_satterthwaites():
    n_i, n_a, k = 12, 4, 5
    found = study(P_I_A, i=n_i, a=n_a).power(0.5, n_objects=k)
    pi, pa, rest = P_I_A["pi"], P_I_A["pa"], P_I_A["pia"]
    squares = np.array([rest + n_a * pi, rest + n_i * pa, rest])
    df = (k - 1) * np.array([n_i - 1, n_a - 1, (n_i - 1) * (n_a - 1)])
    theta = squares @ [1, 1, -1]
    expected = theta**2 / (squares**2 / df).sum()
    assert found["df"].item() == pytest.approx(expected, rel=1e-10)
    se = np.sqrt(2.0 * theta / (n_i * n_a))
    assert found["std_error"].item() == pytest.approx(se, rel=1e-12)


@pytest.mark.parametrize("k", [2, 4, 9])
def test_power_of_one_of_all_pairs(k):
    """Tukey's bound over √2, and the noncentral t distribution."""
    n, alpha, difference = 40, 0.01, 0.5
    found = study(i=n).power(difference, n_objects=k, alpha=alpha, test="tukey").iloc[0]
    df = (k - 1) * (n - 1)
    c = stats.studentized_range.isf(alpha, k, df) / np.sqrt(2.0)
    shift = difference / np.sqrt(2.0 * P_I["Residual"] / n)
    expected = stats.nct.sf(c, df, shift) + stats.nct.cdf(-c, df, shift)
    assert found["power"] == pytest.approx(expected, rel=1e-7)
    one = study(i=n)
    options = {"n_objects": k, "alpha": alpha, "test": "tukey"}
    detected = one.detectable(0.8, **options)["difference"].item()
    assert one.power(detected, **options)["power"].item() == pytest.approx(0.8, rel=1e-9)
    needed = one.required(difference=difference, power=0.8, **options)
    powers = study(i=[needed.n - 1, needed.n]).power(difference, **options)["power"]
    assert powers[0] < 0.8 <= powers[1]
    cheapest = one.optimize({"i": 1}, difference=difference, power=0.8, **options).best
    assert cheapest.sizes["i"] == needed.n
    bound = stats.studentized_range.isf(alpha, k, (k - 1) * (np.array([69, 70]) - 1))
    widths = np.sqrt(2.0) * bound * np.sqrt(2.0 * P_I["Residual"] / np.array([69, 70]))
    found = one.required(widths[1] * (1.0 + 1e-6), "width", **options).n
    assert found == 70


def test_a_component_of_zero_is_not_known_to_be_zero():
    """The mean square of judges has its few degrees of freedom at any value."""
    k, n_i, n_a = 4, 60, 3
    at = {}
    for value in (0.0, 1e-9):
        parts = {**P_I_A, "pa": value}
        at[value] = study(parts, i=n_i, a=n_a).power(0.5, n_objects=k)["df"].item()
    residual = P_I_A["pia"]
    squares = np.array([n_a * P_I_A["pi"] + residual, residual, -residual]) / (n_i * n_a)
    df = (k - 1) * np.array([n_i - 1, n_a - 1, (n_i - 1) * (n_a - 1)])
    expected = squares.sum() ** 2 / (squares**2 / df).sum()
    assert at[0.0] == pytest.approx(expected, rel=1e-10)
    assert at[1e-9] == pytest.approx(at[0.0], rel=1e-6)


def test_power_is_how_often_the_test_rejects():
    n_i, n_a, draws, true = 15, 4, 20_000, 0.9
    rng = np.random.default_rng(1)
    d = true + np.sqrt(2.0) * (
        np.sqrt(P_I_A["pi"]) * rng.normal(size=(draws, n_i, 1))
        + np.sqrt(P_I_A["pa"]) * rng.normal(size=(draws, 1, n_a))
        + np.sqrt(P_I_A["pia"]) * rng.normal(size=(draws, n_i, n_a))
    )
    mean, rows, columns = d.mean((1, 2)), d.mean(2), d.mean(1)
    within = d - rows[:, :, None] - columns[:, None, :] + mean[:, None, None]
    squares = np.stack([
        n_a * rows.var(1, ddof=1), n_i * columns.var(1, ddof=1),
        (within**2).sum((1, 2)) / ((n_i - 1) * (n_a - 1)),
    ])  # fmt: skip
    theta = squares[0] + squares[1] - squares[2]
    dfs = np.array([n_i - 1, n_a - 1, (n_i - 1) * (n_a - 1)])[:, None]
    df = np.maximum(theta, 0.0) ** 2 / (squares**2 / dfs).sum(0)
    t = mean / np.sqrt(np.maximum(theta, 1e-9) / (n_i * n_a))
    share = np.mean(2.0 * stats.t.sf(np.abs(t), np.maximum(df, 1.0)) <= 0.05)
    found = study(P_I_A, i=n_i, a=n_a).power(true)["power"].item()
    # The share has a standard error of 0.0035.
    assert found == pytest.approx(share, abs=0.012)


@pytest.mark.parametrize(("size", "n"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_published_sizes_of_the_paired_t_test(size, n):
    """Cohen's small, medium and large effects at power 0.8, as G*Power gives them."""
    needed = study(i=10).required(difference=size * np.sqrt(2.0))
    assert needed.n == n
    assert needed.coefficient == "power"


@pytest.mark.parametrize(("alpha", "power", "difference"), [(0.05, 0.8, 0.5), (0.01, 0.9, 0.9)])
def test_a_topic_set_has_the_power_that_it_is_made_for(alpha, power, difference):
    """The paired t-test of drawn scores, for whose power Sakai (2016) makes sets of topics.

    His tables are of variances of collections. Of 40,000 sets the share that finds the difference
    has a standard error of 0.2 percentage points.
    """
    needed = study(i=10).required(difference=difference, power=power, alpha=alpha)
    scores = np.random.default_rng(6).normal(size=(2, 40_000, int(needed.n)), scale=1.0)
    found = stats.ttest_rel(scores[0] + difference, scores[1], axis=1)
    share = np.mean(found.pvalue <= alpha)
    assert share == pytest.approx(power, abs=0.01)
    width = study(i=10).required(difference, "width", alpha=alpha)
    scores = np.random.default_rng(7).normal(size=(2, 40_000, int(width.n)))
    interval = stats.ttest_rel(*scores, axis=1).confidence_interval(1.0 - alpha)
    assert np.mean(interval.high - interval.low) == pytest.approx(difference, rel=0.02)


def test_the_smallest_size_is_required():
    g = vcomp.from_components(P_I_A, sizes={"p": 20, "i": 12, "a": 4})
    needed = g.dstudy(i=10, a=[5, 8]).required(difference=2.5, power=0.7, facet="i", alpha=0.01)
    for one, a in zip((needed, *needed.further), (5, 8), strict=True):
        below, at = g.dstudy(i=[one.n - 1, one.n], a=a).power(2.5, alpha=0.01)["power"]
        assert below < 0.7 <= at
        if np.isfinite(one.high):
            below, at = g.dstudy(i=[one.high - 1, one.high], a=a).power(2.5, alpha=0.01)["low"]
            assert below < 0.7 <= at
        assert one.low <= one.n <= one.high
        assert one.held == {"a": a}
    assert "For power 0.7 at a difference of 2.5," in printed_words(needed)


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("rel_err_var", lambda v: v),
        ("rel_sem", np.sqrt),
        ("se_difference", lambda v: np.sqrt(2.0 * v)),
    ],
)
def test_the_size_that_an_error_needs(name, of):
    g = vcomp.from_components(P_I, sizes={"p": 20, "i": 12})
    goal = of(1.0 / 36.5)
    needed = g.dstudy(i=10).required(goal, name)
    assert needed.n == 37
    table = g.dstudy(i=np.arange(1, 200)).quantity(name)
    for end, limit in ((needed.low, "low"), (needed.high, "high")):
        assert end == 1 + (table[limit] > goal).sum()
    absolute = g.dstudy(i=10).required(1.2 / 50, "abs_err_var")
    assert absolute.n == 50


def test_the_size_that_the_width_of_an_interval_needs():
    needed = study(i=10).required(0.4, "width", alpha=0.01)
    n = np.arange(2, 400)
    width = 2.0 * stats.t.isf(0.005, n - 1) * np.sqrt(2.0 / n)
    assert needed.n == n[width <= 0.4][0]
    assert f"For a width of 0.4 of the interval of a difference, {needed.n:.0f} levels" in str(
        needed
    )


def test_the_size_that_sets_of_ranks_need():
    k = 6
    needed = study(i=10).required(3.0, "rank_set", n_objects=k)
    n = np.array([needed.n - 1.0, needed.n])
    df = (k - 1) * (n - 1)
    c = stats.studentized_range.isf(0.05, k, df) / np.sqrt(2.0)
    share = np.sqrt((2.0 / n) / (2.0 / n + 2.0 * P_I["p"]))
    size = 1 + (k - 1) * (1 - 2 * stats.t.sf(c * share, df))
    assert size[0] > 3.0 >= size[1]
    known = vcomp.from_components(P_I, sizes={"p": k, "i": 12}).dstudy(i=10)
    assert known.required(3.0, "rank_set").n == needed.n
    # Tukey's test of drawn objects.
    rng, shape = np.random.default_rng(1), (4000, k, int(needed.n))
    y = rng.normal(size=(*shape[:2], 1)) * np.sqrt(P_I["p"]) + rng.normal(size=shape)
    means = y.mean(2)
    left = y - means[:, :, None] - y.mean(1, keepdims=True) + y.mean((1, 2), keepdims=True)
    se = np.sqrt(2.0 * (left**2).sum((1, 2)) / df[1] / needed.n)
    alike = np.abs(means[:, :, None] - means[:, None, :]) < c[1] * se[:, None, None]
    # The standard error of the mean is 0.009.
    assert alike.sum(2).mean() == pytest.approx(size[1], abs=0.03)


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("rel_sem", 0.3),
        ("abs_sem", 0.4),
        ("se_difference", 0.4),
        ("width", 1.6),
        ("rank_set", 3.0),
    ],
)
def test_the_cheapest_design_has_the_goals_of_sizes(name, goal):
    """Of designs with each number of raters, the cheapest with the items that the goal needs."""
    plan = vcomp.from_components(P_I_A, sizes={"p": 5, "i": 12, "a": 4}).dstudy(i=5, a=5)
    prices = {"i": 3.0, "a": 10.0, "i:a": 0.5}
    found = plan.optimize(prices, goal=goal, coefficient=name)
    sizes = found.best.sizes

    def cost(i, a):
        return 3.0 * i + 10.0 * a + 0.5 * i * a

    grid = vcomp.from_components(P_I_A, sizes={"p": 5, "i": 12, "a": 4})
    needed = grid.dstudy(i=5, a=list(range(2, 30))).required(goal, name, "i")
    costs = {(r.n, r.held["a"]): cost(r.n, r.held["a"]) for r in (needed, *needed.further)}
    assert found.best.cost < cost(1, 30)  # and so of all designs with more raters
    assert (sizes["i"], sizes["a"]) in costs
    assert found.best.cost == pytest.approx(min(costs.values()), rel=1e-12)


def test_the_cheapest_design_for_a_width():
    """All designs of up to 80 items and 60 raters, by the formulas."""
    i, a = np.meshgrid(np.arange(2, 81), np.arange(2, 61), indexing="ij")
    pi, pa, rest = P_I_A["pi"], P_I_A["pa"], P_I_A["pia"]
    squares = np.stack([rest + a * pi, rest + i * pa, rest + 0.0 * i])
    theta = squares[0] + squares[1] - squares[2]
    df = theta**2 / (squares**2 / np.stack([i - 1, a - 1, (i - 1) * (a - 1)])).sum(0)
    width = 2.0 * stats.t.isf(0.05, df) * np.sqrt(2.0 * theta / (i * a))
    cost = np.where(width <= 1.5, 3.0 * i + 10.0 * a, np.inf)
    plan = study(P_I_A, i=5, a=5)
    found = plan.optimize({"i": 3.0, "a": 10.0}, goal=1.5, coefficient="width", alpha=0.1)
    assert found.best.cost == cost.min()
    best = int(found.best.sizes["i"]) - 2, int(found.best.sizes["a"]) - 2
    assert width[best] <= 1.5
    for options, words in (
        (
            {"budget": 100.0, "coefficient": "width"},
            "depends on degrees of freedom: give its goal=",
        ),
        ({"goal": 6.0, "coefficient": "rank_set", "n_objects": 6}, "of 6 have a mean size below"),
        (
            {"goal": 0.5, "coefficient": "rank_set", "n_objects": 6},
            "a set of ranks has at least 1",
        ),
        ({"goal": 1.0, "coefficient": "width", "power": 0.8}, "power= are of a test"),
    ):
        with pytest.raises(PlanError, match=words):
            plan.optimize({"i": 3.0, "a": 10.0}, **options)
    spent = plan.optimize({"i": 3.0, "a": 10.0}, budget=100.0, coefficient="rel_err_var")
    assert spent.best.cost <= 100.0


def test_a_size_that_does_not_exist():
    needed = study(P_I_A, i=10, a=2).required(0.1, "rel_err_var", "i")
    assert np.isinf(needed.n)
    assert "any number of levels of i are too few; plan more of the other facets" in str(needed)
    finite = vcomp.from_components(P_I_A).dstudy(i=10, a=30, universe={"i": 40})
    assert "all 40 levels of i are too few" in str(finite.required(0.009, "rel_err_var", "i"))


def test_the_detectable_difference_has_the_power():
    planned = study(P_I_A, sizes={"p": 20, "i": 12, "a": 4}, i=[10, 50], a=[2, 3])
    found = planned.detectable(0.9, n_objects=6, alpha=0.01)
    for row, (d, low, high) in enumerate(found[["difference", "low", "high"]].to_numpy()):
        power = planned.power([d, low, high], n_objects=6, alpha=0.01).iloc[3 * row : 3 * row + 3]
        assert power["power"].iloc[0] == pytest.approx(0.9, rel=1e-9)
        assert power["high"].iloc[1] == pytest.approx(0.9, rel=1e-9)
        assert power["low"].iloc[2] == pytest.approx(0.9, rel=1e-9)


def test_degrees_of_freedom_of_fixed_and_of_finite_facets():
    fixed = study(P_I_A, i=30, a=3, fixed="a").power(0.5)
    pi, rest = P_I_A["pi"], P_I_A["pia"]
    assert fixed["std_error"].item() == pytest.approx(np.sqrt(2 * (pi + rest / 3) / 30), rel=1e-12)
    assert fixed["df"].item() == pytest.approx(29.0, rel=1e-10)
    finite = study(P_I_A, i=30, a=3, universe={"i": 500}).power(0.5)
    se = finite["std_error"].item()
    assert np.isinf(finite["df"].item())
    tails = stats.norm.sf(stats.norm.isf(0.025) + np.array([-0.5, 0.5]) / se)
    assert finite["power"].item() == pytest.approx(tails.sum(), rel=1e-10)


def test_a_level_alone_is_as_if_known():
    one = study(P_I_A, i=30, a=1).power(0.5)
    # Of a single level nothing shows how much others differ: that part is as if known.
    total = (P_I_A["pi"] + P_I_A["pia"]) / 30 + P_I_A["pa"]
    shown = (P_I_A["pi"] + P_I_A["pia"]) / 30
    assert one["df"].item() == pytest.approx(29 * (total / shown) ** 2, rel=1e-10)


def test_unknown_errors_have_no_limits():
    found = study(i=[10, 20]).power(0.5)
    assert found[["low", "high"]].isna().all(axis=None)
    needed = study(i=10).required(difference=0.5)
    assert np.isnan([needed.low, needed.high]).all()
    assert needed.n == 65


def test_fits_have_power_too():
    scores = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", scores)
    found = res.dstudy(topic=[5, 50]).power(0.05)
    assert (found["low"] <= found["power"]).all()
    assert (found["power"] <= found["high"]).all()
    loaded = type(res.dstudy(topic=5)).from_json(res.dstudy(topic=[5, 50]).to_json())
    assert loaded.power(0.05).equals(found)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.power(0.0), "difference must be a number above 0, or several"),
        (lambda s: s.power([]), "difference must be a number above 0"),
        (lambda s: s.power("a"), "difference must be a number above 0"),
        (lambda s: s.power(0.1, n_objects=1), "n_objects is a whole number from 2, not 1"),
        (lambda s: s.power(0.1, test="holm"), "test must be 't' or 'tukey', not 'holm'"),
        (lambda s: s.power(0.1, alpha=2), "alpha must be between 0 and 1"),
        (lambda s: s.detectable(0.01), "power must be between alpha, 0.05, and 1, not 0.01"),
        (lambda s: s.required(0.9, difference=0.1), "a goal of a coefficient, or a difference="),
        (lambda s: s.required(0.9, power=0.8), "power=, n_objects=, alpha=, test= are of a"),
        (lambda s: s.required(difference=[1, 2]), "difference must be a number above 0, on"),
        (lambda s: s.required(coefficient="rel_sem"), "the goal of rel_sem must be a number"),
        (lambda s: s.required(-1, "rel_sem"), "the goal of rel_sem must be a number above 0"),
        (lambda s: s.required(0.1, "width", power=0.8), "power= are of a test of a difference="),
        (lambda s: s.required(0.5, "rank_set"), "a set of ranks has at least 1"),
        (lambda s: s.required(2, "rank_set"), "give n_objects=, since the number of p"),
        (lambda s: s.required(0.1, "sem"), r"required\(goal, 'rel_err_var'\)"),
    ],
)
def test_what_has_no_power(call, words):
    with pytest.raises(PlanError, match=words):
        call(study(i=10))


def test_one_level_shows_no_error():
    """Paired t-tests of n items: the width is 2 t(n − 1) √(2 σ²/n)."""
    res = study({"p": 0.2, "i": 0.8, "Residual": 0.28}, i=12)

    def width(n):
        return 2.0 * stats.t.ppf(0.975, n - 1) * np.sqrt(2.0 * 0.28 / n)

    for goal in (1.0, 2.0, 3.0, 5.0, 50.0):
        n = next(n for n in range(2, 100) if width(n) <= goal)
        assert res.required(goal, "width").n == n
    assert res.required(difference=50.0, power=0.8).n == 2
    assert res.required(50.0, "se_difference").n == 1
