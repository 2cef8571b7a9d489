"""Small designs for the tests of levels, codes and structure."""

import numpy as np
from hypothesis import strategies as st
from patsy import EvalEnvironment

from vcomp.data.reading import Reading
from vcomp.data.rows import Rows
from vcomp.design import learn
from vcomp.formula import parse


def scope():
    return EvalEnvironment([{"np": np}])


def rows_of(formula, data, missing="drop"):
    return Rows.select(parse(formula), data, Reading(scope(), missing))


def design_of(formula, data):
    return learn(parse(formula), rows_of(formula, data), scope())


@st.composite
def tables(draw, facets=("a", "b", "c"), max_levels=4, max_rows=30):
    """Return columns of level numbers, every facet with two levels at least."""
    n = draw(st.integers(8, max_rows))
    columns = {}
    for facet in facets:
        size = draw(st.integers(2, max_levels))
        codes = draw(st.lists(st.integers(0, size - 1), min_size=n, max_size=n))
        columns[facet] = np.array([0, 1, *codes[2:]])
    return columns
