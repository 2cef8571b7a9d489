"""Ratings of films on the scale of MovieLens: the iterative engine from codes to components.

``python -m benchmarks.movielens --size 1e6|1e7|32m [--clustered]`` prints seconds of each stage,
peak memory, and components with their standard and Monte Carlo errors. The data are simulated,
with activity and popularity by a power law; ``--clustered`` puts users and films into communities
with one rating in a hundred between them, so that conjugate gradients converge slowly. ``--fit``
calls ``vcomp.fit`` with a data frame, as users do.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import vcomp
from vcomp._typing import FloatArray, IntArray
from vcomp.display import memory
from vcomp.estimators.likelihood.iterative import IterativeLikelihood
from vcomp.estimators.likelihood.iterative_context import iterative_memory
from vcomp.estimators.likelihood.likelihood import certify
from vcomp.estimators.likelihood.maximisation import maximise
from vcomp.numerics.kernels.codes import ONCE, count_levels, group_sums, pair_counts
from vcomp.statistics.cross_products import CrossProducts
from vcomp.statistics.roll_up import PairTable

SIZES = {
    "1e5": (100_000, 2_000, 1_000),
    "1e6": (1_000_000, 6_000, 4_000),
    "1e7": (10_000_000, 70_000, 10_000),
    "32m": (32_000_204, 200_948, 84_432),
}
"""Ratings, users, films; the last is the shape of MovieLens-32M."""

COMPONENTS = (0.2, 0.25, 0.75)
"""Of users, films and residual: about those of MovieLens."""

_COMMUNITIES = 20
_ACROSS = 0.01
_CHUNK = 2_000_000
_TOLERANCE = 1e-4
"""Newton decrement, in standard errors: far below the Monte Carlo error."""


@dataclass(frozen=True, slots=True)
class Ratings:
    """Ratings in int32 codes."""

    users: IntArray
    films: IntArray
    y: FloatArray
    n_users: int
    n_films: int


def simulate(
    n: int, n_users: int, n_films: int, *, clustered: bool = False, seed: int = 1
) -> Ratings:
    """Return `n` ratings, no film rated twice by a user, every user and film with one at least."""
    rng = np.random.default_rng(seed)
    keys = _pairs(rng, n, n_users, n_films, clustered)
    users = (keys // n_films).astype(np.int32)
    films = (keys % n_films).astype(np.int32)
    del keys
    # Codes tell nothing of activity, as those of labels do.
    users = rng.permutation(n_users).astype(np.int32)[users]
    films = rng.permutation(n_films).astype(np.int32)[films]
    return Ratings(users, films, _scores(rng, users, films, n_users, n_films), n_users, n_films)


def _pairs(
    rng: np.random.Generator, n: int, n_users: int, n_films: int, clustered: bool
) -> NDArray[np.int64]:
    """Return user · n_films + film of `n` different pairs, in random order."""
    every = np.concatenate(
        [
            np.arange(n_users, dtype=np.int64) * n_films
            + _films(rng, np.arange(n_users), n_films),
            rng.integers(0, n_users, n_films) * n_films + np.arange(n_films),
        ]
    )
    every = np.unique(every)
    more = np.zeros(0, np.int64)
    while every.size + more.size < n:
        wanted = int(1.05 * (n - every.size - more.size)) + 1000
        drawn = np.empty(wanted, np.int64)
        for first in range(0, wanted, _CHUNK):
            part = drawn[first : first + _CHUNK]
            users = _ranks(rng, part.size, n_users, 2.0)
            films = (
                _films(rng, users, n_films) if clustered else _ranks(rng, part.size, n_films, 3)
            )
            part[:] = users * n_films + films
        more = np.concatenate([more, drawn])
        del drawn
        more.sort()
        more = more[np.concatenate([[True], more[1:] != more[:-1]])]
        more = more[every[np.minimum(np.searchsorted(every, more), every.size - 1)] != more]
    rng.shuffle(more)
    keys = np.concatenate([every, more[: n - every.size]])
    del more
    rng.shuffle(keys)
    return keys


def _ranks(rng: np.random.Generator, n: int, size: int, power: float) -> NDArray[np.int64]:
    """Return codes whose frequencies fall by a power of their rank."""
    return np.minimum((size * rng.random(n) ** power).astype(np.int64), size - 1)


def _films(rng: np.random.Generator, users: NDArray[np.int64], n_films: int) -> NDArray[np.int64]:
    """Return films, 99 in a hundred of the user's own community: the code's remainder."""
    n = users.size
    community = np.where(
        rng.random(n) < _ACROSS, rng.integers(0, _COMMUNITIES, n), users % _COMMUNITIES
    )
    films = _ranks(rng, n, n_films // _COMMUNITIES, 3.0) * _COMMUNITIES + community
    return films


def _scores(
    rng: np.random.Generator, users: IntArray, films: IntArray, n_users: int, n_films: int
) -> FloatArray:
    roots = np.sqrt(COMPONENTS)
    user, film = roots[0] * rng.normal(size=n_users), roots[1] * rng.normal(size=n_films)
    y = np.empty(users.size)
    for first in range(0, users.size, _CHUNK):
        part = slice(first, first + _CHUNK)
        y[part] = rng.normal(size=users[part].size) * roots[2]
        y[part] += 3.5 + user[users[part]] + film[films[part]]
    return y


def cross_products(ratings: Ratings) -> CrossProducts:
    """Return the statistics of y ~ (1|user) + (1|film), an intercept the fixed part."""
    n, codes = ratings.y.size, (ratings.users, ratings.films)
    sizes = ratings.n_users, ratings.n_films
    y = ratings.y - ratings.y.mean()
    group_n = tuple(count_levels(c, q).astype(float) for c, q in zip(codes, sizes, strict=True))
    indptr, indices, counts = pair_counts(*codes, *sizes, ONCE)
    return CrossProducts(
        n=n,
        group_n=group_n,
        pairs={(0, 1): PairTable(indptr, indices, counts, sizes[1])},
        Zy=tuple(group_sums(c, y[:, None], q)[:, 0] for c, q in zip(codes, sizes, strict=True)),
        ZX=tuple(g[:, None] for g in group_n),
        XX=np.array([[float(n)]]),
        Xy=np.array([y.sum()]),
        yy=float(y @ y),
    )


@dataclass(slots=True)
class _Stages:
    """Seconds since the last line, those of all threads' processors, and the peak of memory."""

    begun: float = field(default_factory=time.perf_counter)
    used: float = field(default_factory=time.process_time)
    total: float = 0.0

    def __call__(self, name: str, *, counted: bool = True) -> None:
        seconds = time.perf_counter() - self.begun
        self.total += seconds if counted else 0.0
        peak = memory(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0)
        processor = time.process_time() - self.used
        print(f"{name:32} {seconds:8.2f} s, {processor:8.2f} s of processors, peak {peak}")
        self.begun, self.used = time.perf_counter(), time.process_time()


def main() -> None:
    arguments = _arguments()
    n, n_users, n_films = SIZES[arguments.size]
    kind = "clustered" if arguments.clustered else "well mixed"
    print(f"{n:,} ratings, {n_users:,} users × {n_films:,} films, {kind}")
    stages = _Stages()
    _compile()
    stages("compile", counted=False)
    ratings = simulate(n, n_users, n_films, clustered=arguments.clustered)
    stages("simulate", counted=False)
    if arguments.fit:
        frame = pd.DataFrame({"y": ratings.y, "user": ratings.users, "film": ratings.films})
        del ratings
        stages("data frame", counted=False)
        result = vcomp.fit("y ~ (1|user) + (1|film)", frame, engine="iterative")
        stages("fit")
        print(result.summary(), result.certificate, sep="\n")
        return
    stats = cross_products(ratings)
    del ratings
    stages("statistics")
    engine = IterativeLikelihood(stats, reml=True, n_probes=arguments.probes)
    start = np.maximum(engine.mivque0(), 1e-3)
    stages("start (MIVQUE0)")
    group_sizes = np.array([*engine.sizes, engine.n], dtype=float)
    found = maximise(engine, start, group_sizes, tol=_TOLERANCE)
    stages(f"maximise, {found.evaluations} evaluations")
    names = ("user", "film", "Residual")
    certified = certify(engine, found, names, _TOLERANCE)
    noise = engine.monte_carlo(found.v)
    stages("certificate and errors")
    llf = engine.loglike(found.v)
    stages("log-likelihood")
    print(f"{'total from codes':32} {stages.total:8.2f} s")
    errors = np.sqrt(np.diagonal(certified.covariances["average"]))
    for name, value, error, monte_carlo in zip(
        names, found.v, errors, np.sqrt(np.diagonal(noise)), strict=True
    ):
        print(f"{name:10} {value:.6f}  SE {error:.6f}  Monte Carlo error {monte_carlo:.7f}")
    print(f"llf {llf:.3f}, Monte Carlo error {engine.loglike_error(found.v):.3f}")
    print(f"products by solve {engine.products}")
    print(f"engine's own memory, estimated {memory(iterative_memory(stats, arguments.probes))}")
    print(certified.certificate)


def _compile() -> None:
    """Compile the kernels on data of no size, as a first fit does."""
    engine = IterativeLikelihood(cross_products(simulate(2_000, 100, 60)), reml=True)
    maximise(engine, np.array(COMPONENTS), np.array([100.0, 60.0, 2_000.0]), tol=_TOLERANCE)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.movielens", description=__doc__)
    parser.add_argument("--size", choices=tuple(SIZES), default="1e6")
    parser.add_argument("--clustered", action="store_true", help="20 communities, 1 %% across")
    parser.add_argument("--probes", type=int, default=8, metavar="N", help="random columns")
    parser.add_argument("--fit", action="store_true", help="through vcomp.fit, from a data frame")
    return parser.parse_args()


if __name__ == "__main__":
    main()
