"""The squares ‖Z_t'QZ_u‖² of the expected information, carried from one point to the next.

Where equations are eliminated they cost more than an evaluation. As they do not depend on the
response, and change less than the components do, those of one point serve the steps of a whole
climb, and of climbs for other responses (docs/explanation/mathematics.md, section 6.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import BoolArray, FloatArray

_MOST_CHANGE = 4.0
"""Largest factor by which a trace may change between the two points."""


@dataclass(frozen=True, slots=True, eq=False)
class Squares:
    """The squares at one point, exact or carried from another point.

    Attributes
    ----------
    v : (k + 1,) components, the residual last
    traces : (k,) tr(Z_t'QZ_t) at `v`, exact
    squares : (k, k) ‖Z_t'QZ_u‖², nan for terms at zero
    is_exact : whether they were computed at `v`
    decrement : Newton decrement at `v`, inf if not known
    """

    v: FloatArray
    traces: FloatArray
    squares: FloatArray
    is_exact: bool = True
    decrement: float = np.inf

    def carried(self, v: FloatArray, traces: FloatArray) -> Squares | None:
        """Return the squares carried to other components; None if these are too far away.

        In proportion to the traces, ‖Z_t'QZ_u‖² ∝ tr(Z_t'QZ_t) tr(Z_u'QZ_u), they are exact for
        balanced data with a mean square for each term. The rest of the change in the traces
        corrects them (Powell's symmetric update).

        Parameters
        ----------
        v : (k + 1,) components
        traces : (k,) exact traces there
        """
        positive = self.v[:-1] > 0.0
        if (positive != (v[:-1] > 0.0)).any():
            return None
        known = np.diagonal(self.squares)[positive]
        if not ((known > 0.0) & (self.traces[positive] > 0.0)).all():
            return None
        ratio = np.ones(positive.size)
        ratio[positive] = traces[positive] / self.traces[positive]
        if not ((ratio > 1.0 / _MOST_CHANGE) & (ratio < _MOST_CHANGE)).all():
            return None
        if (v == self.v).all():
            return self
        moved = Squares(v, traces, self.squares * np.outer(ratio, ratio), is_exact=False)
        at = np.ix_(positive, positive)
        moved.squares[at] += _correction(self, moved, positive)
        return moved if (np.diagonal(moved.squares)[positive] > 0.0).all() else None


def _correction(here: Squares, moved: Squares, positive: BoolArray) -> FloatArray:
    """Return Powell's symmetric update of the carried squares, from the change in the traces.

    With x_t = log σ²_t/σ²_e the slopes of τ_t = tr(QV_t)σ²_t are δ_tu τ_t − σ²_tσ²_u‖Z_t'QZ_u‖².
    Their mean over both ends leaves a rest of the change in τ. The same correction at both ends
    explains it.
    """
    v, unit = moved.v[:-1][positive], np.sqrt(np.diagonal(moved.squares)[positive])
    x = np.log(v / moved.v[-1]) - np.log(here.v[:-1][positive] / here.v[-1])
    tau, slopes = zip(*(_slopes(at, positive) for at in (here, moved)), strict=True)
    rest = tau[1] - tau[0] - 0.5 * (slopes[0] + slopes[1]) @ x
    z, q = unit * v * x, rest / (unit * v)
    length = z @ z
    if not length > 0.0:
        return np.zeros((v.size, v.size))
    update: FloatArray = (
        np.outer(q, z) + np.outer(z, q) - (q @ z) / length * np.outer(z, z)
    ) / length
    return -update * np.outer(unit, unit)


def _slopes(at: Squares, positive: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return τ and its slopes by the logarithms of the ratios."""
    v = at.v[:-1][positive]
    tau = v * at.traces[positive]
    return tau, np.diag(tau) - at.squares[np.ix_(positive, positive)] * np.outer(v, v)
