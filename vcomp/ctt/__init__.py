"""Classical test theory."""

from __future__ import annotations

from vcomp.ctt.alpha import cronbach_alpha

__all__ = ["cronbach_alpha"]
