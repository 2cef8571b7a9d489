"""The algorithms of Urbano (2016) in plain R through Rscript, where R is installed with jsonlite.

``reliability.R`` follows the code published with the paper, in the same style.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare.script import run_script
from vcomp._typing import FloatArray
from vcomp.ir.splits import Halves


@dataclass(frozen=True, slots=True)
class PeerTau:
    """Eτ for tests of several sizes, its variance if swaps were independent, and the time."""

    estimate: FloatArray
    variance: FloatArray
    seconds: float


@dataclass(frozen=True, slots=True)
class PeerHalves:
    """Accuracies of halves by measure, those predicted of tests by measure and curve, the time."""

    accuracies: dict[str, FloatArray]
    predicted: dict[str, dict[str, FloatArray]]
    seconds: float


@dataclass(frozen=True, slots=True)
class PeerSimulation:
    """One simulated collection: what it was made from, and the times.

    Attributes
    ----------
    normals : (n_topics, n_systems + 1) standard normals, correlated; those of topics last
    correlations : of their columns
    scores : (n_topics, n_systems) that were made of them
    seconds, configure_seconds : of the collection, normals included, and of what comes before all
    """

    normals: FloatArray
    correlations: FloatArray
    scores: FloatArray
    seconds: float
    configure_seconds: float


def expect_tau(
    scores: FloatArray, sizes: Sequence[int], *, repeats: int, limit: float
) -> PeerTau | str:
    """Return Eτ by a loop over pairs of systems, or why there is none."""
    answer = _run("tau", limit, scores=scores.tolist(), sizes=list(sizes), repeats=repeats)
    if isinstance(answer, str):
        return answer
    estimate, variance = (np.atleast_1d(_numbers(answer[n])) for n in ("estimate", "variance"))
    return PeerTau(estimate, variance, answer["seconds"])


def split_half(
    scores: FloatArray,
    halves: Sequence[Halves],
    measures: Sequence[str],
    sizes: Sequence[int],
    *,
    anew: bool,
    repeats: int,
    limit: float,
) -> PeerHalves | str:
    """Return the accuracies of halves and what curves make of them, or why there are none.

    Parameters
    ----------
    halves : of two sizes or more
    measures : of ``"tau"``, ``"tau_ap"``, ``"sens_abs"`` and ``"sens_rel"``
    sizes : of the tests whose accuracy is predicted
    anew : whether every curve looks at the halves anew, as published; else they share what was
        found
    """
    answer = _run(
        "split_half",
        limit,
        scores=scores.tolist(),
        halves=[(half.collection + 1).tolist() for half in halves],
        others=[(half.truth + 1).tolist() for half in halves],
        measures=list(measures),
        sizes=list(sizes),
        anew=anew,
        repeats=repeats,
    )
    if isinstance(answer, str):
        return answer
    return PeerHalves(
        {name: _numbers(values) for name, values in answer["accuracies"].items()},
        {
            name: {model: _numbers(values) for model, values in curves.items()}
            for name, curves in answer["predicted"].items()
        },
        answer["seconds"],
    )


def simulate(
    scores: FloatArray, n_topics: int, *, repeats: int, limit: float
) -> PeerSimulation | str:
    """Return one simulated collection (kernel margins of ``ks::kcde``), or why there is none."""
    answer = _run("simulation", limit, scores=scores.tolist(), n_topics=n_topics, repeats=repeats)
    if isinstance(answer, str):
        return answer
    return PeerSimulation(
        _numbers(answer["normals"]),
        _numbers(answer["correlations"]),
        _numbers(answer["scores"]),
        answer["seconds"],
        answer["configure_seconds"],
    )


def _run(task: str, limit: float, **given: Any) -> dict[str, Any] | str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.json"
        path.write_text(json.dumps(given), encoding="utf-8")
        return run_script("Rscript", "reliability.R", "plain R", task, str(path), limit=limit)


def _numbers(values: Any) -> FloatArray:
    """Return numbers as they were printed; what R does not know is null there, and nan here."""
    return np.array(values, dtype=float)
