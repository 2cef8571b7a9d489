"""The jackknife over the levels of a facet: the fit is repeated without each level.

Pseudo-values n_h θ̂ − (n_h − 1)θ̂_(−hj) of level j of the n_h in group h give the estimate, its
variance and Σ_h (n_h − 1) degrees of freedom (docs/explanation/mathematics.md, eq. (10.13)).
Groups are the levels of the facets that the facet is nested in; there is one if it is not nested.

References
----------
Tukey (1958), Bias and confidence in not-quite large samples; Jones (1974), Jackknife estimation of
functions of stratum means; Brennan (2001), Generalizability Theory, sec. 6.2; Shao and Tu (1995),
The Jackknife and Bootstrap, secs. 1.2 and 6.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.design import Design
from vcomp.exceptions import DataError, EstimationError, check_alpha
from vcomp.formula import parameter_names
from vcomp.inference.intervals import Limits
from vcomp.inference.quantities import Quantities, Scale, Smooth
from vcomp.inference.resampling.collection import (
    GeneratingFit,
    Work,
    check_refits,
    replicates_of,
    report_failures,
)
from vcomp.inference.resampling.deleted_surface import DeletedSurface
from vcomp.inference.resampling.facet import check_levels
from vcomp.inference.resampling.refits import Refitted
from vcomp.inference.resampling.replicates import TRANSFORMS, Replicates
from vcomp.inference.resampling.row_samples import Levels, Sample, check_facets
from vcomp.numerics import PATIENCE, check_count, check_time_limit, limited_blas, run
from vcomp.statistics import StackTables, Statistics

if TYPE_CHECKING:
    import pandas as pd

JackknifeScale: TypeAlias = Literal["natural", "log", "logit"]

KIND = "jackknife"
_NATURAL = "a quantity at its bound without some level has its interval on the natural scale"
_FEWEST = 3
"""Smallest number of levels: of two, one would be left, which has no variance."""


@dataclass(frozen=True, slots=True, eq=False)
class Jackknifed:
    """The jackknife of one quantity.

    Attributes
    ----------
    value : the estimate from all data
    estimate : the mean of the pseudo-values on the requested scale, transformed back
    se : standard error on the natural scale
    low, high : ends of the t interval on the requested scale, transformed back
    df : degrees of freedom
    pseudo_values : of each level that was left out, on the requested scale
    """

    value: float
    estimate: float
    se: float
    low: float
    high: float
    df: int
    pseudo_values: FloatArray = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Jackknife(Replicates):
    """Estimates without each level of a facet, and the intervals that follow from them.

    As replicates they have a row for each level; ``adjusted`` are the pseudo-values.

    Attributes
    ----------
    facet : whose levels were left out
    whole, whole_beta : (k + 1,) and (p,) components and fixed effects from all data
    groups : for each row the combination of levels of the facets that the facet is nested in; one
        if it is not nested
    levels : the level that each row is without, as text
    signed : (k + 1,) whether a component may be below zero: a covariance of slopes

    Examples
    --------
    >>> import vcomp
    >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    >>> left_out = res.jackknife("topic")
    >>> left_out.df == len(left_out) - 1
    True
    >>> share = left_out.of(lambda v: v[:, 0] / v.sum(axis=1), transform="logit")
    >>> share.low < share.estimate < share.high
    True
    """

    facet: str
    whole: FloatArray
    whole_beta: FloatArray
    groups: LongArray
    levels: tuple[str, ...]
    signed: BoolArray

    _arrays: ClassVar[tuple[str, ...]] = (
        *Replicates._arrays, "whole", "whole_beta", "groups", "signed"
    )  # fmt: skip

    @property
    def interval(self) -> str:
        """The name of this source of intervals, ``"jackknife"``."""
        return KIND

    @property
    def df(self) -> int:
        """Degrees of freedom of intervals: the number of levels minus that of groups."""
        return int(self.groups.size - np.unique(self.groups).size)

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each level that was left out, with the columns of other replicates.

        The index has the levels.
        """
        import pandas as pd

        frame = super(Jackknife, self).frame
        return frame.set_index(pd.Index(self.levels, name=self.facet))

    def first(self, n: int) -> Jackknife:
        """Refuse: without some of its levels a jackknife has no standard error.

        Parameters
        ----------
        n : number of replicates that would be kept

        Returns
        -------
        Jackknife
            Never.

        Raises
        ------
        DataError
            Always.
        """
        raise DataError(
            f"a jackknife needs all levels of {self.facet!r}, not the first {n} only",
            column=self.facet,
        )

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return t-intervals of the components, in columns 0 and 1, on the log scale.

        Those of covariances of slopes are on the natural scale.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha

        Raises
        ------
        EstimationError
            If an estimate is missing.
        PlanError
            If alpha is not between 0 and 1.
        """
        import pandas as pd

        found = self.limits(Quantities("linear", np.eye(len(self.names))), alpha)
        names = parameter_names(self.names)
        return pd.DataFrame({0: found.low, 1: found.high}, index=names)

    def of(
        self,
        function: Callable[[FloatArray], FloatArray],
        *,
        alpha: float = 0.05,
        transform: JackknifeScale = "natural",
    ) -> Jackknifed:
        """Return the jackknife of one quantity.

        Parameters
        ----------
        function : of (B, k + 1) components, in the order of ``names``; it returns (B,)
            values
        alpha : the interval has confidence 1 − alpha
        transform : scale on which pseudo-values are made and averaged: ``"natural"``, ``"log"``
            for quantities above 0, ``"logit"`` for quantities between 0 and 1

        Raises
        ------
        EstimationError
            If the function does not return one number for each row, a value is outside the domain
            of the transform, or the transform is not known.
        PlanError
            If alpha is not between 0 and 1.
        """
        value, left = self._values(function)
        return self._jackknifed(value, left, alpha, transform)

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        """Return intervals of several quantities: variances on the log scale, shares on the logit.

        A quantity that is at its bound, in all data or without some level, has its interval on
        the natural scale, with a note. So has one with covariances, which may be negative.

        Parameters
        ----------
        quantities : of the components, and of the fixed effects
        alpha : intervals have confidence 1 − alpha

        Raises
        ------
        EstimationError
            If an estimate is missing.
        PlanError
            If alpha is not between 0 and 1.
        """
        check_alpha(alpha)
        scale = _SCALE_OF[quantities.scale]
        whole, left = self._quantities(quantities)
        ends = np.full((2, whole.size), np.nan)
        bounded: BoolArray = np.ones(whole.size, dtype=bool)
        if isinstance(quantities, Quantities):
            bounded = np.asarray(~quantities.used[:, self.signed].any(axis=1))
        natural = False
        for place, column in enumerate(left.T):
            both = np.append(column, whole[place])
            if not np.isfinite(both).all():
                continue
            inside = bool(_is_inside(both, scale).all())
            own = scale if inside and bounded[place] else "natural"
            natural |= not inside and bounded[place]
            found = self._jackknifed(whole[place], column, alpha, own)
            ends[:, place] = found.low, found.high
        words = f"jackknife over {self.facet}, t with {self.df} df on the {scale} scale"
        return Limits(ends[0], ends[1], words, (_NATURAL,) if natural else ())

    def standard_errors(self, quantities: Quantities | Smooth) -> FloatArray:
        """Return the standard errors of several quantities, nan where one is not defined.

        Parameters
        ----------
        quantities : of the components, and of the fixed effects
        """
        whole, left = self._quantities(quantities)
        return np.array([self._combined(x, y)[2] for x, y in zip(whole, left.T, strict=True)])

    def _quantities(self, quantities: Quantities | Smooth) -> tuple[FloatArray, FloatArray]:
        """Return (m,) values from all data and (J, m) values without each level."""
        left = self._estimates()
        if isinstance(quantities, Quantities):
            return quantities.values(self.whole), quantities.values(left)
        pairs = zip(left, self.beta, strict=True)
        values = np.array([[quantities.function(v, b)] for v, b in pairs])
        return np.array([quantities.function(self.whole, self.whole_beta)]), values

    def _jackknifed(
        self, value: float, left: FloatArray, alpha: float, scale: JackknifeScale
    ) -> Jackknifed:
        from scipy.special import stdtrit

        check_alpha(alpha)
        if scale not in get_args(JackknifeScale):
            known = ", ".join(map(repr, get_args(JackknifeScale)))
            raise EstimationError(f"transform={scale!r} is not known; it is one of {known}")
        _check_domain(np.append(left, value), scale)
        to, back = _TRANSFORMS[scale]
        pseudo, centre, se = self._combined(float(to(np.array([value]))[0]), to(left))
        _, _, natural = self._combined(value, left)
        margin = float(stdtrit(self.df, 1.0 - alpha / 2.0)) * se
        low, middle, high = back(np.array([centre - margin, centre, centre + margin])).tolist()
        return Jackknifed(float(value), middle, natural, low, high, self.df, pseudo)

    def _estimates(self) -> FloatArray:
        if not self.converged.all():
            failed = int((~self.converged).sum())
            raise EstimationError(
                f"the jackknife over {self.facet} is not complete: {failed} of "
                f"{len(self)} estimates are missing"
            )
        return self.values

    def _values(self, function: Callable[[FloatArray], FloatArray]) -> tuple[float, FloatArray]:
        every = np.vstack([self.whole, self._estimates()])
        values = np.asarray(function(every), dtype=float)
        if values.shape != (len(every),):
            raise EstimationError(
                f"the function returned shape {values.shape} for {len(every)} rows of components; "
                "it must return one number for each row, such as lambda v: v[:, 0] / v.sum(axis=1)"
            )
        return float(values[0]), values[1:]

    def _combined(self, whole: float, left: FloatArray) -> tuple[FloatArray, float, float]:
        """Return pseudo-values, their combined mean, and its standard error."""
        pseudo = pseudo_values(np.asarray(whole), left[:, None], self.groups)[:, 0]
        centre, variance = whole, 0.0
        for group in np.unique(self.groups):
            own = pseudo[self.groups == group]
            centre += float(own.mean() - whole)
            variance += float(own.var(ddof=1)) / own.size
        return pseudo, centre, float(np.sqrt(variance))


def jackknife(
    fit: GeneratingFit,
    design: Design,
    facet: str,
    *,
    workers: int = 1,
    progress: bool | None = None,
    time_limit: float | None = None,
) -> Jackknife:
    """Return the estimates without each level of a facet.

    A level of a nested facet belongs to one group of levels that the facet is nested in; the only
    level of a group is not left out.

    Parameters
    ----------
    fit : the fit that is repeated, with the statistics of its rows
    design : of its data
    facet : whose levels are left out
    workers : number of threads
    progress : whether to show a bar; None shows one if stderr is a terminal
    time_limit : expected seconds up to which fits are made one by one; None stands for ten minutes

    Raises
    ------
    EstimationError
        If the facet is not one of the random part, or has fewer than three levels (two in some
        group, if nested); if more time is expected; or if no refit succeeded.

    Warns
    -----
    VcompWarning
        If an estimate is missing; there are then no standard errors.
    """
    (name,) = check_facets(design, facet)
    workers = check_count(workers, "workers")
    rows, structure = fit.stats.separable_rows, design.structure
    whole = Sample.whole(rows)
    levels = Levels.of(whole, structure.facets, structure.nested_in, name)
    check_levels(design, levels, 2 if structure.nested_in[name] else _FEWEST)
    left_out = np.flatnonzero(levels.last - levels.first > 1)

    found = without_each(
        fit, design, levels, left_out, workers=workers, progress=progress, time_limit=time_limit
    )
    fingerprint = {**fit.fingerprint(), "facets": [name]}
    made = replicates_of(fit, found, KIND, fingerprint, 0, left_out.size)
    report_failures(made, found.values(), f"fits without one {name}")
    groups, formula = levels.first[left_out], design.formula
    stored = {f.name: getattr(made, f.name) for f in fields(made)}
    stored["adjusted"] = pseudo_values(fit.values, made.values, groups)
    return Jackknife(
        **stored,
        facet=name,
        whole=fit.values,
        whole_beta=fit.uncentre(fit.beta),
        groups=groups,
        levels=levels_in_words(design, levels, whole, left_out),
        signed=np.isin(fit.recipe.names, formula.component_names[len(formula.random) :]),
    )


def _with_fewer_levels(few: int, seconds: int) -> str:
    return (
        f"use a facet with at most {display.counted(few, 'level')}, or pass time_limit={seconds}; "
        "robust intervals need no further fits"
    )


def without_each(
    fit: GeneratingFit,
    design: Design,
    levels: Levels,
    left_out: LongArray,
    *,
    workers: int,
    progress: bool | None,
    time_limit: float | None = None,
) -> dict[int, Refitted]:
    """Return the estimates without each of some levels, by number.

    The sums of a level's rows are taken off those of all rows. Many small data sets are then
    fitted together; of larger ones the likelihoods follow from those of all rows.

    Parameters
    ----------
    fit : the fit that is repeated, with the statistics of its rows
    design : of its data
    levels : the rows of each level
    left_out : (J,) levels that are left out
    workers : number of threads
    progress : whether to show a bar; None shows one if stderr is a terminal
    time_limit : expected seconds up to which fits are made one by one; None stands for ten minutes

    Raises
    ------
    EstimationError
        If more seconds are expected, or the limit is no positive number.
    """
    check_time_limit(time_limit)
    patience = PATIENCE if time_limit is None else time_limit
    rows = fit.stats.separable_rows
    whole, n = Sample.whole(rows), left_out.size

    def without(number: int) -> Statistics:
        chosen = levels.without(int(left_out[number]))
        return levels.take(whole, chosen).statistics(design, rows)

    def alone(number: int) -> Refitted:
        kept = fit.components_of(np.delete(whole.rows, parts[number]))
        return fit.refit(design, partial(without, number), kept)

    parts = [levels.rows(int(level)) for level in left_out]
    stacked = fit.stacked()
    seconds = None if stacked is None else stacked.seconds
    with limited_blas(0):
        surface = DeletedSurface.of(fit.stats, fit.recipe, fit.values, parts, alone=seconds)
    if stacked is not None and surface is None:

        def deleted(numbers: Sequence[int]) -> dict[int, StackTables]:
            return {b: stacked.tables.without(stacked.of_rows(parts[b])) for b in numbers}

        together = stacked.together(deleted, alone)
        return run(lambda: together, range(n), workers=workers, progress=progress, label=KIND)
    with limited_blas(0):
        known = [None] * n if surface is None else surface.refitted()
    found = {b: made for b, made in enumerate(known) if made is not None}
    rest = [b for b in range(n) if b not in found]
    several = fit.refits_of_strata(design, without)
    if several is None and rest:
        check_refits(fit.seconds / workers, len(rest), _with_fewer_levels, patience)
    work: Work = alone if several is None else several
    return found | run(lambda: work, rest, workers=workers, progress=progress, label=KIND)


def pseudo_values(whole: FloatArray, left: FloatArray, groups: LongArray) -> FloatArray:
    """Return the pseudo-values n_h θ̂ − (n_h − 1) θ̂_(−hj), eq. (10.13).

    Parameters
    ----------
    whole : (m,) estimates from all data, or one number
    left : (J, m) estimates without each level
    groups : (J,) group of each level
    """
    _, place, counts = np.unique(groups, return_inverse=True, return_counts=True)
    n = counts[place][:, None]
    return n * whole - (n - 1) * left


def levels_in_words(
    design: Design, levels: Levels, whole: Sample, chosen: LongArray
) -> tuple[str, ...]:
    """Return the names of levels, after those that they are nested in.

    Parameters
    ----------
    design : of the data
    levels : the rows of each level
    whole : the sample of all rows
    chosen : levels that are named
    """
    structure = design.structure
    name = design.facets[levels.facet].name
    places = [f for f, n in enumerate(structure.facets) if n in structure.nested_in[name]]
    rows = levels.order[levels.starts[:-1]][chosen]
    columns = [
        design.facets[f].levels.take(whole.codes[f][rows]).astype(str)
        for f in (*places, levels.facet)
    ]
    return tuple(":".join(parts) for parts in zip(*columns, strict=True))


_SCALE_OF: dict[Scale, JackknifeScale] = {"variance": "log", "share": "logit", "real": "natural"}
_TRANSFORMS = {name: TRANSFORMS[place] for place, name in _SCALE_OF.items()}


def _is_inside(values: FloatArray, scale: JackknifeScale) -> BoolArray:
    inside: BoolArray = np.isfinite(values)
    if scale != "natural":
        inside &= values > 0.0
    if scale == "logit":
        inside &= values < 1.0
    return inside


def _check_domain(values: FloatArray, scale: JackknifeScale) -> None:
    outside = int((~_is_inside(values, scale)).sum())
    if outside:
        where = {"natural": "are not finite", "log": "are not above 0"}
        raise EstimationError(
            f"{outside} of {values.size} values {where.get(scale, 'are not between 0 and 1')}, as "
            f"transform={scale!r} needs them; "
            + ("the function is undefined there" if scale == "natural" else "use 'natural'")
        )
