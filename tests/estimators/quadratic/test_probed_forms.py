"""Standard errors of Method I by random probes: against exact ones, and as sure as they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import DESIGNS, GRIDS, gridded, unbalanced
from tests.helpers.examples import examples
from vcomp.estimators.quadratic import sampling
from vcomp.estimators.quadratic.anova import henderson1
from vcomp.estimators.quadratic.quadratic_forms import (
    ChainLimits,
    TooLargeError,
    contrast_with_mean,
    quadratic_covariance,
)
from vcomp.estimators.quadratic.sampling import ProbedForms, average_until

pytestmark = pytest.mark.filterwarnings("ignore:.*not fully crossed")

COMPONENTS = {"positive": 0.2, "one of them negative": -0.2}


def tables(name):
    return vcomp.VarianceComponentsModel(*unbalanced(name)).statistics.cross_products


def quadratic(forms, k):
    contrast = contrast_with_mean(k)
    return 2.0 * contrast @ forms @ contrast.T


@pytest.mark.parametrize("start", COMPONENTS.values(), ids=COMPONENTS)
@pytest.mark.parametrize("name", DESIGNS)
def test_over_all_groups_the_traces_are_exact(name, start):
    stats = tables(name)
    v = np.linspace(start, 1.5, stats.n_terms + 1)
    forms = ProbedForms(stats, range(stats.n_terms + 2), v, 0, all_up_to=10**9)
    assert forms.operations == 0.0
    expected = quadratic_covariance(stats, v)
    found = quadratic(forms.exact, stats.n_terms)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("name", "all_up_to", "start"),
    [
        (name, *turn)
        for name, turn in alternately(DESIGNS, (0, 0.2), (10, -0.2), (0, -0.2), (10, 0.2))
    ],
)
def test_probes_are_unbiased_and_know_their_error(name, all_up_to, start):
    stats = tables(name)
    k = stats.n_terms
    v = np.linspace(start, 1.5, k + 1)
    forms = ProbedForms(stats, range(k + 2), v, 5, all_up_to)
    probing = average_until(forms.sample, forms.exact, lambda _: False, 500, 500)
    expected = np.diagonal(quadratic_covariance(stats, v))
    found = np.diagonal(quadratic(probing.forms, k))
    error = 2.0 * np.sqrt(probing.variance_of_diagonal(contrast_with_mean(k)))
    # Four errors, and rounding where all is exact.
    assert (np.abs(found - expected) <= 4.0 * error + 1e-12 * expected).all()


def test_the_error_is_that_which_other_seeds_show():
    stats = tables("three facets")
    k = stats.n_terms
    v, contrast = np.linspace(0.2, 1.5, k + 1), contrast_with_mean(k)
    found, errors = [], []
    for seed in range(50):
        forms = ProbedForms(stats, range(k + 2), v, seed, all_up_to=0)
        probing = average_until(forms.sample, forms.exact, lambda _: False, 16, 16)
        found.append(np.diagonal(quadratic(probing.forms, k)))
        errors.append(4.0 * probing.variance_of_diagonal(contrast))
    # 50 seeds know a variance of skewed estimates to about a quarter.
    ratio = np.var(found, axis=0, ddof=1) / np.mean(errors, axis=0)
    assert (np.abs(ratio - 1.0) < 0.6).all()
    standardised = (np.mean(found, axis=0) - np.diagonal(quadratic_covariance(stats, v))) / (
        np.std(found, axis=0) / np.sqrt(50.0)
    )
    assert (np.abs(standardised) < 4.0).all()


def test_a_probe_depends_on_its_number_alone():
    stats = tables("crossed and nested")
    arguments = stats, range(stats.n_terms + 2), np.ones(stats.n_terms + 1), 3, 0
    forms = ProbedForms(*arguments)
    together = forms.sample(0, 7)
    apart = np.concatenate([forms.sample(0, 3), forms.sample(3, 7)])
    np.testing.assert_allclose(apart, together, rtol=1e-13)
    one_by_one = ProbedForms(*arguments, elements_at_once=1)
    np.testing.assert_allclose(one_by_one.sample(0, 7), together, rtol=1e-13)


@pytest.mark.parametrize("name", GRIDS)
def test_strata_by_all_groups_are_exact(name):
    model = vcomp.VarianceComponentsModel(*gridded(name))
    values = np.linspace(0.3, 1.2, len(model.component_names))
    coefficients = henderson1(model.statistics.group_sums)
    exact = sampling.exact_sampling(model.statistics, coefficients, values)
    probed = sampling.probed_sampling(model.statistics, coefficients, values, 2, 0)
    assert model.statistics.strata is not None
    scale = np.sqrt(np.outer(np.diagonal(exact.covariance), np.diagonal(exact.covariance)))
    np.testing.assert_allclose(probed.covariance / scale, exact.covariance / scale, atol=1e-9)
    assert probed.n_probes == 2
    assert not exact.errors.any()


@settings(deadline=None, max_examples=examples(20))
@given(st.sampled_from(sorted(GRIDS)), st.integers(0, 100))
def test_strata_by_probes_lie_within_their_errors(name, seed):
    model = vcomp.VarianceComponentsModel(*gridded(name, seed))
    values = np.linspace(0.3, 1.2, len(model.component_names))
    coefficients = henderson1(model.statistics.group_sums)
    exact = np.diagonal(sampling.exact_sampling(model.statistics, coefficients, values).covariance)
    probed = sampling.probed_sampling(
        model.statistics, coefficients, values, 200, seed, all_up_to=0
    )
    se = np.sqrt(np.diagonal(probed.covariance))
    assert (np.abs(se - np.sqrt(exact)) <= 6.0 * probed.errors * se + 1e-9 * se).all()


# As a user sees it ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    """Levels that meet at random: between those of two facets a matrix has too many elements."""
    rng = np.random.default_rng(0)
    data = {f: rng.integers(0, 2300, 9200) for f in "abc"}
    data["y"] = rng.normal(size=9200) + sum(rng.normal(size=2300)[data[f]] for f in "abc")
    return vcomp.VarianceComponentsModel("y ~ (1|a) + (1|b) + (1|c)", data)


def test_small_data_have_exact_standard_errors():
    exact = vcomp.fit(*unbalanced("three facets"), method="anova")
    assert "Monte Carlo" not in exact.status
    assert not exact.mc_error_bse.any()


def test_standard_errors_by_monte_carlo_say_so(large):
    res = large.fit("anova")
    values = res.vcomp.to_numpy()
    arguments = large.statistics, henderson1(large.statistics.group_sums), values
    with pytest.raises(TooLargeError):
        sampling.exact_sampling(*arguments)
    exact = sampling.exact_sampling(*arguments, ChainLimits(most_elements=10**8))
    bse = np.sqrt(np.diagonal(exact.covariance))
    assert (values == large.fit("anova", n_probes=2).vcomp).all()
    errors = res.mc_error_bse.to_numpy()
    assert ((errors > 0.0) & (errors <= 0.01)).all()
    assert (np.abs(res.bse_vcomp / bse - 1.0) <= 4.0 * errors).all()
    assert f"with a Monte Carlo error of {100.0 * errors.max():.2g} % or less." in res.status
    assert "Standard errors by Monte Carlo (" in res.status
    assert res.status in " ".join(str(res.summary()).split())
    again = type(res).from_json(res.to_json())
    assert again.mc_error_bse.to_dict() == res.mc_error_bse.to_dict()


def test_a_number_of_probes_and_a_seed_are_obeyed():
    model = vcomp.VarianceComponentsModel(*unbalanced("three facets"))
    by_probes = model.fit("anova", n_probes=10)
    assert "(10 probes)" in by_probes.status
    again = model.fit("anova", n_probes=10, rng=0)
    assert (again.bse_vcomp == by_probes.bse_vcomp).all()


def test_another_seed_has_other_probes(large):
    one, other = (large.fit("anova", rng=np.random.default_rng(s)) for s in (1, 2))
    assert (one.bse_vcomp != other.bse_vcomp).any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_probes": 1}, "n_probes must be a whole number of at least 2, not 1"),
        ({"rng": "dice"}, "rng must be a seed of at least 0 or a numpy Generator, not 'dice'"),
        ({"rng": 1}, "the standard errors of these data are computed exactly"),
    ],
)
def test_what_is_refused(options, words):
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    with pytest.raises(vcomp.VcompError, match=words):
        model.fit("anova", **options)


def test_negative_eigenvalues_are_clipped_and_the_diagonal_kept():
    matrix = np.array([[4.0, 3.0, -3.0], [3.0, 4.0, 3.0], [-3.0, 3.0, 4.0]])
    nearest, clipped = sampling.nearest_covariance(matrix)
    assert clipped
    assert np.linalg.eigvalsh(nearest).min() > -1e-14
    np.testing.assert_allclose(np.diagonal(nearest), 4.0, rtol=1e-15)
    # Two eigenvalues of 7 and one of −2: the projection onto the first two, scaled to 4.
    x = np.array([1.0, -1.0, 1.0]) / np.sqrt(3.0)
    np.testing.assert_allclose(nearest, 6.0 * (np.eye(3) - np.outer(x, x)), atol=1e-14)
    same, clipped = sampling.nearest_covariance(np.eye(2))
    assert not clipped
    assert (same == np.eye(2)).all()


def test_a_variance_that_is_not_positive_is_not_known():
    nearest, clipped = sampling.nearest_covariance(np.diag([1.0, -1.0]))
    assert clipped
    assert nearest[0, 0] == 1.0
    assert np.isnan(nearest[1]).all()


# Averages and their errors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "limit", "enough_at", "n_probes"),
    [(32, 1024, 64, 64), (32, 1024, 65, 96), (32, 80, 1000, 80), (1, 10, 1, 2), (5, 5, 1, 5)],
)
def test_probes_are_drawn_until_they_are_enough(batch, limit, enough_at, n_probes):
    rng = np.random.default_rng(0)
    every = rng.normal(size=(2000, 3, 3))
    asked = []

    def sample(first, last):
        asked.append((first, last))
        return every[first:last]

    exact = np.diag([1.0, 2.0, 3.0])
    found = average_until(sample, exact, lambda p: p.n_probes >= enough_at, batch, limit)
    assert found.n_probes == n_probes
    assert [a for a, _ in asked] == [0, *(b for _, b in asked[:-1])]
    used = every[:n_probes]
    np.testing.assert_allclose(found.forms, exact + used.mean(axis=0), rtol=1e-12)
    rows = np.vstack([rng.normal(size=(2, 3)), np.zeros(3)])
    # The variance of a mean of independent draws.
    draws = np.array([np.diagonal(rows @ form @ rows.T) for form in used])
    variances = draws.var(axis=0, ddof=1) / n_probes
    np.testing.assert_allclose(found.variance_of_diagonal(rows), variances, rtol=1e-10)
    errors = sampling._relative_errors(found, rows)
    of_rows = np.diagonal(rows @ found.forms @ rows.T)
    # A quantity that does not depend on the forms has no variance, and so no error.
    expected = 0.5 * np.sqrt(variances) / np.where(of_rows > 0.0, of_rows, np.nan)
    np.testing.assert_allclose(errors, expected, rtol=1e-10)


SAID = " Standard errors by Monte Carlo (32 probes)"
NONE = " Estimates whose estimated sampling variance is negative have none."
CLIPPED = (
    " Their covariance matrix had negative eigenvalues, as it can at negative estimates: they "
    "were set to zero and the diagonal was kept."
)


@pytest.mark.parametrize(
    ("errors", "changes", "sentence"),
    [
        ([0.0, 0.0], {"n_probes": 0}, ""),
        ([0.004, 0.0123], {}, f"{SAID}, with a Monte Carlo error of 1.2 % or less."),
        (
            [np.nan, 0.004],
            {"clipped": True},
            f"{SAID}, with a Monte Carlo error of 0.4 % or less.{NONE}{CLIPPED}",
        ),
        ([np.nan, np.nan], {"clipped": True}, f"{SAID}.{NONE}"),
    ],
)
def test_what_is_said_of_probes(errors, changes, sentence):
    named = {"n_probes": 32} | changes
    found = sampling.Sampling(np.eye(2), np.array(errors), **named)
    assert found.sentence == sentence
    known = {"a": errors[0], "Residual": errors[1]} if named["n_probes"] else {}
    assert str(found.errors_of(("a", "Residual"))) == str(known)


def test_components_of_zero_have_no_sampling_variance():
    model = vcomp.VarianceComponentsModel(*unbalanced("crossed"))
    found = sampling.sampling_covariance(model.statistics, np.eye(3), np.zeros(3))
    assert not found.covariance.any()
    assert (found.n_probes, found.errors.tolist()) == (0, [0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("least", "is_changed"), [(-2e-12, True), (-0.5e-12, False), (0.1, False)]
)
def test_negative_eigenvalues_within_rounding_are_left(least, is_changed):
    """Of a correlation matrix, whatever the units: 1 − r of two variables."""
    r, units = 1.0 - least, np.array([1e-3, 50.0])
    matrix = np.array([[1.0, r], [r, 1.0]]) * np.outer(units, units)
    nearest, clipped = sampling.nearest_covariance(matrix)
    assert clipped == is_changed
    np.testing.assert_allclose(nearest, matrix, rtol=1e-11)


@pytest.mark.parametrize(("elements", "step"), [(1, 1), (500, None), (900, None), (10**6, 8)])
def test_columns_that_are_multiplied_at_once(elements, step):
    stats = tables("three facets")
    arguments = stats, range(stats.n_terms + 2), np.ones(stats.n_terms + 1), 3, 0
    assert ProbedForms(*arguments)._step() == 8
    forms = ProbedForms(*arguments, elements_at_once=elements)
    of_column = 2 * sum(stats.sizes) + (stats.n_terms + 3) * max(stats.sizes)
    expected = min(max(elements // of_column, 1), 8)
    assert forms._step() == expected
    if step is not None:
        assert expected == step
