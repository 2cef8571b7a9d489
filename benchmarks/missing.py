"""Per-document data with cells missing at random: REML, in time, and against the exact engine.

``python -m benchmarks.missing [--rows 1e6] [--exact-rows 8040] [--missing .01,.05]`` fits a large
set (the aim is 30 s), then a set small enough for ``engine="blocked"`` with both engines: their
components are equal to 1e-4, or within three of the Monte Carlo errors that are reported.
Last come universe scores of the systems in the large set; the aim is the fit's time and memory.
"""

from __future__ import annotations

import argparse
from functools import partial

from benchmarks.measure import FitUsed, Used, fit_perdoc, in_fresh_process, scores_perdoc

_AIM = 30.0
_RELATIVE = 1e-4
_ERRORS = 3.0


def main() -> None:
    arguments = _arguments()
    print(f"{arguments.rows:,} rows before any is missing; the aim is {_AIM:.0f} s")
    for share in arguments.missing:
        answer = _fit(arguments, arguments.rows, share, repeat=1)
        if isinstance(answer, str):
            print(f"{share:.0%} missing: {answer}", flush=True)
        else:
            _print_time(share, answer)
    print(f"\n{arguments.exact_rows:,} rows, both engines")
    for share in arguments.missing:
        ours = _fit(arguments, arguments.exact_rows, share, engine="iterative")
        exact = _fit(arguments, arguments.exact_rows, share, engine="blocked")
        if isinstance(ours, str) or isinstance(exact, str):
            reason = ours if isinstance(ours, str) else exact
            print(f"{share:.0%} missing: {reason}", flush=True)
        else:
            _print_comparison(share, ours, exact)
    print(f"\nuniverse_scores, {arguments.rows:,} rows before any is missing")
    for share in arguments.missing:
        used = in_fresh_process(scores_perdoc, arguments.rows, share, limit=arguments.limit)
        print(f"{share:.0%} missing: {used if isinstance(used, str) else _scores(*used)}")


def _scores(n_rows: int, fit: Used, scores: Used) -> str:
    return (
        f"{n_rows:,} rows, vcomp.fit {fit.cpu:.1f} s of processor time and "
        f"{fit.peak / 2**20:,.0f} MiB, universe_scores {scores.cpu:.1f} s and "
        f"{scores.peak / 2**20:,.0f} MiB"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.missing", description=__doc__)
    parser.add_argument("--rows", type=lambda text: round(float(text)), default=1_000_000)
    parser.add_argument("--exact-rows", type=lambda text: round(float(text)), default=24_000)
    parser.add_argument(
        "--missing",
        type=lambda text: [float(share) for share in text.split(",")],
        default="0.01,0.05",
        metavar="SHARE,…",
    )
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS")
    return parser.parse_args()


def _fit(
    arguments: argparse.Namespace,
    n_rows: int,
    share: float,
    *,
    repeat: int = 1,
    engine: str = "auto",
) -> FitUsed | str:
    work = partial(fit_perdoc, missing=share, engine=engine)
    return in_fresh_process(work, n_rows, "reml", repeat, limit=arguments.limit)


def _print_time(share: float, one: FitUsed) -> None:
    seconds, alone = one.used.first, sum(one.engine_seconds.values())
    stages = ", ".join(f"{name} {time:.2f}" for name, time in one.engine_seconds.items())
    print(
        f"{share:.0%} missing: {one.n_rows:,} rows, vcomp.fit {seconds:.2f} s "
        f"({seconds / _AIM:.2f} of the aim), the fit alone {alone:.2f} s "
        f"({stages}), peak {one.used.peak / one.frame_bytes:.1f} × the frame\n  {one.engine}"
    )
    worst = max(one.monte_carlo[name] / se for name, se in one.standard_errors.items())
    print(f"  Monte Carlo errors at most {worst:.2g} of the standard errors", flush=True)


def _print_comparison(share: float, ours: FitUsed, exact: FitUsed) -> None:
    print(
        f"{share:.0%} missing: {ours.n_rows:,} rows, iterative {ours.used.first:.2f} s, "
        f"blocked {exact.used.first:.2f} s"
    )
    within = True
    for name, value in exact.components.items():
        difference, error = ours.components[name] - value, ours.monte_carlo[name]
        relative = abs(difference) / value if value else abs(difference)
        errors = abs(difference) / error if error else float("nan")
        fits = relative <= _RELATIVE or abs(difference) <= _ERRORS * error
        within &= fits
        print(
            f"  {name:9} {ours.components[name]:.8f} {value:.8f}  relative {relative:.1e}, "
            f"{errors:.2f} Monte Carlo errors{'' if fits else '  DIFFERS'}"
        )
    bound = f"{_RELATIVE:g} relative or {_ERRORS:g} Monte Carlo errors"
    print(f"  {'all within' if within else 'NOT within'} {bound}", flush=True)


if __name__ == "__main__":
    main()
