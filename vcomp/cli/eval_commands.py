"""Commands on evaluations of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import vcomp
from vcomp import data
from vcomp.cli import output
from vcomp.cli.command_options import command, names_by_name, options_of
from vcomp.cli.inputs import by_name, option
from vcomp.cli.output import PRINTED, SHOWN, Shown
from vcomp.exceptions import DataError, PlanError

_OF_CARD = [
    "table", "agreement", "pairs", "by_model", "own_family", "more_judges", "committee",
    "against_human", "anchored", "anchored_pairs",
]  # fmt: skip
"""Tables of a judge card."""


_WHERE = (
    "Levels of a column whose rows are compared, the others being left out: filter=strict-match, "
    "or several, model=a,b."
)

_COLUMNS = (
    "Other names or roles of columns, as of evals-read: prompt=task of tasks that are forms of "
    "the same items."
)

_OF_STUDY = ["table", "comparisons", "by_task", "sources"]
"""Tables of a study."""

_READING = options_of(
    "vcomp.evals:read",
    name="reading",
    only="format unreadable metadata",
    format="--log-format",
)


def _read(logs: Sequence[str], how: dict[str, Any], reading: dict[str, Any]) -> Any:
    """Return logs that are read with options, else their paths."""
    return vcomp.evals.read(logs, columns=how.pop("columns", None), **reading) if reading else logs


def _pairs(names: str, text: str, metavar: str, what: str = "", form: str = "") -> click.Option:
    """Return an option of pairs ``NAME=X,…``, whose names may have spaces.

    Parameters
    ----------
    names, text, metavar : as for :func:`option`; behind ``|`` is what may stand instead of pairs
    what : each number is, for messages; empty if they are names
    form : how to write a pair, for messages
    """

    def value(*given: Any) -> Any:
        whole = ",".join(given[-1])
        if not whole or ("|" in metavar and "=" not in whole):
            return whole or None
        return by_name(whole, what, form, ",") if what else names_by_name(*given)

    return option(names, text, metavar=metavar, multiple=True, callback=value)


@command(
    "evals",
    click.Argument(["logs"], nargs=-1, required=True),
    options_of(
        "vcomp.evals:study",
        left_out="scores",
        columns=_COLUMNS,
        where=_WHERE,
        task_weights=_pairs(
            "--task-weights",
            "Weights of tasks in the scores; or items, their numbers of items.  [default: equal]",
            "TASK=X,…|items",
            "weight",
            "TASK=WEIGHT such as law=2",
        ),
        prices=_pairs(
            "--price prices",
            "Price of a level of a column or combination, or of a call, score or judgement.",
            "NAME=X",
            "price",
            "NAME=PRICE such as item=.05",
        ),
        model_prices=_pairs(
            "--model-price model_prices",
            "Price of a model: the page says which is the cheapest within --margin of the best.",
            "MODEL=X",
            "price",
            "MODEL=PRICE such as a=.1",
        ),
    ),
    _READING,
    option(
        "--fail-if-worse baseline",
        "Exit with code 1 if a model is significantly worse than this one.",
        metavar="MODEL",
    ),
    option("--json json_file", "Store what the page says as JSON; - prints it.", metavar="FILE"),
    option(
        "--every-eval-ever folder",
        "Store scores and uncertainty as Every Eval Ever does, a file a model.",
        metavar="FOLDER",
    ),
    option(
        "--table",
        "Table that CSV and JSON have: of models, of pairs, of models in tasks, or of noise.",
        type=click.Choice(_OF_STUDY),
        default="table",
    ),
    SHOWN,
)
def evals(
    logs: Sequence[str],
    how: dict[str, Any],
    reading: dict[str, Any],
    baseline: str | None,
    json_file: str | None,
    folder: str | None,
    table: str,
    shown: Shown,
) -> None:
    """Compare the models of LOGS, with the effects of all sampled facets in the error.

    LOGS are files, folders and patterns of logs of evaluations, or tables with a row for each
    score; - is standard input. CSV and JSON have a row for each model, or another table.

    Examples
    --------
    vcomp evals logs/ --metric acc --plot models.png
    vcomp evals logs/ --metric acc --table comparisons --format csv
    vcomp evals scores.csv --fixed prompt
    vcomp evals logs/ --columns prompt=task
    vcomp evals logs/ --metric exact_match --where filter=strict-match --unreadable skip
    vcomp evals logs/ --metric acc --task-weights law=2,maths=1
    vcomp evals logs/ --metric acc --price item=.5,call=.002 --budget 100
    vcomp evals logs/ --metric acc --margin .02 --model-price small=.1,large=2
    vcomp evals logs/ --metric acc --fail-if-worse production --json page.json
    vcomp evals logs/ --metric acc --every-eval-ever aggregates/
    """
    found = vcomp.evals.study(_read(logs, how, reading), **how)
    worse: tuple[Any, ...] = ()
    not_compared = None
    try:
        worse = () if baseline is None else found.worse_than(baseline)
    except DataError as error:  # after the page, which says more
        not_compared = error
    if json_file is not None:
        output.write(found.to_json(), json_file)
    if folder is not None:
        found.to_every_eval_ever(folder)
    if json_file != "-":
        frame = getattr(found, table)
        if frame is None:
            raise PlanError(f"there is one {found.roles.model}: there are no pairs")
        frame = frame.table if table == "comparisons" else frame
        shown.result(found, frame if frame.index.name is None else frame.reset_index())
    if not_compared is not None:
        raise not_compared
    if worse:
        click.echo(f"vcomp: worse than {baseline}: {', '.join(map(str, worse))}", err=True)
        click.get_current_context().exit(1)


@command(
    "evals-read",
    click.Argument(["logs"], nargs=-1, required=True),
    options_of("vcomp.evals:read", left_out="paths", format="--log-format"),
    option("--out", "Write the table to FILE.parquet.", metavar="FILE"),
    PRINTED,
)
def evals_read(logs: Sequence[str], how: dict[str, Any], out: str | None, shown: Shown) -> None:
    """Read LOGS of evaluations into one table, and say what was read.

    LOGS are files, folders and patterns of logs of evaluations, or tables with a row for each
    score; - is standard input. CSV and JSON have a row for each score.

    Examples
    --------
    vcomp evals-read logs/
    vcomp evals-read logs/ --unreadable skip --metadata passage --out scores.parquet
    vcomp evals-read run.eval --format csv > scores.csv
    """
    target = None if out is None else data.parquet_path(out, "--out", map(Path, logs))
    found = vcomp.evals.read(logs, **how)
    if target is not None:
        data.write_parquet([found.table], target, "a path on another disk")
    shown.table(found.table, str(found))


@command(
    "evals-judges",
    click.Argument(["logs"], nargs=-1, required=True),
    options_of(
        "vcomp.evals:judges",
        left_out="scores",
        families=_pairs(
            "--families",
            "The family of models and judges, or the column of the models' families.  [default: "
            "each model is a family]",
            "NAME=FAMILY,…|COLUMN",
        ),
    ),
    _READING,
    option(
        "--table",
        "Table that CSV and JSON have.",
        type=click.Choice(_OF_CARD),
        default="table",
    ),
    SHOWN,
)
def evals_judges(
    logs: Sequence[str], how: dict[str, Any], reading: dict[str, Any], table: str, shown: Shown
) -> None:
    """Decide whether the judges in LOGS agree, and whether they are biased.

    LOGS are files, folders and patterns of logs of evaluations, or tables with a row for each
    rating; - is standard input. CSV and JSON have one table: that of judges, or another one.

    Examples
    --------
    vcomp evals-judges logs/ --metric quality --plot bias.png
    vcomp evals-judges ratings.csv --families gpt-4=openai,gpt-judge=openai
    vcomp evals-judges ratings.csv --human expert --table anchored --format json
    """
    card = vcomp.evals.judges(_read(logs, how, reading), **how)
    frame = getattr(card, table)
    shown.result(card, frame if frame.index.name is None else frame.reset_index())


@command(
    "evals-repetitions",
    click.Argument(["logs"], nargs=-1, required=True),
    options_of("vcomp.evals:repetitions", left_out="scores"),
    _READING,
    PRINTED,
)
def evals_repetitions(
    logs: Sequence[str], how: dict[str, Any], reading: dict[str, Any], shown: Shown
) -> None:
    """Measure how answers in LOGS change between identical runs: flicker, pass@k, pass^k.

    LOGS are files, folders and patterns of logs of evaluations, or tables with a row for each
    score; - is standard input. CSV and JSON have a row for each model, measure and number of runs.

    Examples
    --------
    vcomp evals-repetitions logs/ --metric acc
    vcomp evals-repetitions scores.csv --passes-from 0.5 --format csv
    """
    found = vcomp.evals.repetitions(_read(logs, how, reading), **how)
    shown.table(found.consistency, str(found))
