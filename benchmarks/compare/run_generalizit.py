"""``python run_generalizit.py "y~a=a;Residual=a,b" DATA.csv``: components and time, as JSON."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time

import pandas as pd
from generalizit import GeneralizIT  # type: ignore[import-not-found]


def main(formula: str, path: str) -> None:
    response, listed = formula.split("~")
    terms = dict(term.split("=") for term in listed.split(";"))
    facets = {name: tuple(of.split(",")) for name, of in terms.items()}
    data = pd.read_csv(path)
    seconds = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            # It takes the mean for one more component, and leaves it in the others if not told so.
            analysis = GeneralizIT(data, "", response, {**facets, "mean": ()})
            analysis.calculate_anova()
        seconds = min(seconds, time.perf_counter() - start)
    components = analysis.design.anova_table["Variance"].drop("mean").to_dict()
    print(json.dumps({"components": components, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
