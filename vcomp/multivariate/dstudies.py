"""D-studies of several variables and of their composite, with their printed table.

They follow from the covariance components of a multivariate G-study.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError, check_alpha, check_known, did_you_mean
from vcomp.gtheory import DStudy, dstudy
from vcomp.inference import Projected, VarianceComponents
from vcomp.inference.intervals import IntervalName, IntervalSource
from vcomp.multivariate.covariance_components import (
    CovarianceComponents,
    composite_of,
    divisors_of,
    is_alike,
)

if TYPE_CHECKING:
    import pandas as pd

COMPOSITE = "composite"
"""Name of the composite among the scores."""

_OF_ONE = ("fixed", "universe", "within", "layout")
_ERRORS = ("universe_var", "rel_err_var", "abs_err_var")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MultivariateDStudy(display.Printed):
    """Error variances and coefficients of planned measurements by several variables.

    Attributes
    ----------
    variables : their names
    weights : (v,) of the composite
    object : of measurement
    studies : for every plan the D-study of each variable and, last, of the composite
    matrices : for every plan the (3, v, v) covariance matrices of universe scores, and of relative
        and absolute errors
    notes : remarks on the scores

    Examples
    --------
    >>> import vcomp
    >>> data = vcomp.datasets.load("docsearch").pivot(
    ...     index=["sys", "topic"], columns="query", values="score").reset_index()
    >>> res = vcomp.fit_multivariate("keywords + sentence ~ (1|sys) + (1|topic)", data)
    >>> res.dstudy(topic=50).table[["score", "topic", "Erho2"]].round(3)
           score  topic  Erho2
    0   keywords     50  0.824
    1   sentence     50  0.889
    2  composite     50  0.889
    """

    variables: tuple[str, ...]
    weights: FloatArray
    object: str
    studies: tuple[tuple[DStudy, ...], ...]
    matrices: FloatArray
    notes: tuple[str, ...] = ()

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the rows of a plan: the variables and the composite."""
        return (*self.variables, COMPOSITE)

    @property
    def table(self) -> pd.DataFrame:
        """A row for every score of every plan.

        ``score`` is a variable or the composite, then the columns of
        :attr:`vcomp.DStudy.table`. The number of levels of an independent facet in the composite
        is the sum over its variables.
        """
        import pandas as pd

        rows = []
        for plan in self.studies:
            for name, study in zip(self.scores, plan, strict=True):
                row = study.table
                row.insert(0, "score", name)
                rows.append(row)
        return pd.concat(rows, ignore_index=True)

    @property
    def contributions(self) -> pd.DataFrame:
        """The contribution of every variable to the composite's variances, by plan.

        Columns ``plan`` (its number), ``variable``, ``weight``, and the shares ``universe_var``,
        ``rel_err_var`` and ``abs_err_var``: w_v Σ_u w_u σ_uv / Σ_uv w_u w_v σ_uv, which add up to
        one in a plan. Those of the universe-score variance are Brennan's effective weights (2001,
        section 10.1). Shares are nan if the composite's variance is zero.
        """
        import pandas as pd

        rows = []
        for plan, shares in enumerate(self.shares):
            for a, name in enumerate(self.variables):
                shown = dict(zip(_ERRORS, shares[:, a].tolist(), strict=True))
                weight = float(self.weights[a])
                rows.append({"plan": plan, "variable": name, "weight": weight, **shown})
        return pd.DataFrame(rows)

    @property
    def shares(self) -> FloatArray:
        """The shares of :attr:`contributions` as an array, (plans, 3, v)."""
        parts = self.weights * (self.matrices @ self.weights)
        total = parts.sum(axis=2, keepdims=True)
        nothing = np.full_like(parts, np.nan)
        return np.asarray(np.divide(parts, total, out=nothing, where=total > 0.0))

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        first = self.studies[0][-1]
        facets = first.plan.facets
        confidence = display.level(first.alpha)
        names = [name for _ in self.studies for name in self.scores]
        rows = [row for plan in self.studies for row in plan]
        cells: dict[str, list[str]] = {}
        for place, facet in enumerate(facets):
            cells[facet] = [display.count(float(row.plan.sizes[0][place])) for row in rows]
        for symbol, name in (("Eρ²", "Erho2"), ("Φ", "Phi")):
            found = {
                x: [float(row.columns[name + x][0]) for row in rows] for x in ("", "_low", "_high")
            }
            cells[symbol] = [display.coefficient(c) for c in found[""]]
            intervals = [
                display.coefficient_interval(low, high)
                for low, high in zip(found["_low"], found["_high"], strict=True)
            ]
            if any(intervals):
                cells[f"{confidence} interval" + " " * (name == "Phi")] = intervals
        for symbol, name in (
            ("σ²(τ)", "universe_var"),
            ("σ²(δ)", "rel_err_var"),
            ("σ²(Δ)", "abs_err_var"),
        ):
            cells[symbol] = display.fixed(
                [float(row.columns[name][0]) for row in rows], significant=2
            )
        weights = ", ".join(
            f"{display.number(w)} × {name}"
            for name, w in zip(self.variables, self.weights, strict=True)
        )
        table = display.column_table(
            cells,
            title=f"D-study of {len(self.variables)} variables; "
            f"object of measurement: {self.object}",
            stubs=names,
        )
        objects = display.plural(self.object)
        notes = [
            f"composite: {weights}.",
            f"Eρ²: how reliable differences between {objects} are (error variance σ²(δ)).",
            f"Φ: how reliable absolute scores of {objects} are (error variance σ²(Δ)).",
            _shares(self),
            *self.notes,
        ]
        return display.summary([table], notes)

    def __repr__(self) -> str:
        names = ", ".join(self.variables)
        return f"<{type(self).__name__}: {names}; object={self.object!r}>"


def plan_studies(
    g: CovarianceComponents,
    w: FloatArray,
    *,
    independent: frozenset[str],
    design: str | None,
    object_: str | None,
    sizes: Mapping[str, Any],
    alpha: float,
    negative: Projected,
    interval: IntervalName | IntervalSource,
) -> MultivariateDStudy:
    """Return the D-studies of all variables and of their composite.

    Parameters
    ----------
    g : of the G-study
    w : (v,) weights of the composite
    independent : facets of which every variable has its own levels
    design : in Brennan's notation; that of the G-study if None
    object_ : of measurement, whose levels the variables share; the first facet without a size if
        None
    sizes : of the other facets; for independent ones also a mapping by variable
    alpha, negative, interval : as for :func:`~vcomp.gtheory.dstudy`

    Raises
    ------
    PlanError
        If a plan is invalid, or variables of the composite share no objects.
    """
    check_alpha(alpha)
    facets = _one(g, 0).facet_names
    for facet in sizes:
        if facet not in facets and facet in _OF_ONE:
            raise PlanError(
                f"{facet}= is for one score; use res.composite(weights).dstudy(…, {facet}=…)",
                column=facet,
            )
        check_known(facet, facets, "unknown facet {}; the G-study has", column=facet)
    object_ = _object(facets, sizes) if object_ is None else object_
    _check_object(g, w, object_)
    wanted = [_by_variable(f, n, g, independent) for f, n in sizes.items()]
    options: dict[str, Any] = {
        "alpha": alpha,
        "negative": negative,
        "interval": interval,
        "object": object_,
    }
    studies, matrices = [], []
    for plan in itertools.product(*wanted):
        given = dict(zip(sizes, plan, strict=True))
        rows = [
            dstudy(_one(g, a), design, sizes={f: n[a] for f, n in given.items()}, **options)
            for a in range(g.n_variables)
        ]
        rows.append(_composite_study(g, w, design, given, options))
        studies.append(tuple(rows))
        matrices.append(_matrices(g, rows, given, object_, own=design is None))
    return MultivariateDStudy(
        g.variables, w, object_, tuple(studies), np.array(matrices), _notes(g, studies)
    )


def _notes(g: CovarianceComponents, studies: list[tuple[DStudy, ...]]) -> tuple[str, ...]:
    """Return the notes on all scores, and notes on some scores with their names."""
    with_note: dict[str, list[str]] = {
        note: [] for rows in studies for r in rows for note in r.notes
    }
    for rows in studies:
        for name, row in zip((*g.variables, COMPOSITE), rows, strict=True):
            for note in row.notes:
                if name not in with_note[note]:
                    with_note[note].append(name)
    every = g.n_variables + 1
    return tuple(
        note if len(names) == every else f"{', '.join(names)}: {note}"
        for note, names in with_note.items()
    )


def _one(g: CovarianceComponents, a: int) -> VarianceComponents:
    return composite_of(g, np.eye(g.n_variables)[a])


def _object(facets: tuple[str, ...], sizes: Mapping[str, Any]) -> str:
    free = [f for f in facets if f not in sizes]
    if not free:
        raise PlanError(
            "every facet has a size, but the object of measurement has none; leave one out"
        )
    return free[0]


def _check_object(g: CovarianceComponents, w: FloatArray, object_: str) -> None:
    if object_ not in g.names:
        return  # refused by the D-study of a variable
    linked, used = g.linked[g.place(object_)], np.flatnonzero(w)
    for a, b in itertools.combinations(used, 2):
        if not linked[a, b]:
            raise PlanError(
                f"no two levels of {object_!r} have scores of both {g.variables[a]!r} and "
                f"{g.variables[b]!r}: the covariance of their universe scores cannot be "
                "estimated, and they have no composite; give weights to one of them only",
                column=object_,
            )


def _by_variable(
    facet: str, wanted: Any, g: CovarianceComponents, independent: frozenset[str]
) -> list[tuple[Any, ...]]:
    """Return the planned sizes of a facet, one for each variable."""
    if not hasattr(wanted, "keys"):
        return [(n,) * g.n_variables for n in _listed(facet, wanted)]
    given = dict(wanted.items())
    strange = [name for name in given if name not in g.variables]
    absent = [name for name in g.variables if name not in given]
    if strange or absent:
        hint = did_you_mean(strange[0], g.variables) if strange else ""
        what = f"names {strange[0]!r}{hint}" if strange else f"leaves out {absent[0]!r}"
        raise PlanError(
            f"the mapping of sizes of {facet!r} {what}; the variables are "
            f"{', '.join(g.variables)}",
            column=facet,
        )
    lists = {name: _listed(facet, given[name]) for name in g.variables}
    longest = max(len(n) for n in lists.values())
    for name, n in lists.items():
        if len(n) not in (1, longest):
            raise PlanError(
                f"the lists of sizes of {facet!r} must have the same length for all variables: "
                f"{name!r} has {len(n)} sizes, and another variable {longest}",
                column=facet,
            )
    plans = [
        tuple(lists[name][k if len(lists[name]) > 1 else 0] for name in g.variables)
        for k in range(longest)
    ]
    if facet not in independent and any(len(set(plan)) > 1 for plan in plans):
        raise PlanError(
            f"the levels of {facet!r} are linked, so all variables have the same number of them; "
            f"give one size, such as {facet}={plans[0][0]!r}",
            column=facet,
        )
    return plans


def _listed(facet: str, wanted: Any) -> list[Any]:
    if isinstance(wanted, Iterable) and not isinstance(wanted, str | bytes | Mapping):
        # A zero-dimensional array has __iter__ but cannot be iterated.
        found = [wanted[()]] if getattr(wanted, "ndim", 1) == 0 else list(wanted)  # type: ignore[index]
        if not found:
            raise PlanError(f"no size is given for {facet!r}: its list is empty", column=facet)
        return found
    return [wanted]


def _composite_study(
    g: CovarianceComponents,
    w: FloatArray,
    design: str | None,
    given: Mapping[str, tuple[Any, ...]],
    options: Mapping[str, Any],
) -> DStudy:
    """Return the D-study of the composite, whose variables may differ in their sizes."""
    used = np.flatnonzero(w)
    same = all(len({n[a] for a in used}) == 1 for n in given.values())
    rest = [f for f in g.sizes if f not in given and f != options["object"]]
    alike = all(len({g.sizes[f][a] for a in used}) == 1 for f in rest)
    if same and (is_alike(g, w) if not given else alike):
        sizes = {f: n[used[0]] for f, n in given.items()}
        return dstudy(composite_of(g, w), design, sizes=sizes, **options)
    if design is not None:
        raise PlanError(
            "design= needs the same sizes for all variables of the composite; leave it out, or "
            "give the same sizes"
        )
    divisors = divisors_of(g, given, options["object"])
    folded, sizes = _folded(g, w, divisors, given, options["object"])
    return dstudy(folded, None, sizes=sizes, **options)


def _folded(
    g: CovarianceComponents,
    w: FloatArray,
    divisors: FloatArray,
    given: Mapping[str, tuple[Any, ...]],
    object_: str,
) -> tuple[VarianceComponents, dict[str, Any]]:
    """Return the components of a composite whose variables differ in their sizes.

    Components are divided by the sizes of the variables, and multiplied by the sizes shown
    for the composite, by which the D-study divides again.
    """
    used = np.flatnonzero(w)
    shown: dict[str, Any] = {}
    for f in g.sizes:
        if f == object_:
            continue
        n = [given[f][a] if f in given else g.sizes[f][a] for a in used]
        shown[f] = n[0] if len(set(n)) == 1 else sum(n)
    k = len(g.names)
    spread = np.zeros((k, k, w.size, w.size))
    for t, facets in enumerate(g.facets):
        times = float(np.prod([shown[f] for f in facets - {object_}]))
        spread[t, t] = np.outer(w, w) * divisors[t] * times
    values, cov = g.combined(spread)
    components = replace(
        g.of_weights(w), values=values, cov=cov, sizes={}, inverse_n={}, mean_squares=None
    )
    return components, shown


def _matrices(
    g: CovarianceComponents,
    rows: list[DStudy],
    given: Mapping[str, tuple[Any, ...]],
    object_: str,
    *,
    own: bool,
) -> FloatArray:
    """Return the covariance matrices of universe scores and errors, (3, v, v).

    Their diagonals are the variances in the D-studies of the variables.
    """
    design = rows[0].plan.design
    effects = g.facets if own else tuple(design.closure(f) for f in g.facets)
    divisors, S = divisors_of(replace(g, facets=effects), given, object_), g.known
    matrices = np.zeros((3, g.n_variables, g.n_variables))
    for t, facets in enumerate(effects):
        if facets == {object_}:
            matrices[0] += S[t]
            continue
        matrices[2] += S[t] * divisors[t]
        if object_ in facets:
            matrices[1] += S[t] * divisors[t]
    for a, study in enumerate(rows[:-1]):
        matrices[:, a, a] = [float(study.columns[name][0]) for name in _ERRORS]
    return matrices


def _shares(study: MultivariateDStudy) -> str:
    """Return lines on the shares of the variables in the composite of the first plan."""
    shares = study.shares[0]
    parts = [
        f"{name} {display.percent(universe, 0)} and {display.percent(relative, 0)}"
        for name, universe, relative in zip(study.variables, shares[0], shares[1], strict=True)
    ]
    return (
        "Contributions to the composite's universe-score and relative error variance"
        f"{' (first plan)' if len(study.studies) > 1 else ''}: {'; '.join(parts)}."
    )
