"""Error rates of three comparisons: the page has the kept ones, and a short rerun agrees."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.comparison_roads import EQUAL, KEPT, ROADS, rates

_PAGE = Path(__file__).parents[2] / "docs" / "howto" / "which-comparison.md"


def test_the_page_has_the_kept_rates():
    kept = pd.read_csv(KEPT).set_index(["equal", "road"])["rejected"]
    lines = [line for line in _PAGE.read_text(encoding="utf-8").splitlines() if " % |" in line]
    rows = [[cell.strip(" *%") for cell in line.strip("|").split("|")] for line in lines]
    assert [row[1:] for row in rows] == [
        [f"{100 * kept[equal, road]:.1f}" for road in ROADS] for equal in EQUAL
    ]


def test_a_few_collections_again():
    """Means over prompts reject equal models; the model of all facets keeps its level."""
    kept = pd.read_csv(KEPT).set_index(["equal", "road"])
    found = rates(6, EQUAL[:1]).set_index(["equal", "road"])
    for road in ROADS:
        row, again = kept.loc[(EQUAL[0], road)], found.loc[(EQUAL[0], road)]
        # The kept error is of 500 collections; 4 standard errors of 6.
        assert abs(again["rejected"] - row["rejected"]) < 4 * row["std_error"] * (500 / 6) ** 0.5
    assert found.loc[(EQUAL[0], "means"), "rejected"] > 0.1
