"""Files that several commands read."""

from __future__ import annotations

import pytest

from tests.helpers.rank_scores import WIDE


@pytest.fixture
def wide(tmp_path):
    path = tmp_path / "wide.csv"
    WIDE.to_csv(path)
    return path
