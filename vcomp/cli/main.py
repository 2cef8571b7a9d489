"""``vcomp``: the commands, their exit codes and error messages."""

from __future__ import annotations

import codecs
import errno
import io
import sys
import warnings
from importlib import import_module
from typing import Any, NoReturn

import click

from vcomp import __version__
from vcomp.cli.arguments import EXAMPLES
from vcomp.exceptions import VcompError, VcompWarning, guarded
from vcomp.markup import in_letters

_COMMANDS = {
    "accumulate": ("large", "Save the sufficient statistics of DATA for fits of FORMULA."),
    "accuracy": (
        "score",
        "Estimate the accuracy of tests with other numbers of topics, by several measures.",
    ),
    "assessors": (
        "study",
        "Decide whether assessor error is systematic (roles, individuals) or idiosyncratic.",
    ),
    "average-p-values": (
        "comparison",
        "Average the p-values of differences between systems, by their size and the topics.",
    ),
    "compare-levels": (
        "comparison",
        "Test the differences between levels of FACET in the model FORMULA, in pairs.",
    ),
    "compare-systems": (
        "comparison",
        "Test the differences between systems on the same topics, in pairs.",
    ),
    "datasets": ("large", "List the data sets of vcomp, or print one as CSV."),
    "diagnose": (
        "diagnosis",
        "Test the assumptions of a model, and say which numbers deviations matter for.",
    ),
    "documents": (
        "study",
        "Compare the reliability of tests by set-based measures and by scores of all documents.",
    ),
    "dstudy": (
        "planning",
        "Plan a D-study from a stored result, or from published components or mean squares.",
    ),
    "fit": ("large", "Estimate the variance components of FORMULA from DATA."),
    "gauge": (
        "preset",
        "Divide the variation of measurements between parts and gauge (gauge R&R).",
    ),
    "gstudy": (
        "fit",
        "Estimate all components of a design in Brennan's notation from DATA.",
    ),
    "items": (
        "score",
        "Estimate the reliability of a test and analyse its items, flagged ones first.",
    ),
    "merge": (
        "large",
        "Add the statistics in FILES, which `vcomp accumulate` wrote for one formula.",
    ),
    "precision": (
        "preset",
        "Print the precision of a measurement method, from repeatability to reproducibility.",
    ),
    "simulate": ("score", "Simulate collections with the same systems and new topics."),
    "subsamples": (
        "study",
        "Estimate components and coefficients from random parts of the data, of several sizes.",
    ),
    "tau": (
        "planning",
        "Estimate the expected correlation of a ranking by n topics with the true ranking.",
    ),
    "warm-up": ("large", "Compile all that vcomp compiles when it is first used."),
}
"""The file of each command, and its first sentence, which ``vcomp --help`` shows without importing
it."""


class _Commands(click.Group):
    """The commands, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None if there is none of this name."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"vcomp.cli.{_COMMANDS[cmd_name][0]}_commands")
        found = [value for value in vars(module).values() if isinstance(value, click.Command)]
        return next(command for command in found if command.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of each command."""
        width = formatter.width - 6 - max(map(len, _COMMANDS))
        rows = [
            (name, click.Command(name, help=text).get_short_help_str(width))
            for name, (_, text) in sorted(_COMMANDS.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    cls=_Commands, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
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
        click.echo(f"vcomp: error: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        _end_unwritten(error)


def _end_unwritten(error: OSError) -> NoReturn:
    """End where standard output cannot be written: silently if its reader has ended."""
    sys.stdout = io.StringIO()  # Python would try once more
    if isinstance(error, BrokenPipeError):
        sys.exit(1)
    click.echo(f"vcomp: error: cannot write: {error.strerror or error}", err=True)
    sys.exit(2)


class _Closed(io.TextIOBase):
    """In place of a standard output that was closed (``>&-``)."""

    def write(self, text: str) -> int:
        """Refuse to lose text.

        Raises
        ------
        OSError
        """
        raise OSError(errno.EBADF, "standard output is closed")


def _end_interrupted() -> NoReturn:
    click.echo("vcomp: interrupted", err=True)
    sys.exit(130)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if issubclass(category, VcompWarning):
        click.echo(f"vcomp: warning: {message}", err=True)
