"""Hypotheses about fixed effects, as a matrix or as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import EstimationError

__all__ = ["Contrasts", "contrasts_of"]

_DEPENDENT = 1e-10


@dataclass(frozen=True, slots=True)
class Contrasts:
    """The hypothesis L β = c.

    Attributes
    ----------
    L : (m, p)
    constants : (m,) c
    names : of the rows, such as ``"x - z"``
    """

    L: FloatArray
    constants: FloatArray
    names: tuple[str, ...]

    def independent(self) -> Contrasts:
        """Return the same hypothesis by those rows that do not follow from rows before them.

        Raises
        ------
        EstimationError
            If the rows contradict each other.
        """
        scale = np.linalg.norm(self.L, axis=1)
        rows, values = self.L / scale[:, None], self.constants / scale
        kept: list[int] = []
        for place, row in enumerate(rows):
            weights = np.linalg.lstsq(rows[kept].T, row, rcond=None)[0]
            if np.linalg.norm(row - weights @ rows[kept]) > _DEPENDENT:
                kept.append(place)
            elif abs(values[place] - weights @ values[kept]) > 1e-8 * np.abs(values).max():
                raise EstimationError(
                    f"the contrasts {', '.join(self.names)} contradict each other: "
                    f"{self.names[place]} = {self.constants[place]:g} does not go with those "
                    "before it"
                )
        names = tuple(self.names[place] for place in kept)
        return Contrasts(self.L[kept], self.constants[kept], names)


def contrasts_of(hypothesis: Any, names: tuple[str, ...]) -> Contrasts:
    """Return the contrasts that a matrix or a text says.

    Parameters
    ----------
    hypothesis : (p,) or (m, p) numbers; or text as of statsmodels, ``"x = z"`` or
        ``"x, z = 1"``
    names : of the fixed effects

    Raises
    ------
    EstimationError
        If it has another shape, names something else, or a row is zero.

    Examples
    --------
    >>> contrasts_of("x = z", ("Intercept", "x", "z")).L.tolist()
    [[0.0, 1.0, -1.0]]
    """
    from patsy import DesignInfo, PatsyError

    if not names:
        raise EstimationError("this model has no fixed effects, and nothing to contrast")
    try:
        found = DesignInfo(list(names)).linear_constraint(hypothesis)
    except (PatsyError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise EstimationError(
            f"{hypothesis!r} is no contrast of the {len(names)} fixed effects "
            f"{', '.join(names)}: {reason}; give a row of numbers for each contrast, or text such "
            f"as '{names[-1]} = 0'"
        ) from None
    L, values = np.asarray(found.coefs, dtype=float), np.asarray(found.constants, dtype=float)
    if not (np.isfinite(L).all() and np.isfinite(values).all()):
        raise EstimationError("contrasts are finite numbers")
    zero = ~L.any(axis=1)
    if zero.any() or not L.size:
        raise EstimationError(f"row {int(np.argmax(zero)) + 1} of the contrasts is zero")
    labels = tuple(_label(row, names) for row in L)
    return Contrasts(L, values.ravel(), labels)


def _label(row: FloatArray, names: tuple[str, ...]) -> str:
    parts: list[str] = []
    for weight, name in zip(row, names, strict=True):
        if weight == 0.0:
            continue
        size = "" if abs(weight) == 1.0 else f"{abs(weight):g} "
        sign = "-" if weight < 0.0 else "+"
        first = f"-{size}{name}" if weight < 0.0 else f"{size}{name}"
        parts.append(f" {sign} {size}{name}" if parts else first)
    return "".join(parts)
