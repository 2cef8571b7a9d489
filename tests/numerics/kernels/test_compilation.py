"""Kernels compile where no folder can be written: a read-only package, no home, a full image."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest

import vcomp
from vcomp.numerics.kernels import at_once, codes, compilation, ordering, seconds_as_python
from vcomp.numerics.kernels.compilation import Compilations, say_what_it_is

PACKAGE = Path(vcomp.__file__).parent

KERNEL = """
import numpy as np
from vcomp.numerics.kernels.ldl import forward
columns = np.array([[2.0, 1.0], [3.0, 4.0]])
forward(np.array([0, 1]), np.array([1], np.int32), np.array([1.0]), columns)
print(columns.tolist())
"""
"""A kernel that is always compiled."""

FIT = (
    """
import numpy as np, vcomp
rng = np.random.default_rng(0)
data = {"a": rng.integers(0, 5, 60), "b": rng.integers(0, 4, 60), "y": rng.normal(size=60)}
assert vcomp.fit("y ~ (1|a) + (1|b)", data).vcomp.size == 3
"""
    + KERNEL
)

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT", "0") != "0", reason="nothing is compiled"
)


def run(root, program=FIT, **variables):
    """Run a program in an environment of these variables alone; return its warnings."""
    environment = {"PYTHONPATH": str(root), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {name: str(value) for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "-W", "always::UserWarning", "-c", program],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[[2.0, 1.0], [1.0, 3.0]]\n"
    return done.stderr


def test_all_kernels_are_made_here():
    files = [path for path in PACKAGE.rglob("*.py") if "numba" in path.read_text("utf-8")]
    direct = [path.name for path in files if "from numba" in path.read_text("utf-8")]
    assert not direct


@pytest.fixture
def read_only(tmp_path):
    """Return the folder of a copy of the package in which no folder can be made.

    Permissions do not stop root, so that files are where numba would make folders.
    """
    root = tmp_path / "site"
    shutil.copytree(PACKAGE, root / "vcomp", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [path for path in (root / "vcomp").rglob("*") if path.is_dir()]:
        (folder / "__pycache__").write_text("no folder")
    return root


@pytest.fixture
def nowhere(tmp_path):
    """Return a path below a file, where even root cannot make a folder."""
    path = tmp_path / "file"
    path.write_text("no folder")
    return path / "below"


@pytest.fixture
def temporary(tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def test_a_private_folder_is_used_where_numba_finds_none(read_only, nowhere, temporary):
    err = run(read_only, HOME=nowhere, NUMBA_CACHE_DIR=nowhere, TMPDIR=temporary)
    assert "no folder for compiled code" not in err
    (folder,) = temporary.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.rglob("*.nbc"))


@pytest.mark.parametrize("kind", ["open to others", "a link"])
def test_code_that_others_could_have_written_is_not_run(
    read_only, nowhere, temporary, tmp_path, kind
):
    folder = temporary / f"vcomp-kernels-{os.geteuid()}"
    if kind == "a link":
        other = tmp_path / "other"
        other.mkdir(mode=0o700)
        folder.symlink_to(other)
    else:
        folder.mkdir()
        folder.chmod(0o777)
    err = run(read_only, KERNEL, HOME=nowhere, TMPDIR=temporary)
    assert err.count("no folder for compiled code can be written") == 1
    assert not any(folder.iterdir())


# Damaged files and full disks -------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_code_is_compiled_anew(tmp_path, ending):
    def contents():
        return {path.name: path.read_bytes() for path in tmp_path.rglob(f"*.{ending}")}

    assert run(PACKAGE.parent, KERNEL, NUMBA_CACHE_DIR=tmp_path) == ""
    whole = contents()
    assert whole
    for path in tmp_path.rglob(f"*.{ending}"):
        path.write_bytes(path.read_bytes()[:-20])
    assert run(PACKAGE.parent, KERNEL, NUMBA_CACHE_DIR=tmp_path) == ""
    assert {name: len(data) for name, data in contents().items()} == {
        name: len(data) for name, data in whole.items()
    }


def test_code_of_another_version_of_numba_is_not_used(tmp_path):
    assert run(PACKAGE.parent, KERNEL, NUMBA_CACHE_DIR=tmp_path) == ""
    indexes = list(tmp_path.rglob("*.nbi"))
    for path in indexes:
        rest = io.BytesIO(path.read_bytes())
        pickle.load(rest)  # the version, before the list of what is kept
        path.write_bytes(pickle.dumps("0.1") + b"nonsense" + rest.read())
    assert run(PACKAGE.parent, KERNEL, NUMBA_CACHE_DIR=tmp_path) == ""
    assert indexes
    assert all(b"nonsense" not in path.read_bytes() for path in indexes)


def test_processes_that_start_together_share_a_folder(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        said = pool.map(lambda _: run(PACKAGE.parent, KERNEL, NUMBA_CACHE_DIR=tmp_path), range(4))
        assert set(said) == {""}
    assert not list(tmp_path.rglob("*.tmp.*"))


@pytest.mark.skipif(sys.platform == "win32", reason="limits of the size of files are POSIX's")
def test_a_full_disk_is_a_warning(tmp_path):
    limited = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
"""
    err = run(PACKAGE.parent, limited + KERNEL, NUMBA_CACHE_DIR=tmp_path)
    assert err.count("compiled code cannot be kept in") >= 1
    assert "File too large" in err
    assert not list(tmp_path.rglob("*.tmp.*"))


# What a wait is for ------------------------------------------------------------------------------


def test_a_long_wait_says_once_what_it_is():
    said = Event()
    waits = Compilations(said.set, patience=0.01)
    waits.on_start(None)
    waits.on_start(None)  # a function that the first one calls
    assert said.wait(60.0)
    waits.on_end(None)
    assert waits.seconds == 0.0
    waits.on_end(None)
    assert waits.count == 2
    assert waits.seconds >= 0.01
    said.clear()
    waits.on_start(None)
    waits.on_end(None)
    assert not said.is_set()


def test_a_wait_for_one_function_says_it_as_well():
    said = Event()
    waits = Compilations(said.set, patience=0.01)
    waits.on_start(None)
    assert said.wait(60.0)
    waits.on_end(None)


def test_a_short_wait_says_nothing():
    said = Event()
    waits = Compilations(said.set, patience=0.2)
    waits.on_start(None)
    waits.on_end(None)
    assert not said.wait(0.4)
    assert waits.count == 1


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_is_told(monkeypatch, is_terminal):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    say_what_it_is()
    assert ("vcomp warm-up" in stream.getvalue()) == is_terminal


# Before they are compiled, kernels with little to do are run as Python ---------------------------

_LITTLE_TO_DO = """
import numpy as np
from vcomp.gtheory.allocation.search import search, value_at
from vcomp.ir.kernels.safe_differences import smallest_safe_difference
from vcomp.numerics.kernels import COMPILATIONS, at_once, compile_all, seconds_as_python

assert seconds_as_python(value_at) == 3.0
chosen = at_once(value_at, 1.0)
assert chosen is not value_at
found = chosen(np.array([0.0, 0.5, 1.0, 2.0]), np.array([4.0, 5.0]), True)
assert found == 0.5 / 5 + 1.0 / 4 + 2.0 / 20, found
assert at_once(value_at, 4.0) is value_at
# What it has taken counts, whatever was expected, and after some seconds in all it is compiled.
assert 0.0 < seconds_as_python(value_at) < 3.0
assert at_once(value_at, 3.0 - 1e-12) is value_at
with compile_all():
    assert at_once(value_at, 0.0) is value_at
# With the kernels that it calls, also those of other modules.
means = np.array([[0.1, 0.2, 0.4]])
orders = np.array([[2, 1, 0]])
arguments = means, means, np.zeros(1), np.zeros(1), np.zeros(1, int), orders, orders, 0.05, False
assert at_once(smallest_safe_difference, 0.0)(*arguments).tolist() == [0.1]
assert COMPILATIONS.count == 0
assert smallest_safe_difference(*arguments).tolist() == [0.1]
assert COMPILATIONS.count > 0
assert seconds_as_python(smallest_safe_difference) == 0.0
assert at_once(smallest_safe_difference, 0.0) is smallest_safe_difference
# Another process finds its code.
"""

_AT_HAND = """
from vcomp.ir.kernels.safe_differences import smallest_safe_difference
from vcomp.numerics.kernels import at_once, seconds_as_python
assert not smallest_safe_difference.signatures
assert seconds_as_python(smallest_safe_difference) == 0.0
"""


def test_kernels_with_little_to_do_are_run_as_python(tmp_path):
    run(PACKAGE.parent, _LITTLE_TO_DO + KERNEL, NUMBA_CACHE_DIR=tmp_path)
    run(PACKAGE.parent, _AT_HAND + KERNEL, NUMBA_CACHE_DIR=tmp_path)
    # Damaged files are as good as none.
    for file in tmp_path.rglob("*smallest_safe_difference*.nbi"):
        file.write_bytes(b"damaged")
    run(PACKAGE.parent, _AT_HAND.replace("== 0.0", "> 0.0") + KERNEL, NUMBA_CACHE_DIR=tmp_path)


_COLD = """
import vcomp
from vcomp.numerics.kernels import COMPILATIONS

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
assert res.bootstrap(50, rng=1, progress=False).converged.all()
res.dstudy(topic=[50, 100]).optimize("2*topic + topic:replicate", budget=300)
assert COMPILATIONS.count == 0, COMPILATIONS.count
"""


def test_few_refits_and_small_searches_compile_nothing(tmp_path):
    run(PACKAGE.parent, _COLD + KERNEL, NUMBA_CACHE_DIR=tmp_path)


_WITHOUT_NUMBA = """
import sys
import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
str(res.summary()), str(res.dstudy(topic=[50, 100]).summary())
from vcomp.numerics.kernels import ldl
assert "numba" not in sys.modules
"""


def test_a_fit_of_a_small_complete_table_does_not_import_numba(tmp_path):
    """It takes as long as the fit."""
    run(PACKAGE.parent, _WITHOUT_NUMBA + KERNEL, NUMBA_CACHE_DIR=tmp_path)


_UNBALANCED = """
import sys
import numpy as np, vcomp

rng = np.random.default_rng(0)
data = {f: rng.integers(0, q, 60_000) for f, q in (("s", 2000), ("d", 800))}
effects = rng.normal(size=2000)[data["s"]] + rng.normal(size=800)[data["d"]]
data["y"] = effects + rng.normal(size=60_000)
res = vcomp.fit("y ~ (1|s) + (1|d)", data)
assert "blocked" in res.certificate.engine, res.certificate.engine
str(res.summary())
assert "numba" not in sys.modules
"""

_IN_LITTLE_TIME = """
import sys
import vcomp

data = vcomp.datasets.load("docsearch")
res = vcomp.fit("score ~ (1|sys*topic)", data)
assert res.bootstrap(40, rng=1, progress=False).converged.all()
table = data.groupby(["topic", "sys"], observed=True).score.mean().unstack("sys")
vcomp.ir.accuracy(table.iloc[:60], ["tau", "rmse", "sens_abs"], [75], rng=1, trials=100)
res.dstudy(topic=[50, 100]).optimize("2*topic + topic:replicate", budget=300)
assert "numba" not in sys.modules
"""


@pytest.mark.parametrize("program", [_UNBALANCED, _IN_LITTLE_TIME])
def test_work_that_is_sooner_done_does_not_import_numba(tmp_path, program):
    """Whether the code of the kernels is at hand or not."""
    run(PACKAGE.parent, program + KERNEL, NUMBA_CACHE_DIR=tmp_path)
    work = "\nfrom vcomp.numerics.kernels import compile_all\nwith compile_all():\n"
    kept = work + "".join(f"    {line}\n" for line in program.splitlines() if "numba" not in line)
    run(PACKAGE.parent, kept + KERNEL, NUMBA_CACHE_DIR=tmp_path)
    run(PACKAGE.parent, program + KERNEL, NUMBA_CACHE_DIR=tmp_path)


_KEPT_CODE = """
import sys
from vcomp.gtheory.allocation.search import value_at
from vcomp.ir.kernels.safe_differences import smallest_safe_difference as smallest
from vcomp.numerics.kernels import at_once, is_at_hand, seconds_as_python

assert 0.0 < seconds_as_python(smallest) < 1.0 < seconds_as_python(value_at)
assert at_once(smallest, 0.01) is not smallest
assert at_once(smallest, 1.0) is smallest
assert not is_at_hand(smallest, 0.01)
assert not is_at_hand(value_at, 1.0)
assert "numba" not in sys.modules
assert is_at_hand(smallest, 1.0)
assert "numba" in sys.modules
assert seconds_as_python(smallest) == 0.0
assert is_at_hand(smallest, 0.01)
"""


def test_kept_code_is_found_without_numba(tmp_path):
    run(PACKAGE.parent, _LITTLE_TO_DO + KERNEL, NUMBA_CACHE_DIR=tmp_path)
    run(PACKAGE.parent, _KEPT_CODE + KERNEL, NUMBA_CACHE_DIR=tmp_path)


_NOT_USED = """
import sys
import vcomp

res = vcomp.fit("score ~ (1|sys*topic)", vcomp.datasets.load("docsearch"))
str(res.summary())
rooms = ["assumptions", "pairwise", "profile.profile", "resampling.refits", "hypotheses.component"]
unused = [f"vcomp.inference.{room}" for room in rooms]
unused += ["vcomp.estimators.quadratic.anova", "vcomp.statistics.batches.passes"]
unused += ["vcomp.statistics.level_grid", "matplotlib"]
assert not [m for m in sys.modules if m.startswith(tuple(unused))]
"""


def test_a_fit_imports_little_that_it_does_not_use(tmp_path):
    run(PACKAGE.parent, _NOT_USED + KERNEL, NUMBA_CACHE_DIR=tmp_path)


_TOGETHER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from vcomp.numerics.kernels import COMPILATIONS
from vcomp.numerics.kernels.pairs import _join_pairs, _root

def root(_):
    return _root(np.array([0, 0, 1], np.int32), 2)

import numpy as np
with ThreadPoolExecutor(8) as pool:
    assert set(pool.map(root, range(32))) == {0}
above = np.arange(3, dtype=np.int32)
_join_pairs(above, np.array([0, 1]), np.array([1], np.int32), 1)  # calls _root
assert above.tolist() == [0, 1, 0]
"""


def test_kernels_that_threads_call_first(tmp_path):
    run(PACKAGE.parent, _TOGETHER + KERNEL, NUMBA_CACHE_DIR=tmp_path)


class Stand:
    """A kernel of which nobody has compiled anything, or that is compiled."""

    def __init__(self, signatures=()):
        self.py_func, self.signatures = self, list(signatures)

    def __call__(self, x):
        return "compiled"


def by_arrays(x):
    return x + 1


@pytest.fixture
def anew():
    """As in a process that has run no kernel, and does not compile all of them."""
    compiles, used = list(compilation._COMPILE_ALL), dict(compilation._RUN_AS_PYTHON)
    compilation._COMPILE_ALL.clear()
    compilation._RUN_AS_PYTHON.clear()
    yield compilation._RUN_AS_PYTHON
    compilation._COMPILE_ALL[:] = compiles
    compilation._RUN_AS_PYTHON.clear()
    compilation._RUN_AS_PYTHON.update(used)


def test_a_kernel_is_run_as_python_for_three_seconds_in_all(anew):
    kernel, other = Stand(), Stand()
    assert at_once(kernel, 3.0, by_arrays) is kernel
    chosen = at_once(kernel, 2.99, by_arrays)
    assert chosen(41) == 42
    assert 0.0 < anew[kernel] < 1.0
    anew[kernel] = 2.0
    assert seconds_as_python(kernel) == 1.0
    assert at_once(kernel, 1.0, by_arrays) is kernel
    assert at_once(kernel, 0.9, by_arrays)(1) == 2
    assert anew[kernel] > 2.0
    anew[kernel] = 4.0
    assert seconds_as_python(kernel) == 0.0
    assert at_once(kernel, 0.0, by_arrays) is kernel
    assert seconds_as_python(other) == 3.0
    compiled = Stand(["(float64,)"])
    assert seconds_as_python(compiled) == 0.0
    assert at_once(compiled, 0.0, by_arrays) is compiled
    # A function that is left as it is, where nothing is compiled.
    assert at_once(by_arrays, 0.0) is by_arrays


@pytest.mark.parametrize("is_imported", [True, False])
def test_for_a_moment_numba_is_not_imported(anew, monkeypatch, is_imported):
    """Not even for a kernel that is compiled: importing numba takes as long."""

    def stands_for_numba():
        raise AssertionError

    stands_for_numba.cache_info = lambda: SimpleNamespace(currsize=int(is_imported))
    monkeypatch.setattr(compilation, "_numba", stands_for_numba)
    monkeypatch.setattr(compilation, "_has_index", lambda kernel: True)
    compiled = Stand(["(float64,)"])
    anew[Stand()] = 0.2
    expected = compiled if is_imported else by_arrays
    assert at_once(compiled, 0.04, by_arrays)(1) == expected(1)
    assert at_once(compiled, 0.11, by_arrays) is compiled
    with compilation.compile_all():
        assert at_once(compiled, 0.0, by_arrays) is compiled


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere it is always yes")
def test_where_a_folder_cannot_be_read_code_may_be_kept(monkeypatch, tmp_path):
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(compilation, "_private_path", lambda: tmp_path)

    def kernel():
        return None

    has_index = compilation._has_index.__wrapped__  # without what it kept
    assert not has_index(kernel)

    def unreadable():
        raise PermissionError

    monkeypatch.setattr(compilation, "_private_path", unreadable)
    assert has_index(kernel)


def test_integers_of_a_kernel_in_python_wrap_around_in_silence(anew):
    def overflows(x):
        return np.int64(x) * np.int64(2)

    assert at_once(Stand(), 0.0, overflows)(2**62) == -(2**63)


def test_kernels_in_python_call_others_in_python(anew):
    """Also those of other modules; the arrays are those of the compiled ones."""
    ptr, indices = np.array([0, 2, 4, 6, 8]), np.array([1, 3, 0, 2, 1, 3, 0, 2], np.int32)
    for kernel, arguments in (
        (ordering.minimum_degree, (ptr, indices, 0.9, np.inf)),
        (codes._count_levels, (indices, 4)),
    ):
        in_python = compilation._as_python(kernel, None)
        assert not hasattr(in_python, "py_func")
        found, expected = in_python(*arguments), kernel(*arguments)
        assert str(found) == str(expected)
        assert anew[kernel] > 0.0
    assert compilation._as_python(by_arrays, None) is by_arrays


@pytest.mark.skipif(sys.platform == "win32", reason="modes of folders")
def test_a_private_folder_is_made_and_used_if_it_is_this_user_s_alone(tmp_path, monkeypatch):
    compilation._private_folder.cache_clear()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"vcomp-kernels-{os.geteuid()}"
    try:
        for _ in range(2):  # made, and found again
            compilation._private_folder.cache_clear()
            assert compilation._private_folder() == str(folder)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for mode in (0o701, 0o710, 0o707, 0o720):
            folder.chmod(mode)
            compilation._private_folder.cache_clear()
            assert compilation._private_folder() is None
        folder.chmod(0o700)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        compilation._private_folder.cache_clear()
        (tmp_path / "vcomp-kernels-12345").mkdir(mode=0o700)  # of another user
        assert compilation._private_folder() is None
        monkeypatch.undo()
        monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "nowhere"))
        compilation._private_folder.cache_clear()
        assert compilation._private_folder() is None
        monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
        folder.rmdir()
        folder.symlink_to(tmp_path)
        compilation._private_folder.cache_clear()
        assert compilation._private_folder() is None
    finally:
        compilation._private_folder.cache_clear()
