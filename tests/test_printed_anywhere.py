"""What is printed reads at any scale, in any encoding, in LaTeX and in a notebook."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout

import pytest

import vcomp
from tests.helpers import command_line
from vcomp import display

FORMULA = "score ~ (1|sys) + (1|topic)"


def fitted(scale=1.0):
    data = vcomp.datasets.load("bodoff2007_alpha")
    return vcomp.fit(FORMULA, data.assign(score=data["score"] * scale))


def all_kinds():
    """Return what can be printed, one of each kind."""
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = fitted()
    study = res.dstudy(topic=[10, 20])
    wide = vcomp.ir.ScoreMatrix.from_long(data, system="sys")
    long = {"object": "sys", "item": "topic"}
    return (
        res.summary(), res, study, res.design, study.required(), res.test("sys"), wide,
        study.optimize("topic", budget=20), vcomp.accumulate(res.formula, data),
        res.quantity("sys / (sys + Residual)"), vcomp.cronbach_alpha(data, **long),
        vcomp.item_analysis(data, **long), vcomp.icc(data, object="sys", rater="topic"),
        vcomp.ir.accuracy(wide), res.get_prediction(), res.profile(),
    )  # fmt: skip


@pytest.mark.parametrize(("encoding", "name"), [("cp1252", "s²"), ("ascii", "s2")])
def test_symbols_in_letters(encoding, name):
    """Of what a program prints, and of what the command line prints; another letter fails."""
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with redirect_stdout(out):
        for shown in all_kinds():
            print(shown)
            print(repr(shown))
    out.flush()
    of_program = out.buffer.getvalue().decode(encoding)
    fit = ("fit", FORMULA, "--dataset", "bodoff2007_alpha", "--dstudy", "topic=10", "--tau")
    printed = command_line.run(*fit, warnings_are="ignore", charset=encoding).stdout
    assert f"{name}(rel)   {name}(abs)" in re.sub(r" {4,}", "   ", of_program)
    assert "Erho" in of_program
    assert "?" not in of_program
    assert f"{name}(rel)" in printed
    assert f"{name}(abs)" in printed
    assert "?" not in printed


def test_columns_stay_below_their_headers():
    table = display.simple_table([["∞", "0.1"], ["20", "0.25"]], ["n", "σ²(δ)"])
    widths = {len(line) for line in str(table).splitlines()}
    assert len(widths) == 1


@pytest.mark.parametrize("scale", [1e-12, 1e-5, 1e-3, 1.0, 1e4, 1e9])
def test_every_scale_has_the_same_digits(scale):
    """Estimates, their roots, and both ends of intervals keep three significant digits."""
    res = fitted(scale)
    rows = str(res.summary()).splitlines()
    frame = res.gstudy()
    for name in frame.index:
        row = next(line for line in rows if line.startswith(name))
        low, high = re.search(r"\[(.*?), (.*?)\]", row).groups()
        variance, sd = row.split()[1:3]
        found = frame.loc[name]
        assert float(variance) == pytest.approx(found["estimate"], rel=1e-3)
        assert float(sd) == pytest.approx(found["estimate"] ** 0.5, rel=1e-3)
        assert float(low) == pytest.approx(found["low"], rel=5e-3)
        assert float(high) == pytest.approx(found["high"], rel=5e-3)


def test_latex_has_no_symbols_and_escapes_names():
    data = vcomp.datasets.load("bodoff2007_alpha").rename(columns={"sys": "a_b"})
    res = vcomp.fit("score ~ (1|a_b) + (1|topic)", data)
    for page in (res.summary(), res.dstudy(topic=[10, 20]).summary()):
        text = page.as_latex()
        assert text.isascii()
        assert not re.search(r"(?<!\\)[_%#](?!\\caption|\+)", text)
        assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") >= 1
        assert r"\ensuremath{" in text


def test_a_bar_is_one_rule_and_a_title_a_caption_in_latex():
    cells = display.column_table({"": ["███", "▏"]}, title="Shares & bars", stubs=["a", "b"])
    text = display.summary([cells]).as_latex()
    assert re.findall(r"\\rule\{(.*?)em\}", text) == ["1.2", "0.1"]
    assert r"\caption{Shares \& bars}" in text
    assert "%" not in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1


def test_what_stands_for_a_symbol_is_escaped_in_latex():
    cells = display.simple_table([["≈ 5", "▶ │"]], ["a", "b"])
    text = display.summary([cells], ["≈"]).as_latex()
    assert r"\textasciitilde{} 5" in text
    assert r"\textgreater{} \textbar{}" in text
    assert "~" not in text


def test_notebooks_show_sentences_and_tables():
    res = fitted()
    study = res.dstudy(topic=[10, 20])
    for shown in (study.required(), res.test("sys"), res.quantity("sys / Residual")):
        first = str(shown).splitlines()[0]
        assert first.replace("<", "&lt;").replace(">", "&gt;") in shown._repr_html_()
    assert "<table" in res.get_prediction()._repr_html_()
    assert "array(" not in repr(res.profile())
    assert "low" in res.profile()._repr_html_()
    assert repr(res.get_prediction()) == "<15 predictions>"
