"""A fitted simulator of collections, and how it draws topics (section 16 of the mathematics)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp._typing import FloatArray, LongArray
from vcomp.exceptions import PlanError, is_whole
from vcomp.inference.assumptions import TwoWayTable, excess_kurtosis, skewness
from vcomp.ir.simulate.copula import Copula, Scale
from vcomp.ir.simulate.margin import LOW, PER_UNIT, Margin
from vcomp.markup import encodable
from vcomp.numerics import check_memory, run, seed_from, slices, stream

if TYPE_CHECKING:
    import pandas as pd


_LEAST_POOL, _POOL_FACTOR = 200, 4
_SMALL_SHAPE, _LARGE_SHAPE = (0.01, 2.0), (2.0, 8.0)


def pool_size(n_topics: int) -> int:
    """Return the size of the pool of topics: four times `n_topics`, at least 200."""
    return max(_LEAST_POOL, _POOL_FACTOR * n_topics)


def quantile_weights(size: int, a: float, b: float) -> FloatArray:
    """Return the weights of topics in the draw, from the hardest to the easiest.

    Parameters
    ----------
    size : number of topics
    a, b : shapes of the Beta distribution whose density at (1, …, size) / (size + 2) the weights
        follow; they add up to one
    """
    place = np.arange(1.0, size + 1.0) / (size + 2.0)
    logs = (a - 1.0) * np.log(place) + (b - 1.0) * np.log1p(-place)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def choose_unevenly(n_topics: int, size: int, rng: np.random.Generator) -> LongArray:
    """Choose topics unevenly from a pool sorted from the hardest to the easiest; return places.

    One shape of a Beta distribution is drawn from [.01, 2] and one from [2, 8], swapped half of
    the time; its density gives the weight of each topic in a draw without replacement. (Urbano's
    text describes topics at quantiles drawn from it; this follows the code of his paper.)

    Parameters
    ----------
    n_topics : how many
    size : of the pool
    rng : random numbers
    """
    a, b = rng.uniform(*_SMALL_SHAPE), rng.uniform(*_LARGE_SHAPE)
    if rng.random() < 0.5:
        a, b = b, a
    return draw_weighted(n_topics, quantile_weights(size, a, b), rng)


def draw_weighted(n: int, weights: FloatArray, rng: np.random.Generator) -> LongArray:
    """Draw the places of `n` weights in sequence without replacement.

    Such a draw is the order in which independent exponential times with these rates end.

    Parameters
    ----------
    n : how many
    weights : (size,) positive or zero
    rng : random numbers
    """
    times = rng.standard_exponential(weights.size) / np.maximum(weights, 1e-300)
    return np.asarray(np.argsort(times, kind="stable")[:n], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimulatedCollections:
    """Scores of the same systems in simulated collections of new topics.

    Attributes
    ----------
    scores : (size, n_topics, n_systems)
    means : (n_systems,) true mean score of each system over all topics there could be
    systems : (n_systems,) names
    seed : with which all collections are drawn
    first : number of the first collection; see :meth:`CollectionSimulator.simulate`

    Examples
    --------
    >>> from vcomp.simulate import fit_collection
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
    >>> simulated = fit_collection(scores, ["a", "b", "c"]).simulate(5, n=3, rng=1)
    >>> len(simulated), simulated[0].shape
    (3, (5, 3))
    """

    scores: FloatArray
    means: FloatArray
    systems: tuple[str, ...]
    seed: int
    first: int

    def __repr__(self) -> str:
        size, n_topics, n_systems = self.scores.shape
        what = "collection" if size == 1 else "collections"
        text = f"<{size:,} simulated {what} of {n_topics:,} topics × {n_systems:,} systems>"
        return encodable(text)

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, number: int) -> FloatArray:
        """Return the scores of one collection, (n_topics, n_systems)."""
        return self.scores[number]

    def __iter__(self) -> Iterator[FloatArray]:
        return iter(self.scores)

    @property
    def true_means(self) -> pd.Series:
        """True mean score of each system: the truth of measures of accuracy."""
        import pandas as pd

        return pd.Series(self.means, index=pd.Index(self.systems, name="system"), name="mean")

    def to_frame(self, number: int = 0) -> pd.DataFrame:
        """Return one collection as a wide frame, one row per topic and one column per system.

        Parameters
        ----------
        number : of the collection, from 0

        Raises
        ------
        PlanError
            If there is no collection of that number.
        """
        import pandas as pd

        if not is_whole(number) or not 0 <= number < len(self):
            raise PlanError(f"collections are numbered from 0 to {len(self) - 1}, not {number!r}")
        return pd.DataFrame(self.scores[number], self._topics(), list(self.systems))

    def to_long(self) -> pd.DataFrame:
        """Return all scores: columns ``collection``, ``topic``, ``system``, ``score``.

        Collections are numbered as they were drawn, topics from 1 within each.
        """
        import pandas as pd

        size, n_topics, n_systems = self.scores.shape
        collections = np.arange(self.first, self.first + size)
        kind = pd.CategoricalDtype(list(self.systems))
        codes = np.tile(np.arange(n_systems), size * n_topics)
        return pd.DataFrame(
            {
                "collection": np.repeat(collections, n_topics * n_systems),
                "topic": np.tile(np.repeat(self._topics(), n_systems), size),
                "system": pd.Categorical.from_codes(codes, dtype=kind),
                "score": self.scores.ravel(),
            }
        )

    def _topics(self) -> pd.Index:
        import pandas as pd

        return pd.Index(np.arange(1, self.scores.shape[1] + 1), name="topic")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CollectionSimulator:
    """Draws new topics for the systems of a collection; made by :func:`fit_collection`.

    Attributes
    ----------
    scores : (n_topics, n_systems) scores of the original collection
    systems : (n_systems,) names
    family : of margins, as requested
    margins : of each system; of its residuals if there are topic effects, else of its scores
    topic_margin : of topic effects; None where margins are those of scores
    scale : on which effects add up
    offsets : (n_systems,) on this scale, grand mean plus system effect; zero without effects
    factor : Cholesky factor of the copula's correlations; topic effects first where there are some
    copula : dependence of effects, or of scores
    heteroscedasticity, nonnormality, correlation : how much of them there is; 1 as in the scores
    random_sampling : whether topics are a random sample
    means : (n_systems,) true mean score of each system
    tables : (n_systems, P) quantiles of all margins, or the limits of discrete ones

    Examples
    --------
    >>> from vcomp.simulate import fit_collection
    >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
    >>> simulator = fit_collection(scores, ["a", "b", "c"])
    >>> simulator
    <simulator of 3 systems from 4 topics, margins 'kernel'>
    >>> simulator.true_means.round(3).to_dict()
    {'a': 0.4, 'b': 0.6, 'c': 0.275}
    """

    scores: FloatArray
    systems: tuple[str, ...]
    family: str
    margins: tuple[Margin, ...]
    topic_margin: Margin | None
    scale: Scale
    offsets: FloatArray
    factor: FloatArray
    copula: Copula
    heteroscedasticity: float
    nonnormality: float
    correlation: float
    random_sampling: bool
    means: FloatArray
    tables: FloatArray
    """(n_systems, P) quantiles of all margins, or the limits of discrete ones."""

    def __repr__(self) -> str:
        n_topics, n_systems = self.scores.shape
        return (
            f"<simulator of {n_systems:,} systems from {n_topics:,} topics, "
            f"margins {self.family!r}>"
        )

    @property
    def n_systems(self) -> int:
        """Number of systems."""
        return len(self.systems)

    @property
    def true_means(self) -> pd.Series:
        """Mean score of each system over all topics that could be drawn, by quadrature."""
        import pandas as pd

        return pd.Series(self.means, index=pd.Index(self.systems, name="system"), name="mean")

    def draw(self, n_topics: int, rng: np.random.Generator) -> FloatArray:
        """Return the scores of one collection, unchecked: for loops.

        Parameters
        ----------
        n_topics : at least 1
        rng : random numbers

        Returns
        -------
        (n_topics, n_systems) array
        """
        out = np.empty((n_topics, self.n_systems))
        self._draw_into(out, rng)
        return out

    def simulate(
        self,
        n_topics: int,
        n: int = 1,
        *,
        rng: int | np.random.Generator | None = None,
        first: int = 0,
        workers: int = 1,
        progress: bool | None = None,
    ) -> SimulatedCollections:
        """Return `n` simulated collections.

        Collection number i of a seed has a stream of random numbers to itself: it is the same
        however many are drawn at once, in parts or by several workers.

        Parameters
        ----------
        n_topics : topics of each collection, at least 1
        n : number of collections
        rng : seed, or a ``numpy.random.Generator`` that one is drawn from once; 0 if not given
        first : number of the first collection, to go on where another call stopped
        workers : threads; the numbers are the same for any number of them
        progress : whether to show a bar; None for one where stderr is a terminal

        Raises
        ------
        PlanError
            If a number is not whole or not positive, or the collections do not fit into memory.
        EstimationError
            If `rng` is neither a seed nor a generator.

        Examples
        --------
        >>> from vcomp.simulate import fit_collection
        >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
        >>> simulator = fit_collection(scores)
        >>> all_at_once = simulator.simulate(50, n=10, rng=1)
        >>> the_last = simulator.simulate(50, n=1, rng=1, first=9)
        >>> bool((all_at_once[9] == the_last[0]).all())
        True
        """
        n_topics, n = whole(n_topics, "n_topics"), whole(n, "n")
        first, workers = whole(first, "first", least=0), whole(workers, "workers")
        seed = seed_from(rng)
        drawn = 0 if self.random_sampling else pool_size(n_topics)
        _check_memory(n, n_topics, self.n_systems, pool=min(workers, n) * drawn)
        scores = np.empty((n, n_topics, self.n_systems))

        def one(number: int) -> None:
            self._draw_into(scores[number], stream(seed, first + number))

        run(lambda: one, range(n), workers=workers, progress=progress, label="collections")
        return SimulatedCollections(scores, self.means, self.systems, seed, first)

    def summary(self) -> Any:
        """Return a printable summary: what the scores and simulated ones were found to be.

        Distribution, variances and correlations of the residuals are measured in the collection
        and in 1,000 simulated topics, beside what the options force. See :attr:`found`.

        References
        ----------
        Urbano, J. (2016). *Information Retrieval Journal*, 19(3), 313-350. Section 5.2.
        """
        n_topics, n_systems = self.scores.shape
        head = display.plain_table(
            [
                ("Stochastic simulation", f"from {n_topics:,} topics × {n_systems:,} systems"),
                (f"margins: {self.family}", f"scale: {_scale(self)}"),
                (f"copula: {_copula(self)}", ""),
            ]
        )
        found, forced = self.found, _forced(self)
        cells = {
            "collection": display.fixed(found["collection"], decimals=2),
            "simulated": display.fixed(found["simulated"], decimals=2),
            "requested": [forced.get(name, "") for name in found.index],
        }
        stubs = [_MEASURED[name] for name in found.index]
        table = display.column_table(cells, title="Found", stubs=stubs, align="rrl")
        return display.summary([head, table], _notes(self))

    @property
    def found(self) -> pd.DataFrame:
        """What the assumptions were found to be: one row each, collection and simulated.

        Of residuals, scores less the means of systems and topics: skewness and excess kurtosis
        (each system in units of its own standard deviation), the standard deviation over systems
        of the logarithm of their variance, and root mean square correlations with topic effects
        and with the residuals of other systems; and the standard deviation of the mean score of
        simulated collections of 50 topics, in standard errors of random sampling. Simulated are
        1,000 topics, and 100 collections, with seed 0.
        """
        import pandas as pd

        drawn = self.draw(_TOPICS, stream(0, 0))
        simulated = measures_of(drawn)
        means = np.array([self.draw(_SIZE, stream(0, 1 + k)).mean() for k in range(_COLLECTIONS)])
        # Without random sampling, topics of one collection are too similar to estimate the error.
        topics = (drawn if self.random_sampling else self.scores).mean(axis=1)
        error = topics.std(ddof=1) / np.sqrt(_SIZE)
        simulated["sampling"] = float(means.std(ddof=1) / error)
        columns = {"collection": measures_of(self.scores), "simulated": simulated}
        return pd.DataFrame(columns).loc[list(_MEASURED)]

    def _draw_into(self, out: FloatArray, rng: np.random.Generator) -> None:
        if self.topic_margin is None:
            self._draw_scores(out, rng)
        else:
            self._draw_effects(out, rng)

    def _draw_effects(self, out: FloatArray, rng: np.random.Generator) -> None:
        from vcomp.ir.kernels.quantile_tables import effects_at, scores_from_effects

        assert self.topic_margin is not None
        n_topics, n_systems = out.shape
        drawn = n_topics if self.random_sampling else pool_size(n_topics)
        z_topics: FloatArray = rng.standard_normal((drawn,))
        scales = self.copula.scales(drawn, rng)
        at_topics = self.copula.normals(z_topics, scales)
        if not self.random_sampling:
            # Topic effects come first in the factor, so residuals are needed only for the chosen
            # topics.
            order = np.argsort(at_topics, kind="stable")
            chosen = order[choose_unevenly(n_topics, drawn, rng)]
            z_topics, at_topics = z_topics[chosen], at_topics[chosen]
            scales = None if scales is None else scales[chosen]
        rng.standard_normal(out=out)
        topics = effects_at(self.topic_margin.quantiles, at_topics, LOW, PER_UNIT)
        smoothing = self.scale.smoothing
        for some in slices(n_topics, topics_at_a_time(n_systems)):
            z = out[some]
            if self.correlation:
                z = z @ self.factor[1:, 1:].T + np.outer(z_topics[some], self.factor[1:, 0])
            z = self.copula.normals(z, None if scales is None else scales[some])
            scores_from_effects(
                z, topics[some], self.offsets, self.tables, LOW, PER_UNIT, smoothing, out[some]
            )

    def _draw_scores(self, out: FloatArray, rng: np.random.Generator) -> None:
        from vcomp.ir.kernels.quantile_tables import scores_from_margins, scores_from_steps

        n_topics, n_systems = out.shape
        drawn = n_topics if self.random_sampling else pool_size(n_topics)
        pool = out if self.random_sampling else np.empty((drawn, n_systems))
        rng.standard_normal(out=pool)
        scales = self.copula.scales(drawn, rng)
        for some in slices(drawn, topics_at_a_time(n_systems)):
            z = pool[some]
            if self.correlation:
                z = z @ self.factor.T
            pool[some] = self.copula.normals(z, None if scales is None else scales[some])
        if not self.random_sampling:
            order = np.argsort(pool.sum(axis=1), kind="stable")
            np.take(pool, order[choose_unevenly(n_topics, drawn, rng)], axis=0, out=out)
        # Each normal is replaced by its score in place.
        if self.margins[0].is_discrete:
            scores_from_steps(out, self.tables, self.margins[0].support, out)
        else:
            scores_from_margins(out, self.tables, LOW, PER_UNIT, out)


def whole(value: object, name: str, least: int = 1) -> int:
    """Return a whole number.

    Raises
    ------
    PlanError
        If it is not one, or less than `least`.
    """
    if not is_whole(value) or int(value) < least:
        raise PlanError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


_AT_A_TIME = 2**18
"""Scores per batch of normals."""


def topics_at_a_time(n_systems: int) -> int:
    """Return the number of topics per batch of normals."""
    return max(_AT_A_TIME // n_systems, 1)


def _check_memory(size: int, n_topics: int, n_systems: int, *, pool: int) -> None:
    """Refuse collections that, with the pool of topics, do not fit into memory."""
    check_memory(
        8.0 * (size * n_topics + pool) * n_systems,
        f"{size:,} collections of {n_topics:,} topics × {n_systems:,} systems need",
        "simulate fewer at a time, and go on with first=",
        PlanError,
    )


_TOPICS, _SIZE, _COLLECTIONS = 1_000, 50, 100

_MEASURED = {
    "skewness": "skewness of residuals",
    "kurtosis": "excess kurtosis of residuals",
    "log_sd": "s.d. of log variance over systems",
    "with_topics": "r of residuals with topic effects, r.m.s.",
    "between": "r of residuals of two systems, r.m.s.",
    "sampling": "s.d. of collections' means, in standard errors",
}
"""Measured properties in words."""


def measures_of(X: FloatArray) -> dict[str, float]:
    """Return measured properties of the residuals of a collection: shape, variances, correlations.

    Parameters
    ----------
    X : (n_topics, n_systems) scores

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> found = measures_of(rng.normal(size=(500, 1)) + rng.normal(size=(500, 6)))
    >>> round(found["between"], 1)  # 1 / (n_systems - 1): residuals of a topic add up to zero
    0.2
    """
    table = TwoWayTable.of(X)
    e = table.residuals
    sd = np.sqrt(np.mean(e * e, axis=0))
    known = sd > 1e-12 * max(float(np.abs(X).max()), 1e-300)
    z = (e[:, known] / sd[known]).ravel()
    upper = np.triu_indices(X.shape[1], 1)
    return {
        "skewness": skewness(z),
        "kurtosis": excess_kurtosis(z),
        "log_sd": float(np.log(sd[known] ** 2).std(ddof=1)) if known.any() else float("nan"),
        "with_topics": float(np.sqrt(np.mean(table.row_correlations**2))),
        "between": float(np.sqrt(np.mean(table.correlations[upper] ** 2))),
        "sampling": float("nan"),
    }


def _forced(simulator: Any) -> dict[str, str]:
    """Return the requested values of measured properties, in words."""
    forced = {"kurtosis": "normal residuals"} if simulator.family == "normal" else {}
    for names, dial, none in (
        (("kurtosis",), simulator.nonnormality, "normal residuals"),
        (("log_sd",), simulator.heteroscedasticity, "equal variances"),
        (("with_topics", "between"), simulator.correlation, "uncorrelated"),
    ):
        if dial != 1.0:
            words = none if dial == 0.0 else f"× {display.number(dial, 3)}"
            forced.update(dict.fromkeys(names, words))
    if not simulator.random_sampling:
        forced["sampling"] = "uneven sampling"
    return forced


def _scale(simulator: Any) -> str:
    if simulator.topic_margin is None:
        return "scores, no effects"
    return "smoothed logits" if simulator.scale.logit else "scores"


def _copula(simulator: Any) -> str:
    copula = simulator.copula
    if simulator.correlation == 0.0:
        return "none"
    if copula.name == "gaussian":
        return "Gaussian"
    return f"t with {display.number(copula.df, 3)} degrees of freedom"


def _notes(simulator: Any) -> list[str]:
    apart = display.number(1.0 / (simulator.n_systems - 1.0), 2)
    chance = display.number(1.0 / np.sqrt(len(simulator.scores) - 1.0), 2)
    said = (
        f"Simulated: {display.count(_TOPICS)} topics, and means of {_COLLECTIONS} collections of "
        f"{_SIZE} topics. With independent residuals the r of two systems is {apart}, as "
        f"residuals add up to zero, and chance adds {chance} in the collection."
    )
    notes = [said]
    if simulator.topic_margin is None:
        counts = Counter(margin.name for margin in simulator.margins)
        notes.append(
            "Margins: " + ", ".join(f"{name} {n:,}" for name, n in counts.most_common()) + "."
        )
    shift = simulator.means - simulator.scores.mean(axis=0)
    worst = int(np.abs(shift).argmax())
    if abs(shift[worst]) > 1e-9:
        notes.append(
            "True means are not those of the collection: they differ by "
            f"{display.number(float(shift.mean()), 2)} on average, by "
            f"{display.number(float(shift[worst]), 2)} for {simulator.systems[worst]}."
        )
    else:
        notes.append("True means of the systems are those of the collection.")
    if simulator.scores.shape[0] <= simulator.n_systems and simulator.correlation:
        notes.append("There are no more topics than systems: correlations are poorly known.")
    return notes
