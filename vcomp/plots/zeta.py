"""Profile likelihoods as zeta plots: the signed root of the deviance over the parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, check_alpha
from vcomp.plots.canvas import COLOURS, GREY, PAD, escaped, legend, new_axes, pyplot, tidy_axes

_COLUMNS = 3
_POINTS = 241
_LOG_FROM = 30.0
"""Values this many times apart need a logarithmic axis."""


class Curve(Protocol):
    """What is drawn of a profile.

    Attributes
    ----------
    theta : (m,) values of the parameter
    z : (m,) signed root of twice the fall of the log-likelihood
    estimate : where z is 0
    low, high : ends of the interval
    alpha : the interval has confidence 1 − alpha
    """

    @property
    def theta(self) -> FloatArray: ...  # noqa: D102 - documented on the class
    @property
    def z(self) -> FloatArray: ...  # noqa: D102
    @property
    def estimate(self) -> float: ...  # noqa: D102
    @property
    def low(self) -> float: ...  # noqa: D102
    @property
    def high(self) -> float: ...  # noqa: D102
    @property
    def alpha(self) -> float: ...  # noqa: D102


def profile(curves: Mapping[str, Curve], *, axes: Sequence[Any] | None = None) -> list[Any]:
    """Draw a zeta plot of every profile: straight where the interval is as good as Wald's.

    The interval reaches from where the curve crosses −z to where it crosses z, the normal
    quantile (dashed); both ends are marked by a line up or down to the curve, which ends before
    −z where a parameter meets its bound first. An end at infinity has no mark. Positive values
    that span decades have a logarithmic axis.

    Parameters
    ----------
    curves : profiles by the names of their parameters
    axes : as many matplotlib axes as there are profiles; those of a new figure if None

    Returns
    -------
    list of matplotlib.axes.Axes, one a profile

    Raises
    ------
    DataError
        If there is no profile, or another number of axes.
    VcompError
        If matplotlib is not installed.

    References
    ----------
    Bates, Mächler, Bolker and Walker (2015), Journal of Statistical Software 67, sec. 5.1.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from matplotlib.figure import Figure
    >>> z = np.linspace(-2.5, 2.5, 11)
    >>> curve = SimpleNamespace(
    ...     theta=np.exp(z / 3), z=z, estimate=1.0, low=0.52, high=1.92, alpha=0.05
    ... )
    >>> (ax,) = profile({"var(a)": curve}, axes=[Figure().subplots()])
    >>> ax.get_xlabel()
    'var(a)'
    """
    if not curves:
        raise DataError("there is no profile to draw")
    panels = _panels(len(curves)) if axes is None else list(axes)
    if len(panels) != len(curves):
        raise DataError(f"{len(curves)} profiles need as many axes, not {len(panels)}")
    from matplotlib.ticker import MaxNLocator

    for ax, (name, curve) in zip(panels, curves.items(), strict=True):
        _draw(ax, name, curve)
        if ax.get_xscale() == "linear":
            most = 8 if len(panels) == 1 else 5
            ax.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    for ax in panels[:: _columns(len(panels))] if axes is None else panels:
        ax.set_ylabel("ζ, signed root\nof the deviance")
    return panels


def _columns(n: int) -> int:
    """Return how many panels stand side by side: four make a square."""
    return 2 if n == 4 else min(n, _COLUMNS)


def _panels(n: int) -> list[Any]:
    columns = _columns(n)
    rows = -(-n // columns)
    size = (6.0, 4.0) if n == 1 else (3.2 * columns, 2.6 * rows)
    figure, grid = pyplot().subplots(
        rows, columns, figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=PAD, h_pad=PAD)
    for ax in grid.flat[n:]:
        figure.delaxes(ax)
    return list(grid.flat[:n])


def _draw(ax: Any, name: str, curve: Curve) -> None:
    from scipy.special import ndtri

    theta, z = np.asarray(curve.theta, dtype=float), np.asarray(curve.z, dtype=float)
    inside = np.isfinite(theta) & np.isfinite(z)
    if curve.low > 0.0 and theta[inside].max(initial=0.0) > _LOG_FROM * curve.low:
        ax.set_xscale("log")
        inside &= theta > 0.0  # a search that came to 0 left the axis there
    order = np.argsort(theta[inside])
    ax.plot(*_smooth(theta[inside][order], z[inside][order]), color=COLOURS[0], linewidth=2.0)
    reach = -float(ndtri(curve.alpha / 2.0))
    for level in (-reach, 0.0, reach):
        style = "-" if level == 0.0 else "--"
        ax.axhline(level, color=GREY, linewidth=0.8, linestyle=style, zorder=1)
    for end in (curve.low, curve.high):
        if np.isfinite(end):
            height = float(np.interp(end, *_smooth(theta[inside][order], z[inside][order])))
            ax.vlines(end, min(height, 0.0), max(height, 0.0), color=COLOURS[1], linewidth=1.5)
    ax.plot(curve.estimate, 0.0, marker="o", color=COLOURS[1], linestyle="none")
    ax.set_title(
        f"{display.level(curve.alpha)}: {display.short_interval(curve.low, curve.high)}",
        fontsize="medium",
        color=GREY,
    )
    ax.set_xlabel(escaped(name))
    tidy_axes(ax, "both")


def _smooth(theta: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return many points of the monotone cubic spline through a few points of a profile."""
    from scipy.interpolate import PchipInterpolator

    theta, first = np.unique(theta, return_index=True)
    if theta.size < 3:
        return theta, z[first]
    share = np.linspace(0.0, 1.0, _POINTS)
    fine = np.interp(share, np.linspace(0.0, 1.0, theta.size), theta)
    fine = np.union1d(fine, theta)
    return fine, PchipInterpolator(theta, z[first])(fine)


_MOST_BINS = 60


def replicates(
    values: FloatArray | Sequence[float],
    name: str,
    *,
    estimate: float | None = None,
    interval: tuple[float, float] | None = None,
    alpha: float = 0.05,
    ax: Any | None = None,
) -> Any:
    """Draw the histogram of the replicates of a quantity.

    Replicates far out, which would leave no room for the others, are counted below the axis and
    not drawn.

    Parameters
    ----------
    values : (B,) replicates; those that are not finite are left out, and the axis says how many
        are left
    name : of the quantity, such as ``"σ²(topic)"``
    estimate : marked by a line; nothing if None
    interval : its ends, marked by a bar on the axis and dashed lines; nothing if None
    alpha : the interval has confidence 1 − alpha
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If fewer than 2 of the values are finite, or the interval has an end that is not a number.
    PlanError
        If alpha is not between 0 and 1.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> draws = np.random.default_rng(1).chisquare(9, size=200) / 9
    >>> ax = replicates(draws, "σ²(a)", interval=(0.3, 2.1), ax=Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('σ²(a)', 'replicates in each bin, of 200')
    """
    check_alpha(alpha)
    drawn = np.asarray(values, dtype=float).ravel()
    finite = drawn[np.isfinite(drawn)]
    if finite.size < 2:
        raise DataError(
            f"a histogram of {name} needs 2 replicates; there are {display.count(finite.size)}"
        )
    if interval is not None and np.isnan(interval).any():
        raise DataError(f"the interval of {name} has an end that is not a number: {interval}")
    ax = new_axes(ax)
    left, right = _range(finite, [*(interval or ()), *([] if estimate is None else [estimate])])
    inside = finite[(finite >= left) & (finite <= right)]
    ax.hist(inside, bins=_bins(inside), color=COLOURS[5], edgecolor="white", linewidth=0.6)
    tidy_axes(ax, "y")
    if interval is not None:
        _mark_interval(ax, interval, alpha)
    if estimate is not None:
        ax.axvline(
            estimate,
            color=COLOURS[1],
            linewidth=2.0,
            label=f"estimate {display.number(estimate, 3)}",
        )
    if interval is not None or estimate is not None:
        legend(ax, loc="best")
    notes = [
        f"{display.count(n)} {what}"
        for n, what in (
            (int((finite == 0.0).sum()), "exactly 0"),
            (finite.size - inside.size, "farther out"),
        )
        if n
    ]
    ax.set_xlabel("\n".join([escaped(name), *([", ".join(notes)] if notes else [])]))
    ax.set_ylabel(f"replicates in each bin, {_how_many(finite.size, drawn.size)}")
    return ax


def _range(values: FloatArray, marks: Sequence[float]) -> tuple[float, float]:
    """Return from where to where is drawn: nearly all replicates, and what is marked."""
    low, high = np.quantile(values, [0.005, 0.995])
    room = 0.5 * (high - low)
    marked = [mark for mark in marks if np.isfinite(mark)]
    left, right = max(values.min(), low - room), min(values.max(), high + room)
    return min([left, *marked]), max([right, *marked])


def _bins(values: FloatArray) -> FloatArray:
    """Return the edges of the bins: Freedman and Diaconis', of outliers not too many."""
    edges: FloatArray = np.histogram_bin_edges(values, bins="sturges")
    low, high = np.quantile(values, [0.25, 0.75])
    width = 2.0 * (high - low) / values.size ** (1.0 / 3.0)
    if width <= 0.0:
        return edges
    n = int(np.clip(np.ceil(np.ptp(values) / width), edges.size - 1, _MOST_BINS))
    return np.linspace(values.min(), values.max(), n + 1)


def _mark_interval(ax: Any, interval: tuple[float, float], alpha: float) -> None:
    left, right = ax.get_xlim()
    low, high = interval
    label = f"{display.level(alpha)} interval {display.short_interval(low, high)}"
    if np.isinf([low, high]).any():
        ax.set_xlim(left, right)
    shown = max(low, left) if np.isinf(low) else low, min(high, right) if np.isinf(high) else high
    ax.axvspan(*shown, color=GREY, alpha=0.15, linewidth=0.0, zorder=0.5, label=label)
    for end in interval:
        if np.isfinite(end):
            ax.axvline(end, color=GREY, linestyle="--", linewidth=1.2)


def _how_many(finite: int, total: int) -> str:
    if finite == total:
        return f"of {display.count(total)}"
    return f"{display.count(finite)} of {display.count(total)} finite"
