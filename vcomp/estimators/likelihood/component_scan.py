"""The likelihood along single components with few levels, scanned for other maxima.

Another value of a component changes V by a matrix of the rank of its levels. With the scale of all
components at its best, the likelihood along it therefore follows from eigenvalues of two small
matrices at one point, without another evaluation (docs/explanation/mathematics.md, section 6.5).
A second component may be exchanged for the first: it is set to zero along the scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.numerics import solve

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

_TINY = float(np.finfo(float).tiny)
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
    return 0.5 * degrees * np.log(np.maximum(form, _TINY))


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
    left = form - (d * squares / np.maximum(1.0 + d * values, _TINY)).sum(axis=1)
    left = np.maximum(left, _EPS * form)
    value = _profiled(form, degrees) - _profiled(left, degrees)
    value = value - 0.5 * np.log(np.maximum(1.0 + d * dets, _TINY)).sum(axis=1)
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
