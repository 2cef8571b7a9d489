"""The picture of an item analysis."""

from __future__ import annotations

import numpy as np
import pytest

from vcomp import plots
from vcomp.exceptions import DataError
from vcomp.studies.items import item_analysis

SCORES = np.random.default_rng(0).normal(size=(30, 1)) + np.random.default_rng(1).normal(
    size=(30, 6)
)


@pytest.fixture
def analysis():
    X = np.column_stack([SCORES, -SCORES[:, 0], np.full(30, 2.0)])
    return item_analysis(X)


def test_points_are_the_items(analysis):
    ax = analysis.plot()
    table = analysis.table.dropna(subset=["item_rest"])
    drawn = {tuple(p) for line in ax.lines[2:] for p in np.round(line.get_xydata(), 12).tolist()}
    expected = np.round(table[["difficulty", "item_rest"]].to_numpy(), 12)
    assert drawn == {tuple(p) for p in expected.tolist()}
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    flagged = int(table["flagged"].sum())
    assert legend == [f"not flagged ({len(table) - flagged})", f"flagged ({flagged})"]
    assert "without a correlation: 1 item" in ax.get_xlabel()


def test_worst_items_have_names(analysis):
    assert [text.get_text() for text in analysis.plot(max_labels=1).texts] == ["6"]
    assert analysis.plot(max_labels=0).texts[:] == []


def test_items_that_cannot_be_drawn(analysis):
    with pytest.raises(DataError, match="no column 'item_rest'"):
        plots.items(analysis.table.drop(columns="item_rest"))
    with pytest.raises(DataError, match="nothing to draw"):
        plots.items(analysis.table.assign(item_rest=np.nan))


def test_long_names_do_not_overlap(analysis):
    table = analysis.table.assign(flagged=True)
    table.index = [f"a very long name of an item, number {k}" for k in range(len(table))]
    ax = plots.items(table)
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) > 1
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
