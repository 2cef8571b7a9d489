"""Pages have the stored seconds and ratios of calls on large data."""

from pathlib import Path

import pandas as pd
import pytest

from benchmarks import after_fit, crossed_scale, eval_scale
from benchmarks.measure import keep

ROOT = Path(__file__).parents[2]
PAGES = {
    after_fit: ROOT / "docs" / "explanation" / "how-it-scales.md",
    crossed_scale: ROOT / "benchmarks" / "README.md",
    eval_scale: ROOT / "benchmarks" / "README.md",
}


@pytest.mark.parametrize("program", PAGES, ids=lambda program: program.__name__)
def test_the_page_has_the_stored_lines(program):
    assert program.table() in PAGES[program].read_text(encoding="utf-8")


def test_every_call_after_a_fit_was_measured():
    stored = pd.read_csv(after_fit.STORED)
    wanted = {(call, n) for call in after_fit.CALLS for n in after_fit.SIZES}
    assert set(zip(stored["call"], stored["rows"], strict=True)) == wanted


def test_a_line_is_stored_in_place_of_that_of_the_same_data(tmp_path):
    path = tmp_path / "stored.csv"
    path.write_bytes(eval_scale.STORED.read_bytes())
    before = pd.read_csv(path)
    line = before.iloc[0].to_dict() | {"seconds": 1.5}
    keep(line, path, eval_scale.KEY)
    after = pd.read_csv(path)
    assert len(after) == len(before)
    assert after.loc[after["part"].eq("study") & after["missing"].eq(0.0), "seconds"].item() == 1.5
