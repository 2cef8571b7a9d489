"""Maxima of the likelihood of a small table, on a grid of all its components.

The forms of the effects at a residual alone give the likelihood at all components: by the
eigenvalues of one term after the other, without evaluations (docs/explanation/mathematics.md,
section 6.5).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.estimators.likelihood.component_scan import EffectForms

_RATIOS = np.concatenate([[0.0], 10.0 ** np.arange(-2.5, 2.5, 0.5), 10.0 ** np.arange(2.5, 8.0)])
"""Ratios of components to the residual. Effects of at most 50 rows have eigenvalues of at most 50:
below 10⁻³ the likelihood is linear in a ratio, and above 10³ in its logarithm."""

_RESIDUALS = np.concatenate([10.0 ** np.arange(-6.0, -2.0), 10.0 ** np.arange(-2.0, 1.0, 0.5)])
"""Residuals if components are held, relative to the mean square: with ratios in the same steps."""

_LOWER = 3.0
"""Largest difference from the known maximum at which a grid point is a start: maxima up to 2 lower
are reported, and the nearest grid point is lower than they are."""

_LEAST = 1e-30
"""Smallest y'Py, as a share of the sum of squares of ordinary least squares."""


def starts_on_grid(
    forms: EffectForms, rss: float, degrees: float, v: FloatArray, held: BoolArray
) -> list[FloatArray]:
    """Return the local maxima of the likelihood on a grid of components, except `v`.

    Parameters
    ----------
    forms : of all terms, at a residual alone (components 0)
    rss : sum of squares of ordinary least squares
    degrees : degrees of freedom; the best scale is y'Py / degrees
    v : (k + 1,) a known maximum
    held : (k + 1,) components that keep their value
    """
    unit, known = float(forms.v[-1]), bool(held.any())
    order = np.argsort(-np.bincount(forms.term, minlength=v.size - 1), kind="stable")
    # Without held components the residual is the scale, which has a closed form.
    residuals = v[-1:] if held[-1] or not known else _with(_RESIDUALS * rss / degrees, v[-1])
    axes = [
        v[t] / residuals[:, None] if held[t] else _with(_RATIOS, v[t] / v[-1])[None, :]
        for t in order
    ]
    places = [np.flatnonzero(forms.term == t) for t in order]
    chosen = np.concatenate(places)
    sizes, block = [place.size for place in places], np.ix_(chosen, chosen)
    fitted = unit * forms.fitted[chosen]
    left, log_det = _on_grid(unit * forms.within[block], fitted, rss, sizes, axes)
    if forms.full is not forms.within:
        _, log_det = _on_grid(unit * forms.full[block], fitted, rss, sizes, axes)
    left = np.maximum(left, _LEAST * rss)
    shape = (residuals.size, *(axis.shape[1] for axis in axes))
    scale = left / degrees
    if known:
        scale = residuals.reshape(-1, *[1] * len(axes))
    values = -0.5 * (degrees * np.log(scale) + log_det + left / scale)
    values, scale = np.broadcast_to(values, shape), np.broadcast_to(scale, shape)
    here = (
        int(np.searchsorted(residuals, v[-1])),
        *(
            0 if held[t] else int(np.searchsorted(a[0], v[t] / v[-1]))
            for t, a in zip(order, axes, strict=True)
        ),
    )
    peak = _peaks(values) & ((values > values[here] - _LOWER) | _is_extreme(shape, bool(known)))
    peak[here] = False
    starts = []
    for place in np.argwhere(peak)[np.argsort(-values[peak], kind="stable")]:
        start = np.ones(v.size)
        start[order] = [
            a[min(place[0], len(a) - 1), i] for a, i in zip(axes, place[1:], strict=True)
        ]
        starts.append(float(scale[tuple(place)]) * start)
    return starts


def _with(values: FloatArray, known: float) -> FloatArray:
    return np.unique(np.append(values, known))


def _on_grid(
    within: FloatArray,
    fitted: FloatArray,
    rss: float,
    sizes: Sequence[int],
    axes: Sequence[FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Return y'Py and the log-determinant for a residual of one, an axis for each term.

    Parameters
    ----------
    within, fitted : Z'PZ and Z'Py at a residual of one
    rss : y'Py there
    sizes : numbers of effects of the terms
    axes : (1, m) their ratios to the residual, or (r, 1) those for each of r residuals
    """
    left, log_det = np.full(1, rss), np.zeros(1)
    within, fitted = within[None], fitted[None]
    for size, axis in zip(sizes, axes, strict=True):
        values, vectors = np.linalg.eigh(within[..., :size, :size])
        side = within[..., size:, :size] @ vectors
        square = (fitted[..., None, :size] @ vectors)[..., 0, :]
        ratio = axis.reshape(len(axis), *[1] * (left.ndim - 1), -1, 1)
        scaled = 1.0 + ratio * np.maximum(values, 0.0)[..., None, :]
        shrink = ratio / scaled
        log_det = log_det[..., None] + np.log(scaled).sum(axis=-1)
        left = left[..., None] - (shrink * np.square(square)[..., None, :]).sum(axis=-1)
        if size < fitted.shape[-1]:
            moved = side[..., None, :, :] * shrink[..., None, :]
            within = (
                within[..., None, size:, size:] - moved @ side.swapaxes(-1, -2)[..., None, :, :]
            )
            fitted = fitted[..., None, size:] - (moved @ square[..., None, :, None])[..., 0]
    return left, log_det


def _is_extreme(shape: tuple[int, ...], with_residuals: bool) -> BoolArray:
    """Return which grid points have the smallest residual or the largest ratio of a component."""
    extreme = np.zeros(shape, dtype=bool)
    for axis, size in enumerate(shape):
        if size > 1:
            extreme.swapaxes(0, axis)[-1 if axis or not with_residuals else 0] = True
    return extreme


def _peaks(values: FloatArray) -> BoolArray:
    """Return the local maxima: values not below any neighbour, diagonal ones included."""
    highest = np.pad(values, 1, constant_values=-np.inf)
    for axis, size in enumerate(values.shape):
        low, same, high = (highest.take(range(i, i + size), axis=axis) for i in range(3))
        highest = np.maximum(np.maximum(low, same), high)
    return values >= highest
