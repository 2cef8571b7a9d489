"""What a formula says: its terms, the names that it uses, and the matrices of its slopes.

A :class:`Formula` holds text and names alone, without data or patsy objects. Its text may use R's
functions, with R's arguments, and numpy's without an import. ``scale`` and ``poly`` depend on all
rows, which patsy passes to them in batches; new rows are transformed by the numbers of the fit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from numbers import Integral
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, EstimationError
from vcomp.formula.brennan import RESIDUAL
from vcomp.formula.dialects import in_formula


class _Standardisation:
    """R's ``scale``: the mean and the sum of squares are merged batch by batch."""

    def __init__(self) -> None:
        self.n, self.mean, self.squares = 0, np.zeros(()), np.zeros(())

    def memorize_chunk(self, x: Any, center: bool = True, scale: bool = True) -> None:
        x = np.asarray(x, dtype=float)
        if not len(x):
            return
        before, self.n = self.n, self.n + len(x)
        mean = x.mean(axis=0)
        shift = mean - self.mean
        self.squares = (
            self.squares + np.square(x - mean).sum(axis=0) + shift**2 * (before * len(x) / self.n)
        )
        self.mean = self.mean + shift * (len(x) / self.n)

    def memorize_finish(self) -> None:
        pass

    def transform(self, x: Any, center: bool = True, scale: bool = True) -> FloatArray:
        x = np.asarray(x, dtype=float) - (self.mean if center else 0.0)
        if not scale:
            return x
        squares = self.squares if center else self.squares + self.n * self.mean**2
        return x / np.sqrt(squares / (self.n - 1))


class _OrthogonalPolynomials:
    """R's ``poly``: orthonormal over the rows of the fit, by the three-term recurrence."""

    def __init__(self) -> None:
        self.parts: list[FloatArray] = []
        self.degree, self.centre = 1, 0.0
        self.shifts: list[float] = []
        self.squares: list[float] = []

    def memorize_chunk(self, x: Any, degree: int = 1, raw: bool = False) -> None:
        if not isinstance(degree, Integral) or degree < 1:
            raise ValueError(f"the degree of poly() must be a whole number from 1, not {degree!r}")
        self.parts.append(np.asarray(x, dtype=float))
        self.degree = int(degree)

    def memorize_finish(self) -> None:
        x, self.parts = np.concatenate(self.parts), []
        if np.unique(x).size <= self.degree:
            raise ValueError(f"poly() of degree {self.degree} needs more than as many values")
        self.centre = float(x.mean())
        x = x - self.centre
        for p in self._polynomials(x):
            self.squares.append(float(p @ p))
            self.shifts.append(float((x * p) @ p) / self.squares[-1])

    def _polynomials(self, x: FloatArray) -> Any:
        """Yield the polynomials by degree; the coefficients of each are needed for the next."""
        before, p = np.zeros_like(x), np.ones_like(x)
        for k in range(self.degree + 1):
            yield p
            ratio = self.squares[k] / self.squares[k - 1] if k else 0.0
            before, p = p, (x - self.shifts[k]) * p - ratio * before

    def transform(self, x: Any, degree: int = 1, raw: bool = False) -> FloatArray:
        x = np.asarray(x, dtype=float)
        if raw:
            return np.stack([x**k for k in range(1, degree + 1)], axis=-1)
        polynomials = list(self._polynomials(x - self.centre))[1:]
        lengths = np.sqrt(np.array(self.squares[1:]))
        return np.stack(polynomials, axis=-1) / lengths


def log(x: Any, base: float | None = None) -> Any:
    """Return the logarithm, the natural one without a base."""
    return np.log(x) if base is None else np.log(x) / np.log(base)


def _of_all_rows(transformation: Any, *args: Any, **options: Any) -> Any:
    """Return what a transformation makes of rows that are all there."""
    transformation.memorize_chunk(*args, **options)
    transformation.memorize_finish()
    return transformation.transform(*args, **options)


# Functions of a module can be pickled, as patsy's own wrappers of transforms cannot.
def scale(x: Any, center: bool = True, scale: bool = True) -> Any:
    """Return x less its mean, over its standard deviation (of n - 1)."""
    return _of_all_rows(_Standardisation(), x, center, scale)


def poly(x: Any, degree: int = 1, raw: bool = False) -> Any:
    """Return orthogonal polynomials of x, or its powers."""
    return _of_all_rows(_OrthogonalPolynomials(), x, degree, raw)


scale.__patsy_stateful_transform__ = _Standardisation  # type: ignore[attr-defined]
poly.__patsy_stateful_transform__ = _OrthogonalPolynomials  # type: ignore[attr-defined]

TRANSFORMS = {
    "np": np,
    "log": log,
    "scale": scale,
    "poly": poly,
    **{name: getattr(np, name) for name in ("log2", "log10", "log1p", "exp", "sqrt")},
}
"""What formulas may use without an import, unless the caller has something of the same name."""


INTERCEPT = "Intercept"
"""Name of the effect of an intercept, as patsy has it."""


@dataclass(frozen=True, slots=True)
class RandomTerm:
    """Random effects of the groups of some facets: ``(1 | facets)`` or ``(1 + x | facets)``.

    As parsed it is all effects of a bar; in a design it is one column of effects.

    Attributes
    ----------
    name : ``"topic:doc"``, of a slope ``"topic:doc[x]"``
    facets : the columns whose combinations are the groups of the term
    effects : ``"Intercept"``, and the columns and expressions that have slopes
    block : number of its bar; the effects of one bar are correlated
    covariates : names of the columns that the slopes use
    """

    name: str
    facets: tuple[str, ...]
    effects: tuple[str, ...] = (INTERCEPT,)
    block: int = 0
    covariates: tuple[str, ...] = ()

    @property
    def is_intercept(self) -> bool:
        """Whether the term is an intercept alone."""
        return self.effects == (INTERCEPT,)

    @property
    def written(self) -> str:
        """The term as it is written in a formula."""
        groups = in_formula(self.facets)
        if self.is_intercept:
            return f"(1|{groups})"
        slopes = [effect for effect in self.effects if effect != INTERCEPT]
        first = "1" if INTERCEPT in self.effects else "0"
        return f"({' + '.join([first, *slopes])} | {groups})"

    def of_column(self, effect: str) -> RandomTerm:
        """Return the term of one column of effects."""
        group = ":".join(self.facets)
        name = group if effect == INTERCEPT else f"{group}[{effect}]"
        return replace(self, name=name, effects=(effect,))


@dataclass(frozen=True, slots=True)
class EffectMatrix:
    """Where the elements of the covariance matrix of a bar are among the components.

    Attributes
    ----------
    groups : as written, ``"topic:doc"``
    effects : names of its effects, ``"(Intercept)"`` and slopes
    places : (q, q) position of each element among the components
    """

    groups: str
    effects: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ResidualGroups:
    """Groups of rows that have a residual variance each.

    Attributes
    ----------
    facets : the columns whose combinations of levels are the groups
    levels : for each group its levels as text, in order; empty in a formula as parsed
    n : number of rows of each group

    Examples
    --------
    >>> ResidualGroups(("sys", "judge"), (("a", "1"), ("b", "1")), (10, 12)).names
    ('Residual[sys=a,judge=1]', 'Residual[sys=b,judge=1]')
    """

    facets: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...] = ()
    n: tuple[int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the residual components."""
        return tuple(f"{RESIDUAL}[{self.level_name(level)}]" for level in self.levels)

    @property
    def labels(self) -> tuple[str, ...]:
        """The levels of one facet, and the names of combinations of levels of several."""
        if len(self.facets) == 1:
            return tuple(level for (level,) in self.levels)
        return tuple(map(self.level_name, self.levels))

    def level_name(self, level: tuple[str, ...]) -> str:
        """Return the name of a group, ``"sys=a,judge=1"``."""
        return ",".join(f"{f}={x}" for f, x in zip(self.facets, level, strict=True))

    @property
    def written(self) -> str:
        """The facets as they are written in ``residual=``."""
        return in_formula(self.facets)


@dataclass(frozen=True, slots=True)
class Formula:
    """A parsed formula: plain text and names, without data or patsy objects.

    Attributes
    ----------
    text : as given
    response : the left-hand side, a Python expression or a column
    fixed : names of the fixed terms (``"Intercept"``, ``"x"``, ``"C(g)"``)
    random : the random terms, in the order of the text
    groups : of rows that have a residual variance each; None with one residual variance
    offsets : expressions of its offsets, ``"x"`` of ``offset(x)``
    """

    text: str
    response: str
    fixed: tuple[str, ...]
    random: tuple[RandomTerm, ...]
    groups: ResidualGroups | None = None
    offsets: tuple[str, ...] = ()

    @property
    def facets(self) -> tuple[str, ...]:
        """The grouping columns, each once, in the order of the formula."""
        return tuple(dict.fromkeys(f for term in self.random for f in term.facets))

    @property
    def level_columns(self) -> tuple[str, ...]:
        """The facets, and the columns whose levels have residual variances."""
        groups = () if self.groups is None else self.groups.facets
        return tuple(dict.fromkeys((*self.facets, *groups)))

    @property
    def residual_names(self) -> tuple[str, ...]:
        """Names of the residual components, the last of all."""
        return (RESIDUAL,) if self.groups is None else self.groups.names

    @property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """For each random term the positions of its facets in :attr:`facets`."""
        place = {facet: k for k, facet in enumerate(self.facets)}
        return tuple(tuple(place[f] for f in term.facets) for term in self.random)

    @property
    def has_slopes(self) -> bool:
        """Whether a random term has other effects than an intercept."""
        return not all(term.is_intercept for term in self.random)

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the random terms of each bar, whose effects are correlated."""
        blocks: dict[int, list[int]] = {}
        for place, term in enumerate(self.random):
            blocks.setdefault(term.block, []).append(place)
        return tuple(map(tuple, blocks.values()))

    @property
    def component_names(self) -> tuple[str, ...]:
        """Names of the variances of the terms, then of the covariances within each bar.

        Examples
        --------
        >>> from vcomp.formula import parse
        >>> parse("score ~ (1|sys) + (1|topic)").component_names
        ('sys', 'topic')
        """
        covariances = [
            f"{':'.join(self.random[i].facets)}[{_short(self.random[i])},{_short(self.random[j])}]"
            for block in self.blocks
            for i, j in combinations(block, 2)
        ]
        return (*(term.name for term in self.random), *covariances)

    @property
    def matrices(self) -> tuple[EffectMatrix, ...]:
        """The covariance matrices of the bars; none with single variances and one residual.

        Examples
        --------
        >>> from vcomp.formula import parse
        >>> parse("score ~ (1|sys) + (1|topic)").matrices
        ()
        """
        found, covariance = [], len(self.random)
        for block in self.blocks if self.has_slopes or self.groups is not None else ():
            places = [[0] * len(block) for _ in block]
            for i, t in enumerate(block):
                places[i][i] = t
            for i, j in combinations(range(len(block)), 2):
                places[i][j] = places[j][i] = covariance
                covariance += 1
            effects = tuple(_short(self.random[t]) for t in block)
            groups = ":".join(self.random[block[0]].facets)
            found.append(EffectMatrix(groups, effects, tuple(map(tuple, places))))
        return tuple(found)

    @property
    def facets_of_components(self) -> tuple[tuple[str, ...], ...]:
        """The facets of each component, in the order of :attr:`component_names`."""
        pairs = (pair for block in self.blocks for pair in combinations(block, 2))
        return tuple(
            self.random[i].facets for i in (*range(len(self.random)), *(i for i, _ in pairs))
        )

    def slope_part(self, term: RandomTerm) -> Formula:
        """Return the effects of a bar as a fixed part, which has the columns of its effects."""
        slopes = [effect for effect in term.effects if effect != INTERCEPT]
        first = "1" if INTERCEPT in term.effects else "0"
        text = f"{self.response} ~ {' + '.join([first, *slopes])}"
        return Formula(text, self.response, term.effects, ())

    def check_parameters(self, n_rows: int, n_fixed: int) -> None:
        """Refuse fewer rows than parameters.

        Parameters
        ----------
        n_rows : number of rows
        n_fixed : number of fixed effects

        Raises
        ------
        DataError
            If there are no more rows than parameters.
        """
        n_components = len(self.component_names) + len(self.residual_names)
        n_parameters = n_fixed + n_components
        if n_rows <= n_parameters:
            raise DataError(
                f"{n_rows} rows are too few for {n_parameters} parameters "
                f"({n_fixed} fixed effect{'s' * (n_fixed != 1)} and {n_components} variance "
                "components)"
            )

    def names(self, *, response: bool = True) -> list[str]:
        """Return all names that the formula uses, each once.

        Parameters
        ----------
        response : whether those of the response are included
        """
        left = names_in(self.response) if response else ()
        right = sorted(self.covariates)
        return list(dict.fromkeys([*self.level_columns, *left, *right, *self.offset_names]))

    @property
    def offset_names(self) -> tuple[str, ...]:
        """The names that the offsets use."""
        return tuple(name for code in self.offsets for name in names_in(code))

    @property
    def fixed_names(self) -> frozenset[str]:
        """The names that the fixed part uses, of columns or of the calling scope.

        Examples
        --------
        >>> from vcomp.formula import parse
        >>> sorted(parse("score ~ np.log(x):C(g) + (1|sys)").fixed_names)
        ['g', 'np', 'x']
        """
        return frozenset(name for factor in self.expressions for name in names_in(factor))

    @property
    def covariates(self) -> frozenset[str]:
        """The names that the fixed part and the slopes use."""
        return self.fixed_names.union(*(term.covariates for term in self.random))

    @property
    def expressions(self) -> tuple[str, ...]:
        """The factors of the fixed part: columns and expressions."""
        return factors_of(self.fixed)

    @property
    def slopes(self) -> tuple[str, ...]:
        """The factors of the slopes: columns and expressions."""
        return tuple(code for term in self.random for code in factors_of(term.effects))

    @property
    def intercept_only(self) -> bool:
        """Whether the fixed part is a single intercept."""
        return self.fixed == ("Intercept",)


def traits_of(model: Any, weights: Any = None) -> dict[str, tuple[str, str | None]]:
    """Return what a model has beyond intercepts and one residual variance of all scores.

    Parameters
    ----------
    model : a formula, or components: it has the matrices of the bars and the residual groups
    weights : of the rows of the fit; None if its scores count alike

    Returns
    -------
    dict
        Of each trait (``"slopes"``, ``"residuals"``, ``"weights"``, ``"variances"``) the end of a
        sentence on a method that lacks it, and the term at fault.
    """
    found: dict[str, tuple[str, str | None]] = {}
    for matrix in model.matrices:
        for effect in matrix.effects:
            if effect != "(Intercept)" and "slopes" not in found:
                clause = (
                    f"is for models without random slopes, and this one has slopes of {effect}"
                )
                found["slopes"] = clause, matrix.groups
    if model.groups is not None:
        one = f"one for each level of {model.groups.written}"
        clause = f"is for models with one residual variance, and this one has {one}"
        found["residuals"] = clause, RESIDUAL
    if weights is not None:
        clause = f"is for scores that count alike, and this fit has {weights.option}"
        found["weights"] = clause, None
    if weights is not None and weights.of_known_variances:
        clause = f"needs the variance of a score, and with {weights.option} each score has its own"
        found["variances"] = clause, None
    return found


def refuse(what: str, has: Mapping[str, tuple[str, str | None]], **instead: str) -> None:
    """Refuse a method of models that have a trait that it does not support.

    Parameters
    ----------
    what : the method
    has : the traits of the model, by :func:`traits_of`
    **instead : by trait what to write in place of the method

    Raises
    ------
    EstimationError
        If the model has one of these traits.
    """
    for trait, (clause, term) in has.items():
        if trait in instead:
            raise EstimationError(f"{what} {clause}; {instead[trait]}", term=term)


@cache
def names_in(code: str) -> tuple[str, ...]:
    """Return the names that an expression uses, ``Q("...")`` included.

    Examples
    --------
    >>> names_in("np.log(score) - Q('base line')")
    ('np', 'score', 'base line')
    """
    places: dict[str, int] = {}
    bound: set[str] = set()
    functions: set[int] = set()
    for node in ast.walk(ast.parse(code.strip(), mode="eval")):
        match node:
            case ast.Call(func=ast.Name(id="Q") as function, args=[ast.Constant(value=str(name))]):
                places.setdefault(name, node.col_offset)
                functions.add(id(function))
            case ast.Call(func=ast.Name(id="Q" | "I" | "C") as function):
                functions.add(id(function))
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                bound.add(name)
            case ast.Name(id=name) if id(node) not in functions:
                places.setdefault(name, node.col_offset)
    return tuple(sorted(places.keys() - bound, key=places.__getitem__))


def _short(term: RandomTerm) -> str:
    """Return the name of an effect in that of a covariance."""
    (effect,) = term.effects
    return "(Intercept)" if effect == INTERCEPT else effect


def parameter_names(names: Sequence[str]) -> list[str]:
    """Return names of components among those of fixed effects: ``var(…)``, and ``cov(…)``.

    A component is a covariance if the variances of both its effects are among the names.

    Examples
    --------
    >>> parameter_names(["g", "g[x]", "g[(Intercept),x]", "Residual"])
    ['var(g)', 'var(g[x])', 'cov(g[(Intercept),x])', 'var(Residual)']
    """
    known = set(names)
    return [f"{'cov' if _is_covariance(name, known) else 'var'}({name})" for name in names]


def _is_covariance(name: str, known: Collection[str]) -> bool:
    """Whether a name is ``group[first,second]``, and both its effects have known variances."""
    for bracket in re.finditer(r"\[", name) if name.endswith("]") else ():
        group, inside = name[: bracket.start()], name[bracket.end() : -1]
        for comma in re.finditer(",", inside):
            effects = inside[: comma.start()], inside[comma.end() :]
            if all((group if e == "(Intercept)" else f"{group}[{e}]") in known for e in effects):
                return True
    return False


def factors_of(terms: Iterable[str]) -> tuple[str, ...]:
    """Return the factors of terms, each once."""
    return tuple(dict.fromkeys(f for term in terms if term != INTERCEPT for f in _factors(term)))


def _factors(term: str) -> list[str]:
    """Split ``"C(a, x):b"`` at the colons that are outside brackets and quotes."""
    parts, depth, start, quote = [], 0, 0, ""
    for position, letter in enumerate(term):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == ":" and depth == 0:
            parts.append(term[start:position])
            start = position + 1
    return [*parts, term[start:]]


def first_names(code: str) -> set[str]:
    """Return the column of ``C(column, …)``, ``Q("column")`` or ``column``; nothing of others."""
    node: ast.expr = ast.parse(code.strip(), mode="eval").body
    match node:
        case ast.Call(func=ast.Name(id="C"), args=[first, *_]):
            return first_names(ast.unparse(first))
        case ast.Call(func=ast.Name(id="Q"), args=[ast.Constant(value=str(name))]):
            return {name}
        case ast.Name(id=name):
            return {name}
    return set()
