"""All advice in code: what a string of the package says to write, after a verb such as *use*."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import vcomp

_PACKAGE = Path(vcomp.__file__).parent

_VERB = re.compile(
    r"\b(use|write|leave|give|pass|fit|with|read|keep|add|draw|hold|call|needs|store|set|by|or)\b",
    re.IGNORECASE,
)

_CODE = re.compile(
    r"(?<![\w.])("
    r"[a-z_]+=(?:'[\w.\-]+'|False|True|\[…\]|…|\.\.\.|\{\})"  # an option with its value
    r"|\(1\|[^)]*\)|C\(\{\}\)"  # a term or a factor
    r"|(?:vcomp|pandas|res|dask)\.[\w.]+\([^)]*\)"  # a call
    r")"
)


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module that are not docstrings; ``{}`` is what is put in."""
    skipped, nodes = set[int](), list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for value in node.values for part in ast.walk(value))
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in skipped:
            yield str(node.value)


def advice() -> dict[str, set[str]]:
    """Return the modules that advise each piece of code; help of the command line is left out."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(_PACKAGE.rglob("*.py")):
        module = path.relative_to(_PACKAGE).with_suffix("").as_posix()
        if module.startswith("cli/"):
            continue
        for text in _texts(ast.parse(path.read_text(encoding="utf-8"))):
            for match in _CODE.finditer(text):
                if _VERB.search(text[: match.start()]):
                    found[match[1]].add(module)
    return dict(found)
