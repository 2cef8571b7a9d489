"""The bias of Eτ and Eτ_AP at 50 topics, from more collections than the study has.

Both as published, as in the study, and with observed differences shrunk by their reliability,
which is the library's default. With 100 trials the Monte Carlo error is .005 to .01, as large as
the bias. So this one size has thousands of collections, without the slow extrapolation from
halves.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from benchmarks.bias_study.cells import COLLECTIONS, REALISTIC, SIZES, Part, simulator
from benchmarks.bias_study.evaluate import TRUTHS, actual_ranks, expected_ranks
from vcomp._typing import FloatArray
from vcomp.ir.rank.correlation_tables import estimated_tau
from vcomp.ir.rank.paired import PairedDifferences
from vcomp.numerics.parallel import limited_blas, stream

ESTIMATORS = ("Etau", "Etau.shrunken", "Etau_ap", "Etau_ap.shrunken")
"""As published, and by the library's default."""

MEANS = ("fitted", "observed")
"""System effects as published, or moved so that true means are those of the original."""

_N = 50
_BLOCK = 100
_FIRST = 10**9
"""Number of the first collection, beyond those of the study."""


@dataclass(frozen=True, slots=True)
class AtFifty:
    """The bias of an estimator at 50 topics, under the realistic assumptions.

    Attributes
    ----------
    means : how true means were set, of :data:`MEANS`
    truth : what accuracy was measured against; with ``"observed"`` means both are the same
    collection, estimator : what of
    bias, error : mean of estimate less actual accuracy, and its Monte Carlo standard error
    actual : mean actual accuracy
    n : collections
    """

    means: str
    truth: str
    collection: str
    estimator: str
    bias: float
    error: float
    actual: float
    n: int


def at_fifty(
    n: int,
    seed: int,
    *,
    collections: Sequence[int] = range(len(COLLECTIONS)),
    workers: int = 1,
) -> list[AtFifty]:
    """Return the biases from n collections of each kind; the same for any number of workers."""
    kinds = [(means, c) for means in MEANS for c in collections]
    blocks = [range(first, min(first + _BLOCK, n)) for first in range(0, n, _BLOCK)]
    made = _mapped(seed, [(*kind, block) for kind in kinds for block in blocks], workers)
    rows = []
    for means, c in kinds:
        values = np.concatenate([next(made) for _ in blocks])
        for truth in TRUTHS if means == "fitted" else TRUTHS[1:]:
            for e, estimator in enumerate(ESTIMATORS):
                measure, method = divmod(e, 2)
                actual = values[:, 2 + TRUTHS.index(truth), measure]
                off = values[:, method, measure] - actual
                error = float(off.std(ddof=1) / np.sqrt(n))
                bias, true = float(off.mean()), float(actual.mean())
                rows.append(AtFifty(means, truth, COLLECTIONS[c], estimator, bias, error, true, n))
    return rows


_Job: TypeAlias = tuple[str, int, range]


def _mapped(seed: int, jobs: Sequence[_Job], workers: int) -> Iterator[FloatArray]:
    work = partial(_block, seed)
    if workers == 1:
        yield from map(work, jobs)
        return
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        yield from pool.imap(work, jobs)


def _block(seed: int, job: _Job) -> FloatArray:
    """Return both estimates and accuracies by both truths, (collections, 4, τ and τ_AP)."""
    means, collection, numbers = job
    source = simulator(Part(collection, REALISTIC), means)
    truths = np.stack([source.scores.mean(axis=0), source.means])
    values = np.empty((len(numbers), 4, 2))
    with limited_blas(0):
        for row, number in zip(values, numbers, strict=True):
            Y = source.draw(_N, stream(seed, _FIRST + number * len(COLLECTIONS) + collection))
            row[0] = expected_ranks(Y, source.systems)[:, SIZES.index(_N)]
            pairs = PairedDifferences.from_scores(Y, source.systems)
            row[1] = [estimated_tau(pairs, _N, variant=v)[0] for v in ("a", "ap")]
            row[2:] = actual_ranks(Y, truths)
    return values
