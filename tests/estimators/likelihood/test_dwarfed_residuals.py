"""Slopes and residual groups next to effects that dwarf them, against 50 decimal digits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.helpers.exact import exact, exact_inverse
from vcomp.estimators.likelihood import MatricesLikelihood


def newton_step(y, X, derivatives, values, *, reml):
    """Return the Newton step from components, in their standard errors, of V = Σ θ_j D_j."""
    with localcontext() as context:
        context.prec = 50
        y, X, *D = (exact(a, Decimal) for a in (y, X, *derivatives))
        V = sum(t * d for t, d in zip(exact(values, Decimal), D, strict=True))
        W = exact_inverse(V)
        WX = W.dot(X)
        P = W - WX.dot(exact_inverse(X.T.dot(WX))).dot(WX.T)
        Py, of_V = P.dot(y), [(P if reml else W).dot(d) for d in D]
        moved = [d.dot(Py) for d in D]
        score = [(m.dot(Py) - np.trace(M)) / 2 for m, M in zip(moved, of_V, strict=True)]
        information = [
            [m.dot(P).dot(o) - (M * of_o.T).sum() / 2 for o, of_o in zip(moved, of_V, strict=True)]
            for m, M in zip(moved, of_V, strict=True)
        ]
        covariance = exact_inverse(np.array(information))
        step = covariance.dot(np.array(score))
        return np.array([s / c.sqrt() for s, c in zip(step, np.diagonal(covariance), strict=True)])


class Rows:
    """Eight levels of p by five of h, with effects of p or h of a given variance."""

    def __init__(self, seed, intercepts=1.0, slopes=0.5, others=1.0):
        rng = np.random.default_rng(seed)
        p, h = (codes.ravel() for codes in np.indices((8, 5)))
        x, n = rng.normal(size=40), 40
        g, w = np.where(np.arange(n) % 3 == 0, "a", "b"), rng.choice([1.0, 2.0, 4.0], size=n)
        y = x + np.sqrt(intercepts) * rng.normal(size=8)[p]
        y += np.sqrt(slopes) * rng.normal(size=8)[p] * x + np.sqrt(others) * rng.normal(size=5)[h]
        y += rng.normal(size=n) / np.sqrt(w) * np.where(g == "a", 1.0, 2.0)
        self.frame = pd.DataFrame({"p": p, "h": h, "x": x, "g": g, "w": w, "y": y})
        self.X = np.column_stack([np.ones(n), x])
        Z, H = np.eye(8)[p], np.eye(5)[h]
        S = Z * x[:, None]
        self.derivatives = {
            "p": Z @ Z.T,
            "p[x]": S @ S.T,
            "p[(Intercept),x]": Z @ S.T + S @ Z.T,
            "h": H @ H.T,
            "Residual": np.eye(n),
            "Residual[g=a]": np.diag((g == "a") * 1.0),
            "Residual[g=b]": np.diag((g == "b") * 1.0),
        }


DWARFED = {
    "intercepts": ("y ~ x + (x|p)", {"intercepts": 6e11}, {}),
    "uncorrelated": ("y ~ x + (x||p)", {"intercepts": 1e13}, {}),
    "slopes": ("y ~ x + (x|p) + (1|h)", {"slopes": 1e10}, {}),
    "crossed": ("y ~ x + (x|p) + (1|h)", {"intercepts": 1e9, "others": 1e9}, {}),
    "residual groups": ("y ~ x + (1|p) + (1|h)", {"intercepts": 1e11}, {"residual": "g"}),
    "stream": ("y ~ x + (x|p)", {"intercepts": 1e10}, {"stream": True}),
}


@pytest.mark.parametrize("method", ["reml", "ml"])
@pytest.mark.parametrize("kind", DWARFED)
def test_components_next_to_effects_that_dwarf_them(kind, method):
    formula, sizes, options = DWARFED[kind]
    rows = Rows(12, **sizes)
    res = vcomp.fit(formula, rows.frame, method=method, **options)
    assert res.converged
    values = res.vcomp[res.vcomp != 0.0]
    D = [rows.derivatives[name] for name in values.index]
    step = newton_step(rows.frame["y"], rows.X, D, values, reml=method == "reml")
    assert np.abs(step.astype(float)).max() < 1e-5


def test_weighted_slopes_next_to_effects_that_dwarf_them():
    rows = Rows(12, intercepts=1e10)
    values = vcomp.fit("y ~ x + (x|p)", rows.frame, weights="w").vcomp
    D = [rows.derivatives[name] for name in values.index]
    D[-1] = np.diag(1.0 / rows.frame["w"])
    step = newton_step(rows.frame["y"], rows.X, D, values, reml=True)
    assert np.abs(step.astype(float)).max() < 1e-5


@pytest.mark.parametrize(
    ("sizes", "max_iter", "advised"),
    [
        ({"intercepts": 1e10}, 13, "y ~ x + C(p) + (0 + x|p) + (1|h)"),
        ({"slopes": 1e10}, 15, "y ~ x + C(p):x + (1|p) + (1|h)"),
    ],
)
def test_advice_on_effects_that_dwarf_the_residual_leads_on(sizes, max_iter, advised):
    far, near = Rows(12, **sizes).frame, Rows(12, **dict.fromkeys(sizes, 1e4)).frame
    with pytest.warns(match="Not converged"):
        status = vcomp.fit("y ~ x + (x|p) + (1|h)", far, max_iter=max_iter).status
    fixed = advised.split(" + ")[1]
    assert f"which leaves this few digits; make them fixed, {fixed}." in status
    # Components of 1e4 and of 1e10 times the others are as good as without limit.
    found, limit = vcomp.fit(advised, far), vcomp.fit(advised, near)
    assert found.converged
    np.testing.assert_allclose(found.vcomp, limit.vcomp, rtol=1e-5)


def test_another_response_next_to_effects_that_dwarf_its_residual():
    """The likelihood of principal effects has the value of that of the columns as given."""
    rows = Rows(12, intercepts=1e10)
    stats = vcomp.VarianceComponentsModel("y ~ x + (x|p)", rows.frame).statistics
    likelihood = MatricesLikelihood(stats, reml=True)
    principal, end = likelihood.maximum(likelihood.first_matrices(), 100, 1e-8)
    assert principal is not likelihood
    other = stats.with_response(rows.frame["y"].to_numpy()[::-1])
    wanted = MatricesLikelihood(other, reml=True)
    v = principal.components(end.S)
    for of in (principal, likelihood):
        found = of.with_response(other)
        assert found.loglike(found.matrices_of(v)) == pytest.approx(
            wanted.loglike(wanted.matrices_of(v)), abs=1e-6
        )
