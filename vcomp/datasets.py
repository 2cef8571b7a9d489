"""Example data: evaluations and simulated studies made for vcomp, and tables of the papers.

:func:`available` lists them, :func:`load` returns one. How each was made, from what and under
which licence, is written in ``PROVENANCE.md`` beside the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING

from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dataset", "available", "load"]

# pandas is imported where a frame is made, so that importing vcomp stays quick


OWN = "BSD-3-Clause"
FACTS = "facts printed in the cited paper"
BODOFF_2006 = "Bodoff (2006), Table 1 and the text below it"
BODOFF_LI = "Bodoff & Li (2007)"
URBANO = "Urbano, Marrero & Martín (2013), Table 1"


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
    formula: str = ""  # a model that the design identifies; empty for tables of results

    def read(self) -> pd.DataFrame:
        """Return the rows of the file, which may be in a folder or in a zip."""
        import pandas as pd

        data = BytesIO(files("vcomp.data").joinpath("shipped", self.file).read_bytes())
        if self.file.endswith(".parquet"):
            return pd.read_parquet(data, engine="pyarrow")
        return pd.read_csv(data, compression="gzip" if self.file.endswith(".gz") else None)


def _all_terms(*groups: str, response: str = "score") -> str:
    return f"{response} ~ " + " + ".join(f"(1|{group})" for group in groups)


REGISTRY = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="docsearch",
            file="docsearch.csv.gz",
            rows=13_200,
            columns=("sys", "topic", "query", "score"),
            description=(
                "Known-item search in Python's documentation: reciprocal ranks of 44 retrieval "
                "systems × 150 topics × 2 formulations of the query"
            ),
            source=(
                "made for vcomp (tools/datasets/docsearch.py) from the docstrings of Python 3.11.7"
            ),
            licence=OWN,
            formula=_all_terms("sys", "topic", "query", "sys:topic", "sys:query", "topic:query"),
        ),
        Dataset(
            name="digits",
            file="digits.parquet",
            rows=98_890,
            columns=("model", "seed", "digit", "image", "score"),
            description=(
                "Handwritten digits: is the image recognised (1) or not (0), 22 classifiers × "
                "5 training seeds × 899 test images nested in 10 digits (REML of all 11 "
                "components takes about a minute and 4 GB, ANOVA some seconds)"
            ),
            source=(
                "made for vcomp (tools/datasets/digits.py) with scikit-learn 1.9.1 and its "
                "load_digits"
            ),
            licence=OWN,
            formula=_all_terms(
                *("model", "seed", "digit", "image", "model:seed", "model:digit", "model:image"),
                *("seed:digit", "seed:image", "model:seed:digit"),
            ),
        ),
        Dataset(
            name="essays",
            file="essays.csv.gz",
            rows=678,
            columns=("person", "genre", "task", "rater", "score"),
            description=(
                "Simulated: essays of 60 persons on 4 tasks, 2 in each of 2 genres, graded from 1 "
                "to 6 by 3 raters; 42 of the 720 grades are missing"
            ),
            source="simulated for vcomp (tools/datasets/essays.py)",
            licence=OWN,
            formula=_all_terms(
                *("person", "genre", "rater", "genre:task", "person:genre", "person:rater"),
                *("genre:rater", "person:genre:task", "genre:task:rater", "person:genre:rater"),
            ),
        ),
        Dataset(
            name="assay",
            file="assay.csv",
            rows=240,
            columns=("sample", "day", "run", "replicate", "result"),
            description=(
                "Simulated: a laboratory's precision by the plan of CLSI EP05: 3 samples, each "
                "measured on 20 days × 2 runs × 2 replicates, in mmol/L. The formula is of one "
                "sample"
            ),
            source="simulated for vcomp (tools/datasets/assay.py)",
            licence=OWN,
            formula="result ~ (1|day/run)",
        ),
        Dataset(
            name="gauge",
            file="gauge.csv",
            rows=90,
            columns=("part", "operator", "trial", "mm"),
            description="Simulated: a gauge study of 10 parts × 3 operators × 3 trials",
            source="simulated for vcomp (tools/datasets/gauge.py)",
            licence=OWN,
            formula=_all_terms("part", "operator", "part:operator", response="mm"),
        ),
        Dataset(
            name="bodoff2007_alpha",
            file="bodoff2007_alpha.csv",
            rows=15,
            columns=("sys", "topic", "score"),
            description="The worked example of Cronbach's alpha: 5 algorithms × 3 queries",
            source=f"{BODOFF_LI}, Figure 2",
            licence=FACTS,
            formula=_all_terms("sys", "topic"),
        ),
        Dataset(
            name="bodoff2007_gstudy",
            file="bodoff2007_gstudy.csv",
            rows=7,
            columns=("component", "variance", "percent", "mean_square"),
            description="G-study of 33 participants (p) × queries (i) × 2 assessors (a), ad hoc",
            source=f"{BODOFF_LI}, Table 1",
            licence=FACTS,
        ),
        Dataset(
            name="bodoff2007_dstudy",
            file="bodoff2007_dstudy.csv",
            rows=4,
            columns=("n_queries", "n_assessors", "Phi", "Erho2"),
            description="Reliability of crossed designs that follows from bodoff2007_gstudy",
            source=f"{BODOFF_LI}, Table 4",
            licence=FACTS,
        ),
        Dataset(
            name="bodoff2006_gstudy",
            file="bodoff2006_gstudy.csv",
            rows=7,
            columns=("component", "variance", "percent", "mean_square"),
            description="G-study of participants (p) × 5 queries (i) × 2 assessors (a), ad hoc",
            source=BODOFF_2006,
            licence=FACTS,
        ),
        Dataset(
            name="trec_collections",
            file="trec_collections.csv",
            rows=43,
            columns=(
                *("track", "documents", "query_set", "measure", "n_systems", "n_queries"),
                *("Erho2", "Erho2_low", "Erho2_high", "Phi", "Phi_low", "Phi_high"),
            ),
            description="Reliability of 43 TREC collections, with 95 % intervals",
            source=URBANO,
            licence=FACTS,
        ),
        Dataset(
            name="trec_cronbach_alpha",
            file="trec_cronbach_alpha.csv",
            rows=8,
            columns=("trec", "track", "alpha"),
            description="Cronbach's alpha of TREC-3 to TREC-10",
            source=f"{BODOFF_LI}, Table 2",
            licence=FACTS,
        ),
    )
}


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
    if name not in REGISTRY:
        raise DataError(_unknown(name))
    return REGISTRY[name].read()


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
    records = [{key: getattr(dataset, key) for key in shown} for dataset in REGISTRY.values()]
    frame = pd.DataFrame.from_records(records, index="name")
    return frame.assign(columns=[", ".join(columns) for columns in frame["columns"]])


def _unknown(name: str) -> str:
    near = get_close_matches(str(name), REGISTRY, n=1, cutoff=0.0)
    return f"no dataset is called {name!r}; did you mean {near[0]!r}? There are: " + ", ".join(
        map(repr, REGISTRY)
    )
