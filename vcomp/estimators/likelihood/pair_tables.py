"""Numbers of rows that groups of two terms share, each table made once."""

from __future__ import annotations

from typing import Any

from vcomp._typing import FloatArray
from vcomp.statistics import CrossProducts


class Tables:
    """The pair tables Z_t'Z_u as sparse matrices, each made once."""

    def __init__(
        self, stats: CrossProducts, made: dict[tuple[int, int], Any] | None = None
    ) -> None:
        self.stats = stats
        self._made: dict[tuple[int, int], Any] = {} if made is None else made

    def with_response(self, stats: CrossProducts) -> Tables:
        """Return the tables of the same rows with another response; the matrices are shared."""
        return Tables(stats, self._made)

    def between(self, t: int, u: int) -> Any:
        """Return Z_t'Z_u of two different terms."""
        if (t, u) not in self._made:
            self._made[t, u] = self.stats.gram(t, u)
        return self._made[t, u]

    def times(self, t: int, u: int, x: FloatArray) -> FloatArray:
        """Return Z_t'Z_u x for columns of effects of term u."""
        if t == u:
            return self.stats.group_n[t][:, None] * x
        product: FloatArray = self.between(t, u) @ x
        return product
