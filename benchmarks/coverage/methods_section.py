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
    ]
    for cell in cells:
        parts += [
            f"### Methods in `{cell.name}`\n",
            _OF_TABLE.format(cell=cell.name, words=cell.words),
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


def _numbers(rows: Iterable[Row]) -> str:
    counts = sorted({r.n for r in rows})
    return "–".join(f"{n:,}" for n in dict.fromkeys((counts[0], counts[-1])))


def _both(row: Row) -> str:
    return f"{percent(row.coverage)} ({width(row.width)})"


# Findings --------------------------------------------------------------------------------------


def _found(rows: Sequence[Row]) -> str:
    """Return what was found in words, with numbers from the rows."""
    whole = [r for r in rows if _OVER not in r.method]
    said = [_holding(whole), _of_facets(rows), _of_widths(whole), _of_none(rows)]
    return "\n\n".join(fill(part, 99, break_on_hyphens=False) for part in said if part)


def _holding(rows: Sequence[Row]) -> str:
    """Return which methods hold in which population, and by how much others fail."""
    texts = []
    for population in (p for p in WORDS if any(r.distribution == p for r in rows)):
        own = [r for r in rows if r.distribution == population]
        methods = list(dict.fromkeys(r.method for r in own))
        of = {m: [r for r in own if r.method == m] for m in methods}
        holding = [m for m in methods if all(LOW <= r.coverage <= HIGH for r in of[m])]
        others = [f"*{m}* {_farthest(of[m])}" for m in methods if m not in holding]
        kept = _listed(f"*{m}*" for m in holding) if holding else "none"
        rest = f"; not {', '.join(others)}" if others else ""
        texts.append(f"{WORDS[population]}: {kept}{rest}")
    return (
        f"**Which method holds where.** A method holds in a population if it covers the "
        f"components and Φ in {100 * LOW:.0f} to {100 * HIGH:.0f} % in each design; of the others "
        f"the coverage farthest from 95 % is given. "
        + ". ".join(text[0].upper() + text[1:] for text in texts)
        + "."
    )


def _farthest(rows: Sequence[Row]) -> str:
    outside = [r for r in rows if not LOW <= r.coverage <= HIGH]
    row = max(outside, key=lambda r: abs(r.coverage - 0.95))
    return f"{percent(row.coverage)} ({SYMBOLS.get(row.quantity, row.quantity)} of `{row.cell}`)"


def _of_facets(rows: Sequence[Row]) -> str:
    """Return that methods over one facet measure what comes from it alone."""
    own = [r for r in rows if _OVER in r.method and r.distribution == "normal"]
    components = [r for r in own if r.quantity not in ("Phi", "Residual")]
    same = [r for r in components if r.method.endswith(_OVER + r.quantity)]
    other = [r for r in components if r not in same]
    both = [r for r in own if r.quantity == "Phi"]
    if not (same and other and both):
        return ""
    return (
        "**One facet at a time.** The bootstrap and the jackknife over a facet measure how "
        "estimates vary with its levels, and not with those of other facets. With normal effects "
        f"they cover the facet's own component in {_span(same)} %, and those of other facets in "
        f"{_span(other)} %; Φ, which depends on both, in "
        f"{_span(both)} %."
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
