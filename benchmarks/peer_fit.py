"""One fit by one program, in a process of its own: ``python peer_fit.py PROGRAM DATA.npz``.

It runs under vcomp's Python or that of an environment with the others, and prints a line of JSON.
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
_MOST = Path("/proc/self/clear_refs")


Data = dict[str, Any]
Program = tuple[Callable[[Data], Any], Callable[[Any], dict[str, Any]]]
"""What prepares the data as the program's users have them, before the clock runs, and the fit."""


def in_a_frame(data: Data) -> tuple[Any, list[str], list[str]]:
    """Return a data frame with y, and the names of groups and covariates."""
    import pandas as pd

    groups, X = data.pop("groups"), data.pop("X")
    by, of_x = ([f"{c}{j}" for j in range(m.shape[1])] for c, m in (("g", groups), ("x", X)))
    columns = dict(zip(by, groups.T, strict=True)) | dict(zip(of_x, X.T, strict=True))
    return pd.DataFrame({"y": data.pop("y"), **columns}), by, of_x


def by_vcomp(method: Any, engine: str = "auto") -> Program:
    """Return a fit by ``vcomp.fit``."""
    import vcomp

    def fit(prepared: Any) -> dict[str, Any]:
        frame, groups, covariates = prepared
        formula = "y ~ " + " + ".join([*covariates, *(f"(1|{g})" for g in groups)])
        result = vcomp.fit(formula, frame, method=method, engine=engine)
        shares = result.mc_error / result.bse_vcomp
        return {
            "components": result.vcomp.tolist(),
            "errors": bool(np.isfinite(result.bse_vcomp).all()),
            "monte_carlo": float(np.max(shares)),
            "engine": result.engine.split(":")[0],
        }

    return in_a_frame, fit


def by_gpboost(method: str) -> Program:
    """Return a fit by GPBoost's ``GPModel``."""
    import gpboost  # type: ignore[import-not-found]

    def prepared(data: Data) -> Any:
        y, X = data.pop("y"), data.pop("X")
        return data.pop("groups"), y, np.column_stack([np.ones(y.size), X])

    def fit(given: Any) -> dict[str, Any]:
        groups, y, X = given
        model = gpboost.GPModel(
            group_data=groups, likelihood="gaussian", matrix_inversion_method=method
        )
        model.fit(y=y, X=X)
        found = np.asarray(model.get_cov_pars()).ravel()
        return _point([*found[1:].tolist(), float(found[0])], method)

    return prepared, fit


def by_interlace() -> Program:
    """Return a fit by interlace-lme."""
    import interlace  # type: ignore[import-not-found]

    def fit(prepared: Any) -> dict[str, Any]:
        frame, groups, covariates = prepared
        formula = " + ".join(["y ~ 1", *covariates])
        result = interlace.fit(formula=formula, data=frame, groups=groups, method="REML")
        found = [float(result.variance_components[g]) for g in groups]
        return _point([*found, float(result.scale)], "")

    return in_a_frame, fit


def by_mixedlm() -> Program:
    """Return a fit by statsmodels' ``MixedLM``; the first groups hold the others if nested."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    def fit(prepared: Any) -> dict[str, Any]:
        frame, groups, covariates = prepared
        outer, *inner = groups
        nested = all(len(frame[[outer, g]].drop_duplicates()) == frame[g].nunique() for g in inner)
        parts = {g: f"0 + C({g})" for g in (inner if nested else groups)}
        model = MixedLM.from_formula(
            " + ".join(["y ~ 1", *covariates]),
            frame,
            groups=frame[outer] if nested else np.ones(len(frame)),
            re_formula="1" if nested else None,
            vc_formula=parts,
        )
        result = model.fit(reml=True)
        found = dict(zip(model.exog_vc.names, result.vcomp.tolist(), strict=True))
        if nested:
            found[outer] = float(result.cov_re.iloc[0, 0])
        point = _point([*(found[g] for g in groups), float(result.scale)], "")
        return point | {"errors": True}

    return in_a_frame, fit


def _point(components: list[float], engine: str) -> dict[str, Any]:
    return {
        "components": components,
        "errors": False,
        "monte_carlo": float("nan"),
        "engine": engine,
    }


PROGRAMS: dict[str, Callable[[], Program]] = {
    "vcomp REML": lambda: by_vcomp("reml"),
    "vcomp ML": lambda: by_vcomp("ml"),
    "GPBoost iterative": lambda: by_gpboost("iterative"),
    "GPBoost cholesky": lambda: by_gpboost("cholesky"),
    "interlace REML": by_interlace,
    "mixedlm REML": by_mixedlm,
}


def main() -> None:
    """Fit once a small table, which compiles and loads, and then the data."""
    name, path = sys.argv[1:]
    prepare, fit = PROGRAMS[name]()
    rng = np.random.default_rng(0)
    with np.load(path) as stored:
        data = dict(stored)
    some = {k: v[: 10 * SMALL].copy() for k, v in data.items()}
    fewest = SMALL if not name.startswith("mixedlm") else 5
    some["groups"] = rng.integers(0, fewest, some["groups"].shape)
    if name.startswith("vcomp"):
        _, iterative = by_vcomp("reml", "iterative")
        iterative(prepare(dict(some)))
    fit(prepare(some))
    prepared = prepare(data)
    _MOST.write_text("5", encoding="utf-8")  # the largest memory so far is forgotten
    wall, cpu = time.perf_counter(), time.process_time()
    found = fit(prepared)
    found |= {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    # Not ru_maxrss, which begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found["gib"] = float(status.split("VmHWM:")[1].split()[0]) / 2**20
    print(json.dumps(found))


if __name__ == "__main__":
    main()
