"""Options of likelihood methods: what is accepted, what is refused, and which start results."""

import numpy as np
import pandas as pd
import pytest

from vcomp.estimators.options import check_options, check_probes, known_components, start_of
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
    for engine in ("auto", "levels", "iterative"):
        check_probes(2, 0, engine)
        check_probes(None, np.random.default_rng(0), engine)
    for engine in ("strata", "blocked"):
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
