"""Maxima of the likelihood of a small table, on a grid of all ratios of its components.

At a residual alone the forms of the effects give the likelihood at all ratios, by eigenvalues of
one term after the other and without evaluations (docs/explanation/mathematics.md, section 6.5).
"""

from __future__ import annotations

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.likelihood.component_scan import EffectForms

_FINE, _COARSE = 10.0 ** np.arange(-2.5, 2.5, 0.5), 10.0 ** np.arange(2.5, 8.0)
"""Ratios of components to the residual. Effects of at most 50 rows raise an eigenvalue of V by at
most 50 ratios: below 10⁻³ the likelihood is linear, and above 10³ it changes with the logarithm."""

_LOWER = 3.0
"""How much lower than the known maximum points are where another one is not looked for: maxima
that are 2 lower are reported, and they are higher than the nearest point of the grid."""

_TINY = float(np.finfo(float).tiny)
_EPS = float(np.finfo(float).eps)


def starts_on_grid(
    forms: EffectForms, rss: float, degrees: float, v: FloatArray
) -> list[FloatArray]:
    """Return points of the grid that are higher than their neighbours, without `v`.

    Parameters
    ----------
    forms : of all terms, at a residual alone
    rss : y'Py there, for a residual of one
    degrees : by which the best scale divides y'Py
    v : (k + 1,) a known maximum
    """
    sizes = np.bincount(forms.term, minlength=v.size - 1)
    order = np.argsort(-sizes, kind="stable")
    ratios = v[:-1] / v[-1]
    grids = [np.unique(np.concatenate([[0.0, r], _FINE, _COARSE])) for r in ratios[order]]
    places = [np.flatnonzero(forms.term == t) for t in order]
    sorted_forms = np.concatenate(places)
    unit = forms.v[-1]
    chosen = np.ix_(sorted_forms, sorted_forms)
    within, fitted = unit * forms.within[chosen], unit * forms.fitted[sorted_forms]
    left, log_det = _on_grid(within, fitted, rss, sizes[order], grids)
    if forms.full is not forms.within:
        _, log_det = _on_grid(unit * forms.full[chosen], fitted, rss, sizes[order], grids)
    left = np.maximum(left, _EPS * _EPS * rss)
    values = -0.5 * (log_det + degrees * np.log(np.maximum(left, _TINY)))
    here = tuple(int(np.searchsorted(g, r)) for g, r in zip(grids, ratios[order], strict=True))
    peak = _peaks(values)
    peak[here] = False
    edge = np.zeros(values.shape, dtype=bool)
    for axis in range(values.ndim):
        edge.swapaxes(0, axis)[-1] = True
    peak &= edge | (values > values[here] - _LOWER)
    places_of_peaks = np.argwhere(peak)
    starts = []
    for place in places_of_peaks[np.argsort(-values[peak], kind="stable")]:
        start = np.ones(v.size)
        start[order] = [grid[i] for grid, i in zip(grids, place, strict=True)]
        starts.append(float(left[tuple(place)]) / degrees * start)
    return starts


def _on_grid(
    within: FloatArray, fitted: FloatArray, rss: float, sizes: FloatArray, grids: list[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return y'Py and the log-determinant on a grid, an axis for each term."""
    left, log_det = np.array(rss), np.array(0.0)
    for size, grid in zip(sizes.tolist(), grids, strict=True):
        values, vectors = np.linalg.eigh(within[..., :size, :size])
        side = within[..., size:, :size] @ vectors
        square = (fitted[..., None, :size] @ vectors)[..., 0, :]
        scaled = grid[:, None] * np.maximum(values, 0.0)[..., None, :]
        shrink = grid[:, None] / (1.0 + scaled)
        log_det = log_det[..., None] + np.log1p(scaled).sum(axis=-1)
        left = left[..., None] - (shrink * np.square(square)[..., None, :]).sum(axis=-1)
        if size < fitted.shape[-1]:
            moved = side[..., None, :, :] * shrink[..., None, :]
            within = within[..., None, size:, size:] - moved @ side.swapaxes(-1, -2)[..., None, :, :]
            fitted = fitted[..., None, size:] - (moved @ square[..., None, :, None])[..., 0]
    return left, log_det


def _peaks(values: FloatArray) -> BoolArray:
    """Return which values are not below those around them."""
    padded = np.pad(values, 1, constant_values=-np.inf)
    highest = padded
    for axis in range(values.ndim):
        low, mid, high = (
            np.take(highest, np.arange(i, i + values.shape[axis]), axis=axis) for i in range(3)
        )
        highest = np.maximum(np.maximum(low, mid), high)
    peak: BoolArray = values >= highest
    return peak
