"""The fit of a model by another program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common import agree


@dataclass(frozen=True, slots=True)
class PeerFit:
    """Components by name, the residual under ``"Residual"``, and the time of the fit alone.

    The log-likelihood is nan where the method has none, and the seconds of processor time (`cpu`)
    where the program does not report them.
    """

    components: dict[str, float]
    llf: float = np.nan
    seconds: float = np.nan
    cpu: float = np.nan


def agree_fits(components: Mapping[Any, float], llf: float, peer: PeerFit) -> None:
    """Stop if the fits differ by more than other optimisers stop short of the maximum."""
    if not np.isnan(peer.llf):
        assert llf > peer.llf - 1e-6, f"log-likelihood {llf} is below the peer's {peer.llf}"
        assert llf < peer.llf + 0.01, f"log-likelihood {llf} is above the peer's {peer.llf}"
    total = sum(components.values())
    for term, value in peer.components.items():
        agree(components[term], value, rtol=0.02, atol=1e-3 * total)
