"""Make the stored reference values again, and compare: ``python -m tests.reference.make_values``.

What exact or dense algebra can compute in minutes is computed without vcomp, from the tables of
``tables.py``. Names of files may follow; ``--to FOLDER`` writes what was made, one JSON a file.
What R's programs alone print is made by ``make_values.R``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.reference import plans
from tests.reference.normal import Likelihood, fixed_interval
from tests.reference.projections import Design, Matrix, each_last, henderson1, type1
from tests.reference.tables import VALUES

Values = dict[str, Any]
# Relative to the largest number of a block: what dense algebra leaves of 16 digits.
TOLERANCE = 1e-8
LARGE = 10_000


def stored(name: str) -> Values:
    parsed: Values = json.loads((VALUES / f"{name}.json").read_text(encoding="utf-8"))
    return parsed


def anova(name: str) -> Values:
    """Return Henderson I, Type I and Henderson III as far as a file has them."""
    file = stored(name)
    design, values = Design(file["formula"], file["dataset"]), file["values"]
    made: Values = {}
    if "hm1" in values:
        exact = values["hm1"]["vc_exact"] is not None
        made["hm1"] = henderson1(design, exact, design.n < LARGE)
    if "type1" in values:
        made["type1"] = type1(design, values["type1"]["order"])
    if "hm3_each_last" in values:
        made["hm3_each_last"] = each_last(design, values["hm3_each_last"]["order"])
    return made


def likelihood(name: str, profiles: bool = True) -> Values:
    """Return REML, ML, MIVQUE0 and MINQUE(1).

    Maxima are climbed to from equal components; those of large tables from where lmer stopped.
    """
    file = stored(name)
    design, values = Design(file["formula"], file["dataset"]), file["values"]
    made: Values = {"n": design.n, "n_fixed": design.X.shape[1]}
    for method in ("REML", "ML"):
        start = None
        if design.n > LARGE:
            start = np.array([values["lme4"][method]["vc"][name] for name in design.names])
        engine = Likelihood(design, method == "REML")
        made[method] = _maximum(engine, engine.maximum(start), values[method], profiles)
    reml = Likelihood(design, reml=True)
    for key, weight in (("mivque0", 0.0), ("minque1", 1.0)):
        if key in values:
            at = reml.at(np.array([*[weight] * len(design.terms), 1.0]))
            solution = np.linalg.solve(2.0 * at["expected"], at["forms"])
            made[key] = dict(zip(design.names, solution.tolist(), strict=True))
    if "REML_unconstrained" in values:
        vc = reml.maximum(bound=False)
        made["REML_unconstrained"] = {
            "vc": dict(zip(design.names, vc.tolist(), strict=True)),
            "logLik": reml.at(vc)["llf"],
        }
    return made


def _maximum(engine: Likelihood, vc: Matrix, known: Values, profiles: bool) -> Values:
    design = engine.design
    here = engine.at(vc)
    k = len(vc) + design.X.shape[1]
    beta = here["beta"].copy()
    beta[0] += engine.shift
    free = vc > 0.0
    made: Values = {
        "vc": dict(zip(design.names, vc.tolist(), strict=True)),
        "zero_components": [n for n, v in zip(design.names, vc, strict=True) if v == 0.0],
        "logLik": here["llf"],
        "df": k,
        "AIC": 2.0 * (k - here["llf"]),
        "BIC": k * np.log(design.n) - 2.0 * here["llf"],
        "fixef": dict(zip(design.fixed_names, beta.tolist(), strict=True)),
        "se_fixef": dict(
            zip(design.fixed_names, np.sqrt(np.diagonal(here["cov_beta"])).tolist(), strict=True)
        ),
        "vcov_fixef": here["cov_beta"].tolist(),
        "observed_information": here["observed"].tolist(),
        "expected_information": here["expected"].tolist(),
    }
    for kind, key in (("observed", "observed"), ("expected", "expected"),
                      ("average", "average_information")):  # fmt: skip
        covariance = np.linalg.inv(here[kind][np.ix_(free, free)])
        se = np.full(len(vc), np.nan)
        se[free] = np.sqrt(np.diagonal(covariance))
        made[f"se_vc_{key}"] = {
            n: None if np.isnan(v) else float(v) for n, v in zip(design.names, se, strict=True)
        }
    if "blup" in known:
        made |= _effects(engine, vc, here, known)
    if profiles and known.get("profile_ci_exact"):
        made["profile_ci_exact"] = _profiles(engine, vc, known["profile_ci_exact"])
    return made


def _effects(engine: Likelihood, vc: Matrix, here: Values, known: Values) -> Values:
    made: Values = {}
    kinds = {
        "blup": lambda i, b: vc[i] * here["Py"][i],
        "condvar_given_beta": lambda i, b: vc[i] - vc[i] ** 2 * np.diagonal(here["S"][b, b]),
        "pev": lambda i, b: vc[i] - vc[i] ** 2 * np.diagonal(here["P"][b, b]),
    }
    for key, function in kinds.items():
        if known.get(key):
            made[key] = {
                term: dict(zip(engine.design.labels[term],
                               function(i, engine.blocks[i]).tolist(), strict=True))
                for i, term in enumerate(engine.design.terms) if known[key].get(term)
            }  # fmt: skip
    return made


def _profiles(engine: Likelihood, vc: Matrix, known: Values) -> Values:
    made: Values = {}
    for level, alpha in (("95", 0.05), ("90", 0.1)):
        if f"variance_{level}" in known:
            made[f"variance_{level}"] = {
                name: engine.interval(k, alpha, vc) for k, name in enumerate(engine.design.names)
            }
        if f"fixef_{level}" in known:
            made[f"fixef_{level}"] = {
                name: fixed_interval(engine, k, alpha, vc)
                for k, name in enumerate(engine.design.fixed_names)
            }
    return made


def vca(name: str) -> Values:
    """Return the table of sums of squares and the covariance that R's VCA prints."""
    file = stored(name)
    design = Design(file["formula"], file["dataset"])
    found = type1(design, design.names)
    rows = {
        "error" if n == "Residual" else n: {
            "DF": found["df"][n], "SS": found["ss"][n], "MS": found["ms"][n], "VC": found["vc"][n]
        }
        for n in design.names
    }  # fmt: skip
    return {
        "anova_negvc": rows,
        "mean": float(design.y.mean()),
        "vcov_vc_scm": {"names": list(rows), "matrix": found["cov_vc"]},
        "nobs": design.n,
    }


def made(name: str, profiles: bool = True) -> Values | None:
    """Return the values of one stored file again, or None if only another program prints them."""
    kind = name.partition("_")[0]
    if kind == "anova":
        return anova(name)
    if kind == "lme4":
        return likelihood(name, profiles) if stored(name)["values"] else None
    if kind == "vca":
        return vca(name)
    if kind == "dstudy":
        return plans.dstudy_values(name, stored(name)["values"])
    if name == "gt4ireval_gt2maps":
        return plans.mapping_values(stored(name)["values"])
    if kind == "gt4ireval":
        return plans.gt4ireval_values(stored(name)["values"])
    return None


def differences(new: Any, old: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield for every block of numbers how far it is from the stored one, relative to its size.

    Only what was made is compared; names must be there, texts and whole numbers be the same.
    """
    if isinstance(new, dict) and not all(_is_number(v) for v in new.values()):
        for key, value in new.items():
            if key not in old and isinstance(value, (dict, list)):
                continue
            yield from differences(value, old[key], f"{path}.{key}" if path else key)
    elif isinstance(new, list) and any(isinstance(v, (dict, str)) for v in new):
        if len(new) != len(old):
            yield path, np.inf
        for a, b in zip(new, old, strict=False):
            yield from differences(a, b, path)
    elif isinstance(new, dict):
        yield path, _distance([new[k] for k in new if k in old], [old[k] for k in new if k in old])
    elif new is None or isinstance(new, str):
        yield path, 0.0 if new == old else np.inf
    else:
        yield path, _distance(new, old)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (int, float))


def _distance(new: Any, old: Any) -> float:
    a = np.array(new, dtype=float).ravel()
    b = np.array(old, dtype=float).ravel()
    if a.shape != b.shape or not (np.isnan(a) == np.isnan(b)).all():
        return float("inf")
    if not a.size or np.isnan(a).all():
        return 0.0
    scale = max(float(np.nanmax(np.abs(b))), 1e-300)
    return float(np.nanmax(np.abs(a - b))) / scale


def worst(name: str, new: Values) -> tuple[str, float]:
    """Return the block of a file that is furthest from what was made again, and how far it is."""
    found = list(differences(new, stored(name)["values"]))
    return max(found, key=lambda pair: pair[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="files to make; all if none is named")
    parser.add_argument("--to", type=Path, help="folder to write what was made to")
    options = parser.parse_args()
    every = sorted(p.stem for p in VALUES.glob("*.json") if p.stem != "tables")
    failed = 0
    for name in options.names or every:
        new = made(name)
        if new is None:
            print(f"{name:40} not made here", flush=True)
            continue
        block, distance = worst(name, new)
        print(f"{name:40} {distance:8.1e}  {block}", flush=True)
        failed += distance > TOLERANCE
        if options.to:
            options.to.mkdir(parents=True, exist_ok=True)
            text = json.dumps(new, ensure_ascii=False, indent=1)
            (options.to / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
