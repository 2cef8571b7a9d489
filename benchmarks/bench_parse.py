"""Text → Formula, against patsy's own parser on the same terms without bars."""

from __future__ import annotations

from functools import partial

from patsy import ModelDesc

from benchmarks.common import FULL_MODEL, Report, Settings, best_of
from vcomp.formula import parse

_CASES = {
    "2 terms": "score ~ (1|sys) + (1|topic)",
    "10 terms": FULL_MODEL,
    "expanded, (1|a*b*c)": "score ~ (1|a*b*c)",
}


def run(report: Report, settings: Settings) -> None:
    report.section("parse")
    for name, text in _CASES.items():
        plain = text.replace("(1|", "(")
        theirs = ModelDesc.from_formula(plain).rhs_termlist[1:]
        assert [term.name for term in parse(text).random] == [term.name() for term in theirs]
        report(
            name,
            best_of(partial(parse, text), 50),
            "patsy.ModelDesc.from_formula",
            best_of(partial(ModelDesc.from_formula, plain), 50),
        )
