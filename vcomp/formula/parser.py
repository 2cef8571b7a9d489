"""The parser of formulas: text becomes a :class:`Formula`; errors show their position.

This is the first step of a fit. patsy tokenises and parses, with one more operator, the bar of a
random term. Its evaluator then expands ``a/b``, ``a*b`` and ``(a + b)**2`` inside the bar and
everything in the fixed part.
"""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from vcomp.exceptions import FormulaError, guarded
from vcomp.formula.dialects import (
    NO_STRUCTURES,
    RANDOM,
    STRUCTURES,
    column_of,
    in_python,
    is_facet,
    quoted,
    refuse_foreign,
    unreadable,
)
from vcomp.formula.formula_terms import (
    INTERCEPT,
    Formula,
    RandomTerm,
    ResidualGroups,
    factors_of,
    names_in,
)


@guarded
def parse(text: str, columns: Sequence[str] = (), residual: str | None = None) -> Formula:
    """Return the parsed formula of a text such as ``"score ~ x + (1|sys) + (1|topic/doc)"``.

    Parameters
    ----------
    text : response, ``~``, a fixed part as patsy understands it, and random intercepts. Inside
        the bar ``a:b`` are combinations, ``a/b`` stands for ``a + a:b`` and ``a*b`` for
        ``a + b + a:b``.
    columns : of the data, for examples in messages, those of levels first
    residual : facets whose combinations of levels have a residual variance each, ``"sys"`` or
        ``"sys:judge"``; None for one residual variance

    Raises
    ------
    FormulaError
        If the text cannot be parsed, has no response or no random term, has random slopes, groups
        by something that is not a column, names a term twice, or has the response on both sides;
        or if `residual` does not name facets. The message shows the formula with a caret below the
        error.

    Examples
    --------
    >>> [term.name for term in parse("score ~ (1|sys) + (1|topic/doc)").random]
    ['sys', 'topic', 'topic:doc']
    """
    tree = _tree(text, columns)
    _check_sides(tree, text, columns)
    left, right = tree.args
    if "*" in text or ":" in text:  # only products expand to more terms
        _check_number_of_terms(right)
    bars = list(_bars(right))
    _check_factors(tree)
    _check_response(left, right)
    description = _describe(left, right)
    random: list[RandomTerm] = []
    for bar in bars:
        for term in _random_terms(bar):
            _check_once(term, random, bar)
            random.append(replace(term, block=len(random)))
    if not random:
        if re.search(rf"\b(?:{'|'.join(STRUCTURES)})\(", text):
            raise FormulaError(f"the formula has no random term: {NO_STRUCTURES}")
        raise FormulaError(
            "the formula has no random term; write one as (1 | facet), "
            f"for instance {_with_random_terms(text, description, columns)!r}"
        )
    fixed, offsets = _apart(description.rhs_termlist)
    return Formula(
        text=text.strip(),
        response=description.lhs_termlist[0].factors[0].code,
        fixed=tuple(term.name() for term in fixed),
        random=tuple(random),
        groups=None if residual is None else _residual_groups(residual),
        offsets=offsets,
    )


def _residual_groups(residual: str) -> ResidualGroups:
    """Return the groups that ``residual=`` names, as yet without levels."""
    written = residual if isinstance(residual, str) else ""
    try:
        named = parse(f"_ ~ (1|{written})")
    except FormulaError:
        named = None
    if named is None or not named.intercept_only or not named.facets:
        raise FormulaError(
            f"residual={residual!r} does not name facets whose levels have a residual variance "
            "each; write for instance residual='sys', or residual='sys:judge' for the "
            "combinations of their levels"
        )
    return ResidualGroups(named.facets)


def patsy_description(formula: Formula) -> Any:
    """Return patsy's ``ModelDesc`` of the fixed part alone (patsy objects cannot be pickled)."""
    from patsy import INTERCEPT, ModelDesc

    _, right = _tree(formula.text).args
    fixed = _without_bars(right)
    return ModelDesc([], [INTERCEPT] if fixed is None else _apart(_evaluate_fixed(fixed))[0])


def _apart(terms: Sequence[Any]) -> tuple[list[Any], tuple[str, ...]]:
    """Return the terms of the fixed part that have coefficients, and the offsets."""
    fixed, offsets = [], []
    for term in terms:
        codes = [_offset_in(factor.code) for factor in term.factors]
        if any(codes) and len(codes) > 1:
            raise FormulaError(
                f"{term.name()!r} is a product with an offset, which has no coefficient; add it: "
                f"+ offset({next(filter(None, codes))})"
            )
        if any(codes):
            offsets += codes
        else:
            fixed.append(term)
    return fixed, tuple(offsets)


def _offset_in(code: str) -> str:
    """Return the expression of ``offset(…)``; empty for other factors."""
    expression = ast.parse(code.strip(), mode="eval").body
    match expression:
        case ast.Call(func=ast.Name(id="offset"), args=[inner], keywords=[]):
            return ast.unparse(inner)
    return ""


def _with_random_terms(text: str, description: Any, columns: Sequence[str]) -> str:
    """Return a formula with random terms: of its columns if there are several, else of another."""
    called = re.compile(rf"\b(?:{'|'.join(RANDOM)})\(([\w:/*+. ]+)\)")
    if called.search(text):
        return called.sub(r"(1|\1)", text.strip())
    factors = [factor.code for term in description.rhs_termlist for factor in term.factors]
    plain = [code for code in dict.fromkeys(factors) if _column_name(code) is not None]
    if len(plain) < 2:  # may well be a covariate
        used = {_column_name(code) for code in plain} | set(names_in(_response_of(text)))
        left = [name for name in columns if name not in used]
        default = "sys" if "topic" in used else "topic"
        other = quoted(left[0]) if left else default
        return f"{text.strip()} + (1|{other})"
    return f"{_response_of(text)} ~ " + " + ".join(f"(1|{name})" for name in plain)


def _response_of(text: str) -> str:
    return text.partition("~")[0].strip()


def _example(columns: Sequence[str]) -> str:
    """Return an example of a formula, of columns of the data if they are known."""
    if len(columns) < 2:
        return "score ~ (1|sys) + (1|topic)"
    facets = " + ".join(f"(1|{quoted(name)})" for name in columns[:-1][:2])
    return f"{quoted(columns[-1])} ~ {facets}"


def _tree(text: str, columns: Sequence[str] = ()) -> Any:
    """Return patsy's tree; the bar binds looser than + so that ``(1 + x | g)`` is one bar."""
    from patsy import PatsyError
    from patsy.infix_parser import Operator
    from patsy.parse_formula import parse_formula

    if not isinstance(text, str):
        raise FormulaError(
            f"the formula is text such as {_example(columns)!r} and comes first, "
            f"not {type(text).__name__}"
        )
    # One line, so that the caret is below the error; names within it keep their spaces.
    text = in_python(re.sub(r"\s*[\r\n]\s*", " ", text))
    refuse_foreign(text)
    # With a unary bar `||` can be parsed, so that its error shows the position.
    operators = [Operator("|", 2, 50), Operator("|", 1, 60)]
    try:
        tree = parse_formula(text, extra_operators=operators)
        for leaf in _nodes(tree):
            name = leaf.token.extra.strip() if leaf.type == "PYTHON_EXPR" else ""
            # Python has no value of this name: it is that of a column.
            if keyword.iskeyword(name) and name not in ("None", "True", "False"):
                leaf.token.extra = quoted(name)
        return tree
    except PatsyError as error:
        raise _from_patsy(error, text) from None
    except IndexError:  # patsy's own, of three quotes
        raise FormulaError(
            f"{text!r} cannot be read as a formula, such as {_example(columns)!r}"
        ) from None


def _check_sides(tree: Any, text: str, columns: Sequence[str]) -> None:
    """Refuse a formula that is not ``response ~ right-hand side``, with one ~."""
    if len(tree.args) != 2:
        right = text.strip().lstrip("~ ")
        response = quoted(columns[-1]) if columns else "score"
        example = f"{response} ~ {right}" if "~" in text and right else _example(columns)
        raise FormulaError(f"the formula needs a response on the left of ~: {example!r}")
    for side in tree.args:
        tilde = next((node for node in _nodes(side) if node.type == "~"), None)
        if tilde is not None:
            raise _fault("a formula has one ~, between response and terms", tilde.token)


_MAX_TERMS = 1000
"""Largest number of terms of a formula: the time of their expansion grows with its square."""


def _check_number_of_terms(right: Any) -> None:
    """Refuse a right-hand side that expands to too many terms."""
    n_terms = _terms(right)
    if n_terms > _MAX_TERMS:
        raise _fault(
            f"this expands to {n_terms:.4g} terms, and a formula has at most {_MAX_TERMS:,}; "
            "write out the terms that matter, such as main effects and interactions of two facets",
            right,
        )


def _terms(node: Any) -> float:
    """Return an upper limit of the number of terms that a tree expands to."""
    if not node.args:
        return 1.0
    counts = [_terms(child) for child in node.args]
    match node.type:
        case ":":
            return counts[0] * counts[1]
        case "*":
            return counts[0] + counts[1] + counts[0] * counts[1]
        case "**":
            code = getattr(node.args[1].token, "extra", None) or ""
            power = int(code) if code.isdecimal() and len(code) < 10 else 0
            return _subsets(counts[0], min(power, counts[0]))
        case "|":
            return counts[-1]
    return sum(counts)


def _subsets(n: float, largest: float) -> float:
    """Return the number of sets of 1 to `largest` of `n` terms; inf if there are very many."""
    total, chosen = 0.0, 1.0
    for k in range(1, int(min(largest, _MAX_TERMS)) + 1):
        chosen *= (n - k + 1) / k
        total += chosen
        if total > 1e9:
            return math.inf
    return total


def _check_factors(tree: Any) -> None:
    """Refuse expressions that Python cannot read."""
    for leaf in _nodes(tree):
        if leaf.type != "PYTHON_EXPR":
            continue
        code = leaf.token.extra
        if code == ".":
            raise _fault("'.' is not short for the other columns; write out the terms", leaf)
        try:
            ast.parse(code.strip(), mode="eval")
        except (RecursionError, MemoryError):  # Python's parser ends in either
            raise FormulaError(
                f"the expression of {len(code):,} characters that begins {code[:60]!r} is too "
                "deeply nested for Python; make it a column first"
            ) from None
        except (SyntaxError, ValueError):  # a null character, a number of very many digits
            code = _source_of(leaf)
            advice = unreadable(code)
            raise _fault(
                f"{code!r} is neither a column nor a Python expression{'; ' * bool(advice)}"
                f"{advice}",
                leaf,
            ) from None


def _source_of(node: Any) -> str:
    """Return the text of a node, as written."""
    origin = getattr(node, "origin", node)
    text: str = origin.code[origin.start : origin.end]
    return text.strip()


def _check_response(left: Any, right: Any) -> None:
    """Refuse a response of several terms, and one that stands on the right as well."""
    plain = left.type == "PYTHON_EXPR"
    if not plain or isinstance(
        ast.parse(left.token.extra.strip(), mode="eval").body, ast.Constant
    ):
        is_number = plain or left.type in ("ONE", "ZERO", "NUMBER")
        example = "I(a + b)" if is_number else f"I({_source_of(left)})"
        raise _fault(f"the response must be one column or one expression, such as {example}", left)
    response = _column_name(left.token.extra)
    for leaf in _nodes(right):
        if (
            response is not None
            and leaf.type == "PYTHON_EXPR"
            and _column_name(leaf.token.extra) == response
        ):
            raise _fault(f"the response {response!r} cannot be on the right of ~ as well", leaf)


def _bars(node: Any, allowed: bool = True) -> Iterator[Any]:
    """Yield the bar nodes, which must be summands of the right-hand side."""
    if node.type == "|":
        if not allowed:
            raise _fault("a random term is added with +; it cannot be part of another term", node)
        _check_bar(node)
        yield node
        return
    summand = node.type == "+" or (node.type == "-" and len(node.args) == 2)
    for position, child in enumerate(node.args):
        subtracted = node.type == "-" and position == len(node.args) - 1
        yield from _bars(child, allowed and summand and not subtracted)


def _check_bar(bar: Any) -> None:
    """Refuse random terms without effects on the left of the bar, or without parentheses."""
    effects, groups = bar.args if len(bar.args) == 2 else (None, bar.args[0])
    uncorrelated = groups.type == "|" and len(groups.args) == 1
    written = f"(1|{_source_of(groups.args[0] if uncorrelated else groups)})"
    if effects is None:
        raise _fault(f"a random term has a 1 before its bar: {written}", bar)
    # patsy's origin of a node includes its parentheses, so a bar without them starts where its
    # left side starts.
    if bar.origin.start == effects.origin.start:
        raise _fault(f"a random term needs parentheses: {written}", bar.token)
    if groups.type == "ONE" and effects.type != "ONE":
        raise _fault(f"the groups are on the right of the bar: (1|{_source_of(effects)})", bar)
    for leaf in _nodes(effects):
        if leaf.type == "NUMBER":
            raise _fault(
                f"the effects of a random term are 1, 0 or columns, as in {written} and (1 + x|g)",
                leaf,
            )


def _effects_of(bar: Any) -> Iterator[tuple[str, ...]]:
    """Yield the effects of a bar: correlated ones together, those of ``||`` one by one."""
    from patsy import PatsyError
    from patsy.desc import Evaluator

    left, right = bar.args
    try:
        expression = Evaluator().eval(left)
    except PatsyError as error:
        raise _from_patsy(error, bar.origin.code) from None
    slopes = [term.name() for term in expression.terms if term.factors]
    effects = [*([] if expression.intercept_removed else [INTERCEPT]), *slopes]
    if not effects:
        raise _fault("a random term without effects; an intercept is (1|g), a slope (x|g)", bar)
    if right.type == "|" and len(right.args) == 1:
        yield from ((effect,) for effect in effects)
    else:
        yield tuple(effects)


def _check_once(term: RandomTerm, known: Sequence[RandomTerm], bar: Any) -> None:
    """Refuse an effect that another term has for the same groups."""
    for other in known:
        shared = [e for e in term.effects if e in other.effects]
        if frozenset(term.facets) != frozenset(other.facets) or not shared:
            continue
        if term.effects == other.effects:
            raise _fault(f"the random term {other.name} occurs twice; write it once", bar)
        what = "an intercept" if shared[0] == INTERCEPT else f"a slope of {shared[0]}"
        left = tuple(e for e in term.effects if e not in shared)
        rest = replace(term, effects=left).written if left else ""
        advice = (
            f"write {rest} in place of {term.written}" if rest else f"leave {term.written} out"
        )
        raise _fault(
            f"{other.written} has {what} of {':'.join(term.facets)} as well; {advice}", bar
        )


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in node.args:
        yield from _nodes(child)


def _random_terms(bar: Any) -> Iterator[RandomTerm]:
    from patsy import PatsyError
    from patsy.desc import Evaluator

    groups = bar.args[1]
    if groups.type == "|" and len(groups.args) == 1:
        (groups,) = groups.args
    for leaf in _nodes(groups):
        if leaf.args:
            continue
        if leaf.type != "PYTHON_EXPR":
            if leaf.type != "NUMBER":
                raise _fault("a random term groups by columns, such as (1|g)", leaf)
            continue
        name = _facet_name(leaf.token.extra)
        if name is None:
            code = leaf.token.extra
            raise _fault(
                f"a random term groups by columns, and {code!r} is an expression; "
                f"{_as_groups(code)}",
                leaf,
            )
        if ":" in name:
            raise _fault(
                "the name of a facet cannot contain ':', which joins facets; rename it", leaf
            )
    try:
        expanded = Evaluator().eval(groups)
    except PatsyError as error:
        raise _from_patsy(error, bar.origin.code) from None
    for term in expanded.terms:
        facets = tuple(_facet_name(factor.code) or "" for factor in term.factors)
        for effects in _effects_of(bar):
            used = dict.fromkeys(name for code in factors_of(effects) for name in names_in(code))
            named = RandomTerm(":".join(facets), facets, effects, covariates=tuple(used))
            yield named.of_column(*effects) if len(effects) == 1 else named


def _facet_name(code: str) -> str | None:
    """Return the column by whose levels ``g``, ``"any name"``, ``a.name`` or ``C(g)`` groups."""
    expression = ast.parse(code.strip(), mode="eval").body
    match expression:
        case ast.Constant(value=str(name)):
            return name
        case ast.Attribute() if re.fullmatch(r"[^\W\d]\w*(\.\w+)+", code.strip()):
            return code.strip()
        case ast.Call(func=ast.Name(id="C"), args=[inner], keywords=[]):
            return _facet_name(ast.unparse(inner))
    return _column_name(code)


def _as_groups(code: str) -> str:
    """Return how groups of several columns are written, or of the values of an expression."""
    expression = ast.parse(code.strip(), mode="eval").body
    match expression:
        case ast.Tuple(elts=parts) | ast.Call(func=ast.Name(id="interaction"), args=parts):
            pass
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            parts = [left, right]
        case ast.Call(func=ast.Name(id=name)) if name in STRUCTURES:
            return NO_STRUCTURES
        case ast.Call(func=ast.Name(id=inner), args=[ast.Name(id=outer)]) if is_facet(inner):
            return f"groups of {inner} within {outer} are (1|{outer}:{inner})"
        case _:
            return f"groups of equal values are {column_of(expression)}"
    names = [ast.unparse(part) for part in parts]
    both = " + ".join(f"(1|{name})" for name in names)
    return f"combinations of levels are (1|{':'.join(names)}), and separate terms {both}"


def _column_name(code: str) -> str | None:
    """Return the column that `code` names, ``g`` or ``Q("any name")``; None for an expression."""
    expression = ast.parse(code.strip(), mode="eval").body
    match expression:
        case ast.Name():
            return code.strip()  # not normalised, as Python would do
        case ast.Call(func=ast.Name(id="Q"), args=[ast.Constant(value=str(name))], keywords=[]):
            return name
    return None


def _describe(left: Any, right: Any) -> Any:
    """Evaluate the response and the fixed part with patsy."""
    from patsy import INTERCEPT, ModelDesc, PatsyError
    from patsy.desc import Evaluator

    try:
        response = Evaluator().eval(left)
    except PatsyError as error:
        raise _from_patsy(error, left.origin.code) from None
    fixed = _without_bars(right)
    terms = [INTERCEPT] if fixed is None else _evaluate_fixed(fixed)
    return ModelDesc(list(response.terms), terms)


def _evaluate_fixed(tree: Any) -> list[Any]:
    from patsy import INTERCEPT, PatsyError
    from patsy.desc import Evaluator

    try:
        expression = Evaluator().eval(tree)
    except PatsyError as error:
        raise _from_patsy(error, tree.origin.code) from None
    return ([] if expression.intercept_removed else [INTERCEPT]) + list(expression.terms)


def _without_bars(node: Any) -> Any | None:
    """Return the tree without its random terms; None if nothing else is left."""
    from patsy.infix_parser import ParseNode

    if node.type == "|":
        return None
    if node.type not in ("+", "-") or len(node.args) != 2:
        return node
    left, right = (_without_bars(child) for child in node.args)
    if right is None:
        return left
    if left is None:
        # "(1|g) - 1" leaves "- 1", "(1|g) + x" leaves "x".
        return right if node.type == "+" else ParseNode("-", node.token, [right], node.origin)
    return ParseNode(node.type, node.token, [left, right], node.origin)


def _fault(message: str, place: Any) -> FormulaError:
    """Return an error that shows the formula with a caret below `place`."""
    origin = getattr(place, "origin", place)
    return FormulaError(f"{message}\n\n{origin.caretize(4)}")


def _from_patsy(error: Any, text: str) -> FormulaError:
    message = error.message.replace("a noun", "a column or a term")
    if message.startswith("expected an operator"):
        message += "; terms are joined by +"
    if message.startswith("error tokenizing"):
        message = "here is a character that formulas do not have, or a quote that is not closed"
    if not message.startswith("I "):
        message = message[:1].lower() + message[1:]
    if error.origin is None:
        return FormulaError(f"{message}\n\n    {text}")
    return _fault(message, error.origin)
