"""Draw mathematics as MathML, which docutils makes of TeX: no script, no fonts, no network."""

from __future__ import annotations

import re
from typing import Any

from docutils.nodes import Element, SkipNode
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.math import get_node_equation_number

_TAG = re.compile(r"\\tag\{([^}]*)\}")
_FRACTION = re.compile(r"\\[dt]?frac(\d)(\d)")


def _mathml(text: str, node: Element, *, block: bool) -> str:
    # docutils reads the arguments of a fraction in braces only.
    text = _FRACTION.sub(r"\\frac{\1}{\2}", text)
    try:
        return str(tex2mathml(text, as_block=block))
    except MathError as error:
        raise ExtensionError(f"{node.source}: {node.line}: {error} in {text!r}") from error


def _inline(writer: Any, node: Element) -> None:
    writer.body.append(f'<span class="math">{_mathml(node.astext(), node, block=False)}</span>')
    raise SkipNode


def _block(writer: Any, node: Element) -> None:
    text = node.astext()
    tag = _TAG.search(text)
    number = tag[1] if tag else ""
    anchor = ""
    if node.get("number"):
        number = get_node_equation_number(writer, node)
        anchor = f' id="equation-{node.get("label")}"'
    formula = _mathml(_TAG.sub("", text).strip(), node, block=True)
    shown = f'<span class="eqno">({number})</span>' if number else ""
    writer.body.append(f'<div class="math-block"{anchor}>{formula}{shown}</div>')
    raise SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name "mathml"."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
