"""Rows → :class:`Design` (levels, origin, structure) and coded :class:`Chunk` s."""

from vcomp.design.design import Chunk, Design, Facet, TermDesign
from vcomp.design.encode import encode
from vcomp.design.learn import learn
from vcomp.design.rows import Rows, select_rows
from vcomp.design.structure import Structure

__all__ = [
    "Chunk",
    "Design",
    "Facet",
    "Rows",
    "Structure",
    "TermDesign",
    "encode",
    "learn",
    "select_rows",
]
