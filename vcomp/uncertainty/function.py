"""Functions that a user writes, with their gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError
from vcomp.uncertainty.quantity import Smooth

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["smooth_of"]

_STEP = 1e-30
"""Of a complex step: nothing is subtracted, so that it can be as small as it likes."""

_AGREE = 1e-3
"""Relative difference to a central difference above which a complex step went astray, as it does
in absolute values."""


def smooth_of(function: Callable[[pd.Series], Any], names: Sequence[str]) -> Smooth:
    """Return a function of a Series of components as a quantity.

    Its gradient is by complex steps, exact to rounding. A function that takes no complex numbers
    (``max``, ``math.sqrt``), or treats them otherwise (``abs``), has central differences instead.

    Parameters
    ----------
    function : of a Series of the components by name; returns one number
    names : of the components, the residual last

    Examples
    --------
    >>> q = smooth_of(lambda v: v["sys"] / v["Residual"] ** 2, ["sys", "Residual"])
    >>> q.slopes(np.array([3.0, 2.0]), np.zeros(0))[0]
    array([ 0.25, -0.75])
    """
    import pandas as pd

    def at(v: Any) -> Any:
        try:
            return function(pd.Series(v, index=list(names)))
        except KeyError as error:
            raise EstimationError(
                f"the function asks for component {error}, which is not there; they are "
                f"{', '.join(names)}"
            ) from None

    def value(v: FloatArray, beta: FloatArray) -> float:
        found = at(v)
        try:
            return float(found)
        except (TypeError, ValueError):
            raise EstimationError(
                f"the function has to return one number, not {type(found).__name__}"
            ) from None

    def slopes(v: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        return _gradient(at, v), np.zeros_like(beta)

    return Smooth(value, slopes)


def _gradient(at: Callable[[Any], Any], v: FloatArray) -> FloatArray:
    differences = np.array([_central(at, v, j) for j in range(v.size)])
    try:
        with warnings.catch_warnings():
            # A lost imaginary part shows below.
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            steps = np.array([_complex_step(at, v, j) for j in range(v.size)])
    except (TypeError, ValueError, AttributeError):
        return differences
    size = np.abs(differences).max(initial=0.0)
    close = np.allclose(steps, differences, rtol=_AGREE, atol=_AGREE * size)
    return steps if close else differences


def _complex_step(at: Callable[[Any], Any], v: FloatArray, j: int) -> float:
    moved = v.astype(complex)
    moved[j] += 1j * _STEP
    return float(complex(at(moved)).imag / _STEP)


def _central(at: Callable[[Any], Any], v: FloatArray, j: int) -> float:
    h = 1e-5 * (abs(v[j]) or np.abs(v).max(initial=1.0))
    ends = []
    for sign in (1.0, -1.0):
        moved = v.copy()
        moved[j] += sign * h
        ends.append(float(at(moved)))
    return float((ends[0] - ends[1]) / (2.0 * h))
