"""One fit by one program, in a process of its own: ``python peer_fit.py PROGRAM DATA.npz``.

It runs under vcomp's Python or that of an environment with GPBoost, and prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

del sys.path[0]  # numba would take a module of this folder for coverage.py

import numpy as np  # noqa: E402

SMALL = 400


def by_vcomp(method: Any) -> Callable[..., dict[str, Any]]:
    """Return a fit by ``vcomp.fit``."""
    import pandas as pd

    import vcomp

    def fit(data: dict[str, Any], engine: str = "auto") -> dict[str, Any]:
        groups, X = data["groups"], data["X"]
        columns = {"y": data["y"]} | {f"g{j}": groups[:, j] for j in range(groups.shape[1])}
        columns |= {f"x{j}": X[:, j] for j in range(X.shape[1])}
        terms = [f"x{j}" for j in range(X.shape[1])]
        terms += [f"(1|g{j})" for j in range(groups.shape[1])]
        formula, frame = "y ~ " + " + ".join(terms), pd.DataFrame(columns)
        result = vcomp.fit(formula, frame, method=method, engine=engine)
        shares = result.mc_error / result.bse_vcomp
        return {
            "components": result.vcomp.tolist(),
            "errors": bool(np.isfinite(result.bse_vcomp).all()),
            "monte_carlo": float(np.max(shares)),
            "engine": result.engine.split(":")[0],
        }

    return fit


def by_gpboost(method: str) -> Callable[..., dict[str, Any]]:
    """Return a fit by GPBoost's ``GPModel``."""
    import gpboost  # type: ignore[import-not-found]

    def fit(data: dict[str, Any]) -> dict[str, Any]:
        model = gpboost.GPModel(
            group_data=data["groups"], likelihood="gaussian", matrix_inversion_method=method
        )
        model.fit(y=data["y"], X=np.column_stack([np.ones(data["y"].size), data["X"]]))
        found = np.asarray(model.get_cov_pars()).ravel()
        return {
            "components": [*found[1:].tolist(), float(found[0])],
            "errors": False,
            "monte_carlo": float("nan"),
            "engine": method,
        }

    return fit


PROGRAMS = {
    "vcomp REML": lambda: by_vcomp("reml"),
    "vcomp ML": lambda: by_vcomp("ml"),
    "GPBoost iterative": lambda: by_gpboost("iterative"),
    "GPBoost cholesky": lambda: by_gpboost("cholesky"),
}


def main() -> None:
    program, path = sys.argv[1:]
    fit = PROGRAMS[program]()
    data = dict(np.load(path))
    rng = np.random.default_rng(0)
    some = {k: v[: 10 * SMALL] for k, v in data.items()}
    some["groups"] = rng.integers(0, SMALL, some["groups"].shape)
    fit(some)  # compiles, and loads what a first fit does
    if program.startswith("vcomp"):
        fit(some, "iterative")
    wall, cpu = time.perf_counter(), time.process_time()
    found = fit(data)
    found |= {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    # Not ru_maxrss, which begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found["gib"] = float(status.split("VmHWM:")[1].split()[0]) / 2**20
    print(json.dumps(found))


if __name__ == "__main__":
    main()
