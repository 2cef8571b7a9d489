"""The section of the page about robust intervals and what others would use, in eight cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill

import numpy as np

from benchmarks.coverage.burch import METHOD as BURCH
from benchmarks.coverage.designs import DESIGNS
from benchmarks.coverage.findings import SYMBOLS
from benchmarks.coverage.lme4_profile import METHOD as LME4
from benchmarks.coverage.markdown import markdown, percent, width
from benchmarks.coverage.methods import NORMAL
from benchmarks.coverage.robust_section import WORDS
from benchmarks.coverage.study import Row

LOW, HIGH = 0.91, 0.98
"""Where the coverage of every quantity lies if a method holds."""

_ADJUSTED = BURCH, "robust"

_OVER = " over "
"""In the names of methods that leave out or draw the levels of one facet."""

_FIRST = """\
Robust intervals, and what others would use, of the same data sets in eight cells: two designs
with four populations each. {counts} The Monte Carlo standard error of a coverage of 95 % is
{error:.1f} points.
"""

_HEAD = """\
* `mls`, `robust`, `log`, `wald` and `profile` are `interval=` of the library, from REML fits.
* *bootstrap, …* is the parametric bootstrap with 300 replicates; *bootstrap over s* draws the
  levels of s 300 times, with the adjustment for its bias, and *jackknife over s* leaves out each
  of them (both from estimates of the analysis of variance).
* *{burch}* is for one-way data only: large-sample intervals on the log scale from REML estimates,
  whose variance has the estimated fourth cumulants of group effects and errors in it (after Burch
  2011, Computational Statistics & Data Analysis 55, 1018–1028; `benchmarks/coverage/burch.py` says
  what was implemented for groups of several sizes).
* *{lme4}* is `confint(lmer(…), method="profile")` of R, squared; it has components only, and
  profiles the ML likelihood, also of a REML fit.

Rows with all quantities are in `benchmarks/coverage/methods.csv`; `python -m benchmarks.coverage
methods` runs what is missing there.
"""

_OF_ENDS = """\
Of the components and Φ; bold where all are between {low:.0f} and {high:.0f} %.
"""

_OF_TABLE = """\
`{cell}`: {words}. Coverage in percent, in brackets the median width relative to that of `mls`.
"""


def methods_section(rows: Sequence[Row]) -> str:
    """Return the section as Markdown, empty without rows."""
    own = [r for r in rows if not r.near_zero and np.isfinite(r.coverage)]
    if not own:
        return ""
    cells = [cell for cell in DESIGNS if any(r.cell == cell.name for r in own)]
    parts = [
        "## Robust intervals and what others would use\n",
        fill(_FIRST.format(counts=_counts(own), error=_error(own)), 99) + "\n",
        _HEAD.format(burch=BURCH, lme4=LME4),
        _found([r for r in own if is_shown(r)]),
        "### Lowest and highest coverage\n",
        _OF_ENDS.format(low=100 * LOW, high=100 * HIGH),
        _ends([r for r in own if is_shown(r)]),
    ]
    for cell in cells:
        parts += [
            f"### Methods in `{cell.name}`\n",
            fill(_OF_TABLE.format(cell=cell.name, words=cell.words), 99),
            _table([r for r in own if r.cell == cell.name and is_shown(r)]),
        ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def is_shown(row: Row) -> bool:
    """Whether tables have a row: of components and Φ, whose intervals most methods have."""
    components = next(cell.components for cell in DESIGNS if cell.name == row.cell)
    return row.quantity in components or row.quantity == "Phi"


def _counts(rows: Sequence[Row]) -> str:
    counts = sorted({r.n for r in rows})
    if not counts[1:]:
        return f"Every method has {counts[0]:,} data sets in each."
    short = dict.fromkeys(r.method for r in rows if r.n < counts[-1])
    return (
        f"Every method has {counts[-1]:,} data sets in each, but {_listed(short)} have "
        f"{counts[0]:,} or more."
    )


def _error(rows: Sequence[Row]) -> float:
    return 100.0 * float(np.sqrt(0.95 * 0.05 / max(r.n for r in rows)))


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


# Tables ----------------------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> str:
    """Return coverage (width), a line a method, a column for each quantity and population."""
    populations = [p for p in WORDS if any(r.distribution == p for r in rows)]
    columns = [(q, p) for q in dict.fromkeys(r.quantity for r in rows) for p in populations]
    lines = []
    for method in dict.fromkeys(r.method for r in rows):
        own = {(r.quantity, r.distribution): r for r in rows if r.method == method}
        texts = [_both(own[c]) if c in own else "–" for c in columns]
        lines.append([method, _numbers(own.values()), *texts])
    heads = [f"{SYMBOLS.get(q, q)}, {WORDS[p]}" for q, p in columns]
    return markdown(["coverage (width)", "data sets", *heads], lines)


def _ends(rows: Sequence[Row]) -> str:
    """Return lowest and highest coverage, a line a method, a column a cell."""
    columns = [(cell, p) for cell, populations in _cells(rows).items() for p in populations]
    lines = []
    for method in dict.fromkeys(r.method for r in rows):
        of = [r for r in rows if r.method == method]
        own = [[r for r in of if (r.cell, r.distribution) == column] for column in columns]
        lines.append([method, *(_marked(some) if some else "–" for some in own)])
    return markdown(["method", *(f"`{cell}`, {WORDS[p]}" for cell, p in columns)], lines)


def _marked(rows: Sequence[Row]) -> str:
    text = " / ".join(percent(f(r.coverage for r in rows)) for f in (min, max))
    return f"**{text}**" if _holds(rows) else text


def _numbers(rows: Iterable[Row]) -> str:
    counts = sorted({r.n for r in rows})
    return "–".join(f"{n:,}" for n in dict.fromkeys((counts[0], counts[-1])))


def _both(row: Row) -> str:
    return f"{percent(row.coverage)} ({width(row.width)})"


# Findings --------------------------------------------------------------------------------------


def _found(rows: Sequence[Row]) -> str:
    """Return what was found in words, with numbers from the rows."""
    whole = [r for r in rows if _OVER not in r.method]
    said = [_holding(rows), _of_facets(rows), _of_burch(rows), _of_widths(whole), _of_none(rows)]
    return "\n\n".join(fill(part, 99, break_on_hyphens=False) for part in said if part)


def _holding(rows: Sequence[Row]) -> str:
    """Return which methods hold in which cell."""
    texts = []
    for cell, populations in _cells(rows).items():
        found = [f"{WORDS[p]}: {_methods_that_hold(rows, cell, p)}" for p in populations]
        texts.append(f"In `{cell}` these are, {'; '.join(found)}.")
    return (
        f"**Which method holds where.** A method holds in a cell if it covers all components and "
        f"Φ in {100 * LOW:.0f} to {100 * HIGH:.0f} %. " + " ".join(texts)
    )


def _methods_that_hold(rows: Sequence[Row], cell: str, population: str) -> str:
    own = [r for r in rows if (r.cell, r.distribution) == (cell, population)]
    methods = dict.fromkeys(r.method for r in own)
    holding = [m for m in methods if _holds([r for r in own if r.method == m])]
    if 2 * len(holding) > len(methods):
        others = [f"*{m}*" for m in methods if m not in holding]
        return f"all but {_listed(others)}" if others else "all"
    return _listed(f"*{m}*" for m in holding) if holding else "none"


def _holds(rows: Sequence[Row]) -> bool:
    return all(LOW <= r.coverage <= HIGH for r in rows)


def _cells(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the populations of each design, in the order of the page."""
    return {
        cell.name: [p for p in WORDS if (cell.name, p) in there]
        for there in [{(r.cell, r.distribution) for r in rows}]
        for cell in DESIGNS
        if any(name == cell.name for name, _ in there)
    }


def _of_facets(rows: Sequence[Row]) -> str:
    """Return that methods over one facet measure what comes from it alone."""
    over = [r for r in rows if _OVER in r.method]
    several = [r for r in over if r.cell in _with_facets(rows) and r.distribution == "normal"]
    components = [r for r in several if r.quantity not in ("Phi", "Residual")]
    same = [r for r in components if r.method.endswith(_OVER + r.quantity)]
    other = [r for r in components if r not in same]
    both = [r for r in several if r.quantity == "Phi"]
    if not (same and other and both):
        return ""
    said = (
        "**One facet at a time.** The bootstrap and the jackknife over a facet measure how "
        "estimates vary with its levels, and not with those of other facets. In two-way data with "
        f"normal effects they cover the facet's own component in {_span(same)} %, that of the "
        f"other facet in {_span(other)} %, and Φ, which depends on both, in {_span(both)} %."
    )
    alone = [r for r in rows if r.cell not in _with_facets(rows)]
    texts = [
        f"*{method}* {_span([r for r in alone if r.method == method])} %"
        for method in dict.fromkeys(r.method for r in alone if _OVER in r.method)
    ]
    robust = [r for r in alone if r.method == "robust"]
    if not (texts and robust):
        return said
    return said + (
        f" One-way data have one facet, and there the coverage in all populations is "
        f"{_listed(texts)}; that of *robust* intervals is {_span(robust)} %."
    )


def _with_facets(rows: Sequence[Row]) -> set[str]:
    """Return the designs with several facets."""
    return {c.name for c in DESIGNS if len(c.levels) > 1 and any(r.cell == c.name for r in rows)}


def _of_burch(rows: Sequence[Row]) -> str:
    cells = {r.cell for r in rows if r.method == BURCH}
    own, robust = ([r for r in rows if r.cell in cells and r.method == m] for m in _ADJUSTED)
    if not (own and robust):
        return ""
    widths = [float(np.median([r.width for r in some])) for some in (own, robust)]
    return (
        f"**{BURCH}.** In all populations of one-way data its coverage is {_span(own)} %, with "
        f"{width(widths[0])} of the width of *{NORMAL}* (median); that of *robust* intervals is "
        f"{_span(robust)} %, with {width(widths[1])}."
    )


def _of_widths(rows: Sequence[Row]) -> str:
    own = [r for r in rows if r.distribution == "normal" and np.isfinite(r.width)]
    texts = []
    for method in dict.fromkeys(r.method for r in own if r.method != NORMAL):
        widths = [r.width for r in own if r.method == method]
        texts.append(
            f"*{method}* {np.median(widths):.2f} ({min(widths):.2f} to {max(widths):.2f})"
        )
    if not texts:
        return ""
    return (
        f"**Widths.** With normal effects the median width relative to that of *{NORMAL}* is "
        f"(lowest and highest in brackets) {', '.join(texts)}."
    )


def _of_none(rows: Sequence[Row]) -> str:
    """Return which methods left data sets out."""
    texts = []
    for method in dict.fromkeys(r.method for r in rows):
        row = max((r for r in rows if r.method == method), key=lambda r: r.none)
        if row.none > 0.0:
            where = f"`{row.cell}`, {WORDS[row.distribution]}"
            texts.append(f"*{method}* up to {percent(row.none)} % ({where})")
    if not texts:
        return ""
    return (
        f"**Without an interval** are data sets of {', '.join(texts)}; coverage leaves them out."
    )


def _span(rows: Sequence[Row]) -> str:
    ends = [percent(f(r.coverage for r in rows)) for f in (min, max)]
    return " to ".join(dict.fromkeys(ends))
