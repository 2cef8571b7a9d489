"""Mutants of a small module, and the report of what was found of them."""

import json
from dataclasses import asdict

import pytest

from tests.tools import mutate
from tests.tools.mutants import code_of, mutants_of

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


def test_the_last_outcome_counts_and_equivalent_mutants_are_left_out(path, tmp_path, monkeypatch):
    mutants = mutants_of("vcomp.small.one", path)
    entries = zip(mutants, ("survived", "timed out", "survived", "not reached"), strict=True)
    lines = [{"outcome": outcome, "mutant": asdict(mutant)} for mutant, outcome in entries]
    lines.append(lines[0] | {"outcome": "caught"})
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    monkeypatch.setattr(mutate, "equivalent", lambda: {mutants[2].name: "for a reason"})
    header, of_room, of_all, _, lived = mutate.report(results).splitlines()
    kinds = ["room", "caught", "timed", "out", "survived", "not", "reached", "equivalent"]
    assert header.split() == [*kinds, "caught", "of"]
    assert of_room.split() == ["small", "1", "1", "0", "1", "1", "66.7%"]
    assert of_all.split()[1:] == of_room.split()[1:]
    assert lived.startswith("not reached: vcomp.small.one:area: a * b -> a / b")


def test_a_larger_sample_begins_with_the_smaller_one():
    few, many = (mutate._drawn(n, 3, "vcomp.presets") for n in (5, 40))
    assert many[:5] == few
    assert len(set(many)) == 40


def test_every_reason_belongs_to_a_mutant():
    """A mutant that is called equivalent and is gone has to leave the list."""
    modules = {name.partition(":")[0] for name in mutate.equivalent()}
    paths = {module: mutate.ROOT / f"{module.replace('.', '/')}.py" for module in modules}
    every = {m.name for module, path in paths.items() for m in mutants_of(module, path)}
    assert set(mutate.equivalent()) <= every
    assert all(mutate.equivalent().values())


@pytest.mark.parametrize(
    ("own", "beyond", "outcomes", "expected"),
    [
        ([("a", 1.0), ("b", 2.0)], [("c", 1.0)], ["caught"], [["a", "b"]]),
        ([("a", 1.0), ("b", 2.0)], [("c", 1.0)], ["survived", "timed out"], [["a", "b"], ["c"]]),
        # The fastest come first, up to three seconds; the first one in any case.
        ([("b", 2.0), ("a", 1.5)], [("c", 9.0)], ["survived", "survived"], [["a"], ["c"]]),
        ([], [("c", 1.0)], ["survived"], [["c"]]),
        ([("a", 1.0)], [], ["survived"], [["a"]]),
        ([], [], [], []),
    ],
)
def test_what_survives_the_tests_of_its_room_meets_those_of_others(
    own, beyond, outcomes, expected, path, tmp_path, monkeypatch
):
    mutant = mutants_of("vcomp.small", path)[0]
    here, elsewhere = frozenset({"vcomp.small:area"}), frozenset({"vcomp.small:other"})
    stages = [
        ([mutate.Known(t, s, here) for t, s in tests] + [mutate.Known("z", 0.1, elsewhere)], 3.0)
        for tests in (own, beyond)
    ]
    left, asked = iter(outcomes), []

    def outcome(self, mutant, tests, log):
        asked.append([known.test for known in tests])
        return next(left)

    monkeypatch.setattr(mutate.Room, "_outcome", outcome)
    found = mutate.Room("numerics").outcome(mutant, stages, tmp_path / "log")
    assert found == (outcomes[-1] if outcomes else "not reached")
    assert asked == expected


def test_tests_of_the_own_module_come_first(path, tmp_path, monkeypatch):
    mutant = mutants_of("vcomp.small", path)[0]
    functions = frozenset({"vcomp.small:area"})
    tests = ["tests/test_large.py::a", "tests/test_small.py::b", "tests/test_small.py::c"]
    known = [mutate.Known(t, s, functions) for t, s in zip(tests, (1.0, 5.0, 3.0), strict=True)]
    asked = []
    monkeypatch.setattr(
        mutate.Room,
        "_outcome",
        lambda self, mutant, tests, log: asked.extend(k.test for k in tests) or "survived",
    )
    mutate.Room("numerics").outcome(mutant, [(known, 100.0)], tmp_path / "log")
    assert asked == [tests[2], tests[1], tests[0]]
