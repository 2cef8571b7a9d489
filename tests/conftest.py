"""Fixtures for the whole suite: reference values and shared data that live outside the project."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.helpers")

VARIABLE = "VCOMP_REFERENCE"
BESIDE = Path(__file__).resolve().parents[2] / "shared"


def outside_file(folder: str, name: str) -> Path:
    """Return a file of the folder that holds ``reference/`` and ``data/``."""
    root = Path(os.environ.get(VARIABLE, BESIDE))
    if VARIABLE not in os.environ and not root.is_dir():
        pytest.skip(f"needs reference values: set {VARIABLE} to the folder that holds them")
    if root.name == "reference" and not (root / "reference").is_dir():
        root = root.parent  # the values themselves were named; the data are beside them
    path = root / folder / name
    if not path.is_file():
        pytest.fail(f"no {folder}/{name} in the reference folder", pytrace=False)
    return path


@pytest.fixture(scope="session")
def reference() -> Callable[[str], dict[str, Any]]:
    """Return a function that parses ``reference/<name>.json``."""

    def load(name: str) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(outside_file("reference", f"{name}.json").read_text())
        return parsed

    return load


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Return a function that finds ``data/<file name>``."""
    return lambda file_name: outside_file("data", file_name)
