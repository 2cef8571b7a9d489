"""The cost of a measurement: prices per level and combination of levels, and a set-up cost."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, did_you_mean, is_real
from vcomp.formula import BrennanDesign, TokenReader

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
        ``×``, ``:``, ``per`` and a space all multiply; a term without facet is the set-up cost.
        Names with spaces or signs, or that begin with a digit, are quoted

    Raises
    ------
    PlanError
        The text cannot be read; the message points at the place.

    Examples
    --------
    >>> parse_cost("50 per topic + 2*topic:judge + 1,000")
    [(50.0, ('topic',)), (2.0, ('topic', 'judge')), (1000.0, ())]
    """
    reader = _CostReader(text, _TOKEN)
    terms = [reader.term()]
    while reader.peek() is not None:
        if not reader.take("+"):
            reader.fail("expected '+' between the parts of a cost")
        terms.append(reader.term())
    return terms


class _CostReader(TokenReader):
    """Parser of costs; a term is a product of numbers and names."""

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
            if not amount <= _LARGEST:
                self.fail("the amount is too large")
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


_EXAMPLE = 'such as {"topic": 50, "topic:judge": 2}'


@dataclass(frozen=True, slots=True, init=False)
class Cost:
    """What a measurement costs, as a sum of prices.

    A price is paid for every level of a facet, or for every combination of levels of several, that
    the design has: with judges crossed with topics ``"judge"`` is paid once for each of the n
    judges, with judges within topics for those of every topic.

    Parameters
    ----------
    per : facet, or several facets joined by colons → price of each level or combination
    setup : fixed cost, which does not depend on the sizes

    Attributes
    ----------
    prices : facets → price, those that are 0 left out
    setup : as given

    Raises
    ------
    PlanError
        If a price is not a number from 0 to 1e100, or a combination is given twice.

    Examples
    --------
    >>> cost = Cost({"topic": 50, "topic:judge": 2}, setup=1000)
    >>> print(cost)
    50 per topic + 2 per topic:judge + 1,000
    >>> cost.total({"topic": 100, "judge": 3})
    6600.0
    >>> Cost.parse("50*topic + 2*topic:judge + 1000") == cost
    True
    """

    prices: Mapping[tuple[str, ...], float]
    setup: float

    def __init__(
        self, per: Mapping[str | Sequence[str], float] | None = None, *, setup: float = 0.0
    ) -> None:
        if per is None:
            per = {}
        if not isinstance(per, Mapping):
            raise PlanError(f"prices are a mapping {_EXAMPLE}, not {per!r}")
        prices: dict[tuple[str, ...], float] = {}
        for key, price in per.items():
            facets = _facets(key)
            twice = [other for other in prices if set(other) == set(facets)]
            if twice:
                raise PlanError(f"the price per {':'.join(facets)} is given twice")
            prices[facets] = _price(f"the price per {':'.join(facets)}", price)
        object.__setattr__(self, "prices", {f: p for f, p in prices.items() if p > 0.0})
        object.__setattr__(self, "setup", _price("the set-up cost", setup))

    @classmethod
    def parse(cls, text: str) -> Cost:
        """Return the cost that a text writes, such as ``"50*topic + 2*topic:judge + 1000"``.

        Parameters
        ----------
        text : such as ``"50*topic + 2*topic:judge + 1000"``; what is printed is read again

        Raises
        ------
        PlanError
            The text cannot be read; the message points at the place.

        Examples
        --------
        >>> print(Cost.parse("10 i + i*a"))
        10 per i + 1 per i:a
        """
        if not isinstance(text, str):
            raise PlanError(f"a cost is text such as '50*topic + 1000', not {text!r}")
        prices: dict[frozenset[str], tuple[tuple[str, ...], float]] = {}
        setup = 0.0
        for amount, facets in parse_cost(text):
            if facets:
                first, sum_ = prices.get(frozenset(facets), (facets, 0.0))
                prices[frozenset(facets)] = (first, sum_ + amount)
            else:
                setup += amount
        return cls(dict(prices.values()), setup=setup)

    def terms(self, design: BrennanDesign) -> list[tuple[float, frozenset[str]]]:
        """Return the prices with the facets over whose levels each is paid in a design.

        A facet brings those that it is nested in.

        Parameters
        ----------
        design : of the D-study

        Raises
        ------
        PlanError
            If a facet is not one of the design.

        Examples
        --------
        >>> from vcomp.formula import parse_design
        >>> Cost({"a": 5}).terms(parse_design("p x (a:i)"))[0][1] == {"a", "i"}
        True
        """
        for facets in self.prices:
            for facet in facets:
                if facet not in design.facets:
                    hint = did_you_mean(facet, design.facets)
                    if facet == "setup":
                        hint = "; a fixed cost is Cost({…}, setup=…)"
                    raise PlanError(
                        f"the cost has a price per {':'.join(facets)}, and {facet!r} is not a "
                        f"facet{hint}; facets are {', '.join(design.facets)}",
                        column=facet,
                    )
        return [(price, design.closure(facets)) for facets, price in self.prices.items()]

    def total(self, sizes: Mapping[str, float], design: BrennanDesign | None = None) -> float:
        """Return the cost of a measurement of these sizes.

        Parameters
        ----------
        sizes : of every facet with a price, within those that it is nested in
        design : says which facets are nested; none if None

        Raises
        ------
        PlanError
            If a facet is not one of the design, or has no size.

        Examples
        --------
        >>> from vcomp.formula import parse_design
        >>> Cost({"a": 5}).total({"i": 10, "a": 2}, parse_design("p x (a:i)"))
        100.0
        """
        if design is None:
            design = BrennanDesign.of(sizes, {})
        total = self.setup
        for price, facets in self.terms(design):
            missing = sorted(facets - set(sizes))
            if missing:
                raise PlanError(
                    f"the cost depends on the size of {missing[0]!r}, which is not given",
                    column=missing[0],
                )
            total += price * math.prod(float(sizes[f]) for f in facets)
        return total

    def __str__(self) -> str:
        parts = [f"{_amount(p)} per {':'.join(map(_name, f))}" for f, p in self.prices.items()]
        if self.setup or not parts:
            parts.append(_amount(self.setup))
        return " + ".join(parts)

    def __repr__(self) -> str:
        return f"Cost.parse({str(self)!r})"

    def __hash__(self) -> int:
        return hash((frozenset(self.prices.items()), self.setup))


@dataclass(frozen=True, slots=True)
class CostFunction:
    """Any cost, as a function of the sizes.

    Attributes
    ----------
    function : as the user gave it
    name : to be printed
    by_keyword : whether it is called with sizes by name; otherwise with one mapping of them

    Examples
    --------
    >>> cost = read_cost(lambda i, a: 10 * i + 2 * i * a)
    >>> cost.at({"i": np.array([5.0, 6.0]), "a": np.array([1.0, 1.0])})
    array([60., 72.])
    """

    function: Callable[..., Any]
    name: str
    by_keyword: bool

    def at(self, sizes: Mapping[str, FloatArray]) -> FloatArray:
        """Return the cost of several measurements.

        The function is called once with arrays; if it cannot work with them, once for each.

        Parameters
        ----------
        sizes : facet → (m,) sizes

        Raises
        ------
        PlanError
            If the function does not return finite numbers from 0 on.
        """
        m = len(next(iter(sizes.values())))
        try:
            returned = np.asarray(self._call(sizes))
            costs = np.empty(0) if np.iscomplexobj(returned) else returned.astype(float)
        except (TypeError, ValueError):
            costs = np.empty(0)
        if costs.shape != (m,):
            costs = np.array(
                [self._one({f: float(n[k]) for f, n in sizes.items()}) for k in range(m)]
            )
        bad = np.flatnonzero(~(np.isfinite(costs) & (costs >= 0.0)))
        if bad.size:
            where = ", ".join(f"{f} = {display.count(n[bad[0]])}" for f, n in sizes.items())
            raise PlanError(
                f"the cost function returns {costs[bad[0]]!s} at {where}; a cost is a finite "
                "number of at least 0"
            )
        return costs

    def _one(self, sizes: Mapping[str, float]) -> float:
        cost = self._call({f: int(n) if n.is_integer() else n for f, n in sizes.items()})
        if isinstance(cost, np.ndarray) and cost.ndim == 0:
            cost = cost[()]
        if not isinstance(cost, Real):
            raise PlanError(
                f"the cost function has to return a number, not {type(cost).__name__} {cost!r}"
            )
        return float(cost)

    def _call(self, sizes: Mapping[str, Any]) -> Any:
        if not self.by_keyword:
            return self.function(dict(sizes))
        wanted = _parameters(self.function)
        return self.function(**{f: n for f, n in sizes.items() if wanted is None or f in wanted})

    def check_facets(self, facets: Iterable[str]) -> None:
        """Refuse a function with parameters that are not facets of the design.

        Parameters
        ----------
        facets : whose sizes it will be given

        Raises
        ------
        PlanError
            Naming the parameter.
        """
        known = list(facets)
        wanted = (_parameters(self.function) if self.by_keyword else None) or {}
        for name, needed in wanted.items():
            if needed and name not in known:
                raise PlanError(
                    f"the cost function has a parameter {name!r}, which is not a facet with a "
                    f"size{did_you_mean(name, known)}; these are {', '.join(known)}. A function "
                    "of a mapping of all sizes has one parameter, 'sizes'"
                )

    def __str__(self) -> str:
        return f"by the function {self.name}"


def read_cost(given: Any) -> Cost | CostFunction:
    """Return a cost that is given in any of its forms.

    Parameters
    ----------
    given : a :class:`Cost`, a mapping of prices, a text, or a function of the sizes: with the
        facets as its parameters, or with one parameter ``sizes``, a mapping of them. It is called
        with arrays if it works with them, otherwise with one number each

    Raises
    ------
    PlanError
        If it is none of these, or cannot be read.

    Examples
    --------
    >>> print(read_cost("10*i + i*a"), "|", read_cost({"i": 10}))
    10 per i + 1 per i:a | 10 per i
    """
    if isinstance(given, (Cost, CostFunction)):
        return given
    if isinstance(given, str):
        return Cost.parse(given)
    if isinstance(given, Mapping):
        return Cost(given)
    if callable(given):
        name = getattr(given, "__name__", type(given).__name__)
        name = "of the user" if name == "<lambda>" else name
        return CostFunction(given, name, list(_parameters(given) or ()) != ["sizes"])
    raise PlanError(
        f"a cost is a mapping {_EXAMPLE}, a text such as '50*topic + 2*topic:judge', a Cost or a "
        f"function of the sizes, not {type(given).__name__}"
    )


def _parameters(function: Callable[..., Any]) -> dict[str, bool] | None:
    """Return for each parameter if it is required; None if any keyword is accepted."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name: p.default is p.empty for p in parameters if p.kind in named}


def _facets(key: str | Sequence[str]) -> tuple[str, ...]:
    parts = key.split(":") if isinstance(key, str) else key
    if isinstance(parts, (str, bytes)) or not isinstance(parts, Iterable):
        raise PlanError(f"a price is per facet or combination, such as 'topic:judge', not {key!r}")
    facets = tuple(p.strip() if isinstance(p, str) else p for p in parts)
    if not facets or not all(isinstance(f, str) and f for f in facets):
        raise PlanError(f"a price is per facet or combination, such as 'topic:judge', not {key!r}")
    if len(set(facets)) < len(facets):
        raise PlanError(f"{key!r} names a facet twice")
    return facets


_LARGEST = 1e100
"""Largest price: products with numbers of levels, and their squares, are finite."""


def _price(what: str, value: Any) -> float:
    # Python's bool is a number, numpy's is not
    if is_real(value) and 0.0 <= float(value) <= _LARGEST:
        return float(value)
    raise PlanError(f"{what} is a finite number from 0 to {_LARGEST:g}, not {value!r}")


def money(value: float) -> str:
    """Return an amount as it is printed: to the hundredth, or to six digits where it is small.

    Examples
    --------
    >>> money(1250000.0), money(43983.3333), money(0.0125)
    ('1,250,000', '43,983.33', '0.0125')
    """
    hundredths = round(float(value), 2)
    whole = hundredths.is_integer() and hundredths > 0.0
    return display.count(hundredths) if whole or value >= 1000.0 else display.number(value, 6)


def _amount(value: float) -> str:
    return display.count(value) if value.is_integer() else display.number(value, 10)


def _name(facet: str) -> str:
    return facet if facet.isidentifier() and facet != "per" else f"'{facet}'"
