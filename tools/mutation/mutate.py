"""Change the numerical modules, one expression at a time, and count the changes that tests catch.

``python -m tools.mutation.mutate --sample 300`` draws mutants by a seed, and runs for each the
tests that enter the changed function, until one fails: first those of the module's own file of
tests, then those of its room, then all others, each the fastest first, up to ``--tests`` seconds
of processor time in all. What survives meets two files of tests whole, with their slow tests: the
module's own and that with most tests that enter the function. A mutant lives in a process of its
own, which gets the changed code of the function; no file is changed.
Loops that numba compiles are compiled anew, with all that call them. What was found is appended to
the file of ``--results``, from which an interrupted run continues. ``--again`` runs the survivors
of that file once more, with the tests as they are now. A survivor may also change no behaviour.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
import gc
import hashlib
import importlib
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tools.mutation.mutants import Mutant, announcing, code_of, functions_of, mutants_of
from tools.mutation.recorder import Known, Quick, Recorder

ROOT = Path(__file__).resolve().parents[2]

ROOMS = (
    "estimators",
    "ir",
    "inference",
    "gtheory",
    "statistics",
    "numerics",
    "design",
    "multivariate",
    "model",
    "evals",
    "studies",
)
"""The rooms that compute."""

TESTS = (*ROOMS, "invariants", "plots", "printed", "reference")
"""Folders of tests that are run; others enter the rooms in other processes, or hardly."""

WITHOUT = ("test_kept_code.py", "test_limited.py")
"""Files of tests in other processes."""

LIBRARIES = ("numba", "pandas", "scipy.optimize", "scipy.sparse.linalg", "scipy.stats")
"""What tests import, so that it is imported once."""

SECONDS = 20.0
"""Processor time for the tests of a mutant: five times what they take, and this."""

WHOLE = 180.0
"""Processor time for the whole files of tests that a survivor meets."""

COMPILATION = 120.0
"""Processor time beside that, if loops have to be compiled."""

CHUNK = 20
"""Files of tests that are recorded in one process."""


def modules_of(room: str) -> Iterator[tuple[str, Path]]:
    """Yield the modules of a room with their files."""
    for path in sorted((ROOT / "vcomp" / room).rglob("*.py")):
        if path.name != "__init__.py":
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def found_in(module: str, name: str) -> Any:
    """Return what a module has by a qualified name; None if it has nothing."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = _unwrapped(found.__dict__.get(part) if hasattr(found, "__dict__") else None)
    return found


def _unwrapped(found: Any) -> Any:
    """Return what a property, a method of a class, a cache or a loop is made of."""
    while True:
        names = [n for n in ("__wrapped__", "fget", "func", "__func__") if _has(found, n)]
        if not names or isinstance(found, type):
            return found
        found = getattr(found, names[0])


def _has(found: Any, name: str) -> bool:
    """Whether an object has a name of its own: loops look up others in numba's functions."""
    return name in getattr(found, "__dict__", ()) or name in dir(type(found))


def function_of(module: str, function: str) -> FunctionType | None:
    """Return a function of a module; None if it cannot be found by its name."""
    found = found_in(module, function)
    return found if isinstance(found, FunctionType) else None


def files_of_tests() -> list[Path]:
    """Return the files of tests, and those of the library that have examples."""
    found = (p for folder in TESTS for p in (ROOT / "tests" / folder).rglob("test_*.py"))
    tests = (path for path in found if path.name not in WITHOUT)
    library = (p for room in ROOMS for _, p in modules_of(room) if ">>> " in p.read_text("utf-8"))
    return [*sorted(tests), *sorted(library)]


def digest(path: Path) -> str:
    """Return a digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Loops:
    """The loops of the rooms that numba compiles, and which of them call which."""

    def __init__(self, modules: Sequence[str]) -> None:
        from vcomp.numerics.kernels import compilation

        self.kind = compilation._Kernel
        self.by_name = {
            f"{module}:{name}": value
            for module in modules
            for name, value in vars(importlib.import_module(module)).items()
            if isinstance(value, self.kind) and value.__module__ == module
        }
        of = {id(loop): name for name, loop in self.by_name.items()}
        self._calls: dict[str, list[str]] = {}
        for name, loop in self.by_name.items():
            named = (loop.py_func.__globals__.get(n) for n in loop.py_func.__code__.co_names)
            self._calls[name] = [of[id(v)] for v in named if isinstance(v, self.kind)]

    def entered_by(self, name: str) -> set[str]:
        """Return a loop and all that it calls."""
        found, left = {name}, [name]
        while left:
            new = [n for n in self._calls.get(left.pop(), ()) if n not in found]
            found.update(new)
            left += new
        return found

    def named_by(self, names: Iterable[str]) -> set[str]:
        """Return the loops that have one of some names, and all that they call.

        Where a loop was compiled, others of its module are numba's, and announce nothing.
        """
        found = (self._named.get(name, set()) for name in names)
        return set().union(*found)

    def used_by(self, function: FunctionType) -> set[str]:
        """Return the loops that a function names: its module's, or public ones it imports."""
        found: set[str] = set()
        for name in _names(function.__code__):
            value = function.__globals__.get(name)
            if isinstance(value, self.kind):
                found |= self.entered_by(f"{value.__module__}:{value.__qualname__}")
            elif value is None and not name.startswith("_"):
                found |= self.named_by([name])
        return found

    @cached_property
    def _named(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name in self.by_name:
            found.setdefault(name.partition(":")[2], set()).update(self.entered_by(name))
        return found

    def announce(self) -> None:
        """Let every loop call ``__entered__``, for itself and for those that it calls."""
        names = {n: self.entered_by(n) for n in self.by_name}
        run = self.kind.__call__

        def announced(loop: Any, *arguments: Any) -> Any:
            for name in names.get(f"{loop.__module__}:{loop.__qualname__}", ()):
                vars(builtins)["__entered__"](name)
            return run(loop, *arguments)

        self.kind.__call__ = announced

    def compile_anew(self, changed: str, code: CodeType) -> None:
        """Give a loop another code; those that call it are compiled anew with it.

        Where a test called loops as it was collected, modules have numba's functions already.
        """
        self.by_name[changed].py_func.__code__ = code
        callers = [loop for name, loop in self.by_name.items() if changed in self.entered_by(name)]
        made = {id(loop._made): loop for loop in callers if loop._made is not None}
        for loop in callers:
            loop._options, loop._made = loop._options | {"cache": False}, None
        for module in list(sys.modules.values()) if made else ():
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in made:
                    setattr(module, name, made[id(value)])


class Bench:
    """All rooms with their modules in memory, from which a process for each mutant is forked."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.items: dict[str, Any] = {}
        self._of_files: dict[str, set[str]] = {}

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The modules of all rooms with their files."""
        found = dict(each for room in ROOMS for each in modules_of(room))
        for module in (*found, *LIBRARIES):
            importlib.import_module(module)
        return found

    @cached_property
    def loops(self) -> Loops:
        """The loops that numba compiles."""
        return Loops(list(self.paths))

    def known(self, slow: float, jobs: int = 1) -> list[Known]:
        """Return tests with the functions of all rooms that they enter.

        Tests that take more than `slow` seconds are left out. All are read from a file; those of
        files of tests that changed since, and that were too slow, are recorded.
        """
        path = self.store / "recorded.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        now = {str(f.relative_to(ROOT)): digest(f) for f in files_of_tests()}
        kept = {n: of for n, of in kept.items() if of["digest"] == now.get(n)}
        for n in now:
            kept.setdefault(n, {"digest": now[n], "known": [], "slow": [n], "limit": 0.0})
        left = [n for n in now if kept[n]["slow"] and kept[n]["limit"] < slow]
        chunks = [left[k : k + CHUNK] for k in range(0, len(left), CHUNK)]
        for start in range(0, len(chunks), jobs):
            parts = {path.with_suffix(f".part{k}"): files
                     for k, files in enumerate(chunks[start : start + jobs])}  # fmt: skip
            pieces = [
                partial(self._recorded, part, [t for n in files for t in kept[n]["slow"]], slow)
                for part, files in parts.items()
            ]
            in_parallel(pieces)
            for part, files in parts.items():
                known, late = json.loads(part.read_text(encoding="utf-8"))
                for n in files:
                    kept[n]["known"] += known.get(n, [])
                    kept[n]["slow"] = [t for t in late if t.partition("::")[0] == n]
                    kept[n]["limit"] = slow
            path.write_text(json.dumps(kept), encoding="utf-8")
        return [
            Known(test, seconds, entered)
            for name in now
            for functions, tests in kept[name]["known"]
            for entered in [self._with_loops(name, functions)]
            for test, seconds in tests
        ]

    def _with_loops(self, file: str, functions: Sequence[str]) -> frozenset[str]:
        """Return functions with the loops that they, or the file of the test, name."""
        if file not in self._of_files:
            text = (ROOT / file).read_text(encoding="utf-8")
            of_rooms = {n for n in self.loops.named_by(re.findall(r"\b[a-z]\w+", text))
                        if ".".join(n.split(".")[:2]) in text}  # fmt: skip
            self._of_files[file] = of_rooms
        named = {n for f in functions for n in self._of_functions.get(f, ())}
        return frozenset(map(sys.intern, {*functions, *named, *self._of_files[file]}))

    @cached_property
    def _of_functions(self) -> dict[str, set[str]]:
        found = {}
        for module, path in self.paths.items():
            for name, _ in functions_of(ast.parse(path.read_text(encoding="utf-8"))):
                function = function_of(module, name)
                if function is not None:
                    found[f"{module}:{name}"] = self.loops.used_by(function)
        return found

    def _recorded(self, part: Path, tests: Sequence[str], slow: float) -> None:
        log = Path(f"{part}.log")
        if apart(lambda: self._record(part, tests, slow), log, 3600.0) != 0:
            raise RuntimeError(f"the tests could not be recorded: {log}")

    def _record(self, part: Path, tests: Sequence[str], slow: float) -> int:
        import pytest

        for hook in (Recorder.pytest_make_collect_report, Recorder.pytest_fixture_setup):
            pytest.hookimpl(wrapper=True)(hook)
        recorder = Recorder(slow)
        vars(builtins)["__entered__"] = recorder.entered.add
        for module, path in self.paths.items():
            for name, code in announcing(module, path).items():
                function = function_of(module, name)
                if function is not None and f"{module}:{name}" not in self.loops.by_name:
                    function.__code__ = code
        self.loops.announce()
        pytest.main([*_OPTIONS, *tests], plugins=[recorder, Quick()])
        part.write_text(json.dumps([by_file(recorder.known), recorder.slow]), encoding="utf-8")
        return 0

    def serve(self, files: Iterable[str], work: Callable[[], None]) -> None:
        """Collect files of tests once, and do some work, whose processes run them."""
        import pytest

        pytest.main([*_OPTIONS, "-s", *files], plugins=[Serving(self, work), Quick()])

    def outcome(
        self, mutant: Mutant, known: Sequence[Known], most: float, log: Path, *, whole: bool = True
    ) -> str:
        """Return ``"caught"``, ``"survived"``, ``"timed out"`` or ``"not reached"``.

        The tests may take `most` seconds in all, without the whole files of tests.
        """
        code_of(mutant, self.paths[mutant.module])  # raises an error if the module was edited
        tests = affordable(mutant, known, most)
        if not tests:
            return "not reached"
        extra = COMPILATION if mutant.compiled else 0.0
        limit = SECONDS + 5.0 * sum(k.seconds for k in tests) + extra
        code = apart(lambda: self._test(mutant, [k.test for k in tests]), log, limit)
        outcome = {0: "survived", 1: "caught", None: "timed out"}.get(code, f"error {code}")
        if outcome == "survived" and whole:
            files = files_of(mutant, known)
            code = apart(lambda: self._test(mutant, files), log, WHOLE + extra)
        return "caught" if code == 1 else outcome

    def check(self, known: Sequence[Known]) -> None:
        """Raise an error if tests fail without a change, as where pytest does not start."""
        log = self.store / "unchanged.log"
        quick = sorted(known, key=lambda k: k.seconds)[:20]
        if apart(lambda: self._run([k.test for k in quick]), log, SECONDS + COMPILATION) != 0:
            raise RuntimeError(f"tests fail without a change: {log}")

    def _run(self, names: Sequence[str]) -> int:
        """Run tests and whole files of tests; return whether one failed."""
        wanted = dict.fromkeys(names)
        chosen = [self.items[name] for name in wanted if name in self.items]
        chosen += [of for name, of in self.items.items() if name.partition("::")[0] in wanted]
        for item, after in zip(chosen, [*chosen[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=after)
            if item.session.testsfailed:
                return 1
        return 0

    def _test(self, mutant: Mutant, names: Sequence[str]) -> int:
        code = code_of(mutant, self.paths[mutant.module])
        if mutant.compiled:
            self.loops.compile_anew(f"{mutant.module}:{mutant.function}", code)
        else:
            function = function_of(mutant.module, mutant.function)
            assert function is not None
            function.__code__ = code
        return self._run(names)


def by_file(known: Sequence[Known]) -> dict[str, list[tuple[list[str], list[Any]]]]:
    """Return by file of tests the sets of functions, each with the tests that enter just these."""
    found: dict[str, dict[frozenset[str], list[Any]]] = {}
    for k in known:
        of_file = found.setdefault(k.test.partition("::")[0], {})
        of_file.setdefault(k.functions, []).append((k.test, round(k.seconds, 3)))
    return {file: [(sorted(f), t) for f, t in sets.items()] for file, sets in found.items()}


def _names(code: CodeType) -> list[str]:
    """Return the names that a function uses, and those of the functions in it."""
    inner = [n for c in code.co_consts if isinstance(c, CodeType) for n in _names(c)]
    return [*code.co_names, *inner]


def affordable(mutant: Mutant, known: Sequence[Known], most: float) -> list[Known]:
    """Return the tests of a mutant that take `most` seconds, in the order in which they are run.

    Where none is known to enter the function, as slow tests may, these are the tests that enter
    its module.
    """
    _, room, *_, module = mutant.module.split(".")
    own = (f"/test_{module}.py", f"/{module}.py")
    reaching = _reaching(mutant, known)
    reaching.sort(
        key=lambda k: (
            not k.test.partition("::")[0].endswith(own),
            f"/{room}/" not in k.test.partition("::")[0],
            k.seconds,
        )
    )
    chosen, total = [], 0.0
    for test in reaching:
        if total + test.seconds <= most:
            total += test.seconds
            chosen.append(test)
    return chosen or reaching[:1]


def _reaching(mutant: Mutant, known: Sequence[Known]) -> list[Known]:
    entered = f"{mutant.module}:{mutant.function}"
    return [k for k in known if entered in k.functions] or [
        k for k in known if any(f.startswith(f"{mutant.module}:") for f in k.functions)
    ]


def files_of(mutant: Mutant, known: Sequence[Known], root: Path = ROOT) -> list[str]:
    """Return the module's own file of tests and that with most tests of a mutant, if any."""
    counts = Counter(k.test.partition("::")[0] for k in _reaching(mutant, known))
    files = [name for name, _ in counts.most_common() if name.startswith("tests/")]
    return list(dict.fromkeys([*own_tests(mutant.module, root), *files]))[:2]


def own_tests(module: str, root: Path = ROOT) -> list[str]:
    """Return the file of tests of a module, if there is one, slow as its tests may be."""
    _, room, *_, name = module.split(".")
    found = sorted((root / "tests" / room).rglob(f"test_{name}.py"))
    return [str(path.relative_to(root)) for path in found[:1]]


class Serving:
    """A plugin of pytest: where tests would be run, work is done that has their items."""

    def __init__(self, bench: Bench, work: Callable[[], None]) -> None:
        self._bench, self._work = bench, work

    def pytest_runtestloop(self, session: Any) -> bool:
        """Do the work in place of the tests."""
        self._bench.items = {item.nodeid: item for item in session.items}
        gc.freeze()  # or every process copies what its collection touches
        self._work()
        return True


def in_parallel(pieces: Sequence[Callable[[], None]]) -> None:
    """Run pieces of work in a process each."""
    children = []
    for work in pieces:
        child = os.fork()
        if child == 0:
            try:
                work()
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise RuntimeError(f"processes ended with {codes}")


def apart(work: Callable[[], int], log: Path, seconds: float) -> int | None:
    """Run work in a forked process; return its exit code, None if it took too long.

    The limit is of processor time, so that other work of the machine does not matter; a process
    that waits for ever gets twenty times as long.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        with log.open("w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            try:
                code = work()
            except BaseException as error:  # an interruption of a test is its failure
                print(repr(error), flush=True)
                code = 1
            sys.stdout.flush()
            os._exit(code)
    ends = time.monotonic() + 20.0 * seconds
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code in (-signal.SIGXCPU, -signal.SIGKILL):
                return None
            return 1 if code < 0 else code  # killed by a signal: the test would have been too
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


_OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", f"--rootdir={ROOT}"]


LIVED = ("survived", "not reached")


def report(results: Path) -> str:
    """Return the counts of all results, by room, and the survivors."""
    counts, lived = Counter[tuple[str, str]](), []
    for mutant, outcome in _done(results).values():
        if outcome in LIVED:
            lived.append(f"{outcome}: {mutant.name} (line {mutant.line})")
        counts[mutant.module.split(".")[1], outcome] += 1
    kinds = ["caught", "timed out", "survived", "not reached"]
    lines = [f"{'room':<14}" + "".join(f"{kind:>13}" for kind in kinds) + f"{'caught of':>13}"]
    rooms = sorted({room for room, _ in counts})
    for room in [*rooms, "all"]:
        of = [sum(n for (r, k), n in counts.items() if room in (r, "all") and k == kind)
              for kind in kinds]  # fmt: skip
        share = f"{(of[0] + of[1]) / sum(of):.1%}" if sum(of) else ""
        lines.append(f"{room:<14}" + "".join(f"{n:>13}" for n in of) + f"{share:>13}")
    return "\n".join([*lines, "", *lived])


def drawn(sample: int, seed: int, only: str, rooms: Sequence[str] = ROOMS) -> list[Mutant]:
    """Return mutants, drawn from those of some rooms by a seed.

    A larger sample begins with the smaller one of the same seed.
    """
    every = [
        m
        for room in rooms
        for module, path in modules_of(room)
        for m in mutants_of(module, path)
        if re.search(only, m.name)
    ]
    return random.Random(seed).sample(every, len(every))[:sample]


def _run(args: argparse.Namespace) -> None:
    """Run the mutants of a sample, or those that survived, in as many processes as are wanted."""
    done = _done(args.results)
    every = drawn(10**9 if args.again else args.sample, args.seed, args.only)
    if args.again:
        lived = {n for n, (_, o) in done.items() if o in LIVED}
        wanted = [m for m in every if m.name in lived]
    else:
        wanted = [m for m in every if m.name not in done]
    bench = Bench(args.store)
    # As drawn: where the time ends, those that were run are a sample too.
    chosen = [m for m in wanted if m.module in bench.paths and function_of(m.module, m.function)]
    if not chosen:
        return
    known = bench.known(args.slow, args.jobs)
    ends = time.monotonic() + args.seconds

    def work(job: int) -> None:
        for mutant in chosen[job :: args.jobs]:
            if time.monotonic() > ends:
                return
            log = args.store / f"last{job}.log"
            outcome = bench.outcome(mutant, used, args.tests, log, whole=not args.few)
            print(f"{outcome:>12}  {mutant.name}", flush=True)
            if outcome.startswith("error"):  # as of tests that were renamed meanwhile
                continue
            with args.results.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"outcome": outcome, "mutant": asdict(mutant)}) + "\n")

    def all_jobs() -> None:
        bench.check(used)
        in_parallel([lambda job=job: work(job) for job in range(args.jobs)])

    modules = tuple(f"{m.module}:" for m in chosen)
    used = [k for k in known if any(f.startswith(modules) for f in k.functions)]
    files = [k.test.partition("::")[0] for k in used]
    bench.serve(dict.fromkeys(chain(files, *(own_tests(m.module) for m in chosen))), all_jobs)


def _done(results: Path) -> dict[str, tuple[Mutant, str]]:
    """Return the mutants of a file of results by name, each with its last outcome."""
    found = {}
    lines = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
    for entry in map(json.loads, lines):
        mutant = Mutant(**entry["mutant"])
        found[mutant.name] = mutant, entry["outcome"]
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Run a sample of mutants, and print the counts by room."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=300, help="mutants that are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="pattern of their names")
    parser.add_argument("--seconds", type=float, default=1e9, help="in all, but for recording")
    parser.add_argument("--tests", type=float, default=60.0, help="seconds for each mutant")
    parser.add_argument("--slow", type=float, default=5.0, help="seconds of the longest test")
    parser.add_argument("--jobs", type=int, default=1, help="processes beside each other")
    parser.add_argument("--few", action="store_true", help="no whole files of tests: run --again")
    parser.add_argument("--again", action="store_true", help="run survivors once more")
    parser.add_argument("--store", type=Path, default=Path("build/mutants"))
    parser.add_argument("--results", type=Path, default=Path("build/mutants/results.jsonl"))
    args = parser.parse_args(argv)
    args.store.mkdir(parents=True, exist_ok=True)
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    os.environ.update(threads)  # before numpy is imported
    _run(args)
    print(report(args.results))


if __name__ == "__main__":
    main()
