"""``vcomp fit``, ``accumulate``, ``merge``, ``datasets``, ``warm-up``: data of any size."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from vcomp import display
from vcomp.cli import output
from vcomp.cli.arguments import command, missing_option, progress_option
from vcomp.cli.fit_commands import data_of_paths, fit_options, fit_report, row_options
from vcomp.exceptions import DataError, VcompWarning, visible

if TYPE_CHECKING:
    import pandas as pd

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


@command(epilog=_FIT)
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
            f"{arguments[0]!r} is given with --statistics, which has the formula and its data; "
            "add files with `vcomp merge`"
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


@command(epilog=_ACCUMULATE)
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

    made = vcomp.accumulate(formula, data_of_paths(data), missing=missing, progress=progress)
    made.save(target)
    click.echo(f"{target}: {_described(made)}")


@command(epilog=_MERGE)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@_OUT
def merge(files: tuple[Path, ...], target: Path) -> None:
    """Add the statistics in FILES, which `vcomp accumulate` wrote for one formula."""
    import vcomp

    real = [file.expanduser().resolve() for file in files]
    twice = [file for k, file in enumerate(files) if real[k] in real[:k]]
    if twice:
        raise click.UsageError(f"{str(twice[0])!r} is given twice")
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
    return visible(repr(statistics)).strip("<>")


@command()
@click.argument("name", required=False)
def datasets(name: str | None) -> None:
    """List the data sets of vcomp, or print one as CSV."""
    from vcomp.datasets import available, load

    if name is not None:
        click.echo(load(name).to_csv(index=False), nl=False)
    else:
        click.echo(output.dataset_text(available()))


@command("warm-up")
def warm_up() -> None:
    """Compile all that vcomp compiles when it is first used.

    For images of containers, installations that several users share, and before measurements of
    time. Compiled code is kept in the folder that NUMBA_CACHE_DIR names, beside the package, or in
    the user's folder for such files: the first of them that can be written. It is valid for one
    kind of processor.
    """
    from vcomp.numerics.kernels import COMPILATIONS, compile_all, compiled_into

    in_all = COMPILATIONS.seconds
    with warnings.catch_warnings(), compile_all():
        warnings.simplefilter("ignore", VcompWarning)
        for title, job in _JOBS.items():
            before = COMPILATIONS.seconds
            click.echo(f"{title}: ", nl=False)
            job()
            took = COMPILATIONS.seconds - before
            click.echo(
                f"compiled in {display.number(took, 2)} s" if took else "nothing to compile"
            )
    kept = (
        f"kept in {compiled_into()}"
        if compiled_into()
        else "kept nowhere: no folder can be written"
    )
    click.echo(f"{display.number(COMPILATIONS.seconds - in_all, 2)} s in all; {kept}")


def _rows(n: int, **levels: int) -> pd.DataFrame:
    """Return random rows with columns y and x, and facets with these numbers of levels."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(1)
    facets = {facet: rng.integers(0, count, n) for facet, count in levels.items()}
    return pd.DataFrame({**facets, "y": rng.normal(size=n), "x": rng.normal(size=n)})


def _fit_all() -> None:
    import vcomp

    few = _rows(600, a=20, b=15, c=4)
    for method in ("reml", "anova", "minque", "type1"):
        vcomp.fit("y ~ (1|a*b)", few, method=method).summary()
    vcomp.fit("y ~ x + (1|a/b)", few).summary()
    vcomp.fit("y ~ (1|a) + (1|b) + (1|c)", few, engine="levels").summary()
    # Rows in a number from which arrays give way to kernels, of whole numbers and of texts.
    many = _rows(150_000, a=3000, b=1200, c=14)
    vcomp.fit("y ~ x + (1|a) + (1|b) + (1|c)", many).summary()
    vcomp.fit("y ~ (1|a/c)", many).summary()  # many groups
    named = many.assign(c=many["c"].astype(str), a=many["a"] % 30, b=many["b"] % 20)
    vcomp.fit("y ~ x + C(c) + (1|a*b)", named).summary()
    vcomp.fit("y ~ (1|a*b)", named, method="anova").summary()


def _resample() -> None:
    import vcomp

    vcomp.fit("y ~ (1|a/b)", _rows(600, a=20, b=15)).bootstrap(2, rng=1, progress=False)
    scores = vcomp.datasets.load("docsearch")
    res = vcomp.fit("score ~ (1|sys*topic)", scores)
    res.bootstrap(2, rng=1, progress=False)
    res.dstudy(topic=[50]).summary()
    res.expected_tau(topic=[50])


def _read_in_batches() -> None:
    import vcomp

    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        _rows(40_000, a=30, b=20, c=5).to_csv(path, index=False)
        vcomp.fit("y ~ x + (1|a*b)", path, stream=True, progress=False).summary()
        part = vcomp.accumulate("y ~ (1|a) + (1|b)", path, progress=False)
        (part + part).fit().summary()


def _rank() -> None:
    import vcomp

    matrix = _rows(240)["y"].rank(pct=True).to_numpy().reshape(20, 12)
    names = ["tau", "tau_ap", "Erho2", "rmse", "sens_abs", "sens_rel"]
    vcomp.ir.accuracy(matrix, names, [75], rng=1).summary()
    vcomp.ir.split_half(matrix, names, [75], rng=1)
    vcomp.ir.fit_collection(matrix).simulate(20, n=2, rng=1)
    for test in ("wilcoxon", "bootstrap", "randomised_tukey"):
        vcomp.ir.compare_systems(matrix, test)


def _search_designs() -> None:
    import vcomp

    parts = {"p": 0.0075, "i": 0.016, "a": 0.001, "pi": 0.013, "pa": 0.0001, "ia": 0.001}
    study = vcomp.from_components({**parts, "pia": 0.0018}).dstudy(i=50, a=1)
    study.optimize("5*i + i:a", budget=1000, designs=["p x i x a", "p x (a:i)"])


_JOBS: dict[str, Callable[[], None]] = {
    "Fits": _fit_all,
    "Bootstrap": _resample,
    "Data in batches": _read_in_batches,
    "Rank accuracy and simulation": _rank,
    "Search for designs": _search_designs,
}
"""What is compiled for each kind of work, by doing it in small."""
