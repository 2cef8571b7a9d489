"""Options and report that ``vcomp fit`` and ``vcomp gstudy`` share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from vcomp.cli import output
from vcomp.cli.arguments import (
    EXAMPLES,
    columns_argument,
    command,
    dataset_option,
    missing_option,
    options_given,
    progress_option,
    sizes_argument,
    with_options,
)
from vcomp.cli.output import check_picture, draw
from vcomp.cli.planning_commands import plan_of, plan_options
from vcomp.ir.rank import TauEstimator, check_tau_estimator

row_options = with_options(
    click.option(
        "--stream/--no-stream",
        default=None,
        help="Read rows in batches, or keep them in memory.  [default: by their size]",
    ),
    progress_option,
    click.option(
        "--augment",
        "augmented",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write fitted values and residuals of all rows to FILE.parquet.",
    ),
)
"""How rows are read, and what is written of each."""

fit_options = with_options(
    plan_options,
    dataset_option,
    click.option(
        "--method",
        default="reml",
        show_default=True,
        metavar="NAME",
        help="reml, ml, anova (Henderson's Method I), type1, henderson3 or minque.",
    ),
    missing_option,
    click.option("--max-iter", type=int, metavar="N", help="REML, ML: most iterations."),
    click.option(
        "--tol", type=float, metavar="X", help="REML, ML: tolerance, in standard errors."
    ),
    click.option("--hold", multiple=True, metavar="NAME=X", help="REML, ML: a known component."),
    click.option("--start", multiple=True, metavar="NAME=X", help="REML, ML: starting value."),
    click.option(
        "--engine",
        metavar="NAME",
        help="REML, ML: auto, strata, blocked or iterative.  [default: auto]",
    ),
    click.option(
        "--probes",
        "n_probes",
        type=int,
        metavar="N",
        help="Number of random probes of the iterative engine.",
    ),
    click.option("--seed", "rng", type=int, metavar="N", help="Seed of the random probes."),
    click.option(
        "--prior",
        multiple=True,
        metavar="NAME=X",
        help="MINQUE: the prior value of a component; give all of them.",
    ),
    click.option(
        "--iterated",
        is_flag=True,
        default=None,
        help="MINQUE: iterate to the solution of the REML equations.",
    ),
    click.option(
        "--negative",
        metavar="NAME",
        help="Closed forms: keep negative estimates, or refit without their terms.  "
        "[default: keep]",
    ),
    click.option("--dstudy", "sizes", multiple=True, metavar="FACET=N,N…", help="Plan a D-study."),
    click.option(
        "--tau", is_flag=True, help="Estimate the expected rank correlations Eτ and Eτ_AP."
    ),
    click.option(
        "--estimator",
        metavar="NAME",
        help="With --tau: shrunken, or urbano as published.  [default: shrunken]",
    ),
    click.option(
        "--alpha", default=0.05, show_default=True, help="Intervals have confidence 1 − alpha."
    ),
    click.option(
        "--interval",
        default="auto",
        show_default=True,
        metavar="NAME",
        help="How intervals are made: auto, mls, robust, f, satterthwaite, log, wald, profile, "
        "bootstrap.",
    ),
    click.option(
        "--json", "json_file", metavar="FILE", help="Store the result as JSON; - prints it."
    ),
    click.option(
        "--plot",
        "picture",
        metavar="FILE",
        help="Draw the D-study, or the components if there is none: FILE.png, .svg or .pdf.",
    ),
)
"""Options of a fit and of the D-study after it."""


def data_of_paths(paths: Sequence[str]) -> Any:
    """Return one path as it is, several as a list, and None if there is none."""
    return None if not paths else paths[0] if len(paths) == 1 else list(paths)


def fit_report(
    fitted: Callable[..., Any],
    data: Any,
    design: str | None,
    *,
    dataset: str | None,
    method: str,
    missing: str,
    sizes: tuple[str, ...],
    object_: str | None,
    fixed: tuple[str, ...],
    universe: tuple[str, ...],
    within: tuple[str, ...],
    tau: bool,
    estimator: TauEstimator | None,
    alpha: float,
    interval: str,
    json_file: str | None,
    picture: str | None,
    augmented: Path | None = None,
    **of_method: Any,
) -> None:
    """Fit, then print, draw and store what was requested.

    Parameters
    ----------
    fitted : a function that fits the data with options and returns the result
    data : argument of `fitted`, or None
    design : of the D-study, or None
    dataset : name of a data set that is part of vcomp, if there is no file
    sizes : of the D-study, as text
    object_, fixed, universe, within : object of measurement and universe of generalization
    tau, estimator : whether Eτ and Eτ_AP are estimated, and how
    augmented : file for fitted values and residuals, or None
    of_method : options of the method
    """
    import vcomp
    from vcomp.data import parquet_path

    if (data is None) == (dataset is None):
        raise click.UsageError("give one of DATA and --dataset")
    if estimator is not None and not tau:
        raise click.UsageError("--estimator applies to Eτ and Eτ_AP, and needs --tau")
    if tau:
        check_tau_estimator(estimator or "shrunken")
        if within:
            raise click.UsageError("--tau ranks all objects, and --within only those of a level")
    if picture is not None:
        check_picture(picture)
    data, sizes = _with_further_sizes(data, sizes)
    source = data if dataset is None else vcomp.datasets.load(dataset)
    if augmented is not None:
        parquet_path(augmented, "--augment")
    n, plan = sizes_argument(sizes), plan_of(object_, fixed, universe, within)
    options = options_given(**of_method)
    res = fitted(source, method=method, missing=missing, **options)
    if augmented is not None:
        res.augment(path=augmented)
    # Replicates are made once for all tables.
    how: Any = res.bootstrap() if interval == "bootstrap" else interval
    study = None
    if n or design or plan:
        # Satterthwaite's intervals are of components alone.
        coefficients = "auto" if interval == "satterthwaite" else how
        study = res.dstudy(design, sizes=n, alpha=alpha, interval=coefficients, **plan)
    ranks = None
    if tau:
        planned = plan if design is None else {**plan, "design": design}
        ranks = output.rank_accuracy(res, n, planned, alpha, estimator or "shrunken")
    if picture is not None:
        draw(res, study, picture, alpha, how)
    if json_file is not None:
        output.write(output.as_json(res, study, ranks), json_file)
    if json_file != "-":
        click.echo(output.fit_text(res, study, ranks, alpha, how))


def _with_further_sizes(data: Any, sizes: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """Return the data and the sizes, with sizes that follow --dstudy unquoted: t=3,6 r=4."""
    paths = [data] if isinstance(data, str) else data
    if not sizes or not isinstance(paths, list):
        return data, sizes
    further = [p for p in paths if re.fullmatch(r"\w+=[\d.,]+", p) and not Path(p).exists()]
    return data_of_paths([p for p in paths if p not in further]), (*sizes, *further)


@command(epilog=EXAMPLES)
@click.argument("data", nargs=-1, metavar="[DATA]...")
@click.option(
    "--design", required=True, metavar="TEXT", help="Design of the data, such as 'p x (i:h)'."
)
@click.option(
    "--response",
    required=True,
    metavar="TEXT",
    help="The column of the scores, or an expression: run as Python code, as formulas are.",
)
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
            design, source, response, facets=columns, stream=stream, progress=progress, **options
        )

    fit_report(fitted, data_of_paths(data), dstudy_design, **given)
