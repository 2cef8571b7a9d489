"""Random-effects analyses of variance of errors and indicators, as in the paper.

Main effects (and the interaction of the two sizes, if there are two) are random; the residual
contains the trials and all other interactions. Components are by the ANOVA method, negative ones
kept; the total of a table is their sum, which is what the paper's code prints as "Total (error)
variance".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

import vcomp
from benchmarks.bias_study.cells import SIZES
from benchmarks.bias_study.evaluate import (
    DIAGNOSED_FROM,
    MEASURES,
    TRUTHS,
    Evaluation,
    estimators,
)
from benchmarks.bias_study.published import TABLES, TOTAL, Published
from benchmarks.bias_study.store import Settings
from vcomp._typing import FloatArray
from vcomp.ir.simulate.source_comparison import INDICATORS

if TYPE_CHECKING:
    import pandas as pd

_AXES = ("collection", "normal", "homoscedastic", "uncorrelated", "random", "n", "trial", "target")
_BATCHES = 10


@dataclass(frozen=True, slots=True)
class Share:
    """A component of a column of a table, or the total.

    Attributes
    ----------
    table : its number in the paper
    truth : what accuracy was measured against; ``"original"`` for indicators
    quantity : indicator or estimator
    factor : of the model, or ``"total"``
    variance : the component
    error : its Monte Carlo standard error, from batches of trials
    n_missing : values that were not defined
    """

    table: int
    truth: str
    quantity: str
    factor: str
    variance: float
    error: float
    n_missing: int


def decompositions(values: Evaluation, settings: Settings) -> list[Share]:
    """Return the components of all columns of tables 2 to 8."""
    shares: list[Share] = []
    for table in TABLES:
        if table.columns[0].startswith("sens") and not settings.sensitivities:
            continue
        for truth in TRUTHS[:1] if table.kind == "diagnosis" else TRUTHS:
            for quantity, errors in _columns(table, truth, values, settings):
                shares += _column(table, truth, quantity, errors)
    return shares


def components_of(values: FloatArray, factors: Sequence[str]) -> FloatArray:
    """Return the components of values with the axes of a study, then the total.

    Parameters
    ----------
    values : a cell a collection, or a collection and a size that accuracy is estimated for; nan
        where there is none
    factors : terms of the model, the residual last
    """
    frame = _codes(values.shape).assign(y=values.ravel())
    terms = " + ".join(f"(1|{factor})" for factor in factors[:-1])
    found = vcomp.fit(f"y ~ {terms}", frame[frame["y"].notna()], method="anova").vcomp
    components = found.reindex([*factors[:-1], "Residual"]).to_numpy()
    return np.append(components, components.sum())


def _columns(
    table: Published, truth: str, values: Evaluation, settings: Settings
) -> Iterator[tuple[str, FloatArray]]:
    """Return the columns of a table: what it decomposes."""
    for name in table.columns:
        if table.kind == "diagnosis":
            kept = [k for k, size in enumerate(settings.sizes) if SIZES[size] >= DIAGNOSED_FROM]
            place = list(INDICATORS).index(name)
            yield name, values.diagnosis[..., place][:, :, :, :, :, kept]
        else:
            yield name, _errors(name, truth, table.kind, values, settings)


def _errors(
    name: str, truth: str, kind: str, values: Evaluation, settings: Settings
) -> FloatArray:
    """Return how far estimates are off: of a collection's own size, or of each size."""
    wanted = estimators(settings.sensitivities)
    place = [e.name for e in wanted].index(name)
    measure = MEASURES.index(wanted[place].measure)
    estimates = values.estimates[..., place, :][..., list(settings.sizes)]
    actual = values.actual[..., TRUTHS.index(truth), measure]
    if kind == "existing":
        own = np.einsum("...itj,ij->...it", np.nan_to_num(estimates), np.eye(estimates.shape[-1]))
        there = np.isfinite(np.moveaxis(np.diagonal(estimates, axis1=5, axis2=7), -1, 5))
        return np.where(there, own - actual, np.nan)
    # What is expected of a size is the mean of all collections of it, under its assumptions.
    expected = _mean(actual, axis=6)
    return estimates - expected[:, :, :, :, :, None, None, :]


def _column(table: Published, truth: str, quantity: str, errors: FloatArray) -> list[Share]:
    found = components_of(errors, table.factors)
    trials = errors.shape[6]
    groups = np.array_split(np.arange(trials), min(_BATCHES, trials))
    spread = np.full(found.size, np.nan)
    if len(groups) > 1:
        of_batches = [components_of(errors[:, :, :, :, :, :, g], table.factors) for g in groups]
        spread = np.std(of_batches, axis=0, ddof=1) / np.sqrt(len(groups))
    missing = int(np.isnan(errors).sum())
    return [
        Share(table.number, truth, quantity, factor, float(v), float(e), missing)
        for factor, v, e in zip((*table.factors, TOTAL), found, spread, strict=True)
    ]


def _mean(values: FloatArray, axis: int) -> FloatArray:
    """Return means of what is there."""
    there = np.isfinite(values)
    total = np.where(there, values, 0.0).sum(axis=axis)
    return np.asarray(total / np.maximum(there.sum(axis=axis), 1))


@lru_cache(maxsize=4)
def _codes(shape: tuple[int, ...]) -> pd.DataFrame:
    import pandas as pd

    codes = np.indices(shape, dtype=np.int32).reshape(len(shape), -1)
    return pd.DataFrame(dict(zip(_AXES[: len(shape)], codes, strict=True)))
