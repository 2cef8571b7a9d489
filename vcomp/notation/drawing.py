"""A design as boxes of text: crossed facets side by side, nested ones inside of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vcomp.notation.brennan import Design, Factor, written

__all__ = ["drawn"]

_CROSS = " × "
_NEAREST = 6
"""A box has at least room for a few letters, however deep it is."""


def drawn(
    design: Design,
    label: Callable[[str], str] = str,
    within: Callable[[str], str] | None = None,
    width: int = 79,
) -> str:
    """Return a design as boxes: × between those that are crossed, nested facets inside.

    Parameters
    ----------
    design : to be drawn
    label : what a facet is called in its box
    within : a second line for nested facets, such as how many there are in each
    width : of the text; boxes that do not fit beside each other stand below

    Examples
    --------
    >>> from vcomp.dstudy import parse_design
    >>> print(drawn(parse_design("p x (i:h)")))
    ┌───┐   ┌ h ────┐
    │ p │ × │ ┌───┐ │
    └───┘   │ │ i │ │
            │ └───┘ │
            └───────┘
    """
    return "\n".join(line.rstrip() for line in _product(design.factors, label, within, width))


def _product(
    factors: Sequence[Factor],
    label: Callable[[str], str],
    within: Callable[[str], str] | None,
    width: int,
    nested: bool = False,
) -> list[str]:
    """Return crossed factors side by side, as many as fit, the others below them."""
    rows: list[list[str]] = []
    for factor in factors:
        box = _box(factor, label, within, width - len(_CROSS), nested=nested)
        if rows and len(rows[-1][0]) + len(_CROSS) + len(box[0]) <= width:
            rows[-1] = _beside(rows[-1], box)
        else:
            first = not rows
            rows.append(box if first else _beside([""], box))
    return [line for row in rows for line in _padded(row)]


def _box(
    factor: Factor,
    label: Callable[[str], str],
    within: Callable[[str], str] | None,
    width: int,
    *,
    nested: bool,
) -> list[str]:
    room = max(width - 4, _NEAREST)
    if factor.facet is not None:
        lines = [label(factor.facet)]
        if nested and within is not None:
            lines += [text for text in [within(factor.facet)] if text]
        return _framed("", [_cut(line, room) for line in lines])
    title = _cut(written(factor.outer, label, _CROSS, " : "), room)
    return _framed(title, _product(factor.inner, label, within, room, nested=True))


def _framed(title: str, lines: Sequence[str]) -> list[str]:
    inside = max(len(title), *(len(line) for line in lines))
    top = f"{f' {title} ' if title else '':─<{inside + 2}}"
    return [
        f"┌{top}┐",
        *(f"│ {line:<{inside}} │" for line in lines),
        f"└{'─' * (inside + 2)}┘",
    ]


def _beside(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """Put two blocks side by side, with a cross between their second lines."""
    height, size = max(len(left), len(right)), len(left[0])
    both = []
    for k in range(height):
        start = left[k] if k < len(left) else " " * size
        end = right[k] if k < len(right) else " " * len(right[0])
        both.append(f"{start}{_CROSS if k == 1 else ' ' * len(_CROSS)}{end}")
    return both


def _padded(lines: Sequence[str]) -> list[str]:
    longest = max(map(len, lines))
    return [f"{line:<{longest}}" for line in lines]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
