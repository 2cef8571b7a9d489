"""Formulas of R, SAS, Stata and statsmodels: how the same is written here.

Nothing is guessed. Names in backticks are columns; whatever else has another meaning in Python, or
none, is refused with what to write.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Sequence

import numpy as np

from vcomp.exceptions import DataError, FormulaError

_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""

_QUOTED = re.compile(_TEXT)

_NAMES = re.compile(rf"(?:{_TEXT})|`(?P<name>[^`]+)`|\bQ\(\s*(?P<bare>[^'\"()]+?)\s*\)")

FUNCTIONS = {
    "factor": "C({args})",
    "as.factor": "C({args})",
    "ordered": "C({args})",
    "as.character": "C({args})",
    "relevel": "C(g, Treatment('the first level'))",
    "as.numeric": "the column itself, or I(g.astype(float))",
    "interaction": "a:b",
    "poly": "x + I(x**2)",
    "ns": "cr(x, df=3)",
    "ln": "np.log({args})",
    "logit": "np.log(p / (1 - p))",
    "mean": "np.mean({args})",
    "cut": "data.assign(x=pandas.cut(data['x'], 3)) first",
    "lag": "data.assign(x=data['x'].shift()) first",
    "lead": "data.assign(x=data['x'].shift(-1)) first",
}
"""What stands for functions of other languages."""

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


def in_python(text: str) -> str:
    """Return a formula with names in backticks, and those in ``Q()``, quoted as Python's text.

    Examples
    --------
    >>> in_python("`yield` ~ `x` + (1|Q(Part No))")
    "Q('yield') ~ x + (1|Q('Part No'))"
    """
    if "`" not in text and "Q(" not in text:
        return text

    def written(found: re.Match[str]) -> str:
        if found["name"] is not None:
            return quoted(found["name"])
        bare = found["bare"]
        # A name that Python can read may be that of a variable with the column's name.
        return found[0] if bare is None or quoted(bare) == bare else quoted(bare)

    return _NAMES.sub(written, text)


def refuse_foreign(text: str) -> None:
    """Refuse what is written in another language, with the same in this one.

    Raises
    ------
    FormulaError
    """
    bare = _QUOTED.sub(lambda m: "'" * len(m[0]), text)
    translated = _translated(bare, text)
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
    "[[": "a column is named alone, without its frame: g, with data=d, for d[['g']]",
}


def _translated(bare: str, text: str) -> str:
    """Return what a statement of SAS or Stata, or an arrow or = for ~, is here; else nothing."""
    if "~" in bare and not re.search(r"\|\|\s*\w+\s*:", bare):
        return ""
    words = " ".join(text.replace(";", " ; ").replace("~", " ").split())
    model = re.search(r"\bmodel (\S+) ?= ?([^;/]*)", words, re.IGNORECASE)
    random = [
        term
        for found in re.finditer(r"\brandom ([^;/]*)", words, re.IGNORECASE)
        for term in _sas_terms(found[1])
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
    """Return what to write for an expression that Python cannot read; empty if that is unknown.

    Examples
    --------
    >>> unreadable("Part No")
    "a column of this name is written Q('Part No'), or `Part No`"
    >>> unreadable("C(class)")
    "write C(Q('class'))"
    """
    called = re.match(r"([\w.]+)\((.*)\)$", code, re.DOTALL)
    if called and called[1] in FUNCTIONS:
        return "write " + FUNCTIONS[called[1]].format(args=called[2])
    if called and called[1] in RANDOM:
        return f"a random term is written (1|{called[2]})"
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


def unknown_call(function: str, arguments: str, columns: Sequence[str]) -> str | None:
    """Return what to write for a call of a function that is not known here.

    Parameters
    ----------
    function, arguments : of the call, as text
    columns : of the data
    """
    if function in FUNCTIONS:
        return f"write {FUNCTIONS[function].format(args=arguments)}"
    if function == "offset":
        return f"subtract it from the response, as in I(y - {arguments}) ~ …"
    if function in ("weights", "weight"):
        return "weights are not supported: every row counts alike"
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
            case ast.Call(func=ast.Name(id=function), args=args) if function == name:
                arguments = ", ".join(map(ast.unparse, args))
                advice = unknown_call(name, arguments, columns)
                advice = advice or "define it where fit is called, or compute a column first"
                return FormulaError(f"there is no function {name!r}: {advice}")
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
