"""Where data are balanced the quadratic estimators are one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.cases import alternately
from tests.helpers.designs import DESIGNS, UNBALANCED, balanced
from tests.helpers.examples import examples

CLOSED = [
    ("type1", {}),
    ("henderson3", {}),
    ("minque", {"prior": 0}),
    ("minque", {}),
    ("minque", {"iterated": True}),
]


@given(case=UNBALANCED, scale=st.sampled_from([0.0, 0.3, 2.0, 10.0]))
@settings(max_examples=examples(15), deadline=None)
def test_all_methods_coincide_on_balanced_data(case, scale):
    name, seed = case
    formula, data = balanced(name, seed, scale=scale)
    model = vcomp.VarianceComponentsModel(formula, data)
    by_anova = model.fit("anova")
    total = np.abs(by_anova.vcomp).max()
    k = len(by_anova.vcomp)
    given_prior = {"prior": np.random.default_rng(seed).uniform(0.1, 2.0, size=k)}
    for method, options in [*CLOSED, ("minque", given_prior)]:
        res = model.fit(method, **options)
        shown = f"{method} {options}"
        np.testing.assert_allclose(
            res.vcomp, by_anova.vcomp, rtol=1e-8, atol=1e-9 * total, err_msg=shown
        )
        np.testing.assert_allclose(res.bse_vcomp, by_anova.bse_vcomp, rtol=1e-7, err_msg=shown)
        np.testing.assert_allclose(res.fe_params, by_anova.fe_params, rtol=1e-9, err_msg=shown)
    if (by_anova.vcomp > 0.0).all():
        np.testing.assert_allclose(model.fit("reml").vcomp, by_anova.vcomp, rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "method", "options"),
    [
        (name, *how)
        for first in (CLOSED, CLOSED[3:] + CLOSED[:3])
        for name, how in alternately(sorted(DESIGNS), *first)
    ],
)
def test_results_print_and_travel(name, method, options):
    formula, data = balanced(name, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        res = vcomp.fit(formula, data, method=method, **options)
    again = vcomp.VarianceComponentsResults.from_json(res.to_json())
    np.testing.assert_array_equal(again.vcomp, res.vcomp)
    np.testing.assert_array_equal(again.cov_vcomp("sampling"), res.cov_vcomp())
    assert again.method == method
    assert str(again.summary()) == str(res.summary())
    assert "log-likelihood" not in str(res)
