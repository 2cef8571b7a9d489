"""Monte Carlo error of the total of F in table 8, with seeds of its own and as published.

``python -m benchmarks.bias_study.error_of_f [--repeats 14]`` repeats the part of the study that
the total needs, with sizes up to 50 and 20 trials, and prints the standard deviation of the total
over repeats and its mean error from batches of trials. What is subtracted from estimates is the
mean of all trials, the same in all batches, so that these errors leave it out.

With shared seeds the normal numbers of a trial are those of the paper's code: a matrix filled by
columns, one for each system and the last for topic effects, from the seed i · n of trial i of n
topics, in all collections and under all assumptions. Takes a minute.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from benchmarks.bias_study.cells import SIZES, parts_of, simulator
from benchmarks.bias_study.published import TABLES
from benchmarks.bias_study.variance import components_of
from vcomp._typing import FloatArray
from vcomp.ir.kernels.quantile_tables import effects_at, scores_from_effects
from vcomp.ir.significance import mean_squares
from vcomp.ir.simulate.margin import LOW, PER_UNIT
from vcomp.ir.simulate.simulator import choose_unevenly, pool_size
from vcomp.numerics import limited_blas
from vcomp.simulate import CollectionSimulator

_SIZES = SIZES[:7]
_TRIALS, _BATCHES = 20, 10
_DELTA, _LEVEL = 0.05, 0.05
_FACTORS = next(table.factors for table in TABLES if table.number == 8)


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """A simulator, the factor of its correlations with topics last, and power by variance."""

    simulator: CollectionSimulator
    factor: FloatArray | None
    logs: FloatArray
    powers: FloatArray

    @classmethod
    def of(cls, made: CollectionSimulator) -> _Source:
        from scipy.special import fdtri, ncfdtr

        k, factor = made.n_systems, None
        if made.correlation:
            last = np.r_[1 : k + 1, 0]
            R = (made.factor @ made.factor.T)[np.ix_(last, last)]
            factor = np.linalg.cholesky(R + 1e-9 * np.eye(k + 1))
        logs = np.linspace(np.log(1e-4), np.log(0.5), 400)
        rows = []
        for n in _SIZES:
            u, v = k - 1, k * (n - 1)
            shift = _DELTA**2 / np.exp(logs) / (2 * k) * (u + v + 1)
            rows.append(1.0 - ncfdtr(u, v, shift, fdtri(u, v, 1.0 - _LEVEL)))
        return cls(made, factor, logs, np.array(rows))

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        made = self.simulator
        k, random = made.n_systems, made.random_sampling
        drawn = n if random else pool_size(n)
        z: FloatArray = rng.standard_normal((k + 1, drawn)).T
        if self.factor is not None:
            z = z @ self.factor.T
        if not random:
            z = z[np.argsort(z[:, k], kind="stable")[choose_unevenly(n, drawn, rng)]]
        topics = np.ascontiguousarray(z[:, k])
        out, z = np.empty((n, k)), np.ascontiguousarray(z[:, :k])
        assert made.topic_margin is not None
        effects = effects_at(made.topic_margin.quantiles, topics, LOW, PER_UNIT)
        smoothing = made.scale.smoothing
        scores_from_effects(z, effects, made.offsets, made.tables, LOW, PER_UNIT, smoothing, out)
        return out.round(4)

    def measured(self, X: FloatArray) -> tuple[bool, FloatArray]:
        """Return whether F and the largest difference are significant, and estimates of power."""
        from scipy.special import fdtrc

        n, k = X.shape
        ms_s, _, ms_e = mean_squares(X)
        p = fdtrc(k - 1, (k - 1) * (n - 1), ms_s / ms_e)
        found = bool(p < _LEVEL and np.ptp(X.mean(axis=0)) >= _DELTA)
        return found, np.array([np.interp(np.log(ms_e), self.logs, row) for row in self.powers])


def total_of(sources: list[_Source], repeat: int, *, shared: bool) -> tuple[float, float]:
    """Return the total, and its error from batches of trials."""
    m = len(_SIZES)
    actual = np.empty((len(sources), m, _TRIALS))
    estimates = np.empty((*actual.shape, m))
    for p, source in enumerate(sources):
        for s, n in enumerate(_SIZES):
            for trial in range(_TRIALS):
                own = ((trial + 1) * n,) if shared else (p, s, trial)
                X = source.draw(n, np.random.default_rng([repeat, *own]))
                actual[p, s, trial], estimates[p, s, trial] = source.measured(X)
    errors = (estimates - actual.mean(axis=2)[:, None, None, :]).reshape(4, 2, 2, 2, 2, m, -1, m)
    batches = np.array_split(np.arange(_TRIALS), _BATCHES)
    of = [components_of(errors[:, :, :, :, :, :, some], _FACTORS)[-1] for some in batches]
    total = float(components_of(errors, _FACTORS)[-1])
    return total, float(np.std(of, ddof=1) / np.sqrt(_BATCHES))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bias_study.error_of_f")
    parser.add_argument("--repeats", type=int, default=14)
    repeats = parser.parse_args().repeats
    sources = [_Source.of(simulator(part)) for part in parts_of()]
    with limited_blas(0):
        for shared in (False, True):
            found = np.array([total_of(sources, r, shared=shared) for r in range(repeats)])
            total, spread = found[:, 0].mean(), found[:, 0].std(ddof=1)
            name = "seeds as published" if shared else "own seeds"
            print(f"{name:<20} total {total:.5f}  s.d. {spread:.5f}", flush=True)
            print(f"{'':<20} mean error from batches {found[:, 1].mean():.5f}", flush=True)


if __name__ == "__main__":
    main()
