"""What another program says of a model."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PeerFit"]


@dataclass(frozen=True, slots=True)
class PeerFit:
    """Components by name, the residual under ``"Residual"``, and the time of the fit alone."""

    components: dict[str, float]
    llf: float
    seconds: float
