"""The left side of a formula with several responses."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from vcomp.exceptions import FormulaError
from vcomp.formula import names_in

__all__ = ["plain_name", "read_sides"]


def read_sides(formula: str, responses: Sequence[str] | None = None) -> tuple[list[str], str]:
    """Return the responses, as expressions, and the right-hand side.

    Parameters
    ----------
    formula : with both sides, or the right one alone
    responses : columns in place of the left side

    Raises
    ------
    FormulaError
        If there are no responses, they cannot be read, or one is there twice.

    Examples
    --------
    >>> read_sides("np.log(a) + b ~ (1|p)")
    (['np.log(a)', 'b'], ' (1|p)')
    """
    if not isinstance(formula, str):
        raise FormulaError(
            "the formula is text such as 'verbal + maths ~ (1|p) + (1|i)' and comes first, not "
            f"{type(formula).__name__}"
        )
    before, tilde, after = formula.partition("~")
    right = after if tilde else before
    if responses is None:
        if not tilde or not before.strip():
            raise FormulaError(
                "the formula needs the dependent variables on the left of ~, or their columns in "
                f"responses=: 'verbal + maths ~ {right.strip()}'"
            )
        return _summands(before), right
    listed = isinstance(responses, Iterable) and not isinstance(responses, str)
    if not listed or not all(isinstance(name, str) for name in responses):
        raise FormulaError(f"responses are a list of columns, not {responses!r}")
    if tilde and before.strip():
        raise FormulaError("the responses are given twice, in the formula and in responses=")
    plain = [name if name.isidentifier() else f"Q({name!r})" for name in responses]
    if not plain:
        raise FormulaError("responses= is empty; it lists the columns of the dependent variables")
    return _distinct(plain), right


def _summands(text: str) -> list[str]:
    """Return the expressions that a sum adds up, as they are written."""
    text = text.strip()
    try:
        tree: ast.expr = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise FormulaError(
            f"cannot read the left of the formula, {text!r}; it is a sum of columns or "
            "expressions, such as verbal + maths"
        ) from None
    found: list[str] = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add):
        found.append(ast.get_source_segment(text, tree.right) or "")
        tree = tree.left
    found.append(ast.get_source_segment(text, tree) or "")
    return _distinct(found[::-1])


def _distinct(names: list[str]) -> list[str]:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise FormulaError(f"the response {twice[0]!r} is there twice")
    return names


def plain_name(code: str) -> str:
    """Return the column that ``Q("…")`` names; another expression as it is.

    Examples
    --------
    >>> plain_name("Q('a b')")
    'a b'
    """
    names = names_in(code)
    quoted = len(names) == 1 and code.strip() in (f"Q({names[0]!r})", f'Q("{names[0]}")')
    return names[0] if quoted else code.strip()
