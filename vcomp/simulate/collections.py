"""Simulated collections: their scores, and the true means of the systems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vcomp._typing import FloatArray
from vcomp.exceptions import PlanError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SimulatedCollections"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimulatedCollections:
    """Scores of the same systems on new topics, a number of times.

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
    >>> simulated = fit_collection(scores, ["a", "b", "c"]).simulate(5, size=3, rng=1)
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
        return f"<{size:,} simulated {what} of {n_topics:,} topics × {n_systems:,} systems>"

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, number: int) -> FloatArray:
        """Return the scores of one collection, (n_topics, n_systems)."""
        scores: FloatArray = self.scores[number]
        return scores

    def __iter__(self) -> Iterator[FloatArray]:
        return iter(self.scores)

    @property
    def true_means(self) -> pd.Series:
        """True mean score of each system: the truth that measures of accuracy ask for."""
        import pandas as pd

        return pd.Series(self.means, index=pd.Index(self.systems, name="system"), name="mean")

    def to_frame(self, number: int = 0) -> pd.DataFrame:
        """Return one collection as a wide frame, a row a topic and a column a system.

        Raises
        ------
        PlanError
            If there is no collection of that number; they are numbered from 0 here.
        """
        import pandas as pd

        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not whole or not 0 <= number < len(self):
            raise PlanError(f"collections are numbered from 0 to {len(self) - 1}, not {number!r}")
        return pd.DataFrame(self.scores[number], self._topics(), list(self.systems))

    def to_long(self) -> pd.DataFrame:
        """Return all collections, a row a score: ``collection``, ``topic``, ``system``, ``score``.

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
