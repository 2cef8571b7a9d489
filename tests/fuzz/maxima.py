"""Fits of random small tables against the highest maximum that a dense search finds.

What a fit reports is compared with dense matrices at its own components too: the log-likelihood,
the fixed effects, the predicted effects, and their standard errors.

    python -m tests.fuzz.maxima --cases 20000 --state maxima.jsonl
    python -m tests.fuzz.maxima --cases 20000 --state one_term.jsonl --family one-term

A line of the file is one case; a run continues after the last line.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import vcomp
from tests.fuzz.one_term import highest, one_term_case
from tests.fuzz.oracle import Dense
from tests.fuzz.small_tables import case

LOSS = 1e-6
"""Largest difference of log-likelihoods from the highest maximum."""

WRONG_BY = 1e-6
"""Largest difference of an effect or its error, in units of the effect's standard deviation."""

_NO_RESIDUAL = 1e-4
"""Share of the residual at the end of a dense search that goes to zero."""


@dataclass(frozen=True)
class Outcome:
    """What became of one case.

    Attributes
    ----------
    number : of the case
    verdict : ``"same"``, ``"said"`` (there is no maximum, and the library says so), ``"refused"``
        (too few rows), ``"ahead"`` (higher than the search), or what is wrong: ``"lost"``,
        ``"silent"`` (there is no maximum, and the library does not say so), ``"false alarm"``,
        ``"wrong number"`` (another value at the components of the fit)
    loss : of log-likelihood; nan where there is no maximum or no fit
    status : of the fit, or its error
    off : largest difference of a reported number, in units of WRONG_BY or LOSS
    """

    number: int
    verdict: str
    loss: float
    status: str
    off: float = np.nan


WRONG = ("lost", "silent", "false alarm", "wrong number")


FAMILIES = {"small": (case, Dense.highest), "one-term": (one_term_case, highest)}
"""How the cases of a family are drawn, and how their highest maximum is found."""


def outcome(number, seed=0, *, family="small", search=None):
    """Return the outcome of a case of a family."""
    drawn, of_family = FAMILIES[family]
    made, search = drawn(number, seed), search or of_family
    dense = Dense(made.data["y"], made.X, made.labels, reml=made.reml)
    best = search(dense)
    saturated = best.unbounded or best.values[-1] <= _NO_RESIDUAL * best.values.sum()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", vcomp.VcompWarning)
            res = vcomp.fit(made.formula, made.data, method="reml" if made.reml else "ml")
    except vcomp.VcompError as error:
        if "too few for" in str(error):
            return Outcome(number, "refused", np.nan, str(error))
        said = "residual variance is zero" in str(error) and saturated
        return Outcome(number, "said" if said else "false alarm", np.nan, str(error))
    loss = np.nan if best.unbounded else float(best.loglike - res.llf)
    if not res.converged:
        # Next to a residual of zero the likelihood may be flat rather than unbounded.
        said = saturated and any(
            word in res.status for word in ("saturated", "saddle", "response is constant")
        )
        return Outcome(number, "said" if said else "false alarm", loss, res.status)
    if best.unbounded:
        return Outcome(number, "silent", loss, res.status)
    verdict = "lost" if loss > LOSS else "ahead" if loss < -LOSS else "same"
    off = differences(res, made, dense)
    if off > 1.0 and verdict != "lost":
        verdict = "wrong number"
    return Outcome(number, verdict, loss, res.status, off)


def differences(res, made, dense):
    """Return the largest difference of what a fit reports from dense matrices, in tolerances."""
    values = res.vcomp.to_numpy()
    (fixed, error), *predicted = dense.effects(values)
    found = [abs(dense.value(values) - res.llf) / LOSS]
    scales = error * WRONG_BY
    found.extend(np.abs(res.fe_params.to_numpy() - fixed) / scales)
    found.extend(np.abs(res.bse_fe.to_numpy() - error) / scales)
    for term, labels, component, (effect, error) in zip(
        made.terms, made.labels, values[:-1], predicted, strict=True
    ):
        frame = res.random_effects[":".join(term)]
        names = ["/".join(map(str, label if len(term) > 1 else (label,))) for label in frame.index]
        place = np.searchsorted(np.unique(labels), names)
        scale = np.sqrt(component) * WRONG_BY if component > 0.0 else 1e-12
        found.extend(np.abs(frame["estimate"].to_numpy() - effect[place]) / scale)
        found.extend(np.abs(frame["se"].to_numpy() - error[place]) / scale)
    return float(np.max(found))


def main(arguments=None):
    """Run the cases that a file does not have yet, and print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", choices=sorted(FAMILIES), default="small")
    parser.add_argument("--state", type=Path, default=Path("maxima.jsonl"))
    chosen = parser.parse_args(arguments)
    known = []
    if chosen.state.exists():
        known = [json.loads(line) for line in chosen.state.read_text().splitlines()]
    done = {entry["number"] for entry in known}
    with chosen.state.open("a") as file:
        for number in range(chosen.first, chosen.first + chosen.cases):
            if number in done:
                continue
            entry = asdict(outcome(number, chosen.seed, family=chosen.family))
            known.append(entry)
            file.write(json.dumps(entry) + "\n")
            file.flush()
    for verdict, count in Counter(entry["verdict"] for entry in known).most_common():
        print(f"{count:7d}  {verdict}")
    same = [abs(entry["loss"]) for entry in known if entry["verdict"] == "same"]
    print(f"largest difference of the others: {max(same, default=0.0):.2g}")
    off = [entry["off"] for entry in known if entry["off"] == entry["off"]]
    print(f"largest difference of numbers, in tolerances: {max(off, default=0.0):.2g}")
    for entry in known:
        if entry["verdict"] in WRONG:
            print(entry)


if __name__ == "__main__":
    main()
