"""``vcomp accuracy``, ``items`` and ``simulate``: commands on tables of scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from vcomp import display
from vcomp.cli import output
from vcomp.cli.arguments import (
    alpha_option,
    command,
    dataset_option,
    facets_argument,
    groups_of_file,
    topic_counts,
    topics_option,
    with_options,
    workers_option,
)
from vcomp.cli.output import check_picture, read_matrix, save, write
from vcomp.data import ORIENTATIONS, target_of
from vcomp.exceptions import DataError, PlanError

if TYPE_CHECKING:
    import pandas as pd

    from vcomp.ir import ScoreMatrix


FORMATS = ("text", "csv", "json")

format_option = click.option(
    "--format",
    "format_",
    default="text",
    show_default=True,
    type=click.Choice(FORMATS),
    help="Format of the output.",
)

_KNOWN = {
    "system": ("system", "sys", "run"),
    "topic": ("topic", "query", "qid"),
    "score": ("score", "value"),
}
"""Common names of the columns of long data."""

score_options = with_options(
    click.argument("scores", required=False, type=click.Path(path_type=Path)),
    dataset_option,
    click.option("--system", metavar="COLUMN", help="Long data: the column of systems."),
    click.option("--topic", metavar="COLUMN", help="Long data: the column of topics."),
    click.option("--score", metavar="COLUMN", help="Long data: the column of scores."),
    click.option(
        "--drop-worst",
        default=0.0,
        show_default=True,
        help="Fraction of systems to leave out, the worst by mean score.",
    ),
)
"""Scores of a command, and options that say how they are read."""


def source_of(scores: Path | None, dataset: str | None) -> Any:
    """Return the file, or the data set.

    Parameters
    ----------
    scores : a file, or None
    dataset : the name of a data set, or None

    Raises
    ------
    click.UsageError
        If both are given, or none is.
    """
    import vcomp

    if (scores is None) == (dataset is None):
        raise click.UsageError("give one of SCORES and --dataset")
    return scores if dataset is None else vcomp.datasets.load(dataset)


def read_scores(scores: Path | None, dataset: str | None, **columns: str | None) -> ScoreMatrix:
    """Read a topic × system matrix, or long data with a row for each score.

    Data are long if they are a data set, if a column is named, or if they have columns with
    all three common names.

    Parameters
    ----------
    scores, dataset : see :func:`source_of`
    **columns : ``system``, ``topic`` and ``score`` of long data, None where they are not given

    Raises
    ------
    DataError
        If the data are neither a matrix nor long data.
    """
    from vcomp.data import SeveralScoresError, open_source
    from vcomp.ir import ScoreMatrix, as_score_matrix

    source = open_source(source_of(scores, dataset))
    for name in columns.values():
        if name is not None and name not in source.columns:
            raise source.no_column(name)
    found = {
        role: columns[role] or next((name for name in known if name in source.columns), None)
        for role, known in _KNOWN.items()
    }
    missing = [role for role, name in found.items() if name is None]
    if not missing:
        named = {role: str(name) for role, name in found.items()}
        try:
            return ScoreMatrix.from_long(source, **named)
        except SeveralScoresError as error:
            data = f"--dataset {dataset}" if scores is None else f"'{scores}'"
            raise error.at_the_command_line(data) from None
    if scores is None or any(columns.values()):
        shown = ", ".join(map(repr, source.columns[:20]))
        raise DataError(
            f"long data have columns of systems, topics and scores: name that of the "
            f"{missing[0]}s with --{missing[0]}; the columns are {shown}"
        )
    return as_score_matrix(_all_systems(read_matrix(scores)))


def system_groups(
    text: str, scores: Path | None, dataset: str | None, system: str | None
) -> dict[str, Any]:
    """Return the group of each system.

    Parameters
    ----------
    text : a column of the scores, or the name of a file with a column of systems and one of groups
    scores, dataset : see :func:`source_of`
    system : the column of systems of long data, None where it is not given

    Raises
    ------
    DataError
        If the scores have no such column or are a matrix, the file has not two columns, or a
        system has several groups.
    """
    from vcomp.data import open_source
    from vcomp.design import read_groups

    if Path(text).suffix.lower() in (".csv", ".parquet"):
        return groups_of_file(text)
    source = open_source(source_of(scores, dataset))
    known = [system] if system is not None else list(_KNOWN["system"])
    of_systems = next((name for name in known if name in source.columns), None)
    if of_systems is None:
        raise DataError(
            f"--groups {text!r} is a column of long data, and these have no column of "
            "systems; for a matrix give a file with a column of systems and one of groups"
        )
    if text not in source.columns:
        raise source.no_column(text)
    return read_groups(source, of_systems, text)


def _all_systems(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a wide table; refuse one that looks long, in the words of the command line."""
    from pandas.api.types import is_numeric_dtype

    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        if not is_numeric_dtype(dtype):
            raise DataError(
                f"column {str(name)!r} does not hold the scores of a system: the first column "
                "names the topics, and all others are systems. For long data, with a row for each "
                "score, name the columns with --system, --topic and --score"
            )
    return frame


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
  by subsets       power_ratio, minor_conflicts, major_conflicts, swap_rate, p_value
  by split halves  sens_abs, sens_rel, d_rank
"""


@command("accuracy", epilog=_EXAMPLES)
@score_options
@click.option("--formula", metavar="TEXT", help="Long data of any design: fit this formula first.")
@click.option(
    "--facet", metavar="NAME", help="With --formula: the facet to plan.  [default: the second]"
)
@topics_option
@click.option(
    "--measures",
    multiple=True,
    metavar="NAME,NAME…",
    help="Measures to estimate.  [default: tau,tau_ap,Erho2,Phi,rmse]",
)
@click.option(
    "--estimator",
    default="shrunken",
    show_default=True,
    metavar="NAME",
    help="For τ and τ_AP: shrunken, or urbano as published. For all measures: split_half.",
)
@click.option("--model", metavar="NAME", help="Split halves: the curve exp1, exp2 or logit.")
@click.option(
    "--trials", type=int, metavar="N", help="Number of subsets or pairs of halves of each size."
)
@click.option(
    "--seed", "rng", type=int, metavar="N", help="Seed of the random halves and of intervals."
)
@alpha_option
@click.option("--plot", "picture", metavar="FILE", help="Draw a picture: FILE.png, .svg or .pdf.")
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
    """Estimate the accuracy of tests with other numbers of topics, by several measures.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score and columns for systems, topics and scores.
    """
    from vcomp import ir

    if picture is not None:
        check_picture(picture)
    n, names = topic_counts(topics), facets_argument(measures) or None
    columns = {"system": system, "topic": topic, "score": score}
    if formula is None:
        if facet is not None:
            raise click.UsageError("--facet needs --formula; without it topics are sampled")
        matrix = read_scores(scores, dataset, **columns)
        made = ir.accuracy(matrix, names, n, drop_worst=drop_worst, alpha=alpha, **how)
    else:
        given = [f"--{name}" for name, value in columns.items() if value is not None]
        if given or drop_worst:
            option = (given or ["--drop-worst"])[0]
            raise click.UsageError(f"{option} cannot be used with --formula")
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


_EXAMPLES_OF_ITEMS = """
\b
Examples:
  vcomp items answers.csv
  vcomp items runs.csv --object sys --item topic --score score
  vcomp items topic_by_system.csv --transpose --show 10
"""


@command(epilog=_EXAMPLES_OF_ITEMS)
@click.argument("data", required=False, type=click.Path(path_type=Path))
@dataset_option
@click.option(
    "--object",
    "object_",
    metavar="COLUMN",
    help="Long data: the column of objects (persons, systems).",
)
@click.option("--item", metavar="COLUMN", help="Long data: the column of items.")
@click.option("--score", metavar="COLUMN", help="Long data: the column of scores.")
@click.option("--transpose", is_flag=True, help="The matrix has items in rows.")
@click.option(
    "--missing",
    type=click.Choice(["pairwise", "listwise", "raise"]),
    help="Missing scores: use pairs of columns, leave out incomplete objects, or stop.  [default: "
    "REML for the reliability, pairwise for the items]",
)
@click.option(
    "--low", default=0.2, show_default=True, help="Flag item-rest correlations below this."
)
@click.option(
    "--show",
    type=click.IntRange(min=1),
    default=25,
    show_default=True,
    help="Largest number of items to show.",
)
@alpha_option
@click.option("--csv", "csv_file", metavar="FILE", help="Store the table; - prints it.")
@click.option("--plot", "picture", metavar="FILE", help="Draw the items: FILE.png, .svg or .pdf.")
def items(
    data: Path | None,
    dataset: str | None,
    object_: str | None,
    item: str | None,
    score: str | None,
    transpose: bool,
    missing: str | None,
    low: float,
    show: int,
    alpha: float,
    csv_file: str | None,
    picture: str | None,
) -> None:
    """Estimate the reliability of a test and analyse its items, flagged ones first.

    DATA is a CSV or Parquet file: a matrix with a row for each object (person, system) and a
    column for each item, or long data with --object, --item and --score.
    """
    import vcomp

    if (data is None) == (dataset is None):
        raise click.UsageError("give one of DATA and --dataset")
    if picture is not None:
        check_picture(picture)
    names: dict[str, Any] = {"object": object_, "item": item, "score": score}
    scores: Any = data if dataset is None else vcomp.datasets.load(dataset)
    if not any(names.values()):
        if data is None:
            raise click.UsageError("a data set is long: give --object, --item and --score")
        scores = output.read_matrix(data)
        called_items = str(scores.index.name).lower() in ORIENTATIONS["item"].column_names
        if called_items and not transpose:
            raise DataError(
                f"the rows of {data.name!r} look like items, as they are called "
                f"{scores.index.name!r}: give --transpose"
            )
        scores = scores.T if transpose else scores
    elif transpose:
        raise click.UsageError("--transpose needs a matrix; the columns of long data are named")
    how: dict[str, Any] = {} if missing is None else {"missing": missing}
    analysis = vcomp.item_analysis(scores, low=low, **names, **how)
    if csv_file != "-":
        click.echo(str(vcomp.reliability(scores, alpha=alpha, **names, **how).summary()))
        click.echo()
        click.echo(str(analysis.summary(show)))
    if csv_file is not None:
        output.write(analysis.table.to_csv().rstrip("\n"), csv_file)
    if picture is not None:
        save(analysis.plot(), picture)


_EXAMPLES_OF_SIMULATE = """
\b
Examples:
  vcomp simulate matrix.csv --topics 50 --collections 100 --seed 1 --out new.parquet
  vcomp simulate matrix.csv --topics 50 --margins normal --heteroscedasticity 0 --out new.csv
  vcomp simulate scores.csv --system run --margins discrete_kernel --support P@20 \\
      --topics 100 --out new.parquet --compare
"""


@command("simulate", epilog=_EXAMPLES_OF_SIMULATE)
@score_options
@click.option(
    "--topics",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="Number of topics of each collection.",
)
@click.option(
    "--collections",
    "size",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of collections.",
)
@click.option(
    "--margins",
    default="kernel",
    show_default=True,
    metavar="NAME",
    help="Distribution of topic effects and residuals: kernel or normal. Of scores without "
    "effects: truncated_normal, beta, truncated_kernel, beta_kernel, auto; with --support "
    "beta_binomial or discrete_kernel.",
)
@click.option(
    "--heteroscedasticity",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    help="How much variances of residuals differ between systems: 0 not at all, 1 as in the "
    "scores, or up to 10.",
)
@click.option(
    "--nonnormality",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    help="How much residuals of --margins kernel deviate from normal ones, likewise.",
)
@click.option(
    "--correlation",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    help="How much residuals and topic effects are correlated, likewise.",
)
@click.option(
    "--non-random-sampling",
    is_flag=True,
    help="Topics of a collection are mostly hard, easy or medium, not a random sample.",
)
@click.option(
    "--means",
    default="observed",
    show_default=True,
    metavar="NAME",
    help="True means: observed ones, or those fitted by the algorithm.",
)
@click.option(
    "--copula",
    default="gaussian",
    show_default=True,
    metavar="NAME",
    help="gaussian, or t, whose extreme values coincide more often.",
)
@click.option(
    "--copula-df",
    "df",
    type=float,
    metavar="NU",
    help="Degrees of freedom of the t copula.  [default: fitted]",
)
@click.option("--support", metavar="TEXT", help="Possible scores: P@20, RR@10, RR, or 0,0.5,1.")
@click.option(
    "--seed", "rng", default=0, show_default=True, metavar="N", help="Seed of the draws."
)
@workers_option
@click.option("--out", required=True, metavar="FILE", help="File of the scores, .parquet or .csv.")
@click.option(
    "--true-means",
    metavar="FILE",
    help="File of the true mean of each system; - for the screen.  [default: OUT with .means.csv]",
)
@click.option("--compare", is_flag=True, help="Compare the collections with the original.")
def simulate_command(
    scores: Path | None,
    dataset: str | None,
    system: str | None,
    topic: str | None,
    score: str | None,
    drop_worst: float,
    topics: int,
    size: int,
    non_random_sampling: bool,
    support: str | None,
    rng: int,
    workers: int,
    out: str,
    true_means: str | None,
    compare: bool,
    **assumptions: Any,
) -> None:
    """Simulate collections with the same systems and new topics.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score. The output is long data with the columns
    collection, topic, system and score. The true mean score of each system is written to another
    file.
    """
    from vcomp.ir import fit_collection
    from vcomp.ir.simulate import check_path, write_collections

    target = check_path(out)
    means_file = str(target.with_suffix(".means.csv")) if true_means is None else true_means
    _check_means(means_file, target)
    if compare and topics < 2:
        raise PlanError(f"--compare needs two topics or more, not {topics}")
    matrix = read_scores(scores, dataset, system=system, topic=topic, score=score)
    simulator = fit_collection(
        matrix,
        drop_worst=drop_worst,
        random_sampling=not non_random_sampling,
        support=_support(support),
        **assumptions,
    )
    indicators = _Indicators(simulator) if compare else None
    n_rows = write_collections(
        simulator, target, topics, size, rng=rng, workers=workers, progress=None, each=indicators
    )
    write(str(simulator.true_means.to_csv()).rstrip("\n"), means_file)
    parts = [str(simulator.summary())]
    if indicators is not None:
        parts.append(str(indicators.comparison(topics).summary()))
    what = "collection" if size == 1 else "collections"
    parts.append(
        f"{display.count(size)} {what} of {display.count(topics)} topics × "
        f"{display.count(simulator.n_systems)} systems: {display.count(n_rows)} rows in {out}; "
        f"true means in {means_file}."
    )
    click.echo("\n\n".join(parts))


def _check_means(file: str, scores: Path) -> None:
    """Refuse a file of true means that cannot be written, before anything is computed."""
    if file != "-" and target_of(file) == target_of(scores):
        raise PlanError(f"scores and true means go to two files, not both to {file!r}")


class _Indicators:
    """Computes indicators of collections as they are written, one at a time."""

    def __init__(self, simulator: Any) -> None:
        from vcomp.ir import OriginalCollection

        self.original = OriginalCollection(simulator.scores)
        self.n_topics = len(simulator.scores)
        self.parts: list[Any] = []

    def __call__(self, some: Any) -> None:
        self.parts.append(self.original.indicators(some.scores))

    def comparison(self, n_topics: int) -> Any:
        """Return the comparison of all collections with the original."""
        from vcomp.ir import SimulationComparison

        return SimulationComparison(np.concatenate(self.parts), n_topics, self.n_topics)


def _support(text: str | None) -> Any:
    """Return the name of a support, or its values."""
    if text is None or "," not in text:
        return text
    try:
        return [float(value) for value in text.split(",")]
    except ValueError:
        raise PlanError(
            f"--support {text!r} is not a list of scores; write 0,0.5,1 or a name such as P@20"
        ) from None
