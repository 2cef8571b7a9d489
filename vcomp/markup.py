"""Printed text in encodings that lack its symbols, in LaTeX and in HTML."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from itertools import groupby
from typing import Any

from vcomp.exceptions import visible

_PLAIN = {
    "σ": "s", "²": "2", "³": "3", "δ": "rel", "Δ": "abs", "ρ": "rho", "Φ": "Phi", "τ": "tau",
    "α": "alpha", "β": "beta", "γ": "gamma", "θ": "theta", "λ": "lambda", "μ": "mu", "κ": "kappa",
    "χ": "chi", "π": "pi", "Σ": "sum", "×": "x", "·": "*", "−": "-", "–": "-", "—": "-", "±": "+-",
    "∞": "inf", "≥": ">=", "≤": "<=", "≈": "~", "≠": "!=", "→": "->", "▶": ">", "…": "...",
    "█": "#", "▏": ".", "₀": "0", "₁": "1", "₂": "2", "₊": "+", "⁻": "-", "⁵": "5", "⁶": "6",
    "⁹": "9", "√": "sqrt", "°": " deg", "“": '"', "”": '"', "‘": "'", "’": "'", "\u00a0": " ",
    "\u202f": " ", "│": "|", "─": "-", "├": "+", "└": "+", "┌": "+", "┐": "+", "┘": "+",
    "\u0304": "", "′": "'", "•": "*", "○": "o", "½": "1/2", "ω": "omega", "ζ": "zeta", "ε": "eps",
    "₋": "-", "₃": "3", "₄": "4", "₅": "5", "₆": "6",
}  # fmt: skip
"""Symbols in letters, for encodings that lack them."""


def encodable(text: str, encoding: str | None = None) -> str:
    """Return text with control characters as escapes, and symbols that a code lacks in letters.

    Other characters that it lacks, as in names of levels, are left to the stream.

    Parameters
    ----------
    encoding : that of standard output if None

    Examples
    --------
    >>> encodable("Eρ² = 0.93, σ²(δ) = 0.1 … ∞", "cp1252"), encodable("σ²(Δ) × Φ", "ascii")
    ('Erho² = 0.93, s²(rel) = 0.1 … inf', 's2(abs) x Phi')
    """
    text = visible(text)
    name = encoding or getattr(sys.stdout, "encoding", None) or "utf-8"
    if text.isascii() or name.lower().replace("-", "") in ("utf8", "utf16", "utf32"):
        return text
    return "".join(_PLAIN.get(c, c) if not _has(name, c) else c for c in text)


@cache
def _has(encoding: str, character: str) -> bool:
    try:
        character.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def in_letters(error: UnicodeError) -> tuple[str, int]:
    """Handle characters that a stream cannot encode: symbols in letters, others as question marks.

    Parameters
    ----------
    error : of the encoder, as :func:`codecs.register_error` passes it
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    plain = "".join(_PLAIN.get(character, "?") for character in part)
    return plain.encode("ascii", "replace").decode(), error.end


_MATHS = {
    "σ": r"\sigma", "²": "^2", "³": "^3", "δ": r"\delta", "Δ": r"\Delta", "ρ": r"\rho",
    "Φ": r"\Phi", "τ": r"\tau", "α": r"\alpha", "β": r"\beta", "λ": r"\lambda", "χ": r"\chi",
    "θ": r"\theta", "μ": r"\mu", "κ": r"\kappa", "×": r"\times", "∞": r"\infty", "−": "-",
    "≥": r"\geq", "≤": r"\leq", "±": r"\pm", "√": r"\surd", "·": r"\cdot", "₊": "_+",
    "→": r"\rightarrow", "₀": "_0", "₁": "_1", "₂": "_2", "½": r"\frac12", "…": r"\ldots",
}  # fmt: skip
"""Symbols as commands of LaTeX, whose default engine cannot read them as characters."""

_BARS = {"█": 0.4, "▏": 0.1}
_SPECIAL = {c: f"\\{c}" for c in "%&_#${}"} | {
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
    "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


@cache
def escaping_summary() -> Any:
    """Return statsmodels' ``Summary`` with names and symbols escaped, as it does not do itself.

    Names of columns and levels come from the data: a notebook must show them, not run them.
    """
    from statsmodels.iolib.summary import Summary

    class EscapingSummary(Summary):  # type: ignore[misc]  # statsmodels has no types
        def as_latex(self) -> str:
            parts = [_table_in_latex(_changed(table, in_latex)) for table in self.tables]
            notes = [] if self.extra_txt is None else self.extra_txt.splitlines()
            return "\n\n".join([*map(str, parts), " ".join(map(in_latex, notes))])

        def as_html(self) -> str:
            page = Summary()
            page.tables.extend(_changed(table, escape) for table in self.tables)
            page.extra_txt = None if self.extra_txt is None else escape(self.extra_txt)
            return str(page.as_html())

    return EscapingSummary


def _table_in_latex(table: Any) -> str:
    """Return a table; a title becomes a caption, which statsmodels would write as a comment."""
    title, table.title = table.title, None
    text = str(table.as_latex_tabular(replacements={}, center=not title)).strip()
    top = rf"\begin{{table}}[ht]\centering\caption{{{title}}}"
    return f"{top}\n{text}\n\\end{{table}}" if title else text


def _changed(table: Any, text_of: Callable[[Any], str]) -> Any:
    """Return a copy of a table with the text of its cells and of its title changed."""
    copied = deepcopy(table)
    copied.title = None if table.title is None else text_of(table.title)
    for row in copied:
        for cell in row:
            cell.data = text_of(cell.data)
    return copied


def in_latex(text: Any) -> str:
    """Return text as LaTeX: special characters escaped, symbols as commands, a bar as one rule."""
    parts = []
    for letter, run in groupby(str(text)):
        n = len(list(run))
        if letter in _BARS:
            parts.append(rf"\rule{{{_BARS[letter] * n:.1f}em}}{{1.2ex}}")
        elif letter in _MATHS:
            parts.append(rf"\ensuremath{{{_MATHS[letter]}}}" * n)
        else:
            parts.append("".join(_SPECIAL.get(c, c) for c in _PLAIN.get(letter, letter)) * n)
    return "".join(parts)


def escape(text: Any) -> str:
    """Return text for HTML."""
    return html.escape(str(text), quote=False)
