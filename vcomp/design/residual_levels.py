"""Groups of rows that have a residual variance each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vcomp._typing import FloatArray, IntArray, LongArray
from vcomp.data import Rows, plain_label
from vcomp.design.design import Facet, ResidualLevels, TermDesign
from vcomp.design.grid import number_combinations
from vcomp.exceptions import DesignError
from vcomp.formula import RESIDUAL, ResidualGroups


def residual_of_rows(groups: ResidualGroups, rows: Rows) -> ResidualLevels:
    """Return the groups of residuals that occur in rows, as :func:`learn_residual` does.

    Parameters
    ----------
    groups : with the names of their facets
    rows : all rows
    """
    columns = [rows.facets[name] for name in groups.facets]
    facets = tuple(
        Facet(name, column.cat.categories)
        for name, column in zip(groups.facets, columns, strict=True)
    )
    codes = [np.asarray(f.codes(c), np.int32) for f, c in zip(facets, columns, strict=True)]
    return learn_residual(groups, facets, codes)


def learn_residual(
    groups: ResidualGroups,
    facets: tuple[Facet, ...],
    codes: Sequence[IntArray],
    counts: FloatArray | None = None,
) -> ResidualLevels:
    """Return the groups of residuals that occur.

    Parameters
    ----------
    groups : with the names of their facets
    facets : with their levels
    codes : (n,) levels of the rows or cells in each
    counts : (n,) rows of each cell; None for rows

    Raises
    ------
    DesignError
        If there is one group only, a group has one row, or two groups have the same name.
    """
    joined, size = codes[0], facets[0].size
    keys: list[LongArray | None] = []
    for further, facet in zip(codes[1:], facets[1:], strict=True):
        occurring, joined = number_combinations(joined, size, further, facet.size)
        keys.append(occurring)
        size = occurring.size
    term = TermDesign(RESIDUAL, tuple(range(len(facets))), tuple(keys), size)
    labels = zip(
        *(
            [str(plain_label(facet.levels[k])) for k in of.tolist()]
            for facet, of in zip(
                facets, term.level_codes(tuple(f.size for f in facets)), strict=True
            )
        ),
        strict=True,
    )
    n = np.bincount(joined, counts, minlength=size)
    named = replace(groups, levels=tuple(labels), n=tuple(map(int, n)))
    _check(named)
    return ResidualLevels(facets, term, named)


def _check(groups: ResidualGroups) -> None:
    """Refuse groups whose variances cannot be estimated or named."""
    written = f"residual={groups.written!r}"
    if len(groups.n) == 1:
        raise DesignError(
            f"{written} has one level only; a comparison of residual variances needs two: leave "
            "residual= out",
            term=RESIDUAL,
        )
    least = int(np.argmin(groups.n))
    if groups.n[least] == 1:
        level = groups.level_name(groups.levels[least])
        n_single = groups.n.count(1)
        more = f", and so have {n_single - 1} more levels" if n_single > 1 else ""
        raise DesignError(
            f"{written}: {level} has one row{more}, and a variance needs two at least; join it "
            "with another level, leave its row out, or leave residual= out",
            term=RESIDUAL,
            level=level,
        )
    twice = [name for name, count in Counter(groups.names).items() if count > 1]
    if twice:
        raise DesignError(
            f"two levels have the name {twice[0]!r}; name them differently", term=RESIDUAL
        )
