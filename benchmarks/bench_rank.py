"""Scores → expected rank correlation, against numpy.cov of the same matrix."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr

from benchmarks.common import Report, Settings, agree, best_of, score_matrix
from vcomp import ir

_SIZES = (25, 50, 100, 200)


def run(report: Report, settings: Settings) -> None:
    n_systems, n_topics = settings.rows(1_000), 200
    report.section(f"rank, {n_systems:,} systems × {n_topics} topics")
    X = score_matrix(n_topics, n_systems)
    published = ir.expected_tau(X, _SIZES, estimator="urbano")
    agree(published["estimate"], _expected_tau(X), rtol=1e-10)
    peer_seconds = best_of(lambda: np.cov(X, rowvar=False), settings.repeat)
    plain_seconds = best_of(lambda: _expected_tau(X), settings.repeat)
    for name, variant in {"Eτ": "a", "Eτ_AP": "ap"}.items():
        options: dict[str, Any] = {"estimator": "urbano", "variant": variant}
        seconds = best_of(partial(ir.expected_tau, X, _SIZES, **options), settings.repeat)
        report(f"{name}, {len(_SIZES)} sizes", seconds, "numpy.cov", peer_seconds)
        if variant == "a":
            report(f"{name}, {len(_SIZES)} sizes", seconds, "numpy, equation 35", plain_seconds)
    seconds = best_of(partial(ir.expected_tau, X, _SIZES), settings.repeat)
    report("Eτ with intervals from 2,000 draws", seconds, "numpy.cov", peer_seconds)
    holes = X.copy()
    holes[::7, ::5] = np.nan
    work = partial(ir.expected_tau, holes, _SIZES, estimator="urbano")
    seconds = best_of(work, settings.repeat)
    report(
        f"Eτ, {len(_SIZES)} sizes, missing cells",
        seconds,
        "numpy.cov, no cell missing",
        peer_seconds,
    )


def _expected_tau(X: Any) -> list[float]:
    """Return Eτ of Urbano (2016), eqs. 35 and 38."""
    S, means = np.cov(X, rowvar=False), X.mean(axis=0)
    i, j = np.triu_indices(means.size, 1)
    s = np.sqrt(np.diagonal(S)[i] + np.diagonal(S)[j] - 2.0 * S[i, j])
    delta = np.abs(means[i] - means[j]) / s
    return [float(1.0 - 2.0 * ndtr(-np.sqrt(n) * delta).mean()) for n in _SIZES]
