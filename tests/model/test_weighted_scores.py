"""Universe scores of weighted scores and known variances, against dense matrices."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from tests.model.test_weights import DATA, MODEL, N, covariance

OPTIONS = [{"weights": "w"}, {"known_variance": "v"}, {"weights": "w", "residual": "kind"}]
W = DATA["w"].to_numpy()


def _indicators(column):
    return (np.asarray(column)[:, None] == np.unique(column)).astype(float)


def _residuals(res):
    """Return the residual variance of each row, of weight 1."""
    names = [n for n in res.vcomp.index if n.startswith("Residual")]
    if len(names) == 1:
        return np.full(N, res.vcomp[names[0]])
    return res.vcomp[[f"Residual[kind={k}]" for k in DATA["kind"]]].to_numpy()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_scores_are_those_of_hendersons_equations(options):
    res = vcomp.fit(MODEL, DATA, **options)
    frame = res.universe_scores("a")
    X = np.column_stack([np.ones(N), DATA["x"]])
    columns = np.hstack([X, _indicators(DATA["a"]), _indicators(DATA["b"])])
    sizes = [2, 9, 6]
    prior = np.repeat([0.0, 1.0 / res.vcomp["a"], 1.0 / res.vcomp["b"]], sizes)
    precision = W / _residuals(res)
    inverse = np.linalg.inv(columns.T * precision @ columns + np.diag(prior))
    solution = inverse @ (columns.T * precision @ DATA["y"].to_numpy())
    rows = np.hstack([np.tile(X.mean(axis=0), (9, 1)), np.eye(9), np.zeros((9, 6))])
    np.testing.assert_allclose(frame["universe_score"], rows @ solution, rtol=1e-8)
    variances = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    np.testing.assert_allclose(frame["se"] ** 2, variances, rtol=1e-8)
    own = _indicators(DATA["a"]) * W[:, None]
    means = own.T @ DATA["y"].to_numpy() / own.sum(axis=0)
    np.testing.assert_allclose(frame["mean"], means, rtol=1e-12)
    np.testing.assert_array_equal(frame["n"], DATA["a"].value_counts().sort_index())
    # The error of an object's weighted mean: the effects and errors that its scores have.
    shares = own / own.sum(axis=0)
    errors = shares.T**2 @ (_residuals(res) / W)
    of_b = ((_indicators(DATA["b"]).T @ shares) ** 2).sum(axis=0)
    np.testing.assert_allclose(frame["sem_rel"] ** 2, errors, rtol=1e-10)
    absolute = errors + res.vcomp["b"] * of_b
    np.testing.assert_allclose(frame["sem_abs"] ** 2, absolute, rtol=1e-10)


def test_conditional_errors_are_unbiased_within_each_object():
    """Weighted squares of an object have the traces of dense matrices as expectations."""
    res = vcomp.fit(MODEL, DATA, weights="w")
    frame = res.universe_scores("a", negative="keep")
    for level, part in DATA.groupby("a"):
        w, y = part["w"].to_numpy(), part["y"].to_numpy()
        Z, one = _indicators(part["b"]), np.ones((w.size, 1))
        weights = np.diag(w)
        mean, of_b = (
            weights @ C @ np.linalg.inv(C.T @ weights @ C) @ C.T @ weights for C in (one, Z)
        )
        forms = [of_b - mean, weights - mean]
        variances = [Z @ Z.T, np.diag(1.0 / w)]
        expected = np.array([[np.trace(Q @ V) for V in variances] for Q in forms])
        if np.linalg.matrix_rank(expected, tol=1e-9 * w.sum()) < 2:
            assert np.isnan(frame.loc[level, "csem_abs"])
            continue
        v = np.linalg.solve(expected, [y @ Q @ y for Q in forms])
        share = w / w.sum()
        error = v[0] * ((Z.T @ share) ** 2).sum() + v[1] / w.sum()
        root = np.sqrt(error) if error >= 0.0 else np.nan
        assert frame.loc[level, "csem_abs"] == pytest.approx(root, rel=1e-8, nan_ok=True)
    assert frame["csem_abs"].notna().sum() > 4
    assert frame["note"].str.startswith("no csem_rel").any()


def test_equal_weights_leave_scores_and_their_errors():
    a, b = (column.ravel() for column in np.indices((8, 6)))
    y = (
        np.random.default_rng(4).normal(size=48)
        + np.arange(8.0)[a] / 3.0
        + np.arange(6.0)[b] / 9.0
    )
    data = pd.DataFrame({"y": y, "a": a, "b": b, "w": 2.5})
    plain = vcomp.fit("y ~ (1|a) + (1|b)", data)
    weighted = vcomp.fit("y ~ (1|a) + (1|b)", data, weights="w")
    pd.testing.assert_frame_equal(
        weighted.universe_scores("a"), plain.universe_scores("a"), rtol=1e-6
    )
    # A planned score has weight 1, and 2.5 times the error variance.
    planned = weighted.universe_scores("a", b=6)
    np.testing.assert_allclose(planned["sem_rel"] ** 2, weighted.vcomp["Residual"] / 6, rtol=1e-12)
    assert planned["csem_abs"].isna().all()
    assert planned["note"].str.contains("leave out the sizes").all()


def test_means_with_weights_have_the_scores_of_their_rows():
    """At the same components, repeated rows and their number as a weight say the same."""
    hold = {"a": 0.8, "b": 0.3, "Residual": 1.3}
    rows = DATA.loc[DATA.index.repeat(DATA["n"])]
    formula = "y ~ (1|a) + (1|b)"
    means = vcomp.fit(formula, DATA, weights="n", hold=hold).universe_scores("a")
    several = vcomp.fit(formula, rows, hold=hold).universe_scores("a")
    same = ["mean", "universe_score", "se", "low", "high", "sem_rel", "sem_abs"]
    pd.testing.assert_frame_equal(means[same], several[same], rtol=1e-9)


def test_a_score_without_a_known_variance_has_no_planned_error():
    res = vcomp.fit(MODEL, DATA, known_variance="v")
    with pytest.raises(vcomp.EstimationError, match=r"each score has its own.*from_components"):
        res.universe_scores("a", b=10)
    other = vcomp.VarianceComponentsResults.from_json(res.to_json(scores=True))
    pd.testing.assert_frame_equal(other.universe_scores("a"), res.universe_scores("a"))
    # The same scores follow from dense matrices of the scores.
    v = res.vcomp.to_numpy()
    V, X = covariance(DATA, v, W), np.column_stack([np.ones(N), DATA["x"]])
    inverse = np.linalg.inv(V)
    beta = np.linalg.solve(X.T @ inverse @ X, X.T @ inverse @ DATA["y"])
    effects = v[0] * _indicators(DATA["a"]).T @ inverse @ (DATA["y"] - X @ beta)
    wanted = X.mean(axis=0) @ beta + effects
    np.testing.assert_allclose(res.universe_scores("a")["universe_score"], wanted, rtol=1e-8)
