"""Random slopes against the likelihood written with n × n matrices, on random small designs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import vcomp
from tests.helpers.cases import alternately
from vcomp.estimators.likelihood import MatricesLikelihood
from vcomp.estimators.likelihood.matrices_likelihood import mivque_elements
from vcomp.exceptions import DesignError, EstimationError


@dataclass(frozen=True)
class Bar:
    """A random term: its group and the columns of its effects, as names of the frame."""

    group: tuple[str, ...]
    columns: tuple[str, ...]


ONE = "Intercept"


class Dense:
    """The likelihood of a model with random slopes, from V and its inverse."""

    def __init__(self, frame, fixed, bars, *, reml):
        self.y = frame["y"].to_numpy(float)
        self.reml, self.n = reml, len(frame)
        both = frame.assign(**{ONE: 1.0})
        self.X = both[list(fixed)].to_numpy(float)
        self.Z, self.levels = [], []
        for bar in bars:
            codes = frame.groupby(list(bar.group), sort=True).ngroup().to_numpy()
            self.levels.append(codes)
            units = np.eye(codes.max() + 1)[codes]
            self.Z.append([units * both[[c]].to_numpy(float) for c in bar.columns])

    @cached_property
    def derivatives(self):
        """∂V by the elements of each Λ_t, row by row, then by the residual."""
        found = []
        for columns in self.Z:
            for a, Za in enumerate(columns):
                for b in range(a, len(columns)):
                    outer = Za @ columns[b].T
                    found.append(outer if a == b else outer + outer.T)
        return np.array([*found, np.eye(self.n)])

    def at(self, theta):
        """Return log-likelihood, β, (X'V⁻¹X)⁻¹, V⁻¹(y − Xβ) and P."""
        V = np.tensordot(theta, self.derivatives, 1)
        W = np.linalg.inv(V)
        C = np.linalg.inv(self.X.T @ W @ self.X)
        P = W - W @ self.X @ C @ self.X.T @ W
        beta = C @ self.X.T @ W @ self.y
        Py = P @ self.y
        deviance = np.linalg.slogdet(V)[1] + self.y @ Py
        n = self.n
        if self.reml:
            deviance -= np.linalg.slogdet(C)[1]
            n -= self.X.shape[1]
        return -0.5 * (deviance + n * np.log(2 * np.pi)), beta, C, Py, P, W

    def observed(self, theta):
        """Return the observed information of the elements."""
        _, _, _, Py, P, W = self.at(theta)
        moved = self.derivatives @ Py
        M = (P if self.reml else W) @ self.derivatives
        return moved @ P @ moved.T - 0.5 * np.einsum("iab,jba->ij", M, M)

    def satterthwaite(self, theta):
        """Return the degrees of freedom of each fixed effect."""
        _, _, C, _, _, W = self.at(theta)
        B = W @ self.X @ C
        slopes = np.einsum("np,jnm,mp->jp", B, self.derivatives, B)
        cov = np.linalg.inv(self.observed(theta))
        return 2.0 * np.diagonal(C) ** 2 / np.einsum("ip,ij,jp->p", slopes, cov, slopes)

    def effects(self, theta, bar):
        """Return predicted effects (levels, q), variances of û − u for β unknown and known."""
        first = 0
        for columns in self.Z[:bar]:
            first += len(columns) * (len(columns) + 1) // 2
        q = len(self.Z[bar])
        Lam = np.zeros((q, q))
        i, j = np.triu_indices(q)
        Lam[i, j] = Lam[j, i] = theta[first : first + i.size]
        _, _, _, Py, P, W = self.at(theta)
        crossed = [sum(Lam[a, c] * self.Z[bar][c] for c in range(q)) for a in range(q)]
        estimates = np.column_stack([Z.T @ Py for Z in crossed])
        variances = [
            np.column_stack(
                [Lam[a, a] - np.einsum("nl,nm,ml->l", Z, M, Z) for a, Z in enumerate(crossed)]
            )
            for M in (P, W)
        ]
        return estimates, *variances

    def highest(self, starts):
        """Return the highest log-likelihood that scipy finds from these starts of (L, log σ²)."""
        sizes = [len(columns) for columns in self.Z]

        def theta_of(x):
            found, first = [], 0
            for q in sizes:
                L = np.zeros((q, q))
                L[np.tril_indices(q)] = x[first : first + q * (q + 1) // 2]
                first += q * (q + 1) // 2
                found.append((L @ L.T)[np.triu_indices(q)])
            return np.concatenate([*found, [np.exp(x[-1])]])

        def deviance(x):
            return -self.at(theta_of(x))[0]

        ends = [minimize(deviance, x, method="BFGS", options={"gtol": 1e-7}) for x in starts]
        return max(-end.fun for end in ends)


FORMULAS = {
    "intercept and slope": ("y ~ x + (x|g)", (ONE, "x"), [Bar(("g",), (ONE, "x"))]),
    "uncorrelated": ("y ~ x + (x||g)", (ONE, "x"), [Bar(("g",), (ONE,)), Bar(("g",), ("x",))]),
    "slope alone": ("y ~ x + (0 + x|g)", (ONE, "x"), [Bar(("g",), ("x",))]),
    "three effects": ("y ~ 1 + (x + z|g)", (ONE,), [Bar(("g",), (ONE, "x", "z"))]),
    "no intercept": ("y ~ 0 + x + (x|g)", ("x",), [Bar(("g",), (ONE, "x"))]),
    "crossed": (
        "y ~ x + (x|g) + (1|h)",
        (ONE, "x"),
        [Bar(("g",), (ONE, "x")), Bar(("h",), (ONE,))],
    ),
    "slopes on both": (
        "y ~ x + z + (x|g) + (z|h)",
        (ONE, "x", "z"),
        [Bar(("g",), (ONE, "x")), Bar(("h",), (ONE, "z"))],
    ),
    "nested": (
        "y ~ x + (x|h/g)",
        (ONE, "x"),
        [Bar(("h",), (ONE, "x")), Bar(("h", "g"), (ONE, "x"))],
    ),
    "interaction": ("y ~ x + (x|g:h)", (ONE, "x"), [Bar(("g", "h"), (ONE, "x"))]),
    "two bars of a group": (
        "y ~ x + (x|g) + (0 + z|g)",
        (ONE, "x"),
        [Bar(("g",), (ONE, "x")), Bar(("g",), ("z",))],
    ),
    "factor": ("y ~ c + (c|g)", (ONE, "cb", "cc"), [Bar(("g",), (ONE, "cb", "cc"))]),
    "levels of a factor": (
        "y ~ c + (0 + c|g)",
        (ONE, "cb", "cc"),
        [Bar(("g",), ("ca", "cb", "cc"))],
    ),
    "product": ("y ~ x + (x:z|g)", (ONE, "x"), [Bar(("g",), (ONE, "xz"))]),
}  # fmt: skip


LARGE = 100
"""Seed of a frame with many levels and large variances, so that no maximum is singular."""


@cache
def frame_of(seed):
    """Return rows of two crossed facets, some missing, with covariates and one factor."""
    rng = np.random.default_rng(seed)
    levels = (24, 16) if seed == LARGE else (7, 5)
    g, h = (index.ravel() for index in np.indices(levels))
    repeats = 1 if seed == LARGE else 2
    g, h = np.tile(g, repeats), np.tile(h, repeats)
    kept = rng.random(g.size) < 0.8
    g, h = g[kept], h[kept]
    n = g.size
    x, z = rng.normal(size=n) * 2.0 + 3.0, rng.normal(size=n)
    c = rng.permutation(np.resize(["a", "b", "c"], n))
    sd = np.full(7, 1.5) if seed == LARGE else rng.choice([0.0, 0.3, 1.0, 2.0], size=7)

    def effects(size):
        return rng.normal(size=size)

    y = sd[0] * effects(levels[0])[g] + sd[1] * effects(levels[0])[g] * x
    y += sd[2] * effects(levels[1])[h] + sd[3] * effects(levels[1])[h] * z + effects(n)
    y += sd[4] * effects((levels[0], 3))[g, np.unique(c, return_inverse=True)[1]]
    y += sd[5] * effects(levels[0])[g] * z + sd[6] * effects(levels)[g, h]
    frame = pd.DataFrame(
        {"y": y, "g": [f"g{i}" for i in g], "h": [f"h{i}" for i in h], "x": x, "z": z, "c": c}
    )
    return frame.assign(xz=x * z, **{f"c{level}": (c == level) * 1.0 for level in "abc"})


@cache
def fitted(name, seed, method):
    """Return the fit of a formula, and its likelihood with n × n matrices."""
    text, fixed, bars = FORMULAS[name]
    frame = frame_of(seed)
    res = vcomp.VarianceComponentsModel(text, frame).fit(method)
    return res, Dense(frame, fixed, bars, reml=method == "reml"), bars


def elements_of(res, bars):
    """Return the elements of the matrices row by row, the residual last, from the names."""
    found = []
    for bar in bars:
        group = ":".join(bar.group)
        short = ["(Intercept)" if c == ONE else NAMES.get(c, c) for c in bar.columns]
        if ONE not in bar.columns:
            short = [name.replace("T.", "") for name in short]
        for a, one in enumerate(short):
            for b in range(a, len(short)):
                name = f"{group}[{one},{short[b]}]" if b > a else f"{group}[{one}]"
                found.append(res.vcomp[name.replace("[(Intercept)]", "")])
    return np.array([*found, res.vcomp["Residual"]])


NAMES = {"xz": "x:z", "ca": "c[a]", "cb": "c[T.b]", "cc": "c[T.c]"}


CASES = [(name, seed) for name in FORMULAS for seed in (0,)]


@pytest.mark.parametrize(("case", "method"), alternately(CASES, "reml", "ml"))
def test_value_and_fixed_effects(case, method):
    name, seed = case
    res, dense, bars = fitted(name, seed, method)
    loglike, beta, C, *_ = dense.at(elements_of(res, bars))
    assert res.converged
    assert res.llf == pytest.approx(loglike, abs=1e-8)
    np.testing.assert_allclose(res.fe_params, beta, rtol=1e-7)
    np.testing.assert_allclose(res.bse_fe, np.sqrt(np.diagonal(C)), rtol=1e-7)


@pytest.mark.parametrize(("case", "size"), alternately(CASES, 0.3, 1.5))
def test_no_higher_point(case, size):
    name, seed = case
    res, dense, _ = fitted(name, seed, "reml")
    rng, sizes = np.random.default_rng(1), [len(columns) for columns in dense.Z]
    lower = [np.eye(q)[np.tril_indices(q)] for q in sizes]
    start = [*(size * (L + 0.1 * rng.normal(size=L.size)) for L in lower), [0.0]]
    assert dense.highest([np.concatenate(start)]) <= res.llf + 1e-6


@pytest.mark.parametrize(("case", "method"), alternately(CASES, "reml", "ml"))
def test_predicted_effects(case, method):
    name, seed = case
    res, dense, bars = fitted(name, seed, method)
    theta = elements_of(res, bars)
    for t, bar in enumerate(bars):
        estimates, *variances = dense.effects(theta, t)
        group = ":".join(bar.group)
        for c, column in enumerate(bar.columns):
            short = NAMES.get(column, column)
            short = short.replace("T.", "") if ONE not in bar.columns else short
            table = res.random_effects[group if column == ONE else f"{group}[{short}]"]
            table = table.sort_index()
            np.testing.assert_allclose(table["estimate"], estimates[:, c], atol=1e-7)
            for label, expected in zip(("se", "conditional_se"), variances, strict=True):
                np.testing.assert_allclose(np.square(table[label]), expected[:, c], atol=1e-7)


@pytest.mark.parametrize(
    ("name", "method"),
    alternately([n for n in FORMULAS if n not in ("nested", "interaction")], "reml", "ml"),
)
def test_standard_errors_and_degrees_of_freedom(name, method):
    res, dense, bars = fitted(name, LARGE, method)
    assert res.status == "Converged."
    theta = elements_of(res, bars)
    variances = np.diagonal(np.linalg.inv(dense.observed(theta)))
    np.testing.assert_allclose(sorted(np.square(res.bse_vcomp)), sorted(variances), rtol=1e-6)
    np.testing.assert_allclose(res.df_fe, dense.satterthwaite(theta), rtol=1e-6)


@pytest.mark.parametrize("name", ["three effects", "slopes on both", "no intercept"])
def test_climbs_start_at_mivque_of_priors_zero(name):
    text, fixed, bars = FORMULAS[name]
    model = vcomp.VarianceComponentsModel(text, frame_of(LARGE))
    likelihood = MatricesLikelihood(model.statistics, reml=True)
    found = likelihood.back @ mivque_elements(likelihood.equations) / likelihood.unit
    series = pd.Series(found, index=list(model.component_names))
    dense = Dense(frame_of(LARGE), fixed, bars, reml=True)
    M = np.eye(dense.n) - dense.X @ np.linalg.pinv(dense.X)
    moved = M @ dense.derivatives
    traces = np.einsum("jab,kba->jk", moved, moved)
    forms = np.einsum("a,jab,b->j", M @ dense.y, dense.derivatives, M @ dense.y)
    expected = np.linalg.solve(traces, forms)
    np.testing.assert_allclose(
        elements_of(SimpleNamespace(vcomp=series), bars), expected, rtol=1e-8
    )


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("least", [1e-2, 1e-4])
def test_information_of_nearly_singular_matrices(least, method):
    # Inverses of the matrix have 1/least in every place, and information its fourth power.
    text, fixed, bars = FORMULAS["intercept and slope"]
    frame = frame_of(LARGE)
    statistics = vcomp.VarianceComponentsModel(text, frame).statistics
    likelihood = MatricesLikelihood(statistics, reml=method == "reml")
    a, b = np.array([0.6, 0.8]), np.array([0.8, -0.6])
    L = np.outer(a, a) + least * np.outer(b, b)
    found = likelihood.information_of(np.array([L[0, 0], L[1, 1], L[0, 1], 0.7]), "observed")
    expected = Dense(frame, fixed, bars, reml=method == "reml").observed(
        np.array([L[0, 0], L[0, 1], L[1, 1], 0.7])
    )[np.ix_([0, 2, 1, 3], [0, 2, 1, 3])]
    size = np.sqrt(np.abs(np.diagonal(expected)))
    assert np.abs((found - expected) / np.outer(size, size)).max() <= 1e-7


def test_negative_covariances_count_in_degrees_of_freedom():
    frame = frame_of(LARGE)
    shifted = frame.assign(x=frame["x"] + 20.0)
    raw, moved = (
        vcomp.VarianceComponentsModel("y ~ x + (x|g)", data).fit() for data in (frame, shifted)
    )
    assert moved.vcomp["g[(Intercept),x]"] < 0.0 < raw.vcomp["g[(Intercept),x]"]
    assert raw.df_fe["x"] == pytest.approx(moved.df_fe["x"], rel=1e-7)


# Invariants ---------------------------------------------------------------------------------

TEXT = "y ~ x + (x|g) + (z|h)"


def fit_by_ml(frame, text=TEXT):
    return vcomp.VarianceComponentsModel(text, frame).fit("ml")


@pytest.mark.parametrize(("shift", "scale"), [(50.0, 1.0), (0.0, 1e-3), (-3.0, 1e6)])
def test_affine_covariate(shift, scale):
    frame = frame_of(LARGE)
    res, moved = fit_by_ml(frame), fit_by_ml(frame.assign(x=(frame["x"] - shift) / scale))
    assert moved.llf == pytest.approx(res.llf, abs=1e-8)
    v, w = res.vcomp, moved.vcomp
    assert w["g[x]"] == pytest.approx(v["g[x]"] * scale**2, rel=1e-7)
    level = v["g"] + 2.0 * shift * v["g[(Intercept),x]"] + shift**2 * v["g[x]"]
    assert w["g"] == pytest.approx(level, rel=1e-7)
    covariance = scale * (v["g[(Intercept),x]"] + shift * v["g[x]"])
    assert w["g[(Intercept),x]"] == pytest.approx(covariance, rel=1e-7)
    for name in ("h", "h[z]", "Residual"):
        assert w[name] == pytest.approx(v[name], rel=1e-7)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_unit_of_the_response(scale):
    frame = frame_of(LARGE)
    res, scaled = fit_by_ml(frame), fit_by_ml(frame.assign(y=scale * frame["y"]))
    np.testing.assert_allclose(scaled.vcomp, scale**2 * res.vcomp, rtol=1e-8)
    assert scaled.llf == pytest.approx(res.llf - len(frame) * np.log(scale), abs=1e-7)


def test_order_of_rows_labels_and_terms():
    frame = frame_of(LARGE)
    res = fit_by_ml(frame)
    other = frame.sample(frac=1.0, random_state=1).assign(
        g=lambda f: f["g"].map(lambda level: "z" + level[::-1]), h=lambda f: f["h"].str.upper()
    )
    moved = fit_by_ml(other, "y ~ x + (z|h) + (x|g)")
    np.testing.assert_allclose(moved.vcomp[res.vcomp.index], res.vcomp, rtol=1e-7)
    assert moved.llf == pytest.approx(res.llf, abs=1e-8)


def test_levels_of_a_factor_are_its_contrasts_in_another_basis():
    levels, contrasts = (
        fitted(name, LARGE, "reml")[0] for name in ("levels of a factor", "factor")
    )
    v, w = levels.vcomp, contrasts.vcomp
    assert contrasts.llf == pytest.approx(levels.llf, abs=1e-8)
    assert w["g"] == pytest.approx(v["g[c[a]]"], rel=1e-7)
    difference = v["g[c[b]]"] + v["g[c[a]]"] - 2.0 * v["g[c[a],c[b]]"]
    assert w["g[c[T.b]]"] == pytest.approx(difference, rel=1e-7)


# Effects without variance, and hard or bad input --------------------------------------------


def test_effects_without_variance_are_zero():
    frame = frame_of(LARGE)
    rng = np.random.default_rng(5)
    alike = np.resize([1.0, -1.0], len(frame))  # each level has the same mean
    frame = frame.assign(
        y=alike + 0.01 * rng.normal(size=len(frame)), k=np.resize([0.0, 1.0, 5.0], len(frame))
    )
    res = vcomp.VarianceComponentsModel("y ~ 1 + (0 + k|g)", frame).fit()
    assert res.vcomp["g[k]"] == 0.0
    table = res.random_effects["g[k]"]
    assert (table["estimate"] == 0.0).all()
    assert (table["se"] == 0.0).all()


def test_perfect_correlation_is_named():
    rng = np.random.default_rng(2)
    g, x = np.repeat(np.arange(15), 8), rng.normal(size=120)
    u = rng.normal(size=15)[g]
    frame = pd.DataFrame({"g": g, "x": x, "y": u * (1.0 - 0.5 * x) + 0.3 * rng.normal(size=120)})
    res = vcomp.VarianceComponentsModel("y ~ x + (x|g)", frame).fit()
    assert "g is singular (rank 1 of 2)" in res.status
    (advised,) = re.findall(r"res\.profile\('(.*?)'\)", res.status)
    assert advised == "corr(g[(Intercept),x])"
    low, high = res.profile(advised).conf_int().loc[advised]
    assert (low, high > -0.5) == (-1.0, False)
    without = vcomp.fit("y ~ x + (x||g)", frame)
    assert without.llf < res.llf - 2.0
    v = res.vcomp
    assert v["g[(Intercept),x]"] ** 2 == pytest.approx(v["g"] * v["g[x]"], rel=1e-12)


def test_advice_on_effects_that_others_contain_leads_on():
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"g": np.repeat(np.arange(12), 12), "c": list("aaabbb") * 24})
    frame["x"] = rng.normal(size=144)
    frame["d"] = np.where(rng.random(144) < 0.5, "u", "v")
    frame["y"] = rng.normal(size=144) + rng.normal(size=12)[frame["g"]] * frame["x"]
    for text, advice in (
        ("(c * x||g)", "contain that of x: leave (0 + x|g) out"),
        ("(c|g) + (0 + x|g) + (0 + c:x|g)", "contain that of x: leave (0 + x|g) out"),
        ("(c|g) + (0 + d|g)", "leave out a slope or a term"),
    ):
        with pytest.raises(DesignError, match="cannot distinguish") as caught:
            vcomp.fit(f"y ~ c * x + {text}", frame)
        assert str(caught.value).endswith(advice)
    res = vcomp.fit("y ~ c * x + (c|g) + (0 + c:x|g)", frame)
    assert res.converged


def test_advice_on_intercepts_that_dwarf_all_else_leads_on():
    rng = np.random.default_rng(1)
    g, h = (codes.ravel() for codes in np.indices((10, 6)))
    x = rng.normal(size=60)
    y = (0.5 * rng.normal(size=10))[g] * x + rng.normal(size=6)[h] + 0.5 * rng.normal(size=60)
    frame = pd.DataFrame({"g": g, "h": h, "x": x, "y": y})
    far = frame.assign(y=y + 1e7 * (g % 2))
    with pytest.raises(EstimationError, match=r"up to rounding error: .* fixed, C\(g\)"):
        vcomp.fit("y ~ x + (x|g) + (1|h)", far)
    advised = "y ~ x + C(g) + (0 + x|g) + (1|h)"
    found, plain = vcomp.fit(advised, far).vcomp, vcomp.fit(advised, frame).vcomp
    np.testing.assert_allclose(found, plain, rtol=1e-7)  # y + 1e7 is rounded to 1e-9


@pytest.mark.parametrize("seed", [2, 15])
def test_climbs_next_to_a_small_residual_and_a_singular_matrix_converge(seed):
    # The sides of the equations of rotated effects were rounded to the digits of the residual.
    rng = np.random.default_rng(seed)
    g, h = (np.repeat(a.ravel(), 2) for a in np.indices((12, 10)))
    x, z = rng.normal(size=(2, g.size))
    A = rng.normal(size=(3, 2))
    u, w = rng.normal(size=(12, 2)) @ A.T, rng.normal(size=10)
    e = rng.normal(size=(3, g.size))[2] * 1e-4
    frame = pd.DataFrame({"g": g, "h": h, "x": x, "z": z})
    frame["y"] = u[g, 0] + u[g, 1] * x + u[g, 2] * z + w[h] + e
    res = vcomp.fit("y ~ x + z + (x + z|g) + (1|h)", frame)
    assert "rank 2 of 3" in res.status
    assert res.converged
    assert res.vcomp["Residual"] == pytest.approx(1e-8, rel=0.4)


def test_components_that_cannot_be_distinguished():
    # With one row of each level of c in each group, the residual is a part of the matrix of c.
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"g": np.repeat(np.arange(12), 3), "c": list("abc") * 12})
    frame["y"] = rng.normal(size=36) + rng.normal(size=12)[frame["g"]]
    with pytest.raises(DesignError, match="cannot distinguish the components") as caught:
        vcomp.VarianceComponentsModel("y ~ c + (c|g)", frame).fit()
    names = ("g", "g[c[T.b]]", "g[(Intercept),c[T.b]]", "Residual")
    assert all(name in str(caught.value) for name in names)
    assert "write" not in str(caught.value)


def _of_factor(seed=0):
    rng = np.random.default_rng(seed)
    g, c = np.repeat(np.arange(20), 9), np.tile(np.repeat([0, 1, 2], 3), 20)
    y = rng.normal(size=180) + rng.normal(size=(20, 3))[g, c] + rng.normal(size=20)[g]
    return pd.DataFrame({"y": y, "g": g, "c": np.array(list("abc"))[c]})


@pytest.mark.parametrize("method", ["reml", "ml"])
def test_a_factor_with_two_bars_has_the_maximum_of_lme4s_expansion(method):
    """That of V = Z(Σ + a11')Z' + σ²I by group over a and Σ, which no a above 0 exceeds."""
    from scipy.optimize import minimize

    frame = _of_factor()
    Y, Z = frame["y"].to_numpy().reshape(20, 9), np.kron(np.eye(3), np.ones((3, 1)))

    def deviance(theta):
        L = np.zeros((3, 3))
        L[np.tril_indices(3)] = theta[:6]
        V = Z @ (L @ L.T + theta[6] ** 2) @ Z.T + theta[7] ** 2 * np.eye(9)
        W = np.linalg.inv(V)
        A = 20.0 * Z.T @ W @ Z
        r = Y - Z @ np.linalg.solve(A, Z.T @ W @ Y.sum(axis=0))
        value = 20.0 * np.linalg.slogdet(V)[1] + np.einsum("gi,ij,gj->", r, W, r)
        n = 180
        if method == "reml":
            n, value = 177, value + np.linalg.slogdet(A)[1]
        return value + n * np.log(2.0 * np.pi)

    res = vcomp.fit("y ~ c + (c||g)", frame, method=method)
    assert list(res.vcomp.index[:3]) == ["g[c[a]]", "g[c[b]]", "g[c[c]]"]
    said = "(1|g) is left out, as the effects of (0 + c | g) contain it"
    assert said in res.status
    assert said in " ".join(str(res.summary()).split())
    start = np.array([1.0, 0.1, 1.0, 0.1, 0.1, 1.0, 0.5, 1.0])
    ends = [minimize(deviance, start * k, method="BFGS", tol=1e-9) for k in (1.0, 0.5, 2.0)]
    assert min(end.fun for end in ends) == pytest.approx(-2.0 * res.llf, abs=1e-6)
    L, (a, sigma) = np.zeros((3, 3)), ends[0].x[6:]
    assert a**2 > 1e-3  # another point of the ridge
    L[np.tril_indices(3)] = ends[0].x[:6]
    names = [f"g[c[{level}]]" for level in "abc"]
    np.testing.assert_allclose(np.diagonal(L @ L.T + a**2), res.vcomp[names], rtol=1e-3)
    assert sigma**2 == pytest.approx(res.vcomp["Residual"], rel=1e-3)
    assert vcomp.fit("y ~ c + (c|g)", frame, method=method).llf == pytest.approx(res.llf)


def test_an_intercept_that_a_factor_contains_is_left_out_of_every_model():
    frame = _of_factor(2)
    rng = np.random.default_rng(5)
    frame = frame.assign(
        x=rng.normal(size=180), h=np.arange(180) // 9 % 4, far=1e4 + rng.normal(size=180)
    )
    for text, same in (
        ("(1|g) + (1|h) + (0 + c|g)", "(0 + c|g) + (1|h)"),
        ("(x + c||g)", "(0 + c|g) + (0 + x|g)"),
        ("(c||h/g)", "(0 + c|h) + (0 + c|h:g)"),
        ("(1|h:g) + (0 + c|g:h)", "(0 + c|h:g)"),
    ):
        one, other = (vcomp.fit(f"y ~ c + {own}", frame) for own in (text, same))
        assert one.llf == pytest.approx(other.llf, rel=1e-11)
        for read in (
            vcomp.fit(f"y ~ c + {text}", frame, stream=True),
            sum(
                vcomp.accumulate(f"y ~ c + {text}", frame[frame["g"] % 2 == k]) for k in (0, 1)
            ).fit(),
        ):
            np.testing.assert_allclose(
                read.vcomp[one.vcomp.index], one.vcomp, rtol=1e-6, atol=1e-7
            )
            assert "is left out" in read.status
        assert vcomp.VarianceComponentsResults.from_json(one.to_json()).status == one.status
    # A covariate far from zero is nearly an intercept, and none.
    assert "left out" not in vcomp.fit("y ~ x + (1|g) + (0 + x + far|g)", frame).status


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y ~ (k|g)", "slope of 'k', which is constant: write \\(1\\|g\\)"),
        ("y ~ (0 + k0|g)", "slope of 'k0', which is zero in all rows: leave it out"),
        ("y ~ (x + x2|g)", "columns 'x', 'x2' of .* are linearly dependent"),
    ],
)
def test_columns_without_effects(text, message):
    frame = frame_of(0).assign(k=3.0, k0=0.0, x2=lambda f: 2.0 * f["x"] + 1.0)
    with pytest.raises(DesignError, match=message) as caught:
        vcomp.VarianceComponentsModel(text, frame)
    assert caught.value.term == RANDOM_TERM[text]


RANDOM_TERM = {"y ~ (k|g)": "g", "y ~ (0 + k0|g)": "g[k0]", "y ~ (x + x2|g)": "g"}


def test_response_without_residual():
    frame = frame_of(0)
    levels = frame["g"].astype("category").cat.codes
    frame = frame.assign(y=1.0 + levels**2 + np.cos(levels) * frame["x"])
    with pytest.raises(EstimationError, match="residual variance is zero"):
        vcomp.VarianceComponentsModel("y ~ x + (x|g)", frame).fit()


def test_a_climb_from_its_maximum_takes_no_step_and_one_of_one_step_says_so():
    rng = np.random.default_rng(4)
    g, x = np.repeat(np.arange(12), 6), rng.normal(size=72)
    y = rng.normal(size=12)[g] + rng.normal(size=12)[g] * x + rng.normal(size=72)
    frame = pd.DataFrame({"g": g, "x": x, "y": y})
    end = vcomp.fit("y ~ x + (x|g)", frame)
    again = vcomp.fit("y ~ x + (x|g)", frame, start=end.vcomp.to_dict(), tol=1e-6)
    assert again.certificate.iterations == 0
    with pytest.warns(match=r"Not converged after 1 step \("):
        vcomp.fit("y ~ x + (x|g)", frame, max_iter=1)
