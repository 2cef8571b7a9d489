"""Scores of several dependent variables with common codes.

Wide data have a column for each variable, and scores in one row belong together. Long data have
one column of scores and one with the variable of each score. In both cases every variable is a
model with its own checks. All estimators of covariances work on a :class:`VariableLayout`, the
groups of the terms.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray, IntArray, LongArray
from vcomp.data import Missing, as_levels, open_source
from vcomp.design import number_combinations
from vcomp.exceptions import DataError, DesignError, FormulaError, VcompError, check_known, warn
from vcomp.formula import REPLICATE, RESIDUAL, Formula, closure, names_in, parse
from vcomp.model import VarianceComponentsModel

if TYPE_CHECKING:
    import pandas as pd


def read_sides(formula: str, responses: Sequence[str] | None = None) -> tuple[list[str], str]:
    """Return the responses, as expressions, and the right-hand side.

    Parameters
    ----------
    formula : with both sides, or the right side only
    responses : columns that replace the left side

    Raises
    ------
    FormulaError
        If there are no responses, they cannot be read, or one occurs twice.

    Examples
    --------
    >>> read_sides("np.log(a) + b ~ (1|p)")
    (['np.log(a)', 'b'], ' (1|p)')
    """
    if not isinstance(formula, str):
        raise FormulaError(
            "the formula, the first argument, must be text such as 'verbal + maths ~ (1|p) + "
            f"(1|i)', not {type(formula).__name__}"
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
        raise FormulaError(f"responses must be a list of columns, not {responses!r}")
    if tilde and before.strip():
        raise FormulaError("the responses are given twice, in the formula and in responses=")
    plain = [name if name.isidentifier() else f"Q({name!r})" for name in responses]
    if not plain:
        raise FormulaError("responses= is empty; it lists the columns of the dependent variables")
    return _distinct(plain), right


def _summands(text: str) -> list[str]:
    """Return the summands of an expression as written."""
    text = text.strip()
    try:
        tree: ast.expr = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise FormulaError(
            f"cannot read the left of the formula, {text!r}; it is a sum of columns or "
            "expressions, such as verbal + maths"
        ) from None
    summands: list[str] = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add):
        summands.append(ast.get_source_segment(text, tree.right) or "")
        tree = tree.left
    summands.append(ast.get_source_segment(text, tree) or "")
    return _distinct(summands[::-1])


def _distinct(names: list[str]) -> list[str]:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise FormulaError(f"the response {twice[0]!r} occurs twice", column=twice[0])
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


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of v variables in common codes.

    Attributes
    ----------
    formula : as given
    variables : names of the dependent variables
    facets : names of the facets
    levels : labels of each facet, of all variables together; with the variable if independent
    y : (n,) the scores, those of the first variable first
    variable : (n,) of each score
    codes : for each facet the (n,) level of each score
    unit : (n,) number of the unit of each score; scores of a unit were observed together
    n_units : number of units
    models : of each variable separately
    notes : remarks on the data
    """

    formula: str
    variables: tuple[str, ...]
    facets: tuple[str, ...]
    levels: tuple[Sequence[Any], ...]
    y: FloatArray
    variable: IntArray
    codes: tuple[IntArray, ...]
    unit: IntArray
    n_units: int
    models: tuple[VarianceComponentsModel, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of scores."""
        return int(self.y.size)

    def of(self, variable: int) -> slice:
        """Return the positions of the scores of a variable."""
        sizes = [model.nobs for model in self.models]
        first = sum(sizes[:variable])
        return slice(first, first + sizes[variable])


def read_scores(
    formula: str,
    data: Any,
    environment: Any,
    *,
    responses: Sequence[str] | None = None,
    variable: str | None = None,
    independent: str | Sequence[str] = (),
    missing: Missing = "drop",
) -> Scores:
    """Return the scores of all variables, checked and coded.

    Parameters
    ----------
    formula : with several responses for wide data, one for long data
    data : as for :func:`vcomp.fit`
    environment : patsy's ``EvalEnvironment`` of the caller
    responses : columns of wide data that replace the left side
    variable : the column of long data with the variable of each score
    independent : facets of which every variable has its own levels, even if labels are the same
    missing : ``"drop"`` missing scores and warn, or ``"raise"``

    Raises
    ------
    FormulaError, DataError, DesignError
        If something cannot be read, found or estimated; the message begins with the variable if it
        concerns one.
    """
    left, right = read_sides(formula, responses)
    random = parse(f"{left[0]} ~ {right}")
    if random.has_slopes:
        raise FormulaError("fit_multivariate has no slopes: fit each variable by vcomp.fit")
    if random.offsets:
        raise FormulaError("fit_multivariate has no offsets: fit each variable by vcomp.fit")
    if not random.intercept_only:
        raise FormulaError(
            "the fixed part for several dependent variables is the mean of each; leave out "
            f"{' + '.join(term for term in random.fixed if term != 'Intercept') or '0'}"
        )
    if not isinstance(independent, Iterable):
        raise DesignError(f"independent must be a facet or a list of facets, not {independent!r}")
    own = (independent,) if isinstance(independent, str) else tuple(independent)
    for f in own:
        said = "independent: {} is not a facet; facets are"
        check_known(f, random.facets, said, DesignError, column=f)
    if variable is None:
        parts = _wide(left, right, random, data, environment, missing)
    else:
        parts = _long(left, right, random, data, environment, variable, missing)
    return _coded(formula, parts, random, set(own), wide=variable is None)


# Rows -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _VariableModels:
    """The variables with their models, each fitted to the rows with a score of the variable."""

    names: tuple[str, ...]
    models: tuple[VarianceComponentsModel, ...]
    notes: tuple[str, ...] = ()


def _wide(
    left: list[str], right: str, random: Formula, data: Any, environment: Any, missing: Missing
) -> _VariableModels:
    if len(left) < 2:
        raise FormulaError(
            f"there is one dependent variable, {left[0]!r}; write several (verbal + maths ~ …), "
            "name the column that distinguishes them with variable=, or use vcomp.fit for one",
            column=left[0],
        )
    frame = None if data is None else _columns(left, random, data, environment)
    names = [plain_name(name) for name in left]
    models, lacking = [], list[str]()
    for name, code in zip(names, left, strict=True):
        rows = frame
        if frame is not None and name in frame.columns and missing == "drop":
            rows = _scored(name, frame, name, "its column is missing in all rows", lacking)
        models.append(_model(name, f"{code} ~ {right}", rows, environment, missing))
    return _VariableModels(tuple(names), tuple(models), _on_missing(lacking))


def _long(
    left: list[str],
    right: str,
    random: Formula,
    data: Any,
    environment: Any,
    variable: str,
    missing: Missing,
) -> _VariableModels:
    if len(left) > 1:
        raise FormulaError(
            "with variable= the scores are in one column, and the formula has "
            f"{len(left)} responses: {', '.join(left)}"
        )
    if data is None:
        raise DataError("variable= names a column of data, and there are no data")
    if variable in random.facets:
        raise DesignError(
            f"{variable!r} names the dependent variables and is not a facet of them; leave it "
            "out of the random terms",
            column=variable,
        )
    if variable in names_in(left[0]):
        raise DataError(
            f"variable={variable!r} names the column of the scores; it must name the column with "
            "the dependent variable of each score",
            column=variable,
        )
    frame = _columns(left, random, data, environment, variable)
    column = frame[variable]
    empty = column.isna().to_numpy()
    if empty.any() and missing == "raise":
        raise DataError(
            f"column {variable!r} is missing in {int(empty.sum())} rows", column=variable
        )
    if empty.all():
        raise DataError(f"column {variable!r} is missing in all rows", column=variable)
    if empty.any():
        n = int(empty.sum())
        warn(f"column {variable!r} is missing in {n:,} of {len(frame):,} rows, left out")
        frame, column = frame[~empty], column[~empty]
    labels = as_levels(variable, column)
    names = tuple(str(level) for level in labels.cat.categories)
    if len(names) < 2:
        raise DataError(
            f"column {variable!r} has one value only, {names[0]!r}: there is one dependent "
            "variable; use vcomp.fit for it",
            column=variable,
        )
    codes, response = labels.cat.codes.to_numpy(), plain_name(left[0])
    models, lacking = [], list[str]()
    for place, name in enumerate(names):
        rows = frame[codes == place]
        if response in frame.columns and missing == "drop":
            why = f"{response!r} is missing in all its rows"
            rows = _scored(name, rows, response, why, lacking)
        models.append(_model(name, f"{left[0]} ~ {right}", rows, environment, missing))
    return _VariableModels(names, tuple(models), _on_missing(lacking))


def _scored(
    name: str, rows: pd.DataFrame, column: str, none: str, lacking: list[str]
) -> pd.DataFrame:
    """Return the rows with a score of a variable; add the number of others to `lacking`."""
    empty = rows[column].isna().to_numpy()
    if empty.all() and len(rows):
        raise DataError(f"variable {name!r} has no scores: {none}", column=name)
    if empty.any():
        lacking.append(f"{name} lacks {int(empty.sum()):,} of {len(rows):,} scores")
    return rows[~empty]


def _on_missing(lacking: list[str]) -> tuple[str, ...]:
    """Warn about missing scores, and return the note on them."""
    if not lacking:
        return ()
    note = f"{'; '.join(lacking)}: every variable is estimated from the scores that it has"
    warn(note)
    return (f"{note}.",)


def _columns(
    left: list[str], random: Formula, data: Any, environment: Any, variable: str | None = None
) -> pd.DataFrame:
    """Read the columns that the formula names."""
    source = open_source(data)
    alone = [plain_name(code) for code in left]
    names = list(dict.fromkeys([*random.facets, *(n for code in left for n in names_in(code))]))
    for name in names:
        column = name in (*random.facets, *alone)
        if name not in source.columns and (column or not _is_known(name, environment)):
            raise source.no_column(name)
    extra = [] if variable is None else [variable]
    return source.read([n for n in names if n in source.columns] + extra)


def _is_known(name: str, environment: Any) -> bool:
    """Return whether an expression can use a name that is not a column."""
    from patsy import builtins as patsy_builtins

    return (
        name in environment.namespace or name in patsy_builtins.__all__ or hasattr(builtins, name)
    )


def _model(
    name: str, formula: str, rows: Any, environment: Any, missing: Missing
) -> VarianceComponentsModel:
    try:
        return VarianceComponentsModel(formula, rows, missing=missing, eval_env=environment)
    except FormulaError:
        raise
    except VcompError as error:
        raise type(error)(f"variable {name!r}: {error}") from None


# Codes ------------------------------------------------------------------------------------------


def _coded(
    formula: str, parts: _VariableModels, random: Formula, independent: set[str], *, wide: bool
) -> Scores:
    _check_arrangement(parts)
    variable = np.repeat(
        np.arange(len(parts.names), dtype=np.int32), [m.nobs for m in parts.models]
    )
    levels, codes = [], []
    for facet in random.facets:
        labels, found = _common_levels(facet, parts, variable, facet in independent)
        levels.append(labels)
        codes.append(found)
    if wide and not independent:
        places = np.concatenate([np.asarray(m.rows.labels) for m in parts.models])
        unit: IntArray | None = np.unique(places, return_inverse=True)[1].astype(np.int32)
    else:
        unit = _cells(codes, [len(x) for x in levels], variable)
    notes = list(parts.notes)
    if unit is None:
        unit = np.arange(variable.size, dtype=np.int32)
        notes.append(
            "Cells hold several scores of a variable, and it is not known which scores of "
            "different variables belong together: their residuals are treated as independent."
        )
    return Scores(
        formula=formula.strip(),
        variables=parts.names,
        facets=random.facets,
        levels=tuple(levels),
        y=np.concatenate([m.rows.y for m in parts.models]),
        variable=variable,
        codes=tuple(codes),
        unit=unit,
        n_units=int(unit.max()) + 1,
        models=parts.models,
        notes=tuple(notes),
    )


def _check_arrangement(parts: _VariableModels) -> None:
    """Refuse variables whose facets differ in their nesting."""
    first = parts.models[0].design.structure
    for name, model in zip(parts.names[1:], parts.models[1:], strict=True):
        structure = model.design.structure
        for facet in first.facets:
            here, there = first.nested_in[facet], structure.nested_in[facet]
            if here != there:
                raise DesignError(
                    f"the design is not the same for all variables: {_nesting(facet, here)} in "
                    f"{parts.names[0]!r}, and {_nesting(facet, there)} in {name!r}; several "
                    "dependent variables need one design",
                    column=name,
                )


def _nesting(facet: str, above: frozenset[str]) -> str:
    return (
        f"{facet} is nested in {' and '.join(sorted(above))}" if above else f"{facet} is crossed"
    )


def _common_levels(
    facet: str, parts: _VariableModels, variable: IntArray, independent: bool
) -> tuple[Any, IntArray]:
    """Return the levels of a facet in all variables, and the level of every score."""
    import pandas as pd

    columns = [model.rows.facets[facet] for model in parts.models]
    own = [pd.Series(c.cat.categories.to_numpy()) for c in columns]
    labels = as_levels(facet, pd.concat(own)).cat.categories
    codes = np.concatenate(
        [
            labels.get_indexer(c.cat.categories)[c.cat.codes.to_numpy()].astype(np.int32)
            for c in columns
        ]
    )
    if not independent:
        return labels, codes
    keys, codes = number_combinations(variable, len(parts.names), codes, len(labels))
    named = [(parts.names[k // len(labels)], labels[k % len(labels)]) for k in keys.tolist()]
    return named, codes


def combined(codes: Sequence[IntArray], sizes: Sequence[int]) -> tuple[IntArray, int]:
    """Return the number of the combination of several codes in each row, and that of all.

    Parameters
    ----------
    codes : one or more (n,) codes
    sizes : their numbers of levels
    """
    combination, size = codes[0], sizes[0]
    for more, n in zip(codes[1:], sizes[1:], strict=True):
        keys, combination = number_combinations(combination, size, more, n)
        size = keys.size
    return combination, size


def _cells(codes: list[IntArray], sizes: list[int], variable: IntArray) -> IntArray | None:
    """Return the cell of every score; None if a variable has several scores in a cell."""
    cells, size = combined(codes, sizes)
    keys, _ = number_combinations(cells, size, variable, int(variable.max()) + 1)
    return cells if keys.size == variable.size else None


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """Pairs of groups of two terms with common scores.

    Attributes
    ----------
    rows, columns : (c,) group of the one and of the other term
    counts : (c, v) numbers of scores of every variable
    """

    rows: LongArray
    columns: LongArray
    counts: FloatArray


def sums_of(groups: LongArray, size: int) -> Any:
    """Return the (size, n) matrix that adds the rows of each group."""
    from scipy.sparse import csr_array

    n = groups.size
    return csr_array((np.ones(n), (groups, np.arange(n))), shape=(size, n))


@dataclass(frozen=True)
class VariableLayout:
    """Terms with the groups of all scores; groups of the residual are the observed units.

    Attributes
    ----------
    scores : the scores
    names : of the terms, the residual last
    facets : of each term, see :class:`~vcomp.inference.quantities.VarianceComponents`
    groups : for each term the (n,) group of every score
    sizes : numbers of groups
    """

    scores: Scores
    names: tuple[str, ...]
    facets: tuple[frozenset[str], ...]
    groups: tuple[IntArray, ...]
    sizes: tuple[int, ...]

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return len(self.scores.variables)

    @cached_property
    def y(self) -> FloatArray:
        """The scores minus the mean of their variable, (n,)."""
        y = self.scores.y.copy()
        for a in range(self.n_variables):
            y[self.scores.of(a)] -= y[self.scores.of(a)].mean()
        return y

    @cached_property
    def scale(self) -> FloatArray:
        """The standard deviation of every variable, 1 for a constant one, (v,)."""
        spreads = [float(self.y[self.scores.of(a)].std()) for a in range(self.n_variables)]
        return np.array([s if s > 0.0 else 1.0 for s in spreads])

    @cached_property
    def counts(self) -> tuple[FloatArray, ...]:
        """For each term the (q, v) numbers of scores of its groups in every variable."""
        v = self.n_variables
        return tuple(
            np.bincount(g.astype(np.int64) * v + self.scores.variable, minlength=q * v)
            .reshape(q, v)
            .astype(float)
            for g, q in zip(self.groups, self.sizes, strict=True)
        )

    @cached_property
    def shared(self) -> FloatArray:
        """Number of groups of each term that two variables share, (k + 1, v, v)."""
        occurs = [(n > 0.0).astype(float) for n in self.counts]
        return np.array([o.T @ o for o in occurs])

    @cached_property
    def linked(self) -> BoolArray:
        """Whether two variables share at least two groups of a term, which a covariance needs."""
        return np.asarray(self.shared >= 2.0)

    @cached_property
    def same_rows(self) -> bool:
        """Whether all variables were observed in every unit."""
        return bool((self.counts[-1] == 1.0).all())

    def joint(self, t: int, u: int) -> Joint:
        """Return the pairs of groups of two terms that have scores in common."""
        if t > u:
            made = self.joint(u, t)
            return Joint(made.columns, made.rows, made.counts)
        if (t, u) not in self._joints:
            self._joints[t, u] = self._joined(t, u)
        return self._joints[t, u]

    @cached_property
    def _joints(self) -> dict[tuple[int, int], Joint]:
        return {}

    def _joined(self, t: int, u: int) -> Joint:
        if t == u:
            own = np.arange(self.sizes[t])
            return Joint(own, own, self.counts[t])
        v, size = self.n_variables, self.sizes[u]
        keys, pairs = number_combinations(self.groups[t], self.sizes[t], self.groups[u], size)
        codes = pairs.astype(np.int64) * v + self.scores.variable
        counts = np.bincount(codes, minlength=keys.size * v).reshape(-1, v).astype(float)
        return Joint(keys // size, keys % size, counts)


def lay_out(scores: Scores) -> VariableLayout:
    """Return the layout of the terms of all variables."""
    structure = scores.models[0].design.structure
    nested_in = structure.nested_in
    sizes = [len(levels) for levels in scores.levels]
    names, facets, groups, counts = [], [], [], []
    for term in scores.models[0].design.formula.random:
        places = [scores.facets.index(f) for f in term.facets]
        codes, size = combined([scores.codes[p] for p in places], [sizes[p] for p in places])
        names.append(term.name)
        facets.append(closure(frozenset(term.facets), nested_in))
        groups.append(codes)
        counts.append(size)
    everything = frozenset(structure.facets)
    if any(model.design.structure.replicated for model in scores.models):
        everything |= {REPLICATE}
    return VariableLayout(
        scores=scores,
        names=(*names, RESIDUAL),
        facets=(*facets, everything),
        groups=(*groups, scores.unit),
        sizes=(*counts, scores.n_units),
    )
