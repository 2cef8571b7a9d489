"""Differences between measures of the same levels, all of which are drawn again jointly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import BoolArray, FloatArray
from vcomp.exceptions import EstimationError
from vcomp.resampling.streams import check_count, seed_from
from vcomp.results.refitting import fitted_again
from vcomp.studies.differences import MeasureDifferences
from vcomp.studies.pairs import check_same_levels, shared_facets
from vcomp.uncertainty import Quantities

if TYPE_CHECKING:
    from vcomp.studies.comparison import MeasureComparison

__all__ = ["bootstrap_differences"]


def bootstrap_differences(
    compared: MeasureComparison,
    made: dict[str, Quantities],
    what: str,
    sizes: dict[str, FloatArray],
    notes: tuple[str, ...],
    shared: str | Sequence[str],
    n: int,
    rng: int | np.random.Generator | None,
    workers: int,
    progress: bool | None,
) -> MeasureDifferences:
    """Return differences with percentile intervals from levels that are drawn jointly.

    A replicate of one number draws the same levels of the facets in all measures, as its random
    numbers are the same and so are the levels.

    Raises
    ------
    EstimationError
        If the measures do not have the same levels, complete in every combination.
    """
    n, seed = check_count(n, "n"), seed_from(rng)
    facets = _drawn(compared, shared)
    check_same_levels(compared, facets)
    values: dict[str, FloatArray] = {}
    usable: BoolArray = np.ones(n, dtype=bool)
    for name, res in compared.results.items():
        found = res.resample(facets, n, rng=seed, workers=workers, progress=progress)
        assert found.adjusted is not None
        zero = compared.studies[name].negative == "zero"
        taken = np.maximum(found.adjusted, 0.0) if zero else found.adjusted
        values[name] = made[name].values(taken)
        usable &= found.converged
    estimates = {name: s.columns for name, s in compared.studies.items()}
    coefficient = "Erho2" if what.endswith("Eρ²") else "Phi"
    table = _table(
        list(values), {k: e[coefficient] for k, e in estimates.items()}, values, usable, sizes,
        compared.alpha,
    )  # fmt: skip
    drawn = " and ".join(facets)
    words = f"percentiles of {int(usable.sum()):,} joint bootstrap replicates over {drawn}"
    return MeasureDifferences(table, what, compared.alpha, words, notes)


def _drawn(compared: MeasureComparison, shared: str | Sequence[str]) -> list[str]:
    """Return the facets that are drawn: all that are a sample, and nested in no other."""
    given = shared_facets(compared, shared)
    name, res = next(iter(compared.results.items()))
    nested = fitted_again(res)[1].structure.nested_in
    fixed = compared.studies[name].plan.universe.fixed
    facets = [f for f, above in nested.items() if not above and f not in fixed]
    facets = [f for f in facets if given is None or f in given]
    if not facets:
        raise EstimationError("the measures share no facet whose levels could be drawn jointly")
    for other, res in compared.results.items():
        missing = [f for f in facets if f not in res.design.facets]
        if missing:
            raise EstimationError(
                f"measure {other!r} has no facet {missing[0]!r}, which a joint bootstrap draws; "
                "shared= says which facets are the same"
            )
        partly = [pair for pair in res.design.partly_crossed if set(pair) & set(facets)]
        if partly and len(facets) > 1:
            raise EstimationError(
                f"in measure {other!r} {' and '.join(partly[0])} are not fully crossed, so that "
                "levels of several facets cannot be drawn alike in all measures; "
                "method='mover' does without"
            )
    return facets


def _table(
    names: list[str],
    estimates: dict[str, FloatArray],
    values: dict[str, FloatArray],
    usable: BoolArray,
    sizes: dict[str, FloatArray],
    alpha: float,
) -> Any:
    import pandas as pd

    rows = []
    for a, b in combinations(names, 2):
        left, right = values[a][usable], values[b][usable]
        known = ~(np.isnan(left) | np.isnan(right)).any(axis=1)
        left, right = left[known], right[known]
        low, high = np.quantile(left - right, [alpha / 2.0, 1.0 - alpha / 2.0], axis=0)
        r = [np.corrcoef(x, y)[0, 1] for x, y in zip(left.T, right.T, strict=True)]
        columns = {"difference": estimates[a] - estimates[b], "low": low, "high": high}
        pair = {"first": a, "second": b, **sizes, **columns, "correlation": r}
        rows.append(pd.DataFrame(pair, index=range(len(r))))
    return pd.concat(rows, ignore_index=True)
