"""The findings of the study in words, with numbers from the rows."""

from __future__ import annotations

from textwrap import fill

import numpy as np

from benchmarks.bias_study.at_fifty import AtFifty
from benchmarks.bias_study.published import TABLES, TOTAL
from benchmarks.bias_study.rows import Outcome
from benchmarks.bias_study.variance import Share

ROUNDING = 0.5e-6
"""Published totals have six decimals."""

UNBIASED = 0.01
"""Bias of Eτ and Eτ_AP below which an estimate is as good as unbiased."""

AS_PUBLISHED = {
    (4, "sens_abs.exp1"): 0.005178,
    (4, "sens_abs.exp2"): 0.002507,
    (4, "sens_abs.logit"): 0.0034389,
    (4, "sens_rel.exp1"): 0.023048,
    (4, "sens_rel.exp2"): 0.018488,
    (4, "sens_rel.logit"): 0.023084,
    (7, "sens_abs.exp1"): 0.009439,
    (7, "sens_abs.exp2"): 0.0028793,
    (7, "sens_abs.logit"): 0.0024212,
    (7, "sens_rel.exp1"): 0.052999,
    (7, "sens_rel.exp2"): 0.039411,
    (7, "sens_rel.logit"): 0.036486,
}
"""By table and estimator: the total with ties as listed, from ``kept/listed.csv``, which
``python -m benchmarks.bias_study.listed`` writes."""

_SHARED = 8 * 1_300 / 692
"""Collections to an independent one in the published study: its eight sets of assumptions with one
kind of sampling have the same seeds, and its seeds, the number of the trial times that of the
topics, are 692 different ones for 1,300 trials."""

_F_MORE, _F_SHARED = 7.0, 2.7
"""How much the total of F in table 8 varies, by ``python -m benchmarks.bias_study.error_of_f``: in
units of its error from batches, and with the seeds of the paper in units of that without."""

_ALL_TRIALS = 100


def are_enough(table: int, trials: int) -> bool:
    """Whether a table can be compared: what tables 6 to 8 subtract is a mean over all trials."""
    return table < 6 or trials >= _ALL_TRIALS


def is_near(total: Share, published: float) -> bool:
    """Whether a total differs from the published one by no more than chance may explain.

    The error of the published one is that of fully dependent collections where seeds are shared:
    the square root of their number times the error here.
    """
    off = max(0.0, abs(total.variance - published) - ROUNDING)
    return bool(off <= 2.0 * total.error * np.sqrt(1.0 + _SHARED))


def findings(outcome: Outcome) -> str:
    """Return the section of findings, a paragraph each."""
    parts = [
        *(_totals(outcome), _ties(outcome), _seeds(outcome), _truth(outcome)),
        *(_ranks(outcome), _order(outcome), _few(outcome)),
    ]
    said = [fill(part, 99, break_on_hyphens=False) for part in parts if part]
    return "\n\n".join(["## What was found", *said])


def _pairs(outcome: Outcome, truth: str = "original") -> list[tuple[int, str, Share, float]]:
    """Return totals beside the published ones, of tables that can be compared."""
    found = {
        (s.table, s.quantity): s for s in outcome.shares if s.factor == TOTAL and s.truth == truth
    }
    return [
        (table.number, name, found[table.number, name], published)
        for table in TABLES
        for name, published in zip(table.columns, table.totals, strict=True)
        if (table.number, name) in found and are_enough(table.number, outcome.run.trials)
    ]


def _totals(outcome: Outcome) -> str:
    pairs = _pairs(outcome)
    off = [100.0 * abs(s.variance / p - 1.0) for _, _, s, p in pairs]
    near = [is_near(s, p) for _, _, s, p in pairs]
    apart = [f"{name} of table {n}" for n, name, s, p in pairs if not is_near(s, p)]
    rest = f" The others are {_listed(apart)}." if apart else ""
    agree = "Totals agree" if all(near) else "Most totals agree"
    return (
        f"**{agree}.** {sum(near)} of {len(pairs)} published totals are reproduced within Monte "
        f"Carlo error; the median difference is {np.median(off):.1f} %, the largest "
        f"{max(off):.1f} %.{rest} {_shares(outcome)}"
    )


def _shares(outcome: Outcome) -> str:
    """Return how far the shares of factors are from the published ones."""
    totals = {(n, name): s.variance for n, name, s, _ in _pairs(outcome)}
    found = {
        (s.table, s.quantity, s.factor): s.variance
        for s in outcome.shares
        if s.truth == "original"
    }
    off = [
        abs(max(0.0, 100.0 * found[t.number, name, factor] / totals[t.number, name]) - cell)
        for t in TABLES
        for factor, row in zip(t.factors, t.shares, strict=True)
        for name, cell in zip(t.columns, row, strict=True)
        if (t.number, name) in totals
    ]
    return (
        f"Of {len(off)} shares {100.0 * np.mean(np.array(off) <= 2.0):.0f} % are within two "
        f"points of the published ones, and none differs by more than "
        f"{np.ceil(max(off)):.0f} points."
    )


def _ties(outcome: Outcome) -> str:
    """Return why the errors of the sensitivities differ from those published."""
    pairs = [(s, p, AS_PUBLISHED.get((n, name))) for n, name, s, p in _pairs(outcome)]
    own = [100.0 * (s.variance / p - 1.0) for s, p, total in pairs if total]
    other = [100.0 * (total / p - 1.0) for _, p, total in pairs if total]
    if not own:
        return ""
    units = [abs(total - p) / (s.error * np.sqrt(1.0 + _SHARED)) for s, p, total in pairs if total]
    return (
        "**The sensitivities differ because ties are treated differently.** In the library, pairs "
        "of systems with equal differences are one threshold. The code of the paper goes through "
        "the pairs one by one, ties in the order in which systems are listed, and may stop after "
        "any of them. With few topics many pairs are tied at the largest difference: between 0 "
        "and 1, or 100 % where a mean is 0 (if normal scores have negative means, the library "
        "limits relative differences to 100 % before it looks for a threshold, the code of the "
        "paper afterwards). If more than 5 % of these pairs are swapped and no smaller difference "
        "is sufficient, the library has no sensitivity. The code of the paper has one if the "
        "first pairs on the list happen to be right. It keeps halves and collections that are "
        "left out here. If only halves of one size are left, R draws a constant, and the library "
        'fits no curve. By `split_half` with `ties="listed"` (`python -m '
        "benchmarks.bias_study.listed`, fewer trials), the totals of the sensitivities differ "
        f"from the published ones by {min(other):+.1f} to {max(other):+.1f} % instead of "
        f"{min(own):+.1f} to {max(own):+.1f} %, and half of them by at most "
        f"{np.median(np.abs(other)):.1f} % instead of {np.median(np.abs(own)):.1f} %. These "
        f"differences are at most {max(units):.1f} errors of both totals: chance. The library "
        "has its own rule by default, because the order of systems in a file has no meaning."
    )


def _seeds(outcome: Outcome) -> str:
    """Return how far the shared seeds of the published study explain what differs."""
    named = {(2, "w2_t"): "w2_t", (5, "Erho2"): "Eρ² of table 5", (8, "F"): "F of table 8"}
    said = []
    for n, name, total, published in _pairs(outcome):
        if (n, name) in named:
            units = (total.variance - published) / total.error
            apart = units / np.sqrt(1.0 + _SHARED)
            said.append(f"{named[n, name]} by {units:+.1f} errors here, {apart:+.1f} of both")
    if not said:
        return ""
    return (
        "**Seeds are shared in the published study.** Trial i of n topics has the seed i · n in "
        "its code, in all collections and under all assumptions, so that published totals vary "
        "more than those here. "
        f"The totals of the three other measures differ, {'; '.join(said)}. The "
        "first two are within chance. So is F of table 8, whose error is larger than it seems: "
        "what tables 6 to 8 subtract is the mean of all trials, of F a mean of zeros and ones, "
        "and errors from batches of trials leave out the error of that mean. In a simulation of "
        "this total alone (`python -m benchmarks.bias_study.error_of_f`: topics up to 50, 20 "
        f"trials, 14 times) it varies {_F_MORE:.0f} times as much as batches say, and "
        f"{_F_SHARED:.1f} times as much again if seeds are shared as published. With these "
        f"factors it differs by {_of_both_f(outcome):.1f} errors of both."
    )


def _of_both_f(outcome: Outcome) -> float:
    """Return how far the total of F in table 8 is from the published one, in errors of both."""
    off, error = next(
        (abs(s.variance - p), s.error)
        for n, name, s, p in _pairs(outcome)
        if (n, name) == (8, "F")
    )
    return float(off / (error * _F_MORE * np.sqrt(1.0 + _F_SHARED**2)))


def _truth(outcome: Outcome) -> str:
    """Return how the errors depend on the choice of the truth."""
    found = {
        (s.truth, s.quantity, s.factor): s.variance for s in outcome.shares if s.table in (3, 5)
    }

    def share(truth: str) -> str:
        of = [found[truth, e, "normal"] / found[truth, e, TOTAL] for e in ("Etau", "Etau_ap")]
        return " and ".join(f"{max(0.0, 100.0 * one):.1f}" for one in of)

    phi = {truth: found[truth, "Phi", TOTAL] for truth in ("original", "expected")}
    return (
        "**The choice of the truth has little effect.** Against the means of the original, as in "
        f"the code of the paper, normality contributes {share('original')} % to the error "
        "variances of Eτ and Eτ_AP (published 1 and 2). This is a difference between kinds of "
        "simulation, of which one keeps the means. Against the expected means of simulated "
        f"scores it contributes {share('expected')} %. The error variance of Φ is "
        f"{phi['original']:.4f} and {phi['expected']:.4f} (published .2254)."
    )


def _ranks(outcome: Outcome) -> str:
    """Return the bias at 50 topics."""
    rows = [r for r in outcome.at_fifty if r.means == "fitted"]
    if not rows:
        return ""
    published = [r for r in rows if "." not in r.estimator]
    above = [r for r in published if abs(r.bias) - 2.0 * r.error > UNBIASED]
    worst = max(published, key=lambda r: abs(r.bias))
    all_high = all(r.bias > 0 for r in published)
    too = "are always too high" if all_high else "have biases of both signs"
    return (
        f"**Eτ and Eτ_AP as published are biased at 50 topics.** They {too}. In {len(above)} of "
        f"{len(published)} cases the bias exceeds {UNBIASED:g} by more than two Monte Carlo "
        f"errors; the largest is {worst.bias:.3f} ± {worst.error:.3f} ({_NAMES[worst.estimator]} "
        f"of {worst.collection}, {worst.truth}). The reason is in eq. 35, which assumes that all "
        "true differences are equally likely. If systems are similar, observed differences are "
        "too large on average, and swaps are more likely than they seem. The bias is largest for "
        "robust2003, the collection with the smallest share of σ²(s), and decreases with more "
        "topics. The text of the paper calls the error negligible from 50 topics on. In its table "
        "3, however, collections have 11 % of .0135: mean errors differ between collections with "
        f"a standard deviation of .04. {_shrunken(rows)}"
    )


def _shrunken(rows: list[AtFifty]) -> str:
    """Return how far off the library's default is, with the same collections."""
    said = []
    for estimator in ("Etau", "Etau_ap"):
        found = [r for r in rows if r.estimator == f"{estimator}.shrunken"]
        worst = max(found, key=lambda r: abs(r.bias))
        below = sum(abs(r.bias) - 2.0 * r.error < UNBIASED for r in found)
        said.append(
            f"{_NAMES[estimator]} is {worst.bias:+.3f} ± {worst.error:.3f} "
            f"({worst.collection}, {worst.truth}), and in {below} of {len(found)} cases it is "
            f"below {UNBIASED:g} within two Monte Carlo errors"
        )
    joined = "; of ".join(said)
    return f"If differences are shrunk by their reliability, the largest bias of {joined}."


def _order(outcome: Outcome) -> str:
    """Return how estimators compare, from the errors of tables 3 and 6."""
    totals = {
        (s.table, s.quantity): s.variance
        for s in outcome.shares
        if s.factor == TOTAL and s.truth == "original"
    }
    ratio = [
        totals[table, f"E{measure}"]
        / min(totals[table, f"{measure}.{m}"] for m in ("exp1", "exp2", "logit"))
        for table in (3, 6)
        for measure in ("tau", "tau_ap")
    ]
    fifty = {
        (b.estimator, b.collection): b.bias
        for b in outcome.biases
        if b.truth == "original" and b.n == 50
    }
    low = [fifty[key] for key in fifty if key[0] in ("tau.exp1", "tau.logit")]
    power = [fifty[key] for key in fifty if key[0] == "F"]
    return (
        "**The estimators rank as published.** Errors of Eτ and Eτ_AP have a smaller variance "
        f"than those of all curves through halves: {ratio[0]:.2f} and {ratio[1]:.2f} of the "
        f"smallest of these for existing collections (published .66 and .66), {ratio[2]:.2f} and "
        f"{ratio[3]:.2f} for new ones (.30 and .29). exp1 and logit underestimate τ at 50 "
        f"topics in each collection, by {-max(low):.2f} to {-min(low):.2f}. F₁ underestimates "
        f"the power of the F test, by {-max(power):.2f} to {-min(power):.2f}."
    )


def _few(outcome: Outcome) -> str:
    """Return what few trials do to tables 6 to 8."""
    if are_enough(6, outcome.run.trials):
        return ""
    return (
        f"**This run has {outcome.run.trials} trials, the paper 100.** The expected accuracy of "
        "tables 6 to 8 is a mean over the trials of a cell, whose own variance (1/trials of that "
        "of actual accuracy) is part of the errors there: totals are too large by it, and most "
        "so where estimates vary little. They are not compared above."
    )


_NAMES = {"Etau": "Eτ", "Etau_ap": "Eτ_AP"}


def _listed(words: list[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
