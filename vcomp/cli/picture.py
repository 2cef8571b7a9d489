"""Pictures as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vcomp.exceptions import DataError
from vcomp.plots import pyplot

__all__ = ["check_picture", "draw", "save"]


def check_picture(file: str) -> None:
    """Refuse a file whose ending names no kind of picture, before anything is computed.

    Parameters
    ----------
    file : such as ``"reliability.svg"``

    Raises
    ------
    DataError
        If the ending is not one that matplotlib can write.
    VcompError
        If matplotlib is not installed.
    """
    pyplot()
    from matplotlib.backend_bases import FigureCanvasBase

    known = sorted(FigureCanvasBase.get_supported_filetypes())
    ending = Path(file).suffix.removeprefix(".").lower()
    if ending not in known:
        raise DataError(
            f"cannot draw {file!r}: its ending has to be one of {', '.join(known)}, such as "
            f"{Path(file).stem or 'picture'}.png"
        )


def draw(res: Any, study: Any, file: str, alpha: float, method: Any) -> None:
    """Write a picture of the D-study, or of the components where there is none.

    Parameters
    ----------
    res : a fit
    study : its D-study, or None
    file : with an ending that :func:`check_picture` lets pass
    alpha : intervals of the components have confidence 1 − alpha
    method : of these intervals

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    save(res.plot(alpha=alpha, method=method) if study is None else study.plot(), file)


def save(axes: Any, file: str) -> None:
    """Write the figure that has these axes, and close it.

    Parameters
    ----------
    axes : of matplotlib
    file : with an ending that :func:`check_picture` lets pass

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    try:
        axes.figure.savefig(file, dpi=200)
    except OSError as error:
        raise DataError(f"cannot write {file!r}: {error.strerror}") from None
    finally:
        pyplot().close(axes.figure)
