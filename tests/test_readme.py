"""The README: its examples run, its page is what the command prints, and CI calls its command."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

import vcomp
from tests.helpers.command_line import run

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/explanation/binary-scores.md",
        "docs/howto/generalizability.md",
        pytest.param("docs/howto/test-collections.md", marks=pytest.mark.slow),
        "docs/howto/large-data.md",
    ],
)
def test_examples(page):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, tried = doctest.testfile(
        str(ROOT / page), module_relative=False, optionflags=flags, encoding="utf-8"
    )
    assert tried >= 10
    assert failed == 0


def test_the_first_page():
    command = re.search(r"\$ vcomp (.*)", README)[1]
    page = re.search(r"```text\n(.*?)```", README, re.DOTALL)[1]
    done = run(*shlex.split(command), warnings_are="default")
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    assert printed.strip() == page.strip()
    # The command that installs and runs it is the same one.
    assert f".venv/bin/vcomp {command}" in README


def test_ci_calls_the_test_command_of_the_readme():
    section = README.partition("## Test")[2]
    command = re.search(r"```sh\n(.*?)\n```", section, re.DOTALL)[1]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert command in script


def test_the_lines_of_each_field_on_the_front_page_runs(monkeypatch):
    monkeypatch.chdir(ROOT / "tests" / "evals")  # has a folder of logs
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    fields = page.partition("## Your field")[2].partition("\n## ")[0]
    lines = re.findall(r"```python\n(.*?)\n(.*?)\n```", fields)
    assay = vcomp.datasets.load("assay")
    data = (
        vcomp.datasets.load("docsearch"), None, vcomp.datasets.load("essays"),
        assay[assay["sample"] == "middle"], vcomp.datasets.load("docsearch"),
    )  # fmt: skip
    for (first, last), frame in zip(lines, data, strict=True):
        names = {"vcomp": vcomp, "data": frame}
        exec(first, names)
        assert str(eval(last, names))
