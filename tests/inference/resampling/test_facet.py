"""Brennan's bootstrap: every resample of small tables, against frames that are put together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.clock import ticking
from tests.helpers.refits import fit_again, table
from vcomp.gtheory.published import from_components
from vcomp.inference.resampling.collection import GeneratingFit
from vcomp.inference.resampling.facet import (
    adjusted,
    check_levels,
    expectation,
    facet_bootstrap,
)
from vcomp.inference.resampling.replicates import Replicates
from vcomp.inference.resampling.row_samples import Levels, Sample, _without_unused

DRAWN = [
    ("p x i", "p"),
    ("p x i", "i"),
    ("p x i, replicated", "p"),
    ("i : p", "p"),
    ("p x (i:h)", "p"),
    ("p x (i:h)", "h"),
    ("p x (i:h)", "i"),
    ("p x i x h", "p"),
    ("p x i x h", "h"),
    ("(p:c) x i", "c"),
    ("(p:c) x i", "p"),
    ("(p:c) x i", "i"),
]
"""Designs with a facet; each has at most 256 resamples."""


def all_choices(levels):
    """Return every resample of levels within their groups but for their order, and how many it is.

    Of the orders in which the same levels may be drawn, one is taken at random.
    """
    orders = defaultdict(list)
    for chosen in product(*map(range, levels.first, levels.last)):
        orders[tuple(sorted(chosen))].append(np.array(chosen))
    rng = np.random.default_rng(7)
    return [(same[rng.integers(len(same))], len(same)) for same in orders.values()]


def levels_of(design, sample, facet):
    return Levels.of(sample, design.structure.facets, design.structure.nested_in, facet)


def every_resample(fit, design, facets, sample=None):
    """Return the estimates of all resamples of some facets, one drawn after the other.

    Beside them stands how many resamples have each of them.
    """
    sample = Sample.whole(fit.stats.rows) if sample is None else sample
    if not facets:
        values = fit.refit(design, lambda: sample.statistics(design, fit.stats.rows)).values
        return values[None, :], np.ones(1)
    levels = levels_of(design, sample, facets[0])
    values, times = [], []
    for chosen, n in all_choices(levels):
        of_others, n_others = every_resample(fit, design, facets[1:], levels.take(sample, chosen))
        values.append(of_others)
        times.append(n * n_others)
    return np.concatenate(values), np.concatenate(times)


@pytest.mark.parametrize(("name", "facet"), DRAWN)
def test_over_all_resamples_adjusted_estimates_are_those_of_the_data(name, facet):
    fit, design, components, res = fit_again(*table(name))
    values, times = every_resample(fit, design, [facet])
    estimates = res.vcomp.to_numpy()
    scale = np.abs(estimates).max()
    expected = expectation(components, facet) @ estimates
    plain = np.average(values, axis=0, weights=times)
    np.testing.assert_allclose(plain, expected, rtol=0, atol=1e-12 * scale)
    mean = np.average(adjusted(values, components, [facet]), axis=0, weights=times)
    np.testing.assert_allclose(mean, estimates, rtol=0, atol=1e-12 * scale)
    assert np.abs(plain - estimates).max() > 0.01 * scale


@pytest.mark.parametrize(
    ("name", "facets"),
    [("p x i", ["p", "i"]), ("p x (i:h)", ["h", "i"]), ("(p:c) x i", ["i", "p"])],
)
def test_of_several_facets_too(name, facets):
    formula, frame = table(name)
    first, fewer = {"p x i": ("p", 3), "p x (i:h)": ("h", 2), "(p:c) x i": ("c", 2)}[name]
    fit, design, components, res = fit_again(formula, frame[frame[first] < fewer])
    values, times = every_resample(fit, design, facets)
    mean = np.average(adjusted(values, components, facets), axis=0, weights=times)
    np.testing.assert_allclose(mean, res.vcomp, rtol=0, atol=1e-12 * res.vcomp.abs().max())


def test_without_all_terms_the_expectation_is_that_under_the_model():
    # E y'By under V = Σ σ² z z' is Σ σ² z'Bz: estimates of data that are columns of Z.
    _, frame = table("p x i, replicated")
    frame = frame[frame.i < 3]
    variances = np.array([0.7, 1.3, 2.0])
    expected = np.zeros(3)
    groups = [frame.p, frame.i, np.arange(len(frame))]
    for variance, codes in zip(variances, groups, strict=True):
        for group in np.unique(codes):
            data = frame.assign(y=(codes == group).astype(float))
            fit, design, components, _ = fit_again("y ~ (1|p) + (1|i)", data)
            values, times = every_resample(fit, design, ["p"])
            expected += variance * np.average(values, axis=0, weights=times)
    found = expectation(components, "p") @ variances
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def put_together(frame, chosen, facet, outer, inner):
    """Return the rows of chosen (outer …, level) combinations, with labels of their own."""
    parts = []
    for slot, key in enumerate(chosen):
        rows = frame[(frame[[*outer, facet]] == list(key)).all(axis=1)].copy()
        for column in inner:
            rows[column] = [f"{slot}/{x}" for x in rows[column]]
        parts.append(rows.assign(**{facet: f"slot {slot}"}))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
@pytest.mark.parametrize(
    ("name", "facet", "outer", "inner", "method"),
    [
        ("p x i", "p", (), (), "anova"),
        ("p x (i:h)", "h", (), ("i",), "reml"),
        ("p x (i:h)", "i", ("h",), (), "anova"),
        ("p x (i:h)", "i", ("h",), (), "reml"),
        ("(p:c) x i", "c", (), ("p",), "anova"),
    ],
)
def test_a_resample_is_the_fit_of_its_rows(name, facet, outer, inner, method):
    formula, frame = table(name, seed=1)
    frame = frame.drop(index=5).reset_index(drop=True)  # unbalanced
    fit, design, _, _ = fit_again(formula, frame, method)
    sample = Sample.whole(fit.stats.rows)
    levels = levels_of(design, sample, facet)
    keys = frame[[*outer, facet]].drop_duplicates().sort_values([*outer, facet]).to_numpy()
    rng = np.random.default_rng(2)
    for _ in range(2):
        chosen = levels.draw(rng)
        stats = levels.take(sample, chosen).statistics(design, fit.stats.rows)
        found = fit.refit(design, lambda stats=stats: stats)
        data = put_together(frame, keys[chosen], facet, outer, inner)
        res = vcomp.fit(formula, data, method=method)
        # REML stops where the decrement is 1e-8 standard errors.
        atol = (1e-11 if method == "anova" else 1e-6) * res.vcomp.abs().max()
        np.testing.assert_allclose(found.values, res.vcomp, rtol=0, atol=atol)
        beta = fit.uncentre(found.beta)
        np.testing.assert_allclose(beta, res.fe_params, rtol=1e-7)
        if method == "reml":
            assert found.llf == pytest.approx(res.llf, abs=1e-8)


def test_wiley_adjustments_of_two_crossed_facets():
    n, m = 7.0, 4.0
    g = from_components({"p": 1.0, "i": 1.0, "pi": 1.0}, sizes={"p": n, "i": m}).components
    p, i, pi = 0.3, 0.5, 2.0
    values = np.array([[p, i, pi]])
    boot_p = [n / (n - 1) * p, i - pi / (n - 1), n / (n - 1) * pi]
    np.testing.assert_allclose(adjusted(values, g, ["p"])[0], boot_p, rtol=1e-13)
    boot_i = [p - pi / (m - 1), m / (m - 1) * i, m / (m - 1) * pi]
    np.testing.assert_allclose(adjusted(values, g, ["i"])[0], boot_i, rtol=1e-13)
    both = [
        n / (n - 1) * (p - pi / (m - 1)),
        m / (m - 1) * (i - pi / (n - 1)),
        n / (n - 1) * m / (m - 1) * pi,
    ]
    np.testing.assert_allclose(adjusted(values, g, ["p", "i"])[0], both, rtol=1e-13)


def test_what_is_within_the_levels_drawn_is_as_it_was():
    # i within h: σ²(i:h) does not depend on which h there are.
    _, _, components, _ = fit_again(*table("p x (i:h)"))
    A = expectation(components, "h")
    place = components.names.index("h:i")
    np.testing.assert_allclose(A[place], np.eye(len(A))[place], atol=1e-14)


# The bootstrap itself ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crossed():
    formula, frame = table("p x i")
    rng = np.random.default_rng(3)
    frame = pd.DataFrame([(p, i) for p in range(12) for i in range(8)], columns=["p", "i"])
    y = rng.normal(size=96) + rng.normal(size=12)[frame.p] + rng.normal(size=8)[frame.i]
    return fit_again(formula, frame.assign(y=y))


def test_the_mean_of_adjusted_replicates_is_the_estimate(crossed):
    fit, design, components, res = crossed
    found = facet_bootstrap(fit, design, components, "p", 100, rng=1)
    assert found.kind == "facet bootstrap"
    assert found.adjusted is not None
    se = found.adjusted.std(axis=0) / np.sqrt(100.0)
    assert (np.abs(found.adjusted.mean(axis=0) - res.vcomp.to_numpy()) < 4.0 * se).all()
    expected = expectation(components, "p") @ res.vcomp.to_numpy()
    assert (np.abs(found.values.mean(axis=0) - expected) < 4.0 * se).all()
    np.testing.assert_allclose(found.beta.mean(), res.fe_params.iloc[0], atol=0.1)
    assert found.converged.all()
    assert "adjusted(p)" in found.frame


def test_the_numbers_are_the_same_for_any_number_of_workers(crossed):
    fit, design, components, _ = crossed
    one = facet_bootstrap(fit, design, components, ["i", "p"], 40, rng=5)
    two = facet_bootstrap(fit, design, components, ("p", "i"), 40, rng=5, workers=2)
    assert (one.values == two.values).all()
    fewer = facet_bootstrap(fit, design, components, ["p", "i"], 10, rng=5, adjust=False)
    assert (fewer.values == one.values[:10]).all()
    assert fewer.adjusted is None


def test_a_saved_bootstrap_is_continued(crossed, tmp_path):
    fit, design, components, _ = crossed
    path = tmp_path / "replicates"
    facet_bootstrap(fit, design, components, "p", 10, rng=5, path=path)
    made = []

    class Counting(GeneratingFit):
        def refit(self, *arguments):
            made.append(1)
            return super().refit(*arguments)

    counting = Counting(**{field.name: getattr(fit, field.name) for field in fields(fit)})
    found = facet_bootstrap(counting, design, components, "p", 25, rng=5, path=path)
    assert len(made) == 15
    whole = facet_bootstrap(fit, design, components, "p", 25, rng=5)
    assert (found.values == whole.values).all()
    assert (found.adjusted == whole.adjusted).all()
    assert len(Replicates.load(path)) == 25
    with pytest.raises(vcomp.VcompError, match="their facets is"):
        facet_bootstrap(fit, design, components, "i", 25, rng=5, path=path)
    with pytest.raises(vcomp.VcompError, match="from seed 5, and the seed here is 6"):
        facet_bootstrap(fit, design, components, "p", 25, rng=6, path=path)


def few_of_one(n_p):
    """Return data in which q has a second level in the first p only."""
    rows = [(p, 0, k) for p in range(n_p) for k in range(4)] + [(0, 1, k) for k in range(4)]
    frame = pd.DataFrame(rows, columns=["p", "q", "k"])
    return frame.assign(y=np.random.default_rng(0).normal(size=len(frame)))


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
def test_resamples_that_cannot_be_fitted_are_counted_with_their_reason():
    fit, design, components, _ = fit_again("y ~ (1|p) + (1|q)", few_of_one(5))
    with pytest.warns(vcomp.VcompWarning, match="only one level of facet 'q' is left") as seen:
        found = facet_bootstrap(fit, design, components, "p", 60, rng=0, adjust=False)
    failed = int((~found.converged).sum())
    # (4/5)⁵ = .33 of the resamples are without the first p.
    assert 10 <= failed <= 30
    assert np.isnan(found.values[~found.converged]).all()
    assert np.isfinite(found.values[found.converged]).all()
    assert any(f"{failed} of 60 resamples could not be fitted" in str(w.message) for w in seen)


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_resamples_without_residual_are_failures(method):
    """Where one p is drawn only, nothing is left beside i: the likelihood has no maximum."""
    rows = pd.DataFrame(list(product("pqr", "abcd")), columns=["p", "i"])
    rows["y"] = np.random.default_rng(5).normal(size=12)
    fit, design, components, _ = fit_again("y ~ (1|p) + (1|i)", rows, method)
    with pytest.warns(vcomp.VcompWarning, match="resamples could not be fitted"):
        found = facet_bootstrap(fit, design, components, "p", 60, rng=0, adjust=False)
    # (1/3)² = .11 of the resamples hold one p only.
    assert 2 <= (~found.converged).sum() <= 15


def test_a_constant_response_has_no_resamples():
    rows = pd.DataFrame(list(product("pqr", "abcd")), columns=["p", "i"]).assign(y=1.0)
    with pytest.warns(vcomp.VcompWarning, match="the response is constant"):
        fit, design, components, _ = fit_again("y ~ (1|p) + (1|i)", rows, "reml")
    with pytest.raises(vcomp.EstimationError, match="residual is estimated at zero"):
        facet_bootstrap(fit, design, components, "p", 20, rng=0, adjust=False)


def test_a_time_limit_says_how_far_it_came(crossed, monkeypatch):
    ticking(monkeypatch, 0.01)
    fit, design, components, _ = crossed
    with pytest.warns(vcomp.VcompWarning, match=r"time limit of .* ended .* of 100,000 resamples"):
        found = facet_bootstrap(fit, design, components, "p", 100_000, time_limit=0.05)
    assert 0 < len(found) < 100_000


@pytest.mark.filterwarnings("ignore:.*not fully crossed")
def test_what_is_approximate_is_noted(crossed, tmp_path):
    fit, design, components, _ = crossed
    assert facet_bootstrap(fit, design, components, "p", 5).notes == ()
    formula, frame = table("p x i")
    frame["y"] = np.random.default_rng(0).normal(size=len(frame)) + 5.0 * frame.i
    clear = frame.assign(y=frame["y"] + 5.0 * frame.p)
    found = facet_bootstrap(*fit_again(formula, clear, "reml")[:3], "p", 5, rng=1)
    assert (found.values > 0.0).all()
    assert found.notes == ()
    fewer = frame.drop(index=3)
    found = facet_bootstrap(*fit_again(formula, fewer, "ml")[:3], "p", 20)
    said = "; ".join(found.notes)
    assert "uses mean sizes here" in said
    assert "estimates at their bound 0" in said
    assert "those of ML are not" in said
    found.save(tmp_path / "made")
    assert Replicates.load(tmp_path / "made").notes == found.notes


@pytest.mark.parametrize(
    ("facets", "options", "words"),
    [
        (
            "pp",
            {},
            r"'pp' is not a facet of the random part \(did you mean 'p'\?\), which has p, i",
        ),
        (["p", "p"], {}, "facet 'p' is given twice"),
        ([], {}, "no facet is given; facets are p, i"),
        ("p", {"n": 0}, "n must be a whole number of at least 1, not 0"),
        ("p", {"adjust": "yes"}, "adjust must be True or False, not 'yes'"),
        ("p", {"rng": -1}, "rng must be a seed of at least 0"),
        ("p", {"workers": 0}, "workers must be a whole number of at least 1"),
        ("p", {"time_limit": -1}, "time_limit must be a positive number of seconds"),
    ],
)
def test_what_is_refused(crossed, facets, options, words):
    fit, design, components, _ = crossed
    with pytest.raises(vcomp.VcompError, match=words):
        facet_bootstrap(fit, design, components, facets, **options)


def test_a_column_of_the_fixed_part_is_not_drawn():
    _, frame = table("p x i")
    frame["x"] = np.arange(len(frame)) % 5
    fit, design, components, _ = fit_again("y ~ x + (1|p) + (1|i)", frame, "reml")
    message = r"'x' is not a facet .* a column of the fixed part"
    with pytest.raises(vcomp.VcompError, match=message):
        facet_bootstrap(fit, design, components, "x")


def test_an_unknown_facet_beside_an_interaction_of_the_fixed_part():
    _, frame = table("p x i")
    frame["x"], frame["z"] = np.arange(len(frame)) % 5, np.arange(len(frame)) % 3
    fit, design, components, _ = fit_again("y ~ x:z + (1|p) + (1|i)", frame, "reml")
    with pytest.raises(vcomp.VcompError, match="'q' is not a facet of the random part"):
        facet_bootstrap(fit, design, components, "q")


def test_fewer_than_two_levels_are_refused():
    _, design, _, _ = fit_again(*table("p x i"))
    codes = np.repeat(np.arange(3, dtype=np.int32), 2)
    sample = Sample(np.arange(6), (codes, codes), (3, 3))
    nested = {"p": frozenset(), "i": frozenset({"p"})}
    levels = Levels.of(sample, ("p", "i"), nested, "i")
    design = replace(design, structure=replace(design.structure, nested_in=nested))
    with pytest.raises(vcomp.VcompError, match="facet 'i' has one level within each p"):
        check_levels(design, levels)
    check_levels(design, Levels.of(sample, ("p", "i"), nested, "p"))


@pytest.mark.parametrize(
    ("levels", "n", "expected"),
    [([0, 0, 2, 3, 3], 5, [0, 0, 1, 2, 2]), ([1, 0, 2], 3, [1, 0, 2]), ([4], 6, [0])],
)
def test_levels_that_occur_are_numbered_anew(levels, n, expected):
    found, size = _without_unused(np.array(levels), n)
    assert found.tolist() == expected
    assert size == max(expected) + 1
