"""Random parts of the data: the same draws by rows and by tables, estimates those of a fit."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import balanced, unbalanced
from vcomp.inference.resampling.row_samples import check_facets
from vcomp.model.row_access import fitted_again
from vcomp.studies.subsample import Subsets, draw_levels

CASES = [
    ("crossed", {"a": 4, "b": 5}),
    ("crossed", {"b": 3}),
    ("crossed, replicated", {"a": 3, "b": 4}),
    ("nested", {"a": 4, "b": 3}),
    ("nested", {"b": 2}),
    ("deeply nested", {"a": 3, "c": 2}),
    ("three facets", {"a": 4, "b": 3, "c": 3}),
    ("crossed and nested", {"a": 4, "b": 3, "c": 2}),
    ("crossed and nested", {"c": 2}),
]


def subsets_of(formula, frame, sizes, method="anova", **options):
    res = vcomp.fit(formula, frame, method=method, **options)
    fit, design = fitted_again(res)
    return Subsets.of(fit, design, res.components, check_facets(design, tuple(sizes)))


def rng_of(seed):
    return np.random.default_rng(seed)


def frame_of_rows(frame, sample):
    """Return the rows of a subset, its levels under names of their own."""
    return frame.iloc[sample.rows].reset_index(drop=True)


@pytest.mark.parametrize(
    ("case", "method"),
    alternately(CASES, "anova", "reml", "type1", "ml", "henderson3", "minque"),
)
def test_a_subset_is_fitted_as_its_rows_are(case, method):
    name, sizes = case
    formula, frame = balanced(name, 2)
    subsets = subsets_of(formula, frame, sizes, method)
    # Likelihoods are maximised from other starts, to a Newton decrement of 1e-8 standard errors.
    tolerance = 1e-10 if method not in ("reml", "ml") else 1e-6
    for seed in range(2):
        found = subsets.estimate(sizes, rng_of(seed), subsets.estimator(sizes))
        sample = subsets.drawn(sizes, rng_of(seed))
        fitted = vcomp.fit(formula, frame_of_rows(frame, sample), method=method)
        size = np.abs(fitted.vcomp).max()
        np.testing.assert_allclose(found.values, fitted.vcomp, rtol=0.0, atol=tolerance * size)
        mean = found.beta + subsets.design.origin
        np.testing.assert_allclose(mean, fitted.fe_params, rtol=1e-6)
        for facet, n in sizes.items():
            assert fitted.design.sizes[facet] == n or fitted.design.nested_in[facet]


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_the_table_draws_the_same_levels_as_the_rows(name, sizes):
    subsets = subsets_of(*balanced(name, 5), sizes)
    assert subsets.table is not None
    for seed in range(5):
        by_rows = subsets.drawn(sizes, rng_of(seed))
        by_table = subsets._rows(subsets._chosen(sizes, rng_of(seed)))
        np.testing.assert_array_equal(by_rows.rows, by_table.rows)
        scores = subsets.table.take(subsets._chosen(sizes, rng_of(seed))).ravel()
        own = subsets.fit.stats.rows.y[by_rows.rows]
        np.testing.assert_array_equal(np.sort(scores), np.sort(own))


@pytest.mark.parametrize("name", ["crossed", "nested", "crossed and nested"])
def test_unbalanced_data(name):
    formula, frame = unbalanced(name, 3)
    sizes = {"a": 4}
    subsets = subsets_of(formula, frame, sizes, "reml")
    assert subsets.table is None
    assert subsets.estimator(sizes) is None
    found = subsets.estimate(sizes, rng_of(1), None)
    sample = subsets.drawn(sizes, rng_of(1))
    fitted = vcomp.fit(formula, frame_of_rows(frame, sample))
    np.testing.assert_allclose(found.values, fitted.vcomp, rtol=1e-5, atol=1e-9)
    assert frame_of_rows(frame, sample)["a"].nunique() == 4


def test_reml_at_its_bound_is_not_the_analysis_of_variance():
    formula, frame = balanced("crossed", 1, scale=0.0)
    subsets = subsets_of(formula, frame, {"a": 3, "b": 3}, "reml")
    assert subsets.table is not None
    at_bound = 0
    for seed in range(8):
        found = subsets.estimate(
            {"a": 3, "b": 3}, rng_of(seed), subsets.estimator({"a": 3, "b": 3})
        )
        sample = subsets.drawn({"a": 3, "b": 3}, rng_of(seed))
        fitted = vcomp.fit(formula, frame_of_rows(frame, sample))
        np.testing.assert_allclose(found.values, fitted.vcomp, rtol=1e-5, atol=1e-7)
        at_bound += bool((fitted.vcomp == 0.0).any())
    assert at_bound > 0


def test_negative_components_are_dropped_where_the_fit_drops_them():
    formula, frame = balanced("crossed", 1, scale=0.0)
    subsets = subsets_of(formula, frame, {"a": 3, "b": 3}, "anova", negative="refit")
    for seed in range(10):
        found = subsets.estimate(
            {"a": 3, "b": 3}, rng_of(seed), subsets.estimator({"a": 3, "b": 3})
        )
        sample = subsets.drawn({"a": 3, "b": 3}, rng_of(seed))
        fitted = vcomp.fit(formula, frame_of_rows(frame, sample), method="anova", negative="refit")
        np.testing.assert_allclose(found.values, fitted.vcomp, rtol=1e-9, atol=1e-12)
        assert (found.values >= 0.0).all()


def test_covariates_and_held_components_are_fitted_by_rows():
    formula, frame = balanced("crossed", 1)
    held = subsets_of(formula, frame, {"a": 4}, "reml", hold={"b": 2.0})
    assert held.table is None
    assert held.estimate({"a": 4}, rng_of(0), None).values[1] == 2.0
    frame["x"] = np.arange(len(frame)) % 5
    covariate = subsets_of("y ~ x + (1|a) + (1|b)", frame, {"a": 4}, "reml")
    assert covariate.table is None
    found = covariate.estimate({"a": 4}, rng_of(0), None)
    sample = covariate.drawn({"a": 4}, rng_of(0))
    fitted = vcomp.fit("y ~ x + (1|a) + (1|b)", frame_of_rows(frame, sample))
    np.testing.assert_allclose(found.values, fitted.vcomp, rtol=1e-5)


def test_terms_that_are_not_closed_are_estimated_by_rows():
    _, frame = balanced("three facets", 1)
    formula = "y ~ (1|a:b) + (1|b:c)"
    assert subsets_of(formula, frame, {"a": 3}, "anova").table is not None
    assert subsets_of(formula, frame, {"a": 3}, "reml").table is None
    assert subsets_of(formula, frame, {"a": 3}, "henderson3").table is None


def test_levels_are_drawn_without_replacement_and_evenly():
    counts = np.array([5, 5, 2])
    drawn = np.array([draw_levels(counts, 2, rng_of(seed)) for seed in range(3000)])
    assert (drawn[:, :, 0] < drawn[:, :, 1]).all()
    assert (drawn[:, 2] == [0, 1]).all()
    # Each of five levels is drawn with probability 2/5: 1,200 of 3,000, within five standard
    # errors of √(3000 · 0.4 · 0.6) = 27.
    for group in range(2):
        assert np.abs(np.bincount(drawn[:, group].ravel(), minlength=5) - 1200).max() < 135


def test_a_subset_in_which_levels_are_missing_is_a_failure():
    frame = balanced("crossed", 1)[1]
    # b = 0 is seen by a = 0 only: without it seven or eight of nine b are left.
    frame = frame[(frame["a"] == 0) | (frame["b"] != 0)]
    subsets = subsets_of("y ~ (1|a) + (1|b)", frame, {"a": 3, "b": 9}, "reml")
    outcomes = [subsets.estimate({"a": 3, "b": 9}, rng_of(seed), None) for seed in range(12)]
    failed = [o for o in outcomes if o.reason is not None]
    assert 0 < len(failed) < 12
    assert "only 8 levels of b are left" in failed[0].reason
    assert np.isnan(failed[0].values).all()
