"""Item analysis of large score matrices, beside one pass of numpy over the same matrix.

``python -m benchmarks.items [--quick]`` analyses 10,000 objects × 1,000 items (the aim is a
second), complete and with cells missing, and checks three items against numpy's own correlations.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
from numpy.typing import NDArray

import vcomp
from benchmarks.common import Report, agree, best_of, memory_pass, score_matrix

_OBJECTS, _ITEMS = 10_000, 1_000
_MISSING = 0.1


def main() -> None:
    quick = _arguments().quick
    shape = (_OBJECTS // 10, _ITEMS // 10) if quick else (_OBJECTS, _ITEMS)
    repeat = 3 if quick else 5
    X = score_matrix(*shape)
    report = Report()
    report.section(f"items, {shape[0]:,} objects × {shape[1]:,} items")
    _check(X)
    one_pass = memory_pass([X], repeat)
    for name, function, scores in (
        ("item_analysis", vcomp.item_analysis, X),
        ("item_analysis, a tenth missing", vcomp.item_analysis, _holed(X)),
        ("reliability", vcomp.reliability, X),
        ("cronbach_alpha", vcomp.cronbach_alpha, X),
        ("icc", vcomp.icc, X),
    ):
        seconds = best_of(partial(function, scores), repeat)
        report(name, seconds, "numpy, sum of the matrix", one_pass)
        if function is vcomp.item_analysis and scores is X:
            report(name, seconds, "numpy.corrcoef of the items", best_of(partial(_corrcoef, X), 3))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.items", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the cells")
    return parser.parse_args()


def _holed(X: NDArray[np.float64]) -> NDArray[np.float64]:
    holed = X.copy()
    holed[np.random.default_rng(1).random(X.shape) < _MISSING] = np.nan
    return holed


def _corrcoef(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.corrcoef(X, rowvar=False), dtype=np.float64)


def _check(X: NDArray[np.float64]) -> None:
    """Stop if the item-rest correlations are not those of numpy."""
    found = vcomp.item_analysis(X, order="given")["item_rest"]
    totals = X.sum(axis=1)
    items = [0, X.shape[1] // 2, X.shape[1] - 1]
    agree(found[items], [np.corrcoef(X[:, i], totals - X[:, i])[0, 1] for i in items])


if __name__ == "__main__":
    main()
