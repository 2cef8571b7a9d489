"""Tables 4 and 7 of Urbano (2016) by the published rule for ties, through the public interface.

``python -m benchmarks.bias_study.listed [--repeats N] [--out DIR]`` simulates the collections of
the study, rounds their scores to the four decimals that the code of the paper writes to files, and
extrapolates sensitivities with ``ties="listed"`` by :func:`vcomp.ir.split_half`, which has
halves of one topic where there are five. The rows go to ``kept/listed.csv``. The study itself has
the default of the library, equal differences as one threshold.

Errors vary most where topics are few, and these are soon done: a repeat has 40 trials of 5 topics
and 2 of 100 and more, and 40 actual values of all sizes. Monte Carlo errors are from the repeats.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import vcomp
from benchmarks.bias_study.cells import SIZES, Cell, Part, parts_of, simulator
from benchmarks.bias_study.published import TABLES, TOTAL
from benchmarks.bias_study.variance import Share, components_of
from vcomp._typing import FloatArray
from vcomp.exceptions import VcompWarning
from vcomp.ir.curve import MODELS, Model
from vcomp.ir.measures import AbsoluteSensitivity, RelativeSensitivity
from vcomp.numerics.parallel import limited_blas, stream

SEED, REPEATS = 20_160_601, 2

TRIALS = (40, 12, 5, 4, 4, 3, 2, 2, 2, 2, 2, 2, 2)
"""Of each size whose halves are extrapolated; 40 of each size are compared with the truth."""

_DECIMALS = 4
"""Of scores: ties depend on them."""

_MEASURES = (AbsoluteSensitivity(ties="listed"), RelativeSensitivity(ties="listed"))
_TARGETS: FloatArray = np.array(SIZES, dtype=float)


def estimates_of(Y: FloatArray, seed: int) -> FloatArray:
    """Return estimates for tests of all sizes, (6, 13).

    Where no curve can be fitted, what R leaves: see :func:`without_slope`.

    Parameters
    ----------
    Y : (n_topics, n_systems) rounded scores of a collection
    seed : of the halves
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VcompWarning)  # of curves that there are not
        study = vcomp.ir.split_half(Y, _MEASURES, SIZES, rng=seed, progress=False)
    rows = []
    for name, seen in zip(study.measures, study.values, strict=True):
        for model in MODELS:
            curve = study.curves.get((name, model))
            if curve is None:
                rows.append(without_slope(study.sizes, seen, model))
            else:
                rows.append(curve.at(_TARGETS))
    return np.stack(rows)


def without_slope(sizes: Sequence[int], seen: FloatArray, model: Model) -> FloatArray:
    """Return what R predicts where a curve has no finite slope, (13,).

    A constant where halves of one size only have a sensitivity, or where all have the same. A
    logit curve that is 1 or 0 but at one size is 1 or 0 on either side of that size.

    Parameters
    ----------
    sizes : topics of the halves
    seen : (sizes, trials) their sensitivities, up to 1; nan is missing
    model : of the curve
    """
    there = np.isfinite(seen) & ((seen > 0.0) | (model == "logit"))
    used = [k for k in range(len(sizes)) if there[k].any()]
    if not used:
        return np.full(_TARGETS.size, np.nan)
    means = np.array([seen[k][there[k]].mean() for k in used])
    if len(used) == 1 or (means == means[0]).all():
        values = seen[used][there[used]]
        level = values.mean() if model == "logit" else np.exp(np.log(values).mean())
        return np.full(_TARGETS.size, level)
    at = int(np.argmax((means > 0.0) & (means < 1.0)))
    falls = means[0] > means[-1]
    size = sizes[used[at]]
    beyond = np.where(size < _TARGETS, not falls, falls).astype(float)
    return np.where(size == _TARGETS, means[at], beyond)


def totals(values: FloatArray) -> dict[tuple[int, str], FloatArray]:
    """Return the components of tables 4 and 7 by table and estimator, the total last.

    Parameters
    ----------
    values : (collections, 2, 2, 2, 2, sizes, trials, 2 + 6 · 13) actual values, then estimates
    """
    actual, estimates = values[..., :2], values[..., 2:]
    estimates = estimates.reshape(*values.shape[:-1], 6, len(SIZES))
    found = {}
    for table in TABLES:
        if table.number not in (4, 7):
            continue
        for e, name in enumerate(table.columns):
            here, right = estimates[..., e, :], actual[..., e // len(MODELS)]
            if table.number == 4:
                errors = np.moveaxis(np.diagonal(here, axis1=5, axis2=7), -1, 5) - right
            else:
                errors = here - np.nanmean(right, axis=6)[:, :, :, :, :, None, None, :]
            found[table.number, name] = components_of(_in_turns(errors), table.factors)
    return found


def _in_turns(errors: FloatArray) -> FloatArray:
    """Return errors of as many trials of each size, the few extrapolated ones in turns."""
    turns = [np.arange(max(TRIALS)) % trials for trials in TRIALS]
    return np.stack([errors[:, :, :, :, :, k, t] for k, t in enumerate(turns)], axis=5)


def shares(repeats: Sequence[FloatArray]) -> list[Share]:
    """Return the mean components of the repeats, with Monte Carlo errors."""
    each = [totals(values) for values in repeats]
    factors = {table.number: (*table.factors, TOTAL) for table in TABLES}
    found = []
    for (number, name), first in each[0].items():
        rows = np.stack([one[number, name] for one in each])
        error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan * first
        found += [
            Share(number, "original", name, factor, float(value), float(e), 0)
            for factor, value, e in zip(factors[number], rows.mean(axis=0), error, strict=True)
        ]
    return found


def of_part(part: Part, seed: int, repeat: int) -> FloatArray:
    """Return actual values and estimates, (sizes, trials, 2 + 6 · 13); nan beyond the trials."""
    source = simulator(part)
    truth, most = source.scores.mean(axis=0), max(TRIALS)
    found = np.full((len(SIZES), most, 2 + 6 * len(SIZES)), np.nan)
    for k, trials in enumerate(TRIALS):
        cell = Cell(part, k)
        for trial in range(most):
            rng = stream(seed, cell.number(repeat * most + trial))
            Y = source.draw(cell.n_topics, rng).round(_DECIMALS)
            means = Y.mean(axis=0)
            actual = [float(measure.actual_of_means(means, truth)) for measure in _MEASURES]
            found[k, trial, :2] = actual
            if trial < trials:
                found[k, trial, 2:] = estimates_of(Y, int(rng.integers(2**62))).ravel()
    return found


def main() -> None:
    from tqdm import tqdm

    from benchmarks.bias_study.rows import write_rows

    parser = argparse.ArgumentParser(prog="python -m benchmarks.bias_study.listed")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"of the study ({REPEATS})")
    parser.add_argument("--seed", type=int, default=SEED, help="of the collections and halves")
    parser.add_argument("--out", type=Path, required=True, help="folder of parts, to go on from")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    repeats = []
    for repeat in range(arguments.repeats):
        made = []
        for part in tqdm(parts_of(), unit="part", desc=f"repeat {repeat}"):
            path = arguments.out / f"listed-{part.name}-{arguments.seed}-{repeat}.npy"
            if not path.is_file():
                with limited_blas(0):
                    np.save(path, of_part(part, arguments.seed, repeat))
            made.append(np.load(path))
        repeats.append(np.stack(made).reshape(4, 2, 2, 2, 2, *made[0].shape))
        write_rows(Path(__file__).parent / "kept" / "listed.csv", shares(repeats))


if __name__ == "__main__":
    main()
