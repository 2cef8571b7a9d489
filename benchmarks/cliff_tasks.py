"""The calls and tables of ``python -m benchmarks cliffs``: all public functions that take data."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import vcomp

MAIN = "score ~ (1|a) + (1|b)"
PAIRS = "score ~ (1|a) + (1|b) + (1|c) + (1|a:b) + (1|a:c) + (1|b:c)"
NESTED = "score ~ (1|a/b)"

Rows = Callable[[int], Any]


def _as_it_is(data: Any) -> Any:
    return data


@dataclass(frozen=True, slots=True)
class Task:
    """A public call on tables of growing size.

    Attributes
    ----------
    name : of the function, without ``vcomp.``; ``results`` is what a fit returns. What follows a
        comma tells calls of one function apart
    call : that is measured, of what `prepare` returns
    patterns : of missing cells, by name; a table is made for about so many rows
    prepare : is not measured; makes what is called, anew for each call, from a table
    first : number of rows, about, that is doubled
    """

    name: str
    call: Callable[[Any], Any]
    patterns: Mapping[str, Rows]
    prepare: Callable[[Any], Any] = _as_it_is
    first: int = 4_000

    @property
    def function(self) -> str:
        """The name without what tells its calls apart."""
        return self.name.split(",")[0]


NOT_MEASURED = """
    from_components from_mean_squares spearman_brown spearman_brown_factor ir.fit_curve
    ir.map_dstudy ir.map_reliability ir.normal_tau ir.novelty_like_track simulate.support_of
    io.alike_levels io.unite_categories ir.accuracy_of ir.score_table
    datasets.available datasets.load
    results.from_json results.f_test results.t_test results.quantity results.interval_source
    results.accuracy results.expected_tau results.glance results.tidy
    results.gstudy results.fixed_effects results.cov_params results.cov_vcomp results.anova_table
    results.plot results.r2 results.varcorr results.error_variances results.icc results.anova
    results.marginal_means results.wald_test results.components_at results.random_effects_cov
    """
"""Functions that take components, published numbers or stored results, or that others call."""


# Tables ------------------------------------------------------------------------------------------


def grid(sizes: tuple[int, ...], rate: float, *, holes: int = 0) -> pd.DataFrame:
    """Return scores of a share of the cells of a grid, with all effects but the last."""
    rng, size = np.random.default_rng(5), int(np.prod(sizes))
    kept = np.ones(size, dtype=bool) if rate >= 1.0 else rng.random(size) < rate
    kept[rng.choice(size, holes, replace=False)] = False
    codes = np.unravel_index(np.flatnonzero(kept), sizes)
    score = rng.normal(size=codes[0].size)
    for code, levels in zip(codes, sizes, strict=True):
        score += rng.normal(size=levels)[code]
    if len(sizes) > 2:
        for i, j in ((0, 1), (0, 2), (1, 2)):
            score += 0.5 * rng.normal(size=(sizes[i], sizes[j]))[codes[i], codes[j]]
    names = "abcd"[: len(sizes)]
    return pd.DataFrame(dict(zip(names, codes, strict=True)) | {"score": score})


def unequal(n: int) -> pd.DataFrame:
    """Return scores of pupils of several classes a school; classes differ in size."""
    rng = np.random.default_rng(7)
    b = np.sort(rng.integers(n // 10, size=n))
    a = b // 8
    score = rng.normal(size=a.max() + 1)[a] + rng.normal(size=b.max() + 1)[b] + rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": b, "x": rng.normal(size=n), "score": score})


def _square(rate: float, holes: int = 0) -> Rows:
    def made(n: int) -> pd.DataFrame:
        side = max(int((n / rate) ** 0.5), 10)
        return grid((side, side), rate, holes=holes)

    return made


def _long(first: int, rate: float, last: tuple[int, ...] = (), holes: int = 0) -> Rows:
    """Return tables of `first` × more and more × `last` levels."""
    cells = first * int(np.prod(last, dtype=int))
    return lambda n: grid((first, max(int(n / rate / cells), 10), *last), rate, holes=holes)


def _wide(first: int, rate: float) -> Rows:
    """Return tables of more and more × `first` levels."""
    return lambda n: grid((max(int(n / rate / first), 10), first), rate)


def _sparse(n: int) -> pd.DataFrame:
    rng, levels = np.random.default_rng(6), max(n // 10, 5)
    a, b = rng.integers(levels, size=(2, n))
    score = rng.normal(size=levels)[a] + rng.normal(size=levels)[b] + rng.normal(size=n)
    return pd.DataFrame({"a": a, "b": b, "score": score})


def _judged(n: int) -> pd.DataFrame:
    """Return scores of systems and topics, which two roles judge."""
    frame = grid((20, max(n // 40, 10), 2), 1.0)
    return frame.rename(columns={"a": "system", "b": "topic", "c": "role"}).assign(
        assessor=lambda d: "p" + ((d["topic"] + 5 * d["role"]) % 10).astype(str)
    )


def _assignments(judged: pd.DataFrame) -> pd.DataFrame:
    return judged[["topic", "role", "assessor"]].drop_duplicates()


def _track(n: int) -> vcomp.ir.Track:
    """Return retrieved and judged documents, about as many rows together."""
    return vcomp.ir.novelty_like_track(
        n_systems=10, n_topics=10, n_assessors=2, n_documents=max(n // 60, 20), rng=1
    )


_TWO: dict[str, Rows] = {
    "complete": _square(1.0),
    "one hole": _square(1.0, 1),
    "100 holes": _square(1.0, 100),
    "5 % missing": _square(0.95),
    "half missing": _square(0.5),
    "sparse": _sparse,
}
_THREE: dict[str, Rows] = {
    "complete": _long(20, 1.0, (3,)),
    "one hole": _long(20, 1.0, (3,), 1),
    "2 % missing": _long(20, 0.98, (3,)),
    "half missing": _long(20, 0.5, (3,)),
}
_UNEQUAL: dict[str, Rows] = {"nested, unequal sizes": unequal}
_FEW = {name: _TWO[name] for name in ("complete", "5 % missing", "sparse")}
_COMPLETE = {"complete": _TWO["complete"]}
_TOPICS: dict[str, Rows] = {
    "50 topics": _long(50, 1.0),
    "50 systems": _wide(50, 1.0),
}
_TOPICS_OR_HOLES = _TOPICS | {"50 topics, 5 % missing": _long(50, 0.95)}
_MEASURED: dict[str, Rows] = {"complete": _long(50, 1.0), "5 % missing": _long(50, 0.95)}
_PERSONS: dict[str, Rows] = {
    "complete": _wide(100, 1.0),
    "5 % missing": _wide(100, 0.95),
    "half missing": _wide(100, 0.5),
}
_SEVERAL: dict[str, Rows] = {
    "complete": _wide(20, 1.0),
    "5 % missing": _wide(20, 0.95),
    "half missing": _wide(20, 0.5),
}
_TRACK: dict[str, Rows] = {"track": _track}
_JUDGED: dict[str, Rows] = {"two roles": _judged}


# Calls -------------------------------------------------------------------------------------------


def _fitted(frame: pd.DataFrame) -> vcomp.VarianceComponentsResults:
    return vcomp.fit(MAIN, frame)


def _of_fit(
    name: str, patterns: Mapping[str, Rows] = _FEW, *arguments: Any, **options: Any
) -> Task:
    """Return the task of a method or property of results."""

    def call(res: Any) -> Any:
        found = getattr(res, name)
        return found(*arguments, **options) if callable(found) else found

    return Task(f"results.{name}", call, patterns, _fitted, 1_000)


def _matrix(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.pivot(index="a", columns="b", values="score")


def _shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a matrix of scores between 0 and 1."""
    shares = 1.0 / (1.0 + np.exp(-frame["score"]))
    return _matrix(frame.assign(score=shares))


def _of_matrix(name: str, patterns: Mapping[str, Rows] = _TOPICS, **options: Any) -> Task:
    """Return the task of a function of a matrix of scores."""
    function: Any = vcomp
    for part in name.split("."):
        function = getattr(function, part)
    return Task(name, lambda X: function(X, **options), patterns, _shares)


def _variables(frame: pd.DataFrame) -> pd.DataFrame:
    """Add three variables that are correlated with the score."""
    noise = np.random.default_rng(8).normal(size=(3, len(frame)))
    own = {name: frame["score"] + e for name, e in zip("xyz", noise, strict=True)}
    return frame.assign(**own)


def _compared(frame: pd.DataFrame) -> Any:
    return vcomp.compare_measures(
        MAIN, frame, responses=["score", "x", "y"], dstudy={"b": 50}, progress=False
    )


def _two_fits(frame: pd.DataFrame) -> tuple[Any, Any]:
    return _fitted(frame), vcomp.fit("score ~ (1|a)", frame)


def _universe(track: vcomp.ir.Track) -> vcomp.ir.DocumentUniverse:
    return vcomp.ir.document_universe(track.retrieved, track.judgements)


def _collection(frame: pd.DataFrame) -> Any:
    return vcomp.ir.fit_collection(_shares(frame))


def _mapping(X: pd.DataFrame) -> Any:
    parts = [X.iloc[:, first::3] for first in range(3)]
    return vcomp.ir.fit_mapping(parts, "tau", trials=5, progress=False)


def _in_folder(write: Callable[[Path], Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "written.parquet")


def _run_files(frame: pd.DataFrame) -> tuple[list[str], str]:
    """Write two runs of 50 topics, and their judgements, as trec_eval reads them."""
    folder = Path(tempfile.mkdtemp())
    topic, document = frame["a"].astype(str), "d" + frame["b"].astype(str)
    paths = [os.fspath(folder / name) for name in ("first", "second")]
    for name, score in zip(paths, (frame["score"], -frame["score"]), strict=True):
        run = pd.DataFrame({"t": topic, "q": "Q0", "d": document, "r": 1, "s": score, "n": name})
        run.to_csv(name, sep=" ", header=False, index=False)
    judged = pd.DataFrame({"t": topic, "z": 0, "d": document, "g": (frame["score"] > 0) * 1})
    judged.to_csv(folder / "qrels", sep=" ", header=False, index=False)
    return paths, os.fspath(folder / "qrels")


def _trec_files(frame: pd.DataFrame) -> list[str]:
    """Write the output of ``trec_eval -q`` for runs with 50 topics."""
    folder, paths = Path(tempfile.mkdtemp()), []
    for run, part in frame.groupby("b"):
        lines = [f"map\t{a}\t{s:.4f}\n" for a, s in zip(part["a"], part["score"], strict=True)]
        paths.append(os.fspath(folder / f"{run}.eval"))
        Path(paths[-1]).write_text(f"runid\tall\trun{run}\n" + "".join(lines), encoding="utf-8")
    return paths


def _parts(frame: pd.DataFrame) -> list[vcomp.AccumulatedStatistics]:
    return [vcomp.accumulate(MAIN, frame[i : i + 100]) for i in range(0, len(frame), 100)]


def _sum(parts: list[vcomp.AccumulatedStatistics]) -> vcomp.AccumulatedStatistics:
    return sum(parts[1:], start=parts[0])


def _levels(frame: pd.DataFrame) -> Any:
    return vcomp.fit("score ~ C(a) + (1|b)", frame)


def tasks() -> list[Task]:
    """Return all tasks."""
    return [*_fits(), *_of_results(), *_studies(), *_collections(), *_files()]


def _fits() -> list[Task]:
    fit, accumulate = vcomp.fit, vcomp.accumulate
    methods = [
        Task(f"fit, {method}", partial(fit, MAIN, method=method), _FEW, first=2_000)
        for method in ("ml", "anova", "type1", "henderson3", "minque")
    ]
    return [
        Task("fit, a + b", partial(fit, MAIN), _TWO),
        Task("fit, pairs of a, b, c", partial(fit, PAIRS), _THREE),
        Task("fit, x + a/b", partial(fit, "score ~ x + (1|a/b)"), _UNEQUAL),
        Task("fit, C(b) + a", partial(fit, "score ~ C(b) + (1|a)"), _FEW, first=1_000),
        *methods,
        Task("fit, henderson3 of a/b", partial(fit, NESTED, method="henderson3"), _UNEQUAL),
        Task("gstudy", lambda d: vcomp.gstudy("a x b x c", d, "score"), _THREE),
        Task("accumulate", lambda d: accumulate(MAIN, d).fit(), _TWO),
        Task("accumulate, parts of 100 rows", lambda parts: _sum(parts).fit(), _FEW, _parts),
        Task(
            "fit_multivariate",
            partial(vcomp.fit_multivariate, "score + x + y + z ~ (1|a) + (1|b)"),
            _SEVERAL,
            _variables,
        ),
        Task("reliability", vcomp.reliability, _PERSONS, _matrix),
        Task("icc", vcomp.icc, _PERSONS, _matrix),
        Task("item_analysis", vcomp.item_analysis, _PERSONS, _matrix),
        Task("cronbach_alpha", vcomp.cronbach_alpha, {"complete": _wide(100, 1.0)}, _matrix),
    ]


def _of_results() -> list[Task]:
    nested = partial(vcomp.fit, NESTED)
    return [
        _of_fit("summary"),
        _of_fit("conf_int", interval="robust"),
        _of_fit("dstudy", b=[10, 50, 100]),
        _of_fit("universe_scores", _FEW, "a"),
        _of_fit("predict", _TWO),
        _of_fit("get_prediction", _COMPLETE | {"sparse": _sparse}),
        _of_fit("random_effects", _TWO),
        _of_fit("augment"),
        _of_fit("simulate", _FEW, 10, rng=1),
        _of_fit("test", _FEW, "a"),
        Task("results.test, nested", lambda res: res.test("a"), _UNEQUAL, nested, 1_000),
        _of_fit("jackknife", _FEW, "a", progress=False),
        _of_fit("influence", _FEW, "a", progress=False),
        _of_fit("bootstrap", _TWO, 100, rng=1, progress=False),
        _of_fit("resample", _FEW, "a", 20, rng=1, progress=False),
        _of_fit("profile", _TWO),
        _of_fit("crosscheck", _FEW, progress=False),
        Task(
            "results.crosscheck, nested",
            lambda res: res.crosscheck(progress=False),
            _UNEQUAL,
            nested,
            1_000,
        ),
        _of_fit("diagnose", {name: _FEW[name] for name in ("complete", "5 % missing")}),
        _of_fit("to_json"),
        Task("results.compare_levels", lambda res: res.compare_levels("a"), _MEASURED, _levels),
        Task("compare", lambda fits: vcomp.compare(*fits), _FEW, _two_fits, 1_000),
        Task("presets.gauge_rr", lambda r: vcomp.presets.gauge_rr(r, "a", "b"), _FEW, _fitted),
        Task("presets.precision", vcomp.presets.precision, _UNEQUAL, nested),
    ]


def _studies() -> list[Task]:
    return [
        Task("compare_measures", _compared, _MEASURED, _variables),
        Task(
            "compare_measures, differences",
            lambda found: found.differences(),
            _MEASURED,
            lambda d: _compared(_variables(d)),
            1_000,
        ),
        Task(
            "subsample_study",
            lambda d: vcomp.subsample_study(
                MAIN, d, sizes={"b": [5, 10]}, trials=20, method="reml", progress=False
            ),
            _MEASURED,
            first=1_000,
        ),
        Task("ir.assessor_study", vcomp.ir.assessor_study, _JUDGED, first=1_000),
        Task("ir.assessor_layouts", vcomp.ir.assessor_layouts, _JUDGED, _assignments),
        Task(
            "ir.document_universe",
            lambda t: vcomp.ir.document_universe(t.retrieved, t.judgements),
            _TRACK,
        ),
        Task("ir.set_measures", vcomp.ir.set_measures, _TRACK, _universe),
        Task("ir.fit_relevance", lambda t: vcomp.ir.fit_relevance(t.judgements), _TRACK),
        Task("ir.per_document_study", vcomp.ir.per_document_study, _TRACK, _universe),
        Task(
            "ir.write_per_document",
            lambda u: _in_folder(lambda p: vcomp.ir.write_per_document(u, p)),
            _TRACK,
            _universe,
        ),
    ]


def _collections() -> list[Task]:
    fifty = {"50 topics": _TOPICS["50 topics"]}
    return [
        _of_matrix("diagnose", _TOPICS_OR_HOLES),
        _of_matrix("ir.as_score_matrix"),
        _of_matrix("ir.accuracy", _TOPICS_OR_HOLES),
        _of_matrix("ir.average_p_values", trials=5, progress=False),
        _of_matrix("ir.compare_systems"),
        _of_matrix("ir.expected_tau", _TOPICS_OR_HOLES),
        _of_matrix("ir.fit_collection"),
        _of_matrix("simulate.fit_collection", random_sampling=False, margins="normal"),
        _of_matrix("ir.split_half", trials=10, progress=False),
        _of_matrix("ir.swap_rates", trials=10, progress=False),
        Task("ir.fit_mapping", _mapping, _TOPICS, _shares),
        Task(
            "ir.validate_mapping",
            lambda study: vcomp.ir.validate_mapping(study, {"published": {}}),
            fifty,
            lambda d: _mapping(_shares(d)),
        ),
        Task(
            "ir.compare_simulated",
            lambda pair: vcomp.ir.compare_simulated(*pair),
            _TOPICS,
            lambda d: ((sim := _collection(d)), sim.simulate(50, 5, rng=1)),
        ),
        Task(
            "simulate.write_collections",
            lambda sim: _in_folder(
                lambda p: vcomp.simulate.write_collections(sim, p, 50, 5, rng=1, progress=False)
            ),
            fifty,
            _collection,
        ),
        Task(
            "simulate.simulate_effects",
            lambda d: vcomp.simulate.simulate_effects(
                vcomp.from_components({"a": 1.0, "b": 0.5, "Residual": 1.0}), a=50, b=len(d) // 50
            ),
            fifty,
        ),
    ]


def _files() -> list[Task]:
    fifty = {"50 topics": _TOPICS["50 topics"]}
    return [
        Task("ir.read_scores", vcomp.ir.read_scores, fifty, _trec_files),
        Task("ir.score_runs", lambda two: vcomp.ir.score_runs(*two), fifty, _run_files),
        Task("ir.unjudged", lambda two: vcomp.ir.unjudged(*two), fifty, _run_files),
        Task("io.open_source", vcomp.io.open_source, _COMPLETE),
        Task("io.spool", vcomp.io.spool, _COMPLETE),
    ]
