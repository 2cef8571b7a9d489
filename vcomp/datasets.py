"""Example data: evaluations and simulated studies made for vcomp, and tables of the papers.

:func:`available` lists them, :func:`load` returns one. How each was made, from what and under
which licence, is written in ``PROVENANCE.md`` beside the files.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING

from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dataset", "available", "load"]


def __dir__() -> list[str]:
    """Return the public names: help and completion show no others."""
    return __all__


@dataclass(frozen=True, slots=True)
class Dataset:
    """Description of a dataset, without its rows.

    Attributes
    ----------
    name : by which :func:`load` returns it
    file : name of the file in the package
    rows, columns : number of rows, and names of the columns
    description : what was measured
    source, licence : origin of the data, and the terms under which they may be passed on
    formula : a model that the design identifies; empty for tables of results
    """

    name: str
    file: str
    rows: int
    columns: tuple[str, ...]
    description: str
    source: str
    licence: str
    formula: str = ""

    def read(self) -> pd.DataFrame:
        """Return the rows of the file."""
        import pandas as pd

        data = BytesIO(_shipped(self.file))
        if self.file.endswith(".parquet"):
            return pd.read_parquet(data, engine="pyarrow")
        return pd.read_csv(data, compression="gzip" if self.file.endswith(".gz") else None)


@cache
def _registry() -> dict[str, Dataset]:
    """Return the datasets by name, as ``shipped/datasets.toml`` describes them."""
    described = tomllib.loads(_shipped("datasets.toml").decode())
    return {
        name: Dataset(name=name, **{**about, "columns": tuple(about["columns"])})
        for name, about in described.items()
    }


def _shipped(file: str) -> bytes:
    """Return the content of a file of the package, which may be in a folder or in a zip."""
    return files("vcomp.data").joinpath("shipped", file).read_bytes()


def load(name: str) -> pd.DataFrame:
    """Return a shipped dataset as a new frame, one row a score (or a row of the printed table).

    Parameters
    ----------
    name : one of the names in ``available()``

    Raises
    ------
    DataError
        If there is no dataset of that name; the message lists all names.

    Examples
    --------
    >>> from vcomp.datasets import load
    >>> load("bodoff2007_alpha").head(3)
               sys    topic  score
    0  algorithm 1  query 1    0.7
    1  algorithm 1  query 2    0.5
    2  algorithm 1  query 3    0.6
    """
    known = _registry()
    if name not in known:
        near = get_close_matches(str(name), known, n=1, cutoff=0.0)
        names = ", ".join(map(repr, known))
        raise DataError(
            f"no dataset is called {name!r}; did you mean {near[0]!r}? There are: {names}"
        )
    return known[name].read()


def available() -> pd.DataFrame:
    """Return the datasets that can be loaded, one row each.

    Returns
    -------
    Frame with index `name` and the columns `rows`, `columns` (names, joined by commas),
    `description`, `source`, `licence`, and `formula`: a model to begin with, empty for tables
    that hold results and not scores.

    Examples
    --------
    >>> from vcomp.datasets import available
    >>> available()["rows"]
    name
    docsearch              13200
    digits                 98890
    essays                   678
    assay                    240
    gauge                     90
    bodoff2007_alpha          15
    bodoff2007_gstudy          7
    bodoff2007_dstudy          4
    bodoff2006_gstudy          7
    trec_collections          43
    trec_cronbach_alpha        8
    Name: rows, dtype: int64
    """
    import pandas as pd

    shown = ("name", "rows", "columns", "description", "source", "licence", "formula")
    records = [{key: getattr(dataset, key) for key in shown} for dataset in _registry().values()]
    frame = pd.DataFrame.from_records(records, index="name")
    return frame.assign(columns=[", ".join(columns) for columns in frame["columns"]])
