"""Summaries as a person sees them: the whole text, so that a change of layout is a decision."""

from __future__ import annotations

from pathlib import Path

import pytest

import vcomp

HERE = Path(__file__).parent
SYS_TOPIC = "score ~ (1|sys) + (1|topic)"


def example():
    return vcomp.fit(SYS_TOPIC, vcomp.datasets.load("bodoff2007_alpha"))


PAGES = {
    "summary_reml": lambda: example().summary(),
    "design": lambda: example().design,
    "dstudy": lambda: example().dstudy(topic=[3, 6, 12]).summary(),
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
