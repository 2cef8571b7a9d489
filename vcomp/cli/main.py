"""``vcomp``: the commands, their exit codes and error messages."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from vcomp import __version__
from vcomp.cli import output
from vcomp.cli.arguments import (
    alpha_option,
    columns_argument,
    components_argument,
    sizes_argument,
    topic_counts,
    topics_option,
)
from vcomp.cli.fit_commands import data_of_paths, fit_options, fit_report, row_options
from vcomp.cli.large_commands import accumulate, fit, merge
from vcomp.cli.planning_commands import allocation_text, cut_score_text, plan_of, plan_options
from vcomp.cli.score_commands import (
    accuracy_command,
    format_option,
    formatted,
    items,
    read_scores,
    score_options,
    simulate_command,
)
from vcomp.exceptions import VcompError, VcompWarning
from vcomp.ir.rank import RankOptions, TauVariant

_EXAMPLES = """
\b
Examples:
  vcomp fit "score ~ (1|sys) + (1|topic)" scores.csv
  vcomp fit "score ~ (1|sys*topic)" --dataset docsearch --dstudy topic=50,100 --tau
  vcomp fit "y ~ 1 + (1|day/run)" assay.parquet --method anova --json fit.json
  vcomp fit "score ~ (1|sys) + (1|topic/doc)" "scores/*.parquet" --stream
  vcomp gstudy ratings.csv --design "p x (r:t)" --response score --facet p=person
  vcomp gstudy "scores/*.parquet" --design "p x a x (d:i)" --response score --stream
  vcomp dstudy fit.json run=2,3 day=20
  vcomp accumulate "score ~ (1|sys) + (1|topic)" monday/ --out monday.vcomp
  vcomp merge monday.vcomp tuesday.vcomp --out week.vcomp
  vcomp fit --statistics week.vcomp --dstudy topic=50,100
  vcomp dstudy --components "p=.00751 i=.01596 a=0 pi=.01258 pa=.00002 ia=.00143 pia=.00176" \\
      i=50,100 a=1,2 --cost "5*i + i:a" --budget 1000 --alternative "p x (a:i)"
  vcomp tau matrix.csv --topics 25,50,100
  vcomp accuracy matrix.csv --topics 25,50,100 --plot accuracy.png
  vcomp simulate matrix.csv --topics 50 --collections 100 --out new.parquet
  vcomp items answers.csv
  vcomp datasets
"""


@click.group(epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vcomp")
def cli() -> None:
    """Estimate variance components and plan reliable tests.

    How much of the variation in scores is due to systems, topics, judges or documents, how
    reliable the test is, and how many topics or judges would make it reliable enough.
    """


@cli.command(epilog=_EXAMPLES)
@click.argument("data", nargs=-1, metavar="[DATA]...")
@click.option(
    "--design", required=True, metavar="TEXT", help="Design of the data, such as 'p x (i:h)'."
)
@click.option("--response", required=True, metavar="COLUMN", help="The column of the scores.")
@click.option(
    "--facet", "facets", multiple=True, metavar="NAME=COLUMN", help="The column of a facet."
)
@click.option("--dstudy-design", metavar="TEXT", help="Design of the D-study, if different.")
@row_options
@fit_options
def gstudy(
    data: tuple[str, ...],
    design: str,
    response: str,
    facets: Sequence[str],
    dstudy_design: str | None,
    stream: bool | None,
    progress: bool | None,
    **given: Any,
) -> None:
    """Estimate all components of a design in Brennan's notation from DATA.

    DATA are CSV or Parquet files, folders or patterns. Large data are read in batches, in two
    passes.
    """
    import vcomp

    columns = columns_argument(facets)

    def fitted(source: Any, **options: Any) -> Any:
        return vcomp.gstudy(
            source, design, response, facets=columns, stream=stream, progress=progress, **options
        )

    fit_report(fitted, data_of_paths(data), dstudy_design, **given)


@cli.command(epilog=_EXAMPLES)
@click.argument("arguments", nargs=-1, metavar="[RESULT.json] [FACET=N,N…]…")
@click.option("--components", metavar="TEXT", help="Published components: 'p=.0075 i=.016 …'.")
@click.option("--design", metavar="TEXT", help="Design of the D-study, such as 'p x (a:i)'.")
@plan_options
@click.option(
    "--layout", type=click.Path(path_type=Path), help="A table of the planned observations."
)
@click.option("--goal", type=float, help="Also print the sizes that reach this coefficient.")
@click.option("--facet", metavar="FACET", help="With --goal: the facet whose size is sought.")
@click.option("--cut", metavar="X,X…", help="Cut scores λ: print the dependability Φ(λ).")
@click.option("--cost", metavar="TEXT", help="Prices, such as '50*topic + 2*topic:judge + 1000'.")
@click.option("--budget", type=float, help="With --cost: find the best design within it.")
@click.option(
    "--coefficient",
    help="With --cost: Erho2 (the default), Phi, rel_err_var or abs_err_var. With --goal "
    "alone: Erho2 or Phi, by default both.",
)
@click.option(
    "--alternative", "alternatives", multiple=True, help="With --cost: another design to compare."
)
@click.option("--n-objects", type=int, help="With --cost: number of objects measured.")
@click.option(
    "--plot", "picture", type=click.Path(path_type=Path), help="With --cost: draw the frontier."
)
@alpha_option
@click.option(
    "--interval",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="How intervals are made: auto, mls, robust, f, log, wald.",
)
def dstudy(
    arguments: Sequence[str],
    components: str | None,
    design: str | None,
    layout: Path | None,
    goal: float | None,
    facet: str | None,
    cut: str | None,
    cost: str | None,
    budget: float | None,
    coefficient: str | None,
    alternatives: Sequence[str],
    n_objects: int | None,
    picture: Path | None,
    alpha: float,
    interval: str,
    **plan: Any,
) -> None:
    """Plan a D-study from a stored result or from published components."""
    import vcomp

    files = [a for a in arguments if "=" not in a]
    if len(files) > 1:
        raise click.UsageError(f"{files[1]!r} is not a size; write FACET=N such as topic=50")
    if len(files) + (components is not None) != 1:
        raise click.UsageError("give one of RESULT.json and --components")
    if facet is not None and (goal is None or cost is not None):
        raise click.UsageError("--facet needs --goal, and cannot be used with --cost")
    if goal is None and cost is None and coefficient is not None:
        raise click.UsageError("--coefficient needs --goal, or --cost with --budget")
    n = sizes_argument([a for a in arguments if "=" in a])
    source: Any
    if components is not None:
        source = vcomp.from_components(components_argument(components))
    else:
        source = vcomp.VarianceComponentsResults.from_json(Path(files[0]))
    study = source.dstudy(
        design, layout=layout, sizes=n, alpha=alpha, interval=interval, **plan_of(**plan)
    )
    cheapest = None if cost is None else goal
    texts = [
        str(study.summary()),
        cut_score_text(study, cut),
        allocation_text(
            study, cost, budget, cheapest, coefficient or "Erho2", alternatives, picture, n_objects
        ),
    ]
    click.echo("\n\n".join(text for text in texts if text is not None))
    if goal is not None and cost is None:
        for name in ("Erho2", "Phi") if coefficient is None else (coefficient,):
            click.echo(str(study.required(goal, name, facet)))


@cli.command("tau", epilog=_EXAMPLES)
@score_options
@topics_option
@click.option(
    "--estimator",
    default="shrunken",
    show_default=True,
    metavar="NAME",
    help="How Eτ and Eτ_AP are estimated: shrunken, or urbano as published.",
)
@click.option(
    "--threshold",
    default=0.0,
    show_default=True,
    help="Largest difference of systems that count as equal.",
)
@click.option(
    "--variant",
    default="a",
    show_default=True,
    metavar="NAME",
    help="a or b: treat equal systems in Eτ as τ_a or τ_b does.",
)
@click.option(
    "--target",
    default="test",
    show_default=True,
    metavar="NAME",
    help="Intervals of the correlation of one test (test), or of its expectation (expectation).",
)
@click.option(
    "--interval",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="How intervals are made: draws; or independent, for independent swaps as published. "
    "auto means independent with --estimator urbano and --target test, else draws.",
)
@alpha_option
@click.option(
    "--seed",
    "rng",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of the intervals.",
)
@format_option
def tau_command(
    scores: Path | None,
    dataset: str | None,
    system: str | None,
    topic: str | None,
    score: str | None,
    drop_worst: float,
    topics: str | None,
    variant: TauVariant,
    format_: str,
    **options: Any,
) -> None:
    """Estimate the expected correlation of a ranking by n topics with the true ranking.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score and columns for systems, topics and scores.
    """
    from vcomp import ir

    n = topic_counts(topics)
    matrix = read_scores(scores, dataset, system=system, topic=topic, score=score)
    options["drop_worst"] = drop_worst
    tau = ir.expected_tau(matrix, n, variant=variant, **options)
    tau_ap = ir.expected_tau_ap(matrix, n, **options)
    how = RankOptions(**{name: options[name] for name in ("estimator", "target", "interval")})
    text = output.rank_text("topic", tau, tau_ap, options["alpha"], how)
    click.echo(formatted(output.both_ranks(tau, tau_ap), format_, text))


cli.add_command(fit)
cli.add_command(accumulate)
cli.add_command(merge)
cli.add_command(accuracy_command)
cli.add_command(simulate_command)
cli.add_command(items)


@cli.command()
@click.argument("name", required=False)
def datasets(name: str | None) -> None:
    """List the data sets of vcomp, or print one as CSV."""
    from vcomp.datasets import available, load

    if name is not None:
        click.echo(load(name).to_csv(index=False), nl=False)
    else:
        click.echo(output.dataset_text(available()))


def main() -> None:
    """Run the command line; an error of the user prints one message and exits with code 2."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show Greek letters gets question marks, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    warnings.simplefilter("always", VcompWarning)
    try:
        sys.exit(cli(standalone_mode=False))
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2 the help is an error
            error.show()
            sys.exit(2)
        # One line, like every other mistake; the usage is a --help away.
        click.echo(f"vcomp: error: {error.format_message()} (see --help)", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("vcomp: interrupted", err=True)
        sys.exit(130)
    except VcompError as error:
        click.echo(f"vcomp: error: {error}", err=True)
        sys.exit(2)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if issubclass(category, VcompWarning):
        click.echo(f"vcomp: warning: {message}", err=True)
