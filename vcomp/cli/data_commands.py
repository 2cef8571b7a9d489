"""``vcomp fit``, ``gstudy``, ``accumulate`` and other commands on a formula and data."""

from __future__ import annotations

import re
import shutil
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

import vcomp
from vcomp import data, display
from vcomp.cli import output
from vcomp.cli.command_options import command, options_of
from vcomp.cli.inputs import (
    DATA,
    DATASET,
    PATHS,
    by_name,
    columns_argument,
    data_of_paths,
    grouped,
    groups_of_file,
    option,
    sizes_argument,
    source_of,
)
from vcomp.cli.output import PAIRS, SHOWN, Shown
from vcomp.cli.result_commands import plan_options
from vcomp.exceptions import DataError, VcompWarning, visible
from vcomp.ir import rank

if TYPE_CHECKING:
    import pandas as pd

_FITTED = options_of(
    "vcomp:fit",
    name="fitted",
    only="method weights frequency known_variance offset missing stream progress",
    weights=option(
        "--weights", "Column of weights: residual variances are σ²/w.", metavar="COLUMN"
    ),
    frequency=option(
        "--frequency", "Column of numbers: how many equal rows a row is.", metavar="COLUMN"
    ),
    known_variance=option(
        "--known-variance",
        "Column of known variances of the scores, in place of a residual.",
        metavar="COLUMN",
    ),
    offset=option(
        "--offset", "Column that is part of the expectation of the scores.", metavar="COLUMN"
    ),
    missing="What to do with rows that have a missing value.",
    stream="Read rows in batches, or keep them in memory.  [default: by their size]",
)
"""How data are read and fitted."""

_METHOD = options_of(
    "vcomp.estimators.likelihood:REML",
    "vcomp.estimators.quadratic:MINQUE",
    "vcomp:VarianceComponentsModel.fit",
    name="options",
    left_out="self method",
    prefix="REML, ML: ",
    n_probes="Number of random probes of the iterative engine, and of standard errors by ANOVA.",
    rng="Seed of the random probes.",
    negative="Closed forms: keep negative estimates, or refit without their terms.",
    iterated=option(
        "--iterated",
        "MINQUE: iterate to the solution of the REML equations.",
        is_flag=True,
        default=None,
    ),
    prior=option(
        "--prior",
        "MINQUE: the prior value of a component; give all of them.",
        multiple=True,
        metavar="NAME=X",
        callback=lambda _, __, texts: by_name(" ".join(texts)) or None,
    ),
)
"""Options of methods."""


@dataclass(frozen=True)
class _Report:
    """Options for the printed, drawn and stored output of a fit."""

    sizes: Sequence[str]
    tau: bool
    estimator: Any
    json_file: str | None
    picture: str | None
    augmented: Path | None

    def check(self, plan: dict[str, Any]) -> None:
        """Refuse options that do not go together, before anything is computed."""
        if self.estimator is not None and not self.tau:
            raise click.UsageError("--estimator applies to Eτ and Eτ_AP, and needs --tau")
        if self.tau:
            rank.check_tau_estimator(self.estimator or "shrunken")
            if "within" in plan:
                raise click.UsageError(
                    "--tau ranks all objects, and --within only those of a level"
                )
        if self.augmented is not None:
            data.parquet_path(self.augmented, "--augment")

    def write(self, res: Any, n: dict[str, list[float]], plan: dict[str, Any]) -> None:
        """Print, draw and store a fit, its D-study and its rank accuracy.

        Parameters
        ----------
        res : the fit
        n, plan : sizes and options of the D-study
        """
        if self.augmented is not None:
            res.augment(path=self.augmented)
        plan = dict(plan)
        alpha, interval = plan.pop("alpha", 0.05), plan.pop("interval", "auto")
        # Replicates are made once for all tables.
        how: Any = res.bootstrap() if interval == "bootstrap" else interval
        study = None
        if n or plan:
            # Satterthwaite's intervals are of components alone.
            coefficients = "auto" if interval == "satterthwaite" else how
            study = res.dstudy(sizes=n, alpha=alpha, interval=coefficients, **plan)
        ranks = None
        if self.tau:
            ranks = output.rank_accuracy(res, n, plan, alpha, self.estimator or "shrunken")
        if self.picture is not None:
            axes = res.plot(alpha=alpha, interval=how) if study is None else study.plot()
            output.save(axes, self.picture)
        if self.json_file is not None:
            output.write(output.as_json(res, study, ranks), self.json_file)
        if self.json_file != "-":
            click.echo(output.fit_text(res, study, ranks, alpha, how))


_PLAN = {
    "left_out": "layout negative",
    "interval": "How intervals are made: auto, mls, robust, f, satterthwaite, log, wald, profile, "
    "bootstrap.",
}

_REPORT = grouped(
    "report",
    _Report,
    option("--dstudy sizes", "Plan a D-study.", multiple=True, metavar="FACET=N,N…"),
    option("--tau", "Estimate the expected rank correlations Eτ and Eτ_AP.", is_flag=True),
    option(
        "--estimator",
        "With --tau: shrunken, or urbano as published.  [default: shrunken]",
        metavar="NAME",
    ),
    option("--json json_file", "Store the result as JSON; - prints it.", metavar="FILE"),
    option(
        "--plot picture",
        "Draw the D-study, or the components if there is none: FILE.png, .svg or .pdf.",
        metavar="FILE",
    ),
    option(
        "--augment augmented",
        "Write fitted values and residuals of all rows to FILE.parquet.",
        type=click.Path(path_type=Path),
        metavar="FILE",
    ),
)


def _sizes_apart(
    paths: Sequence[str], sizes: Sequence[str]
) -> tuple[list[str], dict[str, list[float]]]:
    """Return files and sizes, with sizes that follow --dstudy unquoted: t=3,6 r=4."""
    further = [p for p in paths if re.fullmatch(r"\w+=[\d.,]+", p) and not Path(p).exists()]
    if not sizes or len(paths) == 1:
        further = []
    return [p for p in paths if p not in further], sizes_argument([*sizes, *further])


@command(
    "fit",
    click.Argument(["arguments"], nargs=-1, metavar="[FORMULA] [DATA]..."),
    DATASET,
    option(
        "--statistics",
        "Statistics of accumulate or merge, instead of FORMULA and DATA.",
        type=click.Path(path_type=Path),
        metavar="FILE",
    ),
    option(
        "--residual",
        "Facets whose levels have a residual variance each: sys, or sys:judge.",
        metavar="TEXT",
    ),
    _FITTED,
    _METHOD,
    plan_options(**_PLAN, design="Design of the D-study, such as 'p x (a:i)'."),
    _REPORT,
)
def fit(
    arguments: Sequence[str],
    dataset: str | None,
    statistics: Path | None,
    residual: str | None,
    fitted: dict[str, Any],
    options: dict[str, Any],
    plan: dict[str, Any],
    report: _Report,
) -> None:
    r"""Estimate the variance components of FORMULA from DATA.

    DATA are CSV or Parquet files, folders or patterns. Large data are read in batches, in two
    passes.

    Examples
    --------
    vcomp fit "score ~ (1|sys) + (1|topic)" scores.csv
    vcomp fit "score ~ (1|sys*topic)" --dataset docsearch --dstudy topic=50,100 --tau
    vcomp fit "y ~ 1 + (1|day/run)" assay.parquet --method anova --json fit.json
    vcomp fit "score ~ (1|sys) + (1|topic/doc)" "scores/*.parquet" --stream \
        --augment residuals.parquet
    vcomp fit --statistics week.vcomp --dstudy topic=50,100
    """
    if statistics is not None:
        if arguments:
            raise click.UsageError(
                f"{arguments[0]!r} is given with --statistics, which has the formula and its "
                "data; add files with `vcomp merge`"
            )
        rows = {"dataset": dataset, "residual": residual, "augment": report.augmented, **fitted}
        rows.pop("method", None)
        for name, value in rows.items():
            if value is not None:
                name = name.replace("_", "-")
                raise click.UsageError(f"--{name} needs rows; saved statistics contain none")
        report.check(plan)
        n = sizes_argument(report.sizes)
        res = vcomp.AccumulatedStatistics.load(statistics).fit(**fitted, **options)
    else:
        if not arguments:
            raise click.UsageError("give FORMULA and DATA, or --statistics FILE")
        formula, *paths = arguments
        paths, n = _sizes_apart(paths, report.sizes)
        source = source_of(data_of_paths(paths), dataset)
        report.check(plan)
        res = vcomp.fit(formula, source, residual=residual, **fitted, **options)
    report.write(res, n, plan)


@command(
    "gstudy",
    PATHS,
    DATASET,
    option(
        "--design of_data",
        "Design of the data, such as 'p x (i:h)'.",
        required=True,
        metavar="TEXT",
    ),
    option(
        "--response",
        "The column of the scores, or an expression: run as Python code, as formulas are.",
        required=True,
        metavar="TEXT",
    ),
    option("--facet facets", "The column of a facet.", multiple=True, metavar="NAME=COLUMN"),
    _FITTED,
    _METHOD,
    plan_options(
        **_PLAN,
        design=option(
            "--dstudy-design design", "Design of the D-study, if different.", metavar="TEXT"
        ),
    ),
    _REPORT,
)
def gstudy(
    paths: Sequence[str],
    dataset: str | None,
    of_data: str,
    response: str,
    facets: Sequence[str],
    fitted: dict[str, Any],
    options: dict[str, Any],
    plan: dict[str, Any],
    report: _Report,
) -> None:
    """Estimate all components of a design in Brennan's notation from DATA.

    DATA are CSV or Parquet files, folders or patterns. Large data are read in batches, in two
    passes.

    Examples
    --------
    vcomp gstudy ratings.csv --design "p x (r:t)" --response score --facet p=person
    vcomp gstudy "scores/*.parquet" --design "p x a x (d:i)" --response score --stream
    """
    columns = columns_argument(facets)
    files, n = _sizes_apart(paths, report.sizes)
    source = source_of(data_of_paths(files), dataset)
    report.check(plan)
    res = vcomp.gstudy(of_data, source, response, facets=columns, **fitted, **options)
    report.write(res, n, plan)


@command(
    "compare-levels",
    click.Argument(["facet"]),
    click.Argument(["formula"]),
    DATA,
    _FITTED,
    options_of("vcomp:VarianceComponentsResults.compare_levels", left_out="self facet"),
    PAIRS,
)
def compare_levels(
    facet: str,
    formula: str,
    source: Any,
    fitted: dict[str, Any],
    how: dict[str, Any],
    shown: Shown,
) -> None:
    """Test the differences between levels of FACET in the model FORMULA, in pairs.

    FACET is a factor of the fixed part, whose least-squares means are compared, or a random term,
    whose predicted effects are. DATA are CSV or Parquet files, folders or patterns. CSV and JSON
    have a row for each pair.

    Examples
    --------
    vcomp compare-levels sys "score ~ sys + query + (1|topic) + (1|sys:topic)" --dataset docsearch
    vcomp compare-levels diet "weight ~ diet * time + (1|animal)" weights.csv --baseline A
    vcomp compare-levels lab "y ~ (1|lab/day)" assay.parquet --format csv
    """
    shown.pairs(vcomp.fit(formula, source, **fitted).compare_levels(facet, **how))


def _groups_by_facet(_: Any, __: Any, texts: Sequence[str]) -> dict[str, Any] | None:
    files = columns_argument(texts)
    return {facet: groups_of_file(file) for facet, file in files.items()} or None


@command(
    "subsamples",
    click.Argument(["formula"]),
    DATA,
    options_of(
        "vcomp:subsample_study",
        left_out="formula data options eval_env",
        method="How components are estimated.",
        missing="What to do with rows that have a missing value.",
        path=option(
            "--path",
            "Save estimates in FILE; if it exists, only missing ones are computed.",
            metavar="FILE",
        ),
        sizes=option(
            "--sizes",
            "Numbers of levels that are drawn.",
            multiple=True,
            required=True,
            metavar="FACET=N,N…",
            callback=lambda _, __, texts: sizes_argument(texts),
        ),
        groups=option(
            "--groups",
            "File with a column of levels and one of groups; sizes of FACET are levels of a "
            "group.",
            multiple=True,
            metavar="FACET=FILE",
            callback=_groups_by_facet,
        ),
        dstudy=option(
            "--dstudy",
            "The plan whose coefficients are computed.  [default: the sizes of the data]",
            multiple=True,
            metavar="FACET=N",
            callback=lambda _, __, texts: sizes_argument(texts) or None,
        ),
    ),
    SHOWN,
)
def subsamples(formula: str, source: Any, how: dict[str, Any], shown: Shown) -> None:
    r"""Estimate components and coefficients from random parts of the data, of several sizes.

    How much the results of a G-study of so many systems or topics vary. DATA are CSV or Parquet
    files, folders or patterns. CSV and JSON have a row for each size and quantity.

    Examples
    --------
    vcomp subsamples "score ~ (1|sys) + (1|topic)" scores.csv --sizes topic=5,10,25,50 --seed 1
    vcomp subsamples "score ~ (1|sys) + (1|topic)" --dataset docsearch \
        --sizes "sys=10,40 topic=50" --grid each --dstudy topic=50 --plot spans.png
    vcomp subsamples "score ~ (1|sys) + (1|topic)" scores.csv --sizes sys=1 --groups sys=labs.csv
    """
    shown.result(vcomp.subsample_study(formula, source, **how))


# Sums of parts of the data -----------------------------------------------------------------------

_OUT = option(
    "--out target",
    "File of the statistics; an existing one is replaced once the new one is complete.",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
)


@command(
    "accumulate",
    click.Argument(["formula"]),
    click.Argument(["paths"], nargs=-1, required=True, metavar="DATA..."),
    _OUT,
    options_of("vcomp:accumulate", left_out="formula data eval_env"),
)
def accumulate(formula: str, paths: Sequence[str], target: Path, how: dict[str, Any]) -> None:
    """Save the sufficient statistics of DATA for fits of FORMULA.

    DATA are CSV or Parquet files, folders or patterns of them; they are read in batches. The
    statistics are merged with those of other days and machines, and fitted by `vcomp fit
    --statistics`.

    Examples
    --------
    vcomp accumulate "score ~ (1|sys) + (1|topic)" monday.parquet --out monday.vcomp
    vcomp accumulate "score ~ (1|sys) + (1|topic)" tuesday/ "extra/*.parquet" --out tuesday.vcomp
    vcomp merge monday.vcomp tuesday.vcomp --out week.vcomp
    vcomp fit --statistics week.vcomp
    """
    statistics = vcomp.accumulate(formula, data_of_paths(paths), **how)
    statistics.save(target)
    click.echo(f"{target}: {_described(statistics)}")


@command(
    "merge",
    click.Argument(["files"], nargs=-1, required=True, type=click.Path(path_type=Path)),
    _OUT,
)
def merge(files: Sequence[Path], target: Path) -> None:
    """Add the statistics in FILES, which `vcomp accumulate` wrote for one formula.

    Examples
    --------
    vcomp merge monday.vcomp tuesday.vcomp --out week.vcomp
    vcomp merge machines/*.vcomp --out all.vcomp
    vcomp fit --statistics all.vcomp --dstudy topic=50,100 --tau
    """
    real = [file.expanduser().resolve() for file in files]
    twice = [file for k, file in enumerate(files) if real[k] in real[:k]]
    if twice:
        raise click.UsageError(f"{str(twice[0])!r} is given twice")
    load = vcomp.AccumulatedStatistics.load
    statistics = load(files[0])
    for file in files[1:]:
        try:
            statistics += load(file)
        except DataError as error:
            raise DataError(f"{str(file)!r} is not merged: {error}") from None
    statistics.save(target)
    click.echo(f"{target}: {_described(statistics)}")


def _described(statistics: Any) -> str:
    """Return the statistics in words, such as how many rows they are of."""
    return visible(repr(statistics)).strip("<>")


# Without data ------------------------------------------------------------------------------------


@command("datasets", click.Argument(["name"], required=False))
def datasets(name: str | None) -> None:
    """List the data sets of vcomp, or print one as CSV."""
    if name is not None:
        click.echo(vcomp.datasets.load(name).to_csv(index=False), nl=False)
        return
    width = max(60, min(100, shutil.get_terminal_size().columns))
    for title, row in vcomp.datasets.available().iterrows():
        click.echo(f"{title}  ({display.count(float(row['rows']))} rows: {row['columns']})")
        if row["formula"]:
            click.echo(f"    {row['formula']}")
        click.echo(textwrap.indent(textwrap.fill(row["description"], width - 4), "    "))


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
    folder = compiled_into()
    kept = f"kept in {folder}" if folder else "kept nowhere: no folder can be written"
    click.echo(f"{display.number(COMPILATIONS.seconds - in_all, 2)} s in all; {kept}")


def _rows(n: int, **levels: int) -> pd.DataFrame:
    """Return random rows with columns y and x, and facets with these numbers of levels."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(1)
    facets = {facet: rng.integers(0, count, n) for facet, count in levels.items()}
    return pd.DataFrame({**facets, "y": rng.normal(size=n), "x": rng.normal(size=n)})


def _fit_all() -> None:
    few = _rows(600, a=20, b=15, c=4)
    for method in ("reml", "anova", "minque", "type1"):
        vcomp.fit("y ~ (1|a*b)", few, method=method).summary()
    vcomp.fit("y ~ x + (1|a/b)", few).summary()
    vcomp.fit("y ~ (1|a) + (1|b) + (1|c)", few, engine="levels").summary()
    # Rows in a number from which arrays give way to kernels, of whole numbers and of texts.
    many = _rows(150_000, a=3000, b=1200, c=14)
    vcomp.fit("y ~ x + (1|a) + (1|b) + (1|c)", many).summary()
    vcomp.fit("y ~ (1|a/c)", many).summary()  # many groups
    random = _rows(150_000, a=40_000, b=30_000)
    for rows in (random, random.mul(random.index > 300, axis=0)):  # counts in one byte, in eight
        vcomp.fit("y ~ x + (1|a) + (1|b)", rows).summary()
    named = many.assign(c=many["c"].astype(str), a=many["a"] % 30, b=many["b"] % 20)
    vcomp.fit("y ~ x + C(c) + (1|a*b)", named).summary()
    vcomp.fit("y ~ (1|a*b)", named, method="anova").summary()


def _read_in_batches() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        _rows(40_000, a=30, b=20, c=5).to_csv(path, index=False)
        vcomp.fit("y ~ x + (1|a*b)", path, stream=True, progress=False).summary()
        part = vcomp.accumulate("y ~ (1|a) + (1|b)", path, progress=False)
        (part + part).fit().summary()


def _rank() -> None:
    matrix = _rows(240)["y"].rank(pct=True).to_numpy().reshape(20, 12)
    names = ["tau", "tau_ap", "Erho2", "rmse", "sens_abs", "sens_rel"]
    vcomp.ir.accuracy(matrix, names, [75], rng=1).summary()
    vcomp.ir.split_half(matrix, names, [75], rng=1)
    vcomp.ir.fit_collection(matrix).simulate(20, n=2, rng=1)
    for test in ("wilcoxon", "bootstrap", "randomised_tukey"):
        vcomp.ir.compare_systems(matrix, test)


_JOBS: dict[str, Callable[[], None]] = {
    "Fits": _fit_all,
    "Data in batches": _read_in_batches,
    "Rank accuracy and simulation": _rank,
}
"""Small jobs that compile the kernels of each kind of work."""
