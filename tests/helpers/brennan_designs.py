"""Designs, and balanced data of them with an effect of every kind."""

from itertools import product

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from vcomp.formula.brennan import BrennanDesign

DESIGNS = [
    "p x i",
    "i:p",
    "p x i x o",
    "p x (i:h)",
    "(i:p) x o",
    "i:h:p",
    "r:(p x t)",
    "(i x o):p",
    "p x i x o x a",
    "p x a x (d:i)",
    "p x (d:i:h)",
    "v:(r x i) x p",
    "(i:p) x (r:t)",
    "((d:i) x r):h",
    "r:(p x (t:h))",
    "(i:h) x (r:(h x t))",
]
"""Up to four facets: crossed, nested, within two crossed ones, side by side in one."""


@st.composite
def small_designs(draw, most=4):
    """Any nesting of a few facets with one-letter names."""
    facets = "abcde"[: draw(st.integers(1, most))]
    above = {
        f: draw(st.sets(st.sampled_from(facets[:k]))) if k else set() for k, f in enumerate(facets)
    }
    return BrennanDesign.of(draw(st.permutations(facets)), above)


def balanced_data(design, sizes, replicates=1, seed=0, unique=()):
    """Return every cell of a balanced design, with random effects of all kinds in the score.

    Labels of nested facets start anew, but for those that are named in `unique`.
    """
    facets = list(design.facets)
    rows = list(product(*(range(sizes[f]) for f in facets), range(replicates)))
    frame = pd.DataFrame(rows, columns=[*facets, "copy"]).drop(columns="copy")
    rng = np.random.default_rng(seed)
    score = rng.normal(size=len(frame))
    for size in range(1, 2 ** len(facets)):
        chosen = [f for k, f in enumerate(facets) if size >> k & 1]
        groups = frame.groupby(sorted(design.closure(chosen))).ngroup().to_numpy()
        score = score + rng.normal(size=groups.max() + 1)[groups]
    whole = frame.copy()
    for facet in unique:
        columns = sorted(design.closure([facet]))
        whole[facet] = frame.groupby(columns).ngroup()
    return whole.assign(score=score)
