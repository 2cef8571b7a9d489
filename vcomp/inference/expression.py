"""Quantities from text, such as ``"sys / (sys + Residual/50)"``, and from functions.

A text is turned into ``Quantities``, a function of the components into ``Smooth``; both have
intervals from any interval source. :class:`EstimatedQuantity` prints what was estimated.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError, did_you_mean
from vcomp.formula import EffectMatrix
from vcomp.inference.quantities import Form, Quantities, Smooth

if TYPE_CHECKING:
    import pandas as pd

_FUNCTIONS = ("sqrt", "sd", "var", "cov", "share")


def _else(names: Sequence[str]) -> str:
    """Return the advice on quantities that no text describes, with a component of the fit."""
    name = names[0] if names else "sys"
    return f"write anything else as a function of the components, such as lambda v: v[{name!r}]**2"


@dataclass(frozen=True, slots=True)
class _Value:
    """A number (if `a` is None), or a form of the components."""

    form: Form = "linear"
    a: FloatArray | None = None
    b: FloatArray | None = None
    number: float = math.nan


def read_quantity(text: str, names: Sequence[str], others: Sequence[str] = ()) -> Quantities:
    """Return the quantity that a text describes.

    Parameters
    ----------
    text : sums of components with numbers as factors, a ratio of two such sums, or a square root
        of one; ``total`` is the sum of all components, ``sd(x)`` is ``sqrt(x)``, ``share(x)`` is
        ``x / total``, ``var(x)`` and ``cov(x)`` are ``x``
    names : of the components
    others : further names that the caller understands, for messages

    Raises
    ------
    EstimationError
        If the text is not of that form, or names an unknown component.

    Examples
    --------
    >>> q = read_quantity("sys / (sys + Residual/50)", ["sys", "topic", "Residual"])
    >>> q.form, q.a, q.b
    ('share', array([[1., 0., 0.]]), array([[0.  , 0.  , 0.02]]))
    """
    try:
        value = _value_of(text, names, others)
    except (RecursionError, MemoryError, OverflowError):  # Python's parser ends in either
        raise EstimationError(
            f"the quantity is too long or too deeply nested to be read: it has {len(text):,} "
            f"characters and begins {text[:60]!r}; {_else(names)}"
        ) from None
    if value.a is None:
        raise EstimationError(f"{text!r} contains no component; components are {', '.join(names)}")
    rows = [None if w is None else w[None, :] for w in (value.a, value.b)]
    assert rows[0] is not None
    return Quantities(value.form, rows[0], rows[1])


def _value_of(text: str, names: Sequence[str], others: Sequence[str]) -> _Value:
    """Return the number or form that a text describes."""
    coded = _coded(text, names)
    try:
        tree = ast.parse(coded, mode="eval").body
    except (SyntaxError, ValueError):  # a null character, a number of very many digits
        raise EstimationError(
            f"cannot read {text!r}; a quantity is a component ({', '.join(names)}), a sum or "
            f"ratio of them, or a name such as 'Erho2'; {_else(names)}"
        ) from None
    return _QuantityReader(text, tuple(names), tuple(others)).read(tree)


def _coded(text: str, names: Sequence[str]) -> str:
    """Return the text with components as ``_0_``, ``_1_``: their names need not be Python's."""
    longest = sorted(range(len(names)), key=lambda k: -len(names[k]))
    alternatives = "|".join(f"(?P<n{k}>{re.escape(names[k])})" for k in longest)
    pattern = re.compile(rf"`?(?<![\w:.])(?:{alternatives})(?![\w:.])`?")

    def code(match: re.Match[str]) -> str:
        assert match.lastgroup is not None
        return f"_{match.lastgroup[1:]}_"

    return pattern.sub(code, text.strip())


@dataclass(frozen=True, slots=True)
class _QuantityReader:
    """Reads Python's syntax tree of a quantity."""

    text: str
    names: tuple[str, ...]
    others: tuple[str, ...]

    def read(self, node: ast.expr) -> _Value:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return _Value(number=float(node.value))
        if isinstance(node, ast.Name):
            return self._component(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
            return self._times(_Value(number=sign), self.read(node.operand))
        if isinstance(node, ast.BinOp):
            return self._operation(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node)
        raise self._refusal("only +, -, *, / and sqrt of components are allowed")

    def _component(self, name: str) -> _Value:
        match = re.fullmatch(r"_(\d+)_", name)
        if match:
            return _Value("linear", np.eye(len(self.names))[int(match[1])])
        if name == "total":
            return _Value("linear", np.ones(len(self.names)))
        known = [*self.names, "total", *self.others]
        raise EstimationError(
            f"{name!r} is not a component or quantity{did_you_mean(name, known)}; components are "
            f"{', '.join(self.names)}, and quantities {', '.join(known[len(self.names) :])}",
            term=name,
        )

    def _operation(self, node: ast.BinOp) -> _Value:
        left, right = self.read(node.left), self.read(node.right)
        if isinstance(node.op, ast.Add | ast.Sub):
            sign = -1.0 if isinstance(node.op, ast.Sub) else 1.0
            return self._sum(left, self._times(_Value(number=sign), right))
        if isinstance(node.op, ast.Mult):
            return self._times(left, right)
        if isinstance(node.op, ast.Div):
            return self._ratio(left, right)
        raise self._refusal("only +, -, * and / are allowed")

    def _call(self, node: ast.Call) -> _Value:
        assert isinstance(node.func, ast.Name)
        if node.func.id not in _FUNCTIONS or len(node.args) != 1 or node.keywords:
            raise self._refusal(f"the functions are {', '.join(_FUNCTIONS)}, of one argument")
        inside = self.read(node.args[0])
        if inside.a is None or inside.form != "linear":
            raise self._refusal(f"the argument of {node.func.id} must be a sum of components")
        if node.func.id in ("var", "cov"):
            return inside
        if node.func.id == "share":
            return self._ratio(inside, self._component("total"))
        return _Value("root", inside.a)

    def _sum(self, left: _Value, right: _Value) -> _Value:
        if left.a is None and right.a is None:
            return _Value(number=left.number + right.number)
        if left.a is None or right.a is None or left.form != "linear" or right.form != "linear":
            raise self._refusal("only components can be added up, not numbers, ratios or roots")
        return _Value("linear", left.a + right.a)

    def _times(self, left: _Value, right: _Value) -> _Value:
        if left.a is None and right.a is None:
            return _Value(number=left.number * right.number)
        number, form = (left, right) if left.a is None else (right, left)
        if number.a is not None:
            raise self._refusal("components can be multiplied by numbers only")
        assert form.a is not None
        if form.form == "linear":
            return _Value("linear", number.number * form.a)
        if form.form == "root" and number.number > 0.0:
            return _Value("root", number.number**2 * form.a)
        if form.form in ("ratio", "share"):
            assert form.b is not None
            whole = form.b + form.a if form.form == "share" else form.b
            return _Value("ratio", number.number * form.a, whole)
        raise self._refusal("roots can be multiplied by positive numbers only")

    def _ratio(self, left: _Value, right: _Value) -> _Value:
        if right.a is None:
            if right.number == 0.0:
                raise self._refusal("it divides by zero")
            return self._times(_Value(number=1.0 / right.number), left)
        if left.a is None or left.form != "linear" or right.form != "linear":
            raise self._refusal("a ratio must be one of two sums of components")
        rest = right.a - left.a
        if (rest >= 0.0).all() and (left.a >= 0.0).all():
            return _Value("share", left.a, rest)
        return _Value("ratio", left.a, right.a)

    def _refusal(self, why: str) -> EstimationError:
        return EstimationError(
            f"cannot read {self.text!r} as a quantity: {why}; components are "
            f"{', '.join(self.names)}; {_else(self.names)}"
        )


_SINGULAR = 1e-12
"""Distance of a correlation from ±1 that is rounding error: it has no derivatives there."""


def read_correlation(
    text: str, names: Sequence[str], matrices: Sequence[EffectMatrix]
) -> Smooth | None:
    """Return the correlation that ``corr(…)`` of a covariance describes; None for other texts.

    Parameters
    ----------
    text : such as ``"corr(g[(Intercept),x])"``
    names : of the components
    matrices : positions of the variances and covariances of random slopes among them

    Raises
    ------
    EstimationError
        If the argument is no covariance of random slopes.
    """
    found = re.fullmatch(r"\s*corr\((.*)\)\s*", text)
    if found is None:
        return None
    name, known = found[1].strip(), {}
    for matrix in matrices:
        for i, j in combinations(range(len(matrix.places)), 2):
            at = matrix.places[i][j], matrix.places[i][i], matrix.places[j][j]
            known[names[at[0]]] = at
    if name not in known:
        raise EstimationError(
            f"corr() is of a covariance of random slopes, not of {name!r}"
            f"{did_you_mean(name, known)}; covariances are {', '.join(known) or 'none'}",
            term=name,
        )
    return _correlation(*known[name])


def _correlation(place: int, first: int, second: int) -> Smooth:
    """Return the correlation of two effects from the places of covariance and variances."""

    def value(v: FloatArray, beta: FloatArray) -> float:
        product = v[first] * v[second]
        return float(np.clip(v[place] / math.sqrt(product), -1.0, 1.0)) if product > 0.0 else 0.0

    def slopes(v: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        found, correlation = np.zeros_like(v), value(v, beta)
        product = v[first] * v[second]
        if not product > 0.0 or abs(correlation) >= 1.0 - _SINGULAR:
            return np.full_like(v, np.nan), np.zeros_like(beta)
        found[place] = 1.0 / math.sqrt(product)
        found[first], found[second] = (-0.5 * correlation / v[t] for t in (first, second))
        return found, np.zeros_like(beta)

    return Smooth(value, slopes, "correlation")


_STEP = 1e-30
"""Length of a complex step, which can be tiny as no difference is computed."""

_AGREE = 1e-3
"""Relative difference from central differences above which complex steps are rejected: they are
wrong for functions that are not analytic, such as absolute values."""


def smooth_of(function: Callable[[pd.Series], Any], names: Sequence[str]) -> Smooth:
    """Return the quantity that a function of a Series of components computes.

    Its gradient is computed by complex steps, exact up to rounding; by central differences if the
    function does not accept complex numbers (``max``, ``math.sqrt``) or is not analytic (``abs``).

    Parameters
    ----------
    function : of a Series of the components by name; returns one number
    names : of the components, the residual last

    Examples
    --------
    >>> q = smooth_of(lambda v: v["sys"] / v["Residual"] ** 2, ["sys", "Residual"])
    >>> q.slopes(np.array([3.0, 2.0]), np.zeros(0))[0]
    array([ 0.25, -0.75])
    """
    import pandas as pd

    def at(v: Any) -> Any:
        try:
            return function(pd.Series(v, index=list(names)))
        except KeyError as error:
            raise EstimationError(
                f"the function uses component {error}, which does not exist; components are "
                f"{', '.join(names)}",
                term=error.args[0],
            ) from None

    def value(v: FloatArray, beta: FloatArray) -> float:
        found = at(v)
        try:
            return float(found)
        except (TypeError, ValueError):
            raise EstimationError(
                f"the function must return one number, not {type(found).__name__}"
            ) from None

    def slopes(v: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        return _gradient(at, v), np.zeros_like(beta)

    return Smooth(value, slopes)


def _gradient(at: Callable[[Any], Any], v: FloatArray) -> FloatArray:
    differences = np.array([_central(at, v, j) for j in range(v.size)])
    try:
        with warnings.catch_warnings():
            # A lost imaginary part is detected below.
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            steps = np.array([_complex_step(at, v, j) for j in range(v.size)])
    except (TypeError, ValueError, AttributeError):
        return differences
    size = np.abs(differences).max(initial=0.0)
    close = np.allclose(steps, differences, rtol=_AGREE, atol=_AGREE * size)
    return steps if close else differences


def _complex_step(at: Callable[[Any], Any], v: FloatArray, j: int) -> float:
    moved = v.astype(complex)
    moved[j] += 1j * _STEP
    return float(complex(at(moved)).imag / _STEP)


def _central(at: Callable[[Any], Any], v: FloatArray, j: int) -> float:
    h = 1e-5 * (abs(v[j]) or np.abs(v).max() or 1.0)
    ends = []
    for sign in (1.0, -1.0):
        moved = v.copy()
        moved[j] += sign * h
        ends.append(float(at(moved)))
    return float((ends[0] - ends[1]) / (2.0 * h))


@dataclass(frozen=True, slots=True)
class EstimatedQuantity(display.PrintsAsSentence):
    """The estimate of one quantity with its standard error and interval.

    Attributes
    ----------
    name : of the quantity, as requested
    estimate : its value at the estimated components
    se : standard error by the delta method; nan if there is none
    low, high : ends of the interval; nan if there is none, infinite if it is open
    alpha : the interval has confidence 1 − alpha
    interval_method : name of the method in words
    notes : remarks on the interval, clauses without a full stop

    Examples
    --------
    >>> print(EstimatedQuantity("sys", 0.5, 0.1, 0.3, 0.8, 0.05, "Wald"))
    sys = 0.5 (standard error 0.1), 95 % interval [0.3, 0.8] by Wald
    """

    name: str
    estimate: float
    se: float
    low: float
    high: float
    alpha: float
    interval_method: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.name} = {display.number(self.estimate)}"
        if not math.isnan(self.se):
            text += f" (standard error {display.number(self.se, 3)})"
        if math.isnan(self.low) or math.isnan(self.high):
            text += ", no interval"
        else:
            ends = f"[{display.number(self.low, 3)}, {display.number(self.high, 3)}]"
            text += f", {display.level(self.alpha)} interval {ends} by {self.interval_method}"
        notes = (*self.notes, display.NO_LIMIT) if math.isinf(self.high) else self.notes
        return "; ".join([text, *notes])
