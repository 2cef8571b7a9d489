"""Diagnostics of a fit: profile likelihoods, replicates, and the assumptions of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.exceptions import DataError, check_alpha
from vcomp.plots.canvas import COLOURS, GREY, escaped, legend, new_axes, panels, tidy_axes

_SIZE = (6.0, 4.0)


class Curve(Protocol):
    """Profile of a parameter, as it is drawn.

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


def profile(curves: Mapping[str, Curve], *, ax: Any | None = None) -> list[Any]:
    """Draw a zeta plot of every profile: straight where the interval is as good as Wald's.

    The interval reaches from where the curve crosses −z to where it crosses z, the normal
    quantile (dashed); both ends are marked by a line up or down to the curve, which ends before
    −z where a parameter meets its bound first. An end at infinity has no mark. Positive values
    that span decades have a logarithmic axis.

    Parameters
    ----------
    curves : profiles by the names of their parameters
    ax : matplotlib axes, as many as profiles; those of a new figure if None

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
    >>> (drawn,) = profile({"var(a)": curve}, ax=Figure().subplots())
    >>> drawn.get_xlabel()
    'var(a)'
    """
    if not curves:
        raise DataError("there is no profile to draw")
    n = len(curves)
    columns = 2 if n == 4 else 3  # four make a square
    drawn = panels(ax, n, (3.2, 2.6), columns=columns, alone=_SIZE, sharey=True)
    from matplotlib.ticker import MaxNLocator

    for panel, (name, curve) in zip(drawn, curves.items(), strict=True):
        _draw(panel, name, curve)
        if panel.get_xscale() == "linear":
            most = 8 if n == 1 else 5
            panel.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    for panel in drawn[::columns] if ax is None else drawn:
        panel.set_ylabel("ζ, signed root\nof the deviance")
    return drawn


def _draw(ax: Any, name: str, curve: Curve) -> None:
    from scipy.special import ndtri

    theta, z = np.asarray(curve.theta, dtype=float), np.asarray(curve.z, dtype=float)
    inside = np.isfinite(theta) & np.isfinite(z)
    # Values this many times apart need a logarithmic axis
    if curve.low > 0.0 and theta[inside].max(initial=0.0) > 30.0 * curve.low:
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
    share = np.linspace(0.0, 1.0, 241)
    fine = np.interp(share, np.linspace(0.0, 1.0, theta.size), theta)
    fine = np.union1d(fine, theta)
    return fine, PchipInterpolator(theta, z[first])(fine)


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
            f"a histogram of {name} needs 2 replicates; there are {display.count(finite.size)}",
            term=name,
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
    """Return the limits of the axis: nearly all replicates and all marks lie within."""
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
    n = int(np.clip(np.ceil(np.ptp(values) / width), edges.size - 1, 60))
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


_MOST_POINTS = 2_000
"""Number of points of a probability plot above which its middle is thinned out."""

_MARK = {"linestyle": "none", "marker": "o", "markersize": 3.5, "color": COLOURS[0]}


def assumptions(
    samples: Mapping[str, FloatArray],
    spreads: Mapping[str, FloatArray],
    tables: Sequence[Mapping[str, Any]],
    *,
    envelopes: Mapping[str, FloatArray] | None = None,
    residuals: Mapping[str, tuple[FloatArray, FloatArray]] | None = None,
    ax: Any | None = None,
) -> list[Any]:
    """Draw a page of pictures on the assumptions of a fit.

    Residuals against fitted values and covariates (:func:`residuals_against`); normal probability
    plots of effects and residuals (:func:`qq`); residual standard deviations by level;
    and of a table of two facets the residuals of one level against the effects of the other
    facet, those of the two most correlated levels, and the correlations of all pairs.

    Parameters
    ----------
    samples : name → (n,) deviations in standard deviations
    spreads : facet → (k,) residual standard deviations of its levels
    tables : of each table the mapping with the keys object, facet, effects, steepest, pair,
        correlations and rows, as :class:`vcomp.inference.assumptions.Diagnosis` makes it
    envelopes : of the samples by name, as of :func:`qq`
    residuals : name of a horizontal axis → its (n,) values, and the (n,) residuals
    ax : matplotlib axes, as many as pictures; those of a new figure if None

    Returns
    -------
    list of matplotlib.axes.Axes

    Raises
    ------
    DataError
        If there is nothing to draw, or the axes are not as many as the pictures.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> given = Figure().subplots(1, 2)
    >>> z = np.linspace(-2.0, 2.0, 9)
    >>> drawn = assumptions({"sys": z}, {"topic": abs(z) + 1.0}, [], ax=given)
    >>> [ax.get_title() for ax in drawn]
    ['sys', 'residuals by topic']
    """
    known, pictures = envelopes or {}, list[Callable[[Any], Any]]()
    for name, (x, e) in (residuals or {}).items():
        pictures.append(partial(_against, name, x, e))
    pictures += [partial(_probability, name, z, known.get(name)) for name, z in samples.items()]
    pictures += [partial(_spread, facet, sd) for facet, sd in spreads.items()]
    pictures += [partial(draw, table) for table in tables for draw in _OF_TABLE]
    if not pictures:
        raise DataError("there is nothing to draw")
    drawn = panels(ax, len(pictures), (3.3, 2.9))
    for panel, draw in zip(drawn, pictures, strict=True):
        draw(panel)
    return drawn


def qq(
    deviates: FloatArray | Sequence[float],
    name: str,
    *,
    envelope: FloatArray | None = None,
    ax: Any | None = None,
) -> Any:
    """Draw a normal probability plot (QQ plot), with a simulated envelope if there is one.

    Parameters
    ----------
    deviates : (n,) effects or residuals in standard deviations from their mean
    name : of the term, or "residuals"
    envelope : (3, k) normal quantiles, and the lower and upper ends there; as
        ``diagnosis.samples`` have it
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If there are fewer than 2 values.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> qq([-1.1, 0.2, 0.9], "topic", ax=Figure().subplots()).get_xlabel()
    'normal quantile'
    """
    values = np.asarray(deviates, dtype=float).ravel()
    if values.size < 2:
        raise DataError(f"a probability plot of {name} needs 2 values; there are {values.size}")
    ax = new_axes(ax, (4.0, 4.0))
    _probability(name, values, envelope, ax)
    return ax


def residuals_against(
    x: FloatArray | Sequence[float],
    resid: FloatArray | Sequence[float],
    name: str,
    *,
    ax: Any | None = None,
) -> Any:
    """Draw residuals against fitted values or a covariate, with the means of groups of x.

    Of many residuals the largest are drawn, and some of the others.

    Parameters
    ----------
    x : (n,) fitted values, or a covariate
    resid : (n,) residuals
    name : of x, for the label
    ax : matplotlib axes to draw on; those of a new figure if None

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    DataError
        If there is no residual, or x and the residuals differ in number.
    VcompError
        If matplotlib is not installed.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = residuals_against([0.0, 1.0, 2.0], [0.1, -0.2, 0.1], "days", ax=Figure().subplots())
    >>> ax.get_title()
    'residuals by days'
    """
    values, e = (np.asarray(v, dtype=float).ravel() for v in (x, resid))
    if values.size != e.size or e.size == 0:
        raise DataError(f"there are {values.size} values of {name} and {e.size} residuals")
    ax = new_axes(ax)
    _against(name, values, e, ax)
    return ax


_GROUPS = 12
"""Most groups of a horizontal axis whose mean residuals are drawn."""


def _against(name: str, x: FloatArray, e: FloatArray, ax: Any) -> None:
    largest = np.argsort(-np.abs(e), kind="stable")
    shown = largest
    if e.size > _MOST_POINTS:
        rest = np.sort(largest[_MOST_POINTS // 4 :])
        step = -(-rest.size // _MOST_POINTS)
        shown = np.concatenate([largest[: _MOST_POINTS // 4], rest[::step]])
    ax.plot(x[shown], e[shown], **_MARK, alpha=0.6)
    ax.axhline(0.0, color=GREY, linewidth=0.8, zorder=1)
    ends = np.unique(np.quantile(x, np.linspace(0.0, 1.0, _GROUPS + 1)[1:-1], method="nearest"))
    group = np.searchsorted(ends, x)
    counts = np.bincount(group, minlength=ends.size + 1)
    used = counts > 0
    if used.sum() > 1:
        middle, mean = (
            np.bincount(group, v, minlength=counts.size)[used] / counts[used] for v in (x, e)
        )
        ax.plot(middle, mean, color=COLOURS[1], linewidth=1.2)
    _finish(ax, f"residuals by {escaped(name)}", escaped(name), "residual")


def _probability(name: str, deviates: FloatArray, envelope: FloatArray | None, ax: Any) -> None:
    from scipy.special import ndtri

    z = np.sort(deviates)
    m = ndtri((np.arange(1.0, z.size + 1.0) - 0.375) / (z.size + 0.25))
    shown = _thinned(z.size)
    if envelope is not None:
        ax.fill_between(*envelope, color=GREY, alpha=0.18, linewidth=0.0, zorder=0.5)
    ax.axline((0.0, 0.0), slope=1.0, color=COLOURS[1], linewidth=1.2, zorder=1)
    ax.plot(m[shown], z[shown], **_MARK)
    _finish(ax, escaped(name), "normal quantile", "standardised value")


def _thinned(size: int) -> Any:
    """Return which ordered points to draw: all at the ends, some in the middle."""
    if size <= _MOST_POINTS:
        return slice(None)
    end = _MOST_POINTS // 4
    middle = np.linspace(end, size - end - 1, _MOST_POINTS // 2).astype(int)
    return np.concatenate([np.arange(end), middle, np.arange(size - end, size)])


def _spread(facet: str, sd: FloatArray, ax: Any) -> None:
    known = np.sort(sd[np.isfinite(sd)])
    ax.plot(np.arange(1, known.size + 1), known, **_MARK)
    ax.axhline(float(np.sqrt(np.mean(known**2))), color=COLOURS[1], linewidth=1.2, zorder=1)
    ax.set_ylim(0.0, 1.08 * float(known.max(initial=0.0)) or 1.0)
    _finish(ax, f"residuals by {escaped(facet)}", f"{escaped(facet)}, by rank",
            "residual standard deviation")  # fmt: skip


def _steepest(table: Mapping[str, Any], ax: Any) -> None:
    level, residuals, r = table["steepest"]
    x = table["effects"]
    ax.plot(x, residuals, **_MARK)
    _line(ax, x, residuals)
    _finish(ax, f"{escaped(level)}: r = {display.number(r, 2)}",
            f"effect of {escaped(table['facet'])}", f"residual of {escaped(level)}")  # fmt: skip


def _pair(table: Mapping[str, Any], ax: Any) -> None:
    first, x, second, y, r = table["pair"]
    ax.plot(x, y, **_MARK)
    _line(ax, x, y)
    _finish(ax, f"most correlated pair: r = {display.number(r, 2)}",
            f"residual of {escaped(first)}", f"residual of {escaped(second)}")  # fmt: skip


def _line(ax: Any, x: FloatArray, y: FloatArray) -> None:
    d = x - x.mean()
    size = float(d @ d)
    slope = float(d @ y) / size if size > 0.0 else 0.0
    ax.axline((float(x.mean()), float(y.mean())), slope=slope, color=COLOURS[1], linewidth=1.2)


def _correlations(table: Mapping[str, Any], ax: Any) -> None:
    r = np.asarray(table["correlations"])
    bins = np.linspace(-1.0, 1.0, 41)
    ax.hist(r, bins=bins, density=True, color=COLOURS[0], alpha=0.6)
    at = np.linspace(-1.0, 1.0, 401)
    # The density of r for independent normals with this many rows (Fisher 1915).
    half = 0.5 * (table["rows"] - 1) - 1.5
    density = np.power(np.maximum(1.0 - at * at, 1e-12), max(half, 0.0))
    density /= density.sum() * (at[1] - at[0])
    ax.plot(at, density, color=COLOURS[1], linewidth=1.2)
    _finish(ax, "all pairs; line: independent", f"correlation of residuals of two "
            f"{escaped(table['object'])}", "density")  # fmt: skip


_OF_TABLE = (_steepest, _pair, _correlations)


def _finish(ax: Any, title: str, xlabel: str, ylabel: str) -> None:
    ax.set_title(title, fontsize="medium", color=GREY)
    ax.set_xlabel(xlabel, fontsize="small")
    ax.set_ylabel(ylabel, fontsize="small")
    tidy_axes(ax, "both")
