"""Formatting of numbers and tables, for everything that is printed.

Summaries, the command line and designs use it, so that a number looks the same wherever it is
shown. Values are never rounded before.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

from vcomp.exceptions import visible
from vcomp.markup import encodable, escape, escaping_summary

MISSING = "–"
"""Printed in place of a number that is not known."""

SYMBOLS = {"Erho2": "Eρ²", "Phi": "Φ"}
"""The coefficients of a D-study by name."""

_MOST_DECIMALS = 10
_LONG = 1e10


def decimals_for(values: Iterable[float], significant: int = 4) -> int:
    """Return how many decimals a column needs so that its smallest number keeps its digits.

    Parameters
    ----------
    values : the column; zeros and numbers that are not finite do not count
    significant : digits that the smallest nonzero number keeps

    Examples
    --------
    >>> decimals_for([0.002812, 0.028093, 0.0])
    6
    >>> decimals_for([1500.0, 20000.0])
    0
    """
    sizes = _sizes(values)
    if not sizes:
        return 0
    return max(0, significant - 1 - math.floor(math.log10(min(sizes))))


def fixed(
    values: Iterable[float],
    *,
    significant: int = 4,
    decimals: int | None = None,
    missing: str = MISSING,
) -> list[str]:
    """Return a column of numbers with a common number of decimals.

    Numbers that span more than six decades, are too small for ten decimals, or have more than ten
    digits before the point are written in scientific notation, all of them.

    Parameters
    ----------
    values : the column
    significant : digits that the smallest nonzero number keeps, see :func:`decimals_for`
    decimals : used instead of `significant`
    missing : text for nan

    Examples
    --------
    >>> fixed([0.0028117, 0.0280934, 0.0, float("nan")])
    ['0.002812', '0.028093', '0.000000', '–']
    >>> fixed([2.5e-9, 1.0])
    ['2.500e-09', '1.000e+00']
    """
    column = [float(v) for v in values]
    if decimals is None:
        decimals = decimals_for(column, significant)
        sizes = _sizes(column) or [1.0]
        if max(sizes) > 10**6 * min(sizes) or decimals > _MOST_DECIMALS or max(sizes) >= _LONG:
            return [_written(v, f".{significant - 1}e", missing) for v in column]
    return [_written(v, f".{decimals}f", missing) for v in column]


def number(value: float, significant: int = 4) -> str:
    """Return one number on its own, in running text.

    Examples
    --------
    >>> number(0.00281169), number(float("inf")), number(20.0)
    ('0.002812', '∞', '20')
    """
    return _written(float(value), f".{significant}g", MISSING)


def count(value: float) -> str:
    """Return a count with thousands set off; an effective size with two decimals.

    Examples
    --------
    >>> count(5879040), count(50.0), count(4.768211), count(float("inf"))
    ('5,879,040', '50', '4.77', '∞')
    """
    return _written(float(value), ",.0f" if float(value).is_integer() else ",.2f", MISSING)


def degrees_of_freedom(values: Iterable[float]) -> str:
    """Return degrees of freedom side by side, without separators that would look like more.

    Examples
    --------
    >>> degrees_of_freedom([6407.0, 12.34])
    '6407, 12.3'
    """
    return ", ".join(
        _written(float(v), ".0f" if float(v).is_integer() else ".1f", MISSING) for v in values
    )


_MARGIN = 1e-12
"""Rounding error of results computed from thousands of numbers, some 4,500 × 2.2e-16, relative to
the limit. Differences so small are negligible."""


def snapped(value: Any, limit: float) -> Any:
    """Return a number or an array, with values within rounding error of a limit replaced by it.

    Every verdict that compares computed numbers with a round limit compares these.

    Examples
    --------
    >>> 0.1 + 0.2 > 0.3, snapped(0.1 + 0.2, 0.3) > 0.3, snapped(0.301, 0.3) > 0.3
    (True, False, True)
    """
    near = abs(value - limit) <= _MARGIN * (abs(limit) or 1.0)
    if isinstance(value, float | int):
        return float(limit) if near else value
    value = value.copy()
    value[near] = limit
    return value


def coefficient(value: float) -> str:
    """Return a coefficient between 0 and 1 with three decimals, more where it is near an end.

    A coefficient that is not 1 is never written as 1.000, nor one that is not 0 as 0.000; but for
    rounding errors.

    Examples
    --------
    >>> coefficient(0.932649), coefficient(0.99962), coefficient(1.0), coefficient(1 - 1e-9)
    ('0.933', '0.9996', '1.000', '> 0.99999')
    """
    value = float(value)
    if not math.isfinite(value):
        return _written(value, "f", MISSING)
    value = snapped(snapped(value, 0.0), 1.0)
    if value in (0.0, 1.0):
        return f"{value:.3f}"
    for decimals in (3, 4, 5):
        text = f"{value:.{decimals}f}"
        if float(text) not in (0.0, 1.0):
            return text
    if abs(value) < 0.5:
        return "< 0.00001" if value > 0 else "> -0.00001"
    return "> 0.99999" if value < 1 else "< 1.00001"


def coefficient_interval(low: float, high: float) -> str:
    """Return the interval of a coefficient, empty where it is not known.

    Examples
    --------
    >>> coefficient_interval(0.893113, 0.962874)
    '[0.893, 0.963]'
    >>> coefficient_interval(float("nan"), float("nan"))
    ''
    """
    if math.isnan(low) or math.isnan(high):
        return ""
    return f"[{coefficient(low)}, {coefficient(high)}]"


def short_interval(low: float, high: float, significant: int = 3) -> str:
    """Return an interval whose ends have a few significant digits each.

    Examples
    --------
    >>> short_interval(0.00171, 0.00512), short_interval(0.0019431, 362.3591)
    ('[0.00171, 0.00512]', '[0.00194, 362]')
    >>> short_interval(0.1, float("inf")), short_interval(float("nan"), 1.0)
    ('[0.100, ∞]', '–')
    >>> short_interval(2.26e-11, 1.3e-10), short_interval(0.0, 3.2e12)
    ('[2.26e-11, 1.30e-10]', '[0, 3.20e+12]')
    """
    if math.isnan(low) or math.isnan(high):
        return MISSING
    ends = []
    for end in (low, high):
        decimals = decimals_for([end], significant)
        is_plain = decimals <= _MOST_DECIMALS and abs(end) < _LONG
        ends.append(_written(end, f".{decimals}f" if is_plain else f".{significant - 1}e", ""))
    return f"[{ends[0]}, {ends[1]}]"


def percent(share: float, decimals: int = 1) -> str:
    """Return a share in per cent.

    Examples
    --------
    >>> percent(0.0684), percent(float("nan"))
    ('6.8 %', '–')
    """
    return f"{100 * share:.{decimals}f} %" if math.isfinite(share) else MISSING


def memory(n_bytes: float) -> str:
    """Return a number of bytes as text, in MiB if it is small.

    Examples
    --------
    >>> memory(3 * 2**30), memory(24_000), memory(1e30)
    ('3.0 GiB', '0.1 MiB', '9.3e+20 GiB')
    """
    if n_bytes > 2**60:
        return f"{n_bytes / 2**30:.2g} GiB"
    if n_bytes > 0.1 * 2**30:
        return f"{n_bytes / 2**30:,.1f} GiB"
    return f"{max(n_bytes / 2**20, 0.1):.1f} MiB"


def level(alpha: float) -> str:
    """Return the confidence that `alpha` leaves.

    Examples
    --------
    >>> level(0.05), level(0.001)
    ('95 %', '99.9 %')
    """
    return f"{100 * (1 - alpha):.6g} %"


def p_value(p: float) -> str:
    """Return a p-value in running text.

    Examples
    --------
    >>> p_value(0.03251), p_value(2.24e-18), p_value(0.0)
    ('p = 0.0325', 'p = 2.24e-18', 'p < 1e-300')
    """
    return "p < 1e-300" if float(p) == 0.0 else f"p = {number(p, 3)}"


def p_values(
    values: Iterable[float], *, decimals: int | None = None, missing: str = MISSING
) -> list[str]:
    """Return p-values as cells of a table; none is shown as zero.

    Parameters
    ----------
    values : the column
    decimals : digits after the point; three significant digits if None
    missing : text for nan

    Examples
    --------
    >>> p_values([0.03251, 0.0, float("nan")]), p_values([0.0325, 2e-5], decimals=3)
    (['0.0325', '< 1e-300', '–'], ['0.033', '< 0.001'])
    """
    least = 0.0 if decimals is None else 10.0**-decimals
    form = ".3g" if decimals is None else f".{decimals}f"
    return [
        f"< {least or 1e-300:g}" if p == 0.0 or 2.0 * p < least else _written(p, form, missing)
        for p in map(float, values)
    ]


def listed(names: Sequence[str]) -> str:
    """Return names joined as in a sentence; empty without names.

    Examples
    --------
    >>> listed(["sys"]), listed(["sys", "topic", "judge"])
    ('sys', 'sys, topic and judge')
    """
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def shortened(names: Sequence[str], most: int) -> str:
    """Return the first names, with dots for the others.

    Examples
    --------
    >>> shortened(["sys", "topic", "judge"], 2)
    'sys, topic, …'
    """
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


_ONE_WORD = re.compile(r"[A-Z]?[a-z]{2,}")


def sentence(clause: str) -> str:
    """Return a clause as a sentence.

    Examples
    --------
    >>> sentence("the fit did not converge")
    'The fit did not converge.'
    """
    return f"{clause[:1].upper()}{clause[1:]}."


def levels_of(name: str) -> str:
    """Return several levels of a facet: its plural if its name is a word, else ``levels of …``.

    Examples
    --------
    >>> levels_of("topic"), levels_of("query"), levels_of("batch"), levels_of("epoch")
    ('topics', 'queries', 'batches', 'epochs')
    >>> levels_of("p"), levels_of("sys"), levels_of("n_docs"), levels_of("topic:doc")
    ('levels of p', 'levels of sys', 'levels of n_docs', 'levels of topic:doc')
    """
    is_word = _ONE_WORD.fullmatch(name) and len(name) > 2
    if not is_word or (name.endswith("s") and not name.endswith("ss")):
        return f"levels of {name}"
    if name.endswith(("ss", "x", "z", "ch", "sh")) and not name.endswith("poch"):
        return f"{name}es"
    if name.endswith("y") and name[-2] not in "aeiou":
        return f"{name[:-1]}ies"
    return f"{name}s"


def plural(name: str) -> str:
    """Return the plural of a facet if its name is a word, else the name.

    Examples
    --------
    >>> plural("system"), plural("sys"), plural("p")
    ('systems', 'sys', 'p')
    """
    several = levels_of(name)
    return name if several.startswith("levels of ") else several


def sized(n: float, name: str) -> str:
    """Return a facet with its number of levels, as a factor of a design.

    Examples
    --------
    >>> sized(1, "topic"), sized(1500, "topic"), sized(5, "sys"), sized(8, "p")
    ('1 topic', '1,500 topics', '5 sys', '8 p')
    """
    return f"{count(n)} {name if n == 1 else plural(name)}"


def counted(n: float, name: str) -> str:
    """Return a number of levels of a facet, as in a sentence.

    Examples
    --------
    >>> counted(1, "topic"), counted(1234, "topic"), counted(1, "sys"), counted(5, "sys")
    ('1 topic', '1,234 topics', '1 level of sys', '5 levels of sys')
    """
    several = levels_of(name)
    if n == 1:
        return f"1 level of {name}" if several.startswith("levels of ") else f"1 {name}"
    return f"{count(n)} {several}"


def bar(share: float, width: int = 30) -> str:
    """Return a bar of blocks, `width` of them for a share of one; a sliver for the least share.

    Examples
    --------
    >>> bar(0.068), bar(0.001), bar(0.0)
    ('██', '▏', '')
    """
    if not math.isfinite(share) or share <= 0:
        return ""
    return "█" * round(width * min(share, 1.0)) or "▏"


def short_intervals(low: Iterable[float], high: Iterable[float]) -> list[str]:
    """Return the interval of each pair of ends, see :func:`short_interval`.

    Examples
    --------
    >>> short_intervals([0.1, 1.0], [0.2, 3.0])
    ['[0.100, 0.200]', '[1.00, 3.00]']
    """
    return [short_interval(a, b) for a, b in zip(low, high, strict=True)]


def simple_table(
    rows: Sequence[Sequence[str]],
    headers: Sequence[str],
    *,
    title: str | None = None,
    stubs: Sequence[str] | None = None,
    align: str = "r",
) -> Any:
    """Return a table of statsmodels: text as ``str()``, and HTML, LaTeX and CSV.

    Parameters
    ----------
    rows : texts of the cells
    headers : one a column, without one for the stubs
    title : a line above the table
    stubs : names of the rows, left-aligned
    align : ``"r"`` or ``"l"`` a column; the last letter goes on for the columns after it

    Returns
    -------
    statsmodels.iolib.table.SimpleTable

    Examples
    --------
    >>> print(simple_table([["0.93"], ["0.965"]], ["Eρ²"], stubs=["50", "100"]))
    ===========
            Eρ²
    -----------
    50     0.93
    100   0.965
    -----------
    """
    from statsmodels.iolib.table import SimpleTable

    aligns = align + align[-1] * (len(headers) - len(align))
    look = {"data_aligns": aligns, "header_align": "r", "title_align": "l"}
    return SimpleTable(
        [list(map(_shown, row)) for row in rows],
        headers=list(map(_shown, headers)),
        stubs=None if stubs is None else list(map(_shown, stubs)),
        title=None if title is None else encodable(title),
        txt_fmt={**look, "colsep": "   "},
        html_fmt=look,
    )


def column_table(
    columns: Mapping[str, Sequence[str]],
    *,
    title: str | None = None,
    stubs: Sequence[str] | None = None,
    align: str = "r",
) -> Any:
    """Return a table of columns by their headers, as :func:`simple_table`.

    Parameters
    ----------
    columns : header → texts of the cells; spaces at its end distinguish equal headers
    title, stubs, align : as for :func:`simple_table`

    Examples
    --------
    >>> print(column_table({"Φ": ["0.93"], "95 %": ["0.90"], "95 % ": ["0.94"]}))
    ==================
       Φ   95 %   95 %
    ------------------
    0.93   0.90   0.94
    ------------------
    """
    rows = list(zip(*columns.values(), strict=True))
    headers = [header.rstrip() for header in columns]
    return simple_table(rows, headers, title=title, stubs=stubs, align=align)


def plain_table(rows: Sequence[tuple[str, str]]) -> Any:
    """Return two columns of text, the second to the right: the head of a summary.

    Parameters
    ----------
    rows : left and right text

    Returns
    -------
    statsmodels.iolib.table.SimpleTable

    Examples
    --------
    >>> print(plain_table([("by REML", "20 scores"), ("4 sys × 5 topic", "converged")]))
    by REML           20 scores
    4 sys × 5 topic   converged
    ===========================
    """
    from statsmodels.iolib.table import SimpleTable

    look = {"data_aligns": "lr"}
    # The line below stays: a summary drops the last line of every table but the last.
    lines = {"table_dec_above": "", "table_dec_below": "=", "header_dec_below": ""}
    shown = [tuple(map(encodable, row)) for row in rows]
    return SimpleTable(shown, txt_fmt={**look, **lines, "colsep": "   "}, html_fmt=look)


def summary(tables: Sequence[Any], notes: Sequence[str] = ()) -> Any:
    """Return a statsmodels summary of tables and, below them, notes.

    Parameters
    ----------
    tables : of :func:`simple_table`, one below the other
    notes : sentences; long ones are broken into lines

    Returns
    -------
    statsmodels.iolib.summary.Summary

    Examples
    --------
    >>> table = simple_table([["0.93"]], ["Eρ²"])
    >>> print(summary([table], ["Eρ²: differences between systems."]))
    ====
     Eρ²
    ----
    0.93
    ----
    <BLANKLINE>
    Eρ²: differences between systems.
    """
    page = escaping_summary()()
    page.tables.extend(tables)
    notes = [*notes, *_on_open_intervals(tables)]
    if notes:
        shown = map(encodable, notes)
        page.add_extra_txt([textwrap.fill(n, 92, subsequent_indent="  ") for n in shown])
    return page


_REASON = "the data have too few levels, or estimates small relative to their standard errors"

NO_LIMIT = f"an upper limit of ∞ is no limit: {_REASON}"
"""Why an interval has no upper limit, a clause."""


def _on_open_intervals(tables: Sequence[Any]) -> Iterator[str]:
    """Yield notes on intervals that leave an end or everything open, if tables have some."""
    cells = {str(cell.data).strip() for table in tables for row in table for cell in row}
    if any(text.startswith("[") and text.endswith(("∞]", "inf]")) for text in cells):
        yield f"{NO_LIMIT[0].upper()}{NO_LIMIT[1:]}."
    if "[0.000, 1.000]" in cells:
        yield f"An interval [0.000, 1.000] excludes nothing: {_REASON}."


class PrintsAsSentence:
    """Base of results that print as sentences, which a notebook shows as well."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        written = vars(cls).get("__str__")
        if written is not None:
            cls.__str__ = wraps(written)(lambda self: visible(written(self)))  # type: ignore[method-assign]

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in str(self).splitlines())


class Printed:
    """Base of results with a printed form, which subclasses give once, as :meth:`summary`.

    Examples
    --------
    >>> class Size(Printed):
    ...     def summary(self):
    ...         return summary([simple_table([["20"]], ["scores"])])
    >>> print(Size())
    ======
    scores
    ------
        20
    ------
    """

    __slots__ = ()

    def summary(self) -> Any:
        """Return a printable summary (:class:`statsmodels.iolib.summary.Summary`)."""
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return str(self.summary().as_html())


def _shown(cell: Any) -> Any:
    return encodable(cell).replace("\n", "\\n") if isinstance(cell, str) else cell


def _sizes(values: Iterable[float]) -> list[float]:
    return [abs(float(v)) for v in values if math.isfinite(v) and v != 0]


def _written(value: float, form: str, missing: str) -> str:
    if math.isnan(value):
        return missing
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return format(value, f"z{form}")  # z: no sign of what is rounded to zero
