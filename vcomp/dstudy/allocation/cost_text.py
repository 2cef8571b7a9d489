"""Costs as text: ``50*topic + 2*topic:judge + 1000``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from vcomp.exceptions import PlanError

__all__ = ["parse_cost"]

_NUMBER = r"(?:\d[\d,_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_QUOTED = r"""'[^']*'|"[^"]*\""""
_NAME = r"""[^\s()+*×:\-/'"]+"""
_TOKEN = re.compile(rf"[+*×:()/-]|{_QUOTED}|{_NUMBER}|{_NAME}|\S")
_SIGNS = frozenset("+*×:()/-")
_JOINS = ("*", "×", ":", "per")


def parse_cost(text: str) -> list[tuple[float, tuple[str, ...]]]:
    """Return the terms of a cost: an amount, and the facets whose combinations it is paid for.

    Parameters
    ----------
    text : amounts times facets, joined by ``+``: ``"50*topic + 2*topic:judge + 1000"``. ``*``,
        ``×``, ``:``, ``per`` and nothing at all join alike; what has no facet is the set-up. A
        name with spaces or signs, or that begins with a digit, stands in quotes

    Raises
    ------
    PlanError
        The text cannot be read; the message points at the place.

    Examples
    --------
    >>> parse_cost("50 per topic + 2*topic:judge + 1,000")
    [(50.0, ('topic',)), (2.0, ('topic', 'judge')), (1000.0, ())]
    """
    # One line, so that the caret stands under the fault.
    reader = _Reader(re.sub(r"\s", " ", text))
    terms = [reader.term()]
    while reader.at < len(reader.tokens):
        if not reader.take("+"):
            reader.fail("expected '+' between the parts of a cost")
        terms.append(reader.term())
    return terms


@dataclass(slots=True)
class _Reader:
    """Terms are sequences of numbers and names, each of which multiplies the others."""

    text: str
    at: int = 0
    tokens: list[tuple[str, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = [(m.group(), m.start()) for m in _TOKEN.finditer(self.text)]

    def term(self) -> tuple[float, tuple[str, ...]]:
        amount, facets, joined = 1.0, list[str](), True
        while True:
            token = self.peek()
            if token is None or token == "+":
                if joined:
                    self.fail("expected a number or a facet")
                return amount, tuple(facets)
            if token in _JOINS:
                if joined:
                    self.fail("expected a number or a facet")
                self.at += 1
                joined = True
                continue
            amount *= self.factor(token, facets)
            joined = False

    def factor(self, token: str, facets: list[str]) -> float:
        """Read a number, which is returned, or a name, which goes to the facets."""
        if token == "-":
            self.fail("a cost has no negative parts")
        if token in _SIGNS or (len(token) == 1 and token in "'\""):
            self.fail(
                "expected a number or a facet (for other costs pass a function of the sizes)"
            )
        self.at += 1
        if re.fullmatch(_NUMBER, token):
            return float(token.replace(",", "").replace("_", ""))
        name = token[1:-1] if token[0] in "'\"" else token
        if name in facets:
            self.at -= 1
            self.fail(f"facet {name!r} is named twice in one part of the cost")
        facets.append(name)
        return 1.0

    def peek(self) -> str | None:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else None

    def take(self, wanted: str) -> bool:
        found = self.peek() == wanted
        self.at += found
        return found

    def fail(self, what: str) -> NoReturn:
        end = len(self.text.rstrip())
        place = self.tokens[self.at][1] if self.at < len(self.tokens) else end
        raise PlanError(f"{what}\n\n    {self.text}\n    {' ' * place}^")
