"""Each bold term of the glossary is an anchor: ``glossary.md#universe-score``, ``#erho2``.

A term is written in small letters, with ``-`` between words, without what stands in brackets, and
Greek letters by their names. What stands in brackets, or ``-term``, is added where the anchor
would be that of another term or of a section.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx

_PAGE = "reference/glossary"
_BRACKETS = re.compile(r" \([^)]*\)")
_LETTERS = {"λ": "lambda", "ρ": "rho", "τ": "tau", "Φ": "phi", "²": "2", "'": "", "’": ""}


def slug(term: str) -> str:
    """Return the anchor of a term."""
    spelled = "".join(_LETTERS.get(letter, letter) for letter in term)
    plain = unicodedata.normalize("NFKD", spelled).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def _terms(page: nodes.document) -> Iterator[tuple[nodes.strong, str]]:
    for item in page.findall(nodes.list_item):
        for bold in item.findall(nodes.strong):
            yield from ((bold, term.strip()) for term in bold.astext().split(", "))


def _add_anchors(app: Sphinx, page: nodes.document) -> None:
    if app.env.docname != _PAGE:
        return
    labels = app.env.get_domain("std").data["anonlabels"]
    taken = {name for section in page.findall(nodes.section) for name in section["ids"]}
    for bold, term in _terms(page):
        short = slug(_BRACKETS.sub("", term))
        anchor = next(a for a in (short, slug(term), f"{short}-term") if a not in taken)
        taken.add(anchor)
        bold["ids"].append(anchor)
        labels[anchor] = _PAGE, anchor


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the anchors when the page has been read."""
    app.connect("doctree-read", _add_anchors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
