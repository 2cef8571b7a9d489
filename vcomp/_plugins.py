"""Measures, intervals and estimators of other packages, by the entry points that they declare."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from vcomp.exceptions import VcompError

Group = Literal["measures", "intervals", "estimators"]


def plugin_names(group: Group) -> list[str]:
    """Return the names that installed packages declare; nothing of them is imported."""
    return sorted({point.name for point in entry_points(group=f"vcomp.{group}")})


def plugin(group: Group, name: str) -> Any:
    """Return what an entry point names, imported now; None if there is no such entry point.

    Raises
    ------
    VcompError
        If its package cannot be imported, or two packages declare the name.
    """
    named = list(
        {point.value: point for point in entry_points(group=f"vcomp.{group}", name=name)}.values()
    )
    if not named:
        return None
    if len(named) > 1:
        packages = " and ".join(map(_package, named))
        raise VcompError(f"{name!r} in vcomp.{group} is declared by {packages}: uninstall one")
    try:
        return named[0].load()
    except Exception as error:
        raise VcompError(
            f"{name!r} in vcomp.{group} is {named[0].value} of {_package(named[0])}, which cannot "
            f"be imported: {type(error).__name__}: {error}"
        ) from error


def refused(group: Group, name: str, what: str) -> VcompError:
    """Return the error for an entry point that names something else than it should.

    Parameters
    ----------
    group, name : of the entry point
    what : it should be
    """
    (point, *_) = entry_points(group=f"vcomp.{group}", name=name)
    return VcompError(
        f"{name!r} in vcomp.{group} is {point.value} of {_package(point)}, which is not {what}"
    )


def _package(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"the package {point.dist.name!r}"
