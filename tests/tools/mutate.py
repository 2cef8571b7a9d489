"""Change the numerical modules, one expression at a time, and count the changes that tests catch.

``python -m tests.tools.mutate --sample 300`` draws mutants by a seed, and runs for each the tests
of its room that enter the changed function, until one fails: first those of the module's own file
of tests, then the fastest, up to ``--tests`` seconds of processor time in all. What survives them
meets the tests of other rooms (``BEYOND``), up to ``--beyond`` seconds. A mutant lives in a
process of its own, which gets the changed code of the function; no file is changed. Loops that
numba compiles are run as plain Python (``NUMBA_DISABLE_JIT=1``). What was found is appended to the
file of ``--results``, from which an interrupted run continues. ``--again`` runs the survivors of
that file once more, with the tests as they are now, all of them unless ``--tests`` is given.
Mutants that change no behaviour, with the reason, are listed in ``equivalent.txt``.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import hashlib
import importlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from types import FunctionType
from typing import Any

from tests.tools.mutants import Mutant, announcing, code_of, mutants_of

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.txt")

ROOMS: dict[str, tuple[str, ...]] = {
    "estimators": ("estimators",),
    "ir": ("ir", "model/test_ranked.py", "plots"),
    "inference": (
        "inference",
        "model/test_diagnosis.py",
        "gtheory/test_dstudy_intervals.py",
        "ir/comparisons/test_compare_systems.py",
    ),
    "gtheory": ("gtheory", "plots"),
    "statistics": ("statistics",),
    "numerics": ("numerics",),
    "ctt": ("ctt",),
    "design": ("design", "model/test_results.py"),
    "multivariate": ("multivariate",),
    "model": ("model",),
    "presets": (
        "model/test_gauge.py",
        "model/test_precision.py",
        "model/test_published_presets.py",
        "printed",
    ),
    "studies": ("studies", "plots"),
}
"""The rooms that compute, and the tests of each (files and folders in ``tests``)."""

_FITS = ("design", "statistics", "estimators", "model", "invariants", "reference", "multivariate")

BEYOND: dict[str, tuple[str, ...]] = {
    "numerics": (*_FITS, "inference/pairwise", "inference/profile"),
    "design": (*_FITS, "data", "gtheory", "plots"),
    "statistics": (*_FITS, "data"),
    "estimators": (*_FITS, "inference/profile", "inference/resampling"),
}
"""Tests of other rooms that enter much of a room, for what its own tests do not catch."""

OF_LOOPS: dict[str, tuple[str, ...]] = {
    "numerics": ("numerics",),
    "statistics": ("statistics/kernels", "numerics/kernels"),
}
"""Tests of the loops of a room, if these are not in its own files and folders of kernels alone."""

SECONDS = 20.0
"""Processor time for the tests of a mutant: five times what they take, and this."""

SLOW = 10.0
"""Tests that take more processor time are not run (in plain Python, loops can take minutes)."""

EXAMPLES = 20
"""Examples of a property test, where it does not set their number."""


@dataclass(frozen=True, slots=True)
class Known:
    """A test that passes on the unchanged code.

    Attributes
    ----------
    test : node id
    seconds : of processor time that it took
    functions : of the rooms' modules that it enters, as ``module:function``
    """

    test: str
    seconds: float
    functions: frozenset[str]


class Recorder:
    """A plugin of pytest that records which functions each test enters."""

    def __init__(self) -> None:
        self.known: list[Known] = []
        self.entered: set[str] = set()
        # Fixtures and constants of modules are made once, and used by many tests.
        self._made: dict[Any, set[str]] = {}
        self._uses: tuple[Any, ...] = ()
        self._failed = False
        self._begun = 0.0

    def _making(self, what: Any) -> Generator[None, Any, Any]:
        before = set(self.entered)
        self.entered.clear()
        try:
            return (yield)
        finally:
            self._made.setdefault(what, set()).update(self.entered)
            self.entered |= before

    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, Any]:
        return (yield from self._making(collector.path))

    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        return (yield from self._making(fixturedef))

    def pytest_runtest_protocol(self, item: Any) -> None:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        self._uses = (item.path, *(each for of in fixtures for each in of))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._failed, self._begun = False, time.process_time()
        self.entered.clear()
        signal.signal(signal.SIGPROF, _too_slow)
        signal.setitimer(signal.ITIMER_PROF, SLOW)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._failed |= report.outcome != "passed"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        seconds = time.process_time() - self._begun
        if not self._failed and seconds < SLOW:
            entered = self.entered.union(*(self._made.get(of, ()) for of in self._uses))
            self.known.append(Known(nodeid, seconds, frozenset(entered)))


def _too_slow(*_: object) -> None:
    import pytest

    pytest.fail("the test is too slow")


class Quick:
    """A plugin of pytest: property tests stop at the first example that fails."""

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutants",
            phases=phases,
            derandomize=True,
            deadline=None,
            database=None,
            max_examples=EXAMPLES,
        )
        settings.load_profile("mutants")


def modules_of(room: str) -> Iterator[tuple[str, Path]]:
    """Yield the modules of a room with their files."""
    for path in sorted((ROOT / "vcomp" / room).rglob("*.py")):
        if path.name != "__init__.py":
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def function_of(module: str, function: str) -> FunctionType | None:
    """Return a function of a module; None if it cannot be found by its name."""
    found: Any = importlib.import_module(module)
    for part in function.split("."):
        found = found.__dict__.get(part) if hasattr(found, "__dict__") else None
        for inner in ("fget", "func", "__func__", "__wrapped__"):
            found = getattr(found, inner, None) or found
    return found if isinstance(found, FunctionType) else None


def files_of(tests: str) -> list[Path]:
    """Return the files of a file or folder of tests."""
    path = ROOT / tests
    return [path] if path.is_file() else sorted(path.rglob("test_*.py"))


def digest(path: Path) -> str:
    """Return a digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _made_here(paths: dict[str, Path], *, compiled: bool) -> list[Mutant]:
    """Return the mutants of modules that a process with or without numba can make."""
    every = [m for module, path in paths.items() for m in mutants_of(module, path)]
    return [m for m in every if m.compiled != compiled and function_of(m.module, m.function)]


class Room:
    """A room with its modules in memory, from which a process for each mutant is forked."""

    def __init__(self, name: str, *, compiled: bool = True) -> None:
        self.name, self.compiled = name, compiled
        self.paths = dict(modules_of(name))

    @cached_property
    def mutants(self) -> list[Mutant]:
        """The mutants that can be made in this process."""
        return _made_here(self.paths, compiled=self.compiled)

    @cached_property
    def tests(self) -> list[str]:
        """Files and folders with the tests of the room."""
        if not self.compiled and self.name in OF_LOOPS:
            return [f"tests/{part}" for part in OF_LOOPS[self.name]]
        if not self.compiled:  # whole fits by loops in plain Python would take too long
            found = (ROOT / "tests" / self.name).rglob("*kernels*")
            kernels = [p for p in found if p.is_dir() or p.suffix == ".py"]
            return [str(path.relative_to(ROOT)) for path in kernels] or [f"tests/{self.name}"]
        return [f"tests/{part}" for part in ROOMS[self.name]]

    @cached_property
    def tests_beyond(self) -> list[str]:
        """Files and folders with tests of other rooms."""
        parts = BEYOND.get(self.name, ()) if self.compiled else ()
        return [f"tests/{part}" for part in parts if part != self.name]

    def known(self, store: Path, tests: Sequence[str]) -> list[Known]:
        """Return tests with the functions of all rooms that they enter.

        They are read from a file; those of files of tests that changed since are recorded anew.
        """
        path = store / f"entered{'' if self.compiled else '-kernels'}.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        now = {str(f.relative_to(ROOT)): digest(f) for part in tests for f in files_of(part)}
        changed = sorted(n for n in now if n not in kept or kept[n]["digest"] != now[n])
        if changed:
            fresh = path.with_suffix(".part")
            code = self._apart(
                lambda: self._record(fresh, changed), path.with_suffix(".log"), 3600.0
            )
            if code != 0:
                raise RuntimeError(f"the tests could not be recorded: {path.with_suffix('.log')}")
            found = json.loads(fresh.read_text(encoding="utf-8"))
            for name in changed:
                own = [entry for entry in found if entry[0].partition("::")[0] == name]
                kept[name] = {"digest": now[name], "known": own}
            path.write_text(json.dumps(kept), encoding="utf-8")
        return [
            Known(test, seconds, frozenset(map(sys.intern, functions)))
            for name in sorted(now)
            for test, seconds, functions in kept[name]["known"]
        ]

    def _record(self, store: Path, files: Sequence[str]) -> int:
        import pytest

        for hook in (Recorder.pytest_make_collect_report, Recorder.pytest_fixture_setup):
            pytest.hookimpl(wrapper=True)(hook)
        recorder = Recorder()
        vars(builtins)["__entered__"] = recorder.entered.add
        paths = dict(found for room in ROOMS for found in modules_of(room))
        changed = {(m.module, m.function) for m in _made_here(paths, compiled=self.compiled)}
        for module, path in paths.items():
            for name, code in announcing(module, path).items():
                function = function_of(module, name)
                if function is not None and (module, name) in changed:
                    function.__code__ = code
        pytest.main([*_OPTIONS, *files], plugins=[recorder, Quick()])
        plain = [(k.test, round(k.seconds, 3), sorted(k.functions)) for k in recorder.known]
        store.write_text(json.dumps(plain), encoding="utf-8")
        return 0

    def outcome(
        self, mutant: Mutant, stages: Sequence[tuple[Sequence[Known], float]], log: Path
    ) -> str:
        """Return ``"caught"``, ``"survived"``, ``"timed out"`` or ``"not reached"``.

        Each stage has tests, and the seconds that they may take in all.
        """
        key = f"{mutant.module}:{mutant.function}"
        own = f"/test_{mutant.module.rpartition('.')[2]}.py"
        outcome = "not reached"
        for known, most in stages:
            reaching = [k for k in known if key in k.functions]
            if not reaching:
                continue
            reaching.sort(key=lambda k: (own not in k.test, k.seconds))
            until = accumulate(k.seconds for k in reaching)
            within = [k for k, end in zip(reaching, until, strict=True) if end <= most]
            outcome = self._outcome(mutant, within or reaching[:1], log)
            if outcome not in LIVED:
                break
        return outcome

    def _outcome(self, mutant: Mutant, tests: Sequence[Known], log: Path) -> str:
        limit = SECONDS + 5.0 * sum(k.seconds for k in tests)
        code = self._apart(lambda: self._test(mutant, tests), log, limit)
        # 2 is an error where a module of tests is imported, which fits at once.
        known_codes = {0: "survived", 1: "caught", 2: "caught", None: "timed out"}
        return known_codes.get(code, f"error {code}")

    def _test(self, mutant: Mutant, reaching: Sequence[Known]) -> int:
        import pytest

        function = function_of(mutant.module, mutant.function)
        assert function is not None
        function.__code__ = code_of(mutant, self.paths[mutant.module])
        tests = [k.test for k in reaching]
        return int(pytest.main([*_OPTIONS, "-x", *tests], plugins=[Quick()]))

    @staticmethod
    def _apart(work: Callable[[], int], log: Path, seconds: float) -> int | None:
        """Run work in a forked process; return its exit code, None if it took too long.

        The limit is of processor time, so that other work of the machine does not matter; a
        process that waits for ever gets twenty times as long.
        """
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
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


def equivalent() -> dict[str, str]:
    """Return the mutants that change no behaviour, with the reasons."""
    found, name = {}, ""
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
        elif line.strip() and not line.startswith("#"):
            name = line.strip()
    return found


def report(results: Path) -> str:
    """Return the counts of all results, by room, and the survivors."""
    known, counts, lived = equivalent(), Counter[tuple[str, str]](), []
    for mutant, outcome in _done(results).values():
        if mutant.name in known:
            outcome = "equivalent"
        elif outcome in LIVED:
            lived.append(f"{outcome}: {mutant.name} (line {mutant.line})")
        counts[mutant.module.split(".")[1], outcome] += 1
    kinds = ["caught", "timed out", "survived", "not reached", "equivalent"]
    lines = [f"{'room':<14}" + "".join(f"{kind:>13}" for kind in kinds) + f"{'caught of':>13}"]
    rooms = sorted({room for room, _ in counts})
    for room in [*rooms, "all"]:
        of = [sum(n for (r, k), n in counts.items() if room in (r, "all") and k == kind)
              for kind in kinds]  # fmt: skip
        alter = sum(of[:4])
        share = f"{(of[0] + of[1]) / alter:.1%}" if alter else ""
        lines.append(f"{room:<14}" + "".join(f"{n:>13}" for n in of) + f"{share:>13}")
    return "\n".join([*lines, "", *lived])


def _drawn(sample: int, seed: int, only: str) -> list[str]:
    """Return the names of mutants, drawn from those of all rooms by a seed.

    A larger sample begins with the smaller one of the same seed.
    """
    every = [
        m.name
        for room in ROOMS
        for module, path in modules_of(room)
        if only in module
        for m in mutants_of(module, path)
    ]
    return random.Random(seed).sample(every, len(every))[:sample]


def _run(args: argparse.Namespace) -> None:
    """Run the mutants of one room in this process."""
    name, _, plain = args.room.partition("-")
    for every in ROOMS:  # all modules, so that nothing is imported twice in the forked processes
        for module, _path in modules_of(every):
            importlib.import_module(module)
    room = Room(name, compiled=not plain)
    done = _done(args.results)
    if args.again:
        wanted = [n for n, (_, o) in done.items() if o in LIVED and n not in equivalent()]
    else:
        wanted = [n for n in _drawn(args.sample, args.seed, args.only) if n not in done]
    made = {m.name: m for m in room.mutants}
    # As drawn: where the time ends, those that were run are a sample too.
    chosen = [made[name] for name in wanted if name in made]
    if not chosen:
        return
    stages = [(room.known(args.store, room.tests), args.tests)]
    if args.beyond > 0:
        stages.append((room.known(args.store, room.tests_beyond), args.beyond))
    ends = time.monotonic() + args.seconds
    for mutant in chosen:
        if time.monotonic() > ends:
            return
        outcome = room.outcome(mutant, stages, args.store / "last.log")
        print(f"{outcome:>12}  {mutant.name}", flush=True)
        if outcome.startswith("error"):  # as of tests that were renamed meanwhile
            continue
        with args.results.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"outcome": outcome, "mutant": asdict(mutant)}) + "\n")


def _done(results: Path) -> dict[str, tuple[Mutant, str]]:
    """Return the mutants of a file of results by name, each with its last outcome."""
    found = {}
    lines = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
    for entry in map(json.loads, lines):
        mutant = Mutant(**entry["mutant"])
        found[mutant.name] = mutant, entry["outcome"]
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Run a sample of mutants, room by room, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=300, help="mutants that are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="part of the names of the modules")
    parser.add_argument("--seconds", type=float, default=1e9, help="for each room")
    parser.add_argument(
        "--tests", type=float, default=1e9, help="seconds of tests for each mutant"
    )
    parser.add_argument(
        "--beyond", type=float, default=60.0, help="seconds of tests of other rooms"
    )
    parser.add_argument("--again", action="store_true", help="run survivors once more")
    parser.add_argument("--store", type=Path, default=Path("build/mutants"))
    parser.add_argument("--results", type=Path, default=Path("build/mutants/results.jsonl"))
    parser.add_argument("--room", default="", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.store.mkdir(parents=True, exist_ok=True)
    if args.room:
        _run(args)
        return
    options = [f"--{k}={v}" for k, v in vars(args).items() if k not in ("room", "again")]
    options += ["--again"] if args.again else []
    rooms = [r for r in ROOMS if any(args.only in module for module, _ in modules_of(r))]
    for room in [*rooms, *(f"{room}-kernels" for room in rooms)]:
        environment = {**os.environ, "CI": "true"}
        if room.endswith("-kernels"):
            environment["NUMBA_DISABLE_JIT"] = "1"
        command = [sys.executable, "-m", "tests.tools.mutate", *options, f"--room={room}"]
        subprocess.run(command, check=True, cwd=ROOT, env=environment)
    print(report(args.results))


if __name__ == "__main__":
    main()
