"""Summaries as a person sees them: the whole text, so that a change of layout is a decision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vcomp

HERE = Path(__file__).parent
SYS_TOPIC = "score ~ (1|sys) + (1|topic)"


def example():
    return vcomp.fit(SYS_TOPIC, vcomp.datasets.load("bodoff2007_alpha"))


def measured():
    """Return the fit of four parts that three operators measured twice."""
    rows = {"part": np.repeat(range(4), 6), "operator": np.tile(np.repeat(list("ABC"), 2), 4)}
    mm = [20.1, 20.3, 20.6, 20.7, 20.0, 20.2, 24.2, 24.0, 24.9, 24.6, 23.8, 24.1,
          19.4, 19.6, 19.9, 20.3, 19.5, 19.3, 22.0, 22.3, 22.9, 22.6, 22.1, 21.8]  # fmt: skip
    formula = "mm ~ (1|part) + (1|operator) + (1|part:operator)"
    return vcomp.fit(formula, {**rows, "mm": mm}, method="anova")


def assayed():
    """Return the fit of two runs on each of four days, with two scores in each."""
    rows = {"day": np.repeat(range(4), 4), "run": np.tile([1, 1, 2, 2], 4)}
    mmol = [5.1, 5.2, 4.9, 5.0, 5.4, 5.5, 5.3, 5.1, 4.8, 4.9, 5.0, 4.8, 5.2, 5.3, 5.2, 5.0]
    return vcomp.fit("mmol ~ (1|day/run)", {**rows, "mmol": mmol}, method="anova")


PAGES = {
    "gauge_rr": lambda: vcomp.presets.gauge_rr(
        measured(), "part", "operator", tolerance=10
    ).summary(),
    "precision": lambda: vcomp.presets.precision(assayed()).summary(),
    "summary_reml": lambda: example().summary(),
    "design": lambda: example().design,
    "dstudy": lambda: example().dstudy(topic=[3, 6, 12]).summary(),
    "dstudy_by_level": lambda: vcomp.fit(
        SYS_TOPIC, vcomp.datasets.load("docsearch"), residual="query"
    ).dstudy(topic=[25, 50]).summary(),
    "dstudy_of_published_components": lambda: vcomp.from_components(
        {"p": 0.00751, "i": 0.01596, "a": 0.0, "pi": 0.01258, "pa": 0.00002, "ia": 0.00143,
         "pia": 0.00176}
    ).dstudy(i=[50, 100], a=[1, 2]).summary(),
    "summary_bound": lambda: vcomp.fit(
        "y ~ (1|g)", {"g": list("aabbccdd"), "y": [1.0, 3.0, 1.1, 2.8, 0.9, 3.2, 1.2, 3.1]}
    ).summary(),
    "summary_anova": lambda: vcomp.fit(
        "y ~ (1|g)", {"g": list("aabbccdd"), "y": [1.0, 3.0, 1.1, 2.8, 0.9, 3.2, 1.2, 3.1]},
        method="anova",
    ).summary(),
    "summary_fixed": lambda: vcomp.fit(
        "y ~ x + (1|g)",
        {"g": list("aaabbbccc"), "x": [1, 2, 3] * 3,
         "y": [1.0, 2.2, 3.1, 4.0, 4.9, 6.2, 2.0, 2.8, 4.1]},
    ).summary(),
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_page(page):
    expected = (HERE / f"{page}.txt").read_text(encoding="utf-8")
    text = "\n".join(line.rstrip() for line in str(PAGES[page]()).splitlines()) + "\n"
    assert text == expected


@pytest.mark.parametrize("page", [p for p in PAGES if p != "design"])
def test_page_in_a_notebook(page):
    html = PAGES[page]().as_html()
    assert html.count("<table") == html.count("</table") >= 1
