"""``vcomp items``: reliability and item analysis of a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vcomp.cli import output
from vcomp.cli.arguments import alpha_option, dataset_option
from vcomp.cli.output import check_picture, save
from vcomp.data import ITEMS
from vcomp.exceptions import DataError

_EXAMPLES = """
\b
Examples:
  vcomp items answers.csv
  vcomp items runs.csv --object sys --item topic --score score
  vcomp items topic_by_system.csv --transpose --show 10
"""


@click.command(epilog=_EXAMPLES)
@click.argument("data", required=False, type=click.Path(path_type=Path))
@dataset_option
@click.option(
    "--object",
    "object_",
    metavar="COLUMN",
    help="Long data: the column of objects (persons, systems).",
)
@click.option("--item", metavar="COLUMN", help="Long data: the column of items.")
@click.option("--score", metavar="COLUMN", help="Long data: the column of scores.")
@click.option("--transpose", is_flag=True, help="The matrix has items in rows.")
@click.option(
    "--missing",
    type=click.Choice(["pairwise", "listwise", "raise"]),
    help="Missing scores: use pairs of columns, leave out incomplete objects, or stop.  [default: "
    "REML for the reliability, pairwise for the items]",
)
@click.option(
    "--low", default=0.2, show_default=True, help="Flag item-rest correlations below this."
)
@click.option(
    "--show",
    type=click.IntRange(min=1),
    default=25,
    show_default=True,
    help="Largest number of items to show.",
)
@alpha_option
@click.option("--csv", "csv_file", metavar="FILE", help="Store the table; - prints it.")
@click.option("--plot", "picture", metavar="FILE", help="Draw the items: FILE.png, .svg or .pdf.")
def items(
    data: Path | None,
    dataset: str | None,
    object_: str | None,
    item: str | None,
    score: str | None,
    transpose: bool,
    missing: str | None,
    low: float,
    show: int,
    alpha: float,
    csv_file: str | None,
    picture: str | None,
) -> None:
    """Estimate the reliability of a test and analyse its items, flagged ones first.

    DATA is a CSV or Parquet file: a matrix with a row for each object (person, system) and a
    column for each item, or long data with --object, --item and --score.
    """
    import vcomp

    if (data is None) == (dataset is None):
        raise click.UsageError("give one of DATA and --dataset")
    if picture is not None:
        check_picture(picture)
    names: dict[str, Any] = {"object": object_, "item": item, "score": score}
    scores: Any = data if dataset is None else vcomp.datasets.load(dataset)
    if not any(names.values()):
        if data is None:
            raise click.UsageError("a data set is long: give --object, --item and --score")
        scores = output.read_matrix(data)
        if not transpose and str(scores.index.name).lower() in ITEMS.column_names:
            raise DataError(
                f"the rows of {data.name!r} look like items, as they are called "
                f"{scores.index.name!r}: give --transpose"
            )
        scores = scores.T if transpose else scores
    elif transpose:
        raise click.UsageError("--transpose needs a matrix; the columns of long data are named")
    how: dict[str, Any] = {} if missing is None else {"missing": missing}
    analysis = vcomp.item_analysis(scores, low=low, **names, **how)
    if csv_file != "-":
        click.echo(str(vcomp.reliability(scores, alpha=alpha, **names, **how).summary()))
        click.echo()
        click.echo(str(analysis.summary(show)))
    if csv_file is not None:
        output.write(analysis.table.to_csv().rstrip("\n"), csv_file)
    if picture is not None:
        save(analysis.plot(), picture)
