"""Components from elsewhere: published ones with the D-studies of a fit, and those of a table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.data import Reading, Rows
from vcomp.estimators import check_identified, get_estimator
from vcomp.exceptions import PlanError, warn
from vcomp.formula import REPLICATE, RESIDUAL, caller_environment, parse
from vcomp.gtheory.phi_lambda import NO_MEAN, MeanOfScores
from vcomp.gtheory.plan import gstudy_design
from vcomp.gtheory.planned_quantity import HasDStudies
from vcomp.gtheory.universe import positive_size
from vcomp.inference import LevelVariances, Projected, VarianceComponents
from vcomp.inference.intervals import (
    FromComponents,
    IntervalName,
    IntervalSource,
    check_source,
    level_variances,
)
from vcomp.statistics import sum_rows
from vcomp.statistics.batches import few_values

if TYPE_CHECKING:
    from vcomp.inference.resampling import Replicates

_SEPARATOR = re.compile(r"\s*[:×*,]\s*|\s+[xX]\s+")
_ERROR_SUFFIX = re.compile(r"\s*,\s*e$")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PublishedComponents(HasDStudies, display.Printed):
    """Variance components from a table; they have the D-studies of a fitted model.

    Attributes
    ----------
    components : with the design that follows from their names
    mean : of the scores, where it is known

    Examples
    --------
    >>> published = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0})
    >>> published
    PublishedComponents('p x i', p=0.5, i=0.2, Residual=1)
    """

    components: VarianceComponents
    mean: MeanOfScores = NO_MEAN

    def _components(self) -> VarianceComponents:
        return self.components

    def _mean_of_scores(self) -> MeanOfScores:
        return self.mean

    def _source(
        self, interval: IntervalName | IntervalSource | Replicates, negative: Projected
    ) -> IntervalSource:
        if isinstance(interval, str):
            mean = self.mean
            return FromComponents(self.components, interval, negative, mean.beta, mean.cov_beta)
        return check_source(interval)

    def summary(self) -> Any:
        """Return a printable table of the components and their shares.

        Returns
        -------
        statsmodels.iolib.summary.Summary

        Examples
        --------
        >>> print(from_components({"p": 0.5, "i": 0.2, "Residual": 1.3}).summary())
        Published variance components, p × i
        ===================================================
                   estimate    share
        ---------------------------------------------------
        p            0.5000   25.0 %   ████████
        i            0.2000   10.0 %   ███
        Residual     1.3000   65.0 %   ████████████████████
        ---------------------------------------------------
        """
        values = self.components.values
        total = float(np.maximum(values, 0.0).sum())
        shares = np.maximum(values, 0.0) / total if total > 0 else np.full_like(values, np.nan)
        rows = [
            [estimate, display.percent(share), display.bar(share)]
            for estimate, share in zip(display.fixed(values), shares, strict=True)
        ]
        design = str(gstudy_design(self.components)).replace(" x ", " × ")
        table = display.simple_table(
            rows,
            ["estimate", "share", ""],
            title=f"Published variance components, {design}",
            stubs=self.components.names,
            align="rrl",
        )
        return display.summary([table])

    def __repr__(self) -> str:
        pairs = zip(self.components.names, self.components.values, strict=True)
        shown = ", ".join(f"{name}={display.number(value)}" for name, value in pairs)
        return f"PublishedComponents('{gstudy_design(self.components)}', {shown})"


def from_components(
    values: Mapping[str, float],
    cov: Any = None,
    sizes: Mapping[str, float] | None = None,
    mean: float | None = None,
) -> PublishedComponents:
    """Return published variance components, ready for D-studies.

    A component is named by its facets: ``"p:i"``, ``"p x i"``, ``"p*i"``, ``"p,i"``, or ``"pi"``
    where each letter is a facet. ``"Residual"`` has all facets (and ``replicate``, where another
    component has them all already); Brennan's ``",e"`` at the end of the residual may stay. A
    facet that never occurs without another one is nested in it: leave no component out, give 0.

    Parameters
    ----------
    values : of the components by name; negative ones as estimated
    cov : their covariance matrix: a data frame by name, or an array in the order of `values`; nan
        for a component without a standard error
    sizes : of the G-study, for each facet within those that it is nested in
    mean : of all scores of the G-study, for decisions by a cut score; its error variance is that
        of a balanced G-study with these `sizes`

    Raises
    ------
    PlanError
        A name cannot be read, is given twice or names a facet twice; a value is not finite; the
        residual is missing; `cov` or `sizes` do not fit.

    References
    ----------
    Bodoff and Li (2007), SIGIR, eq. (2)-(6), p. 370: the components of the example.

    Examples
    --------
    >>> trec = from_components({"p": .00751, "i": .01596, "a": 0, "pi": .01258, "pa": .00002,
    ...                         "ia": .00143, "pia": .00176})
    >>> nested = trec.dstudy("p x (a:i)", i=20, a=3).table
    >>> nested[["rel_err_var", "abs_err_var"]].round(5)
       rel_err_var  abs_err_var
    0      0.00066      0.00148
    """
    values = dict(values.items()) if hasattr(values, "items") else values
    if not isinstance(values, Mapping) or not values:
        raise PlanError("components are a mapping such as {'p': 0.5, 'i': 0.2, 'Residual': 1.0}")
    terms = _terms(list(values))
    nested_in = _nesting(terms)
    # the residual goes last, as in all tables
    order = sorted(range(len(terms)), key=lambda k: len(terms[k]) == max(map(len, terms)))
    names = list(values)
    matrix = None if cov is None else _covariance(cov, names)[np.ix_(order, order)]
    components = VarianceComponents(
        names=tuple(names[k].strip() for k in order),
        facets=tuple(terms[k] for k in order),
        values=np.array([_value(names[k], values[names[k]]) for k in order]),
        cov=matrix,
        nested_in=nested_in,
        sizes=_gstudy_sizes(sizes or {}, nested_in),
    )
    return PublishedComponents(components, _mean(mean, components))


def _mean(mean: float | None, components: VarianceComponents) -> MeanOfScores:
    """Return the mean of the scores with the error variance of a balanced G-study."""
    if mean is None:
        return NO_MEAN
    if not isinstance(mean, Real) or isinstance(mean, bool) or not math.isfinite(mean):
        raise PlanError(f"the mean of the scores is a finite number, not {mean!r}")
    unknown = [f for f in components.facet_names if f not in components.sizes]
    if unknown:
        raise PlanError(
            f"the error of the mean depends on all sizes of the G-study; sizes= has none of "
            f"{', '.join(unknown)}"
        )
    n = [math.prod(components.sizes[f] for f in facets) for facets in components.facets]
    variance = max(float(components.values @ (1.0 / np.array(n))), 0.0)
    return MeanOfScores(np.array([float(mean)]), np.array([[variance]]), is_mean=True)


def _terms(names: Sequence[str]) -> list[frozenset[str]]:
    """Return the facets of each component."""
    parts = {name: _parts(name, names) for name in names}
    written = [p for name in names for p in parts[name]]
    letters = frozenset(p for p in written if len(p) == 1)
    terms: dict[str, frozenset[str]] = {}
    for name in names:
        facets = [f for p in parts[name] for f in (p if set(p) <= letters else [p])]
        twice = [f for f in facets if facets.count(f) > 1]
        if twice:
            raise PlanError(f"component {name!r} names facet {twice[0]!r} twice")
        terms[name] = frozenset(facets)
    everything = frozenset().union(*terms.values())
    if not everything:
        raise PlanError("no component names a facet; the residual alone has no D-study")
    replicated = any(term == everything for term in terms.values())
    for name in names:
        if not parts[name]:
            terms[name] = everything | {REPLICATE} if replicated else everything
    for k, name in enumerate(names):
        same = [other for other in names[:k] if terms[other] == terms[name]]
        if same:
            raise PlanError(f"components {same[0]!r} and {name!r} have the same facets")
    if everything not in terms.values():
        raise PlanError(
            f"no component has all facets ({', '.join(sorted(everything))}): the residual is "
            f"missing, or a name is not read as meant. Write {RESIDUAL!r} for the residual, and "
            "colons between facets, as in 'p:i'"
        )
    return [terms[name] for name in names]


def _parts(name: str, names: Sequence[str]) -> list[str]:
    """Return the words of a name; none of the residual's."""
    if not isinstance(name, str):
        raise PlanError(f"components are named by text such as 'p:i', not {name!r}")
    text = name.strip()
    if text.lower() == RESIDUAL.lower():
        return []
    if "e" not in names:
        text = _ERROR_SUFFIX.sub("", text)
    parts = _SEPARATOR.split(text.replace("(", "").replace(")", ""))
    if not all(parts) or any(re.search(r"\s", p) for p in parts):
        raise PlanError(f"cannot read component {name!r}; write colons between facets, as 'p:i'")
    return parts


def _nesting(terms: Sequence[frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return for each facet those without which it never occurs."""
    facets = sorted(frozenset().union(*terms))
    nested_in = {f: frozenset.intersection(*(t for t in terms if f in t)) - {f} for f in facets}
    for facet, above in nested_in.items():
        for other in sorted(above):
            if facet in nested_in[other]:
                raise PlanError(
                    f"{facet!r} and {other!r} always occur together, so it is not clear which "
                    "is nested in which; add a component of the outer one, as 0 if it is not known"
                )
    return nested_in


def _value(name: str, value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise PlanError(f"component {name!r} must be a finite number, not {value!r}")
    return float(value)


def _covariance(cov: Any, names: list[str]) -> FloatArray:
    k = len(names)
    labels = getattr(cov, "columns", None)
    if labels is not None:
        strange = sorted(set(names).symmetric_difference(labels), key=str)
        if strange or set(cov.index) != set(names):
            raise PlanError(f"cov must have the components {names} as rows and columns")
        cov = cov.loc[names, names].to_numpy()
    try:
        matrix = np.asarray(cov, dtype=float)
    except (TypeError, ValueError):
        raise PlanError(f"cov is a matrix of numbers or a frame, not {cov!r}") from None
    if matrix.shape != (k, k):
        raise PlanError(f"cov must be {k} × {k}, one row a component, not of shape {matrix.shape}")
    if np.isinf(matrix).any() or not np.allclose(matrix, matrix.T, equal_nan=True):
        raise PlanError("cov must be symmetric, and finite or nan")
    if (np.diagonal(matrix) < 0).any():
        at = names[int(np.flatnonzero(np.diagonal(matrix) < 0)[0])]
        raise PlanError(f"cov has a negative variance for component {at!r}")
    known = ~np.isnan(np.diagonal(matrix))
    eigenvalues = np.linalg.eigvalsh(matrix[np.ix_(known, known)])
    if known.any() and eigenvalues[0] < -1e-8 * abs(eigenvalues[-1]):
        raise PlanError("cov is not a covariance matrix: some combination has a negative variance")
    return matrix


def _gstudy_sizes(
    sizes: Mapping[str, float], nested_in: Mapping[str, frozenset[str]]
) -> dict[str, float]:
    for facet in sizes:
        if facet not in nested_in:
            raise PlanError(f"sizes has {facet!r}; the facets are {', '.join(sorted(nested_in))}")
    return {facet: float(positive_size(facet, n)) for facet, n in sizes.items()}


# Components of a table of scores -----------------------------------------------------------------


def crossed_components(
    scores: FloatArray, levels: Mapping[str, LongArray], method: str
) -> tuple[VarianceComponents, Callable[[], LevelVariances]]:
    """Return the components of crossed facets and of the residual, and what robust ones need.

    Parameters
    ----------
    scores : (n,) the scores that there are
    levels : facet → (n,) number of the level of each score. With one facet the residual is that of
        replicates
    method : of estimation, such as ``"reml"``

    Returns
    -------
    components : estimates with their covariance
    influences : sums the influences of the scores by level, for robust intervals; as
        :func:`~vcomp.inference.intervals.level_variances`

    Raises
    ------
    DesignError
        If the components cannot be distinguished with these cells, or nothing is left for the
        residual.
    EstimationError
        If the method has no estimate.

    Warns
    -----
    VcompWarning
        If the estimation did not converge.

    Examples
    --------
    >>> import numpy as np
    >>> topic, system = (a.ravel() for a in np.indices((3, 3)))
    >>> scores = np.array([0.3, 0.5, 0.1, 0.4, 0.5, 0.4, 0.2, 0.5, 0.3])
    >>> found, _ = crossed_components(scores, {"system": system, "topic": topic}, "anova")
    >>> found.values.round(4)
    array([0.0128, 0.0017, 0.0094])
    """
    terms = tuple(levels)
    reading = Reading(caller_environment(0, 0), "raise")
    parsed = parse("score ~ " + " + ".join(f"(1|{term})" for term in terms))
    selected = Rows.select(parsed, {"score": scores, **levels}, reading)
    summed = sum_rows(parsed, selected, reading)
    stats, design = summed.statistics, summed.design
    check_identified(stats, terms, design.fixed.names, design.x_origin)
    estimate = get_estimator(method).estimate(stats, (*terms, RESIDUAL))
    if not estimate.converged:
        warn(estimate.status)
    everything = frozenset(terms) if len(terms) > 1 else frozenset({*terms, REPLICATE})
    components = VarianceComponents(
        names=estimate.names,
        facets=(*(frozenset({term}) for term in terms), everything),
        values=estimate.values,
        cov=next(iter(estimate.covariances.values())),
        without_bounds=estimate.without_bounds,
        response_values=few_values(scores),
    )

    def influences() -> LevelVariances:
        return level_variances(design, stats, summed.total, estimate.values)

    return components, influences
