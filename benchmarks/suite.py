"""Fits beside a pass over the same memory, for pytest-benchmark.

    python -m pytest benchmarks/suite.py --benchmark-group-by=group

Each group has a pass over the columns as its unit, measured in the same run; the numbers that
pytest-benchmark prints in parentheses are multiples of it. ``--benchmark-autosave`` and
``--benchmark-compare`` compare versions. The extra ``bench`` installs it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import vcomp
from benchmarks.common import FULL_MODEL
from benchmarks.movielens import simulate
from benchmarks.perdoc import MIDDLE, SMALL, perdoc

pytestmark = pytest.mark.filterwarnings("ignore::vcomp.VcompWarning")

FRAMES: dict[str, Any] = {
    "p × a × (d:i), 8,040 rows": lambda: (FULL_MODEL, perdoc(SMALL, n_topics=10)),
    "p × a × (d:i), 115,080 rows": lambda: (FULL_MODEL, perdoc(MIDDLE)),
    "p × a × (d:i), 1,000,080 rows": lambda: (FULL_MODEL, perdoc(1_000_080)),
    "100,000 ratings": lambda: ("y ~ (1|user) + (1|film)", _ratings()),
}


def _ratings() -> pd.DataFrame:
    ratings = simulate(100_000, 2_000, 1_000)
    return pd.DataFrame({"y": ratings.y, "user": ratings.users, "film": ratings.films})


@pytest.fixture(scope="module", params=FRAMES)
def model(request: pytest.FixtureRequest) -> tuple[str, str, pd.DataFrame]:
    """Return the name of a data set, its formula and its frame."""
    formula, frame = FRAMES[request.param]()
    vcomp.fit(formula, frame)  # compiles
    return request.param, formula, frame


def test_a_pass_over_the_columns(benchmark: Any, model: tuple[str, str, pd.DataFrame]) -> None:
    """The yardstick: reading all of the data once."""
    name, _, frame = model
    benchmark.group = name
    columns = [frame[column].to_numpy() for column in frame]
    benchmark(lambda: [np.sum(column) for column in columns])


@pytest.mark.parametrize("method", ["anova", "reml"])
def test_fit(benchmark: Any, model: tuple[str, str, pd.DataFrame], method: str) -> None:
    """A fit with standard errors, from the frame."""
    name, formula, frame = model
    benchmark.group = name
    result = benchmark.pedantic(
        vcomp.fit, args=(formula, frame), kwargs={"method": method}, rounds=3, warmup_rounds=1
    )
    assert result.converged
