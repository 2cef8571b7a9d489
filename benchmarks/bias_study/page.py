"""The page of the documentation: what was run, and each table beside the published one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill

import numpy as np

from benchmarks.bias_study.at_fifty import ESTIMATORS
from benchmarks.bias_study.figures import FIGURES
from benchmarks.bias_study.findings import are_enough, findings, is_near
from benchmarks.bias_study.published import TABLES, TOTAL, Published
from benchmarks.bias_study.rows import Outcome, Run
from benchmarks.bias_study.variance import Share

_HEAD = """\
# The bias study of Urbano (2016)

<!-- Written by `python -m benchmarks.bias_study`; change it there. -->

How biased are estimates of the accuracy of a test collection? The true mean scores of real systems
are not known. Urbano (2016) simulates collections with known true means from four TREC
collections, and compares 17 estimators with the true accuracy. `python -m benchmarks.bias_study`
repeats that study, and this page shows its tables beside the published ones. The terms are in the
[glossary](../reference/glossary.md#evaluation-of-systems).

Urbano, J. (2016). Test collection reliability: a study of the effects of sample size and
statistical assumptions. *Information Retrieval Journal*, 19(3), 313-350. Published numbers are
from the article and from its repository, https://github.com/julian-urbano/irj2015-reliability
(tables under CC BY-SA 4.0).

## What was run

{run}

Numbers are the same for any number of workers: every collection has its own stream of random
numbers.
"""

_RUN = """\
Four collections (enterprise2006, genomics2004, robust2003, web2004), the worst quarter of their
systems left out; all 16 combinations of normality, homoscedasticity, uncorrelated effects and
random sampling; 13 sizes from 5 to 500 topics; {trials} trials of each: {collections:,} simulated
collections (`vcomp.ir.fit_collection(..., means="fitted")`, exactly Algorithm 1; seed {seed}).
Nine indicators compare each collection with the original; τ, τ_AP, the two sensitivities, Eρ², Φ
and F are measured against the truth, and estimated for all 13 sizes: {estimates:,} estimates by
each estimator. Eτ and Eτ_AP are by eqs. 35, 38 and 41, as published.
"""

_TRUTHS = """\
## The two truths

Algorithm 1 keeps the effects of systems. If residuals are not normal, effects are added on the
logit scale, so that the means of simulated scores do not converge to those of the original
collection, however many topics there are. The code of the paper measures accuracy against the
means of the original nevertheless (*original*), and so do the tables and figures here. *Expected*
marks the other truth: the expected means of simulated scores, which a test of infinitely many
topics would find.
"""

_TABLES = """\
## Variance decompositions

Random-effects analyses of variance by `vcomp.fit(..., method="anova")`, with main effects (and
n : n′ in tables 6 to 8); the residual contains all else. Cells are percentages of the total,
**here / published**; the paper prints shares below 1 as "< 1", here `<1`. The *total* is the sum
of the components, negative ones included; the paper calls it total (error) variance. Its error is
a Monte Carlo standard error from batches of trials; in tables 6 to 8 of the estimates alone, as
all batches have the same means to compare them with.

A total is *near* the published one if the difference is below two Monte Carlo errors of the
difference (rounding aside). The error of the published total is not known. In the published code
trial i of n topics has the seed i · n, under all assumptions: the eight sets of assumptions with
one kind of sampling may be fully dependent, and so may sizes, as the 1,300 trials have 692
different seeds. The error of the published total is therefore set to √(8 · 1300/692) = 3.9 times
the error here, about the largest that it can be. The difference in units of the error here is in
parentheses.
"""

_FACTORS = {
    "normal": "normality",
    "homoscedastic": "homoscedasticity",
    "uncorrelated": "uncorrelated effects",
    "random": "random sampling",
    "n": "n",
    "target": "n′",
    "n:target": "n : n′",
    "collection": "collection",
    "Residual": "residual",
}

NAMES = {
    "Etau": "Eτ",
    "Etau_ap": "Eτ_AP",
    "Erho2": "Eρ²",
    "Phi": "Φ",
    "F": "F₁",
}


def page(outcome: Outcome, figures: Sequence[int], folder: str) -> str:
    """Return the page as Markdown.

    Parameters
    ----------
    outcome : of a run
    figures : numbers of those that were drawn
    folder : where they are, from the page
    """
    head = _HEAD.format(run=_what_was_run(outcome.run))
    parts = [
        head,
        findings(outcome),
        _TRUTHS,
        _at_fifty(outcome),
        _TABLES,
        *(_table(table, outcome) for table in TABLES),
        "## Figures\n",
        *(
            f"![Figure {n}]({folder}/figure{n}.png)\n\n*As figure {n} of the paper. "
            f"{FIGURES[n]}.*\n"
            for n in figures
        ),
        _CAPTION,
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def _what_was_run(run: Run) -> str:
    said = _RUN.format(
        trials=run.trials,
        collections=run.collections,
        seed=run.seed,
        estimates=run.estimates,
    )
    if not run.sensitivities:
        said += "Sensitivities were not extrapolated in this run (`--sensitivities`).\n"
    if run.no_curve:
        said += (
            f"For {run.no_curve:,} of the collections a curve could not be fitted to halves, "
            "because these had no error, or no sensitivity."
        )
    return fill(said, 99, break_on_hyphens=False)


_CAPTION = """\
Boxes show quartiles, whiskers the 5 % and 95 % quantiles, crosses means. Collections of 5 and 10
topics are left out, as in the paper. Figures 6 to 11 are for the realistic assumptions (none but
random sampling); bands show two Monte Carlo errors.
"""


def _at_fifty(outcome: Outcome) -> str:
    """Return the bias of Eτ and Eτ_AP with 50 topics."""
    if not outcome.at_fifty:
        return ""
    n = outcome.at_fifty[0].n
    head = ["collection", "estimate", *_KINDS]
    found = {(r.collection, r.estimator, r.means, r.truth): r for r in outcome.at_fifty}
    lines = []
    for collection in dict.fromkeys(r.collection for r in outcome.at_fifty):
        for estimator in ESTIMATORS:
            rows = [found[collection, estimator, *key] for key in _KINDS.values()]
            measure, _, method = estimator.partition(".")
            name = f"{NAMES[measure]}, {method or 'as published'}"
            lines.append([collection, name, *(f"{r.bias:+.4f} ± {r.error:.4f}" for r in rows)])
    said = (
        f"Mean difference of estimate and actual accuracy, ± its Monte Carlo standard error, from "
        f"{n:,} collections of 50 topics each under the realistic assumptions. *Original* and "
        "*expected* are the two truths; in *means kept* system effects are shifted so that both "
        'are the same (`means="observed"`). *Shrunken* is the default of `vcomp.ir.expected_tau`: '
        "observed differences are shrunk by their reliability "
        "([decisions/0013](../decisions/0013-rank-accuracy.md))."
    )
    said = f"## Eτ and Eτ_AP at 50 topics\n\n{fill(said, 99, break_on_hyphens=False)}\n"
    return f"{said}\n{_markdown(head, lines)}"


_KINDS = {
    "original": ("fitted", "original"),
    "expected": ("fitted", "expected"),
    "means kept": ("observed", "expected"),
}


def _table(table: Published, outcome: Outcome) -> str:
    """Return a table beside the published one; nothing if it was not made."""
    found = {(s.truth, s.quantity, s.factor): s for s in outcome.shares if s.table == table.number}
    if not found:
        return ""
    names = table.columns
    total = {name: found["original", name, TOTAL] for name in names}
    lines = []
    for factor, row in zip(table.factors, table.shares, strict=True):
        cells = [
            f"{_percent(found['original', n, factor].variance / total[n].variance)} / "
            f"{published or '<1'}"
            for n, published in zip(names, row, strict=True)
        ]
        lines.append([_FACTORS[factor], *cells])
    lines.append(["**total here**", *(_number(total[n].variance) for n in names)])
    lines.append(["its error", *(_number(total[n].error) for n in names)])
    lines.append(["**total published**", *(_number(t) for t in table.totals)])
    lines.append(
        ["difference", *(_off(total[n], t) for n, t in zip(names, table.totals, strict=True))]
    )
    if are_enough(table.number, outcome.run.trials):
        near = [_near(total[n], t) for n, t in zip(names, table.totals, strict=True)]
        lines.append(["near", *near])
    if table.kind != "diagnosis":
        lines.append(
            ["total, expected", *(_number(found["expected", n, TOTAL].variance) for n in names)]
        )
    missing = sum(total[n].n_missing for n in names)
    note = f"\n{missing:,} values of all columns are undefined and left out.\n" if missing else ""
    title = f"### Table {table.number}: {table.title}\n"
    return f"{title}\n{_markdown(['', *(_column(n) for n in names)], lines)}{note}"


def _column(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    measure, _, model = name.partition(".")
    symbol = {"tau": "τ", "tau_ap": "τ_AP"}.get(measure, measure)
    return f"{symbol} {model}" if model else f"`{name}`"


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f}" if share >= 0.01 else "<1"


def _number(value: float) -> str:
    if np.isnan(value):
        return "–"
    return f"{value:.6f}" if value >= 1e-4 else f"{value:.2g}"


def _off(total: Share, published: float) -> str:
    off = 100.0 * (total.variance / published - 1.0)
    if np.isnan(total.error):
        return f"{off:+.1f} %"
    errors = (total.variance - published) / total.error
    return f"{off:+.1f} % ({errors:+.1f})"


def _near(total: Share, published: float) -> str:
    if np.isnan(total.error):
        return "–"
    return "yes" if is_near(total, published) else "**no**"


def _markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines)) + "\n"
