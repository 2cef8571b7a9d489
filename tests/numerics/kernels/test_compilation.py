"""Kernels as numba makes them, and as Python where that is sooner done."""

from __future__ import annotations

import io
import os
import stat
import sys
import tempfile
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest

import vcomp
from vcomp.numerics.kernels import at_once, codes, compilation, ordering, seconds_as_python
from vcomp.numerics.kernels.compilation import Compilations, say_what_it_is

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT", "0") != "0", reason="nothing is compiled"
)


def test_all_kernels_are_made_here():
    files = [
        path
        for path in Path(vcomp.__file__).parent.rglob("*.py")
        if "numba" in path.read_text("utf-8")
    ]
    direct = [path.name for path in files if "from numba" in path.read_text("utf-8")]
    assert not direct


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
    assert waits._timer.daemon  # no process waits for it at its end
    assert said.wait(60.0)
    waits.on_end(None)
    assert 0.01 <= waits.seconds < 60.0
    # What it has said it does not say again.
    said.clear()
    waits.on_start(None)
    assert not said.wait(0.05)
    waits.on_end(None)


def test_a_short_wait_says_nothing():
    said = Event()
    waits = Compilations(said.set, patience=1000.0)
    waits.on_start(None)
    waits.on_end(None)
    assert waits._timer.finished.is_set()  # it is cancelled: nothing will be said
    assert not said.is_set()
    assert waits.count == 1
    assert 0.0 <= waits.seconds < 1000.0


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_is_told(monkeypatch, is_terminal):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    say_what_it_is()
    assert ("vcomp warm-up" in stream.getvalue()) == is_terminal
    monkeypatch.setattr(compilation, "parent_process", lambda: "a process that has workers")
    before = stream.getvalue()
    say_what_it_is()
    assert stream.getvalue() == before


def test_a_notebook_is_told(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", None)
    say_what_it_is()
    assert "vcomp warm-up" in capsys.readouterr().err


# Run as Python -----------------------------------------------------------------------------------


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
    """As in a process that has numba, has run no kernel, and does not compile all of them."""
    compilation._numba()
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
    left = 0.0 if is_imported else compilation._UNASKED - 0.2
    assert seconds_as_python(compiled) == left
    # An index alone, as of another version of numba, is not enough.
    assert seconds_as_python(Stand()) == (3.0 if is_imported else left)
    expected = compiled if is_imported else by_arrays
    assert at_once(compiled, 0.04, by_arrays)(1) == expected(1)
    assert at_once(compiled, 0.11, by_arrays) is compiled
    with compilation.compile_all():
        assert at_once(compiled, 0.0, by_arrays) is compiled
    assert not compilation._COMPILE_ALL
    anew[Stand()] = 0.2
    assert seconds_as_python(compiled) == 0.0


@pytest.mark.parametrize("is_imported", [True, False])
@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_kernel_is_compiled_here_or_in_its_folder(
    anew, monkeypatch, is_imported, has_index, is_kept
):
    monkeypatch.setattr(compilation, "_is_imported", lambda: is_imported)
    monkeypatch.setattr(compilation, "_has_index", lambda kernel: has_index)
    monkeypatch.setattr(compilation, "_is_kept", lambda kernel: is_kept)
    may_be = is_imported or has_index
    assert compilation.is_compiled(Stand(["(float64,)"])) == may_be
    assert compilation.is_compiled(Stand()) == (may_be and is_kept)
    without = Stand()
    del without.signatures  # as where numba leaves functions as they are
    assert compilation.is_compiled(without) == may_be
    assert compilation.is_compiled(by_arrays)
    with compilation.compile_all():
        assert compilation.is_compiled(Stand())


def test_the_index_of_a_folder_names_the_machine_and_the_code():
    """What numba's index has of a signature, the machine and the code."""

    def kernel(*keys):
        cache = SimpleNamespace(
            _index_key=lambda signature, codegen: (signature, codegen, "code"),
            _cache_file=SimpleNamespace(_load_index=lambda: dict.fromkeys(keys)),
        )
        return SimpleNamespace(_cache=cache, targetctx=SimpleNamespace(codegen=lambda: "machine"))

    is_kept = compilation._is_kept.__wrapped__
    assert not is_kept(kernel())
    assert is_kept(kernel(("(int64,)", "machine", "code")))
    assert is_kept(kernel(("(int64,)", "another", "code"), ("(int64,)", "machine", "code")))
    assert not is_kept(kernel(("(int64,)", "another", "code"), ("(int64,)", "machine", "other")))
    assert not is_kept(SimpleNamespace())  # of another version of numba


_PLACES = {
    "package": "package/__pycache__",
    "home": "home/.cache/numba/package_1",
    "cache": "cache/numba/package_1",
    "given": "given/package_1",
    "private": "private/package_1",
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere it is always yes")
@pytest.mark.parametrize(
    ("searched", "variables"),
    [
        ({"package", "home", "private"}, {"HOME": "home"}),
        ({"package", "cache", "private"}, {"HOME": "home", "XDG_CACHE_HOME": "cache"}),
        ({"given", "private"}, {"HOME": "home", "NUMBA_CACHE_DIR": "given"}),
    ],
)
def test_where_an_index_is_looked_for(monkeypatch, tmp_path, searched, variables):
    """In the folders that numba would use, under the name that it gives."""
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, folder in variables.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setattr(compilation, "_private_path", lambda: tmp_path / "private")
    names = {"__name__": "parts.kernels"}
    source = "\n\ndef total(x):\n    return x"
    exec(compile(source, tmp_path / "package" / "kernels.py", "exec"), names)
    has_index = compilation._has_index.__wrapped__
    for place, folder in _PLACES.items():
        for name in ("kernels.total-3.py311.nbi", "kernels.total-4.py311.nbi"):
            file = tmp_path / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            found = has_index(SimpleNamespace(py_func=names["total"]))
            assert found == has_index(names["total"]) == (place in searched and "-3" in name)
            file.unlink()


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_an_index_may_be_anywhere(monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    assert compilation._has_index.__wrapped__(by_arrays)


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
        monkeypatch.setattr(sys, "platform", "win32")
        compilation._private_folder.cache_clear()
        assert compilation._private_folder() == str(tmp_path / "vcomp-kernels")
    finally:
        compilation._private_folder.cache_clear()


@pytest.mark.parametrize("writable", ["numba's own", "a private one", "none"])
def test_code_is_kept_in_a_folder_that_can_be_written(monkeypatch, writable):
    made = []

    def njit(**options):
        here = "a private one" if numba.config.CACHE_DIR == "private" else "numba's own"
        if options.get("cache") and here != writable:
            raise RuntimeError("cannot cache function")
        made.append((options, numba.config.CACHE_DIR))
        return lambda function: SimpleNamespace(function=function)

    numba = SimpleNamespace(njit=njit, config=SimpleNamespace(CACHE_DIR=""))
    monkeypatch.setattr(compilation, "_numba", lambda: numba)
    private = "private" if writable == "a private one" else None
    monkeypatch.setattr(compilation, "_private_folder", lambda: private)
    warned = []
    monkeypatch.setattr(compilation, "_warn_of_no_folder", lambda: warned.append(True))
    found = compilation._compilable(by_arrays, {"cache": True, "nogil": True})
    assert found.function is by_arrays
    keeps = writable != "none"
    assert made == [({"cache": keeps, "nogil": True}, private or "")]
    assert bool(warned) is not keeps


def test_what_is_compiled_at_last_is_registered_once(monkeypatch):
    """Kernels that are kept are those whose folder is said."""
    kept, forgiven = compilation._KEPT, []
    before = len(kept)
    monkeypatch.setattr(compilation, "_forgive", forgiven.append)
    for options, cache in (({"cache": True}, "a cache"), ({"cache": False}, "a cache"),
                           ({"cache": True}, None)):  # fmt: skip
        kernel = SimpleNamespace() if cache is None else SimpleNamespace(_cache=cache)
        numba = SimpleNamespace(njit=lambda k=kernel, **_: lambda function: k)
        monkeypatch.setattr(compilation, "_numba", lambda n=numba: n)
        assert compilation._compilable(by_arrays, options) is kernel
    new = kept[before:]
    del kept[before:]
    assert len(new) == 1
    assert forgiven == ["a cache"]
