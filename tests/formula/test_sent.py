"""Codings that went to another machine make the same columns."""

import pickle

import numpy as np
import pandas as pd
import pytest
from patsy import EvalEnvironment, stateful_transform

import vcomp
from vcomp.formula import parse
from vcomp.formula.fixed import FixedPart
from vcomp.formula.formula_terms import TRANSFORMS


class HalfRange:
    """A transform of a user's own."""

    def __init__(self):
        self.low, self.high = np.inf, -np.inf

    def memorize_chunk(self, x):
        self.low, self.high = min(self.low, x.min()), max(self.high, x.max())

    def memorize_finish(self):
        pass

    def transform(self, x):
        return (x - self.low) / (self.high - self.low) - 0.5


class Slotted(HalfRange):
    """One that keeps its memory where it cannot be read."""

    __slots__ = ("high", "low")

    def __getattribute__(self, name):
        if name == "__dict__":
            raise AttributeError(name)
        return super().__getattribute__(name)


FIXED = [
    "x", "0 + x", "g", "0 + g", "g:h", "g*x", "C(k, Sum)", "C(k, Treatment(2)):x", "x > 0",
    "center(x)", "standardize(center(x) + shift)", "bs(x, df=4)", "0 + cr(x, df=3)",
    "g:bs(x, df=4)", "half(x)", "scale(x):C(k) + h", "poly(x, 2):factor(k)",
    "log(abs(x) + 1, 2)", "Q('odd name')", "I(x**2) + np.exp(x)",
    "te(cr(x, df=3), cc(k, df=3), constraints='center')", "0",
]  # fmt: skip


def columns(n, seed):
    rng = np.random.default_rng(seed)
    k = np.arange(n) % 5
    return {
        "x": rng.normal(size=n), "k": k.astype(float), "odd name": rng.normal(size=n),
        "g": pd.Categorical.from_codes(k % 3, list("abc")),
        "h": pd.Categorical.from_codes(np.arange(n) // 2 % 2, ["u", "v"]),
    }  # fmt: skip


def learned(fixed, transform=HalfRange):
    scope = {"shift": 2.5, "np": np, "half": stateful_transform(transform), "x": "not this"}
    formula = parse(f"y ~ {fixed} + (1|f)")
    batches = [columns(20, seed) for seed in range(3)]
    return FixedPart.of_rows(formula, lambda: batches, EvalEnvironment([scope, TRANSFORMS]), 1)


@pytest.mark.parametrize("fixed", FIXED)
def test_the_same_columns_of_other_rows(fixed):
    made = learned(fixed)
    sent, rest = made.__reduce__()
    # What is sent are plain values, and names of the scope that are no columns.
    assert "x" not in made.scope
    if not {"np", "half"} & made.scope.keys():  # modules and wrappers are for Dask's pickle
        rest = pickle.loads(pickle.dumps(rest))
    received = sent(*rest)
    assert received.names == made.names
    assert received.is_stateful == made.is_stateful
    some = columns(20, seed=1)
    np.testing.assert_array_equal(received.matrix(some, 20), made.matrix(some, 20))
    again, fields = received.__reduce__()  # from worker to worker
    np.testing.assert_array_equal(again(*fields).matrix(some, 20), made.matrix(some, 20))


def test_memory_that_cannot_be_read():
    with pytest.raises(
        vcomp.DataError, match=r"the state of 'half\(x\)', computed from all rows, cannot be"
    ):
        learned("half(x)", Slotted).__reduce__()
