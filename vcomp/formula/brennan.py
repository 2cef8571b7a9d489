"""Brennan's notation for designs: ``p x (i:h)`` is persons crossed with items within headings.

Parses and writes designs, and computes closures of nested facets. A design in this notation is
turned into a formula (:mod:`~vcomp.formula.effects`), or is the design of a D-study.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, NoReturn

from vcomp.exceptions import PlanError

RESIDUAL = "Residual"
"""Name of the last component, as in lme4's tables."""


REPLICATE = "replicate"
"""The facet of repeated scores in one cell; it is nested in all other facets."""


def closure(facets: frozenset[str], nested_in: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the closure of `facets`: with all facets that these are nested in.

    Examples
    --------
    >>> sorted(closure(frozenset({"doc"}), {"doc": frozenset({"topic"})}))
    ['doc', 'topic']
    """
    grown = facets.union(*(nested_in.get(f, frozenset()) for f in facets))
    return grown if grown == facets else closure(grown, nested_in)


_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_BARE = r"""[^\s():×*'"][^\s():×*]*"""
_TOKEN = re.compile(rf"[():×*]|{_QUOTED}|{_BARE}|\S")
_CROSSED = ("x", "X", "×", "*")
_SIGNS = ("(", ")", ":", "×", "*")


@dataclass(frozen=True, slots=True)
class DesignFactor:
    """A factor of a design: one facet, or facets nested in others.

    Attributes
    ----------
    facet : its name, or None for a nesting
    inner, outer : the crossed factors left and right of the colon
    """

    facet: str | None
    inner: tuple[DesignFactor, ...] = ()
    outer: tuple[DesignFactor, ...] = ()


@dataclass(frozen=True, slots=True)
class BrennanDesign:
    """A design: facets with their nesting.

    Attributes
    ----------
    facets : in the order of the text
    nested_in : for each facet those that it is nested in, transitively
    all_columns : whether a facet called ``replicate`` is a column of the data, not the repeated
        scores of a cell, which are not written

    Examples
    --------
    >>> design = parse_design("p x (a:i)")
    >>> sorted(design.closure({"p", "a"}))
    ['a', 'i', 'p']
    >>> print(design)
    p x (a:i)
    """

    MOST_FACETS: ClassVar[int] = 12
    """Largest number of facets of a design whose effects are listed: crossed they have 4,095."""

    facets: tuple[str, ...]
    nested_in: Mapping[str, frozenset[str]]
    all_columns: bool = False

    @classmethod
    def of(
        cls,
        facets: Iterable[str],
        nested_in: Mapping[str, Iterable[str]],
        *,
        all_columns: bool = False,
    ) -> BrennanDesign:
        """Return the design of these facets.

        Parameters
        ----------
        facets : in the order of the text
        nested_in : facets that a facet is nested in; it need not be transitive
        all_columns : whether ``replicate`` is a column of the data

        Examples
        --------
        >>> chain = BrennanDesign.of(["d", "i", "h"], {"d": {"i"}, "i": {"h"}})
        >>> sorted(chain.nested_in["d"])
        ['h', 'i']
        """
        names = tuple(facets)
        direct = {f: frozenset(above) for f, above in nested_in.items()}
        above = {f: closure(frozenset({f}), direct) - {f} for f in names}
        return cls(names, above, all_columns)

    @property
    def written(self) -> tuple[str, ...]:
        """The facets that are written: all but the repeated scores of a cell."""
        return tuple(f for f in self.facets if self.all_columns or f != REPLICATE)

    def closure(self, facets: Iterable[str]) -> frozenset[str]:
        """Return the closure of some facets: with those that they are nested in.

        Parameters
        ----------
        facets : of the design

        Examples
        --------
        >>> sorted(parse_design("p x (a:i)").closure({"a"}))
        ['a', 'i']
        """
        return closure(frozenset(facets), self.nested_in)

    def innermost(self, facets: Iterable[str]) -> frozenset[str]:
        """Return those of some facets in which no other one of them is nested.

        Parameters
        ----------
        facets : of the design

        Examples
        --------
        >>> sorted(parse_design("p x (a:i)").innermost({"p", "a", "i"}))
        ['a', 'p']
        """
        given = frozenset(facets)
        return given.difference(*(self.nested_in[f] for f in given))

    @property
    def outer_first(self) -> tuple[str, ...]:
        """The facets in the order of the text, each after those that it is nested in.

        Examples
        --------
        >>> parse_design("p x a x (d:i)").outer_first
        ('p', 'a', 'i', 'd')
        """
        order: dict[str, None] = {}
        for facet in self.facets:
            above = sorted(self.nested_in[facet], key=self.facets.index)
            order |= dict.fromkeys(sorted(above, key=lambda f: len(self.nested_in[f])))
            order[facet] = None
        return tuple(order)

    @property
    def factors(self) -> tuple[DesignFactor, ...]:
        """The crossed factors of the design, without replicates."""
        return _factors(self.written, self.nested_in)

    def check_names(self) -> None:
        """Refuse facets whose names have another meaning in a G-study.

        Raises
        ------
        PlanError
            If a facet is called ``replicate`` or ``Residual``, or has a colon in its name.
        """
        for facet in self.facets:
            if facet == REPLICATE:
                raise PlanError(
                    f"{REPLICATE!r} is the facet of repeated scores in a cell, which the design "
                    "of a G-study does not name; leave it out, or give the facet another name"
                )
            if facet == RESIDUAL:
                raise PlanError(
                    f"{RESIDUAL!r} is the name of the last component; give the facet another name"
                )
            if ":" in facet:
                raise PlanError(
                    f"the facet {facet!r} has ':' in its name, which joins facets in the names "
                    "of components; give it another name",
                    column=facet,
                )

    def __str__(self) -> str:
        return _written(self.factors, _quoted)

    def text(self, label: Callable[[str], str], cross: str, nest: str) -> str:
        """Return the design in Brennan's notation with other names and signs.

        Parameters
        ----------
        label : returns the text of a facet
        cross, nest : the signs for crossed and nested facets

        Examples
        --------
        >>> parse_design("p x (a:i)").text(str.upper, " × ", " : ")
        'P × (A : I)'
        """
        return _written(self.factors, label, cross, nest)

    def boxes(
        self,
        label: Callable[[str], str] = str,
        within: Callable[[str], str] | None = None,
        width: int = 79,
    ) -> str:
        """Return the design drawn as boxes: × between crossed facets, nested facets inside.

        Parameters
        ----------
        label : returns the text of a facet in its box
        within : returns a second line for nested facets, such as the number in each
        width : of the text in letters; boxes that do not fit beside each other stand below

        Examples
        --------
        >>> print(parse_design("p x (i:h)").boxes())
        ┌───┐   ┌ h ────┐
        │ p │ × │ ┌───┐ │
        └───┘   │ │ i │ │
                │ └───┘ │
                └───────┘
        """
        lines = _side_by_side(self.factors, label, within, width)
        return "\n".join(line.rstrip() for line in lines)

    def held_effects(
        self, terms: Iterable[tuple[str, ...]], *, replicated: bool
    ) -> dict[str, tuple[str, ...]]:
        """Return, for each component, the effects of the crossed design that it contains.

        These effects have the same closure and are confounded with each other. An effect without
        a term is part of the residual if its closure contains all facets.

        Parameters
        ----------
        terms : the facets of each random term
        replicated : whether some cell holds several scores

        Examples
        --------
        >>> parse_design("p x (i:h)").held_effects([("p",), ("h",)], replicated=False)["Residual"]
        ('p:i', 'p:i:h', 'error')
        """
        last = "replication and error" if replicated else "error"
        names = {":".join(term): term for term in terms}
        if len(self.facets) > self.MOST_FACETS:
            alone = {name: (name,) for name in names}
            return {**alone, RESIDUAL: ("all effects without a term", last)}
        by_closure: dict[frozenset[str], list[str]] = {}
        for size in range(1, len(self.facets) + 1):
            for effect in combinations(self.facets, size):
                whole = closure(frozenset(effect), self.nested_in)
                by_closure.setdefault(whole, []).append(":".join(effect))
        held: dict[str, tuple[str, ...]] = {}
        for name, term in names.items():
            whole = closure(frozenset(term), self.nested_in)
            held[name] = tuple(by_closure.pop(whole, [])) or (name,)
        held[RESIDUAL] = (*by_closure.get(frozenset(self.facets), []), last)
        return held


def _written(
    factors: Sequence[DesignFactor],
    label: Callable[[str], str],
    cross: str = " x ",
    nest: str = ":",
) -> str:
    """Return factors that are crossed with each other as text, see :meth:`BrennanDesign.text`."""

    def one(factor: DesignFactor) -> str:
        if factor.facet is not None:
            return label(factor.facet)
        # A chain needs no parentheses on either side: d:i:h is d:(i:h), and the same as (d:i):h.
        sides = (factor.inner, factor.outer)
        texts = [one(s[0]) if len(s) == 1 else f"({product(s)})" for s in sides]
        return nest.join(texts)

    def product(crossed: Sequence[DesignFactor]) -> str:
        if len(crossed) == 1:
            return one(crossed[0])
        return cross.join(one(f) if f.facet is not None else f"({one(f)})" for f in crossed)

    return product(factors)


def parse_design(text: str, known: Iterable[str] | None = None) -> BrennanDesign:
    """Return the design that a text in Brennan's notation describes.

    Facets are letters or words; ``x``, ``×`` or ``*`` cross them, ``:`` nests the facets on its
    left in those on its right and binds more tightly: ``p x i:h`` is ``p x (i:h)``, and
    ``d:i:h`` is ``d:(i:h)``. An ``x`` inside a word is an ordinary letter. A name with spaces or
    signs is quoted: ``p x ('exam item':h)``. A facet is named once, except on the right of a
    colon: ``(i:h) x (r:(h x t))`` has i within h, and r within h and t.

    Parameters
    ----------
    text : such as ``"p x i x a"``, ``"p × (i:h)"``, ``"sys x (judge:topic)"``, ``"r:(p x t)"``
    known : facets of a G-study. A name that differs from one of them only in its capitals, with
        which Brennan writes the facets of a D-study, is read as that facet

    Raises
    ------
    PlanError
        The text cannot be read, names a facet twice, or nests one in itself; the message marks the
        position.

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
    >>> print(parse_design("p x (I:H)", known=["p", "i", "h"]))
    p x (i:h)
    """
    if not isinstance(text, str):
        raise PlanError(f"a design must be text such as 'p x (a:i)', not {type(text).__name__}")
    reader = _DesignReader(text, tuple(known or ()))
    facets = reader.product(outer=False)
    if reader.peek() is not None:
        reader.fail("expected 'x' or ':' between facets")
    design = BrennanDesign.of(dict.fromkeys(facets), reader.nested_in)
    within_itself = [f for f in design.facets if f in reader.above(f)]
    if within_itself:
        reader.at = len(reader.tokens)
        reader.fail(f"facet {within_itself[0]!r} is nested in itself")
    return design


class TokenReader:
    """A text that is read token by token; errors mark the position.

    Parameters
    ----------
    text : on one line or several
    pattern : of a token

    Attributes
    ----------
    text : on one line, so that the caret is below the error
    tokens : with their positions in the text
    at : number of the next token
    """

    def __init__(self, text: str, pattern: re.Pattern[str]) -> None:
        self.text = re.sub(r"\s", " ", text)
        self.tokens = [(m.group(), m.start()) for m in pattern.finditer(self.text)]
        self.at = 0

    def peek(self) -> str | None:
        """Return the next token; None at the end."""
        return self.tokens[self.at][0] if self.at < len(self.tokens) else None

    def take(self, *wanted: str) -> bool:
        """Return whether the next token is one of those wanted, and move on if it is."""
        matches = self.peek() in wanted
        self.at += matches
        return matches

    def fail(self, message: str) -> NoReturn:
        """Raise a PlanError with the text and a caret below the next token."""
        end = len(self.text.rstrip())
        place = self.tokens[self.at][1] if self.at < len(self.tokens) else end
        raise PlanError(f"{message}\n\n    {self.text}\n    {' ' * place}^")


class _DesignReader(TokenReader):
    """Recursive descent: product := chain (x chain)*, chain := atom (: chain)?."""

    def __init__(self, text: str, known: tuple[str, ...]) -> None:
        super().__init__(text, _TOKEN)
        self.known = known
        self.seen: dict[str, bool] = {}
        self.nested_in: dict[str, frozenset[str]] = {}

    def product(self, *, outer: bool) -> list[str]:
        """Read crossed facets; `outer` if they are on the right of a colon."""
        facets = self.chain(outer=outer)
        while self.take(*_CROSSED):
            facets += self.chain(outer=outer)
        return facets

    def chain(self, *, outer: bool) -> list[str]:
        first = self.at
        inner = self.atom(outer=outer)
        if not self.take(":"):
            return inner
        above = self.chain(outer=True)
        for facet in inner:
            if facet in above:
                self.at = first
                self.fail(f"facet {facet!r} is nested in itself")
            self.nested_in[facet] = self.nested_in.get(facet, frozenset()).union(above)
        return inner + above

    def atom(self, *, outer: bool) -> list[str]:
        if self.take("("):
            facets = self.product(outer=outer)
            if not self.take(")"):
                self.fail("expected ')'")
            return facets
        name = self.name()
        if name in self.seen and not (outer and self.seen[name]):
            self.fail(f"facet {name!r} is named twice")
        self.seen[name] = outer
        self.at += 1
        return [name]

    def name(self) -> str:
        """Return the facet at this position."""
        token = self.peek()
        if token is None or token in _SIGNS:
            self.fail("expected a facet")
        if token[0] in "'\"":
            if len(token) == 1:
                self.fail("expected a closing quote")
            token = re.sub(r"\\(.)", r"\1", token[1:-1])
            if not token:
                self.fail("expected a facet")
        if self.known and token not in self.known:
            meant = [k for k in self.known if k.casefold() == token.casefold()]
            return meant[0] if len(meant) == 1 else token
        return token

    def above(self, facet: str) -> frozenset[str]:
        """Return all facets that a facet is nested in; itself if the nesting is circular."""
        return closure(self.nested_in.get(facet, frozenset()), self.nested_in)


def _factors(
    facets: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> tuple[DesignFactor, ...]:
    parts = _connected(facets, nested_in)
    return tuple(factor for part in parts for factor in _factors_of_part(part, nested_in))


def _connected(
    facets: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> list[tuple[str, ...]]:
    """Split facets into parts between which there is no nesting."""
    parts: list[tuple[str, ...]] = []
    for facet in facets:
        touching = [
            p for p in parts if any(f in nested_in[facet] or facet in nested_in[f] for f in p)
        ]
        joined = {facet}.union(*touching)
        place = parts.index(touching[0]) if touching else len(parts)
        parts = [p for p in parts if p not in touching]
        parts.insert(place, tuple(f for f in facets if f in joined))
    return parts


def _factors_of_part(
    facets: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> tuple[DesignFactor, ...]:
    """Return the factors of facets that are connected by nesting.

    If all other facets are nested in some (as few as possible), the factor is one nesting. If not,
    each innermost facet is written with all facets that it is nested in, which names some facets
    more than once.
    """
    if len(facets) == 1:
        return (DesignFactor(facets[0]),)
    outer = _common_outer(facets, nested_in)
    if outer:
        rest = [f for f in facets if f not in outer]
        return (_nested(rest, [f for f in facets if f in outer], nested_in),)
    above = frozenset().union(*(nested_in[f] for f in facets))
    inner_of: dict[frozenset[str], list[str]] = {}
    for facet in (f for f in facets if f not in above):
        inner_of.setdefault(nested_in[facet].intersection(facets), []).append(facet)
    return tuple(
        _nested(inner, [f for f in facets if f in outer], nested_in)
        for outer, inner in inner_of.items()
    )


def _common_outer(
    facets: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> frozenset[str]:
    """Return the smallest set of facets in which all others are nested; empty without one."""
    depth = {f: len(nested_in[f].intersection(facets)) for f in facets}
    for m in range(1, len(facets)):
        outer = frozenset(f for f in facets if depth[f] < m)
        if len(outer) == m and all(nested_in[f] >= outer for f in facets if f not in outer):
            return outer
    return frozenset()


def _nested(
    inner: Sequence[str], outer: Sequence[str], nested_in: Mapping[str, frozenset[str]]
) -> DesignFactor:
    return DesignFactor(None, _factors(inner, nested_in), _factors(outer, nested_in))


def _quoted(name: str) -> str:
    """Return a name as written in a design, quoted if it has spaces or signs."""
    if re.fullmatch(_BARE, name):
        return name
    quote = '"' if "'" in name and '"' not in name else "'"
    escaped = name.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}"


_CROSS = " × "


def _side_by_side(
    factors: Sequence[DesignFactor],
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
    factor: DesignFactor,
    label: Callable[[str], str],
    within: Callable[[str], str] | None,
    width: int,
    *,
    nested: bool,
) -> list[str]:
    # Smallest width of the text in a box, in letters
    room = max(width - 4, 6)
    if factor.facet is not None:
        lines = [label(factor.facet)]
        if nested and within is not None:
            lines += [text for text in [within(factor.facet)] if text]
        return _framed("", [_cut(line, room) for line in lines])
    title = _cut(_written(factor.outer, label, _CROSS, " : "), room)
    return _framed(title, _side_by_side(factor.inner, label, within, room, nested=True))


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
