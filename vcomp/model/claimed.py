"""The model of a design that is claimed in Brennan's notation, with what the data tell of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp.data import (
    CompleteRows,
    Missing,
    Rows,
    Source,
    open_source,
    select_rows,
    source_of,
    used_columns,
)
from vcomp.design import Claim, Occurring, Supported, find_grid, read_claim
from vcomp.display import check_progress
from vcomp.exceptions import warn
from vcomp.formula import parse
from vcomp.model.model import VarianceComponentsModel
from vcomp.statistics import ReadAgain
from vcomp.statistics.batches import (
    Batches,
    CellSums,
    check_streams,
    gather,
    gather_on_dask,
    is_on_dask,
    occurring,
    restated,
    should_stream,
    source_on_dask,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is wanted of the rows, however they are read."""

    claim: Claim
    environment: Any
    missing: Missing


def claimed_model(
    design: str,
    response: str,
    data: Any,
    facets: Mapping[str, str] | None,
    missing: Missing,
    environment: Any,
    *,
    stream: bool | None = None,
    progress: bool | None = None,
) -> VarianceComponentsModel:
    """Return the model of a design in Brennan's notation, with all effects that the data tell.

    Parameters
    ----------
    design, response, data, facets, missing, stream, progress : as for :func:`vcomp.gstudy`
    environment : patsy's ``EvalEnvironment`` of the caller

    Warns
    -----
    VcompWarning
        If the data confound effects of the design.
    """
    check_streams(stream)
    check_progress(progress, on_dask=is_on_dask(data))
    claim = read_claim(design, response, facets, partial(_opened, data))
    asked = _Asked(claim, environment, missing)
    if is_on_dask(data):
        supported, model = _on_dask(asked, data)
    else:
        source = source_of(claim.widest, claim.source, environment)
        n_columns = len(used_columns(claim.widest, source, environment))
        if should_stream(source, n_columns, stream):
            supported, model = _in_batches(asked, source, progress)
        else:
            supported, model = _in_memory(asked, source)
    model.design = replace(model.design, structure=supported.described(model.design.structure))
    return model


def _opened(data: Any) -> Source | None:
    """Open the data once: a stream cannot be opened again."""
    if data is None:
        return None
    return source_on_dask(data) if is_on_dask(data) else open_source(data)


def _supported(claim: Claim, found: Occurring) -> Supported:
    """Find out what the data support, and warn of what they do not."""
    supported = claim.supported(found)
    confounded = supported.in_words()
    if confounded is not None:
        warn(confounded)
    return supported


def _in_memory(asked: _Asked, source: Source) -> tuple[Supported, VarianceComponentsModel]:
    claim = asked.claim
    rows = select_rows(claim.widest, source, asked.environment, asked.missing)
    renamed = {f: rows.facets[column].rename(f) for f, column in claim.columns.items()}
    supported = _supported(claim, _occurring_in_rows(renamed))
    used = parse(supported.formula).facets
    kept: Rows = replace(rows, facets={f: renamed[f] for f in used})
    return supported, VarianceComponentsModel(supported.formula, kept, eval_env=asked.environment)


def _occurring_in_rows(facets: Mapping[str, pd.Series]) -> Occurring:
    codes = {f: np.asarray(c.cat.codes, dtype=np.int32) for f, c in facets.items()}
    n_levels = {f: len(c.cat.categories) for f, c in facets.items()}
    n_rows = len(next(iter(facets.values())))
    grid = find_grid(list(codes.values()), list(n_levels.values()), ())
    if grid is None:
        return Occurring(n_levels, codes, n_rows)
    positions = {f: k for k, f in enumerate(codes)}
    return Occurring.on_grid(grid, positions, n_levels, n_rows)


def _in_batches(
    asked: _Asked, source: Source, progress: bool | None
) -> tuple[Supported, VarianceComponentsModel]:
    claim, environment = asked.claim, asked.environment
    sums = gather(claim.widest, source, environment, asked.missing, seal=True, progress=progress)

    def every_cell() -> CellSums:
        assert sums.again is not None
        return CellSums(sums.learned, sums.again())

    again = partial(_RenamedBatches, claim, source, environment)
    return _of_sums(asked, sums, every_cell, again)


def _on_dask(asked: _Asked, data: Any) -> tuple[Supported, VarianceComponentsModel]:
    gathered = partial(gather_on_dask, asked.claim.widest, data, asked.environment, asked.missing)
    return _of_sums(asked, gathered(seal=True), partial(gathered, seal=False), None)


def _of_sums(
    asked: _Asked,
    sums: CellSums,
    every_cell: Callable[[], CellSums],
    again: ReadAgain,
) -> tuple[Supported, VarianceComponentsModel]:
    """Return the model of sums in cells of all facets of the design.

    Parameters
    ----------
    every_cell : sums the rows once more, and puts no cells together
    again : the rows, to be read once more
    """
    columns = asked.claim.columns
    supported = _supported(asked.claim, occurring(sums, columns))
    formula = parse(supported.formula)
    wanted = restated(sums, formula, columns) or restated(every_cell(), formula, columns)
    assert wanted is not None
    model = VarianceComponentsModel.from_sums(wanted, asked.environment, again)
    return supported, model


class _RenamedBatches(Batches):
    """The rows of a G-study with its facets under the names that the design has for them.

    They are those that have all that the design names, also what the data do not tell apart.
    """

    def __init__(
        self, claim: Claim, source: Source, environment: Any, progress: bool | None = False
    ) -> None:
        super().__init__(claim.widest, source, environment, progress)
        self._facets = {column: facet for facet, column in claim.columns.items()}

    def each(self, why: str = "") -> Iterator[CompleteRows]:
        for part in super().each(why):
            yield replace(part, frame=part.frame.rename(columns=self._facets))
