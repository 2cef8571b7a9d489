"""The size of the package and the length of its calls, which may only fall.

A change that adds a subject raises a limit in ``budget.toml``, with the reason in a line below it.
``python -m tests.budget`` prints what there is; ``--write`` lowers the limits to it.
"""

from __future__ import annotations

import pytest

from tests import budget


@pytest.fixture(scope="module")
def limits():
    return budget.limits()


@pytest.mark.slow
@pytest.mark.parametrize("table", ["rooms", "doors", "calls"])
def test_nothing_grows(table, limits):
    found = getattr(budget, table)()
    assert sorted(found) == sorted(limits[table]), "a new room, front door or call needs a line"
    grown = {
        name: (value, limits[table][name])
        for name, value in found.items()
        if any(
            n > most
            for n, most in zip(_numbers(value), _numbers(limits[table][name]), strict=True)
        )
    }
    assert not grown, f"(found, limit): {grown}; remove something, or write the reason"


def _numbers(value):
    return value if isinstance(value, list) else [value]


def test_lines_that_hold_code_are_counted(tmp_path):
    path = tmp_path / "module.py"
    lines = ['"""A', "", 'module."""', "# comment", "x = [", "    1,  # one", "]", "", "def f():"]
    path.write_text("\n".join([*lines, '    """F."""', "    return x", ""]), encoding="utf-8")
    assert budget.code_lines(path) == 5
