"""The command line; :func:`main` is the program ``vcomp``."""

import signal
import sys


def main() -> None:
    """Run the command line.

    Until all is imported, Ctrl-C ends the program at once and silently: Python would print where
    the import stood. SIGTERM ends it as an error does, so that unfinished files are removed.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    # statsmodels imports polars where that is installed, which takes as long as many a fit. No
    # command has a frame of polars.
    sys.modules.setdefault("polars", None)  # type: ignore[arg-type]
    from vcomp.cli.main import main as run

    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGINT, before)
    run()


def _terminated(number: int, _: object) -> None:
    raise SystemExit(128 + number)
