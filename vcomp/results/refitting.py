"""What is needed of a result to fit parts of its data again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcomp.design import Design
    from vcomp.resampling import Generating
    from vcomp.results.fitted import FittedComponents

__all__ = ["fitted_again"]


def fitted_again(res: FittedComponents) -> tuple[Generating, Design]:
    """Return how a fit was made, with the statistics of its rows, and the design of its data.

    Parameters
    ----------
    res : the fit

    Raises
    ------
    DataError
        If the result was loaded without its rows.
    """
    access = res._access()
    return access.generating(), access.model.design
