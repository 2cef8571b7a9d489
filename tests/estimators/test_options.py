"""Options of likelihood methods: what is accepted, what is refused, and which start results."""

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.estimators.options import (
    check_options,
    check_probes,
    check_ratios,
    known_components,
    start_of,
)
from vcomp.exceptions import EstimationError

NAMES = ("a", "b", "Residual")
DEFAULT = np.array([3.0, 4.0, 5.0])


def refused(words):
    return pytest.raises(EstimationError, match=words)


def test_stopping_rules():
    for max_iter, tol in ((0, None), (np.int64(3), 1e-300), (200, 0.999)):
        check_options(max_iter, tol, "auto")
    for wrong in (-1, 1.0, True, "3", None):
        with refused(f"max_iter must be a whole number of at least 0, not {wrong!r}"):
            check_options(wrong, None, "auto")
    for wrong in (0.0, 1.0, -0.1, True, "1", float("nan")):
        with refused("tol must be a number between 0 and 1, not"):
            check_options(1, wrong, "auto")
    for engine in ("auto", "strata", "levels", "blocked", "iterative"):
        check_options(1, 0.5, engine)
    with refused("engine='dense' is not known; it is one of 'auto', 'strata', 'levels', 'blo"):
        check_options(1, 0.5, "dense")


def test_probes_of_engines_with_and_without_them():
    for engine in ("auto", "iterative"):
        check_probes(2, 0, engine)
        check_probes(None, np.random.default_rng(0), engine)
    for engine in ("strata", "levels", "blocked"):
        check_probes(None, None, engine)
        for n_probes, rng in ((2, None), (None, 0), (2, 0)):
            with refused(f"engine='{engine}' has no random probes"):
                check_probes(n_probes, rng, engine)
    for wrong in (1, 0, -2, 2.0, True, "3"):
        with refused("n_probes must be a whole number of at least 2, not"):
            check_probes(wrong, None, "auto")
    with refused("rng must be a seed"):
        check_probes(None, -1, "auto")


def test_held_components():
    for hold in ({"b": 0, "Residual": 0.5}, pd.Series({"Residual": 0.5, "b": 0.0})):
        known = known_components(hold, NAMES)
        assert known.held.tolist() == [False, True, True]
        assert known.values.tolist() == [0.0, 0.0, 0.5]
    for hold in (None, {}):
        known = known_components(hold, NAMES)
        assert not known.held.any()
        assert known.values.tolist() == [0.0, 0.0, 0.0]
    with refused("hold names component 'c', which is not in the model; components are a, b, Res"):
        known_components({"c": 1.0}, NAMES)
    with refused("makes the covariance matrix singular"):
        known_components({"Residual": 0.0}, NAMES)
    for wrong in (-1e-9, np.inf, np.nan, "1", True, None):
        with refused("a component must be a number of at least 0"):
            known_components({"a": wrong}, NAMES)
    with refused(r"hold must be a mapping such as \{'a': 0.01\}"):
        known_components([1.0, 2.0, 3.0], NAMES)


@pytest.mark.parametrize(
    ("values", "variance", "message"),
    [
        ([1.0, 1e-61, 1.0], 0.0, r"hold=\{'b': 1e-61\} .* variance, 1: use 0 or a larger number"),
        ([0.0, 1e-61, 0.0], 2.0, r"hold=\{'b': 1e-61\} is less than 1e-60 .* variance, 2: use 0"),
        ([1e-100, 0.0, 1e-170], 0.0, r"'Residual': 1e-170\} .* 1e-100: use a larger number"),
        ([1e-100, 0.0, 1e-159], 0.0, None),
        ([1.0, 2e-60, 0.0], 2.0, None),
        ([0.0, 0.0, 0.0], 2.0, None),
    ],
)
def test_components_far_below_the_others_are_refused(values, variance, message):
    if message is None:
        check_ratios(np.array(values), NAMES, "hold", variance)
    else:
        with refused(message):
            check_ratios(np.array(values), NAMES, "hold", variance)


@pytest.mark.parametrize("engine", ["auto", "levels", "iterative"])
def test_a_component_held_far_below_the_response_is_refused(engine):
    """In the unit of the response: fourth powers of its ratio to the residual are formed."""
    y = np.array([1.0, 4.0, 2.0, 7.0, 5.0, 5.0, 9.0]) * 1e-30
    data = pd.DataFrame({"a": list("aabbccc"), "b": list("xyxzxyz"), "y": y})
    formula = "y ~ (1|a) + (1|b)"
    with refused("1e-125} is less than 1e-60 of the other variance"):
        vcomp.fit(formula, data, method="reml", engine=engine, hold={"b": 1e-125})
    small, none = (
        vcomp.fit(formula, data, method="reml", engine=engine, hold={"b": v}).llf
        for v in (1e-110, 0.0)
    )
    assert small == pytest.approx(none, rel=1e-9)


def test_starts():
    nothing, known = known_components(None, NAMES), known_components({"b": 7.0}, NAMES)
    for start, of, expected in (
        (None, nothing, [3.0, 4.0, 5.0]),
        (None, known, [3.0, 7.0, 5.0]),
        ({"a": 0}, nothing, [0.0, 4.0, 5.0]),
        ({"a": 1.0}, known, [1.0, 7.0, 5.0]),
        (pd.Series({"Residual": 2.0}), nothing, [3.0, 4.0, 2.0]),
        ([1.0, 2.0, 3.0], nothing, [1.0, 2.0, 3.0]),
        # Numbers in order have one for a held component, too.
        ((1.0, 2.0, 3.0), known, [1.0, 7.0, 3.0]),
    ):
        assert start_of(start, NAMES, of, DEFAULT).tolist() == expected
    assert DEFAULT.tolist() == [3.0, 4.0, 5.0]
    with refused("start and hold both name component 'b'; a held component has no start"):
        start_of({"b": 1.0}, NAMES, known, DEFAULT)
    with refused("the start of 'Residual' must be positive, not 0"):
        start_of({"Residual": 0.0}, NAMES, nothing, DEFAULT)
    held = known_components({"Residual": 2.0}, NAMES)
    assert start_of([1.0, 2.0, 0.0], NAMES, held, DEFAULT).tolist() == [1.0, 2.0, 2.0]
    for wrong in ([1.0, 2.0], "abc", [[1.0, 2.0, 3.0]], ["a", "b", "c"]):
        with refused("start must be a mapping by name, or 3 numbers in the order a, b, Residual"):
            start_of(wrong, NAMES, nothing, DEFAULT)
