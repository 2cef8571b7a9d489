"""What is certified of the end of an iteration, from informations that are given."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from vcomp.estimators.estimate import Maximum
from vcomp.estimators.likelihood.likelihood import (
    REML,
    Certified,
    _default_start,
    _directions,
    _monte_carlo,
    _status,
    certify,
)
from vcomp.estimators.options import Known

NAMES = ("a", "b", "c", "Residual")
FREE = np.zeros(4, dtype=bool)


class Given:
    """An engine with given informations."""

    name, reason = "given", "for a test"

    def __init__(
        self, observed, average, *, kinds=("observed", "expected", "average"), cheap=True
    ):
        self.kinds, self._cheap = kinds, cheap
        self._found = {
            "observed": observed,
            "average": average,
            "expected": 2.0 * average - observed,
        }

    def information(self, v, kind="observed", *, positive_only=False):
        assert kind in self.kinds
        return self._found[kind]

    def expects_cheaply(self, v):
        return self._cheap


def maximum(v, score=None, **changes):
    score = np.zeros(len(v)) if score is None else np.array(score)
    found = Maximum(
        v=np.array(v),
        loglike=-7.0,
        score=score,
        held=FREE[: len(v)],
        newton_decrement=1e-12,
        kkt_residual=1e-13,
        converged=True,
        at_limit=False,
        evaluations=9,
        log=(),
        others=(),
        iterations=7,
        saturated=False,
    )
    return replace(found, **changes)


def positive(seed, k=4):
    half = np.random.default_rng(seed).normal(size=(k, k + 3))
    units = 10.0 ** np.arange(k)
    return (half @ half.T) * np.outer(units, units)


def test_free_bounded_and_held_components():
    observed = positive(1)
    average = observed + positive(2)
    held = np.array([False, False, True, False])
    found = maximum([2.0, 0.0, 3.0, 1.0], [0.0, -0.5, 9.0, 0.0], held=held)
    certified = certify(Given(observed, average), found, NAMES, 1e-10)
    it = certified.certificate
    assert (it.free, it.bounded, it.held) == (("a", "Residual"), ("b",), ("c",))
    assert it.bound_scores == {"b": -0.5}
    assert (it.iterations, it.evaluations, it.information) == (7, 9, "observed")
    assert (it.newton_decrement, it.kkt_residual, it.tolerance) == (1e-12, 1e-13, 1e-10)
    assert (it.engine, it.reason) == ("given", "for a test")
    assert it.at_maximum
    here = np.ix_([0, 3], [0, 3])
    r = observed[0, 3] / np.sqrt(observed[0, 0] * observed[3, 3])
    np.testing.assert_allclose(it.information_eigenvalues, [1 - abs(r), 1 + abs(r)], rtol=1e-12)
    expected = 2.0 * average - observed
    for kind, matrix in (("observed", observed), ("average", average)):
        cov = certified.covariances[kind]
        np.testing.assert_allclose(cov[here], np.linalg.inv(matrix[here]), rtol=1e-9)
        assert np.isnan(cov[1:3]).all()
        assert np.isnan(cov[:, 1:3]).all()
    # One step of scoring for all that are estimated.
    free = [0, 1, 3]
    values, cov = certified.without_bounds
    inverse = np.linalg.inv(expected[np.ix_(free, free)])
    np.testing.assert_allclose(cov[np.ix_(free, free)], inverse, rtol=1e-9)
    assert np.isnan(cov[2]).all()
    np.testing.assert_allclose(values[free], found.v[free] + inverse @ found.score[free])
    assert values[2] == 3.0


@pytest.mark.parametrize("cheap", [True, False])
def test_estimates_without_bounds_are_a_step_of_scoring(cheap):
    observed, average = positive(3), 4.0 * positive(3)  # so that the expected one is 7 times it
    score = [1.0, -20.0, 3.0, 0.1]
    found = maximum([2.0, 0.0, 3.0, 1.0], score)
    values, cov = certify(
        Given(observed, average, cheap=cheap), found, NAMES, 1e-10
    ).without_bounds
    used = 7.0 * observed if cheap else average
    np.testing.assert_allclose(cov, np.linalg.inv(used), rtol=1e-8)
    np.testing.assert_allclose(values, found.v + np.linalg.inv(used) @ score, rtol=1e-8)
    only = Given(observed, average, kinds=("average",))
    values, _ = certify(only, found, NAMES, 1e-10).without_bounds
    np.testing.assert_allclose(values, found.v + np.linalg.inv(average) @ score, rtol=1e-8)
    inside = maximum([2.0, 1.0, 3.0, 1.0], score)
    assert certify(Given(observed, average), inside, NAMES, 1e-10).without_bounds is None
    singular = np.ones((4, 4))
    assert certify(Given(singular, singular), found, NAMES, 1e-10).without_bounds is None


@pytest.mark.parametrize("least", [-1e-3, -2e-8, -0.5e-8, 0.5e-8, 2e-8, 1e-3])
def test_directions_that_are_flat_or_rise(least):
    """By the least eigenvalue on a unit diagonal: 1 − r of two components."""
    units = np.array([4.0, 0.25])
    information = np.array([[1.0, 1.0 - least], [1.0 - least, 1.0]]) * np.outer(units, units)
    found = maximum([2.0, 1.0])
    certified = certify(Given(information, information), found, ("a", "Residual"), 1e-10)
    flat, rises = certified.certificate.flat, certified.rises
    # (1, −1) on a unit diagonal is 1/4 and −4 in units of the components.
    direction = "−0.062 σ²(a) + σ²(Residual)"
    assert flat == ((direction,) if abs(least) < 1e-8 else ())
    assert rises == (direction if least < -1e-8 else "")
    assert certified.certificate.at_maximum == (least > 1e-8)
    known = np.isfinite(certified.covariances["observed"]).all()
    assert known == (least > 0.0)


def test_matrices_are_singular_within_rounding():
    for least, is_known in ((0.5e-13, False), (2e-13, True)):
        information = np.array([[1.0, 1.0 - least], [1.0 - least, 1.0]])
        certified = certify(
            Given(information, information), maximum([2.0, 1.0]), ("a", "Residual"), 1e-10
        )
        assert np.isfinite(certified.covariances["observed"]).all() == is_known


def test_other_maxima_that_are_close_are_shown():
    others = ((-8.0, np.array([0.0, 5.0])), (-9.0, np.array([1.0, 6.0])), (-9.1, np.zeros(2)))
    found = maximum([2.0, 1.0], others=others)
    certificate = certify(Given(np.eye(2), np.eye(2)), found, ("a", "Residual"), 1e-10).certificate
    assert [(o.drop, dict(o.components)) for o in certificate.others] == [
        (1.0, {"a": 0.0, "Residual": 5.0}),
        (2.0, {"a": 1.0, "Residual": 6.0}),
    ]
    for changes in ({"converged": False}, {"saturated": True}):
        wrong = maximum([2.0, 1.0], **changes)
        it = certify(Given(np.eye(2), np.eye(2)), wrong, ("a", "Residual"), 1e-10).certificate
        assert not it.at_maximum


@pytest.mark.parametrize(
    ("vector", "text"),
    [
        ([1.0, 0.0, 0.0, -1.0], "σ²(a) − σ²(Residual)"),
        ([-2.0, 1.0, 0.0, 0.0], "σ²(a) − 0.5 σ²(b)"),
        ([0.5, -2.0, 0.0, 0.001], "−0.25 σ²(a) + σ²(b)"),
        ([0.0, 0.0, 3.0, 3.0], "σ²(c) + σ²(Residual)"),
        ([0.0011, 0.0009, 1.0, 0.0], "0.0011 σ²(a) + σ²(c)"),
    ],
)
def test_combinations_of_components_in_words(vector, text):
    assert _directions(NAMES, np.array([vector]).T) == (text,)


def test_starts_are_raised_where_they_are_not_clearly_above_zero():
    start = np.array([3.0, -1.0, 0.4e-9, 0.6e-9, 2.0])
    for n, p, total in ((13, 3, 5.0), (3, 3, 50.0)):
        engine = SimpleNamespace(rss=50.0, n=n, n_fixed=p, mean_weight=1.0, mivque0=lambda: start)
        found = _default_start(engine)
        raised = 0.01 * total / 5.0
        kept = [3.0, raised, raised, 0.6e-9 if total == 5.0 else raised, 2.0]
        np.testing.assert_allclose(found, kept, rtol=1e-14)


def test_monte_carlo_errors_include_what_is_left_of_the_iteration():
    certificate = certify(
        Given(np.eye(4), np.eye(4)), maximum([1.0, 1.0, 1.0, 1.0]), NAMES, 1e-4
    ).certificate
    certified = Certified(
        replace(certificate, newton_decrement=0.5),
        {"average": np.diag([4.0, np.nan, 16.0, 1.0])},
        "",
        None,
    )
    known = Known(np.array([False, False, True, False]), np.zeros(4))
    found = _monte_carlo(np.diag([8.0, 9.0, 1.0, -1e-9]), certified, NAMES, known)
    assert found == pytest.approx({"a": 3.0, "b": 3.0, "c": 0.0, "Residual": 0.5}, rel=1e-9)


# The status -------------------------------------------------------------------------------------


def status(found, *, rises="", options=None, **changes):
    certificate = certify(Given(np.eye(2), np.eye(2)), found, ("a", "Residual"), 1e-10).certificate
    certified = Certified(replace(certificate, **changes), {}, rises, None)
    return _status(found, ("a", "Residual"), certified, options or REML(), {})


def test_statuses_of_maxima():
    assert status(maximum([2.0, 1.0])) == "Converged."
    bound = maximum([0.0, 1.0], [-0.25, 0.0])
    assert status(bound) == (
        "Converged; σ²(a) is estimated at its bound 0 (derivative of the log-likelihood -0.25)."
    )
    held = maximum([2.5, 1.0], held=np.array([True, False]))
    assert status(held) == "Converged; σ²(a) is held at 2.5."
    for decrement, tolerance, is_said in (
        (1.1e-6, 1e-10, True),
        (1e-6, 1e-10, False),
        (2e-5, 3e-5, False),
        (4e-5, 3e-5, True),
    ):
        text = status(maximum([2.0, 1.0], newton_decrement=decrement), tolerance=tolerance)
        assert (text == "Converged.") == (not is_said)
        assert ("rounding error ended the iteration" in text) == is_said
    other = maximum([2.0, 1.0], others=((-7.5, np.array([0.0, 3.0])),))
    assert "another maximum of the log-likelihood is only 0.5 lower, at σ²(a) = 0" in status(other)


@pytest.mark.parametrize(
    ("found", "arguments", "words"),
    [
        ({"saturated": True}, {}, "the likelihood has no maximum, as the model is saturated"),
        ({"at_limit": True}, {}, "the limit of 200 steps was reached; raise max_iter (Newton"),
        (
            {"at_limit": True},
            {"options": REML(max_iter=1, start={"a": 1.0})},
            "the limit of 1 step was reached; raise max_iter, or leave out start (Newton",
        ),
        ({"at_limit": True}, {"options": REML(max_iter=2)}, "the limit of 2 steps was"),
        ({"converged": True}, {"flat": ("a + b",)}, "likelihood is flat along a + b: other"),
        (
            {"converged": True},
            {"rises": "a − b"},
            "along a − b the likelihood rises: a saddle point; try another start= (Newton",
        ),
        ({"newton_decrement": 0.049}, {}, "rounding error prevents the last steps, 0.049 "),
        ({"newton_decrement": 0.05}, {}, "no further step raises the likelihood; try another"),
    ],
)
def test_statuses_of_other_ends(found, arguments, words):
    end = maximum([2.0, 1.0], **{"converged": False} | found)
    text = status(end, at_maximum=False, **arguments)
    assert text.startswith("Not converged: ")
    assert words in text
