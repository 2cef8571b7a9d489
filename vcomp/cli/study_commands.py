"""``vcomp documents``, ``assessors`` and ``subsamples``: studies of many fits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from vcomp.cli.arguments import (
    alpha_option,
    columns_argument,
    command,
    dataset_option,
    facets_argument,
    groups_of_file,
    missing_option,
    sizes_argument,
    workers_option,
)
from vcomp.cli.fit_commands import data_of_paths
from vcomp.cli.output import check_picture, save
from vcomp.cli.score_commands import format_option, formatted, source_of
from vcomp.exceptions import PlanError

_goal_option = click.option(
    "--goal", default=0.95, show_default=True, help="Coefficient for the required sizes."
)

_facet_option = click.option("--facet", metavar="NAME", help="The facet whose size is required.")

_method_option = click.option("--method", metavar="NAME", help="How components are estimated.")

_plot_option = click.option(
    "--plot", "picture", metavar="FILE", help="Draw a picture: FILE.png, .svg or .pdf."
)


def _given(**options: Any) -> dict[str, Any]:
    """Return the options that were given, so that the others have their defaults in Python."""
    return {name: value for name, value in options.items() if value is not None}


_EXAMPLES_OF_DOCUMENTS = """
\b
Examples:
  vcomp documents runs/ qrels.txt topic=50
  vcomp documents "runs/input.*" qrels/ topic=50 assessor=1,2 --measures F,utility
  vcomp documents retrieved.parquet judged.csv --universe all --scores accuracy
"""


@command("documents", epilog=_EXAMPLES_OF_DOCUMENTS)
@click.argument("retrieved")
@click.argument("judgements")
@click.argument("sizes", nargs=-1, metavar="[FACET=N,N]...")
@click.option(
    "--measures",
    multiple=True,
    metavar="NAME,NAME…",
    help="Set-based measures: precision, recall, F, utility, normalized_utility, scaled_utility, "
    "mean_score.  [default: F,utility,normalized_utility]",
)
@click.option("--scores", metavar="NAME", help="Of a document: utility, accuracy.")
@click.option("--beta", type=float, metavar="X", help="Weight of recall in F.  [default: 1]")
@click.option(
    "--universe",
    default="topic",
    show_default=True,
    metavar="NAME",
    help="Whose relevant documents count: topic, assessor, or all that were judged.",
)
@click.option(
    "--relevant-from",
    default=1.0,
    show_default=True,
    metavar="X",
    help="The lowest grade that counts as relevant.",
)
@click.option(
    "--name-by",
    default="runid",
    show_default=True,
    metavar="NAME",
    help="Names of the systems of runs: runid or file.",
)
@click.option(
    "--assessors", metavar="NAME", help="crossed, nested or none.  [default: as in the data]"
)
@_method_option
@_goal_option
@_facet_option
@alpha_option
@_plot_option
@format_option
def documents_command(
    retrieved: str,
    judgements: str,
    sizes: Sequence[str],
    measures: Sequence[str],
    universe: Any,
    relevant_from: float,
    name_by: Any,
    goal: float,
    alpha: float,
    picture: str | None,
    format_: str,
    **how: Any,
) -> None:
    """Compare the reliability of tests by set-based measures and by scores of all documents.

    RETRIEVED are runs in TREC's format (a folder, or a pattern in quotes), or a CSV or Parquet
    file with the columns system, topic and document. JUDGEMENTS are qrels, a file for each
    assessor, or a table with the columns assessor, topic, document and relevant. Sizes are of
    topic, assessor and document.
    """
    import vcomp

    if picture is not None:
        check_picture(picture)
    planned: dict[str, Any] = dict(sizes_argument(sizes))
    unknown = [name for name in planned if name not in ("topic", "assessor", "document")]
    if unknown:
        raise PlanError(f"sizes are of topic, assessor and document, not of {unknown[0]!r}")
    documents = vcomp.ir.document_universe(
        retrieved, judgements, universe=universe, relevant_from=relevant_from, name_by=name_by
    )
    options = _given(measures=facets_argument(measures) or None, **how)
    made = vcomp.per_document_study(documents, goal=goal, alpha=alpha, **options, **planned)
    click.echo(formatted(made.table, format_, str(made)))
    if picture is not None:
        save(made.plot(), picture)


_EXAMPLES_OF_ASSESSORS = """
\b
Examples:
  vcomp assessors scores.csv
  vcomp assessors scores.parquet --response F --system run --assessor judge
"""


@command("assessors", epilog=_EXAMPLES_OF_ASSESSORS)
@click.argument("scores", required=False, type=click.Path(path_type=Path))
@dataset_option
@click.option("--response", default="score", show_default=True, metavar="COLUMN")
@click.option("--system", metavar="COLUMN", help="The column of systems.  [default: system]")
@click.option("--topic", metavar="COLUMN", help="The column of topics.  [default: topic]")
@click.option("--role", metavar="COLUMN", help="The column of roles.  [default: role, if any]")
@click.option(
    "--assessor", metavar="COLUMN", help="The column of individuals.  [default: assessor, if any]"
)
@click.option("--interval", metavar="NAME", help="How intervals are made.  [default: auto]")
@click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    help="Level of the tests; intervals have level 1 − alpha.",
)
@format_option
def assessors_command(
    scores: Path | None,
    dataset: str | None,
    response: str,
    alpha: float,
    format_: str,
    **how: Any,
) -> None:
    """Decide whether assessor error is systematic (roles, individuals) or idiosyncratic.

    SCORES is a CSV or Parquet file with a row for each system, topic and assessment. CSV and JSON
    have a row for each source of error.
    """
    import vcomp

    made = vcomp.assessor_study(source_of(scores, dataset), response, alpha=alpha, **_given(**how))
    sources = made.sources.rename_axis("source").reset_index()
    click.echo(formatted(sources, format_, str(made)))


_EXAMPLES_OF_SUBSAMPLES = """
\b
Examples:
  vcomp subsamples "score ~ (1|sys) + (1|topic)" scores.csv --sizes topic=5,10,25,50 --seed 1
  vcomp subsamples "score ~ (1|sys) + (1|topic)" --dataset docsearch \\
      --sizes "sys=10,40 topic=50" --grid each --dstudy topic=50 --plot spans.png
  vcomp subsamples "score ~ (1|sys) + (1|topic)" scores.csv --sizes sys=1 --groups sys=labs.csv
"""


@command("subsamples", epilog=_EXAMPLES_OF_SUBSAMPLES)
@click.argument("formula")
@click.argument("data", nargs=-1, metavar="[DATA]...")
@dataset_option
@click.option(
    "--sizes",
    multiple=True,
    required=True,
    metavar="FACET=N,N…",
    help="Numbers of levels that are drawn.",
)
@click.option(
    "--trials", default=200, show_default=True, metavar="N", help="Subsets of each size."
)
@click.option(
    "--grid",
    default="all",
    show_default=True,
    metavar="NAME",
    help="all combinations of sizes, or each facet separately.",
)
@click.option(
    "--groups",
    multiple=True,
    metavar="FACET=FILE",
    help="File with a column of levels and one of groups; sizes of FACET are levels of a group.",
)
@_method_option
@missing_option
@click.option(
    "--dstudy",
    "plan",
    multiple=True,
    metavar="FACET=N",
    help="The plan whose coefficients are computed.  [default: the sizes of the data]",
)
@_goal_option
@_facet_option
@alpha_option
@click.option("--seed", "rng", type=int, metavar="N", help="Seed of the subsets.")
@workers_option
@_plot_option
@format_option
def subsamples_command(
    formula: str,
    data: tuple[str, ...],
    dataset: str | None,
    sizes: Sequence[str],
    groups: Sequence[str],
    plan: Sequence[str],
    method: str | None,
    picture: str | None,
    format_: str,
    **how: Any,
) -> None:
    """Estimate components and coefficients from random parts of the data, of several sizes.

    How much the results of a G-study of so many systems or topics vary. DATA are CSV or Parquet
    files, folders or patterns. CSV and JSON have a row for each size and quantity.
    """
    import vcomp

    if picture is not None:
        check_picture(picture)
    paths = data_of_paths(data)
    if (paths is None) == (dataset is None):
        raise click.UsageError("give one of DATA and --dataset")
    source = paths if dataset is None else vcomp.datasets.load(dataset)
    files = columns_argument(groups)
    made = vcomp.subsample_study(
        formula,
        source,
        sizes=sizes_argument(sizes),
        groups={facet: groups_of_file(file) for facet, file in files.items()} or None,
        dstudy=sizes_argument(plan) or None,
        **_given(method=method, **how),
    )
    click.echo(formatted(made.table, format_, str(made)))
    if picture is not None:
        save(made.plot(), picture)
