"""Texts in place of numbers: decimal commas, marks between thousands, marks of missing values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_MISSING = frozenset(
    {".", "NA", "N/A", "#N/A", "NULL", "NONE", "MISSING", "-", "--", "?", "*", ""}
)
"""Marks of missing values, in capitals: R's NA, SAS's point, and others."""

_GROUPED = re.compile(
    r"[+-]?[1-9]\d{0,2}(?P<mark>[,.' _\u00a0\u202f])\d{3}(?:(?P=mark)\d{3})*"
    r"(?:(?P<point>[.,])\d*)?"
)
"""A number whose thousands are set off."""

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")


def text_for_numbers(values: Any, code: str = "y") -> str:
    """Return a description of values that are not numbers, with the call that reads them.

    Parameters
    ----------
    values : (n,) an array of another type than numbers
    code : the column
    """
    column = f"data[{code!r}]"
    if values.dtype.kind == "M":
        seconds = f"({column} - {column}.min()).dt.total_seconds()"
        return f"{values.dtype}; give the seconds since the first of them, as in {seconds}"
    if values.dtype.kind == "m":
        return f"{values.dtype}; give seconds, as in {column}.dt.total_seconds()"
    texts = [value for value in values if isinstance(value, str)]
    if not texts:
        return str(values.dtype)
    words = [text for text in texts if not _is_number(text)]
    whole = not words and all(text.strip().lstrip("+-").isdecimal() for text in texts)
    if whole and any(abs(float(text)) >= 2.0**53 for text in texts):
        return (
            f"whole numbers as text, such as {texts[0]!r}; read them as Python's, which keep all "
            f"digits: numbers = {column}.map(int), and give numbers - numbers.min()"
        )
    if not words:
        return f"text, such as {texts[0]!r}; convert it with pandas.to_numeric"
    others = [word for word in words if word.strip().upper() not in _MISSING]
    marks = f"na_values={sorted(set(words) - set(others))}"
    if others:
        more = f", {marks}" if len(others) < len(words) else ""
        return f"{others[0]!r}{_separators(others, texts, more)}"
    return (
        f"{words[0]!r} in {len(words)} of {len(values)} rows; if that marks a missing value, read "
        f"it with {_read_csv(marks)} and give the frame"
    )


def labels_of_files(columns: Sequence[str]) -> str:
    """Return how columns are read in which NA is a label, such as the initials of a rater."""
    types = f"dtype={dict.fromkeys(columns, 'str')}, keep_default_na=False"
    return f"for labels of these names read them with {_read_csv(types)} and give the frame"


def _read_csv(options: str) -> str:
    return f"pandas.read_csv(path, sep=None, engine='python', {options})"


def _separators(words: Sequence[str], texts: Sequence[str], more: str) -> str:
    """Return the advice on decimal commas and on marks between thousands; empty if it is neither.

    Parameters
    ----------
    words : those that are not numbers
    texts : all of them
    more : options that are needed as well
    """
    grouped = [_GROUPED.fullmatch(word.strip()) for word in words]
    marks = {found["mark"] for found in grouped if found}
    points = {found["point"] for found in grouped if found and found["point"]}
    plain = [word for word, found in zip(words, grouped, strict=True) if not found]
    decimal, are_commas = "decimal=','", all(map(_is_decimal_comma, plain))
    if plain and marks == {"."} and are_commas:
        points.add(",")
    if len(marks) == 1 and not points & marks and (not plain or "," in points):
        (mark,) = marks
        thousands = f"thousands={mark!r}"
        # One group after a comma may be three decimals.
        if all(map(_is_decimal_comma, words)) and not any("." in text for text in texts):
            return (
                f"; if the comma separates thousands, read it with {_read_csv(thousands + more)}; "
                f"if it is the decimal mark, with {decimal} in place of {thousands}; and give the "
                "frame"
            )
        options = f"{thousands}, {decimal}" if "," in points else thousands
        return f"; read it with {_read_csv(options + more)} and give the frame"
    if all(map(_is_decimal_comma, words)):
        return f"; read it with {_read_csv(decimal + more)} and give the frame"
    return ""


def _is_decimal_comma(word: str) -> bool:
    return bool(_DECIMAL_COMMA.fullmatch(word.strip()))


def _is_number(text: str) -> bool:
    try:
        float(text.replace("_", "?"))  # Python reads 1_000, data programs do not
    except ValueError:
        return False
    return True
