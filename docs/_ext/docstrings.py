"""How the pages of the public names and commands are made from their docstrings and help.

A docstring of vcomp explains a parameter in the line of its name, ``alpha : intervals have
confidence 1 − alpha``, which numpydoc would read as a type. Here the text becomes the description,
before numpydoc reads it; names of classes of vcomp in the sections on returned values and errors
become links. The help of a command is plain text: options and quoted words in it become literals,
and its examples a block of code.
"""

from __future__ import annotations

import inspect
import re
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

_EXPLAINED = ("Parameters", "Other Parameters", "Attributes")
_NAMED = ("Returns", "Yields", "Raises", "Warns")
_ENTRY = re.compile(r"^(\*{0,2}\w+(?:, ?\*{0,2}\w+)*) : ?(.*)$")
_CLASSES = re.compile(r"[A-Z]\w+(?:, [A-Z]\w+)*")
_LISTED = re.compile(r"^   ~?(vcomp\.[\w.]+)$", re.MULTILINE)
_LITERAL = re.compile(
    r"^ *(?:\.\.|:).*$|"  # a directive or a field, which stays as it is
    r"(?<![\w`-])(--[a-z][\w-]*|\b[A-Za-z]+@\d+)|(?<![\w`])'([^'`]+)'(?!\w)|(?<!`)`([^`]+)`(?!`)",
    re.MULTILINE,
)
_PROPERTIES = (property, cached_property)


def _sections(lines: list[str]) -> list[str]:
    """Return for each line of a docstring the title of its section, empty before the first."""
    titles, title = [], ""
    for here, below in zip(lines, [*lines[1:], ""], strict=True):
        if here and len(here) == len(below) and set(below) == {"-"}:
            title = here
        titles.append(title)
    return titles


def _links(text: str) -> str:
    return ", ".join(f":class:`.{name}`" for name in text.split(", "))


def reshape(lines: list[str]) -> list[str]:
    """Return the lines of a docstring as numpydoc expects them: ``n : rows`` becomes two lines."""
    made = []
    for line, section in zip(lines, _sections(lines), strict=True):
        entry = _ENTRY.match(line) if section in _EXPLAINED else None
        if entry:
            made += [entry[1], *([f"    {entry[2]}"] if entry[2] else [])]
        elif section in _NAMED and _CLASSES.fullmatch(line) and line != section:
            made.append(_links(line))
        else:
            made.append(line)
    return made


def _reshape(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = reshape(lines)


def _without_constructor(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returned: str
) -> tuple[str, None] | None:
    """Show no arguments of a class whose instances the library makes."""
    made_by_users = re.search(r"^Parameters\n-", inspect.getdoc(obj) or "", re.MULTILINE)
    return ("", None) if what == "class" and not made_by_users else None


def _found(name: str) -> Any:
    """Return what a dotted name stands for."""
    owner, _, last = name.rpartition(".")
    try:
        return import_module(name)
    except ImportError:
        return getattr(_found(owner), last)


def _members(cls: type) -> dict[str, list[str]]:
    """Return the public properties and methods of a class, in the order of its code."""
    found: dict[str, list[str]] = {"properties": [], "methods": []}
    for kind in (*cls.__mro__[1:], cls):
        for name, member in vars(kind).items():
            known = name in found["properties"] or name in found["methods"]
            if name.startswith("_") or known or not kind.__module__.startswith("vcomp"):
                continue
            if isinstance(member, _PROPERTIES):
                found["properties"].append(name)
            elif inspect.isroutine(member) and inspect.getdoc(member):
                is_slot = inspect.ismemberdescriptor(member)
                found["methods"] += [] if is_slot else [name]
    return found


def members_of_classes(page: str) -> dict[str, dict[str, list[str]]]:
    """Return the members of the classes that a page lists in its tables, for its templates.

    Members that the page lists come first, in its order.

    Parameters
    ----------
    page : path of the page in the documentation
    """
    path = Path(__file__).parents[1] / page
    names = _LISTED.findall(path.read_text(encoding="utf-8")) if path.exists() else []
    places = {name: place for place, name in enumerate(names)}
    found = {}
    for name in names:
        value = _found(name)
        if inspect.isclass(value):
            found[name] = {
                kind: sorted(own, key=lambda m: places.get(f"{name}.{m}", len(places)))
                for kind, own in _members(value).items()
            }
    return found


def _literals(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Mark options, and what the help quotes, as literal text."""

    def marked(found: re.Match[str]) -> str:
        literal = found[1] or found[2] or found[3]
        return f"``{literal}``" if literal else found[0]

    lines[:] = _LITERAL.sub(marked, "\n".join(lines)).split("\n")


def _examples(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Show the blocks after the options as code; with a command its own examples only."""
    lines.clear()
    for block in (context.command.epilog or "").split("\b\n")[1:]:
        title, _, text = block.partition(":\n")
        shown, is_own = [], True
        for line in text.splitlines():
            if line.strip().startswith("vcomp "):
                is_own = context.parent is None or line.split()[1] == context.info_name
            shown += [f"   {line.removeprefix('  ')}"] if is_own else []
        language = "sh" if title == "Examples" else "text"
        lines += [f".. rubric:: {title}", "", f".. code-block:: {language}", "", *shown, ""]


def _found_anywhere(app: Sphinx, env: Any, node: Any, text: Any) -> Any:
    """Resolve a name of another module, such as ``DStudy.table``, if there is one of it.

    Summaries in tables name methods of their own class: those of the page come first.
    """
    if node.get("refdomain") != "py" or "reftarget" not in node:
        return None
    python, target = env.get_domain("py"), node["reftarget"]
    for name in (target, target.rpartition(".")[2]):
        found = python.find_obj(env, None, None, name, node["reftype"], searchmode=1)
        places = [(full, place) for full, place in found if not place.aliased]
        places = [p for p in places if p[1].docname == node["refdoc"]] or places
        if len(places) == 1:
            full, place = places[0]
            return make_refnode(
                app.builder, node["refdoc"], place.docname, place.node_id, text, full
            )
    return None


def _pass_members(app: Sphinx, config: Any) -> None:
    config.autosummary_context["members_of"] = members_of_classes("reference/index.md")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect with autosummary, with autodoc before numpydoc, and with sphinx-click."""
    app.connect("config-inited", _pass_members)
    app.connect("missing-reference", _found_anywhere)
    app.connect("autodoc-process-docstring", _reshape, priority=400)
    app.connect("autodoc-process-signature", _without_constructor, priority=400)
    app.connect("sphinx-click-process-description", _literals)
    app.connect("sphinx-click-process-options", _literals)
    app.connect("sphinx-click-process-epilog", _examples)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
