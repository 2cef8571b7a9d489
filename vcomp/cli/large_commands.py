"""``vcomp fit``, ``accumulate``, ``merge``: data of any size, and their sufficient statistics."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from vcomp.cli.arguments import missing_option, progress_option
from vcomp.cli.fit_commands import data_of_paths, fit_options, fit_report, row_options
from vcomp.exceptions import DataError

_FIT = """
\b
Examples:
  vcomp fit "score ~ (1|sys) + (1|topic)" scores.csv
  vcomp fit "score ~ (1|sys*topic)" --dataset docsearch --dstudy topic=50,100 --tau
  vcomp fit "y ~ 1 + (1|day/run)" assay.parquet --method anova --json fit.json
  vcomp fit "score ~ (1|sys) + (1|topic/doc)" "scores/*.parquet" --stream \\
      --augment residuals.parquet
  vcomp fit --statistics week.vcomp --dstudy topic=50,100
"""

_ACCUMULATE = """
\b
Examples:
  vcomp accumulate "score ~ (1|sys) + (1|topic)" monday.parquet --out monday.vcomp
  vcomp accumulate "score ~ (1|sys) + (1|topic)" tuesday/ "extra/*.parquet" --out tuesday.vcomp
  vcomp merge monday.vcomp tuesday.vcomp --out week.vcomp
  vcomp fit --statistics week.vcomp
"""

_MERGE = """
\b
Examples:
  vcomp merge monday.vcomp tuesday.vcomp --out week.vcomp
  vcomp merge machines/*.vcomp --out all.vcomp
  vcomp fit --statistics all.vcomp --dstudy topic=50,100 --tau
"""

_OUT = click.option(
    "--out",
    "target",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File of the statistics; an existing one is replaced once the new one is complete.",
)


@click.command(epilog=_FIT)
@click.argument("arguments", nargs=-1, metavar="[FORMULA] [DATA]...")
@click.option("--design", metavar="TEXT", help="Design of the D-study, such as 'p x (a:i)'.")
@click.option(
    "--statistics",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Statistics of accumulate or merge, instead of FORMULA and DATA.",
)
@row_options
@fit_options
def fit(
    arguments: tuple[str, ...],
    design: str | None,
    statistics: Path | None,
    stream: bool | None,
    progress: bool | None,
    **given: Any,
) -> None:
    """Estimate the variance components of FORMULA from DATA.

    DATA are CSV or Parquet files, folders or patterns. Large data are read in batches, in two
    passes.
    """
    import vcomp

    if statistics is not None:
        _check_statistics(arguments, stream, progress, given)
        sums = vcomp.AccumulatedStatistics.load(statistics)
        fit_report(partial(_fit_of_sums, sums), statistics, design, **given)
        return
    if not arguments:
        raise click.UsageError("give FORMULA and DATA, or --statistics FILE")
    formula, *paths = arguments
    data = data_of_paths(paths)
    fitted = partial(vcomp.fit, formula, stream=stream, progress=progress)
    fit_report(fitted, data, design, **given)


def _check_statistics(
    arguments: tuple[str, ...], stream: bool | None, progress: bool | None, given: dict[str, Any]
) -> None:
    """Refuse options that need rows, which saved statistics do not contain."""
    if arguments:
        raise click.UsageError(
            f"{arguments[0]!r} is given with --statistics, which has the formula and its data"
        )
    of_rows = {
        "--dataset": given["dataset"],
        "--stream": stream,
        "--progress": progress,
        "--augment": given["augmented"],
        "--missing": given["missing"] if _is_given("missing") else None,
    }
    named = [name for name, value in of_rows.items() if value is not None]
    if named:
        raise click.UsageError(f"{named[0]} needs rows; saved statistics contain none")


def _is_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def _fit_of_sums(sums: Any, _: Path, *, missing: str, **options: Any) -> Any:
    """Return the fit of saved statistics; they have no missing values."""
    return sums.fit(**options)


@click.command(epilog=_ACCUMULATE)
@click.argument("formula")
@click.argument("data", nargs=-1, required=True)
@_OUT
@missing_option
@progress_option
def accumulate(
    formula: str, data: tuple[str, ...], target: Path, missing: Any, progress: bool | None
) -> None:
    """Save the sufficient statistics of DATA for fits of FORMULA.

    DATA are CSV or Parquet files, folders or patterns of them; they are read in batches. The
    statistics are merged with those of other days and machines, and fitted by `vcomp fit
    --statistics`.
    """
    import vcomp
    from vcomp.data import open_source
    from vcomp.statistics.batches import target_of

    target_of(target)
    source = open_source(data_of_paths(data))
    source.refuse_to_replace(target)
    made = vcomp.accumulate(formula, source, missing=missing, progress=progress)
    made.save(target)
    click.echo(f"{target}: {_described(made)}")


@click.command(epilog=_MERGE)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_OUT
def merge(files: tuple[Path, ...], target: Path) -> None:
    """Add the statistics in FILES, which `vcomp accumulate` wrote for one formula."""
    import vcomp
    from vcomp.statistics.batches import target_of

    real = [file.expanduser().resolve() for file in files]
    twice = [file for k, file in enumerate(files) if real[k] in real[:k]]
    if twice:
        raise click.UsageError(f"{str(twice[0])!r} is given twice")
    target_of(target)
    load = vcomp.AccumulatedStatistics.load
    made = load(files[0])
    for file in files[1:]:
        try:
            made += load(file)
        except DataError as error:
            raise DataError(f"{str(file)!r} is not merged: {error}") from None
    made.save(target)
    click.echo(f"{target}: {_described(made)}")


def _described(statistics: Any) -> str:
    """Return the statistics in words, such as how many rows they are of."""
    return str(repr(statistics)).strip("<>")
