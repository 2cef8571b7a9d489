"""``vcomp compare-systems``, ``compare-levels`` and ``average-p-values``: tests in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from vcomp.cli.arguments import (
    command,
    dataset_option,
    facets_argument,
    missing_option,
    topic_counts,
    with_options,
    workers_option,
)
from vcomp.cli.fit_commands import data_of_paths
from vcomp.cli.output import check_picture, save
from vcomp.cli.score_commands import format_option, formatted, read_scores, score_options
from vcomp.exceptions import PlanError

_alpha_option = click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    help="Level of significance; intervals have level 1 − alpha.",
)

_shown_options = with_options(
    click.option(
        "--show",
        type=click.IntRange(min=0),
        default=20,
        show_default=True,
        help="Largest number of pairs to show.",
    ),
    click.option(
        "--plot", "picture", metavar="FILE", help="Draw a picture: FILE.png, .svg or .pdf."
    ),
    click.option(
        "--kind",
        type=click.Choice(["groups", "p_values"]),
        default="groups",
        show_default=True,
        help="Of the picture: groups that are alike, or the p-values of all pairs.",
    ),
    format_option,
)
"""What is printed and drawn of pairs."""

_EXAMPLES = """
\b
Examples:
  vcomp compare-systems matrix.csv --test tukey --plot groups.png
  vcomp compare-systems scores.parquet --system run --systems bm25,rm3
  vcomp compare-systems matrix.csv --baseline bm25 --alternative greater --correction fdr_bh
  vcomp compare-systems matrix.csv --test permutation --replicates 100000 --format csv

\b
Tests:
  of single pairs     t, wilcoxon, sign, permutation, bootstrap
  of all pairs        tukey, randomised_tukey
"""


@command("compare-systems", epilog=_EXAMPLES)
@score_options
@click.option("--test", default="t", show_default=True, metavar="NAME", help="The test.")
@click.option(
    "--systems", multiple=True, metavar="NAME,NAME…", help="Systems to compare.  [default: all]"
)
@click.option("--baseline", metavar="NAME", help="Compare each other system with this one.")
@click.option(
    "--correction",
    metavar="NAME",
    help="For the number of pairs: holm, bonferroni, fdr_bh (Benjamini-Hochberg), fdr_by, none.  "
    "[default: holm; Tukey's tests need none]",
)
@click.option(
    "--alternative",
    default="two-sided",
    show_default=True,
    metavar="NAME",
    help="two-sided; greater, if the first system is better; less.",
)
@click.option(
    "--zeros",
    metavar="NAME",
    help="Wilcoxon: treatment of differences of zero: pratt, wilcox, zsplit.  [default: pratt]",
)
@_alpha_option
@click.option(
    "--replicates",
    "n",
    type=int,
    metavar="N",
    help="Replicates of resampling tests.  [default: 10,000, or as many as the correction needs]",
)
@click.option("--seed", "rng", type=int, metavar="N", help="Seed of the replicates.")
@workers_option
@_shown_options
def compare_systems_command(
    scores: Path | None,
    dataset: str | None,
    system: str | None,
    topic: str | None,
    score: str | None,
    drop_worst: float,
    systems: Sequence[str],
    show: int,
    picture: str | None,
    kind: Any,
    format_: str,
    **how: Any,
) -> None:
    """Test the differences between systems on the same topics, in pairs.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score. CSV and JSON have a row for each pair.
    """
    from vcomp.ir import compare_systems

    if picture is not None:
        check_picture(picture)
    matrix = read_scores(scores, dataset, system=system, topic=topic, score=score)
    named = facets_argument(systems) or None
    made = compare_systems(matrix.drop_worst(drop_worst), systems=named, **how)
    click.echo(formatted(made.table, format_, str(made.summary(show))))
    if picture is not None:
        save(made.plot(kind), picture)


_EXAMPLES_OF_LEVELS = """
\b
Examples:
  vcomp compare-levels sys "score ~ sys + query + (1|topic) + (1|sys:topic)" --dataset docsearch
  vcomp compare-levels diet "weight ~ diet * time + (1|animal)" weights.csv --baseline A
  vcomp compare-levels lab "y ~ (1|lab/day)" assay.parquet --format csv
"""


@command("compare-levels", epilog=_EXAMPLES_OF_LEVELS)
@click.argument("facet")
@click.argument("formula")
@click.argument("data", nargs=-1, metavar="[DATA]...")
@dataset_option
@click.option(
    "--method", default="reml", show_default=True, metavar="NAME", help="How the model is fitted."
)
@missing_option
@click.option(
    "--test", default="t", show_default=True, metavar="NAME", help="t, tukey or dunnett."
)
@click.option(
    "--levels", multiple=True, metavar="NAME,NAME…", help="Levels to compare.  [default: all]"
)
@click.option("--baseline", metavar="NAME", help="Compare each other level with this one.")
@click.option(
    "--correction",
    metavar="NAME",
    help="For the number of pairs: holm, bonferroni, fdr_bh (Benjamini-Hochberg), fdr_by, none.  "
    "[default: holm; tukey and dunnett need none]",
)
@click.option(
    "--ddf",
    metavar="NAME",
    help="Degrees of freedom: satterthwaite, kenward-roger, normal.  [default: satterthwaite]",
)
@click.option(
    "--cov-type", metavar="NAME", help="Variances: model, or robust from rows.  [default: model]"
)
@_alpha_option
@_shown_options
def compare_levels_command(
    facet: str,
    formula: str,
    data: tuple[str, ...],
    dataset: str | None,
    method: Any,
    missing: Any,
    levels: Sequence[str],
    show: int,
    picture: str | None,
    kind: Any,
    format_: str,
    **how: Any,
) -> None:
    """Test the differences between levels of FACET in the model FORMULA, in pairs.

    FACET is a factor of the fixed part, whose least-squares means are compared, or a random term,
    whose predicted effects are. DATA are CSV or Parquet files, folders or patterns. CSV and JSON
    have a row for each pair.
    """
    import vcomp

    if picture is not None:
        check_picture(picture)
    paths = data_of_paths(data)
    if (paths is None) == (dataset is None):
        raise click.UsageError("give one of DATA and --dataset")
    source = paths if dataset is None else vcomp.datasets.load(dataset)
    res = vcomp.fit(formula, source, method=method, missing=missing)
    made = res.compare_levels(facet, levels=facets_argument(levels) or None, **how)
    click.echo(formatted(made.table, format_, str(made.summary(show))))
    if picture is not None:
        save(made.plot(kind), picture)


_EXAMPLES_OF_P_VALUES = """
\b
Examples:
  vcomp average-p-values matrix.csv --topics 10,25,50,100 --plot p-values.png
  vcomp average-p-values --dataset docsearch --bins 0,.02,.05,.1,1 --test wilcoxon
  vcomp average-p-values scores.parquet --system run --sides 1 --format csv
"""


@command("average-p-values", epilog=_EXAMPLES_OF_P_VALUES)
@score_options
@click.option(
    "--topics",
    metavar="N,N…",
    help="Numbers of topics, also more than there are.  [default: ten from 5 to all]",
)
@click.option(
    "--bins",
    metavar="X,X…",
    help="Bounds of the bins of differences, increasing; inf has no end.  [default: "
    "0,.01,.02,.03,.04,.05,.06,.08,.1,inf]",
)
@click.option(
    "--test", default="t", show_default=True, metavar="NAME", help="t, or wilcoxon: signed ranks."
)
@click.option(
    "--sides", type=int, default=2, show_default=True, metavar="N", help="2, or 1: one-sided."
)
@click.option(
    "--trials",
    type=int,
    metavar="N",
    help="Subsets of each number of topics.  [default: 100, or fewer if there are many systems]",
)
@click.option("--seed", "rng", type=int, metavar="N", help="Seed of the subsets.")
@workers_option
@click.option("--plot", "picture", metavar="FILE", help="Draw a picture: FILE.png, .svg or .pdf.")
@format_option
def average_p_values_command(
    scores: Path | None,
    dataset: str | None,
    system: str | None,
    topic: str | None,
    score: str | None,
    drop_worst: float,
    topics: str | None,
    bins: str | None,
    picture: str | None,
    format_: str,
    **how: Any,
) -> None:
    """Average the p-values of differences between systems, by their size and the topics.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score. Up to the topics of the scores, p-values are
    measured on random subsets; beyond, they are forecasts. CSV and JSON have a row for each number
    of topics and bin.
    """
    from vcomp.ir import average_p_values

    if picture is not None:
        check_picture(picture)
    n = topic_counts(topics)
    if bins is not None:
        how["bins"] = _bounds(bins)
    matrix = read_scores(scores, dataset, system=system, topic=topic, score=score)
    made = average_p_values(matrix.drop_worst(drop_worst), n, **how)
    click.echo(formatted(made.table, format_, str(made)))
    if picture is not None:
        save(made.plot(), picture)


def _bounds(text: str) -> list[float]:
    """Return the numbers in ``0,.05,inf``."""
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise PlanError(f"--bins {text!r} are not numbers; write 0,.02,.05,inf") from None
