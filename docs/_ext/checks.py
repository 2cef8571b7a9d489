"""What holds on every page of the site; a breach is a warning, and warnings fail the build.

- A number in the prose of a page that runs code is one that its code or its output shows, rounded
  or as a percentage, so that no text outlives its numbers. Numbers below 10 and years are free;
  the field ``numbers`` of a page's header lists others that are no results.
- An image says in words what it shows.
- Each page but the first shows its contents at the right.
- No page shows what a program says while it works, and no measure (P@20) is an address.
- Each page is at most two links of the navigation away from the front page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

_LOG = logging.getLogger(__name__)
_NUMBER = re.compile(r"(?<![\w.])[-−]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[-+]?\d+)?(\s?%)?")
_HTML = re.compile(r"<[^>]*>")
_FREE, _YEARS = 10, range(1900, 2101)
_CLICKS = 2


def _numbers(text: str) -> Iterable[tuple[float, int, bool]]:
    """Yield the numbers of a text, with their decimals and whether they are percentages."""
    for found in _NUMBER.finditer(text):
        digits = found[0].rstrip(" %\u00a0").replace(",", "").replace("−", "-")
        decimals = len(digits.partition(".")[2].partition("e")[0])
        yield float(digits), decimals, found[1] is not None


def _is_evidence(node: nodes.Node) -> bool:
    is_cell = isinstance(node, nodes.container) and "cell" in node.get("classes", [])
    return is_cell or isinstance(node, (nodes.literal_block, nodes.doctest_block, nodes.raw))


def _texts(node: nodes.Node, prose: list[str], evidence: list[str]) -> None:
    """Collect the text of a page's prose, and that of its code and outputs."""
    if _is_evidence(node):
        evidence.append(_HTML.sub(" ", node.astext()))
    elif isinstance(node, nodes.paragraph):
        shown = "".join(
            " " if isinstance(part, (nodes.literal, nodes.math)) else part.astext()
            for part in node.children
        )
        prose.append(shown)
    else:
        for child in node.children:
            _texts(child, prose, evidence)


def _is_shown(value: float, decimals: int, shown: Iterable[float], *, percent: bool) -> bool:
    if decimals == 0 and (abs(value) < _FREE or value in _YEARS):
        return True
    # Half a unit of the last digit, and the rounding of binary fractions.
    near = 0.5 * 10.0**-decimals * (1.0 + 1e-9) + 1e-12
    factors = (1.0, 100.0) if percent else (1.0,)
    return any(math.fabs(value - factor * s) <= near for s in shown for factor in factors)


def _check_numbers(app: Sphinx, page: nodes.document, name: str) -> None:
    meta: dict[str, Any] = app.env.metadata[name]
    prose: list[str] = []
    evidence: list[str] = [str(meta.get("numbers", ""))]
    _texts(page, prose, evidence)
    shown = {value for text in evidence for value, _, _ in _numbers(text)}
    for text in prose:
        for value, decimals, percent in _numbers(text):
            if not _is_shown(value, decimals, shown, percent=percent):
                about = " ".join(text.split())[:70]
                _LOG.warning("%s: no output shows %.12g: %r", name, value, about, type="numbers")


def _check_page(app: Sphinx, page: nodes.document, name: str) -> None:
    runs = any("cell" in c.get("classes", []) for c in page.findall(nodes.container))
    if runs and name != "index" and not name.startswith("pictures/"):
        _check_numbers(app, page, name)
    if "html_theme.sidebar_secondary.remove" in app.env.metadata[name]:
        _LOG.warning("%s: a page without its contents at the right", name, type="contents")
    for link in page.findall(nodes.reference):
        if str(link.get("refuri", "")).startswith("mailto:"):
            _LOG.warning("%s: an address: %s", name, link.astext(), type="mailto")
    for block in page.findall(nodes.literal_block):
        if "vcomp: compiling" in block.astext():
            _LOG.warning("%s: an output says that vcomp compiles", name, type="compiling")
    for image in page.findall(nodes.image):
        if name == "pictures/index":  # the title of a picture stands below its thumbnail
            continue
        if not image.get("alt"):
            _LOG.warning("%s: an image without a text: %s", name, image.get("uri"), type="alt")


def _check_distance(app: Sphinx, env: BuildEnvironment) -> None:
    near = seen = {str(app.config.root_doc)}
    for _ in range(_CLICKS):
        near = {page for name in near for page in env.toctree_includes.get(name, [])}
        seen = seen | near
    for name in sorted(env.found_docs - seen):
        if "orphan" not in env.metadata[name]:
            _LOG.warning("%s: more than %d clicks from the front page", name, _CLICKS, type="far")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the checks to the build."""
    app.connect("doctree-resolved", _check_page)
    app.connect("env-check-consistency", _check_distance)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
