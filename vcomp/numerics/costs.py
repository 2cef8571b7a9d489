"""Seconds of the parts of an evaluation, which ``engine="auto"`` compares between engines.

They were measured on one core of a server of 2023, with one thread, and are the same everywhere:
the choice of an engine depends on the data alone. ``python -m benchmarks costs`` measures them
again on any machine and prints them next to these.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EliminationCosts:
    """Seconds of factor, inverse and forms of Henderson's equations.

    Fitted to 47 shapes of benchmarks/bench_engines.py, within factors of 0.6 to 1.8 except for the
    two smallest.

    Attributes
    ----------
    call : of any matrix
    column, entry, pair : for each sparse column, for each of its entries, and for each product of
        two of them
    square, cube : of a dense matrix of order m, divided by m² and by m³
    product : of a product of two dense matrices, divided by m³. Squared norms of the inverse's
        blocks take one if the sparse columns are the first block, else two for each block that has
        sparse columns
    """

    call: float = 4.4e-4
    column: float = 4.7e-7
    entry: float = 8.6e-8
    pair: float = 2e-9
    square: float = 3.0e-8
    cube: float = 1.6e-11
    product: float = 2.9e-11


@dataclass(frozen=True, slots=True)
class CrossedCosts:
    """Seconds of an evaluation of two crossed facets.

    Attributes
    ----------
    call : of any table
    pair : for each product of two holes of a level of the longer facet
    cell : for each product of two cells, if dense products take less time
    cube : of a matrix of the order m of the shorter facet, divided by m³
    """

    call: float = 5e-4
    pair: float = 1.0e-9
    cell: float = 3.5e-11
    cube: float = 1.2e-10


@dataclass(frozen=True, slots=True)
class LevelsCosts:
    """Seconds of an evaluation level by level.

    Fitted to 30 shapes of 9 to 600 cells, within a third for times of 10 ms or more, and to some
    of 10 to 2,000 rows, where the number of calls decides.

    Attributes
    ----------
    call, pattern : of any data, and for each pattern of filled cells
    square, cube : of matrices of the order of the holes of a level, for each element, and for each
        multiplication in factors and products
    value, product : for each value of a cell, and for each pair of cells of a level and column
    node_square, node_cube : the same as of levels, of the nodes above them
    """

    call: float = 1e-3
    pattern: float = 1.6e-4
    square: float = 1.6e-8
    cube: float = 1.2e-10
    value: float = 5.9e-9
    product: float = 1.0e-10
    node_square: float = 1.2e-8
    node_cube: float = 1.0e-10


@dataclass(frozen=True, slots=True)
class IterativeCosts:
    """Seconds of an evaluation by conjugate gradients.

    Attributes
    ----------
    call : of any data
    entry : for each right-hand side, large term and entry of its pair tables
    entries_per_effect : number of entries that take as long as the vectors of one effect
    other_columns : number of right-hand sides besides probes
    """

    call: float = 1e-3
    entry: float = 2e-9
    other_columns: int = 16
    entries_per_effect: int = 10


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """Costs of each kind of engine."""

    elimination: EliminationCosts = EliminationCosts()
    crossed: CrossedCosts = CrossedCosts()
    levels: LevelsCosts = LevelsCosts()
    iterative: IterativeCosts = IterativeCosts()


COSTS = EngineCosts()
