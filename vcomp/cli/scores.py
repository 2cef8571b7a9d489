"""Scores of systems on topics, as the commands for test collections read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcomp.cli.output import read_matrix
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.ir import ScoreMatrix

__all__ = [
    "format_option",
    "read_scores",
    "score_options",
    "source_of",
    "topics_option",
]

FORMATS = ("text", "csv", "json")

topics_option = click.option(
    "--topics", metavar="N,N…", help="Numbers of topics; as many as there are if left out."
)

format_option = click.option(
    "--format",
    "format_",
    default="text",
    show_default=True,
    type=click.Choice(FORMATS),
    help="What to print.",
)

_KNOWN = {
    "system": ("system", "sys", "run"),
    "topic": ("topic", "query", "qid"),
    "score": ("score", "value"),
}
"""What the columns of long data are often called."""

_OPTIONS = (
    click.option("--dataset", metavar="NAME", help="A data set that comes with vcomp."),
    click.option("--system", metavar="COLUMN", help="Long data: the systems."),
    click.option("--topic", metavar="COLUMN", help="Long data: the topics."),
    click.option("--score", metavar="COLUMN", help="Long data: the scores."),
    click.option(
        "--drop-worst",
        default=0.0,
        show_default=True,
        help="Share of systems to leave out, the worst by mean score.",
    ),
)


def score_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its scores, and the options that say how they are read."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return click.argument("scores", required=False, type=click.Path(path_type=Path))(command)


def source_of(scores: Path | None, dataset: str | None) -> Any:
    """Return the file, or the data set.

    Parameters
    ----------
    scores : a file, or None
    dataset : the name of a data set, or None

    Raises
    ------
    click.UsageError
        If both are given, or none is.
    """
    import vcomp

    if (scores is None) == (dataset is None):
        raise click.UsageError("give one of SCORES and --dataset")
    return scores if dataset is None else vcomp.datasets.load(dataset)


def read_scores(scores: Path | None, dataset: str | None, **columns: str | None) -> ScoreMatrix:
    """Read a topic × system file, or long data, a row a score.

    Data are long if they are a data set, if a column is named, or if they have columns of all
    three names that are known.

    Parameters
    ----------
    scores, dataset : see :func:`source_of`
    **columns : ``system``, ``topic`` and ``score`` of long data, None where they are not given

    Raises
    ------
    DataError
        If the data cannot be read as the one or the other.
    """
    from vcomp.io import open_source
    from vcomp.ir import ScoreMatrix, as_score_matrix

    source = open_source(source_of(scores, dataset))
    for name in columns.values():
        if name is not None and name not in source.columns:
            raise source.no_column(name)
    found = {
        role: columns[role] or next((name for name in known if name in source.columns), None)
        for role, known in _KNOWN.items()
    }
    missing = [role for role, name in found.items() if name is None]
    if not missing:
        named = {role: str(name) for role, name in found.items()}
        return ScoreMatrix.from_long(source, **named)
    if scores is None or any(columns.values()):
        shown = ", ".join(map(repr, source.columns[:20]))
        raise DataError(
            f"long data have columns of systems, topics and scores: name that of the "
            f"{missing[0]}s with --{missing[0]}; the columns are {shown}"
        )
    return as_score_matrix(_all_systems(read_matrix(scores)))


def _all_systems(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a wide table; refuse one that looks long, in the words of the command line."""
    from pandas.api.types import is_numeric_dtype

    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if not is_numeric_dtype(dtype):
            raise DataError(
                f"column {str(name)!r} does not hold the scores of a system: the first column "
                "names the topics, and all others are systems. Of long data, a row a score, name "
                "the columns with --system, --topic and --score"
            )
    return frame
