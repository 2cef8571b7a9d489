"""Fixtures for the whole suite: reference values and the tables they were computed from.

Most values are in ``tests/reference/values``, and their tables come from installed packages.
Third-party tables, and what was computed from them, live outside the project.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.quick import BY_ROOM, ROOT, is_quick, mark_quick, text_of
from tests.reference.tables import VALUES, table, tables
from vcomp.numerics.kernels import compile_all

pytest.register_assert_rewrite("tests.helpers")

# The same examples in every run and on every machine. None has a time limit, and drawing them has
# none either: the first one compiles, and other machines are ten times slower.
settings.register_profile(
    "same",
    max_examples=10,
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")
# Few examples: where the tests run once more in another environment (.ci/run).
settings.register_profile("few", settings(), max_examples=6)
# Other examples in every run; and many more of them, of the scheduled workflow.
settings.register_profile("random", settings(), derandomize=False)
settings.register_profile("many", settings.get_profile("random"), max_examples=1000)

LITTLE = 0.0005
"""Seconds below which a call of a kernel is run as Python. Fits call one hundreds of times: calls
of milliseconds take longer than a compilation in all."""

VARIABLE = "VCOMP_REFERENCE"
SKIPPED = (
    f"third-party tables are not in the repository: set {VARIABLE} to the folder that has them "
    "(tests/reference/values/README.md)"
)
BESIDE = ROOT.parent / "shared"


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


# A minute of tests: ``pytest -m quick`` ----------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Let each worker have one thread, and compile nothing in a run of the quick tests."""
    if getattr(config.option, "numprocesses", None):
        # Workers with a thread for each core would wait for each other; they are not started yet.
        for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")
    if config.option.markexpr == "quick":
        os.environ["NUMBA_DISABLE_JIT"] = "1"
        # Integers of compiled loops wrap around.
        wraps = "ignore:overflow encountered in scalar:RuntimeWarning"
        config.addinivalue_line("filterwarnings", wraps)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without quick tests in a run of these."""
    if config.option.markexpr == "quick" and collection_path.suffix == ".py":
        return not is_quick(collection_path) or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each worker compile a part of the files.

    Workers collect in the same order: each would compile all files of a fresh checkout, and
    rewrite their assertions.
    """
    # Of what is collected nothing is garbage.
    gc.disable()
    config = session.config
    worker = getattr(config, "workerinput", None)
    if worker and ROOT / "tests" in [Path(part).resolve() for part in config.args]:
        files = [
            path
            for path in sorted((ROOT / "tests").rglob("test_*.py"))
            if is_quick(path) or config.option.markexpr != "quick"
        ]
        for path in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
            # What fails or is skipped is so again, with its name, when it is collected.
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the quick tests."""
    config.stash[BY_ROOM] = mark_quick(items)
    # Or every collection of garbage goes through all tests.
    gc.freeze()
    # Frames of pandas and models are many small objects: Python's 700 cost 6 % of all time.
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _kernels_of_the_same_kind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the amount of work decide which kernels are compiled, and neither time nor the cache.

    Files that name kernels test all of them as compiled code, however little there is to do.
    """
    of_kernels = "kernels" in request.path.as_posix() or "kernels" in text_of(request.path)
    with compile_all(0.0 if of_kernels else LITTLE):
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
