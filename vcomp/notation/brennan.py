"""Brennan's notation for designs: ``p x (i:h)`` is persons crossed with items within headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from vcomp.components import REPLICATE, closure
from vcomp.exceptions import PlanError

__all__ = ["Design", "parse_design"]

_TOKEN = re.compile(r"[():×*]|[^\s():×*]+")
_CROSSED = ("x", "X", "×", "*")
_SIGNS = ("(", ")", ":", "×", "*")


@dataclass(frozen=True, slots=True)
class Design:
    """Facets, and which of them are nested in which.

    Attributes
    ----------
    facets : in the order of the text
    nested_in : for every facet those that it is nested in, transitively

    Examples
    --------
    >>> design = parse_design("p x (a:i)")
    >>> sorted(design.closure({"p", "a"}))
    ['a', 'i', 'p']
    >>> print(design)
    p x (a:i)
    """

    facets: tuple[str, ...]
    nested_in: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, facets: Iterable[str], nested_in: Mapping[str, Iterable[str]]) -> Design:
        """Return the design of these facets; `nested_in` need not be transitive.

        Examples
        --------
        >>> chain = Design.of(["d", "i", "h"], {"d": {"i"}, "i": {"h"}})
        >>> sorted(chain.nested_in["d"])
        ['h', 'i']
        """
        names = tuple(facets)
        direct = {f: frozenset(above) for f, above in nested_in.items()}
        return cls(names, {f: closure(frozenset({f}), direct) - {f} for f in names})

    def closure(self, facets: Iterable[str]) -> frozenset[str]:
        """Return `facets` with those that they are nested in.

        Examples
        --------
        >>> sorted(parse_design("p x (a:i)").closure({"a"}))
        ['a', 'i']
        """
        return closure(frozenset(facets), self.nested_in)

    def __str__(self) -> str:
        factors = _factors([f for f in self.facets if f != REPLICATE], self.nested_in)
        if len(factors) == 1:
            return factors[0]
        return " x ".join(f"({f})" if ":" in f else f for f in factors)


def parse_design(text: str) -> Design:
    """Return the design that `text` writes in Brennan's notation.

    Facets are letters or words; ``x``, ``×`` or ``*`` cross them, ``:`` nests the facets on its
    left in those on its right and binds more tightly: ``p x i:h`` is ``p x (i:h)``, and
    ``d:i:h`` is ``d:(i:h)``. An ``x`` inside a word is a letter like any other.

    Parameters
    ----------
    text : such as ``"p x i x a"``, ``"p × (i:h)"``, ``"sys x (judge:topic)"``, ``"r:(p x t)"``

    Raises
    ------
    PlanError
        The text cannot be read, or names a facet twice; the message points at the place.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 3: the notation for facets and nesting.

    Examples
    --------
    >>> design = parse_design("sys x (judge:topic)")
    >>> design.facets
    ('sys', 'judge', 'topic')
    >>> design.nested_in["judge"]
    frozenset({'topic'})
    """
    if not isinstance(text, str):
        raise PlanError(f"a design is text such as 'p x (a:i)', not {text!r}")
    reader = _Reader(text)
    facets = reader.product()
    if reader.at < len(reader.tokens):
        reader.fail("expected 'x' or ':' between facets")
    return Design.of(facets, reader.nested_in)


class _Reader:
    """Recursive descent: product := chain (x chain)*, chain := atom (: chain)?."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.group(), m.start()) for m in _TOKEN.finditer(text)]
        self.at = 0
        self.seen: set[str] = set()
        self.nested_in: dict[str, frozenset[str]] = {}

    def product(self) -> list[str]:
        facets = self.chain()
        while self.take(*_CROSSED):
            facets += self.chain()
        return facets

    def chain(self) -> list[str]:
        inner = self.atom()
        if not self.take(":"):
            return inner
        outer = self.chain()
        for facet in inner:
            self.nested_in[facet] = self.nested_in.get(facet, frozenset()).union(outer)
        return inner + outer

    def atom(self) -> list[str]:
        if self.take("("):
            facets = self.product()
            if not self.take(")"):
                self.fail("expected ')'")
            return facets
        name = self.peek()
        if name is None or name in _SIGNS:
            self.fail("expected a facet")
        if name in self.seen:
            self.fail(f"facet {name!r} is named twice")
        self.seen.add(name)
        self.at += 1
        return [name]

    def peek(self) -> str | None:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else None

    def take(self, *wanted: str) -> bool:
        found = self.peek() in wanted
        self.at += found
        return found

    def fail(self, what: str) -> NoReturn:
        end = len(self.text.rstrip())
        place = self.tokens[self.at][1] if self.at < len(self.tokens) else end
        raise PlanError(f"{what}\n\n    {self.text}\n    {' ' * place}^")


def _factors(facets: list[str], nested_in: Mapping[str, frozenset[str]]) -> list[str]:
    outer = frozenset().union(*(nested_in[f] for f in facets))
    inner_of: dict[frozenset[str], list[str]] = {}
    for facet in facets:
        if facet not in outer:
            above = nested_in[facet]
            inner_of.setdefault(above or frozenset({facet}), []).append(facet)
    factors = []
    for above, inner in inner_of.items():
        if above == {inner[0]}:
            factors.append(inner[0])
        else:
            right = _factors([f for f in facets if f in above], nested_in)
            factors.append(f"{_grouped(inner)}:{_grouped(right)}")
    return factors


def _grouped(factors: list[str]) -> str:
    if len(factors) == 1:
        return factors[0]
    return "(" + " x ".join(f"({f})" if ":" in f else f for f in factors) + ")"
