"""What a fit keeps of how well its fixed effects are known: a value that travels with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray, Json
from vcomp.estimators.engine import LikelihoodEngine

__all__ = ["FixedErrors", "errors_of_fixed"]

_MOST_SLOPES = 10_000_000
"""Numbers that slopes may take; beyond, there are none."""

_STORED = 20_000
"""Numbers of slopes that are written into a file, at most."""


@dataclass(frozen=True, slots=True)
class FixedErrors:
    """Degrees of freedom of the fixed effects, and how their covariance moves with components.

    Attributes
    ----------
    slopes : (k + 1, p, p) ∂Cov(β̂)/∂σ²_t, on the scale of the ``cov_beta`` beside it; None where
        there are too many to be kept in a file
    df : (p,) Satterthwaite's degrees of freedom, ∞ where all components are known and nan where
        their covariance is not; empty before the fixed effects are on the scale of the data
    """

    slopes: FloatArray | None
    df: FloatArray

    def to_json(self) -> Json:
        """Return plain lists that :meth:`from_json` reads again."""
        slopes = self.slopes
        if slopes is not None and (slopes.size > _STORED or not np.isfinite(slopes).all()):
            slopes = None
        return {
            "df": [None if np.isnan(x) else float(x) for x in self.df],
            "slopes": None if slopes is None else slopes.tolist(),
        }

    @classmethod
    def from_json(cls, stored: Json | None, k: int, p: int) -> FixedErrors | None:
        """Return what :meth:`to_json` stored, None for files of older versions.

        Parameters
        ----------
        stored : the plain lists
        k : number of components, the residual counted
        p : number of fixed effects
        """
        if stored is None:
            return None
        slopes = stored["slopes"]
        return cls(
            slopes=None if slopes is None else np.array(slopes, dtype=float).reshape(k, p, p),
            df=np.array(stored["df"], dtype=float).reshape(p),
        )


def errors_of_fixed(engine: LikelihoodEngine, v: FloatArray) -> FixedErrors | None:
    """Return how the covariance of the fixed effects moves at components `v`, still without df.

    None where there are no fixed effects, or too many.
    """
    p = engine.n_fixed
    if not p or v.size * p**2 > _MOST_SLOPES:
        return None
    return FixedErrors(engine.fixed_forms(v).slopes, np.zeros(0))
