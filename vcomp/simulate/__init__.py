"""Stochastic simulation of evaluation results: new topics for the systems of a collection."""

from __future__ import annotations

from vcomp.simulate.collections import SimulatedCollections
from vcomp.simulate.discrete import support_of
from vcomp.simulate.fit import fit_collection
from vcomp.simulate.margin import Margin
from vcomp.simulate.simulator import CollectionSimulator

__all__ = [
    "CollectionSimulator",
    "Margin",
    "SimulatedCollections",
    "fit_collection",
    "support_of",
]
