"""Columns of the fixed part and components that the data cannot distinguish."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vcomp
from tests.helpers.dependent import nearly_dependent
from tests.helpers.designs import DESIGNS, balanced, unbalanced
from vcomp.estimators import identify
from vcomp.estimators.identify import _check_slopes, _covariate, check_digits, find_left_out
from vcomp.estimators.likelihood import residual_forms
from vcomp.exceptions import DataError, DesignError


@pytest.mark.parametrize("value", [1e6 / 3.0, 0.1, -7e-5])
def test_a_column_that_varies_by_rounding_is_constant(value):
    """Its centred squares are positive, and no other column explains them."""
    rng = np.random.default_rng(0)
    x = value + np.repeat([0.0, 1.0, 0.0], 7) * np.spacing(value)
    data = pd.DataFrame({"y": rng.normal(size=21), "a": np.tile(np.arange(7), 3), "x": x})
    assert data["x"].nunique() == 2
    with pytest.warns(vcomp.VcompWarning, match=r"column 'x' .* was left out"):
        assert vcomp.fit("y ~ x + (1|a)", data).fe_params.shape == (1,)
    # A million times as much is a covariate.
    data["x"] = value + np.repeat([0.0, 1.0, 0.0], 7) * 1e6 * np.spacing(value)
    assert vcomp.fit("y ~ x + (1|a)", data).fe_params.shape == (2,)


# Digits that are left ---------------------------------------------------------------------------


def stats_of(X, n=None):
    """Return what the checks read: cross-products of columns of rows."""
    n = len(X) if n is None else n
    cells = SimpleNamespace(columns=X)
    sums = SimpleNamespace(n=n, XX=X.T @ X)
    return SimpleNamespace(n=n, mean_weight=1.0, sums=sums, needed_wide=None, cells=cells)


def test_scores_without_intercept_keep_nine_digits_of_their_variation():
    """The share of a square that varies is 1e-5 or more: n mean² is 1e5 times the squares."""
    X = np.ones((10, 1))
    for mean, is_refused in ((99.9, False), (100.1, True), (-100.1, True)):
        squares = 10.0 * 100.0**2 * 1e-5
        arguments = stats_of(X), ["x"], "y", (mean, squares)
        if is_refused:
            words = r"response 'y' varies by 0.32 about -?100.1, and the model has no intercept"
            with pytest.raises(DataError, match=words):
                check_digits(*arguments)
        else:
            check_digits(*arguments)
    check_digits(stats_of(X), ["x"], "y", (1e9, 0.0))  # a constant response has its own message


@pytest.mark.parametrize(("away", "is_refused"), [(0.9, True), (1.1, False), (1e-4, False)])
def test_columns_without_intercept_differ_by_more_than_rounding(away, is_refused):
    """On a unit diagonal the least eigenvalue of two columns is 1 − r; the limit is 1e-5."""
    angle = np.arccos(1.0 - away * 1e-5)
    X = np.zeros((4, 3))
    X[0, :2], X[1, 1], X[2, 2] = [1.0, np.cos(angle)], np.sin(angle), 50.0
    arguments = stats_of(X * [1.0, 1e3, 1.0]), ["u", "v", "w"], "y", (0.0, 1.0)
    if away == 1e-4:  # less than rounding is left of: dependence has another message
        X[1, 1] = 1e-8
        arguments = stats_of(X), *arguments[1:]
    if is_refused:
        with pytest.raises(DataError, match=r"columns 'u', 'v' of the fixed part differ by less"):
            check_digits(*arguments)
    else:
        check_digits(*arguments)
    check_digits(stats_of(np.zeros((3, 1))), ["u"], "y", (0.0, 1.0))
    check_digits(stats_of(np.zeros((3, 0))), [], "y", (0.0, 1.0))


@pytest.mark.parametrize(("away", "is_refused"), [(0.9, True), (1.1, False), (1e-6, False)])
def test_slopes_by_level_of_a_covariate_far_from_zero(away, is_refused):
    angle = np.arccos(1.0 - away * 1e-6)
    X = np.array([[1.0, np.cos(angle), 0.0], [0.0, np.sin(angle), 0.0], [0.0, 0.0, 2.0]])
    names, origin = ["Intercept", "g[u]:x", "g[v]:x"], np.array([0.0, 3.0, 3.0])
    if is_refused:
        with pytest.raises(
            DataError, match=r"columns 'Intercept', 'g\[u\]:x' of .* as 'x' is far"
        ):
            _check_slopes(stats_of(X), names, origin)
    else:
        _check_slopes(stats_of(X), names, origin)
    # Without an origin, of other columns, and of columns of zeros there is nothing to refuse.
    _check_slopes(stats_of(X), names, np.zeros(3))
    _check_slopes(stats_of(X), ["Intercept", "x", "g[u]"], origin)
    _check_slopes(stats_of(np.zeros((3, 3))), names, origin)


@pytest.mark.parametrize(
    ("name", "covariate"),
    [
        ("g[u]:x", "x"),
        ("x:g[u]", "x"),
        ("x:g[u]:z", "x:z"),
        ("g[u]:h[v]", ""),
        ("x:z", ""),
        ("x", ""),
        ("g[u]", ""),
    ],
)
def test_covariates_of_slopes(name, covariate):
    assert _covariate(name) == covariate


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.sampled_from([None, "sum", "zero", "far"]))
def test_a_dependent_column_is_left_out_with_its_weights(p, seed, kind):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(p + 4, p))
    names, origin = [f"x{j}" for j in range(p)], np.zeros(p)
    constant = np.zeros(p)
    if kind is None:
        assert find_left_out(stats_of(X), names, origin, constant) is None
        return
    used = [j for j in range(p) if rng.random() < 0.6] if kind == "sum" else []
    weights = rng.choice([-2.0, 1.0, 3.0], len(used))
    if kind == "sum" and not used:
        return
    origin, constant = np.append(origin, 2.0 if kind == "far" else 0.0), np.zeros(p + 1)
    more = X[:, used] @ weights if kind == "sum" else np.zeros(len(X))
    X, expected = np.column_stack([X, more]), np.zeros(p)
    expected[used] = weights if kind == "sum" else 0.0
    names.append("more")
    if kind == "far":  # a constant other than zero
        X, names, origin = (np.column_stack([np.ones(len(X)), X - X.mean(axis=0)]),
                            ["Intercept", *names], np.append(0.0, origin))  # fmt: skip
        constant, expected = np.append(1.0, constant), np.append(2.0, expected)
    found, kept = find_left_out(stats_of(X), names, origin, constant)
    assert found.left_out_names == ("more",)
    np.testing.assert_allclose(found.weights[:, 0], expected, rtol=1e-9)
    np.testing.assert_array_equal(kept, constant[:-1])


class Sums:
    """What is read of terms: group sizes, and which are finer than which."""

    def __init__(self, *group_n, same=()):
        self.group_n, self.n = group_n, int(sum(group_n[0]))
        self.sizes, self._same = tuple(map(len, group_n)), same

    def group_squares(self, term):
        return float(np.square(self.group_n[term]).sum())

    def is_finer(self, t, u):
        return (t, u) in self._same


def check_terms(monkeypatch, forms, sums, names):
    monkeypatch.setattr(identify, "residual_forms", lambda _: np.array(forms))
    stats = SimpleNamespace(sums=sums, needed_wide=None, blocks=None, mean_weight=1.0)
    identify._check_terms(stats, names, knows_residual=False)


def test_terms_whose_differences_the_fixed_part_explains(monkeypatch):
    """What is left is rounding: a share of 1e-11 of Σ n² or less."""
    sums = Sums([30.0, 50.0, 20.0], [60.0, 40.0])
    squares = 30.0**2 + 50.0**2 + 20.0**2
    for share, is_refused in ((0.9e-11, True), (1.1e-11, False), (0.0, True)):
        forms = np.diag([share * squares, 7.0, 3.0])
        if is_refused:
            with pytest.raises(DesignError, match=r"term 'a' is confounded .* out \(1\|a\) or"):
                check_terms(monkeypatch, forms, sums, ["a", "b"])
        else:
            check_terms(monkeypatch, forms, sums, ["a", "b"])


def test_terms_with_the_same_groups_are_confounded(monkeypatch):
    groups = [30.0, 50.0, 20.0]
    for same, other, is_refused in (
        ({(0, 1), (1, 0)}, groups, True),
        ({(0, 1)}, groups, False),
        ({(1, 0)}, groups, False),
        ({(0, 1), (1, 0)}, [50.0, 50.0], False),
    ):
        sums = Sums(groups, other, same=same)
        if is_refused:
            with pytest.raises(DesignError, match="terms 'a' and 'b' are confounded: they group"):
                check_terms(monkeypatch, np.eye(3), sums, ["a", "b"])
        else:
            check_terms(monkeypatch, np.eye(3), sums, ["a", "b"])


@pytest.mark.parametrize(("least", "is_refused"), [(0.9e-11, True), (1.2e-11, False)])
def test_components_whose_matrices_are_dependent_are_named(monkeypatch, least, is_refused):
    r, units = 1.0 - least, np.array([50.0, 0.1, 3.0])
    forms = np.array([[1.0, 0.0, r], [0.0, 1.0, 0.0], [r, 0.0, 1.0]]) * np.outer(units, units)
    arguments = monkeypatch, forms, Sums([1.0, 2.0], [2.0, 1.0]), ["a", "b"]
    if is_refused:
        with pytest.raises(DesignError, match="the variances of a, Residual: their covariance"):
            check_terms(*arguments)
    else:
        check_terms(*arguments)


@pytest.mark.parametrize("fixed", ["1", "0", "x"])
@pytest.mark.parametrize("name", sorted(DESIGNS))
@pytest.mark.parametrize("make", [balanced, unbalanced])
def test_forms_of_residuals_are_those_of_dense_matrices(name, make, fixed):
    """tr(Q V_t Q V_u) with Q = I − X(X'X)⁻¹X': of strata, of crossed facets and of blocks."""
    formula, data = make(name)
    data = data.assign(x=np.random.default_rng(1).normal(size=len(data)))
    model = vcomp.VarianceComponentsModel(formula.replace("~", f"~ {fixed} +"), data)
    chunk, n = model.statistics.rows, model.nobs
    X = chunk.X
    Q = np.eye(n) - X @ np.linalg.pinv(X)
    V = [np.equal.outer(codes, codes).astype(float) for codes in chunk.codes] + [np.eye(n)]
    expected = [[np.sum((Q @ a @ Q) * b) for b in V] for a in V]
    found = residual_forms(model.statistics)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("share", "named"), [(0.9, "'u', 'v'"), (1.5, "'u', 'v', 'w'")])
def test_columns_are_named_from_a_share_of_a_thousandth(share, named):
    units = np.outer([3.0, 0.5, 20.0], [3.0, 0.5, 20.0])
    stats = stats_of(np.ones((5, 3)))
    stats.sums.XX = nearly_dependent(5e-6, share * 1e-3) * units
    with pytest.raises(DataError, match=f"columns {named} of the fixed part differ"):
        check_digits(stats, ["u", "v", "w"], "y", (0.0, 1.0))
    stats.sums.XX = nearly_dependent(5e-7, share * 1e-3) * units
    names = {"u": "g[u]:x", "v": "g[v]:x", "w": "g[w]:x"}
    expected = re.escape(", ".join(repr(x) for k, x in names.items() if k in named))
    with pytest.raises(DataError, match=f"columns {expected} of the fixed part differ"):
        _check_slopes(stats, list(names.values()), np.full(3, 3.0))


@pytest.mark.parametrize(("share", "named"), [(0.9, "a, b"), (1.5, "a, b, Residual")])
def test_components_are_named_from_a_share_of_a_ten_thousandth(monkeypatch, share, named):
    forms = nearly_dependent(5e-12, share * 1e-4)
    with pytest.raises(DesignError, match=f"the variances of {named}: their covariance"):
        check_terms(monkeypatch, forms, Sums([1.0, 2.0], [2.0, 1.0]), ["a", "b"])
