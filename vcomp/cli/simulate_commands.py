"""``vcomp simulate``: collections like an existing one, with known true means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from vcomp import display
from vcomp.cli.accuracy_commands import read_scores, score_options
from vcomp.cli.output import write
from vcomp.exceptions import DataError, PlanError

_EXAMPLES = """
\b
Examples:
  vcomp simulate matrix.csv --topics 50 --collections 100 --seed 1 --out new.parquet
  vcomp simulate matrix.csv --topics 50 --margins normal --homoscedastic --out new.csv
  vcomp simulate scores.csv --system run --margins discrete_kernel --support P@20 \\
      --topics 100 --out new.parquet --diagnose
"""


@click.command("simulate", epilog=_EXAMPLES)
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
    "--homoscedastic", is_flag=True, help="Residuals of all systems have the same variance."
)
@click.option("--uncorrelated", is_flag=True, help="Residuals and topic effects are independent.")
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
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of threads.",
)
@click.option("--out", required=True, metavar="FILE", help="File of the scores, .parquet or .csv.")
@click.option(
    "--true-means",
    metavar="FILE",
    help="File of the true mean of each system; - for the screen.  [default: OUT with .means.csv]",
)
@click.option("--diagnose", is_flag=True, help="Compare the collections with the original.")
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
    diagnose: bool,
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
    if diagnose and topics < 2:
        raise PlanError(f"--diagnose needs two topics or more, not {topics}")
    matrix = read_scores(scores, dataset, system=system, topic=topic, score=score)
    simulator = fit_collection(
        matrix,
        drop_worst=drop_worst,
        random_sampling=not non_random_sampling,
        support=_support(support),
        **assumptions,
    )
    indicators = _Indicators(simulator) if diagnose else None
    n_rows = write_collections(
        simulator, target, topics, size, rng=rng, workers=workers, progress=None, each=indicators
    )
    write(str(simulator.true_means.to_csv()).rstrip("\n"), means_file)
    parts = [str(simulator.summary())]
    if indicators is not None:
        parts.append(str(indicators.diagnosis(topics).summary()))
    what = "collection" if size == 1 else "collections"
    parts.append(
        f"{display.count(size)} {what} of {display.count(topics)} topics × "
        f"{display.count(simulator.n_systems)} systems: {display.count(n_rows)} rows in {out}; "
        f"true means in {means_file}."
    )
    click.echo("\n\n".join(parts))


def _check_means(file: str, scores: Path) -> None:
    """Refuse a file of true means that cannot be written, before anything is computed."""
    path = Path(file)
    if path == scores:
        raise PlanError(f"scores and true means go to two files, not both to {file!r}")
    if file != "-" and not path.parent.is_dir():
        raise DataError(f"there is no folder {str(path.parent)!r} to write {path.name!r} to")


class _Indicators:
    """Computes indicators of collections as they are written, one at a time."""

    def __init__(self, simulator: Any) -> None:
        from vcomp.ir import Original

        self.original = Original(simulator.scores)
        self.n_topics = len(simulator.scores)
        self.parts: list[Any] = []

    def __call__(self, some: Any) -> None:
        self.parts.append(self.original.indicators(some.scores))

    def diagnosis(self, n_topics: int) -> Any:
        """Return the diagnosis of all collections."""
        from vcomp.ir import Diagnosis

        return Diagnosis(np.concatenate(self.parts), n_topics, self.n_topics)


def _support(text: str | None) -> Any:
    """Return the name of a support, or its values."""
    if text is None or "," not in text:
        return text
    try:
        return [float(value) for value in text.split(",")]
    except ValueError:
        raise PlanError(
            f"--support {text!r} is no list of scores; write 0,0.5,1 or a name such as P@20"
        ) from None
