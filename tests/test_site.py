"""The site's templates, and pages that have to exist."""

from __future__ import annotations

import re

import pytest

import vcomp
from tests.helpers.pages import ROOT, text_of

TITLE = '<ul>\n<li><a class="reference internal" href="#">A picture</a></li>\n</ul>\n'
SECTIONS = '<ul class="nav"><li><a class="reference internal nav-link" href="#a">A</a></li></ul>'


@pytest.mark.parametrize(
    ("sections", "expected"),
    [(SECTIONS, 'href="#a">A</a>'), ("", 'nav-link" href="#">A picture</a>')],
    ids=["with sections", "without sections"],
)
def test_each_page_lists_what_is_on_it(sections, expected):
    jinja2 = pytest.importorskip("jinja2")
    text = (ROOT / "docs/_templates/page-toc.html").read_text(encoding="utf-8")
    template = jinja2.Environment(autoescape=False).from_string(text)
    given = {"toc": TITLE, "_": str, "unique_html_id": str}
    page = template.render(generate_toc_html=lambda: sections, **given)
    assert "On this page" in page
    assert expected in page
    assert not template.render(generate_toc_html=str, **(given | {"toc": ""})).strip()


def test_each_format_of_logs_has_a_page():
    with pytest.raises(vcomp.PlanError) as refused:
        vcomp.evals.read("logs", "no format")
    formats = re.findall(r"'(\w+)'", str(refused.value))
    assert "inspect" in formats
    howto = ROOT / "docs" / "howto"
    overview = text_of(howto / "read-evaluation-logs.md")
    rows = re.findall(r"^\| \[.+\]\(logs/(.+)\.md\) \| `\"(.+?)\"`", overview, re.MULTILINE)
    assert [name for _, name in rows] == formats
    assert [page.replace("-", "_") for page, _ in rows] == formats
    listed = re.findall(r"<logs/(.+)>", text_of(howto / "index.md"))
    assert listed == [page for page, _ in rows]
    pages = {page.stem: text_of(page) for page in (howto / "logs").glob("*.md")}
    assert pages.keys() == set(listed)
    for text in pages.values():
        assert "    vcomp evals " in text
        assert "vcomp.evals.study(" in text
        assert "(../read-evaluation-logs.md)" in text
