"""Simulation: new topics for the systems of a collection, and scores of any design."""

from vcomp.ir.simulate import (
    CollectionSimulator,
    Margin,
    SimulatedCollections,
    SimulatedScores,
    fit_collection,
    simulate_effects,
    support_of,
    write_collections,
)

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
