"""Every piece of advice is listed in registry.txt, with the tests that follow it."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

import pytest

import vcomp
from tests.advice.scan import advice

_HERE = Path(__file__).parent
_LINES = (_HERE / "registry.txt").read_text(encoding="utf-8").splitlines()
REGISTRY = [[cell.strip() for cell in line.split(" |")] for line in _LINES if line[:1] not in "#"]


@pytest.mark.slow
def test_every_piece_of_advice_is_registered():
    given = {(code, module) for code, modules in advice().items() for module in modules}
    listed = {(code, module) for code, modules, _ in REGISTRY for module in modules.split()}
    assert given - listed == set(), "new advice: follow it in a test, and add it to registry.txt"
    assert listed - given == set(), "advice that is not given any more"
    assert len({code for code, *_ in REGISTRY}) == len(REGISTRY)


def test_functions_that_are_advised_exist():
    for code, *_ in REGISTRY:
        if code.startswith("vcomp."):
            attrgetter(code[len("vcomp.") :].partition("(")[0])(vcomp)


def test_the_tests_that_follow_exist():
    own = "".join(path.read_text(encoding="utf-8") for path in _HERE.glob("test_*.py"))
    for *_, tests in REGISTRY:
        for test in tests.split():
            path, _, name = test.rpartition("::")
            text = (_HERE.parent / path).read_text(encoding="utf-8") if path else own
            assert re.search(rf"^def {name}\(", text, re.MULTILINE), test
