"""Simulated collections: written to a file, and compared with the original.

How similar they are is shown by the nine indicators of Urbano (2016, section 5.4).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from vcomp import display
from vcomp._typing import FloatArray
from vcomp.data import path_of, replacing, target_of
from vcomp.exceptions import DataError, guarded, warn
from vcomp.ir.measures import TauAP
from vcomp.ir.scores import ScoreMatrix, ScoresLike, as_score_matrix
from vcomp.ir.simulate.copula import decompose
from vcomp.ir.simulate.margin_families import cdf_bandwidth
from vcomp.ir.simulate.simulator import CollectionSimulator, SimulatedCollections, whole
from vcomp.numerics import slices

if TYPE_CHECKING:
    import pandas as pd


INDICATORS = {
    "mu_s": "mean of simulated less mean of original scores",
    "tau_ap": "τ_AP of the ranking of systems with the original one",
    "w2_t": "ω² between topic effects and their distribution",
    "w2_E": "ω² between residuals and their distributions, mean over systems",
    "var_s": "share of σ²(system), less that of the original",
    "var_t": "share of σ²(topic), less that of the original",
    "var_st": "share of σ²(system:topic), less that of the original",
    "sd_var": "s.d. over systems of residual variances, less that of the original",
    "cor": "correlation between residual correlations and those of the original",
}
"""The indicators, by their names in the code of the paper."""

_CONSTANT = 1e-12
"""Relative rounding error: scores that differ by less are equal."""

_POINTS = 1025
_BATCH = 2**22


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimulationComparison(display.Printed):
    """Indicators of simulated collections, made by :func:`compare_simulated`.

    Attributes
    ----------
    values : (size, 9) indicators of each collection, in the order of :data:`INDICATORS`
    n_topics : topics of each collection
    n_topics_original : topics of the original collection
    """

    values: FloatArray
    n_topics: int
    n_topics_original: int

    def __repr__(self) -> str:
        return f"<comparison of {len(self.values):,} simulated collections>"

    @property
    def table(self) -> pd.DataFrame:
        """One row per collection, one column per indicator."""
        import pandas as pd

        index = pd.RangeIndex(len(self.values), name="collection")
        return pd.DataFrame(self.values, index=index, columns=list(INDICATORS))

    def summary(self) -> Any:
        """Return the mean, its standard error, and 5 % and 95 % quantiles of each indicator."""
        size = len(self.values)
        rows = []
        for column in self.values.T:
            known = column[~np.isnan(column)]
            error = known.std(ddof=1) / np.sqrt(known.size) if known.size > 1 else float("nan")
            mean = float(known.mean()) if known.size else float("nan")
            ends = np.quantile(known, [0.05, 0.95]) if known.size else [float("nan")] * 2
            cells = display.fixed([mean, float(error), *map(float, ends)], decimals=5)
            rows.append(cells)
        table = display.simple_table(
            rows,
            ["mean", "std. err.", "5 %", "95 %"],
            title=f"{size:,} simulated collections of {self.n_topics:,} topics; "
            f"{self.n_topics_original:,} in the original",
            stubs=list(INDICATORS),
        )
        notes = [f"{name}: {what}." for name, what in INDICATORS.items()]
        return display.summary([table], notes)


@guarded
def compare_simulated(
    original: ScoresLike | CollectionSimulator,
    simulated: SimulatedCollections | ArrayLike,
    *,
    system: str | None = None,
    topic: str | None = None,
    score: str | None = None,
) -> SimulationComparison:
    """Return indicators of how similar simulated collections are to the original.

    Parameters
    ----------
    original : the simulator; or the scores that it was fitted to: long table with its columns
        named, :class:`ScoreMatrix`, or topic × system matrix, **one row per topic and one column
        per system**
    simulated : what the simulator simulated, or an array of (size, n_topics, n_systems) scores of
        the same systems; a matrix is one collection
    system, topic, score : columns of a long table; see :func:`vcomp.ir.as_score_matrix`

    Returns
    -------
    SimulationComparison
        with ``table`` and ``summary()``. The indicators are

        ``mu_s``
            mean score less that of the original: 0 on average
        ``tau_ap``
            τ_AP of the two rankings of systems: nearer to 1 the more topics there are
        ``w2_t``, ``w2_E``
            Cramér and von Mises's ω² between effects and a kernel estimate of those of the
            original, over the effects of the larger collection: nearer to 0 the more topics
        ``var_s``, ``var_t``, ``var_st``
            shares of the variance components, less those of the original: about 0 with random
            sampling (negative components count as zero)
        ``sd_var``
            standard deviation over systems of their residual variances, less that of the original:
            about 0, negative if residuals were made homoscedastic
        ``cor``
            correlation between the correlations of residuals of every two systems and those of
            the original: nearer to 1 the more topics, about 0 if effects were uncorrelated

    Raises
    ------
    DataError
        If scores are missing, the systems are not as many as in the original, or all scores of the
        original are the same.

    Notes
    -----
    Effects are those of the scores, not of their logits, as in the paper's code. ``cor`` is not
    defined with two systems, or where a system has no residuals, and shares are not where all
    scores are the same; there is a warning.

    References
    ----------
    Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 5.4.1.

    Examples
    --------
    >>> from vcomp.ir import compare_simulated, fit_collection
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
    >>> simulator = fit_collection(scores)
    >>> comparison = compare_simulated(simulator, simulator.simulate(100, n=50, rng=1))
    >>> comparison.table[["mu_s", "tau_ap"]].mean().abs().round(1).to_dict()
    {'mu_s': 0.0, 'tau_ap': 1.0}
    """
    if isinstance(original, CollectionSimulator):
        X = original.scores
    else:
        X = _scores(as_score_matrix(original, system=system, topic=topic, score=score))
    Y = simulated.scores if isinstance(simulated, SimulatedCollections) else _array(simulated)
    if Y.shape[2] != X.shape[1]:
        raise DataError(
            f"simulated collections have {Y.shape[2]} systems, the original has {X.shape[1]}"
        )
    if np.ptp(X) == 0.0:
        raise DataError(f"all scores of the original are {X[0, 0]:g}: there is nothing to compare")
    values = OriginalCollection(X).indicators(Y)
    _warn_of_undefined(values)
    return SimulationComparison(values, Y.shape[1], X.shape[0])


def _warn_of_undefined(values: FloatArray) -> None:
    names = list(INDICATORS)
    shares = int(np.isnan(values[:, names.index("var_st")]).sum())
    if shares:
        warn(
            f"var_s, var_t and var_st are undefined for {shares:,} of {len(values):,} "
            "collections, whose scores are all the same"
        )
    correlations = int(np.isnan(values[:, names.index("cor")]).sum())
    if correlations:
        warn(
            f"cor is undefined for {correlations:,} of {len(values):,} collections: it needs "
            "three systems whose residuals vary"
        )


class OriginalCollection:
    """Cached properties of the original collection for comparisons with simulated ones.

    Parameters
    ----------
    X : (n_topics, n_systems) scores, none of them missing; unchecked
    """

    def __init__(self, X: FloatArray) -> None:
        effects = decompose(X)
        self.mean, self.means = float(X.mean()), X.mean(axis=0)
        self.topics = _Distribution(effects.topics)
        self.residuals = [_Distribution(e) for e in effects.residuals.T]
        self.shares = _shares(X[None])[0]
        variances, correlations = _second_moments(effects.residuals[None])
        self.spread = float(variances[0].std(ddof=1))
        self.correlations = correlations[0]

    def indicators(self, Y: FloatArray) -> FloatArray:
        """Return the nine indicators, (size, 9), in the order of :data:`INDICATORS`; unchecked.

        Parameters
        ----------
        Y : (size, n_new_topics, n_systems) scores of simulated collections
        """
        step = max(1, _BATCH // (Y.shape[1] * Y.shape[2]))
        return np.concatenate([self._compare(Y[part]) for part in slices(len(Y), step)])

    def _compare(self, Y: FloatArray) -> FloatArray:
        means = Y.mean(axis=1)
        mean = means.mean(axis=1)
        rest = Y - means[:, None, :]
        topics = rest.mean(axis=2)
        residuals = rest - topics[:, :, None]
        tau_ap = TauAP(ties="first").actual_of_means(means, self.means)
        by_system = [F.distances(residuals[:, :, s]) for s, F in enumerate(self.residuals)]
        variances, correlations = _second_moments(residuals)
        return np.column_stack(
            [
                mean - self.mean,
                tau_ap,
                self.topics.distances(topics),
                np.mean(by_system, axis=0),
                _shares(Y) - self.shares,
                variances.std(axis=1, ddof=1) - self.spread,
                _row_correlations(correlations, self.correlations),
            ]
        )


class _Distribution:
    """Kernel estimate of the distribution of effects, tabulated."""

    def __init__(self, effects: FloatArray) -> None:
        from scipy.special import ndtr

        self.points = np.sort(effects)
        self.low = min(-1.0, float(self.points[0]))
        self.high = max(1.0, float(self.points[-1]))
        is_constant = self.points[-1] == self.points[0]
        h = float(np.finfo(float).tiny) if is_constant else cdf_bandwidth(effects)
        at = np.linspace(self.low, self.high, _POINTS)
        F = ndtr((at[:, None] - self.points) / h).mean(axis=1)
        self.table = (F - F[0]) / (F[-1] - F[0])

    def distances(self, effects: FloatArray) -> FloatArray:
        """Return ω² of samples, one a row."""
        from vcomp.ir.kernels.quantile_tables import distances

        values = np.ascontiguousarray(np.sort(effects, axis=1))
        return distances(values, self.points, self.table, self.low, self.high)


def _shares(Y: FloatArray) -> FloatArray:
    """Return the shares of the components of systems, topics and both, (size, 3).

    From mean squares, negative components set to zero; nan if all scores are equal.
    """
    _, n_t, n_s = Y.shape
    mean = Y.mean(axis=(1, 2), keepdims=True)
    systems = Y.mean(axis=1, keepdims=True) - mean
    topics = Y.mean(axis=2, keepdims=True) - mean
    ms_s = n_t * (systems**2).sum(axis=(1, 2)) / (n_s - 1)
    ms_t = n_s * (topics**2).sum(axis=(1, 2)) / (n_t - 1)
    ms_e = ((Y - mean - systems - topics) ** 2).sum(axis=(1, 2)) / ((n_s - 1) * (n_t - 1))
    components = np.column_stack([(ms_s - ms_e) / n_t, (ms_t - ms_e) / n_s, ms_e])
    components = np.maximum(components, 0.0)
    total = components.sum(axis=1, keepdims=True)
    unknown = np.full(components.shape, np.nan)
    rounding = (_CONSTANT * np.abs(Y).max(axis=(1, 2))[:, None]) ** 2
    return np.asarray(np.divide(components, total, out=unknown, where=total > rounding))


def _second_moments(residuals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (size, n_systems) variances and (size, pairs) correlations of every two systems."""
    n_t, n_s = residuals.shape[1:]
    covariances = residuals.transpose(0, 2, 1) @ residuals / (n_t - 1)
    i, j = np.triu_indices(n_s, 1)
    variances = np.ascontiguousarray(np.diagonal(covariances, axis1=1, axis2=2))
    scale = np.sqrt(variances[:, i] * variances[:, j])
    unknown = np.full(scale.shape, np.nan)
    return variances, np.divide(covariances[:, i, j], scale, out=unknown, where=scale > 0)


def _row_correlations(rows: FloatArray, with_: FloatArray) -> FloatArray:
    """Return the correlation of each row with a vector; nan if either is constant."""
    both = ~np.isnan(rows) & ~np.isnan(with_)
    n = np.maximum(both.sum(axis=1, keepdims=True), 1)
    x, y = np.where(both, rows, 0.0), np.where(both, with_, 0.0)
    x = np.where(both, x - x.sum(axis=1, keepdims=True) / n, 0.0)
    y = np.where(both, y - y.sum(axis=1, keepdims=True) / n, 0.0)
    scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    unknown = np.full(len(rows), np.nan)
    return np.asarray(np.divide((x * y).sum(axis=1), scale, out=unknown, where=scale > 1e-14))


def _scores(matrix: ScoreMatrix) -> FloatArray:
    if np.isnan(matrix.scores).any():
        raise DataError("the original has missing scores; keep the topics that all systems have")
    return matrix.scores


def _array(simulated: ArrayLike) -> FloatArray:
    try:
        Y = np.asarray(simulated, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(f"simulated collections must hold numbers: {error}") from error
    if Y.ndim == 2:
        Y = Y[None]
    if Y.ndim != 3 or Y.shape[0] < 1 or Y.shape[1] < 2:
        raise DataError(
            "simulated collections are (size, n_topics, n_systems) scores with at least two "
            f"topics; these are {' × '.join(map(str, Y.shape))}"
        )
    if not np.isfinite(Y).all():
        raise DataError("simulated collections have scores that are missing or infinite")
    return Y


_ROWS_AT_ONCE = 1 << 20
"""Rows per batch."""

_ENDINGS = (".parquet", ".pq", ".csv")


@guarded
def write_collections(
    simulator: CollectionSimulator,
    path: str | os.PathLike[str],
    n_topics: int,
    n: int = 1,
    *,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
    each: Callable[[SimulatedCollections], None] | None = None,
) -> int:
    """Write simulated collections to a Parquet or CSV file, one row per score.

    The columns are those of :meth:`SimulatedCollections.to_long`: ``collection`` from 0 on,
    ``topic`` from 1 on, ``system`` and ``score``. The file gets its name once it is
    complete.

    Parameters
    ----------
    simulator : of :func:`fit_collection`
    path : of the file, ending in .parquet or .csv; an existing one is replaced
    n_topics : topics of each collection
    n : number of collections
    rng : seed, or a generator that one is drawn from once; 0 if not given. The collections are
        those of :meth:`CollectionSimulator.simulate`
    workers : threads; the numbers are the same for any number of them
    progress : whether to show a bar; None for one where stderr is a terminal
    each : called with the collections of each batch after they were written

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    DataError
        If the file has another ending, its folder does not exist, or it cannot be written.
    PlanError
        If a number is not whole or not positive, or one collection does not fit into memory.
    EstimationError
        If `rng` is neither a seed nor a generator.

    Examples
    --------
    >>> import tempfile
    >>> import pandas as pd
    >>> from vcomp.simulate import fit_collection, write_collections
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
    >>> simulator = fit_collection(scores, ["a", "b", "c"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     n_rows = write_collections(simulator, folder + "/new.csv", 5, n=2, rng=1)
    ...     written = pd.read_csv(folder + "/new.csv")
    >>> n_rows, list(written.columns)
    (30, ['collection', 'topic', 'system', 'score'])
    """
    return write_batches(
        simulator, path, n_topics, n, rng=rng, workers=workers, progress=progress, each=each
    )


def write_batches(
    simulator: CollectionSimulator,
    path: str | os.PathLike[str],
    n_topics: int,
    n: int = 1,
    *,
    rows_at_once: int = _ROWS_AT_ONCE,
    rng: int | np.random.Generator | None = None,
    workers: int = 1,
    progress: bool | None = None,
    each: Callable[[SimulatedCollections], None] | None = None,
) -> int:
    """Write simulated collections as :func:`write_collections` does.

    Parameters
    ----------
    simulator, path, n_topics, n, rng, workers, progress, each : as for that function
    rows_at_once : rows of a batch; a collection is not divided between batches
    """
    from vcomp.numerics import run, seed_from

    target = check_path(path)
    n_topics, n = whole(n_topics, "n_topics"), whole(n, "n")
    workers, seed = whole(workers, "workers"), seed_from(rng)
    at_once = max(1, rows_at_once // (n_topics * simulator.n_systems))
    starts = range(0, n, at_once)
    with _writer(target) as write:

        def part(number: int) -> int:
            first = starts[number]
            some = simulator.simulate(
                n_topics,
                min(at_once, n - first),
                rng=seed,
                first=first,
                workers=workers,
                progress=False,
            )
            write(some)
            if each is not None:
                each(some)
            return some.scores.size

        # Parts are written in sequence; threads work within a part.
        done = run(lambda: part, range(len(starts)), progress=progress, label="parts")
    return sum(done.values())


def check_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to write.

    Parameters
    ----------
    path : of the file

    Raises
    ------
    DataError
        If it has no ending that is known, or cannot be a file.
    """
    target = path_of(path)
    if target.suffix.lower() not in _ENDINGS:
        raise DataError(f"{target.name!r} does not end in .parquet or .csv")
    target_of(target)
    return target


@contextmanager
def _writer(target: Path) -> Iterator[Callable[[SimulatedCollections], None]]:
    """Yield a writer of collections; the file is renamed to its target when complete."""
    import pyarrow as pa

    text = target.suffix.lower() == ".csv"
    system = pa.string() if text else pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [("collection", pa.int64()), ("topic", pa.int64()), ("system", system),
         ("score", pa.float64())]
    )  # fmt: skip
    with replacing(target) as unfinished, _open(unfinished, schema, text=text) as file:

        def write(some: SimulatedCollections) -> None:
            file.write_table(pa.Table.from_pandas(some.to_long(), schema))

        yield write


def _open(path: Path, schema: Any, *, text: bool) -> Any:
    if text:
        from pyarrow.csv import CSVWriter

        return CSVWriter(str(path), schema)
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(path, schema)
