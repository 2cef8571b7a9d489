"""The components as quantities take them: what is negative, at its bound, or known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vcomp._typing import FloatArray
from vcomp.components import VarianceComponents
from vcomp.exceptions import PlanError

__all__ = ["Taken", "check_policy", "take_components"]


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """The components as a D-study takes them.

    Attributes
    ----------
    values : (k,)
    cov : (k, k) or None; zero for components that are taken as known
    zeroed : names of negative components that are taken as zero
    bounded : names of other components without a standard error, those that are held not among
        them: these are known

    Examples
    --------
    >>> Taken(np.array([0.5, 0.0]), None, zeroed=("Residual",), bounded=()).zeroed
    ('Residual',)
    """

    values: FloatArray
    cov: FloatArray | None
    zeroed: tuple[str, ...]
    bounded: tuple[str, ...]


def take_components(components: VarianceComponents, negative: str) -> Taken:
    """Return the components under a policy for negative ones.

    A component that is held, taken as zero, or without a standard error because it is at its
    bound, counts as known: its variance is zero in the delta method.

    Parameters
    ----------
    components : of the G-study
    negative : ``"zero"`` or ``"keep"``

    Raises
    ------
    PlanError
        `negative` is neither.

    References
    ----------
    Brennan (2001), Generalizability Theory, chap. 3: negative estimates are set to zero once all
    components have been estimated.

    Examples
    --------
    >>> from vcomp.dstudy import from_components
    >>> g = from_components({"p": 2.0, "i": -0.1, "Residual": 4.0}).components
    >>> take_components(g, "zero").values
    array([2., 0., 4.])
    """
    check_policy(negative)
    below = (components.values < 0) & (negative == "zero")
    values = np.where(below, 0.0, components.values)
    cov = components.cov
    unknown = np.zeros_like(below)
    if cov is not None:
        unknown = ~np.isfinite(np.diagonal(cov))
        known = below | unknown
        cov = np.where(known[:, None] | known[None, :], 0.0, cov)
    names = np.array(components.names, dtype=object)
    held = np.isin(names, list(components.held))
    return Taken(values, cov, tuple(names[below]), tuple(names[unknown & ~below & ~held]))


def check_policy(negative: str) -> None:
    """Refuse a policy for negative components that is not known.

    Raises
    ------
    PlanError
        If it is neither ``"zero"`` nor ``"keep"``.
    """
    if negative not in ("zero", "keep"):
        raise PlanError(f"negative is 'zero' or 'keep', not {negative!r}")
