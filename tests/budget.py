"""What the package may hold, and how far a call travels; ``python -m tests.budget`` prints both.

Code lines are without blanks, comments and docstrings.
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import vcomp

PACKAGE = Path(vcomp.__path__[0])
LIMITS = Path(__file__).with_suffix(".toml")
_REASONS = re.compile(r'^"([^"]+)" = .*\n((?:#.*\n)+)', re.MULTILINE)


def code_lines(path: Path) -> int:
    """Return the number of lines that hold code."""
    text = path.read_text(encoding="utf-8")
    lines = enumerate(map(str.strip, text.split("\n")), 1)
    kept = {number for number, line in lines if line and not line.startswith("#")}
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant | ast.JoinedStr):  # a string may have such lines
            kept.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(kept - docstrings)


def files() -> Iterator[tuple[str, Path]]:
    """Yield each module with its room; modules of no room are of ``top``."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        yield parts[0] if len(parts) > 1 else "top", path


def rooms() -> dict[str, list[int]]:
    """Return for each room its numbers of files and code lines."""
    found: dict[str, list[int]] = {}
    for room, path in files():
        counts = found.setdefault(room, [0, 0])
        counts[0] += 1
        counts[1] += code_lines(path)
    return found


def doors() -> dict[str, int]:
    """Return for each front door the number of names in its stub."""
    found = {}
    for stub in sorted(PACKAGE.rglob("__init__.pyi")):
        tree = ast.parse(stub.read_text(encoding="utf-8"))
        imports = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.level]
        name = ".".join(stub.parent.relative_to(PACKAGE.parent).parts)
        found[name] = sum(len(node.names) for node in imports)
    return found


def travelled(call: Callable[[], object]) -> list[int]:
    """Return the numbers of files and functions of vcomp that a call enters.

    It is made once before, so that imports and compilation are not counted; comprehensions and
    lambdas are left out.
    """
    call()
    entered = set()

    def watch(frame: object, event: str, _: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        inside = code.co_filename.startswith(str(PACKAGE))
        if event == "call" and inside and not code.co_name.startswith("<"):
            entered.add((code.co_filename, code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return [len({file for file, _ in entered}), len(entered)]


def calls() -> dict[str, list[int]]:
    """Return how far the calls travel that users make most."""
    rng = np.random.default_rng(1)
    s, t = (axis.ravel() for axis in np.indices((30, 50)))
    y = rng.normal(size=30)[s] + rng.normal(size=50)[t] + rng.normal(size=s.size)
    data, formula = pd.DataFrame({"y": y, "s": s, "t": t}), "y ~ (1|s) + (1|t)"
    matrix = vcomp.ir.ScoreMatrix.from_long(data, system="s", topic="t", score="y")
    res = vcomp.fit(formula, data)
    with tempfile.TemporaryDirectory() as folder:
        for part in range(2):
            data[part::2].to_parquet(f"{folder}/{part}.parquet")
        return {
            "fit": travelled(lambda: vcomp.fit(formula, data)),
            "fit, unbalanced": travelled(lambda: vcomp.fit(formula, data[::3])),
            "fit and summary": travelled(lambda: str(vcomp.fit(formula, data).summary())),
            "streamed fit and summary": travelled(
                lambda: str(vcomp.fit(formula, folder, stream=True, progress=False).summary())
            ),
            "dstudy": travelled(lambda: res.dstudy(t=[10, 20])),
            "ir.accuracy": travelled(lambda: vcomp.ir.accuracy(matrix, rng=0)),
        }


def limits() -> dict[str, dict[str, object]]:
    """Return the limits: ``rooms``, ``doors`` and ``calls``."""
    return tomllib.loads(LIMITS.read_text(encoding="utf-8"))


def _printed() -> str:
    """Return what there is as text of ``budget.toml``."""
    tables = {"rooms": rooms(), "doors": doors(), "calls": calls()}
    lines = [
        "# Upper limits (tests/test_budget.py); a higher one needs a reason in a line below it.",
        "# rooms: files, code lines. doors: names. calls: files, functions that are entered.",
    ]
    reasons = dict(_REASONS.findall(LIMITS.read_text(encoding="utf-8")))
    for title, table in tables.items():
        lines += ["", f"[{title}]"]
        for name, value in table.items():
            lines += [f'"{name}" = {value}', *reasons.get(name, "").splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        LIMITS.write_text(_printed(), encoding="utf-8")
    else:
        print(_printed(), end="")
