"""``vcomp gauge`` and ``vcomp precision``: presets of stored or published results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vcomp.cli.arguments import alpha_option, command, with_options
from vcomp.cli.output import check_picture, save
from vcomp.cli.planning_commands import published_of, published_options
from vcomp.cli.score_commands import format_option, formatted

_EXAMPLES_OF_GAUGE = """
\b
Examples:
  vcomp gauge fit.json --part part --operator operator --tolerance .4
  vcomp gauge --mean-squares 'part=9.818 operator=1.584 part:operator=.0199 Residual=.046' \\
      --sizes 'part=10 operator=3 replicate=3' --part part --operator operator
"""

_EXAMPLES_OF_PRECISION = """
\b
Examples:
  vcomp precision fit.json --laboratory site
  vcomp precision --components 'day=1.2 run:day=.5 Residual=1' \\
      --sizes 'day=20 run=2 replicate=2' --mean 50
"""

_result_options = with_options(
    click.argument("result", required=False, type=click.Path(path_type=Path)),
    published_options,
)


def _source_of(result: Path | None, published: dict[str, Any]) -> Any:
    """Return a stored result, or published components."""
    import vcomp

    found = published_of(**published)
    if (result is None) == (found is None):
        raise click.UsageError("give one of RESULT.json, --components and --mean-squares")
    return found if result is None else vcomp.VarianceComponentsResults.from_json(result)


@command("gauge", epilog=_EXAMPLES_OF_GAUGE)
@_result_options
@click.option("--part", required=True, metavar="FACET", help="The facet of the parts.")
@click.option("--operator", required=True, metavar="FACET", help="The facet of the operators.")
@click.option(
    "--tolerance", type=float, metavar="X", help="Upper minus lower limit of the specification."
)
@click.option("--process-sd", type=float, metavar="X", help="Standard deviation of the process.")
@click.option(
    "--multiplier",
    type=float,
    default=6.0,
    show_default=True,
    metavar="X",
    help="Width of a distribution in standard deviations.",
)
@alpha_option
@click.option(
    "--interval",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="How intervals are made: auto, mls, robust, log, wald.",
)
@click.option("--plot", "picture", metavar="FILE", help="Draw a picture: FILE.png, .svg or .pdf.")
@format_option
def gauge_command(
    result: Path | None,
    components: str | None,
    mean_squares: str | None,
    df: str | None,
    sizes: str | None,
    mean: float | None,
    picture: str | None,
    format_: str,
    **how: Any,
) -> None:
    """Divide the variation of measurements between parts and gauge (gauge R&R).

    RESULT.json is a stored result of a fit; or give published components with the --sizes of
    their study, or published mean squares. CSV and JSON have a row for each source of variation.
    """
    from vcomp.presets import gauge_rr

    if picture is not None:
        check_picture(picture)
    given = {"components": components, "mean_squares": mean_squares, "df": df, "sizes": sizes}
    study = gauge_rr(_source_of(result, {**given, "mean": mean}), **how)
    click.echo(formatted(study.table.reset_index(), format_, str(study)))
    if picture is not None:
        save(study.plot(), picture)


@command("precision", epilog=_EXAMPLES_OF_PRECISION)
@_result_options
@click.option(
    "--laboratory",
    metavar="FACET",
    help="The facet of laboratories.  [default: site, lab or laboratory]",
)
@alpha_option
@click.option(
    "--interval",
    metavar="NAME",
    help="How intervals are made: satterthwaite, auto, mls, robust, log, wald.  "
    "[default: satterthwaite]",
)
@format_option
def precision_command(
    result: Path | None,
    components: str | None,
    mean_squares: str | None,
    df: str | None,
    sizes: str | None,
    mean: float | None,
    format_: str,
    **how: Any,
) -> None:
    """Print the precision of a measurement method, from repeatability to reproducibility.

    RESULT.json is a stored result of a fit; or give published components with the --sizes of
    their study and the --mean, or published mean squares. CSV and JSON have a row for each
    condition.
    """
    from vcomp.presets import precision

    given = {"components": components, "mean_squares": mean_squares, "df": df, "sizes": sizes}
    made = precision(_source_of(result, {**given, "mean": mean}), **how)
    click.echo(formatted(made.table.reset_index(), format_, str(made)))
