"""``python -m benchmarks.bias_study [--quick] [--sensitivities] [--trials N] …``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.bias_study.at_fifty import at_fifty
from benchmarks.bias_study.cells import SIZES, missing_collections
from benchmarks.bias_study.evaluate import Evaluation
from benchmarks.bias_study.figures import draw_all
from benchmarks.bias_study.page import page
from benchmarks.bias_study.rows import Outcome, Run, read_outcome, write_outcome
from benchmarks.bias_study.store import OtherSettingsError, Settings
from benchmarks.bias_study.study import run_study
from benchmarks.bias_study.summarise import biases, boxes, reliabilities
from benchmarks.bias_study.variance import decompositions

SEED = 20_160_601
TRIALS = 100
_PRECISE, _FEW = 4_000, 100
_QUICK_SIZES, _QUICK_COLLECTIONS = (0, 2, 6), (1, 2)
_HERE = Path(__file__).resolve().parent
_DOCS = _HERE.parents[1] / "docs" / "explanation"


@dataclass(frozen=True, slots=True)
class Places:
    """Where a run writes.

    Attributes
    ----------
    parts : numbers of every collection, which a run goes on from
    rows : CSV files that page and figures are made of
    page, figures : the report
    """

    parts: Path
    rows: Path
    page: Path
    figures: Path

    @classmethod
    def within(cls, folder: Path) -> Places:
        """Return places that are all in one folder."""
        return cls(folder, folder / "kept", folder / "bias-study.md", folder / "bias-study")


KEPT = Places(_HERE / "results", _HERE / "kept", _DOCS / "bias-study.md", _DOCS / "bias-study")
"""Where the project has them; the parts are not part of it."""


def main() -> None:
    arguments = _arguments()
    places = KEPT if arguments.out is None else Places.within(arguments.out)
    if arguments.again:
        _report(read_outcome(places.rows), places)
        return
    absent = missing_collections()
    if absent:
        sys.exit(
            f"there is no {absent[0]}: set VCOMP_REFERENCE to the folder whose data/ has the "
            "scores of the four collections"
        )
    if arguments.quick:
        with tempfile.TemporaryDirectory() as folder:
            _run(arguments, Places.within(Path(folder)))
        return
    try:
        _run(arguments, places)
    except OtherSettingsError as error:
        sys.exit(str(error))


def _run(arguments: argparse.Namespace, places: Places) -> None:
    settings = Settings(arguments.seed, arguments.trials, arguments.sensitivities)
    if arguments.quick:
        settings = replace(settings, sizes=_QUICK_SIZES, collections=_QUICK_COLLECTIONS)
    start = time.perf_counter()
    values, made = run_study(
        settings, workers=arguments.workers, folder=places.parts, progress=True
    )
    seconds = time.perf_counter() - start
    precise = at_fifty(
        _FEW if arguments.quick else _PRECISE,
        arguments.seed,
        collections=settings.collections,
        workers=arguments.workers,
    )
    outcome = Outcome(
        _described(settings, values),
        decompositions(values, settings),
        biases(values, settings),
        reliabilities(values, settings),
        boxes(values, settings),
        precise,
    )
    write_outcome(outcome, places.rows)
    # From the rows that are kept, so that the page is the same when it is made from them again.
    _report(read_outcome(places.rows), places)
    _say(made, seconds, whole=arguments.trials >= TRIALS or arguments.quick)


def _described(settings: Settings, values: Evaluation) -> Run:
    own = values.estimates[..., 0]
    collections = int(own[..., 0].size)
    return Run(
        seed=settings.seed,
        trials=settings.trials,
        sensitivities=settings.sensitivities,
        collections=collections,
        estimates=collections * len(SIZES),
        no_curve=int(np.isnan(own).any(axis=-1).sum()),
    )


def _report(outcome: Outcome, places: Places) -> None:
    drawn = draw_all(outcome.boxes, outcome.biases, outcome.reliabilities, places.figures)
    text = page(outcome, drawn, places.figures.name)
    places.page.write_text(text, encoding="utf-8")


def _say(made: int, seconds: float, *, whole: bool) -> None:
    if not made:
        print("all collections were there")
        return
    minutes, rest = divmod(round(seconds), 60)
    each = 1e3 * seconds / made
    print(f"{made:,} collections in {minutes} min {rest} s: {each:.1f} ms each")
    if not whole:
        n = 4 * 16 * len(SIZES) * TRIALS
        print(f"all {n:,} of the study would take {each * n / 6e4:.0f} min")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bias_study", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="2 trials of 3 sizes and 2 collections, seconds; writes nothing",
    )
    parser.add_argument(
        "--sensitivities", action="store_true", help="extrapolate these too, twice the time"
    )
    parser.add_argument("--trials", type=int, help=f"of every kind of collection ({TRIALS})")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of all collections ({SEED})")
    parser.add_argument(
        "--again", action="store_true", help="page and figures from the rows of before"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="parts, rows, page and figures go there"
    )
    arguments = parser.parse_args()
    if arguments.trials is None:
        arguments.trials = 2 if arguments.quick else TRIALS
    if arguments.workers < 1 or arguments.seed < 0 or arguments.trials < 1:
        parser.error("--workers and --trials are from 1 on, --seed from 0 on")
    if arguments.quick and (arguments.again or arguments.out is not None):
        parser.error("--quick writes nothing: it goes neither with --out nor with --again")
    return arguments


if __name__ == "__main__":
    main()
