"""The scales on which estimates are nearly normal: where intervals are made symmetric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from vcomp._typing import FloatArray
from vcomp.uncertainty.quantity import Scale

__all__ = ["TRANSFORMS", "Transform"]

Transform: TypeAlias = Callable[[FloatArray], FloatArray]


def _identity(x: FloatArray) -> FloatArray:
    return x


def _logit(x: FloatArray) -> FloatArray:
    from scipy.special import logit

    line: FloatArray = logit(x)
    return line


def _share(x: FloatArray) -> FloatArray:
    from scipy.special import expit

    share: FloatArray = expit(x)
    return share


TRANSFORMS: dict[Scale, tuple[Transform, Transform]] = {
    "real": (_identity, _identity),
    "variance": (np.log, np.exp),
    "share": (_logit, _share),
}
"""To the whole line and back, for each place where values lie."""
