"""``vcomp``: the commands, their exit codes and error messages, in the words of options."""

from __future__ import annotations

import codecs
import errno
import io
import re
import sys
import warnings
from importlib import import_module
from typing import Any, NoReturn

import click

from vcomp import __version__
from vcomp.exceptions import VcompError, VcompWarning, did_you_mean, guarded
from vcomp.markup import in_letters

_ARGUMENT = re.compile(
    r"(?<!-)\b(\w+)="
    r"('[^']*'(?:(?:, '[^']*')* or '[^']*')?|\"[^\"]*\"|\{[^}]*\}|\[[^\]]*\]|[\w.…]*)"
)
"""An argument of a function in a message: ``method='reml' or 'ml'``, ``hold={'a': 1}``, a list."""

_CODE = re.compile(r",\s+as\s+table\.\w+\([^)]*\)|\s+\(of\s+vcomp\.[\w.]+\)")
"""Code that does to a frame what the words before it say, and the function of an argument."""


def in_options(message: str, command: click.Command | None) -> str:
    """Return a message with the arguments of functions as options: ``--method reml or ml``.

    Parameters
    ----------
    message : may be broken into lines
    command : whose options they are
    """
    options = [p for p in command.params if isinstance(p, click.Option)] if command else []
    spellings = {option.name: option.opts[0] for option in options}

    def spelled(found: re.Match[str]) -> str:
        is_in_call = re.search(r"\w\([^()]*$", message[: found.start()])
        if found[1] not in spellings or is_in_call:
            return found[0]
        option = spellings[found[1]]
        given = re.sub(r"['\"]([\w.:-]+)['\"]", r"\1", " ".join(found[2].split()))
        of_levels = re.fullmatch(r"\{(\w+): \[(.*)\]\}", given)
        if of_levels:
            return " ".join(f"{option} {of_levels[1]}={x}" for x in of_levels[2].split(", "))
        value = given.strip("{}[]").replace(": ", "=")
        value = value.replace(", ", ",") if found[2].startswith("[") else value
        return f"{option} {value}".rstrip()

    return _ARGUMENT.sub(spelled, _CODE.sub("", message))


_EXAMPLES = """
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


_COMMANDS = {
    "accumulate": ("data", "Save the sufficient statistics of DATA for fits."),
    "accuracy": ("score", "Estimate the accuracy of tests by the number of topics."),
    "assessors": ("score", "Decide whether assessor error is systematic."),
    "average-p-values": ("score", "Average the p-values of differences between systems."),
    "compare-levels": ("data", "Test the differences between levels, in pairs."),
    "compare-systems": ("score", "Test the differences between systems, in pairs."),
    "datasets": ("data", "List the data sets of vcomp, or print one as CSV."),
    "diagnose": ("score", "Test the assumptions of a model."),
    "documents": ("score", "Compare set-based measures with scores of all documents."),
    "dstudy": ("result", "Plan a D-study from a stored or published result."),
    "evals-judges": ("eval", "Decide whether judges agree, and whether they are biased."),
    "evals-read": ("eval", "Read logs of evaluations into one table."),
    "evals-repetitions": ("eval", "Measure how answers change between identical runs."),
    "evals": ("eval", "Compare models from the logs of their evaluation."),
    "fit": ("data", "Estimate the variance components of FORMULA from DATA."),
    "gauge": ("result", "Divide variation between parts and gauge (gauge R&R)."),
    "gstudy": ("data", "Estimate all components of a design from DATA."),
    "items": ("score", "Estimate the reliability of a test, and analyse its items."),
    "merge": ("data", "Add the statistics that `vcomp accumulate` wrote."),
    "precision": ("result", "Print the precision of a measurement method."),
    "simulate": ("score", "Simulate collections with new topics."),
    "subsamples": ("data", "Estimate components from random parts of the data."),
    "tau": ("score", "Estimate the correlation of a ranking with the true one."),
    "warm-up": ("data", "Compile all that vcomp compiles when it is first used."),
}
"""The file of each command, imported on use, and the command's line in ``vcomp --help``."""


class _Commands(click.Group):
    """The commands, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, or None."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"vcomp.cli.{_COMMANDS[cmd_name][0]}_commands")
        return getattr(module, cmd_name.replace("-", "_"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the arguments, or name the one that was meant."""
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r}{did_you_mean(args[0], _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their descriptions."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(_COMMANDS.items())])


@click.group(
    cls=_Commands, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="vcomp")
def cli() -> None:
    """Estimate variance components and plan reliable tests.

    How much of the variation in scores is due to systems, topics, judges or documents, how
    reliable the test is, and how many topics or judges would make it reliable enough.
    """


_IN_LETTERS = "vcomp.in_letters"
"""Name of the handler of symbols that a terminal cannot show."""


def main() -> None:
    """Run the command line; an error of the user prints one message and exits with code 2."""
    codecs.register_error(_IN_LETTERS, in_letters)
    sys.stdout = sys.stdout or _Closed()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show Greek letters gets their names, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_IN_LETTERS)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    warnings.simplefilter("always", VcompWarning)
    try:
        code = guarded(cli.main)(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2 the help is an error
            error.show()
            sys.exit(2)
        # One line, like every other mistake; the usage is a --help away.
        click.echo(f"vcomp: error: {error.format_message()} (see --help)", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        _end_interrupted()
    except RuntimeError as error:
        # Python 3.11 wraps an interruption while a class is made (while a module is imported).
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _end_interrupted()
    except VcompError as error:
        click.echo(f"vcomp: error: {_with_options(str(error))}", err=True)
        sys.exit(2)
    except OSError as error:
        _end_unwritten(error)


def _end_unwritten(error: OSError) -> NoReturn:
    """Exit after a failure to write standard output, silently if its reader has ended."""
    sys.stdout = io.StringIO()  # Python would try once more
    if isinstance(error, BrokenPipeError):
        sys.exit(1)
    click.echo(f"vcomp: error: cannot write: {error.strerror or error}", err=True)
    sys.exit(2)


class _Closed(io.TextIOBase):
    """Replacement of a standard output that was closed (``>&-``)."""

    def write(self, text: str) -> int:
        """Refuse to lose text.

        Raises
        ------
        OSError
        """
        raise OSError(errno.EBADF, "standard output is closed")


def _with_options(message: str) -> str:
    """Return a message with the arguments of functions as options of the command."""
    name = sys.argv[1] if sys.argv[1:] else ""
    return in_options(message, cli.get_command(click.Context(cli), name))


def _end_interrupted() -> NoReturn:
    click.echo("vcomp: interrupted", err=True)
    sys.exit(130)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if issubclass(category, VcompWarning):
        click.echo(f"vcomp: warning: {_with_options(str(message))}", err=True)
