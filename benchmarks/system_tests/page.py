"""The page and the figure of the study, from its rows."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.system_tests.study import (
    COUNTS,
    JOINT,
    N_SYSTEMS,
    REPLICATES,
    SEED,
    SINGLE,
    SIZES,
)

_DOCS = Path(__file__).parents[2] / "docs" / "explanation"
_PAGE = _DOCS / "system-tests.md"
_FIGURE = "system-tests/errors.png"

_NAMES: Mapping[str, str] = {
    "t": "t",
    "wilcoxon": "Wilcoxon",
    "sign": "sign",
    "permutation": "permutation",
    "bootstrap": "bootstrap-shift",
    "tukey": "Tukey HSD",
    "randomised_tukey": "randomised Tukey",
}
_CORRECTED = {"bonferroni": "Bonferroni", "holm": "Holm", "fdr_bh": "Benjamini-Hochberg"}
_HOLDS = ("normal scores", "equal variances", "uncorrelated systems", "random topics")


def rates(rows: pd.DataFrame, by: Iterable[str]) -> pd.DataFrame:
    """Return rates in per cent, over all collections of the same values of `by`.

    Parameters
    ----------
    rows : of :func:`benchmarks.system_tests.run.run`
    by : columns

    Returns
    -------
    pandas.DataFrame
        ``type_1`` (share of equal pairs rejected) with its Monte Carlo ``error``; ``family``
        (collections with any false rejection); ``fdr`` (mean share of rejections that are false);
        ``power`` and ``wrong_sign`` of pairs that differ.
    """
    sums = rows.groupby(list(by), sort=False)[["trials", *COUNTS]].sum()
    a_trial = N_SYSTEMS * (N_SYSTEMS - 1) / 2.0
    differ = sums["trials"] * a_trial - sums["nulls"]
    type_1 = sums["false"] / sums["nulls"]
    spread = (sums["false_squared"] / sums["trials"] - type_1**2).clip(lower=0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return 100.0 * pd.DataFrame(
            {
                "type_1": type_1,
                "error": np.sqrt(spread / sums["trials"]),
                "family": sums["any_false"] / sums["trials"],
                "fdr": sums["false_share"] / sums["trials"],
                "power": sums["found"] / differ,
                "wrong_sign": sums["wrong_sign"] / differ,
            }
        )


def write_page(rows: pd.DataFrame) -> None:
    """Write the page and its figure."""
    (_DOCS / _FIGURE).parent.mkdir(exist_ok=True)
    _PAGE.write_text(page(rows), encoding="utf-8")
    draw(rows, _DOCS / _FIGURE)


def page(rows: pd.DataFrame) -> str:
    """Return the page as Markdown."""
    random = rows[rows["assumptions"].str.endswith("T")]
    alone = random[(random["correction"] == "none") & (random["truth"] == "equal")]
    parts = [
        _HEAD,
        _run(rows),
        _found(rows),
        f"![{_ALT}]({_FIGURE})\n",
        "## Type I errors of pairs",
    ]
    parts.append(_text(
        "Share of pairs with equal true means that are significant at 5 % and 1 %, without a "
        "correction, in per cent. Topics are a random sample. Tests of all pairs at once are not "
        f"of single pairs. The largest Monte Carlo standard error is {_largest(alone):.1f}."
    ))  # fmt: skip
    single = alone[alone["test"].isin(SINGLE)]
    parts.append(
        _square(single, ["alpha", "n_topics"], "type_1", lambda a, n: f"{100 * a:g} %, {n} topics")
    )
    parts += ["## By assumption", _text(
        "The same at 5 % over all three sizes, where an assumption of the simulation is forced "
        "(yes) and where it is not (no). Without random sampling topics are mostly hard, easy or "
        "medium."
    ), _by_assumption(rows)]  # fmt: skip
    parts += ["## Errors of all pairs together", _text(
        "Share of collections with any false rejection at 5 % (family-wise error rate), and mean "
        "share of rejections that are false (FDR), in per cent. All: all 20 true means are equal. "
        "Half: those of every second system are, and 145 of 190 pairs differ. Permutation and "
        f"bootstrap tests with {REPLICATES} replicates cannot be corrected for 190 pairs. The "
        f"Monte Carlo standard error of a family-wise rate of 5 % is {_error_of_five(random):.1f}."
    ), _families(random)]  # fmt: skip
    parts += ["## Power, and errors of type II and III", _text(
        "True means are those of the collection. Power is the share of all pairs that are "
        "significant at 5 % with the right sign; the errors of type II are the rest. Type III: "
        "significant with the wrong sign. In per cent, topics are a random sample."
    ), _power(random), _LITERATURE]  # fmt: skip
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


_HEAD = """\
# Error rates of tests between systems

<!-- Written by `python -m benchmarks.system_tests`; change it there. -->

Which test should you use for the difference between two
[systems](../reference/glossary.md#system), or between all pairs? Urbano (2016, section 8)
names the question as further work, and Urbano, Lima and Hanjalic (2019) answer it for single
pairs. Here true means are known because collections are simulated, so that errors can be counted.
The tests are those of `vcomp.ir.compare_systems`;
[Compare many systems](../howto/compare-many-systems.md) shows how to run them.
"""

_ALT = "Type I errors of pairs and of all pairs together, by test and number of topics"

_LITERATURE = Path(__file__).with_name("literature.md").read_text(encoding="utf-8")


def _text(words: str) -> str:
    return textwrap.fill(words, 100, break_long_words=False, break_on_hyphens=False)


def _run(rows: pd.DataFrame) -> str:
    parts = rows.groupby(["collection", "assumptions", "truth", "n_topics"])["trials"].first()
    return "## What was run\n\n" + _text(
        f"From each of four TREC collections (enterprise2006, genomics2004, robust2003, web2004) "
        f"{N_SYSTEMS} systems, evenly spaced by rank among the best three quarters; all 16 "
        "combinations of normality, homoscedasticity, uncorrelated effects and random sampling; "
        f"{', '.join(map(str, SIZES[:-1]))} and {SIZES[-1]} topics; three truths (all true means "
        "equal, those of every second system equal, those of the collection); "
        f"{int(parts.iloc[0])} collections of each: {int(parts.sum()):,} collections with 190 "
        f"pairs of systems. Two-sided tests; resampling tests have {REPLICATES} replicates; "
        f"differences of zero are ranked by Pratt's rule. Seed {SEED}; the numbers are the same "
        "for any number of workers."
    )


def _largest(rows: pd.DataFrame) -> float:
    of = rows[rows["test"].isin(SINGLE)]
    return float(rates(of, ["test", "alpha", "n_topics"])["error"].max())


def _error_of_five(rows: pd.DataFrame) -> float:
    cell = _collections(rows)
    return float(100.0 * np.sqrt(0.05 * 0.95 / cell))


def _number(table: pd.DataFrame, what: str, *key: object) -> float:
    found: dict[object, float] = table[what].to_dict()
    return float(found[key])


def _collections(rows: pd.DataFrame) -> int:
    """Return the number of collections behind a number of the tables of families."""
    cells = rows[["collection", "assumptions"]].drop_duplicates()
    return len(cells) * int(rows["trials"].iloc[0])


def _markdown(headers: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    head = list(headers)
    body = [head, ["---", *["---:"] * (len(head) - 1)], *map(list, lines)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in body)


def _square(rows: pd.DataFrame, across: list[str], what: str, named: object) -> str:
    found = rates(rows, ["test", *across])[what]
    columns = sorted(
        set(map(tuple, rows[across].to_numpy().tolist())), key=lambda c: (-c[0], *c[1:])
    )
    headers = ["test", *(named(a, int(n)) for a, n in columns)]  # type: ignore[operator]
    lines = [
        [_NAMES[test], *(f"{found[(test, *column)]:.1f}" for column in columns)]
        for test in SINGLE
        if test in set(rows["test"])
    ]
    return _markdown(headers, lines)


def _by_assumption(rows: pd.DataFrame) -> str:
    of = rows[
        (rows["truth"] == "equal") & (rows["correction"] == "none") & (rows["alpha"] == 0.05)
    ]
    of = of[of["test"].isin(SINGLE)]
    headers, columns = ["test"], []
    for place, name in enumerate(_HOLDS):
        # The other assumptions are compared where topics are a random sample.
        among = of if place == 3 else of[of["assumptions"].str.endswith("T")]
        for letter, word in (("T", "yes"), ("F", "no")):
            some = among[among["assumptions"].str[place] == letter]
            headers.append(f"{name}: {word}")
            columns.append(rates(some, ["test"])["type_1"])
    lines = [[_NAMES[test], *(f"{column[test]:.1f}" for column in columns)] for test in SINGLE]
    return _markdown(headers, lines)


def _families(rows: pd.DataFrame) -> str:
    of = rows[rows["alpha"] == 0.05]
    found = rates(of, ["test", "correction", "truth", "n_topics"])
    headers = ["test", *(f"all, {n}" for n in SIZES), *(f"half, {n}" for n in SIZES),
               *(f"half, FDR, {n}" for n in SIZES)]  # fmt: skip
    return _markdown(headers, (
        [_called(test, correction),
         *(f"{_number(found, 'family', test, correction, 'equal', n):.0f}" for n in SIZES),
         *(f"{_number(found, 'family', test, correction, 'half', n):.0f}" for n in SIZES),
         *(f"{_number(found, 'fdr', test, correction, 'half', n):.1f}" for n in SIZES)]
        for test, correction in _tests(of)
    ))  # fmt: skip


def _power(rows: pd.DataFrame) -> str:
    of = rows[(rows["alpha"] == 0.05) & (rows["truth"] == "observed")]
    found = rates(of, ["test", "correction", "n_topics"])
    headers = ["test", *(f"power, {n}" for n in SIZES), *(f"type III, {n}" for n in SIZES)]
    return _markdown(headers, (
        [_called(test, correction),
         *(f"{_number(found, 'power', test, correction, n):.1f}" for n in SIZES),
         *(f"{_number(found, 'wrong_sign', test, correction, n):.2f}" for n in SIZES)]
        for test, correction in _tests(of)
    ))  # fmt: skip


def _tests(rows: pd.DataFrame) -> list[tuple[str, str]]:
    pairs = rows[["test", "correction"]].drop_duplicates().itertuples(index=False)
    return [(str(test), str(correction)) for test, correction in pairs]


def _called(test: str, correction: str) -> str:
    return _NAMES[test] if correction == "none" else f"{_NAMES[test]}, {_CORRECTED[correction]}"


def _found(rows: pd.DataFrame) -> str:
    """Return what the tables show, in words with their numbers."""
    random = rows[rows["assumptions"].str.endswith("T")]
    five = random[random["alpha"] == 0.05]
    of = rates(five[five["truth"] == "equal"], ["test", "correction", "n_topics"])
    half = rates(five[five["truth"] == "half"], ["test", "correction", "n_topics"])
    seen = rates(five[five["truth"] == "observed"], ["test", "correction", "n_topics"])
    other = rows[~rows["assumptions"].str.endswith("T") & (rows["alpha"] == 0.05)]
    skewed = rates(other[other["truth"] == "equal"], ["test", "correction", "n_topics"])

    def at(table: pd.DataFrame, test: str, what: str, correction: str = "none") -> str:
        a, b, c = (f"{_number(table, what, test, correction, n):.1f}" for n in SIZES)
        return f"{a}, {b} and {c}"

    sizes = "20, 50 and 100 topics"
    said = (
        (
            f"**Single pairs.** At a level of 5 % the t-test rejects {at(of, 't', 'type_1')} % of "
            f"pairs with equal means ({sizes}), the permutation test "
            f"{at(of, 'permutation', 'type_1')} %, Wilcoxon's test "
            f"{at(of, 'wilcoxon', 'type_1')} %, the sign test {at(of, 'sign', 'type_1')} %, and "
            f"the bootstrap-shift test {at(of, 'bootstrap', 'type_1')} %."
        ),
        (
            "**Topics that are no random sample** matter more than the choice of the test: then "
            f"the t-test rejects {at(skewed, 't', 'type_1')} %. Systems with "
            "equal means over all topics are not equal on mostly hard or easy ones."
        ),
        (
            f"**All pairs.** Without a correction {at(of, 't', 'family')} % of collections have a "
            f"false positive by the t-test. With Holm {at(of, 't', 'family', 'holm')} % have one, "
            f"with Tukey's HSD {at(of, 'tukey', 'family')} %, and with randomised Tukey "
            f"{at(of, 'randomised_tukey', 'family')} %. With half of the systems equal, the false "
            f"discovery rate of Benjamini-Hochberg is {at(half, 't', 'fdr', 'fdr_bh')} % (t) and "
            f"{at(half, 'wilcoxon', 'fdr', 'fdr_bh')} % (Wilcoxon)."
        ),
        (
            f"**Power.** The t-test finds {at(seen, 't', 'power')} % of the differences without a "
            f"correction, {at(seen, 't', 'power', 'holm')} % with Holm, "
            f"{at(seen, 't', 'power', 'fdr_bh')} % with Benjamini-Hochberg; Tukey's HSD "
            f"{at(seen, 'tukey', 'power')} %. Wilcoxon's test finds "
            f"{at(seen, 'wilcoxon', 'power')} %, the sign test {at(seen, 'sign', 'power')} %, "
            f"both without a correction."
        ),
    )
    return "## What was found\n\n" + "\n\n".join(map(_text, said))


def draw(rows: pd.DataFrame, file: Path) -> None:
    """Draw type I errors of pairs and of families by the number of topics."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    of = rows[rows["assumptions"].str.endswith("T") & (rows["alpha"] == 0.05)]
    of = of[of["truth"] == "equal"]
    found = rates(of, ["test", "correction", "n_topics"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 4.0), layout="constrained")
    colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
    for test, colour in zip(SINGLE, colours, strict=True):
        one = found.xs((test, "none"), level=["test", "correction"]).reindex(list(SIZES))
        left.errorbar(
            SIZES, one["type_1"], 2.0 * one["error"], fmt="o-", color=colour, label=_NAMES[test]
        )
    families: list[tuple[str, str]] = [
        ("t", "holm"),
        ("wilcoxon", "holm"),
        ("t", "fdr_bh"),
        *((j, "none") for j in JOINT),
    ]
    for (name, correction), colour in zip(families, colours, strict=True):
        one = found.xs((name, correction), level=["test", "correction"]).reindex(list(SIZES))
        right.plot(SIZES, one["family"], "o-", color=colour, label=_called(name, correction))
    left.set_ylabel("pairs of equal systems rejected, %\n(bars: ± 2 Monte Carlo errors)")
    right.set_ylabel("collections with a false rejection, %\n(all systems equal)")
    for ax in (left, right):
        ax.axhline(5.0, color="#666666", linewidth=0.8)
        ax.set(xlabel="topics", ylim=(0.0, None), xticks=SIZES)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(fontsize="small", edgecolor="none")
    figure.savefig(file, dpi=110)
    plt.close(figure)
