"""The section of the page about robust intervals in all populations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill

import numpy as np

from benchmarks.coverage.designs import DESIGNS, FEW_LEVELS, GROWING
from benchmarks.coverage.findings import SYMBOLS
from benchmarks.coverage.markdown import markdown, percent, width
from benchmarks.coverage.study import Row

WORDS = {
    "normal": "normal",
    "t5": "t₅",
    "laplace": "Laplace",
    "chi2": "χ²₄",
    "chi2-": "−χ²₄",
    "exponential": "exponential",
    "exponential-": "−exponential",
    "uniform": "uniform",
    "two-point": "two points",
    "variance by s": "error variance by s",
    "variance by t": "error variance by t",
    "variance by p": "error variance by p",
    "variance by i": "error variance by i",
    "variance by h": "error variance by h",
    "0/1 .05": "0/1, mean .05",
    "0/1 .5": "0/1, mean .50",
    "0/1 .86": "0/1, mean .86",
    "0/1 .95": "0/1, mean .95",
    "graded": "five grades",
    "cut": "cut at 0 and 1",
}
"""Populations as a reader knows them."""

EXTREME = ("exponential", "exponential-", "two-point", "0/1 .05", "0/1 .95")
"""Populations in which some intervals fail with 20 levels."""

CLOSE = 0.93, 0.97
AIM = 0.91, 0.98
"""Where the coverage of 19 of 20 quantities should lie, and that of every one."""

_HEAD = """\
The same methods with the effects and scores that people have. All effects and errors have the
distribution named (− is the mirrored one; t₅ and exponential have excess kurtosis 6, Laplace and
χ²₄ 3, uniform −1.2, two points −2). Or effects are normal, and the error variance differs by a
log-normal factor (standard deviation of the logarithm 0.7) between the levels of one facet. Or
scores are a function of a normal sum, half of whose variance is error: 0/1 with means .05 to
.95, five grades (40, 25, 20, 10 and 5 % of the scores), or cut at 0 and 1 (31 % of the scores
are 0, 2 % are 1). The true components of such scores are those of the observed scale, by
quadrature.

Quantities are those above, a ratio of two components and the size of a facet that Φ requires. A
root has the roots of the limits of its radicand: standard errors of measurement have the
coverage of σ²(δ) and σ²(Δ). Methods are `interval="robust"` (the default), `"mls"` (normal
theory), `"log"` and `"wald"`, all from the same REML fits. {counts}
With {least:,} data sets the Monte Carlo standard error of a coverage of 95 % is {error:.1f}
points: with a dozen quantities the lowest is {lowest:.0f} to {lower:.0f} points below 95 by chance
alone. Rows are in
`benchmarks/coverage/populations.csv`; `python -m benchmarks.coverage st20x25 --data-sets 2000`
adds data sets to those of a design.

![Coverage by method and population](coverage-figures/populations.png)

Each point is a quantity in a design with 20 or more levels of every facet; grey is 91 to 98 %.
"""

_OF_LOWEST = """\
The lowest coverage of all quantities by robust intervals, in brackets that by normal theory
(`"mls"`). A facet with fewer than six levels (the 3 assessors of `pxixa3`) is treated as normal;
10 systems are fewer than the aim is about.
"""

_OF_METHODS = """\
All quantities in designs with 20 or more levels of every facet.
"""

_OF_WIDTHS = """\
Widths of robust intervals relative to those of normal theory, with normal effects: of medians, and
after the stroke of the widths that a tenth of the intervals exceed.
"""


def section(rows: Sequence[Row]) -> str:
    """Return the section as Markdown, empty without rows."""
    own = [r for r in rows if not r.near_zero and np.isfinite(r.coverage)]
    if not own:
        return ""
    counts = sorted({r.n for r in own})
    number = f"{counts[0]:,} to {counts[-1]:,}" if counts[1:] else f"{counts[0]:,}"
    said = f"Every design and population has {number} data sets."
    error = 100.0 * np.sqrt(0.95 * 0.05 / counts[0])
    two_way = [c.name for c in DESIGNS if c.name.startswith("st") and c.name not in GROWING]
    others = [c.name for c in DESIGNS if c.name not in (*two_way, *GROWING)]
    parts = [
        "## Scores that are not normal: robust intervals\n",
        _filled(
            _HEAD.format(
                counts=said, least=counts[0], error=error, lowest=1.5 * error, lower=2.2 * error
            )
        ),
        _found(own),
        "### By method and population\n",
        _OF_METHODS,
        _methods(own),
        "### By design and population\n",
        _OF_LOWEST,
        _lowest(own, two_way),
        _lowest(own, others),
        "### More levels\n",
        _growing(own),
        "### Widths\n",
        _OF_WIDTHS,
        _widths(own),
        "### Below 91 %\n",
        _outside(own),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def _filled(text: str) -> str:
    return "\n\n".join(fill(p, 99, break_on_hyphens=False) for p in text.split("\n\n"))


def with_enough_levels(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of designs with 20 or more levels of every facet."""
    return [r for r in rows if r.cell not in FEW_LEVELS]


def _found(rows: Sequence[Row]) -> str:
    """Return what was found in words, with numbers from the rows."""
    enough = with_enough_levels(rows)
    robust, normal = ([r for r in enough if r.method == m] for m in ("robust", "mls"))
    usual = [r for r in robust if r.distribution not in EXTREME]
    n = min(r.n for r in enough)
    held = (
        f"**Where it holds.** With 20 or more levels of every facet robust intervals cover 93 to "
        f"97 % for {_share(usual, *CLOSE):.0f} % of the quantities and 91 to 98 % for "
        f"{_share(usual, *AIM):.0f} % in all populations but {_listed(EXTREME)} (with {n:,} data "
        f"sets {_by_chance(*CLOSE, n):.0f} and {_by_chance(*AIM, n):.0f} % if all were 95 %). In "
        "all "
        f"populations these are {_share(robust, *CLOSE):.0f} and {_share(robust, *AIM):.0f} %, "
        f"and {_share(normal, *CLOSE):.0f} and {_share(normal, *AIM):.0f} % of normal theory, "
        f"whose lowest coverage is {_lowest_of(normal)} and that of robust intervals "
        f"{_lowest_of(robust)}."
    )
    said = [held, _of_extremes(robust), _of_few(rows), _of_width(robust)]
    return "\n\n".join(fill(part, 99, break_on_hyphens=False) for part in said if part)


def _by_chance(low: float, high: float, n: int) -> float:
    """Return the percentage of coverages in a range if all quantities are covered in 95 %."""
    from scipy.special import bdtr

    upper, lower = bdtr(np.floor(high * n + 1e-9), n, 0.95), bdtr(np.ceil(low * n) - 1.0, n, 0.95)
    return 100.0 * float(upper - lower)


def _listed(populations: Iterable[str]) -> str:
    *first, last = (WORDS[p] for p in populations)
    return f"{', '.join(first)} and {last}"


def _lowest_of(rows: Sequence[Row]) -> str:
    row = min(rows, key=lambda r: r.coverage)
    return (
        f"{percent(row.coverage)} % ({SYMBOLS.get(row.quantity, row.quantity)} of `{row.cell}`, "
        f"{WORDS[row.distribution]})"
    )


def _of_extremes(robust: Sequence[Row]) -> str:
    texts = []
    for population in EXTREME:
        own = [r for r in robust if r.distribution == population]
        if own:
            below = sum(r.coverage < AIM[0] for r in own)
            above = sum(r.coverage > AIM[1] for r in own)
            texts.append(
                f"{WORDS[population]}: {_three(own)} % (lowest, median, highest), {below} of "
                f"{len(own)} below 91 and {above} above 98 %"
            )
    return (
        "**Where it fails.** " + "; ".join(texts) + ". Samples of a skewed or heavy-tailed "
        "population of 20 levels often have no outlier, and then a small mean square and a small "
        "kurtosis together: what misses lies below the true value. So do samples of 0/1 scores "
        "with few ones or few zeros. With two points intervals are longer than necessary: their "
        "upper limits are at least those of normal theory up to 40 levels."
    )


def _of_few(rows: Sequence[Row]) -> str:
    own = [r for r in rows if r.method == "robust" and r.cell in FEW_LEVELS]
    if not own:
        return ""
    texts = [
        f"`{cell}` {_three([r for r in own if r.cell == cell])} %"
        for cell in FEW_LEVELS
        if any(r.cell == cell for r in own)
    ]
    return (
        f"**Fewer levels.** Lowest, median and highest of all populations: {', '.join(texts)}. "
        f"The lowest is {_lowest_of(own)}. With 3 assessors 0/1 scores fail: how their variances "
        "differ between assessors cannot be seen in three of them."
    )


def _of_width(robust: Sequence[Row]) -> str:
    own = [r for r in robust if r.distribution == "normal" and np.isfinite(r.width)]
    if not own:
        return ""
    widths = [r.width for r in own]
    of_residual = [r.width for r in own if r.quantity == "Residual"]
    return (
        f"**What it costs.** With normal effects the median width is {np.median(widths):.2f} of "
        f"that of normal theory ({min(widths):.2f} to {max(widths):.2f}; Residual "
        f"{min(of_residual):.2f} to {max(of_residual):.2f}; at most 1.10 for "
        f"{np.mean(np.array(widths) <= 1.1):.0%} of the quantities), and coverage {_three(own)} %."
    )


def _share(rows: Sequence[Row], low: float, high: float) -> float:
    """Return the percentage of rows whose coverage is in a range."""
    inside = [low - 1e-9 <= r.coverage <= high + 1e-9 for r in rows]
    return 100.0 * float(np.mean(inside)) if inside else np.nan


def _methods(rows: Sequence[Row]) -> str:
    chosen = with_enough_levels(rows)
    methods = list(dict.fromkeys(r.method for r in chosen))
    lines = []
    for population, words in WORDS.items():
        own = [r for r in chosen if r.distribution == population]
        if own:
            of = [[r for r in own if r.method == m] for m in methods]
            lines.append([words, *(_three(some) for some in of)])
    head = ["lowest / median / highest", *methods]
    return markdown(head, lines)


def _three(rows: Sequence[Row]) -> str:
    values = [r.coverage for r in rows]
    return " / ".join(percent(float(f(values))) for f in (np.min, np.median, np.max))


def _lowest(rows: Sequence[Row], cells: Sequence[str]) -> str:
    there = [c for c in cells if any(r.cell == c for r in rows)]
    lines = []
    for population, words in WORDS.items():
        texts = []
        for cell in there:
            own = [r for r in rows if (r.cell, r.distribution) == (cell, population)]
            both = [[r.coverage for r in own if r.method == m] for m in ("robust", "mls")]
            texts.append(f"{percent(min(both[0]))} ({percent(min(both[1]))})" if own else "–")
        if set(texts) != {"–"}:
            lines.append([words, *texts])
    return markdown(["lowest coverage", *there], lines)


def _growing(rows: Sequence[Row]) -> str:
    cells = [
        c.name for c in DESIGNS if c.name in GROWING or c.name in ("st20x25", "st30x50", "st60x60")
    ]
    there = [c for c in cells if any(r.cell == c for r in rows)]
    own = [r for r in rows if r.cell in there and r.method == "robust"]
    last = {r.distribution for r in own if r.cell in GROWING}
    lines = []
    for population in (p for p in WORDS if p in last):
        for quantity in dict.fromkeys(r.quantity for r in own):
            found = {
                r.cell: r.coverage
                for r in own
                if (r.distribution, r.quantity) == (population, quantity)
            }
            if quantity in ("s", "t", "Residual", "abs_err_var", "Erho2", "Phi"):
                texts = [percent(found[c]) if c in found else "–" for c in there]
                lines.append([WORDS[population], SYMBOLS.get(quantity, quantity), *texts])
    return _met(own, there) + "\n\n" + markdown(["robust", "quantity", *there], lines)


def _met(robust: Sequence[Row], cells: Sequence[str]) -> str:
    """Return from how many levels on extreme populations are met, in words."""
    sentences = []
    for population in (p for p in EXTREME if p != "two-point"):
        texts = []
        for cell in cells:
            own = [r.coverage for r in robust if (r.cell, r.distribution) == (cell, population)]
            if own:
                inside = all(AIM[0] <= c <= AIM[1] for c in own)
                ends = f"{percent(min(own))} to {percent(max(own))}"
                texts.append(f"{ends} in `{cell}`" + "*" * inside)
        if texts:
            sentences.append(f"{WORDS[population]}: {', '.join(texts)}")
    return fill(
        f"All quantities are covered in, {'; '.join(sentences)} (%; * all within 91 to 98 %).",
        99,
        break_on_hyphens=False,
    )


def _widths(rows: Sequence[Row]) -> str:
    own = [r for r in rows if (r.method, r.distribution) == ("robust", "normal")]
    lines = []
    for cell in dict.fromkeys(r.cell for r in own):
        of = {r.quantity: r for r in own if r.cell == cell}
        components = [
            r for q, r in of.items() if q not in SYMBOLS and "(" not in q and "/" not in q
            and q != "Residual" and not q.startswith("required")
        ]  # fmt: skip
        spans = " / ".join(_span([getattr(r, name) for r in components]) for name in _BOTH)
        lines.append([cell, spans, *(_two(of[q]) for q in ("Residual", *SYMBOLS))])
    head = ["design", "other components", "Residual", *SYMBOLS.values()]
    return markdown(head, lines)


_BOTH = ("width", "wide")


def _two(row: Row) -> str:
    return " / ".join(width(getattr(row, name)) for name in _BOTH)


def _span(values: Sequence[float]) -> str:
    ends = [width(float(f(values))) for f in (np.min, np.max)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _outside(rows: Sequence[Row]) -> str:
    """Return the quantities below the aim by more than two Monte Carlo errors."""
    low = AIM[0]
    own = [r for r in rows if r.method == "robust" and r.cell not in FEW_LEVELS]
    # Two errors of a coverage at the end of the range
    out = [r for r in own if r.coverage < low - 2.0 * np.sqrt(low * (1.0 - low) / r.n)]
    if not out:
        return "None by more than two Monte Carlo standard errors."
    lines = [
        [r.cell, WORDS[r.distribution], SYMBOLS.get(r.quantity, r.quantity), percent(r.coverage),
         f"{percent(r.below)} / {percent(r.above)}", width(r.width), f"{r.n:,}"]
        for r in out
    ]  # fmt: skip
    head = ["design", "population", "quantity", "coverage", "misses", "width", "data sets"]
    return "By more than two Monte Carlo standard errors:\n\n" + markdown(head, lines)
