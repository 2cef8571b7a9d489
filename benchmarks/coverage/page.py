"""The page of the documentation: how to read the study, its findings and its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.coverage.cells import CELLS, Cell
from benchmarks.coverage.findings import SYMBOLS, findings
from benchmarks.coverage.markdown import markdown, percent, width
from benchmarks.coverage.methods import NORMAL_THEORY
from benchmarks.coverage.methods_section import methods_section
from benchmarks.coverage.pairs import section as pairs_section
from benchmarks.coverage.results import HIGH, LOW, is_claimed, violations
from benchmarks.coverage.robust_section import section
from benchmarks.coverage.study import Row

_HEAD = """\
# Coverage of intervals

<!-- Written by `python -m benchmarks.coverage`; change it there. -->

A 95 % interval should contain the true value in 95 of 100 studies. This study simulates data sets
with known components, estimates each, and counts the intervals that contain the true value.
`python -m benchmarks.coverage` repeats it (seed {seed}; the numbers are the same for any number of
workers); all rows are in `benchmarks/coverage/results.csv`. The methods are explained in
[intervals.md](intervals.md), the terms in the [glossary](../reference/glossary.md#inference).

**How to read the tables.** *Coverage* is the percentage of intervals that contain the true value.
The nominal coverage is 95; with less an interval is too short, with more it is wider than
necessary. *Misses* are intervals wholly below / wholly above the true value, ideally 2.5 / 2.5.
*Width* is the median width relative to that of normal theory (∞: more than half have no upper
end). *None* is the percentage of data sets without an interval; coverage leaves them out. The
Monte Carlo standard error of a coverage near 95 % is 0.5 points with 2,000 data sets, 0.7 with
1,000 and 1.8 with 150. A quantity is *near zero* if the true variance, or the variance of which
it is a share, is below its own standard error; no coverage is claimed there.

Quantities are all components, their shares of the sum, the error variances σ²(δ) and σ²(Δ), and
Eρ² and Φ at the sizes of the design itself. Estimates are by REML unless another estimator is
named.
"""

_OF_METHODS = """\
All quantities that are away from zero, in designs with normal effects and errors. The columns of
kinds have the lowest and highest coverage. Slow methods (profile, bootstrap, jackknife) have 100
to 400 data sets; their extremes differ from 95 by 2 to 6 points by chance alone.
"""

_OF_DISTRIBUTIONS = """\
Coverage of normal theory. t₅ has heavy tails (excess kurtosis 6), χ²₄ is skewed (skewness 1.4,
excess kurtosis 3). All effects and errors have the distribution of the column.
"""

_PROMISE = """\
Away from zero and with normal effects, 95 % intervals of normal theory should contain the true
value in {low:.0f} to {high:.0f} % of data sets. This holds for {inside} of {all} quantities of
{designs} designs (some are the same by definition: Residual and σ²(δ) of a complete table).
"""

_KINDS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("components", lambda q: q not in SYMBOLS and not q.startswith("share")),
    ("shares", lambda q: q.startswith("share")),
    ("σ²(δ), σ²(Δ)", lambda q: q in ("rel_err_var", "abs_err_var")),
    ("Eρ²", lambda q: q == "Erho2"),
    ("Φ", lambda q: q == "Phi"),
)


def page(
    rows: Sequence[Row],
    seed: int,
    others: Sequence[Row] = (),
    methods: Sequence[Row] = (),
    pairs: Sequence[Row] = (),
) -> str:
    """Return the page as Markdown.

    Parameters
    ----------
    rows : of all cells
    seed : that they were made with
    others : of all populations
    methods : of all methods in eight cells
    pairs : of differences between measures
    """
    parts = [
        _HEAD.format(seed=seed),
        section(others),
        pairs_section(pairs),
        methods_section(methods),
        _claim(rows),
        findings(rows),
        "## Each method in one line\n",
        _OF_METHODS,
        _methods(rows),
        "## Normal theory with effects that are not normal\n",
        _OF_DISTRIBUTIONS,
        _distributions(rows),
        "## Near zero\n",
        "Variances that are zero or below their own standard error, and shares of these.\n",
        _table([r for r in rows if r.near_zero and r.distribution == "normal" and _is_main(r)]),
        "## Design by design\n",
        *(_design(cell, rows) for cell in CELLS),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def _claim(rows: Sequence[Row]) -> str:
    """Return the claimed coverage, and the quantities that do not have it."""
    claimed = [
        r for r in rows if is_claimed(r) and (r.estimator, r.method) == ("reml", NORMAL_THEORY)
    ]
    outside = violations(rows)
    said = _PROMISE.format(
        low=100.0 * LOW,
        high=100.0 * HIGH,
        inside=len(claimed) - len(outside),
        all=len(claimed),
        designs=len({r.cell for r in claimed}),
    )
    lines = ["## What is claimed\n", said]
    if outside:
        lines += ["The exceptions:\n", _table(outside, with_method=False)]
    return "\n".join(lines)


def _is_main(row: Row) -> bool:
    return row.estimator == "reml" and row.method != "mls, expected information"


def _methods(rows: Sequence[Row]) -> str:
    normal = [r for r in rows if is_claimed(r) and np.isfinite(r.coverage)]
    head = ["estimator", "method", "median", *(name for name, _ in _KINDS), "below 93 %",
            "above 97 %", "median width", "none"]  # fmt: skip
    lines = []
    for key in dict.fromkeys((r.estimator, r.method) for r in normal):
        own = [r for r in normal if (r.estimator, r.method) == key]
        n = len(own)
        lines.append(
            [
                _ESTIMATORS[key[0]],
                key[1],
                percent(float(np.median([r.coverage for r in own]))),
                *(_range([r for r in own if holds(r.quantity)]) for _, holds in _KINDS),
                f"{sum(r.coverage < LOW for r in own)} of {n}",
                f"{sum(r.coverage > HIGH for r in own)} of {n}",
                width(float(np.median([r.width for r in own]))),
                percent(float(np.mean([r.none for r in own]))),
            ]
        )
    return markdown(head, lines)


_ESTIMATORS = {"reml": "REML", "ml": "ML", "anova": "ANOVA"}


def _range(rows: Sequence[Row]) -> str:
    if not rows:
        return "–"
    ends = [percent(f(r.coverage for r in rows)) for f in (min, max)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _distributions(rows: Sequence[Row]) -> str:
    chosen = [
        r for r in rows if (r.estimator, r.method) == ("reml", NORMAL_THEORY) and not r.near_zero
    ]
    cells = dict.fromkeys(r.cell for r in chosen if r.distribution != "normal")
    lines = []
    for cell in cells:
        of_cell = [r for r in chosen if r.cell == cell]
        for quantity in dict.fromkeys(r.quantity for r in of_cell):
            found = {r.distribution: r.coverage for r in of_cell if r.quantity == quantity}
            values = [percent(found[d]) for d in ("normal", "t5", "chi2")]
            lines.append([cell, SYMBOLS.get(quantity, quantity), *values])
    return markdown(["design", "quantity", "normal", "t₅", "χ²₄"], lines)


def _design(cell: Cell, rows: Sequence[Row]) -> str:
    own = [r for r in rows if r.cell == cell.name and r.distribution == "normal"]
    if not own:
        return ""
    true = ", ".join(f"{name} {value:g}" for name, value in cell.components.items())
    few = len(cell.components) > 6
    main = [r for r in own if not few or r.method in (NORMAL_THEORY, "mls", "log")]
    head = f"### {cell.words}\n\n`{cell.name}`: {true}; object of measurement {cell.object}.\n"
    return "\n".join([head, _matrix(main)])


def _matrix(rows: Sequence[Row]) -> str:
    """Return coverage (width) of all quantities, a line a method."""
    names = list(dict.fromkeys(r.quantity for r in rows))
    names = [q for q in names if not q.startswith("share") or len(names) < 12]
    lines = []
    for key in dict.fromkeys((r.estimator, r.method, r.n) for r in rows):
        own = {r.quantity: r for r in rows if (r.estimator, r.method, r.n) == key}
        texts = [_both(own[q]) if q in own else "–" for q in names]
        lines.append([f"{_ESTIMATORS[key[0]]}, {key[1]}", f"{key[2]:,}", *texts])
    marks = {r.quantity: " ⁰" if r.near_zero else "" for r in rows}
    head = ["coverage (width)", "data sets", *(SYMBOLS.get(q, q) + marks[q] for q in names)]
    return markdown(head, lines)


def _both(row: Row) -> str:
    return f"{percent(row.coverage)} ({width(row.width)})"


def _table(rows: Sequence[Row], *, with_method: bool = True) -> str:
    head = ["design", "quantity", "method", "coverage", "misses", "width", "none", "data sets"]
    lines = [
        [
            row.cell,
            SYMBOLS.get(row.quantity, row.quantity),
            row.method,
            percent(row.coverage),
            f"{percent(row.below)} / {percent(row.above)}",
            width(row.width),
            percent(row.none),
            f"{row.n:,}",
        ]
        for row in rows
    ]
    if not with_method:
        head.remove("method")
        lines = [[*line[:2], *line[3:]] for line in lines]
    return markdown(head, lines)
