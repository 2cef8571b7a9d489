"""Pictures are drawn without a screen, and closed after each test."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

import vcomp
from tests.helpers.designs import balanced

plt.switch_backend("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def crossed():
    formula, data = balanced("crossed", seed=1)
    return vcomp.fit(formula, data)
