"""The page of the mathematics and the code refer to each other: equations and names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/explanation/mathematics.md").read_text(encoding="utf-8")
FILES = sorted((ROOT / "vcomp").rglob("*.py"))
KERNELS = {file.stem for file in FILES if file.parent.name == "kernels"}
ROOMS = {"ir"}
"""Names of packages that stand between code names on the page."""


def defined():
    """Return the names of all functions and classes."""
    line = re.compile(r"^ *(?:def (\w+)\(|class (\w+)[(:])", flags=re.MULTILINE)
    return {
        function or made
        for file in FILES
        for function, made in line.findall(file.read_text(encoding="utf-8"))
    }


@pytest.mark.slow
def test_names_on_the_page_are_in_the_code():
    lines = re.findall(r"\*\*In code\*\*: (.*?)\n\n", PAGE, flags=re.DOTALL)
    assert len(lines) > 30
    names = {name for line in lines for name in re.findall(r"`([\w.]+)`", line)}
    known = defined() | KERNELS | ROOMS
    assert {name for name in names if name.split(".")[-1] not in known} == set()


def numbers():
    """Return the numbers of the equations."""
    return re.findall(r"\\tag\{([\d.]+[a-z]?)\}", PAGE)


def test_equations_are_numbered_once():
    assert len(set(numbers())) == len(numbers()) > 100


NUMBER = r"\(\d+\.\d+[a-z]?\)"
CITATION = re.compile(rf"eqs?\. ({NUMBER}(?:(?:,| and| to) {NUMBER})*)")


def test_cited_equations_exist():
    """Of "eq. (5.9)" and "eqs. (3.5) to (3.9)"; papers' equations have whole numbers."""
    known, missing = set(numbers()), {}
    for file in FILES:
        text = " ".join(file.read_text(encoding="utf-8").split())
        found = " ".join(CITATION.findall(text))
        unknown = set(re.findall(r"\d+\.\d+[a-z]?", found)) - known
        if unknown:
            missing[file.name] = unknown
    assert missing == {}
