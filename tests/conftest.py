"""Fixtures for the whole suite: reference values and the tables they were computed from.

Most values are in ``tests/reference/values``, and their tables come from installed packages.
Third-party tables, and what was computed from them, live outside the project.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.reference.tables import VALUES, table, tables
from vcomp.numerics.kernels import compile_all

pytest.register_assert_rewrite("tests.helpers")

# No example has a time limit: the first one compiles, and other machines are ten times slower.
settings.register_profile("here", settings(), deadline=None)
settings.load_profile("here")
# Ten times as many examples, others in every run: of the scheduled workflow (CONTRIBUTING.md).
settings.register_profile(
    "many", settings(), max_examples=1000, derandomize=False, print_blob=True
)

# A fifth of the examples: where the tests run once more in another environment (.ci/run).
settings.register_profile("few", settings(), max_examples=20)

VARIABLE = "VCOMP_REFERENCE"
SKIPPED = (
    f"third-party tables are not in the repository: set {VARIABLE} to the folder that has them "
    "(tests/reference/values/README.md)"
)
BESIDE = Path(__file__).resolve().parents[2] / "shared"


def outside_file(folder: str, name: str) -> Path:
    """Return a file of the folder that holds ``reference/`` and ``data/``.

    A test is skipped if there is no such folder, and fails if there is one without the file.
    """
    root = Path(os.environ.get(VARIABLE, BESIDE))
    if VARIABLE not in os.environ and not root.is_dir():
        pytest.skip(SKIPPED)
    if root.name == "reference" and not (root / "reference").is_dir():
        root = root.parent  # the values themselves were named; the data are beside them
    path = root / folder / name
    if not path.is_file():
        pytest.fail(f"no {folder}/{name} in the reference folder {root}", pytrace=False)
    return path


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_compiled() -> Iterator[None]:
    """Kernels are tested as compiled code, and give the same bits in every test."""
    with compile_all():
        yield


@pytest.fixture(scope="session")
def reference() -> Callable[[str], dict[str, Any]]:
    """Return a function that parses ``<name>.json``, of the repository or from outside."""

    def load(name: str) -> dict[str, Any]:
        path = VALUES / f"{name}.json"
        if not path.is_file():
            path = outside_file("reference", f"{name}.json")
        parsed: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return parsed

    return load


@pytest.fixture(scope="session")
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that gives the path of a table, written from a package or outside."""
    folder = tmp_path_factory.mktemp("tables")

    def find(file_name: str) -> Path:
        name = file_name.removesuffix(".csv")
        if name not in tables():
            return outside_file("data", file_name)
        path = folder / file_name
        if not path.is_file():
            table(name).to_csv(path, index=False)
        return path

    return find
