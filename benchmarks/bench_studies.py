"""Random subsets of a matrix → components, differences between two measures, tests of pairs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import vcomp
from benchmarks.common import Report, Settings, agree, best_of, score_matrix
from vcomp.ir.system_comparison import SystemTest
from vcomp.studies.subsample_result import SubsampleStudy

_SYSTEMS, _TOPICS = 50, 50
_FORMULA = "score ~ (1|sys) + (1|topic)"


def run(report: Report, settings: Settings) -> None:
    trials = settings.rows(2_000)
    X = score_matrix(2 * _TOPICS, 2 * _SYSTEMS)
    report.section(f"studies, {trials:,} subsets of {_SYSTEMS} systems × {_TOPICS} topics")
    res = {method: vcomp.fit(_FORMULA, _long(X), method=method) for method in ("anova", "reml")}
    agree(_study(res["anova"], 20).replicates.values, _by_hand(X, 20), rtol=1e-8)
    peer_seconds = best_of(lambda: _by_hand(X, trials), settings.repeat)
    for method, fitted in res.items():
        seconds = best_of(partial(_study, fitted, trials), settings.repeat)
        report(f"subsample_study, {method}", seconds, "numpy, mean squares", peer_seconds)
    # A fit each is what a loop around the library would do.
    few = max(trials // 100, 5)
    seconds = best_of(partial(_study, res["anova"], few), settings.repeat)
    peer_seconds = best_of(lambda: _by_fits(X, few), settings.repeat)
    report(f"{few} subsets, anova", seconds, "vcomp.fit of each", peer_seconds)
    _compare_tests(report, settings)


def _compare_tests(report: Report, settings: Settings) -> None:
    """Compare p-values of all pairs of systems, a call each in SciPy."""
    k = 20 if settings.quick else 100
    X = score_matrix(_TOPICS, k)
    i, j = np.triu_indices(k, 1)
    report.section(f"tests of {i.size:,} pairs of systems on {_TOPICS} topics")
    tests: tuple[tuple[SystemTest, Any], ...] = (("t", stats.ttest_rel), ("wilcoxon", _wilcoxon))
    for test, one in tests:
        work = partial(vcomp.ir.compare_systems, X, test=test, correction="none")
        peer = partial(_one_by_one, one, X[:, i], X[:, j])
        agree(work().table["p_value"].to_numpy(), peer(), rtol=1e-9)
        seconds = best_of(work, settings.repeat)
        report(f"compare_systems, {test}", seconds, "scipy, a call a pair", best_of(peer, 1))


def _wilcoxon(x: Any, y: Any) -> Any:
    return stats.wilcoxon(x, y, zero_method="pratt", method="exact")


def _one_by_one(test: Any, left: Any, right: Any) -> Any:
    return np.array([test(x, y).pvalue for x, y in zip(left.T, right.T, strict=True)])


def _long(X: Any) -> pd.DataFrame:
    topic, system = np.indices(X.shape)
    return pd.DataFrame({"sys": system.ravel(), "topic": topic.ravel(), "score": X.ravel()})


def _study(res: Any, trials: int) -> SubsampleStudy:
    sizes = {"sys": _SYSTEMS, "topic": _TOPICS}
    return vcomp.subsample_study(res, sizes=sizes, trials=trials, progress=False)


def _parts(X: Any, trials: int) -> Any:
    """Give the same subsets as the study does."""
    n_topics, n_systems = X.shape
    for trial in range(trials):
        seeds = np.random.SeedSequence(0, spawn_key=(_SYSTEMS, _TOPICS, trial))
        rng = np.random.Generator(np.random.PCG64(seeds))
        systems = np.sort(rng.choice(n_systems, _SYSTEMS, replace=False, shuffle=False))
        topics = np.sort(rng.choice(n_topics, _TOPICS, replace=False, shuffle=False))
        yield X[np.ix_(topics, systems)]


def _by_hand(X: Any, trials: int) -> Any:
    """Return the components from the mean squares of a two-way table."""
    found = np.empty((trials, 3))
    for place, part in enumerate(_parts(X, trials)):
        n_q, n_s = part.shape
        rows, columns = part.mean(axis=1), part.mean(axis=0)
        rest = part - rows[:, None] - columns + part.mean()
        ms_e = np.vdot(rest, rest) / ((n_q - 1) * (n_s - 1))
        ms_q, ms_s = n_s * rows.var(ddof=1), n_q * columns.var(ddof=1)
        found[place] = (ms_s - ms_e) / n_q, (ms_q - ms_e) / n_s, ms_e
    return found


def _by_fits(X: Any, trials: int) -> None:
    for part in _parts(X, trials):
        vcomp.fit(_FORMULA, _long(part), method="anova")
