"""The site's templates."""

from __future__ import annotations

import pytest

from tests.helpers.pages import ROOT

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
