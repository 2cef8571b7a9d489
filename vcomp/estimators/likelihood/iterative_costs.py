"""Time and memory of the iterative engine, and which terms are small, before any solve."""

from __future__ import annotations

from vcomp.numerics import COSTS
from vcomp.statistics import CrossProducts

COLUMNS_AT_ONCE = 32
"""Right-hand sides that are solved at once: in four threads, if there are as many cores."""

PROBES = 8
"""Probes with which a fit begins: as many as are solved for at once in a thread. Where facets meet
at random, the Monte Carlo error is then a hundredth of the standard error at most."""

_SECONDS = 0.12
"""Seconds of an evaluation that closed forms with probes allow."""

LEVELS = 128
"""Largest total number of groups of the small terms. Each of these groups is a right-hand side:
the traces are exact, and convergence does not depend on how the groups are connected."""

_LEVEL_EFFECTS = 2.5e7
"""Largest number of elements of the solutions for these right-hand sides."""


def affordable_probes(stats: CrossProducts) -> int:
    """Return as many probes as closed forms of about a second allow; no more than effects."""
    return int(min(_SECONDS / _seconds_per_column(stats), sum(tail_sizes(stats))))


def seconds_of(stats: CrossProducts, n_probes: int = PROBES) -> float:
    """Return the expected time of an evaluation in seconds, from measured ones.

    Parameters
    ----------
    stats : cross-products
    n_probes : number of random probes
    """
    columns = n_probes + COSTS.iterative.other_columns
    return COSTS.iterative.call + columns * _seconds_per_column(stats)


def _seconds_per_column(stats: CrossProducts) -> float:
    """Return the seconds that a right-hand side adds to an evaluation."""
    large = _large_terms(stats.sizes, LEVELS)
    entries = sum(p.indices.size for (t, u), p in stats.pairs.items() if t in large and u in large)
    work = entries + COSTS.iterative.entries_per_effect * sum(tail_sizes(stats))
    return COSTS.iterative.entry * len(large) * max(work, 1)


def tail_sizes(stats: CrossProducts) -> list[int]:
    """Return the sizes of the large terms except the largest, which is eliminated."""
    return [stats.sizes[t] for t in _large_terms(stats.sizes, LEVELS)[1:]]


def _large_terms(sizes: tuple[int, ...], n_levels: int) -> list[int]:
    """Return the terms that are not small, largest first."""
    small = small_terms(sizes, n_levels)
    return sorted(set(range(len(sizes))) - set(small), key=lambda t: (-sizes[t], t))


def small_terms(sizes: tuple[int, ...], n_levels: int) -> list[int]:
    """Return the smallest terms with at most `n_levels` groups together, never the largest."""
    left = min(float(n_levels), _LEVEL_EFFECTS / max(sum(sizes), 1))
    small: list[int] = []
    for t in sorted(range(len(sizes)), key=lambda t: (sizes[t], -t))[:-1]:
        left -= sizes[t]
        if left < 0.0:
            break
        small.append(t)
    return small


def iterative_memory(
    stats: CrossProducts, n_probes: int = PROBES, n_levels: int = LEVELS
) -> float:
    """Return the largest memory of the engine in bytes, without the statistics.

    Parameters
    ----------
    stats : cross-products
    n_probes, n_levels : as for :class:`IterativeLikelihood`
    """
    small, large = small_terms(stats.sizes, n_levels), _large_terms(stats.sizes, n_levels)
    lead, tail = stats.sizes[large[0]], sum(stats.sizes[t] for t in large[1:])
    # Tables are stored by rows in both orders; with three terms or more, joined to two others.
    copies, tables = 1.0 if len(large) == 2 else 3.0, 0.0
    for (t, u), pair in stats.pairs.items():
        if t in large and u in large:
            tables += copies * (12.0 * pair.indices.size + 8.0 * stats.sizes[max(t, u)])
    fixed = 1 + stats.n_fixed + stats.n_terms + sum(stats.sizes[t] for t in small)
    width = min(max(n_probes, fixed), COLUMNS_AT_ONCE)
    columns = 8.0 * (n_probes + 3.0 * fixed + 10.0 * width) * tail
    # Solves, and probes of a term at zero, need columns of the length of the largest term.
    by_lead = 3.0 * fixed + 4.0 + (4.0 * width if tail else 0.0)
    return float(tables + columns + 8.0 * lead * by_lead)
