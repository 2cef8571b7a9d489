"""Code that is kept or cannot be, and what is compiled and imported at all, by other processes."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import vcomp

PACKAGE = Path(vcomp.__file__).parent

KERNEL = """
import numpy as np
from vcomp.numerics.kernels.ldl import forward
columns = np.array([[2.0, 1.0], [3.0, 4.0]])
forward(np.array([0, 1]), np.array([1], np.int32), np.array([1.0]), columns)
print(columns.tolist())
"""
"""A kernel that is always compiled."""

DONE = "[[2.0, 1.0], [1.0, 3.0]]\n"

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT", "0") != "0", reason="nothing is compiled"
)


def run(root, program=KERNEL, **variables):
    """Run a program in an environment of these variables alone; return its warnings."""
    environment = {"PYTHONPATH": str(root), "PATH": os.defpath}
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
    assert done.stdout == (DONE if KERNEL in program else "")
    return done.stderr


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


@pytest.fixture(scope="module")
def code_of_kernel(tmp_path_factory):
    """Return a folder with the code of the kernel."""
    folder = tmp_path_factory.mktemp("code")
    assert run(PACKAGE.parent, KERNEL, NUMBA_CACHE_DIR=folder) == ""
    return folder


@pytest.fixture
def kept(code_of_kernel, tmp_path):
    """Return a copy of that folder."""
    return shutil.copytree(code_of_kernel, tmp_path / "kept")


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_code_is_compiled_anew(kept, ending):
    def contents():
        return {path.name: path.read_bytes() for path in kept.rglob(f"*.{ending}")}

    whole = contents()
    assert whole
    for path in kept.rglob(f"*.{ending}"):
        path.write_bytes(path.read_bytes()[:-20])
    assert run(PACKAGE.parent, KERNEL, NUMBA_CACHE_DIR=kept) == ""
    assert {name: len(data) for name, data in contents().items()} == {
        name: len(data) for name, data in whole.items()
    }


def test_code_of_another_version_of_numba_is_not_used(kept):
    indexes = list(kept.rglob("*.nbi"))
    for path in indexes:
        rest = io.BytesIO(path.read_bytes())
        pickle.load(rest)  # the version, before the list of what is kept
        path.write_bytes(pickle.dumps("0.1") + b"nonsense" + rest.read())
    assert run(PACKAGE.parent, KERNEL, NUMBA_CACHE_DIR=kept) == ""
    assert indexes
    assert all(b"nonsense" not in path.read_bytes() for path in indexes)


def test_processes_that_start_together_share_a_folder(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        said = pool.map(lambda _: run(PACKAGE.parent, KERNEL, NUMBA_CACHE_DIR=tmp_path), range(2))
        assert set(said) == {""}
    assert not list(tmp_path.rglob("*.tmp.*"))


@pytest.mark.skipif(sys.platform == "win32", reason="limits of the size of files are POSIX's")
def test_a_full_disk_is_a_warning(tmp_path):
    # Python 3.11 keeps byte code that the limit has cut, for every later process.
    limited = """
import resource, signal, sys
sys.dont_write_bytecode = True
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
"""
    err = run(PACKAGE.parent, limited + KERNEL, NUMBA_CACHE_DIR=tmp_path)
    assert err.count("compiled code cannot be kept in") >= 1
    assert "File too large" in err
    assert not list(tmp_path.rglob("*.tmp.*"))


# Before they are compiled, kernels with little to do are run as Python ---------------------------

CLOCK = """
import itertools, time
ticks = itertools.count()
time.thread_time = lambda: {tick} * next(ticks)
"""
"""A clock on which every call of a loop takes as long, on any machine."""

_LITTLE_TO_DO = """
import numpy as np
from vcomp.ir.kernels.rank_agreement import count_below
from vcomp.numerics.kernels import COMPILATIONS, at_once, compile_all, seconds_as_python
from vcomp.numerics.kernels.codes import add_group_sums

assert seconds_as_python(add_group_sums) == 3.0
chosen = at_once(add_group_sums, 1.0)
assert chosen is not add_group_sums
sums = np.zeros((2, 1))
chosen(np.array([0, 1, 0]), np.array([[1.0], [2.0], [4.0]]), sums)
assert sums.tolist() == [[5.0], [2.0]], sums
assert at_once(add_group_sums, 4.0) is add_group_sums
# What it has taken counts, whatever was expected, and after some seconds in all it is compiled.
assert 0.0 < seconds_as_python(add_group_sums) < 3.0
assert at_once(add_group_sums, 3.0 - 1e-12) is add_group_sums
with compile_all():
    assert at_once(add_group_sums, 0.0) is add_group_sums
# With the kernels that it calls.
arguments = np.array([7], np.uint64), np.uint64(2)
assert at_once(count_below, 0.0)(*arguments) == 2
assert COMPILATIONS.count == 0
assert count_below(*arguments) == 2
assert COMPILATIONS.count > 0
assert seconds_as_python(count_below) == 0.0
assert at_once(count_below, 0.0) is count_below
# Another process finds its code.
"""

_TIMED = CLOCK.format(tick=0.001) + _LITTLE_TO_DO

_AT_HAND = """
from vcomp.ir.kernels.rank_agreement import count_below
from vcomp.numerics.kernels import at_once, seconds_as_python
assert not count_below.signatures
assert seconds_as_python(count_below) == 0.0
"""


_KEPT_CODE = """
import sys
from vcomp.ir.kernels.rank_agreement import count_below
from vcomp.numerics.kernels import at_once, seconds_as_python
from vcomp.numerics.kernels.codes import add_group_sums

assert 0.0 < seconds_as_python(count_below) < 1.0 < seconds_as_python(add_group_sums)
assert at_once(count_below, 0.01) is not count_below
assert at_once(count_below, 1.0) is count_below
assert "numba" not in sys.modules
"""


def test_kernels_with_little_to_do_are_run_as_python(tmp_path):
    """Until they are compiled; kept code is found without numba."""
    run(PACKAGE.parent, _TIMED, NUMBA_CACHE_DIR=tmp_path)
    run(PACKAGE.parent, _KEPT_CODE + _AT_HAND, NUMBA_CACHE_DIR=tmp_path)
    # Damaged files are as good as none.
    for file in tmp_path.rglob("*count_below*.nbi"):
        file.write_bytes(b"damaged")
    run(PACKAGE.parent, _AT_HAND.replace("== 0.0", "> 0.0"), NUMBA_CACHE_DIR=tmp_path)


_NOT_USED = """
import sys
import vcomp

data = vcomp.datasets.load("docsearch")
res = vcomp.fit("score ~ (1|sys*topic)", data)
assert not {"scipy.linalg", "scipy.sparse", "statsmodels"} & sys.modules.keys()
str(res.summary())
rooms = ["assumptions", "pairwise", "profile.profile", "resampling.refits", "hypotheses.component"]
unused = [f"vcomp.inference.{room}" for room in rooms]
unused += ["vcomp.estimators.quadratic.anova", "vcomp.statistics.batches.passes"]
unused += ["vcomp.statistics.level_grid", "matplotlib"]
assert not [m for m in sys.modules if m.startswith(tuple(unused))]
str(res.dstudy(topic=[50, 100]).summary())
from vcomp.numerics.kernels import ldl
assert "numba" not in sys.modules, "a fit of a small complete table imports numba"
"""

_UNBALANCED = """
import numpy as np

rng = np.random.default_rng(0)
data = {f: rng.integers(0, q, 60_000) for f, q in (("s", 2000), ("d", 800))}
effects = rng.normal(size=2000)[data["s"]] + rng.normal(size=800)[data["d"]]
data["y"] = effects + rng.normal(size=60_000)
res = vcomp.fit("y ~ (1|s) + (1|d)", data)
assert "blocked" in res.certificate.engine, res.certificate.engine
str(res.summary())
assert "numba" not in sys.modules, "an unbalanced fit imports numba"
"""

_IN_LITTLE_TIME = """
import sys
import vcomp
from vcomp.numerics.kernels import COMPILATIONS

data = vcomp.datasets.load("docsearch")
res = vcomp.fit("score ~ (1|sys*topic)", data)
assert res.bootstrap(50, rng=1, progress=False).converged.all()
res.dstudy(topic=[50, 100]).optimize("2*topic + topic:replicate", budget=300)
table = data.groupby(["topic", "sys"], observed=True).score.mean().unstack("sys")
vcomp.ir.accuracy(table.iloc[:60], ["tau", "rmse", "sens_abs"], [75], rng=1, trials=100)
assert COMPILATIONS.count == 0, COMPILATIONS.count
assert "numba" not in sys.modules, "refits, searches or trials import numba"
"""

_AS_IF_KEPT = """
from vcomp.numerics.kernels import compilation
compilation._has_index = lambda kernel: True
"""


@pytest.mark.parametrize("first", [_NOT_USED, _AS_IF_KEPT], ids=["cold", "code at hand"])
def test_work_that_is_sooner_done_does_not_import_numba(tmp_path, first):
    """Whether the code of the kernels is at hand or not. How fast Python is does not matter.

    Of vcomp, too, a fit imports little that it does not use.
    """
    program = first + CLOCK.format(tick=0.0) + _IN_LITTLE_TIME + _UNBALANCED
    run(PACKAGE.parent, program, NUMBA_CACHE_DIR=tmp_path)


_TOGETHER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from vcomp.numerics.kernels import COMPILATIONS
from vcomp.ir.kernels.rank_agreement import count_below, count_bits

def bits(_):
    return count_bits(np.uint64(5))

import numpy as np
with ThreadPoolExecutor(8) as pool:
    assert set(pool.map(bits, range(32))) == {2}
assert count_below(np.array([7], np.uint64), np.uint64(2)) == 2  # calls count_bits
"""


def test_kernels_that_threads_call_first(tmp_path):
    run(PACKAGE.parent, _TOGETHER, NUMBA_CACHE_DIR=tmp_path)
