"""Quantities that are made of variance components: what errors and intervals are of.

Nearly all are linear forms of the components or ratios of two: a component, its share, an error
variance, Eρ², Φ, a required number of topics. What an interval method can do depends on the form
alone, so that each is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from vcomp._typing import BoolArray, FloatArray

__all__ = ["Form", "Quantities", "Scale", "Smooth"]

Form: TypeAlias = Literal["linear", "root", "ratio", "share"]
Scale: TypeAlias = Literal["variance", "share", "real"]


@dataclass(frozen=True, slots=True, eq=False)
class Quantities:
    """Several quantities of one form in k components σ².

    Attributes
    ----------
    form : ``"linear"`` a'σ², ``"root"`` √a'σ², ``"ratio"`` a'σ²/b'σ² or ``"share"``
        a'σ²/(a'σ² + b'σ²)
    a : (m, k) weights
    b : (m, k) weights of ratios and shares, else None

    Examples
    --------
    >>> share = Quantities("share", np.array([[1.0, 0.0]]), np.array([[0.0, 0.5]]))
    >>> share.values(np.array([3.0, 2.0]))
    array([0.75])
    """

    form: Form
    a: FloatArray
    b: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.a)

    @property
    def scale(self) -> Scale:
        """``"share"`` for what lies between 0 and 1, else ``"variance"``: above 0."""
        return "share" if self.form == "share" else "variance"

    @property
    def denominator(self) -> FloatArray:
        """The weights b of a ratio or share."""
        assert self.b is not None
        return self.b

    @property
    def used(self) -> BoolArray:
        """Which components each quantity depends on, (m, k)."""
        used: BoolArray = self.a != 0.0
        return used if self.b is None else used | (self.b != 0.0)

    def values(self, v: FloatArray) -> FloatArray:
        """Return the quantities at components.

        Parameters
        ----------
        v : (k,) components, or (B, k) several sets of them

        Returns
        -------
        (m,) or (B, m); nan where a denominator is not positive, or below a root
        """
        top = v @ self.a.T
        if self.form == "linear":
            return np.asarray(top)
        if self.form == "root":
            return np.sqrt(np.where(top >= 0.0, top, np.nan))
        bottom = v @ self.denominator.T
        if self.form == "share":
            bottom = bottom + top
        return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0.0)

    def gradients(self, v: FloatArray) -> FloatArray:
        """Return the derivatives by the components at (k,) `v`, (m, k)."""
        if self.form == "linear":
            return self.a
        top = (self.a @ v)[:, None]
        nothing = np.full_like(self.a, np.nan)
        if self.form == "root":
            return np.divide(self.a, 2.0 * np.sqrt(np.abs(top)), out=nothing, where=top > 0.0)
        bottom = (self.denominator @ v)[:, None]
        slopes = bottom * self.a - top * self.denominator
        total = bottom + top if self.form == "share" else bottom
        return np.divide(slopes, total**2, out=nothing, where=total > 0.0)

    def take(self, places: BoolArray | slice) -> Quantities:
        """Return some of the quantities."""
        return Quantities(self.form, self.a[places], None if self.b is None else self.b[places])


@dataclass(frozen=True, slots=True, eq=False)
class Smooth:
    """One smooth function of the components and the fixed effects.

    Attributes
    ----------
    function : f(σ², β) of (k,) and (p,) arrays
    slopes : its gradients by both, (k,) and (p,)
    scale : where its values lie
    uses_fixed : whether it depends on the fixed effects
    """

    function: Callable[[FloatArray, FloatArray], float]
    slopes: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
    scale: Scale = "real"
    uses_fixed: bool = False
