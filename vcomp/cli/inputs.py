"""What commands read: texts of options as values, scores, data, published components."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

import vcomp
from vcomp import data, design, ir
from vcomp.exceptions import DataError, PlanError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class OptionGroup:
    """Options that a command receives as one argument."""

    name: str
    """Name of the argument."""
    parameters: Callable[[], Sequence[click.Parameter]]
    value: Callable[..., Any]
    """Makes the argument from the values of the options, by name."""


Part: TypeAlias = OptionGroup | click.Parameter


def option(names: str, text: str, **how: Any) -> click.Option:
    """Return an option that is declared by hand.

    Parameters
    ----------
    names : its spelling, and the name of the argument if that is another one
    text : the help
    **how : as for ``click.Option``
    """
    shows_default = how.get("default") is not None
    return click.Option(names.split(), help=text, show_default=shows_default, **how)


def grouped(name: str, value: Callable[..., Any], *parameters: click.Parameter) -> OptionGroup:
    """Return options that are declared by hand, as one argument of a command.

    Parameters
    ----------
    name : of the argument
    value : makes the argument from the values of the options
    *parameters : the options
    """
    return OptionGroup(name, lambda: parameters, value)


# Texts -------------------------------------------------------------------------------------------


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
            raise PlanError(f"the size of {facet!r} is given twice", column=facet)
        sizes[facet] = _sizes(numbers, part)
    return sizes


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
        raise PlanError(
            f"give one size of {several[0]!r}, not {len(sizes[several[0]])}", column=several[0]
        )
    return {facet: numbers[0] for facet, numbers in sizes.items()}


def numbers_argument(text: str) -> list[float]:
    """Return the numbers in ``25,50``."""
    return _sizes(text, text)


def _sizes(text: str, part: str) -> list[float]:
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        raise PlanError(f"{part!r} has a size that is not a number") from None
    return [int(x) if x.is_integer() else x for x in numbers]


def plain_numbers(text: str, wrong: str) -> list[float]:
    """Return the numbers in ``0,.05,inf``.

    Parameters
    ----------
    text : numbers with commas between
    wrong : the error where one is not a number

    Raises
    ------
    PlanError
    """
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise PlanError(wrong) from None


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
            raise PlanError(f"the column of {facet!r} is given twice", column=facet)
        columns[facet] = column
    return columns


def names_argument(texts: Sequence[str]) -> list[str]:
    """Return the names in ``a,o``; one text may have several.

    Examples
    --------
    >>> names_argument(["a, o", "i"])
    ['a', 'o', 'i']
    """
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def names_given(_: Any, __: Any, texts: Sequence[str]) -> list[str] | None:
    """Return the names in all texts of an option, None if it is not given."""
    return names_argument(texts) or None


def by_name(
    text: str,
    what: str = "component",
    form: str = "NAME=VARIANCE such as p=.0075",
    between: str = r"[\s,;]+",
) -> dict[str, float]:
    """Read numbers by name, ``p=33 i=48``, separated by spaces, commas or semicolons.

    Parameters
    ----------
    text : as written in the command line
    what : each of them is, for messages
    form : how to write them, for messages
    between : the pattern that separates them; ``","`` of names that may have spaces

    Raises
    ------
    PlanError
        If a part is not a name and a number, or a name is given twice.

    Examples
    --------
    >>> by_name("p=.0075, i:p=1e-2")
    {'p': 0.0075, 'i:p': 0.01}
    """
    numbers: dict[str, float] = {}
    for part in (p.strip() for p in re.split(between, text) if p.strip()):
        name, _, number = part.rpartition("=")
        if name in numbers:
            raise PlanError(f"{what} {name!r} is given twice")
        try:
            numbers[name] = float(number)
        except ValueError:
            raise PlanError(f"{part!r} is not a {what}; write {form}") from None
    return numbers


# Data --------------------------------------------------------------------------------------------

DATASET = option("--dataset", "A data set that comes with vcomp.", metavar="NAME")

PATHS = click.Argument(["paths"], nargs=-1, metavar="[DATA]...")


def data_of_paths(paths: Sequence[str]) -> Any:
    """Return one path unchanged, several as a list, and None without any."""
    return None if not paths else paths[0] if len(paths) == 1 else list(paths)


def source_of(path: Any, dataset: str | None, name: str = "DATA") -> Any:
    """Return files, or a data set.

    Parameters
    ----------
    path : files, or None
    dataset : the name of a data set, or None
    name : of the argument for files

    Raises
    ------
    click.UsageError
        If both are given, or none is.
    """
    if (path is None) == (dataset is None):
        raise click.UsageError(f"give one of {name} and --dataset")
    return path if dataset is None else vcomp.datasets.load(dataset)


DATA = grouped(
    "source", lambda paths, dataset: source_of(data_of_paths(paths), dataset), PATHS, DATASET
)
"""Files, folders or patterns, or a data set."""


def read_matrix(path: Path) -> pd.DataFrame:
    """Read a topic × system file; a first column of text, or called topic, names the topics."""
    import pandas as pd

    source = data.open_source(path)
    frame = source.read(source.columns)
    first = frame.columns[0]
    named = str(first).lower() in ("topic", "topics", "query", "qid") or first.startswith(
        "Unnamed"
    )
    if named or not pd.api.types.is_numeric_dtype(frame[first].dtype):
        frame = frame.set_index(first)
    return frame


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
    source = data.open_source(Path(file))
    if len(source.columns) != 2:
        raise DataError(
            f"{file!r} has the columns {', '.join(map(repr, source.columns))}; groups need "
            "two, of levels and of their groups"
        )
    return design.read_groups(source, *source.columns)


# Scores ------------------------------------------------------------------------------------------

_COLUMNS = {
    "system": ("system", "sys", "run"),
    "topic": ("topic", "query", "qid"),
    "score": ("score", "value"),
}
"""Common names of the columns of long data."""


@dataclass(frozen=True)
class SystemScores:
    """Scores of systems on topics: a file or a data set, and how it is read."""

    scores: Path | None
    dataset: str | None
    system: str | None
    topic: str | None
    score: str | None
    drop_worst: float

    def source(self) -> Any:
        """Return the file, or the data set."""
        return source_of(self.scores, self.dataset, "SCORES")

    def matrix(self) -> ir.ScoreMatrix:
        """Read a topic × system matrix, or long data with a row for each score.

        Data are long if they are a data set, if a column is named, or if they have columns with
        all three common names.

        Raises
        ------
        DataError
            If the data are neither a matrix nor long data.
        """
        source = data.open_source(self.source())
        columns = {"system": self.system, "topic": self.topic, "score": self.score}
        for name in columns.values():
            if name is not None and name not in source.columns:
                raise source.no_column(name)
        found = {
            role: columns[role] or next((name for name in known if name in source.columns), None)
            for role, known in _COLUMNS.items()
        }
        missing = [role for role, name in found.items() if name is None]
        if not missing:
            named = {role: str(name) for role, name in found.items()}
            try:
                return ir.ScoreMatrix.from_long(source, **named)
            except data.SeveralScoresError as error:
                place = f"--dataset {self.dataset}" if self.dataset else f"'{self.scores}'"
                raise error.at_the_command_line(place) from None
        if self.scores is None or any(columns.values()):
            shown = ", ".join(map(repr, source.columns[:20]))
            raise DataError(
                f"long data have columns of systems, topics and scores: name that of the "
                f"{missing[0]}s with --{missing[0]}; the columns are {shown}"
            )
        return ir.as_score_matrix(_all_systems(read_matrix(self.scores)))

    def kept(self) -> ir.ScoreMatrix:
        """Return the matrix without the worst systems."""
        return self.matrix().drop_worst(self.drop_worst)

    def of_any_design(self) -> Any:
        """Return the source for a formula, which names its columns.

        Raises
        ------
        click.UsageError
            If an option for scores of systems on topics is given.
        """
        for option in ("system", "topic", "score", "drop_worst"):
            if getattr(self, option):
                name = "--" + option.replace("_", "-")
                raise click.UsageError(
                    f"{name} cannot be used with --formula, which names the columns of the data: "
                    f"leave out {name}"
                )
        return self.source()

    def groups(self, text: str) -> dict[str, Any]:
        """Return the group of each system.

        Parameters
        ----------
        text : a column of the scores, or the name of a file with a column of systems and one of
            groups

        Raises
        ------
        DataError
            If the scores have no such column or are a matrix, the file has not two columns, or a
            system has several groups.
        """
        if Path(text).suffix.lower() in (".csv", ".parquet"):
            return groups_of_file(text)
        source = data.open_source(self.source())
        known = _COLUMNS["system"] if self.system is None else (self.system,)
        of_systems = next((name for name in known if name in source.columns), None)
        if of_systems is None:
            raise DataError(
                f"--groups {text!r} is a column of long data, and these have no column of "
                "systems; for a matrix give a file with a column of systems and one of groups"
            )
        if text not in source.columns:
            raise source.no_column(text)
        return design.read_groups(source, of_systems, text)


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


SCORES = grouped(
    "scores",
    SystemScores,
    click.Argument(["scores"], required=False, type=click.Path(path_type=Path)),
    DATASET,
    option("--system", "Long data: the column of systems.", metavar="COLUMN"),
    option("--topic", "Long data: the column of topics.", metavar="COLUMN"),
    option("--score", "Long data: the column of scores.", metavar="COLUMN"),
    option(
        "--drop-worst", "Fraction of systems to leave out, the worst by mean score.", default=0.0
    ),
)
"""Scores of a command."""


# Published results -------------------------------------------------------------------------------


def _published(
    components: str | None,
    mean_squares: str | None,
    df: str | None,
    sizes: str | None,
    mean: float | None,
) -> Any:
    """Return published components, or None if neither they nor mean squares are given."""
    if components is None and mean_squares is None:
        others = {"--df": df, "--sizes": sizes, "--mean": mean}
        lost = [name for name, value in others.items() if value is not None]
        if lost:
            raise click.UsageError(f"{lost[0]} needs --components or --mean-squares")
        return None
    counts = None if sizes is None else by_name(sizes, "size", "FACET=N such as p=33")
    if mean_squares is None:
        if df is not None:
            raise click.UsageError("--df needs --mean-squares; components need --sizes")
        return vcomp.from_components(by_name(components or ""), sizes=counts, mean=mean)
    if components is not None:
        raise click.UsageError("give one of --components and --mean-squares")
    squares = by_name(mean_squares, "mean square", "NAME=MEAN-SQUARE such as p=.7485")
    degrees = None if df is None else by_name(df, "df", "NAME=DF such as p=32")
    return vcomp.from_mean_squares(squares, df=degrees, sizes=counts, mean=mean)


PUBLISHED = grouped(
    "published",
    _published,
    option("--components", "Published components: 'p=.0075 i=.016 …'.", metavar="TEXT"),
    option(
        "--mean-squares",
        "Published mean squares: 'p=.7485 i=1.127 …'; with --df or --sizes.",
        metavar="TEXT",
    ),
    option("--df", "Degrees of freedom of --mean-squares: 'p=32 i=47 …'.", metavar="TEXT"),
    option(
        "--sizes",
        "Sizes of the published G-study, 'p=33 i=48 …': intervals follow from them.",
        metavar="TEXT",
    ),
    option("--mean", "Mean of the published scores.", type=float, metavar="X"),
)
"""Published components or mean squares instead of a stored result."""


def stored_or_published(file: str | Path | None, published: Any) -> Any:
    """Return a stored result, or published components.

    Raises
    ------
    click.UsageError
        If both are given, or none is.
    """
    if (file is None) == (published is None):
        raise click.UsageError("give one of RESULT.json, --components and --mean-squares")
    if file is None:
        return published
    return vcomp.VarianceComponentsResults.from_json(Path(file))
