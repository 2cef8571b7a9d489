"""Parts of all pictures: axes, colours, whiskers, labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import DataError, VcompError

if TYPE_CHECKING:
    import pandas as pd

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours that colour-blind readers distinguish (Okabe and Ito 2008, Color Universal Design)."""

GREY = "#666666"

_SIZE = (6.0, 4.0)

MOST_LINES = 12
"""Largest number of lines that can be distinguished."""

BANDS_UP_TO = 2
"""Largest number of lines with their intervals as bands."""

ASIDE = 5.0
"""Points (1/72 inch) between the markers or whiskers of two lines at one size."""

PAD = 0.08
"""Inches around the axes of a new figure."""


def pyplot() -> Any:
    """Return matplotlib's pyplot, which shows new figures in notebooks.

    Raises
    ------
    VcompError
        If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise VcompError(
            "pictures are drawn by matplotlib, which is not installed: "
            "pip install 'variance-components[plot]'"
        ) from None
    return plt


def new_axes(ax: Any | None, size: tuple[float, float] = _SIZE) -> Any:
    """Return the given axes, or those of a new figure.

    Parameters
    ----------
    ax : matplotlib axes or None
    size : width and height of a new figure in inches

    Raises
    ------
    VcompError
        If matplotlib is not installed.
    """
    return _new_figure(1, 1, size)[0] if ax is None else ax


def panels(
    ax: Any | None,
    n: int,
    size: tuple[float, float],
    *,
    columns: int = 3,
    alone: tuple[float, float] | None = None,
    sharey: bool = False,
) -> list[Any]:
    """Return the axes of several pictures: those given, or those of a new figure.

    Parameters
    ----------
    ax : matplotlib axes, as many as pictures, or None
    n : number of pictures
    size : width and height of each in inches
    columns : pictures side by side at most
    alone : size of a single one; as the others if None
    sharey : whether they have one vertical axis

    Raises
    ------
    DataError
        If the axes are not as many as the pictures.
    VcompError
        If matplotlib is not installed.
    """
    if ax is not None:
        given = list(np.ravel(np.asarray(ax, dtype=object)))
        if len(given) != n:
            raise DataError(
                f"there are {len(given)} axes for {display.counted(n, 'picture')}; give one each"
            )
        return given
    columns = min(n, columns)
    rows = -(-n // columns)
    whole = alone if n == 1 and alone is not None else (size[0] * columns, size[1] * rows)
    axes = _new_figure(rows, columns, whole, sharey=sharey)
    for empty in axes[n:]:
        empty.remove()
    return axes[:n]


def _new_figure(
    rows: int, columns: int, size: tuple[float, float], *, sharey: bool = False
) -> list[Any]:
    """Return the axes of a new figure, row by row."""
    figure, grid = pyplot().subplots(
        rows, columns, figsize=size, sharey=sharey, squeeze=False, layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=PAD, h_pad=PAD)
    return list(grid.flat)


def tidy_axes(ax: Any, grid: str) -> None:
    """Leave out the frame's upper and right line, and draw a light grid.

    Parameters
    ----------
    ax : matplotlib axes
    grid : ``"x"``, ``"y"`` or ``"both"``
    """
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, axis=grid, color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)


def number_axis(ax: Any, which: str, written: Callable[[float], str], *, log: bool) -> None:
    """Write the numbers of an axis; a logarithmic one has ticks at 1, 2, 5, 10 and so on.

    Parameters
    ----------
    ax : matplotlib axes
    which : ``"x"`` or ``"y"``
    written : number → text
    log : whether the axis becomes logarithmic
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = getattr(ax, f"{which}axis")
    if log:
        ax.set(**{f"{which}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: written(value)))


def moved(ax: Any, points: float) -> Any:
    """Return the transform of data, moved to the right by some points (1/72 inch).

    Parameters
    ----------
    ax : matplotlib axes
    points : may be negative
    """
    from matplotlib.transforms import ScaledTranslation

    return ax.transData + ScaledTranslation(points / 72.0, 0.0, ax.figure.dpi_scale_trans)


def with_whiskers(sizes: FloatArray, n_lines: int) -> BoolArray:
    """Return at which sizes lines have whiskers: at all, or at the largest if these were many.

    Parameters
    ----------
    sizes : (m,) at which a line has points
    n_lines : number of lines

    Examples
    --------
    >>> with_whiskers(np.array([10.0, 20.0]), 3), with_whiskers(np.array([10.0, 20.0]), 7)
    (array([ True,  True]), array([False,  True]))
    """
    # Number of whiskers above which those of several lines cannot be distinguished
    return np.asarray((sizes == sizes.max(initial=0.0)) | (sizes.size * n_lines <= 12))


def at_the_largest(facet: str) -> str:
    """Return the end of a label of lines with whiskers at one size only.

    Examples
    --------
    >>> at_the_largest("rater").splitlines()
    [',', 'at the largest number of raters']
    """
    return f",\nat the largest number of {escaped(display.levels_of(facet))}"


def points_aside(
    ax: Any, points: Sequence[FloatArray], place: float, whiskers: BoolArray, **look: Any
) -> None:
    """Draw points; those with whiskers stand aside, so that no whisker hides another.

    Parameters
    ----------
    ax : matplotlib axes
    points : (m,) places x and values y, and the ends of the interval of y
    place : points (1/72 inch) to the right
    whiskers : (m,) which points have them
    **look : of the markers, with their ``color``; a ``label`` is in the legend once
    """
    x, y, low, high = points
    label = look.pop("label", None)
    for rows, by in ((whiskers, place), (~whiskers, 0.0)):
        if rows.any():
            where = {"linestyle": "none", "transform": moved(ax, by), "label": label}
            ax.plot(x[rows], y[rows], **where, **look)
            label = None
    known = whiskers & ~(np.isnan(low) | np.isnan(high))
    if known.any():
        line = {"color": look["color"], "linewidth": 1.2, "transform": moved(ax, place)}
        ax.vlines(x[known], low[known], high[known], **line)


def legend(ax: Any, **look: Any) -> None:
    """Draw a legend in small letters, slightly transparent.

    Parameters
    ----------
    ax : matplotlib axes
    **look : further arguments of matplotlib's ``legend``
    """
    ax.legend(fontsize="small", edgecolor="none", framealpha=0.85, **look)


def colours(n: int) -> list[Any]:
    """Return n colours: those of :data:`COLOURS`, or a scale from dark to light for more.

    Parameters
    ----------
    n : number of lines

    Examples
    --------
    >>> colours(2)
    ['#0072B2', '#D55E00']
    """
    if n <= len(COLOURS):
        return list(COLOURS[:n])
    import matplotlib

    # The last tenth of the scale is a yellow that cannot be read on white.
    return [matplotlib.colormaps["viridis"](share) for share in np.linspace(0.0, 0.9, n)]


def escaped(text: object) -> str:
    r"""Return text in which matplotlib does not read dollar signs as mathematics.

    Parameters
    ----------
    text : the name of a term, a facet or a level

    Examples
    --------
    >>> print(escaped("US$ in k$"))
    US\$ in k\$
    """
    return str(text).replace("$", r"\$")


def whiskers(
    ax: Any, places: FloatArray, low: FloatArray, high: FloatArray, **look: Any
) -> tuple[Any, BoolArray]:
    """Draw a horizontal line for each interval that is known, cut at the limits of the axis.

    An end at infinity, or outside of the axis (0 on a logarithmic one), gets an arrow there.

    Parameters
    ----------
    ax : matplotlib axes, their horizontal limits already set
    places : (m,) heights
    low, high : (m,) ends; nothing is drawn where one is nan
    **look : of the lines, arguments of matplotlib's ``hlines``

    Returns
    -------
    The collection of lines, and (m,) whether there is one
    """
    left, right = ax.get_xlim()
    known = ~(np.isnan(low) | np.isnan(high))
    places, low, high = places[known], low[known], high[known]
    lines = ax.hlines(places, np.maximum(low, left), np.minimum(high, right), **look)
    arrow = {"linestyle": "none", "color": look.get("color"), "clip_on": False, "markersize": 6}
    for outside, edge, marker in ((low < left, left, "<"), (high > right, right, ">")):
        if outside.any():
            ax.plot(np.full(int(outside.sum()), edge), places[outside], marker=marker, **arrow)
    return lines, known


def numbers(frame: pd.DataFrame, *columns: str) -> Iterator[FloatArray]:
    """Yield columns of a frame as floats."""
    for column in columns:
        yield frame[column].to_numpy(dtype=float)


def name_rows(ax: Any, names: Iterable[object], *, smaller_above: int | None = None) -> None:
    """Name the rows of a picture, the first one on top.

    Parameters
    ----------
    ax : matplotlib axes
    names : of the rows at 0, 1, 2 and so on
    smaller_above : more names than this are in small letters
    """
    texts = [escaped(name) for name in names]
    small = smaller_above is not None and len(texts) > smaller_above
    ax.set_yticks(range(len(texts)), texts)
    ax.tick_params(axis="y", length=0, labelsize="small" if small else None)
    ax.set_ylim(len(texts) - 0.5, -0.5)


def hollow_dots(ax: Any, x: FloatArray, y: FloatArray, filled: BoolArray, **look: Any) -> None:
    """Draw dots, hollow ones where there is no interval.

    Parameters
    ----------
    ax : matplotlib axes
    x, y : (m,) places
    filled : (m,) whether a dot has an interval
    **look : arguments of matplotlib's ``plot``
    """
    look = {"linestyle": "none", "marker": "o", "color": COLOURS[0], **look}
    for group, fill in ((filled, COLOURS[0]), (~filled, "white")):
        if group.any():
            ax.plot(x[group], y[group], markerfacecolor=fill, **look)


def require_columns(frame: pd.DataFrame, columns: Iterable[str], what: str) -> None:
    """Refuse a frame that lacks a column.

    Parameters
    ----------
    frame : to be drawn
    columns : that are needed
    what : the frame, in words

    Raises
    ------
    DataError
        If one is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> require_columns(pd.DataFrame({"estimate": [1.0]}), ["estimate"], "the table")
    """
    missing = [c for c in columns if c not in frame]
    if missing:
        raise DataError(
            f"{what} has no column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(repr, frame.columns))}",
            column=missing[0],
        )
