"""The printed page of a judge card."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.evals.roles import NUMBERED
from vcomp.exceptions import VcompError, visible

if TYPE_CHECKING:
    import pandas as pd

_MOST_LISTED, _MOST_COLUMNS = 20, 5
"""Judges and models that are printed, and judges side by side."""


def page(card: Any) -> Any:
    """Return the summary of a judge card.

    Parameters
    ----------
    card : its tables are printed as far as there are numbers
    """
    head = display.plain_table([(card.title, "")])
    tables, notes = [head], []
    parts = (_agreement, _bias, _by_model, _own, _committee, _human)
    for table, said in (part(card) for part in parts):
        tables += [] if table is None else [table]
        notes += said
    return display.summary(tables, [visible(note) for note in notes])


_TWO = 2
"""Levels of ratings in which no grade is nearer than another."""


def _level(card: Any) -> str:
    return f"{display.level(card.alpha)} interval"


def _stubs(names: Any) -> list[str]:
    return [visible(str(name)) for name in names]


def _estimates(card: Any, table: pd.DataFrame, header: str) -> dict[str, list[str]]:
    return {
        header: display.fixed(table["estimate"]),
        "std. err.": display.fixed(table["std_error"], significant=3),
        _level(card): display.short_intervals(table["low"], table["high"]),
    }


def _agreement(card: Any) -> tuple[Any, list[str]]:
    known = card.agreement[card.agreement["estimate"].notna()]
    levels = card._answers.first.levels
    if len(levels) <= _TWO:  # those of other levels are the same
        known = known[known["level"] == "nominal"]
    without = card.agreement[card.agreement["estimate"].isna()]
    said = [
        f"There is no {display.listed(list(dict.fromkeys(own['coefficient'])))}: {reason}."
        for reason, own in without.groupby("reason", sort=False)
    ]
    cells = {"level": list(known["level"])}
    cells |= {
        "estimate": display.fixed(known["estimate"], decimals=3),
        "std. err.": display.fixed(known["std_error"], decimals=3),
        _level(card): display.short_intervals(known["low"], known["high"]),
        "answers": [display.count(n) for n in known["answers"]],
    }
    if not len(known):
        said += _of_one_judge(card)
    elif not card._answers.first.is_text and len(levels) > _TWO:
        said.append(
            "For grades in order read the ordinal coefficients, for points the interval ones; "
            "nominal ones take a near grade for as wrong as a far one."
        )
    title = "Agreement of judges"
    stubs = _stubs(known["coefficient"])
    if len(known):
        return display.column_table(cells, title=title, stubs=stubs, align="lr"), said
    return None, said


def _of_one_judge(card: Any) -> Iterator[str]:
    """Yield what to do with runs that have a judge each."""
    rows, judge = card._answers.rows, card.names.judge
    for name in (c for c in NUMBERED if c in rows and c != card.names.repeated):
        if len(card.judges) > 1 and rows.groupby(name, observed=True)[judge].nunique().max() == 1:
            yield (
                f"Each {name} has one {judge}. If the answers of all are the same, write "
                f"repeated={name!r}."
            )
            return


def _bias(card: Any) -> tuple[Any, list[str]]:
    shown = card.table.head(_MOST_LISTED)
    cells = {"ratings": [display.count(n) for n in shown["ratings"]]}
    said = []
    if shown["mean"].notna().any():
        cells["mean"] = display.fixed(shown["mean"])
    if shown["bias"].notna().any():
        cells["bias"] = display.fixed(shown["bias"])
        cells[_level(card)] = display.short_intervals(shown["low"], shown["high"])
        said += [_verdict(card)]
    if shown["repeated"].any():
        cells["repeated"] = [display.count(n) for n in shown["repeated"]]
        if shown["self_variance"].notna().any():
            cells["own variance"] = display.fixed(shown["self_variance"], significant=3)
        cells["flicker"] = display.fixed(shown["flicker"], decimals=3)
        said.append(
            "Own variance and flicker are of a judge who rates the same answer again: the "
            "variance, and the share of pairs of ratings that differ."
        )
    else:
        said.append(
            "No judge rated an answer twice: how much a judge varies cannot be known. Repeat a "
            "part of the judgements to see it; repeated= names the column that numbers them."
        )
    title = "Judges, and their bias against each other on the same answers"
    return display.column_table(cells, title=title, stubs=_stubs(shown.index)), said


def _by_model(card: Any) -> tuple[Any, list[str]]:
    """Return the table of models by judges, and the sentence on the clearest bias."""
    found: Any = card.by_model
    judge, model = card.names.judge, card.names.model
    found = found.assign(clear=(found["low"] > 0.0) | (found["high"] < 0.0))
    known = found[found["estimate"].notna() & (found["std_error"] > 0.0)]
    if known.empty:
        return None, []
    models = known[model].drop_duplicates()[:_MOST_LISTED].tolist()
    cells: dict[str, list[str]] = {}
    # Two digits of the smallest error
    decimals = max(1 - math.floor(math.log10(known["std_error"].min())), 0)
    blank = " " if known["clear"].any() else ""
    for name in card.judges[:_MOST_COLUMNS]:
        of_judge = found[found[judge] == name].set_index(model).loc[models]
        numbers = display.fixed(of_judge["estimate"], decimals=decimals)
        pairs = zip(numbers, of_judge["clear"], strict=True)
        cells[visible(str(name))] = [f"{x}{'*' if is_clear else blank}" for x, is_clear in pairs]
    several = display.levels_of(judge)
    title = f"What {several} add to each {model}, beyond their bias"
    said = _clearest(card, known)
    if len(cells) < len(card.judges) or len(models) < found[model].nunique():
        said.append(f"Not all {several} and {display.levels_of(model)} are listed.")
    return display.column_table(cells, title=title, stubs=_stubs(models)), said


def _clearest(card: Any, table: Any) -> list[str]:
    """Return the sentence on the model that a judge favours or disfavours most."""
    clear = table["clear"]
    most = table.loc[(table["estimate"] / table["std_error"]).abs().idxmax()]
    ends = display.short_intervals([most["low"]], [most["high"]])[0]
    size = display.number(abs(most["estimate"]), 3)
    word = "higher" if most["estimate"] > 0.0 else "lower"
    of_most = (
        f"{most[card.names.judge]} rates {most[card.names.model]} {size} {word} than its bias "
        f"explains ({_level(card)} {ends})"
    )
    n = int(clear.sum())
    if n == 0:
        return [f"No judge is shown to be biased for or against a model. The clearest: {of_most}."]
    counted = f"; so are {display.count(n)} judge–model pairs in all, marked *" if n > 1 else ""
    return [f"{of_most}, which is significant{counted}. The table by_model has all intervals."]


def _verdict(card: Any) -> str:
    """Return which judges are biased."""
    table, said = card.table, []
    for rows, word in ((table["low"] > 0.0, "higher"), (table["high"] < 0.0, "lower")):
        names = [str(name) for name in table.index[rows]]
        if names:
            verb = "rates" if len(names) == 1 else "rate"
            said.append(f"{display.listed(names)} {verb} significantly {word}")
    if said:
        return f"{' and '.join(said)} than the mean of judges."
    return "No judge rates significantly higher or lower than the mean of judges."


def _own(card: Any) -> tuple[Any, list[str]]:
    table = card.own_family
    known = table[table["estimate"].notna()].head(_MOST_LISTED)
    if not len(known):
        why = "no judge is of the family of a model; families= names them"
        if len(table):
            why = "ratings do not separate it from other biases"
        return None, [f"Whether judges favour their own family is not known: {why}."]
    cells = {"family": _stubs(known["family"])} | _estimates(card, known, "added")
    common, said = table.loc["all judges"], []
    if np.isfinite(common["estimate"]):
        found = "is" if common["low"] > 0.0 or common["high"] < 0.0 else "is not"
        more = "higher" if common["estimate"] > 0.0 else "lower"
        by = display.number(abs(common["estimate"]), 3)
        said.append(
            f"Judges rate answers of their own family {by} {more} than other judges do; the "
            f"difference {found} significant."
        )
    title = "What judges add to models of their own family"
    stubs = _stubs(known.index)
    return display.column_table(cells, title=title, stubs=stubs, align="lr"), said


def _committee(card: Any) -> tuple[Any, list[str]]:
    said = list(_effective(card))
    try:
        table = card.more_judges
    except VcompError as error:
        return None, [*said, f"What another judge is worth is not known: {error}."]
    cells = {
        "std. err.": display.fixed(table["std_error"], significant=3),
        "of one judge's": [display.percent(r) for r in table["ratio"]],
    }
    title = f"Error of a difference between two {display.levels_of(card.names.model)}, by judges"
    return display.column_table(cells, title=title, stubs=_stubs(table["judges"])), said


def _effective(card: Any) -> Iterator[str]:
    if card.has_labels and len(card.judges) > 1:
        row = card.committee.iloc[0]
        alike = _equal_errors(card)
        if row["answers"] < 3 or not (alike or np.isfinite(row["correlation"])):
            yield "Too few labelled answers that all judges rated show how their errors correlate."
        elif np.isfinite(row["correlation"]):
            ends = display.short_interval(row["effective_low"], row["effective_high"])
            yield (
                f"Errors against {card.names.human} correlate by "
                f"{display.number(row['correlation'], 2)}: {len(card.judges)} judges are worth "
                f"{display.number(row['effective_number'], 3)} with independent errors, "
                f"{_level(card)} {ends}."
            )
        else:
            yield (
                f"Errors against {card.names.human} have no correlation: {display.listed(alike)}."
            )
    elif len(card.judges) > 1:
        yield (
            "How many independent judges these are worth cannot be known without human labels of "
            "some answers: an error that all judges share looks like the quality of the answer."
        )


def _equal_errors(card: Any) -> list[str]:
    """Return the judges whose errors are the same in all labelled answers, with the error."""
    means, labels = card._anchor
    errors = [e[np.isfinite(e)] for e in (means - labels[:, None]).T]
    return [
        f"those of {visible(str(name))} are all {display.number(e[0])}"
        for name, e in zip(card.judges, errors, strict=True)
        if e.size and np.allclose(e, e[0], rtol=1e-6, atol=0.0)
    ]


def _human(card: Any) -> tuple[Any, list[str]]:
    if not card.has_labels:
        return None, []
    table = card.anchored.head(_MOST_LISTED)
    cells = {
        "labelled": [display.count(n) for n in table["labelled"]],
        "judges": display.fixed(table["judged"]),
        "labels": display.fixed(table["labels"]),
        **_estimates(card, table, "anchored"),
        "by labels alone": display.fixed(table["labels_std_error"], significant=3),
    }
    meaning = (
        "Anchored means estimate what humans would say of all answers (prediction-powered, "
        "PPI++); labelled answers have to be a random sample. The last column is the standard "
        "error of the labels alone."
    )
    said = [meaning]
    if table["std_error"].isna().any():
        said.append("Labels that are all equal, or of fewer than two items, show no error.")
    errors = card.against_human
    for rows, word in ((errors["low"] > 0.0, "higher"), (errors["high"] < 0.0, "lower")):
        names = [str(name) for name in errors.index[rows]]
        if names:
            verb = "rates" if len(names) == 1 else "rate"
            said.append(f"{display.listed(names)} {verb} significantly {word} than "
                        f"{card.names.human}.")  # fmt: skip
    title = f"Means anchored at {visible(str(card.names.human))}"
    return display.column_table(cells, title=title, stubs=_stubs(table.index)), said
