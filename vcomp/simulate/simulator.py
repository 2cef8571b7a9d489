"""A simulator of collections: what is fixed once and for all, and how topics are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError
from vcomp.simulate.collections import SimulatedCollections
from vcomp.simulate.copula import Copula
from vcomp.simulate.margin import LOW, PER_UNIT, Margin
from vcomp.simulate.scale import Scale
from vcomp.simulate.summary import simulator_summary
from vcomp.simulate.topics import choose_unevenly, pool_size

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CollectionSimulator"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CollectionSimulator:
    """Draws new topics for the systems of a collection; made by :func:`fit_collection`.

    Attributes
    ----------
    scores : (n_topics, n_systems) of the collection that is simulated from
    systems : (n_systems,) names
    family : of margins, as it was asked for
    margins : of each system; of its residuals if there are topic effects, else of its scores
    topic_margin : of topic effects; None where margins are those of scores
    scale : that effects add up on
    offsets : (n_systems,) on this scale, grand mean plus system effect; zero without effects
    factor : Cholesky factor of the copula's correlations; topic effects first where there are some
    copula : that ties effects, or scores, together
    homoscedastic, uncorrelated, random_sampling : which assumptions hold
    means : (n_systems,) true mean score of each system

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
    homoscedastic: bool
    uncorrelated: bool
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
        size: int = 1,
        *,
        rng: int | np.random.Generator | None = None,
        first: int = 0,
        workers: int = 1,
        progress: bool | None = False,
    ) -> SimulatedCollections:
        """Return simulated collections.

        Collection number i of a seed has a stream of random numbers to itself: it is the same
        however many are drawn at once, in parts or by several workers.

        Parameters
        ----------
        n_topics : topics of each collection, at least 1
        size : number of collections
        rng : seed, or a ``numpy.random.Generator`` that one is drawn from once; 0 if not given
        first : number of the first collection, to go on where another call stopped
        workers : threads
        progress : whether to show a bar; None for one where stderr is a terminal

        Raises
        ------
        PlanError
            If a number is not whole or not positive, or the collections do not fit into memory.
        EstimationError
            If `rng` is no seed or generator.

        Examples
        --------
        >>> from vcomp.simulate import fit_collection
        >>> scores = [[0.3, 0.5, 0.1], [0.4, 0.5, 0.4], [0.2, 0.6, 0.3], [0.7, 0.8, 0.3]]
        >>> simulator = fit_collection(scores)
        >>> all_at_once = simulator.simulate(50, size=10, rng=1)
        >>> the_last = simulator.simulate(50, size=1, rng=1, first=9)
        >>> bool((all_at_once[9] == the_last[0]).all())
        True
        """
        from vcomp.linalg.threads import limited_blas
        from vcomp.resampling.run import run
        from vcomp.resampling.streams import seed_from, stream

        n_topics, size = whole(n_topics, "n_topics"), whole(size, "size")
        first, workers = whole(first, "first", least=0), whole(workers, "workers")
        seed = seed_from(rng)
        _check_memory(size, n_topics, self.n_systems)
        scores = np.empty((size, n_topics, self.n_systems))

        def one(number: int) -> None:
            self._draw_into(scores[number], stream(seed, first + number))

        # One thread, however large the product: sums in another order differ in the last bit.
        with limited_blas(0):
            run(lambda: one, range(size), workers=workers, progress=progress, label="collections")
        return SimulatedCollections(scores, self.means, self.systems, seed, first)

    def summary(self) -> Any:
        """Return what is simulated, under which assumptions, as a statsmodels summary."""
        return simulator_summary(self)

    def _draw_into(self, out: FloatArray, rng: np.random.Generator) -> None:
        if self.topic_margin is None:
            self._draw_scores(out, rng)
        else:
            self._draw_effects(out, rng)

    def _draw_effects(self, out: FloatArray, rng: np.random.Generator) -> None:
        from vcomp.kernels.margins import effects_at, scores_from_effects

        assert self.topic_margin is not None
        n_topics, n_systems = out.shape
        drawn = n_topics if self.random_sampling else pool_size(n_topics)
        z_topics: FloatArray = rng.standard_normal((drawn,))
        scales = self.copula.scales(drawn, rng)
        at_topics = self.copula.normals(z_topics, scales)
        if not self.random_sampling:
            # Topic effects come first in the factor, so that the residuals of topics that are not
            # chosen need not be drawn.
            order = np.argsort(at_topics, kind="stable")
            chosen = order[choose_unevenly(n_topics, drawn, rng)]
            z_topics, at_topics = z_topics[chosen], at_topics[chosen]
            scales = None if scales is None else scales[chosen]
        z: FloatArray = rng.standard_normal((n_topics, n_systems))
        if not self.uncorrelated:
            z = z @ self.factor[1:, 1:].T + np.outer(z_topics, self.factor[1:, 0])
        z = self.copula.normals(z, scales)
        topics = effects_at(self.topic_margin.quantiles, at_topics, LOW, PER_UNIT)
        smoothing = self.scale.smoothing
        scores_from_effects(z, topics, self.offsets, self.tables, LOW, PER_UNIT, smoothing, out)

    def _draw_scores(self, out: FloatArray, rng: np.random.Generator) -> None:
        from vcomp.kernels.margins import scores_from_margins, scores_from_steps

        n_topics, n_systems = out.shape
        drawn = n_topics if self.random_sampling else pool_size(n_topics)
        z: FloatArray = rng.standard_normal((drawn, n_systems))
        if not self.uncorrelated:
            z = z @ self.factor.T
        z = self.copula.normals(z, self.copula.scales(drawn, rng))
        if not self.random_sampling:
            z = z[np.argsort(z.sum(axis=1), kind="stable")]
            z = z[choose_unevenly(n_topics, drawn, rng)]
        if self.margins[0].is_discrete:
            scores_from_steps(z, self.tables, self.margins[0].support, out)
        else:
            scores_from_margins(z, self.tables, LOW, PER_UNIT, out)


def whole(value: object, name: str, least: int = 1) -> int:
    """Return a whole number.

    Raises
    ------
    PlanError
        If it is not one, or less than `least`.
    """
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)
    if not is_whole or int(value) < least:  # type: ignore[call-overload]
        raise PlanError(f"{name} is a whole number from {least} on, not {value!r}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def _check_memory(size: int, n_topics: int, n_systems: int) -> None:
    from vcomp.linalg.memory import available_bytes, gib

    needed, free = 8.0 * size * n_topics * n_systems, available_bytes()
    if needed > 0.8 * free:
        raise PlanError(
            f"{size:,} collections of {n_topics:,} topics × {n_systems:,} systems need "
            f"{gib(needed)}, and {gib(free)} are free; simulate fewer at a time, and go on with "
            "first="
        )
