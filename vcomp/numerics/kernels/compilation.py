"""numba's ``njit``, which keeps compiled code in a folder that this user can write.

A process that compiles for more than two seconds prints so once, to a terminal or a notebook.
Kernels with little to do are run as Python until they are compiled (:func:`at_once`). numba itself
is imported when a kernel is first called: that takes as long as many fits.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, update_wrapper, wraps
from importlib.util import find_spec, module_from_spec
from multiprocessing import parent_process
from pathlib import Path
from threading import RLock, Timer
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from vcomp.exceptions import warn

_PATIENCE = 2.0
"""Seconds of compilation after which a process prints that it is compiling."""

_ENOUGH = 3.0
"""Total seconds of a kernel in Python after which it is compiled."""

_UNASKED = 0.3
"""Total seconds of all kernels in Python before numba is imported. The import takes as long, with
the first function that numba reads."""

_RUN_AS_PYTHON: dict[Any, float] = {}
"""Seconds that each kernel has run as Python so far."""

_AS_PYTHON: ContextVar[bool] = ContextVar("_AS_PYTHON", default=False)
_COMPILE_ALL: list[float] = []
"""Seconds of a call in Python at which kernels are compiled, in all threads; empty if measured
times decide."""

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


class Compilations:
    """The compilations of this process so far. numba compiles in one thread at a time.

    It is a listener to numba's events.

    Parameters
    ----------
    say : called once, when they have taken as long as `patience`
    patience : seconds

    Attributes
    ----------
    count : number of functions, without those that were read from a folder
    seconds : of all that have ended
    """

    def __init__(self, say: Callable[[], None], patience: float = _PATIENCE) -> None:
        self.count, self.seconds = 0, 0.0
        self._say, self._patience = say, patience
        self._since: list[float] = []
        self._timer = Timer(patience, say)

    def notify(self, event: Any) -> None:
        """Handle the start or the end of a compilation."""
        (self.on_start if event.is_start else self.on_end)(event)

    def on_start(self, _: object) -> None:
        """Start the timer with the outermost function: compilations may be nested."""
        self._since.append(time.monotonic())
        if len(self._since) == 1 and self.seconds < self._patience:
            self._timer = Timer(self._patience - self.seconds, self._say)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, _: object) -> None:
        """Count a function, and stop the timer after the outermost one."""
        self.count += 1
        since = self._since.pop()
        if not self._since:
            self._timer.cancel()
            self.seconds += time.monotonic() - since


def say_what_it_is() -> None:
    """Print in the main process, to a terminal or a notebook, that kernels are compiling."""
    if parent_process() is None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
        print(
            "vcomp: compiling for this machine, which is done once (`vcomp warm-up` does all of "
            "it beforehand)",
            file=sys.stderr,
        )


COMPILATIONS = Compilations(say_what_it_is)


@cache
def _numba() -> Any:
    """Import numba, and register for its compilations."""
    import numba
    import numba.core.event

    numba.core.event.Listener.register(Compilations)
    numba.core.event.register("numba:compile", COMPILATIONS)
    return numba


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a function a kernel, with options of ``numba.njit``.

    numba looks for a folder for compiled code when the kernel is first used: that of
    NUMBA_CACHE_DIR, of the package, or of the user. Where it can write to none, code is kept in a
    private folder for temporary files; where there is none either, it is not kept.
    """

    def made(function: Callable[..., Any]) -> Any:
        return function if _AS_PYTHON.get() else _Kernel(function, options)

    return made


class _Kernel:
    """A function that is passed to numba at its first call.

    Parameters
    ----------
    function : of arrays, in Python
    options : of ``numba.njit``
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func, self._options = function, options
        self._made: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled function."""
        return (self._made or self._dispatcher())(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._dispatcher(), name)

    def _dispatcher(self) -> Any:
        """Return numba's function, which calls those of numba for other kernels, too."""
        with _MAKING:
            if self._made is None:
                self._made = _compilable(self.py_func, self._options)
                names = self.py_func.__globals__
                for name, value in list(names.items()):
                    if isinstance(value, _Kernel):
                        names[name] = value._dispatcher()
            return self._made


_MAKING = RLock()


def _compilable(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return numba's function, its code kept in a folder where possible."""
    numba = _numba()

    def kept(kernel: Any) -> Any:
        if options.get("cache") and hasattr(kernel, "_cache"):
            _KEPT.append(kernel)
            _forgive(kernel._cache)
        return kernel

    with suppress(RuntimeError):  # numba found no folder
        return kept(numba.njit(**options)(function))
    folder = _private_folder()
    if folder is not None:
        numba.config.CACHE_DIR = folder
        with suppress(RuntimeError):
            return kept(numba.njit(**options)(function))
    _warn_of_no_folder()
    return numba.njit(**options | {"cache": False})(function)


_KEPT: list[Any] = []


def compiled_into() -> str:
    """Return the folder with the code of the kernels in use, empty without one."""
    folders = {kernel.stats.cache_path for kernel in _KEPT}
    return os.path.commonpath(folders) if folders else ""


def is_compiled(kernel: Any) -> bool:
    """Whether a kernel is compiled, in this process or in its folder, or is going to be."""
    if _COMPILE_ALL or not hasattr(kernel, "py_func"):  # as a function that is left as it is
        return True
    if not _is_imported() and not _has_index(kernel):
        return False
    return not hasattr(kernel, "signatures") or bool(kernel.signatures) or _is_kept(kernel)


def _seconds_without_numba() -> float:
    """Return for how long kernels may still be run as Python before numba is imported."""
    if _COMPILE_ALL:
        return _COMPILE_ALL[-1]
    if _is_imported():
        return 0.0
    return max(_UNASKED - sum(_RUN_AS_PYTHON.values()), 0.0)


def _is_imported() -> bool:
    return bool(_numba.cache_info().currsize)


@cache
def _has_index(kernel: Any) -> bool:
    """Whether a file in one of numba's folders is named after a kernel.

    It is found without numba. On Linux the answer is no where numba keeps code elsewhere.
    """
    if not sys.platform.startswith("linux"):
        return True
    function = getattr(kernel, "py_func", kernel)
    code, module = function.__code__, function.__module__.rpartition(".")[2]
    name = f"{module}.{function.__qualname__}-{code.co_firstlineno}.*.nbi"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    pycache = Path(code.co_filename).parent / "__pycache__"
    given = os.environ.get("NUMBA_CACHE_DIR")
    places = [pycache.glob(name), Path(home, "numba").glob(f"*/{name}")]
    places = [Path(given).glob(f"*/{name}")] if given else places
    with suppress(OSError):  # a folder that cannot be read
        return any(any(files) for files in (*places, Path(_private_path()).glob(f"*/{name}")))
    return True


@cache
def _is_kept(kernel: Any) -> bool:
    """Whether the code of a kernel is in its folder.

    The answer is kept: later compilations by other processes change nothing here.
    """
    try:
        index = kernel._cache
        _, *machine_and_code = index._index_key(None, kernel.targetctx.codegen())
        kept: dict[Any, Any] = index._cache_file._load_index()
    except Exception:  # whatever a damaged pickle raises, or another version of numba
        return False
    return any(list(key[1:]) == machine_and_code for key in kept)


@contextmanager
def compile_all(least: float = 0.0) -> Iterator[None]:
    """Run kernels as Python only for calls below some seconds, whether compiled or not.

    Earlier compilations and measured times do not matter, so that all runs are alike.
    """
    _COMPILE_ALL.append(least)
    try:
        yield
    finally:
        _COMPILE_ALL.pop()


def seconds_as_python(kernel: Callable[..., Any]) -> float:
    """Return for how long a kernel may still be run as Python.

    If it is compiled, that is until numba would have been imported; then it is 0.
    """
    left = _seconds_without_numba()
    if (left > 0.0 and _has_index(kernel)) or is_compiled(kernel):
        return left
    return max(_ENOUGH - _RUN_AS_PYTHON.get(kernel, 0.0), 0.0)


def at_once(kernel: Kernel, seconds: float, by_arrays: Kernel | None = None) -> Kernel:
    """Return a kernel, or the same function in Python if that ends before a compilation.

    Parameters
    ----------
    kernel : a function that `njit` made
    seconds : about as many as the call takes in Python
    by_arrays : the same by operations on arrays, with the same bits
    """
    return kernel if seconds >= seconds_as_python(kernel) else _as_python(kernel, by_arrays)


def _as_python(kernel: Kernel, by_arrays: Kernel | None) -> Kernel:
    """Return a kernel as a function of Python, with all kernels that it calls.

    Their modules are run a second time, without numba: there is no second source.
    """
    of: Any = kernel
    if not hasattr(of, "py_func"):  # nothing is compiled at all
        return kernel
    function = by_arrays or getattr(_module_as_python(of.__module__), of.__name__)

    @wraps(function)
    def quietly(*arguments: Any) -> Any:
        start = time.thread_time()
        with np.errstate(all="ignore"):  # as compiled code, in which integers wrap around
            result = function(*arguments)
        _RUN_AS_PYTHON[kernel] = _RUN_AS_PYTHON.get(kernel, 0.0) + time.thread_time() - start
        return result

    as_python: Any = quietly
    return as_python


@cache
def _module_as_python(name: str) -> ModuleType:
    """Return a module of kernels whose functions are those of Python."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    token = _AS_PYTHON.set(True)
    try:
        spec.loader.exec_module(module)
    finally:
        _AS_PYTHON.reset(token)
    for key, value in vars(module).items():
        if hasattr(value, "py_func"):  # was imported from another module of kernels
            setattr(module, key, getattr(_module_as_python(value.__module__), value.__name__))
    return module


def _forgive(cache: Any) -> None:
    """Compile again where files are damaged, and continue where they cannot be written."""
    load, save = cache.load_overload, cache.save_overload

    def loaded(*wanted: Any) -> Any:
        try:
            return load(*wanted)
        except Exception:  # whatever a damaged pickle raises
            with suppress(OSError):
                cache.flush()
            return None

    def saved(*made: Any) -> None:
        try:
            save(*made)
        except OSError as error:
            _warn_of_unsaved(str(cache.cache_path), error.strerror or str(error))

    cache.load_overload, cache.save_overload = loaded, saved


def _private_path() -> str:
    return f"{tempfile.gettempdir()}/vcomp-kernels-{os.geteuid()}"


@cache
def _private_folder() -> str | None:
    """Return a temporary folder that only this user can write: code in it is run."""
    try:
        if sys.platform == "win32":  # the folder for temporary files is the user's own
            return str(Path(tempfile.gettempdir()) / "vcomp-kernels")
        folder = Path(_private_path())
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return str(folder) if is_own and not status.st_mode & 0o077 else None


@cache
def _warn_of_no_folder() -> None:
    warn(
        "no folder for compiled code can be written, so that every process compiles again for "
        "some seconds: set NUMBA_CACHE_DIR to a folder that can be written"
    )


@cache
def _warn_of_unsaved(folder: str, reason: str) -> None:
    warn(
        f"compiled code cannot be kept in {folder} ({reason}), so that the next process compiles "
        "again for some seconds"
    )
