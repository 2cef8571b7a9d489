"""Measures of retrieval by the names of ir_measures, trec_eval, ranx and common usage."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from typing import Any

from vcomp.exceptions import DataError, VcompError, did_you_mean

_OTHER_NAMES = {
    "map": "AP",
    "ndcg": "nDCG",
    "mrr": "RR",
    "p": "P",
    "precision": "P",
    "recall": "R",
    "hit_rate": "Success",
    "r-precision": "Rprec",
    "bpref": "Bpref",
    "recip_rank": "RR",
}
"""Names of ir_measures by lower-case names of trec_eval, ranx and common usage."""

_CUTOFF = re.compile(r"(.*?)(?:_cut|_at_recall)?[_.@](\d+(?:\.\d+)?)")


def find_measure(name: str, known: Iterable[str]) -> str | None:
    """Return the measure of a source that has a name, or the same one in another program.

    Parameters
    ----------
    name : such as ``"map"``, ``"AP"``, ``"P_10"`` or ``"P@10"``
    known : names of the source

    Returns
    -------
    str or None
        None if no name is that of the measure.
    """
    known = list(known)
    if name in known:
        return name
    wanted = _common_name(name)
    return next((one for one in known if _common_name(one) == wanted), None)


def _common_name(name: str) -> str:
    """Return a name that a measure has in all programs: base and cutoff, in lower case."""
    found = _CUTOFF.fullmatch(name)
    base, at = (found[1], f"@{float(found[2]):g}") if found else (name, "")
    return (_OTHER_NAMES.get(base.lower(), base) + at).lower()


def load_ir_measures() -> Any:
    """Return the package ir_measures.

    Raises
    ------
    VcompError
        If it is not installed.
    """
    try:
        import ir_measures
    except ImportError as error:
        raise VcompError(
            "runs are scored by the package ir_measures, which is not installed: "
            "pip install 'variance-components[ir]'"
        ) from error
    return ir_measures


_TREC_NAME = re.compile(r"[A-Za-z_]+?([._][\d.,]+)?")


def parse_measure(ir_measures: Any, measure: Any) -> Any:
    """Return a measure of ir_measures.

    Parameters
    ----------
    ir_measures : the package
    measure : its name in ir_measures, trec_eval or ranx; or the measure

    Raises
    ------
    DataError
        If ir_measures has no such measure, the name is that of several, or lacks a cutoff.
    """
    if isinstance(measure, ir_measures.Measure):
        return measure
    if not isinstance(measure, str):
        raise DataError(
            f"a measure is its name, such as 'nDCG@10', or one of ir_measures, not {measure!r}"
        )
    base, at, cutoff = measure.partition("@")
    registry = ir_measures.measures.registry
    known = _OTHER_NAMES.get(base.lower(), base)
    if known not in registry:
        known = {name.lower(): name for name in registry}.get(known.lower(), known)
    found, why = None, ""
    try:
        with warnings.catch_warnings():
            # From Python 3.12 on, names of ast that ir_measures 0.4 uses are deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            found = ir_measures.parse_measure(known + at + cutoff)
    except (NameError, ValueError) as error:
        why = str(error)
    if found is not None and not _lacks_cutoff(found):
        return found
    of_trec = _trec_measures(ir_measures, measure)
    if len(of_trec) == 1:
        return of_trec[0]
    if of_trec:
        names = ", ".join(repr(str(one)) for one in of_trec)
        raise DataError(
            f"{measure!r} are {len(of_trec)} measures of trec_eval; write measure=[{names}], or "
            "those that you need"
        )
    if found is not None:
        raise DataError(f"the measure {measure!r} needs a rank cutoff, such as '{found}@10'")
    every = sorted({one.NAME for one in registry.values() if one.NAME.isascii()}, key=str.lower)
    raise DataError(
        f"ir_measures does not know the measure {measure!r}: {why}{_nearest(measure, registry)}; "
        f"it has {', '.join(every)}"
    )


def _lacks_cutoff(measure: Any) -> bool:
    cutoff = measure.SUPPORTED_PARAMS.get("cutoff")
    return cutoff is not None and cutoff.required and "cutoff" not in measure.params


def _nearest(measure: str, registry: Mapping[str, Any]) -> str:
    """Return the known name that is closest as a question; empty if none is close."""
    numbered = re.fullmatch(r"([A-Za-z]+)[ _-]?(\d+)", measure)
    if numbered is None:
        return did_you_mean(measure.partition("@")[0], [one.NAME for one in registry.values()])
    base = _OTHER_NAMES.get(numbered[1].lower(), numbered[1])
    return f" (did you mean '{base}@{numbered[2]}'?)" if base in registry else ""


def _trec_measures(ir_measures: Any, measure: str) -> list[Any]:
    """Return the measures that trec_eval computes under a name; empty if unknown."""
    if _TREC_NAME.fullmatch(measure) is None:
        return []
    try:
        # It prints the measures of a set that it lacks.
        with redirect_stdout(io.StringIO()):
            return list(ir_measures.parse_trec_measure(measure))
    except ValueError:
        return []
