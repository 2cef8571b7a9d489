"""How the estimates of several measures vary together: the same levels left out of all of them.

A level of a facet has an influence on an estimate: with pseudo-values p_hj of the levels j of a
group h of n_h it is I_hj = (p_hj − p̄_h)/√(n_h (n_h − 1)), and the jackknife's variance is the sum
of their squares. Estimates of two measures share the influences of the levels that both have; the
sum of their products is the jackknife's covariance. Over several facets, whose levels are drawn
independently, both add up. (That counts what depends on levels of two facets twice, in variances
as in covariances.)

References
----------
Efron and Stein (1981), The Jackknife Estimate of Variance, Annals of Statistics 9, 586-596;
Shao and Tu (1995), The Jackknife and Bootstrap, sec. 2.1.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, LongArray
from vcomp.dstudy import DStudy
from vcomp.exceptions import EstimationError, VcompWarning
from vcomp.results.refitting import fitted_again
from vcomp.results.results import VarianceComponentsResults
from vcomp.studies.subsets import Subsets
from vcomp.uncertainty import Quantities

__all__ = ["Influences", "LeftOut", "correlations", "influences", "left_out"]

_FEWEST = 3
"""Without one of two levels there is one, and no variance."""


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """The components of one measure without each level of a facet.

    Attributes
    ----------
    levels : (J,) that were left out, by name
    groups : (J,) the combination of what the facet is nested in
    values : (J, k + 1) components without them
    """

    levels: tuple[str, ...]
    groups: LongArray
    values: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Influences:
    """Influences of the levels of facets on m estimates of one measure.

    Attributes
    ----------
    of : facet and level → (m,)
    """

    of: Mapping[tuple[str, str], FloatArray]


def left_out(
    res: VarianceComponentsResults,
    study: DStudy,
    *,
    workers: int = 1,
    progress: bool | None = None,
) -> tuple[dict[str, LeftOut], list[str]]:
    """Return the components without each level of every facet that is a sample.

    Levels of fixed facets are all that there are. A facet that is nested in another is left out as
    well: its levels go with those that they are nested in.

    Parameters
    ----------
    res : the fit of one measure
    study : its D-study, which says what is fixed
    workers : threads
    progress : whether to show a bar

    Returns
    -------
    By facet the components, and half sentences on facets whose levels cannot be left out.
    """
    found: dict[str, LeftOut] = {}
    notes = []
    design = res.design
    for facet in design.facets:
        if facet in study.plan.universe.fixed or design.nested_in[facet]:
            continue
        fast = _in_closed_form(res, facet)
        if fast is not None:
            found[facet] = fast
            continue
        try:
            with warnings.catch_warnings():
                # What a few levels left out do to the estimation is said once, in the note below.
                warnings.simplefilter("ignore", VcompWarning)
                made = res.jackknife(facet, workers=workers, progress=progress)
        except EstimationError as error:
            notes.append(f"levels of {facet} cannot be left out in turn ({error})")
            continue
        usable = made.replicates.converged
        if not usable.all():
            notes.append(
                f"without some levels of {facet} ({int((~usable).sum())}) there is no estimate"
            )
            continue
        found[facet] = LeftOut(made.levels, made.groups, made.replicates.values)
    return found, notes


def _in_closed_form(res: VarianceComponentsResults, facet: str) -> LeftOut | None:
    """Return the same from a balanced table, if there is one; None where something fails."""
    fit, design = fitted_again(res)
    subsets = Subsets.of(fit, design, res.components, (facet,))
    n = subsets.most(facet)
    if subsets.table is None or n < _FEWEST:
        return None
    made = [subsets.without(facet, level).found for level in range(n)]
    if not all(found.converged for found in made):
        return None
    levels = design.facets[design.structure.facets.index(facet)].levels.astype(str)
    values = np.array([found.values for found in made])
    return LeftOut(tuple(levels), np.zeros(n, dtype=np.int64), values)


def influences(
    parts: Mapping[str, LeftOut], whole: FloatArray, quantities: Quantities, *, zero: bool
) -> Influences:
    """Return the influences of levels on quantities of one measure.

    Parameters
    ----------
    parts : by facet
    whole : (k + 1,) components from all data
    quantities : m of them
    zero : whether negative components are taken as zero
    """
    of: dict[tuple[str, str], FloatArray] = {}
    theta = quantities.values(_taken(whole, zero))
    for facet, part in parts.items():
        values = quantities.values(_taken(part.values, zero))
        for group in np.unique(part.groups):
            own = np.flatnonzero(part.groups == group)
            n = own.size
            pseudo = n * theta - (n - 1) * values[own]
            scaled = (pseudo - pseudo.mean(axis=0)) / np.sqrt(n * (n - 1.0))
            of |= {(facet, part.levels[j]): scaled[i] for i, j in enumerate(own)}
    return Influences(of)


def correlations(first: Influences, second: Influences, shared: Sequence[str]) -> FloatArray:
    """Return the correlations of m estimates of two measures, (m,).

    nan where an estimate does not vary, or is not defined without some level.

    Parameters
    ----------
    first, second : of the two measures
    shared : facets whose levels of one name are the same in both
    """
    variances = [np.sum([np.square(i) for i in x.of.values()], axis=0) for x in (first, second)]
    both = [key for key in first.of if key in second.of and key[0] in shared]
    covariance = np.sum([first.of[key] * second.of[key] for key in both], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        r: FloatArray = covariance / np.sqrt(variances[0] * variances[1])
    return np.clip(r, -1.0, 1.0)


def _taken(values: FloatArray, zero: bool) -> FloatArray:
    return np.maximum(values, 0.0) if zero else values
