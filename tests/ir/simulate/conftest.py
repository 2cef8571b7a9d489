"""Collections to simulate from."""

from __future__ import annotations

import numpy as np
import pytest


def made_up(n_topics=40, n_systems=8, seed=3):
    """Return scores between 0 and 1 whose effects are correlated and of unequal variance."""
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(0.0, 1.0, (n_topics, 1))
    taste = rng.normal(0.0, 0.7, (n_topics, 2)) @ rng.normal(0.0, 1.0, (2, n_systems))
    noise = rng.normal(0.0, 1.0, (n_topics, n_systems)) * np.linspace(0.3, 1.2, n_systems)
    logits = -0.8 + np.linspace(-0.6, 0.6, n_systems) + difficulty + taste + noise
    return 1.0 / (1.0 + np.exp(-logits))


@pytest.fixture
def scores():
    return made_up()
