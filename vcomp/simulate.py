"""Simulate new topics for the systems of a collection, and scores of any design.

The code is in :mod:`vcomp.ir.simulate`; section 16 of the mathematics has the equations.
"""

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
