"""Sentences for what a reader of a D-study should know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.components import REPLICATE, VarianceComponents
from vcomp.dstudy.plan import DStudyPlan
from vcomp.dstudy.project import weights
from vcomp.uncertainty.taken import Taken

__all__ = ["study_notes"]

_UNSHARED = (
    "Where objects meet different levels, their differences hold the effects of these levels too, "
    "which σ²(δ) leaves out."
)


def study_notes(
    components: VarianceComponents,
    taken: Taken,
    plan: DStudyPlan,
    columns: Mapping[str, FloatArray],
) -> tuple[str, ...]:
    """Return the notes on a D-study.

    Parameters
    ----------
    components : as estimated
    taken : as the D-study takes them
    plan : of the D-study
    columns : the quantities, by name

    Examples
    --------
    >>> from vcomp.dstudy import from_components
    >>> study = from_components({"p": 0.5, "i": -0.2, "Residual": 1.0}).dstudy(i=10)
    >>> print(study.notes[0])
    σ²(i) = -0.2 is taken as 0 (negative="keep" would take it as estimated).
    """
    notes = [*_on_negative(components, taken), *_on_coefficients(plan, columns)]
    whole = bool((plan.sizes == np.round(plan.sizes)).all())
    if plan.labels is not None:
        notes.append(
            "Each component is divided by its exact effective size in the layout, of which n "
            "shows the facet's."
        )
    elif plan.inverse_n is not None and not (whole and _equal_sizes(components, plan)):
        notes.append(
            "The G-study is unbalanced: each component is divided by its exact effective size, of "
            f"which n shows the facet's. {_UNSHARED}"
        )
    elif not whole:
        notes.append(
            "Sizes that are not whole numbers are harmonic means of the unbalanced G-study, "
            "unless they were given."
        )
    notes += _on_omitted_interaction(components)
    if taken.cov is None:
        notes.append(
            "The covariance matrix of the components is not known: there are no standard errors, "
            "nor intervals that need them."
        )
    else:
        notes += _on_known(taken.bounded, "estimated at the bound")
        notes += _on_known(components.held, "held")
    return tuple(notes)


def _on_known(names: Sequence[str], why: str) -> list[str]:
    if not names:
        return []
    known = ", ".join(f"σ²({name})" for name in names)
    verb, them = ("has", "it") if len(names) == 1 else ("have", "them")
    note = (
        f"{known} {verb} no standard error, being {why}; standard errors of other quantities take "
        f"{them} as known."
    )
    return [note]


def _on_negative(components: VarianceComponents, taken: Taken) -> list[str]:
    notes = []
    for name, value in zip(components.names, components.values, strict=True):
        symbol = f"σ²({name}) = {display.number(value)}"
        if name in taken.zeroed:
            notes.append(f'{symbol} is taken as 0 (negative="keep" would take it as estimated).')
        elif value < 0:
            notes.append(f'{symbol} is negative and taken as estimated (negative="keep").')
    return notes


def _on_omitted_interaction(components: VarianceComponents) -> list[str]:
    """Warn that the residual of repeated scores hides an interaction, and is divided too much."""
    facets = frozenset(components.facet_names)
    if REPLICATE not in facets or facets - {REPLICATE} in components.facets:
        return []
    named = ":".join(f for f in components.facet_names if f != REPLICATE)
    note = (
        f"The cells hold several scores and the model has no term {named}: what varies from cell "
        f"to cell is taken as error of single scores, which {REPLICATE} averages out. Errors are "
        f"too small if there is such variation; add (1|{named}) to the formula."
    )
    return [note]


def _on_coefficients(plan: DStudyPlan, columns: Mapping[str, FloatArray]) -> list[str]:
    undefined = [s for s, c in (("Eρ²", "Erho2"), ("Φ", "Phi")) if np.isnan(columns[c]).any()]
    universe = columns["universe_var"][0]
    notes = []
    if universe == 0:
        notes.append(
            f"The universe-score variance σ²({plan.object}) is 0: these data do not tell "
            f"{plan.object} apart, and no size of the test makes up for it."
        )
    if undefined:
        notes.append(
            f"{' and '.join(undefined)} {'is' if len(undefined) == 1 else 'are'} not defined "
            "(nan) where universe-score and error variance do not add up to more than zero."
        )
    return notes


def _equal_sizes(components: VarianceComponents, plan: DStudyPlan) -> bool:
    exact = weights(components, plan).absolute
    nominal = weights(components, replace(plan, inverse_n=None)).absolute
    return bool(np.allclose(exact, nominal, rtol=1e-9, atol=0))
