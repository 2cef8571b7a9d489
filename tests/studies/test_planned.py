"""Which size is required of the measures of a comparison."""

from __future__ import annotations

import numpy as np
import pytest

import vcomp
from tests.helpers.designs import balanced
from vcomp.exceptions import PlanError
from vcomp.studies.planned import _interval, required_facet


@pytest.mark.parametrize(
    ("design", "fixed", "given", "expected"),
    [
        ("crossed", [], None, "b"),
        ("crossed", [], "b", "b"),
        # Replicates are meant where nothing else has a size.
        ("crossed, replicated", [], None, "b"),
        ("crossed, replicated", [], "replicate", "replicate"),
        ("crossed, replicated", ["b"], None, "replicate"),
        ("one way", [], None, "replicate"),
        ("three facets", [], None, None),
        ("three facets", [], "c", "c"),
        ("three facets", ["b"], None, "c"),
    ],
)
def test_the_only_facet_with_a_size_or_the_given_one(design, fixed, given, expected):
    formula, frame = balanced(design)
    study = vcomp.fit(formula, frame).dstudy(fixed=fixed)
    assert required_facet(study, 0.9, given) == expected
    with pytest.raises(PlanError):
        required_facet(study, 0.9, "a")
    with pytest.raises(PlanError):
        required_facet(study, 1.0, given)


def test_intervals_with_an_unknown_end_are_not_printed():
    assert _interval(-0.25, 1.5) == "[-0.250, 1.500]"
    for unknown in ((np.nan, 1.0), (1.0, np.nan), (np.nan, np.nan)):
        assert _interval(*unknown) == "–"
