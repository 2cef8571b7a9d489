"""Small changes of a function's source: one operator, comparison, constant or boundary each.

A mutant is named by its module, its function and the two forms of the changed expression, so that
its name survives edits elsewhere in the file. Annotations, defaults, docstrings, texts, and what
is raised or asserted stay as they are. So do six kinds of expressions:

- estimates of time, which are arithmetic with a number named in seconds, and all that is inside a
  function or property named ``seconds`` or ending in ``_seconds``, but ``with_…``, which sets what
  was measured: they decide which of two ways to the same result is chosen. A comparison of two
  times is turned round but not moved, as no two are exactly equal;
- tolerances, which are constants below `TOLERANCE`: they are not doubled, and a comparison with
  one is turned round but not moved to include or exclude it, as no result is exactly so small; nor
  is one with a constant below `SMALL`;
- limits that a module names for itself, as ``_MOST_CELLS``, or that are a field of ``limits``: a
  comparison with one is turned round but not moved, as the number is chosen and what is exactly as
  large may go either way;
- the size -1 in ``reshape``, as numpy takes any negative number for the unknown size;
- the argument ``prepend=-1`` of ``np.diff``, as any negative number before codes, which are not
  negative, begins the first group;
- arguments that save numpy, scipy and pandas time or memory, as ``overwrite_b=True``.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""Comparisons: a boundary moved by one value, and the opposite."""

_LIMIT = re.compile(r"_[A-Z][A-Z_]+|(FEW|MANY)_ROWS|THREADS|(\w+\.)*_?(limits\.\w+|dense_below)")
"""A module's own constants, those by which loops are compiled or shared, and fields of limits."""

_ESTIMATE = re.compile(r"(?!with_)(\w*_)?seconds")
"""Names of functions whose result is an estimate of time."""

_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

COMBINED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}

TOLERANCE = 1e-6
"""Positive constants below it, in a function or of its module, are tolerances."""

SMALL = 0.01
"""No result is exactly as large as a positive constant below it."""

UNCHANGED = (
    *(f"strict={on}" for on in (True, False)),  # of zip, an assertion
    "check_finite=False",
    "copy=False",
    "optimize=True",
    "overwrite=True",
    "prepend=-1",  # of np.diff: any negative number differs from the first code
    *(f"overwrite_{x}={on}" for x in "abc" for on in (True, 1)),
)
"""Arguments that assert, save time or memory, or of which only the sign matters."""

SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one expression.

    Attributes
    ----------
    module : dotted name
    function : qualified name in the module
    before, after : the expression as source
    number : counts equal changes in one function
    line : of the expression in the file as it is
    compiled : whether numba compiles the function
    """

    module: str
    function: str
    before: str
    after: str
    number: int
    line: int
    compiled: bool

    @property
    def name(self) -> str:
        """The name, without the line."""
        again = f" #{self.number + 1}" if self.number else ""
        return f"{self.module}:{self.function}: {self.before} -> {self.after}{again}"


def mutants_of(module: str, path: Path) -> list[Mutant]:
    """Return the mutants of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    small = _tolerances(tree)
    found: list[Mutant] = []
    seen: dict[tuple[str, str, str], int] = {}
    for function, definition in functions_of(tree):
        for node in _nodes(definition):
            for after in _changes(node, small):
                key = (function, _shown(node), _shown(after))
                number = seen.get(key, 0)
                seen[key] = number + 1
                compiled = any("jit" in _shown(mark) for mark in definition.decorator_list)
                found.append(Mutant(module, *key, number, node.lineno, compiled))
    return found


def code_of(mutant: Mutant, path: Path) -> CodeType:
    """Return the code of the mutant's function, compiled with the change."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    small = _tolerances(tree)
    left = mutant.number
    for function, definition in functions_of(tree):
        if function != mutant.function:
            continue
        for place, node in enumerate(_nodes(definition)):
            for after in _changes(node, small):
                if (_shown(node), _shown(after)) != (mutant.before, mutant.after):
                    continue
                if left == 0:
                    _replace(definition, place, after)
                    whole = compile(ast.fix_missing_locations(tree), str(path), "exec")
                    return _found(whole, mutant.function)
                left -= 1
    raise LookupError(f"there is no such mutant: {mutant.name}")


def announcing(module: str, path: Path) -> dict[str, CodeType]:
    """Return the code of every function, which first calls ``__entered__`` with its name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = dict(functions_of(tree))
    for function, definition in functions.items():
        call = ast.parse(f"__entered__({module + ':' + function!r})").body
        definition.body[:0] = call
    whole = compile(ast.fix_missing_locations(tree), str(path), "exec")
    return {function: _found(whole, function) for function in functions}


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions of a module and the methods of its classes, by qualified name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and not _is_stub(inner):
                    yield f"{node.name}.{inner.name}", inner


def _is_stub(definition: ast.FunctionDef) -> bool:
    last = definition.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant)


def _nodes(definition: ast.FunctionDef) -> Iterator[ast.expr | ast.AugAssign]:
    """Yield what may be changed in a function, always in the same order."""
    if _ESTIMATE.fullmatch(definition.name):
        return
    for statement in definition.body:
        yield from _below(statement)


def _below(node: ast.AST) -> Iterator[ast.expr | ast.AugAssign]:
    if isinstance(node, SKIPPED) or (isinstance(node, ast.Expr) and _is_warning(node.value)):
        return
    if isinstance(node, ast.keyword) and ast.unparse(node) in UNCHANGED:
        return
    if isinstance(node, ast.BinOp) and _is_time(node):
        return
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "reshape":
        sizes = [a for b in node.args for a in (b.elts if isinstance(b, ast.Tuple) else [b])]
        yield node
        for inner in (node.func, *(a for a in sizes if not _is_unknown_size(a)), *node.keywords):
            yield from _below(inner)
        return
    if isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield from _below(node.value)
        return
    if isinstance(node, ast.expr | ast.AugAssign):
        yield node
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        body = node.body if isinstance(node.body, list) else [node.body]
        for inner in body:
            yield from _below(inner)
        return
    for inner in ast.iter_child_nodes(node):
        yield from _below(inner)


def _is_warning(value: ast.expr) -> bool:
    of = value.func if isinstance(value, ast.Call) else None
    return isinstance(value, ast.Constant) or (isinstance(of, ast.Name) and of.id == "warn")


def _is_unknown_size(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and ast.unparse(node) == "-1"


def _is_time(node: ast.expr) -> bool:
    """Return whether an expression has a number that is named in seconds."""
    named = (getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node))
    return any("seconds" in name.lower() for name in named)


def _tolerances(tree: ast.Module) -> set[str]:
    """Return the names of a module's constants that are tolerances."""
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_tolerance(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_tolerance(node: ast.AST, small: set[str], least: float = TOLERANCE) -> bool:
    """Return whether a node is a constant below `least`, or the name of one."""
    if isinstance(node, ast.Name):
        return node.id in small
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, float) and 0.0 < value < least


def _is_fixed(sides: list[ast.expr], small: set[str]) -> bool:
    """Return whether a comparison is not moved: with what is chosen, or of two times."""
    times = any(map(_is_time, sides)) and not any(isinstance(s, ast.Constant) for s in sides)
    return times or any(_is_chosen(side, small) for side in sides)


def _is_chosen(node: ast.AST, small: set[str]) -> bool:
    """Return whether a node is a small constant, or has a limit that is chosen."""
    parts = (ast.unparse(p) for p in ast.walk(node) if isinstance(p, ast.Name | ast.Attribute))
    return _is_tolerance(node, small, SMALL) or any(_LIMIT.fullmatch(part) for part in parts)


def _changes(
    node: ast.expr | ast.AugAssign, small: set[str]
) -> Iterator[ast.expr | ast.AugAssign]:
    """Yield the changed forms of a node; some names stand for tolerances."""
    if _is_tolerance(node, small):
        return
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for k, op in enumerate(node.ops):
            is_order = isinstance(op, _ORDER)
            for other in COMPARED[type(op)][is_order and _is_fixed(sides[k : k + 2], small) :]:
                changed = copy.deepcopy(node)
                changed.ops[k] = other()
                yield changed
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        if type(node.op) in COMBINED:
            changed = copy.deepcopy(node)
            changed.op = COMBINED[type(node.op)]()
            yield changed
    elif isinstance(node, ast.UnaryOp):
        if not isinstance(node.operand, ast.Constant):
            yield copy.deepcopy(node.operand)
    elif isinstance(node, ast.BoolOp):
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield changed
    elif isinstance(node, ast.Constant):
        for value in _other_values(node.value):
            yield ast.copy_location(ast.Constant(value), node)


def _other_values(value: object) -> tuple[object, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1,)
    if isinstance(value, float):
        return (1.0,) if value == 0.0 else (2.0 * value,)
    return ()


def _shown(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


class _Replacement(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def _replace(definition: ast.FunctionDef, place: int, after: ast.AST) -> None:
    for k, node in enumerate(_nodes(definition)):
        if k == place:
            _Replacement(node, ast.copy_location(after, node)).visit(definition)
            return


def _found(code: CodeType, function: str) -> CodeType:
    """Return the code of a function inside that of its module."""
    for part in function.split("."):
        inner = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part]
        code = inner[-1]
    return code
