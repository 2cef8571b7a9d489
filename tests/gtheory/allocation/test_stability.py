"""How far recommendations depend on estimates, against the best design of every draw."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import vcomp
from tests.helpers.gstudies import BODOFF_LI, TREC3
from vcomp.exceptions import EstimationError, PlanError
from vcomp.gtheory.allocation.alternative import shown
from vcomp.gtheory.allocation.stability import draw_components
from vcomp.gtheory.planned_quantity import dstudy
from vcomp.gtheory.published import from_components
from vcomp.inference.resampling import Replicates

KINDS = ["p x i x a", "p x (a:i)"]
VALUES = {**BODOFF_LI, "a": 0.0006, "pa": 0.0004}
COV = np.diag(np.square(list(VALUES.values())) / 8)
STUDY = from_components(VALUES, cov=COV).dstudy(i=1, a=1)


@pytest.fixture(scope="module")
def docsearch():
    return vcomp.fit(
        "score ~ (1|sys) + (1|topic) + (1|query) + (1|sys:topic) + (1|sys:query) + "
        "(1|topic:query)",
        vcomp.datasets.load("docsearch"),
    )


def own_studies(draws):
    """Return the D-study of every draw, as if it were published."""
    names = list(VALUES)
    return [from_components(dict(zip(names, np.maximum(v, 0.0), strict=True))) for v in draws]


def drawn(n, seed):
    values, how = draw_components(STUDY.components, n, np.random.default_rng(seed))
    assert how == "χ² draws of the components"
    return values


@pytest.mark.parametrize(
    ("coefficient", "universe"),
    [("Erho2", None), ("abs_err_var", None), ("rel_err_var", {"i": 40, "a": 7})],
)
def test_every_draw_has_its_own_best_design(coefficient, universe):
    cost = "10*i + i*a"
    study = from_components(VALUES, cov=COV).dstudy(i=1, a=1, universe=universe)
    found = study.optimize(cost, budget=300, designs=KINDS, coefficient=coefficient)
    told = found.stability(10, rng=3)
    best, losses, same = found.best, [], []
    for one, row in zip(own_studies(drawn(10, 3)), told.frame.itertuples(), strict=True):
        own = one.dstudy(i=1, a=1, universe=universe).optimize(
            cost, budget=300, designs=KINDS, coefficient=coefficient
        )
        assert row.design == own.best.design.replace(" x ", " × ")
        assert {f: getattr(row, f) for f in "ia"} == own.best.sizes
        assert row.cost == own.best.cost
        value = own.best.study.table[coefficient][0]
        chosen = one.dstudy(best.design, **best.sizes, universe=universe).table[coefficient][0]
        np.testing.assert_allclose([row.value, row.value_of_recommended], [value, chosen])
        losses.append(value - chosen if coefficient == "Erho2" else chosen - value)
        same.append(own.best.design == best.design and own.best.sizes == best.sizes)
        assert row.reaches
    np.testing.assert_allclose(told.frame["loss"], losses, rtol=1e-6, atol=1e-12)
    assert f" is {np.mean(losses):.2g}." in " ".join(told.sentences())
    assert told.same == np.mean(same)
    assert told.expected_loss == pytest.approx(np.mean(losses), rel=1e-6, abs=1e-12)
    assert told.within(0.001) == np.mean(np.array(losses) <= 0.001)
    shares = told.frame["design"].value_counts(normalize=True)
    assert "Best design, with any sizes" in str(told)
    for design in told.wins.index:
        assert told.wins[design] == pytest.approx(shares.get(design, 0.0))


def test_with_a_goal():
    found = STUDY.optimize("10*i + i*a", goal=0.93, coefficient="Phi")
    told = found.stability(20, rng=4)
    best, sizes, costs, reached = found.best, [], [], []
    for one in own_studies(drawn(20, 4)):
        own = one.dstudy(i=1, a=1).optimize("10*i + i*a", goal=0.93, coefficient="Phi").best
        sizes.append([own.sizes["i"], own.sizes["a"]])
        costs.append(own.cost)
        reached.append(one.dstudy(best.design, **best.sizes).table["Phi"][0] >= 0.93)
    np.testing.assert_array_equal(told.frame[["i", "a"]], sizes)
    np.testing.assert_allclose(told.frame["cost"], costs)
    np.testing.assert_allclose(told.frame["loss"], best.cost - np.array(costs))
    assert told.reached == np.mean(reached)
    # Quantiles are sizes that occurred.
    ordered = np.sort(np.array(sizes), axis=0)
    for j, facet in enumerate("ia"):
        low, median, high = told.sizes.loc[facet]
        assert (low, median, high) == (ordered[0, j], ordered[9, j], ordered[19, j])
    assert f"In {round(100 * told.reached)} % of 20 χ² draws" in str(told)
    assert told.unreachable == 0.0
    assert "no design reaches it" not in str(told)
    assert "Best design, with any sizes" not in str(told)  # there is one


def test_goals_that_some_draws_do_not_reach():
    found = STUDY.optimize("i", goal=0.91, bounds={"a": 1, "i": (1, 90)})
    told = found.stability(200, rng=1)
    missing = told.frame["design"].isna()
    assert told.unreachable == missing.mean() > 0
    assert told.frame.loc[missing, ["cost", "i"]].isna().all(axis=None)
    assert told.sizes.loc["i", "high"] == np.inf
    assert "no design reaches it" in str(told)
    # The costs that are told are those of designs.
    costs = np.sort(told.frame["cost"].dropna())
    low, high = (costs[int(np.ceil(tail * costs.size)) - 1] for tail in (0.025, 0.975))
    assert f"costs {low:.0f} to {high:.0f} (95 % of them)" in str(told)
    assert not told.frame.loc[missing, "reaches"].any()


def test_designs_that_reach_the_goal_by_some_draws_alone():
    # One assessor of all queries is cheap, if assessors do not differ over systems.
    cost, bounds = "i + 100*a", {"i": (1, 200), "a": 1}
    found = STUDY.optimize(cost, goal=0.95, designs=KINDS, bounds=bounds)
    assert [shown(a.problem.plan.design) for a in found.left_out] == ["p × i × a"]
    told = found.stability(40, rng=5)
    wins = []
    for one in own_studies(drawn(40, 5)):
        best = []
        for kind in KINDS:
            try:
                own = one.dstudy(i=1, a=1).optimize(cost, goal=0.95, designs=kind, bounds=bounds)
            except PlanError:
                continue
            best.append((own.best.cost, kind))
        wins.append(shown(min(best)[1]) if best else None)
    assert told.frame["design"].where(told.frame["design"].notna(), None).tolist() == wins
    assert told.wins["p × i × a"] == wins.count("p × i × a") / 40 > 0
    assert told.unreachable == wins.count(None) / 40


def test_draws_have_the_moments_of_the_estimates():
    n = 60_000
    for components in (STUDY.components, TREC3):
        values, _ = draw_components(components, n, np.random.default_rng(1))
        se = np.sqrt(np.diagonal(components.cov))
        # Means are within 4.5 of their standard errors, variances within 5 %: those of χ² with
        # few degrees of freedom have heavy tails.
        assert (np.abs(values.mean(axis=0) - components.values) < 4.5 * se / np.sqrt(n)).all()
        np.testing.assert_allclose(values.std(axis=0), se, rtol=0.05)


def test_mean_squares_of_draws_have_chi_squared_distributions():
    published = from_components({"p": 2.0, "i": 1.0, "pi": 4.0}, sizes={"p": 10, "i": 4})
    values, how = draw_components(published.components, 4_000, np.random.default_rng(2))
    assert how == "χ² draws of the components"
    table = published.anova_table()
    squares = values @ table[["E[p]", "E[i]", "E[pi]"]].to_numpy().T
    for k, (df, mean) in enumerate(zip(table["df"], table["mean_sq"], strict=True)):
        assert stats.kstest(squares[:, k] * df / mean, stats.chi2(df).cdf).pvalue > 1e-3
    assert (np.abs(np.corrcoef(squares, rowvar=False) - np.eye(3)) < 4.5 / np.sqrt(4_000)).all()


def test_draws_of_estimates_at_zero_are_normal():
    components = from_components(BODOFF_LI, cov=np.diag([1e-6] * 7)).components
    values, how = draw_components(components, 100_000, np.random.default_rng(1))
    assert how == "normal draws of the components"
    np.testing.assert_allclose(values.mean(axis=0), components.values, atol=4.5e-3 / 316)
    np.testing.assert_allclose(np.cov(values.T), np.diag([1e-6] * 7), atol=2e-8)
    known = replace(components, cov=np.where(np.eye(7) * (np.arange(7) == 0), np.nan, 0.0))
    values, _ = draw_components(known, 5, np.random.default_rng(1))
    np.testing.assert_array_equal(values, np.tile(components.values, (5, 1)))
    assert (
        draw_components(from_components(BODOFF_LI).components, 5, np.random.default_rng(1)) is None
    )


def test_draws_of_very_certain_estimates_are_those_of_a_normal_distribution():
    """As χ² of few hundred million degrees of freedom, with the same random numbers."""
    drawn = []
    for df in (1.9e8, 2.1e8, 1e12):
        v = np.array([3.0, 5.0])
        components = from_components(
            {"p": v[0], "Residual": v[1]}, cov=np.diag(2.0 * v**2 / df)
        ).components
        values, how = draw_components(components, 50, np.random.default_rng(4))
        assert how == "χ² draws of the components"
        drawn.append((values - v) * np.sqrt(df))
    assert np.ptp(drawn[0]) > 1.0
    for other in drawn[1:]:  # the skewness of χ² and the rounding of its quantiles
        np.testing.assert_allclose(other, drawn[0], atol=1e-2)


def test_replicates_of_a_fit(docsearch):
    study = docsearch.dstudy(object="sys")
    found = study.optimize("20*topic + topic*query", budget=500)
    replicates = docsearch.bootstrap(30, rng=1)
    told = found.stability(replicates)
    assert told.how == "parametric bootstrap draws"
    assert len(told.frame) == 30
    by_source = docsearch.dstudy(object="sys", interval=replicates)
    again = by_source.optimize("20*topic + topic*query", budget=500).stability()
    np.testing.assert_array_equal(again.frame["topic"], told.frame["topic"])
    assert told.summary().as_text() == again.summary().as_text()
    assert "The best sizes" in told.sentences()[-1]
    assert "The best sizes" not in told.summary().as_text()
    lines = " ".join(found.summary(told).as_text().split())
    assert f"In {round(100 * told.same)} % of 30 parametric bootstrap draws" in lines


def test_the_same_seed_gives_the_same_draws():
    found = STUDY.optimize("i*a + 3*i", budget=100)
    first, second = (found.stability(20, rng=5).frame for _ in "ab")
    np.testing.assert_array_equal(first["value"], second["value"])
    third = found.stability(20, rng=np.random.default_rng(5)).frame
    assert len(third) == 20
    assert not np.array_equal(first["value"], found.stability(20, rng=6).frame["value"])


def test_of_any_cost():
    by_function = STUDY.optimize(lambda i, a: 10 * i + i * a, budget=120).stability(20, rng=1)
    by_prices = STUDY.optimize("10*i + i*a", budget=120).stability(20, rng=1)
    np.testing.assert_array_equal(by_function.frame[["i", "a"]], by_prices.frame[["i", "a"]])


@pytest.mark.parametrize(
    "aim",
    [
        {"budget": 300}, {"budget": 300, "coefficient": "abs_err_var"},
        {"goal": 0.93, "coefficient": "Phi"}, {"goal": 0.01, "coefficient": "abs_err_var"},
    ],
)  # fmt: skip
def test_draws_that_are_the_estimates_agree_with_the_recommendation(aim):
    """Exactly: a goal that the recommended design just reaches is reached in every draw."""
    cost, coefficient = "10*i + i*a", aim.get("coefficient", "Erho2")
    found = STUDY.optimize(cost, designs=KINDS, **aim)
    if "goal" in aim:
        exact = float(found.best.study.table[coefficient][0])
        found = STUDY.optimize(cost, designs=KINDS, coefficient=coefficient, goal=exact)
    values = np.tile(STUDY.components.values, (4, 1))
    empty = np.zeros((4, 0))
    same = Replicates("parametric", STUDY.components.names, (), np.arange(4), values, empty,
                      np.zeros(4), np.ones(4, dtype=bool), 1, 4)  # fmt: skip
    told = found.stability(same)
    assert (told.same, told.unreachable) == (1.0, 0.0)
    for n_usable in (2, 1):
        usable = replace(same, converged=np.arange(4) < n_usable)
        if n_usable == 2:
            assert len(found.stability(usable).frame) == 2
        else:
            with pytest.raises(PlanError, match="fewer than two replicates that are finite"):
                found.stability(usable)
    assert told.wins.to_dict() == {
        shown(a.problem.plan.design): float(k == 0) for k, a in enumerate(found.alternatives)
    } | {shown(a.problem.plan.design): 0.0 for a in found.left_out}
    assert told.frame["reaches"].all()
    assert told.reached == 1.0 if "goal" in aim else np.isnan(told.reached)
    np.testing.assert_allclose(told.frame["loss"], 0.0, atol=1e-12)
    for facet, n in found.best.sizes.items():
        assert told.sizes.loc[facet].tolist() == [n, n, n]


def test_what_cannot_be(docsearch):
    without = from_components(BODOFF_LI).dstudy(i=1, a=1).optimize("i*a", budget=10)
    with pytest.raises(PlanError, match="covariance matrix of the components, which is not known"):
        without.stability()
    found = STUDY.optimize("i*a", budget=10)
    for wrong in (0, -3, 2.5, "100", True):
        with pytest.raises(EstimationError, match="draws must be a whole number of at least 1"):
            found.stability(wrong)
    with pytest.raises(EstimationError):
        found.stability(10, rng="seed")
    with pytest.raises(PlanError, match="these replicates are of sys, topic"):
        found.stability(docsearch.bootstrap(5, rng=1))
    one_facet = dstudy(TREC3).optimize("topic", budget=50).stability(50, rng=1)
    assert one_facet.same == 1.0
    assert repr(one_facet) == "<Stability: 50 χ² draws of the components>"
    assert "<table" in one_facet._repr_html_()
