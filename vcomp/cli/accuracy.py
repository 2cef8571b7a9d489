"""``vcomp accuracy``: how near to the truth tests of other sizes would come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from vcomp.cli.arguments import facets_argument, topic_counts
from vcomp.cli.picture import check_picture, save
from vcomp.cli.scores import format_option, read_scores, score_options, source_of, topics_option

__all__ = ["accuracy_command", "formatted"]

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
@click.option(
    "--formula", metavar="TEXT", help="Long data of any design: fit this, and go on from the fit."
)
@click.option(
    "--facet", metavar="NAME", help="With --formula: what is sampled.  [default: its second facet]"
)
@topics_option
@click.option(
    "--measures",
    multiple=True,
    metavar="NAME,NAME…",
    help="What to estimate.  [default: tau,tau_ap,Erho2,Phi,rmse]",
)
@click.option(
    "--estimator",
    default="best",
    show_default=True,
    metavar="NAME",
    help="best for each measure, or split_half for all.",
)
@click.option("--model", metavar="NAME", help="Split halves: exp1, exp2 or logit.")
@click.option("--trials", type=int, metavar="N", help="Split halves: pairs of each size.")
@click.option("--seed", "rng", type=int, metavar="N", help="Seed of halves and intervals.")
@click.option("--alpha", default=0.05, show_default=True, help="Intervals have level 1 − alpha.")
@click.option("--plot", "picture", metavar="FILE", help="Draw as FILE.png, .svg or .pdf.")
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
    """How accurate tests of other sizes would be, by several measures.

    SCORES is a CSV or Parquet file with a row a topic and a column a system, or long data, a row a
    score, with columns for systems, topics and scores.
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
