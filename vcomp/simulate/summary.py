"""What a simulator simulates, as a page of text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display

if TYPE_CHECKING:
    from vcomp.simulate.simulator import CollectionSimulator

__all__ = ["simulator_summary"]


def simulator_summary(simulator: CollectionSimulator) -> Any:
    """Return assumptions, margins and how far true means are from those of the collection."""
    n_topics, n_systems = simulator.scores.shape
    head = display.plain_table(
        [
            ("Stochastic simulation", f"from {n_topics:,} topics × {n_systems:,} systems"),
            (f"margins: {simulator.family}", f"scale: {_scale(simulator)}"),
            (f"copula: {_copula(simulator)}", ""),
        ]
    )
    rows = [[_yes(holds)] for holds in _assumptions(simulator).values()]
    assumptions = display.simple_table(
        rows, ["holds"], title="Assumptions", stubs=list(_assumptions(simulator))
    )
    return display.summary([head, assumptions], _notes(simulator))


def _assumptions(simulator: CollectionSimulator) -> dict[str, bool]:
    random = {"random sampling of topics": simulator.random_sampling}
    if simulator.topic_margin is None:
        return {"uncorrelated systems": simulator.uncorrelated, **random}
    return {
        "normal residuals": simulator.family == "normal",
        "homoscedastic residuals": simulator.homoscedastic,
        "uncorrelated effects": simulator.uncorrelated,
        **random,
    }


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _scale(simulator: CollectionSimulator) -> str:
    if simulator.topic_margin is None:
        return "scores, no effects"
    return "smoothed logits" if simulator.scale.logit else "scores"


def _copula(simulator: CollectionSimulator) -> str:
    copula = simulator.copula
    if simulator.uncorrelated:
        return "none"
    if copula.name == "gaussian":
        return "Gaussian"
    return f"t with {display.number(copula.df, 3)} degrees of freedom"


def _notes(simulator: CollectionSimulator) -> list[str]:
    notes = []
    if simulator.topic_margin is None:
        counts = Counter(margin.name for margin in simulator.margins)
        notes.append(
            "Margins: " + ", ".join(f"{name} {n:,}" for name, n in counts.most_common()) + "."
        )
    shift = simulator.means - simulator.scores.mean(axis=0)
    worst = int(np.abs(shift).argmax())
    if abs(shift[worst]) > 1e-9:
        notes.append(
            "True means are not those of the collection: they differ by "
            f"{display.number(float(shift.mean()), 2)} on average, by "
            f"{display.number(float(shift[worst]), 2)} for {simulator.systems[worst]}."
        )
    else:
        notes.append("True means of the systems are those of the collection.")
    if simulator.scores.shape[0] <= simulator.n_systems and not simulator.uncorrelated:
        notes.append("There are no more topics than systems: correlations are poorly known.")
    return notes
