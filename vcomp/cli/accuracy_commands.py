"""``vcomp accuracy``: expected accuracy for other numbers of topics, by several measures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vcomp.cli.arguments import (
    alpha_option,
    dataset_option,
    facets_argument,
    topic_counts,
    topics_option,
    with_options,
)
from vcomp.cli.output import check_picture, read_matrix, save
from vcomp.exceptions import DataError

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.ir import ScoreMatrix

FORMATS = ("text", "csv", "json")

format_option = click.option(
    "--format",
    "format_",
    default="text",
    show_default=True,
    type=click.Choice(FORMATS),
    help="Format of the output.",
)

_KNOWN = {
    "system": ("system", "sys", "run"),
    "topic": ("topic", "query", "qid"),
    "score": ("score", "value"),
}
"""Common names of the columns of long data."""

score_options = with_options(
    click.argument("scores", required=False, type=click.Path(path_type=Path)),
    dataset_option,
    click.option("--system", metavar="COLUMN", help="Long data: the column of systems."),
    click.option("--topic", metavar="COLUMN", help="Long data: the column of topics."),
    click.option("--score", metavar="COLUMN", help="Long data: the column of scores."),
    click.option(
        "--drop-worst",
        default=0.0,
        show_default=True,
        help="Fraction of systems to leave out, the worst by mean score.",
    ),
)
"""Scores of a command, and options that say how they are read."""


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
    """Read a topic × system matrix, or long data with a row for each score.

    Data are long if they are a data set, if a column is named, or if they have columns with
    all three common names.

    Parameters
    ----------
    scores, dataset : see :func:`source_of`
    **columns : ``system``, ``topic`` and ``score`` of long data, None where they are not given

    Raises
    ------
    DataError
        If the data cannot be read as the one or the other.
    """
    from vcomp.data import open_source
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


_EXAMPLES = """
\b
Examples:
  vcomp accuracy matrix.csv --topics 25,50,100 --drop-worst .25 --plot accuracy.png
  vcomp accuracy scores.parquet --system run --measures tau,tau_ap,sens_abs --trials 50
  vcomp accuracy --dataset docsearch --formula "score ~ (1|sys*topic)" --topics 50,150
  vcomp accuracy matrix.csv --format csv > accuracy.csv

\b
Measures:
  by estimators    tau, tau_ap, Erho2, Phi, rmse, F
  by split halves  sens_abs, sens_rel, power_ratio, minor_conflicts, major_conflicts,
                   swap_rate, p_value, d_rank
"""


@click.command("accuracy", epilog=_EXAMPLES)
@score_options
@click.option("--formula", metavar="TEXT", help="Long data of any design: fit this formula first.")
@click.option(
    "--facet", metavar="NAME", help="With --formula: the facet to plan.  [default: the second]"
)
@topics_option
@click.option(
    "--measures",
    multiple=True,
    metavar="NAME,NAME…",
    help="Measures to estimate.  [default: tau,tau_ap,Erho2,Phi,rmse]",
)
@click.option(
    "--estimator",
    default="shrunken",
    show_default=True,
    metavar="NAME",
    help="For τ and τ_AP: shrunken, or urbano as published. For all measures: split_half.",
)
@click.option("--model", metavar="NAME", help="Split halves: the curve exp1, exp2 or logit.")
@click.option(
    "--trials", type=int, metavar="N", help="Split halves: number of pairs of each size."
)
@click.option(
    "--seed", "rng", type=int, metavar="N", help="Seed of the random halves and of intervals."
)
@alpha_option
@click.option("--plot", "picture", metavar="FILE", help="Draw a picture: FILE.png, .svg or .pdf.")
@format_option
def accuracy_command(
    scores: Path | None,
    dataset: str | None,
    system: str | None,
    topic: str | None,
    score: str | None,
    drop_worst: float,
    formula: str | None,
    facet: str | None,
    topics: str | None,
    measures: Sequence[str],
    alpha: float,
    picture: str | None,
    format_: str,
    **how: Any,
) -> None:
    """Estimate the accuracy of tests with other numbers of topics, by several measures.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score and columns for systems, topics and scores.
    """
    from vcomp import ir

    if picture is not None:
        check_picture(picture)
    n, names = topic_counts(topics), facets_argument(measures) or None
    columns = {"system": system, "topic": topic, "score": score}
    if formula is None:
        if facet is not None:
            raise click.UsageError("--facet goes with --formula; else topics are sampled")
        matrix = read_scores(scores, dataset, **columns)
        made = ir.accuracy(matrix, names, n, drop_worst=drop_worst, alpha=alpha, **how)
    else:
        given = [f"--{name}" for name, value in columns.items() if value is not None]
        if given or drop_worst:
            option = (given or ["--drop-worst"])[0]
            raise click.UsageError(f"{option} is of scores without --formula")
        made = _from_formula(
            formula, source_of(scores, dataset), facet, n, measures=names, alpha=alpha, **how
        )
    click.echo(formatted(made.table, format_, str(made)))
    if picture is not None:
        save(made.plot()[0], picture)


def _from_formula(
    formula: str, source: Any, facet: str | None, n: Sequence[float] | None, **how: Any
) -> Any:
    import vcomp

    res = vcomp.fit(formula, source)
    levels = dict(zip(res.design.facets, res.design.n_levels, strict=True))
    sampled = list(levels)[min(1, len(levels) - 1)] if facet is None else facet
    if n is None and facet is None:
        return res.accuracy(**how)
    # A facet that is not there has no levels; it is refused by name.
    return res.accuracy(sizes={sampled: levels.get(sampled, 1) if n is None else n}, **how)


def formatted(table: Any, format_: str, text: str) -> str:
    """Return a table as CSV or JSON, or else the text.

    Parameters
    ----------
    table : a pandas frame
    format_ : ``"text"``, ``"csv"`` or ``"json"``
    text : of the summary
    """
    if format_ == "csv":
        return str(table.to_csv(index=False)).rstrip("\n")
    if format_ == "json":
        return str(table.to_json(orient="records", double_precision=15, force_ascii=False))
    return text
