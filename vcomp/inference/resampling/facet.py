"""The bootstrap of levels: levels of one facet, or of several, are drawn with replacement.

No distribution of the effects is assumed. All rows of a level are drawn together, and a level that
is drawn twice becomes two levels, each with its own levels of the facets nested in it; a nested
facet is drawn within the facets that it is nested in. Adjusted replicates are corrected for the
bias of resampling, docs/explanation/mathematics.md, eq. (10.12).

References
----------
Brennan, Harris and Hanson (1987), The Bootstrap and Other Procedures for Examining the
Variability of Estimated Variance Components in Testing Contexts (boot-p, boot-i, boot-p,i);
Wiley (2000), Bootstrap Strategies for Variance Component Estimation; Brennan (2001),
Generalizability Theory, sec. 6.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from os import PathLike
from typing import Any

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.design import Design, LevelGroups, codes_of_facet
from vcomp.exceptions import EstimationError
from vcomp.formula import closure, refuse, traits_of
from vcomp.inference.quantities import VarianceComponents
from vcomp.inference.resampling.collection import (
    GeneratingFit,
    Work,
    check_refits,
    collect,
    for_each_thread,
    with_limit,
)
from vcomp.inference.resampling.replicates import Replicates
from vcomp.inference.resampling.row_samples import Levels, Sample, check_facets
from vcomp.numerics import BatchedWork, check_count, check_rng, check_time_limit, solve, stream
from vcomp.statistics import Statistics


def expectation(
    components: VarianceComponents, facet: str, n_groups: int | None = None
) -> FloatArray:
    """Return A with E* σ̂²* = A σ̂² over all resamples of a facet, eq. (10.12), (k + 1, k + 1).

    It is exact for the analysis of variance of balanced data with a term for every effect; with
    fewer terms it holds in expectation under the model; for unbalanced data it is an
    approximation with harmonic means of the sizes.

    Parameters
    ----------
    components : their facets, nesting and sizes are used, not their values
    facet : the resampled facet
    n_groups : groups of its levels, if whole groups are drawn; it then holds in expectation under
        the model, for groups of one size

    Raises
    ------
    EstimationError
        If a size is not known, or the components cannot be distinguished at these sizes.

    Examples
    --------
    >>> from vcomp.gtheory import from_components
    >>> g = from_components({"p": 1.0, "i": 1.0, "pi": 1.0}, sizes={"p": 10, "i": 4})
    >>> expectation(g.components, "p").round(3)
    array([[0.9, 0. , 0. ],
           [0. , 1. , 0.1],
           [0. , 0. , 0.9]])
    """
    sizes, nested_in = components.sizes, components.nested_in
    terms, everything = components.facets, components.facets[-1]
    unknown = sorted(everything - sizes.keys())
    if unknown:
        raise EstimationError(
            f"the adjustment needs the number of levels of every facet; that of {unknown[0]!r} "
            "is not known"
        )
    outer = closure(frozenset({facet}), nested_in) - {facet}
    rows = [*terms[:-1], everything, frozenset[str]()]
    expected = np.array([_coefficients(s, terms, sizes) for s in rows])
    added = np.zeros_like(expected)
    for row, s in enumerate(rows):
        if facet not in s:
            around = s | outer
            inside = around | {facet}
            share = _group_size(inside, everything, sizes) / _group_size(s, everything, sizes)
            added[row] = share * (
                _coefficients(inside, terms, sizes) - _coefficients(around, terms, sizes)
            )
    if n_groups is not None:
        # Two drawn levels are the same one if their groups are, and only then.
        n = sizes[facet]
        added *= (n - n / n_groups) / (n - 1.0)
    left, change = expected[:-1] - expected[-1], added[:-1] - added[-1]
    try:
        return np.eye(len(terms)) + solve(left, change)
    except np.linalg.LinAlgError:
        raise EstimationError(
            "components cannot be distinguished at the sizes "
            + ", ".join(f"{f} {n:g}" for f, n in sizes.items())
            + "; adjust=False leaves the replicates as they are"
        ) from None


def adjusted(
    values: FloatArray,
    components: VarianceComponents,
    facets: Sequence[str],
    n_groups: Mapping[str, int] | None = None,
) -> FloatArray:
    """Return replicates A⁻¹σ̂²*, corrected for the bias of resampling, eq. (10.12).

    Parameters
    ----------
    values : (B, k + 1) estimates; nan stays nan
    components : their facets, nesting and sizes are used
    facets : in the order in which they were drawn
    n_groups : numbers of groups of facets whose levels were drawn by group

    Raises
    ------
    EstimationError
        As :func:`expectation` does.
    """
    whole = np.eye(len(components.names))
    for facet in facets:
        whole = expectation(components, facet, (n_groups or {}).get(facet)) @ whole
    try:
        return solve(whole, values.T).T
    except np.linalg.LinAlgError:
        raise EstimationError(
            "replicates cannot be adjusted if a facet has one level: adjust=False leaves them as "
            "they are"
        ) from None


def _coefficients(
    s: frozenset[str], terms: Sequence[frozenset[str]], sizes: Mapping[str, float]
) -> FloatArray:
    """Return the coefficients of the components in E T_S: N n_{S∪β}/n_S."""
    everything = terms[-1]
    n, n_s = _group_size(frozenset(), everything, sizes), _group_size(s, everything, sizes)
    return np.array([n * _group_size(s | t, everything, sizes) / n_s for t in terms])


def _group_size(
    s: frozenset[str], everything: frozenset[str], sizes: Mapping[str, float]
) -> float:
    """Return n_S, the number of rows in a group of the facets S."""
    return float(prod(sizes[f] for f in everything - s))


KIND = "facet bootstrap"


class FacetSample:
    """Draws rows by the levels of facets.

    Parameters
    ----------
    design : of the data
    stats : of the data, with their rows, or cells of rows with products
    facets : the resampled facets, nested ones after those that they are nested in
    groups : group of each level of facets whose levels are drawn by whole groups

    Raises
    ------
    EstimationError
        If one of them has fewer than two levels.
    """

    def __init__(
        self,
        design: Design,
        stats: Statistics,
        facets: Sequence[str],
        groups: Mapping[str, LongArray],
    ) -> None:
        self._design, self._facets = design, facets
        self._members = {
            facet: [np.flatnonzero(codes == g) for g in range(int(codes.max()) + 1)]
            for facet, codes in groups.items()
        }
        self._whole = Sample.whole(stats.separable_rows)
        for facet in facets:
            check_levels(design, self.levels(self._whole, facet))
        self._first = self.levels(self._whole, facets[0])

    def levels(self, sample: Sample, facet: str) -> Levels:
        """Return the rows of a sample by the levels of a facet."""
        structure = self._design.structure
        return Levels.of(sample, structure.facets, structure.nested_in, facet)

    def draw(self, rng: np.random.Generator) -> Sample:
        """Return the rows of a resample."""
        sample, levels = self._whole, self._first
        for place, facet in enumerate(self._facets):
            if place:
                levels = self.levels(sample, facet)
            sample = levels.take(sample, self._drawn(facet, levels, rng))
        return sample

    def _drawn(self, facet: str, levels: Levels, rng: np.random.Generator) -> LongArray:
        members = self._members.get(facet)
        if members is None:
            return levels.draw(rng)
        chosen = rng.integers(len(members), size=len(members))
        return np.concatenate([members[g] for g in chosen])


def check_levels(design: Design, levels: Levels, fewest: int = 2) -> None:
    """Refuse a facet with too few levels to be drawn or left out.

    Raises
    ------
    EstimationError
        If it has too few; the message has their number.
    """
    name = design.facets[levels.facet].name
    above = sorted(design.structure.nested_in[name])
    most = int(levels.per_group.max())
    if most < fewest:
        within = f" within each {' and '.join(above)}" if above else ""
        number = "one level" if most == 1 else f"{most} levels"
        raise EstimationError(
            f"facet {name!r} has {number}{within}; resampling needs at least {fewest}", column=name
        )


def facet_bootstrap(
    fit: GeneratingFit,
    design: Design,
    components: VarianceComponents,
    facets: str | Sequence[str],
    n: int = 1000,
    *,
    rng: int | np.random.Generator | None = None,
    adjust: bool = True,
    groups: Mapping[str, LevelGroups] | None = None,
    workers: int = 1,
    time_limit: float | None = None,
    path: str | PathLike[str] | None = None,
    progress: bool | None = None,
) -> Replicates:
    """Return estimates of `n` resamples of the levels of facets.

    Parameters
    ----------
    fit : the fit that is repeated, with the statistics of its rows
    design : of its data
    components : its estimates with their facets, nesting and sizes
    facets : whose levels are drawn: one, or several, each drawn independently
    n : number of replicates
    rng : seed, or a generator from which one is drawn; 0 if not given. Replicate b has its own
        stream ``SeedSequence(seed, spawn_key=(b,))``
    adjust : whether ``replicates.adjusted`` has components corrected for the bias of resampling
    groups : of facets whose levels are drawn by whole groups: the group of each level, by facet
    workers : number of threads, which changes the numbers by rounding at most: many
        small data sets, or alike ones, are fitted together
    time_limit : seconds after which no replicate is started; finished ones are kept, with a
        warning
    path : of a file to which replicates are saved; if it exists, only missing ones are computed
    progress : whether to show a bar; None shows one if stderr is a terminal

    Raises
    ------
    EstimationError
        If a facet is not one of the random part or has fewer than two levels, if its levels have
        residual variances of their own, or an option is invalid; if no resample could be fitted,
        or an adjustment is requested and components are held, or the model has random slopes or
        several residual variances.
    DataError
        If the file is not one of replicates, or of another fit, seed or facet.

    Warns
    -----
    VcompWarning
        If some resamples could not be fitted (their rows are nan and not converged), or the time
        limit ended the work.
    """
    names = check_facets(design, facets)
    n, workers = check_count(n, "n"), check_count(workers, "workers")
    check_time_limit(time_limit)
    if not isinstance(adjust, bool | np.bool_):
        raise EstimationError(f"adjust must be True or False, not {adjust!r}")
    if adjust:
        has, leave = traits_of(design.formula), "use adjust=False"
        refuse("the adjustment of replicates", has, slopes=leave, residuals=leave)
    _check_residuals(design, names)
    if adjust and components.held:
        raise EstimationError(
            f"replicates cannot be adjusted if {', '.join(components.held)} is held: the "
            "adjustment needs estimates of all components; use adjust=False",
            term=components.held[0],
        )
    check_rng(rng)
    codes = _groups_of(design, names, groups)
    sample = FacetSample(design, fit.stats, names, codes)
    drawn = {facet: code.tolist() for facet, code in codes.items()}
    details: dict[str, Any] = {"facets": list(names), "groups": drawn or None}

    def begin(seed: int) -> Callable[[], Work]:
        def work() -> Work:
            return fit.refits_of_samples(design, lambda b: sample.draw(stream(seed, b)))

        first = work()
        if time_limit is None and not isinstance(first, BatchedWork):
            check_refits(fit.seconds / workers, n, with_limit)
        return for_each_thread(first, work)

    made = collect(
        fit,
        KIND,
        details,
        begin,
        n,
        rng=rng,
        workers=workers,
        time_limit=time_limit,
        path=path,
        progress=progress,
        label=KIND,
        what="resamples",
    )
    return _with_adjustment(made, fit, design, components, names, codes) if adjust else made


def _check_residuals(design: Design, names: Sequence[str]) -> None:
    """Refuse to draw levels that have a residual variance each: those drawn have the same ones."""
    groups = design.formula.groups
    for name in names:
        if groups is not None and name in groups.facets:
            raise EstimationError(
                f"each level of {name!r} has a residual variance (residual={groups.written!r}), "
                "which says nothing of levels that are drawn; use bootstrap, which draws from the "
                "fit, or resample another facet",
                column=name,
            )


def _groups_of(
    design: Design, names: Sequence[str], groups: Mapping[str, LevelGroups] | None
) -> dict[str, LongArray]:
    """Return the group of each level of facets that are drawn by group.

    Raises
    ------
    EstimationError
        If a facet is not drawn, or `groups` is not a mapping of facets.
    DataError
        If a facet is nested, a level has no group, or all have the same.
    """
    if groups is None:
        return {}
    if not isinstance(groups, Mapping) or not groups or not set(groups) <= set(names):
        raise EstimationError(
            "groups= are of drawn facets, such as {'sys': {'run1': 'A', 'run2': 'B'}}; the drawn "
            f"facets are {', '.join(map(repr, names))}"
        )
    return {facet: codes_of_facet(given, design, facet) for facet, given in groups.items()}


def _with_adjustment(
    made: Replicates,
    fit: GeneratingFit,
    design: Design,
    components: VarianceComponents,
    facets: Sequence[str],
    groups: Mapping[str, LongArray],
) -> Replicates:
    """Return the replicates with adjusted components and notes on approximations."""
    n_groups = {facet: int(codes.max()) + 1 for facet, codes in groups.items()}
    unit = np.ones(made.values.shape[1])
    unit[-1] = fit.stats.mean_weight  # the residual of a score of mean weight is as a score's
    values: FloatArray = adjusted(made.values / unit, components, facets, n_groups) * unit
    notes = []
    if fit.stats.log_weights is not None:
        notes.append("the adjustment, which is exact for equal weights, uses their mean")
    for facet, codes in groups.items():
        if np.ptp(np.bincount(codes)) > 0:
            notes.append(f"the adjustment uses the mean size of the groups of {facet}")
    if not design.structure.balanced:
        notes.append("the adjustment, which is exact for balanced data, uses mean sizes here")
    method = fit.recipe.estimator.name
    if method in ("reml", "ml") and (made.values == 0.0).any():
        notes.append("estimates at their bound 0 are adjusted as if there were no bound")
    if method == "ml":
        notes.append("the adjustment is for unbiased estimates, which those of ML are not")
    return replace(made, adjusted=values, notes=tuple(notes))
