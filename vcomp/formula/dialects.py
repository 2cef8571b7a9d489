"""Formulas of R, SAS, Stata and statsmodels, with their equivalents here.

Nothing is guessed. Names in backticks are columns; whatever else has another meaning in Python, or
none, is refused with what to write.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vcomp.exceptions import DataError, FormulaError

_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""

_QUOTED = re.compile(_TEXT)

_FOREIGN = re.compile(
    rf"(?:{_TEXT})|`(?P<name>[^`]+)`|\bQ\(\s*(?P<bare>[^'\"()]+?)\s*\)"
    r"|(?P<factor>(?<![\w.])(?:as\.)?factor\()|(?P<power>\^(?=\s*\d))"
    r"|(?<![\w.])(?P<constant>TRUE|FALSE|NULL)(?![\w.])"
)

_CONSTANTS = {"TRUE": "True", "FALSE": "False", "NULL": "None"}
"""Constants of R."""

_NUMERICAL = ("log", "log2", "log10", "log1p", "exp", "expm1", "sqrt")


class _InPython(ast.NodeTransformer):
    """Writes vectors and logarithms of R as Python's."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name):
            name = {"ln": "log"}.get(node.func.id, node.func.id)
            if name == "c":
                return ast.List(node.args, ast.Load())
            if name in _NUMERICAL:
                node.func = ast.Attribute(ast.Name("np", ast.Load()), name, ast.Load())
        return node


def _parsed(code: str) -> Any:
    """Return the tree of an expression, as Python's."""
    return _InPython().visit(ast.parse(code.strip(), mode="eval")).body


def _operand(node: ast.expr) -> str:
    """Return the text of an expression, in brackets if it has an operator."""
    simple = isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript | ast.Constant)
    return ast.unparse(node) if simple else f"({ast.unparse(node)})"


def _argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """Return an argument that is given by place or by name."""
    if len(call.args) > place:
        return call.args[place]
    return next((k.value for k in call.keywords if k.arg == name), None)


def _number(node: ast.expr | None) -> int | None:
    """Return a whole number that is written out."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) else None


def _natural_spline(call: ast.Call) -> str:
    x, knots = ast.unparse(call.args[0]), _argument(call, 2, "knots")
    if knots is not None:
        return f"cr({x}, knots={ast.unparse(knots)}, constraints='center')"
    # The intercept is that of the formula, and takes one of the degrees of freedom.
    given = _number(_argument(call, 1, "df")) or 1
    df = given - bool(_number(_argument(call, 3, "intercept")))
    return f"cr({x}, df={df}, constraints='center')" if df > 1 else x


def _ordered(call: ast.Call) -> str:
    levels = _argument(call, 1, "levels")
    chosen = "" if levels is None else f", levels={ast.unparse(levels)}"
    return f"C({ast.unparse(call.args[0])}, Poly{chosen})"


def _releveled(call: ast.Call) -> str:
    g, first = call.args[0], _argument(call, 1, "ref")
    if isinstance(g, ast.Call) and g.args and ast.unparse(g.func) == "C":
        g = g.args[0]
    level = "'the first level'" if first is None else ast.unparse(first)
    return f"C({ast.unparse(g)}, Treatment({level}))"


def _column_first(call: ast.Call, suffix: str, code: str) -> str:
    """Return how a column is made of another, under a name of its own."""
    x = call.args[0]
    if not isinstance(x, ast.Name):
        return f"a column of it first, by pandas: {code.format(x='x')}"
    column = f"{x.id}_{suffix}"
    source = f"data[{x.id!r}]"
    return f"{column}, with data.assign({column}={code.format(x=source)}) as the data"


class _OfData(ast.NodeTransformer):
    """Writes columns as those of a frame ``data``."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node:
            case ast.Call(func=ast.Name(id="Q"), args=[ast.Constant() as name]):
                return ast.Subscript(ast.Name("data", ast.Load()), name, ast.Load())
            case ast.Call(func=ast.Name(id="I"), args=[inner]):
                return self.visit(inner)
            case ast.Call(func=ast.Name(id=name)) if not is_facet(name):
                node.func = ast.Attribute(ast.Name("np", ast.Load()), name, ast.Load())
        if isinstance(node.func, ast.Name):
            node.args = [self.visit(inner) for inner in node.args]
            return node
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "np":
            return node
        return ast.Subscript(ast.Name("data", ast.Load()), ast.Constant(node.id), ast.Load())


def is_facet(name: str) -> bool:
    """Return whether ``name(g)`` may be levels of a facet within those of g, as SAS writes them.

    Examples
    --------
    >>> is_facet("rater"), is_facet("Q"), is_facet("log")
    (True, False, False)
    """
    of_numbers = name == "round" or isinstance(getattr(np, name, None), np.ufunc)
    return name not in ("Q", "C", "I", *FUNCTIONS) and not of_numbers


_BY_ROW = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Attribute, ast.Name, ast.Constant)
"""Expressions whose values are those of columns, row by row."""


def column_of(expression: ast.expr) -> str:
    """Return a random term of the values of an expression, and how their column is made.

    Examples
    --------
    >>> print(column_of(_parsed("log(x) > 1")))
    (1|log_x_1), with data.assign(log_x_1=np.log(data['x']) > 1) as the data
    """
    inner = [node for node in ast.walk(expression) if isinstance(node, ast.expr)]
    if not all(isinstance(node, _BY_ROW) for node in inner) or not _named_in(expression):
        return "those of a column: compute it first"
    if isinstance(expression, ast.Call) and ast.unparse(expression.func) in FUNCTIONS:
        name, made = FUNCTIONS[ast.unparse(expression.func)](expression).partition(", ")[::2]
        if made.startswith("with "):
            return f"(1|{name}), {made}"
    words = re.findall(r"\w+", ast.unparse(expression))
    name = "_".join(word for word in words if word not in ("I", "Q", "np"))
    name = name if name.isidentifier() else f"of_{name}"
    made = ast.unparse(_OfData().visit(_InPython().visit(expression)))
    return f"(1|{name}), with data.assign({name}={made}) as the data"


def _named_in(expression: ast.expr) -> bool:
    """Return whether an expression has a column."""
    called = {id(node.func) for node in ast.walk(expression) if isinstance(node, ast.Call)}
    return any(
        (isinstance(node, ast.Name) and id(node) not in called)
        or (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "Q"
            and isinstance(node.args[0], ast.Constant)
        )
        for node in ast.walk(expression)
    )


def _cut(call: ast.Call) -> str:
    breaks = _argument(call, 1, "breaks")
    number = "3" if breaks is None else ast.unparse(breaks)
    return _column_first(call, "cut", f"pandas.cut({{x}}, {number})")


def _lag(call: ast.Call, sign: str = "") -> str:
    n = _argument(call, 1, "n")
    steps = sign + ("1" if n is None else _operand(n))
    return _column_first(call, "lead" if sign else "lag", f"{{x}}.shift({steps})")


def _all(template: str) -> Callable[[ast.Call], str]:
    """Return a function that writes the arguments into a template."""
    return lambda call: template.format(
        args=", ".join(map(ast.unparse, [*call.args, *call.keywords]))
    )


FUNCTIONS: Mapping[str, Callable[[ast.Call], str]] = {
    "ordered": _ordered,
    "as.ordered": _ordered,
    "as.character": _all("C({args})"),
    "relevel": _releveled,
    **dict.fromkeys(
        ("as.numeric", "as.integer", "as.double"), _all("{args}, or I({args}.astype(float))")
    ),
    "interaction": lambda call: ":".join(f"C({ast.unparse(one)})" for one in call.args),
    "ns": _natural_spline,
    "c": _all("[{args}]"),
    "ln": _all("np.log({args})"),
    "logit": lambda call: "np.log({0} / (1 - {0}))".format(_operand(call.args[0])),
    "mean": _all("np.mean({args})"),
    "pmax": _all("np.maximum({args})"),
    "pmin": _all("np.minimum({args})"),
    "ifelse": _all("np.where({args})"),
    "cut": _cut,
    "lag": _lag,
    "lead": lambda call: _lag(call, "-"),
}
"""Equivalents of functions of other languages."""


def _in_place(function: str, arguments: str) -> str:
    """Return the equivalent of a call of a function of another language."""
    words = [word.strip() for word in arguments.split(",")]
    try:
        call = _parsed(f"f({arguments})")
    except SyntaxError:
        if not all(map(_is_words, words)):
            return ""
        call = _parsed(f"f({', '.join(map(quoted, words))})")
    return f"write {FUNCTIONS[function](call)}" if call.args else ""


NO_STRUCTURES = (
    "terms with a covariance structure and smooth terms are not supported; a random intercept is "
    "written (1|g), a spline bs(x, df=4)"
)

STRUCTURES = ("us", "diag", "cs", "ar1", "ou", "exp_cov", "toep", "gr", "mm", "s", "f", "t2", "te")
"""Functions of other libraries for terms with a covariance structure, and smooth terms."""

RANDOM = ("random", "Error", "re", "RE", "rand", "ranef")
"""Functions that other libraries have for random terms."""


def quoted(name: str) -> str:
    """Return a column as a formula names it: ``x``, ``Q('Part No')``.

    Examples
    --------
    >>> quoted("x"), quoted("class")
    ('x', "Q('class')")
    """
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"Q({name!r})"


def in_formula(groups: str | Iterable[str]) -> str:
    """Return groups as a random term names them: ``day:Q('Part No')``.

    Parameters
    ----------
    groups : facets, or the name of a component, which joins them by colons

    Examples
    --------
    >>> in_formula("day:Part No")
    "day:Q('Part No')"
    """
    facets = groups.split(":") if isinstance(groups, str) else groups
    return ":".join(map(quoted, facets))


def in_python(text: str) -> str:
    """Return a formula in Python's notation.

    Names in backticks, and those in ``Q()``, are quoted as text; ``factor()`` is patsy's ``C()``,
    and ``^`` before a number a power.

    Examples
    --------
    >>> in_python("`yield` ~ `x` + (1|Q(Part No))")
    "Q('yield') ~ x + (1|Q('Part No'))"
    >>> in_python("y ~ factor(g) + I(x^2) + as.factor(h)")
    'y ~ C(g) + I(x**2) + C(h)'
    """

    def written(found: re.Match[str]) -> str:
        kind, part = found.lastgroup, found[found.lastgroup or 0]
        match kind:
            case "name":
                return quoted(part)
            case "factor":
                return "C("
            case "power":
                return "**"
            case "constant":
                return _CONSTANTS[part]
            case "bare" if quoted(part) != part:
                return quoted(part)
        # A name that Python can read may be that of a variable with the column's name.
        return found[0]

    return _FOREIGN.sub(written, text)


def refuse_foreign(text: str) -> None:
    """Refuse the notation of another language, and show the equivalent.

    Raises
    ------
    FormulaError
    """
    bare = _QUOTED.sub(lambda m: "'" * len(m[0]), text)
    if "~" not in bare or re.search(r"\|\|\s*\w+\s*:", bare):
        translated = _translated(text)
        if translated:
            raise FormulaError(f"{text.strip()!r} is written {translated!r} here")
    without_bar = re.search(r"(?<!\w)\(\s*1\s*[/,!\\]\s*([^\W\d][\w.:]*)\s*\)", bare)
    if without_bar:
        raise FormulaError(f"a random term has a bar: (1|{without_bar[1]})\n\n    {text}")
    for sign, advice in _SIGNS.items():
        at = bare.find(sign)
        if at >= 0:
            raise FormulaError(f"{advice}\n\n    {text}\n    {' ' * at}{'^' * len(sign)}")


_SIGNS = {
    "^": "a power is written ** here: (a + b)**2, I(x**2)",
    "%in%": "a %in% b is written b:a here, as a random term (1|b:a)",
    "$": "a column is named alone, without its frame: g, with data=d, for d$g",
    "::": "a function is named without its package: ns(x, df=3) for splines::ns(x, df=3)",
    "[[": "a column is named alone, without its frame: g, with data=d, for d[['g']]",
}


def _translated(text: str) -> str:
    """Return the equivalent of a statement of SAS or Stata, or of an arrow or = for ~, if any."""
    words = " ".join(text.replace(";", " ; ").replace("~", " ").split())
    model = re.search(r"\bmodel (\S+) ?= ?([^;/]*)", words, re.IGNORECASE)
    random = [
        term
        for match in re.finditer(r"\brandom ([^;/]*)", words, re.IGNORECASE)
        for term in _sas_terms(match[1])
    ]
    if model:
        return _written(model[1], [t for t in _sas_terms(model[2]) if t], random)
    stata = re.fullmatch(r"(?:mixed |xtmixed )?(\w+)((?: [\w.#]+)*) ?\|\| ?(.*)", words)
    if stata:
        groups = [g.strip(" :") for g in stata[3].split("||") if g.strip(" :,")]
        nested = [":".join(groups[: k + 1]) for k in range(len(groups))]
        return _written(stata[1], [_stata_term(t) for t in stata[2].split()], nested)
    arrow = re.fullmatch(r"(\w+) ?(?:<-|=) ?(.+)", words)
    return f"{arrow[1]} ~ {arrow[2].partition('/ ')[0].strip()}" if arrow else ""


def _written(response: str, fixed: Sequence[str], random: Sequence[str]) -> str:
    terms = [*fixed, *(f"(1|{term})" for term in random)]
    return f"{response} ~ {' + '.join(terms) or '(1|g)'}"


def _sas_terms(text: str) -> list[str]:
    """Return ``["b:a", "c:d"]`` of ``a(b) c*d``."""
    terms = re.sub(r"\s*\*\s*", "*", text).replace("|", "*").split()
    return [re.sub(r"(\w+)\((\w+)\)", r"\2:\1", term).replace("*", ":") for term in terms]


def _stata_term(term: str) -> str:
    kind, dot, name = term.partition(".")
    if not dot:
        return term
    return f"C({name})" if kind == "i" else name


def unreadable(code: str) -> str:
    """Return advice on an expression that Python cannot read; empty if there is no advice.

    Examples
    --------
    >>> unreadable("Part No")
    "a column of this name is written Q('Part No'), or `Part No`"
    >>> unreadable("C(class)")
    "write C(Q('class'))"
    """
    called = re.match(r"([\w.]+)\((.*)\)$", code, re.DOTALL)
    if called and called[1] in FUNCTIONS:
        return _in_place(called[1], called[2])
    if called and called[1] in RANDOM:
        groups = re.sub(r"[^:/*+]+", lambda found: quoted(found[0].strip()), called[2])
        return f"a random term is written (1|{groups})"
    if called and all(_is_words(a.strip()) for a in called[2].split(",")):
        args = ", ".join(quoted(a.strip()) for a in called[2].split(","))
        return f"write {called[1]}({args})"
    if re.fullmatch(r"\d+ [A-Za-z_]\w*", code):
        code = code.replace(" ", "", 1)
    inner = code.strip("[]")
    if _is_words(inner):
        return f"a column of this name is written {quoted(inner)}, or `{inner}`"
    return ""


def _is_words(code: str) -> bool:
    return re.fullmatch(r"[^\W]\w*(?:[ .-]\w+)*", code) is not None


def unknown_call(function: str, arguments: str) -> str | None:
    """Return advice on a call of an unknown function.

    Parameters
    ----------
    function, arguments : of the call, as text
    """
    if function in FUNCTIONS:
        return _in_place(function, arguments) or None
    if function == "offset":
        return "an offset is a fixed term of one expression, as in y ~ x + offset(z) + (1|g)"
    if function in ("weights", "weight"):
        return f"weights are an option, not a term: fit(formula, data, weights={arguments!r})"
    if function == "cbind":
        return "fit one response at a time, or several by vcomp.fit_multivariate()"
    if function in RANDOM:
        return f"a random term is written (1|{arguments})"
    if function in STRUCTURES:
        return NO_STRUCTURES
    if hasattr(np, function):
        return f"write np.{function}({arguments})"
    return None


def absent_name(
    name: str, formula: str, columns: Sequence[str]
) -> DataError | FormulaError | None:
    """Return an error with what to write for a name that is used as other languages use it.

    Parameters
    ----------
    name : that is neither a column nor known where the formula was written
    formula : the expression in which it is used
    columns : of the data
    """
    for node in ast.walk(ast.parse(formula.strip(), mode="eval")):
        match node:
            case ast.Call(func=ast.Name(id=function)) if function == name or (
                name == "c" and function in FUNCTIONS
            ):
                arguments = ", ".join(map(ast.unparse, [*node.args, *node.keywords]))
                advice = unknown_call(function, arguments)
                advice = advice or "define it where fit is called, or compute a column first"
                return FormulaError(f"there is no function {function!r}: {advice}")
            case ast.Attribute(value=ast.Name(id=before), attr=attribute) if before == name:
                whole = f"{name}.{attribute}"
                if whole in columns:
                    return DataError(
                        f"column {whole!r} is written {quoted(whole)} in a formula", column=whole
                    )
                if name == "contr":
                    return FormulaError(f"{whole} is written C(g, Sum) or C(g, Treatment) here")
                if name in ("i", "c") and attribute in columns:
                    here = f"C({attribute})" if name == "i" else attribute
                    return FormulaError(f"{whole} is written {here} here")
    return None
