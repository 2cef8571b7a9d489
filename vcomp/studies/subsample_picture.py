"""A study of subsets as a picture: what of it goes on which axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from vcomp import display, plots
from vcomp.dstudy.requirement import SYMBOLS
from vcomp.exceptions import PlanError, did_you_mean
from vcomp.plots.subsampling import Kind

if TYPE_CHECKING:
    from vcomp.studies.subsample_result import SubsampleStudy

__all__ = ["draw"]


def draw(study: SubsampleStudy, quantity: str, x: str | None, kind: str, ax: Any | None) -> Any:
    """Return the axes on which a study is drawn; see :meth:`SubsampleStudy.plot`.

    Parameters
    ----------
    study : to draw
    quantity : one of its quantities
    x : facet on the horizontal axis, or None
    kind : ``"span"`` or ``"values"``
    ax : matplotlib axes, or None
    """
    if kind not in get_args(Kind):
        known = " or ".join(map(repr, get_args(Kind)))
        raise PlanError(f"kind is {known}, not {kind!r}{did_you_mean(kind, get_args(Kind))}")
    full = study.full(quantity)
    facet = _horizontal(study, x)
    table = study.table
    table = table[table["quantity"] == quantity]
    label = _symbol(study, quantity)
    return plots.subsets(
        table,
        facet,
        [f for f in study.facets if f != facet],
        full=full,
        kind="span" if kind == "span" else "values",
        label=label,
        alpha=study.dstudy.alpha,
        ax=ax,
    )


def _horizontal(study: SubsampleStudy, x: str | None) -> str:
    if x is None:
        several = [len(np.unique(column)) for column in study.cells.T]
        return study.facets[int(np.argmax(several))]
    if x not in study.facets:
        raise PlanError(
            f"levels of {x!r} were not drawn{did_you_mean(x, study.facets)}; x= is one of "
            f"{list(study.facets)}"
        )
    return x


def _symbol(study: SubsampleStudy, quantity: str) -> str:
    if quantity in SYMBOLS:
        return SYMBOLS[quantity]
    if quantity in study.replicates.names:
        return f"σ²({quantity})"
    symbol = SYMBOLS[quantity.removeprefix("n_")]
    return f"{study.required_facet} needed for {symbol} = {display.number(study.target)}"
