"""Forms that are added up over strata, against the sums written out."""

import numpy as np
import pytest

from vcomp.estimators.likelihood.totals import Forms, Totals

CLOSE = {"rtol": 1e-11, "atol": 1e-11}


def forms_of(rng, n_own, b):
    """Return any forms: of n_own components of a stratum, and b columns."""
    second = rng.normal(size=(n_own, n_own, b, b))
    return Forms(
        float(rng.normal()),
        rng.normal(size=n_own),
        rng.normal(size=(n_own, n_own)),
        rng.normal(size=(b, b)),
        rng.normal(size=(n_own, b, b)),
        second,
    )


@pytest.mark.parametrize(("b", "used"), [(1, 1), (5, 3), (31, 31), (32, 32), (40, 32), (40, 40)])
def test_forms_of_few_and_of_many_columns_add_up(b, used):
    """From 32 columns on their products are added pair by pair."""
    rng = np.random.default_rng(b + used)
    k, n_own = 4, 3
    totals = Totals(k, b)
    log_det, traces, squares = 0.0, np.zeros(k), np.zeros((k, k))
    gram, first, second = np.zeros((b, b)), np.zeros((k, b, b)), np.zeros((k, k, b, b))
    for multiplicity in (1, 6):
        M = rng.choice([0.0, 1.0, 2.5], (n_own, k))
        M[:, 1] = 0.0  # a component that has no part in the stratum
        columns = sorted(rng.permutation(b)[:used].tolist())
        forms = forms_of(rng, n_own, used)
        totals.add(forms, M, multiplicity, columns)
        log_det += multiplicity * forms.log_det
        traces += multiplicity * np.einsum("lt,l->t", M, forms.traces)
        squares += multiplicity * np.einsum("lt,mu,lm->tu", M, M, forms.squares)
        here = np.ix_(columns, columns)
        gram[here] += forms.gram
        of_first = np.einsum("lt,lij->tij", M, forms.first)
        of_second = np.einsum("lt,mu,lmij->tuij", M, M, forms.second)
        for t in range(k):
            first[t][here] += of_first[t]
            for u in range(k):
                second[t, u][here] += of_second[t, u]
    assert totals.log_det == pytest.approx(log_det, rel=1e-12)
    np.testing.assert_allclose(totals.traces, traces, **CLOSE)
    np.testing.assert_allclose(totals.squares, squares, **CLOSE)
    np.testing.assert_allclose(totals.gram, gram, **CLOSE)
    np.testing.assert_allclose(totals.first, first, **CLOSE)
    np.testing.assert_allclose(totals.second, second, **CLOSE)


@pytest.mark.parametrize("p", [0, 1, 3])
def test_what_follows_from_the_forms(p):
    """P = V⁻¹ − V⁻¹X(X'V⁻¹X)⁻¹X'V⁻¹, for any V and V_t."""
    rng = np.random.default_rng(p)
    n, k = 9, 3
    B, Vt = rng.normal(size=(n, 1 + p)), [half @ half.T for half in rng.normal(size=(k, n, n))]
    W = np.linalg.inv(sum(Vt))
    y, X = B[:, 0], B[:, 1:]
    totals = Totals(k, 1 + p)
    forms = Forms(
        np.linalg.slogdet(sum(Vt))[1],
        np.array([np.trace(W @ V) for V in Vt]),
        np.array([[np.trace(W @ V @ W @ U) for U in Vt] for V in Vt]),
        B.T @ W @ B,
        np.array([B.T @ W @ V @ W @ B for V in Vt]),
        np.array([[B.T @ W @ V @ W @ U @ W @ B for U in Vt] for V in Vt]),
    )
    totals.add(forms, np.eye(k), 1, list(range(1 + p)))
    XWX = X.T @ W @ X
    P = W - W @ X @ np.linalg.solve(XWX, X.T @ W) if p else W
    assert totals.rss == pytest.approx(y @ P @ y, rel=1e-9)
    np.testing.assert_allclose(totals.quadratics, [y @ P @ V @ P @ y for V in Vt], rtol=1e-8)
    of_fixed = [np.trace(W @ V) - np.trace(P @ V) for V in Vt]
    np.testing.assert_allclose(totals.fixed_traces(), of_fixed, rtol=1e-8, atol=1e-9)
    average = [[y @ P @ V @ P @ U @ P @ y for U in Vt] for V in Vt]
    np.testing.assert_allclose(totals.average(), average, rtol=1e-7)
    for reml, Q in ((True, P), (False, W)):
        expected = [[np.trace(Q @ V @ Q @ U) for U in Vt] for V in Vt]
        np.testing.assert_allclose(totals.expected(reml=reml), expected, rtol=1e-8)
        deviance = np.linalg.slogdet(sum(Vt))[1] + y @ P @ y + n * np.log(2.0 * np.pi)
        if reml and p:
            deviance += np.linalg.slogdet(XWX)[1] - p * np.log(2.0 * np.pi)
        assert -2.0 * totals.loglike(n, reml=reml) == pytest.approx(deviance, rel=1e-10)
    fixed = totals.fixed_forms(second=True)
    if p:
        np.testing.assert_allclose(totals.beta, np.linalg.solve(XWX, X.T @ W @ y), rtol=1e-9)
        np.testing.assert_allclose(fixed.cov_beta, np.linalg.inv(XWX), rtol=1e-9)
    np.testing.assert_allclose(fixed.first, [X.T @ W @ V @ W @ X for V in Vt], **CLOSE)
    np.testing.assert_allclose(
        fixed.second, [[X.T @ W @ V @ W @ U @ W @ X for U in Vt] for V in Vt], **CLOSE
    )
    assert totals.fixed_forms(second=False).second is None
