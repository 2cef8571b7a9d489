"""``vcomp diagnose``: the assumptions of a fit or of a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vcomp.cli.arguments import command
from vcomp.cli.output import check_picture, save
from vcomp.cli.score_commands import (
    format_option,
    formatted,
    read_scores,
    score_options,
    source_of,
)
from vcomp.exceptions import PlanError

_EXAMPLES = """
\b
Examples:
  vcomp diagnose matrix.csv --drop-worst .25 --plot assumptions.png
  vcomp diagnose scores.parquet --system run
  vcomp diagnose --dataset docsearch --formula "score ~ (1|sys*topic)"
  vcomp diagnose matrix.csv --format csv > tests.csv
"""


@command("diagnose", epilog=_EXAMPLES)
@score_options
@click.option("--formula", metavar="TEXT", help="Long data of any design: diagnose this model.")
@click.option(
    "--object",
    "object_",
    metavar="NAME",
    help="With --formula: the facet whose levels are correlated.  [default: the first]",
)
@click.option(
    "--draws",
    "n",
    type=int,
    metavar="N",
    help="Draws of each null distribution.  [default: 99 to 999, by size]",
)
@click.option(
    "--seed", "rng", default=0, show_default=True, metavar="N", help="Seed of the draws."
)
@click.option("--plot", "picture", metavar="FILE", help="Draw a page: FILE.png, .svg or .pdf.")
@format_option
def diagnose_command(
    scores: Path | None,
    dataset: str | None,
    system: str | None,
    topic: str | None,
    score: str | None,
    drop_worst: float,
    formula: str | None,
    object_: str | None,
    n: int | None,
    rng: int,
    picture: str | None,
    format_: str,
) -> None:
    """Test the assumptions of a model, and say which numbers deviations matter for.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score. Normality of effects and residuals, equal
    variances, correlations, additivity and outliers are tested.
    """
    import vcomp

    if picture is not None:
        check_picture(picture)
    if formula is None:
        if object_ is not None:
            raise PlanError("--object needs --formula")
        matrix = read_scores(scores, dataset, system=system, topic=topic, score=score)
        diagnosis = vcomp.diagnose(matrix.drop_worst(drop_worst), n=n, rng=rng)
    else:
        _no_columns(system=system, topic=topic, score=score, drop_worst=drop_worst or None)
        res = vcomp.fit(formula, source_of(scores, dataset))
        diagnosis = res.diagnose(object=object_, n=n, rng=rng)
    if picture is not None:
        save(diagnosis.plot()[0], picture)
    click.echo(formatted(diagnosis.table, format_, str(diagnosis)))


def _no_columns(**given: Any) -> None:
    """Refuse options of scores of systems on topics beside a formula."""
    for name, value in given.items():
        if value is not None:
            option = name.replace("_", "-")
            raise PlanError(f"--formula names the columns of the data: leave out --{option}")
