"""The parts of a formula that patsy evaluates: the response and the fixed effects."""

from __future__ import annotations

import ast
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, FormulaError, VcompError
from vcomp.formula.parser import Formula, patsy_description

__all__ = [
    "FixedPart",
    "PlainCoding",
    "build_fixed",
    "caller_environment",
    "evaluate",
    "fixed_of_few_rows",
    "names_in",
]


@dataclass(frozen=True, slots=True)
class PlainFactor:
    """A factor: its code, and what was learned of it.

    Attributes
    ----------
    code : expression of Python
    n_columns : of a numerical factor; None of a categorical one
    categories : of a categorical factor
    transforms : for each stateful transform what it remembers, by attribute
    """

    code: str
    n_columns: int | None
    categories: tuple[Any, ...] | None
    transforms: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, info: Any) -> PlainFactor:
        """Take patsy's ``FactorInfo`` apart.

        Raises
        ------
        DataError
            If a transform keeps its memory where it cannot be read.
        """
        code = info.factor.code
        try:
            memory = {name: dict(vars(t)) for name, t in info.state["transforms"].items()}
        except TypeError:  # it has slots
            raise DataError(f"what {code!r} learned of all rows cannot be sent") from None
        return cls(code, info.num_columns, info.categories, memory)

    def restored(self, environment: Any) -> Any:
        """Return the ``FactorInfo``."""
        from patsy import EvalFactor, FactorInfo

        factor, state = EvalFactor(self.code), dict[str, Any]()
        factor.memorize_passes_needed(state, environment)
        for name, memory in self.transforms.items():
            vars(state["transforms"][name]).clear()
            vars(state["transforms"][name]).update(memory)
        kind = "numerical" if self.categories is None else "categorical"
        return FactorInfo(factor, kind, state, self.n_columns, self.categories)


@dataclass(frozen=True, slots=True)
class PlainSubterm:
    """Some columns of a term.

    Attributes
    ----------
    factors : their places among all factors
    contrasts : for each categorical one the (levels, columns) matrix, and names of its columns
    n_columns : that these factors make together
    """

    factors: tuple[int, ...]
    contrasts: Mapping[int, tuple[FloatArray, tuple[str, ...]]]
    n_columns: int


@dataclass(frozen=True, slots=True)
class PlainCoding:
    """The coding of a fixed part.

    Attributes
    ----------
    names : of the columns
    factors : in any order
    terms : for each term the places of its factors, and its parts
    """

    names: tuple[str, ...]
    factors: tuple[PlainFactor, ...]
    terms: tuple[tuple[tuple[int, ...], tuple[PlainSubterm, ...]], ...]

    @classmethod
    def of(cls, info: Any) -> PlainCoding:
        """Take patsy's ``DesignInfo`` apart.

        Raises
        ------
        DataError
            If it cannot be.
        """
        place = {factor: k for k, factor in enumerate(info.factor_infos)}
        terms = []
        for term, subterms in info.term_codings.items():
            parts = tuple(
                PlainSubterm(
                    tuple(place[f] for f in s.factors),
                    {
                        place[f]: (c.matrix, tuple(c.column_suffixes))
                        for f, c in s.contrast_matrices.items()
                    },
                    s.num_columns,
                )
                for s in subterms
            )
            terms.append((tuple(place[f] for f in term.factors), parts))
        factors = tuple(PlainFactor.of(found) for found in info.factor_infos.values())
        return cls(tuple(info.column_names), factors, tuple(terms))

    def restored(self, scope: Mapping[str, Any]) -> Any:
        """Return the ``DesignInfo``.

        Parameters
        ----------
        scope : names of the caller's scope that the factors use
        """
        from patsy import ContrastMatrix, DesignInfo, EvalEnvironment, SubtermInfo, Term

        environment = EvalEnvironment([dict(scope)])
        infos = [factor.restored(environment) for factor in self.factors]
        codings: OrderedDict[Any, list[Any]] = OrderedDict()
        for factors, subterms in self.terms:
            codings[Term([infos[k].factor for k in factors])] = [
                SubtermInfo(
                    [infos[k].factor for k in s.factors],
                    {
                        infos[k].factor: ContrastMatrix(matrix, list(suffixes))
                        for k, (matrix, suffixes) in s.contrasts.items()
                    },
                    s.n_columns,
                )
                for s in subterms
            ]
        return DesignInfo(list(self.names), {info.factor: info for info in infos}, codings)


@dataclass(frozen=True, slots=True)
class FixedPart:
    """How rows become the columns of X, with patsy's memory of codings and transforms."""

    names: tuple[str, ...]
    design_info: Any = None
    """patsy's ``DesignInfo``; None for a lone intercept, which needs no patsy at all."""
    is_known: bool = True
    """False if the coding was not stored with the statistics of the rows."""
    is_stateful: bool = False
    """Whether columns depend on all rows, by center(), bs() and the like."""
    scope: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Names of the caller's scope that it uses, which other machines do not have."""

    def __reduce__(self) -> Any:
        if self.design_info is None:
            return FixedPart, (self.names, None, self.is_known, self.is_stateful)
        sent = PlainCoding.of(self.design_info)
        return _restored, (self.names, sent, self.is_stateful, self.scope)

    def depends_on_rows(self, numbers: Collection[str]) -> bool:
        """Whether other rows might be coded in another way.

        Parameters
        ----------
        numbers : columns of which few values were there; of others all levels were
        """
        if self.design_info is None:
            return self.is_stateful
        categorical = (f for f in self.design_info.factor_infos.values() if f.type != "numerical")
        return self.is_stateful or any(
            not set(names_in(f.factor.code)).isdisjoint(numbers) and f.categories != (False, True)
            for f in categorical
        )

    def matrix(self, columns: Mapping[str, Any], n_rows: int) -> FloatArray:
        """Return X, shape (n_rows, p), for new rows.

        Raises
        ------
        DataError
            If a column of the fixed part is missing, has a level that was not there before, or is
            not one finite number a row.
        """
        if not self.is_known:
            raise DataError(
                "the coding of the fixed part is not stored with statistics; fit the rows anew"
            )
        if self.design_info is None:
            return np.ones((n_rows, len(self.names)))
        from patsy import PatsyError, build_design_matrices

        try:
            with np.errstate(all="ignore"):  # what is not finite is refused below, by name
                (X,) = build_design_matrices([self.design_info], columns, NA_action="raise")
        except PatsyError as error:
            raise DataError(_from_patsy(error)) from None
        if X.shape[0] != n_rows:
            terms = ", ".join(self.design_info.term_names)
            raise DataError(
                f"the fixed part ({terms}) gives {X.shape[0]} rows where the data have {n_rows}; "
                "each of its terms needs one value a row"
            )
        infinite = ~np.isfinite(X).all(axis=0)
        if infinite.any():
            j = int(np.argmax(infinite))
            n_infinite = int((~np.isfinite(X[:, j])).sum())
            raise DataError(
                f"{self.names[j]!r} of the fixed part is infinite in {n_infinite} of {n_rows} rows"
            )
        return np.ascontiguousarray(X, dtype=float)


def build_fixed(
    formula: Formula, batches: Callable[[], Iterable[Mapping[str, Any]]], environment: Any
) -> FixedPart:
    """Learn the coding of the fixed part.

    Parameters
    ----------
    batches : gives the columns of all rows, in one batch or several, anew at every call

    Raises
    ------
    FormulaError
        If patsy cannot evaluate it (an unknown name, factors of different lengths).
    """
    if formula.intercept_only:
        return FixedPart(("Intercept",))
    if not formula.fixed:
        return FixedPart(())
    from patsy import PatsyError, incr_dbuilder

    known: set[str] = set()

    def noted() -> Iterator[Mapping[str, Any]]:
        for columns in batches():
            known.update(columns)
            yield columns

    try:
        with np.errstate(all="ignore"):
            info = incr_dbuilder(patsy_description(formula), noted, environment, NA_action="raise")
    except PatsyError as error:
        raise FormulaError(_from_patsy(error)) from None
    except VcompError:
        raise
    except ValueError as error:  # of a transform that cannot be learned of these rows
        raise FormulaError(f"the fixed part of the formula: {error}") from None
    stateful = any(f.state.get("transforms") for f in info.factor_infos.values())
    names = tuple(map(_plain_name, info.column_names))
    wanted = {name for term in formula.fixed for name in _names_in_term(term)} - known
    scope = {name: environment.namespace[name] for name in wanted if name in environment.namespace}
    return FixedPart(names, info, is_stateful=stateful, scope=scope)


def fixed_of_few_rows(formula: Formula, columns: Mapping[str, Any], environment: Any) -> FixedPart:
    """Learn the coding of the fixed part from few rows in which all levels occur.

    Where they are too few for it, as for the knots of a spline, it depends on all rows.

    Parameters
    ----------
    columns : of these rows
    """
    try:
        return build_fixed(formula, lambda: [columns], environment)
    except FormulaError:  # which all rows raise as well if it is not for these alone
        return FixedPart((), is_stateful=True)


def _names_in_term(term: str) -> tuple[str, ...]:
    return () if term == "Intercept" else names_in(term.replace(":", "+"))


def _restored(
    names: tuple[str, ...], sent: PlainCoding, is_stateful: bool, scope: Mapping[str, Any]
) -> FixedPart:
    return FixedPart(names, sent.restored(scope), is_stateful=is_stateful, scope=scope)


def _from_patsy(error: Any) -> str:
    message = str(error).replace("Error evaluating factor: ", "", 1).replace("\n", "\n\n", 1)
    if message.startswith("factor contains missing values"):
        message = message.replace(
            "factor contains missing values",
            "a term has missing values in rows whose columns have none, as the logarithm of a "
            "negative number; mend it, or make those values missing in the data",
        )
    return f"the fixed part of the formula: {message}"


def _plain_name(name: str) -> str:
    """Return ``C(g)[T.1]`` for patsy's ``C(g)[T.np.float64(1.0)]``."""
    return re.sub(r"\bnp\.\w+\(([^()]*?)(?:\.0)?\)(?=\])", r"\1", name)


def evaluate(code: str, columns: Mapping[str, Any], environment: Any) -> Any:
    """Evaluate an expression of the formula, columns first, then the caller's names.

    Raises
    ------
    FormulaError
        If Python cannot evaluate it; the message says what it said.
    """
    if code in columns:
        return columns[code]
    from patsy import builtins as patsy_builtins

    names = {name: getattr(patsy_builtins, name) for name in patsy_builtins.__all__}
    names |= {"Q": columns.__getitem__, **columns}
    try:
        with np.errstate(all="ignore"):  # who asks counts what is not finite
            return environment.eval(code, inner_namespace=names)
    except Exception as error:
        raise FormulaError(f"cannot evaluate {code!r}: {type(error).__name__}: {error}") from None


def caller_environment(eval_env: Any, depth: int) -> Any:
    """Return patsy's ``EvalEnvironment`` of the scope where the caller's caller stands.

    Parameters
    ----------
    eval_env : 0 for that scope, 1 for the one above it, or an ``EvalEnvironment``
    depth : how many functions are between it and this one

    Raises
    ------
    FormulaError
        If it is none of these, or there is no scope so far up.
    """
    from patsy import EvalEnvironment

    try:
        return EvalEnvironment.capture(eval_env, reference=depth + 1)
    except (TypeError, ValueError):
        raise FormulaError(
            "eval_env is 0 for the scope of the caller, 1 for the one above and so on, or patsy's "
            f"EvalEnvironment; {eval_env!r} is not one of them"
        ) from None


@cache
def names_in(code: str) -> tuple[str, ...]:
    """Return the names that an expression looks up, ``Q("...")`` included.

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
