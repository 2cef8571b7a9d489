"""Effects that are skewed, bounded and correlated, and scores that are bounded or graded."""

import numpy as np
import pytest
from scipy import stats

import vcomp
from vcomp.exceptions import DataError, PlanError
from vcomp.ir.simulate.effect_draws import bounded, correlated
from vcomp.ir.simulate.margin import discrete
from vcomp.simulate import simulate_effects

COMPONENTS = {"p": 0.5, "a": 0.1, "pa": 0.4, "Residual": 0.3}
CONSTANT = discrete("one", np.array([0.0, 1.0]), np.array([1.0, 0.0]), {}, 0.0, 0.0)
SKEWED = np.random.default_rng(1).exponential(size=300)


def test_margins_have_their_shape_and_the_component_as_variance():
    made = simulate_effects(COMPONENTS_OF, p=20_000, a=2, margins={"p": SKEWED}, rng=2)
    skewed, normal = made.effects["p"], made.effects["pa"]
    assert skewed.var() == pytest.approx(0.5, rel=0.05)
    assert skewed.mean() == pytest.approx(0.0, abs=0.02)
    assert stats.skew(skewed) == pytest.approx(stats.skew(SKEWED), rel=0.15)
    assert stats.skew(normal) == pytest.approx(0.0, abs=0.06)
    # As those observed, effects are bounded: nothing is easier than the easiest.
    reach = (SKEWED.min() - SKEWED.mean()) / SKEWED.std() * np.sqrt(0.5)
    assert skewed.min() >= 1.1 * reach


COMPONENTS_OF = vcomp.from_components(COMPONENTS)


def test_correlations_join_the_levels_of_a_facet():
    R = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, -0.3], [0.0, -0.3, 1.0]])
    made = simulate_effects(COMPONENTS_OF, p=8_000, a=3, correlations={"a": R}, rng=3)
    pairs = made.effect("pa").reshape(8_000, 3)
    np.testing.assert_allclose(np.corrcoef(pairs, rowvar=False), R, atol=0.04)
    # Without replicates the residual is the effect of every person and assessor.
    two = vcomp.from_components({"p": 0.5, "a": 0.1, "Residual": 0.4})
    residual = simulate_effects(two, p=8_000, a=3, correlations={"a": R}, rng=3)
    rest = residual.scores - sum(residual.effect(name) for name in residual.effects)
    np.testing.assert_allclose(np.corrcoef(rest.reshape(8_000, 3), rowvar=False), R, atol=0.04)
    same = simulate_effects(COMPONENTS_OF, p=8_000, a=3, correlations={"a": 0.5}, rng=3)
    found = np.corrcoef(same.effect("pa").reshape(8_000, 3), rowvar=False)
    np.testing.assert_allclose(found[np.triu_indices(3, 1)], 0.5, atol=0.04)
    # Effects of persons alone stay as they were without correlations.
    plain = simulate_effects(COMPONENTS_OF, p=8_000, a=3, rng=3)
    np.testing.assert_array_equal(plain.effects["p"], same.effects["p"])


def test_scores_are_bounded_with_slope_one():
    made = simulate_effects(COMPONENTS_OF, p=200, a=5, mean=0.3, bounds=(0, 1), rng=4)
    assert 0.0 < made.scores.min() < 0.05
    assert 0.95 < made.scores.max() < 1.0
    small = vcomp.from_components({name: 1e-8 * v for name, v in COMPONENTS.items()})
    linear = simulate_effects(small, p=50, a=5, mean=0.3, rng=4).scores
    bent = simulate_effects(small, p=50, a=5, mean=0.3, bounds=(0, 1), rng=4).scores
    np.testing.assert_allclose(bent - 0.3, linear - 0.3, rtol=2e-3)


@pytest.mark.parametrize(("low", "high"), [(2.0, 5.0), (-3.0, 1.0), (-8.0, -2.0)])
def test_bounds_are_those_of_any_scale(low, high):
    """Scores between 0 and 1, carried to the bounds, of effects that are as much larger."""
    latent, share, width = np.linspace(-2.0, 2.0, 41), 0.3, high - low
    plain = bounded(latent, share, (0.0, 1.0))
    found = bounded(width * latent, low + share * width, (low, high))
    np.testing.assert_allclose(found, low + width * plain, rtol=1e-13, atol=1e-14)
    # The logistic curve by its definition: log odds are a straight line of slope 1/(p (1 - p)).
    odds = np.log(plain / (1.0 - plain))
    expected = np.log(share / (1.0 - share)) + latent / (share * (1.0 - share))
    np.testing.assert_allclose(odds, expected, rtol=1e-10)


def test_residuals_are_added_as_they_are():
    two = vcomp.from_components({"p": 0.01, "i": 0.01, "Residual": 1.0})
    made = simulate_effects(two, p=300, i=200, margins={"Residual": SKEWED}, rng=5)
    # The kernels of the margin, and the other effects, take a part of it.
    assert stats.skew(made.scores) == pytest.approx(stats.skew(SKEWED), rel=0.25)


def test_grades_of_skewed_effects_have_their_shares():
    two = vcomp.from_components({"p": 0.01, "i": 0.01, "Residual": 1.0})
    shares = (0.6, 0.3, 0.1)
    made = simulate_effects(two, p=300, i=200, grades=shares, margins={"Residual": SKEWED}, rng=5)
    found = np.bincount(made.scores.astype(int)) / made.scores.size
    np.testing.assert_allclose(found, shares, atol=0.02)


def test_grades_have_their_shares_and_the_correlation_of_the_universe():
    shares = (0.7, 0.2, 0.1)
    made = simulate_effects(COMPONENTS_OF, p=400, a=400, grades=shares, rng=5,
                            margins={"a": SKEWED})  # fmt: skip
    found = np.bincount(made.scores.astype(int)) / made.scores.size
    np.testing.assert_allclose(found, shares, atol=0.03)  # of 400 persons
    # 0/1 judgements of two assessors: their correlation is that of a bivariate normal with the
    # share that persons and assessors have (Pearson's tetrachoric correlation).
    without = vcomp.from_components({"p": 0.5, "a": 0.0, "Residual": 0.8})
    two = simulate_effects(without, p=60_000, a=2, grades=(0.8, 0.2), rng=6)
    first, second = two.scores.reshape(-1, 2).T
    rho = 0.5 / 1.3
    cut = stats.norm.isf(0.2)
    both = stats.multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([-cut, -cut])
    assert np.mean(first * second) == pytest.approx(both, abs=0.005)


def test_what_is_refused():
    for options, message in (
        ({"margins": {"q": SKEWED}}, "margins= names no component 'q'"),
        ({"margins": {"p": [1.0, 1.0]}}, "margin of 'p' is a vcomp.simulate.Margin or 5 or more"),
        ({"margins": {"p": CONSTANT}}, "the margin of 'p' has no variance"),
        ({"correlations": {"b": 0.5}}, "correlations= names 'b'"),
        ({"correlations": {"a": [[1, 2], [2, 1]]}}, "positive semidefinite 3 × 3"),
        ({"correlations": {"a": 0.5, "p": 0.1}}, "component 'pa' has the facets"),
        ({"bounds": (0, 1), "mean": 1.5}, "with the mean 1.5 between them"),
        ({"grades": (0.5, 0.6)}, "add up to 1"),
        ({"grades": (0.5, 0.5), "bounds": (0, 1), "mean": 0.5}, "give one of them"),
    ):
        with pytest.raises(PlanError, match=message):
            simulate_effects(COMPONENTS_OF, p=4, a=3, **options)


def test_tracks_with_graded_relevance_and_skewed_topics():
    sizes = {"n_systems": 4, "n_topics": 40, "n_documents": 60, "rng": 1}
    plain = vcomp.ir.novelty_like_track(**sizes)
    assert plain.judgements["relevant"].dtype == bool
    graded = vcomp.ir.novelty_like_track(**sizes, cuts=(0.0, 1.0))
    grades = graded.judgements["relevant"]
    assert set(grades) == {0, 1, 2}
    # The same sums of effects: what is relevant has a grade from 1 on.
    np.testing.assert_array_equal(plain.judgements["relevant"], grades >= 1)
    universe = vcomp.ir.document_universe(graded.retrieved, graded.judgements, relevant_from=2)
    assert universe.n_rows > 0
    large = {"effects": {"i": 2.0}, **sizes}
    skewed = vcomp.ir.novelty_like_track(**large, margins={"i": SKEWED})
    usual = vcomp.ir.novelty_like_track(**large)

    def shares(track):
        return track.judgements.groupby("topic", observed=True)["relevant"].mean()

    assert stats.skew(shares(skewed)) > stats.skew(shares(usual))
    with pytest.raises(DataError, match="cuts= ascend"):
        vcomp.ir.novelty_like_track(**sizes, cuts=(1.0, 0.0))
    for cuts in ((), ((0.0, 1.0),), (0.0, np.inf), (np.nan,)):
        with pytest.raises(DataError, match="cuts= are one or more finite numbers"):
            vcomp.ir.novelty_like_track(**sizes, cuts=cuts)
    with pytest.raises(DataError, match="cuts= ascend"):
        vcomp.ir.novelty_like_track(**sizes, cuts=(1.0, 1.0))
    with pytest.raises(PlanError, match="margins= names no component 'relevance'"):
        vcomp.ir.novelty_like_track(**sizes, margins={"relevance": SKEWED})


def test_correlated_effects_take_one_random_number_each():
    """So that what is drawn after them does not depend on how they are made."""
    rng, same = np.random.default_rng(4), np.random.default_rng(4)
    levels, rest = np.tile([0, 1], 3), np.repeat([0, 1, 2], 2)
    factor = np.linalg.cholesky([[1.0, 0.5], [0.5, 1.0]])
    found = correlated(np.arange(6), 6, levels, rest, factor, rng)
    np.testing.assert_allclose(found, (same.standard_normal((3, 2)) @ factor.T).ravel())
    assert rng.random() == same.random()
