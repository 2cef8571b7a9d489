"""How time and memory grow with rows: ANOVA and REML of per-document data.

``python -m benchmarks.growth [--rows 1e5,1e6,1e7,5e7] [--shuffled]`` fits p × a × (d:i), 11
components, each size in its own process. It prints rows a second, peak memory above the frame, and
the fraction of the memory bandwidth: the time of ``numpy.sum`` over the columns of the same frame,
relative to that of the fit. The slope is that of log time on log rows.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

from benchmarks.measure import FitUsed, fit_perdoc, in_fresh_process

_REPEAT = 4
_MANY = 1e6


def main() -> None:
    arguments = _arguments()
    work = partial(fit_perdoc, shuffled=arguments.shuffled)
    for method in ("anova", "reml"):
        print(f"\n{method.upper()}" + (", rows in random order" if arguments.shuffled else ""))
        print(
            f"{'rows':>12} {'seconds':>9} {'threads':>9} {'Mrows/s':>9} {'GB/s':>7} "
            f"{'numpy GB/s':>11} {'fraction':>9} {'peak MiB':>9} {'× frame':>8}"
        )
        found = []
        for n_rows in arguments.rows:
            answer = in_fresh_process(work, n_rows, method, _REPEAT, limit=arguments.limit)
            if isinstance(answer, str):
                print(f"{n_rows:>12,} {answer}", flush=True)
            else:
                found.append(answer)
                _print_row(answer)
        _print_slopes(found)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument(
        "--rows", type=_sizes, default="1e5,1e6,1e7,5e7", metavar="N,…", help="numbers of rows"
    )
    parser.add_argument("--shuffled", action="store_true", help="rows in random order")
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS")
    return parser.parse_args()


def _sizes(text: str) -> list[int]:
    return [round(float(size)) for size in text.split(",")]


def _print_row(one: FitUsed) -> None:
    used, n_bytes = one.used, one.frame_bytes
    ours, theirs = n_bytes / used.seconds / 1e9, n_bytes / one.pass_seconds / 1e9
    print(
        f"{one.n_rows:>12,} {used.seconds:>9.3f} {used.cpu:>9.3f} "
        f"{one.n_rows / used.seconds / 1e6:>9.2f} {ours:>7.2f} {theirs:>11.2f} "
        f"{ours / theirs:>9.4f} {used.peak / 2**20:>9.0f} {used.peak / n_bytes:>8.2f}",
        flush=True,
    )


def _print_slopes(found: list[FitUsed]) -> None:
    """Print slopes over all sizes and over the large ones, where what is constant is little."""
    for name, least in {"all sizes": 0.0, "10⁶ rows and more": 0.9 * _MANY}.items():
        some = [one for one in found if one.n_rows >= least]
        if len(some) > 1:
            rows = np.log([one.n_rows for one in some])
            time = np.polyfit(rows, np.log([one.used.seconds for one in some]), 1)[0]
            memory = np.polyfit(rows, np.log([max(one.used.peak, 1) for one in some]), 1)[0]
            print(f"slope of log on log, {name}: time {time:.3f}, memory {memory:.3f}")


if __name__ == "__main__":
    main()
