"""A design as a picture: which one, and what becomes of each effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcomp.components import RESIDUAL
from vcomp.exceptions import DesignError
from vcomp.plots.circles import ellipses
from vcomp.plots.designs import Node, lattice, venn

if TYPE_CHECKING:
    from vcomp.design.structure import EffectPlace, Structure

__all__ = ["draw"]

_MOST = 64
"""Effects that can be read in one picture: six crossed facets have 63."""


def draw(structure: Structure, ax: Any | None) -> Any:
    """Return the axes on which a design is drawn; see :meth:`Structure.plot`.

    Parameters
    ----------
    structure : of the design
    ax : matplotlib axes, or None
    """
    places = structure.effects
    if not 0 < len(places) <= _MOST:
        many = str(len(places)) if places else "thousands of"
        raise DesignError(
            f"the design '{structure.notation}' has {many} effects, and up to {_MOST} can be "
            "drawn; print the design instead"
        )
    placed = ellipses(structure.facets, structure.nested_in)
    if placed is None:
        return lattice([_node(p, noted=True) for p in places], structure.notation, ax=ax)
    return venn(placed, [_node(p) for p in places], structure.notation, ax=ax)


def _node(place: EffectPlace, *, noted: bool = False) -> Node:
    kind = "own"
    if place.component is None:
        kind = "none"
    elif place.component == RESIDUAL:
        kind = "residual"
    confounded = noted and len(place.holds) > 1
    note = f"= {' + '.join(place.holds)}" if confounded else ""
    return Node(place.effect.name, place.effect.facets, kind, note)
