"""Options of ``vcomp tau`` are those of the functions, and what they mean is said."""

from __future__ import annotations

import json

import pytest

import vcomp
from tests.helpers.command_line import output_of
from tests.helpers.rank_scores import WIDE
from vcomp.exceptions import PlanError

SAID = {
    "prediction": "Intervals are for the correlations of one such ranking.",
    "confidence": "Intervals are for the expected correlations themselves.",
    "independent": "Intervals take swaps as independent, which they are not: they are too short.",
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "urbano"},
        {"interval": "confidence", "alpha": 0.2},
        {"threshold": 0.03, "ties": "b", "rng": 4},
        {"method": "urbano", "interval": "prediction"},
    ],
    ids=str,
)
@pytest.mark.parametrize("topics", [None, "10,40"])
def test_numbers_and_notes(wide, options, topics):
    named = {"seed" if name == "rng" else name: value for name, value in options.items()}
    given = [text for name, value in named.items() for text in (f"--{name}", value)]
    given += [] if topics is None else ["--topics", topics]
    n = None if topics is None else [10, 40]
    expected = vcomp.ir.expected_tau(WIDE, n, **options)
    records = json.loads(output_of("tau", wide, *given, "--format", "json"))
    for record, row in zip(records, expected.itertuples(), strict=False):
        assert record["measure"] == "tau"
        for name in ("n", "estimate", "variance", "low", "high"):
            assert record[name] == pytest.approx(getattr(row, name), rel=1e-12, abs=1e-14)
    usual = "independent" if options.get("method") == "urbano" else "prediction"
    assert SAID[options.get("interval", usual)] in output_of("tau", wide, *given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--method", "urban"], r"not 'urban' \(did you mean 'urbano'\?\)"),
        (["--interval", "normal"], "interval must be 'prediction', 'confidence' or 'independent'"),
        (["--ties", "c"], "ties must be 'a' or 'b'"),
        (["--threshold", "-1"], "threshold is the largest difference of equal systems"),
    ],
)
def test_other_options_are_refused(wide, given, message):
    with pytest.raises(PlanError, match=message):
        output_of("tau", wide, *given)


def test_a_fit_without_sizes_has_the_interval_of_the_test_at_hand():
    printed = output_of(
        "fit", "score ~ (1|sys) + (1|topic)", "--dataset", "bodoff2007_alpha", "--tau"
    )
    data = vcomp.datasets.load("bodoff2007_alpha")
    row = vcomp.fit("score ~ (1|sys) + (1|topic)", data).expected_tau().iloc[0]
    assert f"{row['estimate']:.3f}   [{row['low']:.3f}, {row['high']:.3f}]" in printed
