"""Simulation: new topics for the systems of a collection, and scores of any design."""

from __future__ import annotations

from vcomp.simulate.collections import SimulatedCollections
from vcomp.simulate.discrete import support_of
from vcomp.simulate.effects import SimulatedScores, simulate_effects
from vcomp.simulate.fit import fit_collection
from vcomp.simulate.margin import Margin
from vcomp.simulate.simulator import CollectionSimulator
from vcomp.simulate.write import write_collections

__all__ = [
    "CollectionSimulator",
    "Margin",
    "SimulatedCollections",
    "SimulatedScores",
    "fit_collection",
    "simulate_effects",
    "support_of",
    "write_collections",
]
