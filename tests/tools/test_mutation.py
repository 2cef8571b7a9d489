"""Mutants of a small module, and the report of what was found of them."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from tools.mutation import mutate
from tools.mutation.mutants import code_of, mutants_of

SOURCE = '''
def area(width, height):
    """Return 2 * 3."""
    if width < 0:
        raise ValueError(f"{width + 1} is below 0")
    assert height > 0
    return sum(a * b for a, b in zip([width], [height], strict=True))
'''


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "small.py"
    file.write_text(SOURCE, encoding="utf-8")
    return file


def area(mutant, path):
    """Return the changed function."""

    def function(width, height):
        return None

    function.__code__ = code_of(mutant, path)
    return function


def test_operators_and_boundaries_are_changed_but_no_texts_and_assertions(path):
    found = [mutant.name for mutant in mutants_of("small", path)]
    assert found == [
        "small:area: width < 0 -> width <= 0",
        "small:area: width < 0 -> width >= 0",
        "small:area: 0 -> 1",
        "small:area: a * b -> a / b",
    ]


def test_a_mutant_has_the_change_and_nothing_else(path):
    at_most, opposite, one, divided = (area(m, path) for m in mutants_of("small", path))
    assert divided(6, 3) == 2
    assert at_most(6, 3) == one(6, 3) == 18
    for refusing, width in ((at_most, 0), (one, 0), (opposite, 6)):
        with pytest.raises(ValueError, match="is below 0"):
            refusing(width, 3)
    assert opposite(-1, 3) == -3


def test_the_last_outcome_counts(path, tmp_path):
    mutants = mutants_of("vcomp.small.one", path)
    entries = zip(mutants, ("survived", "timed out", "survived", "not reached"), strict=True)
    lines = [{"outcome": outcome, "mutant": asdict(mutant)} for mutant, outcome in entries]
    lines.append(lines[0] | {"outcome": "caught"})
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    header, of_room, of_all, _, *lived = mutate.report(results).splitlines()
    kinds = ["room", "caught", "timed", "out", "survived", "not", "reached"]
    assert header.split() == [*kinds, "caught", "of"]
    assert of_room.split() == ["small", "1", "1", "1", "1", "50.0%"]
    assert of_all.split()[1:] == of_room.split()[1:]
    assert [line.partition(":")[0] for line in lived] == ["survived", "not reached"]
    assert lived[1].startswith("not reached: vcomp.small.one:area: a * b -> a / b")


def test_a_larger_sample_begins_with_the_smaller_one():
    few, many = (mutate.drawn(n, 3, "", ["studies"]) for n in (5, 40))
    assert many[:5] == few
    assert len({m.name for m in many}) == 40


def known(test, seconds, *functions):
    """Return a test that enters functions of the small module."""
    return mutate.Known(test, seconds, frozenset(f"vcomp.room.small:{f}" for f in functions))


TESTS = [
    known("tests/other/test_any.py::fast", 0.1, "area"),
    known("tests/other/test_any.py::elsewhere", 0.1, "length"),
    known("tests/room/test_large.py::slow", 3.0, "area"),
    known("tests/room/test_large.py::fast", 1.0, "area"),
    known("vcomp/room/small.py::vcomp.room.small.area", 2.0, "area", "length"),
    known("tests/room/test_small.py::own", 0.5, "area"),
]


def test_arguments_that_save_time_or_memory_are_not_changed(tmp_path):
    file = tmp_path / "small.py"
    file.write_text(
        """
def found(A, b):
    x = solve(A, b, lower=True, overwrite_a=1, overwrite_b=True, check_finite=False)
    y = einsum(x, optimize=True)
    return solve(A, y, overwrite_b=False, check_finite=True, copy=True)
""",
        encoding="utf-8",
    )
    found = [m.name.partition("found: ")[2] for m in mutants_of("small", file)]
    assert found == ["True -> False", "False -> True", "True -> False #2", "True -> False #3"]


def test_the_number_before_codes_is_not_changed_and_any_other_is(tmp_path):
    file = tmp_path / "small.py"
    file.write_text(
        """
def starts(codes, sums):
    return np.flatnonzero(np.diff(codes, prepend=-1)), np.diff(sums, n=-1, prepend=0)
""",
        encoding="utf-8",
    )
    found = [m.name.partition("starts: ")[2] for m in mutants_of("small", file)]
    assert found == ["1 -> 2", "0 -> 1"]


def test_estimates_of_time_tolerances_limits_and_unknown_sizes_are_not_changed(tmp_path):
    file = tmp_path / "small.py"
    file.write_text(
        """
_SECONDS, _TINY, _FEW = 2e-7, 1, 3
_NEAR = 1e-9

def found(x, n, kernel):
    if abs(x) < _NEAR or x >= n * 2.0 or 1e-12 < n <= _FEW:
        return at_once(kernel, 3.0 * n * _SECONDS + 2.0 * kernel.seconds)
    if kernel.seconds > 0.0 and kernel.seconds <= n:
        return n
    if n <= self.limits.most < self._dense_below:
        return x.size < FEW_ROWS or limits < 0.001
    return round(x.reshape(-1, 7).reshape((2, -1))[-1], 1e-8)
""",
        encoding="utf-8",
    )
    found = [m.name.partition("found: ")[2] for m in mutants_of("small", file)]
    whole = "abs(x) < _NEAR or x >= n * 2.0 or 1e-12 < n <= _FEW"
    times = "kernel.seconds > 0.0 and kernel.seconds <= n"
    assert found == [
        f"{whole} -> abs(x) < _NEAR and x >= n * 2.0 and (1e-12 < n <= _FEW)",
        "abs(x) < _NEAR -> abs(x) >= _NEAR",
        "x >= n * 2.0 -> x > n * 2.0",
        "x >= n * 2.0 -> x < n * 2.0",
        "n * 2.0 -> n / 2.0",
        "2.0 -> 4.0",
        "1e-12 < n <= _FEW -> 1e-12 >= n <= _FEW",
        "1e-12 < n <= _FEW -> 1e-12 < n > _FEW",
        f"{times} -> {times.replace(' and ', ' or ')}",
        "kernel.seconds > 0.0 -> kernel.seconds >= 0.0",
        "kernel.seconds > 0.0 -> kernel.seconds <= 0.0",
        "0.0 -> 1.0",
        "kernel.seconds <= n -> kernel.seconds > n",
        "n <= self.limits.most < self._dense_below -> n > self.limits.most < self._dense_below",
        "n <= self.limits.most < self._dense_below -> n <= self.limits.most >= self._dense_below",
        "x.size < FEW_ROWS or limits < 0.001 -> x.size < FEW_ROWS and limits < 0.001",
        "x.size < FEW_ROWS -> x.size >= FEW_ROWS",
        "limits < 0.001 -> limits >= 0.001",
        "0.001 -> 0.002",
        "7 -> 8",
        "2 -> 3",
        "1 -> 2",
    ]


def test_what_is_inside_an_estimate_of_time_is_not_changed(tmp_path):
    file = tmp_path / "small.py"
    file.write_text(
        """
class Engine:
    @property
    def seconds(self):
        return 1e-3 + 2.0 * self.n

    @property
    def seconds_or_more(self):
        return self.n - 1.0

    def expected_seconds(self, n):
        return 3.0 * n

    def with_seconds(self, n):
        return self.n + n

def _seconds(n):
    return 4.0 * n if n > 5 else 0.0
""",
        encoding="utf-8",
    )
    assert [m.name for m in mutants_of("small", file)] == [
        "small:Engine.seconds_or_more: self.n - 1.0 -> self.n + 1.0",
        "small:Engine.seconds_or_more: 1.0 -> 2.0",
        "small:Engine.with_seconds: self.n + n -> self.n - n",
    ]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        # Those of the module itself, then those of its room, then others: the fastest first.
        (60.0, [5, 4, 3, 2, 0]),
        # Those for which there is no time are left out.
        (3.6, [5, 4, 3, 0]),
        (2.6, [5, 4, 0]),
        # One is run in any case.
        (0.05, [5]),
    ],
)
def test_tests_of_the_own_module_come_first_and_then_the_fastest(path, most, expected):
    mutant = mutants_of("vcomp.room.small", path)[0]
    assert mutate.affordable(mutant, TESTS, most) == [TESTS[k] for k in expected]


ELSEWHERE = [mutate.Known("tests/room/test_small.py::other", 0.1, frozenset(["vcomp.room:area"]))]


def test_where_no_test_is_known_to_enter_the_function_those_of_its_module_are_run(path):
    mutant = mutants_of("vcomp.room.small", path)[0]
    assert mutate.affordable(mutant, [*TESTS[1:2], *ELSEWHERE], 60.0) == TESTS[1:2]
    assert mutate.affordable(mutant, ELSEWHERE, 60.0) == []


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([1], "caught"),
        ([None], "timed out"),
        ([0, 0], "survived"),
        ([0, 1], "caught"),
        ([0, None], "survived"),  # the files are long
        ([5], "error 5"),
    ],
)
def test_what_survives_few_tests_meets_the_others(codes, expected, path, tmp_path, monkeypatch):
    mutant = mutants_of("vcomp.room.small", path)[0]
    left = iter(codes)
    monkeypatch.setattr(mutate, "apart", lambda work, log, seconds: next(left))
    bench = mutate.Bench(tmp_path)
    bench.paths = {"vcomp.room.small": path}
    assert bench.outcome(mutant, TESTS, 60.0, tmp_path / "log") == expected
    assert list(left) == []
    assert bench.outcome(mutant, ELSEWHERE, 60.0, tmp_path / "log") == "not reached"


def test_survivors_meet_two_files_of_tests_whole(path, tmp_path):
    mutant = mutants_of("vcomp.room.small", path)[0]
    assert mutate.files_of(mutant, TESTS, tmp_path) == [
        "tests/room/test_large.py",
        "tests/other/test_any.py",
    ]
    folder = tmp_path / "tests" / "room" / "deep"
    folder.mkdir(parents=True)
    (folder / "test_small.py").touch()
    own = "tests/room/deep/test_small.py"  # though none of its tests is known: all may be slow
    assert mutate.files_of(mutant, TESTS, tmp_path) == [own, "tests/room/test_large.py"]
    assert mutate.files_of(mutant, [], tmp_path) == [own]


CASES = """
import builtins
import pytest

@pytest.mark.parametrize("k", range(7))
def test_case(k):
    vars(builtins)["__entered__"](f"f{k % 3 // 2}")
"""

RECORDING = """
import builtins, json, sys
import pytest
from tools.mutation.mutate import by_file
from tools.mutation.recorder import Recorder

for hook in (Recorder.pytest_make_collect_report, Recorder.pytest_fixture_setup):
    pytest.hookimpl(wrapper=True)(hook)
recorder = Recorder(5.0)
vars(builtins)["__entered__"] = recorder.entered.add
options = ["-q", "-p", "no:cacheprovider", "--rootdir"]
pytest.main([*options, sys.argv[1], sys.argv[1]], plugins=[recorder])
found = by_file(recorder.known)["test_cases.py"]
print(json.dumps([[functions, [test for test, _ in tests]] for functions, tests in found]))
"""


def test_every_case_of_a_test_is_recorded_with_what_it_enters(tmp_path):
    (tmp_path / "test_cases.py").write_text(CASES, encoding="utf-8")
    command = [sys.executable, "-c", RECORDING, str(tmp_path)]
    done = subprocess.run(command, cwd=mutate.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    cases = {"f0": [0, 1, 3, 4, 6], "f1": [2, 5]}
    name = "test_cases.py::test_case"
    assert found == [[[f], [f"{name}[{k}]" for k in of]] for f, of in cases.items()]


LOOPS = """
import numpy as np
from pathlib import Path
from tools.mutation.mutate import Loops
from tools.mutation.mutants import code_of, mutants_of
import vcomp.ir.kernels.rank_agreement as ranks

module, path = ranks.__name__, Path(ranks.__file__)
loops = Loops([module])
at = f"{module}:"
assert loops.entered_by(at + "count_below") == {at + "count_below", at + "count_bits"}

_named = ranks.count_below
count_bits = len  # another function of that name

def of_this_module():
    return _named(1), count_bits([])

def imported():
    from vcomp.ir.kernels.rank_agreement import count_below as below
    return below

assert loops.used_by(of_this_module) == loops.entered_by(at + "count_below")
assert loops.used_by(imported) == loops.entered_by(at + "count_below")
del _named
words = np.array([7], np.uint64)
assert ranks.count_below(words, np.uint64(8)) == 3  # all are numba's from now on
assert type(ranks.count_below) is not loops.kind
mutants = [m for m in mutants_of(module, path) if m.function == "count_bits"]
mutant = next(m for m in mutants if m.before == "word * _BYTES >> np.uint64(56)")
assert mutant.compiled
loops.compile_anew(at + "count_bits", code_of(mutant, path))
kept = {name for name, loop in loops.by_name.items() if loop._options["cache"]}
callers = {"swaps", "count_below", "count_bits"}
assert kept == loops.by_name.keys() - {at + name for name in callers}
assert ranks.count_below(words, np.uint64(8)) == (3 * 0x0101010101010101 << 56) % 2**64
"""


def test_a_loop_is_compiled_anew_with_all_that_call_it():
    """In a process in which nothing is compiled yet."""
    command = [sys.executable, "-c", LOOPS]
    done = subprocess.run(command, cwd=mutate.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
