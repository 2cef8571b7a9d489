"""Measures side by side as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcomp import display
from vcomp.dstudy.requirement import SYMBOLS

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.studies.comparison import MeasureComparison

__all__ = ["summary"]

_MOST_ACROSS = 9
"""Columns beside the names of the measures; more of them go down, with the measures across."""


def summary(compared: MeasureComparison) -> Any:
    """Return a summary: what every measure's variance is made of, and what a test is worth.

    Parameters
    ----------
    compared : the measures

    Returns
    -------
    statsmodels.iolib.summary.Summary
    """
    table = compared.table
    tables = [_components(compared, table), _coefficients(compared, table)]
    if "n_Erho2" in table:
        tables.append(_required(compared, table))
    return display.summary(tables, _notes(compared, table))


def _components(compared: MeasureComparison, table: pd.DataFrame) -> Any:
    once = table.drop_duplicates("measure")
    cells = {"scores": [display.count(n) for n in once["nobs"]]}
    columns = sorted(
        (c for c in table.columns if c.startswith("share(")), key="share(Residual)".__eq__
    )
    for column in columns:
        name = column.removeprefix("share(").removesuffix(")")
        cells[name] = [display.percent(share) for share in once[column]]
    by = ", ".join(dict.fromkeys(r.method.upper() for r in compared.results.values()))
    number = "1 measure" if len(once) == 1 else f"{len(once)} measures"
    title = f"{number} by {by}: shares of variance"
    if len(cells) > _MOST_ACROSS:
        down = list(cells.values())
        return display.simple_table(down, list(once["measure"]), title=title, stubs=list(cells))
    across = list(zip(*cells.values(), strict=True))
    return display.simple_table(across, list(cells), title=title, stubs=list(once["measure"]))


def _coefficients(compared: MeasureComparison, table: pd.DataFrame) -> Any:
    confidence = display.level(compared.alpha)
    cells: dict[str, list[str]] = {}
    for facet in _facets(compared):
        cells[facet] = [display.count(n) for n in table[facet]]
    for blanks, (name, symbol) in enumerate(SYMBOLS.items()):
        cells[symbol] = [display.coefficient(c) for c in table[name]]
        # Headers are keys here: a space more keeps those of Eρ² and Φ apart.
        ends = zip(table[f"{name}_low"], table[f"{name}_high"], strict=True)
        cells[f"{confidence} interval" + " " * blanks] = [
            display.coefficient_interval(low, high) for low, high in ends
        ]
    return display.simple_table(
        list(zip(*cells.values(), strict=True)),
        [header.rstrip() for header in cells],
        title="What a test would be worth",
        stubs=list(table["measure"]),
    )


def _required(compared: MeasureComparison, table: pd.DataFrame) -> Any:
    confidence, target = display.level(compared.alpha), display.number(compared.target)
    held = [c for c in _facets(compared) if c not in set(table["facet"])]
    once = table.drop_duplicates(["measure", *held])
    cells = {facet: [display.count(n) for n in once[facet]] for facet in held}
    for blanks, (name, symbol) in enumerate(SYMBOLS.items()):
        cells[f"{symbol} = {target}"] = [display.count(n) for n in once[f"n_{name}"]]
        ends = zip(once[f"n_{name}_low"], once[f"n_{name}_high"], strict=True)
        cells[f"{confidence} interval" + " " * blanks] = [_range(*pair) for pair in ends]
    return display.simple_table(
        list(zip(*cells.values(), strict=True)),
        [header.rstrip() for header in cells],
        title=f"Levels of {' or '.join(table['facet'].dropna().unique())} needed",
        stubs=list(once["measure"]),
    )


def _range(low: float, high: float) -> str:
    unknown = low != low or high != high
    return display.MISSING if unknown else f"{display.count(low)} to {display.count(high)}"


def _facets(compared: MeasureComparison) -> list[str]:
    return list(dict.fromkeys(f for s in compared.studies.values() for f in s.plan.facets))


def _notes(compared: MeasureComparison, table: pd.DataFrame) -> list[str]:
    objects = dict.fromkeys(s.plan.object for s in compared.studies.values())
    what = ", ".join(objects)
    notes = [f"Eρ²: how reliable differences between {what} are; Φ: absolute scores of {what}."]
    if "n_Erho2" in table:
        notes += [_fewest(table, name, symbol) for name, symbol in SYMBOLS.items()]
    methods = dict.fromkeys(
        f"{symbol} {study.interval_methods[name]}"
        for study in compared.studies.values()
        for name, symbol in SYMBOLS.items()
        if name in study.interval_methods
    )
    if methods:
        notes.append(f"Intervals: {'; '.join(methods)}.")
    notes.append(
        "Measures that share levels are compared by .differences() and .required_ratios(), not by "
        "whether intervals overlap."
    )
    for name, study in compared.studies.items():
        notes += [f"{name}: {note}" for note in study.notes]
    notes += [f"{name} could not be fitted: {why}" for name, why in compared.failures.items()]
    unsure = [name for name, res in compared.results.items() if not res.converged]
    notes += [f"{name} is not converged: {compared.results[name].status}" for name in unsure]
    return notes


def _fewest(table: pd.DataFrame, name: str, symbol: str) -> str:
    """Return which measures need fewest, in order."""
    column = f"n_{name}"
    once = table.drop_duplicates("measure").dropna(subset=column)
    ordered = once.sort_values(column, kind="stable")
    pairs = zip(ordered["measure"], ordered[column], strict=True)
    words = [f"{measure} ({display.count(n)})" for measure, n in pairs]
    shown = ", ".join(words[:5]) + (", …" if len(words) > 5 else "")
    return f"Fewest for {symbol}: {shown}."
