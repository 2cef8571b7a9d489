"""Other maxima: further starts of a maximisation, and how they are found.

A term of few levels may be larger at a higher maximum. Another value of its component changes V by
a matrix of the rank of its levels. With the scale of all components at its best, the likelihood
along it therefore follows from eigenvalues of two small matrices at one point, without another
evaluation; a second component may be exchanged for it. For a small table the forms of the effects
at a residual alone give the likelihood on a grid of all components, by the eigenvalues of one term
after the other (docs/explanation/mathematics.md, section 6.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.numerics import solve

_FEW = 12.0
"""Degrees of freedom, 2 σ⁴ I_tt, below which a component above zero may have several maxima."""

_MANY_LEVELS = 100
"""Levels from which the likelihood of a component is nearly normal."""

_TINY, _SMALL, _ALL_SETS = 20, 50, 3
"""Rows up to which few degrees of freedom alone call for other starts; rows and free terms up to
which all sets of terms are starts."""

_MOST = 0.8
"""Share of the total above which a component keeps its share in other starts of a small table."""

_NEARLY_ALL = 0.95
"""Share of the total above which a term may have absorbed the mean, as another term could."""

_UNLIKE = 0.02
"""Relative difference of observed and average information below which there is one maximum with
positive components, as for balanced data."""


@dataclass(frozen=True, slots=True)
class OtherStarts:
    """Starts of further climbs, where there may be a higher maximum than the first.

    Attributes
    ----------
    held : (k + 1,) held components
    sizes : (k + 1,) numbers of random effects, and of rows; zeros where unknown
    n_fixed : number of fixed effects
    """

    held: BoolArray
    sizes: FloatArray
    n_fixed: int = 0

    @property
    def is_crowded(self) -> bool:
        """Whether a small table has about as many effects as rows, so that they may fit it."""
        effects = self.sizes[:-1][~self.held[:-1]] - 1.0
        # Without a fixed mean, the mean of the effects adds one.
        rank = effects.sum() + max(self.n_fixed, 1)
        return bool(self._is_small and rank >= self.sizes[-1] - 1.0)

    @property
    def _is_small(self) -> bool:
        return bool(self.sizes[-1] <= _SMALL and (~self.held[:-1]).sum() <= _ALL_SETS)

    def doubtful(
        self, v: FloatArray, average: FloatArray, observed: Callable[[], FloatArray] | None
    ) -> BoolArray:
        """Return the terms that may be larger at a higher maximum than this one, (k + 1,).

        Parameters
        ----------
        v : (k + 1,) components at the maximum
        average, observed : informations there; the second is computed if needed, None if unknown
        """
        terms = self.free
        zero: BoolArray = terms & (v == 0.0)
        at_zero: BoolArray = zero & (self.sizes < _MANY_LEVELS)
        if at_zero.any() or observed is None:
            return at_zero
        # With hardly any information on a term, rounding may make it negative.
        unit = np.sqrt(np.maximum(np.diagonal(average), 0.0))
        few: BoolArray = (
            terms & ~zero & (self.sizes < _MANY_LEVELS) & (2.0 * np.square(v * unit) < _FEW)
        )
        # Without fixed effects any term can absorb the mean.
        has_mean = v[:-1].max() > _NEARLY_ALL * v.sum()
        if not few.any() or self.sizes[-1] <= _TINY or has_mean:
            return few
        inside = (v > 0.0) & ~self.held
        chosen = np.ix_(inside, inside)
        alike = np.abs(observed() - average)[chosen] < _UNLIKE * np.outer(unit, unit)[chosen]
        return at_zero if alike.all() else few

    @property
    def free(self) -> BoolArray:
        """Whether each component is that of a term and not held, (k + 1,)."""
        return ~self.held & (np.arange(self.held.size) < self.held.size - 1)

    @property
    def with_few_levels(self) -> BoolArray:
        """Which free terms have few levels, (k + 1,)."""
        return self.free & (self.sizes < _MANY_LEVELS)

    @property
    def are_along_components(self) -> bool:
        """Whether other maxima are sought along single components.

        In small tables with several terms, maxima may differ in all components.
        """
        return not self._is_small or int(self.free.sum()) == 1

    def elsewhere(self, v: FloatArray, doubtful: BoolArray) -> FloatArray:
        """Return shares of the components at other starts, a row each.

        Starts of small tables are all sets of terms, equal, with a large and with a small
        residual, and the residual alone. A term or residual with most of the total also keeps its
        share in some. If effects may fit the rows, the residual is also near zero. Starts of other
        tables are equal components, and each doubtful term above the others.

        Parameters
        ----------
        v, doubtful : (k + 1,) components at the end of the first climb, and terms that may be
            larger elsewhere
        """
        free, size = np.flatnonzero(self.free), v.size
        if not self._is_small:
            equal = np.where(self.held, 0.0, 1.0)
            starts: FloatArray = np.vstack([0.1 * equal, *np.eye(size)[doubtful]])
            starts[1:] = 0.1 * equal + free.size * starts[1:]
            starts /= starts.sum(axis=1, keepdims=True)
            return starts
        shares = (0.5, 0.01, 1e-7) if self.is_crowded else (0.5, 0.01)
        of_residual = v[-1] / v.sum()
        if of_residual > _MOST:
            shares = of_residual, *shares
        alone = np.eye(size)[-1:]
        rows = np.vstack([_sets(free, size, shares), alone])
        top = np.argmax(np.where(self.held, 0.0, v)[:-1])
        share = v[top] / v.sum()
        if _MOST < share < 1.0:
            below_top = (1.0 - share) * _sets(free[free != top], size, (0.5, 0.1))
            below_top[:, top] = share
            rows = np.vstack([rows, below_top])
        return rows


def _sets(free: LongArray, size: int, residuals: Sequence[float]) -> FloatArray:
    """Return shares of sets of free terms, large sets first, for each share of the residual."""
    masks = sorted(range(1, 2**free.size), key=lambda mask: -mask.bit_count())
    rows = np.zeros((len(masks) * len(residuals), size))
    for row, (mask, residual) in zip(rows, product(masks, residuals), strict=True):
        chosen = free[[bool(mask >> i & 1) for i in range(free.size)]]
        row[chosen], row[-1] = (1.0 - residual) / chosen.size, residual
    return rows


_STEP = 0.05
"""Step of the scan in the logarithm of a component. The information on that logarithm is at most
half the number of levels: a maximum is 0.14 wide with 100 levels, and wider with fewer."""

_MARGIN = 1e4
"""Factor by which the scan exceeds the inverse eigenvalues; farther out the likelihood is
monotone."""

_RANK = 1e-10
"""Eigenvalue relative to the largest below which an effect belongs to the fixed part."""

_FARTHEST = 1e10
"""Largest ratio of a component to the inverse of the largest eigenvalue."""

_LOWER = 2.0
"""Largest difference from the known maximum at which a point is still a start."""

_LEAST_POSITIVE = float(np.finfo(float).tiny)
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, slots=True)
class EffectForms:
    """Forms of the effects of terms with few levels at one point.

    Attributes
    ----------
    v : (k + 1,) components of the point
    term : (q,) the term of each effect
    within : (q, q) Z'PZ
    full : (q, q) Z'V⁻¹Z if the likelihood is the full one, Z'PZ for the restricted one
    fitted : (q,) Z'Py
    """

    v: FloatArray
    term: LongArray
    within: FloatArray
    full: FloatArray
    fitted: FloatArray

    def other_maxima(
        self, doubtful: BoolArray, form: float, degrees: float | None
    ) -> list[FloatArray]:
        """Return other local maxima along single components, the other components in proportion.

        Parameters
        ----------
        doubtful : (k + 1,) the components that are scanned
        form : y'Py at the point
        degrees : degrees of freedom; the best scale is form / degrees. None if the scale is known
        """
        starts = []
        for t in np.unique(self.term[doubtful[self.term]]).tolist():
            starts += [start for start, _ in _maxima(self, t, form, degrees, self.v[t])]
            for u in np.unique(self.term[self.v[self.term] > 0.0]).tolist():
                if u != t:
                    starts += self._exchanged(t, u, form, degrees)
        return starts

    def _exchanged(
        self, t: int, u: int, form: float, degrees: float | None
    ) -> Iterator[FloatArray]:
        """Yield maxima along component `t` with component `u` at zero, as starts.

        They are higher than the point, or a little lower and the likelihood falls as `u` rises.
        """
        without, form_without, gain = self._moved(u, -self.v[u], form)
        value = gain - _profiled(form_without, degrees) + _profiled(form, degrees)
        for start, rise in _maxima(without, t, form_without, degrees, None):
            height = value + rise
            if height > 0.0 or (height > -_LOWER and without._falls(start, t, u)):
                yield start

    def _falls(self, start: FloatArray, t: int, u: int) -> bool:
        """Whether the likelihood falls at a start of `_maxima` as component `u` rises from 0."""
        scale = start[-1] / self.v[-1]
        here, _, _ = self._moved(t, start[t] / scale - self.v[t], 0.0)
        place = self.term == u
        square = float(here.fitted[place] @ here.fitted[place]) / scale
        return bool(square <= np.trace(here.full[np.ix_(place, place)]))

    def _moved(self, t: int, change: float, form: float) -> tuple[EffectForms, float, float]:
        """Return the forms after a change of a component, y'Py, and the gain from log|V|."""
        place = self.term == t
        v = self.v.copy()
        v[t] += change
        eye = np.eye(int(place.sum()))
        right = np.column_stack([self.within[place], self.fitted[place]])
        solved = solve(eye + change * self.within[np.ix_(place, place)], right)
        within = self.within - change * self.within[:, place] @ solved[:, :-1]
        fitted = self.fitted - change * self.within[:, place] @ solved[:, -1]
        form = form - change * float(self.fitted[place] @ solved[:, -1])
        inner, full = eye + change * self.full[np.ix_(place, place)], within
        if self.full is not self.within:
            full = self.full - change * self.full[:, place] @ solve(inner, self.full[place])
        gain = -0.5 * float(np.linalg.slogdet(inner)[1])
        return replace(self, v=v, within=within, full=full, fitted=fitted), form, gain


def _profiled(form: FloatArray | float, degrees: float | None) -> FloatArray | float:
    """Return the part of −ℓ that depends on y'Py, at the best scale, up to a constant."""
    if degrees is None:
        return 0.5 * form
    return 0.5 * degrees * np.log(np.maximum(form, _LEAST_POSITIVE))


def _maxima(
    forms: EffectForms, t: int, form: float, degrees: float | None, known: float | None
) -> list[tuple[FloatArray, float]]:
    """Return the local maxima along a component, with their gain over the point.

    An end of the range is one of them if the likelihood rises towards it. Maxima next to the value
    `known` are left out.
    """
    place, u = forms.term == t, float(forms.v[t])
    within = forms.within[np.ix_(place, place)]
    values, vectors = np.linalg.eigh(within)
    squares = np.square(forms.fitted[place] @ vectors)
    dets = values
    if forms.full is not forms.within:
        dets = np.linalg.eigvalsh(forms.full[np.ix_(place, place)])
    x = _grid(np.concatenate([_at_zero(eigenvalues, u) for eigenvalues in (values, dets)]), u)
    d = (x - u)[:, None]
    left = form - (d * squares / np.maximum(1.0 + d * values, _LEAST_POSITIVE)).sum(axis=1)
    left = np.maximum(left, _EPS * form)
    value = _profiled(form, degrees) - _profiled(left, degrees)
    value = value - 0.5 * np.log(np.maximum(1.0 + d * dets, _LEAST_POSITIVE)).sum(axis=1)
    padded = np.concatenate([[-np.inf], value, [-np.inf]])
    peak = (value > padded[:-2]) & (value >= padded[2:])
    if known is not None:
        here = int(np.searchsorted(x, known))
        peak[max(here - 1, 0) : here + 2] = False
    maxima = []
    for i in np.flatnonzero(peak):
        start = forms.v.copy()
        start[t] = x[i]
        scale = 1.0 if degrees is None else float(left[i]) / degrees
        maxima.append((scale * start, float(value[i])))
    return maxima


def _at_zero(eigenvalues: FloatArray, u: float) -> FloatArray:
    """Return the positive eigenvalues λ/(1 − uλ) of the effects if their component were zero."""
    kept = eigenvalues[eigenvalues > _RANK * eigenvalues.max(initial=0.0)]
    return kept / np.maximum(1.0 - u * kept, _EPS)


def _grid(eigenvalues: FloatArray, u: float) -> FloatArray:
    """Return the values of the component for the scan: zero, `u` and a logarithmic grid."""
    inside = np.zeros(0)
    if eigenvalues.size:
        low = -np.log(_MARGIN * eigenvalues.max())
        high = np.log(min(_MARGIN / eigenvalues.min(), _FARTHEST / eigenvalues.max()))
        inside = np.exp(np.arange(low, high + _STEP, _STEP))
    return np.unique(np.concatenate([[0.0, u], inside]))


_RATIOS = np.concatenate([[0.0], 10.0 ** np.arange(-2.5, 2.5, 0.5), 10.0 ** np.arange(2.5, 8.0)])
"""Ratios of components to the residual. Effects of at most 50 rows have eigenvalues of at most 50:
below 10⁻³ the likelihood is linear in a ratio, and above 10³ in its logarithm."""

_RESIDUALS = np.concatenate([10.0 ** np.arange(-6.0, -2.0), 10.0 ** np.arange(-2.0, 1.0, 0.5)])
"""Residuals if components are held, relative to the mean square: with ratios in the same steps."""

_LOWER_ON_GRID = 3.0
"""Largest difference from the known maximum at which a grid point is a start: maxima up to 2 lower
are reported, and the nearest grid point is lower than they are."""

_LOWER_ON_RIDGE = 0.1
"""The same for a peak of a profile, where no point is one: the steps of the grid hide it."""

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
    peak = _peaks(values) & (
        (values > values[here] - _LOWER_ON_GRID) | _is_extreme(shape, bool(known))
    )
    coordinates = [residuals, *(axis[0] for axis in axes)]
    peak |= _tops_of_slices(values, coordinates, here)
    peak[here] = False
    starts = []
    for place in np.argwhere(peak)[np.argsort(-values[peak], kind="stable")]:
        start = np.ones(v.size)
        start[order] = [
            a[min(place[0], len(a) - 1), i] for a, i in zip(axes, place[1:], strict=True)
        ]
        starts.append(float(scale[tuple(place)]) * start)
    return starts


def _tops_of_slices(
    values: FloatArray, axes: Sequence[FloatArray], here: tuple[int, ...]
) -> BoolArray:
    """Return peaks of the profiles along each axis, apart from the slice of the known maximum.

    A profile has the highest point of each slice across its axis, raised to the top of the splines
    through it along the other axes: a ridge that is oblique to the grid passes between points,
    none of which need be a peak.

    Parameters
    ----------
    values : log-likelihoods
    axes : the coordinate along each axis, rising, in whose logarithm splines are
    here : place of the known maximum
    """
    tops = np.zeros(values.shape, dtype=bool)
    for axis, size in enumerate(values.shape):
        slices = np.moveaxis(values, axis, 0)
        others = np.unravel_index(slices.reshape(size, -1).argmax(axis=1), slices.shape[1:])
        places = [*others[:axis], np.arange(size), *others[axis:]]
        profile = slices.reshape(size, -1).max(axis=1) + sum(
            _rise(values, axes[u], places, u) for u in range(values.ndim) if u != axis
        )
        peak = _peaks(profile) & (profile > values[here] - _LOWER_ON_RIDGE)
        peak[here[axis]] = False
        tops[tuple(place[peak] for place in places)] = True
    return tops


def _rise(values: FloatArray, axis: FloatArray, places: Sequence[LongArray], u: int) -> FloatArray:
    """Return how far the splines through some points along an axis rise above them nearby."""
    from scipy.interpolate import CubicSpline

    zeros = int(np.count_nonzero(axis <= 0.0))
    x = np.log(axis[zeros:])
    if x.size < 4:
        return np.zeros(places[0].size)
    line = tuple(
        np.arange(zeros, axis.size)[None, :] if other == u else place[:, None]
        for other, place in enumerate(places)
    )
    at = places[u][:, None] - zeros
    fine = np.linspace(x[0], x[-1], 16 * x.size)
    near = (fine >= x[np.maximum(at - 1, 0)]) & (fine <= x[np.minimum(at + 1, x.size - 1)])
    tops = np.where(near, CubicSpline(x, values[line], axis=1)(fine), -np.inf).max(axis=1)
    return np.where(at[:, 0] >= 0, np.maximum(tops - values[tuple(places)], 0.0), 0.0)


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
