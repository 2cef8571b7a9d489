"""The two values of a result, its record and its rows, and functions that extract them.

The parts of the result class (:mod:`~vcomp.model.estimates`, :mod:`~vcomp.model.uncertainty`,
:mod:`~vcomp.model.decisions`) share :class:`Fitted`. Functions of this room take the record and
the rows; the functions below are for other rooms, which have the result alone.
"""

from __future__ import annotations

from vcomp.design import Design
from vcomp.inference.hypotheses import ComparedFit
from vcomp.inference.resampling import GeneratingFit
from vcomp.model.record import FitRecord
from vcomp.model.row_access import RowAccess, require_rows


class Fitted:
    """The record of a fit, and access to its rows; None after loading."""

    _record: FitRecord
    _rows: RowAccess | None

    @property
    def _row_access(self) -> RowAccess:
        return require_rows(self._rows)


def record_of(res: Fitted) -> FitRecord:
    """Return the record of a fit.

    Parameters
    ----------
    res : the fit
    """
    return res._record


def compared_fit(res: Fitted) -> ComparedFit:
    """Return the values that a comparison with other models uses.

    Parameters
    ----------
    res : the fit
    """
    record, rows = res._record, res._rows
    return ComparedFit(
        formula=record.formula,
        response=record.response,
        estimate=record.estimate,
        exog_names=record.exog_names,
        nobs=record.structure.n_rows,
        response_sums=record.response_sums,
        stats=None if rows is None else rows.model.statistics,
    )


def fitted_again(res: Fitted) -> tuple[GeneratingFit, Design]:
    """Return how a fit was made, with the statistics of its rows, and the design of its data.

    Parameters
    ----------
    res : the fit

    Raises
    ------
    DataError
        If the result was loaded without its rows.
    """
    access = require_rows(res._rows)
    return access.generating(), access.model.design
