"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from vcomp.exceptions import DataError, PlanError, VcompError

EXAMPLES = """
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
  vcomp compare-systems matrix.csv --test tukey --plot groups.png
  vcomp compare-levels diet "weight ~ diet * time + (1|animal)" weights.csv --test tukey
  vcomp simulate matrix.csv --topics 50 --collections 100 --out new.parquet
  vcomp items answers.csv
  vcomp datasets
"""
"""The end of the help of most commands."""

Command = TypeVar("Command", bound=Callable[..., Any])

_INSTEAD = {"--statistics": "add files with `vcomp merge`"}
"""What to do instead of repeating an option."""


class _OptionsOnce(click.Command):
    """A command that refuses an option given twice, of which click takes the last."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments.

        Raises
        ------
        click.UsageError
            If an option with one value is repeated, besides click's reasons.
        """
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(order).items():
            if not isinstance(parameter, click.Option) or parameter.multiple or parameter.is_flag:
                continue
            if times > 1:
                name = parameter.opts[0]
                instead = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
                raise click.UsageError(
                    f"{name} is given {times} times, and takes one value{instead}"
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, once it is known that its files can be written.

        Raises
        ------
        DataError
            If a file cannot be written, or is one of those that are read.
        """
        from vcomp.data import target_of  # deferred for start-up time

        files = _files_read(ctx)
        for parameter in ctx.command.params:
            value = ctx.params.get(parameter.name or "")
            if value not in (None, "-") and _WRITTEN.intersection(parameter.opts):
                target_of(str(value), files)
        return super().invoke(ctx)


_WRITTEN = frozenset({"--augment", "--csv", "--json", "--out", "--plot", "--true-means"})
"""Options that name a file to write."""


def _files_read(ctx: click.Context) -> list[Path]:
    """Return the files that the arguments of a command name; `merge` may replace one."""
    from vcomp.data import data_files

    if ctx.command.name == "merge":
        return []
    read: list[Path] = []
    for parameter in ctx.command.params:
        is_path = isinstance(parameter, click.Argument) or isinstance(parameter.type, click.Path)
        given = ctx.params.get(parameter.name or "")
        if given is None or not is_path or _WRITTEN.intersection(parameter.opts):
            continue
        for value in given if isinstance(given, tuple) else (given,):
            with suppress(VcompError, OSError, ValueError):  # it is something else than a path
                read += [file.path for file in data_files([value])]
            read.append(Path(str(value)))
    return read


command = partial(click.command, cls=_OptionsOnce)
"""As ``click.command``, for the commands of vcomp."""

dataset_option = click.option(
    "--dataset", metavar="NAME", help="A data set that comes with vcomp."
)

alpha_option = click.option(
    "--alpha", default=0.05, show_default=True, help="Intervals have level 1 − alpha."
)

missing_option = click.option(
    "--missing",
    default="drop",
    show_default=True,
    type=click.Choice(["drop", "raise"]),
    help="What to do with rows that have a missing value.",
)

progress_option = click.option(
    "--progress/--no-progress",
    default=None,
    help="Show how many rows are read, or do not.  [default: on a terminal, if it takes long]",
)

workers_option = click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of threads.",
)
topics_option = click.option(
    "--topics", metavar="N,N…", help="Numbers of topics; as many as there are if left out."
)


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, in the order of its help."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def sizes_argument(texts: Sequence[str]) -> dict[str, list[float]]:
    """Return sizes by facet from ``topic=50,100``; one text may have several facets.

    Examples
    --------
    >>> sizes_argument(["topic=50,100 judge=2"])
    {'topic': [50, 100], 'judge': [2]}
    """
    sizes: dict[str, list[float]] = {}
    for part in (p for text in texts for p in text.split()):
        facet, equals, numbers = part.partition("=")
        if not equals or not facet:
            raise PlanError(f"{part!r} is not a size; write FACET=N or FACET=N,N such as topic=50")
        if facet in sizes:
            raise PlanError(f"the size of {facet!r} is given twice")
        sizes[facet] = _numbers(numbers, part)
    return sizes


def topic_counts(text: str | None) -> list[float] | None:
    """Return the numbers in ``25,50``; None for None."""
    return None if text is None else _numbers(text, text)


def columns_argument(texts: Sequence[str]) -> dict[str, str]:
    """Return columns by facet from ``p=person``, one in each text; names may have spaces.

    Examples
    --------
    >>> columns_argument(["p=person", "i=exam item"])
    {'p': 'person', 'i': 'exam item'}
    """
    columns: dict[str, str] = {}
    for text in texts:
        facet, equals, column = text.partition("=")
        if not equals or not facet or not column:
            raise PlanError(f"{text!r} is not a facet; write NAME=COLUMN such as p=person")
        if facet in columns:
            raise PlanError(f"the column of {facet!r} is given twice")
        columns[facet] = column
    return columns


def facets_argument(texts: Sequence[str]) -> list[str]:
    """Return the facets in ``a,o``; one text may have several.

    Examples
    --------
    >>> facets_argument(["a, o", "i"])
    ['a', 'o', 'i']
    """
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def single_sizes(texts: Sequence[str]) -> dict[str, float]:
    """Return one size by facet from ``topic=500``.

    Examples
    --------
    >>> single_sizes(["topic=500", "judge=6"])
    {'topic': 500, 'judge': 6}
    """
    sizes = sizes_argument(texts)
    several = [facet for facet, numbers in sizes.items() if len(numbers) > 1]
    if several:
        raise PlanError(f"give one size of {several[0]!r}, not {len(sizes[several[0]])}")
    return {facet: numbers[0] for facet, numbers in sizes.items()}


def cut_scores(text: str) -> list[float]:
    """Return the numbers in ``0.2,0.3``."""
    return [float(x) for x in _numbers(text, text)]


def components_argument(text: str) -> dict[str, float]:
    """Read ``p=.00751 i=.01596``, separated by spaces, commas or semicolons.

    Examples
    --------
    >>> components_argument("p=.0075, i:p=1e-2")
    {'p': 0.0075, 'i:p': 0.01}
    """
    return numbers_argument(text, "component", "NAME=VARIANCE such as p=.0075")


def numbers_argument(text: str, what: str, form: str) -> dict[str, float]:
    """Read numbers by name, ``p=33 i=48``, separated by spaces, commas or semicolons.

    Parameters
    ----------
    text : as written in the command line
    what : each of them is, for messages
    form : how to write them, for messages

    Raises
    ------
    PlanError
        If a part is not a name and a number, or a name is given twice.

    Examples
    --------
    >>> numbers_argument("p=33 i=48", "size", "FACET=N")
    {'p': 33.0, 'i': 48.0}
    """
    numbers: dict[str, float] = {}
    for part in (p for p in re.split(r"[\s,;]+", text) if p):
        name, _, number = part.partition("=")
        if name in numbers:
            raise PlanError(f"{what} {name!r} is given twice")
        try:
            numbers[name] = float(number)
        except ValueError:
            raise PlanError(f"{part!r} is not a {what}; write {form}") from None
    return numbers


def options_given(
    *, hold: Sequence[str], start: Sequence[str], prior: Sequence[str] = (), **others: Any
) -> dict[str, Any]:
    """Return the options of a method that were given, those like ``topic=0.01`` as mappings.

    Examples
    --------
    >>> options_given(hold=["topic=0.01"], start=[], tol=None, max_iter=50)
    {'max_iter': 50, 'hold': {'topic': 0.01}}
    """
    options = {name: value for name, value in others.items() if value is not None}
    for name, texts in (("hold", hold), ("start", start), ("prior", prior)):
        if texts:
            options[name] = components_argument(" ".join(texts))
    return options


def groups_of_file(file: str) -> dict[str, Any]:
    """Return the group of each system, or level of another facet, in a file of two columns.

    Parameters
    ----------
    file : CSV or Parquet, its columns those of levels and of their groups

    Raises
    ------
    DataError
        If it has not two columns, or a level has several groups.
    """
    from vcomp.data import open_source
    from vcomp.design import read_groups

    source = open_source(Path(file))
    if len(source.columns) != 2:
        raise DataError(
            f"{file!r} has the columns {', '.join(map(repr, source.columns))}; groups need "
            "two, of levels and of their groups"
        )
    return read_groups(source, *source.columns)


def _numbers(text: str, part: str) -> list[float]:
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        raise PlanError(f"{part!r} has a size that is not a number") from None
    return [int(x) if x.is_integer() else x for x in numbers]
