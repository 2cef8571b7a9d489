"""The formats of logs, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from vcomp.evals import (
    every_eval_ever,
    helm,
    inspect_logs,
    lighteval,
    lm_eval,
    mteb,
    openai_evals,
    promptfoo,
    score_tables,
)
from vcomp.evals.damage import Damage
from vcomp.evals.log_files import LogFile
from vcomp.evals.run_rows import Run, Wanted


class LogFormat(Protocol):
    """A module that knows a format."""

    def recognises(self, file: LogFile, wanted: Wanted) -> bool:
        """Return whether a file has this format, by its content."""

    def read(self, file: LogFile, damage: Damage, wanted: Wanted) -> Iterator[Run]:
        """Yield the runs of a file; unreadable samples are added to the damage."""


FORMATS: Mapping[str, LogFormat] = {
    "inspect": inspect_logs,
    "lm_eval": lm_eval,
    "helm": helm,
    "lighteval": lighteval,
    "openai_evals": openai_evals,
    "promptfoo": promptfoo,
    "mteb": mteb,
    "every_eval_ever": every_eval_ever,
    "table": score_tables,
}
"""By the names of ``format=``; tables are last, as lines of several formats could be rows."""
